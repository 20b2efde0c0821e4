"""The `tool_constraint` grader: which tools must, must not, or may be used, and how many turns and tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import GetJsonSchemaHandler, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from waza.graders._expected_calls import CallMatcher, argument_calls, find
from waza.graders.base import FoldingPattern, Grader, Limit, ToolName, undecided
from waza.graders.behavior import NO_TOOLS, within
from waza.graders.matchers import ArgMatcher, Mismatch, or_bare
from waza.graders.names import Names, ToolNames, calls_spelled, names_of, really_seen, selection, words_of
from waza.model import JSON, Check, ToolEvent, Trace, Usage
from waza.traces.aliases import Dialect
from waza.untrusted.patterns import fits_name, name_glob
from waza.untrusted.text import fold_case

_UNREADABLE = "its arguments could not be read within limits"


class ToolConstraintGrader(Grader):
    """Check which tools must, must not, or may be used, and how many turns and tokens were taken.

    An entry is a tool's name, exact or a glob (`mcp__*`), or a mapping: `tool` is a pattern, `name` is exact or a glob,
    and the `*_pattern` keys and `args` match arguments. In `allow_only` `tool` is a name too, and names are compared
    after what engines call the same tool (`view` is `read`). One check an entry and a limit, for `allow_only` one a
    call.

    ```yaml
    - type: tool_constraint
      name: guardrails
      config:
        expect_tools:
          - edit
          - {tool: bash, command_pattern: "npm\\\\s+test"}
        reject_tools: [rm, sudo]
        allow_only: [bash, edit, view, grep]
        max_turns: 10
        max_tokens: 50000
    ```
    """

    checks_behavior: ClassVar[bool] = True
    all_passed: ClassVar[str] = "All tool constraint checks passed"

    expect_tools: list[ToolRule] = []
    """Tools of which at least one call must be there, each."""
    reject_tools: list[ToolRule] = []
    """Tools of which no call may be there."""
    allow_only: list[AllowedTool] | None = None
    """The only tools that may be called; an empty list forbids every call."""
    max_turns: Limit = 0
    """How many turns the conversation may take; `none` allows none, 0 means no limit."""
    max_tokens: Limit = 0
    """How many tokens, input plus output, may be used; `none` allows none, 0 means no limit."""

    tool_names: ToolNames = "known"
    """`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""

    @field_validator("allow_only")
    @classmethod
    def _leaves_something_out(cls, rules: list[AllowedTool] | None) -> list[AllowedTool] | None:
        if any(rule.declared and not rule.declared.strip("*") and not rule.is_qualified for rule in rules or []):
            raise ValueError("'*' allows every tool: this check could not fail")
        return rules

    @model_validator(mode="after")
    def _constrains_something(self) -> Self:
        options = ("expect_tools", "reject_tools", "max_turns", "max_tokens")
        if self.allow_only is None and not any(getattr(self, option) for option in options):
            fact = f"this grader checks nothing; give at least one of: allow_only, {', '.join(options)}"
            raise ValueError(fact + self._hint_at_zero())
        return self

    @cached_property
    def _rules(self) -> list[ToolRule]:
        return [*self.expect_tools, *self.reject_tools, *(self.allow_only or [])]

    @cached_property
    def _names(self) -> Names:
        return names_of(rule.declared for rule in self._rules)

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per entry and limit, for `allow_only` one per call."""
        if trace.tool_events is None:
            yield from self._unobserved()
        else:
            words = words_of(trace, self.tool_names)
            events = self._spelled(trace.tool_events, words)
            names = [event.tool_name for event in events]
            yield from self._expected(names, events, words)
            yield from self._rejected(names, events, words)
            yield from self._allowed(names, events, words)
        usage = trace.usage or Usage()
        yield from within("Turn count", usage.turns, self.max_turns)
        yield from within("Token usage", usage.total_tokens, self.max_tokens, least=usage.least_tokens)

    def _unobserved(self) -> Iterator[Check]:
        yield from undecided([f"{rule.label} is called" for rule in self.expect_tools], NO_TOOLS)
        yield from undecided([f"{rule.label} is not called" for rule in self.reject_tools], NO_TOOLS)
        if self.allow_only is not None:
            yield from undecided(["only allowed tools are called"], NO_TOOLS)

    def _expected(self, names: list[str], events: list[ToolEvent], words: Dialect | None) -> Iterator[Check]:
        for rule in self.expect_tools:
            claim = f"{rule.label} is called"
            found = find(rule, names, events, words)
            if found.sure:
                yield Check(True, claim)
            elif found.maybe:
                yield from undecided([claim], _UNREADABLE)
            else:
                nearest: JSON = [
                    {"call": call, "differences": [each.as_json() for each in rule.event_differences(events[call])]}
                    for call in found.named[:3]
                ]
                yield Check(False, claim, f"Expected tool not used: {rule.label}", rule.written(), nearest)

    def _rejected(self, names: list[str], events: list[ToolEvent], words: Dialect | None) -> Iterator[Check]:
        for rule in self.reject_tools:
            claim = f"{rule.label} is not called"
            found = find(rule, names, events, words)
            if found.sure:
                failure = f"Rejected tool was used: {rule.label}{_calls(rule, names, found.sure)}"
                yield Check(False, claim, failure, rule.written(), [{"call": call} for call in found.sure[:3]])
            elif found.maybe:
                yield from undecided([claim], _UNREADABLE)
            else:
                yield Check(True, claim)

    def _allowed(self, names: list[str], events: list[ToolEvent], words: Dialect | None) -> Iterator[Check]:
        if self.allow_only is None:
            return
        if not events:
            yield Check(True, "only allowed tools are called")
        covering = [find(rule, names, events, words) for rule in self.allow_only]
        sure = {call for found in covering for call in found.sure}
        maybe = {call for found in covering for call in found.maybe} - sure
        tally = Counter(name for call, name in enumerate(names) if call not in sure and call not in maybe)
        allowed = f"not in allow_only: [{', '.join(rule.label for rule in self.allow_only)}]"
        for call, name in enumerate(names):
            shown = name or "<unnamed>"
            claim = f"{shown} may be called"
            if call in sure:
                yield Check(True, claim)
            elif call in maybe:
                yield from undecided([claim], _UNREADABLE)
            else:
                times = f"{tally[name]} calls; " if tally[name] > 1 else ""
                failure = f"Undeclared tool used: {shown} ({times}{allowed})"
                yield Check(False, claim, failure, None, {"call": call})

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return the tools and what was used of turns and tokens; what was not recorded is left out."""
        facts: dict[str, JSON] = {}
        if trace.tool_events is not None:
            names = [event.tool_name for event in trace.tool_events]
            facts["tools_used"] = names
            facts |= really_seen(trace, self._names, self.tool_names)
            if self.expect_tools:
                facts |= self._expectations(trace.tool_events, words_of(trace, self.tool_names))
        if trace.usage is not None:
            facts |= {"tokens_total": trace.usage.total_tokens, "total_turns": trace.usage.turns}
        return facts

    def _expectations(self, calls: list[ToolEvent], words: Dialect | None) -> dict[str, JSON]:
        """Return whether the first call is of an expected tool, and which calls have the arguments that are stated."""
        facts = selection(any(rule.names(event, words) for event in calls[:1] for rule in self.expect_tools))
        stating = [rule for rule in self.expect_tools if rule.states_arguments]
        if stating:
            events = self._spelled(calls, words)
            names = [event.tool_name for event in events]
            stated = argument_calls(stating, [find(rule, names, events, words) for rule in stating])
            facts |= {"argument_calls": stated} if stated else {}
        return facts

    def _spelled(self, calls: list[ToolEvent], words: Dialect | None) -> list[ToolEvent]:
        """Return the calls with the arguments that rules check under the names they use."""
        wanted = ["command", "skill", "path", *(key for rule in self._rules for key in rule.args)]
        return calls_spelled(calls, wanted, words)


def _calls(rule: ToolRule, names: list[str], calls: Sequence[int]) -> str:
    """Return the tools that a glob or a pattern matched, in brackets; empty where the rule is the name itself."""
    called = list(dict.fromkeys(names[call] for call in calls))
    if [fold_case(name) for name in called] == [fold_case(rule.tool_text)]:
        return ""
    return f" ({', '.join(called[:5])}{', …' if len(called) > 5 else ''})"


_QUALIFIERS = {
    "command_pattern": ("command", "cmd"),
    "skill_pattern": ("skill",),
    "path_pattern": ("path", "file_path", "filePath"),
}
"""The arguments each pattern is matched against: the first one that is given."""
_ALIASES = {
    "readfile": "read",
    "fileread": "read",
    "view": "read",
    "writefile": "write",
    "filewrite": "write",
    "edit": "write",
    "runcommand": "bash",
    "web_fetch": "fetch",
}
_FOREIGN = ("mcp:", "custom:")


class ToolRule(CallMatcher):
    """A tool, and what it is called with; a bare text is its exact name, or a glob."""

    command_pattern: FoldingPattern | None = None
    """A pattern that matches somewhere in the call's command, in any case."""
    skill_pattern: FoldingPattern | None = None
    """A pattern that matches somewhere in the call's skill, in any case."""
    path_pattern: FoldingPattern | None = None
    """A pattern that matches somewhere in the call's path, in any case."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @cached_property
    def label(self) -> str:
        """The tool, with its qualifiers, for people."""
        parts = [f"{key}: {getattr(self, key).source}" for key in _QUALIFIERS if getattr(self, key)]
        parts += [f"args: [{', '.join(sorted(self.args))}]"] if self.args else []
        return self.tool_text + (f" ({', '.join(parts)})" if parts else "") + self.manner

    @cached_property
    def _qualifiers(self) -> dict[str, ArgMatcher]:
        return {key: ArgMatcher(regex=getattr(self, key)) for key in _QUALIFIERS if getattr(self, key)}

    @property
    def states_arguments(self) -> bool:
        """Whether it checks a call's arguments, by a pattern or a matcher."""
        return bool(self.args or self._qualifiers) or self.extra_args == "forbid"

    @property
    def is_qualified(self) -> bool:
        """Whether it leaves out calls of its tool."""
        return self.states_arguments or self.where is not None

    @cached_property
    def is_plain(self) -> bool:
        """Whether nothing but the tool's name counts."""
        return not self.is_qualified

    def fits(self, event: ToolEvent) -> bool | None:
        """Return whether a call of the tool is as expected; None when undecided."""
        if not self._qualifiers:
            return super().fits(event)
        unknown = False
        for difference in self.event_differences(event):
            if not difference.undecided:
                return False
            unknown = True
        return None if unknown else True

    def further_names(self, args: dict[str, JSON]) -> set[str]:
        """Return the arguments that the patterns are matched against."""
        return {
            next((name for name in _QUALIFIERS[key] if name in args), _QUALIFIERS[key][0]) for key in self._qualifiers
        }

    def differences(self, args: JSON) -> Iterator[Mismatch]:
        """Yield every qualifier and argument that is not as expected; what is not given reads as nothing."""
        given = args if isinstance(args, dict) else {}
        for key, matcher in self._qualifiers.items():
            argument = next((name for name in _QUALIFIERS[key] if name in given), _QUALIFIERS[key][0])
            difference = matcher.difference(argument, [given.get(argument)])
            if difference is not None:
                expected = {key: matcher.written()["regex"]}
                yield difference._replace(expected=expected) if argument in given else Mismatch(argument, expected)
        yield from super().differences(args)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of the mapping or of a bare name."""
        return or_bare(handler.resolve_ref_schema(handler(core)), "string")


class AllowedTool(ToolRule):
    """A tool that may be called; a bare text or `tool` is its name, whatever an engine calls it."""

    tool: ToolName | None = None  # type: ignore[assignment]
    """The tool's name or a glob; `view`, `readFile` and `read` are the same tool, as are `edit` and `write`."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"tool": value} if isinstance(value, str) else value

    @cached_property
    def exact_name(self) -> str | None:
        """The one name that fits; None where names are folded."""
        return None if self.tool is not None else super().exact_name

    def matches_name(self, name: str) -> bool:
        """Return whether a tool has this name: `tool` after folding, `name` letter for letter; both may be globs."""
        if self.tool is None:
            return bool(super().matches_name(name))
        return self._canonical == canonical_name(name) or allows(str(self.tool), name)

    @cached_property
    def _canonical(self) -> str:
        return canonical_name(str(self.tool))


def canonical_name(name: str) -> str:
    """Return the name engines have in common for a tool; names of MCP and custom tools stay as they are."""
    folded = fold_case(name.strip())
    if folded.startswith(_FOREIGN):
        return folded
    bare = folded.removeprefix("builtin:")
    return _ALIASES.get(bare, bare)


def allows(declared: str, observed: str) -> bool:
    """Return whether a declared tool covers an observed one: `mcp:x` covers a bare `x`, never the reverse."""
    wanted = canonical_name(declared)
    if name_glob(wanted) is not None:
        return _glob_allows(declared, wanted, observed)
    if wanted == canonical_name(observed):
        return True
    prefix = next((prefix for prefix in _FOREIGN if wanted.startswith(prefix)), None)
    return prefix is not None and wanted.removeprefix(prefix) == fold_case(observed.strip())


def _glob_allows(declared: str, wanted: str, observed: str) -> bool:
    """Return whether a glob covers an observed tool under its own or its canonical name.

    `builtin:*` covers no MCP and no custom tool, and `mcp:*` no bare name: that would be every tool there is.
    """
    folded = fold_case(observed.strip())
    if folded.startswith(_FOREIGN) and fold_case(declared.strip()).startswith("builtin:"):
        return False
    if fits_name(wanted, canonical_name(observed)) or fits_name(wanted, folded.removeprefix("builtin:")):
        return True
    bare = next((wanted.removeprefix(prefix) for prefix in _FOREIGN if wanted.startswith(prefix)), "")
    return bool(bare) and bare[0] not in "*?" and fits_name(bare, folded)
