"""`waza explain`: why the rules of a `trace_rules` grader passed on a trace or not, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path

import click

from waza.cli._runs import the_run
from waza.cli._screen import say
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED, UsageError, did_you_mean
from waza.graders.base import Grader
from waza.graders.trace_rules import (
    Judged,
    Outcome,
    Rule,
    RuleRun,
    TraceRulesGrader,
    View,
    item_text,
    outcome_of,
    violation_text,
)
from waza.model import JSON, Trace
from waza.runs.store import open_run
from waza.suites.load import load_spec
from waza.traces.reading import read_trace
from waza.untrusted.text import clipped, plural

MOST_CALLS = 60
_STYLES = {"passed": "green", "violated": "bold red", "undecided": "yellow", "not_applied": "dim"}


@click.command(epilog="Example:  waza explain eval.yaml trace.json  ·  waza explain eval.yaml latest --task refund")
@click.argument("suite", type=click.Path(path_type=Path, exists=True))
@click.argument("trace")
@click.option("--grader", "grader_name", help="One grader of the suite, by its name.")
@click.option("--rule", "rule_name", help="One rule, by its name or its number from 1.")
@click.option("--task", help="The task of a stored run whose trace is explained.")
@click.option("--trial", type=click.IntRange(1), default=1, show_default=True, help="The trial of that task.")
def command(
    suite: Path, trace: str, grader_name: str | None, rule_name: str | None, task: str | None, trial: int
) -> int:
    """Explain why rules passed or not: SUITE has `trace_rules` graders, TRACE is a file or, with --task, a stored run.

    Each rule is shown with its windows: the call that opens one, the values it binds, the calls in it and what counts.
    Exit code 1: a rule is violated; 3: none is, but one is undecided, or none applied.
    """
    graders = _graders(suite, grader_name)
    seen = _stored(trace, task, trial) if task else read_trace(Path(trace))
    statuses = []
    for grader in graders:
        view = grader.view(seen)
        say(f"{grader.name}: {plural(view.count, 'call')}, order: {view.order.mode}", "bold")
        for rule in _rules(grader, rule_name):
            outcome = outcome_of(rule, view)
            statuses.append(outcome.status)
            _explain(outcome, view)
    if "violated" in statuses:
        return EXIT_FAILED
    return EXIT_UNDECIDED if "undecided" in statuses or set(statuses) == {"not_applied"} else EXIT_PASSED


def _graders(suite: Path, name: str | None) -> list[TraceRulesGrader]:
    spec = load_spec(suite)
    graders = spec.graders.values()
    every = {id(one): one for listed in graders for one in _rule_graders(listed)}
    found = [grader for grader in every.values() if name in (None, grader.name)]
    if not every:
        raise UsageError(f"{suite} has no trace_rules grader")
    if not found:
        hint = did_you_mean(str(name), [grader.name for grader in every.values()])
        raise UsageError(f"{suite} has no trace_rules grader '{name}'; {hint}")
    return found


def _rule_graders(graders: Iterable[Grader]) -> Iterator[TraceRulesGrader]:
    """Yield the graders with rules, those inside others too."""
    for grader in graders:
        if isinstance(grader, TraceRulesGrader):
            yield grader
        else:
            yield from _rule_graders(grader.parts)


def _rules(grader: TraceRulesGrader, wanted: str | None) -> list[Rule]:
    if wanted is None:
        return grader.rules
    if wanted.isdecimal() and 1 <= int(wanted) <= len(grader.rules):
        return [grader.rules[int(wanted) - 1]]
    found = [rule for rule in grader.rules if rule.title == wanted]
    if not found:
        hint = did_you_mean(wanted, [rule.title for rule in grader.rules])
        raise UsageError(f"grader '{grader.name}' has no rule '{wanted}'; {hint}")
    return found


def _stored(run: str, task: str, trial: int) -> Trace:
    stored = open_run(the_run(run))
    results = [result for result in stored.results if result.task_id == task]
    if not results:
        known = list(dict.fromkeys(result.task_id for result in stored.results))
        raise UsageError(f"run {stored.id} has no task '{task}'; {did_you_mean(task, known)}")
    chosen = next((result for result in results if result.trial == trial), None)
    if chosen is None:
        raise UsageError(f"task '{task}' has no trial {trial}")
    return chosen.trace


def _explain(outcome: Outcome, view: View) -> None:
    rule = outcome.rule
    say(f"\n{rule.title}: {outcome.status.replace('_', ' ')}", _STYLES[outcome.status])
    if rule.name is not None:
        say(f"  {rule.claim}")
    if outcome.reason:
        say(f"  {outcome.reason}")
        return
    windows = RuleRun(rule, view).windows(view.count)
    if not windows:
        say(f"  its trigger never occurs; when_absent: {rule.when_absent}")
    for number, judged in enumerate(windows, 1):
        say(f"  window {number} of {len(windows)}{_opened(judged, view)}: {_verdict(judged, rule)}")
        for line in _calls(judged, view, rule):
            say(f"    {line}")
    if outcome.status == "violated":
        say(f"  {violation_text(outcome, view)}")


def _opened(judged: Judged, view: View) -> str:
    if judged.window.trigger < 0:
        return ""
    opened = f", {item_text(judged.timeline.items[judged.window.trigger], view)}"
    return opened + "".join(f", {name} = {_shown(values)}" for name, values in judged.bound.items())


def _shown(values: list[JSON]) -> str:
    return clipped(" or ".join(repr(value) for value in values), 60)


def _verdict(judged: Judged, rule: Rule) -> str:
    if judged.ok is None:
        return "undecided, it has no value to bind"
    low, high = rule.bounds
    noun = "other calls" if rule.only is not None else "found"
    bounds = [f"at least {low:g} needed"] if low else []
    bounds += [f"at most {high:g} allowed"] if high != inf else []
    return f"{judged.found} {noun}, {' and '.join(bounds)}: {'holds' if judged.ok else 'violated'}"


def _calls(judged: Judged, view: View, rule: Rule) -> Iterator[str]:
    """Yield the calls and messages of a window, those that count marked."""
    found = set(judged.positions)
    members = sorted(judged.members())
    for position in members[:MOST_CALLS]:
        item = judged.timeline.items[position]
        counts = (position in found) is (rule.only is None) and (item >= 0 or position in found)
        yield f"{'*' if counts else ' '} {item_text(item, view)}"
    if len(members) > MOST_CALLS:
        yield f"  … {plural(len(members) - MOST_CALLS, 'more call')}"
    if not members and judged.ok is not None:
        yield "  (no call is in it)"
