"""Trends: each suite and model over its runs, the pass rate with its interval; a click on a point leads to the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from waza.analysis.trends import Point, Trend
from waza.model import JSON
from waza.reports.html.components import CHARTS, chart, choice, grid, head_cell, interval, money, number, run_link, soft
from waza.reports.html.markup import Element, Node, el, href, short
from waza.reports.html.view import Query, View
from waza.untrusted.text import percent, plural, score, seconds

MOST_LINES = 12
"""Suites and models on one page."""
MOST_POINTS = 200
ONE_RUN = "A single run shows no trend yet: one more run of this suite and model is needed."


def trends_page(query: Query, found: Iterable[Trend], names: Mapping[str, Sequence[str]]) -> View:
    """Return the trends of suites and models; `names` are all there are, by `suite` and `model`."""
    lines = sorted(found, key=lambda line: line.points[-1].started_at, reverse=True)
    body: list[Node] = [el("h1", "Trends"), _form(query, names)]
    body += [_line(line) for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        body.append(soft(f"{plural(len(lines) - MOST_LINES, 'more line')}; choose a suite or a model above"))
    if not lines:
        body.append(soft("There are no complete runs to draw. "))
    return View(title="Trends", body=body, scripts=CHARTS)


def _form(query: Query, names: Mapping[str, Sequence[str]]) -> Element:
    lists = [choice(name, values, query.get(name)) for name, values in names.items()]
    return el("form", *lists, el("button", "filter"), method="get", action="/trends", class_="filters")


def _line(line: Trend) -> Element:
    points = line.points[-MOST_POINTS:]
    link = el("a", short(line.suite, 80), href=href("trends", suite=line.suite))
    about = [el("h2", link, el("span", f" · {short(line.model, 60)}" if line.model else "", class_="soft"))]
    last = points[-1]
    spread: Node = [" (95 % interval ", interval(last.pass_rate_ci), ")"] if last.pass_rate_ci else None
    about.append(soft(f"{plural(len(line.points), 'run')} · the newest passed {percent(last.pass_rate)}", spread))
    if len(line.points) == 1:
        about.append(soft(ONE_RUN))
    if len({point.tasks for point in points}) > 1:
        note = f"The number of tasks changed on the way: {points[0].tasks} at first, {last.tasks} now."
        about.append(el("p", note, class_="error"))
    charts = [
        _chart(
            "Pass rate with its 95 % interval", "percent", points, [point.pass_rate for point in points], is_band=True
        )
    ]
    charts.append(_chart("Score", "score", points, [point.score for point in points]))
    if any(point.cost_usd is not None for point in points):
        charts.append(_chart("Cost", "dollars", points, [point.cost_usd for point in points]))
    charts.append(_chart("Time", "seconds", points, [point.duration_ms / 1000 for point in points]))
    return el("section", *about, el("div", *charts, class_="charts"))


def _chart(label: str, unit: str, points: list[Point], values: list[float | None], *, is_band: bool = False) -> Element:
    data: JSON = {"unit": unit, "values": values, "links": [href("runs", point.run) for point in points],
                  "labels": [point.started_at for point in points]}  # fmt: skip
    if is_band:
        spans = [point.pass_rate_ci for point in points]
        data["low"] = [span.lower if span else None for span in spans]
        data["high"] = [span.upper if span else None for span in spans]
    return chart("line", label, data, _table(label, unit, points, values, is_band=is_band))


def _table(label: str, unit: str, points: list[Point], values: list[float | None], *, is_band: bool) -> Element:
    rows = []
    for point, value in zip(points[::-1], values[::-1], strict=True):
        span = [number(interval(point.pass_rate_ci))] if is_band else []
        rows.append(el("tr", el("td", run_link(point.run, point.started_at)), number(_value_text(unit, value)), *span))
    head: list[Node] = [head_cell("run"), head_cell(label, is_number=True)]
    return grid(label, head + ([head_cell("interval", is_number=True)] if is_band else []), rows)


def _value_text(unit: str, value: float | None) -> str:
    if unit == "seconds":
        return seconds(None if value is None else value * 1000)
    return money(value) if unit == "dollars" else percent(value) if unit == "percent" else score(value)
