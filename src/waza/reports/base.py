"""The base class of reports: a report turns a run into one file; the command line decides where the file goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.model import Run
from waza.plugins import Folder
from waza.reports.run_before import EarlierRun

REPORTS = Folder("reports", "Report")
"""The folder `waza/reports` and the entry points `waza.reports`."""


class Report:
    """Turn a run into a file; `--reporter NAME[:PATH]` selects it."""

    file: ClassVar[str] = "report.txt"
    """Its name in the run folder, unless another path is given."""

    def render(self, run: Run, before: EarlierRun | None = None) -> Iterator[bytes]:
        """Yield the file piece by piece; `before` is the run to compare with, where there is one."""
        raise NotImplementedError

    def publish(self, run: Run, before: EarlierRun | None = None) -> Iterator[str]:
        """Do what is needed besides the file; yield lines for standard error. Most reports do nothing."""
        yield from ()
