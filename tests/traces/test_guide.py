"""What the guide on traces says works as it stands, for somebody who has nothing but a recording."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from trace_recordings import FOLDER

import warm_cli

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guide" / "traces.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.M | re.S)


def newcomer(folder):
    """A folder with recordings and nothing else; return how commands are run there."""
    for name in ("run.jsonl", "other.json", "many.jsonl"):
        shutil.copy(FOLDER / "gemini-multi.jsonl", folder / name)
    return {
        "cwd": folder,
        "env": os.environ | {"PATH": warm_cli.path()},
        "capture_output": True,
        "text": True,
        "timeout": 100,
    }


def test_the_commands_of_the_guide_run_one_after_the_other(tmp_path):
    how = newcomer(tmp_path)
    commands = blocks("sh")
    assert len(commands) == 2 and "waza new task --from" in commands[0]
    for command in commands:
        done = subprocess.run(["sh", "-e", "-c", command], **how)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "checks/tasks/run.yaml").is_file()


def test_the_python_of_the_guide_runs(tmp_path):
    how = newcomer(tmp_path)
    for program in blocks("python"):
        done = subprocess.run([sys.executable, "-c", program], **how)
        assert done.returncode == 0, done.stderr
