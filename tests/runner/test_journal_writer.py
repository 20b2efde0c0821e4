"""Results on their way to the disk: told when they are safe, in batches; a store that fails ends the run at once."""

import asyncio
import threading

import pytest

from results_made import a_result
from waza.errors import StoreError
from waza.runner.journal_writer import MOST_UNNOTIFIED, JournalWriter


def test_a_result_is_told_as_it_was_kept_and_only_then():
    told, gate = [], threading.Event()

    def store(*results):
        gate.wait(30)
        return [a_result(result.task_id, output="kept") for result in results]

    async def scenario():
        journal_writer = JournalWriter(store, told.append, width=2)
        safe = journal_writer.store(a_result("a"))
        await asyncio.sleep(0.05)
        assert not told and not safe.done()
        gate.set()
        await safe
        await journal_writer.close()

    asyncio.run(scenario())
    assert [result.trace.output for result in told] == ["kept"]


@pytest.mark.parametrize("width", [1, 2])
def test_a_result_is_on_disk_before_it_is_reported_whatever_the_number_of_workers(width):
    happened = []

    def store(*results):
        happened.extend(("stored", result.task_id) for result in results)
        return results

    async def scenario():
        journal_writer = JournalWriter(store, lambda result: happened.append(("reported", result.task_id)), width=width)
        for task in "ab":
            await journal_writer.store(a_result(task))
        await journal_writer.close()

    asyncio.run(scenario())
    for task in "ab":
        assert happened.index(("stored", task)) < happened.index(("reported", task))
    assert len(happened) == 4


def test_results_that_wait_at_the_same_time_share_one_write():
    batches, gate = [], threading.Event()

    def store(*results):
        gate.wait(30)
        batches.append([result.task_id for result in results])
        return list(results)

    async def scenario():
        journal_writer = JournalWriter(store, lambda result: None, width=8)
        safe = [journal_writer.store(a_result(task)) for task in "abcd"]
        gate.set()
        await asyncio.gather(*safe)
        await journal_writer.close()

    asyncio.run(scenario())
    assert [task for batch in batches for task in batch] == list("abcd")
    assert len(batches) < 4


def test_close_writes_what_still_waits():
    kept = []

    async def scenario():
        journal_writer = JournalWriter(
            lambda *results: kept.extend(results) or list(results), lambda result: None, width=2
        )
        journal_writer.store(a_result("a"))
        journal_writer.store(a_result("b"))
        await journal_writer.close()

    asyncio.run(scenario())
    assert [result.task_id for result in kept] == ["a", "b"]


def test_close_tells_of_everything_that_is_safe_in_order():
    told = []

    async def scenario():
        journal_writer = JournalWriter(lambda *results: list(results), told.append, width=2)
        for task in "abcde":
            await journal_writer.store(a_result(task))
        await journal_writer.close()

    asyncio.run(scenario())
    assert [result.task_id for result in told] == list("abcde")


@pytest.mark.timeout(20)
def test_a_result_is_told_of_though_no_other_follows():
    async def scenario():
        told = asyncio.Event()
        journal_writer = JournalWriter(lambda *results: list(results), lambda result: told.set(), width=2)
        await journal_writer.store(a_result("a"))
        await told.wait()
        await journal_writer.close()

    asyncio.run(scenario())


def test_results_that_come_faster_than_rounds_do_not_pile_up():
    told, most = [], []

    async def scenario():
        journal_writer = JournalWriter(lambda *results: list(results), told.append, width=50)

        async def worker():
            for number in range(100):
                await journal_writer.store(a_result(str(number)))
                most.append(len(journal_writer._unnotified))

        await asyncio.gather(*(worker() for _ in range(50)))
        await journal_writer.close()

    asyncio.run(scenario())
    assert len(told) == 5000 and max(most) <= MOST_UNNOTIFIED


@pytest.mark.timeout(20)
@pytest.mark.parametrize("ends_first", [False, True])
def test_a_listener_that_raises_ends_the_run(ends_first):
    def on_result(result):
        raise BrokenPipeError

    async def scenario():
        journal_writer = JournalWriter(lambda *results: list(results), on_result, width=2)
        await journal_writer.store(a_result("a"))
        if not ends_first:
            await journal_writer.trouble()
        await journal_writer.close()

    with pytest.raises(BrokenPipeError):
        asyncio.run(scenario())


@pytest.mark.timeout(20)
def test_one_who_is_cancelled_while_closing_keeps_and_tells_everything_first():
    kept, told, gate = [], [], threading.Event()

    def store(*results):
        gate.wait(10)
        kept.extend(results)
        return list(results)

    async def scenario():
        journal_writer = JournalWriter(store, told.append, width=2)
        journal_writer.store(a_result("a"))
        closing = asyncio.create_task(journal_writer.close())
        await asyncio.sleep(0.05)
        journal_writer.store(a_result("b"))
        for _ in range(2):
            closing.cancel()
            await asyncio.sleep(0.05)
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await closing

    asyncio.run(scenario())
    assert [result.task_id for result in kept] == [result.task_id for result in told] == ["a", "b"]


@pytest.mark.timeout(20)
def test_a_store_that_fails_is_told_at_once_to_those_who_wait_for_an_agent():
    def store(*results):
        raise StoreError("the disk is full")

    async def scenario():
        journal_writer = JournalWriter(store, lambda result: None, width=2)
        async with asyncio.TaskGroup() as group:
            group.create_task(journal_writer.trouble())
            group.create_task(asyncio.sleep(600))
            safe = journal_writer.store(a_result("a"))
        assert safe

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(scenario())
    assert [str(error) for error in caught.value.exceptions] == ["the disk is full"]
