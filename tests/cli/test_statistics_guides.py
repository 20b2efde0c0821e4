"""What the guides on statistics and continuous integration show is what is printed, one command after the other."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import warm_cli

GUIDES = Path(__file__).parent.parent.parent / "docs" / "guide"


def blocks(guide, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (GUIDES / guide).read_text(encoding="utf-8"), re.M | re.S)


def fits(shown, printed):
    """Say whether a text was printed as it is shown; … stands for what differs from run to run, alone for any lines."""
    lines = [r"(?:.*\n)*?" if line == "…" else pattern(line) + r"\n" for line in spaced(shown)]
    return re.fullmatch("".join(lines), "\n".join(spaced(printed)) + "\n")


def pattern(line):
    return ".*?".join(map(re.escape, line.split("…")))


def spaced(text):
    lines = [" ".join(line.split()) for line in text.strip("\n").split("\n")]
    return [line for line in lines if line]


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are for a POSIX shell")
@pytest.mark.parametrize("guide", ["statistics.md", "ci.md"])
def test_the_commands_of_the_guide_print_what_it_shows(guide, tmp_path):
    (tmp_path / "eval.yaml").write_text(blocks(guide, "yaml")[0])
    environment = os.environ | {"PATH": warm_cli.path(), "NO_COLOR": "1", "COLUMNS": "120"}
    how = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 100}
    for command, text in zip(blocks(guide, "sh"), blocks(guide, "text"), strict=True):
        *before, last = command.strip().split("\n")
        for line in before:
            subprocess.run(["sh", "-c", line], **how)
        done = subprocess.run(["sh", "-c", last], **how)
        assert done.returncode in (0, 1), done.stderr
        assert fits(text, done.stdout), f"{last}\n{done.stdout}\n{done.stderr}"


def test_a_text_that_is_not_as_shown_would_be_noticed():
    assert fits("a … c\n…\nend\n", "a b c\n1\n2\nend\n")
    assert not fits("a … c\n", "a b d\n")


def test_the_settings_of_auto_in_the_guide_load(tmp_path):
    from waza.suites.load import load_spec

    suite = blocks("statistics.md", "yaml")[1]
    rest = "graders: [{type: text, config: {contains: [x]}}]\ntasks: [{id: t, prompt: hi}]\n"
    (tmp_path / "eval.yaml").write_text(suite + rest)
    assert load_spec(tmp_path).config.trials_per_task == "auto"
