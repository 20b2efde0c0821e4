"""Every key of an `expected:` block holds, fails and stays open when it should; none is forgotten."""

import pytest

from waza.errors import SpecError
from waza.files.paths import SpecFolder
from waza.model import SkillInvocation, ToolEvent, Trace, Usage
from waza.suites.graders import _BEHAVIOR, KEYS, build_expected, load_expected
from waza.suites.positions import Position


def seen(output="It is booked", *tools, **more):
    """A trace in which everything was recorded."""
    usage = Usage(input_tokens=10, output_tokens=5, turns=2, llm_calls=2)
    facts = {"usage": usage, "steps": 4, "duration_ms": 900, "skill_invocations": [SkillInvocation(name="travel")]}
    calls = [ToolEvent(tool_name=tool, args={"to": "Oslo"}) for tool in tools]
    return Trace(input="ask", output=output, tool_events=calls, **facts | more)


BLIND = Trace(input="ask", output="It is booked")
"""A trace in which nothing but the answer was recorded."""
BOTH = seen("It is booked", "search", "book")

# key, value, a trace that meets it, one that does not, one that cannot tell
CASES = [
    ("output_contains", ["BOOKED", "is"], BOTH, seen("It is"), None),
    ("output_not_contains", ["sorry", "booked"], seen("done"), BOTH, None),
    ("output_contains_any", ["sorry", "booked"], BOTH, seen("done"), None),
    ("output_equals", " It  is booked\n", BOTH, seen("it is booked"), None),
    ("output_equals", "", seen(""), BOTH, None),
    ("output_matches", r"\bbooked$", BOTH, seen("booked it"), None),
    ("tools_called", ["book", "search"], BOTH, seen("", "search"), BLIND),
    ("tools_not_called", ["delete", "book"], seen("", "search"), BOTH, BLIND),
    ("tool_call_order", ["search", "book"], BOTH, seen("", "book", "search"), BLIND),
    ("tool_call_order", ["book", "book"], seen("", "book", "x", "book"), BOTH, BLIND),
    ("max_steps", 4, BOTH, seen(steps=5), BLIND),
    ("max_steps", "4", BOTH, seen(steps=5), None),
    ("min_steps", 4, BOTH, seen(steps=3), BLIND),
    ("max_tool_calls", 2, BOTH, seen("", "a", "b", "c"), BLIND),
    ("max_tool_calls", 0, seen(), seen("", "a"), BLIND),
    ("max_tool_calls", "none", seen(), seen("", "a"), BLIND),
    ("max_llm_calls", 2.0, BOTH, seen(usage=Usage(llm_calls=3)), BLIND),
    ("task_completed", True, BOTH, seen(""), None),
    ("task_completed", True, BOTH, seen(status="failure"), None),
    ("task_completed", False, seen(status="failure"), BOTH, None),
    ("tool_calls", [{"name": "book", "args": {"to": "Oslo"}}], BOTH, seen("", "search"), BLIND),
    ("tool_calls", [{"name": "book"}, {"name": "book"}], seen("", "book", "book"), BOTH, BLIND),
    ("outcomes", [{"type": "task_completed"}], BOTH, seen(""), None),
    ("outcomes", [{"type": "tool_called", "tool_name": "book"}], BOTH, seen("", "search"), BLIND),
    ("outcomes", [{"type": "tool_called", "tool_name": " b*k "}], BOTH, seen("", "books"), BLIND),
    ("outcomes", [{"type": "tool_not_called", "tool_name": "b*"}], seen("", "search"), BOTH, BLIND),
    ("outcomes", [{"type": "skill_invoked", "skill": "tra?el"}], BOTH, seen(skill_invocations=[]), BLIND),
    ("outcomes", [{"type": "skill_not_invoked", "skill": "travel"}], seen(skill_invocations=[]), BOTH, BLIND),
    ("outcomes", [{"type": "skill_not_invoked"}], seen(skill_invocations=[]), BOTH, BLIND),
    ("behavior", {"max_tool_calls": 2}, BOTH, seen("", "a", "b", "c"), BLIND),
    ("behavior", {"max_response_time_ms": "none"}, seen(duration_ms=0), BOTH, BLIND),
    ("behavior", {"max_iterations": 2}, BOTH, seen(usage=Usage(turns=3)), BLIND),
    ("behavior", {"max_response_time_ms": 900}, BOTH, seen(duration_ms=901), BLIND),
    ("behavior", {"max_tokens": 15}, BOTH, seen(usage=Usage(input_tokens=16)), BLIND),
    ("behavior", {"required_tools": ["book"]}, BOTH, seen("", "search"), BLIND),
    ("behavior", {"forbidden_tools": ["book"]}, seen("", "search"), BOTH, BLIND),
    ("should_trigger", True, BOTH, seen(skill_invocations=[]), BLIND),
    ("should_trigger", False, seen(skill_invocations=[]), BOTH, BLIND),
]


def in_turns(*tools):
    return Trace(input="", output="", tool_events=[ToolEvent(tool_name=t, turn=n) for n, t in enumerate(tools, 1)])


CASES += [
    ("before", ["search", "book"], in_turns("search", "book"), in_turns("book", "search"), BLIND),
    ("before", ["search", {"tool": "^b"}], in_turns("search", "book"), in_turns("search", "pay"), BLIND),
]
IDS = [f"{key}={value}" for key, value, *_ in CASES]


def graded(block, trace):
    graders, problems = build_expected(block, Position(content=block), SpecFolder(), skill="travel")
    assert problems == [] and len(graders) == len(block)
    return {grader.name: grader.grade(trace).status for grader in graders}


def test_no_key_is_forgotten():
    assert {key for key, *_ in CASES} | {"graders"} == set(KEYS)
    assert {inner for key, value, *_ in CASES if key == "behavior" for inner in value} == set(_BEHAVIOR)


@pytest.mark.parametrize(("key", "value", "good", "bad", "blind"), CASES, ids=IDS)
def test_each_key_holds_fails_and_stays_open(key, value, good, bad, blind):
    assert graded({key: value}, good) == {key: "passed"}
    assert graded({key: value}, bad) == {key: "failed"}
    if blind is not None:
        assert graded({key: value}, blind) == {key: "error"}


@pytest.mark.parametrize(("key", "value", "good", "bad", "blind"), CASES, ids=IDS)
def test_keys_are_joined_by_and(key, value, good, bad, blind):
    other = {"output_not_contains": ["never said"]} if key != "output_not_contains" else {"min_steps": 1}
    assert sorted(graded({key: value} | other, bad).values()) == ["failed", "passed"]


WRONG = [
    {},
    None,
    [],
    {"custom": {"a": 1}},
    {"output_contian": ["a"]},
    *({key: None} for key in KEYS),
    *({key: []} for key in KEYS),
    *({key: {}} for key in KEYS),
    *({key: [None]} for key in KEYS),
    *({key: [""]} for key in KEYS if key != "output_equals"),
    *({key: True} for key in KEYS if key not in ("task_completed", "should_trigger")),
    *({key: 1.5} for key in KEYS),
    *({key: -1} for key in KEYS),
    *({"behavior": {key: value}} for key in _BEHAVIOR for value in (None, [], True, -1, 0.5, "many", {})),
    {"behavior": {"max_token": 3}},
    {"outcomes": [{"type": "file_written"}]},
    {"outcomes": [{"type": "tool_called"}]},
    {"outcomes": [{"type": "task_completed", "tool_name": "x"}]},
    {"task_completed": "yes"},
    {"task_completed": 1},
    {"should_trigger": "true"},
    {"output_matches": "("},
    {"output_matches": ""},
    {"tools_called": "book"},
]


@pytest.mark.parametrize("block", WRONG, ids=str)
def test_what_could_not_be_enforced_is_refused(block):
    graders, problems = build_expected(block, Position(content=block), SpecFolder(), skill="travel")
    if block is not None and isinstance(block, dict) and set(block) == {"graders"}:
        with pytest.raises(SpecError):
            load_expected(block)
        return
    assert problems, [grader.name for grader in graders]


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"outcomes": [{"type": "tool_caled"}]}, r"outcomes\[0\]\.type: .*did you mean 'tool_called'"),
        ({"outcomes": [{"type": 3}]}, "known: task_completed"),
        ({"outcomes": [{"type": "skill_invoked"}]}, "'skill' is missing: skill_invoked of what"),
        ({"outcomes": [{"type": "tool_not_called", "tool_name": 3}]}, r"outcomes\[0\]\.tool_name: a name is needed"),
        ({"outcomes": [{"type": "tool_called", "tol_name": "b"}]}, "did you mean 'tool_name'"),
        ({"outcomes": [{"type": "tool_called", "tool_name": "a|b"}]}, r"outcomes\[0\]\.tool_name: 'a\|b' is one name"),
        (
            {"outcomes": [{"type": "skill_not_invoked", "skill": " "}]},
            r"outcomes\[0\]\.skill: must not be empty or blank",
        ),
        ({"min_steps": "none"}, "min_steps: `none` is for upper limits"),
        ({"tools_not_called": ["rm", "a|b"]}, r"tools_not_called\[1\]: 'a\|b' is one name"),
        ({"max_steps": "None"}, "max_steps: a whole number or `none` is needed"),
    ],
)
def test_a_refusal_says_place_fact_and_next_step(block, says):
    with pytest.raises(SpecError, match=says):
        load_expected(block)


def test_which_skill_is_meant_must_be_known():
    with pytest.raises(SpecError, match="which skill"):
        load_expected({"should_trigger": True})
