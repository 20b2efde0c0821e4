"""Cheat oracles: on the examples none passes, on a weak suite every weak task is named, and a judge decides nothing."""

import json
import re
import shutil
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waza.analysis.oracles import ORACLES, TAMPERED, cheated, sample, stuffing, tampering
from waza.cli import run_command
from waza.graders.text import TextGrader
from waza.model import InputFile, Task
from waza.suites.load import load_spec

WEAK = f"""
name: weak
config: {{executor: python, agent: "untouched:agent", parallel: true}}
tasks:
  - {{id: limits-only, prompt: Tidy up., expected: {{max_tool_calls: 5}}}}
  - {{id: claims, prompt: Tidy up., expected: {{task_completed: true, output_not_contains: [sorry]}}}}
  - id: asked-back
    prompt: Say hello to Ada.
    expected: {{output_contains: [Ada, hello], output_not_contains: [Done]}}
  - id: in-the-rubric
    prompt: Explain it.
    graders: [{{type: code, name: long_and_clear, assertions: ["len(output) > 30", "'clear' in output"]}}]
  - {{id: keywords, prompt: Where is it?, expected: {{output_contains: [Paris, Seine], output_matches: '\\d{{4}}'}}}}
  - id: named-file
    prompt: Write the report.
    graders: [{{type: file, name: report, must_exist: [out/report.md]}}]
  - id: tests-of-the-agent
    prompt: Repair add().
    inputs: {{files: [{{path: tests/test_add.py, content: "def test_add():\\n    assert False\\n"}}]}}
    graders: [{{type: program, name: tests, command: sh, args: [run_tests.sh]}}]
  - id: path-of-the-agent
    prompt: Repair add().
    graders: [{{type: program, name: check, command: sh, args: [run_check.sh]}}]
  - id: strong-answer
    prompt: What is the capital of France?
    expected: {{output_equals: Paris}}
  - id: strong-tools
    prompt: Refund order 1042.
    expected: {{tools_called: [refund]}}
  - id: strong-program
    prompt: Repair add().
    graders: [{{type: program, name: check, command: {sys.executable}, args: [-I, check.py]}}]
"""
SCRIPTS = {
    "run_tests.sh": 'cd "$WAZA_WORKSPACE_DIR" && export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1\n'
    f"exec {sys.executable} -m pytest -q -p no:cacheprovider tests\n",
    "run_check.sh": f'exec env PYTHONPATH="$WAZA_WORKSPACE_DIR" {sys.executable} check.py\n',
    "check.py": "import sys\n\nsys.exit(1)\n",
    "untouched.py": "from pathlib import Path\n\ndef agent(prompt):\n    Path(__file__).with_name('started').touch()\n",
}


@pytest.fixture
def weak(tmp_path):
    (tmp_path / "eval.yaml").write_text(WEAK)
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_weak_task_is_named_and_no_other_and_no_agent_is_started(weak, capsys):
    assert run_command(["check", "--oracles", str(weak)]) == 1
    told = capsys.readouterr().out
    named = dict(re.findall(r"task '([\w-]+)': (.+) pass(?:es)?; add a check", told))
    assert not [task for task in named if task.startswith("strong")]
    expected = {
        "limits-only": set(ORACLES),
        "claims": {"empty claim", "prompt echo", "tampering"},
        "asked-back": {"prompt echo"},
        "in-the-rubric": {"rubric echo", "keyword stuffing"},
        "keywords": {"keyword stuffing"},
        "named-file": {"keyword stuffing"},
        "tests-of-the-agent": {"tampering"},
        "path-of-the-agent": {"tampering"},
    }
    assert {task: set(oracles.split(", ")) for task, oracles in named.items()} == expected
    assert not list(weak.glob("runs")), "nothing is stored"
    assert not (weak / "started").exists()


def test_on_the_examples_none_passes(examples, tmp_path, capsys):
    shutil.copytree(examples, tmp_path / "examples", ignore=shutil.ignore_patterns("runs", "__pycache__"))
    assert run_command(["check", "--oracles", str(tmp_path / "examples")]) == 0
    told = capsys.readouterr().out
    assert told.count("oracles: none of 6 passes any of") >= 7
    assert "could not be tried" not in told


JUDGED = """
name: judged
config: {executor: mock}
tasks:
  - {id: judge-alone, prompt: Be kind., graders: [{type: prompt, name: kind, prompt: Is it kind?}]}
  - id: judge-and-check
    prompt: Be kind to Ada.
    graders: [{type: prompt, name: kind, prompt: Is it kind?}]
    expected: {tools_called: [greet]}
"""


def test_what_a_judge_alone_holds_up_is_told_and_does_not_fail_the_check(tmp_path, capsys):
    (tmp_path / "eval.yaml").write_text(JUDGED)
    assert run_command(["check", "--oracles", str(tmp_path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "note: task 'judge-alone': only kind fails no-op, empty claim, prompt echo" in told
    assert "judge-and-check" not in told


def test_findings_are_json_lines_for_programs(tmp_path, capsys):
    keywords = "tasks: [{id: keywords, prompt: Where?, expected: {output_contains: [Paris]}}]"
    (tmp_path / "eval.yaml").write_text(f"name: weak\nconfig: {{executor: mock}}\n{keywords}")
    assert run_command(["check", "--oracles", "--json", "-q", str(tmp_path)]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["task"], line["oracle"], line["kind"]) for line in lines] == [
        ("keywords", "rubric echo", "passes"),
        ("keywords", "keyword stuffing", "passes"),
    ]


def test_a_conversation_is_tried_on_every_prompt(tmp_path):
    (tmp_path / "eval.yaml").write_text(
        textwrap.dedent("""
        name: talk
        config: {executor: mock}
        tasks:
          - id: talk
            inputs: {prompt: "Hello, I am Ada.", follow_up_prompts: [Who am I?]}
            expected: {output_contains: [Ada]}
        """)
    )
    assert {finding.oracle for finding in cheated(load_spec(tmp_path))} >= {"prompt echo", "keyword stuffing"}


def test_tests_that_a_task_brings_are_emptied(tmp_path):
    (tmp_path / "test_inner.py").write_text("assert False")
    files = [InputFile(path="tests/test_a.py", content="x"), InputFile(path="lib", source=str(tmp_path))]
    files += [InputFile(path="app.spec.ts", content="x"), InputFile(path="latest.py", content="x")]
    left = tampering(Task(id="t", prompt="p", files=files), []).files
    assert {path for path, text in left.items() if not text} == {"tests/test_a.py", "lib/test_inner.py", "app.spec.ts"}
    assert {"conftest.py", "sitecustomize.py", ".git/config"} <= set(TAMPERED) <= set(left)


@pytest.mark.parametrize(
    "pattern",
    [r"refund(ed)? .*1042", r"\d{4}-\d{2}-\d{2}", r"(?m)^# Report$", r"https?://\S+", r"(red|green) [a-f]+", "a|b"],
)
def test_a_sample_fits_its_pattern(pattern):
    assert re.search(pattern, sample(pattern))


@given(st.text(max_size=60))
def test_any_text_can_be_taken_for_a_pattern(text):
    assert isinstance(sample(text), str)


def test_stuffing_says_what_is_wanted_and_what_is_forbidden():
    deed = stuffing(Task(id="t", prompt="p"), [TextGrader(contains=["red"], not_contains=["mauve"])])
    assert {"red", "mauve"} <= set(deed.output.splitlines())


def test_the_guide_shows_what_the_command_says(examples, tmp_path, capsys):
    guide = (examples.parent / "docs" / "guide" / "oracles.md").read_text()
    suite, told = (guide.split(f"```{kind}\n")[1].split("```")[0] for kind in ("yaml", "text"))
    (tmp_path / "eval.yaml").write_text(suite)
    assert run_command(["check", "--oracles", "-q", str(tmp_path)]) == 1
    assert capsys.readouterr().out == told
    assert all(f"| {name} |" in guide for name in ORACLES)


def test_an_oracle_that_could_not_be_tried_is_no_oracle_that_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    grader = {"type": "program", "name": "slow", "command": "sh", "args": ["slow.sh"]}
    task = {"id": "one", "prompt": "x", "graders": [grader]}
    (tmp_path / "slow.sh").write_text("exit 126\n")
    (tmp_path / "eval.yaml").write_text(json.dumps({"name": "open", "config": {"executor": "mock"}, "tasks": [task]}))
    assert run_command(["check", "--oracles", "eval.yaml"]) == 3
    told = capsys.readouterr().out
    assert "warning: task 'one': no-op could not be tried" in told and "oracles: none" not in told
    assert run_command(["check", "--oracles", "-q", "eval.yaml"]) == 3
    assert "could not be tried" in capsys.readouterr().out
