"""A run in two lines of numbers, each with its uncertainty, and where its tasks stand in the project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from waza.model import Run
from waza.reports._text import percent, plural, score, seconds
from waza.results.outcomes import Outcome
from waza.results.stats.suite import statistics_of
from waza.results.summary import Summary


def rate_line(summary: Summary) -> str:
    """Return how many tasks passed, with the interval, and how many did not."""
    rate = f"{summary.succeeded} of {plural(summary.total_tests, 'task')} passed"
    if summary.success_rate_ci is not None and summary.total_tests > 1:
        interval = summary.success_rate_ci
        share = percent(summary.success_rate)
        rate += f" ({share}, 95 % interval {interval.lower * 100:.0f}–{percent(interval.upper)})"
    parts = [rate]
    for count, noun in ((summary.failed, "failed"), (summary.errors, "undecided"), (summary.skipped, "not graded")):
        parts += [f"{count} {noun}"] if count else []
    return " · ".join(parts)


def times_of(timed: Summary | Outcome) -> str:
    """Return the agent's time, and next to it the judges' where there is some."""
    judged = f" (and {seconds(timed.judge_duration_ms)} of judging)" if (timed.judge_duration_ms or 0) >= 1 else ""
    return f"{seconds(timed.duration_ms)}{judged}"


def numbers_line(summary: Summary) -> str:
    """Return score, time, tokens and cost, as far as they are known."""
    parts = [f"score {score(summary.weighted_score)}"] if summary.total_tests or summary.triggers is None else []
    if summary.undecided and summary.score_low is not None:
        parts[0] += f" (between {score(summary.score_low)} and {score(summary.score_high)} with the undecided)"
    parts.append(times_of(summary))
    judged = f" (and {summary.judge_tokens:,} of judging)" if summary.judge_tokens else ""
    if summary.agent_tokens is not None:
        parts.append(f"{summary.agent_tokens:,} tokens{judged}")
    elif judged:
        parts.append(f"{summary.judge_tokens:,} tokens of judging")
    parts += [" ".join(part for part in costs_of_run(summary) if part)] if summary.cost_usd is not None else []
    return " · ".join(parts)


def costs_of_run(summary: Summary) -> tuple[str, str]:
    """Return what a run was billed, and how that is made up; empty where no cost was reported."""
    if summary.cost_usd is None:
        return "", ""
    costs, told = summary.costs, []
    if costs is not None and costs.judge.cost_usd:
        told += [f"agent ${costs.agent.cost_usd:.4f}", f"judge ${costs.judge.cost_usd:.4f}"]
    if costs is not None and costs.without_cost:
        told.append(f"{plural(costs.without_cost, 'cost')} not known")
    return f"${summary.cost_usd:.4f}", f"({', '.join(told)})" if told else ""


def repeats_line(run: Run) -> str:
    """Return the score's interval and what repeated trials say; nothing where there is nothing to tell."""
    found = statistics_of(run)
    parts: list[str] = []
    if (interval := found.whole.score_ci) and interval.tells:
        parts.append(f"score's 95 % interval {score(interval.lower)}–{score(interval.upper)}")
    if len(found.pass_hat_k) > 1:
        k = len(found.pass_hat_k)
        parts.append(f"pass@{k} {score(found.pass_at_k[-1])}, pass^{k} {score(found.pass_hat_k[-1])}")
        parts += [f"{plural(found.flaky_tasks, 'flaky task')}"] if found.flaky_tasks else []
    return " · ".join(parts)


class Spot(NamedTuple):
    """Where a task is written."""

    file: Path
    line: int

    def relative_to(self, folder: Path) -> str:
        """Return the file as seen from a folder, with forward slashes; whole where it stands elsewhere."""
        inside = self.file.is_relative_to(folder.resolve())
        return (self.file.relative_to(folder.resolve()) if inside else self.file).as_posix()


def spot_of(run: Run, task_id: str) -> Spot | None:
    """Return where a task of a stored run is written; None where the run does not say."""
    place = (run.spec.get("places") or {}).get(task_id) or {}
    suite, file, line = run.spec.get("file"), place.get("file"), place.get("line")
    if not run.folder or not isinstance(suite, str) or not isinstance(file, str) or not isinstance(line, int):
        return None
    # What a stored run says is only written down, never looked up on this machine's disk.
    where = os.path.normpath(Path(run.folder).resolve().parent / suite / ".." / file)
    return Spot(Path(where), line)
