"""The rubric library: built-in rubrics by name, local ones by path.

`*.md` here are waza's own rubrics, `azure/*.md` those of the evaluators in Azure AI Evaluation. `rubric.py` parses and
validates rubric files; the `prompt` grader asks for verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from waza.errors import did_you_mean
from waza.files.paths import SpecFolder, inner_path
from waza.judges.rubrics.rubric import (
    BUILT_IN,
    MAX_CHARACTERS,
    NEEDS,
    SCALES,
    VERDICT_TOOLS,
    Golden,
    Rubric,
    parse_rubric,
    validate,
)
from waza.model import FolderListing, Trace

__all__ = [
    "BUILT_IN",
    "NEEDS",
    "SCALES",
    "VERDICT_TOOLS",
    "Golden",
    "Rubric",
    "find_rubric",
    "golden_trace",
    "groups",
    "names",
    "parse_rubric",
    "read_rubric",
    "read_text",
    "ref_kind",
    "rubric_text",
    "validate",
]

_HERE = Path(__file__).parent
_GROUPS = {"core": _HERE, "azure": _HERE / "azure"}


def names(group: str = "core") -> list[str]:
    """Return the names of the built-in rubrics of a group: `core` or `azure`."""
    return sorted(file.stem for file in _GROUPS[group].glob("*.md"))


def groups() -> list[str]:
    """Return the groups of built-in rubrics."""
    return list(_GROUPS)


@cache
def _files() -> dict[str, Path]:
    return {name: folder / f"{name}.md" for group, folder in _GROUPS.items() for name in names(group)}


def ref_kind(ref: str) -> Literal["builtin", "path"]:
    """Return whether a reference is a built-in rubric's name or a file's path; raise ValueError if neither."""
    if "/" in ref or "\\" in ref or ref.endswith(".md") or ref.startswith((".", "~")):
        return "path"
    if ref in _files():
        return "builtin"
    known = did_you_mean(ref, list(_files()))
    raise ValueError(f"no built-in rubric is called '{ref[:60]}'; {known} (a file's path has a '/' or ends in .md)")


def find_rubric(ref: str, folder: SpecFolder) -> Rubric:
    """Return the rubric that `ref` names: a built-in name, or a path from the eval file's folder or the project's root.

    Raises ValueError with what is wrong with the reference or with the file.
    """
    if not ref.strip():
        raise ValueError("the rubric's name or path is empty")
    return _built_in(ref) if ref_kind(ref) == BUILT_IN else read_rubric(_local(ref, folder), ref)


def rubric_text(ref: str, folder: SpecFolder) -> str:
    """Return the text of the file that `ref` names; raise ValueError if it is not a rubric."""
    path = _files()[ref] if ref_kind(ref) == BUILT_IN else _local(ref, folder)
    read_rubric(path, ref)
    return read_text(path, ref)


def _local(ref: str, folder: SpecFolder) -> Path:
    if ref.startswith("~"):
        raise ValueError(f"rubric '{ref[:200]}': '~' leads out of the project; put the file next to the eval file")
    return folder.find(ref)


def read_rubric(path: Path, source: str) -> Rubric:
    """Return the rubric in a file, called `source` in messages; raise ValueError if it is not a rubric."""
    return parse_rubric(read_text(path, source), source)


def read_text(path: Path, source: str) -> str:
    """Return a file's text up to the size of a rubric; raise ValueError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_CHARACTERS * 4 + 1).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{source}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ValueError(f"{source}: cannot be read: {error.strerror or error}") from None


@cache
def _built_in(name: str) -> Rubric:
    return parse_rubric(_files()[name].read_text(encoding="utf-8"))


def golden_trace(golden: Golden) -> Trace:
    """Return the trace a judge is shown for a golden."""
    return Trace(
        input=golden.input,
        output=golden.output,
        tool_events=None if golden.tool_events is None else list(golden.tool_events),
        files=None if golden.files is None else _GoldenFiles(golden.files),
        extra={"source_context": golden.context},
    )


class _GoldenFiles:
    """The files of a golden, which exist only in its rubric."""

    root = ""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = {inner_path(path): text.encode("utf-8", "surrogatepass") for path, text in texts.items()}

    def kind(self, path: str) -> Literal["file", "absent"]:
        """Return whether there is a file at a path."""
        return "file" if inner_path(path) in self._texts else "absent"

    def read(self, path: str) -> bytes:
        """Return a file's bytes; raise OSError if there is none."""
        if (inner := inner_path(path)) not in self._texts:
            raise FileNotFoundError(f"no file '{path}'")
        return self._texts[inner]

    def paths(self) -> Iterator[str]:
        """Yield every path, sorted."""
        yield from sorted(self._texts)

    def list_folder(self, path: str) -> FolderListing:
        """Return the names in a folder; raise OSError if no file is below it."""
        above = f"{inner_path(path)}/" if path else ""
        below = [name.removeprefix(above).split("/") for name in self._texts if name.startswith(above)]
        if not below and path:
            raise FileNotFoundError(f"no folder '{path}'")
        return FolderListing(above, [*{parts[0]: ("folder" if parts[1:] else "file") for parts in below}.items()])
