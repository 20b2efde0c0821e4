"""A few at a time, though many come at once."""

from __future__ import annotations

import asyncio
from collections import deque

A_ROUND = 4
"""How many are let through in a round: fewer would cost a round of the event loop for little work."""


class Turns:
    """Lets a few through in each round of the event loop.

    Agents of equal length end together. If all were graded in the same round, the next agents would start only after
    the last grade: the whole width would wait. A few a round, the next agents start while the others are graded.
    """

    def __init__(self) -> None:
        self._left = A_ROUND
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return when it is our turn: at once if few were let through in this round."""
        loop = asyncio.get_running_loop()
        if self._left == A_ROUND:
            loop.call_soon(self._next)
        if self._left:
            self._left -= 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        """Begin a round: let the next ones through who still wait."""
        self._left = A_ROUND
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():
                if self._left == A_ROUND:
                    turn.get_loop().call_soon(self._next)
                turn.set_result(None)
                self._left -= 1
