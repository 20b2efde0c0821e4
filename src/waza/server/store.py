"""`RunReader`: what pages read about stored runs, from lists to a whole run. Nothing is written here."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from waza.analysis.trends import Trend, trends
from waza.errors import StoreError
from waza.model import Run
from waza.reports.html.review import ReviewItem
from waza.reports.html.runs import RUNS
from waza.reports.html.view import OpenRun, RunFilter, RunRow, SuiteLine, TrialMarks, rate_of
from waza.runs.folder import read_run_json
from waza.runs.store import StoredRun
from waza.runs.summary import summarize
from waza.runs.tasks import TaskSummary, summarize_tasks
from waza.runs.verdicts import HumanVerdict, standing_in
from waza.server.index import Index
from waza.untrusted.text import well_formed

_CACHED = 4
_CACHED_RESULTS = 60_000
"""Opened runs and results that are cached, about 1 kB a result; the run opened last always is."""
_LIVE_FIRST = "is_live DESC"
SORTS = {
    "started": "place", "suite": "suite COLLATE NOCASE", "model": "model COLLATE NOCASE", "passed": "rate",
    "score": "score", "cost": "cost", "tokens": "tokens", "time": "duration_ms",
}  # fmt: skip
"""What a list of runs can be sorted by, and the index column for it."""


class Pile(NamedTuple):
    """The outputs of one run to review."""

    items: Sequence[ReviewItem]
    file: Path
    """Where verdicts are written."""

    def given(self, item: ReviewItem, reviewer: str) -> HumanVerdict | None:
        """Return a person's verdict on an output; None where there is none yet."""
        verdicts = standing_in(self.file).get((item.grader, item.evidence), [])
        return next((one for one in verdicts if one.reviewer == reviewer and one.question == item.question), None)


class ReviewQueue(Protocol):
    """Where outputs to review come from; whoever starts the server implements it, as the dashboard knows no suites."""

    def pile(self, folder: Path, graders: Sequence[str]) -> Pile:
        """Return what `human` graders ask, or what the named graders have judged; raise WazaError with the reason."""

    def settle(self, folder: Path) -> int:
        """Grade again what waits for people, and return how many results changed; raise WazaError with the reason."""


class RunReader:
    """Stored runs, for pages to read."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.is_closing: Callable[[], bool] = lambda: False
        """Whether the server is about to stop: streams of events end then."""
        self.review_queue: ReviewQueue | None = None
        """Where outputs to review come from, where people may."""
        self._opened: OrderedDict[str, OpenRun] = OrderedDict()
        self._lock = threading.Lock()

    def runs(self, wanted: RunFilter) -> tuple[list[RunRow], int]:
        """Return a page of the runs that match, running ones first; and how many match."""
        self.index.refresh()
        where, values = _conditions(wanted)
        (total,) = self.index.table(f"SELECT count(*) FROM runs WHERE {where}", values)[0]
        column = SORTS.get(wanted.sort, "place")
        way = "ASC" if wanted.is_ascending else "DESC"
        order = f"ORDER BY {_LIVE_FIRST}, {column} IS NULL, {column} {way}, key DESC"
        return self.index.select(where, values, order, RUNS, wanted.skip), int(str(total))

    def names(self, column: str) -> list[str]:
        """Return every suite, model or tag there is, for a list to choose from."""
        rows = self.index.table(f"SELECT DISTINCT {column} FROM runs WHERE {column} <> '' ORDER BY 1")
        names = [str(row[0]) for row in rows]
        return names if column != "tags" else sorted({tag for line in names for tag in line.split("\x1f") if tag})

    def suites(self, most: int = 12, points: int = 30) -> list[SuiteLine]:
        """Return the suites with the newest runs, each with its last pass rates."""
        self.index.refresh()
        newest = "SELECT suite, count(*), max(place) FROM runs WHERE suite <> '' GROUP BY suite ORDER BY 3 DESC LIMIT ?"
        lines = []
        for suite, count, _ in self.index.table(newest, (most,)):
            last = self.index.select("suite = ?", (suite,), "ORDER BY place DESC, key DESC", points)
            rates = [rate_of(one.summary) for one in last[::-1] if one.summary and one.is_complete]
            lines.append(SuiteLine(str(suite), int(str(count)), rates, last[0]))
        return lines

    def live(self) -> list[RunRow]:
        """Return the runs that are running now."""
        self.index.refresh()
        return self.index.select("is_live = 1", (), "ORDER BY place DESC")

    def find(self, key: str) -> RunRow | None:
        """Return a run as it is listed; None where no run has that name, not even one made at this moment."""
        self.index.refresh()
        row = self.index.find(key)
        if row is None:
            self.index.refresh(now=True)
            row = self.index.find(key)
        return row

    def open(self, listed: RunRow) -> OpenRun:
        """Return a run with its numbers. Raises StoreError when it cannot be read."""
        with self._lock:
            cached = self._opened.get(listed.key)
            if cached is not None and cached.listed.stamp == listed.stamp:
                self._opened.move_to_end(listed.key)
                return cached
        if listed.problem:
            raise StoreError(listed.problem)
        run = read_run_json(listed.path)
        run = replace(self.index.filled(listed, run), complete=listed.is_complete)
        tasks = summarize_tasks(run)
        summary = summarize(run, tasks=tasks)
        opened = OpenRun(listed, run, tasks, summary, self.index.damaged(listed.key), _prompts(run))
        with self._lock:
            self._opened[listed.key] = opened
            while len(self._opened) > 1 and (len(self._opened) > _CACHED or self._cached_results() > _CACHED_RESULTS):
                self._opened.popitem(last=False)
        return opened

    def _cached_results(self) -> int:
        return sum(len(opened.run.results) for opened in self._opened.values())

    def marks(self, listed: RunRow, tasks: Sequence[str]) -> list[TrialMarks]:
        """Return the grades of every trial of some tasks of a run that was opened."""
        return self.index.marks(listed.key, tasks)

    def trends(self, suite: str = "", model: str | None = None) -> list[Trend]:
        """Return complete runs by suite and model over time."""
        self.index.refresh()
        where, values = ("suite = ?", [suite]) if suite else ("suite <> ''", [])
        if model is not None:
            where, values = f"{where} AND model = ?", [*values, model]
        return trends([_stored(listed) for listed in self.index.select(where, values)])


def _prompts(run: Run) -> Sequence[TaskSummary]:
    if not run.triggers:
        return []
    prompt_spec = {**run.spec, "tasks": run.suite.trigger_tasks}
    return summarize_tasks(replace(run, results=run.triggers, triggers=[], spec=prompt_spec))


def _stored(listed: RunRow) -> StoredRun:
    run = Run(id=listed.key, name=listed.suite, started_at=listed.started_at, engine=listed.engine, model=listed.model)
    return StoredRun(
        folder=well_formed(str(listed.path)), run=run, summary=listed.summary, is_complete=listed.is_complete
    )


def _conditions(wanted: RunFilter) -> tuple[str, list[object]]:
    parts, values = ["about IS NOT NULL"], list[object]()
    for word in wanted.words.split()[:8]:
        parts.append("instr(lower(key || ' ' || ifnull(suite, '') || ' ' || ifnull(engine, '') || ' ' || "
                     "ifnull(model, '') || ' ' || ifnull(tags, '')), ?)")  # fmt: skip
        values.append(word.lower())
    for column, value in (("suite", wanted.suite), ("model", wanted.model), ("verdict", wanted.verdict)):
        if value:
            parts.append(f"{column} = ?")
            values.append(value)
    if wanted.tag:
        parts.append("instr(tags, ?)")
        values.append(f"\x1f{wanted.tag}\x1f")
    for comparison, moment in ((">=", wanted.since), ("<", wanted.until)):
        if moment is not None:
            parts.append(f"started {comparison} ?")
            values.append(moment)
    return " AND ".join(parts), values
