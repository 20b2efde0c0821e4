import copy
import json
import pickle

import pytest
from file_cases import CaseFolders, cases, check_case, lay

import waza
from waza.untrusted.json import MAX_JSON_CHARS

PERSON = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "age": {"minimum": 0}}}


@pytest.fixture
def case_folders(tmp_path):
    return CaseFolders(tmp_path)


@pytest.mark.parametrize("case", cases("json_schema"))
def test_conformance(case, tmp_path):
    check_case(case, tmp_path)


def test_feedback_says_where_the_output_does_not_fit(case_folders):
    grade = case_folders.grade("json_schema", '{"age": -1}', schema=PERSON)
    assert (grade.status, grade.score) == ("failed", 0.0)
    assert grade.feedback.startswith("Schema validation failed: ")
    assert '"name" is a required property' in grade.details["failures"]
    assert "/age: -1 is less than the minimum of 0" in grade.details["failures"]
    fine = case_folders.grade("json_schema", '{"name": "A"}', schema=PERSON)
    assert (fine.feedback, fine.details) == ("Output matches JSON schema", {})


@pytest.mark.parametrize(
    "output",
    [
        "{'name': 'A'}",
        '{"name": NaN}',
        '{"name": "A", "name": "B"}',
        '```json\n{"name": "A"}\n```',
        "[" * 100_000,
        "\ufeff{}",
        "1e999",
    ],
    ids=lambda value: value[:20],
)
def test_what_is_not_strict_json_fails_with_a_reason(case_folders, output):
    grade = case_folders.grade("json_schema", output, schema={})
    assert (grade.status, grade.score) == ("failed", 0.0)
    assert grade.feedback.startswith("Output is not valid JSON: ")
    assert grade.details["error"] in grade.feedback


@pytest.mark.parametrize(("output", "word"), [("none", "zero"), ("{} {}", "multiple")])
def test_extraction_wants_exactly_one_value(case_folders, output, word):
    grade = case_folders.grade("json_schema", output, schema={}, extract_json=True)
    expected = f"Output must contain exactly one JSON object or array: found {word} JSON object or array documents"
    assert grade.feedback == expected


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "give schema or schema_file"),
        ({"schema": {}, "schema_file": "s.json"}, "not both"),
        ({"schema": {"$ref": "http://127.0.0.1:1/x"}}, "nothing is ever fetched"),
        ({"schema": {"$ref": "file:///etc/passwd"}}, "nothing is ever fetched"),
        ({"schema": {"pattern": "(?=x)"}}, "linear-time"),
        ({"schema": {"type": "strin"}}, "not a valid JSON Schema"),
        ({"schema": "s.json"}, "mapping"),
        ({"schema_file": "gone.json"}, "is not there"),
        ({"schema_file": "../out.json"}, "leaves the project"),
        ({"schema_file": "link.json"}, "leaves the project"),
        ({"schema_file": "folder"}, "folder"),
        ({"schema_file": "broken.json"}, "schema_file 'broken.json'"),
        ({"schema_file": "twice.json"}, "in one object twice"),
        ({"schema_file": "list.json"}, "mapping"),
        ({"shema": {}}, "did you mean 'schema'"),
    ],
)
def test_what_is_wrong_is_refused_when_loaded(case_folders, config, reason):
    lay(case_folders.spec.parent, {"out.json": "{}"})
    lay(
        case_folders.spec,
        {"s.json": "{}", "broken.json": "{", "twice.json": '{"a": 1, "a": 1}', "list.json": "[]", "folder/x": ""},
    )
    (case_folders.spec / "link.json").symlink_to("../out.json")
    assert reason in case_folders.refusal("json_schema", **config)


def test_an_agent_cannot_change_the_schema_it_is_held_to(case_folders):
    lay(case_folders.spec, {"s.json": json.dumps(PERSON)})
    lay(case_folders.work, {"s.json": "{}"})
    grader = case_folders.load("json_schema", schema_file="s.json")
    (case_folders.spec / "s.json").write_text("{}")
    assert grader.grade(waza.Trace(input="", output="{}"), workspace=case_folders.work).status == "failed"


def test_an_output_too_long_to_be_read_decides_nothing(case_folders):
    assert case_folders.grade("json_schema", "1" * (MAX_JSON_CHARS + 1), schema={}).status == "error"


def test_the_grader_can_be_copied_and_sent_to_another_process(case_folders):
    grader = case_folders.load("json_schema", schema=PERSON)
    for twin in (copy.deepcopy(grader), pickle.loads(pickle.dumps(grader))):
        assert twin.grade(waza.Trace(input="", output="{}")).status == "failed"


@pytest.mark.parametrize(
    ("schema", "meant"),
    [
        ({"requierd": ["id"]}, "required"),
        ({"MaxLength": 1}, "maxLength"),
        ({"ref": "#/$defs/a"}, "$ref"),
        ({"propertis": {}}, "properties"),
        ({"aditionalPropertes": False}, "additionalProperties"),
        ({"prefixItems": [{"enmu": [1]}]}, "enum"),
        ({"$defs": {"a": {"oneof": []}}}, "oneOf"),
        ({"patternProperties": {"^a": {"tpye": "string"}}}, "type"),
        ({"dependentSchemas": {"a": {"anyof": []}}}, "anyOf"),
        ({"if": {"not": {"cosnt": 1}}}, "const"),
        ({"shared": {"a": {"minimun": 1}}, "properties": {"a": {"$ref": "#/shared/a"}}}, "minimum"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"formta": "uuid"}}}, "format"),
    ],
)
def test_a_word_one_slip_away_from_a_keyword_is_refused(case_folders, schema, meant):
    refusal = case_folders.refusal("json_schema", schema=schema)
    assert refusal.startswith("config.schema: ") and f"did you mean '{meant}'?" in refusal
    expect = [{"name": "t", "args": {"a": {"json_schema": schema}}}]
    assert f"did you mean '{meant}'?" in case_folders.refusal("tool_calls", expect=expect)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"requierd": {}, "tpye": {}}, "$defs": {"itmes": True}, "patternProperties": {"tpye": {}}},
        {"enum": [{"tpye": 1}], "const": {"tpye": 1}, "default": {"tpye": 1}, "examples": [{"tpye": 1}]},
        {"id": "a", "example": 1, "nullable": True, "note": "n", "comment": "c", "x-tpye": 1, "errorMessage": "e"},
        {"dependencies": {"tpye": ["a"]}, "dependentRequired": {"tpye": ["a"]}, "shared": {"tpye": 1}},
    ],
)
def test_names_data_and_annotations_are_not_taken_for_keywords(case_folders, schema):
    assert case_folders.load("json_schema", schema=schema)


def test_formats_are_asserted_up_to_draft_07(case_folders):
    for dialect, status in (("draft-04", "failed"), ("draft-06", "failed"), ("draft-07", "failed"), (None, "passed")):
        schema = {"format": "duration"} | ({"$schema": f"http://json-schema.org/{dialect}/schema#"} if dialect else {})
        assert case_folders.grade("json_schema", '"P1DT"', schema=schema).status == status
        assert case_folders.grade("json_schema", '"P1DT1H"', schema=schema).passed
