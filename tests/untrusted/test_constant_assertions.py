"""Assertions that cannot fail or cannot pass are refused, in Python and in JavaScript."""

import pytest

from waza.untrusted import javascript_assertions, python_assertions
from waza.untrusted.constant_assertions import constant_javascript


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("True", "the constant True is always true, so this assertion cannot fail"),
        ("(5)", "the constant 5 is always true"),
        ("None", "the constant None is always false, so this assertion cannot pass"),
        ("-1", "the same whatever the agent does"),
        ("2 ** 10 % 3", "the same whatever the agent does"),
        ("'a' in 'abc'", "a comparison of constants is the same whatever the agent does"),
        ("'done' in 'output'", "names of the context are written without quotes"),
        ("not 'x' == 'x'", "a comparison of constants"),
        ("1 in [1, 2]", "a comparison of constants"),
        ("{'a': 1}['a']", "an expression of constants"),
        ("'abc'[0]", "an expression of constants"),
        ("'hello' 'world'", "a text literal is always true"),
        ("b'x'", "a text literal is always true"),
        ("f'x'", "a text literal with characters in it is always true"),
        ("f'answer: {output}'", "always true"),
        ("(output == 'yes', 'the answer')", "a tuple display, whatever is in it, is always true"),
        ("output == 'yes', 'the answer'", "an assertion has no message"),
        ("[output == 'yes']", "did you mean all([...]) or any([...])?"),
        ("{'ok': output}", "a dict display"),
        ("{output}", "a set display"),
        ("[]", "an empty list is always false"),
        ("not ()", "the negation of an empty tuple is always true"),
        (
            "lambda: output == 'yes'",
            "a lambda is always true, so this assertion cannot fail; did you forget to call it?",
        ),
        ("(x := [output])", "a list display"),
        ("output == 'a' or 'b'", "'or' with a text literal is always true"),
        ("output and False", "'and' with the constant False is always false"),
        ("'a' if output else 'b'", "a choice between a text literal and a text literal is always true"),
        ("len", "the built-in 'len' is always true, so this assertion cannot fail; did you forget to call it?"),
        ("re", "the built-in 're'"),
        (
            "output.strip",
            "the method 'strip' is always true, so this assertion cannot fail; did you forget to call it?",
        ),
        ("re.search", "the method 'search'"),
        ("(x for x in output)", "a generator is always true, so this assertion cannot fail; did you mean any(...)"),
        ("not (x for x in [])", "the negation of a generator"),
        ("bool(x for x in output)", "a generator is always true"),
        ("output and (c for c in output)", "a generator is always true"),
        ("len(output) > 3 and [1 for c in output if (lambda: c)]", "column 44: a lambda is always true"),
        ("re.finditer('x', output)", "did you mean re.findall or re.search?"),
        ("zip(output, output)", "the result of 'zip' is always true"),
    ],
)
def test_a_constant_python_assertion_is_refused_with_the_reason(source, words):
    with pytest.raises(ValueError) as refusal:
        python_assertions.check_assertion(source)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    "source",
    [
        *("output", "len(output)", "[word for word in output.split() if word == 'yes']", "1 == 1", "f'{output}'"),
        *("[*tool_calls]", "{**outcome}", "output and 'x'", "1 if output else 0", "output[:3]", "not output"),
        *("(len := output) and len", "any(x for x in output)", "(lambda g: any(g))(x for x in output)", "re.I & 4"),
        *("m.start if (m := range(3)) else 0", "all([output == 'x'])", "(output == 'a') in (True, 'x')"),
    ],
)
def test_a_python_assertion_that_can_pass_and_fail_is_accepted(source):
    python_assertions.check_assertion(source)


REFUSED = {
    "an array": ["[output === 'yes']", "[]", "( /* a */ ([output]) ) // b", "output.x, [1]", "[...output]"],
    "an object literal": ["({ok: output === 'yes'})", "{a: 1}", "{}"],
    "an object made by 'new'": ["new Boolean(output === 'yes')", "new Date", "new (class {})", "new a.b.C(output)"],
    "a function": ["() => output", "x => x ? 1 : 0", "async () => 1", "function f(a) { return a }", "async x => 1"],
    "a class": ["class A {}", "(class extends Object { x() {} })"],
    "a regular expression": ["/yes/", "/[/\\]]/g"],
    "a text literal": ["'yes'", '"a" /* b */', "`yes`", "`yes ${output}`", "output === 'a' || 'b'", "''", "``"],
    "the constant": ["true", "True", "0", "1e5", "0x0", "10n", "null", "undefined", "NaN", "!0", "!!1", "JSON", "(1)"],
    "an expression of constants": [
        *[
            "-1",
            "1 + 1",
            "~(2 * 3)",
            "'a' + 'b'",
            "({a: 1}).a",
            "[1][0]",
            "'abc'.length",
            "'a' === 'a'",
            "'a' in {a: 1}",
        ],
        *["{a: {'b': 1}}.a.b", "[1, 2].length > 1", "`a`?.length", "!('a' === 'b')"],
    ],
    "'typeof'": ["typeof output", "typeof (1)"],
    "'void'": ["void 0"],
    "a choice between": ["output ? 1 : 'b'", "output ? x => 1 : y => 2"],
    "'&&' with the constant false": ["output && false"],
}


@pytest.mark.parametrize(("what", "source"), [(what, source) for what, group in REFUSED.items() for source in group])
def test_a_constant_javascript_assertion_is_refused_with_the_reason(what, source):
    with pytest.raises(ValueError) as refusal:
        javascript_assertions.check_assertion(source)
    assert what in str(refusal.value)
    assert any(words in str(refusal.value) for words in ("cannot fail", "cannot pass", "checks nothing"))


BOTH_WAYS = [
    *("output", "output.length", "1 == 1", "`${output}`", "`${`${output}`}`", "output && 'x'", "output ? 1 : 0"),
    *("new RegExp('ye+s').test(output)", "new Set(output).size > 1", "new Map([[1, 2]]).get(output)", "!output"),
    *("/x/.test(output)", "output.length / /x/.exec(output).index", "output.length / 2 / 1", "[...output].length"),
    *("(() => { if (output) { return /[)]/.test(output) } })()", "!function () { return output }()", "output?.length"),
    *(
        "({a: output}).a",
        "({output}).output",
        "[1].includes(output)",
        "'a'.includes(output)",
        "-1 < 0",
        "{a: x => 1}.a(1)",
    ),
    *("typeof output === 'string'", "output.x ?? true", "output in {a: 1}", "'a' in outcome", "output?.5:0"),
    *(
        "{a: output}.a",
        "[output][0]",
        "(function () { return output })()",
        "JSON.parse(output)",
        "`a`.includes(output)",
    ),
    *("output.replace(/'/g, '\"') === '}{'", "((a) => a)(output)", "output.at(-1) /* [ */"),
]


def test_a_javascript_assertion_that_can_pass_and_fail_is_accepted():
    assert [(source, why) for source in BOTH_WAYS if (why := constant_javascript(source))] == []
    for source in BOTH_WAYS:
        javascript_assertions.check_assertion(source)
