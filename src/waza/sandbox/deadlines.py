"""Many time limits, one timer: nearly all are lifted before they are over, and a timer each would cost too much."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from itertools import count
from weakref import WeakKeyDictionary

_TICK_S = max(1e-6, time.get_clock_info("monotonic").resolution)
"""An event loop may call a timer by that much too early."""


class Deadlines:
    """The time limits of one event loop; only the next one that may be over has a timer of the loop."""

    def __init__(self) -> None:
        self._set: dict[int, tuple[float, Callable[[], None]]] = {}
        self._numbers = count()
        self._next_look = math.inf

    def set(self, seconds: float, on_over: Callable[[], None]) -> int:
        """Call `on_over` in so many seconds, unless what is returned is handed to `lift` before."""
        loop = asyncio.get_running_loop()
        number, when = next(self._numbers), loop.time() + max(seconds, 0.0)
        self._set[number] = when, on_over
        self._look_at(when, loop)
        return number

    def lift(self, number: int) -> None:
        """Take back a limit; one that is over already is none."""
        self._set.pop(number, None)

    def _look_at(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        if when < self._next_look:
            self._next_look = when
            loop.call_at(when, self._look)

    def _look(self) -> None:
        """Tell of every limit that is over; the timer may have been set for one that was lifted since."""
        loop = asyncio.get_running_loop()
        now, self._next_look = loop.time() + _TICK_S, math.inf
        over = [number for number, (when, _) in self._set.items() if when <= now]
        told = [self._set.pop(number)[1] for number in over]
        if self._set:
            self._look_at(min(when for when, _ in self._set.values()), loop)
        for on_over in told:
            on_over()


_OF_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, Deadlines] = WeakKeyDictionary()


def deadlines() -> Deadlines:
    """Return the time limits of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _OF_LOOP.get(loop)
    return _OF_LOOP.setdefault(loop, Deadlines()) if found is None else found
