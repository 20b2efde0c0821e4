"""The agent as its own judge: the question is one more prompt to a copy of its session.

The judging agent gets a trial folder with copies of the files and of the session, read-only permissions, and one MCP
server, whose tools are the verdict. The original trial folder and session are not changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, ClassVar, NamedTuple

from msgspec.structs import replace

from waza.engines.base import Engine
from waza.engines.mocks.serve import MockResponder, serve_mocks
from waza.engines.mocks.shapes import McpAnswer, McpMock, Mocks, MockTool
from waza.errors import EngineError, JudgeError
from waza.files.trial_folder import TrialFolder, copy_workspace, make_trial_folder
from waza.files.workspace import Workspace
from waza.judges.base import Call, Reply, Request
from waza.model import Task, Trace, Trial
from waza.runs.outcomes import agent_spending
from waza.spending import NOTHING

SERVER = "waza_verdict"
_JUDGE_PROMPT = f"""\
The work of this session is over. From here on you are its judge, as if somebody else had done it: change nothing, look
at files where you need to, and give your verdict with the tools of the MCP server {SERVER}."""


class StoredSession(NamedTuple):
    """The session of an agent whose trial has ended."""

    engine: Engine
    trial: Trial
    trace: Trace
    trial_folder: TrialFolder
    """The folder it worked in; it is not changed."""


class AgentSession:
    """A judge that asks the agent under test, in a copy of its session."""

    continues: ClassVar[bool] = True
    """Whether it continues the agent's own session."""
    is_cacheable: ClassVar[bool] = False
    """Whether its verdicts may be taken from the cache."""
    cache: ClassVar[None] = None

    def __init__(
        self,
        session: StoredSession,
        wait_for_slot: Callable[[], Awaitable[None]] | None = None,
        on_trace: Callable[[Trace], None] = lambda trace: None,
    ) -> None:
        """`wait_for_slot` returns when an agent may start; `on_trace` gets its trace, for rate limits."""
        self._session = session
        self._wait_for_slot = wait_for_slot
        self._on_trace = on_trace
        self.model = session.trial.model
        self._loop = asyncio.get_running_loop()

    def about(self) -> dict[str, Any]:
        """Return which session is continued."""
        trace = self._session.trace
        return {"engine": trace.engine, "session_id": trace.session_id}

    async def ask(self, request: Request) -> Reply:
        """Return the agent's reply; raise JudgeError when there is none. It runs in the event loop of its trial."""
        asking = asyncio.run_coroutine_threadsafe(self._ask(request), self._loop)
        return await asyncio.wrap_future(asking)

    async def _ask(self, request: Request) -> Reply:
        if self._wait_for_slot is not None:
            await self._wait_for_slot()
        text = "\n\n".join([_JUDGE_PROMPT, *(message.content for message in request.messages)])
        own = self._session.trial.task
        task = replace(own, prompt=text, follow_up_prompts=[], files=[], mocks=_verdict_server(request), until_skill="")
        try:
            with ExitStack() as stack:
                # The home folder is PARENT/TRIAL/home.
                trial_folders = self._session.trial_folder.home.parent.parent
                trial_folder = stack.enter_context(make_trial_folder(Task(id=task.id, prompt=""), parent=trial_folders))
                trace, responder = await self._run_agent(task, trial_folder, request.model)
                await asyncio.to_thread(stack.close)
        except (EngineError, OSError) as error:
            self._on_trace(Trace(input=task.prompt, output="", status="error", error=str(error)))
            recorded = getattr(error, "recorded", None)
            spending = agent_spending(recorded) if recorded is not None else NOTHING
            raise JudgeError(f"the agent's session cannot be continued: {error}", spending=spending) from None
        self._on_trace(trace)
        used = trace.usage
        if trace.status in ("error", "timeout") or trace.crash is not None:
            why = f"the agent's session gave no verdict: {trace.error or trace.status}"
            raise JudgeError(why, spending=agent_spending(trace))
        calls = tuple(Call(str(call["tool"]), call["args"]) for call in responder.calls)
        return Reply(
            tool_calls=calls,
            text=trace.output,
            model=trace.model,
            input_tokens=used.input_tokens if used else None,
            output_tokens=used.output_tokens if used else None,
            cost_usd=used.cost_usd if used else None,
        )

    async def _run_agent(self, task: Task, trial_folder: TrialFolder, model: str) -> tuple[Trace, MockResponder]:
        """Return the trace of the agent answering in a copy of its files, and the mocks that took its verdict."""
        engine, trial, before, original = self._session
        await asyncio.to_thread(copy_workspace, Workspace(original.workspace), trial_folder.workspace)
        workdir = trial_folder.workspace / original.workdir.relative_to(original.workspace)
        workdir.mkdir(parents=True, exist_ok=True)
        async with serve_mocks(task, trial_folder._replace(workdir=workdir)) as (prepared, responder):
            judging = replace(trial, task=task, model=model or trial.model)
            return await engine.continue_session(judging, before, original, prepared), responder


def _verdict_server(request: Request) -> dict[str, Any]:
    """Return the mocked MCP server whose tools are the verdict, in the form of a task's `mocks`."""
    noted = McpAnswer.model_validate({"return": "noted"})
    tools = {
        tool.name: MockTool(description=tool.description, input_schema=tool.parameters, responses=[noted])
        for tool in request.tools
    }
    return Mocks(servers=[McpMock(name=SERVER, tools=tools)]).model_dump(mode="json", by_alias=True, exclude_unset=True)
