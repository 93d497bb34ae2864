"""Turn the bytes of a file into records with their places, and every unreadable record into a reason.

- A file is lines (JSONL), a list whose elements are the records, one object, or the `data:` lines of a stream of server-sent
  events. Which of them is read from the bytes, never from the file's name.
- The records of a long file of lines are read from it each time they are asked for: memory holds their places alone. A list
  and an object are read whole.
- Lines end at byte 0x0A only: U+2028 and U+0085 live inside strings. A byte order mark and carriage returns are no part of
  a record; a blank line is none.
- One bad record costs itself alone, in a list too. A list that is cut short gives its complete elements, and the rest as
  `truncated`; what stands behind a list's end is a record that is `not_json`.
- NaN and infinity are accepted on reading, as the standard library does. A text that is no Unicode is `not_utf8`. Of equal
  keys the last counts. A record nested deeper than `DEEPEST` is `too_deep`, on every machine.

Not covered: what a record means.
"""

import io
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, BinaryIO, NamedTuple, overload

import msgspec

from experiential_lab.evidence.spans import ZIP, members, unpacked_file
from experiential_lab.evidence.spool import Held, Overflow
from experiential_lab.records import TraceFormatError

BOM = b"\xef\xbb\xbf"
HEAD = 4_096  # bytes that tell what a file is
LONG = 32 << 20  # bytes; the records of a shorter file of lines are kept as they were read
DEEPEST = 400  # levels; what a parser itself bears (about 1,000) depends on the interpreter and on its caller's stack
_SPACE = b" \t\r\n"
_BETWEEN = re.compile(rb"[ \t\r\n,]*")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)  # a string, cut or whole, or one sign of structure
_STREAM = re.compile(rb"(?:\s|:[^\n]*\n)*(?:data|event|id|retry):")
_SSE = re.compile(rb"(?P<name>data|event|id|retry|): ?[ \t]*")  # a field of an event; without a name it is a comment
_NO_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[^"\[\]{}]++', re.DOTALL)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_RAW = msgspec.json.Decoder(msgspec.Raw)
_ANY = msgspec.json.Decoder()


class Framed(NamedTuple):
    """One record: its number (from 1), first byte, bytes, and the value that it holds or the reason why it holds none."""

    number: int
    offset: int
    raw: bytes
    value: Any
    reason: str = ""
    member: str = ""
    """Path inside a zip."""


class Lines(Sequence[Framed]):
    """The records of a long file of lines. Each is read again whenever it is asked for."""

    def __init__(self, held: Held, places: tuple["array[int]", "array[int]", "array[int]"], *, cut: bool) -> None:
        self._held, self._places, self._cut = held, places, cut

    def __len__(self) -> int:
        return len(self._places[0])

    def __iter__(self) -> Iterator[Framed]:
        with self._held.open() as file:
            for at in range(len(self)):
                yield self._read(file, at)

    @overload
    def __getitem__(self, at: int) -> Framed: ...
    @overload
    def __getitem__(self, at: slice) -> "Lines": ...
    def __getitem__(self, at: int | slice) -> "Framed | Lines":
        if isinstance(at, slice):
            numbers, offsets, sizes = self._places
            is_cut = self._cut and len(numbers) - 1 in range(len(numbers))[at]
            return Lines(self._held, (numbers[at], offsets[at], sizes[at]), cut=is_cut)
        with self._held.open() as file:
            return self._read(file, range(len(self))[at])

    def _read(self, file: BinaryIO, at: int) -> Framed:
        number, offset, size = (column[at] for column in self._places)
        file.seek(offset)
        record = _framed(number, offset, file.read(size))
        return record._replace(reason="truncated") if self._cut and at == len(self) - 1 else record


class Frames(NamedTuple):
    layout: str
    """`lines`, `list`, `object`, or `zip`: the records of all its members."""
    records: Sequence[Framed]
    data: bytes = b""
    """The file, where it is a list that can be read as one value."""

    def as_one(self) -> Framed:
        """The whole file as one record, for a format whose unit is a file that happens to be a list."""
        offset, raw = _trimmed(self.data, len(BOM) if self.data.startswith(BOM) else 0, len(self.data))
        return Framed(1, offset, raw, [record.value for record in self.records])


def frame(source: bytes | Held, *, overflow: Overflow | None = None) -> Frames:
    """The records of one file, in order; gzip and zip are unpacked.

    Raises:
        TraceFormatError: the file is empty, binary, damaged, or neither JSON nor JSON lines.
        LimitError: a zip or a gzip stream unpacks to more than it may.
    """
    held = source if isinstance(source, Held) else Held.of(source)
    with held.open() as file:
        if file.read(4) == ZIP:
            records = [record for name, inside in members(file) for record in _of_member(name, inside)]
            if not records:
                raise TraceFormatError("the zip is empty; nothing to import")
            return Frames("zip", records)
    held = unpacked_file(held, overflow)
    lines = _long_lines(held) if held.size_bytes > LONG else None
    return Frames("lines", lines) if lines else _frame(held.bytes())


def _of_member(name: str, data: bytes) -> list[Framed]:
    """The records of one file of a zip. A file that holds none is one unreadable record: it does not cost the others."""
    try:
        return [record._replace(member=name) for record in _frame(data).records]
    except TraceFormatError:
        return [Framed(1, 0, data, None, "not_json", name)]


def _long_lines(held: Held) -> Lines | None:
    """The lines of a file whose first line is a whole object and not its only one; None: read it as a whole."""
    with held.open() as file:
        start = len(BOM) if file.read(len(BOM)) == BOM else 0
        file.seek(start)
        is_stream = _STREAM.match(file.read(HEAD))
        file.seek(start)
        payloads = _payloads(_lines(file, start)) if is_stream else _lines(file, start)
        places = array("q"), array("q"), array("q")
        last = b""
        for number, (offset, raw) in enumerate(payloads, 1):
            if not raw:
                continue
            if not places[0] and not isinstance(_framed(number, offset, raw).value, dict):
                return None
            for column, value in zip(places, (number, offset, len(raw)), strict=True):
                column.append(value)
            last = raw
        if len(places[0]) < 2:
            return None
        file.seek(-1, 2)
        return Lines(held, places, cut=file.read(1) != b"\n" and _framed(0, 0, last).reason == "not_json")


def _frame(data: bytes) -> Frames:
    start = len(BOM) if data.startswith(BOM) else 0
    head = data[start : start + HEAD].lstrip()
    if not head and not data[start:].strip():
        raise TraceFormatError("the file is empty; nothing to import")
    if b"\0" in head and head[:1] not in b"{[":
        raise TraceFormatError(
            f"the file is binary (it starts with {bytes(head[:4]).hex()}); expected JSON or JSON lines"
        )
    if head[:1] == b"[":
        try:
            return Frames("list", _elements(data, start, _LIST.decode(data[start:] if start else data)), data)
        except (msgspec.DecodeError, RecursionError):
            pass
    elif head[:1] == b"{" and _is_one_value(data[start:]):
        return Frames("object", [_framed(1, *_trimmed(data, start, len(data)))])
    return _damaged_or_lines(data, start)


def _elements(data: bytes, start: int, elements: list[msgspec.Raw]) -> list[Framed]:
    records, at = [], data.index(b"[", start) + 1
    for number, element in enumerate(elements, 1):
        raw = bytes(element)
        at = _after(_BETWEEN, data, at)
        records.append(_framed(number, at, raw))
        at += len(raw)
    return records


def _after(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at


def _is_one_value(data: bytes) -> bool:
    try:
        _RAW.decode(data)
    except RecursionError:
        return b"\n" not in data.strip()
    except msgspec.DecodeError:
        try:  # NaN and infinity are JSON to the standard library alone
            json.loads(data, parse_int=str)
        except (ValueError, RecursionError):
            return False
    return True


def _damaged_or_lines(data: bytes, start: int) -> Frames:
    payloads = _lines(io.BytesIO(data[start:]), start)
    if _STREAM.match(data[start : start + HEAD]):
        payloads = _payloads(payloads)
    lines = [_framed(number, offset, raw) for number, (offset, raw) in enumerate(payloads, 1) if raw]
    if not lines:
        raise TraceFormatError("the stream of server-sent events holds no data; nothing to import")
    read = sum(isinstance(line.value, dict | list) for line in lines)
    if data[start:].lstrip()[:1] == b"[":
        elements, is_whole = _elements_one_by_one(data, start)
        is_cut = lines[0].reason and 2 * read <= len(lines)  # else lines of lists
        if (is_whole or is_cut) and not all(element.reason for element in elements):
            return Frames("list", elements, data if is_whole and _is_one_value(data[start:]) else b"")
    if not read:
        first = lines[0]
        raise TraceFormatError(
            f"the file is neither JSON nor JSON lines: {first.reason or 'not_object'} at byte {first.offset}, "
            f"{len(lines)} of {len(lines)} lines cannot be read; is it complete, and is it a trace?"
        )
    if not data.endswith(b"\n") and lines[-1].reason == "not_json":
        lines[-1] = lines[-1]._replace(reason="truncated")
    return Frames("lines", lines)


def _lines(file: Iterable[bytes], start: int) -> Iterator[tuple[int, bytes]]:
    """(first byte, bytes) of each line without the white space around it."""
    for line in file:
        inner = line.lstrip(_SPACE)
        yield start + len(line) - len(inner), inner.rstrip(_SPACE)
        start += len(line)


def _payloads(lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The data of a stream of server-sent events; what else the protocol says there is blank."""
    for offset, raw in lines:
        if field := _SSE.match(raw):
            is_data = field["name"] == b"data" and raw[field.end() :] != b"[DONE]"
            yield offset + field.end(), raw[field.end() :] if is_data else b""
        else:
            yield offset, raw


def _trimmed(data: bytes, start: int, end: int) -> tuple[int, bytes]:
    raw = data[start:end]
    inner = raw.lstrip(_SPACE)
    return start + len(raw) - len(inner), inner.rstrip(_SPACE)


def _elements_one_by_one(data: bytes, start: int) -> tuple[list[Framed], bool]:
    """The elements of a list that no parser reads as one, and whether it ends as a list does."""
    records: list[Framed] = []
    at = data.index(b"[", start) + 1
    while True:
        at = _after(_BETWEEN, data, at)
        number = len(records) + 1
        if data[at : at + 1] == b"]":
            offset, rest = _trimmed(data, at + 1, len(data))
            return records + [Framed(number, offset, rest, None, "not_json")] * bool(rest), not rest
        end = _element_end(data, at)
        if end is None:
            return [*records, Framed(number, at, data[at:], None, "truncated")], False
        offset, raw = _trimmed(data, at, end)
        records.append(_framed(number, offset, raw))
        at = end


def _element_end(data: bytes, at: int) -> int | None:
    """One past the element that starts at `at`; None when the data end before it does."""
    depth = 0
    for token in _TOKEN.finditer(data, at):
        sign = token.group()
        if sign in (b"[", b"{"):
            depth += 1
        elif depth == 0 and sign in (b"]", b"}", b","):
            return max(token.start(), at + 1)
        elif sign in (b"]", b"}"):
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def _framed(number: int, offset: int, raw: bytes) -> Framed:
    if _is_too_deep(raw):
        return Framed(number, offset, raw, None, "too_deep")
    try:
        value = _ANY.decode(raw)
    except RecursionError:
        return Framed(number, offset, raw, None, "too_deep")
    except (msgspec.DecodeError, UnicodeDecodeError):
        value, reason = _second_reading(raw)
        if reason:
            return Framed(number, offset, raw, None, reason)
    if not isinstance(value, dict | list):
        return Framed(number, offset, raw, None, "not_object")
    return Framed(number, offset, raw, value)


def _is_too_deep(raw: bytes) -> bool:
    if raw.count(b"[") + raw.count(b"{") <= DEEPEST:
        return False
    return max(accumulate(1 if sign in b"[{" else -1 for sign in _NO_BRACKET.sub(b"", raw)), default=0) > DEEPEST


def _second_reading(raw: bytes) -> tuple[Any, str]:
    """What the standard library reads where msgspec does not, or the reason why it reads nothing either."""
    if b"\0" in raw:
        return None, "nul_bytes"
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None, "not_utf8"
    try:
        value = json.loads(text, parse_int=_integer)
    except RecursionError:
        return None, "too_deep"
    except ValueError:
        return None, "not_json"
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return None, "not_utf8"  # an escaped lone surrogate: no bytes can hold such a text
    return value, ""


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 4_000 else float(digits)  # Python refuses to convert more than 4,300
