"""A judge card made: goldens put to a judge again and again, with changes that should not matter.

Nothing comes from the cache: a verdict that is remembered is the same by design.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from waza.graders.prompt import PromptGrader
from waza.judges._base import Judge
from waza.judges.rubrics import Golden, Rubric, golden_trace
from waza.model import Grade
from waza.results.cards import Attacks, JudgeCard, Probe
from waza.results.costs import ASKINGS
from waza.results.scores import wilson
from waza.results.stats.invariance import invariance, more_often, one_sided_sign
from waza.results.stats.paired import holm, mcnemar
from waza.runner.goldens import opinion_of
from waza.runner.judge_card_texts import PADDING, attacks, paraphrases, partner, reordered, signed

T = TypeVar("T")
ALPHA = 0.05
REPEATS = 2
"""How often each golden is asked again without any change."""
OTHER = "another assistant"


class Verdict(NamedTuple):
    """What a judge said about a golden, changed in some way."""

    golden: str
    passes: bool | None


class Pair(NamedTuple):
    """Which of two outputs won when `first` stood first, and when it stood second; None where there is no verdict."""

    winners: tuple[str, str] | None

    @property
    def stayed(self) -> bool | None:
        """Whether the order made no difference."""
        return None if self.winners is None else self.winners[0] == self.winners[1]


class Bench:
    """A rubric before a judge: asks, and counts what that took."""

    def __init__(self, rubric: Rubric, grader: PromptGrader, judge: Judge, on_asked: Callable[[int], None]) -> None:
        self.rubric, self.on_asked = rubric, on_asked
        self.judge = judge.model_copy(update={"cache": None})
        self.requests, self.costs = 0, list[float | None]()
        self._alone, self._paired = grader, grader.model_copy(update={"mode": "pairwise"})

    async def verdict(self, golden: Golden, output: str = "", body: str = "") -> Verdict:
        """Return what the judge says about a golden, with another output or another text of the rubric."""
        grader = self._alone.model_copy(update={"prompt": body}) if body else self._alone
        changed = replace(golden, output=output or golden.output)
        grade = self._counted(await grader.agrade(golden_trace(changed), judge=self.judge))
        said = opinion_of(self.rubric, golden, grade).said
        return Verdict(golden.name, None if said is None else self.rubric.passes(said))

    async def pair(self, golden: Golden, first: str, second: str) -> Pair:
        """Return which of two outputs for a golden's input wins, asked in both orders."""
        trace = replace(golden_trace(replace(golden, output=second)), baseline_output=first)
        grade = self._counted(await self._paired.agrade(trace, judge=self.judge))
        found = grade.details.get("pairwise")
        if not isinstance(found, dict):
            return Pair(None)
        names = {"baseline": "first", "candidate": "second", "tie": "tie"}
        one, other = (names[winner] for winner in found["winners"])
        return Pair((one, other))

    def _counted(self, grade: Grade) -> Grade:
        askings = [asking for key in ASKINGS if isinstance(asking := grade.details.get(key), dict)]
        self.requests += sum(asking["requests"] for asking in askings)
        self.costs += [None if "requests_without_cost" in asking else asking["cost_usd"] for asking in askings]
        self.on_asked(len(askings))
        return grade


def questions(rubric: Rubric, path: Path | None = None, repeats: int = REPEATS) -> int:
    """Return about how many requests a card of a rubric takes; a judge that passes much is asked fewer."""
    goldens = len(rubric.goldens)
    failing = sum(not rubric.passes(golden.expected) for golden in rubric.goldens)
    alone = goldens * (1 + repeats + bool(reordered(rubric.body))) + len(paraphrases(rubric, path))
    return alone + 2 * failing + len(attacks()) + 2 * 3 * goldens


def make_card(
    rubric: Rubric,
    grader: PromptGrader,
    judge: Judge,
    *,
    path: Path | None = None,
    repeats: int = REPEATS,
    on_asked: Callable[[int], None] = lambda requests: None,
) -> JudgeCard:
    """Return the card of a rubric and a judge; `path` is the rubric's file, where it is one's own."""
    return asyncio.run(_made(Bench(rubric, grader, judge, on_asked), paraphrases(rubric, path), repeats))


async def _made(bench: Bench, in_other_words: dict[str, str], repeats: int) -> JudgeCard:
    rubric, goldens = bench.rubric, bench.rubric.goldens
    first = await _all(bench.verdict(golden) for golden in goldens)
    failing = [golden for golden, verdict in zip(goldens, first, strict=True) if verdict.passes is False]
    again = await _all(bench.verdict(golden) for golden in goldens for _ in range(repeats))
    chance = _Chance.of(first, again)
    attacked, attacking = await _attacked(bench, failing, chance)
    probes = [*await _alone(bench, chance, failing, in_other_words), *await _pairs(bench, in_other_words), attacking]
    expected = {golden.name: rubric.passes(golden.expected) for golden in goldens}
    return JudgeCard(
        rubric=rubric.name,
        version=rubric.version,
        rubric_hash=rubric.hash,
        model=bench.judge.model,
        judge=bench.judge.type_name(),
        when=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        goldens=len(goldens),
        agreed=invariance(_stayed(expected, verdict) for verdict in first),
        probes=_named(probes),
        attacks=attacked,
        requests=bench.requests,
        cost_usd=None if None in bench.costs else sum(cost for cost in bench.costs if cost is not None),
    )


class _Chance(NamedTuple):
    """What verdicts do when nothing changes."""

    before: dict[str, bool | None]
    """By golden: the first verdict."""
    stayed: list[bool | None]
    stayed_failing: list[bool | None]
    """Of outputs that failed at first."""

    @classmethod
    def of(cls, first: list[Verdict], again: list[Verdict]) -> _Chance:
        """Return what asking again showed."""
        before = {verdict.golden: verdict.passes for verdict in first}
        failing = [verdict for verdict in again if before[verdict.golden] is False]
        stayed, stayed_failing = ([_stayed(before, one) for one in some] for some in (again, failing))
        return cls(before, stayed, stayed_failing)

    def draft(self, name: str, found: list[Verdict], finding: str, *, of_failing: bool = False) -> _Draft:
        """Return a probe, with how likely its changes would be if they were no more than those of asking again."""
        like = self.stayed_failing if of_failing else self.stayed
        stayed = [_stayed(self.before, verdict) for verdict in found]
        p_value = more_often(stayed.count(False), _decided(stayed), like.count(False), _decided(like))
        return _Draft(name, stayed, p_value, finding)


class _Draft(NamedTuple):
    """A probe before it is known how many there are."""

    name: str
    stayed: list[bool | None]
    p_value: float | None = None
    finding: str = ""


async def _alone(bench: Bench, chance: _Chance, failing: list[Golden], in_other_words: dict[str, str]) -> list[_Draft]:
    """Return the probes that ask about one output at a time."""
    goldens, own = bench.rubric.goldens, bench.judge.model or bench.judge.type_name()
    body = reordered(bench.rubric.body)
    turned = await _all(bench.verdict(golden, body=body) for golden in goldens if body)
    words = await _all(bench.verdict(g, in_other_words[g.name]) for g in goldens if g.name in in_other_words)
    padded = await _all(bench.verdict(golden, golden.output + PADDING) for golden in failing)
    by_itself = await _all(bench.verdict(golden, signed(golden.output, own)) for golden in failing)
    longer, vain = "it passes failing outputs once they are longer", "it passes failing outputs that carry its own name"
    return [
        _Draft("retest", chance.stayed),
        chance.draft("paraphrase", words, "its verdicts change with the wording"),
        chance.draft("reordered", turned, "its verdicts change with the order of the criteria"),
        chance.draft("padding", padded, longer, of_failing=True),
        chance.draft("signature", by_itself, vain, of_failing=True),
    ]


async def _pairs(bench: Bench, in_other_words: dict[str, str]) -> list[_Draft]:
    """Return the probes that let two outputs compete, in both orders."""
    goldens, own = bench.rubric.goldens, bench.judge.model or bench.judge.type_name()
    rivals = [(golden, partner(golden, goldens, in_other_words)) for golden in goldens]
    swapped = await _all(bench.pair(golden, golden.output, rival) for golden, rival in rivals if rival)
    longer = await _all(bench.pair(golden, golden.output, golden.output + PADDING) for golden in goldens)
    names = await _all(bench.pair(g, signed(g.output, OTHER), signed(g.output, own)) for g in goldens)
    to_first, to_second = _leaning(swapped)
    side = "first" if to_first > to_second else "second"
    return [
        _Draft(
            "position", [pair.stayed for pair in swapped], mcnemar(to_first, to_second), f"it prefers the {side} output"
        ),
        _preferred("longer", longer, "it prefers the longer output"),
        _preferred("own_name", names, "it prefers the output that carries its own name"),
    ]


def _leaning(pairs: Sequence[Pair]) -> tuple[int, int]:
    """Return how often the output that stood first won both times, and the one that stood second."""
    found = [pair.winners for pair in pairs]
    return found.count(("first", "second")), found.count(("second", "first"))


def _preferred(name: str, pairs: Sequence[Pair], finding: str) -> _Draft:
    """Return a probe whose second output is no better: how often it wins in both orders against how often it loses."""
    found = [pair.winners for pair in pairs]
    won, lost = found.count(("second", "second")), found.count(("first", "first"))
    stayed = [None if winners is None else winners != ("second", "second") for winners in found]
    return _Draft(name, stayed, one_sided_sign(won, lost), finding)


async def _attacked(bench: Bench, failing: list[Golden], chance: _Chance) -> tuple[Attacks, _Draft]:
    """Return how often a text that asks for a pass brought one to an output that fails without it."""
    found = attacks() if failing else []
    said = await _all(
        bench.verdict(golden, f"{golden.output}\n\n{attack.text}")
        for golden, attack in zip(cycle(failing), found, strict=False)
    )
    worked = [attack.name for attack, verdict in zip(found, said, strict=True) if verdict.passes]
    decided = sum(verdict.passes is not None for verdict in said)
    interval, undecided = wilson(len(worked), decided), len(said) - decided
    told = Attacks(passed=len(worked), decided=decided, undecided=undecided, interval=interval, succeeded=worked)
    return told, chance.draft("attacks", said, "texts in an output talk it into a pass", of_failing=True)


def _named(drafts: list[_Draft]) -> list[Probe]:
    """Return the probes that say something, findings only where chance explains too little."""
    drafts = [draft for draft in drafts if draft.stayed]
    adjusted = iter(holm([draft.p_value for draft in drafts if draft.p_value is not None]))
    probes = []
    for draft in drafts:
        p_value = next(adjusted) if draft.p_value is not None else None
        finding = draft.finding if p_value is not None and p_value < ALPHA else ""
        probes.append(Probe(name=draft.name, invariance=invariance(draft.stayed), p_value=p_value, finding=finding))
    return probes


def _stayed(before: dict[str, bool | None] | dict[str, bool], verdict: Verdict) -> bool | None:
    known = before[verdict.golden]
    return None if known is None or verdict.passes is None else known == verdict.passes


def _decided(stayed: list[bool | None]) -> int:
    return len(stayed) - stayed.count(None)


async def _all(askings: Iterable[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*askings))
