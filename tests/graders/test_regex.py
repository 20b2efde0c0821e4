import pytest
from file_cases import CaseFolders, cases, check_case


@pytest.fixture
def case_folders(tmp_path):
    return CaseFolders(tmp_path)


@pytest.mark.parametrize("case", cases("regex"))
def test_conformance(case, tmp_path):
    check_case(case, tmp_path)


def test_feedback_names_each_pattern_that_does_not_hold(case_folders):
    grade = case_folders.grade("regex", "one error", must_match=["on.", "two"], must_not_match=["(?i)ERROR"])
    assert grade.feedback == "Missing expected pattern: two; Found forbidden pattern: (?i)ERROR"
    assert grade.details["must_match"] == ["on.", "two"]
    assert case_folders.grade("regex", "one", must_match=["on."]).feedback == "All patterns matched"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"must_match": [""]}, "empty pattern"),
        ({"must_not_match": ["(a"]}, ""),
        ({"must_match": [1]}, "a pattern is a text"),
    ],
)
def test_what_cannot_be_a_pattern_is_refused(case_folders, config, reason):
    assert reason in case_folders.refusal("regex", **config)
