"""`waza stats`: agreement of raters, win rates and corrected rates of published or exported tables."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import click

from waza.cli._screen import say
from waza.cli._stdout import emit
from waza.errors import EXIT_PASSED, UsageError

FILE = click.Path(path_type=Path)
_WINS = {"win": 0, "candidate": 0, "1": 0, "tie": 1, "0.5": 1, "loss": 2, "baseline": 2, "0": 2}


@click.group(epilog="Example:  waza stats agreement labels.csv  ·  waza stats wins wins.csv")
def command() -> None:
    """Compute statistics of a table: agreement, win rate, corrected pass rate; `compare` and `calibrate` read runs."""


@command.command()
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def agreement(file: Path, as_json: bool) -> int:
    """Print how far the raters of FILE agree: a CSV with a column for each rater, a row for each item.

    Labels that are all numbers are ordered; other labels have no weighted kappa.
    """
    from waza.stats import agreement as stats  # loads numpy, not needed for --help

    rows = [[value.strip() or None for value in row.values()] for row in _rows(file)]
    raters = len(rows[0])
    found: dict[str, Any] = {"items": len(rows), "raters": raters}
    if raters == 2:
        table = _table(rows)
        interval = stats.kappa_interval(table)
        found["cohen_kappa"], found["cohen_kappa_ci"] = stats.cohen_kappa(table), interval and _ends(interval)
        if _numbers(rows):
            found |= {f"{name}_kappa": stats.weighted_kappa(table, name) for name in ("linear", "quadratic")}
        spread = stats.ac1_interval(table)
        found["gwet_ac1"], found["gwet_ac1_ci"] = stats.gwet_ac1(table), spread and _ends(spread)
    found["fleiss_kappa"] = stats.fleiss_kappa(rows)
    found["krippendorff_alpha"] = stats.krippendorff_alpha(rows)
    return _show(found, as_json)


@command.command()
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def wins(file: Path, as_json: bool) -> int:
    """Print the win rate of FILE with ties as half, and its standard error: a CSV with `winner`, perhaps `task`.

    A winner is win, tie or loss, or candidate, tie or baseline; `count` says how many such rows there are.
    """
    from waza.stats.intervals import half_wins  # not needed for --help

    tasks: dict[str, list[int]] = {}
    for number, row in enumerate(_rows(file), 2):
        word = (row.get("winner") or "").strip().lower()
        if word not in _WINS:
            raise UsageError(f"{file}:{number}: the winner is win, tie or loss, found '{word[:40]}'")
        for copy in range(_whole(row.get("count") or "1", f"{file}:{number}")):
            task = row.get("task") or f"{number}.{copy}"
            tasks.setdefault(task, [0, 0, 0])[_WINS[word]] += 1
    rate = half_wins((won, tied, lost) for won, tied, lost in tasks.values())
    if rate is None:
        raise UsageError(f"{file}: has no comparison")
    percent = {"win_rate": 100 * rate.win_rate, "standard_error": 100 * (rate.standard_error or math.nan)}
    ends = [100 * rate.interval.lower, 100 * rate.interval.upper]
    return _show({"tasks": rate.tasks, **percent, "win_rate_ci": ends}, as_json)


@command.command()
@click.option(
    "--counts",
    required=True,
    metavar="TP,FN,FP,TN",
    help="Labelled outputs: both pass, only people, only the judge, none.",
)
@click.option("--passes", type=click.IntRange(0), required=True, help="How many of the other outputs the judge passes.")
@click.option("--outputs", type=click.IntRange(1), required=True, help="How many other outputs there are.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def corrected(counts: str, passes: int, outputs: int, as_json: bool) -> int:
    """Print the share that people would pass, by labels of some outputs and the judge's verdicts on others."""
    from waza.stats import corrected as stats  # not needed for --help
    from waza.stats.agreement import Confusion  # not needed for --help

    parts = counts.split(",")
    if len(parts) != 4 or passes > outputs:
        raise UsageError("--counts has four numbers, as 16,4,2,7, and --passes is at most --outputs")
    both, people, judge, neither = (_whole(part, "--counts") for part in parts)
    table = Confusion(true_pass=both, false_fail=people, false_pass=judge, true_fail=neither)
    if not table.n:
        raise UsageError("--counts has no labelled output")
    tuned = stats.tuned((both, people, judge, neither), passes, outputs)
    plain = stats.plain((both, people, judge, neither), passes, outputs)
    divided = stats.transferred(table, passes / outputs, outputs)
    powered = stats.prediction_powered(table, passes, outputs)
    found: dict[str, Any] = {
        "judge": passes / outputs,
        "people": table.base_rate,
        "ppi": plain.share,
        "ppi_standard_error": plain.std_error,
        "ppi++": tuned.share,
        "ppi++_standard_error": tuned.std_error,
        "ppi++_ci": powered and _ends(powered),
        "rogan_gladen": divided and divided.mean,
        "rogan_gladen_ci": divided and _ends(divided),
    }
    return _show(found, as_json)


def _rows(file: Path) -> list[dict[str, str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            rows = list(csv.DictReader(opened, strict=True, restval=""))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{file}: is no CSV: {error}") from None
    if not rows or any(None in row for row in rows):
        raise UsageError(f"{file}: needs a header and rows with as many fields")
    return rows


def _numbers(rows: list[list[str | None]]) -> bool:
    try:
        return all(math.isfinite(float(value)) for row in rows for value in row if value is not None)
    except ValueError:
        return False


def _table(rows: list[list[str | None]]) -> list[list[int]]:
    """Return the square table of two raters' labels, in the order of numbers where they are numbers."""
    both = [row for row in rows if None not in row]
    order: Any = float if _numbers(rows) else str
    labels = sorted({value for row in both for value in row if value is not None}, key=order)
    places = {label: place for place, label in enumerate(labels)}
    table = [[0] * len(labels) for _ in labels]
    for one, other in both:
        table[places[one or ""]][places[other or ""]] += 1
    return table


def _whole(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{where}: a whole number is needed, found '{text[:40]}'") from None


def _ends(interval: Any) -> list[float]:
    return [interval.lower, interval.upper]


def _show(found: dict[str, Any], as_json: bool) -> int:
    if as_json:
        emit(json.dumps(found))
        return EXIT_PASSED
    for name, value in found.items():
        if isinstance(value, list):
            shown = " to ".join(f"{one:.4f}" for one in value)
        else:
            shown = "undefined" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
        say(f"{name.replace('_', ' '):22} {shown}")
    return EXIT_PASSED
