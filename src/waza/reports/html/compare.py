"""Runs side by side: flips first, what the difference shows, every task's change, two trajectories of a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from waza.analysis.changes import Comparison, GraderChange, TaskChange, divergence
from waza.model import Grade, Result, ToolEvent
from waza.reports.comparison import FLIPS, TONES, flip_lines, flip_word, p_value, reservations, sentence, sides, signed
from waza.reports.document import Bar, TextLine
from waza.reports.failed_checks import shown_value
from waza.reports.html import components
from waza.reports.html.charts import ForestRow, forest
from waza.reports.html.components import (
    bar_plot,
    day,
    fold,
    grid,
    head_cell,
    interval,
    mark,
    number,
    pager,
    run_link,
    soft,
    task_address,
)
from waza.reports.html.markup import Element, Node, TextBudget, el, href, short
from waza.reports.html.view import OpenRun, PageRequest, RunRow, View, the_result
from waza.reports.interpretation import headline_rate
from waza.runs.outcomes import outcomes_of, shown_names
from waza.stats.difference import DifferenceVerdict
from waza.stats.power import ALPHA
from waza.untrusted.text import percent, plural, score, seconds

TASKS = 100
"""Tasks on one page."""
MOST_FLIPS = 30


def choice_page(chosen: RunRow | None, runs: Sequence[RunRow]) -> View:
    """Return the page to choose runs on: of the suite of the one that is chosen already, else the newest."""
    return View(title="Compare", body=[el("h1", "Compare runs"), *_choice(chosen, runs)])


def compare_page(request: PageRequest, runs: Sequence[OpenRun], compared: Sequence[Comparison]) -> View:
    """Return the comparison of the first run with each of the others; `task=` in the query chooses one task."""
    if task := request.query.get("task"):
        crumbs = [("Runs", href()), ("Compare", href("compare", run=[one.listed.key for one in runs]))]
        return View(title=task, body=[*side_by_side(request, runs, compared, task)], crumbs=crumbs)
    body: list[Node] = [el("h1", "Compare"), _runs(runs)]
    for place, one in enumerate(compared, 1):
        body += _pair(runs, place, one)
    body += [_rates(runs), _tasks(request, runs, compared)]
    return View(title="Compare", body=body, crumbs=[("Runs", href())])


def _choice(chosen: RunRow | None, runs: Sequence[RunRow]) -> Iterator[Node]:
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
        passed = f"{summary.succeeded} of {summary.total_tests}" + (
            f", {summary.errors} undecided" if summary.errors else ""
        )
        link = run_link(one.listed.key, one.listed.suite or one.listed.key)
        model = short(one.listed.model or one.listed.engine, 60)
        share, span = headline_rate(summary)
        rate: list[Node] = [f"{percent(share)} (", interval(span), ")"]
        cells = [el("td", link), el("td", day(one.listed.started)), el("td", model), number(passed), number(*rate)]
        rows.append(el("tr", el("th", letter, scope="row"), *cells, number(score(summary.weighted_score))))
    heads = [head_cell("run"), head_cell("suite"), head_cell("started"), head_cell("model")]
    heads += [head_cell(word, is_number=True) for word in ("passed", "pass rate (95 %)", "score")]
    return grid("the runs", heads, rows, class_="compared")


def _rates(runs: Sequence[OpenRun]) -> Node:
    bars = []
    for letter, one in zip(LETTERS, runs, strict=False):
        share, ci = headline_rate(one.summary)
        label = f"{letter} {one.listed.model or one.listed.engine}"
        bars.append(Bar(label, share or 0.0, percent(share), (ci.lower, ci.upper) if ci else None))
    return bar_plot("Decided tasks that passed, with the 95 % interval", bars)


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
    yield fold("side by side in numbers", components.table("side by side", sides(comparison)))


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
    address = task_address(opened.listed.key, result.task_id, result.trial)
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


# Two trajectories: equal calls at the start are folded, the first difference is marked.

ROWS = 120
"""Rows on one page."""
MOST_CALLS = 1_500
"""Calls after the first difference that are aligned."""
CONTEXT_CALLS = 3
"""Equal calls before the first difference that stay unfolded."""


class AlignedRow(NamedTuple):
    """A row of the table: a call of each side, None where a side has none."""

    before: tuple[int, ToolEvent] | None
    after: tuple[int, ToolEvent] | None
    is_same: bool = False


def rows_of(before: Sequence[ToolEvent], after: Sequence[ToolEvent]) -> tuple[list[AlignedRow], int]:
    """Return rows of calls, aligned by tool from the first difference on; and how many are equal before it."""
    alike = divergence(before, after)
    same = min(alike.call - (alike.kind != "same"), len(before), len(after)) if alike else 0
    ones, others = list(enumerate(before, 1)), list(enumerate(after, 1))
    rows = [AlignedRow(one, other, True) for one, other in zip(ones[:same], others[:same], strict=True)]
    left, right = ones[same : same + MOST_CALLS], others[same : same + MOST_CALLS]
    names = [[event.tool_name for _, event in side] for side in (left, right)]
    for tag, i, j, k, m in SequenceMatcher(a=names[0], b=names[1], autojunk=False).get_opcodes():
        rows += _block(left[i:j], right[k:m], is_equal=tag == "equal")
    return rows, same


def _block(
    ones: list[tuple[int, ToolEvent]], others: list[tuple[int, ToolEvent]], *, is_equal: bool
) -> Iterator[AlignedRow]:
    for place in range(max(len(ones), len(others))):
        one = ones[place] if place < len(ones) else None
        other = others[place] if place < len(others) else None
        yield AlignedRow(one, other, bool(is_equal and one and other and one[1].args == other[1].args))


def trajectories(
    before: Sequence[ToolEvent], after: Sequence[ToolEvent], labels: tuple[str, str], skip: int, address: str
) -> Node:
    """Return both trajectories as a table, with equal calls at the start folded."""
    rows, same = rows_of(before, after)
    if not rows:
        return el("p", "Neither called a tool.", class_="soft")
    folded = max(0, same - CONTEXT_CALLS) if same < len(rows) else 0
    budget, left = TextBudget(350_000), rows[folded:]
    shown = left[skip : skip + ROWS]
    first = same - folded - skip
    heads = [el("th", "", scope="col", class_="place", aria_label="equal or different")]
    heads += [el("th", short(label, 60), scope="col") for label in labels]
    body = [_row(row, place == first, budget) for place, row in enumerate(shown)]
    table = el("table", el("thead", el("tr", *heads)), el("tbody", *body), class_="sides")
    start = _start(rows[:folded]) if folded else None
    return [start, el("div", table, class_="wide", tabindex="0", role="region", aria_label="trajectories side by side"),
            pager(address, len(left), skip, ROWS, "rows")]  # fmt: skip


def _start(rows: Sequence[AlignedRow]) -> Element:
    names = [f"{row.before[0]} {short(row.before[1].tool_name, 60)}" for row in rows[:300] if row.before]
    more = [f"… {len(rows) - 300} more"] if len(rows) > 300 else []
    return fold(f"{plural(len(rows), 'call')} equal at the start", el("p", " · ".join([*names, *more]), class_="soft"))


def _row(row: AlignedRow, is_first: bool, budget: TextBudget) -> Element:
    mark, label = ("=", "equal") if row.is_same else ("≠", "differ")
    if row.before is None or row.after is None:
        mark, label = ("+", "only after") if row.before is None else ("−", "only before")
    kind = "same" if row.is_same else "other"
    words = el("span", "first difference", class_="tag") if is_first else None
    cells = [_cell(row.before, row, budget), _cell(row.after, row, budget)]
    place = el("td", el("span", mark, title=label, role="img", aria_label=label), class_="place")
    return el(
        "tr", place, el("td", words, cells[0]), el("td", cells[1]), class_=f"{kind}{' diverges' if is_first else ''}"
    )


def _cell(side: tuple[int, ToolEvent] | None, row: AlignedRow, budget: TextBudget) -> Node:
    if side is None:
        return el("span", "–", class_="soft", aria_label="no call")
    number, event = side
    failed = el("span", " ✗ failed", class_="failed") if not event.success else None
    took = el("span", f" {seconds(event.duration_ms)}", class_="soft") if event.duration_ms is not None else None
    head: list[Node] = [el("span", f"{number} ", class_="soft"), el("b", short(event.tool_name, 60)), took, failed]
    args = shown_value(event.args, 20_000) or ""
    if row.is_same:
        return [*head, " ", el("code", budget.line(args, 80), class_="soft")]
    inner: list[Node] = [budget.text(args, 2_000)]
    if result := event.error or shown_value(event.result, 20_000):
        inner += [el("p", "error" if event.error else "result", class_="soft"), budget.text(result, 1_000)]
    return [*head, el("div", el("code", budget.line(args, 200))), *_differing(side, row), fold("all of it", *inner)]


def _differing(side: tuple[int, ToolEvent], row: AlignedRow) -> Iterator[Node]:
    """Yield the arguments in which a call differs from the one next to it, on the later side."""
    if row.before is None or row.after is None or side is not row.after:
        return
    difference = divergence([row.before[1]], [row.after[1]])
    for one in difference.arguments if difference else ():
        before, after = (shown_value(value, 120) or "nothing" for value in (one.before, one.after))
        yield el("div", el("b", short(one.path or "arguments", 80)), f": {before} → {after}", class_="soft")
