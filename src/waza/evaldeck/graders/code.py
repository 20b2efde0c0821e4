"""evaldeck's graders that need no judge: its arguments and messages over waza's graders. No check is implemented here.

Each class is one entry of a table: which grader of waza's decides (`type`), by which option, which key of a case gives
the value where the constructor does not, and the message for each verdict.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import Any, ClassVar

from pydantic import ValidationError

from waza.errors import validation_fact, what
from waza.evaldeck.graders.base import BaseGrader
from waza.evaldeck.results import GradeResult, GradeStatus
from waza.evaldeck.trace import as_waza
from waza.graders.base import GRADERS, Grader
from waza.model import Grade, Trace
from waza.process.concurrency import wait_for

Report = tuple[str, Any, Any, dict[str, Any]]
"""A message, the expected value, the actual value, and details."""


class CodeGrader(BaseGrader):
    """A check that needs one value: the constructor's, else what the case expects; without either it is an ERROR.

    The constructor refuses a value that cannot be checked, or with which the check could not fail.
    """

    type: ClassVar[str]
    """The type of waza's grader."""
    option: ClassVar[str]
    """The option that takes the value, here and there."""
    key: ClassVar[str]
    """The key in the `expected` of a case's first turn that has the value."""
    no_value: ClassVar[str] = ""
    """The message where there is nothing to check."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value of the constructor's that waza's grader does not take."""
        value = getattr(self, self.option)
        if value is None:
            return
        try:
            self._grader_for(value)
        except ValidationError as error:
            if not self.is_error_of_grade(error):
                raise ValueError(f"{type(self).__name__}: {self.invalid(error)}") from None

    def is_error_of_grade(self, error: ValidationError) -> bool:
        """Return whether an invalid value makes each grade an ERROR, instead of the constructor raise."""
        return False

    def value_for(self, test_case: Any) -> Any:
        """Return the value to check, or None."""
        own = getattr(self, self.option)
        if own is not None:
            return own
        turns = getattr(test_case, "turns", None)
        expected = turns[0].expected if turns else None
        return getattr(expected, self.key, None)

    def options(self) -> dict[str, Any]:
        """Return the options of waza's grader besides the value."""
        return {}

    def grade(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the verdict."""
        value = self.value_for(test_case)
        if value is None:
            hint = f"give {self.option}=, or {self.key} in the case's expected"
            return GradeResult.error_result(self.name, f"{self.no_value}; {hint}")
        try:
            grader = self._grader_for(value)
        except ValidationError as error:
            return GradeResult.error_result(self.name, self.invalid(error))
        own_trace = as_waza(trace)
        grade = grader.grade(own_trace)
        if grade.status == "error":
            return GradeResult.error_result(self.name, grade.feedback)
        message, expected, actual, details = self.report(value, own_trace, grade)
        if grade.passed:
            return GradeResult.passed_result(self.name, message)
        return GradeResult.failed_result(self.name, message, expected, actual, details=details)

    def _grader_for(self, value: Any) -> Grader:
        """Return waza's grader for a value; the last one is reused, as most graders grade many traces."""
        options = {self.option: list(value) if isinstance(value, list | tuple) else value} | self.options()
        last: tuple[dict[str, Any], Grader] | None = getattr(self, "_last", None)
        if last is None or last[0] != options:
            last = self._last = options, GRADERS.load(self.type)(**options)
        return last[1]

    async def grade_async(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the verdict; it takes no time, so no thread is needed."""
        return self.grade(trace, test_case)

    def invalid(self, error: ValidationError) -> str:
        """Return the message for a value that cannot be checked."""
        first = error.errors()[0]
        index = next((f"[{step}]" for step in first["loc"] if isinstance(step, int)), "")
        return f"Invalid {self.option}{index}: {validation_fact(first)}"

    def report(self, value: Any, trace: Trace, grade: Grade) -> Report:
        """Return the message, the expected value, the actual value, and details."""
        raise NotImplementedError


def _failed(values: list[str], grade: Grade) -> list[str]:
    """Return the values whose check failed; there is one check a value."""
    return [value for value, check in zip(values, grade.checks, strict=True) if not check.ok]


def _tools_called(trace: Trace) -> list[str]:
    return [event.tool_name for event in trace.tool_events or [] if event.tool_name]


def _require_output(field: Any) -> None:
    if field != "output":
        raise ValueError(f"field is {field!r}; only 'output' can be checked")


@dataclass(eq=False)
class _ValuesGrader(CodeGrader):
    option = "values"
    no_value = "No values to check"

    values: list[str] | None = None
    field: str | bool = "output"
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.field, bool):  # the documentation has case_sensitive in the second place
            self.case_sensitive, self.field = self.field, "output"
        _require_output(self.field)
        super().__post_init__()

    def options(self) -> dict[str, Any]:
        return {"case_sensitive": self.case_sensitive}


class ContainsGrader(_ValuesGrader):
    """The output contains every value."""

    name = type = "contains"
    key = "output_contains"

    def report(self, value: list[str], trace: Trace, grade: Grade) -> Report:
        """Return the message, the values, the output, and what is missing."""
        if grade.passed:
            return f"All {len(value)} values found in output", None, None, {}
        missing = _failed(value, grade)
        return f"Missing values in output: {missing}", value, trace.output or None, {"missing": missing}


class NotContainsGrader(_ValuesGrader):
    """The output contains none of the values."""

    name = type = "not_contains"
    key = "output_not_contains"

    def report(self, value: list[str], trace: Trace, grade: Grade) -> Report:
        """Return the message, the values, the output, and which values are in it."""
        if grade.passed:
            return "No forbidden values found", None, None, {}
        forbidden = _failed(value, grade)
        message = f"Forbidden values found in output: {forbidden}"
        return message, f"None of: {value}", trace.output or None, {"forbidden": forbidden}


@dataclass(eq=False)
class EqualsGrader(CodeGrader):
    """The output equals a text, white space apart."""

    name = type = "equals"
    option, key = "expected", "output_equals"
    no_value = "No expected value to check"

    expected: str | None = None
    field: str | bool = "output"
    normalize_whitespace: bool = True
    strip_whitespace: InitVar[bool | None] = None

    def __post_init__(self, strip_whitespace: bool | None) -> None:
        if isinstance(self.field, bool):  # the documentation has strip_whitespace in the second place
            strip_whitespace, self.field = self.field, "output"
        if strip_whitespace is not None:
            self.normalize_whitespace = strip_whitespace
        _require_output(self.field)
        super().__post_init__()

    def options(self) -> dict[str, Any]:
        """Return how white space is compared."""
        return {"strip_whitespace": self.normalize_whitespace}

    def report(self, value: str, trace: Trace, grade: Grade) -> Report:
        """Return the message and both texts as they were compared."""
        if grade.passed:
            return "Output matches expected", None, None, {}
        if self.normalize_whitespace:
            return "Output does not match expected", " ".join(value.split()), " ".join(trace.output.split()), {}
        return "Output does not match expected", value, trace.output, {}


@dataclass(eq=False)
class RegexGrader(CodeGrader):
    """A pattern for Python's `re` matches somewhere in the output: waza's `matches`, not its `regex`."""

    name, type = "regex", "matches"
    option, key = "pattern", "output_matches"
    no_value = "No pattern to check"

    pattern: str | None = None
    field: str | int = "output"
    flags: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.field, int):  # the documentation has flags in the second place
            self.flags, self.field = self.field, "output"
        _require_output(self.field)
        super().__post_init__()

    def is_error_of_grade(self, error: ValidationError) -> bool:
        """Return whether the pattern has a syntax error, which evaldeck reports in the grade."""
        return "not a valid pattern" in str(error.errors()[0]["msg"])

    def options(self) -> dict[str, Any]:
        """Return the flags."""
        return {"flags": int(self.flags)}

    def invalid(self, error: ValidationError) -> str:
        """Return why the pattern cannot be used."""
        reason = str(error.errors()[0]["msg"]).removeprefix("Value error, ").removeprefix("not a valid pattern: ")
        return f"Invalid regex: {reason}"

    def report(self, value: str, trace: Trace, grade: Grade) -> Report:
        """Return the message, the pattern and the output."""
        if grade.passed:
            return f"Output matches pattern: {value}", None, None, {}
        return f"Output does not match pattern: {value}", value, trace.output, {}


@dataclass(eq=False)
class ToolCalledGrader(CodeGrader):
    """Every tool was called at least once."""

    name = type = "tool_called"
    option, key = "required", "tools_called"
    no_value = "No required tools to check"

    required: list[str] | None = None

    def report(self, value: list[str], trace: Trace, grade: Grade) -> Report:
        """Return the message, the required tools, the called ones, and what is missing."""
        if grade.passed:
            return f"All {len(value)} required tools were called", None, None, {}
        missing = sorted(set(_failed(value, grade)))
        called = sorted(set(_tools_called(trace)))
        return f"Required tools not called: {missing}", value, called, {"missing": missing}


@dataclass(eq=False)
class ToolNotCalledGrader(CodeGrader):
    """None of the tools was called."""

    name = type = "tool_not_called"
    option, key = "forbidden", "tools_not_called"
    no_value = "No forbidden tools to check"

    forbidden: list[str] | None = None

    def report(self, value: list[str], trace: Trace, grade: Grade) -> Report:
        """Return the message, the forbidden tools, the called ones, and those that are both."""
        if grade.passed:
            return "No forbidden tools were called", None, None, {}
        found = sorted(set(_failed(value, grade)))
        called = sorted(set(_tools_called(trace)))
        return f"Forbidden tools were called: {found}", f"None of: {sorted(value)}", called, {"forbidden": found}


@dataclass(eq=False)
class ToolOrderGrader(CodeGrader):
    """The tools were called in this order, with any others in between."""

    name = type = "tool_order"
    option, key = "expected_order", "tool_call_order"
    no_value = "No expected order to check"

    expected_order: list[str] | None = None

    def report(self, value: list[str], trace: Trace, grade: Grade) -> Report:
        """Return the message and both orders."""
        if grade.passed:
            return "Tools called in correct order", None, None, {}
        return "Tools not called in expected order", value, _tools_called(trace), {}


class _LimitGrader(CodeGrader):
    passed_message: ClassVar[str]
    noun: ClassVar[str]

    def count(self, trace: Trace) -> int | None:
        raise NotImplementedError

    def report(self, value: int, trace: Trace, grade: Grade) -> Report:
        """Return the message and both numbers."""
        actual = self.count(trace)
        if grade.passed:
            return f"{self.passed_message.format(actual)} (max: {value})", None, None, {}
        return f"Too many {self.noun}: {actual} > {value}", value, actual, {}


@dataclass(eq=False)
class MaxStepsGrader(_LimitGrader):
    """There are at most this many steps."""

    name = type = option = key = "max_steps"
    no_value = "No max steps defined"
    passed_message, noun = "Completed in {} steps", "steps"

    max_steps: int | None = None

    def count(self, trace: Trace) -> int | None:
        """Return the number of steps of all kinds."""
        return trace.steps


@dataclass(eq=False)
class MaxToolCallsGrader(_LimitGrader):
    """There are at most this many tool calls."""

    name = type = option = key = "max_tool_calls"
    no_value = "No max tool calls defined"
    passed_message, noun = "Made {} tool calls", "tool calls"

    max_tool_calls: int | None = None

    def count(self, trace: Trace) -> int | None:
        """Return the number of tool calls, including those without a name."""
        return len(trace.tool_events or [])


@dataclass(eq=False)
class MaxLLMCallsGrader(_LimitGrader):
    """There are at most this many calls of a model."""

    name = type = option = key = "max_llm_calls"
    no_value = "No max LLM calls defined"
    passed_message, noun = "Made {} LLM calls", "LLM calls"

    max_llm_calls: int | None = None

    def count(self, trace: Trace) -> int | None:
        """Return the number of calls of a model."""
        return trace.usage.llm_calls if trace.usage else None


@dataclass(eq=False)
class TaskCompletedGrader(CodeGrader):
    """The agent ended with success and an answer, or, with `require_success=False`, did not."""

    name = type = key = "task_completed"
    option = "require_success"

    require_success: bool | None = None

    def value_for(self, test_case: Any) -> Any:
        """Return whether success is required; it is by default."""
        value = super().value_for(test_case)
        return True if value is None else value

    def report(self, value: bool, trace: Trace, grade: Grade) -> Report:
        """Return the message and how the agent ended."""
        if grade.passed:
            done = "Task completed successfully"
            return done if value else "Task correctly did not complete (as expected)", None, None, {}
        if not value:
            return "Task completed but was expected to fail", "not completed", "completed", {}
        message = f"Task not completed. Status: {trace.status}, Output: {bool(trace.output)}"
        return message, "completed", f"status={trace.status}", {}


class CustomGrader(BaseGrader):
    """A function of trace and case, plain or async; it returns a GradeResult, or True or False."""

    name = "custom"

    def __init__(
        self, func: Callable[..., Any] | None = None, module: str | None = None, function: str | None = None
    ) -> None:
        if func is not None and not callable(func):
            raise ValueError(f"CustomGrader: func must be a function of trace and case, found {what(func)}")
        if func is None and not (module and function):
            raise ValueError("CustomGrader needs a function: func=, or module= and function=")
        self.func = func
        self.module = module
        self.function = function

    def grade(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the function's verdict; what it raises is an ERROR."""
        return wait_for(self.grade_async(trace, test_case, in_thread=False))

    async def grade_async(self, trace: Any, test_case: Any = None, *, in_thread: bool = True) -> GradeResult:
        """Return the function's verdict; what it raises is an ERROR."""
        try:
            function = self._load()
            if in_thread and not inspect.iscoroutinefunction(function):
                returned = await asyncio.to_thread(function, trace, test_case)
            else:
                returned = function(trace, test_case)
            if inspect.isawaitable(returned):
                returned = await returned
        except Exception as error:  # noqa: BLE001  one broken grader must not discard the others
            return GradeResult.error_result(self.name, f"Custom grader error: {error}")
        return self._verdict(returned)

    def _load(self) -> Callable[..., Any]:
        if self.func is not None:
            return self.func
        function: Callable[..., Any] = getattr(importlib.import_module(str(self.module)), str(self.function))
        return function

    def _verdict(self, returned: Any) -> GradeResult:
        if isinstance(returned, GradeResult):
            return returned
        if isinstance(returned, bool):
            status = GradeStatus.PASS if returned else GradeStatus.FAIL
            return GradeResult(grader_name=self.name, status=status, message=f"the function returned {returned}")
        fact = f"it returned {type(returned).__name__}; a GradeResult, True or False is needed"
        return GradeResult.error_result(self.name, f"Custom grader error: {fact}")
