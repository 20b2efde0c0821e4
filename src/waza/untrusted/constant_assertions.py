"""Find assertions that have the same result whatever the agent did, by their syntax alone.

`(output == 'yes', 'message')` is a tuple and therefore true, `[]` is true in JavaScript, and what is made of literals
alone does not depend on the agent. Bare names, calls and comprehensions are accepted, and so are comparisons of
numbers (`1 == 1`) and, in Python, of what is computed (`2 ** 10 == 1024`). Nothing is evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

_UNCALLED = "; did you forget to call it?"
_NOT_USED = "; did you mean any(...) or all(...)?"


class Form(NamedTuple):
    """A part of an expression whose truth value is known from its syntax."""

    what: str
    truth: bool | None
    """None where it is constant but would have to be computed."""
    hint: str = ""

    def sentence(self) -> str:
        """Return why an assertion of this form is refused."""
        if self.truth is None:
            return f"{self.what} is the same whatever the agent does, so this assertion checks nothing{self.hint}"
        if self.truth:
            return f"{self.what} is always true, so this assertion cannot fail{self.hint}"
        return f"{self.what} is always false, so this assertion cannot pass"


def _negated(form: Form | None) -> Form | None:
    if form is None or form.truth is None:
        return form
    return Form(f"the negation of {form.what}", not form.truth, form.hint)


def _joined(forms: Sequence[Form | None], word: str, deciding: bool) -> Form | None:
    """Return the form of operands joined by `or` (decided by one true one) or `and` (by one false one)."""
    for form in forms:
        if form and form.truth is deciding:
            return Form(f"'{word}' with {form.what}", deciding, form.hint)
    known = [form for form in forms if form]
    if len(known) < len(forms):
        return None
    truths = {form.truth for form in known}
    return Form(f"'{word}' with {known[-1].what}", None if None in truths else not deciding)


def _chosen(test: Form | None, body: Form | None, other: Form | None) -> Form | None:
    """Return the form of a conditional expression."""
    if test and test.truth is not None:
        return body if test.truth else other
    if body and other and body.truth is not None and body.truth == other.truth:
        return Form(f"a choice between {body.what} and {other.what}", body.truth, body.hint)
    return None


def constant_python(
    tree: ast.Expression, built_in: Collection[str], methods: Collection[str]
) -> Iterator[tuple[ast.AST, str]]:
    """Yield the part and the reason when a Python expression cannot both pass and fail.

    `built_in` are names and `methods` attributes that are functions, which are true unless they are called.
    """
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    if form := _Python(set(built_in) - bound, methods).form(tree.body):
        yield tree.body, form.sentence()
    for node in ast.walk(tree):
        for tested in _tested(node):
            if isinstance(tested, ast.GeneratorExp):
                yield tested, f"a generator is always true{_NOT_USED}"
            elif isinstance(tested, ast.Lambda):
                yield tested, f"a lambda is always true{_UNCALLED}"


def _tested(node: ast.AST) -> Sequence[ast.expr]:
    """Return the parts of a node that are used as a condition."""
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    if isinstance(node, ast.IfExp):
        return [node.test]
    return node.ifs if isinstance(node, ast.comprehension) else []


class _Python(NamedTuple):
    built_in: Collection[str]
    methods: Collection[str]

    def form(self, node: ast.expr) -> Form | None:
        """Return what is known of an expression's truth value, or None when it can be either."""
        match node:
            case ast.Constant(value=value):
                return _literal(value)
            case ast.JoinedStr(values=parts):
                return _text_with_fields(parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return _negated(self.form(operand))
            case ast.Compare(left=left, comparators=others):
                return _compared((left, *others))
            case ast.BoolOp(op=operator, values=values):
                either = isinstance(operator, ast.Or)
                return _joined([self.form(value) for value in values], "or" if either else "and", either)
            case ast.IfExp(test=test, body=body, orelse=other):
                return _chosen(self.form(test), self.form(body), self.form(other))
            case ast.NamedExpr(value=value):
                return self.form(value)
            case _:
                known = _display(node) or self._uncalled(node) or self._iterator(node)
                return known or (Form("an expression of constants", None) if _is_of_literals(node) else None)

    def _uncalled(self, node: ast.expr) -> Form | None:
        match node:
            case ast.Lambda():
                return Form("a lambda", True, _UNCALLED)
            case ast.Name(id=name) if name in self.built_in:
                return Form(f"the built-in '{name}'", True, _UNCALLED)
            case ast.Attribute(attr=name) if name in self.methods:
                return Form(f"the method '{name}'", True, _UNCALLED)
        return None

    def _iterator(self, node: ast.expr) -> Form | None:
        match node:
            case ast.GeneratorExp():
                return Form("a generator", True, _NOT_USED)
            case ast.Call(func=ast.Name(id="bool"), args=[ast.GeneratorExp()]) if "bool" in self.built_in:
                return Form("a generator", True, _NOT_USED)
            case ast.Call(func=ast.Name(id="enumerate" | "zip" as name)) if name in self.built_in:
                return Form(f"the result of '{name}'", True, _NOT_USED)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="finditer")) if "re" in self.built_in:
                return Form("the result of 're.finditer'", True, "; did you mean re.findall or re.search?")
        return None


def _literal(value: object) -> Form:
    if isinstance(value, (str, bytes)):
        return Form("a text literal", bool(value), "; did you mean \"'...' in output\" or a comparison?")
    return Form(f"the constant {str(value)[:20]}", bool(value))


def _text_with_fields(parts: Sequence[ast.expr]) -> Form | None:
    texts = [part.value for part in parts if isinstance(part, ast.Constant)]
    if any(texts):
        return Form("a text literal with characters in it", True)
    return None if parts else Form("an empty text literal", False)


def _display(node: ast.expr) -> Form | None:
    """Return the form of a display; one of starred parts only can be empty."""
    match node:
        case ast.Tuple(elts=items):
            name, hint = "tuple", "; an assertion has no message, write the condition alone"
        case ast.List(elts=items):
            name, hint = "list", "; did you mean all([...]) or any([...])?"
        case ast.Set(elts=items):
            name, hint = "set", ""
        case ast.Dict(keys=keys):
            name, hint = "dict", ""
            items = [key if key else ast.Starred(ast.Constant(0), ast.Load()) for key in keys]
        case _:
            return None
    if not items:
        return Form(f"an empty {name}", False)
    if all(isinstance(item, ast.Starred) for item in items):
        return None
    return Form(f"a {name} display, whatever is in it,", True, hint)


_READS = (ast.Name, ast.Call, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _is_of_literals(node: ast.expr) -> bool:
    """Return whether an expression has literals, displays and operators only: no name, call or comprehension."""
    return not any(isinstance(part, _READS) for part in ast.walk(node))


def _compared(operands: Sequence[ast.expr]) -> Form | None:
    """Return the form of a comparison: constant where texts or displays are written out on all sides."""
    computed = (ast.BinOp, ast.BoolOp, ast.IfExp, ast.Subscript, ast.Compare)
    parts = [part for operand in operands for part in ast.walk(operand)]
    if all(map(_is_number, operands)) or any(isinstance(part, (*_READS, *computed)) for part in parts):
        return None
    return Form("a comparison of constants", None, "; names of the context are written without quotes")


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) in (int, float)
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
    return False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# JavaScript is read as a flat list of tokens in which brackets are nested lists; the engine has already accepted it.

Item = str | list["Item"]
"""A token, or a bracket's opening character followed by its contents."""
_TOKEN = re.compile(
    r"""
    (?P<gap> \s+ | //[^\n\r\u2028\u2029]* | /\*.*?\*/ )
  | (?P<number> (?: 0[xXoObB][\da-fA-F_]+ | \d[\d_]*\.?[\d_]*(?:[eE][+-]?\d+)? | \.\d[\d_]*(?:[eE][+-]?\d+)? ) n? )
  | (?P<word> (?: [\w$\#] | \\u(?:[\da-fA-F]{4}|\{[\da-fA-F]+\}) )+ )
  | (?P<text> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
  | (?P<mark> \.\.\. | => | >>>= | \*\*= | <<= | >>= | >>> | &&= | \|\|= | \?\?= | === | !== | \?\.(?!\d)
      | [=!<>]= | \+\+ | -- | << | >> | && | \|\| | \?\? | \*\* | [-+*/%&|^]= | [-+*/%&|^~!<>=?:,;.(){}\[\]] )
    """,
    re.VERBOSE | re.DOTALL,
)
_REGEX = re.compile(r"/(?![/*])(?:[^\\/\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/\w*")
_OPERAND = re.compile(r"[\w$#\"'`\\]|\.\d|/.+/")
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_BEFORE_OPERAND = _words("return typeof void delete new in instanceof do else case await yield throw of")
_ASSIGNS = _words("= += -= *= /= %= **= <<= >>= >>>= &= |= ^= &&= ||= ??=")
_COMPARES = _words("== === != !== < > <= >= instanceof in")
_COMPUTES = _words("+ - * / % ** << >> >>> & | ^")
_ALWAYS_FALSE = _words("false False null undefined NaN")
_GLOBALS = _words(
    "Infinity globalThis Array Object String Number Boolean Math JSON RegExp Date Map Set WeakMap WeakSet Promise "
    "Symbol BigInt Function Error TypeError RangeError Reflect Proxy parseInt parseFloat isNaN isFinite Intl"
)


def constant_javascript(source: str) -> str:
    """Return why a valid JavaScript expression cannot both pass and fail; an empty text when it can."""
    try:
        form = _js_form(_nested(_tokens(source)))
    except (ValueError, IndexError, RecursionError):
        return ""  # It could not be parsed to its end, so nothing is known of it.
    return form.sentence() if form else ""


def _tokens(source: str) -> Iterator[str]:
    """Yield the tokens; a template literal is one, with `${}` for each of its fields."""
    place, last = 0, ""
    while place < len(source):
        if source[place] == "`":
            token, place = _template(source, place + 1)
        elif source[place] == "/" and _takes_operand(last) and (found := _REGEX.match(source, place)):
            token, place = found[0], found.end()
        elif found := _TOKEN.match(source, place):
            place = found.end()
            if found.lastgroup == "gap":
                continue
            token = found[0]
        else:
            raise ValueError("no token of JavaScript")
        last = token
        yield token


def _takes_operand(last: str) -> bool:
    """Return whether an operand, such as a regular expression, may follow a token; otherwise `/` is a division."""
    if not last or last in _BEFORE_OPERAND:
        return True
    return last not in (")", "]", "}", "++", "--") and not _OPERAND.match(last)


def _template(source: str, place: int) -> tuple[str, int]:
    text = "`"
    while source[place] != "`":
        if source.startswith("${", place):
            place = _after_field(source, place + 2)
            text += "${}"
        else:
            step = 2 if source[place] == "\\" else 1
            text += source[place : place + step]
            place += step
    return f"{text}`", place + 1


def _after_field(source: str, place: int) -> int:
    """Return where a template's field ends; it may contain strings, brackets and other templates."""
    depth = 1
    while depth:
        if source[place] == "`":
            place = _template(source, place + 1)[1]
            continue
        found = _TOKEN.match(source, place)
        if not found:
            raise ValueError("no token of JavaScript")
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        place = found.end()
    return place


def _nested(tokens: Iterator[str], closing: str = "") -> list[Item]:
    items: list[Item] = []
    for token in tokens:
        if token == closing:
            return items
        if token in _CLOSED_BY:
            items.append([token, *_nested(tokens, _CLOSED_BY[token])])
        elif token in (")", "]", "}"):
            raise ValueError("a bracket is closed that was not opened")
        else:
            items.append(token)
    if closing:
        raise ValueError("a bracket is not closed")
    return items


def _split(items: list[Item], mark: str) -> list[list[Item]]:
    parts: list[list[Item]] = [[]]
    for item in items:
        if item == mark:
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


def _js_form(items: list[Item]) -> Form | None:
    """Return what is known of an expression's truth, the loosest operators first."""
    if not items:
        return None
    if "," in items:
        return _js_form(_split(items, ",")[-1])
    if items[1:2] == ["=>"] or (items[0] == "async" and items[2:3] == ["=>"]):
        return Form("a function", True, _UNCALLED)
    if any(isinstance(item, str) and item in _ASSIGNS for item in items):
        return None
    if "?" in items:
        return _js_choice(items)
    if "??" in items:
        return None
    for mark, deciding in (("||", True), ("&&", False)):
        if mark in items:
            return _joined([_js_form(part) for part in _split(items, mark)], mark, deciding)
    if any(isinstance(item, str) and item in _COMPARES for item in items):
        is_open = all(_is_js_number(item) or (isinstance(item, str) and item in _COMPARES | {"-"}) for item in items)
        return None if is_open else _js_literals(items)
    return _js_operand(items) or _js_literals(items)


def _js_choice(items: list[Item]) -> Form | None:
    first = items.index("?")
    depth = 0
    for place in range(first + 1, len(items)):
        if items[place] == "?":
            depth += 1
        elif items[place] == ":":
            if depth == 0:
                body, other = items[first + 1 : place], items[place + 1 :]
                return _chosen(_js_form(items[:first]), _js_form(body), _js_form(other))
            depth -= 1
    return None


def _js_operand(items: list[Item]) -> Form | None:
    """Return the form of an expression without comparisons and logical operators."""
    first, rest = items[0], items[1:]
    if any(isinstance(item, str) and item in _COMPUTES for item in rest):
        return None
    if first == "!":
        return _negated(_js_form(rest))
    if first == "typeof":
        return Form("'typeof', a text that is never empty,", True, "; compare it with a name of a type")
    if first == "void":
        return Form("'void'", False)
    if first == "new":
        return Form("an object made by 'new'", True) if _is_only_new(rest) else None
    if first in ("function", "class") or items[:2] == ["async", "function"]:
        uncalled = items[-1][:1] == ["{"] and sum(item[:1] == ["{"] for item in items) == 1
        return Form(f"a {'class' if first == 'class' else 'function'}", True, _UNCALLED) if uncalled else None
    return _js_primary(first) if not rest else None


def _js_primary(item: Item) -> Form | None:
    if isinstance(item, list):
        if item[0] == "(":
            return _js_form(item[1:])
        return Form("an array" if item[0] == "[" else "an object literal", True)
    if item[0] in "\"'":
        return Form("a text literal", len(item) > 2, "; did you mean output.includes('...')?")
    if item[0] == "`":
        fixed = item[1:-1].replace("${}", "")
        return Form("a text literal", bool(fixed)) if fixed or item == "``" else None
    if item[0] == "/":
        return Form("a regular expression", True, "; did you mean /.../.test(output)?")
    if item in ("true", "True") or item in _GLOBALS:
        return Form(f"the constant {item}", True)
    if item in _ALWAYS_FALSE:
        return Form(f"the constant {item}", False)
    if _is_js_number(item):
        return Form(f"the constant {item[:20]}", _is_not_zero(item))
    return None


def _is_not_zero(number: str) -> bool:
    if number[1:2] in tuple("xXoObB"):
        return re.search("[1-9a-fA-F]", number[2:]) is not None
    return re.search("[1-9]", re.split("[eE]", number)[0]) is not None


def _is_js_number(item: Item) -> bool:
    return isinstance(item, str) and re.match(r"\.?\d", item) is not None


_LITERAL_WORDS = _words("true True typeof void in instanceof Infinity") | _ALWAYS_FALSE
_MARKS = _COMPUTES | _COMPARES | _words("~ ! && || ?? ? : , ...")


def _js_literals(items: list[Item]) -> Form | None:
    """Return the form of an expression that is made of literals and operators alone."""
    return Form("an expression of constants", None) if items and _is_of_js_literals(items) else None


def _is_of_js_literals(items: list[Item]) -> bool:
    """Return whether an expression has no name, call, function or assignment; names of properties are allowed."""
    before: Item = ""
    for item in items:
        if isinstance(item, list):
            follows = isinstance(before, list) or (before not in _BEFORE_OPERAND and _OPERAND.match(before))
            if (item[0] == "(" and follows) or not _is_of_js_literals(_object_values(item)):
                return False
        elif before not in (".", "?.") and not _is_js_literal(item):
            return False
        before = item
    return True


def _is_js_literal(token: str) -> bool:
    is_text = token[0] in "\"'" or (token[0] == "`" and "${}" not in token)
    is_regex = token[0] == "/" and len(token) > 2
    return is_text or is_regex or _is_js_number(token) or token in _LITERAL_WORDS | _MARKS | {".", "?."}


def _object_values(bracket: list[Item]) -> list[Item]:
    """Return the contents of a bracket, of an object literal only the values; a shorthand counts, as it is a name."""
    if bracket[0] != "{":
        return bracket[1:]
    values: list[Item] = []
    for entry in _split(bracket[1:], ","):
        is_pair = entry[1:2] == [":"] and isinstance(entry[0], str)
        values += [*(entry[2:] if is_pair else entry), ","]
    return values


def _is_only_new(items: list[Item]) -> bool:
    """Return whether only a callee and its arguments follow `new`."""
    while items[:1] == ["new"]:
        items = items[1:]
    if items[:1] in (["function"], ["class"]):
        end = next(place for place, item in enumerate(items) if item[:1] == ["{"])
        items = items[end:]
    items = items[1:]
    while items and (items[0] == "." or items[0][:1] == ["["]):
        items = items[2:] if items[0] == "." else items[1:]
    return not items or (len(items) == 1 and items[0][:1] == ["("])
