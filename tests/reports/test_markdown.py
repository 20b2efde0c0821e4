"""Markdown, read by another program: text of agents is code and nothing else; no link, no image, no HTML."""

import re

import pytest
from hostile import STRINGS, hostile_run
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from results_made import a_grade, a_result, a_run
from waza.model import Check
from waza.reports.document import cell, code, fenced
from waza.reports.markdown import MarkdownReport
from waza.reports.run_before import EarlierRun, before_of
from waza.untrusted.text import clipped, visible

OURS = {"heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td", "strong"}
PLAIN = {"inline", "text", "code_inline", "fence", "softbreak", "hardbreak", "html_block"}
DETAILS = re.compile(
    r"<details><summary>[✅❌❔] <code>[^<]*</code> <code>[^<]*</code></summary>\n|</details>\n"
    r"|<!-- waza \S+ \S+ -->\n"
)


def tokens_of(text):
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        yield token
        yield from token.children or ()


def refused(text):
    """What is in the text that the report did not put there."""
    wrong = []
    for token in tokens_of(text):
        kind = token.type.removesuffix("_open").removesuffix("_close")
        if kind not in OURS | PLAIN:
            wrong.append(token.type)
        elif kind == "html_block" and not DETAILS.fullmatch(token.content):
            wrong.append(token.content)
    return wrong


def report(run, before=None):
    return b"".join(MarkdownReport().render(run, before)).decode("utf-8")


@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_a_reader_gets_every_text_back_as_code(text):
    made = report(hostile_run(text), EarlierRun(text, {f"{text}#0": "passed", text: "x"}))
    assert refused(made) == []
    spans = [token.content for token in tokens_of(made) if token.type == "code_inline"]
    assert spans.count(visible(clipped(text, 200))) >= (5 if text else 0)
    assert visible(clipped(f"{text}#0", 200)) in spans
    words = " ".join(token.content for token in tokens_of(made) if token.type == "text")
    assert not re.search("owned|script|@|SUM|HYPERLINK", words)


def test_a_report_that_does_not_escape_would_be_detected():
    assert len([text for text in STRINGS if refused(f"| a |\n|---|\n| {text} |\n\n{text}\n")]) > 20


@given(st.text(st.characters(codec=None), min_size=1, max_size=60) | st.text("`|\\ \n<", min_size=1, max_size=12))
def test_any_text_comes_back_from_a_line_a_cell_and_a_block(text):
    def only(source, kind):
        (found,) = (token.content for token in tokens_of(source) if token.type == kind)
        return found

    shown = visible(text)
    assert only(f"x {code(text)} y\n", "code_inline") == shown
    assert only(f"| a | b |\n|---|---|\n| {cell(text)} | c |\n", "code_inline") == shown
    assert only(fenced(text, 1_000), "fence") == visible(text, lines=True) + "\n"


def test_failed_checks_show_what_was_expected_and_found():
    checks = [Check(False, "says hello", "Missing: hello", "hello", "bye | bye")]
    made = report(a_run([a_result("good"), a_result("bad", status="failed", grades=[a_grade(0.0, checks=checks)])]))
    assert "**1 of 2 tasks passed (50 %, 95 % interval 1–99 %) · 1 failed**" in made
    assert "❌ `greets`: `Missing: hello`" in made
    assert "| expected | `hello` |\n| found | `bye \\| bye` |" in made
    assert "| ✅ | `good` | 1 of 1 | 1.00 | 2 ms |" in made


def test_against_another_run_it_lists_the_tasks_whose_status_changed():
    results = [a_result("a"), a_result("b", status="failed"), a_result("c", status="error"), a_result("new")]
    before = EarlierRun("old", {"a": "failed", "b": "passed", "c": "passed", "gone": "passed"})
    made = report(a_run(results), before)
    assert "Of 3 common tasks, 1 pass now, 2 did before (-33 points). 1 regressed, 1 fixed." in made
    rows = re.findall(r"^\| . \| `(\w)` \| `(\w+)` \| `(\w+)` \|$", made, re.M)
    assert rows == [("b", "passed", "failed"), ("a", "failed", "passed"), ("c", "passed", "undecided")]
    assert "**Too little evidence: no task was decided in both runs.**" in made
    assert "new: `new`" in made and "not in this run: `gone`" in made


def test_against_another_run_it_says_whether_that_is_more_than_chance():
    def run(status):
        return a_run([a_result(f"t{number}", status=status) for number in range(20)])

    assert "**Worse: pass rate -100.0 points over 20 tasks" in report(run("failed"), before_of(run("passed")))
    assert "No task changed its status." in report(run("failed"), before_of(run("failed")))


def test_many_trials_and_checks_are_counted_not_listed():
    checks = [Check(False, f"claim {number}") for number in range(20)]
    results = [a_result(trial=n, status="failed", grades=[a_grade(0.0, checks=checks)]) for n in range(1, 9)]
    made = report(a_run(results))
    assert made.count("**Trial") == 3 and "… and 5 more trials" in made
    assert made.count("… and 12 more checks") == 3
