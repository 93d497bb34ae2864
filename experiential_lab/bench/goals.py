"""Which goal is measured by which functions. Each takes the trace file that it may measure on, and gives its figures."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from experiential_lab.bench import embedding, evidence, exclusion, first_walk, quality, receipts, retrieval
from experiential_lab.records import UsageError

Measure = Callable[[Path], list[dict[str, Any]]]
GOALS: dict[str, tuple[Measure, ...]] = {
    "law 2": (exclusion.law_2,),
    "1": (embedding.dense,),
    "3": (embedding.kernels,),
    "4": (retrieval.exclusion,),
    "5c": (quality.ranker,),
    "6": (embedding.hashing,),
    "7": (evidence.framing, evidence.importing, evidence.memory),
    "8": (evidence.digests,),
    "10": (first_walk.step,),
    "11": (receipts.receipts,),
    "12": (retrieval.ten_thousand, first_walk.query),
}


def measured(goals: Iterable[str], traces: Path) -> Iterator[dict[str, Any]]:
    """The figures of those goals, or of all when none is named.

    Raises:
        UsageError: a goal that is not measured here.
    """
    wanted = list(goals) or list(GOALS)
    for goal in wanted:
        if goal not in GOALS:
            raise UsageError(f"no bench is called {goal!r}; there are {', '.join(GOALS)}")
    for goal in wanted:
        for measure in GOALS[goal]:
            yield from measure(traces)
