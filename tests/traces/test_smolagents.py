"""The `smolagents` reader: it alone recognises its files and reads them whole."""

import pytest
from trace_recordings import FOLDER, check_file_of, files_like

from waza.traces.reading import read_trace


@pytest.mark.parametrize("file", files_like("recordings/smolagents-*"))
def test_it_alone_recognises_its_files_and_reads_them_whole(file):
    check_file_of("smolagents", file)


def test_the_answer_of_smolagents_is_no_tool_call():
    assert [event.tool_name for event in read_trace(FOLDER / "smolagents-hello.json").tool_events] == ["bash"]
