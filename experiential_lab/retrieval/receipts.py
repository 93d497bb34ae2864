"""What a retrieval could see, what it gave back, and what was used of it: three records, and three ways to check them.

- `verify` proves that a receipt is whole and agrees with itself. It does not prove that any snapshot, row or score exists.
- `join` proves that the rows stand in the given snapshot at the stated places, that none of them was excluded or
  invalidated, and that every exclusion and count is right. It does not prove that these rows rank best.
- `verify_durable` proves the same against the stored inventory, read again. It does not prove more than `join`.

What REPLAY_ONLY names may be false in a receipt that joins, as may a score that agrees with its parts, and an exclusion or a
base that was swapped together with its counts: only a replay finds these, for it asks again. What CLAIMED names is the word
of who used a result: no check can contradict it. A missing inventory is `Unverifiable`, never a pass and never an empty
snapshot; a mismatch raises, with both values.

Put in a prompt is not shown to have had influence: a use says what was given to whom, no more. No receipt holds a time, a
run or an actor, so equal retrievals share one receipt; a receipt of another question that has the same answer is a true
receipt of that question. Receipts are not signed. The three records have one form and one kind of digest, so they share
this file.
"""

import re
from collections.abc import Iterable
from typing import Literal, TypeVar, get_args

import msgspec

from experiential_lab.records import (
    SAFE_INTEGER,
    IntegrityError,
    Record,
    Unverifiable,
    UsageError,
    canonical_bytes,
    digest,
)
from experiential_lab.retrieval.ranking import RankerConfig
from experiential_lab.retrieval.views import (
    Act,
    Entry,
    Row,
    Snapshot,
    Visibility,
    act_of,
    read_inventory,
    read_rows,
    row_digest,
)
from experiential_lab.store import Store

Relation = Literal["supports", "contradicts", "extends", "rederives", "background"]
Disposition = Literal["irrelevant", "no_use"]

SNIPPET = 80  # characters of an observation that a receipt repeats
FOREIGN = "v1:"  # begins the name of a ranker that is not ours: its receipt was migrated and cannot be replayed
REPLAY_ONLY = ("query", "retriever", "attributes", "results[].snippet", "results[].reasons", "results[].parts[][0]")
"""What may be false, by itself, in a retrieval receipt that joins. A name stands for all below it."""
CLAIMED = ("relation", "consumer", "disposition", "reason")
"""What a use or a disposition says, and nothing can contradict."""

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


def query_of_entry(entry: Entry) -> Query:
    """The query that an entry would have been: its key alone, never its observation."""
    key, tool = dict(entry.key), entry.tool or None
    action = key["action"]
    asked = Query(task=key["task"], recent=key["recent"])
    if tool is None:
        return msgspec.structs.replace(asked, action=action)
    return msgspec.structs.replace(asked, tool=tool, arguments=action.removeprefix(f"{tool} "))


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
    migrated_from: str = ""
    """Digest of the embedded draft that this was read from; its ranker is FOREIGN."""
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
        UsageError: there is no such rank, or no such relation.
    """
    hit = _hit(receipt, rank)
    _check_word("relation", relation, get_args(Relation))
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
        UsageError: there is no such rank, no such disposition, or no reason.
    """
    hit = _hit(receipt, rank)
    _check_word("disposition", disposition, get_args(Disposition))
    if not reason.strip():
        raise UsageError(f"rank {rank} was not used for the reason {reason!r}: say why")
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


def _check_word(what: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise UsageError(f"{what} is {word!r}; it can be {', '.join(known)}")


def verify(receipt: Receipt | bytes) -> Consistent:
    """Check form, digest and inner agreement of one receipt, given as a record or as its bytes.

    Raises:
        IntegrityError: it is not what it was made to be; the message names both values.
    """
    receipt = read_receipt(receipt if isinstance(receipt, bytes) else _written(receipt))
    _same("receipt digest", receipt.receipt_digest, _own_digest(receipt))
    _same("schema", receipt.schema, 1)
    if isinstance(receipt, RetrievalReceipt):
        _check_visibility(receipt)
        _check_results(receipt)
        _check_origin(receipt)
    else:
        _check_identity(receipt)
    return Consistent(receipt=receipt.receipt_digest)


_DECODER = msgspec.json.Decoder(Receipt)


def read_receipt(data: bytes) -> Receipt:
    """A receipt from its canonical bytes; `verify` checks what it says.

    Raises:
        IntegrityError: `data` holds no receipt, or another spelling of one.
    """
    try:
        read: Receipt = _DECODER.decode(data)
    except ValueError as error:
        raise IntegrityError(f"not a receipt: {error}") from error
    if canonical_bytes(read) != data:
        raise IntegrityError("a receipt is not in canonical form: read it, and write it again with canonical_bytes")
    return read


def _written(receipt: Receipt) -> bytes:
    """A constructor checks no type, so a record is verified as any reader sees it."""
    try:
        return canonical_bytes(receipt)
    except (ValueError, TypeError) as error:
        raise IntegrityError(f"not a receipt: {error}") from error


def _check_visibility(receipt: RetrievalReceipt) -> None:
    seen = receipt.visibility
    order = [(exclusion.level, exclusion.value) for exclusion in seen.excluded]
    _same("order of exclusions", order, sorted(set(order)))
    _check_digest("snapshot digest", seen.snapshot_digest)
    if seen.artifact:
        _check_digest("artifact digest", seen.artifact.digest)
        _same("uri of the artifact", seen.artifact.uri, f"blob:{seen.artifact.digest}")
    if not 0 <= seen.visible_count <= seen.snapshot_count:
        raise IntegrityError(f"{seen.visible_count} rows visible of {seen.snapshot_count}")


def _check_results(receipt: RetrievalReceipt) -> None:
    results, seen = receipt.results, receipt.visibility
    _same("number of results", len(results), min(receipt.k, seen.visible_count))
    _same("ranks", [hit.rank for hit in results], list(range(1, len(results) + 1)))
    _same("distinct places", len({hit.position for hit in results}), len(results))
    _same("distinct entries", len({hit.row.entry_id for hit in results}), len(results))
    for hit in results:
        _same(f"score of rank {hit.rank}", hit.score, sum(part for _, part in hit.parts))
        least, floor = min((hit.score, *(part for _, part in hit.parts))), _floor(receipt.retriever)
        if not floor <= least <= hit.score <= SAFE_INTEGER or not 0 <= hit.position < seen.snapshot_count:
            raise IntegrityError(
                f"rank {hit.rank} has score {hit.score} at place {hit.position} of {seen.snapshot_count}"
            )
        if len(hit.snippet) > SNIPPET or hit.row.invalidated:
            raise IntegrityError(
                f"rank {hit.rank} has a snippet of {len(hit.snippet)}, invalidated {hit.row.invalidated}"
            )
        _check_digest(f"content of rank {hit.rank}", hit.row.content)


def _floor(retriever: RankerConfig) -> int:
    """No score is lower. Vectors alone score by dot products, which are negative where two vectors point apart."""
    return -SAFE_INTEGER if retriever.fusion == "dense" else 0


def _check_origin(receipt: RetrievalReceipt) -> None:
    """A receipt of ours asked for something and is in the order of its scores; a migrated one has its ranker's order."""
    if receipt.migrated_from:
        _check_digest("migrated_from", receipt.migrated_from)
    if bool(receipt.migrated_from) != receipt.retriever.ranker.startswith(FOREIGN):
        raise IntegrityError(
            f"migrated_from is {receipt.migrated_from!r}, and the ranker {receipt.retriever.ranker!r}: "
            f"a migrated receipt has a ranker that begins with {FOREIGN!r}, and no other has"
        )
    if receipt.migrated_from:
        return
    order = [(-hit.score, hit.row.entry_id) for hit in receipt.results]
    _same("order by score and entry id", order, sorted(order))
    if receipt.k < 1:
        raise IntegrityError(f"the receipt asks for {receipt.k} results; a retrieval asks for 1 or more")


def _check_identity(receipt: UseReceipt | DispositionReceipt) -> None:
    _check_digest("retrieval receipt", receipt.retrieval)
    _check_digest("content", receipt.content)
    if receipt.rank < 1 or not receipt.entry_id:
        raise IntegrityError(f"the receipt is of rank {receipt.rank}, entry {receipt.entry_id!r}: ranks start at 1")
    if isinstance(receipt, UseReceipt) and receipt.consumer.digest:
        _check_digest("digest of the consumer", receipt.consumer.digest)


def _check_digest(what: str, value: str) -> None:
    if not _DIGEST.fullmatch(value):
        raise IntegrityError(f"{what} is {value!r}, no sha256 digest")


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
    snapshot = _named(snapshot, seen.snapshot_count)
    _same("snapshot digest", seen.snapshot_digest, snapshot.digest)
    _same("snapshot count", seen.snapshot_count, len(snapshot.rows))
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


def _named(snapshot: Snapshot, count: int) -> Snapshot:
    """The snapshot of the first `count` rows. The whole and its fit part are there already: a join hashes no inventory."""
    if count >= len(snapshot.rows):
        return snapshot
    return snapshot.fit if count == len(snapshot.fit.rows) else snapshot.prefix(count)


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
    if receipt.migrated_from:  # its rows are in the draft's order, which the digest binds
        return join(receipt, Snapshot(read_rows(data)))
    return join(receipt, read_inventory(data))


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise IntegrityError(f"{what}: the receipt says {found!r}, it should be {expected!r}")
