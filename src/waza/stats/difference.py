"""The verdict on a difference between two runs: better, worse, no difference shown, too little evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from waza.stats.anytime import AlwaysValid, always_valid
from waza.stats.intervals import bounded_mean
from waza.stats.paired import Tally, shuffled_scores, shuffled_trials, sign_flip
from waza.stats.power import ALPHA, ENOUGH, Question, Simulation, score_simulation, simulation
from waza.stats.scores import Bootstrap, mean

Word = Literal["better", "worse", "no difference shown", "too little evidence"]
MARGIN = 0.1
"""A difference smaller than this need not be shown: ten points."""


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
    """The smallest difference these tasks and trials would show in four of five cases; None if they can show none.

    Like the two numbers below it is only computed where no difference is shown.
    """
    tasks_needed: int | None
    """How many tasks would show a difference of `margin`; None where that cannot be estimated."""
    trials_needed: int | None
    """How many trials of each of these tasks would; None where no number would."""
    margin: float = MARGIN
    power: float | None = None
    """In what share of such comparisons a difference of `margin` would be found; None where one is shown."""
    these_tasks: bool = False
    """Whether it is about these very tasks, not about tasks like them."""
    correction: str = ""
    """How the p-value was adjusted, where it was: `Holm over 3 comparisons`."""
    anytime: AlwaysValid | None = None
    """Where the verdict is one for looking at any time: its pairs of trials and its interval."""


def verdict_on_passing(
    tallies: Sequence[Tally],
    *,
    margin: float = MARGIN,
    these_tasks: bool = False,
    by_task: bool = False,
    brief: bool = False,
) -> DifferenceVerdict:
    """Return the verdict on pass rates; with `these_tasks` about these tasks only, not about tasks like them.

    `by_task` compares each task as a whole, for runs that both stopped trials early; `brief` leaves out how many tasks
    and trials would be needed, which takes longer than the verdict.
    """
    differences = [tally.difference for tally in tallies]
    is_within = these_tasks and not by_task and bool(tallies)
    p_value = shuffled_trials(tallies) if is_within else sign_flip(differences)
    simulated = simulation(tallies, Question(these_tasks=is_within))
    return replace(_verdict(differences, p_value, simulated, margin, brief), these_tasks=these_tasks)


def verdict_on_scores(
    differences: Sequence[float],
    *,
    margin: float = MARGIN,
    within: Sequence[tuple[Sequence[float], Sequence[float]]] | None = None,
    brief: bool = False,
) -> DifferenceVerdict:
    """Return the verdict on differences of scores, one per task; `within` are the trials where these are permuted."""
    p_value = sign_flip(differences) if within is None else shuffled_scores(within)
    return _verdict(differences, p_value, score_simulation(differences), margin, brief)


def verdict_at_any_time(pairs: Sequence[float], tasks: int, *, margin: float = MARGIN) -> DifferenceVerdict:
    """Return the verdict on pairs of trials in order of arrival, valid however often one looks."""
    found = always_valid(pairs)
    difference, p_value = (found.difference, found.p_value) if found else (None, 1.0)
    return DifferenceVerdict(
        word=_word(difference, p_value, None),
        difference=difference,
        interval=None,
        p_value=p_value,
        tasks=tasks,
        smallest=None,
        tasks_needed=None,
        trials_needed=None,
        margin=margin,
        these_tasks=True,
        anytime=found,
    )


def with_p_value(verdict: DifferenceVerdict, p_value: float, correction: str = "") -> DifferenceVerdict:
    """Return the verdict if its p-value were this one."""
    word = _word(verdict.difference, p_value, verdict.power)
    return replace(verdict, p_value=p_value, word=word, correction=correction)


def _verdict(
    differences: Sequence[float], p_value: float, simulated: Simulation, margin: float, brief: bool
) -> DifferenceVerdict:
    difference = mean(differences)
    is_shown = bool(difference) and p_value < ALPHA
    power = None if is_shown else simulated.power(margin)
    is_enough = brief or is_shown or (power is not None and power >= ENOUGH)
    these_tasks = simulated.question.these_tasks
    return DifferenceVerdict(
        word=_word(difference, p_value, power),
        difference=difference,
        interval=bounded_mean(differences, -1.0),
        p_value=p_value,
        tasks=len(differences),
        smallest=None if brief or is_shown else simulated.smallest_drop(),
        tasks_needed=None if is_enough or these_tasks else simulated.tasks_needed(margin),
        trials_needed=None if is_enough else simulated.trials_needed(margin),
        margin=margin,
        power=power,
    )


def _word(difference: float | None, p_value: float, power: float | None) -> Word:
    if difference and p_value < ALPHA:
        return "better" if difference > 0 else "worse"
    return "no difference shown" if power is not None and power >= ENOUGH else "too little evidence"
