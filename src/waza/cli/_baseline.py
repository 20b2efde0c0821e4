"""`--baseline`: its options, the arms it asks for, and its exit codes.

    --needs          improvement shown   no difference shown, too little evidence   regression shown
    no-regression    0                   0                                          1
    improvement      0                   3                                          1
    pass             as without --baseline: whether the tasks passed with the skill

It is 3 if undecided trials could change the answer, trials are missing or the control arm had the skill.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from waza.cli._run_options import RunOptions
from waza.cli._screen import remark, say
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED, UsageError
from waza.model import Run, StoredBaseline
from waza.runner.baseline import control_trials, with_baseline
from waza.runner.request import RunRequest, request_for
from waza.runs.impact import stored_impact
from waza.runs.impact_records import CONTROL, Impact
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
        help="Also run every task without the skill, alternating trials, and report the skill's effect.",
    )
    return baseline(needs(these(command)))


def with_control_arm(request: RunRequest, options: RunOptions) -> RunRequest:
    """Return the request as an arm of a baseline run if the command line, the suite or the stored run asks for one."""
    called = options.baseline
    stored = request.resume.run.suite.baseline if request.resume else StoredBaseline()
    if request.resume is not None and called is not None and called != bool(stored.arm):
        which = "with" if stored.arm else "without"
        raise UsageError(f"run {request.resume.run.id} was started {which} --baseline; it can only continue like that")
    by_suite = called is None and request.spec.baseline and request.resume is None and bool(request.spec.tasks)
    if not (called or stored.arm or by_suite):
        if given := next((option for option in ("needs", "these_tasks") if getattr(options, option)), None):
            raise UsageError(f"--{given.replace('_', '-')} needs --baseline")
        return request
    try:
        return _with_baseline(request, stored, options)
    except UsageError as refusal:
        if not by_suite:
            raise
        remark(f"no control arm, though the suite says `baseline: true`: {refusal}", "yellow")
        return request


def _with_baseline(request: RunRequest, stored: StoredBaseline, options: RunOptions) -> RunRequest:
    for option in ("against", "skip_graders", "replay"):
        if getattr(options, option):
            raise UsageError(f"--{option.replace('_', '-')} cannot be combined with --baseline")
    return with_baseline(request, these_tasks=bool(options.these_tasks or stored.these_tasks))


def control_counts(request: RunRequest) -> tuple[int, int]:
    """Return how many trials the control arm has, and how many of them are done; none for a plain run."""
    if not request.baseline:
        return 0, 0
    return control_trials(request)


def print_baseline(spec: EvalSpec, engine: str | None, options: RunOptions) -> None:
    """Print what a baseline run would run in addition; raise UsageError if it could not run."""
    if not options.baseline:
        return
    request = with_control_arm(request_for(spec, engine=engine, trials=options.trials), options)
    say(f"\n--baseline: {plural(control_counts(request)[0], 'more trial')} without the skill {spec.skill}, alternating")


def impact_code(run: Run, code: int, needs: str | None) -> int:
    """Return the exit code of a run: for a baseline run, what it says about the skill."""
    if needs == "pass" or run.suite.baseline.arm != "skill":
        return code
    if (impact := stored_impact(run)) is None:
        remark("the arm without the skill cannot be read: nothing is known about the skill", "bold red")
        return EXIT_UNDECIDED
    control = open_run(Path(run.folder) / CONTROL)
    return _code(impact, needs or NEEDS[0], run.complete and control.complete)


def _code(impact: Impact, needs: str, is_complete: bool) -> int:
    if impact.unclean or not impact.holds or impact.lift is None or not is_complete:
        return EXIT_UNDECIDED
    if impact.word == "regression shown":
        return EXIT_FAILED
    return EXIT_PASSED if needs == "no-regression" or impact.word == "improvement shown" else EXIT_UNDECIDED
