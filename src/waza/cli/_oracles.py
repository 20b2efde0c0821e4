"""`waza check --oracles`: which tasks an agent gets through that does no work."""

from __future__ import annotations

import json

import click

from waza.cli._screen import say
from waza.reports._text import plural, visible
from waza.runner.oracles import ORACLES, Finding, cheated
from waza.spec.suite import EvalSpec


def weak_tasks(spec: EvalSpec, *, quiet: bool, as_json: bool) -> int:
    """Let every oracle try a suite, say what they get through, and return how many tasks they pass."""
    found = list(cheated(spec))
    if as_json:
        for finding in found:
            click.echo(json.dumps(finding._asdict() | {"sentence": str(finding)}))
    else:
        _passed(found)
        if not quiet:
            _rest(found)
    weak = {finding.task for finding in found if finding.kind == "passes"}
    if not as_json and not quiet and not weak:
        say(f"oracles: none of {len(ORACLES)} passes any of {plural(len(spec.tasks), 'task')}", "green")
    return len(weak)


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


def _rest(found: list[Finding]) -> None:
    """Say, a line a task, what only a judge stands against, and what could not be tried."""
    held: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for finding in found:
        if finding.kind == "held up by a judge alone":
            held.setdefault((finding.task, finding.graders), []).append(finding.oracle)
        elif finding.kind == "not decided":
            say(visible(f"warning: {finding}"), "yellow")
    for (task, graders), oracles in held.items():
        say(
            visible(f"note: task '{task}': nothing but {', '.join(graders)} stands against {', '.join(oracles)}"),
            "cyan",
        )
