"""How often a run won against another: per comparing grader, with the uncertainty of so few trials."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from waza.model import JSON, Run
from waza.results.scores import Interval, wilson


class WinRate(Struct, frozen=True, kw_only=True):
    """What the comparisons of one grader came to."""

    grader: str
    wins: int
    ties: int
    losses: int
    undecided: int
    """Comparisons that changed with the order, or to which no judge answered."""
    win_rate: float | None
    """Wins among wins and losses; None where there is neither."""
    win_rate_ci: Interval | None
    """The Wilson 95 % interval of that share."""


def win_rates(run: Run) -> list[WinRate]:
    """Return the win rate of each grader of the run that compares with another run, sorted by name."""
    names = {name for entries in (run.spec.get("graders") or {}).values() for name in map(_compares, entries) if name}
    if not names:
        return []
    counts: dict[str, Counter[str]] = {name: Counter() for name in sorted(names)}
    for result in run.results:
        for grade in result.grades:
            if grade.name in counts:
                said = grade.details.get("pairwise")
                winner = said.get("winner") if isinstance(said, dict) and grade.status != "error" else ""
                counts[grade.name][winner if isinstance(winner, str) else ""] += 1
    return [_rate(name, count) for name, count in counts.items()]


def _compares(entry: dict[str, JSON]) -> str:
    """Return a grader's name if it compares with another run."""
    config = entry.get("config")
    return str(entry.get("name")) if isinstance(config, dict) and config.get("mode") == "pairwise" else ""


def _rate(name: str, count: Counter[str]) -> WinRate:
    wins, losses = count["candidate"], count["baseline"]
    return WinRate(
        grader=name,
        wins=wins,
        ties=count["tie"],
        losses=losses,
        undecided=count[""],
        win_rate=wins / (wins + losses) if wins + losses else None,
        win_rate_ci=wilson(wins, wins + losses),
    )
