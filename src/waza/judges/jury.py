"""The members of a jury, from what `judges:` of a grader says: models of the suite's judge, or judges of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import log
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from waza.errors import did_you_mean, validation_fact
from waza.files.paths import SpecFolder
from waza.judges.base import JUDGES, WRAPPER, Judge, judge_type_of


class Juror(NamedTuple):
    """One member of a jury."""

    name: str
    model: str = ""
    """The model to ask; the judge's own if empty."""
    judge: Judge | None = None
    """Whom to ask; the suite's judge if None."""

    @property
    def address(self) -> str:
        """Where its model is served, if that is said here; empty for the vendor's own and for the suite's judge."""
        return self.judge.base_url if self.judge else ""

    def asked(self, judge: Any) -> Any:
        """Return whom to ask, where `judge` is the suite's; a judge of one's own keeps its verdicts where that does."""
        if self.judge is None:
            return judge
        return self.judge.model_copy(update={"cache": getattr(judge, "cache", None)})


def jurors_from(entries: Sequence[str | Mapping[str, Any]], folder: SpecFolder) -> list[Juror]:
    """Return the jurors meant by `judges:`; raise ValueError with what is wrong with them."""
    if len(entries) == 1:
        raise ValueError("one judge is no jury; name several in 'judges', or the one in 'model'")
    for place, entry in enumerate(entries):
        if entry in entries[:place]:
            raise ValueError(f"judges[{place}] stands there before; it would vote twice")
    made = [_juror(entry, place, folder) for place, entry in enumerate(entries)]
    seen: Counter[str] = Counter()
    named = []
    for juror in made:
        seen[juror.name] += 1
        named.append(juror if seen[juror.name] == 1 else juror._replace(name=f"{juror.name}#{seen[juror.name]}"))
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


# How the votes of several judges become one verdict, and when there is no need to ask another.
#
# A juror that gave no verdict has not voted: the jury decides only what holds whatever the open votes were.

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
