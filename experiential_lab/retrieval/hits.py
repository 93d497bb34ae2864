"""What one search gave back, as a sequence of hits with its support and its receipt.

- Hits are in order of rank; `entries` holds what each row stands for, with the observation.
- `use` and `no_use` make the record that a result was, or was not, used. Nothing is written until `keep`.
- Trace text is escaped wherever it becomes HTML.

Not covered: whether anything should be predicted from these. `support` says how near the precedents are, no more.
"""

import html
from collections.abc import Sequence
from typing import Any, overload

import polars as pl

from experiential_lab.evidence.secrets import masked
from experiential_lab.records import FREE, Cost, UsageError
from experiential_lab.retrieval.kept import keep
from experiential_lab.retrieval.receipts import (
    Consumer,
    Disposition,
    DispositionReceipt,
    Hit,
    Relation,
    RetrievalReceipt,
    UseReceipt,
    no_use,
    use,
    verify_use,
)
from experiential_lab.retrieval.support import Label, Rule
from experiential_lab.retrieval.views import Entry
from experiential_lab.store import Store

_FRAME = {
    "rank": pl.Int64,
    "id": pl.String,
    "lineage": pl.String,
    "position": pl.Int64,
    "score": pl.Int64,
    "part_action": pl.Int64,
    "part_task": pl.Int64,
    "part_recent": pl.Int64,
    "pairing": pl.String,
    "action": pl.String,
    "observation": pl.String,
}


class Hits(Sequence[Hit]):
    """What one search gave back, best first, with its support and its receipt. It never changes."""

    def __init__(
        self,
        receipt: RetrievalReceipt,
        entries: tuple[Entry, ...],
        support: Label,
        rule: Rule,
        *,
        cost: Cost = FREE,
        store: Store | None = None,
    ) -> None:
        self.receipt = receipt
        self.cost = cost
        """Of the retrieval: a query may be embedded by a provider."""
        self.entries = entries
        """The hit entries, in order of rank."""
        self.support = support
        self.rule = rule
        self._store = store

    def __repr__(self) -> str:
        return f"<{len(self)} hits, support {self.support} ({self.rule}), receipt {self.receipt.receipt_digest[7:15]}>"

    def __len__(self) -> int:
        return len(self.receipt.results)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.receipt.results[place]

    @property
    def attributes(self) -> dict[str, str]:
        """What a span or a log row says of this retrieval."""
        return {
            "xl.snapshot.digest": self.receipt.visibility.snapshot_digest,
            "xl.receipt.digest": self.receipt.receipt_digest,
        }

    def use(self, rank: int, relation: Relation, consumer: Consumer) -> UseReceipt:
        """The record that the hit of `rank` was given to `consumer`. Raises UsageError: no such rank or relation."""
        return use(self.receipt, rank, relation=relation, consumer=consumer)

    def no_use(self, rank: int, reason: str, *, disposition: Disposition = "no_use") -> DispositionReceipt:
        """The record that the hit of `rank` was not used, and why. Raises UsageError: no such rank, or no reason."""
        return no_use(self.receipt, rank, reason=reason, disposition=disposition)

    def keep(self, *uses: UseReceipt | DispositionReceipt, store: Store | None = None) -> str:
        """Store the receipt, then `uses` of it; return the digest that opens it again.

        `store`: None is the workspace that the index was loaded from.

        Raises:
            UsageError: the index was only built, and no store is given; or the workspace cannot be written.
            IntegrityError: a use belongs to another retrieval, or the inventory of the receipt is not in that store.
        """
        store = store or self._store
        if store is None:
            raise UsageError("these hits come from an index of no workspace: name one, hits.keep(store=lab.store)")
        for each in uses:
            verify_use(each, self.receipt)
        for receipt in (self.receipt, *uses):
            keep(store, receipt)
        return self.receipt.receipt_digest

    def frame(self) -> pl.DataFrame:
        """One row a hit, in order of rank. The part of a field that does not rank is null: vectors have no fields."""
        rows = [_frame_row(hit, entry) for hit, entry in zip(self, self.entries, strict=True)]
        return pl.DataFrame(rows, schema=_FRAME, orient="row")

    def _repr_html_(self) -> str:
        """A table for notebooks. Trace text is escaped, and clipped by CSS."""
        cells = [_html_row(hit, entry) for hit, entry in zip(self, self.entries, strict=True)]
        head = "".join(f"<th>{name}</th>" for name in ("rank", "score", "pairing", "action", "observation"))
        caption = f"support {self.support} ({self.rule}), {self.receipt.visibility.visible_count} entries visible"
        return f"<table><caption>{caption}</caption><tr>{head}</tr>{''.join(cells)}</table>"


def _frame_row(hit: Hit, entry: Entry) -> tuple[Any, ...]:
    parts, key = dict(hit.parts), dict(entry.key)
    shares = (parts.get("action"), parts.get("task"), parts.get("recent"))
    lineage = ", ".join(hit.row.lineages)
    return (
        hit.rank,
        hit.row.entry_id,
        lineage,
        hit.position,
        hit.score,
        *shares,
        entry.pairing,
        key["action"],
        entry.value,
    )


def _html_row(hit: Hit, entry: Entry) -> str:
    clip = "max-width:36em;overflow:hidden;text-overflow:ellipsis;white-space:nowrap"
    texts = (dict(entry.key)["action"], entry.value)
    cells = "".join(f'<td style="{clip}">{html.escape(masked(text))}</td>' for text in texts)
    return f"<tr><td>{hit.rank}</td><td>{hit.score}</td><td>{html.escape(entry.pairing)}</td>{cells}</tr>"
