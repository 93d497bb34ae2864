"""Say of a standing search why each hit scored, why each row could be consulted or not, and what a boundary left out.

- `tokens`: the shares of one hit's features sum exactly to each of its parts, and to its score. Windows that overlap are one
  run of the entry's text; a window that stands at several places is split over them, the first ones take the remainder.
  Features are hashes, so they are computed again from both texts and intersected: no index holds a text for this.
- `eligibility`: each row of the snapshot is eligible, or has one reason, the first of REASONS that applies; all that apply
  are listed beside it. The counts sum to the snapshot.
- `near_misses`: what a view left out and what ranks above its last hit when nothing is left out but invalidated rows. It is
  a second search with a receipt of its own, made on demand: no search of a view, and no session, touches an excluded row.
- Text of a trace is masked: a run is shown only as it stands in the masked text of its whole field.

The three are answers about one search, with its view, query and scores, so they share this file.

Not covered: why an entry did not score. A shared feature that is too common to count has no share, and two features of one
hash are shown as one. Scores of the second search are counted over the whole snapshot: they compare with each other, not
with those of the hits. How many near-misses are not shown follows from these scores and stands in no receipt.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import polars as pl

from experiential_lab.evidence.secrets import masked
from experiential_lab.records import IntegrityError, NoEvidence, Record, UnsupportedError, Unverifiable, UsageError
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.index import Index, IndexView
from experiential_lab.retrieval.receipts import Hit, Query
from experiential_lab.retrieval.sparse import (
    FRAME,
    Array,
    Statistics,
    features,
    find,
    idf,
    lists_of,
    most_frequent,
    part_of,
    spans_of,
    top,
)
from experiential_lab.retrieval.views import RECENT_LIMIT, Base, Entry, Exclusion, Level, Row, Snapshot, View

REASONS = (*get_args(Level), "split", "invalidated")
"""Why a row may not be consulted, the first one first; `split` is a row that is not fit, when the fit ones are asked."""
RELATIONS = ("itself", "own trace", "conversation", "family", "identical call", "other task")
"""How the run of an entry stands to the recorded step that is asked about, the nearest kin first."""
SHOWN = 4  # near-misses that stand between the hits; more would hide these

TOKENS = {
    "field": pl.String,
    "feature": pl.String,
    "text": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "share": pl.Int64,
}
LEDGER: dict[str, Any] = {
    "position": pl.Int64,
    "entry_id": pl.String,
    "lineage": pl.String,
    "family": pl.String,
    "split": pl.String,
    "reason": pl.String,
    "reasons": pl.List(pl.String),
}
NEAR = {
    "entry_id": pl.String,
    "relation": pl.String,
    "score": pl.Int64,
    "score_all": pl.Int64,
    "rank": pl.Int64,
    "eligible": pl.Boolean,
    "same_observation": pl.Boolean,
    "trace_id": pl.String,
    "action": pl.String,
    "observation": pl.String,
}


class Token(Record, kw_only=True):
    """A piece of an entry's text, and what it adds to the score."""

    field: str
    feature: str
    text: str
    """As the entry spells it, masked."""
    start: int
    """First code point in the entry's text of that field; of a word, where it stands first."""
    end: int
    share: int


def tokens(view: IndexView, query: Query, hit: Hit) -> tuple[Token, ...]:
    """What each piece of the hit's text adds to its score: in order of channel, the greatest share first.

    Raises:
        IntegrityError: the hit is not what `view` gives for `query`; both values are named.
        UnsupportedError: vectors rank, which have no pieces of text.
    """
    _check_sparse(view)
    entry = _entry_of(view, hit)
    key, asked, found = dict(entry.key), _texts(query), list[Token]()
    for number, channel in enumerate(view.config.channels):
        held = key.get(channel.field, "")
        windows = _windows(held, channel.feature)
        shares = _shares(view.statistics, number, asked[channel.field], windows, hit.position)
        pieces = _words(windows, shares) if channel.feature == "word" else _runs(windows, shares)
        shown = masked(held)
        made = [
            Token(
                field=channel.field,
                feature=channel.feature,
                text=_masked(held[start:end], shown),
                start=start,
                end=end,
                share=share,
            )
            for start, end, share in pieces
        ]
        found += sorted(made, key=lambda token: (-token.share, token.start))
    _check_sums(hit, found)
    return tuple(found)


def _check_sparse(view: IndexView) -> None:
    if view.config.fusion != "sparse":
        raise UnsupportedError(
            f"the ranker is {view.config.fusion}: only the sparse one is explained by text; xlab index --ranker sparse"
        )


def tokens_frame(found: Iterable[Token]) -> pl.DataFrame:
    """One row a token, in the order given."""
    rows = [tuple(getattr(token, name) for name in TOKENS) for token in found]
    return pl.DataFrame(rows, schema=TOKENS, orient="row")


def _entry_of(view: IndexView, hit: Hit) -> Entry:
    rows = view.plain.snapshot.rows
    there = rows[hit.position].entry_id if hit.position < len(rows) else "nothing"
    if hit.position >= len(rows) or rows[hit.position] != hit.row or hit.position in view.plain.out:
        raise IntegrityError(
            f"the hit is {hit.row.entry_id} at place {hit.position}; the view has {there} there, or may not see it: "
            "ask this view again"
        )
    return view.plain.snapshot.entries[hit.position]


def _texts(query: Query) -> dict[str, str]:
    """What a search of `query` looks for in each field."""
    return {"action": query.act.text, "task": query.task or "", "recent": (query.recent or "")[:RECENT_LIMIT]}


class _Window(NamedTuple):
    """One feature where it stands in a text."""

    feature: int
    start: int
    """Of the folded text, in its own units: bytes of a gram, code points of a word."""
    end: int
    first: int
    """The same in code points of the text itself."""
    last: int


def _windows(text: str, kind: str) -> list[_Window]:
    """Every feature of `text` with its place, in order of place."""
    # One text is one batch, and a batch gives its features in order of place.
    ids = features([text], kind)[1].tolist()
    folded = [(place, char) for place, whole in enumerate(text) for char in whole.casefold()]
    if kind == "word":
        owners = [place for place, _ in folded]
        spans = [match.span() for match in re.finditer(r"\w+", text.casefold())]
    else:
        owners = [place for place, char in folded for _ in char.encode("utf-8", "surrogatepass")]
        spans = list(_gram_spans(len(owners), int(kind.removeprefix("gram"))))
    owners.append(len(text))
    return [
        _Window(feature, start, end, owners[start], owners[end - 1] + 1 if end > start else owners[start])
        for feature, (start, end) in zip(ids, spans, strict=True)
    ]


def _gram_spans(length: int, size: int) -> Iterator[tuple[int, int]]:
    """Where each window stands in a text of `length` bytes; what lies on the frame is cut off."""
    for start in range(-len(FRAME), length + len(FRAME) - size + 1):
        yield max(0, min(start, length)), max(0, min(start + size, length))


def _shares(
    statistics: Statistics, number: int, asked: str, windows: Sequence[_Window], position: int
) -> dict[int, int]:
    """{feature: what it adds to the score of the row at `position`}; features that add nothing are left out."""
    channel, postings = statistics.ranker.channels[number], statistics.ranker.postings[number]
    terms, count = find(postings, asked, channel.feature)
    shared = np.isin(postings.vocabulary[terms], np.array([window.feature for window in windows], np.uint64))
    terms, count = terms[shared], count[shared]
    frequency = statistics.frequency(number, terms, lists_of(postings, terms))
    weight = channel.weight * count.clip(max=255) * idf(frequency, statistics.count)
    weight[frequency > most_frequent(max(1, channel.least), statistics.count)] = 0
    at = [span.start + int(np.searchsorted(postings.rows[span], position)) for span in spans_of(postings, terms)]
    impact = statistics.ranker.table(number, statistics.pivots[number]).impact[np.array(at, np.int64)]
    share = weight * impact.astype(np.int64)
    return {
        feature: adds for feature, adds in zip(postings.vocabulary[terms].tolist(), share.tolist(), strict=True) if adds
    }


def _words(windows: Iterable[_Window], shares: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """(start, end, share) of each distinct word, where it stands first."""
    first: dict[int, _Window] = {}
    for window in windows:
        first.setdefault(window.feature, window)
    return [(first[feature].first, first[feature].last, share) for feature, share in shares.items()]


def _runs(windows: Sequence[_Window], shares: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """(start, end, share) of each run of windows that overlap."""
    times, seen = Counter(window.feature for window in windows), Counter[int]()
    runs: list[tuple[int, int, int]] = []
    until = -1  # where the last run ends in the folded text
    for window in windows:
        if window.feature not in shares:
            continue
        whole, rest = divmod(shares[window.feature], times[window.feature])
        share = whole + (seen[window.feature] < rest)
        seen[window.feature] += 1
        if runs and window.start < until:
            start, _, sum_ = runs[-1]
            runs[-1] = (start, window.last, sum_ + share)
        else:
            runs.append((window.first, window.last, share))
        until = window.end
    return runs


def _masked(piece: str, shown: str) -> str:
    """`piece` as it stands in the masked text; a part of a secret stands nowhere in it."""
    piece = masked(piece)
    return piece if piece in shown else "[masked]"


def _check_sums(hit: Hit, found: Iterable[Token]) -> None:
    parts = dict.fromkeys(dict(hit.parts), 0)
    for token in found:
        parts[token.field] = parts.get(token.field, 0) + token.share
    if parts != dict(hit.parts) or sum(parts.values()) != hit.score:
        raise IntegrityError(
            f"the hit says score {hit.score} of parts {dict(hit.parts)}, this view and query give "
            f"{sum(parts.values())} of {parts}: ask this view again"
        )


class Eligibility(NamedTuple):
    """Where every row of a snapshot ended."""

    frame: pl.DataFrame
    """One row a row of the snapshot, in its order; `reason` is `eligible` or one of REASONS, `reasons` all that apply."""
    counts: dict[str, int]
    """`eligible` and each of REASONS, in order; they sum to the rows of the snapshot."""

    @property
    def sentence(self) -> str:
        """The counts in words."""
        out = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in self.counts.items() if count)
        out = out.partition(", ")[2] if self.counts["eligible"] else out
        whole = f"{self.frame.height:,} row{'' if self.frame.height == 1 else 's'}"
        holds = "the sum holds" if sum(self.counts.values()) == self.frame.height else "✗ the sum does not hold"
        return f"Of {whole}, {self.counts['eligible']:,} are eligible; left out: {out or 'none'}; {holds}."


def eligibility(index: Index, exclude: Iterable[str | Exclusion] = (), *, base: Base = "fit") -> Eligibility:
    """Why each row of the snapshot may be consulted by `index.view(base, exclude=exclude)`, or why not.

    Raises:
        NoEvidence, UsageError: as `index.view` does.
    """
    asked = exclude if isinstance(exclude, str) else tuple(exclude)
    index.view(base, exclude=asked)  # refuses what it does not know
    exclusions = [item if isinstance(item, Exclusion) else Exclusion(level="lineage", value=item) for item in asked]
    reasons = _reasons(index, exclusions, base)
    rows = [_ledger_row(position, row, reasons[position]) for position, row in enumerate(index.snapshot.rows)]
    counted = Counter(row[5] for row in rows)
    return Eligibility(
        pl.DataFrame(rows, schema=LEDGER, orient="row"), {name: counted[name] for name in ("eligible", *REASONS)}
    )


def _reasons(index: Index, exclusions: Iterable[Exclusion], base: Base) -> dict[int, list[str]]:
    """{position: what leaves it out, in the order of REASONS}."""
    snapshot, found = index.snapshot, defaultdict[int, set[str]](set)
    for exclusion in exclusions:
        for position in snapshot.positions(exclusion):
            found[position].add(exclusion.level)
    if base == "fit":
        for position in range(len(snapshot.fit.rows), len(snapshot.rows)):
            found[position].add("split")
    for position in snapshot.invalidated:
        found[position].add("invalidated")
    return defaultdict(list, {position: sorted(levels, key=REASONS.index) for position, levels in found.items()})


def _ledger_row(position: int, row: Row, reasons: list[str]) -> tuple[Any, ...]:
    reason = reasons[0] if reasons else "eligible"
    return position, row.entry_id, ", ".join(row.lineages), row.family or None, row.split, reason, reasons


class Near(NamedTuple):
    """A hit, or a near-miss."""

    rank: int | None
    """None: left out."""
    entry: Entry
    relation: str | None
    """One of RELATIONS; None when it is not known to what."""
    score: int
    """In the search that gave it: of a near-miss, the second one."""
    score_all: int
    """When nothing is left out."""
    same_observation: bool | None
    """None: no truth was given."""

    @property
    def shown_rank(self) -> str:
        """The rank, or `out`."""
        return "out" if self.rank is None else str(self.rank)


class NearMisses(NamedTuple):
    """The hits of a view with its near-misses in place, and the receipts of both searches."""

    rows: tuple[Near, ...]
    """Hits by rank; a near-miss stands before the first hit that it ranks above."""
    more: int
    """Near-misses that are not among `rows`."""
    hits: Hits
    """Of the view."""
    whole: Hits
    """Of the second search."""

    @property
    def out(self) -> tuple[Near, ...]:
        """The near-misses alone, best first."""
        return tuple(row for row in self.rows if row.rank is None)

    @property
    def sentence(self) -> str:
        """The near-misses in words."""
        shown, more = len(self.out), self.more
        if not shown + more:
            return "No left-out entry ranks above the last hit."
        if not more:
            return f"{shown:,} left-out {_entries(shown)} above the last hit."
        return f"{shown:,} near-misses are shown; {more:,} more left-out {_entries(more)} above the last hit."

    def frame(self) -> pl.DataFrame:
        """One row an element of `rows`; texts are masked."""
        return pl.DataFrame([_near_row(row) for row in self.rows], schema=NEAR, orient="row")


def _entries(count: int) -> str:
    return "entry ranks" if count == 1 else "entries rank"


def _near_row(row: Near) -> tuple[Any, ...]:
    return (
        row.entry.entry_id,
        row.relation,
        row.score,
        row.score_all,
        row.rank,
        row.rank is not None,
        row.same_observation,
        row.entry.trace_id,
        masked(dict(row.entry.key).get("action", "")),
        masked(row.entry.value),
    )


def near_misses(index: Index, hits: Hits, *, step: str | None = None, most: int = SHOWN) -> NearMisses:
    """What the view of `hits` left out and what ranks above the last hit when nothing is left out; `most` of it is shown.

    `step` is the recorded step that was asked about: relations and the truth are its own, and it is no near-miss itself.

    Raises:
        IntegrityError: the hits are of another snapshot than the index; both are named.
        NoEvidence: the step is no entry of the index.
        UsageError: `most` is negative.
        UnsupportedError: vectors rank.
    """
    if most < 0:
        raise UsageError(f"most is {most}: show 0 near-misses or more")
    own = None if step is None else _position_of(index, step)
    whole, visible = index.view("all"), _visible(index, hits)
    _check_sparse(whole)
    total = _scores(whole, hits.receipt.query)
    order = top(total, whole.statistics.ranker.order, whole.count).tolist()  # rows, the best first
    above = order[: order.index(hits[-1].position)]
    out = [place for place, row in enumerate(above) if not visible[row] and row != own]
    again = _again(whole, hits, [place + 1 for place in out[:most]])
    told = _Told(index.snapshot, own, hits.receipt.query.act.structure, total)
    places = {row: place for place, row in enumerate(order)}
    rows = _in_place(
        [(places[hit.position], told.near(hit, hit.rank)) for hit in hits],
        [(place, told.near(again[place], None)) for place in out[:most]],
    )
    return NearMisses(rows, max(0, len(out) - most), hits, again)


def _again(whole: IndexView, hits: Hits, ranks: Iterable[int]) -> Hits:
    """The second search, deep enough to hold `ranks`."""
    again = whole.nearest(hits.receipt.query, max([hits.receipt.k, *ranks]))
    if isinstance(again, Unverifiable):  # the view gave hits for this query, so the whole has some
        raise IntegrityError(f"the view gave {len(hits)} hits, a search of the whole snapshot: {again.reason}")
    return again


def _in_place(hits: Iterable[tuple[int, Near]], near: Iterable[tuple[int, Near]]) -> tuple[Near, ...]:
    """Both as one list; the number of each is its place when nothing is left out. No near-miss is below the last hit."""
    waiting, rows = deque(near), list[Near]()
    for place, row in hits:
        while waiting and waiting[0][0] < place:
            rows.append(waiting.popleft()[1])
        rows.append(row)
    return tuple(rows)


def _position_of(index: Index, entry_id: str) -> int:
    found = index.snapshot.positions(Exclusion(level="entry", value=entry_id))
    if not found:
        raise NoEvidence(f"{entry_id} is no entry of the index; entries are recorded transitions: xlab transitions")
    return found[0]


def _scores(view: IndexView, query: Query) -> Array:
    """(n,) int64: the score of every row of the view; -1 where it sees nothing."""
    statistics, asked = view.statistics, _texts(query)
    total = np.zeros(len(statistics.keep), np.int64)
    for number, channel in enumerate(view.config.channels):
        total += part_of(statistics, number, asked[channel.field])
    total[statistics.out] = -1
    return total


def _visible(index: Index, hits: Hits) -> Array:
    """(n,) bool: what the view of `hits` could see."""
    seen = hits.receipt.visibility
    bases: dict[str, Base] = {index.snapshot.fit.digest: "fit", index.snapshot.digest: "all"}
    if seen.snapshot_digest not in bases:
        raise IntegrityError(f"the hits are of snapshot {seen.snapshot_digest}, the index has {index.snapshot.digest}")
    view = View(index.snapshot, bases[seen.snapshot_digest], seen.excluded)
    visible = np.zeros(len(index.snapshot.rows), bool)
    visible[: len(view.snapshot.rows)] = True
    visible[view.out] = False
    return visible


class _Told(NamedTuple):
    """What is said of an entry beside its score."""

    snapshot: Snapshot
    own: int | None
    """Row of the step that is asked about."""
    structure: str
    """Of the action that is asked about."""
    total: Array

    def near(self, hit: Hit, rank: int | None) -> Near:
        entry = self.snapshot.entries[hit.position]
        return Near(
            rank=rank,
            entry=entry,
            relation=self._relation(hit.row, entry),
            score=hit.score,
            score_all=int(self.total[hit.position]),
            same_observation=None if self.own is None else entry.value == self.snapshot.entries[self.own].value,
        )

    def _relation(self, row: Row, entry: Entry) -> str | None:
        same_call = entry.structure == self.structure
        if self.own is None:
            return "identical call" if same_call else None
        own = self.snapshot.rows[self.own]
        return relation_of(row, Run(own.entry_id, own.trace_id, own.lineages, own.family), same_call=same_call)


class Run(NamedTuple):
    """Where a recorded step is from."""

    entry_id: str
    trace_id: str | None
    lineages: tuple[str, ...]
    family: str | None


def relation_of(row: Row, own: Run, *, same_call: bool) -> str:
    """One of RELATIONS: how the run of `row` stands to the run of the step that is asked about."""
    kin = (
        row.entry_id == own.entry_id,
        row.trace_id is not None and row.trace_id == own.trace_id,
        not set(row.lineages).isdisjoint(own.lineages),
        bool(row.family) and row.family == own.family,
        same_call,
        True,
    )
    return RELATIONS[kin.index(True)]
