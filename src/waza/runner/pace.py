"""The pace of starting agents: starts per minute, and a pause for all after a vendor's rate limit error."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

from waza.engines.base import Engine
from waza.judges.rate_limits import Pace, Sleep, per_loop
from waza.model import Trace

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


def pace_for(engine: Engine, name: str, per_minute: int) -> AgentPace:
    """Return the pace that all agents of this engine, at this model server, share."""
    key = ("agents", name, getattr(engine, "base_url", None), per_minute)
    return per_loop(key, lambda: AgentPace(per_minute))
