"""Give this process a file system of its own that has only named paths, by Linux mount namespaces.

What is readable is mounted read-only, so chmod, chown, utime and setxattr fail there, which Landlock does not check;
what is not named does not exist, so no Unix socket there can be connected to. Works for root, and for others where the
system lets them make user namespaces. Only the standard library: the supervisor starts without packages.
"""
# No pathlib: it is slow to load, and its pages cost every fork.
# ruff: noqa: PTH103, PTH112, PTH114, PTH115, PTH120, PTH123, PTH211

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Iterable
from functools import cache

from waza.process.system_calls import checked, libc

_NEW_MOUNTS, _NEW_IPC, _NEW_USERS = 0x00020000, 0x08000000, 0x10000000
_RECURSIVE, _PRIVATE, _NO_SETUID, _NO_DEVICES, _READ_ONLY_REMOUNT = 0x4000, 1 << 18, 2, 4, 1 | 32
_DETACH = 2
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CLONE, _CLOSE_ON_EXEC, _AT_RECURSIVE, _AT_EMPTY_PATH, _FROM_EMPTY_PATH = 1, os.O_CLOEXEC, 0x8000, 0x1000, 4
_READ_ONLY = 1
_AT_CWD = -100
_MAX_LINKS = 40
_TRY = "import sys; sys.path.append(sys.argv[1]); from waza.process.mounts import enter; enter([b'/usr', b'/proc'], [])"
_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


@cache
def is_available() -> bool:
    """Return whether a process of this user may have mounts of its own here; tried in a child."""
    if sys.platform != "linux" or os.uname().machine not in _PIVOT_ROOT:
        return False
    import subprocess  # not needed by the supervisor, where every fork pays for it

    command = [sys.executable, "-I", "-S", "-c", _TRY, _PACKAGES]
    quiet = subprocess.DEVNULL
    return subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=60, check=False).returncode == 0


def enter(readable: Iterable[bytes], writable: Iterable[bytes]) -> None:
    """Restrict this process, for good, to these paths; raise OSError when the kernel refuses. It must have one thread.

    A path that does not exist is skipped. Symbolic links on the way to a path are recreated.
    """
    _unshare()
    links: dict[bytes, bytes] = {}
    writable_places = {_resolve(path, links) for path in writable}
    visible = {_resolve(path, links) for path in readable}
    copies: dict[bytes, tuple[int, bool]] = {}
    for place in visible | writable_places:
        if any(
            _is_below(place, other)
            for other in (writable_places if place in writable_places else visible | writable_places)
        ):
            continue
        try:
            copies[place] = _copy(place, read_only=place not in writable_places), os.path.isdir(place)
        except FileNotFoundError:
            continue
    root = b"/tmp" if os.path.isdir(b"/tmp") else b"/usr"
    checked(libc().mount(b"tmpfs", root, b"tmpfs", _NO_SETUID | _NO_DEVICES, b"mode=755,size=1m"))
    # Shorter paths first: what is below another path is then mounted on top of it.
    for place, (copy, is_folder) in sorted(copies.items(), key=lambda found: found[0].count(b"/")):
        _attach(copy, root + place, is_folder)
    for link, target in links.items():
        if not os.path.lexists(root + link):
            os.makedirs(os.path.dirname(root + link), exist_ok=True)
            os.symlink(target, root + link)
    os.chdir(root)
    checked(libc().syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."))
    checked(libc().umount2(b".", _DETACH))
    os.chdir(b"/")
    checked(libc().mount(None, b"/", None, _READ_ONLY_REMOUNT | _NO_SETUID | _NO_DEVICES, None))


def _is_below(path: bytes, other: bytes) -> bool:
    return path.startswith(other.rstrip(b"/") + b"/") and path != other


def _unshare() -> None:
    """Give this process mounts and SysV memory of its own; one that is not root gets a user namespace for that."""
    wanted = _NEW_MOUNTS | _NEW_IPC
    if libc().unshare(wanted) < 0:
        uid, gid = os.geteuid(), os.getegid()
        checked(libc().unshare(wanted | _NEW_USERS))
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    checked(libc().mount(None, b"/", None, _RECURSIVE | _PRIVATE, None))


def _resolve(path: bytes, links: dict[bytes, bytes]) -> bytes:
    """Return the path without symbolic links, and record every link on the way."""
    left, place = [part for part in path.split(b"/") if part], b""
    while left:
        part = left.pop(0)
        if part in (b".", b".."):
            place = place if part == b"." else os.path.dirname(place).rstrip(b"/")
            continue
        place += b"/" + part
        if os.path.islink(place) and len(links) < _MAX_LINKS * 100:
            links[place] = target = os.readlink(place)
            place = b"" if target.startswith(b"/") else os.path.dirname(place).rstrip(b"/")
            left = [part for part in target.split(b"/") if part] + left
            if len(left) > _MAX_LINKS * 100:
                raise FileNotFoundError(path)
    return place or b"/"


def _copy(path: bytes, *, read_only: bool) -> int:
    """Return the descriptor of a detached copy of the mounts at and below a path."""
    flags = _CLONE | _CLOSE_ON_EXEC | _AT_RECURSIVE
    copy = checked(libc().syscall(_OPEN_TREE, _AT_CWD, path, flags))
    if read_only:
        wanted = struct.pack("=4Q", _READ_ONLY, 0, 0, 0)
        checked(libc().syscall(_MOUNT_SETATTR, copy, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, wanted, len(wanted)))
    return copy


def _attach(copy: int, place: bytes, is_folder: bool) -> None:
    """Mount a detached copy at a place, which is created if it does not exist."""
    if not os.path.lexists(place):
        os.makedirs(place if is_folder else os.path.dirname(place), exist_ok=True)
        if not is_folder:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, stat.S_IRUSR))
    checked(libc().syscall(_MOVE_MOUNT, copy, b"", _AT_CWD, place, _FROM_EMPTY_PATH))
    os.close(copy)
