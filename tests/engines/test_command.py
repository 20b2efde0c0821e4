"""Any program is an agent: what it is given, what its output means, and how its end is told."""

import asyncio
import json
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError

from waza.engines.base import ENGINES
from waza.engines.command import CommandEngine, read_stdout
from waza.errors import EngineError, SpecError, TraceError
from waza.files.paths import SpecFolder
from waza.files.trial_folder import make_trial_folder
from waza.model import Crash, Task, ToolEvent, Trace, Trial, Usage
from waza.process.run_program import available_isolation

SHELL = ["sh", "-c"]


def engine(command, base=".", **options):
    return CommandEngine(command=command, folder=SpecFolder(base), **options)


def play(command, *, prompt="Say hello", base=".", model="m1", look=None, task=None, **options):
    task = task or Task(id="t", prompt=prompt, timeout_s=30)
    with make_trial_folder(task) as room:
        trace = asyncio.run(engine(command, base, **options).run(Trial(task=task, model=model), room))
        if look:
            look(room)
    return trace


def script(folder, name, text, mode=0o755):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_file_is_the_engine():
    assert ENGINES.load("command") is CommandEngine


# What the agent is given


def test_the_prompt_is_one_argument_whatever_is_in_it():
    nasty = "$(touch pwned) `id` ; rm -rf * \"'\\ \n{model} {{x}} %s é"
    trace = play(["printf", "%s", "{prompt}"], prompt=nasty)
    assert trace.output == nasty


def test_without_a_placeholder_the_prompt_comes_on_standard_input():
    assert play(["cat"], prompt="hällo\nthere").output == "hällo\nthere"


def test_with_a_placeholder_nothing_waits_on_standard_input():
    assert play([*SHELL, 'cat; echo "$1"', "sh", "{prompt}"], prompt="hi").output == "hi"


def test_model_and_folders_are_filled_in_and_other_braces_stay(tmp_path):
    seen = []
    words = ["{model}", "{workspace}", "{eval_dir}", "{}", '{"a": {model}}', "{other}", "${HOME}"]
    trace = play(
        ["printf", r"%s\n", *words, "{prompt}"],
        base=tmp_path,
        prompt="p",
        look=lambda room: seen.append(room.workspace),
    )
    expected = ["m1", str(seen[0]), str(tmp_path), "{}", '{"a": m1}', "{other}", "${HOME}", "p"]
    assert trace.output.split("\n") == expected


def test_the_agent_starts_in_the_working_folder_with_a_private_home():
    def look(room):
        assert (room.workspace / "sub/here").exists()
        assert (room.home / "there").exists()

    task = Task(id="t", prompt="p", workdir="sub")
    play([*SHELL, "touch here ~/there; test $WAZA_WORKSPACE_DIR = $(dirname $PWD)"], task=task, look=look)


def test_only_harmless_and_declared_variables_reach_the_agent(monkeypatch):
    monkeypatch.setenv("CANARY_KEY", "s3cret")
    monkeypatch.setenv("PYTHONPATH", "/canary")
    monkeypatch.setenv("LD_PRELOAD", "")
    task = Task(id="t", prompt="p", environment={"OF_TASK": "1", "OF_BOTH": "task"})
    trace = play(["env"], task=task, environment={"OF_SUITE": "2", "OF_BOTH": "suite"})
    seen = dict(line.partition("=")[::2] for line in trace.output.splitlines())
    assert (seen["OF_TASK"], seen["OF_SUITE"], seen["OF_BOTH"]) == ("1", "2", "task")
    assert "s3cret" not in trace.output
    assert {"PYTHONPATH", "LD_PRELOAD"}.isdisjoint(seen)


def test_the_canary_variable_would_be_seen_if_it_were_passed(monkeypatch):
    monkeypatch.setenv("CANARY_KEY", "s3cret")
    assert "CANARY_KEY=s3cret" in play(["env"], pass_environment=["CANARY_KEY"]).output


# Which program


def test_a_relative_program_stands_beside_the_eval_file_then_at_the_root(tmp_path):
    (tmp_path / ".waza.yaml").touch()
    script(tmp_path, "tools/agent.sh", "#!/bin/sh\necho from root\n")
    script(tmp_path, "evals/only.sh", "#!/bin/sh\necho beside\n")
    assert play(["tools/agent.sh"], base=tmp_path / "evals").output == "from root"
    assert play(["./only.sh"], base=tmp_path / "evals").output == "beside"


def test_a_program_of_the_same_name_in_the_workspace_is_never_started(tmp_path):
    script(tmp_path, "agent.sh", "#!/bin/sh\necho the right one\n")
    task = Task(id="t", prompt="p")
    with make_trial_folder(task) as room:
        script(room.workspace, "agent.sh", "#!/bin/sh\necho planted\n")
        trace = asyncio.run(engine(["./agent.sh"], tmp_path).run(Trial(task=task), room))
    assert trace.output == "the right one"


@pytest.mark.parametrize(
    ("command", "fact"),
    [
        (["./gone.sh"], "'./gone.sh' is not there"),
        (["../outside.sh"], "leaves the project"),
        (["./plain.txt"], "not executable"),
        (["./folder"], "is not a file"),
        (["no-such-program-at-all"], "'no-such-program-at-all' was not found on PATH"),
    ],
)
def test_a_program_that_is_not_there_is_found_before_the_first_trial(tmp_path, command, fact):
    base = tmp_path / "evals"
    script(tmp_path, "outside.sh", "#!/bin/sh\n")
    script(base, "plain.txt", "", 0o644)
    (base / "folder").mkdir()
    with pytest.raises(SpecError, match=fact):
        engine(command, base).ready()
    with pytest.raises(EngineError, match=command[0].strip("./")):
        play(command, base=base)


def test_everything_that_is_missing_is_told_at_once(tmp_path):
    wrong = engine(["./gone"], tmp_path, pass_environment=["NOT_SET_ANYWHERE"], readable=["nowhere"])
    with pytest.raises(SpecError) as refusal:
        wrong.ready()
    assert [problem.path for problem in refusal.value.problems] == [
        "config.command",
        "config.readable",
        "config.pass_environment",
    ]


def test_a_program_that_is_there_is_ready(tmp_path):
    script(tmp_path, "agent.sh", "#!/bin/sh\n")
    for command in (["./agent.sh"], ["sh"], [sys.executable]):
        engine(command, tmp_path).ready()


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"command": []}, "at least 1"),
        ({"command": [""]}, "program itself"),
        ({"command": ["{prompt}"]}, "nothing is filled in there"),
        ({"command": ["x", "{promt}"]}, "did you mean '{prompt}'"),
        ({"command": ["x", "--m={models}"]}, "did you mean '{model}'"),
        ({"command": "x {prompt}"}, "list"),
        ({"command": ["x"], "output_format": "xml"}, "text"),
        ({"command": ["x"], "environment": {"A": 1}}, "string"),
        ({"command": ["x"], "max_output_mb": 0}, "greater"),
        ({"command": ["x"], "comand": []}, "Extra"),
        ({}, "required"),
    ],
)
def test_wrong_options_are_refused(options, fact):
    with pytest.raises(ValidationError) as refusal:
        CommandEngine(**options)
    assert fact in str(refusal.value)


# How it ends


def test_a_silent_agent_gives_an_empty_output():
    trace = play(["true"])
    assert (trace.status, trace.output, trace.error) == ("success", "", None)


def test_the_trace_says_who_answered_and_how_long_it_took():
    trace = play(["echo", "hi"])
    assert (trace.input, trace.output, trace.engine, trace.model, trace.leftovers) == (
        "Say hello",
        "hi",
        "command",
        "m1",
        0,
    )
    assert trace.duration_ms > 0


@pytest.mark.parametrize(
    ("ending", "crash", "fact"),
    [
        ("exit 1", Crash(exit_code=1), "the agent exited with code 1"),
        ("exit 77", Crash(exit_code=77), "the agent exited with code 77"),
        ("exit 137", Crash(exit_code=137), "the agent exited with code 137"),
        ("exit 255", Crash(exit_code=255), "the agent exited with code 255"),
        ("kill -SEGV $$", Crash(signal=11), "the agent was ended by signal 11 (SIGSEGV)"),
        ("kill -ABRT $$", Crash(signal=6), "the agent was ended by signal 6 (SIGABRT)"),
    ],
)
def test_an_agent_that_crashes_leaves_what_it_said_and_why(ending, crash, fact):
    trace = play([*SHELL, f"echo half; printf 'one\\nwent \\033[31mwrong\\033[0m\\007\\n\\n' >&2; {ending}"])
    assert (trace.status, trace.output, trace.error) == ("failure", "half", f"{fact}: went wrong")
    assert trace.crash == replace(crash, stderr="one\nwent wrong")
    assert Trace.from_json(trace.to_json()) == trace


def test_json_lines_before_a_crash_count_whatever_is_printed_between_them():
    lines = [*as_lines(LINES[:2]).split("\n"), "Traceback (most recent call last):", '{"odd": 1}', '{"tool_na']
    trace = play(["sh", "-c", "cat; exit 1"], prompt="\n".join(lines), output_format="jsonl")
    assert (trace.status, [event.tool_name for event in trace.tool_events]) == ("failure", ["bash"])
    done = as_lines([{"output": "done", "usage": {"cost_usd": 0.5}}]) + "\nSegmentation fault"
    trace = play(["sh", "-c", "cat; exit 1"], prompt=done, output_format="jsonl")
    assert (trace.output, trace.usage.cost_usd) == ("done", 0.5)
    nothing = play(["sh", "-c", "echo no event; exit 1"], output_format="jsonl")
    assert (nothing.output, nothing.tool_events) == ("no event", None)


def test_a_crash_in_a_later_turn_keeps_the_turns_before():
    task = Task(id="t", prompt="p", follow_up_prompts=["q", "r"])
    trace = play([*SHELL, "cat; test $WAZA_TURN = 1 || exit 4"], task=task)
    assert (trace.status, trace.crash.exit_code, len(trace.turns)) == ("failure", 4, 2)
    assert [turn.status for turn in trace.turns] == ["success", "failure"]


@pytest.mark.parametrize(
    ("ending", "fact"),
    [("exit 126", "126"), ("exit 127", "127"), ("kill -9 $$", "SIGKILL"), ("kill -HUP $$", "SIGHUP")],
)
def test_an_agent_that_could_not_run_is_an_error(ending, fact):
    with pytest.raises(EngineError, match=f"the agent 'sh' could not run: .*{fact}.*; a hint"):
        play([*SHELL, f"echo a hint >&2; {ending}"])


def test_a_file_that_is_no_program_is_an_error(tmp_path):
    (tmp_path / "agent").write_bytes(b"\x7fELF garbage")
    (tmp_path / "agent").chmod(0o755)
    with pytest.raises(EngineError, match="agent"):
        play(["./agent"], base=tmp_path)


def test_a_prompt_with_nul_cannot_be_an_argument_but_can_be_read():
    with pytest.raises(EngineError, match="NUL"):
        play(["echo", "{prompt}"], prompt="a\0b")
    assert play(["cat"], prompt="a\0b").output == "a\0b"


def test_a_prompt_that_is_too_long_for_an_argument_is_an_error_and_can_be_read():
    prompt = "x" * 300_000
    with pytest.raises(EngineError, match="echo"):
        play(["echo", "{prompt}"], prompt=prompt)
    assert play(["cat"], prompt=prompt).output == prompt


def test_an_agent_that_runs_out_of_time_is_ended_and_keeps_what_it_said():
    started = time.monotonic()
    trace = play([*SHELL, "echo so far; sleep 600"], task=Task(id="t", prompt="p", timeout_s=0.5))
    assert time.monotonic() - started < 30
    assert (trace.status, trace.output) == ("timeout", "so far")
    assert "time limit" in trace.error


def test_what_an_agent_leaves_running_is_counted_and_ended(tmp_path):
    beat = tmp_path / "beat"
    loop = f"while :; do date +%s%N > {beat}; sleep 0.02; done"
    trace = play([*SHELL, f"({loop}) >/dev/null 2>&1 & while [ ! -s {beat} ]; do sleep 0.01; done; echo done"])
    assert trace.output == "done"
    assert trace.leftovers >= 1
    last = beat.read_text()
    time.sleep(0.2)
    assert beat.read_text() == last


@given(st.binary(max_size=200))
def test_no_bytes_can_break_the_reading(data):
    from waza.process.worker_pool import Capture

    capture = Capture(1000)
    capture.add(data)
    trace = read_stdout(capture.finish().text, "p", "text")
    trace.to_json()


def test_odd_bytes_come_through():
    trace = play([*SHELL, r"printf 'a\377\000b\355\240\200'"])
    assert trace.output.startswith("a�\0b")
    trace.to_json()


def test_a_flood_that_was_cut_is_no_evidence():
    with pytest.raises(EngineError, match="printed 3,000,012 bytes, more than are stored"):
        play([*SHELL, "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last"], max_output_mb=1)


# What standard output means


FORGED = json.dumps({"output": "fake", "tool_events": [{"tool_name": "read_file"}]})


def test_text_is_never_more_than_text():
    trace = play(["cat"], prompt=FORGED)
    assert trace.output == FORGED
    assert (trace.tool_events, trace.events, trace.usage, trace.skill_invocations) == (None, None, None, None)


def test_the_same_text_would_be_events_had_the_author_said_so():
    trace = play(["cat"], prompt=FORGED, output_format="json")
    assert trace.tool_events == [ToolEvent(tool_name="read_file")]


def test_trailing_newlines_are_no_part_of_the_answer():
    assert play(["printf", r"  a\n\nb \n\n\r\n"]).output == "  a\n\nb "


def test_json_is_a_whole_trace_and_what_is_known_better_wins():
    told = {"input": "forged", "output": "hi", "duration_ms": 0, "leftovers": 9, "model": "real", "new": 1}
    trace = play([*SHELL, f"echo '{json.dumps(told)}'"], output_format="json")
    assert (trace.input, trace.output, trace.model, trace.leftovers) == ("Say hello", "hi", "real", 0)
    assert trace.duration_ms > 0
    assert trace.extra == {"new": 1}


def test_an_agent_may_say_that_it_failed_or_could_not_run():
    failed = play(["cat"], prompt='{"output": "", "status": "failure", "error": "why"}', output_format="json")
    assert (failed.status, failed.error) == ("failure", "why")
    with pytest.raises(EngineError, match="reports that it could not run: no key"):
        play(["cat"], prompt='{"output": "", "status": "error", "error": "no key"}', output_format="json")


@pytest.mark.parametrize("text", ["", "hello", "[]", "{}", '{"output": 1}', '{"output": "a"} {"output": "b"}'])
def test_an_agent_that_does_not_keep_to_json_is_an_error(text):
    with pytest.raises(EngineError, match="did not follow `output_format: json`"):
        play(["cat"], prompt=text, output_format="json")


def test_an_agent_that_fails_need_not_keep_its_promise():
    trace = play([*SHELL, "echo Traceback; exit 1"], output_format="json")
    assert (trace.status, trace.output, trace.tool_events) == ("failure", "Traceback", None)


LINES = [
    {"type": "assistant_message", "turn": 1, "content": "let me see"},
    {"type": "tool_call", "turn": 1, "tool_name": "bash", "tool_call_id": "c1", "args": {"command": "ls"}},
    {"type": "tool_result", "turn": 1, "tool_call_id": "c1", "result": "a", "success": False},
    {"tool_name": "read", "args": {"path": "a"}, "turn": 2},
    {"output": "done", "usage": {"input_tokens": 3}, "skill_invocations": []},
]


def as_lines(items):
    return "\n".join(map(json.dumps, items)) + "\n\n"


def test_json_lines_are_events_and_tool_calls_and_a_last_word():
    trace = play(["cat"], prompt=as_lines(LINES), output_format="jsonl")
    assert trace.tool_events == [
        ToolEvent(tool_name="bash", args={"command": "ls"}, result="a", success=False, tool_call_id="c1", sequence=1),
        ToolEvent(tool_name="read", args={"path": "a"}, turn=2, sequence=2),
    ]
    assert trace.events == LINES[:3]
    assert (trace.output, trace.usage, trace.skill_invocations) == ("done", Usage(input_tokens=3), [])


def test_json_lines_without_tool_calls_say_that_there_was_none():
    trace = play(["cat"], prompt='{"output": "done"}', output_format="jsonl")
    assert (trace.tool_events, trace.skill_invocations, trace.usage) == ([], None, None)


@pytest.mark.parametrize(
    ("items", "fact"),
    [
        (["log line"], "line 1 is not a JSON object"),
        ([{"output": "a"}, {"output": "b"}], "line 2 comes after"),
        ([{"hello": 1}], "none of `type`, `tool_name` and `output`"),
        ([{"type": "tool_call", "tool_name": "x"}], "no last line with `output`"),
        ([{"type": "tool_result", "tool_call_id": "z"}, {"output": ""}], "no tool call for the result: 'z'"),
        ([{"type": "tool_call"}, {"output": ""}], "tool_name"),
        ([], "no last line"),
    ],
)
def test_json_lines_that_are_not_as_promised_are_an_error(items, fact):
    with pytest.raises(TraceError, match=fact):
        read_stdout(as_lines(items), "p", "jsonl")


def test_a_log_line_among_json_lines_is_an_error_with_a_hint():
    with pytest.raises(EngineError, match=r"line 1 is not JSON.*logs belong on standard error"):
        play(["cat"], prompt='INFO hello\n{"output": "x"}', output_format="jsonl")


def test_json_lines_cut_off_by_the_time_limit_count_as_far_as_they_go():
    start = as_lines(LINES[:3]).strip() + '\n{"tool_na'
    trace = play(
        [*SHELL, f"printf %s '{start}'; sleep 600"],
        output_format="jsonl",
        task=Task(id="t", prompt="p", timeout_s=0.5),
    )
    assert (trace.status, trace.output) == ("timeout", "")
    assert [event.tool_name for event in trace.tool_events] == ["bash"]


def test_output_cut_in_the_middle_is_an_error_that_says_what_to_raise():
    text = json.dumps({"output": "x" * 2_000_000})
    with pytest.raises(EngineError, match="raise max_output_mb"):
        play(["cat"], prompt=text, output_format="json", max_output_mb=1)
    assert len(play(["cat"], prompt=text, output_format="json", max_output_mb=4).output) == 2_000_000


# Conversations


def test_follow_up_prompts_start_the_command_again_in_the_same_folders():
    task = Task(id="t", prompt="one", follow_up_prompts=["two", "three"], timeout_s=30)
    trace = play(
        [*SHELL, 'echo "$1" >> log; echo "$WAZA_TURN: $(cat log | tr "\\n" " ")"', "sh", "{prompt}"], task=task
    )
    assert (trace.input, trace.output) == ("one", "3: one two three ")
    said = [event["content"] for event in trace.events if event["type"] == "assistant_message"]
    assert said == ["1: one ", "2: one two ", "3: one two three "]
    assert [event["content"] for event in trace.events if event["type"] == "user_message"] == ["one", "two", "three"]


def test_a_turn_that_fails_ends_the_conversation():
    task = Task(id="t", prompt="one", follow_up_prompts=["two", "three"], timeout_s=30)
    trace = play([*SHELL, 'echo "$WAZA_TURN"; test $WAZA_TURN = 1'], task=task)
    assert (trace.status, trace.output) == ("failure", "2")


def test_tool_calls_and_usage_of_all_turns_are_counted():
    line = {"output": "x", "tool_events": [{"tool_name": "a", "turn": 2}], "usage": {"turns": 2}, "steps": 3}
    task = Task(id="t", prompt="one", follow_up_prompts=["two"], timeout_s=30)
    trace = play([*SHELL, f"echo '{json.dumps(line)}'"], task=task, output_format="json")
    assert [(event.turn, event.sequence) for event in trace.tool_events] == [(2, 1), (4, 2)]
    assert (trace.usage, trace.steps) == (Usage(turns=4), 6)


def test_what_one_turn_did_not_record_is_not_recorded():
    answer = """if [ $WAZA_TURN = 1 ]; then echo '{"output": "a", "tool_events": [], "usage": {"turns": 1}}'; """
    task = Task(id="t", prompt="one", follow_up_prompts=["two"], timeout_s=30)
    trace = play([*SHELL, answer + """else echo '{"output": "b"}'; fi"""], task=task, output_format="json")
    assert (trace.output, trace.tool_events, trace.usage) == ("b", None, None)


def test_the_time_limit_is_for_all_turns_together():
    task = Task(id="t", prompt="one", follow_up_prompts=["two"], timeout_s=1.0)
    trace = play([*SHELL, "[ $WAZA_TURN = 1 ] || sleep 600; echo $WAZA_TURN"], task=task)
    assert trace.status == "timeout"


# Held back


@pytest.mark.skipif("landlock" not in available_isolation(), reason="this kernel has no Landlock")
def test_an_isolated_agent_sees_its_room_and_what_it_may_read_and_no_more(tmp_path):
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers/key.txt").write_text("CANARY")
    look = f"echo mine > mine.txt; cat {tmp_path}/answers/key.txt; cat mine.txt"
    assert "CANARY" in play([*SHELL, look], base=tmp_path).output
    held = play([*SHELL, look], base=tmp_path, isolation="landlock")
    assert held.output == "mine"
    assert held.extra["isolation"].startswith("landlock")
    shown = play([*SHELL, look], base=tmp_path, isolation="landlock", readable=["answers"])
    assert shown.output == "CANARYmine"


def test_a_limit_is_held():
    trace = play([*SHELL, "head -c 3000000 /dev/zero > big; ls -l big | awk '{print $5}'"], max_file_mb=1)
    assert trace.output == str(1024 * 1024)


def test_a_cancelled_trial_leaves_nothing_running(tmp_path):
    beat = tmp_path / "beat"
    loop = f"while :; do date +%s%N > {beat}; sleep 0.02; done"
    task = Task(id="t", prompt="p", timeout_s=60)

    async def start_and_cancel(room):
        work = asyncio.create_task(engine([*SHELL, loop]).run(Trial(task=task), room))
        while not beat.exists() or not beat.read_text():
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    with make_trial_folder(task) as room:
        asyncio.run(start_and_cancel(room))
    last = beat.read_text()
    time.sleep(0.2)
    assert beat.read_text() == last
