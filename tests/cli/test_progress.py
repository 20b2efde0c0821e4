"""How far a run has come, as the terminal shows it."""

from rich.console import Console

from results_made import a_result
from waza.cli._progress import LiveProgress, ProgressCount
from waza.model import Task, Trial


def test_a_trial_that_ended_is_not_shown_as_running_though_its_result_is_told_later():
    progress = LiveProgress(ProgressCount(total=2), Console(width=80))
    progress.on_start(Trial(task=Task(id="a", prompt="x"), number=1))
    assert "1 running" in progress.tally.line()
    progress.on_done(a_result("a"))
    assert "running" not in progress.tally.line() and "0 of 2" in progress.tally.line()
    progress.on_result(a_result("a"))
    assert "1 of 2 · 1 passed" in progress.tally.line()
