"""Anthropic Messages: response bodies, streams, request bodies, message lists, and requests with their responses.

- Unit: a request with its response, a message alone, or a list of messages. A response stands beside its request in one
  record, or behind it where requests and responses take turns through the whole file.
- A call is `tool_use`, or a tool that the server runs. Results name their call by `tool_use_id`, in the user's next message
  or in the message itself. What the model does after a result is another turn: it has seen it.
- A list that goes on with an earlier one replays it (`replayed_history`): with all of it, with a declared call of it, or with
  three of its messages. An edited history is one, too, as far as the last call that both hold. A list that goes on otherwise
  is a branch. Blank text, reasoning and cache marks make no message different; declared conversations are never united.
- A message that stands again under its id is a `duplicate_view`.
- Text beside results in a user's message is the user's. What a harness wrote in their name is `harness_text`, as in Claude
  Code; a compaction block is a `compaction_summary`; a block of no known kind says nothing of what was done (`harness_text`).
- An error is what the format declares: `is_error`, or content of a type that ends with `_tool_result_error`.
- Usage counts once a model message, its last counts; it is unknown as soon as a message states none, or its stream is cut.
- `stop_reason` ends a turn, not a run: `complete` stays unknown.

Not covered: server-sent events inside JSON, the counts of single iterations, two messages of one stream that take turns.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.anthropic_stream import Part, Stream, is_event, kind_of
from experiential_lab.evidence.importers.claude_code import HARNESS_OPENINGS, INTERRUPTS, REFUSALS
from experiential_lab.evidence.importers.format import DECLARED, Format, Source, declared_id
from experiential_lab.evidence.importers.swe_agent import sniff_mini
from experiential_lab.evidence.importers.usage import pooled, sound_in
from experiential_lab.evidence.spans import Place, Text
from experiential_lab.evidence.trace import Event, Imported, Rejected, Trace
from experiential_lab.records import digest_of, short_id

NAME = "anthropic_messages"
ROLES = ("user", "assistant", "system")
REQUESTS = ("", "/request/body", "/request", "/params")  # the last is that of a batch
RESPONSES = ("/response/body", "/response", "/result/message")
REASONING = ("thinking", "redacted_thinking")
SPOKEN = ("text", "reasoning", "call")
OPENING = 3  # equal messages that make two lists one history, as in the lineages


class _Message(NamedTuple):
    role: str
    key: bytes
    """Equal for messages that say and do the same."""
    acts: tuple[str, ...]
    """Of each call with a declared id: its id, name and input."""
    events: list[Event]
    message_id: str | None = None
    usage: dict[str, Any] | None = None


class _Unit(NamedTuple):
    """What one record says, or a stream, or the message list of a file."""

    record: Framed
    messages: list[_Message]
    response: _Message | None = None
    failed: _Message | None = None
    """What stands in the place of a response and is none."""
    system: Event | None = None
    declared: str | None = None
    tools: int | None = None
    digest: str | None = None
    """Of the records of a list."""


# Reading


def _read(source: Source) -> Imported:
    """Every conversation of a source, as traces."""
    units, rejected = _units(source)
    conversations = _Conversations(source)
    for unit in _answered(units):
        conversations.add(unit)
    rejected.sort(key=lambda each: each.record)
    return Imported(traces=conversations.traces(), records=len(source.frames.records), rejected=tuple(rejected))


def _units(source: Source) -> tuple[list[_Unit], list[Rejected]]:
    found: list[_Unit | Stream | list[Framed]] = []
    rejected: list[Rejected] = []
    early: list[Framed] = []  # of a stream that has not begun
    lists: dict[str, list[Framed]] = {}
    seen: set[bytes] = set()
    for record in source.frames.records:
        value = None if record.reason else record.value
        if is_event(value):
            _stream(source, record, found, early)
        elif _is_bare(value):
            if record.member not in lists:
                lists[record.member] = []
                found.append(lists[record.member])
            lists[record.member].append(record)
        else:
            unit = None if record.raw in seen else _unit(source, record, value)
            reason = record.reason or ("duplicate_record" if record.raw in seen else "unknown_shape")
            if unit is None:
                rejected.append(source.rejected(record, reason))
            else:
                found.append(unit)
                seen.add(record.raw)
    rejected += [source.rejected(record, "unknown_shape") for record in early]
    return [_unit_of(source, each) for each in found], rejected


def _stream(source: Source, record: Framed, found: list[Any], early: list[Framed]) -> None:
    """A record of a stream: with the one that is open, or with the next one that begins."""
    last = found[-1] if found and isinstance(found[-1], Stream) else None
    if last is not None and last.takes(record):
        last.add(record)
    elif record.value["type"] in ("ping", "error", "message_stop", "content_block_stop"):
        early.append(record)
    else:
        stream = Stream(source)
        for each in [each for each in early if each.member == record.member]:
            stream.records.append(each)
            early.remove(each)
        stream.add(record)
        found.append(stream)


def _unit_of(source: Source, given: "_Unit | Stream | list[Framed]") -> _Unit:
    if isinstance(given, _Unit):
        return given
    if isinstance(given, Stream):
        return _Unit(given.records[0], [], _streamed(given))
    messages = [_message(source.place(record), "", record.value) for record in given]
    return _Unit(given[0], messages, digest=digest_of(b"\n".join(record.raw for record in given)))


def _unit(source: Source, record: Framed, value: object) -> _Unit | None:
    """What a record says that is no part of another message or list."""
    place = source.place(record)
    if isinstance(value, list):
        return _Unit(record, _messages(place, "", value)) if _is_list(value) else None
    if not isinstance(value, dict):
        return None
    if _is_body(value):
        return _Unit(record, [], _response(place, "", value))
    asked = _found(place, value, REQUESTS, _is_request)
    answered = _found(place, value, RESPONSES, _is_body)
    if asked is None and answered is None:
        return None
    declared = next((found for key in DECLARED if (found := declared_id(value.get(key)))), None)
    unit = _Unit(record, [], None if answered is None else _response(*answered), declared=declared)
    if answered is None and "response" in value:
        failed = _made("control", place, place.value(value["response"], "/response"), aside="harness_text")
        unit = unit._replace(failed=_Message("", b"", (), [failed]))
    return unit if asked is None else _with_request(unit, *asked)


def _with_request(unit: _Unit, place: Place, pointer: str, request: dict[str, Any]) -> _Unit:
    tools, system = request.get("tools"), request.get("system")
    said = _made("context", place, place.value(system, f"{pointer}/system")) if system else None
    return unit._replace(
        messages=_messages(place, f"{pointer}/messages", request["messages"]),
        system=said,
        tools=len(tools) if isinstance(tools, list) else None,
    )


def _found(place: Place, value: dict[str, Any], pointers: Sequence[str], fits: Any) -> tuple[Place, str, Any] | None:
    """The first value at one of the pointers that fits: its place and pointer there, and the value itself."""
    for pointer in pointers:
        within: Any = value
        for key in pointer.split("/")[1:]:
            within = within.get(key) if isinstance(within, dict) else None
        if isinstance(within, str) and within.lstrip().startswith("{"):
            inside = _decoded(within)
            if fits(inside):
                return place.into(within, pointer), "", inside
        elif fits(within):
            return place, pointer, within
    return None


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _answered(units: list[_Unit]) -> list[_Unit]:
    """Requests with the responses behind them, where the two take turns through the whole file."""
    asks, answers = units[::2], units[1::2]
    take_turns = all(unit.response is None and unit.messages[-1].role == "user" for unit in asks)
    if not answers or not take_turns or not all(unit.response and not unit.messages for unit in answers):
        return units
    pairs = zip_longest(asks, answers)
    return [ask if answer is None else ask._replace(response=answer.response) for ask, answer in pairs]


# Conversations


class _Branch:
    """What has happened on a branch so far."""

    def __init__(self, name: str) -> None:
        self.name, self.turn = name, "0"
        self.in_turn = self.heard = self.acted = self.asked = False
        self.at = b""  # the beginning of a list that it has come to
        self.acts: list[tuple[str, ...]] = []  # of each message of the model


class _Conversations:
    """The conversations of a source. What a list replays is known by the digests of its beginnings."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.all: list[_Conversation] = []
        self.declared: dict[str, _Conversation] = {}
        self.by_start: dict[bytes, _Conversation] = {}
        self.by_message: dict[str, tuple[bytes, _Conversation]] = {}

    def add(self, unit: _Unit) -> None:
        response = unit.response
        message_id = response.message_id if response else None
        if response and message_id is not None and not unit.messages:
            key, seen = self.by_message.get(message_id, (b"", None))
            if seen and key == response.key:
                seen.view(response)
                return
        said = [*unit.messages, *([response] if response else [])]
        starts = _starts(said)
        found = self._known(unit, said, starts)
        if found is None:
            found = _Conversation(self.source, unit)
            self.all.append(found)
        if unit.declared is not None:
            self.declared[unit.declared] = found
        elif unit.messages:
            self.by_start |= dict.fromkeys(starts[1:], found)
        found.add(unit, said, starts)
        if response and message_id is not None:
            self.by_message.setdefault(message_id, (response.key, found))

    def _known(self, unit: _Unit, said: list[_Message], starts: list[bytes]) -> "_Conversation | None":
        """The conversation that a list goes on with, or stands in."""
        if unit.declared is not None or not unit.messages:
            return self.declared.get(unit.declared or "")
        for length in range(len(said), 0, -1):
            found = self.by_start.get(starts[length])
            if found and (_is_history(said, length) or (length < len(said) and starts[length] in found.ends)):
                return found
        return None

    def traces(self) -> tuple[Trace, ...]:
        found: dict[str, Trace] = {}
        for conversation in self.all:
            trace = conversation.trace()
            if trace.trace_id in found:  # a server that gives an id again
                again = short_id(trace.trace_id, conversation.digest, str(conversation.first.record.number))
                trace = msgspec.structs.replace(trace, trace_id=again)
            found[trace.trace_id] = trace
        return tuple(found.values())


class _Conversation:
    """The lists of one conversation, turned into events as they come."""

    def __init__(self, source: Source, first: _Unit) -> None:
        self.source, self.first = source, first
        self.digest = first.digest or digest_of(first.record.raw)
        self.events: list[Event] = []
        self.ends: set[bytes] = set()
        self._starts: set[bytes] = set()
        self._branches: list[_Branch] = []
        self._systems: set[str] = set()
        self._turns = 0
        self._tools = first.tools
        self._ids: dict[str, None] = {}
        self._usage: dict[str, dict[str, Any] | None] = {}

    def add(self, unit: _Unit, said: list[_Message], starts: list[bytes]) -> None:
        """What is new in a list, on the branch that it goes on with or on one of its own; the rest as a copy."""
        known = max((length for length, start in enumerate(starts) if start in self._starts), default=0)
        branch, known = self._standing(said, starts, known)
        before = _Branch("") if branch is None else _Branch(branch.name)  # a copy changes nothing where it stands
        if branch is None:
            branch = before = _Branch(f"list{unit.record.number}" if self._branches else "")
            self._branches.append(branch)
        if unit.system:
            self._instruct(unit.system, branch)
        for message in said[:known]:
            self._emit(message, before, "replayed_history")
        for at, message in enumerate(said[known:], known):
            self._emit(message, branch, "synthetic_assistant" if _is_prefill(unit, at) else None)
        if unit.failed:
            self._emit(unit.failed, branch)
        if known < len(said) or before is branch or not branch.at:
            branch.at = starts[-1]
        branch.acts += [each.acts for each in said[known:] if each.role == "assistant"]
        self._starts.update(starts[1:])
        self.ends.add(starts[-1])
        self._tools = self._tools if unit.tools is None else unit.tools
        self._count(unit, known)

    def _standing(self, said: list[_Message], starts: list[bytes], known: int) -> tuple[_Branch | None, int]:
        """The branch that a list goes on with, None for one of its own, and how many of its messages stand already."""
        if known == len(said) and self._branches:
            return self._branches[0], known
        for branch in self._branches:
            if known and branch.at == starts[known]:
                return branch, known
        for branch in self._branches:  # a history that was edited: its last calls are the same
            last = branch.acts[-1] if branch.acts else ()
            places = [at for at, each in enumerate(said) if last and each.acts == last]
            at = (
                places[: branch.acts.count(last)][-1] if places else -1
            )  # servers may give an id again, for an equal call
            if at >= known and all(each.acts in branch.acts for each in said[known:at] if each.acts):
                return branch, at + 1
        return None, known

    def view(self, message: _Message) -> None:
        """A message that stands here already."""
        self._emit(message, _Branch(""), "duplicate_view")
        self._note(message, "")

    def _instruct(self, system: Event, branch: _Branch) -> None:
        aside = "replayed_history" if system.text in self._systems else "harness_text" if self.events else None
        self._systems.add(system.text)
        kind: Any = "control" if aside == "harness_text" else "context"
        self.events.append(_at(system, branch, kind, aside))

    def _emit(self, message: _Message, branch: _Branch, aside: str | None = None) -> None:
        is_model = message.role == "assistant"
        branch.in_turn = branch.in_turn and is_model
        branch.acted = branch.acted or is_model
        for event in message.events:
            kind: Any = event.kind
            if is_model:
                self._speak(event, branch)
            elif kind == "user":
                kind = "task" if not branch.asked else "user" if branch.acted else "context"
                branch.asked = True
            elif kind == "result" and not branch.acted:
                kind = "context"
            why = aside or event.aside
            if kind == "context" and branch.acted:
                kind, why = "control", why or "harness_text"
            self.events.append(_at(event, branch, kind, why))

    def _speak(self, event: Event, branch: _Branch) -> None:
        """Another turn begins where the model goes on after others, or after a result."""
        if not branch.in_turn or (branch.heard and event.kind in SPOKEN and not event.aside):
            self._turns += 1
            branch.turn, branch.in_turn, branch.heard = str(self._turns), True, False
        branch.heard = branch.heard or (event.kind == "result" and not event.aside)

    def _count(self, unit: _Unit, known: int) -> None:
        for at, message in enumerate(unit.messages[known:], known):
            if message.role == "assistant" and not _is_prefill(unit, at):
                self._usage[f"{unit.record.number}/{at}"] = None  # what a history used is not said in it
        if unit.response:
            self._note(unit.response, f"{unit.record.number}/response")

    def _note(self, message: _Message, name: str) -> None:
        key = message.message_id or name
        self._usage[key] = message.usage or self._usage.get(key)
        if message.message_id:
            self._ids[message.message_id] = None

    def trace(self) -> Trace:
        declared, first = self.first.declared, next(iter(self._ids), None)
        is_alone = not self.first.messages and first is not None
        name = f"conversation {declared}" if declared else f"message {first}" if is_alone else ""
        identity = declared if declared is not None else first if is_alone and first else self.digest
        ids = [*self._ids, *([declared] if declared is not None else [])]
        return Trace(
            trace_id=short_id(NAME, identity),
            source=self.source.digest,
            format=NAME,
            name=(name or f"record {self.first.record.number}")[:60],
            keys=tuple(sorted({f"session:{each}" for each in ids})),
            task=next((event.text for event in self.events if event.kind in ("task", "user")), None),
            context="\n\n".join(event.text for event in self.events if event.kind == "context" and not event.aside)
            or None,
            declared_tools=self._tools,
            usage=pooled(map(sound_in, self._usage.values())),
            events=tuple(self.events),
        )


def _starts(said: list[_Message]) -> list[bytes]:
    """A digest of each beginning of a list, the empty one first."""
    found = [b""]
    for message in said:
        found.append(sha256(found[-1] + message.key).digest())
    return found


def _is_history(said: list[_Message], length: int) -> bool:
    """Whether two lists that begin with the same messages do so because one goes on with the other."""
    first = said[:length]
    is_much = length >= OPENING or length == len(said) or any(each.acts for each in first)
    return is_much and any(each.role == "assistant" for each in first)


def _is_prefill(unit: _Unit, at: int) -> bool:
    """Whether a message of a request is put in the model's mouth: its response goes on with it."""
    if not unit.response or at != len(unit.messages) - 1 or unit.messages[at].role != "assistant":
        return False
    return all(event.kind in ("text", "control") for event in unit.messages[at].events)


def _at(event: Event, branch: _Branch, kind: Any, aside: str | None) -> Event:
    return msgspec.structs.replace(event, kind=kind, turn=branch.turn, branch=branch.name, aside=aside)


# Messages and blocks


def _messages(place: Place, pointer: str, values: list[Any]) -> list[_Message]:
    return [_message(place, f"{pointer}/{at}", value) for at, value in enumerate(values)]


def _message(place: Place, pointer: str, value: Any) -> _Message:
    role = value.get("role") if isinstance(value, dict) else None
    if role not in ROLES:
        event = _made("control", place, place.value(value, pointer), aside="unknown_role")
        return _Message("", _plain(value).encode(), (), [event])
    content = value.get("content")
    said = _assistant if role == "assistant" else _user if role == "user" else _system
    events = list(said(place, f"{pointer}/content", content))
    if not events or content is None:
        silent = "empty_message" if role == "assistant" else "harness_text"
        events = [_made("control", place, place.value(value, pointer), aside=silent)]
    return _Message(role, _key(role, content), _acts(role, content), events)


def _response(place: Place, pointer: str, value: dict[str, Any]) -> _Message:
    usage = value.get("usage")
    return _message(place, pointer, value)._replace(
        message_id=declared_id(value.get("id")), usage=usage if isinstance(usage, dict) else None
    )


def _streamed(stream: Stream) -> _Message:
    """The message of a stream: each block where it begins, and every other record as what it is."""
    events: list[Event] = []
    begun: dict[int, list[Part]] = {}
    for part in stream.parts:
        begun.setdefault(part.number, []).append(part)
    for record in stream.records:
        events += map(_part, begun.get(record.number, ()))
        if record.number not in begun:
            aside = "duplicate_view" if record.number in stream.views else "harness_text"
            place = stream.source.place(record)
            events.append(_made("control", place, Text(record.raw.decode(), ""), aside=aside))
    content = [_assembled(part) for part in stream.parts]
    message_id = declared_id(stream.message.get("id"))
    key, acts = _key("assistant", content), _acts("assistant", content)
    return _Message("assistant", key, acts, events, message_id, stream.usage)


def _part(part: Part) -> Event:
    if not part.pieces:
        return _block(part.place, part.pointer, part.block)
    kind: Any = _kind(part.block)
    aside = "compaction_summary" if kind_of(part.block) == "compaction" else None
    named: dict[str, Any] = _named(part.block) if kind == "call" else {}
    return Event(kind=kind, turn="", span=part.span(), text=part.text, aside=aside, **named)


def _assembled(part: Part) -> Any:
    """A streamed block as a body would hold it."""
    if not part.pieces or not isinstance(part.block, dict):
        return part.block
    if _kind(part.block) == "call":
        arguments = _decoded(part.text)
        return part.block | {"input": part.text if arguments is None else arguments}
    return part.block | ({"text": part.text} if kind_of(part.block) == "text" else {})


def _assistant(place: Place, pointer: str, content: Any) -> Iterator[Event]:
    if isinstance(content, str):
        yield _said(place, Text(content, pointer)) if content else _silent(place, Text(content, pointer))
    elif isinstance(content, list):
        for at, block in enumerate(content):
            yield _block(place, f"{pointer}/{at}", block)
    elif content is not None:
        yield _silent(place, place.value(content, pointer))


def _user(place: Place, pointer: str, content: Any) -> Iterator[Event]:
    if not isinstance(content, list):
        yield _typed(place, place.value(content, pointer)) if content is not None else _silent(place, Text("", pointer))
    elif any(_kind(block) == "result" or _is_harness(_text(block)) for block in content):
        for at, block in enumerate(content):
            yield (
                _result(place, f"{pointer}/{at}", block)
                if _kind(block) == "result"
                else _beside(place, f"{pointer}/{at}", block)
            )
    elif content:
        yield _typed(place, place.value(content, pointer))


def _system(place: Place, pointer: str, content: Any) -> Iterator[Event]:
    if content:
        yield _made("context", place, place.value(content, pointer))


def _beside(place: Place, pointer: str, block: Any) -> Event:
    """A block of a user's message that holds results, or what a harness wrote."""
    if _kind(block) != "text":
        return _made("user", place, place.value(block, pointer))
    text = _text(block)
    silent = _made("control", place, place.value(block, pointer), aside="harness_text")
    return _typed(place, Text(text, f"{pointer}/text")) if text else silent


def _typed(place: Place, at: Text) -> Event:
    """What stands in the user's name: theirs, or a harness's."""
    if at.text.strip() in INTERRUPTS:
        return _made("control", place, at, aside="interrupt_marker")
    harness = _is_harness(at.text)
    return _made("control" if harness else "user", place, at, aside="harness_text" if harness else None)


def _block(place: Place, pointer: str, block: Any) -> Event:
    """One block of the model's message."""
    kind = _kind(block)
    if kind == "text":
        text = block.get("text")
        said = text if isinstance(text, str) else ""
        return _said(place, Text(said, f"{pointer}/text")) if said else _silent(place, place.value(block, pointer))
    if kind == "reasoning":
        thought = block.get("thinking")
        at = Text(thought, f"{pointer}/thinking") if isinstance(thought, str) and thought else None
        return _made("reasoning", place, at or place.value(block, pointer))
    if kind == "call":
        return _call(place, pointer, block)
    if kind == "result":
        return _result(place, pointer, block)
    aside = "compaction_summary" if kind_of(block) == "compaction" else "harness_text"
    summary = block.get("content") if aside == "compaction_summary" else None
    at = Text(summary, f"{pointer}/content") if isinstance(summary, str) and summary else place.value(block, pointer)
    return _made("control", place, at, aside=aside)


def _call(place: Place, pointer: str, block: dict[str, Any]) -> Event:
    given = block.get("input")
    if given is None:  # the call exists by its presence: it quotes itself, with empty arguments
        return _made("call", place, place.value(block, pointer), text="", **_named(block))
    return _made("call", place, place.value(given, f"{pointer}/input"), **_named(block))


def _named(block: dict[str, Any]) -> dict[str, Any]:
    name = block.get("name")
    return {"tool": name if isinstance(name, str) and name else None, "call_id": declared_id(block.get("id"))}


def _result(place: Place, pointer: str, block: dict[str, Any]) -> Event:
    content, is_error = block.get("content"), block.get("is_error")
    is_nothing = content is None or content == []  # an empty observation is one, too: it quotes its block
    at = place.value(block, pointer) if is_nothing else place.value(content, f"{pointer}/content")
    text = "" if is_nothing else at.text
    failed = True if kind_of(content).endswith("_tool_result_error") else None
    is_refused = is_error is True and text.startswith(REFUSALS)
    return _made(
        "result",
        place,
        at,
        text=text,
        call_id=declared_id(block.get("tool_use_id")),
        author="human" if is_refused else "environment",
        is_error=is_error if isinstance(is_error, bool) else failed,
        rejected=is_refused,
        aside="interrupt_marker" if is_error is True and text.strip() in INTERRUPTS else None,
    )


def _said(place: Place, at: Text) -> Event:
    return _made("text", place, at)


def _silent(place: Place, at: Text) -> Event:
    return _made("control", place, at, aside="empty_message")


def _made(kind: Any, place: Place, at: Text, *, text: str | None = None, **more: Any) -> Event:
    """An event whose turn and branch its conversation knows."""
    span = place.span(at) if at.pointer or place.layers else place.whole()
    return Event(kind=kind, turn="", span=span, text=at.text if text is None else text, **more)


def _kind(block: object) -> str:
    kind = kind_of(block)
    if kind.endswith("tool_use"):
        return "call"
    if kind.endswith("tool_result"):
        return "result"
    return "reasoning" if kind in REASONING else "text" if kind == "text" else "control"


def _text(block: object) -> str:
    text = block.get("text") if kind_of(block) == "text" and isinstance(block, dict) else None
    return text if isinstance(text, str) else ""


def _is_harness(text: str) -> bool:
    return text.lstrip().startswith(HARNESS_OPENINGS) or text.strip() in INTERRUPTS


# What makes messages equal


def _key(role: str, content: object) -> bytes:
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    said = [each for block in blocks if (each := _compared(block)) is not None]
    return json.dumps([role, said]).encode()


def _compared(block: Any) -> list[Any] | None:
    """What a block says and does; None for one that a client may drop."""
    kind = _kind(block)
    if kind == "reasoning" or (kind == "text" and not str(block.get("text") or "").strip()):
        return None
    if kind == "text":
        return ["text", str(block["text"]).strip()]
    if kind == "call":
        return ["call", block.get("id"), block.get("name"), _plain(block.get("input"))]
    if kind == "result":
        content = block.get("content")
        inside = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        said = [_text(each) or _plain(each) for each in inside]
        return ["result", block.get("tool_use_id"), said, bool(block.get("is_error"))]
    return ["other", _plain(block)]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        value = {key: each for key, each in value.items() if key != "cache_control" and each is not None}
    return json.dumps(value, sort_keys=True)


def _acts(role: str, content: object) -> tuple[str, ...]:
    if role != "assistant" or not isinstance(content, list):
        return ()
    calls = [block for block in content if _kind(block) == "call" and declared_id(block.get("id"))]
    return tuple(json.dumps(_compared(call)) for call in calls)


# Which values are ours


def _is_body(value: object) -> bool:
    """A response of the model. OpenAI's message items have the same type and role, and blocks of their own."""
    if not isinstance(value, dict) or value.get("type") != "message" or value.get("role") != "assistant":
        return False
    content = value.get("content")
    is_other = isinstance(content, list) and any(kind_of(block) in ("output_text", "refusal") for block in content)
    return isinstance(content, str | list) and not is_other and "uuid" not in value


def _is_request(value: object) -> bool:
    if not isinstance(value, dict) or "choices" in value or not isinstance(value.get("messages"), list):
        return False
    return _is_list(value["messages"])


def _is_list(messages: list[Any]) -> bool:
    return any(map(_is_bare, messages)) and not any(map(_is_openai, messages))


def _is_bare(value: object) -> bool:
    """A message that is no response, as requests hold them."""
    if not isinstance(value, dict) or "content" not in value or value.keys() & {"type", "messages", "uuid"}:
        return False
    return value.get("role") in ROLES and not _is_openai(value)


def _is_openai(message: object) -> bool:
    if not isinstance(message, dict):
        return False
    return message.get("role") in ("tool", "function") or bool(
        message.get("tool_calls") or message.get("function_call")
    )


def _is_anthropic(messages: Iterable[object]) -> bool:
    """Whether a message of a list holds a block that only this format has."""
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    return any(_is_own(block) for content in contents if isinstance(content, list) for block in content)


def _is_own(block: Any) -> bool:
    kind = kind_of(block)
    if kind in REASONING:
        return isinstance(block.get("signature"), str) or isinstance(block.get("data"), str)
    if kind in ("image", "document"):
        return isinstance(block.get("source"), dict)
    return _kind(block) in ("call", "result")


def sniff_messages(value: object) -> str | None:
    """The rule by which a value is of this format, or None. Plain texts with roles alone are OpenAI's chat."""
    if is_event(value) and isinstance(value, dict) and value["type"] in ("message_start", "content_block_start"):
        return "events of a streamed message"
    if isinstance(value, list):
        is_ours = _is_list(value) and _is_anthropic(value) and not sniff_mini(value)
        return "messages with tool_use and tool_result blocks" if is_ours else None
    if not isinstance(value, dict) or sniff_mini(value):
        return None
    if _is_body(value):
        return "a message with content blocks and a stop_reason" if "stop_reason" in value else None
    if _is_bare(value):
        return "messages with tool_use and tool_result blocks" if _is_anthropic([value]) else None
    place = Place("", 0, b"")
    answered = _found(place, value, RESPONSES, _is_body)
    if answered and "stop_reason" in answered[2]:
        return "a request or a batch with its message"
    asked = _found(place, value, REQUESTS, _is_request)
    if asked is None:
        return None
    is_ours = _is_anthropic(asked[2]["messages"]) or isinstance(asked[2].get("system"), str | list)
    return "a request with Anthropic blocks or a system text beside its messages" if is_ours else None


def _fits(value: object) -> bool:
    if is_event(value) or _is_bare(value) or _is_body(value):
        return True
    if not isinstance(value, dict):
        return isinstance(value, list) and _is_list(value)
    place = Place("", 0, b"")
    return any(
        _found(place, value, pointers, fits) for pointers, fits in ((REQUESTS, _is_request), (RESPONSES, _is_body))
    )


FORMATS = (Format(NAME, sniff_messages, _fits, _read),)
