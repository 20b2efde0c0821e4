"""The time limits of one answer that arrives in pieces: until the first, between two, and in all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from waza.errors import JudgeError
from waza.judges._base import Timeouts

_END = object()


async def pieces(opening: Awaitable[Any], limits: Timeouts) -> AsyncIterator[Any]:
    """Yield the pieces of the stream that `opening` opens, each in time; raise JudgeError where one is late."""
    stream = None
    try:
        async with within(limits.first_byte_seconds, "did not begin to answer"):
            stream = await opening
            iterator = aiter(stream)
            piece = await anext(iterator, _END)
        while piece is not _END:
            yield piece
            async with within(limits.idle_seconds, "stopped in the middle of its answer"):
                piece = await anext(iterator, _END)
    finally:
        if stream is not None:
            await stream.close()


@asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """Do something in time; raise JudgeError that says what the model did not do."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise JudgeError(f"the model {what} within {seconds:g} s", is_passing=True) from None
