"""How fast one endpoint may be asked: so many requests a minute, so many at once, a pause for all if it says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

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
