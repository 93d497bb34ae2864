"""Law 2 against its peers: leave lineages out, and compare each top-10 list with that of an index rebuilt without them.

- A ranker takes entries and gives a search: a query and the lineages to leave out, to (entry id, score), best first.
- `view` counts its statistics over what is visible. The others keep those of all entries: `weight mask` is that of bm25s,
  `filter after` cuts excluded hits from the top 10 of bm25s, and `where` is SQLite FTS5, whose bm25() counts whole tables.
- The queries are the left-out entries themselves, which is how a held-out step is asked about. The peers search the same
  words of the action, and equal scores are in order of entry id: nothing but the statistics can differ.
- A list is `shorter` when the rebuilt index has more to give.

Not covered: whether a changed list is a worse one; other settings of the peers; `where` knows the first lineage of an entry.
"""

import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import polars as pl

from experiential_lab.bench import figure, left_out, versions
from experiential_lab.lab import Lab
from experiential_lab.metrics import words
from experiential_lab.records import NoEvidence, Unverifiable, digest_of
from experiential_lab.retrieval.grounding import query_of
from experiential_lab.retrieval.index import build
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.sparse import Array
from experiential_lab.retrieval.views import Entry, View, snapshot_of
from experiential_lab.show.plots import Finding
from experiential_lab.show.theme import PALETTE, Mode, number, plural, template

K = 10
SHARE = 0.3  # of the lineages, in the second case
NAMES = {
    "view": "view, counted anew",
    "weight mask": "bm25s, weight mask",
    "filter after": "bm25s, filter after",
    "where": "SQLite FTS5, WHERE",
}
"""Each ranker as it is shown."""
TITLE_WIDTH = 62  # characters of a title line that fit the narrowest page
DOMAINS = ([0.55, 1.0], [0.0, 0.45])  # of the two panels
K1, B = 1.2, 0.75  # of all three; FTS5 has no others

COMPARED = {
    "left_out": pl.String,
    "ranker": pl.String,
    "lists": pl.Int64,
    "list_differs": pl.Int64,
    "first_differs": pl.Int64,
    "scores_differ": pl.Int64,
    "shorter": pl.Int64,
    "holds_excluded": pl.Int64,
}

Found = list[tuple[str, float]]
Search = Callable[[Query, frozenset[str]], Found]


def view(entries: Sequence[Entry]) -> Search:
    """The default ranker of this project, through a view."""
    index = build(View(snapshot_of(entries, {})))

    def search(query: Query, lineages: frozenset[str]) -> Found:
        hits = index.view("all", exclude=lineages).nearest(query, K)
        return [] if isinstance(hits, Unverifiable) else [(hit.row.entry_id, hit.score) for hit in hits]

    return search


def weight_mask(entries: Sequence[Entry]) -> Search:
    """bm25s over the words of the action; excluded entries are weighted with 0."""
    scores, in_order = _bm25s(entries)

    def search(query: Query, lineages: frozenset[str]) -> Found:
        return _best(in_order, scores(query, [lineages.isdisjoint(entry.lineages) for entry in in_order]))

    return search


def filter_after(entries: Sequence[Entry]) -> Search:
    """bm25s over the words of the action; excluded entries are cut from the best ten."""
    scores, in_order = _bm25s(entries)
    lineages_of = {entry.entry_id: entry.lineages for entry in entries}

    def search(query: Query, lineages: frozenset[str]) -> Found:
        best = _best(in_order, scores(query, [True] * len(in_order)))
        return [found for found in best if lineages.isdisjoint(lineages_of[found[0]])]

    return search


def _bm25s(entries: Sequence[Entry]) -> tuple[Callable[[Query, list[bool]], Array], list[Entry]]:
    """Scores of the entries for a query under a mask, and the entries in the order of the scores: by id."""
    bm25s: Any = import_module("bm25s")  # has no types
    in_order = sorted(entries, key=lambda entry: entry.entry_id)
    ranker = bm25s.BM25(method="lucene", k1=K1, b=B)
    ranker.index([_words(entry) for entry in in_order], show_progress=False)

    def scores(query: Query, mask: list[bool]) -> Array:
        asked = words(query.act.text)
        found: Array = ranker.get_scores(asked, weight_mask=np.array(mask)) if asked else np.zeros(len(in_order))
        return found

    return scores, in_order


def _words(entry: Entry) -> list[str]:
    return words(dict(entry.key)["action"])


def _best(entries: Sequence[Entry], scores: Array) -> Found:
    best = np.argsort(-scores, kind="stable")[:K].tolist()
    return [(entries[place].entry_id, float(scores[place])) for place in best]


def where(entries: Sequence[Entry]) -> Search:
    """SQLite FTS5 over the words of the action, with the lineages in a WHERE clause."""
    in_order = sorted(entries, key=lambda entry: entry.entry_id)
    table = sqlite3.connect(":memory:")
    table.execute("CREATE VIRTUAL TABLE entry USING fts5 (words, lineage UNINDEXED, tokenize = 'ascii')")
    rows = [(place, _tokens(_words(entry), " "), entry.lineages[0]) for place, entry in enumerate(in_order)]
    table.executemany("INSERT INTO entry (rowid, words, lineage) VALUES (?, ?, ?)", rows)

    def search(query: Query, lineages: frozenset[str]) -> Found:
        asked = _tokens(dict.fromkeys(words(query.act.text)), " OR ")
        if not asked:
            return []
        found = table.execute(
            f"SELECT rowid, -bm25(entry) FROM entry WHERE entry MATCH ? AND lineage NOT IN ({','.join('?' * len(lineages))}) "
            f"ORDER BY bm25(entry), rowid LIMIT {K}",
            (asked, *sorted(lineages)),
        )
        return [(in_order[place].entry_id, score) for place, score in found]

    return search


def _tokens(found: Iterable[str], between: str) -> str:
    """Each word in hex, so that a tokenizer sees the very words that the others see."""
    return between.join(f"w{word.encode().hex()}" for word in found)


RANKERS: dict[str, Callable[[Sequence[Entry]], Search]] = {
    "view": view,
    "weight mask": weight_mask,
    "filter after": filter_after,
    "where": where,
}


class Case(NamedTuple):
    """Lineages that are left out, and the entries that are asked about: theirs."""

    left_out: str
    lineages: frozenset[str]


def cases(entries: Sequence[Entry]) -> list[Case]:
    """Each lineage by itself; then 30 % of all together, those whose names have the lowest digests.

    Raises:
        NoEvidence: there are too few lineages to leave any out.
    """
    lineages = sorted({lineage for entry in entries for lineage in entry.lineages})
    if len(lineages) < 4:
        raise NoEvidence(f"{plural(len(lineages), 'lineage')}: 4 or more are needed to leave 30 % of them out")
    some = sorted(lineages, key=lambda lineage: digest_of(lineage.encode()))[: round(SHARE * len(lineages))]
    return [*(Case("one lineage", frozenset({each})) for each in lineages), Case("30 % of lineages", frozenset(some))]


def compare(
    entries: Sequence[Entry], queries: Mapping[str, Query], rankers: Sequence[str] = tuple(RANKERS)
) -> pl.DataFrame:
    """One row a case and ranker: how many of its lists are not those of an index rebuilt without the left-out lineages.

    `queries` by entry id.
    """
    found: dict[tuple[str, str], list[int]] = {}
    full = {name: RANKERS[name](entries) for name in rankers}
    for case in cases(entries):
        visible = [entry for entry in entries if case.lineages.isdisjoint(entry.lineages)]
        left = {entry.entry_id for entry in entries} - {entry.entry_id for entry in visible}
        for name in rankers:
            rebuilt, sums = RANKERS[name](visible), found.setdefault((case.left_out, name), [0] * 6)
            for entry_id in sorted(left):
                lists = full[name](queries[entry_id], case.lineages), rebuilt(queries[entry_id], frozenset())
                for place, holds in enumerate(_told(*lists, left)):
                    sums[place] += holds
    return pl.DataFrame([(*names, *sums) for names, sums in found.items()], schema=COMPARED, orient="row")


def _told(excluded: Found, rebuilt: Found, left: set[str]) -> Iterator[bool]:
    """What is counted of one list, in the order of COMPARED."""
    ids, expected = [name for name, _ in excluded], [name for name, _ in rebuilt]
    yield True
    yield ids != expected
    yield ids[:1] != expected[:1]
    yield [score for _, score in excluded] != [score for _, score in rebuilt]
    yield len(ids) < len(expected)
    yield not left.isdisjoint(ids)


def queries_of(lab: Lab) -> tuple[tuple[Entry, ...], dict[str, Query]]:
    """The entries of the current index, and the query that each of them would have been."""
    entries = lab.index().snapshot.entries
    return entries, {each.transition_id: query_of(each) for each in lab.corpus.transitions}


def law_2(traces: Path) -> list[dict[str, Any]]:
    """The share of lists that an exclusion changes: of a view, which may change none; the peers stand beside it."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "lab")
        lab.import_traces(traces)
        entries, queries = queries_of(lab)
    names = [name for name in RANKERS if name in ("view", "where") or "bm25s" in versions("bm25s")]
    table = compare(entries, queries, names)
    made = [_figure(rows) for rows in table.partition_by("left_out", maintain_order=True)]
    return (
        made if len(names) == len(RANKERS) else [*made, left_out("law 2", "top-10 lists that a mask changes", "bm25s")]
    )


def _figure(rows: pl.DataFrame) -> dict[str, Any]:
    told = {row["ranker"]: row for row in rows.iter_rows(named=True)}
    ours = told.pop("view")
    return figure(
        "law 2",
        f"share of top-10 lists whose entries or scores differ from a rebuilt index, {ours['left_out']} left out",
        max(ours["list_differs"], ours["scores_differ"]) / ours["lists"],
        "<= 0",
        rounds=ours["lists"],
        lists_that_peers_change={name: row["list_differs"] for name, row in told.items()},
        versions=versions("bm25s", "numpy") | {"sqlite": sqlite3.sqlite_version},
    )


def plot_compared(table: pl.DataFrame, *, mode: Mode = "light") -> Finding:
    """How many lists each ranker changes: a `compare` frame, a panel a case."""
    panels, title = table.partition_by("left_out", maintain_order=True), _title(table)
    lines = wrap(title, TITLE_WIDTH)
    top = 66 + 21 * len(lines)
    figure = go.Figure(
        layout={
            "template": template(mode),
            "height": top + 300,
            "margin": {"l": 140, "t": top, "b": 48},
            "bargap": 0.35,
        }
    )
    for place, rows in enumerate(panels):
        _draw(figure, rows, place, mode)
    counts = " and ".join(number(rows["lists"][0]) for rows in panels)
    kicker = f"Each list against an index rebuilt on what is visible · n = {counts} lists of {K}"
    for text, above, points in (
        (kicker, top - 8, 12),
        (f"<b>{'<br>'.join(lines)}</b>", top - 26, 16),
    ):
        figure.add_annotation(
            xref="paper", yref="paper", x=0, y=1, xshift=8 - 140, yshift=above, xanchor="left", yanchor="top",
            align="left", text=text, showarrow=False, borderpad=0, font={"size": points},
        )  # fmt: skip
    figure.update_layout(meta={"title": title})
    return Finding(title, _sentence(panels), figure, table)


def _draw(figure: go.Figure, rows: pl.DataFrame, place: int, mode: Mode) -> None:
    """One case, below the one before: a bar a ranker, its count beside it."""
    hue, told, axis = PALETTE[mode], list(rows.iter_rows(named=True)), "" if place == 0 else str(place + 1)
    figure.add_bar(
        orientation="h",
        x=[row["list_differs"] / row["lists"] for row in told],
        y=[NAMES[row["ranker"]] for row in told],
        yaxis=f"y{axis}",
        marker={"color": [hue["observed" if row["ranker"] == "view" else "leak"] for row in told]},
        text=[_count(row) for row in told],
        textposition="outside",
        cliponaxis=False,
        hoverinfo="skip",
    )
    figure.update_layout(
        {
            f"yaxis{axis}": {"domain": DOMAINS[place], "autorange": "reversed"},
            "xaxis": {
                "range": [0, 1.4], "tickvals": [0, 0.5, 1], "tickformat": ".0%", "anchor": f"y{axis}",
                "title": {"text": "share of lists that differ from those of the rebuilt index"},
            },
        }
    )  # fmt: skip
    figure.add_annotation(
        xref="paper", yref="paper", x=0, y=DOMAINS[place][1], xanchor="left", yanchor="bottom", showarrow=False, borderpad=0,
        text=f"{told[0]['left_out']} left out", font={"size": 12, "color": hue["muted"]},
    )  # fmt: skip


def _count(row: Mapping[str, Any]) -> str:
    return f" {number(row['list_differs'])} of {number(row['lists'])}" + (", shorter" if row["shorter"] else "")


def _title(table: pl.DataFrame) -> str:
    first = {row["ranker"]: row for row in table.iter_rows(named=True) if row["left_out"] == table["left_out"][0]}
    ours = int(
        table.filter(pl.col("ranker") == "view").select("list_differs", "scores_differ").sum().sum_horizontal()[0]
    )
    peers = [first[name] for name in ("weight mask", "where") if name in first]
    said = " and ".join(f"{number(row['list_differs'])}" for row in peers)
    view = "a view that counts anew changes none" if not ours else f"✗ a view changes {number(ours)} lists or scores"
    return f"With one lineage left out, filters over finished statistics change {said} of {peers[0]['lists']} top-10 lists; {view}"


def _sentence(panels: Sequence[pl.DataFrame]) -> str:
    said = []
    for rows in panels:
        told = [f"{NAMES[row['ranker']]} {number(row['list_differs'])}" for row in rows.iter_rows(named=True)]
        short = [
            f"{NAMES[row['ranker']]} in {number(row['shorter'])}"
            for row in rows.iter_rows(named=True)
            if row["shorter"]
        ]
        said.append(
            f"With {rows['left_out'][0]} left out, of {number(rows['lists'][0])} lists of {K} differ: {', '.join(told)}; "
            f"shorter lists: {', '.join(short) or 'none'}."
        )
    return " ".join(said)
