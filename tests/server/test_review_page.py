"""The review page: the only one that writes, with --review alone, for forms of its own session."""

import json
from urllib.parse import urlencode

import pytest
from pages_read import faults, links, local, read
from runs_made import a_trial, plan, store_run
from serving import served

from waza.cli import run_command
from waza.cli.serve import StoredReviewQueue
from waza.errors import SpecError
from waza.runs.store import open_run
from waza.runs.verdicts import read_verdicts

SUITE = {
    "name": "reviewed",
    "config": {"executor": "mock"},
    "tasks": [
        {"id": name, "prompt": f"say {name}", "mock": {"output": f"hello {name}"}} for name in ("one", "two", "<b>")
    ],
    "graders": [
        {"type": "text", "name": "greets", "contains": ["hello"]},
        {
            "type": "human",
            "name": "polite",
            "instructions": "Is it polite?\nReally?",
            "criteria": ["<i>no shouting</i>"],
        },
    ],
}


@pytest.fixture(scope="module")
def suite(folder):
    """A suite that has run once: its folder."""
    made = folder / "reviewed"
    made.mkdir()
    (made / "eval.yaml").write_text(json.dumps(SUITE))
    assert run_command(["run", "-q", str(made)]) == 3
    return made


@pytest.fixture
def again(suite):
    """The suite without any verdict."""
    (suite / "verdicts.jsonl").unlink(missing_ok=True)
    return suite


@pytest.fixture(scope="module")
def run(suite):
    return next(path.name for path in (suite / "runs").iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def unasked(folder):
    """A run whose graders need no people."""
    return store_run(folder / "other" / "runs", plan(tasks=1), [a_trial("task-0000")], run_id="unasked").name


@pytest.fixture(scope="module")
def site(folder, suite, unasked):
    with served(folder, can_review=True, review_queue=StoredReviewQueue(folder)) as found:
        yield found


def form_of(site, path):
    """The fields of the form that records a verdict on a page."""
    page = site.get(path)[2]
    assert faults(page) == []
    review_queue = next(one for one in read(page) if one.attrib.get("id") == "verdict-form")
    inputs = [one.attrib for one in review_queue.iter() if local(one) == "input" and one.attrib.get("type") != "radio"]
    return {one["name"]: one.get("value", "") for one in inputs}


def post(site, fields, **headers):
    sent = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{site.host}", **headers}
    sent = {name: value for name, value in sent.items() if value is not None}
    return site.get("/review", "POST", sent, urlencode(fields))


def given(suite):
    return [(one.task, one.verdict, one.reason, one.reviewer) for one in read_verdicts(suite / "verdicts.jsonl")]


def test_a_verdict_is_recorded_and_the_next_output_follows(site, again, run):
    fields = form_of(site, f"/review?run={run}&by=ana") | {"answer": "fail", "reason": " too short "}
    status, headers, _ = post(site, fields)
    assert status == 303 and headers["location"] == f"/review?run={run}&by=ana&at=2"
    _, *rest = given(again)[0]
    assert rest == ["fail", "too short", "ana"]
    assert form_of(site, headers["location"])["evidence"] != fields["evidence"]


def test_after_the_last_one_the_run_is_graded_again(site, again, run):
    location = f"/review?run={run}"
    for _ in range(3):
        _, headers, _ = post(site, form_of(site, location) | {"answer": "pass"})
        location = headers["location"]
    assert location.endswith("&done=3")
    assert {result.status for result in open_run(again / "runs" / run).results} == {"passed"}
    assert "3 results changed" in site.get(location)[2]
    again_one = post(site, form_of(site, location) | {"answer": "fail"})[1]["location"]
    assert "done=" in again_one, "a later verdict of the same person counts, and the run follows"
    assert sorted(result.status for result in open_run(again / "runs" / run).results) == ["failed", "passed", "passed"]


def test_no_verdict_of_a_grader_or_another_person_is_shown_before_one_has_answered(site, again, run):
    fields = form_of(site, f"/review?run={run}&by=ana&at=1") | {"answer": "fail", "reason": "ana is not pleased"}
    post(site, fields)
    assert "ana is not pleased" not in site.get(f"/review?run={run}&by=ben&at=1")[2]
    assert "ana is not pleased" in site.get(f"/review?run={run}&by=ana&at=1")[2]


def test_a_judge_is_reviewed_without_showing_its_verdict_first(site, again, run):
    path = f"/review?run={run}&grader=greets&by=ana&at=1"
    assert ". The grader&#x27;s: " not in site.get(path)[2]
    post(site, form_of(site, path) | {"answer": "pass"})
    assert ". The grader&#x27;s: " in site.get(path)[2]
    assert read_verdicts(again / "verdicts.jsonl")[0].said == "pass"


@pytest.mark.parametrize(("change", "headers", "status"), [
    ({"form_key": ""}, {}, 403),
    ({"form_key": "0" * 64}, {}, 403),
    ({"form_key": None}, {}, 403),
    ({}, {"Origin": "http://evil.example"}, 403),
    ({}, {"Origin": "null"}, 403),
    ({}, {"Origin": None}, 405),
    ({}, {"Sec-Fetch-Site": "cross-site"}, 403),
    ({}, {"Sec-Fetch-Site": "same-site"}, 403),
    ({}, {"Cookie": ""}, 401),
    ({}, {"Host": "evil.example"}, 421),
    ({"reason": "x" * 70_000}, {}, 413),
    ({"answer": ""}, {}, 404),
    ({"answer": "maybe"}, {}, 404),
    ({"answer": None}, {}, 404),
    ({"evidence": "0" * 32}, {}, 404),
    ({"question": "other"}, {}, 404),
    ({"name": "greets"}, {}, 404),
    ({"run": "none"}, {}, 404),
    ({"run": "../reviewed"}, {}, 404),
    ({"grader": "none"}, {}, 404),
])  # fmt: skip
def test_a_form_that_is_not_right_writes_nothing(site, again, run, change, headers, status):
    fields = form_of(site, f"/review?run={run}") | {"answer": "pass"} | change
    fields = {name: value for name, value in fields.items() if value is not None}
    assert post(site, fields, **headers)[0] == status
    assert given(again) == []


def test_the_same_form_unchanged_would_have_written(site, again, run):
    assert post(site, form_of(site, f"/review?run={run}") | {"answer": "pass"})[0] == 303
    assert len(given(again)) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_looking_writes_nothing(site, again, run, method):
    fields = form_of(site, f"/review?run={run}") | {"answer": "pass", "do": "settle"}
    assert site.get(f"/review?{urlencode(fields)}", method)[0] == 200
    assert given(again) == []


@pytest.mark.parametrize("path", ["/", "/compare", "/runs/x", "/runs/x/task", "/review/x", "/static/app.js", "/events"])
def test_no_other_page_takes_a_form(site, run, path):
    fields = form_of(site, f"/review?run={run}") | {"answer": "pass"}
    origin = {"Origin": f"http://{site.host}"}
    assert site.get(path.replace("x", run), "POST", origin, urlencode(fields))[0] == 405


def test_without_review_there_is_no_such_page(folder, suite, run):
    with served(folder) as site:
        assert site.get(f"/review?run={run}")[0] == 404
        assert post(site, {"run": run, "answer": "pass"})[0] == 405
        assert "/review" not in links(site.get("/")[2])


def test_the_page_names_the_runs_that_have_something_to_review(site, run):
    page = site.get("/review")[2]
    assert faults(page) == []
    assert f"/review?run={run}" in links(page)


def test_a_missing_suite_is_reported(site, suite, run):
    (suite / "eval.yaml").rename(suite / "away.yaml")
    try:
        status, _, page = site.get(f"/review?run={run}")
        assert status == 404 and "no longer exists" in page and faults(page) == []
    finally:
        (suite / "away.yaml").rename(suite / "eval.yaml")


def test_an_exported_page_holds_no_key(site, run):
    key = form_of(site, f"/review?run={run}")["form_key"]
    page = site.get(f"/review?run={run}&export=1")[2]
    assert key and key not in page and faults(page, is_export=True) == []


def test_an_exported_page_records_nothing(site, run):
    assert "XMLHttpRequest" not in site.get(f"/review?run={run}&export=1")[2]


def test_only_a_trial_that_people_are_asked_about_leads_to_the_review(site, unasked, run):
    assert f"/review?run={run}" in links(site.get(f"/runs/{run}/task?id=one")[2])
    assert f"/review?run={unasked}" not in links(site.get(f"/runs/{unasked}/task?id=task-0000")[2])


def test_a_run_whose_suite_is_elsewhere_is_not_reviewed_and_nothing_is_written_there(again, run, folder):
    place = again / "runs" / run
    with pytest.raises(SpecError, match="is not below"):
        StoredReviewQueue(folder / "other").pile(place, ())
    with pytest.raises(SpecError, match="is not below"):
        StoredReviewQueue(folder / "other").settle(place)
    assert not (again / "verdicts.jsonl").exists()
    assert StoredReviewQueue(folder).pile(place, ()).items
