"""evaldeck's evaluator under the alias: grades, metrics, suites, agents of all kinds, conversations."""

import asyncio
import threading

import pytest
from evaldeck.graders import BaseGrader, CompositeGrader, ContainsGrader, LLMGrader, ToolCalledGrader
from evaldeck.metrics import (
    BaseMetric,
    DurationMetric,
    ErrorRateMetric,
    LLMCallCountMetric,
    StepEfficiencyMetric,
    TokenUsageMetric,
    ToolCallCountMetric,
    ToolDiversityMetric,
)

from evaldeck import (
    EvalCase,
    EvaldeckConfig,
    EvalSuite,
    EvaluationRunner,
    Evaluator,
    ExpectedBehavior,
    GraderConfig,
    GradeResult,
    GradeStatus,
    Step,
    Trace,
    TraceStatus,
    Turn,
)
from waza.errors import SpecError, UsageError


def case(name="case", user="ask", **expected):
    return EvalCase(name=name, turns=[Turn(user=user, expected=ExpectedBehavior(**expected))])


def trace(*tools, output="It is booked", **more):
    return Trace(input="ask", output=output, steps=[Step.tool_call(tool) for tool in tools], **more)


def test_a_trace_that_meets_its_expectations_passes():
    result = Evaluator().evaluate(trace("book"), case(tools_called=["book"], output_contains=["booked"]))
    assert result.passed and result.status == GradeStatus.PASS
    assert (result.test_case_name, result.pass_rate) == ("case", 1.0)


def test_a_trace_that_does_not_fails_and_says_why():
    result = Evaluator().evaluate(trace(), case(tools_called=["book"], output_contains=["booked"]))
    assert result.status == GradeStatus.FAIL
    assert [grade.grader_name for grade in result.failed_grades] == ["tool_called"]


def test_metrics_are_calculated_by_default():
    result = Evaluator().evaluate(trace("a", "b"), case())
    assert {m.metric_name: m.value for m in result.metrics}["step_count"] == 2
    assert [m.metric_name for m in result.metrics] == ["step_count", "token_usage", "tool_call_count", "duration"]


def test_graders_are_built_from_the_expectations_in_a_fixed_order():
    expected = {"max_steps": 9, "tools_called": ["book"], "output_contains": ["booked"], "task_completed": True}
    result = Evaluator().evaluate(trace("book"), case(**expected))
    assert [grade.grader_name for grade in result.grades] == ["contains", "tool_called", "max_steps", "task_completed"]


EVERY_KEY = [
    ("output_equals", "other", "equals"),
    ("output_matches", "other", "regex"),
    ("output_contains_any", ["other"], "output_contains_any"),
    ("min_steps", 9, "min_steps"),
    ("max_llm_calls", 0, "max_llm_calls"),
    ("tool_calls", [{"name": "other"}], "tool_calls"),
    ("outcomes", [{"type": "tool_called", "tool_name": "other"}], "outcomes"),
    ("behavior", {"max_tool_calls": 0}, "behavior"),
]


@pytest.mark.parametrize(("key", "value", "name"), EVERY_KEY)
def test_every_expectation_is_enforced(key, value, name):
    seen = trace("book")
    seen.add_step(Step.llm_call("m", "i", "o"))
    result = Evaluator().evaluate(seen, case(**{key: value}))
    assert [(grade.grader_name, grade.status) for grade in result.grades] == [(name, GradeStatus.FAIL)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"output_contians": ["a"]},
        {"output_contains": []},
        {"output_contains": [""]},
        {"output_matches": "("},
        {"max_steps": True},
        {"max_steps": -1},
        {"task_completed": "yes"},
        {"custom": {"a": 1}},
    ],
)
def test_an_expectation_that_could_not_be_enforced_is_refused_at_once(wrong):
    with pytest.raises(ValueError):
        ExpectedBehavior(**wrong)


def test_a_number_that_loses_nothing_is_taken():
    assert ExpectedBehavior(max_steps="3").max_steps == 3
    assert ExpectedBehavior(max_steps=2.0).max_steps == 2


def test_explicit_graders_are_used_instead():
    result = Evaluator(graders=[ContainsGrader(values=["booked"])]).evaluate(trace(), case(tools_called=["book"]))
    assert len(result.grades) == 1 and result.passed


def test_times_are_told():
    result = Evaluator().evaluate(trace(), case())
    assert result.duration_ms is not None
    assert result.started_at <= result.completed_at


def test_an_empty_answer_does_not_complete_a_task():
    assert not Evaluator().evaluate(trace(output=""), case(task_completed=True)).passed


def test_a_case_that_expects_nothing_is_undecided_and_its_agent_is_not_asked():
    asked = []
    turns = [Turn(user="ask"), Turn(user="again", expected=ExpectedBehavior())]
    for nothing in (case(), EvalCase(name="case", input="ask"), EvalCase(name="case", turns=turns)):
        found = [Evaluator().evaluate(trace(), nothing), asyncio.run(Evaluator().evaluate_async(trace(), nothing))]
        found += Evaluator().evaluate_suite(suite(nothing), asked.append).results
        for result in found:
            assert (result.status, result.passed) == (GradeStatus.ERROR, False)
            assert "nothing was checked: the case expects nothing; give it `expected`" in result.grades[0].message
        with_own = Evaluator(graders=[ContainsGrader(["booked"])]).evaluate(trace(), nothing)
        assert with_own.passed, "graders of the evaluator are enough"
    assert asked == []
    with pytest.raises(ValueError, match=r"EvalCase.expected: nothing is expected, so nothing could fail"):
        EvalCase(name="case", input="ask", expected={})
    one = EvalCase(name="case", turns=[Turn(user="ask"), Turn(user="b", expected={"output_contains": ["booked"]})])
    [result] = Evaluator().evaluate_suite(suite(one), agent).results
    assert result.passed, "a turn that expects nothing is fine next to one that does"


def test_an_agent_that_could_not_run_does_not_pass_though_nothing_is_expected():
    assert Evaluator().evaluate(trace(status=TraceStatus.ERROR), case()).status == GradeStatus.ERROR
    assert Evaluator().evaluate(trace(status=TraceStatus.TIMEOUT), case()).status == GradeStatus.FAIL


def test_a_trace_with_an_error_fails_its_task():
    result = Evaluator().evaluate(trace(status=TraceStatus.ERROR), case(task_completed=True))
    assert result.status == GradeStatus.FAIL


def test_a_case_without_turns_asks_for_completion():
    assert [g.grader_name for g in Evaluator().evaluate(trace(), EvalCase(name="x")).grades] == ["task_completed"]


class Meets(BaseGrader):
    """Passes once `others` are at work at the same time."""

    name = "meets"

    def __init__(self, barrier):
        self.barrier = barrier

    def grade(self, trace, test_case):
        raise AssertionError("only asked later")

    async def grade_async(self, trace, test_case):
        await asyncio.wait_for(self.barrier.wait(), 20)
        return GradeResult.passed_result(self.name, "met")


def test_graders_work_at_the_same_time():
    async def main():
        barrier = asyncio.Barrier(3)
        return await Evaluator(graders=[Meets(barrier)] * 3).evaluate_async(trace(), case())

    assert [grade.message for grade in asyncio.run(main()).grades] == ["met"] * 3


def test_plain_graders_work_at_the_same_time_too():
    barrier = threading.Barrier(3)

    class Plain(BaseGrader):
        name = "plain"

        def grade(self, trace, test_case):
            barrier.wait(20)
            return GradeResult.passed_result(self.name)

    result = asyncio.run(Evaluator(graders=[Plain()] * 3).evaluate_async(trace(), case()))
    assert [grade.status for grade in result.grades] == [GradeStatus.PASS] * 3


def test_a_composite_asks_all_at_once_and_keeps_their_order():
    finished = []

    class Slow(BaseGrader):
        name = "slow"

        def __init__(self, number, gates):
            self.number, self.gates = number, gates

        def grade(self, trace, test_case):
            raise AssertionError

        async def grade_async(self, trace, test_case):
            if self.number < 2:
                await asyncio.wait_for(self.gates[self.number + 1].wait(), 20)
            finished.append(self.number)
            self.gates[self.number].set()
            return GradeResult.passed_result(self.name, str(self.number))

    async def main():
        gates = [asyncio.Event() for _ in range(3)]
        return await CompositeGrader([Slow(n, gates) for n in range(3)]).grade_async(trace(), case())

    result = asyncio.run(main())
    assert finished == [2, 1, 0]
    assert [r["message"] for r in result.details["results"]] == ["0", "1", "2"]


def test_a_broken_grader_is_an_error_and_the_others_count():
    class Broken(BaseGrader):
        name = "broken"

        def grade(self, trace, test_case):
            raise RuntimeError("no")

    class Odd(BaseGrader):
        name = "odd"

        def grade(self, trace, test_case):
            return True

    evaluator = Evaluator(graders=[Broken(), Odd(), ContainsGrader(["booked"])])
    for result in (evaluator.evaluate(trace(), case()), asyncio.run(evaluator.evaluate_async(trace(), case()))):
        assert [grade.status for grade in result.grades] == ["error", "error", "pass"]
        assert result.grades[0].message == "Grader error: no"
        assert result.status == GradeStatus.ERROR


def suite(*cases, **more):
    return EvalSuite(name="suite", test_cases=list(cases), **more)


def agent(input, history=None):
    return trace("book", output=f"booked {input}")


async def later(input, history=None):
    return trace("book", output=f"booked {input}")


class Callable:
    async def __call__(self, input):
        return trace("book", output=f"booked {input}")


AGENTS = [
    agent,
    later,
    Callable(),
    lambda input: trace("book", output=f"booked {input}"),
    lambda input, history: trace("book", output=f"booked {input}"),
    lambda input: f"booked {input}",
]


@pytest.mark.parametrize("agent", AGENTS, ids=["plain", "async", "object", "one", "two", "text"])
def test_a_suite_is_run_with_any_kind_of_agent(agent):
    result = Evaluator().evaluate_suite(suite(case(output_contains=["booked ask"])), agent)
    assert (result.total, result.passed, result.errors) == (1, 1, 0)
    assert result.results[0].metrics


def test_a_suite_can_be_run_under_a_running_event_loop():
    async def notebook():
        return Evaluator().evaluate_suite(suite(case(output_contains=["booked"])), later)

    assert asyncio.run(notebook()).passed == 1


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_cases_are_run_at_the_same_time(kind):
    meet = threading.Barrier(5)

    def plain(input):
        meet.wait(20)
        return "ok"

    async def main():
        barrier = asyncio.Barrier(5)

        async def waits(input):
            await asyncio.wait_for(barrier.wait(), 20)
            return "ok"

        cases = suite(*(case(f"c{n}", output_contains=["ok"]) for n in range(5)))
        return await Evaluator().evaluate_suite_async(cases, waits if kind == "async" else plain)

    assert asyncio.run(main()).passed == 5


def test_no_more_than_allowed_run_at_once_and_the_order_is_kept():
    busy, most = 0, 0

    async def counts(input):
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.005 if input != "q0" else 0.03)
        busy -= 1
        return input

    received = []
    cases = suite(*(case(f"c{n}", f"q{n}", output_contains=[f"q{n}"]) for n in range(8)))
    evaluated = Evaluator().evaluate_suite_async(cases, counts, max_concurrent=3, on_result=received.append)
    result = asyncio.run(evaluated)
    assert most == 3
    assert [r.test_case_name for r in result.results] == [f"c{n}" for n in range(8)]
    assert len(received) == 8 and received[0].test_case_name != "c0"


def test_one_agent_that_raises_is_one_error_with_its_words_in_a_grade():
    def sometimes(input):
        if input == "bad":
            raise ValueError("Intentional failure")
        return "ok"

    names = ("a", "bad", "c")
    result = Evaluator().evaluate_suite(suite(*(case(n, n, output_contains=["ok"]) for n in names)), sometimes)
    assert (result.passed, result.errors) == (2, 1)
    wrong = result.results[1]
    assert wrong.status == GradeStatus.ERROR
    assert "Intentional failure" in wrong.grades[0].message
    assert "Intentional failure" in wrong.error


@pytest.mark.parametrize("kind", [SystemExit, KeyError])
def test_nothing_an_agent_raises_ends_the_run(kind):
    def leaves(input):
        raise kind("no more")

    assert Evaluator().evaluate_suite(suite(case(output_contains=["x"])), leaves).errors == 1


def test_an_agent_that_returns_something_else_is_an_error():
    result = Evaluator().evaluate_suite(suite(case(output_contains=["x"])), lambda input: 7)
    assert "it returned int" in result.results[0].grades[0].message


def test_a_listener_that_raises_changes_no_verdict():
    def listens(result):
        raise RuntimeError("screen is broken")

    with pytest.warns(RuntimeWarning, match="screen is broken"):
        result = Evaluator().evaluate_suite(suite(case(output_contains=["booked"])), agent, on_result=listens)
    assert result.passed == 1


def test_time_limits_and_retries_hold():
    async def never(input):
        await asyncio.sleep(60)

    slow = case(output_contains=["x"]).model_copy(update={"timeout": 0.05})
    result = Evaluator().evaluate_suite(suite(slow), never)
    assert result.results[0].status == GradeStatus.FAIL
    assert "timed out after 0.05 s" in result.results[0].grades[0].message
    tries = []

    def third_time(input):
        tries.append(input)
        if len(tries) < 3:
            raise OSError("not yet")
        return "ok"

    result = Evaluator().evaluate_suite(suite(case(output_contains=["ok"]), defaults={"retries": 2}), third_time)
    assert result.passed == 1 and len(tries) == 3


def test_own_graders_and_metrics_are_used_in_suites_too():
    evaluator = Evaluator(graders=[ToolCalledGrader()], metrics=[ErrorRateMetric()])
    evaluator.add_grader(ContainsGrader(["absent"]))
    evaluator.add_metric(LLMCallCountMetric())
    result = evaluator.evaluate_suite(suite(case(tools_called=["book"])), agent).results[0]
    assert [(g.grader_name, g.status) for g in result.grades] == [("tool_called", "pass"), ("contains", "fail")]
    assert [m.metric_name for m in result.metrics] == ["error_rate", "llm_call_count"]


def test_metrics():
    seen = Trace(input="ask", output="x", duration_ms=12.0)
    for step in (Step.tool_call("a"), Step.tool_call("a", status="failure"), Step.llm_call("m", "i", "o")):
        seen.add_step(step)
    limited = case(max_steps=2)
    values = {
        metric.name: metric.calculate(seen, limited).value
        for metric in (
            TokenUsageMetric(),
            ToolCallCountMetric(),
            DurationMetric(),
            ToolDiversityMetric(),
            StepEfficiencyMetric(),
            LLMCallCountMetric(),
            ErrorRateMetric(),
        )
    }
    assert values == pytest.approx(
        {
            "token_usage": 0,
            "tool_call_count": 2,
            "duration": 12,
            "tool_diversity": 0.5,
            "step_efficiency": 2 / 3,
            "llm_call_count": 1,
            "error_rate": 1 / 3,
        }
    )
    assert asyncio.run(ErrorRateMetric().calculate_async(Trace(input="x"))).value == 0


def test_a_metric_that_raises_is_told_of():
    class Broken(BaseMetric):
        name = "broken"

        def calculate(self, trace, test_case=None):
            raise RuntimeError("no number")

    with pytest.warns(RuntimeWarning, match="no number"):
        assert Evaluator(metrics=[Broken()]).evaluate(trace(), case()).metrics == []


def conversation(*turns):
    return EvalCase(name="talk", turns=[Turn(user=u, expected=ExpectedBehavior(**e) if e else None) for u, e in turns])


def test_each_turn_is_graded_alone_and_the_agent_sees_what_was_said():
    received = []

    def talks(input, history):
        received.append([(m.role, m.content) for m in history])
        history.clear()
        return f"re: {input}"

    talk = conversation(("one", {"output_contains": ["one"]}), ("two", {"output_not_contains": ["one"]}))
    result = Evaluator().evaluate_suite(suite(talk), talks).results[0]
    assert result.passed and result.is_multi_turn
    assert received == [[], [("user", "one"), ("assistant", "re: one")]]
    assert [turn.turn_index for turn in result.turn_results] == [0, 1]


def test_the_first_turn_that_does_not_pass_ends_the_conversation():
    calls = []

    def talks(input):
        calls.append(input)
        return "ok"

    talk = conversation(("one", None), ("two", {"output_contains": ["absent"]}), ("three", None))
    result = Evaluator().evaluate_suite(suite(talk), talks).results[0]
    assert calls == ["one", "two"]
    assert result.status == GradeStatus.FAIL
    assert (result.failed_at_turn, result.turns_completed, result.total_turns) == (1, 2, 3)
    assert [(t.status, t.skipped) for t in result.turn_results] == [("pass", False), ("fail", False), ("skip", True)]


def test_a_grader_without_arguments_takes_the_expectation_of_its_turn():
    talk = conversation(("one", {"output_contains": ["one"]}), ("two", {"output_contains": ["two"]}))
    result = Evaluator(graders=[ContainsGrader()]).evaluate_suite(suite(talk), lambda input: input)
    assert result.passed == 1


def test_a_case_without_turns_is_an_error_in_a_suite():
    result = Evaluator().evaluate_suite(suite(EvalCase(name="x")), agent).results[0]
    assert (result.status, result.grades[0].message) == (GradeStatus.ERROR, "Test case has no turns defined")


def test_named_graders_are_built_or_refused():
    named = Turn(
        user="ask",
        graders=[
            GraderConfig(type="regex", params={"pattern": "b.oked"}),
            GraderConfig(type="Not_Contains", params={"values": ["no"]}),
            GraderConfig(type="text", params={"contains": ["absent"]}),
        ],
    )
    result = Evaluator().evaluate(trace(), EvalCase(name="x", turns=[named]))
    assert [(g.grader_name, g.status) for g in result.grades] == [
        ("regex", "pass"),
        ("not_contains", "pass"),
        ("text", "fail"),
    ]
    for wrong in (
        {"type": "contians"},
        {"type": "contains"},
        {"type": "contains", "params": {"valus": ["a"]}},
        {"type": "contains", "params": {"values": []}},
        {"type": "code", "module": "m", "function": "f"},
    ):
        with pytest.raises(ValueError):
            GraderConfig(**wrong)


def test_a_case_may_say_input_and_expected_itself():
    short = EvalCase(name="x", input="ask", expected={"output_contains": ["absent"]}, tags=["a"])
    assert (short.input, short.expected.output_contains) == ("ask", ["absent"])
    assert not Evaluator().evaluate(trace(), short).passed
    last = EvalCase(name="x", turns=[{"user": "a"}, {"user": "b"}], expected={"output_contains": ["z"]})
    assert last.turns[0].expected is None and last.turns[1].expected.output_contains == ["z"]
    with pytest.raises(ValueError, match="keep one of them"):
        EvalCase(name="x", input="a", turns=[{"user": "b"}])
    with pytest.raises(ValueError, match="expceted"):
        EvalCase(name="x", input="a", expceted={})


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ({"type": "contains", "params": {"values": ["absent"]}}, "contains"),
        ({"type": "tool_called", "name": "looks_up", "params": {"required": ["book"]}}, "looks_up"),
        ({"type": "text", "config": {"contains": ["absent"]}}, "text"),
        ({"type": "max_steps", "max_steps": 0}, "max_steps"),
        (GraderConfig(type="regex", params={"pattern": "^absent"}), "regex"),
    ],
)
def test_graders_within_expectations_are_enforced(entry, name):
    expected = {"output_contains": ["booked"], "graders": [entry]}
    seen = Trace(input="ask", output="booked", steps=[Step.reasoning("so")])
    for given in (EvalCase(name="x", input="ask", expected=expected), case(**expected)):
        result = Evaluator().evaluate(seen, given)
        assert [(g.grader_name, g.status) for g in result.grades] == [("contains", "pass"), (name, "fail")]
        assert EvalCase.from_yaml_string(given.to_yaml()) == given


@pytest.mark.parametrize(
    "wrong",
    [[], [{"type": "contians"}], ["contains"], [{"type": "contains", "params": {"values": []}}], {"type": "contains"}],
)
def test_wrong_graders_within_expectations_are_refused(wrong):
    with pytest.raises(ValueError):
        EvalCase(name="x", input="ask", expected={"graders": wrong})


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: EvalCase(name="a", input="x", expected={"graders": ["nope"]}), "expected.graders[0]: unknown grader"),
        (lambda: EvalCase(name="a", input="x", expected={"graders": []}), "expected.graders: must not be empty"),
        (lambda: EvalCase(name="a", input="x", expcted={}), "unknown key 'expcted'; did you mean 'expected'?"),
        (lambda: EvalCase(name="a", input=5), "'input': a text is needed, found the number 5"),
        (lambda: EvalCase(name="a", expected={"max_steps": 3}), "'input' is missing; or give 'turns'"),
        (lambda: EvalCase(input="x"), "EvalCase.name: 'name' is missing"),
        (lambda: EvalSuite(name="s", defaults={"timeout": "long"}), "timeout: a number is needed, found the text"),
        (lambda: Step(type="tol_call"), "Step.type: found the text 'tol_call'; one of: llm_call, tool_call"),
        (lambda: Trace(output="x"), "Trace.input: 'input' is missing"),
        (lambda: Trace.from_dict({"input": 3}), "Trace.input: a text is needed, found the number 3"),
        (lambda: EvaldeckConfig(suites=3), "EvaldeckConfig.suites: a list is needed, found the number 3"),
        (lambda: ContainsGrader(values=["a", 5]), "Invalid values[1]: a text is needed, found the number 5"),
        (lambda: ToolCalledGrader(5), "ToolCalledGrader: Invalid required: a list is needed, found the number 5"),
        (lambda: LLMGrader(5), "LLMGrader.prompt: a text is needed, found the number 5"),
        (lambda: CompositeGrader(5), "CompositeGrader: a list of graders is needed, found the number 5"),
    ],
)
def test_a_wrong_argument_is_refused_with_place_and_fact_in_our_words(make, sentence):
    with pytest.raises(ValueError) as refusal:
        make()
    assert sentence in str(refusal.value)
    assert not any(word in str(refusal.value) for word in ("Input should", "validation error", "pydantic"))


def test_defaults_of_a_suite_and_keys_of_the_agent_are_known_or_refused():
    assert EvalSuite(name="s", defaults={"timeout": 3}).defaults == {"timeout": 3}
    for wrong in ({"timout": 3}, {"timeout": 0}, {"retries": -1}):
        with pytest.raises(ValueError):
            EvalSuite(name="s", defaults=wrong)
    config = EvaldeckConfig(agent={"module": "m", "function": "f", "framework": "langchain"})
    with pytest.raises(UsageError, match="'framework' is not supported"):
        EvaluationRunner(config).run(suites=[suite(case())])


def test_results_count_and_serialise():
    result = Evaluator().evaluate_suite(suite(case("a", output_contains=["booked"]), case("b", max_steps=0)), agent)
    assert (result.total, result.passed, result.failed, result.errors, result.pass_rate) == (2, 1, 1, 0, 0.5)
    assert type(result).model_validate_json(result.model_dump_json()) == result


def test_the_runner_finds_suites_and_agent_and_refuses_to_run_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests/evals/deep").mkdir(parents=True)
    (tmp_path / "their_agent.py").write_text("def run(input):\n    return 'booked ' + input\n")
    (tmp_path / "evaldeck.yaml").write_text("agent: {module: their_agent, function: run}\nexecution: {workers: 2}\n")
    (tmp_path / "tests/evals/a.yaml").write_text(
        "name: a\ninput: x\nexpected: {output_contains: [booked]}\n"
        "---\nname: b\ninput: y\ntags: [t]\nexpected: {output_contains: [z]}\n"
    )
    (tmp_path / "tests/evals/deep/c.yml").write_text("name: c\ninput: x\nexpected: {output_equals: booked x}\n")
    run = EvaluationRunner().run()
    assert (run.total, run.passed, run.failed, run.errors, run.all_passed) == (3, 2, 1, 0, False)
    assert EvaluationRunner(EvaldeckConfig.load()).run(tags=["t"]).total == 1
    with pytest.raises(UsageError, match="no case to run"):
        EvaluationRunner().run(tags=["unheard-of"])
    with pytest.raises(UsageError, match="no agent"):
        EvaluationRunner(EvaldeckConfig()).run()


def test_yaml_round_trip_and_mistakes_with_their_places(tmp_path):
    text = "name: a\nturns:\n  - user: hi\n    expected: {max_steps: 3}\ntags: [x]\n"
    read = EvalCase.from_yaml_string(text)
    assert EvalCase.from_yaml_string(read.to_yaml()) == read
    (tmp_path / "bad.yaml").write_text("name: a\ninput: hi\nexpected:\n  max_step: 3\n")
    with pytest.raises(SpecError, match=r"bad.yaml:4:3: expected.max_step: unknown key .* 'max_steps'"):
        EvalCase.from_yaml(tmp_path / "bad.yaml")
    with pytest.raises(SpecError, match=r"bad\.yaml"):
        EvalSuite.from_directory(tmp_path)


def test_a_configuration_is_saved_and_loaded(tmp_path):
    config = EvaldeckConfig(test_dir="cases", execution={"workers": 3})
    config.save(tmp_path / "evaldeck.yaml")
    assert EvaldeckConfig.load(tmp_path / "evaldeck.yaml") == config
    (tmp_path / "evaldeck.yaml").write_text("test_dri: x\n")
    with pytest.raises(SpecError, match="did you mean 'test_dir'"):
        EvaldeckConfig.load(tmp_path / "evaldeck.yaml")


def test_tags_of_a_suite_are_those_of_its_cases(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("core", "edge"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(f"name: {name}\ninput: hi\nexpected: {{output_contains: [hi]}}\n")
    suites = [{"name": "core", "path": "core", "tags": ["quick"]}, {"name": "edge", "path": "edge"}]
    run = EvaluationRunner(EvaldeckConfig(suites=suites)).run(agent_func=lambda input: input, tags=["quick"])
    assert [[result.test_case_name for result in suite.results] for suite in run.suites] == [["core"], []]
