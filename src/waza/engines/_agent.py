"""What engines of agent programs share: a clean room, credentials by allow-list, and events read as they come.

A trial's agent gets a private home with nothing in it but what the suite declares, so the user's settings, plug-ins,
skills, memories and MCP servers are not there. It is no sandbox: the program may do what the user may.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from msgspec.structs import replace
from pydantic import Field, field_validator

from waza.engines._mcp import McpServer
from waza.engines._start import AgentTurn, Launch, Server, settled, told, write
from waza.engines.base import NO_CREDENTIAL, Engine, TrialFolder
from waza.errors import EngineError, Problem, SpecError
from waza.files.trial_folder import copy_workspace
from waza.files.workspace import Workspace
from waza.model import Task, Trace, Trial
from waza.process.run_program import Finished, Limits, base_environment, run_process
from waza.skills import MARK, copy_skills, find_skills, read_skill
from waza.traces.aliases import invocations
from waza.traces.base import Reader
from waza.traces.conversation import converse, recording
from waza.traces.live import Live

Mode = Literal["all", "edits", "read"]
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_LOG_BYTES = 256 << 10
_START_S = 120.0
_SIGNS_IN = ("_KEY", "_TOKEN", "_CREDENTIALS", "_USE_BEDROCK", "_USE_VERTEX", "_USE_VERTEXAI", "PROVIDER_BASE_URL")
"""How the names of variables end that an agent can sign in with."""
_XDG = {"XDG_CONFIG_HOME": ".config", "XDG_DATA_HOME": ".local/share", "XDG_STATE_HOME": ".local/state"}
_XDG["XDG_CACHE_HOME"] = ".cache"


class AgentEngine(Engine):
    """Run an agent program in a clean room."""

    needs_key = True
    takes_skill = True
    mocks: ClassVar[tuple[str, ...] | None] = ("command_mocks", "mcp_mocks")
    name: ClassVar[str]
    """What the agent is called in traces."""
    reader: ClassVar[type[Reader]]
    """Reads what it prints."""
    credentials: ClassVar[tuple[str, ...]] = ()
    """Variables handed on from waza's own environment if they are set."""
    skills_at: ClassVar[str]
    """Where in its home the agent looks for skills."""
    instructions_at: ClassVar[str]
    """Where in its home the agent looks for instructions."""
    modes: ClassVar[Mapping[Mode, Sequence[str]]]
    """By `permission_mode`: what the program is told."""
    has_mcp: ClassVar[bool] = True
    """Whether it can use MCP servers."""
    has_costs: ClassVar[bool] = True
    """Whether it says what it costs."""
    sessions_at: ClassVar[str] = ""
    """Where in its home the agent keeps its sessions, if a judge can go on with them."""

    environment: dict[str, str] = {}
    """Variables for the agent; a task's own `environment` is added."""
    pass_environment: list[str] = []
    """Names of further variables handed on from waza's own environment. They must be set."""
    base_url: str | None = None
    """A model server in place of the vendor's. The vendor's credentials are not sent there."""
    api_key_env: str | None = None
    """The variable that holds the key for `base_url`."""
    permission_mode: Mode = "all"
    """What the agent may do unasked: `all`, `edits` (change files, nothing else), `read`. Nobody is asked: what is not
    allowed is refused."""
    mcp_servers: dict[str, McpServer] = {}
    """MCP servers the agent gets, by name: `command`, `args` and `env`, or `url` and `headers`."""
    skill_directories: list[str] = []
    """Folders that hold skills; the suite's `skill` is found without. Copied into the agent's private home."""
    disabled_skills: list[str] = []
    """Skills that are left out; `*` means all."""
    required_skills: list[str] = []
    """Skills that must be found."""
    instruction_files: list[str] = []
    """Files given to the agent as the user's standing instructions."""
    inject_skill_body: bool = False
    """Put the text of the suite's SKILL.md into the agent's instructions. It is then there without being chosen, so its
    use says nothing any more."""
    first_event_timeout_seconds: Annotated[float, Field(ge=0)] = 0
    """How long to wait for the first event; the trial is an error then. 0 means as long as the task may take."""
    extra_arguments: list[str] = []
    """Words added to the program's command line."""
    max_output_mb: Annotated[int, Field(ge=1)] = 64
    """How much the agent may print."""

    @field_validator("mcp_servers")
    @classmethod
    def _servers_can_be_used(cls, servers: dict[str, McpServer]) -> dict[str, McpServer]:
        if servers and not cls.has_mcp:
            raise ValueError(f"{cls.name} cannot use MCP servers")
        if odd := [name for name in servers if not _NAME.fullmatch(name)]:
            raise ValueError(f"'{odd[0]}' cannot be the name of a server: letters, digits, `_` and `-`")
        return servers

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Refuse variables, skills, instructions and servers that are not there."""
        wanted = {"pass_environment": self.pass_environment, "api_key_env": [self.api_key_env or ""]}
        problems = [
            Problem(f"'{name}' is not set in the environment", path=f"config.{key}", severity="warning")
            for key, names in wanted.items()
            for name in names
            if name and name not in os.environ
        ]
        if self.api_key_env and not self.base_url:
            problems.append(Problem("it goes with `base_url`; use pass_environment", path="config.api_key_env"))
        looks = {
            "skill_directories": self.skills,
            "instruction_files": self._instructions,
            "mcp_servers": self.servers,
        }
        for key, look in looks.items():
            try:
                look()
            except (ValueError, OSError) as error:
                problems.append(Problem(str(error), path=f"config.{key}"))
        if self.inject_skill_body and self.skill_folder is None:
            problems.append(Problem("there is no skill to inject", path="config.inject_skill_body"))
        if problems:
            raise SpecError(problems)
        for own in (self, *(self.for_task(task) for task in tasks if task.skill_directories is not None)):
            own._refuse_missing_skills()

    def _refuse_missing_skills(self) -> None:
        found, disabled = self.skills(), self.disabled_skills
        wanted = dict.fromkeys(self.required_skills, "config.required_skills")
        if self.skill and "*" not in disabled and self.skill not in disabled:
            wanted[self.skill] = "skill"
        missing = {name: path for name, path in wanted.items() if name not in found}
        if missing:
            known = ", ".join(found) or "none"
            raise SpecError(
                [Problem(f"skill '{name}' was not found; found: {known}", path=path) for name, path in missing.items()]
            )

    async def start(self, concurrency: int = 1) -> None:
        """Find the program and see that it starts at all."""
        program = self.found()
        with tempfile.TemporaryDirectory(prefix="waza-") as home:
            variables = base_environment({}, home=Path(home))
            finished = await run_process([program, "--version"], cwd=home, env=variables, timeout_s=_START_S)
        if not finished.ok:
            fact = told(finished) or finished.trouble or f"it ended with code {finished.exit_code}"
            raise EngineError(f"{program}: `--version` does not work: {fact}; install it again: {self.install}")

    async def run(self, trial: Trial, trial_folder: TrialFolder) -> Trace:
        """Give the agent the prompts of a task, one after the other in one session, and return what it did."""
        own = self.for_task(trial.task)
        if trial_folder.mock_programs.servers:
            return await own._with_servers(trial_folder)._run(trial, trial_folder)
        return await own._run(trial, trial_folder)

    def for_task(self, task: Task) -> Self:
        """Return the engine with the skills and instructions that a task names; a trigger test injects no skill."""
        own: dict[str, object] = {}
        if task.skill_directories is not None:
            own["skill_directories"] = task.skill_directories
        if task.instruction_files:
            own["instruction_files"] = [*self.instruction_files, *task.instruction_files]
        if task.until_skill:
            own["inject_skill_body"] = False  # an agent that has read the skill has no need to load it
        return self.model_copy(update=own) if own else self

    async def go_on(self, trial: Trial, before: Trace, left: TrialFolder, trial_folder: TrialFolder) -> Trace:
        """Put one more prompt to a session, in a clean room with a copy of the session and of nothing else."""
        turn = AgentTurn(trial.task.prompt, trial.model, trial_folder, before.turns or (before,), is_judging=True)
        if not _NAME.fullmatch(turn.session):
            raise EngineError(f"{self.name} told no session to go on with", is_started=False)
        bare = {"permission_mode": "read", "mcp_servers": {}, "extra_arguments": []}
        engine = self.model_copy(update=bare)._with_servers(trial_folder)
        try:
            await asyncio.to_thread(engine._take_over, turn, left)
        except (OSError, ValueError) as error:
            raise EngineError(f"the session of {self.name} cannot be taken over: {error}") from None
        return await engine._play(turn, trial, trial.task.timeout_s)

    def _take_over(self, turn: AgentTurn, left: TrialFolder) -> None:
        self.prepare(turn.trial_folder, turn.model)
        place = turn.trial_folder.home / self.sessions_at
        place.mkdir(parents=True)
        copy_workspace(Workspace(left.home / self.sessions_at), place)
        self.settle(turn)

    def settle(self, turn: AgentTurn) -> None:
        """Make a copied session fit its new room."""

    def _with_servers(self, trial_folder: TrialFolder) -> Self:
        """Return the engine with the MCP servers of a room among its own."""
        found = {
            name: McpServer(command=one[0], args=list(one[1:]))
            for name, one in trial_folder.mock_programs.servers.items()
        }
        return self.model_copy(update={"mcp_servers": self.mcp_servers | found})

    async def _run(self, trial: Trial, trial_folder: TrialFolder) -> Trace:
        try:
            await asyncio.to_thread(self._prepare, trial_folder, trial.model)
        except (OSError, ValueError) as error:
            raise EngineError(f"the home of {self.name} cannot be furnished: {error}", is_started=False) from None

        async def play(prompt: str, before: Sequence[Trace], left_s: float) -> Trace:
            turn = AgentTurn(prompt, trial.model, trial_folder, before)
            if before and not turn.session:
                raise EngineError(f"{self.name} told no session to go on with", is_started=False)
            return await self._play(turn, trial, left_s)

        trace = await converse(trial, trial_folder, play)
        return replace(trace, engine=self.name, model=trace.model or trial.model or None)

    def launch(self, turn: AgentTurn) -> Launch:
        """Return how the program is started for a turn."""
        raise NotImplementedError(f"{type(self).__name__} cannot be started")

    def prepare(self, trial_folder: TrialFolder, model: str) -> None:
        """Write the program's own settings into the private home, before the agent is there."""

    def before(self, turn: AgentTurn) -> object:
        """Return what `after` needs to know of the state before a turn."""
        return None

    def after(self, live: Live, turn: AgentTurn, state: object) -> None:
        """Read what the agent told elsewhere than on standard output."""

    def amended(self, trace: Trace, turn: AgentTurn) -> Trace:
        """Return the trace of a turn as it counts in the conversation."""
        return trace

    def server(self) -> Server | None:
        """Return the model server that the suite names."""
        if self.base_url is None:
            return None
        return Server(self.base_url, os.environ.get(self.api_key_env or "", "") or "no-key-needed")

    def servers(self) -> dict[str, McpServer]:
        """Return the MCP servers the agent gets; raise ValueError when a program is not there."""
        return {name: server.located(self.folder) for name, server in self.mcp_servers.items()}

    def skills(self) -> dict[str, Path]:
        """Return the skills the agent gets, by name; raise ValueError when a folder of them is not there."""
        own = {self.skill: self.skill_folder} if self.skill_folder else {}
        return find_skills(self.skill_directories, self.folder, own, self.disabled_skills)

    def found(self) -> str:
        """Return the path of the program; raise EngineError that says how to install it."""
        if path := self.locate():
            return path
        raise EngineError(f"'{self.program}' was not found on PATH; install it: {self.install}", is_started=False)

    def costs_unreported(self) -> str:
        """Return a sentence where the agent does not say what it costs."""
        silent = f"{self.name} does not say what it costs; leave it out, --timeout limits each task"
        return "" if self.has_costs else silent

    def missing(self) -> str:
        """Return how to install the program; empty if it is there."""
        try:
            self.found()
        except EngineError as error:
            return str(error)
        return ""

    def missing_credentials(self, tasks: Sequence[Task] = ()) -> str:
        """Return which variables to set where none of the vendor's is, and the suite hands on no others."""
        given = [*self.pass_environment, *self.environment, *(name for task in tasks for name in task.environment)]
        keys = [name for name in self.credentials if name.endswith(_SIGNS_IN)]
        if self.base_url is not None or given or not keys or any(os.environ.get(name) for name in keys):
            return ""
        fact = f"{NO_CREDENTIAL} {self.name} was found: none of {', '.join(keys)} is set"
        return f"{fact}; its agents have a home of their own, where your login is not"

    def executable(self) -> str:
        """Return what is started for a turn."""
        return self.found()

    def _instructions(self) -> str:
        texts = [self.folder.find(name).read_text(encoding="utf-8") for name in self.instruction_files]
        if self.inject_skill_body and self.skill_folder is not None:
            texts.append(read_skill(self.skill_folder / MARK).body.strip())
        return "\n\n".join(texts)

    def _prepare(self, trial_folder: TrialFolder, model: str) -> None:
        copy_skills(self.skills(), trial_folder.home / self.skills_at, self.folder.base)
        if instructions := self._instructions():
            write(trial_folder.home / self.instructions_at, instructions)
        self.prepare(trial_folder, model)

    def _variables(self, turn: AgentTurn, launch: Launch, trial: Trial) -> dict[str, str]:
        names = [*self.pass_environment, *(self.credentials if self.base_url is None else ())]
        passed = {name: os.environ[name] for name in names if name in os.environ}
        private = {name: str(turn.trial_folder.home / path) for name, path in _XDG.items()}
        own = {"WAZA_WORKSPACE_DIR": str(turn.trial_folder.workspace), "WAZA_TURN": str(len(turn.before) + 1)}
        declared = passed | self.environment | trial.task.environment
        return turn.trial_folder.environment({**private, **launch.environment, **declared, **own})

    async def _play(self, turn: AgentTurn, trial: Trial, left_s: float) -> Trace:
        launch, state = self.launch(turn), self.before(turn)
        live = Live(self.reader(), self.max_output_mb << 20, left_s)
        recording(live.trace)
        running = run_process(
            [self.executable(), *launch.arguments, *self.extra_arguments],
            cwd=turn.trial_folder.workdir,
            env=self._variables(turn, launch, trial),
            stdin=launch.stdin.encode(),
            timeout_s=max(left_s, 0.001),
            limits=Limits(output_bytes=_LOG_BYTES),
            on_output=until_skill(live, trial.task.until_skill),
        )
        started, is_stopped = time.monotonic(), False
        try:
            finished = await (self._watched(running, live) if self.first_event_timeout_seconds else running)
        except SkillSeen:
            finished, is_stopped = Finished(duration_ms=(time.monotonic() - started) * 1000), True
        except EngineError as error:
            if error.recorded is None and live.has_begun:
                live.end(in_time=True)
                took_ms = (time.monotonic() - started) * 1000
                error.recorded = replace(live.trace(), input=turn.prompt, duration_ms=took_ms)
            raise
        live.end(in_time=not finished.timed_out)
        try:
            await asyncio.to_thread(self.after, live, turn, state)
        except OSError as error:  # the agent may have closed its own home; what it printed counts all the same
            live.reader.draft.notes.add(f"the agent's own log could not be read: {error.strerror or error}")
        trace = settled(live, finished, turn)
        return self.amended(stopped(trace) if is_stopped else trace, turn)

    async def _watched(self, running: Coroutine[object, object, Finished], live: Live) -> Finished:
        """Return how the program went; raise EngineError when it says nothing for too long at first."""
        task = asyncio.ensure_future(running)
        try:
            await asyncio.wait({task}, timeout=self.first_event_timeout_seconds)
            if not live.has_begun and not task.done():
                waited = self.first_event_timeout_seconds
                raise EngineError(f"{self.name} gave no sign of life in {waited:g} s (first_event_timeout_seconds)")
            return await task
        finally:
            task.cancel()
            await asyncio.wait({task})


# A trigger test ends where the skill is used: the agent is stopped there, and what it did so far is its trace.


class SkillSeen(Exception):
    """The agent used the skill that was waited for."""


def until_skill(live: Live, skill: str) -> Callable[[bytes], None]:
    """Return what takes an agent's output: it raises SkillSeen once `skill` (`*`: any) was used; empty: never."""
    if not skill:
        return live.take

    def take(chunk: bytes) -> None:
        live.take(chunk)
        draft = live.reader.draft
        used = invocations(draft.engine, draft.calls) if draft.skills is None else draft.skills
        if any(skill in ("*", invocation.name) for invocation in used or ()):
            raise SkillSeen

    return take


def stopped(trace: Trace) -> Trace:
    """Return the trace of an agent that was stopped there: that it came to no end is no fault of its own."""
    return replace(trace, status="success", error=None, crash=None, extra=trace.extra | {"stopped_at_skill": True})
