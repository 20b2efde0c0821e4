"""The assignment of calls to expectations: valid, best possible, and the same whatever the order of the calls."""

import time
from itertools import combinations, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from waza.graders._alignment import Need, align, align_turns

MANY = 1 << 62


KINDS = [Need(), Need(), Need(2, 2), Need(1, MANY), Need(2, 3), Need(0, 0), Need(0, 2), Need(3, 3)]


@st.composite
def problems(draw, kinds=KINDS, most_calls=6, most_needs=4):
    calls = draw(st.integers(0, most_calls))
    needs = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=most_needs))
    fits = [sorted(draw(st.sets(st.integers(0, calls - 1)))) if calls else [] for _ in needs]
    return needs, fits, calls


def satisfied(needs, alignment):
    return sum(len(taken) >= need.low for need, taken in zip(needs, alignment.taken, strict=True))


def greedy(order, needs, fits):
    """How many expectations are satisfied when they take their first free calls in a given order."""
    used, count = set(), 0
    for index in order:
        mine = [call for call in fits[index] if call not in used][: needs[index].low]
        if len(mine) == needs[index].low:
            used.update(mine)
            count += 1
    return count


def best_in_any_order(needs, fits):
    """The optimum, by trying every way to give calls away."""

    def search(index, used):
        if index == len(needs):
            return 0
        best = search(index + 1, used)
        free = [call for call in fits[index] if call not in used]
        for mine in combinations(free, needs[index].low):
            best = max(best, 1 + search(index + 1, used | set(mine)))
        return best

    return search(0, frozenset())


def best_in_order(needs, fits):
    """The optimum, by trying every run of calls: (expectations satisfied, calls taken)."""

    def search(index, after):
        if index == len(needs):
            return 0, 0
        free = [call for call in fits[index] if call > after]
        ways = []
        for size in range(min(len(free), needs[index].high) + 1):
            for mine in combinations(free, size):
                satisfied, took = search(index + 1, max(mine, default=after))
                ways.append((satisfied + (size >= needs[index].low), took + size))
        return max(ways)

    return search(0, -1)


def assert_valid(order, needs, fits, calls, alignment):
    flat = [call for taken in alignment.taken for call in taken]
    assert len(flat) == len(set(flat)), "a call belongs to one expectation"
    assert sorted(flat + alignment.extra) == list(range(calls)), "every call is taken or extra"
    for need, fit, taken in zip(needs, fits, alignment.taken, strict=True):
        assert set(taken) <= set(fit) and taken == sorted(taken) and len(taken) <= need.high
    if order != "any":
        assert flat == sorted(flat), "the calls follow the order of the expectations"


@settings(deadline=None)
@given(problems())
def test_any_order_is_valid_and_the_optimum(problem):
    needs, fits, calls = problem
    alignment = align("any", needs, fits, calls)
    assert_valid("any", needs, fits, calls, alignment)
    assert satisfied(needs, alignment) == best_in_any_order(needs, fits)


@settings(deadline=None)
@given(problems())
def test_any_order_is_never_worse_than_a_greedy_order(problem):
    needs, fits, calls = problem
    ours = satisfied(needs, align("any", needs, fits, calls))
    assert all(greedy(order, needs, fits) <= ours for order in permutations(range(len(needs))))


@settings(deadline=None)
@given(problems(), st.randoms())
def test_any_order_satisfies_the_same_expectations_whatever_the_order_of_the_calls(problem, random):
    needs, fits, calls = problem
    places = list(range(calls))
    random.shuffle(places)
    moved = [sorted(places[call] for call in fit) for fit in fits]
    before, after = align("any", needs, fits, calls), align("any", needs, moved, calls)
    satisfied = [[len(t) >= need.low for need, t in zip(needs, each.taken, strict=True)] for each in (before, after)]
    assert satisfied[0] == satisfied[1]
    assert len(before.extra) == len(after.extra)


@settings(deadline=None)
@given(problems(), st.sampled_from(["in_order", "exact"]))
def test_in_order_is_valid_and_the_optimum(problem, order):
    needs, fits, calls = problem
    alignment = align(order, needs, fits, calls)
    assert_valid(order, needs, fits, calls, alignment)
    assert (satisfied(needs, alignment), calls - len(alignment.extra)) == best_in_order(needs, fits)


@settings(deadline=None)
@given(problems(kinds=[Need()]))
def test_one_call_each_agrees_with_scipy(problem):
    from scipy.optimize import linear_sum_assignment

    needs, fits, calls = problem
    cost = [[-1 if call in fit else 0 for call in range(calls)] for fit in fits]
    best = -sum(cost[i][j] for i, j in zip(*linear_sum_assignment(cost), strict=True)) if calls else 0
    assert satisfied(needs, align("any", needs, fits, calls)) == best


def test_in_order_leaves_no_call_over_where_all_can_be_taken():
    needs = [Need(1, MANY), Need()]
    alignment = align("exact", needs, [[0, 1, 2], [0, 1, 2]], 3)
    assert alignment.taken == [[0, 1], [2]] and alignment.extra == []


def test_an_expectation_for_two_yields_where_two_others_can_be_satisfied():
    alignment = align("any", [Need(2, 2), Need(), Need()], [[0, 1], [0], [1]], 2)
    assert [len(taken) for taken in alignment.taken] == [0, 1, 1]


def test_fitting_calls_out_of_order_are_named_once_each():
    needs, fits = [Need()] * 3, [[2], [0, 1], [0, 1]]
    alignment = align("in_order", needs, fits, 3)
    assert alignment.misplaced(needs, fits) == ({0: 2} if alignment.taken[0] == [] else {1: 0, 2: 1})


def test_thousands_of_calls_are_assigned_in_moments():
    calls = 5_000
    everything = list(range(calls))
    kinds = [(Need(1, MANY), 3), (Need(), 50), (Need(100, 200), 5), (Need(2, 2), 20), (Need(1000, 1000), 6)]
    for order in ("any", "in_order", "exact"):
        for need, size in [*kinds, (Need(calls * 2, MANY), 2)]:
            started = time.monotonic()
            alignment = align(order, [need] * size, [everything] * size, calls)
            assert time.monotonic() - started < 20, (order, need)
            assert_valid(order, [need] * size, [everything] * size, calls, alignment)


@settings(deadline=None)
@given(st.integers(0, 60))
def test_many_expectations_that_want_several_calls_each_end_soon(calls):
    needs = [Need(3, 3)] * 20
    alignment = align("any", needs, [list(range(calls))] * 20, calls)
    assert satisfied(needs, alignment) == calls // 3


def best_by_turns(needs, fits, turns):
    """The optimum, by trying every set of calls of each entry: (expectations satisfied, calls taken)."""

    def search(index, used, latest):
        if index == len(needs):
            return 0, 0
        free = [call for call in fits[index] if call not in used and turns[call] >= latest]
        ways = []
        for size in range(min(len(free), needs[index].high) + 1):
            for mine in combinations(free, size):
                reached = max((turns[call] for call in mine), default=latest)
                satisfied, took = search(index + 1, used | set(mine), reached)
                ways.append((satisfied + (size >= needs[index].low), took + size))
        return max(ways)

    return search(0, frozenset(), 0)


@settings(deadline=None)
@given(problems(kinds=[Need(), Need(1, MANY), Need(2, 2), Need(0, 2)], most_calls=5, most_needs=3), st.data())
def test_turns_in_order_satisfy_the_most_whatever_the_order_within_a_turn(problem, data):
    needs, fits, calls = problem
    turns = [data.draw(st.integers(1, 3)) for _ in range(calls)]
    alignment = align_turns(needs, fits, turns)
    assert_valid("any", needs, fits, calls, alignment)
    reached = 0
    for taken in alignment.taken:
        assert all(turns[call] >= reached for call in taken), "no entry takes a call of an earlier turn"
        reached = max([turns[call] for call in taken], default=reached)
    assert (satisfied(needs, alignment), calls - len(alignment.extra)) == best_by_turns(needs, fits, turns)
