"""The `diff` grader: workspace files against snapshots and fragments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self

from msgspec.structs import replace
from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from waza.errors import StoreError
from waza.files.workspace import live_root
from waza.graders._snapshots import first_difference, lines_changed, read_snapshot, snapshot_path, write_snapshot
from waza.graders.base import Finding, Grader, InnerFile, Text, content_hash, files_of, undecided
from waza.graders.text import around, excerpt
from waza.model import JSON, Check, Files, Trace
from waza.options import Options


def _parse_fragment(fragment: str) -> tuple[str, bool]:
    """Return the text of a fragment and whether it must be there; white space around it does not count."""
    marked = fragment[:1] in ("+", "-")
    return (fragment[1:] if marked else fragment).strip(), not fragment.startswith("-")


def _not_blank(fragment: str) -> str:
    if not _parse_fragment(fragment)[0]:
        raise ValueError(f"fragment {fragment!r} has no text to search for")
    return fragment


class ExpectedFile(Options):
    """What one file of the workspace must be like."""

    path: InnerFile
    """The file, relative to the workspace."""
    snapshot: Text | None = None
    """A file of the project that it must equal, byte for byte."""
    contains: list[Annotated[str, AfterValidator(_not_blank)]] = []
    """Fragments: `+text` or `text` must be in the file, `-text` must not."""

    @model_validator(mode="after")
    def _has_a_comparison(self) -> Self:
        if self.snapshot is None and not self.contains:
            raise ValueError(f"'{self.path}' is compared with nothing; give snapshot or contains")
        return self


class DiffGrader(Grader):
    """Compare files of the workspace with snapshots, and search them for fragments.

    Snapshots are read when the spec is loaded, so that no agent can change what it is compared with. They are in
    `context_dir`, else next to the eval file or at the project's root. One check that a file is there, one for its
    snapshot, one for each fragment.

    ```yaml
    - type: diff
      name: code_edits
      config:
        expected_files:
          - path: src/main.py
            contains: ["+def new_function():", "-def old_function():"]
          - path: README.md
            snapshot: expected/README.md
    ```
    """

    needs_more_than_trace: ClassVar[bool] = True
    all_passed: ClassVar[str] = "All diff checks passed"

    expected_files: list[ExpectedFile] = Field(min_length=1)
    """The files to compare."""
    context_dir: Text | None = None
    """The folder of the snapshots; they may not leave it."""
    update_snapshots: bool = False
    """Write the files into the snapshots instead of comparing them."""

    _snapshots: dict[str, bytes] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _read_snapshots(self) -> Self:
        for snapshot in {entry.snapshot for entry in self.expected_files if entry.snapshot is not None}:
            place = snapshot_path(snapshot, self.folder, self.context_dir, create=self.update_snapshots)
            if not self.update_snapshots or place.exists():
                self._snapshots[snapshot] = read_snapshot(place, snapshot)
        return self

    def reads(self) -> dict[str, str]:
        """Return the snapshots, unless they are to be written."""
        if self.update_snapshots:
            return {}
        return {snapshot: content_hash(content) for snapshot, content in sorted(self._snapshots.items())}

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per file, snapshot and fragment."""
        files = files_of(trace)
        for expected in self.expected_files:
            yield from self._compare(files, expected)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return what was expected, what failed, and the snapshots written."""
        return {
            "expected_files": [entry.model_dump(exclude_defaults=True) for entry in self.expected_files],
            "failures": [check.failure for check in checks if not check.ok],
            "workspace_dir": live_root(trace.files),
            "snapshot_updates": _updates(checks),
        }

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the verdict of the checks, with the snapshots that were written."""
        finding = super().evaluate(trace, judge)
        if not self.update_snapshots or finding.status != "passed":
            return finding
        counts = Counter(update["status"] for update in _updates(finding.checks))
        counted = ", ".join(f"{counts[status]} {status}" for status in ("updated", "created", "unchanged"))
        return replace(finding, feedback=f"{self.all_passed} (snapshots: {counted})")

    def _compare(self, files: Files, expected: ExpectedFile) -> Iterator[Check]:
        path = expected.path
        try:
            kind = files.kind(path)
            content = files.read(path) if kind == "file" else None
        except OSError as error:
            yield from undecided([f"{path} is as expected"], f"it cannot be read: {error.strerror or error}")
            return
        if kind == "hard_link":
            yield Check(True, f"{path} exists")
            yield from undecided(_claims(expected), "it has further hard links, perhaps outside the workspace")
            return
        missing = "" if content is not None else f"Expected file not found: {path}"
        yield Check(content is not None, f"{path} exists", missing)
        if expected.snapshot is not None:
            yield self._snapshot_check(path, expected.snapshot, content)
        text = None if content is None else content.decode("utf-8", "replace")
        for fragment in expected.contains:
            yield _fragment_check(path, text, *_parse_fragment(fragment))

    def _snapshot_check(self, path: str, snapshot: str, content: bytes | None) -> Check:
        claim = f"{path} equals snapshot {snapshot}"
        if content is None:
            return Check(False, claim, f"File {path} does not match snapshot {snapshot} (file not found)")
        if self.update_snapshots:
            return self._update(path, snapshot, content)
        known = self._snapshots[snapshot]
        if content == known:
            return Check(True, claim)
        failure = f"File {path} does not match snapshot {snapshot} ({lines_changed(known, content)} lines differ)"
        return Check(False, claim, failure, *first_difference(known, content))

    def _update(self, path: str, snapshot: str, content: bytes) -> Check:
        claim = f"snapshot {snapshot} equals {path}"
        try:
            place = snapshot_path(snapshot, self.folder, self.context_dir, create=True)
            status, lines = write_snapshot(place, content)
        except (OSError, ValueError, StoreError) as error:
            return Check(None, claim, f"snapshot {snapshot} cannot be written: {error}")
        written = {"path": path, "snapshot": snapshot, "status": status, "lines_changed": lines}
        return Check(True, claim, actual=written)


def _claims(expected: ExpectedFile) -> Iterator[str]:
    """Yield the claims about a file's content."""
    if expected.snapshot is not None:
        yield f"{expected.path} equals snapshot {expected.snapshot}"
    for fragment in expected.contains:
        yield _fragment_claim(expected.path, *_parse_fragment(fragment))


def _fragment_claim(path: str, wanted_text: str, wanted: bool) -> str:
    return f"{path} {'contains' if wanted else 'does not contain'} {wanted_text!r}"


def _fragment_check(path: str, text: str | None, wanted_text: str, wanted: bool) -> Check:
    claim = _fragment_claim(path, wanted_text, wanted)
    at = -1 if text is None else text.find(wanted_text)
    if text is not None and (at >= 0) is wanted:
        return Check(True, claim)
    verb = "missing expected" if wanted else "contains forbidden"
    where = " (file not found)" if text is None else ""
    actual = None if text is None else around(text, at, len(wanted_text)) if at >= 0 else excerpt(text)
    return Check(False, claim, f"File {path} {verb} fragment{where}: {wanted_text}", wanted_text, actual)


def _updates(checks: list[Check]) -> list[dict[str, JSON]]:
    return [check.actual for check in checks if isinstance(check.actual, dict)]
