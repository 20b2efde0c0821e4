"""A suite means what its author wrote."""

import json
import re
import subprocess
import sys
import textwrap

import pytest

import waza
from waza.cli import run_command
from waza.errors import SpecError, UsageError
from waza.reports.json import JsonReport
from waza.runner.request import request_for
from waza.runner.run import execute
from waza.runner.suite import Listeners
from waza.runs.summary import summarize
from waza.suites.load import load_spec


def suite(tmp_path, text, **files):
    (tmp_path / ".waza.yaml").touch()
    for name, content in files.items():
        path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(content))
    (tmp_path / "eval.yaml").write_text(textwrap.dedent(text))
    return load_spec(tmp_path)


def names(spec, task):
    return [grader.name for grader in spec.graders[task]]


def test_a_task_gets_all_suite_graders_and_its_own(tmp_path):
    spec = suite(
        tmp_path,
        """
        graders:
          - {type: text, name: one, config: {contains: [a]}}
          - {type: text, name: two, config: {contains: [b]}}
        tasks:
          - {id: plain, prompt: x}
          - id: more
            prompt: x
            graders: [{type: text, name: own, config: {contains: [c]}}]
            expected: {output_contains: [d]}
        """,
    )
    assert names(spec, "plain") == ["one", "two"]
    assert names(spec, "more") == ["one", "two", "own", "output_contains"]


def test_a_task_that_names_graders_gets_just_those_and_check_says_so(tmp_path):
    spec = suite(
        tmp_path,
        """
        graders:
          - {type: text, name: one, config: {contains: [a]}}
          - {type: text, name: two, config: {contains: [b]}}
        tasks:
          - id: chooses
            prompt: x
            expected:
              graders: [two, {type: text, name: inline, config: {contains: [c]}}]
        """,
    )
    assert names(spec, "chooses") == ["two", "inline"]
    assert any("do not apply to it: one" in str(note) for note in spec.notes)


def test_tasks_come_from_globs_lists_inline_and_datasets(tmp_path):
    spec = suite(
        tmp_path,
        """
        graders: [{type: text, config: {contains: [a]}}]
        tasks:
          - "tasks/**/*.yaml"
          - task_files: ["more/*.yaml"]
          - {id: inline, prompt: x}
        tasks_from: rows.csv
        """,
        tasks__deep__a_dot_yaml="{id: a, prompt: x}",
        more__b_dot_yaml="{name: B, prompt: x}",
        rows_dot_csv='id,prompt,expected.output_contains\nc,"Up, or down?",up\n',
    )
    assert [task.id for task in spec.tasks] == ["a", "B", "inline", "c"]
    assert names(spec, "c") == ["text", "output_contains"]


def test_a_dataset_row_may_hold_any_field_and_values_for_the_prompt(tmp_path):
    row = {
        "prompt": "Capital of {{country}}?",
        "country": "France",
        "tags": ["geo"],
        "timeout_seconds": 5,
        "expected": {"output_contains": ["Paris"]},
    }
    spec = suite(tmp_path, "tasks_from: rows.jsonl", rows_dot_jsonl=json.dumps(row) + "\n")
    [task] = spec.tasks
    assert (task.id, task.prompt, task.tags, task.timeout_s) == ("row-1", "Capital of France?", ["geo"], 5)


def test_rows_outside_the_range_are_left_out(tmp_path):
    rows = "".join(
        json.dumps({"id": f"r{n}", "prompt": "x", "expected.output_contains": ["x"]}) + "\n" for n in range(1, 6)
    )
    spec = suite(tmp_path, "tasks_from: rows.jsonl\nrange: [2, 3]", rows_dot_jsonl=rows)
    assert [task.id for task in spec.tasks] == ["r2", "r3"]


@pytest.mark.parametrize("written", ["range: [0, 0]", ""])
def test_a_range_of_zeros_means_unset(tmp_path, written):
    rows = "prompt,expected.output_contains\nhi,x\nho,y\n"
    assert len(suite(tmp_path, f"tasks_from: rows.csv\n{written}", rows_dot_csv=rows).tasks) == 2


def test_other_columns_are_metadata_of_the_task_and_reach_the_results(tmp_path):
    rows = [
        {"prompt": "Say {{word}}", "word": "hi", "author": "ada", "source.page": 7, "labels": ["a"]},
        {"prompt": "x", "metadata": {"own": True}},
    ]
    spec = suite(
        tmp_path,
        "config: {executor: mock}\ngraders: [{type: text, contains: [hi]}]\ntasks_from: rows.jsonl",
        rows_dot_jsonl="".join(json.dumps(row) + "\n" for row in rows),
        mock_dot_yaml="default: {output: hi}",
    )
    first, second = (task.metadata for task in spec.tasks)
    assert first == {"word": "hi", "author": "ada", "source.page": 7, "labels": ["a"]}
    assert second == {"own": True}
    tree = json.loads(b"".join(JsonReport().render(execute(request_for(spec), Listeners()))))
    assert tree["tasks"][0]["metadata"] == first


@pytest.mark.parametrize(
    ("task", "is_fine"),
    [
        ({"prompt": ""}, False),
        ({"prompt": " \n"}, False),
        ({"inputs": {"prompt_file": "empty.txt"}}, False),
        ({"prompt": "{{nothing}}"}, False),
        ({"prompt": "", "allow_empty_prompt": True}, True),
        ({"allow_empty_prompt": True}, True),
        ({"inputs": {"prompt": "", "files": [{"path": "a.txt", "content": "x"}]}}, True),
        ({"inputs": {"prompt": "", "follow_up_prompts": ["go on"]}}, True),
        ({"inputs": {"follow_up_prompts": ["go on"]}}, False),
    ],
)
def test_an_empty_prompt_needs_files_further_prompts_or_permission(tmp_path, task, is_fine):
    (tmp_path / "empty.txt").touch()
    text = json.dumps({"inputs": {"nothing": ""}, "graders": [{"type": "text", "contains": ["a"]}], "tasks": [task]})
    if is_fine:
        assert suite(tmp_path, text).tasks[0].prompt == ""
    else:
        with pytest.raises(SpecError, match=r"the prompt is empty; give the task files|'inputs\.prompt' is missing"):
            suite(tmp_path, text)


@pytest.mark.parametrize(
    ("column", "meant"),
    [
        ("output_contains", "expected.output_contains"),
        ("tool_called", "tools_called"),
        ("gradrs", "graders"),
        ("promt", "prompt"),
        ("file", "files"),
    ],
)
def test_a_column_that_may_mean_a_check_or_an_input_is_never_taken_for_metadata(tmp_path, column, meant):
    with pytest.raises(SpecError, match=f"unknown column '{column}'; did you mean '{meant}'"):
        suite(
            tmp_path,
            "graders: [{type: text, config: {contains: [a]}}]\ntasks_from: rows.csv",
            rows_dot_csv=f"prompt,{column}\nhi,x\n",
        )


def test_a_misspelt_column_is_refused_not_ignored(tmp_path):
    with pytest.raises(Exception, match=r"did you mean 'expected\.output_contains'"):
        suite(
            tmp_path,
            "graders: [{type: text, config: {contains: [a]}}]\ntasks_from: rows.csv",
            rows_dot_csv="prompt,expcted.output_contains\nhi,x\n",
        )


def test_inputs_of_the_suite_fill_prompts_and_stay_data(tmp_path):
    spec = suite(
        tmp_path,
        """
        inputs: {city: Oslo, trick: "{{city}}"}
        graders: [{type: text, config: {contains: [a]}}]
        tasks:
          - id: a
            inputs: {prompt: "In {{city}}: {{trick}} and ${{ github.sha }}", follow_up_prompts: ["And {{city}}?"]}
        """,
    )
    assert spec.tasks[0].prompt == "In Oslo: {{city}} and ${{ github.sha }}"
    assert spec.tasks[0].follow_up_prompts == ["And Oslo?"]


def test_fixtures_prompt_files_and_context_folders_are_found_when_the_suite_is_loaded(tmp_path):
    spec = suite(
        tmp_path,
        """
        graders: [{type: text, config: {contains: [a]}}]
        tasks: ["tasks/*.yaml"]
        """,
        tasks__a_dot_yaml="""
                id: a
                inputs:
                  prompt_file: ask.md
                  files: [{path: data/in.csv}, {path: new.txt, content: hello}]
                  context: {fixture: seeds}
                """,
        tasks__ask_dot_md="Please.",
        fixtures__data__in_dot_csv="1",
        seeds__one_dot_txt="1",
    )
    [task] = spec.tasks
    assert task.prompt == "Please."
    assert [file.path for file in task.files] == ["data/in.csv", "new.txt", "."]


def test_a_disabled_task_is_left_out(tmp_path):
    spec = suite(
        tmp_path,
        """
        graders: [{type: text, config: {contains: [a]}}]
        tasks: [{id: a, prompt: x}, {id: b, prompt: x, enabled: false}]
        """,
    )
    assert [task.id for task in spec.tasks] == ["a"]


def test_the_project_fills_in_what_a_suite_does_not_say(tmp_path):
    (tmp_path / ".waza.yaml").write_text("defaults: {engine: mock, model: m1, timeout: 7, workers: 3}\n")
    (tmp_path / "eval.yaml").write_text(
        "config: {model: m2}\ngraders: [{type: text, config: {contains: [a]}}]\ntasks: [{id: a, prompt: x}]\n"
    )
    spec = load_spec(tmp_path)
    assert (spec.config.model, spec.config.workers, spec.tasks[0].timeout_s) == ("m2", 3, 7)
    assert type(spec.engine()).__name__ == "MockEngine"


def test_a_suite_without_an_engine_loads_and_run_says_which_there_are(tmp_path):
    spec = suite(tmp_path, "graders: [{type: text, config: {contains: [a]}}]\ntasks: [{id: a, prompt: x}]")
    with pytest.raises(UsageError, match=r"no engine: name one with --engine or config.executor; known: .*mock"):
        spec.engine()


def test_files_written_for_the_original_load_with_notes(tmp_path):
    spec = suite(
        tmp_path,
        """
        name: old
        schemaVersion: "1.2"
        version: 1.0
        skill: my-skill
        baseline: true
        config: {trials_per_task: 1, timeout_seconds: 300, executor: copilot-sdk, model: m, max_attempts: 2}
        metrics: [{name: quality, weight: 1.0, threshold: 0.8}]
        tasks:
          - id: a
            inputs: {prompt: x}
            expected: {outcomes: [{type: task_completed}], should_trigger: true}
            requirements: []
        """,
    )
    notes = "\n".join(map(str, spec.notes))
    for expected in (
        "'quality' names no grader and no tag; it is computed as task_completion",
        "enforced here, ignored by the original: expected.outcomes, expected.should_trigger, metrics: quality",
        "only infrastructure errors are tried again",
        "skill 'my-skill' was not found in this project",
    ):
        assert expected in notes


def test_a_metric_named_after_a_tag_or_grader_stays_that_in_a_run_of_other_tasks(tmp_path):
    spec = suite(
        tmp_path,
        """
        config: {executor: mock}
        graders: [{type: text, name: greets, config: {contains: [a]}}]
        metrics: [{name: pathh, tag: path}, {name: path, threshold: 0.5}, {name: style}, {name: paths_covered}]
        tasks:
          - {id: a, prompt: x, mock: {output: a}}
          - {id: b, prompt: x, tags: [path], mock: {output: a}, graders: [{type: text, name: style, contains: [a]}]}
        """,
    )
    run = waza.run(spec.file, tasks=["a"])
    by_name = {metric.name: metric for metric in summarize(run).metrics}
    assert (by_name["path"].status, by_name["style"].status) == ("error", "error")
    assert [metric.name for metric in by_name.values() if metric.note] == ["paths_covered"]


DOUBLED = {
    "text": ("regex_match: [{}]", "'"),
    "regex": ("must_not_match: [{}]", "'"),
    "file": ("content_patterns: [{{path: a.txt, must_not_match: [{}]}}]", "'"),
    "tool_constraint": ("reject_tools: [{{tool: bash, command_pattern: {}}}]", "command_pattern"),
    "tool_calls": ("expect: [{{name: bash, args: {{command: {{regex: {}}}}}}}]", "regex"),
    "matches": ("pattern: {}", "pattern"),
}


@pytest.mark.parametrize("kind", DOUBLED)
def test_doubled_backslashes_are_named_where_they_are(kind, tmp_path):
    line, marked = DOUBLED[kind]
    head = "tasks: [{id: a, prompt: x}]\ngraders:\n  - type: " + kind + "\n    config:\n      "
    column = 7 + line.format("'").index(marked)
    notes = [note for note in suite(tmp_path, head + line.format(r"'a\\s*b'")).notes if "doubled" in note.message]
    assert [(note.severity, note.line, note.column) for note in notes] == [("warning", 5, column)]
    assert r"'a\\s*b' are doubled; it is read as 'a\s*b'" in notes[0].message
    with pytest.raises(waza.SpecError) as refused:
        suite(tmp_path, head + line.format(r"'\\bpassword\\b'"))
    (problem,) = refused.value.problems
    assert (problem.line, problem.column) == (5, column)
    assert r"write '\bpassword\b', or '[\\]bpassword[\\]b'" in problem.message


def test_doubled_backslashes_are_reported_in_python_too():
    with pytest.warns(UserWarning, match="config.must_match.0.: .*doubled"):
        waza.load_grader({"type": "regex", "config": {"must_match": [r"a\\s*b"]}})
    with pytest.warns(UserWarning, match="output_matches: .*doubled"):
        (grader,) = waza.load_expected({"output_matches": r"a\\s*b"})
    assert grader.grade(waza.Trace(input="q", output="a b")).passed
    with pytest.raises(waza.SpecError, match="doubled backslashes"):
        waza.load_expected({"output_matches": r"\\bpassword\\b"})


def test_words_that_no_json_schema_knows_are_noted(tmp_path):
    schema = "{type: object, errorMessage: no, dependencies: {a: [b]}, properties: {tpye: {x-mine: 1, example: 2}}}"
    call = f"{{type: tool_calls, config: {{expect: [{{name: t, args: {{a: {{json_schema: {schema}}}}}}}]}}}}"
    text = f"graders: [{{type: json_schema, config: {{schema: {schema}}}}}, {call}]\ntasks: [{{id: a, prompt: x}}]"
    notes = [str(note) for note in suite(tmp_path, text).notes if "check nothing" in str(note)]
    assert [note.partition("check nothing: ")[2] for note in notes] == ["/dependencies, /errorMessage"] * 2


def test_two_graders_with_one_name_are_named(tmp_path):
    spec = suite(
        tmp_path,
        """
        graders: [{type: text, name: same, config: {contains: [a]}}]
        tasks: [{id: a, prompt: x, graders: [{type: text, name: same, config: {contains: [b]}}]}]
        """,
    )
    assert any("the second shows as 'same#2'" in str(note) for note in spec.notes)


def test_mock_yaml_beside_the_suite_scripts_its_tasks(tmp_path):
    spec = suite(
        tmp_path,
        "graders: [{type: text, config: {contains: [a]}}]\ntasks: [{id: greet-1, prompt: x}, {id: other, prompt: x}]",
        mock_dot_yaml="default: {output: dunno}\ntasks: {'greet-*': {output: hello}}\n",
    )
    assert [task.mock for task in spec.tasks] == [{"output": "hello"}, {"output": "dunno"}]


def test_select_takes_globs_on_ids_and_tags(tmp_path):
    spec = suite(
        tmp_path,
        """
        graders: [{type: text, config: {contains: [a]}}]
        tasks:
          - {id: greet-1, prompt: x, tags: [smoke]}
          - {id: greet-2, prompt: x}
          - {id: other, prompt: x, tags: [smoke]}
        """,
    )
    assert [task.id for task in spec.select(["greet-*"]).tasks] == ["greet-1", "greet-2"]
    assert [task.id for task in spec.select(["greet-*"], ["smoke"]).tasks] == ["greet-1"]
    with pytest.raises(UsageError, match="no task fits nothing; tasks: greet-1, greet-2, other"):
        spec.select(["nothing"])


def test_a_limit_of_zero_is_warned_of_with_its_place_and_strict_refuses_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    spec = suite(
        tmp_path,
        """
        config: {executor: mock}
        graders:
          - {type: behavior, max_tool_calls: 0, max_tokens: 5}
        tasks:
          - id: a
            prompt: x
            mock: {output: hello}
            graders:
              - type: tool_calls
                config:
                  max_calls: 0
                  forbidden_tools: [rm]
            expected: {max_steps: 0}
            checkpoints: [{after_turn: 1, graders: [{type: tool_constraint, max_turns: 0, reject_tools: [rm]}]}]
          - {id: b, prompt: y, mock: {output: hello}}
        """,
    )
    told = [str(note) for note in spec.notes if "means no limit" in note.message]
    places = [re.sub(r":\d+: ", " ", line.split(": warning: ")[0]) for line in told]
    assert places == [
        "eval.yaml:4 graders[0].max_tool_calls",
        "eval.yaml:12 tasks[0].graders[0].config.max_calls",
        "eval.yaml:15 tasks[0].checkpoints[0].graders[0].max_turns",
    ]
    assert told[1].endswith(": warning: `max_calls: 0` means no limit; write `none` for none")
    assert run_command(["check"]) == 0
    assert told[0] in capsys.readouterr().out
    assert run_command(["check", "--strict"]) == 2
    capsys.readouterr()
    assert run_command(["run", "--json"]) in (1, 3)
    seen = capsys.readouterr()
    assert told[1] in seen.err and "no limit" not in seen.out
    assert run_command(["run", "--strict"]) == 2
    assert told[1] in capsys.readouterr().err
    assert len(list((tmp_path / "runs").glob("2*"))) == 1, "a refused suite is not run"


def test_a_timeout_of_zero_is_the_default_everywhere(tmp_path):
    (tmp_path / "judge.py").write_text("")
    spec = suite(
        tmp_path,
        """
        config: {timeout_seconds: 0}
        graders:
          - {type: program, command: "true", timeout: 0}
          - {type: script, script: judge.py, timeout: 0.0}
        tasks:
          - {id: a, prompt: x, timeout_seconds: 0}
        """,
        trigger_tests_dot_yaml="skill: s\ntimeout_seconds: 0\nshould_trigger_prompts: [{prompt: x}]\n",
    )
    assert [task.timeout_s for task in (*spec.tasks, *spec.triggers.tasks)] == [300] * 4
    assert [grader.timeout for grader in spec.graders["a"]] == [30, 30]


def test_graders_of_weight_zero_still_count_and_not_all_may_have_it(tmp_path):
    text = """
        graders:
          - {type: text, name: shown, weight: 0, config: {contains: [a]}}
          - {type: text, name: counted, config: {contains: [b]}}
        tasks:
          - {id: both, prompt: x}
          - {id: one, prompt: x, graders: [WHICH]}
        """
    spec = suite(tmp_path, text.replace("WHICH", "counted"))
    assert [grader.weight for grader in spec.graders["both"]] == [0, 1]
    with pytest.raises(SpecError, match="all graders of task 'one' have weight 0"):
        suite(tmp_path, text.replace("WHICH", "shown"))


MEASURED = """
import gc, sys, tracemalloc
from waza.suites.load import load_spec
load_spec(sys.argv[1])  # what is made once is not counted
tracemalloc.start()
spec = load_spec(sys.argv[1])
gc.collect()
print(len(spec.tasks), spec.places["t41"].line, tracemalloc.get_traced_memory()[0] // len(spec.tasks))
"""


def test_a_loaded_row_of_a_dataset_keeps_no_more_than_its_task(tmp_path):
    """The rows themselves, their marks and a list of graders for each would be three times as much."""
    (tmp_path / "eval.yaml").write_text(
        "name: s\ntasks_from: tasks.jsonl\ngraders: [{type: text, name: says, config: {contains: [a]}}]\n"
    )
    rows = "\n".join(f'{{"id": "t{number}", "prompt": "Say {number}"}}' for number in range(1000))
    (tmp_path / "tasks.jsonl").write_text(rows)
    # In a process of its own: what other tests leave running allocates memory too.
    command = [sys.executable, "-c", MEASURED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    tasks, line, bytes_a_row = map(int, done.stdout.split())
    assert (tasks, line) == (1000, 42)
    assert 300 < bytes_a_row < 1100
