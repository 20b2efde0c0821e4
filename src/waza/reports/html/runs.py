"""The list of runs: running ones first, searched, filtered and sorted, each suite with its trend; and one run live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from waza.reports.html.components import (
    WORDS,
    badge,
    choice,
    count,
    grid,
    head_cell,
    interval,
    mark,
    money,
    number,
    pager,
    progress,
    soft,
    sparkline,
    task_address,
    tile,
    tiles,
    when,
)
from waza.reports.html.markup import Element, Node, el, href, short
from waza.reports.html.view import OpenRun, PageRequest, RunFilter, RunRow, SuiteLine, View, rate_of
from waza.reports.interpretation import headline_rate
from waza.runs.outcomes import TrialOutcome, outcomes_of
from waza.runs.signing import word_of
from waza.untrusted.text import percent, plural, score, seconds

RUNS = 100
"""Runs on one page."""
LIVE_RESULTS = 50
"""Results on the live page when it is opened, the newest first."""
_FILTERS = ("q", "suite", "model", "tag", "verdict", "since", "until")
COLUMNS = ("suite", "model", "started", "passed", "score", "cost", "tokens", "time")
_NUMBERS = ("passed", "score", "cost", "tokens", "time")


def runs_page(
    request: PageRequest,
    wanted: RunFilter,
    runs: Sequence[RunRow],
    total: int,
    suites: Sequence[SuiteLine],
    names: Mapping[str, Sequence[str]],
) -> View:
    """Return the list of runs: a page of those that are wanted; `names` are all there are, by column."""
    live = [run for run in runs if run.is_live]
    filters = {name: request.query.get(name) for name in _FILTERS}
    body: list[Node] = [el("h1", "Runs"), _suites(suites, wanted), _form(request, names)]
    if live:
        body += [el("h2", "Going on"), el("ul", *map(_live, live), class_="cards live", id="live")]
    sort, way = wanted.sort, "up" if wanted.is_ascending else "down"
    address = href(**filters, sort=sort, way=way)
    counted = f"{total:,} {'run' if total == 1 else 'runs'}"
    body += [el("h2", counted, id="count", aria_live="polite")]
    body += [_table(runs, wanted, filters) if runs else _nothing(any(filters.values()))]
    body += [pager(f"{address}&", total, wanted.skip, RUNS, "runs")]
    return View(title="Runs", body=body, scripts=("live.js",))


def wanted_runs(request: PageRequest) -> RunFilter:
    """Return which runs an address asks for."""
    since, until = (_day(request.query.get(name)) for name in ("since", "until"))
    sort = request.query.get("sort")
    return RunFilter(
        words=request.query.get("q")[:200],
        suite=request.query.get("suite"),
        model=request.query.get("model"),
        tag=request.query.get("tag"),
        verdict=request.query.get("verdict"),
        since=since.timestamp() if since else None,
        until=(until + timedelta(days=1)).timestamp() if until else None,
        sort=sort if sort in COLUMNS else "started",
        is_ascending=request.query.get("way") == "up",
        skip=request.number("skip", 0),
    )


def _day(word: str) -> datetime | None:
    try:
        found = datetime.strptime(word, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return found if 1970 < found.year < 9000 else None


def _suites(lines: Sequence[SuiteLine], wanted: RunFilter) -> Node:
    if not lines:
        return None
    return el("ul", *(_suite(line, line.suite == wanted.suite) for line in lines), class_="cards", aria_label="suites")


def _suite(line: SuiteLine, is_chosen: bool) -> Element:
    rate = line.rates[-1] if line.rates else None
    name = el("a", short(line.suite, 60), href=href(suite="" if is_chosen else line.suite),
              aria_current="true" if is_chosen else None)  # fmt: skip
    facts = el("span", f"{percent(rate)} · {plural(line.runs, 'run')} · ", class_="soft")
    trend = el("a", "trend", href=href("trends", suite=line.suite), class_="soft")
    head = el("div", mark(line.newest.verdict), " ", el("b", name))
    return el("li", head, sparkline(line.rates, line.suite), el("div", facts, trend), class_="card")


def _form(request: PageRequest, names: Mapping[str, Sequence[str]]) -> Element:
    value_of = request.query.get
    search = el("input", type="search", name="q", value=value_of("q"), placeholder="suite, model, tag, id",
                aria_label="search runs", id="search")  # fmt: skip
    lists = [choice(name, values, value_of(name)) for name, values in names.items() if values]
    verdicts = choice("verdict", [word for word in WORDS if word != "skipped"], value_of("verdict"), WORDS)
    days = [el("label", f"{name} ", el("input", type="date", name=name, value=value_of(name)))
            for name in ("since", "until")]  # fmt: skip
    clear = el("a", "clear", href="/") if any(value_of(name) for name in _FILTERS) else None
    return el("form", search, *lists, verdicts, *days, el("button", "filter"), clear,
              method="get", action="/", class_="filters", role="search")  # fmt: skip


def _live(run: RunRow) -> Element:
    name = el("a", short(run.suite or run.key, 60), href=href("runs", run.key, "live"))
    facts = " · ".join(part for part in (run.model or run.engine, run.key) if part)
    return el("li", el("div", mark("running"), " ", el("b", name)), progress(run.done, run.planned),
              el("div", short(facts, 100), class_="soft"), class_="card", data_run=run.key)  # fmt: skip


def _table(runs: Sequence[RunRow], wanted: RunFilter, filters: dict[str, str]) -> Element:
    head: list[Node] = [head_cell("verdict")]
    head += [_sorting(name, wanted, filters) for name in COLUMNS]
    table = grid("runs", [*head, head_cell("tags"), _compare_button()], map(_row, runs), class_="runs rows")
    return el("form", table, method="get", action="/compare", id="chosen")


def _compare_button() -> Element:
    return el("th", el("button", "compare", title="compare the chosen runs (c chooses the row)"), scope="col")


def _choose(run: RunRow) -> Element:
    box = el("input", type="checkbox", name="run", value=run.key, aria_label=f"choose {run.key} to compare")
    return el("td", box if not run.problem else None, class_="choose")


def _sorting(name: str, wanted: RunFilter, filters: dict[str, str]) -> Element:
    is_here = wanted.sort == name
    way = "down" if is_here and wanted.is_ascending else "up" if is_here else "down"
    arrow = (" ↑" if wanted.is_ascending else " ↓") if is_here else ""
    direction = ("ascending" if wanted.is_ascending else "descending") if is_here else None
    link = el("a", name, arrow, href=href(**filters, sort=name, way=way))
    return el("th", link, scope="col", class_="number" if name in _NUMBERS else None, aria_sort=direction)


def _row(run: RunRow) -> Element:
    name = el("a", short(run.suite or run.key, 80), href=_address(run))
    tags = [el("a", tag, href=href(tag=tag), class_="tag") for tag in run.tags]
    started = el("td", when(run.started), el("br"), el("span", run.key, class_="soft id"))
    first = [el("td", badge(run.verdict)), el("td", el("b", name))]
    if run.problem:
        problem = el("td", short(run.problem, 300), colspan=str(len(_NUMBERS)), class_="unreadable")
        return el("tr", *first, el("td"), started, problem, el("td", *tags), _choose(run), data_status=run.verdict)
    made_by = el("td", short(run.model or f"({run.engine})", 60))
    cells = [*first, made_by, started, *_numbers(run), el("td", *tags), _choose(run)]
    return el("tr", *cells, data_status=run.verdict)


def _numbers(run: RunRow) -> Iterator[Element]:
    found = run.summary
    assert found is not None
    rate, span = headline_rate(found)
    share: Node = [f"{percent(rate)} (", interval(span), ")"]
    share = share if found.total_tests > 1 else ""
    reservation = "" if run.is_complete or run.is_live else "not complete"
    reservation = ", ".join(word for word in (reservation, word_of(run.integrity)) if word)
    passed = (
        f"{found.succeeded} of {found.decided} decided" if found.errors else f"{found.succeeded} of {found.total_tests}"
    )
    if not found.total_tests and found.triggers is not None:
        passed, share = f"{plural(found.triggers.prompts, 'prompt')}", f"{percent(rate_of(found))} right"
    yield number(passed, el("br"), el("span", reservation or share, class_="soft"))
    yield number(score(found.weighted_score))
    yield number(money(found.cost_usd))
    yield number(count(found.agent_tokens))
    yield number(seconds(found.duration_ms))


def _address(run: RunRow) -> str:
    return href("runs", run.key, "live") if run.is_live else href("runs", run.key)


def _nothing(is_filtered: bool) -> Element:
    if is_filtered:
        return soft("No run fits. ", el("a", "Show all", href="/"))
    return soft("There are no runs here yet. ", el("code", "waza run"), " makes one; this page shows it by itself.")


def live_page(opened: OpenRun, read_to: int) -> View:
    """Return the live page of a run: its progress, and each result as soon as the journal has it after `read_to`."""
    listed = opened.listed
    outcomes = sorted(outcomes_of(opened.run.results), key=lambda one: (one.start_ms or 0.0) + one.duration_ms)
    statuses = [one.status for one in outcomes]
    counts = [tile(WORDS[status], el("span", str(statuses.count(status)), id=f"n-{status}"))
             for status in ("passed", "failed", "error", "skipped")]  # fmt: skip
    name = short(listed.suite or listed.key, 100)
    state = el("span", "running" if listed.is_live else "ended", id="state", class_="badge running", role="status")
    body: list[Node] = [
        el("h1", name, " ", state),
        soft(when(listed.started), f" · {short(listed.model or listed.engine, 60)} · {listed.key}"),
        el("div", progress(len(outcomes), listed.planned), id="progress", class_="large"),
        tiles(*counts),
        el("p", el("a", "all numbers so far", href=href("runs", listed.key), id="whole")),
        el("h2", "Results, the newest first"),
        el(
            "ol",
            *(_item(listed, one) for one in outcomes[: -LIVE_RESULTS - 1 : -1]),
            id="feed",
            class_="feed",
            data_most="500",
        ),
    ]
    frame = el("div", *body, id="watch", data_events=href("runs", listed.key, "events", from_=read_to),
               data_task=href("runs", listed.key, "task"))  # fmt: skip
    crumbs = [("Runs", href()), (listed.suite or listed.key, href("runs", listed.key))]
    return View(title="Live", body=[frame], crumbs=crumbs, scripts=("live.js",))


def _item(listed: RunRow, one: TrialOutcome) -> Element:
    link = el("a", short(one.task_id, 100), href=task_address(listed.key, one.task_id, one.trial))
    facts = f" trial {one.trial} · score {score(one.score.weighted)} · {seconds(one.duration_ms)}"
    why = f" · {short(one.reason, 200)}" if one.reason else ""
    about = el("span", facts + why, class_="soft")
    return el("li", mark(one.status), " ", link, about, data_task=one.task_id, data_trial=one.trial)
