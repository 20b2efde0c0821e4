"""A task's page: every trial, each check with what was expected, calls on a time axis and as text, files and diffs."""

import re
import time
from zlib import crc32

import pytest
from hostile import STRINGS, hostile_run
from msgspec.structs import replace
from pages_read import faults, links, local, read
from runs_made import store_run
from trials_made import CALLS, a_result, a_run, a_trace, events, with_snapshot

from waza.model import Check, Grade, Result, Run, ToolEvent, Trace
from waza.reports.html.charts import placed
from waza.reports.html.files import lines_of
from waza.reports.html.markup import href
from waza.reports.html.steps import steps_of
from waza.traces.conversation import join_turns
from waza.untrusted.text import visible, well_formed

MEGABYTE = 1_000_000
GIVEN = [{"path": "policy.md", "content": "# Policy\nTen days.\n"}, {"path": "gone.txt", "content": "x"},
         {"path": "same.txt", "content": "same\n"}]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def runs(folder, tmp_path_factory):
    parent = folder / "x" / "runs"
    results = [a_result(trial=1, passes=True), a_result(trial=2), a_result(trial=3, passes=True)]
    a_run(parent, "shop", results)
    run = hostile_run(*STRINGS)
    store_run(parent, run, run.results, run_id="hostile")
    workspace = tmp_path_factory.mktemp("workspace")
    (workspace / "policy.md").write_text("# Policy\nThree days.\n")
    (workspace / "same.txt").write_text("same\n")
    (workspace / "new.txt").write_text("<script>window.owned=1</script>\n")
    (workspace / "picture.png").write_bytes(b"\x89PNG\0\1")
    (workspace / "large.txt").write_text("x" * 500_000)
    (workspace / "out").symlink_to("/etc/passwd")
    left = a_run(parent, "left", [a_result()], files=GIVEN)
    with_snapshot(left, workspace, a_result())
    return parent


def shown(site, path):
    status, _, page = site.get(path)
    assert status == 200, path
    assert faults(page) == []
    return page


def text_of(page):
    return " ".join(" ".join(read(page)[0].itertext()).split())


def elements(page, tag, word=""):
    return [one for one in read(page) if local(one) == tag and word in ["", *one.attrib.get("class", "").split()]]


class TestTheTask:
    def test_every_trial_is_listed_and_has_an_address(self, site):
        page = shown(site, "/runs/shop/task?id=refund")
        trials = [link for link in links(page) if re.fullmatch(r"/runs/shop/task\?id=refund&trial=\d", link)]
        assert {link[-1] for link in trials} == {"1", "2", "3"}
        assert "2 of 3 trials passed" in text_of(page)

    def test_the_first_failed_trial_is_shown_unless_another_is_requested(self, site):
        assert "Trial 2 ✗ failed" in text_of(shown(site, "/runs/shop/task?id=refund"))
        assert "Trial 3 ✓ passed" in text_of(shown(site, "/runs/shop/task?id=refund&trial=3"))

    def test_a_check_shows_expected_found_and_the_nearest_call(self, site):
        text = text_of(shown(site, "/runs/shop/task?id=refund&trial=2"))
        assert "promises a day claim: promises nothing" in text
        assert "expected no day found Tuesday" in text
        assert "nearest to edit (new, path) : call 5" in text
        assert '{"equals":"x = 3"} x = 2' in text

    def test_a_judged_grade_names_the_rubric_with_its_version_and_the_judge(self, site):
        text = text_of(shown(site, "/runs/shop/task?id=refund&trial=2"))
        assert "rubric shop 1.2.0 (pass-fail) · 9f2c41aa8812 · judge judge-9 , 2.4 s" in text

    def test_prompt_output_and_numbers_are_there(self, site):
        text = text_of(shown(site, "/runs/shop/task?id=refund&trial=2"))
        for words in ("Prompt Refund it.", "Answer It is refunded.", "5 tool calls · 3 turns · 990 tokens", "$0.01"):
            assert words in text, words

    @pytest.mark.parametrize("path", [
        "/runs/none/task?id=refund", "/runs/shop/task", "/runs/shop/task?id=x", "/runs/shop/task?id=refund&trial=9",
        "/runs/shop/call?id=refund&trial=2&n=6", "/runs/shop/call?id=refund&trial=2&n=0", "/runs/shop/call?id=x",
        "/runs/shop/files?id=x", "/runs/left/files?id=refund&path=../run.json", "/runs/left/files?id=refund&path=nope",
    ])  # fmt: skip
    def test_what_does_not_exist_is_reported_politely(self, site, path):
        status, _, page = site.get(path)
        assert status == 404 and faults(page) == []


class TestTheAlignment:
    def test_a_line_leads_from_each_expectation_to_its_call_and_dots_to_the_nearest(self, site):
        page = shown(site, "/runs/shop/task?id=refund&trial=2")
        assert len(elements(page, "line", "fits")) == 1 and len(elements(page, "line", "near")) == 1
        expected = ["".join(item.itertext()) for item in elements(page, "ol", "expected")[0]]
        assert expected == ["✓ search", "✗ edit (new, path) wrong arguments", "✗ mail missing"]
        assert "2 read not expected" in ["".join(item.itertext()) for item in elements(page, "ol", "made")[0]]

    @pytest.mark.parametrize("alignment", [
        [], {}, {"expectations": 7},
        {"expectations": [3, {"calls": "x", "nearest": [1]}, {"calls": [-1, 10**9, True]}]},
        {"expectations": [{"expected": ["<b>"], "nearest": {"call": 2**70, "differences": [1, {"path": {}}]}}]},
        {"expectations": [{"expected": "a", "calls": [0]}] * 300, "extra": list(range(5_000))},
    ])  # fmt: skip
    def test_one_of_any_shape_is_no_trouble(self, site, runs, alignment):
        grade = Grade(
            name="g",
            type="tool_calls",
            status="failed",
            score=0.0,
            feedback="f",
            details={"alignment": alignment, "effects": [alignment, {"kind": "call", "target": "t", "call": 0}]},
        )
        name = f"odd-{crc32(repr(alignment).encode())}"
        a_run(runs, name, [replace(a_result(), grades=[grade])])
        page = wait_for(site, f"/runs/{name}/task?id=refund")
        assert faults(page) == [] and len(page) < MEGABYTE
        assert "call=1#call-1" in page and "2 side effects" in page


def wait_for(site, path):
    until = time.monotonic() + 20
    while (answer := site.get(path))[0] != 200:
        assert time.monotonic() < until, f"{path} never comes"
        time.sleep(0.1)
    return answer[2]


class TestTheTimeline:
    def bars(self, page):
        """Number, left edge, width and top of each bar of the timeline, by the call it leads to."""
        found = {}
        for link in read(page):
            if local(link) == "a" and any(local(child) == "rect" for child in link):
                bar = next(child for child in link if local(child) == "rect")
                number = int(link.attrib["href"].rpartition("-")[2])
                found[number] = [float(bar.attrib[key].rstrip("%")) for key in ("x", "width", "y")]
        return found

    def test_the_axis_is_time(self, site):
        bars = self.bars(shown(site, "/runs/shop/task?id=refund&trial=2"))
        assert {number: bar[:2] for number, bar in bars.items()} == {
            number: [begin / 100, took / 100] for number, (_, _, begin, took, _) in enumerate(CALLS, 1)
        }

    def test_calls_at_the_same_time_are_below_each_other(self, site):
        page = shown(site, "/runs/shop/task?id=refund&trial=2")
        bars = self.bars(page)
        assert bars[2][2] != bars[3][2]
        assert "up to 2 at once" in text_of(page)

    def test_a_failed_call_has_a_cross_and_turns_have_numbers(self, site):
        page = shown(site, "/runs/shop/task?id=refund&trial=2")
        assert len(elements(page, "text", "cross")) == 1
        assert [one.text for one in elements(page, "text", "turn-label")] == ["1", "2", "3"]
        assert "1 failed" in text_of(page)

    def test_without_times_calls_are_in_order_with_a_note(self, site, runs):
        trace = a_trace()
        trace = replace(trace, tool_events=[replace(event, start_ms=None) for event in trace.tool_events])
        a_run(runs, "untimed", [a_result(trace=trace)])
        page = wait_for(site, "/runs/untimed/task?id=refund")
        assert [bar[:2] for bar in self.bars(page).values()] == [[20.0 * place, 20.0] for place in range(5)]
        assert "Start times were not recorded" in text_of(page)

    def test_a_call_without_a_time_of_its_own_is_hollow_with_a_note(self, site, runs):
        trace = a_trace()
        some = [replace(event, start_ms=None) if place == 3 else event for place, event in enumerate(trace.tool_events)]
        a_run(runs, "some", [a_result(trace=replace(trace, tool_events=some))])
        page = wait_for(site, "/runs/some/task?id=refund")
        assert len(elements(page, "rect", "hollow")) == 1
        assert self.bars(page)[4][:2] == [30.0, 10.0], "after the call before"
        assert "The start times of 1 call of 5 were not recorded" in text_of(page)

    @pytest.mark.parametrize("end_ms", [0.0004, 0.17, 9, 950, 23_300, 8_760_000, 9e10])
    def test_the_axis_has_a_few_marks_whatever_its_length(self, site, runs, end_ms):
        trace = a_trace((("read", {}, end_ms / 2, end_ms / 2, True),))
        name = f"axis-{crc32(repr(end_ms).encode())}"
        a_run(runs, name, [a_result(trace=replace(trace, duration_ms=end_ms))])
        page = wait_for(site, f"/runs/{name}/task?id=refund")
        marks = [one.text for one in elements(page, "text", "tick-label")]
        assert marks[0] == "0" and 2 <= len(marks) <= 8 and len(set(marks)) == len(marks)

    @pytest.mark.parametrize("odd", [-1, float("1e300"), float("inf"), float("nan"), 10**15])
    def test_a_time_that_cannot_be_is_none(self, odd):
        made = placed([replace(event, start_ms=odd, duration_ms=odd) for event in events()], odd)
        assert not made.is_time and made.end == 5

    def test_an_agents_own_recording_has_start_times(self):
        import waza
        from waza.recording import tool

        @tool
        def look(word):
            return word

        with waza.record("go") as recording:
            look("a")
            look("b")
        first, second = recording.trace.tool_events
        assert 0 <= first.start_ms <= first.start_ms + first.duration_ms <= second.start_ms


class TestTheTranscript:
    def test_messages_and_calls_are_in_order(self):
        assert [step.text or step.event.tool_name for step in steps_of(a_trace())] == [
            "Refund it.", "search", "I read the policy.", "read", "read", "bash", "edit", "It is refunded.",
        ]  # fmt: skip

    def test_without_events_the_calls_are_between_prompt_and_answer(self):
        steps = steps_of(replace(a_trace(), events=None))
        assert [step.who for step in steps] == ["user", *["call"] * 5, "agent"]

    def test_calls_without_an_event_are_not_lost(self):
        trace = replace(a_trace(), events=[{"type": "tool_call", "tool_call_id": "c4"}, {"type": 3}, {}])
        assert sorted(step.call for step in steps_of(trace) if step.call) == [1, 2, 3, 4, 5]

    def test_a_conversation_is_shown_prompt_by_prompt(self):
        def messages(trace):
            return [step.text or f"{step.call} {step.event.tool_name}" for step in steps_of(trace)]

        calls = events()
        plain = Trace(input="And now?", output="Mailed.", tool_events=calls[3:])
        whole = join_turns(["Refund it.", "And now?"], [a_trace(CALLS[:3]), plain])
        first = ["Refund it.", "1 search", "I read the policy.", "2 read", "3 read", "It is refunded."]
        assert messages(whole) == [*first, "And now?", "4 bash", "5 edit", "Mailed."]
        assert [step.event.turn for step in steps_of(whole) if step.call] == [1, 1, 2, 4, 5]
        assert sorted(step.call for step in steps_of(replace(whole, turns=[plain])) if step.call) == [1, 2, 3, 4, 5]

    def test_a_conversation_shows_each_prompt_with_its_answer(self, site, runs):
        turns = [a_trace(), Trace(input="And <b>now</b>?", output="Mailed.", tool_events=[])]
        whole = replace(join_turns(["Refund it.", "And <b>now</b>?"], turns), error="stopped after turn 2")
        a_run(runs, "talk", [a_result(trace=whole)])
        page = text_of(wait_for(site, "/runs/talk/task?id=refund"))
        heads = [
            "Prompt 1 of 2",
            "Answer 1 of 2",
            "Prompt 2 of 2",
            "Answer 2 of 2",
        ]
        parts = [heads[0], "Refund it.", heads[1], "It is refunded.", heads[2], "And <b>now</b>?", heads[3], "Mailed."]
        places = [page.index(part) for part in [*parts, "stopped after turn 2"]]
        assert places == sorted(places)

    def test_a_call_is_folded_has_an_address_and_a_page_of_its_own(self, site):
        page = shown(site, "/runs/shop/task?id=refund&trial=2&call=4")
        folded = {one.attrib["id"]: "open" in one.attrib for one in elements(page, "details") if "id" in one.attrib}
        assert folded["call-4"] and not folded["call-3"]
        alone = shown(site, "/runs/shop/call?id=refund&trial=2&n=4")
        assert '{"command":"make"}' in text_of(alone) and "exit code 2" in text_of(alone)


@pytest.fixture(scope="module")
def large(site, runs):
    """The first page of a trial with 5,000 calls."""
    many = [(f"tool-{place % 30}", {"n": place}, place * 10, 15, place % 97 > 0) for place in range(5_000)]
    a_run(runs, "large", [a_result(trace=a_trace(tuple(many)))])
    return wait_for(site, "/runs/large/task?id=refund")


class TestLargeTrials:
    def test_five_thousand_calls_are_shown_in_pages_under_a_megabyte(self, site, large):
        assert len(large.encode()) < MEGABYTE / 3
        assert "1–100 of 5,00" in large
        page = shown(site, "/runs/large/task?id=refund&call=4321")
        assert len(page.encode()) < MEGABYTE / 3
        assert len(elements(page, "li", "call-step")) in (99, 100)
        assert any(one.attrib.get("id") == "call-4321" for one in read(page))
        assert len(elements(page, "rect", "window")) == 1, "where this is in the whole trial"

    def test_however_much_agents_write_a_page_stays_under_a_megabyte(self, site, runs):
        text = '"<&' * 2_000
        calls = [ToolEvent(tool_name=text[:500], args={"a": text}, result=text, error=text) for _ in range(80)]
        checks = [Check(False, text, text, text, text) for _ in range(40)]
        grades = [
            Grade(name=f"g{n}", type=text, status="failed", score=0, feedback=text, checks=checks) for n in range(9)
        ]
        trace = Trace(input=text, output=text, error=text, tool_events=calls, extra={"x": text})
        parent = runs
        a_run(
            parent,
            "wide",
            [Result(task_id="refund", trial=1, status="failed", trace=trace, grades=grades, reason=text)],
        )
        page = wait_for(site, "/runs/wide/task?id=refund")
        assert len(page.encode()) < MEGABYTE
        assert "6,000 characters in all" in page
        assert len(site.get("/runs/wide/call?id=refund&trial=1&n=3")[2].encode()) < MEGABYTE


class TestTheFiles:
    def test_changes_against_the_fixture_come_first(self, site):
        page = shown(site, "/runs/left/files?id=refund")
        rows = ["".join(row.itertext()) for row in elements(page, "tr")[1:]]
        assert rows[0].startswith("~ changedpolicy.md")
        assert [row for row in rows if row.startswith("− removed")] == ["− removedgone.txt"]
        assert any(row.startswith("unchangedsame.txt") for row in rows)
        assert any("out" in row and "→ /etc/passwd" in row for row in rows)

    def test_a_changed_file_is_shown_line_by_line(self, site):
        page = shown(site, "/runs/left/files?id=refund&path=policy.md")
        assert [one.strip() for one in map(text_in, elements(page, "div", "less"))] == ["− Ten days."]
        assert [one.strip() for one in map(text_in, elements(page, "div", "more"))] == ["+ Three days."]

    def test_a_link_is_not_followed_and_binary_and_large_files_are_named(self, site):
        assert "root:" not in shown(site, "/runs/left/files?id=refund&path=out")
        assert "Not text: 6 bytes" in text_of(shown(site, "/runs/left/files?id=refund&path=picture.png"))
        assert "too large to be shown" in text_of(shown(site, "/runs/left/files?id=refund&path=large.txt"))
        assert "<script>window" in text_of(shown(site, "/runs/left/files?id=refund&path=new.txt"))

    def test_a_damaged_copy_is_reported(self, site, runs):
        for stored in (runs / "left" / "artifacts" / "objects").rglob("*"):
            if stored.is_file() and stored.read_bytes() == b"same\n":
                stored.write_bytes(b"else\n")
        assert "damaged" in text_of(shown(site, "/runs/left/files?id=refund&path=same.txt"))

    def test_the_trial_lists_them(self, site):
        page = shown(site, "/runs/left/task?id=refund")
        assert href("runs", "left", "files", id="refund", trial=1, path="policy.md") in links(page)

    def test_a_workspace_that_was_not_stored_is_reported(self, site):
        assert "was not stored" in text_of(shown(site, "/runs/shop/files?id=refund"))


def text_in(element):
    return "".join(element.itertext())


class TestAFixtureOfTheSuite:
    SUITE = """
name: suite
config: {executor: mock}
graders: [{type: text, name: t, config: {contains: [x]}}]
tasks:
  - {id: a, prompt: go, inputs: {files: [{path: notes.md}]}, mock: {output: x, files: {notes.md: "one\\nthree\\n"}}}
"""

    def test_it_is_read_as_long_as_it_is_what_the_run_was_made_from(self, site, folder):
        from waza.cli import run_command

        suite = folder / "suite"
        (suite / "fixtures").mkdir(parents=True)
        (suite / "fixtures" / "notes.md").write_text("one\ntwo\n")
        (suite / "eval.yaml").write_text(self.SUITE)
        assert run_command(["run", "-q", str(suite)]) == 0
        name = next(path.name for path in (suite / "runs").iterdir() if path.is_dir())
        page = wait_for(site, f"/runs/{name}/files?id=a&path=notes.md")
        assert "− two" in text_of(page) and "+ three" in text_of(page)
        (suite / "fixtures" / "notes.md").write_text("other\n")
        page = shown(site, f"/runs/{name}/files?id=a&path=notes.md")
        assert "it changed since the run" in text_of(page) and "− " not in text_of(page)


def test_a_comparison_of_lines_keeps_a_few_around_each_change():
    old = [f"line {n}" for n in range(40)]
    new = [*old[:20], "new", *old[21:]]
    kinds = [line.kind for line in lines_of("\n".join(old), "\n".join(new))]
    assert kinds == ["jump", *["same"] * 3, "less", "more", *["same"] * 3]


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(len(STRINGS)))
def test_a_hostile_text_is_text_on_a_trials_pages(site, number):
    text = STRINGS[number]
    task = well_formed(f"{text}#{number}")
    page = shown(site, href("runs", "hostile", "task", id=task, trial=1))
    assert visible(well_formed(text))[:60].strip() in text_in(read(page)[0]) or not text.strip()
    if number % 4 == 0:
        for trial in (2, 3):
            shown(site, href("runs", "hostile", "task", id=task, trial=trial))
        shown(site, href("runs", "hostile", "call", id=task, trial=1, n=2))


def test_a_trials_page_as_a_file_loads_nothing(site):
    for path in ("/runs/shop/task?id=refund", "/runs/left/files?id=refund"):
        assert faults(site.get(f"{path}&export=1")[2], is_export=True) == []


def test_a_run_of_another_shape_is_no_trouble(site, runs):
    run = Run(id="", name="odd", started_at="", engine="mock", spec={"tasks": [{"id": "a", "files": "x"}]})
    store_run(
        runs,
        run,
        [Result(task_id="a", trial=1, status="passed", trace=Trace(input="", output=""), snapshot="no")],
        run_id="odd",
    )
    wait_for(site, "/runs/odd/task?id=a")
    assert "cannot be read" in text_of(shown(site, "/runs/odd/files?id=a"))
