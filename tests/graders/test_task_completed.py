"""The `task_completed` grader: the agent ended with success and an answer, or did not."""

import pytest

import waza


def grade(output, status="success", **config):
    trace = waza.Trace(input="", output=output, status=status)
    return waza.load_grader({"type": "task_completed", "config": config}).grade(trace)


@pytest.mark.parametrize(
    ("output", "status", "is_completed"),
    [("done", "success", True), ("", "success", False), ("done", "failure", False), ("done", "timeout", False)],
)
def test_success_and_an_answer_complete_a_task(output, status, is_completed):
    assert grade(output, status).passed is is_completed
    assert grade(output, status, require_success=False).passed is not is_completed


def test_the_failure_names_status_and_output():
    assert grade("", "failure").feedback == "Task not completed: status failure, no output"
