"""The headline of a run in every report."""

import json

from results_made import a_result, a_run
from waza.reports.html import HtmlReport
from waza.reports.interpretation import rate_line
from waza.reports.json import JsonReport
from waza.reports.markdown import MarkdownReport
from waza.runs.summary import summarize


def test_undecided_tasks_are_no_failures_in_the_headline():
    results = [a_result(f"t{n}") for n in range(5)] + [a_result(f"u{n}", status="error", grades=[]) for n in range(15)]
    run = a_run(results, tasks=[f"t{n}" for n in range(5)] + [f"u{n}" for n in range(15)])
    words = "5 of 5 decided tasks passed (100 %, 95 % interval 48–100 %), 15 undecided: 25–100 %"
    assert rate_line(summarize(run)) == words
    assert words in b"".join(MarkdownReport().render(run)).decode()
    page = b"".join(HtmlReport().render(run)).decode()
    assert "decided tasks passed" in page and "so 25–100 % of all pass" in page
    found = json.loads(JsonReport().text(run))["summary"]
    assert found["success_rate"] == 0.25
    assert found["statistics"]["decided_rate"] == 1.0
    assert found["statistics"]["success_rate_bounds"] == [0.25, 1.0]
