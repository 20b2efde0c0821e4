"""Python assertions, run outside this process by pydantic-monty: no files, no network, no processes, under limits.

Each one sees fresh data. Differences from Python that remain: in `re`, `$` matches at the very end only and
replacements cannot be functions; methods are not values (`key=str.lower`); `zip` and `enumerate` give lists; a format
width on None or a list is not refused.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from waza.errors import did_you_mean
from waza.model import JSON
from waza.sandbox.expressions import Expression, read_expression
from waza.sandbox.lazy import PRELUDE
from waza.sandbox.texts import well_formed, well_formed_data

ENGINE = "pydantic-monty"
CONTEXT_NAMES = ("output", "outcome", "transcript", "tool_calls", "errors", "duration_ms")
BUILT_IN_NAMES = (
    *("len", "any", "all", "str", "int", "float", "bool", "list", "dict", "re"),
    *("sum", "min", "max", "sorted", "set", "tuple", "abs", "round", "enumerate", "zip", "range", "isinstance"),
)
_KNOWN = (*CONTEXT_NAMES, *BUILT_IN_NAMES, "True", "False", "None")
LIMIT_S = 2.0
LIMITS = {
    "max_feed_duration_secs": LIMIT_S,
    "max_turn_duration_secs": LIMIT_S,
    "max_memory": 256 * 1024 * 1024,
    "max_recursion_depth": 200,
    "max_suspensions": 10,
    "max_total_sleep_secs": 0.0,
}
PRINTED_BYTES = 64 * 1024
MESSAGE_CHARS = 500
_NOT_DATA = {
    "function": "a function",
    "builtin_function_or_method": "a function",
    "type": "a type",
    "module": "a module",
}


class Outcome(NamedTuple):
    """What came of an assertion: it held, it did not, or (None) nobody can tell; and why."""

    ok: bool | None
    message: str = ""


def check_assertion(source: str) -> None:
    """Raise ValueError with the column and the reason when `source` is not one expression."""
    read_expression(source)


def evaluate(
    expressions: Iterable[str], context: Mapping[str, JSON], missing: Mapping[str, str] | None = None
) -> list[Outcome]:
    """Return what comes of each expression in the context; one that reads a `missing` name cannot be told."""
    clean: dict[str, JSON] = {}
    outcomes = []
    for source in expressions:
        expression = read_expression(source)
        for name in expression.names & context.keys() - clean.keys():
            clean[name] = well_formed_data(context[name])
        outcomes.append(_evaluate(expression, clean, missing or {}))
    return outcomes


def _evaluate(expression: Expression, context: Mapping[str, JSON], missing: Mapping[str, str]) -> Outcome:
    for name in sorted(expression.names & missing.keys()):
        return Outcome(None, missing[name])
    for name in sorted(expression.names - expression.bound - set(_KNOWN)):
        return raised(f"NameError: '{name}' is not known in assertions; {did_you_mean(name, _KNOWN)}")
    if expression.idle_generator:
        return not_data("a generator")
    inputs = {name: value for name, value in context.items() if name in expression.names}
    return _run(expression, inputs)


def raised(what: str) -> Outcome:
    """Return the outcome of an assertion that raised instead of giving a value."""
    return Outcome(False, well_formed(f"the assertion raised {what}"[:MESSAGE_CHARS]))


def not_data(kind: str) -> Outcome:
    """Return the outcome of an assertion whose value is not data and would therefore always be true."""
    return Outcome(False, f"the result is {kind}, which is always true; did you forget to call it?")


def _run(expression: Expression, inputs: dict[str, JSON]) -> Outcome:
    import pydantic_monty as monty  # a tenth of a second that only assertions should cost

    pool = _pool()
    if pool is None:
        return Outcome(None, "assertions cannot run in a forked process; start it with the spawn method")
    try:
        with pool.checkout(limits=LIMITS) as session:
            printed = monty.CollectString(max_bytes=PRINTED_BYTES)
            truth, kind = session.feed_run(_program(expression), inputs=inputs, print_callback=printed)
    except monty.MontyRuntimeError as error:
        return _raised(error, expression)
    except monty.MontyCrashedError as error:
        return Outcome(None, f"ran out of time ({LIMIT_S:g} s)" if error.timed_out else "ended its sandbox process")
    except (monty.MontyError, TimeoutError) as error:
        return Outcome(None, f"the sandbox could not run it: {error}"[:MESSAGE_CHARS])
    return not_data(_NOT_DATA[kind]) if kind in _NOT_DATA else Outcome(truth)


def _program(expression: Expression) -> str:
    """Return the code for the sandbox; only truth and type of the value come back, whatever its size."""
    imports = "import re\n" if "re" in expression.names else ""
    lazy = PRELUDE if "_waza_" in expression.code else ""
    return f"{imports}{lazy}_waza_value = (\n{expression.code}\n)\n[not not _waza_value, type(_waza_value).__name__]"


def _raised(error: Any, expression: Expression) -> Outcome:
    inner, text = error.exception(), error.display("type-msg")
    if isinstance(inner, TimeoutError) or "limit for backtracking" in text:
        return Outcome(None, f"ran out of time ({text})"[:MESSAGE_CHARS])
    if isinstance(inner, MemoryError):
        return Outcome(None, f"ran out of memory ({text})"[:MESSAGE_CHARS])
    if isinstance(inner, NotImplementedError):
        return Outcome(None, f"the sandbox could not run it: {text}"[:MESSAGE_CHARS])
    if isinstance(inner, AttributeError) and text.endswith(tuple(f"'{name}'" for name in expression.last_attributes)):
        text += "; did you forget to call it?"
    return raised(text)


_LOCK = threading.Lock()
_POOL: tuple[int, Any] | None = None


def _pool() -> Any:
    """Return the shared workers, started when first needed; None in a fork, where they would never answer."""
    global _POOL
    with _LOCK:
        if _POOL is None:
            _POOL = os.getpid(), _start()
            atexit.register(_close)
    owner, pool = _POOL
    return pool if owner == os.getpid() else None


def _start() -> Any:
    import pydantic_monty as monty

    pool = monty.Monty(
        min_processes=1,
        checkout_timeout=60.0,
        request_timeout=2.5 * LIMIT_S,
        max_checkouts_per_worker=10_000,
        feed_duration_limit_grace=0.5,
        turn_duration_limit_grace=0.5,
    )
    return pool.__enter__()


def _close() -> None:
    if _POOL is not None and _POOL[0] == os.getpid():
        _POOL[1].__exit__(None, None, None)
