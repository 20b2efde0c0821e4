"""The `gemini` reader: it alone recognises its files and reads them whole."""

import pytest
from trace_recordings import FOLDER, check_file_of, files_like

from waza.traces.reading import read_trace


@pytest.mark.parametrize("file", files_like("recordings/gemini-*"))
def test_it_alone_recognises_its_files_and_reads_them_whole(file):
    check_file_of("gemini", file)


def test_an_api_error_is_an_error_of_the_run():
    trace = read_trace(FOLDER / "gemini-apierror.jsonl")
    assert trace.status == "error" and "401" in trace.error and trace.output == ""
