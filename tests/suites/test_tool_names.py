"""`config.tool_names` is the suite's word on tool names; a grader's own wins."""

import json

import pytest

from waza.errors import SpecError
from waza.model import ToolEvent, Trace
from waza.suites.load import load_spec

CODEX = Trace(
    input="x",
    output="done",
    engine="codex",
    tool_events=[ToolEvent(tool_name="command_execution", args={"command": "ls"})],
)
TASK = {
    "id": "t",
    "prompt": "x",
    "expected": {
        "tools_called": ["bash"],
        "tool_calls": [{"name": "bash"}],
        "behavior": {"required_tools": ["bash"]},
        "output_contains": ["done"],
    },
    "graders": [
        {"type": "tool_calls", "name": "own", "config": {"required_tools": ["bash"], "tool_names": "known"}},
        {"type": "action_sequence", "config": {"expected_actions": ["bash"], "matching_mode": "exact_match"}},
    ],
    "checkpoints": [{"after_turn": 1, "expected": {"tools_called": ["bash"]}}],
}


def verdicts(tmp_path, **config):
    (tmp_path / ".waza.yaml").touch()
    behavior = {"type": "behavior", "name": "suite", "config": {"required_tools": ["bash"]}}
    suite = {"config": config, "graders": [behavior], "tasks": [TASK, {"id": "u", "prompt": "y"}]}
    (tmp_path / "eval.yaml").write_text(json.dumps(suite))
    spec = load_spec(tmp_path)
    assert spec.graders["t"][0] is spec.graders["u"][0], "a grader that tasks share stays one"
    return {grader.name: grader.grade(CODEX).status for grader in spec.graders["t"]}


def test_exact_reaches_every_grader_that_does_not_say_it_itself(tmp_path):
    exact = verdicts(tmp_path, tool_names="exact")
    assert exact.pop("own") == "passed"
    assert exact.pop("output_contains") == "passed"
    assert set(exact) == {"suite", "action_sequence", "tools_called", "tool_calls", "behavior", "tools_called@1"}
    assert set(exact.values()) == {"failed"}


@pytest.mark.parametrize("config", [{}, {"tool_names": "known"}])
def test_known_is_what_holds_otherwise(tmp_path, config):
    assert set(verdicts(tmp_path, **config).values()) == {"passed"}


def test_any_other_word_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"config\.tool_names: .*one of: known, exact"):
        verdicts(tmp_path, tool_names="excat")
