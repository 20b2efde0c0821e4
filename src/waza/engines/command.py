"""The `command` engine: any program as an agent, and how its standard output becomes a trace."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace
from pydantic import Field, field_validator

from waza.engines._start import crash_of, crash_reason, stderr_tail
from waza.engines.base import Engine, TrialFolder
from waza.errors import EngineError, Problem, SpecError, TraceError, nearest
from waza.model import JSON, Task, Trace, Trial, decoded
from waza.process.isolation_probes import Promise, unaccepted_gaps
from waza.process.run_program import Finished, Limits, base_environment, run_process
from waza.skills import copy_skills
from waza.traces.conversation import converse

_PLACEHOLDERS = ("prompt", "model", "workspace", "eval_dir")
_SKILLS = "skills"
"""Where in the agent's home the suite's skill is copied to."""
_BRACES = re.compile(r"\{([a-z_]+)\}")
_MIB = 1024 * 1024

_Megabytes = Annotated[int, Field(ge=1)]
OutputFormat = Literal["text", "json", "jsonl"]
"""How standard output is read. It is never guessed: text that looks like events stays text."""


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
    are filled in; without `{prompt}` the prompt comes on standard input. A program with a slash is looked up next to
    the eval file, then at the project's root; one without on PATH."""
    environment: dict[str, str] = {}
    """Variables for the agent; a task's own `environment` is added."""
    pass_environment: list[str] = []
    """Names of variables passed on from waza's own environment, such as an API key. They must be set."""
    output_format: OutputFormat = "text"
    """What is on standard output. `text`: the answer; tools are not observed. `json`: one trace, `input` may be left
    out. `jsonl`: one JSON object a line: transcript events (with `type`; `tool_call` and `tool_result` are tool calls),
    tool calls (with `tool_name`), and at the end one with `output` and any other key of a trace."""
    isolation: Literal["none", "landlock", "bwrap"] = "none"
    """How the agent is confined. `landlock` and `bwrap` show it the system's folders, the workspace, its home and
    `readable`, let it write only to the workspace and its home, and close the network."""
    isolation_gaps: list[Promise] = []
    """What `isolation` may leave open where this machine cannot enforce it: `network`, `unix_sockets`, `write`,
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
    """How much of each output stream is stored; the middle of a longer one is omitted."""

    @field_validator("command")
    @classmethod
    def _command_is_clear(cls, command: list[str]) -> list[str]:
        if not command[0] or _BRACES.search(command[0]):
            raise ValueError("the first entry is the program itself; nothing is filled in there")
        for word in (word for part in command for word in _BRACES.findall(part)):
            if word not in _PLACEHOLDERS and (meant := nearest(word, _PLACEHOLDERS)):
                raise ValueError(f"'{{{word}}}' is not filled in; did you mean '{{{meant}}}'?")
        return command

    def costs_unreported(self) -> str:
        """Return a message where standard output is the answer and nothing else."""
        if self.output_format != "text":
            return ""
        return "`output_format: text` cannot report a cost; with `json` or `jsonl` the agent gives `usage.cost_usd`"

    def missing(self) -> str:
        """Return why the program cannot be started; empty if it can."""
        try:
            path = shutil.which(self._program(), path=base_environment(self.environment, home=None)["PATH"])
        except ValueError as error:
            return str(error)
        return "" if path else f"'{self.command[0]}' was not found on PATH"

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Raise SpecError for a program, a variable or an isolation that is missing."""
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
        if fact := unaccepted_gaps(self.isolation, self.network, self.isolation_gaps):
            problems.append(Problem(fact, path="config.isolation", severity="warning"))
        if problems:
            raise SpecError(problems)

    async def run(self, trial: Trial, trial_folder: TrialFolder) -> Trace:
        """Start the command for the prompt and for each follow-up prompt, and return the trace of all turns."""

        if self.skill_folder is not None:
            copy_skills({self.skill: self.skill_folder}, trial_folder.home / _SKILLS, self.folder.base)

        async def play(prompt: str, before: Sequence[Trace], left_s: float) -> Trace:
            finished = await self._start(prompt, len(before) + 1, trial, trial_folder, left_s)
            return read_turn(finished, prompt, self.output_format, self.command[0])

        trace = await converse(trial, trial_folder, play)
        return replace(trace, engine="command", model=trace.model or trial.model or None)

    async def _start(self, prompt: str, turn: int, trial: Trial, trial_folder: TrialFolder, left_s: float) -> Finished:
        values = {"prompt": prompt, "model": trial.model, "workspace": str(trial_folder.workspace)}
        values["eval_dir"] = str(self.folder.base)
        passed = {name: os.environ[name] for name in self.pass_environment if name in os.environ}
        own = {"WAZA_WORKSPACE_DIR": str(trial_folder.workspace), "WAZA_TURN": str(turn)}
        if self.skill_folder is not None:
            own["WAZA_SKILLS_DIR"] = str(trial_folder.home / _SKILLS)
        on_stdin = not any("{prompt}" in word for word in self.command)
        try:
            return await run_process(
                [self._program(), *(_filled(word, values) for word in self.command[1:])],
                cwd=trial_folder.workdir,
                env=trial_folder.environment(passed | self.environment | trial.task.environment | own),
                stdin=prompt.encode() if on_stdin else b"",
                timeout_s=max(left_s, 0.001),
                limits=self._limits(),
                isolation=self.isolation,
                readable=[*(self.folder.find(path) for path in self.readable), *trial_folder.mock_programs.readable],
                writable=[trial_folder.workspace, trial_folder.home],
                network=self.network,
            )
        except ValueError as error:
            raise EngineError(
                f"the agent '{self.command[0]}' could not be started: {error}", is_started=False
            ) from None

    def _program(self) -> str:
        """Return the program to start; raise ValueError when it is missing or not executable."""
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
    """Return an argument with its placeholders filled in; placeholders in the values themselves are not."""
    return _BRACES.sub(lambda match: values.get(match[1], match[0]), word)


def read_turn(finished: Finished, prompt: str, how: OutputFormat, program: str) -> Trace:
    """Return the trace of one start of a program; raise EngineError when it did not run, or broke its output format.

    What it printed before is attached to the error with its costs, which were incurred.
    """
    crash, stderr = crash_of(finished), stderr_tail(finished)
    stderr = f"; {stderr}" if stderr else ""
    if finished.error or (finished.exit_code in (126, 127) and not finished.stdout.total_bytes):
        raise EngineError(f"the agent '{program}' could not run: {finished.trouble}{stderr}", is_started=False)
    is_short = bool(finished.stdout.omitted_bytes) or bool(finished.trouble)
    trace, fault = _printed(finished, prompt, how, is_whole=crash is None and not finished.timed_out and not is_short)
    trace = replace(trace, duration_ms=finished.duration_ms, leftovers=finished.leftovers)
    if finished.timed_out:
        trace = replace(trace, status="timeout", error=finished.trouble + stderr, crash=None)
    elif crash is not None:
        trace = replace(trace, status="failure", error=crash_reason(crash), crash=crash)
    elif error := _why_undecided(finished, trace, how, fault):
        raise EngineError(f"the agent '{program}' {error}" + (stderr if finished.trouble else ""), recorded=trace)
    if finished.isolation != "none":
        trace = replace(trace, extra=trace.extra | {"isolation": finished.isolation})
    return trace


def _why_undecided(finished: Finished, trace: Trace, how: OutputFormat, fault: str) -> str:
    """Return why a turn cannot be graded; empty if it can. `fault` is what is wrong with its output."""
    if finished.trouble:
        return f"could not run: {finished.trouble}"
    if finished.stdout.omitted_bytes:
        printed = f"{finished.stdout.total_bytes:,} bytes, more than are stored; the omitted part cannot be graded"
        return f"printed {printed}: raise max_output_mb"
    if fault:
        return f"did not follow `output_format: {how}`: {fault}"
    return f"reports that it could not run: {trace.error or 'it gives no reason'}" if trace.status == "error" else ""


def _printed(finished: Finished, prompt: str, how: OutputFormat, *, is_whole: bool) -> tuple[Trace, str]:
    """Return standard output as a trace and what is wrong with it; incomplete output is read as far as possible."""
    fault = ""
    for is_strict in (True, False) if is_whole else (False,):
        try:
            return read_stdout(finished.stdout.text, prompt, how, is_whole=is_strict), fault
        except TraceError as error:
            fault = fault or str(error)
    return read_stdout(finished.stdout.text, prompt, "text"), fault


def read_stdout(text: str, prompt: str, how: OutputFormat, *, is_whole: bool = True) -> Trace:
    """Return standard output as a trace; raise TraceError when it is not in the declared format.

    With `is_whole` false the agent ended early: lines that are not events, such as a truncated one or a crash report,
    are skipped, unless no line is an event.
    """
    if how == "json":
        return _trace(_object(text, "standard output"), prompt)
    if how == "jsonl":
        return _read_lines(text, prompt, is_whole)
    return Trace(input=prompt, output=text.rstrip("\r\n"))


def _read_lines(text: str, prompt: str, is_whole: bool) -> Trace:
    events: list[JSON] = []
    calls: list[dict[str, JSON]] = []
    last: dict[str, JSON] | None = None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in lines:
        try:
            if last is not None:
                raise TraceError(f"line {number} comes after the line with `output`, which must be the last one")
            item = _object(line, f"line {number}")
            if "type" in item:
                _follow(item, calls)
                events.append(item)
            elif "tool_name" in item:
                calls.append(item)
            elif "output" in item:
                last = item
            else:
                raise TraceError(f"line {number} has none of `type`, `tool_name` and `output`")
        except TraceError:
            if is_whole:
                raise
    if last is None and (is_whole or not (events or calls)):
        raise TraceError("there is no last line with `output`")
    calls = [{"sequence": number} | call for number, call in enumerate(calls, 1)]
    return _trace({"events": events or None, "tool_events": calls, "output": ""} | (last or {}), prompt)


def _follow(event: dict[str, JSON], calls: list[dict[str, JSON]]) -> None:
    """Add a `tool_call` event to the calls, or a `tool_result` event to its call."""
    fields = {key: value for key, value in event.items() if key != "type"}
    if event["type"] == "tool_call":
        calls.append(fields)
    elif event["type"] == "tool_result":
        identity = event.get("tool_call_id")
        open_calls = [call for call in calls if identity is not None and call.get("tool_call_id") == identity]
        if not open_calls:
            raise TraceError(f"there is no tool call for the result: {identity!r}")
        open_calls[-1].update(
            {key: fields[key] for key in ("result", "success", "duration_ms", "error") if key in fields}
        )


def _object(text: str, where: str) -> dict[str, JSON]:
    try:
        value = decoded(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"{where} is not JSON: {error}; logs belong on standard error") from None
    if not isinstance(value, dict):
        raise TraceError(f"{where} is not a JSON object")
    return value


def _trace(tree: dict[str, JSON], prompt: str) -> Trace:
    return Trace.from_json(tree | {"input": prompt})
