"""Receipts that were kept: written on request, found again by their digest, and never by a session.

- A kept receipt is one blob; a log row names it by its receipt digest. Keeping it again adds a row and no bytes.
- A use or a disposition is kept after the retrieval that it belongs to, and names it as its input.
- Without a match there is nothing; a beginning that fits several receipts is refused, never answered by one of them.

Not covered: whether a kept receipt is true. `receipts` and `replays` say what each check proves.
"""

from collections.abc import Iterator
from typing import NamedTuple

from experiential_lab.records import NoEvidence, UsageError
from experiential_lab.retrieval.receipts import (
    DispositionReceipt,
    Receipt,
    RetrievalReceipt,
    UseReceipt,
    verify,
    verify_use,
)
from experiential_lab.store import Store

SHORTEST = 6  # hex digits that may stand for a digest

_KINDS: dict[str, type[RetrievalReceipt] | type[UseReceipt] | type[DispositionReceipt]] = {
    "receipt": RetrievalReceipt,
    "use_receipt": UseReceipt,
    "disposition_receipt": DispositionReceipt,
}


class Kept(NamedTuple):
    receipt: Receipt
    artifact: str
    """Digest of the blob."""
    at: str
    """When it was first kept."""
    actor: str


def keep(store: Store, receipt: Receipt) -> str:
    """Store a receipt, which otherwise lives in memory alone; return its receipt digest, by which it is found again.

    Raises:
        IntegrityError: the receipt is inconsistent, or the inventory that it names is not stored.
        NoEvidence: the retrieval of a use is not kept.
        UsageError: the workspace cannot be written.
    """
    verify(receipt)
    kind = next(name for name, known in _KINDS.items() if isinstance(receipt, known))
    artifact = store.keep(kind, receipt, inputs=_inputs(store, receipt))
    store.append("artifact_kept", artifact=artifact, receipt=receipt.receipt_digest)
    return receipt.receipt_digest


def _inputs(store: Store, receipt: Receipt) -> dict[str, str]:
    if isinstance(receipt, RetrievalReceipt):
        inventory = receipt.visibility.artifact
        return {"inventory": inventory.digest} if inventory else {}
    retrieval = find(store, receipt.retrieval)
    if retrieval is None or not isinstance(retrieval.receipt, RetrievalReceipt):
        raise NoEvidence(f"the retrieval {receipt.retrieval} of this use is not kept: keep it first")
    verify_use(receipt, retrieval.receipt)
    return {"retrieval": retrieval.artifact}


def kept(store: Store) -> list[Kept]:
    """Every kept receipt once, in the order in which they were first kept. One whose bytes were forgotten is left out.

    Raises:
        IntegrityError: a kept receipt is damaged.
    """
    found: dict[str, Kept] = {}
    for row in store.rows("artifact_kept"):
        artifact, receipt = str(row.fields["artifact"]), row.fields.get("receipt")
        if receipt and receipt not in found and store.has(artifact):
            found[receipt] = Kept(_load(store, artifact), artifact, row.at, row.actor)
    return list(found.values())


def _load(store: Store, artifact: str) -> Receipt:
    kind = store.describe(artifact).kind
    return store.load(artifact, kind, _KINDS.get(kind, RetrievalReceipt))


def find(store: Store, ident: str) -> Kept | None:
    """The kept receipt of that digest, or of a beginning of its hex.

    Raises:
        UsageError: the beginning is too short, or fits several receipts.
        IntegrityError: the kept receipt is damaged.
    """
    plain = ident.removeprefix("sha256:")
    if len(plain) < SHORTEST:
        raise UsageError(f"{ident!r} is too short for a receipt; give at least {SHORTEST} hex digits")
    found = [each for each in kept(store) if each.receipt.receipt_digest[7:].startswith(plain)]
    if len(found) > 1:
        names = " and ".join(each.receipt.receipt_digest[:23] for each in found[:2])
        raise UsageError(f"{ident!r} is the beginning of {len(found)} receipts, for example {names}")
    return found[0] if found else None


def uses_of(store: Store, retrieval: str) -> Iterator[Kept]:
    """The kept uses and dispositions of one retrieval, by its digest."""
    for each in kept(store):
        if not isinstance(each.receipt, RetrievalReceipt) and each.receipt.retrieval == retrieval:
            yield each
