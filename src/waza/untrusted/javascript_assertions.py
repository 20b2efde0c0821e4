"""JavaScript assertions, run by quickjs-ng in a child process that is killed when its time runs out.

Each one is an expression in strict mode with a context of its own; the values of the context are read-only names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec

import msgspec

from waza.errors import nearest
from waza.model import JSON
from waza.process.question_worker import Child, NoAnswer
from waza.untrusted.constant_assertions import constant_javascript
from waza.untrusted.python_assertions import MESSAGE_CHARS, AssertionOutcome, not_data, raised
from waza.untrusted.python_expressions import CONTEXT_NAMES, MAX_CHARS
from waza.untrusted.text import well_formed, well_formed_data

ENGINE = "quickjs-ng"
LIMIT_S = 2.0
"""The child's wall clock; the engine stops itself after half of it."""

CHILD = Child("quickjs")


def check_assertion(source: str) -> None:
    """Raise ValueError with the reason when `source` is not one expression, or cannot both pass and fail."""
    if not source.strip():
        raise ValueError("an assertion must not be blank")
    if len(source) > MAX_CHARS:
        raise ValueError(f"an assertion has at most {MAX_CHARS} characters, this one has {len(source)}")
    if "\0" in source or source != well_formed(source):
        raise ValueError("an assertion must not contain NUL or lone surrogates")
    if find_spec("quickjs") is None:
        raise ValueError("JavaScript assertions need quickjs-ng; install it: pip install 'waza[js]'")
    try:
        CHILD.ask({"source": source.strip()}, LIMIT_S)
    except NoAnswer as reason:
        raise ValueError(f"the assertion {reason} while it was compiled") from None
    if constant := constant_javascript(source):
        raise ValueError(constant)


def evaluate(
    expressions: Iterable[str],
    context: Mapping[str, JSON],
    missing: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
) -> list[AssertionOutcome]:
    """Return the outcome of each expression in the context; one that reads a `missing` name is undecided."""
    absent = missing or {}
    values = {name: well_formed_data(value) for name, value in context.items() if name not in absent}
    written = msgspec.json.encode(values | {"True": True, "False": False}).decode()
    return [_evaluate(source, written, absent, limit_s) for source in expressions]


def _evaluate(source: str, context: str, missing: Mapping[str, str], limit_s: float) -> AssertionOutcome:
    question = {"source": source.strip(), "context": context, "missing": list(missing)}
    try:
        kind, text = CHILD.ask(question, limit_s)
    except NoAnswer as reason:
        return AssertionOutcome(None, str(reason))
    if kind == "missing":
        return AssertionOutcome(None, missing[text])
    if text.startswith("InternalError: "):
        return AssertionOutcome(None, f"ran out of memory ({text})")
    if kind == "raised":
        return raised(text + _suggestion(text))
    if kind == "a promise":
        return AssertionOutcome(False, "the result is a promise, which is always true; an assertion cannot wait for it")
    return not_data(kind) if kind == "a function" else AssertionOutcome(kind == "true")


def _suggestion(text: str) -> str:
    unknown = re.fullmatch(r"ReferenceError: (\w+) is not defined", text[:MESSAGE_CHARS])
    known = nearest(unknown[1], CONTEXT_NAMES) if unknown else None
    return f"; did you mean '{known}'?" if known else ""
