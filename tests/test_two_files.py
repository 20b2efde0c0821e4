"""Adding a grader touches two files: it and its test. Everything else knows it at once."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import waza
from waza.graders.base import GRADERS
from waza.judges.base import JUDGES
from waza.suites.graders import KEYS

GRADER = '''
"""The `max_words` grader: how long the answer is."""

from collections.abc import Iterator

from waza.graders.base import Grader
from waza.model import Check, Trace


class MaxWordsGrader(Grader):
    """Check that the output is not too long.

    ```yaml
    - type: max_words
      config:
        max_words: 100
    ```
    """

    max_words: int
    """Most words allowed."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one bound."""
        words = len(trace.output.split())
        yield Check(words <= self.max_words, "short", f"{words} words", self.max_words, words)
'''
SUITE = """
config: {executor: mock}
graders: [{type: max_words, config: {max_words: 2}}]
tasks: [{id: a, prompt: x, mock: {output: one two three}}]
"""


@pytest.fixture
def copied(tmp_path):
    """The package copied to another place, with one more file in its folder of graders."""
    package = tmp_path / "site" / "waza"
    shutil.copytree(Path(waza.__file__).parent, package)  # with its byte code: compiling it anew takes seconds
    (package / "graders" / "max_words.py").write_text(GRADER)
    (tmp_path / "eval.yaml").write_text(SUITE)

    def call(*arguments):
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "NO_COLOR": "1", "COLUMNS": "120"}
        command = [sys.executable, "-m", "waza", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)

    return call


def test_yaml_list_schema_docs_and_hints_know_it(copied, tmp_path):
    done = copied("run")
    assert done.returncode == 1 and "3 words" in done.stdout, done.stdout + done.stderr
    assert "Check that the output is not too long." in copied("list").stdout
    validator = json.loads(copied("schema").stdout)
    kinds = [kind.get("const") for kind in validator["$defs"]["grader"]["properties"]["type"]["oneOf"]]
    assert "max_words" in kinds
    copied("docs", "-o", "reference")
    page = (tmp_path / "reference/graders/max_words.md").read_text()
    assert "| `max_words` | whole number | **required** | Most words allowed. |" in page
    (tmp_path / "eval.yaml").write_text(SUITE.replace("type: max_words", "type: max_wrods"))
    assert "did you mean 'max_words'?" in copied("check").stdout
    (tmp_path / "eval.yaml").write_text(SUITE.replace("{max_words: 2}", "{max_word: 2}"))
    assert "unknown key 'max_word'; did you mean 'max_words'?" in copied("check").stdout
    assert copied("docs", "--check").returncode == 0


def test_another_package_announces_one_by_an_entry_point(tmp_path):
    site = tmp_path / "site"
    (site / "their_graders-1.0.dist-info").mkdir(parents=True)
    (site / "their_graders.py").write_text(GRADER)
    (site / "their_graders-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: their-graders\nVersion: 1.0\n"
    )
    (site / "their_graders-1.0.dist-info" / "entry_points.txt").write_text(
        "[waza.graders]\nmax_words = their_graders:MaxWordsGrader\n"
    )
    (tmp_path / "eval.yaml").write_text(SUITE)
    environment = os.environ | {"PYTHONPATH": str(site), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "waza", "run", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, done.stdout + done.stderr
    [grade] = json.loads(done.stdout)["tasks"][0]["runs"][0]["grades"]
    assert (grade["type"], grade["status"]) == ("max_words", "failed")


FORMATS = {
    "errors.py": "says which key of waza is meant by one of another tool",
    "runs/grader_facts.py": "the facts of runs that were stored before runs had them",
    "suites/evaldeck_cases.py": "the names that evaldeck gives to graders",
    "suites/graders.py": "the `expected:` block, each key of which makes one grader",
    "suites/triggers.py": "makes the grader of each trigger test",
}
"""Files that name grader types because they read a format that does."""
FIELD_NAMES = {"json_schema", "max_tokens", "tool_calls", *KEYS}
"""Grader types that are also keys of `expected:`, or fields in formats of other programs."""


def type_names_in(tree, types):
    """Yield each place where code decides by the type of a grader or judge, or lists or loads types by name."""
    distinct = {name for name in types if "_" in name} - FIELD_NAMES
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in distinct:
            yield node.lineno, node.value
        elif isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) > 1:
            values = [getattr(element, "value", None) for element in node.elts]
            if all(isinstance(value, str) and value in types for value in values):
                yield node.lineno, ", ".join(values)
        elif isinstance(node, ast.Compare):
            sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
            named = {side.strip("'") for side in sides} & types
            if named and any(re.search(r"grader|grade\.type|judge|type_name\(\)", side) for side in sides):
                yield node.lineno, ", ".join(named)


def test_no_other_file_lists_grader_or_judge_types():
    source = Path(waza.__file__).parent
    found = []
    for kind, types in (("graders", set(GRADERS.built_in())), ("judges", set(JUDGES.built_in()))):
        for file in sorted(source.rglob("*.py")):
            path = file.relative_to(source).as_posix()
            if path.partition("/")[0] not in (kind, "evaldeck", "engines", "traces") and path not in FORMATS:
                places = type_names_in(ast.parse(file.read_text(encoding="utf-8")), types)
                found += [f"{path}:{line}: {names}" for line, names in places]
    assert found == [], "make it a fact on the class instead, see `Grader`"


def test_a_list_a_comparison_and_a_lookup_by_type_are_found():
    types = {"human", "prompt", "skill_triggered"}
    for code in ("{'human', 'prompt'}", "grade.type == 'human'", "GRADERS.load('skill_triggered')"):
        assert list(type_names_in(ast.parse(code), types)), code
    assert not list(type_names_in(ast.parse("('prompt', 'output'); data['prompt']; kind == 'human'"), types))
