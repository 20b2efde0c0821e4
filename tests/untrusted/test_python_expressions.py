"""Which Python expressions are accepted as assertions, and the reasons for refusals."""

import pytest

from waza.untrusted.python_expressions import MAX_CHARS, read_expression

NOT_OFFERED = ["hash", "repr", "type", "divmod", "print", "open", "map", "frozenset", "ord", "pow"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "blank"),
        (" \n", "blank"),
        ("# nothing", "comment only"),
        ("output = 1", "column 1: an assignment cannot be checked; did you mean '=='?"),
        ("duration_ms += 5", "did you mean '=='?"),
        ("1; import os", "column 4: only one expression is allowed, no statements"),
        ("import os", "column 1: only one expression"),
        ("del output", "column 1: only one expression"),
        ("assert output", "column 1: only one expression"),
        ("1\n2", "line 2, column 1: only one expression"),
        ("what language is this, anyways?", "column 6: invalid syntax"),
        ("len(output", "column 4: '(' was never closed"),
        ("(await output)", "column 2: 'await' is not allowed"),
        ("lambda: (yield)", "column 10: 'yield' is not allowed"),
        ("'é' + (yield from output)", "column 8: 'yield from' is not allowed"),
        ("[x async for x in output]", "column 14: 'async for' is not allowed"),
        ("any(x for x in [(x := 1)])", "assignment expression cannot be used in a comprehension"),
        ("1" * (MAX_CHARS + 1), "at most 10000 characters"),
        ("-" * 9000 + "1", "nested"),
        ("(" * 5000 + ")" * 5000, "nested"),
        ("output" + ".x" * 4000, "nested"),
        ("[" + "1," * 4000 + "]", "at most 2000 parts"),
        ("'\0'", ""),
        ("'\ud800'", "lone surrogates"),
    ],
)
def test_what_is_not_one_expression_is_refused_with_its_place(source, words):
    with pytest.raises(ValueError) as refusal:
        read_expression(source)
    assert words in str(refusal.value)


def test_reading_an_assertion_emits_no_warning(recwarn):
    read_expression(r"'\d' in output or output is 'x'")
    assert not recwarn.list


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("output.__class__ == 1", "column 1: '.__class__': attributes that begin with an underscore are not available"),
        ("re.error == 1", "column 1: '.error' is not available in assertions"),
        ("len(output) > 1 and re.L", "'.L' is not available"),
        ("__debug__", "column 1: '__debug__': names that begin with two underscores are not available"),
        ("[1 for __x in output]", "'__x': names that begin"),
        ("'{0.__class__}'.format(output) == ''", "'.__class__'"),
        ("sorted(output, key='{}'.format)", "'.format' must be called where it is written"),
        ("output.encode('cp037') == b''", "the encoding 'cp037' is not available in assertions"),
        ("str(output.encode(), 'EUC-JP') == ''", "the encoding 'EUC-JP' is not available"),
        ("[1 for output.x in output]", "cannot set attributes"),
        *[(f"{name}(output)", f"'{name}' is not available in assertions") for name in NOT_OFFERED],
        ("[type(x) for x in output]", "column 2: 'type' is not available in assertions; of Python's functions there"),
        ("isinstance(output, ValueError)", "'ValueError' is not available"),
    ],
)
def test_what_is_not_available_is_refused_when_it_is_parsed(source, words):
    with pytest.raises(ValueError) as refusal:
        read_expression(source)
    assert words in str(refusal.value)
