"""Compact lists and mappings hold what was put in, in little memory, in whatever way it is asked for."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waza import compact
from waza.compact import CompactDict, CompactList, where
from waza.model import Task

TEXT = st.text(max_size=20) | st.just("half \ud800 of a pair")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT, st.lists, max_leaves=5
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks of three after the first two, and room for a hundred bytes: every kind of block within twenty entries."""
    monkeypatch.setattr(compact, "KEPT", 2)
    monkeypatch.setattr(compact, "BLOCK", 3)
    monkeypatch.setattr(compact, "MOST_IN_MEMORY", 100)


@given(st.lists(JSON, max_size=30), st.data())
def test_a_compact_list_is_like_the_list(entries, data):
    made = CompactList(entries)
    assert made == entries and list(made) == entries and len(made) == len(entries)
    places = data.draw(st.lists(st.integers(0, len(entries) - 1), max_size=9)) if entries else []
    picked = made.pick(places)
    assert list(picked) == [entries[place] for place in places]
    assert [made[place] for place in places] == list(picked) and list(picked[1:3]) == list(picked)[1:3]
    assert made[1:] == entries[1:] and made[-2:] == entries[-2:]
    for wrong in (len(entries), -len(entries) - 1):
        with pytest.raises(IndexError):
            made[wrong]
    assert list(where(made, bool)) == [entry for entry in entries if entry]


@given(st.lists(st.builds(Task, id=TEXT, prompt=TEXT, context=st.dictionaries(TEXT, JSON, max_size=2)), max_size=20))
def test_records_come_out_as_they_were_put_in(tasks):
    assert CompactList(tasks, Task) == tasks


@given(st.lists(st.tuples(TEXT, JSON), max_size=20))
def test_a_compact_mapping_is_like_the_dict(pairs):
    made, again = CompactDict(pairs), dict(pairs)
    assert made == again and dict(made.pairs()) == again and list(made.values()) == list(again.values())
    assert made.get("not there", 7) == 7 and (made | {"more": 1}) == (again | {"more": 1})
    assert dict(CompactDict(pairs, CompactDict(again.items()))) == again


def test_what_cannot_be_packed_stays_and_a_changed_file_is_refused():
    entries = [lambda number: number for _ in range(9)]
    assert list(CompactList(entries)) == entries
    texts = [f"{place} " + "abcdefgh" * place for place in range(40)]
    made = CompactList(texts)
    assert made == texts and made._file is not None
    made._file.seek(0)
    made._file.write(b"another")
    with pytest.raises(OSError, match="changed by another"):
        list(made)


MEASURED = """
import os, resource, sys
os.fdatasync = lambda fd: None  # a disk's speed is not what is measured
from waza.cli import run_command
codes = [run_command(arguments.split()) for arguments in sys.argv[1:]]
print(*codes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_kib(folder, *commands):
    command = [sys.executable, "-c", MEASURED, *commands]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    *codes, size = done.stdout.splitlines()[-1].split()
    assert set(codes) == {"0"}, done.stdout + done.stderr
    return int(size)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units elsewhere")
def test_a_large_run_takes_little_memory_for_each_task(tmp_path):
    """A task that is kept as objects costs 3 KiB more: run, shown and reported it costs less than half of that."""
    sizes = []
    for count in (2_500, 7_500):
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / "eval.yaml").write_text(
            "name: s\nconfig: {executor: mock}\ntasks_from: tasks.csv\n"
            "graders: [{type: text, name: says, config: {contains: [Hello]}}]\n"
        )
        (folder / "mock.yaml").write_text("default: {echo: true}\n")
        rows = (f"task-{number:06},Say Hello to number {number} and be nice" for number in range(count))
        (folder / "tasks.csv").write_text("id,prompt\n" + "\n".join(rows))
        sizes.append(peak_kib(folder, "run . -q", "show", "show --reporter junit:report.xml"))
    assert (sizes[1] - sizes[0]) / 5_000 < 1.5, sizes
