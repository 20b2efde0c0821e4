"""Conversations of several prompts: one time limit, an end where one is due, and one trace for all of it."""

import asyncio

import pytest

from waza.files.trial_folder import NO_TRIAL_FOLDER
from waza.model import Task, ToolEvent, Trace, Trial, Usage
from waza.traces.conversation import converse, join_turns

TRIAL = Trial(task=Task(id="t", prompt="one", follow_up_prompts=["two", "three"], timeout_s=10))


def talk(statuses=(), after_turn=None):
    """The conversation with an agent that ends its turns so, and how much time it had for each."""
    given = []

    async def play(prompt, before, left_s):
        given.append(left_s)
        return Trace(input=prompt, output=f"re: {prompt}", status=dict(enumerate(statuses)).get(len(before), "success"))

    return asyncio.run(converse(TRIAL, NO_TRIAL_FOLDER._replace(after_turn=after_turn), play)), given


def test_all_prompts_are_played_and_the_last_answer_counts():
    trace, given = talk()
    assert (trace.input, trace.output, trace.status) == ("one", "re: three", "success")
    assert [turn.input for turn in trace.turns] == ["one", "two", "three"]
    assert 10 == given[0] >= given[1] >= given[2] > 5


@pytest.mark.parametrize("status", ["failure", "timeout", "error"])
def test_a_turn_without_success_is_the_last(status):
    trace, _ = talk(["success", status])
    assert (len(trace.turns), trace.status, trace.output) == (2, status, "re: two")


def test_what_is_awaited_between_prompts_may_stop_it_and_costs_the_agent_no_time():
    heard = []

    async def checks(turns):
        heard.append(len(turns))
        await asyncio.sleep(0.3)
        return "enough" if len(turns) == 2 else ""

    trace, given = talk(after_turn=checks)
    assert heard == [1, 2] and len(trace.turns) == 2
    assert (trace.status, trace.error, trace.turns[-1].status) == ("failure", "enough", "success")
    assert given[1] > 9.85


def test_nothing_is_awaited_after_the_last_prompt_or_a_turn_that_failed():
    heard = []

    async def checks(turns):
        heard.append(len(turns))
        return ""

    talk(after_turn=checks)
    talk(["success", "failure"], after_turn=checks)
    assert heard == [1, 2, 1]


def test_what_one_turn_did_not_record_is_not_recorded_for_all():
    one = Trace(
        input="a", output="x", tool_events=[ToolEvent(tool_name="t", turn=2)], usage=Usage(llm_calls=1), steps=2
    )
    two = Trace(input="b", output="y", tool_events=[ToolEvent(tool_name="u")], usage=Usage(llm_calls=2), steps=1)
    whole = join_turns(["a", "b"], [one, two])
    assert (whole.steps, whole.usage.llm_calls, [event.turn for event in whole.tool_events]) == (3, 3, [2, 3])
    blind = join_turns(["a", "b"], [one, Trace(input="b", output="y")])
    assert (blind.steps, blind.usage, blind.tool_events) == (None, None, None)
