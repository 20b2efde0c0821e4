"""JUnit XML: valid whatever an agent printed, and true about what failed, what is undecided and what was not run."""

import io
import xml.etree.ElementTree as ElementTree

import pytest
from hostile import STRINGS, hostile_run
from hypothesis import given
from hypothesis import strategies as st

from results_made import a_grade, a_result, a_run
from waza.model import Check, Trace
from waza.reports.junit import JunitReport
from waza.untrusted.text import clipped, visible

CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "testcase": {"properties", "failure", "error", "skipped", "system-out", "system-err"},
    "properties": {"property"},
}


def suite_of(run):
    text = b"".join(JunitReport().render(run))
    root = ElementTree.parse(io.BytesIO(text)).getroot()
    for element in root.iter():
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    (suite,) = root
    cases = suite.findall("testcase")
    for name, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(name)) == int(root.get(name)) == sum(case.find(element) is not None for case in cases)
    assert int(suite.get("tests")) == len(cases)
    return suite, cases


def properties(element):
    return {one.get("name"): one.get("value") for one in element.iterfind("properties/property")}


@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_a_strict_reader_gets_every_text_back(text):
    suite, cases = suite_of(hostile_run(text))
    shown = visible(text, lines=True)
    assert suite.get("name") == (f"{shown} [{shown}]" if text else "")
    assert [case.get("name") for case in cases] == [f"{shown}#0 (trial {number})" for number in range(1, 5)]
    failed, error, skipped, not_run = cases
    words = visible(clipped(text, 2_000), lines=True)
    assert failed.find("failure").text.count(words) >= 4
    assert failed.find("failure").get("message").startswith(visible(text[:100], lines=True))
    assert (failed.findtext("system-out") or "") == shown
    assert (error.findtext("system-err") or "") == shown
    assert error.find("error") is not None
    assert skipped.find("skipped").get("message") == (shown or "not graded")
    assert not_run.find("error").get("message") == "not run"


@given(st.text(st.characters(codec=None), max_size=80))
def test_any_text_at_all_comes_back_as_it_is_shown(text):
    _, (case,) = suite_of(a_run([a_result(status="failed", output=text)]))
    assert (case.findtext("system-out") or "") == visible(text, lines=True)


def test_a_file_that_does_not_escape_would_be_detected():
    def readable(text):
        try:
            ElementTree.fromstring(f"<a>{text}</a>".encode("utf-8", "surrogatepass"))
        except (ElementTree.ParseError, ValueError):
            return False
        return True

    assert sum(not readable(text) for text in STRINGS) > 25


def test_failure_text_has_the_checks_with_what_was_expected_and_found():
    checks = [
        Check(True, "fine"),
        Check(False, "says hello", "Missing: hello", "hello", ["bye", 1]),
        Check(None, "cost"),
    ]
    grades = [a_grade(0.5, "failed", checks=checks), a_grade(name="judge", status="error", score=0.0, checks=[])]
    _, (case,) = suite_of(a_run([a_result(status="failed", grades=grades, reason="timeout")]))
    failure = case.find("failure")
    assert failure.get("message") == "timeout · greets: Missing: hello"
    assert failure.get("type") == "timeout"
    assert failure.text.split("\n") == [
        "timeout",
        "✗ greets: Missing: hello",
        "    expected: hello",
        '    found:    ["bye",1]',
        "? greets: cost",
        "? judge: said",
    ]
    assert case.get("assertions") == "3"


def test_an_agent_that_could_not_run_is_an_error_not_a_failure():
    trace = Trace(input="", output="", status="error", error="no such program")
    _, (case,) = suite_of(a_run([a_result(status="error", trace=trace, grades=[], reason="no such program")]))
    assert case.find("failure") is None
    assert case.find("error").get("message") == "no such program"
    assert case.findtext("system-err") == "no such program"


def test_a_passed_trial_has_no_output_and_says_what_it_cost():
    run = a_run([a_result()], tasks=[{"id": "t", "tags": ["a", "b"], "golden": True}], model="m-1", id="r")
    suite, (case,) = suite_of(run)
    assert case.find("system-out") is None
    assert properties(case) == {"score": "1.0", "tags": "a, b", "golden": "true", "tokens": "15", "tool_calls": "1"}
    assert (case.get("classname"), case.get("name"), case.get("time")) == ("suite [m-1]", "t", "0.002")
    facts = properties(suite)
    assert (facts["run"], facts["model"], facts["pass_rate"], facts["exit_code"]) == ("r", "m-1", "1.0", "0")
    assert suite.get("timestamp") == "2026-01-02T03:04:05Z"
