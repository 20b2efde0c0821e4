"""The public names: what is there, how fast it loads, and what people do with it from Python."""

import ast
import asyncio
import inspect
import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import waza

DATA = Path(__file__).parent / "data" / "conformance"
EXAMPLES = Path(__file__).parent.parent / "examples"
HEAVY = ("pydantic", "scipy", "rich", "yaml", "msgspec", "click", "openai", "anthropic", "asyncio", "opentelemetry")


def modules_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_waza_loads_nothing_heavy():
    assert modules_after("import waza").isdisjoint(HEAVY)
    assert modules_after("import waza.pytest_plugin").isdisjoint({*HEAVY} - {"rich"})
    assert {"pydantic", "msgspec"} <= modules_after("import waza; waza.grade"), "the test can fail"


UNUSED = {
    "run": {
        *(
            "waza.judges.base",
            "waza.judges.asking",
            "waza.judges.rubrics",
            "waza.graders.judging",
            "waza.graders.prompt",
        ),
        *("waza.graders.human", "waza.suites.evaldeck", "waza.untrusted.javascript_assertions", "waza.runner.regrade"),
        *(
            "waza.reports.triggers",
            "waza.reports.impact",
            "waza.server",
            "waza.reports.html",
            "waza.process.supervisor",
        ),
        *("openai", "anthropic", "httpx", "urllib.request", "http.client", "starlette", "uvicorn", "opentelemetry"),
        *("numpy", "scipy", "jsonschema_rs", "quickjs", "sqlite3", "fsspec", "markdown_it", "pygments", "pyarrow"),
    },
    "list": {"pydantic", "yaml", "asyncio", "waza.graders.base", "waza.runs", "waza.suites"},
    "show": {"pydantic", "yaml", "waza.graders", "waza.judges", "waza.suites", "waza.runner", "waza.server", "numpy"},
    "--help": {"pydantic", "yaml", "rich", "asyncio", "waza.model"},
}
"""By command: modules that it does without on a suite of rules and the `mock` engine."""


def test_commands_load_only_what_they_use(tmp_path):
    shutil.copytree(EXAMPLES / "quickstart", tmp_path, dirs_exist_ok=True)
    commands = (["run", "."], ["show"], ["list", "graders"], ["--help"])
    loaded = {command[0]: modules_loaded_by(command, tmp_path) for command in commands}
    for command, unused in UNUSED.items():
        assert sorted(loaded[command] & unused) == [], command
    assert {"pydantic", "waza.graders.text", "waza.engines.mock"} <= loaded["run"], "the test can fail"
    assert {"rich", "waza.reports.table"} <= loaded["show"]


def modules_loaded_by(command, folder):
    code = f"import sys, waza.cli\ncode = waza.cli.run_command({command})\nprint('\\n', *sys.modules)\nsys.exit(code)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_a_trace_is_there_without_specs_and_recording_without_pydantic():
    assert modules_after("import waza; waza.Trace, waza.record").isdisjoint({"pydantic", "yaml", "scipy", "rich"})
    assert modules_after("import waza.evaldeck").isdisjoint({"scipy", "rich", "openai", "anthropic"})


def test_every_public_name_is_there_and_documented():
    for name in waza.__all__:
        value = getattr(waza, name)
        if name != "__version__":
            assert inspect.getdoc(value), name
    assert set(waza.__all__) <= set(dir(waza))
    with pytest.raises(AttributeError, match="no attribute 'Tracer'"):
        waza.Tracer  # noqa: B018


def test_the_types_say_what_the_names_are():
    tree = ast.parse(Path(waza.__file__).with_suffix(".pyi").read_text())
    imported = {
        alias.asname: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    made = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    public = {name for name, (module, _) in imported.items() if module != "waza" and not name.startswith("_")}
    assert public | set(made) == set(waza.__all__) - {"__version__"}
    for name in public:
        module, inner = imported[name]
        assert getattr(waza, name) is getattr(import_module(module), inner), name
    for name, node in made.items():
        module, inner = imported[node.bases[0].value.id]
        cls = getattr(import_module(f"{module}.{inner}"), node.bases[0].attr)
        assert getattr(waza, name) is cls
        options = [argument.arg for argument in node.body[0].args.args[1:]]
        assert options == [field for field in cls.model_fields if field not in ("name", "weight", "folder")], name
    assert Path(waza.__file__).with_name("py.typed").exists()


def cases(file):
    return [json.loads(line) for line in (DATA / file).read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.parametrize("case", cases("expected.jsonl"), ids=lambda case: case["id"])
def test_an_expected_block_is_enforced(case):
    want = case["expect"]
    if want["status"] == "refused":
        with pytest.raises(waza.SpecError):
            waza.load_expected(case["expected"])
        return
    grades = {
        grader.name: grader.grade(waza.Trace.from_json(case["trace"]))
        for grader in waza.load_expected(case["expected"])
    }
    statuses = {grade.status for grade in grades.values()}
    status = next((one for one in ("failed", "error") if one in statuses), "passed")
    assert status == want["status"], [grade.feedback for grade in grades.values()]
    if want.get("per_key"):
        assert {name: grade.status for name, grade in grades.items()} == {
            key: f"{verdict}ed" for key, verdict in want["per_key"].items()
        }


@pytest.mark.parametrize("case", cases("helpers_task_expectation.jsonl"), ids=lambda case: case["id"])
def test_an_expectation_scores_as_documented(case):
    trace = waza.Trace(input="ask", output=case["input"]["output"])
    grades = {grade.name: grade for grade in waza.grade(trace, case["input"]["expected"])}
    assert set(grades) == set(case["expected"])
    for key, want in case["expected"].items():
        assert (grades[key].score, grades[key].passed) == (pytest.approx(want["score"], abs=1e-4), want["passed"])
        assert want.get("feedback_contains", "") in grades[key].feedback.lower()


TRACE = waza.Trace(
    input="ask",
    output="Hello there",
    tool_events=[waza.ToolEvent(tool_name="search")],
    steps=1,
    usage=waza.Usage(llm_calls=1),
)


def test_grade_takes_graders_mappings_and_expectations():
    grades = waza.grade(TRACE, [waza.ContainsGrader(["hello"]), {"type": "text", "config": {"contains": ["there"]}}])
    assert grades.passed and grades.status == "passed" and str(grades) == "passed"
    assert [grade.name for grade in grades] == ["contains", "text"]
    assert waza.grade(TRACE, {"output_contains": ["hello"], "max_llm_calls": 1}).passed
    assert waza.grade(TRACE.to_json(), waza.ContainsGrader(["hello"])).passed
    assert waza.grade(TRACE.to_dict(), {"tools_called": ["search"]}).passed


def test_grade_of_an_evaldeck_trace():
    from waza.evaldeck import Step, Trace

    trace = Trace(input="ask", output="Hello", steps=[Step.tool_call("search")])
    assert waza.grade(trace, {"tools_called": ["search"], "max_steps": 1}).passed


def test_failed_decides_over_undecided():
    blind = waza.Trace(input="ask", output="Hello")
    assert waza.grade(blind, {"tools_called": ["a"]}).status == "error"
    assert waza.grade(blind, {"tools_called": ["a"], "output_contains": ["x"]}).status == "failed"


@pytest.mark.parametrize(("status", "verdict"), [("error", "error"), ("timeout", "failed"), ("failure", "passed")])
def test_a_trace_of_an_agent_that_could_not_run_never_passes(status, verdict):
    trace = waza.Trace(input="ask", output="", status=status, error="no network")
    assert waza.grade(trace, {"output_not_contains": ["secret"]}).status == verdict


def test_wrong_graders_are_refused_all_at_once():
    with pytest.raises(waza.SpecError) as caught:
        waza.grade(TRACE, [{"type": "txet"}, {"type": "text", "config": {"contians": ["a"]}}])
    assert "did you mean 'text'?" in str(caught.value) and "did you mean 'contains'?" in str(caught.value)
    for wrong in ([], [waza.ContainsGrader], [len]):
        with pytest.raises(waza.WazaError):
            waza.grade(TRACE, wrong)
    with pytest.raises(waza.TraceError, match="found int"):
        waza.grade(7, {"max_steps": 1})


def test_assert_grades_shows_expected_and_actual_values():
    assert waza.assert_grades(TRACE, {"tools_called": ["search"]}).passed
    with pytest.raises(AssertionError) as caught:
        waza.assert_grades(TRACE, [waza.ToolCalledGrader(["search", "book"]), waza.MaxToolCallsGrader(0)])
    message = str(caught.value)
    assert message.startswith("failed: Required tool not called: book\n")
    for line in (
        "✗ Required tool not called: book",
        "expected: book",
        'found:    ["search"]',
        "Too many tool calls: 1 > 0",
    ):
        assert line in message
    with pytest.raises(AssertionError, match=r"^undecided: tool calls were not recorded"):
        waza.assert_grades(waza.Trace(input="", output="x"), {"tools_called": ["a"]})


def test_control_characters_of_an_agent_are_escaped():
    trace = waza.Trace(input="ask", output="\x1b[31m[bold]\u202e")
    message = str(waza.grade(trace, {"output_contains": ["x"]}))
    assert "\x1b" not in message and "\\e[31m[bold]\\u202e" in message


def test_positional_arguments():
    assert waza.ContainsGrader(["HELLO"], True).grade(TRACE).status == "failed"
    assert waza.EqualsGrader("Hello   there", False).grade(TRACE).status == "failed"
    assert waza.EqualsGrader(" Hello   there").grade(TRACE).status == "passed"
    assert waza.RegexGrader("^hello", re.I).grade(TRACE).status == "passed"
    assert waza.RegexGrader("hello # greets", re.I | re.X).grade(TRACE).status == "passed"
    assert waza.TaskCompletedGrader(False).grade(TRACE).status == "failed"
    either = waza.CompositeGrader([waza.MaxStepsGrader(0), waza.MaxLLMCallsGrader(1)], False)
    assert either.grade(TRACE).status == "passed"
    for wrong in (lambda: waza.ContainsGrader(["a"], True, 1), lambda: waza.ContainsGrader(["a"], values=["b"])):
        with pytest.raises(TypeError, match="values, case_sensitive"):
            wrong()
    for wrong in ([], [""], "abc", [1], None):
        with pytest.raises(ValueError):
            waza.ContainsGrader(wrong)
    with pytest.raises(ValueError, match="flags 128 are not known"):
        waza.RegexGrader("a", 128)


def test_a_second_argument_and_awaiting_are_accepted():
    assert waza.ContainsGrader(["hello"]).grade(TRACE, "a test case").passed
    assert asyncio.run(waza.ContainsGrader(["hello"]).agrade(TRACE)).passed


def test_flags_are_part_of_what_is_stored():
    from waza.suites.suite import grader_as_data

    data = grader_as_data(waza.RegexGrader(pattern="a", flags=re.I | re.S, name="x"))
    assert data["config"] == {"pattern": "(?is)a"}
    assert waza.load_grader(data).grade(waza.Trace(input="", output="A")).passed


def test_what_a_composite_is_made_of_is_stored():
    from waza.suites.suite import grader_as_data

    [grader] = waza.load_expected({"behavior": {"max_tokens": 5}})
    assert grader_as_data(grader)["config"]["graders"] == [{"name": "max_tokens", "max_tokens": 5}]


@waza.grader
def short(trace, limit: int = 3):
    """The answer is short.

    More about it.
    """
    return len(trace.output.split()) <= limit


def test_a_function_is_a_grader():
    grade = short.grade(TRACE)
    assert (grade.name, grade.type, grade.status) == ("short", "short", "passed")
    assert grade.checks[0].claim == "The answer is short"
    changed = short(limit=1, name="very_short", weight=2)
    assert (changed.grade(TRACE).status, changed.grade(TRACE).name, changed.weight) == ("failed", "very_short", 2)
    with pytest.raises(ValueError, match="limit"):
        short(limit="many")
    with pytest.raises(ValueError):
        short(limti=1)


RETURNED = [
    (True, "passed", 1.0),
    (False, "failed", 0.0),
    (0.5, "failed", 0.5),
    (0.8, "passed", 0.8),
    (1, "passed", 1.0),
    (1.5, "error", 0.0),
    (float("nan"), "error", 0.0),
    (waza.Check(True, "so"), "passed", 1.0),
    ([waza.Check(True, "so"), waza.Check(False, "not so")], "failed", 0.5),
    ((waza.Check(None, "who knows"),), "error", 0.0),
    (waza.Grade(name="x", type="x", status="failed", score=0.25, feedback="hm"), "failed", 0.25),
    (waza.Grade(name="x", type="x", status="fine", score=0.25, feedback="hm"), "error", 0.0),
    (waza.Grade(name="x", type="x", status="passed", score=7.0, feedback="hm"), "error", 0.0),
    ([], "error", 0.0),
    ([waza.Check(True, "so"), None], "error", 0.0),
    (waza.Check(1, "odd"), "error", 0.0),
    (None, "error", 0.0),
    ("passed", "error", 0.0),
    ({"passed": True}, "error", 0.0),
]


@pytest.mark.parametrize(("returned", "status", "score"), RETURNED, ids=[repr(r[0])[:40] for r in RETURNED])
def test_what_a_function_returns_becomes_a_grade(returned, status, score):
    @waza.grader(name="mine", weight=3, pass_at=0.8)
    def judge(trace):
        return returned

    grade = judge.grade(TRACE)
    assert (grade.status, grade.score) == (status, score)
    assert (grade.name, grade.type, grade.weight) == ("mine", "judge", 3)


def test_a_function_may_yield_checks_and_may_break():
    @waza.grader
    def both(trace):
        yield waza.Check(True, "a")
        yield waza.Check("Hello" in trace.output, "b")

    @waza.grader
    def broken(trace):
        return 1 / 0

    grades = waza.grade(TRACE, [both, broken])
    assert [grade.status for grade in grades] == ["passed", "error"]
    assert "ZeroDivisionError" in grades[1].feedback


async def later(trace):
    return True


@pytest.mark.parametrize(
    "function",
    [later, lambda: True, lambda trace, needed: True, lambda trace, *rest: True, lambda trace, name="x": True],
)
def test_a_function_that_cannot_be_a_grader_is_refused(function):
    with pytest.raises(TypeError):
        waza.grader(function)


def test_a_subclass_is_a_grader():
    class MaxWordsGrader(waza.Grader):
        """Check the length."""

        max_words: int

        def checks(self, trace):
            words = len(trace.output.split())
            yield waza.Check(words <= self.max_words, "short", f"{words} words", self.max_words, words)

    assert waza.grade(TRACE, [MaxWordsGrader(2)]).passed
    assert waza.grade(TRACE, [MaxWordsGrader(max_words=1, name="terse")])[0].name == "terse"


def test_run_from_python(tmp_path):
    (tmp_path / "eval.yaml").write_text(
        "config: {executor: mock}\ntasks: [{id: a, prompt: x, mock: {output: hi}, expected: {output_contains: [hi]}}]\n"
    )
    results = []
    run = waza.run(tmp_path / "eval.yaml", trials=2, on_result=results.append)
    assert isinstance(run, waza.Run) and [result.status for result in run.results] == ["passed"] * 2
    assert all(isinstance(result, waza.Result) for result in results)
    assert waza.load_spec(tmp_path).tasks[0].id == "a"

    async def notebook():
        return waza.run(tmp_path)

    assert asyncio.run(notebook()).results[0].status == "passed"
