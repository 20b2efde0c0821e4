"""The errors waza raises, and the exit code each one means.

    WazaError                 anything a person can act on (exit 2)
    ├── SpecError             the spec is wrong: every mistake in it at once
    │   └── ArgumentError     what a class was called with is wrong; a ValueError too
    ├── UsageError            the command line or a call is wrong
    ├── TraceError            a recorded trace cannot be read
    ├── StoreError            results cannot be written or read (exit 3)
    ├── EngineError           the agent could not run: the trial is an error, never a failure
    ├── JudgeError            a judge could not answer: the grade is an error, never a verdict
    └── Undecidable           a grader has no evidence: the grade is an error, never a failure

Every package may raise these; nothing here imports from other packages but `spending`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from waza.spending import NOTHING, Spending

EXIT_PASSED = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNDECIDED = 3
EXIT_BUG = 4
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class WazaError(Exception):
    """A mistake or a fault that a person can act on; printed without a traceback."""

    exit_code = EXIT_USAGE


class Problem(NamedTuple):
    """One mistake in a spec: its position, what it is, how to fix it."""

    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    path: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        parts = [place, self.path, self.message]
        if self.severity != "error":
            parts.insert(-1, self.severity)
        return ": ".join(part for part in parts if part)


class SpecError(WazaError):
    """A spec that is refused, with all of its problems."""

    def __init__(self, problems: str | Problem | Iterable[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        self.problems: list[Problem] = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class ArgumentError(SpecError, ValueError):
    """Arguments of a constructor that are refused; a ValueError, as callers of a constructor expect."""


class UsageError(WazaError):
    """A command line or a call that asks for something that is not there."""


class TraceError(WazaError):
    """A recorded trace that cannot be read."""


class StoreError(WazaError):
    """Results that cannot be written or read."""

    exit_code = EXIT_UNDECIDED


class EngineError(WazaError):
    """An agent that could not run; the trial's status is `error`."""

    exit_code = EXIT_UNDECIDED

    def __init__(self, message: str, *, recorded: Any = None, is_started: bool = True) -> None:
        super().__init__(message)
        self.recorded = recorded
        """The Trace of what the agent did before, or None."""
        self.is_started = is_started
        """Whether the agent may have been started, and so may have been billed."""


class JudgeError(WazaError):
    """A judge that could not answer; the grade's status is `error`."""

    exit_code = EXIT_UNDECIDED

    def __init__(
        self,
        message: str,
        *,
        is_transient: bool = False,
        wait_s: float | None = None,
        spending: Spending = NOTHING,
        kind: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        """What every request to this judge would fail of, such as `401` or `5xx`; empty for faults of one request."""
        self.spending = spending
        """What the requests without an answer were billed."""
        self.is_transient = is_transient
        """Whether asking again may help."""
        self.wait_s = wait_s
        """How long the server asked us to wait first."""


class Undecidable(WazaError):
    """Evidence that was not recorded; the grade's status is `error`."""

    exit_code = EXIT_UNDECIDED


_SYNONYMS = {
    "output_excludes": "output_not_contains",
    "skill_activated": "should_trigger",
    "forbidden_match": "regex_not_match",
    "trials": "trials_per_task",
    "timeout": "timeout_seconds",
    "engine": "executor",
    "must_contain": "contains",
    "must_not_contain": "not_contains",
    "must_match": "regex_match",
    "must_not_match": "regex_not_match",
    "input": "prompt",
    "cmd": "command",
}
"""Words that authors of public suites use, and the key they mean."""


_LONG_WORD = 8
"""The length from which on a word may have two slips."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is a slip or another word for, or None."""
    known = list(known)
    if (meant := _SYNONYMS.get(name)) in known:
        return meant
    lowered = name.lower().replace("-", "_")
    best: tuple[int, int, str] | None = None
    for candidate in known:
        other = candidate.lower().replace("-", "_")
        allowed = max(1, min(3, len(other) // 3))
        distance = _edit_distance(lowered, other, allowed)
        if distance <= allowed:
            rank = (distance, -_common_prefix(lowered, other), candidate)
            best = rank if best is None or rank < best else best
    return best[2] if best else None


def typo_of(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is one slip away from, or None: stricter than `nearest`.

    One slip is one edit or transposition, two in words of eight letters or more; letter case, `-` and `_` do not count.
    """
    written = name.lower().replace("-", "_")
    found: list[tuple[int, str]] = []
    for candidate in known:
        meant = candidate.lower().replace("-", "_")
        allowed = 2 if len(meant) >= _LONG_WORD else 1
        if candidate != name and (distance := _edit_distance(written, meant, allowed)) <= allowed:
            found.append((distance, candidate))
    return min(found)[1] if found else None


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return the end of a sentence about an unknown `name`: a suggestion, or what is known."""
    if suggestion := nearest(name, known):
        return f"did you mean '{suggestion}'?"
    return f"known: {', '.join(sorted(set(known)))}" if known else "nothing is allowed here"


def _common_prefix(one: str, other: str) -> int:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def _edit_distance(one: str, other: str, limit: int) -> int:
    """Return the number of single-letter slips (swaps too) between two words, or limit + 1."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        two_before, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, two_before[j - 2] + 1)
            row.append(cost)
    return row[-1]


def what(value: Any) -> str:
    """Return a description of a value for people."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {str(value)[:40]}"
    if isinstance(value, str):
        return f"the text '{value[:40]}{'…' if len(value) > 40 else ''}'"
    if isinstance(value, list | dict):
        kind = "list" if isinstance(value, list) else "mapping"
        return f"a {kind}" if value else f"an empty {kind}"
    return type(value).__name__


_NEEDED = {
    "list_type": "a list is needed",
    "tuple_type": "a list is needed",
    "dict_type": "a mapping of keys is needed",
    "model_type": "a mapping of keys is needed",
    "model_attributes_type": "a mapping of keys is needed",
    "string_type": "a text is needed",
    "int_type": "a whole number is needed",
    "int_from_float": "a whole number is needed",
    "limit_type": "a whole number or `none` is needed",
    "float_type": "a number is needed",
    "bool_type": "true or false is needed",
    "finite_number": "a finite number is needed",
    "int_parsing": "a whole number is needed",
    "float_parsing": "a number is needed",
    "bool_parsing": "true or false is needed",
}
_SHOULD_BE = "Input should be "
"""How sentences of pydantic's own begin."""
_HINTS = {
    ("list_type", str): "; put it in a list: [{}]",
    ("string_type", int): "; quote it",
    ("string_type", float): "; quote it",
}


def validation_fact(item: Mapping[str, Any]) -> str:
    """Return the fact and the next step for one of pydantic's errors."""
    kind, found, context = item["type"], item.get("input"), item.get("ctx", {})
    if kind in _NEEDED:
        hint = _HINTS.get((kind, type(found)), "").format(repr(found)[:60])
        return f"{_NEEDED[kind]}, found {what(found)}{hint}"
    if kind in ("literal_error", "enum"):
        allowed = [word.strip("'") for word in str(context.get("expected", "")).replace(" or ", ", ").split(", ")]
        close = nearest(found, allowed) if isinstance(found, str) else None
        return f"found {what(found)}; one of: {', '.join(allowed)}" + (f"; did you mean '{close}'?" if close else "")
    if kind in ("string_too_short", "too_short"):
        return "must not be empty: a check of nothing cannot fail"
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
        bound = ", ".join(f"{words.get(key, key)} {value:g}" for key, value in context.items())
        return f"must be {bound}, found {what(found)}"
    message = str(item["msg"])
    if message.startswith(_SHOULD_BE):
        return f"must be {message.removeprefix(_SHOULD_BE).partition(',')[0]}, found {what(found)}"
    return message.removeprefix("Value error, ")


_KINDS = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false"}
_KINDS |= {"array": "a list", "object": "a mapping of keys", "null": "null"}
_EXPECTED = re.compile(r"Expected `([^`]*)`(?:, got `([^`]*)`)?(.*)", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_ENUM = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def decoding_fact(error: Exception, data: Any = None, known: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return an error of msgspec's for people: the place, what is needed and what `data` has there.

    `known` has the words that are allowed, by place.
    """
    text, _, place = str(error).partition(" - at ")
    path = place.strip("`").removeprefix("key in `").removeprefix("$")
    here = path.removeprefix(".")
    fact = text
    if found := _MISSING.match(text):
        fact = f"'{found[1]}' is missing"
    elif found := _EXPECTED.match(text):
        kinds = [_KINDS.get(kind, kind) for kind in found[1].split(" | ")]
        kinds = [kind for kind in kinds if kind != _KINDS["int"] or _KINDS["float"] not in kinds]
        got = _at(data, path) if found[2] else None
        got_words = what(got) if found[2] and got is not None else _KINDS.get(found[2] or "", found[2])
        fact = f"{' or '.join(kinds)}{found[3]} is needed" + (f", found {got_words}" if got_words else "")
    elif found := _ENUM.match(text):
        allowed = (known or {}).get(here)
        fact = f"found {found[1]}" + (f"; one of: {', '.join(allowed)}" if allowed else ", which is not known here")
    elif text == "Input data was truncated":
        fact = "no JSON: it ends too early"
    elif text.startswith("JSON is malformed: "):
        fact = f"no JSON: {text.removeprefix('JSON is malformed: ')}"
    return f"{here}: {fact}" if here else fact


def _at(data: Any, path: str) -> Any:
    """Return the value at a path of msgspec's; None where the path is ambiguous."""
    for key, index in _STEP.findall(path):
        if isinstance(data, list) and index.isdecimal():
            data = data[int(index)]
        elif isinstance(data, dict) and key:
            data = data.get(key)
        else:
            return None
    return data


_OUT_OF = {errno.ENOMEM: "memory", errno.EMFILE: "open files", errno.ENFILE: "open files", errno.EAGAIN: "processes"}
_LIMITS = {
    "memory": "there is not enough memory; raise `ulimit -v`, or use fewer workers",
    "open files": "too many files are open at once; raise `ulimit -n`, or use fewer workers",
    "processes": "no further process or thread can be started; raise `ulimit -u`, or use fewer workers",
}


def exhausted(error: BaseException) -> str:
    """Return a sentence where an error means that the system gives no more memory, files or processes; else nothing."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(exhausted, error.exceptions)), "")
    text = str(error)
    if isinstance(error, MemoryError):
        return _LIMITS["memory"]
    if isinstance(error, OSError):
        return _LIMITS.get(_OUT_OF.get(error.errno or 0, ""), "")
    if isinstance(error, RuntimeError) and "can't start new thread" in text:
        return _LIMITS["processes"]
    if isinstance(error, ImportError):  # the dynamic loader's own words, with no number
        if "failed to map segment" in text or "annot allocate memory" in text:
            return _LIMITS["memory"]
        if "Too many open files" in text:
            return _LIMITS["open files"]
    cause = error.__cause__ or error.__context__
    return exhausted(cause) if cause is not None and not isinstance(error, WazaError) else ""
