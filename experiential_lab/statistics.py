"""Scores by family become a mean with its interval, or a named reason why there is none; counts become certified labels.

- The family is the unit: each has one vote, the mean of its rows. The row-weighted mean stands beside, without interval.
- An interval is Student's t with G - 1 degrees of freedom over the values of the G families; of two methods on the same
  rows, over the differences of the families. Its ends are rounded to four decimals, and a decision is taken on the ends.
- A guard that is not met is a value with its reason: fewer than FAMILIES families; fewer than DIFFERING families that
  differ, of a difference; families that are all equal, for an interval [x, x] would claim what nobody knows.
- The upper bound of a risk is that of Clopper and Pearson, one-sided. It is found and compared in integers, rounded up,
  so that no label is accepted by a rounding error. Labels are tested in a fixed order, up to the first that fails.
- Everything that is kept is an integer number of millionths.

Sources: Clopper, Pearson 1934 (the bound); Maurer, Hothorn, Lehmacher 1995 and Angelopoulos et al. 2021, arXiv:2110.01052
(hypotheses in a fixed order spend one error rate together).

Not covered: row-weighted intervals, other corrections for many comparisons, rank agreement. Families that depend on each
other, for example because one was copied from another, break every number here.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import sqrt

import msgspec

from experiential_lab.records import Record, UsageError

MILLION = 1_000_000
ROUNDED = 100  # millionths: interval ends keep four decimals
FAMILIES = 20
DIFFERING = 10

Scores = Mapping[str, Sequence[int]]
"""Family -> the score of each of its rows, in millionths."""


class NotEnough(Record, kw_only=True, tag="not_enough"):
    """Why nothing can be said; it stands where the number would."""

    reason: str


class Interval(Record, kw_only=True, tag="interval"):
    """Both ends in millionths."""

    low: int
    high: int
    level: str
    """A decimal."""


class Estimate(Record, kw_only=True):
    """A family-weighted mean and how far it can be trusted. Millionths."""

    value: int | None
    """None: there is no family."""
    by_row: int | None
    """Each row one vote."""
    families: int
    rows: int
    interval: Interval | NotEnough


class LabelTest(Record, kw_only=True):
    """What became of one label in a fixed sequence."""

    label: str
    families: int
    """How many gave one row."""
    wrong: int
    bound: int
    """Upper bound of the risk, in millionths."""
    accepted: bool
    reason: str = ""
    """Why it is not accepted."""


def family_mean(scores: Scores, *, level: str = "0.95") -> Estimate:
    """The mean over families of the family's mean, with its t interval.

    >>> family_mean({"a": [0, 1_000_000], "b": [0]}).interval.reason
    'not enough families: 2, needs 20'

    Raises:
        UsageError: a family has no row, or the level is no number between 0 and 1.
    """
    for family, values in scores.items():
        if not values:
            raise UsageError(f"family {family} has no row: leave it out, or score one")
    means = [Fraction(sum(values), len(values)) for values in scores.values()]
    rows = sum(map(len, scores.values()))
    return Estimate(
        value=round(sum(means) / len(means)) if means else None,
        by_row=round(Fraction(sum(map(sum, scores.values())), rows)) if rows else None,
        families=len(means),
        rows=rows,
        interval=_interval(means, level),
    )


def family_difference(ours: Scores, theirs: Scores, *, level: str = "0.95") -> Estimate:
    """Ours minus theirs on the same rows, with the t interval of the family differences.

    Raises:
        UsageError: both are not of the same families and rows; or as `family_mean`.
    """
    if (sizes := _sizes(ours)) != (others := _sizes(theirs)):
        differ = sorted(set(sizes.items()) ^ set(others.items()))[:2]
        raise UsageError(
            f"a paired difference needs the same rows on both sides; they differ in (family, rows) {differ}"
        )
    found = {family: [a - b for a, b in zip(ours[family], theirs[family], strict=True)] for family in ours}
    estimate = family_mean(found, level=level)
    differing = sum(bool(sum(values)) for values in found.values())
    if estimate.families < FAMILIES or differing >= DIFFERING:
        return estimate
    reason = f"not enough families that differ: {differing}, needs {DIFFERING}"
    return msgspec.structs.replace(estimate, interval=NotEnough(reason=reason))


def _sizes(scores: Scores) -> dict[str, int]:
    return {family: len(values) for family, values in scores.items()}


def _interval(means: Sequence[Fraction], level: str) -> Interval | NotEnough:
    confidence, count = share(level, "the level"), len(means)
    if count < FAMILIES:
        return NotEnough(reason=f"not enough families: {count}, needs {FAMILIES}")
    mean = sum(means) / count
    spread = sum((value - mean) ** 2 for value in means) / (count - 1)  # exact: equal families give exactly 0
    if not spread:
        return NotEnough(reason="refused: all families equal")
    from scipy.special import stdtrit

    half = float(stdtrit(count - 1, float(1 + confidence) / 2)) * sqrt(spread / count)
    return Interval(low=_rounded(float(mean) - half), high=_rounded(float(mean) + half), level=level)


def _rounded(value: float) -> int:
    return ROUNDED * round(value / ROUNDED)


def share(value: str, name: str) -> Fraction:
    """A decimal between 0 and 1 as an exact number. Raises UsageError: it is none."""
    try:
        exact = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{name} is {value!r}: give a decimal between 0 and 1") from None
    if not 0 < exact < 1:
        raise UsageError(f"{name} is {value}: give a decimal between 0 and 1")
    return exact


def upper_bound(wrong: int, families: int, *, delta: str) -> int:
    """The risk, in millionths and rounded up, that `wrong` of `families` independent trials exceed with confidence 1 - delta.

    The largest risk at which so few wrong ones still have a probability above delta: BetaInv(1 - delta; wrong + 1,
    families - wrong). With no family, or all of them wrong, it is 1.

    >>> upper_bound(0, 22, delta="0.1"), upper_bound(0, 21, delta="0.1")
    (99372, 103850)

    Raises:
        UsageError: the counts are impossible, or delta is no number between 0 and 1.
    """
    chance = share(delta, "delta")
    if not 0 <= wrong <= families:
        raise UsageError(f"{wrong} of {families} families cannot be wrong")
    low, high = -1, MILLION  # the bound lies above low and at or below high
    while wrong < families and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _is_rare(wrong, families, Fraction(middle, MILLION), chance) else (middle, high)
    return high


def _is_rare(wrong: int, families: int, risk: Fraction, chance: Fraction) -> bool:
    """Whether at most `wrong` of `families` have a probability of at most `chance` at this risk; in integers."""
    bad, good = risk.numerator, risk.denominator - risk.numerator
    term = total = good**families
    for i in range(wrong if good else 0):
        term = term * (families - i) * bad // ((i + 1) * good)  # the next binomial term; it divides exactly
        total += term
    rare: bool = total * chance.denominator <= chance.numerator * risk.denominator**families
    return rare


def families_needed(wrong: int, *, alpha: str, delta: str) -> int:
    """How many families a label needs to be accepted with that many wrong ones.

    >>> families_needed(0, alpha="0.1", delta="0.1")
    22
    """
    risk, chance = share(alpha, "alpha"), share(delta, "delta")
    low, high = wrong, wrong + 1
    while not _is_rare(wrong, high, risk, chance):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _is_rare(wrong, middle, risk, chance) else (middle, high)
    return high


def certify_in_order(counts: Iterable[tuple[str, int, int]], *, alpha: str, delta: str) -> tuple[LabelTest, ...]:
    """The test of each (label, families, wrong), in the given order: accepted while the upper bound is at most alpha.

    The rows are one a family. From the first failure on nothing is accepted: so the probability that any label is
    accepted whose own risk is above alpha is at most delta, however many labels there are.

    Raises:
        UsageError: alpha or delta is no number between 0 and 1, or the counts are impossible.
    """
    limit, tests, failed = share(alpha, "alpha"), [], ""
    for label, families, wrong in counts:
        bound = upper_bound(wrong, families, delta=delta)
        reason = f"not tested: label {failed} is not certified" if failed else ""
        if not failed and bound > limit * MILLION:
            failed, needed = label, families_needed(0, alpha=alpha, delta=delta)
            why = f"upper bound {_decimal(bound)} > {alpha} on {families} families, {wrong} wrong"
            reason = f"not enough families: {families}, needs {needed}" if families < needed else why
        test = LabelTest(label=label, families=families, wrong=wrong, bound=bound, accepted=not failed, reason=reason)
        tests.append(test)
    return tuple(tests)


def _decimal(millionths: int) -> str:
    """Four decimals, rounded up: a bound is never shown as less than it is."""
    ceiling = -(-millionths // ROUNDED)
    return f"{ceiling // 10_000}.{ceiling % 10_000:04d}"
