"""The `python` engine: a Python function as an agent, called in waza's own process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from pydantic import field_validator

from waza.engines._start import crash_reason
from waza.engines.base import Engine, TrialFolder
from waza.engines.function_calls import (
    CallAgent,
    absent_function,
    describe_error,
    find_function,
    is_async,
    own_traceback,
    with_context,
    with_history,
)
from waza.errors import EngineError, Problem, TraceError
from waza.model import Crash, Task, Trace, Trial
from waza.recording.calls import is_infrastructure, recorded_before
from waza.traces.conversation import converse
from waza.untrusted.text import last_lines, well_formed, well_formed_data, without_controls

_AGENT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class Context(NamedTuple):
    """The second argument of an agent function: facts about its trial."""

    task_id: str
    trial: int
    """The trial's number, counted from 1."""
    model: str
    workspace: Path
    """The folder that is graded afterwards."""
    workdir: Path
    """The folder to work in. The process's own current folder is somewhere else."""
    environment: dict[str, str]
    """The task's variables. They are not set in the process."""
    history: list[dict[str, str]]
    """The conversation before a follow-up prompt: `role` (user or assistant) and `content`."""
    skill_folder: Path | None = None
    """The folder of the suite's skill; None where it names none, and in the control arm of `--baseline`."""


class Agent(NamedTuple):
    """A function and how it wants to be called."""

    call: CallAgent
    takes_context: bool
    is_async: bool


class PythonEngine(Engine):
    """Call a Python function as the agent: `(prompt)` or `(prompt, context)`, plain or async.

    ```yaml
    config:
      executor: python
      agent: my_agent:answer
    ```

    It returns the answer as a text, or a `waza.Trace` (or a mapping in its shape) with the tools it called, its usage
    and so on. A function that raises, or returns anything else, has crashed (see `on_agent_crash`), unless it raises a
    transport or vendor error of a known library or a `waza.errors.EngineError`: then it could not run. What
    `waza.record` recorded before still counts. Follow-up prompts are further calls, with the conversation so far in
    `context.history`. The task's time limit is for all calls together; a plain function that exceeds it cannot be
    ended, and continues in its thread.
    """

    takes_skill = True

    agent: str
    """The function, as `module:function`. The eval file's folder and the project's root can be imported from."""

    takes: Literal["context", "history"] = "context"
    """What the second argument is: facts about the trial, or only the conversation so far, as for evaldeck's agents."""

    @field_validator("agent")
    @classmethod
    def _agent_is_a_name(cls, agent: str) -> str:
        if not _AGENT.fullmatch(agent):
            raise ValueError(f"'{agent}' is not of the form module:function, such as my_agent:answer")
        return agent

    def imports(self) -> str:
        """Return the agent's module and function."""
        return self.agent

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Import the agent; raise SpecError if it is missing or takes other arguments."""
        self.loaded  # noqa: B018  importing it is the point

    def refusals(self, tasks: Sequence[Task] = (), *, imports: bool = True) -> list[Problem]:
        """Return why the agent cannot be called; without `imports`, what its source shows without running it."""
        if imports:
            return [problem._replace(path=problem.path or "config.agent") for problem in super().refusals(tasks)]
        fact = absent_function(self.agent, self.folder)
        return [Problem(fact, path="config.agent")] if fact else []

    def needs_trial_folder(self, trial: Trial) -> bool:
        """Return whether the function receives its workspace; if not, it cannot write there."""
        return self.loaded.takes_context

    async def run(self, trial: Trial, trial_folder: TrialFolder) -> Trace:
        """Call the function for the prompt and for each follow-up prompt, and return the trace."""

        async def play(prompt: str, before: Sequence[Trace], left_s: float) -> Trace:
            return await self._turn(prompt, lambda: _context(trial, trial_folder, before, self.skill_folder), left_s)

        trace = await converse(trial, trial_folder, play)
        return replace(trace, engine="python", model=trace.model or trial.model or None)

    async def _turn(self, prompt: str, context: Callable[[], Context], left_s: float) -> Trace:
        from waza.engines.function_calls import call  # loads asyncio, which checking a suite does not need

        started = time.monotonic()
        agent = self.loaded
        outcome = await call(lambda: agent.call(prompt, context), left_s, is_async=agent.is_async)
        duration_ms = (time.monotonic() - started) * 1000
        if outcome is None:
            error = f"'{self.agent}' exceeded its time limit and was abandoned after {duration_ms / 1000:.1f} s"
            error += "" if agent.is_async else "; it continues in its thread, which cannot be ended"
            return Trace(input=prompt, output="", status="timeout", error=error, duration_ms=duration_ms)
        if outcome.error is not None:
            return replace(self._raised(outcome.error, prompt), duration_ms=duration_ms)
        trace = self._trace(outcome.value, prompt)
        return trace if trace.duration_ms is not None else replace(trace, duration_ms=duration_ms)

    def _raised(self, error: BaseException, prompt: str) -> Trace:
        """Return the trace of an agent that raised: it could not run, or it crashed; with what it recorded."""
        message = without_controls(describe_error(error, self.folder))
        recorded = replace(recorded_before(error) or Trace(input=prompt, output=""), input=prompt)
        if is_infrastructure(error):
            return replace(recorded, status="error", error=f"the agent '{self.agent}' raised {message}", crash=None)
        crash = Crash(exception=message, stderr=last_lines(own_traceback(error)))
        return replace(recorded, status="failure", error=crash_reason(crash), crash=crash)

    @cached_property
    def loaded(self) -> Agent:
        """The function and how to call it; imported once."""
        function = find_function(self.agent, self.folder)
        wanted = with_context(function) if self.takes == "context" else with_history(function)
        return Agent(*wanted, is_async(function))

    def _trace(self, value: Any, prompt: str) -> Trace:
        """Return the function's result as a copied trace, which later changes of the value cannot affect."""
        if isinstance(value, str):
            return Trace(input=prompt, output=well_formed(value))
        tree = value.to_dict() if hasattr(value, "to_dict") else value
        if not isinstance(tree, dict):
            kind = type(value).__name__
            return _no_answer(f"'{self.agent}' returned {kind}; a text, a waza.Trace or a mapping is needed", prompt)
        try:
            trace = Trace.from_json(msgspec.json.encode({"input": prompt} | well_formed_data(tree)))
        except (TypeError, ValueError, RecursionError, TraceError) as error:
            return _no_answer(f"'{self.agent}' returned something that is not a trace: {error}", prompt)
        if trace.status == "error":
            reason = trace.error or "it gives no reason"
            raise EngineError(f"the agent '{self.agent}' reports that it could not run: {reason}", recorded=trace)
        return trace


def _no_answer(fact: str, prompt: str) -> Trace:
    """Return the trace of an agent that returned no usable answer, which is a mistake in its code: a crash."""
    crash = Crash(exception=f"TypeError: {without_controls(fact)}")
    return Trace(input=prompt, output="", status="failure", error=crash_reason(crash), crash=crash)


def _context(trial: Trial, trial_folder: TrialFolder, before: Sequence[Trace], skill_folder: Path | None) -> Context:
    task = trial.task
    turns = zip([task.prompt, *task.follow_up_prompts], before, strict=False)
    history = [pair for prompt, turn in turns for pair in (("user", prompt), ("assistant", turn.output))]
    return Context(
        task_id=task.id,
        trial=trial.number,
        model=trial.model,
        workspace=trial_folder.workspace,
        workdir=trial_folder.workdir,
        environment=dict(task.environment),
        history=[{"role": role, "content": content} for role, content in history],
        skill_folder=skill_folder,
    )
