"""What a retrieval could see, what it gave back, and what was used of it: three records, and three ways to check them.

- `verify` proves that a receipt is whole and agrees with itself. It does not prove that any snapshot, row or score exists.
- `join` proves that the rows stand in the given snapshot at the stated places, that none of them was excluded or
  invalidated, and that every exclusion and count is right. It does not prove that these rows rank best.
- `verify_durable` proves the same against the stored inventory, read again. It does not prove more than `join`.

What is consistent and false in query, score, parts, snippet or reasons is found only by `index.replay`, which asks again.
A missing inventory is `Unverifiable`, never a pass and never an empty snapshot; a mismatch raises, with both values.
Put in a prompt is not shown to have had influence: a use says what was given to whom, no more. No receipt holds a time, a
run or an actor, so equal retrievals share one receipt. Receipts are not signed.
"""

import re
from collections.abc import Iterable
from typing import Literal, TypeVar

import msgspec

from experiential_lab.records import IntegrityError, Record, Unverifiable, UsageError, canonical_bytes, digest
from experiential_lab.retrieval.ranking import RankerConfig
from experiential_lab.retrieval.views import (
    Act,
    Row,
    Snapshot,
    Visibility,
    act_of,
    read_inventory,
    row_digest,
)
from experiential_lab.store import Store

Relation = Literal["supports", "contradicts", "extends", "rederives", "background"]
Disposition = Literal["irrelevant", "no_use"]

SNIPPET = 80  # characters of an observation that a receipt repeats

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Query(Record, kw_only=True):
    """What is asked: a message (`action`), or a call (`tool` and `arguments`), in its context. Never an observation."""

    action: str = ""
    task: str | None = None
    recent: str | None = None
    tool: str | None = None
    arguments: str | None = None

    @property
    def act(self) -> Act:
        return act_of(self.action, tool=self.tool, arguments=self.arguments)


class Hit(Record, kw_only=True):
    """One row that came back."""

    rank: int
    """From 1."""
    position: int
    """Row of the snapshot."""
    row: Row
    score: int
    parts: tuple[tuple[str, int], ...]
    """((field, its share of the score), ...)"""
    snippet: str
    """The first characters of the observation, at most SNIPPET."""
    reasons: tuple[str, ...]


class RetrievalReceipt(Record, kw_only=True, tag="retrieval", tag_field="receipt"):
    schema: int
    query: Query
    k: int
    """Asked for; fewer rows come back only when fewer are visible."""
    retriever: RankerConfig
    visibility: Visibility
    results: tuple[Hit, ...]
    attributes: tuple[tuple[str, str], ...] = ()
    receipt_digest: str = ""
    """Digest of this record without this field."""


class Consumer(Record, kw_only=True):
    """Who was given a result."""

    kind: str
    """For example `prompt` or `copy`."""
    uri: str = ""
    digest: str = ""


class UseReceipt(Record, kw_only=True, tag="use", tag_field="receipt"):
    schema: int
    retrieval: str
    """Digest of the retrieval receipt."""
    rank: int
    entry_id: str
    content: str
    relation: Relation
    consumer: Consumer
    receipt_digest: str = ""


class DispositionReceipt(Record, kw_only=True, tag="disposition", tag_field="receipt"):
    """A result that was not used: evidence of no use is not the absence of evidence of use."""

    schema: int
    retrieval: str
    rank: int
    entry_id: str
    content: str
    disposition: Disposition
    reason: str
    receipt_digest: str = ""


Receipt = RetrievalReceipt | UseReceipt | DispositionReceipt
R = TypeVar("R", RetrievalReceipt, UseReceipt, DispositionReceipt)


class Consistent(Record, kw_only=True):
    """The receipt is whole and agrees with itself; nothing else was looked at."""

    receipt: str


class Joined(Record, kw_only=True):
    """Every result was found in the snapshot, visible, at its place."""

    receipt: str
    snapshot: str
    results: int


def seal(receipt: R) -> R:
    """The same receipt with its digest."""
    return msgspec.structs.replace(receipt, receipt_digest=_own_digest(receipt))


def _own_digest(receipt: Receipt) -> str:
    return digest(msgspec.structs.replace(receipt, receipt_digest=""))


def use(receipt: RetrievalReceipt, rank: int, *, relation: Relation, consumer: Consumer) -> UseReceipt:
    """The record that the result of `rank` was given to `consumer`.

    Raises:
        UsageError: there is no such rank.
    """
    hit = _hit(receipt, rank)
    return seal(
        UseReceipt(
            schema=1,
            retrieval=receipt.receipt_digest,
            rank=rank,
            entry_id=hit.row.entry_id,
            content=hit.row.content,
            relation=relation,
            consumer=consumer,
        )
    )


def no_use(
    receipt: RetrievalReceipt, rank: int, *, reason: str, disposition: Disposition = "no_use"
) -> DispositionReceipt:
    """The record that the result of `rank` was not used, and why.

    Raises:
        UsageError: there is no such rank.
    """
    hit = _hit(receipt, rank)
    return seal(
        DispositionReceipt(
            schema=1,
            retrieval=receipt.receipt_digest,
            rank=rank,
            entry_id=hit.row.entry_id,
            content=hit.row.content,
            disposition=disposition,
            reason=reason,
        )
    )


def _hit(receipt: RetrievalReceipt, rank: int) -> Hit:
    if not 1 <= rank <= len(receipt.results):
        raise UsageError(f"rank {rank} is asked for, the retrieval gave ranks 1 to {len(receipt.results)}")
    return receipt.results[rank - 1]


def verify(receipt: Receipt | bytes) -> Consistent:
    """Check form, digest and inner agreement of one receipt, given as a record or as its bytes.

    Raises:
        IntegrityError: it is not what it was made to be; the message names both values.
    """
    receipt = _read(receipt)
    _same("receipt digest", receipt.receipt_digest, _own_digest(receipt))
    _same("schema", receipt.schema, 1)
    if isinstance(receipt, RetrievalReceipt):
        _check_visibility(receipt)
        _check_results(receipt)
    return Consistent(receipt=receipt.receipt_digest)


_DECODER = msgspec.json.Decoder(Receipt)


def _read(receipt: Receipt | bytes) -> Receipt:
    """The receipt as any reader sees it: typed, in canonical form, without floats."""
    try:
        data = receipt if isinstance(receipt, bytes) else canonical_bytes(receipt)
        read: Receipt = _DECODER.decode(data)
    except (ValueError, TypeError) as error:
        raise IntegrityError(f"not a receipt: {error}") from error
    if canonical_bytes(read) != data:
        raise IntegrityError("a receipt is not in canonical form: read it, and write it again with canonical_bytes")
    return read


def _check_visibility(receipt: RetrievalReceipt) -> None:
    seen = receipt.visibility
    order = [(exclusion.level, exclusion.value) for exclusion in seen.excluded]
    _same("order of exclusions", order, sorted(set(order)))
    for name, value in (("snapshot digest", seen.snapshot_digest), *_artifact_digests(seen)):
        if not _DIGEST.fullmatch(value):
            raise IntegrityError(f"{name} is {value!r}, no sha256 digest")
    if seen.artifact:
        _same("uri of the artifact", seen.artifact.uri, f"blob:{seen.artifact.digest}")
    if not 0 <= seen.visible_count <= seen.snapshot_count:
        raise IntegrityError(f"{seen.visible_count} rows visible of {seen.snapshot_count}")


def _artifact_digests(seen: Visibility) -> tuple[tuple[str, str], ...]:
    return (("artifact digest", seen.artifact.digest),) if seen.artifact else ()


def _check_results(receipt: RetrievalReceipt) -> None:
    results, seen = receipt.results, receipt.visibility
    _same("number of results", len(results), min(receipt.k, seen.visible_count))
    _same("ranks", [hit.rank for hit in results], list(range(1, len(results) + 1)))
    _same("distinct places", len({hit.position for hit in results}), len(results))
    _same("distinct entries", len({hit.row.entry_id for hit in results}), len(results))
    order = [(-hit.score, hit.row.entry_id) for hit in results]
    _same("order by score and entry id", order, sorted(order))
    for hit in results:
        _same(f"score of rank {hit.rank}", hit.score, sum(part for _, part in hit.parts))
        if min((hit.score, *(part for _, part in hit.parts))) < 0 or not 0 <= hit.position < seen.snapshot_count:
            raise IntegrityError(
                f"rank {hit.rank} has score {hit.score} at place {hit.position} of {seen.snapshot_count}"
            )
        if len(hit.snippet) > SNIPPET or hit.row.invalidated:
            raise IntegrityError(
                f"rank {hit.rank} has a snippet of {len(hit.snippet)}, invalidated {hit.row.invalidated}"
            )


def verify_use(receipt: UseReceipt | DispositionReceipt, retrieval: RetrievalReceipt) -> Consistent:
    """Check a use, or a disposition, against the retrieval that it names.

    Raises:
        IntegrityError: either is inconsistent, or they do not belong together.
        UsageError: the retrieval has no such rank.
    """
    verify(retrieval)
    _same("retrieval receipt", receipt.retrieval, retrieval.receipt_digest)
    hit = _hit(retrieval, receipt.rank)
    _same(f"entry of rank {receipt.rank}", receipt.entry_id, hit.row.entry_id)
    _same(f"content of rank {receipt.rank}", receipt.content, hit.row.content)
    return verify(receipt)


def join(receipt: RetrievalReceipt, snapshot: Snapshot | None) -> Joined | Unverifiable:
    """Check every result, exclusion and count of a receipt against the snapshot it names, or one that it is a prefix of.

    Raises:
        IntegrityError: the receipt is inconsistent, or says what the snapshot does not; the message names both values.
    """
    verify(receipt)
    if snapshot is None:
        return Unverifiable(reason="missing")
    seen = receipt.visibility
    _same("snapshot digest", seen.snapshot_digest, snapshot.prefix_digest(seen.snapshot_count))
    _same("snapshot count", seen.snapshot_count, min(seen.snapshot_count, len(snapshot.rows)))
    snapshot = snapshot.prefix(seen.snapshot_count)
    if seen.artifact:
        _same("artifact", seen.artifact, snapshot.artifact)
    out = set(snapshot.invalidated)
    for exclusion in seen.excluded:
        rows = snapshot.positions(exclusion)
        if not rows:
            raise IntegrityError(f"exclusion {exclusion.level} {exclusion.value!r} removes no row of the snapshot")
        out.update(rows)
    _same("visible rows", seen.visible_count, len(snapshot.rows) - len(out))
    for hit in receipt.results:
        _check_place(hit, snapshot, out)
    return Joined(receipt=receipt.receipt_digest, snapshot=seen.snapshot_digest, results=len(receipt.results))


def _check_place(hit: Hit, snapshot: Snapshot, out: Iterable[int]) -> None:
    stored = snapshot.rows_digest[32 * hit.position : 32 * hit.position + 32]
    _same(f"row of rank {hit.rank}, place {hit.position},", row_digest(hit.row).hex(), stored.hex())
    if hit.position in out:
        raise IntegrityError(f"rank {hit.rank} is {hit.row.entry_id}, which was excluded or invalidated")


def verify_durable(receipt: RetrievalReceipt, store: Store) -> Joined | Unverifiable:
    """Read the inventory that the receipt refers to, and join; its digest and length are checked on the way.

    Raises:
        IntegrityError: the stored bytes or the receipt are not what they are said to be.
    """
    verify(receipt)
    artifact = receipt.visibility.artifact
    if artifact is None:
        return Unverifiable(reason="no_artifact_reference")
    if not store.has(artifact.digest):
        return Unverifiable(reason="missing")
    try:
        data = store.get(artifact.digest)
    except (OSError, UsageError):  # the store's word for a file that is there and cannot be read
        return Unverifiable(reason="load_failed")
    return join(receipt, read_inventory(data))


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise IntegrityError(f"{what}: the receipt says {found!r}, it should be {expected!r}")
