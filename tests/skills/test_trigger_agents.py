"""Trigger tests on real agent programs: each finds the skill by its own means, and is stopped where it uses it.

What is not installed is skipped, unless `WAZA_NEED_AGENTS` names it. The model is scripted, so it is known which
prompts use the skill; what is shown is that its use is seen.
"""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "engines"))

from agent_programs import ALL, SKILL, address_for, agents, model_of, need, write
from scripted_model import scripted_model

from waza.runs.store import list_runs, read_run

BY_FILE = {"codex", "pi"}
"""They have no skill tool: their model reads SKILL.md, and that is what is seen."""
TESTS = {
    "skill": "csv-report",
    "should_trigger_prompts": [{"prompt": "Write the report. [[script:report]]"}],
    "should_not_trigger_prompts": [{"prompt": "Say who you are. [[script:talk]]"}],
    "controls": {
        "explicit": "Use the skill csv-report. [[script:report]]",
        "unrelated": "What is 17 plus 25? [[script:talk]]",
    },
}


@pytest.mark.parametrize("name", agents(*ALL, sample=()))
def test_use_of_the_skill_is_seen_through_the_agents_own_mechanism(name, tmp_path, waza):
    need(name)
    write(tmp_path / "skills/csv-report/SKILL.md", SKILL.format(name="csv-report"))
    write(tmp_path / "trigger_tests.yaml", TESTS)
    with scripted_model() as model:
        config = {"executor": name, "model": model_of(name), "base_url": address_for(name, model)}
        write(tmp_path / "eval.yaml", {"config": config | {"skill_directories": ["skills"], "timeout_seconds": 90}})
        done = waza("trigger", tmp_path, "-q", "-o", tmp_path / "results.json", "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    metrics = json.loads((tmp_path / "results.json").read_text())["trigger_metrics"]
    assert (metrics["valid"], metrics["true_positives"], metrics["true_negatives"]) == (True, 1, 1)
    assert metrics["seen_by"] == ("file" if name in BY_FILE else "tool")
    assert ("its SKILL.md was read" in done.stdout) is (name in BY_FILE)
    traces = {result.task_id: result.trace for result in read_run(list_runs(tmp_path / "runs")[0].folder).triggers}
    used = traces["trigger:should-1"]
    assert [skill.name for skill in used.skill_invocations] == ["csv-report"]
    first = used.tool_events[0]
    assert ("SKILL.md" in json.dumps(first.args)) is (name in BY_FILE)
    assert "report.txt" not in json.dumps([event.args for event in used.tool_events if event.success]), "it went on"
