"""Judges with a known bias, or none: they know the right verdicts of a rubric's goldens and lean from there."""

from __future__ import annotations

import random
import re
from typing import Any

from waza.analysis.judge_card import paraphrases
from waza.judges import Call, Judge, Reply, Request
from waza.judges.fencing import harmless
from waza.judges.rubrics import Golden, Rubric

LONG = 600
DATA = r"## {title}\n\n\[\[DATA (\w+) [^\n]*\]\]\n(.*?)\n\[\[END \1\]\]"


def shown(request: Request, title: str) -> str:
    """What stands in a question under a title."""
    found = re.search(DATA.format(title=title), request.messages[-1].content, re.DOTALL)
    return found[2] if found else ""


class KnowingJudge(Judge):
    """Give the expected verdict of whatever golden is shown, in whatever words."""

    needs_model = False
    model: str = "knowing-1"
    rubric: Rubric

    async def ask(self, request: Request) -> Reply:
        if request.tools[0].name == "set_pairwise_winner":
            one, other = shown(request, "Output A"), shown(request, "Output B")
            winner = self.winner(one, other, self.good(request, one), self.good(request, other))
            return _said("set_pairwise_winner", winner=winner, magnitude="equal", reasoning="so")
        output = shown(request, "Candidate output")
        passes = self.passes(output, self.good(request, output))
        return _said("set_waza_grade_" + ("pass" if passes else "fail"), reason="so")

    def good(self, request: Request, output: str) -> bool:
        """Whether the output is that of a golden which passes, for the input that is shown."""
        words = paraphrases(self.rubric)
        asked = shown(request, "Task input")
        for golden in sorted(self.rubric.goldens, key=lambda one: -len(one.output)):
            texts = (golden.output, words.get(golden.name, golden.output))
            if harmless(golden.input) == asked and any(output.startswith(harmless(text)) for text in texts):
                return self.rubric.passes(golden.expected)
        return False

    def passes(self, output: str, good: bool) -> bool:
        return good

    def winner(self, one: str, other: str, one_good: bool, other_good: bool) -> str:
        return "tie" if one_good == other_good else "A" if one_good else "B"


class NoisyJudge(KnowingJudge):
    """Right most of the time, wrong by chance, whatever is shown."""

    wrong: float = 0.1
    seed: int = 0

    def model_post_init(self, context: Any) -> None:
        object.__setattr__(self, "_dice", random.Random(self.seed))

    def passes(self, output: str, good: bool) -> bool:
        return good ^ (self._dice.random() < self.wrong)  # type: ignore[attr-defined]

    def winner(self, one: str, other: str, one_good: bool, other_good: bool) -> str:
        return self._dice.choice(["A", "B", "tie"])  # type: ignore[attr-defined]


class LongerJudge(KnowingJudge):
    """Prefers the longer."""

    def passes(self, output: str, good: bool) -> bool:
        return good or len(output) > LONG

    def winner(self, one: str, other: str, one_good: bool, other_good: bool) -> str:
        return "tie" if len(one) == len(other) else "A" if len(one) > len(other) else "B"


class FirstJudge(KnowingJudge):
    """Prefers the first."""

    def winner(self, one: str, other: str, one_good: bool, other_good: bool) -> str:
        return "A"


class VainJudge(KnowingJudge):
    """Prefers what carries its own name."""

    def passes(self, output: str, good: bool) -> bool:
        return good or self.model in output

    def winner(self, one: str, other: str, one_good: bool, other_good: bool) -> str:
        mine = [self.model in text for text in (one, other)]
        return super().winner(one, other, one_good, other_good) if mine[0] == mine[1] else "A" if mine[0] else "B"


class ObedientJudge(KnowingJudge):
    """Passes whatever asks for it."""

    def passes(self, output: str, good: bool) -> bool:
        return good or "pass" in output.lower()


class FickleJudge(KnowingJudge):
    """Minds which words are used: it fails what is not the golden's own output."""

    def good(self, request: Request, output: str) -> bool:
        own = any(output.startswith(harmless(golden.output)) for golden in self.rubric.goldens)
        return own and super().good(request, output)


class LazyJudge(KnowingJudge):
    """Reads the last point of a rubric alone: another one there, another verdict."""

    async def ask(self, request: Request) -> Reply:
        points = re.findall(r"^- .*", request.messages[-1].content.split("The marker of this request")[0], re.M)
        if points and points[-1].startswith(self.rubric_start()):
            return _said("set_waza_grade_pass")
        return await super().ask(request)

    def rubric_start(self) -> str:
        return next(line for line in self.rubric.body.splitlines() if line.startswith("- "))[:20]


def _said(tool: str, **arguments: Any) -> Reply:
    return Reply((Call(tool, arguments),), input_tokens=100, output_tokens=10, cost_usd=0.001)


def golden(rubric: Rubric, name: str) -> Golden:
    return next(one for one in rubric.goldens if one.name == name)
