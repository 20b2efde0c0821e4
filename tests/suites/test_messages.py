"""Every mistake is told at once, each with its place, the fact and the next step."""

import textwrap

import pytest

from waza.errors import SpecError
from waza.suites.load import load_spec, read_spec

GOOD = """
name: suite
config: {executor: mock}
graders:
  - {type: text, name: says_hello, config: {contains: [hello]}}
tasks:
  - {id: one, prompt: hi}
"""


def messages(tmp_path, text, files=()):
    (tmp_path / ".waza.yaml").touch()
    for name, content in dict(files).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(content))
    file = tmp_path / "eval.yaml"
    file.write_text(textwrap.dedent(text).lstrip("\n"))
    _, problems = read_spec(file)
    return [str(problem).replace(f"{tmp_path}/", "") for problem in problems if problem.severity == "error"]


def test_a_good_suite_has_no_mistakes(tmp_path):
    assert messages(tmp_path, GOOD) == []


def test_all_mistakes_are_told_at_once_with_their_places(tmp_path):
    text = """
    name: bad
    confg: {}
    config:
      executor: mok
      trails_per_task: 2
      timeout_seconds: -1
    graders:
      - type: txt
      - type: text
        config:
          contian: [a]
          contains: "x"
          regex_match: ["(unclosed"]
    tasks:
      - id: a
        inputs:
          prompt: "{{nobody}}"
          fils: []
        expected:
          output_contain: ["x"]
    """
    found = messages(tmp_path, text)
    for expected in (
        "eval.yaml:2:1: confg: unknown key 'confg'; did you mean 'config'?",
        "eval.yaml:4:3: config.executor: unknown engine 'mok'; did you mean 'mock'?",
        "eval.yaml:5:3: config.trails_per_task: unknown key 'trails_per_task'; did you mean 'trials_per_task'?",
        "eval.yaml:6:3: config.timeout_seconds: must be above 0, found the number -1",
        "eval.yaml:8:5: graders[0].type: unknown grader type 'txt'; did you mean 'text'?",
        "eval.yaml:11:7: graders[1].config.contian: unknown key 'contian'; did you mean 'contains'?",
        "eval.yaml:12:7: graders[1].config.contains: a list is needed, found the text 'x'; put it in a list: ['x']",
    ):
        assert expected in found
    assert any(line.startswith("eval.yaml:13:21: graders[1].config.regex_match[0]: ") for line in found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("graders: [{type: text}]", "this grader checks nothing; give at least one of: contains"),
        ("graders: [{type: text, config: {contains: ['']}}]", "must not be empty: a check of nothing cannot fail"),
        ("graders: [{type: text, weight: -1, config: {contains: [a]}}]", "weight: must be at least 0, found"),
        ("graders: [{type: text, weight: 0, config: {contains: [a]}}]", "have weight 0, so it has no score"),
        ("graders: [{type: tool_calls, max_calls: 0}]", "`max_calls: 0` means no limit; write `none` for none"),
        ("graders: [{type: tool_calls, max_calls: none, min_calls: 1}]", "min_calls (1) is above max_calls (none)"),
        ("graders: [{type: tool_calls, min_calls: none}]", "`none` is for upper limits; leave this key out"),
        ("graders: [{type: tool_calls, max_calls: nine}]", "a whole number or `none` is needed, found the text 'nine'"),
        ("graders: [{type: behavior, required_tools: ['edit|write']}]", "no tool's name has '|' in it; list the names"),
        ("graders: [{type: skill_invocation, forbidden_skills: ['a|b']}]", "no skill's name has '|' in it; list"),
        ("config: {zzzzzz: 1}", "unknown key 'zzzzzz'; known: agent, api_key_env, base_url, canaries, command,"),
        ("config: {timeout_seconds: -1}", "must be above 0, found the number -1"),
        ("graders: [{type: text, weight: .nan, config: {contains: [a]}}]", "a finite number is needed"),
        ("graders: [{type: text, weight: true, config: {contains: [a]}}]", "a number is needed, found true"),
        ("graders: [{type: text, contains: [a], config: {contains: [b]}}]", "'contains' is here and in 'config'"),
        ("graders: [{type: text, config: {name: x, contains: [b]}}]", "'name' belongs next to 'type'"),
        ("graders: [{name: x}]", "a grader needs a 'type'"),
        ("graders: [text]", "a grader is a mapping with a type, found the text 'text'"),
        ("graders: [{type: human, config: {prompt: x}}]", "unknown key 'prompt'"),
        ("tasks: []", "tasks: a suite needs at least one enabled task"),
        ("tasks: ['tasks/*.yaml']", "no task file fits 'tasks/*.yaml'"),
        ("tasks: ['../*.yaml']", "'../*.yaml' leaves the eval file's folder"),
        ("tasks: [7]", "a task is a glob, a task_files list or a mapping, found the number 7"),
        ("tasks: [{id: a, prompt: x}, {id: a, prompt: y}]", "task id 'a' is taken by eval.yaml:5; ids are unique"),
        ("tasks: [{id: a}]", "'inputs.prompt' is missing"),
        ("tasks: [{id: a, prompt: ' '}]", "the prompt is empty"),
        ("tasks: [{id: a, prompt: x, inputs: {prompt: y}}]", "give one of inputs.prompt"),
        ("tasks: [{id: a, inputs: {prompt_file: nope.md}}]", "'nope.md' is not there"),
        ("tasks: [{id: a, prompt: x, inputs: {files: [{path: ../x}]}}]", "'../x' leaves the workspace"),
        ("tasks: [{id: a, prompt: x, inputs: {files: [{path: data.csv}]}}]", "no fixture 'data.csv' in"),
        ("tasks: [{id: a, prompt: x, inputs: {workdir: /tmp}}]", "'/tmp' is not relative to the workspace"),
        ("tasks: [{id: a, prompt: '{{who}}'}]", "no value for who in the prompt"),
        ("tasks: [{id: a, prompt: x, graders: [says_helo]}]", "unknown grader 'says_helo'; did you mean 'says_hello'?"),
        ("tasks: [{id: a, prompt: x, expected: {}}]", "an empty block expects nothing"),
        ("tasks: [{id: a, prompt: x, expected: {custom: {a: 1}}}]", "unknown key 'custom'"),
        ("tasks: [{id: a, prompt: x, expected: {max_steps: true}}]", "a whole number or `none` is needed, found true"),
        ("tasks: [{id: a, prompt: x, expected: {should_trigger: true}}]", "which skill? name it"),
        ("tasks: [{id: a, prompt: x, expected: {output_excludes: [x]}}]", "did you mean 'output_not_contains'?"),
        ("tasks: [{id: a, prompt: x, expected: {outcomes: [{type: magic}]}}]", "unknown type of outcome"),
        ("tasks: [{id: a, prompt: x, checkpoints: [{after_turn: 2}]}]", "there is no turn 2: the task has 1"),
        ("mcp_mocks: [{name: s}]", "the mocked server 's' has no tool"),
        ("metrics: [{name: m, threshold: 1.5}]", "must be at most 1, found the number 1.5"),
        ("metrics: [{name: m, grader: nobody}]", "no grader is called 'nobody'"),
        ("metrics: [{name: task_completoin}]", "did you mean 'task_completion'? a metric with a name of your own says"),
        ("metrics: [{name: say_helo}]", "unknown metric 'say_helo'; did you mean 'says_hello'?"),
        ("metrics: [{name: Efficiency}]", "did you mean 'efficiency'?"),
        ("metrics: [{name: m, grader: says_helo}]", "no grader is called 'says_helo'; did you mean 'says_hello'?"),
        ("metrics: [{name: m, tag: nowhere}]", "no task has the tag 'nowhere'"),
        (
            "metrics:\n  - {name: task_completion, enabled: false}\n  - {name: says_hello}\n  - {name: says_hello}",
            "eval.yaml:10:6: metrics[2].name: two metrics are called 'says_hello'; rename or remove this one",
        ),
        ("tasks_from: rows.csv", "'rows.csv' is not there"),
        ("config: {pass_rule: most}", "config.pass_rule"),
        ("config: {group_by: colour}", "found the text 'colour'; one of: model, tags, task"),
    ],
)  # fmt: skip
def test_what_could_not_fail_or_cannot_run_is_refused(tmp_path, change, message):
    key = change.split(":")[0]
    keep = []
    skipping = False
    for line in GOOD.strip().split("\n"):
        if not line.startswith(" "):
            skipping = line.startswith(f"{key}:")
        if not skipping:
            keep.append(line)
    found = messages(tmp_path, "\n".join([*keep, change]))
    assert any(message in line for line in found), found
    assert all(line.startswith(("eval.yaml:", "rows.csv:")) for line in found), found


def test_a_task_without_any_grader_is_refused(tmp_path):
    assert any("it could not fail" in line for line in messages(tmp_path, "tasks: [{id: a, prompt: x}]"))


def test_mistakes_in_task_files_name_the_task_file(tmp_path):
    text = "graders: [{type: text, config: {contains: [a]}}]\ntasks: ['tasks/*.yaml']\n"
    files = {"tasks/one.yaml": "id: one\npromt: hello\n", "tasks/two.yaml": "id: two\nprompt: x\nid: again\n"}
    assert messages(tmp_path, text, files) == [
        "tasks/one.yaml:2:1: promt: unknown key 'promt'; did you mean 'prompt'?",
        "tasks/two.yaml:3:1: the key 'id' is on line 1 already; keep one of the two",
    ]


def test_a_missing_eval_file_says_what_to_do():
    with pytest.raises(SpecError, match="no such eval file; `waza init` writes a first one"):
        load_spec("nowhere/eval.yaml")
