"""Join rankings of the same rows by their ranks: reciprocal rank fusion (Cormack, Clarke, Buettcher 2009).

- A row scores the sum of 1 / (60 + rank) over the rankings that name it, in whole 1e-12, rounded down from the exact sum;
  equal scores are in order of entry id.
- A ranking names a row only where the row shares something with the query.

Not covered: whether a weak ranking helps a strong one. It often does not: `choice.py` compares them.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from numpy.typing import NDArray

from experiential_lab.retrieval.sparse import Ranked

CONSTANT = 60
DEPTH = 100  # rows of each ranking that are joined
Array = NDArray[Any]

_UNIT = 10**12  # of a fused score


def fused(rankings: Sequence[Sequence[int]], order: Array, *, constant: int = CONSTANT) -> list[Ranked]:
    """Every row that a ranking names, by the sum of 1 / (constant + rank) over the rankings, best first.

    `rankings`: rows, best first. `order`: (n,) int64, rank of each row's entry id, which decides between equal sums. The
    parts of a score say what each ranking gave, in 1e-12.

    >>> import numpy as np
    >>> [(hit.row, hit.score) for hit in fused([[7, 3], [3]], np.arange(9))]
    [(3, 32522474881), (7, 16393442622)]
    """
    gave: dict[int, list[Fraction]] = {}
    for number, ranking in enumerate(rankings):
        for place, row in enumerate(ranking, 1):
            gave.setdefault(row, [Fraction(0)] * len(rankings))[number] = Fraction(1, constant + place)
    made = (_ranked(row, shares) for row, shares in gave.items())
    return sorted(made, key=lambda hit: (-hit.score, int(order[hit.row])))  # by what is written, which a receipt checks


def _ranked(row: int, shares: Sequence[Fraction]) -> Ranked:
    """Rounded down from the exact sum (1/122 + 1/122 is 1/61), and so that the parts sum to the score."""
    upto = [int(sum(shares[:number]) * _UNIT) for number in range(len(shares) + 1)]
    return Ranked(row, upto[-1], tuple(after - before for before, after in pairwise(upto)))
