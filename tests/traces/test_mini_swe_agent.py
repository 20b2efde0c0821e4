"""The `mini_swe_agent` reader: it alone recognises its files and reads them whole."""

import pytest
from trace_recordings import FOLDER, check_file_of, files_like

from waza.traces.reading import read_trace


@pytest.mark.parametrize("file", files_like("recordings/mini-swe-agent*"))
def test_it_alone_recognises_its_files_and_reads_them_whole(file):
    check_file_of("mini_swe_agent", file)


def test_the_submission_of_mini_swe_agent_is_a_call_that_succeeded():
    fails, works, submits = read_trace(FOLDER / "mini-swe-agent.traj.json").tool_events
    assert (fails.success, works.success, submits.success) == (False, True, True)
    assert (fails.result, works.result) == ("cat: /no/such/file: No such file or directory\n", "hello\n")
    assert "COMPLETE_TASK" in submits.args["command"]
