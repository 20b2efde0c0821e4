import copy
import json
import pickle
import socket
import threading
from contextlib import contextmanager

import jsonschema_rs
import pytest

from waza.untrusted.json_schema import MAX_PROBLEM_CHARS, MAX_PROBLEMS, compile_schema

ANTI_HANG_S = 20
DRAFTS = {
    "http://json-schema.org/draft-04/schema#": True,
    "http://json-schema.org/draft-06/schema#": True,
    "http://json-schema.org/draft-07/schema#": True,
    "https://json-schema.org/draft/2019-09/schema": False,
    "https://json-schema.org/draft/2020-12/schema": False,
}


@contextmanager
def listening():
    """A local server that counts who comes."""
    visitors = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                visitor, _ = server.accept()
            except OSError:
                return
            visitors.append(visitor.recv(100))
            visitor.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}")
            visitor.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/schema.json", visitors
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def test_the_library_itself_would_go_to_the_network():
    with listening() as (address, visitors):
        jsonschema_rs.validator_for({"$ref": address})
        assert visitors


@pytest.mark.parametrize("where", ["$ref", "$schema", "$dynamicRef", "properties", "allOf", "$id"])
def test_nothing_is_fetched_for_a_reference_wherever_it_is(where):
    with listening() as (address, visitors):
        schema = {
            "$ref": {"$ref": address},
            "$schema": {"$schema": address},
            "$dynamicRef": {"$dynamicRef": address},
            "properties": {"properties": {"a": {"$ref": address}}},
            "allOf": {"allOf": [{"$ref": address + "#/x"}]},
            "$id": {"$id": address, "$ref": "other.json"},
        }[where]
        with pytest.raises(ValueError, match=r"fetched|valid JSON Schema"):
            compile_schema(schema)
        assert visitors == []


def test_no_file_is_read_for_a_reference(tmp_path):
    (tmp_path / "other.json").write_text('{"type": "integer"}')
    reference = (tmp_path / "other.json").as_uri()
    assert not jsonschema_rs.validator_for({"$ref": reference}).is_valid("x"), "the library itself would read it"
    with pytest.raises(ValueError, match=r"other\.json' is outside the schema, and nothing is ever fetched"):
        compile_schema({"$ref": reference})


def test_references_inside_the_schema_work():
    schema = compile_schema(
        {
            "$id": "https://example.com/root",
            "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#named"}, "c": {"$ref": "leaf"}},
            "$defs": {
                "n": {"type": "integer"},
                "m": {"$anchor": "named", "type": "integer"},
                "l": {"$id": "leaf", "type": "integer"},
            },
        }
    )
    assert schema.problems({"a": 1, "b": 2, "c": 3}) == []
    assert len(schema.problems({"a": "x", "b": "x", "c": "x"})) == 3


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"minimum": "5"},
        {"pattern": "["},
        {"pattern": "(?=a)b"},
        {"pattern": r"(a)\1"},
        {"patternProperties": {"(?<!x)": {}}},
        {"pattern": "(a{1000}){1000}"},
        {"$ref": "#/$defs/missing"},
        {"$schema": "https://example.com/own"},
        {"$schema": "http://json-schema.org/draft-03/schema#"},
        {"properties": []},
        {"const": float("nan")},
        {"const": {1, 2}},
        [],
        "object",
        None,
    ],
    ids=repr,
)
def test_a_schema_that_cannot_be_used_is_refused(schema):
    with pytest.raises(ValueError):
        compile_schema(schema)


def test_a_pattern_that_needs_backtracking_is_refused_with_a_reason():
    with pytest.raises(ValueError, match=r"'\(\?=a\)b' is not a linear-time pattern \(no lookaround"):
        compile_schema({"properties": {"x": {"pattern": "(?=a)b"}}})


@pytest.mark.parametrize(("dialect", "asserted"), DRAFTS.items())
def test_format_is_asserted_up_to_draft_07(dialect, asserted):
    schema = compile_schema({"$schema": dialect, "type": "string", "format": "email"})
    assert bool(schema.problems("not an address")) is asserted
    assert schema.problems("a@example.com") == []


def test_the_dialect_is_2020_12_unless_named():
    assert compile_schema({"prefixItems": [{"type": "integer"}]}).problems(["x"])
    draft_07 = {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{"type": "integer"}]}
    assert compile_schema(draft_07).problems(["x"]) == []


@pytest.mark.parametrize(
    ("pattern", "text", "fits"), [("^ready$", "ready\n", False), (r"^\d$", "٣", False), ("b", "abc", True)]
)
def test_patterns_mean_what_they_mean_elsewhere(pattern, text, fits):
    assert (compile_schema({"pattern": pattern}).problems(text) == []) is fits


def laughs(levels, keyword, leaf, by="pointer"):
    """A small schema whose references double at every level."""
    name = {"pointer": "#/$defs/a{}", "anchor": "#a{}", "id": "a{}"}[by]
    mark = {"pointer": None, "anchor": "$anchor", "id": "$id"}[by]
    defs = {f"a{i}": {keyword: [{"$ref": name.format(i + 1)}] * 2} for i in range(levels)} | {f"a{levels}": leaf}
    for key, value in defs.items():
        if mark:
            value[mark] = key
    return {"$defs": defs, "$ref": name.format(0)}


@pytest.mark.timeout(ANTI_HANG_S)
@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("by", ["pointer", "anchor", "id"])
def test_a_schema_whose_references_multiply_is_refused(keyword, by):
    with pytest.raises(ValueError, match="multiply"):
        compile_schema(laughs(40, keyword, {"type": "string"}, by))
    assert compile_schema(laughs(5, "allOf", {"type": "string"}, by)).problems("x") == []


@pytest.mark.timeout(ANTI_HANG_S)
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "(a+)+$"}, "a" * 50_000 + "b"),
        ({"uniqueItems": True}, [{"a": i, "b": {"c": i}} for i in range(20_000)]),
        ({"allOf": [{"$ref": "#"}]}, 1),
        ({"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}}, json.loads('{"a":' * 150 + "1" + "}" * 150)),
        ({"items": {"type": "string"}}, list(range(500_000))),
        ({"type": "integer"}, "a" * 10_000_000),
        ({"multipleOf": 3}, 10**4000),
    ],
    ids=["pattern", "unique", "self", "recursive", "many errors", "long text", "long number"],
)
def test_no_value_makes_a_check_hang_or_report_without_end(schema, value):
    problems = compile_schema(schema).problems(value)
    assert len(problems) <= MAX_PROBLEMS + 1
    assert all(len(problem) < 3 * MAX_PROBLEM_CHARS for problem in problems)


def test_problems_have_a_path_and_only_the_first_ones_are_reported():
    schema = compile_schema({"required": ["id"], "properties": {"items": {"items": {"type": "string"}}}})
    assert schema.problems({"items": [1]}) == ['"id" is a required property', '/items/0: 1 is not of type "string"']
    many = schema.problems({"id": 1, "items": list(range(100))})
    assert len(many) == MAX_PROBLEMS + 1
    assert many[-1] == "and more"


@pytest.mark.parametrize(
    "value", ["\ud800", {"\ud800": 1}, {1, 2}, {1: 2}, object()], ids=lambda value: type(value).__name__
)
def test_a_value_that_is_not_json_matches_no_schema(value):
    (problem,) = compile_schema({"pattern": "x", "propertyNames": {"pattern": "x"}}).problems(value)
    assert problem.startswith("not a JSON value")


def test_a_schema_can_be_copied_and_sent_to_another_process():
    schema = compile_schema({"type": "integer"})
    for twin in (copy.deepcopy(schema), pickle.loads(pickle.dumps(schema))):
        assert twin.problems("x") == schema.problems("x")
