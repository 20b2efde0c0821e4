"""An evaldeck project folder under `waza check` and `waza run`: what it documents holds."""

import json

import pytest

import waza
from waza.errors import SpecError
from waza.evaldeck import EvalCase
from waza.suites.load import load_spec

AGENT = """
from waza.evaldeck import Step, Trace

def run_agent(input, history):
    trace = Trace(input=input)
    trace.add_step(Step.llm_call("m", input, "ok"))
    trace.add_step(Step.tool_call("search", {"q": input}, "found"))
    trace.complete(f"{input} after {[message.content for message in history if message.role == 'user']}")
    return trace

def one_argument(input):
    return f"plain {input}"
"""
CONFIG = "version: 1\nagent: {module: my_agent, function: run_agent}\n"
HELLO = "name: hello\ninput: hi\nexpected: {output_contains: [hi], tools_called: [search], max_llm_calls: 1}\n"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "my_agent.py").write_text(AGENT)

    def make(files, config=CONFIG):
        (tmp_path / "evaldeck.yaml").write_text(config)
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


def mistakes(folder):
    with pytest.raises(SpecError) as caught:
        load_spec(folder)
    return str(caught.value)


def test_a_project_is_checked_and_run(waza, project):
    folder = project({"tests/evals/hello.yaml": HELLO})
    done = waza("check", folder)
    assert done.returncode == 0 and "ok, 1 task" in done.stdout
    done = waza("run", folder, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [task] = json.loads(done.stdout)["tasks"]
    assert [grade["status"] for grade in task["runs"][0]["grades"]] == ["passed"] * 3
    (folder / "above").mkdir()
    (folder / "above" / "evaldeck.yml").write_text((folder / "evaldeck.yaml").read_text())
    assert "above/evaldeck.yml: 2 mistakes" in waza("check", folder / "above").stdout


def test_a_run_of_a_project_is_resumed_by_its_folder(waza, project):
    folder = project({"tests/evals/hello.yaml": HELLO})
    assert waza("run", folder).returncode == 0
    done = waza("run", "--resume", folder)
    assert done.returncode == 0 and "complete" in done.stdout + done.stderr, done.stdout + done.stderr


def test_an_agent_of_one_argument_that_returns_a_text_works(project):
    import waza

    files = {"tests/evals/a.yaml": "name: a\ninput: hi\nexpected: {output_equals: plain hi}\n"}
    folder = project(files, CONFIG.replace("run_agent", "one_argument"))
    assert waza.run(folder).results[0].status == "passed"


def test_folders_are_read_to_the_bottom_and_documents_to_the_end(project):
    second = HELLO.replace("hello", "second")
    spec = load_spec(
        project(
            {
                "tests/evals/top.yaml": f"{HELLO}---\n# another\n{second}",
                "tests/evals/fixtures/deeper/c.yml": HELLO.replace("hello", "third"),
                "tests/evals/_drafts/d.yaml": "not: [a case",
                "tests/evals/.hidden/e.yaml": "not: [a case",
            }
        )
    )
    assert sorted(task.id for task in spec.tasks) == ["hello", "second", "third"]
    assert {task.id: task.tags for task in spec.tasks}["third"] == ["fixtures"]


def test_every_mistake_is_told_with_its_place(project):
    folder = project(
        {
            "tests/evals/a.yaml": HELLO + "---\nname: typo\ninput: hi\nexpected:\n  output_contians: [x]\n",
            "tests/evals/b.yaml": "name: none\ninput: hi\n",
            "tests/evals/c.yaml": "name: both\ninput: hi\nturns: [{user: a, expected: {max_steps: 1}}]\n",
            "tests/evals/d.yaml": "name: g\ninput: hi\ngraders: [{type: contains, params: {valus: [a]}}]\n",
            "tests/evals/g.yaml": "name: h\ninput: hi\ngraders: [{type: nope}]\n",
            "tests/evals/e.yaml": "name: f\ninput: hi\ngraders: [{type: code, module: m, function: f}]\n",
            "tests/evals/f.yaml": "",
        }
    )
    messages = mistakes(folder)
    for part in (
        "a.yaml:8:3: expected.output_contians: unknown key 'output_contians'; did you mean 'output_contains'?",
        "case 'none' expects nothing: it could not fail",
        "c.yaml:2:1: input: 'input' and 'turns' are both given",
        "graders[0].params.valus: unknown key 'valus'; did you mean 'values'?",
        "unknown grader type 'nope'",
        "a grader that calls a function is a Python file here",
        "f.yaml:1:1: the file is empty",
    ):
        assert part in messages, messages


IN_EXPECTED = """name: {name}
input: hi
expected:
  output_contains: [hi]
  graders:
    - {entry}
"""
ENTRIES = {
    "contains": "{type: contains, params: {values: [absent]}}",
    "regex": "{type: Regex, params: {pattern: '^absent'}}",
    "tool_called": "{type: tool_called, name: looks_up, params: {required: [book]}}",
    "flat": "{type: max_steps, max_steps: 0}",
    "ours": "{type: text, config: {contains: [absent]}}",
    "patterns": "{type: regex, config: {must_match: [absent]}}",
}


def test_graders_within_expectations_are_enforced(project):
    files = {
        f"tests/evals/{name}.yaml": IN_EXPECTED.replace("{name}", name).replace("{entry}", entry)
        for name, entry in ENTRIES.items()
    }
    first = "{user: hi, expected: {graders: [{type: not_contains, params: {values: [hi]}}]}}"
    turns = f"name: turns\nturns: [{first}, {{user: b}}]\n"
    case = "name: case\nturns: [{user: a}, {user: b}]\nexpected: {graders: [{type: equals, params: {expected: x}}]}\n"
    spec = load_spec(project(files | {"tests/evals/t.yaml": turns, "tests/evals/u.yaml": case}))
    run = waza.run(spec.file.parent)
    failed = {result.task_id: [g.name for g in result.grades if g.status == "failed"] for result in run.results}
    assert failed == {
        "contains": ["contains"],
        "regex": ["regex"],
        "tool_called": ["looks_up"],
        "flat": ["max_steps"],
        "ours": ["text"],
        "patterns": ["regex"],
        "turns": ["not_contains@1"],
        "case": ["equals@2"],
    }


@pytest.mark.parametrize(
    ("entry", "fact"),
    [
        (
            "length_check",
            "expected.graders[0]: unknown grader 'length_check'; an evaldeck project has no graders to name",
        ),
        ("{type: contians}", "unknown grader type 'contians'; did you mean 'contains'?"),
        ("{type: contains}", "expected.graders[0]"),
        ("{type: contains, params: {values: []}}", "expected.graders[0].params.values"),
        ("{type: contains, params: {valus: [a]}}", "did you mean 'values'?"),
        ("{type: contains, params: {values: [a]}, config: {values: [b]}}", "keep one of them"),
        ("{type: contains, params: {values: [a]}, threshold: 4}", "unknown key 'threshold'"),
        ("{type: code, module: m, function: f}", "a grader that calls a function is a Python file here"),
        ("{type: llm, prompt: ''}", "the prompt is empty"),
        ("{type: llm, prompt: a, params: {prompt: b}}", "keep one of them"),
        ("7", "a grader is a mapping with a type"),
    ],
)
def test_a_wrong_grader_within_expectations_is_refused(project, entry, fact):
    text = IN_EXPECTED.replace("{name}", "a").replace("{entry}", entry)
    assert fact in mistakes(project({"tests/evals/a.yaml": text}))
    with pytest.raises((SpecError, ValueError)):
        EvalCase.from_yaml_string(text)


@pytest.mark.parametrize("nothing", ["[]", "~", "{}", "contains"])
def test_no_graders_within_expectations_are_refused(project, nothing):
    text = f"name: a\ninput: hi\nexpected: {{graders: {nothing}}}\n"
    messages = mistakes(project({"tests/evals/a.yaml": text}))
    found = {"[]": "an empty list", "~": "nothing", "{}": "an empty mapping", "contains": "the text 'contains'"}
    assert f"a list with at least one grader is needed, found {found[nothing]}" in messages


@pytest.mark.parametrize(
    ("config", "fact"),
    [
        (CONFIG + "execution: {timeout: 3}\ndefaults: {timeout: 4}\n", "its older name; keep one of them"),
        ("agnet: {}\n", "did you mean 'agent'?"),
        (CONFIG + "suites: [{name: core, path: nowhere}]\n", "'nowhere' is not there"),
        (CONFIG + "thresholds: {min_pass_rate: 1.5}\n", "must be at most 1"),
        (CONFIG + "execution: {timeout: -1}\n", "must be above 0"),
        ("agent: {module: my_agent}\n", "one of them is missing"),
        ("agent: {framework: langchain}\n", "not supported; name a function"),
        (CONFIG + "test_dir: ../elsewhere\n", "leaves the project's folder"),
    ],
)
def test_a_wrong_configuration_is_refused(project, config, fact):
    assert fact in mistakes(project({"tests/evals/a.yaml": HELLO}, config))


def test_a_project_without_cases_is_refused(project):
    folder = project({"tests/evals/_x.yaml": HELLO})
    assert "at least one case" in mistakes(folder)


FIVE = "\n---\n".join(
    f"name: c{n}\ninput: hi\nexpected: {{output_contains: [{'hi' if n else 'absent'}]}}" for n in range(5)
)


@pytest.mark.parametrize(
    ("thresholds", "code"),
    [
        ("", 1),
        ("thresholds: {min_pass_rate: 0.5}", 0),
        ("thresholds: {min_pass_rate: 0.8}", 0),
        ("thresholds: {min_pass_rate: 0.9}", 1),
        ("thresholds: {max_failures: 1}", 0),
        ("thresholds: {max_failures: 0}", 1),
        ("thresholds: {min_pass_rate: 0.5, max_failures: 0}", 1),
        ("thresholds: {min_pass_rate: 0}", 1),
    ],
)
def test_thresholds_relax_a_run_and_no_further(project, thresholds, code):
    import waza
    from waza.runs.summary import summarize

    folder = project({"tests/evals/five.yaml": FIVE}, CONFIG + thresholds + "\n")
    assert summarize(waza.run(folder)).exit_code == code


def test_what_execution_leaves_open_is_taken_from_its_older_name(project):
    folder = project({"tests/evals/a.yaml": HELLO}, CONFIG + "execution: {workers: 2}\ndefaults: {timeout: 4}\n")
    assert (load_spec(folder).config.workers, load_spec(folder).tasks[0].timeout_s) == (2, 4)


def test_a_time_limit_holds(project, waza):
    slow = AGENT + "\nasync def slow(input):\n    import asyncio\n    await asyncio.sleep(60)\n"
    config = "agent: {module: my_agent, function: slow}\nexecution: {timeout: 0.2}\n"
    folder = project({"tests/evals/a.yaml": HELLO, "my_agent.py": slow}, config)
    done = waza("run", folder)
    assert done.returncode == 1 and "timeout" in done.stdout


def test_cases_of_one_name_in_two_suites_are_kept_apart(project):
    config = CONFIG + "suites:\n  - {name: core, path: a, tags: [quick]}\n  - {name: edge, path: b}\n"
    spec = load_spec(project({"a/x.yaml": HELLO, "b/x.yaml": HELLO}, config))
    assert [(task.id, task.tags) for task in spec.tasks] == [
        ("core/hello", ["core", "quick"]),
        ("edge/hello", ["edge"]),
    ]
    twice = project({"a/x.yaml": f"{HELLO}---\n{HELLO}", "b/x.yaml": HELLO}, config)
    assert "is there twice" in mistakes(twice)


def test_turns_are_graded_alone_and_the_case_after_the_last(project):
    import waza

    talk = """
name: talk
turns:
  - user: one
    expected: {output_contains: ["one after []"], max_tool_calls: 1}
  - user: two
    expected: {output_contains: ["two after ['one']"], max_tool_calls: 1, output_not_contains: [three]}
  - user: three
graders:
  - {type: regex, params: {pattern: "^three after .*two"}}
"""
    run = waza.run(project({"tests/evals/talk.yaml": talk}))
    [result] = run.results
    assert result.status == "passed", [grade.feedback for grade in result.grades]
    assert [grade.name for grade in result.grades] == [
        "output_contains@1",
        "max_tool_calls@1",
        "output_contains@2",
        "max_tool_calls@2",
        "output_not_contains@2",
        "regex@3",
    ]
    wrong = talk.replace('["two after', '["TWO before')
    [result] = waza.run(project({"tests/evals/talk.yaml": wrong})).results
    assert [grade.name for grade in result.grades if grade.status == "failed"] == ["output_contains@2", "regex@3"]
    assert len(result.trace.turns) == 2 and "stopped after turn 2" in result.grades[-1].feedback


def test_what_evaldeck_ignores_is_enforced_and_said_so(waza, project):
    folder = project({"tests/evals/a.yaml": "name: a\ninput: hi\nexpected: {output_equals: other, min_steps: 9}\n"})
    assert "enforced here, ignored by evaldeck: min_steps, output_equals" in waza("check", folder).stdout
    done = waza("run", folder)
    assert done.returncode == 1
    assert "Output does not match expected" in done.stdout and "Too few steps: 2 < 9" in done.stdout


def test_run_folders_stand_where_the_project_says(project):
    import waza

    run = waza.run(project({"tests/evals/a.yaml": HELLO}, CONFIG + "output_dir: .evaldeck\n"))
    assert "/.evaldeck/" in run.folder
