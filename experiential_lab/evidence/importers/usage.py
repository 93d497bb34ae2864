"""What model calls used and cost, as their formats state it: counts by kind of unit, and whole nano-dollars.

- A count is a whole number from zero to 2^53 - 1; anything else counts nothing. A price is a number of dollars, or its text.
- A sum is unknown (None) as soon as one of its parts is, and where it has none.

Not covered: which calls count (leaf calls, the last record of a message, differences of running totals): that is the format's.
"""

from collections.abc import Iterable
from decimal import Decimal

from experiential_lab.records import SAFE_INTEGER

NANO = 1_000_000_000
Usage = tuple[tuple[str, int], ...]
"""((kind of unit, count), ...), sorted."""


def is_count(value: object) -> bool:
    """Whether a value is a count of something.

    >>> is_count(0), is_count(-1), is_count(True), is_count(2.0), is_count(2**53)
    (True, False, False, False, False)
    """
    return type(value) is int and 0 <= value <= SAFE_INTEGER


def counts_in(usage: object, kinds: Iterable[str] = ()) -> dict[str, int]:
    """The counts in an object, of these kinds or of all."""
    stated = usage if isinstance(usage, dict) else {}
    return {kind: stated[kind] for kind in kinds or stated if is_count(stated.get(kind))}


def usage_in(usage: object) -> Usage | None:
    """The counts in an object; None when it holds none."""
    return tuple(sorted(counts_in(usage).items())) or None


def sound_in(usage: object) -> Usage | None:
    """The counts in an object; None when it holds none, or a whole number that cannot be one."""
    stated = usage.values() if isinstance(usage, dict) else ()
    return usage_in(usage) if all(is_count(each) for each in stated if type(each) is int) else None


def summed(usages: Iterable[object], kinds: tuple[str, ...] = ()) -> Usage | None:
    """The sum of each kind of unit that every one of some usages counts; None when there is none."""
    totals: dict[str, int] | None = None
    for usage in usages:
        counts = counts_in(usage, kinds)
        totals = counts if totals is None else {k: totals[k] + counts[k] for k in totals.keys() & counts.keys()}
    return tuple(sorted(totals.items())) if totals else None


def pooled(calls: Iterable[Usage | None]) -> Usage | None:
    """The sum of each kind of unit that any of some calls counts, and how many calls; None when one counts nothing."""
    totals, number = dict[str, int](), 0
    for usage in calls:
        if not usage:
            return None
        number += 1
        for kind, count in usage:
            totals[kind] = totals.get(kind, 0) + count
    return tuple(sorted([*totals.items(), ("model_messages", number)])) if totals else None


def in_nano_dollars(value: object) -> int | None:
    """A stated amount of dollars as whole nano-dollars; None for what is no amount.

    >>> in_nano_dollars(1.2e-05), in_nano_dollars("0.0004095"), in_nano_dollars(None), in_nano_dollars(10**9)
    (12000, 409500, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = Decimal(str(value)) * NANO
        return int(amount.to_integral_value()) if amount.is_finite() and 0 <= amount <= SAFE_INTEGER else None
    except (ArithmeticError, ValueError):  # no number, or one with more digits than Python converts
        return None


def nano_dollars(prices: Iterable[object]) -> int | None:
    """The sum of some prices in dollars as nano-dollars; None when one is unknown, or there is none."""
    return total_nusd(map(in_nano_dollars, prices))


def total_nusd(costs: Iterable[int | None]) -> int | None:
    """The sum of some nano-dollars; None when one is unknown, or there is none."""
    known = list(costs)
    return sum(cost for cost in known if cost is not None) if known and None not in known else None
