"""The `waza_results` reader: it alone recognises its files and reads them whole."""

import pytest
from trace_recordings import DOCUMENTED, check_file_of, files_like

from waza.traces.reading import read_traces


@pytest.mark.parametrize("file", files_like("traces/results-*"))
def test_it_alone_recognises_its_files_and_reads_them_whole(file):
    check_file_of("waza_results", file)


def test_the_originals_results_of_both_ages():
    old, crashed = read_traces(DOCUMENTED / "results-1.0.json")
    assert old.engine == "copilot-sdk" and old.extra == {"task_id": "oslo"}
    assert old.skill_invocations[0].name == "weather" and old.usage.turns == 2
    assert (crashed.status, crashed.error, crashed.tool_events) == ("error", "engine: exit status 1", [])
    first, second = read_traces(DOCUMENTED / "results-1.5.json")
    assert first.tool_events[0].args == {"command": "weather Oslo", "timeout": 5}
    assert first.tool_events[0].duration_ms == 150
    assert second.tool_events == [] and second.extra == {"task_id": "oslo"}
