"""Agreement of two or more raters on the same items (Cohen's kappa, Krippendorff's alpha); None where it is undefined.

Agreement alone means little: where nine of ten outputs pass, a constant "pass" agrees nine times out of ten. So every
share here comes with the base rate and the best constant answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from msgspec import Struct

from waza.stats.scores import Z95, Interval, wilson

_NONE = 1e-12
"""A variance below this is zero except for rounding."""


class Confusion(Struct, frozen=True, kw_only=True):
    """Counts of a judge's verdicts against people's, which are taken as the truth."""

    true_pass: int = 0
    """Both pass it."""
    false_pass: int = 0
    """The judge passes what people fail."""
    false_fail: int = 0
    """The judge fails what people pass."""
    true_fail: int = 0
    """Both fail it."""

    @property
    def n(self) -> int:
        """How many items both have judged."""
        return self.true_pass + self.false_pass + self.false_fail + self.true_fail

    @property
    def agreed(self) -> int:
        """How many items both agree on."""
        return self.true_pass + self.true_fail

    @property
    def accuracy(self) -> float | None:
        """The share of items both agree on."""
        return _share(self.agreed, self.n)

    @property
    def base_rate(self) -> float | None:
        """The share of items that people pass."""
        return _share(self.true_pass + self.false_fail, self.n)

    @property
    def judge_rate(self) -> float | None:
        """The share of these items that the judge passes."""
        return _share(self.true_pass + self.false_pass, self.n)

    @property
    def constant_accuracy(self) -> float | None:
        """How often the best constant answer, always pass or always fail, would agree with people."""
        return None if self.base_rate is None else max(self.base_rate, 1 - self.base_rate)

    @property
    def sensitivity(self) -> float | None:
        """Of what people pass, the share that the judge passes."""
        return _share(self.true_pass, self.true_pass + self.false_fail)

    @property
    def specificity(self) -> float | None:
        """Of what people fail, the share that the judge fails."""
        return _share(self.true_fail, self.true_fail + self.false_pass)

    @property
    def fail_precision(self) -> float | None:
        """Of what the judge fails, the share that people fail."""
        return _share(self.true_fail, self.true_fail + self.false_fail)

    @property
    def fail_recall(self) -> float | None:
        """Of what people fail, the share that the judge fails."""
        return self.specificity

    @property
    def accuracy_interval(self) -> Interval | None:
        """Wilson's interval of the accuracy."""
        return wilson(self.agreed, self.n)

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa; None where both give the same constant answer."""
        return cohen_kappa(self.table)

    @property
    def kappa_interval(self) -> Interval | None:
        """The 95 % interval of kappa."""
        return kappa_interval(self.table)

    @property
    def table(self) -> list[list[int]]:
        """The counts, people's verdicts in rows, the judge's in columns, pass first."""
        return [[self.true_pass, self.false_fail], [self.false_pass, self.true_fail]]


def confusion(pairs: Iterable[tuple[bool, bool]]) -> Confusion:
    """Return the counts of pairs: whether people pass an item, whether the judge does."""
    counts = Counter(pairs)
    return Confusion(
        true_pass=counts[True, True],
        false_pass=counts[False, True],
        false_fail=counts[True, False],
        true_fail=counts[False, False],
    )


def table_of(pairs: Iterable[tuple[Hashable, Hashable]]) -> list[list[int]]:
    """Return the square table of two raters' labels: the first one's in rows, the labels in order of their text."""
    counts = Counter(pairs)
    labels = sorted({label for pair in counts for label in pair}, key=str)
    return [[counts[row, column] for column in labels] for row in labels]


def cohen_kappa(table: Sequence[Sequence[int]]) -> float | None:
    """Return Cohen's kappa of a square table of counts; None where chance alone would agree always."""
    total = sum(map(sum, table))
    if not total:
        return None
    expected = _by_chance(table)
    if expected >= total * total:
        return None
    observed = sum(row[place] for place, row in enumerate(table))
    return (observed * total - expected) / (total * total - expected)


def kappa_interval(table: Sequence[Sequence[int]], effect: float = 1.0) -> Interval | None:
    """Return the 95 % interval of kappa, by its large-sample variance (Fleiss, Cohen and Everitt 1969).

    `effect` is the design effect of the agreement, where items belong to the same tasks; kappa's is about the same. A
    table without variance would make a few items certain: where two raters agree on every item, the interval is that of
    `_perfect`; else (one rater never varies, or they never agree) there is none, and `kappa_remark` returns why.
    """
    kappa = cohen_kappa(table)
    if kappa is None:
        return None
    variance = kappa_variance(table)
    if variance < _NONE:
        return _perfect(table, effect) if kappa == 1 and len(table) == 2 else None
    reach = Z95 * math.sqrt(variance * effect)
    return Interval(lower=max(-1.0, kappa - reach), upper=min(1.0, kappa + reach), mean=kappa)


def _perfect(table: Sequence[Sequence[int]], effect: float) -> Interval:
    """Return the interval of kappa where both raters agree on every item, with two labels.

    That of Donner and Eliasziw (1992): every kappa by which a goodness-of-fit test would not refuse the table. It takes
    both raters to pass equally often, as they do here. The test's statistic is n pq (1 - k^2) / (pq + k (p^2 + q^2) +
    k^2 pq), which is set to its 95 % point and solved for k.
    """
    n, point = sum(map(sum, table)) / effect, Z95 * Z95
    p = table[0][0] / sum(map(sum, table))
    half = point * (p * p + (1 - p) * (1 - p)) / (p * (1 - p)) / 2
    lower = (math.sqrt(half * half + (n + point) * (n - point)) - half) / (n + point)
    return Interval(lower=lower, upper=1.0, mean=1.0)


def kappa_remark(table: Sequence[Sequence[int]]) -> str:
    """Return why there is no kappa, or no interval of it; empty where there is."""
    if cohen_kappa(table) is None:
        return "undefined: all verdicts are the same" if sum(map(sum, table)) else "undefined: no verdicts"
    if kappa_interval(table) is None:
        return "no interval: one of the two never varies, or they never agree, and then kappa's variance is not known"
    return ""


def kappa_variance(table: Sequence[Sequence[float]]) -> float:
    """Return the large-sample variance of kappa; the table must have one."""
    total = sum(map(sum, table))
    rows = [sum(row) / total for row in table]
    columns = [sum(column) / total for column in zip(*table, strict=True)]
    places = range(len(table))
    observed = sum(table[place][place] for place in places) / total
    expected = sum(row * column for row, column in zip(rows, columns, strict=True))
    kappa = (observed - expected) / (1 - expected)
    on = math.fsum(table[i][i] / total * (1 - (rows[i] + columns[i]) * (1 - kappa)) ** 2 for i in places)
    off = math.fsum(table[i][j] / total * (columns[i] + rows[j]) ** 2 for i in places for j in places if i != j)
    rest, beyond = kappa - expected * (1 - kappa), 1 - expected
    variance: float = (on + (1 - kappa) * (1 - kappa) * off - rest * rest) / (beyond * beyond * total)
    return variance


def krippendorff_alpha(items: Iterable[Sequence[Hashable | None]]) -> float | None:
    """Return Krippendorff's alpha for nominal labels: one row an item, one label a rater, None where one is missing.

    None where no item has two labels, or all labels are the same.
    """
    weights: dict[tuple[Hashable, Hashable], float] = {}
    for labels in items:
        given = Counter(label for label in labels if label is not None)
        if (count := given.total()) < 2:
            continue
        for one, ones in given.items():
            for other, others in given.items():
                pairs = ones * (others - (one == other))
                weights[one, other] = weights.get((one, other), 0.0) + pairs / (count - 1)
    totals: dict[Hashable, float] = {}
    for (one, _), weight in weights.items():
        totals[one] = totals.get(one, 0.0) + weight
    n = math.fsum(totals.values())
    if len(totals) < 2:
        return None
    observed = math.fsum(weight for (one, other), weight in weights.items() if one != other)
    expected = (n * n - math.fsum(total * total for total in totals.values())) / (n - 1)
    return 1 - observed / expected


def _by_chance(table: Sequence[Sequence[int]]) -> int:
    """Return the agreement by chance, times the square of the number of items: an exact integer."""
    return sum(sum(row) * sum(column) for row, column in zip(table, zip(*table, strict=True), strict=True))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
