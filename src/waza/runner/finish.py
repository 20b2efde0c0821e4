"""The end of a run: how it ended, and the files made from its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from sys import intern

from msgspec.structs import replace

from waza.errors import StoreError
from waza.model import Run
from waza.runner.auto import is_over
from waza.runs.lazy_results import ProgressResults
from waza.runs.outcomes import outcomes_of
from waza.runs.results_json import results_json
from waza.runs.store import RunFolder, open_run
from waza.runs.summary import summarize
from waza.runs.tasks import summarize_tasks

RESULTS = "results.json"


def finish(
    folder: RunFolder, reason: str, on_remark: Callable[[str], None], progress: ProgressResults | None = None
) -> Run:
    """Write down how the run ended and everything made from it; return it, its results read when asked for.

    What was gathered while it ran need not be read again.
    """
    made = open_run(folder.path) if progress is None else replace(folder.run, results=progress)
    made = replace(made, complete=is_complete(made))
    tasks = summarize_tasks(made) if progress is None else progress.tasks
    summary = summarize(made, tasks=tasks)
    try:
        folder.finish(summary, complete=made.complete, reason=reason)
        folder.write(RESULTS, results_json(made, tasks, summary))
    except StoreError as error:
        on_remark(f"{error}; every result is safe in the journal, and `waza show` reads it")
    return made


def is_complete(run: Run) -> bool:
    """Say whether every trial that was planned has a result."""
    trials = range(1, run.spec["config"]["trials_per_task"] + 1)
    made: Counter[str] = Counter()  # of one trial there is one result
    for some in (run.results, run.triggers):
        made.update(intern(outcome.task_id) for outcome in outcomes_of(some) if outcome.trial in trials)
    planned = chain(run.spec["tasks"], (run.spec.get("triggers") or {}).get("tasks", ()))
    is_whole = all(made[task["id"]] == len(trials) for task in planned)
    return is_whole and ("auto_trials" not in run.spec or is_over(run))
