"""What one tool call must look like, name and arguments, and the calls of a trace that do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple, Self

from pydantic import ConfigDict, model_validator

from waza.graders._fields import Text, ToolName, ToolPattern
from waza.graders._match import PATIENCE, ArgMatcher, Difference
from waza.graders._values import Steps, parse_path, values_at
from waza.model import JSON, ToolEvent
from waza.options import Options
from waza.sandbox.patterns import Pattern, PatternTimeout, fits_name, name_glob
from waza.traces._aliases import Dialect

_USUAL_NAME_CHARS = 100


class CallMatcher(Options):
    """What one tool call must look like."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    tool: ToolPattern | None = None
    """A pattern that matches somewhere in the tool's name, in any case."""
    name: ToolName | None = None
    """The tool's name, exact and case-sensitive, or a glob (`search_*`); instead of `tool`."""
    args: dict[Text, ArgMatcher] = {}
    """Matchers by argument; a key may be a path such as `user.city`, `items[0].id` or `items[*].id`."""

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
        """The tool and the arguments looked at, for people."""
        kind = "name" if self.tool is None else "tool"
        return f'{kind}="{self.tool_text}"' + (f" args: [{', '.join(sorted(self.args))}]" if self.args else "")

    @property
    def states_arguments(self) -> bool:
        """Whether it says anything about a call's arguments."""
        return bool(self.args)

    def written(self) -> dict[str, JSON]:
        """Return the matcher as an author would write it."""
        return self.model_dump(exclude_unset=True)

    def differences(self, args: JSON) -> Iterator[Difference]:
        """Yield every argument that is not as expected, or of which nobody can tell."""
        given = args if isinstance(args, dict) else {}
        for key, matcher in self.args.items():
            difference = matcher.difference(key, values_at(given, key, self._paths[key]))
            if difference is not None:
                yield difference

    def tells(self, name: str) -> bool | None:
        """Say whether a tool's name is the one expected; None when nobody can tell."""
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
        """Say whether a call is of the tool expected, whatever the agent's program calls it."""
        return bool(self.tells(event.tool_name)) or (words is not None and words.same(self.declared, event))

    @cached_property
    def _search(self) -> Callable[[str], bool]:
        """The pattern, with a memory: traces of one suite call the same few tools."""
        return lru_cache(maxsize=128)(self.tool.search if self.tool else bool)


class Found(NamedTuple):
    """The calls a matcher looked for, by their places in the trace."""

    named: list[int]
    """The tool's name fits."""
    sure: list[int]
    """Name and arguments fit."""
    maybe: list[int]
    """Nobody can tell: a pattern ran out of time."""


def argument_calls(matchers: Iterable[CallMatcher], found: Iterable[Found]) -> dict[str, JSON]:
    """Return the places of the calls to tools whose arguments are stated, and of the right ones; empty without any.

    Calls of which nobody can tell are left out.
    """
    stating = [each for matcher, each in zip(matchers, found, strict=True) if matcher.states_arguments]
    right = {call for each in stating for call in each.sure}
    unknown = {call for each in stating for call in each.maybe} - right
    calls = {call for each in stating for call in each.named} - unknown
    return {"calls": sorted(calls), "right": sorted(right)} if calls else {}


def find(matcher: CallMatcher, names: list[str], events: list[ToolEvent], words: Dialect | None = None) -> Found:
    """Return the calls whose name fits, and those that fit as a whole; `names` are the calls' tool names.

    `words` tells which names of the agent's program mean the same tool. After PATIENCE arguments that could not be
    read, the rest of the calls is not looked into.
    """
    tells = _tell(matcher, names)
    meant = _meant(matcher, events, words)
    named = [index for index, name in enumerate(names) if index in meant or tells[name] is not False]
    found = Found(named, [], [])
    patience = PATIENCE
    for index in named:
        fits = (index in meant or tells[names[index]]) if patience else None
        for difference in matcher.differences(events[index].args) if patience else ():
            if not difference.undecided:
                break
            fits = None
            patience -= patience > 0
        else:
            (found.sure if fits else found.maybe).append(index)
    return found


def _meant(matcher: CallMatcher, events: list[ToolEvent], words: Dialect | None) -> set[int]:
    """Return the calls of the tool the author means by its name in another program."""
    if words is None or not (declared := matcher.declared):
        return set()
    return {index for index, event in enumerate(events) if words.same(declared, event)}


def _tell(matcher: CallMatcher, names: list[str]) -> dict[str, bool | None]:
    """Return for each tool's name whether it is the one expected, as far as patience reaches."""
    tells: dict[str, bool | None] = {}
    unknown = 0
    for name in dict.fromkeys(names):
        tells[name] = matcher.tells(name) if unknown < PATIENCE else None
        unknown += tells[name] is None
    return tells
