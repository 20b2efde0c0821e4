"""What was acknowledged survives `kill -9` and a power cut; a journal that buffers or does not sync loses some."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from results_made import a_result
from waza.model import Result
from waza.results.disk import Disk
from waza.results.journal import Journal, read_journal

HERE = Path(__file__).parent.parent
WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from results_made import BufferedJournal, a_result
from waza.results.journal import Journal
kind = {"journal": Journal, "buffered": BufferedJournal}[sys.argv[2]]
journal = kind.open(sys.argv[1])
number = journal.results
while True:
    number += 1
    journal.append(a_result(str(number)))
    print(number, flush=True)
"""


def kill_while_writing(path, kind, wait_s):
    """Start a writer, kill it at a random moment, and return the last number it acknowledged."""
    arguments = [sys.executable, "-c", WRITER, str(path), kind, str(HERE)]
    writer = subprocess.Popen(arguments, stdout=subprocess.PIPE, start_new_session=True)
    first = writer.stdout.readline()
    time.sleep(wait_s)
    os.kill(writer.pid, signal.SIGKILL)
    rest = writer.stdout.read()
    writer.wait()
    writer.stdout.close()
    told = [line for line in (first + rest).split(b"\n")[:-1] if line]
    return int(told[-1])


def kept(path):
    return [int(record.task_id) for record in read_journal(path)[0] if isinstance(record, Result)]


def lost_after_kills(quick_folder, kind, kills):
    """How many acknowledged results are missing after a number of kills, each followed by going on."""
    randomly = random.Random(11)
    lost = 0
    path = quick_folder / f"{kind}.jsonl"
    for kill in range(kills):
        if kind == "buffered" or kill % 4 == 0:
            path.unlink(missing_ok=True)
        acknowledged = kill_while_writing(path, kind, randomly.uniform(0.0, 0.02))
        numbers = kept(path)
        assert len(numbers) == len(set(numbers))
        lost += acknowledged - len(set(numbers) & set(range(1, acknowledged + 1)))
    return lost


def test_a_killed_writer_loses_nothing_it_acknowledged(quick_folder):
    assert lost_after_kills(quick_folder, "journal", 8) == 0


def test_the_same_kills_cost_a_buffering_journal_results(quick_folder):
    assert lost_after_kills(quick_folder, "buffered", 3) > 0


@pytest.mark.campaign
def test_a_writer_killed_a_thousand_times_loses_nothing(quick_folder):
    assert lost_after_kills(quick_folder, "journal", 1000) == 0


class ForgetfulDisk(Disk):
    """Loses power: of each file only what had been written at its last sync is still there afterwards."""

    def __init__(self):
        self.synced = {}

    def sync(self, fd):
        super().sync(fd)
        self.synced[os.readlink(f"/proc/self/fd/{fd}")] = os.fstat(fd).st_size

    def lose_power(self, path):
        os.truncate(path, self.synced.get(str(path), 0))


class LyingDisk(ForgetfulDisk):
    """Says that it has synced, and has not."""

    def sync(self, fd):
        pass


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to know a file by its descriptor")
@pytest.mark.parametrize(("disk", "count"), [(ForgetfulDisk(), 20), (LyingDisk(), 0)])
def test_what_was_acknowledged_survives_a_power_cut_because_of_the_sync(quick_folder, disk, count):
    path = quick_folder / "journal.jsonl"
    journal = Journal.open(path, disk)
    for number in range(20):
        journal.append(a_result(str(number)))
    disk.lose_power(path)
    journal.close()
    assert kept(path) == list(range(count))
