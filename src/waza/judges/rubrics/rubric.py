"""Rubrics and their goldens: records, validation, parsing of a Markdown file with YAML frontmatter; `rubrics.lock`.

The lock has the hash of the text of each version of a local rubric, in the folder of its rubrics. It detects a text
that changed under the same version, which would make old and new verdicts look comparable. Only `waza rubric lock`
writes it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from waza.errors import SpecError, UsageError, decoding_fact, did_you_mean
from waza.files.paths import inner_path
from waza.model import ToolEvent
from waza.untrusted.yaml import mark_of, read_yaml

SCALES = ("pass-fail", "1-5")
NEEDS = ("tool_events", "source_context", "files")
BUILT_IN = "builtin"
VERDICT_TOOLS = {
    "pass-fail": ("set_waza_grade_pass", "set_waza_grade_fail"),
    "1-5": ("set_waza_grade_score",),
}
"""The tools that a body on each scale must tell the judge to call."""
MAX_VERSION = 100
MAX_CHARACTERS = 500_000
MARK = "---"
_KEYS = ("name", "version", "scale", "description", "goldens", "needs", "pass_at")
_GOLDEN_KEYS = ("name", "input", "output", "context", "expected", "tool_events", "files")
_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SEMVER = re.compile(r"v?(0|[1-9]\d*)(\.(0|[1-9]\d*)){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)


class Golden(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One example of a rubric: what the judge is shown and the expected verdict."""

    name: str
    output: str
    expected: str | int
    """`pass`, `fail`, or on the scale `1-5` the score."""
    input: str = ""
    context: str = ""
    """The source context, for rubrics that need one."""
    tool_events: tuple[ToolEvent, ...] | None = None
    """The tool calls, for rubrics that need them; an empty list is not the same as not recorded."""
    files: dict[str, str] | None = None
    """The files the agent left, text by path, for rubrics that need them."""


class Rubric(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """Instructions for a judge, with name, version and examples that verify the judge."""

    name: str
    version: str
    scale: str
    description: str
    body: str
    goldens: tuple[Golden, ...] = ()
    needs: tuple[str, ...] = ()
    """What the judge is shown besides task input and output: `tool_events`, `source_context`, `files`."""
    pass_at: int = 4
    """On the scale `1-5`, the lowest score that passes."""
    source: str = BUILT_IN
    """`builtin`, or the path as it was written."""

    @cached_property
    def hash(self) -> str:
        """The sha256 of what affects a verdict: body, scale, needs and, where it decides, `pass_at`."""
        content = [self.body, self.scale, list(self.needs)] + ([self.pass_at] if self.scale == "1-5" else [])
        return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()

    def passes(self, expected: str | int) -> bool:
        """Return whether a golden's expected verdict is a pass."""
        return expected == "pass" if isinstance(expected, str) else expected >= self.pass_at


def validate(rubric: Rubric) -> list[str]:
    """Return a message per mistake in a rubric; none means it is valid."""
    return [*_head_mistakes(rubric), *_golden_mistakes(rubric)]


def _head_mistakes(rubric: Rubric) -> Iterator[str]:
    for key in ("name", "version", "scale", "description", "body"):
        if not getattr(rubric, key).strip():
            yield f"{key} is required and must not be blank"
    if rubric.name.strip() and not _KEBAB.fullmatch(rubric.name):
        yield f"name '{rubric.name[:60]}' is not kebab-case; use lower-case letters and digits joined by '-'"
    if rubric.version.strip() and (len(rubric.version) > MAX_VERSION or not _SEMVER.fullmatch(rubric.version)):
        yield f"version '{rubric.version[:60]}' is not semver; write it like 1.0.0"
    if rubric.scale.strip() and rubric.scale not in SCALES:
        yield f"scale '{rubric.scale[:60]}' is unknown; one of: {', '.join(SCALES)}"
    if "\n" in rubric.description.strip():
        yield "description has several lines; keep it to one, and put the rest into the body"
    for need in rubric.needs:
        if need not in NEEDS:
            yield f"needs: unknown evidence '{need[:60]}'; {did_you_mean(need, NEEDS)}"
    if not 1 < rubric.pass_at <= 5:
        yield f"pass_at {rubric.pass_at} cannot both pass and fail a score from 1 to 5; choose 2 to 5"
    if rubric.scale == "pass-fail" and rubric.pass_at != 4:
        yield "pass_at goes with scale 1-5; on pass-fail the judge decides directly"


def _golden_mistakes(rubric: Rubric) -> Iterator[str]:
    allowed = "pass or fail" + (", or a score from 1 to 5" if rubric.scale == "1-5" else "")
    by_name: dict[str, int] = {}
    by_content: dict[str, int] = {}
    for index, golden in enumerate(rubric.goldens):
        here = f"goldens[{index}]"
        if not golden.name.strip():
            yield f"{here}.name is required and must not be blank"
        elif golden.name in by_name:
            yield f"{here}.name '{golden.name[:60]}' is that of goldens[{by_name[golden.name]}]; give each its own"
        if not golden.output.strip():
            yield f"{here}.output is required: the judge needs something to judge"
        if not _is_verdict(golden.expected, rubric.scale):
            yield f"{here}.expected must be {allowed}, found {str(golden.expected)[:60]!r}"
        if "source_context" in rubric.needs and not golden.context.strip():
            yield f"{here}.context is required, because the rubric needs source_context"
        if "tool_events" in rubric.needs and golden.tool_events is None:
            yield f"{here}.tool_events is required, because the rubric needs tool_events ([] means none was called)"
        if "files" in rubric.needs and golden.files is None:
            yield f"{here}.files is required, because the rubric needs files ({{}} means none was left)"
        content = json.dumps(msgspec.to_builtins(msgspec.structs.replace(golden, name="", expected="")), sort_keys=True)
        if (same := by_content.get(content)) is not None:
            yield f"{here} shows the judge the same as goldens[{same}]; keep one of the two"
        by_name.setdefault(golden.name, index)
        by_content.setdefault(content, index)


def _is_verdict(expected: str | int, scale: str) -> bool:
    if isinstance(expected, str):
        return expected in ("pass", "fail")
    return scale == "1-5" and 1 <= expected <= 5


def parse_rubric(text: str, source: str = BUILT_IN) -> Rubric:
    """Return the rubric written in `text`; raise ValueError with every mistake in it.

    Windows line endings and a byte order mark are ignored, also in the hash.
    """
    head, body = split_front_matter(text, source)
    try:
        tree = read_yaml(f"{MARK}\n{head}", source, may_be_empty=True)
    except SpecError as error:
        raise ValueError(str(error)) from None
    if not isinstance(tree, dict):
        raise ValueError(f"{source}: the frontmatter must be keys with values, such as 'name: my-style'")
    wrong = [f"{source}:{mark_of(tree, path).line}: {fact}" for path, fact in _shape_mistakes(tree)]
    if not wrong:
        rubric = _rubric(tree, body, source)
        wrong = [f"{source}: {fact}" for fact in validate(rubric)]
    if wrong:
        raise ValueError("; ".join(wrong))
    return rubric


def split_front_matter(text: str, source: str) -> tuple[str, str]:
    """Return frontmatter and body of a file that begins with `---`; raise ValueError if a mark is missing."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{source}: {len(text):,} characters; a judge cannot read that: keep to {MAX_CHARACTERS:,}")
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[0].rstrip() != MARK:
        raise ValueError(f"{source}: no frontmatter; begin the file with a line '{MARK}', then name, version, scale")
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == MARK:
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :]).strip()
    raise ValueError(f"{source}: the frontmatter has no closing '{MARK}'; put one on a line of its own before the body")


def written_name(name: str) -> str:
    """Return a name as written in frontmatter: quoted where YAML would take it for something else than text."""
    return (
        name if re.fullmatch(r"[a-z][a-z0-9-]*", name) and name not in ("true", "false", "null") else json.dumps(name)
    )


def _shape_mistakes(tree: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield place and message of every unknown key and every value of the wrong type."""
    for key, value in tree.items():
        if key not in _KEYS:
            yield (key,), f"unknown key '{key[:60]}'; {did_you_mean(key, _KEYS)}"
        elif key in ("name", "version", "scale", "description") and not isinstance(value, str):
            yield (key,), _not_text(key, value)
        elif key == "pass_at" and type(value) is not int:
            yield (key,), f"pass_at must be a whole number, found {_what(value)}"
        elif key == "needs" and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            yield (key,), f"needs must be a list such as [{', '.join(NEEDS)}], found {_what(value)}"
        elif key == "goldens" and not isinstance(value, list):
            yield (key,), f"goldens must be a list, found {_what(value)}"
        elif key == "goldens":
            for index, golden in enumerate(value):
                yield from _golden_shape_mistakes(golden, index)


def _golden_shape_mistakes(golden: Any, index: int) -> Iterator[tuple[tuple[str | int, ...], str]]:
    here = f"goldens[{index}]"
    if not isinstance(golden, dict):
        yield ("goldens", index), f"{here} must have keys ({', '.join(_GOLDEN_KEYS)}), found {_what(golden)}"
        return
    for key, value in golden.items():
        place = ("goldens", index, key)
        if key not in _GOLDEN_KEYS:
            yield place, f"{here}: unknown key '{key[:60]}'; {did_you_mean(key, _GOLDEN_KEYS)}"
        elif key == "expected" and not (isinstance(value, str) or type(value) is int):
            yield place, f"{here}.expected must be pass, fail or a whole number, found {_what(value)}"
        elif key == "tool_events":
            if fact := _not_events(value):
                yield place, f"{here}.tool_events: {fact}"
        elif key == "files":
            if fact := _not_files(value):
                yield place, f"{here}.files: {fact}"
        elif key != "expected" and not isinstance(value, str):
            yield place, _not_text(f"{here}.{key}", value)


def _not_text(key: str, value: Any) -> str:
    hint = "; quote it" if type(value) in (int, float, bool) else ""
    return f"{key} must be a text, found {_what(value)}{hint}" if value is not None else f"{key} is required"


def _not_events(value: Any) -> str:
    try:
        msgspec.convert(value, tuple[ToolEvent, ...])
    except msgspec.ValidationError as error:
        return f"{decoding_fact(error, value)}; each is tool_name, args, result, success"
    return ""


def _not_files(value: Any) -> str:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        return f"a mapping from path to text is needed, found {_what(value)}"
    try:
        for path in value:
            inner_path(path)
    except ValueError as error:
        return str(error)
    return ""


def _what(value: Any) -> str:
    if value is None:
        return "nothing"
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)[:60]


def _rubric(tree: dict[str, Any], body: str, source: str) -> Rubric:
    return Rubric(
        name=tree.get("name", ""),
        version=tree.get("version", ""),
        scale=tree.get("scale", ""),
        description=tree.get("description", "").strip(),
        body=body,
        goldens=tuple(_golden(golden) for golden in tree.get("goldens", [])),
        needs=tuple(dict.fromkeys(tree.get("needs", []))),
        pass_at=tree.get("pass_at", 4),
        source=source,
    )


def _golden(tree: dict[str, Any]) -> Golden:
    events = tree.get("tool_events")
    return Golden(
        name=tree.get("name", ""),
        output=tree.get("output", ""),
        expected=tree.get("expected", ""),
        input=tree.get("input", ""),
        context=tree.get("context", ""),
        tool_events=None if events is None else msgspec.convert(events, tuple[ToolEvent, ...]),
        files=tree.get("files"),
    )


LOCK = "rubrics.lock"
_HEAD = """\
# The text that each version of a rubric here stands for. `waza rubric lock` writes this file; commit it.
"""
_NUMBER = re.compile(r"\d+")


class LockEntry(NamedTuple):
    """The lock's entry for one rubric."""

    version: str
    hash: str


def read_lock(folder: Path) -> dict[str, LockEntry]:
    """Return the entries of a lock by rubric name, none if there is no lock; raise ValueError if it is broken."""
    path = folder / LOCK
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{LOCK}: cannot be read: {error.strerror or error}") from None
    try:
        tree = read_yaml(raw, LOCK, may_be_empty=True)
    except SpecError as error:
        raise ValueError(f"{error}; fix it, or remove it and run `waza rubric lock`") from None
    return {name: _entry(name, value) for name, value in _mapping(tree).items()}


def _mapping(tree: Any) -> dict[str, Any]:
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ValueError(f"{LOCK}: a mapping of rubric names is needed; remove the file and run `waza rubric lock`")
    return tree


def _entry(name: str, value: Any) -> LockEntry:
    if isinstance(value, dict) and set(value) == {"version", "sha256"}:
        version, sha256 = value["version"], value["sha256"]
        if isinstance(version, str) and isinstance(sha256, str) and len(version) <= MAX_VERSION:
            return LockEntry(version, sha256)
    raise ValueError(f"{LOCK}: '{name[:60]}' needs version and sha256, both texts; `waza rubric lock` writes them")


def lock_problem(rubric: Rubric, entries: dict[str, LockEntry]) -> str:
    """Return how a rubric conflicts with the lock, and the remedy; empty if it does not."""
    entry = entries.get(rubric.name)
    if entry is None or entry == LockEntry(rubric.version, rubric.hash):
        return ""
    if entry.hash != rubric.hash and not _is_raised(entry.version, rubric.version):
        return (
            f"the text of rubric '{rubric.name}' differs from that of {entry.version} in {LOCK}, "
            f"and its version is {rubric.version}; raise the version, then run `waza rubric lock`"
        )
    if not _is_raised(entry.version, rubric.version):
        return (
            f"rubric '{rubric.name}' went back from {entry.version} to {rubric.version}; "
            "versions only go up: raise it, then run `waza rubric lock`"
        )
    return f"rubric '{rubric.name}' is {rubric.version} and {LOCK} has {entry.version}; run `waza rubric lock`"


def locked(folder: Path, rubrics: Iterable[Rubric], *, redo: bool = False) -> dict[str, LockEntry]:
    """Return a folder's entries with these rubrics recorded; raise UsageError for a text changed under its version.

    With `redo` the current text is recorded, for a version that has not been used for grading yet.
    """
    entries = read_lock(folder)
    updated: dict[str, LockEntry] = {}
    for rubric in rubrics:
        entry = entries.get(rubric.name)
        changed = entry is not None and entry != LockEntry(rubric.version, rubric.hash)
        if entry is not None and changed and not redo and not _is_raised(entry.version, rubric.version):
            remedy = "raise its version, or give --redo if nothing was graded with that version yet"
            raise UsageError(f"{rubric.source}: the text of {rubric.name} {entry.version} changed; {remedy}")
        if rubric.name in updated:
            raise UsageError(f"{rubric.source}: another rubric in this folder is called {rubric.name}; rename one")
        updated[rubric.name] = LockEntry(rubric.version, rubric.hash)
    return updated


def lock_text(entries: dict[str, LockEntry]) -> str:
    """Return the lock file's text."""
    return _HEAD + "".join(
        f'"{name}":\n  version: "{entry.version}"\n  sha256: "{entry.hash}"\n'
        for name, entry in sorted(entries.items())
    )


def _is_raised(old: str, new: str) -> bool:
    return _order(new) > _order(old)


def _order(version: str) -> tuple[list[int], bool, list[tuple[bool, int, str]]]:
    """Return a sort key of versions: numbers, a release after its previews, previews part by part."""
    plain, _, preview = version.removeprefix("v").partition("+")[0].partition("-")
    numbers = [int(number) for number in _NUMBER.findall(plain)[:3]]
    parts = [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in preview.split(".")]
    return numbers + [0] * (3 - len(numbers)), not preview, parts if preview else []
