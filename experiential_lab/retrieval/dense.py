"""Exact search over integer vectors: an int8 matrix and an int8 query become exactly ranked rows.

- A score is the dot product of two integer vectors. Components stay within `bound_of(d)`, so every partial sum is an
  integer of at most 2**24, which float32 holds exactly: no result depends on BLAS kernel, threads, order of adding or
  batch. One query gives what it gives among many.
- No statistic of the matrix enters a score, so a search of a view equals a search of the matrix of its rows alone.
- Rows that are out are never among the results, and min(k, visible) rows come back. Equal scores are in order of entry id.
- A query vector of zeros has no direction: there is nothing to rank by, and the answer is None.

Rows are cast to float32 a block at a time, in one buffer that stays in the cache: less memory is read than by a float32
matrix, and no copy of the matrix is made.

Not covered: whether a near vector is a good precedent. The file form is npy 1.0, read in place; its digest is for whoever
stores it to check.
"""

import io
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiential_lab.records import IntegrityError, UsageError
from experiential_lab.retrieval.sparse import Ranked, top

Array = NDArray[Any]

BLOCK = (
    1 << 17
)  # components that are cast at once: 512 KiB of float32 stay in the second-level cache (4 MiB took 1.7 x)
EXACT = 1 << 24  # float32 holds every integer up to here


def bound_of(dimension: int) -> int:
    """The largest component for which float32 dot products of `dimension` components are exact; at most 127.

    >>> bound_of(256), bound_of(1040), bound_of(1536)
    (127, 127, 104)

    Raises:
        UsageError: a dimension below 1, or so large that no component is left.
    """
    if not 1 <= dimension <= EXACT:
        raise UsageError(f"dimension {dimension}: vectors have 1 to {EXACT} components")
    return min(127, isqrt(EXACT // dimension))


class Vectors:
    """The vectors of rows in the order of their snapshot; nothing changes after it is made."""

    def __init__(self, matrix: Array, order: Array) -> None:
        """Hold `matrix`, (n, d) int8, and `order`, (n,) int64: the rank of each row's entry id, as `order_of` gives it.

        Raises:
            IntegrityError: another shape or type, or a component beyond the bound of its dimension.
        """
        if matrix.ndim != 2 or matrix.dtype != np.int8 or len(matrix) != len(order):
            raise IntegrityError(
                f"vectors are {matrix.dtype} of shape {matrix.shape}; {len(order)} entries need int8 ({len(order)}, d)"
            )
        _check_bound(matrix)
        self.matrix = matrix
        self.order = order

    def prefix(self, count: int) -> "Vectors":
        """The vectors of the first `count` rows alone."""
        return Vectors(self.matrix[:count], self.order[:count])


def _check_bound(vectors: Array) -> None:
    bound = bound_of(vectors.shape[1])
    low, high = int(vectors.min(initial=0)), int(vectors.max(initial=0))
    if max(-low, high) > bound:
        raise IntegrityError(
            f"a component is {low if -low > high else high}; with {vectors.shape[1]} of them at most {bound} is exact"
        )


def nearest(vectors: Vectors, query: Array, k: int, *, keep: Array | None = None) -> list[Ranked] | None:
    """The min(k, visible) rows of the greatest dot products, best first; None for a query of zeros.

    `query`: (d,) int8. `keep`: (n,) bool, the visible rows; None: all.

    Raises:
        IntegrityError: the query has another type or dimension than the vectors, or a component beyond their bound.
    """
    [ranked] = nearest_of(vectors, query[np.newaxis], k, keep=keep)
    return ranked


def nearest_of(vectors: Vectors, queries: Array, k: int, *, keep: Array | None = None) -> list[list[Ranked] | None]:
    """What `nearest` gives for each of `queries`, (m, d) int8, in one pass over the matrix. Raises as it does."""
    kept = np.ones(len(vectors.order), bool) if keep is None else keep
    return [
        _best(scores, vectors.order, kept, k) if query.any() else None
        for query, scores in zip(queries, dot_products(vectors, queries), strict=True)
    ]


def _best(scores: Array, order: Array, keep: Array, k: int) -> list[Ranked]:
    shifted = scores + np.int32(EXACT)  # no score is below -EXACT, and `top` takes no negative one for a candidate
    shifted[~keep] = -1  # so k is filled by visible rows alone
    return [Ranked(row, int(scores[row]), (int(scores[row]),)) for row in top(shifted, order, k).tolist()]


def dot_products(vectors: Vectors, queries: Array) -> Array:
    """(m, n) int32: the exact dot product of each query, (m, d) int8, with every row. Raises as `nearest` does."""
    matrix = vectors.matrix
    if queries.ndim != 2 or queries.dtype != np.int8 or queries.shape[1] != matrix.shape[1]:
        raise IntegrityError(
            f"a query is {queries.dtype} of {queries.shape[-1]} components, the vectors are int8 of {matrix.shape[1]}; "
            "embed it with the embedder of the index"
        )
    _check_bound(queries)
    asked = np.ascontiguousarray(queries.T, np.float32)  # (d, m)
    scores = np.empty((len(queries), len(matrix)), np.int32)
    step = max(1, BLOCK // matrix.shape[1])
    block = np.empty((min(step, len(matrix)), matrix.shape[1]), np.float32)
    for start in range(0, len(matrix), step):
        rows = matrix[start : start + step]
        rows[:, ::64].copy()  # a byte of each cache line: these loads overlap, the cast would wait for each (0.76 x)
        np.copyto(block[: len(rows)], rows)
        scores[:, start : start + step] = (block[: len(rows)] @ asked).T
    return scores


def npy_of(matrix: Array) -> bytes:
    """The bytes of an npy 1.0 file that holds `matrix`, (n, d) int8."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(matrix), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def read_npy(data: bytes | memoryview) -> Array:
    """The matrix of `npy_of`, (n, d) int8, read-only and in place: `data` may be a memory map.

    Raises:
        IntegrityError: `data` is no npy file of an int8 matrix.
    """
    head = io.BytesIO(bytes(data[:128]))
    try:
        if np.lib.format.read_magic(head) != (1, 0):
            raise ValueError("another version than 1.0")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(head)
        if by_columns or dtype != np.int8 or len(shape) != 2:
            raise ValueError(f"{dtype} of shape {shape}, where an int8 matrix is expected")
        flat = np.frombuffer(data, np.int8, offset=head.tell())
        matrix = flat.reshape(shape)
    except ValueError as error:
        raise IntegrityError(f"{len(data)} bytes are no stored vectors: {error}; build the index again") from None
    matrix.flags.writeable = False
    return matrix
