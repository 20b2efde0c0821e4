"""evaldeck's graders under the alias: verdicts, messages, arguments, and where the expectation comes from."""

import asyncio
import re

import pytest
from evaldeck.graders import (
    BaseGrader,
    CompositeGrader,
    ContainsGrader,
    CustomGrader,
    EqualsGrader,
    MaxLLMCallsGrader,
    MaxStepsGrader,
    MaxToolCallsGrader,
    NotContainsGrader,
    RegexGrader,
    TaskCompletedGrader,
    ToolCalledGrader,
    ToolNotCalledGrader,
    ToolOrderGrader,
)
from evaldeck.results import GradeResult, GradeStatus

from evaldeck import EvalCase, ExpectedBehavior, Step, Trace, Turn


def case(**expected):
    return EvalCase(name="case", turns=[Turn(user="ask", expected=ExpectedBehavior(**expected))])


def trace(*steps, output="Hello world, this is a test", **more):
    made = Trace(input="ask", output=output, **more)
    for step in steps:
        made.add_step(Step.tool_call(step) if isinstance(step, str) else step)
    return made


MODEL = Step.llm_call("m", "in", "out")


def test_contains_passes_when_all_values_are_there():
    result = ContainsGrader().grade(trace(), case(output_contains=["hello", "test"]))
    assert result.status == GradeStatus.PASS
    assert result.message == "All 2 values found in output"


def test_contains_names_the_value_that_is_missing():
    result = ContainsGrader().grade(trace(), case(output_contains=["hello", "goodbye"]))
    assert result.status == GradeStatus.FAIL
    assert "goodbye" in result.message.lower()
    assert result.message == "Missing values in output: ['goodbye']"
    assert (result.expected, result.actual) == (["hello", "goodbye"], "Hello world, this is a test")


def test_contains_ignores_case_unless_told_otherwise():
    assert ContainsGrader(values=["HELLO"]).grade(trace(), case()).status == GradeStatus.PASS
    assert ContainsGrader(values=["HELLO"], case_sensitive=True).grade(trace(), case()).status == GradeStatus.FAIL


def test_the_constructor_wins_over_the_case():
    result = ContainsGrader(values=["absent"]).grade(trace(), case(output_contains=["hello"]))
    assert result.status == GradeStatus.FAIL


def test_tool_called_in_any_order_with_others_in_between():
    result = ToolCalledGrader().grade(trace("book", "extra", "search"), case(tools_called=["search", "book"]))
    assert result.status == GradeStatus.PASS
    assert result.message == "All 2 required tools were called"


def test_tool_called_names_what_is_missing():
    result = ToolCalledGrader().grade(trace("search"), case(tools_called=["search", "book"]))
    assert result.status == GradeStatus.FAIL
    assert "book" in str(result.expected)
    assert result.message == "Required tools not called: ['book']"
    assert result.actual == ["search"]


def test_tool_not_called():
    clean = ToolNotCalledGrader().grade(trace("search"), case(tools_not_called=["delete"]))
    assert (clean.status, clean.message) == (GradeStatus.PASS, "No forbidden tools were called")
    called = ToolNotCalledGrader().grade(trace("delete"), case(tools_not_called=["delete"]))
    assert (called.status, called.message) == (GradeStatus.FAIL, "Forbidden tools were called: ['delete']")
    assert called.expected == "None of: ['delete']"


def test_max_steps():
    within = MaxStepsGrader().grade(trace(MODEL, "a"), case(max_steps=5))
    assert (within.status, within.message) == (GradeStatus.PASS, "Completed in 2 steps (max: 5)")
    above = MaxStepsGrader().grade(trace(*[MODEL] * 10), case(max_steps=5))
    assert (above.status, above.message) == (GradeStatus.FAIL, "Too many steps: 10 > 5")
    assert (above.expected, above.actual) == (5, 10)


MESSAGES = [
    (NotContainsGrader(["bye"]), "pass", "No forbidden values found"),
    (NotContainsGrader(["hello"]), "fail", "Forbidden values found in output: ['hello']"),
    (EqualsGrader("Hello   world, this is a test "), "pass", "Output matches expected"),
    (EqualsGrader("hello world, this is a test"), "fail", "Output does not match expected"),
    (RegexGrader("w.rld"), "pass", "Output matches pattern: w.rld"),
    (RegexGrader("W.RLD"), "fail", "Output does not match pattern: W.RLD"),
    (RegexGrader("W.RLD", flags=re.IGNORECASE), "pass", "Output matches pattern: W.RLD"),
    (ToolOrderGrader(["a", "c"]), "pass", "Tools called in correct order"),
    (ToolOrderGrader(["c", "a"]), "fail", "Tools not called in expected order"),
    (MaxToolCallsGrader(3), "pass", "Made 3 tool calls (max: 3)"),
    (MaxToolCallsGrader(0), "fail", "Too many tool calls: 3 > 0"),
    (MaxLLMCallsGrader(1), "pass", "Made 1 LLM calls (max: 1)"),
    (MaxLLMCallsGrader(0), "fail", "Too many LLM calls: 1 > 0"),
    (TaskCompletedGrader(), "pass", "Task completed successfully"),
    (TaskCompletedGrader(require_success=False), "fail", "Task completed but was expected to fail"),
]


@pytest.mark.parametrize(("grader", "status", "message"), MESSAGES, ids=[f"{m[0].name}-{m[1]}" for m in MESSAGES])
def test_messages(grader, status, message):
    result = grader.grade(trace(MODEL, "a", "b", "c"), case())
    assert (result.status, result.message) == (status, message)
    assert result.grader_name == grader.name


NOTHING = [
    (ContainsGrader, "No values to check"),
    (NotContainsGrader, "No values to check"),
    (EqualsGrader, "No expected value to check"),
    (RegexGrader, "No pattern to check"),
    (ToolCalledGrader, "No required tools to check"),
    (ToolNotCalledGrader, "No forbidden tools to check"),
    (ToolOrderGrader, "No expected order to check"),
    (MaxStepsGrader, "No max steps defined"),
    (MaxToolCallsGrader, "No max tool calls defined"),
    (MaxLLMCallsGrader, "No max LLM calls defined"),
]


@pytest.mark.parametrize(("grader", "message"), NOTHING)
def test_without_a_value_of_its_own_or_an_expectation_a_grader_is_undecided(grader, message):
    for given in (case(), EvalCase(name="no turns"), None):
        result = grader().grade(trace(), given)
        assert result.status == GradeStatus.ERROR and result.message.startswith(f"{message}; give {grader.option}=")


@pytest.mark.parametrize("status", ["failure", "error", "timeout"])
def test_task_completed_needs_success_and_an_answer(status):
    assert TaskCompletedGrader().grade(trace(output=None), case()).status == GradeStatus.FAIL
    result = TaskCompletedGrader().grade(trace(status=status), case(task_completed=True))
    assert result.status == GradeStatus.FAIL
    assert result.message == f"Task not completed. Status: {status}, Output: True"
    assert TaskCompletedGrader().grade(trace(status=status), case(task_completed=False)).status == GradeStatus.PASS


def test_the_documented_arguments_work_in_the_documented_places():
    assert ContainsGrader(["HELLO"], True).grade(trace(), case()).status == GradeStatus.FAIL
    assert NotContainsGrader(["HELLO"], True).grade(trace(), case()).status == GradeStatus.PASS
    assert EqualsGrader(" Hello", strip_whitespace=False).grade(trace(output="Hello"), None).status == GradeStatus.FAIL
    assert EqualsGrader(" Hello", False).grade(trace(output="Hello"), None).status == GradeStatus.FAIL
    assert RegexGrader("HELLO", re.I).grade(trace(), case()).status == GradeStatus.PASS
    assert RegexGrader("^world", "output", re.M).grade(trace(output="x\nworld"), None).status == GradeStatus.PASS
    with pytest.raises(ValueError, match="only 'output' can be checked"):
        ContainsGrader(["x"], field="input")


def test_a_broken_pattern_is_an_error_not_a_verdict():
    result = RegexGrader("(").grade(trace(), case())
    assert result.status == GradeStatus.ERROR
    assert result.message.startswith("Invalid regex")


EMPTY = [(kind, []) for kind, _ in NOTHING]
EMPTY += [(kind, [""]) for kind, _ in NOTHING] + [(kind, {}) for kind, _ in NOTHING]
EMPTY += [(kind, "abc") for kind, _ in NOTHING if kind not in (EqualsGrader, RegexGrader)]
EMPTY += [(kind, -1) for kind, _ in NOTHING] + [(kind, True) for kind, _ in NOTHING]
EMPTY += [(ContainsGrader, [1]), (RegexGrader, ""), (TaskCompletedGrader, "no"), (MaxStepsGrader, 1.5)]


@pytest.mark.parametrize(("kind", "value"), EMPTY, ids=lambda item: getattr(item, "__name__", repr(item)))
def test_a_constructor_refuses_what_could_not_be_checked(kind, value):
    with pytest.raises(ValueError, match=kind.__name__):
        kind(value)


def test_a_pattern_that_never_ends_is_an_error():
    result = RegexGrader("(a+)+$").grade(trace(output="a" * 60 + "!"), case())
    assert result.status == GradeStatus.ERROR


def test_an_explicit_empty_text_is_a_real_expectation():
    assert EqualsGrader("").grade(trace(), case(output_equals="Hello world, this is a test")).status == GradeStatus.FAIL


def test_an_unnamed_tool_call_counts_but_is_no_tool():
    unnamed = trace(Step(type="tool_call"))
    assert MaxToolCallsGrader(0).grade(unnamed, case()).status == GradeStatus.FAIL
    assert ToolCalledGrader(["a"]).grade(unnamed, case()).actual == []


def test_composite_needs_all():
    both = CompositeGrader([ContainsGrader(["hello"]), ContainsGrader(["absent"])])
    result = both.grade(trace(), case())
    assert result.status == GradeStatus.FAIL
    assert "1/2" in result.message


def test_composite_is_content_with_one():
    graders = [ContainsGrader(["hello"]), ContainsGrader(["absent"])]
    for either in (CompositeGrader(graders, require_all=False), CompositeGrader(graders, mode="any")):
        result = either.grade(trace(), case())
        assert (result.status, result.message) == (GradeStatus.PASS, "1/2 graders passed (require any)")


BROKEN = RegexGrader("(")
GOOD, BAD = ContainsGrader(["hello"]), ContainsGrader(["absent"])
TOGETHER = [
    ([GOOD, BROKEN], True, "error"),
    ([BAD, BROKEN], True, "fail"),
    ([GOOD, BROKEN], False, "pass"),
    ([BAD, BROKEN], False, "error"),
    ([BAD, BAD], False, "fail"),
]


@pytest.mark.parametrize(("graders", "require_all", "status"), TOGETHER)
def test_an_error_within_a_composite_is_never_taken_for_a_failure(graders, require_all, status):
    composite = CompositeGrader(graders, require_all)
    assert composite.grade(trace(), case()).status == status
    assert asyncio.run(composite.grade_async(trace(), case())).status == status


def test_a_composite_of_nothing_is_refused():
    with pytest.raises(ValueError, match="could not fail"):
        CompositeGrader([])


class Raises(BaseGrader):
    name = "raises"

    def grade(self, trace, test_case):
        raise RuntimeError("broken")


def test_a_grader_that_raises_within_a_composite_is_an_error_of_its_own():
    result = CompositeGrader([Raises(), GOOD], require_all=False).grade(trace(), case())
    assert result.status == GradeStatus.PASS
    assert "broken" in result.details["results"][0]["message"]


def verdict(trace, test_case):
    return GradeResult.passed_result("mine", f"seen {trace.output[:5]}")


async def verdict_later(trace, test_case):
    await asyncio.sleep(0)
    return verdict(trace, test_case)


@pytest.mark.parametrize("func", [verdict, verdict_later, lambda t, c: verdict_later(t, c)])
def test_a_custom_function_may_be_plain_or_async_from_plain_and_async_code(func):
    assert CustomGrader(func).grade(trace(), case()).message == "seen Hello"
    assert asyncio.run(CustomGrader(func).grade_async(trace(), case())).message == "seen Hello"

    async def under_a_loop():
        return CustomGrader(func).grade(trace(), case())

    assert asyncio.run(under_a_loop()).message == "seen Hello"


@pytest.mark.parametrize(
    ("returned", "status"), [(True, "pass"), (False, "fail"), (None, "error"), (1, "error"), ("PASS", "error")]
)
def test_what_a_custom_function_returns_is_looked_at(returned, status):
    assert CustomGrader(lambda trace, case: returned).grade(trace(), case()).status == status


def test_a_custom_function_by_name_and_one_that_raises():
    by_name = CustomGrader(module=__name__, function="verdict")
    assert by_name.grade(trace(), case()).passed
    result = CustomGrader(lambda trace, case: 1 / 0).grade(trace(), case())
    assert (result.status, result.message) == (GradeStatus.ERROR, "Custom grader error: division by zero")
    with pytest.raises(ValueError, match="needs a function"):
        CustomGrader()


def test_the_default_grade_async_does_what_grade_does():
    class Mine(BaseGrader):
        name = "mine"

        def __init__(self, word):
            self.word = word

        def grade(self, trace, test_case):
            return GradeResult.passed_result(self.name, self.word)

    assert asyncio.run(Mine("yes").grade_async(trace(), case())).message == "yes"


def test_the_failure_text_tells_expected_actual_and_missing():
    result = ToolCalledGrader(required=["search_flights", "book_flight"]).grade(trace("search_flights"), case())
    assert str(result) == (
        "ToolCalledGrader: FAIL\n"
        "  Expected: ['search_flights', 'book_flight']\n"
        "  Actual: ['search_flights']\n"
        "  Missing: ['book_flight']"
    )
