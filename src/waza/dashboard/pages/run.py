"""One run: what failed first, tasks × graders, the numbers with their uncertainty, how tools were used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from waza.dashboard.judged import judge_section
from waza.dashboard.markup import Element, Html, Node, el, href, short
from waza.dashboard.matrix import matrix
from waza.dashboard.parts import (
    CHARTS,
    badge,
    count,
    grid,
    head_cell,
    interval,
    mark,
    money,
    number,
    soft,
    task_address,
    tile,
    when,
    whole,
)
from waza.dashboard.registry import Ask, NotThere, View
from waza.dashboard.store import Opened, Store
from waza.dashboard.tools import tool_section
from waza.model import Result
from waza.reports._document import html_blocks
from waza.reports._faults import headline
from waza.reports._html_plots import durations, rates
from waza.reports._impact import impact_document
from waza.reports._numbers import costs_of_run, times_of
from waza.reports._text import percent, plural, score
from waza.reports._triggers import trigger_section
from waza.results.outcomes import outcomes_of
from waza.results.stats.impact import stored_impact
from waza.results.stats.suite import statistics_of
from waza.results.tasks import TaskSummary

PATH = "/runs/{run}"
MOST_FAILED = 8
"""Tasks that did not pass and are told with their reason at the top."""
MOST_SECTION = 400_000
"""How long a part that other reports share may be."""


def page(ask: Ask, store: Store) -> View:
    """Return a run's page."""
    opened = the_run(ask, store)
    listed = opened.listed
    run, has_tasks = opened.run, bool(opened.tasks)
    body = [*_top(opened), _tiles(opened), _metrics(opened), _failed(opened)]
    body += [matrix(ask, store, opened)] if has_tasks else []
    body += [_triggers(opened), _impact(opened), judge_section(run), tool_section(run)]
    body += [Html(rates(opened.tasks)), Html(durations(run))]
    return View(title=listed.suite or listed.key, body=body, scripts=CHARTS, crumbs=[("Runs", href())])


def the_run(ask: Ask, store: Store) -> Opened:
    """Return the run an address names. Raises NotThere, or StoreError when it cannot be read."""
    listed = store.find(ask.parts["run"])
    if listed is None:
        raise NotThere("No run has this name. It may have been removed, or stand in a folder that is not shown here.")
    return store.open(listed)


def _top(opened: Opened) -> Iterator[Node]:
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
        yield soft("The run goes on; these are its numbers so far.")
    elif not listed.is_complete:
        yield el("p", "The run is not complete: some trials are missing.", class_="error")
    if opened.damaged:
        yield el(
            "p", f"{plural(opened.damaged, 'record')} of the journal cannot be read and are left out.", class_="error"
        )
    for warning in opened.summary.warnings:
        yield el("p", short(warning, 600), class_="error")


def _tiles(opened: Opened) -> Element:
    found, usage = opened.summary, opened.summary.usage
    stats = statistics_of(opened.run, opened.tasks)
    trials = len(opened.run.results) + len(opened.run.triggers)
    passed: Node = [f"{percent(found.success_rate)} · 95 % interval ", interval(found.success_rate_ci)]
    tiles = [tile("passed", f"{found.succeeded} of {found.total_tests}", passed)] if opened.tasks else []
    counts = ((found.failed, "failed"), (found.errors, "undecided"), (found.skipped, "not graded"))
    tiles += [tile(noun, str(many), f"of {plural(found.total_tests, 'task')}") for many, noun in counts if many]
    ci = stats.whole.score_ci
    told: list[Node] = (
        ["95 % interval ", whole(f"{score(ci.lower)}–{score(ci.upper)}")]
        if ci and ci.tells
        else [f"plain mean {score(found.aggregate_score)}"]
    )
    if found.undecided:
        told.append(f" · between {score(found.score_low)} and {score(found.score_high)} with the undecided")
    tiles += [tile("score, weighted", score(found.weighted_score), told)] if opened.tasks else []
    if len(stats.pass_hat_k) > 1:
        k = len(stats.pass_hat_k)
        flaky = plural(stats.flaky_tasks, "flaky task")
        tiles.append(tile(f"all of {k} trials pass", score(stats.pass_hat_k[-1]), f"pass^{k} · {flaky}"))
    tiles.append(tile("time", times_of(found), plural(trials, "trial")))
    if found.agent_tokens is not None or found.judge_tokens:
        parts = f"{count(usage.input_tokens)} in · {count(usage.output_tokens)} out" if usage else ""
        parts += f" · {count(found.judge_tokens)} of judging" if found.judge_tokens else ""
        tiles.append(tile("tokens", count((found.agent_tokens or 0) + found.judge_tokens), parts))
    if found.cost_usd is not None:
        each = f"{money(found.cost_usd / max(1, trials))} a trial"
        made_of = costs_of_run(found)[1].strip("()")
        tiles.append(tile("cost", money(found.cost_usd), f"{each} · {made_of}" if made_of else each))
    return el("div", *tiles, class_="tiles")


def _triggers(opened: Opened) -> Node:
    """Return the trigger tests with their confusion matrix, where there are some."""
    section = trigger_section(opened.run, opened.summary.triggers)
    if len(section) > MOST_SECTION:
        told = "The answers would make this page too large: "
        return [el("h2", "Trigger tests"), soft(told, el("code", "waza show --reporter html"), " writes them all.")]
    return Html(section)


def _impact(opened: Opened) -> Node:
    """Return what the skill does to the suite, where the run has a control arm."""
    found = stored_impact(opened.run)
    return Html("".join(html_blocks(impact_document(found), level=2))) if found else None


def _metrics(opened: Opened) -> Node:
    rows = [
        el("tr", el("td", mark(metric.status)), el("td", short(metric.name)),
           number(f"{score(metric.value)} {metric.note}".rstrip()),
           number("" if metric.threshold is None else f"{metric.threshold:g}"), number(f"{metric.weight:g}"),
           el("td", short(metric.reason)))
        for metric in opened.summary.metrics
    ]  # fmt: skip
    head = [head_cell("status"), head_cell("metric"), head_cell("value", is_number=True),
            head_cell("needs", is_number=True), head_cell("weight", is_number=True), head_cell("why")]  # fmt: skip
    return [el("h2", "Metrics"), grid("metrics", head, rows)] if rows else None


def _failed(opened: Opened) -> Node:
    """Return the tasks and prompts that did not pass, failed before undecided, each with its first reason."""
    wrong = [(task, run) for run, tasks in _parts(opened) for task in tasks if task.status in ("failed", "error")]
    wrong.sort(key=lambda entry: entry[0].status == "error")
    if not wrong:
        return None
    items = [_fault(opened, task, results) for task, results in wrong[:MOST_FAILED]]
    more = len(wrong) - MOST_FAILED
    rest = soft(f"… and {plural(more, 'more task')} below") if more > 0 else None
    return [el("h2", "What did not hold"), el("ul", *items, class_="faults rows"), rest]


def _parts(opened: Opened) -> Iterator[tuple[Sequence[Result], Sequence[TaskSummary]]]:
    yield opened.run.results, opened.tasks
    yield opened.run.triggers, opened.prompts


def _fault(opened: Opened, task: TaskSummary, results: Sequence[Result]) -> Element:
    outcomes = enumerate(outcomes_of(results))
    places = [place for place, one in outcomes if one.task_id == task.id and one.status in ("failed", "error")]
    first = results[places[0]] if places else None
    why = headline(first) if first else task.reason or "not run"
    address = task_address(opened.listed.key, task.id, first.trial if first else None)
    link = el("a", short(task.id, 100), href=address)
    return el("li", mark(task.status), " ", el("b", link), " ", el("span", short(why, 300)), data_status=task.status)
