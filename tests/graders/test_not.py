"""The `not` grader, and the laws of three-valued logic that combinations keep."""

from itertools import product

import pytest
from combined_cases import DONE, PARTS, combined, refusal
from tool_cases import cases, holds

STATUSES = list(PARTS)


@pytest.mark.parametrize("case", cases("not"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert holds(case, tmp_path)


def turned(part):
    return {"type": "not", "config": {"grader": part}}


def joined(kind, *parts, **config):
    return {"type": kind, "config": {"graders": list(parts), **config}}


def status(part):
    return combined("all_of", part).status


@pytest.mark.parametrize("one", STATUSES)
def test_not_not_x_has_the_status_of_x(one):
    assert status(turned(turned(PARTS[one]))) == one
    assert status(turned(PARTS[one])) == {"passed": "failed", "failed": "passed", "error": "error"}[one]


@pytest.mark.parametrize("several", [*product(STATUSES, repeat=3)])
def test_de_morgan_on_three_values(several):
    parts = [PARTS[one] for one in several]
    turned_parts = [turned(part) for part in parts]
    assert status(turned(joined("any_of", *parts))) == status(joined("all_of", *turned_parts))
    assert status(turned(joined("all_of", *parts))) == status(joined("any_of", *turned_parts))
    assert status(joined("at_least", *parts, count=1)) == status(joined("any_of", *parts))
    assert status(joined("at_least", *parts, count=3)) == status(joined("all_of", *parts))
    # At least 2 of 3 pass, unless at least 2 of 3 do not pass.
    assert status(turned(joined("at_least", *parts, count=2))) == status(joined("at_least", *turned_parts, count=2))


def test_feedback_names_the_part():
    grade = combined("not", DONE)
    assert (grade.status, grade.score) == ("failed", 0.0)
    assert grade.feedback.startswith("done passed, and must not: ")
    assert [check.claim for check in grade.checks] == ["done does not pass"]


def test_nesting_has_an_end():
    part = DONE
    for _ in range(8):
        part = turned(part)
    assert refusal("not", {"grader": part}) == [": graders are nested more than 8 deep"]
