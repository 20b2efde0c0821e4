"""`waza runs` and `waza trend`: what is stored, what is kept, how it went over time."""

import json
import os
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from results_made import a_result, a_run
from waza.analysis.trends import trends
from waza.cli import run_command
from waza.cli._screen import console
from waza.cli.trend import plot
from waza.errors import UsageError
from waza.model import Trace, Usage
from waza.runs.folder import RunFolder
from waza.runs.retention import export_runs, is_running, tag_run, tags_of, to_prune
from waza.runs.store import list_runs, open_run
from waza.runs.summary import summarize


def store(parent, number, passed=True, model="m", name="suite", days_ago=0.0):
    """Store a finished run of two tasks."""
    began = (datetime.now(UTC) - timedelta(days=days_ago)).isoformat()
    trace = Trace(input="x", output="y", usage=Usage(cost_usd=0.01 * (number + 1)))
    results = [a_result("a", trace=trace), a_result("b", status="passed" if passed else "failed", trace=trace)]
    run = a_run(results, tasks=["a", "b"], id=f"run-{number:03}", model=model, name=name, started_at=began)
    with RunFolder.create(parent, run) as folder:
        folder.append(*results)
        folder.finish(summarize(run), complete=True, reason="")
    return folder.path


def names(runs):
    return [Path(run.folder).name for run in runs]


def test_the_newest_of_each_suite_and_model_are_kept(tmp_path):
    for number in range(4):
        store(tmp_path, number)
    store(tmp_path, 9, model="other")
    assert names(to_prune(list_runs(tmp_path), keep=2)) == ["run-000", "run-001"]
    assert names(to_prune(list_runs(tmp_path), keep=0)) == ["run-000", "run-001", "run-002", "run-003", "run-009"]


def test_only_old_runs_go_and_none_with_a_tag(tmp_path):
    store(tmp_path, 0, days_ago=30)
    tag_run(store(tmp_path, 1, days_ago=20), ["release"])
    store(tmp_path, 2)
    runs = list_runs(tmp_path)
    assert names(to_prune(runs, older_than_days=10)) == ["run-000"]
    assert names(to_prune(runs, older_than_days=10, with_tagged=True)) == ["run-000", "run-001"]
    assert names(to_prune(runs, older_than_days=10, keep=3)) == []


def test_a_run_that_is_going_on_is_never_removed(tmp_path):
    with RunFolder.create(tmp_path, a_run(tasks=["a"], id="run-000")) as folder:
        assert is_running(folder.path)
        assert to_prune(list_runs(tmp_path), keep=0) == []
    assert not is_running(folder.path)
    assert names(to_prune(list_runs(tmp_path), keep=0)) == ["run-000"]


def test_tags_are_put_on_and_taken_off(tmp_path):
    folder = store(tmp_path, 0)
    assert tag_run(folder, ["b", "a"]) == ["a", "b"]
    assert tag_run(folder, ["c"], ["a"]) == tags_of(folder) == ["b", "c"]
    for wrong in ("", " ", "a\nb", "\x1b[31m", "x" * 61):
        with pytest.raises(UsageError, match="a tag is a printable text"):
            tag_run(folder, [wrong])
    (folder / "tags.json").write_text("{")
    assert tags_of(folder) == []


def test_an_exported_run_can_be_read_where_it_is_unpacked(tmp_path):
    folder = store(tmp_path / "runs", 0)
    os.symlink("/etc/passwd", folder / "artifacts" / "link")
    assert export_runs([folder], tmp_path / "x.zip") == 2
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        archive.extractall(tmp_path / "elsewhere")
    assert len(open_run(tmp_path / "elsewhere" / "run-000").results) == 2
    with pytest.raises(UsageError, match="is there already"):
        export_runs([folder], tmp_path / "x.zip")


def test_a_trend_is_per_suite_and_model_from_the_oldest_on(tmp_path):
    for number, passed in enumerate([True, False, True]):
        store(tmp_path, number, passed)
    store(tmp_path, 3, model="other")
    one, other = trends(list_runs(tmp_path))
    assert ([point.pass_rate for point in one.points], one.model) == ([1.0, 0.5, 1.0], "m")
    assert [point.cost_usd for point in one.points] == pytest.approx([0.02, 0.04, 0.06])
    assert (len(other.points), other.model) == (1, "other")


def test_a_plot_is_as_high_as_its_numbers():
    assert plot([1.0, 0.5, 0.0, None], 1.0, height=2) == ["█   ", "██▁·"]
    assert plot([1.0, 0.5, 0.0, None], 1.0, height=2, plain=True) == ["@   ", "@@.·"]
    assert plot([0.0], 0.0) == [" ", " ", "▁"]


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Call the command line in this process, in an empty folder; return what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    console.cache_clear()

    def called(*arguments, code=0):
        capsys.readouterr()
        assert run_command([*arguments]) == code
        return capsys.readouterr().out

    return called


def test_the_commands(call, tmp_path):
    for number in range(3):
        store(tmp_path / "runs", number, passed=number > 0)
    assert "run-002" in call("runs")
    assert call("runs", "tag", "run-000", "first") == "run-000: first\n"
    [line] = call("runs", "list", "--tag", "first", "--json").splitlines()
    assert {key: json.loads(line)[key] for key in ("run", "passed", "tasks", "tags")} == {
        "run": "run-000",
        "passed": 1,
        "tasks": 2,
        "tags": ["first"],
    }
    assert call("runs", "prune", code=2) == ""
    assert "1 run would be removed" in call("runs", "prune", "--keep", "1", "--dry-run")
    assert "1 run removed" in call("runs", "prune", "--keep", "1", "--yes")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()) == ["run-000", "run-002"]
    shown = call("trend")
    assert "suite · m · 2 runs" in shown
    assert "50 % → 100 %" in shown
    assert "$0.0200 → $0.0600" in shown
    assert len(json.loads(call("trend", "--json"))[0]["points"]) == 2
    assert call("trend", "--suite", "nope") == "no complete runs here\n"


def test_nothing_is_removed_without_a_yes(waza, tmp_path):
    store(tmp_path / "runs", 0)
    done = waza("runs", "prune", "--keep", "0", input_text="n\n")
    assert (done.returncode, "for good?" in done.stdout) == (0, True)
    assert (tmp_path / "runs" / "run-000").is_dir()


def test_a_single_run_is_told_to_be_no_trend(call, tmp_path):
    store(tmp_path / "runs", 0)
    assert "a single run shows no trend yet: one more run" in call("trend")
    store(tmp_path / "runs", 1)
    assert "no trend yet" not in call("trend", "--last", "1")


def test_a_conversation_is_shown_with_every_prompt_and_answer(call, tmp_path):
    turns = [Trace(input=f"prompt {n}", output=f"answer {n}") for n in (1, 2)]
    result = a_result("a", trace=Trace(input="prompt 1", output="answer 2", turns=turns))
    with RunFolder.create(tmp_path / "runs", a_run(tasks=["a"], id="run-000")) as folder:
        folder.append(result)
    shown = call("show", "latest", "--task", "a")
    places = [shown.index(words) for words in ("prompt 1", "answer 1", "prompt 2", "answer 2")]
    assert places == sorted(places)


@pytest.mark.parametrize("command", [("show",), ("compare", "run-001"), ("runs", "list")])
def test_a_spec_of_another_shape_is_told_in_one_sentence_by_every_reading_command(
    tmp_path, monkeypatch, capsys, command
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    console.cache_clear()
    for number in (0, 1):
        with RunFolder.create(tmp_path / "runs", a_run(tasks=["a"], id=f"run-{number:03}")) as folder:
            folder.append(a_result("a"))
    file = tmp_path / "runs" / "run-000" / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"spec": {"config": 3}}))
    code = run_command([*command, *([] if "list" in command else ["run-000"])])
    said = "".join(capsys.readouterr())
    assert code == (0 if "list" in command else 3), said
    assert "run.json: is damaged: Expected `object | null`, got `int` - at `$.spec.config`" in " ".join(said.split())
    assert "Error:" not in said


def test_the_interval_of_the_pass_rate_stands_under_the_pass_rate(call, tmp_path):
    for number in range(2):
        store(tmp_path / "runs", number, passed=False)
    shown = call("trend")
    places = [shown.index(words) for words in ("pass rate", "the newest with 95 % interval", "score")]
    assert places == sorted(places)


def test_a_run_s_name_is_shown_in_one_line_however_narrow_the_terminal(call, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    name = "20261115-132015-676-16355de8"
    with RunFolder.create(
        tmp_path / "runs", a_run([a_result("a")], tasks=["a"], id=name, name="a-long-name-of-a-suite")
    ):
        pass
    assert name in call("runs")


def test_a_finished_run_without_its_run_json_is_listed_with_the_reason(tmp_path):
    store(tmp_path, 0)
    (tmp_path / "run-000" / "run.json").unlink()
    [stored] = list_runs(tmp_path)
    assert "has no run.json" in stored.problem


def test_a_damaged_run_is_told_of_and_never_passed_over_for_an_older_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        store(tmp_path / "runs", number)
    os.remove(tmp_path / "runs" / "run-001" / "run.json")
    for ref in ("latest", "run-001", "runs/run-001"):
        assert run_command(["show", ref]) == 3
        assert "run-001: is not a run folder: it has no run.json" in " ".join(capsys.readouterr().err.split())
    assert run_command(["show", "run-000"]) == 0
