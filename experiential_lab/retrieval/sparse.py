"""The default ranker: texts become postings, and a query over a view of them becomes exactly ranked rows.

- Document frequencies, the number of entries and the average length are those of the view, never those of the snapshot:
  a search of a view equals a search of an index built from its entries, ids, scores and parts, bit for bit.
- Scores are integers, so a sum has one value whatever its order. The only floats are + * / of IEEE doubles, one operation
  at a time, and a logarithm that is believed only away from an integer. No result depends on CPU, BLAS, threads or hash seed.
- Ties break by entry id, through its rank: rows are in the order of their snapshot. min(k, visible) rows come back always.

A channel is one kind of feature of one field, with statistics of its own. The part of a channel in the score is the sum
over shared features with idf >= least of weight * min(count in query, 255) * idf * impact, where
idf = floor(32 log2((2n + 2) / (2df + 1))) (the BM25 idf of Lucene, in 1/32 bit) and
impact = round(255 tf / (tf + k1 (1 - b + b length / pivot))). The pivot is the average length of the view cut to three
significant bits: views of nearly the same length share one table of impacts, and a new view costs no pass over postings.

Building and searching share these rules, so they share this file.

Not covered: features are 40-bit hashes, so two may be one (about 1 pair among 1.5 million; every view sees the same pair).
At most 2**24 entries. Case folding follows this Python's Unicode tables; their version is in the configuration.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiential_lab.records import LimitError, Record

Array = NDArray[Any]

ROW_BITS, FEATURE_BITS = (
    24,
    40,
)  # one posting key is feature << 24 | row, in one uint64; a width that grew with n would break law 2
BATCH_BYTES = 1 << 18  # features of a batch stay in the second-level cache
IMPACT, IDF = 255, 32  # units: 1/255 of saturation, 1/32 bit
DENSE = 8  # a long feature of more than an eighth of the rows is added as a column: no scatter
LONG = 1 << 12  # postings of a feature from which it is worth a Python loop of its own
SCATTER = 1 << 15  # postings added at once: their temporaries stay in the cache
PIVOTS = 4  # tables of impacts that a channel keeps
LARGEST = (1 << 53) - 1  # of a score: every JSON reader keeps it

FRAME = b"\n\n"  # stands before and after each text, so that one letter is a window of five
WORD = np.zeros(256, bool)  # letters, digits, underscore and every byte of a non-ASCII letter
WORD[np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789_", np.uint8)] = True
WORD[128:] = True
BYTE = (np.arange(1, 257, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(0xD6E8FEB86659FD93)
BYTE = BYTE * (BYTE >> np.uint64(29) | np.uint64(1))


class Channel(Record, kw_only=True):
    field: str
    """`action`, `task` or `recent`."""
    feature: str
    """`word`, or `gram5`: every window of five bytes of the folded text, across words and punctuation."""
    weight: int
    least: int = 0
    """A feature whose idf is below this (1/32 bit) is skipped: it costs most and says least."""
    k1: str = "1.2"
    b: str = "0.75"


DEFAULT = (
    Channel(field="action", feature="gram5", weight=32, least=32),
    Channel(field="task", feature="word", weight=1, least=64),
    Channel(field="recent", feature="word", weight=1, least=64),
)


class Ranked(NamedTuple):
    row: int
    score: int
    parts: tuple[int, ...]
    """One a channel; they sum to the score."""


class Postings(NamedTuple):
    """One channel in compressed rows: the entries that hold vocabulary[i] are rows[start[i]:start[i + 1]]."""

    vocabulary: Array  # (v + 1,) uint64, ascending, the last a sentinel above every feature
    start: Array  # (v + 1,) int64
    rows: Array  # (p,) int32, ascending within a feature
    tf: Array  # (p,) int32; uint8 and clipped at 255 inside a ranker
    length: Array  # (n,) int32, features of each entry in this channel


def features(texts: Sequence[str], kind: str) -> tuple[Array, Array]:
    """(text number int64, feature uint64) of every feature of every text; of one text in order of place, else in no promised order."""
    rows, ids, start = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)], 0
    raw = [_folded(text, kind) for text in texts]
    while start < len(raw):
        stop, size = start, 0
        while stop < len(raw) and (stop == start or size + len(raw[stop]) < BATCH_BYTES):
            size, stop = size + len(raw[stop]) + 2 * len(FRAME), stop + 1
        row, feature = _batch(raw[start:stop], kind)
        rows.append(row + start)
        ids.append(feature)
        start = stop
    return np.concatenate(rows), np.concatenate(ids)


def _folded(text: str, kind: str) -> bytes:
    text = text.casefold()
    if kind == "word" and not text.isascii():  # curly quotes and dashes are no part of a word
        text = re.sub(r"\W+", " ", text)
    return text.encode("utf-8", "surrogatepass")


def _batch(raw: list[bytes], kind: str) -> tuple[Array, Array]:
    text = np.frombuffer(FRAME + (FRAME * 2).join(raw) + FRAME, np.uint8)  # (m,)
    lengths = np.fromiter(map(len, raw), np.int64, len(raw)) + 2 * len(FRAME)
    ends = np.cumsum(lengths)  # where each framed text ends
    if kind == "word":
        word = WORD[text]
        edge = np.flatnonzero(word[1:] != word[:-1]) + 1
        first, last = edge[0::2], edge[1::2]
        row = np.searchsorted(ends, first, side="right")
    else:
        size = int(kind.removeprefix("gram"))
        row = np.repeat(np.arange(len(raw)), lengths)
        first = np.flatnonzero(row[size - 1 :] == row[: len(row) - size + 1])
        row, last = row[first], first + size
    power, inverse = _powers(1 << len(text).bit_length())
    prefix = np.zeros(len(text) + 1, np.uint64)  # polynomial hash of the bytes before a position
    np.cumsum(BYTE[text] * power[: len(text)], out=prefix[1:])
    return row, _mix((prefix[last] - prefix[first]) * inverse[first])


def _mix(x: Array) -> Array:
    """The finaliser of MurmurHash3, cut to FEATURE_BITS."""
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    mixed: Array = (x ^ (x >> np.uint64(33))) >> np.uint64(64 - FEATURE_BITS)
    return mixed


@lru_cache(4)
def _powers(size: int) -> tuple[Array, Array]:
    """Powers 0 to `size` of an odd base and of its inverse, modulo 2**64."""
    base = 0x9E3779B97F4A7C15
    power, inverse = (
        np.multiply.accumulate(np.r_[np.uint64(1), np.full(size, factor, np.uint64)])
        for factor in (base, pow(base, -1, 1 << 64))
    )
    return power, inverse


def postings_of(texts: Sequence[str], kind: str) -> Postings:
    """The postings of `texts`, one row a text."""
    row, feature = features(texts, kind)
    key = np.sort(feature << np.uint64(ROW_BITS) | row.astype(np.uint64))
    first = np.flatnonzero(np.diff(key, prepend=~key[:1]))  # the first of each run of equal (feature, row)
    tf = np.diff(first, append=len(key)).astype(np.int32)
    length = np.bincount(row, minlength=len(texts)).astype(np.int32)
    key = key[first]
    rows = (key & np.uint64((1 << ROW_BITS) - 1)).astype(np.int32)
    feature = key >> np.uint64(ROW_BITS)
    start = np.flatnonzero(np.diff(feature, prepend=~feature[:1]))
    return Postings(np.append(feature[start], ~np.uint64(0)), np.r_[start, len(key)], rows, tf, length)


@lru_cache(1 << 6)
def terms_of(text: str, kind: str) -> tuple[Array, Array]:
    """(feature uint64, count int64) of every distinct feature of a query text; a session asks with one task many times."""
    feature, count = np.unique(features([text], kind)[1], return_counts=True)
    return feature, count


def find(postings: Postings, text: str, kind: str) -> tuple[Array, Array]:
    """(number in the vocabulary, count in `text`) of the features of `text` that the postings hold."""
    wanted, count = terms_of(text, kind)
    at = np.searchsorted(postings.vocabulary, wanted)
    found = postings.vocabulary[at] == wanted
    return at[found], count[found]


def sizes_of(postings: Postings, terms: Array) -> Array:
    """(t,) int64: how many rows hold each term."""
    sizes: Array = postings.start[terms + 1] - postings.start[terms]
    return sizes


def spans_of(postings: Postings, terms: Array) -> list[slice]:
    """Where the list of each term stands in the postings."""
    return list(map(slice, postings.start[terms].tolist(), postings.start[terms + 1].tolist()))


class Ranker:
    """Postings of each channel over the same rows. Nothing but caches changes after it is made."""

    def __init__(self, channels: tuple[Channel, ...], postings: Sequence[Postings], order: Array) -> None:
        self.channels = channels
        self.postings = tuple(postings)
        self.order = order
        """(n,) int64: rank of each row's entry id among all ids."""
        self.totals = tuple(int(p.length.sum()) for p in self.postings)
        self._tables: list[dict[int, _Table]] = [{} for _ in channels]
        self._lock = Lock()

    @classmethod
    def build(cls, channels: tuple[Channel, ...], texts: Mapping[str, Sequence[str]], ids: Sequence[str]) -> "Ranker":
        """A ranker of rows with these `ids`; `texts` holds one text a row for each field."""
        if len(ids) > 1 << ROW_BITS:
            raise LimitError(f"{len(ids)} entries: this ranker holds at most {1 << ROW_BITS}")
        made = [postings_of(texts[channel.field], channel.feature) for channel in channels]
        return cls(channels, [p._replace(tf=p.tf.clip(max=255).astype(np.uint8)) for p in made], order_of(ids))

    def prefix(self, count: int) -> "Ranker":
        """The ranker of the first `count` rows alone."""
        if count == len(self.order):
            return self
        return Ranker(self.channels, [_prefix(postings, count) for postings in self.postings], self.order[:count])

    def table(self, channel: int, pivot: int) -> "_Table":
        """The impacts of a channel for one pivot. Locked: two threads could evict while a third one reads."""
        with self._lock:
            tables = self._tables[channel]
            if pivot not in tables:
                while len(tables) >= PIVOTS:
                    tables.pop(next(iter(tables)))
                tables[pivot] = _Table(_impacts(self.postings[channel], self.channels[channel], pivot), {})
            return tables[pivot]


class _Table(NamedTuple):
    impact: Array  # (p,) uint8
    columns: dict[int, Array]  # term -> (n,) uint8, its impacts laid out in full


def order_of(ids: Sequence[str]) -> Array:
    """(n,) int64: the rank of each id among all."""
    order = np.empty(len(ids), np.int64)
    order[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
    return order


def _prefix(postings: Postings, count: int) -> Postings:
    """The postings of the first `count` texts alone, as `postings_of` would make them."""
    kept = postings.rows < count
    start = np.concatenate([[0], np.cumsum(kept)])[postings.start]
    held = np.append(start[1:] > start[:-1], True)  # the sentinel stays
    return Postings(
        postings.vocabulary[held], start[held], postings.rows[kept], postings.tf[kept], postings.length[:count]
    )


def _impacts(postings: Postings, channel: Channel, pivot: int) -> Array:
    k1, b = float(channel.k1), float(channel.b)
    norm = k1 * (1 - b + b * (postings.length / pivot))
    tf = postings.tf.astype(np.float64)
    return np.floor(IMPACT * tf / (tf + norm[postings.rows]) + 0.5).astype(np.uint8)


class Statistics:
    """What the ranker knows of one view: which rows are visible, and numbers counted over these alone."""

    def __init__(self, ranker: Ranker, out: Sequence[int]) -> None:
        self.ranker = ranker
        self.out = np.array(out, np.int32)
        self.keep = np.ones(len(ranker.order), bool)
        self.keep[self.out] = False
        self.count = len(ranker.order) - len(out)
        self.pivots = tuple(
            _pivot(total - int(p.length[self.out].sum()), self.count)
            for total, p in zip(ranker.totals, ranker.postings, strict=True)
        )
        # Of each term df + 1, or 0 as long as nobody asked for it.
        self._known = [np.zeros(len(p.start), np.int32) for p in ranker.postings]

    def frequency(self, channel: int, terms: Array, lists: "Lists") -> Array:
        """(t,) int64: how many visible rows hold each term; counted once a view."""
        postings, known = self.ranker.postings[channel], self._known[channel]
        if not len(self.out):
            return sizes_of(postings, terms)
        unknown = known[terms] == 0
        if unknown[lists.short].any():
            known[terms[lists.short]] = np.add.reduceat(self.keep[lists.rows], lists.first, dtype=np.int32) + 1
        for term in terms[lists.long][unknown[lists.long]].tolist():
            known[term] = self._visible(postings.rows[postings.start[term] : postings.start[term + 1]]) + 1
        return known[terms].astype(np.int64) - 1

    def _visible(self, rows: Array) -> int:
        if len(rows) < 16 * len(self.out):
            return int(np.count_nonzero(self.keep[rows]))
        at = np.searchsorted(rows, self.out)  # few rows are out: look for each of them
        return len(rows) - int(np.count_nonzero(rows[at.clip(max=len(rows) - 1)] == self.out))


class Lists(NamedTuple):
    """The posting lists of some terms: the short ones end to end, so that one call works on all, and the long ones."""

    short: Array  # (s,) which terms are short
    sizes: Array  # (s,) int64, length of each short list
    first: Array  # (s,) int64, where each short list begins in `rows`
    spans: list[slice]  # where each short list stands in the postings
    rows: Array  # (m,) intp, the short lists
    long: Array  # (l,) which terms are long


def lists_of(postings: Postings, terms: Array) -> Lists:
    """The lists of `terms`; a list of LONG postings or more is worth a Python loop of its own."""
    size = sizes_of(postings, terms)
    short = np.flatnonzero(size < LONG)
    sizes = size[short]
    spans = spans_of(postings, terms[short])
    rows = np.concatenate([postings.rows[:0], *(postings.rows[span] for span in spans)], dtype=np.intp)
    return Lists(short, sizes, np.cumsum(sizes) - sizes, spans, rows, np.flatnonzero(size >= LONG))


def _pivot(total: int, count: int) -> int:
    average = max(1, total // max(1, count))
    shift = max(0, average.bit_length() - 3)
    return average >> shift << shift


def idf(frequency: Array, count: int) -> Array:
    """(t,) int64: floor(IDF * log2((2 count + 2) / (2 df + 1))), exactly; 0 where df is 0.

    The logarithm differs between CPUs in its last bits, so it decides only where it is far from an integer; else integers do.
    """
    guess = IDF * np.log2((2 * count + 2) / (2 * frequency + 1))
    whole: Array = np.floor(guess).astype(np.int64)
    for i in np.flatnonzero(np.abs(guess - np.rint(guess)) < 1e-6).tolist():
        whole[i] = exact_idf(int(frequency[i]), count)
    whole[frequency == 0] = 0
    return whole


def exact_idf(df: int, count: int) -> int:
    """The same number of one df >= 1, in integers alone."""
    ratio: int = (2 * count + 2) ** IDF // (2 * df + 1) ** IDF
    return ratio.bit_length() - 1


@lru_cache(1 << 10)
def most_frequent(least: int, count: int) -> int:
    """The greatest df whose idf is at least `least`; 0 when there is none."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if exact_idf(middle, count) >= least else (low, middle - 1)
    return low


def rank(statistics: Statistics, texts: Mapping[str, str], k: int) -> list[Ranked] | None:
    """The min(k, visible) best rows, best first, equal scores in order of entry id; None when no text has a feature."""
    channels = statistics.ranker.channels
    if not any(len(terms_of(texts[channel.field], channel.feature)[0]) for channel in channels):
        return None
    parts = [part_of(statistics, number, texts[channel.field]) for number, channel in enumerate(channels)]
    total = np.zeros(len(statistics.keep), np.int64)
    for part in parts:
        total += part
    total[statistics.out] = -1
    best = top(total, statistics.ranker.order, min(k, statistics.count)).tolist()
    return [Ranked(row, int(total[row]), tuple(int(part[row]) for part in parts)) for row in best]


def part_of(statistics: Statistics, number: int, text: str) -> Array:
    """(n,) int32 or int64: what one channel adds to the score of every row; of a row that is out it says nothing."""
    channel, postings = statistics.ranker.channels[number], statistics.ranker.postings[number]
    terms, count = find(postings, text, channel.feature)
    most = most_frequent(max(1, channel.least), statistics.count)
    likely = sizes_of(postings, terms) <= most + len(statistics.out)  # others cannot have a df of `most` or less
    terms, count = terms[likely], count[likely]
    lists = lists_of(postings, terms)
    frequency = statistics.frequency(number, terms, lists)
    weight = channel.weight * count.clip(max=255) * idf(frequency, statistics.count)
    weight[frequency > most] = 0
    bound = sum(weight.tolist()) * IMPACT
    if bound > LARGEST // len(statistics.ranker.channels):
        raise LimitError(
            f"{len(count)} distinct features in {channel.field}: a score could pass {LARGEST}; ask with less"
        )
    scores = np.zeros(len(statistics.keep), np.int32 if bound < 1 << 31 else np.int64)
    table = statistics.ranker.table(number, statistics.pivots[number])
    _add_short(scores, lists, table, weight.astype(scores.dtype))
    for i in lists.long.tolist():
        span = slice(int(postings.start[terms[i]]), int(postings.start[terms[i] + 1]))
        _add_long(scores, table, int(terms[i]), span, postings.rows[span], scores.dtype.type(weight[i]))
    return scores


def _add_short(scores: Array, lists: Lists, table: _Table, weight: Array) -> None:
    if not lists.spans:
        return
    each = np.repeat(weight[lists.short], lists.sizes)
    each *= np.concatenate([table.impact[span] for span in lists.spans])
    for start in range(0, len(each), SCATTER):
        part = slice(start, start + SCATTER)
        np.add.at(scores, lists.rows[part], each[part])


def _add_long(scores: Array, table: _Table, term: int, span: slice, rows: Array, weight: Any) -> None:
    if len(rows) * DENSE <= len(scores):
        np.add.at(scores, rows, table.impact[span] * weight)
    elif weight:
        scores += np.multiply(_column(table, term, rows, span, len(scores)), weight)


def _column(table: _Table, term: int, rows: Array, span: slice, size: int) -> Array:
    if term not in table.columns:
        column = np.zeros(size, np.uint8)
        column[rows] = table.impact[span]
        table.columns[term] = column  # whole before it can be seen
    return table.columns[term]


def top(scores: Array, order: Array, k: int) -> Array:
    """Rows of the k greatest scores, equal ones by ascending `order`; negative scores are no candidates."""
    block = min(512, len(scores) // (32 * k)) if k else 0
    floor = 0
    if block:  # the k-th greatest of the block maxima cannot exceed the k-th greatest score
        best = scores[: len(scores) // block * block].reshape(-1, block).max(1)
        floor = max(0, int(np.partition(best, len(best) - k)[len(best) - k]))
    rows = np.flatnonzero(scores >= floor)
    return rows[np.lexsort((order[rows], -scores[rows]))[:k]]
