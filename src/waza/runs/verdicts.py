"""Verdicts of people on outputs: one line of JSON each, in a file that is only ever added to.

A verdict is about a grader's question and the evidence a person saw: input, source context, output, tool calls and
files. It counts for every trial with exactly that evidence, in this run and in later ones. Lines need no order, so
files of several people are merged by putting their lines together (`merge_verdicts`, or a `merge=union` of git). Of two
verdicts of one person on one output the later counts; verdicts of different people are kept separately.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from waza.errors import StoreError
from waza.files.disk import DISK, Disk, why, write_all
from waza.model import JSON, Files, Trace
from waza.untrusted.json import encode, to_json

VERDICTS = "verdicts.jsonl"
"""The name of the file, next to the eval file."""
LOCK_WAIT_S = 10.0
"""How long to wait while another process adds its verdict."""

Answer = Literal["pass", "fail"]


class HumanVerdict(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's verdict on one output."""

    grader: str
    """The grader whose question was answered."""
    evidence: str
    """The name of what was reviewed, as of `evidence_of`."""
    verdict: Answer
    reason: str = ""
    reviewer: str = ""
    """The reviewer; empty where no name was given."""
    at: str = ""
    """When, in UTC; `record_verdict` fills it in."""
    question: str = ""
    """The name of the question, as of `question_of`; a `human` grader counts only answers to its present question."""
    said: Answer | None = None
    """The grader's own verdict, where it is one that decides."""
    model: str = ""
    """The judge's model, where a judge gave it."""
    rubric: str = ""
    """The hash of the judge's rubric."""
    run: str = ""
    task: str = ""
    trial: int = 0


class Merged(NamedTuple):
    """What a merge brought."""

    added: int
    known: int
    """Lines that were there already."""


_DECODER = msgspec.json.Decoder(HumanVerdict)


def read_verdicts(path: str | Path) -> list[HumanVerdict]:
    """Return every verdict in a file, those that were replaced too; none where there is no file.

    Raises StoreError that names the line which is no verdict.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {why(error)}") from error
    return [_verdict(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]


def _verdict(line: bytes, path: str | Path, number: int) -> HumanVerdict:
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if line.startswith((b"<<<<<<<", b"=======", b">>>>>>>")):
            raise StoreError(f"{path}:{number}: a conflict of git; keep the lines of both sides") from None
        raise StoreError(f"{path}:{number}: is not a verdict: {error}; fix or remove the line") from None


def record_verdict(path: str | Path, verdict: HumanVerdict, disk: Disk = DISK) -> HumanVerdict:
    """Add a verdict to a file, which is made if it is not there, and return it with its time.

    When this returns it is on the disk. Several processes may do so at once. Raises StoreError.
    """
    made = verdict if verdict.at else msgspec.structs.replace(verdict, at=_now())
    _append(Path(path), encode(made) + b"\n", disk)
    return made


def merge_verdicts(path: str | Path, other: str | Path, disk: Disk = DISK) -> Merged:
    """Add the verdicts of another file that are not in this one; raise StoreError where either cannot be read."""
    if not Path(other).is_file():
        raise StoreError(f"{other}: is not there; nothing was merged")
    known = {encode(verdict) for verdict in read_verdicts(path)}
    theirs = [encode(verdict) for verdict in read_verdicts(other)]
    new = [line for line in dict.fromkeys(theirs) if line not in known]
    if new:
        _append(Path(path), b"".join(line + b"\n" for line in new), disk)
    return Merged(len(new), len(theirs) - len(new))


def _append(path: Path, lines: bytes, disk: Disk) -> None:
    """Add whole lines, or nothing: a line that a crash cut off before is ended first."""
    try:
        fd = disk.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            _lock(fd, disk)
            size = os.lseek(fd, 0, os.SEEK_END)
            try:
                write_all(disk, fd, (b"" if _ends_whole(fd, size) else b"\n") + lines)
                disk.sync(fd)
            except OSError:
                disk.truncate(fd, size)
                raise
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreError(f"{path}: the verdict is not recorded: {why(error)}") from error


def _ends_whole(fd: int, size: int) -> bool:
    if not size:
        return True
    os.lseek(fd, size - 1, os.SEEK_SET)
    return os.read(fd, 1) == b"\n"


def _lock(fd: int, disk: Disk) -> None:
    """Wait for the file's lock; raise BlockingIOError when another process keeps it."""
    end = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            disk.lock(fd)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


Standing = dict[tuple[str, str], list[HumanVerdict]]
"""By grader and evidence: each person's latest verdict."""


def standing_in(path: str | Path) -> Standing:
    """Return the verdicts in a file that count; cached until the file changes, since each trial of a run needs them."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {why(error)}") from error
    return _current_verdicts(str(path), status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=8)
def _current_verdicts(path: str, *_unchanged: int) -> Standing:
    return standing(read_verdicts(path))


def standing(verdicts: Iterable[HumanVerdict]) -> Standing:
    """Return the verdicts that count, by grader and evidence: each person's latest, sorted by name.

    The order of lines has no effect: of two with the same time the one that is greater as text counts.
    """
    latest: dict[tuple[str, str, str], HumanVerdict] = {}
    for verdict in verdicts:
        key = (verdict.grader, verdict.evidence, verdict.reviewer)
        if key not in latest or _age(verdict) > _age(latest[key]):
            latest[key] = verdict
    found: Standing = {}
    for (grader, evidence, _), verdict in sorted(latest.items()):
        found.setdefault((grader, evidence), []).append(verdict)
    return found


def _age(verdict: HumanVerdict) -> tuple[str, bytes]:
    return verdict.at, encode(verdict)


def label_of(verdicts: Iterable[HumanVerdict]) -> bool | None:
    """Return what most people say about an output, True for pass; None where they are evenly divided."""
    passes = [verdict.verdict == "pass" for verdict in verdicts]
    return None if 2 * sum(passes) == len(passes) else 2 * sum(passes) > len(passes)


def question_of(*parts: str) -> str:
    """Return a name for a question to people, that changes with any word of it."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def evidence_of(trace: Trace, source: str = "") -> str:
    """Return a name for what a person reviews: input, output, turns, tool calls, the files that were left.

    And the task's source context, where it has one.
    """
    calls = [[call.tool_name, call.args, call.result, call.success, call.error] for call in trace.tool_events or ()]
    evidence: list[JSON] = [trace.input, trace.output, None if trace.tool_events is None else calls]
    evidence += [[[turn.input, turn.output] for turn in trace.turns or ()], list(_contents(trace.files))]
    evidence += [source] if source else []
    text = json.dumps(to_json(evidence), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _contents(files: Files | None) -> Iterator[list[str]]:
    """Yield path and content's hash of each file; for a file that was not stored, the reason."""
    try:
        for path in files.paths() if files is not None else ():
            try:
                yield [path, hashlib.sha256(files.read(path)).hexdigest() if files is not None else ""]
            except OSError as error:
                yield [path, why(error)]
    except OSError as error:
        yield ["", why(error)]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
