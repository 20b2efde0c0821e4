"""Whatever is written, the answer is a list of problems with places; never a traceback."""

import copy
import json
import random

import pytest

from campaign import count, size
from waza.suites.load import read_spec
from waza.untrusted.yaml import read_yaml

BASE = """
name: suite
description: text
skill: s
version: "1"
config: {executor: mock, trials_per_task: 2, timeout_seconds: 5, workers: 2, model: m, group_by: tags, pass_rule: 0.5}
hooks: {before_run: [{command: "echo 'a b'", exit_codes: [0], error_on_fail: true}]}
inputs: {who: Ada}
metrics: [{name: task_completion, threshold: 0.5, weight: 2}]
graders:
  - {type: text, name: t, weight: 2, config: {contains: [a], regex_match: ["a+"]}}
  - {type: code, name: c, assertions: ["len(output) > 1"]}
  - {type: file, name: f, config: {must_exist: [a.txt], content_patterns: [{path: b, must_match: [x]}]}}
  - {type: tool_calls, name: tc, config: {expect: [{tool: bash, args: {command: {regex: ls}}, count: {min: 1}}]}}
  - {type: json_schema, name: j, config: {schema: {type: object}}}
tasks:
  - id: one
    tags: [x]
    inputs: {prompt: "hi {{who}}", files: [{path: a, content: b}], environment: {A: b}, follow_up_prompts: [more]}
    expected: {output_contains: [a], behavior: {max_tokens: 5}, outcomes: [{type: task_completed}], max_steps: 3}
    mock: {output: x, tool_events: [{tool_name: bash, args: {}}], trials: [{output: y}]}
  - {id: two, prompt: x, graders: [t], timeout_seconds: 3, golden: true}
  - "tasks/*.yaml"
"""
TASK = """
id: three
name: Third
tags: [y]
golden: false
timeout_seconds: 4
inputs:
  prompt: "hi {{who}}"
  files: [{path: a, content: b}]
  context: {who: Eve, source: text}
  workdir: in
  follow_up_prompts: [more, "and {{who}}"]
expected: {tools_called: [bash], output_matches: "x+", tool_calls: [{name: bash, args: {a: 1}}], graders: [t]}
graders: [{type: text, name: own, config: {contains: [a]}}]
checkpoints:
  - {after_turn: 1, on_failure: stop, expected: {max_tool_calls: 1}, graders: [t]}
  - {after_turn: 2, graders: [{type: file, config: {must_exist: [b]}}]}
mock: {turns: [{output: x}, {output: y, files: {b: c}}, {output: z}]}
"""
EVALDECK = """
version: 1
agent: {module: m, function: f}
test_dir: cases
suites: [{name: core, path: cases, tags: [a]}]
execution: {workers: 2, timeout: 3, retries: 1}
graders: {llm: {model: m}}
thresholds: {min_pass_rate: 0.5, max_failures: 2}
output_dir: out
"""
CASE = """
name: talk
description: text
turns:
  - {user: one, expected: {output_contains: [a], max_steps: 3}}
  - {user: two, graders: [{type: regex, params: {pattern: "a+"}}, {type: contains, params: {values: [b]}}]}
expected: {task_completed: true, tool_call_order: [a, b]}
tags: [x]
timeout: 5
retries: 1
metadata: {k: v}
"""
SUITES = {
    "waza": {"eval.yaml": BASE, "tasks/three.yaml": TASK},
    "evaldeck": {"evaldeck.yaml": EVALDECK, "cases/talk.yaml": CASE},
}
NASTY = [None, True, 0, -1, 1e308, float("nan"), "", " ", "\x00", "💥", "../../x", "a" * 300, [], {}, [[]], [None]]
NASTY += [{"a": {"b": []}}, "{{", "(", "[a", "*", 10**30, "__class__", ["x", 1], {"type": "text"}, "~", ".inf"]


def places(tree, path=()):
    yield path
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from places(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from places(value, (*path, index))


def plain(tree):
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return [plain(item) for item in tree] if isinstance(tree, list) else tree


def broken(rng, base):
    """One broken spec: values replaced, keys renamed, parts removed or doubled, or the text itself damaged."""
    tree = copy.deepcopy(base)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice([path for path in places(tree) if path])
        parent = tree
        for step in path[:-1]:
            parent = parent[step]
        last = path[-1]
        match rng.randrange(4):
            case 0:
                parent[last] = copy.deepcopy(rng.choice(NASTY))
            case 1 if isinstance(parent, dict):
                parent[rng.choice(["x", "", "type", "config", str(last)[1:], str(last) + "s", "é"])] = parent.pop(last)
            case 2:
                del parent[last]
            case _:
                parent[last] = [parent[last], copy.deepcopy(rng.choice(NASTY))]
        if not tree:
            break
    text = json.dumps(tree, indent=1)
    if rng.random() < 0.3:
        at = rng.randrange(len(text))
        text = (
            text[:at]
            + rng.choice(["\t", "'", '"', "{", "]", ": ", "\n- ", "&a ", "*a", "!!x ", "\x01", "%", "#"])
            + text[at:]
        )
    return text


def laid_out(folder, suite):
    """The files of an unbroken suite in a folder, and the path of its first one."""
    (folder / ".waza.yaml").touch()
    for name, text in SUITES[suite].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder / next(iter(SUITES[suite]))


def run_campaign(folder, suite, tries):
    """How many of so many suites, each with one broken file, were refused; no problem is without its place."""
    eval_file = laid_out(folder, suite)
    texts = SUITES[suite]
    bases = {name: plain(read_yaml(text, name)) for name, text in texts.items()}
    rng = random.Random(11)
    refused, tracebacks, unplaced = 0, [], []
    for number in range(tries):
        name = rng.choice([*texts])
        text = broken(rng, bases[name])
        (folder / name).write_text(text)
        try:
            _, problems = read_spec(eval_file)
        except Exception as error:
            tracebacks.append(f"#{number} {error!r}\n{text}")
            continue
        finally:
            (folder / name).write_text(texts[name])
        errors = [problem for problem in problems if problem.severity == "error"]
        refused += bool(errors)
        for problem in errors:
            if not (problem.file and problem.line >= 1 and problem.column >= 1 and problem.message):
                unplaced.append(f"#{number} {problem!r}\n{text}")
    count("broken specs", tries)
    count("refused with a list of problems", refused)
    count("tracebacks", len(tracebacks))
    count("problems without a place", len(unplaced))
    assert not tracebacks, tracebacks[0]
    assert not unplaced, unplaced[0]
    return refused


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("suite", SUITES)
def test_broken_specs_give_messages_with_places(tmp_path, suite):
    tries = size(800, 5_000, 50_000)
    assert run_campaign(tmp_path, suite, tries) > tries * 0.6


@pytest.mark.parametrize("suite", SUITES)
def test_the_unbroken_spec_is_accepted(tmp_path, suite):
    _, problems = read_spec(laid_out(tmp_path, suite))
    assert [str(problem) for problem in problems if problem.severity == "error"] == []
