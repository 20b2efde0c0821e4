"""The `file` grader: which files the agent left, and what is in them.

In globs `*` and `?` match within one folder, `**` any number of folders. Nothing else is special: brackets and braces
are themselves, names that begin with a dot are names, case counts. Links that stay in the workspace are followed, each
folder once; links that lead out are never followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import ConfigDict, model_validator

from waza.files.paths import inner_path
from waza.files.workspace import live_root
from waza.graders.base import ForbiddenPatterns, Grader, InnerPath, RequiredPatterns, files_of, not_a_list
from waza.graders.text import excerpt, try_search
from waza.model import JSON, Check, FileKind, Files, FolderListing, Trace
from waza.options import Options
from waza.untrusted.patterns import Pattern, fits_name

_KINDS = {
    "file": "a file",
    "hard_link": "a file with further hard links",
    "folder": "a folder",
    "outside": "something that leads outside the workspace",
    "other": "something that is no regular file",
    "absent": "nothing",
}
MOST_NAMED = 5
"""How many of the files that match a glob are named in a message."""
MAX_CONTENT_BYTES = 512 * 1024**2
"""How much is read for the patterns of one entry."""


class ContentPatterns(Options):
    """Patterns for one file, or for all that match a glob."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    path: InnerPath
    """The file, relative to the workspace; a glob for several."""
    must_match: RequiredPatterns = []
    """Patterns that must match somewhere in every such file."""
    must_not_match: ForbiddenPatterns = []
    """Patterns that must match nowhere in any such file."""

    @model_validator(mode="after")
    def _has_a_pattern(self) -> Self:
        if not self.must_match and not self.must_not_match:
            raise ValueError("checks no content; give must_match or must_not_match, or list the file under must_exist")
        return self


class FileGrader(Grader):
    r"""Check which files are in the workspace, and their content.

    Paths are relative to the workspace and cannot leave it. They may be globs: `*` and `?` match characters within
    one folder, `**` for any number of folders; names that begin with a dot count, case counts, and brackets are
    themselves (`app/[id]/page.tsx`). `must_exist` needs one match, `must_not_exist` allows none, and patterns apply
    to every file that matches, of which there must be one.

    A folder counts as existing. A link that leads outside and what is neither file nor folder count as absent where
    something must exist, and as present where it must not. A file with further hard links exists, but its content
    cannot be determined: it may be that of a file outside. Content is read as UTF-8, without a byte order mark. One
    check an entry and a pattern, and one for each entry with patterns: that a file is there.

    ```yaml
    - type: file
      name: project_structure
      config:
        must_exist: ["src/index.ts", "package.json"]
        must_not_exist: ["node_modules/", ".env", "**/*.tmp"]
        content_patterns:
          - path: package.json
            must_match: ['"name":\s*"my-app"']
            must_not_match: ['"version":\s*"0\.0\.0"']
    ```
    """

    all_passed: ClassVar[str] = "All file checks passed"
    needs_one_of: ClassVar[tuple[str, ...]] = ("must_exist", "must_not_exist", "content_patterns")

    must_exist: list[InnerPath] = []
    """Paths or globs that must be there."""
    must_not_exist: list[InnerPath] = []
    """Paths or globs that must not be there."""
    content_patterns: list[ContentPatterns] = []
    """Patterns for the content of files."""

    def option_warnings(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the paths with braces or brackets that look like lists of names."""
        yield from super().option_warnings()
        paths = {("must_exist", at): path for at, path in enumerate(self.must_exist)}
        paths |= {("must_not_exist", at): path for at, path in enumerate(self.must_not_exist)}
        inner = {("content_patterns", at, "path"): entry.path for at, entry in enumerate(self.content_patterns)}
        yield from ((at, warning) for at, path in (paths | inner).items() if (warning := not_a_list(path)))

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per path and per pattern."""
        files = files_of(trace)
        search = GlobSearch(files)
        for path in self.must_exist:
            yield _exists(search, path)
        for path in self.must_not_exist:
            yield _is_absent(search, path)
        for entry in self.content_patterns:
            yield from _content(search, files, entry)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return what was expected, what failed, and the workspace's folder."""
        expected = self.model_dump(include={"must_exist", "must_not_exist", "content_patterns"})
        failures = [check.failure for check in checks if not check.ok]
        return expected | {"failures": failures, "workspace_dir": live_root(trace.files)}


def _exists(search: GlobSearch, path: str) -> Check:
    claim, others, unknown = f"{path} exists", list[GlobMatch](), ""
    for found in search.find(path):
        if found.kind in ("file", "hard_link", "folder"):
            return Check(True, claim)
        unknown = unknown or _unreadable(found)
        others.append(found)
    if unknown:
        return Check(None, claim, f"cannot tell whether {claim}: {unknown}")
    kind = others[0].kind if others else "absent"
    where = "there" if not others or others[0].path == inner_path(path) else others[0].path
    more = f" ({where} is {_KINDS[kind]})" if others else ""
    return Check(False, claim, f"File must exist but not found: {path}{more}", "a file or folder", _KINDS[kind])


def _is_absent(search: GlobSearch, path: str) -> Check:
    claim = f"{path} does not exist"
    matches = list(search.find(path))
    there = [found for found in matches if found.kind != "unknown"]
    if there:
        failure = f"File must not exist but found: {_names([found.path for found in there], path)}"
        return Check(False, claim, failure, "nothing", "; ".join(sorted({_KINDS[found.kind] for found in there})))
    if matches:
        return Check(None, claim, f"cannot tell whether {claim}: {_unreadable(matches[0])}")
    return Check(True, claim)


def _content(search: GlobSearch, files: Files, entry: ContentPatterns) -> list[Check]:
    """Return one check that a file is there, and one for each pattern over all files that match."""
    path = entry.path
    matches = sorted(search.find(path))
    named = [found.path for found in matches if found.kind in ("file", "hard_link")]
    unknown = next((_unreadable(found) for found in matches if found.kind == "unknown"), "")
    there = f"{path} is a file" if not is_glob(path) else f"{path} matches a file"
    wanted = [_PatternCheck(pattern, True) for pattern in entry.must_match]
    wanted += [_PatternCheck(pattern, False) for pattern in entry.must_not_match]
    if not named and unknown:
        claims = [there, *(one.claim(path) for one in wanted)]
        return [Check(None, claim, f"cannot tell whether {claim}: {unknown}") for claim in claims]
    if not named:
        kind = _KINDS[matches[0].kind if matches else "absent"]
        missing = Check(False, there, f"File not found for content check: {path}", "a file", kind)
        return [missing, *(one.without_file(path) for one in wanted)]
    left = MAX_CONTENT_BYTES
    for name in named:
        try:
            content = files.read(f"./{name}")
            left -= len(content)
            if left < 0:
                raise OSError(f"more than {MAX_CONTENT_BYTES // 1024**2} MiB match {path}")
        except OSError as error:
            unknown = unknown or f"{name}: {error.strerror or error}"
            if left < 0:
                break
            continue
        text = content.decode("utf-8-sig", "replace")
        for one in wanted:
            one.search(name, text)
    return [Check(True, there), *(one.check(path, unknown) for one in wanted)]


class _PatternCheck:
    """One pattern, and the files that fail it."""

    def __init__(self, pattern: Pattern, wanted: bool) -> None:
        self.pattern = pattern
        self.wanted = wanted
        self.failed_files: list[str] = []
        self.excerpt = ""
        self.unknown = ""

    def search(self, name: str, text: str) -> None:
        """Search one file."""
        found = try_search(self.pattern, text)
        if isinstance(found, str):
            self.unknown = self.unknown or f"{name}: {found}"
        elif found is not self.wanted:
            self.excerpt = self.excerpt if self.failed_files else excerpt(text)
            self.failed_files.append(name)

    def claim(self, path: str) -> str:
        return f"{path} {'matches' if self.wanted else 'does not match'} {self.pattern.source}"

    def check(self, path: str, unknown: str) -> Check:
        """Return whether every file passes; one that does not decides."""
        claim, unknown = self.claim(path), self.unknown or unknown
        if not self.failed_files:
            return Check(None, claim, f"cannot tell whether {claim}: {unknown}") if unknown else Check(True, claim)
        return self._failed(claim, _names(self.failed_files, path), "", self.excerpt)

    def without_file(self, path: str) -> Check:
        """Return the failed check where there is no file."""
        return self._failed(self.claim(path), path, " (file not found)", None)

    def _failed(self, claim: str, names: str, where: str, actual: str | None) -> Check:
        verb = "missing expected" if self.wanted else "contains forbidden"
        expected = f"{'a' if self.wanted else 'no'} match of {self.pattern.source}"
        return Check(False, claim, f"File {names} {verb} pattern{where}: {self.pattern.source}", expected, actual)


def _names(paths: list[str], path: str) -> str:
    """Return the first of the files, how many more there are, and the glob they match."""
    if not is_glob(path):
        return path
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return f"{', '.join(sorted(paths)[:MOST_NAMED])}{more} (matching {path})"


def _unreadable(found: GlobMatch) -> str:
    return f"{found.path or 'the workspace'}: {found.why}" if found.kind == "unknown" else ""


MAX_GLOB_ENTRIES = 200_000
"""How many names one search visits; in a larger workspace the rest is unknown."""


class GlobMatch(NamedTuple):
    """One match, or a folder that could not be listed (`unknown`)."""

    path: str
    kind: FileKind | Literal["unknown"]
    why: str = ""


def is_glob(path: str) -> bool:
    """Return whether a path has a wildcard."""
    return "*" in path or "?" in path


class GlobSearch:
    """Finds what matches in one workspace; folders are listed once for all globs."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._listings: dict[str, FolderListing | OSError] = {}
        self._left = MAX_GLOB_ENTRIES

    def find(self, path: str) -> Iterator[GlobMatch]:
        """Yield what a path or glob matches; a path without wildcards that is absent yields nothing."""
        literal = self._found(inner_path(path))
        if not is_glob(path):
            yield from [literal] if literal.kind != "absent" else []
            return
        if literal.kind not in ("absent", "outside", "unknown"):
            yield literal  # a name may have a `*` in it
        yield from (found for found in self._walk(_segments(path)) if found.path != literal.path)

    def _walk(self, segments: list[str]) -> Iterator[GlobMatch]:
        waiting = [("", 0)]
        visited: set[tuple[object, int]] = set()
        while waiting:
            folder, index = waiting.pop()
            listing = self._listing(folder)
            if isinstance(listing, OSError):
                yield GlobMatch(folder, "unknown", listing.strerror or str(listing))
                continue
            if (listing.identity, index) in visited:
                continue
            visited.add((listing.identity, index))
            if listing.left_out:
                yield GlobMatch(folder, "unknown", listing.left_out)
            inner: list[tuple[str, int]] = [(folder, index + 1)] if segments[index] == "**" else []
            for found in self._in_folder(folder, listing, segments[index]):
                if index + 1 == len(segments) or found.kind == "unknown":
                    yield found
                elif found.kind == "folder":
                    inner.append((found.path, index + (segments[index] != "**")))
                elif found.kind == "outside" and segments[index] != "**":
                    yield found
            waiting += reversed(inner)

    def _in_folder(self, folder: str, listing: FolderListing, segment: str) -> Iterator[GlobMatch]:
        """Yield the entries of a folder that a segment matches, links resolved; `**` matches every name."""
        for name, kind in listing.entries:
            if segment == "**" and kind not in ("folder", "link"):
                continue
            if segment == "**" or fits_name(segment, name):
                path = f"{folder}/{name}" if folder else name
                yield self._found(path) if kind == "link" else GlobMatch(path, kind)

    def _found(self, path: str) -> GlobMatch:
        try:
            return GlobMatch(path, self._files.kind(f"./{path}"))  # so that a name such as `~a` is not taken for a home
        except OSError as error:
            return GlobMatch(path, "unknown", error.strerror or str(error))

    def _listing(self, folder: str) -> FolderListing | OSError:
        if folder not in self._listings:
            self._listings[folder] = self._listed(folder)
        return self._listings[folder]

    def _listed(self, folder: str) -> FolderListing | OSError:
        if self._left <= 0:
            return OSError(f"more than {MAX_GLOB_ENTRIES:,} files and folders were visited")
        try:
            listing = self._files.list_folder(f"./{folder}" if folder else "")
        except OSError as error:
            return error
        self._left -= len(listing.entries)
        return listing._replace(entries=sorted(listing.entries))


def _segments(path: str) -> list[str]:
    """Return the parts of a glob; a `**` at the end means everything below."""
    parts: list[str] = []
    for part in inner_path(path).split("/"):
        if part != "**" or parts[-1:] != ["**"]:
            parts.append(part)
    return [*parts, "*"] if parts[-1] == "**" else parts
