"""How fast agents may be started: so many a minute, and a pause for all when the vendor says that it is too many."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

from waza.engines.base import Engine
from waza.judges.rate_limits import Sleep, per_loop
from waza.model import Trace

FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 120.0
_LIMITED = re.compile(r"\b429\b|rate.?limit|too many requests|resource.?exhausted|\b529\b|overloaded", re.IGNORECASE)
_ASKED = re.compile(
    r"(?:retry[- ]?after|try again in|retry in)\W{0,3}(\d{1,6}(?:\.\d+)?)\s?(ms|m(?=\d|\b|in))?", re.IGNORECASE
)
_UNITS = {"ms": 0.001, "m": 60.0}


class AgentPace:
    """The pace of all agents that ask the same vendor."""

    def __init__(
        self, per_minute: int = 0, *, clock: Callable[[], float] = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._gap_s = 60 / per_minute if per_minute else 0.0
        self._clock, self._sleep = clock, sleep
        self._next = self._open_at = 0.0
        self._refusals = 0

    async def begin(self) -> None:
        """Return when the next agent may start; nobody waits where there is neither a limit nor a pause."""
        if self._gap_s:
            start = max(self._clock(), self._next)
            self._next = start + self._gap_s
            await self._until(start)
        while self._open_at > self._clock():
            await self._until(self._open_at)

    def heard(self, trace: Trace) -> float:
        """Take in how an agent ended; return for how many seconds nobody starts if the vendor refused it, else 0.

        Refusals that come while all wait already belong to the same one.
        """
        if trace.status != "error" or not _LIMITED.search(trace.error or ""):
            self._refusals = 0 if trace.status == "success" else self._refusals
            return 0.0
        now = self._clock()
        is_new = self._open_at <= now
        self._refusals += is_new
        asked_s = _asked_s(trace.error or "")
        pause_s = FIRST_PAUSE_S * 2.0 ** (self._refusals - 1) if asked_s is None else asked_s
        self._open_at = max(self._open_at, now + min(pause_s, LONGEST_PAUSE_S))
        return self._open_at - now if is_new else 0.0

    async def _until(self, moment: float) -> None:
        if (left := moment - self._clock()) > 0:
            await self._sleep(left)


def _asked_s(text: str) -> float | None:
    """Return the seconds that a refusal asks to wait, where it says so."""
    found = _ASKED.search(text)
    return float(found[1]) * _UNITS.get((found[2] or "").lower(), 1.0) if found else None


def pace_for(engine: Engine, name: str, per_minute: int) -> AgentPace:
    """Return the pace that all agents of this engine, at this model server, share."""
    key = ("agents", name, getattr(engine, "base_url", None), per_minute)
    return per_loop(key, lambda: AgentPace(per_minute))
