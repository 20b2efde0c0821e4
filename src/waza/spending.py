"""What agents and judges were billed, added up in one way everywhere, and which numbers can be true at all.

A cost limit counts what a summary shows because both are sums of the same records. Where a number comes from (a trace,
a judge's reply) is not known here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

MOST_AMOUNT = 1e12
"""A count, a cost in dollars or a time in milliseconds (31 years) above this cannot be true.

Sums over a million of them fit into 64 bits, and into a float without loss of order: no reader can overflow."""
_MOST_COUNT = int(MOST_AMOUNT)
_NANO = 1e9


def is_amount(value: float) -> bool:
    """Return whether a count, a cost or a duration can be true: not negative, not absurdly large, not NaN."""
    return 0 <= value <= MOST_AMOUNT


def sum_amounts(values: Iterable[Any]) -> Any:
    """Return the sum; with a part that cannot be true that part instead, so that the sum counts as not recorded."""
    found = list(values)
    wrong = [value for value in found if not is_amount(value)]
    return wrong[0] if wrong else sum(found)


class Spending(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What some requests to a model, or some starts of an agent, were billed as far as that was reported."""

    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    count: int = 0
    """Requests to a judge, or starts of an agent."""
    without_cost: int = 0
    """Those of them whose cost is not known, or not all of it."""

    def __post_init__(self) -> None:
        if (  # written out, not a loop: this runs for every record that is read
            0 <= self.cost_usd <= MOST_AMOUNT
            and 0 <= self.input_tokens <= MOST_AMOUNT
            and 0 <= self.output_tokens <= MOST_AMOUNT
            and 0 <= self.count <= MOST_AMOUNT
            and 0 <= self.without_cost <= MOST_AMOUNT
        ):
            return
        for name in self.__struct_fields__:
            if not is_amount(getattr(self, name)):  # in a file that was edited: the rest stays readable
                force_setattr(self, name, 0)
                force_setattr(self, "without_cost", max(self.without_cost, 1))

    def __add__(self, other: Spending) -> Spending:
        # In whole billionths of a dollar, so that the order and the grouping of sums change nothing.
        cost = round(self.cost_usd * _NANO) + round(other.cost_usd * _NANO)
        return Spending(
            cost_usd=min(cost / _NANO, MOST_AMOUNT),
            input_tokens=min(self.input_tokens + other.input_tokens, _MOST_COUNT),
            output_tokens=min(self.output_tokens + other.output_tokens, _MOST_COUNT),
            count=min(self.count + other.count, _MOST_COUNT),
            without_cost=min(self.without_cost + other.without_cost, _MOST_COUNT),
        )

    @property
    def total_tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens


NOTHING = Spending()


def spent(cost_usd: Any, input_tokens: Any = None, output_tokens: Any = None, *, is_whole: bool = True) -> Spending:
    """Return the spending of one request or start as it was reported; None or what cannot be true is not known.

    With `is_whole` false there may have been more than was reported: an answer that was cut off.
    """
    numbers = [value if _is_number(value) else None for value in (cost_usd, input_tokens, output_tokens)]
    cost, tokens_in, tokens_out = numbers
    return Spending(
        cost_usd=float(cost or 0.0),
        input_tokens=int(tokens_in or 0),
        output_tokens=int(tokens_out or 0),
        count=1,
        without_cost=int(cost is None or not is_whole),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and is_amount(value)


class Meter:
    """Adds up what requests are billed, from whatever thread they are made."""

    def __init__(self) -> None:
        self.spending = NOTHING
        self._turn = threading.Lock()

    def add(self, spending: Spending) -> None:
        """Count what a request was billed."""
        with self._turn:
            self.spending += spending


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def metering() -> Iterator[Meter]:
    """Count what is billed in this block, in the tasks it starts too: whoever asks a judge there cannot forget it."""
    meter = Meter()
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)


def bill(spending: Spending) -> None:
    """Count what a request was billed with the innermost `metering` block around it, if there is one."""
    if (meter := _METER.get()) is not None:
        meter.add(spending)


class Costs(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a trial or a run was billed: every attempt of its agents, every request to its judges."""

    agent: Spending = NOTHING
    judge: Spending = NOTHING

    def __add__(self, other: Costs) -> Costs:
        return Costs(agent=self.agent + other.agent, judge=self.judge + other.judge)

    @property
    def total_usd(self) -> float:
        """The dollars that are known of."""
        return (self.agent + self.judge).cost_usd

    @property
    def total_tokens(self) -> int:
        """The tokens that are known of."""
        return self.agent.total_tokens + self.judge.total_tokens

    @property
    def without_cost(self) -> int:
        """How many starts and requests have no known cost."""
        return self.agent.without_cost + self.judge.without_cost


NO_COSTS = Costs()
