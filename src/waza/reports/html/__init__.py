"""The `html` report: one page that opens from disk. Its content is in `page.py`; the server's pages share the parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.model import Run
from waza.reports.base import Report
from waza.reports.run_before import EarlierRun


class HtmlReport(Report):
    """HTML: one page without scripts that opens from disk: numbers, plots, failed checks, every trial."""

    file = "report.html"
    most_bytes: ClassVar[int] = 20_000_000
    """Trials beyond this size are counted, not shown."""

    def render(self, run: Run, before: EarlierRun | None = None) -> Iterator[bytes]:
        """Yield the page, a trial at a time."""
        from waza.reports.html.page import page  # the parts of pages are modules of this package and import it first

        return page(run, before, self.most_bytes)
