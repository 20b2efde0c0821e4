"""One question to a judge and its verdict: from the cache, at the first asking, or after one reminder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from waza.errors import JudgeError
from waza.judges._base import Effort, Judge, Message, Reply, Request
from waza.judges._cache import key_of, recall, remember
from waza.judges._fence import RULES, Data, marker_of, rendered
from waza.judges._pace import per_loop
from waza.judges._verdicts import Kind, NoVerdict
from waza.model import JSON
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


class Answer(NamedTuple, Generic[R]):
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


async def answer(judge: Any, question: Question, kind: Kind[R]) -> Answer[R]:
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
    ) -> Answer[R]:
        """Return a verdict with what it took to get it."""
        return Answer(verdict, reply.text, self._about(spending, reply.model, reminders, cached=cached))

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
