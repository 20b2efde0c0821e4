"""How fast one endpoint may be asked: so many requests a minute, so many at once, a pause for all if it says so."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from waza.errors import JudgeError
from waza.spending import NOTHING, Spending

Thing = TypeVar("Thing")
Sleep = Callable[[float], Awaitable[Any]]

_THINGS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Any]] = WeakKeyDictionary()


def per_loop(key: Hashable, make: Callable[[], Thing]) -> Thing:
    """Return the one thing of that name that belongs to the running event loop, made when first asked for."""
    things = _THINGS.setdefault(asyncio.get_running_loop(), {})
    if key not in things:
        things[key] = make()
    thing: Thing = things[key]
    return thing


class Pace:
    """Lets requests begin in turn; `clock` and `sleep` are the time they go by."""

    def __init__(
        self,
        per_minute: int,
        at_once: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.clock = clock
        self.sleep = sleep
        self._gap_s = 60 / per_minute if per_minute else 0.0
        self._free = asyncio.Semaphore(at_once)
        self._next = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and hold one of the places until the request is over."""
        async with self._free:
            now = self.clock()
            start = max(now, self._next)
            self._next = start + self._gap_s
            if start > now:
                await self.sleep(start - now)
            yield

    def pause(self, seconds: float) -> None:
        """Let nobody begin for a while: the endpoint is overloaded for all."""
        self._next = max(self._next, self.clock() + seconds)


def pace_for(endpoint: str, per_minute: int, at_once: int) -> Pace:
    """Return the pace that everyone who asks this endpoint shares."""
    return per_loop(("pace", endpoint, per_minute, at_once), lambda: Pace(per_minute, at_once))


# Asking again after a passing fault: how often, and after how long.

Answer = TypeVar("Answer")

FIRST_WAIT_S = 0.5
REPEATED = frozenset((408, 409, 425, 429))
"""Statuses below 500 that asking again may mend."""


async def persist(
    attempt: Callable[[], Awaitable[Answer]],
    pace: Pace,
    *,
    retries: int,
    max_wait_s: float,
    chance: Callable[[], float] = random.random,
) -> tuple[Answer, Spending]:
    """Return what an attempt gives, repeated after faults that pass, and what the attempts before it were billed.

    Raises the last JudgeError when the faults do not pass, with what all attempts were billed.
    """
    spending = NOTHING
    for number in range(retries + 1):
        try:
            async with pace.turn():
                return await attempt(), spending
        except JudgeError as error:
            spending += error.spending
            if not error.is_passing:
                error.spending = spending
                raise
            if number == retries:
                tries = f" ({retries + 1} attempts)" if retries else ""
                raise JudgeError(f"{error}{tries}", is_passing=True, spending=spending) from None
            wait_s = wait_before(number, error.wait_s, max_wait_s, chance())
            if error.wait_s is not None:
                pace.pause(wait_s)
            await pace.sleep(wait_s)
    raise AssertionError("there is at least one attempt")


def wait_before(number: int, asked_s: float | None, max_wait_s: float, chance: float) -> float:
    """Return the seconds to wait after attempt `number`: as asked, else doubling, half of it by chance; clamped."""
    if asked_s is not None:
        return min(max(asked_s, 0.0) + chance * FIRST_WAIT_S, max_wait_s)
    return min(FIRST_WAIT_S * 2.0**number * (0.5 + chance / 2), max_wait_s)


def asked_wait(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
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
    """Return a header's number; None where it is none, or none that counts (nan)."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return None if math.isnan(number) else number
