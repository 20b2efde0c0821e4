import pytest
import tool_cases
from pydantic import ValidationError

import waza
from waza.graders.code import CodeGrader
from waza.model import ToolEvent, Trace

CALL = ToolEvent(tool_name="bash", args={"command": "ls", "extra": 1}, result="ok", success=False, tool_call_id="t1")


def grade(*assertions, language="python", **trace):
    trace = Trace(**{"input": "", "output": ""} | trace)
    return CodeGrader(name="g", language=language, assertions=list(assertions)).grade(trace)


def test_the_score_is_the_share_of_assertions_that_held():
    verdict = grade("1 == 1", "2 == 3", "3 == 3", "4 == 5")
    assert (verdict.status, verdict.score) == ("failed", 0.5)
    assert verdict.feedback == "Failed: 2 == 3; Failed: 4 == 5"
    assert verdict.details == {"total_assertions": 4, "passed_assertions": 2, "engine": "cpython"}


def test_all_assertions_passed():
    verdict = grade("output === 'x'", language="javascript", output="x")
    assert (verdict.status, verdict.feedback) == ("passed", "All assertions passed")
    assert verdict.details["engine"] == "quickjs-ng"


@pytest.mark.parametrize(
    ("language", "assertions"),
    [
        (
            "python",
            [
                "outcome['hello'] == 'world'",
                "output == 'hi' and duration_ms == 101",
                "len(transcript) == 3 and len(errors) == 2",
                "tool_calls == [{'name': 'bash', 'arguments': {'command': 'ls', 'extra': 1}, 'result': 'ok',"
                " 'success': False, 'id': 't1'}]",
            ],
        ),
        (
            "javascript",
            [
                "outcome.hello === 'world'",
                "output === 'hi' && duration_ms === 101",
                "transcript.length === 3 && errors.length === 2",
                "tool_calls[0].name === 'bash' && tool_calls[0].arguments.extra === 1 && !tool_calls[0].success",
            ],
        ),
    ],
)
def test_what_an_assertion_can_see(language, assertions):
    verdict = grade(
        *assertions,
        language=language,
        output="hi",
        outcome={"hello": "world"},
        duration_ms=101.7,
        tool_events=[CALL],
        events=[{"type": "session.error"}, {"content": {"text": "an error"}}, {"type": "tool", "content": None}],
    )
    assert (verdict.status, verdict.feedback) == ("passed", "All assertions passed")


def test_events_of_an_odd_shape_do_no_harm():
    events = [{}, {"type": 5, "content": ["error"]}, {"content": None}, "error", 7]
    assert grade("len(errors) == 1", "len(transcript) == 5", events=events).status == "passed"


def test_an_assertion_that_raises_is_a_failed_check_that_says_so():
    verdict = grade("ouput == 'x'")
    assert verdict.status == "failed"
    assert verdict.feedback.startswith("Failed: ouput == 'x': the assertion raised NameError")
    assert "did you mean 'output'?" in verdict.feedback


def test_assertions_that_raise_or_read_nothing_are_named_when_they_are_loaded():
    sources = ["ouput == 'x'", "1 == 1", "len('ab') == 2", "[x for x in output] or (lambda y: y)(output)"]
    with pytest.warns(UserWarning) as warned:
        waza.load_grader({"type": "code", "assertions": sources})
    messages = [str(one.message) for one in warned]
    assert [each.partition(":")[0] for each in messages] == ["assertions[0]", "assertions[1]", "assertions[2]"]
    assert "did you mean 'output'?" in messages[0]
    assert all("reads nothing of what the agent did" in each for each in messages[1:])


@pytest.mark.parametrize(
    ("language", "bomb"), [("python", "'a' * 10**10 in output"), ("javascript", "'a'.repeat(5e8)")]
)
def test_an_assertion_that_runs_out_of_memory_is_undecided(language, bomb):
    verdict = grade(bomb, language=language)
    assert (verdict.status, verdict.score) == ("error", 0.0)
    assert f"Cannot tell: {bomb}: ran out of memory" in verdict.feedback
    assert grade(bomb, "1 == 2", language=language).status == "failed", "a failed check decides"


@pytest.mark.parametrize("language", ["python", "javascript"])
@pytest.mark.parametrize("name", ["tool_calls", "duration_ms", "transcript"])
def test_evidence_that_was_not_recorded_makes_undecided_only_what_names_it(language, name):
    verdict = grade(f"{name} == 0", f"output != '{name}'", language=language)
    assert [check.ok for check in verdict.checks] == [None, True]
    assert verdict.status == "error"
    assert "not recorded" in verdict.feedback


@pytest.mark.parametrize(("language", "empty"), [("python", "errors == []"), ("javascript", "errors.length === 0")])
def test_without_events_there_are_no_errors(language, empty):
    assert grade(empty, language=language).status == "passed"


def test_observed_and_none_is_not_the_same_as_not_recorded():
    assert grade("tool_calls == []", "transcript == []", tool_events=[], events=[]).status == "passed"


def test_every_assertion_that_cannot_be_read_is_refused_with_its_place():
    with pytest.raises(ValidationError) as refusal:
        CodeGrader(assertions=["1 == 1", "len(", "output = 1", " "])
    errors = [(error["loc"][:2], error["msg"]) for error in refusal.value.errors()]
    assert errors == [
        (("assertions", 1), "Value error, column 4: '(' was never closed"),
        (("assertions", 2), "Value error, column 1: an assignment cannot be checked; did you mean '=='?"),
        (("assertions", 3), "Value error, an assertion must not be blank"),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"assertions": []},
        {"assertions": [""]},
        {"assertions": [1]},
        {"assertions": "1 == 1"},
        {"assertions": ["output"], "language": "ruby"},
        {"assertions": ["1 =="], "language": "javascript"},
        {"assertion": ["output"]},
    ],
)
def test_what_checks_nothing_or_is_misspelt_is_refused(options):
    with pytest.raises(ValidationError):
        CodeGrader(**options)


def test_names_are_visible_everywhere_in_an_expression():
    assert (
        grade("any(k in output for k in ['azure'])", "(lambda: output)() == 'azure'", output="azure").status == "passed"
    )


@pytest.mark.parametrize("case", tool_cases.lines("graders_code.jsonl"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert tool_cases.holds(case, tmp_path), case.get("why")
