"""Streamed Anthropic messages: the records of one message, and its blocks put together from their pieces.

- `message_start` begins a message, `message_stop` ends it. Records that belong to none are held until one begins.
- A block begins with `content_block_start` and goes on with the deltas of its index. A text, a reasoning and the arguments
  of a call are their pieces in their order; a span quotes them piece by piece (`joined`).
- Arguments that come in pieces replace the `input` of the start; where none come, that input stands. A result stands whole
  in its start.
- A delta whose start is missing is what it says: a text, a reasoning, or a call without a name and an id.
- Counts of `message_delta` are cumulative: the last ones stand, over those of `message_start`. Without a `message_delta` that
  states counts the stream is cut, and its usage unknown.

Not covered: what the blocks mean (see `anthropic`), two messages whose records take turns.
"""

from typing import Any

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.importers.talk import Piece, joined
from experiential_lab.evidence.spans import Place, Text
from experiential_lab.records import Span

START, STOP = "message_start", "message_stop"
OF_A_BLOCK = ("content_block_start", "content_block_delta", "content_block_stop", "message_delta")
OF_ANY = ("ping", "error")
DELTAS = {  # type of a delta: (type of its block, field that holds the piece)
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("tool_use", "partial_json"),
    "compaction_delta": ("compaction", "content"),
}


class Part:
    """A block, as far as its pieces have come."""

    def __init__(self, number: int, place: Place, pointer: str, block: Any) -> None:
        self.begins, self.place, self.pointer = number, place, pointer
        self.block: Any = block
        self.pieces: list[Piece] = []

    @property
    def number(self) -> int:
        """The record that its event quotes first."""
        return self.pieces[0].number if self.pieces else self.begins

    @property
    def text(self) -> str:
        return "".join(piece.at.text for piece in self.pieces)

    def span(self) -> Span:
        """The span of its pieces."""
        return joined(self.pieces)[1]


class Stream:
    """The records of one message, and its blocks in the order in which they begin."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.records: list[Framed] = []
        self.parts: list[Part] = []
        self.views: set[int] = set()  # numbers of the records that say a piece of a block
        self.message: dict[str, Any] = {}
        self.usage: dict[str, Any] | None = None
        self.is_over = False
        self._slots: dict[object, Part] = {}

    def takes(self, record: Framed) -> bool:
        """Whether a record goes on with this message."""
        kind = record.value["type"]
        if self.records and record.member != self.records[0].member:
            return False
        return kind in OF_ANY or (not self.is_over and kind != START)

    def add(self, record: Framed) -> None:
        value = record.value
        self.records.append(record)
        match value["type"]:
            case "message_start":
                self._open(record)
            case "content_block_start":
                self._begin(record, value.get("index"), "/content_block", value.get("content_block"))
            case "content_block_delta":
                self._go_on(record, value.get("index"), value.get("delta"))
            case "message_delta" if isinstance(value.get("usage"), dict):
                given = {key: count for key, count in value["usage"].items() if count is not None}
                stated = self.message.get("usage")
                before = self.usage or (stated if isinstance(stated, dict) else {})
                self.usage = before | given
            case "message_stop":
                self.is_over = True

    def _open(self, record: Framed) -> None:
        self.message = record.value["message"]
        content = self.message.get("content")
        for at, block in enumerate(content if isinstance(content, list) else []):
            self._begin(record, at, f"/message/content/{at}", block)

    def _begin(self, record: Framed, index: object, pointer: str, block: object) -> None:
        part = Part(record.number, self.source.place(record), pointer, block)
        self.parts.append(part)
        self._slots[_slot(index)] = part
        kind, text = kind_of(block), block.get("text") if isinstance(block, dict) else None
        if kind == "text" and isinstance(text, str) and text:
            part.pieces.append(Piece(part.place, Text(text, f"{pointer}/text"), record.number))

    def _go_on(self, record: Framed, index: object, delta: object) -> None:
        kind, field = DELTAS.get(kind_of(delta), ("", ""))
        said = delta.get(field) if isinstance(delta, dict) else None
        if not isinstance(said, str) or not said:
            return
        part = self._slots.get(_slot(index))
        place = self.source.place(record)
        if part is None:
            part = Part(record.number, place, "/delta", {"type": kind})
            self.parts.append(part)
            self._slots[_slot(index)] = part
        if kind_of(part.block) == kind or (kind == "tool_use" and kind_of(part.block).endswith(kind)):
            self.views.add(record.number)
            part.pieces.append(Piece(place, Text(said, f"/delta/{field}"), record.number))


def is_event(value: object) -> bool:
    """Whether a record is one of a stream."""
    if not isinstance(value, dict) or "uuid" in value:
        return False
    kind = value.get("type")
    if kind == START:
        return isinstance(value.get("message"), dict)
    if kind == "content_block_start":
        return isinstance(value.get("content_block"), dict)
    if kind in ("content_block_delta", "message_delta"):
        return isinstance(value.get("delta"), dict)
    return kind in (STOP, "content_block_stop", *OF_ANY)


def kind_of(block: object) -> str:
    """The type of a block or a delta; empty when it declares none."""
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""


def _slot(index: object) -> object:
    return index if isinstance(index, int) else None
