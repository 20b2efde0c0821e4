"""`check` finds everything for which `run` is refused before its first trial: both ask one list."""

import json

import pytest

from waza.cli import run_command
from waza.engines.base import ENGINES
from waza.runner.preflight import refusals
from waza.suites.load import load_spec, suite_without_tasks

TEXT = {"type": "text", "name": "greets", "contains": ["hello"]}
JUDGED = {"type": "prompt", "name": "polite", "prompt": "Is it polite?"}
MOCKED = {"name": "s", "tools": {"t": {"responses": [{"return": "x"}]}}}
KEYS = {name for engine in ENGINES.built_in() for name in getattr(ENGINES.load(engine), "credentials", ())}

REFUSED = {
    # what is wrong with the suite itself: an error of check
    "missing skill_directories": (
        {"executor": "claude-code", "skill_directories": ["nowhere"]},
        {},
        "'nowhere' is not there",
        2,
    ),
    "skill_directories without a skill": (
        {"executor": "codex", "skill_directories": ["empty"]},
        {},
        "'empty' has no skill",
        2,
    ),
    "skill not found": ({"executor": "codex"}, {"skill": "ghost"}, "skill 'ghost' was not found; found: none", 2),
    "required skill": ({"executor": "pi", "required_skills": ["ghost"]}, {}, "skill 'ghost' was not found", 2),
    "instruction file": ({"executor": "gemini", "instruction_files": ["no.md"]}, {}, "'no.md' is not there", 2),
    "no skill to inject": ({"executor": "qwen", "inject_skill_body": True}, {}, "there is no skill to inject", 2),
    "a key without its address": ({"executor": "codex", "api_key_env": "PATH"}, {}, "it goes with `base_url`", 2),
    "mcp server": (
        {"executor": "codex", "mcp_servers": {"s": {"command": "./no-server"}}},
        {},
        "'./no-server' is not there",
        2,
    ),
    "mocks the engine cannot use": (
        {"executor": "python", "agent": "agent:answer"},
        {"mcp_mocks": [MOCKED]},
        "cannot give its agents mcp_mocks",
        2,
    ),
    "session": (
        {"executor": "command", "command": ["sh"]},
        {"graders": [JUDGED | {"continue_session": True}]},
        "cannot let a judge go on",
        2,
    ),
    "python module": (
        {"executor": "python", "agent": "agnet:answer"},
        {},
        "there is no module 'agnet'; did you mean 'agent'?",
        2,
    ),
    "python submodule": (
        {"executor": "python", "agent": "agent.inner:answer"},
        {},
        "there is no module 'agent.inner'",
        2,
    ),
    "python function": (
        {"executor": "python", "agent": "agent:anwser"},
        {},
        "'agent' has no function 'anwser'; did you mean 'answer'?",
        2,
    ),
    "python syntax": ({"executor": "python", "agent": "broken:answer"}, {}, "'broken' cannot be imported", 2),
    "replay": ({"executor": "replay", "replay": "nowhere.json"}, {}, "'nowhere.json' is not there", 2),
    "readable": ({"executor": "command", "command": ["sh"], "readable": ["nowhere"]}, {}, "'nowhere' is not there", 2),
    "tool of the model": (
        {
            "executor": "openai",
            "model": "m",
            "base_url": "http://x",
            "tools": [{"name": "t", "description": "d", "command": ["./no"]}],
        },
        {},
        "tool 't': './no' is not there",
        2,
    ),
    "mock turns": (
        {"executor": "mock"},
        {"tasks": [{"id": "a", "prompt": "x", "mock": {"turns": [{"output": "a"}, {"output": "b"}]}}]},
        "has 2 turns, the task has 1 prompts",
        2,
    ),
    "budget of trials": (
        {"executor": "mock", "trials_per_task": "auto", "trials_budget": 1},
        {"tasks": [{"id": one, "prompt": "x", "mock": {"output": "hello"}} for one in "ab"]},
        "1 trials are not one for each of 2 tasks",
        2,
    ),
    "judge's settings": (
        {"executor": "mock", "judge": {"type": "openai"}},
        {"graders": [JUDGED]},
        "the judge has no model",
        2,
    ),
    "options of the engine": ({"executor": "command"}, {}, "'command' is missing", 2),
    "unknown engine": ({"executor": "claud-code"}, {}, "unknown engine 'claud-code'; did you mean", 2),
    # what is only so on this machine: a warning of check
    "no judge": ({"executor": "mock"}, {"graders": [JUDGED]}, "graders need a judge, and none is configured", 0),
    "key of the judge": (
        {"executor": "mock", "judge": {"type": "openai", "model": "m"}},
        {"graders": [JUDGED]},
        "OPENAI_API_KEY is not set",
        0,
    ),
    "named key of the judge": (
        {"executor": "mock", "judge": {"type": "anthropic", "model": "m", "api_key_env": "NOT_SET_1"}},
        {"graders": [JUDGED]},
        "NOT_SET_1 is not set",
        0,
    ),
    "key of a juror": (
        {"executor": "mock", "judge": {"type": "scripted", "replies": []}},
        {
            "graders": [
                JUDGED
                | {
                    "judges": [
                        {"type": "openai", "model": "m", "api_key_env": "NOT_SET_2"},
                        {"model": "n"},
                        {"model": "o"},
                    ]
                }
            ]
        },
        "NOT_SET_2 is not set",
        0,
    ),
    "key of the model": ({"executor": "openai", "model": "m"}, {}, "'OPENAI_API_KEY' is not set", 0),
    "passed variable": ({"executor": "codex", "pass_environment": ["NOT_SET_3"]}, {}, "'NOT_SET_3' is not set", 0),
    "passed variable of a command": (
        {"executor": "command", "command": ["sh"], "pass_environment": ["NOT_SET_4"]},
        {},
        "'NOT_SET_4' is not set",
        0,
    ),
    "key for a server": (
        {"executor": "pi", "base_url": "http://x", "api_key_env": "NOT_SET_5"},
        {},
        "'NOT_SET_5' is not set",
        0,
    ),
    "program of the suite": (
        {"executor": "command", "command": ["nowhere-agent"]},
        {},
        "'nowhere-agent' was not found on PATH",
        0,
    ),
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A function that writes a suite into a project without credentials and returns its folder."""
    for name in (*KEYS, "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "400")
    (tmp_path / ".waza.yaml").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "agent.py").write_text("def answer(prompt): return prompt\n")
    (tmp_path / "broken.py").write_text("def answer(:\n")

    def write(config, more):
        tasks = [{"id": "a", "prompt": "x", "mock": {"output": "hello"}}]
        suite = {"name": "s", "config": config, "graders": [TEXT], "tasks": tasks} | more
        (tmp_path / "eval.yaml").write_text(json.dumps(suite))
        return tmp_path

    return write


def said(capsys, *arguments):
    capsys.readouterr()
    code = run_command([*map(str, arguments)])
    printed = capsys.readouterr()
    return code, " ".join((printed.out + printed.err).split())


@pytest.mark.parametrize("name", REFUSED)
def test_check_says_what_run_refuses(project, capsys, name):
    config, more, fact, code = REFUSED[name]
    folder = project(config, more)
    checked = said(capsys, "check", folder)
    if name.startswith("python"):
        (folder / "agent.py").write_text("raise SystemExit('imported')\ndef answer(prompt): return prompt\n")
        [problem] = refusals(load_spec(folder), imports=False)  # as in a folder that is not trusted
        assert fact in problem.message
        (folder / "agent.py").write_text("def answer(prompt): return prompt\n")
    refused = said(capsys, "run", folder)
    assert (refused[0], fact in refused[1]) == (2, True), refused
    assert not (folder / "runs").exists()
    assert refused[1].count(fact) == 1, "a warning and a refusal do not say the same"
    assert (checked[0], fact in checked[1]) == (code, True), checked
    assert said(capsys, "check", folder, "--strict")[0] == 2


def test_what_a_call_adds_can_be_checked_with_the_same_options(project, capsys):
    folder = project({"executor": "command", "command": ["sh"]}, {})
    for command in ("check", "run"):
        code, text = said(capsys, command, folder, "--max-cost", "1")
        assert (code, "--max-cost cannot be enforced" in text) == (2, True), text
        code, text = said(capsys, command, folder, "--engine", "openai")
        assert "'OPENAI_API_KEY' is not set" in text
        assert (said(capsys, command, folder, "--engine", "opnai")[0]) == 2
    assert said(capsys, "check", folder)[0] == 0


def test_what_may_work_all_the_same_is_a_note_and_run_says_it_before_the_first_trial(project, capsys, monkeypatch):
    bin_folder = project({"executor": "codex"}, {}) / "bin"
    bin_folder.mkdir()
    (bin_folder / "codex").write_text("#!/bin/sh\necho 1.0\n")
    (bin_folder / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")
    code, text = said(capsys, "check", bin_folder.parent)
    assert code == 0 and "note: no credential of codex was found: none of CODEX_API_KEY, OPENAI_API_KEY is set" in text
    assert "no credential of codex" in said(capsys, "run", bin_folder.parent)[1]
    for config in ({"base_url": "http://x"}, {"environment": {"CODEX_API_KEY": "k"}}):
        spec = load_spec(project({"executor": "codex"} | config, {}))
        assert spec.engine_problems()[1] == []
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert load_spec(project({"executor": "codex"}, {})).engine_problems()[1] == []
    code, text = said(capsys, "check", project({}, {}))
    assert code == 0 and "note: no engine is named" in text


def test_a_results_folder_that_cannot_be_written_is_a_warning(project, capsys):
    folder = project({"executor": "mock"}, {})
    (folder / "runs").write_text("in the way")
    code, text = said(capsys, "check", folder)
    assert code == 0 and "no run can be stored in" in text
    assert said(capsys, "run", folder)[0] == 3


TRIGGERS = {"skill": "greeter", "should_trigger_prompts": [{"prompt": "greet"}], "controls": {"explicit": "greet now"}}
RULES = {"triggers": [{"skill": "greeter", "when": "greet"}]}
SKILL = '---\nname: {}\ndescription: "Greets. USE FOR: greet."\n---\nSay hello.\n'
NOWHERE = "skill 'greeter' was not found in this project"


@pytest.mark.parametrize("name", ["greter", None])
@pytest.mark.parametrize("has_suite", [True, False])
def test_check_trigger_and_run_refuse_trigger_tests_with_one_sentence_said_once(project, capsys, name, has_suite):
    folder = project({"executor": "mock"}, {"skill": "greeter"})
    (folder / "trigger_tests.yaml").write_text(json.dumps(TRIGGERS))
    if name:
        (folder / "SKILL.md").write_text(SKILL.format(name))
    if not has_suite:
        (folder / "eval.yaml").unlink()
    for command in ("check", "trigger", "run") if has_suite else ("check", "trigger"):
        for path in (folder, folder / "trigger_tests.yaml") if command != "run" else (folder,):
            code, text = said(capsys, command, path, "--engine", "mock")
            assert (code, text.count("was not found")) == (2, 1), text
            assert f"trigger_tests.yaml:1:2: skill: {NOWHERE}; " in text
            assert ("did you mean 'greter'?" in text) is bool(name)
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("has_suite", [True, False])
def test_a_skill_next_to_its_trigger_tests_is_found_by_its_name(project, capsys, has_suite):
    folder = project({"executor": "mock"}, {"skill": "greeter"})
    (folder / "SKILL.md").write_text(SKILL.format("greeter"))
    (folder / "trigger_tests.yaml").write_text(json.dumps(TRIGGERS))
    (folder / "mock.yaml").write_text(json.dumps(RULES))
    if not has_suite:
        (folder / "eval.yaml").unlink()
    assert NOWHERE not in said(capsys, "check", folder, "--engine", "mock")[1]
    code, text = said(capsys, "trigger", folder, "--engine", "mock")
    assert code == 0, text
    spec = load_spec(folder) if has_suite else suite_without_tasks(folder)
    assert list(spec.engine("codex").skills()) == ["greeter"], "agents get it under its own name"


def test_trigger_tests_below_a_folder_are_checked_and_run_names_the_command_for_them(project, capsys):
    folder = project({"executor": "mock"}, {})
    (folder / "deep").mkdir()
    (folder / "eval.yaml").unlink()
    (folder / "deep/trigger_tests.yaml").write_text(json.dumps(TRIGGERS | {"skil": "x"}))
    code, text = said(capsys, "check", folder)
    assert code == 2 and "unknown key 'skil'; did you mean 'skill'?" in text
    for path in (folder / "deep", folder / "deep/trigger_tests.yaml"):
        code, text = said(capsys, "run", path, "--engine", "mock")
        assert code == 2 and "`waza trigger` runs them" in text


NO_ARMS = {
    "no skill": ({"executor": "mock"}, {}, "the suite names none; add `skill: NAME`"),
    "an engine without skills": (
        {"executor": "openai", "model": "m", "base_url": "http://x"},
        {"skill": "greeter"},
        "gives its agent no skill",
    ),
    "skill not found": ({"executor": "mock"}, {"skill": "ghost"}, "skill 'ghost' was not found: both arms"),
    "skill switched off": (
        {"executor": "codex", "disabled_skills": ["greeter"]},
        {"skill": "greeter"},
        "is switched off by disabled_skills",
    ),
    "nothing both could pass": (
        {"executor": "mock"},
        {"skill": "greeter", "graders": [{"type": "skill_triggered", "skill": "greeter"}]},
        "no task has a grader that both arms could pass",
    ),
}


@pytest.mark.parametrize("name", NO_ARMS)
def test_check_says_for_what_run_refuses_a_baseline(project, capsys, name):
    config, more, fact = NO_ARMS[name]
    folder = project(config, more)
    (folder / "SKILL.md").write_text(SKILL.format("greeter"))
    for command in ("check", "run"):
        code, text = said(capsys, command, folder / "eval.yaml", "--baseline")
        assert (code, text.count(fact)) == (2, 1), text
    assert fact not in said(capsys, "check", folder / "eval.yaml")[1]


@pytest.mark.parametrize("config", [{"timeout_seconds": -1}, {"timeout_second": 1}, {"executor": ["mock"]}])
def test_a_mistake_in_config_does_not_hide_the_engine(project, capsys, config):
    code, text = said(capsys, "check", project({"executor": "mock"} | config, {}))
    assert code == 2 and "no engine is named" not in text
    assert "1 mistake" in text


def test_several_reasons_are_told_at_once(project, capsys):
    folder = project({"executor": "openai", "model": "m"}, {"graders": [JUDGED]})
    code, text = said(capsys, "run", folder)
    assert code == 2 and "'OPENAI_API_KEY' is not set" in text and "none is configured" in text


def test_check_notes_tasks_without_a_mock_script(waza, tmp_path):
    suite = {"config": {"executor": "mock"}, "graders": [TEXT]}
    tasks = [{"id": "a", "prompt": "x", "mock": {"output": "hello"}}, {"id": "b", "prompt": "x"}]
    (tmp_path / "eval.yaml").write_text(json.dumps(suite | {"tasks": tasks}))
    done = waza("check")
    assert done.returncode == 0
    assert "note: 1 of 2 tasks have no mock script (the first: 'b'); choose an agent with --engine" in done.stdout
    (tmp_path / "eval.yaml").write_text(json.dumps(suite | {"tasks": tasks[:1]}))
    assert "mock script" not in waza("check").stdout
