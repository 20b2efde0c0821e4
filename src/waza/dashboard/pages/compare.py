"""Runs side by side: flips first, what the difference shows, every task's change, two trajectories of a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from waza.dashboard import blocks
from waza.dashboard.comparing import comparisons
from waza.dashboard.forest import Difference, forest
from waza.dashboard.index import Listed
from waza.dashboard.markup import Element, Html, Node, el, href, short
from waza.dashboard.pages._side_by_side import LETTERS, MOST_GRADERS, side_by_side
from waza.dashboard.parts import day, grid, head_cell, interval, mark, number, pager, run_link, soft
from waza.dashboard.registry import Ask, NotThere, View
from waza.dashboard.store import Opened, Store, Wanted
from waza.reports._compare_words import FLIPS, TONES, flip_lines, p_value, reservations, sentence, sides, signed
from waza.reports._document import Line
from waza.reports._elements import Bar, plot
from waza.reports._text import percent, score
from waza.results.stats.changes import Comparison, GraderChange, TaskChange
from waza.results.stats.power import ALPHA
from waza.results.stats.verdicts import Verdict

PATH = "/compare"
NAV = "Compare"
PLACE = 3
KEY = "c"
MOST_RUNS = 6
TASKS = 100
"""Tasks on one page."""
MOST_FLIPS = 30


def page(ask: Ask, store: Store) -> View:
    """Return the comparison of the runs an address names, or what can be chosen."""
    keys = list(dict.fromkeys(ask.query.every("run")))[:MOST_RUNS]
    if len(keys) < 2:
        return View(title="Compare", body=[el("h1", "Compare runs"), *_choice(store, keys)])
    runs = [_opened(store, key) for key in keys]
    found = comparisons(runs)
    crumbs = [("Runs", href()), ("Compare", href("compare", run=keys))]
    if task := ask.query.get("task"):
        return View(title=task, body=[*side_by_side(ask, runs, found, task)], crumbs=crumbs)
    body: list[Node] = [el("h1", "Compare"), _runs(runs)]
    for place, one in enumerate(found, 1):
        body += _pair(runs, place, one)
    body += [Html(_rates(runs)), _tasks(ask, runs, found)]
    return View(title="Compare", body=body, crumbs=[("Runs", href())])


def _opened(store: Store, key: str) -> Opened:
    listed = store.find(key)
    if listed is None:
        raise NotThere(f"No run is called {short(key, 80)}.")
    return store.open(listed)


def _choice(store: Store, keys: Sequence[str]) -> Iterator[Node]:
    """Yield a form to choose runs: of the suite of the one that is chosen already, else the newest."""
    chosen = store.find(keys[0]) if keys else None
    runs, _ = store.runs(Wanted(suite=chosen.suite if chosen else ""))
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


def _option(run: Listed, place: int, known: Sequence[Listed], chosen: Listed | None) -> Element:
    first = chosen.key if chosen else known[1].key
    second = next((one.key for one in known if one.key != first), "")
    told = f"{day(run.started)} · {run.suite} · {run.model or run.engine} · {run.verdict}"
    return el(
        "option", short(told, 120), value=run.key, selected=run.key == (first, second)[place] if place < 2 else False
    )


def _runs(runs: Sequence[Opened]) -> Element:
    rows = []
    for letter, one in zip(LETTERS, runs, strict=False):
        found = one.summary
        told = f"{found.succeeded} of {found.total_tests}"
        link = run_link(one.listed.key, one.listed.suite or one.listed.key)
        made = short(one.listed.model or one.listed.engine, 60)
        rate: list[Node] = [f"{percent(found.success_rate)} (", interval(found.success_rate_ci), ")"]
        cells = [el("td", link), el("td", day(one.listed.started)), el("td", made), number(told), number(*rate)]
        rows.append(el("tr", el("th", letter, scope="row"), *cells, number(score(found.weighted_score))))
    heads = [head_cell("run"), head_cell("suite"), head_cell("started"), head_cell("model")]
    heads += [head_cell(word, is_number=True) for word in ("passed", "pass rate (95 %)", "score")]
    return grid("the runs", heads, rows, class_="compared")


def _rates(runs: Sequence[Opened]) -> str:
    bars = []
    for letter, one in zip(LETTERS, runs, strict=False):
        found, ci = one.summary, one.summary.success_rate_ci
        label = f"{letter} {one.listed.model or one.listed.engine}"
        bars.append(
            Bar(label, found.success_rate or 0.0, percent(found.success_rate), (ci.lower, ci.upper) if ci else None)
        )
    return plot("Tasks passed, with the 95 % interval", bars)


def _pair(runs: Sequence[Opened], place: int, found: Comparison) -> Iterator[Node]:
    """Yield one comparison: its verdict, the flips, the differences."""
    yield el("h2", f"A → {LETTERS[place]}", id=f"pair-{place}")
    yield blocks.line(Line((sentence(found.verdict, found.on),), TONES[found.verdict.word]), class_="verdict")
    yield [blocks.line(one) for one in reservations(found)]
    yield _flips(runs[0], runs[place], found)
    rows = [_of_verdict("pass rate", found.passing)]
    rows += [_of_verdict("score", found.scores)] if found.scores else []
    rows += [_of_grader(change) for change in found.graders[:MOST_GRADERS]]
    yield el("h3", "Differences with their 95 % intervals, in points")
    yield forest("", rows)
    yield el("details", el("summary", "side by side in numbers"), blocks.table("side by side", sides(found)))


def _of_grader(change: GraderChange) -> Difference:
    span = (change.interval.lower, change.interval.upper) if change.interval else None
    told = f"{change.before:.2f} → {change.after:.2f}, p = {p_value(change.p_value)}"
    return Difference(change.name, change.difference, span, told, change.p_value < ALPHA)


def _of_verdict(label: str, verdict: Verdict) -> Difference:
    span = verdict.interval
    told = f"{signed(verdict.difference)}, p = {p_value(verdict.p_value)}"
    return Difference(
        label, verdict.difference, (span.lower, span.upper) if span else None, told, verdict.word in ("better", "worse")
    )


def _flips(before: Opened, after: Opened, found: Comparison) -> Node:
    flips = [task for task in found.tasks if task.kind in FLIPS]
    counts = {kind: sum(task.kind == kind for task in flips) for kind in FLIPS}
    if not flips:
        return [el("h3", "Flips"), soft("No task came out otherwise.")]
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    listed = [_flip(before, after, task) for task in flips[:MOST_FLIPS]]
    more = soft(f"… {len(flips) - MOST_FLIPS} more in the table below") if len(flips) > MOST_FLIPS else None
    return [
        el("h3", f"Flips: {told}"),
        soft(f"McNemar's exact test: p = {p_value(found.mcnemar_p)}"),
        el("div", *listed, class_="flips"),
        more,
    ]


def _flip(before: Opened, after: Opened, task: TaskChange) -> Element:
    word, _ = FLIPS[task.kind]
    link = el("a", short(task.id, 120), href=_beside_address(before, after, task.id))
    trials = ""
    if max(task.decided_before, task.decided_after) > 1:
        trials = f" {task.passed_before} of {task.decided_before} → {task.passed_after} of {task.decided_after} trials"
    golden = el("span", "golden", class_="tag") if task.golden else None
    lines = blocks.items(list(flip_lines(task.details))[:14]) if task.details else None
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


def _beside_address(before: Opened, after: Opened, task: str) -> str:
    return href("compare", run=[before.listed.key, after.listed.key], task=task)


def _tasks(ask: Ask, runs: Sequence[Opened], found: Sequence[Comparison]) -> Node:
    """Return every task that all or some of the runs share, flips first, with its change."""
    changes = [{task.id: task for task in one.tasks} for one in found]
    ids = list(dict.fromkeys(task.id for one in found for task in one.tasks if task.kind in FLIPS))
    ids = list(dict.fromkeys([*ids, *(task.id for one in found for task in one.tasks)]))
    skip = ask.number("skip", 0)
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


def _task_row(runs: Sequence[Opened], changes: Sequence[dict[str, TaskChange]], task: str) -> Element:
    first = next(found[task] for found in changes if task in found)
    link = el("a", short(task, 120), href=_beside_address(runs[0], runs[1], task))
    cells: list[Node] = [el("th", link, scope="row"), el("td", mark(first.status_before))]
    for found in changes:
        cells += _change_cells(found.get(task))
    kinds = {found[task].kind for found in changes if task in found}
    return el("tr", *cells, data_status="failed" if "broke" in kinds else None)


def _change_cells(change: TaskChange | None) -> list[Node]:
    if change is None:
        return [el("td", "not compared", class_="soft", colspan="4")]
    told = f"{change.passed_before} of {change.decided_before} → {change.passed_after} of {change.decided_after}"
    before, after = change.score_before, change.score_after
    delta = f"{after - before:+.2f}" if before is not None and after is not None else "–"
    word = {"broke": " broke", "mended": " mended"}.get(change.kind, "")
    flip = el("span", word, class_="failed" if change.kind == "broke" else "passed") if word else None
    return [
        el("td", mark(change.status_after), flip),
        number(told),
        number(f"{score(before)} → {score(after)}"),
        number(delta),
    ]
