"""The pages of the dashboard: where each is, what it needs of the stored runs, and what a form may change.

How a page looks is in `reports/html`. A page that can be written to has `accept`, which returns the next address; it
exists only with `--review`, and its forms send `PageRequest.form_key` as `form_key`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from msgspec.structs import replace

from waza.analysis.changes import Comparison, paired
from waza.analysis.comparison import among, compare
from waza.errors import StoreError, WazaError
from waza.files.paths import project_root
from waza.model import Run
from waza.reports.html.compare import choice_page as runs_to_compare
from waza.reports.html.compare import compare_page
from waza.reports.html.files import file_page, files_page
from waza.reports.html.markup import short
from waza.reports.html.review import (
    MARKS,
    MOST_NAME,
    MOST_REASON,
    ReviewItem,
    ReviewOutput,
    asked_graders,
    review_address,
    review_page,
)
from waza.reports.html.review import choice_page as runs_to_review
from waza.reports.html.run import JudgeReliability, matrix_tasks, run_page
from waza.reports.html.runs import live_page, runs_page, wanted_runs
from waza.reports.html.trends import trends_page
from waza.reports.html.trial import call_page, task_page
from waza.reports.html.view import (
    NotFound,
    OpenRun,
    PageRequest,
    Query,
    RunFilter,
    RunRow,
    View,
    chosen_trial,
    the_result,
    the_task,
)
from waza.runs.canaries import drift
from waza.runs.folder import read_run_json
from waza.runs.grader_facts import has_fact, stored_grader_facts
from waza.runs.impact import stored_impact
from waza.runs.judge_card import asked_in, read_calibrations, read_cards
from waza.runs.partial import graded_alike
from waza.runs.verdicts import Answer, record_verdict
from waza.server.store import Pile, ReviewQueue, RunReader
from waza.server.trial_files import file_content, file_list, left_files
from waza.untrusted.text import clipped

MOST_COMPARED = 6
MOST_REVIEWED = 40
"""Runs among which one to review is chosen."""


class Page(NamedTuple):
    """A page of the dashboard."""

    name: str
    path: str
    """As routes write it."""
    show: Callable[[PageRequest, RunReader], View]
    nav: str = ""
    """Its label in the navigation."""
    key: str = ""
    """The key to press after `g`."""
    accept: Callable[[PageRequest, RunReader, Query], str] | None = None


def all_pages() -> list[Page]:
    """Return every page there is, in the order of the navigation."""
    return [
        Page("runs", "/", runs, "Runs", "r"),
        Page("trends", "/trends", trends, "Trends", "t"),
        Page("compare", "/compare", compared, "Compare", "c"),
        Page("review", "/review", review, "Review", "v", accept_verdict),
        Page("run", "/runs/{run}", run_overview),
        Page("live", "/runs/{run}/live", live),
        Page("task", "/runs/{run}/task", task),
        Page("call", "/runs/{run}/call", call),
        Page("files", "/runs/{run}/files", files),
    ]


def runs(request: PageRequest, store: RunReader) -> View:
    """Return the list of runs."""
    wanted = wanted_runs(request)
    found, total = store.runs(wanted)
    names = {name: store.names(column) for name, column in (("suite", "suite"), ("model", "model"), ("tag", "tags"))}
    return runs_page(request, wanted, found, total, store.suites(), names)


def trends(request: PageRequest, store: RunReader) -> View:
    """Return the trends of every suite and model, or of the requested ones."""
    found = store.trends(request.query.get("suite"), request.query.get("model") or None)
    return trends_page(request.query, found, {name: store.names(name) for name in ("suite", "model")})


def run_overview(request: PageRequest, store: RunReader) -> View:
    """Return a run's page."""
    opened = the_run(request, store)
    marks = store.marks(opened.listed, [task.id for task in matrix_tasks(request, opened.tasks)])
    return run_page(request, opened, marks, stored_impact(opened.run), judge_reliability(opened.run))


def the_run(request: PageRequest, store: RunReader) -> OpenRun:
    """Return the run an address names. Raises NotFound, or StoreError when it cannot be read."""
    listed = store.find(request.parts["run"])
    if listed is None:
        raise NotFound("No run has this name. It may have been removed, or be in a folder that is not shown here.")
    return store.open(listed)


def judge_reliability(run: Run) -> JudgeReliability:
    """Return each calibration and each card that belongs to the run's rubrics."""
    if not run.suite.judged:
        return JudgeReliability()
    root = project_root(Path(run.folder).resolve())
    names = {str(grader.get("name")) for grader in run.suite.every_grader}
    calibrations = []
    try:
        known = [one for one in read_calibrations(root) if one.n and one.grader in names]
        rubrics = asked_in(run, known)
        calibrations = [one for one in known if one.asked in rubrics]
        return JudgeReliability(calibrations, [card for card in read_cards(root) if card.rubric_hash in rubrics])
    except (StoreError, OSError) as error:
        return JudgeReliability(calibrations, error=str(error))


def live(request: PageRequest, store: RunReader) -> View:
    """Return the live view of a run, or its results when it has ended."""
    listed = store.find(request.parts["run"])
    if listed is None:
        raise NotFound("No run has this name.")
    if listed.problem:
        raise StoreError(listed.problem)
    # The journal was at least that long when it was read: later results are rather sent twice than not at all.
    read_to = listed.journal_size
    return live_page(store.open(listed), read_to)


def task(request: PageRequest, store: RunReader) -> View:
    """Return a task's page: all its trials, and the requested one, or the first that did not pass."""
    opened = the_run(request, store)
    found, outcomes = the_task(request, opened)
    if not outcomes:
        return task_page(request, opened, found, outcomes)
    result = the_result(opened, found.id, chosen_trial(request, outcomes).trial)
    marks = store.marks(opened.listed, [found.id])
    return task_page(request, opened, found, outcomes, result, marks, left_files(opened, result))


def call(request: PageRequest, store: RunReader) -> View:
    """Return the page of one tool call."""
    opened = the_run(request, store)
    result = the_result(opened, request.query.get("id"), request.number("trial", 1))
    number = request.number("n", 1)
    if not 1 <= number <= len(result.trace.tool_events or []):
        raise NotFound(f"The trial has no call {number}.")
    return call_page(opened, result, number)


def files(request: PageRequest, store: RunReader) -> View:
    """Return the files of a trial, or one of them."""
    opened = the_run(request, store)
    found, outcomes = the_task(request, opened)
    if not outcomes:
        raise NotFound("No trial of this task has a result yet.")
    result = the_result(opened, found.id, chosen_trial(request, outcomes).trial)
    listed = file_list(opened, result, request.query.get("turn"))
    path = request.query.get("path")
    if not path or listed.error:
        return files_page(request, opened, result, listed)
    if path not in listed.states:
        raise NotFound("The workspace had no such file.")
    content = file_content(opened, found.id, path, listed.items.get(path))
    return file_page(request, opened, result, listed, content)


def compared(request: PageRequest, store: RunReader) -> View:
    """Return the comparison of the runs an address names, or what can be chosen."""
    keys = list(dict.fromkeys(request.query.every("run")))[:MOST_COMPARED]
    if len(keys) < 2:
        chosen = store.find(keys[0]) if keys else None
        return runs_to_compare(chosen, store.runs(RunFilter(suite=chosen.suite if chosen else ""))[0])
    opened = [_opened(store, key) for key in keys]
    return compare_page(request, opened, comparisons(opened))


def _opened(store: RunReader, key: str) -> OpenRun:
    listed = store.find(key)
    if listed is None:
        raise NotFound(f"No run is called {short(key, 80)}.")
    return store.open(listed)


# Comparisons are cached: the same two runs are requested again and again.

CACHED = 12
_cached: OrderedDict[tuple[str, ...], Comparison] = OrderedDict()
_lock = threading.Lock()


def comparisons(runs: Sequence[OpenRun]) -> list[Comparison]:
    """Return what changed from the first run to each of the others; of several, adjusted for how many there are."""
    compared = [_comparison(runs[0], other) for other in runs[1:]]
    return among(compared) if len(compared) > 1 else compared


def _comparison(before: OpenRun, after: OpenRun) -> Comparison:
    key = tuple(part for one in (before, after) for part in (one.listed.folder, one.listed.stamp))
    with _lock:
        if key in _cached:
            _cached.move_to_end(key)
            return _cached[key]
    comparison = compare(before.run, after.run)
    comparison = replace(comparison, warnings=[*_warnings(before, after), *drift(before.run, after.run)])
    with _lock:
        _cached[key] = comparison
        while len(_cached) > CACHED:
            _cached.popitem(last=False)
    return comparison


def _warnings(before: OpenRun, after: OpenRun) -> list[str]:
    warnings = [
        f"run {one.listed.key} is not complete: trials are missing"
        for one in (before, after)
        if not one.listed.is_complete
    ]
    warnings += [f"run {one.listed.key} is {one.run.integrity}" for one in (before, after) if one.run.integrity]
    suites = before.run.suite, after.run.suite
    regraded = [
        pair.before.id for pair in paired(before.run, after.run).pairs if not graded_alike(*suites, pair.before.id)
    ]
    if regraded:
        some = clipped(", ".join(regraded[:5]), 200) + (f" and {len(regraded) - 5} more" if len(regraded) > 5 else "")
        warnings.append(
            f"the graders of {some} differ between the runs, which may explain part of the change; "
            f"waza compare {before.run.id} {after.run.id} grades both with the same graders"
        )
    return warnings


# The only page that writes, and only with `--review`.


def review(request: PageRequest, store: RunReader) -> View:
    """Return the outputs of a run to review, one at a time; without a run, the runs to choose from."""
    key = request.query.get("run")
    if not key:
        known = [run for run in store.runs(RunFilter())[0] if not run.problem][:MOST_REVIEWED]
        return runs_to_review((run, *_asking(run)) for run in known)
    listed, pile = _pile(store, key, asked_graders(request.query))
    if not pile.items:
        return review_page(request, listed, None)
    by = request.query.get("by")[:MOST_NAME]
    left = [place for place, one in enumerate(pile.items) if pile.given(one, by) is None]
    at = request.number("at", 0) or (left[0] if left else 0) + 1
    at = max(1, min(at, len(pile.items)))
    item = pile.items[at - 1]
    result = the_result(store.open(listed), item.task, item.trial)
    title = pile.items[0].grader
    output = ReviewOutput(item, result, at, len(pile.items), len(left), title, pile.given(item, by))
    return review_page(request, listed, output)


def accept_verdict(request: PageRequest, store: RunReader, form: Query) -> str:
    """Record a verdict, or grade the run again, and return the next address."""
    key, graders, by = form.get("run"), asked_graders(form), form.get("by").strip()[:MOST_NAME]
    listed, pile = _pile(store, key, graders)
    if form.get("do") == "settle":
        return review_address(key, graders, by, done=_settled(store, listed))
    item = _named(pile, form)
    if form.get("answer") not in MARKS:
        raise NotFound("A verdict is pass or fail; go back and choose one.")
    answer = cast("Answer", form.get("answer"))
    record_verdict(pile.file, item.verdict(answer, form.get("reason").strip()[:MOST_REASON], by))
    left = [place for place, one in enumerate(pile.items) if pile.given(one, by) is None]
    here = pile.items.index(item)
    if left:
        return review_address(key, graders, by, at=1 + next((place for place in left if place > here), left[0]))
    return review_address(key, graders, by, at=here + 1, done=_settled(store, listed))


def _review_queue(store: RunReader) -> ReviewQueue:
    if store.review_queue is None:
        raise NotFound("This server was started without anything to review.")
    return store.review_queue


def _pile(store: RunReader, key: str, graders: Sequence[str]) -> tuple[RunRow, Pile]:
    """Return a run and its outputs to review. Raises NotFound with the reason."""
    listed = store.find(key)
    if listed is None or listed.problem:
        raise NotFound("No run has this name." if listed is None else listed.problem)
    try:
        return listed, _review_queue(store).pile(listed.path, graders)
    except (WazaError, OSError) as error:
        raise NotFound(f"This run cannot be reviewed: {error}") from None


def _named(pile: Pile, form: Query) -> ReviewItem:
    wanted = (form.get("name"), form.get("evidence"), form.get("question"))
    item = next((one for one in pile.items if (one.grader, one.evidence, one.question) == wanted), None)
    if item is None:
        raise NotFound("The question has changed since the page was opened; nothing was recorded. Open it again.")
    return item


def _settled(store: RunReader, listed: RunRow) -> int:
    """Grade the run again and return how many results changed. Raises NotFound with the reason."""
    try:
        return _review_queue(store).settle(listed.path)
    except (WazaError, OSError) as error:
        raise NotFound(f"The verdicts are recorded, but the run could not be graded again: {error}") from None


def _asking(run: RunRow) -> tuple[list[str], list[str]]:
    """Return the names of a run's `human` graders, and of its judge graders."""
    try:
        suite = read_run_json(Path(run.folder)).suite
    except StoreError:
        return [], []
    people, judges = dict[str, None](), dict[str, None]()
    facts = stored_grader_facts(suite)
    for entry in suite.every_grader:
        kind = str(entry.get("type"))
        name = str(entry.get("name") or kind)
        if has_fact(facts, kind, "asks_people"):
            people.setdefault(name)
        elif has_fact(facts, kind, "asks_judge"):
            judges.setdefault(name)
    return list(people), list(judges)
