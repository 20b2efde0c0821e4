"""What is appended is read back; a journal is held by one process; a newer one is refused and left alone."""

import os
import signal
import subprocess
import sys
import threading
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results_made import FailingDisk, ShortDisk, a_grade, a_result, a_run, append_signed
from waza.errors import StoreError
from waza.files.disk import Disk
from waza.model import Result, Trace
from waza.runs.journal import End, Header, Journal, Note, read_end, read_journal
from waza.runs.summary import summarize

HOLD = """
import sys, time
from waza.files.disk import Disk
from waza.runs.journal import Journal
journal = Journal.open(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def results_in(path):
    return [record for record in read_journal(path)[0] if isinstance(record, Result)]


def test_what_is_appended_is_read_back(path):
    run = a_run([a_result("a"), a_result("b", output="“ünï” \u2028 \x00 🐚")])
    with Journal.open(path) as journal:
        for result in run.results:
            journal.append(result)
        journal.append(Note(text="seen"))
        journal.append(End(run=run, summary=summarize(run)))
    records, warnings = read_journal(path)
    assert isinstance(records[0], Header)
    assert records[1:3] == run.results
    assert records[4].summary == summarize(run)
    assert records[4].run.spec == {}
    assert warnings == ["seen"]


def test_each_line_is_a_checksum_and_json(path):
    with Journal.open(path) as journal:
        journal.append(a_result())
    for line in path.read_bytes().splitlines():
        checksum, payload = line[:8], line[9:]
        assert checksum == b"%08x" % crc32(payload)


def test_a_journal_goes_on_where_it_was_left(path):
    for number in range(3):
        with Journal.open(path) as journal:
            assert journal.results == number
            journal.append(a_result(trial=number + 1))
    assert [result.trial for result in results_in(path)] == [1, 2, 3]


def test_appending_to_a_closed_journal_is_refused(path):
    journal = Journal.open(path)
    journal.close()
    with pytest.raises(StoreError, match="is closed"):
        journal.append(a_result())


def test_results_from_many_threads_do_not_mix(path):
    with Journal.open(path) as journal:

        def work(task):
            for trial in range(20):
                journal.append(a_result(task, trial, output=task * 500))

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records, warnings = read_journal(path)
    assert len(records) == 81
    assert not warnings


def test_a_second_writer_is_refused_by_name_and_the_lock_dies_with_its_holder(path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        before = path.read_bytes()
        with pytest.raises(StoreError, match=rf"another run is writing it \(process {holder.pid} on .*, since 20"):
            Journal.open(path)
        assert path.read_bytes() == before
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    Journal.open(path).close()


def test_a_second_writer_in_one_process_is_refused_too(path):
    with Journal.open(path), pytest.raises(StoreError, match=f"process {os.getpid()} "):
        Journal.open(path)


def test_a_journal_of_a_newer_version_is_refused_and_left_alone(path):
    payload = b'{"kind":"header","version":3,"shape":"unknown"}'
    content = b"%08x %b\nsome other framing" % (crc32(payload), payload)
    path.write_bytes(content)
    for use in (Journal.open, read_journal):
        with pytest.raises(StoreError, match=r"newer waza \(journal version 3"):
            use(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"notes of mine\n", b"no newline, but long enough", b"00000000 {}\nx\n"])
def test_a_file_that_is_no_journal_is_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a journal"):
        Journal.open(path)
    assert path.read_bytes() == content


def test_records_and_fields_of_a_later_minor_version_are_kept(path):
    with Journal.open(path) as journal:
        journal.append(a_result("a"))
    odd = b'{"kind":"poem","text":"..."}'
    trace = b'{"input":"i","output":"o","mood":1}'
    newer = b'{"kind":"result","result":{"task_id":"b","trial":1,"status":"passed","trace":%b}}' % trace
    before = append_signed(path, odd, newer)
    with Journal.open(path) as journal:
        assert not journal.warnings
    assert path.read_bytes().startswith(before)
    records, warnings = read_journal(path)
    assert records[2].trace.extra == {"mood": 1}
    assert "1 records are of a kind this version does not know" in warnings[0]


def test_the_end_is_found_without_reading_the_rest(path):
    run = a_run([a_result()])
    with Journal.open(path) as journal:
        journal.append(a_result(output="x" * 200_000))
        assert read_end(path) is None
        journal.append(End(run=run, summary=summarize(run)))
    with Journal.open(path) as journal:
        assert read_end(path).end.summary == summarize(run)
        journal.append(a_result("later"))
    assert read_end(path) is None


def test_a_long_end_is_found_too(path):
    run = a_run([a_result(f"{number} {'long name ' * 20}") for number in range(600)], config={"group_by": "task"})
    with Journal.open(path) as journal:
        journal.append(End(run=run, summary=summarize(run)))
    assert path.stat().st_size > 1 << 17
    assert len(read_end(path).end.summary.groups) == 600


def test_a_short_write_is_finished(path):
    with Journal.open(path, ShortDisk()) as journal:
        journal.append(a_result())
    assert results_in(path) == [a_result()]


def test_a_file_system_without_locks_is_named(path):
    class NoLocks(Disk):
        def lock(self, fd):
            return False

    with Journal.open(path, NoLocks()) as journal:
        assert "has no locks" in journal.warnings[0]


def test_a_file_that_was_replaced_before_it_could_be_locked_is_opened_again(path, tmp_path):
    with Journal.open(path) as journal:
        journal.append(a_result("a"))
    repaired = tmp_path / "repaired"
    repaired.write_bytes(path.read_bytes())

    class Replaced(Disk):
        def lock(self, fd):
            if repaired.exists():
                repaired.replace(path)
            return super().lock(fd)

    with Journal.open(path, Replaced()) as journal:
        journal.append(a_result("b"))
    assert [result.task_id for result in results_in(path)] == ["a", "b"]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), 1.7, -3.0])
def test_a_score_that_is_no_share_is_stored_as_an_error(path, score):
    with Journal.open(path) as journal:
        journal.append(a_result(grades=[a_grade(score, "passed"), a_grade(0.5)]))
    bad, good = results_in(path)[0].grades
    assert (bad.status, bad.score) == ("error", 0.0)
    assert good.score == 0.5


@pytest.mark.parametrize(
    "odd",
    ["\ud800 half", float("nan"), 10**40, {None: 1}, {1, 2}, object, b"\xff", "\udcff", 10**5000],
    ids=["half a pair", "nan", "big", "no key", "set", "class", "bytes", "escaped byte", "huge"],
)
def test_what_json_cannot_say_is_stored_as_near_as_it_can_be(path, odd):
    trace = Trace(input="i", output="o", outcome={"odd": odd})
    with Journal.open(path) as journal:
        journal.append(a_result(trace=trace))
    records, warnings = read_journal(path)
    assert records[1].trace.output == "o"
    assert not warnings


def test_hostile_nesting_is_cut_so_that_the_record_can_be_read(path):
    deep = "end"
    for _ in range(900):
        deep = [deep]
    with Journal.open(path) as journal:
        journal.append(a_result(trace=Trace(input="i", output="o", outcome={"deep": deep})))
    assert b"nested too deeply" in path.read_bytes()
    assert len(results_in(path)) == 1


def test_brackets_in_text_are_not_nesting(path):
    text = "[" * 5000 + '{"' * 100
    with Journal.open(path) as journal:
        journal.append(a_result(output=text))
    assert results_in(path)[0].trace.output == text


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(output=st.text(), args=JSON)
@settings(max_examples=60, deadline=None)
def test_any_text_and_data_survive(tmp_path_factory, output, args):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    result = a_result(trace=Trace(input="", output=output, outcome={"args": args}))
    with Journal.open(path, FailingDisk((), 0)) as journal:
        journal.append(result)
    assert results_in(path) == [result]
