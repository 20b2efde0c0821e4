"""The end of a run: how it ended, and the files made from its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from sys import intern

from msgspec.structs import replace

from waza.errors import StoreError
from waza.model import Run
from waza.runner.auto import is_settled as auto_is_settled
from waza.runs.lazy_results import ProgressResults
from waza.runs.outcomes import outcomes_of
from waza.runs.results_json import results_json
from waza.runs.store import RunFolder, open_run
from waza.runs.summary import summarize
from waza.runs.tasks import summarize_tasks

RESULTS = "results.json"


def finish(
    folder: RunFolder,
    reason: str,
    on_remark: Callable[[str], None],
    progress: ProgressResults | None = None,
    *,
    is_settled: bool | None = None,
) -> Run:
    """Store how the run ended and the files made from its results; return the run, its results read on demand.

    With `progress`, the results of a run of this process, the journal is not read again. `is_settled` says whether
    `auto` needs no further trial, which one arm of a baseline run cannot decide alone.
    """
    made = stored_run(folder, progress)
    made = replace(made, complete=is_complete(made, is_settled=is_settled))
    tasks = summarize_tasks(made) if progress is None else progress.tasks
    summary = summarize(made, tasks=tasks)
    try:
        folder.finish(summary, complete=made.complete, reason=reason)
        folder.write(RESULTS, results_json(made, tasks, summary))
    except StoreError as error:
        on_remark(f"{error}; every result is safe in the journal, and `waza show` reads it")
    return made


def stored_run(folder: RunFolder, progress: ProgressResults | None = None) -> Run:
    """Return the run in a folder that is being written to."""
    return open_run(folder.path) if progress is None else replace(folder.run, results=progress)


def is_complete(run: Run, *, is_settled: bool | None = None) -> bool:
    """Return whether every planned trial has a result."""
    suite = run.suite
    trials = range(1, suite.config.trials + 1)
    made: Counter[str] = Counter()  # a trial has one result
    for some in (run.results, run.triggers):
        made.update(intern(outcome.task_id) for outcome in outcomes_of(some) if outcome.trial in trials)
    planned = chain(suite.tasks, suite.trigger_tasks)
    if not all(made[task["id"]] == len(trials) for task in planned):
        return False
    if suite.auto_trials is None:
        return True
    return auto_is_settled(run) if is_settled is None else is_settled
