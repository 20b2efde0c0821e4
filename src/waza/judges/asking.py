"""Ask a judge one question: the request and its reminders, the cache of verdicts, the event loop all judges share.

The cache has one file per verdict, named by a hash of everything that can change the answer. Each is signed with the
user's key for that name: an entry that somebody else wrote, moved or changed is ignored, and the judge is asked.

All judges run on one event loop in a thread of its own, because connections and rate limits belong to a loop. So plain
code, code on a loop of its own and runs with many trials share them.
"""

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
from waza.untrusted.text import clipped, visible

R = TypeVar("R")
T = TypeVar("T")

REMINDER = "You were asked before, and no valid verdict came. Give it now by calling {tools}; nothing else counts."
"""It does not quote the invalid reply, which may contain text of the candidate."""
REASON = "You were asked before, and a verdict came without a reason. Give it again by calling {tools}, with a reason."
VERSION = 3
"""Increased when requests change in form: older verdicts are then not used."""
_PURPOSE = b"waza verdicts"
_SHOWN = 200
"""How much of a reply without a verdict is shown."""
_MAX_ENTRY_BYTES = 1 << 24
_LOCK = threading.Lock()
_LOOP: list[asyncio.AbstractEventLoop] = []


class Question(NamedTuple):
    """A question to a judge, before foreign text is fenced."""

    parts: Sequence[str | Data]
    model: str = ""
    reasoning_effort: Effort | None = None
    rubric: str = ""
    """The hash of the rubric in use."""
    project: str = ""
    """The name of the project that asks."""


class JudgeAnswer(NamedTuple, Generic[R]):
    """A verdict, and how it was obtained."""

    verdict: R
    text: str
    judge: dict[str, JSON]
    """`details.judge`: type, model, answered_by, tokens, cost_usd, requests, cached, seconds, reminders, `verdict_by`
    where it was not by a tool call, `requests_without_cost` where there were some, `unsupported` where default
    parameters were left out because the model refuses them."""


class Unanswered(JudgeError):
    """Raised when a judge gives no verdict; `judge` is `details.judge` of the failed requests."""

    def __init__(self, message: str, judge: dict[str, JSON]) -> None:
        super().__init__(message)
        self.judge = judge


async def answer(judge: Any, question: Question, kind: Kind[R]) -> JudgeAnswer[R]:
    """Return the judge's verdict; raise Unanswered when it gives none, also after a reminder."""
    conversation = _JudgeConversation(judge, question, kind)
    folder = getattr(judge, "cache", None)
    if folder is None or not judge.is_cacheable:
        return conversation.answered(*await conversation.ask(), conversation.spending)
    key = _key(judge, question, kind, conversation.model)
    async with _question_lock(key):
        cached, is_refused = read_cached(folder, key)
        if cached is not None and (verdict := _read(kind, cached)) is not None:
            return conversation.answered(verdict, cached, 0, cached.spending, cached=True)
        verdict, reply, reminders = await conversation.ask()
        store_reply(folder, key, reply)
        answered = conversation.answered(verdict, reply, reminders, conversation.spending)
        if is_refused:
            answered.judge["cache_entry_refused"] = True
        return answered


def _question_lock(key: str) -> asyncio.Lock:
    """Return the lock of a question: equal questions at the same time wait for the first one's answer."""
    locks: WeakValueDictionary[str, asyncio.Lock] = per_loop("questions", WeakValueDictionary)
    return locks.setdefault(key, asyncio.Lock())


class _JudgeConversation(Generic[R]):
    """The requests to a judge about one question."""

    def __init__(self, judge: Any, question: Question, kind: Kind[R]) -> None:
        self.judge, self.question, self.kind = judge, question, kind
        self.model: str = question.model or getattr(judge, "model", "")
        self.spending = NOTHING
        """Cost of all requests so far, failed ones included."""
        self._started = time.perf_counter()

    async def ask(self) -> tuple[R, Reply, int]:
        """Return the verdict, the reply it was read from, and how often the judge was asked again.

        A verdict without a reason is requested once more. A valid second verdict replaces the first as a whole;
        otherwise the first one counts.
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
                why = f"{reason}{self._instead(reply)}"
        raise Unanswered(f"no verdict, also after a reminder: {why}", self._about(self.spending, answered_by, 1))

    def _instead(self, reply: Reply) -> str:
        """Return where a reply without a verdict came from, how its text begins, and which setting may help."""
        address = getattr(self.judge, "address", "")
        text = clipped(visible(" ".join(reply.text.split())), _SHOWN)
        found = f"{address or 'it'} answered: {text}" if text else f"asked {address}" if address else ""
        advice = self.judge.advice() if isinstance(self.judge, Judge) and not reply.tool_calls else ""
        return "".join(f"; {part}" for part in (found, advice) if part)

    async def _send(self, last: str) -> Reply:
        request = request_for(self.question, self.kind, self.model, last)
        reported = NOTHING
        try:
            with metering() as meter:
                reply: Reply = await self.judge.ask(request)
            reported = reply.spending
        except JudgeError as error:
            reported = error.spending
            raise
        finally:
            # A judge that overrides `ask` does not bill; then the cost in its reply or error counts.
            billed = meter.spending if meter.spending.count else reported
            self.spending += billed
            bill(billed)
        return reply

    def answered(
        self, verdict: R, reply: Reply, reminders: int, spending: Spending, *, cached: bool = False
    ) -> JudgeAnswer[R]:
        """Return a verdict with `details.judge`."""
        about = self._about(spending, reply.model, reminders, cached=cached)
        if reply.unsupported:
            about["unsupported"] = list(reply.unsupported)
        return JudgeAnswer(verdict, reply.text, about)

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


def request_for(question: Question, kind: Kind[R], model: str, last: str = "", *, marker: str = "") -> Request:
    """Return the request; `last` is its last sentence where the judge is asked again."""
    tools = " or ".join(tool.name for tool in kind.tools)
    if kind.criteria:
        tools += f" once for each of the {kind.criteria} criteria, with its number as `criterion`"
    parts = [*question.parts, (last or "Now give your verdict by calling {tools}.").format(tools=tools)]
    messages = (
        Message("system", RULES),
        Message("user", rendered(parts, marker or marker_of(parts, question.project))),
    )
    return Request(messages, kind.tools, model, question.reasoning_effort, kind.criteria)


def _key(judge: Judge, question: Question, kind: Kind[R], model: str) -> str:
    request = request_for(question, kind, model, marker="-")
    messages = [message.content for message in request.messages]
    tools = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    effort = request.reasoning_effort or judge.reasoning_effort
    return key_of(judge.identity() | {"model": model, "reasoning_effort": effort}, question.rubric, messages, tools)


def _read(kind: Kind[R], reply: Reply) -> R | None:
    try:
        return kind.read(reply.tool_calls)
    except NoVerdict:
        return None


class CachedReply(NamedTuple):
    """A cached reply to a question."""

    reply: Reply | None = None
    is_refused: bool = False
    """Whether there is an entry that the user's key did not sign for this question."""


def key_of(*parts: JSON) -> str:
    """Return a hash of all parts, as the name of a cache entry."""
    return hashlib.sha256(msgspec.json.encode([VERSION, *parts], order="deterministic")).hexdigest()


def read_cached(folder: Path | None, key: str) -> CachedReply:
    """Return the cached reply with that name, if the user's key signed it."""
    if folder is None:
        return CachedReply()
    try:
        with open_regular(_entry_path(folder, key)) as file:
            signature, _, content = file.read(_MAX_ENTRY_BYTES).partition(b"\n")
    except FileNotFoundError:
        return CachedReply()
    except OSError:
        return CachedReply(is_refused=True)
    signing = read_key()
    if signing is None or not compare_digest(signature, _signature(signing, key, content)):
        return CachedReply(is_refused=True)
    try:
        return CachedReply(msgspec.json.decode(content, type=Reply))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return CachedReply()


def store_reply(folder: Path | None, key: str, reply: Reply) -> None:
    """Store a reply in the cache; without space or permission the next run asks again."""
    if folder is None:
        return
    with suppress(OSError, StoreError):
        content = msgspec.json.encode(reply)
        path = _entry_path(folder, key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_gitignore(folder)
        write_atomically(path, _signature(make_key(), key, content) + b"\n" + content)


def _signature(signing: bytes, key: str, content: bytes) -> bytes:
    return keyed_hash(signing, _PURPOSE, key.encode() + content).encode()


def _entry_path(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key[2:]}.json"


def _write_gitignore(folder: Path) -> None:
    """Exclude a cache inside a project from version control."""
    with suppress(FileExistsError):
        descriptor = os.open(folder / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(descriptor, "w") as file:
            file.write("*\n")


def wait_for_judge(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine on the judges' loop, for plain code."""
    future = _start(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def judged(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine on the judges' loop, for code on another loop; cancelling is passed on."""
    if _LOOP and asyncio.get_running_loop() is _LOOP[0]:
        return await work
    return await asyncio.wrap_future(_start(work))


def _start(work: Coroutine[Any, Any, T]) -> Future[T]:
    with _LOCK:
        if not _LOOP:
            _LOOP.append(asyncio.new_event_loop())
            threading.Thread(target=_LOOP[0].run_forever, name="waza-judges", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, _LOOP[0])
