"""Streams of the OpenAI Responses API: events of `type: response.*`, one a record, become the items of a response.

- The last record that closes a response (`completed`, `incomplete`, `failed`) holds its items. What it leaves out is read from
  `response.output_item.done`, and where a stream was cut, from the pieces that came. Nothing is added to a cut text.
- `sequence_number` orders the records of a stream. Records that name no response belong to the running one, or to the one that
  named their item.
- Every other record is a view of an item (`duplicate_view`), or tells of the transport alone (`harness_text`).

Not covered: the commands of a cut shell call (its record as it began is quoted); events of
the Realtime API.
"""

from collections.abc import Sequence
from typing import Any

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import Source, declared_id
from experiential_lab.evidence.importers.responses_items import Item, kind_of
from experiential_lab.evidence.importers.talk import Piece
from experiential_lab.evidence.spans import Text

CLOSING = ("response.completed", "response.incomplete", "response.failed")
TEXTS = {  # what the events of a text begin with: (kind, where the whole text stands, the type of its item)
    "response.output_text": ("text", "text", "message"),
    "response.refusal": ("text", "refusal", "message"),
    "response.reasoning_text": ("reasoning", "text", "reasoning"),
    "response.reasoning_summary_text": ("reasoning", "text", "reasoning"),
    "response.function_call_arguments": ("arguments", "arguments", "function_call"),
    "response.mcp_call_arguments": ("arguments", "arguments", "mcp_call"),
    "response.custom_tool_call_input": ("arguments", "input", "custom_tool_call"),
    "response.code_interpreter_call_code": ("arguments", "code", "code_interpreter_call"),
}
PARTS = ("content_index", "summary_index")


def is_event(value: object) -> bool:
    """Whether a record is an event of a stream."""
    kind = value.get("type") if isinstance(value, dict) else None
    return (
        isinstance(kind, str) and kind.startswith("response.") and isinstance(value, dict) and "event_id" not in value
    )


def response_in(value: dict[str, Any]) -> dict[str, Any]:
    """The response that an event holds."""
    response = value.get("response")
    return response if isinstance(response, dict) else {}


class Streams:
    """The streams of a source, while its records come."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Stream] = []
        self.current: dict[str, Stream] = {}
        self.by_id: dict[tuple[str, str], Stream] = {}
        self.by_item: dict[tuple[str, str], Stream] = {}

    def takes(self, record: Framed) -> bool:
        """Whether a record that names no event of a response belongs to a running stream: an error, a sign of life."""
        stream = self.current.get(record.member)
        is_other = isinstance(record.value, dict) and record.value.get("type") in ("error", "keepalive")
        return is_other and stream is not None and not stream.is_closed

    def add(self, record: Framed) -> None:
        value, member = record.value, record.member
        response_id = declared_id(response_in(value).get("id")) or declared_id(value.get("response_id"))
        item_id = _item_id(value)
        if response_id:
            stream = self._named(member, response_id, value)
        else:
            held = self.by_item.get((member, item_id or ""))
            is_open = held is not None and not held.is_closed
            stream = (held if is_open else None) or self.current.get(member) or self._begun()
        self.current[member] = stream
        if item_id:
            self.by_item[member, item_id] = stream
        stream.records.append(record)
        stream.is_closed = stream.is_closed or value.get("type") in CLOSING

    def _named(self, member: str, response_id: str, value: dict[str, Any]) -> "Stream":
        stream, current = self.by_id.get((member, response_id)), self.current.get(member)
        if stream is None and current is not None and current.response_id is None:
            stream = current
        starts = value.get("type") == "response.created"
        if stream is None or (starts and stream.has_started):  # some servers give an id again
            stream = self._begun()
        stream.response_id = response_id
        stream.has_started = stream.has_started or starts
        self.by_id[member, response_id] = stream
        return stream

    def _begun(self) -> "Stream":
        self.found.append(Stream(self.source))
        return self.found[-1]


class Stream:
    """The records of one response."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.records: list[Framed] = []
        self.response_id: str | None = None
        self.has_started = self.is_closed = False

    def read(self) -> tuple[dict[str, Any], list[Item]]:
        """The response as its last record tells it, and its items in order."""
        if all(type(record.value.get("sequence_number")) is int for record in self.records):
            self.records.sort(key=lambda record: record.value["sequence_number"])
        response: dict[str, Any] = {}
        last: list[Item] = []
        slots = _Slots()
        for record in self.records:
            told = response_in(record.value)
            response = told or response
            output = told.get("output")
            place = self.source.place(record)
            if record.value.get("type") in CLOSING and isinstance(output, list) and (output or not last):
                last = [Item(place, f"/response/output/{at}", item) for at, item in enumerate(output)]
            slots.take(Item(place, "", record.value))
        return response, _completed(last, slots.in_order())


class _Slots:
    """The items of a stream, told apart by their id, else by their place in the output."""

    def __init__(self) -> None:
        self.slots: list[_Slot] = []
        self.by_id: dict[str, _Slot] = {}
        self.by_index: dict[int, _Slot] = {}

    def take(self, event: Item) -> None:
        index, item_id = event.get("output_index"), _item_id(event.value)
        index = index if type(index) is int else None
        if index is None and item_id is None:
            return
        slot = self.by_id.get(item_id or "")
        if slot is None:
            slot = self.by_index.get(-1 if index is None else index)
            if slot is None or slot.is_left_by(event):
                slot = _Slot(index)
                self.slots.append(slot)
        if index is not None:
            self.by_index[index] = slot
        if item_id is not None:
            self.by_id[item_id] = slot
        slot.take(event)

    def in_order(self) -> "list[_Slot]":
        return sorted(self.slots, key=lambda slot: (slot.index is None, slot.index or 0))


class _Slot:
    """What a stream says of one item."""

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.begun: Item | None = None
        self.done: Item | None = None
        self.kind = ""
        self.parts: dict[tuple[str, object], tuple[list[Piece], list[Piece]]] = {}  # its pieces, and the whole

    def is_left_by(self, event: Item) -> bool:
        """Whether an event tells of another item under the same number."""
        item = event.get("item")
        if not isinstance(item, dict):
            return False
        held = self.done if event.get("type") == "response.output_item.done" else self.begun or self.done
        return held is not None or (self.begun is not None and kind_of(item) != self.begun.kind)

    def take(self, event: Item) -> None:
        kind = event.value["type"]
        if isinstance(event.value.get("item"), dict):
            item = Item(event.place, "/item", event.value["item"])
            if kind == "response.output_item.done":
                self.done = item
            else:
                self.begun = self.begun or item
            return
        stem, _, end = kind.rpartition(".")
        if stem not in TEXTS:
            return
        part, field, self.kind = TEXTS[stem]
        field = "delta" if end == "delta" else field
        if isinstance(event.value.get(field), str):
            number = next((event.value[key] for key in PARTS if type(event.value.get(key)) is int), 0)
            pieces, whole = self.parts.setdefault((part if part != "reasoning" else stem, number), ([], []))
            (pieces if end == "delta" else whole).append(Piece(event.place, Text(event.value[field], f"/{field}")))

    def item(self) -> Item | None:
        """The item as it ended, or as far as it came."""
        if self.done is not None:
            return self.done
        found = [
            ("reasoning" if "." in kind else kind, tuple(whole[-1:] or pieces))
            for (kind, _), (pieces, whole) in self.parts.items()
        ]
        told = tuple((kind, pieces) for kind, pieces in found if any(piece.at.text for piece in pieces))
        if self.begun is not None:
            return self.begun._replace(pieces=told)
        if not told:
            return None
        return Item(told[0][1][0].place, "", {"type": self.kind, "role": "assistant"}, told)


def _completed(last: list[Item], slots: Sequence[_Slot]) -> list[Item]:
    """The items of the last record, and between them those that it leaves out."""
    found, least = list(last), 0
    for slot in slots:
        item = slot.item()
        if item is not None and not any(_is_same(item, slot, at, other) for at, other in enumerate(last)):
            least = min(max(slot.index or 0, least), len(found)) if slot.index is not None and last else len(found)
            found.insert(least, item)
            least += 1
    return found


def _is_same(item: Item, slot: _Slot, at: int, other: Item) -> bool:
    if kind_of(item.value) != kind_of(other.value):
        return False
    ids = [declared_id(each.get(key)) for key in ("call_id", "id") for each in (item, other)]
    if ids[0] or ids[1]:
        return ids[0] == ids[1]
    return at == slot.index or (ids[2] is not None and ids[2] == ids[3])


def _item_id(value: dict[str, Any]) -> str | None:
    item = value.get("item")
    return declared_id(value.get("item_id")) or (declared_id(item.get("id")) if isinstance(item, dict) else None)
