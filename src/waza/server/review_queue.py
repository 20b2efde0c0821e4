"""What the review page works with: outputs that people are asked about, and a way to grade a run again.

Where these come from is the business of whoever starts the server: the dashboard itself knows no suites.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from waza.runs.verdicts import Answer, HumanVerdict, standing_in


class ReviewGrade(Protocol):
    """What a grader said about an output."""

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
        """Whose question it is."""

    @property
    def asked(self) -> str:
        """What the person is asked."""

    @property
    def question(self) -> str:
        """The name of what is asked."""

    @property
    def evidence(self) -> str:
        """The name of what is looked at."""

    @property
    def judged(self) -> ReviewGrade:
        """What the grader said, not to be shown before the person has answered."""

    def verdict(self, answer: Answer, reason: str = "", reviewer: str = "") -> HumanVerdict:
        """Return a person's answer as it is recorded."""


class Pile(NamedTuple):
    """What there is to look at in one run."""

    items: Sequence[ReviewItem]
    file: Path
    """Where verdicts are written."""

    def given(self, item: ReviewItem, reviewer: str) -> HumanVerdict | None:
        """Return what a person said about an output; None where nothing yet."""
        said = standing_in(self.file).get((item.grader, item.evidence), [])
        return next((one for one in said if one.reviewer == reviewer and one.question == item.question), None)


class ReviewQueue(Protocol):
    """Where outputs to review come from."""

    def pile(self, folder: Path, graders: Sequence[str]) -> Pile:
        """Return what `human` graders ask, or what the named graders have judged; raise WazaError with the reason."""

    def settle(self, folder: Path) -> int:
        """Grade again what waits for people, and return how many results changed; raise WazaError with the reason."""
