"""Numbers over families. Each name is the promise."""

import doctest
import random
from fractions import Fraction
from math import comb, sqrt

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from scipy.stats import beta, binomtest, ttest_1samp, ttest_rel

from experiential_lab import statistics
from experiential_lab.records import Record, UsageError, canonical_bytes
from experiential_lab.statistics import (
    MILLION,
    Interval,
    NotEnough,
    certify_in_order,
    families_needed,
    family_difference,
    family_mean,
    upper_bound,
)

cells = st.integers(0, MILLION)
families = st.dictionaries(st.text(max_size=4), st.lists(cells, min_size=1, max_size=5), min_size=20, max_size=40)


def single(values) -> dict[str, list[int]]:
    """Families of one row each."""
    return {f"f{number}": [value] for number, value in enumerate(values)}


def test_the_examples_of_the_module_hold():
    assert doctest.testmod(statistics).failed == 0


def test_each_family_has_one_vote_and_the_mean_of_the_rows_stands_beside():
    estimate = family_mean({"large": [0, 0, 0], "small": [MILLION]})
    assert (estimate.value, estimate.by_row, estimate.families, estimate.rows) == (500_000, 250_000, 2, 4)


def test_the_mean_of_no_family_is_unknown_and_not_zero():
    estimate = family_mean({})
    assert (estimate.value, estimate.by_row) == (None, None)
    assert estimate.interval == NotEnough(reason="not enough families: 0, needs 20")


def test_a_family_without_a_row_is_refused_by_name():
    with pytest.raises(UsageError, match="family b has no row"):
        family_mean({"a": [1], "b": []})


@settings(deadline=None, max_examples=60)
@given(families)
def test_the_interval_is_students_t_over_the_means_of_the_families(scores):
    means = [sum(values) / len(values) for values in scores.values()]
    found = family_mean(scores).interval
    if len({Fraction(sum(values), len(values)) for values in scores.values()}) == 1:
        assert found == NotEnough(reason="refused: all families equal")
        return
    low, high = ttest_1samp(means, 0).confidence_interval(0.95)
    assert found.low == pytest.approx(low, abs=51)  # rounded to four decimals
    assert found.high == pytest.approx(high, abs=51)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(cells, cells), min_size=20, max_size=40), st.sampled_from(["0.9", "0.95", "0.995"]))
def test_the_interval_of_a_difference_is_that_of_the_paired_t_test(pairs, level):
    ours, theirs = zip(*pairs, strict=True)
    found = family_difference(single(ours), single(theirs), level=level).interval
    if isinstance(found, NotEnough):
        assert sum(a != b for a, b in pairs) < 10 or len({a - b for a, b in pairs}) == 1
        return
    low, high = ttest_rel(ours, theirs).confidence_interval(float(level))
    assert (found.low, found.high) == (pytest.approx(low, abs=51), pytest.approx(high, abs=51))


def test_a_worked_example_of_the_interval():
    found = family_mean(single([100_000] * 10 + [300_000] * 10)).interval
    half = 2.093024 * 102_597.835 / sqrt(20)  # t(.975, 19), and the standard deviation of the twenty values
    assert found == Interval(low=152_000, high=248_000, level="0.95")
    assert (200_000 - half, 200_000 + half) == (pytest.approx(151_983, abs=1), pytest.approx(248_017, abs=1))


def test_fewer_than_twenty_families_give_no_interval():
    assert family_mean(single(range(19))).interval == NotEnough(reason="not enough families: 19, needs 20")
    assert isinstance(family_mean(single(range(20))).interval, Interval)


def test_equal_families_give_a_refusal_and_never_an_interval_of_one_point():
    assert family_mean(single([333_333] * 30)).interval == NotEnough(reason="refused: all families equal")
    thirds = {f"f{number}": [0, 0, 1] * (number + 1) for number in range(30)}
    assert family_mean(thirds).interval == NotEnough(reason="refused: all families equal")


def test_a_difference_needs_ten_families_that_differ():
    same, nine, ten = single([5] * 30), single([6] * 9 + [5] * 21), single([6] * 10 + [5] * 20)
    reason = "not enough families that differ: 9, needs 10"
    assert family_difference(nine, same).interval == NotEnough(reason=reason)
    assert isinstance(family_difference(ten, same).interval, Interval)


def test_a_difference_of_other_rows_is_refused():
    with pytest.raises(UsageError, match=r"the same rows on both sides.*\('b', 1\)"):
        family_difference({"a": [1], "b": [1]}, {"a": [1], "b": [1, 2]})


def test_the_order_of_the_families_never_shows_and_no_float_is_kept():
    scores = single([number * 31_337 % MILLION for number in range(40)])
    turned = dict(reversed(scores.items()))
    assert canonical_bytes(family_mean(scores)) == canonical_bytes(family_mean(turned))
    assert b"." not in canonical_bytes(family_mean(scores)).replace(b'"0.95"', b"")


def test_the_t_interval_covers_a_mean_of_normal_families():
    draw = random.Random(3)
    covered = 0
    for _ in range(400):
        found = family_mean(single([round(draw.gauss(500_000, 90_000)) for _ in range(20)])).interval
        covered += found.low <= 500_000 <= found.high
    assert covered / 400 == pytest.approx(0.95, abs=2 * sqrt(0.95 * 0.05 / 400))


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from(["0.05", "0.1", "0.2"]))
def test_the_upper_bound_is_that_of_clopper_and_pearson_rounded_up(one, other, delta):
    wrong, count = min(one, other), max(one, other)
    bound = upper_bound(wrong, count, delta=delta)
    exact = 1.0 if wrong == count else float(beta.ppf(1 - float(delta), wrong + 1, count - wrong))
    assert exact * MILLION - 1e-3 <= bound <= exact * MILLION + 1
    if count:
        two_sided = binomtest(wrong, count).proportion_ci(1 - 2 * float(delta), method="exact").high
        assert bound == pytest.approx(two_sided * MILLION, abs=1.01)


@pytest.mark.parametrize(("alpha", "needed"), [("0.1", [22, 38, 52, 78]), ("0.2", [11, 18, 25, 38])])
def test_so_many_families_are_needed_as_the_study_says(alpha, needed):
    assert [families_needed(wrong, alpha=alpha, delta="0.1") for wrong in (0, 1, 2, 4)] == needed
    for wrong, count in zip((0, 1, 2, 4), needed, strict=True):
        assert upper_bound(wrong, count, delta="0.1") <= float(alpha) * MILLION
        assert upper_bound(wrong, count - 1, delta="0.1") > float(alpha) * MILLION


@pytest.mark.parametrize("count", [22, 38, 60, 137])
def test_a_label_of_exactly_that_risk_or_more_is_accepted_with_at_most_delta(count):
    few = [k for k in range(count) if certify_in_order([("A", count, k)], alpha="0.1", delta="0.1")[0].accepted]
    assert few == list(range(len(few)))
    accepted = sum(comb(count, k) * Fraction(1, 10) ** k * Fraction(9, 10) ** (count - k) for k in few)
    assert 0 < accepted <= Fraction(1, 10)


def test_labels_are_accepted_in_order_up_to_the_first_that_fails():
    tests = certify_in_order([("A", 40, 1), ("B", 40, 9), ("C", 99, 0)], alpha="0.1", delta="0.1")
    assert [(each.label, each.accepted) for each in tests] == [("A", True), ("B", False), ("C", False)]
    assert [each.reason for each in tests] == [
        "",
        "upper bound 0.3319 > 0.1 on 40 families, 9 wrong",
        "not tested: label B is not certified",
    ]


def test_too_few_families_are_named_as_the_reason():
    [test] = certify_in_order([("A", 12, 0)], alpha="0.1", delta="0.1")
    assert (test.accepted, test.reason) == (False, "not enough families: 12, needs 22")


def test_certified_labels_are_too_risky_in_at_most_delta_of_fresh_corpora():
    draw, corpora, broken = random.Random(11), 1_000, 0
    risks = (("A", 0.02), ("B", 0.105), ("C", 0.2))  # B just fails to deserve it
    for _ in range(corpora):
        counts = [(label, 80, sum(draw.random() < risk for _ in range(80))) for label, risk in risks]
        accepted = [test.label for test in certify_in_order(counts, alpha="0.1", delta="0.1") if test.accepted]
        broken += any(dict(risks)[label] > 0.1 for label in accepted)
    assert 0 < broken / corpora <= 0.1 + 2 * sqrt(0.1 * 0.9 / corpora)


@pytest.mark.parametrize(("alpha", "delta"), [("0", "0.1"), ("1", "0.1"), ("0.1", "often"), ("0.1", "1/0")])
def test_a_rate_that_is_none_is_refused(alpha, delta):
    with pytest.raises(UsageError, match="give a decimal between 0 and 1"):
        certify_in_order([("A", 40, 1)], alpha=alpha, delta=delta)


def test_impossible_counts_are_refused():
    with pytest.raises(UsageError, match="5 of 4 families cannot be wrong"):
        upper_bound(5, 4, delta="0.1")


def test_every_value_here_is_a_record():
    assert all(issubclass(each, Record) for each in (NotEnough, Interval, statistics.Estimate, statistics.LabelTest))
