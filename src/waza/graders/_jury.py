"""A jury at work: its members are asked until the verdict is settled, and every one's verdict is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from waza.errors import StoreError
from waza.graders.base import Finding
from waza.judges.jury import EQUAL, OPEN, Juror, Rule, Vote, VoteWeight, how_many_next, jury_verdict, vote_weight
from waza.model import JSON, Check, GradeStatus
from waza.runs.calibrations import Calibration, read_calibration
from waza.runs.costs import ASKINGS

ASKED = ("question", "rubric")
"""Where it holds what was asked: of every juror the same."""
CRITERIA = "criteria"
"""Where it holds the verdict on each criterion."""


class Jury(NamedTuple):
    """The members of a jury and how their votes count."""

    jurors: Sequence[Juror]
    rule: Rule
    pass_at: float
    """The lowest mean that passes."""
    asks_everyone: bool = False
    """Whether jurors are asked though the verdict is settled."""
    worths: Sequence[VoteWeight] = ()
    """What the votes count for by measured error; empty: all the same."""
    criteria: Sequence[str] = ()
    """What is voted on one by one; empty: on the output as a whole."""


def measured(jurors: Sequence[Juror], root: Path, rubric: str, question: str) -> list[VoteWeight]:
    """Return what each juror's votes count for; none where its error by this rubric or question was never measured.

    Raises ValueError when a calibration cannot be read.
    """
    try:
        known = [
            read_calibration(root, rubric=rubric, question=question, model=juror.model, address=juror.address)
            for juror in jurors
        ]
    except StoreError as error:
        raise ValueError(str(error)) from None
    found = [_worth(calibration) for calibration in known if calibration is not None]
    return [one for one in found if one is not None] if len(found) == len(jurors) and None not in found else []


def _worth(calibration: Calibration) -> VoteWeight | None:
    """Return what a juror's votes count for; a mistake and a success are added, since few items prove little."""
    counts = calibration.counts
    if calibration.sensitivity is None or calibration.specificity is None:
        return None
    good, bad = counts.true_pass + counts.false_fail, counts.false_pass + counts.true_fail
    return vote_weight((counts.true_pass + 1) / (good + 2), (counts.true_fail + 1) / (bad + 2))


async def decided(jury: Jury, ask: Callable[[Juror], Awaitable[Finding]]) -> Finding:
    """Return what the jury comes to; `ask` brings the finding of one juror.

    Where criteria are declared, the jury votes on each of them, and jurors are asked until all are settled.
    """
    worths = jury.worths or [EQUAL] * len(jury.jurors)
    polls, said = [[OPEN] * len(jury.jurors) for _ in jury.criteria or [""]], dict[int, Finding]()
    while waiting := [place for place in range(len(jury.jurors)) if place not in said]:
        still_open = [votes for votes in polls if jury_verdict(jury.rule, votes, worths, jury.pass_at) is None]
        if not jury.asks_everyone and not still_open:
            break
        counts = [how_many_next(jury.rule, votes, worths, waiting) for votes in still_open]
        needed = min((count for count in counts if count), default=0)
        some = waiting if jury.asks_everyone else waiting[:needed]
        if not some:
            break
        for place, finding in zip(some, await asyncio.gather(*(ask(jury.jurors[one]) for one in some)), strict=True):
            said[place] = finding
            for votes, vote in zip(polls, _votes(finding, len(polls)), strict=True):
                votes[place] = vote
    verdicts = [jury_verdict(jury.rule, votes, worths, jury.pass_at) for votes in polls]
    if jury.criteria:
        return _finding_by_criteria(jury, polls, said, verdicts)
    return _finding(jury, polls[0], said, verdicts[0])


def _votes(finding: Finding, count: int) -> list[Vote]:
    """Return what a juror votes in each poll."""
    if finding.status == "error":
        return [OPEN] * count
    if (each := finding.details.get(CRITERIA)) is None:
        return [Vote(finding.status == "passed", finding.score)]
    return [Vote(one["passed"], one["score"]) for one in each]


def criteria_finding(checks: list[Check], score: float, details: dict[str, JSON]) -> Finding:
    """Return the finding of checks of criteria: a failed one decides, otherwise an undecided one leaves it open."""
    failed = [check.failure for check in checks if check.ok is False]
    undecided = [check.failure for check in checks if check.ok is None]
    if undecided and not failed:
        return Finding("error", 0.0, "; ".join(undecided), checks, details)
    feedback = "; ".join(failed) or f"All {len(checks)} criteria are met"
    return Finding("failed" if failed else "passed", score, feedback, checks, details)


def _finding_by_criteria(
    jury: Jury, polls: Sequence[Sequence[Vote]], said: dict[int, Finding], verdicts: Sequence[bool | None]
) -> Finding:
    """Return the finding of a vote on each criterion; the score is the mean of the criteria's."""
    kept: list[dict[str, JSON]] = []
    checks: list[Check] = []
    for place, (criterion, votes, verdict) in enumerate(zip(jury.criteria, polls, verdicts, strict=True)):
        told = _told_of(jury, place, votes, said)
        does = {None: "cannot decide", True: "passes it", False: "fails it"}[verdict]
        failure = f"{criterion}: the jury {does} ({jury.rule} of {len(jury.jurors)}): {told}"
        checks.append(Check(True, criterion, actual=told) if verdict else Check(verdict, criterion, failure))
        score = _score(jury.rule, votes, verdict)
        kept.append({"criterion": criterion, "passed": verdict, "score": score, "reason": told})
    whole = False if False in verdicts else None if None in verdicts else True
    details = _details(jury, [_whole(votes) for votes in zip(*polls, strict=True)], said, whole)
    split = [one for one, votes in zip(kept, polls, strict=True) if {True, False} <= {vote.passes for vote in votes}]
    details["jury"]["is_unanimous"] = not split
    found = criteria_finding(checks, sum(one["score"] for one in kept) / len(kept), details | {CRITERIA: kept})
    if found.status != "passed" or not split:
        return found
    told = "; ".join(f"{one['criterion']}: {one['reason']}" for one in split)
    return replace(found, feedback=f"{found.feedback}, by a split vote on {told}")


def _whole(votes: Sequence[Vote]) -> Vote:
    """Return what a juror's votes on all criteria come to."""
    if any(vote.passes is None for vote in votes):
        return OPEN
    return Vote(all(vote.passes for vote in votes), sum(vote.score for vote in votes) / len(votes))


def _told_of(jury: Jury, criterion: int, votes: Sequence[Vote], said: dict[int, Finding]) -> str:
    """Return who passes a criterion and who does not, with their reasons."""
    parts = []
    for place, finding in sorted(said.items()):
        name, vote = jury.jurors[place].name, votes[place]
        if vote.passes is None:
            parts.append(f"{name} gave no verdict: {finding.feedback}")
        else:
            reason = finding.details[CRITERIA][criterion]["reason"]
            parts.append(f"{name} {'passes' if vote.passes else 'fails'}: {reason}")
    return "; ".join(parts)


def _finding(jury: Jury, votes: Sequence[Vote], said: dict[int, Finding], verdict: bool | None) -> Finding:
    status: GradeStatus = "error" if verdict is None else "passed" if verdict else "failed"
    told = _told(jury, said)
    claim = f"the jury passes it ({jury.rule} of {len(jury.jurors)})"
    does = {"error": "cannot decide", "passed": "passes it", "failed": "fails it"}[status]
    feedback = f"the jury {does} ({jury.rule} of {len(jury.jurors)}): {told}"
    check = Check(verdict, claim, "" if verdict else feedback)
    return Finding(status, _score(jury.rule, votes, verdict), feedback, [check], _details(jury, votes, said, verdict))


def _score(rule: Rule, votes: Sequence[Vote], verdict: bool | None) -> float:
    """Return the mean score: of all for a mean, else of those who voted as the jury decided, whoever else was asked."""
    if verdict is None:
        return 0.0
    counted = [vote.score for vote in votes if vote.passes is not None and (rule == "mean" or vote.passes is verdict)]
    return sum(counted) / len(counted) if counted else 0.0


def _told(jury: Jury, said: dict[int, Finding]) -> str:
    """Return who said what, with the reasons of those who did not pass it."""
    passing = [jury.jurors[place].name for place, finding in said.items() if finding.status == "passed"]
    parts = [f"{', '.join(passing)} {'passes' if len(passing) == 1 else 'pass'}"] if passing else []
    for status, word in (("failed", "fails"), ("error", "gave no verdict")):
        for place, finding in said.items():
            if finding.status == status:
                parts.append(f"{jury.jurors[place].name} {word}: {finding.feedback}")
    if jury.worths and not any(map(any, jury.worths)):
        parts.append("`waza calibrate` found no juror better than chance, so no vote counts")
    if left := [juror.name for place, juror in enumerate(jury.jurors) if place not in said]:
        parts.append(f"not asked: {', '.join(left)}")
    return "; ".join(parts)


def _details(jury: Jury, votes: Sequence[Vote], said: dict[int, Finding], verdict: bool | None) -> dict[str, JSON]:
    given = [vote.passes for vote in votes if vote.passes is not None]
    kept: dict[str, JSON] = {
        "rule": jury.rule,
        "passes": given.count(True),
        "fails": given.count(False),
        "undecided": len(said) - len(given),
        "is_unanimous": len(set(given)) < 2,
        "weighted_by": "measured error" if jury.worths else None,
        "votes": [_kept(jury, place, finding) for place, finding in sorted(said.items())],
        "not_asked": [juror.name for place, juror in enumerate(jury.jurors) if place not in said],
    }
    askings = [asking for finding in said.values() if isinstance(asking := finding.details, dict)]
    told = {"jury": kept, "judge": _spent(jury, [one[key] for one in askings for key in ASKINGS if key in one])}
    asked = {key: one[key] for key in ASKED for one in askings[:1] if key in one}
    return told | asked | _pairwise(votes, said, verdict)


def _kept(jury: Jury, place: int, finding: Finding) -> dict[str, JSON]:
    kept: dict[str, JSON] = {"juror": jury.jurors[place].name, "status": finding.status, "score": finding.score}
    kept |= {"feedback": finding.feedback, "details": {k: v for k, v in finding.details.items() if k not in ASKED}}
    kept |= {"address": address} if (address := jury.jurors[place].address) else {}
    return kept | ({"worth": jury.worths[place]._asdict()} if jury.worths else {})


def _spent(jury: Jury, askings: list[dict[str, JSON]]) -> dict[str, JSON]:
    """Return `details.judge` of a jury: what all askings took together, as far as it is known."""

    def total(values: list[JSON]) -> JSON:
        known = [value for value in values if isinstance(value, (int, float))]
        return sum(known) if known else None

    unknown = total([asking.get("requests_without_cost") for asking in askings])
    tokens = {kind: total([asking["tokens"][kind] for asking in askings]) for kind in ("input", "output")}
    return {
        "type": "jury",
        "model": ", ".join(juror.name for juror in jury.jurors),
        "answered_by": None,
        "tokens": tokens,
        "cost_usd": total([asking["cost_usd"] for asking in askings]),
        "requests": total([asking["requests"] for asking in askings]) or 0,
        "cached": bool(askings) and all(asking["cached"] for asking in askings),
        "seconds": total([asking["seconds"] for asking in askings]) or 0.0,
        "reminders": total([asking["reminders"] for asking in askings]) or 0,
    } | ({"requests_without_cost": unknown} if unknown else {})


def _pairwise(votes: Sequence[Vote], said: dict[int, Finding], verdict: bool | None) -> dict[str, JSON]:
    """Return the winner of a comparison, as a single judge would be told: the one most of the deciding side named."""
    named = [
        finding.details["pairwise"]["winner"]
        for place, finding in said.items()
        if "pairwise" in finding.details and votes[place].passes is verdict and verdict is not None
    ]
    if not any("pairwise" in finding.details for finding in said.values()):
        return {}
    wins, ties = named.count("candidate"), named.count("tie")
    winner = None if verdict is None else "baseline" if not verdict else "candidate" if wins > ties else "tie"
    return {"mode": "pairwise", "pairwise": {"winner": winner, "position_consistent": verdict is not None}}
