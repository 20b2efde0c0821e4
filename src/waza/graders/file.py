"""The `file` grader: which files the agent left, and what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

from pydantic import ConfigDict, model_validator

from waza.graders._base import Grader, files_of
from waza.graders._fields import ForbiddenPatterns, InnerPath, RequiredPatterns
from waza.graders._text import excerpt, try_search
from waza.model import JSON, Check, Files, Trace
from waza.options import Options
from waza.sandbox.patterns import Pattern
from waza.sandbox.workspace import live_root

_WHAT_STANDS = {
    "file": "a file",
    "folder": "a folder",
    "outside": "something that leads outside the workspace",
    "other": "something that is no regular file",
    "absent": "nothing",
}


class ContentPatterns(Options):
    """Patterns for one file."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    path: InnerPath
    """The file, relative to the workspace."""
    must_match: RequiredPatterns = []
    """Patterns that must match somewhere in the file."""
    must_not_match: ForbiddenPatterns = []
    """Patterns that must match nowhere in the file."""

    @model_validator(mode="after")
    def _has_a_pattern(self) -> Self:
        if not self.must_match and not self.must_not_match:
            raise ValueError("checks no content; give must_match or must_not_match, or list the file under must_exist")
        return self


class FileGrader(Grader):
    r"""Check which files are in the workspace, and their content.

    Paths are relative to the workspace and cannot leave it. A folder counts as existing. A link that leads outside, a
    hard link, and what is neither file nor folder count as absent where something must exist, and as present where
    it must not. Content is read as UTF-8, without a byte order mark. One check an entry, and one for each file with
    patterns: that it is there.

    ```yaml
    - type: file
      name: project_structure
      config:
        must_exist: ["src/index.ts", "package.json"]
        must_not_exist: ["node_modules/", ".env"]
        content_patterns:
          - path: package.json
            must_match: ['"name":\s*"my-app"']
            must_not_match: ['"version":\s*"0\.0\.0"']
    ```
    """

    all_held: ClassVar[str] = "All file checks passed"
    needs_one_of: ClassVar[tuple[str, ...]] = ("must_exist", "must_not_exist", "content_patterns")

    must_exist: list[InnerPath] = []
    """Paths that must be there."""
    must_not_exist: list[InnerPath] = []
    """Paths that must not be there."""
    content_patterns: list[ContentPatterns] = []
    """Patterns for the content of files."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per path and per pattern."""
        files = files_of(trace)
        for path in self.must_exist:
            yield _exists(files, path)
        for path in self.must_not_exist:
            yield _is_absent(files, path)
        for entry in self.content_patterns:
            yield from _content(files, entry)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return what was asked for, what failed, and where the files stand."""
        asked = self.model_dump(include={"must_exist", "must_not_exist", "content_patterns"})
        failures = [check.failure for check in checks if not check.ok]
        return asked | {"failures": failures, "workspace_dir": live_root(trace.files)}


def _exists(files: Files, path: str) -> Check:
    claim = f"{path} exists"
    try:
        kind = files.kind(path)
    except OSError as error:
        return _cannot_tell(claim, path, error)
    if kind in ("file", "folder"):
        return Check(True, claim)
    more = "" if kind == "absent" else f" (there is {_WHAT_STANDS[kind]})"
    return Check(False, claim, f"File must exist but not found: {path}{more}", "a file or folder", _WHAT_STANDS[kind])


def _is_absent(files: Files, path: str) -> Check:
    claim = f"{path} does not exist"
    try:
        kind = files.kind(path)
    except OSError as error:
        return _cannot_tell(claim, path, error)
    if kind == "absent":
        return Check(True, claim)
    return Check(False, claim, f"File must not exist but found: {path}", "nothing", _WHAT_STANDS[kind])


def _content(files: Files, entry: ContentPatterns) -> Iterator[Check]:
    path, there = entry.path, f"{entry.path} is a file"
    wanted = [(pattern, True) for pattern in entry.must_match] + [(pattern, False) for pattern in entry.must_not_match]
    try:
        kind = files.kind(path)
        text = files.read(path).decode("utf-8-sig", "replace") if kind == "file" else None
    except OSError as error:
        for claim in [there, *(_claim(path, pattern, yes) for pattern, yes in wanted)]:
            yield _cannot_tell(claim, path, error)
        return
    missing = "" if text is not None else f"File not found for content check: {path}"
    yield Check(not missing, there, missing, "a file" if missing else None, _WHAT_STANDS[kind] if missing else None)
    for pattern, yes in wanted:
        yield _match(path, text, pattern, yes)


def _match(path: str, text: str | None, pattern: Pattern, wanted: bool) -> Check:
    """Return whether a file's text matches as wanted; the text of a missing file never does."""
    claim = _claim(path, pattern, wanted)
    found = (not wanted) if text is None else try_search(pattern, text)
    if found is wanted:
        return Check(True, claim)
    if isinstance(found, str):
        return Check(None, claim, found)
    verb = "missing expected" if wanted else "contains forbidden"
    where = " (file not found)" if text is None else ""
    asked = f"{'a' if wanted else 'no'} match of {pattern.source}"
    seen = None if text is None else excerpt(text)
    return Check(False, claim, f"File {path} {verb} pattern{where}: {pattern.source}", asked, seen)


def _claim(path: str, pattern: Pattern, wanted: bool) -> str:
    return f"{path} {'matches' if wanted else 'does not match'} {pattern.source}"


def _cannot_tell(claim: str, path: str, error: OSError) -> Check:
    return Check(None, claim, f"cannot tell whether {claim}: {path}: {error.strerror or error}")
