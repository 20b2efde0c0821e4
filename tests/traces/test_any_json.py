"""Any JSON at all, any bytes at all: read, or refused with a sentence."""

import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_recordings import DATA, FILES, FOLDER

from campaign import count, size
from waza.errors import TraceError
from waza.model import Trace
from waza.traces.base import readers
from waza.traces.fields import decode
from waza.traces.reading import read_found

SAMPLES = sorted([*(FOLDER / file for file in FILES), *(DATA / "traces").glob("*.json*")])
QUICK = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
LONG = settings(deadline=None, max_examples=size(20_000, 2_000, 20_000), suppress_health_check=list(HealthCheck))


def items_of(path):
    """The JSON objects of a recording."""
    text = path.read_bytes()
    if text.startswith(b"PK"):
        return []
    try:
        value = decode(text)
    except ValueError:
        return [decode(line) for line in text.splitlines() if line.strip()]
    return value if isinstance(value, list) else [value]


def words_in(value):
    """The keys and short texts of a value."""
    if isinstance(value, dict):
        return {word for key, item in value.items() for word in {key, *words_in(item)}}
    if isinstance(value, list):
        return {word for item in value for word in words_in(item)}
    return {value} if isinstance(value, str) and len(value) < 30 else set()


RECORDED = [items for path in SAMPLES if (items := items_of(path))]
WORDS = st.sampled_from(sorted({word for items in RECORDED for word in words_in(items)}))
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | WORDS
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(), inner, max_size=6)
)


def is_read_or_refused(text):
    """Check what comes out of a text; return the notes on it."""
    try:
        found = list(read_found(io.BytesIO(text)))
    except TraceError as refusal:
        assert str(refusal).startswith("standard input:")
        return []
    assert found
    for each in found:
        again = Trace.from_json(each.trace.to_json())
        assert Trace.from_json(again.to_json()) == again
    return [note for each in found for note in each.notes]


def lines(values):
    return b"\n".join(json.dumps(value).encode() for value in values)


@QUICK
@given(st.lists(VALUES, max_size=8))
def test_any_json_lines(values):
    is_read_or_refused(lines(values))


@QUICK
@given(VALUES, st.sampled_from([None, 1]))
def test_any_json_document(value, indent):
    is_read_or_refused(json.dumps(value, indent=indent).encode())


@pytest.mark.parametrize("name", ["__extra__", "\\u005f_extra__", "unknown"])
@pytest.mark.parametrize("value", [{}, {"output": "forged", "name": "forged"}, {"__extra__": {"a": 1}}, 1, None])
@pytest.mark.parametrize(
    "text",
    [
        '{"input": "i", "output": "o", NAME: VALUE}',
        '{"input": "i", "output": "o", "tool_events": [{"tool_name": "a"}, {"tool_name": "b", NAME: VALUE}]}',
        '{"input": "i", "output": "o", "usage": {"turns": 1, NAME: VALUE}}',
        '{"input": "i", "output": "o", "skill_invocations": [{"name": "s", NAME: VALUE}]}',
        '{"input": "i", "output": "o", "turns": [{"input": "i", "output": "o", NAME: VALUE}]}',
    ],
)
def test_a_foreign_field_stays_one_whatever_it_is_called(text, name, value):
    """Also when it is called what we call the place where such fields are kept, in any spelling."""
    written = text.replace("NAME", f'"{name}"').replace("VALUE", json.dumps(value))
    data = json.loads(written)
    for source in (written, written.encode(), data):
        trace = Trace.from_json(source)
        assert trace.output == "o"
        assert trace.to_dict() == data
        assert Trace.from_json(trace.to_json()) == trace


@QUICK
@given(st.binary(max_size=300))
def test_any_bytes(text):
    is_read_or_refused(text)
    is_read_or_refused(b"PK\x03\x04" + text)


def places(value, path=()):
    """The paths of all values in a value."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def with_value_at(value, path, new):
    """A copy of a value with another one in its place."""
    if not path:
        return new
    key, *rest = path
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[key] = with_value_at(value[key], rest, new)
    return copied


@st.composite
def changed_recordings(draw):
    """The items of a recording, with other values in a few places."""
    items = draw(st.sampled_from(RECORDED))
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(list(places(items))[1:]))
        if path:
            items = with_value_at(items, path, draw(VALUES))
    return items


def no_reader_breaks(items):
    notes = is_read_or_refused(lines(items))
    count("recordings with other values")
    count("readers that broke", len([note for note in notes if "could not be read" in note]))
    assert not [note for note in notes if "could not be read" in note]


@QUICK
@given(changed_recordings())
def test_recordings_with_other_values_in_them_break_no_reader(items):
    no_reader_breaks(items)


@pytest.mark.campaign
@LONG
@given(changed_recordings())
def test_recordings_with_other_values_in_them_break_no_reader_for_long(items):
    no_reader_breaks(items)


@pytest.mark.campaign
@LONG
@given(st.lists(VALUES, max_size=12))
def test_any_json_lines_for_long(values):
    is_read_or_refused(lines(values))


@pytest.mark.parametrize("kind", readers(), ids=lambda kind: kind.__name__)
def test_a_reader_says_no_to_what_it_does_not_know(kind):
    assert not kind.recognises({})
    assert not kind.recognises({"type": 1, "data": [], "role": {}, "messages": {}, "steps": "x", "kind": None})


def test_a_reader_that_breaks_would_be_seen(tmp_path):
    class Broken(readers()[0]):
        format = "broken"

        def feed(self, item):
            raise KeyError("x")

    from waza.traces.reading import Lines, _feed

    seen = Lines(io.BytesIO(), b"", 1)
    _feed(Broken(), {"a": 1}, seen)
    assert seen.notes.take() == ["an item could not be read as broken: KeyError: ['a']"]


def test_nesting_without_end_is_refused_with_a_sentence():
    for text in (b"[" * 100_000, b'{"a":' * 100_000, b'{"type":"thread.started","x":' + b"[" * 900 + b"]" * 900 + b"}"):
        with pytest.raises(TraceError, match="standard input: "):
            list(read_found(io.BytesIO(text)))
