"""The pages in a real browser: they load and work, and nothing an agent wrote runs, asks for anything or leaves."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hostile import STRINGS, hostile_run
from msgspec.structs import replace
from runs_made import a_history, a_trial, plan, store_run

from waza.runs.store import RunFolder

AXE = Path(__file__).parent.parent / "data" / "axe" / "axe.min.js"
QUIET_S = 0.25


@pytest.fixture(scope="module", autouse=True)
def runs(folder):
    parent = folder / "x" / "runs"
    run = hostile_run(*STRINGS)
    store_run(parent, run, run.results, run_id="hostile")
    a_history(parent, "shop", "gpt-5", runs=5, trials=2)
    a_history(parent, "kiosk", "haiku", runs=2, seed=3)
    (parent / "broken").mkdir()
    return parent


@pytest.fixture(scope="module")
def signed_in(tab, site):
    """The browser after somebody opened the printed link."""
    open_(tab, site.made.link())
    assert tab.value("location.href") == site.url("/")
    return tab


@pytest.fixture
def page(signed_in):
    signed_in.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    return signed_in


def open_(tab, url):
    """Open a page and wait until it has loaded and its scripts have run."""
    tab.events.clear()
    tab.call("Page.navigate", url=url)
    until(tab, "document.readyState === 'complete'", lambda: tab.named("Page.loadEventFired"))
    while tab._next(QUIET_S):
        pass


def until(tab, expression, also=lambda: True, limit_s=30):
    """Wait until an expression holds in the page."""
    deadline = time.monotonic() + limit_s
    while not (also() and tab.value(expression)):
        assert time.monotonic() < deadline, f"never: {expression}"
        tab._next(0.05)


def did(tab, site):
    """What the page did that none of ours may do."""
    wrong = [url for url in tab.requests() if not url.startswith((site.url("/"), "data:image/svg"))]
    wrong += ["script"] if tab.value("window.owned") or tab.value("document.title") == "owned" else []
    wrong += tab.named("Page.javascriptDialogOpening") + tab.named("Runtime.exceptionThrown")
    return wrong + [entry["entry"]["text"] for entry in tab.named("Log.entryAdded")]


def press(tab, *keys):
    for key in keys:
        more = {"text": "\r", "windowsVirtualKeyCode": 13} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        tab.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        tab.call("Input.dispatchKeyEvent", type="keyUp", key=key)


def shop(runs, number=-1):
    return sorted(path.name for path in runs.iterdir() if path.name.startswith("2026"))[number]


def addresses(runs):
    """The list, trends, a run and its live view, the hostile ones, one that is broken; others have their own tests."""
    first = shop(runs, 0)
    pages = ["/", "/trends", f"/runs/{first}", f"/runs/{first}/live"]
    return [*pages, "/runs/hostile", "/runs/hostile/live", "/runs/broken"]


EVERY = range(7)


@pytest.mark.parametrize("place", EVERY)
def test_a_page_loads_does_nothing_it_must_not_and_fits_a_phone(page, site, runs, place):
    open_(page, site.url(addresses(runs)[place]))
    page.value("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert did(page, site) == []
    assert page.value("document.querySelector('main').innerText.length") > 20
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
    assert page.value("document.documentElement.scrollWidth") <= 390


def test_a_text_that_is_not_escaped_would_be_detected(page, site, tmp_path):
    raw = tmp_path / "raw.html"
    raw.write_text("<!DOCTYPE html><title>x</title>" + "".join(STRINGS[:8]))
    open_(page, raw.as_uri())
    found = did(page, site)
    assert "script" in found and any("/owned" in str(one) for one in found)


class TestAxe:
    """Its rules, contrast among them, on each page in light and on the two with most colours in dark."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def axe(cls, signed_in):
        signed_in.call("Page.setBypassCSP", enabled=True)
        script = signed_in.call("Page.addScriptToEvaluateOnNewDocument", source=AXE.read_text())["identifier"]
        yield
        signed_in.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        signed_in.call("Page.setBypassCSP", enabled=False)

    @pytest.mark.parametrize(("place", "scheme"), [(0, "light"), (1, "light"), (2, "light"), (3, "light"), (2, "dark")])
    def test_axe_finds_no_serious_fault(self, page, site, runs, place, scheme):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        open_(page, site.url(addresses(runs)[place]))
        found = faults_by_axe(page)
        page.call("Emulation.setEmulatedMedia", features=[])
        assert found == []

    def test_axe_would_find_one(self, page, site):
        open_(page, site.url("/trends"))
        page.value("document.querySelector('select').removeAttribute('aria-label')")
        assert [fault for fault, _ in faults_by_axe(page)] == ["select-name"]


def faults_by_axe(tab):
    asked = "axe.run().then(found => JSON.stringify(found.violations))"
    answer = tab.call("Runtime.evaluate", expression=asked, awaitPromise=True, returnByValue=True)
    found = json.loads(answer["result"]["value"])
    bad = [fault for fault in found if fault["impact"] in ("serious", "critical")]
    return [(fault["id"], [node["html"][:200] for node in fault["nodes"]][:3]) for fault in bad]


class TestTheList:
    def rows(self, tab):
        return tab.value("document.querySelectorAll('table.runs tbody tr').length")

    def test_search_choice_and_sorting(self, page, site):
        open_(page, site.url("/"))
        assert self.rows(page) == 9
        press(page, "/")
        assert page.value("document.activeElement.id") == "search"
        page.call("Input.insertText", text="shop")
        press(page, "Enter")
        until(page, "location.search.includes('q=shop')")
        until(page, "document.readyState === 'complete'")
        assert self.rows(page) == 5
        open_(page, site.url("/"))
        page.value("const s = document.querySelector('select[name=model]'); s.value = 'haiku';"
                   "s.dispatchEvent(new Event('change', {bubbles: true}))")  # fmt: skip
        until(page, "location.search.includes('model=haiku')")
        until(page, "document.querySelectorAll('table.runs tbody tr').length === 2")
        page.value("[...document.querySelectorAll('th a')].find(link => link.innerText.startsWith('score')).click()")
        until(page, "document.querySelector('th[aria-sort]')?.innerText.startsWith('score')")
        assert self.rows(page) == 2

    def test_runs_are_chosen_by_key_and_compared(self, page, site):
        open_(page, site.url("/?suite=shop"))
        press(page, "j", "c", "j", "j", "c")
        assert page.value("document.querySelectorAll('#chosen :checked').length") == 2
        page.value("document.querySelector('#chosen button').click()")
        until(page, "location.pathname === '/compare' && document.readyState === 'complete'")
        assert page.value("location.search").count("run=") == 2

    def test_a_run_that_was_made_since_appears_by_itself(self, page, site, runs):
        open_(page, site.url("/?suite=arrives"))
        assert "No run fits" in page.value("document.querySelector('main').innerText")
        store_run(runs, plan("arrives"), [a_trial("task-0000")], run_id="20250101-000000-000-arrives0")
        until(page, "document.querySelectorAll('table.runs tbody tr').length === 1")
        assert did(page, site) == []


class TestKeys:
    def test_from_the_list_to_what_failed_and_back(self, page, site):
        open_(page, site.url("/?suite=shop"))
        press(page, "j", "j", "k", "n")
        assert page.value("document.querySelectorAll('.here').length") == 1
        press(page, "j", "Enter")
        until(page, "location.pathname.startsWith('/runs/2026') && document.readyState === 'complete'")
        press(page, "u")
        until(page, "location.pathname === '/' && document.readyState === 'complete'")
        press(page, "g", "t")
        until(page, "location.pathname === '/trends' && document.readyState === 'complete'")

    def test_theme_and_help(self, page, site):
        open_(page, site.url("/"))
        before = page.value("getComputedStyle(document.body).backgroundColor")
        press(page, "d")
        after = page.value("getComputedStyle(document.body).backgroundColor")
        assert before != after
        open_(page, site.url("/trends"))
        assert page.value("getComputedStyle(document.body).backgroundColor") == after
        press(page, "?")
        assert page.value("document.querySelector('#keys').open")
        press(page, "Escape")
        page.value("document.querySelector('#keys').close(); localStorage.clear()")


def test_charts_are_drawn_and_lead_to_runs(page, site):
    open_(page, site.url("/trends?suite=shop"))
    assert page.value("document.querySelectorAll('.canvas canvas').length") == 4
    box = page.value("JSON.stringify(document.querySelector('.u-over').getBoundingClientRect())")
    middle = {key: json.loads(box)[key] for key in ("left", "top", "width", "height")}
    at = {"x": middle["left"] + middle["width"] / 2, "y": middle["top"] + middle["height"] / 2}
    page.call("Input.dispatchMouseEvent", type="mouseMoved", **at)
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)
    until(page, "location.pathname.startsWith('/runs/2026')")


@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_an_exported_page_loads_nothing(page, site, runs, tmp_path, place):
    address = addresses(runs)[place]
    file = tmp_path / "page.html"
    file.write_text(site.get(f"{address}?export=1")[2], encoding="utf-8")
    open_(page, file.as_uri())
    assert did(page, site) == [file.as_uri()]
    charts = page.value("document.querySelectorAll('figure.chart').length")
    assert page.value("document.querySelectorAll('.canvas canvas').length") == charts
    assert charts or place == 0 or place == 4


def test_a_page_can_be_printed(page, site, runs):
    open_(page, site.url(addresses(runs)[2]))
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.value("getComputedStyle(document.querySelector('header.top')).display") == "none"
    page.call("Emulation.setEmulatedMedia", media="")
    assert len(page.call("Page.printToPDF")["data"]) > 10_000


def test_a_link_that_was_used_opens_nothing_in_another_browser(page, site):
    link = site.made.link()
    open_(page, link)
    page.call("Network.clearBrowserCookies")
    open_(page, link)
    assert "works once" in page.value("document.body.innerText") or "used" in page.value("document.body.innerText")
    open_(page, site.made.link())
    assert page.value("document.title") == "Runs · waza"


def test_what_an_agent_wrote_is_text_in_the_live_view_too(page, site, runs):
    """Sixty strings as ids, reasons and graders' names, each sent while the page is open."""
    hostile = hostile_run(*STRINGS)
    with RunFolder.create(runs, replace(hostile, id="going-hostile", results=[])) as folder:
        folder.append(hostile.results[0])
        until_answered(site, "/runs/going-hostile/live")
        open_(page, site.url("/runs/going-hostile/live"))
        assert page.value("document.querySelector('#state').textContent") == "running"
        folder.append(*hostile.results[1:])
        until(page, "document.querySelectorAll('#feed li').length === 180")
        assert did(page, site) == []
        assert page.value("document.querySelectorAll('#feed img, #feed script, #feed svg, #feed form').length") == 0
    until(page, "document.querySelector('#state').textContent === 'ended'")
    shutil.rmtree(folder.path)


def test_a_hidden_page_closes_its_connection_and_catches_up_later(page, site, runs):
    with RunFolder.create(runs, plan("hidden", tasks=5)) as folder:
        folder.append(a_trial("task-0000"))
        open_(page, site.url(f"/runs/{folder.path.name}/live"))
        show(page, is_hidden=True)
        folder.append(a_trial("task-0001"))
        time.sleep(0.6)
        assert page.value("document.querySelectorAll('#feed li').length") == 1
        show(page, is_hidden=False)
        until(page, "document.querySelectorAll('#feed li').length === 2")
    until(page, "document.querySelector('#state').textContent === 'ended'")
    shutil.rmtree(folder.path)


def show(tab, *, is_hidden):
    tab.value(f"Object.defineProperty(document, 'hidden', {{value: {str(is_hidden).lower()}, configurable: true}});"
              "document.dispatchEvent(new Event('visibilitychange'))")  # fmt: skip


def until_answered(site, path):
    deadline = time.monotonic() + 30
    while site.get(path)[0] != 200:
        assert time.monotonic() < deadline, f"{path} never comes"
        time.sleep(0.1)


SUITE = """
name: going
config: {executor: command, command: [sh, -c, "sleep 0.4; echo done"], workers: 1}
graders:
  - {type: text, name: says, config: {contains: [done]}}
tasks: [TASKS]
"""


def test_a_run_is_shown_while_it_is_running(page, site, folder):
    """A real `waza run`, watched from the list and from its live view."""
    suite = folder / "going"
    suite.mkdir()
    tasks = ", ".join(f"{{id: step-{n}, prompt: go}}" for n in range(12))
    (suite / "eval.yaml").write_text(SUITE.replace("TASKS", tasks))
    open_(page, site.url("/"))
    command = [sys.executable, "-m", "waza", "run", str(suite), "--quiet"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        until(page, "document.querySelectorAll('#live .card').length", lambda: run.poll() is None or fail(run))
        address = page.value("document.querySelector('#live .card a').getAttribute('href')")
        open_(page, site.url(address))
        seen = page.value("document.querySelectorAll('#feed li').length")
        assert page.value("document.querySelector('#state').textContent") == "running"
        until(page, f"document.querySelectorAll('#feed li').length > {seen}")
        assert run.poll() is None, "the results were sent while the run was running"
        until(page, "document.querySelector('#state').textContent === 'ended'")
        assert page.value("document.querySelectorAll('#feed li').length") == 12
        assert page.value("document.querySelector('#progress .amount').textContent") == "12 of 12"
        assert page.value("document.querySelector('#n-passed').textContent") == "12"
        assert did(page, site) == []
    finally:
        run.wait(timeout=60)


def fail(run):
    pytest.fail(f"the run ended first: {run.stdout.read().decode()}")
