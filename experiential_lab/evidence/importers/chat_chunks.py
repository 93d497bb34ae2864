"""OpenAI chat responses: `choices` objects, and the chunks in which they are streamed.

- Unit: a response. A response object is one record; the chunks that carry one id are one message, each a view of it. Chunks
  without an id go on with the response before, until that has finished. One response is one trace.
- A text, and the arguments of a call, are the pieces of it in their order; a span quotes them piece by piece (`joined`).
- Pieces of a call belong together by choice and index. An id, or a name, that is repeated on every chunk is one. Another id
  with a name of its own is another call, even under the same index.
- A closing chunk may hold everything once more. Arguments that are an object and a repetition of it, as JSON or as JSON text,
  are that object; a last piece of text that repeats all of several pieces before it is none.
- What comes behind the finish of its choice, and a response object whose chunks stand in the file, is a `duplicate_view`.
- Several choices are branches. Usage is that of the last record that states one.
- A response holds no answer: its calls are unanswered, its texts terminal.

Not covered: requests, text completions, audio, cost.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import Format, Source, declared_id
from experiential_lab.evidence.importers.talk import Piece, joined, moment
from experiential_lab.evidence.importers.usage import usage_in
from experiential_lab.evidence.spans import Place, Text, source_text
from experiential_lab.evidence.trace import Event, Imported, Rejected, Trace
from experiential_lab.records import digest_of, short_id

NAME = "openai_chat_chunks"
OBJECTS = ("chat.completion.chunk", "chat.completion")
TEXTS = (("reasoning", ("reasoning_content", "reasoning")), ("text", ("content", "refusal")))
LEGACY = "function_call"
_JSON = json.JSONDecoder(parse_int=str)  # only equality is asked: Python refuses to convert long integers


class _Call(NamedTuple):
    """What one chunk or message says of a call."""

    key: object
    """Its index, LEGACY, or None: undeclared."""
    call_id: str | None
    name: str
    arguments: list[Piece]
    shell: Piece


class _Delta(NamedTuple):
    """What one choice of one record says."""

    number: int
    place: Place
    pointer: str
    message: dict[str, Any]

    @property
    def is_chunk(self) -> bool:
        return self.pointer.endswith("/delta")

    @property
    def whole(self) -> Piece:
        return Piece(self.place, Text(source_text(self.place.raw, self.pointer), self.pointer), self.number)

    def texts(self) -> Iterator[tuple[str, list[Piece]]]:
        for kind, fields in TEXTS:
            field = next((each for each in fields if self.message.get(each)), "")
            pieces = self._pieces(self.message.get(field), f"{self.pointer}/{field}")
            if pieces:
                yield kind, pieces

    def calls(self) -> Iterator[_Call]:
        calls = self.message.get("tool_calls")
        for at, given in enumerate(calls if isinstance(calls, list) else []):
            call = given if isinstance(given, dict) else {}
            inner, field = ("custom", "input") if isinstance(call.get("custom"), dict) else ("function", "arguments")
            pointer = f"{self.pointer}/tool_calls/{at}"
            shell = Piece(self.place, self.place.value(given, pointer), self.number)
            key = call["index"] if isinstance(call.get("index"), int) else None
            said = self._call(call.get(inner), field, f"{pointer}/{inner}", shell)
            yield said._replace(key=key, call_id=declared_id(call.get("id")))
        legacy = self.message.get("function_call")
        if legacy:
            pointer = f"{self.pointer}/function_call"
            shell = Piece(self.place, self.place.value(legacy, pointer), self.number)
            yield self._call(legacy, "arguments", pointer, shell)

    def _call(self, body: object, field: str, pointer: str, shell: Piece) -> _Call:
        said = body if isinstance(body, dict) else {}
        name, arguments = said.get("name"), self._pieces(said.get(field), f"{pointer}/{field}")
        return _Call(LEGACY, None, name if isinstance(name, str) else "", arguments, shell)

    def _pieces(self, value: object, pointer: str) -> list[Piece]:
        """The texts of a value; a chunk may hold a list of blocks, which go on with each other."""
        if value in (None, "", []):
            return []
        found = [self.place.value(value, pointer)]
        if self.is_chunk and isinstance(value, list):
            found = [_block(self.place, block, f"{pointer}/{at}") for at, block in enumerate(value)]
        return [Piece(self.place, text, self.number) for text in found if text.text]


class _Part:
    """A text, a reasoning or a call, as far as its pieces have come."""

    def __init__(self, kind: Any, choice: int, shell: Piece) -> None:
        self.kind, self.choice, self.shell = kind, choice, shell
        self.key: object = None
        self.call_id: str | None = None
        self.names: list[str] = []
        self.pieces: list[Piece] = []

    @property
    def number(self) -> int:
        """The record that its event quotes first."""
        return (self.pieces or [self.shell])[0].number

    @property
    def text(self) -> str:
        texts = [piece.at.text for piece in self.pieces]
        return _once("".join(texts)) if self.kind == "call" else _without_closing(texts)

    def event(self, at: str | None, *, aside: str | None) -> Event:
        text = self.text
        return Event(
            kind=self.kind,
            turn="1",
            branch=f"choice{self.choice}" if self.choice else "",
            span=joined(self.pieces, length=len(text))[1] if self.pieces else self.shell.place.span(self.shell.at),
            text=text,
            tool=_name(self.names),
            call_id=self.call_id,
            at=at,
            aside=aside,
        )


def _read(source: Source) -> Imported:
    """Every response of a source, as traces."""
    responses, rejected = _grouped(source)
    traces: dict[str, Trace] = {}
    seen: set[str] = set()
    for response in responses:
        digest = digest_of(b"\n".join(record.raw for record in response.records))
        if digest in seen:
            rejected += [source.rejected(record, "duplicate_record") for record in response.records]
            continue
        seen.add(digest)
        trace_id = short_id(NAME, response.response_id or digest)
        if trace_id in traces:  # some servers give an id again
            trace_id = short_id(NAME, response.response_id or "", digest)
        traces[trace_id] = response.trace(trace_id)
    rejected.sort(key=lambda each: each.record)
    return Imported(traces=tuple(traces.values()), records=len(source.frames.records), rejected=tuple(rejected))


def _grouped(source: Source) -> "tuple[list[_Response], list[Rejected]]":
    """The responses with their records, and what is none."""
    found: list[_Response] = []
    rejected: list[Rejected] = []
    running: dict[tuple[str, str | None], _Response] = {}
    early: list[Framed] = []  # what some servers send before the first chunk that has an id
    for record in source.frames.records:
        if record.reason or not _is_response(record.value):
            rejected.append(source.rejected(record, record.reason or "unknown_shape"))
            continue
        key = (record.member, declared_id(record.value.get("id")))
        response = running.get(key)
        if key[1] is None and not record.value["choices"]:
            response = found[-1] if found and found[-1].member == record.member else None
            if response is None:
                early.append(record)
                continue
        elif response is None or not response.takes(record.value):
            response = running[key] = _Response(source, key[1], record.member)
            found.append(response)
            response.records += [each for each in early if each.member == record.member]
            early = [each for each in early if each.member != record.member]
        response.add(record)
    return found, rejected + [source.rejected(record, "unknown_shape") for record in early]


class _Response:
    """The records of one response, and the parts of its message."""

    def __init__(self, source: Source, response_id: str | None, member: str) -> None:
        self.source, self.response_id, self.member = source, response_id, member
        self.records: list[Framed] = []
        self.parts: list[_Part] = []
        self.slots: dict[tuple[int, object], _Part] = {}
        self.finished: set[int] = set()
        self.views: set[int] = set()  # numbers of the records that say something
        self.usage: dict[str, Any] = {}

    def takes(self, value: dict[str, Any]) -> bool:
        """Whether a record of the same id belongs here: some servers give an id again, or none at all."""
        if not _is_chunk(value):
            return any(_is_chunk(record.value) for record in self.records)
        choices = list(_choices(value))
        if not any(number in self.finished for number, _, _, _ in choices):
            return True
        starts = any(message.get("role") for _, _, message, _ in choices)
        is_same = value.get("created") == self.records[-1].value.get("created")
        return self.response_id is not None and (is_same or not starts)

    def add(self, record: Framed) -> None:
        value = record.value
        self.records.append(record)
        self.usage = value["usage"] if isinstance(value.get("usage"), dict) else self.usage
        spoken = {part.choice for part in self.parts}
        for number, pointer, message, is_finished in _choices(value):
            delta = _Delta(record.number, self.source.place(record), pointer, message)
            says = [*delta.texts(), *delta.calls()]
            if says:
                self.views.add(record.number)
            if number not in self.finished and (delta.is_chunk or number not in spoken):
                self._take(number, delta)
                if not says and not delta.is_chunk:
                    self._begin("control", number, delta.whole)
            if is_finished:
                self.finished.add(number)

    def _take(self, choice: int, delta: _Delta) -> None:
        for kind, pieces in delta.texts():
            part = self.slots.get((choice, kind)) or self._begin(kind, choice, pieces[0])
            self.slots[choice, kind] = part
            part.pieces += pieces
        for call in delta.calls():
            part = (self._part_of(choice, call) if delta.is_chunk else None) or self._begin("call", choice, call.shell)
            self.slots[choice, call.key] = part
            part.key = call.key
            part.call_id = part.call_id or call.call_id
            part.names += [call.name] if call.name else []
            part.pieces += call.arguments

    def _begin(self, kind: str, choice: int, shell: Piece) -> _Part:
        self.parts.append(_Part(kind, choice, shell))
        return self.parts[-1]

    def _part_of(self, choice: int, call: _Call) -> _Part | None:
        """The call that a chunk goes on with."""
        calls = [part for part in self.parts if part.kind == "call" and part.choice == choice and part.key != LEGACY]
        same = next((part for part in calls if call.call_id and part.call_id == call.call_id), None)
        if call.key is None:
            return same if call.call_id else next(reversed(calls), None)
        part = self.slots.get((choice, call.key))
        is_other = part is not None and call.name and call.call_id and part.call_id not in (None, call.call_id)
        return same if is_other else part

    def trace(self, trace_id: str) -> Trace:
        return Trace(
            trace_id=trace_id,
            source=self.source.digest,
            format=NAME,
            name=f"response {self.response_id or f'of record {self.records[0].number}'}"[:60],
            keys=(f"session:{self.response_id}",) if self.response_id else (),
            task=None,
            usage=usage_in(self.usage),
            events=tuple(self._events()),
        )

    def _events(self) -> Iterator[Event]:
        """In the order of the records: each part where it begins, and every other record as what it is."""
        at = next((made for record in self.records if (made := moment(record.value.get("created")))), None)
        begun = {part.number for part in self.parts}
        calls = [_call_of(part) for part in self.parts if part.key != LEGACY]
        for record in self.records:
            for part in self.parts:
                if part.number == record.number:
                    is_copy = part.key == LEGACY and _call_of(part) in calls
                    silent = "empty_message" if part.kind == "control" else None
                    yield part.event(at, aside="duplicate_view" if is_copy else silent)
            if record.number not in begun:
                yield self._aside(record, at)

    def _aside(self, record: Framed, at: str | None) -> Event:
        silent = "harness_text" if _is_chunk(record.value) else "empty_message"
        aside = "duplicate_view" if record.number in self.views else silent
        span = self.source.place(record).whole()
        return Event(kind="control", turn="1", span=span, text=record.raw.decode(), at=at, aside=aside)


def _call_of(part: _Part) -> tuple[int, str | None, str]:
    return part.choice, _name(part.names), part.text


def _choices(value: dict[str, Any]) -> Iterator[tuple[int, str, dict[str, Any], bool]]:
    """(number, pointer of what it says, that, whether it is finished) of each choice of a record."""
    for at, choice in enumerate(value["choices"]):
        if isinstance(choice, dict):
            field = "message" if isinstance(choice.get("message"), dict) and not choice.get("delta") else "delta"
            number, said = choice.get("index"), choice.get(field)
            number = number if isinstance(number, int) and not isinstance(number, bool) else at
            is_finished = choice.get("finish_reason") is not None
            yield number, f"/choices/{at}/{field}", said if isinstance(said, dict) else {}, is_finished


def _block(place: Place, block: object, pointer: str) -> Text:
    """What a block of a streamed list says."""
    text = block.get("text") if isinstance(block, dict) else None
    if isinstance(text, str):
        return Text(text, f"{pointer}/text")
    return Text(block if isinstance(block, str) else source_text(place.raw, pointer), pointer)


def _name(names: list[str]) -> str | None:
    """A name that comes once, on every chunk, or in pieces and once more as a whole."""
    name = ""
    for piece in names:
        name += "" if piece == name else piece
    return name or None


def _once(text: str) -> str:
    """Arguments without their repetition: a server may send all of them again when it closes.

    >>> _once('{"q": 1}"{\\\\"q\\\\": 1}"'), _once('{"q": 1}{"r": 1}')
    ('{"q": 1}', '{"q": 1}{"r": 1}')
    """
    try:
        value, end = _JSON.raw_decode(text)
        at = end
        while isinstance(value, dict) and text[at:].strip():
            again, at = _JSON.raw_decode(text, len(text) - len(text[at:].lstrip()))
            if (_JSON.decode(again) if isinstance(again, str) else again) != value:
                return text
    except (ValueError, RecursionError):
        return text
    return text[:end] if isinstance(value, dict) and text[end:].strip() else text


def _without_closing(texts: list[str]) -> str:
    """The pieces of a text as one, without a last one that says again all that several before it said."""
    before = "".join(texts[:-1])
    return before if len(texts) > 2 and texts[-1] == before else "".join(texts)


def _is_chunk(value: dict[str, Any]) -> bool:
    kind = value.get("object")
    if kind in OBJECTS:
        return kind is not None and kind == OBJECTS[0]
    return not any(isinstance(choice, dict) and isinstance(choice.get("message"), dict) for choice in value["choices"])


def _is_response(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("choices"), list) or "messages" in value:
        return False
    said = [
        choice.get(field) for choice in value["choices"] if isinstance(choice, dict) for field in ("delta", "message")
    ]
    return value.get("object") in OBJECTS or any(isinstance(each, dict) for each in said)


def _sniff(value: object) -> str | None:
    return "choices with a message or a delta" if _is_response(value) else None


FORMATS = (Format(NAME, _sniff, _is_response, _read),)
