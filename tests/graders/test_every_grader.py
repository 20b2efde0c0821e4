"""Rules for every grader type, found from the registry so that a new one cannot be forgotten."""

import ast
import json
import os
import re
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import waza
from waza.files.paths import SpecFolder
from waza.graders.base import GRADERS
from waza.suites.graders import build_grader
from waza.suites.positions import Position
from waza.suites.reference import grader_page
from waza.untrusted.patterns import Pattern
from waza.untrusted.yaml import read_yaml

SOURCE = Path(waza.__file__).parent
FULL = os.environ.get("WAZA_CAMPAIGN") == "full"
BOMBS = json.loads((Path(__file__).parent.parent / "data/hostile/assertions.json").read_text())["regex_bomb"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project that has every file the examples in the docstrings name."""
    root = tmp_path_factory.mktemp("project")
    (root / ".waza.yaml").touch()
    return root


def built(name, root):
    """The grader of a docstring's example, with empty stand-ins for the files it names."""
    [entry] = read_yaml(grader_page(name).example, "example")
    for _ in range(5):
        grader, problems = build_grader(entry, Position("example", entry), SpecFolder(root))
        if grader:
            return grader
        for problem in problems:
            path = root / problem.message.split("'")[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            skill = "---\nname: s\ndescription: deploy things to the cloud\n---\nbody"
            path.write_text({".json": "{}", ".md": skill}.get(path.suffix, "x = 1\n"))
    raise AssertionError(problems)


TEXT = st.text(max_size=30)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
CALLS = st.fixed_dictionaries(
    {"tool_name": st.sampled_from(["bash", "edit", "search", ""]) | TEXT},
    optional={"args": VALUES, "result": VALUES, "success": st.booleans(), "turn": st.integers(0, 5)},
)
COUNTS = st.none() | st.integers(0, 10**6)
TRACES = st.fixed_dictionaries(
    {"input": TEXT, "output": TEXT | st.just("[" * 1000) | st.just("\ud800")},
    optional={
        "status": st.sampled_from(["success", "failure", "timeout", "error"]),
        "duration_ms": COUNTS,
        "events": st.none() | st.lists(st.dictionaries(TEXT, VALUES, max_size=3), max_size=4),
        "tool_events": st.none() | st.lists(CALLS, max_size=6),
        "usage": st.none() | st.fixed_dictionaries({}, optional={"input_tokens": COUNTS, "turns": COUNTS}),
        "skill_invocations": st.none() | st.lists(st.builds(lambda name: {"name": name}, TEXT), max_size=3),
        "outcome": st.dictionaries(TEXT, VALUES, max_size=2),
        "steps": COUNTS,
    },
)


PATHS = ("package.json", "src/index.ts", ".env", "node_modules", "src/main.py", "README.md")
"""Where the examples of the graders that look at files expect some."""
LAID = {
    "text": lambda path: path.write_text('{"name": "my-app"}\n+def new_function():\n'),
    "bytes": lambda path: path.write_bytes(b"\xff\x00\xfe" * 100),
    "empty": lambda path: path.touch(),
    "folder": lambda path: path.mkdir(),
    "link out": lambda path: path.symlink_to("/etc/hostname"),
    "link in": lambda path: path.symlink_to("README.md"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "pipe": lambda path: os.mkfifo(path),
    "closed": lambda path: (path.write_text("secret"), path.chmod(0)),
}
WORKSPACES = st.none() | st.dictionaries(st.sampled_from(PATHS), st.sampled_from([*LAID]))


@contextmanager
def workspace_of(kinds):
    """A workspace with these files; None where there is none."""
    if kinds is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        for path, kind in kinds.items():
            (Path(folder) / path).parent.mkdir(exist_ok=True)
            LAID[kind](Path(folder) / path)
        yield folder


def gets_a_verdict(name, root, tree, kinds):
    with workspace_of(kinds) as workspace:
        grade = built(name, root).grade(waza.Trace.from_json(tree), workspace=workspace)
    assert grade.status in ("passed", "failed", "error")
    assert 0.0 <= grade.score <= 1.0
    assert "the grader broke" not in grade.feedback
    assert (grade.score == 0.0 and not grade.passed) if grade.status == "error" else True


WAITING = [name for name in GRADERS.built_in() if GRADERS.load(name).waits]
UNSCOPED = [HealthCheck.function_scoped_fixture]


@pytest.mark.parametrize("name", [name for name in GRADERS.built_in() if name not in WAITING])
@settings(max_examples=15, deadline=None, suppress_health_check=UNSCOPED)
@given(tree=TRACES, kinds=WORKSPACES)
def test_any_trace_that_parses_gets_a_verdict(name, folder, tree, kinds):
    gets_a_verdict(name, folder, tree, kinds)


@pytest.mark.parametrize("name", WAITING)
@settings(max_examples=5, deadline=None, suppress_health_check=UNSCOPED)
@given(tree=TRACES, kinds=WORKSPACES)
def test_any_trace_gets_a_verdict_from_graders_that_wait_for_a_process(name, folder, tree, kinds):
    gets_a_verdict(name, folder, tree, kinds)


def test_a_grader_that_breaks_would_be_seen(tmp_path):
    class Broken(waza.Grader):
        def checks(self, trace):
            raise KeyError(trace.files)

    assert "the grader broke" in Broken().grade(waza.Trace(input="", output=""), workspace=tmp_path).feedback


def test_a_grader_that_checks_nothing_decides_nothing():
    class Empty(waza.Grader):
        def checks(self, trace):
            return []

    grade = Empty().grade(waza.Trace(input="", output=""))
    assert (grade.status, grade.score, grade.feedback) == ("error", 0.0, "the grader checked nothing")


def pattern_places(schema, definitions, path=""):
    """Every place of a schema that takes a pattern."""
    if "$ref" in schema:
        target = schema["$ref"].rsplit("/", 1)[-1]
        if target in path.split("|"):
            return
        yield from pattern_places(definitions[target], definitions, f"{path}|{target}|")
        return
    if schema.get("format") == "regex":
        yield ".".join(part for part in path.split(".") if part).replace("|", "")
    for key, inner in schema.get("properties", {}).items():
        yield from pattern_places(inner, definitions, f"{path}.{key}")
    for word in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(word, ()):
            yield from pattern_places(inner, definitions, path)
    if isinstance(schema.get("items"), dict):
        yield from pattern_places(schema["items"], definitions, f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from pattern_places(schema["additionalProperties"], definitions, f"{path}.*")


def found_places():
    found = set()
    for name in GRADERS.built_in():
        schema = GRADERS.load(name).model_json_schema()
        definitions = schema.get("$defs", {})
        for place in pattern_places(schema, definitions):
            for definition in sorted(definitions, key=len, reverse=True):
                place = place.replace(definition, "")
            # Every operand of a rule is the same class, whatever the key.
            found.add(re.sub(r"(?<=rules\[\]\.)[a-z]+[\[\]]*\.", "operand.", f"{name}.{place}"))
    return found


def bombed(key, pattern):
    """An operand's key with a pattern in it."""
    return pattern if key == "tool" else {"a": {"regex": pattern}} if key.endswith("*") else {"regex": pattern}


MADE = {
    "text.regex_match[]": lambda p: {"type": "text", "regex_match": [p]},
    "text.regex_not_match[]": lambda p: {"type": "text", "regex_not_match": [p]},
    "text.pattern": lambda p: {"type": "text", "pattern": p},
    "regex.pattern": lambda p: {"type": "regex", "pattern": p},
    "regex.must_match[]": lambda p: {"type": "regex", "must_match": [p]},
    "regex.must_not_match[]": lambda p: {"type": "regex", "must_not_match": [p]},
    "matches.pattern": lambda p: {"type": "matches", "pattern": p},
    "file.content_patterns[].must_match[]": lambda p: {
        "type": "file",
        "content_patterns": [{"path": "a", "must_match": [p]}],
    },
    "file.content_patterns[].must_not_match[]": lambda p: {
        "type": "file",
        "content_patterns": [{"path": "a", "must_not_match": [p]}],
    },
    "tool_calls.expect[].tool": lambda p: {"type": "tool_calls", "expect": [{"tool": p}]},
    "tool_calls.required[].pattern": lambda p: {"type": "tool_calls", "required": [{"pattern": p}]},
    "tool_calls.forbidden[].pattern": lambda p: {"type": "tool_calls", "forbidden": [{"pattern": p}]},
    "tool_calls.expect[].args.*.regex": lambda p: {
        "type": "tool_calls",
        "expect": [{"name": "t", "args": {"a": {"regex": p}}}],
    },
}
for key in ("tool", "args.*", "result", "result_fields.*", "message"):
    MADE["trace_rules.rules[].operand." + (key if key == "tool" else f"{key}.regex")] = lambda p, key=key: {
        "type": "trace_rules",
        "rules": [{"forbid": {key.removesuffix(".*"): bombed(key, p)}}],
    }
for kind in ("allowed", "forbidden", "required", "at_most"):
    MADE[f"side_effects.{kind}[].command"] = lambda p, kind=kind: {
        "type": "side_effects",
        "shell_tools": ["t"],
        "mutating_commands": ["."],
        kind: [{"command": p} | ({"count": 1} if kind == "at_most" else {})],
    }
for kind in ("mutating_commands", "read_only_commands"):
    MADE[f"side_effects.{kind}[]"] = lambda p, kind=kind: {
        "type": "side_effects",
        "shell_tools": ["t"],
        "watch": ["commands"],
        "allowed": [],
        kind: [p],
    }
for kind in ("expect_tools", "reject_tools", "allow_only"):
    for key in ("tool", "command_pattern", "path_pattern", "skill_pattern")[kind == "allow_only" :]:
        MADE[f"tool_constraint.{kind}[].{key}"] = lambda p, kind=kind, key=key: {
            "type": "tool_constraint",
            kind: [{"tool": ".*", key: p}],
        }
    MADE[f"tool_constraint.{kind}[].args.*.regex"] = lambda p, kind=kind: {
        "type": "tool_constraint",
        kind: [{"tool": "t", "args": {"a": {"regex": p}}}],
    }


def test_every_place_that_takes_a_pattern_is_known():
    found = found_places()
    assert len(found) > 10, "the search itself finds nothing"
    missing = found - set(MADE)
    assert not missing, f"add these to MADE so that they are bombed: {sorted(missing)}"


@pytest.mark.parametrize("place", sorted(MADE))
def test_regex_bombs_end_within_their_limit_wherever_a_pattern_is_taken(place, tmp_path):
    for bomb in BOMBS if FULL else BOMBS[::3]:
        text = eval(bomb["text_python"])
        (tmp_path / "a").write_text(text)
        call = waza.ToolEvent(
            tool_name=text if place.endswith(".tool") else "t",
            args=dict.fromkeys(("a", "command", "path", "skill"), text),
            result={"a": text} if "result_fields" in place else text,
        )
        events = [{"type": "assistant_message", "content": text}, {"type": "tool_call", "tool_name": call.tool_name}]
        trace = waza.Trace(input="", output=text, tool_events=[call], events=events)
        grader = waza.load_grader(MADE[place](bomb["pattern"]), base_dir=tmp_path)
        started = time.monotonic()
        grade = grader.grade(trace, workspace=tmp_path)
        assert time.monotonic() - started < 20, bomb
        assert grade.status in ("passed", "failed", "error")


def test_a_backtracking_bomb_is_undecided_not_failed():
    grade = waza.load_grader({"type": "text", "regex_match": [r"(a+)+\1(?!x)$"]}).grade(
        waza.Trace(input="", output="a" * 5000 + "b")
    )
    assert grade.status == "error"
    assert Pattern(r"(a+)+$").search("a" * 50_000 + "b") is False


def uses(module, *, except_in):
    """Files that import a module outside the ones that may."""
    statement = re.compile(rf"^\s*(import|from)\s+{module}\b", re.MULTILINE)
    found = (file.relative_to(SOURCE).as_posix() for file in SOURCE.rglob("*.py") if statement.search(file.read_text()))
    return sorted(set(found) - except_in)


def test_there_is_one_way_to_run_a_pattern_and_one_to_check_a_schema():
    assert uses("re2", except_in={"untrusted/patterns.py", "runs/redaction.py"}) == []
    assert uses("regex", except_in={"process/question_program.py"}) == []
    assert uses("jsonschema_rs", except_in={"untrusted/json_schema.py"}) == []
    assert uses("jsonschema", except_in=set()) == []
    assert len(uses("msgspec", except_in=set())) > 20, "an import that is there is found"


def dynamic_patterns(source):
    """Calls of `re` with a pattern that is not written in the code itself."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name), args=[first, *_]):
                if name != "escape" and not isinstance(first, (ast.Constant, ast.JoinedStr)):
                    yield node.lineno


def test_no_pattern_of_an_author_or_agent_reaches_pythons_re():
    # In the killable child; escaped secrets; escaped words of a quote.
    allowed = {"process/question_program.py", "runs/redaction.py", "judges/quotes.py"}
    found = {
        f"{where}:{line}"
        for file in SOURCE.rglob("*.py")
        if (where := file.relative_to(SOURCE).as_posix()) not in allowed
        for line in dynamic_patterns(file.read_text())
    }
    assert found == set()
    assert list(dynamic_patterns("import re\nre.search(pattern, text)")) == [2]


def test_graders_look_at_the_workspace_only_through_its_safe_door():
    """No grader opens a path itself, except files of the spec in the helpers that read them."""
    spec_readers = {"_skill.py", "_snapshots.py", "_programs.py", "json_schema.py", "llm_comparison.py"}
    spec_readers |= {"script.py"}  # its launcher opens the script itself, in the process that runs it
    for file in (SOURCE / "graders").glob("*.py"):
        text = file.read_text()
        words = ("open(", ".read_text(", ".read_bytes(", "os.path", "shutil", "subprocess", "Path(trace")
        if file.name not in spec_readers:
            assert [word for word in words if word in text and f"_{word}" not in text] == [], file.name


def test_the_example_suite_shows_each_grader_passing_and_failing(waza, examples, tmp_path):
    import shutil

    shutil.copytree(examples / "graders", tmp_path / "graders", ignore=shutil.ignore_patterns("runs"))
    done = waza("run", "graders", "--json")
    tree = json.loads(done.stdout)
    verdicts = {task["test_id"]: task["status"] for task in tree["tasks"]}
    for task, status in verdicts.items():
        assert status == ("passed" if task.endswith("-passes") else "failed"), task
    shown = {task.rsplit("-", 1)[0] for task in verdicts}
    needed = {"text", "keyword", "regex", "code", "file", "diff", "json_schema", "program", "script", "behavior"}
    needed |= {
        "action_sequence",
        "skill_invocation",
        "tool_constraint",
        "tool_calls",
        "trigger",
        "expected",
        "side_effects",
    }
    assert shown == needed
    assert tree["summary"]["tool_metrics"]["call_count"]["max"] == 3
