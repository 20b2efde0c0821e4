"""The page: strict HTML, nothing of an agent's is more than text, nothing runs and nothing is loaded."""

import re
from pathlib import Path

import html5lib
import pytest
from chromium import browser
from hostile import STRINGS, hostile_run
from msgspec.structs import replace

from results_made import a_grade, a_result, a_run
from waza.model import ToolEvent, Trace
from waza.reports.html import HtmlReport
from waza.reports.html.markup import page_head
from waza.reports.run_before import EarlierRun
from waza.untrusted.text import visible

ELEMENTS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "b", "a", "div", "span", "pre"}
ELEMENTS |= {"table", "thead", "tbody", "tr", "th", "td", "details", "summary", "svg", "rect"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "open", "aria-hidden"}
ATTRIBUTES |= {
    "role",
    "aria-label",
    "title",
    "tabindex",
    "scope",
    "viewBox",
    "preserveAspectRatio",
    "x",
    "y",
    "width",
    "height",
}


def page_of(run, before=None):
    return b"".join(HtmlReport().render(run, before)).decode("utf-8")


def read(page):
    """The page's elements, read by a parser that takes no mistake."""
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    return list(tree.iter())


def local(element):
    return str(element.tag).rpartition("}")[2]


def refused(page):
    """What is wrong with a page; nothing if it is one of ours."""
    try:
        elements = read(page)
    except html5lib.html5parser.ParseError as error:
        return [str(error)]
    wrong = [local(element) for element in elements if local(element) not in ELEMENTS]
    attributes = [(name, value) for element in elements for name, value in element.attrib.items()]
    wrong += [name for name, _ in attributes if name.rpartition("}")[2] not in ATTRIBUTES]
    return wrong + [value for name, value in attributes if name == "href" and not re.fullmatch(r"#task-\d+", value)]


def texts(page):
    return ["".join(element.itertext()) for element in read(page) if local(element) == "pre"]


@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_a_strict_reader_gets_every_text_back_and_finds_no_element_but_ours(text):
    page = page_of(hostile_run(text), EarlierRun(text, {f"{text}#0": "passed", text: text}))
    assert refused(page) == []
    assert not text or visible(text, lines=True) in texts(page)
    title = next(element for element in read(page) if local(element) == "title")
    assert visible(text)[:200] in title.text


def test_the_reader_would_notice_a_text_that_is_not_escaped():
    noticed = [text for text in STRINGS if refused(f"{page_head('x')}<p>{text}</p></body></html>")]
    assert len(noticed) > 25


def test_a_page_of_all_strings_is_strict():
    assert refused(page_of(hostile_run(*STRINGS))) == []


def test_failed_tasks_come_before_passed_ones_and_the_first_is_unfolded():
    page = page_of(a_run([a_result("good"), a_result("bad", status="failed")], tasks=["good", "bad"]))
    passed, failed = page.index("<h2>Passed"), page.index("<h2>Failed checks")
    assert failed < page.index(" bad</h3>") < passed < page.index(" good</h3>")
    assert page.count("<details open>") == 1


def test_tool_calls_can_be_unfolded_and_missing_recordings_are_reported():
    calls = [ToolEvent(tool_name="bash", args={"command": "ls"}, result="a", duration_ms=1500, success=False)]
    seen = a_result("seen", trace=Trace(input="i", output="o", tool_events=calls))
    page = page_of(a_run([seen, a_result("unseen", trace=Trace(input="i", output="o"))]))
    assert '<summary>1. <b>bash</b> {&quot;command&quot;:&quot;ls&quot;} · 1.5 s · <span class="failed">failed' in page
    assert "tool calls were not recorded" in page


def test_the_ledger_of_side_effects_is_a_table_below_its_grade():
    sure = {"kind": "command", "target": "rm <x>", "call": 2, "done": False, "sure": True}
    effects = [sure, {"kind": "created", "target": "a", "call": None, "done": True, "sure": False}]
    rows = rows_of(effects)
    assert [row[:4] for row in rows] == [
        ["command", "rm <x>", "call 3", "failed"],
        ["created", "a", "–", "not certain"],
    ]
    assert len(rows_of([sure] * 5_000)) < 100
    for odd in (None, 7, {}, [], [1, None, []], [{"call": 2**70, "kind": ["<b>"], "target": {"a": 1}, "done": "x"}]):
        assert len(rows_of(odd)) <= 3


def test_parts_are_a_tree_and_rules_a_table_below_their_grade():
    inner = {"name": "<says>", "type": "text", "status": "failed", "feedback": "no <b>", "details": {}}
    part = {"name": "turned", "type": "not", "status": "passed", "feedback": "f", "details": {"parts": [inner]}}
    rule = {"name": "a before b", "status": "violated", "windows": 2, "trigger": 2, "calls": [0], "prefix": 3}
    page = page_of(a_run([a_result(grades=[replace(a_grade(), details={"parts": [part], "rules": [rule]})])]))
    [tree] = [element for element in read(page) if element.attrib.get("aria-label") == "parts"]
    assert "<says> text" in "".join(tree.itertext()) and page.count('class="part"') == 2
    [table] = [element for element in read(page) if element.attrib.get("aria-label") == "rules"]
    cells = ["".join(cell.itertext()).strip() for cell in table.iter("td")]
    assert cells == ["a before b", "violated", "call 3", "call 1", "calls 1-3"]
    for odd in (None, 7, {}, [], [1, None, []], [{"status": ["x"], "details": 3, "calls": {}, "prefix": "x"}]):
        page = page_of(a_run([a_result(grades=[replace(a_grade(), details={"parts": odd, "rules": odd})])]))
        assert refused(page) == []


def rows_of(effects):
    """The cells of the table of effects, where a grade has these."""
    details = {"effects": effects, "effects_left_out": 3}
    page = page_of(a_run([a_result(grades=[replace(a_grade(kind="side_effects"), details=details)])]))
    assert refused(page) == []
    found = [element for element in read(page) if element.attrib.get("aria-label") == "side effects"]
    rows = [row for table in found for row in table.iter("tr")]
    return [["".join(cell.itertext()) for cell in row] for row in rows[1:]]


def test_rates_and_times_are_drawn_with_their_intervals():
    results = [a_result(trial=trial, status=status) for trial, status in ((1, "passed"), (2, "failed"))]
    page = page_of(a_run(results, tasks=[{"id": "t", "tags": ["fast"]}], config={"trials_per_task": 2}))
    assert page.count('class="span"') == 2
    assert page.count('class="tick"') == 2
    assert "1 of 2" in page and "fast" in page


def test_a_run_too_large_for_a_page_says_how_much_is_left_out():
    class SmallReport(HtmlReport):
        most_bytes = 100_000

    trace = Trace(input="", output="x" * 20_000)
    results = [a_result(f"t{number}", trace=trace) for number in range(20)]
    page = b"".join(SmallReport().render(a_run(results))).decode()
    assert len(page) < 150_000
    assert "15 more trials would make this page too large: waza show" in page
    assert refused(page) == []


def test_an_empty_run_is_a_page_too():
    assert refused(page_of(a_run())) == []


class TestInChromium:
    """One browser for all: starting it takes longer than the checks."""

    @pytest.fixture(scope="class")
    @classmethod
    def tab(cls):
        with browser() as tab:
            yield tab

    def opened(self, tab, folder, page):
        file = Path(folder, "report.html")
        file.write_text(page, encoding="utf-8", errors="surrogatepass")
        tab.open(file.as_uri())
        return file.as_uri()

    def violations(self, tab, address):
        """What the page did that it must not do."""
        did = [url for url in tab.requests() if url != address]
        did += ["script"] if tab.value("window.owned") or tab.value("document.title") == "owned" else []
        return did + tab.named("Page.javascriptDialogOpening") + tab.named("Runtime.exceptionThrown")

    def test_no_script_of_an_agent_runs_and_nothing_is_requested(self, tab, tmp_path):
        address = self.opened(tab, tmp_path, page_of(hostile_run(*STRINGS)))
        tab.value("document.querySelectorAll('details').forEach(part => part.open = true)")
        assert self.violations(tab, address) == []
        assert tab.value("document.querySelectorAll('details[open]').length") > 500
        assert [entry["entry"]["text"] for entry in tab.named("Log.entryAdded")] == []

    def test_a_page_that_does_not_escape_would_be_detected(self, tab, tmp_path):
        raw = "<!DOCTYPE html><title>x</title>" + "".join(STRINGS[:8])
        did = self.violations(tab, self.opened(tab, tmp_path, raw))
        assert "script" in did and any("/owned" in str(one) for one in did)

    def test_were_a_text_not_escaped_the_policy_would_stop_it_all_the_same(self, tab, tmp_path):
        raw = page_head("x") + "".join(STRINGS[:8] + STRINGS[13:17])
        address = self.opened(tab, tmp_path, raw)
        assert set(self.violations(tab, address)) <= set(tab.stopped())
        assert len(tab.stopped()) >= 3
        assert any("Content Security Policy" in entry["entry"]["text"] for entry in tab.named("Log.entryAdded"))

    @pytest.mark.parametrize("width", [390, 1280])
    def test_nothing_sticks_out_sideways(self, tab, tmp_path, width):
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
        self.opened(tab, tmp_path, page_of(hostile_run(*STRINGS)))
        tab.value("document.querySelectorAll('details').forEach(part => part.open = true)")
        assert tab.value("document.documentElement.scrollWidth") <= width

    def test_text_has_enough_contrast_in_light_and_dark(self, tab, tmp_path):
        self.opened(tab, tmp_path, page_of(hostile_run(*STRINGS[:3])))
        papers = []
        for scheme in ("light", "dark"):
            tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            papers.append(tab.value("getComputedStyle(document.body).backgroundColor"))
            for part in ("body", ".soft", ".failed", ".error", ".skipped"):
                ink = tab.value(f"getComputedStyle(document.querySelector('{part}')).color")
                assert contrast(ink, papers[-1]) >= 4.5, (scheme, part)
        assert papers[0] != papers[1]


def contrast(one, other):
    """The WCAG contrast of two colours."""

    def light(colour):
        parts = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((light(one), light(other)))
    return (lighter + 0.05) / (darker + 0.05)
