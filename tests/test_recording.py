"""A trace made while an agent runs: what is written down, in which order, and what is never claimed."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import waza
from waza import recording


@recording.tool
def search(query, *, limit=10, **more):
    if query == "broken":
        raise LookupError("no such thing")
    return {"found": query, "limit": limit}


@recording.tool
async def fetch(url):
    await asyncio.sleep(0)
    return search(url)


@recording.model
def think(prompt):
    return f"thought about {prompt}"


def names(trace):
    return [event.tool_name for event in trace.tool_events]


def test_outside_a_recording_a_marked_function_is_a_plain_function():
    assert search("x") == {"found": "x", "limit": 10}
    assert search.__name__ == "search"
    with pytest.raises(LookupError):
        search("broken")


def test_a_block_records_calls_with_arguments_and_results():
    with waza.record("find it", model="m") as rec:
        think("find it")
        search("tea", limit=3, sort="asc")
        rec.output = "found"
    trace = rec.trace
    assert (trace.input, trace.output, trace.status, trace.model, trace.steps) == (
        "find it",
        "found",
        "success",
        "m",
        2,
    )
    [call] = trace.tool_events
    assert (call.tool_name, call.args) == ("search", {"query": "tea", "limit": 3, "sort": "asc"})
    assert (call.result, call.success, call.sequence, call.turn) == ({"found": "tea", "limit": 3}, True, 1, 1)
    assert trace.usage.llm_calls == 1
    assert trace.duration_ms >= call.duration_ms >= 0
    assert [event["type"] for event in trace.events] == ["model_call", "tool_call", "tool_result", "assistant_message"]


def test_a_tool_that_raises_is_a_failed_call_and_the_error_goes_on():
    with waza.record("x") as rec, pytest.raises(LookupError):
        search("broken")
    [call] = rec.trace.tool_events
    assert (call.success, call.error, call.result) == (False, "LookupError: no such thing", None)
    assert rec.trace.status == "success"


def test_an_agent_that_raises_leaves_a_trace_with_an_error():
    rec = waza.record("x")
    with pytest.raises(ValueError), rec:
        search("tea")
        raise ValueError("lost")
    assert (rec.trace.status, rec.trace.error) == ("failure", "ValueError: lost")
    assert names(rec.trace) == ["search"]
    grades = waza.grade(rec.trace, {"tools_called": ["search"]})
    assert (grades.status, grades.reason, [grade.status for grade in grades]) == (
        "failed",
        "ValueError: lost",
        ["passed"],
    )


def test_an_agent_whose_vendor_is_not_reached_leaves_a_trace_nobody_can_grade():
    rec = waza.record("x")
    with pytest.raises(ConnectionError), rec:
        raise ConnectionError("refused")
    assert (rec.trace.status, rec.trace.crash) == ("error", None)
    assert waza.grade(rec.trace, {"output_contains": ["x"]}).status == "error"


def test_a_call_that_does_not_fit_its_function_is_told_too():
    with waza.record("x") as rec, pytest.raises(TypeError):
        search()
    assert rec.trace.tool_events[-1].success is False


def test_steps_nest_and_keep_their_parents():
    with waza.record("x") as rec, recording.step("plan"), recording.tool_call("outer", {"a": 1}) as outer:
        search("inner")
        outer.result = [1, 2]
    assert names(rec.trace) == ["outer", "search"]
    assert rec.trace.tool_events[0].result == [1, 2]
    parents = [event.get("parent_id") for event in rec.trace.events if event["type"] in ("step", "tool_call")]
    assert parents == [None, "1", "2"]
    assert rec.trace.steps == 3


def test_each_model_call_begins_a_turn_and_tokens_add_up():
    with waza.record("x") as rec:
        for _ in range(2):
            with recording.model_call("m") as call:
                call.input_tokens, call.output_tokens = 10, 2
            search("tea")
    assert [event.turn for event in rec.trace.tool_events] == [1, 2]
    usage = rec.trace.usage
    assert (usage.llm_calls, usage.input_tokens, usage.output_tokens) == (2, 20, 4)


def test_tokens_one_call_does_not_know_are_not_recorded_at_all():
    with waza.record("x") as rec:
        think("a")
        with recording.model_call() as call:
            call.input_tokens = 10
    assert (rec.trace.usage.llm_calls, rec.trace.usage.input_tokens) == (2, None)
    assert waza.grade(rec.trace, [{"type": "max_tokens", "config": {"max_tokens": 9}}]).status == "error"


def test_later_changes_do_not_reach_what_was_recorded():
    args, shared = {"a": [1]}, []
    with waza.record("x") as rec:
        with recording.tool_call("change", args) as call:
            call.result = shared
        args["a"].append(2)
        shared.append("late")
    assert (rec.trace.tool_events[0].args, rec.trace.tool_events[0].result) == ({"a": [1]}, [])


class Odd:
    def __str__(self):
        raise RuntimeError("cannot be shown")


def test_what_is_no_json_is_told_in_words_and_changes_nothing():
    loop = []
    loop.append(loop)
    with waza.record("x") as rec:
        for value in ({1: {2}}, object, Odd(), loop, b"\xff", float("nan")):
            search(value)
    trace = rec.trace
    assert trace.tool_events[0].args == {"query": {"1": [2]}}
    assert "cannot be written" in trace.tool_events[2].args["query"]
    waza.Trace.from_json(trace.to_json())


def test_methods_are_recorded_without_self():
    class Shop:
        @recording.tool
        def price(self, item):
            return 3

    with waza.record("x") as rec:
        assert Shop().price("tea") == 3
    assert rec.trace.tool_events[0].args == {"item": "tea"}


def test_an_agent_function_returns_its_trace():
    @recording.agent
    def answer(prompt, style="short"):
        """Answer."""
        search(prompt)
        return {"answer": prompt}

    trace = answer("tea")
    assert isinstance(trace, waza.Trace)
    assert (trace.input, trace.output, names(trace)) == ("tea", '{"answer":"tea"}', ["search"])
    assert answer.__doc__ == "Answer."
    assert answer(prompt="milk").input == "milk"


def test_an_async_agent_and_its_concurrent_tools():
    @recording.agent
    async def answer(prompt):
        await asyncio.gather(fetch("a"), fetch("b"), asyncio.to_thread(search, "c"))
        return "done"

    trace = asyncio.run(answer("x"))
    assert sorted(names(trace)) == ["fetch", "fetch", "search", "search", "search"]
    assert trace.output == "done" and trace.steps == 5
    inner = [event for event in trace.events if event["type"] == "tool_call" and event["tool_name"] == "search"]
    assert sum("parent_id" in event for event in inner) == 2


def test_concurrent_agents_do_not_mix():
    @recording.agent
    async def answer(prompt):
        for _ in range(20):
            await fetch(prompt)
        return prompt

    async def main():
        return await asyncio.gather(*(answer(f"q{n}") for n in range(10)))

    for number, trace in enumerate(asyncio.run(main())):
        assert len(trace.tool_events) == 40
        assert {event.args.get("url", event.args.get("query")) for event in trace.tool_events} == {f"q{number}"}


def test_agents_in_threads_do_not_mix():
    @recording.agent
    def answer(prompt):
        return "".join(search(prompt)["found"] for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        traces = list(pool.map(answer, [f"q{n}" for n in range(40)]))
    for number, trace in enumerate(traces):
        assert {event.args["query"] for event in trace.tool_events} == {f"q{number}"}
        assert len(trace.tool_events) == 50


def test_an_agent_within_an_agent_is_recorded_in_both():
    @recording.agent
    def helper(prompt):
        search(prompt)
        return "helped"

    with waza.record("outer") as outer:
        search("own")
        inner = helper("inner")
    assert names(inner) == ["search"]
    assert [event.args["query"] for event in outer.trace.tool_events] == ["own", "inner"]


def test_calls_from_a_bare_thread_make_the_recording_incomplete_and_nothing_passes_by_accident():
    with pytest.warns(RuntimeWarning, match="2 calls came from threads"), waza.record("x") as rec:
        with ThreadPoolExecutor() as pool:
            list(pool.map(search, "ab"))
        rec.output = "done"
    trace = rec.trace
    assert (trace.tool_events, trace.steps, trace.usage) == (None, None, None)
    assert waza.grade(trace, {"tools_not_called": ["search"]}).status == "error"


def test_bound_carries_the_recording_into_threads():
    with waza.record("x") as rec:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(recording.bound(search), "abcdefgh"))
        thread = threading.Thread(target=recording.bound(search), args=("z",))
        thread.start()
        thread.join()
    assert sorted(event.args["query"] for event in rec.trace.tool_events) == [*"abcdefgh", "z"]


def test_what_ends_after_the_recording_is_not_called_finished():
    async def main():
        release = asyncio.Event()

        @recording.tool
        async def slow():
            await release.wait()
            return "late"

        async with waza.record("x") as rec:
            task = asyncio.create_task(slow())
            await asyncio.sleep(0)
        before = rec.trace
        release.set()
        await task
        return before, rec.trace

    before, after = asyncio.run(main())
    assert before == after
    assert (after.tool_events[0].success, after.tool_events[0].result) == (False, None)
    assert "not finished" in after.tool_events[0].error


def test_a_stream_that_is_read_in_another_context_is_recorded_and_breaks_nothing():
    async def stream():
        with recording.model_call("m") as call:
            yield "a"
            call.output_tokens = 1
            yield "b"

    async def main():
        with waza.record("x") as rec:
            parts = stream()
            rec.output = await asyncio.create_task(anext(parts)) + await asyncio.create_task(anext(parts))
            await asyncio.create_task(parts.aclose())
        return rec.trace

    trace = asyncio.run(main())
    assert (trace.output, trace.usage.llm_calls, trace.usage.output_tokens) == ("ab", 1, 1)


def test_the_answer_may_be_set_after_the_block():
    with waza.record("x") as rec:
        search("tea")
    rec.output = "later"
    assert rec.trace.output == "later" and rec.trace.events[-1]["content"] == "later"
    with pytest.raises(RuntimeError, match="used once"), rec:
        pass


class Client:
    """A tool that is an object, and one that is a plain method which returns a coroutine."""

    __name__ = "client"

    async def __call__(self, url):
        await asyncio.sleep(0)
        return search(url)

    async def _post(self, url):
        await asyncio.sleep(0)
        if url == "broken":
            raise LookupError("no such thing")
        return search(url)

    @recording.tool
    def post(self, url):
        return self._post(url)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("cannot be shown")


def test_an_error_that_cannot_be_shown_is_still_the_one_that_goes_on():
    @recording.tool
    def fails():
        raise Unspeakable

    rec = waza.record("x")
    with pytest.raises(Unspeakable), rec:
        fails()
    assert "Unspeakable: [Unspeakable that cannot be written: RuntimeError]" in rec.trace.tool_events[0].error
    assert rec.trace.status == "failure"


@pytest.mark.filterwarnings("ignore:coroutine 'Client._post' was never awaited")
def test_a_plain_function_that_returns_a_coroutine_is_over_when_that_is():
    async def main():
        with waza.record("x") as rec:
            waiting = Client().post("a")
            search("between")
            assert (await waiting)["found"] == "a"
            await asyncio.gather(*(Client().post(name) for name in "bc"))
            with pytest.raises(LookupError):
                await Client().post("broken")
            never = Client().post("never")
        never.close()
        return rec.trace

    trace = asyncio.run(main())
    told = {(event.tool_name, event.args.get("url", event.args.get("query"))): event for event in trace.tool_events}
    assert told["post", "a"].result == {"found": "a", "limit": 10} and told["post", "a"].success
    assert (told["post", "broken"].success, told["post", "broken"].error) == (False, "LookupError: no such thing")
    assert (told["post", "never"].success, told["post", "never"].result) == (False, None)
    parents = {
        event["args"].get("query"): event.get("parent_id") for event in trace.events if event["type"] == "tool_call"
    }
    assert parents["between"] is None and parents["a"] == "1"


def test_an_object_that_is_called_later_is_recorded_when_it_is():
    call = recording.tool(Client())
    agent = recording.agent(Client())

    async def main():
        with waza.record("x") as rec:
            assert (await call("a"))["found"] == "a"
        return rec.trace, await agent("q")

    trace, answered = asyncio.run(main())
    assert names(trace) == ["client", "search"] and trace.tool_events[0].result["found"] == "a"
    assert (answered.input, names(answered)) == ("q", ["search"])


def test_bound_carries_the_recording_into_an_event_loop_of_another_thread():
    with waza.record("x") as rec, ThreadPoolExecutor() as pool:
        pool.submit(lambda carried: asyncio.run(carried("a")), recording.bound(fetch)).result()
    assert names(rec.trace) == ["fetch", "search"]


def test_a_trace_in_the_middle_of_a_call_can_be_written():
    with waza.record("x") as rec, recording.tool_call("open") as call:
        call.result = object()
        assert waza.Trace.from_json(rec.trace.to_json()).tool_events[0].result is None
    assert "object" in rec.trace.tool_events[0].result


def test_a_call_is_made_once():
    call = recording.tool_call("once")
    with waza.record("x") as rec:
        with call:
            pass
        with pytest.raises(RuntimeError, match="make another one"), call:
            pass
    assert names(rec.trace) == ["once"]


def test_a_generator_that_is_left_in_the_middle_ends_its_call():
    def stream():
        with recording.model_call("m") as call:
            call.output_tokens = 1
            yield "a"
            yield "b"

    with waza.record("x") as rec:
        parts = stream()
        next(parts)
        parts.close()
        search("tea")
    assert rec.trace.usage.llm_calls == 1
    assert [event.get("parent_id") for event in rec.trace.events if event["type"] == "tool_call"] == [None]


def test_a_cancelled_call_is_not_called_a_success():
    @recording.tool
    async def slow():
        await asyncio.sleep(60)

    async def main():
        with waza.record("x") as rec:
            task = asyncio.create_task(slow())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return rec.trace

    [call] = asyncio.run(main()).tool_events
    assert (call.success, call.error) == (False, "CancelledError: ")


def test_streams_and_traces_are_refused_with_the_next_step():
    with pytest.raises(TypeError, match="block inside it"):

        @recording.tool
        def stream():
            yield 1

    @recording.agent
    def wrong(prompt):
        return waza.Trace(input="a", output="b")

    with pytest.raises(TypeError, match="returns its answer"):
        wrong("x")


NOTHING_MARKED = """
import waza
from waza import recording

@recording.agent
def answer(prompt):
    return "done"

trace = answer("x")
assert trace.tool_events is None and trace.usage is None, trace
assert waza.grade(trace, {"tools_not_called": ["rm"]}).status == "error"

@recording.tool
def rm(path): ...

assert answer("x").tool_events == []
assert waza.grade(answer("x"), {"tools_not_called": ["rm"]}).passed
"""


def test_a_program_that_marks_no_tool_observes_none():
    done = subprocess.run([sys.executable, "-c", NOTHING_MARKED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_recorded_agent_runs_under_the_python_engine(tmp_path):
    (tmp_path / "recorded_bot.py").write_text(
        "from waza import recording\n"
        "@recording.tool\ndef look(x): return x\n"
        "@recording.agent\nasync def answer(prompt, context):\n    return look(context.task_id)\n"
    )
    (tmp_path / "eval.yaml").write_text(
        "config: {executor: python, agent: 'recorded_bot:answer'}\n"
        "tasks: [{id: a, prompt: hi, expected: {tools_called: [look], output_equals: a, max_steps: 1}}]\n"
    )
    [result] = waza.run(tmp_path).results
    assert result.status == "passed", result


def test_every_public_name_exists():
    assert [name for name in waza.recording.__all__ if not hasattr(waza.recording, name)] == []
