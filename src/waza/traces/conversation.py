"""Conversations: play the prompts of a task one after the other and join their traces into one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace

from waza.errors import EngineError
from waza.files.trial_folder import TrialFolder
from waza.model import JSON, USAGE_NUMBERS, ToolEvent, Trace, Trial, Usage

_NO_USAGE = Usage(input_tokens=0, output_tokens=0, turns=0, llm_calls=0, cost_usd=0.0)
Play = Callable[[str, Sequence[Trace], float], Awaitable[Trace]]
"""Sends a prompt to the agent, after these turns, with a time limit in seconds."""


class Progress:
    """What an agent did so far, for callers that may have to end it."""

    def __init__(self) -> None:
        self.turns: Sequence[Trace] = ()
        """The prompts that are answered."""
        self.current: Callable[[], Trace] | None = None
        """Returns what was recorded of the prompt that is not."""

    def traces(self) -> list[Trace]:
        """Return what was recorded of each prompt, the last one included that was begun."""
        begun = self.current() if self.current is not None else Trace(input="", output="")
        return [*self.turns, begun]


_PROGRESS: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def following() -> Iterator[Progress]:
    """Follow what the agent does that is run in this block."""
    progress = Progress()
    token = _PROGRESS.set(progress)
    try:
        yield progress
    finally:
        _PROGRESS.reset(token)


def recording(current: Callable[[], Trace]) -> None:
    """Say how to get at what is recorded of the prompt that the agent was given just now."""
    if (progress := _PROGRESS.get()) is not None:
        progress.current = current


async def converse(trial: Trial, trial_folder: TrialFolder, play: Play) -> Trace:
    """Play the task's prompts one after the other and return the whole conversation.

    A turn that does not end with success is the last one, and so is one after which a checkpoint stops the
    conversation. The task's time limit is for all turns together; what is done between them does not count.
    """
    prompts = [trial.task.prompt, *trial.task.follow_up_prompts]
    left_s = trial.task.timeout_s
    turns: list[Trace] = []
    if (progress := _PROGRESS.get()) is not None:
        progress.turns = turns
    for number, prompt in enumerate(prompts, 1):
        started = time.monotonic()
        if progress is not None:
            progress.current = None
        try:
            turns.append(await play(prompt, turns, left_s))
        except EngineError as error:
            if not turns:
                raise
            # What was done and paid for in the turns before counts, though the conversation could not go on.
            broken = error.recorded or Trace(input=prompt, output="", usage=None if error.is_started else _NO_USAGE)
            turns.append(replace(broken, status="error", error=str(error), crash=None))
            raise EngineError(str(error), recorded=join_turns(prompts, turns)) from None
        left_s -= time.monotonic() - started
        if turns[-1].status != "success":
            break
        if number < len(prompts) and trial_folder.after_turn and (why := await trial_folder.after_turn(turns)):
            return replace(join_turns(prompts, turns), status="failure", error=why)
    return join_turns(prompts, turns)


def join_turns(prompts: Sequence[str], turns: Sequence[Trace]) -> Trace:
    """Return the traces of successive prompts as one: the last answer, and the calls and usage of all turns.

    A number that one turn did not record is not recorded for the whole: a sum over the others would be too small.
    """
    if len(prompts) == 1:
        return turns[0]
    return replace(
        turns[-1],
        input=prompts[0],
        duration_ms=_sum(turn.duration_ms for turn in turns),
        events=[event for number, turn in enumerate(turns, 1) for event in _events(prompts[number - 1], turn, number)],
        tool_events=_tool_events(turns),
        usage=_usage(turns),
        skill_invocations=_all(turn.skill_invocations for turn in turns),
        steps=_sum(turn.steps for turn in turns),
        leftovers=_sum(turn.leftovers for turn in turns),
        turns=list(turns),
    )


def _events(prompt: str, turn: Trace, number: int) -> list[dict[str, JSON]]:
    answer = [{"type": "assistant_message", "turn": number, "content": turn.output}]
    return [{"type": "user_message", "turn": number, "content": prompt}, *(turn.events or answer)]


def _tool_events(turns: Sequence[Trace]) -> list[ToolEvent] | None:
    """Return all tool calls, numbered consecutively; the agent's turns of a later prompt continue those before."""
    joined: list[ToolEvent] = []
    before = 0
    began_ms: float | None = 0.0
    for turn in turns:
        if turn.tool_events is None:
            return None
        joined += [
            replace(
                event,
                turn=before + event.turn,
                sequence=len(joined) + number,
                start_ms=None if event.start_ms is None or began_ms is None else began_ms + event.start_ms,
            )
            for number, event in enumerate(turn.tool_events, 1)
        ]
        before = max((event.turn for event in joined), default=before)
        began_ms = None if turn.duration_ms is None or began_ms is None else began_ms + turn.duration_ms
    return joined


def _usage(turns: Sequence[Trace]) -> Usage | None:
    used = [turn.usage for turn in turns if turn.usage is not None]
    if len(used) < len(turns):
        return None
    sums = {name: _sum(getattr(usage, name) for usage in used) for name in USAGE_NUMBERS}
    invalid = {name: number for usage in used for name, number in usage.invalid_numbers.items()}
    return Usage(**sums, invalid_numbers=invalid)


def _sum(values: Iterable[Any]) -> Any:
    numbers = list(values)
    return None if None in numbers else sum(numbers)


def _all(lists: Iterable[list[Any] | None]) -> list[Any] | None:
    joined: list[Any] = []
    for items in lists:
        if items is None:
            return None
        joined += items
    return joined
