"""Runs side by side: flips first, what the difference shows, every task's change, two trajectories of a task."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from waza.analysis.changes import Comparison, GraderChange, TaskChange, paired
from waza.analysis.comparison import among, compare
from waza.model import Grade, Result
from waza.reports.comparison import FLIPS, TONES, flip_lines, flip_word, p_value, reservations, sentence, sides, signed
from waza.reports.document import Bar, TextLine
from waza.reports.html import components
from waza.reports.html.charts import ForestRow, forest
from waza.reports.html.components import bar_plot, day, grid, head_cell, interval, mark, number, pager, run_link, soft
from waza.reports.html.markup import Element, Node, TextBudget, el, href, short
from waza.reports.html.side_by_side import trajectories
from waza.runs.canaries import drift
from waza.runs.outcomes import outcomes_of, shown_names
from waza.runs.partial import graded_alike
from waza.server.index import RunRow
from waza.server.pages.task import the_result
from waza.server.store import OpenRun, RunFilter, RunReader
from waza.server.views import NotFound, PageRequest, View
from waza.stats.difference import ALPHA, DifferenceVerdict
from waza.untrusted.text import clipped, percent, plural, score

PATH = "/compare"
NAV = "Compare"
PLACE = 3
KEY = "c"
MOST_RUNS = 6
TASKS = 100
"""Tasks on one page."""
MOST_FLIPS = 30


def page(request: PageRequest, store: RunReader) -> View:
    """Return the comparison of the runs an address names, or what can be chosen."""
    keys = list(dict.fromkeys(request.query.every("run")))[:MOST_RUNS]
    if len(keys) < 2:
        return View(title="Compare", body=[el("h1", "Compare runs"), *_choice(store, keys)])
    runs = [_opened(store, key) for key in keys]
    compared = comparisons(runs)
    crumbs = [("Runs", href()), ("Compare", href("compare", run=keys))]
    if task := request.query.get("task"):
        return View(title=task, body=[*side_by_side(request, runs, compared, task)], crumbs=crumbs)
    body: list[Node] = [el("h1", "Compare"), _runs(runs)]
    for place, one in enumerate(compared, 1):
        body += _pair(runs, place, one)
    body += [_rates(runs), _tasks(request, runs, compared)]
    return View(title="Compare", body=body, crumbs=[("Runs", href())])


def _opened(store: RunReader, key: str) -> OpenRun:
    listed = store.find(key)
    if listed is None:
        raise NotFound(f"No run is called {short(key, 80)}.")
    return store.open(listed)


def _choice(store: RunReader, keys: Sequence[str]) -> Iterator[Node]:
    """Yield a form to choose runs: of the suite of the one that is chosen already, else the newest."""
    chosen = store.find(keys[0]) if keys else None
    runs, _ = store.runs(RunFilter(suite=chosen.suite if chosen else ""))
    known = [run for run in runs if not run.problem]
    if len(known) < 2:
        yield soft("There are not two runs", f" of {short(chosen.suite, 80)}" if chosen else "", " to compare.")
        return
    lists = []
    for place, label in enumerate(("from", "to", "and", "and")):
        options = [el("option", "–", value="")] if place > 1 else []
        options += [_option(run, place, known, chosen) for run in known]
        lists.append(el("label", f"{label} ", el("select", *options, name="run")))
    yield soft(f"Runs of {short(chosen.suite, 80)}" if chosen else "The newest runs", ", the newest first.")
    yield el("form", *lists, el("button", "compare"), method="get", action="/compare", class_="choices")


def _option(run: RunRow, place: int, known: Sequence[RunRow], chosen: RunRow | None) -> Element:
    first = chosen.key if chosen else known[1].key
    second = next((one.key for one in known if one.key != first), "")
    label = f"{day(run.started)} · {run.suite} · {run.model or run.engine} · {run.verdict}"
    return el(
        "option", short(label, 120), value=run.key, selected=run.key == (first, second)[place] if place < 2 else False
    )


def _runs(runs: Sequence[OpenRun]) -> Element:
    rows = []
    for letter, one in zip(LETTERS, runs, strict=False):
        summary = one.summary
        passed = f"{summary.succeeded} of {summary.total_tests}"
        link = run_link(one.listed.key, one.listed.suite or one.listed.key)
        model = short(one.listed.model or one.listed.engine, 60)
        rate: list[Node] = [f"{percent(summary.success_rate)} (", interval(summary.success_rate_ci), ")"]
        cells = [el("td", link), el("td", day(one.listed.started)), el("td", model), number(passed), number(*rate)]
        rows.append(el("tr", el("th", letter, scope="row"), *cells, number(score(summary.weighted_score))))
    heads = [head_cell("run"), head_cell("suite"), head_cell("started"), head_cell("model")]
    heads += [head_cell(word, is_number=True) for word in ("passed", "pass rate (95 %)", "score")]
    return grid("the runs", heads, rows, class_="compared")


def _rates(runs: Sequence[OpenRun]) -> Node:
    bars = []
    for letter, one in zip(LETTERS, runs, strict=False):
        summary, ci = one.summary, one.summary.success_rate_ci
        label = f"{letter} {one.listed.model or one.listed.engine}"
        bars.append(
            Bar(label, summary.success_rate or 0.0, percent(summary.success_rate), (ci.lower, ci.upper) if ci else None)
        )
    return bar_plot("Tasks passed, with the 95 % interval", bars)


def _pair(runs: Sequence[OpenRun], place: int, comparison: Comparison) -> Iterator[Node]:
    """Yield one comparison: its verdict, the flips, the differences."""
    yield el("h2", f"A → {LETTERS[place]}", id=f"pair-{place}")
    yield components.line(
        TextLine((sentence(comparison.verdict, comparison.on),), TONES[comparison.verdict.word]), class_="verdict"
    )
    yield [components.line(one) for one in reservations(comparison)]
    yield _flips(runs[0], runs[place], comparison)
    rows = [_of_verdict("pass rate", comparison.passing)]
    rows += [_of_verdict("score", comparison.scores)] if comparison.scores else []
    rows += [_of_grader(change) for change in comparison.graders[:MOST_GRADERS]]
    yield el("h3", "Differences with their 95 % intervals, in points")
    yield forest("", rows)
    yield el("details", el("summary", "side by side in numbers"), components.table("side by side", sides(comparison)))


def _of_grader(change: GraderChange) -> ForestRow:
    span = (change.interval.lower, change.interval.upper) if change.interval else None
    label = f"{change.before:.2f} → {change.after:.2f}, p = {p_value(change.p_value)}"
    return ForestRow(change.name, change.difference, span, label, change.p_value < ALPHA)


def _of_verdict(label: str, verdict: DifferenceVerdict) -> ForestRow:
    span = verdict.interval
    value = f"{signed(verdict.difference)}, p = {p_value(verdict.p_value)}"
    return ForestRow(
        label,
        verdict.difference,
        (span.lower, span.upper) if span else None,
        value,
        verdict.word in ("better", "worse"),
    )


def _flips(before: OpenRun, after: OpenRun, comparison: Comparison) -> Node:
    flips = [task for task in comparison.tasks if task.kind in FLIPS]
    counts = {kind: sum(task.kind == kind for task in flips) for kind in FLIPS}
    if not flips:
        return [el("h3", "Flips"), soft("No task changed its status.")]
    counted = ", ".join(f"{count} {flip_word(kind)}" for kind, count in counts.items() if count)
    listed = [_flip(before, after, task) for task in flips[:MOST_FLIPS]]
    more = soft(f"… {len(flips) - MOST_FLIPS} more in the table below") if len(flips) > MOST_FLIPS else None
    return [
        el("h3", f"Flips: {counted}"),
        soft(f"McNemar's exact test: p = {p_value(comparison.mcnemar_p)}"),
        el("div", *listed, class_="flips"),
        more,
    ]


def _flip(before: OpenRun, after: OpenRun, task: TaskChange) -> Element:
    word, _ = FLIPS[task.kind]
    link = el("a", short(task.id, 120), href=_side_by_side_address(before, after, task.id))
    trials = ""
    if max(task.decided_before, task.decided_after) > 1:
        trials = f" {task.passed_before} of {task.decided_before} → {task.passed_after} of {task.decided_after} trials"
    golden = el("span", "golden", class_="tag") if task.golden else None
    lines = components.items(list(flip_lines(task.details))[:14]) if task.details else None
    return el(
        "div",
        el("b", f"{word} "),
        link,
        el("span", trials, class_="soft"),
        " ",
        golden,
        lines,
        class_=f"flip {task.kind}",
    )


def _side_by_side_address(before: OpenRun, after: OpenRun, task: str) -> str:
    return href("compare", run=[before.listed.key, after.listed.key], task=task)


def _tasks(request: PageRequest, runs: Sequence[OpenRun], compared: Sequence[Comparison]) -> Node:
    """Return every task that all or some of the runs share, flips first, with its change."""
    changes = [{task.id: task for task in one.tasks} for one in compared]
    ids = list(dict.fromkeys(task.id for one in compared for task in one.tasks if task.kind in FLIPS))
    ids = list(dict.fromkeys([*ids, *(task.id for one in compared for task in one.tasks)]))
    skip = request.number("skip", 0)
    heads: list[Node] = [head_cell("task"), head_cell("A")]
    for letter in LETTERS[1 : len(runs)]:
        heads += [
            head_cell(letter),
            head_cell("trials", is_number=True),
            head_cell("score", is_number=True),
            head_cell("Δ score", is_number=True),
        ]
    rows = [_task_row(runs, changes, task) for task in ids[skip : skip + TASKS]]
    keys = [one.listed.key for one in runs]
    address = href("compare", run=keys) + "&"
    return [el("h2", f"Tasks: {len(ids):,} in common", id="tasks"), grid("tasks", heads, rows, class_="rows compared"),
            pager(address, len(ids), skip, TASKS, "tasks")]  # fmt: skip


def _task_row(runs: Sequence[OpenRun], changes: Sequence[dict[str, TaskChange]], task: str) -> Element:
    first = next(by_task[task] for by_task in changes if task in by_task)
    link = el("a", short(task, 120), href=_side_by_side_address(runs[0], runs[1], task))
    cells: list[Node] = [el("th", link, scope="row"), el("td", mark(first.status_before))]
    for by_task in changes:
        cells += _change_cells(by_task.get(task))
    kinds = {by_task[task].kind for by_task in changes if task in by_task}
    return el("tr", *cells, data_status="failed" if "broke" in kinds else None)


def _change_cells(change: TaskChange | None) -> list[Node]:
    if change is None:
        return [el("td", "not compared", class_="soft", colspan="4")]
    trials = f"{change.passed_before} of {change.decided_before} → {change.passed_after} of {change.decided_after}"
    before, after = change.score_before, change.score_after
    delta = f"{after - before:+.2f}" if before is not None and after is not None else "–"
    word = {"broke": " regressed", "mended": " fixed"}.get(change.kind, "")
    flip = el("span", word, class_="failed" if change.kind == "broke" else "passed") if word else None
    return [
        el("td", mark(change.status_after), flip),
        number(trials),
        number(f"{score(before)} → {score(after)}"),
        number(delta),
    ]


# Two trials of one task, one of each run: grades, trajectories aligned at their first difference, answers.

LETTERS = "ABCDEF"
MOST_GRADERS = 20


def side_by_side(
    request: PageRequest, runs: Sequence[OpenRun], compared: Sequence[Comparison], task: str
) -> Iterator[Node]:
    """Yield two trials of one task, aligned at the first call in which they differ."""
    place = min(max(1, request.number("with", 1)), len(runs) - 1)
    before, after = runs[0], runs[place]
    change = next((one for one in compared[place - 1].tasks if one.id == task), None)
    details = change.details if change else None
    one = the_result(before, task, request.number("a", details.trial_before if details else _first(before, task)))
    other = the_result(after, task, request.number("b", details.trial_after if details else _first(after, task)))
    yield el("h1", short(task, 160))
    yield el("p", *_named("A", before, one), " → ", *_named(LETTERS[place], after, other))
    yield _trial_links(runs, place, task, one, other)
    if details and (one.trial, other.trial) == (details.trial_before, details.trial_after):
        yield components.items(list(flip_lines(details))[:20])
    yield _verdicts(one, other, LETTERS[place])
    yield el("h2", "Trajectories", id="trajectories")
    if one.trace.tool_events is None or other.trace.tool_events is None:
        yield soft("Tool calls of one of them were not recorded.")
    else:
        labels = (f"A, trial {one.trial}", f"{LETTERS[place]}, trial {other.trial}")
        address = (
            href("compare", run=[run.listed.key for run in runs], task=task, with_=place, a=one.trial, b=other.trial)
            + "&"
        )
        yield trajectories(one.trace.tool_events, other.trace.tool_events, labels, request.number("skip", 0), address)
    budget = TextBudget(150_000)
    yield el("h2", "Answers")
    yield el(
        "div",
        *(el("div", budget.text(result.trace.output or "(nothing)", 10_000)) for result in (one, other)),
        class_="talk",
    )


def _first(opened: OpenRun, task: str) -> int:
    return next((one.trial for one in outcomes_of(opened.run.results) if one.task_id == task), 1)


def _named(letter: str, opened: OpenRun, result: Result) -> list[Node]:
    address = href("runs", opened.listed.key, "task", id=result.task_id, trial=result.trial)
    model = short(opened.listed.model or opened.listed.engine, 60)
    return [mark(result.status), " ", el("a", f"{letter}: {model}, trial {result.trial}", href=address)]


def _trial_links(runs: Sequence[OpenRun], place: int, task: str, one: Result, other: Result) -> Node:
    """Return links to the other trials of both sides."""
    keys = [run.listed.key for run in runs]
    lines: list[Node] = []
    for letter, opened, key, shown in (("A", runs[0], "a", one), (LETTERS[place], runs[place], "b", other)):
        trials = sorted(
            (outcome.trial, outcome.status) for outcome in outcomes_of(opened.run.results) if outcome.task_id == task
        )
        if len(trials) < 2:
            continue
        links: list[Node] = [el("span", f"{letter}: ", class_="soft")]
        for trial, status in trials[:50]:
            chosen = {"a": one.trial, "b": other.trial} | {key: trial}
            address = href("compare", run=keys, task=task, with_=place, **chosen)
            links.append(
                el("a", mark(status), f"{trial}", href=address, aria_current="true" if trial == shown.trial else None)
            )
        lines.append(el("span", *links, class_="around"))
    return el("nav", *lines, aria_label="trials") if lines else None


def _grade_cell(grade: Grade | None) -> Element:
    return el("td", mark(grade.status), f" {score(grade.score)}") if grade else el("td", "–")


def _verdicts(one: Result, other: Result, letter: str) -> Node:
    """Return the grades of both, those that differ first."""
    ones, others = (dict(zip(shown_names(side), side.grades, strict=True)) for side in (one, other))
    names = list(dict.fromkeys([*ones, *others]))[:MOST_GRADERS]
    pairs = [(name, ones.get(name), others.get(name)) for name in names]
    pairs.sort(key=lambda pair: (pair[1] and pair[1].status) == (pair[2] and pair[2].status))
    rows = [el("tr", el("th", short(name, 80), scope="row"), *map(_grade_cell, both)) for name, *both in pairs]
    if not rows:
        return None
    differ = sum((before and before.status) != (after and after.status) for _, before, after in pairs)
    summary = f"{plural(differ, 'grade')} of {len(pairs)} differ"
    return [
        el("h2", "Grades"),
        soft(summary),
        grid("grades", [head_cell("grader"), head_cell("A"), head_cell(letter)], rows),
    ]


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
