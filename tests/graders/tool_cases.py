"""Conformance cases and random traces for the graders of tool calls, skills and behaviour."""

import json
from pathlib import Path

from hypothesis import strategies as st

import waza

DATA = Path(__file__).parent.parent / "data" / "conformance"

BOMB = r"^((a|aa)+)\1+(?!a)b"
"""A pattern that runs out of time on a long row of `a`."""


def lines(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def cases(kind):
    """The conformance cases of one grader type."""
    found = [*lines("graders_tools.jsonl"), *lines("graders_rules.jsonl")]
    return [case for case in found if case["grader"]["type"] == kind]


def replay(case, case_folders):
    """What a conformance case gives: (status, score)."""
    for name, content in case.get("spec_files", {}).items():
        path = case_folders / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    try:
        grader = waza.load_grader(case["grader"], base_dir=case_folders)
    except waza.SpecError:
        return "refused", None
    grade = grader.grade(waza.Trace.from_json(case["trace"]))
    prefix = case["expect"].get("prefix")
    if prefix is not None and grade.status == "failed" and grade.details["rules"][0]["prefix"] != prefix:
        return "wrong prefix", grade.score
    return grade.status, grade.score


def holds(case, case_folders):
    """Say whether a conformance case gives what it expects."""
    status, score = replay(case, case_folders)
    want = case["expect"]
    if status != want["status"]:
        return status == "refused" and want["status"] == "error" and "why" not in case
    return status not in ("passed", "failed") or want.get("score") is None or abs(score - want["score"]) <= 1e-9


def calls(*items):
    """A trace with these calls: a name, or (name, arguments)."""
    pairs = [(item, {}) if isinstance(item, str) else item for item in items]
    events = [waza.ToolEvent(tool_name=name, args=args) for name, args in pairs]
    return waza.Trace(input="", output="", tool_events=events)


def grade(kind, trace, **config):
    return waza.load_grader({"type": kind, "config": config}).grade(trace)


scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(["bash", "edit", "view", "search", "mcp:x", "", "Bash"]) | st.text(max_size=8)
keys = st.sampled_from(["command", "path", "skill", "q", "a.b", "items"])
arguments = st.dictionaries(keys, values, max_size=4) | values
numbers = st.none() | st.integers(0, 10_000)
traces = st.builds(
    lambda **fields: waza.Trace.from_json(json.dumps(fields)),
    input=st.text(),
    output=st.text(),
    duration_ms=numbers,
    tool_events=st.none()
    | st.lists(st.fixed_dictionaries({"tool_name": names, "args": arguments, "success": st.booleans()}), max_size=8),
    usage=st.none() | st.fixed_dictionaries({"input_tokens": numbers, "output_tokens": numbers, "turns": numbers}),
    skill_invocations=st.none() | st.lists(st.fixed_dictionaries({"name": names}), max_size=4),
    available_skills=st.none() | st.lists(names, max_size=3),
)
"""Any trace that parses."""
