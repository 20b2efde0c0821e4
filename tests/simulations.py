"""Simulated suites: how often the gate and comparisons are wrong, and how often they find a drop.

Each function simulates whole pairs of runs and decides by the product's own functions; the seeds are given, so that
every number can be made again. `python tests/simulations.py --runs 1000` prints the tables of the guides; the
tests use small samples of the same functions, the campaign larger ones.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from results_made import a_result, a_run
from waza.analysis.changes import paired
from waza.analysis.evidence import FAILED, PASSED, Evidence, PairedTrials, TrialValue, evidence_of, tallies_of
from waza.analysis.gate import Drop, Needs, drop_gates, exit_code
from waza.model import Task
from waza.runner.auto import Auto, AutoTrials
from waza.stats.anytime import always_valid
from waza.stats.paired import shuffled_trials, sign_flip
from waza.stats.power import Question, simulation

SHAPES = {"Beta(0.8, 0.2)": (0.8, 0.2), "Beta(4, 1)": (4.0, 1.0)}
SIZES = [(20, 1), (20, 3), (20, 5), (50, 3), (200, 1)]


def suites(shape, tasks, runs, seed=0):
    """Yield a random source and the pass rates of a suite's tasks."""
    for number in range(runs):
        random = np.random.default_rng([seed, number])
        yield random, random.beta(*SHAPES[shape], tasks)


def broken(random, rates, drop):
    """Return rates of which some are 0, in random order, such that their mean falls by `drop`."""
    later, left = rates.copy(), drop * len(rates)
    for place in random.permutation(len(rates)):
        fall = min(rates[place], left)
        later[place] -= fall
        left -= fall
    return later


def evenly(_, rates, drop):
    """Return rates that are all smaller by as much, though not below 0, such that their mean falls by `drop`."""
    low, high = 0.0, 1.0
    for _ in range(30):
        step = (low + high) / 2
        low, high = (step, high) if np.minimum(rates, step).mean() < drop else (low, step)
    return np.maximum(rates - high, 0.0)


def trials(random, rates, count):
    """Return for each task whether each trial passed."""
    passed = random.random((len(rates), count)) < rates[:, None]
    return [tuple(PASSED if one else FAILED for one in row) for row in passed]


def evidence(before, after, *, these_tasks=True):
    """Return two simulated runs as the gate, or a comparison, uses them."""
    tasks = [PairedTrials(str(number), *pair) for number, pair in enumerate(zip(before, after, strict=True))]
    return Evidence(tasks, these_tasks, not these_tasks, not these_tasks)


def gate_codes(shape, tasks, count, *, drop=0.0, runs=200, seed=0, needs=None, way=broken):
    """Return the share of each exit code of a gate with the default options."""
    codes = Counter()
    for random, rates in suites(shape, tasks, runs, seed):
        later = way(random, rates, drop) if drop else rates
        found = evidence(trials(random, rates, count), trials(random, later, count))
        codes[exit_code(list(drop_gates([Drop("x", found)], needs or Needs(), with_power=False)))] += 1
    return {code: codes[code] / runs for code in (0, 1, 3)}


def graded_codes(shape, tasks, count, *, runs=200, seed=0):
    """Return the same of an unchanged agent whose trials have scores between 0 and 1, and pass from 0.7 on."""
    codes = Counter()
    for random, rates in suites(shape, tasks, runs, seed):
        scores = np.clip(random.normal(rates[None, :, None], 0.25, (2, tasks, count)), 0.0, 1.0).tolist()
        passed = [[tuple(PASSED if one > 0.7 else FAILED for one in task) for task in run] for run in scores]
        graded = [[tuple(TrialValue(one, one, one) for one in task) for task in run] for run in scores]
        drops = [Drop("passing", evidence(*passed)), Drop("scores", evidence(*graded))]
        codes[exit_code(list(drop_gates(drops, Needs(), with_power=False)))] += 1
    return {code: codes[code] / runs for code in (0, 1, 3)}


def wrong_when_unequal(shape, tasks, counts, *, runs=200, seed=0):
    """Return how often each test calls an unchanged agent changed, where runs have other numbers of trials."""
    wrong = Counter()
    for random, rates in suites(shape, tasks, runs, seed):
        before, after = (trials(random, rates, count) for count in counts)
        _add(wrong, evidence(before, after), evidence(before, after, these_tasks=False))
    return {test: wrong[test] / runs for test in TESTS}


TESTS = ("these tasks, one-sided", "these tasks", "tasks like these, one-sided", "tasks like these")


def _add(wrong, these, like):
    for name, found in (("these tasks", these), ("tasks like these", like)):
        samples = found.samples()
        wrong[f"{name}, one-sided"] += found.p_value(samples) < 0.05
        wrong[name] += _two_sided(found, samples) < 0.05


def _two_sided(found, samples):
    """Return the p-value as the verdict does, without the power, which is slow."""
    return sign_flip([s.change for s in samples]) if found.by_task else shuffled_trials(tallies_of(samples))


def wrong_with_auto(shape, tasks, autos, *, fixed=5, runs=200, seed=0):
    """Return the same where one run, or both, decided by `auto` when to stop; None in `autos` is a fixed number."""
    wrong = Counter()
    for random, rates in suites(shape, tasks, runs, seed):
        before, after = (_run(random, rates, auto, fixed) for auto in autos)
        pairs = paired(before, after).pairs
        _add(wrong, *(evidence_of(before, after, pairs, "pass", these_tasks=these) for these in (True, False)))
    return {test: wrong[test] / runs for test in TESTS}


def _run(random, rates, auto, fixed):
    """Return a stored run of tasks that pass at these rates."""
    results, ids = [], [str(number) for number in range(len(rates))]
    if auto is None:
        planned = iter([(task, number) for number in range(1, fixed + 1) for task in ids])
        schedule = None
    else:
        schedule = AutoTrials([Task(id=task, prompt="") for task in ids], auto)
        planned = ((trial.task.id, trial.number) for trial in schedule)
    for task, number in planned:
        status = "passed" if random.random() < rates[int(task)] else "failed"
        results.append(a_result(task, number, status, grades=[]))
        if schedule is not None:
            schedule.record(task, number, status)
    spec = {"auto_trials": {"most": auto.most, "budget": auto.budget, "share": auto.share}} if auto else {}
    return a_run(results, tasks=ids, config={"trials_per_task": 1}, spec=spec)


def powers(shape, tasks, count, question, *, drop=0.1, runs=100, seed=0):
    """Return the power that is printed for an unchanged agent, in the mean, and the real one: the smaller way's."""
    printed, found = [], Counter()
    for random, rates in suites(shape, tasks, runs, seed):
        before = trials(random, rates, count)
        same = evidence(before, trials(random, rates, count), these_tasks=question.these_tasks)
        printed.append(simulation(tallies_of(same.samples()), question).power(drop))
        for way in (broken, evenly):
            later = trials(random, way(random, rates, drop), count)
            changed = evidence(before, later, these_tasks=question.these_tasks)
            found[way] += _is_found(changed, question)
    return float(np.mean(printed)), min(found[way] for way in (broken, evenly)) / runs


def _is_found(found, question):
    samples = found.samples()
    changes = [sample.change for sample in samples]
    if question.one_sided:
        return sum(changes) < 0 and found.p_value(samples) < 0.05
    return sum(changes) < 0 and _two_sided(found, samples) < 0.05


def wrong_at_any_look(shape, tasks, looks, *, step=1, runs=200, seed=0):
    """Return how often one of many looks at growing runs of an unchanged agent shows a difference, by each test.

    Before each look every task gets `step` further trials in both runs.
    """
    wrong = Counter()
    for random, rates in suites(shape, tasks, runs, seed):
        passed = np.array([random.random((2, tasks, looks * step)) < rates[None, :, None]])[0].astype(int)
        pairs = (passed[1] - passed[0]).T.ravel().tolist()
        wrong["anytime"] += always_valid(pairs).p_value < 0.05
        means = [(passed[1, :, :n] - passed[0, :, :n]).mean(axis=1) for n in range(step, looks * step + 1, step)]
        wrong["plain"] += any(sign_flip(some.tolist()) < 0.05 for some in means)
    return {test: wrong[test] / runs for test in ("anytime", "plain")}


def print_tables(runs):
    """Print the tables of the guides."""
    print("## gate: unchanged (exit 1, exit 3), ten points by broken tasks (exit 1, exit 3)")
    for shape in SHAPES:
        for tasks, count in SIZES:
            same, less = (gate_codes(shape, tasks, count, drop=drop, runs=runs) for drop in (0.0, 0.1))
            print(f"{shape} {tasks}x{count}: {same[1]:.1%} {same[3]:.1%} | {less[1]:.1%} {less[3]:.1%}", flush=True)
    print("## power: printed, real")
    for question in (Question(these_tasks=True, one_sided=True), Question()):
        for shape in SHAPES:
            for tasks, count in SIZES:
                printed, real = powers(shape, tasks, count, question, runs=max(50, runs // 4))
                print(f"{question.these_tasks} {shape} {tasks}x{count}: {printed:.0%} {real:.0%}", flush=True)
    print("## wrong with unequal trials")
    for shape in SHAPES:
        for counts in ((1, 5), (1, 10), (3, 5), (5, 2)):
            print(shape, counts, wrong_when_unequal(shape, 20, counts, runs=runs), flush=True)
    print("## wrong with auto")
    for shape in SHAPES:
        print(shape, "20 looks", wrong_at_any_look(shape, 20, 20, runs=runs), flush=True)
    rule, other = Auto(most=10, share=0.8), Auto(most=10, share=1.0)
    for shape in SHAPES:
        for autos in ((rule, None), (None, other), (other, other), (rule, other)):
            print(shape, autos, wrong_with_auto(shape, 20, autos, runs=runs), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    print_tables(parser.parse_args().runs)
