"""Parts for combinations of graders: one that passes, one that fails, one that cannot tell, and judged ones."""

import pytest

import waza

DONE = {"type": "text", "name": "done", "config": {"contains": ["done"]}}
WRONG = {"type": "text", "name": "wrong", "config": {"contains": ["wrong"]}}
OPEN = {"type": "tool_calls", "name": "open", "config": {"required_tools": ["t"]}}
TRACE = waza.Trace(input="", output="done")
PARTS = {"passed": DONE, "failed": WRONG, "error": OPEN}
"""A part for each status on TRACE."""


def combined(kind, *parts, judge=None, **config):
    """The grade of a combination on TRACE."""
    inner = {"grader": parts[0]} if kind == "not" else {"graders": list(parts)}
    return waza.load_grader({"type": kind, "name": "g", "config": inner | config}).grade(TRACE, judge=judge)


def judged(name):
    """A part that asks a judge."""
    return {"type": "prompt", "name": name, "config": {"prompt": "Is it fine? Say pass or fail."}}


def not_asked(grade):
    """The names of the parts that asked no judge because that could not change the outcome."""
    feedback = "not asked: it cannot change the outcome"
    return [part["name"] for part in grade.details["parts"] if part["feedback"] == feedback]


def refusal(kind, config):
    """The problems of a combination that is refused."""
    with pytest.raises(waza.SpecError) as refused:
        waza.load_grader({"type": kind, "config": config})
    return [f"{problem.path}: {problem.message}" for problem in refused.value.problems]
