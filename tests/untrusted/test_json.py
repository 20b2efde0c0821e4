"""Any value becomes strict JSON."""

import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from results_made import a_result
from waza.model import Trace
from waza.untrusted.json import MAX_ENCODED_DEPTH, encode, encode_shallow, plain

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
def test_anything_is_written_so_that_a_strict_reader_takes_it(value):
    strict(encode(value))
    strict(encode_shallow(value))


def test_a_record_is_written_the_same_way_by_both_paths():
    result = a_result(trace=Trace(input="i", output="o", extra={"more": 1}))
    assert msgspec.json.decode(encode(result)) == plain(result)


def test_depth_is_bounded():
    deep = []
    for _ in range(5000):
        deep = [deep]
    tree, depth = strict(encode_shallow(deep)), 0
    while isinstance(tree, list):
        tree, depth = tree[0], depth + 1
    assert depth == MAX_ENCODED_DEPTH


def test_a_pair_of_surrogates_is_one_character_and_a_half_is_replaced():
    assert plain("\ud83d\ude00 \ud83d") == "😀 \ufffd"
