"""The pages of a trial, of compared runs and of review in a real browser: keys work, hostile text runs nothing."""

import json
from urllib.parse import quote

import pytest
from hostile import STRINGS, hostile_run
from runs_made import store_run
from serving import served
from test_browser import AXE, did, faults_by_axe, open_, press, until
from trials_made import a_result, a_run, a_trace, with_snapshot

from waza.cli import run_command
from waza.cli.serve import StoredReviewQueue
from waza.runs.store import open_run
from waza.runs.verdicts import read_verdicts

HOSTILE = STRINGS[0]
SUITE = {
    "name": HOSTILE,
    "config": {"executor": "mock"},
    "tasks": [
        {"id": f"task-{number}", "prompt": text, "mock": {"output": text or "-", "tool_events": [{"tool_name": text}]}}
        for number, text in enumerate(STRINGS[:3])
    ],
    "graders": [{"type": "human", "name": HOSTILE, "instructions": HOSTILE, "criteria": STRINGS[1:20]}],
}


@pytest.fixture(scope="module")
def suite(folder):
    """A suite with hostile words in all places that people see, run once."""
    made = folder / "reviewed"
    made.mkdir()
    (made / "eval.yaml").write_text(json.dumps(SUITE))
    assert run_command(["run", "-q", str(made)]) == 3
    return made


@pytest.fixture(scope="module", autouse=True)
def runs(folder, tmp_path_factory):
    parent = folder / "x" / "runs"
    a_run(parent, "one", [a_result(passes=True), a_result("other", passes=True)])
    two = a_run(
        parent, "two", [a_result(trial=1), a_result(trial=2, passes=True)], files=[{"path": "a", "content": "1\n"}]
    )
    workspace = tmp_path_factory.mktemp("workspace")
    (workspace / "a").write_text(f"2\n{HOSTILE}\n")
    with_snapshot(two, workspace, a_result())
    many = [(f"tool-{place % 9}", {"n": place}, place * 10, 15, place % 97 > 0) for place in range(1_000)]
    a_run(parent, "large", [a_result(trace=a_trace(tuple(many)))])
    run = hostile_run(*STRINGS)
    for name in ("hostile", "hostile-2"):
        store_run(parent, run, run.results, run_id=name)
    return parent


@pytest.fixture(scope="module")
def site(folder, suite):
    with served(folder, can_review=True, review_queue=StoredReviewQueue(folder)) as found:
        yield found


@pytest.fixture(scope="module")
def signed_in(tab, site):
    open_(tab, site.made.link())
    return tab


@pytest.fixture
def page(signed_in):
    signed_in.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    return signed_in


@pytest.fixture
def reviewed(suite):
    """The address of the review, before anybody gave a verdict."""
    (suite / "verdicts.jsonl").unlink(missing_ok=True)
    return f"/review?run={next(path.name for path in (suite / 'runs').iterdir() if path.is_dir())}"


PAGES = {
    "trial": "/runs/two/task?id=refund",
    "large": "/runs/large/task?id=refund&call=700",
    "call": "/runs/two/call?id=refund&trial=1&n=4",
    "files": "/runs/two/files?id=refund",
    "diff": "/runs/two/files?id=refund&path=a",
    "compare": "/compare?run=one&run=two",
    "beside": "/compare?run=one&run=two&task=refund",
    "choice": "/compare?run=one",
    "hostile trial": f"/runs/hostile/task?id={quote(HOSTILE + '#0')}",
    "hostile beside": f"/compare?run=hostile&run=hostile-2&task={quote(HOSTILE + '#0')}",
    "reviews": "/review",
}


@pytest.mark.parametrize("name", [*PAGES, "review"])
def test_a_page_loads_does_nothing_it_must_not_and_fits_a_phone(page, site, reviewed, name):
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
    open_(page, site.url(PAGES.get(name, reviewed)))
    page.value("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert did(page, site) == []
    assert page.value("document.querySelector('main').innerText.length") > 20
    assert page.value("document.documentElement.scrollWidth") <= 390


class TestAxe:
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def axe(cls, signed_in):
        signed_in.call("Page.setBypassCSP", enabled=True)
        script = signed_in.call("Page.addScriptToEvaluateOnNewDocument", source=AXE.read_text())["identifier"]
        yield
        signed_in.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        signed_in.call("Page.setBypassCSP", enabled=False)

    @pytest.mark.parametrize(("name", "scheme"), [
        ("trial", "light"), ("call", "light"), ("files", "dark"), ("diff", "light"),
        ("compare", "dark"), ("beside", "light"), ("choice", "dark"), ("reviews", "light"), ("review", "dark"),
    ])  # fmt: skip
    def test_axe_finds_no_serious_fault(self, page, site, reviewed, name, scheme):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        open_(page, site.url(PAGES.get(name, reviewed)))
        page.value("document.querySelectorAll('details').forEach(part => part.open = true)")
        found = faults_by_axe(page)
        page.call("Emulation.setEmulatedMedia", features=[])
        assert found == []


def test_keys_go_through_the_steps_of_a_trial(page, site):
    open_(page, site.url(PAGES["trial"]))
    press(page, "j", "j")
    assert page.value("document.activeElement.parentElement.id") == "call-1"
    press(page, "n")
    assert page.value("document.activeElement.parentElement.id") == "call-4", "the next that failed"
    press(page, "Enter")
    assert page.value("document.querySelector('#call-4').open")
    press(page, "o")
    assert page.value("[...document.querySelectorAll('.call-step details')].every(call => call.open)")
    press(page, "]")
    until(page, "location.search.includes('trial=2') && document.readyState === 'complete'")


def test_an_address_opens_the_call_it_names(page, site):
    open_(page, site.url(f"{PAGES['large']}#call-700"))
    assert page.value("document.querySelector('#call-700').open")
    box = json.loads(page.value("JSON.stringify(document.querySelector('#call-700').getBoundingClientRect())"))
    assert 0 <= box["top"] < 900
    page.value("document.querySelector('.strip a').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    until(page, "location.search.includes('call=1') && document.readyState === 'complete'")


def test_people_review_with_the_keyboard_alone(page, site, suite, reviewed):
    page.value("localStorage.clear()")
    open_(page, site.url(f"{reviewed}&by=ana"))
    for answer, reason, leads_to in (("p", "j k", "at=2"), ("f", "p f", "at=3"), ("p", "", "done=3")):
        press(page, answer)
        assert page.value("document.activeElement.id") == "reason"
        page.call("Input.insertText", text=reason)
        press(page, "Enter")
        until(page, f"location.search.includes('{leads_to}') && document.readyState === 'complete'")
    assert did(page, site) == []
    given = [(one.verdict, one.reason, one.reviewer) for one in read_verdicts(suite / "verdicts.jsonl")]
    assert given == [("pass", "j k", "ana"), ("fail", "p f", "ana"), ("pass", "", "ana")]
    folder = next(path for path in (suite / "runs").iterdir() if path.is_dir())
    assert sorted(result.status for result in open_run(folder).results) == ["failed", "passed", "passed"]
    press(page, "k")
    until(page, "location.search.includes('at=2') && document.readyState === 'complete'")
    assert "Your verdict:" in page.value("document.querySelector('main').innerText")
    press(page, "j")
    until(page, "location.search.includes('at=3') && document.readyState === 'complete'")
    open_(page, site.url(reviewed))
    until(page, "location.search.includes('by=ana') && document.readyState === 'complete'")
    page.value("localStorage.clear()")
