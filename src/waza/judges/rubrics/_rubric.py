"""The nouns of the library, a rubric and its goldens, and what makes one usable. How files are read is in `_file`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cached_property

import msgspec
from msgspec import Struct

from waza.errors import did_you_mean
from waza.model import ToolEvent

SCALES = ("pass-fail", "1-5")
NEEDS = ("tool_events", "source_context", "files")
BUILT_IN = "builtin"
VERDICT_TOOLS = {
    "pass-fail": ("set_waza_grade_pass", "set_waza_grade_fail"),
    "1-5": ("set_waza_grade_score",),
}
"""What a body on each scale must tell the judge to call."""
MAX_VERSION = 100
_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SEMVER = re.compile(r"v?(0|[1-9]\d*)(\.(0|[1-9]\d*)){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)


class Golden(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One worked example of a rubric: what the judge is shown and the verdict it must come to."""

    name: str
    output: str
    expected: str | int
    """`pass`, `fail`, or on the scale `1-5` the score."""
    input: str = ""
    context: str = ""
    """The source context, for rubrics that need one."""
    tool_events: tuple[ToolEvent, ...] | None = None
    """The tool calls, for rubrics that need them; none at all is not the same as not recorded."""
    files: dict[str, str] | None = None
    """The files the agent left, text by path, for rubrics that need them."""


class Rubric(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """What a judge is told, with its name, its version and the examples that keep it honest."""

    name: str
    version: str
    scale: str
    description: str
    body: str
    goldens: tuple[Golden, ...] = ()
    needs: tuple[str, ...] = ()
    """What the judge sees beside task input and output: `tool_events`, `source_context`, `files`."""
    pass_at: int = 4
    """On the scale `1-5`, the lowest score that passes."""
    source: str = BUILT_IN
    """`builtin`, or the path as it was written."""

    @cached_property
    def hash(self) -> str:
        """The sha256 of what shapes a verdict: body, scale, needs and, where it decides, `pass_at`."""
        shaping = [self.body, self.scale, list(self.needs)] + ([self.pass_at] if self.scale == "1-5" else [])
        return hashlib.sha256(json.dumps(shaping, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()

    def passes(self, expected: str | int) -> bool:
        """Say whether a golden's expected verdict is a pass."""
        return expected == "pass" if isinstance(expected, str) else expected >= self.pass_at


def validate(rubric: Rubric) -> list[str]:
    """Return a sentence per mistake in a rubric; none means it can be used."""
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
        yield "pass_at goes with scale 1-5; on pass-fail the judge says it outright"


def _golden_mistakes(rubric: Rubric) -> Iterator[str]:
    allowed = "pass or fail" + (", or a score from 1 to 5" if rubric.scale == "1-5" else "")
    seen: dict[str, int] = {}
    shown: dict[str, int] = {}
    for index, golden in enumerate(rubric.goldens):
        here = f"goldens[{index}]"
        if not golden.name.strip():
            yield f"{here}.name is required and must not be blank"
        elif golden.name in seen:
            yield f"{here}.name '{golden.name[:60]}' is that of goldens[{seen[golden.name]}]; give each its own"
        if not golden.output.strip():
            yield f"{here}.output is required: a judge of nothing says nothing"
        if not _is_verdict(golden.expected, rubric.scale):
            yield f"{here}.expected must be {allowed}, found {str(golden.expected)[:60]!r}"
        if "source_context" in rubric.needs and not golden.context.strip():
            yield f"{here}.context is required, because the rubric needs source_context"
        if "tool_events" in rubric.needs and golden.tool_events is None:
            yield f"{here}.tool_events is required, because the rubric needs tool_events ([] means none was called)"
        if "files" in rubric.needs and golden.files is None:
            yield f"{here}.files is required, because the rubric needs files ({{}} means none was left)"
        alike = json.dumps(msgspec.to_builtins(msgspec.structs.replace(golden, name="", expected="")), sort_keys=True)
        if (same := shown.get(alike)) is not None:
            yield f"{here} shows the judge the same as goldens[{same}]; keep one of the two"
        seen.setdefault(golden.name, index)
        shown.setdefault(alike, index)


def _is_verdict(expected: str | int, scale: str) -> bool:
    if isinstance(expected, str):
        return expected in ("pass", "fail")
    return scale == "1-5" and 1 <= expected <= 5
