"""Juries: the members that `judges:` of a grader names, and how their votes become one verdict.

A juror without a verdict has not voted: a jury decides only where the missing votes could not change the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import log
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from waza.errors import did_you_mean, validation_fact
from waza.files.paths import SpecFolder
from waza.judges.base import JUDGES, WRAPPER, Judge, judge_type_of

Rule = Literal["majority", "all", "any", "mean"]
FLOOR = 0.01
"""The lowest error rate of a juror: a sample without a mistake does not prove that there are none."""


class Juror(NamedTuple):
    """One member of a jury."""

    name: str
    model: str = ""
    """The model to ask; the judge's own if empty."""
    judge: Judge | None = None
    """Its own judge; the suite's judge if None."""

    @property
    def address(self) -> str:
        """The `base_url` of its own judge; empty for the vendor's address and for the suite's judge."""
        return self.judge.base_url if self.judge else ""

    def judge_or(self, judge: Any) -> Any:
        """Return its own judge, with the cache of the suite's `judge`; without one, the suite's."""
        if self.judge is None:
            return judge
        return self.judge.for_run(getattr(judge, "cache", None), judge if isinstance(judge, Judge) else None)


def jurors_from(entries: Sequence[str | Mapping[str, Any]], folder: SpecFolder) -> list[Juror]:
    """Return the jurors in `judges:`; raise ValueError with the first problem."""
    if len(entries) == 1:
        raise ValueError("one judge is not a jury; name several in 'judges', or the one in 'model'")
    for place, entry in enumerate(entries):
        if entry in entries[:place]:
            raise ValueError(f"judges[{place}] is a duplicate; it would vote twice")
    jurors = [_juror(entry, place, folder) for place, entry in enumerate(entries)]
    counts: Counter[str] = Counter()
    named = []
    for juror in jurors:
        counts[juror.name] += 1
        named.append(juror if counts[juror.name] == 1 else juror._replace(name=f"{juror.name}#{counts[juror.name]}"))
    return named


def _juror(entry: str | Mapping[str, Any], place: int, folder: SpecFolder) -> Juror:
    here = f"judges[{place}]"
    if isinstance(entry, str):
        if not entry.strip():
            raise ValueError(f"{here} is blank; name a model")
        return Juror(entry, entry)
    kind = judge_type_of(entry)
    if not isinstance(kind, str) or not JUDGES.knows(kind):
        raise ValueError(f"{here}.type: unknown judge '{kind}'; {did_you_mean(str(kind), JUDGES.names())}")
    cls: type[Judge] = JUDGES.load(kind)
    own = {key: value for key, value in entry.items() if key != "type"}
    known = [key for key in cls.model_fields if key not in WRAPPER]
    if unknown := next((key for key in own if key not in known), None):
        raise ValueError(f"{here}: unknown key '{unknown}'; {did_you_mean(unknown, known)}")
    try:
        judge = cls.model_validate(own | {"folder": folder})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([here, *(str(part) for part in first["loc"])])
        raise ValueError(f"{where}: {validation_fact(first)}") from None
    if judge.needs_model and not judge.model:
        raise ValueError(f"{here}: this judge has no model; name one in its 'model'")
    return Juror(judge.model or kind, judge.model, judge)


class Vote(NamedTuple):
    """A juror's vote: `passes` is None while it has not been asked, or when it gave no verdict."""

    passes: bool | None = None
    score: float = 0.0


class VoteWeight(NamedTuple):
    """The weights of a juror's votes in a majority."""

    passing: float = 1.0
    failing: float = 1.0


OPEN = Vote()
EQUAL = VoteWeight()


def vote_weight(sensitivity: float, specificity: float) -> VoteWeight:
    """Return the weights of a juror with this sensitivity and specificity.

    They are log likelihood ratios, as in naive Bayes (Nitzan and Paroush 1982); 0 where it is no better than chance.
    """
    passes_good, fails_bad = (min(max(share, FLOOR), 1 - FLOOR) for share in (sensitivity, specificity))
    if passes_good + fails_bad <= 1:
        return VoteWeight(0.0, 0.0)
    return VoteWeight(log(passes_good / (1 - fails_bad)), log(fails_bad / (1 - passes_good)))


def jury_verdict(rule: Rule, votes: Sequence[Vote], weights: Sequence[VoteWeight], pass_at: float = 0.5) -> bool | None:
    """Return the jury's verdict if no missing vote can change it; else None. `pass_at` applies to the rule `mean`."""
    passes_of = [vote.passes for vote in votes]
    if rule == "all":
        return False if False in passes_of else True if None not in passes_of else None
    if rule == "any":
        return True if True in passes_of else False if None not in passes_of else None
    if rule == "mean":
        given = sum(vote.score for vote in votes if vote.passes is not None)
        low, high = given / len(votes), (given + passes_of.count(None)) / len(votes)
        return True if low >= pass_at - 1e-9 else False if high < pass_at - 1e-9 else None
    low = high = 0.0
    for passes, weight in zip(passes_of, weights, strict=True):
        low += weight.passing if passes else -weight.failing
        high += -weight.failing if passes is False else weight.passing
    return True if low > 1e-9 else False if high < -1e-9 else None


def how_many_next(rule: Rule, votes: Sequence[Vote], weights: Sequence[VoteWeight], waiting: Sequence[int]) -> int:
    """Return how many of the waiting jurors to ask at once: the fewest that could decide it; 0 where none could."""
    for count in range(1, len(waiting) + 1):
        for passes in (True, False):
            then = list(votes)
            for place in waiting[:count]:
                then[place] = Vote(passes)
            if jury_verdict(rule, then, weights) is not None:
                return count
    return 0
