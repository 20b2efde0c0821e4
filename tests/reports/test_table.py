"""The terminal's table: the mark and the name of each task are there in every window, other columns give way."""

import io

import pytest
from msgspec.structs import replace
from odd_specs import WHOLE
from rich.console import Console

from results_made import a_grade, a_result, a_run
from waza.model import SkillInvocation, Trace
from waza.reports.document import Grid, print_document
from waza.reports.html import HtmlReport
from waza.reports.markdown import MarkdownReport
from waza.reports.table import TableReport, models_document

LONG = "a-task-with-a-rather-long-name-of-more-than-forty-characters"


def printed(run, width, encoding="utf-8"):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    TableReport().print(run, Console(file=file, width=width, markup=False, highlight=False, emoji=False))
    file.flush()
    return file.buffer.getvalue().decode(encoding).splitlines()


def test_every_report_names_and_describes_the_rubric_that_judged():
    rubric = {"name": "groundedness", "version": "1.0.0", "description": "Every claim has a source."}
    run = a_run([a_result(grades=[replace(a_grade(name="judged"), details={"rubric": rubric})])])
    run = replace(run, spec=run.spec | {"judged": {"t": ["judged"]}})
    rubric = "groundedness 1.0.0"
    for report in (TableReport(), TableReport(verbose=True), MarkdownReport(), HtmlReport()):
        page = b"".join(report.render(run)).decode()
        assert rubric in page and "Every claim has a source." in page, report
    assert (
        f"        rubric {rubric}: Every claim has a source."
        in b"".join(TableReport(verbose=True).render(run)).decode()
    )


def a_mixed_run(trials):
    wrong = [a_grade(0.0)]
    results = [a_result("bad", n, status="failed", grades=wrong) for n in range(1, trials + 1)]
    results += [a_result(LONG, n) for n in range(1, trials + 1)]
    return a_run(results, tasks=[LONG, "bad"], config={"trials_per_task": trials})


@pytest.mark.parametrize(("encoding", "marks"), [("utf-8", ("✓", "✗")), ("ascii", ("ok", "FAIL"))])
@pytest.mark.parametrize("trials", [1, 3])
def test_a_narrow_terminal_shows_mark_and_name_of_every_task_in_a_line(encoding, marks, trials):
    for width in (*range(30, 100, 3), 200):
        lines = printed(a_mixed_run(trials), width, encoding)
        good, bad = (next(line for line in lines if name in line) for name in ("a-task-with", " bad"))
        assert good.startswith(f"{marks[0]:{len(marks[1])}}  {LONG[:18]}"), width
        assert bad.startswith(f"{marks[1]}  bad"), width
        assert max(len(good), len(bad)) <= width
        assert "1.00" in good or width < 40, width
        assert f"{2 * trials} ms" in good or width < 75, width
        assert "3 of 3" in good or trials == 1 or width < 60, width


def test_a_wide_terminal_shows_as_much_of_a_name_as_before():
    line = next(line for line in printed(a_mixed_run(1), 80) if "a-task" in line)
    assert line.rstrip() == f"✓  {LONG[:43]}…      1.00        2 ms"


@pytest.mark.parametrize("width", [40, 50, 69, 120])
def test_a_narrow_terminal_shows_the_mark_of_every_trigger_test(width):
    silent = Trace(input="p", output="o", skill_invocations=[])
    used = Trace(input="p", output="o", skill_invocations=[SkillInvocation(name="s")])
    answers = [
        a_result("trigger:should-1", trace=silent, grades=[]),
        a_result("trigger:control", trace=used, grades=[]),
    ]
    triggers = {**WHOLE["triggers"], "skills": ["s"]}
    lines = printed(a_run(triggers=answers, spec={"triggers": triggers}), width)
    assert any(line.startswith("✗  should-1") for line in lines), lines


@pytest.mark.parametrize("width", [50, 69, 120])
def test_an_interval_stays_in_one_line_of_a_terminal_table(width):
    results = [a_result(f"task-{n}") for n in range(8)]
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    row = ("a grader with many words in its name", "0.50", "0.75", "better", "+0.12 to +0.34", "why it came to that")
    columns = ("grader", "before", "after", "change", "95 % interval", "a column with a long title")
    print_document([Grid(columns, [tuple((word,) for word in row)])], console)
    print_document(models_document([a_run(results, model="a-model-with-a-long-name") for _ in range(2)]), console)
    made = console.file.getvalue()
    assert "+0.12 to +0.34" in made
    assert "63–100 %" in made


def test_an_interval_stays_in_one_line_of_a_page():
    made = b"".join(HtmlReport().render(a_run([a_result(f"task-{n}") for n in range(8)]))).decode()
    assert '<span class="whole">63–100 %</span>' in made
    assert ".whole { white-space: nowrap; }" in made
