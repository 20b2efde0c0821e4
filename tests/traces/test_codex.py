"""The `codex` reader: it alone recognises its files and reads them whole."""

import pytest
from trace_recordings import FOLDER, check_file_of, files_like

from waza.traces.reading import read_trace


@pytest.mark.parametrize("file", files_like("recordings/codex-*"))
def test_it_alone_recognises_its_files_and_reads_them_whole(file):
    check_file_of("codex", file)


def test_patches_tell_path_and_kind():
    add, update = read_trace(FOLDER / "codex-patch.jsonl").tool_events
    assert (add.tool_name, update.tool_name) == ("file_change", "file_change")
    assert add.args == {"changes": [{"path": "/workspace/patched.txt", "kind": "add"}]}
    assert update.args["changes"][0]["kind"] == "update"


def test_codex_prints_parallel_calls_one_after_the_other():
    trace = read_trace(FOLDER / "codex-parallel.jsonl")
    assert [event.args["command"] for event in trace.tool_events] == ["echo two > two.txt", "echo one > one.txt"]
