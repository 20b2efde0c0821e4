"""Whether a pattern matches every text, or none: known patterns, and generated ones against the engines."""

import itertools
import re

import pytest
import re2
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from waza.untrusted.lookaround import for_backtracking, without_backtracking
from waza.untrusted.patterns import (
    Pattern,
    re2_ascii_members,
    re2_members,
)
from waza.untrusted.universal import (
    matches_every_text,
    matches_no_text,
    python_ascii_members,
    python_members,
    python_tree,
    re2_tree,
)

ALWAYS = [
    *["a*", ".*", "error|", "^", "$", r"\z", "(?s)^.*$", "(?m)^.*$", r"^[\s\S]*$", "(?i)(done)?", r"\b|\B", "[^x]|x|$"],
    *["(?!.*error)", "((?!error).)*", "(?<!x)", "(?=.*)", "(?=a|)b*", r"(['\"]?)x*\1"],
]


SOMETIMES = [
    *[".+", "^.*$", "^$", "(?m)^$", r"\b", r"\B", r"^\s*$", "(?s)^.{0,99}$", "^(yes|no)?$", "(?s).|^\\b", r"^\pL*$"],
    *["^(?!.*error)", "(?=.*foo)", "(?!foo).+", "^((?!error).)*$", "(?<=x)|^$", "(?!(?!x))"],
]


ALWAYS_IN_PYTHON = ["a*", "$", r"\Z", "a*+", "(?>a*)", r"(a*)\1", r"^(?:.|\n)*$", "(?x) a * # any", r"(?a)\W*"]


SOMETIMES_IN_PYTHON = [".+", "^.*$", r"^[^x]*\Z", "(?!a*$)|x", "a*+b|^$", "(a)?(?(1)b|c)"]


@pytest.mark.parametrize(
    ("sources", "how", "always"),
    [
        (ALWAYS, {}, True),
        (SOMETIMES, {}, False),
        (ALWAYS_IN_PYTHON, {"python": True}, True),
        (SOMETIMES_IN_PYTHON, {"python": True}, False),
    ],
)
def test_a_pattern_that_matches_every_text_is_recognised(sources, how, always):
    assert [source for source in sources if Pattern(source, **how).matches_every_text() is not always] == []


@pytest.mark.parametrize(
    ("sources", "how", "never"),
    [
        (
            [
                *[
                    r"[^\s\S]",
                    r"a\bb",
                    r"\w\b\w",
                    r"\B\b",
                    r"[^\x00-\x{10FFFF}]",
                    r"\P{Any}",
                    r"(?:a\b)+b",
                    r"(?i)é\bü",
                ],
                *["(?=a)b", "(?!a)a", r"(?<=a)\bb", "(?=.*b)^a*$", r"(a$)\1b"],
            ],
            {},
            True,
        ),
        (
            [
                *[r"\Ba\B", r"\bdone\b", r"\b", r"\B", "[^a]", r"\P{L}", r"(a)\1$", "(?<!x)y", "(?=a)a", "(?!(?!x))x"],
                *["(?<=a)b", "x|$a", r"a\b|ab", r"(?i)\bпароль\b", r"(?=.*b)(?=.*a)^[ab]*$", r"(?<!(?<!a))b"],
            ],
            {},
            False,
        ),
        (["$a", "a^", r"foo$\nbar", r"\za|b\A", "(a$)+b", "(?!)", "(?<!x*)a", "x(?=$a)", "(^|$)a.*b\\A"], {}, True),
        (
            ["^a$", "a$|^b", "(?m)foo$\\nbar", "a$b?", "a?^b", "(?m)a\n^b", "(?!x)", "[$]a", "a(^|b)", "$^", "(a$)*b"],
            {},
            False,
        ),
        ([r"a\Zb", "b^", "(?!)", "foo$\\nbar", r"[^\s\S]", r"a\bb", r"é\bü", "[^\\W\\w]"], {"python": True}, True),
        (["foo$\\n", "(?m)$a|b", "^$", r"a\$b", r"\B", "(?>a)b$", r"(a)?(?(1)b|c)$"], {"python": True}, False),
    ],
)
def test_a_pattern_that_matches_no_text_is_recognised(sources, how, never):
    assert [source for source in sources if Pattern(source, **how).matches_no_text() is not never] == []


SHORT_TEXTS = ["".join(text) for size in range(4) for text in itertools.product("ab0\n-", repeat=size)]


PARTS = st.sampled_from(
    ["a", "b", ".", "[^a]", r"\w", r"\W", "[ab]", r"\n", "^", "$", r"\b", r"\B", "(?m)", "(?s)", "(?i)"]
)


SMALL_PATTERNS = st.recursive(
    PARTS,
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map("|".join)
        | st.tuples(st.sampled_from(["(?:{})*", "(?:{})?", "(?:{})+", "(?:{}){{0,2}}", "({})"]), inner).map(
            lambda pair: pair[0].format(pair[1])
        )
    ),
    max_leaves=6,
)


LOOKS = st.sampled_from(["(?={})", "(?!{})", "(?<={})", "(?<!{})"])


@settings(max_examples=400, deadline=None)
@given(SMALL_PATTERNS, st.none() | st.tuples(LOOKS, PARTS), st.booleans())
def test_a_pattern_reported_to_match_every_text_or_none_does(pattern, look, python):
    if look is not None:
        pattern = look[0].format(look[1]) + pattern
    engine = re if python else regex
    try:
        re2.compile(without_backtracking(pattern))
        compiled = engine.compile(pattern if python else for_backtracking(pattern, ignore_case=False))
        tree = (python_tree if python else re2_tree)(pattern, ignore_case=False)
    except (re2.error, re.error, regex.error):
        assume(False)
    members = (python_members, python_ascii_members) if python else (re2_members, re2_ascii_members)
    if matches_no_text(lambda: tree, *members):
        assert [text for text in SHORT_TEXTS if compiled.search(text)] == []
    if matches_every_text(lambda: tree, python_members if python else re2_members):
        assert [text for text in SHORT_TEXTS if compiled.search(text) is None] == []
