"""One start of an agent program: what it is given, and what came of it as a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from waza.model import Trace
from waza.sandbox.process import Finished
from waza.sandbox.room import Room
from waza.traces._live import Live

_SAID_CHARS = 2_000
_COUNTED = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class Server(NamedTuple):
    """A model server that the suite names in place of the vendor's."""

    url: str
    key: str


class Turn(NamedTuple):
    """One prompt to be given to the agent."""

    prompt: str
    model: str
    room: Room
    before: Sequence[Trace] = ()
    """The turns before this one."""
    is_judging: bool = False
    """Whether a judge asks: only servers of the room may be used beside looking, nothing of the workspace is obeyed."""

    @property
    def session(self) -> str:
        """The session to go on with; empty for the first turn."""
        return (self.before[-1].session_id or "") if self.before else ""


class Launch(NamedTuple):
    """How a program is started for one turn."""

    arguments: list[str]
    environment: Mapping[str, str] = {}
    stdin: str = ""


def write(path: Path, text: str) -> None:
    """Write a file of the agent's private home."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def without_past(trace: Trace, turn: Turn) -> Trace:
    """Return a turn without the tokens of those before, where a program counts the whole session."""
    if trace.usage is None:
        return trace
    own: dict[str, int | None] = {}
    for name in _COUNTED:
        told, past = getattr(trace.usage, name), [getattr(before.usage, name, None) or 0 for before in turn.before]
        is_known = not any(before.usage and name in before.usage.invalid_numbers for before in turn.before)
        own[name] = max(told - sum(past), 0) if told is not None and is_known else None
    return replace(trace, usage=replace(trace.usage, **own))


def settled(live: Live, finished: Finished, turn: Turn) -> Trace:
    """Return the trace of a turn: an agent that could not come to its end is an error, one out of time is not."""
    trace = live.trace()
    said = told(finished) or live.words
    status, error = trace.status, trace.error or ""
    if finished.timed_out:
        status, error = "timeout", finished.trouble
    elif status in ("success", "failure") and (finished.trouble or finished.exit_code):
        status, error = "error", finished.trouble or f"it ended with code {finished.exit_code}"
    if said and status != "success" and (error != trace.error or not live.reader.ended):
        error = f"{error}; {said}" if error else said
    return replace(
        trace,
        input=turn.prompt,
        session_id=trace.session_id or turn.session or None,
        status=status,
        error=error or None,
        duration_ms=finished.duration_ms,
        leftovers=finished.leftovers,
    )


def told(finished: Finished) -> str:
    """Return the end of what a program wrote on standard error."""
    return finished.stderr.text[-_SAID_CHARS:].strip()
