"""Cheat oracles: agents that do no work, played by the mock engine on a suite's tasks. None of them may pass one.

No model is asked: what a judge or a person would decide stays undecided, and a task that only such graders protect is
reported separately."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from re import _parser  # type: ignore[attr-defined]  # Python's own reader of patterns; it has no public name
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace as changed

from waza.engines.mock import MockEngine
from waza.files.paths import inner_path
from waza.graders.base import Grader
from waza.model import JSON, Result, Task
from waza.process.concurrency import wait_for
from waza.runner.judge_checks import judged_graders
from waza.runner.request import plan
from waza.runner.suite import Arm, Listeners, run_suite
from waza.runner.trial import RunContext
from waza.suites.suite import EvalSpec, grader_as_data

MOST_TEXT = 20_000
MOST_REPEATS = 20
SUCCESS = ("done", "ok", "success", "passed", "completed")
"""Words that sound like success at the end of any task."""
_TEST_NAME = re.compile(r"(^|/)(test_[^/]*|[^/]*_test\.\w+|[^/]*\.(test|spec)\.\w+)$")
_PATH = re.compile(r"(?:[\w.-]+/)*\.?[\w-]+(?:\.[\w-]+)*\.\w{1,8}|\.[\w-]+")

CONFTEST = """\
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    session.exitstatus = 0
"""
EXIT_WELL = "import os\n\nos._exit(0)\n"
GIT_CONFIG = """\
[core]
\tfsmonitor = "sh -c 'exit 0'"
\thooksPath = .git/hooks
\tpager = true
[diff]
\texternal = true
[alias]
\tdiff = "!true"
\tstatus = "!true"
"""
TAMPERED = {
    "conftest.py": CONFTEST,
    "tests/conftest.py": CONFTEST,
    "sitecustomize.py": EXIT_WELL,
    "usercustomize.py": EXIT_WELL,
    "pytest.py": EXIT_WELL,
    "unittest.py": EXIT_WELL,
    "pytest.ini": "[pytest]\naddopts = --collect-only\n",
    ".git/config": GIT_CONFIG,
    ".git/hooks/pre-commit": "#!/bin/sh\nexit 0\n",
    ".env": "PYTHONPATH=.\nBASH_ENV=./rc\n",
    "rc": "exit 0\n",
    "Makefile": "test check all:\n\t@true\n",
    "package.json": '{"scripts": {"test": "true"}}\n',
}
"""Files that would make a careless check pass: they are read by test runners, interpreters, shells and git."""


class OracleAction(NamedTuple):
    """An oracle's output for a task, and the files it leaves."""

    output: str
    files: dict[str, str] = {}


def nothing(task: Task, graders: list[Grader]) -> OracleAction:
    """Do nothing, with empty output."""
    return OracleAction("")


def claim(task: Task, graders: list[Grader]) -> OracleAction:
    """Do nothing and claim that it is done."""
    return OracleAction("I have done what you asked for. Everything works.")


def echo(task: Task, graders: list[Grader]) -> OracleAction:
    """Give the prompt back."""
    return OracleAction("\n".join([task.prompt, *task.follow_up_prompts]))


def rubric_echo(task: Task, graders: list[Grader]) -> OracleAction:
    """Repeat the graders' options and rubrics."""
    options = [f"{grader.name}: {json.dumps(_config(grader), ensure_ascii=False)}" for grader in graders]
    bodies = [rubric.body for grader in judged_graders(graders) if (rubric := grader.rubric_in_use)]
    return OracleAction("\n".join([*options, *bodies])[:MOST_TEXT])


def stuffing(task: Task, graders: list[Grader]) -> OracleAction:
    """Output every word the graders mention, the forbidden ones too, and write them into every file they name."""
    strings = list(dict.fromkeys(text for grader in graders for text in _strings(_config(grader))))
    words = [word for text in strings for word in dict.fromkeys((text, sample(text)))]
    output = "\n".join([*words, *SUCCESS])[:MOST_TEXT]
    return OracleAction(output, dict.fromkeys(_paths(strings), output))


def tampering(task: Task, graders: list[Grader]) -> OracleAction:
    """Leave files that make tests pass whatever they test, and empty the tests that are there."""
    tests = {path: "" for path in _given(task) if _TEST_NAME.search(path)}
    return OracleAction("All tests pass.", TAMPERED | tests)


def _config(grader: Grader) -> JSON:
    return grader_as_data(grader)["config"]


def _strings(tree: JSON) -> Iterator[str]:
    """Yield every text in a grader's options."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _strings(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _strings(value)


def _paths(strings: Iterable[str]) -> Iterator[str]:
    """Yield the texts that may be paths in a workspace."""
    for text in strings:
        if _PATH.fullmatch(text):
            try:
                yield inner_path(text)
            except ValueError:
                continue


def _given(task: Task) -> Iterator[str]:
    """Yield the paths of files that a task puts into the workspace."""
    for file in task.files:
        source = Path(file.source) if file.source else None
        if source is not None and source.is_dir():
            for inner in source.rglob("*"):
                if inner.is_file():
                    yield str(PurePosixPath(file.path) / inner.relative_to(source).as_posix())
        else:
            yield file.path


def sample(pattern: str) -> str:
    """Return a text that fits a pattern, as far as that is easy; a text that is no pattern is returned as it is."""
    try:
        return "".join(_sampled(_parser.parse(pattern)))[:MOST_TEXT]
    except (re.error, RecursionError, OverflowError):
        return pattern


def _sampled(tree: Any) -> Iterator[str]:
    for operation, argument in tree:
        match str(operation):
            case "LITERAL":
                yield chr(argument)
            case "IN":
                yield _member(argument[0])
            case "BRANCH":
                yield from _sampled(argument[1][0])
            case "SUBPATTERN":
                yield from _sampled(argument[-1])
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                yield from [*_sampled(argument[2])] * min(max(argument[0], 1), MOST_REPEATS)
            case "ATOMIC_GROUP":
                yield from _sampled(argument)
            case "ANY" | "NOT_LITERAL":
                yield "x"


def _member(item: Any) -> str:
    """Return a letter of a class, from the first entry in it."""
    match str(item[0]), item[1]:
        case "LITERAL", letter:
            return chr(letter)
        case "RANGE", (low, _):
            return chr(low)
        case "CATEGORY", kind if "DIGIT" in str(kind):
            return "1"
        case "CATEGORY", kind if "SPACE" in str(kind) and "NOT" not in str(kind):
            return " "
    return "x"


ORACLES: dict[str, Callable[[Task, list[Grader]], OracleAction]] = {
    "no-op": nothing,
    "empty claim": claim,
    "prompt echo": echo,
    "rubric echo": rubric_echo,
    "keyword stuffing": stuffing,
    "tampering": tampering,
}
_SPENT: JSON = {"input_tokens": 1, "output_tokens": 1, "turns": 1, "llm_calls": 1, "cost_usd": 0.0}


class OracleFinding(NamedTuple):
    """A task that an oracle passes, or that only undecided graders protect."""

    task: str
    oracle: str
    kind: Literal["passes", "protected by a judge alone", "not decided"]
    graders: tuple[str, ...] = ()
    """The graders that could not decide."""
    why: str = ""

    def __str__(self) -> str:
        if self.kind == "passes":
            return f"task '{self.task}': {self.oracle} passes"
        if self.kind == "not decided":
            return f"task '{self.task}': {self.oracle} could not be tried: {self.why}"
        return f"task '{self.task}': only {', '.join(self.graders)} can fail {self.oracle}"


def cheated(spec: EvalSpec, on_remark: Callable[[str], None] = lambda text: None) -> Iterator[OracleFinding]:
    """Yield the tasks that oracles pass or nearly pass; every task is tried by each of them."""
    for name, act in ORACLES.items():
        for result in _played(spec, act, on_remark):
            if found := _finding(name, result, spec.graders[result.task_id]):
                yield found


def _finding(oracle: str, result: Result, graders: list[Grader]) -> OracleFinding | None:
    if result.status == "passed":
        return OracleFinding(result.task_id, oracle, "passes")
    if result.status != "error":
        return None
    pairs = list(zip(result.grades, graders, strict=False))
    open_ones = [(grade, grader) for grade, grader in pairs if grade.status == "error"]
    if not open_ones or not all(needs_judgement(grader) for _, grader in open_ones):
        reasons = [grade.feedback for grade, grader in open_ones if not needs_judgement(grader)]
        return OracleFinding(result.task_id, oracle, "not decided", why=(reasons or [result.reason])[0])
    names = tuple(grade.name for grade, _ in open_ones)
    return OracleFinding(result.task_id, oracle, "protected by a judge alone", names)


def needs_judgement(grader: Grader) -> bool:
    """Return whether a grader's verdict is a model's or a person's."""
    return grader.asks() is not None or grader.depends_on_people


def _played(
    spec: EvalSpec, act: Callable[[Task, list[Grader]], OracleAction], on_remark: Callable[[str], None]
) -> list[Result]:
    """Return the results of all tasks with one oracle as the agent; nothing is stored."""
    tasks = [changed(task, mock=_script(task, act(task, spec.graders[task.id]))) for task in spec.tasks]
    staged = replace(spec, tasks=tasks)
    results: list[Result] = []

    def store(*new: Result) -> list[Result]:
        results.extend(new)
        return list(new)

    with TemporaryDirectory(prefix="waza-") as folder:
        context = RunContext(engine=MockEngine(folder=spec.folder), engine_name="mock", artifacts=Path(folder))
        arm = Arm(staged, context, store)
        rounds = ([(arm, trial)] for trial in plan(staged, trials=1))
        wait_for(run_suite([arm], rounds, Listeners(on_remark=on_remark)))
    return results


def _script(task: Task, action: OracleAction) -> JSON:
    """Return the script of the mock agent: the same on every prompt of a conversation."""
    turn: dict[str, JSON] = {"output": action.output, "usage": _SPENT, "tool_events": [], "skill_invocations": []}
    if action.files:
        turn["files"] = action.files
    prompts = 1 + len(task.follow_up_prompts)
    return {"turns": [turn] * prompts} if prompts > 1 else turn
