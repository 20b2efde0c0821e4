"""The `tool_calls` grader: which tools the agent called, how often, in what order and with what arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, model_validator

from waza.graders._alignment import AlignedChecks, Order
from waza.graders._expected_calls import Expectation, expectation_checks, turns_unknown
from waza.graders._references import Match, expanded
from waza.graders.base import FoldingPattern, Grader, Limit, Minimum, ToolName, bound_of, tool_events, turns_are_known
from waza.graders.behavior import avoids, uses
from waza.graders.names import (
    Names,
    ToolNames,
    calls_spelled,
    is_one_of,
    names_of,
    names_used,
    really_seen,
    selection,
    words_of,
)
from waza.model import JSON, Check, ToolEvent, Trace
from waza.options import Options
from waza.untrusted.patterns import PatternTimeout

_FORMS = {"required": "required_tools", "forbidden": "forbidden_tools"}


def _is_call(entry: Any) -> bool:
    return isinstance(entry, dict) and not {"tool", "name"}.isdisjoint(entry)


class CallPattern(Options):
    """A pattern for calls of any tool."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    pattern: FoldingPattern
    """Looked for in the tool's name and in each argument, in any case."""

    def check(self, events: Sequence[ToolEvent], *, is_wanted: bool) -> Check:
        """Return whether a call has the pattern, where it must, or none has it, where it must not."""
        source = self.pattern.source
        claim = f"a call matches /{source}/" if is_wanted else f"no call matches /{source}/"
        try:
            found = next((event for event in events if any(map(self.pattern.search, _texts(event)))), None)
        except PatternTimeout as error:
            return Check(None, claim, f"cannot tell whether {claim}: {error}")
        if is_wanted:
            failure = "" if found else f"no call has /{source}/ in its name or an argument"
            return Check(found is not None, claim, failure)
        failure = (
            f'call {found.sequence} ("{found.tool_name}") has /{source}/ in its name or an argument' if found else ""
        )
        return Check(found is None, claim, failure)


def _texts(event: ToolEvent) -> Iterator[str]:
    """Yield a call's name and its arguments; those that are no texts as compact JSON, as other matchers read them."""
    yield event.tool_name
    values = event.args.values() if isinstance(event.args, dict) else [event.args]
    for value in values:
        yield value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class ToolCallsGrader(Grader):
    """Check which tools were called, how often, in what order and with what arguments.

    Each `expect` entry needs calls of its own: calls are assigned to entries so that as many as possible are
    satisfied, whatever the order of either. `details.alignment` lists for each entry which calls it took, or the
    nearest call and the arguments that differed, or that it is missing; and which calls were not expected.

    `required` and `forbidden` take `{pattern: "az containerapp"}` as the original's tasks have it: RE2 in any case,
    looked for in a call's name and in each of its arguments; one call may satisfy several. Names and `expect` entries
    may be listed there too.

    ```yaml
    - type: tool_calls
      name: tool_usage
      config:
        required_tools: [bash]
        forbidden_tools: [rm, sudo]
        min_calls: 2
        max_calls: 20
        order: in_order
        expect:
          - name: search_docs
            args:
              query: {regex: "^(authentication|auth)\\\\b"}
              limit: 10
          - tool: "edit|write"
            count: {min: 1, max: 3}
    ```
    """

    checks_behavior: ClassVar[bool] = True
    all_passed: ClassVar[str] = "all tool_calls checks passed"
    needs_one_of: ClassVar[tuple[str, ...]] = (
        *("required_tools", "forbidden_tools", "min_calls", "max_calls", "expect"),
        *("required", "forbidden"),
    )

    required_tools: list[ToolName] = []
    """Tools that must be called, each by exact name or a glob (`mcp__github__*`)."""
    forbidden_tools: list[ToolName] = []
    """Tools that must not be called, by exact name or a glob."""
    min_calls: Minimum = 0
    """How many calls there must be at least; 0 means no minimum."""
    max_calls: Limit = 0
    """How many calls there may be; `none` allows none, 0 means no limit."""
    expect: list[Expectation] = []
    """Calls that must be made, each entry with calls of its own."""
    required: list[ToolName | CallPattern] = []
    """Calls that must be made: `{pattern: P}` for any call with P in its name or an argument; or a tool's name."""
    forbidden: list[ToolName | CallPattern] = []
    """Calls that must not be made, in the same forms."""
    order: Order = "any"
    """`any`; `in_order`: the entries' calls follow each other; `exact`: in order, and no other calls."""
    within_turn: Literal["listed", "any"] = "listed"
    """`any`: calls of one turn in any order, turns in order; with `order: in_order` or `exact`."""

    other_calls: Literal["allow", "forbid"] = "allow"
    """`forbid`: calls that no entry of `expect` takes are one more failed check, whatever the order."""
    match: Match | None = None
    """A short form for reference calls of other benchmarks: it sets the other keys, see the guide on rules."""

    tool_names: ToolNames = "known"
    """`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""

    @model_validator(mode="before")
    @classmethod
    def _sorted_out(cls, given: Any) -> Any:
        """Put names under `required` and `forbidden` where names are, and calls with arguments among the expected."""
        if not isinstance(given, dict) or not any(isinstance(given.get(key), list) for key in _FORMS):
            return given
        found = dict(given)
        for key, names in _FORMS.items():
            entries = given.get(key)
            if not isinstance(entries, list):
                continue
            calls = [entry for entry in entries if _is_call(entry)]
            if key == "forbidden":
                calls = [{"count": {"max": 0}} | entry for entry in calls]
            for other, moved in ((names, [entry for entry in entries if isinstance(entry, str)]), ("expect", calls)):
                if moved and isinstance(found.setdefault(other, []), list):
                    found[other] = [*found[other], *moved]
            found[key] = [entry for entry in entries if not isinstance(entry, str) and not _is_call(entry)]
        return found

    @cached_property
    def _declared(self) -> Names:
        return names_of(self.required_tools, self.forbidden_tools, (entry.declared for entry in self.expect))

    @cached_property
    def _names(self) -> Names:
        return names_of(self.required_tools, self.forbidden_tools)

    @cached_property
    def _required(self) -> Names:
        return names_of(self.required_tools)

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, options: Any) -> Any:
        return expanded(options) if isinstance(options, dict) and "match" in options else options

    @model_validator(mode="after")
    def _bounds_and_order(self) -> Self:
        most = bound_of(self.max_calls)
        if most is not None and self.min_calls > most:
            raise ValueError(f"min_calls ({self.min_calls}) is above max_calls ({self.max_calls})")
        if "order" in self.model_fields_set and not self.expect:
            raise ValueError("'order' has no effect without 'expect'")
        for key in ("other_calls", "match"):
            if key in self.model_fields_set and not self.expect:
                raise ValueError(f"'{key}' has no effect without 'expect'")
        if "within_turn" in self.model_fields_set and self.order == "any":
            raise ValueError("'within_turn' has no effect without 'order: in_order' or 'exact'")
        return self

    def checks(self, trace: Trace) -> list[Check]:
        """Return one check per tool, per bound and per expectation, one more for other calls where exact."""
        events = tool_events(trace)
        checks = self._plain_checks(trace, len(events))
        if not self.expect:
            return checks
        if self.within_turn == "any" and not turns_are_known(trace):
            unknown = turns_unknown(self.order, self.expect, is_alone=self._is_alone)
            return AlignedChecks([*checks, *unknown], unknown.alignment)
        turns = [event.turn for event in events] if self.within_turn == "any" else None
        words = words_of(trace, self.tool_names)
        calls = calls_spelled(events, [key for entry in self.expect for key in entry.args], words)
        names = [call.tool_name for call in calls]
        expected = expectation_checks(self.order, self.expect, names, calls, words, turns, is_alone=self._is_alone)
        return AlignedChecks([*checks, *expected], expected.alignment, expected.argument_calls)

    @property
    def _is_alone(self) -> bool:
        """Whether other calls than the expected ones are forbidden."""
        return self.order == "exact" or self.other_calls == "forbid"

    def _plain_checks(self, trace: Trace, calls: int) -> list[Check]:
        checks: list[Check] = []
        if self._names.names:
            used = names_used(trace, self._names, self.tool_names)
            checks += uses(self.required_tools, used, 'required tool "{}" was not called')
            if self.forbidden_tools:
                checks += avoids(self.forbidden_tools, used, 'forbidden tool "{}" was called')
        if self.required or self.forbidden:
            checks += self._pattern_checks(tool_events(trace))
        if self.min_calls or self.max_calls:
            checks += self._bound_checks(calls)
        return checks

    def _pattern_checks(self, events: Sequence[ToolEvent]) -> Iterator[Check]:
        for entries, is_wanted in ((self.required, True), (self.forbidden, False)):
            for entry in entries:
                if isinstance(entry, CallPattern):
                    yield entry.check(events, is_wanted=is_wanted)

    def _bound_checks(self, calls: int) -> Iterator[Check]:
        for word, bound in (("least", self.min_calls or None), ("most", bound_of(self.max_calls))):
            if bound is not None:
                ok = calls >= bound if word == "least" else calls <= bound
                failure = "" if ok else f"expected at {word} {bound} tool calls, got {calls}"
                yield Check(ok, f"there are at {word} {bound} calls", failure, bound, calls)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return the counts, whether the first call was of an expected tool, and the alignment."""
        names = [event.tool_name for event in tool_events(trace)]
        facts: dict[str, JSON] = {
            "total_calls": len(names),
            "unique_tools": list(dict.fromkeys(names)),
            "passed_checks": len([check for check in checks if check.ok]),
            "total_checks": len(checks),
        }
        if self._declared.globs or trace.engine is not None:
            facts |= really_seen(trace, self._declared, self.tool_names)
        if self.required_tools or self.expect:
            facts |= self._selection(trace)
        if isinstance(checks, AlignedChecks):
            facts["alignment"] = checks.alignment
            facts |= {"argument_calls": checks.argument_calls} if checks.argument_calls else {}
        return facts

    def _selection(self, trace: Trace) -> dict[str, JSON]:
        """Return whether the first call is the expected one; nothing where no call is needed."""
        needed = [entry for entry in self.expect if entry.need.low]
        first, words = tool_events(trace)[:1], words_of(trace, self.tool_names)
        if needed and self.order != "any":
            before = self.expect[: self.expect.index(needed[0]) + 1]
            wanted = [entry for entry in before if entry.need.high]
            return selection(any(entry.names(event, words) for event in first for entry in wanted), is_ordered=True)
        if not needed and not self.required_tools:
            return {}
        if not first:
            return selection(False)
        fits = is_one_of(first[0], self._required, words)
        return selection(fits or any(entry.names(first[0], words) for entry in needed))
