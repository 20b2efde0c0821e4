"""Restrict this process by means of the Linux kernel: Landlock, mount namespaces, seccomp filters.

Inside Landlock files are invisible unless allowed, TCP is closed and processes outside cannot be signalled or read, as
far as the kernel's version of Landlock supports that (`landlock_abi`, see landlock(7)). Not covered: sockets with a
path, UDP, chmod, chown and times of files, and what is in /proc for everyone.

With mounts of its own a process has a file system of only named paths. What is readable is mounted read-only, so
chmod, chown, utime and setxattr fail there; what is not named does not exist, so no Unix socket there can be connected
to. Works for root, and for others where the system lets them make user namespaces.

A system call that a seccomp filter refuses fails with EPERM:

    enter_seccomp     for expressions: allows reading and writing open descriptors, memory, its own timer, exit
    restrict_calls    for programs: refuses kinds of sockets, and calls that would bypass a filter or a Landlock rule

Only the standard library: supervisor and evaluator start without packages.
"""
# No pathlib: it is slow to load, and its pages cost every fork.
# ruff: noqa: PTH103, PTH112, PTH114, PTH115, PTH120, PTH123, PTH211

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterable
from functools import cache

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_DROP_CAPABILITY = 24
_KEPT_CAPABILITIES = (0, 1, 3, 4)
"""Root's capabilities over files: chown, dac_override, fowner, fsetid. Others could bypass the restrictions."""
_EXECUTE, _WRITE, _READ, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_READ_RIGHTS = _EXECUTE | _READ | _READ_DIR
_TCP = 0b11
_SCOPES = 0b11


def landlock_abi() -> int:
    """Return the version of Landlock in this kernel; 0 is none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def describe_landlock(network: bool) -> str:
    """Return what Landlock restricts on this kernel, for the record."""
    version = landlock_abi()
    restricted = ["files"]
    if version >= 4 and not network:
        restricted.append("tcp")
    if version >= 6:
        restricted.append("signals")
    return f"landlock abi {version}: {', '.join(restricted)}"


def build_ruleset(readable: Iterable[bytes], writable: Iterable[bytes], network: bool) -> int:
    """Return the descriptor of a ruleset; raise OSError when the kernel refuses."""
    version = landlock_abi()
    files = _file_rights(version)
    tcp = 0 if network or version < 4 else _TCP
    attributes = struct.pack("=3Q", files, tcp, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = checked(libc().syscall(_CREATE_RULESET, attributes, size, 0))
    for paths, rights in ((readable, _READ_RIGHTS & files), (writable, files)):
        for path in paths:
            _allow(ruleset, path, rights)
    return ruleset


def enter_landlock(ruleset: int) -> None:
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


_NEW_MOUNTS, _NEW_IPC, _NEW_USERS = 0x00020000, 0x08000000, 0x10000000
_RECURSIVE, _PRIVATE, _NO_SETUID, _NO_DEVICES, _READ_ONLY_REMOUNT = 0x4000, 1 << 18, 2, 4, 1 | 32
_DETACH = 2
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CLONE, _CLOSE_ON_EXEC, _AT_RECURSIVE, _AT_EMPTY_PATH, _FROM_EMPTY_PATH = 1, os.O_CLOEXEC, 0x8000, 0x1000, 4
_READ_ONLY = 1
_AT_CWD = -100
_MAX_LINKS = 40
_TRY = (
    "import sys; sys.path.append(sys.argv[1]); from waza.process.linux_sandbox import enter_mounts; "
    "enter_mounts([b'/usr', b'/proc'], [])"
)
_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


@cache
def has_mounts() -> bool:
    """Return whether a process of this user may have mounts of its own here; tried in a child."""
    if sys.platform != "linux" or os.uname().machine not in _PIVOT_ROOT:
        return False
    import subprocess  # not needed by the supervisor, where every fork pays for it

    command = [sys.executable, "-I", "-S", "-c", _TRY, _PACKAGES]
    quiet = subprocess.DEVNULL
    return subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=60, check=False).returncode == 0


def enter_mounts(readable: Iterable[bytes], writable: Iterable[bytes]) -> None:
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


_SET_SECCOMP, _FILTER = 22, 2
_LOAD, _EQUALS, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_FOREIGN_NUMBERS = 0x40000000
"""From here on x86-64 accepts the same calls under other numbers (x32)."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
_NAMES = "read write close mmap mprotect munmap brk mremap madvise futex rt_sigprocmask rt_sigreturn setitimer"
_NAMES += " clock_gettime getrandom sched_yield restart_syscall exit exit_group"
_NUMBERS = {
    "x86_64": (0xC000003E, (0, 1, 3, 9, 10, 11, 12, 25, 28, 202, 14, 15, 38, 228, 318, 24, 219, 60, 231)),
    "aarch64": (0xC00000B7, (63, 64, 57, 222, 226, 215, 214, 216, 233, 98, 135, 139, 103, 113, 278, 124, 128, 93, 94)),
}
"""By machine: the kernel's audit number for it, and the numbers of `_NAMES` in their order."""
_SOCKET = {"x86_64": 41, "aarch64": 198}
_REFUSED = {
    "x86_64": (155, 165, 166, 248, 249, 250, 298, 304, 308, 321),
    "aarch64": (41, 40, 39, 217, 218, 219, 241, 265, 268, 280),
}
"""pivot_root mount umount2 add_key request_key keyctl perf_event_open open_by_handle_at setns bpf"""
_REFUSED_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442)
"""io_uring (which opens sockets past a filter), and the newer calls that mount: the same numbers on all machines."""


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def has_seccomp() -> bool:
    """Return whether seccomp filters can be installed here."""
    return sys.platform == "linux" and os.uname().machine in _NUMBERS and sys.maxsize > 2**32


def enter_seccomp() -> None:
    """Allow only the calls of `_NAMES`, for good; raise OSError when the kernel refuses."""
    architecture, numbers = _NUMBERS[os.uname().machine]
    steps = [(_LOAD, 0, 0, _ARCHITECTURE_AT), (_EQUALS, 1, 0, architecture), (_RETURN, 0, 0, _KILL)]
    steps.append((_LOAD, 0, 0, _NUMBER_AT))
    for place, number in enumerate(numbers):
        steps.append((_EQUALS, len(numbers) - place, 0, number))
    steps += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    _install(steps)


def restrict_calls(*, network: bool, unix_sockets: bool) -> None:
    """Refuse sockets that are not allowed, of any type, for good; raise OSError when the kernel refuses.

    Socket pairs and open sockets keep working. Families other than IP, Unix and netlink are always refused.
    """
    machine = os.uname().machine
    families = [family for family, open_ in ((_UNIX, unix_sockets), (_INET, network), (_INET6, network)) if open_]
    families += [_NETLINK] if network else []
    refused = (*_REFUSED[machine], *_REFUSED_EVERYWHERE)
    # The last two steps refuse and allow; a jump gives the number of steps it skips.
    refuse_at = 6 + len(refused) + len(families)
    steps = [(_LOAD, 0, 0, _ARCHITECTURE_AT), (_EQUALS, 0, refuse_at - 2, _NUMBERS[machine][0])]
    steps.append((_LOAD, 0, 0, _NUMBER_AT))
    steps.append((_AT_LEAST, refuse_at - 4, 0, _FOREIGN_NUMBERS))
    for number in refused:
        steps.append((_EQUALS, refuse_at - len(steps) - 1, 0, number))
    steps.append((_EQUALS, 0, refuse_at - len(steps), _SOCKET[machine]))
    steps.append((_LOAD, 0, 0, _FIRST_ARGUMENT_AT))
    for family in families:
        steps.append((_EQUALS, refuse_at - len(steps), 0, family))
    steps += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    _install(steps)


def _install(steps: list[tuple[int, int, int, int]]) -> None:
    packed = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = _FilterProgram(len(steps), packed)
    no_new_privileges()  # the kernel refuses filters of unprivileged processes that could still gain privileges
    checked(libc().prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0))


_SET_NO_NEW_PRIVS = 38


@cache
def libc() -> ctypes.CDLL:
    """Return the C library, with its `errno` kept for `checked`."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    """Return the result of a call of `libc()`; raise OSError if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def no_new_privileges() -> None:
    """Forbid this process and all it starts to gain privileges, as by setuid programs; sandboxes require it."""
    checked(libc().prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
