"""Laws of dense search, over integer vectors alone. Each name is the law."""

import io
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from experiential_lab.records import IntegrityError, UsageError
from experiential_lab.retrieval import dense
from experiential_lab.retrieval.dense import Vectors, bound_of, dot_products, nearest, nearest_of, npy_of, read_npy
from experiential_lab.retrieval.sparse import order_of


@st.composite
def corpora(draw):
    """Few small components, so that scores tie; (vectors, visible rows, queries)."""
    n, d = draw(st.integers(0, 14)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    matrix, keep = rng.integers(-2, 3, (n, d), dtype=np.int8), rng.random(n) < draw(st.sampled_from([0, 0.5, 1]))
    return Vectors(matrix, rng.permutation(n)), keep, rng.integers(-2, 3, (draw(st.integers(1, 4)), d), dtype=np.int8)


def slow(vectors: Vectors, query, k: int, keep) -> list[tuple[int, int]] | None:
    """The definition, in Python integers: (row, score), best first."""
    scores = {
        row: sum(int(a) * int(b) for a, b in zip(vectors.matrix[row], query, strict=True))
        for row in np.flatnonzero(keep).tolist()
    }
    best = sorted(scores, key=lambda row: (-scores[row], vectors.order[row]))
    return [(row, scores[row]) for row in best[:k]] if query.any() else None


def plain(ranked):
    return None if ranked is None else [(hit.row, hit.score) for hit in ranked]


@settings(deadline=None, max_examples=300)
@given(corpora(), st.integers(1, 16))
def test_results_are_those_of_the_definition_one_by_one_and_in_a_batch(corpus, k):
    vectors, keep, queries = corpus
    expected = [slow(vectors, query, k, keep) for query in queries]
    assert [plain(nearest(vectors, query, k, keep=keep)) for query in queries] == expected
    assert [plain(ranked) for ranked in nearest_of(vectors, queries, k, keep=keep)] == expected


@settings(deadline=None, max_examples=300)
@given(corpora(), st.integers(1, 16))
def test_a_search_of_a_view_equals_a_search_of_its_rows_alone(corpus, k):
    vectors, keep, queries = corpus
    rows = np.flatnonzero(keep)
    alone = Vectors(vectors.matrix[rows], order_of([f"{place:02d}" for place in vectors.order[rows]]))
    for query in queries:
        masked, built = nearest(vectors, query, k, keep=keep), nearest(alone, query, k)
        if built is None:
            assert masked is None
        else:
            assert masked == [hit._replace(row=int(rows[hit.row])) for hit in built]
            assert len(masked) == min(k, len(rows))


def test_k_is_filled_though_every_score_is_negative_and_equal_scores_are_in_order_of_id():
    vectors = Vectors(np.array([[-1], [-3], [-1], [-1]], np.int8), order_of(["c", "a", "d", "b"]))
    hits = nearest(vectors, np.array([100], np.int8), 9, keep=np.array([True, True, False, True]))
    assert [(hit.row, hit.score, hit.parts) for hit in hits] == [
        (3, -100, (-100,)),
        (0, -100, (-100,)),
        (1, -300, (-300,)),
    ]


@pytest.mark.parametrize("dimension", [1, 256, 1040, 1041, 1536, 3072])
def test_the_greatest_and_the_least_score_of_a_dimension_are_exact(dimension):
    bound = bound_of(dimension)
    matrix = np.array([[bound] * dimension, [-bound] * dimension, [bound - 1] + [bound] * (dimension - 1)], np.int8)
    scores = dot_products(Vectors(matrix, np.arange(3)), matrix[:1])
    assert scores.tolist() == [
        [bound * bound * dimension, -bound * bound * dimension, bound * bound * dimension - bound]
    ]
    assert bound * bound * dimension <= 1 << 24


def test_a_component_beyond_its_bound_is_refused_and_both_values_are_named():
    with pytest.raises(IntegrityError, match=r"-128; with 4 .* at most 127"):
        Vectors(np.full((2, 4), -128, np.int8), np.arange(2))
    with pytest.raises(IntegrityError, match=r"105; with 1536 .* at most 104"):
        Vectors(np.full((2, 1536), 105, np.int8), np.arange(2))
    with pytest.raises(IntegrityError, match=r"-128; with 4"):
        nearest(Vectors(np.ones((2, 4), np.int8), np.arange(2)), np.full(4, -128, np.int8), 1)
    with pytest.raises(UsageError, match="dimension 0"):
        bound_of(0)


def test_a_query_of_another_dimension_or_type_is_refused_and_both_are_named():
    vectors = Vectors(np.ones((2, 4), np.int8), np.arange(2))
    with pytest.raises(IntegrityError, match=r"int8 of 5 components, the vectors are int8 of 4"):
        nearest(vectors, np.ones(5, np.int8), 1)
    with pytest.raises(IntegrityError, match=r"float32 of 4 components"):
        nearest(vectors, np.ones(4, np.float32), 1)
    with pytest.raises(IntegrityError, match=r"float32 of shape \(2, 4\); 2 entries need int8"):
        Vectors(np.ones((2, 4), np.float32), np.arange(2))
    with pytest.raises(IntegrityError, match=r"shape \(2, 4\); 3 entries"):
        Vectors(np.ones((2, 4), np.int8), np.arange(3))


def test_blocks_never_show(monkeypatch):
    rng = np.random.default_rng(3)
    vectors, query = (
        Vectors(rng.integers(-127, 128, (301, 64), dtype=np.int8), rng.permutation(301)),
        np.arange(64, dtype=np.int8),
    )
    whole = nearest(vectors, query, 301)
    for block in (1, 64, 640, 64 * 300, 64 * 301):
        monkeypatch.setattr(dense, "BLOCK", block)
        assert nearest(vectors, query, 301) == whole


def test_many_threads_give_what_one_thread_gives():
    rng = np.random.default_rng(4)
    vectors = Vectors(rng.integers(-9, 10, (3000, 16), dtype=np.int8), rng.permutation(3000))
    queries = rng.integers(-9, 10, (40, 16), dtype=np.int8)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: nearest(vectors, query, 20), queries)) == nearest_of(vectors, queries, 20)


def test_a_prefix_is_the_search_of_its_rows():
    vectors = Vectors(np.array([[1], [5], [9]], np.int8), order_of(["a", "b", "c"]))
    assert plain(nearest(vectors.prefix(2), np.array([1], np.int8), 5)) == [(1, 5), (0, 1)]


@given(st.integers(0, 5), st.integers(1, 300))
def test_stored_vectors_are_npy_and_come_back_read_only(n, d):
    matrix = np.arange(n * d).reshape(n, d).astype(np.int8)
    data = npy_of(matrix)
    back = read_npy(memoryview(bytearray(data)))
    assert np.array_equal(back, matrix)
    assert np.array_equal(np.load(io.BytesIO(data)), matrix)
    assert not back.flags.writeable
    assert npy_of(np.asfortranarray(matrix)) == data


def test_bytes_that_are_no_stored_vectors_are_refused():
    good = npy_of(np.ones((3, 4), np.int8))
    columns = io.BytesIO()
    np.save(columns, np.asfortranarray(np.ones((3, 4), np.int8)))
    floats = io.BytesIO()
    np.save(floats, np.ones((3, 4), np.float32))
    for bad in (b"", good[:40], good[:-1], good + b"x", b"x" + good, columns.getvalue(), floats.getvalue()):
        with pytest.raises(IntegrityError, match=f"{len(bad)} bytes are no stored vectors"):
            read_npy(bad)
