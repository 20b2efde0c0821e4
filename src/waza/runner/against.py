"""Outputs of a stored run, to compare another one with."""

from __future__ import annotations

from pathlib import Path

from waza.errors import UsageError
from waza.results.store import open_run


def baselines_from(folder: Path) -> dict[tuple[str, int], str]:
    """Return the outputs of a stored run by task and trial; raise UsageError where it has none."""
    found = {
        (result.task_id, result.trial): result.trace.output
        for result in open_run(folder).results
        if result.trace.status == "success" and result.trace.output
    }
    if not found:
        raise UsageError(f"run {folder.name} has no output to compare with")
    return found
