"""A disk that fills up during a run: one clear sentence, nothing acknowledged lost, and the run goes on with space."""

import os
import subprocess
import sys

import pytest

from waza.runs.store import read_run

COUNT = 60


@pytest.fixture
def wordy(suite):
    tasks = "".join(f"  - {{id: t{n:02}, prompt: x, mock: {{output: 'yes {'x' * 2000}'}}}}\n" for n in range(COUNT))
    return suite("config: {executor: mock}\ngraders: [{type: text, config: {contains: ['yes']}}]\ntasks:\n" + tasks)


def run(folder, *arguments, limit_kb=None):
    words = [sys.executable, "-m", "waza", "run", str(folder), "-q", *arguments]
    if limit_kb is not None:
        words = ["bash", "-c", f'trap "" XFSZ; ulimit -f {limit_kb}; exec "$@"', "bash", *words]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100, env=environment)


def stored(folder):
    [run_folder] = [path for path in (folder / "runs").iterdir() if path.is_dir()]
    return [result.task_id for result in read_run(run_folder).results]


def test_full_then_space_then_resume_completes(wordy):
    done = run(wordy, limit_kb=200)
    assert done.returncode == 3, done.stdout + done.stderr
    sentence = done.stderr.strip().split("\n")[-1]
    assert "results are safe" in sentence and "resume" in sentence
    assert "Traceback" not in done.stderr
    kept = stored(wordy)
    assert 0 < len(kept) < COUNT
    done = run(wordy, "--resume")
    assert done.returncode == 0, done.stderr
    assert stored(wordy)[: len(kept)] == kept
    assert len(stored(wordy)) == COUNT


def test_full_from_the_start_says_so_before_anything_runs(wordy):
    done = run(wordy, limit_kb=1)
    assert done.returncode == 3
    assert "nothing was run" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/proc/mounts"), reason="mounting needs root on Linux")
def test_a_real_small_file_system(wordy, tmp_path):
    small = tmp_path / "runs"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", small], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        done = run(wordy)
        assert done.returncode == 3, done.stdout + done.stderr
        assert "the disk is full" in done.stderr
        kept = stored(wordy)
        assert 0 < len(kept) < COUNT
        subprocess.run(["mount", "-o", "remount,size=20m", small], check=True)
        done = run(wordy, "--resume")
        assert done.returncode == 0, done.stderr
        assert len(stored(wordy)) == COUNT
    finally:
        subprocess.run(["umount", small], check=True)
