"""`--baseline`: its options, the arms it asks for, and what the exit code says about the skill.

    --needs          improvement shown   no difference shown, too little evidence   regression shown
    no-regression    0                   0                                          1
    improvement      0                   3                                          1
    pass             as without --baseline: whether the tasks passed with the skill

Where undecided trials could turn the answer, trials are missing or the control arm had the skill, it is 3.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from waza.cli._screen import remark, say
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED, UsageError
from waza.model import Run
from waza.runner.baseline import control_trials, with_baseline
from waza.runner.request import RunRequest, request_for
from waza.runs.impact import stored_impact
from waza.runs.impact_records import BASELINE, CONTROL, Impact
from waza.runs.store import open_run
from waza.suites.suite import EvalSpec
from waza.untrusted.text import plural

Command = TypeVar("Command", bound=Callable[..., Any])
NEEDS = ("no-regression", "improvement", "pass")


def baseline_options(command: Command) -> Command:
    """Add `--baseline`, `--needs` and `--these-tasks` to a command."""
    these = click.option(
        "--these-tasks", is_flag=True, help="With --baseline: judge these tasks alone, not tasks like them."
    )
    needs = click.option(
        "--needs",
        type=click.Choice(NEEDS),
        help="With --baseline, what exit code 0 needs: no regression shown (default), an improvement shown, or that "
        "the tasks pass with the skill.",
    )
    baseline = click.option(
        "--baseline/--no-baseline",
        default=None,
        help="Also run every task without the skill, trial by trial in turn, and say what the skill does.",
    )
    return baseline(needs(these(command)))


def baseline_of(order: RunRequest, options: dict[str, Any]) -> RunRequest:
    """Return the order as an arm of a baseline run, where the call, the suite or the stored run asks for one."""
    called = options.get("baseline")
    stored = (order.resume.run.spec.get(BASELINE) or {}) if order.resume else {}
    if order.resume is not None and called is not None and called != bool(stored):
        which = "with" if stored else "without"
        raise UsageError(f"run {order.resume.run.id} was started {which} --baseline; it can only go on like that")
    by_suite = called is None and order.spec.baseline and order.resume is None and bool(order.spec.tasks)
    if not (called or stored or by_suite):
        if given := next((option for option in ("needs", "these_tasks") if options.get(option)), None):
            raise UsageError(f"--{given.replace('_', '-')} goes with --baseline")
        return order
    try:
        return _with_baseline(order, stored, options)
    except UsageError as refusal:
        if not by_suite:
            raise
        remark(f"no control arm, though the suite says `baseline: true`: {refusal}", "yellow")
        return order


def _with_baseline(order: RunRequest, stored: dict[str, Any], options: dict[str, Any]) -> RunRequest:
    for option in ("against", "skip_graders", "replay"):
        if options.get(option):
            raise UsageError(f"--{option.replace('_', '-')} does not go with --baseline")
    return with_baseline(order, these_tasks=bool(options.get("these_tasks") or stored.get("these_tasks")))


def control_counts(order: RunRequest) -> tuple[int, int]:
    """Return how many trials the control arm has, and how many of them are done; none for a plain run."""
    if not order.baseline:
        return 0, 0
    return control_trials(order)


def say_baseline(spec: EvalSpec, engine: str | None, options: dict[str, Any]) -> None:
    """Say what a baseline run would run beside the tasks; raise UsageError where it could not."""
    if not options.get("baseline"):
        return
    order = baseline_of(request_for(spec, engine=engine, trials=options["trials"]), options)
    say(f"\n--baseline: {plural(control_counts(order)[0], 'more trial')} without the skill {spec.skill}, in turn")


def impact_code(run: Run, code: int, options: dict[str, Any]) -> int:
    """Return the exit code of a run: for a baseline run, what it says about the skill."""
    needs = options.get("needs")
    if needs == "pass" or (run.spec.get(BASELINE) or {}).get("arm") != "skill":
        return code
    if (found := stored_impact(run)) is None:
        remark("the arm without the skill cannot be read: nothing is known about the skill", "bold red")
        return EXIT_UNDECIDED
    control = open_run(Path(run.folder) / CONTROL)
    return _code(found, needs or NEEDS[0], run.complete and control.complete)


def _code(found: Impact, needs: str, is_complete: bool) -> int:
    if found.unclean or not found.holds or found.lift is None or not is_complete:
        return EXIT_UNDECIDED
    if found.word == "regression shown":
        return EXIT_FAILED
    return EXIT_PASSED if needs == "no-regression" or found.word == "improvement shown" else EXIT_UNDECIDED
