"""Measure the first walk: `python -m experiential_lab.bench TRACES`. One JSON list on stdout, one object a goal.

Ratios are measured in one process, both sides in turn, in CPU time, as the median of all rounds: absolute times on a shared
machine say little. Nothing here is asserted; a goal that is missed says so.

- import: a bare `orjson.loads` of the file against all that an import computes from it (frames, spans, pairing, digests, and
  every blob that is written, without the disk); at least 0.10.
- query: one search with the default ranker, its own lineage out, with support and receipt; median below 2 ms of CPU.
- step: one session step without its search; median below 1 ms.
"""

import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import process_time_ns
from typing import Any

from experiential_lab.evidence.corpus import build_evidence
from experiential_lab.evidence.sources import Declared, read_file
from experiential_lab.lab import Lab
from experiential_lab.records import UsageError
from experiential_lab.retrieval.grounding import around, query_of
from experiential_lab.retrieval.index import Index
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.views import Exclusion
from experiential_lab.world.session import SessionError

ROUNDS = 15
ASKED = 200


def main(traces: Path) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "lab")
        lab.import_traces(traces)
        lab.split()
        return [_import(traces), _query(lab), _step(lab)]


def _import(traces: Path) -> dict[str, Any]:
    import orjson

    data = traces.read_bytes()
    ratios = []
    for round_ in range(ROUNDS + 1):
        bare = _cpu(lambda: orjson.loads(data))
        ours = _cpu(lambda: build_evidence([read_file(traces, Declared())], None))
        if round_:  # the first one warms the caches
            ratios.append(bare / ours)
    return _goal("7", "import against a bare orjson parse", "ratio", statistics.median(ratios), ">= 0.10", ROUNDS)


def _query(lab: Lab) -> dict[str, Any]:
    index = lab.index()
    steps = lab.corpus.transitions[:: max(1, len(lab.corpus.transitions) // ASKED)]
    spent = []
    for step in steps:
        query, excluded = query_of(step), around(index, step.transition_id, "lineage")
        spent.append(_cpu(partial(_ask, index, query, excluded)) / 1e6)
    return _goal("12", "one query, own lineage out", "ms", statistics.median(spent), "< 2", len(steps))


def _ask(index: Index, query: Query, excluded: tuple[Exclusion, ...]) -> object:
    return index.view("all", exclude=excluded).nearest(query)


def _step(lab: Lab) -> dict[str, Any]:
    said = [each.action.text for each in lab.corpus.transitions if each.action.tool is None and each.action.text]
    spent = []
    for message in said[:ASKED]:
        with lab.session("Help me.") as session:
            try:
                economics = session.step(message).economics
            except SessionError as refused:
                economics = refused.economics
            spent.append(sum(part["latency_ns"] for name, part in economics.items() if name != "retrieval") / 1e6)
    return _goal("10", "one session step without its search", "ms", statistics.median(spent), "< 1", len(spent))


def _cpu(work: Callable[[], object]) -> int:
    begin = process_time_ns()
    work()
    return process_time_ns() - begin


def _goal(goal: str, name: str, unit: str, value: float, bar: str, rounds: int) -> dict[str, Any]:
    sign, limit = bar.split()
    return {
        "goal": goal,
        "name": name,
        unit: round(value, 3),
        "bar": bar,
        "holds": value >= float(limit) if sign == ">=" else value < float(limit),
        "rounds": rounds,
        "versions": {name: version(name) for name in ("msgspec", "numpy", "orjson")}
        | {"python": platform.python_version()},
    }


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_file():
        raise UsageError("name one trace file: python -m experiential_lab.bench TRACES")
    print(json.dumps(main(Path(sys.argv[1])), indent=1))
