import pytest
from file_cases import cases, check_case
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from waza.graders.contains import ContainsGrader
from waza.graders.contains_any import ContainsAnyGrader
from waza.graders.keyword import KeywordGrader
from waza.graders.not_contains import NotContainsGrader
from waza.graders.text import TextGrader
from waza.model import Trace
from waza.untrusted.text import fold_case

OPTIONS = ["contains", "not_contains", "contains_cs", "not_contains_cs", "regex_match", "regex_not_match"]


def grade(output, **options):
    return TextGrader(name="g", **options).grade(Trace(input="", output=output))


@pytest.mark.parametrize("case", cases("text"))
def test_conformance(case, tmp_path):
    check_case(case, tmp_path)


def test_each_entry_is_one_check_and_the_score_is_their_share():
    verdict = grade(
        "hello world func panic()",
        contains=["hello"],
        not_contains=["world"],
        contains_cs=["Missing"],
        not_contains_cs=["xyz"],
        regex_match=["func"],
        regex_not_match=["panic"],
    )
    assert verdict.status == "failed"
    assert verdict.score == 0.5
    assert verdict.feedback == (
        "Found forbidden substring: world; Missing expected substring (case-sensitive): Missing; "
        "Found forbidden pattern: panic"
    )


def test_what_holds_passes_and_says_so():
    verdict = grade("Deployed to x", contains=["deployed to"], regex_match=["^Dep"], not_contains=["denied"])
    assert (verdict.status, verdict.score, verdict.feedback) == ("passed", 1.0, "All text checks passed")


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"contains": ["ERROR"]}, "passed"),
        ({"not_contains": ["ERROR"]}, "failed"),
        ({"contains_cs": ["ERROR"]}, "failed"),
        ({"not_contains_cs": ["ERROR"]}, "passed"),
        ({"regex_match": ["ERROR"]}, "failed"),
        ({"regex_match": ["(?i)ERROR"]}, "passed"),
        ({"regex_not_match": ["ERROR"]}, "passed"),
        ({"contains": ["ÉTÉ"]}, "passed"),
    ],
)
def test_case_counts_only_where_it_says_so(options, status):
    assert grade("an error, l'été", **options).status == status


def test_the_same_text_twice_counts_twice():
    assert grade("a", contains=["a", "a", "b"]).score == pytest.approx(2 / 3)


def test_a_failed_check_shows_what_was_there_instead():
    (check,) = grade("the quick fox", not_contains=["Quick"]).checks
    assert check.actual == "the quick fox"
    (check,) = grade("x" * 1000, contains=["y"]).checks
    assert len(check.actual) < 300


def test_lookaround_works():
    assert grade("foobar", regex_match=["foo(?=bar)"], regex_not_match=["foo(?!bar)"]).status == "passed"


@pytest.mark.parametrize("option", ["regex_match", "regex_not_match"])
def test_a_pattern_that_runs_out_of_time_is_undecided(option):
    verdict = grade("a" * 40 + "b", **{option: [r"(?!z)(a|a)+$"]})
    assert (verdict.status, verdict.score) == ("error", 0.0)
    assert "ran out of time" in verdict.feedback


def test_a_failed_check_decides_even_beside_an_undecided_one():
    assert grade("a" * 40 + "b", regex_match=[r"(?!z)(a|a)+$"], contains=["z"]).status == "failed"


@pytest.mark.parametrize("option", OPTIONS)
def test_an_empty_text_or_pattern_is_refused(option):
    with pytest.raises(ValidationError):
        TextGrader(**{option: [""]})


@pytest.mark.parametrize("options", [{}, {option: [] for option in OPTIONS}])
def test_a_grader_that_checks_nothing_is_refused(options):
    with pytest.raises(ValidationError, match="checks nothing"):
        TextGrader(**options)


def test_a_bad_pattern_is_refused_with_its_place_in_the_list():
    with pytest.raises(ValidationError) as refusal:
        TextGrader(regex_match=["fine", "[invalid"])
    (error,) = refusal.value.errors()
    assert error["loc"][:2] == ("regex_match", 1)
    assert "'[' is never closed" in error["msg"]


@pytest.mark.parametrize("options", [{"contain": ["a"]}, {"contains": "a"}, {"contains": [1]}, {"regex_match": [1]}])
def test_a_misspelt_key_or_a_wrong_shape_is_refused(options):
    with pytest.raises(ValidationError):
        TextGrader(**options)


def test_an_output_with_half_characters_can_be_graded():
    assert grade("a\ud800b\0", contains=["A"], regex_match=["b"], regex_not_match=["(?=c)c"]).status == "passed"


@pytest.mark.parametrize(
    ("needle", "output", "found"),
    [
        ("ΟΔΟΣ", "ΟΔΟΣΗΜΟ", True),
        ("οδοσ", "Η οδος", True),
        ("istanbul", "in İSTANBUL", True),
        ("İ", "i", True),
        ("strasse", "Straße", False),
        ("istanbul", "ıstanbul", False),
    ],
)
def test_case_is_folded_character_by_character_in_every_text_grader(needle, output, found):
    trace = Trace(input="", output=output)
    for wanted, graders in {
        found: [
            TextGrader(contains=[needle]),
            KeywordGrader(must_contain=[needle]),
            ContainsGrader(values=[needle]),
            ContainsAnyGrader(values=[needle]),
        ],
        not found: [
            TextGrader(not_contains=[needle]),
            KeywordGrader(must_not_contain=[needle]),
            NotContainsGrader(values=[needle]),
        ],
    }.items():
        assert [grader for grader in graders if grader.grade(trace).passed is not wanted] == []


@given(st.text(), st.text(), st.text())
def test_what_is_in_a_text_is_found_whatever_stands_around_it(before, part, after):
    folded = fold_case(before + part + after)
    assert len(folded) == len(before + part + after)
    assert folded == fold_case(before) + fold_case(part) + fold_case(after) == fold_case(folded)
    assert fold_case(part.swapcase()) == fold_case(part) or not part.isascii()


def test_pattern_is_short_for_one_more_regex_match():
    verdict = grade("tagged", pattern=r"v\d+", contains=["tagged"], regex_match=["tag"])
    assert (verdict.score, verdict.feedback) == (pytest.approx(2 / 3), r"Missing expected pattern: v\d+")
    assert grade("v1", pattern=r"v\d+").status == "passed"


@pytest.mark.parametrize("options", [{"regex_match": ["$a"]}, {"regex_not_match": [r"end$\nnext"]}])
def test_a_pattern_that_no_text_matches_is_refused(options):
    with pytest.raises(ValidationError, match="can match no text"):
        TextGrader(**options)


@pytest.mark.parametrize("options", [{"regex_match": ["ok", "a*"]}, {"pattern": "^"}, {"regex_not_match": ["error|"]}])
def test_a_pattern_that_every_text_matches_is_refused(options):
    with pytest.raises(ValidationError, match="matches every text"):
        TextGrader(**options)
