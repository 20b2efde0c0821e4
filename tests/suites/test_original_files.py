"""What public files for the original write: they load unchanged, with the meaning their authors gave them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from waza.cli import run_command
from waza.errors import SpecError
from waza.files.paths import repository_root
from waza.model import SkillInvocation, ToolEvent, Trace
from waza.runner.suite import run_hooks
from waza.suites.graders import load_expected, load_grader
from waza.suites.load import load_spec, read_spec
from waza.suites.tasks import values_of

SKILL = "---\nname: s\ndescription: d\n---\nbody\n"
TASK = {"id": "a", "prompt": "hi", "expected": {"output_contains": ["x"]}}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def suite(folder: Path, **keys: object):
    (folder / "eval.yaml").write_text(json.dumps({"tasks": [TASK]} | keys))
    return load_spec(folder)


@pytest.mark.parametrize(
    ("eval_at", "skill_at", "directories", "marks"),
    [
        ("evals/s", "skills/s", ["skills"], [".git/HEAD"]),
        ("evals/s", "skills/s", ["skills"], []),
        ("evals/s", "skills/s", ["skills"], [".git/HEAD", "evals/.waza.yaml"]),
        ("evals/s", "skills/s", ["../../skills"], []),
        ("evals/s", "tools/agent/skills/s", ["tools/agent/skills"], []),
        ("evals/s", "skills/s", [], []),
        ("tests/s", "skills/s", [], []),
        ("evals/s", "plugin/skills/s", [], [".git/HEAD"]),
        ("evals/s", "plugins/p/skills/s", [], [".git/HEAD"]),
        ("evals/s", "plugins/p/skills/s", [], []),
        ("evals/s", ".github/skills/s", [], []),
        ("skills/s/evals", "skills/s", ["skills"], []),
        ("evals", ".", [], []),
    ],
)
def test_a_skill_of_the_repository_is_found_by_suite_agent_and_trigger_tests(
    tmp_path, eval_at, skill_at, directories, marks
):
    root = tmp_path / "repository"
    triggers = "skill: s\nshould_trigger_prompts: [{prompt: do it}]\n"
    spec = {"skill": "s", "config": {"executor": "copilot-sdk", "skill_directories": directories}, "tasks": [TASK]}
    files = {f"{skill_at}/SKILL.md": SKILL, f"{eval_at}/trigger_tests.yaml": triggers}
    write(root, files | {f"{eval_at}/eval.yaml": json.dumps(spec)} | dict.fromkeys(marks, ""))
    loaded = load_spec(root / eval_at)
    assert loaded.skill_folder == (root / skill_at).resolve()
    assert loaded.triggers is not None
    assert not loaded.triggers.not_found
    assert not [one for one in loaded.engine_problems()[1] if one.severity == "error"]


def test_skills_are_not_looked_up_outside_the_repository(tmp_path):
    write(tmp_path, {"skills/s/SKILL.md": SKILL, "repository/.git/HEAD": ""})
    place = write(tmp_path / "repository" / "evals", {"eval.yaml": ""})
    spec = suite(place, skill="s", config={"executor": "copilot-sdk", "skill_directories": ["../../skills"]})
    assert spec.skill_folder is None
    assert any("leaves the project's folder" in one.message for one in spec.engine_problems()[1])


def test_the_users_own_skills_make_no_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    place = write(tmp_path, {".claude/skills/s/SKILL.md": SKILL, "work/suite/eval.yaml": ""}) / "work" / "suite"
    assert repository_root(place) == place


def test_max_workers_is_workers(tmp_path):
    (tmp_path / ".waza.yaml").write_text("defaults: {workers: 2}")
    assert suite(tmp_path, config={"max_workers": 3}).config.workers == 3
    with pytest.raises(SpecError, match="'max_workers' and 'workers' differ"):
        suite(tmp_path, config={"max_workers": 3, "workers": 2})


def test_an_empty_choice_is_no_choice(tmp_path):
    grader = {"type": "prompt", "config": {"prompt": "good?", "mode": ""}}
    spec = suite(tmp_path, graders=[grader], config={"group_by": "", "reasoning_effort": ""}, tasks_from="")
    assert spec.graders["a"][0].mode == "independent"
    assert spec.config.group_by is None
    assert suite(tmp_path, config={"group_by": "task_id"}).config.group_by == "task"
    with pytest.raises(SpecError, match="'mode' is missing"):
        suite(write(tmp_path, {"SKILL.md": SKILL}), graders=[{"type": "trigger", "skill_path": "SKILL.md", "mode": ""}])


def test_variables_are_filled_in_prompts_rows_and_hooks(tmp_path):
    rows = (
        'id,prompt,lang,expected.output_contains\n1,"{{.Vars.lang}} for {{ .Vars.who }}, {{who}}",a b,{{.Vars.lang}}!\n'
    )
    write(tmp_path, {"rows.csv": rows})
    before = {"command": "touch 'run-{{.Vars.who}}'"}
    each = {"command": "touch {{ .Vars.lang }}", "error_on_fail": True}
    spec = suite(
        tmp_path,
        inputs={"who": "me"},
        tasks=[],
        tasks_from="rows.csv",
        hooks={"before_run": [before], "before_task": [each]},
    )
    assert spec.tasks[0].prompt == "a b for me, me"
    assert spec.graders["1"][0].values == ["a b!"]
    asyncio.run(run_hooks(spec.hooks.before_run, spec.folder, {}, spec.inputs))
    asyncio.run(run_hooks(spec.hooks.before_task, spec.folder, {}, values_of(spec.tasks[0], spec.inputs)))
    assert {"run-me", "a b"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    "keys",
    [
        {"tasks": [TASK | {"prompt": "{{.Vars.whom}}"}]},
        {"hooks": {"before_run": [{"command": "echo {{.Vars.whom}}"}]}},
        {"hooks": {"after_task": [{"command": "echo {{.Vars.whom}}"}]}},
        {"tasks": [], "tasks_from": "rows.jsonl"},
    ],
)
def test_a_variable_without_a_value_is_refused_with_the_nearest(tmp_path, keys):
    row = {"prompt": "hi", "expected": {"output_contains": ["{{.Vars.whom}}"]}}
    write(tmp_path, {"rows.jsonl": json.dumps(row) + "\n"})
    with pytest.raises(SpecError, match=r"no value for whom.*did you mean 'who'"):
        suite(tmp_path, inputs={"who": "me"}, **keys)


def test_adversarial_packs_are_a_note_in_check_and_run(tmp_path, capsys):
    task = TASK | {"mock": {"output": "x"}}
    data = {"adversarial": [1], "config": {"executor": "mock"}, "tasks": [task]}
    (tmp_path / "eval.yaml").write_text(json.dumps(data))
    for command in ("check", "run"):
        assert run_command([command, str(tmp_path)]) == 0
        assert "".join(capsys.readouterr()).count("adversarial: note: adversarial packs are no part of a run") == 1
    spec, problems = read_spec(tmp_path / "eval.yaml")
    assert spec is not None
    assert [(one.severity, one.path) for one in problems] == [("note", "adversarial")]


def called(*events: tuple[str, dict[str, object]]) -> Trace:
    return Trace(input="", output="", tool_events=[ToolEvent(tool_name=name, args=args) for name, args in events])


@pytest.mark.parametrize("is_expected", [True, False])
@pytest.mark.parametrize(
    ("options", "events", "passes"),
    [
        (
            {"required": [{"pattern": "az container"}], "forbidden": []},
            [("bash", {"command": "AZ containerapp up"})],
            True,
        ),
        ({"required": [{"pattern": "az container"}], "forbidden": []}, [("bash", {"command": "ls"})], False),
        ({"required": [{"pattern": "^create_"}]}, [("create_file", {})], True),
        ({"required": [{"pattern": '"id":7'}]}, [("put", {"item": {"id": 7}})], True),
        ({"forbidden": [{"pattern": "rm -rf"}]}, [("bash", {"command": "sudo rm -rf /"})], False),
        ({"required": [], "forbidden": [{"pattern": "rm -rf"}]}, [], True),
        ({"required": ["bash"], "forbidden": ["rm*"]}, [("bash", {})], True),
        ({"required": ["bash"], "forbidden": ["rm*"]}, [("bash", {}), ("rmdir", {})], False),
        ({"required": [{"name": "put", "args": {"n": 1}}]}, [("put", {"n": 2})], False),
        ({"forbidden": [{"tool": "put"}], "max_calls": 3}, [("put", {"n": 2})], False),
        ({"required": [{"pattern": "a"}, {"pattern": "b"}]}, [("bash", {"command": "ab"})], True),
    ],
)
def test_required_and_forbidden_calls_by_pattern(is_expected, options, events, passes):
    grader = load_expected({"tool_calls": options})[0] if is_expected else load_grader({"type": "tool_calls"} | options)
    assert grader.grade(called(*events)).passed is passes


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"required": [], "forbidden": []}, "checks nothing"),
        ({"required": [{"patern": "x"}]}, "did you mean 'pattern'"),
        ({"required": [{"pattern": "("}]}, "not a valid pattern"),
        ({"requierd": [{"pattern": "x"}]}, "did you mean 'required'"),
    ],
)
def test_a_mapping_of_tool_calls_that_checks_nothing_or_is_misspelt_is_refused(options, says):
    with pytest.raises(SpecError, match=says):
        load_expected({"tool_calls": options})


@pytest.mark.parametrize(
    ("outcome", "skills", "passes"),
    [
        ("skill_not_invoked", [], True),
        ({"type": "skill_not_invoked"}, ["other"], False),
        ({"type": "skill_not_invoked", "value": "s"}, ["other"], True),
        ({"type": "skill_invoked"}, ["s"], True),
        ({"type": "skill_invoked"}, ["other"], False),
        ({"type": "task_completed", "value": True}, [], True),
    ],
)
def test_outcomes_in_the_originals_forms(tmp_path, outcome, skills, passes):
    task = {"id": "a", "prompt": "hi", "expected": {"outcomes": [outcome]}}
    grader = suite(tmp_path, skill="s", tasks=[task]).graders["a"][0]
    trace = Trace(
        input="", output="done", tool_events=[], skill_invocations=[SkillInvocation(name=name) for name in skills]
    )
    assert grader.grade(trace).passed is passes


def test_an_outcome_with_a_condition_is_refused():
    with pytest.raises(SpecError, match="a condition cannot be checked here"):
        load_expected({"outcomes": [{"type": "task_completed", "condition": "len(output) > 3"}]})


@pytest.mark.parametrize("kind", ["prompt", "llm", "llm_comparison"])
def test_a_rubric_of_several_lines_is_the_text_itself(kind):
    options = {"reference": "r"} if kind == "llm_comparison" else {}
    text = "Is it kind?\nIs it short?"
    assert load_grader({"type": kind, "rubric": f"{text}\n", "config": options}).question_text == text
    with pytest.raises(SpecError, match="no built-in rubric is called 'kindness'"):
        load_grader({"type": kind, "rubric": "kindness", "config": options})
    with pytest.raises(SpecError, match="both say what is judged"):
        load_grader({"type": kind, "rubric": text, "config": options | {"prompt": "Is it?"}})


def test_a_model_next_to_a_grader_that_asks_none_is_a_warning(tmp_path):
    spec = suite(tmp_path, graders=[{"type": "text", "model": "m", "config": {"contains": ["x"]}}])
    assert [(one.severity, one.path) for one in spec.notes] == [("warning", "graders[0].model")]
    with pytest.raises(SpecError, match="unknown key 'rubric'"):
        suite(tmp_path, graders=[{"type": "text", "rubric": "x", "config": {"contains": ["x"]}}])


def test_calibrate_grader_is_the_grader_that_is_calibrated():
    grader = load_grader({"type": "human_calibration", "config": {"calibrate_grader": "quality"}})
    assert (grader.grader, grader.min_kappa) == ("quality", 0.6)
    with pytest.raises(SpecError, match="mean the same"):
        load_grader({"type": "human_calibration", "calibrate_grader": "a", "grader": "b", "min_kappa": 0.5})


@pytest.mark.parametrize(
    ("assertion", "passes"),
    [
        ("all('rm' not in call['arguments']['command'] for call in tool_calls)", True),
        ("tool_calls[0]['arguments'][\"command\"] == ''", True),
        ("len(tool_calls[0]['arguments']) == 1", True),
        ("'command' in tool_calls[0]['arguments']", False),
        ("tool_calls[1]['arguments']['command'] == 'ls'", True),
    ],
)
def test_the_command_of_a_call_without_one_is_empty_where_it_is_read(assertion, passes):
    grader = load_grader({"type": "code", "assertions": [assertion]})
    assert grader.grade(called(("view", {"path": "a"}), ("bash", {"command": "ls"}))).passed is passes
