"""The `copilot` reader: it alone recognises its files and reads them whole."""

import pytest
from trace_recordings import FOLDER, check_file_of, files_like

from waza.traces.reading import read_trace


@pytest.mark.parametrize("file", files_like("recordings/copilot-*"))
def test_it_alone_recognises_its_files_and_reads_them_whole(file):
    check_file_of("copilot", file)


def test_an_unknown_tool_is_a_failed_call():
    [call] = read_trace(FOLDER / "copilot-badtool.jsonl").tool_events
    assert (call.tool_name, call.success, call.args) == ("no_such_tool", False, {"x": 1})
    assert "does not exist" in call.error
