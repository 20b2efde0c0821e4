"""The `openai_messages` reader: it alone recognises its files and reads them whole."""

import pytest
from trace_recordings import DOCUMENTED, check_file_of, files_like

from waza.traces.reading import read_traces


@pytest.mark.parametrize("file", files_like("traces/anthropic-messages.json", "traces/openai-*"))
def test_it_alone_recognises_its_files_and_reads_them_whole(file):
    check_file_of("openai_messages", file)


def test_a_conversation_a_line():
    first, second = read_traces(DOCUMENTED / "openai-chat.jsonl")
    assert (first.extra["id"], second.extra["id"]) == ("conv-1", "conv-2")
    assert (second.input, second.output, second.tool_events) == ("Hi", "Hello.", [])


def test_responses_that_follow_on_each_other_are_one_trace():
    chained, failed = read_traces(DOCUMENTED / "openai-response-objects.jsonl")
    assert [event.tool_name for event in chained.tool_events] == ["get_weather", "web_search"]
    assert chained.usage.input_tokens == 240 and chained.output == "3 degrees."
    assert (failed.status, failed.error) == ("error", "overloaded")
