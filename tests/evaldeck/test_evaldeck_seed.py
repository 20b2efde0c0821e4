"""The documentation's own lines on code-based graders, run with the import changed and nothing else."""

import pytest

YAML = [
    'expected:\n  output_contains:\n    - "confirmation"\n    - "booking reference"',
    'expected:\n  output_not_contains:\n    - "error"\n    - "failed"\n    - "exception"',
    'expected:\n  output_equals: "Operation completed successfully."',
    'expected:\n  output_matches: "Confirmation: [A-Z]{3}\\\\d{6}"',
    "expected:\n  tools_called:\n    - search_flights\n    - book_flight",
    "expected:\n  tools_not_called:\n    - delete_account\n    - admin_override\n    - drop_database",
    "expected:\n  tool_call_order:\n    - authenticate\n    - fetch_data\n    - process_data\n    - save_result",
    "expected:\n  max_steps: 10",
    "expected:\n  max_tool_calls: 5",
    "expected:\n  max_llm_calls: 3",
    "expected:\n  task_completed: true",
    "expected:\n  tools_called: [search, book]     # AND\n  output_contains: [confirmed]     # AND\n  max_steps: 5",
]


@pytest.mark.parametrize("block", YAML)
def test_each_yaml_block_is_a_case(block):
    from waza.evaldeck import EvalCase

    case = EvalCase.from_yaml_string(f"name: case\ninput: ask\n{block}\n")
    assert case.expected.model_dump(exclude_none=True)


def test_each_constructor_is_as_documented():
    from waza.evaldeck.graders import (
        ContainsGrader,
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

    made = [
        ContainsGrader(
            values=["confirmation", "booking reference"],
            case_sensitive=False,  # Default: False
        ),
        NotContainsGrader(values=["error", "failed", "exception"], case_sensitive=False),
        EqualsGrader(
            expected="Operation completed successfully.",
            strip_whitespace=True,  # Default: True
        ),
        RegexGrader(
            pattern=r"Confirmation: [A-Z]{3}\d{6}",
            flags=0,  # re module flags
        ),
        ToolCalledGrader(required=["search_flights", "book_flight"]),
        ToolNotCalledGrader(forbidden=["delete_account", "admin_override"]),
        ToolOrderGrader(expected_order=["authenticate", "fetch_data", "process_data", "save_result"]),
        MaxStepsGrader(max_steps=10),
        MaxToolCallsGrader(max_tool_calls=5),
        MaxLLMCallsGrader(max_llm_calls=3),
        TaskCompletedGrader(),
    ]
    assert len({grader.name for grader in made}) == 11


def test_the_same_constructors_are_wazas():
    import waza

    trace = waza.Trace(
        input="ask", output="Confirmation: ABC123456", tool_events=[], steps=0, usage=waza.Usage(llm_calls=0)
    )
    grades = [
        waza.ContainsGrader(values=["confirmation"], case_sensitive=False).grade(trace),
        waza.NotContainsGrader(values=["error", "failed", "exception"], case_sensitive=False).grade(trace),
        waza.EqualsGrader(expected="Operation completed successfully.", strip_whitespace=True).grade(trace),
        waza.RegexGrader(pattern=r"Confirmation: [A-Z]{3}\d{6}", flags=0).grade(trace),
        waza.ToolCalledGrader(required=["search_flights", "book_flight"]).grade(trace),
        waza.ToolNotCalledGrader(forbidden=["delete_account", "admin_override"]).grade(trace),
        waza.ToolOrderGrader(expected_order=["authenticate", "fetch_data"]).grade(trace),
        waza.MaxStepsGrader(max_steps=10).grade(trace),
        waza.MaxToolCallsGrader(max_tool_calls=5).grade(trace),
        waza.MaxLLMCallsGrader(max_llm_calls=3).grade(trace),
        waza.TaskCompletedGrader().grade(trace),
    ]
    statuses = [grade.status for grade in grades]
    assert statuses == ["passed", "passed", "failed", "passed", "failed", "passed", "failed", *["passed"] * 4]


def test_programmatic_usage(capsys):
    from waza.evaldeck import EvalCase, Step, Trace, Turn
    from waza.evaldeck.graders import ContainsGrader, ToolCalledGrader

    # Create graders
    tool_grader = ToolCalledGrader(required=["search", "book"])
    output_grader = ContainsGrader(values=["confirmed"])

    # Grade a trace
    trace = Trace(input="Book it", output="It is confirmed.", steps=[Step.tool_call("search")])
    test_case = EvalCase(name="booking", turns=[Turn(user="Book it")])

    result1 = tool_grader.grade(trace, test_case)
    result2 = output_grader.grade(trace, test_case)

    print(f"Tools: {result1.status}")  # PASS or FAIL
    print(f"Output: {result2.status}")
    assert capsys.readouterr().out == "Tools: FAIL\nOutput: PASS\n"


@pytest.mark.parametrize(("called", "status"), [("A X B Y C", "pass"), ("A C B", "fail")])
def test_the_documented_order(called, status):
    from waza.evaldeck import Step, Trace
    from waza.evaldeck.graders import ToolOrderGrader

    trace = Trace(input="ask", steps=[Step.tool_call(tool) for tool in called.split()])
    assert ToolOrderGrader(["A", "B", "C"]).grade(trace, None).status == status


@pytest.mark.parametrize(
    ("pattern", "output"),
    [
        ("[\\w.-]+@[\\w.-]+\\.\\w+", "write to a.b@example.org"),
        ("\\{.*\\}", 'it is {"a": 1}'),
        ("\\d{4}-\\d{2}-\\d{2}", "on 2024-05-06"),
    ],
)
def test_the_documented_patterns(pattern, output):
    import waza
    from waza.evaldeck import Trace
    from waza.evaldeck.graders import RegexGrader

    assert RegexGrader(pattern).grade(Trace(input="ask", output=output), None).passed
    assert waza.RegexGrader(pattern).grade(waza.Trace(input="ask", output=output)).passed
    assert not waza.RegexGrader(pattern).grade(waza.Trace(input="ask", output="nothing of that")).passed
