"""The digested table of lineages, families and the fit / held-out split, and which table of a workspace is current.

- The split ranks families by sha256(seed, family) and holds out a share of them, whole. One family cannot be split.
- A table names the evidence that it was made from. After an import it is made again with its own parameters: known traces
  keep their side, a family that now has a held-out member is held out whole, and what changed sides is named in `united`.
- An index that was built with an earlier table is stale.

Not covered: what a split proves. It keeps stated relatives apart, it does not show that the rest is independent.
"""

from collections import Counter
from fractions import Fraction
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import polars as pl

from experiential_lab.evidence.corpus import Corpus, without_source
from experiential_lab.evidence.lineage import families_of, lineages_of, sweep
from experiential_lab.evidence.trace import Trace
from experiential_lab.records import SAFE_INTEGER, NoEvidence, Record, UsageError
from experiential_lab.store import Store

KIND = "lineage_table"
WARNING = "one family holds {:.0%} of the traces: what is held out may be that family alone, and no interval is worth its name"
SWEEP = {
    "threshold": pl.Float64,
    "families": pl.Int64,
    "largest_family_share": pl.Float64,
    "traces_with_relatives": pl.Int64,
}
Side = Literal["fit", "held_out"]


class LineageRow(Record, kw_only=True):
    trace_id: str
    lineage: str
    family: str
    split: Side


class LineageTable(Record, kw_only=True):
    """Lineage, family and split of every trace, and how they were made."""

    threshold: str
    """Jaccard of word 3-shingles, as a decimal."""
    held_out: str
    """The share of families that is held out, as a decimal."""
    seed: int
    rows: tuple[LineageRow, ...]
    """In order of trace id."""
    united: tuple[str, ...] = ()
    """Lineages that were `fit` before and are held out now, because later evidence put them into a held-out family."""

    def of(self) -> dict[str, LineageRow]:
        """{trace id: row}"""
        return {row.trace_id: row for row in self.rows}

    def summary(self) -> dict[str, Any]:
        """The counts of the command line contract; `fit` and `held_out` count families."""
        sides = {row.family: row.split for row in self.rows}
        largest = max(Counter(row.family for row in self.rows).values())
        return {
            "families": len(sides),
            "lineages": len({row.lineage for row in self.rows}),
            "fit": sum(side == "fit" for side in sides.values()),
            "held_out": sum(side == "held_out" for side in sides.values()),
            "largest_family_share": round(largest / len(self.rows), 4),
            "threshold": float(Fraction(self.threshold)),
            "traces": len(self.rows),
            "united": list(self.united),
            "trace_level_leak": self.trace_level_leak(),
            "warnings": [WARNING.format(largest / len(self.rows))] if 2 * largest > len(self.rows) else [],
        }

    def trace_level_leak(self) -> dict[str, int]:
        """What a split by single traces would leak: how many of its held-out traces would have a relative among the fit ones.

        The traces are ranked by sha256(seed, trace) and as many are held out as here.
        """
        wanted = sum(row.split == "held_out" for row in self.rows)
        ranked = sorted(self.rows, key=lambda row: _rank(self.seed, row.trace_id))
        fit = {row.family for row in ranked[wanted:]}
        return {"held_out_traces": wanted, "with_family_in_fit": sum(row.family in fit for row in ranked[:wanted])}


class Current(NamedTuple):
    """The table that holds for a workspace now."""

    digest: str
    table: LineageTable
    evidence: str
    """Digest of the evidence that it was made from."""


def current_split(store: Store) -> Current | None:
    """The current table; None before the first split."""
    row = store.latest("split_made")
    if row is None:
        return None
    digest = str(row.fields["artifact"])
    if digest in store.forgotten():
        return None
    return Current(digest, store.load(digest, KIND, LineageTable), store.inputs_of(digest)["evidence"])


def make_split(
    store: Store, corpus: Corpus, *, threshold: float | str = "0.9", held_out: float | str = "0.3", seed: int = 0
) -> Current:
    """A new table for the current evidence; it becomes the current one. Raises as `split_families` does."""
    return _keep(store, corpus, split_families(corpus.traces, threshold=threshold, held_out=held_out, seed=seed))


def remake_split(store: Store, corpus: Corpus) -> Current | None:
    """The current table, made again with its own parameters when the evidence is another; None when nothing was split yet."""
    current = current_split(store)
    if current is None or current.evidence == corpus.digest:
        return current
    old = current.table
    table = split_families(corpus.traces, threshold=old.threshold, held_out=old.held_out, seed=old.seed, earlier=old)
    return _keep(store, corpus, table)


def forget_source(store: Store, digest: str, *, why: str) -> tuple[str, ...]:
    """Removes a source and all that was made from it; evidence and split are made of the rest. Returns what is gone.

    What needed the source is Unverifiable from then on: its receipts, and every earlier index. Raises as `without_source`.
    """
    corpus = without_source(store, digest)
    if corpus.traces:
        remake_split(store, corpus)
    return store.forget(digest, why=why)


def _keep(store: Store, corpus: Corpus, table: LineageTable) -> Current:
    digest = store.keep(KIND, table, inputs={"evidence": corpus.digest})
    store.append("split_made", artifact=digest)
    return Current(digest, table, corpus.digest)


def _rank(seed: int, name: str) -> bytes:
    return sha256(f"{seed}:{name}".encode()).digest()


def sweep_frame(traces: list[Trace]) -> pl.DataFrame:
    """Families at each threshold from 0.30 to 1.00: how many, the share of the largest, and how many traces have a relative."""
    lineages = lineages_of(traces)
    thresholds = [Fraction(hundredths, 100) for hundredths in range(30, 101, 5)]
    rows = []
    for threshold, families in reversed(sweep(traces, lineages, thresholds)):
        sizes = Counter(families[lineages[trace.trace_id]] for trace in traces)
        related = sum(size for size in sizes.values() if size > 1)
        rows.append((float(threshold), len(sizes), round(max(sizes.values()) / len(traces), 4), related))
    return pl.DataFrame(rows, schema=SWEEP, orient="row")


def ratio(value: float | str | Fraction, name: str, *, at_most_one: bool) -> Fraction:
    """A share or threshold as an exact number.

    Raises:
        UsageError: it is no number in (0, 1), or (0, 1] where `at_most_one`.
    """
    try:
        exact = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{name} must be a number, got {value!r}") from None
    if not 0 < exact <= 1 or (exact == 1 and not at_most_one):
        raise UsageError(f"{name} must be above 0 and {'at most' if at_most_one else 'below'} 1, got {value}")
    return exact


def split_families(
    traces: list[Trace],
    *,
    threshold: float | str = "0.9",
    held_out: float | str = "0.3",
    seed: int = 0,
    earlier: LineageTable | None = None,
) -> LineageTable:
    """The table of lineages, families and split.

    Args:
        earlier: the table before more evidence came. Its lineages keep their side; a family with a held-out one is held out.

    Raises:
        UsageError: a threshold or share outside its range.
        NoEvidence: fewer than two families: nothing can be held out.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or abs(seed) > SAFE_INTEGER:
        raise UsageError(f"the seed is {seed!r}; it must be an integer below 2**53")
    limit = ratio(threshold, "the threshold", at_most_one=True)
    share = ratio(held_out, "the held-out share", at_most_one=False)
    lineages = lineages_of(traces)
    families = families_of(traces, lineages, limit)
    names = sorted(set(families.values()))
    if len(names) < 2 and earlier is None:
        raise NoEvidence(
            f"Cannot split: {len(names)} family, needs 2; import traces of other tasks, or raise the threshold"
        )
    before = {row.trace_id: row.split for row in earlier.rows} if earlier else {}
    side: dict[str, Side] = {}
    for trace_id, split in before.items():
        if trace_id in lineages and side.get(families[lineages[trace_id]]) != "held_out":
            side[families[lineages[trace_id]]] = split
    wanted = max(1, min(len(names) - 1, int(share * len(names) + Fraction(1, 2))))
    wanted -= sum(chosen == "held_out" for chosen in side.values())
    for family in sorted(names, key=lambda name: _rank(seed, name)):
        if family not in side:
            side[family] = "held_out" if wanted > 0 else "fit"
            wanted -= 1
    rows = [
        LineageRow(trace_id=trace_id, lineage=lineage, family=families[lineage], split=side[families[lineage]])
        for trace_id, lineage in sorted(lineages.items())
    ]
    united = {row.lineage for row in rows if row.split == "held_out" and before.get(row.trace_id) == "fit"}
    return LineageTable(
        threshold=str(threshold), held_out=str(held_out), seed=seed, rows=tuple(rows), united=tuple(sorted(united))
    )
