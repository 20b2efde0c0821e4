"""Run a program so that no process of it is left, and report how it ended.

    run_program     a plain call, for graders; may be used from several threads
    run_process     the same for engines, which have an event loop

When either returns, raises or is cancelled, everything the program started has ended; the same is true soon after waza
itself was killed. There is no terminal and no shell. Not ended on Linux: what another service starts for the program
(systemd, cron, a container engine), and a program that kills both its supervisors at once, which `landlock` and `bwrap`
prevent; on other systems also a daemon that leaves its process group.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from waza.process import protocol
from waza.process.isolation import available_isolation, plan
from waza.process.worker_pool import Captured, ProgramSession

__all__ = ["Captured", "Finished", "Limits", "available_isolation", "base_environment", "run_process", "run_program"]


class Limits(NamedTuple):
    """What a program may use; None is no limit."""

    memory_bytes: int | None = None
    """Address space of each process. Off by default: runtimes such as Node reserve far more than they use."""
    processes: int | None = 2048
    """Processes at once, all that the program started together."""
    file_bytes: int | None = 4 << 30
    """Size of each file it writes."""
    output_bytes: int | None = 4 << 20
    """How much of each output stream is kept, half from its head and half from its tail."""


DEFAULT_LIMITS = Limits()


class Finished(Struct, frozen=True):
    """A program that has ended, with everything it started."""

    exit_code: int | None = None
    """None when it was not started or ended by a signal."""
    signal: int | None = None
    """The signal that ended it."""
    timed_out: bool = False
    error: str = ""
    """Why it could not be started, or why it was ended before its time."""
    stdout: Captured = Captured()
    stderr: Captured = Captured()
    leftovers: int = 0
    """Processes that were still alive when the program had ended; they were killed."""
    duration_ms: float = 0.0
    isolation: str = "none"
    """The isolation that was applied."""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with code 0."""
        return self.exit_code == 0 and not self.trouble

    @property
    def trouble(self) -> str:
        """Why the program came to no verdict of its own, or an empty text."""
        if self.error:
            return self.error
        if self.timed_out:
            return f"it was ended after {self.duration_ms / 1000:.1f} s, its time limit"
        if self.signal is not None:
            return f"it was ended by signal {self.signal} ({signal_name(self.signal)})"
        if self.exit_code == 126:
            return "it ended with code 126: a command was found but cannot be executed"
        if self.exit_code == 127:
            return "it ended with code 127: a command was not found"
        return ""


def run_program(
    argv: Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout_s: float,
    limits: Limits = DEFAULT_LIMITS,
    isolation: str = "none",
    on_output: Callable[[bytes], None] | None = None,
    readable: Sequence[str | Path] = (),
    writable: Sequence[str | Path] = (),
    network: bool = False,
) -> Finished:
    """Run a program to its end, with everything it started, and return how it ended.

    `on_output` gets standard output as it comes. `isolation` other than `none` shows the program the system's folders,
    `cwd` and `readable`, lets it change only `writable`, and closes the network unless `network`.
    Raises ValueError for a limit or an isolation that cannot be had; later problems are in the result.
    """
    run = _prepare(argv, cwd, env, stdin, timeout_s, limits, isolation, readable, writable, network)
    return run if isinstance(run, Finished) else _finish(run, on_output)


async def run_process(
    argv: Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout_s: float,
    limits: Limits = DEFAULT_LIMITS,
    isolation: str = "none",
    on_output: Callable[[bytes], None] | None = None,
    readable: Sequence[str | Path] = (),
    writable: Sequence[str | Path] = (),
    network: bool = False,
) -> Finished:
    """Do what `run_program` does without blocking the event loop; when cancelled, end the program first.

    `on_output` is called in the event loop; when it raises, the program is ended and the error comes out here.
    """
    from waza.process.concurrency import (  # asyncio is slow to load, and graders do without
        in_loop,
        in_thread_to_the_end,
    )

    run = _prepare(argv, cwd, env, stdin, timeout_s, limits, isolation, readable, writable, network)
    if isinstance(run, Finished):
        return run
    deliver = on_output and in_loop(on_output)
    return await in_thread_to_the_end(lambda: _finish(run, deliver), run.session.cancel)


class _ProgramRun(NamedTuple):
    session: ProgramSession
    isolation: str
    mark: str = ""
    """What a container writes to standard error before the number of the signal that ended the program."""


def _prepare(
    argv: Sequence[str],
    cwd: str | Path,
    env: Mapping[str, str],
    stdin: bytes,
    timeout_s: float,
    limits: Limits,
    isolation: str,
    readable: Sequence[str | Path],
    writable: Sequence[str | Path],
    network: bool,
) -> _ProgramRun | Finished:
    """Return a run that can be started, or the end of one that cannot."""
    _refuse(argv, timeout_s, limits)
    if sys.platform == "win32":
        return Finished(error="programs cannot be contained on Windows; run waza in WSL")
    folder = str(Path(cwd).absolute())
    try:
        words = [*map(_encode, argv)]
        variables = {_encode(_name(name)): _encode(value) for name, value in env.items()}
        path = _locate(argv[0], env, folder)
    except ValueError as error:
        return Finished(error=f"{argv[0]!r} could not be started: {error}")
    except FileNotFoundError as error:
        return Finished(error=str(error))
    ways = plan(isolation, [path, *argv[1:]], folder, _absolute(readable), _absolute(writable), network)
    job = protocol.Job(
        path=os.fsencode(ways.argv[0]),
        argv=[*map(os.fsencode, ways.argv)] if isolation == "bwrap" else words,
        env=variables,
        cwd=os.fsencode(folder),
        timeout_s=float(timeout_s),
        processes=limits.processes or 0,
        sandbox=ways.sandbox,
    )
    caps = protocol.Caps(limits.memory_bytes or 0, limits.processes or 0, limits.file_bytes or 0)
    return _ProgramRun(ProgramSession(job, caps, stdin, limits.output_bytes), ways.applied, ways.mark)


def _refuse(argv: Sequence[str], timeout_s: float, limits: Limits) -> None:
    """Raise ValueError for arguments that no caller may pass."""
    if not argv or not argv[0]:
        raise ValueError("there is no program to run")
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise ValueError(f"a time limit is a number of seconds above 0, not {timeout_s}")
    if any(limit is not None and limit <= 0 for limit in limits):
        raise ValueError(f"a limit is above 0, or None for no limit: {limits}")


def _absolute(paths: Sequence[str | Path]) -> list[str]:
    return [str(Path(path).absolute()) for path in paths]


def _locate(name: str, env: Mapping[str, str], folder: str) -> str:
    """Return the path of a program; a bare name is looked up on the PATH it will have, absolute folders only."""
    if "/" in name:
        return name if name.startswith("/") else f"{folder}/{name}"
    folders = [entry for entry in env.get("PATH", "").split(os.pathsep) if entry.startswith("/")]
    for candidate in (f"{entry}/{name}" for entry in folders):
        if os.access(candidate, os.X_OK) and Path(candidate).is_file():
            return candidate
    raise FileNotFoundError(f"'{name}' was not found on PATH ({os.pathsep.join(folders) or 'which is empty'})")


def _name(variable: str) -> str:
    if not variable or "=" in variable:
        raise ValueError(f"'{variable}' cannot be the name of a variable")
    return variable


def _encode(text: str) -> bytes:
    raw = os.fsencode(text)
    if b"\0" in raw:
        raise ValueError("an argument or a variable contains NUL")
    return raw


def _finish(run: _ProgramRun, on_output: Callable[[bytes], None] | None) -> Finished:
    report, stdout, stderr = run.session.run(on_output)
    code = None if report.status is None else os.waitstatus_to_exitcode(report.status)
    if code is not None and code > 128 and run.mark:
        end = "tail" if stderr.omitted_bytes else "head"
        marked = f"{run.mark}{code - 128};\n"
        if marked in (text := getattr(stderr, end)):
            code, stderr = 128 - code, replace(stderr, **{end: text.replace(marked, "")})
    error = report.error
    if report.survivors and not error:
        error = f"{report.survivors} of its processes could not be killed; are they another user's?"
    return Finished(
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        timed_out=report.timed_out,
        error=error,
        stdout=stdout,
        stderr=stderr,
        leftovers=report.leftovers,
        duration_ms=report.duration_s * 1000,
        isolation=run.isolation,
    )


def signal_name(number: int) -> str:
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"


# Programs get a short list of harmless variables and what the caller declares. Everything else of waza's own
# environment stays out: secrets, and variables that make programs run foreign code (PYTHONPATH, LD_PRELOAD, BASH_ENV,
# NODE_OPTIONS, GIT_*, …). PYTHONSAFEPATH is not set here: it would keep a script in the workspace from importing the
# file next to it. A grader that runs Python in a folder it does not trust declares it.

_PASSED = ("PATH", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "HOME", "TMPDIR")
_PASSED_ON_WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "WINDIR", "USERPROFILE", "TEMP", "TMP")
_QUIET = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}


def base_environment(extra: Mapping[str, str], *, home: Path | None) -> dict[str, str]:
    """Return the variables of a program: PATH, language and time zone, nothing that waits for a person, then `extra`.

    With `home` the program's home and temporary folder are that folder.
    """
    passed = _PASSED + (_PASSED_ON_WINDOWS if os.name == "nt" else ())
    own = {name: os.environ[name] for name in os.environ if name.upper() in passed or name.startswith("LC_")}
    private = {} if home is None else dict.fromkeys(("HOME", "TMPDIR", "USERPROFILE", "TEMP", "TMP"), str(home))
    if os.name != "nt":
        private = {name: path for name, path in private.items() if name in _PASSED}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **own, **_QUIET, **private, **extra}
