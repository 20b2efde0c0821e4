"""One question to a judge and its verdict: from the cache, at the first asking, or after one reminder."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from hmac import compare_digest
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec

from waza.errors import JudgeError, StoreError
from waza.files.disk import open_regular, write_atomically
from waza.judges.base import Effort, Judge, Message, Reply, Request
from waza.judges.fencing import RULES, Data, marker_of, rendered
from waza.judges.rate_limits import per_loop
from waza.judges.verdict_tools import Kind, NoVerdict
from waza.model import JSON
from waza.runs.signing import keyed_hash, make_key, read_key
from waza.spending import NOTHING, Spending, bill, metering

R = TypeVar("R")

REMINDER = "You were asked before, and no valid verdict came. Give it now by calling {tools}; nothing else counts."
"""Says nothing of what came instead: that may be the candidate's words."""
REASON = "You were asked before, and a verdict came without a reason. Give it again by calling {tools}, with a reason."


class Question(NamedTuple):
    """What a judge is asked, before it is fenced."""

    parts: Sequence[str | Data]
    model: str = ""
    reasoning_effort: Effort | None = None
    rubric: str = ""
    """The hash of the rubric in use."""


class JudgeAnswer(NamedTuple, Generic[R]):
    """A verdict and what it took to get it."""

    verdict: R
    text: str
    judge: dict[str, JSON]
    """`details.judge`: type, model, answered_by, tokens, cost_usd, requests, cached, seconds, reminders, `verdict_by`
    where it was not by a tool call, `requests_without_cost` where there were some."""


class Unanswered(JudgeError):
    """A judge that gave no verdict, with what is known about the asking."""

    def __init__(self, message: str, judge: dict[str, JSON]) -> None:
        super().__init__(message)
        self.judge = judge


async def answer(judge: Any, question: Question, kind: Kind[R]) -> JudgeAnswer[R]:
    """Return the judge's verdict; raise Unanswered when it gives none, once reminded."""
    asking = _Asking(judge, question, kind)
    folder = getattr(judge, "cache", None)
    if folder is None or not judge.is_remembered:
        return asking.answered(*await asking.ask(), asking.spending)
    key = _key(judge, question, kind, asking.model)
    async with _alone(key):
        kept, is_refused = recall(folder, key)
        if kept is not None and (verdict := _read(kind, kept)) is not None:
            return asking.answered(verdict, kept, 0, kept.spending, cached=True)
        verdict, reply, reminders = await asking.ask()
        remember(folder, key, reply)
        answered = asking.answered(verdict, reply, reminders, asking.spending)
        if is_refused:
            answered.judge["cache_entry_refused"] = True
        return answered


def _alone(key: str) -> asyncio.Lock:
    """Return the lock of a question: who asks the same at the same time waits for the first one's answer."""
    locks: WeakValueDictionary[str, asyncio.Lock] = per_loop("questions", WeakValueDictionary)
    return locks.setdefault(key, asyncio.Lock())


class _Asking(Generic[R]):
    """One question on its way."""

    def __init__(self, judge: Any, question: Question, kind: Kind[R]) -> None:
        self.judge, self.question, self.kind = judge, question, kind
        self.model: str = question.model or getattr(judge, "model", "")
        self.spending = NOTHING
        """What all requests so far were billed, those that came to nothing too."""
        self._started = time.perf_counter()

    async def ask(self) -> tuple[R, Reply, int]:
        """Return the verdict, the reply it was read from, and how often the judge was asked again.

        A verdict without a reason is asked for once more. What comes then replaces it as a whole; where that is no
        verdict, the first one counts.
        """
        verdict, reply, reminders = await self._with_reminder()
        if not self.kind.lacks_reason(verdict):
            return verdict, reply, reminders
        try:
            again = await self._send(REASON)
        except JudgeError:
            return verdict, reply, reminders + 1
        replaced = _read(self.kind, again)
        if replaced is None:
            return verdict, reply, reminders + 1
        return replaced, again, reminders + 1

    async def _with_reminder(self) -> tuple[R, Reply, int]:
        answered_by, why = None, ""
        for reminders, last in enumerate(("", REMINDER)):
            try:
                reply = await self._send(last)
            except JudgeError as error:
                about = self._about(self.spending, answered_by, reminders)
                raise Unanswered(f"the judge could not answer: {error}", about) from None
            answered_by = reply.model
            try:
                return self.kind.read(reply.tool_calls), reply, reminders
            except NoVerdict as reason:
                why = str(reason)
        raise Unanswered(f"no verdict, also after a reminder: {why}", self._about(self.spending, answered_by, 1))

    async def _send(self, last: str) -> Reply:
        request = _request(self.question, self.kind, self.model, last)
        reported = NOTHING
        try:
            with metering() as meter:
                reply: Reply = await self.judge.ask(request)
            reported = reply.spending
        except JudgeError as error:
            reported = error.spending
            raise
        finally:
            # A judge with an `ask` of its own bills nothing by itself; what it reports counts then.
            billed = meter.spending if meter.spending.count else reported
            self.spending += billed
            bill(billed)
        return reply

    def answered(
        self, verdict: R, reply: Reply, reminders: int, spending: Spending, *, cached: bool = False
    ) -> JudgeAnswer[R]:
        """Return a verdict with what it took to get it."""
        return JudgeAnswer(verdict, reply.text, self._about(spending, reply.model, reminders, cached=cached))

    def _about(
        self, spending: Spending, answered_by: str | None, reminders: int, *, cached: bool = False
    ) -> dict[str, JSON]:
        """Return `details.judge`; an amount is None where nothing of it was reported."""
        by = getattr(self.judge, "verdict_by", "tool")
        marked: dict[str, JSON] = {} if by == "tool" else {"verdict_by": by}
        if spending.without_cost and not cached:
            marked["requests_without_cost"] = spending.without_cost
        tokens: dict[str, JSON] = {"input": spending.input_tokens, "output": spending.output_tokens}
        if spending.count:
            tokens = {name: count or None for name, count in tokens.items()}
        is_unknown = spending.without_cost and not spending.cost_usd
        return marked | {
            "type": self.judge.type_name() if isinstance(self.judge, Judge) else type(self.judge).__name__,
            "model": self.model or None,
            "answered_by": answered_by,
            "tokens": tokens,
            "cost_usd": 0.0 if cached else None if is_unknown else spending.cost_usd,
            "requests": 0 if cached else spending.count,
            "cached": cached,
            "seconds": round(time.perf_counter() - self._started, 3),
            "reminders": reminders,
        }


def _request(question: Question, kind: Kind[R], model: str, last: str = "", *, marker: str = "") -> Request:
    """Return the request; `last` is what it ends with where the judge is asked again."""
    tools = " or ".join(tool.name for tool in kind.tools)
    if kind.criteria:
        tools += f" once for each of the {kind.criteria} criteria, with its number as `criterion`"
    parts = [*question.parts, (last or "Now give your verdict by calling {tools}.").format(tools=tools)]
    messages = (Message("system", RULES), Message("user", rendered(parts, marker or marker_of(parts))))
    return Request(messages, kind.tools, model, question.reasoning_effort, kind.criteria)


def _key(judge: Judge, question: Question, kind: Kind[R], model: str) -> str:
    request = _request(question, kind, model, marker="-")
    messages = [message.content for message in request.messages]
    tools = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    effort = request.reasoning_effort or judge.reasoning_effort
    return key_of(judge.identity() | {"model": model, "reasoning_effort": effort}, question.rubric, messages, tools)


def _read(kind: Kind[R], reply: Reply) -> R | None:
    try:
        return kind.read(reply.tool_calls)
    except NoVerdict:
        return None


# Verdicts that were paid for once: a file each, named after everything that could have changed the answer.
#
# Each is signed with the user's key and counts only under its own name: an entry that somebody else wrote, or that was
# moved or changed, is ignored, and the judge is asked.

VERSION = 2
"""Raised when questions are put in another way: older answers are then not used."""


_PURPOSE = b"waza verdicts"
_MOST_BYTES = 1 << 24


class Recalled(NamedTuple):
    """What the cache holds of a question."""

    reply: Reply | None = None
    is_refused: bool = False
    """Whether an entry is there that was not signed with the user's key for this question."""


def key_of(*parts: JSON) -> str:
    """Return a name that changes with anything in the parts."""
    return hashlib.sha256(msgspec.json.encode([VERSION, *parts], order="deterministic")).hexdigest()


def recall(folder: Path | None, key: str) -> Recalled:
    """Return the reply kept under that name, if there is one that the user's key signed."""
    if folder is None:
        return Recalled()
    try:
        with open_regular(_place(folder, key)) as file:
            signature, _, content = file.read(_MOST_BYTES).partition(b"\n")
    except FileNotFoundError:
        return Recalled()
    except OSError:
        return Recalled(is_refused=True)
    signing = read_key()
    if signing is None or not compare_digest(signature, _signature(signing, key, content)):
        return Recalled(is_refused=True)
    try:
        return Recalled(msgspec.json.decode(content, type=Reply))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Recalled()


def remember(folder: Path | None, key: str, reply: Reply) -> None:
    """Keep a reply; a disk that is full or read-only costs the next run a request, nothing else."""
    if folder is None:
        return
    with suppress(OSError, StoreError):
        content = msgspec.json.encode(reply)
        place = _place(folder, key)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _ignore(folder)
        write_atomically(place, _signature(make_key(), key, content) + b"\n" + content)


def _signature(signing: bytes, key: str, content: bytes) -> bytes:
    return keyed_hash(signing, _PURPOSE, key.encode() + content).encode()


def _place(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key[2:]}.json"


def _ignore(folder: Path) -> None:
    """Keep a cache that a caller has put into a project out of version control."""
    with suppress(FileExistsError):
        descriptor = os.open(folder / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(descriptor, "w") as file:
            file.write("*\n")


# The one event loop all judges are asked on, in a thread of its own.
#
# Connections, limits and pauses belong to one loop; so a plain `grade()`, with or without a loop of the caller's, and
# a
# run with many trials share them, and many verdicts at once need no thread each.

T = TypeVar("T")

_LOCK = threading.Lock()
_LOOP: list[asyncio.AbstractEventLoop] = []


def wait_for_judge(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine comes to on the judges' loop, for plain code."""
    future = _start(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def judged(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine comes to on the judges' loop, for code on a loop of its own; cancelling goes through."""
    if _LOOP and asyncio.get_running_loop() is _LOOP[0]:
        return await work
    return await asyncio.wrap_future(_start(work))


def _start(work: Coroutine[Any, Any, T]) -> Future[T]:
    with _LOCK:
        if not _LOOP:
            _LOOP.append(asyncio.new_event_loop())
            threading.Thread(target=_LOOP[0].run_forever, name="waza-judges", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, _LOOP[0])
