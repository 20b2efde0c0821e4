"""Expected tool calls: matchers for name and arguments, and one check for each expectation.

The entry of an expectation in `details.alignment` lists the calls assigned to it, or the nearest call and its
differences, or that it is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Literal, NamedTuple, Self

from pydantic import ConfigDict, model_validator

from waza.graders._alignment import AlignedChecks, Alignment, Need, Order, align, align_turns, certificate
from waza.graders.base import Bound, Minimum, Text, ToolName, ToolPattern, undecided
from waza.graders.matchers import PATIENCE, ArgMatcher, Mismatch, Steps, parse_path, values_at
from waza.model import JSON, Check, ToolEvent
from waza.options import Options
from waza.traces.aliases import Dialect
from waza.untrusted.patterns import Pattern, PatternTimeout, fits_name, name_glob

_USUAL_NAME_CHARS = 100


class CallMatcher(Options):
    """The name and arguments a tool call must have."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    tool: ToolPattern | None = None
    """A pattern that matches somewhere in the tool's name, in any case."""
    name: ToolName | None = None
    """The tool's name, exact and case-sensitive, or a glob (`search_*`); instead of `tool`."""
    args: dict[Text, ArgMatcher] = {}
    """Matchers by argument; a key may be a path such as `user.city`, `items[0].id` or `items[*].id`."""
    extra_args: Literal["allow", "forbid"] = "allow"
    """`forbid`: every argument of the call is named under `args`; a path names its first step."""
    where: Literal["success", "failed"] | None = None
    """Only calls that succeeded, or only those that failed."""

    @model_validator(mode="before")
    @classmethod
    def _named_only(cls, value: Any) -> Any:
        """Take `{optional: true}` alone where other arguments are forbidden: it names one that may be given."""
        if isinstance(value, dict) and value.get("extra_args") == "forbid" and isinstance(value.get("args"), dict):
            return value | {"args": {key: _anything(matcher) for key, matcher in value["args"].items()}}
        return value

    @model_validator(mode="after")
    def _names_a_tool(self) -> Self:
        if (self.tool is None) == (self.name is None):
            raise ValueError("give 'tool' or 'name', one of them")
        return self

    @cached_property
    def _paths(self) -> dict[str, Steps | None]:
        return {key: parse_path(key) for key in self.args}

    @property
    def tool_text(self) -> str:
        """The tool as the author wrote it, pattern or name."""
        return self.name or "" if self.tool is None else str(getattr(self.tool, "source", self.tool))

    @property
    def declared(self) -> str:
        """The name that other programs may have another one for; empty where it is a pattern and no plain name."""
        text = self.tool_text
        return "" if isinstance(self.tool, Pattern) and name_glob(text) is not None else text

    @cached_property
    def label(self) -> str:
        """The tool and the names of the checked arguments, for people."""
        kind = "name" if self.tool is None else "tool"
        return (
            f'{kind}="{self.tool_text}"'
            + (f" args: [{', '.join(sorted(self.args))}]" if self.args else "")
            + self.manner
        )

    @property
    def manner(self) -> str:
        """What else a call must be like, for people: no other arguments, succeeded or failed."""
        alone = (" and no other args" if self.args else " without args") if self.extra_args == "forbid" else ""
        return alone + (f" where: {self.where}" if self.where else "")

    @property
    def states_arguments(self) -> bool:
        """Whether it checks a call's arguments."""
        return bool(self.args) or self.extra_args == "forbid"

    def written(self) -> dict[str, JSON]:
        """Return the matcher as an author would write it."""
        return self.model_dump(exclude_unset=True, by_alias=True)

    def event_differences(self, event: ToolEvent) -> Iterator[Mismatch]:
        """Yield what is not as expected of a call: whether it succeeded, and its arguments."""
        if self.where is not None and event.success is not (self.where == "success"):
            came, fact = ("success", "the call succeeded") if event.success else ("failed", "the call failed")
            yield Mismatch("where", self.where, came, fact=f"{fact}, expected {self.where}")
        yield from self.differences(event.args)

    def _extra(self, args: JSON) -> Iterator[Mismatch]:
        """Yield the arguments that are not named where no others may be given."""
        if not isinstance(args, dict):
            yield Mismatch("args", {"extra_args": "forbid"}, args, fact="the arguments are no object")
            return
        named = {key if key in args or steps is None else str(steps[0]) for key, steps in self._paths.items()}
        named |= self.further_names(args)
        known = {source for name in named for source in getattr(args, "sources", {}).get(name, ())} | named
        for name in args:
            if name not in known and name not in getattr(args, "sources", {}):
                fact = f"argument '{name}' is not expected"
                yield Mismatch(name, {"present": False}, args[name], fact=fact)

    def further_names(self, args: dict[str, JSON]) -> set[str]:
        """Return the arguments that are named by other keys than `args`."""
        return set()

    def differences(self, args: JSON) -> Iterator[Mismatch]:
        """Yield every argument that is not as expected, or that cannot be decided."""
        if self.extra_args == "forbid":
            yield from self._extra(args)
        given = args if isinstance(args, dict) else {}
        for key, matcher in self.args.items():
            difference = matcher.difference(key, values_at(given, key, self._paths[key]))
            if difference is not None:
                yield difference

    @cached_property
    def is_plain(self) -> bool:
        """Whether nothing but the tool's name counts."""
        return not self.states_arguments and self.where is None

    @cached_property
    def exact_name(self) -> str | None:
        """The one name that fits; None for globs and patterns."""
        return None if self._is_glob else self.name

    @cached_property
    def _wanted(self) -> list[tuple[str, Steps | None, ArgMatcher]]:
        return [(key, self._paths[key], matcher) for key, matcher in self.args.items()]

    def fits(self, event: ToolEvent) -> bool | None:
        """Return whether a call of the tool is as expected, without saying why; None when undecided."""
        if self.where is not None and event.success is not (self.where == "success"):
            return False
        if self.extra_args == "forbid" and any(True for _ in self._extra(event.args)):
            return False
        given = event.args if isinstance(event.args, dict) else {}
        unknown = False
        for key, steps, matcher in self._wanted:
            if key in given and matcher.present is None:
                fits = matcher.holds(given[key])
            else:
                fits = matcher.accepts(values_at(given, key, steps))
            if fits is False:
                return False
            unknown = unknown or fits is None
        return None if unknown else True

    def matches_name(self, name: str) -> bool | None:
        """Return whether a tool's name is the expected one; None when undecided."""
        if self.tool is None:
            return name == self.name or (self._is_glob and fits_name(self.name or "", name))
        try:
            return self._search(name) if len(name) <= _USUAL_NAME_CHARS else self.tool.search(name)
        except PatternTimeout:
            return None

    @cached_property
    def _is_glob(self) -> bool:
        return self.name is not None and name_glob(self.name) is not None

    def names(self, event: ToolEvent, words: Dialect | None) -> bool:
        """Return whether a call is of the tool expected, whatever the agent's program calls it."""
        return bool(self.matches_name(event.tool_name)) or (words is not None and words.same(self.declared, event))

    @cached_property
    def _search(self) -> Callable[[str], bool]:
        """The pattern, cached: traces of one suite call the same few tools."""
        return lru_cache(maxsize=128)(self.tool.search if self.tool else bool)


def _anything(matcher: Any) -> Any:
    return ArgMatcher.any_value() if matcher == {"optional": True} else matcher


class FoundCalls(NamedTuple):
    """The calls that fit a matcher, by their places in the trace."""

    named: list[int]
    """The tool's name fits."""
    sure: list[int]
    """Name and arguments fit."""
    maybe: list[int]
    """Undecided: a pattern ran out of time."""


def argument_calls(matchers: Iterable[CallMatcher], found: Iterable[FoundCalls]) -> dict[str, JSON]:
    """Return the places of the calls to tools whose arguments are stated, and of the right ones; empty without any.

    Calls that cannot be decided are left out.
    """
    stating = [each for matcher, each in zip(matchers, found, strict=True) if matcher.states_arguments]
    right = {call for each in stating for call in each.sure}
    unknown = {call for each in stating for call in each.maybe} - right
    calls = {call for each in stating for call in each.named} - unknown
    return {"calls": sorted(calls), "right": sorted(right)} if calls else {}


Places = Mapping[str, list[int]]
"""The calls of each tool, by its name."""
_NOWHERE: list[int] = []


def places_of(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the calls of each tool, by its name."""
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        if name in places:
            places[name].append(index)
        else:
            places[name] = [index]
    return places


def find(
    matcher: CallMatcher,
    names: list[str],
    events: list[ToolEvent],
    words: Dialect | None = None,
    places: Places | None = None,
) -> FoundCalls:
    """Return the calls whose name fits, and those that fit as a whole; `names` are the calls' tool names.

    `words` says which names of the agent's program mean the same tool; `places` is `places_of(names)`, for callers
    that have several matchers. After PATIENCE calls that could not be read, the rest is not checked.
    """
    if places is None:
        places = places_of(names)
    if words is None and matcher.exact_name is not None:
        named, unsure = places.get(matcher.exact_name, _NOWHERE), frozenset[int]()
    else:
        named, unsure = _named(matcher, places, events, words)
    if matcher.is_plain and not unsure:
        return FoundCalls(named, named, [])
    found = FoundCalls(named, [], [])
    patience = PATIENCE
    for index in named:
        fits = matcher.fits(events[index]) if patience else None
        patience -= fits is None and patience > 0
        if fits is not False:
            (found.maybe if fits is None or index in unsure else found.sure).append(index)
    return found


def _named(
    matcher: CallMatcher, places: Places, events: list[ToolEvent], words: Dialect | None
) -> tuple[list[int], frozenset[int]]:
    """Return the calls of the tool expected, and those of which it cannot be determined."""
    declared = matcher.declared if words is not None else ""
    lists: list[list[int]] = []
    unsure: list[int] = []
    unknown = 0
    for name, calls in places.items():
        fits = matcher.matches_name(name) if unknown < PATIENCE else None
        unknown += fits is None
        if not fits and declared and words is not None:
            aliased = _aliased(declared, name, calls, events, words)
            unsure += [call for call in calls if fits is None and call not in aliased]
            lists.append(calls if fits is None else aliased)
        elif fits is not False:
            lists.append(calls)
            unsure += calls if fits is None else ()
    if len(lists) == 1:
        return lists[0], frozenset(unsure)
    return sorted(chain.from_iterable(lists)), frozenset(unsure)


def _aliased(declared: str, name: str, calls: list[int], events: list[ToolEvent], words: Dialect) -> list[int]:
    """Return the calls of the tool the author means by its name in another program."""
    if words.is_several(name):
        return [call for call in calls if words.same(declared, events[call])]
    return calls if words.same(declared, events[calls[0]]) else []


_NO_LIMIT = 1 << 62


class Count(Options):
    """How many calls an expectation needs and allows; at least one of the two."""

    min: Minimum | None = None
    """How many calls it needs; 1 if left out, 0 where `max` is 0."""
    max: Bound | None = None
    """How many calls may fit it, all calls counted; 0 or `none` for no call."""

    @model_validator(mode="after")
    def _can_fail(self) -> Self:
        if self.max is None and not self.min:
            raise ValueError("a count needs a 'max', or a 'min' of 1 or more")
        if self.max is not None and self.min is not None and self.min > self.max:
            raise ValueError(f"min ({self.min}) is above max ({self.max})")
        return self


class Expectation(CallMatcher):
    """One call, or several alike, that must be made."""

    count: Count | None = None
    """How many such calls: `{min, max}`; one if left out."""

    @cached_property
    def need(self) -> Need:
        """How many calls it needs, and may take."""
        if self.count is None:
            return Need()
        low, high = self.count.min, self.count.max
        if low is None:
            low = 0 if high == 0 else 1
        return Need(low, _NO_LIMIT if high is None else high)

    @cached_property
    def passed_check(self) -> Check:
        """The check where it is satisfied."""
        return Check(True, f"{self.label} is called")

    @cached_property
    def most(self) -> int | None:
        """How many calls may fit it, or None."""
        return None if self.count is None else self.count.max


class _Evaluation(NamedTuple):
    """The calls of one trace, assigned to the expectations."""

    expect: Sequence[Expectation]
    events: list[ToolEvent]
    found: list[FoundCalls]
    sure: Alignment
    """The assignment over the calls that fit for sure."""
    possible: Alignment
    """The assignment if every undecided call would fit; the same one where there is none."""
    misplaced: dict[int, int]
    """For expectations short of calls: one that fits, but out of order."""
    nearest: dict[int, int]
    """For other expectations short of calls: the call of that tool whose arguments differ least."""


def expectation_checks(
    order: Order,
    expect: Sequence[Expectation],
    names: list[str],
    events: list[ToolEvent],
    words: Dialect | None = None,
    turns: Sequence[int] | None = None,
    *,
    is_alone: bool,
) -> AlignedChecks:
    """Return one check per expectation, and one for unexpected calls where there may be no others.

    With `turns`, the turn of each call, those of one turn may come in any order.
    """
    places = places_of(names)
    found = [find(entry, names, events, words, places) for entry in expect]
    evaluation = _evaluate(order, expect, found, events, turns)
    checks: list[Check] = []
    entries: list[JSON] = []
    for index, expectation in enumerate(expect):
        ok = _verdict(evaluation, index)
        entry = _entry(evaluation, index, ok)
        if ok:
            checks.append(expectation.passed_check)
        else:
            claim, failure = expectation.passed_check.claim, _failure(evaluation, index, entry)
            checks.append(Check(ok, claim, failure, expectation.written(), _actual(evaluation, index)))
        entries.append(entry)
    if is_alone:
        checks.append(_nothing_else(evaluation, names))
    wanted = [(entry, each) for entry, each in zip(expect, found, strict=True) if entry.need.high]
    stated = argument_calls([entry for entry, _ in wanted], [each for _, each in wanted])
    return AlignedChecks(checks, certificate(order, entries, evaluation.sure.extra, evaluation.misplaced), stated)


def turns_unknown(order: Order, expect: Sequence[Expectation], *, is_alone: bool) -> AlignedChecks:
    """Return the checks where entries are to be in the order of turns, and turns were not recorded."""
    claims = [f"{entry.label} is called" for entry in expect]
    claims += ["there are no other calls"] if is_alone else []
    entries: list[JSON] = [{"expected": entry.label, "status": "undecided", "calls": []} for entry in expect]
    checks = list(undecided(claims, "turns were not recorded, so calls of one turn cannot be distinguished"))
    return AlignedChecks(checks, certificate(order, entries, [], {}))


def _evaluate(
    order: Order,
    expect: Sequence[Expectation],
    found: list[FoundCalls],
    events: list[ToolEvent],
    turns: Sequence[int] | None = None,
) -> _Evaluation:
    needs = [entry.need for entry in expect]
    fits = [each.sure for each in found]

    def assign(fits: list[list[int]]) -> Alignment:
        return align(order, needs, fits, len(events)) if turns is None else align_turns(needs, fits, turns)

    sure = possible = assign(fits)
    if any(each.maybe for each in found):
        possible = assign([sorted(each.sure + each.maybe) for each in found])
    misplaced = sure.misplaced(needs, fits)
    nearest = _nearest(expect, events, found, sure, misplaced)
    return _Evaluation(expect, events, found, sure, possible, misplaced, nearest)


def _nearest(
    expect: Sequence[Expectation],
    events: list[ToolEvent],
    found: list[FoundCalls],
    sure: Alignment,
    misplaced: dict[int, int],
) -> dict[int, int]:
    """Return for expectations short of calls the free call of that tool that differs least, each a different one."""
    short = [i for i, entry in enumerate(expect) if len(sure.taken[i]) < entry.need.low and i not in misplaced]
    if not short:
        return {}
    free = set(sure.extra).difference(misplaced.values())
    readable = [[call for call in found[i].named if call in free and call not in found[i].maybe] for i in short]
    candidates = [_by_distance(expect[i], calls, events) for i, calls in zip(short, readable, strict=True)]
    taken = align("any", [Need()] * len(short), candidates, len(events)).taken
    return {i: calls[0] for i, calls in zip(short, taken, strict=True) if calls}


def _by_distance(expectation: Expectation, calls: list[int], events: list[ToolEvent]) -> list[int]:
    """Return the calls with the fewest differing arguments first, as far as patience reaches."""
    patience = PATIENCE
    distances: dict[int, int] = {}
    for call in calls:
        if patience <= 0:
            break
        differences = list(expectation.event_differences(events[call]))
        patience -= sum(difference.undecided for difference in differences)
        distances[call] = len(differences)
    return sorted(calls, key=lambda call: distances.get(call, len(expectation.args)))


def _verdict(evaluation: _Evaluation, index: int) -> bool | None:
    """Return whether an expectation got enough calls and not too many fit it; None when undecided."""
    need, most, found = evaluation.expect[index].need, evaluation.expect[index].most, evaluation.found[index]
    if len(evaluation.possible.taken[index]) < need.low or (most is not None and len(found.sure) > most):
        return False
    if len(evaluation.sure.taken[index]) < need.low or (most is not None and len(found.sure) + len(found.maybe) > most):
        return None
    return True


def _entry(evaluation: _Evaluation, index: int, ok: bool | None) -> dict[str, JSON]:
    """Return the certificate of one expectation."""
    expectation, taken = evaluation.expect[index], evaluation.sure.taken[index]
    entry: dict[str, JSON] = {"expected": expectation.label, "status": _status(evaluation, index, ok), "calls": taken}
    if expectation.states_arguments:
        entry["checks_arguments"] = True
    if index in evaluation.misplaced:
        entry["found"] = evaluation.misplaced[index]
    if index in evaluation.nearest:
        call = evaluation.nearest[index]
        differences = expectation.event_differences(evaluation.events[call])
        entry["nearest"] = {"call": call, "differences": [difference.as_json() for difference in differences]}
    return entry


def _status(evaluation: _Evaluation, index: int, ok: bool | None) -> str:
    if ok is None:
        return "undecided"
    if ok:
        return "matched" if evaluation.expect[index].need.low or evaluation.sure.taken[index] else "absent"
    most = evaluation.expect[index].most
    if most is not None and len(evaluation.found[index].sure) > most:
        return "too_many"
    if evaluation.sure.taken[index]:
        return "too_few"
    return (
        "out_of_order"
        if index in evaluation.misplaced
        else "wrong_arguments"
        if index in evaluation.nearest
        else "missing"
    )


def _failure(evaluation: _Evaluation, index: int, entry: dict[str, JSON]) -> str:
    """Return the message about an expectation that failed or is undecided."""
    expectation, found = evaluation.expect[index], evaluation.found[index]
    status = entry["status"]
    if status == "undecided":
        return f"cannot tell whether {expectation.label} is called: arguments could not be read within limits"
    reasons = []
    if status == "too_many":
        reasons.append(f"{len(found.sure)} calls fit, at most {expectation.most} may")
    elif status == "too_few":
        reasons.append(f"{len(entry['calls'])} of {expectation.need.low} calls")
    elif status == "missing":
        reasons.append("its calls belong to other expectations" if found.named else "no call of that tool")
    if index in evaluation.misplaced:
        reasons.append(f"call {evaluation.misplaced[index] + 1} fits but is out of order")
    if index in evaluation.nearest:
        call = evaluation.nearest[index]
        differences = "; ".join(map(str, expectation.event_differences(evaluation.events[call])))
        reasons.append(f"call {call + 1}: {differences}")
    return f"expectation {expectation.label} not satisfied: {', '.join(reasons)}"


def _actual(evaluation: _Evaluation, index: int) -> JSON:
    """Return the actual value for an expectation that failed: the nearest call, or the tools that were used."""
    call = evaluation.nearest.get(index, evaluation.misplaced.get(index))
    if call is None:
        return list(dict.fromkeys(event.tool_name for event in evaluation.events))
    return {"name": evaluation.events[call].tool_name, "args": evaluation.events[call].args}


def _nothing_else(evaluation: _Evaluation, names: list[str]) -> Check:
    """Return the check that every call was expected."""
    claim = "there are no other calls"
    if not evaluation.sure.extra:
        return Check(True, claim)
    if not evaluation.possible.extra:
        return Check(None, claim, f"cannot tell whether {claim}: arguments could not be read within limits")
    others = list(dict.fromkeys(names[call] or "<unnamed>" for call in evaluation.possible.extra))
    failure = f"unexpected calls ({len(evaluation.possible.extra)}): {', '.join(others)}"
    return Check(False, claim, failure, "no other calls", others)
