"""How skills and instructions reach an agent: in its own folder of skills, by task, pasted where that is asked for."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from waza.errors import SpecError, UsageError
from waza.runner.baseline import with_baseline
from waza.runner.request import request_for, stored_form
from waza.runner.resume import resume
from waza.runner.run import execute
from waza.runner.suite import Listeners
from waza.runs.impact import stored_impact
from waza.runs.impact_records import CONTROL
from waza.runs.store import read_run
from waza.suites.load import load_spec
from waza.suites.skills import find_skill, skills_below

CLAUDE = """
import json, os, sys
from pathlib import Path
home = Path(os.environ.get("CLAUDE_CONFIG_DIR", "."))
skills = sorted(path.parent.name for path in home.glob("skills/*/SKILL.md"))
told = (home / "CLAUDE.md").read_text() if (home / "CLAUDE.md").exists() else ""
if "--version" not in sys.argv:
    print(json.dumps({"type": "system", "subtype": "init", "session_id": "s1", "model": "m1", "skills": skills}))
    if "greeter" in skills:
        call = {"type": "tool_use", "id": "c1", "name": "Skill", "input": {"skill": "greeter"}}
        print(json.dumps({"type": "assistant", "session_id": "s1", "message": {"content": [call]}}))
        done = {"type": "tool_result", "tool_use_id": "c1", "content": "Launching skill: greeter"}
        print(json.dumps({"type": "user", "session_id": "s1", "message": {"content": [done]}}))
    said = ("Hello " if "greeter" in skills else "hm ") + json.dumps([skills, told])
    print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "session_id": "s1", "result": said}))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that writes a suite for a small program in the place of Claude Code."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/claude"
    program.write_text(f"#!{sys.executable}\n{CLAUDE}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    for name in ("skills/greeter", "more/grouped/other", "extra/third"):
        (tmp_path / name).mkdir(parents=True)
        text = f"---\nname: {Path(name).name}\ndescription: x\n---\n# How to be {Path(name).name}\n"
        (tmp_path / name / "SKILL.md").write_text(text)
    (tmp_path / "suite.md").write_text("Suite says.")
    (tmp_path / "task.md").write_text("Task says.")
    (tmp_path / ".waza.yaml").write_text("{}\n")

    def write(task=None, **config):
        data = {
            "skill": "greeter",
            "config": {"executor": "claude-code", **config},
            "graders": [{"type": "text", "name": "hi", "config": {"contains": ["Hello"]}}],
            "tasks": [{"id": "a", "prompt": "x", **(task or {})}],
        }
        (tmp_path / "eval.yaml").write_text(json.dumps(data))
        return load_spec(tmp_path)

    return write


def said(run):
    """Return the skills and instructions the agent found."""
    [result] = run.results
    return json.loads(result.trace.output.partition(" ")[2])


def test_skills_are_delivered_as_the_agent_loads_them_and_never_pasted(project):
    skills, told = said(execute(request_for(project(skill_directories=["more"])), Listeners()))
    assert skills == ["greeter", "other"]
    assert told == ""


def test_a_task_names_its_own_skills_and_adds_instructions(project):
    task = {"skill_directories": ["extra"], "instruction_files": ["task.md"]}
    spec = project(task, skill_directories=["more"], instruction_files=["suite.md"])
    assert [note for note in spec.notes if "read" in note.message] == []
    skills, told = said(execute(request_for(spec), Listeners()))
    assert skills == ["greeter", "third"]
    assert told == "Suite says.\n\nTask says."


def test_a_task_may_have_none_but_the_suites_skill(project):
    skills, _ = said(execute(request_for(project({"skill_directories": []}, skill_directories=["more"])), Listeners()))
    assert skills == ["greeter"]


def test_what_a_task_names_and_is_not_there_is_refused(project):
    with pytest.raises(SpecError) as refused:
        project({"skill_directories": ["absent", "bin"], "instruction_files": ["absent.md", "../out.md"]})
    told = [str(problem) for problem in refused.value.problems]
    assert ["skill_directories[0]" in line for line in told].count(True) == 1
    assert any("'bin' has no skill" in line for line in told)
    assert any("instruction_files[0]" in line and "is not there" in line for line in told)
    assert any("leaves the project" in line for line in told)


def test_an_engine_that_does_not_read_them_is_named(project):
    spec = project({"instruction_files": ["task.md"]}, executor="mock")
    assert any("engine 'mock' does not read `instruction_files`" in note.message for note in spec.notes)


def test_the_body_is_pasted_only_where_that_is_asked_for(project):
    skills, told = said(execute(request_for(project(inject_skill_body=True)), Listeners()))
    assert skills == ["greeter"]
    assert told == "# How to be greeter"


def test_changed_instructions_and_skills_of_a_task_are_noticed(project, tmp_path):
    def made():
        spec = project(
            {"skill_directories": ["extra"], "instruction_files": ["task.md"]}, instruction_files=["suite.md"]
        )
        return stored_form(request_for(spec)).spec["fingerprints"]["a"]

    seen = [made()]
    for file in ("task.md", "suite.md", "extra/third/SKILL.md"):
        (tmp_path / file).write_text((tmp_path / file).read_text() + "More.\n")
        seen.append(made())
    assert len(set(seen)) == len(seen)


def test_the_control_arm_of_an_agent_program_does_not_have_the_skill(project):
    made = execute(with_baseline(request_for(project(skill_directories=["more", "skills"]))), Listeners())
    assert said(made)[0] == ["greeter", "other"]
    control = read_run(Path(made.folder) / CONTROL)
    assert said(control)[0] == ["other"]
    found = stored_impact(made)
    assert (found.unclean, found.activation.value, found.lift.value) == (0, 1, 1)


def test_an_injected_body_is_not_in_the_control_arm_and_says_nothing_about_activation(project):
    spec = project(inject_skill_body=True, required_skills=["greeter"])
    made = execute(with_baseline(request_for(spec)), Listeners())
    assert said(read_run(Path(made.folder) / CONTROL)) == [[], ""]
    found = stored_impact(made)
    assert found.activation is None
    assert "inject_skill_body" in found.notes[0]


def test_a_skill_in_the_fixtures_makes_the_control_arm_unclean(project, tmp_path):
    """The agent finds it all the same, and says so: nothing passes by accident."""
    code = (tmp_path / "bin/claude").read_text().replace('home.glob("skills/', 'Path(".").glob("skills/')
    (tmp_path / "bin/claude").write_text(code)
    (tmp_path / "fixtures/skills/greeter").mkdir(parents=True)
    (tmp_path / "fixtures/skills/greeter/SKILL.md").write_text("x")
    spec = project({"inputs": {"prompt": "x", "files": [{"path": "skills"}]}, "prompt": None})
    made = execute(with_baseline(request_for(spec)), Listeners())
    assert stored_impact(made).unclean == 1


@pytest.mark.parametrize("place", ["skills", ".github/skills", ".claude/skills", ".agents/skills", "own/deep/er"])
def test_a_skill_is_found_in_every_known_place(tmp_path, place):
    (tmp_path / ".waza.yaml").write_text("{}\n")
    (tmp_path / place / "a").mkdir(parents=True)
    (tmp_path / place / "a/SKILL.md").write_text("x")
    from waza.files.paths import SpecFolder

    found = find_skill("a", SpecFolder(tmp_path), ["own"], "skills")
    assert found == (tmp_path / place / "a").resolve()
    assert list(skills_below(tmp_path)) == [tmp_path / place / "a"]


def test_skills_of_other_programs_folders_are_left_alone(tmp_path):
    for place in ("node_modules/p/skills/a", ".venv/skills/b", "env/lib/skills/c", "runs/x/skills/d"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "SKILL.md").write_text("x")
    (tmp_path / "env/pyvenv.cfg").write_text("")
    assert list(skills_below(tmp_path)) == []


def test_an_agent_that_loads_no_skills_is_told_the_body_only_where_that_is_asked_for(project):
    """The `openai` engine is a loop of model and tools: without injection both arms would be the same."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "engines"))
    from scripted_model import say, scripted_model

    with scripted_model({"it": [say("Hello")]}) as served:
        how = {"executor": "openai", "model": "scripted", "base_url": f"{served.url}/v1"}
        task = {"prompt": "[[script:it]]"}
        with pytest.raises(UsageError, match="gives its agent no skill"):
            with_baseline(request_for(project(task, **how)))
        made = execute(with_baseline(request_for(project(task, inject_skill_body=True, **how))), Listeners())
        told = [str(request) for request in served.requests]
    assert sorted("How to be greeter" in request for request in told) == [False, True]
    found = stored_impact(made)
    assert (found.unclean, found.lift.value, found.activation) == (0, 0, None)


def test_a_changed_skill_leaves_what_was_run_without_it_as_it_is(project, tmp_path):
    spec = project(skill_directories=["skills"])
    made = execute(with_baseline(request_for(spec)), Listeners())
    file = tmp_path / "skills/greeter/SKILL.md"
    file.write_text(file.read_text() + "More.\n")
    started = []
    listening = Listeners(on_start=lambda trial: started.append(trial.task.id))
    order = with_baseline(request_for(spec))
    found = resume(Path(made.folder), stored_form(order), rerun_changed=True)
    execute(replace(order, resume=found, rerun_changed=True), listening)
    assert started == ["a"]
