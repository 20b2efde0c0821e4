"""`waza review`: people give their verdicts on outputs of a stored run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from waza.cli._runs import own_run
from waza.cli._screen import remark, say
from waza.cli._working import trust_option
from waza.errors import EXIT_INTERRUPTED, EXIT_PASSED, StoreError, UsageError


@click.command(epilog="Example:  waza review  ·  waza review latest --grader polite --reviewer ana")
@click.argument("run", default="latest")
@click.option("--grader", "graders", multiple=True, help="Judge what this grader judged, to compare it with people.")
@click.option("--task", "tasks", multiple=True, help="Only tasks whose id or name fits this glob; may be repeated.")
@click.option("--reviewer", envvar="WAZA_REVIEWER", default="", help="Your name; verdicts of two people stay apart.")
@click.option("--again", is_flag=True, help="Ask about what you have judged before, too; the later verdict counts.")
@click.option("--merge", "others", multiple=True, type=click.Path(path_type=Path), help="Add another person's file.")
@click.option("--list", "only_list", is_flag=True, help="Say what there is to review, and who has, and ask nothing.")
@trust_option
@click.option("--suite", type=click.Path(path_type=Path), help="The eval file, where the run's own is elsewhere now.")
def command(
    run: str,
    graders: tuple[str, ...],
    tasks: tuple[str, ...],
    reviewer: str,
    again: bool,
    others: tuple[Path, ...],
    only_list: bool,
    trust: bool,
    suite: Path | None,
) -> int:
    """Look at outputs of a stored run and say pass or fail: RUN is its folder, its id, or `latest` (default).

    Without --grader it asks what the suite's `human` graders ask. Stop at any time, and go on later. Verdicts are lines
    in verdicts.jsonl beside the eval file: share it, and merge another one with --merge. Of two verdicts of one person
    on one output the later counts; different people's stand beside each other. The run is graded again at once.
    """
    from waza.cli._review_flow import Session, listed  # the runner is not needed for --help
    from waza.results.store import open_run
    from waza.results.verdicts import merge_verdicts
    from waza.runner.regrade import eval_of
    from waza.runner.reviewing import reviewable, settle, verdicts_file
    from waza.spec.load import load_spec

    reviewer, folder = reviewer.strip(), own_run(run)
    stored = open_run(folder)
    ref = stored.id if run == "latest" else run
    spec = load_spec(suite or eval_of(stored, folder, "--suite"), trust=trust, only_look=True)
    file = verdicts_file(spec)
    for other in others:
        if not other.is_file():
            raise UsageError(f"{other}: is no file; nothing was merged")
        merged = merge_verdicts(file, other)
        say(f"{other}: {merged.added} added, {merged.known} known already")
    chosen = {task.id for task in (spec.select(tasks) if tasks else spec).tasks}
    items = [item for item in reviewable(stored, spec, graders) if item.task in chosen]
    if not items and not others:
        raise UsageError("nothing to review: no `human` grader in this suite; name one that decides with --grader")
    go_on = shlex.join(_same_again(ref, graders, tasks, reviewer, suite, trust=trust))
    session = Session(stored, items, file, reviewer, again=again, go_on=go_on)
    stopped = False
    if only_list:
        listed(items, file)
    elif not others:
        stopped = session.ask()
    try:
        if changed := settle(folder, spec, remark):
            say(f"graded again: {changed} of {len(stored.results)} results changed; see:  waza show {ref}", "dim")
    except (StoreError, UsageError) as error:
        remark(f"the verdicts are recorded, the run is as it was: {error}", "yellow")
    return EXIT_INTERRUPTED if stopped else EXIT_PASSED


def _same_again(
    run: str,
    graders: tuple[str, ...],
    tasks: tuple[str, ...],
    reviewer: str,
    suite: Path | None,
    *,
    trust: bool,
) -> Iterator[str]:
    """Yield the words of the call that goes on: the same person, about the same things."""
    yield from ("waza", "review", run)
    given = [("--grader", name) for name in graders] + [("--task", name) for name in tasks]
    given += [("--reviewer", reviewer)] if reviewer else []
    given += [("--suite", str(suite))] if suite else []
    for pair in given:
        yield from pair
    if trust:
        yield "--trust"
