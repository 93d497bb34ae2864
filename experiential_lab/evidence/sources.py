"""Turn one file into all that it says: its traces' ledgers, every reason, and the sums over them, as lines that are kept.

- A file is read as it stands at one moment; it may be longer than memory. Each trace becomes its lines before the next one
  is asked for, where its format reads record by record; else memory holds the traces of one file.
- What a file says is a pure function of its bytes, of what the caller declared, and of the verdicts on its copies.
- Our own exports are `simulated_environment`, whatever the caller says: one such record taints its file.

Not covered: other files. Which copies count is `copies.py`, what a workspace knows is `corpus.py`.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from experiential_lab.evidence.copies import Outline, Verdict, outline_of, settled
from experiential_lab.evidence.framing import Framed, Lines, frame
from experiential_lab.evidence.importers import choose
from experiential_lab.evidence.importers.format import Format, Source
from experiential_lab.evidence.lineage import opening_key
from experiential_lab.evidence.spool import Held, Overflow, Spool, held_file
from experiential_lab.evidence.trace import LedgerRow, Origin, Rejected, SetAside, Trace, Transition
from experiential_lab.evidence.transitions import Ledger, ledger_of
from experiential_lab.records import LimitError, Record, TraceFormatError, UsageError, digest

GENERATED = "generated"  # what our own exports say of themselves, in their header and in their metadata
PARTS: dict[str, type[Record]] = {
    "traces": Trace,
    "transitions": Transition,
    "ledger": LedgerRow,
    "set_aside": SetAside,
    "rejected": Rejected,
    "outlines": Outline,
}
Counts = tuple[tuple[str, int], ...]
COUNTED = ("used", "pairing", "observation_kind", "observation_source", "left_out", "set_aside", "rejected")
_ENCODER = msgspec.json.Encoder(order="sorted")


class Sums(Record, kw_only=True):
    """The counts of one file. Each of `Counts` is ((word, number), ...), sorted by word."""

    records: int
    traces: int
    events: int
    steps: int
    transitions: int
    usage_repeated: int = 0
    """Parents and second views that state usage or cost which is counted already: they were not added."""
    used: Counts
    """Events by use: step, observation, context."""
    pairing: Counts
    observation_kind: Counts
    observation_source: Counts
    left_out: Counts
    set_aside: Counts
    rejected: Counts


class SourceInfo(Record, kw_only=True):
    """One file of the workspace."""

    digest: str
    format: str
    rule: str
    origin: Origin
    size_bytes: int
    limit: int | None = None
    """Only so many records, from the first, were asked for."""
    extends: str | None = None
    """Digest of the source whose bytes this one begins with: a log that has grown."""
    copies: str | None = None
    """Digest of the verdicts on its traces; None: it has no copy."""
    sums: Sums
    parts: tuple[tuple[str, str], ...] = ()
    """((name, digest of its lines), ...); a part without a line has no digest."""


class Declared(NamedTuple):
    """What the caller says of the files that are imported."""

    format: str | None = None
    origin: Origin = "recorded"
    limit: int | None = None


class File(NamedTuple):
    """One file and what it says."""

    path: str
    source: Held
    """The bytes as found on disk."""
    info: SourceInfo
    parts: Mapping[str, Held]
    outlines: tuple[Outline, ...]


def read_file(path: Path, declared: Declared, overflow: Overflow | None = None) -> File:
    """A file on disk and what it says; nothing is kept.

    Raises:
        UsageError: it cannot be read, or no format has the declared name.
        TraceFormatError: it is no trace file, or no record fits the declared format.
        LimitError: it unpacks to more than it may.
    """
    name = name_of(path)
    try:
        held = held_file(path, overflow)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from None
    try:
        return read_source(name, held, declared, overflow)
    except (TraceFormatError, LimitError) as error:
        raise type(error)(f"{name}: {error}") from None


def name_of(path: Path) -> str:
    """What a file is called in reports and in the log: a name on disk need be no Unicode, theirs must."""
    return os.fsencode(path).decode(errors="backslashreplace")


def read_source(
    path: str,
    held: Held,
    declared: Declared,
    overflow: Overflow | None = None,
    verdicts: Mapping[int, Verdict] = {},
) -> File:
    """What held bytes say; `verdicts`: {number of a trace, from 0: what becomes of it}. Raises as `read_file` does."""
    frames = frame(held, overflow=overflow)
    is_export = any(map(_is_generated, frames.records))
    format, rule = choose(frames, declared.format)
    if declared.limit is not None:
        frames = frames._replace(records=frames.records[: declared.limit])
    with ExitStack() as stack:
        spools = {name: stack.enter_context(Spool(overflow)) for name in PARTS}
        told = _Told(spools)
        traces, rejected, records = _traces(format, Source(held.digest, path, frames))
        for number, trace in enumerate(traces):
            told.add(trace, verdicts.get(number))
        sums = told.sums(records, rejected)
        parts = {name: spool.held() for name, spool in spools.items()}
    info = SourceInfo(
        digest=held.digest,
        format=format.name,
        rule=rule,
        origin="simulated_environment" if is_export else declared.origin,
        size_bytes=held.size_bytes,
        limit=declared.limit,
        copies=verdicts_digest(verdicts),
        sums=sums,
        parts=tuple((name, part.digest) for name, part in parts.items() if part.size_bytes),
    )
    return File(path, held, info, parts, tuple(told.outlines))


def _is_generated(record: Framed) -> bool:
    """Whether a record is of our own exports: the header, or a conversation that lost its header."""
    value = record.value
    if not isinstance(value, dict):
        return False
    metadata = value.get("metadata")
    return GENERATED in value or (isinstance(metadata, dict) and GENERATED in metadata)


def _traces(format: Format, source: Source) -> tuple[Iterable[Trace], list[Rejected], int]:
    """Traces, rejected records (all of them when the traces have been read), and the number of records."""
    if format.stream and isinstance(source.frames.records, Lines):
        rejected: list[Rejected] = []
        return format.stream(source, rejected), rejected, len(source.frames.records)
    imported = format.read(source)
    return imported.traces, list(imported.rejected), imported.records


def verdicts_digest(verdicts: Mapping[int, Verdict]) -> str | None:
    """A name for the verdicts on one source; None where there is none."""
    return digest(_Verdicts(verdicts=tuple(sorted(verdicts.items())))) if verdicts else None


class _Verdicts(Record, kw_only=True):
    verdicts: tuple[tuple[int, Verdict], ...]


class _Told:
    """The lines of each part and the counts of a file, while its traces are read."""

    def __init__(self, spools: Mapping[str, Spool]) -> None:
        self._spools = spools
        self.outlines: list[Outline] = []
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._events = self._repeated = 0

    def add(self, trace: Trace, verdict: Verdict | None) -> None:
        self.outlines.append(outline_of(trace))
        trace = settled(trace, verdict)
        ledger = ledger_of(trace)
        self._count(trace, ledger)
        self._write("traces", [_head(trace)])
        self._write("transitions", ledger.transitions)
        self._write("ledger", ledger.rows)
        self._write("set_aside", ledger.set_aside)
        self._write("outlines", self.outlines[-1:])

    def sums(self, records: int, rejected: list[Rejected]) -> Sums:
        """The counts; `rejected` becomes the last part."""
        rejected.sort(key=lambda row: (row.member, row.record))
        self._write("rejected", rejected)
        self._counts["rejected"].update(row.reason for row in rejected)
        counts = self._counts
        return Sums(
            records=records,
            traces=len(self.outlines),
            events=self._events,
            steps=counts["pairing"].total() + counts["left_out"].total(),
            transitions=counts["pairing"].total(),
            usage_repeated=self._repeated,
            **{name: tuple(sorted(counts[name].items())) for name in COUNTED},
        )

    def _count(self, trace: Trace, ledger: Ledger) -> None:
        self._events += len(trace.events)
        self._repeated += trace.usage_repeated
        counts = self._counts
        counts["used"].update(ledger.used)
        counts["left_out"].update(row.outcome for row in ledger.rows if row.transition_id is None)
        counts["set_aside"].update(row.reason for row in ledger.set_aside)
        for name in ("pairing", "observation_kind", "observation_source"):
            counts[name].update(getattr(each, name) for each in ledger.transitions)

    def _write(self, name: str, records: Sequence[Record]) -> None:
        if records:
            self._spools[name].write(_ENCODER.encode_lines(records))


def _head(trace: Trace) -> Trace:
    """The trace without its events, with the lineage key of its opening."""
    opening = opening_key(trace.events)
    keys = tuple(sorted({*trace.keys, opening})) if opening else trace.keys
    return msgspec.structs.replace(trace, keys=keys, events=())
