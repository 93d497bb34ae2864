"""Ask the query of a receipt again, with the stored index of the very snapshot that the receipt refers to.

- The index is looked for by the inventory that the receipt names, the newest first. It is not the current index: an import
  or a split since then changes nothing.
- The recorded query is asked under the recorded view and configuration, and everything must be the same.
- A receipt whose index is gone, which names no inventory, or which was migrated from a ranker that is not here, is
  Unverifiable with its reason.

Not covered: `index.replay` does the same with an index at hand, and says what is compared.
"""

from experiential_lab.records import Unverifiable
from experiential_lab.retrieval.index import IndexManifest, Replayed, load, replay
from experiential_lab.retrieval.receipts import RetrievalReceipt, verify
from experiential_lab.store import Store

INVENTORIES = ("inventory", "inventory_fit")  # parts of an index that a receipt may refer to


def replay_stored(receipt: RetrievalReceipt, store: Store) -> Replayed | Unverifiable:
    """Find the stored index of the receipt's snapshot, and ask again.

    Raises:
        IntegrityError: the receipt is inconsistent, says other than the search, or the index is damaged.
        StaleError: this version searches with another configuration than the index was made with.
    """
    verify(receipt)
    if receipt.migrated_from:
        return Unverifiable(reason="foreign_ranker")
    if receipt.visibility.artifact is None:
        return Unverifiable(reason="no_artifact_reference")
    found = _index_of(receipt.visibility.artifact.digest, store)
    return Unverifiable(reason="missing") if found is None else replay(receipt, load(store, found))


def _index_of(inventory: str, store: Store) -> str | None:
    for row in reversed(store.rows("index_built")):
        artifact = str(row.fields["artifact"])
        if not store.has(artifact):  # forgotten
            continue
        parts = store.load(artifact, "index", IndexManifest).parts
        if any(part.name in INVENTORIES and part.digest == inventory for part in parts):
            return artifact
    return None
