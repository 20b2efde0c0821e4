"""System calls of the C library that Python does not offer, for Linux sandboxes and child processes.

Only the standard library: the supervisor starts without packages.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

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
