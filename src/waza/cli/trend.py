"""`waza trend`: how a suite fares over its runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from waza.analysis.trends import Point, Trend, trends
from waza.cli._runs import where_to_look
from waza.cli._screen import console, say
from waza.cli._stdout import emit
from waza.cli.runs import chosen
from waza.errors import EXIT_PASSED
from waza.untrusted.json import to_json
from waza.untrusted.text import percent, plural, score, seconds


@click.command(epilog="Example:  waza trend  ·  waza trend --suite shop --model 'gpt*' --last 30")
@click.option("--suite", help="Only suites whose name fits this glob.")
@click.option("--model", help="Only models that fit this glob.")
@click.option("--tag", "tags", multiple=True, help="Only runs with this tag; may be repeated.")
@click.option("--since", type=click.FloatRange(0), metavar="DAYS", help="Only runs of the last days.")
@click.option(
    "--last",
    type=click.IntRange(1),
    default=40,
    show_default=True,
    help="How many of the newest runs are plotted per line.",
)
@click.option("--path", type=where_to_look, default=".", help="Where to look: a folder, or s3://bucket/runs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    suite: str | None,
    model: str | None,
    tags: tuple[str, ...],
    since: float | None,
    last: int,
    path: str | Path,
    as_json: bool,
) -> int:
    """Plot pass rate, score, cost and time of complete runs, for each suite and model, the newest at the right.

    Where there are trigger tests, `triggers` is their accuracy.
    """
    found = trends(chosen(path, suite, model, since, tags))
    if as_json:
        emit(json.dumps([to_json(line) for line in found], indent=2, ensure_ascii=False))
        return EXIT_PASSED
    if not found:
        say("no complete runs here")
    for line in found:
        _show(line, last)
    return EXIT_PASSED


def _show(line: Trend, last: int) -> None:
    points = line.points[-last:]
    about = f"{line.suite} · {line.model}" if line.model else line.suite
    say(f"{about} · {plural(len(points), 'run')}, {points[0].started_at} to {points[-1].started_at}", "bold")
    shares: list[tuple[str, Callable[[Point], float | None], Callable[[float | None], str]]] = [
        ("pass rate", lambda point: point.pass_rate, percent),
        ("score", lambda point: point.score, score),
        ("triggers", lambda point: point.trigger_accuracy, score),
    ]
    newest = points[-1].pass_rate_ci
    for label, number, shown in shares:
        numbers = [number(point) for point in points]
        if any(found is not None for found in numbers):
            _line(label, numbers, 1.0, shown)
            if label == "pass rate" and newest is not None:
                say(f"{'':12}the newest with 95 % interval {newest.lower * 100:.0f}–{percent(newest.upper)}", "dim")
    costs = [point.cost_usd for point in points]
    if any(cost is not None for cost in costs):
        _line("cost", costs, max(cost or 0.0 for cost in costs), lambda cost: "–" if cost is None else f"${cost:.4f}")
    durations: list[float | None] = [point.duration_ms for point in points]
    _line("time", durations, max(duration or 0.0 for duration in durations), seconds)
    if len(line.points) == 1:
        say(f"{'':12}a single run shows no trend yet: one more run of this suite and model is needed", "dim")
    counts = [point.tasks for point in points if point.tasks]
    if len(set(counts)) > 1:
        message = f"the number of tasks changed between runs: {counts[0]} at first, {counts[-1]} now"
        say(f"{'':12}{message}", "yellow")
    say()


def _line(label: str, numbers: list[float | None], high: float, shown: Callable[[float | None], str]) -> None:
    """Print one number over the runs, with its first and last value."""
    rows = plot(numbers, high, plain=not console().encoding.startswith("utf"))
    for place, row in enumerate(rows):
        head = label if place == len(rows) - 1 else ""
        tail = f"  {shown(numbers[0])} → {shown(numbers[-1])}" if place == len(rows) - 1 else ""
        say(f"{head:10}  {row}{tail}")


BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN = " .:-=+*#@"


def plot(numbers: Sequence[float | None], high: float, *, height: int = 3, plain: bool = False) -> list[str]:
    """Return rows of columns from 0 to `high`, the top one first; a number that is not known is a dot at the bottom."""
    marks = PLAIN if plain else BLOCKS
    filled = [None if number is None else round(number / (high or 1.0) * height * 8) for number in numbers]
    return ["".join(_cell(eighths, row, marks) for eighths in filled) for row in reversed(range(height))]


def _cell(eighths: int | None, row: int, marks: str) -> str:
    if eighths is None:
        return " " if row else "·"
    return marks[max(1 if row == 0 else 0, min(8, eighths - 8 * row))]
