"""The `skill_triggered` grader: one skill is, or is not, invoked."""

import pytest

import waza


def grade(invoked, **config):
    skills = None if invoked is None else [{"name": name} for name in invoked]
    trace = waza.Trace.from_json({"input": "", "output": "", "skill_invocations": skills})
    return waza.load_grader({"type": "skill_triggered", "config": config}).grade(trace)


@pytest.mark.parametrize(
    ("invoked", "should_trigger", "status"),
    [
        (["azure-deploy"], True, "passed"),
        (["azure-deploy"], False, "failed"),
        (["other"], True, "failed"),
        ([], False, "passed"),
        (None, True, "error"),
        (None, False, "error"),
    ],
)
def test_the_skill_must_or_must_not_be_invoked(invoked, should_trigger, status):
    assert grade(invoked, skill="azure-deploy", should_trigger=should_trigger).status == status
    assert grade(invoked, skill="azure-*", should_trigger=should_trigger).status == status


def test_the_failure_names_what_was_invoked():
    found = grade(["other"], skill="azure-deploy")
    assert (found.feedback, found.checks[0].actual) == ("not so: skill azure-deploy is invoked", ["other"])
