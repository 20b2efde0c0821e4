"""Asking again after a passing fault: how often, and after how long."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TypeVar

from waza.errors import JudgeError
from waza.judges._pace import Pace
from waza.spending import NOTHING, Spending

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
