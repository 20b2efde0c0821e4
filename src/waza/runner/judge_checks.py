"""Checks of a judge: goldens with known verdicts, canaries before a run, stored judge cards, signs of life."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from waza.errors import JudgeError, SpecError, StoreError
from waza.files.paths import SpecFolder
from waza.graders.base import Grader
from waza.graders.judging import JudgedGrader
from waza.graders.prompt import PromptGrader
from waza.judges.asking import (
    Question,
    Unanswered,
    answer,
    key_of,
    read_cached,
    request_for,
    store_reply,
    wait_for_judge,
)
from waza.judges.base import Judge
from waza.judges.fencing import Data, keyed_hash
from waza.judges.rubrics import Golden, Rubric, golden_trace
from waza.judges.scripted import ScriptedJudge
from waza.judges.verdict_tools import PASS_FAIL
from waza.model import JSON, Grade
from waza.runs.canaries import KEY, PROBES, Canary, Probe, canaries_as_data
from waza.runs.judge_card import CARDS, card_line, read_card
from waza.runs.outcomes import judge_spending
from waza.spending import metering
from waza.stats.intervals import exact_share
from waza.stats.scores import Interval
from waza.suites.judges import jurors_of, untrusted_host
from waza.suites.suite import EvalSpec

MOST_APART = 1
"""A score agrees with the expected one if it is on the same side of `pass_at` and at most this far away."""


class Opinion(Struct, frozen=True, kw_only=True):
    """A judge's verdict on one golden."""

    golden: str
    expected: str | int
    said: str | int | None
    """`pass`, `fail` or a score; None where the judge gave no verdict."""
    agrees: bool | None
    """None where the judge gave no verdict."""
    reason: str = ""


class Agreement(Struct, frozen=True, kw_only=True):
    """How often a judge came to the expected verdict; undecided goldens are counted separately."""

    agreed: int
    decided: int
    undecided: int
    interval: Interval | None
    """The Wilson 95 % interval of the share of the decided goldens that agree."""


def agreement(opinions: Sequence[Opinion]) -> Agreement:
    """Return how often the judge agreed."""
    agreed = sum(opinion.agrees is True for opinion in opinions)
    undecided = sum(opinion.agrees is None for opinion in opinions)
    decided = len(opinions) - undecided
    return Agreement(agreed=agreed, decided=decided, undecided=undecided, interval=exact_share(agreed, decided))


def oracle(rubric: Rubric, golden: Golden) -> ScriptedJudge:
    """Return a judge that answers one golden as expected: it proves that everything around a judge works, no more."""
    if rubric.scale == "1-5":
        expected = golden.expected
        score = expected if isinstance(expected, int) else 5 if expected == "pass" else 1
        call: dict[str, Any] = {"name": "set_waza_grade_score", "arguments": {"score": score, "reason": golden.name}}
    else:
        call = {"name": f"set_waza_grade_{golden.expected}", "arguments": {"reason": golden.name}}
    return ScriptedJudge([{"tool_calls": [call]}])


def put_goldens(
    rubric: Rubric,
    grader: PromptGrader,
    judge_for: Callable[[Rubric, Golden], Any],
    on_opinion: Callable[[Opinion], None] = lambda opinion: None,
) -> list[Opinion]:
    """Return the judge's verdict on each golden of a rubric, through the grader that uses it."""

    async def ask(golden: Golden) -> Opinion:
        grade = await grader.agrade(golden_trace(golden), judge=judge_for(rubric, golden))
        opinion = opinion_of(rubric, golden, grade)
        on_opinion(opinion)
        return opinion

    async def ask_all() -> list[Opinion]:
        return await asyncio.gather(*(ask(golden) for golden in rubric.goldens))

    return asyncio.run(ask_all())


def opinion_of(rubric: Rubric, golden: Golden, grade: Grade) -> Opinion:
    """Return the verdict on a golden that a grade contains."""
    said = _said(rubric, grade)
    agrees = None if said is None else _agree(rubric, golden.expected, said)
    reason = "; ".join(check.claim for check in grade.checks) if said == "pass" else grade.feedback
    return Opinion(golden=golden.name, expected=golden.expected, said=said, agrees=agrees, reason=reason)


def _said(rubric: Rubric, grade: Grade) -> str | int | None:
    if grade.status == "error":
        return None
    if rubric.scale == "1-5":
        return round(grade.score * 4) + 1
    return "pass" if grade.passed else "fail"


def _agree(rubric: Rubric, expected: str | int, said: str | int) -> bool:
    if rubric.passes(expected) != rubric.passes(said):
        return False
    return isinstance(expected, str) or isinstance(said, str) or abs(expected - said) <= MOST_APART


MOST = 12
"""The largest number of canaries of a run, whatever its rubrics."""


class RubricJudge(NamedTuple):
    """A rubric and one of the judges that use it."""

    rubric: Rubric
    grader: PromptGrader
    judge: Judge


def put_canaries(spec: EvalSpec, judge: Judge | None) -> list[Canary]:
    """Return the verdicts of a suite's judges on a few goldens of its rubrics; none where no judge is asked.

    A judge whose verdicts are written down beforehand is not asked: that would use them up.
    """
    asked = planned_canaries(spec, judge)

    async def all_of() -> list[Canary]:
        return list(await asyncio.gather(*(_put(seat, golden) for seat, golden in asked)))

    return wait_for_judge(all_of()) if asked else []


def planned_canaries(spec: EvalSpec, judge: Judge | None) -> list[tuple[RubricJudge, Golden]]:
    """Return which judge would be asked about which golden."""
    if judge is None or not spec.config.canaries:
        return []
    return list(islice(_asked(rubric_judges(spec, judge), spec.config.canaries), MOST))


def rubric_judges(spec: EvalSpec, judge: Judge) -> list[RubricJudge]:
    """Return each rubric with goldens that a suite uses, with each judge that uses it."""
    found: dict[tuple[str, str, str], RubricJudge] = {}
    for grader in judged_graders(spec.asking):
        rubric = grader.rubric_in_use
        if rubric is None or not rubric.goldens:
            continue
        for juror in grader.jurors:
            asked = (juror.judge or judge).for_run(None, judge)
            model = juror.model or asked.model
            if asked.is_cacheable:
                seat = RubricJudge(rubric, PromptGrader(rubric=grader.rubric, model=model, folder=grader.folder), asked)
                found.setdefault((rubric.hash, asked.endpoint, model), seat)
    return list(found.values())


def judged_graders(graders: Iterable[Grader]) -> Iterator[JudgedGrader]:
    """Yield the graders that ask a judge, those inside others too."""
    for grader in graders:
        if isinstance(grader, JudgedGrader):
            yield grader
        else:
            yield from judged_graders(grader.parts)


def _asked(seated: Sequence[RubricJudge], each: int) -> Iterator[tuple[RubricJudge, Golden]]:
    """Yield judges and goldens, of every rubric in turn."""
    chosen = [[(seat, golden) for golden in some(seat.rubric, each)] for seat in seated]
    for row in zip_longest(*chosen):
        yield from (item for item in row if item is not None)


def some(rubric: Rubric, count: int) -> list[Golden]:
    """Return `count` goldens of a rubric: one that fails, one that passes, and so on; the same ones every time."""
    passing = [golden for golden in rubric.goldens if rubric.passes(golden.expected)]
    failing = [golden for golden in rubric.goldens if not rubric.passes(golden.expected)]
    mixed = [golden for pair in zip_longest(failing, passing) for golden in pair if golden is not None]
    return mixed[:count]


async def _put(seat: RubricJudge, golden: Golden) -> Canary:
    grade = await seat.grader.agrade(golden_trace(golden), judge=seat.judge)
    opinion = opinion_of(seat.rubric, golden, grade)
    asking = grade.details.get("judge") or {}
    return Canary(
        rubric=seat.rubric.name,
        rubric_hash=seat.rubric.hash,
        golden=golden.name,
        judge=seat.judge.type_name(),
        model=seat.grader.model,
        expected=golden.expected,
        said=opinion.said,
        passes=None if opinion.said is None else seat.rubric.passes(opinion.said),
        agrees=opinion.agrees,
        answered_by=asking.get("answered_by"),
        cost_usd=asking.get("cost_usd"),
        reason=opinion.reason,
        spending=judge_spending([grade]),
    )


# One small request to each judge before the first trial that costs money: a wrong key is found then.

_REFUSED = ("401", "403", "404")
"""Kinds of failure that every request of the run would have."""


def probe_judges(spec: EvalSpec, judge: Judge) -> list[Probe]:
    """Ask every judge of a suite one small question and return what came of it.

    A judge with the same key that answered before is not asked, nor one whose answers are prepared. Raises SpecError
    where a key, an address or a model is wrong. Whoever does not answer for another reason may answer later.
    """
    asked: dict[tuple[str, str, str], tuple[Judge, str]] = {}
    for juror in jurors_of(spec.asking):
        own = (juror.judge or judge).for_run(judge.cache, judge)
        model = juror.model or own.model
        if own.is_cacheable:
            asked.setdefault((own.endpoint, own.key_variable, model), (own, model))

    async def all_of() -> list[Probe | None]:
        return list(await asyncio.gather(*(_probe(own, model) for own, model in asked.values())))

    return [probe for probe in wait_for_judge(all_of()) if probe is not None] if asked else []


async def _probe(judge: Judge, model: str) -> Probe | None:
    """Return the result of one request; None where this judge answered before with the same key."""
    request = request_for(Question(_PARTS, model), PASS_FAIL, model)
    name = key_of("probe", judge.identity(), model, keyed_hash("key", [os.environ.get(judge.key_variable, "")]))
    if read_cached(judge.cache, name).reply is not None:
        return None
    error = ""
    with metering() as meter:
        try:
            store_reply(judge.cache, name, await judge.model_copy(update={"retries": 0}).ask(request))
        except JudgeError as fault:
            if fault.kind in _REFUSED:
                raise SpecError(f"judge {model or judge.type_name()}: {fault}") from None
            error = str(fault)
    return Probe(judge=judge.type_name(), model=model, error=error, spending=meter.spending)


def about_judges(spec: EvalSpec, judge: Judge | None, *, probes: bool = False) -> dict[str, JSON]:
    """Return what a run stores about its judges in addition to verdicts: probes and canaries, put now, and cards.

    Raises SpecError where `probes` are to be put and a judge's key, address or model is wrong.
    """
    if judge is None:
        return {}
    probed: list[JSON] = msgspec.to_builtins(probe_judges(spec, judge)) if probes else []
    found = {PROBES: probed, KEY: canaries_as_data(put_canaries(spec, judge)), CARDS: known_cards(spec, judge)}
    return {key: value for key, value in found.items() if value}


def known_cards(spec: EvalSpec, judge: Judge) -> list[JSON]:
    """Return the card of each rubric and model of a suite that has one, with its summary line."""
    wanted: dict[tuple[str, str], str] = {}
    for grader in judged_graders(spec.asking):
        if rubric := grader.rubric_in_use:
            for juror in grader.jurors:
                wanted[rubric.hash, juror.model or (juror.judge or judge).model] = rubric.name
    found: list[JSON] = []
    for (rubric_hash, model), name in wanted.items():
        try:
            card = read_card(spec.folder.root, rubric_hash, model)
        except StoreError as error:
            found.append({"rubric": name, "model": model, "line": str(error)})
            continue
        if card is not None:
            found.append({"rubric": name, "model": model, "line": card_line(card), "card": msgspec.to_builtins(card)})
    return found


_ASKED = "Does the candidate output give the right answer? If so, call set_waza_grade_pass, else set_waza_grade_fail."
_PARTS: list[str | Data] = [_ASKED, Data("Task input", "What is two plus two?"), Data("Candidate output", "Four.")]


class JudgeHealth(NamedTuple):
    """Whether a judge's model answers, and how."""

    model: str
    is_alive: bool
    text: str


def check_judges_respond(spec: EvalSpec) -> Iterator[JudgeHealth]:
    """Ask every model that graders of the suite would ask, and yield whether it answered. Raises SpecError."""
    judge = spec.judge()
    if judge is None:
        return
    jurors = jurors_of(spec.asking)
    for model in dict.fromkeys(juror.model or judge.model for juror in jurors if juror.judge is None):
        yield _sign(judge, model, spec.folder)
    for juror in jurors:
        if juror.judge is not None:
            yield _sign(juror.judge, juror.model, spec.folder)


def _sign(judge: Judge, model: str, folder: SpecFolder) -> JudgeHealth:
    name = f"judge {judge.type_name()}" + (f" {model}" if model else "")
    if why := untrusted_host(judge, folder):
        return JudgeHealth(model, False, f"{name}: not asked: {why}")
    try:
        got = wait_for_judge(answer(judge, Question(_PARTS, model), PASS_FAIL))
    except Unanswered as error:
        cost = error.judge["cost_usd"]
        return JudgeHealth(model, False, f"{name}: {error}" + (f"; ${cost:.6f}" if cost else ""))
    facts = got.judge
    tokens = facts["tokens"]
    facts_shown = [f"answered in {facts['seconds']:.1f} s"]
    facts_shown += [f"by {facts['answered_by']}"] if facts["answered_by"] else []
    facts_shown += [f"{tokens['input']} + {tokens['output']} tokens"] if tokens["input"] is not None else []
    facts_shown += [f"${facts['cost_usd']:.6f}"] if facts["cost_usd"] else []
    facts_shown += ["after a reminder"] if facts["reminders"] else []
    if got.verdict.failures:
        facts_shown.append("but it called a right answer wrong: its verdicts may mean little")
    return JudgeHealth(model, True, f"{name}: {', '.join(facts_shown)}")
