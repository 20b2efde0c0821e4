"""Tool and skill names in every grader that takes them: trimmed, exact or globs; `none` and 0 as limits."""

import itertools
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_cases import calls, grade

import waza
from waza.graders._alignment import Need, align, f1_of
from waza.graders.names import fits_of_names, names_of
from waza.model import SkillInvocation
from waza.suites.reference import file_schema
from waza.suites.suite import grader_as_data
from waza.untrusted.json_schema import compile_schema
from waza.untrusted.patterns import fits_name

ALPHABET = "ab*?.[]|\\\n\u00e9\U0001f600"
texts = st.text(ALPHABET, max_size=8)


@given(texts, texts)
def test_a_glob_is_star_and_question_mark_over_the_whole_name_and_nothing_else(glob, name):
    oracle = "".join({"*": ".*", "?": "."}.get(letter) or re.escape(letter) for letter in glob)
    assert fits_name(glob, name) == (re.fullmatch(oracle, name, re.S) is not None)


@given(texts)
def test_a_literal_match_counts_too(name):
    assert fits_name(name, name)


def test_many_stars_on_a_long_name_take_no_time():
    started = time.monotonic()
    assert not fits_name("a*" * 30 + "b", "a" * 20_000)
    assert time.monotonic() - started < 2
    with pytest.raises(waza.SpecError, match="at most 5000 characters"):
        waza.load_grader({"type": "tool_called", "required": ["*" * 6000]})


USES = {
    "behavior": lambda name: {"required_tools": [name]},
    "tool_calls": lambda name: {"required_tools": [name]},
    "tool_called": lambda name: {"required": [name]},
    "tool_order": lambda name: {"expected_order": [name]},
    "tool_constraint": lambda name: {"expect_tools": [name]},
    "action_sequence": lambda name: {"expected_actions": [name], "matching_mode": "any_order_match"},
}
AVOIDS = {
    "behavior": lambda name: {"forbidden_tools": [name]},
    "tool_calls": lambda name: {"forbidden_tools": [name]},
    "tool_not_called": lambda name: {"forbidden": [name]},
    "tool_constraint": lambda name: {"reject_tools": [name]},
}
BOTH = [(kind, make, "passed") for kind, make in USES.items()] + [
    (kind, make, "failed") for kind, make in AVOIDS.items()
]


@pytest.mark.parametrize(("kind", "make", "hit"), BOTH, ids=lambda value: value if isinstance(value, str) else "")
def test_every_place_of_a_tool_name_is_trimmed_takes_globs_and_refuses_bars_and_blanks(kind, make, hit):
    miss = "failed" if hit == "passed" else "passed"
    for name, tool, expected in [
        (" bash\t", "bash", hit),
        ("Bash", "bash", miss),
        ("mcp__*__list_?", "mcp__github__list_1", hit),
        ("mcp__*__list_?", "mcp__github__list_12", miss),
        ("ba.*", "bash", miss),
        ("*", "anything", hit),
        ("ba*", "xbash", miss),
    ]:
        result = grade(kind, calls(tool), **make(name))
        assert result.status == expected, (name, tool, result.feedback)
        assert "the grader broke" not in result.feedback
    assert grade(kind, calls(), **make("*")).status == miss
    for name, says in (("edit|write", r"'\|'"), ("  ", "blank"), ("", "empty")):
        with pytest.raises(waza.SpecError, match=says):
            waza.load_grader({"type": kind, "config": make(name)})


def test_a_forbidden_glob_names_what_it_covers_and_seen_as_says_it():
    result = grade("behavior", calls("ls", "mcp__db__drop"), forbidden_tools=["mcp__*"], required_tools=["l?"])
    assert result.feedback == "Forbidden tool was used: mcp__* (mcp__db__drop)"
    assert result.details["seen_as"] == {"mcp__*": ["mcp__db__drop"], "l?": ["ls"]}
    assert result.checks[1].actual == ["ls", "mcp__db__drop"]


@pytest.mark.parametrize(
    ("declared", "covers", "covers_not"),
    [
        ("re*", ["read", "view", "readFile", "Read"], ["bash", "mcp:read"]),
        ("view*", ["view", "view_image"], ["readFile"]),
        ("*File", ["readFile", "writefile"], ["bash"]),
        ("builtin:*", ["bash", "builtin:view"], ["mcp:x", "custom:x"]),
        ("mcp:*", ["mcp:github", "MCP:x"], ["bash", "custom:x"]),
        ("mcp:git*", ["mcp:github_list", "github_list"], ["bash"]),
        ("b*", ["bash", "runCommand"], ["mcp:b"]),
        ("ba.*", [], ["bash"]),
        (" Ba?h ", ["bash"], ["batch"]),
    ],
)
def test_allow_only_takes_globs_after_folding_and_a_server_does_not_let_every_tool_in(declared, covers, covers_not):
    for entry in (declared, {"tool": declared}):
        for tool in covers + covers_not:
            result = grade("tool_constraint", calls(tool), allow_only=[entry])
            assert result.status == ("passed" if tool in covers else "failed"), tool


@pytest.mark.parametrize(
    ("glob", "tool", "covers"),
    [
        ("web*", "WebFetch", True),
        ("create_*", "Write", False),
        ("execute_*", "Bash", False),
        ("mcp__github__*", "mcp__github__list_issues", True),
        ("github_*", "mcp__github__list_issues", True),
        ("mcp__*", "mcp__github__list_issues", True),
        ("mcp__*", "deploy", False),
        ("mcp__deploy__*", "deploy-now", True),
        ("mcp__b*", "Bash", False),
    ],
)
def test_a_glob_covers_names_as_the_agents_program_spells_them(glob, tool, covers):
    event = waza.ToolEvent(tool_name=tool, args={})
    trace = waza.Trace(input="", output="", engine="claude-code", tool_events=[event])
    for kind, make in USES.items():
        assert (grade(kind, trace, **make(glob)).status == "passed") == covers, kind
    for kind, make in AVOIDS.items():
        assert (grade(kind, trace, **make(glob)).status == "failed") == covers, kind


def test_a_pattern_is_not_taken_for_a_glob():
    event = waza.ToolEvent(tool_name="web_x", args={})
    trace = waza.Trace(input="", output="", engine="claude-code", tool_events=[event])
    result = grade("tool_calls", trace, expect=[{"tool": "^web*$"}])
    assert (result.status, result.details["first_call_fits"]) == ("failed", False)


names = st.lists(st.sampled_from(["a", "ab", "b", "bb"]), max_size=4)
wanted = st.lists(st.sampled_from(["a", "a*", "?b", "*", "b"]), min_size=1, max_size=4)


@given(wanted, names)
def test_f1_and_any_order_count_the_best_assignment_of_globs(expected, actual):
    ways = itertools.permutations([*actual, *[None] * len(expected)], len(expected))
    best = max(
        sum(got is not None and fits_name(want, got) for want, got in zip(expected, way, strict=True)) for way in ways
    )
    _, recall, f1 = f1_of(expected, actual, fits_of_names(names_of(expected), actual))
    assert recall == pytest.approx(best / len(expected))
    result = grade("action_sequence", calls(*actual), expected_actions=expected, matching_mode="any_order_match")
    assert result.score == pytest.approx(f1)
    assert result.passed == (best == len(expected))


@given(wanted, names)
def test_in_order_and_exact_modes_see_globs_as_one_call_each(expected, actual):
    fits = [[place for place, name in enumerate(actual) if fits_name(want, name)] for want in expected]
    taken = align("in_order", [Need()] * len(expected), fits, len(actual)).taken
    in_order = all(taken)
    config = {"expected_actions": expected}
    assert grade("action_sequence", calls(*actual), **config, matching_mode="in_order_match").passed == in_order
    exact = len(expected) == len(actual) and all(map(fits_name, expected, actual))
    assert grade("action_sequence", calls(*actual), **config, matching_mode="exact_match").passed == exact
    assert grade("tool_order", calls(*actual), expected_order=expected).passed == in_order


def invoked(*skills, offered=None):
    found = [SkillInvocation(name=name) for name in skills]
    return waza.Trace(input="", output="", skill_invocations=found, available_skills=offered)


def test_skills_take_globs_too():
    required = {"required_skills": [" azure-* ", "azure-deploy"], "mode": "any_order"}
    assert grade("skill_invocation", invoked("azure-deploy", "azure-prepare"), **required).score == 1.0
    assert grade("skill_invocation", invoked("azure-deploy"), **required).score == pytest.approx(2 / 3)
    missing = grade("skill_invocation", invoked(offered=["azure-x"]), **required)
    assert missing.details["surfaced_but_not_invoked_required_skills"] == ["azure-*"]
    assert missing.details["not_surfaced_required_skills"] == ["azure-deploy"]
    assert grade("skill_triggered", invoked("azure-x"), skill="azure-?").passed
    assert not grade("skill_triggered", invoked("azure-x"), skill="azure-?", should_trigger=False).passed


def test_exactly_no_skill_is_a_rule_that_survives_being_stored():
    config = {"mode": "exact_match", "required_skills": [], "allow_extra": False}
    stored = grader_as_data(waza.load_grader({"type": "skill_invocation", "config": config}))
    grader = waza.load_grader(stored)
    found = grader.grade(invoked("a", "a"))
    assert (found.status, found.score, found.feedback) == ("failed", 0.0, "Skill not expected: a")
    assert grader.grade(invoked()).feedback == "No skill was invoked"
    for other in ({"mode": "in_order"}, {"allow_extra": True}, {"mode": None}, {"required_skills": None}):
        with pytest.raises(waza.SpecError, match="to forbid every skill"):
            waza.load_grader({"type": "skill_invocation", "config": config | other})
    others = config | {"allow_extra": True, "forbidden_skills": ["b"]}
    assert grade("skill_invocation", invoked("a"), **others).passed, "an empty list next to a check counts as not given"


LIMITS = [
    ("behavior", "max_tool_calls"),
    ("behavior", "max_tokens"),
    ("behavior", "max_duration_ms"),
    ("tool_constraint", "max_turns"),
    ("tool_constraint", "max_tokens"),
    ("tool_calls", "max_calls"),
]
IDLE = {"input": "", "output": "", "tool_events": [], "duration_ms": 0}
BUSY = {"tool_events": [{"tool_name": "a"}], "duration_ms": 1}


@pytest.mark.parametrize(("kind", "key"), LIMITS)
def test_none_is_a_bound_of_zero_and_zero_is_no_limit_and_says_so(kind, key):
    used = {"input_tokens": 1, "output_tokens": 0, "turns": 1}
    idle = waza.Trace.from_json(IDLE | {"usage": dict.fromkeys(used, 0)})
    busy = waza.Trace.from_json(IDLE | BUSY | {"usage": used})
    grader = waza.load_grader({"type": kind, "config": {key: "none"}})
    assert waza.load_grader(grader_as_data(grader)) == grader
    assert (grader.grade(idle).status, grader.grade(busy).status) == ("passed", "failed")
    assert grader.grade(waza.Trace(input="", output="")).status == "error"
    with pytest.raises(waza.SpecError, match=rf"`{key}: 0` means no limit; write `none` for none"):
        waza.load_grader({"type": kind, "config": {key: 0}})
    others = {key: 0, "expect_tools" if kind == "tool_constraint" else "required_tools": ["a"]}
    with pytest.warns(UserWarning, match=rf"config.{key}: warning: `{key}: 0` means no limit"):
        assert waza.load_grader({"type": kind, "config": others}).grade(busy).passed
    for wrong in (-1, True, "None", None, 1.5):
        with pytest.raises(waza.SpecError):
            waza.load_grader({"type": kind, "config": {key: wrong}})


def test_counts_and_single_limits_take_none_as_zero():
    assert grade("max_tool_calls", calls(), max_tool_calls="none").passed
    assert not grade("max_tool_calls", calls("a"), max_tool_calls="none").passed
    assert not grade("tool_calls", calls("rm"), expect=[{"name": "r*", "count": {"max": "none"}}]).passed


def test_the_json_schema_of_editors_takes_what_the_loader_takes():
    schema = compile_schema(file_schema("eval"))

    def fits(config=None, **grader):
        return not schema.problems({"config": config or {}, "graders": [grader]})

    assert fits({"timeout_seconds": 0}, type="behavior", max_tokens="none", required_tools=["mcp__*"], weight=0)
    assert fits(type="program", command="true", timeout=0)
    assert fits(type="skill_invocation", mode="exact_match", required_skills=[], allow_extra=False)
    assert fits(type="max_steps", max_steps="none")
    for wrong in ({"max_tokens": "nine"}, {"max_tokens": -1}, {"required_tools": ["a|b"]}, {"required_tools": [" "]}):
        assert not fits(type="behavior", max_duration_ms=1, **wrong), wrong
    assert not fits(type="tool_calls", min_calls="none")
    assert not fits(type="program", command="true", timeout=0.5)
    assert not fits(type="text", contains=["a"], weight=-1)
