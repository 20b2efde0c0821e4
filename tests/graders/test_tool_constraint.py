"""The `tool_constraint` grader, both generations: plain names with limits, and rules that look into calls."""

import pytest
from hypothesis import given, settings
from tool_cases import BOMB, calls, cases, grade, holds, lines, traces

import waza
from waza.graders.tool_constraint import allows, canonical_name


@pytest.mark.parametrize("case", cases("tool_constraint"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert holds(case, tmp_path)


@pytest.mark.parametrize("case", lines("helpers_tools.jsonl"), ids=lambda case: case["id"])
def test_names_are_folded_as_the_conformance_cases_say(case):
    if case["kind"] == "canonical_tool_name":
        assert canonical_name(case["input"]) == case["expected"]
    elif case["kind"] == "allow_name_match":
        assert allows(**case["input"]) == case["expected"]


@pytest.mark.parametrize(
    ("config", "path", "says"),
    [
        ({"expect_tools": [], "max_turns": 0}, "", "checks nothing"),
        ({"expect_tools": ["bash", ""]}, "config.expect_tools[1]", "must not be empty"),
        ({"expect_tools": [5]}, "config.expect_tools[0]", "mapping"),
        ({"expect_tools": [{"tool": "a", "name": "b"}]}, "config.expect_tools[0]", "one of them"),
        ({"reject_tools": [{"command_pattern": "rm"}]}, "config.reject_tools[0]", "give 'tool' or 'name'"),
        ({"reject_tools": [{"tool": "a", "path_pattern": ""}]}, "config.reject_tools[0].path_pattern", "empty pattern"),
        ({"allow_only": [{"tool": "a", "skill_pattern": "("}]}, "config.allow_only[0].skill_pattern", "never closed"),
        ({"allow_only": ["  "]}, "config.allow_only[0]", "blank"),
        ({"allow_only": ["bash", "*"]}, "config.allow_only", "allows every tool: this check could not fail"),
        ({"max_tokens": -1}, "config.max_tokens", "at least 0"),
        ({"expect_tools": [{"tool": "a", "command": "x"}]}, "config.expect_tools[0].command", "command_pattern"),
    ],
)
def test_what_could_not_fail_or_not_work_is_refused_with_its_place(config, path, says):
    with pytest.raises(waza.SpecError) as caught:
        waza.load_grader({"type": "tool_constraint", "config": config})
    (problem,) = caught.value.problems
    assert (problem.path, says in problem.message) == (path, True), problem


def test_plain_names_are_exact_and_patterns_are_not():
    assert grade("tool_constraint", calls("format"), reject_tools=["rm"]).status == "passed"
    assert grade("tool_constraint", calls("format"), reject_tools=[{"tool": "RM"}]).status == "failed"
    assert grade("tool_constraint", calls("format"), reject_tools=[{"name": "rm"}]).status == "passed"


def test_labels_name_the_qualifiers_in_the_feedback():
    rule = {"tool": "bash", "command_pattern": "azd up", "args": {"b": 1, "a": 2}}
    result = grade("tool_constraint", calls(("bash", {"command": "ls", "a": 2})), expect_tools=[rule])
    assert result.feedback == "Expected tool not used: bash (command_pattern: azd up, args: [a, b])"
    assert result.checks[0].actual == [
        {
            "call": 0,
            "differences": [
                {"path": "command", "expected": {"command_pattern": "azd up"}, "actual": "ls"},
                {"path": "b", "expected": {"equals": 1}, "missing": True},
            ],
        }
    ]


@pytest.mark.parametrize("argument", ["path", "file_path", "filePath"])
def test_a_path_pattern_finds_the_path_whatever_the_engine_calls_the_argument(argument):
    rule = {"tool": "write", "path_pattern": r"\.env$"}
    result = grade("tool_constraint", calls(("Write", {argument: "/app/.env"})), reject_tools=[rule])
    assert result.feedback == "Rejected tool was used: write (path_pattern: \\.env$)"


@pytest.mark.parametrize("rule", ["mcp__github__*", {"tool": "github"}, {"name": "mcp__*", "args": {}}])
def test_a_rejected_glob_or_pattern_names_the_calls_that_matched(rule):
    seen = calls("mcp__github__push", "bash", "mcp__github__pull", "mcp__github__push")
    result = grade("tool_constraint", seen, reject_tools=[rule])
    assert result.feedback.endswith(" (mcp__github__push, mcp__github__pull)"), result.feedback


def test_a_command_given_as_a_list_is_read_as_json():
    rule = {"tool": "shell", "command_pattern": r'"rm","-rf"'}
    assert grade("tool_constraint", calls(("shell", {"command": ["rm", "-rf", "/"]})), reject_tools=[rule]).score == 0.0


def test_allow_only_counts_every_call_and_names_each_tool_once():
    result = grade(
        "tool_constraint", calls("grep", "bash", "bash", "", "view"), allow_only=["grep", {"tool": "readFile"}]
    )
    assert result.score == pytest.approx(2 / 5)
    assert result.feedback == (
        "Undeclared tool used: bash (2 calls; not in allow_only: [grep, readFile]); "
        "Undeclared tool used: <unnamed> (not in allow_only: [grep, readFile])"
    )


def test_allow_only_folds_tool_but_takes_name_letter_for_letter():
    assert grade("tool_constraint", calls("view"), allow_only=[{"tool": "read"}]).status == "passed"
    assert grade("tool_constraint", calls("view"), allow_only=[{"name": "read"}]).status == "failed"
    assert grade("tool_constraint", calls("xbashx"), allow_only=[{"tool": "bash"}]).status == "failed"
    assert grade("tool_constraint", calls("c++"), allow_only=["c++", "("]).status == "passed"


def test_limits_decide_without_tool_events_and_a_failure_decides_over_what_is_missing():
    trace = waza.Trace(input="", output="", usage=waza.Usage(turns=5))
    assert grade("tool_constraint", trace, max_turns=5).status == "passed"
    assert grade("tool_constraint", trace, max_turns=4, expect_tools=["a"], allow_only=[]).status == "failed"
    assert grade("tool_constraint", trace, max_turns=5, reject_tools=["a"]).status == "error"
    assert grade("tool_constraint", trace, max_turns=5, max_tokens=1).status == "error"


def test_a_pattern_out_of_time_is_undecided_in_every_list():
    trace = calls(("t", {"command": "a" * 200}))
    rule = {"name": "t", "command_pattern": BOMB}
    result = grade("tool_constraint", trace, expect_tools=[rule], reject_tools=[rule], allow_only=[rule])
    assert (result.status, [check.ok for check in result.checks]) == ("error", [None, None, None])
    assert grade("tool_constraint", trace, allow_only=["t", rule]).status == "passed"


def test_the_schema_for_editors_takes_names_and_mappings():
    from waza.graders.tool_constraint import ToolConstraintGrader

    schema = ToolConstraintGrader.model_json_schema()
    for entry in ("ToolRule", "AllowedTool"):
        assert schema["$defs"][entry]["anyOf"][1] == {"type": "string"}


RULES = [
    {"tool": "a", "command_pattern": "x", "args": {"q": {"regex": "a"}, "items[*]": {"range": {"gt": 1}}}},
    {"name": "bash", "path_pattern": "a", "skill_pattern": "."},
    "edit",
]


@settings(deadline=None)
@given(traces)
def test_any_trace_is_graded_and_only_missing_evidence_is_an_error(trace):
    result = grade("tool_constraint", trace, expect_tools=RULES, reject_tools=RULES, allow_only=RULES, max_turns=99)
    missing = trace.tool_events is None or trace.usage is None or trace.usage.turns is None
    assert result.status in (("failed", "error") if missing else ("failed", "passed"))
    assert 0.0 <= result.score <= 1.0
