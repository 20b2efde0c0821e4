"""The page of one run: failed checks first, tasks × graders, numbers with their uncertainty, use of tools, judges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from waza.model import Result, Run
from waza.reports.document import Bar
from waza.reports.failed_checks import headline, trials_of
from waza.reports.html.charts import durations, rates
from waza.reports.html.components import (
    CHARTS,
    MARKS,
    WORDS,
    badge,
    bar_plot,
    chart,
    choice,
    count,
    document_nodes,
    grid,
    head_cell,
    interval,
    mark,
    money,
    number,
    pager,
    soft,
    task_address,
    tile,
    tiles,
    when,
    whole,
)
from waza.reports.html.markup import Element, Html, Node, el, href, render, short
from waza.reports.html.view import GradeMark, OpenRun, PageRequest, TrialMarks, View
from waza.reports.impact import impact_document
from waza.reports.interpretation import costs_of_run, headline_rate, times_of
from waza.reports.judging import judging_lines
from waza.reports.run_sections import metrics_document
from waza.reports.triggers import trigger_document
from waza.runs.impact_records import Impact
from waza.runs.judge_card import Calibration, JudgeCard
from waza.runs.metrics import tool_metrics
from waza.runs.outcomes import outcomes_of
from waza.runs.tasks import TaskSummary, statistics_of
from waza.stats.intervals import exact_share
from waza.stats.scores import Interval
from waza.untrusted.text import fold_case, percent, plural, score, seconds

MOST_FAILED = 8
"""Tasks that did not pass and are listed with their reason at the top."""
MOST_SECTION = 400_000
"""Characters of the section on trigger tests."""


class JudgeReliability(NamedTuple):
    """What is known about the judges of a run."""

    calibrations: Sequence[Calibration] = ()
    cards: Sequence[JudgeCard] = ()
    error: str = ""
    """Why not all of it could be read."""


def run_page(
    request: PageRequest,
    opened: OpenRun,
    marks: Sequence[TrialMarks],
    impact: Impact | None,
    judges: JudgeReliability,
) -> View:
    """Return a run's page; `marks` are the grades of the tasks that `matrix_tasks` returns."""
    listed = opened.listed
    run, has_tasks = opened.run, bool(opened.tasks)
    body = [*_top(opened), _tiles(opened), *document_nodes(metrics_document(opened.summary), level=2), _failed(opened)]
    body += [_matrix(request, opened, marks)] if has_tasks else []
    body += [_triggers(opened), list(document_nodes(impact_document(impact), level=2)) if impact else None]
    body += [_judges(run, judges), _tools(run)]
    body += [rates(opened.tasks), durations(run)]
    return View(title=listed.suite or listed.key, body=body, scripts=CHARTS, crumbs=[("Runs", href())])


def _top(opened: OpenRun) -> Iterator[Node]:
    listed = opened.listed
    yield el("h1", badge(listed.verdict), " ", short(listed.suite or listed.key, 120))
    facts: list[Node] = [when(listed.started)]
    for fact in (listed.engine, listed.model, f"skill {listed.skill}" if listed.skill else "", listed.key):
        facts += [" · ", short(fact, 100)] if fact else []
    yield soft(*facts, *(el("span", " ", el("a", tag, href=href(tag=tag), class_="tag")) for tag in listed.tags))
    links: list[Node] = [el("a", "trend", href=href("trends", suite=listed.suite)), " · "]
    links += [el("a", "compare with…", href=href("compare", run=[listed.key]))]
    if listed.is_live:
        links = [el("a", "watch it live", href=href("runs", listed.key, "live")), " · ", *links]
    yield el("p", *links)
    if listed.is_live:
        yield soft("The run is not finished; these are its numbers so far.")
    elif not listed.is_complete:
        yield el("p", "The run is not complete: some trials are missing.", class_="error")
    if opened.damaged:
        yield el(
            "p", f"{plural(opened.damaged, 'record')} of the journal cannot be read and are left out.", class_="error"
        )
    for warning in opened.summary.warnings:
        yield el("p", short(warning, 600), class_="error")


def _tiles(opened: OpenRun) -> Element:
    summary, usage = opened.summary, opened.summary.usage
    stats = statistics_of(opened.run, opened.tasks)
    trials = len(opened.run.results) + len(opened.run.triggers)
    rate, span = headline_rate(summary)
    passed: Node = [f"{percent(rate)} · 95 % interval ", interval(span)]
    of = summary.decided if summary.errors else summary.total_tests
    word = "decided tasks passed" if summary.errors else "passed"
    found = [tile(word, f"{summary.succeeded} of {of}", passed)] if opened.tasks else []
    if summary.errors:
        low, high = summary.rate_bounds
        found.append(tile("undecided", str(summary.errors), f"so {low * 100:.0f}–{percent(high)} of all pass"))
    counts = ((summary.failed, "failed"), (summary.skipped, "not graded"))
    found += [tile(noun, str(many), f"of {plural(summary.total_tests, 'task')}") for many, noun in counts if many]
    ci = stats.whole.score_ci
    score_note: list[Node] = (
        ["95 % interval ", whole(f"{score(ci.lower)}–{score(ci.upper)}")]
        if ci and ci.tells
        else [f"plain mean {score(summary.aggregate_score)}"]
    )
    if summary.undecided:
        score_note.append(f" · between {score(summary.score_low)} and {score(summary.score_high)} with the undecided")
    found += [tile("score, weighted", score(summary.weighted_score), score_note)] if opened.tasks else []
    if len(stats.pass_hat_k) > 1:
        k = len(stats.pass_hat_k)
        flaky = plural(stats.flaky_tasks, "flaky task")
        found.append(tile(f"all of {k} trials pass", score(stats.pass_hat_k[-1]), f"pass^{k} · {flaky}"))
    found.append(tile("time", times_of(summary), plural(trials, "trial")))
    if summary.agent_tokens is not None or summary.judge_tokens:
        parts = f"{count(usage.input_tokens)} in · {count(usage.output_tokens)} out" if usage else ""
        parts += f" · {count(summary.judge_tokens)} of judging" if summary.judge_tokens else ""
        found.append(tile("tokens", count((summary.agent_tokens or 0) + summary.judge_tokens), parts))
    if summary.cost_usd is not None:
        each = f"{money(summary.cost_usd / max(1, trials))} a trial"
        cost_parts = costs_of_run(summary)[1].strip("()")
        found.append(tile("cost", money(summary.cost_usd), f"{each} · {cost_parts}" if cost_parts else each))
    return tiles(*found)


def _triggers(opened: OpenRun) -> Node:
    """Return the trigger tests with their confusion matrix, where there are some."""
    if opened.summary.triggers is None:
        return None
    blocks = trigger_document(opened.run, opened.summary.triggers, detail="whole")
    section = render(list(document_nodes(blocks, level=2)))
    if len(section) > MOST_SECTION:
        reason = "The answers would make this page too large: "
        return [el("h2", "Trigger tests"), soft(reason, el("code", "waza show --reporter html"), " writes them all.")]
    return Html(section)


def _failed(opened: OpenRun) -> Node:
    """Return the tasks and prompts that did not pass, failed before undecided, each with its first reason."""
    wrong = [(task, run) for run, tasks in _parts(opened) for task in tasks if task.status in ("failed", "error")]
    wrong.sort(key=lambda entry: entry[0].status == "error")
    if not wrong:
        return None
    items = [_fault(opened, task, results) for task, results in wrong[:MOST_FAILED]]
    more = len(wrong) - MOST_FAILED
    rest = soft(f"… and {plural(more, 'more task')} below") if more > 0 else None
    return [el("h2", "Failed checks"), el("ul", *items, class_="faults rows"), rest]


def _parts(opened: OpenRun) -> Iterator[tuple[Sequence[Result], Sequence[TaskSummary]]]:
    yield opened.run.results, opened.tasks
    yield opened.run.triggers, opened.prompts


def _fault(opened: OpenRun, task: TaskSummary, results: Sequence[Result]) -> Element:
    outcomes = enumerate(outcomes_of(results))
    places = [place for place, one in outcomes if one.task_id == task.id and one.status in ("failed", "error")]
    first = results[places[0]] if places else None
    why = headline(first) if first else task.reason or "not run"
    address = task_address(opened.listed.key, task.id, first.trial if first else None)
    link = el("a", short(task.id, 100), href=address)
    return el("li", mark(task.status), " ", el("b", link), " ", el("span", short(why, 300)), data_status=task.status)


# Tasks × graders: each cell says passed, failed or undecided with a mark that needs no colour.

TASKS = 200
"""Tasks on one page."""
MOST_GRADERS = 26
FEW_GRADERS = 6
"""Names that fit next to each other; more are written vertically."""
_ORDER = {"failed": 0, "error": 1, "passed": 2, "skipped": 3}
_SORTS = {
    "status": lambda task: _ORDER[task.status],
    "task": lambda task: task.id,
    "score": lambda task: -1.0 if task.score.weighted is None else task.score.weighted,
    "cost": lambda task: -float(task.usage.cost_usd or 0) if task.usage else 0.0,
    "tokens": lambda task: -(task.usage.total_tokens or 0) if task.usage else 0,
    "time": lambda task: -task.duration_ms,
}
_FILTERS = ("task", "status", "tag")


def matrix_tasks(request: PageRequest, tasks: Sequence[TaskSummary]) -> Sequence[TaskSummary]:
    """Return the tasks that a page of the matrix shows."""
    skip = request.number("skip", 0)
    return _chosen(request, tasks)[skip : skip + TASKS]


def _matrix(request: PageRequest, opened: OpenRun, found: Sequence[TrialMarks]) -> Node:
    """Return a page of the tasks that match the filters, with the status of each grader."""
    chosen, shown = _chosen(request, opened.tasks), matrix_tasks(request, opened.tasks)
    skip = request.number("skip", 0)
    marks: dict[str, list[TrialMarks]] = {}
    for trial in found:
        marks.setdefault(trial.task_id, []).append(trial)
    graders = _graders(marks)
    names = list(graders)[:MOST_GRADERS]
    columns = _columns(opened.tasks)
    filters = {name: request.query.get(name) for name in _FILTERS}
    sort = _sort(request)
    rows = [_row(opened.listed.key, task, marks.get(task.id, []), names, columns) for task in shown]
    head = _head(opened.listed.key, graders, columns, filters, sort)
    classes = "verdicts rows many" if len(names) > FEW_GRADERS else "verdicts rows"
    body: list[Node] = [el("h2", "Tasks × graders", id="tasks"), _legend(), _form(request, opened.tasks)]
    body += [grid("tasks and graders", head, rows, class_=classes)]
    body += [soft("No task matches.") if not shown else None]
    if len(graders) > MOST_GRADERS:
        body.append(soft(f"{plural(len(graders) - MOST_GRADERS, 'more grader')} on the tasks' own pages"))
    address = href("runs", opened.listed.key, **filters, sort=sort)
    return [*body, pager(f"{address}{'&' if '?' in address else '?'}", len(chosen), skip, TASKS, "tasks")]


def _columns(tasks: Sequence[TaskSummary]) -> list[str]:
    """Return the columns of numbers that have any."""
    usages = [task.usage for task in tasks if task.usage is not None]
    known = {
        "passed": any(trials_of(task) > 1 for task in tasks),
        "score": True,
        "cost": any(usage.cost_usd is not None for usage in usages),
        "tokens": any(usage.total_tokens is not None for usage in usages),
        "time": True,
    }
    return [name for name, is_known in known.items() if is_known]


def _sort(request: PageRequest) -> str:
    wanted = request.query.get("sort")
    return wanted if wanted in _SORTS else "status"


def _chosen(request: PageRequest, tasks: Sequence[TaskSummary]) -> Sequence[TaskSummary]:
    word, status, tag = (request.query.get(name) for name in _FILTERS)
    fitting = [
        task
        for task in tasks
        if (not word or fold_case(word) in fold_case(f"{task.id} {task.name}"))
        and (not status or task.status == status or (status == "flaky" and task.is_flaky))
        and (not tag or tag in task.tags)
    ]
    return sorted(fitting, key=_SORTS[_sort(request)])


def _graders(marks: dict[str, list[TrialMarks]]) -> dict[str, float]:
    """Return the graders' names with their weights, in the order in which they first appear."""
    weights: dict[str, float] = {}
    for trials in marks.values():
        for trial in trials:
            for one in trial.marks:
                weights.setdefault(one.name, one.weight)
    return weights


def _legend() -> Element:
    parts: list[Node] = []
    for status in ("passed", "failed", "error"):
        parts += [mark(status), f" {WORDS[status]} · "]
    return soft(*parts, "1/2: of two trials one passed · ×2: a grader's weight")


def _form(request: PageRequest, tasks: Sequence[TaskSummary]) -> Element:
    tags = sorted({tag for task in tasks for tag in task.tags})[:200]
    states = [*(status for status in _ORDER if any(task.status == status for task in tasks))]
    states += ["flaky"] if any(task.is_flaky for task in tasks) else []
    search = el("input", type="search", name="task", value=request.query.get("task"), placeholder="task",
                aria_label="search tasks", id="search")  # fmt: skip
    lists = [choice("status", states, request.query.get("status"), WORDS)]
    lists += [choice("tag", tags, request.query.get("tag"))] if tags else []
    address = request.address.split("?")[0]
    return el("form", search, *lists, el("button", "filter"), method="get", action=address, class_="filters")


def _head(
    key: str, graders: dict[str, float], columns: Sequence[str], filters: dict[str, str], sort: str
) -> list[Node]:
    def sorting(name: str, *, is_number: bool = True) -> Element:
        if name not in _SORTS:
            return head_cell(name, is_number=is_number)
        link = el("a", name, " ↓" if sort == name else "", href=href("runs", key, **filters, sort=name) + "#tasks")
        direction = "descending" if sort == name else None
        return el("th", link, scope="col", class_="number" if is_number else None, aria_sort=direction)

    head: list[Node] = [sorting("status", is_number=False), sorting("task", is_number=False)]
    for name, weight in list(graders.items())[:MOST_GRADERS]:
        label = f"{short(name, 28)} ×{weight:g}" if weight != 1.0 else short(name, 32)
        head.append(el("th", el("span", label, title=short(name, 200)), scope="col", class_="grader"))
    return [*head, *(sorting(name) for name in columns)]


def _row(
    key: str, task: TaskSummary, trials: list[TrialMarks], graders: Sequence[str], columns: Sequence[str]
) -> Element:
    name = el("a", short(task.id, 80), href=task_address(key, task.id))
    about = [el("span", "flaky", class_="tag") if task.is_flaky else None,
             el("span", short(" ".join(task.tags), 60), class_="soft")]  # fmt: skip
    by_grader: dict[str, list[GradeMark]] = {}
    for trial in trials:
        for one in trial.marks:
            by_grader.setdefault(one.name, []).append(one)
    cells = [_cell(name, by_grader.get(name, [])) for name in graders]
    numbers = [number(_number(task, column)) for column in columns]
    return el("tr", el("td", mark(task.status)), el("th", name, " ", *about, scope="row"), *cells, *numbers,
              data_status=task.status)  # fmt: skip


def _number(task: TaskSummary, column: str) -> Node:
    usage = task.usage
    if column == "passed":
        return [f"{task.passed} of {trials_of(task)}", el("span", f" {percent(task.pass_rate)}", class_="soft")]
    if column == "cost":
        return money(float(usage.cost_usd) if usage and usage.cost_usd is not None else None)
    if column == "tokens":
        return count(usage.total_tokens if usage else None)
    return seconds(task.duration_ms) if column == "time" else _score(task)


def _score(task: TaskSummary) -> Node:
    if not task.score.undecided:
        return score(task.score.weighted)
    return [
        score(task.score.weighted),
        el("span", f" ({score(task.score.low)}–{score(task.score.high)})", class_="soft"),
    ]


def _cell(name: str, marks: list[GradeMark]) -> Element:
    """Return one grader's verdict on one task: the worst over its trials, and how many passed."""
    if not marks:
        return el("td", "·", class_="cell soft", title=f"{short(name, 60)}: not used here")
    statuses = [one.status for one in marks]
    status = "failed" if "failed" in statuses else "error" if "error" in statuses else "passed"
    passed = statuses.count("passed")
    label = f"{short(name, 60)}: {WORDS[status]}, score {score(sum(one.score for one in marks) / len(marks))}"
    if len(marks) > 1:
        label += f", {passed} of {len(marks)} trials passed"
    many = f" {passed}/{len(marks)}" if len(marks) > 1 and passed < len(marks) else ""
    return el("td", el("span", MARKS[status], many, role="img", aria_label=label), class_=f"cell {status}", title=label)


# How a run's agent used its tools: what fitted, what succeeded, how many calls a trial took.


def _tools(run: Run) -> Node:
    """Return the tool metrics and the distribution of calls; nothing where no call was recorded."""
    metrics = tool_metrics(run)
    if metrics is None:
        return None
    calls = metrics["call_count"]
    if not calls["max"] and metrics["selection_accuracy"] is None:
        return [el("h2", "Tools"), soft("No trial called a tool.")]
    numbers = [
        tile("right tool first", percent(metrics["selection_accuracy"]), "of tasks that expect a tool"),
        tile("right arguments", percent(metrics["input_correctness"]), "of calls whose arguments are stated"),
        tile("calls that worked", percent(metrics["success_rate"])),
        tile(
            "calls a trial",
            f"{calls['median']:g}",
            f"median · mean {calls['mean']:.1f} · p95 {calls['p95']} · most {calls['max']}",
        ),
    ]
    bars = calls["histogram"]
    rows = [el("tr", el("th", label, scope="row"), number(str(many))) for label, many in bars.items()]
    table = grid("calls a trial", [head_cell("calls"), head_cell("trials", is_number=True)], rows)
    data = {"labels": list(bars), "values": list(bars.values()), "unit": "trials"}
    return [
        el("h2", "Tools"),
        tiles(*numbers),
        chart("bars", "Tool calls a trial: how many trials", data, table),
    ]


# How reliable the judges of a run are: judge cards, calibrations, juries, canaries.


def _judges(run: Run, found: JudgeReliability) -> Node:
    """Return how reliable the judges of a run are; nothing where no judge was asked or none was measured."""
    lines = list(judging_lines(run))
    plots = [*map(_calibration, found.calibrations), *map(_card, found.cards)]
    plots += [el("p", short(found.error, 600), class_="error")] if found.error else []
    if not lines and not plots:
        return None
    notes = el("ul", *(el("li", short(line, 600)) for line in lines)) if lines else None
    return [el("h2", "Judges"), notes, *plots]


def _calibration(calibration: Calibration) -> Node:
    counts = calibration.counts
    who = f"{calibration.model or 'its judge'}{f' at {calibration.address}' if calibration.address else ''}"
    title = f"Calibration: {short(calibration.grader)} by {short(who)} against people"
    passes, fails = counts.true_pass + counts.false_fail, counts.true_fail + counts.false_pass
    bars = [
        _bar("agrees with people", counts.agreed, counts.n, exact_share(counts.agreed, counts.n)),
        _bar("passes what people pass", counts.true_pass, passes, exact_share(counts.true_pass, passes)),
        _bar("fails what people fail", counts.true_fail, fails, exact_share(counts.true_fail, fails)),
    ]
    same = soft(f"The same answer every time would agree on {percent(calibration.constant_accuracy)}.")
    return [bar_plot(title, bars), same]


def _card(card: JudgeCard) -> Node:
    title = f"Judge card: {short(card.rubric)} by {short(card.model or card.judge)}, verdicts that stayed the same"
    bars = [_bar("agrees with the goldens", card.agreed.kept, card.agreed.decided, card.agreed.interval)]
    bars += [_bar(probe.name, probe.invariance.kept, probe.invariance.decided, probe.invariance.interval)
             for probe in card.probes]  # fmt: skip
    attacks = card.attacks
    if attacks.decided:
        bars.append(_bar("attacks that worked", attacks.passed, attacks.decided, attacks.interval))
    findings = [el("p", short(finding, 600), class_="error") for finding in card.findings]
    return [bar_plot(title, bars), *findings]


def _bar(label: str, part: int, whole: int, interval: Interval | None) -> Bar:
    span = (interval.lower, interval.upper) if interval else None
    return Bar(label, part / whole if whole else 0.0, f"{part} of {whole}", span)
