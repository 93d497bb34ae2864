"""Goal 5c: what the first hit really said, for the default ranker and its peers, each family asked without itself.

`python -m experiential_lab.bench.quality [TRACES]` prints one JSON document; without a file it is about the bundled order
desk, and it is what `notebooks/figures/ranker_peers.json` holds.

- Calls and messages are two corpora: a call is asked among calls, a message among messages, over all families.
- Every ranker sees the same rows: the corpus without the family that is asked. Its statistics are counted there. At most
  ROWS_A_FAMILY rows of a family are asked. Equal scores are in order of entry id, whatever a peer would do.
- The peers: bm25s (its defaults) on the words of the action; TF-IDF over 3 to 5 characters of the action (scikit-learn);
  the hashed dense embedder on the action; HASHED_WORDS hashed words of the whole key as JSON, by cosine. `random` is no
  ranker but a floor: the exact expectation over rows drawn without replacement.
- What a peer scored stands beside the digest of the rows that it was scored on; for other rows it is stale.
- "Not significantly below" holds also where the families are too few to tell: the whole interval stands in the table.

Not covered: speed, which other goals measure, and other settings of the peers than these.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from math import comb
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from experiential_lab.bench import figure, left_out, versions
from experiential_lab.lab import Lab, bundled
from experiential_lab.metrics import exact_match, token_f1, words
from experiential_lab.records import Record, StaleError, UsageError, canonical_json
from experiential_lab.retrieval.choice import BASE, Ask, Candidate, Scored, Way, asked_rows, families_of, scored, way_of
from experiential_lab.retrieval.embedders import HashedEmbedder
from experiential_lab.retrieval.sparse import Ranked, order_of
from experiential_lab.retrieval.views import Snapshot, View
from experiential_lab.statistics import MILLION, Estimate, Interval, family_difference, family_mean

Array = NDArray[Any]
Best = Callable[[int], Array]
"""Row that asks -> (v,) score of each visible row."""

DESK = "desk_tools.jsonl"
K = 5
HASHED_WORDS = 256
OURS = "default"
BM25, TFIDF, DENSE, HASH, RANDOM = "bm25s words", "tf-idf char 3-5", "hashed dense", "hash of the key", "random"
PACKAGES = ("bm25s", "numpy", "scikit-learn", "scipy")
NEEDS = {BM25: "bm25s", TFIDF: "sklearn"}
TABLE = {
    "corpus": pl.String,
    "ranker": pl.String,
    "families": pl.Int64,
    "rows": pl.Int64,
    "f1": pl.Int64,
    "best_of_5": pl.Int64,
    "exact": pl.Int64,
    "difference": pl.Int64,
    "low": pl.Int64,
    "high": pl.Int64,
    "note": pl.String,
}


class Peer(Record, kw_only=True):
    """What one ranker scored on one corpus."""

    corpus: str
    """`calls` or `messages`."""
    snapshot: str
    """Digest of the rows of the corpus."""
    ranker: str
    f1: dict[str, list[int]]
    """Family -> token F1 at rank 1 of each row that was asked, in millionths."""
    best: Estimate
    """The best token F1 among the first five."""
    exact: Estimate
    """Exact match at rank 1."""


class Pinned(Record, kw_only=True):
    """What a run of the peers leaves: notebooks compare the default with it, and need no peer."""

    traces: str
    versions: dict[str, str]
    peers: list[Peer]
    table: list[dict[str, Any]]
    goals: list[dict[str, Any]]


def corpora_of(snapshot: Snapshot) -> dict[str, View]:
    """Calls and messages apart, each as a view of all its rows; one without a row is absent."""
    calls = {position for position, entry in enumerate(snapshot.entries) if entry.tool}
    parts = {"calls": calls, "messages": set(range(len(snapshot.entries))) - calls}
    return {
        name: View(snapshot.without(set(range(len(snapshot.entries))) - rows)) for name, rows in parts.items() if rows
    }


def measured(traces: Path) -> Pinned:
    """The peers that are installed, on one trace file, with the table and the figures of goal 5c."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "lab")
        lab.import_traces(traces)
        lab.split()
        corpora = corpora_of(lab.index().snapshot)
    peers = [peer for name, view in corpora.items() for peer in _peers(name, view)]
    table = quality_frame(corpora, peers)
    return Pinned(
        traces=traces.name,
        versions=versions(*PACKAGES),
        peers=peers,
        table=table.to_dicts(),
        goals=_figures(table),
    )


def ranker(traces: Path) -> list[dict[str, Any]]:
    """The figures of goal 5c on a trace file."""
    return measured(traces).goals


def quality_frame(corpora: dict[str, View], peers: Iterable[Peer]) -> pl.DataFrame:
    """The default, scored now, and below it each peer; millionths. `difference` is default minus peer, with a 95 % interval.

    Raises:
        StaleError: a peer was scored on other rows.
    """
    rows, peers = [], list(peers)
    for name, view in corpora.items():
        ours = scored(view, way_of(view.snapshot, BASE), K)
        rows.append((name, OURS, *_about(family_mean(ours.f1)), *_values(*map(family_mean, ours)), *[None] * 3, ""))
        for peer in (each for each in peers if each.corpus == name):
            _check(peer, view)
            means = family_mean(peer.f1), peer.best, peer.exact
            difference = family_difference(ours.f1, peer.f1)
            rows.append((name, peer.ranker, *_about(means[0]), *_values(*means, difference), *_ends(difference)))
    return pl.DataFrame(rows, schema=TABLE, orient="row")


def _about(mean: Estimate) -> tuple[int, int]:
    return mean.families, mean.rows


def _values(*means: Estimate) -> list[int | None]:
    return [each.value for each in means]


def _ends(difference: Estimate) -> tuple[int | None, int | None, str]:
    interval = difference.interval
    return (interval.low, interval.high, "") if isinstance(interval, Interval) else (None, None, interval.reason)


def _check(peer: Peer, view: View) -> None:
    if peer.snapshot != view.snapshot.digest:
        raise StaleError(
            f"{peer.ranker} was scored on {peer.corpus} {peer.snapshot}, here they are {view.snapshot.digest}; "
            "score the peers again: python -m experiential_lab.bench.quality"
        )


def _figures(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Not significantly below word BM25 and TF-IDF; significantly above the hash of the key, on calls."""
    found = {(row["corpus"], row["ranker"]): row for row in table.iter_rows(named=True)}
    figures = []
    for corpus in table["corpus"].unique(maintain_order=True):
        bars = [(BM25, "high", ">= 0"), (TFIDF, "high", ">= 0"), (HASH, "low", ">= 0.0001")]
        for peer, end, bar in bars if corpus == "calls" else bars[:2]:
            name = f"{corpus}: {end} end of token F1 at 1, default minus {peer}"
            figures.append(_figure(name, bar, peer, found.get((corpus, peer)), end))
    return figures


def _figure(name: str, bar: str, peer: str, row: dict[str, Any] | None, end: str) -> dict[str, Any]:
    if row is None:
        return left_out("5c", name, NEEDS[peer])
    if row[end] is None:
        return {"goal": "5c", "name": name, "ratio": None, "holds": None, "reason": row["note"]}
    return figure("5c", name, row[end] / MILLION, bar, rounds=1, versions=versions(*PACKAGES))


def _peers(corpus: str, view: View) -> list[Peer]:
    """Every peer that is installed, and the floor."""
    ways: dict[str, Callable[[Snapshot], Way]] = {
        BM25: bm25_way,
        TFIDF: tfidf_way,
        DENSE: lambda snapshot: way_of(snapshot, Candidate(name=DENSE, fusion="dense"), HashedEmbedder()),
        HASH: hash_way,
    }
    found = {
        name: scored(view, way(view.snapshot), K)
        for name, way in ways.items()
        if name not in NEEDS or find_spec(NEEDS[name])
    }
    found[RANDOM] = random_scored(view)
    return [
        Peer(
            corpus=corpus,
            snapshot=view.snapshot.digest,
            ranker=name,
            f1=each.f1,
            best=family_mean(each.best),
            exact=family_mean(each.exact),
        )
        for name, each in found.items()
    ]


def bm25_way(snapshot: Snapshot) -> Way:
    """bm25s with its defaults, built again on the visible rows."""
    bm25s = import_module("bm25s")
    tokens = [words(action) for action in _actions(snapshot)]

    def scores(visible: Array) -> Best:
        ranker = bm25s.BM25()
        ranker.index([tokens[row] for row in visible], show_progress=False)
        return lambda row: np.asarray(ranker.get_scores(tokens[row]))

    return _way(snapshot, scores)


def tfidf_way(snapshot: Snapshot) -> Way:
    """scikit-learn's TF-IDF over windows of 3 to 5 characters, its frequencies counted over the visible rows."""
    text = import_module("sklearn.feature_extraction.text")
    counts = text.CountVectorizer(analyzer="char", ngram_range=(3, 5)).fit_transform(_actions(snapshot))

    def scores(visible: Array) -> Best:
        weigh = text.TfidfTransformer().fit(counts[visible])
        matrix = weigh.transform(counts[visible])
        return lambda row: (
            (matrix @ weigh.transform(counts[row]).T).toarray().ravel().round(9)
        )  # its last bits are noise

    return _way(snapshot, scores)


def hash_way(snapshot: Snapshot) -> Way:
    """Signed counts of hashed words of the whole key as JSON, by cosine; it has no statistics."""
    counts = np.zeros((len(snapshot.entries), HASHED_WORDS), np.int64)
    for row, entry in enumerate(snapshot.entries):
        for word in words(canonical_json(dict(entry.key))):
            slot, sign = _slot(word)
            counts[row, slot] += sign
    norms = np.sqrt((counts * counts).sum(axis=1).clip(min=1))
    return _way(snapshot, lambda visible: lambda row: counts[visible] @ counts[row] / norms[visible])


@cache
def _slot(word: str) -> tuple[int, int]:
    hashed = int.from_bytes(sha256(word.encode("utf-8", "surrogatepass")).digest()[:8])
    return hashed // 2 % HASHED_WORDS, 1 if hashed % 2 else -1


def _actions(snapshot: Snapshot) -> list[str]:
    return [dict(entry.key)["action"] for entry in snapshot.entries]


def _way(snapshot: Snapshot, scores: Callable[[Array], Best]) -> Way:
    """A peer that scores all visible rows, as a way to rank; equal scores are in order of entry id."""
    order = order_of([entry.entry_id for entry in snapshot.entries])

    def way(out: Sequence[int]) -> Ask:
        visible = np.setdiff1d(np.arange(len(order)), np.array(out, np.int64))
        of = scores(visible)

        def ask(row: int, k: int) -> list[Ranked]:
            best = np.lexsort((order[visible], -of(row)))[:k]
            return [Ranked(int(found), 0, ()) for found in visible[best]]

        return ask

    return way


def random_scored(view: View) -> Scored:
    """What rows drawn without replacement would score: exact expectations, rounded down."""
    entries, found = view.snapshot.entries, Scored({}, {}, {})
    families = families_of(view)
    for family, members in families.items():
        others = [entries[row].value for name, rows in families.items() if name != family for row in rows]
        asked = [entries[row].value for row in asked_rows(view, members)]
        f1 = [sorted(token_f1(text, observed) for text in others) for observed in asked]
        found.f1[family] = [sum(each) // max(1, len(each)) for each in f1]
        found.best[family] = [_expected_best(each) for each in f1]
        found.exact[family] = [
            sum(exact_match(text, observed) for text in others) // max(1, len(others)) for observed in asked
        ]
    return found


def _expected_best(ascending: Sequence[int]) -> int:
    """The expectation of the greatest of K, or of all when there are fewer."""
    drawn = min(K, len(ascending))
    if not drawn:
        return 0
    return sum(value * comb(place, drawn - 1) for place, value in enumerate(ascending)) // comb(len(ascending), drawn)


def read_pinned(path: Path) -> Pinned:
    """What `main` printed.

    Raises:
        UsageError: it is no such file.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Pinned)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} holds no scores of peers: {error}") from None


def written(pinned: Pinned) -> str:
    """One JSON document, with one line for each peer, row and figure."""
    lines = {name: [canonical_json(each) for each in msgspec.to_builtins(getattr(pinned, name))] for name in _LISTS}
    head = [f'"{name}": {canonical_json(getattr(pinned, name))}' for name in ("traces", "versions")]
    body = [f'"{name}": [\n' + ",\n".join(each) + "\n]" for name, each in lines.items()]
    return "{" + ",\n".join([*head, *body]) + "}\n"


_LISTS = ("peers", "table", "goals")


def main(arguments: Sequence[str]) -> int:
    """Print what was measured; 2 when the call is wrong."""
    if len(arguments) > 1 or (arguments and not Path(arguments[0]).is_file()):
        print("name at most one trace file: python -m experiential_lab.bench.quality [TRACES]", file=sys.stderr)
        return 2
    print(written(measured(Path(arguments[0]) if arguments else bundled(DESK))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
