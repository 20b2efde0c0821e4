"""What pages get and return: the request and its query, runs as records, the view. No HTTP, no files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from waza.model import Result, Run
from waza.reports.html.markup import Node
from waza.runs.outcomes import TrialOutcome, outcomes_of
from waza.runs.summary import Summary
from waza.runs.tasks import TaskSummary


class NotFound(Exception):
    """No run has what was requested; the message is for people."""


class Query(NamedTuple):
    """The query of an address."""

    pairs: Sequence[tuple[str, str]] = ()

    def get(self, key: str) -> str:
        """Return the first value of a key; nothing where there is none."""
        return next((value for name, value in self.pairs if name == key), "")

    def every(self, key: str) -> list[str]:
        """Return all values of a key."""
        return [value for name, value in self.pairs if name == key]


class PageRequest(NamedTuple):
    """A browser's request for a page."""

    parts: Mapping[str, str]
    """The named parts of the path, such as `run`."""
    query: Query
    address: str
    """The path with its query, without `export`: the address of this page."""
    is_export: bool = False
    can_review: bool = False
    form_key: str = ""
    """The key that a form must send."""

    def number(self, key: str, default: int, most: int = 1_000_000_000) -> int:
        """Return a number of the query within 0 and `most`; the default where it is none."""
        word = self.query.get(key)
        return min(int(word), most) if word.isascii() and word.isdigit() and len(word) < 12 else default


class View(Struct, frozen=True, kw_only=True):
    """A page without its frame."""

    title: str
    body: Sequence[Node]
    crumbs: list[tuple[str, str]] = field(default_factory=list)
    """The pages above this one, as names with addresses, outermost first."""
    scripts: tuple[str, ...] = ()
    """Files under `static/` the page needs besides those of every page."""
    status: int = 200


class RunRow(Struct, frozen=True, kw_only=True):
    """A run as the index lists it."""

    key: str
    """Its name in addresses."""
    folder: str
    """Where it is, as `folder_text` writes it; `path` is the folder itself."""
    stamp: str
    suite: str = ""
    engine: str = ""
    model: str = ""
    skill: str = ""
    started_at: str = ""
    started: float = 0.0
    place: float = 0.0
    """What lists are sorted by: the time of its start that no change of the clock puts out of order."""
    verdict: str = "unreadable"
    """passed, failed, error (undecided), running or unreadable."""
    is_live: bool = False
    is_complete: bool = False
    done: int | None = None
    """Trials that have a result, while the run is running."""
    planned: int | None = None
    tags: list[str] = field(default_factory=list)
    problem: str = ""
    integrity: str = ""
    """What readers cannot rely on: `Run.integrity`."""
    summary: Summary | None = None

    @property
    def path(self) -> Path:
        """The run's folder."""
        if self.folder.startswith(NOT_TEXT):
            return Path(os.fsdecode(bytes.fromhex(self.folder.removeprefix(NOT_TEXT))))
        return Path(self.folder)

    @property
    def journal_size(self) -> int:
        """The size of the journal when the run was read."""
        size = self.stamp.partition(".")[0]
        return int(size) if size.isdigit() else 0


NOT_TEXT = "\0"
"""No path contains this character; after it comes, in hex, a path that is not UTF-8."""


class GradeMark(Struct, frozen=True, array_like=True, gc=False):
    """One grade of one trial, as a matrix shows it."""

    name: str
    status: str
    score: float
    weight: float


class TrialMarks(Struct, frozen=True):
    """The grades of one trial."""

    task_id: str
    trial: int
    marks: list[GradeMark]


class OpenRun(NamedTuple):
    """One run with its numbers."""

    listed: RunRow
    run: Run
    """Its results stay on disk; each is read when it is accessed."""
    tasks: Sequence[TaskSummary]
    summary: Summary
    damaged: int
    """Places of the journal that could not be read."""
    prompts: Sequence[TaskSummary]
    """Those of its trigger tests, as tasks."""


class SuiteLine(NamedTuple):
    """The runs of one suite over time, all models together."""

    suite: str
    runs: int
    rates: list[float | None]
    """Of its last runs, the newest at the end."""
    newest: RunRow


class RunFilter(NamedTuple):
    """Which runs to list; empty fields match every run."""

    words: str = ""
    suite: str = ""
    model: str = ""
    tag: str = ""
    verdict: str = ""
    since: float | None = None
    until: float | None = None
    sort: str = "started"
    is_ascending: bool = False
    skip: int = 0


def rate_of(summary: Summary) -> float | None:
    """Return the share of decided tasks that passed; of trigger tests alone, how many answers were right."""
    if summary.decided_rate is None and summary.triggers is not None and summary.triggers.is_valid:
        return summary.triggers.all.accuracy
    return summary.decided_rate


def the_task(request: PageRequest, opened: OpenRun) -> tuple[TaskSummary, list[TrialOutcome]]:
    """Return the task an address names with the outcomes of its trials in order. Raises NotFound."""
    wanted = request.query.get("id")
    task = next((task for task in (*opened.tasks, *opened.prompts) if task.id == wanted), None)
    if task is None:
        raise NotFound("The run has no such task.")
    every = (*outcomes_of(opened.run.results), *outcomes_of(opened.run.triggers))
    trials = [one for one in every if one.task_id == wanted]
    return task, sorted(trials, key=lambda one: one.trial)


def chosen_trial(request: PageRequest, outcomes: list[TrialOutcome]) -> TrialOutcome:
    """Return the requested trial, or the first that failed, was undecided, or exists at all. Raises NotFound."""
    wanted = request.number("trial", 0)
    if wanted:
        outcome = next((one for one in outcomes if one.trial == wanted), None)
        if outcome is None:
            raise NotFound(f"The task has no trial {wanted}.")
        return outcome
    order = {"failed": 0, "error": 1}
    return min(outcomes, key=lambda one: (order.get(one.status, 2), one.trial))


def the_result(opened: OpenRun, task: str, trial: int) -> Result:
    """Return one trial, read from the journal. Raises NotFound."""
    for results in (opened.run.results, opened.run.triggers):
        for place, one in enumerate(outcomes_of(results)):
            if one.task_id == task and one.trial == trial:
                return results[place]
    raise NotFound(f"The task has no trial {trial}.")
