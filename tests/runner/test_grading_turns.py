"""A few are let through in each round of the event loop, in the order they came."""

import asyncio
from collections import Counter

from waza.process.concurrency import PER_ROUND, FairQueue


def test_those_who_come_at_once_go_a_few_a_round_and_nobody_is_forgotten():
    async def scenario():
        turns, went, rounds = FairQueue(), [], [0]

        def count():
            rounds[0] += 1
            asyncio.get_running_loop().call_soon(count)

        async def one(number):
            await turns.wait()
            went.append((number, rounds[0]))

        count()
        tasks = [asyncio.ensure_future(one(number)) for number in range(20)]
        await asyncio.sleep(0)
        tasks[7].cancel()
        await asyncio.wait(tasks)
        await one("later")
        return went

    went = asyncio.run(scenario())
    assert [number for number, _ in went] == [*(n for n in range(20) if n != 7), "later"]
    in_a_round = Counter(number for _, number in went[:-1])
    assert max(in_a_round.values()) == PER_ROUND and len(in_a_round) >= 19 / PER_ROUND
