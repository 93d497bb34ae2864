"""Rank the rows of a view: by the sparse channels, by vectors, or by both joined, as one configuration says.

- `RankerConfig` holds all that decides a result, beside the view and the query. It stands in every receipt.
- Each way ranks the visible rows alone, by numbers of the visible rows alone, and gives min(k, visible) rows. A row that no
  way names has score 0 and comes last, in order of entry id.
- The parts of a score sum to it: one a field where the channels rank, one a way where two are joined.

Not covered: which way is best. The default is the sparse one; `choice.py` compares them on fit families.
"""

import unicodedata
from collections.abc import Mapping
from typing import Literal, NamedTuple

from experiential_lab.records import FREE, Cost, Record
from experiential_lab.retrieval.dense import Vectors, nearest
from experiential_lab.retrieval.embedders import Embedder, EmbedderSnapshot
from experiential_lab.retrieval.fusion import DEPTH, fused
from experiential_lab.retrieval.sparse import DEFAULT, Channel, Ranked, Statistics, rank
from experiential_lab.retrieval.views import RECENT_LIMIT

Fusion = Literal["sparse", "dense", "fused"]


class RankerConfig(Record, kw_only=True):
    """All that decides a result, beside the view and the query."""

    ranker: str = "sparse"
    version: int = 1
    channels: tuple[Channel, ...] = DEFAULT
    fusion: Fusion = "sparse"
    """What ranks: the channels alone, the vectors alone, or both joined by their ranks."""
    embedder: EmbedderSnapshot | None = None
    """The space of the vectors; None where they do not rank."""
    depth: int = DEPTH
    """Rows of each ranking that are joined."""
    recent_limit: int
    """Characters of `recent` that are searched, from its start."""
    similar_words: str = "0.5"
    """Token F1 from which a message counts as said in similar words (support label B)."""
    unicode: str = unicodedata.unidata_version


def config_for(
    channels: tuple[Channel, ...], fusion: Fusion, embedder: EmbedderSnapshot | None, *, depth: int = DEPTH
) -> RankerConfig:
    """The configuration of this version; an embedder whose vectors do not rank is no part of it."""
    ranks = embedder if fusion != "sparse" else None
    return RankerConfig(channels=channels, fusion=fusion, embedder=ranks, depth=depth, recent_limit=RECENT_LIMIT)


class Ranking(NamedTuple):
    """The best rows, and what finding them cost."""

    hits: list[Ranked]
    parts: tuple[str, ...]
    """What each part of a score is called."""
    cost: Cost = FREE


class Dense(NamedTuple):
    """The vectors of the rows, and the embedder that made them."""

    vectors: Vectors
    embedder: Embedder


def ranking(
    config: RankerConfig, statistics: Statistics, dense: Dense | None, texts: Mapping[str, str], k: int
) -> Ranking | None:
    """The min(k, visible) best rows for a query, whose `texts` stand by field; None when nothing of it can be searched.

    Raises:
        LimitError: the query is so long that a score could not be written exactly.
        ProviderError: the embedder cannot be asked.
    """
    fields = tuple(channel.field for channel in config.channels)
    if config.fusion == "sparse" or dense is None:
        hits = rank(statistics, texts, k)
        return None if hits is None else Ranking(hits, fields)
    depth = max(k, config.depth) if config.fusion == "fused" else k
    vectors, cost = dense.embedder.embed_billed([texts["action"]])
    near = nearest(dense.vectors, vectors[0], depth, keep=statistics.keep)
    if config.fusion == "dense":
        return None if near is None else Ranking(near, ("dense",), cost)
    shared = rank(statistics, texts, depth)
    if near is None and shared is None:
        return None
    joined = fused([[hit.row for hit in way or () if hit.score > 0] for way in (shared, near)], statistics.ranker.order)
    named = {hit.row for hit in joined}
    rest = sorted(
        (hit for hit in shared or near or () if hit.row not in named), key=lambda hit: _place(statistics, hit)
    )
    return Ranking([*joined, *(Ranked(hit.row, 0, (0, 0)) for hit in rest)][:k], ("sparse", "dense"), cost)


def _place(statistics: Statistics, hit: Ranked) -> int:
    return int(statistics.ranker.order[hit.row])
