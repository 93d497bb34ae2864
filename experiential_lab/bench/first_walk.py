"""Goals 10 and 12 on a trace file: one query, and one session step without its search."""

import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from experiential_lab.bench import cpu_ns, figure
from experiential_lab.lab import Lab
from experiential_lab.retrieval.grounding import around, query_of
from experiential_lab.retrieval.index import Index
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.views import Exclusion
from experiential_lab.world.session import SessionError

ASKED = 200


def query(traces: Path) -> list[dict[str, Any]]:
    """One search with the default ranker, its own lineage out, with support and receipt; ms of CPU."""
    with tempfile.TemporaryDirectory() as folder:
        lab = _lab(Path(folder), traces)
        index = lab.index()
        steps = lab.corpus.transitions[:: max(1, len(lab.corpus.transitions) // ASKED)]
        spent = []
        for step in steps:
            asked, excluded = query_of(step), around(index, step.transition_id, "lineage")
            spent.append(cpu_ns(partial(_ask, index, asked, excluded)) / 1e6)
    return [
        figure("12", "ms of one query on the file, own lineage out", statistics.median(spent), "< 2", rounds=len(spent))
    ]


def _ask(index: Index, asked: Query, excluded: tuple[Exclusion, ...]) -> object:
    return index.view("all", exclude=excluded).nearest(asked)


def step(traces: Path) -> list[dict[str, Any]]:
    """One session step without its search; ms."""
    with tempfile.TemporaryDirectory() as folder:
        lab = _lab(Path(folder), traces)
        lab.split()
        said = [each.action.text for each in lab.corpus.transitions if each.action.tool is None and each.action.text]
        spent = []
        for message in said[:ASKED]:
            with lab.session("Help me.") as session:
                try:
                    economics = session.step(message).economics
                except SessionError as refused:
                    economics = refused.economics
                spent.append(sum(part["latency_ns"] for name, part in economics.items() if name != "retrieval") / 1e6)
    return [
        figure(
            "10", "ms of one session step without its search", statistics.median(spent), "<= 0.25", rounds=len(spent)
        )
    ]


def _lab(folder: Path, traces: Path) -> Lab:
    lab = Lab(folder / "lab")
    lab.import_traces(traces)
    return lab
