"""The compare page: flips first, each task's change, what the difference shows, two trajectories side by side."""

import time

import pytest
from hostile import STRINGS, hostile_run
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pages_read import faults, links, local, read
from runs_made import store_run
from trials_made import CALLS, a_result, a_run, a_trace

from waza.model import ToolEvent
from waza.reports.html.compare import rows_of
from waza.reports.html.markup import href

TASKS = ("refund", "cancel", "greet")
OTHERWISE = (CALLS[0], ("read", {"path": "other.md"}, 1000, 500, True), *CALLS[2:4], ("mail", {}, 9000, 10, True))


@pytest.fixture(scope="module", autouse=True)
def runs(folder):
    parent = folder / "x" / "runs"
    after = [a_result("refund", trace=a_trace(OTHERWISE, "No.")), a_result("cancel", passes=True), a_result("greet")]
    a_run(parent, "one", [a_result(task, passes=task != "greet") for task in TASKS])
    a_run(parent, "two", after, model="m-2")
    a_run(parent, "three", [a_result(task, passes=True) for task in TASKS], model="m-3")
    a_run(parent, "alone", [a_result("elsewhere")], suite="other")
    for name, rate in (("hostile-1", False), ("hostile-2", True)):
        run = hostile_run(*STRINGS)
        results = [replace(one, status="passed", grades=[]) if rate and one.trial == 1 else one for one in run.results]
        store_run(parent, run, results, run_id=name)
    return parent


def shown(site, path):
    status, _, page = site.get(path)
    assert status == 200, path
    assert faults(page) == []
    return page


def text_of(page):
    return " ".join(" ".join(read(page)[0].itertext()).split())


def rows(page, label):
    table = next(one for one in read(page) if one.attrib.get("aria-label") == label)
    found = [row for row in table.iter() if local(row) == "tr"]
    return [" ".join(" ".join(row.itertext()).split()) for row in found][1:]


class TestTwoRuns:
    @pytest.fixture
    def page(self, site):
        return shown(site, "/compare?run=one&run=two")

    def test_the_verdict_and_the_flips_come_before_the_numbers(self, page):
        text = text_of(page)
        order = [text.index(words) for words in ("Too little", "Flips: 1 regressed", "Differences", "Tasks: 3")]
        assert order == sorted(order)
        assert "✗ regressed refund" in text
        assert "first difference at call 2: read with other arguments" in text

    def test_every_task_has_its_change_the_flips_first(self, page):
        found = rows(page, "tasks")
        assert found[0].startswith("refund ✓ ✗ regressed 1 of 1 → 0 of 1 1.00 → ")
        assert {row.split()[0] for row in found} == set(TASKS)

    def test_differences_have_intervals_around_a_line_at_zero(self, page):
        kinds = [one.attrib.get("class") for one in read(page) if local(one) == "line"]
        assert kinds.count("zero") >= 3 and kinds.count("reach") % 3 == 0 and "reach" in kinds
        assert "pass rate -33.3 points" in text_of(page).replace("−", "-")

    def test_its_links_lead_to_pages(self, site, page):
        for link in dict.fromkeys(links(page)):
            if not link.startswith("#"):
                assert site.get(link)[0] == 200, link


class TestSideBySide:
    def test_trajectories_are_side_by_side_from_their_first_difference(self, site):
        page = shown(site, "/compare?run=one&run=two&task=refund")
        found = rows(page, "trajectories side by side")
        assert found[0].startswith("= 1 search")
        assert found[1].startswith("≠ first difference 2 read") and "path : policy.md → other.md" in found[1]
        assert found[2].startswith("= 3 read") and found[3].startswith("= 4 bash")
        assert "5 edit" in found[4] and "5 mail" in found[4]
        assert "grades of 2 differ" in text_of(page)

    def test_what_was_alike_for_long_is_folded(self, site, runs):
        same = tuple(("read", {"path": str(n)}, n, 1, True) for n in range(50))
        a_run(runs, "long-1", [a_result(trace=a_trace((*same, CALLS[0])))])
        a_run(runs, "long-2", [a_result(trace=a_trace((*same, CALLS[3])))])
        page = wait_for(site, "/compare?run=long-1&run=long-2&task=refund")
        assert "47 calls equal at the start" in text_of(page)
        assert len(rows(page, "trajectories side by side")) == 4

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
    def test_every_call_of_both_is_in_one_row_in_order(self, ones, others):
        before, after = ([ToolEvent(tool_name=name) for name in names] for names in (ones, others))
        found, same = rows_of(before, after)
        assert [row.before[0] for row in found if row.before] == list(range(1, len(ones) + 1))
        assert [row.after[0] for row in found if row.after] == list(range(1, len(others) + 1))
        assert all(row.is_same for row in found[:same])
        assert same == len(ones) == len(others) or not found[same:] or not found[same].is_same


def wait_for(site, path):
    until = time.monotonic() + 20
    while (answer := site.get(path))[0] != 200:
        assert time.monotonic() < until, f"{path} never comes"
        time.sleep(0.1)
    return answer[2]


def test_three_runs_have_a_column_each_and_a_verdict_for_each_pair(site):
    page = shown(site, "/compare?run=one&run=two&run=three")
    text = text_of(page)
    assert "A → B" in text and "A → C" in text
    assert rows(page, "the runs")[2].startswith("C shop")
    assert "greet ✗ ✗" in next(row for row in rows(page, "tasks") if row.startswith("greet"))


def test_one_run_or_none_leads_to_a_choice_of_its_own_suite(site):
    page = shown(site, "/compare?run=one")
    options = [one for one in read(page) if local(one) == "option"]
    assert "alone" not in {one.attrib["value"] for one in options}
    assert next(one.attrib["value"] for one in options if "selected" in one.attrib) == "one"
    shown(site, "/compare")


def test_runs_without_a_task_in_common_are_reported(site):
    text = text_of(shown(site, "/compare?run=one&run=alone"))
    assert "no task was decided in both runs" in text and "Tasks: 0 in common" in text


def test_a_missing_run_is_reported(site):
    for path in ("/compare?run=one&run=none", "/compare?run=one&run=two&task=none"):
        status, _, page = site.get(path)
        assert status == 404 and faults(page) == []


def test_changed_graders_are_reported(site, runs):
    for name, kind in (("graded-1", "text"), ("graded-2", "regex")):
        folder = a_run(runs, name, [a_result("refund", passes=True)])
        file = folder / "run.json"
        file.write_text(file.read_text().replace('"spec":{', f'"spec":{{"graders":{{"refund":[{{"type":"{kind}"}}]}},'))
    page = wait_for(site, "/compare?run=graded-1&run=graded-2")
    assert "the graders of refund differ between the runs" in text_of(page)


def test_hostile_runs_are_compared_as_text(site):
    page = shown(site, "/compare?run=hostile-1&run=hostile-2")
    assert len(page.encode()) < 1_000_000
    beside = [link for link in links(page) if "task=" in link]
    for link in beside[:60:7]:
        shown(site, link)
    assert faults(site.get("/compare?run=hostile-1&run=hostile-2&export=1")[2], is_export=True) == []
    for text in STRINGS[:12]:
        status, _, page = site.get(href("compare", run=[text or "x", text], task=text, a=text, skip=text))
        assert status in (200, 404) and faults(page) == []
