"""Cheat oracles: agents that do no work, played by the mock engine on a suite's tasks. None of them may pass one.

No model is asked: what a judge or a person would have to decide stays open, and a task that nothing else holds up is
told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from msgspec.structs import replace as changed

from waza.engines.mock import MockEngine
from waza.graders._base import Grader
from waza.model import JSON, Result, Task
from waza.runner.oracle_texts import Deed, claim, echo, nothing, rubric_echo, stuffing, tampering
from waza.runner.plan import plan
from waza.runner.suite import Listeners, run_suite
from waza.runner.trial import Setting
from waza.runner.waiting import wait_for
from waza.spec.suite import EvalSpec

ORACLES: dict[str, Callable[[Task, list[Grader]], Deed]] = {
    "no-op": nothing,
    "empty claim": claim,
    "prompt echo": echo,
    "rubric echo": rubric_echo,
    "keyword stuffing": stuffing,
    "tampering": tampering,
}
_SPENT: JSON = {"input_tokens": 1, "output_tokens": 1, "turns": 1, "llm_calls": 1, "cost_usd": 0.0}


class Finding(NamedTuple):
    """A task that an oracle gets through, or that only the undecided graders keep it from."""

    task: str
    oracle: str
    kind: Literal["passes", "held up by a judge alone", "not decided"]
    graders: tuple[str, ...] = ()
    """The graders that could not decide."""
    why: str = ""

    def __str__(self) -> str:
        if self.kind == "passes":
            return f"task '{self.task}': {self.oracle} passes"
        if self.kind == "not decided":
            return f"task '{self.task}': {self.oracle} could not be tried: {self.why}"
        return f"task '{self.task}': nothing but {', '.join(self.graders)} stands against {self.oracle}"


def cheated(spec: EvalSpec, on_remark: Callable[[str], None] = lambda text: None) -> Iterator[Finding]:
    """Yield what the oracles get through; every task is tried by each of them."""
    for name, act in ORACLES.items():
        for result in _played(spec, act, on_remark):
            if found := _finding(name, result, spec.graders[result.task_id]):
                yield found


def _finding(oracle: str, result: Result, graders: list[Grader]) -> Finding | None:
    if result.status == "passed":
        return Finding(result.task_id, oracle, "passes")
    if result.status != "error":
        return None
    pairs = list(zip(result.grades, graders, strict=False))
    open_ones = [(grade, grader) for grade, grader in pairs if grade.status == "error"]
    if not open_ones or not all(needs_somebody(grader) for _, grader in open_ones):
        reasons = [grade.feedback for grade, grader in open_ones if not needs_somebody(grader)]
        return Finding(result.task_id, oracle, "not decided", why=(reasons or [result.reason])[0])
    names = tuple(grade.name for grade, _ in open_ones)
    return Finding(result.task_id, oracle, "held up by a judge alone", names)


def needs_somebody(grader: Grader) -> bool:
    """Say whether a grader's verdict is a model's or a person's."""
    return grader.asks() is not None or grader.type_name() in ("human", "human_calibration")


def _played(
    spec: EvalSpec, act: Callable[[Task, list[Grader]], Deed], on_remark: Callable[[str], None]
) -> list[Result]:
    """Return what came of all tasks with one oracle for the agent; nothing is stored."""
    tasks = [changed(task, mock=_script(task, act(task, spec.graders[task.id]))) for task in spec.tasks]
    staged = replace(spec, tasks=tasks)
    results: list[Result] = []

    def store(*kept: Result) -> list[Result]:
        results.extend(kept)
        return list(kept)

    with TemporaryDirectory(prefix="waza-") as kept:
        setting = Setting(engine=MockEngine(folder=spec.folder), engine_name="mock", artifacts=Path(kept))
        listeners = Listeners(on_remark=on_remark)
        wait_for(run_suite(staged, plan(staged, trials=1), setting, listeners, store))
    return results


def _script(task: Task, deed: Deed) -> JSON:
    """Return the script of the mock agent: the same on every prompt of a conversation."""
    turn: dict[str, JSON] = {"output": deed.output, "usage": _SPENT, "tool_events": [], "skill_invocations": []}
    if deed.files:
        turn["files"] = deed.files
    prompts = 1 + len(task.follow_up_prompts)
    return {"turns": [turn] * prompts} if prompts > 1 else turn
