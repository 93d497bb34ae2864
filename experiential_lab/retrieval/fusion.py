"""Join rankings of the same rows by their ranks: reciprocal rank fusion (Cormack, Clarke, Buettcher 2009).

- A row scores the sum of 1 / (60 + rank) over the rankings that name it, in whole 1e-12; equal sums are in order of entry id.
- A ranking names a row only where the row shares something with the query.

Not covered: whether a weak ranking helps a strong one. It often does not: `choice.py` compares them.
"""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from experiential_lab.retrieval.sparse import Ranked

CONSTANT = 60
DEPTH = 100  # rows of each ranking that are joined
_SHARE = 10**12


def fused(rankings: Sequence[Sequence[int]], order: NDArray[Any], *, constant: int = CONSTANT) -> list[Ranked]:
    """Every row that a ranking names, best first; the parts of a score say what each ranking gave, in 1e-12.

    `rankings`: rows, best first. `order`: (n,) int64, the rank of each row's entry id, which decides between equal sums.

    >>> import numpy as np
    >>> [(hit.row, hit.score) for hit in fused([[7, 3], [3]], np.arange(9))]
    [(3, 32522474880), (7, 16393442622)]
    """
    parts: dict[int, list[int]] = {}
    for number, ranking in enumerate(rankings):
        for place, row in enumerate(ranking, 1):
            parts.setdefault(row, [0] * len(rankings))[number] = _SHARE // (constant + place)
    found = [Ranked(row, sum(shares), tuple(shares)) for row, shares in parts.items()]
    return sorted(found, key=lambda hit: (-hit.score, int(order[hit.row])))
