"""An agent under pytest: plain tests, and a suite beside them.   pytest examples/pytest-suite"""

import pytest

import waza


def agent(prompt: str) -> waza.Trace:
    call = waza.ToolEvent(tool_name="translate", args={"text": prompt, "to": "fr"})
    return waza.Trace(input=prompt, output=f"En français : {prompt}", tool_events=[call])


@waza.grader
def keeps_the_text(trace: waza.Trace) -> bool:
    "The text itself stands in the answer."
    return trace.input in trace.output


@pytest.mark.parametrize("prompt", ["hello", "good morning"])
def test_it_translates(prompt: str) -> None:
    waza.assert_grades(agent(prompt), [keeps_the_text, waza.ToolCalledGrader(required=["translate"])])


def test_it_says_so_in_short() -> None:
    waza.assert_grades(agent("hello"), {"output_contains": ["français"], "max_tool_calls": 1, "task_completed": True})


def test_a_failure_tells_what_was_expected_and_what_was_found() -> None:
    with pytest.raises(AssertionError, match="Required tool not called: dictionary"):
        waza.assert_grades(agent("hello"), {"tools_called": ["dictionary"]})
