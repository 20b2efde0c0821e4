"""`waza check --oracles`: which tasks pass although no work was done."""

from __future__ import annotations

import json

from waza.analysis.oracles import ORACLES, OracleFinding, cheated
from waza.cli._screen import emit, say
from waza.suites.suite import EvalSpec
from waza.untrusted.text import plural, visible


def weak_tasks(spec: EvalSpec, *, quiet: bool, as_json: bool) -> tuple[int, int]:
    """Print which tasks of a suite oracles pass; return how many they pass, and how many are undecided."""
    findings = list(cheated(spec))
    if as_json:
        for finding in findings:
            emit(json.dumps(finding._asdict() | {"sentence": str(finding)}))
    else:
        _print_passed(findings)
        _print_undecided(findings)
        if not quiet:
            _print_judge_only(findings)
    weak = {finding.task for finding in findings if finding.kind == "passes"}
    untried = {finding.task for finding in findings if finding.kind == "not decided"}
    if not as_json and not quiet and not weak | untried:
        say(f"oracles: none of {len(ORACLES)} passes any of {plural(len(spec.tasks), 'task')}", "green")
    return len(weak), len(untried)


def _print_passed(findings: list[OracleFinding]) -> None:
    """Print, one line per task, which oracles pass it."""
    passed: dict[str, list[str]] = {}
    for finding in findings:
        if finding.kind == "passes":
            passed.setdefault(finding.task, []).append(finding.oracle)
    for task, oracles in passed.items():
        verb = "passes" if len(oracles) == 1 else "pass"
        message = f"error: task '{task}': {', '.join(oracles)} {verb}; add a check that only the work itself can meet"
        say(visible(message), "bold red")


def _print_undecided(findings: list[OracleFinding]) -> None:
    """Print which oracles could not be tried on a task."""
    for finding in findings:
        if finding.kind == "not decided":
            say(visible(f"warning: {finding}"), "yellow")


def _print_judge_only(findings: list[OracleFinding]) -> None:
    """Print, one line per task, which oracles only a judge would fail."""
    by_graders: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for finding in findings:
        if finding.kind == "protected by a judge alone":
            by_graders.setdefault((finding.task, finding.graders), []).append(finding.oracle)
    for (task, graders), oracles in by_graders.items():
        say(visible(f"note: task '{task}': only {', '.join(graders)} fails {', '.join(oracles)}"), "cyan")
