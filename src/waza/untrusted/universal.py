"""Decide whether a pattern matches every text, or none, so that a check with it could only pass or only fail.

The pattern becomes an automaton over classes of characters that it does not distinguish, and all texts are explored,
for the first question the shortest first, until one is found that does not match (that does), or none is left. A
lookahead is a condition on the rest of the text that a thread carries along, a lookbehind an automaton of its own.
Where the pattern is beyond this (references to groups, atomic groups), only matches that are certain are counted for
the first question, and all that are possible for the second; the answer True is always a proof.

`re2_tree` and `python_tree` read the two syntaxes; both assume a pattern that its engine has accepted.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property, lru_cache
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from waza.untrusted.lookaround import TOKEN, code_of

MAX_STATES = 4_000
MAX_STEPS = 40_000
"""Limits of the work for one pattern; beyond them the answer is None."""
_LITERAL = re.compile(r"\\x\{([0-9a-f]+)\}|\\U([0-9a-f]{8})")

Members: TypeAlias = "Callable[[str], list[range]]"
"""Returns the characters that a pattern for one character matches."""


class Atom(NamedTuple):
    """One character, by a pattern for it."""

    source: str


class PatternPosition(NamedTuple):
    """A condition on the characters before and after a position."""

    kind: str
    """`start`, `end`, `line_start`, `line_end`, or about the edges of words: `edge`, `no_edge`, `no_edge_in_text`."""
    word: str = ""
    """For the edges of words, the pattern of a word character."""


class Sequence(NamedTuple):
    """One after the other."""

    parts: tuple[Node, ...]


class Either(NamedTuple):
    """One of several."""

    branches: tuple[Node, ...]


class Repeat(NamedTuple):
    """A repetition; `most` is None where there is no limit."""

    node: Node
    least: int
    most: int | None


class PatternGroup(NamedTuple):
    """A group that may be referred to."""

    name: int
    node: Node


class Reference(NamedTuple):
    """A back-reference to what a group matched."""

    name: int


class Look(NamedTuple):
    """A lookahead or lookbehind."""

    node: Node
    ahead: bool
    wanted: bool


class Atomic(NamedTuple):
    """An atomic group: the engine does not backtrack into it."""

    node: Node


class Unknown(NamedTuple):
    """A part that is not analysed."""


Node: TypeAlias = (
    Atom | PatternPosition | Sequence | Either | Repeat | PatternGroup | Reference | Look | Atomic | Unknown
)
NEWLINE = r"\x{a}"
_ANY = "(?s:.)"
Groups: TypeAlias = frozenset[int]


def matches_every_text(read: Callable[[], Node], members: Members) -> bool | None:
    """Return whether the pattern that `read` returns matches every text, None when that takes too long to decide."""
    try:
        return _Search(_Automaton(read()), members).every_text_matches()
    except (_LimitReached, RecursionError):
        return None


def matches_no_text(read: Callable[[], Node], members: Members, ascii_members: Members) -> bool:
    r"""Return whether a pattern certainly matches nowhere, such as `$a`, `a\bb` and `[^\s\S]`.

    Most patterns match some ASCII text, which is found without trying all characters.
    """
    try:
        automaton = _Automaton(_loosened(read()))
        in_ascii = _Search(automaton, ascii_members, 0x80)
        return not in_ascii.some_text_matches() and not _Search(automaton, members).some_text_matches()
    except (_LimitReached, RecursionError):
        return False


def _loosened(node: Node, *, wanted: bool = True) -> Node:
    """Return a tree that matches wherever `node` does, and perhaps elsewhere, of parts that can be analysed exactly.

    A part that must not match (`wanted` is false) is kept or dropped as a whole.
    """
    match node:
        case Sequence(parts):
            return Sequence(tuple(_loosened(part, wanted=wanted) for part in parts))
        case Either(branches):
            return Either(tuple(_loosened(branch, wanted=wanted) for branch in branches))
        case Repeat(inner, least, most):
            return Repeat(_loosened(inner, wanted=wanted), least, most)
        case PatternGroup(_, inner) | Atomic(inner):
            return _loosened(inner, wanted=wanted)
        case Reference() | Unknown():
            return Repeat(Atom(_ANY), 0, None)
        case PatternPosition("no_edge_in_text", word) if wanted:
            return PatternPosition("no_edge", word)
        case Look(inner, ahead, is_wanted):
            beyond = Look | Reference | Unknown | Atomic
            if not (ahead and is_wanted) and any(isinstance(part, beyond) for part in _nodes(inner)):
                return Sequence(())
            return Look(_loosened(inner, wanted=is_wanted), ahead, is_wanted)
    return node


class _LimitReached(Exception):
    """More work than MAX_STATES or MAX_STEPS allow."""


class _Automaton:
    """A nondeterministic automaton: steps over characters and empty steps, the latter possibly under a condition."""

    def __init__(self, tree: Node) -> None:
        self.free: list[list[tuple[PatternPosition | Look | Unknown | None, int]]] = []
        self.steps: list[list[tuple[str, int]]] = []
        self.looks: dict[Look, tuple[int, int]] = {}
        self.atoms: dict[str, None] = {NEWLINE: None}
        nodes = list(_nodes(tree))
        self._has_looks = any(isinstance(node, Look) for node in nodes)
        self._referred = {node.name for node in nodes if isinstance(node, Reference)}
        self.start, self.accept = self._state(), self._state()
        self._build(tree, self.start, self.accept, frozenset())

    def _state(self) -> int:
        if len(self.free) == MAX_STATES:
            raise _LimitReached
        self.free.append([])
        self.steps.append([])
        return len(self.free) - 1

    def _build(self, node: Node, here: int, there: int, known: Groups, empty: bool = False) -> Groups:
        """Put a node between two states and return the groups that are certainly set after it.

        With `empty` no character is consumed.
        """
        match node:
            case Atom(source):
                self.atoms[source] = None
                self.steps[here] += [] if empty else [(source, there)]
            case PatternPosition():
                self.atoms |= {node.word: None} if node.word else {}
                self.free[here].append((node, there))
            case Sequence(parts):
                for part in parts:
                    middle = self._state()
                    known |= self._build(part, here, middle, known, empty)
                    here = middle
                self.free[here].append((None, there))
            case Either(branches):
                set_by_all = [self._build(branch, here, there, known, empty) for branch in branches]
                known |= frozenset.intersection(*set_by_all) if set_by_all else frozenset()
            case Repeat():
                known |= self._build_repeat(node, here, there, known, empty)
            case PatternGroup(name, inner):
                # A reference is followed only where its group matched nothing, which is then certain.
                known |= self._build(inner, here, there, known, empty or name in self._referred) | {name}
            case Reference(name):
                certain = name in known and not self._has_looks
                self.free[here].append((None if certain else Unknown(), there))
            case Look():
                if node not in self.looks:
                    self.looks[node] = self._state(), self._state()
                    self._build(node.node, *self.looks[node], frozenset())
                self.free[here].append((node, there))
            case Atomic(inner):
                # At the end of the text there is only one way to match: nothing.
                middle = self._state()
                self.free[here].append((Unknown() if self._has_looks else PatternPosition("end"), middle))
                known |= self._build(inner, middle, there, known, empty)
            case Unknown():
                self.free[here].append((node, there))
        return known

    def _build_repeat(self, node: Repeat, here: int, there: int, known: Groups, empty: bool) -> Groups:
        first: Groups = frozenset()
        for number in range(node.least if node.most is None else node.most):
            if number >= node.least:
                self.free[here].append((None, there))
            after = self._state()
            found = self._build(node.node, here, after, known, empty)
            first |= found if node.least else frozenset()
            here = after
        if node.most is None:
            loop, after = self._state(), self._state()
            self.free[here].append((None, loop))
            self._build(node.node, loop, after, known, empty)
            self.free[after].append((None, loop))
            here = loop
        self.free[here].append((None, there))
        return first


def _nodes(tree: Node) -> Iterator[Node]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case Sequence(inner) | Either(inner):
                waiting += inner
            case Repeat() | PatternGroup() | Look() | Atomic():
                waiting.append(node.node)


class _MatchThread(NamedTuple):
    """One way to match: where it is, what must still follow, and what must not."""

    state: int
    owed: frozenset[tuple[int, int]] = frozenset()
    """States of the lookaheads that must match, each with its accepting state."""
    barred: frozenset[tuple[frozenset[int], int]] = frozenset()
    """The same for those that must not match: all states they can be in."""


class _Text(NamedTuple):
    """The state of the search after the texts that were read so far and have not matched."""

    threads: frozenset[_MatchThread]
    behind: tuple[frozenset[int], ...]
    """The states of each lookbehind."""
    last: frozenset[str] | None
    """The last character, by the atoms that match it; None at the start."""


class _Search:
    """Explores texts character by character."""

    def __init__(self, automaton: _Automaton, members: Members, characters: int = 0x110000) -> None:
        self.automaton = automaton
        self._members = members
        self._characters = characters
        self._behind = [look for look in automaton.looks if not look.ahead]
        self._nested = {
            look
            for look in automaton.looks
            if any(isinstance(node, Look | Unknown | Reference | Atomic) for node in _nodes(look.node))
        }
        self._steps_left = MAX_STEPS

    def every_text_matches(self) -> bool:
        """Return whether every text matches."""
        if self._matches_nothing_anywhere():
            return True
        waiting = deque([_Text(frozenset({_MatchThread(self.automaton.start)}), self._started(()), None)])
        visited = set(waiting)
        while waiting:
            text = waiting.popleft()
            closed, _ = self._closed(text, None)
            if not any(thread.state == self.automaton.accept and not thread.owed for thread in closed):
                return False
            for following in self._alphabet:
                after = self._after(text, following)
                if after is not None and after not in visited:
                    visited.add(after)
                    waiting.append(after)
        return True

    def some_text_matches(self) -> bool:
        """Return whether some text matches; one thread at a time is enough."""
        waiting = [_Text(frozenset({_MatchThread(self.automaton.start)}), self._started(()), None)]
        visited = set(waiting)
        while waiting:
            text = waiting.pop()
            closed, _ = self._closed(text, None)
            if any(thread.state == self.automaton.accept and not thread.owed for thread in closed):
                return True
            for following in self._alphabet:
                closed, behind = self._closed(text, following)
                moved = tuple(frozenset(self._targets(states, following)) for states in behind)
                threads = {_MatchThread(self.automaton.start)}.union(
                    *(self._moved(thread, following) for thread in closed)
                )
                for thread in threads:
                    after = _Text(frozenset({thread}), self._started(moved), following)
                    if after not in visited:
                        visited.add(after)
                        waiting.append(after)
        return False

    def _matches_nothing_anywhere(self) -> bool:
        """Return whether an empty match is possible at every place, whatever precedes and follows it."""
        start = self.automaton.start
        reached, waiting = {start}, [start]
        while waiting:
            for condition, state in self.automaton.free[waiting.pop()]:
                if condition is None and state not in reached:
                    reached.add(state)
                    waiting.append(state)
        return self.automaton.accept in reached

    @cached_property
    def _alphabet(self) -> list[frozenset[str]]:
        return _classes(self.automaton.atoms, self._members, self._characters)

    def _started(self, states: Iterable[frozenset[int]]) -> tuple[frozenset[int], ...]:
        """Return the states of the lookbehinds with a new start at this position."""
        before = list(states) or [frozenset[int]()] * len(self._behind)
        return tuple(
            states | {self.automaton.looks[look][0]} for look, states in zip(self._behind, before, strict=True)
        )

    def _after(self, text: _Text, following: frozenset[str]) -> _Text | None:
        """Return a text with one more character, or None if it matches whatever follows."""
        closed, behind = self._closed(text, following)
        accept = self.automaton.accept
        if any(thread.state == accept and not thread.owed and not thread.barred for thread in closed):
            return None
        threads = {_MatchThread(self.automaton.start)}
        for thread in closed:
            threads.update(self._moved(thread, following))
        moved = (frozenset(self._targets(states, following)) for states in behind)
        return _Text(frozenset(threads), self._started(moved), following)

    def _moved(self, thread: _MatchThread, following: frozenset[str]) -> Iterator[_MatchThread]:
        accept = self.automaton.accept
        states = [accept] if thread.state == accept else list(self._targets([thread.state], following))
        owed = [[(to, goal) for to in self._targets([state], following)] for state, goal in thread.owed]
        barred = {(frozenset(self._targets(states, following)), goal) for states, goal in thread.barred}
        left = frozenset((states, goal) for states, goal in barred if states)
        for state in states:
            for choice in product(*owed):
                yield _MatchThread(state, frozenset(choice), left)

    def _targets(self, states: Iterable[int], following: frozenset[str]) -> Iterator[int]:
        for state in states:
            for source, target in self.automaton.steps[state]:
                if source in following:
                    yield target

    def _closed(
        self, text: _Text, following: frozenset[str] | None
    ) -> tuple[frozenset[_MatchThread], list[frozenset[int]]]:
        """Return the threads and lookbehinds after all empty steps, between the last character and the next."""
        neighbours = (text.last, following)
        behind = [self._reached(states, neighbours) for states in text.behind]
        truths = {
            look: None if look in self._nested else self.automaton.looks[look][1] in states
            for look, states in zip(self._behind, behind, strict=True)
        }
        visited: set[_MatchThread] = set()
        waiting = list(text.threads)
        while waiting:
            self._steps_left -= 1
            if self._steps_left < 0:
                raise _LimitReached
            thread = self._settled(waiting.pop(), neighbours)
            if thread is None or thread in visited:
                continue
            visited.add(thread)
            for condition, state in self.automaton.free[thread.state]:
                waiting += self._taken(thread._replace(state=state), condition, neighbours, truths)
            for owed in thread.owed:
                for condition, state in self.automaton.free[owed[0]]:
                    moved = thread._replace(owed=thread.owed - {owed} | {(state, owed[1])})
                    waiting += self._taken(moved, condition, neighbours, truths)
        return frozenset(visited), behind

    def _settled(self, thread: _MatchThread, neighbours: _Neighbours) -> _MatchThread | None:
        """Return a thread without the lookaheads that matched, or None if a barred one did."""
        barred = set()
        for states, goal in thread.barred:
            reached = self._reached(states, neighbours, cautious=True)
            if goal in reached or -1 in reached:
                return None
            barred.add((reached, goal))
        owed = frozenset(pair for pair in thread.owed if pair[0] != pair[1])
        return _MatchThread(thread.state, owed, frozenset(barred))

    def _taken(
        self,
        moved: _MatchThread,
        condition: PatternPosition | Look | Unknown | None,
        neighbours: _Neighbours,
        truths: dict[Look, bool | None],
    ) -> Iterator[_MatchThread]:
        """Yield the thread that an empty step leads to, if the step's condition may be met."""
        match condition:
            case None:
                yield moved
            case PatternPosition():
                if _is_met(condition, neighbours):
                    yield moved
            case Look(ahead=False):
                if truths[condition] is condition.wanted:
                    yield moved
            case Look(wanted=True):
                yield moved._replace(owed=moved.owed | {self.automaton.looks[condition]})
            case Look():
                first, goal = self.automaton.looks[condition]
                yield moved._replace(barred=moved.barred | {(frozenset({first}), goal)})

    def _reached(self, states: Iterable[int], neighbours: _Neighbours, *, cautious: bool = False) -> frozenset[int]:
        """Return the states after all empty steps; `cautious` adds -1 where that is unknown."""
        reached = set(states)
        waiting = list(reached)
        while waiting:
            for condition, state in self.automaton.free[waiting.pop()]:
                if isinstance(condition, (Look, Unknown)):
                    reached |= {-1} if cautious else set()
                elif state not in reached and (condition is None or _is_met(condition, neighbours)):
                    reached.add(state)
                    waiting.append(state)
        return frozenset(reached)


_Neighbours: TypeAlias = tuple[frozenset[str] | None, frozenset[str] | None]
"""The characters before and after a position; None where the text begins or ends."""


def _is_met(place: PatternPosition, neighbours: _Neighbours) -> bool:
    before, after = neighbours
    match place.kind:
        case "start":
            return before is None
        case "end":
            return after is None
        case "line_start":
            return before is None or NEWLINE in before
        case "line_end":
            return after is None or NEWLINE in after
    is_edge = (before is not None and place.word in before) != (after is not None and place.word in after)
    if place.kind == "edge":
        return is_edge
    # Python before 3.14 does not find the lack of an edge in an empty text; not counting it is safe for later ones.
    return not is_edge and (place.kind == "no_edge" or before is not None or after is not None)


def _classes(atoms: Iterable[str], members: Members, characters: int) -> list[frozenset[str]]:
    """Return the classes of characters that no atom distinguishes, each as the atoms that match it."""
    changes: dict[int, set[str]] = {0: set(), 0xE000: set()}
    for atom in atoms:
        literal = _LITERAL.fullmatch(atom)
        code = int(literal[1] or literal[2], 16) if literal else 0
        for span in [range(code, code + 1)] if literal else members(atom):
            for edge in (span.start, span.stop):
                changes.setdefault(edge, set()).symmetric_difference_update({atom})
    found: dict[frozenset[str], None] = {}
    inside: frozenset[str] = frozenset()
    for edge in sorted(changes):
        inside ^= changes[edge]
        if not 0xD800 <= edge < 0xE000 and edge < characters:
            found[inside] = None
    return list(found)


ASCII = "".join(map(chr, range(0x80)))


@cache
def every_character() -> str:
    """Return a text of all characters in order, without surrogates."""
    return "".join(map(chr, range(0xD800))) + "".join(map(chr, range(0xE000, 0x110000)))


def spans(runs: Iterable[str]) -> list[range]:
    """Return parts of `every_character` as ranges of code points."""
    found: list[range] = []
    for run in runs:
        first, last = ord(run[0]), ord(run[-1])
        crosses = first < 0xD800 <= last
        found += [range(first, 0xD800), range(0xE000, last + 1)] if crosses else [range(first, last + 1)]
    return found


@lru_cache(maxsize=64)
def python_members(source: str) -> list[range]:
    """Return the characters that a pattern of `python_tree` for one character matches."""
    return spans(found[0] for found in re.finditer(f"(?:{source})+", every_character()))


def python_ascii_members(source: str) -> list[range]:
    """Return the ASCII characters among them."""
    return spans(found[0] for found in re.finditer(f"(?:{source})+", ASCII))


def re2_tree(source: str, *, ignore_case: bool) -> Node:
    """Return a pattern in RE2's syntax, with lookaround and references, as a tree."""
    return _Re2Reader(source).group(frozenset("i" if ignore_case else ""))


class _Re2Reader:
    """Reads the tokens of a pattern, one group at a time."""

    def __init__(self, source: str) -> None:
        self._tokens = TOKEN.finditer(source)
        self._groups = 0
        self._names: dict[str, int] = {}

    def group(self, flags: frozenset[str]) -> Node:
        """Return everything up to the end of a group; flags set on the way apply to the rest of it."""
        branches: list[list[Node]] = [[]]
        for token in self._tokens:
            if token["close"]:
                break
            if token["either"]:
                branches.append([])
            elif token["flags_end"]:
                on, _, off = token["flags"].partition("-")
                changed = (flags | set(on)) - set(off)
                if token["flags_end"] == ")":
                    flags = changed
                else:
                    branches[-1].append(self.group(changed))
            elif token["repeat"]:
                branches[-1].append(_repeated(branches[-1].pop(), token["repeat"]))
            else:
                branches[-1] += self._parts(token, flags)
        found = [Sequence(tuple(parts)) for parts in branches]
        return found[0] if len(found) == 1 else Either(tuple(found))

    def _parts(self, token: re.Match[str], flags: frozenset[str]) -> list[Node]:
        if look := token["look"]:
            return [Look(self.group(flags), ahead="<" not in look, wanted="=" in look)]
        if token["open"]:
            self._groups += 1
            number = self._groups
            self._names[token["group"] or ""] = number
            return [PatternGroup(number, self.group(flags))]
        if token["number"] or token["name"] or token["k_name"]:
            name = token["name"] or token["k_name"]
            return [Reference(self._names.get(name, 0) if name else int(token["number"]))]
        if token["quoted"] is not None:
            return [_re2_literal(ord(char), flags) for char in token["quoted"]]
        if token["char"] is not None:
            return [Unknown() if token["char"] == "\\C" else _re2_literal(code_of(token["char"]), flags)]
        if token["place"] in _PLACES and token["place"] != ".":
            without, with_m = _PLACES[token["place"]]
            return [PatternPosition(with_m if "m" in flags else without, r"\w" if "edge" in without else "")]
        set_flags = "".join(sorted(flags & {"i", "s"}))
        return [Atom(f"(?{set_flags}:{token[0]})")]


_PLACES = {
    "^": ("start", "line_start"),
    "$": ("end", "line_end"),
    "\\A": ("start", "start"),
    "\\z": ("end", "end"),
    "\\b": ("edge", "edge"),
    "\\B": ("no_edge", "no_edge"),
}


def _re2_literal(code: int, flags: frozenset[str]) -> Atom:
    return Atom(f"(?i:\\x{{{code:x}}})" if "i" in flags else f"\\x{{{code:x}}}")


def _repeated(node: Node, operator: str) -> Node:
    if operator in ("*", "+", "?"):
        return Repeat(node, int(operator == "+"), 1 if operator == "?" else None)
    least, comma, most = operator.strip("{}").partition(",")
    return Repeat(node, int(least), int(most) if most else None if comma else int(least))


def python_tree(source: str, *, ignore_case: bool) -> Node:
    """Return a pattern in Python's syntax as a tree; it is read by Python's own parser and never run."""
    parser: Any = importlib.import_module("re._parser")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsed = parser.parse(source, re.IGNORECASE if ignore_case else 0)
    return _python_sequence(parsed, parsed.state.flags)


_PYTHON_PLACES = {
    "AT_BEGINNING_STRING": "start",
    "AT_END_STRING": "end",
    "AT_BOUNDARY": "edge",
    "AT_NON_BOUNDARY": "no_edge_in_text",
}
_PYTHON_SETS = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


def _python_sequence(parsed: Any, flags: int) -> Node:
    return Sequence(tuple(_python_node(str(op), given, flags) for op, given in parsed))


def _python_node(op: str, given: Any, flags: int) -> Node:
    match op:
        case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
            return _python_atom(op, given, flags)
        case "AT":
            return _python_place(str(given), flags)
        case "BRANCH":
            return Either(tuple(_python_sequence(branch, flags) for branch in given[1]))
        case "SUBPATTERN":
            number, on, off, inner = given
            flags = (flags | on) & ~off
            flags &= ~re.ASCII if on & re.UNICODE else ~0
            node = _python_sequence(inner, flags)
            return node if number is None else PatternGroup(number, node)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, inner = given
            limit = None if str(most) == "MAXREPEAT" else int(most)
            node = Repeat(_python_sequence(inner, flags), least, limit)
            return Atomic(node) if op == "POSSESSIVE_REPEAT" else node
        case "ATOMIC_GROUP":
            return Atomic(_python_sequence(given, flags))
        case "ASSERT" | "ASSERT_NOT":
            return Look(_python_sequence(given[1], flags), ahead=given[0] > 0, wanted=op == "ASSERT")
        case "GROUPREF":
            return Reference(given)
    return Unknown()


def _python_place(name: str, flags: int) -> Node:
    many = bool(flags & re.MULTILINE)
    if name == "AT_BEGINNING":
        return PatternPosition("line_start" if many else "start")
    if name != "AT_END":
        return PatternPosition(_PYTHON_PLACES[name], _python_flagged(r"\w", flags) if "BOUNDARY" in name else "")
    if many:
        return PatternPosition("line_end")
    last_newline = Sequence((Repeat(Atom(NEWLINE), 0, 1), PatternPosition("end")))
    return Look(last_newline, ahead=True, wanted=True)


def _python_atom(op: str, given: Any, flags: int) -> Atom:
    if op == "ANY":
        return Atom("(?s:.)" if flags & re.DOTALL else r"[^\n]")
    if op == "LITERAL" and not flags & re.IGNORECASE:
        return Atom(f"\\U{given:08x}")
    members = [("LITERAL", given)] if op != "IN" else [(str(kind), value) for kind, value in given]
    negated = op == "NOT_LITERAL" or members[0][0] == "NEGATE"
    written = "".join(_python_member(kind, value) for kind, value in members if kind != "NEGATE")
    return Atom(_python_flagged(f"[{'^' if negated else ''}{written}]", flags))


def _python_member(kind: str, value: Any) -> str:
    if kind == "CATEGORY":
        return _PYTHON_SETS[str(value)]
    low, high = value if kind == "RANGE" else (value, value)
    return f"\\U{low:08x}-\\U{high:08x}"


def _python_flagged(source: str, flags: int) -> str:
    letters = ("a" if flags & re.ASCII else "u") + ("i" if flags & re.IGNORECASE else "")
    return f"(?{letters}:{source})"
