"""Questions to judges before a run's first trial, stored with the run.

Canaries are known goldens: a changed verdict on one means a changed judge. A probe is one small request to each judge,
which shows that its key and its address are right.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from waza.model import JSON, Run
from waza.spending import NOTHING, Spending, spent

KEY = "canaries"
"""Their key in `run.spec`."""
MAX_NAMED = 5


class Canary(Struct, frozen=True, kw_only=True):
    """A judge's verdict on one golden during a run."""

    rubric: str
    rubric_hash: str
    golden: str
    judge: str
    """The judge's type."""
    model: str
    expected: str | int
    said: str | int | None
    """`pass`, `fail` or a score; None where the judge gave no verdict."""
    passes: bool | None
    agrees: bool | None
    """Whether that is the expected verdict; None where it is undecided."""
    answered_by: str | None = None
    """The model that answered, by its own account."""
    cost_usd: float | None = None
    reason: str = ""
    spending: Spending | None = None
    """What it was billed; None in runs of versions that only wrote the cost."""

    @property
    def billed(self) -> Spending:
        """What asking about it was billed, as far as that is known."""
        return self.spending if self.spending is not None else spent(self.cost_usd)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes two canaries of different runs the same question to the same judge."""
        return self.rubric_hash, self.golden, self.judge, self.model


PROBES = "judge_probes"
"""The key of probes in `run.spec`."""


class Probe(Struct, frozen=True, kw_only=True):
    """One request to a judge before the first trial."""

    judge: str
    """The judge's type."""
    model: str
    error: str = ""
    """Why it did not answer; empty where it did."""
    spending: Spending = NOTHING


def probes_of(run: Run) -> list[Probe]:
    """Return the probes of a stored run; none where it has none, or has them in an unknown shape."""
    try:
        return msgspec.convert(run.suite.judge_probes, list[Probe])
    except msgspec.ValidationError:
        return []


def billed_before_trials(run: Run) -> Spending:
    """Return what the questions to judges before the first trial were billed."""
    total = NOTHING
    for one in canaries_of(run):
        total += one.billed
    for probe in probes_of(run):
        total += probe.spending
    return total


def canaries_of(run: Run) -> list[Canary]:
    """Return the canaries of a stored run; none where it has none, or has them in an unknown shape."""
    try:
        return msgspec.convert(run.suite.canaries, list[Canary])
    except msgspec.ValidationError:
        return []


def canaries_as_data(canaries: list[Canary]) -> list[JSON]:
    """Return canaries as a run stores them."""
    found: list[JSON] = msgspec.to_builtins(canaries)
    return found


def canary_line(canaries: list[Canary]) -> str:
    """Return the results of a run's canaries in one line; empty where there are none."""
    if not canaries:
        return ""
    agreed, silent = (sum(one.agrees is what for one in canaries) for what in (True, None))
    billed = NOTHING
    for one in canaries:
        billed += one.billed
    line = f"canaries: {agreed} of {len(canaries)} as expected"
    line += f", {silent} without a verdict" if silent else ""
    line += "; cost not known" if billed.without_cost else f"; ${billed.cost_usd:.4f}"
    wrong = [f"{one.rubric}/{one.golden}: {one.said}" for one in canaries if one.agrees is False]
    return line + (f" ({', '.join(wrong[:MAX_NAMED])})" if wrong else "")


def drift(before: Run, after: Run) -> Iterator[str]:
    """Yield what changed about the judge between two runs: verdicts on the same canaries, and who answered."""
    earlier = {canary.key: canary for canary in canaries_of(before)}
    pairs = [(earlier[canary.key], canary) for canary in canaries_of(after) if canary.key in earlier]
    decided = [(one, other) for one, other in pairs if one.said is not None and other.said is not None]
    changed = [(one, other) for one, other in decided if _differs(one, other)]
    if changed:
        named = ", ".join(f"{one.rubric}/{one.golden} {one.said} → {other.said}" for one, other in changed[:MAX_NAMED])
        more = f" and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else ""
        yield (
            f"the judge drifted: {len(changed)} of {len(decided)} canaries have other verdicts ({named}{more}); "
            "part of the change may be the judge's"
        )
    names = {(one.answered_by, other.answered_by) for one, other in pairs if one.answered_by and other.answered_by}
    for was, now in sorted((was, now) for was, now in names if was != now):
        yield f"the judge's model called itself {was} before and {now} after"


def _differs(one: Canary, other: Canary) -> bool:
    if one.passes != other.passes:
        return True
    return isinstance(one.said, int) and isinstance(other.said, int) and abs(one.said - other.said) > 1
