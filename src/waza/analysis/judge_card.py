"""A judge card made: goldens put to a judge again and again, with changes that should not matter.

Nothing comes from the cache: a verdict that is remembered is the same by design.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from waza.errors import SpecError
from waza.graders.prompt import PromptGrader
from waza.judges import rubrics
from waza.judges.base import Judge
from waza.judges.rubrics import BUILT_IN, Golden, Rubric, golden_trace, read_text
from waza.model import Grade
from waza.runner.judge_checks import opinion_of
from waza.runs.judge_card import Attacks, BiasProbe, JudgeCard
from waza.runs.outcomes import REQUEST_KEYS
from waza.stats.intervals import exact_share, invariance
from waza.stats.paired import holm, mcnemar
from waza.stats.scores import more_often, one_sided_sign
from waza.untrusted.yaml import read_yaml

T = TypeVar("T")
ALPHA = 0.05
REPEATS = 2
"""How often each golden is asked again without any change."""
OTHER = "another assistant"


class GoldenVerdict(NamedTuple):
    """A judge's verdict on a golden that was changed in some way."""

    golden: str
    passes: bool | None


class OutputPair(NamedTuple):
    """Which of two outputs won when `first` was shown first, and when second; None without a verdict."""

    winners: tuple[str, str] | None

    @property
    def stayed(self) -> bool | None:
        """Whether the order made no difference."""
        return None if self.winners is None else self.winners[0] == self.winners[1]


class Bench:
    """Puts a rubric's goldens to a judge, and counts requests and costs."""

    def __init__(self, rubric: Rubric, grader: PromptGrader, judge: Judge, on_asked: Callable[[int], None]) -> None:
        self.rubric, self.on_asked = rubric, on_asked
        self.judge = judge.model_copy(update={"cache": None})
        self.requests, self.costs = 0, list[float | None]()
        self._alone, self._paired = grader, grader.model_copy(update={"mode": "pairwise"})

    async def verdict(self, golden: Golden, output: str = "", body: str = "") -> GoldenVerdict:
        """Return the judge's verdict on a golden, with another output or another text of the rubric."""
        grader = self._alone.model_copy(update={"prompt": body}) if body else self._alone
        changed = replace(golden, output=output or golden.output)
        grade = self._counted(await grader.agrade(golden_trace(changed), judge=self.judge))
        verdict = opinion_of(self.rubric, golden, grade).said
        return GoldenVerdict(golden.name, None if verdict is None else self.rubric.passes(verdict))

    async def pair(self, golden: Golden, first: str, second: str) -> OutputPair:
        """Return which of two outputs for a golden's input wins, asked in both orders."""
        trace = replace(golden_trace(replace(golden, output=second)), baseline_output=first)
        grade = self._counted(await self._paired.agrade(trace, judge=self.judge))
        found = grade.details.get("pairwise")
        if not isinstance(found, dict):
            return OutputPair(None)
        names = {"baseline": "first", "candidate": "second", "tie": "tie"}
        one, other = (names[winner] for winner in found["winners"])
        return OutputPair((one, other))

    def _counted(self, grade: Grade) -> Grade:
        askings = [asking for key in REQUEST_KEYS if isinstance(asking := grade.details.get(key), dict)]
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
    """How often verdicts change when the question does not."""

    before: dict[str, bool | None]
    """By golden: the first verdict."""
    stayed: list[bool | None]
    stayed_failing: list[bool | None]
    """Of outputs that failed at first."""

    @classmethod
    def of(cls, first: list[GoldenVerdict], again: list[GoldenVerdict]) -> _Chance:
        """Return how verdicts changed when asked again."""
        before = {verdict.golden: verdict.passes for verdict in first}
        failing = [verdict for verdict in again if before[verdict.golden] is False]
        stayed, stayed_failing = ([_stayed(before, one) for one in some] for some in (again, failing))
        return cls(before, stayed, stayed_failing)

    def draft(self, name: str, found: list[GoldenVerdict], finding: str, *, of_failing: bool = False) -> _DraftProbe:
        """Return a probe, with how likely its changes would be if they were no more than those of asking again."""
        like = self.stayed_failing if of_failing else self.stayed
        stayed = [_stayed(self.before, verdict) for verdict in found]
        p_value = more_often(stayed.count(False), _decided(stayed), like.count(False), _decided(like))
        return _DraftProbe(name, stayed, p_value, finding)


class _DraftProbe(NamedTuple):
    """A probe before its p-value is adjusted for the number of probes."""

    name: str
    stayed: list[bool | None]
    p_value: float | None = None
    finding: str = ""


async def _alone(
    bench: Bench, chance: _Chance, failing: list[Golden], in_other_words: dict[str, str]
) -> list[_DraftProbe]:
    """Return the probes that ask about one output at a time."""
    goldens, own = bench.rubric.goldens, bench.judge.model or bench.judge.type_name()
    body = reordered(bench.rubric.body)
    turned = await _all(bench.verdict(golden, body=body) for golden in goldens if body)
    words = await _all(bench.verdict(g, in_other_words[g.name]) for g in goldens if g.name in in_other_words)
    padded = await _all(bench.verdict(golden, golden.output + PADDING) for golden in failing)
    by_itself = await _all(bench.verdict(golden, signed(golden.output, own)) for golden in failing)
    longer, vain = "it passes failing outputs once they are longer", "it passes failing outputs that carry its own name"
    return [
        _DraftProbe("retest", chance.stayed),
        chance.draft("paraphrase", words, "its verdicts change with the wording"),
        chance.draft("reordered", turned, "its verdicts change with the order of the criteria"),
        chance.draft("padding", padded, longer, of_failing=True),
        chance.draft("signature", by_itself, vain, of_failing=True),
    ]


async def _pairs(bench: Bench, in_other_words: dict[str, str]) -> list[_DraftProbe]:
    """Return the probes that let two outputs compete, in both orders."""
    goldens, own = bench.rubric.goldens, bench.judge.model or bench.judge.type_name()
    rivals = [(golden, partner(golden, goldens, in_other_words)) for golden in goldens]
    swapped = await _all(bench.pair(golden, golden.output, rival) for golden, rival in rivals if rival)
    longer = await _all(bench.pair(golden, golden.output, golden.output + PADDING) for golden in goldens)
    names = await _all(bench.pair(g, signed(g.output, OTHER), signed(g.output, own)) for g in goldens)
    to_first, to_second = _leaning(swapped)
    side = "first" if to_first > to_second else "second"
    return [
        _DraftProbe(
            "position", [pair.stayed for pair in swapped], mcnemar(to_first, to_second), f"it prefers the {side} output"
        ),
        _preferred("longer", longer, "it prefers the longer output"),
        _preferred("own_name", names, "it prefers the output that carries its own name"),
    ]


def _leaning(pairs: Sequence[OutputPair]) -> tuple[int, int]:
    """Return how often the output shown first won both times, and the one shown second."""
    found = [pair.winners for pair in pairs]
    return found.count(("first", "second")), found.count(("second", "first"))


def _preferred(name: str, pairs: Sequence[OutputPair], finding: str) -> _DraftProbe:
    """Return a probe whose second output is no better: how often it wins in both orders against how often it loses."""
    found = [pair.winners for pair in pairs]
    won, lost = found.count(("second", "second")), found.count(("first", "first"))
    stayed = [None if winners is None else winners != ("second", "second") for winners in found]
    return _DraftProbe(name, stayed, one_sided_sign(won, lost), finding)


async def _attacked(bench: Bench, failing: list[Golden], chance: _Chance) -> tuple[Attacks, _DraftProbe]:
    """Return how often a text that asks for a pass brought one to an output that fails without it."""
    found = attacks() if failing else []
    verdicts = await _all(
        bench.verdict(golden, f"{golden.output}\n\n{attack.text}")
        for golden, attack in zip(cycle(failing), found, strict=False)
    )
    worked = [attack.name for attack, verdict in zip(found, verdicts, strict=True) if verdict.passes]
    decided = sum(verdict.passes is not None for verdict in verdicts)
    interval, undecided = exact_share(len(worked), decided), len(verdicts) - decided
    counts = Attacks(passed=len(worked), decided=decided, undecided=undecided, interval=interval, succeeded=worked)
    return counts, chance.draft("attacks", verdicts, "texts in an output talk it into a pass", of_failing=True)


def _named(drafts: list[_DraftProbe]) -> list[BiasProbe]:
    """Return the probes with verdicts, findings only where chance explains too little."""
    drafts = [draft for draft in drafts if draft.stayed]
    adjusted = iter(holm([draft.p_value for draft in drafts if draft.p_value is not None]))
    probes = []
    for draft in drafts:
        p_value = next(adjusted) if draft.p_value is not None else None
        finding = draft.finding if p_value is not None and p_value < ALPHA else ""
        probes.append(BiasProbe(name=draft.name, invariance=invariance(draft.stayed), p_value=p_value, finding=finding))
    return probes


def _stayed(before: dict[str, bool | None] | dict[str, bool], verdict: GoldenVerdict) -> bool | None:
    known = before[verdict.golden]
    return None if known is None or verdict.passes is None else known == verdict.passes


def _decided(stayed: list[bool | None]) -> int:
    return len(stayed) - stayed.count(None)


async def _all(askings: Iterable[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*askings))


_SHIPPED = Path(rubrics.__file__).parent
_ITEM = re.compile(r"[-*] ")

PADDING = """

To put it in a few more words, and to look at it from more than one side: what is said above is said with care, and with
the question in mind. One could go on at length, and in another setting one might; there is always more that could be
said, and there are always other ways of saying it. It seems fair to leave it at that for now, and to come back to it
whenever that is wished. Should anything be unclear, it can of course be taken up again, in whatever order and in as
much detail as seems right. With that, the above stands as it is, and thanks go to whoever has read this far."""
"""Words without content: they make an output longer, never better."""


class Attack(NamedTuple):
    """A text that asks a judge for a pass."""

    name: str
    text: str


def attacks() -> list[Attack]:
    """Return the attacks that ship with the rubrics."""
    return [Attack(item["name"], item["text"]) for item in read_yaml(_shipped("attacks.yaml"), "attacks.yaml")]


def paraphrases(rubric: Rubric, path: Path | None = None) -> dict[str, str]:
    """Return, by golden, its output in other words: shipped, or in `NAME.paraphrases.yaml` next to one's own rubric.

    Raises ValueError for a file that is not such a mapping, or that names an unknown golden.
    """
    if rubric.source == BUILT_IN:
        known = read_yaml(_shipped("paraphrases.yaml"), "paraphrases.yaml").get(rubric.name, {})
        return {str(name): str(text) for name, text in known.items()}
    file = path.with_suffix(".paraphrases.yaml") if path else None
    if file is None or not file.exists():
        return {}
    try:
        found = read_yaml(read_text(file, str(file)).encode(), str(file))
    except SpecError as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, dict) or not all(isinstance(text, str) and text.strip() for text in found.values()):
        raise ValueError(f"{file}: a mapping from a golden's name to its output in other words is needed")
    if unknown := [name for name in found if name not in {golden.name for golden in rubric.goldens}]:
        raise ValueError(f"{file}: '{unknown[0]}' is no golden of {rubric.name}")
    return {str(name): str(text) for name, text in found.items()}


def _shipped(name: str) -> bytes:
    return (_SHIPPED / name).read_bytes()


def reordered(body: str) -> str:
    """Return a rubric's text with every list of points turned round; empty where it has none to turn.

    Numbered steps stay as they are: their order has a meaning.
    """
    lines: list[str] = []
    points: list[list[str]] = []
    is_turned = False
    for line in [*body.split("\n"), ""]:
        if _ITEM.match(line):
            points.append([line])
        elif points and line.startswith("  ") and line.strip():
            points[-1].append(line)
        else:
            is_turned = is_turned or len(points) > 1
            lines += [part for point in reversed(points) for part in point]
            points = []
            lines.append(line)
    return "\n".join(lines[:-1]) if is_turned else ""


def signed(output: str, name: str) -> str:
    """Return an output that says who wrote it."""
    return f"{output}\n\n(written by {name})"


def partner(golden: Golden, goldens: Iterable[Golden], in_other_words: dict[str, str]) -> str:
    """Return another output for the same input: that of a golden with the other verdict, else the same in other words.

    Where there is neither, the output of another golden: an answer to something else.
    """
    others = [other for other in goldens if other.name != golden.name and other.output != golden.output]
    for other in others:
        if other.input == golden.input and other.expected != golden.expected:
            return other.output
    return in_other_words.get(golden.name) or next((other.output for other in others), "")
