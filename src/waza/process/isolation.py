"""Choose what a program may see and reach: everything, a Landlock sandbox, or a bubblewrap container.

In a sandbox or container a program sees the system's folders, the Python that runs waza, the folder it starts
in and what `readable` and `writable` name; it may change only what `writable` names, and the network is closed.
`isolation_probes` tests how much of that works on a machine.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from waza.process import linux_sandbox, protocol

KINDS = ("none", "landlock", "bwrap")
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/ssl",
    "/sys/devices/system/cpu",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_INNER = """\
import os, signal, sys
mark, *argv = sys.argv[1:]
try:
    pid = os.posix_spawnp(argv[0], argv, os.environ, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
except OSError as error:
    print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
signal.signal(signal.SIGINT, signal.SIG_DFL)
found = 0
while found != pid:
    found, status = os.wait()
code = os.waitstatus_to_exitcode(status)
if code < 0:
    print(f"{mark}{-code};", file=sys.stderr)
    code = 128 - code
os._exit(code)
"""
"""Runs a program in a container. bwrap ends with 128 + n both for signal n and for `exit 128 + n`: a mark on standard
error distinguishes them. A program that forges the mark gains nothing, it could send itself the signal. It is process 1
of the container, so it waits for orphans too, and the kernel lets no signal from inside reach it."""


class Plan(NamedTuple):
    """How a program is started to be isolated as requested."""

    argv: list[str]
    sandbox: protocol.Sandbox | None
    applied: str
    """The isolation that is applied, for the record."""
    mark: str = ""
    """The text before the number of the signal that ended the program, on standard error."""


def available_isolation() -> tuple[str, ...]:
    """Return the kinds of isolation that work on this machine."""
    return tuple(kind for kind in KINDS if not missing(kind))


def plan(
    kind: str, argv: Sequence[str], cwd: str, readable: Sequence[str], writable: Sequence[str], network: bool
) -> Plan:
    """Return how to start `argv`, which begins with a path; raise ValueError for an isolation that is not available."""
    if kind not in KINDS:
        raise ValueError(f"isolation '{kind}' is unknown; known: {', '.join(KINDS)}")
    if why := missing(kind):
        raise ValueError(f"isolation '{kind}' is not available: {why}; here: {', '.join(available_isolation())}")
    if kind == "none":
        return Plan(list(argv), None, "none")
    program = (argv[0], os.path.realpath(argv[0]))
    visible = [*_SYSTEM, sys.prefix, sys.base_prefix, *program, cwd, *readable]
    if kind == "bwrap":
        mark = f"waza: ended by signal {secrets.token_hex(8)}:"
        words = _bwrap([sys.executable, "-I", "-S", "-c", _INNER, mark, *argv], cwd, visible, writable, network)
        return Plan(words, None, "bwrap" if network else "bwrap: no network", mark)
    sandbox = protocol.Sandbox(
        readable=[*map(os.fsencode, (*visible, sys.executable, "/proc"))],
        writable=[*map(os.fsencode, writable)],
        devices=[*map(os.fsencode, _DEVICES)],
        network=network,
        own_mounts=linux_sandbox.has_mounts(),
    )
    parts = [linux_sandbox.describe_landlock(network)]
    parts += ["own mounts"] if sandbox.own_mounts else []
    parts += ["seccomp"] if linux_sandbox.has_seccomp() else []
    return Plan(list(argv), sandbox, "; ".join(parts))


def _bwrap(argv: Sequence[str], cwd: str, visible: Sequence[str], writable: Sequence[str], network: bool) -> list[str]:
    """Return the command line of bwrap around another one."""
    command = [_bwrap_path() or "bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session"]
    if network:
        command.append("--share-net")
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for path in dict.fromkeys(visible):
        if not any(path.startswith(f"{other}/") for other in visible):
            command += ["--ro-bind-try", path, path]
    for path in writable:
        command += ["--bind-try", path, path]
    return [*command, "--chdir", cwd, "--", *argv]


def _bwrap_path() -> str | None:
    return shutil.which("bwrap")


def missing(kind: str) -> str:
    """Return why a kind of isolation is not available here; an empty text when it is."""
    if kind == "landlock" and not linux_sandbox.landlock_abi():
        return "this kernel has no Landlock"
    if kind == "bwrap":
        return _bwrap_missing()
    return ""


@cache
def _bwrap_missing() -> str:
    if not (path := _bwrap_path()):
        return "no program bwrap on PATH"
    probe = [path, "--unshare-all", "--ro-bind", "/", "/", "true"]
    done = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=10)
    return "" if done.returncode == 0 else done.stderr.strip() or f"bwrap ended with code {done.returncode}"
