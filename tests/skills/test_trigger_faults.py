"""A detector that is broken makes a trigger run INVALID: never "recall 0 %", never a pass.

The agent is a program that prints a recorded stream of Claude Code, read by the real engine; the stream is broken.
"""

import json
import sys
from pathlib import Path

import pytest

from waza.cli import run_command
from waza.runs.store import list_runs, read_run
from waza.suites.load import load_spec

RECORDINGS = Path(__file__).parent.parent / "data/recordings"
AGENT = """#!{python}
import sys, time
from pathlib import Path
if "--version" in sys.argv:
    print("2.1.0 (Claude Code)")
    sys.exit()
asked = sys.stdin.read() + " ".join(sys.argv)
name = "skill" if "report" in asked else "talk"
for number, line in enumerate(Path({folder!r}, name + ".jsonl").read_text().splitlines()):
    if line.startswith("SLEEP"):
        time.sleep(float(line.split()[1]))
    else:
        print(line, flush=True)
"""
SUITE = {
    "name": "faults",
    "skill": "csv-report",
    "config": {
        "executor": "claude-code",
        "model": "claude-sonnet-4-5",
        "skill_directories": ["skills"],
        "timeout_seconds": 30,
        "workers": 4,
        "base_url": "http://127.0.0.1:9",
    },
    "metrics": [{"name": "trigger_accuracy", "threshold": 0.9}],
}
TESTS = {
    "skill": "csv-report",
    "should_trigger_prompts": [{"prompt": "Write the report"}],
    "should_not_trigger_prompts": [{"prompt": "Say hello"}],
}


def missing(lines):
    """No event tells of the skill."""
    used = ('"name": "Skill"', "Launching skill", "Base directory for this skill")
    return [line for line in lines if not any(mark in line for mark in used)]


def renamed(lines):
    """The skill tool has another name than the one we know."""
    return [line.replace('"name": "Skill"', '"name": "LoadSkill"') for line in lines]


def late(lines):
    """The skill is used after the time is over."""
    return [lines[0], "SLEEP 60", *lines[1:]]


def wrong(lines):
    """Another skill is told of."""
    return [line.replace('{"skill": "csv-report"}', '{"skill": "csv-rapport"}') for line in lines]


def unbroken(lines):
    return lines


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "skills/csv-report").mkdir(parents=True)
    (tmp_path / "skills/csv-report/SKILL.md").write_text("---\nname: csv-report\ndescription: Reports.\n---\n# R\n")
    (tmp_path / "bin").mkdir()
    agent = tmp_path / "bin/claude"
    agent.write_text(AGENT.format(python=sys.executable, folder=str(tmp_path)))
    agent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "trigger_tests.yaml").write_text(json.dumps(TESTS))
    return tmp_path


def _offered(event):
    """The event; where it lists the session's skills, ours is among them."""
    return event | {"skills": ["csv-report"]} if event.get("subtype") == "init" else event


def trigger(project, fault, after=(), **config):
    """Run the trigger tests with an agent that prints its stream broken like that; return exit code and run."""
    for name in ("skill", "talk"):
        recorded = (RECORDINGS / f"claude-latest-{name}.jsonl").read_text().splitlines()
        lines = [json.dumps(_offered(json.loads(line))) for line in recorded]
        (project / f"{name}.jsonl").write_text("\n".join([*(fault(lines) if name == "skill" else lines), *after]))
    (project / "eval.yaml").write_text(json.dumps(SUITE | {"config": SUITE["config"] | config}))
    code = run_command(["trigger", str(project), "-q"])
    return code, read_run(list_runs(project / "runs")[0].folder)


def test_control_an_unbroken_detector_gives_a_valid_run(project, capsys):
    """The proof that the faults below are what makes the runs invalid."""
    code, run = trigger(project, unbroken)
    shown = capsys.readouterr().out
    assert code == 0, shown
    assert "accuracy 1.00" in shown
    assert {result.task_id for result in run.triggers if result.trace.skill_invocations} == {
        "trigger:control-explicit",
        "trigger:should-1",
    }


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (missing, "no skill use was detected"),
        (renamed, "no skill use was detected"),
        (late, "the agent ran out of time before any skill was used"),
        (wrong, "'csv-rapport' was used instead"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_detector_makes_the_run_invalid(fault, why, project, capsys):
    code, _ = trigger(project, fault, **({"timeout_seconds": 2} if fault is late else {}))
    shown = capsys.readouterr().out
    assert code == 3, shown
    assert "INVALID" in shown
    assert why in " ".join(shown.split())
    assert "recall" not in shown


def test_a_skill_that_is_injected_for_tasks_is_not_for_trigger_tests(project):
    (project / "skills/csv-report/SKILL.md").write_text("---\nname: csv-report\ndescription: R.\n---\nBODY-MARK\n")
    task = {"id": "t", "prompt": "Write the report", "expected": {"task_completed": True}}
    (project / "eval.yaml").write_text(
        json.dumps(SUITE | {"tasks": [task], "config": SUITE["config"] | {"inject_skill_body": True}})
    )
    spec = load_spec(project)
    engine = spec.engine()
    assert "BODY-MARK" in engine.for_task(spec.tasks[0])._instructions()
    assert not any(engine.for_task(task)._instructions() for task in spec.triggers.tasks)


def test_the_agent_is_stopped_where_it_uses_the_skill(project):
    def dawdling(lines):
        place = next(number for number, line in enumerate(lines) if "Base directory" in line)
        return [*lines[: place + 1], "SLEEP 60", *lines[place + 1 :]]

    code, run = trigger(project, dawdling)
    assert code == 0
    traces = {result.task_id: result.trace for result in run.triggers}
    used = traces["trigger:should-1"]
    assert used.extra["stopped_at_skill"] is True
    assert (used.status, [event.tool_name for event in used.tool_events]) == ("success", ["Skill"])
    assert used.duration_ms < 30_000
    assert "stopped_at_skill" not in traces["trigger:should-not-1"].extra
