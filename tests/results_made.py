"""Results and runs for tests, and disks that fail."""

import errno
import os

from waza.files.disk import Disk
from waza.model import Check, Grade, Result, Run, ToolEvent, Trace, Usage
from waza.runs.records import frame, write_record
from waza.runs.signing import Chain, make_key


def a_grade(score=1.0, status=None, name="greets", weight=1.0, kind="text", checks=None):
    status = status or ("passed" if score == 1.0 else "failed")
    checks = [Check(status == "passed", "output contains 'hello'")] if checks is None else checks
    return Grade(name=name, type=kind, status=status, score=score, feedback="said", weight=weight, checks=checks)


def a_result(task="t", trial=1, status="passed", grades=None, output="Hello – “there”\n", **more):
    trace = more.pop("trace", None) or Trace(
        input="greet",
        output=output,
        tool_events=[ToolEvent(tool_name="bash", args={"command": "ls"}, result="a\nb")],
        usage=Usage(input_tokens=10, output_tokens=5),
    )
    grades = [a_grade()] if grades is None else grades
    return Result(task_id=task, trial=trial, status=status, trace=trace, grades=grades, duration_ms=2.0, **more)


def a_run(results=(), tasks=None, config=None, **more):
    spec = more.pop("spec", {})
    if tasks is not None:
        spec |= {"tasks": [{"id": task} if isinstance(task, str) else task for task in tasks]}
    if config is not None:
        spec |= {"config": config}
    more = {"id": "", "name": "suite", "started_at": "2026-01-02T03:04:05Z", "engine": "mock"} | more
    return Run(spec=spec, results=[*results], **more)


def append_signed(path, *payloads):
    """Append records to a journal as a version of waza with the user's key would, and return what it holds then."""
    chain, key = Chain(), make_key()
    for line in path.read_bytes().splitlines():
        chain.accept(line[9:], key)
    with path.open("ab") as file:
        file.write(b"".join(frame(chain.sign(payload, key)) for payload in payloads))
    return path.read_bytes()


class FailingDisk(Disk):
    """Fails once, at the n-th of some calls; `fired` says whether it came to that."""

    def __init__(self, calls, nth, code=errno.EIO, short=False):
        self.calls, self.nth, self.code, self.short = calls, nth, code, short
        self.fired = False

    def _count(self, call):
        if call in self.calls and not self.fired:
            self.nth -= 1
            if self.nth == 0:
                self.fired = True
                return True
        return False

    def _fail(self, call):
        if self._count(call):
            raise OSError(self.code, os.strerror(self.code))

    def open(self, path, flags, mode=0o600):
        self._fail("open")
        return super().open(path, flags, mode)

    def write(self, fd, data):
        if self._count("write"):
            if self.short:
                super().write(fd, bytes(data)[: max(1, len(data) // 2)])
            raise OSError(self.code, os.strerror(self.code))
        return super().write(fd, data)

    def sync(self, fd):
        self._fail("sync")
        super().sync(fd)

    def truncate(self, fd, size):
        self._fail("truncate")
        super().truncate(fd, size)

    def replace(self, source, target):
        self._fail("replace")
        super().replace(source, target)

    def sync_folder(self, folder):
        self._fail("sync_folder")
        super().sync_folder(folder)


class ShortDisk(Disk):
    """Takes a few bytes a write, as a disk or a pipe may."""

    def write(self, fd, data):
        return super().write(fd, bytes(data)[:7])


class BufferedJournal:
    """A journal as it is usually written: lines go into the process's own buffer and are acknowledged at once."""

    def __init__(self, path):
        self.results = 0
        self.file = open(path, "ab")  # noqa: SIM115

    @classmethod
    def open(cls, path):
        return cls(path)

    def append(self, *records):
        self.file.write(b"".join(frame(write_record(record)) for record in records))
