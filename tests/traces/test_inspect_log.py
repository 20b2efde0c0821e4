"""The `inspect_log` reader: it alone recognises its files and reads them whole."""

import io
import json
import zipfile

import pytest
from trace_recordings import DOCUMENTED, check_file_of, files_like

from waza.errors import TraceError
from waza.traces.base import Notes
from waza.traces.reading import read_found, read_traces, samples_in


@pytest.mark.parametrize("file", files_like("traces/inspect.json"))
def test_it_alone_recognises_its_files_and_reads_them_whole(file):
    check_file_of("inspect_log", file)


def test_inspect_samples_are_traces_with_their_ids_limits_and_errors():
    good, limited, broken = read_traces(DOCUMENTED / "inspect.json")
    assert good.extra["task_id"] == "oslo" and good.outcome == {"scores": {"includes": "C"}}
    assert good.duration_ms == 2500
    assert (limited.status, limited.error) == ("timeout", "the token limit was reached")
    assert (broken.status, broken.error) == ("error", "ValueError: boom")


def eval_file(members, compression=zipfile.ZIP_DEFLATED):
    """An `.eval` file with these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for path, content in members.items():
            archive.writestr(path, content if isinstance(content, bytes) else json.dumps(content))
    file.seek(0)
    return file


def log_members():
    log = json.loads((DOCUMENTED / "inspect.json").read_text())
    samples = {f"samples/{sample['id']}_epoch_1.json": sample for sample in log.pop("samples")}
    return {"_journal/start.json": log} | samples | {"header.json": log}


def test_an_eval_file_gives_the_same_traces_as_the_log_in_json():
    assert list(read_traces(eval_file(log_members()))) == list(read_traces(DOCUMENTED / "inspect.json"))


def test_an_eval_file_that_was_not_finished_says_so():
    members = log_members()
    del members["header.json"]
    found = list(read_found(eval_file(members)))
    assert len(found) == 3
    assert "the log was not finished: it has no header.json" in [note for each in found for note in each.notes]


def test_a_member_that_is_broken_is_left_out_and_said():
    found = list(read_found(eval_file(log_members() | {"samples/9_epoch_1.json": b"{nonsense"})))
    assert len(found) == 3
    assert any("'samples/9_epoch_1.json' is skipped" in note for each in found for note in each.notes)


def test_an_archive_is_read_within_limits():
    bomb = log_members() | {"samples/bomb_epoch_1.json": b'{"id": "' + b"0" * 3_000_000 + b'"}'}
    notes = Notes()
    assert len(list(samples_in(eval_file(bomb), notes))) == 4
    assert notes.take() == [], "within the usual limit it is read"
    assert len(list(samples_in(eval_file(bomb), notes, limit=1 << 20))) == 3
    assert notes.take() == ["'samples/bomb_epoch_1.json' is skipped: more than 1 MB"]


def test_an_archive_of_something_else_is_refused():
    with pytest.raises(TraceError, match=r"not an `.eval` log"):
        list(read_found(eval_file({"../../etc/passwd": b"x"})))
