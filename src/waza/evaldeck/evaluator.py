"""evaldeck's evaluator: grade a trace against a case, or run an agent over suites of them."""

from __future__ import annotations

import asyncio
import inspect
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from waza.engines.function_calls import call, find_function, is_async
from waza.errors import UsageError
from waza.evaldeck.config import EvaldeckConfig
from waza.evaldeck.graders import CODE_GRADERS, views
from waza.evaldeck.graders.base import BaseGrader, WazaGrader, graded, graded_async
from waza.evaldeck.graders.code import TaskCompletedGrader
from waza.evaldeck.metrics import DEFAULT_METRICS, BaseMetric
from waza.evaldeck.results import (
    EvaluationResult,
    GradeResult,
    GradeStatus,
    MetricResult,
    RunResult,
    SuiteResult,
    TurnResult,
    worst,
)
from waza.evaldeck.test_case import EvalCase, EvalSuite, Turn
from waza.evaldeck.trace import Message, Trace, TraceStatus
from waza.files.paths import SpecFolder
from waza.process.concurrency import wait_for
from waza.suites.evaldeck import agent_problems
from waza.suites.graders import load_expected
from waza.suites.positions import Position

Listener = Callable[[EvaluationResult], None]
AgentFunction = Callable[..., Any]
_NO_LIMIT_S = 1e7
NOTHING_CHECKED = (
    "nothing was checked: the case expects nothing; give it `expected` or `graders`, or give graders to the Evaluator"
)
_BY_KEY = {cls.key: cls for cls in CODE_GRADERS}


class Evaluator:
    """Grades traces: with its own graders, else with those each turn asks for."""

    def __init__(
        self,
        graders: list[BaseGrader] | None = None,
        metrics: list[BaseMetric] | None = None,
        config: EvaldeckConfig | None = None,
    ) -> None:
        self.graders = list(graders or [])
        self.metrics = list(metrics or [metric() for metric in DEFAULT_METRICS])
        self.config = config

    def add_grader(self, grader: BaseGrader) -> None:
        """Add a grader; the evaluator's own graders are used instead of those the turns ask for."""
        self.graders.append(grader)

    def add_metric(self, metric: BaseMetric) -> None:
        """Calculate this metric too."""
        self.metrics.append(metric)

    def evaluate(self, trace: Trace, test_case: EvalCase) -> EvaluationResult:
        """Return the grades of a trace against the first turn of a case."""
        started = datetime.now()
        graders = self._graders(test_case)
        grades = [graded(grader, view, test_case) for grader, view in views(graders, trace)]
        return self._result(trace, test_case, grades or _ungraded(trace), started)

    async def evaluate_async(self, trace: Trace, test_case: EvalCase) -> EvaluationResult:
        """Return what `evaluate` returns; the graders work at the same time."""
        started = datetime.now()
        graders = self._graders(test_case)
        grades = await asyncio.gather(
            *(graded_async(grader, view, test_case) for grader, view in views(graders, trace))
        )
        return self._result(trace, test_case, grades or _ungraded(trace), started)

    def evaluate_suite(
        self, suite: EvalSuite, agent_func: AgentFunction, on_result: Listener | None = None, max_concurrent: int = 0
    ) -> SuiteResult:
        """Run an agent over a suite and return its results; works under a running event loop too."""
        return wait_for(self.evaluate_suite_async(suite, agent_func, on_result, max_concurrent))

    async def evaluate_suite_async(
        self, suite: EvalSuite, agent_func: AgentFunction, on_result: Listener | None = None, max_concurrent: int = 0
    ) -> SuiteResult:
        """Run an agent over a suite, up to `max_concurrent` cases at once (0: all), and return results in its order."""
        started = datetime.now()
        gate = asyncio.Semaphore(max_concurrent or max(len(suite.test_cases), 1))

        async def one(case: EvalCase) -> EvaluationResult:
            async with gate:
                result = await _Conversation(self, case, suite, agent_func).run()
            if on_result is not None:
                try:
                    on_result(result)
                except Exception as error:  # noqa: BLE001  a listener must not change a verdict
                    warnings.warn(f"on_result raised {type(error).__name__}: {error}", RuntimeWarning, stacklevel=1)
            return result

        results = await asyncio.gather(*(one(case) for case in suite.test_cases))
        return SuiteResult(
            suite_name=suite.name, results=list(results), started_at=started, completed_at=datetime.now()
        )

    def _graders(self, case: EvalCase) -> list[BaseGrader]:
        if case.turns:
            return self.graders_of(case.turns[0])
        return self.graders or [TaskCompletedGrader()]

    def graders_of(self, turn: Turn) -> list[BaseGrader]:
        """Return the evaluator's own graders, else those the turn asks for; the configuration may name their judge."""
        return self.graders or graders_of(turn, self.config.graders.settings if self.config else {})

    def _result(self, trace: Trace, case: EvalCase, grades: list[GradeResult], started: datetime) -> EvaluationResult:
        result = EvaluationResult(test_case_name=case.name, started_at=started, trace_id=trace.id)
        for grade in grades:
            result.add_grade(grade)
        result.metrics = self.metrics_of(trace, case)
        return _completed(result)

    def metrics_of(self, trace: Trace, case: EvalCase) -> list[MetricResult]:
        """Return the metrics of a trace; one that raises is reported in a warning."""
        results: list[MetricResult] = []
        for metric in self.metrics:
            try:
                results.append(metric.calculate(trace, case))
            except Exception as error:  # noqa: BLE001  a metric decides nothing
                warnings.warn(
                    f"metric {metric.name} raised {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2
                )
        return results


def graders_of(turn: Turn, judge: Mapping[str, str]) -> list[BaseGrader]:
    """Return the graders a turn asks for: one for each expectation, then those it names, also in its expectations."""
    given = turn.expected.model_dump(exclude_none=True, exclude={"graders"}) if turn.expected else {}
    found: list[BaseGrader] = []
    for key, cls in _BY_KEY.items():
        if key in given:
            found.append(cls(**{cls.option: given.pop(key)}))
    found += [WazaGrader(grader) for grader in (load_expected(given) if given else [])]
    named = [*turn.graders, *((turn.expected.graders if turn.expected else None) or [])]
    return found + [config.build(judge.get("model"), judge.get("type")) for config in named]


def _ungraded(trace: Trace) -> list[GradeResult]:
    """Return that nothing was checked, or that the agent could not run or ran out of time."""
    if trace.status == TraceStatus.ERROR:
        return [GradeResult.error_result("execution", "the agent ended with an error")]
    if trace.status == TraceStatus.TIMEOUT:
        return [GradeResult.failed_result("execution", "the agent ran out of time")]
    return [GradeResult.error_result("execution", NOTHING_CHECKED)]


def _completed(result: EvaluationResult) -> EvaluationResult:
    result.completed_at = datetime.now()
    started = result.started_at or result.completed_at
    result.duration_ms = (result.completed_at - started).total_seconds() * 1000
    return result


class _AgentReply(NamedTuple):
    """What an agent returned, or the grade that says why it returned nothing."""

    trace: Trace | None
    failure: GradeResult | None = None


class _Conversation:
    """One case: its turns one after the other, until one does not pass."""

    def __init__(self, evaluator: Evaluator, case: EvalCase, suite: EvalSuite, agent: AgentFunction) -> None:
        self.evaluator = evaluator
        self.case = case
        self.agent = agent
        execution = evaluator.config.settings if evaluator.config else None
        defaults = suite.defaults
        limit = _first(case.timeout, defaults.get("timeout"), execution and execution.timeout)
        self.timeout_s = float(limit or _NO_LIMIT_S)
        self.attempts = 1 + int(_first(case.retries, defaults.get("retries"), execution and execution.retries) or 0)

    async def run(self) -> EvaluationResult:
        """Return the result of the case."""
        result = EvaluationResult(test_case_name=self.case.name, started_at=datetime.now())
        if not self.case.turns:
            result.add_grade(GradeResult.error_result("execution", "Test case has no turns defined"))
            return _completed(result)
        if not any(self.evaluator.graders_of(turn) for turn in self.case.turns):
            result.add_grade(GradeResult.error_result("execution", NOTHING_CHECKED))
            return _completed(result)
        history: list[Message] = []
        for index, turn in enumerate(self.case.turns):
            if result.failed_at_turn is not None:
                skipped = TurnResult(turn_index=index, user_input=turn.user, status=GradeStatus.SKIP, skipped=True)
                result.add_turn_result(skipped)
                continue
            answer = await self._turn(result, index, turn, history)
            if not result.turn_results[-1].passed:
                result.failed_at_turn = index
            elif answer is not None:
                history += [Message(role="user", content=turn.user)]
                history += [Message(role="assistant", content=answer.output or "")]
        return _completed(result)

    async def _turn(self, result: EvaluationResult, index: int, turn: Turn, history: list[Message]) -> Trace | None:
        """Run one turn, add it to the result and return the agent's trace."""
        started = time.perf_counter()
        trace, failure = await self._run_agent(turn.user, history)
        alone = self.case.model_copy(update={"turns": [turn]})
        grades = [failure] if failure else []
        if trace is not None:
            graders = self.evaluator.graders_of(turn)
            grades += await asyncio.gather(
                *(graded_async(grader, view, alone) for grader, view in views(graders, trace))
            )
            grades = grades or [grade for grade in _ungraded(trace) if grade.message != NOTHING_CHECKED]
            result.metrics = self.evaluator.metrics_of(trace, alone)
            result.trace_id = trace.id
        elif failure is not None and failure.status == GradeStatus.ERROR:
            result.error = failure.message
        result.add_turn_result(
            TurnResult(
                turn_index=index,
                user_input=turn.user,
                status=worst([grade.status for grade in grades]),
                grades=grades,
                trace_id=trace.id if trace else None,
                duration_ms=(time.perf_counter() - started) * 1000,
            )
        )
        return trace

    async def _run_agent(self, prompt: str, history: list[Message]) -> _AgentReply:
        """Return the agent's trace; an agent that raises is called again as often as the case allows."""
        error: BaseException | None = None
        for _ in range(self.attempts):
            copy = [message.model_copy() for message in history]
            outcome = await call(_calling(self.agent, prompt, copy), self.timeout_s, is_async=is_async(self.agent))
            if outcome is None:
                message = f"Agent timed out after {self.timeout_s:g} s"
                return _AgentReply(None, GradeResult.failed_result("execution", message))
            error = outcome.error
            if error is None:
                return _answer(outcome.value, prompt)
        return _AgentReply(None, GradeResult.error_result("execution", f"Agent error: {error}"))


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _calling(agent: AgentFunction, prompt: str, history: list[Message]) -> Callable[[], Any | Awaitable[Any]]:
    """Return how to call an agent of one argument or of two."""
    try:
        inspect.signature(agent).bind(prompt, history)
    except TypeError:
        return lambda: agent(prompt)
    except ValueError:
        pass  # a function without a signature is called as evaldeck does
    return lambda: agent(prompt, history)


def _answer(value: Any, prompt: str) -> _AgentReply:
    if isinstance(value, str):
        return _AgentReply(Trace(input=prompt, output=value))
    if isinstance(value, Trace):
        return _AgentReply(value)
    fact = f"Agent error: it returned {type(value).__name__}; a waza.evaldeck.Trace or a text is needed"
    return _AgentReply(None, GradeResult.error_result("execution", fact))


class EvaluationRunner:
    """Runs the suites of a project: those given to it, else those its configuration names."""

    def __init__(self, config: EvaldeckConfig | None = None) -> None:
        self.config = config or EvaldeckConfig.load()

    def run(
        self,
        suites: list[EvalSuite] | None = None,
        agent_func: AgentFunction | None = None,
        tags: Iterable[str] | None = None,
        on_result: Listener | None = None,
        max_concurrent: int | None = None,
    ) -> RunResult:
        """Return the results of all suites; works under a running event loop too."""
        return wait_for(self.run_async(suites, agent_func, tags, on_result, max_concurrent))

    async def run_async(
        self,
        suites: list[EvalSuite] | None = None,
        agent_func: AgentFunction | None = None,
        tags: Iterable[str] | None = None,
        on_result: Listener | None = None,
        max_concurrent: int | None = None,
    ) -> RunResult:
        """Return the results of all suites, one after the other; raise UsageError when no case is left to run."""
        chosen = list(suites) if suites is not None else self._discover_suites()
        if tags is not None:
            chosen = [suite.filter_by_tags(list(tags)) for suite in chosen]
        if not any(suite.test_cases for suite in chosen):
            raise UsageError("no case to run: no suite has one, or none has the tags")
        agent = agent_func or self._load_agent_func()
        width = self.config.settings.workers if max_concurrent is None else max_concurrent
        evaluator = Evaluator(config=self.config)
        run = RunResult(started_at=datetime.now(), config=self.config.model_dump(mode="json"))
        for suite in chosen:
            run.suites.append(await evaluator.evaluate_suite_async(suite, agent, on_result, width))
        run.completed_at = datetime.now()
        return run

    def _discover_suites(self) -> list[EvalSuite]:
        if self.config.suites:
            found = [(EvalSuite.from_directory(suite.path, suite.name), suite.tags) for suite in self.config.suites]
            return [suite.model_copy(update={"tags": tags}) for suite, tags in found]
        return [EvalSuite.from_directory(self.config.test_dir)]

    def _load_agent_func(self) -> AgentFunction:
        agent = self.config.agent
        for problem in agent_problems(agent, Position()):
            raise UsageError(f"agent: {problem.message}")
        if not (agent.module and agent.function):
            raise UsageError("no agent: name agent.module and agent.function in evaldeck.yaml, or give agent_func")
        return find_function(f"{agent.module}:{agent.function}", SpecFolder(Path.cwd(), trust=True))
