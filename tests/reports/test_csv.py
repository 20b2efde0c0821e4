"""CSV: a strict reader gets every text back, and no spreadsheet finds a formula in it."""

import csv
import io

import pytest
from hostile import STRINGS, hostile_run
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from results_made import a_result, a_run
from waza.model import SkillInvocation
from waza.reports.csv import COLUMNS, CsvReport
from waza.untrusted.text import visible

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")


def rows_of(run):
    text = b"".join(CsvReport().render(run)).decode("utf-8")
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert rows[0] == list(COLUMNS)
    assert {len(row) for row in rows} == {len(COLUMNS)}
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows[1:]]


def meant(cell):
    return cell.removeprefix("'")


@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_a_strict_reader_gets_every_text_back_and_no_cell_is_a_formula(text):
    rows = rows_of(hostile_run(text))
    assert [(row["trial"], row["status"]) for row in rows] == [
        ("1", "failed"),
        ("2", "error"),
        ("3", "skipped"),
        ("4", "error"),
    ]
    shown = visible(text, lines=True)
    for column in ("run", "suite", "engine", "model", "tags", "prompt", "output", "reason", "error", "started_at"):
        assert meant(rows[0][column]) == shown, column
    assert meant(rows[0]["task"]) == f"{shown}#0"
    assert not [cell for row in rows for cell in row.values() if cell.startswith(FORMULAS)]


@given(st.text(st.characters(codec=None), max_size=40))
def test_the_guard_can_be_undone(text):
    (row,) = rows_of(a_run([a_result(output=text)]))
    assert meant(row["output"]) == visible(text, lines=True)
    assert not row["output"].startswith(FORMULAS)


def test_a_file_without_the_guard_would_be_detected():
    assert len([text for text in STRINGS if text.startswith(FORMULAS)]) >= 7


def test_a_long_text_still_fits_into_a_cell():
    (row,) = rows_of(a_run([a_result(output="x" * 50_000)]))
    assert len(row["output"]) == 32_000 and row["output"].endswith("…")


def test_numbers_are_numbers_and_what_is_not_known_is_empty():
    rows = rows_of(a_run([a_result("a"), a_result("b", status="failed")], tasks=["a", "b", "c"]))
    first = rows[0]
    assert (first["grader_duration_ms"], first["judge_duration_ms"]) == ("", ""), "not recorded"
    timed = replace(a_result("a"), duration_ms=806.0, grader_duration_ms=3.5, judge_duration_ms=800.0)
    (row,) = rows_of(a_run([timed]))
    times = [float(row[f"{name}duration_ms"]) for name in ("", "grader_", "judge_")]
    assert times == [2.5, 3.5, 800.0], "a trial's time is its agent's"
    assert (float(first["score"]), first["input_tokens"], first["cost_usd"]) == (1.0, "10", "")
    assert (float(first["duration_ms"]), first["tool_calls"], first["golden"]) == (2.0, "1", "false")
    assert (rows[2]["task"], rows[2]["status"], rows[2]["reason"], rows[2]["score"]) == ("c", "error", "not run", "")


def test_answers_of_trigger_tests_follow_the_tasks_and_have_no_score():
    prompts = [
        {"id": "trigger:control-explicit", "prompt": "Use it", "skill": "=it", "control": "explicit"},
        {"id": "trigger:should-1", "prompt": "=do()", "skill": "=it"},
        {"id": "trigger:should-not-1", "prompt": "Sing", "skill": "=it", "should_trigger": False},
    ]
    run = a_run([a_result("t")])
    used = [
        a_result(one["id"], trace=replace(a_result().trace, skill_invocations=[SkillInvocation(name="=it")]))
        for one in prompts[:2]
    ]
    run = replace(run, spec=run.spec | {"triggers": {"prompts": prompts}}, triggers=used)
    task, *rows = rows_of(run)
    assert (task["kind"], task["task"], task["status"], task["should_trigger"]) == ("task", "t", "passed", "")
    columns = ("kind", "name", "status", "reason", "should_trigger", "did_trigger", "skills", "score")
    assert [[row[column] for column in columns] for row in rows] == [
        ["control", "control-explicit", "right", "", "true", "true", "'=it", ""],
        ["trigger", "should-1", "right", "", "true", "true", "'=it", ""],
        ["trigger", "should-not-1", "not asked", "", "false", "", "", ""],
    ]
    assert (rows[1]["prompt"], rows[1]["skill"], rows[1]["input_tokens"]) == ("'=do()", "'=it", "10")
    assert rows_of(a_run([a_result("t")])) == [task], "a run without trigger tests has tasks alone"
