"""One start of an agent program: its input, its MCP servers, and the trace made of its output and its exit status."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from msgspec.structs import replace
from pydantic import model_validator

from waza.files.paths import SpecFolder
from waza.files.trial_folder import TrialFolder
from waza.model import Crash, Trace
from waza.options import Options
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


_IN_FOLDER = 'cd "$0" && exec "$@"'
"""Sets the working folder by a shell: not every agent program has a setting for it."""


class McpServer(Options):
    """One MCP server: a program that is started, or an address."""

    type: Literal["stdio", "local", "http", "sse"] | None = None
    """The transport; `stdio` with `command`, `http` with `url` if left out."""
    command: str | None = None
    """The program; one with a slash is looked up next to the eval file, then at the project's root."""
    args: list[str] = []
    """Its arguments; `{eval_dir}` is the eval file's folder."""
    env: dict[str, str] = {}
    """Its variables."""
    cwd: str | None = None
    """The folder it is started in, next to the eval file; the agent's working folder if left out."""
    url: str | None = None
    """The address of a server that runs already."""
    headers: dict[str, str] = {}
    """HTTP headers sent with each request to that address."""
    tools: list[str] = ["*"]
    """Which of its tools the agent may use; only Copilot supports a selection."""

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has either `command` or `url`")
        if self.cwd is not None and self.command is None:
            raise ValueError("`cwd` goes with `command`")
        if self.type and (self.type in ("stdio", "local")) != (self.command is not None):
            raise ValueError(f"type '{self.type}' does not go with `{'command' if self.command else 'url'}`")
        return self

    def located(self, folder: SpecFolder) -> McpServer:
        """Return the server with its paths made absolute; raise ValueError when its program is missing."""
        if self.command is None:
            return self
        has_path = "/" in self.command and not self.command.startswith("/")
        command = str(folder.find(self.command)) if has_path else self.command
        args = [word.replace("{eval_dir}", str(folder.base)) for word in self.args]
        if self.cwd is not None:
            args = ["-c", _IN_FOLDER, str(folder.find(self.cwd)), command, *args]
            command = "sh"
        return self.model_copy(update={"command": command, "args": args})

    @property
    def is_sse(self) -> bool:
        """Whether it uses server-sent events, the older transport."""
        return self.type == "sse"

    def program(self) -> dict[str, Any]:
        """Return how to start it, under the keys that most agent programs use."""
        return {"command": self.command, "args": self.args, "env": self.env}


def typed_form(server: McpServer) -> dict[str, Any]:
    """Return a server in the format of Claude Code and Copilot."""
    if server.command is not None:
        return {"type": "stdio"} | server.program()
    return {"type": "sse" if server.is_sse else "http", "url": server.url, "headers": server.headers}


def untyped_form(server: McpServer) -> dict[str, Any]:
    """Return a server in the format of Gemini CLI and Qwen Code: the key of the address gives the type."""
    if server.command is not None:
        return server.program() | {"trust": True}
    return {"url" if server.is_sse else "httpUrl": server.url, "headers": server.headers, "trust": True}


def opencode_form(server: McpServer) -> dict[str, Any]:
    """Return a server in the format of OpenCode."""
    if server.command is not None:
        return {"type": "local", "command": [server.command, *server.args], "environment": server.env, "enabled": True}
    return {"type": "remote", "url": server.url, "headers": server.headers, "enabled": True}


def codex_form(server: McpServer) -> dict[str, Any]:
    """Return a server in the format of Codex."""
    return server.program() if server.command is not None else {"url": server.url, "http_headers": server.headers}
