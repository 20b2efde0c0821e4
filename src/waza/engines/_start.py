"""One start of an agent program: its input, and the trace made of its output and its exit status."""

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

_STDERR_CHARS = 2_000
_REASON_CHARS = 300
_ENDED_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
"""Signals sent by a user, the out-of-memory killer or a shutdown; all others are the agent's own crash."""
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
"""What agent programs print when the vendor, the network, a credential or the command line is at fault."""
_TOKEN_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class Server(NamedTuple):
    """A model server that the suite names instead of the vendor's."""

    url: str
    key: str


class AgentTurn(NamedTuple):
    """One prompt for the agent."""

    prompt: str
    model: str
    trial_folder: TrialFolder
    before: Sequence[Trace] = ()
    """The turns before this one."""
    is_judging: bool = False
    """Whether a judge asks: the agent may only read and use the trial folder's MCP servers; instructions, hooks and
    settings in the workspace are ignored."""

    @property
    def session(self) -> str:
        """The session to continue; empty for the first turn."""
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


def without_earlier_turns(trace: Trace, turn: AgentTurn) -> Trace:
    """Return a turn without the tokens of earlier turns, for programs that count the whole session."""
    if trace.usage is None:
        return trace
    own: dict[str, int | None] = {}
    for name in _TOKEN_COUNTS:
        total, past = getattr(trace.usage, name), [getattr(before.usage, name, None) or 0 for before in turn.before]
        is_known = not any(before.usage and name in before.usage.invalid_numbers for before in turn.before)
        own[name] = max(total - sum(past), 0) if total is not None and is_known else None
    return replace(trace, usage=replace(trace.usage, **own))


def crash_of(finished: Finished) -> Crash | None:
    """Return how a program crashed; None where it succeeded, timed out, was ended by others or never started."""
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


def turn_trace(live: Live, finished: Finished, turn: AgentTurn) -> Trace:
    """Return the trace of a turn: an agent that could not run is an error; one that timed out or crashed is not."""
    has_failed = live.reader.draft.status in (
        "error",
        "timeout",
    )  # by its own account: a vendor's error, a budget
    trace = live.trace()
    stderr = stderr_tail(finished) or live.words
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
        status, error = "error", finished.trouble or f"it exited with code {finished.exit_code}"
    if stderr and crash is None and status != "success" and (error != trace.error or not live.reader.ended):
        error = f"{error}; {stderr}" if error else stderr
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


def stderr_tail(finished: Finished) -> str:
    """Return the last part of a program's standard error."""
    return last_lines(finished.stderr.text, 1_000, _STDERR_CHARS).strip()
