"""The `trace_rules` grader: what must come before what, with which values, and what must never happen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from math import inf
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from msgspec.structs import replace
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from waza.graders._expected_calls import places_of
from waza.graders._operands import (
    BoundOperands,
    Found,
    Operand,
    Operands,
    Source,
    find_all,
    hashable,
    operands_text,
    unknown_names,
)
from waza.graders._windows import CallOrder, Message, Part, Scope, Timeline, Window, messages_of, timeline_of
from waza.graders.base import Bound, Finding, Grader, Least, Text, tool_events
from waza.graders.names import Names, ToolNames, calls_spelled, names_of, really_seen, words_of
from waza.model import JSON, Check, Trace
from waza.options import Options
from waza.traces.aliases import skill_tools

PATTERNS = ("require", "forbid", "only", "count")
SCOPES = ("before", "after", "between", "until", "per")
RuleStatus = Literal["passed", "violated", "undecided", "not_applied"]
Taken = tuple[bool, bool, bool]
"""Whether matches of the pattern, the trigger and the end that cannot be determined count as matches."""
_NONE: Taken = (False, False, False)
_CHOICES: list[Taken] = [(a, b, c) for a, b, c in product((False, True), repeat=3) if a or b or c]
MAX_LISTED = 20
"""How many calls the evidence of a rule lists."""


def _one_or_more(value: int) -> int:
    if value < 1:
        raise ValueError(f"must be at least 1: {value} always holds")
    return value


def _two_ends(value: Any) -> Any:
    if isinstance(value, list) and len(value) != 2:
        raise ValueError("two are needed: [from, to]")
    return value


class TurnRange(Options):
    """The turns that a rule is about."""

    start: Least | None = Field(default=None, alias="from")
    """The first turn, counted from 1."""
    end: Least | None = Field(default=None, alias="to")
    """The last turn."""

    @model_validator(mode="after")
    def _leaves_something_out(self) -> Self:
        if self.start is None and self.end is None:
            raise ValueError("give 'from' or 'to'")
        if self.start is not None and self.end is not None and self.start > self.end:
            raise ValueError(f"from ({self.start}) is above to ({self.end})")
        if self.start == 1 and self.end is None:
            raise ValueError("from 1 leaves nothing out")
        return self


class CallsInARow(Options):
    """Each so many calls that follow each other in the list."""

    calls: Least
    """How many calls."""


class Rule(Options):
    """One pattern (`require`, `forbid`, `only`, `count`) in the windows of at most one scope."""

    name: Text | None = None
    """What the rule is called in results."""
    require: Operands | None = None
    """At least one of these is in each window."""
    forbid: Operands | None = None
    """None of these is in any window."""
    only: Operands | None = None
    """Every call in each window is one of these."""
    count: Operands | None = None
    """So many of these are in each window: `at_least`, `at_most`."""
    at_least: Annotated[int, AfterValidator(_one_or_more)] | None = None
    """How many at least, 1 or more; with `count`."""
    at_most: Bound | None = None
    """How many at most; 0 is a real bound; with `count`."""
    before: Operands | None = None
    """The calls before each of these are a window."""
    after: Operands | None = None
    """The calls after each of these are a window."""
    between: Annotated[list[Operands], BeforeValidator(_two_ends)] | None = None
    """`[A, B]`: for each A that some B follows, the calls after A and before that next B."""
    until: Operands | None = None
    """All calls before which none of these has come; with `after`, those after it."""
    within: Least | None = None
    """Only calls with fewer than so many calls between them and the trigger; with `before` or `after` alone."""
    fresh: bool = False
    """Whether the window ends at the neighbouring trigger; with `before` or `after` alone."""
    per: Literal["turn"] | CallsInARow | None = None
    """`turn`: each turn that has a call; `{calls: n}`: each n calls that follow each other in the list."""
    agent: Literal["all", "main", "sub", "each"] = "all"
    """Whose calls: all, the agent's own, those of sub-agents, or the agent and every sub-agent apart."""
    turns: TurnRange | None = None
    """`{from: i, to: j}`: only calls of these turns, inclusive."""
    when_absent: Literal["skip", "fail", "pass"] = "skip"
    """What a rule whose trigger never occurs yields: no check, a failed one, or a passed one."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for fact in self._mistakes():
            raise ValueError(fact)
        return self

    def _mistakes(self) -> Iterator[str]:
        given = self.model_fields_set
        patterns = [key for key in PATTERNS if getattr(self, key) is not None]
        if len(patterns) != 1:
            found = f"; found two: {', '.join(sorted(patterns)[:2])}" if patterns else ""
            yield f"a rule needs one of: {', '.join(PATTERNS)}{found}"
        yield from self._bound_mistakes()
        yield from self._scope_mistakes(given)
        yield from self._message_mistakes()
        yield from self._binding_mistakes()
        yield from self._certain_outcomes()

    def _bound_mistakes(self) -> Iterator[str]:
        bounds = [key for key in ("at_least", "at_most") if getattr(self, key) is not None]
        if self.count is not None and not bounds:
            yield "'count' needs 'at_least' or 'at_most'"
        if self.count is None and bounds:
            yield f"'{bounds[0]}' belongs to 'count'"
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            yield f"at_least ({self.at_least}) is above at_most ({self.at_most})"

    def _scope_mistakes(self, given: set[str]) -> Iterator[str]:
        scopes = [key for key in SCOPES if getattr(self, key) is not None]
        if len(scopes) > 1 and scopes != ["after", "until"]:
            hint = "; the calls from A to B are 'between: [A, B]'" if scopes[:2] == ["before", "after"] else ""
            yield f"'{scopes[0]}' and '{scopes[1]}' cannot be combined{hint}"
        for key in ("within", "fresh"):
            if key in given and scopes not in (["before"], ["after"]):
                yield f"'{key}' needs 'before' or 'after' alone"
        always = not scopes or scopes == ["until"] or isinstance(self.per, CallsInARow)
        if "when_absent" in given and always:
            yield "'when_absent' has no effect: this rule always applies"

    def _message_mistakes(self) -> Iterator[str]:
        if any(each.message is not None for each in self.only or ()):
            yield "'only' is about tool calls"
        if self.has_messages and (self.turns is not None or self.per is not None):
            yield "a message has no turn of its own"

    def _binding_mistakes(self) -> Iterator[str]:
        trigger = self.trigger or []
        others = [each for each in self._all_operands if not any(each is one for one in trigger)]
        if any(each.bind for each in others):
            yield "'bind' belongs to the trigger"
        names = [sorted(each.bind or {}) for each in trigger]
        if any(each != names[0] for each in names):
            yield "each alternative binds the same names"
        bound = names[0] if names else []
        if any(each.names_used for each in trigger):
            yield unknown_names({name for each in trigger for name in each.names_used}, [])
        used = {name for each in others for name in each.names_used}
        if wrong := unknown_names(used, bound):
            yield wrong
        if unused := [name for name in bound if name not in used]:
            yield f"'{unused[0]}' is bound but never used"

    def _certain_outcomes(self) -> Iterator[str]:
        if isinstance(self.per, CallsInARow) and self.count is not None:
            calls = self.per.calls
            if self.at_least is not None and self.at_least > calls:
                yield f"at least {self.at_least} of {calls} calls never holds"
            if self.at_most is not None and self.at_most >= calls and self.at_least is None:
                yield f"at most {self.at_most} of {calls} calls always holds"
        ends = self.ends or (self.trigger if self.fresh else None)
        if self.only is None and ends and _are_among(self.pattern, ends):
            yield f"'{self.pattern_key}' and the end of the window are the same: it is never inside"

    @cached_property
    def pattern_key(self) -> str:
        """The key of the pattern: `require`, `forbid`, `only` or `count`."""
        return next(key for key in PATTERNS if getattr(self, key) is not None)

    @cached_property
    def pattern(self) -> list[Operand]:
        """What the pattern is about."""
        operands: list[Operand] = getattr(self, self.pattern_key)
        return operands

    @cached_property
    def trigger(self) -> list[Operand] | None:
        """What opens a window; None where the whole trace, or each turn, is one."""
        return self.before or self.after or (self.between[0] if self.between else None)

    @cached_property
    def ends(self) -> list[Operand] | None:
        """What ends a window, besides a neighbouring trigger."""
        return self.until or (self.between[1] if self.between else None)

    @cached_property
    def _all_operands(self) -> list[Operand]:
        return [*self.pattern, *(self.trigger or ()), *(self.ends or ())]

    @cached_property
    def has_messages(self) -> bool:
        """Whether it is about messages too."""
        return any(each.message is not None for each in self._all_operands)

    @cached_property
    def has_skills(self) -> bool:
        """Whether it is about skills too."""
        return any(each.skill is not None for each in self._all_operands)

    @cached_property
    def declared_names(self) -> list[str]:
        """The tools that it names."""
        return [each.declared for each in self._all_operands if each.declared]

    @cached_property
    def arguments(self) -> list[str]:
        """The arguments that it looks at."""
        paths = [path for each in self.trigger or () for path in (each.bind or {}).values()]
        bound = [path.removeprefix("args.") for path in paths if path.startswith("args.")]
        return [*(key for each in self._all_operands for key in each.args), *bound]

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """How many must be in a window at least and at most; for `only`, of the other calls."""
        if self.count is not None:
            return self.at_least or 0, inf if self.at_most is None else self.at_most
        return (1, inf) if self.require is not None else (0, 0)

    @cached_property
    def scope(self) -> Scope:
        """Which windows it has."""
        if self.per is not None:
            return Scope("turn") if self.per == "turn" else Scope("calls", calls=self.per.calls)
        if self.between is not None:
            return Scope("between", has_end=True)
        if self.before is not None:
            return Scope("before", self.within, self.fresh)
        if self.after is not None:
            return Scope("after", self.within, self.fresh, has_end=self.until is not None)
        return Scope("until") if self.until is not None else Scope("all")

    @cached_property
    def title(self) -> str:
        """Its name, or what it says in few words."""
        return self.name or self._sentence("")

    @cached_property
    def claim(self) -> str:
        """What it says about a trace."""
        return self._sentence("each ")

    def _sentence(self, each: str) -> str:
        text = operands_text(self.pattern)
        low, high = self.bounds
        bounds = [f"at least {low:g}"] if low else []
        bounds += [f"at most {high:g}"] if high != inf else []
        words = {"require": text, "forbid": f"no {text}", "only": f"only {text}"}
        start = words.get(self.pattern_key) or f"{' and '.join(bounds)} {text}"
        return start + self._scope_text(each)

    def _scope_text(self, each: str) -> str:
        trigger = operands_text(self.trigger or ())
        texts = {
            "all": "",
            "before": f" before {each}{trigger}",
            "after": f" after {each}{trigger}",
            "between": f" between {each}{trigger} and {operands_text(self.ends or ())}",
            "until": "",
            "turn": " in each turn",
            "calls": f" in each {self.scope.calls} calls",
        }
        text = texts[self.scope.kind]
        text += f" until {operands_text(self.until)}" if self.until else ""
        text += f" within {self.within}" if self.within else ""
        text += " since the last one" if self.fresh and self.before else ""
        return text + (" before the next one" if self.fresh and self.after else "")


def _are_among(operands: Sequence[Operand], ends: Sequence[Operand]) -> bool:
    """Return whether each operand is one of the ends."""
    written = [each.model_dump(exclude={"bind"}) for each in ends]
    return all(each.model_dump(exclude={"bind"}) in written for each in operands)


class View:
    """One trace as the rules of a grader see it."""

    def __init__(self, trace: Trace, order: Literal["turns", "listed"], names: ToolNames, keys: Sequence[str]) -> None:
        calls = tool_events(trace)
        words = words_of(trace, names)
        spelled = calls if words is None else calls_spelled(calls, keys, words)
        self.order = CallOrder(trace, calls, order)
        self.count = len(calls)
        self._trace = trace
        self._timelines: dict[JSON, list[Timeline]] = {}
        called = [call.tool_name for call in spelled]
        self.source = Source(called, spelled, words, [], skill_tools(trace.engine), places_of(called))

    @cached_property
    def messages(self) -> list[Message] | None:
        """The messages; None where they have no place among the calls."""
        return messages_of(self._trace)

    def source_for(self, rule: Rule) -> Source:
        """Return what the operands of a rule are matched against."""
        return self.source._replace(messages=self.messages or []) if rule.has_messages else self.source

    def obstacle(self, rule: Rule) -> str:
        """Return why a rule cannot be decided on this trace; empty where it can."""
        if (rule.turns is not None or rule.per == "turn") and not self.order.knows_turns:
            return "turns were not recorded"
        if rule.has_messages and self.messages is None:
            missing = self._trace.events is None
            return "messages were not recorded" if missing else "the transcript does not fit the tool calls"
        if rule.has_skills and not self.source.skill_tools:
            return "the skill tool of this agent is not known"
        return ""

    def timelines(self, rule: Rule, limit: int) -> list[Timeline]:
        """Return the first `limit` calls that a rule looks at, those of every sub-agent apart where it says so."""
        turns = None if rule.turns is None else (rule.turns.start, rule.turns.end)
        key = (rule.agent, turns, rule.has_messages, limit)
        if key not in self._timelines:
            self._timelines[key] = list(self._made(rule, limit))
        return self._timelines[key]

    def _made(self, rule: Rule, limit: int) -> Iterator[Timeline]:
        calls: Sequence[int] = range(limit)
        if rule.turns is not None:
            low, high = rule.turns.start or 0, rule.turns.end or inf
            calls = [call for call in calls if low <= self.order.calls[call].turn <= high]
        messages = [
            (-1 - number, message.place, message.parent)
            for number, message in enumerate((self.messages or []) if rule.has_messages else [])
            if message.place <= limit
        ]
        for keeps in self._groups(rule, calls):
            chosen = calls if keeps is None else [call for call in calls if keeps(self.order.parents[call])]
            said = [(number, place) for number, place, parent in messages if keeps is None or keeps(parent)]
            yield timeline_of(self.order, chosen, said)

    def _groups(self, rule: Rule, calls: Sequence[int]) -> list[Any]:
        if rule.agent == "all":
            return [None]
        if rule.agent == "each":
            owners = dict.fromkeys([None, *(self.order.parents[call] for call in calls)])
            return [lambda parent, owner=owner: parent == owner for owner in owners]
        wants_main = rule.agent == "main"
        return [lambda parent: (parent is None) is wants_main]


class Judged(NamedTuple):
    """One window with its verdict."""

    timeline: Timeline
    window: Window
    found: int
    """How many of the pattern's calls are in it; for `only`, of the others."""
    positions: Sequence[int]
    """Where the pattern's calls are."""
    ok: bool | None
    bound: dict[str, list[JSON]]

    def members(self) -> Iterator[int]:
        """Yield the positions in the window."""
        for part in self.window.parts:
            yield from part


class Outcome(NamedTuple):
    """The verdict on one rule, with its evidence."""

    rule: Rule
    status: RuleStatus
    windows: int = 0
    worst: Judged | None = None
    """The window that decides: one that is violated, else one that is undecided."""
    calls: list[int] = []
    prefix: int | None = None
    reason: str = ""

    def as_json(self) -> dict[str, JSON]:
        """Return the evidence as data."""
        facts: dict[str, JSON] = {"name": self.rule.title, "status": self.status, "windows": self.windows}
        trigger = None
        if self.worst is not None and self.worst.window.trigger >= 0:
            item = self.worst.timeline.items[self.worst.window.trigger]
            trigger = item if item >= 0 else {"message": -1 - item}
        facts |= {"trigger": trigger, "calls": self.calls[:MAX_LISTED], "prefix": self.prefix}
        if self.worst is not None and self.worst.bound:
            facts["bound"] = dict(self.worst.bound)
        return facts | ({"reason": self.reason} if self.reason else {})


class RuleRun:
    """One rule on one trace; undecided matches are taken as matches or as none."""

    def __init__(self, rule: Rule, view: View) -> None:
        self.rule = rule
        self.view = view
        source = view.source_for(rule)
        self._uses_bound = bool(rule.trigger and rule.trigger[0].bind)
        self._pattern = self._matches(rule.pattern, source)
        self._ends = self._matches(rule.ends or [], source)
        self._triggers = find_all(rule.trigger, source) if rule.trigger else Found([], [])
        self._bindings: dict[int, tuple[JSON, dict[str, list[JSON]] | None]] = {}

    def _matches(self, operands: list[Operand], source: Source) -> Found | BoundOperands:
        if self._uses_bound and any(each.names_used for each in operands):
            return BoundOperands(operands, source)
        return find_all(operands, source) if operands else Found([], [])

    @property
    def has_unknown(self) -> bool:
        """Whether a pattern ran out of time somewhere."""
        parts = (self._pattern, self._ends, self._triggers)
        return any(part.maybe for part in parts)

    def windows(self, limit: int, taken: Taken = _NONE) -> list[Judged]:
        """Return the windows on the first calls; `taken` says whether unknown patterns, triggers and ends count."""
        judged: list[Judged] = []
        for timeline in self.view.timelines(self.rule, limit):
            triggers = _positions(timeline, self._triggers, is_taken=taken[1])
            for bound, group in self._groups(timeline, triggers):
                judged += self._judge(timeline, group, triggers, bound, taken)
        return judged

    def _groups(self, timeline: Timeline, triggers: list[int]) -> list[tuple[tuple[JSON, Any], list[int]]]:
        """Return the triggers by the values they bind."""
        if not self._uses_bound:
            return [((None, {}), triggers)]
        groups: dict[JSON, tuple[tuple[JSON, Any], list[int]]] = {}
        for position in triggers:
            key, bound = self._binding(timeline.items[position])
            groups.setdefault(key, ((key, bound), []))[1].append(position)
        return list(groups.values())

    def _binding(self, item: int) -> tuple[JSON, dict[str, list[JSON]] | None]:
        """Return what a trigger binds, with a key for it; None where a value is missing."""
        if item not in self._bindings:
            event = self.view.source.calls[item]
            operand = self._alternative(item)
            bound = operand.bound_values(event)
            if all(bound.values()):
                key = tuple((name, *map(hashable, values)) for name, values in sorted(bound.items()))
                self._bindings[item] = (key, bound)
            else:
                self._bindings[item] = (None, None)
        return self._bindings[item]

    def _alternative(self, item: int) -> Operand:
        """Return the first alternative of the trigger that a call fits."""
        operands = self.rule.trigger or []
        source = self.view.source
        alone = source._replace(names=[source.names[item]], calls=[source.calls[item]], places=None)
        fitting = (each for each in operands if find_all([each], alone).sure)
        return operands[0] if len(operands) == 1 else next(fitting, operands[0])

    def _judge(
        self,
        timeline: Timeline,
        group: list[int],
        triggers: list[int],
        binding: tuple[JSON, dict[str, list[JSON]] | None],
        taken: Taken,
    ) -> Iterator[Judged]:
        key, bound = binding
        if bound is None:
            for position in group:
                yield Judged(timeline, Window(position, []), 0, (), None, {})
            return
        positions = _positions(timeline, self._found(self._pattern, bound, key), is_taken=taken[0])
        ends = _positions(timeline, self._found(self._ends, bound, key), is_taken=taken[2])
        scope = self.rule.scope
        low, high = self.rule.bounds
        is_only = self.rule.only is not None
        for window in timeline.windows(scope, group, triggers if scope.is_fresh else ends):
            found = _count(window.parts, positions)
            if is_only:
                found = _count(window.parts, timeline.call_positions) - found
            yield Judged(timeline, window, found, positions, low <= found <= high, bound)

    def _found(self, matches: Found | BoundOperands, bound: dict[str, list[JSON]], key: JSON) -> Found:
        return matches.find(bound, key) if isinstance(matches, BoundOperands) else matches

    def outcome(self) -> Outcome:
        """Return the verdict: undecided where it depends on matches that cannot be determined."""
        outcomes = [self._outcome(_NONE)]
        if self.has_unknown:
            outcomes += [self._outcome(taken) for taken in _CHOICES]
        first = outcomes[0]
        if any(each.status != first.status for each in outcomes):
            reason = "a pattern could not be read within limits"
            return Outcome(self.rule, "undecided", first.windows, reason=reason)
        return self._with_prefix(first) if first.status == "violated" else first

    def _outcome(self, taken: Taken) -> Outcome:
        judged = self.windows(self.view.count, taken)
        if not judged:
            statuses: dict[str, RuleStatus] = {"skip": "not_applied", "fail": "violated", "pass": "passed"}
            return Outcome(self.rule, statuses[self.rule.when_absent])
        violated = [each for each in judged if each.ok is False]
        if violated:
            worst = min(violated, key=_listed_first)
            return Outcome(self.rule, "violated", len(judged), worst, self._offending(worst))
        unknown = next((each for each in judged if each.ok is None), None)
        if unknown is not None:
            item = unknown.timeline.items[unknown.window.trigger]
            reason = f"call {item + 1} ({self.view.source.names[item]}) has no value to bind"
            return Outcome(self.rule, "undecided", len(judged), unknown, reason=reason)
        return Outcome(self.rule, "passed", len(judged))

    def _offending(self, judged: Judged) -> list[int]:
        """Return the calls that should not be in a window, or those of too few that are."""
        found = set(judged.positions)
        wanted = self.rule.only is None
        items = judged.timeline.items
        calls = [items[each] for each in judged.members() if items[each] >= 0 and (each in found) is wanted]
        return sorted(calls)

    def _with_prefix(self, outcome: Outcome) -> Outcome:
        """Return the outcome with its counterexample: the fewest first calls from which on the rule stays violated."""
        end = self.view.count + 1
        while end > 0:
            judged = self.windows(end - 1)
            violated = [each for each in judged if each.ok is False]
            if not violated and (judged or self.rule.when_absent != "fail"):
                break
            end = min((self._since(each, end - 1) for each in violated), default=end - 1)
        return outcome._replace(prefix=end)

    def _since(self, judged: Judged, limit: int) -> int:
        """Return a number of calls from which on, up to `limit`, this window is certainly violated."""
        if not all(each.is_as_listed for each in self.view.timelines(self.rule, limit)):
            return limit
        items, scope = judged.timeline.items, self.rule.scope
        start = 0
        if judged.window.trigger >= 0:
            start = self._listed(judged.timeline, judged.window.trigger)
        elif scope.kind == "calls":
            members = [items[each] for each in judged.members()]
            return max(members) + 1 if len(members) == scope.calls else limit
        elif scope.kind == "turn":
            start = min(items[each] for each in judged.members()) + 1
        elif self.rule.agent == "each":
            start = min((item for item in items if item >= 0), default=-1) + 1
        if scope.kind == "before":
            return start
        if scope.kind == "between":
            return self._closed(judged, start)
        if judged.found < self.rule.bounds[0]:
            return start
        most = int(self.rule.bounds[1])
        return max(start, self._listed_offending(judged, most))

    def _listed_offending(self, judged: Judged, most: int, ends: Sequence[int] = ()) -> int:
        """Return the number of calls with which one more than the most are in a window.

        Of a window that needs one of several ends, a call is in it once an end after it is there.
        """
        found = set(judged.positions)
        wanted = self.rule.only is None
        timeline = judged.timeline
        listed = sorted(
            max(self._listed(timeline, each), self._first_after(timeline, each, ends))
            for each in judged.members()
            if (each in found) is wanted and (wanted or timeline.items[each] >= 0)
        )
        return listed[most]

    def _first_after(self, timeline: Timeline, position: int, ends: Sequence[int]) -> int:
        return min((self._listed(timeline, end) for end in ends if timeline.precedes(position, end)), default=0)

    def _closed(self, judged: Judged, start: int) -> int:
        """Return the number of calls with which a window that ends before another call is closed."""
        timeline = judged.timeline
        bound = judged.bound
        key = self._binding(timeline.items[judged.window.trigger])[0] if self._uses_bound else None
        ends = _positions(timeline, self._found(self._ends, bound, key), is_taken=False)
        trigger = judged.window.trigger
        later = [each for each in ends if timeline.precedes(trigger, each)]
        following = [each for each in later if not any(timeline.precedes(other, each) for other in later)]
        first = max(start, min((self._listed(timeline, each) for each in following), default=start))
        if judged.found < self.rule.bounds[0]:
            return first
        return max(first, self._listed_offending(judged, int(self.rule.bounds[1]), following))

    def _listed(self, timeline: Timeline, position: int) -> int:
        """Return how many calls a prefix has at least that holds what is at a position."""
        item = timeline.items[position]
        if item >= 0:
            return item + 1
        messages = self.view.messages or []
        return messages[-1 - item].place


def _listed_first(judged: Judged) -> tuple[int, int]:
    trigger = judged.window.trigger
    return (judged.timeline.items[trigger], 0) if trigger >= 0 else (-1, 0)


def _positions(timeline: Timeline, found: Found, *, is_taken: bool) -> list[int]:
    """Return the positions of calls and messages in a timeline, ascending."""
    items = sorted(found.sure + found.maybe) if is_taken and found.maybe else found.sure
    if timeline.is_plain:
        size = len(timeline.items)
        return items if not items or items[-1] < size else items[: bisect_left(items, size)]
    places = timeline.positions
    return sorted([places[item] for item in items if item in places])


def _count(parts: list[Part], positions: Sequence[int]) -> int:
    """Return how many of some positions, ascending, are in a window."""
    total = 0
    for part in parts:
        if isinstance(part, range):
            if part:
                total += bisect_left(positions, part.stop) - bisect_left(positions, part.start)
        elif part:
            for each in part:
                place = bisect_left(positions, each)
                total += place < len(positions) and positions[place] == each
    return total


class RuleChecks(list[Check]):
    """One check per rule that applied, with the outcome of every rule."""

    __slots__ = ("order", "outcomes")

    def __init__(self, checks: Sequence[Check], outcomes: list[Outcome], order: str) -> None:
        super().__init__(checks)
        self.outcomes = outcomes
        self.order = order


class TraceRulesGrader(Grader):
    """Check what must come before what, with which values, and what must never happen.

    A rule has one pattern (`require`, `forbid`, `only`, `count`) and at most one scope (`before`, `after`, `between`,
    `until`, `per`), which says in which windows of the trace the pattern must be true. A rule whose trigger never
    occurs did not apply: it yields no check, unless `when_absent` says otherwise. Calls of one turn are concurrent:
    neither is before the other. `details.rules` has the evidence: the calls by number, and how many first calls show
    the violation.

    ```yaml
    - type: trace_rules
      name: careful
      config:
        rules:
          - name: the order that is deleted was read
            require: {name: get_order, args: {id: {bound: order}}, where: success}
            before: {name: delete_order, bind: {order: args.id}}
          - forbid: {tool: "deploy|push"}
            until: {message: {regex: "(?i)^yes"}, from: user}
          - require: run_tests
            after: {tool: "edit|write"}
            within: 3
            when_absent: pass
          - {count: search, at_most: 2, per: turn}
    ```
    """

    checks_behavior: ClassVar[bool] = True

    rules: Annotated[list[Rule], Field(min_length=1)]
    """The rules; each that applies is one check."""
    order: Literal["turns", "listed"] = "turns"
    """`turns`: calls of one turn are concurrent, where turns are known; `listed`: calls follow each other as listed."""
    tool_names: ToolNames = "known"
    """`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""

    @model_validator(mode="after")
    def _has_names_once(self) -> Self:
        names = [rule.name for rule in self.rules if rule.name is not None]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two rules are called '{twice}'")
        return self

    @cached_property
    def _declared(self) -> Names:
        return names_of(name for rule in self.rules for name in rule.declared_names)

    @cached_property
    def _arguments(self) -> list[str]:
        return [key for rule in self.rules for key in rule.arguments]

    def view(self, trace: Trace) -> View:
        """Return a trace as the rules see it; raise Undecidable where its calls were not recorded."""
        return View(trace, self.order, self.tool_names, self._arguments)

    def checks(self, trace: Trace) -> list[Check]:
        """Return one check per rule that applied; where none did, an undecided one per rule."""
        view = self.view(trace)
        outcomes = [outcome_of(rule, view) for rule in self.rules]
        applied = [each for each in outcomes if each.status != "not_applied"]
        if applied:
            checks = [self._check(each, view) for each in applied]
        else:
            checks = [
                Check(None, each.rule.claim, f"{operands_text(each.rule.trigger or ())} never happened")
                for each in outcomes
            ]
        return RuleChecks(checks, outcomes, view.order.mode)

    def _check(self, outcome: Outcome, view: View) -> Check:
        claim = outcome.rule.claim if outcome.rule.name is None else f"{outcome.rule.name}: {outcome.rule.claim}"
        if outcome.status == "passed":
            return Check(True, claim)
        name = f"{outcome.rule.name}: " if outcome.rule.name else ""
        if outcome.status == "undecided":
            return Check(None, claim, f"cannot tell whether {claim}: {outcome.reason}")
        # What was found is in the message, and as data in `details.rules`.
        return Check(False, claim, name + violation_text(outcome, view))

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return which order the calls have, and the evidence of every rule."""
        facts: dict[str, JSON] = really_seen(trace, self._declared, self.tool_names)
        if isinstance(checks, RuleChecks):
            facts |= {"order": checks.order, "rules": [each.as_json() for each in checks.outcomes]}
        return facts

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the verdict; the feedback names the rules that did not apply."""
        finding = super().evaluate(trace, judge)
        skipped = [each for each in finding.details.get("rules", ()) if each["status"] == "not_applied"]
        if len(skipped) == len(self.rules):
            absent = dict.fromkeys(check.failure for check in finding.checks)
            fact = f"no rule applied: {', '.join(absent)}; when_absent: pass or fail decides such traces"
            return replace(finding, feedback=fact)
        names = f"; did not apply: {', '.join(each['name'] for each in skipped)}" if skipped else ""
        if finding.status == "passed":
            count = len(finding.checks)
            return replace(finding, feedback=f"{count} rule{'s' if count > 1 else ''} passed{names}")
        return replace(finding, feedback=finding.feedback + names) if names else finding


def outcome_of(rule: Rule, view: View) -> Outcome:
    """Return the verdict on one rule, with its evidence."""
    if reason := view.obstacle(rule):
        return Outcome(rule, "undecided", reason=reason)
    return RuleRun(rule, view).outcome()


def violation_text(outcome: Outcome, view: View) -> str:
    """Return what is wrong, and in how many of the first calls it is seen."""
    prefix = outcome.prefix or 0
    seen = f", seen in call{'' if prefix == 1 else 's'} {'1-' if prefix > 1 else ''}{prefix}" if prefix else ""
    rule, worst = outcome.rule, outcome.worst
    if worst is None:
        return f"{operands_text(rule.trigger or ()) or 'a turn with a call'} never happened{seen}"
    text, where = operands_text(rule.pattern), _where(rule, worst, view)
    low, high = rule.bounds
    if worst.found < low:
        short = f"no {text}" if not worst.found else f"{worst.found} of at least {low:g} {text}"
        return f"{short}{where}{seen}"
    names = ", ".join(f"call {call + 1} ({view.source.names[call]})" for call in outcome.calls[:3])
    names += ", …" if len(outcome.calls) > 3 else ""
    if rule.only is not None:
        return f"{names} is not {text}{where}{seen}"
    if rule.forbid is not None:
        return f"{names or text}{where} is forbidden{seen}"
    return f"{worst.found} {text}, at most {high:g}{where}: {names}{seen}"


def _where(rule: Rule, worst: Judged, view: View) -> str:
    """Return the window for people."""
    kind = rule.scope.kind
    end = f" until {operands_text(rule.until)}" if rule.until else ""
    if worst.window.trigger >= 0:
        trigger = item_text(worst.timeline.items[worst.window.trigger], view)
        word = {"before": "before", "between": "between"}.get(kind, "after")
        closing = f" and {operands_text(rule.ends or ())}" if kind == "between" else ""
        near = f" within {rule.within}" if rule.within else ""
        return f" {word} {trigger}{closing}{near}{end}"
    members = [worst.timeline.items[each] for each in worst.members()]
    if kind == "turn" and members:
        return f" in turn {view.order.calls[members[0]].turn}"
    if kind == "calls" and members:
        return f" in calls {min(members) + 1}-{max(members) + 1}"
    return end


def item_text(item: int, view: View) -> str:
    """Return a call or a message for people; calls count from 1."""
    if item >= 0:
        return f"call {item + 1} ({view.source.names[item]})"
    message = (view.messages or [])[-1 - item]
    return f"the {message.sender}'s message after call {message.place}" if message.place else "the first message"
