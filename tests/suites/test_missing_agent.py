"""A program of the agent that is not there: told when a suite is checked, refused when it is run."""

import pytest

from waza.cli import run_command
from waza.suites.load import load_spec


def suite(folder, config):
    (folder / ".waza.yaml").touch()
    graders = "graders: [{type: text, config: {contains: [a]}}]\n"
    (folder / "eval.yaml").write_text(f"config: {config}\n{graders}tasks: [{{id: a, prompt: x}}]\n")
    return folder


@pytest.mark.parametrize(
    ("command", "fact"),
    [
        ("nowhere-agent", "'nowhere-agent' was not found on PATH"),
        ("./agent.sh", "'./agent.sh' is not there; looked next to the eval file"),
        ("./plain.txt", "'./plain.txt' is not executable; `chmod +x` makes it so"),
    ],
)
def test_a_command_that_cannot_be_started_is_a_warning_of_check(tmp_path, capsys, command, fact):
    (tmp_path / "plain.txt").touch()
    folder = suite(tmp_path, f"{{executor: command, command: ['{command}']}}")
    assert run_command(["check", str(folder)]) == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "warning" in said and fact in said and "config.command" in said
    assert run_command(["check", str(folder), "--strict"]) == 2
    assert run_command(["run", str(folder)]) == 2


def test_one_that_is_there_is_not_spoken_of(tmp_path):
    agent = tmp_path / "agent.sh"
    agent.touch(0o755)
    for command in ("./agent.sh", "sh"):
        assert load_spec(suite(tmp_path, f"{{executor: command, command: ['{command}']}}")).missing() == []


def test_the_program_of_a_vendor_is_only_noted_since_no_suite_is_wrong_for_it(tmp_path, monkeypatch):
    spec = load_spec(suite(tmp_path, "{executor: codex}"))
    (tmp_path / "codex").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert spec.missing() == []
    monkeypatch.setenv("PATH", "")
    [problem] = spec.missing()
    assert (problem.severity, problem.path) == ("note", "config.executor")
    assert "'codex' was not found on PATH; install it: npm" in problem.message


@pytest.mark.parametrize("config", ["{}", "{executor: mock}", "{executor: openai, model: m}"])
def test_other_suites_have_no_program_to_miss(tmp_path, config):
    assert load_spec(suite(tmp_path, config)).missing() == []
