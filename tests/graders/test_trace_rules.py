"""The `trace_rules` grader: conformance, refusals, evidence, and agreement with two independent readings of rules."""

import random

import pytest
from rule_reference import (
    order_of,
    prefix_by_definition,
    random_calls,
    random_rule,
    status_by_definition,
    status_by_formula,
)
from tool_cases import BOMB, cases, holds

import waza
from campaign import count, size


@pytest.mark.parametrize("case", cases("trace_rules"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert holds(case, tmp_path)


def trace(*calls, **fields):
    events = [{"tool_name": call} if isinstance(call, str) else call for call in calls]
    events = [{"turn": number, **call} for number, call in enumerate(events, 1)]
    return waza.Trace.from_json({"input": "", "output": "", "tool_events": events, **fields})


def load(*rules, **config):
    return waza.load_grader({"type": "trace_rules", "config": {"rules": list(rules), **config}})


def evidence(rule, seen, **config):
    return load(rule, **config).grade(seen).details["rules"][0]


# --- agreement with independent readings ----------------------------------------------------------------------


def test_rules_on_sequential_traces_agree_with_ltlf_formulas():
    for seed in range(size(1_500, 20_000, 100_000)):
        rng = random.Random(seed)
        rule, names = random_rule(rng, is_sequential=True), rng.choices("abcd", k=rng.randint(0, 8))
        got = evidence(rule, trace(*names))
        assert got["status"] == status_by_formula(rule, tuple(names)), (rule, names)
        count("rules checked against LTLf formulas")


def test_rules_on_concurrent_calls_agree_with_the_definition_and_its_counterexamples():
    for seed in range(size(1_500, 20_000, 100_000)):
        rng = random.Random(seed)
        rule, calls = random_rule(rng, is_sequential=False), random_calls(rng)
        got = evidence(rule, trace(*calls, usage={"turns": 3}))
        precedes = order_of(calls)
        status = status_by_definition(rule, calls, len(calls), precedes)
        assert got["status"] == status, (rule, calls)
        if status == "violated":
            assert got["prefix"] == prefix_by_definition(rule, calls, precedes), (rule, calls)
        count("rules checked against their definition")


def test_a_window_between_grows_with_a_second_concurrent_end():
    names = [("c", 1, "p"), ("b", 2, "q"), ("a", 2, "p"), ("b", 2, "p")]
    calls = [{"tool_name": name, "turn": turn, "parent_tool_call_id": parent} for name, turn, parent in names]
    got = evidence({"only": "c", "between": ["c", "b"]}, trace(*calls))
    assert (got["status"], got["calls"], got["prefix"]) == ("violated", [2], 4)


def test_the_order_in_which_parallel_calls_are_listed_does_not_matter():
    for seed in range(size(300, 5_000, 20_000)):
        rng = random.Random(seed)
        rule = {key: value for key, value in random_rule(rng, is_sequential=False).items() if key != "per"}
        calls = [{key: call[key] for key in ("tool_name", "turn")} for call in random_calls(rng)]
        shuffled = sorted(calls, key=lambda call: (call["turn"], rng.random()))
        known = {"usage": {"turns": 3}}
        assert evidence(rule, trace(*calls, **known))["status"] == evidence(rule, trace(*shuffled, **known))["status"]


# --- bound values ----------------------------------------------------------------------


def test_values_are_bound_for_each_trigger_and_looked_up():
    rule = {
        "name": "the order that is deleted was read",
        "require": {"name": "get", "args": {"id": {"bound": "order"}}, "where": "success"},
        "before": {"name": "delete", "bind": {"order": "args.id"}},
    }
    read, drop = {"tool_name": "get", "args": {"id": 7}}, {"tool_name": "delete", "args": {"id": 7.0}}
    assert load(rule).grade(trace(read, drop)).passed
    grade = load(rule).grade(trace(read, drop, {"tool_name": "delete", "args": {"id": 8}}))
    assert grade.feedback == (
        "the order that is deleted was read: no get (id = bound order) that succeeded before call 3 (delete), "
        "seen in calls 1-3"
    )
    assert grade.details["rules"][0] | {"name": ""} == {
        "name": "",
        "status": "violated",
        "windows": 2,
        "trigger": 2,
        "calls": [],
        "prefix": 3,
        "bound": {"order": [8]},
    }


@pytest.mark.parametrize(
    ("matcher", "bound", "value", "fits"),
    [
        ({"bound": "v"}, 1, True, False),
        ({"bound": "v"}, {"a": [1]}, {"a": [1.0]}, True),
        ({"contains": {"bound": "v"}}, "ab-1", "rm ab-1 now", True),
        ({"contains": {"bound": "v"}}, 7, "rm 7", True),
        ({"contains": {"bound": "v"}, "ignore_case": True}, "AB", "rm ab", True),
        ({"any_of": [{"bound": "v"}, "all"]}, 1, "all", True),
        ({"any_of": [{"bound": "v"}, "all"]}, 1, 2, False),
        ({"not": {"bound": "v"}}, 1, 2, True),
        ({"bound": "v", "type": "string"}, 1, 1, False),
        ({"equals": "$5"}, 5, "$5", True),
    ],
)
def test_a_bound_value_is_a_matcher_like_others(matcher, bound, value, fits):
    names = {"bind": {"v": "args.x"}} if "bound" in str(matcher) else {}
    rule = {"require": {"name": "use", "args": {"y": matcher}}, "after": {"name": "make", **names}}
    made, used = {"tool_name": "make", "args": {"x": bound}}, {"tool_name": "use", "args": {"y": value}}
    assert load(rule).grade(trace(made, used)).passed is fits


def test_values_come_from_arguments_and_results_of_any_shape():
    def status(path, **made):
        rule = {
            "require": {"name": "use", "result_fields": {"id": {"bound": "v"}}},
            "after": {"name": "make", "bind": {"v": path}},
        }
        used = {"tool_name": "use", "result": '{"id": 2}'}
        return load(rule).grade(trace({"tool_name": "make", **made}, used)).status

    assert status("result.items[*].id", result={"items": [{"id": 1}, {"id": 2}]}) == "passed"
    assert status("result[1]", result="[1, 2]") == "passed"
    assert status("result", result=2) == "passed"
    assert status("args.a.b", args={"a.b": 2}) == "passed"
    assert status("args.items[*]", args={"items": []}) == "error"
    assert status("result.id", result="no JSON") == "error"


# --- messages, skills, sub-agents ----------------------------------------------------------------------


def test_a_message_between_concurrent_calls_is_ordered_by_its_place():
    def spoken(*entries):
        calls = [{"tool_name": name, "turn": 1} for name in entries if len(name) == 1]
        events = [
            {"type": "tool_call", "tool_name": name}
            if len(name) == 1
            else {"type": "assistant_message", "content": name}
            for name in entries
        ]
        return trace(*calls, events=events, usage={"turns": 1})

    sure = {"message": {"contains": "sure"}}
    ask = {"require": sure, "before": "b"}
    assert evidence(ask, spoken("a", "sure?", "b"))["status"] == "passed"
    assert evidence(ask, spoken("a", "b", "sure?"))["status"] == "violated"
    assert evidence({"forbid": "b", "after": sure}, spoken("a", "sure?", "b"))["prefix"] == 2
    assert evidence({"forbid": "b", "after": "a"}, spoken("a", "sure?", "b"))["status"] == "passed"
    assert evidence({"count": sure, "at_most": 1}, spoken("sure", "a", "sure?"))["prefix"] == 1
    assert evidence({"require": sure, "after": "a", "within": 1}, spoken("a", "b", "sure"))["status"] == "passed"
    assert evidence({"forbid": "b", "until": sure}, spoken("a", "sure", "b"))["status"] == "passed"


def test_a_transcript_that_does_not_fit_the_calls_is_undecided():
    events = [{"type": "tool_call", "tool_name": "other"}, {"type": "user_message", "content": "hi"}]
    grade = load({"require": {"message": {"contains": "hi"}, "from": "user"}}).grade(trace("a", events=events))
    assert grade.status == "error" and "the transcript does not fit the tool calls" in grade.feedback


def test_names_of_other_programs_count_as_the_agents_tool():
    seen = trace({"tool_name": "Read", "args": {"file_path": "a"}}, {"tool_name": "Edit"}, engine="claude-code")
    rule = {"require": {"name": "read_file", "args": {"path": "a"}}, "before": "edit_file"}
    assert load(rule).grade(seen).passed
    assert load(rule, tool_names="exact").grade(seen).status == "error"


def test_a_pattern_that_runs_out_of_time_is_undecided_only_where_it_matters():
    slow = {"name": "x", "args": {"q": {"regex": BOMB}}}
    call = {"tool_name": "x", "args": {"q": "a" * 200}}
    assert evidence({"forbid": slow}, trace(call))["status"] == "undecided"
    assert evidence({"forbid": [slow, "y"]}, trace(call, "y"))["status"] == "violated"
    assert evidence({"require": slow, "before": "never"}, trace(call))["status"] == "not_applied"


# --- feedback and evidence ----------------------------------------------------------------------


def test_rules_that_did_not_apply_are_named_and_never_a_pass():
    absent, held = {"require": "run_tests", "after": {"tool": "edit|write"}}, {"forbid": "rm"}
    grade = load(held, absent).grade(trace("ls"))
    assert (grade.score, grade.feedback) == (1.0, "1 rule passed; did not apply: run_tests after edit|write")
    assert [check.claim for check in grade.checks] == ["no rm"]
    grade = load({"require": "get", "before": "delete"}).grade(trace("ls"))
    assert (grade.status, grade.feedback) == (
        "error",
        "no rule applied: delete never happened; when_absent: pass or fail decides such traces",
    )
    assert [(check.ok, check.claim) for check in grade.checks] == [(None, "get before each delete")]


@pytest.mark.parametrize(
    ("rule", "calls", "says"),
    [
        ({"require": "a"}, "b", "no a"),
        ({"forbid": "a"}, "ba", "call 2 (a) is forbidden, seen in calls 1-2"),
        ({"forbid": "b", "after": "a"}, "ab", "call 2 (b) after call 1 (a) is forbidden, seen in calls 1-2"),
        ({"only": "a", "until": "c"}, "abc", "call 2 (b) is not a until c, seen in calls 1-2"),
        ({"count": "a", "at_most": 1}, "aa", "2 a, at most 1: call 1 (a), call 2 (a), seen in calls 1-2"),
        ({"count": "a", "at_least": 2, "after": "b"}, "ba", "1 of at least 2 a after call 1 (b), seen in call 1"),
        ({"require": "x", "between": ["a", "b"]}, "ab", "no x between call 1 (a) and b, seen in calls 1-2"),
        ({"forbid": "a", "per": "turn"}, "ba", "call 2 (a) in turn 2 is forbidden, seen in calls 1-2"),
        ({"require": "a", "before": "b", "when_absent": "fail"}, "a", "b never happened"),
        ({"require": {"message": {"contains": "x"}}}, "", 'no assistant message ({"contains":"x"})'),
        (
            {"count": {"message": {"contains": "x"}, "from": "user"}, "at_least": 2},
            "",
            'no user message ({"contains":"x"})',
        ),
    ],
)
def test_feedback_says_what_is_wrong_and_where_it_is_seen(rule, calls, says):
    events = [{"type": "tool_call", "tool_name": call} for call in calls]
    assert load(rule).grade(trace(*calls, events=events)).feedback == says


# --- refused ----------------------------------------------------------------------

BIND = {"name": "b", "bind": {"i": "args.id"}}


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({}, "a rule needs one of: require, forbid, only, count"),
        ({"require": "a", "forbid": "b"}, "found two: forbid, require"),
        ({"requires": "a"}, "unknown key 'requires'; did you mean 'require'?"),
        ({"count": "a"}, "'count' needs 'at_least' or 'at_most'"),
        ({"forbid": "a", "at_most": 2}, "'at_most' belongs to 'count'"),
        ({"count": "a", "at_least": 0}, "must be at least 1: 0 always holds"),
        ({"count": "a", "at_least": 3, "at_most": 2}, "at_least (3) is above at_most (2)"),
        (
            {"require": "a", "before": "b", "after": "c"},
            "'before' and 'after' cannot be combined; the calls from A to B are 'between: [A, B]'",
        ),
        ({"require": "a", "before": "b", "until": "c"}, "'before' and 'until' cannot be combined"),
        ({"require": "a", "after": "b", "per": "turn"}, "'after' and 'per' cannot be combined"),
        ({"require": "a", "within": 2}, "'within' needs 'before' or 'after' alone"),
        ({"require": "a", "after": "b", "until": "c", "fresh": True}, "'fresh' needs 'before' or 'after' alone"),
        ({"forbid": "a", "between": ["b"]}, "two are needed: [from, to]"),
        ({"forbid": "a", "until": "b", "when_absent": "pass"}, "'when_absent' has no effect: this rule always applies"),
        ({"require": {}}, "this matches everything; name a tool or say what the call is like"),
        ({"require": {"extra_args": "allow"}}, "this matches everything"),
        ({"require": ""}, "must not be empty"),
        ({"require": []}, "must not be empty"),
        ({"require": {"name": "a", "bind": {"i": "args.id"}}, "after": "b"}, "'bind' belongs to the trigger"),
        ({"require": "a", "after": BIND}, "'i' is bound but never used"),
        (
            {"require": {"args": {"x": {"bound": "i"}}}, "after": {"name": "b", "bind": {"i": "id"}}},
            "a path starts with 'args.' or 'result'",
        ),
        (
            {"require": {"args": {"x": {"bound": "i"}}}, "after": [BIND, "c"]},
            "each alternative binds the same names",
        ),
        (
            {"require": {"args": {"x": {"bound": "ids"}}}, "after": {"name": "b", "bind": {"id": "result"}}},
            "nothing is bound as 'ids'; did you mean 'id'?",
        ),
        ({"require": {"args": {"x": {"bound": "j"}}}}, "nothing is bound as 'j'"),
        ({"require": {"message": {"contains": "x"}}, "turns": {"to": 2}}, "a message has no turn of its own"),
        ({"require": {"message": {"contains": "x"}, "args": {"a": 1}}}, "unknown key 'args'"),
        ({"only": {"message": {"contains": "x"}}}, "'only' is about tool calls"),
        ({"forbid": "a", "turns": {}}, "give 'from' or 'to'"),
        ({"forbid": "a", "turns": {"from": 3, "to": 2}}, "from (3) is above to (2)"),
        ({"forbid": "a", "turns": {"from": 1}}, "from 1 leaves nothing out"),
        ({"count": "a", "at_most": 3, "per": {"calls": 3}}, "at most 3 of 3 calls always holds"),
        ({"count": "a", "at_least": 4, "per": {"calls": 3}}, "at least 4 of 3 calls never holds"),
        ({"forbid": "a", "until": ["b", "a"]}, "'forbid' and the end of the window are the same: it is never inside"),
        ({"require": "a", "between": ["b", "a"]}, "'require' and the end of the window are the same"),
        ({"forbid": "a", "after": "a", "fresh": True}, "'forbid' and the end of the window are the same"),
        ({"require": {"result": {"optional": True, "equals": 1}}}, "'optional' belongs to the argument itself"),
    ],
)
def test_mistakes_are_refused_with_their_reason(rule, says):
    with pytest.raises(waza.SpecError) as refused:
        load(rule)
    (problem,) = refused.value.problems
    assert says in problem.message and problem.path.startswith("config.rules[0]")


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(waza.SpecError, match="two rules are called 'n'"):
        load({"name": "n", "require": "a"}, {"name": "n", "forbid": "b"})
