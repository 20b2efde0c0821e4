"""Agreement between raters, against values of independent packages: statsmodels 0.15.0, scikit-learn 1.9.1 and
krippendorff 0.9.0 computed them from the same tables."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waza.stats.agreement import (
    Confusion,
    cohen_kappa,
    confusion,
    kappa_interval,
    kappa_remark,
    kappa_variance,
    krippendorff_alpha,
    table_of,
)
from waza.stats.scores import wilson

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "judges.md"

# both pass, only people pass, only the judge passes, both fail: kappa (statsmodels.stats.inter_rater.cohens_kappa and
# sklearn.metrics.cohen_kappa_score), its variance (statsmodels), Wilson's interval of the agreement
# (statsmodels.stats.proportion.proportion_confint), nominal alpha (krippendorff.alpha)
TABLES = [
    (
        (45, 15, 25, 15),
        0.13043478260869568,
        0.009734099006221388,
        (0.5020025867910618, 0.6905987135675411),
        0.12527472527472527,
    ),
    ((20, 5, 10, 15), 0.4, 0.016127999999999997, (0.5624964953554659, 0.8089644649911905), 0.4),
    (
        (80, 3, 10, 7),
        0.4491525423728814,
        0.01586485214272316,
        (0.7901964855992356, 0.9224283257275949),
        0.44615713979875826,
    ),
    ((9, 1, 0, 10), 0.9, 0.00940500000000002, (0.7638688065532577, 0.9911185511992044), 0.9022556390977443),
    ((4, 16, 16, 64), 0.0, 0.009999999999999983, (0.5833738138954762, 0.7633085267500092), 0.004999999999999893),
    (
        (118, 5, 2, 0),
        -0.023391812865497075,
        0.00015096438953770742,
        (0.8889121558924442, 0.9726117744945619),
        -0.024691358024691468,
    ),
]


def counts(cells):
    both, people_only, judge_only, neither = cells
    return Confusion(true_pass=both, false_fail=people_only, false_pass=judge_only, true_fail=neither)


def rows(cells):
    """The items of a table, as two labels each."""
    return [pair for pair, count in zip([(1, 1), (1, 0), (0, 1), (0, 0)], cells, strict=True) for _ in range(count)]


@pytest.mark.parametrize(("cells", "kappa", "variance", "interval", "alpha"), TABLES)
def test_the_numbers_are_those_of_independent_packages(cells, kappa, variance, interval, alpha):
    found = counts(cells)
    assert found.kappa == pytest.approx(kappa, abs=1e-12)
    assert kappa_variance(found.table) == pytest.approx(variance, abs=1e-12)
    assert (found.accuracy_interval.lower, found.accuracy_interval.upper) == pytest.approx(interval, abs=1e-12)
    assert wilson(found.agreed, found.n) == found.accuracy_interval
    assert krippendorff_alpha(rows(cells)) == pytest.approx(alpha, abs=1e-12)


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
    assert kappa_variance(fine) == pytest.approx(0.006809558579766844, abs=1e-12)


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


def misfit(kappa, passes, fails):
    """Pearson's statistic of a table on which all agree, if two raters who pass equally often had this kappa."""
    n = passes + fails
    p = passes / n
    q = 1 - p
    expected = [n * (p * p + kappa * p * q), 2 * n * p * q * (1 - kappa), n * (q * q + kappa * p * q)]
    return sum((found - one) ** 2 / one for found, one in zip([passes, 0, fails], expected, strict=True))


@given(st.integers(1, 300), st.integers(1, 300))
def test_a_few_items_that_all_agree_on_never_make_kappa_certain(passes, fails):
    """The goodness-of-fit interval of Donner and Eliasziw (1992): as far as the test at 5 % would not refuse."""
    found = kappa_interval([[passes, 0], [0, fails]])
    assert misfit(found.lower, passes, fails) == pytest.approx(3.841458820694124)
    assert (found.mean, found.upper) == (1.0, 1.0) and found.lower < 1
    assert kappa_interval([[passes, 0], [0, fails]], effect=4.0).lower < found.lower


def test_the_guide_s_eighteen_outputs_without_a_difference():
    assert kappa_interval([[12, 0], [0, 6]]).lower == pytest.approx(0.6147617470941369)
    assert "12 passes and 6 fails without a\ndifference leave 0.61 to 1" in GUIDE.read_text()


@pytest.mark.parametrize(
    ("table", "value"), [([[0, 1], [0, 0]], 0.0), ([[18, 0], [2, 0]], 0.0), ([[0, 4], [4, 0]], -1.0)]
)
def test_where_kappa_has_no_variance_it_has_no_interval_and_there_is_a_reason(table, value):
    assert (cohen_kappa(table), kappa_interval(table)) == (value, None)
    assert kappa_remark(table).startswith("no interval: one of the two never varies, or they never agree")
    assert kappa_remark([[7, 0], [0, 0]]) == "undefined: all verdicts are the same"
    assert kappa_remark([[3, 0], [0, 2]]) == kappa_remark([[3, 1], [0, 2]]) == ""


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
