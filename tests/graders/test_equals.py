"""The `equals` grader: the whole output."""

import waza


def grade(output, **config):
    return waza.load_grader({"type": "equals", "config": config}).grade(waza.Trace(input="", output=output))


def test_white_space_does_not_count_by_default_but_case_does():
    assert grade("  All\n done ", expected="All done").passed
    assert grade("all done", expected="All done").status == "failed"


def test_white_space_counts_on_request():
    found = grade("All  done", expected="All done", strip_whitespace=False)
    assert (found.status, found.checks[0].expected, found.checks[0].actual) == ("failed", "All done", "All  done")


def test_a_part_is_not_enough():
    assert grade("All done, really", expected="All done").status == "failed"
