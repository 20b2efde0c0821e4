"""A plain loop of model and tools, against a scripted model on loopback."""

import asyncio
import json

import pytest
from pydantic import ValidationError
from scripted_model import refuse, say, scripted_model, shell, tool

from waza.engines.base import ENGINES
from waza.engines.openai import OpenaiEngine
from waza.errors import EngineError, SpecError
from waza.files.paths import SpecFolder
from waza.files.trial_folder import make_trial_folder
from waza.model import Task, Trial

SHELL = {
    "name": "bash",
    "description": "Run a command.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    "command": ["sh", "-c", "{command}"],
}
WEATHER = {
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "answer": "Sunny",
}


def play(steps, *, tools=(SHELL, WEATHER), follow_ups=(), model="scripted", timeout_s=30, look=None, **options):
    scripts = steps if isinstance(steps, dict) else {"it": steps}
    task = Task(
        id="t",
        prompt="Do [[script:it]]",
        follow_up_prompts=[f"Then [[script:{name}]]" for name in follow_ups],
        timeout_s=timeout_s,
    )
    with scripted_model(scripts) as served, make_trial_folder(task) as room:
        given = {"base_url": served.url + "/v1", "tools": list(tools), "folder": SpecFolder(".")} | options
        engine = OpenaiEngine.model_validate(given)
        trace = asyncio.run(engine.run(Trial(task=task, model=model), room))
        if look:
            look(room)
        return trace, served.requests


def test_the_file_is_the_engine():
    assert ENGINES.load("openai") is OpenaiEngine


def test_tools_answer_by_command_or_with_a_fixed_text():
    steps = [shell("echo hi > a.txt; cat a.txt"), tool("weather", {"city": "Oslo"}), say("Done.")]
    left = []
    trace, requests = play(steps, look=lambda room: left.extend(path.name for path in room.workspace.iterdir()))
    assert (trace.status, trace.output, trace.engine, trace.model) == ("success", "Done.", "openai", "scripted")
    assert [(event.tool_name, event.result, event.success) for event in trace.tool_events] == [
        ("bash", "hi\n", True),
        ("weather", "Sunny", True),
    ]
    assert left == ["a.txt"]
    assert (trace.usage.input_tokens, trace.usage.output_tokens, trace.usage.llm_calls) == (360, 51, 3)
    declared = [one["function"]["name"] for one in requests[0]["body"]["tools"]]
    assert declared == ["bash", "weather"]


def test_a_command_that_fails_and_arguments_that_do_not_fit_are_told_to_the_model():
    steps = [shell("echo no >&2; exit 3"), tool("weather", {"town": 1}), say("Sorry.")]
    trace, requests = play(steps)
    assert [event.success for event in trace.tool_events] == [False, False]
    told = [message["content"] for message in requests[-1]["body"]["messages"] if message["role"] == "tool"]
    assert told[0] == "exit code 3\nno\n" and "the arguments do not fit" in told[1]


def test_an_argument_stays_one_word_of_a_command():
    nasty = "$(touch pwned); `id` \"'{x}"
    plain = SHELL | {"command": ["printf", "%s", "{command}"]}
    trace, _ = play([shell(nasty), say("Done.")], tools=[plain])
    assert trace.tool_events[0].result == nasty


def test_all_prompts_are_one_conversation():
    scripts = {"it": [shell("echo 1"), say("One.")], "then": [say("Two.")]}
    trace, requests = play(scripts, follow_ups=["then"], system="Be kind.")
    assert [turn.output for turn in trace.turns] == ["One.", "Two."]
    assert trace.usage.input_tokens == 360 and len({turn.session_id for turn in trace.turns}) == 1
    roles = [message["role"] for message in requests[-1]["body"]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]


def test_the_open_call_of_an_agent_out_of_time_is_unfinished():
    trace, _ = play([shell("echo 1"), shell("sleep 60"), say("Never.")], timeout_s=3)
    assert (trace.status, trace.output) == ("timeout", "")
    assert [event.extra.get("unfinished", False) for event in trace.tool_events] == [False, True]


def test_a_model_that_never_ends_is_out_of_time():
    trace, _ = play([shell("true")], max_turns=3)
    assert trace.status == "timeout" and "max_turns" in trace.error and len(trace.tool_events) == 3


def test_a_key_that_is_refused_is_an_error():
    trace, _ = play([refuse(401, "invalid api key")])
    assert trace.status == "error" and "401" in trace.error


def test_no_server_is_an_error():
    trace, _ = play([say("x")], base_url="http://127.0.0.1:9/v1")
    assert trace.status == "error" and "could not be called" in trace.error


def test_the_cost_is_what_the_prices_say():
    trace, _ = play([say("x")], prices={"input": 1.0, "output": 2.0})
    assert trace.usage.cost_usd == pytest.approx((120 + 34) / 1e6)


def test_a_trial_without_a_model_is_an_error():
    with pytest.raises(EngineError, match="no model is named"):
        play([say("x")], model="")


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([WEATHER, WEATHER], "two tools are called 'weather'"),
        ([{"name": "a"}], "either `answer` or `command`"),
        ([{"name": "a b", "answer": "x"}], "name"),
        ([{"name": "a", "answer": "x", "parameters": {"type": "nonsense"}}], "nonsense"),
    ],
)
def test_tools_that_make_no_sense_are_refused(tools, said):
    with pytest.raises(ValidationError) as caught:
        OpenaiEngine.model_validate({"tools": tools})
    assert said in str(caught.value)


def test_a_key_that_is_not_set_and_a_command_that_is_not_there_are_refused(monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    missing = SHELL | {"command": ["./nowhere"]}
    with pytest.raises(SpecError) as caught:
        OpenaiEngine.model_validate({"tools": [missing], "folder": SpecFolder(tmp_path)}).ready()
    assert "'OPENAI_API_KEY' is not set" in str(caught.value) and "./nowhere" in str(caught.value)


def test_the_vendors_key_goes_to_the_vendor_alone(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "the vendor's")
    _, requests = play([say("x")])
    assert "the vendor's" not in json.dumps([request["headers"] for request in requests])


def test_tools_declared_in_a_suite_are_used(waza, tmp_path):
    """YAML's own kinds of mappings and lists are no obstacle."""
    with scripted_model({"it": [tool("weather", {"city": "Oslo"}), say("Sunny.")]}) as served:
        (tmp_path / "eval.yaml").write_text(
            f"config:\n  executor: openai\n  model: m\n  base_url: {served.url}/v1\n  tools:\n"
            f"    - {json.dumps(WEATHER)}\n"
            "tasks: [{id: a, prompt: 'Do [[script:it]]', expected: {output_contains: [Sunny]}}]\n"
        )
        done = waza("run", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
