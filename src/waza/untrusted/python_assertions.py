"""Python assertions, evaluated outside this process by CPython: no files, no network, no processes, under limits.

`python_expressions` decides what is accepted, `python_evaluator` runs in the worker. Each assertion gets fresh data.
"""

from __future__ import annotations

import marshal
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple

from waza.errors import did_you_mean
from waza.model import JSON
from waza.process.question_worker import Child, NoAnswer
from waza.untrusted.python_expressions import BUILT_IN_NAMES, CONTEXT_NAMES, read_expression
from waza.untrusted.text import well_formed, well_formed_data

ENGINE = "cpython"
LIMIT_S = 2.0
"""How long one assertion may compute; on a busy machine that takes longer by the clock."""
BUSY_FACTOR = 5
MESSAGE_CHARS = 500
_KNOWN = (*CONTEXT_NAMES, *BUILT_IN_NAMES, "True", "False", "None")
_START = "import sys; sys.path.append(sys.argv[1]); from waza.untrusted.python_evaluator import main; main()"


class AssertionOutcome(NamedTuple):
    """The outcome of an assertion: passed, failed, or (None) undecided; and why."""

    ok: bool | None
    message: str = ""


def check_assertion(source: str) -> None:
    """Raise ValueError with the column and the reason when `source` is refused."""
    read_expression(source)


def evaluate(
    expressions: Iterable[str],
    context: Mapping[str, JSON],
    missing: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
) -> list[AssertionOutcome]:
    """Return the outcome of each expression in the context; one that reads a `missing` name is undecided."""
    sources = list(expressions)
    outcomes = {place: AssertionOutcome(None, reason) for place, reason in _without_evidence(sources, missing or {})}
    waiting = [place for place in range(len(sources)) if place not in outcomes]
    try:
        data = _data([sources[place] for place in waiting], context)
    except (ValueError, RecursionError) as error:
        unread = AssertionOutcome(None, f"its data cannot be read: {error}"[:MESSAGE_CHARS])
        return [outcomes.get(place, unread) for place in range(len(sources))]
    with _WORKERS.one() as worker:
        while waiting:
            for outcome in worker.evaluate([sources[place] for place in waiting], data, limit_s):
                outcomes[waiting.pop(0)] = outcome
    return [outcomes[place] for place in range(len(sources))]


def raised(error: str) -> AssertionOutcome:
    """Return the outcome of an assertion that raised."""
    return AssertionOutcome(False, well_formed(f"the assertion raised {error}"[:MESSAGE_CHARS]))


def not_data(kind: str) -> AssertionOutcome:
    """Return the outcome of an assertion whose value is not data and would always be true."""
    return AssertionOutcome(False, f"the result is {kind}, which is always true; did you forget to call it?")


def _without_evidence(sources: list[str], missing: Mapping[str, str]) -> Iterable[tuple[int, str]]:
    for place, source in enumerate(sources):
        if absent := sorted(read_expression(source).names & missing.keys()):
            yield place, missing[absent[0]]


def _data(sources: list[str], context: Mapping[str, JSON]) -> dict[str, bytes]:
    names = frozenset[str]().union(*(read_expression(source).names for source in sources))
    return {name: marshal.dumps(well_formed_data(context[name])) for name in names & context.keys()}


class _EvaluatorProcess(Child):
    """A worker process that evaluates."""

    # A result must not depend on the order of a set, which follows the hash seed.
    variables: ClassVar[dict[str, str]] = {"PYTHONHASHSEED": "0"}

    def __init__(self) -> None:
        super().__init__("waza")

    def evaluate(self, sources: list[str], data: Mapping[str, bytes], limit_s: float) -> list[AssertionOutcome]:
        """Return the outcomes of the expressions up to where the worker ended, at least one."""
        header = marshal.dumps((limit_s, sources, {name: len(blob) for name, blob in data.items()}))
        message = b"".join((len(header).to_bytes(8, "little"), header, *data.values()))
        try:
            answers, late = self.ask_each(message, len(sources), limit_s * BUSY_FACTOR * len(sources))
        except NoAnswer as reason:
            return [AssertionOutcome(None, str(reason))] * len(sources)
        outcomes = [_outcome(kind, text) for kind, text in answers]
        if len(outcomes) < len(sources) and not (answers and answers[-1][0] == "memory"):
            why = f"ran out of time ({limit_s:g} s)" if late else "ended its worker process"
            outcomes.append(AssertionOutcome(None, why))
        return outcomes

    def _command(self) -> list[str]:
        return [sys.executable, "-s", "-S", "-P", "-B", "-c", _START, str(Path(__file__).parents[2])]


class _Workers:
    """Idle worker processes, as many as were needed at the same time."""

    def __init__(self) -> None:
        self._idle: list[_EvaluatorProcess] = []
        # A lock that another thread holds during a fork would stay locked in the child for ever.
        self._reset_lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset_lock)

    def _reset_lock(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[_EvaluatorProcess]:
        """Lend a worker to one caller at a time."""
        with self._lock:
            worker = self._idle.pop() if self._idle else _EvaluatorProcess()
        try:
            yield worker
        finally:
            with self._lock:
                self._idle.append(worker)


_WORKERS = _Workers()


def _outcome(kind: str, text: str) -> AssertionOutcome:
    if kind in ("true", "false"):
        return AssertionOutcome(kind == "true")
    if kind == "raised":
        return raised(text)
    if kind == "unknown name":
        return raised(f"NameError: '{text}' is not known in assertions; {did_you_mean(text, _KNOWN)}")
    if kind == "memory":
        return AssertionOutcome(None, "ran out of memory")
    if kind == "unavailable":
        return AssertionOutcome(None, f"it cannot be evaluated: {text}")
    return not_data(kind)
