"""Generated assertions over everything the reference offers, and what CPython says of them.

    python tests/untrusted/python_expressions.py [COUNT] [SEED]

evaluates that many in CPython and as assertions, and prints every one on which the two differ.
"""

import collections
import json
import os
import random
import re
import subprocess
import sys

from waza.untrusted.python_assertions import check_assertion, evaluate

CONTEXT = {
    "output": "All done\nTotal: 2.675 €\tcafé [42] ok\n",
    "outcome": {"status": "ok", "n": 3, "ratio": 2.675, "tags": ["b", "A", "c"], "none": None, "inner": {"x": [1, {}]}},
    "transcript": [{"type": "tool", "content": "ls"}, {"type": "assistant.message", "content": "an error"}],
    "tool_calls": [
        {"name": "bash", "arguments": {"command": "ls -la", "n": 1}, "result": "a\nb", "success": True, "id": "1"},
        {"name": "Read", "arguments": {}, "result": None, "success": False, "id": None},
    ],
    "errors": [{"type": "assistant.message", "content": "an error"}],
    "duration_ms": 1234,
}
TEXTS = [
    *("''", "'a'", "'ab'", "'Hello World'", "'all done\\n'", "'a,b,,c'", "' x '", "'ß'", "'ŉǆ'", "'İIıi'", "'ΟΔΟΣ'"),
    *("'²٣Ⅷ'", "'ﬁ'", "'e\\u0301'", "'😀a'", "'\\x00'", "'a\\u2028b\\x1cc\\x85d\\x0be'", "'\\ud800'", "'tab\\tx'"),
    *("'007'", "'-1.5e3'", "' 12_3 '", "'nan'", "'{}'", "'{0}{a!r:>5}'", "'%s %d'", "'aAbB'", "output", "output[:9]"),
    *("outcome['status']", "tool_calls[0]['name']", "'x=1;y=2'", "'__init__'", "'for'", "'1' * 40", "'a' * 70"),
]
INTS = [
    *("0", "1", "-1", "2", "3", "7", "10", "-13", "255", "True", "False", "2**31", "2**63", "-2**70", "10**25"),
    *("duration_ms", "outcome['n']", "len(output)", "len(tool_calls)", "0x1F"),
]
FLOATS = [
    *("0.0", "-0.0", "1.5", "2.5", "2.675", "1e16", "1e-7", "1e22", "123456.789", "float('inf')", "float('nan')"),
    *("0.1 + 0.2", "outcome['ratio']", "1/3", "5e-324", "-2.5"),
]
LISTS = [
    *("[]", "[1, 2, 3]", "['b', 'A', 'c']", "[3, 1, 2, 1]", "[[1], [], [1, 2]]", "tool_calls", "transcript", "errors"),
    *("outcome['tags']", "output.split()", "list(range(5))", "[True, 1, 1.0]", "[None, 0, '']", "[float('nan')] * 2"),
    *("sorted(output)[:4]", "[x * x for x in range(4)]", "list(output)[:3]"),
]
TUPLES = ["()", "(1,)", "(1, 'a')", "(1, (2, 3))", "tuple(output[:2])", "('a', 'b', 'c')"]
SETS = ["set()", "{1, 2, 3}", "{'a', 'b'}", "set(output[:5])", "{2, 3, 4.0}"]
DICTS = [
    "{}",
    "{'a': 1}",
    "outcome",
    "dict(a=1, b=2)",
    "{1: 'x', True: 'y'}",
    "tool_calls[0]",
    "dict.fromkeys('ab', 0)",
]
BYTES = ["b''", "b'ab'", "output.encode()", "b'\\xff\\x00'", "b'a,b'"]
OTHERS = ["None", "1j", "range(5)", "range(10, 0, -3)", "outcome.keys()", "outcome.items()", "...", "re.I"]
MATCHES = [
    *("re.search('(?P<w>o+)(x)?', output)", "re.match('(A)(l)+', output)", "re.search('nope', output)"),
    *("re.fullmatch('.', 'a')", "re.search('(?P<y>\\\\d+)-(?P<m>\\\\d+)?', 'at 2024-')"),
]
PATTERN_OBJECTS = ["re.compile('o+')", "re.compile('(?P<a>x)|(y)', re.I)", "re.compile(r'\\s+|,')", "re.compile(b'a')"]
POOLS = {
    "str": TEXTS,
    "int": INTS,
    "float": FLOATS,
    "list": LISTS,
    "tuple": TUPLES,
    "set": SETS,
    "dict": DICTS,
    "bytes": BYTES,
    "other": OTHERS,
    "match": MATCHES,
    "pattern": PATTERN_OBJECTS,
}
CLASSES = {"str": str, "int": int, "float": float, "list": list, "tuple": tuple, "set": set, "dict": dict}
OWNERS = {**CLASSES, "bytes": bytes, "match": re.Match, "pattern": re.Pattern}
METHODS = [
    (kind, name)
    for kind, owner in OWNERS.items()
    for name in dir(owner)
    if not name.startswith("_") and name not in ("format", "format_map", "scanner")
]
PATTERNS = [
    *("r'done$'", "r'^all'", "r'(?m)^\\w+$'", "r'[[(]'", "r'\\d+'", "r'\\w+'", "r'\\s'", "r'\\bdone\\b'", "r'(a)(b)?'"),
    *("r'(?P<x>l+)'", "r'(?i)ALL'", "r'.'", "r'(?s).+'", "r'a|b'", "r'(?<=l) d'", "r'(?!a).'", "r'(l)\\1'", "r'\\Z'"),
    *("r'[^a-z]'", "r'x*'", "r'(?:ab)+'", "r'é'", "r'[é-ü]'", "r'ſ'", "r'K'", "r'ı'", "r'('", "r'*a'", "r'a{2,1}'"),
    *("r'(?P<x>a)(?P=x)'", "r'(?x) a b # c'", "r'\\N{BULLET}'", "r'(?>a+)b'", "r'a++'", "r'[a&&b]'", "r'\\p{L}'"),
    *("r'(?a:\\w)'", "r'\\x41|\\u0042|\\101'", "r'(?(1)a|b)'", "r'()'", "''", "r'[\\w-]'", "r'$'", "r'\\A'", "b'a'"),
]
FLAGS = [
    "re.A",
    "re.I",
    "re.M",
    "re.S",
    "re.X",
    "re.U",
    "re.I | re.A",
    "re.M | re.S",
    "re.NOFLAG",
    "0",
    "2",
    "re.ASCII",
]
REPLACEMENTS = [
    *(
        "'x'",
        "r'<\\g<0>>'",
        "r'\\1'",
        "''",
        "lambda m: m.group().upper()",
        "lambda m: str(m.start())",
        "r'\\n'",
        "r'\\q'",
    ),
    *("str", "lambda m: 1", "lambda m: f'[{m[0]}]'", "r'\\g<x>'"),
]
KEYS = [
    "str.lower",
    "len",
    "str",
    "lambda v: -v",
    "lambda v: str(v)[::-1]",
    "None",
    "abs",
    "bool",
    "int",
    "str.casefold",
]
ENCODINGS = [
    *(
        "'cp737'",
        "'KOI8-U'",
        "'rot13'",
        "'hex'",
        "'utf.8'",
        "'UTF 32 BE'",
        "'iso-8859-1'",
        "'L1'",
        "'646'",
        "'mac-roman'",
    ),
    *("'unicode-escape'", "'undefined'", "'charmap'", "'aliases'", "'utf8' + '7'[:0]"),
    "'utf-8'",
    "'ascii'",
    "'latin-1'",
    "'utf-16'",
    "'utf_8_sig'",
    "'cp1252'",
    "'nope'",
    "'idna'",
    "'punycode'",
]
HANDLERS = ["'strict'", "'ignore'", "'replace'", "'backslashreplace'", "'xmlcharrefreplace'", "'namereplace'", "'bad'"]
OPERATORS = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "&",
    "|",
    "^",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "not in",
    "is",
    "and",
    "or",
]
HASHED_BY_ADDRESS = re.compile(r" at 0x|<built-in|<class|<function|<module|<method|<generator|_iterator")


class Source:
    """Makes expressions from a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pick = self.random.choice
        self.makers = [
            *(
                self.method,
                self.method,
                self.method,
                self.unbound,
                self.regex,
                self.regex,
                self.formatted,
                self.percent,
            ),
            *(self.builtin, self.operation, self.comparison, self.comprehension, self.subscript, self.sorting),
            *(self.logic, self.lambdas, self.encoding, self.template, self.numbers, self.pattern_object, self.slices),
        ]

    def any(self, depth=1):
        """Return a value of any kind, perhaps computed."""
        if depth and self.random.random() < 0.25:
            return f"({self.expression(depth - 1)})"
        return self.value(self.pick(list(POOLS)))

    def value(self, kind):
        """Return a value of a kind, now and then of another."""
        if self.random.random() < 0.04:
            kind = self.pick(list(POOLS))
        return self.pick(POOLS[kind])

    def expression(self, depth=1):
        """Return an expression."""
        return self.pick(self.makers)(depth)

    def arguments(self, kind, most=3):
        """Return arguments for a method of a kind: none, one of its own kind, or any."""
        chance = self.random.random()
        if chance < 0.35 or most == 0:
            return ""
        if chance < 0.7:
            return self.pick([self.value(kind), self.value("int"), self.value("str"), f"{self.value(kind)}, 1"])
        kinds = ["str", "str", "int", "list", "str", "tuple", "dict", "bytes", "set"]
        parts = [self.value(self.pick(kinds)) for _ in range(self.random.randint(1, most))]
        if self.random.random() < 0.1:
            parts[-1] = f"*{self.value('list')}"
        return ", ".join(parts)

    def method(self, depth):
        kind, name = self.pick(METHODS)
        owner = self.value(kind) if depth == 0 or self.random.random() < 0.7 else self.any(depth - 1)
        simple = isinstance(getattr(OWNERS[kind], name), property) or not callable(getattr(OWNERS[kind], name))
        if simple:
            return f"({owner}).{name}"
        if name in ("sort", "append", "extend", "insert", "remove", "reverse", "clear", "update", "add", "discard"):
            return f"[v := {owner}, v.{name}({self.arguments(kind, 2)}), v][1:]"
        return f"({owner}).{name}({self.arguments(kind)})"

    def unbound(self, depth):
        kind, name = self.pick([(kind, name) for kind, name in METHODS if kind in CLASSES])
        return f"{kind}.{name}({self.value(kind)}, {self.arguments(kind, 2)})".replace(", )", ")")

    def regex(self, depth):
        function = self.pick(["search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn", "escape"])
        pattern, text = self.pick(PATTERNS), self.value("str")
        flags = f", flags={self.pick(FLAGS)}" if self.random.random() < 0.4 else ""
        if function == "escape":
            return f"re.escape({text})"
        if function in ("sub", "subn"):
            count = f", count={self.pick(['0', '1', '2'])}" if self.random.random() < 0.3 else ""
            return f"re.{function}({pattern}, {self.pick(REPLACEMENTS)}, {text}{count}{flags})"
        call = f"re.{function}({pattern}, {text}{flags})"
        if function == "finditer":
            return f"[(m.span(), m.groups(), m.lastgroup) for m in {call}]"
        if function in ("search", "match", "fullmatch"):
            ask = self.pick(["", ".span()", ".group()", ".groups()", ".groupdict()", ".end()", "[0]", ".lastindex"])
            return call + (ask or " is None")
        return call

    def pattern_object(self, depth):
        pattern = f"re.compile({self.pick(PATTERNS)}, {self.pick(FLAGS)})"
        name = self.pick(["flags", "groups", "groupindex", "pattern", "search", "findall", "split", "sub", "fullmatch"])
        if name in ("flags", "groups", "pattern"):
            return f"{pattern}.{name}"
        if name == "groupindex":
            return f"dict({pattern}.groupindex)"
        if name == "sub":
            return f"{pattern}.sub({self.pick(REPLACEMENTS)}, {self.value('str')})"
        bounds = f", {self.pick(INTS[:8])}" if name in ("search", "fullmatch") else ""
        tail = ".span()" if name in ("search", "fullmatch") else ""
        return f"{pattern}.{name}({self.value('str')}{bounds}){tail}"

    def specification(self):
        pick = self.pick
        return "".join(
            [
                pick(["", "", "*<", ">", "^", "=", "0>", "é^"]),
                pick(["", "", "+", "-", " "]),
                pick(["", "", "#", "z"]),
                pick(["", "0"]),
                pick(["", "", "5", "12", "30"]),
                pick(["", "", ",", "_"]),
                pick(["", "", ".0", ".2", ".10", ".17"]),
                pick(["", "", *"bcdeEfFgGnosxX%"]),
            ]
        )

    def formatted(self, depth):
        value = self.value(self.pick(["str", "int", "float", "int", "float", "list", "other", "bytes"]))
        conversion = self.pick(["", "", "", "!r", "!s", "!a"])
        quoted = value.replace('"', "'")
        if '"' in quoted or "\\" in quoted:
            quoted = self.pick(["1.5", "255", "output", "duration_ms", "outcome"])
        return f'f"{{({quoted}){conversion}:{self.specification()}}}"'

    def template(self, depth):
        template = self.pick(
            [
                *(
                    "'{}'",
                    "'{0}-{0}'",
                    "'{a}'",
                    "'{0[0]}'",
                    "'{0[n]}'",
                    "'{:>{}}'",
                    "'{!r}'",
                    "'{{}}'",
                    "'{'",
                    "'{0.real}'",
                ),
                *(
                    "'{1}'",
                    "'{0!x}'",
                    f"'{{:{self.specification()}}}'",
                    "'{a[b]}'",
                    "'{} {0}'",
                    "'{0.foo}'",
                    "'{:{a}}'",
                ),
            ]
        )
        keyword = self.pick(["", f", a={self.value('int')}"])
        if self.random.random() < 0.15:
            return f"{template}.format_map({self.value('dict')})"
        return f"{template}.format({self.any(0)}, {self.value('int')}{keyword})"

    def percent(self, depth):
        flags = self.pick(["", "-", "+", "0", "#", " "])
        code = self.pick(list("diouxXeEfFgGcrsa%")) if self.random.random() < 0.95 else "y"
        spec = f"'%{flags}{self.pick(['', '5', '12'])}{self.pick(['', '.0', '.3'])}{code}'"
        value = self.pick([self.any(0), f"({self.value('int')},)", f"{{'a': {self.value('float')}}}"])
        return f"{spec.replace('%', '%(a)', 1) if value.startswith('{') else spec} % {value}"

    def builtin(self, depth):
        name = self.pick(
            [
                *("len", "any", "all", "str", "int", "float", "bool", "list", "dict", "sum", "min", "max", "sorted"),
                *("set", "tuple", "abs", "round", "list(enumerate", "list(zip", "range", "isinstance"),
            ]
        )
        first, second = self.any(depth), self.any(0)
        if name == "isinstance":
            kinds = ["str", "int", "(int, float)", "list", "dict | list", "bool", "re.Match"]
            return f"isinstance({first}, {self.pick(kinds)})"
        if name.startswith("list("):
            return f"{name}({first}, {self.pick(['1', second, 'start=2', 'strict=True'])}))"
        if name in ("min", "max", "sorted") and self.random.random() < 0.5:
            extra = self.pick([f"key={self.pick(KEYS)}", "default=5", "reverse=True"])
            return f"{name}({self.value('list')}, {extra})"
        if name == "round":
            return f"round({self.value(self.pick(['float', 'int']))}{self.pick(['', ', 2', ', -1', ', 0', ', None'])})"
        if name == "int" and self.random.random() < 0.4:
            return f"int({self.value('str')}, {self.pick(['2', '16', '0', '36', '37'])})"
        return f"{name}({first}{self.pick(['', '', '', ', ' + second])})"

    def numbers(self, depth):
        one, two = self.value(self.pick(["int", "float"])), self.value(self.pick(["int", "float"]))
        return self.pick(
            [
                *(f"({one}) / ({two})", f"({one}) // ({two})", f"({one}) % ({two})", f"({one}) - ({two})"),
                *(f"({one}) ** {self.pick(['2', '3', '-1', '0.5', '0'])}", f"-({one})", f"~({one})", f"str({one})"),
                *(f"({self.value('int')}) << {self.pick(['1', '70', '-1'])}", f"({self.value('int')}) >> 3"),
                *(f"({self.value('float')}).is_integer()", f"({self.value('float')}).hex()", f"float(str({one}))"),
                f"({self.value('float')}).as_integer_ratio()",
            ]
        )

    def operation(self, depth):
        return f"({self.any(depth)}) {self.pick(OPERATORS)} ({self.any(0)})"

    def comparison(self, depth):
        kind = self.pick(["str", "int", "float", "list", "tuple", "set"])
        signs = [self.pick(["<", "<=", "==", "!=", ">", ">=", "in", "is not"]) for _ in range(2)]
        return f"({self.value(kind)}) {signs[0]} ({self.value(kind)}) {signs[1]} ({self.value(kind)})"

    def comprehension(self, depth):
        loop = f"for x in {self.value(self.pick(['str', 'list', 'dict', 'tuple', 'set', 'int']))}"
        part = self.pick(["x", "str(x)", "x == 1", "(x, output[:1])", "f'{x!r:>4}'", "(y := x)", "x['name']", "len(x)"])
        test = self.pick(["", " if x", f" for z in {self.value('list')} if z", " if isinstance(x, str)"])
        shape = self.pick(
            ["[{}]", "any({})", "all({})", "sorted({})", "sum({})", "list({})", "','.join({})", "set({})", "dict"]
        )
        if shape == "dict":
            return f"{{str(x): {part} {loop}{test}}}"
        return shape.format(f"{part} {loop}{test}")

    def subscript(self, depth):
        owner = self.value(self.pick(["str", "list", "tuple", "dict", "bytes", "match"]))
        return f"({owner})[{self.pick([self.value('int'), self.value('str'), '-1', '0', 'None', 'True'])}]"

    def slices(self, depth):
        owner = self.value(self.pick(["str", "list", "tuple", "bytes"]))
        ends = [self.pick(["", "1", "-1", "5", "-100", "100"]) for _ in range(2)]
        return f"({owner})[{ends[0]}:{ends[1]}:{self.pick(['', '1', '-1', '2', '-3', '0'])}]"

    def sorting(self, depth):
        values = self.pick([self.value("list"), self.value("str"), "['b', 'B', 'a', 'ß', 'é']", "[2.5, 1, True]"])
        return f"sorted({values}, key={self.pick(KEYS)}, reverse={self.pick(['True', 'False'])})"

    def logic(self, depth):
        one, two, three = self.any(depth), self.any(0), self.any(0)
        return self.pick(
            [
                *(f"{one} and {two}", f"{one} or {two}", f"not {one}", f"{one} if {two} else {three}"),
                *(
                    f"({one}, {two})",
                    f"[{one}, *{two}]",
                    f"{{{one}: {two}}}",
                    f"{{**{one}, 'k': 1}}",
                    f"(v := {one}) == v",
                ),
                *("unknown_name", f"{one} or unknown_name", "output.unknown()"),
            ]
        )

    def lambdas(self, depth):
        return self.pick(
            [
                f"(lambda v, w={self.any(0)}: (v, w))({self.any(0)})",
                f"(lambda *v, **k: (v, k))({self.any(0)}, *{self.value('list')}, k={self.any(0)})",
                f"(lambda g: (any(g), list(g)))(x for x in {self.value('list')})",
                f"(lambda v: v.{self.pick(METHODS)[1]}())({self.any(0)})",
                "(lambda f: f(f, 5))(lambda f, n: n and n + f(f, n - 1))",
            ]
        )

    def encoding(self, depth):
        if self.random.random() < 0.5:
            return f"({self.value('str')}).encode({self.pick(ENCODINGS)}, {self.pick(HANDLERS)})"
        return f"({self.value('bytes')}).decode({self.pick(ENCODINGS)}, {self.pick(HANDLERS)})"


def expressions(count, seed=1):
    """Return that many different expressions."""
    source = Source(seed)
    found = {}
    while len(found) < count:
        found[source.expression()] = None
    return list(found)


REFERENCE = r"""
import builtins, json, re, resource, signal, sys, warnings
"é".encode("ascii", "namereplace")  # imports, which names without __import__ cannot
warnings.simplefilter("ignore")
names, context, sources = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))
def stop(*_):
    raise MemoryError
signal.signal(signal.SIGPROF, stop)
def reference(source):
    scope = {name: getattr(builtins, name) for name in names if name != "re"}
    try:
        signal.setitimer(signal.ITIMER_PROF, 1)
        value = eval(source, {"__builtins__": scope, "re": re} | json.loads(json.dumps(context)))
        text = str([value])
        return ["value", bool(value), text] if len(text) < 2000 else ["long", bool(value), ""]
    except MemoryError:
        return ["lost", False, ""]
    except SyntaxError:
        return ["syntax", False, ""]
    except Exception as error:
        return ["raised", False, type(error).__name__]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
json.dump([reference(source) for source in sources], sys.stdout)
"""


def by_cpython(sources):
    """Return for each source what CPython itself says, in a process of its own: kind, truth, and text or error."""
    from waza.untrusted.python_expressions import BUILT_IN_NAMES

    done = subprocess.run(
        [sys.executable, "-c", REFERENCE],
        input=json.dumps([BUILT_IN_NAMES, CONTEXT, sources]),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    return json.loads(done.stdout)


def accepted(source):
    """Return whether an assertion is accepted when a suite is loaded."""
    try:
        check_assertion(source)
    except ValueError:
        return False
    return True


def differences(sources, expected=None):
    """Return what differs from CPython (or from what is given), and counts."""
    found, counts = [], collections.Counter(expressions=len(sources))
    questions = []
    for source, (kind, truth, text) in zip(sources, expected or by_cpython(sources), strict=True):
        counts[f"in CPython: {kind}"] += 1
        if not accepted(source):
            counts["refused as they are"] += 1
        elif kind == "syntax":
            found.append(f"{source}: accepted, and no expression of CPython")
        else:
            questions.append((source, kind, truth, text))
        compared = f"str([{source}]) == {text!r}"
        if kind in ("value", "raised") and not HASHED_BY_ADDRESS.search(text):
            if accepted(compared):
                questions.append((compared, kind, True, text))
                counts[f"compared: {kind}"] += 1
            else:
                counts["refused wholly"] += 1
    outcomes = evaluate([question[0] for question in questions], CONTEXT)
    for (question, kind, truth, text), outcome in zip(questions, outcomes, strict=True):
        if kind == "lost":
            agrees = outcome.ok is None
        elif kind == "raised":
            agrees = outcome.ok is False and f"the assertion raised {text}" in outcome.message
        else:
            agrees = outcome.ok is truth and not outcome.message
        if not agrees:
            found.append(f"{question}: CPython {kind} {text[:200]!r} {truth}, assertion {outcome}")
    return found, counts


if __name__ == "__main__":
    total, seed = (int(word) for word in [*sys.argv[1:], *["10000", "1"][len(sys.argv) - 1 :]])
    differing, numbers = differences(expressions(total, seed))
    print(*differing, sep="\n")
    print(dict(numbers), f"{len(differing)} differ")
