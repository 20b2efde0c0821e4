"""The `json` report: `results.json` as every run folder has it. Its fields are in `runs/results_json.py`."""

from __future__ import annotations

from collections.abc import Iterator

from waza.model import Run
from waza.reports.base import Report
from waza.reports.run_before import EarlierRun
from waza.runs.results_json import results_json


class JsonReport(Report):
    """Everything, as `results.json`: the original's fields, with every grade, check and tool call added."""

    file = "results.json"

    def render(self, run: Run, before: EarlierRun | None = None) -> Iterator[bytes]:
        """Yield the run as indented JSON."""
        return results_json(run)

    def text(self, run: Run) -> str:
        """Return the run as indented JSON."""
        return b"".join(results_json(run)).decode()
