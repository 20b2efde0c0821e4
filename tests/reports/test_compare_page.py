"""The page of `waza compare` in a real Chromium: no script of an agent runs in it, and it asks for nothing outside."""

import typing

import pytest
from chromium import browser
from hostile import STRINGS
from msgspec import Struct
from msgspec.structs import replace
from test_compare_words import hostile_comparison

from waza.analysis.changes import Argument, Attribution, CheckChange, Details, Divergence, GraderChange
from waza.reports.comparison import document
from waza.reports.html.components import document_page
from waza.untrusted.text import visible

MARK = "QQ"
"""A placeholder for the text of an author or an agent."""


def marked_comparison():
    """A comparison in which every part is there that may be left out, with the mark in every text."""
    found = hostile_comparison(MARK)
    tree = {MARK: [MARK, {MARK: 1}]}
    change = CheckChange(grader=MARK, claim=MARK, before=True, after=False, why=MARK, expected=tree, actual=tree)
    argument = Argument(path=MARK, before=tree, after=tree)
    parts = [
        Divergence(kind=kind, call=1, before=MARK, after=MARK, arguments=[argument], skipped=[MARK])
        for kind in typing.get_args(typing.get_type_hints(Divergence)["kind"])
    ]
    details = [Details(trial_before=1, trial_after=2, checks=[change], divergence=part) for part in parts]
    tasks = [replace(found.tasks[0], kind="broke", details=some, golden=True) for some in (None, *details)]
    tasks += [replace(found.tasks[0], kind=kind, details=details[0]) for kind in ("mended", "undecided", "moved")]
    grader = GraderChange(name=MARK, before=0, after=1, difference=1, interval=None, p_value=1, tasks=1)
    names = [f"{what}_{whose}" for what in ("pass", "score") for whose in ("total", "agent", "graders")]
    split = Attribution(tasks=[MARK], graded="before", **dict.fromkeys(names, 0.1))
    verdicts = {name: replace(getattr(found, name), correction=MARK) for name in ("verdict", "passing", "scores")}
    return replace(found, tasks=tasks, graders=[grader], attribution=split, notes=[MARK], **verdicts)


def with_text(value, text):
    """The same with another text where the mark is."""
    if isinstance(value, Struct):
        return replace(value, **{name: with_text(getattr(value, name), text) for name in value.__struct_fields__})
    if isinstance(value, list):
        return [with_text(one, text) for one in value]
    if isinstance(value, dict):
        return {with_text(key, text): with_text(one, text) for key, one in value.items()}
    return value.replace(MARK, text) if isinstance(value, str) else value


def unmarked(value):
    """The fields for texts that do not hold the mark."""
    if isinstance(value, list):
        return [name for one in value for name in unmarked(one)]
    if not isinstance(value, Struct):
        return []
    hints = typing.get_type_hints(type(value))
    here = [name for name in value.__struct_fields__ if hints[name] is str and MARK not in getattr(value, name)]
    return here + [name for inner in value.__struct_fields__ for name in unmarked(getattr(value, inner))]


def page_of(texts):
    found = [with_text(marked_comparison(), text) for text in texts]
    return document_page([block for one in found for block in document(one, whole=True)], texts[0])


def test_every_text_of_a_comparison_is_another():
    assert unmarked(marked_comparison()) == []
    assert MARK not in page_of(["other"]) and page_of(["other"]).count("other") > 50


class TestInChromium:
    """One browser for all: starting it takes longer than the checks."""

    @pytest.fixture(scope="class")
    @classmethod
    def tab(cls):
        with browser() as tab:
            yield tab

    def violations(self, tab, folder, page):
        """What the page did that it must not do."""
        file = folder / "compare.html"
        file.write_text(page, encoding="utf-8", errors="surrogatepass")
        tab.open(file.as_uri())
        did = [url for url in tab.requests() if url != file.as_uri()]
        did += ["script"] if tab.value("window.owned") or tab.value("document.title") == "owned" else []
        return did + tab.named("Page.javascriptDialogOpening") + tab.named("Runtime.exceptionThrown")

    def test_no_script_of_an_agent_runs_and_nothing_is_requested(self, tab, tmp_path):
        assert self.violations(tab, tmp_path, page_of(STRINGS)) == []
        assert [entry["entry"]["text"] for entry in tab.named("Log.entryAdded")] == []
        shown = tab.value("document.body.innerText")
        assert all(visible(text) in shown for text in STRINGS[:30])

    def test_a_page_that_does_not_escape_would_be_detected(self, tab, tmp_path):
        raw = "<!DOCTYPE html><title>x</title>" + "".join(STRINGS[:8])
        did = self.violations(tab, tmp_path, raw)
        assert "script" in did and any("/owned" in str(one) for one in did)

    def test_were_a_text_not_escaped_the_policy_would_stop_it_all_the_same(self, tab, tmp_path):
        raw = document_page([], "x").replace("</body>", "".join(STRINGS[:8] + STRINGS[13:17]) + "</body>")
        assert STRINGS[0] in raw
        assert set(self.violations(tab, tmp_path, raw)) <= set(tab.stopped())
