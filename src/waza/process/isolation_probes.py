"""Test what each kind of isolation stops on this machine: a program is run in it that tries to escape.

A probe counts as stopped only if nothing arrived outside. `none` stops nothing, so a probe that is stopped there as
well (a file system without extended attributes, say) cannot be determined on this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from waza.files.tree import remove
from waza.process.isolation import KINDS, missing
from waza.process.run_program import base_environment, run_program

Promise = Literal["network", "unix_sockets", "write", "attributes", "read", "processes"]
PROBES: dict[str, tuple[Promise, str]] = {
    "tcp": ("network", "connect by TCP"),
    "udp": ("network", "send by UDP"),
    "unix_path": ("unix_sockets", "connect to a Unix socket by its path"),
    "unix_abstract": ("unix_sockets", "connect to an abstract Unix socket"),
    "create": ("write", "create a file outside"),
    "change": ("write", "change a file outside"),
    "truncate": ("write", "truncate a file outside"),
    "delete": ("write", "delete a file outside"),
    "rename": ("write", "rename a file outside"),
    "chmod": ("attributes", "chmod a file outside"),
    "chown": ("attributes", "chown a file outside"),
    "utime": ("attributes", "set the times of a file outside"),
    "setxattr": ("attributes", "set an extended attribute of a file outside"),
    "chmod_visible": ("attributes", "chmod a file that it may only read"),
    "read": ("read", "read a file outside, such as one in your home"),
    "list": ("read", "list a folder outside"),
    "signal": ("processes", "signal a process outside"),
    "ptrace": ("processes", "trace a process outside, and so read its memory"),
    "environ": ("processes", "read the environment of a process outside"),
}
"""By name: the promise it belongs to, and what it tries."""
_TIME_LIMIT_S = 60.0

_PROGRAM = r"""
import ctypes, json, os, socket, sys
at = json.loads(sys.argv[1])
done = {}
def attempt(name, act):
    try:
        done[name] = act() is not False
    except (OSError, AttributeError):  # not every system has all of it
        done[name] = False
def connect(family, kind, address, word=None):
    with socket.socket(family, kind) as sock:
        sock.settimeout(5)
        sock.sendto(word, address) if word else sock.connect(address)
def ptrace():
    libc = ctypes.CDLL(None, use_errno=True)
    seized = libc.ptrace(0x4206, at["pid"], None, None) == 0
    return seized and libc.ptrace(17, at["pid"], None, None) is not None
outside = at["outside"]
attempt("tcp", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", at["tcp"])))
attempt("udp", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", at["udp"]), b"x"))
attempt("unix_path", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, outside + "/socket"))
attempt("unix_abstract", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + at["abstract"]))
attempt("create", lambda: open(outside + "/created", "x").close())
attempt("change", lambda: open(outside + "/change", "a").write("x"))
attempt("truncate", lambda: os.truncate(outside + "/truncate", 0))
attempt("delete", lambda: os.unlink(outside + "/delete"))
attempt("rename", lambda: os.rename(outside + "/rename", outside + "/renamed"))
attempt("chmod", lambda: os.chmod(outside + "/chmod", 0o640))
attempt("chown", lambda: os.chown(outside + "/chown", os.getuid(), os.getgid()))
attempt("utime", lambda: os.utime(outside + "/utime", (1, 1)))
attempt("setxattr", lambda: os.setxattr(outside + "/setxattr", "user.waza", b"x"))
attempt("chmod_visible", lambda: os.chmod(at["visible"], 0o640))
attempt("read", lambda: open(outside + "/read").read() == "secret")
attempt("list", lambda: bool(os.listdir(outside)))
attempt("signal", lambda: os.kill(at["pid"], 0))
attempt("ptrace", ptrace)
attempt("environ", lambda: b"WAZA_PROBE" in open(f"/proc/{at['pid']}/environ", "rb").read())
print(json.dumps(done))
"""
_VICTIM = "import ctypes, sys; ctypes.CDLL(None).prctl(0x59616D61, -1, 0, 0, 0); print(flush=True); sys.stdin.read()"
"""Allows every process to trace it, so that only the isolation can stop that, and not Yama."""


@cache
def probe(kind: str, network: bool = False) -> dict[str, bool]:
    """Return for each probe whether it got through in this isolation; raise ValueError if it is not available.

    Raises RuntimeError when the probes could not be run to their end.
    """
    with contextlib.ExitStack() as until_end:
        folder = Path(tempfile.mkdtemp(prefix="waza-probe-")).resolve()
        until_end.callback(remove, folder)
        for name in ("workspace", "outside", "visible"):
            (folder / name).mkdir()
        outside = folder / "outside"
        for name in ("change", "truncate", "delete", "rename", "chmod", "chown", "utime", "setxattr", "read"):
            (outside / name).write_text("secret", encoding="ascii")
        (folder / "visible" / "file").touch()
        targets, has_arrived = until_end.enter_context(_targets(outside))
        targets |= {"outside": str(outside), "visible": str(folder / "visible" / "file")}
        finished = run_program(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, json.dumps(targets)],
            cwd=folder / "workspace",
            env=base_environment({}, home=folder / "workspace"),
            timeout_s=_TIME_LIMIT_S,
            isolation=kind,
            readable=[folder / "visible"],
            writable=[folder / "workspace"],
            network=network,
        )
        if not finished.ok:
            reason = finished.trouble or finished.stderr.text.strip()[-300:]
            raise RuntimeError(f"the probes of isolation '{kind}' did not run: {reason}")
        claimed: dict[str, bool] = json.loads(finished.stdout.text)
        changed = _changes(outside)
        # A datagram can be sent in a network of one's own, where it reaches nobody: only one that arrives got through.
        claimed["udp"] = has_arrived()
        return {name: claimed[name] or name in changed for name in PROBES}


def gaps(kind: str, network: bool = False) -> list[str]:
    """Return the promises that this kind of isolation does not keep on this machine."""
    if kind == "none":
        return []
    through = [PROBES[name][0] for name, is_through in probe(kind, network).items() if is_through]
    return [promise for promise in dict.fromkeys(through) if not (network and promise == "network")]


def unaccepted_gaps(kind: str, network: bool, accepted: list[Promise]) -> str:
    """Return a message if an isolation has gaps that were not accepted; else an empty text."""
    if why := missing(kind):
        known = ", ".join(other for other in KINDS if not missing(other))
        return f"isolation '{kind}' is not available: {why}; here: {known}"
    try:
        remaining = [gap for gap in gaps(kind, network) if gap not in accepted]
    except RuntimeError as error:
        return str(error)
    if not remaining:
        return ""
    return (
        f"isolation '{kind}' cannot stop {', '.join(remaining)} on this machine (`waza list isolation` shows what got "
        f"through); `isolation_gaps: [{', '.join(remaining)}]` accepts that"
    )


def table() -> list[dict[str, str]]:
    """Return a row for each probe: whether it is stopped by each kind of isolation, as tried just now."""
    results: dict[str, dict[str, bool] | str] = {}
    for kind in KINDS:
        try:
            results[kind] = f"not available: {why}" if (why := missing(kind)) else probe(kind)
        except (RuntimeError, OSError) as error:
            results[kind] = f"cannot be determined: {error}"
    return [
        {"probe": what, "promise": promise}
        | {kind: _cell(name, found, results["none"]) for kind, found in results.items()}
        for name, (promise, what) in PROBES.items()
    ]


def _cell(name: str, found: dict[str, bool] | str, baseline: dict[str, bool] | str) -> str:
    if isinstance(found, str):
        return found
    if isinstance(baseline, dict) and not baseline[name]:
        return "cannot be determined"
    return "open" if found[name] else "stopped"


@contextlib.contextmanager
def _targets(outside: Path) -> Iterator[tuple[dict[str, object], Callable[[], bool]]]:
    """Start a listener of each kind and a process to attack; yield these, and what says whether a datagram came."""
    with contextlib.ExitStack() as until_end:

        def listen(family: int, kind: int, address: object) -> socket.socket:
            sock = until_end.enter_context(socket.socket(family, kind))
            sock.bind(address)  # type: ignore[arg-type]
            if kind == socket.SOCK_STREAM:
                sock.listen()
            return sock

        tcp = listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        udp = listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        listen(socket.AF_UNIX, socket.SOCK_STREAM, str(outside / "socket"))
        abstract = f"waza-probe-{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            listen(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}")
        victim = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _VICTIM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"WAZA_PROBE": "1"},
        )
        until_end.callback(victim.wait)
        until_end.callback(victim.kill)
        assert victim.stdout and victim.stdin
        until_end.callback(victim.stdin.close)
        with victim.stdout as ready:
            ready.readline()
        ports = {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}
        yield ports | {"abstract": abstract, "pid": victim.pid}, lambda: _has_data(udp)


def _has_data(udp: socket.socket) -> bool:
    udp.setblocking(False)
    try:
        return bool(udp.recv(1))
    except BlockingIOError:
        return False


def _changes(outside: Path) -> set[str]:
    """Return the probes that left a trace outside, whatever they themselves claim."""
    checks: dict[str, Callable[[], bool]] = {
        "create": lambda: (outside / "created").exists(),
        "change": lambda: (outside / "change").read_text(encoding="ascii") != "secret",
        "truncate": lambda: not (outside / "truncate").stat().st_size,
        "delete": lambda: not (outside / "delete").exists(),
        "rename": lambda: (outside / "renamed").exists(),
        "chmod": lambda: (outside / "chmod").stat().st_mode & 0o777 == 0o640,
        "utime": lambda: (outside / "utime").stat().st_mtime == 1,
        "setxattr": lambda: hasattr(os, "getxattr") and "user.waza" in os.listxattr(outside / "setxattr"),
    }
    return {name for name, is_changed in checks.items() if is_changed()}
