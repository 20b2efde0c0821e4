"""The `side_effects` grader: what a run changed, against what it may, must and must not change."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from waza.files.snapshot import file_sha256
from waza.graders.base import Bound, Grader, InnerPath, PatternField, ToolName, not_a_list
from waza.graders.behavior import NO_TOOLS
from waza.graders.names import Names, ToolNames, is_one_of, names_of, words_of
from waza.graders.text import try_search
from waza.model import JSON, Check, ToolEvent, Trace
from waza.options import Options
from waza.traces.aliases import ARGUMENTS, dialect_of, means_shell
from waza.untrusted.command_lines import CommandClass, classify
from waza.untrusted.patterns import MAX_PATTERN_CHARS, Pattern, fits_name, path_glob
from waza.untrusted.text import clipped, plural, well_formed

Source = Literal["files", "calls", "commands"]
EffectKind = Literal["created", "changed", "deleted", "call", "command"]
SOURCES: tuple[Source, ...] = ("files", "calls", "commands")
_FILES = ("created", "changed", "deleted")
_KEYS = (*_FILES, "file", "call", "command")
_TOOL_KEYS = ("mutating_tools", "read_only_tools", "other_tools")
_COMMAND_KEYS = ("shell_tools", "mutating_commands", "read_only_commands", "unknown_commands")
_NO_LINE = "a command that was not recorded"
MOST_NAMED = 5
"""How many effects a message names."""
MOST_SHOWN = 120
"""Characters of a command line that a message shows."""
MOST_TARGET = 2_000
"""Characters of a command line that are stored with a grade; the trace has the rest."""
MOST_EFFECTS = 1_000
"""How many effects are stored with a grade."""


def _file_glob(path: str) -> str:
    if path.endswith("/"):
        raise ValueError(f"'{path}' is a folder; the files below it are '{path}**'")
    path_glob(path)  # compiled now, so that grading finds it ready
    return path


FileGlob = Annotated[InnerPath, AfterValidator(_file_glob)]
"""A file's path in the workspace, or a glob for several."""


class Selector(Options):
    """Some effects: exactly one of the keys."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    created: FileGlob | None = None
    """Files that were created; `*` and `?` stay in a folder, `**` does not."""
    changed: FileGlob | None = None
    """Files that have another content than before."""
    deleted: FileGlob | None = None
    """Files that are no longer there."""
    file: FileGlob | None = None
    """Files that were created, changed or deleted."""
    call: ToolName | None = None
    """Calls of a tool, by name or a glob."""
    command: PatternField | None = None
    """Command lines that change something, or may, and in which a pattern matches."""

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if sum(getattr(self, key) is not None for key in _KEYS) != 1:
            raise ValueError(f"a selector has one of: {', '.join(_KEYS)}")
        return self

    @cached_property
    def key(self) -> str:
        """The one key that is given."""
        return next(key for key in _KEYS if getattr(self, key) is not None)

    @property
    def source(self) -> Source:
        """Where the effects come from."""
        return "calls" if self.key == "call" else "commands" if self.key == "command" else "files"

    @cached_property
    def pattern(self) -> str:
        """The glob or pattern as it was written."""
        value = getattr(self, self.key)
        return value.source if isinstance(value, Pattern) else str(value)

    @property
    def label(self) -> str:
        """The selector as it is written in a spec."""
        return f"{{{self.key}: {self.pattern}}}"

    @cached_property
    def names(self) -> Names:
        """The tool of a `call`."""
        return names_of([self.call] if self.call is not None else [])

    def covers(self, other: Selector) -> bool:
        """Return whether certainly every effect of the other one is one of these."""
        if self.key != other.key and not (self.key == "file" and other.source == "files"):
            return False
        if self.pattern == other.pattern or self.covers_all:
            return True
        is_one = not {"*", "?"} & set(other.pattern)
        return is_one and self.source != "commands" and self._matches(other.pattern)

    @cached_property
    def covers_all(self) -> bool:
        """Whether every effect of its kind is meant."""
        if self.command is not None:
            # A line that does something is not blank, so that `.+` means all of them too.
            blank_too = rf"\A\s*\z|(?:{self.command.meant})"
            return len(blank_too) <= MAX_PATTERN_CHARS and Pattern(blank_too).matches_every_text()
        if self.call is not None:
            return not self.call.strip("*")
        return all(part == "**" for part in self.pattern.removesuffix("/*").split("/"))

    def _matches(self, text: str) -> bool:
        return fits_name(self.pattern, text) if self.source == "calls" else path_glob(self.pattern)(text)


class AtMost(Selector):
    """Some effects, and how many of them there may be."""

    count: Bound
    """How many there may be."""


class Effect(NamedTuple):
    """One entry of the ledger."""

    kind: EffectKind
    target: str
    """A path, a tool's name or a command line; empty for a command that was not recorded."""
    call: int | None = None
    """The place of the call, from 0; None for a file."""
    done: bool = True
    """False: the call failed, so this was an attempt."""
    sure: bool = True
    """False: it cannot be determined whether anything was changed."""

    @property
    def words(self) -> str:
        """The effect for people."""
        if self.kind == "command":
            shown = f'ran "{clipped(self.target, MOST_SHOWN)}"' if self.target else f"ran {_NO_LINE}"
        else:
            shown = f"{'called' if self.kind == 'call' else self.kind} {clipped(self.target, MOST_SHOWN)}"
        return shown if self.done else f"{shown} (which failed)"

    def as_json(self) -> dict[str, JSON]:
        """Return the effect as it is stored; a long target is cut."""
        return self._replace(target=clipped(self.target, MOST_TARGET))._asdict()

    @property
    def doubt(self) -> str:
        """The sentence about an effect that is not sure."""
        shown = f'"{clipped(self.target, MOST_SHOWN)}"' if self.kind == "command" else clipped(self.target, MOST_SHOWN)
        return f"cannot determine whether {shown if self.target else _NO_LINE} changes anything"


class LedgerChecks(list[Check]):
    """Checks, with the effects they are about."""

    __slots__ = ("effects", "missing")

    def __init__(self, checks: Sequence[Check], effects: Sequence[Effect], missing: dict[Source, str]) -> None:
        super().__init__(checks)
        self.effects = effects
        self.missing = missing


class SideEffectsGrader(Grader):
    """Check what a run changed: files of the workspace, calls of tools that change something, shell commands.

    The ledger has one entry per effect. *Files* are compared with those before the agent started. *Calls* are those of
    `mutating_tools` and of tools that a selector names; the agent program's own tools for files, searching, fetching,
    to-do lists, skills and sub-agents are none, and of other tools it is not known unless `other_tools` decides.
    *Commands* are lines of shell tools that are not read-only: `rm x`, `git push`, `echo a > b`; what is not known to
    change nothing, such as `make deploy`, is uncertain. A call that failed is an attempt: it counts against
    `forbidden`, `allowed` and `at_most`, never for `required`.

    `allowed` is one check: every effect fits one of its selectors, or one under `required` or `at_most`. Each selector
    under `forbidden`, `required` and `at_most` is a check of its own. What is uncertain, or was not recorded, makes a
    check undecided unless something else decides it. `details.effects` is the ledger.

    ```yaml
    - type: side_effects
      name: only_the_report
      config:
        allowed: [{created: "reports/*.md"}, {command: "^git (add|commit)\\\\b"}]
        required: [{created: "reports/*.md"}]
        forbidden: [{deleted: "**"}, {call: "*_delete"}]
        at_most: [{call: send_mail, count: 1}]
        read_only_tools: [read_*, search]
        ignore: ["**/__pycache__/**"]
    ```
    """

    checks_behavior: ClassVar[bool] = True
    all_passed: ClassVar[str] = "All side effect checks passed"

    allowed: list[Selector] | None = None
    """The only effects there may be, with those under `required` and `at_most`; an empty list allows none."""
    forbidden: list[Selector] = []
    """Effects that there must not be."""
    required: list[Selector] = []
    """Effects that there must be."""
    at_most: list[AtMost] = []
    """Effects of which there may be so many."""
    watch: Annotated[list[Source], Field(min_length=1)] = list(SOURCES)
    """Where effects are looked for: `files`, `calls`, `commands`."""
    ignore: list[FileGlob] = []
    """Paths that are in no ledger."""
    mutating_tools: list[ToolName] = []
    """Tools whose calls change something, by name or a glob."""
    read_only_tools: list[ToolName] = []
    """Tools whose calls change nothing; one that is also under `mutating_tools` changes something."""
    other_tools: Literal["undecided", "mutating", "read_only"] = "undecided"
    """What calls of all other tools are."""
    shell_tools: Annotated[list[ToolName], Field(min_length=1)] | None = None
    """Tools that run command lines; if left out, those that agent programs call shells (`bash`, `run_command`, …)."""
    mutating_commands: list[PatternField] = []
    """Patterns of command lines that change something, whatever they look like."""
    read_only_commands: list[PatternField] = []
    """Patterns of other command lines that change nothing."""
    unknown_commands: Literal["undecided", "mutating", "read_only"] = "undecided"
    """What command lines are that nothing is known about."""
    tool_names: ToolNames = "known"
    """`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""

    @model_validator(mode="after")
    def _checks_an_effect(self) -> Self:
        if self.allowed is None and not self._selectors:
            options = "allowed, forbidden, required, at_most"
            raise ValueError(f"this grader checks nothing; give at least one of: {options}")
        for selector in self._selectors:
            if selector.source not in self.watch:
                raise ValueError(f"'{selector.key}' is about {selector.source}, which 'watch' leaves out")
        self._refuse_contradictions()
        self._refuse_without_effect()
        if self.allowed is not None and all(self._allows_all(source) for source in self.watch):
            raise ValueError("'allowed' allows everything that 'watch' looks at: this check could not fail")
        return self

    def _refuse_contradictions(self) -> None:
        never = [(selector, "forbidden", "forbids it") for selector in self.forbidden]
        never += [(selector, "at most 0", "may occur 0 times") for selector in self.at_most if selector.count == 0]
        for wanted in self.required:
            for selector, same, other in never:
                if selector.covers(wanted):
                    is_same = selector.label == wanted.label
                    what = f"is required and {same}" if is_same else f"is required, but {selector.label} {other}"
                    raise ValueError(f"{wanted.label} {what}: both cannot hold")

    def _refuse_without_effect(self) -> None:
        for key in _TOOL_KEYS:
            if key in self.model_fields_set and self.allowed is None:
                raise ValueError(f"'{key}' has no effect without 'allowed'")
        for most in self.at_most:
            # Next to `allowed` it still says that the file may be changed.
            is_one_file = most.source == "files" and not {"*", "?"} & set(most.pattern)
            if is_one_file and most.count and self.allowed is None:
                raise ValueError(f"'{most.pattern}' is one file: at most {most.count} always holds; give 0 or a glob")
        for source, keys in (("files", ("ignore",)), ("calls", _TOOL_KEYS), ("commands", _COMMAND_KEYS)):
            for key in keys:
                if key in self.model_fields_set and not self._is_about(source):
                    raise ValueError(f"'{key}' has no effect: no check is about {source}")

    def _allows_all(self, source: Source) -> bool:
        """Return whether no effect of a source can be one that is not allowed."""
        if source == "calls" and self.other_tools == "read_only" and not self.mutating_tools:
            return not any(selector.source == source for selector in self.forbidden)
        covering = [each for each in (*(self.allowed or []), *self.required, *self.at_most) if each.covers_all]
        keys = {each.key for each in covering if each.source == source}
        return bool(keys) if source != "files" else "file" in keys or keys.issuperset(_FILES)

    @cached_property
    def _selectors(self) -> list[Selector]:
        return [*(self.allowed or []), *self.forbidden, *self.required, *self.at_most]

    @cached_property
    def _named(self) -> Names:
        return names_of(self.mutating_tools, (each.call for each in self._selectors if each.call is not None))

    @cached_property
    def _read_only(self) -> Names:
        return names_of(self.read_only_tools)

    @cached_property
    def _shells(self) -> Names | None:
        return None if self.shell_tools is None else names_of(self.shell_tools)

    def _is_about(self, source: str) -> bool:
        """Return whether a check is about effects of a source."""
        if self.allowed is not None and source in self.watch:
            return True
        return any(each.source == source for each in self._selectors)

    @cached_property
    def needs_files_before(self) -> bool:
        """Whether a check is about files."""
        return self._is_about("files")

    def option_warnings(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the paths with braces or brackets that look like lists of names."""
        yield from super().option_warnings()
        for key in ("allowed", "forbidden", "required", "at_most"):
            for at, selector in enumerate(getattr(self, key) or []):
                if selector.source == "files" and (warning := not_a_list(selector.pattern)):
                    yield (key, at, selector.key), warning
        yield from ((("ignore", at), warning) for at, path in enumerate(self.ignore) if (warning := not_a_list(path)))

    def checks(self, trace: Trace) -> LedgerChecks:
        """Return one check for `allowed`, and one for each selector under `forbidden`, `required` and `at_most`."""
        ledger = _Ledger(self, trace)
        checks = [self._allowed_check(ledger)] if self.allowed is not None else []
        checks += [_forbidden_check(ledger, selector) for selector in self.forbidden]
        checks += [_required_check(ledger, selector) for selector in self.required]
        checks += [_at_most_check(ledger, selector) for selector in self.at_most]
        return LedgerChecks(checks, ledger.effects, ledger.missing)

    def _allowed_check(self, ledger: _Ledger) -> Check:
        claim = "every effect is allowed, required or bounded"
        covering = [*(self.allowed or []), *self.required, *self.at_most]
        wrong: list[Effect] = []
        unsure: list[Effect] = []
        for effect in ledger.effects:
            fits = [ledger.fits(selector, effect) for selector in covering]
            if True not in fits:
                (wrong if effect.sure and None not in fits else unsure).append(effect)
        doubts = _listed([_undecided_fit(effect) for effect in unsure], "; ") if unsure else ""
        if wrong:
            words = _listed([effect.words for effect in wrong])
            failure = "; ".join(part for part in (f"not allowed: {words}", doubts) if part)
            return Check(False, claim, failure, [selector.label for selector in covering], words)
        missing = [reason for source, reason in ledger.missing.items() if source in self.watch]
        if unsure or missing:
            gaps = [f"cannot determine whether {claim}: {reason}" for reason in dict.fromkeys(missing)]
            return Check(None, claim, "; ".join([*([doubts] if doubts else []), *gaps]))
        return Check(True, claim)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return the ledger, and which sources were not recorded."""
        if not isinstance(checks, LedgerChecks):
            return {}
        facts: dict[str, JSON] = {"effects": [effect.as_json() for effect in checks.effects[:MOST_EFFECTS]]}
        if (more := len(checks.effects) - MOST_EFFECTS) > 0:
            facts["effects_left_out"] = more
        return facts | ({"not_recorded": dict(checks.missing)} if checks.missing else {})


class _Ledger:
    """The effects of one trace, and which of them fit a selector."""

    def __init__(self, grader: SideEffectsGrader, trace: Trace) -> None:
        self.grader = grader
        self.trace = trace
        self.words = words_of(trace, grader.tool_names)
        self.program = dialect_of(trace)
        self.events = trace.tool_events or []
        self.missing: dict[Source, str] = {}
        """By source: why not all of its effects are known."""
        self.effects: list[Effect] = []
        if grader.needs_files_before:
            self.effects += self._files()
        about_calls, about_commands = grader._is_about("calls"), grader._is_about("commands")
        if trace.tool_events is None:
            self.missing |= {"calls": NO_TOOLS} if about_calls else {}
            self.missing |= {"commands": NO_TOOLS} if about_commands else {}
        for place, event in enumerate(self.events):
            self.effects += self._call(place, event) if about_calls else []
            self.effects += self._command(place, event) if about_commands and self._is_shell(event) else []

    def fits(self, selector: Selector, effect: Effect) -> bool | None:
        """Return whether an effect is one of a selector's; None where that cannot be determined."""
        if effect.kind == "command":
            if selector.command is None:
                return False
            return _search(selector.command, effect.target) if effect.target else None
        if effect.kind == "call":
            assert effect.call is not None
            return selector.call is not None and is_one_of(self.events[effect.call], selector.names, self.words)
        return selector.key in (effect.kind, "file") and path_glob(selector.pattern)(effect.target)

    def _files(self) -> Iterator[Effect]:
        """Yield what became of files, by path."""
        files, before = self.trace.files, self.trace.files_before
        if files is None or before is None:
            fact = "the files the agent left" if files is None else "the files before the agent started"
            self.missing["files"] = f"{fact} were not recorded"
            return
        try:
            now = {well_formed(path): path for path in files.paths()}
        except OSError as error:
            self.missing["files"] = f"the workspace cannot be read: {error.strerror or error}"
            return
        ignored = [path_glob(glob) for glob in self.grader.ignore]
        for path in sorted({*now, *before}):
            if any(ignores(path) for ignores in ignored):
                continue
            if path not in before:
                yield Effect("created", path)
            elif path not in now:
                yield Effect("deleted", path)
            else:
                try:
                    if file_sha256(files, f"./{now[path]}") != before[path].lower():
                        yield Effect("changed", path)
                except OSError as error:
                    self.missing["files"] = f"{path} cannot be read: {error.strerror or error}"

    def _call(self, place: int, event: ToolEvent) -> Iterator[Effect]:
        """Yield the effect of a call of a tool that changes something, or may."""
        grader = self.grader
        other: CommandClass = "unknown" if grader.other_tools == "undecided" else grader.other_tools
        if is_one_of(event, grader._named, self.words):
            other = "mutating"
        elif grader.allowed is None or is_one_of(event, grader._read_only, self.words) or self._is_own_tool(event):
            other = "read_only"
        if other != "read_only":
            yield Effect("call", event.tool_name, place, event.success, other == "mutating")

    def _command(self, place: int, event: ToolEvent) -> Iterator[Effect]:
        """Yield the effect of a command line that changes something, or may."""
        line = command_line(event)
        found = self._class(line)
        if found != "read_only":
            yield Effect("command", line or "", place, event.success, found == "mutating")

    def _class(self, line: str | None) -> CommandClass:
        """Return the class of a line: by the author's patterns, else by what is known of its programs."""
        grader = self.grader
        found: CommandClass = "unknown" if line is None else classify(line)
        if found == "unknown" and grader.unknown_commands != "undecided":
            found = grader.unknown_commands
        if line is None:
            return found
        declared: tuple[tuple[list[Pattern], CommandClass], ...] = (
            (grader.read_only_commands, "read_only"),
            (grader.mutating_commands, "mutating"),
        )
        for patterns, meaning in declared:
            matches = [_search(pattern, line) for pattern in patterns]
            if True in matches:
                found = meaning
            elif None in matches and found != meaning:
                found = "unknown"
        return found

    def _is_shell(self, event: ToolEvent) -> bool:
        shells = self.grader._shells
        return means_shell(event.tool_name) if shells is None else is_one_of(event, shells, self.words)

    def _is_own_tool(self, event: ToolEvent) -> bool:
        """Return whether a tool is a shell, or one of the agent program's own, whose changes are in the files."""
        return self._is_shell(event) or (self.program is not None and bool(self.program.kinds(event)))


def command_line(event: ToolEvent) -> str | None:
    """Return the command line of a shell tool's call; None where none can be read."""
    args: dict[str, Any] = event.args if isinstance(event.args, dict) else {}
    match next((args[key] for key in ARGUMENTS[0] if key in args), None):
        case str(line) | [str(line)]:
            return line
        case [*words] if words and all(isinstance(word, str) for word in words):
            return shlex.join(words)
        case _:
            return None


def _forbidden_check(ledger: _Ledger, selector: Selector) -> Check:
    claim = f"no effect fits {selector.label}"
    sure, unsure = _fitting(ledger, selector)
    if sure:
        words = _listed([effect.words for effect in sure])
        return Check(False, claim, f"forbidden {selector.label}: {words}", selector.label, words)
    if unsure or selector.source in ledger.missing:
        return Check(None, claim, _why_undecided(ledger, selector, claim, unsure))
    return Check(True, claim)


def _required_check(ledger: _Ledger, selector: Selector) -> Check:
    claim = f"an effect fits {selector.label}"
    sure, unsure = _fitting(ledger, selector)
    if any(effect.done for effect in sure):
        return Check(True, claim)
    possible = [effect for effect in unsure if effect.done]
    if possible or selector.source in ledger.missing:
        return Check(None, claim, _why_undecided(ledger, selector, claim, possible))
    attempts = f", only {plural(len(sure), 'call')} that failed" if sure else ""
    return Check(False, claim, f"required {selector.label}: there is none{attempts}", selector.label)


def _at_most_check(ledger: _Ledger, selector: AtMost) -> Check:
    claim = f"at most {plural(selector.count, 'effect')} fit {selector.label}"
    sure, unsure = _fitting(ledger, selector)
    if len(sure) > selector.count:
        words = _listed([effect.words for effect in sure])
        failure = f"at most {selector.count} of {selector.label}, found {len(sure)}: {words}"
        return Check(False, claim, failure, selector.count, len(sure))
    if len(sure) + len(unsure) > selector.count or selector.source in ledger.missing:
        return Check(None, claim, _why_undecided(ledger, selector, claim, unsure))
    return Check(True, claim)


def _fitting(ledger: _Ledger, selector: Selector) -> tuple[list[Effect], list[Effect]]:
    """Return the effects that certainly fit a selector, and those that may."""
    sure: list[Effect] = []
    unsure: list[Effect] = []
    for effect in ledger.effects:
        fits = ledger.fits(selector, effect)
        if fits is not False:
            (sure if fits and effect.sure else unsure).append(effect)
    return sure, unsure


def _why_undecided(ledger: _Ledger, selector: Selector, claim: str, unsure: Sequence[Effect]) -> str:
    if unsure:
        return _listed([_undecided_fit(effect) for effect in unsure], "; ")
    return f"cannot determine whether {claim}: {ledger.missing[selector.source]}"


def _undecided_fit(effect: Effect) -> str:
    """Return why it is not known whether an effect counts."""
    if not effect.sure:
        return effect.doubt
    return (
        f'cannot determine whether a pattern matches "{clipped(effect.target, MOST_SHOWN)}"'
        if effect.target
        else effect.doubt
    )


def _search(pattern: Pattern, line: str) -> bool | None:
    """Return whether a pattern matches a line; None where time ran out."""
    found = try_search(pattern, line)
    return found if isinstance(found, bool) else None


def _listed(texts: Sequence[str], separator: str = ", ") -> str:
    """Return the first of some texts, and how many more there are."""
    distinct = list(dict.fromkeys(texts))
    more = f"{separator}and {len(distinct) - MOST_NAMED} more" if len(distinct) > MOST_NAMED else ""
    return separator.join(distinct[:MOST_NAMED]) + more
