"""What a workspace knows: files become sources, the set of sources becomes evidence, and a report says what became of it.

- Everything is read, framed, understood and paired before the first byte is written: a file that cannot be used leaves the
  workspace as it was. Sources without a single transition are no evidence; they are refused, with their report.
- Evidence is a pure function of the set of sources: it does not depend on the order in which they came.
- Where two sources hold one trace, a copy that is a prefix of the other is `replayed_history`; a copy that goes on
  otherwise keeps its steps under an id of its own, in the same lineage.
- Our own exports are `simulated_environment`, whatever the caller says.
- One row of the log makes new evidence current. Two imports at once both count: the second builds again on the first.

Not covered: the index and the split, which name the evidence that they were made from.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec
import polars as pl

from experiential_lab.evidence.copies import settled
from experiential_lab.evidence.frames import (
    conservation_frame,
    ledger_frame,
    rejected_frame,
    secrets_frame,
    set_aside_frame,
)
from experiential_lab.evidence.framing import Framed, frame
from experiential_lab.evidence.importers import choose
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.lineage import lineages_of, opening_key
from experiential_lab.evidence.secrets import find_secrets
from experiential_lab.evidence.spans import files_of, open_span, unpacked
from experiential_lab.evidence.trace import Imported, LedgerRow, Origin, Rejected, SetAside, Trace, Transition
from experiential_lab.evidence.transitions import Ledger, ledger_of
from experiential_lab.records import (
    SAFE_INTEGER,
    IntegrityError,
    LimitError,
    NoEvidence,
    Record,
    Span,
    TraceFormatError,
    UsageError,
    digest_of,
)
from experiential_lab.store import LogRow, Problem, Store, Verification

KIND = "evidence"
GENERATED = "generated"  # what our own exports say of themselves, in their header and in their metadata
SUFFIXES = (".json", ".jsonl", ".ndjson", ".gz", ".zip", ".eval", ".traj")  # what is looked for below a directory
USES = ("step", "observation", "context")
R = TypeVar("R", bound=Record)
Progress = Callable[[int, int, str], None]
"""Called with (files done, files in all, name of the next)."""


class SourceInfo(Record, kw_only=True):
    """One file of the workspace, and the sums over it that no list repeats."""

    digest: str
    format: str
    rule: str
    origin: Origin
    size_bytes: int
    limit: int | None = None
    """Only so many records, from the first, were asked for."""
    extends: str | None = None
    """Digest of the source whose bytes this one begins with: a log that has grown."""
    records: int
    events: int
    used: tuple[tuple[str, int], ...]
    """((step | observation | context, number of events), ...)"""


class Evidence(Record, kw_only=True):
    """All evidence of a workspace. Each part is a blob of JSON lines, named by its digest."""

    sources: tuple[SourceInfo, ...]
    traces: str
    transitions: str
    ledger: str
    set_aside: str
    rejected: str


PARTS = {"traces": Trace, "transitions": Transition, "ledger": LedgerRow, "set_aside": SetAside, "rejected": Rejected}


class Corpus:
    """The evidence of a workspace. A part is read and decoded when it is first asked for."""

    def __init__(self, digest: str, evidence: Evidence, get: Callable[[str], bytes], names: Mapping[str, str]) -> None:
        self.digest, self.evidence, self.get = digest, evidence, get
        self.names = names
        """{source digest: what the user called it when it first came}; in the log, and in no digest."""

    @property
    def sources(self) -> tuple[SourceInfo, ...]:
        return self.evidence.sources

    @cached_property
    def traces(self) -> list[Trace]:
        """Every trace, without its events: they are read from the source again when a trace is shown."""
        return _from_lines(self.get(self.evidence.traces), Trace)

    @cached_property
    def transitions(self) -> list[Transition]:
        return _from_lines(self.get(self.evidence.transitions), Transition)

    @cached_property
    def ledger(self) -> list[LedgerRow]:
        """One row a step, in source order."""
        return _from_lines(self.get(self.evidence.ledger), LedgerRow)

    @cached_property
    def set_aside(self) -> list[SetAside]:
        return _from_lines(self.get(self.evidence.set_aside), SetAside)

    @cached_property
    def rejected(self) -> list[Rejected]:
        return _from_lines(self.get(self.evidence.rejected), Rejected)

    @cached_property
    def lineages(self) -> dict[str, str]:
        """{trace id: lineage id}"""
        return lineages_of(self.traces)

    def open(self, span: Span) -> str:
        """The text that a span quotes, read from its source again.

        Raises:
            IntegrityError: the source's bytes, or the text in them, are not what was recorded.
        """
        return open_span(unpacked(self.get(span.source), span.member), span)

    def verify(self, found: Verification) -> Verification:
        """`found`, and each span of each transition that does not open to the text that was imported."""
        opened: dict[tuple[str, str], bytes] = {}
        problems = list(found.problems)
        for each in self.transitions:
            for span in (each.action_span, each.observation_span):
                place = (span.source, span.member)
                try:
                    if place not in opened:
                        opened[place] = unpacked(self.get(span.source), span.member)
                    open_span(opened[place], span)
                except (IntegrityError, LookupError) as error:
                    problems.append(Problem(artifact=each.transition_id, problem=str(error)))
        return msgspec.structs.replace(found, problems=tuple(problems))


class ImportReport:
    """What became of every record, event and step of the sources that were given."""

    def __init__(
        self,
        corpus: Corpus,
        given: Sequence[str],
        earlier: Corpus | None,
        unusable: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.corpus = corpus
        self.united: tuple[str, ...] = ()
        """Lineages that this import moved from fit to held out."""
        self.unusable = tuple(unusable)
        """(path, reason) of each file of a directory that could not be used."""
        self.added = len(set(given) - {info.digest for info in earlier.sources} if earlier else set(given))
        self.changed = _changed(earlier.ledger, corpus.ledger) if earlier else []
        """Steps that were known before, and ended otherwise: (trace, step, old outcome, new outcome)."""
        self.sources = [info for info in corpus.sources if info.digest in set(given)]
        mine = {info.digest for info in self.sources}
        self.traces = [trace for trace in corpus.traces if trace.source in mine]
        self.rows = [row for row in corpus.ledger if row.span.source in mine]
        self.transitions = [each for each in corpus.transitions if each.action_span.source in mine]
        self._set_aside = [row for row in corpus.set_aside if row.span.source in mine]
        self._rejected = [row for row in corpus.rejected if row.source in mine]

    def __repr__(self) -> str:
        return (
            f"<import of {len(self.sources)} sources: {len(self.transitions):,} of {len(self.rows):,} steps are paired>"
        )

    @property
    def is_copy(self) -> bool:
        """Whether all that the files hold is a history that counts elsewhere."""
        return not self.rows and {row.reason for row in self._set_aside} == {"replayed_history"}

    @property
    def ledger(self) -> pl.DataFrame:
        """One row a step, in source order."""
        return ledger_frame(self.rows, self.transitions)

    @property
    def set_aside(self) -> pl.DataFrame:
        """One row an event that nothing used."""
        return set_aside_frame(self._set_aside)

    @property
    def rejected(self) -> pl.DataFrame:
        """One row a record that could not be used."""
        return rejected_frame(self._rejected, self.corpus.names)

    @property
    def secrets(self) -> pl.DataFrame:
        """One row a place in a given source that looks like a secret; never what stands there."""
        return secrets_frame(
            (self.corpus.names[info.digest], member, secret)
            for info in self.sources
            for member, data in files_of(self.corpus.get(info.digest))
            for secret in find_secrets(data)
        )

    @property
    def conservation(self) -> pl.DataFrame:
        """One row a source: what went in, what came out, and whether the sums hold."""
        rows = Counter(row.span.source for row in self.rows)
        left = Counter(row.span.source for row in self.rows if row.transition_id is None)
        paired = Counter(each.action_span.source for each in self.transitions)
        aside = Counter(row.span.source for row in self._set_aside)
        rejected = Counter(row.source for row in self._rejected)
        return conservation_frame(
            {
                "path": self.corpus.names[info.digest],
                "source": info.digest,
                "records": info.records,
                "rejected": rejected[info.digest],
                "events": info.events,
                "events_used": sum(dict(info.used).values()),
                "set_aside": aside[info.digest],
                "steps": rows[info.digest],
                "transitions": paired[info.digest],
                "left_out": left[info.digest],
            }
            for info in self.sources
        )

    @cached_property
    def counts(self) -> dict[str, Any]:
        """The sums of the command line contract."""
        records = sum(info.records for info in self.sources)
        return {
            "sources": len(self.sources),
            "added": self.added,
            "bytes": sum(info.size_bytes for info in self.sources),
            "records": records,
            "records_used": records - len(self._rejected),
            "records_rejected": _counted(row.reason for row in self._rejected),
            "events": sum(info.events for info in self.sources),
            "events_used": {use: sum(dict(info.used).get(use, 0) for info in self.sources) for use in USES},
            "set_aside": _counted(row.reason for row in self._set_aside),
            "traces": len(self.traces),
            "lineages": len({self.corpus.lineages[trace.trace_id] for trace in self.traces}),
            "steps": len(self.rows),
            "transitions": len(self.transitions),
            "pairing": _counted(each.pairing for each in self.transitions),
            "observation_kind": _counted(each.observation_kind for each in self.transitions),
            "observation_source": _counted(each.observation_source for each in self.transitions),
            "left_out": _counted(row.outcome for row in self.rows if row.transition_id is None),
            "formats": [
                {"path": self.corpus.names[info.digest], "format": info.format, "rule": info.rule}
                for info in self.sources
            ],
            "unusable": [{"path": path, "reason": reason} for path, reason in self.unusable],
            "united": list(self.united),
            "extends": {info.digest: info.extends for info in self.sources if info.extends},
            "changed": [dict(zip(("trace", "step", "old", "new"), row, strict=True)) for row in self.changed],
            "secrets": _counted(self.secrets["kind"]),
        }


def _changed(old: list[LedgerRow], new: list[LedgerRow]) -> list[tuple[str, int, str, str]]:
    before = {(row.trace_id, row.step): row.outcome for row in old}
    return [
        (row.trace_id, row.step, before[row.trace_id, row.step], row.outcome)
        for row in new
        if before.get((row.trace_id, row.step), row.outcome) != row.outcome
    ]


class Declared(NamedTuple):
    """What the caller says of the files that are imported."""

    format: str | None = None
    origin: Origin = "recorded"
    limit: int | None = None


class File(NamedTuple):
    """One file, framed; its format chosen."""

    path: str
    data: bytes
    """As found on disk."""
    imported: Imported
    info: SourceInfo


def import_files(
    workspace: Path,
    paths: Iterable[str | Path],
    declared: Declared = Declared(),  # noqa: B008  a NamedTuple cannot change
    *,
    progress: Progress | None = None,
) -> ImportReport:
    """Adds files to the evidence of a workspace, which is made when it does not exist yet.

    Raises:
        UsageError: a path does not exist, or the workspace cannot be written.
        TraceFormatError: a file that was named cannot be used, or none of a directory: it says which and why. The workspace
            is as it was.
        NoEvidence: the files hold no transition. `report` is the report; the workspace is as it was.
    """
    if declared.origin not in get_args(Origin):
        raise UsageError(f"the origin is {declared.origin!r}; it can be {', '.join(get_args(Origin))}")
    if declared.limit is not None and not 1 <= declared.limit <= SAFE_INTEGER:
        raise UsageError(f"the limit is {declared.limit}; it must be at least 1")
    if store := _existing(workspace):
        store.writable()
    files, unusable = _read_all(_expanded(paths), declared, progress)
    while True:
        store = _existing(workspace)
        row = store.latest("evidence_built") if store else None
        earlier = _corpus(store, str(row.fields["artifact"])) if store and row else None
        _check_declared(files, earlier)
        corpus, blobs = build_evidence(files, earlier)
        given = [file.info.digest for file in files]
        report = ImportReport(corpus, given, earlier, unusable)
        if not report.transitions and not report.is_copy:
            raise _no_transition(report)
        store = store or Store.open(workspace, create=True)
        if _made_current(store, corpus, blobs, row, given=given, paths=[file.path for file in files]):
            return report


def _check_declared(files: list[File], earlier: Corpus | None) -> None:
    """Known bytes stay what they were declared to be; only a limit may be widened."""
    known = {info.digest: info for info in earlier.sources} if earlier else {}
    for file in files:
        now, before = file.info, known.get(file.info.digest)
        if before is None:
            continue
        narrower = before.limit != now.limit and (
            before.limit is None or (now.limit is not None and now.limit < before.limit)
        )
        for name, old, new in (("origin", before.origin, now.origin), ("format", before.format, now.format)):
            if old != new:
                raise UsageError(
                    f"{file.path} is known with {name} {old}, and now declared {new}; forget it first: xlab forget"
                )
        if narrower:
            raise UsageError(
                f"{file.path} is known with limit {before.limit}, and now asked with {now.limit}; forget it first"
            )


def _made_current(store: Store, corpus: Corpus, blobs: list[bytes], after: LogRow | None, **fields: list[str]) -> bool:
    """Stores the evidence and makes it the current one; False when another evidence became current meanwhile."""
    for blob in blobs:
        store.put(blob)
    inputs = {f"source {info.digest}": info.digest for info in corpus.sources}
    inputs |= {f"part:{name}": getattr(corpus.evidence, name) for name in PARTS}
    corpus.digest = store.keep(KIND, corpus.evidence, inputs=inputs)
    number = after.number if after else -1
    return store.append_after(number, "evidence_built", artifact=corpus.digest, **fields) is not None


def without_source(store: Store, digest: str) -> Corpus:
    """The evidence of all other sources, which becomes the current one; the bytes of the source still stand.

    Raises:
        NoEvidence: no source has that digest.
    """
    while True:
        row = store.latest("evidence_built")
        earlier = load_corpus(store)
        if digest not in {info.digest for info in earlier.sources}:
            raise NoEvidence(f"no source has the digest {digest}; the JSON of xlab import names them")
        rest = [_again(info, earlier) for info in earlier.sources if info.digest != digest]
        corpus, blobs = build_evidence(rest, None)
        if _made_current(store, corpus, blobs, row, given=[], paths=[]):
            return corpus


def _existing(workspace: Path) -> Store | None:
    """The workspace, unless there is none yet, or another process is just making it."""
    return Store.open(workspace) if (workspace / "lab.json").exists() or workspace.is_file() else None


def _no_transition(report: ImportReport) -> NoEvidence:
    left = ", ".join(f"{count} {reason}" for reason, count in _counted(row.outcome for row in report.rows).items())
    first = report.sources[0]
    error = NoEvidence(
        f"{report.corpus.names[first.digest]}: 0 transitions from {len(report.rows)} steps ({left or 'no step'}), read as {first.format}; "
        "nothing was imported. A transition needs an action and what was answered to it"
    )
    error.report = report
    return error


def load_corpus(store: Store) -> Corpus:
    """The current evidence of a workspace.

    Raises:
        NoEvidence: nothing was imported yet.
    """
    row = store.latest("evidence_built")
    if row is None:
        raise NoEvidence(f"{store.path} holds no evidence yet; import traces first: xlab import PATH")
    return _corpus(store, str(row.fields["artifact"]))


def _corpus(store: Store, digest: str) -> Corpus:
    names: dict[str, str] = {}
    for row in store.rows("evidence_built"):
        for source, path in zip(row.fields["given"], row.fields["paths"], strict=True):
            names.setdefault(source, path)
    return Corpus(digest, store.load(digest, KIND, Evidence), store.get, names)


class _Found(NamedTuple):
    path: Path
    is_named: bool
    """By the caller; else it was found in a directory."""


def _read_all(
    paths: list[_Found], declared: Declared, progress: Progress | None
) -> tuple[list[File], list[tuple[str, str]]]:
    """The files, and (path, reason) of those in a directory that cannot be used; a file that was named must be usable."""
    files: list[File] = []
    unusable: list[tuple[str, str]] = []
    for number, found in enumerate(paths):
        if progress:
            progress(number, len(paths), found.path.name)
        if not found.is_named and found.path.suffix.casefold() not in SUFFIXES:
            unusable.append(
                (str(found.path), f"its name ends in none of {', '.join(SUFFIXES)}; name the file to import it")
            )
            continue
        try:
            files.append(read_file(found.path, declared))
        except (TraceFormatError, LimitError) as error:
            if found.is_named:
                raise
            unusable.append((str(found.path), str(error).removeprefix(f"{found.path}: ")))
    if not files:
        raise TraceFormatError(f"none of {len(paths)} files can be used; the first: {unusable[0][0]}: {unusable[0][1]}")
    return files, unusable


def _expanded(paths: Iterable[str | Path]) -> list[_Found]:
    found = []
    for path in map(Path, paths):
        if not path.exists():
            raise UsageError(f"{path} does not exist")
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.is_file() and not each.name.startswith("."))
            if not any(each.suffix.casefold() in SUFFIXES for each in inside):
                raise UsageError(f"{path} holds no file that ends in {', '.join(SUFFIXES)}")
            found += [_Found(each, False) for each in inside]
        else:
            found.append(_Found(path, True))
    if not found:
        raise UsageError("no path was given")
    return found


def read_file(path: Path, declared: Declared) -> File:
    """One file, framed and understood; nothing is written. Raises as `import_files` does."""
    name = os.fsencode(path).decode(errors="backslashreplace")  # a name need be no Unicode, a log row must
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from None
    try:
        return _understood(name, data, declared)
    except (TraceFormatError, LimitError) as error:
        raise type(error)(f"{name}: {error}") from None


def _understood(path: str, data: bytes, declared: Declared) -> File:
    frames = frame(data)
    is_export = any(map(_is_generated, frames.records))  # one such record taints the file: they are not told apart
    format, rule = choose(frames, declared.format)
    if declared.limit is not None:
        frames = frames._replace(records=frames.records[: declared.limit])
    digest = digest_of(data)
    imported = format.read(Source(digest, path, frames))
    info = SourceInfo(
        digest=digest,
        format=format.name,
        rule=rule,
        origin="simulated_environment" if is_export else declared.origin,
        size_bytes=len(data),
        limit=declared.limit,
        records=imported.records,
        events=0,
        used=(),
    )
    return File(path, data, imported, info)


def _is_generated(record: Framed) -> bool:
    """Whether a record is of our own exports: the header, or a conversation that lost its header."""
    value = record.value
    if not isinstance(value, dict):
        return False
    metadata = value.get("metadata")
    return GENERATED in value or (isinstance(metadata, dict) and GENERATED in metadata)


def _again(info: SourceInfo, corpus: Corpus) -> File:
    """A source of the workspace, read again as it was declared."""
    declared = Declared(info.format, info.origin, info.limit)
    file = _understood(corpus.names[info.digest], corpus.get(info.digest), declared)
    return file._replace(info=msgspec.structs.replace(file.info, rule=info.rule))


def build_evidence(files: list[File], earlier: Corpus | None) -> tuple[Corpus, list[bytes]]:
    """The evidence of all sources, and every blob that it needs."""
    every = {file.info.digest: file for file in files}
    names = {file.info.digest: file.path for file in reversed(files)} | dict(earlier.names if earlier else {})
    for info in earlier.sources if earlier else ():
        if earlier and info.digest not in every:
            every[info.digest] = _again(info, earlier)
    ordered = [every[digest] for digest in sorted(every)]
    extends = _extensions(ordered)
    observed = {file.info.digest for file in ordered if file.info.origin == "recorded"}
    traces = settled([trace for file in ordered for trace in file.imported.traces], observed)
    ledgers = [ledger_of(trace) for trace in traces]
    infos = [_summed(file.info, traces, ledgers, extends) for file in ordered]
    heads = [_head(trace) for trace in traces]
    parts: dict[str, Sequence[Record]] = {
        "traces": heads,
        "transitions": [each for ledger in ledgers for each in ledger.transitions],
        "ledger": [each for ledger in ledgers for each in ledger.rows],
        "set_aside": [each for ledger in ledgers for each in ledger.set_aside],
        "rejected": [each for file in ordered for each in file.imported.rejected],
    }
    blobs = {name: _to_lines(part) for name, part in parts.items()}
    evidence = Evidence(sources=tuple(infos), **{name: digest_of(blob) for name, blob in blobs.items()})
    held = {digest_of(blob): blob for blob in blobs.values()} | {file.info.digest: file.data for file in ordered}
    corpus = Corpus("", evidence, held.__getitem__, names)
    vars(corpus).update(parts)  # what was just made need not be decoded again
    return corpus, list(held.values())


def _extensions(files: list[File]) -> dict[str, str]:
    """{digest of a source: digest of the longest other one that it begins with, up to the end of a line}"""
    found: dict[str, str] = {}
    by_size = sorted(files, key=lambda file: len(file.data))
    for at, file in enumerate(by_size):
        for shorter in reversed(by_size[:at]):
            if shorter.data.endswith(b"\n") and file.data.startswith(shorter.data) and file.data != shorter.data:
                found[file.info.digest] = shorter.info.digest
                break
    return found


def _head(trace: Trace) -> Trace:
    """The trace without its events, with the lineage key of its opening."""
    opening = opening_key(trace.events)
    keys = tuple(sorted({*trace.keys, opening})) if opening else trace.keys
    return msgspec.structs.replace(trace, keys=keys, events=())


def _summed(info: SourceInfo, traces: list[Trace], ledgers: list[Ledger], extends: Mapping[str, str]) -> SourceInfo:
    mine = [(trace, ledger) for trace, ledger in zip(traces, ledgers, strict=True) if trace.source == info.digest]
    return msgspec.structs.replace(
        info,
        extends=extends.get(info.digest),
        events=sum(len(trace.events) for trace, _ in mine),
        used=tuple((use, sum(ledger.used[use] for _, ledger in mine)) for use in USES),
    )


_ENCODER = msgspec.json.Encoder(order="sorted")


def _to_lines(records: Sequence[Record]) -> bytes:
    return _ENCODER.encode_lines(records)


def _from_lines(data: bytes, type: type[R]) -> list[R]:
    return msgspec.json.Decoder(type).decode_lines(data) if data else []


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))
