"""The file of people's verdicts: what counts, what a merge does, what happens when several write or a disk fails."""

import errno
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waza.errors import StoreError
from waza.files.disk import Disk
from waza.files.workspace import Workspace
from waza.model import ToolEvent, Trace
from waza.runs.verdicts import (
    HumanVerdict,
    evidence_of,
    label_of,
    merge_verdicts,
    question_of,
    read_verdicts,
    record_verdict,
    standing,
)


def verdict(answer="pass", **changes):
    return HumanVerdict(**{"grader": "polite", "evidence": "e1", "verdict": answer, "reviewer": "ana"} | changes)


def test_what_was_recorded_is_read_back_with_its_time(tmp_path):
    file = tmp_path / "verdicts.jsonl"
    made = record_verdict(file, verdict(reason="line one\nline two \x1b[31m \ud800", task="a/../b", trial=3))
    assert made.at.endswith("Z")
    (read,) = read_verdicts(file)
    assert (read.verdict, read.trial, read.at) == ("pass", 3, made.at)
    assert read.reason.startswith("line one\nline two \x1b[31m ")
    assert file.read_bytes().count(b"\n") == 1 and b"\x1b" not in file.read_bytes()


def test_there_are_no_verdicts_where_there_is_no_file(tmp_path):
    assert read_verdicts(tmp_path / "verdicts.jsonl") == []


def test_of_two_verdicts_of_one_person_the_later_counts_and_two_people_stay_apart():
    early, late = verdict(at="2026-01-01T00:00:00Z"), verdict("fail", at="2026-01-02T00:00:00Z")
    other = verdict("pass", reviewer="ben", at="2026-01-01T12:00:00Z")
    for order in ([early, late, other], [late, other, early]):
        assert standing(order) == {("polite", "e1"): [late, other]}


def test_most_people_decide_and_an_even_division_decides_nothing():
    said = [verdict(), verdict("fail", reviewer="ben")]
    assert label_of(said) is None
    assert label_of([*said, verdict("fail", reviewer="cy")]) is False
    assert label_of(said[:1]) is True


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        (b'{"grader":"polite","evidence":"e","verdict":"maybe"}', "is not a verdict"),
        (b'{"grader":"polite","evid', "is not a verdict"),
        (b"<<<<<<< HEAD", "a conflict of git; keep the lines of both sides"),
        (b"\xff\xfe", "is not a verdict"),
        (b"[" * 100_000, "is not a verdict"),
    ],
)
def test_a_line_that_is_no_verdict_is_named_and_never_passed_over(tmp_path, line, fact):
    file = tmp_path / "verdicts.jsonl"
    record_verdict(file, verdict())
    file.write_bytes(file.read_bytes() + line + b"\n")
    with pytest.raises(StoreError, match=rf"verdicts.jsonl:2: {fact}"):
        read_verdicts(file)


def test_fields_of_a_later_version_do_no_harm(tmp_path):
    file = tmp_path / "verdicts.jsonl"
    file.write_text('{"grader":"g","evidence":"e","verdict":"pass","mood":"good"}\n\n')
    assert read_verdicts(file) == [HumanVerdict(grader="g", evidence="e", verdict="pass")]


def test_a_line_that_a_crash_cut_off_does_not_swallow_the_next_one(tmp_path):
    file = tmp_path / "verdicts.jsonl"
    file.write_bytes(b'{"grader":"polite"')
    record_verdict(file, verdict())
    assert file.read_bytes().split(b"\n")[0] == b'{"grader":"polite"'
    with pytest.raises(StoreError, match=":1: is not a verdict"):
        read_verdicts(file)
    file.write_bytes(file.read_bytes().split(b"\n", 1)[1])
    assert len(read_verdicts(file)) == 1


WRITER = """
import sys
from waza.runs.verdicts import HumanVerdict, record_verdict
for number in range(60):
    verdict = HumanVerdict(grader="g", evidence=str(number), verdict="pass", reviewer=sys.argv[2], reason="x" * 5000)
    record_verdict(sys.argv[1], verdict)
"""


def test_several_processes_may_record_at_once(tmp_path):
    file = tmp_path / "verdicts.jsonl"
    names = ["ana", "ben", "cy"]
    started = [subprocess.Popen([sys.executable, "-c", WRITER, str(file), name]) for name in names]
    assert [process.wait(timeout=100) for process in started] == [0, 0, 0]
    found = read_verdicts(file)
    assert len(found) == 180
    assert {(one.reviewer, one.evidence) for one in found} == {(name, str(n)) for name in names for n in range(60)}


class FullDisk(Disk):
    """A disk that takes ten bytes of a write and then has no room."""

    def write(self, fd, data):
        if os.fstat(fd).st_size > self.kept:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(fd, bytes(data[:10]))


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path):
    file = tmp_path / "verdicts.jsonl"
    record_verdict(file, verdict())
    before = file.read_bytes()
    disk = FullDisk()
    disk.kept = len(before)
    with pytest.raises(StoreError, match="the verdict is not recorded: no space left"):
        record_verdict(file, verdict("fail"), disk)
    assert file.read_bytes() == before


def test_without_the_cut_a_full_disk_would_leave_half_a_line(tmp_path):
    class NoCut(FullDisk):
        def truncate(self, fd, size):
            pass

    file = tmp_path / "verdicts.jsonl"
    disk = NoCut()
    disk.kept = 0
    with pytest.raises(StoreError):
        record_verdict(file, verdict(), disk)
    assert len(file.read_bytes()) == 10


VERDICTS = st.builds(
    HumanVerdict,
    grader=st.sampled_from(["polite", "true"]),
    evidence=st.sampled_from(["e1", "e2"]),
    verdict=st.sampled_from(["pass", "fail"]),
    reviewer=st.sampled_from(["", "ana", "ben"]),
    at=st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
    reason=st.text(max_size=3),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(VERDICTS, max_size=6), st.lists(VERDICTS, max_size=6))
def test_merging_comes_to_the_same_whoever_merges_and_twice_changes_nothing(tmp_path_factory, mine, theirs):
    folder = tmp_path_factory.mktemp("merge")
    for name, verdicts in (("a", mine), ("b", theirs), ("c", mine), ("d", theirs)):
        (folder / name).touch()
        for one in verdicts:
            record_verdict(folder / name, one)
    merge_verdicts(folder / "a", folder / "b")
    merge_verdicts(folder / "d", folder / "c")
    one, other = (standing(read_verdicts(folder / name)) for name in "ad")
    assert one == other
    assert merge_verdicts(folder / "a", folder / "b").added == 0


def test_a_file_that_is_not_there_cannot_be_merged(tmp_path):
    with pytest.raises(StoreError, match=r"theirs.jsonl: is not there; nothing was merged"):
        merge_verdicts(tmp_path / "verdicts.jsonl", tmp_path / "theirs.jsonl")


def test_the_evidence_is_what_a_person_sees_and_nothing_else(tmp_path):
    trace = Trace(input="ask", output="answer", tool_events=[ToolEvent(tool_name="search", args={"q": 1})])
    same = Trace(
        input="ask",
        output="answer",
        duration_ms=7,
        session_id="another",
        tool_events=[ToolEvent(tool_name="search", args={"q": 1}, duration_ms=9, tool_call_id="x")],
    )
    (tmp_path / "a.txt").write_text("left")
    others = [
        Trace(input="ask", output="answer"),
        Trace(input="ask", output="answer", tool_events=[]),
        Trace(input="ask", output="another", tool_events=trace.tool_events),
        Trace(input="ask", output="answer", tool_events=trace.tool_events, turns=[Trace(input="ask", output="first")]),
        Trace(input="ask", output="answer", tool_events=[ToolEvent(tool_name="search", args={"q": 2})]),
        Trace(input="ask", output="answer", tool_events=trace.tool_events, files=Workspace(tmp_path)),
    ]
    assert evidence_of(trace) == evidence_of(same)
    assert len({evidence_of(one) for one in [trace, *others]}) == 7
    before = evidence_of(others[-1])
    (tmp_path / "a.txt").write_text("changed")
    assert evidence_of(others[-1]) != before


def test_the_source_context_is_evidence_and_verdicts_without_one_stay_valid():
    trace = Trace(input="ask", output="answer")
    assert evidence_of(trace) == evidence_of(trace, "") == "1b1316f4c713fcb42699964e8584cf4c", "as it ever was"
    assert len({evidence_of(trace, source) for source in ("", "five days", "ten days")}) == 3


def test_a_question_changes_with_any_word_of_it_and_with_where_it_is_parted():
    assert len({question_of("a", "b"), question_of("ab"), question_of("a b"), question_of("a", "B")}) == 4
