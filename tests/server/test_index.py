"""The index: the same numbers as the journal, up to date with the disk, rebuilt when it is lost."""

import os
import re
import shutil
import threading
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from odd_specs import ODD as ODD_SPECS
from odd_specs import WHOLE, a_stored_run
from runs_made import a_history, a_trial, plan, store_run

from waza.reports.html.markup import render
from waza.reports.html.view import NotFound, PageRequest, Query
from waza.runs.outcomes import outcomes_of
from waza.runs.records import frame, write_record
from waza.runs.retention import TAGS, tag_run
from waza.runs.store import RunFolder, read_run
from waza.runs.summary import summarize
from waza.server.index import Index
from waza.server.pages import all_pages
from waza.server.store import RunFilter, RunReader


@pytest.fixture
def parent(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def store(parent, tmp_path):
    index = Index(lambda: [parent], tmp_path / "index.sqlite")
    yield RunReader(index)
    index.close()


def listed(store, **wanted):
    store.index.refresh(now=True)
    return store.runs(RunFilter(**wanted))[0]


def test_a_run_has_the_numbers_its_journal_has(store, parent):
    folders = a_history(parent, runs=3, tasks=6, trials=2)
    for one, folder in zip(listed(store)[::-1], folders, strict=True):
        opened, read = store.open(one), read_run(folder)
        assert one.summary == opened.summary == summarize(read)
        assert outcomes_of(opened.run.results) == outcomes_of(read.results)
        assert [result.trace.output for result in opened.run.results] == [r.trace.output for r in read.results]
        assert opened.run.complete and not opened.damaged


def test_records_that_somebody_else_wrote_are_reported_and_not_counted(store, parent):
    """At once, and when the journal is read on from where the index stopped."""
    (folder,) = a_history(parent, runs=1, tasks=3)
    before = store.open(listed(store)[0])
    for _ in range(2):
        with (folder / "journal.jsonl").open("ab") as file:
            forged = replace(before.run.results[0], status="failed", grades=[])
            file.write(frame(write_record(forged)))
        (one,) = listed(store)
        opened = store.open(one)
        assert one.integrity.startswith("altered: ")
        assert outcomes_of(opened.run.results) == outcomes_of(before.run.results)
        assert opened.run.integrity in opened.summary.warnings and not opened.damaged
        assert "did not write" in shown(store, "run", run=one.key)
        assert "altered" in shown(store, "runs")


@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 9)), max_size=12), cut=st.data())
@settings(max_examples=12, deadline=None)
def test_a_journal_read_in_pieces_is_the_journal_read_at_once(tmp_path_factory, steps, cut):
    """Results may come twice, in any order, and be looked at in between."""
    where = tmp_path_factory.mktemp("p")
    index = Index(lambda: [where / "runs"])
    store = RunReader(index)
    with RunFolder.create(where / "runs", plan(tasks=4, trials=3)) as folder:
        for task, trial, seed in steps:
            folder.append(a_trial(f"task-{task:04}", trial, seed))
            if cut.draw(st.booleans()):
                store.open(listed(store)[0])
        (one,) = listed(store)
        assert one.is_live and one.verdict == "running"
        assert store.open(one).summary == summarize(read_run(folder.path))
        assert one.done == len({(task, trial) for task, trial, _ in steps})
    index.close()


def test_new_runs_tags_and_removals_are_noticed_without_a_restart(store, parent):
    first = a_history(parent, runs=1)[0]
    assert [one.key for one in listed(store)] == [first.name]
    second = store_run(parent, plan("other"), [a_trial("task-0000")], run_id="20270101-000000-000-aaaaaaaa")
    assert len(listed(store)) == 2
    tag_run(second, ["release"])
    assert [one.key for one in listed(store, tag="release")] == [second.name]
    shutil.rmtree(first)
    assert [one.key for one in listed(store)] == [second.name]
    assert store.find(first.name) is None
    assert store.index.table("SELECT count(DISTINCT run) FROM results") in ([(0,)], [(1,)])


ODD = '{"id": "x", "name": "n", "started_at": "0001-01-01", "engine": "e", "spec": {"config": [1], "tasks": 5}}'
DAMAGE = {
    "no run.json": lambda folder: (folder / "run.json").unlink(),
    "half a run.json": lambda folder: (folder / "run.json").write_text('{"id": "'),
    "a run.json of another kind": lambda folder: (folder / "run.json").write_text("[1]"),
    "a run.json with a spec of another shape": lambda folder: (folder / "run.json").write_text(ODD),
    "a run.json with tasks of another shape": lambda folder: (folder / "run.json").write_text(ODD.replace("[1]", "{}")),
    "a journal of a newer version": lambda folder: newer(folder / "journal.jsonl"),
    "a journal that is a folder": lambda folder: (
        (folder / "journal.jsonl").unlink(),
        (folder / "journal.jsonl").mkdir(),
    ),
}


def as_folder(path):
    path.unlink()
    path.mkdir()


def newer(journal):
    journal.write_bytes(frame(b'{"kind":"header","version":99}'))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_run_that_cannot_be_read_is_listed_with_its_reason(store, parent, damage):
    folders = a_history(parent, runs=2)
    DAMAGE[damage](folders[0])
    found = {one.key: one for one in listed(store)}
    assert found[folders[1].name].problem == ""
    broken = found[folders[0].name]
    assert broken.verdict == "unreadable"
    assert broken.problem
    assert [one.key for one in listed(store, verdict="unreadable")] == [folders[0].name]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["run.json", "journal.jsonl", TAGS])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(store, parent, name):
    folders = a_history(parent, runs=2)
    (folders[0] / name).unlink(missing_ok=True)
    os.mkfifo(folders[0] / name)
    looking = threading.Thread(target=store.index.refresh, kwargs={"now": True}, daemon=True)
    looking.start()
    looking.join(timeout=20)
    is_waiting = looking.is_alive()
    os.close(os.open(folders[0] / name, os.O_RDWR))  # a waiting reader continues
    assert not is_waiting, "it waits for somebody to write into the pipe"
    found = {one.key: one.problem for one in listed(store)}
    assert found[folders[0].name].endswith(f"{name}: is not a regular file; remove it")
    assert found[folders[1].name] == ""


def test_damage_in_the_middle_costs_one_result_and_is_reported(store, parent):
    folder = store_run(parent, plan(tasks=3), [a_trial(f"task-{n:04}") for n in range(3)])
    lines = (folder / "journal.jsonl").read_bytes().split(b"\n")
    lines[2] = lines[2][:50] + b"X" + lines[2][51:]
    (folder / "journal.jsonl").write_bytes(b"\n".join(lines))
    opened = store.open(listed(store)[0])
    assert opened.damaged == 1
    assert len(opened.run.results) == 2


def test_a_lost_or_broken_index_is_made_again(parent, tmp_path):
    a_history(parent, runs=3)
    file = tmp_path / "cache" / "index.sqlite"
    seen = []
    for content in (None, b"", b"not a database at all" * 100, "other version"):
        if content == "other version":
            import sqlite3

            with sqlite3.connect(file) as db:
                db.execute("PRAGMA user_version = 99")
            db.close()
        elif content is not None:
            file.write_bytes(content)
        index = Index(lambda: [parent], file)
        seen.append([one.summary for one in listed(RunReader(index))])
        index.close()
    assert all(one == seen[0] for one in seen) and len(seen[0]) == 3
    assert [path.stat().st_mode & 0o077 for path in file.parent.iterdir()] == [0]


def test_where_no_file_can_be_written_the_index_is_in_memory(parent, tmp_path):
    a_history(parent, runs=1)
    (tmp_path / "file").write_text("")
    index = Index(lambda: [parent], tmp_path / "file" / "index.sqlite")
    assert len(listed(RunReader(index))) == 1
    index.close()


def test_what_is_known_is_not_read_again(parent, tmp_path):
    """A second start reads no journal: the first byte of each is gone, and that is not noticed."""
    folders = a_history(parent, runs=3)
    file = tmp_path / "index.sqlite"
    index = Index(lambda: [parent], file)
    before = listed(RunReader(index))
    index.close()
    import os

    for folder in folders:
        journal = folder / "journal.jsonl"
        times = journal.stat()
        journal.write_bytes(b"X" * times.st_size)
        os.utime(journal, ns=(times.st_atime_ns, times.st_mtime_ns))
    index = Index(lambda: [parent], file)
    assert listed(RunReader(index)) == before
    index.close()


def test_results_that_no_longer_fit_the_spec_do_not_count(store, parent):
    run = plan(tasks=1)
    run = replace(run, spec=run.spec | {"fingerprints": {"task-0000": "old"}})
    with RunFolder.create(parent, run) as folder:
        folder.append(replace(a_trial("task-0000"), fingerprint="old"))
        assert len(store.open(listed(store)[0]).run.results) == 1
        folder.respec(replace(folder.run, spec=run.spec | {"fingerprints": {"task-0000": "new"}}))
        assert len(store.open(listed(store)[0]).run.results) == 0
        folder.append(replace(a_trial("task-0000", seed=5), fingerprint="new"))
        opened = store.open(listed(store)[0])
        assert opened.summary == summarize(read_run(folder.path))
        assert len(opened.run.results) == 1


def test_two_runs_of_one_name_have_addresses_of_their_own(tmp_path):
    parents = [tmp_path / "a" / "runs", tmp_path / "b" / "runs"]
    for parent in parents:
        store_run(parent, plan(), [a_trial("task-0000")], run_id="same")
    index = Index(lambda: parents)
    store = RunReader(index)
    keys = [one.key for one in listed(store)]
    assert len(set(keys)) == 2 and all(key.startswith("same") for key in keys)
    assert {store.find(key).folder for key in keys} == {str(parent / "same") for parent in parents}
    index.close()


def test_a_run_without_a_writer_is_not_live(store, parent):
    with RunFolder.create(parent, plan(tasks=2)) as folder:
        folder.append(a_trial("task-0000"))
        assert listed(store)[0].is_live
    (one,) = listed(store)
    assert not one.is_live and not one.is_complete and one.verdict == "error"
    with RunFolder.open(folder.path) as again:
        assert listed(store)[0].is_live
        again.append(a_trial("task-0001", rate=1.0))
        again.finish(summarize(read_run(folder.path)), complete=True)
    assert listed(store)[0].is_complete


def test_runs_are_listed_by_their_starts_and_not_by_the_clock(store, parent):
    clocks = ("2030-01-01T00:00:00+00:00", "2020-01-01T00:00:00+00:00", "2025-01-01T00:00:00+00:00")
    made = [store_run(parent, plan("clock", started=clock), []).name for clock in clocks]
    assert [one.key for one in store.runs(RunFilter(suite="clock"))[0]] == made[::-1]
    assert [point.run for line in store.trends("clock") for point in line.points] == made


def test_looking_never_keeps_a_run_from_starting(parent):
    """Where a journal is still empty, its writer may be about to take the lock: it is not touched."""
    index = Index(lambda: [parent])
    folder = RunFolder.create(parent, plan())
    folder.close()
    (folder.path / "journal.jsonl").write_bytes(b"")
    index.refresh(now=True)
    (one,) = RunReader(index).runs(RunFilter())[0]
    assert not one.is_live
    index.close()


class TestChoosing:
    @pytest.fixture
    def many(self, store, parent):
        a_history(parent, "shop", "gpt-5", runs=4)
        a_history(parent, "shop", "sonnet", runs=3, seed=1)
        folder = a_history(parent, "Kiosk %_'\"; DROP TABLE runs", "", runs=2, seed=2)[0]
        tag_run(folder, ["a tag", "b"])
        store.index.refresh(now=True)
        return store

    @pytest.mark.parametrize(
        ("wanted", "count"),
        [
            ({}, 9),
            ({"suite": "shop"}, 7),
            ({"model": "sonnet"}, 3),
            ({"suite": "shop", "model": "gpt-5"}, 4),
            ({"suite": "sho"}, 0),
            ({"words": "SHOP son"}, 3),
            ({"words": "kiosk"}, 2),
            ({"words": "%"}, 2),
            ({"words": "' OR 1=1 --"}, 0),
            ({"suite": "' OR 1=1 --"}, 0),
            ({"tag": "a tag"}, 1),
            ({"tag": "a"}, 0),
            ({"verdict": "running"}, 0),
            ({"since": datetime(2026, 1, 3, tzinfo=UTC).timestamp()}, 3),
            ({"until": datetime(2026, 1, 2, tzinfo=UTC).timestamp()}, 3),
            ({"skip": 8}, 1),
        ],
    )
    def test_filters(self, many, wanted, count):
        assert len(many.runs(RunFilter(**wanted))[0]) == count

    @pytest.mark.parametrize("sort", ["started", "suite", "model", "passed", "score", "cost", "tokens", "time"])
    def test_sorting_both_ways(self, many, sort):
        up = [one.key for one in many.runs(RunFilter(sort=sort, is_ascending=True))[0]]
        down = [one.key for one in many.runs(RunFilter(sort=sort))[0]]
        assert sorted(up) == sorted(down)
        assert up != down

    def test_names_to_choose_from(self, many):
        assert many.names("model") == ["gpt-5", "sonnet"]
        assert many.names("tags") == ["a tag", "b"]

    def test_suites_with_their_lines(self, many):
        lines = {line.suite: line for line in many.suites()}
        assert lines["shop"].runs == 7 and len(lines["shop"].rates) == 7

    def test_trends_by_suite_and_model(self, many):
        assert [(line.suite, line.model, len(line.points)) for line in many.trends("shop")] == [
            ("shop", "gpt-5", 4),
            ("shop", "sonnet", 3),
        ]


def shown(store, name, *query, **parts):
    """A page as it is sent, without its frame."""
    page = next(page for page in all_pages() if page.name == name)
    return "".join(render(node) for node in page.show(PageRequest(parts, Query(query), "/"), store).body)


def test_a_single_run_is_no_trend_and_two_are_one(store, parent):
    a_history(parent, runs=1)
    listed(store)
    assert "A single run shows no trend yet: one more run" in shown(store, "trends")
    a_history(parent, runs=2, suite="other", seed=1)
    listed(store)
    assert shown(store, "trends").count("A single run shows no trend yet") == 1


def test_an_interval_is_in_one_line_on_every_page(store, parent):
    a_history(parent, runs=2, trials=2)
    key, other = (one.key for one in listed(store))
    pages = [shown(store, "runs"), shown(store, "trends"), shown(store, "run", run=key)]
    pages += [shown(store, "task", ("id", "task-0001"), run=key), shown(store, "compare", ("run", key), ("run", other))]
    for page in pages:
        assert '<span class="whole">' in page
        assert not re.search(r"interval \d", page)


def pages_of(store, key):
    """The pages of a run and of its task."""
    for name, query in (
        ("run", ()),
        ("task", [("id", "a")]),
        ("files", [("id", "a")]),
        ("compare", [("run", key), ("run", "whole")]),
    ):
        with suppress(NotFound):  # one sentence: an odd spec need not have this task
            shown(store, name, *query, run=key)


@given(spec=st.just(WHOLE) | ODD_SPECS)
@settings(max_examples=40, deadline=None)
def test_any_json_as_spec_gives_pages_or_one_sentence(tmp_path_factory, spec):
    parent = tmp_path_factory.mktemp("odd")
    folder = a_stored_run(parent, spec)
    a_stored_run(parent, WHOLE, "whole")
    index = Index(lambda: [parent])
    store = RunReader(index)
    found = next(one for one in listed(store) if one.key == "one")
    if found.problem:
        assert found.problem.startswith(f"{folder / 'run.json'}: is damaged: ")
    else:
        pages_of(store, found.key)
    index.close()
