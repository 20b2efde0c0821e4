"""Graders that are made in Python or from other keys of a suite, not by a YAML `type`.

`CompositeGrader` combines several, `AfterTurnGrader` grades a conversation after one of its prompts, `MockCallsGrader`
counts the calls of a mock (`expect_calls`), and `@waza.grader` makes one from a plain function, whose parameters after
the trace are its options.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Self, get_type_hints, overload

from msgspec.structs import replace
from pydantic import Field, SerializeAsAny, create_model

from waza.errors import Undecidable
from waza.files.pinned import PinnedFiles
from waza.files.snapshot import SnapshotFiles, hash_files
from waza.graders.base import WRAPPER, Bound, Finding, Grader, Text
from waza.model import JSON, Check, Files, Grade, GradeStatus, Trace
from waza.runs.outcomes import merged_tool_facts
from waza.traces.conversation import join_turns


class CompositeGrader(Grader):
    """Check that all graders pass, or at least one of them.

    ```python
    CompositeGrader(graders=[ContainsGrader(values=["a"]), ToolCalledGrader(required=["b"])], require_all=False)
    ```
    """

    graders: Annotated[list[SerializeAsAny[Grader]], Field(min_length=1)]
    """The graders to combine."""
    require_all: bool = True
    """Whether all must pass, or one is enough."""

    @property
    def parts(self) -> Sequence[Grader]:
        """The combined graders."""
        return self.graders

    @property
    def waits(self) -> bool:  # type: ignore[override]
        """Whether any of them waits for another process."""
        return any(grader.waits for grader in self.graders)

    def unready(self) -> str:
        """Return the first reason why one of them could not grade here."""
        return next(filter(None, (grader.unready() for grader in self.graders)), "")

    def asks(self) -> list[str] | None:
        """Return the rubrics of those that ask a judge."""
        rubrics = [hashes for grader in self.graders if (hashes := grader.asks()) is not None]
        return [one for hashes in rubrics for one in hashes] if rubrics else None

    def pin(self, files: PinnedFiles) -> None:
        """Record the files of all of them."""
        for grader in self.graders:
            grader.pin(files)

    def reads(self) -> dict[str, str]:
        """Return the files that any of them reads."""
        return {name: digest for grader in self.graders for name, digest in grader.reads().items()}

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the combined verdict: of all graders, or of the best one."""
        return self._finding(trace, [grader.grade(trace, judge=judge) for grader in self.graders])

    async def aevaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return what `evaluate` returns, once every judge has answered."""
        return self._finding(
            trace, await asyncio.gather(*(grader.agrade(trace, judge=judge) for grader in self.graders))
        )

    def _finding(self, trace: Trace, grades: list[Grade]) -> Finding:
        checks = [check for grade in grades for check in _explaining_checks(grade)]
        about = self.details(trace, checks)
        about |= merged_tool_facts((grade.details for grade in grades), is_choice=not self.require_all)
        statuses = [grade.status for grade in grades]
        feedback = "; ".join(grade.feedback for grade in grades if not grade.passed) or self.all_passed
        if not self.require_all:
            status: GradeStatus = min(statuses, key=("passed", "error", "failed").index)
            return Finding(status, float(status == "passed"), feedback, checks, about)
        status = min(statuses, key=("failed", "error", "passed").index)
        score = 0.0 if status == "error" else sum(check.ok is True for check in checks) / len(checks)
        return Finding(status, score, feedback, checks, about)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return the names of the combined graders."""
        return {"graders": [grader.name or grader.type_name() for grader in self.graders], "all": self.require_all}


def _explaining_checks(grade: Grade) -> list[Check]:
    """Return a grade's checks, and one for the grade itself where they do not explain it."""
    oks = [check.ok for check in grade.checks]
    explained = {"passed": bool(oks) and all(oks), "failed": False in oks, "error": None in oks and False not in oks}
    if explained[grade.status]:
        return grade.checks
    ok = {"passed": True, "failed": False, "error": None}[grade.status]
    return [*grade.checks, Check(ok, f"{grade.name} passes", "" if ok else grade.feedback)]


class AfterTurnGrader(Grader):
    """Check what happened up to one of several prompts, or between it and the one before.

    The files are those of that moment, where they were stored: a run stores them for its checkpoints.
    """

    grader: SerializeAsAny[Grader]
    """What is checked."""
    turn: Annotated[int, Field(ge=1)]
    """After which prompt, counted from 1."""
    prompts: Annotated[int, Field(ge=1)]
    """How many prompts the conversation has; after the last one there is nothing to cut off."""
    is_alone: bool = False
    """Whether only this prompt's turn is graded, without those before it."""
    stops: bool = False
    """Whether the conversation ends here when this fails."""

    @property
    def parts(self) -> Sequence[Grader]:
        """The grader it is made of."""
        return [self.grader]

    @property
    def waits(self) -> bool:  # type: ignore[override]
        """Whether what is checked waits for another process."""
        return self.grader.waits

    def asks(self) -> list[str] | None:
        """Return what the grader asks a judge by."""
        return self.grader.asks()

    def pin(self, files: PinnedFiles) -> None:
        """Record the files of the inner grader."""
        self.grader.pin(files)

    def reads(self) -> dict[str, str]:
        """Return the files that the grader reads."""
        return self.grader.reads()

    def with_source(self, source: str) -> Self:
        """Return this grader with the inner one for a task with a source context."""
        inner = self.grader.with_source(source)
        return self if inner is self.grader else self.model_copy(update={"grader": inner})

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return what the grader finds in its part of the trace."""
        part = self.part(trace)
        return part if isinstance(part, Finding) else self._finding(self.grader.grade(part, judge=judge), trace)

    async def aevaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return what `evaluate` returns, once the grader's judge has answered."""
        part = self.part(trace)
        return part if isinstance(part, Finding) else self._finding(await self.grader.agrade(part, judge=judge), trace)

    def part(self, trace: Trace) -> Trace | Finding:
        """Return the conversation as it was then, or a finding where it did not get there."""
        if self.prompts == 1:
            return trace
        if trace.turns is None:
            if self.turn == self.prompts and not self.is_alone and trace.status == "success":
                return trace
            raise Undecidable("the turns of the conversation were not recorded: this engine does not separate them")
        if len(trace.turns) < self.turn:
            return self._not_reached(trace, len(trace.turns))
        turns = trace.turns[: self.turn]
        part = turns[-1] if self.is_alone else join_turns([turn.input for turn in turns], turns)
        part = replace(part, files=self._files(trace, len(trace.turns)), files_before=self._files_before(trace))
        return replace(part, extra=part.extra | trace.extra) if self.asks() is not None else part

    def _files(self, trace: Trace, last: int) -> Files | None:
        if self.turn == last:
            return trace.files
        return trace.files.after_turn(self.turn) if isinstance(trace.files, SnapshotFiles) else None

    def _files_before(self, trace: Trace) -> dict[str, str] | None:
        """Return the files as they were before the first of the graded prompts, where that was stored."""
        if not self.is_alone or self.turn == 1 or not self.needs_files_before:
            return trace.files_before
        before = trace.files.after_turn(self.turn - 1) if isinstance(trace.files, SnapshotFiles) else None
        return hash_files(before) if before is not None else None

    def _not_reached(self, trace: Trace, last: int) -> Finding:
        why = trace.error or f"the agent ended with {trace.status} in turn {last}"
        fact = f"turn {self.turn} was not reached: {why}"
        return Finding("failed", 0.0, fact, [Check(False, f"turn {self.turn} is reached", fact)], {"turn": self.turn})

    def _finding(self, grade: Grade, trace: Trace) -> Finding:
        about: dict[str, JSON] = {"turn": self.turn} | self._places_in_all(grade.details, trace)
        feedback = grade.feedback
        if self.stops and grade.status == "failed" and self.turn == len(trace.turns or ()) < self.prompts:
            about["stopped"] = True
            feedback += f"; the conversation was stopped here, after turn {self.turn} of {self.prompts}"
        return Finding(grade.status, grade.score, feedback, grade.checks, grade.details | about)

    def _places_in_all(self, details: dict[str, JSON], trace: Trace) -> dict[str, JSON]:
        """Return `argument_calls` and the calls of `effects` with indexes in the whole conversation."""
        stated, effects = details.get("argument_calls"), details.get("effects")
        if not self.is_alone:
            return {}
        before = sum(len(turn.tool_events or []) for turn in (trace.turns or [])[: self.turn - 1])
        found: dict[str, JSON] = {}
        if isinstance(stated, dict):
            found["argument_calls"] = {key: [before + place for place in places] for key, places in stated.items()}
        if isinstance(effects, list):
            found["effects"] = [
                effect if effect["call"] is None else effect | {"call": before + effect["call"]} for effect in effects
            ]
        return found


class MockCallsGrader(Grader):
    """Check how often a mocked program, or a tool of a mocked MCP server, was called."""

    command: Text | None = None
    """The program."""
    server: Text | None = None
    """The server."""
    tool: Text | None = None
    """Its tool."""
    expect_calls: Bound
    """How often it must be called, exactly."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one claim."""
        wanted = {"command": self.command} if self.command else {"server": self.server, "tool": self.tool}
        calls = _calls(trace)
        count = sum(all(call.get(key) == value for key, value in wanted.items()) for call in calls)
        calls_of = f"calls of the mock of {self.command or f'{self.server}.{self.tool}'}"
        claim = f"{calls_of}: {self.expect_calls}"
        yield Check(count == self.expect_calls, claim, f"{calls_of}: {count}, expected {self.expect_calls}")


def _calls(trace: Trace) -> list[dict[str, JSON]]:
    mocks = trace.outcome.get("mocks")
    calls = mocks.get("calls") if isinstance(mocks, dict) else None
    if not isinstance(calls, list):
        raise Undecidable("calls of mocks were not recorded: this engine does not use them")
    return [call for call in calls if isinstance(call, dict)]


_RETURNS = "True or False, a score from 0 to 1, a Check, several Checks, or a Grade"


class FunctionGrader(Grader):
    """Check a trace with a function."""

    function: ClassVar[Callable[..., Any]]
    kind: ClassVar[str]
    claim: ClassVar[str]
    pass_at: ClassVar[float]

    @classmethod
    def type_name(cls) -> str:
        """Return the function's name."""
        return cls.kind

    def __call__(self, **options: Any) -> Self:
        """Return the grader with some of its options, or its name or weight, changed."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**given | options)

    def checks(self, trace: Trace) -> list[Check]:
        """Return the function's result as checks."""
        options = {name: getattr(self, name) for name in type(self).model_fields if name not in WRAPPER}
        return _checks(type(self).function(trace, **options), type(self))

    def verdict(self, trace: Trace, checks: list[Check]) -> tuple[float, bool]:
        """Return the score the function gave, or the share of checks that passed."""
        if isinstance(checks, _ScoredCheck):
            return checks.score, checks[0].ok is True
        return super().verdict(trace, checks)

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the Grade the function gave, or what its checks come to."""
        found = super().evaluate(trace, judge)
        return found.checks.finding if isinstance(found.checks, _GivenVerdict) else found


class _ScoredCheck(list[Check]):
    """One check, made from a score."""

    __slots__ = ("score",)

    def __init__(self, check: Check, score: float) -> None:
        super().__init__([check])
        self.score = score


class _GivenVerdict(list[Check]):
    """A verdict that is used as it is."""

    __slots__ = ("finding",)

    def __init__(self, grade: Grade) -> None:
        super().__init__([Check(None, "a verdict is given")])
        self.finding = Finding(grade.status, grade.score, grade.feedback, grade.checks, grade.details)


def _checks(returned: Any, grader: type[FunctionGrader]) -> list[Check]:
    """Return what a function gave back as checks; raise Undecidable when it is nothing of that kind."""
    claim = grader.claim
    if isinstance(returned, Grade):
        return _GivenVerdict(_valid(returned, grader))
    if isinstance(returned, bool):
        return [Check(returned, claim, "" if returned else f"not so: {claim}")]
    if isinstance(returned, int | float):
        return _scored(float(returned), claim, grader)
    several = isinstance(returned, Iterable) and not isinstance(returned, str | bytes | dict)
    found = list(returned) if several else [returned]
    wrong = [item for item in found if not isinstance(item, Check)]
    if wrong:
        raise Undecidable(f"{grader.kind} returned {type(wrong[0]).__name__}; a grader returns {_RETURNS}")
    odd = [check.ok for check in found if not (check.ok is None or isinstance(check.ok, bool))]
    if odd:
        raise Undecidable(f"{grader.kind} returned a Check whose ok is {odd[0]!r}; it is True, False or None")
    return found


def _valid(grade: Grade, grader: type[FunctionGrader]) -> Grade:
    is_number = isinstance(grade.score, int | float) and not isinstance(grade.score, bool)
    if grade.status not in ("passed", "failed", "error") or not is_number or not 0 <= grade.score <= 1:
        given = f"status {grade.status!r} and score {grade.score!r}"
        raise Undecidable(f"{grader.kind} returned a Grade with {given}; one of passed, failed, error, and 0 to 1")
    return grade


def _scored(score: float, claim: str, grader: type[FunctionGrader]) -> list[Check]:
    if not (math.isfinite(score) and 0 <= score <= 1):
        raise Undecidable(f"{grader.kind} returned the score {score}, which is not between 0 and 1")
    if score >= grader.pass_at:
        return _ScoredCheck(Check(True, claim), score)
    failure = f"{claim}: {score:g}, needs {grader.pass_at:g}"
    return _ScoredCheck(Check(False, claim, failure, grader.pass_at, score), score)


@overload
def grader(function: Callable[..., Any], /) -> FunctionGrader: ...
@overload
def grader(
    *, name: str = "", weight: float = 1.0, pass_at: float = 1.0
) -> Callable[[Callable[..., Any]], FunctionGrader]: ...
def grader(
    function: Callable[..., Any] | None = None, /, *, name: str = "", weight: float = 1.0, pass_at: float = 1.0
) -> Any:
    """Make a grader of a function that takes a trace and returns a verdict.

    ```python
    @waza.grader
    def short(trace, limit: int = 100):
        "The answer is short."
        return len(trace.output.split()) <= limit

    waza.grade(trace, [short, short(limit=20)])
    ```

    It returns True or False, a score from 0 to 1 (which passes at `pass_at`), a Check, several of them, or a Grade;
    anything else, and whatever it raises, is an error. Parameters after the trace are options and have a default.
    """
    if function is None:
        return lambda function: _build(function, name, weight, pass_at)
    return _build(function, name, weight, pass_at)


def _build(function: Callable[..., Any], name: str, weight: float, pass_at: float) -> FunctionGrader:
    kind = function.__name__
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{kind}: a grader is a plain function, not an async one")
    doc = inspect.getdoc(function) or ""
    cls = create_model(
        "".join(part.capitalize() for part in kind.split("_")) + "Grader",
        __base__=FunctionGrader,
        __module__=function.__module__,
        __doc__=doc or f"Check what {kind} says.",
        name=(str, name or kind),
        weight=(Annotated[float, Field(ge=0, allow_inf_nan=False)], weight),
        **_options(function),
    )
    cls.function, cls.kind, cls.pass_at = staticmethod(function), kind, pass_at
    cls.claim = doc.split("\n")[0].rstrip(".") or f"{kind} passes"
    return cls()


def _options(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters after the trace as fields: type and default."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise TypeError(f"{function.__name__}: a grader takes the trace")
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001  annotations that cannot be read only cost the check of types
        hints = {}
    fields: dict[str, Any] = {}
    for parameter in parameters[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name in WRAPPER:
            raise TypeError(f"{function.__name__}: '{parameter}' cannot be an option of a grader")
        if parameter.default is parameter.empty:
            raise TypeError(f"{function.__name__}: option '{parameter.name}' needs a default")
        guess = Any if parameter.default is None else type(parameter.default)
        fields[parameter.name] = (hints.get(parameter.name, guess), parameter.default)
    return fields
