"""`waza check --oracles`: which tasks an agent gets through that does no work."""

from __future__ import annotations

import json

from waza.cli._screen import say
from waza.cli._stdout import emit
from waza.reports._text import plural, visible
from waza.runner.oracles import ORACLES, Finding, cheated
from waza.spec.suite import EvalSpec


def weak_tasks(spec: EvalSpec, *, quiet: bool, as_json: bool) -> tuple[int, int]:
    """Let every oracle try a suite, and say what they get through; return how many tasks they pass, and cannot try."""
    found = list(cheated(spec))
    if as_json:
        for finding in found:
            emit(json.dumps(finding._asdict() | {"sentence": str(finding)}))
    else:
        _passed(found)
        _untried(found)
        if not quiet:
            _held(found)
    weak = {finding.task for finding in found if finding.kind == "passes"}
    untried = {finding.task for finding in found if finding.kind == "not decided"}
    if not as_json and not quiet and not weak | untried:
        say(f"oracles: none of {len(ORACLES)} passes any of {plural(len(spec.tasks), 'task')}", "green")
    return len(weak), len(untried)


def _passed(found: list[Finding]) -> None:
    """Say, a line a task, which oracles pass it."""
    passed: dict[str, list[str]] = {}
    for finding in found:
        if finding.kind == "passes":
            passed.setdefault(finding.task, []).append(finding.oracle)
    for task, oracles in passed.items():
        verb = "passes" if len(oracles) == 1 else "pass"
        told = f"error: task '{task}': {', '.join(oracles)} {verb}; add a check that only the work itself can meet"
        say(visible(told), "bold red")


def _untried(found: list[Finding]) -> None:
    """Say which oracles could not try a task: nobody knows whether they would pass it."""
    for finding in found:
        if finding.kind == "not decided":
            say(visible(f"warning: {finding}"), "yellow")


def _held(found: list[Finding]) -> None:
    """Say, a line a task, what only a judge stands against."""
    held: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for finding in found:
        if finding.kind == "held up by a judge alone":
            held.setdefault((finding.task, finding.graders), []).append(finding.oracle)
    for (task, graders), oracles in held.items():
        say(
            visible(f"note: task '{task}': nothing but {', '.join(graders)} stands against {', '.join(oracles)}"),
            "cyan",
        )
