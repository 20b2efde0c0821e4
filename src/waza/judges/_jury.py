"""How the votes of several judges become one verdict, and when there is no need to ask another.

A juror that gave no verdict has not voted: the jury decides only what holds whatever the open votes were.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Literal, NamedTuple

Rule = Literal["majority", "all", "any", "mean"]
FLOOR = 0.01
"""No juror is taken to be surer than this: a sample without a mistake does not prove that there are none."""


class Vote(NamedTuple):
    """What a juror says: `passes` is None while it has not been asked, or when it gave no verdict."""

    passes: bool | None = None
    score: float = 0.0


class Worth(NamedTuple):
    """How much a juror's vote counts in a majority, by what it says."""

    passing: float = 1.0
    failing: float = 1.0


OPEN = Vote()
EQUAL = Worth()


def worth(sensitivity: float, specificity: float) -> Worth:
    """Return what votes of a juror count for that passes such a share of the good and fails such a share of the bad.

    The logarithm of how much likelier its vote is when it is right; nothing where it is no better than chance.
    """
    passes_good, fails_bad = (min(max(share, FLOOR), 1 - FLOOR) for share in (sensitivity, specificity))
    if passes_good + fails_bad <= 1:
        return Worth(0.0, 0.0)
    return Worth(log(passes_good / (1 - fails_bad)), log(fails_bad / (1 - passes_good)))


def settled(rule: Rule, votes: Sequence[Vote], worths: Sequence[Worth], pass_at: float = 0.5) -> bool | None:
    """Return the jury's verdict if it is the same whatever the open votes are; else None. `pass_at` is for means."""
    said = [vote.passes for vote in votes]
    if rule == "all":
        return False if False in said else True if None not in said else None
    if rule == "any":
        return True if True in said else False if None not in said else None
    if rule == "mean":
        given = sum(vote.score for vote in votes if vote.passes is not None)
        low, high = given / len(votes), (given + said.count(None)) / len(votes)
        return True if low >= pass_at - 1e-9 else False if high < pass_at - 1e-9 else None
    low = high = 0.0
    for passes, weight in zip(said, worths, strict=True):
        low += weight.passing if passes else -weight.failing
        high += -weight.failing if passes is False else weight.passing
    return True if low > 1e-9 else False if high < -1e-9 else None


def how_many_next(rule: Rule, votes: Sequence[Vote], worths: Sequence[Worth], waiting: Sequence[int]) -> int:
    """Return how many of the waiting jurors to ask at once: the fewest that could settle it; 0 where none could."""
    for count in range(1, len(waiting) + 1):
        for passes in (True, False):
            then = list(votes)
            for place in waiting[:count]:
                then[place] = Vote(passes)
            if settled(rule, then, worths) is not None:
                return count
    return 0
