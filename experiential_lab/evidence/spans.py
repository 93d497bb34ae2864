"""Turn a value inside a record into its exact text and span, and a span back into that text.

- A record is a run of bytes of the unpacked source: a line, a list element, a whole file.
- A string is quoted as its decoded text. Any other value is quoted as its exact source text. A list of nothing but text
  blocks is quoted as its texts joined by newlines (`located: normalised`); one text block alone is quoted exactly.
- A text whose pieces stand in several records (a stream) is quoted piece by piece, in their order (`located: joined`).
- `open_span` reads the same text again from the source's bytes and compares its digest: what cannot be found again is an
  IntegrityError, never another text.

- JSON text inside JSON text is another layer: `Place.into` goes down one, and a span holds one pointer a layer.

Not covered: text that is encoded otherwise than as JSON inside JSON (a Python representation, base64).
"""

import gzip
import io
import json
import lzma
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from typing import Any, BinaryIO, NamedTuple

import msgspec

from experiential_lab.evidence.spool import PIECE, Held, Overflow, Spool
from experiential_lab.records import IntegrityError, LimitError, Span, TraceFormatError

if sys.version_info >= (3, 14):
    import zipfile

    from compression.zstd import ZstdError
else:
    from backports.zstd import ZstdError, zipfile  # the standard library's reader with method 93

GZIP = b"\x1f\x8b"
ZIP = b"PK\x03\x04"
UNPACKED_RATIO, UNPACKED_LEAST = 200, 64 << 20  # what a file may unpack to: so many times its size, or so many bytes
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_LENIENT = json.JSONDecoder(parse_int=str)  # only where a value ends is asked: Python refuses to convert long integers
_Members = list[msgspec.Raw] | dict[str, msgspec.Raw]
OUTER = 2  # levels of a record that are decoded once: a message list may lie below a request
_BETWEEN = re.compile(r"[ \t\r\n,:]*")


_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    ZstdError,
)  # what a damaged zip makes its readers raise


class Text(NamedTuple):
    """A text of a record: what it says, and where it stands."""

    text: str
    pointer: str
    located: str = "exact"


class Place(NamedTuple):
    """A record inside a source."""

    source: str
    offset: int
    raw: bytes
    """The bytes that pointers go into: the record, or the decoded text of a layer of it."""
    member: str = ""
    size: int = -1
    """Bytes of the record, where `raw` is not the record itself."""
    layers: tuple[str, ...] = ()

    def into(self, text: str, pointer: str) -> "Place":
        """The same record, one decoding layer down: `text` is the JSON text of the string at `pointer`."""
        size = self.size if self.layers else len(self.raw)
        return Place(self.source, self.offset, text.encode(), self.member, size, (*self.layers, pointer))

    def span(self, at: Text) -> Span:
        """The span of one text of this record."""
        return Span(
            source=self.source,
            member=self.member,
            offset=self.offset,
            size=self.size if self.layers else len(self.raw),
            pointers=(*self.layers, at.pointer),
            end=len(at.text),
            quote="sha256:" + sha256(at.text.encode()).hexdigest(),
            located=at.located,
        )

    def whole(self) -> Span:
        """The span of the record itself, as plain text."""
        text = self.raw.decode()
        return Span(
            source=self.source,
            member=self.member,
            offset=self.offset,
            size=len(self.raw),
            end=len(text),
            quote="sha256:" + sha256(self.raw).hexdigest(),
        )

    def value(self, value: object, pointer: str) -> Text:
        """The text of a string, of a list of text blocks, or else the exact source text of the value at `pointer`."""
        if isinstance(value, str):
            return Text(value, pointer)
        if isinstance(value, list) and value and all(map(_is_text_block, value)):
            if len(value) == 1:
                return Text(_said(value[0]), f"{pointer}/0/{_said_in(value[0])}")
            return Text("\n".join(map(_said, value)), pointer, "normalised")
        return Text(source_text(self.raw, pointer), pointer)


def source_text(raw: bytes, pointer: str) -> str:
    """The exact text of the JSON value at `pointer` (RFC 6901) in `raw`; the whole text for an empty pointer.

    Raises:
        LookupError: there is no such value.
    """
    steps = _steps(pointer)
    if not steps:
        return raw.decode()
    outer = tuple(steps[: min(OUTER, len(steps) - 1)])
    try:
        value = _member(_container(raw, outer), steps[len(outer)])
        for step in steps[len(outer) + 1 :]:
            value = _member(_decoded(value), step)
        return bytes(value).decode()
    except (msgspec.DecodeError, ValueError):  # NaN and infinity are JSON to the standard library alone
        text = _as_text(raw)
        at, end = _next(text, 0), len(text)
        for step in steps:
            at, end = _places(text, at)[step]
        return text[at:end]


@lru_cache(maxsize=OUTER + 2)  # one record is asked for many of its values
def _container(raw: bytes, path: tuple[str, ...]) -> _Members:
    """The members of a record, or of the value at a short path in it."""
    return _decoded(_member(_container(raw, path[:-1]), path[-1]) if path else msgspec.Raw(raw))


def _decoded(value: msgspec.Raw) -> _Members:
    return _ARRAY.decode(value) if bytes(value).lstrip()[:1] == b"[" else _OBJECT.decode(value)


def _member(members: _Members, step: str) -> msgspec.Raw:
    return members[int(step)] if isinstance(members, list) else members[step]


@lru_cache(maxsize=1)
def _as_text(raw: bytes) -> str:
    return raw.decode()


@lru_cache(maxsize=16)  # the two outer levels, which are long, and the inner ones of one value
def _places(text: str, at: int) -> dict[str, tuple[int, int]]:
    """{key or number: (start, end)} of the object or list that starts at `at`; of equal keys the last."""
    places: dict[str, tuple[int, int]] = {}
    is_list, number = text[at] == "[", 0
    at = _next(text, at + 1)
    while text[at] not in "]}":
        name = str(number)
        if not is_list:
            name, at = _LENIENT.raw_decode(text, at)
            at = _next(text, at)
        end = _LENIENT.raw_decode(text, at)[1]
        places[name] = at, end
        number, at = number + 1, _next(text, end)
    return places


def _next(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def unpacked(data: bytes, member: str = "") -> bytes:
    """`data` as it is, or what its gzip stream or that member of its zip holds.

    Raises:
        TraceFormatError: the gzip stream or the zip is damaged or cut.
        LimitError: it unpacks to more than it may.
        LookupError: the zip has no such member.
    """
    if member:
        return dict(members(io.BytesIO(data)))[member]
    return unpacked_file(Held.of(data), None).bytes() if data.startswith(GZIP) else data


def unpacked_file(held: Held, overflow: Overflow | None) -> Held:
    """What a file holds, or what its gzip stream unpacks to. Raises as `unpacked` does."""
    with held.open() as file, Spool(overflow) as spool:
        if file.read(len(GZIP)) != GZIP:
            return held
        file.seek(0)
        size = 0
        try:
            with gzip.open(file) as inside:
                while piece := inside.read(PIECE):
                    size += len(piece)
                    _check_size("gzip stream", size, held.size_bytes)
                    spool.write(piece)
        except (OSError, EOFError, zlib.error) as error:
            raise TraceFormatError(
                f"the gzip stream is damaged ({error}); pack the file again from its original"
            ) from None
        return spool.held()


def _check_size(what: str, size: int, packed: int) -> None:
    if size > max(UNPACKED_LEAST, UNPACKED_RATIO * packed):
        raise LimitError(
            f"the {what} unpacks to {size:,} bytes or more from {packed:,}, above {UNPACKED_RATIO} times its size; unpack it"
        )


def files_of(data: bytes) -> list[tuple[str, bytes]]:
    """What a source holds when it is unpacked: one file without a name, or the members of a zip."""
    return list(members(io.BytesIO(data))) if data.startswith(ZIP) else [("", unpacked(data))]


def members(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each file inside a zip, in its order. Nothing is written, so a name is a name and no path.

    Raises:
        TraceFormatError: the zip is damaged or cut.
        LimitError: it unpacks to more than it may.
    """
    try:
        with zipfile.ZipFile(file) as pack:
            infos = [info for info in pack.infolist() if not info.is_dir()]
            _check_size("zip", sum(info.file_size for info in infos), file.seek(0, io.SEEK_END))
            for info in infos:
                yield info.filename, pack.read(info)
    except (*_ZIP_ERRORS, RuntimeError, OSError, EOFError, ValueError) as error:
        raise TraceFormatError(f"the zip is damaged ({error}); pack the files again from their originals") from None


def open_span(data: bytes, span: Span) -> str:
    """The text that `span` quotes, read again from `data`, the unpacked bytes of its source.

    Raises:
        IntegrityError: the text there is another one than the span quotes.
    """
    raw = data[span.offset : span.offset + span.size]
    try:
        text = _joined(data, span) if span.located == "joined" else _text_at(raw, span)
    except (LookupError, ValueError, TypeError, RecursionError) as error:
        raise IntegrityError(f"no value at {span.pointers} of the record at byte {span.offset}: {error}") from None
    found = "sha256:" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    if found != span.quote:
        raise IntegrityError(f"the text at byte {span.offset} {span.pointers} is {found}, the span quotes {span.quote}")
    return text


def _joined(data: bytes, span: Span) -> str:
    """The pieces of a text that several records hold: each pointer is `<bytes behind the first record>+<size><pointer>`."""
    found = []
    for piece in span.pointers:
        place, slash, pointer = piece.partition("/")
        start, size = map(int, place.split("+"))
        text = source_text(data[span.offset + start : span.offset + start + size], slash + pointer)
        found.append(json.loads(text) if text.startswith('"') else text)
    return "".join(found)[span.start : span.end]


def _text_at(raw: bytes, span: Span) -> str:
    if not span.pointers:
        return raw.decode()[span.start : span.end]
    *layers, pointer = span.pointers
    for layer in layers:
        inside = json.loads(source_text(raw, layer))
        if not isinstance(inside, str):
            raise TypeError(f"the value at {layer} holds no further layer")
        raw = inside.encode()
    text = source_text(raw, pointer)
    if span.located == "normalised":
        blocks = json.loads(text, parse_int=str)
        if not all(map(_is_text_block, blocks)):
            raise TypeError(f"the value at {pointer} is no list of text blocks")
        return "\n".join(map(_said, blocks))[span.start : span.end]
    return (json.loads(text) if text.startswith('"') else text)[span.start : span.end]


def _is_text_block(block: object) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") in ("text", "input_text", "output_text", None)
        and isinstance(block.get(_said_in(block)), str)
    )


def _said_in(block: dict[str, Any]) -> str:
    """Where a text block holds its text: the OpenTelemetry parts have the same type and another key."""
    return "content" if "text" not in block and block.get("type") == "text" else "text"


def _said(block: dict[str, Any]) -> str:
    text = block[_said_in(block)]
    assert isinstance(text, str)
    return text


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
