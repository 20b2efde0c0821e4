"""Progress of a run: a live line on a terminal, a plain line per result elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from waza.model import Result, Trial
from waza.untrusted.text import clipped, percent, seconds, visible

PLAIN_EVERY_S = 10.0
"""Without a terminal, progress after the first results is printed at most this often."""
PLAIN_FIRST = 50


class Progress(Protocol):
    """A listener that shows what happens during a run."""

    tally: ProgressCount

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...
    def on_start(self, trial: Trial) -> None: ...
    def on_done(self, result: Result) -> None: ...
    def on_result(self, result: Result) -> None: ...
    def on_remark(self, text: str) -> None: ...


class ProgressCount:
    """Counts of a run so far."""

    def __init__(self, total: int, done: int = 0) -> None:
        self.total = total
        self.share: float | None = None
        """How much is done if the number of trials is not known in advance: from 0 to 1."""
        self.resumed = done
        self.counts: Counter[str] = Counter()
        self.running: dict[tuple[str, int], float] = {}
        self.started = time.monotonic()

    @property
    def done(self) -> int:
        """Trials that have a result."""
        return self.resumed + sum(self.counts.values())

    def left(self) -> str:
        """Return the estimated time left, or nothing when it is not known yet."""
        finished = sum(self.counts.values())
        part = finished / max(1, self.total - self.resumed) if self.total else self.share
        if not part or part >= 1:
            return ""
        return f"about {seconds((time.monotonic() - self.started) * (1 - part) / part * 1000)} left"

    @property
    def part(self) -> float:
        """How much is done, from 0 to 1; 0 where it is not known."""
        return self.done / self.total if self.total else self.share or 0.0

    def line(self) -> str:
        """Return the run so far in one line."""
        parts = [f"{self.done} of {self.total}" if self.total else f"{self.done} graded"]
        parts += [percent(self.share)] if self.share is not None else []
        words = {"passed": "passed", "failed": "failed", "error": "undecided", "skipped": "not graded"}
        parts += [f"{self.counts[key]} {word}" for key, word in words.items() if self.counts[key]]
        parts += [f"{len(self.running)} running"] if self.running else []
        parts += [left] if (left := self.left()) else []
        return " · ".join(parts)


class LiveProgress:
    """A line that is updated in place, with the trials that run right now."""

    def __init__(self, tally: ProgressCount, console: Console) -> None:
        self.tally = tally
        self.live = Live(console=console, get_renderable=self._render, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self.live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.live.__exit__(kind, error, at)

    def on_start(self, trial: Trial) -> None:
        """Add a trial that starts."""
        self.tally.running[trial.task.id, trial.number] = time.monotonic()

    def on_done(self, result: Result) -> None:
        """Remove a trial that ended."""
        self.tally.running.pop((result.task_id, result.trial), None)

    def on_result(self, result: Result) -> None:
        """Count a result."""
        self.tally.counts[result.status] += 1

    def on_remark(self, text: str) -> None:
        """Print a remark above the line."""
        self.live.console.print(Text(visible(text), style="yellow"))

    def _render(self) -> Text:
        width = 30
        filled = int(width * self.tally.part)
        text = Text.assemble(("━" * filled, "green"), ("━" * (width - filled), "dim"), "  ", self.tally.line())
        oldest = sorted(self.tally.running.items(), key=lambda item: item[1])[:3]
        for (task, number), since in oldest:
            text.append(
                f"\n  {visible(clipped(task, 60))} #{number}  {seconds((time.monotonic() - since) * 1000)}", "dim"
            )
        return text


class PlainProgress:
    """A line per result, then fewer, for logs and pipes."""

    def __init__(self, tally: ProgressCount, console: Console) -> None:
        self.tally = tally
        self.console = console
        self.last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.tally.total > PLAIN_FIRST:
            self._print(self.tally.line())

    def on_start(self, trial: Trial) -> None:
        """Add a trial that starts."""
        self.tally.running[trial.task.id, trial.number] = time.monotonic()

    def on_done(self, result: Result) -> None:
        """Remove a trial that ended."""
        self.tally.running.pop((result.task_id, result.trial), None)

    def on_result(self, result: Result) -> None:
        """Print a result: the first ones each, then a line now and then."""
        self.tally.counts[result.status] += 1
        if 0 < self.tally.total <= PLAIN_FIRST:
            word = "undecided" if result.status == "error" else result.status
            self._print(f"{self.tally.done} of {self.tally.total}  {result.task_id} #{result.trial}  {word}")
        elif time.monotonic() - self.last >= PLAIN_EVERY_S:
            self.last = time.monotonic()
            self._print(self.tally.line())

    def on_remark(self, text: str) -> None:
        """Print a remark."""
        self._print(text)

    def _print(self, text: str) -> None:
        self.console.print(Text(visible(text)))


class SilentProgress(PlainProgress):
    """Nothing but remarks."""

    def on_result(self, result: Result) -> None:
        """Count a result."""
        self.tally.counts[result.status] += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


def progress_for(total: int, done: int, console: Console, *, quiet: bool) -> Progress:
    """Return the progress display that fits where it is shown."""
    tally = ProgressCount(total, done)
    if quiet:
        return SilentProgress(tally, console)
    return LiveProgress(tally, console) if console.is_terminal else PlainProgress(tally, console)
