"""Checkpoints: what must be true in the middle of a conversation, and who can tell."""

import pytest

import waza
from waza.errors import SpecError
from waza.graders._turn import AfterTurnGrader
from waza.model import ToolEvent, Trace, Usage

AGENT = """
import waza

def agent(prompt, context):
    turn = len(context.history) // 2 + 1
    if prompt == "fail":
        return waza.Trace(input=prompt, output="", status="failure")
    if prompt == "write":
        (context.workspace / "note.txt").write_text("x")
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
        [result] = waza.run(tmp_path).results
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


def test_files_in_the_middle_of_a_conversation_are_not_known(run):
    text = SUITE.replace("[two, three]", "[write, three]")
    text += "        \n"
    result = run(text.replace("{type: text, name: calm, weight: 2, config: {not_contains: [\"!\"]}}",
                              "{type: file, name: note, config: {must_exist: [note.txt]}}"))  # fmt: skip
    assert verdicts(result)["note@2"] == "error"


def test_an_engine_that_does_not_tell_turns_apart_leaves_it_open():
    grader = AfterTurnGrader(grader=waza.ContainsGrader(["x"]), turn=1)
    grade = grader.grade(Trace(input="a", output="x"))
    assert grade.status == "error" and "turns of the conversation were not recorded" in grade.feedback


def test_a_turn_may_be_looked_at_alone():
    turns = [
        Trace(input=f"p{n}", output=f"o{n}", tool_events=[ToolEvent(tool_name=f"t{n}")], usage=Usage(llm_calls=1))
        for n in (1, 2)
    ]
    trace = Trace(input="p1", output="o2", turns=turns)
    called = waza.ToolCalledGrader(["t1"])
    assert AfterTurnGrader(grader=called, turn=2).grade(trace).passed
    assert AfterTurnGrader(grader=called, turn=2, is_alone=True).grade(trace).status == "failed"
    assert AfterTurnGrader(grader=called, turn=1, is_alone=True).grade(Trace.from_json(trace.to_json())).passed


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ("after_turn: 2", "after_turn: 4", "there is no turn 4: the task has 3"),
        ("after_turn: 2", "after_turn: 0", "must be at least 1"),
        ("after_turn: 2", "after_trun: 2", "did you mean 'after_turn'?"),
        ("{output_equals: answer 1,", "{output_equal: answer 1,", "did you mean 'output_equals'?"),
        ("graders: [{", "graders: [calm, {", "'calm' is a name"),
        ("graders: [{", "on_failure: stop\n        graders: [{", "one of: continue"),
        ("{output_equals: answer 1, max_tool_calls: 1, max_llm_calls: 1}", "{}", "expects nothing"),
    ],
)
def test_a_wrong_checkpoint_is_refused(tmp_path, old, new, fact):
    (tmp_path / "bot.py").write_text(AGENT)
    (tmp_path / "eval.yaml").write_text(SUITE.replace(old, new))
    with pytest.raises(SpecError) as caught:
        waza.load_spec(tmp_path)
    assert fact in str(caught.value)


def test_a_checkpoint_that_checks_nothing_is_refused(tmp_path):
    (tmp_path / "eval.yaml").write_text(
        "tasks: [{id: a, prompt: x, expected: {max_steps: 1}, checkpoints: [{after_turn: 1}]}]\n"
    )
    with pytest.raises(SpecError, match="checks nothing"):
        waza.load_spec(tmp_path)
