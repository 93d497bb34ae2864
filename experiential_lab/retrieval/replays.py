"""Ask the query of a receipt again, with the stored index of the very snapshot that the receipt refers to.

- The index is looked for by the inventory that the receipt names and by its configuration, the newest first. It is not the
  current index: an import, a split or another ranker since then changes nothing.
- An index of that inventory with another configuration is asked only when there is no other; then the receipt is wrong.
- The recorded query is asked under the recorded view and configuration, and everything must be the same.
- A receipt whose index is gone, which names no inventory, or which was migrated from a ranker that is not here, is
  Unverifiable with its reason; so is one whose index needs an embedder that does not run here and was not given.

Not covered: `index.replay` does the same with an index at hand, and says what is compared.
"""

from experiential_lab.records import UnsupportedError, Unverifiable, UsageError
from experiential_lab.retrieval.embedders import Embedder, local_embedder
from experiential_lab.retrieval.index import IndexManifest, Replayed, load, replay
from experiential_lab.retrieval.receipts import RetrievalReceipt, verify
from experiential_lab.store import Store

INVENTORIES = ("inventory", "inventory_fit")  # parts of an index that a receipt may refer to


def replay_stored(
    receipt: RetrievalReceipt, store: Store, *, embedder: Embedder | None = None
) -> Replayed | Unverifiable:
    """Find the stored index of the receipt's snapshot and configuration, and ask again; `embedder` as `load` takes it.

    Raises:
        IntegrityError: the receipt is inconsistent, says other than the search, or the index is damaged.
        StaleError: this version searches with another configuration than the index was made with.
    """
    verify(receipt)
    if receipt.migrated_from:
        return Unverifiable(reason="foreign_ranker")
    if receipt.visibility.artifact is None:
        return Unverifiable(reason="no_artifact_reference")
    found = _index_of(receipt, receipt.visibility.artifact.digest, store)
    if found is None:
        return Unverifiable(reason="missing")
    space = store.load(found, "index", IndexManifest).embedder
    try:
        embedder = embedder or (local_embedder(space) if space else None)
    except (UsageError, UnsupportedError):
        return Unverifiable(reason="no_embedder")
    return replay(receipt, load(store, found, embedder=embedder))


def _index_of(receipt: RetrievalReceipt, inventory: str, store: Store) -> str | None:
    other = None
    for row in reversed(store.rows("index_built")):
        artifact = str(row.fields["artifact"])
        if not store.has(artifact):  # forgotten
            continue
        manifest = store.load(artifact, "index", IndexManifest)
        if any(part.name in INVENTORIES and part.digest == inventory for part in manifest.parts):
            if manifest.config == receipt.retriever:
                return artifact
            other = other or artifact
    return other
