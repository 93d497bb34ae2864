"""Goals 4 and 12: what an exclusion costs a query, and 10,000 transitions from build to answer."""

import random
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from experiential_lab.bench import cpu_ns, figure, paired
from experiential_lab.bench.made import made_query, made_snapshot
from experiential_lab.retrieval.index import Index, IndexView, build, load, save
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.views import Exclusion, View
from experiential_lab.store import Store

ASKED = 60


def exclusion(_: Path) -> list[dict[str, Any]]:
    """Goal 4 on 10^5 made entries: a query without its own lineage, and the fit prefix against a mask of the held-out rows."""
    index = build(View(made_snapshot(100_000)))
    chance = random.Random(1)
    queries = [made_query(chance) for _ in range(ASKED)]
    lineages = sorted({row.lineages[0] for row in index.snapshot.rows})
    own = [index.view("all", exclude={chance.choice(lineages)}) for _ in queries]
    whole = index.view("all")
    fit = index.view("fit")
    out = {row.lineages[0] for row in index.snapshot.rows if row.split == "held_out"}
    masked = index.view("all", exclude=[Exclusion(level="lineage", value=each) for each in sorted(out)])
    for view in (whole, fit, masked, *own):
        view.nearest(queries[0])  # statistics are counted once a view
    return [
        figure(
            "4",
            "own lineage out, against all",
            paired(lambda: [_ask(view, query) for view, query in zip(own, queries, strict=True)], _all(whole, queries)),
            "<= 1.10",
        ),
        figure("4", "the fit prefix, against a mask", paired(_all(fit, queries), _all(masked, queries)), "<= 0.9"),
    ]


def _all(view: IndexView, queries: list[Query]) -> Any:
    return lambda: [_ask(view, query) for query in queries]


def _ask(view: IndexView, query: Query) -> object:
    return view.nearest(query)


def ten_thousand(_: Path) -> list[dict[str, Any]]:
    """Goal 12 on made entries; CPU seconds and milliseconds of this machine, not ratios."""
    view = View(made_snapshot(10_000))
    chance = random.Random(1)
    queries = [made_query(chance) for _ in range(5 * ASKED)]
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "lab", create=True)
        digest = save(build(view), store, {})
        built = _seconds(partial(build, view))
        loaded = _seconds(partial(load, store, digest))
        index = load(store, digest)
    return [
        figure("12", "s to build an index of 10,000", built, "< 2"),
        figure("12", "s to load it, verified", loaded, "< 0.5"),
        figure("12", "ms of one query, median", _milliseconds(index, queries), "< 2", rounds=len(queries)),
    ]


def _seconds(work: Any) -> float:
    return statistics.median(cpu_ns(work) for _ in range(15)) / 1e9


def _milliseconds(index: Index, queries: list[Query]) -> float:
    view = index.view("fit")
    view.nearest(queries[0])
    return statistics.median(cpu_ns(partial(_ask, view, query)) for query in queries) / 1e6
