"""Records that another program wrote, moved, repeated or removed: reported, and never counted."""

import errno
import multiprocessing
import os
import shutil
import stat

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results_made import FailingDisk, a_result, a_run
from waza.errors import StoreError
from waza.files.disk import Disk
from waza.files.trust import config_folder
from waza.model import Result
from waza.runs.journal import End, Journal, Note, read_end, read_journal
from waza.runs.records import frame, write_record
from waza.runs.remote import _from_end
from waza.runs.signing import Chain, make_key, read_key
from waza.runs.store import RunFolder, open_run, read_run, read_run_and_warnings, summary_of
from waza.runs.summary import summarize


def names(path):
    return [record.task_id for record in read_journal(path)[0] if isinstance(record, Result)]


def forged(task):
    """A record as an agent would write it: well-formed, with a valid checksum."""
    return frame(write_record(a_result(task)))


def a_journal(path, tasks="abcd"):
    with Journal.open(path) as journal:
        for task in tasks:
            journal.append(a_result(task))
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def path(quick_folder):
    return quick_folder / "journal.jsonl"


@pytest.fixture
def as_user(tmp_path, monkeypatch):
    """Become another user, with a configuration and so with a key of their own."""

    def become(name):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / name))
        config_folder.cache_clear()

    yield become
    monkeypatch.undo()
    config_folder.cache_clear()


def test_a_record_that_an_agent_appends_is_reported_and_not_counted(path):
    with Journal.open(path) as journal:
        journal.append(a_result("a"))
        with path.open("ab") as file:
            file.write(forged("forged"))
        (piece,) = journal.append(a_result("b"))
        assert path.read_bytes()[piece.offset : piece.end] == piece.raw
        assert journal.warnings == [f"{path}: another program wrote into it during the run; what it wrote is ignored"]
    assert names(path) == ["a", "b"]
    assert read_journal(path)[1] == [f"{path}: 1 record that this run did not write was ignored"]
    with Journal.open(path) as journal:  # going on sets the altered file aside
        assert journal.results == 2
        assert "1 record that this run did not write" in journal.warnings[0]
        journal.append(a_result("c"))
    records, warnings = read_journal(path)
    assert names(path) == ["a", "b", "c"]
    assert any(isinstance(record, Note) and "was altered (1 record" in record.text for record in records)
    assert len(warnings) == 1
    (kept,) = path.parent.glob("*.damaged-*")
    assert b'"forged"' in kept.read_bytes()


@pytest.mark.parametrize("foreign", [b"noise without an end", b"a line\n", forged("forged"), forged("forged")[:-5]])
def test_what_a_failed_write_leaves_is_cut_and_no_byte_of_others(path, foreign):
    """Others wrote first, then the disk is full in the middle of a record: all that was acknowledged stays."""
    with Journal.open(path, FailingDisk({"write"}, 11, errno.ENOSPC, short=True)) as journal:
        for task in "abcdefgh":
            journal.append(a_result(task))
        with path.open("ab") as file:
            file.write(foreign)
        journal.append(a_result("i"))
        before = path.read_bytes()
        with pytest.raises(StoreError, match="the disk is full; 9 results are safe"):
            journal.append(a_result("half"))
        assert path.read_bytes() == before
        journal.append(a_result("j"))
    assert names(path) == [*"abcdefghij"]
    assert foreign.rstrip(b"\n") in path.read_bytes()


def test_bytes_that_others_write_behind_a_failed_write_stay(path):
    class Crowded(Disk):
        """Somebody else writes between our write and the sync that fails."""

        fails = False

        def sync(self, fd):
            if self.fails:
                self.fails = False
                with path.open("ab") as file:
                    file.write(b"theirs")
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync(fd)

    disk = Crowded()
    with Journal.open(path, disk) as journal:
        journal.append(a_result("a"))
        disk.fails = True
        with pytest.raises(StoreError, match="2 results are safe"):  # whole in the file, so it counts
            journal.append(a_result("b"))
        journal.append(a_result("c"))
    assert names(path) == ["a", "b", "c"]
    assert b"theirs" in path.read_bytes()
    with Journal.open(path) as journal:
        assert journal.results == 3


def test_a_journal_that_somebody_cuts_says_how_many_results_are_left(path):
    with Journal.open(path) as journal:
        for task in "abcd":
            journal.append(a_result(task))
        with path.open("r+b") as file:
            file.truncate(len(b"".join(path.read_bytes().splitlines(keepends=True)[:2])))
        with pytest.raises(StoreError, match="another program truncated it; 1 result is left of 4; resume the run"):
            journal.append(a_result("e"))
    assert names(path) == ["a"]


CHANGES = {
    "removed in the middle": (lambda lines: lines[:2] + lines[3:], ["a", "c", "d"], "1 record is missing"),
    "the first removed": (lambda lines: lines[1:], ["a", "b", "c", "d"], "1 record is missing"),
    "moved": (lambda lines: [*lines[:2], lines[3], lines[2], lines[4]], ["a", "c", "d"], "1 record out of order"),
    "repeated": (lambda lines: [*lines, lines[2]], ["a", "b", "c", "d"], "1 record out of order or repeated was"),
    "unsigned in front": (lambda lines: [forged("x"), *lines], ["a", "b", "c", "d"], "did not write was ignored"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_records_that_are_moved_repeated_or_removed_are_reported(path, name):
    change, left, sentence = CHANGES[name]
    path.write_bytes(b"".join(change(a_journal(path))))
    assert names(path) == left
    assert sentence in " ".join(read_journal(path)[1])
    with Journal.open(path) as journal:
        assert journal.results == len(left)
    assert names(path) == left
    assert [warning for warning in read_journal(path)[1] if "was altered" not in warning] == []


def test_records_of_another_run_of_the_same_user_do_not_count(quick_folder, path):
    lines, other = a_journal(path), a_journal(quick_folder / "other.jsonl", "xyz")
    path.write_bytes(b"".join(lines + other[1:]))
    assert names(path) == ["a", "b", "c", "d"]
    assert "3 records that this run did not write were ignored" in read_journal(path)[1][0]


def test_an_older_record_in_the_place_of_a_newer_one_is_reported(path):
    lines = a_journal(path, "ab")
    old = lines[2]
    path.write_bytes(b"".join(lines[:2]))  # the last record is cut off and made again
    with Journal.open(path) as journal:
        journal.append(a_result("b", status="failed"), a_result("c"))
    new = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*new[:2], old, *new[3:]]))
    assert "1 record is not the one that was written there" in read_journal(path)[1][0]


@settings(max_examples=60)
@given(places=st.lists(st.integers(0, 9), max_size=14), insert=st.booleans())
def test_whatever_is_done_to_lines_what_counts_was_written_and_keeps_its_order(tmp_path_factory, places, insert):
    folder = tmp_path_factory.mktemp("chain")
    lines = a_journal(folder / "journal.jsonl", "0123456789")[1:]
    chosen = [lines[place] for place in places]
    if insert:
        chosen.insert(len(chosen) // 2, forged("forged"))
    (folder / "journal.jsonl").write_bytes(b"".join(chosen))
    counted = [int(name) for name in names(folder / "journal.jsonl") if places or name != "forged"]
    assert counted == sorted(set(counted))
    assert set(counted) <= set(places)
    assert bool(read_journal(folder / "journal.jsonl")[1]) == bool(places), "the header is missing at least"


def test_a_run_of_another_user_is_readable_unverified_and_can_be_continued(tmp_path, as_user):
    as_user("ci")
    with RunFolder.create(tmp_path / "runs", a_run(tasks=[*"abc"])) as folder:
        folder.append(a_result("a"), a_result("b"))
        folder.finish(summarize(read_run(folder.path)), complete=False)
    for user in ("me", "somebody without a key"):
        as_user(user)
        if user == "me":
            make_key()
        run, warnings = read_run_and_warnings(folder.path)
        assert [result.task_id for result in run.results] == ["a", "b"]
        assert run.integrity.startswith("unverified: it is not signed with your key")
        assert run.integrity in warnings
        assert run.integrity in summarize(run).warnings
        assert summary_of(folder.path).run.integrity == run.integrity
        assert not (config_folder() / "signing.key").exists() or user == "me", "reading makes no key"
    as_user("me")
    with RunFolder.open(folder.path) as again:
        again.append(a_result("c"))
        again.finish(summarize(read_run(folder.path)))
    run = read_run(folder.path)
    assert [result.task_id for result in run.results] == ["a", "b", "c"]
    assert run.complete
    assert run.integrity.startswith("unverified")
    assert summary_of(folder.path).is_complete
    journal = folder.path / "journal.jsonl"
    content = journal.read_bytes()
    # From now on what was copied in is named by a record of mine: nobody can change it, or add to it.
    for changed in (content.replace(b'"task_id":"a"', b'"task_id":"x"', 1), forged("x") + content):
        lines = changed.splitlines(keepends=True)
        journal.write_bytes(b"".join(frame(line[9:-1]) for line in lines))
        assert [result.task_id for result in read_run(folder.path).results] == ["c"]
        assert read_run(folder.path).integrity.startswith("altered")
    journal.write_bytes(content + forged("x"))
    assert [result.task_id for result in read_run(folder.path).results] == ["a", "b", "c"]
    assert "1 record that this run did not write was ignored" in read_run(folder.path).integrity
    as_user("ci")  # for whom only what was signed there counts
    journal.write_bytes(content)
    assert [result.task_id for result in read_run(folder.path).results] == ["a", "b"]
    as_user("somebody without a key")
    assert [result.task_id for result in read_run(folder.path).results] == ["a", "b", "c"]


def test_a_run_older_than_signatures_is_unverified_and_can_be_continued(tmp_path):
    folder = RunFolder.create(tmp_path, a_run(tasks=["a", "b"]))
    folder.close()
    journal = folder.path / "journal.jsonl"
    header = b'{"kind":"header","version":1,"waza":"0.1.0","pid":1,"host":"h","opened_at":""}'
    run = a_run([a_result("a")], tasks=["a", "b"])
    end = write_record(End(run=run, summary=summarize(run), complete=False))
    journal.write_bytes(frame(header) + forged("a") + frame(end))
    old = "unverified: it was written before records were signed, so it cannot be determined whether it was changed"
    assert read_run(folder.path).integrity == summary_of(folder.path).run.integrity == old
    with RunFolder.open(folder.path) as again:
        assert not again.journal.warnings
        again.append(a_result("b"))
    assert [result.task_id for result in read_run(folder.path).results] == ["a", "b"]
    with journal.open("ab") as file:
        file.write(forged("b"))
    assert "did not write was ignored" in read_run(folder.path).integrity


def test_run_json_is_bound_to_the_journal(tmp_path):
    with RunFolder.create(tmp_path, a_run(tasks=["a", "b"])) as folder:
        folder.append(a_result("a"), a_result("b", status="failed"))
        folder.finish(summarize(read_run(folder.path)))
    assert read_run(folder.path).integrity == ""
    assert read_run(folder.path).complete
    path = folder.path / "run.json"
    content = path.read_bytes()
    path.write_bytes(content.replace(b',{"id":"b"}', b""))
    for run in (read_run(folder.path), open_run(folder.path)):
        assert run.integrity == "altered: run.json was changed after the run wrote it"
        assert not run.complete
    path.write_bytes(content)
    with RunFolder.open(folder.path) as again:
        again.respec(a_run(tasks=["a"]))
    assert read_run(folder.path).integrity == ""
    path.write_bytes(content)  # the file before it is not the one that counts
    assert read_run(folder.path).integrity.startswith("altered")
    with RunFolder.open(folder.path) as again:
        assert "run.json was changed" in again.journal.warnings[0]
    assert "run.json was changed after the run wrote it" in read_run_and_warnings(folder.path)[1]


def test_an_end_in_the_middle_of_replacing_run_json_leaves_one_that_fits(tmp_path):
    RunFolder.create(tmp_path, a_run(tasks=["a", "b"])).close()
    (path,) = (entry for entry in tmp_path.iterdir() if entry.is_dir())
    with RunFolder.open(path, FailingDisk({"replace"}, 1)) as folder, pytest.raises(StoreError):
        folder.respec(a_run(tasks=["a"]))
    assert read_run(path).integrity == ""


@pytest.mark.parametrize("noise", [b"", b"x" * 20_000 + b"\n"], ids=["", "after noise"])
def test_the_end_of_a_listing_is_one_that_fits(path, noise):
    run = a_run([a_result()])
    with Journal.open(path) as journal:
        journal.append(a_result("a"), End(run=run, summary=summarize(run), reason="first"))
        journal.append(a_result("b", output="x" * 9_000), End(run=run, summary=summarize(run), reason="second"))
    content = path.read_bytes()
    first = next(line for line in content.splitlines(keepends=True) if b'"reason":"first"' in line)
    forged_end = frame(write_record(End(run=run, summary=summarize(run), reason="forged")))
    for added in (first, forged_end):
        path.write_bytes(content + noise + added)
        ended = read_end(path)
        assert ended.end.reason == "second"
        assert ended.integrity.startswith("altered: 1 record")
        tail = (content + noise + added)[-30_000:]
        assert _from_end(path.parent, tail).run.integrity.startswith("altered")
    path.write_bytes(content.replace(b'"reason":"second"', b'"reason":"secone"'))
    assert read_end(path) is None, "the last record is damaged: the whole file decides"


def test_the_key_is_the_user_s_own_and_made_once(as_user, tmp_path):
    as_user("fresh")
    assert read_key() is None
    with multiprocessing.get_context("fork").Pool(4) as pool:
        keys = {bytes(key) for key in pool.starmap(make_key, [()] * 16)}
    file = config_folder() / "signing.key"
    assert len(keys) == 1
    assert keys == {make_key()} == {file.read_bytes()}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["signing.key"]
    shutil.copytree(tmp_path / "fresh", tmp_path / "open")
    (tmp_path / "open" / "waza" / "signing.key").chmod(0o644)
    as_user("open")
    assert read_key() is None
    with pytest.raises(StoreError, match="can be read or written by others; remove it"):
        make_key()


def test_a_run_without_a_key_goes_on_and_says_that_it_cannot_be_verified(tmp_path, as_user):
    (tmp_path / "blocked").write_text("not a folder")
    as_user("blocked")
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        assert "cannot be verified later on" in journal.warnings[0]
        journal.append(a_result("a"))
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        journal.append(a_result("b"))
    assert names(tmp_path / "journal.jsonl") == ["a", "b"]


def test_a_chain_can_be_stored_and_continued(path):
    lines = a_journal(path)
    whole, parts = Chain(), Chain()
    for line in lines:
        whole.accept(line[9:-1], read_key())
    for line in lines:
        parts = msgspec.msgpack.decode(msgspec.msgpack.encode(parts), type=Chain)
        assert parts.accept(line[9:-1], read_key())
    assert parts == whole
