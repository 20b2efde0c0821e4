"""Agents that use a skill at a known rate and with a known benefit, for tests of the estimates of both."""

import numpy as np

from waza.stats.lift import TaskArms


def synthetic(seed, tasks, trials, rate, benefit, without, spread):
    """Return the counts of an agent that triggers at a known rate and then passes so much more often.

    With `spread`, tasks differ: their rates and difficulties are drawn around the known ones.
    """
    random = np.random.default_rng(seed)
    rates = random.beta(rate * spread, (1 - rate) * spread, tasks) if spread else np.full(tasks, rate)
    easy = (
        random.beta(without * spread, (1 - without) * spread, tasks) * (1 - benefit)
        if spread
        else np.full(tasks, without)
    )
    used = random.random((tasks, trials)) < rates[:, None]
    with_skill = random.random((tasks, trials)) < easy[:, None] + benefit * used
    control = random.random((tasks, trials)) < easy[:, None]
    counts = (
        with_skill.sum(1),
        control.sum(1),
        (with_skill & ~control).sum(1),
        (control & ~with_skill).sum(1),
        used.sum(1),
        (used & with_skill).sum(1),
        (used & with_skill & ~control).sum(1),
        (used & control & ~with_skill).sum(1),
    )
    return [
        TaskArms(int(a), trials, int(b), trials, int(gained), int(lost), trials, *map(int, used))
        for a, b, gained, lost, *used in zip(*counts, strict=True)
    ]


DESIGNS = {
    "a usual agent": (12, 5, 0.6, 0.4, 0.3, 0),
    "tasks that differ": (12, 5, 0.6, 0.4, 0.3, 4),
    "many tasks, one trial": (40, 1, 0.8, 0.3, 0.4, 0),
    "a rare trigger": (20, 5, 0.3, 0.3, 0.5, 0),
    "always triggers, nearly always helps": (10, 5, 1.0, 0.9, 0.05, 0),
    "hardly ever fails once it triggers": (12, 5, 0.6, 0.97, 0.01, 0),
    "harms": (12, 5, 0.6, -0.3, 0.5, 0),
    "no benefit": (12, 5, 0.8, 0.0, 0.7, 4),
    "one task": (1, 30, 0.6, 0.4, 0.3, 0),
}
