"""Where traces come from: files, streams, many in one, odd beginnings; and the original's rules for tool events."""

import io
import json
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_recordings import DATA, FILES, FOLDER

from waza.errors import TraceError
from waza.model import ToolEvent, Trace, Usage
from waza.traces.copilot import tool_events
from waza.traces.reading import read_found, read_trace, read_traces

HELPERS = [json.loads(line) for line in (DATA / "conformance/helpers_tool_events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", HELPERS, ids=lambda case: case["id"])
def test_tool_events_of_the_original(case):
    events = tool_events(case["input"])
    if case["expected"] is None:
        assert events is None
        return
    assert len(events) == len(case["expected"])
    for event, expected in zip(events, case["expected"], strict=True):
        told = {key: value for key, value in expected.items() if key != "error_nonempty"}
        assert {key: getattr(event, key) for key in told} == told
        assert event.error or "error_nonempty" not in expected


def test_a_stream_without_calls_has_an_empty_list_of_them():
    assert tool_events([{"type": "assistant.message", "at_ms": 0}]) == []


def test_the_intent_tool_of_copilot_is_no_call():
    start = {"type": "tool.execution_start", "tool_call_id": "a", "tool_name": "report_intent", "at_ms": 0}
    assert tool_events([start, {"type": "tool.execution_complete", "tool_call_id": "a", "success": True}]) == []


def own(number):
    event = ToolEvent(tool_name="bash", args={"command": "ls"}, result="x", sequence=1)
    return Trace(input=f"question {number}", output="answer", tool_events=[event], usage=Usage(input_tokens=1))


def test_our_own_traces_one_a_line_come_back_as_they_are():
    traces = [own(number) for number in range(5)]
    text = "\n".join(trace.to_json() for trace in traces)
    assert list(read_traces(io.BytesIO(text.encode()))) == traces
    assert list(read_traces(io.BytesIO(f"\n{text}\n\n".encode()))) == traces


def test_our_own_traces_in_a_list_or_alone_in_a_document():
    traces = [own(1), own(2)]
    listed = json.dumps([trace.to_dict() for trace in traces], indent=2)
    assert list(read_traces(io.BytesIO(listed.encode()))) == traces
    assert read_trace(io.BytesIO(json.dumps(own(3).to_dict(), indent=2).encode())) == own(3)


def test_what_stands_before_a_bad_trace_is_given_and_then_the_line_is_named(tmp_path):
    file = tmp_path / "traces.jsonl"
    file.write_text(own(1).to_json() + "\n" + own(2).to_json() + "\n" + own(3).to_json()[:40])
    given = read_traces(file)
    assert [next(given), next(given)] == [own(1), own(2)]
    with pytest.raises(TraceError, match=r"traces\.jsonl:3: not a trace"):
        next(given)


class Endless(io.RawIOBase):
    """A stream of the same line for ever; it counts how many bytes were taken."""

    def __init__(self, line):
        self.line = line
        self.taken = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        piece = (self.line * (len(buffer) // len(self.line) + 1))[: len(buffer)]
        offset = self.taken % len(self.line)
        piece = (self.line + piece)[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        self.taken += len(piece)
        return len(piece)


def test_our_own_traces_are_read_as_they_come():
    endless = Endless(own(1).to_json().encode() + b"\n")
    given = read_traces(io.BufferedReader(endless))
    for _ in range(1000):
        assert next(given) == own(1)
    assert endless.taken < 1_100 * len(endless.line)


def test_memory_stays_flat_over_many_traces(tmp_path):
    file = tmp_path / "many.jsonl"
    line = own(1).to_json() + "\n"
    with file.open("w") as target:
        for _ in range(40_000):
            target.write(line)
    program = (
        "import resource, sys\nfrom waza.traces.reading import read_traces\n"
        "given = read_traces(sys.argv[1])\nfor _ in range(100): next(given)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\ncount = sum(1 for _ in given)\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, file], capture_output=True, text=True, timeout=100, check=True
    )
    count, growth = map(int, done.stdout.split())
    assert count == 39_900
    assert growth < 8_000, "kilobytes"


def test_the_name_of_a_file_plays_no_part(tmp_path):
    odd = tmp_path / "codex.zip"
    odd.write_bytes((FOLDER / "pi-hello.jsonl").read_bytes())
    assert read_trace(odd).engine == "pi"
    assert read_trace(str(odd)) == read_trace(FOLDER / "pi-hello.jsonl")


@pytest.mark.parametrize("file", [file for file in FILES if file.endswith(".jsonl")])
def test_a_list_reads_like_lines(file):
    text = (FOLDER / file).read_text()
    items = [json.loads(line) for line in text.splitlines()]
    expected = list(read_traces(FOLDER / file))
    for written in (json.dumps(items), json.dumps(items, indent=1), "[\n" + ",\n".join(map(json.dumps, items)) + "\n]"):
        assert list(read_traces(io.BytesIO(written.encode()))) == expected


def test_recordings_after_each_other_stay_apart():
    files = ["claude-latest-hello.jsonl", "claude-latest-multi.jsonl", "codex-hello.jsonl", "codex-fail.jsonl"]
    files += ["gemini-talk.jsonl", "gemini-hello.jsonl", "opencode-hello.jsonl", "opencode-multi.jsonl"]
    files += ["pi-hello.jsonl", "pi-fail.jsonl", "qwen-hello.jsonl", "qwen-multi.jsonl"]
    files += ["copilot-hello.jsonl", "copilot-fail.jsonl"]
    by_agent = {}
    for file in files:
        by_agent.setdefault(file.split("-")[0], []).append(file)
    for pair in by_agent.values():
        text = b"".join((FOLDER / file).read_bytes().rstrip(b"\n") + b"\n" for file in pair)
        assert list(read_traces(io.BytesIO(text))) == [read_trace(FOLDER / file) for file in pair]


@pytest.mark.parametrize("agent", ["claude-latest", "codex", "copilot", "gemini", "pi", "qwen"])
def test_two_runs_of_one_session_are_two_traces(agent):
    text = (FOLDER / f"{agent}-hello.jsonl").read_bytes().rstrip(b"\n") + b"\n"
    assert list(read_traces(io.BytesIO(text + text))) == [read_trace(FOLDER / f"{agent}-hello.jsonl")] * 2


def test_other_text_before_a_stream_is_left_out_and_said():
    text = b"npm warn deprecated\n(node:1) Warning\n" + (FOLDER / "codex-hello.jsonl").read_bytes()
    [found] = list(read_found(io.BytesIO(text)))
    assert len(found.trace.tool_events) == 1 and found.trace.status == "success"
    assert [note.split(" is not JSON")[0] for note in found.notes] == ["line 1", "line 2"]


def test_many_notes_are_cut_short():
    text = b"noise\n" * 100 + (FOLDER / "codex-hello.jsonl").read_bytes()
    [found] = list(read_found(io.BytesIO(text)))
    assert len(found.notes) == 21 and found.notes[-1] == "and 80 more"


def test_a_byte_order_mark_is_no_obstacle_and_utf16_is_named():
    text = (FOLDER / "codex-hello.jsonl").read_bytes()
    assert read_trace(io.BytesIO(b"\xef\xbb\xbf" + text)) == read_trace(FOLDER / "codex-hello.jsonl")
    with pytest.raises(TraceError, match="it is UTF-16; save it as UTF-8"):
        read_trace(io.BytesIO(text.decode().encode("utf-16")))


def test_what_programs_print_against_the_standard_is_read():
    lone = '{"role": "user", "content": "\\ud83d half"}\n{"role": "assistant", "content": "ok", "x": NaN}'
    trace = read_trace(io.BytesIO(lone.encode()))
    assert (trace.input, trace.output) == ("? half", "ok")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "it is empty"),
        (b" \n\n", "it is empty"),
        (b"hello", "not a trace, nor a recording that is recognised: it starts with 'hello'"),
        (b'{"a": 1}', "not a trace, nor a recording that is recognised"),
        (b"[]", "not a trace, nor a recording that is recognised"),
        (b"null", "not a trace, nor a recording that is recognised"),
        (b'{"input": "x", "output": "y", "status": 3}', "not a trace: status: a text is needed, found the number 3"),
    ],
)
def test_what_is_no_recording_is_refused_with_a_sentence(text, sentence):
    with pytest.raises(TraceError) as refusal:
        read_trace(io.BytesIO(text))
    assert sentence in str(refusal.value) and str(refusal.value).startswith("standard input:")


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path):
    with pytest.raises(TraceError, match=r"nothing\.jsonl: cannot be read: No such file"):
        read_trace(tmp_path / "nothing.jsonl")
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        (
            "usage",
            {"input_tokens": "many"},
            "usage.input_tokens: a whole number or null is needed, found the text 'many'",
        ),
        ("duration_ms", "fast", "duration_ms: a number or null is needed, found the text 'fast'"),
        ("status", "weird", "status: found 'weird'; one of: success, failure, error, timeout"),
        ("output", 5, "output: a text is needed, found the number 5"),
        ("tool_events", [{"args": {}}], "tool_events[0]: 'tool_name' is missing"),
        ("tool_events", [{"tool_name": ["a"]}], "tool_events[0].tool_name: a text is needed, found a list"),
    ],
)
def test_a_field_of_another_type_is_refused_with_its_place_and_what_is_there(field, value, sentence):
    with pytest.raises(TraceError) as refusal:
        Trace.from_json({"input": "a", "output": "b"} | {field: value})
    assert str(refusal.value) == f"not a trace: {sentence}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from([field.name for field in msgspec.structs.fields(Trace)]), JSON)
def test_no_refusal_of_a_trace_is_in_the_words_of_a_library(field, value):
    try:
        Trace.from_json({"input": "a", "output": "b"} | {field: value})
    except TraceError as refusal:
        assert "`" not in str(refusal) and "$" not in str(refusal).replace(str(value), "")


def test_another_package_can_announce_a_reader(tmp_path):
    site = tmp_path / "site"
    (site / "theirs-1.0.dist-info").mkdir(parents=True)
    (site / "theirs-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (site / "theirs-1.0.dist-info/entry_points.txt").write_text("[waza.traces]\ntheirs = theirs:TheirsReader\n")
    (site / "theirs.py").write_text(
        "from waza.traces.base import Reader\n"
        "class TheirsReader(Reader):\n"
        "    format = 'theirs'\n"
        "    @classmethod\n"
        "    def recognises(cls, item): return 'theirs' in item\n"
        "    def feed(self, item): self.draft.add_text(item['theirs'])\n"
    )
    (tmp_path / "file").write_text('{"theirs": "hello"}')
    program = "import sys; from waza.traces.reading import read_trace; print(read_trace(sys.argv[1]).output)"
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "file"],
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout == "hello\n", done.stderr
