"""What the guide on reports shows is what is printed; its commands run one after the other."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import warm_cli
from results_made import a_result, a_run

GUIDE = (Path(__file__).parent.parent.parent / "docs" / "guide" / "reports.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.M | re.S)


def fits(shown, printed):
    """Return whether a text was printed as shown; … matches what differs from run to run, on its own any lines."""
    lines = [r"(?:.*\n)*?" if line == "…" else pattern(line) + r"\n" for line in spaced(shown)]
    return re.fullmatch("".join(lines), "\n".join(spaced(printed)) + "\n")


def spaced(text):
    return [" ".join(line.split()) for line in text.strip("\n").split("\n")]


def pattern(line):
    return ".*?".join(re.escape(part) for part in line.split("…"))


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are for a POSIX shell")
def test_the_commands_of_the_guide_print_what_it_shows(tmp_path):
    (tmp_path / "eval.yaml").write_text(blocks("yaml")[0])
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    environment |= {"PATH": warm_cli.path(), "NO_COLOR": "1", "COLUMNS": "120"}
    how = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 100}
    commands, shown = blocks("sh"), blocks("text")
    assert len(commands) == len(shown) == 4
    for command, text in zip(commands, shown, strict=True):
        *before, last = command.strip().split("\n")
        for line in before:
            subprocess.run(["sh", "-c", line], **how)
        done = subprocess.run(
            ["sh", "-c", last], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
        )
        assert done.returncode in (0, 1), done.stderr
        assert fits(text, done.stdout), done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["comment.md", "junit.xml", "report.html"]


def test_a_text_that_differs_from_the_guide_would_be_detected():
    assert fits("a … c\n…\nend\n", "a b c\n1\n2\nend\n")
    assert not fits("a … c\n", "a b d\n")
    assert not fits("a\n…\nend\n", "a\nb\n")


def test_the_table_of_the_guide_has_every_report():
    from waza.reports.base import REPORTS

    rows = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", GUIDE, re.M)
    assert dict(rows) == {name: REPORTS.load(name).file for name in REPORTS.built_in()}


def test_the_report_of_one_s_own_works():
    names = {}
    exec(blocks("python")[0], names)
    assert b"".join(names["SentenceReport"]().render(a_run([a_result()]))) == b"1 of 1 passed\n"
