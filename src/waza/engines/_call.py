"""Call a foreign function beside the event loop, for a limited time, and contain whatever it raises."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, NoReturn

from waza.sandbox.deadlines import deadlines

_GRACE_S = 1.0
"""How long a cancelled coroutine may take to tidy up."""
_end_process = os._exit
_agent_process: contextvars.ContextVar[int] = contextvars.ContextVar("agent_process", default=0)
"""The process in which an agent is called; another number is a child that the agent forked."""


def _end_call(status: int) -> NoReturn:
    """Replace `os._exit` while agents work: it would end the whole run without a word, with a code of the agent's."""
    if _agent_process.get() == os.getpid():
        raise SystemExit(status)
    _end_process(status)


def _agent_context() -> contextvars.Context:
    """Return the context of a call: what waza itself does outside of it keeps the real `os._exit`."""
    context = contextvars.copy_context()
    context.run(_agent_process.set, os.getpid())
    return context


class Outcome(NamedTuple):
    """What came of a call: a value, or an error."""

    value: Any = None
    error: BaseException | None = None


async def call(function: Callable[[], Any], timeout_s: float, *, is_async: bool) -> Outcome | None:
    """Return what a function gives back or raises, None when time ran out first.

    A plain function gets a thread to itself: a pool of fixed size would be used up by functions that never return, and
    would keep waza from ending. What it gives back is awaited if it can be.
    """
    os._exit = _end_call
    began = time.monotonic()
    outcome = Outcome(function()) if is_async else await _within(_in_thread(function), timeout_s)
    if outcome is None or not inspect.isawaitable(outcome.value):
        return outcome
    return await _awaited(outcome.value, timeout_s - (time.monotonic() - began))


Settled = asyncio.Future[Outcome | None]
"""What came of a call; None where nobody waits for it any more."""


async def _within(settled: Settled, timeout_s: float) -> Outcome | None:
    limits = deadlines()
    limit = limits.set(timeout_s, partial(_settle, settled, None))
    try:
        return await settled
    finally:
        limits.lift(limit)


def _settle(settled: Settled, outcome: Outcome | None) -> None:
    if not settled.done():
        settled.set_result(outcome)


async def _awaited(awaitable: Awaitable[Any], timeout_s: float) -> Outcome | None:
    """Return what an awaitable comes to, in a task of its own: one that does not let itself be ended is left behind."""
    settled: Settled = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(_contained(awaitable, settled), context=_agent_context())
    try:
        outcome = await _within(settled, timeout_s)
    except asyncio.CancelledError:
        work.cancel()
        raise
    if outcome is None:
        work.cancel()
        await asyncio.wait({work}, timeout=_GRACE_S)
    return outcome


async def _contained(awaitable: Awaitable[Any], settled: Settled) -> None:
    try:
        outcome = Outcome(await awaitable)
    except asyncio.CancelledError:
        outcome = Outcome(error=RuntimeError("it cancelled itself"))
    except (KeyboardInterrupt, GeneratorExit):  # not the agent's: somebody ends the process, or the loop
        raise
    except BaseException as error:  # noqa: BLE001  an agent's own errors must not end the run, SystemExit neither
        outcome = Outcome(error=error)
    _settle(settled, outcome)


Work = Callable[[], Callable[[], None]]
"""Does something, and returns what tells of it."""
_idle: list[SimpleQueue[Work]] = []
"""Where threads wait that have nothing to do; one whose function never returns does not come back here."""


def _in_thread(function: Callable[[], Any]) -> Settled:
    """Let a thread that has nothing to do call the function, or a new one; none of them keeps waza from ending."""
    loop = asyncio.get_running_loop()
    settled: Settled = loop.create_future()
    context = _agent_context()

    def work() -> Callable[[], None]:
        try:
            outcome = Outcome(context.run(function))
        except BaseException as error:  # noqa: BLE001  an agent's own errors must not end the run, SystemExit neither
            outcome = Outcome(error=error)
        return lambda: _tell(loop, settled, outcome)

    try:
        _idle.pop().put(work)
    except IndexError:
        threading.Thread(target=_serve, args=(work,), name="waza-agent", daemon=True).start()
    return settled


def _serve(work: Work) -> None:
    """Do one work after the other; whoever is told of its end may have the thread at once."""
    desk: SimpleQueue[Work] = SimpleQueue()
    while True:
        tell = work()
        _idle.append(desk)
        tell()
        work = desk.get()


def _tell(loop: asyncio.AbstractEventLoop, settled: Settled, outcome: Outcome) -> None:
    with contextlib.suppress(RuntimeError):  # the run is over and its loop closed
        loop.call_soon_threadsafe(_settle, settled, outcome)
