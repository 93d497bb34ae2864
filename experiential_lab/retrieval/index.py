"""A read-only index of one snapshot: built from a view, saved and loaded with every part checked, searched through views.

- `build` takes a View and nothing else. An index has no method that changes it.
- A search sees a view: `search(view, q)` equals `search(build(view.plain).view("all"), q)` in entries, scores, parts and
  support. min(k, visible) hits come back; a row that shares nothing with the query says so.
- Each search leaves a receipt. An index that was loaded from a store names the stored inventory in it; one that was only
  built has none to name.
- `level` says what was done: a built or loaded index had every row computed from its entries (`index_verified`). That the
  cited spans still read as cited (`sources_verified`) is for whoever reads the sources to say: `Lab.verify`.
- A missing result is a value: an empty view, or a query without any feature, is Unverifiable.

Not covered: whether the nearest precedent is a good prediction. An index older than the last import or split is found by
comparing `inputs` with the workspace.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from threading import Lock
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from experiential_lab.records import (
    SAFE_INTEGER,
    IntegrityError,
    Record,
    StaleError,
    Unverifiable,
    UsageError,
    canonical_bytes,
    digest,
)
from experiential_lab.retrieval.dense import Vectors, npy_of, read_npy
from experiential_lab.retrieval.embedders import (
    Embedder,
    EmbedderSnapshot,
    HeldEmbedder,
    check_snapshot,
    local_embedder,
)
from experiential_lab.retrieval.fusion import DEPTH
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.ranking import Dense, Fusion, RankerConfig, Ranking, config_for, ranking
from experiential_lab.retrieval.receipts import SNIPPET, Hit, Query, RetrievalReceipt, seal, verify
from experiential_lab.retrieval.sparse import (
    DEFAULT,
    Channel,
    Postings,
    Ranked,
    Ranker,
    Statistics,
    order_of,
)
from experiential_lab.retrieval.support import Precedents
from experiential_lab.retrieval.views import (
    RECENT_LIMIT,
    Act,
    Artifact,
    Base,
    Entry,
    Exclusion,
    Snapshot,
    View,
    Visibility,
    artifact_of,
    facts_of,
    read_rows,
    snapshot_of,
)
from experiential_lab.store import Store

VerificationLevel = Literal["rows_verified", "index_verified", "sources_verified"]

_DTYPES = {"vocabulary": "<u8", "start": "<i8", "rows": "<i4", "tf": "<u1", "length": "<i4"}


class Part(Record, kw_only=True):
    """One blob of a saved index."""

    name: str
    digest: str
    byte_length: int


class IndexManifest(Record, kw_only=True):
    """A saved index: what it was made of, and a digest of each part."""

    snapshot: str
    entries: int
    fit: int
    """How many entries, from the first, are fit."""
    config: RankerConfig
    embedder: EmbedderSnapshot | None = None
    """None: no vectors."""
    inputs: tuple[tuple[str, str], ...]
    """((name, digest), ...) of the lineage table and the sources, sorted."""
    parts: tuple[Part, ...]


class _Ground(NamedTuple):
    """One snapshot with all that a search of it needs."""

    snapshot: Snapshot
    ranker: Ranker
    precedents: Precedents
    artifact: Artifact | None
    dense: Dense | None
    store: Store | None


class Index:
    """Made by `build` or `load`."""

    def __init__(
        self,
        snapshot: Snapshot,
        ranker: Ranker,
        *,
        dense: Dense | None = None,
        fusion: Fusion = "sparse",
        depth: int = DEPTH,
        inputs: tuple[tuple[str, str], ...] = (),
        store: Store | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.config = config_for(ranker.channels, fusion, dense.embedder.snapshot if dense else None, depth=depth)
        self.inputs = inputs
        """((name, digest), ...) of what a loaded index was made of."""
        self.level: VerificationLevel = "index_verified"
        self._store = store
        self._whole = self._ground(snapshot, ranker, dense)
        self._lock = Lock()
        self._fit: _Ground | None = None

    def __repr__(self) -> str:
        return f"<index of {len(self.snapshot.rows):,} entries, {self.level}, snapshot {self.snapshot.digest[7:15]}>"

    @cached_property
    def digest(self) -> str:
        """Of the snapshot's digest and the configuration: indexes with one digest answer alike."""
        return digest(_Identity(snapshot=self.snapshot.digest, config=self.config))

    def view(self, base: Base = "fit", *, exclude: Iterable[str | Exclusion] = ()) -> "IndexView":
        """What may be consulted: the fit entries, or all, without what `exclude` names (a text is a lineage).

        Raises:
            NoEvidence: `fit` is asked for, and nothing was split.
            UsageError: the base, a lineage or a level of exclusion is unknown, or `exclude` is one text instead of several.
        """
        if isinstance(exclude, str):
            raise UsageError(f"exclude is the text {exclude!r}: give a set of lineages, {{{exclude!r}}}")
        excluded = [item if isinstance(item, Exclusion) else self._lineage(item) for item in exclude]
        view = View(self.snapshot, base, excluded)
        return IndexView(view, self._fit_ground() if base == "fit" else self._whole, self.config)

    def _lineage(self, name: str) -> Exclusion:
        """One that nobody knows is refused: a typing error would leave nothing out, in silence."""
        exclusion = Exclusion(level="lineage", value=name)
        if not self.snapshot.positions(exclusion):
            raise UsageError(
                f"no lineage of the index is called {name!r}; lab.transitions() and xlab transitions list them"
            )
        return exclusion

    @property
    def embedder(self) -> EmbedderSnapshot | None:
        """The space of its vectors; None: it has none."""
        return self._whole.dense.embedder.snapshot if self._whole.dense else None

    def of_its_own(self) -> "Index":
        """The same index, to be asked about its own entries alone: their vectors are here, so no provider is paid again."""
        dense = self._whole.dense
        if dense is None or self.config.fusion == "sparse":
            return self
        texts = [dict(entry.key).get("action", "") for entry in self.snapshot.entries]
        held = HeldEmbedder(dense.embedder.snapshot, texts, dense.vectors.matrix)
        return Index(
            self.snapshot,
            self._whole.ranker,
            dense=Dense(dense.vectors, held),
            fusion=self.config.fusion,
            depth=self.config.depth,
            inputs=self.inputs,
            store=self._store,
        )

    def _ground(self, snapshot: Snapshot, ranker: Ranker, dense: Dense | None) -> _Ground:
        artifact = snapshot.artifact if self._store else None
        return _Ground(snapshot, ranker, Precedents(snapshot.entries), artifact, dense, self._store)

    def _fit_ground(self) -> _Ground:
        """The fit prefix with postings of its own: a mask would cost every search what a cut costs once."""
        with self._lock:
            if self._fit is None:
                fit = self.snapshot.fit
                self._fit = self._whole if fit is self.snapshot else self._prefix(fit)
            return self._fit

    def _prefix(self, fit: Snapshot) -> _Ground:
        dense = self._whole.dense
        if dense:
            dense = dense._replace(vectors=dense.vectors.prefix(len(fit.rows)))
        return self._ground(fit, self._whole.ranker.prefix(len(fit.rows)), dense)


class _Identity(Record, kw_only=True):
    snapshot: str
    config: RankerConfig


class IndexView:
    """A view that can be searched. Statistics are counted over its visible entries alone."""

    def __init__(self, view: View, ground: _Ground, config: RankerConfig) -> None:
        self.plain = view
        """The same view without an index: `build(view.plain)` makes one of its entries alone."""
        self.config = config
        self._ground = ground
        self.statistics = Statistics(ground.ranker, view.out)
        """Numbers counted over its visible entries alone."""

    def __repr__(self) -> str:
        return f"<view {self.plain.base}: {self.count:,} of {len(self.plain.snapshot.rows):,} entries visible>"

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The visible entries, in order."""
        return self.plain.entries

    @property
    def count(self) -> int:
        """How many entries are visible."""
        return self.plain.count

    @cached_property
    def visibility(self) -> Visibility:
        """What each receipt of this view says that it could see."""
        return self.plain.visibility(self._ground.artifact)

    def nearest(self, query: Query, k: int = 5) -> Hits | Unverifiable:
        """The min(k, visible) best entries for `query`; Unverifiable when nothing is visible or nothing can be searched.

        Raises:
            UsageError: k is below 1 or above 2**53 - 1, or a text of the query is no Unicode.
            LimitError: the query is so long that a score could not be written exactly.
        """
        if not isinstance(query, Query):
            raise UsageError(f"ask with a Query, for example Query(action=...), got {type(query).__name__}")
        if k < 1:
            raise UsageError(f"k is {k}: ask for at least 1 precedent")
        if k > SAFE_INTEGER:
            raise UsageError(f"k is {k}, which no receipt can hold: ask for at most {SAFE_INTEGER} precedents")
        if not self.count:
            return Unverifiable(reason="empty view")
        query, act = _searched(query)
        texts = {"action": act.text, "task": query.task or "", "recent": query.recent or ""}
        ranked = ranking(self.config, self.statistics, self._ground.dense, texts, k)
        if ranked is None:
            return Unverifiable(reason="nothing indexable")
        return self._hits(query, act, k, ranked)

    def _hits(self, query: Query, act: Act, k: int, ranked: Ranking) -> Hits:
        support = self._ground.precedents.support(act, self.statistics.keep, similar_words=self.config.similar_words)
        receipt = RetrievalReceipt(
            schema=1,
            query=query,
            k=k,
            retriever=self.config,
            visibility=self.visibility,
            results=tuple(self._hit(place, found, ranked.parts, act) for place, found in enumerate(ranked.hits, 1)),
            attributes=(("rule", support.rule), ("support", support.label)),
        )
        entries = tuple(self._ground.snapshot.entries[found.row] for found in ranked.hits)
        return Hits(seal(receipt), entries, support.label, support.rule, cost=ranked.cost, store=self._ground.store)

    def _hit(self, place: int, found: Ranked, names: tuple[str, ...], act: Act) -> Hit:
        entry = self._ground.snapshot.entries[found.row]
        parts: dict[str, int] = {}
        for name, part in zip(names, found.parts, strict=True):
            parts[name] = parts.get(name, 0) + part
        return Hit(
            rank=place,
            position=found.row,
            row=self._ground.snapshot.rows[found.row],
            score=found.score,
            parts=tuple(parts.items()),
            snippet=entry.value[:SNIPPET],
            reasons=tuple(self._reasons(entry, found.score, act)),
        )

    def _reasons(self, entry: Entry, score: int, act: Act) -> Iterator[str]:
        if entry.pairing:
            yield f"pairing: {entry.pairing}"
        base = "a fit entry" if self.plain.base == "fit" else "an entry"
        yield f"eligible: {base}, not invalidated, outside {len(self.plain.excluded)} exclusions"
        if relation := _relation(entry, act):
            yield f"relation: {relation}"
        if score == 0:
            yield "score 0: no shared feature that counts"


def _searched(query: Query) -> tuple[Query, Act]:
    """The query as it is searched and recorded."""
    try:
        canonical_bytes(query)
        recent = query.recent[:RECENT_LIMIT] if query.recent else query.recent
        return msgspec.structs.replace(query, recent=recent), query.act
    except UnicodeEncodeError as error:
        raise UsageError(f"the query is no Unicode text: {error}") from error


def _relation(entry: Entry, act: Act) -> str:
    """How the action of a hit relates to the action asked about; empty when they only share words."""
    if entry.structure == act.structure:
        return "same call" if act.tool else "same text"
    if act.tool and entry.shape == act.shape:
        return "same tool, same argument names"
    return "same tool" if act.tool and entry.tool == act.tool else ""


def search(view: IndexView, query: Query, k: int = 5) -> Hits | Unverifiable:
    """`view.nearest(query, k)`, as laws are written."""
    return view.nearest(query, k)


def build(
    view: View,
    *,
    channels: tuple[Channel, ...] = DEFAULT,
    embedder: Embedder | None = None,
    fusion: Fusion = "sparse",
    depth: int = DEPTH,
) -> Index:
    """The index of the entries that `view` does not exclude. Invalidated rows stay in its snapshot, never visible.

    With an `embedder` the index holds a vector of each action too; `fusion` says whether they rank, and `depth` how many rows
    of each ranking are joined.

    Raises:
        TypeError: `view` is anything but a View, or a view of rows whose entries were not read.
        UsageError: vectors are to rank, and there is no embedder.
        ProviderError: the embedder cannot be asked.
    """
    if fusion != "sparse" and embedder is None:
        raise UsageError(f"the ranker {fusion!r} needs vectors: name an embedder")
    if not isinstance(view, View):
        raise TypeError(f"an index is built from a View, got {type(view).__name__}")
    snapshot = view.snapshot.without({p for exclusion in view.excluded for p in view.snapshot.positions(exclusion)})
    if len(snapshot.entries) != len(snapshot.rows):
        raise TypeError(f"an index is built from entries: {len(snapshot.rows)} rows, {len(snapshot.entries)} entries")
    keys = [dict(entry.key) for entry in snapshot.entries]
    texts = {channel.field: [key.get(channel.field, "") for key in keys] for channel in channels}
    ranker = Ranker.build(channels, texts, [row.entry_id for row in snapshot.rows])
    dense = None
    if embedder:
        matrix = embedder.embed([key.get("action", "") for key in keys])
        dense = Dense(Vectors(matrix, ranker.order), embedder)
    return Index(snapshot, ranker, dense=dense, fusion=fusion, depth=depth)


def save(index: Index, store: Store, inputs: Mapping[str, str]) -> str:
    """Store every part of `index` and one manifest that names them; return the digest that `load` takes.

    `inputs` names what the entries were made of, by digest: the lineage table and each source.

    Raises:
        IntegrityError: an input is not stored.
        UsageError: the workspace cannot be written.
    """
    parts = tuple(
        Part(name=name, digest=store.put(data), byte_length=len(data)) for name, data in _blobs(index).items()
    )
    manifest = IndexManifest(
        snapshot=index.snapshot.digest,
        entries=len(index.snapshot.rows),
        fit=len(index.snapshot.fit.rows),
        config=index.config,
        embedder=index.embedder,
        inputs=tuple(sorted(inputs.items())),
        parts=parts,
    )
    return store.keep("index", manifest, inputs={**inputs, **{f"part:{part.name}": part.digest for part in parts}})


def _blobs(index: Index) -> dict[str, bytes]:
    """Every part by name: inventories as receipts name them, entries one a line, arrays as they lie in memory."""
    snapshot = index.snapshot
    blobs = {
        "inventory": snapshot.inventory(),
        "inventory_fit": snapshot.fit.inventory(),
        "entries": b"".join(canonical_bytes(entry) + b"\n" for entry in snapshot.entries),
    }
    for number, postings in enumerate(index._whole.ranker.postings):
        for name, dtype in _DTYPES.items():
            blobs[f"{number}.{name}"] = getattr(postings, name).astype(dtype).tobytes()
    if dense := index._whole.dense:
        blobs["vectors"] = npy_of(dense.vectors.matrix)
    return blobs


def load(store: Store, digest: str, *, embedder: Embedder | None = None) -> Index:
    """The saved index: each part has its digest and length, and each row is what its entry gives.

    `embedder` must be the one that made its vectors; one that runs here is found without being named.

    Raises:
        IntegrityError: a part is missing, damaged, or not what another part says; or its vectors lie in another space than
            the embedder's.
        StaleError: it was made with another configuration, or other Unicode tables, than this version has.
        UsageError: its vectors were made by a provider, and no embedder is given.
    """
    manifest = store.load(digest, "index", IndexManifest)
    _check_config(manifest.config)
    _check_names(manifest)
    blobs = {part.name: _part(store, part) for part in manifest.parts}
    rows = read_rows(blobs["inventory"])
    try:
        entries = _ENTRIES.decode_lines(blobs["entries"])
        snapshot = snapshot_of(entries, {row.entry_id: facts_of(row) for row in rows})
    except ValueError as error:
        raise IntegrityError(f"the part entries cannot be read: {error}") from error
    _check(snapshot, manifest, blobs)
    snapshot.artifact, snapshot.fit.artifact = artifact_of(blobs["inventory"]), artifact_of(blobs["inventory_fit"])
    postings = [_postings(blobs, number, len(rows)) for number in range(len(manifest.config.channels))]
    ranker = Ranker(manifest.config.channels, postings, order_of([entry.entry_id for entry in snapshot.entries]))
    dense = None
    if manifest.embedder:
        embedder = embedder or local_embedder(manifest.embedder)
        check_snapshot(manifest.embedder, embedder.snapshot)
        matrix = read_npy(blobs["vectors"])
        if matrix.shape[1] != manifest.embedder.dimension:
            raise IntegrityError(f"the vectors have {matrix.shape[1]} components, not {manifest.embedder.dimension}")
        dense = Dense(Vectors(matrix, ranker.order), embedder)
    return Index(
        snapshot,
        ranker,
        dense=dense,
        fusion=manifest.config.fusion,
        depth=manifest.config.depth,
        inputs=manifest.inputs,
        store=store,
    )


_ENTRIES = msgspec.json.Decoder(Entry)


def _part(store: Store, part: Part) -> bytes:
    data = store.get(part.digest)
    if len(data) != part.byte_length:
        raise IntegrityError(f"part {part.name} has {len(data)} bytes, the index says {part.byte_length}")
    return data


def _check_names(manifest: IndexManifest) -> None:
    channels = [f"{number}.{name}" for number in range(len(manifest.config.channels)) for name in _DTYPES]
    needed = ["inventory", "inventory_fit", "entries", *channels, *(["vectors"] if manifest.embedder else [])]
    held = [part.name for part in manifest.parts]
    if sorted(held) != sorted(needed):
        raise IntegrityError(f"the index has the parts {', '.join(held)}; its configuration needs {', '.join(needed)}")
    ranks = manifest.embedder if manifest.config.fusion != "sparse" else None
    if manifest.config.embedder != ranks or (ranks is None and manifest.config.fusion != "sparse"):
        raise IntegrityError(
            f"the ranker {manifest.config.fusion} has the embedder {manifest.config.embedder}, the index {manifest.embedder}"
        )


def _postings(blobs: Mapping[str, bytes], number: int, entries: int) -> Postings:
    """The postings of one channel; only their form is checked: that they are of these texts, a digest alone says."""
    try:
        found = Postings(**{name: np.frombuffer(blobs[f"{number}.{name}"], dtype) for name, dtype in _DTYPES.items()})
    except ValueError as error:
        raise IntegrityError(f"a part of channel {number} cannot be read: {error}") from error
    sizes = {name: len(part) for name, part in found._asdict().items()}
    if not (
        sizes["vocabulary"] == sizes["start"] > 0
        and sizes["rows"] == sizes["tf"] == int(found.start[-1])
        and sizes["length"] == entries
        and 0 <= int(found.rows.min(initial=0)) <= int(found.rows.max(initial=0)) < max(1, entries)
        and not found.start[0]
        and (found.start[1:] > found.start[:-1]).all()
        and (found.vocabulary[1:] > found.vocabulary[:-1]).all()
    ):
        raise IntegrityError(f"the parts of channel {number} do not fit each other and {entries} entries: {sizes}")
    return found


def _check_config(config: RankerConfig) -> None:
    ours = config_for(config.channels, config.fusion, config.embedder, depth=config.depth)
    if config != ours:
        raise StaleError(f"the index was made with {config}, this version searches with {ours}: build it again")


def _check(snapshot: Snapshot, manifest: IndexManifest, blobs: Mapping[str, bytes]) -> None:
    for name, found, said in (
        ("inventory", snapshot.inventory(), blobs["inventory"]),
        ("fit inventory", snapshot.fit.inventory(), blobs["inventory_fit"]),
    ):
        if found != said:
            raise IntegrityError(
                f"the {name} made from the entries is {artifact_of(found).digest}, stored is {artifact_of(said).digest}"
            )
    ours = (snapshot.digest, len(snapshot.rows), len(snapshot.fit.rows))
    theirs = (manifest.snapshot, manifest.entries, manifest.fit)
    if ours != theirs:
        raise IntegrityError(
            f"the entries give snapshot {ours[0]} of {ours[1]}, {ours[2]} fit; "
            f"the index says {theirs[0]} of {theirs[1]}, {theirs[2]} fit"
        )


class Replayed(Record, kw_only=True):
    """The query was asked again under the recorded view and configuration, and gave the same."""

    receipt: str


def replay(receipt: RetrievalReceipt, index: Index) -> Replayed:
    """Ask the recorded query again and compare everything but where the inventory is stored.

    Raises:
        IntegrityError: the receipt is inconsistent, is of another snapshot, or says other than the search; both are named.
    """
    verify(receipt)
    seen = receipt.visibility
    bases: dict[str, Base] = {index.snapshot.fit.digest: "fit", index.snapshot.digest: "all"}
    if seen.snapshot_digest not in bases:
        raise IntegrityError(
            f"the receipt is of snapshot {seen.snapshot_digest}, the index has {index.snapshot.digest}"
        )
    if index.snapshot.fit.digest == index.snapshot.digest:  # all is fit: only the words of a hit tell which was asked
        bases = {
            seen.snapshot_digest: "fit"
            if any("a fit entry" in r for h in receipt.results for r in h.reasons)
            else "all"
        }
    again = index.view(bases[seen.snapshot_digest], exclude=seen.excluded).nearest(receipt.query, receipt.k)
    if isinstance(again, Unverifiable):
        raise IntegrityError(f"the receipt has {len(receipt.results)} results, the search gave: {again.reason}")
    for field in ("query", "retriever", "visibility", "results", "attributes"):
        said, found = getattr(receipt, field), getattr(again.receipt, field)
        if field == "visibility":
            said, found = (msgspec.structs.replace(value, artifact=None) for value in (said, found))
        if said != found:
            raise IntegrityError(f"{field}: the receipt says {said!r}, the search gave {found!r}")
    return Replayed(receipt=receipt.receipt_digest)
