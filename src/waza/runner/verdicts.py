"""Verdicts for people who call from Python: `waza.grade`, `waza.assert_grades`, and why a trace did not pass."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from msgspec.structs import replace as changed

from waza.engines.base import Engine
from waza.errors import Problem, SpecError, TraceError, UsageError
from waza.graders.base import Grader
from waza.model import Check, Files, Grade, Result, ResultStatus, Trace, Trial
from waza.process.concurrency import wait_for
from waza.runner.grading import status_of
from waza.runner.request import judge_for, redactor_for
from waza.runner.suite import Arm, Listeners, run_suite
from waza.runner.trial import RunContext
from waza.suites.graders import load_expected, load_grader
from waza.suites.suite import EvalSpec
from waza.untrusted.text import clipped, visible

MAX_CHECKS = 20
"""How many checks of one grade are shown; the rest is counted."""
_WIDTH = 500

Graders = Mapping[str, Any] | Iterable[Grader | Mapping[str, Any]]
"""Graders, mappings they are loaded from, or one `expected:` block."""


class Grades(list[Grade]):
    """The grades of one trace, and what they mean together."""

    def __init__(self, grades: Iterable[Grade], status: ResultStatus, reason: str = "") -> None:
        super().__init__(grades)
        self.status = status
        """`passed`, `failed`, or `error` when that could not be decided."""
        self.reason = reason
        """Why, where the grades do not contain it: the agent could not run, or ran out of time."""

    @property
    def passed(self) -> bool:
        """True when every grader passed."""
        return self.status == "passed"

    def __str__(self) -> str:
        return explained(self, self.status, self.reason)


def grade(
    trace: Trace | Mapping[str, Any] | str | bytes,
    graders: Graders,
    *,
    workspace: str | Path | Files | None = None,
    judge: Any = None,
    base_dir: str | Path = ".",
) -> Grades:
    """Return every grader's verdict on a trace; raise SpecError for graders that are wrong.

    ```python
    grades = waza.grade(trace, {"output_contains": ["refunded"], "max_tool_calls": 5})
    grades.passed       # and print(grades) says why not
    ```

    `graders` are Grader objects or mappings as in `eval.yaml`, or one `expected:` block. A trace may be JSON.
    """
    read = _trace(trace)
    grades = [grader.grade(read, workspace=workspace, judge=judge) for grader in as_graders(graders, base_dir)]
    return Grades(grades, *status_of(read, grades))


def assert_grades(trace: Trace | Mapping[str, Any] | str | bytes, graders: Graders, **evidence: Any) -> Grades:
    """Return the grades if all passed; otherwise raise AssertionError with each failed check."""
    __tracebackhide__ = True
    grades = grade(trace, graders, **evidence)
    if not grades.passed:
        raise AssertionError(str(grades))
    return grades


def as_graders(graders: Graders, base_dir: str | Path = ".") -> list[Grader]:
    """Return Grader objects; raise SpecError with every mistake, UsageError for what is no grader."""
    if isinstance(graders, Mapping):
        return load_expected(dict(graders), base_dir)
    built: list[Grader] = []
    problems: list[Problem] = []
    for entry in [graders] if isinstance(graders, Grader) else graders:
        try:
            built.append(_grader(entry, base_dir))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    if not built:
        raise UsageError("no graders: nothing could fail")
    return built


def _grader(entry: Any, base_dir: str | Path) -> Grader:
    if isinstance(entry, Grader):
        return entry
    if isinstance(entry, Mapping):
        return load_grader(dict(entry), base_dir)
    hint = "call the class" if isinstance(entry, type) else "mark a function with @waza.grader"
    raise UsageError(f"{entry!r} is not a grader; {hint}, or give a mapping with a type")


def _trace(trace: Any) -> Trace:
    if isinstance(trace, Trace):
        return trace
    if isinstance(trace, Mapping | str | bytes):
        return Trace.from_json(dict(trace) if isinstance(trace, Mapping) else trace)
    if callable(to_dict := getattr(trace, "to_dict", None)):
        return Trace.from_json(to_dict())
    raise TraceError(f"not a trace: a waza.Trace, a mapping or JSON text is needed, found {type(trace).__name__}")


def explained(grades: Iterable[Grade], status: ResultStatus, reason: str = "") -> str:
    """Return why a trace did not pass: each failed check."""
    if status == "passed":
        return "passed"
    wrong = [grade for grade in grades if grade.status != "passed"]
    decisive = next((grade for grade in wrong if grade.status == status), None)
    why = reason or (decisive.feedback if decisive else "")
    head = "undecided" if status == "error" else status
    lines = [f"{head}: {clipped(visible(why), _WIDTH)}" if why else head]
    for grade in wrong:
        lines += _explained(grade)
    return "\n".join(lines)


def _explained(grade: Grade) -> Iterator[str]:
    verdict = "undecided" if grade.status == "error" else f"failed, score {grade.score:.2f}"
    yield f"  {visible(grade.name)}: {verdict}"
    wrong = [check for check in grade.checks if not check.ok]
    if not wrong:
        yield f"    {clipped(visible(grade.feedback), _WIDTH)}"
    for check in wrong[:MAX_CHECKS]:
        yield from _check_lines(check)
    if len(wrong) > MAX_CHECKS:
        yield f"    and {len(wrong) - MAX_CHECKS} more checks"


def _check_lines(check: Check) -> Iterator[str]:
    mark = "✗" if check.ok is False else "?"
    yield f"    {mark} {clipped(visible(check.failure or f'not so: {check.claim}'), _WIDTH)}"
    if check.expected is not None:
        yield f"        expected: {_value(check.expected)}"
    if check.actual is not None or check.expected is not None:
        yield f"        found:    {_value(check.actual)}"


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return clipped(visible(text), _WIDTH)


class SingleTrial(NamedTuple):
    """A trial's result and the remarks about it."""

    result: Result
    remarks: list[str]


def run_one(spec: EvalSpec, trial: Trial, engine: Engine, engine_name: str) -> SingleTrial:
    """Run one trial with the commands around its task and return its result, without secrets.

    Nothing is stored. Commands around the run are the caller's: there is no run.
    """
    redactor, _ = redactor_for(spec)
    results: list[Result] = []
    remarks: list[str] = []
    listeners = Listeners(on_remark=remarks.append)
    alone = replace(spec, hooks=spec.hooks.model_copy(update={"before_run": [], "after_run": []}))
    attempts = spec.config.max_attempts

    def store(*kept: Result) -> list[Result]:
        results.extend(kept)
        return results

    with TemporaryDirectory(prefix="waza-") as kept:
        context = RunContext(
            engine=engine,
            engine_name=engine_name,
            max_attempts=attempts,
            on_crash=spec.config.on_agent_crash,
            artifacts=Path(kept),
            judge=judge_for(spec),
        )
        arm = Arm(alone, context, store)
        wait_for(run_suite([arm], iter([[(arm, trial)]]), listeners, workers=1))
    result = changed(results[0], snapshot="", turn_snapshots={})
    return SingleTrial(redactor.tree(result), [redactor.text(remark) for remark in remarks])
