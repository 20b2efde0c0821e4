"""Agents of one vendor share its limit: so many a minute, and all of them wait when it refuses one."""

import asyncio
import json
import time

import pytest

import waza
from waza.judges.rate_limits import FIRST_PAUSE_S, LONGEST_PAUSE_S, AgentPace
from waza.model import Trace


class Clock:
    """A time that passes only while somebody sleeps."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        until = self.now + seconds
        await asyncio.sleep(0)
        self.now = max(self.now, until)


def paced(per_minute=0):
    clock = Clock()
    return AgentPace(per_minute, clock=clock, sleep=clock.sleep), clock


def refused(words):
    return Trace(input="", output="", status="error", error=words)


GOOD = Trace(input="", output="")


def test_so_many_start_in_a_minute():
    pace, clock = paced(per_minute=30)

    async def start():
        await pace.begin()
        return clock.now

    async def several():
        return [await start() for _ in range(4)]

    assert asyncio.run(several()) == [100.0, 102.0, 104.0, 106.0]


def test_without_a_limit_nobody_waits():
    pace, clock = paced()
    asyncio.run(pace.begin())
    assert clock.now == 100.0


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("API Error: Request rejected (429)", FIRST_PAUSE_S),
        ("exceeded retry limit, last status: 429 Too Many Requests", FIRST_PAUSE_S),
        ("Rate limit reached; please try again in 7s", 7),
        ("rate_limit_error: retry-after: 1500ms", 1.5),
        ("429: try again in 2m", 120),
        ("429: Please try again in 1m12.5s.", 60),
        ("429: retry after 2 minutes", 120),
        ("429: retry after 86400 seconds", LONGEST_PAUSE_S),
        ("overloaded_error", FIRST_PAUSE_S),
        ("401: invalid api key", 0),
        ("it ended with code 1", 0),
    ],
)
def test_a_refusal_makes_all_wait_as_long_as_it_asks(words, seconds):
    pace, clock = paced()
    assert pace.record(refused(words)) == pytest.approx(seconds)
    asyncio.run(pace.begin())
    assert clock.now == pytest.approx(100 + seconds)


def test_refusals_one_after_the_other_wait_longer_and_those_at_once_count_as_one():
    pace, _ = paced()

    async def one_more():
        told = [pace.record(refused("429")), pace.record(refused("429"))]
        await pace.begin()
        return told

    assert [asyncio.run(one_more()) for _ in range(3)] == [[5, 0], [10, 0], [20, 0]]
    assert pace.record(GOOD) == 0
    assert pace.record(refused("429")) == FIRST_PAUSE_S


def test_an_agent_that_only_speaks_of_limits_stops_nobody():
    pace, _ = paced()
    assert pace.record(Trace(input="429", output="429: rate limit, try again in 60s")) == 0
    assert pace.record(Trace(input="", output="", status="failure", error="429")) == 0


AGENT = """case "$1" in
  limited) echo '{"output": "", "status": "error", "error": "429: try again in 0.4s"}' ;;
  *) echo '{"output": "Hello"}' ;;
esac"""


def test_in_a_run_the_others_wait_and_the_refused_one_is_tried_again(tmp_path):
    config = {"executor": "command", "command": ["sh", "-c", AGENT, "sh", "{prompt}"], "output_format": "json"}
    grader = {"type": "text", "name": "any", "config": {"contains": ["Hello"]}}
    tasks = [{"id": name, "prompt": name} for name in ("limited", "talk")]
    tree = {"name": "s", "config": config | {"max_attempts": 2}, "graders": [grader], "tasks": tasks}
    (tmp_path / "eval.yaml").write_text(json.dumps(tree))
    started = time.monotonic()
    limited, talk = waza.run(tmp_path).results
    assert (limited.status, limited.attempts, "429" in limited.reason) == ("error", 2, True)
    assert talk.status == "passed"
    assert time.monotonic() - started > 1.4, "a second before it is tried again, and then the other one waits"
