"""Stored runs whose `spec` holds anything: a whole one in which one place was overwritten by other JSON."""

import json
from copy import deepcopy

from hypothesis import strategies as st

from results_made import a_result, a_run
from waza.model import SkillInvocation, Trace
from waza.runs.store import RunFolder

PROMPTS = [
    {"id": "trigger:should-1", "prompt": "p", "skill": "s", "phrasing": "explicit"},
    {"id": "trigger:not-1", "prompt": "q", "skill": "r", "should_trigger": False, "confidence": "medium"},
    {"id": "trigger:control", "prompt": "c", "skill": "s", "control": "explicit"},
]
GRADERS = [
    {"name": "greets", "type": "text", "config": {"contains": ["hello"]}},
    {"name": "liked", "type": "prompt", "config": {"mode": "pairwise", "judges": ["m", {"model": "n"}]}},
]
WHOLE = {
    "file": "../eval.yaml",
    "config": {
        "trials_per_task": 2,
        "timeout_seconds": 300,
        "pass_rule": 0.5,
        "min_pass_rate": 0.5,
        "max_failures": 1,
        "group_by": "tags",
        "judge_model": "m",
    },
    "tasks": [
        {"id": "a", "name": "A", "tags": ["x"], "golden": True, "prompt": "p", "files": [{"path": "f", "content": "c"}]}
    ],
    "graders": {"a": GRADERS, "trigger:should-1": []},
    "metrics": [{"name": "m", "threshold": 0.5, "weight": 1, "grader": "greets", "tag": None}],
    "triggers": {
        "prompts": PROMPTS,
        "tasks": [{"id": prompt["id"], "name": "t", "tags": []} for prompt in PROMPTS],
        "skills": ["s", "r"],
        "threshold": 0.6,
        "heuristic": {"trigger:should-1": {"s": 0.7, "r": 0.1}},
    },
    "fingerprints": {"a": ""},
    "places": {"a": {"file": "eval.yaml", "line": 3}},
    "judge": {"model": "m"},
    "judged": {"a": ["hash"]},
    "judge_cards": [{"line": "card"}],
    "canaries": [],
    "baseline": {"arm": "skill", "skill": "s", "these_tasks": False, "injected": False},
    "auto_trials": {"most": 3},
    "given": {"trials": 2},
}
CONTROL = {"config": {"trials_per_task": 2}, "tasks": [{"id": "a"}], "graders": {"a": GRADERS}}


def places(tree, path=()):
    """Every place in a tree but its root, the outer ones first."""
    found = []
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        found += [(*path, key), *places(tree[key], (*path, key))]
    return found


def overwritten(tree, path, value):
    """The tree with another value at one place."""
    tree = inner = deepcopy(tree)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return tree


TEXTS = st.text(max_size=5)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
TREES = st.recursive(
    SCALARS | st.sampled_from([0, -1, 10**400, 2**63, "auto"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(TEXTS | st.sampled_from(["a", "id"]), inner, max_size=2)
    ),
    max_leaves=4,
)
ODD = st.builds(overwritten, st.just(WHOLE), st.sampled_from(places(WHOLE)), TREES)


def a_stored_run(parent, spec, run_id="one"):
    """A run folder with results of a task and of trigger tests, not finished, whose `run.json` holds that spec."""
    used = Trace(input="p", output="o", skill_invocations=[SkillInvocation(name="s")])
    results = [a_result("a"), a_result("a", 2, status="failed"), a_result("trigger:should-1", trace=used, grades=[])]
    with RunFolder.create(parent, a_run(id=run_id)) as folder:
        folder.append(*results)
    with RunFolder.create(folder.path, a_run(id="control", spec=CONTROL)) as control:
        control.append(a_result("a"))
    file = folder.path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"spec": spec}))
    return folder.path
