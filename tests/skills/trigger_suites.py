"""A suite with trigger tests for the mock engine, and the run that came of it."""

import json

from waza.runs.store import list_runs, read_run

SKILL = '---\nname: explainer\ndescription: "Explains. USE FOR: explain this code. DO NOT USE FOR: poems."\n---\n# E\n'
RULES = {"triggers": [{"skill": "explainer", "when": "explain"}]}
TESTS = {
    "skill": "explainer",
    "should_trigger_prompts": [
        {"prompt": "Explain this code", "phrasing": "keyword", "reason": "direct"},
        {"prompt": "What goes on here?", "confidence": "medium", "phrasing": "generic"},
    ],
    "should_not_trigger_prompts": [{"prompt": "Write a poem"}, {"prompt": "Explain nothing", "confidence": "medium"}],
}


def suite(folder, *, tests=TESTS, rules=RULES, needs=0.5, tasks=True, **config):
    """Write a suite with trigger tests; three of four answers weigh 2 of 3."""
    (folder / "skills/explainer").mkdir(parents=True, exist_ok=True)
    (folder / "skills/explainer/SKILL.md").write_text(SKILL)
    (folder / ".waza.yaml").write_text("defaults: {engine: mock}\n")
    task = {"id": "t", "prompt": "hi", "expected": {"output_contains": ["hello"]}, "mock": {"output": "hello"}}
    data = {
        "name": "e",
        "skill": "explainer",
        "config": {"executor": "mock"} | config,
        "tasks": [task] if tasks else [],
    }
    data["metrics"] = [{"name": "trigger_accuracy", "threshold": needs}] if needs is not None else []
    (folder / "eval.yaml").write_text(json.dumps(data))
    (folder / "trigger_tests.yaml").write_text(json.dumps(tests))
    (folder / "mock.yaml").unlink(missing_ok=True)
    if rules is not None:
        (folder / "mock.yaml").write_text(json.dumps(rules))
    return folder


def stored(folder):
    return read_run(list_runs(folder / "runs")[0].folder)
