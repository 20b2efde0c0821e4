"""What was acknowledged survives `kill -9` and a power cut; a journal that buffers or does not sync loses some."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from campaign import count, size
from results_made import a_result
from waza.files.disk import Disk
from waza.model import Result
from waza.runs.journal import Journal, read_journal

HERE = Path(__file__).parent.parent
WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from results_made import BufferedJournal, a_result
from waza.runs.journal import Journal
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
    kills = size(4, 20, 100)
    lost = lost_after_kills(quick_folder, "journal", kills)
    count("kill -9", kills)
    count("acknowledged results lost", lost)
    assert lost == 0


def test_the_same_kills_cost_a_buffering_journal_results(quick_folder):
    assert lost_after_kills(quick_folder, "buffered", 2) > 0


KILLER = """
import json, os, random, signal, sys, time
sys.path.insert(0, sys.argv[1])
from results_made import BufferedJournal, a_result
from waza.model import Result
from waza.runs.journal import Journal, read_journal

def write(path, told):
    journal = {"journal": Journal, "buffered": BufferedJournal}[kind].open(path)
    number = journal.results
    while True:
        batch = [a_result(str(number + more)) for more in range(1, 1 + (randomly.randrange(4) if number % 3 else 1))]
        journal.append(*batch)
        number += len(batch)
        os.write(told, b"".join(result.task_id.encode() + b"\\n" for result in batch))

kind, kills = sys.argv[3], int(sys.argv[4])
randomly = random.Random(kills)
figures = {"kills": 0, "acknowledged": 0, "lost": 0, "doubled": 0, "died by themselves": 0}
for kill in range(kills):
    if kill % 6 == 0:
        path, acknowledged = os.path.join(sys.argv[2], f"{kill}.jsonl"), set()
    ours, told = os.pipe()
    writer = os.fork()
    if not writer:
        os.close(ours)
        write(path, told)
    os.close(told)
    time.sleep(randomly.choice([0.002, 0.01]) * randomly.random())
    os.kill(writer, signal.SIGKILL)
    with open(ours, "rb") as pipe:
        now = {int(line) for line in pipe.read().split(b"\\n")[:-1]}
    ended = os.waitpid(writer, 0)[1]
    figures["died by themselves"] += ended != signal.SIGKILL
    figures["kills"] += ended == signal.SIGKILL
    figures["acknowledged"] += len(now)
    acknowledged |= now
    found = read_journal(path)[0] if os.path.exists(path) else []
    kept = [int(record.task_id) for record in found if isinstance(record, Result)]
    figures["lost"] += len(acknowledged - set(kept))
    figures["doubled"] += len(kept) - len(set(kept))
    if kill % 6 == 5 and os.path.exists(path):
        os.unlink(path)
print(json.dumps(figures))
"""


def kill_forked_writers(folder, kind, kills):
    """Kill so many writers, forked by a process that has loaded everything, and return the figures.

    Six kills in a row meet the same journal, so that opening and repairing it is interrupted as well.
    """
    arguments = [sys.executable, "-c", KILLER, str(HERE), str(folder), kind, str(kills)]
    return json.loads(subprocess.run(arguments, stdout=subprocess.PIPE, check=True).stdout)


def test_writers_killed_at_any_moment_lose_nothing_they_acknowledged(quick_folder):
    kills = size(60, 1_000, 10_000)
    figures = kill_forked_writers(quick_folder, "journal", kills)
    count("kill -9", figures["kills"])
    count("results acknowledged", figures["acknowledged"])
    count("acknowledged results lost", figures["lost"])
    count("results written twice", figures["doubled"])
    assert figures["acknowledged"] > kills
    assert figures == figures | {"kills": kills, "lost": 0, "doubled": 0, "died by themselves": 0}


def test_the_same_kills_of_a_buffering_writer_are_seen_to_lose_results(quick_folder):
    assert kill_forked_writers(quick_folder, "buffered", 12)["lost"] > 0


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
