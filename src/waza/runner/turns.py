"""One at a time, though many come at once."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Lets one through in each round of the event loop.

    Agents of equal length end together. If all were graded in the same round, the next agents would start only after
    the last grade: the whole width would wait. One a round, each next agent starts while the others are graded.
    """

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return when it is our turn: at once if nobody else was let through in this round."""
        loop = asyncio.get_running_loop()
        if not self._taken:
            self._taken = True
            loop.call_soon(self._next)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        """Let the next one through who still waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                turn.get_loop().call_soon(self._next)
                return
        self._taken = False
