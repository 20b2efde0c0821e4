"""Reading an assertion: is it one expression, which names does it use, and what is run for it. Nothing runs here."""

from __future__ import annotations

import ast
import symtable
import warnings
from collections.abc import Iterator, Set
from functools import lru_cache
from typing import NamedTuple

from waza.sandbox.lazy import with_early_stops

MAX_CHARS = 10_000
MAX_NODES = 2_000
MAX_DEPTH = 100
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_PAUSES = {ast.Await: "await", ast.Yield: "yield", ast.YieldFrom: "yield from"}
_CONSUMERS = ("any", "all", "sum", "min", "max", "sorted", "list", "set", "tuple", "dict", "enumerate", "zip")


class Expression(NamedTuple):
    """An assertion that was read: what to run, and what is known about it beforehand."""

    names: frozenset[str]
    """Every name it reads."""
    bound: Set[str]
    """Names it gives a meaning itself: parameters, loop variables, `:=`."""
    idle_generator: bool
    """Whether a generator is used as a value, which is always true."""
    last_attributes: frozenset[str]
    """Attributes that its value may be, such as `strip` in `output.strip`."""
    code: str
    """What runs for it."""


@lru_cache(maxsize=1024)
def read_expression(source: str) -> Expression:
    """Return the one expression in `source`; raise ValueError with the column and the reason if it is not one."""
    source = source.strip()
    if not source:
        raise ValueError("an assertion must not be blank")
    if len(source) > MAX_CHARS:
        raise ValueError(f"an assertion has at most {MAX_CHARS} characters, this one has {len(source)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = _parse(source)
            _refuse_bombs_and_pauses(tree, source)
            # Some misuses of `:=` are found only when names are resolved.
            symtable.symtable(source, "<assertion>", "eval")
        return _described(tree, source)
    except SyntaxError as error:
        raise ValueError(_at(error.lineno, error.offset, source, error.msg)) from None
    except (MemoryError, RecursionError):
        raise ValueError("an assertion must not be nested so deeply") from None


def _parse(source: str) -> ast.Expression:
    try:
        return ast.parse(source, mode="eval")
    except SyntaxError:
        if sentence := _statement(source):
            raise ValueError(sentence) from None
        raise
    except ValueError:
        raise ValueError("an assertion must not hold NUL or half characters") from None


def _statement(source: str) -> str:
    """Return a sentence about the statement that stands where an expression should, or nothing."""
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


def _refuse_bombs_and_pauses(tree: ast.Expression, source: str) -> None:
    count = 0
    level: list[ast.AST] = [tree]
    for depth in range(MAX_DEPTH + 2):
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise ValueError(f"an assertion has at most {MAX_NODES} parts and is nested at most {MAX_DEPTH} deep")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        count += len(level)
        if not level:
            break
    for node in ast.walk(tree):
        if type(node) in _PAUSES:
            raise ValueError(_at_node(node, source, f"'{_PAUSES[type(node)]}' is not allowed in an assertion"))
        if isinstance(node, ast.comprehension) and node.is_async:
            raise ValueError(_at_node(node.target, source, "'async for' is not allowed in an assertion"))


def _described(tree: ast.Expression, source: str) -> Expression:
    nodes = list(ast.walk(tree))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return Expression(
        names=frozenset(node.id for node in names if isinstance(node.ctx, ast.Load)),
        bound=parameters | frozenset(node.id for node in names if isinstance(node.ctx, ast.Store)),
        idle_generator=any(map(_holds_idle_generator, nodes)),
        last_attributes=frozenset(node.attr for node in _results(tree.body) if isinstance(node, ast.Attribute)),
        code=with_early_stops(tree) or source,
    )


def _results(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of an expression that its value may come from."""
    if isinstance(node, ast.IfExp):
        yield from _results(node.body)
        yield from _results(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _results(value)
    else:
        yield node


def _holds_idle_generator(node: ast.AST) -> bool:
    """Say whether a generator stands directly in `node` where nothing takes values out of it."""
    if isinstance(node, (ast.comprehension, ast.Starred)):
        return False
    if isinstance(node, ast.Call):
        takes = isinstance(node.func, ast.Attribute) or (isinstance(node.func, ast.Name) and node.func.id in _CONSUMERS)
        return not takes and any(isinstance(child, ast.GeneratorExp) for child in node.args)
    if isinstance(node, ast.Compare) and all(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
        return isinstance(node.left, ast.GeneratorExp)
    return any(isinstance(child, ast.GeneratorExp) for child in ast.iter_child_nodes(node))


def _at_node(node: ast.AST, source: str, reason: str) -> str:
    line = getattr(node, "lineno", 1)
    before = source.splitlines()[line - 1].encode()[: getattr(node, "col_offset", 0)]
    return _at(line, len(before.decode(errors="replace")) + 1, source, reason)


def _at(line: int | None, column: int | None, source: str, reason: str) -> str:
    place = f"line {line}, column {column or 1}" if "\n" in source else f"column {column or 1}"
    return f"{place}: {reason}"
