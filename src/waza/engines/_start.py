"""One start of an agent program: what it is given, and what came of it as a trace."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from waza.files.trial_folder import TrialFolder
from waza.model import Crash, Trace
from waza.process.run_program import Finished, signal_name
from waza.traces.live import Live
from waza.untrusted.text import last_lines

_SAID_CHARS = 2_000
_REASON_CHARS = 300
_ENDED_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
"""Signals that come from a user, a machine without memory or a shutdown; all others are the agent's own end."""
_STATUS = r"(?:401|402|403|407|408|429|5\d\d)"
_COULD_NOT_RUN = re.compile(
    rf"\b{_STATUS}\b.{{0,40}}(?:error|status|unauthori|forbidden|too many|server|gateway|unavailable)"
    rf"|(?:status|http|error|code)\W{{1,3}}(?:code\W{{1,3}})?{_STATUS}\b"
    r"|unauthori[sz]ed|unauthenticated|not (?:authenticated|logged in)|authentication|please run .?/login|log ?in first"
    r"|api[ _-]?key|credential|(?:invalid|expired|missing) token"
    r"|rate.?limit|too many requests|resource.?exhausted|quota|overloaded"
    r"|internal server error|bad gateway|service unavailable|gateway time"
    r"|ECONN(?:REFUSED|RESET|ABORTED)|ENOTFOUND|ETIMEDOUT|EAI_AGAIN|getaddrinfo|socket hang up|fetch failed"
    r"|(?:connection|network|stream) (?:error|refused|reset|closed|failed|disconnected|lost|timed out)"
    r"|APIConnectionError|CLINotFoundError|CLIConnectionError|ModuleNotFoundError"
    r"|model\b.{0,80}(?:not found|does not exist|not supported|not available)"
    r"|unknown (?:option|argument|flag)|unexpected argument|unrecogni[sz]ed (?:option|argument)",
    re.IGNORECASE,
)
"""What agent programs print when their vendor, the network, a credential or their command line failed them."""
_COUNTED = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class Server(NamedTuple):
    """A model server that the suite names in place of the vendor's."""

    url: str
    key: str


class AgentTurn(NamedTuple):
    """One prompt to be given to the agent."""

    prompt: str
    model: str
    trial_folder: TrialFolder
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


def without_past(trace: Trace, turn: AgentTurn) -> Trace:
    """Return a turn without the tokens of those before, where a program counts the whole session."""
    if trace.usage is None:
        return trace
    own: dict[str, int | None] = {}
    for name in _COUNTED:
        told, past = getattr(trace.usage, name), [getattr(before.usage, name, None) or 0 for before in turn.before]
        is_known = not any(before.usage and name in before.usage.invalid_numbers for before in turn.before)
        own[name] = max(told - sum(past), 0) if told is not None and is_known else None
    return replace(trace, usage=replace(trace.usage, **own))


def crash_of(finished: Finished) -> Crash | None:
    """Return how a program broke down; None where it ended well, out of time, by others or was never started."""
    if finished.error or finished.timed_out:
        return None
    stderr, omitted = last_lines(finished.stderr.text), finished.stdout.omitted_bytes
    if finished.signal is not None:
        is_own = finished.signal not in _ENDED_FROM_OUTSIDE
        return Crash(signal=finished.signal, stderr=stderr, omitted_bytes=omitted) if is_own else None
    if finished.exit_code in (None, 0, 126, 127):
        return None
    return Crash(exit_code=finished.exit_code, stderr=stderr, omitted_bytes=omitted)


def crash_reason(crash: Crash) -> str:
    """Return a crash in one line, with the last line of standard error."""
    if crash.exception is not None:
        return f"the agent raised {crash.exception}"
    fact = f"the agent exited with code {crash.exit_code}"
    if crash.signal is not None:
        fact = f"the agent was ended by signal {crash.signal} ({signal_name(crash.signal)})"
    last = crash.stderr.rpartition("\n")[2].strip()[:_REASON_CHARS]
    return f"{fact}: {last}" if last else fact


def settled(live: Live, finished: Finished, turn: AgentTurn) -> Trace:
    """Return the trace of a turn: an agent that could not run is an error, one out of time or crashed is not."""
    has_failed = live.reader.draft.status in ("error", "timeout")  # it says so itself: a vendor's error, a budget
    trace = live.trace()
    said = told(finished) or live.words
    status, error, crash = trace.status, trace.error or "", None if has_failed else crash_of(finished)
    if crash is not None and _COULD_NOT_RUN.search(
        f"{last_lines(live.words, 3, 500)}\n{last_lines(crash.stderr, 5, 1_000)}"
    ):
        crash = None
    if finished.timed_out:
        status, error = "timeout", finished.trouble
    elif crash is not None:
        crash = crash if crash.stderr else replace(crash, stderr=last_lines(live.words))
        status, error = "failure", crash_reason(crash)
    elif not has_failed and (finished.trouble or finished.exit_code):
        status, error = "error", finished.trouble or f"it ended with code {finished.exit_code}"
    if said and crash is None and status != "success" and (error != trace.error or not live.reader.ended):
        error = f"{error}; {said}" if error else said
    return replace(
        trace,
        input=turn.prompt,
        session_id=trace.session_id or turn.session or None,
        status=status,
        error=error or None,
        crash=crash,
        duration_ms=finished.duration_ms,
        leftovers=finished.leftovers,
    )


def told(finished: Finished) -> str:
    """Return the end of what a program wrote on standard error."""
    return last_lines(finished.stderr.text, 1_000, _SAID_CHARS).strip()
