"""A workspace on disk: bytes named by their digest, and one log that only grows.

- A stored thing is one blob, put in place whole, after its bytes are on disk; `get` digests what it read. Putting the
  same bytes again compares the blob and mends a damaged one.
- A kept record is a blob with a private header: kind, schema, and the digests that it was built from (`inputs`).
- Each line of the log holds the digest of the line before. HEAD holds the count of lines and the digest of the last,
  so a cut tail is seen. Lines beyond HEAD, from a crash between the two writes, count when they continue the chain.
- Bytes after the last newline are a torn write: readers ignore them, the next appender cuts them and logs that.
- One appender at a time, by a lock that the kernel frees with its process. Readers take no lock.
- In the fields of a log row, `artifact` names a kept record and a key that ends in `_digest` names plain bytes. Both
  must be stored: another hash needs another key.
- `cache/` may be deleted at any time.

Not covered: nothing is signed. Who may write every file can write another history that verifies. Temporary files that
a crash leaves in `cache/tmp` stay there. The file is long because log, blobs and their check share one crash rule.
"""

import errno
import fcntl
import os
import pwd
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from experiential_lab.records import (
    SAFE_INTEGER,
    IntegrityError,
    LabError,
    Record,
    UnsupportedError,
    UsageError,
    canonical_bytes,
    digest_of,
)

SCHEMA = 1
KINDS = (
    "workspace_created",
    "evidence_built",
    "split_made",
    "index_built",
    "artifact_kept",
    "forgotten",
    "log_tail_cut",
)

_LAB = b'{"schema":%d}\n' % SCHEMA
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PIECE = 1 << 20  # bytes of a file that are read at once
_TAIL_BYTES = 1 << 16  # what an appender reads of the log; a longer last line costs it a read of the whole

Clock = Callable[[], str]
Watch = Callable[[str], None]
R = TypeVar("R", bound=Record)
T = TypeVar("T")


class LogRow(Record, frozen=True, kw_only=True):
    number: int
    """From 0."""
    previous: str
    """Digest of the line before, without its newline; empty in the first."""
    at: str
    """RFC 3339, UTC."""
    host: str
    actor: str
    kind: str
    """One of KINDS."""
    fields: dict[str, Any]
    """JSON without floats."""


class Problem(Record, frozen=True, kw_only=True):
    artifact: str
    """Path relative to the workspace, or the digest of a missing blob."""
    problem: str


class Verification(Record, frozen=True, kw_only=True):
    artifacts: int
    """Files in the workspace."""
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


class _Head(Record, frozen=True, kw_only=True):
    count: int
    digest: str


class Kept(NamedTuple):
    """A kept record as plain values."""

    kind: str
    schema: int
    inputs: dict[str, str]
    body: Any


class _Kept(Record, frozen=True, kw_only=True):
    kind: str
    schema: int
    inputs: dict[str, str]
    body: msgspec.Raw


class _Tail(NamedTuple):
    """Where the next line goes."""

    head: _Head
    end: int
    torn: bytes


def utc_now() -> str:
    """The system clock as RFC 3339 text in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _ignore(step: str) -> None:
    pass


class Store:
    """One workspace. Use `Store.open`: the constructor itself reads and checks nothing.

    `on_write` hears `before <step>` and `after <step>` of every write, so that a test can stop the process there.
    Every call that writes raises UsageError, with nothing written, when the workspace is read-only.
    """

    def __init__(self, path: str | Path, *, clock: Clock = utc_now, actor: str = "", on_write: Watch = _ignore) -> None:
        self.path = Path(path)
        self._clock = clock
        self._actor = actor or _user()
        self._on_write = on_write

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = False,
        clock: Clock = utc_now,
        actor: str = "",
        on_write: Watch = _ignore,
    ) -> Self:
        """The workspace at `path`; with `create` it is made when there is none. No `actor`: the user of the process.

        Raises:
            UsageError: there is none, `path` is a file or a folder of other things, or it cannot be written.
            UnsupportedError: a newer version made it.
            IntegrityError: lab.json is damaged, or lost while the log has rows.
        """
        store = cls(path, clock=clock, actor=actor, on_write=on_write)
        if os.path.exists(path) and not os.path.isdir(path):
            raise UsageError(f"{path} is a file and a workspace is a folder; name another one")
        if create and not os.path.exists(store.path / "lab.json"):
            store._create()
        store._check_lab()
        return store

    def writable(self) -> None:
        """Return when the workspace can be written.

        Raises:
            UsageError: it is read-only, or there is none.
        """
        self._check_exists()
        for name in ("", "log.jsonl", "blobs", "cache"):
            if os.path.exists(self.path / name):
                self._check_writable(self.path / name)

    def path_of(self, digest: str) -> Path:
        """Where the bytes of `digest` are, or would be.

        Raises:
            UsageError: `digest` is not `sha256:` and 64 hex digits.
        """
        if not _DIGEST.fullmatch(digest):
            raise UsageError(f"{digest!r} is no digest; one is sha256: and 64 hex digits")
        return self.path / "blobs" / digest[7:9] / digest[9:]

    def has(self, digest: str) -> bool:
        """Whether there is a blob of that name; its bytes are not read. Raises as `path_of` does."""
        return os.path.isfile(self.path_of(digest))

    def put(self, data: bytes | Path) -> str:
        """Store `data`, or what a file holds, once and return its digest.

        Raises:
            UsageError: the workspace cannot be written.
        """
        self.writable()
        digest = digest_of(data) if isinstance(data, bytes) else _digest_of_file(data)
        path = self.path_of(digest)
        stored = False
        with suppress(OSError):  # absent, or a disk that cannot give it back: writing it cures both
            stored = _digest_of_file(path) == digest
        if not stored:
            with self._staged("blob", data) as temporary, self._writing("place blob"):
                path.parent.mkdir(parents=True, exist_ok=True)
                os.replace(temporary, path)
        with self._writing("sync blob"):  # a stored one too: who placed it may have died before this line
            _sync(path.parent, path.parent.parent)
        return digest

    def checked(self, digest: str) -> Path:
        """The file that holds the bytes of `digest`, checked; for bytes that need not be in memory. Raises as `get` does."""
        path = self.path_of(digest)
        try:
            found = _digest_of_file(path)
        except OSError:
            self.get(digest)  # says what is wrong
            raise
        if found != digest:
            raise IntegrityError(f"{path} holds {found} instead of {digest}; store its bytes again or restore it")
        return path

    def get(self, digest: str) -> bytes:
        """The bytes of `digest`, checked.

        Raises:
            IntegrityError: the blob is missing, or its bytes have another digest.
        """
        path = self.path_of(digest)
        data = _read(path, f"blob {digest}")
        if (found := digest_of(data)) != digest:
            raise IntegrityError(f"{path} holds {found} instead of {digest}; store its bytes again or restore it")
        return data

    def keep(self, kind: str, record: Record, *, schema: int = 1, inputs: Mapping[str, str] = {}) -> str:
        """Store `record` as one blob that says what it is and what it was built from; return the blob's digest.

        Raises:
            IntegrityError: an input is not stored.
            UsageError: the workspace cannot be written.
        """
        self._check_stored(kind, inputs.items())
        body = msgspec.Raw(canonical_bytes(record))
        return self.put(canonical_bytes(_Kept(kind=kind, schema=schema, inputs=dict(inputs), body=body)))

    def load(self, digest: str, kind: str, type: type[R], *, schema: int = 1) -> R:
        """The record kept under `digest`. An older form is read with its own `schema` and `type`.

        Raises:
            IntegrityError: the blob is missing, damaged, of another kind, or no such record.
            UnsupportedError: it has another schema.
        """
        kept = self._kept(digest)
        if kept.kind != kind:
            raise IntegrityError(f"{digest} is kept as {kept.kind}, not as {kind}")
        if kept.schema != schema:
            raise UnsupportedError(f"{digest} is a {kind} of schema {kept.schema}; this version reads schema {schema}")
        return _decode(kept.body, type, f"{digest} is kept as {kind} but holds none")

    def inputs_of(self, digest: str) -> dict[str, str]:
        """The digests, by name, of what the record kept under `digest` was built from.

        Raises:
            IntegrityError: the blob is missing, damaged, or plain bytes.
        """
        return self._kept(digest).inputs

    def describe(self, digest: str) -> Kept:
        """What the record kept under `digest` is, and what it was built from; its body as plain JSON.

        Raises:
            IntegrityError: the blob is missing, damaged, or plain bytes.
        """
        kept = self._kept(digest)
        return Kept(kept.kind, kept.schema, kept.inputs, _decode(kept.body, Any, f"{digest} holds no JSON"))

    def append_after(self, number: int, kind: str, /, **fields: Any) -> LogRow | None:
        """Add one row, unless a row of that kind stands behind row `number`: then None, and nothing was written.

        So two processes that build on the same state do not overwrite each other: the second builds again. Raises as
        `append` does.
        """
        return self._append(kind, fields, after=number)

    def append(self, kind: str, /, **fields: Any) -> LogRow:
        """Add one row to the log and return it as it will be read.

        Raises:
            ValueError: a kind that is not in KINDS, or a field that is no JSON without floats.
            IntegrityError: a field names a digest that is not stored, or the log is damaged.
            UsageError: the workspace cannot be written. A disk that fails after the line is there leaves the row.
        """
        row = self._append(kind, fields)
        assert row is not None
        return row

    def _append(self, kind: str, fields: dict[str, Any], *, after: int | None = None) -> LogRow | None:
        _check_kind(kind)
        if not _is_profile(fields):
            raise ValueError(f"{fields!r} cannot be logged; a field holds null, bool, integers below 2**53 and text")
        self._check_stored(kind, _named_digests(fields))
        self.writable()
        with self._locked() as log:
            if after is not None and any(row.kind == kind and row.number > after for row in self._read_log()):
                return None
            tail = self._tail(log)
            events = [(kind, fields)]
            if tail.torn:
                events.insert(0, ("log_tail_cut", {"bytes": len(tail.torn), "digest": digest_of(tail.torn)}))
            return self._extend(log, tail, events)

    def rows(self, kind: str | None = None) -> list[LogRow]:
        """All rows of the log, or those of one kind, in order; the chain and HEAD are checked.

        Raises:
            ValueError: a kind that is not in KINDS.
            IntegrityError: a row was changed, or the tail was cut.
            UnsupportedError: a row of a kind that this version does not know.
        """
        if kind is not None:
            _check_kind(kind)
        try:
            rows = self._read_log()
        except IntegrityError:
            # A torn write that an appender replaced while it was read looks like damage: look again, with it locked out.
            with self._locked(fcntl.LOCK_SH):
                rows = self._read_log()
        return [row for row in rows if kind in (None, row.kind)]

    def latest(self, kind: str) -> LogRow | None:
        """The last row of that kind. Raises as `rows` does."""
        return next(reversed(self.rows(kind)), None)

    def cache_write(self, name: str, data: bytes) -> Path:
        """Store what can be made again, in place of what `name` held. `name` should say what it was made from.

        Raises:
            UsageError: the workspace cannot be written, or a `name` of more than letters, digits, `_`, `.` and `-`.
        """
        self.writable()
        path = self.path / "cache" / f"{name}.{digest_of(data)[7:23]}"
        with self._staged("cache", data) as temporary:
            with self._writing("remove cache"):
                for old in self._cached(name):
                    old.unlink(missing_ok=True)
            self._place("cache", temporary, path)
        return path

    def cache_read(self, name: str) -> bytes | None:
        """What was last written under `name`; None when it is absent or damaged, or two writers raced."""
        with suppress(OSError, ValueError):  # ValueError: no entry, or two
            [path] = self._cached(name)
            data = path.read_bytes()
            return data if path.name == f"{name}.{digest_of(data)[7:23]}" else None
        return None

    def forget(self, digest: str, *, why: str) -> tuple[str, ...]:
        """Remove a blob, and every kept record that was built from it with its own parts; return their digests.

        A part is an input whose name begins with `part:`; one that another record still owns stays. One row of the log is
        the tombstone: it names what is gone and why, before anything goes.

        Raises:
            IntegrityError: the blob is not stored, or the log is damaged.
            UsageError: the workspace cannot be written.
        """
        self._check_stored("forget", [("blob", digest)])
        gone = {digest}
        artifacts = {str(row.fields["artifact"]) for row in self.rows() if "artifact" in row.fields} - self.forgotten()
        inputs = {artifact: self.inputs_of(artifact) for artifact in artifacts}
        while True:
            hit = {artifact for artifact in artifacts - gone if gone & set(inputs[artifact].values())}
            if not hit:
                break
            gone |= hit
            living = {part for artifact in artifacts - gone for part in _parts(inputs[artifact])}
            gone |= {part for artifact in hit for part in _parts(inputs[artifact])} - living
        removed = tuple(sorted(gone))
        self.append("forgotten", source=digest, why=why, removed=list(removed))
        for each in removed:
            with self._writing("remove blob"):
                self.path_of(each).unlink(missing_ok=True)
        return removed

    def forgotten(self) -> set[str]:
        """The digests that were removed on purpose and not stored again."""
        return {
            each for row in self.rows("forgotten") for each in row.fields["removed"] if not self.path_of(each).exists()
        }

    def verify(self) -> Verification:
        """Read every file of the workspace and name each one that is damaged, missing or unknown.

        What a crash may leave is no problem: a torn write after the log, temporary files in `cache/tmp`.
        """
        problems: list[Problem] = []
        for artifact, check in (("lab.json", self._check_lab), ("HEAD", self._head), ("log.jsonl", self.rows)):
            try:
                check()
            except LabError as error:
                problems.append(Problem(artifact=artifact, problem=str(error)))
        rows: list[LogRow] = []
        with suppress(LabError):  # named above
            rows = self.rows()
        named = [(row.number, key, digest) for row in rows for key, digest in _named_digests(row.fields)]
        plain = {digest for _, key, digest in named if key != "artifact"}
        gone = {each for row in rows if row.kind == "forgotten" for each in row.fields["removed"]}
        count = size = 0
        for path in sorted(Path(folder, name) for folder, _, names in os.walk(self.path) for name in names):
            artifact = path.relative_to(self.path).as_posix()
            try:
                size += path.lstat().st_size
                count += 1
                problems += [
                    Problem(artifact=artifact, problem=text) for text in self._faults(path, artifact, plain, gone)
                ]
            except FileNotFoundError:
                pass  # a temporary file or a cache entry went meanwhile
            except OSError as error:
                problems.append(Problem(artifact=artifact, problem=f"cannot be read: {error.strerror}"))
        for number, key, digest in named:
            if not self.has(digest) and digest not in gone:
                problems.append(Problem(artifact=digest, problem=f"missing; row {number} of the log names it as {key}"))
        return Verification(artifacts=count, bytes=size, problems=tuple(problems))

    def _faults(self, path: Path, artifact: str, plain: set[str], gone: set[str]) -> Iterator[str]:
        """Say what is wrong with one file.

        `plain`: digests whose bytes are never read as a kept record; `gone`: those that were removed on purpose.
        """
        if artifact in ("lab.json", "HEAD", "log.jsonl") or re.fullmatch(r"cache/tmp/[0-9a-f]{16}\.tmp", artifact):
            return  # the first three hang together: `verify` checks them itself
        if re.fullmatch(r"blobs/[0-9a-f]{2}/[0-9a-f]{62}", artifact):
            digest = "sha256:" + artifact[6:].replace("/", "")
            try:
                self.checked(digest)
            except LabError as error:
                yield str(error)
                return
            is_kept = next(_pieces(path), b"").startswith(b'{"body":')  # else it is not read as a whole
            if is_kept and digest not in plain:  # an imported file may look like a kept record: its inputs say nothing
                yield from self._missing_inputs(self.get(digest), gone)
        elif re.fullmatch(r"cache/[^/]+\.[0-9a-f]{16}", artifact):
            if (found := digest_of(path.read_bytes()))[7:23] != artifact[-16:]:
                yield f"damaged cache entry: it holds {found}; delete it"
        else:
            yield "unknown file: no part of a workspace"

    def _missing_inputs(self, data: bytes, gone: set[str]) -> Iterator[str]:
        with suppress(IntegrityError):  # plain bytes
            for name, digest in _decode(data, _Kept, "").inputs.items():
                if digest not in gone and not (_DIGEST.fullmatch(digest) and self.has(digest)):
                    yield f"its input {name}, {digest}, is missing"

    def _check_lab(self) -> None:
        self._check_exists()
        data = _read(self.path / "lab.json")
        with suppress(IntegrityError):  # the comparison below says it better
            schema = _decode(data, dict[str, Any], "").get("schema")
            if isinstance(schema, int) and schema > SCHEMA:
                raise UnsupportedError(
                    f"workspace {self.path} has schema {schema}, this version reads schema {SCHEMA}; update experiential_lab"
                )
        if data != _LAB:
            raise IntegrityError(f"{self.path / 'lab.json'} is damaged: it holds {data[:60]!r} instead of {_LAB!r}")

    def _check_stored(self, kind: str, named: Iterable[tuple[str, str]]) -> None:
        for name, digest in named:
            if not self.has(digest):
                raise IntegrityError(f"{kind} refused: its {name}, {digest}, is not stored; put it first")

    def _kept(self, digest: str) -> _Kept:
        return _decode(self.get(digest), _Kept, f"{digest} holds plain bytes, no kept record")

    def _cached(self, name: str) -> list[Path]:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise UsageError(f"{name!r} cannot name a cache entry; use letters, digits, _, . and -")
        return list((self.path / "cache").glob(f"{name}.{'[0-9a-f]' * 16}"))

    def _read_log(self) -> list[LogRow]:
        head = self._head()  # before the log, which may grow meanwhile but never falls below what HEAD counts
        *lines, _ = _read(self.path / "log.jsonl").split(b"\n")
        return _check_chain(lines, head)

    def _head(self) -> _Head:
        data = _read(self.path / "HEAD")
        with suppress(IntegrityError):
            head = _decode(data, _Head, "")
            if data == canonical_bytes(head) + b"\n":
                return head
        raise IntegrityError(f"{self.path / 'HEAD'} is damaged: it holds {data[:100]!r}, not a count and a digest")

    @contextmanager
    def _locked(self, how: int = fcntl.LOCK_EX) -> Iterator[FileIO]:
        path = self.path / "log.jsonl"
        if not path.exists():
            raise IntegrityError(f"{path} is missing; restore it from a copy")
        with ExitStack() as stack:
            with self._writing("lock log"):
                log = stack.enter_context(FileIO(path, "r" if how == fcntl.LOCK_SH else "r+"))
                fcntl.flock(log, how)
            # Closing alone does not unlock while a forked child shares the descriptor.
            stack.callback(fcntl.flock, log, fcntl.LOCK_UN)
            yield log

    def _tail(self, log: FileIO) -> _Tail:
        head = self._head()
        end = log.seek(0, os.SEEK_END)
        log.seek(max(0, end - _TAIL_BYTES))
        *lines, torn = log.readall().split(b"\n")
        if torn or not lines or digest_of(lines[-1]) != head.digest or _row(lines[-1]).number != head.count - 1:
            log.seek(0)  # a crash, or damage: check the whole
            *lines, torn = log.readall().split(b"\n")
            head = _Head(count=len(_check_chain(lines, head)), digest=digest_of(lines[-1]) if lines else "")
        return _Tail(head, end - len(torn), torn)

    def _extend(self, log: FileIO, tail: _Tail, events: list[tuple[str, dict[str, Any]]]) -> LogRow:
        count, previous, data, line = tail.head.count, tail.head.digest, b"", b""
        stamp = {"at": self._clock(), "host": os.uname().nodename, "actor": self._actor}
        for kind, fields in events:
            line = canonical_bytes(LogRow(number=count, previous=previous, kind=kind, fields=fields, **stamp))
            count, previous, data = count + 1, digest_of(line), data + line + b"\n"
        # HEAD is staged before the line is written: a full disk fails here, with the log as it was.
        with self._staged("HEAD", canonical_bytes(_Head(count=count, digest=previous)) + b"\n") as temporary:
            with self._writing("write log"):
                log.seek(tail.end)
                _write(log, data)  # over a torn write: its bytes go when the row that tells of them is there
            with self._writing("cut and sync log"):
                log.truncate()
                os.fsync(log.fileno())
            self._place("HEAD", temporary, self.path / "HEAD")
        return _row(line)

    def _create(self) -> None:
        """Make the workspace. lab.json comes last: without it there is none, and a half-made one is made again."""
        there = next(place for place in (self.path, *self.path.parents) if os.path.exists(place))
        self._check_writable(there)
        ours = {"lab.json", "log.jsonl", "HEAD", "blobs", "cache"}
        if there == self.path and (foreign := sorted(set(os.listdir(there)) - ours)):
            raise UsageError(f"{self.path} is no workspace and not empty ({foreign[0]}); name another folder")
        with self._writing("make folders"):
            (self.path / "blobs").mkdir(parents=True, exist_ok=True)
        with self._writing("make log"):
            FileIO(self.path / "log.jsonl", "a").close()
            _sync(self.path, self.path.parent)
        with self._locked() as log:
            if not os.path.exists(self.path / "lab.json"):  # else another process was faster
                self._begin(log)

    def _begin(self, log: FileIO) -> None:
        held = log.readall()
        if (count := held.count(b"\n")) > 1:
            raise IntegrityError(
                f"{self.path / 'lab.json'} is missing while the log has {count} rows; restore the file"
            )
        if held and not held.startswith(b'{"actor":'):
            raise UsageError(f"{self.path / 'log.jsonl'} is no log of a workspace; name another folder")
        with self._writing("empty log"):
            log.truncate(0)  # the rest of a longer first line would count as a second one
        self._extend(log, _Tail(_Head(count=0, digest=""), 0, b""), [("workspace_created", {"schema": SCHEMA})])
        with self._staged("lab.json", _LAB) as temporary:
            self._place("lab.json", temporary, self.path / "lab.json")

    @contextmanager
    def _staged(self, what: str, data: bytes | Path) -> Iterator[Path]:
        """A temporary file on the same file system whose bytes are on disk; it is gone after the block."""
        temporary = self.path / "cache" / "tmp" / f"{secrets.token_hex(8)}.tmp"
        try:
            with self._writing(f"stage {what}"):
                temporary.parent.mkdir(parents=True, exist_ok=True)
                with FileIO(temporary, "x") as file:
                    for piece in _pieces(data):
                        _write(file, piece)
                    os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(OSError):  # moved, or the disk is gone: the first error is the one to tell
                temporary.unlink()

    def _place(self, what: str, temporary: Path, path: Path) -> None:
        with self._writing(f"place {what}"):
            os.replace(temporary, path)
        with self._writing(f"sync {what}"):
            _sync(path.parent)

    @contextmanager
    def _writing(self, step: str) -> Iterator[None]:
        try:
            self._on_write(f"before {step}")
            yield
            self._on_write(f"after {step}")
        except OSError as error:
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise UsageError(self._read_only(f"{step}: {error.strerror}")) from error
            name = errno.errorcode.get(error.errno or 0, "error")
            raise UsageError(
                f"workspace {self.path} cannot be written: {error.strerror} ({name}, {step}); free space and run again"
            ) from error

    def _check_exists(self) -> None:
        if not os.path.exists(self.path / "lab.json"):
            raise UsageError(f"no workspace at {self.path} (no lab.json); `xlab import PATH` makes one")

    def _check_writable(self, place: Path) -> None:
        # Root passes every permission check, and would write what somebody made read-only: ask the bits too.
        if not os.access(place, os.W_OK) or not os.stat(place).st_mode & 0o222:
            raise UsageError(self._read_only(f"{place} cannot be written"))

    def _read_only(self, why: str) -> str:
        return f"workspace {self.path} is read-only; make it writable or name another one ({why})"


def _check_chain(lines: list[bytes], head: _Head) -> list[LogRow]:
    """The rows of complete `lines`, each of which must name the one before; HEAD must agree with the one it counts."""
    rows: list[LogRow] = []
    digests = [""]
    for number, line in enumerate(lines):
        row = _row(line)
        if row.number != number or row.previous != digests[-1]:
            raise IntegrityError(
                f"log.jsonl: row {number} says it is row {row.number} after {row.previous!r}, "
                f"but the row before it is {digests[-1]!r}: one of the two was changed"
            )
        rows.append(row)
        digests.append(digest_of(line))
    found = digests[head.count] if 0 <= head.count <= len(rows) else None
    if found != head.digest:
        raise IntegrityError(
            f"cut log tail: HEAD counts {head.count} rows, the last {head.digest[:15]!r}; log.jsonl has {len(rows)} rows, and "
            f"there it has {found[:15] if found else None!r}; restore log.jsonl and HEAD together from a copy"
        )
    for row in rows:
        if row.kind not in KINDS:
            raise UnsupportedError(
                f"log.jsonl: row {row.number} is of kind {row.kind!r}, unknown here; update this version"
            )
    return rows


def _row(line: bytes) -> LogRow:
    return _decode(line, LogRow, f"log.jsonl: {line[:80]!r} is no row")


def _decode(data: bytes | msgspec.Raw, type: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise IntegrityError(f"{what}: {error}") from None


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind of log row; they are {', '.join(KINDS)}")


def _is_profile(value: Any) -> bool:
    match value:
        case None | bool() | str():
            return True
        case int():
            return abs(value) <= SAFE_INTEGER
        case list() | tuple():
            return all(map(_is_profile, value))
        case dict():
            return all(isinstance(key, str) and key.isascii() and _is_profile(item) for key, item in value.items())
    return False


def _parts(inputs: Mapping[str, str]) -> set[str]:
    """The digests of what a kept record owns."""
    return {digest for name, digest in inputs.items() if name.startswith("part:")}


def _named_digests(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in fields.items():
        if (key == "artifact" or key.endswith("_digest")) and isinstance(value, str) and _DIGEST.fullmatch(value):
            yield key, value


def _read(path: Path, what: str = "") -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise IntegrityError(f"{what or path} is missing: there is no file {path}; restore it from a copy") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _pieces(data: bytes | Path) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield data
        return
    with FileIO(data) as file:
        while piece := file.read(_PIECE):
            yield piece


def _digest_of_file(path: Path) -> str:
    digest = sha256()
    for piece in _pieces(path):
        digest.update(piece)
    return "sha256:" + digest.hexdigest()


def _write(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:  # a raw write may take a part only
        rest = rest[file.write(rest) :]


def _sync(*folders: Path) -> None:
    """Bring the names in `folders` to disk: only then a rename survives a power cut."""
    for folder in folders:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number without a name
        return str(os.getuid())
