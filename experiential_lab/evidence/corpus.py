"""What a workspace knows: files become sources, the set of sources becomes evidence, and one row of the log makes it current.

- Everything is read, framed, understood and paired before the first byte is written: a file that cannot be used leaves the
  workspace as it was. Sources without a single transition are no evidence; they are refused, with their report.
- Evidence is a pure function of the set of sources: it does not depend on the order in which they came, nor on the number
  of processes that read them. What a source says is read again only when a copy elsewhere changes what counts.
- Where two sources hold one trace, a copy that is a prefix of the other is `replayed_history`; a copy that goes on
  otherwise keeps its steps under an id of its own, in the same lineage.
- Two imports at once both count: the second builds again on the first.
- Memory is bounded by the largest record of a file of lines (else by the largest file) and some hundred bytes a step.

Not covered: the index and the split, which name the evidence that they were made from.
"""

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar, get_args

import msgspec

from experiential_lab import engine
from experiential_lab.evidence.copies import Outline, Verdict, verdicts_of
from experiential_lab.evidence.lineage import lineages_of
from experiential_lab.evidence.sources import (
    PARTS,
    Declared,
    File,
    SourceInfo,
    name_of,
    read_file,
    read_source,
    verdicts_digest,
)
from experiential_lab.evidence.spans import files_of, open_span, unpacked
from experiential_lab.evidence.spool import PIECE, Held, Overflow
from experiential_lab.evidence.trace import LedgerRow, Origin, Rejected, SetAside, Trace, Transition
from experiential_lab.records import (
    SAFE_INTEGER,
    IntegrityError,
    LabError,
    LimitError,
    NoEvidence,
    Record,
    Span,
    TraceFormatError,
    UnsupportedError,
    UsageError,
)
from experiential_lab.store import LogRow, Problem, Store, Verification

KIND = "evidence"
SCHEMA = 2
SUFFIXES = (".json", ".jsonl", ".ndjson", ".txt", ".gz", ".zip", ".eval", ".traj")  # looked for below a directory
HEAD = 4_096  # bytes that a file must share with another before the two are compared
MANY_BYTES = 32 << 20  # from here on several processes read at once: they take half a second to start
R = TypeVar("R", bound=Record)
Progress = Callable[[int, int, str], None]
"""Called with (files done, files in all, name of the next)."""


class Evidence(Record, kw_only=True):
    """All evidence of a workspace: each source names the lines that it says."""

    sources: tuple[SourceInfo, ...]


class Places(NamedTuple):
    """Where a corpus reads bytes from, by digest."""

    get: Callable[[str], bytes]
    """All bytes, checked."""
    held: Callable[[str], Held]
    """The same, checked and not read yet."""
    peek: Callable[[str], BinaryIO]
    """A file of the same, not checked; close it."""


class Corpus:
    """The evidence of a workspace. A part is read and decoded when it is first asked for."""

    def __init__(self, digest: str, evidence: Evidence, places: Places, names: Mapping[str, str]) -> None:
        self.digest, self.evidence, self.places = digest, evidence, places
        self.names = names
        """{source digest: what the user called it when it first came}; in the log, and in no digest."""

    @property
    def sources(self) -> tuple[SourceInfo, ...]:
        return self.evidence.sources

    def get(self, digest: str) -> bytes:
        """The bytes of a source."""
        return self.places.get(digest)

    def part(self, type: type[R], sources: Iterable[SourceInfo] | None = None) -> list[R]:
        """The records of one type that the sources say, in order; of all sources when none are named."""
        decoder = msgspec.json.Decoder(type)
        infos = self.sources if sources is None else sources
        return [
            each for info in infos if (digest := _part(info, type)) for each in decoder.decode_lines(self.get(digest))
        ]

    @cached_property
    def traces(self) -> list[Trace]:
        """Every trace, without its events: they are read from the source again when a trace is shown."""
        return self.part(Trace)

    @cached_property
    def transitions(self) -> list[Transition]:
        return self.part(Transition)

    @cached_property
    def ledger(self) -> list[LedgerRow]:
        """One row a step, in source order."""
        return self.part(LedgerRow)

    @cached_property
    def set_aside(self) -> list[SetAside]:
        return self.part(SetAside)

    @cached_property
    def rejected(self) -> list[Rejected]:
        return self.part(Rejected)

    @cached_property
    def lineages(self) -> dict[str, str]:
        """{trace id: lineage id}"""
        return lineages_of(named for info in self.sources for named in self.trace_keys(info))

    def trace_keys(self, info: SourceInfo) -> "Iterator[TraceKeys]":
        """Id and lineage keys of each trace of a source; no text is held."""
        if digest := _part(info, Trace):
            with self.places.held(digest).open() as file:
                yield from map(_KEYS.decode, file)

    def open(self, span: Span) -> str:
        """The text that a span quotes, read from its source again.

        Raises:
            IntegrityError: the source's bytes, or the text in them, are not what was recorded.
        """
        return open_span(unpacked(self.get(span.source), span.member), span)

    def verify(self, found: Verification) -> Verification:
        """`found`, and each span of each transition that does not open to the text that was imported."""
        problems = [problem for info in self.sources for problem in self._misquoted(info)]
        return msgspec.structs.replace(found, problems=found.problems + tuple(problems))

    def _misquoted(self, info: SourceInfo) -> Iterator[Problem]:
        files: dict[str, bytes] = {}
        try:
            files = dict(files_of(self.get(info.digest)))
        except LabError as error:
            yield Problem(artifact=info.digest, problem=str(error))
        for each in self.part(Transition, [info]) if files else ():
            for span in (each.action_span, each.observation_span):
                try:
                    open_span(files[span.member], span)
                except (IntegrityError, LookupError) as error:
                    yield Problem(artifact=each.transition_id, problem=str(error))


class TraceKeys(msgspec.Struct):
    """What lineages are made from."""

    trace_id: str
    keys: tuple[str, ...]


_KEYS = msgspec.json.Decoder(TraceKeys)


def _part(info: SourceInfo, type: type[Record]) -> str | None:
    name = next(name for name, kind in PARTS.items() if kind is type)
    return dict(info.parts).get(name)


def add_files(
    workspace: Path,
    paths: Iterable[str | Path],
    declared: Declared = Declared(),  # noqa: B008  a NamedTuple cannot change
    *,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> "Added":
    """Adds files to the evidence of a workspace, which is made when it does not exist yet.

    `jobs`: how many processes read; None: as many as can run at once where that is faster.

    Raises:
        UsageError: a path does not exist, or the workspace cannot be written.
        TraceFormatError: a file that was named cannot be used, or none of a directory: it says which and why. The workspace
            is as it was.
        NoEvidence: the files hold no transition; `report` is an Added, and the workspace is as it was.
    """
    if declared.origin not in get_args(Origin):
        raise UsageError(f"the origin is {declared.origin!r}; it can be {', '.join(get_args(Origin))}")
    if declared.limit is not None and not 1 <= declared.limit <= SAFE_INTEGER:
        raise UsageError(f"the limit is {declared.limit}; it must be at least 1")
    if jobs is not None and jobs < 1:
        raise UsageError(f"{jobs} jobs were asked for; at least 1 must work")
    if store := _existing(workspace):
        store.writable()
    overflow = Overflow()
    files, unusable = _read_all(_Reading(declared, overflow, jobs, progress), _expanded(paths))
    given = [file.info.digest for file in files]
    while True:
        store = _existing(workspace)
        row = store.latest("evidence_built") if store else None
        earlier = _corpus(store, str(row.fields["artifact"])) if store and row else None
        _check_declared(files, earlier)
        corpus = build_evidence(files, earlier, overflow=overflow)
        added = Added(corpus, tuple(given), earlier, tuple(unusable))
        if not added.counts:
            raise _no_transition(added)
        store = store or Store.open(workspace, create=True)
        if _made_current(store, corpus, row, given=given, paths=[file.path for file in files]):
            corpus.places = _stored(store)
            return added


class Added(NamedTuple):
    """What an import brought."""

    corpus: Corpus
    given: tuple[str, ...]
    """Digests of the files, in their order."""
    earlier: Corpus | None
    unusable: tuple[tuple[str, str], ...] = ()
    """(path, reason) of each file of a directory that could not be used."""

    @property
    def sources(self) -> list[SourceInfo]:
        return [info for info in self.corpus.sources if info.digest in set(self.given)]

    @property
    def is_copy(self) -> bool:
        """Whether all that the files hold is a history that counts elsewhere."""
        aside = {reason for info in self.sources for reason, _ in info.sums.set_aside}
        return not any(info.sums.steps for info in self.sources) and aside == {"replayed_history"}

    @property
    def counts(self) -> bool:
        """Whether the files hold evidence, or a copy of it."""
        return self.is_copy or any(info.sums.transitions for info in self.sources)


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


def build_evidence(
    files: Sequence[File], earlier: Corpus | None, *, without: str | None = None, overflow: Overflow | None = None
) -> Corpus:
    """The evidence of the files and of all earlier sources but `without`; what is new in it is held, not stored."""
    fresh = {file.info.digest: file for file in files}
    known = {info.digest: info for info in earlier.sources if info.digest != without} if earlier else {}
    infos = known | {digest: file.info for digest, file in fresh.items()}
    ordered = sorted(infos)
    outlines = [
        fresh[digest].outlines if digest in fresh else earlier.part(Outline, [infos[digest]]) if earlier else ()
        for digest in ordered
    ]
    observed = {digest for digest, info in infos.items() if info.origin == "recorded"}
    verdicts = iter(verdicts_of(list(chain.from_iterable(outlines)), observed))
    names = {file.info.digest: file.path for file in reversed(files)} | dict(earlier.names if earlier else {})
    places = _both(fresh, earlier)
    for digest, mine in zip(ordered, outlines, strict=True):
        changed = {number: verdict for number, _ in enumerate(mine) if (verdict := next(verdicts))}
        if verdicts_digest(changed) != infos[digest].copies:
            file = _again(infos[digest], names[digest], places, overflow, changed)
            fresh[digest], infos[digest] = file, file.info
    extends = _extensions(infos, fresh.keys(), places)
    sources = (msgspec.structs.replace(infos[digest], extends=extends.get(digest)) for digest in ordered)
    return Corpus("", Evidence(sources=tuple(sources)), _both(fresh, earlier), names)


def _both(fresh: Mapping[str, File], earlier: Corpus | None) -> Places:
    """Bytes of files that were just read, or of earlier evidence."""
    held = {file.info.digest: file.source for file in fresh.values()}
    held |= {part.digest: part for file in fresh.values() for part in file.parts.values()}
    if earlier is None:
        return Places(lambda digest: held[digest].bytes(), held.__getitem__, lambda digest: held[digest].open())
    old = earlier.places
    return Places(
        lambda digest: held[digest].bytes() if digest in held else old.get(digest),
        lambda digest: held[digest] if digest in held else old.held(digest),
        lambda digest: held[digest].open() if digest in held else old.peek(digest),
    )


def _stored(store: Store) -> Places:
    def held(digest: str) -> Held:
        path = store.checked(digest)
        return Held(digest, path.stat().st_size, path)

    return Places(store.get, held, lambda digest: open(store.path_of(digest), "rb"))


def _again(
    info: SourceInfo, path: str, places: Places, overflow: Overflow | None, verdicts: Mapping[int, Verdict]
) -> File:
    """A source, read again as it was declared."""
    declared = Declared(info.format, info.origin, info.limit)
    file = read_source(path, places.held(info.digest), declared, overflow, verdicts)
    return file._replace(info=msgspec.structs.replace(file.info, rule=info.rule))


def _extensions(infos: Mapping[str, SourceInfo], fresh: Set[str], places: Places) -> dict[str, str]:
    """{digest of a source: digest of the longest other one that it begins with, up to the end of a line}

    What was found among earlier sources still holds: only pairs with a new one are compared.
    """
    found = {digest: info.extends for digest, info in infos.items() if info.extends in infos and info.extends}
    seek = {
        digest for digest, info in infos.items() if digest in fresh or info.extends not in (None, found.get(digest))
    }
    by_head: dict[bytes, list[SourceInfo]] = {}
    short: list[tuple[bytes, SourceInfo]] = []
    for info in sorted(infos.values(), key=lambda info: (info.size_bytes, info.digest)):
        with places.peek(info.digest) as file:
            head = file.read(HEAD)
        shorter = [each for start, each in short if head.startswith(start)] + by_head.get(head, [])
        least = infos[found[info.digest]].size_bytes if info.digest in found else -1
        for other in reversed(shorter):
            if not least < other.size_bytes < info.size_bytes:
                continue
            if (info.digest in seek or other.digest in seek) and _begins(places, info, other):
                found[info.digest] = other.digest
                break
        if len(head) == HEAD:
            by_head.setdefault(head, []).append(info)
        else:
            short.append((head, info))
    return found


def _begins(places: Places, longer: SourceInfo, shorter: SourceInfo) -> bool:
    """Whether the longer source begins with the shorter one, which ends with a line."""
    last = b""
    with places.peek(longer.digest) as one, places.peek(shorter.digest) as other:
        while piece := other.read(PIECE):
            if one.read(len(piece)) != piece:
                return False
            last = piece
    return last.endswith(b"\n")


def _made_current(store: Store, corpus: Corpus, after: LogRow | None, **fields: list[str]) -> bool:
    """Stores the evidence and makes it the current one; False when another evidence became current meanwhile."""
    inputs = {f"source {info.digest}": info.digest for info in corpus.sources}
    inputs |= {f"part:{name} {info.digest}": part for info in corpus.sources for name, part in info.parts}
    given = [info for info in corpus.sources if info.digest in fields["given"]]
    mended = {digest for info in given for digest in (info.digest, *dict(info.parts).values())}
    for digest in inputs.values():
        if digest in mended or not store.has(digest):
            store.put(corpus.places.held(digest).place)
    corpus.digest = store.keep(KIND, corpus.evidence, schema=SCHEMA, inputs=inputs)
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
        corpus = build_evidence((), earlier, without=digest, overflow=Overflow())
        if _made_current(store, corpus, row, given=[], paths=[]):
            return corpus


def _existing(workspace: Path) -> Store | None:
    """The workspace, unless there is none yet, or another process is just making it."""
    return Store.open(workspace) if (workspace / "lab.json").exists() or workspace.is_file() else None


def _no_transition(added: Added) -> NoEvidence:
    info, more = added.sources[0], len(added.sources) - 1
    left, rejected, aside = (
        _counted(getattr(each.sums, name) for each in added.sources) for name in ("left_out", "rejected", "set_aside")
    )
    why = [
        f"{what}: {_listed(counts)}"
        for what, counts in (("rejected records", rejected), ("events set aside", aside))
        if counts
    ]
    error = NoEvidence(
        f"{added.corpus.names[info.digest]}{f' and {more} more' if more else ''}: 0 transitions from {left.total()} steps "
        f"({_listed(left) or 'no step'}), read as {info.format}{''.join(f'; {each}' for each in why)}; nothing was imported. "
        "A transition needs an action and what was answered to it"
    )
    error.report = added
    return error


def _counted(sums: Iterable[tuple[tuple[str, int], ...]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for each in sums:
        counts.update(dict(each))
    return counts


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))


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
    try:
        return Corpus(digest, store.load(digest, KIND, Evidence, schema=SCHEMA), _stored(store), names)
    except UnsupportedError:
        old = store.load(digest, KIND, _Evidence1, schema=1)
    places, overflow = _stored(store), Overflow()
    files = []
    for source in old.sources:
        declared = Declared(source.format, source.origin, source.limit)
        file = read_source(names[source.digest], places.held(source.digest), declared, overflow)
        files.append(file._replace(info=msgspec.structs.replace(file.info, rule=source.rule)))
    corpus = build_evidence(files, None, overflow=overflow)
    corpus.digest = digest
    return corpus


class _Source1(msgspec.Struct):
    """What schema 1 said of a source, and still counts; its lines stood together and are made again."""

    digest: str
    format: str
    rule: str
    origin: Origin
    limit: int | None = None


class _Evidence1(Record, kw_only=True):
    sources: tuple[_Source1, ...]
    traces: str
    transitions: str
    ledger: str
    set_aside: str
    rejected: str


class _Found(NamedTuple):
    path: Path
    is_named: bool
    """By the caller; else it was found in a directory."""


class _Reading(NamedTuple):
    """How files are read."""

    declared: Declared
    overflow: Overflow
    jobs: int | None
    progress: Progress | None


def _read_all(how: _Reading, paths: list[_Found]) -> tuple[list[File], list[tuple[str, str]]]:
    """The files, and (path, reason) of those in a directory that cannot be used; a file that was named must be usable."""
    unusable = [(name_of(each.path), _why_not(each)) for each in paths if not _is_looked_at(each)]
    files: list[File] = []
    looked_at = [each for each in paths if _is_looked_at(each)]
    jobs = min(how.jobs or _jobs(looked_at), max(1, len(looked_at)))
    shared = how.overflow.path if jobs > 1 else None  # an Overflow itself belongs to its process
    read = partial(_attempt, how.declared, shared, None if shared else how.overflow)
    results = engine.map(read, [each.path for each in looked_at], jobs=jobs)
    for number, each in enumerate(looked_at):
        if how.progress:
            how.progress(number, len(looked_at), each.path.name)
        result = next(results)
        if isinstance(result, File):
            files.append(result)
        elif each.is_named or not isinstance(result, TraceFormatError | LimitError):
            raise result
        else:
            name = name_of(each.path)
            unusable.append((name, str(result).removeprefix(f"{name}: ")))
    if not files:
        raise TraceFormatError(f"none of {len(paths)} files can be used; the first: {unusable[0][0]}: {unusable[0][1]}")
    return files, sorted(unusable)


def _attempt(declared: Declared, shared: str | None, overflow: Overflow | None, path: Path) -> File | LabError:
    """A file, or why it cannot be used. `shared` is the temporary folder of the process that asked, when it is another."""
    try:
        return read_file(path, declared, Overflow(shared, room=PIECE) if shared else overflow)
    except LabError as error:
        return error


def _is_looked_at(found: _Found) -> bool:
    return found.is_named or not _why_not(found)


def _why_not(found: _Found) -> str:
    """Why a file that was found in a directory is not looked at; empty where it is."""
    if found.path.is_dir():
        return "it is a link to a directory; name the directory to import it"
    if not found.path.exists():
        return "it is a link to nothing"
    is_known = found.path.suffix.casefold() in SUFFIXES
    return "" if is_known else f"its name ends in none of {', '.join(SUFFIXES)}; name the file to import it"


def _jobs(paths: Sequence[_Found]) -> int:
    sizes = [each.path.stat().st_size for each in paths]
    return min(engine.processors(), len(paths)) if sum(sizes) - max(sizes, default=0) > MANY_BYTES else 1


def _expanded(paths: Iterable[str | Path]) -> list[_Found]:
    found = []
    for path in chain.from_iterable(map(_globbed, paths)):
        if path.is_dir():
            inside = [_Found(each, False) for each in sorted(_below(path))]
            if not any(map(_is_looked_at, inside)):
                raise UsageError(f"{path} holds no file that ends in {', '.join(SUFFIXES)}")
            found += inside
        else:
            found.append(_Found(path, True))
    if not found:
        raise UsageError("no path was given")
    return found


def _below(directory: Path) -> list[Path]:
    """The files of a directory and its links, but hidden ones and what a workspace keeps."""
    found = [each for each in directory.rglob("*") if not each.name.startswith(".")]
    workspaces = {each.parent for each in found if each.name == "lab.json" and (each.parent / "blobs").is_dir()}
    return [
        each for each in found if (each.is_file() or each.is_symlink()) and not workspaces.intersection(each.parents)
    ]


def _globbed(path: str | Path) -> list[Path]:
    """The path, or all that a pattern with `*`, `?` or `[` stands for where no file has that name."""
    if Path(path).exists():
        return [Path(path)]
    found = sorted(glob.glob(os.fspath(path), recursive=True)) if glob.has_magic(os.fspath(path)) else []
    if not found:
        raise UsageError(f"{path} does not exist" if not glob.has_magic(os.fspath(path)) else f"no file fits {path}")
    return [Path(each) for each in found]
