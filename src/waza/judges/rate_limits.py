"""Rate limits and retries: requests per minute, requests at once, pauses that an endpoint asks for, retry with backoff,
and an end to requests where a judge's server is out of order.

Judges share one `Pace` per endpoint; `AgentPace` paces the starts of agents with the same class.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager, nullcontext
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from waza.errors import JudgeError
from waza.model import Trace
from waza.spending import NOTHING, Spending

Shared = TypeVar("Shared")
Answer = TypeVar("Answer")
Sleep = Callable[[float], Awaitable[Any]]

FIRST_WAIT_S = 0.5
RETRIED = frozenset((408, 409, 425, 429))
"""Statuses below 500 after which a retry may succeed."""

_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Any]] = WeakKeyDictionary()


def per_loop(key: Hashable, make: Callable[[], Shared]) -> Shared:
    """Return the object with this key that belongs to the running event loop; it is made when first needed."""
    objects = _SHARED.setdefault(asyncio.get_running_loop(), {})
    if key not in objects:
        objects[key] = make()
    shared: Shared = objects[key]
    return shared


class Pace:
    """Spaces the starts of requests, limits how many run at once, and pauses all of them."""

    def __init__(
        self,
        per_minute: int = 0,
        at_once: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.clock = clock
        self.sleep = sleep
        self._gap_s = 60 / per_minute if per_minute else 0.0
        self._slots = asyncio.Semaphore(at_once) if at_once else nullcontext()
        self._next = self.paused_until = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until a request may start, and count it as running until the block ends."""
        async with self._slots:
            await self.begin()
            yield

    async def begin(self) -> None:
        """Return when the next request may start; at once where there is neither a limit nor a pause."""
        start = max(self.clock(), self._next)
        self._next = start + self._gap_s
        await self._until(start)
        while self.paused_until > self.clock():  # a pause may begin while others wait for their start
            await self._until(self.paused_until)

    def pause(self, seconds: float) -> None:
        """Start no request for a while: the endpoint is overloaded for all."""
        self.paused_until = max(self.paused_until, self.clock() + seconds)
        self._next = max(self._next, self.paused_until)

    async def _until(self, moment: float) -> None:
        if (left := moment - self.clock()) > 0:
            await self.sleep(left)


def pace_for(endpoint: str, per_minute: int, at_once: int) -> Pace:
    """Return the pace that all requests to this endpoint share."""
    return per_loop(("pace", endpoint, per_minute, at_once), lambda: Pace(per_minute, at_once))


class Breaker:
    """Ends the requests to a judge that fails the same way every time: a wrong key, a server that is out of order.

    After `FAILURES` such failures in a row the judge is asked once more, while the others wait for the result; if that
    fails the same way too, it is not asked again. Any other result of a request starts the count anew.
    """

    FAILURES: ClassVar[int] = 3
    POLL_S: ClassVar[float] = 0.02

    def __init__(self) -> None:
        self._kind = self._fact = ""
        self._failures = 0
        self._is_last_running = False
        self.is_open = False
        """Whether the judge is not asked any more."""

    @asynccontextmanager
    async def request(self, sleep: Sleep) -> AsyncIterator[None]:
        """Count the result of the request in the block; raise JudgeError instead where none is made any more."""
        self.check()
        # Polling, because requests of one judge may come from several event loops, which share no lock.
        while self._failures >= self.FAILURES and self._is_last_running:
            await sleep(self.POLL_S)
            self.check()
        is_last = self._is_last_running = self._failures >= self.FAILURES
        try:
            yield
            self._failures = 0
        except JudgeError as error:
            self._count(error, is_last)
            raise
        finally:
            if is_last:
                self._is_last_running = False

    def check(self) -> None:
        """Raise JudgeError where the judge is not asked any more."""
        if self.is_open:
            failed = f"{self._failures} requests in a row failed the same way"
            raise JudgeError(f"not asked again in this run, {failed}: {self._fact}")

    def _count(self, error: JudgeError, is_last: bool) -> None:
        if not error.kind:
            self._failures = 0
            return
        is_same = error.kind == self._kind
        self._failures = self._failures + 1 if is_same else 1
        self._kind, self._fact = error.kind, str(error)
        self.is_open = self.is_open or (is_last and is_same)


async def retry(
    attempt: Callable[[], Awaitable[Answer]],
    pace: Pace,
    *,
    retries: int,
    max_wait_s: float,
    chance: Callable[[], float] = random.random,
    breaker: Breaker | None = None,
) -> tuple[Answer, Spending]:
    """Return the result of an attempt, retried after temporary failures, and the cost of the failed attempts.

    Raises the last JudgeError with the cost of all attempts when none succeeds, or when the breaker allows no more.
    """
    spending = NOTHING
    breaker = breaker or Breaker()
    for number in range(retries + 1):
        try:
            breaker.check()
            async with pace.turn(), breaker.request(pace.sleep):
                return await attempt(), spending
        except JudgeError as error:
            spending += error.spending
            if not error.is_transient:
                error.spending = spending
                raise
            if number == retries or breaker.is_open:
                tries = f" ({number + 1} attempts)" if number else ""
                raise JudgeError(f"{error}{tries}", is_transient=True, spending=spending, kind=error.kind) from None
            wait_s = wait_before(number, error.wait_s, max_wait_s, chance())
            if error.wait_s is not None:
                pace.pause(wait_s)
            await pace.sleep(wait_s)
    raise AssertionError("there is at least one attempt")


def wait_before(number: int, asked_s: float | None, max_wait_s: float, chance: float) -> float:
    """Return the seconds to wait after attempt `number`: as the server asks, else exponential with jitter; capped."""
    if asked_s is not None:
        return min(max(asked_s, 0.0) + chance * FIRST_WAIT_S, max_wait_s)
    return min(FIRST_WAIT_S * 2.0**number * (0.5 + chance / 2), max_wait_s)


def retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that `retry-after-ms` or `Retry-After` (seconds or a date) asks for, or None."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        return parsedate_to_datetime(text).timestamp() - now()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _number(text: str | None) -> float | None:
    """Return a header's number; None where it is not a number, or NaN."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return None if math.isnan(number) else number


FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 120.0
_LIMITED = re.compile(r"\b429\b|rate.?limit|too many requests|resource.?exhausted|\b529\b|overloaded", re.IGNORECASE)
_ASKED = re.compile(
    r"(?:retry[- ]?after|try again in|retry in)\W{0,3}(\d{1,6}(?:\.\d+)?)\s?(ms|m(?=\d|\b|in))?", re.IGNORECASE
)
_UNITS = {"ms": 0.001, "m": 60.0}


class AgentPace:
    """The pace of all agents of the same vendor."""

    def __init__(
        self, per_minute: int = 0, *, clock: Callable[[], float] = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._pace = Pace(per_minute, clock=clock, sleep=sleep)
        self._refusals = 0

    async def begin(self) -> None:
        """Return when the next agent may start; at once where there is neither a limit nor a pause."""
        await self._pace.begin()

    def record(self, trace: Trace) -> float:
        """Record how an agent ended; return the seconds of the pause that begins if the vendor refused it, else 0.

        Refusals during a pause belong to the one that caused it.
        """
        if trace.status != "error" or not _LIMITED.search(trace.error or ""):
            self._refusals = 0 if trace.status == "success" else self._refusals
            return 0.0
        now = self._pace.clock()
        is_new = self._pace.paused_until <= now
        self._refusals += is_new
        asked_s = _asked_s(trace.error or "")
        pause_s = FIRST_PAUSE_S * 2.0 ** (self._refusals - 1) if asked_s is None else asked_s
        self._pace.pause(min(pause_s, LONGEST_PAUSE_S))
        return self._pace.paused_until - now if is_new else 0.0


def _asked_s(text: str) -> float | None:
    """Return the seconds that an error message asks to wait; None where it does not."""
    match = _ASKED.search(text)
    return float(match[1]) * _UNITS.get((match[2] or "").lower(), 1.0) if match else None


def agent_pace(engine: str, base_url: str | None, per_minute: int) -> AgentPace:
    """Return the pace that all agents of this engine, at this model server, share."""
    key = ("agents", engine, base_url, per_minute)
    return per_loop(key, lambda: AgentPace(per_minute))
