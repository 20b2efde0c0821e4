"""The verdict of a jury: its members are asked until it is settled, and every member's verdict is stored."""

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
from waza.runs.judge_card import Calibration, read_calibration
from waza.runs.outcomes import REQUEST_KEYS

QUESTION_KEYS = ("question", "rubric")
"""Keys of `details` that describe the question: the same for every juror."""
CRITERIA = "criteria"
"""The key of `details` that has the verdict on each criterion."""


class Jury(NamedTuple):
    """The members of a jury and how their votes count."""

    jurors: Sequence[Juror]
    rule: Rule
    pass_at: float
    """The lowest mean that passes."""
    asks_everyone: bool = False
    """Whether jurors are asked though the verdict is settled."""
    worths: Sequence[VoteWeight] = ()
    """The weight of each juror's votes by measured error; empty: all equal."""
    criteria: Sequence[str] = ()
    """The criteria that are voted on one by one; empty: one vote on the whole output."""


def measured_weights(jurors: Sequence[Juror], root: Path, rubric: str, question: str) -> list[VoteWeight]:
    """Return the weight of each juror's votes; none where an error by this rubric or question was not measured.

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
    """Return the weight of a juror's votes, with one error and one success added (Laplace): few items prove little."""
    counts = calibration.counts
    if calibration.sensitivity is None or calibration.specificity is None:
        return None
    good, bad = counts.true_pass + counts.false_fail, counts.false_pass + counts.true_fail
    return vote_weight((counts.true_pass + 1) / (good + 2), (counts.true_fail + 1) / (bad + 2))


async def jury_finding(jury: Jury, ask: Callable[[Juror], Awaitable[Finding]]) -> Finding:
    """Return the jury's verdict; `ask` returns the finding of one juror.

    Where criteria are declared, the jury votes on each of them, and jurors are asked until all are settled.
    """
    worths = jury.worths or [EQUAL] * len(jury.jurors)
    polls, findings = [[OPEN] * len(jury.jurors) for _ in jury.criteria or [""]], dict[int, Finding]()
    while waiting := [place for place in range(len(jury.jurors)) if place not in findings]:
        still_open = [votes for votes in polls if jury_verdict(jury.rule, votes, worths, jury.pass_at) is None]
        if not jury.asks_everyone and not still_open:
            break
        counts = [how_many_next(jury.rule, votes, worths, waiting) for votes in still_open]
        needed = min((count for count in counts if count), default=0)
        some = waiting if jury.asks_everyone else waiting[:needed]
        if not some:
            break
        for place, finding in zip(some, await asyncio.gather(*(ask(jury.jurors[one]) for one in some)), strict=True):
            findings[place] = finding
            for votes, vote in zip(polls, _votes(finding, len(polls)), strict=True):
                votes[place] = vote
    verdicts = [jury_verdict(jury.rule, votes, worths, jury.pass_at) for votes in polls]
    if jury.criteria:
        return _finding_by_criteria(jury, polls, findings, verdicts)
    return _finding(jury, polls[0], findings, verdicts[0])


def _votes(finding: Finding, count: int) -> list[Vote]:
    """Return what a juror votes in each poll."""
    if finding.status == "error":
        return [OPEN] * count
    if (each := finding.details.get(CRITERIA)) is None:
        return [Vote(finding.status == "passed", finding.score)]
    return [Vote(one["passed"], one["score"]) for one in each]


def criteria_finding(checks: list[Check], score: float, details: dict[str, JSON]) -> Finding:
    """Return the finding of checks of criteria: a failed one decides, otherwise an undecided one makes it an error."""
    failed = [check.failure for check in checks if check.ok is False]
    undecided = [check.failure for check in checks if check.ok is None]
    if undecided and not failed:
        return Finding("error", 0.0, "; ".join(undecided), checks, details)
    feedback = "; ".join(failed) or f"All {len(checks)} criteria are met"
    return Finding("failed" if failed else "passed", score, feedback, checks, details)


def _finding_by_criteria(
    jury: Jury, polls: Sequence[Sequence[Vote]], findings: dict[int, Finding], verdicts: Sequence[bool | None]
) -> Finding:
    """Return the finding of a vote on each criterion; the score is the mean of the criteria's."""
    entries: list[dict[str, JSON]] = []
    checks: list[Check] = []
    for place, (criterion, votes, verdict) in enumerate(zip(jury.criteria, polls, verdicts, strict=True)):
        summary = _votes_on_criterion(jury, place, votes, findings)
        does = {None: "cannot decide", True: "passes it", False: "fails it"}[verdict]
        failure = f"{criterion}: the jury {does} ({jury.rule} of {len(jury.jurors)}): {summary}"
        checks.append(Check(True, criterion, actual=summary) if verdict else Check(verdict, criterion, failure))
        score = _score(jury.rule, votes, verdict)
        entries.append({"criterion": criterion, "passed": verdict, "score": score, "reason": summary})
    whole = False if False in verdicts else None if None in verdicts else True
    details = _details(jury, [_vote_on_all(votes) for votes in zip(*polls, strict=True)], findings, whole)
    split = [one for one, votes in zip(entries, polls, strict=True) if {True, False} <= {vote.passes for vote in votes}]
    details["jury"]["is_unanimous"] = not split
    found = criteria_finding(checks, sum(one["score"] for one in entries) / len(entries), details | {CRITERIA: entries})
    if found.status != "passed" or not split:
        return found
    summary = "; ".join(f"{one['criterion']}: {one['reason']}" for one in split)
    return replace(found, feedback=f"{found.feedback}, by a split vote on {summary}")


def _vote_on_all(votes: Sequence[Vote]) -> Vote:
    """Return one vote for a juror's votes on all criteria."""
    if any(vote.passes is None for vote in votes):
        return OPEN
    return Vote(all(vote.passes for vote in votes), sum(vote.score for vote in votes) / len(votes))


def _votes_on_criterion(jury: Jury, criterion: int, votes: Sequence[Vote], findings: dict[int, Finding]) -> str:
    """Return who passes a criterion and who does not, with their reasons."""
    parts = []
    for place, finding in sorted(findings.items()):
        name, vote = jury.jurors[place].name, votes[place]
        if vote.passes is None:
            parts.append(f"{name} gave no verdict: {finding.feedback}")
        else:
            reason = finding.details[CRITERIA][criterion]["reason"]
            parts.append(f"{name} {'passes' if vote.passes else 'fails'}: {reason}")
    return "; ".join(parts)


def _finding(jury: Jury, votes: Sequence[Vote], findings: dict[int, Finding], verdict: bool | None) -> Finding:
    status: GradeStatus = "error" if verdict is None else "passed" if verdict else "failed"
    summary = _summary(jury, findings)
    claim = f"the jury passes it ({jury.rule} of {len(jury.jurors)})"
    does = {"error": "cannot decide", "passed": "passes it", "failed": "fails it"}[status]
    feedback = f"the jury {does} ({jury.rule} of {len(jury.jurors)}): {summary}"
    check = Check(verdict, claim, "" if verdict else feedback)
    return Finding(
        status, _score(jury.rule, votes, verdict), feedback, [check], _details(jury, votes, findings, verdict)
    )


def _score(rule: Rule, votes: Sequence[Vote], verdict: bool | None) -> float:
    """Return the mean score: of all for a mean, else of those who voted as the jury decided, whoever else voted."""
    if verdict is None:
        return 0.0
    counted = [vote.score for vote in votes if vote.passes is not None and (rule == "mean" or vote.passes is verdict)]
    return sum(counted) / len(counted) if counted else 0.0


def _summary(jury: Jury, findings: dict[int, Finding]) -> str:
    """Return each juror's verdict, with the reasons of those who did not pass it."""
    passing = [jury.jurors[place].name for place, finding in findings.items() if finding.status == "passed"]
    parts = [f"{', '.join(passing)} {'passes' if len(passing) == 1 else 'pass'}"] if passing else []
    for status, word in (("failed", "fails"), ("error", "gave no verdict")):
        for place, finding in findings.items():
            if finding.status == status:
                parts.append(f"{jury.jurors[place].name} {word}: {finding.feedback}")
    if jury.worths and not any(map(any, jury.worths)):
        parts.append("`waza calibrate` found no juror better than chance, so no vote counts")
    if left := [juror.name for place, juror in enumerate(jury.jurors) if place not in findings]:
        parts.append(f"not asked: {', '.join(left)}")
    return "; ".join(parts)


def _details(jury: Jury, votes: Sequence[Vote], findings: dict[int, Finding], verdict: bool | None) -> dict[str, JSON]:
    given = [vote.passes for vote in votes if vote.passes is not None]
    jury_details: dict[str, JSON] = {
        "rule": jury.rule,
        "passes": given.count(True),
        "fails": given.count(False),
        "undecided": len(findings) - len(given),
        "is_unanimous": len(set(given)) < 2,
        "weighted_by": "measured error" if jury.worths else None,
        "votes": [_vote_as_data(jury, place, finding) for place, finding in sorted(findings.items())],
        "not_asked": [juror.name for place, juror in enumerate(jury.jurors) if place not in findings],
    }
    parts = [part for finding in findings.values() if isinstance(part := finding.details, dict)]
    details = {
        "jury": jury_details,
        "judge": _total_usage(jury, [one[key] for one in parts for key in REQUEST_KEYS if key in one]),
    }
    question = {key: one[key] for key in QUESTION_KEYS for one in parts[:1] if key in one}
    return details | question | _pairwise(votes, findings, verdict)


def _vote_as_data(jury: Jury, place: int, finding: Finding) -> dict[str, JSON]:
    vote: dict[str, JSON] = {"juror": jury.jurors[place].name, "status": finding.status, "score": finding.score}
    vote |= {
        "feedback": finding.feedback,
        "details": {k: v for k, v in finding.details.items() if k not in QUESTION_KEYS},
    }
    vote |= {"address": address} if (address := jury.jurors[place].address) else {}
    return vote | ({"worth": jury.worths[place]._asdict()} if jury.worths else {})


def _total_usage(jury: Jury, askings: list[dict[str, JSON]]) -> dict[str, JSON]:
    """Return `details.judge` of a jury: the sum over all requests, as far as it is known."""

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


def _pairwise(votes: Sequence[Vote], findings: dict[int, Finding], verdict: bool | None) -> dict[str, JSON]:
    """Return the winner of a comparison, as a single judge reports it: the one most of the deciding side named."""
    named = [
        finding.details["pairwise"]["winner"]
        for place, finding in findings.items()
        if "pairwise" in finding.details and votes[place].passes is verdict and verdict is not None
    ]
    compared = [finding.details["pairwise"] for finding in findings.values() if "pairwise" in finding.details]
    if not compared:
        return {}
    is_consistent = all(one["position_consistent"] for one in compared)
    wins, ties = named.count("candidate"), named.count("tie")
    winner = None if verdict is None else "baseline" if not verdict else "candidate" if wins > ties else "tie"
    return {"mode": "pairwise", "pairwise": {"winner": winner, "position_consistent": is_consistent}}
