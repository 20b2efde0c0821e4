"""`waza new skill`: a skill with its tests, complete and running, and nothing overwritten."""

import pytest

from waza.cli import run_command
from waza.suites.skills import skill_problems


def test_a_new_skill_is_sound_and_its_suite_runs_offline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = ["new", "skill", "csv-report", "--about", "Makes reports from CSV files.", "--use-for", "make a report"]
    assert run_command([*call, "--use-for", "sum up: the table", "--not-for", "draw a 'chart'"]) == 0
    problems = skill_problems(tmp_path / "skills/csv-report")
    assert [problem for problem in problems if problem.severity != "note"] == []
    assert 'USE FOR: \\"make a report\\"' in (tmp_path / "skills/csv-report/SKILL.md").read_text()
    assert run_command(["check", "-q", "--strict"]) == 0
    assert run_command(["run", "evals/csv-report", "-q"]) == 0
    assert run_command(["check", "-q", "--oracles"]) == 0, "no agent that does nothing passes one of its tasks"


def test_without_words_of_its_own_it_is_sound_as_well(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_command(["new", "skill", "greeter"]) == 0
    assert skill_problems(tmp_path / "skills/greeter") == []
    assert run_command(["run", "evals/greeter", "-q"]) == 0


@pytest.mark.parametrize("name", ["null", "123", "true", "1e5"])
def test_a_name_that_yaml_takes_for_something_else_stays_a_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert run_command(["new", "skill", name]) == 0
    assert run_command(["check", "-q"]) == 0
    assert run_command(["run", f"evals/{name}", "-q"]) == 0


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evals/greeter").mkdir(parents=True)
    (tmp_path / "evals/greeter/mock.yaml").write_text("mine")
    assert run_command(["new", "skill", "greeter"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert not (tmp_path / "skills").exists()
    assert (tmp_path / "evals/greeter/mock.yaml").read_text() == "mine"


@pytest.mark.parametrize("name", ["Greeter", "gr_eeter", "a--b", "a-", "x" * 65, "../up"])
def test_names_that_no_skill_can_have_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert run_command(["new", "skill", name]) == 2
    assert list(tmp_path.iterdir()) == []


def test_options_of_skills_are_for_skills(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["new", "suite", "a", "--use-for", "x"]) == 2
    assert run_command(["new", "skill", "a", "--use-for", 'say "x"']) == 2
    assert "has a quote in it" in capsys.readouterr().err
