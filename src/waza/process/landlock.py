"""Restrict this process by Landlock, a sandbox of the Linux kernel, through system calls.

Inside it files are invisible unless allowed, TCP is closed and processes outside cannot be signalled or read, as far
as the kernel's version of Landlock supports that (`abi`, see landlock(7)). Not covered: sockets with a path, UDP (see
`seccomp`), chmod, chown and times of files (see `mounts`), and what is in /proc for everyone. Only the standard
library: the supervisor starts without packages.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Iterable

from waza.process.system_calls import checked, libc, no_new_privileges

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_DROP_CAPABILITY = 24
_KEPT_CAPABILITIES = (0, 1, 3, 4)
"""Root's capabilities over files: chown, dac_override, fowner, fsetid. Others could bypass the restrictions."""
_EXECUTE, _WRITE, _READ, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_READ_ONLY = _EXECUTE | _READ | _READ_DIR
_TCP = 0b11
_SCOPES = 0b11


def abi() -> int:
    """Return the version of Landlock in this kernel; 0 is none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def describe(network: bool) -> str:
    """Return what Landlock restricts on this kernel, for the record."""
    version = abi()
    restricted = ["files"]
    if version >= 4 and not network:
        restricted.append("tcp")
    if version >= 6:
        restricted.append("signals")
    return f"landlock abi {version}: {', '.join(restricted)}"


def build(readable: Iterable[bytes], writable: Iterable[bytes], network: bool) -> int:
    """Return the descriptor of a ruleset; raise OSError when the kernel refuses."""
    version = abi()
    files = _file_rights(version)
    tcp = 0 if network or version < 4 else _TCP
    attributes = struct.pack("=3Q", files, tcp, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = checked(libc().syscall(_CREATE_RULESET, attributes, size, 0))
    for paths, rights in ((readable, _READ_ONLY & files), (writable, files)):
        for path in paths:
            _allow(ruleset, path, rights)
    return ruleset


def enter(ruleset: int) -> None:
    """Restrict this process and all it starts, for good; raise OSError when the kernel refuses."""
    if os.geteuid() == 0:
        for capability in range(64):
            if capability not in _KEPT_CAPABILITIES and libc().prctl(_DROP_CAPABILITY, capability, 0, 0, 0) < 0:
                break
    no_new_privileges()
    checked(libc().syscall(_RESTRICT_SELF, ruleset, 0))


def _file_rights(version: int) -> int:
    """Return every right on files that this kernel can restrict: 13 at first, then refer, truncate, ioctl."""
    known = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    return (1 << known) - 1


def _allow(ruleset: int, path: bytes, rights: int) -> None:
    """Allow access to `path` and everything below it; a path that does not exist allows nothing."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _ON_FILES
        checked(libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0))
    finally:
        os.close(fd)
