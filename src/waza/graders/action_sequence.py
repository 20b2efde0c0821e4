"""The `action_sequence` grader: the tools that were called, against an expected path."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from waza.graders._alignment import Order, SequenceChecks, f1_of, sequence_checks
from waza.graders.base import Grader, ToolName, tool_events
from waza.graders.names import Names, ToolNames, calls_named, first_call, fits_of_calls, names_of, words_of
from waza.model import JSON, Check, Trace

_ORDERS: dict[str, Order] = {"exact_match": "exact", "in_order_match": "in_order", "any_order_match": "any"}


class ActionSequenceGrader(Grader):
    """Check the tools that were called, in order, against an expected path.

    The mode decides whether it passes. The score is the F1 of the two lists as multisets, so it says how much of
    the path was taken, in whatever order; `details.alignment` lists what was matched, missing, extra and out of order.

    ```yaml
    - type: action_sequence
      name: deploy_workflow
      config:
        matching_mode: in_order_match
        expected_actions: [bash, edit, bash, git]
    ```
    """

    checks_behavior: ClassVar[bool] = True
    all_passed: ClassVar[str] = "Action sequence matched"

    matching_mode: Literal["exact_match", "in_order_match", "any_order_match"]
    """`exact_match`: the same calls and no others; `in_order_match`: others may come in between; `any_order_match`."""
    expected_actions: Annotated[list[ToolName], Field(min_length=1)]
    """Tool names, exact and case-sensitive, or globs (`read_*`), each for one call; one given twice needs two."""

    tool_names: ToolNames = "known"
    """`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""

    @cached_property
    def _names(self) -> Names:
        return names_of(self.expected_actions)

    def checks(self, trace: Trace) -> SequenceChecks:
        """Return one check per expected action, one more for other calls in `exact_match`."""
        events, words = tool_events(trace), words_of(trace, self.tool_names)
        actual = calls_named(events, self._names, words)
        fits = fits_of_calls(self._names, events, words)
        return sequence_checks(_ORDERS[self.matching_mode], self.expected_actions, actual, "Action", fits)

    def verdict(self, trace: Trace, checks: list[Check]) -> tuple[float, bool]:
        """Return the F1, and whether the mode's rule is met."""
        assert isinstance(checks, SequenceChecks)
        return f1_of(self.expected_actions, checks.actual, checks.fits)[2], all(check.ok for check in checks)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return both sequences, precision, recall, F1 and the alignment."""
        assert isinstance(checks, SequenceChecks)
        precision, recall, f1 = f1_of(self.expected_actions, checks.actual, checks.fits)
        is_ordered = self.matching_mode != "any_order_match"
        return {
            "matching_mode": self.matching_mode,
            "expected_actions": self.expected_actions,
            "actual_actions": checks.actual,
            "precision": precision,
            "recall": recall,
            "f1": f1,
            "alignment": checks.alignment,
            **first_call(trace, self._names, self.tool_names, is_ordered=is_ordered),
        }
