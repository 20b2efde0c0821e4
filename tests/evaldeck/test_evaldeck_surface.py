"""The names, members, call shapes and habits that code written for evaldeck relies on."""

from importlib import import_module

import pytest

IMPORTS = {
    "evaldeck": "EvalCase EvalSuite Evaluator ExpectedBehavior GradeResult GradeStatus Step StepType Trace TraceStatus "
    "Turn",
    "evaldeck.graders": "BaseGrader CompositeGrader ContainsGrader MaxStepsGrader ToolCalledGrader ToolNotCalledGrader",
    "evaldeck.metrics.base": "BaseMetric",
    "evaldeck.metrics.builtin": "DurationMetric StepCountMetric TokenUsageMetric",
    "evaldeck.graders.base": "BaseGrader CompositeGrader",
    "evaldeck.graders.code": "ContainsGrader CustomGrader",
    "evaldeck.graders.llm": "LLMGrader LLMRubricGrader",
    "evaldeck.results": "GradeStatus",
    "evaldeck.trace": "Message TraceStatus",
}
TOP = """Trace Step StepType StepStatus TraceStatus TokenUsage Message EvalCase EvalSuite ExpectedBehavior GraderConfig
Turn GradeResult GradeStatus MetricResult EvaluationResult SuiteResult RunResult Evaluator EvaluationRunner
EvaldeckConfig"""
GRADERS = """BaseGrader CompositeGrader ContainsGrader CustomGrader EqualsGrader LLMGrader LLMRubricGrader
MaxLLMCallsGrader MaxStepsGrader MaxToolCallsGrader NotContainsGrader RegexGrader TaskCompletedGrader ToolCalledGrader
ToolNotCalledGrader ToolOrderGrader"""
METRICS = """BaseMetric StepCountMetric TokenUsageMetric ToolCallCountMetric DurationMetric ToolDiversityMetric
StepEfficiencyMetric LLMCallCountMetric ErrorRateMetric"""
MEMBERS = {
    "Step": "llm_call tool_call reasoning",
    "Trace": "add_step complete step_count tool_calls tools_called to_dict from_dict",
    "GradeResult": "passed passed_result failed_result error_result",
    "EvaluationResult": "passed failed_grades pass_rate is_multi_turn turns_completed total_turns add_grade add_metric",
    "SuiteResult": "total passed failed errors pass_rate duration_ms",
    "RunResult": "total passed failed pass_rate all_passed",
    "Evaluator": "evaluate evaluate_async evaluate_suite evaluate_suite_async",
    "EvaluationRunner": "run run_async",
    "EvalCase": "expected graders input is_multi_turn from_yaml from_yaml_string to_yaml",
    "EvalSuite": "from_directory filter_by_tags",
}
FIELDS = {
    "Step": "id type timestamp status model input output tokens tool_name tool_args tool_result reasoning_text "
    "parent_id error duration_ms metadata",
    "Trace": "id input output status steps started_at completed_at duration_ms metadata framework agent_name",
    "GradeResult": "grader_name status score message details expected actual",
    "EvaluationResult": "test_case_name status grades metrics turn_results failed_at_turn duration_ms started_at "
    "completed_at trace_id error",
    "TurnResult": "turn_index user_input status grades trace_id duration_ms skipped",
    "MetricResult": "metric_name value unit details",
    "Turn": "user expected graders",
    "GraderConfig": "type params prompt model threshold module function",
    "ExpectedBehavior": "tools_called tools_not_called tool_call_order output_contains output_not_contains "
    "output_equals output_matches max_steps min_steps max_tool_calls max_llm_calls task_completed",
}
ENUMS = {
    "StepType": "LLM_CALL TOOL_CALL REASONING HUMAN_INPUT",
    "StepStatus": "SUCCESS FAILURE PENDING",
    "TraceStatus": "SUCCESS FAILURE TIMEOUT ERROR",
    "GradeStatus": "PASS FAIL ERROR SKIP",
}


@pytest.mark.parametrize(
    ("module", "names"),
    [*IMPORTS.items(), ("evaldeck", TOP), ("evaldeck.graders", GRADERS), ("evaldeck.metrics", METRICS)],
)
def test_every_name_can_be_imported(module, names):
    found = import_module(module)
    assert [name for name in names.split() if not hasattr(found, name)] == []


@pytest.mark.parametrize(("kind", "names"), MEMBERS.items())
def test_every_member_is_there(kind, names):
    cls = getattr(import_module("evaldeck"), kind)
    assert [name for name in names.split() if not hasattr(cls, name)] == []


@pytest.mark.parametrize(("kind", "names"), FIELDS.items())
def test_every_field_is_there(kind, names):
    cls = getattr(import_module("evaldeck"), kind)
    assert set(names.split()) - set(cls.model_fields) == set()


@pytest.mark.parametrize(("kind", "names"), ENUMS.items())
def test_every_status_is_a_text_too(kind, names):
    cls = getattr(import_module("evaldeck"), kind)
    assert [member.name for member in cls] == names.split()
    assert all(member == member.value == member.name.lower() for member in cls)


def test_every_grader_can_be_asked_plainly_and_later():
    graders = import_module("evaldeck.graders")
    for name in GRADERS.split():
        assert callable(getattr(graders, name).grade) and callable(getattr(graders, name).grade_async), name


def test_the_call_shapes_of_existing_code():
    from evaldeck.graders import BaseGrader, CompositeGrader, ContainsGrader, MaxStepsGrader

    from evaldeck import EvalCase, EvalSuite, Evaluator, ExpectedBehavior, GradeResult, Step, Trace, TraceStatus, Turn

    class Mine(BaseGrader):
        def __init__(self, word):
            self.word = word

        def grade(self, trace, test_case):
            return GradeResult.passed_result("mine", self.word)

    trace = Trace(input="ask", output=None, status=TraceStatus.SUCCESS)
    assert trace.steps == [] and trace.tools_called == [] and trace.output is None
    trace.add_step(Step.tool_call("search", {"q": 1}))
    trace.add_step(Step.tool_call(tool_name="book", tool_args={}, tool_result="ok"))
    trace.add_step(Step.llm_call("m", "in", "out"))
    trace.add_step(Step.llm_call(model="m", input="in", output="out"))
    trace.complete("done", TraceStatus.SUCCESS)
    trace.status = TraceStatus.SUCCESS
    trace.output = "all done"
    case = EvalCase(
        name="c", turns=[Turn(user="ask", expected=ExpectedBehavior(output_contains=["done"], max_steps=4))]
    )
    graders = [ContainsGrader(), MaxStepsGrader(), Mine("word"), CompositeGrader([ContainsGrader(values=["all"])])]
    assert [grader.grade(trace, case).passed for grader in graders] == [True] * 4
    result = Evaluator(graders=graders).evaluate(trace, case)
    assert result.passed and [grade.grader_name for grade in result.grades] == [
        "contains",
        "max_steps",
        "mine",
        "composite",
    ]
    results = []
    suite = EvalSuite(name="s", test_cases=[case])
    found = Evaluator().evaluate_suite(suite, lambda input, history=None: trace, on_result=results.append)
    assert (found.total, found.passed, found.errors, len(results)) == (1, 1, 0, 1)
