"""Ways to rank are compared by what their first hit really said, each family asked without itself, and one is chosen.

- Only fit families are read. Each is asked against all the others, as a view of its own with its own statistics; at most
  ROWS_A_FAMILY rows of a family are asked, those with the smallest digests of their ids.
- The measure is token F1 between the observation of the first hit and what was really observed; beside it stand the best
  of the first k, and exact match. No candidate scores 0. Means are family-weighted.
- The highest mean wins, but the default stays unless the interval of its paired difference lies above 0. With m candidates
  each interval has level 1 - .05 / m (Bonferroni): the best of many is above the default by luck alone.
- The choice is a record: an index that pins it names what it was chosen from and why. It holds no time.

Not covered: k, which cannot be chosen by the first hit and is reported alone; and a fair estimate of the winner: its mean
on the families that chose it is flattered. Held-out rows are for that.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import polars as pl
from numpy.typing import NDArray

from experiential_lab.metrics import exact_match, token_f1
from experiential_lab.records import NoEvidence, Record, UsageError, digest, digest_of
from experiential_lab.retrieval.dense import Vectors
from experiential_lab.retrieval.embedders import Embedder, EmbedderSnapshot, HashedEmbedder, HeldEmbedder
from experiential_lab.retrieval.fusion import DEPTH
from experiential_lab.retrieval.index import Index
from experiential_lab.retrieval.ranking import Dense, Fusion, RankerConfig, config_for, ranking
from experiential_lab.retrieval.sparse import (
    DEFAULT,
    Channel,
    Ranked,
    Ranker,
    Statistics,
)
from experiential_lab.retrieval.views import Snapshot, View
from experiential_lab.statistics import MILLION, Estimate, Interval, NotEnough, family_difference, family_mean

Array = NDArray[Any]
Ask = Callable[[int, int], Sequence[Ranked]]
"""(row that asks, k) -> the best visible rows, best first."""
Way = Callable[[Sequence[int]], Ask]
"""Rows that nothing may see, ascending -> how the others are asked."""

ROWS_A_FAMILY = 10
WRONG = 50_000  # millionths: how likely, at most, luck alone replaces the default


class Candidate(Record, kw_only=True):
    """One way to rank."""

    name: str
    fusion: Fusion = "sparse"
    """`dense` embeds the action alone; `fused` joins both by reciprocal ranks."""
    channels: tuple[Channel, ...] = DEFAULT
    """Of the sparse part; an index has it, also where `dense` ranks."""
    depth: int = DEPTH
    """How many rows of each part are fused."""
    k: int = 5
    """The best of so many is reported."""


class Compared(Record, kw_only=True):
    """What became of one candidate."""

    candidate: Candidate
    f1: Estimate
    """Token F1 at rank 1."""
    best: Estimate
    """The best token F1 among the first k."""
    exact: Estimate
    """Exact match at rank 1."""
    difference: Estimate | None = None
    """Of token F1 at rank 1 to the default. None: this is the default."""


class RankerChoice(Record, kw_only=True):
    """Which way to rank was chosen on which fit rows, and why."""

    snapshot: str
    """Digest of the fit snapshot."""
    rows_a_family: int = ROWS_A_FAMILY
    compared: tuple[Compared, ...]
    """The default first."""
    winner: str
    reason: str
    config: str
    """Digest of the RankerConfig of the winner: of the index that pins this."""
    embedder: EmbedderSnapshot | None = None
    """Of the dense part of any candidate."""


def _channels(*fields: tuple[str, str, int, int]) -> tuple[Channel, ...]:
    return tuple(Channel(field=field, feature=kind, weight=w, least=least) for field, kind, w, least in fields)


_ACTION, _TASK, _RECENT = ("action", "gram5", 32, 32), ("task", "word", 1, 64), ("recent", "word", 1, 64)

BASE = Candidate(name="default")
CANDIDATES = (
    Candidate(name="action alone", channels=_channels(_ACTION)),
    Candidate(name="action and task", channels=_channels(_ACTION, _TASK)),
    Candidate(name="action and recent", channels=_channels(_ACTION, _RECENT)),
    Candidate(name="weights 8:1:1", channels=_channels(("action", "gram5", 8, 32), _TASK, _RECENT)),
    Candidate(name="weights 1:1:1", channels=_channels(("action", "gram5", 1, 32), _TASK, _RECENT)),
    Candidate(name="words of the action", channels=_channels(("action", "word", 32, 0), _TASK, _RECENT)),
    Candidate(name="windows and words", channels=_channels(_ACTION, ("action", "word", 32, 0), _TASK, _RECENT)),
    Candidate(name="k 10", k=10),
    Candidate(name="dense alone", fusion="dense"),
    Candidate(name="fused", fusion="fused"),
    Candidate(name="fused, depth 10", fusion="fused", depth=10),
)


def choose_ranker(
    index: Index, candidates: Iterable[Candidate] = CANDIDATES, *, embedder: Embedder | None = None
) -> RankerChoice:
    """The choice among the default and `candidates` on the fit rows of `index`; `embedder`: None is the hashed one.

    Raises:
        NoEvidence: nothing was split, or a fit row has no family.
        UsageError: two candidates have one name, a depth or k is below 1, or one has no channel.
    """
    others, view, embedder = tuple(candidates), View(index.snapshot, "fit"), embedder or HashedEmbedder()
    _check((BASE, *others))
    if any(each.fusion != "sparse" for each in others):
        embedder = _held(view.snapshot, embedder)
    base, level = scored(view, way_of(view.snapshot, BASE), BASE.k), _level(len(others))
    compared = [_compared(BASE, base)]
    for candidate in others:
        found = scored(view, way_of(view.snapshot, candidate, embedder), candidate.k)
        compared.append(_compared(candidate, found, family_difference(found.f1, base.f1, level=level)))
    winner, reason = _chosen(compared)
    return RankerChoice(
        snapshot=view.snapshot.digest,
        compared=tuple(compared),
        winner=winner.name,
        reason=reason,
        config=digest(config_of(winner, embedder)),
        embedder=embedder.snapshot if any(each.fusion != "sparse" for each in others) else None,
    )


def _held(snapshot: Snapshot, embedder: Embedder) -> HeldEmbedder:
    """Each action once for all candidates: a provider is paid for each, and every row that asks is one of these rows."""
    texts = list(dict.fromkeys(dict(entry.key).get("action", "") for entry in snapshot.entries))
    return HeldEmbedder(embedder.snapshot, texts, embedder.embed(texts))


def _check(candidates: Sequence[Candidate]) -> None:
    names = [each.name for each in candidates]
    if len(set(names)) < len(names):
        raise UsageError(
            f"each candidate needs a name of its own, got {', '.join(names)}; the default is {BASE.name!r}"
        )
    for each in candidates:
        if min(each.depth, each.k) < 1:
            raise UsageError(f"{each.name}: depth is {each.depth} and k is {each.k}; both are at least 1")
        if not each.channels:
            raise UsageError(f"{each.name} has no channel: an index has one or more, also where vectors alone rank")


def _level(candidates: int) -> str:
    return f"0.{MILLION - WRONG // max(1, candidates):06d}"


def config_of(candidate: Candidate, embedder: Embedder | None = None) -> RankerConfig:
    """What an index of this way to rank has as its configuration."""
    space = embedder.snapshot if embedder else None
    return config_for(candidate.channels, candidate.fusion, space, depth=candidate.depth)


def _compared(candidate: Candidate, found: "Scored", difference: Estimate | None = None) -> Compared:
    means = map(family_mean, found)
    return Compared(candidate=candidate, f1=next(means), best=next(means), exact=next(means), difference=difference)


def _chosen(compared: Sequence[Compared]) -> tuple[Candidate, str]:
    """The winner and why; of equal means the first wins."""
    best = max(compared, key=lambda each: each.f1.value or 0)
    if best.difference is None:
        return BASE, "no candidate has a higher mean token F1 at rank 1"
    ahead = f"{best.candidate.name} is ahead by {(best.difference.value or 0) / MILLION:.4f}"
    interval = best.difference.interval
    if isinstance(interval, NotEnough):
        return BASE, f"{ahead}, but {interval.reason}: the default stays"
    where = f"[{interval.low / MILLION:.4f}, {interval.high / MILLION:.4f}] at level {interval.level}"
    if interval.low <= 0:
        return BASE, f"{ahead}, but {where} holds 0: the default stays"
    return best.candidate, f"{ahead}, {where}"


class Scored(NamedTuple):
    """Family -> millionths of each row that was asked, in order of its digest."""

    f1: dict[str, list[int]]
    best: dict[str, list[int]]
    exact: dict[str, list[int]]


def scored(view: View, way: Way, k: int) -> Scored:
    """How well the first hit, and the best of the first k, say what was observed; each family asked without itself.

    Raises:
        NoEvidence: a row has no family.
    """
    entries, found = view.snapshot.entries, Scored({}, {}, {})
    for family, members in families_of(view).items():
        ask = way(sorted({*view.out, *members}))
        said = [
            ([entries[hit.row].value for hit in ask(row, k)], entries[row].value) for row in asked_rows(view, members)
        ]
        f1 = [[token_f1(text, observed) for text in texts] or [0] for texts, observed in said]
        found.f1[family] = [each[0] for each in f1]
        found.best[family] = [max(each) for each in f1]
        found.exact[family] = [exact_match(texts[0], observed) if texts else 0 for texts, observed in said]
    return found


def asked_rows(view: View, members: Iterable[int]) -> list[int]:
    """Which rows of a family are asked: the digest of an id says nothing of the row."""
    entries = view.snapshot.entries
    return sorted(members, key=lambda row: digest_of(entries[row].entry_id.encode()))[:ROWS_A_FAMILY]


def families_of(view: View) -> dict[str, list[int]]:
    """Family -> its visible rows, in order of its name. Raises NoEvidence: a row has no family."""
    found: dict[str, list[int]] = {}
    out = set(view.out)
    for position, row in enumerate(view.snapshot.rows):
        if position not in out:
            found.setdefault(row.family, []).append(position)
    if "" in found:
        raise NoEvidence("a row has no family, so none can be left out: run `split` first")
    return dict(sorted(found.items()))


def way_of(snapshot: Snapshot, candidate: Candidate, embedder: Embedder | None = None) -> Way:
    """How an index of this way to rank would be searched."""
    config = config_of(candidate, embedder)
    keys = [{"action": "", "task": "", "recent": ""} | dict(entry.key) for entry in snapshot.entries]
    texts = {channel.field: [key[channel.field] for key in keys] for channel in config.channels}
    ranker = Ranker.build(config.channels, texts, [entry.entry_id for entry in snapshot.entries])
    dense = None
    if embedder and candidate.fusion != "sparse":
        dense = Dense(Vectors(embedder.embed([key["action"] for key in keys]), ranker.order), embedder)

    def way(out: Sequence[int]) -> Ask:
        statistics = Statistics(ranker, out)

        def ask(row: int, k: int) -> Sequence[Ranked]:
            found = ranking(config, statistics, dense, keys[row], k)
            return found.hits if found else ()

        return ask

    return way


_FRAME = {
    "candidate": pl.String,
    "families": pl.Int64,
    "rows": pl.Int64,
    "f1": pl.Int64,
    "best_of_k": pl.Int64,
    "exact": pl.Int64,
    "difference": pl.Int64,
    "low": pl.Int64,
    "high": pl.Int64,
    "note": pl.String,
}


def choice_frame(choice: RankerChoice) -> pl.DataFrame:
    """One row a candidate, the default first; millionths. `low` and `high` belong to the difference of token F1 to the default."""
    return pl.DataFrame([_row(each) for each in choice.compared], schema=_FRAME, orient="row")


def _row(each: Compared) -> tuple[Any, ...]:
    about = (each.candidate.name, each.f1.families, each.f1.rows, each.f1.value, each.best.value, each.exact.value)
    if each.difference is None:
        return (*about, None, None, None, "")
    interval = each.difference.interval
    ends = (interval.low, interval.high, "") if isinstance(interval, Interval) else (None, None, interval.reason)
    return (*about, each.difference.value, *ends)
