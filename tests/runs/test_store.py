"""Run folders: for their owner alone, read without what made them, listed when damaged, found by a short name."""

import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from results_made import a_result, a_run
from waza.analysis.trends import trends
from waza.errors import StoreError, UsageError
from waza.model import Trace
from waza.runs.journal import Note
from waza.runs.retention import is_running, tags_of
from waza.runs.start_order import read_start
from waza.runs.store import (
    RunFolder,
    find_run,
    list_runs,
    newest_run,
    probe,
    read_run,
    read_run_and_warnings,
    summary_of,
)
from waza.runs.summary import summarize


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


def stored(runs, results=("a", "b"), finished=True, **more):
    with RunFolder.create(runs, a_run(tasks=["a", "b"], **more)) as folder:
        for task in results:
            folder.append(a_result(task))
        if finished:
            folder.finish(summarize(read_run(folder.path)))
    return folder.path


def test_a_stored_run_is_read_back_as_it_was(runs):
    made_from = {"model": "m", "skill": "s", "fingerprint": "f", "versions": {"waza": "1"}}
    run = a_run(tasks=["a", "b"], spec={"file": "eval.yaml"}, **made_from)
    with RunFolder.create(runs, run) as folder:
        folder.append(a_result("b"))
        folder.append(a_result("a", trial=2))
        folder.append(a_result("a"))
        folder.append(Note(text="careful"))
        folder.finish(summarize(run))
    again, warnings = read_run_and_warnings(folder.path)
    assert [(result.task_id, result.trial) for result in again.results] == [("a", 1), ("a", 2), ("b", 1)]
    assert (again.name, again.model, again.skill, again.fingerprint) == ("suite", "m", "s", "f")
    assert again.spec == run.spec
    assert again.id == folder.path.name
    assert again.complete
    assert warnings == ["careful"]


def test_what_an_older_run_does_not_say_about_its_suite_has_defaults():
    suite = a_run(
        spec={"config": {"trials_per_task": None}, "triggers": None, "baseline": {}, "not_selected": {}}
    ).suite
    assert (suite.config.trials, suite.config.pass_rule, suite.file) == (1, "all", "")
    assert (suite.triggers, suite.not_selected, suite.baseline.arm, suite.graded_from) == (None, None, "", None)
    assert (list(suite.every_grader), suite.graders, suite.graders_of("a")) == ([], None, None)
    suite = a_run(
        tasks=["a", "b"],
        spec={
            "graders": {"a": [{"name": "g"}], "b": []},
            "triggers": {"prompts": [{"id": "p"}], "unknown": 1},
            "config": {"trials_per_task": 3, "unknown": 1},
            "unknown": 1,
        },
    ).suite
    assert (list(suite.task_ids), suite.config.trials) == (["a", "b"], 3)
    assert (list(suite.every_grader), suite.graders_of("b")) == ([{"name": "g"}], [])
    assert (suite.trigger_prompts, suite.trigger_tasks, suite.triggers.threshold) == ([{"id": "p"}], (), 0.6)


def test_a_run_is_read_without_the_plug_ins_that_made_it(runs):
    path = stored(runs)
    code = (
        "import sys; from waza.runs.store import read_run; run = read_run(sys.argv[1]); print(len(run.results)); "
        "rooms = ('graders', 'engines', 'judges', 'spec', 'runner'); "
        "print([name for name in sys.modules if name.startswith(tuple('waza.' + room for room in rooms))])"
    )
    ended = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60)
    assert ended.stdout.splitlines() == ["2", "[]"], ended.stderr


def test_a_run_that_did_not_end_is_read_as_incomplete(runs):
    path = stored(runs, ["a"], finished=False)
    run = read_run(path)
    assert not run.complete
    assert [result.task_id for result in run.results] == ["a"]
    entry = summary_of(path)
    assert not entry.is_complete
    assert (entry.summary.succeeded, entry.summary.errors, entry.summary.not_run) == (1, 1, 1)
    assert entry.summary.exit_code == 3


def test_a_run_with_an_unfinished_record_is_read_up_to_it(runs):
    path = stored(runs, finished=False)
    journal = path / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-10])
    run, warnings = read_run_and_warnings(path)
    assert [result.task_id for result in run.results] == ["a"]
    assert "unfinished" in warnings[0]


def test_a_run_that_goes_on_after_its_end_is_not_complete_until_it_ends_again(runs):
    path = stored(runs)
    with RunFolder.open(path) as folder:
        assert read_run(path).complete
        folder.append(a_result("a", trial=2))
        assert not read_run(path).complete
        assert not summary_of(path).is_complete


def test_a_run_that_was_stopped_says_so(runs):
    with RunFolder.create(runs, a_run(tasks=["a", "b"])) as folder:
        folder.append(a_result("a"))
        folder.finish(summarize(read_run(folder.path)), complete=False, reason="interrupted")
    assert not read_run(folder.path).complete
    assert not summary_of(folder.path).is_complete


def test_the_later_of_two_results_of_one_trial_counts(runs):
    with RunFolder.create(runs, a_run(tasks=["a"])) as folder:
        folder.append(a_result("a", status="error"))
        folder.append(a_result("a", status="passed"))
    assert [result.status for result in read_run(folder.path).results] == ["passed"]


def test_results_of_tasks_that_left_the_spec_are_left_out_and_counted(runs):
    with RunFolder.create(runs, a_run(tasks=["a", "b"])) as folder:
        folder.append(a_result("a"))
        folder.append(a_result("b"))
        folder.respec(a_run(tasks=["a"]))
    run, warnings = read_run_and_warnings(folder.path)
    assert [result.task_id for result in run.results] == ["a"]
    assert "results of 1 trials of tasks that are not in the spec are left out" in warnings[0]


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_only_the_owner_can_read_what_is_written(runs, umask):
    before = os.umask(umask)
    try:
        path = stored(runs)
        with RunFolder.open(path) as folder:
            folder.write("results.json", [b"{}"])
    finally:
        os.umask(before)
    for entry in [runs, *runs.rglob("*")]:
        mode = stat.S_IMODE(entry.stat().st_mode)
        assert mode == (0o700 if entry.is_dir() else 0o600), entry


def test_git_ignores_runs_and_a_person_may_change_that(runs):
    stored(runs)
    assert (runs / ".gitignore").read_text() == "*\n"
    (runs / ".gitignore").write_text("")
    stored(runs)
    assert (runs / ".gitignore").read_text() == ""


def test_ids_sort_by_time_and_never_meet(runs):
    paths = []
    threads = [threading.Thread(target=lambda: paths.append(stored(runs, finished=False))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({path.name for path in paths}) == 8
    time.sleep(0.002)
    assert stored(runs).name > max(path.name for path in paths)


def test_an_id_that_is_taken_is_refused(runs):
    stored(runs, id="mine")
    with pytest.raises(StoreError, match="nothing was run"):
        stored(runs, id="mine")


@given(st.text(max_size=300))
@settings(max_examples=40, deadline=None)
def test_a_task_id_never_becomes_a_path(tmp_path_factory, task):
    parent = tmp_path_factory.mktemp("ids")
    with RunFolder.create(parent, a_run(tasks=[task])) as folder:
        folder.append(a_result(task))
    assert read_run(folder.path).results[0].task_id == task
    assert {entry.name for entry in parent.rglob("*")} == {
        ".gitignore",
        ".start",
        folder.path.name,
        "run.json",
        "journal.jsonl",
        "artifacts",
    }


def test_a_listing_shows_the_newest_first_and_hides_no_damage(runs):
    good = stored(runs)
    no_run = stored(runs)
    (no_run / "run.json").unlink()
    (no_run / "journal.jsonl").write_bytes(b"")
    bad_run = stored(runs, finished=False)
    (bad_run / "run.json").write_bytes(b'{"id": 1')
    newer = stored(runs, finished=False)
    payload = b'{"kind":"header","version":9}'
    from waza.runs.records import frame

    (newer / "journal.jsonl").write_bytes(frame(payload))
    listed = list_runs(runs)
    assert [entry.run.id for entry in listed] == [newer.name, bad_run.name, no_run.name, good.name]
    assert [bool(entry.problem) for entry in listed] == [True, True, True, False]
    assert "newer waza" in listed[0].problem
    assert "is damaged" in listed[1].problem
    assert "has no run.json" in listed[2].problem
    assert listed[3].summary.succeeded == 2
    assert listed[3].run.name == "suite"


def test_a_listing_of_a_folder_that_is_not_there_is_empty(runs):
    assert list_runs(runs) == []


def test_a_finished_run_is_listed_from_the_end_of_its_journal_alone(runs):
    path = stored(runs)
    (path / "run.json").write_text("not looked at")
    assert summary_of(path).summary.succeeded == 2


def test_a_summary_stored_before_agents_had_a_time_of_their_own_is_made_again(runs):
    with RunFolder.create(runs, a_run(tasks=["a"])) as folder:
        folder.append(a_result("a", trace=Trace(input="x", output="y", duration_ms=7.0)))
        folder.finish(replace(summarize(read_run(folder.path)), times="trial", duration_ms=5000.0))
    assert summary_of(folder.path).summary.duration_ms == 7.0


def test_a_run_without_a_journal_never_began(runs):
    path = stored(runs)
    (path / "journal.jsonl").unlink()
    run, warnings = read_run_and_warnings(path)
    assert run.results == []
    assert "ended before it began" in warnings[0]


def test_the_newest_run_of_an_eval_is_found(runs):
    one = stored(runs, name="one", spec={"file": "a/eval.yaml"})
    two = stored(runs, name="one", model="big", spec={"file": "b/eval.yaml"})
    other = stored(runs, name="other")
    shutil.copytree(other, runs / "99999999-damaged")
    (runs / "99999999-damaged" / "run.json").write_text("{")
    assert newest_run(runs) == other
    assert newest_run(runs, "one") == two
    assert newest_run(runs, "one", file="a/eval.yaml") == one
    assert newest_run(runs, model="big") == two
    assert newest_run(runs, "none") is None
    assert newest_run(runs / "nowhere") is None


def test_a_run_is_found_by_folder_file_id_prefix_or_latest(runs):
    one, two = stored(runs, id="20260101-a"), stored(runs, id="20260202-b")
    (one / "results.json").write_text("{}")
    assert find_run(str(one)) == one
    assert find_run(str(one / "results.json")) == one
    assert find_run("20260101-a", [runs]) == one
    assert find_run("20260202", [runs]) == two
    assert find_run("latest", [runs]) == two
    with pytest.raises(UsageError, match="is the start of 2 runs: 20260101-a, 20260202-b"):
        find_run("2026", [runs])
    with pytest.raises(UsageError, match="no run '20260101-x'; did you mean '20260101-a'"):
        find_run("20260101-x", [runs])
    for nothing in ("", "../runs/20260101-a", "nowhere/results.json"):
        with pytest.raises(UsageError, match="no run"):
            find_run(nothing, [runs])
    with pytest.raises(UsageError, match="there are no runs"):
        find_run("latest", [runs / "nowhere"])


def test_latest_and_previous_follow_the_order_of_starts_and_not_the_clock(runs, tmp_path):
    first = stored(runs, id="20300101-000000-000-a")
    second = stored(runs, id="20200101-000000-000-b")
    third = stored(runs, id="20250101-000000-000-c")
    other = stored(runs, id="20250101-000000-000-d", name="other suite")
    assert find_run("latest", [runs]) == other
    with pytest.raises(UsageError, match="no run of 'other suite' before"):
        find_run("previous", [runs])
    shutil.rmtree(other)
    assert [find_run("latest", [runs]), find_run("previous", [runs])] == [third, second]
    assert [run.folder for run in list_runs(runs)] == [str(third), str(second), str(first)]
    assert [point.run for line in trends(list_runs(runs)) for point in line.points] == [
        path.name for path in (first, second, third)
    ]
    renamed = third.rename(runs / "19990101-000000-000-c")
    assert find_run("latest", [runs]) == renamed


def test_runs_that_come_from_elsewhere_or_from_before_are_never_the_latest(runs, tmp_path):
    own = stored(runs, id="20250101-000000-000-a")
    elsewhere = stored(tmp_path / "elsewhere", id="20990101-000000-000-x")
    for _ in range(5):
        stored(tmp_path / "elsewhere")
    shutil.copytree(elsewhere, runs / elsewhere.name)
    shutil.copytree(own, runs / "20990202-000000-000-copy")
    old = shutil.copytree(own, runs / "20990303-000000-000-old")
    (old / ".start").unlink()
    new = stored(runs, id="20200101-000000-000-n")
    assert find_run("latest", [runs]) == new
    shutil.rmtree(new)
    again = stored(runs, id="20200101-000000-000-m")
    assert read_start(again).number == 3  # a number is not given twice
    assert find_run("latest", [runs]) == again
    (runs / ".start").write_text("{")
    last = stored(runs, id="20190101-000000-000-l")
    assert (find_run("latest", [runs]), read_start(last).folder) == (last, read_start(own).folder)
    moved = shutil.copytree(runs, tmp_path / "moved")
    (moved / ".start").unlink()
    assert find_run("latest", [moved]).name == last.name


def test_runs_started_at_once_get_different_numbers(runs):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: RunFolder.create(runs, a_run()), range(16)))
    assert sorted(read_start(folder.path).number for folder in made) == list(range(1, 17))
    for folder in made:
        folder.close()


def test_a_probe_leaves_nothing_and_tells_what_is_wrong(tmp_path):
    probe(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="nothing was run"):
        probe(tmp_path / "nowhere")


def test_a_second_run_on_one_folder_is_refused(runs):
    path = stored(runs)
    with RunFolder.open(path), pytest.raises(StoreError, match="another run is writing it"):
        RunFolder.open(path)


def test_a_run_that_is_copied_while_it_goes_on_can_be_read(runs, tmp_path):
    with RunFolder.create(runs, a_run(tasks=["a"])) as folder:
        folder.append(a_result("a"))
        shutil.copytree(folder.path, tmp_path / "copy")
    run = read_run(tmp_path / "copy")
    assert len(run.results) == 1
    assert not run.complete


def ended(work, path):
    """What `work` returns or raises, within some seconds; whoever waits at a pipe is let go."""
    said = []

    def attempt():
        try:
            said.append(work())
        except StoreError as error:
            said.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(timeout=20)
    is_waiting = thread.is_alive()
    if is_waiting:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    assert not is_waiting, "it waits for somebody to write into the pipe"
    return said[0]


SPECIAL = {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero")} if hasattr(os, "mkfifo") else {}
READERS = {
    "read": read_run,
    "open": RunFolder.open,
    "list": lambda folder: StoreError(summary_of(folder).problem),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["run.json", "journal.jsonl"])
@pytest.mark.parametrize("kind", SPECIAL)
def test_a_pipe_or_a_device_in_place_of_a_file_is_refused_at_once(runs, kind, name, reader):
    folder = stored(runs, finished=name == "run.json" and reader != "list")
    (folder / name).unlink()
    SPECIAL[kind](folder / name)
    error = ended(lambda: READERS[reader](folder), folder / name)
    assert isinstance(error, StoreError)
    assert str(error).startswith(f"{folder / name}: cannot be ")
    if (kind, reader) != ("device", "open") or name == "run.json":  # a link is never written through
        assert "it is not a regular file; remove it" in str(error)


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_pipe_or_a_device_is_no_tags_and_no_run_that_goes_on(runs, kind):
    folder = stored(runs)
    (folder / "journal.jsonl").unlink()
    for name in ("journal.jsonl", "tags.json"):
        SPECIAL[kind](folder / name)
    assert ended(lambda: tags_of(folder), folder / "tags.json") == []
    assert ended(lambda: is_running(folder), folder / "journal.jsonl") is False
