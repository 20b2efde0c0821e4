"""Recordings cut anywhere: never a traceback, what came before is kept, what is missing is said."""

import io
import random

import pytest
from trace_recordings import FILES, FOLDER

from campaign import count
from waza.errors import TraceError
from waza.model import Trace
from waza.traces.reading import read_found

WITHOUT_END_MARK = ("langgraph", "openai-agents", "openhands", "pydantic-ai")
CI_BYTES, FULL_BYTES = 12, 200
GARBAGE = (b"\x00", b"\xff", b'"', b"{", b"}", b"[", b"\\", b"\n")


def found_in(text):
    """What is read out of a text: the traces, or the sentence it is refused with."""
    try:
        return list(read_found(io.BytesIO(text))), None
    except TraceError as refusal:
        return [], str(refusal)


def calls_of(found):
    """The settled calls: they can only become more while the text goes on."""
    return [
        (event.tool_name, event.args, event.result)
        for each in found
        for event in each.trace.tool_events or []
        if event.result is not None
    ]


def says_what_is_missing(found, file):
    """Whether a note tells, or nothing can: the last thing kept is an answer, and the format has no end mark."""
    last = found[-1]
    return bool(last.notes) or (file.startswith(WITHOUT_END_MARK) and bool(last.trace.output))


def assert_honest(text, file, before):
    """Check what is read out of a cut recording; return its settled calls."""
    found, refusal = found_in(text)
    count("cuts of recorded traces")
    if refusal is not None:
        assert refusal.startswith("standard input: ") and "\n" not in refusal
        assert before == [], "what was read of less is refused with more"
        return []
    assert says_what_is_missing(found, file)
    for each in found:
        assert Trace.from_json(each.trace.to_json()) == each.trace
        assert not any("could not be read" in note for note in each.notes)
    return calls_of(found)


@pytest.mark.parametrize("file", FILES)
def test_cut_after_every_line(file):
    lines = (FOLDER / file).read_bytes().splitlines(keepends=True)
    step = max(1, len(lines) // 40)
    calls = []
    for end in range(0, len(lines), step):
        now = assert_honest(b"".join(lines[:end]), file, calls)
        assert all(call in now for call in calls)
        calls = now


def cut_at_random_bytes(file, tries):
    text = (FOLDER / file).read_bytes()
    chosen = random.Random(file)
    calls = []
    for end in sorted(chosen.randrange(len(text) - 1) for _ in range(tries)):
        now = assert_honest(text[:end], file, calls)
        assert all(call in now for call in calls)
        calls = now


@pytest.mark.parametrize("file", FILES)
def test_cut_at_random_bytes(file):
    cut_at_random_bytes(file, CI_BYTES)


@pytest.mark.campaign
@pytest.mark.parametrize("file", FILES)
def test_cut_at_200_random_bytes(file):
    cut_at_random_bytes(file, FULL_BYTES)


@pytest.mark.campaign
@pytest.mark.parametrize("file", FILES)
def test_cut_after_every_single_line(file):
    lines = (FOLDER / file).read_bytes().splitlines(keepends=True)
    calls = []
    for end in range(len(lines)):
        now = assert_honest(b"".join(lines[:end]), file, calls)
        assert all(call in now for call in calls)
        calls = now


def spoilt(text, chosen):
    place = chosen.randrange(len(text))
    return text[:place] + chosen.choice(GARBAGE) + text[place + chosen.choice((0, 1, 20)) :]


def spoil(file, tries):
    text = (FOLDER / file).read_bytes()
    chosen = random.Random(file)
    for _ in range(tries):
        found, refusal = found_in(spoilt(text, chosen))
        assert found or refusal
        for each in found:
            assert Trace.from_json(each.trace.to_json()) == each.trace


@pytest.mark.parametrize("file", FILES)
def test_spoilt_in_the_middle(file):
    spoil(file, CI_BYTES)


@pytest.mark.campaign
@pytest.mark.parametrize("file", FILES)
def test_spoilt_in_many_places(file):
    spoil(file, FULL_BYTES)


def test_a_broken_line_in_the_middle_is_left_out_and_said():
    lines = (FOLDER / "claude-latest-multi.jsonl").read_bytes().splitlines(keepends=True)
    lines[4] = lines[4][:100] + b"\n"
    [found] = list(read_found(io.BytesIO(b"".join(lines))))
    assert found.notes[0].startswith("line 5 is not JSON and is skipped")
    assert found.trace.status == "success", "the end mark is there"
    assert len(found.trace.tool_events) == 3 - (b"tool_use" in lines[4])


def test_a_recording_without_its_end_is_an_error_and_keeps_its_calls():
    lines = (FOLDER / "claude-latest-multi.jsonl").read_bytes().splitlines(keepends=True)
    [found] = list(read_found(io.BytesIO(b"".join(lines[:-1]))))
    assert found.trace.status == "error"
    assert found.trace.error == "the recording ends early: its `result` event is missing"
    assert found.trace.output == "Fixed add() in calc.py; 2+3 now gives 5."
    assert (found.trace.usage.input_tokens, found.trace.usage.output_tokens) == (480, 68), "counted once per answer"
    assert len(found.trace.tool_events) == 3


def test_a_call_that_was_cut_from_its_result_did_not_succeed():
    lines = (FOLDER / "claude-latest-hello.jsonl").read_bytes().splitlines(keepends=True)
    [found] = list(read_found(io.BytesIO(b"".join(lines[:3]))))
    [call] = found.trace.tool_events
    assert (call.success, call.result) == (False, None)
    assert "1 of 1 tool calls have no result: Bash" in found.notes


def test_a_document_that_breaks_off_keeps_what_is_whole():
    text = (FOLDER / "pydantic-ai-fail.json").read_bytes()
    [found] = list(read_found(io.BytesIO(text[: text.index(b"Step 2.")])))
    assert found.trace.status == "error"
    assert "the file is truncated: only the part before that is read" in found.notes
    [call] = found.trace.tool_events
    assert (call.args, call.success) == ({"command": "cat /no/such/file; exit 3"}, False)
