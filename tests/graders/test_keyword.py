import pytest
from file_cases import CaseFolders, cases, check_case


@pytest.fixture
def case_folders(tmp_path):
    return CaseFolders(tmp_path)


@pytest.mark.parametrize("case", cases("keyword"))
def test_conformance(case, tmp_path):
    check_case(case, tmp_path)


def test_feedback_names_each_word_that_is_missing_or_forbidden(case_folders):
    grade = case_folders.grade(
        "keyword", "Alpha", must_contain=["alpha"], keywords=["beta"], must_not_contain=["ALPHA"]
    )
    assert grade.feedback == "Missing expected keyword: beta; Found forbidden keyword: ALPHA"
    assert grade.score == pytest.approx(1 / 3)
    assert grade.details["must_contain"] == ["alpha", "beta"]
    assert grade.details["failures"] == ["Missing expected keyword: beta", "Found forbidden keyword: ALPHA"]
    assert case_folders.grade("keyword", "beta", keywords=["Beta"]).feedback == "All keyword checks passed"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"must_contain": []}, "checks nothing"),
        ({"must_contain": [""]}, "empty"),
        ({"must_contian": ["x"]}, "did you mean 'must_contain'"),
        ({"keywords": "x"}, "list"),
    ],
)
def test_what_could_never_fail_is_refused(case_folders, config, reason):
    assert reason in case_folders.refusal("keyword", **config)
