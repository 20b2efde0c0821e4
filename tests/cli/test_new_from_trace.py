"""`waza new task --from TRACE`: the task loads, its prompt is the recorded one, and the recording passes it."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from waza.cli._new_files import flow, quoted, task_text, text_at, word
from waza.errors import UsageError
from waza.model import SkillInvocation, ToolEvent, Trace
from waza.runner.regrade import Recorded, regrade
from waza.suites.load import load_spec
from waza.traces.reading import read_trace
from waza.untrusted.yaml import read_yaml

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
QUICK = settings(
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
BITS = """{{name}} {{{{x}}}} {{open_braces}} a:b #no ' " \\ | >- &a *a !!str %TAG --- ... true null 1e3 ~ @ ` ? [ { ,"""
LONGER = ["a: b", "- x", " #", "\n---\nid: other\n", '"\nexpected: {}\n"', "x" * 300, "\x1b[31m", "\r\n"]
HOSTILE = st.sampled_from([*BITS.split(), *LONGER, *"\n\t \x85\u2028\ufeff\0\u202e😀\ue000\U000e0001"])
TEXTS = st.lists(HOSTILE | st.text(max_size=8), max_size=6).map("".join)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
NAMES = st.sampled_from(["Bash", "Write", "Skill", "mcp__a__b", "null", "bash"]) | TEXTS
KEYS = st.sampled_from(["command", "path", "file_path", "a.b", "items[0]", "changes", "user"]) | TEXTS
EVENTS = st.builds(
    ToolEvent, tool_name=NAMES, args=st.dictionaries(KEYS, VALUES, max_size=4) | VALUES, success=st.booleans()
)
TRACES = st.builds(
    Trace,
    input=TEXTS,
    output=TEXTS,
    status=st.sampled_from(["success", "failure"]),
    engine=st.sampled_from([None, "claude-code", "codex", "opencode"]),
    tool_events=st.none() | st.lists(EVENTS, max_size=6) | st.lists(EVENTS, min_size=25, max_size=30),
    skill_invocations=st.none() | st.lists(st.builds(SkillInvocation, name=TEXTS), max_size=3),
)


def suite_with(folder, text):
    """The suite that holds one task file."""
    (folder / ".waza.yaml").touch()
    (folder / "tasks").mkdir(exist_ok=True)
    (folder / "tasks" / "t.yaml").write_bytes(text.encode())
    (folder / "eval.yaml").write_text("tasks: ['tasks/*.yaml']\nconfig: {executor: mock}\n")
    return load_spec(folder)


def result_of(trace, spec):
    return regrade(Recorded(spec.tasks[0].id, 1, trace), spec)


@QUICK
@example(Trace(input="{{{x}}} {{", output="a"))
@example(Trace(input="two\nlines", output="a", tool_events=[ToolEvent(tool_name="x", args={"a": {"b": [{"c": 1}]}})]))
@given(TRACES)
def test_whatever_an_agent_said_the_task_loads_and_the_recording_passes_it(tmp_path, trace):
    assume(trace.input.strip())
    try:
        text = task_text(trace, "t-1", "run.jsonl")
    except UsageError as refusal:
        assert "could be checked" in str(refusal)
        return
    spec = suite_with(tmp_path, text)
    [task] = spec.tasks
    assert (task.id, task.prompt) == ("t-1", trace.input)
    result = result_of(trace, spec)
    assert result.status == "passed", [grade.feedback for grade in result.grades]


@QUICK
@given(st.lists(TEXTS.filter(str.strip), min_size=2, max_size=4))
def test_a_conversation_keeps_its_prompts(tmp_path, prompts):
    turns = [Trace(input=prompt, output="ok") for prompt in prompts]
    trace = Trace(input=prompts[0], output="ok", turns=turns)
    [task] = suite_with(tmp_path, task_text(trace, "t", "run.jsonl")).tasks
    assert [task.prompt, *task.follow_up_prompts] == prompts


@QUICK
@given(VALUES, TEXTS)
def test_yaml_that_is_written_reads_back(value, text):
    keyed = {text + "!": [value]}
    lines = [f"a: {flow(value)}", f"b: {text_at(text, 0)}", f"c:\n  d: {text_at(text, 2)}", f"f: {flow(keyed)}"]
    data = read_yaml("\n".join([*lines, f"e: [{word(text)}, {quoted(text)}]  # {quoted(text)}"]).encode(), "f")
    assert data == {"a": value, "b": text, "c": {"d": text}, "f": keyed, "e": [text, text]}


def test_a_very_long_key_reads_back():
    for size in (990, 1000, 1024, 5000):
        tree = {"x" * size: {"y" * size: 1}, "z": 2}
        assert read_yaml(f"a: {flow(tree)}".encode(), "f") == {"a": tree}


@pytest.mark.parametrize("file", sorted(path.name for path in RECORDINGS.iterdir() if "apierror" not in path.name))
def test_each_recording_passes_the_task_that_is_written_from_it(tmp_path, file):
    trace = read_trace(RECORDINGS / file)
    spec = suite_with(tmp_path, task_text(trace, "t", file, "What was asked."))
    assert result_of(trace, spec).status == "passed"


@pytest.mark.parametrize("agent", ["claude-latest", "codex", "copilot", "gemini", "opencode", "pi", "qwen"])
def test_another_agent_that_did_the_same_passes_and_one_that_did_not_fails(tmp_path, agent):
    spec = suite_with(tmp_path, task_text(read_trace(RECORDINGS / "codex-multi.jsonl"), "t", "codex", "Fix add()."))
    assert result_of(read_trace(RECORDINGS / f"{agent}-multi.jsonl"), spec).status == "passed"
    assert result_of(read_trace(RECORDINGS / f"{agent}-talk.jsonl"), spec).status == "failed"


def test_failed_calls_and_those_of_sub_agents_are_left_out_and_that_is_said():
    failed = task_text(read_trace(RECORDINGS / "codex-fail.jsonl"), "t", "f", "p")
    assert "# left out: 1 of 2 calls" in failed and 'exit 3"' not in failed
    assert "ls | wc -l" not in task_text(read_trace(RECORDINGS / "claude-latest-subagent.jsonl"), "t", "f", "p")


def test_a_trace_without_anything_to_check_is_refused():
    with pytest.raises(UsageError, match=r"nothing in run\.jsonl could be checked"):
        task_text(Trace(input="hi", output="", tool_events=[]), "t", "run.jsonl")


def test_files_it_wrote_are_a_hint_for_the_author():
    event = ToolEvent(tool_name="Write", args={"file_path": "src/a.py", "content": "x"})
    text = task_text(Trace(input="hi", output="ok", engine="claude-code", tool_events=[event]), "t", "f")
    assert '#     config: {must_exist: ["src/a.py"]}' in text and "# graders:\n" in text


def test_the_command_writes_it_and_the_commands_it_names_work(waza, tmp_path):
    waza("init")
    done = waza("new", "task", "--from", RECORDINGS / "gemini-multi.jsonl")
    assert done.returncode == 0, done.stderr
    assert "wrote tasks/gemini-multi.yaml" in done.stdout
    assert waza("check").returncode == 0
    graded = waza("grade", RECORDINGS / "gemini-multi.jsonl", "--graders", ".", "--task", "gemini-multi")
    assert graded.returncode == 0 and "1 of 1 task passed" in graded.stdout
    before = (tmp_path / "tasks/gemini-multi.yaml").read_bytes()
    again = waza("new", "task", "--from", RECORDINGS / "gemini-multi.jsonl")
    assert again.returncode == 2 and "is there already" in again.stderr
    assert (tmp_path / "tasks/gemini-multi.yaml").read_bytes() == before


def test_a_recording_without_a_prompt_asks_for_one(waza, tmp_path):
    waza("init")
    done = waza("new", "task", "fix", "--from", RECORDINGS / "codex-hello.jsonl")
    assert done.returncode == 2 and "does not have the prompt; give it with --prompt TEXT" in done.stderr
    assert not (tmp_path / "tasks/fix.yaml").exists()
    assert (
        waza("new", "task", "fix", "--from", RECORDINGS / "codex-hello.jsonl", "--prompt", "Say hello").returncode == 0
    )
    assert 'prompt: "Say hello"' in (tmp_path / "tasks/fix.yaml").read_text()


def test_several_traces_are_a_task_each_all_or_none(waza, tmp_path):
    waza("init")
    (tmp_path / "Two Runs.jsonl").write_text('{"input": "a", "output": "b"}\n{"input": "c", "output": "d"}\n')
    (tmp_path / "tasks/two-runs-2.yaml").write_text("id: mine\nprompt: x\nexpected: {task_completed: true}\n")
    assert waza("new", "task", "--from", "Two Runs.jsonl").returncode == 2
    assert not (tmp_path / "tasks/two-runs.yaml").exists()
    (tmp_path / "tasks/two-runs-2.yaml").unlink()
    done = waza("new", "task", "--from", "Two Runs.jsonl")
    assert done.returncode == 0
    assert "--task 'two-runs*'" in done.stdout
    assert "2 of 2 tasks passed" in waza("grade", "Two Runs.jsonl", "--graders", ".", "--task", "two-runs*").stdout


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (("task",), "what is the task called?"),
        (("suite", "x", "--from", "f"), "--from and --prompt are for tasks"),
        (("task", "x", "--prompt", "f"), "--prompt goes with --from"),
        (("task", "--from", "gone.jsonl"), "gone.jsonl: cannot be read: No such file"),
        (("task", "Bad Name", "--from", "f"), "'Bad Name' cannot be a name here"),
    ],
)
def test_a_wrong_call_is_answered_with_a_sentence(waza, call, sentence):
    waza("init")
    done = waza("new", *call)
    assert done.returncode == 2 and sentence in done.stderr


def test_a_suite_that_does_not_take_the_task_in_is_told(waza, tmp_path):
    (tmp_path / "eval.yaml").write_text("tasks: [{id: a, prompt: x, expected: {task_completed: true}}]\n")
    (tmp_path / "t.json").write_text('{"input": "a", "output": "b"}')
    assert "the suite does not name tasks/t.yaml" in waza("new", "task", "--from", "t.json").stderr
