"""Agreement between raters, against values of independent packages: statsmodels 0.15.0, scikit-learn 1.9.1 and
krippendorff 0.9.0 computed them from the same tables."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, multinomial

import campaign
from campaign import size
from waza.stats.agreement import (
    Confusion,
    ac1_interval,
    cohen_kappa,
    confusion,
    fleiss_kappa,
    gwet_ac1,
    kappa_interval,
    kappa_remark,
    krippendorff_alpha,
    table_of,
    weighted_kappa,
)

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "judges.md"

# both pass, only people pass, only the judge passes, both fail: kappa (statsmodels.stats.inter_rater.cohens_kappa and
# sklearn.metrics.cohen_kappa_score), its large-sample variance (statsmodels), nominal alpha (krippendorff.alpha)
TABLES = [
    ((45, 15, 25, 15), 0.13043478260869568, 0.009734099006221388, 0.12527472527472527),
    ((20, 5, 10, 15), 0.4, 0.016127999999999997, 0.4),
    ((80, 3, 10, 7), 0.4491525423728814, 0.01586485214272316, 0.44615713979875826),
    ((9, 1, 0, 10), 0.9, 0.00940500000000002, 0.9022556390977443),
    ((4, 16, 16, 64), 0.0, 0.009999999999999983, 0.004999999999999893),
    ((118, 5, 2, 0), -0.023391812865497075, 0.00015096438953770742, -0.024691358024691468),
]


def counts(cells):
    both, people_only, judge_only, neither = cells
    return Confusion(true_pass=both, false_fail=people_only, false_pass=judge_only, true_fail=neither)


def rows(cells):
    """The items of a table, as two labels each."""
    return [pair for pair, count in zip([(1, 1), (1, 0), (0, 1), (0, 0)], cells, strict=True) for _ in range(count)]


@pytest.mark.parametrize(("cells", "kappa", "variance", "alpha"), TABLES)
def test_the_numbers_are_those_of_independent_packages(cells, kappa, variance, alpha):
    found = counts(cells)
    assert found.kappa == pytest.approx(kappa, abs=1e-12)
    known = binomtest(found.agreed, found.n).proportion_ci(0.95, "exact")
    assert (found.accuracy_interval.lower, found.accuracy_interval.upper) == pytest.approx(known, abs=1e-9)
    assert krippendorff_alpha(rows(cells)) == pytest.approx(alpha, abs=1e-12)
    # The interval is never narrower than the large-sample one, and close to it where there are many items.
    if 0 in cells:
        return
    large = kappa_interval([[count * 100 for count in row] for row in found.table])
    assert large.upper - large.lower == pytest.approx(2 * 1.96 * (variance / 100) ** 0.5, rel=0.1)
    assert found.kappa_interval.upper - found.kappa_interval.lower > 2 * 1.96 * variance**0.5 * 0.95


# krippendorff.alpha(reliability_data=..., level_of_measurement="nominal"); the first is the example of Wikipedia's
# article on the coefficient, which gives 0.691 too. One line a rater, None where a verdict is missing.
NO = None
RATERS = [
    (
        [
            [NO, NO, NO, NO, NO, 3, 4, 1, 2, 1, 1, 3, 3, NO, 3],
            [1, NO, 2, 1, 3, 3, 4, 3, NO, NO, NO, NO, NO, NO, NO],
            [NO, NO, 2, 1, 3, 4, 4, NO, 2, 1, 1, 3, 3, NO, 4],
        ],
        0.691358024691358,
    ),
    ([[1, 1, 0, 0, 1], [1, 0, 0, NO, 1], [1, 1, 0, 1, NO]], 0.4),
    ([[1, 1, 1, 0, NO, 0], [1, 1, 0, 0, 1, NO]], 0.5333333333333333),
    ([[0, 1, 0, 1], [1, 0, 1, 0]], -0.75),
    ([[1, 1, 1, 1, 0, 1, 1], [1, 1, NO, 1, 1, 1, 0], [NO, 1, 1, 1, 0, 1, 1], [1, NO, 1, 0, 0, 1, 1]], 0.28),
]


@pytest.mark.parametrize(("raters", "alpha"), RATERS)
def test_alpha_takes_any_number_of_raters_and_missing_verdicts(raters, alpha):
    assert krippendorff_alpha(zip(*raters, strict=True)) == pytest.approx(alpha, abs=1e-12)


def guide_tables():
    """The whole numbers of the two tables in the guide, row by row."""
    text = GUIDE.read_text().split("## Can the judge be believed", 1)[1]
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| people:"):
            found.append([int(cell) for cell in cells[1:]])
    return found[:3], found[3:5]


def test_the_guide_shows_68_percent_as_kappa_of_four_tenths_under_one_coding_and_of_nothing_under_another():
    fine, coarse = guide_tables()
    for table in (fine, coarse):
        assert sum(row[place] for place, row in enumerate(table)) == 68
        assert sum(map(sum, table)) == 100
    # statsmodels.stats.inter_rater.cohens_kappa of both: 0.40097341819543253 and 0 (to 15 digits)
    assert cohen_kappa(fine) == pytest.approx(0.40097341819543253, abs=1e-12)
    assert cohen_kappa(coarse) == pytest.approx(0.0, abs=1e-12)


def test_the_two_codings_of_the_guide_are_the_same_hundred_outputs():
    fine, coarse = guide_tables()
    answered, declined, failed = range(3)
    both_pass = sum(fine[row][column] for row in (answered, declined) for column in (answered, declined))
    only_people = fine[answered][failed] + fine[declined][failed]
    only_judge = fine[failed][answered] + fine[failed][declined]
    assert coarse == [[both_pass, only_people], [only_judge, fine[failed][failed]]]


def test_what_is_undefined_is_none_and_never_a_number():
    assert cohen_kappa([[0, 0], [0, 0]]) is None
    assert cohen_kappa([[7, 0], [0, 0]]) is None
    assert kappa_interval([[7, 0], [0, 0]]) is None
    assert krippendorff_alpha([]) is None
    assert krippendorff_alpha([[True, None], [None, False]]) is None
    assert krippendorff_alpha([[True, True], [True, True]]) is None
    nothing = Confusion()
    assert [nothing.accuracy, nothing.base_rate, nothing.fail_precision, nothing.fail_recall, nothing.kappa] == [
        None
    ] * 5


def test_a_judge_that_always_passes_agrees_often_and_has_no_kappa():
    found = confusion([(True, True)] * 9 + [(False, True)])
    assert (found.accuracy, found.constant_accuracy, found.kappa) == (0.9, 0.9, 0.0)
    assert (found.fail_precision, found.fail_recall) == (None, 0.0)


@given(st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=20)
def test_a_few_items_that_all_agree_on_never_make_kappa_certain(passes, fails):
    found = kappa_interval([[passes, 0], [0, fails]])
    assert (found.mean, found.upper) == (1.0, 1.0) and found.lower < 1
    assert kappa_interval([[passes, 0], [0, fails]], effect=4.0).lower < found.lower


def test_the_guide_s_eighteen_outputs_without_a_difference():
    assert kappa_interval([[12, 0], [0, 6]]).lower == pytest.approx(0.60, abs=0.005)
    assert "12 passes and 6 fails without a difference leave\n0.60 to 1" in GUIDE.read_text()


@pytest.mark.parametrize(
    ("table", "value"), [([[0, 1], [0, 0]], 0.0), ([[18, 0], [2, 0]], 0.0), ([[0, 4], [4, 0]], -1.0)]
)
def test_a_table_without_variance_has_an_interval_all_the_same(table, value):
    found = kappa_interval(table)
    assert cohen_kappa(table) == found.mean == pytest.approx(value)
    assert found.upper - found.lower > 0.2
    assert kappa_remark([[7, 0], [0, 0]]) == "undefined: all verdicts are the same"
    assert kappa_remark(table) == kappa_remark([[3, 1], [0, 2]]) == ""


# Base rate, sensitivity and specificity of judges.
JUDGES = [(0.5, 0.5, 0.5), (0.5, 0.7, 0.7), (0.5, 0.9, 0.9), (0.7, 0.9, 0.6), (0.9, 0.7, 0.7), (0.9, 0.99, 0.9)]


@pytest.mark.parametrize("items", [5, 8, 10, 20])
def test_kappa_s_interval_contains_the_truth_in_93_percent_with_few_items(items):
    """The chance is exact: the sum over all tables of so many items, given that kappa is defined."""
    tables = [(a, b, c, items - a - b - c) for a, b, c in product(range(items + 1), repeat=3) if a + b + c <= items]
    if items > size(ci=8, sample=10, full=20):
        pytest.skip("in a campaign")
    found = [kappa_interval([[a, b], [c, d]]) for a, b, c, d in tables]
    campaign.count("simulated intervals", len(tables))
    for base, sensitivity, specificity in JUDGES:
        shares = [
            base * sensitivity,
            base * (1 - sensitivity),
            (1 - base) * (1 - specificity),
            (1 - base) * specificity,
        ]
        chances = multinomial.pmf(tables, items, shares)
        agreed, passes = shares[0] + shares[3], shares[0] + shares[2]
        expected = base * passes + (1 - base) * (1 - passes)
        kappa = (agreed - expected) / (1 - expected)
        defined = sum(chance for chance, one in zip(chances, found, strict=True) if one)
        covered = sum(c for c, one in zip(chances, found, strict=True) if one and one.lower <= kappa <= one.upper)
        assert covered / defined >= 0.93


FIVE_LEVELS = [[11, 3, 1, 0, 0], [2, 9, 4, 1, 0], [0, 3, 12, 5, 1], [0, 1, 4, 10, 3], [0, 0, 1, 2, 8]]


def test_a_weighted_kappa_is_one_minus_the_distance_over_that_of_shuffled_labels():
    ones = [row for row, counts in enumerate(FIVE_LEVELS) for count in counts for _ in range(count)]
    others = [column for counts in FIVE_LEVELS for column, count in enumerate(counts) for _ in range(count)]
    for weighting, power in (("linear", 1), ("quadratic", 2)):
        apart = np.mean([abs(one - other) ** power for one, other in zip(ones, others, strict=True)])
        by_chance = np.mean([abs(one - other) ** power for one in ones for other in others])
        assert weighted_kappa(FIVE_LEVELS, weighting) == pytest.approx(1 - apart / by_chance, abs=1e-9)
    assert weighted_kappa(FIVE_LEVELS, "none") == pytest.approx(cohen_kappa(FIVE_LEVELS), abs=1e-12)
    interval = kappa_interval(FIVE_LEVELS, weighting="quadratic")
    assert interval.lower < interval.mean < interval.upper


def test_gwet_s_ac1_is_that_of_his_paper():
    # Gwet 2008, "Computing inter-rater reliability and its variance in the presence of high agreement", table 1: the
    # raters agree on 118 of 125, kappa is about 0, AC1 is 0.94.
    assert gwet_ac1([[118, 5], [2, 0]]) == pytest.approx(0.9409, abs=5e-4)
    assert ac1_interval([[118, 5], [2, 0]]).lower > 0.8
    assert gwet_ac1([[7, 0], [0, 0]]) == 1.0


def test_fleiss_kappa_is_that_of_his_paper():
    # Fleiss 1971, as in the article on the coefficient: 14 raters, 10 items, 5 labels, kappa 0.210.
    table = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    items = [[label for label, count in enumerate(row) for _ in range(count)] for row in table]
    assert round(fleiss_kappa(items), 3) == 0.210
    assert fleiss_kappa([]) is fleiss_kappa([[1, 1]]) is None


PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


@given(PAIRS)
def test_kappa_does_not_depend_on_the_labels_or_the_order_of_raters(pairs):
    kappa = confusion(pairs).kappa
    assert confusion([(not one, not other) for one, other in pairs]).kappa == kappa
    assert confusion([(other, one) for one, other in pairs]).kappa == kappa
    assert cohen_kappa(table_of(pairs)) == kappa


@given(PAIRS)
def test_numbers_stay_within_their_bounds(pairs):
    found = confusion(pairs)
    assert found.kappa is None or -1 <= found.kappa <= 1
    assert found.constant_accuracy >= 0.5
    if interval := found.kappa_interval:
        assert -1 <= interval.lower <= interval.mean <= interval.upper <= 1
    alpha = krippendorff_alpha(pairs)
    assert alpha is None or alpha <= 1
    assert (alpha == 1) == (found.accuracy == 1 and len({one for one, _ in pairs}) == 2)


@given(st.lists(st.lists(st.none() | st.booleans(), min_size=1, max_size=4), max_size=20))
def test_alpha_does_not_depend_on_the_order_of_raters(items):
    alpha = krippendorff_alpha(items)
    assert krippendorff_alpha([row[::-1] for row in items[::-1]]) == (alpha if alpha is None else pytest.approx(alpha))
