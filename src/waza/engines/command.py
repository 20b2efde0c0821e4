"""The `command` engine: any program as an agent."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec.structs import replace
from pydantic import Field, field_validator

from waza.engines._base import Engine, Room
from waza.engines._skills import copy_skills
from waza.engines._stdout import OutputFormat, read_turn
from waza.engines._turns import converse
from waza.errors import EngineError, Problem, SpecError, nearest
from waza.model import Task, Trace, Trial
from waza.sandbox.isolation_probes import Promise, unkept
from waza.sandbox.process import Finished, Limits, base_environment, run_process

_PLACEHOLDERS = ("prompt", "model", "workspace", "eval_dir")
_SKILLS = "skills"
"""Where in the agent's home the suite's skill is copied to."""
_BRACES = re.compile(r"\{([a-z_]+)\}")
_MIB = 1024 * 1024

_Megabytes = Annotated[int, Field(ge=1)]


class CommandEngine(Engine):
    """Start a program as the agent: any language, any framework.

    ```yaml
    config:
      executor: command
      command: [./agent.sh, "{prompt}"]
    ```

    It starts in the task's working folder, without a shell, with a short list of harmless variables, a private home
    and `WAZA_WORKSPACE_DIR`. Exit code 0 is success; 1 to 125 is a failure, and graded; a program that cannot be
    started, ends by a signal or with 126 or 127 makes the trial an error.

    Each follow-up prompt starts the command once more in the same folders, with `WAZA_TURN` counting from 1; the output
    is the last answer, and all answers are in the transcript. A turn that fails ends the conversation. The task's time
    limit is for all turns together.
    """

    mocks = ("command_mocks", "mcp_mocks")
    takes_skill = True

    command: Annotated[list[str], Field(min_length=1)]
    """The program and its arguments. `{prompt}`, `{model}`, `{workspace}` and `{eval_dir}` (the eval file's folder)
    are filled in; without `{prompt}` the prompt comes on standard input. A program with a slash is looked up beside
    the eval file, then at the project's root; one without on PATH."""
    environment: dict[str, str] = {}
    """Variables for the agent; a task's own `environment` is added."""
    pass_environment: list[str] = []
    """Names of variables handed on from waza's own environment, such as an API key. They must be set."""
    output_format: OutputFormat = "text"
    """What standard output holds. `text`: the answer; tools are not observed. `json`: one trace, `input` may be left
    out. `jsonl`: one JSON object a line: transcript events (with `type`; `tool_call` and `tool_result` are tool calls),
    tool calls (with `tool_name`), and at the end one with `output` and any other key of a trace."""
    isolation: Literal["none", "landlock", "bwrap"] = "none"
    """What holds the agent. `landlock` and `bwrap` show it the system's folders, the workspace, its home and
    `readable`, let it write only to the workspace and its home, and close the network."""
    isolation_gaps: list[Promise] = []
    """What `isolation` may leave open where this machine cannot hold it: `network`, `unix_sockets`, `write`,
    `attributes`, `read`, `processes`. A gap that is not named here is refused before the run; `waza list isolation`
    shows them."""
    network: bool = False
    """Let an isolated agent use the network."""
    readable: list[str] = []
    """Files and folders of the project that an isolated agent may read."""
    max_memory_mb: _Megabytes | None = None
    """Address space of each process; no limit if left out."""
    max_processes: Annotated[int, Field(ge=1)] = 2048
    """Processes at once."""
    max_file_mb: _Megabytes = 4096
    """Size of each file the agent writes."""
    max_output_mb: _Megabytes = 4
    """How much of each output stream is kept; the middle of a longer one is left out."""

    @field_validator("command")
    @classmethod
    def _command_is_clear(cls, command: list[str]) -> list[str]:
        if not command[0] or _BRACES.search(command[0]):
            raise ValueError("the first entry is the program itself; nothing is filled in there")
        for word in (word for part in command for word in _BRACES.findall(part)):
            if word not in _PLACEHOLDERS and (meant := nearest(word, _PLACEHOLDERS)):
                raise ValueError(f"'{{{word}}}' is not filled in; did you mean '{{{meant}}}'?")
        return command

    def costs_untold(self) -> str:
        """Return a sentence where standard output is the answer and nothing else."""
        if self.output_format != "text":
            return ""
        return "`output_format: text` has no place for a cost; with `json` or `jsonl` the agent gives `usage.cost_usd`"

    def missing(self) -> str:
        """Return what is wrong with the program; empty if it can be started."""
        try:
            found = shutil.which(self._program(), path=base_environment(self.environment, home=None)["PATH"])
        except ValueError as error:
            return str(error)
        return "" if found else f"'{self.command[0]}' was not found on PATH"

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Refuse a program, a variable or an isolation that is not there."""
        problems = []
        if fact := self.missing():
            problems.append(Problem(fact, path="config.command", severity="warning"))
        for path in self.readable:
            try:
                self.folder.find(path)
            except ValueError as error:
                problems.append(Problem(str(error), path="config.readable"))
        for name in (name for name in self.pass_environment if name not in os.environ):
            fact = f"'{name}' is not set in the environment"
            problems.append(Problem(fact, path="config.pass_environment", severity="warning"))
        if fact := unkept(self.isolation, self.network, self.isolation_gaps):
            problems.append(Problem(fact, path="config.isolation", severity="warning"))
        if problems:
            raise SpecError(problems)

    async def run(self, trial: Trial, room: Room) -> Trace:
        """Start the command for the prompt and for each follow-up prompt, and return what it printed."""

        if self.skill_folder is not None:
            copy_skills({self.skill: self.skill_folder}, room.home / _SKILLS, self.folder.base)

        async def play(prompt: str, before: Sequence[Trace], left_s: float) -> Trace:
            finished = await self._start(prompt, len(before) + 1, trial, room, left_s)
            return read_turn(finished, prompt, self.output_format, self.command[0])

        trace = await converse(trial, room, play)
        return replace(trace, engine="command", model=trace.model or trial.model or None)

    async def _start(self, prompt: str, turn: int, trial: Trial, room: Room, left_s: float) -> Finished:
        values = {"prompt": prompt, "model": trial.model, "workspace": str(room.workspace)}
        values["eval_dir"] = str(self.folder.base)
        passed = {name: os.environ[name] for name in self.pass_environment if name in os.environ}
        own = {"WAZA_WORKSPACE_DIR": str(room.workspace), "WAZA_TURN": str(turn)}
        if self.skill_folder is not None:
            own["WAZA_SKILLS_DIR"] = str(room.home / _SKILLS)
        on_stdin = not any("{prompt}" in word for word in self.command)
        try:
            return await run_process(
                [self._program(), *(_filled(word, values) for word in self.command[1:])],
                cwd=room.workdir,
                env=room.environment(passed | self.environment | trial.task.environment | own),
                stdin=prompt.encode() if on_stdin else b"",
                timeout_s=max(left_s, 0.001),
                limits=self._limits(),
                isolation=self.isolation,
                readable=[*(self.folder.find(path) for path in self.readable), *room.stand_ins.readable],
                writable=[room.workspace, room.home],
                network=self.network,
            )
        except ValueError as error:
            raise EngineError(
                f"the agent '{self.command[0]}' could not be started: {error}", is_started=False
            ) from None

    def _program(self) -> str:
        """Return the program to start; raise ValueError when it is not there or not a program."""
        word = self.command[0]
        if "/" not in word:
            return word
        path = Path(word) if Path(word).is_absolute() else self.folder.find(word)
        if not path.is_file():
            raise ValueError(f"'{word}' is not a file")
        if not os.access(path, os.X_OK):
            raise ValueError(f"'{word}' is not executable; `chmod +x` makes it so")
        return str(path)

    def _limits(self) -> Limits:
        return Limits(
            memory_bytes=self.max_memory_mb and self.max_memory_mb * _MIB,
            processes=self.max_processes,
            file_bytes=self.max_file_mb * _MIB,
            output_bytes=self.max_output_mb * _MIB,
        )


def _filled(word: str, values: dict[str, str]) -> str:
    """Return an argument with its placeholders filled in; what they bring is not looked at again."""
    return _BRACES.sub(lambda found: values.get(found[1], found[0]), word)
