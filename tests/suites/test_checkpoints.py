"""Checkpoints: what must be true in the middle of a conversation, and who can tell."""

import json

import pytest

import waza as waza_face
from waza.errors import SpecError
from waza.graders.composed import AfterTurnGrader
from waza.model import ToolEvent, Trace, Usage

AGENT = """
import waza

def agent(prompt, context):
    turn = len(context.history) // 2 + 1
    if prompt == "fail":
        return waza.Trace(input=prompt, output="", status="failure")
    if prompt == "write":
        (context.workspace / "note.txt").write_text("x")
    if prompt == "remove":
        (context.workspace / "note.txt").unlink()
    calls = [waza.ToolEvent(tool_name=f"tool{turn}")]
    return waza.Trace(input=prompt, output=f"answer {turn}", tool_events=calls, usage=waza.Usage(llm_calls=1), steps=2)
"""
SUITE = """
config: {executor: python, agent: "bot:agent"}
tasks:
  - id: talk
    inputs: {prompt: one, follow_up_prompts: [two, three]}
    expected: {output_contains: ["answer 3"], tools_called: [tool1, tool3]}
    checkpoints:
      - after_turn: 1
        expected: {output_equals: answer 1, max_tool_calls: 1, max_llm_calls: 1}
      - after_turn: 2
        expected: {output_contains: ["answer 2"], tools_called: [tool1, tool2], tools_not_called: [tool3], max_steps: 4}
        graders: [{type: text, name: calm, weight: 2, config: {not_contains: ["!"]}}]
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "bot.py").write_text(AGENT)

    def call(text=SUITE):
        (tmp_path / "eval.yaml").write_text(text)
        [result] = waza_face.run(tmp_path).results
        return result

    return call


def verdicts(result):
    return {grade.name: grade.status for grade in result.grades}


def test_each_checkpoint_sees_the_conversation_so_far(run):
    result = run()
    assert result.status == "passed", [grade.feedback for grade in result.grades]
    assert list(verdicts(result)) == [
        "output_contains",
        "tools_called",
        "output_equals@1",
        "max_tool_calls@1",
        "max_llm_calls@1",
        "output_contains@2",
        "tools_called@2",
        "tools_not_called@2",
        "max_steps@2",
        "calm@2",
    ]
    assert result.grades[-1].weight == 2


def test_a_checkpoint_that_does_not_hold_fails_the_trial(run):
    result = run(SUITE.replace("max_steps: 4", "max_steps: 3"))
    assert result.status == "failed"
    assert [name for name, status in verdicts(result).items() if status == "failed"] == ["max_steps@2"]


def test_a_turn_that_was_not_reached_fails_its_checkpoints(run):
    result = run(SUITE.replace("[two, three]", "[fail, three]"))
    assert verdicts(result)["output_equals@1"] == "passed"
    result = run(SUITE.replace("prompt: one", "prompt: fail"))
    assert verdicts(result)["calm@2"] == "failed"
    assert "turn 2 was not reached: the agent ended with failure in turn 1" in result.grades[-1].feedback


FILES = """
config: {executor: ENGINE}
tasks:
  - id: write
    inputs: {prompt: one, follow_up_prompts: [write, remove]}
    graders: [{type: file, name: gone, config: {must_not_exist: [note.txt]}}]
    checkpoints:
      - after_turn: 1
        graders: [{type: file, name: note, config: {must_not_exist: [note.txt]}}]
      - after_turn: 2
        graders:
          - {type: file, name: note, config: {must_exist: [note.txt]}}
          - {type: program, name: holds, config: {command: sh, args: [-c, 'grep -q x "$WAZA_WORKSPACE_DIR/note.txt"']}}
    mock: {turns: [{output: a}, {output: b, files: {note.txt: x}}, {output: c, files: {note.txt: y}}]}
"""
SHELL = """command, command: [sh, -c, 'case "$WAZA_TURN" in 2) echo x > note.txt;; 3) rm note.txt;; esac; echo ok']"""


@pytest.mark.parametrize("engine", [SHELL, "python, agent: 'bot:agent'"], ids=["command", "python"])
def test_checkpoints_see_the_files_as_they_were_then(run, engine):
    result = run(FILES.replace("ENGINE", engine))
    assert result.status == "passed", [grade.feedback for grade in result.grades]
    assert set(result.turn_snapshots) == {"1", "2"}
    wrong = run(FILES.replace("ENGINE", engine).replace("must_exist: [note.txt]", "must_exist: [other.txt]"))
    assert [grade.name for grade in wrong.grades if grade.status == "failed"] == ["note@2"]


def test_the_files_of_checkpoints_are_graded_again_from_what_was_kept(run, tmp_path, waza):
    run(
        FILES.replace("ENGINE", "mock").replace(
            "must_not_exist: [note.txt]}}]\n    checkpoints", "must_exist: [note.txt]}}]\n    checkpoints"
        )
    )
    done = waza("grade", "latest", "--eval", tmp_path, "--json")
    [trial] = json.loads(done.stdout)["tasks"][0]["runs"]
    assert trial["status"] == "passed", trial["grades"]
    (tmp_path / "eval.yaml").write_text(
        FILES.replace("ENGINE", "mock").replace("must_exist: [note.txt]", "must_exist: [b]")
    )
    done = waza("grade", "latest", "--eval", tmp_path, "--json")
    [trial] = json.loads(done.stdout)["tasks"][0]["runs"]
    assert {grade["name"]: grade["status"] for grade in trial["grades"]} == {
        "gone": "failed", "note@1": "passed", "note@2": "failed", "holds@2": "passed"
    }  # fmt: skip


def test_files_that_were_not_kept_leave_a_checkpoint_open():
    grader = AfterTurnGrader(
        grader=waza_face.load_grader({"type": "file", "config": {"must_exist": ["a"]}}), turn=1, prompts=2
    )
    turns = [Trace(input="p", output="o"), Trace(input="q", output="o")]
    assert grader.grade(Trace(input="p", output="o", turns=turns)).status == "error"


STOPS = """
config: {executor: python, agent: "bot:agent"}
graders: [{type: text, name: says_three, config: {contains: ["answer 3"]}}]
tasks:
  - id: talk
    inputs: {prompt: one, follow_up_prompts: [write, three]}
    checkpoints:
      - {after_turn: 1, on_failure: stop, expected: {output_contains: ["answer 1"]}}
      - {after_turn: 2, on_failure: stop, expected: {output_contains: ["no such words"]}, graders: [says_three]}
      - {after_turn: 3, expected: {output_contains: ["answer 3"]}}
"""


def test_a_failed_checkpoint_may_stop_the_conversation(run, tmp_path):
    result = run(STOPS)
    assert result.status == "failed"
    assert [turn.output for turn in result.trace.turns] == ["answer 1", "answer 2"]
    why = "stopped after turn 2, where output_contains@2, says_three@2 failed"
    assert (result.trace.status, result.trace.error) == ("failure", why)
    assert verdicts(result) == {
        "says_three": "failed",
        "output_contains@1": "passed",
        "output_contains@2": "failed",
        "says_three@2": "failed",
        "output_contains@3": "failed",
    }
    assert result.grades[2].feedback.endswith("; the conversation was stopped here, after turn 2 of 3")
    assert result.grades[-1].feedback == f"turn 3 was not reached: {why}"
    [trial] = json.loads(next(tmp_path.glob("runs/*/results.json")).read_text())["tasks"][0]["runs"]
    assert [(c["after_turn"], c["status"], c.get("stopped")) for c in trial["checkpoints"]] == [
        (1, "passed", None),
        (2, "failed", True),
        (3, "failed", None),
    ]
    assert list(trial["checkpoints"][1]["validations"]) == ["output_contains@2", "says_three@2"]


def test_without_stop_the_conversation_goes_on(run):
    result = run(STOPS.replace("on_failure: stop", "on_failure: continue"))
    assert len(result.trace.turns) == 3
    assert verdicts(result)["output_contains@3"] == "passed" and verdicts(result)["says_three@2"] == "failed"


def test_what_nobody_can_decide_stops_nothing(run):
    decided = '{output_contains: ["no such words"]}, graders: [says_three]'
    result = run(STOPS.replace(decided, "{behavior: {max_tokens: 3}}"))
    assert len(result.trace.turns) == 3 and result.status == "error"


def test_a_checkpoint_is_decided_once(run, tmp_path):
    (tmp_path / "count.sh").write_text('#!/bin/sh\necho once >> "$(dirname "$0")/log"\n')
    (tmp_path / "count.sh").chmod(0o755)
    program = "{type: program, name: counts, config: {command: ./count.sh, may_change: [log]}}"
    result = run(
        STOPS.replace('expected: {output_contains: ["no such words"]}, graders: [says_three]', f"graders: [{program}]")
    )
    assert result.status == "passed", [grade.feedback for grade in result.grades]
    assert (tmp_path / "log").read_text() == "once\n"


def test_a_checkpoint_after_the_only_prompt_needs_no_turns(run):
    one = "config: {executor: mock}\ntasks: [{id: a, prompt: x, mock: {output: hi}, checkpoints: ["
    one += "{after_turn: 1, on_failure: stop, expected: {output_contains: [hi]}}]}]\n"
    result = run(one)
    assert verdicts(result) == {"output_contains@1": "passed"} and result.trace.turns is None
    assert verdicts(run(one.replace("[hi]", "[ho]"))) == {"output_contains@1": "failed"}


@pytest.mark.parametrize("turns", [[], [Trace(input="a", output="a lie")]])
def test_turns_that_an_agent_made_up_after_its_only_prompt_are_not_looked_at(turns):
    only = AfterTurnGrader(grader=waza_face.ContainsGrader(["x"]), turn=1, prompts=1)
    assert only.grade(Trace(input="a", output="x", turns=turns)).passed


def test_the_last_checkpoint_looks_at_the_whole_where_turns_were_not_recorded():
    last = AfterTurnGrader(grader=waza_face.ContainsGrader(["x"]), turn=2, prompts=2)
    assert last.grade(Trace(input="a", output="x")).passed
    assert last.grade(Trace(input="a", output="x", status="timeout")).status == "error"
    alone = AfterTurnGrader(grader=waza_face.ContainsGrader(["x"]), turn=2, prompts=2, is_alone=True)
    assert alone.grade(Trace(input="a", output="x")).status == "error"


def test_a_grader_that_waits_for_a_process_waits_at_a_checkpoint_too(tmp_path):
    program = waza_face.load_grader({"type": "program", "config": {"command": "true"}}, tmp_path)
    assert program.waits and AfterTurnGrader(grader=program, turn=1, prompts=2).waits
    assert not AfterTurnGrader(grader=waza_face.ContainsGrader(["x"]), turn=1, prompts=2).waits


def test_an_engine_that_does_not_tell_turns_apart_leaves_it_open():
    grader = AfterTurnGrader(grader=waza_face.ContainsGrader(["x"]), turn=1, prompts=2)
    grade = grader.grade(Trace(input="a", output="x"))
    assert grade.status == "error" and "turns of the conversation were not recorded" in grade.feedback


def test_a_turn_may_be_looked_at_alone():
    turns = [
        Trace(input=f"p{n}", output=f"o{n}", tool_events=[ToolEvent(tool_name=f"t{n}")], usage=Usage(llm_calls=1))
        for n in (1, 2)
    ]
    trace = Trace(input="p1", output="o2", turns=turns)
    called = waza_face.ToolCalledGrader(["t1"])
    assert AfterTurnGrader(grader=called, turn=2, prompts=2).grade(trace).passed
    assert AfterTurnGrader(grader=called, turn=2, prompts=2, is_alone=True).grade(trace).status == "failed"
    assert (
        AfterTurnGrader(grader=called, turn=1, prompts=2, is_alone=True).grade(Trace.from_json(trace.to_json())).passed
    )


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ("after_turn: 2", "after_turn: 4", "there is no turn 4: the task has 3"),
        ("after_turn: 2", "after_turn: 0", "must be at least 1"),
        ("after_turn: 2", "after_trun: 2", "did you mean 'after_turn'?"),
        ("{output_equals: answer 1,", "{output_equal: answer 1,", "did you mean 'output_equals'?"),
        ("graders: [{", "graders: [calm, {", "unknown grader 'calm'; the suite has no graders"),
        ("graders: [{", "on_failure: stpo\n        graders: [{", "did you mean 'stop'?"),
        ("{output_equals: answer 1, max_tool_calls: 1, max_llm_calls: 1}", "{}", "expects nothing"),
    ],
)
def test_a_wrong_checkpoint_is_refused(tmp_path, old, new, fact):
    (tmp_path / "bot.py").write_text(AGENT)
    (tmp_path / "eval.yaml").write_text(SUITE.replace(old, new))
    with pytest.raises(SpecError) as caught:
        waza_face.load_spec(tmp_path)
    assert fact in str(caught.value)


def test_a_checkpoint_that_checks_nothing_is_refused(tmp_path):
    (tmp_path / "eval.yaml").write_text(
        "tasks: [{id: a, prompt: x, expected: {max_steps: 1}, checkpoints: [{after_turn: 1}]}]\n"
    )
    with pytest.raises(SpecError, match="checks nothing"):
        waza_face.load_spec(tmp_path)


def test_an_engine_that_does_not_stop_between_prompts_is_told_of(tmp_path, waza):
    turns = [{"input": prompt, "output": "x"} for prompt in ("one", "two")]
    (tmp_path / "trace.json").write_text(json.dumps({"input": "one", "output": "x", "turns": turns, "task_id": "talk"}))
    (tmp_path / "eval.yaml").write_text(
        "config: {executor: replay, replay: trace.json}\n"
        "tasks:\n  - id: talk\n    inputs: {prompt: one, follow_up_prompts: [two]}\n"
        "    checkpoints: [{after_turn: 1, on_failure: stop, expected: {output_contains: [y]}}]\n"
    )
    done = waza("run", tmp_path)
    assert done.returncode == 1
    assert "task 'talk': engine 'replay' does not stop between prompts; it went on after" in done.stdout + done.stderr
