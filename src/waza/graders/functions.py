"""A grader from a plain function: `@waza.grader`. Its parameters after the trace are its options."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Self, get_type_hints, overload

from pydantic import Field, create_model

from waza.errors import Undecidable
from waza.graders.base import WRAPPER, Finding, Grader
from waza.model import Check, Grade, Trace

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
