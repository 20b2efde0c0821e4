"""Matchers for arguments: what each kind means, which mistakes are refused, and that each can say what differed."""

import copy
import json
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tool_cases import BOMB, values

import waza
from waza.graders._expected_calls import CallMatcher, find
from waza.graders.matchers import ArgMatcher, parse_path, same, text_of


def fits(matcher, args):
    """True, False, or None when undecided."""
    found = find(matcher, ["t"], [waza.ToolEvent(tool_name="t", args=args)])
    return True if found.sure else None if found.maybe else False


def accepts(matcher, value):
    return fits(CallMatcher(name="t", args={"v": matcher}), {"v": value})


@pytest.mark.parametrize(
    ("matcher", "good", "bad"),
    [
        (10, [10, 10.0], [11, "10", True, None, [10]]),
        ("x", ["x"], ["X", "x ", 1]),
        (True, [True], [1, "true", 1.0]),
        (1, [1, 1.0], [True]),
        (None, [None], ["", 0, False]),
        ([1, 2], [[1, 2], [1.0, 2]], [[2, 1], [1, 2, 3], "[1,2]", [True, 2]]),
        ({"equals": {"a": 1, "b": [True]}}, [{"b": [True], "a": 1.0}], [{"a": 1}, {"a": 1, "b": [1]}]),
        ({"equals": 10, "tolerance": 0.5}, [9.5, 10, 10.5], [9.49, 10.51, "10", True]),
        ({"equals": 1, "tolerance": 0.1}, [1.1, 0.9], [1.11]),
        ({"equals": [1, {"x": 2}], "tolerance": 1}, [[2, {"x": 1}]], [[3, {"x": 2}]]),
        ({"regex": "^auth"}, ["auth-login"], ["login", "Auth", {"auth": 1}]),
        ({"regex": "^$"}, [None, ""], ["x", 0]),
        ({"regex": r'^\{"a":\[1,2\.5\],"b":"[\\]u003c"\}$'}, [{"b": "<", "a": [1.0, 2.5]}], [{"a": [1], "b": "<"}]),
        ({"contains": "x"}, ["axb", ["x", "y"], {"k": "x"}], ["AXB", ["xx"], ["y"]]),
        ({"contains": 5}, [[1, 5.0], "15", 50], [["5"], [True], "1"]),
        ({"contains": True}, [[True], {"on": True}], [[1], "True"]),
        ({"range": {"gte": 1, "lt": 5}}, [1, 4.999], [0.999, 5, "3", True, None, [2]]),
        ({"range": {"gt": 0, "lte": 5}}, [5, 0.001], [0, 5.001]),
        ({"json_schema": {"type": "integer", "minimum": 0}}, [3, 3.0], [-1, "3", 1.5]),
        ({"regex": "^a", "contains": "z"}, ["abz"], ["ab", "zz"]),
        ({"range": {"gte": 1}, "equals": 3}, [3], [2, 0]),
        ({"any_of": ["x", 1, {"regex": "^a"}]}, ["x", 1.0, "ab"], ["X", True, "ba", None]),
        ({"any_of": [None, [1]]}, [None, [1.0]], [[], "null"]),
        ({"not": "x"}, ["X", 1, None], ["x"]),
        ({"not": None}, ["", 0, False], [None]),
        ({"not": {"any_of": ["a", {"range": {"gt": 5}}]}, "regex": "."}, ["b", 5], ["a", 6, ""]),
        ({"type": "integer"}, [3, 3.0, -1], [3.5, True, "3", None]),
        ({"type": "number"}, [3, 3.5], [True, "3"]),
        ({"type": ["string", "null"]}, ["", None], [0, [], {}]),
        ({"type": "object"}, [{}], [[], None]),
        ({"equals": "ΣΑΣ", "ignore_case": True}, ["σας", "σασ"], ["σα", 1]),
        ({"equals": {"K": ["A"]}, "ignore_case": True}, [{"K": ["a"]}], [{"k": ["a"]}]),
        ({"contains": "Oslo", "ignore_case": True}, ["in OSLO", ["oslo"], {"Key": "OSLO"}], ["Olso", {"OSLO": 1}]),
        ({"contains": "Key", "ignore_case": True}, [{"Key": 1}], [{"KEY": 1}]),
        ({"regex": "^straße", "ignore_case": True}, ["STRAßE 1"], ["strasse"]),
        ({"any_of": ["NYC", {"equals": "LA"}], "ignore_case": True}, ["nyc", "LA"], ["la"]),
        ({"not": {"any_of": ["NYC"]}, "ignore_case": True}, ["LA"], ["nyc"]),
        ({"present": True}, [None, 0, "x"], []),
        ({"present": False}, [], [None, 0]),
    ],
)
def test_a_matcher_takes_what_it_says_and_nothing_else(matcher, good, bad):
    assert [value for value in good if not accepts(matcher, value)] == []
    assert [value for value in bad if accepts(matcher, value)] == []


@pytest.mark.parametrize(
    ("matcher", "says"),
    [
        ({}, "needs at least one of"),
        ({"wat": 1}, "Extra inputs"),
        ({"tolerance": 1}, "needs at least one of"),
        ({"equals": "a", "tolerance": 1}, "needs a number"),
        ({"equals": 1, "tolerance": -1}, "greater than or equal to 0"),
        ({"regex": ""}, "empty pattern"),
        ({"any_of": []}, "'any_of' must not be empty"),
        ({"any_of": [{"equals": 1, "optional": True}]}, "'optional' belongs to the argument itself"),
        ({"not": {"present": True}}, "'present' belongs to the argument itself"),
        ({"optional": True}, "needs at least one of: equals, regex, contains, range, json_schema, any_of, not, type"),
        ({"present": True, "optional": True}, "'present' cannot be combined with other keys"),
        ({"equals": 3, "ignore_case": True}, "'ignore_case' needs a text to compare"),
        ({"any_of": [{"equals": "a"}], "ignore_case": True}, "'ignore_case' needs a text to compare"),
        ({"type": "text"}, "found the text 'text'; one of: string, number, integer, boolean, array, object, null"),
        ({"type": []}, "must not be empty"),
        ({"bound": "x"}, "'bound' belongs to the rules of trace_rules"),
        ({"regex": "("}, "'('"),
        ({"regex": 5}, "a pattern is a text"),
        ({"regex": None}, "must not be empty"),
        ({"contains": ""}, "must not be empty"),
        ({"contains": None}, "must not be empty"),
        ({"range": {}}, "at least one of: gte"),
        ({"range": "bad"}, "valid dictionary"),
        ({"range": {"gte": "1"}}, "valid number"),
        ({"range": {"gte": True}}, "valid number"),
        ({"range": {"min": 1}}, "Extra inputs"),
        ({"range": {"gte": 5, "lte": 4}}, "no number lies"),
        ({"range": {"gt": 5, "lte": 5}}, "no number lies"),
        ({"json_schema": {}}, "at least 1 item"),
        ({"json_schema": {"type": "nonsense"}}, "nonsense"),
        ({"json_schema": {"$ref": "https://example.com/s.json"}}, "nothing is ever fetched"),
    ],
)
def test_a_matcher_that_could_not_fail_or_not_work_is_refused_at_its_place(matcher, says):
    with pytest.raises(ValidationError) as caught:
        CallMatcher.model_validate({"name": "t", "args": {"v": matcher}})
    (mistake,) = caught.value.errors()
    assert says in mistake["msg"]
    assert mistake["loc"][:2] == ("args", "v")


@pytest.mark.parametrize(
    ("key", "args", "expected"),
    [
        ("user.address.city", {"user": {"address": {"city": 7}}}, True),
        ("user.address.city", {"user": {"address": "city"}}, False),
        ("items[0].id", {"items": [{"id": 7}, {"id": 8}]}, True),
        ("items[1].id", {"items": [{"id": 7}]}, False),
        ("items[-1].id", {"items": [{"id": 1}, {"id": 7}]}, True),
        ("items[*].id", {"items": [{"id": 1}, {"id": 7}]}, True),
        ("items[*].id", {"items": []}, False),
        ("grid[1][0]", {"grid": [[1], [7]]}, True),
        ("a.b", {"a.b": 7, "a": {"b": 1}}, True),
        ("a.b", {"a.b": 1, "a": {"b": 7}}, False),
        ("filter[name]", {"filter[name]": 7}, True),
        ("filter[name]", {"filter": {"name": 7}}, False),
        ("a..b", {"a": {"": {"b": 7}}}, False),
        ("v", {}, False),
        ("v", None, False),
        ("v", [7], False),
        ("v", "v", False),
    ],
)
def test_a_key_may_be_a_path_and_a_literal_key_wins(key, args, expected):
    assert fits(CallMatcher(name="t", args={key: 7}), args) is expected


def test_one_element_must_satisfy_all_matchers_of_a_path_with_a_star():
    matcher = CallMatcher(name="t", args={"items[*]": {"range": {"gte": 1}, "equals": 5}})
    assert fits(matcher, {"items": [0, 5]})
    assert not fits(matcher, {"items": [1, 0]})


def test_a_missing_argument_never_matches_not_even_null():
    assert not fits(CallMatcher(name="t", args={"x": {"equals": None}}), {})
    assert not fits(CallMatcher(name="t", args={"x": {"json_schema": {"type": ["null", "string"]}}}), {})


def test_every_difference_names_path_expected_and_actual():
    matcher = CallMatcher(name="t", args={"q": {"regex": "^a", "contains": "z"}, "n": 10, "gone": 1, "i[*]": 3})
    differences = [each.as_json() for each in matcher.differences({"q": "abc", "n": "10", "i": [1, 2]})]
    assert differences == [
        {"path": "q", "expected": {"contains": "z"}, "actual": "abc"},
        {"path": "n", "expected": {"equals": 10}, "actual": "10"},
        {"path": "gone", "expected": {"equals": 1}, "missing": True},
        {"path": "i[*]", "expected": {"equals": 3}, "actual": [1, 2]},
    ]


def test_a_schema_says_what_is_wrong_with_the_argument():
    matcher = CallMatcher(name="t", args={"user": {"json_schema": {"required": ["age"]}}})
    (difference,) = matcher.differences({"user": {"name": "x"}})
    assert '"age" is a required property' in str(difference)


def test_huge_arguments_are_shown_as_head_and_tail():
    (difference,) = CallMatcher(name="t", args={"q": "x"}).differences({"q": "y" * 1_000_000})
    assert len(json.dumps(difference.as_json())) < 500
    assert len(str(difference)) < 500


def test_arguments_nested_to_the_limit_of_the_parser_are_undecided_at_worst():
    depth = 900
    args = msgspec.json.decode('{"v":' + "[" * depth + "]" * depth + "}")
    lists = {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}
    for matcher in ({"regex": "x"}, {"contains": "x"}, {"json_schema": lists}, 1):
        assert fits(CallMatcher(name="t", args={"v": matcher}), args) in (True, False, None)


def test_a_pattern_that_runs_out_of_time_leaves_the_call_undecided_unless_the_rest_decides():
    matcher = CallMatcher(name="t", args={"q": {"regex": BOMB}, "n": 1})
    assert fits(matcher, {"q": "aab", "n": 1}) is True
    assert fits(matcher, {"q": "a" * 200, "n": 1}) is None
    assert fits(matcher, {"q": "a" * 200, "n": 2}) is False
    assert [str(each) for each in matcher.differences({"q": "a" * 200})] == [
        "q could not be read within limits",
        "n is not given",
    ]


def test_patience_with_arguments_that_cannot_be_read_ends():
    started = time.monotonic()
    assert ArgMatcher(regex=BOMB).matches_any(["a" * 200] * 100) is None
    events = [waza.ToolEvent(tool_name="t", args={"q": "a" * 200})] * 100
    found = find(CallMatcher(name="t", args={"q": {"regex": BOMB}}), ["t"] * 100, events)
    assert (found.sure, len(found.maybe)) == ([], 100)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (None, ""),
        (3.0, "3"),
        (1e20, "100000000000000000000"),
        (2.5, "2.5"),
        (True, "true"),
        ([], "[]"),
        ({"b": 1, "a": ["<&>", 2.0]}, '{"a":["\\u003c\\u0026\\u003e",2],"b":1}'),
    ],
)
def test_values_read_as_compact_json(value, text):
    assert text_of(value) == text


def test_a_difference_shows_characters_as_they_are_and_not_as_matching_reads_them():
    (difference,) = CallMatcher(name="t", args={"q": {"equals": ["a > b & c"]}}).differences({"q": {"x": "<b>"}})
    assert str(difference) == 'q is {"x":"<b>"}, expected {"equals":["a > b & c"]}'


def test_paths_have_keys_indexes_and_stars():
    assert parse_path("items[*].id") == ("items", None, "id")
    assert parse_path("a[0][-1]") == ("a", 0, -1)
    assert [parse_path(key) for key in ("plain", "filter[name]", "a[", "a]", ".a", "a.", "[0]")] == [None] * 7


@settings(deadline=None)
@given(values)
def test_a_value_equals_its_copy_and_survives_json(value):
    assert same(value, copy.deepcopy(value))
    assert same(value, json.loads(json.dumps(value)))


@settings(deadline=None)
@given(values, values)
def test_equality_agrees_with_compact_json(one, other):
    assert same(one, other) == (text_of([one]) == text_of([other]))


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), values, min_size=1), st.data())
def test_a_mutated_argument_always_breaks_the_match(args, data):
    matcher = CallMatcher(name="t", args={key: {"equals": value} for key, value in args.items()})
    assert fits(matcher, args)
    key = data.draw(st.sampled_from(sorted(args)))
    mutated = args | {key: data.draw(values.filter(lambda value: not same(value, args[key])))}
    assert fits(matcher, mutated) is False
    assert [difference.path for difference in matcher.differences(mutated)] == [key]


def test_the_schema_for_editors_takes_a_bare_value_and_a_mapping():
    mapping, bare = ArgMatcher.model_json_schema()["$defs"]["ArgMatcher"]["anyOf"]
    old = {"equals", "tolerance", "regex", "contains", "range", "json_schema"}
    assert set(mapping["properties"]) == old | {"any_of", "not", "type", "present", "optional", "ignore_case"}
    assert "array" in bare["type"] and "object" not in bare["type"]


def test_tool_names_that_cannot_be_read_are_undecided_and_end_soon():
    names = ["a" * (200 + number) for number in range(50)]
    events = [waza.ToolEvent(tool_name=name) for name in names]
    found = find(CallMatcher(tool=BOMB), names, events)
    assert (found.sure, len(found.maybe)) == ([], 50)


@pytest.mark.parametrize(
    ("entry", "good", "bad"),
    [
        ({"args": {"a": 1}, "extra_args": "forbid"}, [{"a": 1}], [{"a": 1, "b": 2}, {}, [1], None]),
        ({"extra_args": "forbid"}, [{}], [{"a": None}, "text", None]),
        ({"args": {"u.c": 1}, "extra_args": "forbid"}, [{"u": {"c": 1, "d": 2}}, {"u.c": 1}], [{"u.c": 1, "u": {}}]),
        ({"args": {"a": {"optional": True}}, "extra_args": "forbid"}, [{}, {"a": 5}], [{"b": 1}]),
        ({"args": {"a": {"equals": 1, "optional": True}}}, [{}, {"a": 1}, {"b": 1}], [{"a": None}, {"a": 2}]),
        ({"args": {"u.c": {"not": 1, "optional": True}}}, [{}, {"u": {}}, {"u": {"c": 2}}], [{"u": {"c": 1}}]),
        ({"args": {"a": {"present": False}}}, [{}, {"b": 1}], [{"a": None}]),
    ],
)
def test_a_call_may_be_held_to_the_arguments_that_are_named(entry, good, bad):
    matcher = CallMatcher.model_validate({"name": "t", **entry})
    assert [args for args in good if not fits(matcher, args)] == []
    assert [args for args in bad if fits(matcher, args)] == []


def test_an_argument_under_another_programs_name_is_named():
    def status(**args):
        event = waza.ToolEvent(tool_name="Read", args=args)
        trace = waza.Trace(input="", output="", engine="claude-code", tool_events=[event])
        entry = {"name": "read", "args": {"path": "a"}, "extra_args": "forbid"}
        return waza.load_grader({"type": "tool_calls", "config": {"expect": [entry]}}).grade(trace).status

    assert status(file_path="a") == "passed"
    assert status(file_path="a", limit=3) == "failed"
    assert status(path="a", file_path="a") == "failed"


def test_null_is_kept_in_what_a_run_stores():
    from waza.suites.suite import grader_as_data

    entry = {"name": "t", "args": {"a": None, "b": {"not": None}, "c": {"any_of": [None, 1]}}}
    stored = grader_as_data(waza.load_grader({"type": "tool_calls", "config": {"expect": [entry]}}))
    assert grader_as_data(waza.load_grader(stored)) == stored
    assert stored["config"]["expect"][0]["args"]["b"] == {"not": {"equals": None}}


def test_a_pattern_without_a_result_is_undecided_in_any_of_and_not():
    slow = {"regex": BOMB}
    assert accepts({"any_of": [slow, "x"]}, "x") is True
    assert accepts({"any_of": [slow, "x"]}, "a" * 200) is None
    assert accepts({"not": slow}, "a" * 200) is None
    assert accepts({"not": {"regex": BOMB, "equals": "x"}}, "a" * 200) is True
