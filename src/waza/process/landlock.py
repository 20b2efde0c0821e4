"""A fence around this process that the Linux kernel holds: Landlock, by system call, without packages.

Inside the fence files are invisible unless allowed, TCP is closed and processes outside cannot be signalled or read,
as far as the kernel knows how (`abi`). Not covered: sockets with a path, UDP (see `seccomp`), chmod, chown and times of
files (see `mounts`), and what is in /proc for everyone.
Only the standard library: the supervisor starts without packages.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable
from functools import cache

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_SET_NO_NEW_PRIVS, _DROP_CAPABILITY = 38, 24
_KEPT_CAPABILITIES = (0, 1, 3, 4)
"""Of root's powers those over files: chown, dac_override, fowner, fsetid. Others would reach over the fence."""
_EXECUTE, _WRITE, _READ, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_LOOK = _EXECUTE | _READ | _READ_DIR
_TCP = 0b11
_SCOPES = 0b11


def abi() -> int:
    """Return which Landlock this kernel has; 0 is none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def describe(network: bool) -> str:
    """Return what a fence holds on this kernel, for the record."""
    version = abi()
    held = ["files"]
    if version >= 4 and not network:
        held.append("tcp")
    if version >= 6:
        held.append("signals")
    return f"landlock abi {version}: {', '.join(held)}"


def build(readable: Iterable[bytes], writable: Iterable[bytes], network: bool) -> int:
    """Return the descriptor of a fence; raise OSError when the kernel refuses."""
    version = abi()
    files = _file_rights(version)
    tcp = 0 if network or version < 4 else _TCP
    attributes = struct.pack("=3Q", files, tcp, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    fence = _checked(_libc().syscall(_CREATE_RULESET, attributes, size, 0))
    for paths, rights in ((readable, _LOOK & files), (writable, files)):
        for path in paths:
            _allow(fence, path, rights)
    return fence


def enter(fence: int) -> None:
    """Fence this process and all it starts, for good; raise OSError when the kernel refuses."""
    if os.geteuid() == 0:
        for capability in range(64):
            if capability not in _KEPT_CAPABILITIES and _libc().prctl(_DROP_CAPABILITY, capability, 0, 0, 0) < 0:
                break
    _checked(_libc().prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc().syscall(_RESTRICT_SELF, fence, 0))


def _file_rights(version: int) -> int:
    """Return every right on files that this kernel can hold: 13 at first, then refer, truncate, ioctl."""
    known = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    return (1 << known) - 1


def _allow(fence: int, path: bytes, rights: int) -> None:
    """Open `path` and what is below it; a path that is not there opens nothing."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _ON_FILES
        _checked(_libc().syscall(_ADD_RULE, fence, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0))
    finally:
        os.close(fd)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
