"""Any value becomes strict JSON."""

import json
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results_made import a_result
from waza.model import Trace
from waza.untrusted.json import (
    MAX_DEPTH,
    MAX_ENCODED_DEPTH,
    MAX_JSON_CHARS,
    encode,
    encode_shallow,
    extract_json,
    parse_json,
    to_json,
)

ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]))
    | st.binary()
    | st.just(object),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=[])) | st.integers() | st.none(), inner, max_size=3)
        | st.tuples(inner)
    ),
    max_leaves=12,
)


def strict(text):
    def refuse(constant):
        raise ValueError(constant)

    tree = json.loads(text.decode("utf-8"), parse_constant=refuse)
    json.dumps(tree, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return tree


@given(ODD)
@settings(max_examples=150, deadline=None)
def test_any_value_is_encoded_so_that_a_strict_parser_accepts_it(value):
    strict(encode(value))
    strict(encode_shallow(value))


def test_a_record_is_written_the_same_way_by_both_paths():
    result = a_result(trace=Trace(input="i", output="o", extra={"more": 1}))
    assert msgspec.json.decode(encode(result)) == to_json(result)


def test_depth_is_bounded():
    deep = []
    for _ in range(5000):
        deep = [deep]
    tree, depth = strict(encode_shallow(deep)), 0
    while isinstance(tree, list):
        tree, depth = tree[0], depth + 1
    assert depth == MAX_ENCODED_DEPTH


def test_a_surrogate_pair_is_one_character_and_a_lone_surrogate_is_replaced():
    assert to_json("\ud83d\ude00 \ud83d") == "😀 \ufffd"


ANTI_HANG_S = 20


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON_VALUES, st.booleans())
def test_encoded_json_is_read_back(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_json(f" \n\t{text}\r\n") == value


@given(st.text())
def test_any_text_is_parsed_or_refused_with_value_error(text):
    for read in (parse_json, extract_json):
        try:
            value = read(text)
        except ValueError:
            continue
        assert json.loads(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("NaN", "NaN is not JSON"),
        ("[Infinity]", "Infinity is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ("1e400", "too large"),
        ("9" * 5000, "4300"),
        ('{"a": 1, "a": 2}', "'a' is in one object twice"),
        ('{"x": {"a": 1, "b": 2, "a": 1}}', "'a' is in one object twice"),
        ("\ufeff{}", "byte order mark"),
        ("", "Expecting value"),
        ("{} x", "Extra data"),
        ("```json\n{}\n```", "Expecting value"),
        ("{'a': 1}", "Expecting property name"),
        ("[1,]", "Expecting value|trailing comma"),
        ("// x\n{}", "Expecting value"),
        ("\u00a0{}", "Expecting value"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udc00": 1}', "surrogate"),
        ('"\ud800"', "surrogate"),
        ("[" * 100_000, "nested deeper"),
        ("[" * 100_000 + "]" * 100_000, "nested deeper"),
        ('{"a":' * 50_000, "nested deeper"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested deeper"),
        ('"' + "x" * MAX_JSON_CHARS + '"', "characters"),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_strict_json_is_strict(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_json(text)


def test_big_numbers_pairs_and_allowed_depth_are_fine():
    assert parse_json(str(10**400)) == 10**400
    assert parse_json('"\\ud83d\\ude00"') == "😀"
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert parse_json("[" + "[]," * 1000 + "[]]") == [[]] * 1001


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Here:\n```json\n{"a": [1, {"b": 2}]}\n```', {"a": [1, {"b": 2}]}),
        ("The list is [1, 2].", [1, 2]),
        ("use {braces} and [brackets] and {} once", {}),
        ("\ufeff[1]", [1]),
        ('{"a": NaN, "b": {"c": 1}}', {"c": 1}),
        ('{"a": 1', None),
        ("42", None),
        ('"text"', None),
        ("[1] and [2]", None),
        ("[1][2]", None),
        ('{"a": {"x": 1}, "a": 2}', None),
        ("[1e999, {}]", None),
    ],
)
def test_exactly_one_object_or_array_is_taken_from_a_text(text, value):
    if value is not None:
        assert extract_json(text) == value
        return
    with pytest.raises(ValueError):
        extract_json(text)


@given(st.text().filter(lambda text: not set(text) & set('{}[]"')), JSON_VALUES, st.text(alphabet="abc .\n"))
def test_a_value_is_found_whatever_surrounds_it(before, value, after):
    assert extract_json(before + json.dumps([value]) + after) == [value]


@pytest.mark.parametrize("size", [0, 4070, 4080, 4090, 4095, 4096, 4097, 20_000, 300_000])
@pytest.mark.parametrize("tail", ['"é"', "true", "-1.5e3", '"\\ud83d\\ude00"', '{"k": null}', "[[1]]"])
def test_a_long_value_is_found_wherever_it_would_be_cut(size, tail):
    for shift in range(8):
        text = f'["{"x" * (size + shift)}", {tail}]'
        assert extract_json(f"see: {text} [") == json.loads(text)


@pytest.mark.timeout(ANTI_HANG_S)
@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        "{" * 1_000_000,
        "[1," * 300_000,
        '{"a":' * 200_000,
        "[0," * 900 + "0," * 1_000_000 + "x",
        "[0," * 900 + "0," * 1_000_000 + "NaN",
        "[" * 150 + '"' + "a" * 5_000_000,
        ("[" * 150 + "x") * 6_000,
        '["\\' * 300_000,
    ],
    ids=[
        "arrays",
        "braces",
        "nested arrays",
        "nested objects",
        "long failures",
        "late NaN",
        "open text",
        "hedges",
        "escapes",
    ],
)
def test_no_text_makes_the_search_hang(text):
    started = time.monotonic()
    with pytest.raises(ValueError):
        extract_json(text)
    assert time.monotonic() - started < ANTI_HANG_S
