"""The `tool_calls` grader: names, bounds, expectations with their certificate, and what other systems get wrong."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_cases import BOMB, arguments, calls, cases, grade, holds, names, traces, values

import waza
from waza.graders.matchers import same
from waza.untrusted.yaml import read_yaml


@pytest.mark.parametrize("case", cases("tool_calls"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert holds(case, tmp_path)


def alignment(kind, trace, **config):
    return grade(kind, trace, **config).details["alignment"]


# --- refused when loaded -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "path", "says"),
    [
        ({}, "", "checks nothing"),
        ({"expect": [], "max_calls": 0}, "", "checks nothing"),
        ({"min_calls": 3, "max_calls": 2}, "", "above max_calls"),
        ({"max_calls": -1}, "config.max_calls", "at least 0"),
        ({"max_calls": True}, "config.max_calls", "whole number"),
        ({"required_tools": [""]}, "config.required_tools[0]", "must not be empty"),
        ({"forbidden_tools": ["bash|rm"]}, "config.forbidden_tools[0]", "list the names"),
        ({"min_calls": "none"}, "config.min_calls", "upper limits"),
        ({"min_calls": 1, "max_calls": "none"}, "", "min_calls (1) is above max_calls (none)"),
        ({"expect": [{"name": "a", "count": {"min": "none"}}]}, "config.expect[0].count.min", "upper limits"),
        ({"expect": [{"name": " "}]}, "config.expect[0].name", "blank"),
        ({"required_tools": ["a"], "order": "exact"}, "", "no effect"),
        ({"required_tools": ["a"], "other_calls": "forbid"}, "", "no effect"),
        ({"expect": [{"name": "a"}], "match": "bfc"}, "config.match", "did you mean 'bfcl'?"),
        ({"expect": [{"name": "a"}], "order": "exactly"}, "config.order", "one of: any, in_order, exact"),
        ({"expect": [{}]}, "config.expect[0]", "give 'tool' or 'name'"),
        ({"expect": [{"tool": "a", "name": "a"}]}, "config.expect[0]", "one of them"),
        ({"expect": [{"tool": "  "}]}, "config.expect[0].tool", "blank"),
        ({"expect": [{"tool": "["}]}, "config.expect[0].tool", "never closed"),
        ({"expect": [{"name": "a", "count": {}}]}, "config.expect[0].count", "needs a 'max'"),
        ({"expect": [{"name": "a", "count": {"min": 0}}]}, "config.expect[0].count", "needs a 'max'"),
        ({"expect": [{"name": "a", "count": {"min": 3, "max": 2}}]}, "config.expect[0].count", "above max"),
        ({"expect": [{"name": "a", "arg": {}}]}, "config.expect[0].arg", "did you mean 'args'?"),
        ({"expect": [{"name": "a", "args": {"q": {"regx": "x"}}}]}, "config.expect[0].args.q.regx", "'regex'"),
        ({"expect": [{"name": "a", "args": {"q": {}}}]}, "config.expect[0].args.q", "at least one of"),
    ],
)
def test_what_could_not_fail_or_not_work_is_refused_with_its_place(config, path, says):
    with pytest.raises(waza.SpecError) as caught:
        waza.load_grader({"type": "tool_calls", "config": config})
    (problem,) = caught.value.problems
    assert (problem.path, says in problem.message) == (path, True), problem


def test_all_mistakes_are_told_at_once():
    with pytest.raises(waza.SpecError) as caught:
        waza.load_grader({"type": "tool_calls", "config": {"max_calls": -1, "expect": [{"tool": "["}], "wat": 1}})
    assert len(caught.value.problems) == 3


# --- names and bounds ----------------------------------------------------------------------------------------------


def test_each_check_that_fails_says_so_in_the_feedback():
    result = grade(
        "tool_calls", calls("bash", "rm"), required_tools=["edit"], forbidden_tools=["rm"], min_calls=3, max_calls=1000
    )
    assert result.status == "failed" and result.score == 0.25
    assert result.feedback == (
        'required tool "edit" was not called; forbidden tool "rm" was called; expected at least 3 tool calls, got 2'
    )


def test_no_recorded_tools_is_an_error_and_no_calls_are_evidence():
    silent = waza.Trace(input="", output="")
    assert grade("tool_calls", silent, forbidden_tools=["rm"]).status == "error"
    assert grade("tool_calls", calls(), forbidden_tools=["rm"]).status == "passed"


def test_a_name_is_exact_and_a_tool_is_an_unanchored_pattern_in_any_case():
    assert grade("tool_calls", calls("search_docs"), expect=[{"name": "search"}]).status == "failed"
    assert grade("tool_calls", calls("Search_Docs"), expect=[{"tool": "search"}]).status == "passed"


# --- the certificate -----------------------------------------------------------------------------------------------


def test_the_certificate_names_the_call_each_expectation_took_and_the_calls_nobody_took():
    trace = calls("view", ("book", {"seat": "1A"}), ("book", {"seat": "2B"}), "rm")
    found = alignment("tool_calls", trace, expect=[{"name": "book"}, {"name": "book", "args": {"seat": "1A"}}])
    assert found == {
        "order": "any",
        "expectations": [
            {"expected": 'name="book"', "status": "matched", "calls": [2]},
            {"expected": 'name="book" args: [seat]', "status": "matched", "calls": [1], "checks_arguments": True},
        ],
        "extra": [0, 3],
        "out_of_order": [],
    }


def test_the_certificate_names_the_nearest_call_and_the_argument_that_differed():
    trace = calls(("search", {"q": "x", "limit": 1}), ("search", {"q": "auth", "limit": 99}))
    result = grade("tool_calls", trace, expect=[{"name": "search", "args": {"q": {"regex": "^auth"}, "limit": 10}}])
    (entry,) = result.details["alignment"]["expectations"]
    assert entry["status"] == "wrong_arguments"
    assert entry["nearest"] == {"call": 1, "differences": [{"path": "limit", "expected": {"equals": 10}, "actual": 99}]}
    assert "call 2: limit is 99" in result.feedback


def test_two_expectations_do_not_share_a_nearest_call():
    trace = calls(("t", {"a": 1, "b": 1}), ("t", {"a": 2, "b": 2}))
    wanted = [{"name": "t", "args": {"a": 9, "b": 1}}, {"name": "t", "args": {"a": 8, "b": 1}}]
    entries = alignment("tool_calls", trace, expect=wanted)["expectations"]
    assert sorted(entry["nearest"]["call"] for entry in entries) == [0, 1]


def test_a_missing_call_is_missing_not_nearly_there():
    result = grade("tool_calls", calls("ping"), expect=[{"name": "ping"}, {"name": "ping"}, {"name": "gone"}])
    assert [entry["status"] for entry in result.details["alignment"]["expectations"]] == [
        "matched",
        "missing",
        "missing",
    ]
    assert "its calls belong to other expectations" in result.feedback and "no call of that tool" in result.feedback


def test_out_of_order_calls_are_told_from_missing_ones():
    found = alignment("tool_calls", calls("b", "c", "a"), order="in_order", expect=[{"name": x} for x in "abcd"])
    assert [entry["status"] for entry in found["expectations"]] == ["out_of_order", "matched", "matched", "missing"]
    assert (found["extra"], found["out_of_order"]) == ([], [2])


@pytest.mark.parametrize(
    ("count", "made", "status", "why"),
    [
        ({"min": 2}, 1, "failed", "too_few"),
        ({"min": 2}, 2, "passed", "matched"),
        ({"min": 2}, 9, "passed", "matched"),
        ({"max": 2}, 0, "failed", "missing"),
        ({"max": 2}, 2, "passed", "matched"),
        ({"max": 2}, 3, "failed", "too_many"),
        ({"max": 0}, 0, "passed", "absent"),
        ({"max": 0}, 1, "failed", "too_many"),
        ({"min": 0, "max": 1}, 0, "passed", "absent"),
        ({"min": 0, "max": 1}, 1, "passed", "matched"),
    ],
)
@pytest.mark.parametrize("order", ["any", "in_order"])
def test_count_bounds_how_many_calls_fit(order, count, made, status, why):
    result = grade("tool_calls", calls("x", *["a"] * made), order=order, expect=[{"name": "a", "count": count}])
    assert (result.status, result.details["alignment"]["expectations"][0]["status"]) == (status, why)


def test_max_bounds_all_calls_that_fit_also_those_taken_by_other_expectations():
    expect = [{"tool": "a", "count": {"max": 1}}, {"name": "ab"}]
    assert grade("tool_calls", calls("a", "ab"), expect=expect).status == "failed"


@pytest.mark.parametrize(
    ("made", "status", "score"),
    [
        (["a", "b"], "passed", 1.0),
        (["a", "b", "x"], "failed", 2 / 3),
        (["x", "a", "b"], "failed", 2 / 3),
        (["a"], "failed", 2 / 3),
        (["b", "a"], "failed", 1 / 3),
        ([], "failed", 1 / 3),
    ],
)
def test_exact_order_has_one_more_check_for_other_calls(made, status, score):
    result = grade("tool_calls", calls(*made), order="exact", expect=[{"name": "a"}, {"name": "b"}])
    assert (result.status, result.score) == (status, pytest.approx(score))


def test_exact_order_lets_an_expectation_take_as_many_calls_as_its_count_says():
    some_then_one = [{"name": "a", "count": {"min": 1}}, {"tool": "."}]
    assert grade("tool_calls", calls("a", "a", "a"), order="exact", expect=some_then_one).status == "passed"
    some_then_two = [{"name": "a", "count": {"min": 1}}, {"name": "b", "count": {"max": 2}}]
    assert grade("tool_calls", calls("a", "a", "b", "b"), order="exact", expect=some_then_two).status == "passed"
    assert grade("tool_calls", calls("a", "b", "b", "b"), order="exact", expect=some_then_two).status == "failed"
    assert grade("tool_calls", calls("a", "b", "a", "b"), order="exact", expect=some_then_two).status == "failed"


# --- undecided calls ---


def test_a_pattern_out_of_time_is_an_error_unless_the_rest_decides():
    unsure = {"name": "t", "args": {"q": {"regex": BOMB}}}
    trace = calls(("t", {"q": "a" * 200}))
    result = grade("tool_calls", trace, order="exact", expect=[unsure])
    assert (result.status, [check.ok for check in result.checks]) == ("error", [None, None])
    assert grade("tool_calls", trace, expect=[unsure, {"name": "t"}]).status == "failed"
    at_most_one = unsure | {"count": {"min": 0, "max": 1}}
    assert grade("tool_calls", trace, expect=[{"name": "t"}, at_most_one]).status == "passed"


# --- what other systems get wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize("swapped", [False, True])
def test_an_unordered_match_does_not_depend_on_the_order_of_calls(swapped):
    """First-fit matching fails one of the two orders although a perfect pairing exists."""
    made = [("edit", {"a": 1, "mode": "w"}), ("edit", {"a": 1})]
    expect = [{"name": "edit", "args": {"a": 1}}, {"name": "edit", "args": {"a": 1, "mode": "w"}}]
    result = grade("tool_calls", calls(*(made[::-1] if swapped else made)), expect=expect)
    assert (result.status, result.score) == ("passed", 1.0)


def test_two_identical_expected_calls_and_exactly_those_two_calls_score_one():
    """Keeping matched calls in a set scores this 0.5."""
    call = ("book", {"flight": "LH1", "seats": [1, 2]})
    expect = [{"name": "book", "args": {"flight": "LH1", "seats": [1, 2]}}] * 2
    assert grade("tool_calls", calls(call, call), expect=expect).score == 1.0


def test_one_call_does_not_satisfy_two_identical_expectations():
    """Where calls are not consumed, one call satisfies both."""
    expect = [{"name": "refund", "args": {"order": "#1"}}] * 2
    assert grade("tool_calls", calls(("refund", {"order": "#1"})), expect=expect).score == 0.5


def test_stray_calls_are_shown_and_can_be_made_to_cost():
    """One expected call and fifty stray `rm` calls score 1.0 elsewhere, without a word."""
    made = calls("search", *["rm"] * 50)
    lenient = grade("tool_calls", made, expect=[{"name": "search"}])
    assert lenient.status == "passed" and lenient.details["alignment"]["extra"] == list(range(1, 51))
    assert grade("tool_calls", made, expect=[{"name": "search"}], order="exact").status == "failed"


def test_one_tool_can_be_expected_twice_with_different_arguments_of_any_type():
    """Expectations kept by tool name cannot say this; hashing argument values breaks on lists and mappings."""
    made = calls(("add", {"row": {"id": [2]}}), ("add", {"row": {"id": [1]}}))
    expect = [{"name": "add", "args": {"row": {"equals": {"id": [n]}}}} for n in (1, 2)]
    assert grade("tool_calls", made, expect=expect).score == 1.0


def test_doing_a_thing_several_times_instead_of_once_can_be_failed():
    made = calls(("update", {"id": 1}), ("update", {"id": 1}))
    assert grade("tool_calls", made, expect=[{"name": "update", "count": {"max": 1}}]).status == "failed"


def test_every_order_takes_arguments_with_every_matcher():
    """Sequence checks elsewhere are exact or in order only, without arguments, or with literal ones."""
    made = calls(("search", {"q": "auth flow", "limit": 10.4}), "noise", ("open", {"path": "/docs/a.md"}))
    expect = [
        {"name": "search", "args": {"q": {"regex": "^auth"}, "limit": {"equals": 10, "tolerance": 0.5}}},
        {"tool": "open|view", "args": {"path": {"contains": "/docs/"}}},
    ]
    assert [grade("tool_calls", made, order=o, expect=expect).status for o in ("any", "in_order", "exact")] == [
        "passed",
        "passed",
        "failed",
    ]


# --- properties ----------------------------------------------------------------------------------------------------

matchers = st.one_of(
    st.sampled_from([{"regex": "a"}, {"contains": "a"}, {"range": {"gte": 0}}, {"json_schema": {"type": "string"}}]),
    values.map(lambda value: {"equals": value}),
)
expectations = st.builds(
    lambda how, name, args, count: {how: name} | ({"args": args} if args else {}) | ({"count": count} if count else {}),
    st.just("name"),
    names.filter(lambda name: name.strip() and "|" not in name),
    st.dictionaries(st.sampled_from(["q", "items[*]", "a.b", "path"]), matchers, max_size=2),
    st.sampled_from([None, None, {"min": 2}, {"max": 1}, {"max": 0}, {"min": 1, "max": 3}]),
)
configs = st.fixed_dictionaries(
    {
        "expect": st.lists(expectations, min_size=1, max_size=4),
        "order": st.sampled_from(["any", "in_order", "exact"]),
        "required_tools": st.lists(st.sampled_from(["bash", "edit"]), max_size=2),
        "max_calls": st.sampled_from(["none", 1, 3, 5]),
    }
)


@settings(deadline=None)
@given(configs, traces)
def test_any_trace_that_parses_is_graded_and_only_missing_evidence_is_an_error(config, trace):
    result = grade("tool_calls", trace, **config)
    assert (result.status == "error") == (trace.tool_events is None)
    assert 0.0 <= result.score <= 1.0
    assert (result.status == "passed") == bool(result.checks and all(check.ok for check in result.checks))
    json.dumps(result.details)


@settings(deadline=None)
@given(configs, st.lists(st.tuples(names, arguments), max_size=6), st.randoms())
def test_any_order_verdicts_do_not_change_when_the_calls_are_permuted(config, made, random):
    config = config | {"order": "any"}
    before = grade("tool_calls", calls(*made), **config)
    random.shuffle(made)
    after = grade("tool_calls", calls(*made), **config)
    assert (before.status, before.score) == (after.status, after.score)
    statuses = [[e["status"] for e in each.details["alignment"]["expectations"]] for each in (before, after)]
    assert statuses[0] == statuses[1]


objects = st.dictionaries(st.sampled_from("abc"), values, min_size=1, max_size=3)


@settings(deadline=None)
@given(st.lists(objects, min_size=1, max_size=4), st.data())
def test_a_mutated_argument_always_breaks_the_match_it_takes_part_in(made, data):
    expect = [{"name": f"t{n}", "args": {k: {"equals": v} for k, v in args.items()}} for n, args in enumerate(made)]
    assert grade("tool_calls", calls(*((f"t{n}", args) for n, args in enumerate(made))), expect=expect).score == 1.0
    which = data.draw(st.integers(0, len(made) - 1))
    key = data.draw(st.sampled_from(sorted(made[which])))
    made[which] = made[which] | {key: data.draw(values.filter(lambda value: not same(value, made[which][key])))}
    result = grade("tool_calls", calls(*((f"t{n}", args) for n, args in enumerate(made))), expect=expect)
    statuses = [entry["status"] for entry in result.details["alignment"]["expectations"]]
    assert statuses == ["wrong_arguments" if n == which else "matched" for n in range(len(made))]
    (difference,) = result.details["alignment"]["expectations"][which]["nearest"]["differences"]
    assert difference["path"] == key


def test_thousands_of_hostile_calls_end_soon_and_say_little():
    made = calls(*[("t", {"q": os.urandom(4).hex() * 1000})] * 3000)
    result = grade("tool_calls", made, expect=[{"name": "t", "args": {"q": {"regex": "^zz"}}}] * 5)
    assert result.status == "failed" and len(result.feedback) < 5_000


def test_every_example_of_the_migration_guide_loads_and_old_and_new_agree():
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "migrating.md").read_text(encoding="utf-8")
    examples = [read_yaml(block.split("```")[0], "migrating.md")[0] for block in guide.split("```yaml")[1:]]
    graders = [waza.load_grader(example) for example in examples]
    done = calls(
        ("search", {}),
        ("search_docs", {"query": "auth flow", "limit": 10.0, "filters": [{"field": ["x"]}, {"field": ["lang"]}]}),
        ("read_file", {"path": "app/config.yml"}),
        ("bash", {"command": "npm  test", "timeout": 5000}),
        ("book", {"seat": "1A", "price": 99}),
        ("book", {"seat": "1B", "price": 100}),
    )
    assert [grader.grade(done).status for grader in graders] == ["passed"] * 9
    assert [grader.grade(calls()).status for grader in graders] == ["failed"] * 9


REFERENCE = [
    {"name": "book", "args": {"to": "Oslo"}},
    {"name": "pay", "args": {"amount": 5}},
]
BOOK, PAY, ODD = ("book", {"to": "Oslo"}), ("pay", {"amount": 5}), ("log", {})


@pytest.mark.parametrize(
    ("match", "good", "bad"),
    [
        (
            "agentevals-strict",
            [[BOOK, PAY]],
            [[PAY, BOOK], [BOOK, PAY, ODD], [BOOK], [BOOK, ("pay", {"amount": 5, "x": 1})]],
        ),
        ("agentevals-unordered", [[BOOK, PAY], [PAY, BOOK]], [[BOOK], [BOOK, PAY, ODD], [BOOK, PAY, PAY]]),
        ("agentevals-subset", [[], [PAY], [PAY, BOOK]], [[BOOK, ODD], [PAY, PAY]]),
        ("agentevals-superset", [[PAY, BOOK], [ODD, BOOK, PAY, PAY]], [[PAY], [BOOK, ("pay", {})]]),
    ],
)
def test_the_trajectory_matches_of_agentevals_have_short_forms(match, good, bad):
    def passes(made):
        return grade("tool_calls", calls(*made), expect=REFERENCE, match=match).passed

    assert [made for made in good if not passes(made)] == []
    assert [made for made in bad if passes(made)] == []


def test_bfcl_lists_of_possible_answers_have_a_short_form():
    truth = [{"name": "weather", "args": {"city": ["Oslo", "Oslo, Norway"], "unit": ["C", ""], "days": [3]}}]

    def passes(**args):
        return grade("tool_calls", calls(("weather", args)), expect=truth, match="bfcl").passed

    assert passes(city="OSLO", days=3) and passes(city="Oslo, Norway", unit="c", days=3.0)
    assert not passes(city="Bergen", days=3) and not passes(city="Oslo", unit="F", days=3)
    assert not passes(city="Oslo", days=3, extra=1) and not passes(city="Oslo")


def test_tau2_gold_actions_have_a_short_form():
    def passes(call, **action):
        return grade(
            "tool_calls", calls("look", ("cancel", call)), expect=[{"name": "cancel", **action}], match="tau2"
        ).passed

    assert passes({"id": 1, "why": "x"}, arguments={"id": 1, "why": "y"}, compare_args=["id"])
    assert not passes({"id": 1, "why": "x"}, arguments={"id": 1, "why": "y"})
    assert not passes({"id": 1, "more": 2}, arguments={"id": 1})
    assert passes({"id": {"a": 1}}, arguments={"id": {"a": 1}}) and passes(
        {"id": 9}, arguments={"id": 1}, compare_args=[]
    )


def test_a_short_form_can_be_loaded_from_what_a_run_stores():
    from waza.suites.suite import grader_as_data

    for match in ("bfcl", "tau2", "agentevals-subset"):
        spec = {"type": "tool_calls", "config": {"expect": [{"name": "t", "args": {"x": [1, ""]}}] * 2, "match": match}}
        stored = grader_as_data(waza.load_grader(spec))
        assert "match" not in stored["config"] and grader_as_data(waza.load_grader(stored)) == stored
