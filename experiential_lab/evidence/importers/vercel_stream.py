"""UI message streams of the Vercel AI SDK: chunks, one a record, become the parts of one message.

- A message begins with `start`, and ends with `finish` or `abort`. One message is one trace.
- A text is its deltas in their order, told apart by their id (`joined`); the next start, or step, may give the id again. A
  call is quoted where its input is whole, and where a stream was cut, from the pieces that came. Every other chunk is a view
  (`duplicate_view`), or no part (`harness_text`).
- Call and result are chunks of their own: they pair by `toolCallId`. A preliminary output is set aside.

Not covered: the data streams of versions before 5 (`0:"text"`).
"""

from collections import Counter
from typing import Any

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import Source, declared_id
from experiential_lab.evidence.importers.talk import Piece, Talk, joined
from experiential_lab.evidence.spans import Text
from experiential_lab.evidence.trace import Event, Trace
from experiential_lab.records import digest_of, short_id

NAME = "vercel_ai"
STEPS = ("start", "start-step", "finish-step", "finish", "abort", "error", "message-metadata", "tool-approval-request")
TEXTS = tuple(f"{kind}-{end}" for kind in ("text", "reasoning") for end in ("start", "delta", "end"))
TOOLS = (
    *("tool-input-start", "tool-input-delta", "tool-input-available", "tool-input-error"),
    *("tool-output-available", "tool-output-error", "tool-output-denied"),
)
CALLED = ("tool-input-available", "tool-input-error")


def sniff_chunk(value: object) -> bool:
    """Whether a value says by itself that it is a chunk."""
    if not isinstance(value, dict) or "role" in value:
        return False
    kind = value.get("type")
    if kind in TEXTS:
        return isinstance(value.get("id"), str) and (not kind.endswith("delta") or isinstance(value.get("delta"), str))
    if kind in TOOLS:
        return "toolCallId" in value
    return kind == "start" and isinstance(value.get("messageId"), str)


class Streams:
    """The streams of a source, while its records come."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[list[Framed]] = []
        self.current: dict[str, list[Framed]] = {}

    def takes(self, record: Framed) -> bool:
        value = record.value
        if not isinstance(value, dict) or "role" in value or "messages" in value:
            return False
        kind = value.get("type")
        is_other = isinstance(kind, str) and (
            kind in ("file", "source-url", "source-document") or kind.startswith("data-")
        )
        return kind in STEPS or sniff_chunk(value) or (is_other and record.member in self.current)

    def add(self, record: Framed) -> None:
        running = self.current.get(record.member)
        if running is None or record.value["type"] == "start" or running[-1].value["type"] in ("finish", "abort"):
            running = self.current[record.member] = []
            self.found.append(running)
        running.append(record)


def stream_traces(source: Source, streams: Streams) -> list[Trace]:
    """One trace a message."""
    found = []
    for records in streams.found:
        declared = declared_id(records[0].value.get("messageId"))
        found.append(
            Trace(
                trace_id=short_id(NAME, declared or digest_of(b"\n".join(record.raw for record in records))),
                source=source.digest,
                format=NAME,
                name=f"message {declared or f'of record {records[0].number}'}"[:60],
                keys=(f"session:{declared}",) if declared else (),
                task=None,
                events=tuple(_Message(source, records).events()),
            )
        )
    return found


class _Message:
    """The chunks of one message."""

    def __init__(self, source: Source, records: list[Framed]) -> None:
        self.source, self.records, self.talk = source, records, Talk()
        self.pieces: dict[tuple[str, str | None, int], list[Piece]] = {}  # kind, id, how often the id was given before
        self.first: dict[
            int, tuple[str, str | None, int]
        ] = {}  # the record of a text's, or of a cut call's, first piece
        self.names: dict[str | None, str] = {}  # of the calls so far
        called = {declared_id(each.value.get("toolCallId")) for each in records if each.value["type"] in CALLED}
        given: Counter[str | None] = Counter()
        for record in records:
            value = record.value
            call_id = declared_id(value.get("toolCallId"))
            if value["type"] in ("start-step", "text-start", "reasoning-start"):
                given[declared_id(value.get("id"))] += 1
            field = "inputTextDelta" if value["type"] == "tool-input-delta" else "delta"
            is_delta = value["type"].endswith("-delta") and isinstance(value.get(field), str) and value[field]
            if is_delta and not (field == "inputTextDelta" and call_id in called):
                kind = "call" if field == "inputTextDelta" else value["type"].removesuffix("-delta")
                part_id = declared_id(value.get("id"))
                again = given[None] + given[part_id]  # a step has no id
                key = (kind, call_id, 0) if kind == "call" else (kind, part_id, again)
                if key not in self.pieces:
                    self.first[record.number] = key
                self.pieces.setdefault(key, []).append(Piece(source.place(record), Text(value[field], f"/{field}")))
        self.called = called | {call_id for kind, call_id, _ in self.pieces if kind == "call"}

    def events(self) -> list[Event]:
        return [event for record in self.records for event in self._chunk(record, record.value["type"])]

    def _chunk(self, record: Framed, kind: str) -> list[Event]:
        value, talk, place = record.value, self.talk, self.source.place(record)
        call_id = declared_id(value.get("toolCallId"))
        if isinstance(value.get("toolName"), str) and value["toolName"]:
            self.names[call_id] = value["toolName"]
        ids: dict[str, Any] = {"call_id": call_id, "tool": self.names.get(call_id)}
        if record.number in self.first:
            key = self.first[record.number]
            text, span = joined(self.pieces[key])
            talk.speak()
            return [talk.event(key[0], place, self.pieces[key][0].at, text=text, span=span, **ids)]
        if kind in CALLED:
            given = value.get("input")
            at = place.value(value["type"] if given is None else given, "/type" if given is None else "/input")
            found = [talk.call(place, at, **ids, **({"text": ""} if given is None else {}))]
            return found + (
                [self._result(record, "errorText", ids, is_error=True)] if kind == "tool-input-error" else []
            )
        if kind == "tool-input-start" and call_id not in self.called:
            return [talk.call(place, place.value(value["type"], "/type"), text="", **ids)]
        if kind == "tool-output-available":
            aside = "orphan_result" if value.get("preliminary") is True else None
            return [self._result(record, "output", ids, aside=aside)]
        if kind == "tool-output-error":
            return [self._result(record, "errorText", ids, is_error=True)]
        if kind == "tool-output-denied":
            return [self._result(record, "type", ids, text="", rejected=True, author="unknown")]
        if kind == "start-step":
            talk.in_turn = False
        is_view = kind in TEXTS or kind in TOOLS
        return [talk.aside(place, Text(record.raw.decode(), ""), "duplicate_view" if is_view else "harness_text")]

    def _result(self, record: Framed, field: str, ids: dict[str, Any], **more: Any) -> Event:
        place, is_there = self.source.place(record), field in record.value
        at = place.value(record.value[field if is_there else "type"], f"/{field if is_there else 'type'}")
        found = self.talk.result(place, at, **ids, **more, **({} if is_there else {"text": ""}))
        self.talk.in_turn = True  # the step goes on until the next one begins
        return found
