"""Runs of one suite and model over time, and whether the last ones left the band of the earlier ones."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from waza.runs.store import StoredRun, newest_first
from waza.stats.scores import Interval


class Point(Struct, frozen=True, kw_only=True):
    """One run on a line."""

    run: str
    started_at: str
    pass_rate: float | None
    pass_rate_ci: Interval | None
    score: float | None
    cost_usd: float | None
    duration_ms: float
    tasks: int
    trigger_accuracy: float | None = None
    """Of its trigger tests; None where it has none, or they are INVALID."""


class Trend(Struct, frozen=True, kw_only=True):
    """All runs of one suite and model, the oldest first."""

    suite: str
    model: str
    points: list[Point]


def trends(runs: Sequence[StoredRun]) -> list[Trend]:
    """Return complete runs by suite and model, each line from the oldest run to the newest."""
    lines: dict[tuple[str, str], list[Point]] = {}
    for stored in reversed(newest_first(runs)):
        if stored.summary is not None and stored.is_complete:
            lines.setdefault((stored.run.name, stored.run.model), []).append(_point(stored))
    return [Trend(suite=suite, model=model, points=points) for (suite, model), points in sorted(lines.items())]


def _point(stored: StoredRun) -> Point:
    summary = stored.summary
    assert summary is not None
    triggers = summary.triggers
    return Point(
        run=stored.run.id,
        started_at=stored.run.started_at,
        pass_rate=summary.decided_rate,
        pass_rate_ci=summary.decided_rate_ci,
        score=summary.weighted_score,
        cost_usd=summary.cost_usd,
        duration_ms=summary.duration_ms,
        tasks=summary.total_tests,
        trigger_accuracy=triggers.all.accuracy if triggers and triggers.is_valid else None,
    )
