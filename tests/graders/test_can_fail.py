"""For any configuration that is accepted there is a trace that fails it.

Configurations are generated from the JSON Schema of each grader type, so a new grader or option is covered without a
change here. Traces are made from the words of the configuration: with each of them and with none of them, as output,
as tool calls, as skills and as files.
"""

import itertools
import os
import random
import string

import pytest

import waza
from waza.files.paths import SpecFolder
from waza.graders.base import GRADERS, WRAPPER, Grader
from waza.model import Check
from waza.suites.graders import build_grader
from waza.suites.positions import Position

CONFIGURATIONS = 1_500 if os.environ.get("WAZA_CAMPAIGN") == "full" else 25
WORDS = [
    "a",
    "hello",
    "Read File",
    "bash",
    "edit_file",
    "mcp__github__*",
    "src/*.py",
    "**",
    "out.txt",
    "?",
    "*",
    "ß İ",
    "1",
]
PATTERNS = [
    "a*",
    "a+",
    ".*",
    ".+",
    "^$",
    "^",
    r"\d+",
    "x|",
    "(?i)ok",
    "[^a]",
    r"\bdone\b",
    "(?s).*",
    "(?=a)",
    "$^",
    "^.*$",
]
ASSERTIONS = {
    "python": ["'a' in output", "len(tool_calls) < 3", "True", "output", "[1]", "not output", "1 == 1 and output", "x"],
    "javascript": ["output.includes('a')", "tool_calls.length < 3", "true", "[1]", "new Boolean(false)", "!output"],
}
SCHEMAS = [
    {"type": "object"},
    {},
    {"requierd": ["a"]},
    {"enum": [1]},
    {"not": {}},
    {"properties": {"a": {"type": "integer"}}},
]
DESCRIPTION = "deploy things to the cloud"
NOT_GENERATED = {
    "program": "the program decides: it sees the trace as it likes",
    "script": "the script decides: it sees the trace as it likes",
    "human": "a person decides; undecided until a verdict is recorded",
    "human_calibration": "recorded verdicts of people decide, not the trace",
    "llm": "a judge decides: one that says no fails it, see test_llm.py",
    "llm_comparison": "a judge decides: one that says no fails it, see test_llm_comparison.py",
    **dict.fromkeys(("all_of", "any_of", "at_least", "not"), "the parts decide; each fails in the test of its name"),
    "side_effects": "where nothing says what changes something, `allowed` is undecided; see test_side_effects.py",
    "trace_rules": "hardly a random rule is accepted; every kind of rule is violated in test_trace_rules.py",
    "prompt": "a judge decides: one that says no fails it, see test_prompt.py",
}
"""Types for which no failing trace can be found by looking at the configuration, with the reason."""


def generated(schema, definitions, rng, key=""):
    """Return a value that a JSON Schema describes; free text comes from small lists, often with an edge in it."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[1]]
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return generated(rng.choice(schema[choice]), definitions, rng, key)
    if "const" in schema or "enum" in schema:
        return schema.get("const") or rng.choice(schema["enum"])
    match schema.get("type"):
        case "string":
            is_pattern = schema.get("format") == "regex" or "regex" in key or "pattern" in key or "match" in key
            return rng.choice(PATTERNS) if is_pattern else rng.choice(WORDS)
        case "integer" | "number":
            least, most = schema.get("minimum", schema.get("exclusiveMinimum", 0)), schema.get("maximum", 50)
            return rng.choice([least, most, rng.randint(0, 3), round(rng.uniform(least, most), 2)])
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case "array":
            length = rng.choice([0, 1, 1, 2])
            return [generated(schema["items"], definitions, rng, key) for _ in range(length)]
        case "object":
            known = schema.get("properties", {})
            if not known:
                values = schema.get("additionalProperties")
                inner = values if isinstance(values, dict) else {"type": "string"}
                return {rng.choice(["command", "path", "n"]): generated(inner, definitions, rng)}
            return options(schema, definitions, rng)
    return rng.choice([*WORDS, 1, True, [1]])


def options(schema, definitions, rng, left_out=()):
    required = schema.get("required", ())
    return {
        name: generated(field, definitions, rng, name)
        for name, field in schema["properties"].items()
        if name not in left_out and (name in required or rng.random() < 0.35)
    }


def configuration(name, rng):
    """Return a configuration of a grader type, as an author might write it or slip."""
    schema = GRADERS.load(name).model_json_schema()
    config = options(schema, schema.get("$defs", {}), rng, WRAPPER)
    if name == "code":
        language = config.get("language", "python")
        config["assertions"] = rng.sample(ASSERTIONS[language], rng.choice([1, 1, 2]))
    if name == "json_schema":
        config = {"schema": rng.choice(SCHEMAS), "extract_json": rng.random() < 0.5}
    if name == "diff":
        config |= {"update_snapshots": False, "context_dir": None}
        config["expected_files"] = [{"path": "out.txt", "contains": [rng.choice(["+a", "-b", "c", " ", ""])]}]
    if name == "trigger":
        config["skill_path"] = "skill"
    if name == "matches":
        config["flags"] = rng.choice([0, 2, 8, 16])
    return config


def texts(value):
    """Yield every text in a configuration."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from texts(item)


def like(text):
    """Return a name that a glob or a simple pattern matches."""
    return text.replace("*", "x").replace("?", "y").strip("^$+|() ") or "x"


def traces(config):
    """Yield traces that might fail a configuration, with the files each leaves."""
    words = list(dict.fromkeys(texts(config)))
    names = list(dict.fromkeys([*words, *map(like, words), "bash", "other_tool"]))
    lines = "\n".join([*words, *map(like, words)])
    outputs = [
        "",
        "\n",
        "x",
        "zzz\n\nzzz",
        lines,
        string.printable,
        "1",
        "{}",
        "[]",
        '{"a": "b"}',
        "not json {",
        "done 1 a",
    ]
    args = [{}, dict.fromkeys(("command", "path", "n"), "x"), {word: word for word in words}]
    calls = [[], *([{"tool_name": name, "args": given}] for name in names for given in args)]
    calls += [[{"tool_name": name, "args": {}} for name in order] for order in (names, names[::-1], names * 30)]
    skills = [[], [{"name": name} for name in names], *([{"name": name}] for name in names)]
    many = {"input_tokens": 10**9, "output_tokens": 10**9, "turns": 10**6, "llm_calls": 10**6}
    none = dict.fromkeys(many, 0)
    files = [{}, {like(word): "" for word in words}, {like(word): lines + "\nzzz 1 a ok done" for word in words}]
    files += [{"out.txt": text} for text in ("", "zzz", lines)]
    for output in outputs:
        yield (
            {"output": output, "tool_events": [], "skill_invocations": [], "usage": none, "steps": 0, "duration_ms": 0},
            {},
        )
    yield {"output": "x", "status": "failure", "tool_events": []}, {}
    yield {"input": DESCRIPTION, "output": "x"}, {}
    yield {"output": "x", "usage": many, "steps": 10**6, "duration_ms": 10**12, "tool_events": calls[-1]}, {}
    for each, skill in itertools.zip_longest(calls, skills, fillvalue=[]):
        yield {"output": "x", "tool_events": each, "skill_invocations": skill, "usage": none, "duration_ms": 0}, {}
    for each in files:
        yield {"output": "x"}, each


def fails(grader, config, root):
    """Say whether some trace fails the grader."""
    for number, (trace, files) in enumerate(traces(config)):
        workspace = root / str(number)
        for path, content in files.items():
            place = workspace / "/".join(part for part in path.split("/") if part not in ("", ".", ".."))
            if place.is_dir() or any(parent.is_file() for parent in place.parents):
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            if place != workspace:
                place.write_text(content, errors="replace")
        workspace.mkdir(parents=True, exist_ok=True)
        grade = grader.grade(waza.Trace.from_json({"input": "q", **trace}), workspace=workspace)
        if grade.status == "failed":
            return True
    return False


@pytest.mark.parametrize("name", [name for name in GRADERS.built_in() if name not in NOT_GENERATED])
def test_every_accepted_configuration_can_fail(name, tmp_path):
    (tmp_path / ".waza.yaml").touch()
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill" / "SKILL.md").write_text(f"---\nname: s\ndescription: {DESCRIPTION}\n---\nbody\n")
    rng = random.Random(f"{name} 7")
    accepted = 0
    for number in range(CONFIGURATIONS):
        entry = {"type": name, "config": configuration(name, rng)}
        grader, _ = build_grader(entry, Position("eval.yaml", entry), SpecFolder(tmp_path))
        if grader is not None:
            accepted += 1
            assert fails(grader, entry["config"], tmp_path / f"w{number}"), f"no trace fails {entry}"
    assert accepted, "no configuration was accepted, so nothing was tried"


def test_a_configuration_that_cannot_fail_would_be_noticed(tmp_path):
    class NeverFailsGrader(Grader):
        words: list[str] = []

        def checks(self, trace):
            yield Check(True, "anything")

    assert not fails(NeverFailsGrader(words=["a"]), {"words": ["a"]}, tmp_path)
