"""The program that evaluates Python assertions: CPython itself, in a process that has nothing worth reaching.

Two lines of defence. `python_expressions` accepts no statement and no name or attribute beyond its lists, so it is
data and computation by construction. Should that fail, the process has no environment, no open file but two
pipes, a bounded memory, and (on Linux) a kernel that refuses it files, programs, sockets and signals. It imports only
the standard library and the modules of ours below.

A request is a list of expressions and the data they may read; the reply is one line of JSON per expression, in order.
An expression that computes for too long ends the process by SIGPROF.
"""

from __future__ import annotations

import codecs
import contextlib
import faulthandler
import importlib
import json
import marshal
import os
import re
import signal
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]  # Windows

from waza.process import linux_sandbox
from waza.untrusted.python_expressions import (
    BUILT_IN_NAMES,
    CALL_FORMAT,
    GET_ATTRIBUTE,
    TEXT_ENCODINGS,
    all_encodings,
    available,
    read_expression,
    unavailable_encoding,
    unavailable_in_format,
)

MEMORY_BYTES = 512 * 1024 * 1024
_MESSAGE_CHARS = 2_000
_IMMUTABLE = (str, int, float, bool, type(None))
_NOT_DATA = {
    types.FunctionType: "a function",
    types.BuiltinFunctionType: "a function",
    types.MethodDescriptorType: "a function",
    types.ModuleType: "a module",
    types.GeneratorType: "a generator",
    type: "a type",
}
Reply = tuple[str, str]
"""An outcome and its message (`true`, `false`, `raised`, `unknown name`, `unavailable`, `memory`, `a function` ...)."""


class Unavailable(BaseException):
    """Something that CPython has and assertions do not, found while an expression ran."""


def get_attribute(value: object, name: str, /) -> object:
    """Return an attribute that assertions may read; raise AttributeError where CPython does."""
    if not available(value, name) and hasattr(value, name):
        raise Unavailable(f"'.{name}' of {type(value).__name__} is not available in assertions")
    return getattr(value, name)


def call_format(value: object, name: str, /, *args: object, **kwargs: object) -> object:
    """Return what `value.format(...)` or `.format_map(...)` gives, if its fields read available attributes only."""
    if type(value) is not str and value is not str:
        return get_attribute(value, name)(*args, **kwargs)  # type: ignore[operator]
    template = args[0] if value is str and args else value
    if type(template) is str and (reason := unavailable_in_format(template)):
        raise Unavailable(reason)
    return getattr(value, name)(*args, **kwargs)


def _refuse_encoding(name: str) -> None:
    """Raise Unavailable for an encoding that exists and is not loaded here; called for unknown ones too."""
    if reason := unavailable_encoding(name):
        raise Unavailable(reason)


_NAMES: Mapping[str, object] = {
    **{name: getattr(__import__("builtins"), name) for name in BUILT_IN_NAMES if name != "re"},
    "re": re,
    GET_ATTRIBUTE: get_attribute,
    CALL_FORMAT: call_format,
    "__builtins__": {},
}


@lru_cache(maxsize=1024)
def _compiled(source: str) -> tuple[types.CodeType, frozenset[str]]:
    expression = read_expression(source)
    return compile(expression.tree, "<assertion>", "eval"), expression.names


def evaluate(source: str, data: Callable[[str], Any], context_names: frozenset[str]) -> Reply:
    """Return the outcome of an expression; `data` returns a fresh value of the context by its name."""
    try:
        code, names = _compiled(source)
        value = eval(code, {**_NAMES, **{name: data(name) for name in names & context_names}})
        kind = _NOT_DATA.get(type(value))
        return (kind, "") if kind else ("true" if value else "false", "")
    except Unavailable as reason:
        return "unavailable", str(reason)
    except MemoryError:
        return "memory", ""
    except NameError as error:
        return "unknown name", str(getattr(error, "name", ""))
    except Exception as error:  # noqa: BLE001 - whatever the expression raises is its outcome
        return "raised", _described(error)


def _described(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:_MESSAGE_CHARS]
    except MemoryError:
        return type(error).__name__


def reply(limit_s: float, sources: list[str], blobs: Mapping[str, bytes]) -> None:
    """Evaluate expressions and write their outcomes; only immutable values are shared between them."""
    shared: dict[str, Any] = {}

    def data(name: str) -> Any:
        if name in shared:
            return shared[name]
        value = marshal.loads(blobs[name])
        if isinstance(value, _IMMUTABLE):
            shared[name] = value
        return value

    for source in sources:
        _end_after(limit_s)
        result = evaluate(source, data, frozenset(blobs))
        _end_after(0)
        _write(json.dumps(result).encode("ascii") + b"\n")
        if result[0] == "memory":
            os._exit(0)  # Memory may be fragmented now; the next worker starts with all of it.


def _end_after(limit_s: float) -> None:
    """Let the kernel end this process after that much CPU time; 0 cancels it."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, limit_s)
    elif limit_s:
        faulthandler.dump_traceback_later(limit_s, exit=True)
    else:
        faulthandler.cancel_dump_traceback_later()


def drop_privileges() -> None:
    """Load what expressions may need, then give up files, programs, sockets and signals as far as the system allows."""
    for name in ("unicodedata", "_pylong", *(f"encodings.{encoding}" for encoding in TEXT_ENCODINGS)):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    "é".encode("ascii", "namereplace")
    all_encodings()
    codecs.register(_refuse_encoding)
    warnings.simplefilter("ignore")
    sys.stdin = sys.stdout = sys.stderr = None
    sys.meta_path.clear()
    sys.path.clear()
    if hasattr(signal, "SIGPROF"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    _restrict()


def _restrict() -> None:
    with contextlib.suppress(OSError):
        if linux_sandbox.landlock_abi():
            ruleset = linux_sandbox.build_ruleset([], [], network=False)
            linux_sandbox.enter_landlock(ruleset)
            os.close(ruleset)
    limits = {"AS": MEMORY_BYTES, "FSIZE": 0, "CORE": 0, "NPROC": 0, "NOFILE": 0}
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None:
            with contextlib.suppress(*(() if sys.platform == "linux" else (ValueError, OSError))):
                resource.setrlimit(kind, (most, most))
    with contextlib.suppress(OSError):
        if linux_sandbox.has_seccomp():
            linux_sandbox.enter_seccomp()


def main() -> NoReturn:
    """Answer requests until there are no more: each is a length, a header of that length, then the data it names."""
    drop_privileges()
    _write(b"ready\n")
    while True:
        limit_s, sources, sizes = marshal.loads(_read(int.from_bytes(_read(8), "little")))
        try:
            blobs = {name: _read(size) for name, size in sizes.items()}
        except MemoryError:
            _write(b'["memory", ""]\n')
            os._exit(0)
        reply(limit_s, sources, blobs)


def _read(size: int) -> bytes:
    """Return that many bytes of standard input; end this process when it ends."""
    parts = []
    while size:
        chunk = os.read(0, min(size, 1 << 20))
        if not chunk:
            os._exit(0)
        parts.append(chunk)
        size -= len(chunk)
    return b"".join(parts)


def _write(line: bytes) -> None:
    while line:
        line = line[os.write(1, line) :]
