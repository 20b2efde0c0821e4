"""The `prompt` grader: a model judges the agent's work and gives its verdict by a tool call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from msgspec.structs import replace
from pydantic import model_validator

from waza.errors import Undecidable
from waza.graders.base import Finding
from waza.graders.judging import JudgedGrader, shown_to_judge
from waza.judges.asking import JudgeAnswer, Question, Unanswered, answer
from waza.judges.fencing import Data
from waza.judges.quotes import quotes_of
from waza.judges.verdict_tools import PAIRWISE, Winner, reason_or_mark
from waza.model import JSON, Check, GradeStatus, Trace

_COMPARE = "Compare two outputs, A and B, for the same task by the criteria above. Their order means nothing."
_GONE = "the agent's session is gone: a judge can go on in it while its run lasts, not later; run the task again"
_SCORES = {"candidate": 1.0, "tie": 0.5, "baseline": 0.0}


class PromptGrader(JudgedGrader):
    """Let a judge decide by a prompt or a rubric; its verdict is a tool call, never text.

    The judge calls `set_waza_grade_pass` or `set_waza_grade_fail`: the score is the share of passes, and one fail
    decides. With `criteria` it must give one verdict on each. Without them the number of verdicts is open: a judge
    that answers one of two questions passes. With a `1-5` rubric it calls `set_waza_grade_score`, and the
    rubric's `pass_at` decides. A judge that cannot answer, or gives no verdict after one reminder, makes the grade an
    error. `pairwise` compares with another output, in two requests with the order swapped.

    ```yaml
    - type: prompt
      name: quality_check
      config:
        prompt: The answer goes to a customer who waits for a refund.
        criteria:
          - The answer is polite.
          - It names the date on which the money is paid.
    ```
    """

    mode: Literal["independent", "pairwise"] = "independent"
    """Judge the output by itself, or against that of another run (`--against`) or without the skill (`--baseline`)."""
    on_inconsistent: Literal["error", "tie"] = "error"
    """What a comparison is that changes with the order, with `mode: pairwise`: undecided, or the sum of both orders.

    With `tie` opposite winners are a tie, and a winner in one order with a tie in the other is that winner (as in
    JudgeBench). The consistent share is reported either way."""
    continue_session: bool = False
    """Let the agent itself judge, in a copy of its session which is read-only; only while the run lasts."""

    @model_validator(mode="after")
    def _compares_as_a_whole(self) -> Self:
        if self.mode == "pairwise" and self.criteria:
            raise ValueError(
                "mode: pairwise compares two outputs as a whole; it does not go with criteria (write them into the "
                "prompt, or compare by one grader for each)"
            )
        return self

    @model_validator(mode="after")
    def _has_two_orders(self) -> Self:
        if "on_inconsistent" in self.model_fields_set and self.mode != "pairwise":
            raise ValueError("'on_inconsistent' goes with mode: pairwise; leave it out, or compare with another output")
        return self

    @model_validator(mode="after")
    def _asks_agent_only(self) -> Self:
        others = {"judges": self.judges, "mode: pairwise": self.mode == "pairwise"}
        others["reasoning_effort, which is the agent's own"] = self.reasoning_effort
        if self.continue_session and (other := next((name for name, given in others.items() if given), "")):
            raise ValueError(f"continue_session asks the agent alone, about its own work; it does not go with {other}")
        return self

    @property
    def continues(self) -> bool:
        """Whether the agent itself is asked."""
        return self.continue_session

    async def _ask_judge(self, trace: Trace, judge: Any) -> Finding:
        if not self.continue_session:
            return await super()._ask_judge(trace, judge)
        if not getattr(judge, "continues", False):
            raise Undecidable(_GONE)
        found = await super()._ask_judge(trace, judge)
        return replace(found, details=found.details | {"continued_session": judge.about()})

    @property
    def pass_at(self) -> float | None:
        """The lowest score that passes: a tie, the rubric's `pass_at` on its scale; none for pass and fail."""
        if self.mode == "pairwise":
            return _SCORES["tie"]
        return (self._rubric.pass_at - 1) / 4 if self._rubric and self._rubric.scale == "1-5" else None

    async def consult(self, trace: Trace, judge: Any) -> Finding:
        """Return the judge's verdict on the output, by itself or against the baseline."""
        if self.mode == "pairwise":
            return await self._compare(trace, judge)
        parts = [self.question_text, *self.evidence(trace)]
        if self.pass_at is not None:
            return await self.ask_score(judge, parts, self.pass_at)
        return await self.ask_pass_fail(judge, parts)

    async def _compare(self, trace: Trace, judge: Any) -> Finding:
        """Return the verdict of two askings with the order swapped; one that changes with the order decides nothing."""
        if not trace.baseline_output:
            raise Undecidable("no baseline to compare with; name a run with --against RUN, or run with --baseline")
        orders = (("baseline", "candidate"), ("candidate", "baseline"))
        questions = [self._pair(trace, order) for order in orders]
        first = await answer(judge, questions[0], PAIRWISE)
        try:
            second = await answer(judge, questions[1], PAIRWISE)
        except Unanswered as error:
            askings: dict[str, JSON] = {"judge": first.judge, "judge_swapped": error.judge}
            return Finding("error", 0.0, str(error), details={"mode": "pairwise"} | self.question_details() | askings)
        winners = [_winner(got, order) for got, order in zip((first, second), orders, strict=True)]
        details: dict[str, JSON] = {"mode": "pairwise"} | self.question_details()
        details |= {"judge": first.judge, "judge_swapped": second.judge}
        both = [
            shown_to_judge(question.parts, quotes_of(got.verdict.evidence))
            for question, got in zip(questions, (first, second), strict=True)
        ]
        details |= both[0].details | both[1].details
        if quoted := [one | {"order": number} for number, shown in enumerate(both, 1) for one in shown.evidence]:
            details["evidence"] = quoted  # the letters of the outputs are those of each order
        finding = self._finding(first.verdict, second.verdict, winners, details)
        return replace(finding, feedback=finding.feedback + "".join(dict.fromkeys(shown.remark for shown in both)))

    def _finding(self, first: Winner, second: Winner, winners: list[str], details: dict[str, JSON]) -> Finding:
        """Return what the verdicts in both orders mean together."""
        is_consistent = winners[0] == winners[1]
        winner = winners[0] if is_consistent or self.on_inconsistent == "tie" else None
        if winner and not is_consistent:
            winner = _sum_of_orders(winners)
        decisive = second if winner == winners[1] != winners[0] else first
        magnitude = decisive.magnitude if winner in winners else "equal" if winner else None
        pairwise: dict[str, JSON] = {
            "winner": winner,
            "magnitude": magnitude,
            "reasoning": reason_or_mark(decisive.reasoning),
            "position_consistent": is_consistent,
            "winners": winners,
            "reasonings": [reason_or_mark(one.reasoning) for one in (first, second)],
        }
        details = details | {"pairwise": pairwise}
        claim, orders = (
            "the candidate is at least as good",
            f"{winners[0]} wins in one order, {winners[1]} in the other",
        )
        if winner is None:
            fact = f"inconclusive: {orders}"
            return Finding("error", 0.0, fact, [Check(None, claim, fact)], details)
        status: GradeStatus = "failed" if winner == "baseline" else "passed"
        feedback = f"pairwise: winner={winner}, magnitude={magnitude}: {pairwise['reasoning']}"
        feedback += "" if is_consistent else f" ({orders})"
        check = Check(status == "passed", claim, "" if status == "passed" else feedback)
        return Finding(status, _SCORES[winner], feedback, [check], details)

    def _pair(self, trace: Trace, order: tuple[str, str]) -> Question:
        texts = {"baseline": trace.baseline_output or "", "candidate": trace.output}
        parts: list[str | Data] = [self.question_text, _COMPARE, *self.evidence(trace)[:-1]]
        parts += [
            Data(f"Output {letter}", texts[who], self.output_budget) for letter, who in zip("AB", order, strict=True)
        ]
        return self.question(parts)


def _winner(got: JudgeAnswer[Winner], order: tuple[str, str]) -> str:
    letter = got.verdict.winner
    return "tie" if letter == "tie" else order["AB".index(letter)]


def _sum_of_orders(winners: Sequence[str]) -> str:
    """Return the winner over both orders: a tie where each side wins once."""
    total = sum(_SCORES[winner] - _SCORES["tie"] for winner in winners)
    return "candidate" if total > 0 else "baseline" if total < 0 else "tie"
