"""Let `any` and `all` over a generator stop at the first answer, as in Python; the sandbox makes a list of it first.

`any(e for x in xs if c)` becomes `_waza_any(lambda x: c and e, xs)`; `all(...)` the same with `not c or e`.
"""

from __future__ import annotations

import ast

PRELUDE = """
def _waza_any(holds, values):
    for value in values:
        if holds(value):
            return True
    return False
def _waza_all(holds, values):
    for value in values:
        if not holds(value):
            return False
    return True
def _waza_any_of_tuples(holds, values):
    for value in values:
        if holds(*value):
            return True
    return False
def _waza_all_of_tuples(holds, values):
    for value in values:
        if not holds(*value):
            return False
    return True
"""
"""What the rewritten code calls."""


def with_early_stops(tree: ast.Expression) -> str | None:
    """Return the code of the rewritten expression, or None if there is nothing to rewrite; `tree` is used up."""
    rewriter = _Rewriter()
    new = rewriter.visit(tree)
    return ast.unparse(ast.fix_missing_locations(new)) if rewriter.used else None


class _Rewriter(ast.NodeTransformer):
    used = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrite one call of `any` or `all`, the inner ones first."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("any", "all") and not node.keywords:
            match node.args:
                case [ast.GeneratorExp(elt=element, generators=loops)] if _plain(loops, element):
                    self.used = True
                    return _nested(node.func.id, loops, element)
        return node


def _plain(loops: list[ast.comprehension], element: ast.expr) -> bool:
    """Say whether a lambda per loop means the same: plain names as targets, and no `:=` that must be seen outside."""
    parts = [element, *(part for loop in loops for part in (*loop.ifs, loop.iter))]
    if any(isinstance(node, ast.NamedExpr) for part in parts for node in ast.walk(part)):
        return False
    return all(isinstance(target, ast.Name) for loop in loops for target in _targets(loop))


def _targets(loop: ast.comprehension) -> list[ast.expr]:
    return loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]


def _nested(kind: str, loops: list[ast.comprehension], element: ast.expr) -> ast.expr:
    loop, *rest = loops
    body = _nested(kind, rest, element) if rest else element
    for condition in reversed(loop.ifs):
        if kind == "any":
            body = ast.BoolOp(ast.And(), [condition, body])
        else:
            body = ast.BoolOp(ast.Or(), [ast.UnaryOp(ast.Not(), condition), body])
    names = [ast.arg(target.id) for target in _targets(loop) if isinstance(target, ast.Name)]
    parameters = ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=[])
    each = f"_waza_{kind}_of_tuples" if isinstance(loop.target, ast.Tuple) else f"_waza_{kind}"
    return ast.Call(ast.Name(each, ast.Load()), [ast.Lambda(parameters, body), loop.iter], [])
