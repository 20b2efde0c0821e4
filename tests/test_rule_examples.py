"""The suites in `examples/rules`: their recorded traces pass and fail as their names say, and the guide shows it."""

import re
import shutil
from pathlib import Path

import pytest

import waza
from waza.untrusted.command_lines import classify
from waza.untrusted.yaml import read_yaml

ROOT = Path(__file__).parent.parent
SUITES = ROOT / "examples" / "rules"
GUIDE = (ROOT / "docs" / "guide" / "rules.md").read_text(encoding="utf-8")
FAILED = {
    "account-closing": {"other-account": ["closing"], "data-deleted": ["closing", "closes_one_account"]},
    "data-export": {"not-masked": ["masked"], "curl": ["nothing_leaves_by_the_shell"]},
    "database-migration": {"other-table": ["migration_order"], "dropped": ["drops_nothing"]},
    "deploy": {"nobody-said-yes": ["release_order"], "tests-failed": ["release_order", "nothing_else"]},
    "e-mail": {"guessed-address": ["drafted"], "sent-twice": ["one_mail"]},
    "file-edits": {"blind-edit": ["reads_and_tests"], "committed": ["leaves_the_repository_alone"]},
    "on-call": {"restart-first": ["runbook"], "nobody-paged": ["runbook", "two_sources"]},
    "package-release": {"no-tests": ["order"], "forced": ["commands"]},
    "payment": {"not-asked": ["confirmed"], "other-amount": ["confirmed", "exact_arguments"]},
    "refund-desk": {"wrong-order": ["careful"], "paid-twice": ["pays_once"]},
}
"""By suite and trace: the graders that fail; all others pass."""


def test_each_suite_is_listed():
    assert sorted(FAILED) == sorted(folder.name for folder in SUITES.iterdir())


@pytest.mark.parametrize("name", FAILED)
def test_one_trace_passes_and_two_fail_each_for_its_reason(name):
    spec = waza.load_spec(SUITES / name)
    [graders] = spec.graders.values()
    wanted = {"passes": []} | {f"fails-{reason}": failed for reason, failed in FAILED[name].items()}
    found = {}
    for file in (SUITES / name / "traces").iterdir():
        trace = waza.read_trace(file)
        assert trace.input == spec.tasks[0].prompt
        grades = [grader.grade(trace) for grader in graders]
        assert "error" not in [grade.status for grade in grades]
        found[file.stem] = [grade.name for grade in grades if grade.status == "failed"]
    assert found == wanted


def test_a_suite_replays_the_trace_that_passes(tmp_path):
    shutil.copytree(SUITES / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("runs"))
    assert [result.status for result in waza.run(tmp_path / "deploy").results] == ["passed"]


def test_the_guide_shows_what_the_grader_of_side_effects_says():
    [entry] = [entry for text in re.findall(r"^```yaml\n(- type: side_effects\n.*?)^```", GUIDE, re.M | re.S)
               for entry in read_yaml(text, "guide")]  # fmt: skip
    trace = waza.read_trace(SUITES / "refund-desk" / "traces" / "fails-paid-twice.json")
    assert f"```text\n{waza.load_grader(entry).grade(trace).feedback}\n```" in GUIDE
    rows = re.findall(r"^\| (read-only|mutating|unknown) \| (.*) \|$", GUIDE, re.M)
    assert len(rows) == 3
    for kind, lines in rows:
        examples = [line.replace("\\|", "|") for line in re.findall(r"`([^`]*)`", lines)]
        assert {classify(line) for line in examples} == {kind.replace("-", "_")}, examples
