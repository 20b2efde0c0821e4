"""evaldeck's graders by name: its arguments and messages over waza's graders. No check is made here."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import ValidationError

from waza.errors import validation_fact
from waza.evaldeck.graders.base import BaseGrader
from waza.evaldeck.results import GradeResult
from waza.evaldeck.trace import as_waza
from waza.graders.base import GRADERS, Grader
from waza.model import Grade, Trace

WithMessage = tuple[str, Any, Any, dict[str, Any]]
"""A message, what was expected, what there was, and details."""


class CodeGrader(BaseGrader):
    """A check that needs one value: the constructor's, else what the case expects; without either it is an ERROR.

    A value that could not be checked, or by which nothing could fail, is refused by the constructor.
    """

    type: ClassVar[str]
    option: ClassVar[str]
    key: ClassVar[str]
    """Where the case's first turn says the value."""
    nothing: ClassVar[str]
    """The message where there is nothing to check."""

    def __init__(self, value: Any = None) -> None:
        setattr(self, self.option, value)
        self.refuse_unchecked()

    def refuse_unchecked(self) -> None:
        """Raise ValueError for a value of the constructor's that waza's grader does not take."""
        own = getattr(self, self.option)
        if own is None:
            return
        try:
            self._made(own)
        except ValidationError as error:
            if not self.is_for_grading(error):
                raise ValueError(f"{type(self).__name__}: {self.refused(error)}") from None

    def is_for_grading(self, error: ValidationError) -> bool:
        """Say whether a wrong value is an ERROR of each grade, and not of the constructor."""
        return False

    def wanted(self, test_case: Any) -> Any:
        """Return the value to check, or None."""
        own = getattr(self, self.option)
        if own is not None:
            return own
        turns = getattr(test_case, "turns", None)
        expected = turns[0].expected if turns else None
        return getattr(expected, self.key, None)

    def options(self) -> dict[str, Any]:
        """Return what the check needs beside the value."""
        return {}

    def grade(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the verdict."""
        wanted = self.wanted(test_case)
        if wanted is None:
            hint = f"give {self.option}=, or {self.key} in the case's expected"
            return GradeResult.error_result(self.name, f"{self.nothing}; {hint}")
        try:
            grader = self._made(wanted)
        except ValidationError as error:
            return GradeResult.error_result(self.name, self.refused(error))
        seen = as_waza(trace)
        grade = grader.grade(seen)
        if grade.status == "error":
            return GradeResult.error_result(self.name, grade.feedback)
        message, expected, actual, details = self.told(wanted, seen, grade)
        if grade.passed:
            return GradeResult.passed_result(self.name, message)
        return GradeResult.failed_result(self.name, message, expected, actual, details=details)

    def _made(self, wanted: Any) -> Grader:
        """Return waza's grader for a value; the last one is kept, as most graders are used for many traces."""
        options = {self.option: list(wanted) if isinstance(wanted, list | tuple) else wanted} | self.options()
        kept: tuple[dict[str, Any], Grader] | None = getattr(self, "_kept", None)
        if kept is None or kept[0] != options:
            kept = self._kept = options, GRADERS.load(self.type)(**options)
        return kept[1]

    async def grade_async(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the verdict; it takes no time, so no thread is needed."""
        return self.grade(trace, test_case)

    def refused(self, error: ValidationError) -> str:
        """Return a sentence about a value that cannot be checked."""
        first = error.errors()[0]
        index = next((f"[{step}]" for step in first["loc"] if isinstance(step, int)), "")
        return f"Invalid {self.option}{index}: {validation_fact(first)}"

    def told(self, wanted: Any, trace: Trace, grade: Grade) -> WithMessage:
        """Return the message, what was expected, what there was, and details."""
        raise NotImplementedError


def _wrong(wanted: list[str], grade: Grade) -> list[str]:
    """Return the values whose check did not hold; there is one check a value."""
    return [value for value, check in zip(wanted, grade.checks, strict=True) if not check.ok]


def _shown(output: str) -> str | None:
    return output or None


class _OutputGrader(CodeGrader):
    """A check of the output; there is no other field to look at."""

    def _only_output(self, field: Any) -> None:
        if field != "output":
            raise ValueError(f"field is {field!r}; only 'output' can be checked")
        self.field = field


class _ValuesGrader(_OutputGrader):
    option = "values"
    nothing = "No values to check"
    values: list[str] | None

    def __init__(
        self, values: list[str] | None = None, field: str | bool = "output", case_sensitive: bool = False
    ) -> None:
        if isinstance(field, bool):  # the documentation has case_sensitive in the second place
            case_sensitive, field = field, "output"
        self._only_output(field)
        self.case_sensitive = case_sensitive
        CodeGrader.__init__(self, values)

    def options(self) -> dict[str, Any]:
        return {"case_sensitive": self.case_sensitive}


class ContainsGrader(_ValuesGrader):
    """The output contains every value."""

    name = "contains"
    type = "contains"
    key = "output_contains"

    def told(self, wanted: list[str], trace: Trace, grade: Grade) -> WithMessage:
        """Return the message, what was expected, what there was, and what is missing."""
        if grade.passed:
            return f"All {len(wanted)} values found in output", None, None, {}
        missing = _wrong(wanted, grade)
        return f"Missing values in output: {missing}", wanted, _shown(trace.output), {"missing": missing}


class NotContainsGrader(_ValuesGrader):
    """The output contains none of the values."""

    name = "not_contains"
    type = "not_contains"
    key = "output_not_contains"

    def told(self, wanted: list[str], trace: Trace, grade: Grade) -> WithMessage:
        """Return the message, what was expected, what there was, and what should not be there."""
        if grade.passed:
            return "No forbidden values found", None, None, {}
        found = _wrong(wanted, grade)
        message = f"Forbidden values found in output: {found}"
        return message, f"None of: {wanted}", _shown(trace.output), {"forbidden": found}


class EqualsGrader(_OutputGrader):
    """The output is a text, white space apart."""

    name = "equals"
    type = "equals"
    option = "expected"
    key = "output_equals"
    nothing = "No expected value to check"
    expected: str | None

    def __init__(
        self,
        expected: str | None = None,
        field: str | bool = "output",
        normalize_whitespace: bool = True,
        *,
        strip_whitespace: bool | None = None,
    ) -> None:
        if isinstance(field, bool):  # the documentation has strip_whitespace in the second place
            strip_whitespace, field = field, "output"
        self._only_output(field)
        self.normalize_whitespace = normalize_whitespace if strip_whitespace is None else strip_whitespace
        CodeGrader.__init__(self, expected)

    def options(self) -> dict[str, Any]:
        """Return how white space is taken."""
        return {"strip_whitespace": self.normalize_whitespace}

    def told(self, wanted: str, trace: Trace, grade: Grade) -> WithMessage:
        """Return the message and both texts as they were compared."""
        if grade.passed:
            return "Output matches expected", None, None, {}
        pair = (wanted, trace.output)
        if self.normalize_whitespace:
            pair = (" ".join(wanted.split()), " ".join(trace.output.split()))
        return "Output does not match expected", *pair, {}


class RegexGrader(_OutputGrader):
    """A pattern for Python's `re` matches somewhere in the output."""

    name = "regex"
    type = "matches"
    option = "pattern"
    key = "output_matches"
    nothing = "No pattern to check"
    pattern: str | None

    def __init__(self, pattern: str | None = None, field: str | int = "output", flags: int = 0) -> None:
        if isinstance(field, int):  # the documentation has flags in the second place
            flags, field = field, "output"
        self._only_output(field)
        self.flags = flags
        CodeGrader.__init__(self, pattern)

    def is_for_grading(self, error: ValidationError) -> bool:
        """Say whether the pattern is a broken one, which evaldeck tells of in the grade."""
        return "not a valid pattern" in str(error.errors()[0]["msg"])

    def options(self) -> dict[str, Any]:
        """Return the flags."""
        return {"flags": int(self.flags)}

    def refused(self, error: ValidationError) -> str:
        """Return why the pattern cannot be used."""
        reason = str(error.errors()[0]["msg"]).removeprefix("Value error, ").removeprefix("not a valid pattern: ")
        return f"Invalid regex: {reason}"

    def told(self, wanted: str, trace: Trace, grade: Grade) -> WithMessage:
        """Return the message, the pattern and the output."""
        if grade.passed:
            return f"Output matches pattern: {wanted}", None, None, {}
        return f"Output does not match pattern: {wanted}", wanted, trace.output, {}


def _called(trace: Trace) -> list[str]:
    return [event.tool_name for event in trace.tool_events or [] if event.tool_name]


class ToolCalledGrader(CodeGrader):
    """Every tool was called at least once."""

    name = "tool_called"
    type = "tool_called"
    option = "required"
    key = "tools_called"
    nothing = "No required tools to check"
    required: list[str] | None

    def __init__(self, required: list[str] | None = None) -> None:
        super().__init__(required)

    def told(self, wanted: list[str], trace: Trace, grade: Grade) -> WithMessage:
        """Return the message, what was expected, what was called, and what is missing."""
        if grade.passed:
            return f"All {len(wanted)} required tools were called", None, None, {}
        missing = sorted(set(_wrong(wanted, grade)))
        message = f"Required tools not called: {missing}"
        return message, wanted, sorted(set(_called(trace))), {"missing": missing}


class ToolNotCalledGrader(CodeGrader):
    """None of the tools was called."""

    name = "tool_not_called"
    type = "tool_not_called"
    option = "forbidden"
    key = "tools_not_called"
    nothing = "No forbidden tools to check"
    forbidden: list[str] | None

    def __init__(self, forbidden: list[str] | None = None) -> None:
        super().__init__(forbidden)

    def told(self, wanted: list[str], trace: Trace, grade: Grade) -> WithMessage:
        """Return the message, what was expected, what was called, and what should not have been."""
        if grade.passed:
            return "No forbidden tools were called", None, None, {}
        found = sorted(set(_wrong(wanted, grade)))
        message = f"Forbidden tools were called: {found}"
        return message, f"None of: {sorted(wanted)}", sorted(set(_called(trace))), {"forbidden": found}


class ToolOrderGrader(CodeGrader):
    """The tools were called in this order; others may stand in between."""

    name = "tool_order"
    type = "tool_order"
    option = "expected_order"
    key = "tool_call_order"
    nothing = "No expected order to check"
    expected_order: list[str] | None

    def __init__(self, expected_order: list[str] | None = None) -> None:
        super().__init__(expected_order)

    def told(self, wanted: list[str], trace: Trace, grade: Grade) -> WithMessage:
        """Return the message and both orders."""
        if grade.passed:
            return "Tools called in correct order", None, None, {}
        return "Tools not called in expected order", wanted, _called(trace), {}


class _LimitGrader(CodeGrader):
    """There is no more of something than this."""

    sentence: ClassVar[str]
    noun: ClassVar[str]

    def count(self, trace: Trace) -> int | None:
        """Return how many there are."""
        raise NotImplementedError

    def told(self, wanted: int, trace: Trace, grade: Grade) -> WithMessage:
        """Return the message and both numbers."""
        actual = self.count(trace)
        if grade.passed:
            return f"{self.sentence.format(actual)} (max: {wanted})", None, None, {}
        return f"Too many {self.noun}: {actual} > {wanted}", wanted, actual, {}


class MaxStepsGrader(_LimitGrader):
    """There are no more steps than this."""

    name = type = option = key = "max_steps"
    nothing = "No max steps defined"
    max_steps: int | None
    sentence, noun = "Completed in {} steps", "steps"

    def __init__(self, max_steps: int | None = None) -> None:
        super().__init__(max_steps)

    def count(self, trace: Trace) -> int | None:
        """Return how many steps there are, of all kinds."""
        return trace.steps


class MaxToolCallsGrader(_LimitGrader):
    """There are no more tool calls than this."""

    name = type = option = key = "max_tool_calls"
    nothing = "No max tool calls defined"
    max_tool_calls: int | None
    sentence, noun = "Made {} tool calls", "tool calls"

    def __init__(self, max_tool_calls: int | None = None) -> None:
        super().__init__(max_tool_calls)

    def count(self, trace: Trace) -> int | None:
        """Return how many tool calls there are, those without a name too."""
        return len(trace.tool_events or [])


class MaxLLMCallsGrader(_LimitGrader):
    """There are no more calls of a model than this."""

    name = type = option = key = "max_llm_calls"
    nothing = "No max LLM calls defined"
    max_llm_calls: int | None
    sentence, noun = "Made {} LLM calls", "LLM calls"

    def __init__(self, max_llm_calls: int | None = None) -> None:
        super().__init__(max_llm_calls)

    def count(self, trace: Trace) -> int | None:
        """Return how many calls of a model there are."""
        return trace.usage.llm_calls if trace.usage else None


class TaskCompletedGrader(CodeGrader):
    """The agent ended with success and an answer, or, with `require_success=False`, did not."""

    name = type = "task_completed"
    option = "require_success"
    key = "task_completed"
    require_success: bool | None

    def __init__(self, require_success: bool | None = None) -> None:
        super().__init__(require_success)

    def wanted(self, test_case: Any) -> Any:
        """Return whether success is wanted: it is, unless something else is said."""
        found = super().wanted(test_case)
        return True if found is None else found

    def told(self, wanted: bool, trace: Trace, grade: Grade) -> WithMessage:
        """Return the message and how the agent ended."""
        if grade.passed:
            done = "Task completed successfully"
            return done if wanted else "Task correctly did not complete (as expected)", None, None, {}
        if not wanted:
            return "Task completed but was expected to fail", "not completed", "completed", {}
        message = f"Task not completed. Status: {trace.status}, Output: {bool(trace.output)}"
        return message, "completed", f"status={trace.status}", {}
