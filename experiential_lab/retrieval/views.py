"""What may be consulted: transitions become entries, entries an ordered snapshot, and a snapshot minus exclusions a view.

- An entry of kind `transition` is made from a `Transition` and from nothing else; its source must be recorded. A
  prediction, a rollout, a judgment or a written example has another type, and no way in.
- The key is all that can be searched: action, task, and `recent`, an earlier observation. No byte of the entry's own
  observation, or of a label that came after it, is in the key.
- A snapshot holds entries of one kind, fit rows first, then by first lineage and id. A row says all that a snapshot
  knows of one entry; the snapshot's digest is one sha256 over a domain tag and the 32-byte row digests, in order. So the
  fit rows are a prefix, and this prefix is a snapshot of its own.
- A view leaves out every row that falls to one of its exclusions, and every invalidated row. It keeps only exclusions
  that remove a row, sorted, so equal views are written alike.

Not covered: whether lineages and families are right, and whether the spans still read as cited.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import pairwise, starmap
from operator import gt
from typing import Literal, NamedTuple, get_args

import msgspec

from experiential_lab.evidence.trace import Origin, Transition
from experiential_lab.metrics import leaves, normalised, strict_json
from experiential_lab.records import (
    IntegrityError,
    Json,
    LeakageError,
    NoEvidence,
    Record,
    Span,
    UsageError,
    canonical_bytes,
    canonical_json,
    digest,
    digest_of,
)

Kind = Literal["transition", "page"]
Split = Literal["fit", "held_out", "none"]
Base = Literal["all", "fit"]
Level = Literal["entry", "trace", "lineage", "family", "structure", "observation_kind"]
Boundary = Literal["self", "trace", "lineage", "family", "key"]

SPLITS: tuple[Split, ...] = get_args(Split)
BOUNDARIES: tuple[Boundary, ...] = get_args(Boundary)
RECENT_LIMIT = (
    2_000  # characters of the last observation that are searched, from its start: what the ranker was measured on
)

_SNAPSHOT_TAG = b"experiential-lab snapshot 1\n"


class Entry(Record, kw_only=True):
    """Anything that can be retrieved."""

    entry_id: str
    """A transition id or a page id."""
    kind: Kind
    lineages: tuple[str, ...]
    path: str = ""
    """Source name and pointer, never a path of a machine."""
    key: tuple[tuple[str, str], ...]
    """((field, text), ...): the only searchable part."""
    structure: str = ""
    """64 hex: digest of (tool, canonical arguments), or of the normalised message."""
    shape: str = ""
    """64 hex: digest of (tool, argument names); empty for a message."""
    tool: str = ""
    pairing: str = ""
    observation_kind: str = ""
    trace_id: str | None = None
    terminal: bool | None = None
    """A label, never in the key."""
    value: str
    """The observation; never searchable."""
    cites: tuple[Span, ...]


class Facts(NamedTuple):
    """What is known of an entry only when the snapshot is made: it may change after the import."""

    split: Split = "none"
    family: str = ""
    source_ids: tuple[str, ...] = ()
    """None given: the sources of what the entry cites."""
    invalidated: bool = False
    origin: Origin = "recorded"


class Row(Record, kw_only=True, gc=False):  # as Span: it can be in no cycle
    """What a snapshot says of one entry; its sha256 is the snapshot row."""

    entry_id: str
    kind: Kind
    lineages: tuple[str, ...]
    trace_id: str | None = None
    family: str = ""
    split: Split = "none"
    path: str = ""
    source_ids: tuple[str, ...] = ()
    structure: str = ""
    """First 16 hex of `Entry.structure`."""
    observation_kind: str = ""
    invalidated: bool = False
    content: str
    """Digest of (key, value, cites)."""


class Exclusion(Record, kw_only=True):
    level: Level
    value: str


class Artifact(Record, kw_only=True):
    """Where the inventory of a snapshot is stored."""

    uri: str
    """`blob:` and the digest."""
    digest: str
    byte_length: int


class Visibility(Record, kw_only=True):
    """What one retrieval could see."""

    snapshot_digest: str
    snapshot_count: int
    excluded: tuple[Exclusion, ...] = ()
    """Sorted; only those that remove a row. Invalidated rows are never visible."""
    visible_count: int
    artifact: Artifact | None = None


class Act(NamedTuple):
    """An action as retrieval sees it."""

    text: str
    tool: str
    structure: str
    shape: str


def entry_of(transition: Transition, *, lineages: tuple[str, ...], path: str) -> Entry:
    """The entry of an observed transition.

    Raises:
        TypeError: `transition` is anything but a Transition: only what was observed can be consulted.
    """
    if not isinstance(transition, Transition):
        raise TypeError(f"an entry is made from a Transition, got {type(transition).__name__}")
    action = transition.action
    act = act_of(action.text, tool=action.tool, arguments=action.arguments)
    recent = (transition.recent or "")[:RECENT_LIMIT]
    return Entry(
        entry_id=transition.transition_id,
        kind="transition",
        lineages=lineages,
        path=path,
        key=(("action", act.text), ("task", transition.task or ""), ("recent", recent)),
        structure=act.structure,
        shape=act.shape,
        tool=act.tool,
        pairing=transition.pairing,
        observation_kind=transition.observation_kind,
        trace_id=transition.trace_id,
        terminal=transition.terminal,
        value=transition.observation,
        cites=(transition.action_span, transition.observation_span),
    )


def act_of(text: str | None, *, tool: str | None = None, arguments: str | None = None) -> Act:
    """A call by its tool and arguments (text beside it is left out), or a message by its text.

    Arguments that no strict JSON reader accepts count by their exact text.
    """
    if not tool:
        return Act(text or "", "", _hex(["message", normalised(text or "")]), "")
    arguments = arguments or "{}"
    try:
        value = strict_json(arguments)
    except ValueError:
        return Act(f"{tool} {arguments}", tool, _hex(["exact", tool, arguments]), _hex(["shape", tool, None]))
    names: list[Json] = [*sorted({pointer for pointer, _ in leaves(value, numbered=False)})]
    return Act(f"{tool} {arguments}", tool, _hex(["call", tool, value]), _hex(["shape", tool, names]))


def _hex(value: Json) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


class Snapshot:
    """The ordered inventory of entries of one kind; it never changes. Made by `snapshot_of`.

    Read back from its inventory alone it has rows and no entries: enough to join a receipt, not to search.
    """

    def __init__(self, rows: Iterable[Row], entries: Iterable[Entry] = (), *, rows_digest: bytes | None = None) -> None:
        self.rows = tuple(rows)
        self.entries = tuple(entries)
        self.rows_digest = b"".join(map(row_digest, self.rows)) if rows_digest is None else rows_digest
        """32 bytes a row, in order."""
        self.digest = self.prefix_digest(len(self.rows))
        self.invalidated = tuple(position for position, row in enumerate(self.rows) if row.invalidated)
        self._positions: dict[str, dict[str, list[int]]] = {}

    def prefix_digest(self, count: int) -> str:
        """The digest of the first `count` rows as a snapshot of their own."""
        return digest_of(_SNAPSHOT_TAG + self.rows_digest[: 32 * count])

    @cached_property
    def fit(self) -> "Snapshot":
        """The fit rows as a snapshot of their own; they come first."""
        return self.prefix(sum(row.split == "fit" for row in self.rows))

    def prefix(self, count: int) -> "Snapshot":
        """The first `count` rows as a snapshot of their own."""
        if count == len(self.rows):
            return self
        return Snapshot(self.rows[:count], self.entries[:count], rows_digest=self.rows_digest[: 32 * count])

    def without(self, positions: Iterable[int]) -> "Snapshot":
        """The other rows, in the same order, as a snapshot of their own."""
        left_out = set(positions)
        if not left_out:
            return self
        kept = [position for position in range(len(self.rows)) if position not in left_out]
        return Snapshot([self.rows[p] for p in kept], [self.entries[p] for p in kept])

    def inventory(self) -> bytes:
        """The canonical JSON of every row, one a line, in order."""
        return b"".join(canonical_bytes(row) + b"\n" for row in self.rows)

    @cached_property
    def artifact(self) -> Artifact:
        """What a store calls the inventory; computed once."""
        return artifact_of(self.inventory())

    def positions(self, exclusion: Exclusion) -> list[int]:
        """The rows that fall to `exclusion`, ascending.

        Raises:
            UsageError: the level is unknown.
        """
        if exclusion.level not in _VALUES:
            raise UsageError(f"unknown level of exclusion {exclusion.level!r}: use one of {', '.join(_VALUES)}")
        if (
            exclusion.level not in self._positions
        ):  # filled whole, then assigned: two threads may do it twice, with one result
            found: dict[str, list[int]] = {}
            for position, row in enumerate(self.rows):
                for value in _VALUES[exclusion.level](row):
                    found.setdefault(value, []).append(position)
            self._positions[exclusion.level] = found
        return self._positions[exclusion.level].get(exclusion.value, [])


_VALUES: dict[str, Callable[[Row], tuple[str, ...]]] = {
    "entry": lambda row: (row.entry_id,),
    "trace": lambda row: (row.trace_id,) if row.trace_id else (),
    "lineage": lambda row: row.lineages,
    "family": lambda row: (row.family,) if row.family else (),
    "structure": lambda row: (row.structure,) if row.structure else (),
    "observation_kind": lambda row: (row.observation_kind,) if row.observation_kind else (),
}


def snapshot_of(entries: Iterable[Entry], facts: Mapping[str, Facts]) -> Snapshot:
    """The snapshot of `entries`, whatever their order; `facts` by entry id, an absent one has the defaults.

    Raises:
        ValueError: the entries are of two kinds, or an id is repeated.
        LeakageError: a transition comes from a source that is not recorded.
    """
    made = [(row_of(entry, facts.get(entry.entry_id, Facts())), entry) for entry in entries]
    made.sort(key=lambda pair: _place(pair[0]))
    kinds, ids = {entry.kind for _, entry in made}, {entry.entry_id for _, entry in made}
    if len(kinds) > 1 or len(ids) < len(made):
        raise ValueError(
            f"a snapshot holds one kind and each id once: {sorted(kinds)}, {len(made)} entries, {len(ids)} ids"
        )
    return Snapshot([row for row, _ in made], [entry for _, entry in made])


def row_of(entry: Entry, facts: Facts) -> Row:
    """The row of `entry`.

    Raises:
        LeakageError: a transition whose source is not recorded.
    """
    if entry.kind == "transition" and facts.origin != "recorded":
        raise LeakageError(
            f"{entry.entry_id} is from a source of origin {facts.origin}: only recorded ones can be consulted"
        )
    return Row(
        entry_id=entry.entry_id,
        kind=entry.kind,
        lineages=entry.lineages,
        trace_id=entry.trace_id,
        family=facts.family,
        split=facts.split,
        path=entry.path,
        source_ids=facts.source_ids or tuple(sorted({span.source for span in entry.cites})),
        structure=entry.structure[:16],
        observation_kind=entry.observation_kind,
        invalidated=facts.invalidated,
        content=content_of(entry),
    )


def content_of(entry: Entry) -> str:
    """Digest of what the entry says: (key, value, cites)."""
    return digest(_Content(key=entry.key, value=entry.value, cites=entry.cites))


class _Content(Record, kw_only=True):
    key: tuple[tuple[str, str], ...]
    value: str
    cites: tuple[Span, ...]


def _place(row: Row) -> tuple[int, str, str]:
    return SPLITS.index(row.split), row.lineages[0] if row.lineages else "", row.entry_id


def row_digest(row: Row) -> bytes:
    """The 32 bytes that stand for `row` in its snapshot."""
    return hashlib.sha256(canonical_bytes(row)).digest()


def facts_of(row: Row) -> Facts:
    """What a row says beyond its entry."""
    return Facts(split=row.split, family=row.family, source_ids=row.source_ids, invalidated=row.invalidated)


def artifact_of(inventory: bytes) -> Artifact:
    """The reference to a stored inventory."""
    digest = digest_of(inventory)
    return Artifact(uri=f"blob:{digest}", digest=digest, byte_length=len(inventory))


def read_inventory(data: bytes) -> Snapshot:
    """The snapshot of a stored inventory: rows without entries.

    Raises:
        IntegrityError: `data` is not the canonical inventory of rows in their order.
    """
    rows = read_rows(data)
    lines = list(map(canonical_bytes, rows))  # once: for the comparison, and for the digests of the rows
    if b"".join(line + b"\n" for line in lines) != data or any(starmap(gt, pairwise(map(_place, rows)))):
        raise IntegrityError("an inventory is not in canonical form, or its rows are not in order")
    snapshot = Snapshot(rows, rows_digest=b"".join(hashlib.sha256(line).digest() for line in lines))
    snapshot.artifact = artifact_of(data)
    return snapshot


def read_rows(data: bytes) -> list[Row]:
    """The rows of an inventory, as they are.

    Raises:
        IntegrityError: a line is no row.
    """
    try:
        return _ROWS.decode_lines(data)
    except msgspec.DecodeError as error:
        raise IntegrityError(f"an inventory holds a row that cannot be read: {error}") from error


_ROWS = msgspec.json.Decoder(Row)


class View:
    """A snapshot, or its fit prefix, minus excluded and minus invalidated rows; it never changes."""

    def __init__(self, snapshot: Snapshot, base: Base = "all", excluded: Iterable[Exclusion] = ()) -> None:
        """Leave out of `snapshot` what falls to `excluded`.

        Raises:
            NoEvidence: `base` is fit, and nothing was split.
            UsageError: the base or a level of exclusion is unknown.
        """
        if base not in get_args(Base):
            raise UsageError(f"unknown view {base!r}: use all or fit")
        if base == "fit" and not snapshot.fit.rows:
            raise NoEvidence("no entry is marked fit: run `split` first, or ask for the view `all`")
        self.base = base
        self.snapshot = snapshot.fit if base == "fit" else snapshot
        """What this is a view of; for the base fit, the fit prefix."""
        asked = sorted(set(excluded), key=lambda exclusion: (exclusion.level, exclusion.value))
        rows = [(exclusion, self.snapshot.positions(exclusion)) for exclusion in asked]
        self.excluded = tuple(exclusion for exclusion, found in rows if found)
        self.out = sorted({*self.snapshot.invalidated, *(position for _, found in rows for position in found)})
        """Positions that nothing may see, ascending."""
        self.count = len(self.snapshot.rows) - len(self.out)

    @cached_property
    def _visible(self) -> list[int]:
        out = set(self.out)
        return [position for position in range(len(self.snapshot.rows)) if position not in out]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The visible entries, in order."""
        return tuple(self.snapshot.entries[position] for position in self._visible)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The visible rows, in order."""
        return tuple(self.snapshot.rows[position] for position in self._visible)

    def visibility(self, artifact: Artifact | None = None) -> Visibility:
        """What a receipt says of this view."""
        return Visibility(
            snapshot_digest=self.snapshot.digest,
            snapshot_count=len(self.snapshot.rows),
            excluded=self.excluded,
            visible_count=self.count,
            artifact=artifact,
        )


def boundary(level: Boundary, row: Row) -> tuple[Exclusion, ...]:
    """What must not be seen when `row` is asked about; each level takes out at least the rows of the one before.

    `self` its entry, `trace`, `lineage`, `family`, and `key`: its family and every identical action. A row without a trace
    or a family of its own (a page) stands for its lineages.

    Raises:
        UsageError: the level is unknown.
        NoEvidence: families are asked for, and nothing was split.
    """
    if level not in BOUNDARIES:
        raise UsageError(f"unknown boundary {level!r}: use one of {', '.join(BOUNDARIES)}")
    lineages = tuple(Exclusion(level="lineage", value=value) for value in row.lineages)
    if level == "self":
        return (Exclusion(level="entry", value=row.entry_id),)
    if level == "trace" and row.trace_id:
        return (Exclusion(level="trace", value=row.trace_id),)
    if level in ("trace", "lineage") or row.kind == "page":
        return lineages
    if not row.family:
        raise NoEvidence(f"{row.entry_id} has no family: run `split` first, or use the boundary `lineage`")
    family = Exclusion(level="family", value=row.family)
    return (family,) if level == "family" else (family, Exclusion(level="structure", value=row.structure))
