"""What every report is: a class that turns a run into one file. Where the file goes is the command line's business."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.model import Run
from waza.plugins import Folder
from waza.reports.run_before import EarlierRun

REPORTS = Folder("reports", "Report")
"""The folder `waza/reports` and the entry points `waza.reports`."""


class Report:
    """Turn a run into a file; `--reporter NAME[:PATH]` asks for it."""

    file: ClassVar[str] = "report.txt"
    """Its name in the run folder, where no path is asked for."""

    def render(self, run: Run, before: EarlierRun | None = None) -> Iterator[bytes]:
        """Yield the file piece by piece; `before` is the run to compare with, where there is one."""
        raise NotImplementedError

    def beside(self, run: Run, before: EarlierRun | None = None) -> Iterator[str]:
        """Do what is to be done beside the file; yield lines for standard error. Most reports do nothing."""
        yield from ()
