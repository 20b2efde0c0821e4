"""A worker process that answers one question at a time and is killed when it takes too long.

The questions are those of `question_program.py`; the caller decides what an answer means.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from waza.model import JSON

START_LIMIT_S = 30.0
TRANSFER_BYTES_PER_S = 10_000_000
"""How fast a question reaches the worker even on a busy machine; the limit counts from then."""
ANSWER_BYTES = 1_000_000
_ENDED_BY_TIMER = -getattr(signal, "SIGPROF", -1000)
_PROGRAM = Path(__file__).with_name("question_program.py")
_PASSED_VARIABLES = ("SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Variables that Python may need to start; nothing else of our environment reaches the worker."""


class NoAnswer(TimeoutError):
    """A question that ran out of time or memory, or ended its worker."""


class Child:
    """A worker for one engine: started at the first question, reused, replaced after a kill, ended with waza."""

    variables: ClassVar[dict[str, str]] = {}
    """Its environment, besides what Python needs to start."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @property
    def pid(self) -> int | None:
        """The worker's process id, or None when there is no worker."""
        return self._process.pid if self._process else None

    def ask(self, question: dict[str, JSON], limit_s: float) -> JSON:
        """Return the worker's answer; raise ValueError if it refuses, NoAnswer when time or memory runs out."""
        line = json.dumps(question | {"limit_s": limit_s}, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
        with self._lock:
            answers, late = self._ask(line, 1, limit_s)
        if not answers:
            raise NoAnswer(f"ran out of time ({limit_s:g} s)" if late else "ended its worker process")
        answer = answers[0]
        if "refused" in answer:
            raise ValueError(answer["refused"])
        if "lost" in answer:
            raise NoAnswer(answer["lost"])
        return answer["is"]

    def ask_each(self, message: bytes, count: int, limit_s: float) -> tuple[list[JSON], bool]:
        """Return `count` answers, or those before the worker ended; and whether that was because of time."""
        with self._lock:
            return self._ask(message, count, limit_s)

    def close(self) -> None:
        """End the worker; the next question starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _ask(self, message: bytes, count: int, limit_s: float) -> tuple[list[JSON], bool]:
        """Ask the worker, and a new one if the old one turns out to have ended."""
        try:
            for process in (self._process, None):
                fresh = process is None
                process = process or self._start()
                lines, late = _exchange(process, message, count, limit_s + len(message) / TRANSFER_BYTES_PER_S)
                if len(lines) < count:
                    late = late or process.wait() == _ENDED_BY_TIMER
                    self.close()
                if lines or late or fresh:
                    break
            return [json.loads(line) for line in lines], late
        except BaseException:
            # A late answer to this question would be read as the answer to the next one.
            self.close()
            raise

    def _command(self) -> list[str]:
        """Return the command that starts a worker, which then writes one line."""
        spec = find_spec(self._module)
        if spec is None or spec.origin is None:
            raise ValueError(f"the module '{self._module}' is not installed")
        return [sys.executable, "-I", "-S", str(_PROGRAM), self._module, str(Path(spec.origin).parent.parent)]

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,
            env={name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ} | self.variables,
            start_new_session=True,
        )
        ready, _ = _exchange(self._process, b"", 1, START_LIMIT_S)
        if not ready:
            self.close()
            raise NoAnswer("could not start its worker process")
        return self._process

    def _forget(self) -> None:
        """Leave the worker to the process that started it; called in a forked child."""
        self._lock = threading.Lock()
        self._process = None


def _exchange(process: subprocess.Popen[bytes], message: bytes, count: int, limit_s: float) -> tuple[list[bytes], bool]:
    """Return the worker's next lines (fewer if it ended) and whether it was killed for being late."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    assert process.stdin and process.stdout
    timer = threading.Timer(limit_s, stop)
    timer.daemon = True
    timer.start()
    lines: list[bytes] = []
    try:
        process.stdin.write(message)
        process.stdin.flush()
        while len(lines) < count and (line := process.stdout.readline(ANSWER_BYTES)).endswith(b"\n"):
            lines.append(line)
    except OSError:
        pass
    finally:
        timer.cancel()
    if len(lines) < count:
        process.kill()
    return lines, late.is_set()
