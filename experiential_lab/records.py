"""Values that every room shares, their one spelling in bytes, and the errors that are raised on purpose.

- A record is a frozen, keyword-only msgspec struct. Outside data enters by decode or convert only: a constructor does
  not validate.
- `canonical_bytes` gives a record one spelling: UTF-8 JSON, sorted keys, no spaces, absent optionals omitted.
  `digest` hashes that spelling, so equal records have equal digests on every machine.
- A record with a digest holds null, bool, integers below 2**53, strings and ASCII keys. On that profile the standard
  library, orjson, msgspec and RFC 8785 write the same bytes. Scores are integers, ratios decimal strings, money integer
  nano-dollars, durations integer nanoseconds, moments RFC 3339 text. NaN is refused, never written as null.
- No record depends on a clock, a host or a random value: those stand in the log row that names the record.

Not covered: a digest proves that bytes are equal, not that what they say is true.
"""

import hashlib
import json
import math
from typing import Any, Literal, dataclass_transform

import msgspec

Json = dict[str, Any] | list[Any] | str | int | float | bool | None

SAFE_INTEGER = (1 << 53) - 1  # the largest integer that every JSON reader keeps exactly


class LabError(Exception):
    """Root of every error that this library raises on purpose. `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(LabError):
    """The call itself cannot be carried out: a missing path, a workspace that cannot be written, a bad argument."""

    exit_code = 2


class TraceFormatError(LabError):
    """A file holds no usable evidence: empty, binary, damaged, of an unknown or a wrongly declared format."""

    exit_code = 3


class NoEvidence(LabError):
    """The evidence that a call needs is missing: nothing imported, nothing split. The raised form of `Unverifiable`."""

    exit_code = 3
    report: object = None
    """The import report of files that hold no transition."""


class UnsupportedError(LabError):
    """What is asked for lies outside what this version does, for example a workspace of a newer schema."""

    exit_code = 4


class LimitError(LabError):
    """A stated limit would be exceeded. Nothing was truncated and nothing was changed."""

    exit_code = 4


class IntegrityError(LabError):
    """Stored bytes, a digest or a chain is not the one recorded."""

    exit_code = 5


class StaleError(LabError):
    """An artifact was built from another state of the workspace than the one it is used with."""

    exit_code = 5


class LeakageError(LabError):
    """A held-out or excluded entry reached a place that must not see it."""

    exit_code = 5


class ProviderError(LabError):
    """A provider or an environment failed, or answered with something that cannot be used."""

    exit_code = 6


@dataclass_transform(frozen_default=True, kw_only_default=True)  # what type checkers must know of every subclass
class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all values that are written to disk or shown to a user. Repeat `kw_only=True` on every subclass."""


class Unverifiable(Record, kw_only=True):
    """Evidence that is missing, as a value: it is neither a failure nor an empty result."""

    reason: str


class Span(
    Record, kw_only=True, gc=False
):  # thousands a file; frozen and of plain values, so no cycle can pass through
    """A place in a source, from which the exact text can be read again."""

    source: str
    """Digest of the file's bytes as found on disk."""
    member: str = ""
    """Path inside a zip; bytes are counted after unpacking .gz or .zip."""
    offset: int
    """First byte of the record (line, list element, whole file)."""
    size: int
    """Bytes of the record."""
    pointers: tuple[str, ...] = ()
    """RFC 6901 pointers inside the record, one a decoding layer; none in plain text."""
    start: int = 0
    """First code point of the text at the pointer."""
    end: int
    """One past its last code point."""
    quote: str
    """Digest of the quoted text as UTF-8."""
    located: str = "exact"
    """`exact`; `normalised`: a list of text blocks, joined by newlines; `fuzzy:93` (percent)."""


class Cost(Record, kw_only=True):
    """What one component used and what it cost. None is unknown, never zero."""

    usage: tuple[tuple[str, int], ...] | None = None
    """((kind of unit, count), ...), sorted by kind."""
    cost_nusd: int | None = None
    """Nano-dollars."""
    basis: Literal["observed", "estimated", "free", "unknown"] = "unknown"


FREE = Cost(usage=(), cost_nusd=0, basis="free")


class Failure(Record, kw_only=True):
    """Something that went wrong inside an experiment: it is recorded, not raised."""

    code: str
    attribution: Literal["candidate", "world_model", "retrieval", "environment", "harness"]
    phase: str
    retryable: bool
    detail: str


_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical_bytes(record: Record) -> bytes:
    """The one spelling of `record`: UTF-8 JSON, sorted keys, no spaces, defaults omitted.

    Raises:
        ValueError: a text is no Unicode (a lone surrogate).
    """
    return _ENCODER.encode(record)


def digest(record: Record) -> str:
    """`sha256:` and 64 hex digits of the canonical bytes."""
    return digest_of(_ENCODER.encode(record))


def digest_of(data: bytes) -> str:
    """`sha256:` and 64 hex digits of `data`."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def short_id(*parts: str) -> str:
    """16 hex digits of the sha256 of `parts`, each kept apart from the next."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def canonical_json(value: Json) -> str:
    """The one spelling of any finite JSON value: sorted keys, no spaces, a whole float as an integer.

    >>> canonical_json({"b": 1.0, "a": [True, None]})
    '{"a":[true,null],"b":1}'

    Raises:
        ValueError: NaN or infinity, which JSON cannot hold.
    """
    return json.dumps(_whole(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _whole(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) <= SAFE_INTEGER:
        return int(value)
    return value
