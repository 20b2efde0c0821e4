"""The `human` grader: people judge the agent's work, now or later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from msgspec.structs import replace
from pydantic import PrivateAttr, model_validator

from waza.errors import StoreError, Undecidable
from waza.graders.base import Finding, Grader, Least, Text
from waza.model import JSON, Check, Trace
from waza.runs.verdicts import VERDICTS, HumanVerdict, evidence_of, question_of, standing_in

WAITING = "no person has given a verdict yet; give one with `waza review`"
_EVIDENCE = "human_evidence"
"""The key of `Trace.extra` with the hash of the evidence during grading."""


class HumanGrader(Grader):
    """Let people decide: undecided until a person gives a verdict with `waza review`, then graded again for free.

    A verdict counts for every trial with the same input, source context, output, tool calls and files, as long as the
    question stays the same. Every reviewer must pass it: the score is the share of those who do, and one fail decides.

    ```yaml
    - type: human
      name: sendable
      config:
        instructions: Would you send this answer to a customer as it is?
        criteria:
          - it is polite
          - it promises nothing that the policy does not
    ```
    """

    asks_people: ClassVar[bool] = True
    depends_on_people: ClassVar[bool] = True
    all_passed: ClassVar[str] = "Every reviewer passes it"
    needs_one_of: ClassVar[tuple[str, ...]] = ("instructions", "criteria")

    instructions: str = ""
    """The question to the person."""
    criteria: list[Text] = []
    """Points to check, shown as a list."""
    min_reviewers: Least = 1
    """How many people must have given their verdict."""

    _source: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if not "".join([self.instructions, *self.criteria]).strip():
            raise ValueError("the instructions are blank; say what the person should check")
        return self

    @property
    def question(self) -> str:
        """A hash of the question: verdicts on another question do not count."""
        return question_of(self.instructions.strip(), *self.criteria)

    def with_source(self, source: str) -> Self:
        """Return this grader for a task with a source context, which people see with the output."""
        made = self.model_copy()
        made._source = source
        return made

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the verdict of people; the evidence is hashed once, as files may be large."""
        return super().evaluate(
            replace(trace, extra=trace.extra | {_EVIDENCE: evidence_of(trace, self._source)}), judge
        )

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check for each person who gave a verdict, and one where more are needed."""
        given = self._given(trace)
        for verdict in given:
            who, passed = verdict.reviewer or "a person", verdict.verdict == "pass"
            yield Check(
                passed, f"{who} passes it", "" if passed else f"{who} fails it: {verdict.reason or 'no reason'}"
            )
        if (lacking := self.min_reviewers - len(given)) > 0:
            fact = f"{lacking} more to give a verdict with `waza review`" if given else WAITING
            yield Check(None, "enough people gave a verdict", fact)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return `human`: the question, the evidence and the verdict of each person."""
        verdicts = [
            {"reviewer": one.reviewer, "verdict": one.verdict, "reason": one.reason, "at": one.at}
            for one in self._given(trace)
        ]
        question: dict[str, JSON] = {"evidence": trace.extra[_EVIDENCE], "question": self.question}
        question |= {"instructions": self.instructions, "criteria": list(self.criteria)}
        return {"human": question | {"verdicts": verdicts}}

    def _given(self, trace: Trace) -> list[HumanVerdict]:
        """Return each person's verdict on this evidence; raise Undecidable where the file cannot be read."""
        try:
            found = standing_in(self.folder.base / VERDICTS).get(
                (self.name or self.type_name(), trace.extra[_EVIDENCE]), []
            )
        except StoreError as error:
            raise Undecidable(str(error)) from None
        return [verdict for verdict in found if verdict.question == self.question]
