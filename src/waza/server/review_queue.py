"""The interface of the review page: outputs for people to review, and a way to grade a run again.

Whoever starts the server implements it: the dashboard itself knows no suites.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from waza.runs.verdicts import Answer, HumanVerdict, standing_in


class ReviewGrade(Protocol):
    """A grader's verdict on an output."""

    @property
    def said(self) -> Answer | None:
        """Pass or fail; None where it decided nothing."""


class ReviewItem(Protocol):
    """One output that a person may give a verdict on."""

    @property
    def task(self) -> str:
        """The task."""

    @property
    def trial(self) -> int:
        """The trial."""

    @property
    def grader(self) -> str:
        """The grader that asks."""

    @property
    def asked(self) -> str:
        """The question for the person."""

    @property
    def question(self) -> str:
        """The hash of the question."""

    @property
    def evidence(self) -> str:
        """The hash of the evidence."""

    @property
    def judged(self) -> ReviewGrade:
        """The grader's verdict, not shown before the person has answered."""

    def verdict(self, answer: Answer, reason: str = "", reviewer: str = "") -> HumanVerdict:
        """Return a person's answer as it is recorded."""


class Pile(NamedTuple):
    """The outputs of one run to review."""

    items: Sequence[ReviewItem]
    file: Path
    """Where verdicts are written."""

    def given(self, item: ReviewItem, reviewer: str) -> HumanVerdict | None:
        """Return a person's verdict on an output; None where there is none yet."""
        verdicts = standing_in(self.file).get((item.grader, item.evidence), [])
        return next((one for one in verdicts if one.reviewer == reviewer and one.question == item.question), None)


class ReviewQueue(Protocol):
    """Where outputs to review come from."""

    def pile(self, folder: Path, graders: Sequence[str]) -> Pile:
        """Return what `human` graders ask, or what the named graders have judged; raise WazaError with the reason."""

    def settle(self, folder: Path) -> int:
        """Grade again what waits for people, and return how many results changed; raise WazaError with the reason."""
