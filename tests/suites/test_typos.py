"""A slip of one letter in any key of any example is answered with the key that was meant."""

import os
import random
import shutil
from pathlib import Path

import pytest

from waza.engines.base import ENGINES
from waza.errors import nearest, typo_of
from waza.graders.base import GRADERS
from waza.suites.load import read_spec
from waza.suites.reference import engine_page, grader_page
from waza.untrusted.yaml import YamlMap, read_yaml

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PER_SUITE = 10**6 if os.environ.get("WAZA_CAMPAIGN") == "full" else 15
"""How many slips of each suite are tried."""
LETTERS = "abcdefghijklmnopqrstuvwxyz_"


def slips(key, rng):
    """One slip of each kind: a letter left out, doubled, replaced, put in, two swapped."""
    at = rng.randrange(len(key))
    yield key[:at] + key[at + 1 :]
    yield key[:at] + key[at] + key[at:]
    yield key[:at] + rng.choice(LETTERS) + key[at + 1 :]
    yield key[:at] + rng.choice(LETTERS) + key[at:]
    if len(key) > 1:
        at = rng.randrange(len(key) - 1)
        yield key[:at] + key[at + 1] + key[at] + key[at + 2 :]


def keys_with_places(data):
    """Every key of a YAML document with the mark of it, except names that authors choose themselves."""
    if isinstance(data, YamlMap):
        for key, value in data.items():
            yield key, data.marks[key]
            if key not in ("context", "environment", "args", "inputs_free", "outcome", "schema", "result"):
                yield from keys_with_places(value)
    elif isinstance(data, list):
        for item in data:
            yield from keys_with_places(item)


def suites():
    """Whole suites to spoil: the examples, and one made from each grader's and engine's docstring."""
    for file in sorted(EXAMPLES.rglob("eval.yaml")):
        yield file.parent.name, file.read_text(), file.parent
    for name in GRADERS.built_in():
        page = grader_page(name)
        if page.language == "yaml":
            indented = "\n".join("  " + line for line in page.example.split("\n"))
            yield f"grader-{name}", f"graders:\n{indented}\ntasks:\n  - {{id: a, prompt: x}}\n", None
    for name in ENGINES.built_in():
        page = engine_page(name)
        if page.language == "yaml":
            yield f"engine-{name}", page.example + "\n", None


def spoiled(text, rng):
    lines = text.split("\n")
    for key, mark in keys_with_places(read_yaml(text, "x")):
        line = lines[mark.line - 1]
        at = mark.column - 1
        if line[at : at + len(key)] != key:
            continue  # a quoted key
        for slip in slips(key, rng):
            if slip and slip != key and not slip[0].isdigit():
                yield (
                    key,
                    slip,
                    mark,
                    "\n".join([*lines[: mark.line - 1], line[:at] + slip + line[at + len(key) :], *lines[mark.line :]]),
                )


def test_at_least_95_of_100_slips_get_the_right_suggestion(tmp_path):
    rng = random.Random(7)
    right, wrong = 0, []
    for name, text, folder in suites():
        room = tmp_path / name
        if folder:
            shutil.copytree(folder, room, ignore=shutil.ignore_patterns("runs"))
        else:
            room.mkdir()
        every = list(spoiled(text, rng))
        for key, slip, mark, broken in rng.sample(every, min(len(every), PER_SUITE)):
            file = room / "spoiled.yaml"
            file.write_text(broken)
            _, problems = read_spec(file)
            told = [problem for problem in problems if f"'{slip}'" in problem.message and f"'{key}'" in problem.message]
            if any(problem.line == mark.line for problem in told):
                right += 1
            else:
                wrong.append(f"{name}: {key} → {slip}: {[str(p) for p in problems][:2]}")
    assert right + len(wrong) > 300
    assert right / (right + len(wrong)) >= 0.95, "\n".join(wrong[:40])


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("contian", "contains"),
        ("Contains", "contains"),
        ("not-contains", "not_contains"),
        ("regexmatch", "regex_match"),
    ],
)
def test_the_nearest_name_is_found(slip, meant):
    assert nearest(slip, ["contains", "not_contains", "regex_match", "regex_not_match"]) == meant


def test_a_word_that_is_near_nothing_gets_no_suggestion():
    assert nearest("banana", ["contains", "weight"]) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("pathh", "path"), ("paht", "path"), ("Path", "path"), ("pat", "path"), ("hpaht", None), ("pa", None),
        ("task_completoin", "task_completion"), ("tsk_completoin", "task_completion"),
        ("task-completion", "task_completion"), ("taks_completoinn", None),
        ("quality", None), ("readiness", None), ("path", None),
    ],
)  # fmt: skip
def test_one_slip_is_one_edit_or_two_in_a_long_word(name, meant):
    assert typo_of(name, ["path", "task_completion"]) == meant


def test_every_single_slip_of_a_name_is_seen():
    rng = random.Random(1)
    for name in ("efficiency", "task_completion", "says_hello", "path"):
        for _ in range(50):
            assert {typo_of(slip, [name]) for slip in slips(name, rng) if slip != name} <= {name}
