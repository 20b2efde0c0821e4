"""Markdown for a page, a wiki or a message: numbers, what did not hold, every task."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from waza.model import Run
from waza.reports._base import Report
from waza.reports._before import Before
from waza.reports._sections import change, failures, head, impact, task_rows
from waza.results.summary import summarize
from waza.results.tasks import summarize_tasks


class MarkdownReport(Report):
    """Markdown: the numbers, what did not hold, every task; text of agents stands in code only."""

    file = "report.md"

    def render(self, run: Run, before: Before | None = None) -> Iterator[bytes]:
        """Yield the file, a task at a time."""
        tasks = summarize_tasks(run)
        changed = chain(impact(run), change(before, tasks) if before else ())
        parts = chain(head(run, summarize(run, tasks=tasks)), changed, failures(run, tasks), task_rows(tasks))
        yield from (part.encode() for part in parts)
