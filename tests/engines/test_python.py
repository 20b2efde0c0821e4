"""A Python function is an agent: how it is found, what it gets, what it gives back, and that it cannot end the run."""

import asyncio
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from waza.engines.base import ENGINES
from waza.engines.python import PythonEngine
from waza.errors import EngineError, SpecError
from waza.files.paths import SpecFolder
from waza.files.trial_folder import make_trial_folder
from waza.model import Task, ToolEvent, Trial, Usage


@pytest.fixture
def base(tmp_path, monkeypatch):
    """An eval file's folder; what is imported from it is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


def write(base, code, name="bot.py"):
    path = base / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(code))


def engine(base, agent="bot:agent"):
    return PythonEngine(agent=agent, folder=SpecFolder(base))


def play(base, code=None, *, agent="bot:agent", prompt="hi", task=None):
    if code:
        write(base, code)
    task = task or Task(id="t", prompt=prompt, timeout_s=30)
    with make_trial_folder(task) as room:
        return asyncio.run(engine(base, agent).run(Trial(task=task, model="m1", number=2), room))


def test_the_file_is_the_engine():
    assert ENGINES.load("python") is PythonEngine


# What it gets


@pytest.mark.parametrize(
    "code",
    [
        "def agent(prompt): return prompt.upper()",
        "async def agent(prompt): return prompt.upper()",
        "def agent(prompt, temperature=0.5): return prompt.upper() * (temperature == 0.5)",
        "def agent(*words): return words[0].upper()",
        "agent = lambda p: p.upper()",
        "class Bot:\n    def __call__(self, prompt): return prompt.upper()\nagent = Bot()",
        "class Bot:\n    async def __call__(self, prompt): return prompt.upper()\nagent = Bot()",
        "agent = str.upper",
        "import functools\ndef both(suffix, prompt): return prompt.upper()\nagent = functools.partial(both, 'x')",
        "async def inner(p): return p.upper()\ndef agent(prompt): return inner(prompt)",
    ],
)
def test_a_function_of_a_prompt(base, code):
    trace = play(base, code)
    assert (trace.input, trace.output, trace.status, trace.engine, trace.model) == (
        "hi",
        "HI",
        "success",
        "python",
        "m1",
    )
    assert trace.duration_ms is not None
    assert (trace.tool_events, trace.usage, trace.events, trace.skill_invocations) == (None, None, None, None)


@pytest.mark.parametrize("signature", ["prompt, context", "p, anything", "prompt, context=None", "prompt, *, context"])
def test_a_function_of_a_prompt_and_a_context(base, signature):
    second = signature.replace("*, ", "").split(",")[1].split("=")[0].strip()
    code = f"""
        def agent({signature}):
            c = {second}
            (c.workspace / "out.txt").write_text("x")
            return repr((c.task_id, c.trial, c.model, c.environment, c.history, c.workdir == c.workspace / "sub"))
    """
    task = Task(id="greet", prompt="p", environment={"A": "1"}, workdir="sub")
    assert play(base, code, task=task).output == "('greet', 2, 'm1', {'A': '1'}, [], True)"


def test_follow_up_prompts_see_the_conversation(base):
    code = """
        def agent(prompt, context):
            return prompt + ":" + ",".join(said["role"][0] + said["content"] for said in context.history)
    """
    task = Task(id="t", prompt="a", follow_up_prompts=["b", "c"], timeout_s=30)
    trace = play(base, code, task=task)
    assert trace.output == "c:ua,aa:,ub,ab:ua,aa:"
    assert [event["content"] for event in trace.events if event["type"] == "user_message"] == ["a", "b", "c"]


def test_the_project_s_root_can_be_imported_from(base):
    (base / ".waza.yaml").touch()
    write(base, "def agent(prompt): return 'from the root'", "agents/bots.py")
    assert play(base / "evals", agent="agents.bots:agent").output == "from the root"


def test_two_suites_with_a_module_of_the_same_name_each_get_their_own(base):
    for name in ("one", "two"):
        write(base / name, f"def agent(prompt): return '{name}'")
    assert [play(base / name).output for name in ("one", "two", "one")] == ["one", "two", "one"]


# What it gives back


def test_a_trace(base):
    code = """
        from waza import ToolEvent, Trace, Usage
        def agent(prompt):
            events = [ToolEvent(tool_name="search", args={"q": prompt})]
            return Trace(input=prompt, output="done", tool_events=events, usage=Usage(input_tokens=3), duration_ms=5)
    """
    trace = play(base, code)
    assert trace.tool_events == [ToolEvent(tool_name="search", args={"q": "hi"})]
    assert (trace.output, trace.usage, trace.duration_ms) == ("done", Usage(input_tokens=3), 5)


def test_a_mapping_in_the_shape_of_a_trace(base):
    trace = play(base, "def agent(prompt): return {'output': 'done', 'tool_events': [], 'status': 'failure', 'own': 1}")
    assert (trace.input, trace.output, trace.tool_events, trace.status) == ("hi", "done", [], "failure")
    assert trace.extra == {"own": 1}


def test_what_is_given_back_can_no_longer_be_changed(base):
    code = """
        kept = {"output": "x", "outcome": {"a": 1}}
        def agent(prompt): return kept
    """
    trace = play(base, code)
    sys.modules["bot"].kept["outcome"]["a"] = 2
    assert trace.outcome == {"a": 1}


def test_half_characters_are_replaced(base):
    for code in (r"def agent(p): return 'a\ud800b'", r"def agent(p): return {'output': 'a\ud800b'}"):
        assert play(base, code).output == "a�b"


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ("None", "returned NoneType"),
        ("3", "returned int"),
        ("b'x'", "returned bytes"),
        ("{}", "not a trace"),
        ("{'output': 3}", "not a trace"),
        ("{'output': '', 'outcome': {'x': object()}}", "not a trace"),
        ("holds_itself", "not a trace"),
    ],
)
def test_an_agent_that_returns_no_answer_has_crashed(base, value, fact):
    code = "holds_itself = {'output': ''}\nholds_itself['outcome'] = holds_itself\n"
    trace = play(base, f"{code}def agent(prompt): return {value}")
    assert (trace.status, trace.output) == ("failure", "")
    assert fact in trace.crash.exception
    assert fact in trace.error


def test_an_agent_may_say_that_it_could_not_run(base):
    with pytest.raises(EngineError, match="could not run: no key"):
        play(base, "def agent(prompt): return {'output': '', 'status': 'error', 'error': 'no key'}")


# When it breaks


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("def", "ValueError('boom')"),
        ("def", "SystemExit('boom')"),
        ("def", "StopIteration('boom')"),
        ("def", "KeyboardInterrupt('boom')"),
        ("async def", "ValueError('boom')"),
        ("async def", "SystemExit('boom')"),
        ("async def", "BaseException('boom')"),
    ],
)
def test_an_exception_names_itself_and_the_last_line_of_the_agent(base, kind, raised):
    code = f"""
        import json
        {kind} agent(prompt):
            raise {raised}
    """
    trace = play(base, code)
    assert (trace.status, trace.output, trace.error) == ("failure", "", f"the agent raised {trace.crash.exception}")
    assert "boom" in trace.error
    assert "bot.py:4: raise" in trace.error


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_agent_that_calls_os_exit_ends_its_trial_and_not_the_run(base, kind):
    code = f"""
        import os
        {kind} agent(prompt):
            child = os.fork()
            if not child:
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            os._exit(0)
    """
    trace = play(base, code)
    assert (trace.status, trace.crash.exception) == ("failure", "SystemExit: 0 (bot.py:8: os._exit(0))")


def test_an_error_deep_in_a_library_names_the_agent_s_own_line(base):
    trace = play(base, "import json\ndef agent(prompt):\n    return json.loads('{')")
    assert re.search(r"JSONDecodeError: .*\(bot\.py:3: return json\.loads", trace.error)


def test_an_exception_that_cannot_be_printed_is_still_told(base):
    code = """
        class Odd(Exception):
            def __str__(self): raise RuntimeError
        def agent(prompt): raise Odd
    """
    assert "Odd" in play(base, code).crash.exception


def test_an_agent_that_cancels_itself_does_not_cancel_the_run(base):
    trace = play(base, "import asyncio\nasync def agent(prompt): raise asyncio.CancelledError")
    assert "cancelled itself" in trace.crash.exception


ASKED = "httpx2.Request('GET', 'http://127.0.0.1/')"
GONE = "openai.APIConnectionError(request=httpx2.Request('GET', 'http://127.0.0.1/'))"


@pytest.mark.parametrize(
    ("raised", "is_crash"),
    [
        ("ConnectionRefusedError('no')", False),
        ("BrokenPipeError('gone')", True),
        ("TimeoutError('timed out')", False),
        ("TimeoutError()", True),
        ("socket.gaierror(-2, 'Name or service not known')", False),
        ("urllib.error.URLError('no route')", False),
        ("urllib.error.HTTPError('u', 503, 'm', None, None)", False),
        ("urllib.error.HTTPError('u', 404, 'm', None, None)", True),
        ("httpx2.ConnectError('no')", False),
        (f"httpx2.HTTPStatusError('m', request={ASKED}, response=httpx2.Response(429))", False),
        (f"httpx2.HTTPStatusError('m', request={ASKED}, response=httpx2.Response(404))", True),
        (GONE, False),
        (f"openai.RateLimitError('m', response=httpx2.Response(429, request={ASKED}), body=None)", False),
        ("openai.OpenAIError('the api_key must be set')", False),
        ("EngineError('the tool server is down')", False),
        (f"ExceptionGroup('several', [ConnectionError(), {GONE}])", False),
        ("ExceptionGroup('several', [ConnectionError(), ValueError()])", True),
        (f"RuntimeError('the model is gone') from {GONE}", False),
        ("RuntimeError('wrong') from ValueError('x')", True),
        ("requests.exceptions.ConnectTimeout()", False),
        ("requests.exceptions.JSONDecodeError('m', 'd', 0)", True),
        (f"anthropic.InternalServerError('m', response=httpx2.Response(529, request={ASKED}), body=None)", False),
        ("aiohttp.ServerDisconnectedError()", False),
        ("MemoryError()", True),
    ],
)
def test_an_error_of_the_network_or_a_vendor_is_no_crash(base, raised, is_crash):
    imports = "import aiohttp, anthropic, httpx2, openai, requests, socket, urllib.error\n"
    imports += "from waza.errors import EngineError\n"
    trace = play(base, f"{imports}def agent(prompt):\n    raise {raised}")
    assert (trace.status, trace.crash is not None) == ("failure" if is_crash else "error", is_crash)


def test_what_was_recorded_before_a_crash_is_kept(base):
    code = """
        import waza
        from waza import recording

        @recording.tool
        def search(query): return query

        @recording.agent
        def agent(prompt):
            with recording.model_call("m") as call:
                call.input_tokens, call.output_tokens = 5, 7
            search("tea")
            raise ValueError("boom")
    """
    trace = play(base, code)
    assert (trace.status, [event.tool_name for event in trace.tool_events]) == ("failure", ["search"])
    assert (trace.usage.input_tokens, trace.input) == (5, "hi")
    assert "ValueError: boom" in trace.crash.stderr


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_the_traceback_of_a_crash_has_the_agents_frames_only(base, keyword):
    code = f"""
    def inner():
        raise KeyError("first")

    {keyword} agent(prompt):
        try:
            inner()
        except KeyError as error:
            raise ValueError("boom") from error
    """
    told = play(base, code).crash.stderr
    assert told.startswith("Traceback (most recent call last):") and told.rstrip().endswith("ValueError: boom")
    files = re.findall(r'File "([^"]+)", line \d+, in (\w+)', told)
    assert [(Path(file).name, name) for file, name in files] == [
        ("bot.py", "agent"),
        ("bot.py", "inner"),
        ("bot.py", "agent"),
    ]


def test_a_crash_on_a_follow_up_prompt_keeps_the_turns_before(base):
    code = """
        def agent(prompt, context):
            if context.history: raise ValueError("second")
            return {"output": "first", "usage": {"cost_usd": 0.5}}
    """
    trace = play(base, code, task=Task(id="t", prompt="p", follow_up_prompts=["q", "r"]))
    assert [(turn.status, turn.output) for turn in trace.turns] == [("success", "first"), ("failure", "")]
    assert "ValueError: second" in trace.crash.exception


# When it takes too long


def test_a_plain_function_past_its_time_is_given_up_on(base):
    started = time.monotonic()
    trace = play(
        base,
        "import time\ndef agent(prompt): time.sleep(3)",
        task=Task(id="t", prompt="p", timeout_s=0.1),
    )
    assert time.monotonic() - started < 2.5
    assert (trace.status, trace.output) == ("timeout", "")
    assert "cannot be ended" in trace.error


def test_an_async_function_past_its_time_is_cancelled_and_may_tidy_up(base):
    code = """
        import asyncio
        async def agent(prompt, context):
            try:
                await asyncio.sleep(600)
            finally:
                open(context.environment["MARK"], "w").close()
    """
    task = Task(id="t", prompt="p", timeout_s=0.1, environment={"MARK": str(base / "tidy")})
    trace = play(base, code, task=task)
    assert (trace.status, (base / "tidy").exists()) == ("timeout", True)


def test_an_async_function_that_will_not_be_cancelled_is_left_behind(base):
    code = """
        import asyncio
        async def agent(prompt):
            for _ in range(30):
                try:
                    await asyncio.sleep(0.1)
                except asyncio.CancelledError:
                    pass
    """
    started = time.monotonic()
    assert play(base, code, task=Task(id="t", prompt="p", timeout_s=0.1)).status == "timeout"
    assert time.monotonic() - started < 20


def test_functions_that_never_return_do_not_use_up_the_places_of_others(base):
    write(base, "import time\ndef agent(prompt): return time.sleep(5) if prompt == 'hang' else prompt")

    async def all_of_them(room):
        tasks = [Task(id=str(n), prompt="hang", timeout_s=0.2) for n in range(40)] + [Task(id="x", prompt="ok")]
        bot = engine(base)
        return await asyncio.gather(*(bot.run(Trial(task=task), room) for task in tasks))

    with make_trial_folder(Task(id="t", prompt="p")) as room:
        traces = asyncio.run(all_of_them(room))
    assert [trace.status for trace in traces] == ["timeout"] * 40 + ["success"]


def test_many_plain_functions_run_at_once(base):
    write(base, "import time\ndef agent(prompt):\n    time.sleep(0.3)\n    return prompt")

    async def all_of_them(room):
        bot = engine(base)
        return await asyncio.gather(*(bot.run(Trial(task=Task(id=str(n), prompt="p")), room) for n in range(64)))

    with make_trial_folder(Task(id="t", prompt="p")) as room:
        started = time.monotonic()
        asyncio.run(all_of_them(room))
    assert time.monotonic() - started < 0.3 * 64 / 4


def test_a_function_that_never_returns_does_not_keep_the_process_from_ending(base):
    write(base, "import time\ndef agent(prompt): time.sleep(600)")
    code = f"""
        import asyncio
        from waza.engines.python import PythonEngine
        from waza.model import Task, Trial
        from waza.files.paths import SpecFolder
        from waza.files.trial_folder import make_trial_folder
        task = Task(id="t", prompt="p", timeout_s=0.1)
        with make_trial_folder(task) as room:
            bot = PythonEngine(agent="bot:agent", folder=SpecFolder({str(base)!r}))
            print(asyncio.run(bot.run(Trial(task=task), room)).status)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("timeout\n", 0)


# Before the first trial


@pytest.mark.parametrize(
    ("agent", "fact"),
    [
        ("bott:agent", "there is no module 'bott'; did you mean 'bot'"),
        ("bot:agnet", "'bot' has no function 'agnet'; did you mean 'agent'"),
        ("bot:limit", "not a function but int"),
        ("bot.sub:agent", "there is no module 'bot.sub'"),
        ("broken:agent", r"'broken' cannot be imported: ZeroDivisionError: .* \(broken\.py:2: 1 / 0\)"),
        ("leaves:agent", "'leaves' cannot be imported: SystemExit: 3"),
        ("needy:agent", "'needy' cannot be imported: ModuleNotFoundError: No module named 'not_installed_at_all'"),
        ("typo:agent", "'typo' cannot be imported: .*SyntaxError"),
        ("bot:nothing", "an agent takes"),
        ("bot:three", "an agent takes"),
        ("bot:named", "an agent takes"),
    ],
)
def test_an_agent_that_cannot_be_called_is_found_before_the_first_trial(base, agent, fact):
    write(
        base, "limit = 3\ndef agent(p): pass\ndef nothing(): pass\ndef three(a, b, c): pass\ndef named(p, *, key): pass"
    )
    write(base, "def agent(p): pass\n1 / 0", "broken.py")
    write(base, "raise SystemExit(3)", "leaves.py")
    write(base, "import not_installed_at_all", "needy.py")
    write(base, "def agent(p:", "typo.py")
    with pytest.raises(SpecError, match=fact):
        engine(base, agent).ready()


def test_an_agent_that_can_be_called_is_ready_and_imported_once(base):
    write(base, f"open({str(base / 'count')!r}, 'a').write('x')\ndef agent(p): return p")
    bot = engine(base)
    bot.ready()
    task = Task(id="t", prompt="p")
    with make_trial_folder(task) as room:
        asyncio.run(bot.run(Trial(task=task), room))
    assert (base / "count").read_text() == "x"


@pytest.mark.parametrize("agent", ["", "bot", "bot:", ":agent", "bot.py:agent:x", "a b:c", "../bot:agent", "bot:run()"])
def test_an_agent_is_named_by_module_and_function(agent):
    with pytest.raises(ValidationError, match="module:function"):
        PythonEngine(agent=agent)


def test_the_process_s_own_folder_and_variables_are_left_alone(base):
    before = (os.getcwd(), dict(os.environ))
    play(base, "def agent(prompt): return prompt", task=Task(id="t", prompt="p", environment={"A_NEW_ONE": "1"}))
    assert (os.getcwd(), dict(os.environ)) == before
