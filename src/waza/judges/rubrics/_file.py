"""One rubric file: Markdown with YAML front matter in, a `Rubric` out, or every mistake in it as a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from waza.errors import SpecError, decoding_fact, did_you_mean
from waza.judges.rubrics._rubric import BUILT_IN, NEEDS, Golden, Rubric, validate
from waza.model import ToolEvent
from waza.sandbox.folders import inner_path
from waza.sandbox.yaml12 import mark_of, read_yaml

MAX_CHARACTERS = 500_000
MARK = "---"
_KEYS = ("name", "version", "scale", "description", "goldens", "needs", "pass_at")
_GOLDEN_KEYS = ("name", "input", "output", "context", "expected", "tool_events", "files")


def parse_rubric(text: str, source: str = BUILT_IN) -> Rubric:
    """Return the rubric written in `text`; raise ValueError with every mistake in it.

    Line ends of Windows and a byte order mark change nothing, the hash neither.
    """
    head, body = split_front_matter(text, source)
    try:
        found = read_yaml(f"{MARK}\n{head}", source, may_be_empty=True)
    except SpecError as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, dict):
        raise ValueError(f"{source}: the frontmatter must be keys with values, such as 'name: my-style'")
    wrong = [f"{source}:{_line(found, path)}: {fact}" for path, fact in _misshapen(found)]
    if not wrong:
        rubric = _rubric(found, body, source)
        wrong = [f"{source}: {fact}" for fact in validate(rubric)]
    if wrong:
        raise ValueError("; ".join(wrong))
    return rubric


def split_front_matter(text: str, source: str) -> tuple[str, str]:
    """Return front matter and body of a file that begins with `---`; raise ValueError if a mark is missing."""
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
    """Return a name as it stands in front matter: quoted where YAML would take it for something else than text."""
    return (
        name if re.fullmatch(r"[a-z][a-z0-9-]*", name) and name not in ("true", "false", "null") else json.dumps(name)
    )


def _misshapen(found: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield place and fact of every key nobody knows and every value of the wrong kind."""
    for key, value in found.items():
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
                yield from _misshapen_golden(golden, index)


def _misshapen_golden(golden: Any, index: int) -> Iterator[tuple[tuple[str | int, ...], str]]:
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


def _line(found: Any, path: tuple[str | int, ...]) -> int:
    return mark_of(found, path).line


def _rubric(found: dict[str, Any], body: str, source: str) -> Rubric:
    return Rubric(
        name=found.get("name", ""),
        version=found.get("version", ""),
        scale=found.get("scale", ""),
        description=found.get("description", "").strip(),
        body=body,
        goldens=tuple(_golden(golden) for golden in found.get("goldens", [])),
        needs=tuple(dict.fromkeys(found.get("needs", []))),
        pass_at=found.get("pass_at", 4),
        source=source,
    )


def _golden(found: dict[str, Any]) -> Golden:
    events = found.get("tool_events")
    return Golden(
        name=found.get("name", ""),
        output=found.get("output", ""),
        expected=found.get("expected", ""),
        input=found.get("input", ""),
        context=found.get("context", ""),
        tool_events=None if events is None else msgspec.convert(events, tuple[ToolEvent, ...]),
        files=found.get("files"),
    )
