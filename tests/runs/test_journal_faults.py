"""Every write, sync, rename and open may fail: what was acknowledged is kept, and the sentence says what to do."""

import contextlib
import errno
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from campaign import count
from results_made import FailingDisk, a_result, a_run
from waza.errors import StoreError
from waza.files.disk import write_atomically
from waza.model import Result
from waza.runs.journal import Journal, read_journal
from waza.runs.store import RunFolder, read_run
from waza.runs.summary import summarize

CALLS = ("open", "write", "sync", "replace", "sync_folder")
TASKS = [f"task {number}" for number in range(20)]


def run_until_done(parent, disk):
    """Store a run of twenty tasks on a disk that fails once; return what was acknowledged and what the errors said."""
    acknowledged, errors, path = [], [], None
    for _ in range(4):
        try:
            run = a_run(tasks=TASKS)
            with RunFolder.open(path, disk) if path else RunFolder.create(parent, run, disk) as folder:
                path = folder.path
                for task in TASKS:
                    if task not in acknowledged:
                        folder.append(a_result(task))
                        acknowledged.append(task)
                stored = read_run(path)
                folder.finish(summarize(stored))
                folder.write("results.json", [b"{}"])
                return path, acknowledged, errors
        except StoreError as error:
            errors.append(str(error))
            if path:
                kept = [result.task_id for result in read_run(path).results]
                count("acknowledged results lost", len(set(acknowledged) - set(kept)))
                assert kept == acknowledged, "an acknowledged result was lost, or one that failed was kept"
    raise AssertionError(f"the run never ended: {errors}")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("code", "short"), [(errno.EIO, False), (errno.ENOSPC, False), (errno.ENOSPC, True)], ids=["EIO", "ENOSPC", "short"]
)
def test_a_fault_at_each_call_of_a_run_loses_nothing(quick_folder, call, code, short):
    nth, fired = 0, True
    while fired:
        nth += 1
        disk = FailingDisk({call}, nth, code, short)
        path, acknowledged, errors = run_until_done(quick_folder / f"runs{nth}", disk)
        fired = disk.fired
        count("faults injected", fired)
        assert acknowledged == TASKS
        assert [result.task_id for result in read_run(path).results] == TASKS
        assert read_run(path).complete
        assert len(errors) <= 1
        assert not list(path.rglob(".*.tmp"))
        for sentence in errors:
            assert "Traceback" not in sentence
            assert ("safe" in sentence) or ("nothing was run" in sentence) or ("untouched" in sentence)
    assert nth > {"open": 3, "write": 20, "sync": 20, "replace": 2, "sync_folder": 3}[call]


def test_a_loop_that_ignores_the_error_does_lose_results(tmp_path):
    """The sweep can fail: a journal that acknowledges what it could not write is caught by it."""
    disk = FailingDisk({"write"}, 5, errno.EIO)
    acknowledged = []
    with Journal.open(tmp_path / "journal.jsonl", disk) as journal:
        for task in TASKS:
            with contextlib.suppress(StoreError):
                journal.append(a_result(task))
            acknowledged.append(task)
    records, _ = read_journal(tmp_path / "journal.jsonl")
    assert [record.task_id for record in records if isinstance(record, Result)] != acknowledged


def test_what_is_half_written_is_taken_out_before_the_next_record(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, FailingDisk({"write"}, 3, errno.ENOSPC, short=True)) as journal:
        journal.append(a_result("a"))
        with pytest.raises(StoreError, match="the disk is full; 1 result is safe; free some space and resume the run"):
            journal.append(a_result("b"))
        journal.append(a_result("c"))
    records, warnings = read_journal(path)
    assert [record.task_id for record in records[1:]] == ["a", "c"]
    assert not warnings


def test_an_interrupt_in_the_middle_of_a_write_costs_only_that_record(tmp_path):
    class Interrupted(FailingDisk):
        def sync(self, fd):
            if self._count("sync"):
                raise KeyboardInterrupt
            super(FailingDisk, self).sync(fd)

        def write(self, fd, data):
            if self.fired and b'"task_id":"full"' in bytes(data):
                raise OSError(errno.ENOSPC, "no space left on device")
            return super(FailingDisk, self).write(fd, data)

    path = tmp_path / "journal.jsonl"
    with Journal.open(path, Interrupted({"sync"}, 3)) as journal:
        journal.append(a_result("a"))
        with pytest.raises(KeyboardInterrupt):
            journal.append(a_result("interrupted"))
        journal.append(a_result("b"))
        with pytest.raises(StoreError, match="2 results are safe"):
            journal.append(a_result("full"))
    assert [record.task_id for record in read_journal(path)[0] if isinstance(record, Result)] == ["a", "b"]


def test_a_journal_that_cannot_be_cut_back_takes_no_more(tmp_path):
    class Dead(FailingDisk):
        def truncate(self, fd, size):
            raise OSError(errno.EIO, "input/output error")

    path = tmp_path / "journal.jsonl"
    with Journal.open(path, Dead({"write"}, 3, errno.EIO, short=True)) as journal:
        journal.append(a_result("a"))
        for _ in range(2):
            with pytest.raises(StoreError, match="1 result is safe"):
                journal.append(a_result("b"))
    with Journal.open(path) as journal:
        journal.append(a_result("c"))
    assert [record.task_id for record in read_journal(path)[0] if isinstance(record, Result)] == ["a", "c"]


@pytest.mark.parametrize("call", CALLS)
def test_a_fault_while_a_damaged_journal_is_set_aside_loses_nothing(quick_folder, call):
    path = quick_folder / "journal.jsonl"
    with Journal.open(path) as journal:
        for task in TASKS:
            journal.append(a_result(task))
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(b"task 7") + 2] ^= 1
    nth, fired = 0, True
    while fired:
        nth += 1
        path.write_bytes(damaged)
        disk = FailingDisk({call}, nth)
        with contextlib.suppress(StoreError):
            Journal.open(path, disk).close()
        fired = disk.fired
        count("faults injected", fired)
        Journal.open(path).close()
        results = [record for record in read_journal(path)[0] if isinstance(record, Result)]
        assert [result.task_id for result in results] == [task for task in TASKS if task != "task 7"]
        (kept,) = quick_folder.glob("*.damaged-*")
        assert kept.read_bytes() == damaged
        assert not list(quick_folder.glob(".*.tmp"))
    assert nth > 1


LIMITED = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from results_made import a_result
from waza.errors import StoreError
from waza.runs.journal import Journal
journal = Journal.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    for number in range(100):
        journal.append(a_result(str(number)))
        print(number, flush=True)
except StoreError as error:
    print(error)
    sys.exit(3)
"""


def test_a_file_that_may_not_grow_keeps_what_it_has_and_goes_on_later(tmp_path):
    path = tmp_path / "journal.jsonl"
    arguments = [sys.executable, "-c", LIMITED, str(path), str(Path(__file__).parent.parent)]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    *numbers, sentence = ended.stdout.splitlines()
    assert ended.returncode == 3, ended.stderr
    assert f"{len(numbers)} results are safe" in sentence
    with Journal.open(path) as journal:
        assert journal.results == len(numbers)
        assert not journal.warnings
        for number in range(len(numbers), 100):
            journal.append(a_result(str(number)))
    results = [record for record in read_journal(path)[0] if isinstance(record, Result)]
    assert [result.task_id for result in results] == [str(number) for number in range(100)]


@pytest.mark.skipif(not shutil.which("mount"), reason="needs mount")
@pytest.mark.parametrize("size", [64, 200, 512])
def test_a_full_file_system_keeps_what_it_has_and_goes_on_with_space(tmp_path, size):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", small], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a small file system")
    try:
        folder = RunFolder.create(small, a_run(tasks=[str(number) for number in range(2000)]))
        done = 0
        with pytest.raises(StoreError, match=r"the disk is full; \d+ results are safe"), folder:
            for done in range(2000):
                folder.append(a_result(str(done)))
        assert [int(result.task_id) for result in read_run(folder.path).results] == list(range(done))
        subprocess.run(["mount", "-o", "remount,size=16m", small], check=True)
        with RunFolder.open(folder.path) as again:
            for number in range(done, 2000):
                again.append(a_result(str(number)))
        assert len(read_run(folder.path).results) == 2000
    finally:
        subprocess.run(["umount", small], check=True)


def test_an_old_file_is_intact_after_a_failed_write_and_nothing_lies_beside_it(tmp_path):
    path = tmp_path / "results.json"
    write_atomically(path, "old")
    for call in ("open", "write", "sync", "replace"):
        with pytest.raises(StoreError, match="no space left on device; the old file is untouched"):
            write_atomically(path, "new", FailingDisk({call}, 1, errno.ENOSPC, short=True))
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]


def test_a_run_folder_that_is_deleted_under_a_run_comes_back_with_its_results(tmp_path):
    folder = RunFolder.create(tmp_path / "runs", a_run(tasks=TASKS))
    for task in TASKS[:3]:
        folder.append(a_result(task))
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(StoreError, match="was deleted during the run; 4 results are restored"):
        folder.append(a_result(TASKS[3]))
    folder.close()
    assert [result.task_id for result in read_run(folder.path).results] == TASKS[:4]
    with RunFolder.open(folder.path) as again:
        again.append(a_result(TASKS[4]))
    assert len(read_run(folder.path).results) == 5


def test_a_file_in_the_place_of_a_derived_file_s_folder_is_told(tmp_path):
    (tmp_path / "reports").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written: not a directory"):
        write_atomically(tmp_path / "reports" / "results.json", "new")


def test_a_file_in_the_place_of_the_folder_is_told_before_anything_runs(tmp_path):
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(StoreError, match="nothing was run"):
        RunFolder.create(tmp_path / "runs", a_run())


def test_a_folder_nobody_can_write_is_told_before_anything_runs():
    if not Path("/proc/self").exists():
        pytest.skip("needs /proc, where not even root can make a folder")
    with pytest.raises(StoreError, match="nothing was run"):
        RunFolder.create("/proc/self/runs", a_run())


def test_the_limit_on_open_files_is_told_by_name(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        with pytest.raises(StoreError, match="too many open files"):
            Journal.open(tmp_path / "journal.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
