"""The `claude_code` reader: it alone recognises its files and reads them whole."""

import pytest
from trace_recordings import DOCUMENTED, FOLDER, check_file_of, files_like

from waza.traces.reading import read_trace


@pytest.mark.parametrize("file", files_like("recordings/claude-latest-*", "traces/claude-*"))
def test_it_alone_recognises_its_files_and_reads_them_whole(file):
    check_file_of("claude_code", file)


def test_a_sub_agents_call_is_kept_apart():
    trace = read_trace(FOLDER / "claude-latest-subagent.jsonl")
    own, inner = trace.tool_events
    assert (own.tool_name, inner.tool_name, inner.args) == ("Agent", "Bash", {"command": "ls | wc -l"})
    assert own.extra == {}
    assert inner.extra == {"parent_tool_call_id": own.tool_call_id, "agent": "a5aa90130f0f45f5b"}
    assert own.turn == inner.turn == 1
    assert trace.usage.turns == 2 and trace.usage.llm_calls is None


def test_an_api_error_of_claude_is_an_error_though_its_subtype_says_success():
    trace = read_trace(DOCUMENTED / "claude-apierror.jsonl")
    assert (trace.status, trace.output, trace.error) == ("error", "", "API Error: 401 invalid api key")
    assert trace.usage.llm_calls == 0
