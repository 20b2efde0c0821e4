"""Restrict the system calls of this process by seccomp filters of the Linux kernel. A refused call fails with EPERM.

    enter       for expressions: allows reading and writing open descriptors, memory, its own timer and clock, exit
    restrict    for programs: refuses kinds of sockets, and calls that would bypass a filter or a Landlock rule

Only the standard library: the evaluator starts without packages.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

from waza.process.system_calls import checked, libc, no_new_privileges

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


def is_available() -> bool:
    """Return whether seccomp filters can be installed here."""
    return sys.platform == "linux" and os.uname().machine in _NUMBERS and sys.maxsize > 2**32


def enter() -> None:
    """Allow only the calls of `_NAMES`, for good; raise OSError when the kernel refuses."""
    architecture, numbers = _NUMBERS[os.uname().machine]
    steps = [(_LOAD, 0, 0, _ARCHITECTURE_AT), (_EQUALS, 1, 0, architecture), (_RETURN, 0, 0, _KILL)]
    steps.append((_LOAD, 0, 0, _NUMBER_AT))
    for place, number in enumerate(numbers):
        steps.append((_EQUALS, len(numbers) - place, 0, number))
    steps += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    _install(steps)


def restrict(*, network: bool, unix_sockets: bool) -> None:
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
