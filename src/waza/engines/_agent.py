"""The base class of engines for agent programs: a private home, credentials by allow-list, events read while it runs.

A trial's agent gets a private home that holds only what the suite declares, without the user's settings, plug-ins,
skills, memories and MCP servers. This is not a sandbox: the program has the user's permissions.
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

from waza.engines._start import AgentTurn, Launch, McpServer, Server, stderr_tail, turn_trace, write
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
_CREDENTIAL_SUFFIXES = (
    "_KEY",
    "_TOKEN",
    "_CREDENTIALS",
    "_USE_BEDROCK",
    "_USE_VERTEX",
    "_USE_VERTEXAI",
    "PROVIDER_BASE_URL",
)
"""Suffixes of the variables that an agent can sign in with; the others only configure it."""
_XDG = {"XDG_CONFIG_HOME": ".config", "XDG_DATA_HOME": ".local/share", "XDG_STATE_HOME": ".local/state"}
_XDG["XDG_CACHE_HOME"] = ".cache"


class AgentEngine(Engine):
    """Run an agent program with a private home."""

    needs_key = True
    takes_skill = True
    has_only_given_skills = True
    mocks: ClassVar[tuple[str, ...] | None] = ("command_mocks", "mcp_mocks")
    name: ClassVar[str]
    """The agent's name in traces."""
    reader: ClassVar[type[Reader]]
    """The reader of its output."""
    credentials: ClassVar[tuple[str, ...]] = ()
    """Variables passed on from waza's own environment if they are set."""
    skills_at: ClassVar[str]
    """Where in its home the agent looks for skills."""
    instructions_at: ClassVar[str]
    """Where in its home the agent looks for instructions."""
    modes: ClassVar[Mapping[Mode, Sequence[str]]]
    """By `permission_mode`: the program's arguments or settings for it."""
    has_mcp: ClassVar[bool] = True
    """Whether it can use MCP servers."""
    has_costs: ClassVar[bool] = True
    """Whether it reports its cost."""
    sessions_at: ClassVar[str] = ""
    """Where in its home the agent stores its sessions, if a judge can continue them."""

    environment: dict[str, str] = {}
    """Variables for the agent; a task's own `environment` is added."""
    pass_environment: list[str] = []
    """Names of further variables passed on from waza's own environment. They must be set."""
    base_url: str | None = None
    """A model server to use instead of the vendor's. The vendor's credentials are not sent there."""
    api_key_env: str | None = None
    """The variable that holds the key for `base_url`."""
    permission_mode: Mode = "all"
    """What the agent may do: `all`, `edits` (change files, nothing else) or `read`. There is no prompt for permission:
    everything else is denied."""
    mcp_servers: dict[str, McpServer] = {}
    """MCP servers the agent gets, by name: `command`, `args` and `env`, or `url` and `headers`."""
    skill_directories: list[str] = []
    """Folders that hold skills; the suite's `skill` is found without. Copied into the agent's private home."""
    disabled_skills: list[str] = []
    """Skills the agent does not get; `*` means all."""
    required_skills: list[str] = []
    """Skills that must be found."""
    instruction_files: list[str] = []
    """Files given to the agent as the user's standing instructions."""
    inject_skill_body: bool = False
    """Put the text of the suite's SKILL.md into the agent's instructions. The agent then has it without loading it,
    so skill use is no longer informative."""
    first_event_timeout_seconds: Annotated[float, Field(ge=0)] = 0
    """How long to wait for the first event before the trial is an error. 0 means up to the task's time limit."""
    extra_arguments: list[str] = []
    """Arguments added to the program's command line."""
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
        """Raise SpecError for variables, skills, instructions and servers that are missing."""
        wanted = {"pass_environment": self.pass_environment, "api_key_env": [self.api_key_env or ""]}
        problems = [
            Problem(f"'{name}' is not set in the environment", path=f"config.{key}", severity="warning")
            for key, names in wanted.items()
            for name in names
            if name and name not in os.environ
        ]
        if self.api_key_env and not self.base_url:
            problems.append(Problem("it goes with `base_url`; use pass_environment", path="config.api_key_env"))
        checks = {
            "skill_directories": self.skills,
            "instruction_files": self._instructions,
            "mcp_servers": self.servers,
        }
        for key, check in checks.items():
            try:
                check()
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
        """Find the program and check that it starts."""
        program = self.program_path()
        with tempfile.TemporaryDirectory(prefix="waza-") as home:
            variables = base_environment({}, home=Path(home))
            finished = await run_process([program, "--version"], cwd=home, env=variables, timeout_s=_START_S)
        if not finished.ok:
            fact = stderr_tail(finished) or finished.trouble or f"it exited with code {finished.exit_code}"
            raise EngineError(f"{program}: `--version` does not work: {fact}; install it again: {self.install}")

    async def run(self, trial: Trial, trial_folder: TrialFolder) -> Trace:
        """Send the prompts of a task to the agent, one after the other in one session, and return the trace."""
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
            own["inject_skill_body"] = False  # an agent that already has the text has no reason to load the skill
        return self.model_copy(update=own) if own else self

    async def continue_session(
        self, trial: Trial, before: Trace, original: TrialFolder, trial_folder: TrialFolder
    ) -> Trace:
        """Send one more prompt to a copy of a session; the private home holds nothing else."""
        turn = AgentTurn(trial.task.prompt, trial.model, trial_folder, before.turns or (before,), is_judging=True)
        if not _NAME.fullmatch(turn.session):
            raise EngineError(f"{self.name} reported no session to continue", is_started=False)
        bare = {"permission_mode": "read", "mcp_servers": {}, "extra_arguments": []}
        engine = self.model_copy(update=bare)._with_servers(trial_folder)
        try:
            await asyncio.to_thread(engine._copy_session, turn, original)
        except (OSError, ValueError) as error:
            raise EngineError(f"the session of {self.name} cannot be copied: {error}") from None
        return await engine._play(turn, trial, trial.task.timeout_s)

    def _copy_session(self, turn: AgentTurn, original: TrialFolder) -> None:
        self.prepare(turn.trial_folder, turn.model)
        place = turn.trial_folder.home / self.sessions_at
        place.mkdir(parents=True)
        copy_workspace(Workspace(original.home / self.sessions_at), place)
        self.adapt_session(turn)

    def adapt_session(self, turn: AgentTurn) -> None:
        """Adapt a copied session to its new trial folder."""

    def _with_servers(self, trial_folder: TrialFolder) -> Self:
        """Return the engine with the MCP servers of a trial folder added to its own."""
        servers = {
            name: McpServer(command=one[0], args=list(one[1:]))
            for name, one in trial_folder.mock_programs.servers.items()
        }
        return self.model_copy(update={"mcp_servers": self.mcp_servers | servers})

    async def _run(self, trial: Trial, trial_folder: TrialFolder) -> Trace:
        try:
            await asyncio.to_thread(self._prepare, trial_folder, trial.model)
        except (OSError, ValueError) as error:
            raise EngineError(f"the home of {self.name} cannot be prepared: {error}", is_started=False) from None

        async def play(prompt: str, before: Sequence[Trace], left_s: float) -> Trace:
            turn = AgentTurn(prompt, trial.model, trial_folder, before)
            if before and not turn.session:
                raise EngineError(f"{self.name} reported no session to continue", is_started=False)
            return await self._play(turn, trial, left_s)

        trace = await converse(trial, trial_folder, play)
        return replace(trace, engine=self.name, model=trace.model or trial.model or None)

    def launch(self, turn: AgentTurn) -> Launch:
        """Return how the program is started for a turn."""
        raise NotImplementedError(f"{type(self).__name__} cannot be started")

    def prepare(self, trial_folder: TrialFolder, model: str) -> None:
        """Write the program's own settings into the private home, before the agent is there."""

    def before(self, turn: AgentTurn) -> object:
        """Return the state before a turn, for `after`."""
        return None

    def after(self, live: Live, turn: AgentTurn, state: object) -> None:
        """Read what the agent recorded elsewhere than on standard output."""

    def adjusted(self, trace: Trace, turn: AgentTurn) -> Trace:
        """Return the trace of a turn with corrections that only this engine can make."""
        return trace

    def server(self) -> Server | None:
        """Return the model server that the suite names."""
        if self.base_url is None:
            return None
        return Server(self.base_url, os.environ.get(self.api_key_env or "", "") or "no-key-needed")

    def servers(self) -> dict[str, McpServer]:
        """Return the MCP servers the agent gets; raise ValueError when a program is missing."""
        return {name: server.located(self.folder) for name, server in self.mcp_servers.items()}

    def skills(self) -> dict[str, Path]:
        """Return the skills the agent gets, by name; raise ValueError when a folder of them is missing."""
        own = {self.skill: self.skill_folder} if self.skill_folder else {}
        return find_skills(self.skill_directories, self.folder, own, self.disabled_skills)

    def program_path(self) -> str:
        """Return the path of the program; raise EngineError that says how to install it."""
        if path := self.locate():
            return path
        raise EngineError(f"'{self.program}' was not found on PATH; install it: {self.install}", is_started=False)

    def costs_unreported(self) -> str:
        """Return a message where the agent does not report its cost."""
        if self.has_costs:
            return ""
        return f"{self.name} does not report its cost; leave it out, --timeout limits each task"

    def missing(self) -> str:
        """Return how to install the program; empty if it is installed."""
        try:
            self.program_path()
        except EngineError as error:
            return str(error)
        return ""

    def missing_credentials(self, tasks: Sequence[Task] = ()) -> str:
        """Return which variables to set where none of the vendor's is set and the suite passes on no others."""
        given = [*self.pass_environment, *self.environment, *(name for task in tasks for name in task.environment)]
        keys = [name for name in self.credentials if name.endswith(_CREDENTIAL_SUFFIXES)]
        if self.base_url is not None or given or not keys or any(os.environ.get(name) for name in keys):
            return ""
        fact = f"{NO_CREDENTIAL} {self.name} was found: none of {', '.join(keys)} is set"
        return f"{fact}; its agents have a private home without your login"

    def executable(self) -> str:
        """Return the program that is started for a turn."""
        return self.program_path()

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
        except SkillUsed:
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
        except OSError as error:  # the agent may have locked its own home; its output still counts
            live.reader.draft.notes.add(f"the agent's own log could not be read: {error.strerror or error}")
        trace = turn_trace(live, finished, turn)
        return self.adjusted(stopped(trace) if is_stopped else trace, turn)

    async def _watched(self, running: Coroutine[object, object, Finished], live: Live) -> Finished:
        """Return how the program ended; raise EngineError when its first event does not come in time."""
        task = asyncio.ensure_future(running)
        try:
            await asyncio.wait({task}, timeout=self.first_event_timeout_seconds)
            if not live.has_begun and not task.done():
                waited = self.first_event_timeout_seconds
                raise EngineError(f"{self.name} reported no event in {waited:g} s (first_event_timeout_seconds)")
            return await task
        finally:
            task.cancel()
            await asyncio.wait({task})


class SkillUsed(Exception):
    """Raised when the agent uses the skill of a trigger test, which ends there."""


def until_skill(live: Live, skill: str) -> Callable[[bytes], None]:
    """Return a consumer of an agent's output that raises SkillUsed once `skill` was used (`*`: any; empty: never)."""
    if not skill:
        return live.take

    def take(chunk: bytes) -> None:
        live.take(chunk)
        draft = live.reader.draft
        used = invocations(draft.engine, draft.calls) if draft.skills is None else draft.skills
        if any(skill in ("*", invocation.name) for invocation in used or ()):
            raise SkillUsed

    return take


def stopped(trace: Trace) -> Trace:
    """Return the trace of an agent that was stopped at its skill: that it did not finish is not its fault."""
    return replace(trace, status="success", error=None, crash=None, extra=trace.extra | {"stopped_at_skill": True})
