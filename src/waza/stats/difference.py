"""The verdict on a difference between two runs: better, worse, no difference shown, too little evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from waza.stats.paired import Tally, shuffled_trials, sign_flip
from waza.stats.power import ALPHA, smallest_difference, smallest_within, tasks_needed, trials_needed, trials_within
from waza.stats.resampling import Bootstrap, bootstrap_mean
from waza.stats.scores import mean

Word = Literal["better", "worse", "no difference shown", "too little evidence"]
MARGIN = 0.1
"""A difference smaller than this need not be shown: ten points."""


UNIT = 0.25
"""The smallest step of a task's score, where it is not known."""


class DifferenceVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on the difference between two runs, with its numbers."""

    word: Word
    difference: float | None
    """The mean over tasks of after minus before."""
    interval: Bootstrap | None
    p_value: float
    tasks: int
    """Tasks the verdict rests on."""
    smallest: float | None
    """The smallest difference these tasks and trials would show in four of five cases; None if they can show none."""
    tasks_needed: int | None
    """How many tasks would show a difference of `margin`; None where that cannot be estimated."""
    trials_needed: int | None
    """How many trials of each of these tasks would; None where no number would."""
    margin: float = MARGIN


def verdict_on_passing(
    tallies: Sequence[Tally], *, margin: float = MARGIN, these_tasks: bool = False
) -> DifferenceVerdict:
    """Return the verdict on pass rates; with `these_tasks` about these tasks only, not about tasks like them."""
    differences = [tally.difference for tally in tallies]
    if these_tasks and tallies:
        trials = trials_within(tallies, margin)
        return _verdict(differences, shuffled_trials(tallies), smallest_within(tallies), None, trials, margin)
    unit = 1 / (mean([min(tally.trials_before, tally.trials_after) for tally in tallies]) or 1)
    smallest, tasks = smallest_difference(differences, unit), tasks_needed(differences, unit, margin)
    return _verdict(differences, sign_flip(differences), smallest, tasks, trials_needed(tallies, margin), margin)


def verdict_on_scores(differences: Sequence[float], *, margin: float = MARGIN) -> DifferenceVerdict:
    """Return the verdict on differences of scores, one per task."""
    smallest, tasks = smallest_difference(differences, UNIT), tasks_needed(differences, UNIT, margin)
    return _verdict(differences, sign_flip(differences), smallest, tasks, None, margin)


def with_p_value(verdict: DifferenceVerdict, p_value: float) -> DifferenceVerdict:
    """Return the verdict if its p-value were this one."""
    word = _word(verdict.difference, p_value, verdict.smallest, verdict.margin)
    return replace(verdict, p_value=p_value, word=word)


def _verdict(
    differences: Sequence[float],
    p_value: float,
    smallest: float | None,
    tasks: int | None,
    trials: int | None,
    margin: float,
) -> DifferenceVerdict:
    difference = mean(differences)
    return DifferenceVerdict(
        word=_word(difference, p_value, smallest, margin),
        difference=difference,
        interval=bootstrap_mean(differences),
        p_value=p_value,
        tasks=len(differences),
        smallest=smallest,
        tasks_needed=tasks,
        trials_needed=trials,
        margin=margin,
    )


def _word(difference: float | None, p_value: float, smallest: float | None, margin: float) -> Word:
    if difference and p_value < ALPHA:
        return "better" if difference > 0 else "worse"
    return "no difference shown" if smallest is not None and smallest <= margin else "too little evidence"
