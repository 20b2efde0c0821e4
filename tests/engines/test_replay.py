"""Recorded traces stand in for an agent: each task and trial finds its own, with the files it left, or an error."""

import asyncio
import json

import pytest

from waza.engines.base import ENGINES
from waza.engines.replay import ReplayEngine
from waza.errors import EngineError, SpecError
from waza.files.paths import SpecFolder
from waza.files.snapshot import EMPTY, take
from waza.files.trial_folder import make_trial_folder
from waza.model import InputFile, Result, Run, SkillInvocation, Task, ToolEvent, Trace, Trial
from waza.runs.folder import RunFolder


def engine(base, replay):
    return ReplayEngine(replay=replay, folder=SpecFolder(base))


def play(base, replay, task_id="greet", number=1, prompt="Say hello", files=()):
    task = Task(id=task_id, prompt=prompt, files=list(files))
    replaying = engine(base, replay)
    with make_trial_folder(task) as room:
        trace = asyncio.run(replaying.run(Trial(task=task, number=number), room))
        found = {str(p.relative_to(room.workspace)): p.read_text() for p in room.workspace.rglob("*") if p.is_file()}
        return trace, found if replaying.leaves_files(Trial(task=task, number=number)) else None


def trace(output="hi", **fields):
    return {"input": "Say hello", "output": output, **fields}


def write_lines(path, items):
    path.write_text("\n".join(json.dumps(item) for item in items) + "\n\n")


def test_the_file_is_the_engine():
    assert ENGINES.load("replay") is ReplayEngine


# One trace


def test_one_trace_serves_the_only_task_in_every_trial(tmp_path):
    (tmp_path / "trace.json").write_text(json.dumps(trace(tool_events=[{"tool_name": "bash"}], engine="codex")))
    engine(tmp_path, "trace.json").ready([Task(id="greet", prompt="p")])
    for number in (1, 2):
        found, files = play(tmp_path, "trace.json", number=number)
        assert (found.output, found.engine, files) == ("hi", "codex", None)
        assert found.tool_events == [ToolEvent(tool_name="bash")]


def test_one_trace_for_several_tasks_is_refused_with_a_hint(tmp_path):
    (tmp_path / "trace.json").write_text(json.dumps(trace()))
    with pytest.raises(SpecError, match=r"is one trace, and there are 2 tasks; give a \.jsonl file"):
        engine(tmp_path, "trace.json").ready([Task(id="a", prompt="p"), Task(id="b", prompt="p")])


def test_a_trace_without_an_engine_is_said_to_be_a_replay(tmp_path):
    (tmp_path / "trace.json").write_text(json.dumps(trace()))
    assert play(tmp_path, "trace.json")[0].engine == "replay"


def test_a_trace_of_another_shape_is_recognised(tmp_path):
    steps = [{"type": "tool_call", "tool_name": "search", "tool_args": {"q": "x"}}]
    (tmp_path / "trace.json").write_text(json.dumps({"input": "i", "output": "o", "steps": steps}))
    assert [event.tool_name for event in play(tmp_path, "trace.json")[0].tool_events] == ["search"]


# A trace a line


def test_lines_belong_to_tasks_by_id_and_to_trials_by_order(tmp_path):
    write_lines(
        tmp_path / "traces.jsonl",
        [trace("a1", task_id="a"), trace("b1", id="b"), trace("a2", task_id="a"), trace("7", task_id=7)],
    )
    outputs = [play(tmp_path, "traces.jsonl", *key)[0].output for key in (("a", 1), ("a", 2), ("b", 1), ("7", 1))]
    assert outputs == ["a1", "a2", "b1", "7"]


def test_lines_without_an_id_belong_to_the_task_with_that_prompt(tmp_path):
    write_lines(tmp_path / "traces.ndjson", [trace("one"), trace("two", input="Else"), trace("three")])
    assert play(tmp_path, "traces.ndjson", number=2)[0].output == "three"
    assert play(tmp_path, "traces.ndjson", prompt="Else")[0].output == "two"


def test_a_line_of_another_task_with_the_same_prompt_is_not_taken(tmp_path):
    write_lines(tmp_path / "traces.jsonl", [trace("other's", task_id="other")])
    with pytest.raises(EngineError, match=r"'traces\.jsonl' has no trace for task 'greet', trial 1"):
        play(tmp_path, "traces.jsonl")


def test_a_trial_that_was_not_recorded_is_an_error_that_says_which(tmp_path):
    write_lines(tmp_path / "traces.jsonl", [trace(task_id="greet")])
    with pytest.raises(EngineError, match="task 'greet', trial 2"):
        play(tmp_path, "traces.jsonl", number=2)


# A folder of traces


def test_a_folder_holds_a_file_for_each_task_or_trial(tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in ("a", "b.1", "b.2", "c", "c.2"):
        (folder / f"{name}.json").write_text(json.dumps(trace(name)))
    keys = [("a", 1), ("a", 3), ("b", 1), ("b", 2), ("c", 1), ("c", 2)]
    assert [play(tmp_path, "traces", *key)[0].output for key in keys] == ["a", "a", "b.1", "b.2", "c", "c.2"]
    with pytest.raises(EngineError, match="task 'b', trial 3"):
        play(tmp_path, "traces", "b", 3)


def test_a_task_s_id_is_never_a_path(tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(trace("inside")))
    (tmp_path / "secret.json").write_text(json.dumps(trace("outside")))
    for task_id in ("../secret", str(tmp_path / "secret"), "./a"):
        with pytest.raises(EngineError, match="has no trace"):
            play(tmp_path, "traces", task_id)


# A run


@pytest.fixture
def stored(tmp_path):
    """A run folder with three trials, two of them with their workspaces."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "made.txt").write_text("made by the agent")
    (work / "link").symlink_to("made.txt")
    spec = {"tasks": [{"id": "greet"}]}
    run = Run(id="", name="suite", started_at="2026-01-01T00:00:00Z", engine="codex", spec=spec)
    said = Trace(input="Say hello", output="hi", skill_invocations=[SkillInvocation(name="s")], engine="codex")
    broken = Trace(input="Say hello", output="", status="error", error="no key")
    with RunFolder.create(tmp_path / "runs", run) as folder:
        kept = take(work, folder.artifacts)
        for number, (what, snapshot) in enumerate([(said, kept), (said, EMPTY), (said, ""), (broken, "")], 1):
            folder.append(Result(task_id="greet", trial=number, status="passed", trace=what, snapshot=snapshot))
    return f"runs/{folder.path.name}"


def test_a_run_gives_back_traces_and_workspaces(tmp_path, stored):
    engine(tmp_path, stored).ready([Task(id="greet", prompt="p"), Task(id="other", prompt="p")])
    found, files = play(tmp_path, stored)
    assert (found.output, found.engine) == ("hi", "codex")
    assert found.skill_invocations == [SkillInvocation(name="s")]
    assert files == {"made.txt": "made by the agent", "link": "made by the agent"}


def test_the_workspace_is_the_recorded_one_and_not_the_fixtures(tmp_path, stored):
    fixture = InputFile(path="deleted.txt", content="the agent had removed this")
    assert "deleted.txt" not in play(tmp_path, stored, files=[fixture])[1]
    assert play(tmp_path, stored, number=2, files=[fixture])[1] == {}


def test_a_trial_without_a_workspace_leaves_nothing_to_check(tmp_path, stored):
    found, files = play(tmp_path, stored, number=3, files=[InputFile(path="a.txt", content="")])
    assert (found.output, files) == ("hi", None)


def test_an_agent_that_could_not_run_then_cannot_run_now(tmp_path, stored):
    with pytest.raises(EngineError, match="the recorded agent could not run: no key"):
        play(tmp_path, stored, number=4)


def test_a_task_that_was_not_run_is_an_error(tmp_path, stored):
    with pytest.raises(EngineError, match="no trace for task 'other', trial 1"):
        play(tmp_path, stored, "other")


def test_a_damaged_workspace_is_an_error(tmp_path, stored):
    for path in (tmp_path / stored / "artifacts/objects").rglob("*"):
        if path.is_file() and path.read_bytes() == b"made by the agent":
            path.write_bytes(b"made by somebody.")
    with pytest.raises(EngineError, match=r"task 'greet', trial 1: .*damaged"):
        play(tmp_path, stored)


# What cannot be replayed


@pytest.mark.parametrize(
    ("replay", "fact"),
    [
        ("gone.json", "'gone.json' is not there"),
        ("../outside.json", "leaves the project"),
        ("text.json", "text.json: not a trace"),
        ("lines.jsonl", "lines.jsonl:2: not a trace"),
        ("empty", "neither a run folder nor a folder with traces"),
        ("mixed", "bad.json: not a trace"),
        ("half", "run.json"),
    ],
)
def test_what_cannot_be_read_is_found_before_the_first_trial(tmp_path, replay, fact):
    base = tmp_path / "evals"
    for name in ("empty", "mixed", "half"):
        (base / name).mkdir(parents=True)
    (tmp_path / "outside.json").write_text(json.dumps(trace()))
    (base / "text.json").write_text("hello")
    (base / "lines.jsonl").write_text(json.dumps(trace()) + "\n[]\n")
    (base / "mixed/bad.json").write_text('{"input": 1}')
    (base / "half/run.json").write_text("{")
    with pytest.raises(SpecError, match=fact) as refusal:
        engine(base, replay).ready()
    assert refusal.value.problems[0].path == "config.replay"
