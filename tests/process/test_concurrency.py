"""Many time limits share one timer, and each is told of when it is over, not before and not after it was lifted."""

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waza.process.concurrency import Deadlines, deadlines


def test_only_limits_that_were_not_lifted_are_told_of_and_in_time():
    async def main():
        limits, told = Deadlines(), []
        started = time.monotonic()
        for name, seconds in (("late", 0.06), ("soon", 0.02), ("lifted", 0.01), ("never", 60)):
            number = limits.set(seconds, lambda name=name: told.append((name, time.monotonic() - started)))
            if name == "lifted":
                limits.cancel(number)
        await asyncio.sleep(0.15)
        return told

    told = asyncio.run(main())
    assert [name for name, _ in told] == ["soon", "late"]
    assert told[0][1] >= 0.0199 and told[1][1] >= 0.0599


def test_a_thousand_limits_set_and_lifted_leave_one_timer():
    async def main():
        limits = Deadlines()
        for _ in range(1000):
            limits.cancel(limits.set(300, lambda: None))
        return len(asyncio.get_running_loop()._scheduled)

    assert asyncio.run(main()) == 1


def test_a_limit_in_the_past_is_over_at_once():
    async def main():
        over = asyncio.Event()
        Deadlines().set(-5, over.set)
        await asyncio.wait_for(over.wait(), 5)

    asyncio.run(main())


def test_each_event_loop_has_its_own():
    async def main():
        assert deadlines() is deadlines()
        return deadlines()

    assert asyncio.run(main()) is not asyncio.run(main())


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when a test says so."""

    now = 0.0

    def time(self):
        return self.now


@given(st.lists(st.tuples(st.sampled_from(["set", "lift", "wait"]), st.integers(0, 20)), max_size=40))
@settings(max_examples=200)
def test_whatever_is_set_and_lifted_is_told_of_as_a_timer_each_would(steps):
    """The model: every limit has a timer of its own."""
    loop = Clock()

    async def main():
        limits, told, model = Deadlines(), [], {}
        for place, (step, amount) in enumerate(steps):
            if step == "set":
                number = limits.set(amount, lambda place=place: told.append(place))
                model[number] = loop.now + amount, place
            elif step == "lift" and amount in model:
                limits.cancel(amount)
                del model[amount]
            elif step == "wait":
                loop.now += amount
                for _ in range(3):
                    await asyncio.sleep(0)
                over = [number for number, (when, _) in model.items() if when <= loop.now]
                assert sorted(told) == sorted(model[number][1] for number in over)
                told.clear()
                for number in over:
                    del model[number]

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.parametrize("length", [0.0, 0.05])
def test_a_limit_set_by_a_limit_that_is_over_counts(length):
    async def main():
        limits, over = Deadlines(), asyncio.Event()
        limits.set(0.01, lambda: limits.set(length, over.set))
        await asyncio.wait_for(over.wait(), 5)

    asyncio.run(main())


@pytest.mark.timeout(20)
def test_a_clock_that_calls_timers_too_early_costs_no_limit():
    """As on Windows before Python 3.13, whose clock goes on in steps of 16 ms."""
    loop = asyncio.SelectorEventLoop()
    loop._clock_resolution = 0.0156

    async def main():
        limits, told = Deadlines(), []
        for number in range(8):
            limits.set(0.02 + number / 500, lambda number=number: told.append(number))
        await asyncio.sleep(0.2)
        over = asyncio.Event()
        limits.set(0.02, over.set)
        await asyncio.wait_for(over.wait(), 10)
        return told

    try:
        assert loop.run_until_complete(main()) == list(range(8))
    finally:
        loop.close()
