"""Measure receipts over 10^2, 10^4 and 10^6 visible entries: `xlab bench 11`, or `python -m experiential_lab.bench.receipts FILE`.

One JSON document on stdout, and in FILE when it is named: the CPU of each kind of work at each size, and the bars that it
is held to, with what was found. Nothing here is asserted; a bar that is missed says so.

- `reference`: the receipt refers to its snapshot. `embedded`: the same receipt with the whole inventory in it, written and
  digested. Both have ten results with every field, and snippets of 80 characters.
- A ratio is the median over all rounds of the ratio within a round; sizes and sides are measured in turn, their order
  rotated, in CPU time of one thread. What takes seconds is measured fewer times, and its row says how often.
- Entries are synthetic and exist as rows alone. Bytes do not depend on the machine: `bytes_frame` makes them anew.

Not covered: the search itself, disks, and other shapes of rows. CPU was measured on one machine, which the file names by its
versions only.
"""

import gc
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from time import process_time_ns
from typing import Any

import polars as pl

from experiential_lab.bench import figure
from experiential_lab.records import Record, UsageError, canonical_bytes, digest
from experiential_lab.retrieval.ranking import RankerConfig
from experiential_lab.retrieval.receipts import SNIPPET, Hit, Query, RetrievalReceipt, join, seal, verify_durable
from experiential_lab.retrieval.views import RECENT_LIMIT, Artifact, Exclusion, Row, Snapshot, View
from experiential_lab.store import Store

SIZES = (100, 10_000, 1_000_000)
FORMS = ("reference", "embedded")
BYTES = {"visible": pl.Int64, "form": pl.String, "bytes": pl.Int64}
CPU = {"visible": pl.Int64, "work": pl.String, "cpu_ns": pl.Int64, "rounds": pl.Int64}
K = 10
ROUNDS = 21
SLOW_ROUNDS = 3  # of a durable verification: seconds each
LOOPS = 50  # of what takes microseconds, so that the clock does not count

_LINEAGE = 5  # entries of one lineage


class Embedded(Record, kw_only=True):
    """What a receipt is when it holds its inventory."""

    receipt: RetrievalReceipt
    inventory: tuple[Row, ...]


def synthetic(count: int) -> Snapshot:
    """A snapshot of `count` rows with every field, as wide as real ones, all of them fit."""
    rows, digests, hashed, size = [], [], sha256(), 0
    for row in map(_row, range(count)):  # one spelling a row, for its digest and for the artifact's
        line = canonical_bytes(row)
        rows.append(row)
        digests.append(sha256(line).digest())
        hashed.update(line + b"\n")
        size += len(line) + 1
    snapshot = Snapshot(rows, rows_digest=b"".join(digests))
    name = f"sha256:{hashed.hexdigest()}"
    snapshot.artifact = Artifact(uri=f"blob:{name}", digest=name, byte_length=size)
    return snapshot


def _row(number: int) -> Row:
    return Row(
        entry_id=f"{number // 12:016x}/{number % 12:04d}",
        kind="transition",
        lineages=(f"{number // _LINEAGE:016x}",),
        trace_id=f"{number // 12:016x}",
        family=f"{number // 60:016x}",
        split="fit",
        path=f"chat:{number // 6_000:08x}",
        source_ids=(f"sha256:{number // 6_000:064x}",),
        structure=f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}",
        observation_kind="tool_result",
        content=f"sha256:{(number + 1) * 0x9E3779B97F4A7C15**4 % 2**256:064x}",
    )


def receipt_of(snapshot: Snapshot, exclude: Sequence[Exclusion] = ()) -> RetrievalReceipt:
    """The receipt of one retrieval of ten rows over the whole width of `snapshot`, as a search would leave it."""
    view = View(snapshot, "all", exclude)
    places = [_LINEAGE + (len(snapshot.rows) - _LINEAGE) * rank // K for rank in range(K)]
    words = "lookup_order returned the order, which was shipped and is late; the customer wants it now "
    return seal(
        RetrievalReceipt(
            schema=1,
            query=Query(
                tool="lookup_order", arguments='{"order_id": "W-24263"}', task="Where is my order?", recent=words
            ),
            k=K,
            retriever=RankerConfig(recent_limit=RECENT_LIMIT),
            visibility=view.visibility(snapshot.artifact),
            results=tuple(_hit(rank, place, snapshot, words) for rank, place in enumerate(places, 1)),
            attributes=(("rule", "tool"), ("support", "A")),
        )
    )


def _hit(rank: int, place: int, snapshot: Snapshot, words: str) -> Hit:
    parts = (("action", 1_000_000 - rank), ("task", 1_000), ("recent", 1_000))
    return Hit(
        rank=rank,
        position=place,
        row=snapshot.rows[place],
        score=1_002_000 - rank,
        parts=parts,
        snippet=words[:SNIPPET],
        reasons=(
            "pairing: explicit_id",
            "eligible: an entry, not invalidated, outside 1 exclusions",
            "relation: same tool",
        ),
    )


def own_lineage(snapshot: Snapshot) -> tuple[Exclusion, ...]:
    """What a step of the first lineage must not see."""
    return (Exclusion(level="lineage", value=snapshot.rows[0].lineages[0]),)


def bytes_frame(snapshots: Sequence[Snapshot]) -> pl.DataFrame:
    """The bytes of one receipt in both forms, over each snapshot. The embedded one is summed up, never made."""
    rows = []
    for snapshot in snapshots:
        receipt = receipt_of(snapshot, own_lineage(snapshot))
        around = len(canonical_bytes(Embedded(receipt=receipt, inventory=())))
        rows.append((len(snapshot.rows), "reference", len(canonical_bytes(receipt))))
        rows.append((len(snapshot.rows), "embedded", around + snapshot.artifact.byte_length - 1))  # commas for newlines
    return pl.DataFrame(rows, schema=BYTES, orient="row")


def cpu_frame(document: dict[str, Any]) -> pl.DataFrame:
    """The measured CPU of a document that `main` made."""
    return pl.DataFrame(document["cpu"], schema=CPU)


def main() -> dict[str, Any]:
    """Every measurement, and the bars of goal 11."""
    snapshots = [synthetic(size) for size in SIZES]
    gc.collect()
    gc.freeze()  # a collection that walks a million rows would fall on any side by chance
    sizes = bytes_frame(snapshots)
    fast = _fast(snapshots)
    slow = _slow(snapshots)
    durable = {("durable", len(snapshot.rows)): _durable(snapshot) for snapshot in snapshots}
    spent = fast | {side: times for side, times in slow.items() if side[0] == "embedded"} | durable
    rows = [
        {"visible": size, "work": work, "cpu_ns": round(statistics.median(times)), "rounds": len(times)}
        for (work, size), times in spent.items()
    ]
    return {
        "goals": [*_bytes_goals(sizes), *_cpu_goals(fast, slow)],
        "cpu": sorted(rows, key=lambda row: (row["work"], row["visible"])),
        "versions": {"msgspec": version("msgspec"), "python": platform.python_version()},
    }


Side = tuple[str, int]  # the work and the visible entries


def _fast(snapshots: Sequence[Snapshot]) -> dict[Side, list[float]]:
    sides: dict[Side, Callable[[], object]] = {}
    for snapshot in snapshots:
        size, receipt = len(snapshot.rows), receipt_of(snapshot, own_lineage(snapshot))
        sides["create", size] = partial(receipt_of, snapshot)
        sides["create, lineage out", size] = partial(receipt_of, snapshot, own_lineage(snapshot))
        sides["join", size] = partial(join, receipt, snapshot)
    return _rotated(sides, LOOPS)


def _slow(snapshots: Sequence[Snapshot]) -> dict[Side, list[float]]:
    sides: dict[Side, Callable[[], object]] = {}
    for snapshot in snapshots:
        sides["embedded", len(snapshot.rows)] = partial(_embed, snapshot)
        sides["create", len(snapshot.rows)] = partial(_often, partial(receipt_of, snapshot))
    return _rotated(sides, 1)


def _embed(snapshot: Snapshot) -> str:
    return digest(Embedded(receipt=receipt_of(snapshot), inventory=snapshot.rows))


def _often(work: Callable[[], object]) -> None:
    for _ in range(LOOPS):
        work()


def _rotated(sides: dict[Side, Callable[[], object]], loops: int) -> dict[Side, list[float]]:
    """CPU nanoseconds of one call, a round an item. The first round warms the caches and is not counted."""
    spent: dict[Side, list[float]] = {side: [] for side in sides}
    names = list(sides)
    for number in range(ROUNDS + 1):
        turn = number % len(names)
        for side in names[turn:] + names[:turn]:
            begin = process_time_ns()
            for _ in range(loops):
                sides[side]()
            spent[side].append((process_time_ns() - begin) / loops)
    return {side: times[1:] for side, times in spent.items()}


def _durable(snapshot: Snapshot) -> list[float]:
    """A cold verification: the inventory is read, digested, decoded and joined."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "lab", create=True)
        store.put(snapshot.inventory())
        receipt, times = receipt_of(snapshot), []
        for _ in range(SLOW_ROUNDS):
            begin = process_time_ns()
            verify_durable(receipt, store)
            times.append(float(process_time_ns() - begin))
    return times


def _bytes_goals(sizes: pl.DataFrame) -> list[dict[str, Any]]:
    of = {(visible, form): count for visible, form, count in sizes.iter_rows()}
    small, large = SIZES[0], SIZES[-1]
    return [
        _goal("bytes at 10^6 against 10^2", of[large, "reference"] / of[small, "reference"], "<= 1.02", 1),
        _goal("bytes of ten results", of[large, "reference"], "<= 6500", 1),
        _goal("bytes, embedded against reference", of[large, "embedded"] / of[large, "reference"], ">= 50000", 1),
    ]


def _cpu_goals(fast: dict[Side, list[float]], slow: dict[Side, list[float]]) -> list[dict[str, Any]]:
    small, large = SIZES[0], SIZES[-1]
    flat = [
        _goal(f"CPU of {work} at 10^6 against 10^2", _ratio(fast[work, large], fast[work, small]), "<= 1.10")
        for work in ("create", "create, lineage out", "join")
    ]
    excluded = _ratio(fast["create, lineage out", large], fast["create", large])
    embedded = _ratio(slow["embedded", large], slow["create", large]) * LOOPS
    return [
        *flat,
        _goal("CPU with a lineage out against without", excluded, "<= 1.25"),
        _goal("CPU, embedded against reference", embedded, ">= 10000"),
    ]


def _ratio(above: Sequence[float], below: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def _goal(name: str, ratio: float, bar: str, rounds: int = ROUNDS) -> dict[str, Any]:
    return figure("11", name, ratio, bar, rounds=rounds)


def receipts(_: Path) -> list[dict[str, Any]]:
    """Goal 11 on made rows; two minutes."""
    goals: list[dict[str, Any]] = main()["goals"]
    return goals


if __name__ == "__main__":
    if len(sys.argv) > 2:
        raise UsageError("name at most one file: python -m experiential_lab.bench.receipts [FILE]")
    text = json.dumps(main(), indent=1) + "\n"
    print(text, end="")
    if len(sys.argv) == 2:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
