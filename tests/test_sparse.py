"""Laws of the sparse ranker, over texts and rows alone. Each name is the law."""

import math
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from experiential_lab.records import LimitError
from experiential_lab.retrieval import sparse
from experiential_lab.retrieval.sparse import (
    DEFAULT,
    Channel,
    Ranker,
    Statistics,
    exact_idf,
    features,
    idf,
    most_frequent,
    order_of,
    postings_of,
    rank,
    top,
)

FIELDS = ("action", "task", "recent")
texts = st.text(alphabet="abcA_ 1.\né日İß’\ud800\0", max_size=24)
plain = st.text(alphabet="abcd e_1éß日", max_size=30)
WORDS = (
    Channel(field="action", feature="word", weight=3),
    Channel(field="action", feature="gram3", weight=1),
    Channel(field="task", feature="word", weight=1, least=40, k1="0.5", b="1"),
)
channels = st.sampled_from([DEFAULT, WORDS])


def ranker_of(rows, kinds=DEFAULT, ids=None):
    """A ranker of rows that are (action, task, recent)."""
    columns = {field: [row[i] for row in rows] for i, field in enumerate(FIELDS)}
    return Ranker.build(kinds, columns, ids or [f"e{i:02d}" for i in range(len(rows))])


def slow_features(text, kind):
    if kind == "word":
        return re.findall(r"\w+", text.casefold())
    raw, size = b"\n\n" + text.casefold().encode("utf-8", "surrogatepass") + b"\n\n", int(kind[4:])
    return [raw[i : i + size] for i in range(len(raw) - size + 1)]


def slow_part(channel, rows, query):
    """The definition of one channel, in Python integers and dictionaries."""
    field = FIELDS.index(channel.field)
    bags = [Counter(slow_features(row[field], channel.feature)) for row in rows]
    lengths, n, k1, b = [bag.total() for bag in bags], len(bags), float(channel.k1), float(channel.b)
    average = max(1, sum(lengths) // n)
    shift = max(0, len(bin(average)) - 5)
    pivot, part = average >> shift << shift, [0] * n
    for feature, times in Counter(slow_features(query[field], channel.feature)).items():
        df = sum(feature in bag for bag in bags)
        bits = math.floor(32 * math.log2((2 * n + 2) / (2 * df + 1)) + 1e-9) if df else 0
        for i, bag in enumerate(bags):
            if bag[feature] and bits >= channel.least:
                tf, norm = min(bag[feature], 255), k1 * (1 - b + b * (lengths[i] / pivot))
                part[i] += channel.weight * min(times, 255) * bits * math.floor(255 * tf / (tf + norm) + 0.5)
    return part


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(plain, plain, plain), min_size=1, max_size=8), st.tuples(plain, plain, plain), channels)
def test_scores_are_those_of_the_definition_and_parts_sum_to_them(rows, query, kinds):
    statistics = Statistics(ranker_of(rows, kinds), [])
    parts = [slow_part(channel, rows, query) for channel in kinds]
    ranked = rank(statistics, dict(zip(FIELDS, query, strict=True)), len(rows))
    if ranked is None:
        assert not any(slow_features(query[FIELDS.index(c.field)], c.feature) for c in kinds)
        return
    assert [hit.parts for hit in ranked] == [tuple(part[hit.row] for part in parts) for hit in ranked]
    assert all(hit.score == sum(hit.parts) for hit in ranked)
    assert ranked == sorted(ranked, key=lambda hit: (-hit.score, hit.row))


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(texts, texts, texts), max_size=12),
    st.sets(st.integers(0, 11)),
    st.tuples(texts, texts, texts),
    channels,
)
def test_statistics_of_a_view_are_those_of_its_rows_alone(rows, out, query, kinds):
    out = sorted(row for row in out if row < len(rows))
    kept = [row for row in range(len(rows)) if row not in out]
    query = dict(zip(FIELDS, query, strict=True))
    masked = rank(Statistics(ranker_of(rows, kinds), out), query, 20)
    alone = rank(Statistics(ranker_of([rows[row] for row in kept], kinds), []), query, 20)
    if alone is None:
        assert masked is None
        return
    assert [(hit.row, hit.score, hit.parts) for hit in masked] == [(kept[h.row], h.score, h.parts) for h in alone]


def test_k_is_filled_while_rows_are_visible_and_equal_scores_are_in_order_of_id_not_of_row():
    ranker = ranker_of([("same", "", "")] * 5 + [("x", "", "")] * 2, ids=["c", "a", "e", "b", "d", "z", "y"])
    hits = rank(Statistics(ranker, [1]), {"action": "same", "task": "", "recent": ""}, 99)
    assert [hit.row for hit in hits] == [3, 0, 4, 2, 6, 5]
    assert [hit.score for hit in hits[4:]] == [0, 0]


@settings(deadline=None, max_examples=100)
@given(st.lists(texts, max_size=10), st.sampled_from(["word", "gram3", "gram5"]))
def test_features_of_a_text_do_not_depend_on_its_batch(many, kind):
    row, ids = features(many, kind)
    for i, text in enumerate(many):
        assert np.array_equal(np.sort(ids[row == i]), np.sort(features([text], kind)[1]))
        assert (row == i).sum() == len(slow_features(text, kind))


def test_a_text_longer_than_a_batch_has_the_features_of_its_words():
    words = [f"w{i}" for i in range(60_000)]
    row, ids = features([" ".join(words), "w7"], "word")
    assert (row == 0).sum() == 60_000
    assert ids[row == 1][0] == ids[row == 0][7]
    assert len(np.unique(ids)) == 60_000


@settings(deadline=None, max_examples=100)
@given(st.lists(texts, max_size=10), st.integers(0, 10), st.sampled_from(["word", "gram5"]))
def test_the_cut_of_a_prefix_is_what_building_it_would_give(many, count, kind):
    cut, built = sparse._prefix(postings_of(many, kind), min(count, len(many))), postings_of(many[:count], kind)
    assert all(np.array_equal(one, other) for one, other in zip(cut, built, strict=True))


def test_every_top_k_equals_a_full_sort():
    rng = np.random.default_rng(0)
    for n in (0, 1, 511, 512, 5000):
        order = rng.permutation(n)
        for spread in (1, 3, 1 << 30):
            scores = rng.integers(0, spread, n)
            scores[rng.random(n) < 0.3] = -1
            whole = sorted(np.flatnonzero(scores >= 0).tolist(), key=lambda row: (-scores[row], order[row]))
            for k in (0, 1, 10, 700, n):
                assert top(scores, order, min(k, len(whole))).tolist() == whole[:k]


def test_the_logarithm_is_exact_even_where_it_is_a_whole_number():
    for n in (1, 2, 7, 31, 255, 2425, 99_999):
        df = np.unique(np.r_[np.arange(1, min(n, 600) + 1), n, (n + 1) // 2, (n + 1) // 4].clip(1))
        assert idf(df, n).tolist() == [exact_idf(d, n) for d in df.tolist()]
    assert idf(np.array([0, 1]), 5).tolist() == [0, 64]
    assert exact_idf(1, 5) == 64  # log2(12 / 3) = 2, in 1/32 bit


@given(st.integers(1, 3000), st.integers(1, 400))
def test_the_greatest_frequency_that_counts_is_the_last_with_that_idf(n, least):
    most = most_frequent(least, n)
    assert most == 0 or exact_idf(most, n) >= least
    assert most == n or exact_idf(most + 1, n) < least


def test_columns_long_lists_and_short_lists_add_up_alike(monkeypatch):
    rng = np.random.default_rng(1)
    rows = [(" ".join(rng.choice(list("abcdefgh"), 6)), "", "") for _ in range(400)]
    kinds = (Channel(field="action", feature="word", weight=3), Channel(field="action", feature="gram5", weight=1))
    query, seen = {"action": "a b c d x " * 3, "task": "", "recent": ""}, set()
    for long, dense in ((1 << 12, 8), (1, 8), (1, 1), (1, 1000)):
        monkeypatch.setattr(sparse, "LONG", long)
        monkeypatch.setattr(sparse, "DENSE", dense)
        for out in ((), (3, 5), tuple(range(0, 400, 2))):
            seen.add((out, tuple(rank(Statistics(ranker_of(rows, kinds), out), query, 400))))
    assert len(seen) == 3


def test_a_score_that_could_overflow_is_summed_in_64_bits_and_one_beyond_json_is_refused():
    rows = [("x " * 300, "", "")] * 3 + [("y", "", "")] * 4
    heavy = lambda weight: (Channel(field="action", feature="word", weight=weight),)  # noqa: E731
    query = {"action": "x " * 300, "task": "", "recent": ""}
    hits = rank(Statistics(ranker_of(rows, heavy(1 << 20)), [6]), query, 9)
    assert hits[0].score > 1 << 31
    assert [hit.row for hit in hits] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(LimitError, match="ask with less"):
        rank(Statistics(ranker_of(rows, heavy(1 << 40)), []), query, 9)


def test_a_count_beyond_255_counts_as_255():
    rows = [("x " * 600, "", ""), ("x y " * 50, "", ""), ("z", "", ""), ("z", "", "")]
    parts = slow_part(WORDS[0], rows, ("x " * 300, "", ""))
    hits = rank(Statistics(ranker_of(rows, WORDS[:1]), []), {"action": "x " * 300, "task": "", "recent": ""}, 4)
    assert [parts[hit.row] for hit in hits] == [hit.score for hit in hits]
    assert hits[1].score > 0


def test_views_in_many_threads_give_what_one_thread_gives():
    rows = [(f"call {i % 7} " * (1 + i % 40), "task", f"seen {i}") for i in range(300)]
    ranker = ranker_of(rows, WORDS)
    outs = [list(range(0, 300, step)) for step in range(2, 30)] * 3
    ask = lambda out: rank(Statistics(ranker, out), {"action": "call 3 call", "task": "task", "recent": ""}, 20)  # noqa: E731
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, outs)) == [ask(out) for out in outs]
    assert all(len(tables) <= sparse.PIVOTS for tables in ranker._tables)


def test_the_order_of_ids_is_their_rank():
    assert order_of(["b", "a10", "a9", "B"]).tolist() == [3, 1, 2, 0]
