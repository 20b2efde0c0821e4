"""Reading a Python assertion: which expressions are accepted, and what is compiled for them. Nothing runs here.

An accepted expression means what it means in CPython. That is so by construction: CPython compiles and runs it, after
every attribute access was replaced by a call of a guard that knows which attributes are available (`available`), so
that no expression reaches interpreter internals through its data. Only the standard library: the evaluator starts
without packages.
"""

from __future__ import annotations

import _string  # type: ignore[import-not-found]  # what str.format itself parses with
import ast
import builtins
import encodings
import re
import symtable
import types
import warnings
from collections.abc import Iterator, Mapping
from encodings.aliases import aliases
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from waza.untrusted.constant_assertions import constant_python

CONTEXT_NAMES = ("output", "outcome", "transcript", "tool_calls", "errors", "duration_ms")
BUILT_IN_NAMES = (
    *("len", "any", "all", "str", "int", "float", "bool", "list", "dict", "re"),
    *("sum", "min", "max", "sorted", "set", "tuple", "abs", "round", "enumerate", "zip", "range", "isinstance"),
)


_OFFERED = ", ".join(sorted(set(BUILT_IN_NAMES) - {"re"}))
_NOT_OFFERED = frozenset(name for name in dir(builtins) if name[0] != "_") - {*BUILT_IN_NAMES, *CONTEXT_NAMES}
"""What CPython knows by these names, and assertions do not; any other unknown name raises there too."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MAX_CHARS = 10_000
MAX_NODES = 2_000
MAX_DEPTH = 100
GET_ATTRIBUTE, CALL_FORMAT = "@get_attribute", "@call_format"
"""The guards' names; `@` cannot be part of a name in source code."""
RE_NAMES = _words(
    "search match fullmatch split findall finditer sub subn compile escape Pattern Match NOFLAG "
    "A ASCII I IGNORECASE M MULTILINE S DOTALL U UNICODE X VERBOSE"
)
TEXT_ENCODINGS = _words(
    "utf_8 utf_8_sig utf_7 utf_16 utf_16_le utf_16_be utf_32 utf_32_le utf_32_be ascii latin_1 iso8859_1 cp1252 cp437 "
    "unicode_escape raw_unicode_escape punycode"
)
"""Encodings that the evaluator loads before it closes its files."""
_FORMATS = ("format", "format_map")


def _public(kind: object, *, without: tuple[str, ...] = ()) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if not name.startswith("_") and name not in without)


_CLASSES = (str, int, float, bool, list, dict, set, tuple, range, enumerate, zip, re.Pattern, re.Match)
"""Classes that an assertion can name."""
_VIEWS: tuple[object, ...] = ({}.keys(), {}.values(), {}.items())
_WITHOUT = {str: _FORMATS, re.Pattern: ("scanner",)}
_OF_CLASSES: Mapping[object, frozenset[str]] = {
    kind: _public(kind, without=_WITHOUT.get(kind, ())) for kind in _CLASSES
}
_OF_VALUES: Mapping[type, frozenset[str]] = {
    **{kind: names for kind, names in _OF_CLASSES.items() if isinstance(kind, type)},
    **{kind: _public(kind) for kind in (bytes, complex, frozenset, types.MappingProxyType)},
    **{type(view): _public(view) for view in _VIEWS},
    re.RegexFlag: _public(int) | {"name", "value"},
}
_KNOWN_ATTRIBUTES = frozenset().union(RE_NAMES, _FORMATS, *_OF_VALUES.values())
_REACHABLE = (re, type, types.FunctionType, types.BuiltinFunctionType, types.GeneratorType, types.GenericAlias)
_UNAVAILABLE = frozenset().union(*map(_public, (*_REACHABLE, re.Pattern, re.Match))) - _KNOWN_ATTRIBUTES
"""Attributes that CPython has on something an assertion can reach, and that are not offered."""

_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_PAUSES = {ast.Await: "await", ast.Yield: "yield", ast.YieldFrom: "yield from"}
_ACCEPTED = (
    *(ast.Expression, ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.Set),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Compare, ast.Call, ast.FormattedValue),
    *(ast.JoinedStr, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice),
    *(ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context),
    *(ast.comprehension, ast.arguments, ast.arg, ast.keyword),
)


class Expression(NamedTuple):
    """An assertion that was read: what to compile, and which names it reads."""

    names: frozenset[str]
    tree: ast.Expression
    """The expression with its attribute accesses guarded."""


def available(value: object, name: str) -> bool:
    """Return whether an assertion may read this attribute of a value."""
    kind = type(value)
    if kind is type:
        return name in _OF_CLASSES.get(value, ())
    return name in (RE_NAMES if value is re else _OF_VALUES.get(kind, ()))


def unavailable_reason(name: str) -> str:
    """Return why an attribute of that name is refused wherever it is written; an empty text if it is not."""
    if name.startswith("_"):
        return f"'.{name}': attributes that begin with an underscore are not available in assertions"
    return f"'.{name}' is not available in assertions" if name in _UNAVAILABLE else ""


def unavailable_in_format(template: str) -> str:
    """Return why a format string, as of `str.format`, is refused; an empty text if it is not, or is malformed."""
    try:
        for _, field, spec, _ in _string.formatter_parser(template):
            if field:
                _, path = _string.formatter_field_name_split(field)
                for name in (name for is_attribute, name in path if is_attribute):
                    if reason := unavailable_reason(name):
                        return reason
            if spec and (reason := unavailable_in_format(spec)):
                return reason
    except ValueError:
        return ""
    return ""


def unavailable_encoding(name: str) -> str:
    """Return why an encoding that Python has is refused in assertions; an empty text for any other name."""
    plain = encodings.normalize_encoding(name).lower().replace(".", "_")
    found = aliases.get(plain, plain)
    if found in TEXT_ENCODINGS or found not in all_encodings():
        return ""
    return f"the encoding '{name}' is not available in assertions"


@lru_cache(maxsize=1)
def all_encodings() -> frozenset[str]:
    """Return the encodings that this Python has; read from its folder once."""
    files = [Path(entry) for folder in encodings.__path__ for entry in Path(folder).glob("*.py")]
    return (frozenset(file.stem for file in files) | frozenset(aliases.values())) - {"__init__", "aliases"}


@lru_cache(maxsize=1024)
def read_expression(source: str) -> Expression:
    """Return the one expression in `source`; raise ValueError with the column and the reason if it is refused."""
    source = source.strip()
    if not source:
        raise ValueError("an assertion must not be blank")
    if len(source) > MAX_CHARS:
        raise ValueError(f"an assertion has at most {MAX_CHARS} characters, this one has {len(source)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = _parse(source)
            _refuse_bombs(tree)
            # Some misuses of `:=` are found only when names are resolved.
            symtable.symtable(source, "<assertion>", "eval")
        nodes = list(ast.walk(tree))
        for node, reason in (*_refusals(nodes), *constant_python(tree, BUILT_IN_NAMES, _methods())):
            raise ValueError(_at_node(node, source, reason))
        names = frozenset(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
        return Expression(names, ast.fix_missing_locations(_Guarded().visit(tree)))
    except SyntaxError as error:
        raise ValueError(_at(error.lineno, error.offset, source, error.msg)) from None
    except (MemoryError, RecursionError):
        raise ValueError("an assertion must not be nested this deeply") from None


def _parse(source: str) -> ast.Expression:
    try:
        return ast.parse(source, mode="eval")
    except SyntaxError:
        if message := _statement(source):
            raise ValueError(message) from None
        raise
    except ValueError:
        raise ValueError("an assertion must not contain NUL or lone surrogates") from None


def _statement(source: str) -> str:
    """Return a message about the statement where an expression should be, or an empty text."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return ""
    found = next((node for node in body if not isinstance(node, ast.Expr)), body[-1] if body else None)
    if found is None:
        return "an assertion must not be a comment only"
    reason = "only one expression is allowed, no statements"
    if isinstance(found, _ASSIGNMENTS):
        reason = "an assignment cannot be checked; did you mean '=='?"
    return _at_node(found, source, reason)


def _refuse_bombs(tree: ast.Expression) -> None:
    count = 0
    level: list[ast.AST] = [tree]
    for depth in range(MAX_DEPTH + 2):
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise ValueError(f"an assertion has at most {MAX_NODES} parts and is nested at most {MAX_DEPTH} deep")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        count += len(level)
        if not level:
            break


def _refusals(nodes: list[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    """Yield each part that is not available in an assertion, and the reason."""
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    bound = _bound(nodes)
    for node in nodes:
        if type(node) in _PAUSES:
            yield node, f"'{_PAUSES[type(node)]}' is not allowed in an assertion"
        elif not isinstance(node, _ACCEPTED):
            yield node, f"{type(node).__name__} is not available in assertions"
        elif isinstance(node, ast.comprehension) and node.is_async:
            yield node.target, "'async for' is not allowed in an assertion"
        elif isinstance(node, ast.Attribute):
            if reason := _attribute_refusal(node, id(node) in called):
                yield node, reason
        elif isinstance(node, (ast.Name, ast.arg)):
            name = node.id if isinstance(node, ast.Name) else node.arg
            if name.startswith("__"):
                yield node, f"'{name}': names that begin with two underscores are not available in assertions"
            elif name in _NOT_OFFERED and name not in bound:
                yield node, f"'{name}' is not available in assertions; of Python's functions there are {_OFFERED}"
        elif isinstance(node, ast.Call) and (reason := _call_refusal(node)):
            yield node, reason


def _bound(nodes: list[ast.AST]) -> set[str]:
    """Return the names that the expression itself binds."""
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return stored | {node.arg for node in nodes if isinstance(node, ast.arg)}


def unknown_names(source: str) -> list[str]:
    """Return the names in an accepted expression that nothing binds; reading one raises NameError."""
    expression = read_expression(source)
    nodes = list(ast.walk(expression.tree))
    known = {*CONTEXT_NAMES, *BUILT_IN_NAMES, GET_ATTRIBUTE, CALL_FORMAT} | _bound(nodes)
    return sorted(expression.names - known)


def _attribute_refusal(node: ast.Attribute, is_called: bool) -> str:
    if not isinstance(node.ctx, ast.Load):
        return "an assertion cannot set attributes"
    if node.attr in _FORMATS and not is_called:
        return f"'.{node.attr}' must be called where it is written"
    return unavailable_reason(node.attr)


def _call_refusal(node: ast.Call) -> str:
    """Return why a call is refused for a format string or an encoding written in it, or an empty text."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in _FORMATS:
        texts = _texts([node.func.value, *node.args[:1]])
        return next(filter(None, map(unavailable_in_format, texts)), "")
    named = [keyword.value for keyword in node.keywords if keyword.arg == "encoding"]
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("encode", "decode"):
        named += node.args[:2]
    elif isinstance(node.func, ast.Name) and node.func.id == "str":
        named += node.args[1:2]
    return next(filter(None, map(unavailable_encoding, _texts(named))), "")


def _texts(nodes: list[ast.expr]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


@lru_cache(maxsize=1)
def _methods() -> frozenset[str]:
    """Return the attributes that are methods wherever they exist: as values they are always true."""
    kinds: tuple[Any, ...] = (*_OF_VALUES, re)
    found = {name: [getattr(kind, name) for kind in kinds if hasattr(kind, name)] for name in _KNOWN_ATTRIBUTES}
    return frozenset(name for name in found if name.islower() and found[name] and all(map(callable, found[name])))


class _Guarded(ast.NodeTransformer):
    """Replaces `x.name` by a call of a guard, and `x.format(...)` by a call of another."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return _guard_call(GET_ATTRIBUTE, [self.visit(node.value), ast.Constant(node.attr)], [], node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _FORMATS:
            parts = [node.func.value, ast.Constant(node.func.attr), *node.args]
            keywords = [self.visit(keyword) for keyword in node.keywords]
            return _guard_call(CALL_FORMAT, [self.visit(part) for part in parts], keywords, node)
        return self.generic_visit(node)


def _guard_call(guard: str, args: list[ast.expr], keywords: list[ast.keyword], place: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(guard, ast.Load()), args, keywords), place)


def _at_node(node: ast.AST, source: str, reason: str) -> str:
    line = getattr(node, "lineno", 1)
    before = source.splitlines()[line - 1].encode()[: getattr(node, "col_offset", 0)]
    return _at(line, len(before.decode(errors="replace")) + 1, source, reason)


def _at(line: int | None, column: int | None, source: str, reason: str) -> str:
    place = f"line {line}, column {column or 1}" if "\n" in source else f"column {column or 1}"
    return f"{place}: {reason}"
