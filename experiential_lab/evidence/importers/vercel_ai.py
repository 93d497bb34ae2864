"""Vercel AI SDK: UI messages (`{id, role, parts}`), model messages (`{role, content: [{type: "tool-call"}]}`), and UI streams.

- Unit: a conversation, as a list of messages, an object that holds one, or a file (list, lines) of messages. Lists of one
  declared conversation are one trace: what a later list repeats is `replayed_history`, also where its last message has grown.
- A tool part holds call and result: `structural`; the declared `toolCallId` is the call's alone. A part without a final output
  is an unanswered call; a preliminary output is set aside. A refusal is a result that the user `rejected`.
- Model messages pair by `toolCallId`.
- A turn is one step (`step-start`), or a run of assistant messages.
- The older shapes: `toolInvocations` beside `content`, and parts of `tool-invocation`. Where parts stand, the rest of a message
  is a `duplicate_view`. Without parts the text comes behind the tools that have answered, for it may be of their answers.

Not covered: usage (only an application's own metadata holds it), attachments of the older shape, and a list that begins with a
message of a role and a plain text alone (it looks like a chat; declare the format).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import DECLARED, Format, Source, declared_id
from experiential_lab.evidence.importers.talk import Talk
from experiential_lab.evidence.importers.vercel_stream import NAME, Streams, sniff_chunk, stream_traces
from experiential_lab.evidence.spans import Place, Text
from experiential_lab.evidence.trace import Event, Imported, Trace
from experiential_lab.records import digest_of, short_id

ROLES = ("system", "user", "assistant", "tool", "data")
PARTS = ("text", "reasoning", "step-start", "source-url", "source-document", "source", "file", "dynamic-tool")
PREFIXES = ("tool-", "data-")
MODEL_PARTS = ("tool-call", "tool-result")
INPUTS = ("input", "rawInput", "args")
SAID = ("role", "parts", "content", "toolInvocations", "reasoning")


class _Message(NamedTuple):
    place: Place
    pointer: str
    value: Any

    def at(self, path: str) -> Text:
        value = self.value
        for key in path.split("/"):
            value = value[int(key)] if isinstance(value, list) else value[key]
        return self.place.value(value, f"{self.pointer}/{path}")

    def quote(self) -> Text:
        return self.place.value(self.value, self.pointer)


class _Chat(NamedTuple):
    records: list[Framed]
    messages: list[_Message]
    declared: str | None = None


def _read(source: Source) -> Imported:
    """Every conversation of a source, as traces."""
    streams = Streams(source)
    loose: dict[str, list[Framed]] = defaultdict(list)
    chats, rejected, seen = [], [], set[bytes]()
    for record in source.frames.records:
        if record.reason:
            rejected.append(source.rejected(record, record.reason))
        elif streams.takes(record):
            streams.add(record)
        elif _is_message(record.value):
            loose[record.member].append(record)
        elif record.raw in seen:
            rejected.append(source.rejected(record, "duplicate_record"))
        elif (chat := _chat(source, record)) is None:
            rejected.append(source.rejected(record, "unknown_shape"))
        else:
            seen.add(record.raw)
            chats.append(chat)
    for records in loose.values():
        chats.append(_Chat(records, [_Message(source.place(record), "", record.value) for record in records]))
    chats.sort(key=lambda chat: (chat.records[0].member, chat.records[0].number))
    traces = [*_traces(source, chats), *stream_traces(source, streams)]
    return Imported(traces=tuple(_with_own_ids(traces)), records=len(source.frames.records), rejected=tuple(rejected))


def _with_own_ids(traces: Sequence[Trace]) -> list[Trace]:
    """An id that stands in two members of a zip is two conversations."""
    found: dict[str, Trace] = {}
    for trace in traces:
        if trace.trace_id in found:
            again = short_id(trace.trace_id, trace.events[0].span.member, str(trace.events[0].span.offset))
            trace = msgspec.structs.replace(trace, trace_id=again)
        found[trace.trace_id] = trace
    return list(found.values())


def _chat(source: Source, record: Framed) -> _Chat | None:
    value, place = record.value, source.place(record)
    messages = _list_in(value)
    if not any(map(_is_message, messages)):
        return None
    pointer = "/messages" if isinstance(value, dict) else ""
    declared = None
    if isinstance(value, dict):
        declared = next((found for key in ("id", "chatId", *DECLARED) if (found := declared_id(value.get(key)))), None)
    return _Chat([record], [_Message(place, f"{pointer}/{at}", each) for at, each in enumerate(messages)], declared)


def _list_in(value: object) -> list[Any]:
    messages = value.get("messages") if isinstance(value, dict) else value
    return messages if isinstance(messages, list) else []


def _traces(source: Source, chats: list[_Chat]) -> list[Trace]:
    conversations: dict[tuple[str, str | int], list[_Chat]] = defaultdict(list)
    for chat in chats:
        conversations[chat.records[0].member, chat.declared or chat.records[0].number].append(chat)
    return [_trace(source, lists) for lists in conversations.values()]


def _trace(source: Source, lists: list[_Chat]) -> Trace:
    events: list[Event] = []
    kept: list[_Chat] = []
    for at, chat in enumerate(lists):
        size = len(chat.messages)
        whole = any(_common(chat, other) == size for other in lists[at + 1 :])
        replayed = size if whole else max((_common(other, chat) for other in kept), default=0)
        branch = f"list{chat.records[0].number}" if whole or kept else ""
        events += _events(chat, branch, replayed)
        if not whole:
            kept.append(chat)
    declared = lists[0].declared
    digest = digest_of(b"\n".join(record.raw for record in kept[-1].records))
    return Trace(
        trace_id=short_id(NAME, declared or digest),
        source=source.digest,
        format=NAME,
        name=(f"chat {declared}" if declared else f"record {lists[0].records[0].number}")[:60],
        keys=(f"session:{declared}",) if declared else (),
        task=next((event.text for event in events if event.kind in ("task", "user")), None),
        context="\n\n".join(event.text for event in events if event.kind == "context" and not event.aside) or None,
        events=tuple(events),
    )


def _common(chat: _Chat, other: _Chat) -> int:
    """How many messages, from the first, say the same; the last of `chat` may have grown in the other."""
    length, last = 0, len(chat.messages) - 1
    for at, (one, its) in enumerate(zip(chat.messages, other.messages, strict=False)):
        if _said(one.value) != _said(its.value) and not (at == last and _has_grown(one.value, its.value)):
            break
        length += 1
    return length


def _said(message: Any) -> Any:
    return [message.get(key) or None for key in SAID] if isinstance(message, dict) else message


def _has_grown(one: Any, other: Any) -> bool:
    """Whether a message goes on with another of its id: each of its parts is begun in the same way."""
    if not isinstance(one, dict) or not isinstance(other, dict) or not declared_id(one.get("id")):
        return False
    parts = one.get("parts"), other.get("parts")
    if one["id"] != other.get("id") or one.get("role") != other.get("role") or not all(map(_are_parts, parts)):
        return False
    return len(parts[0]) <= len(parts[1]) and all(map(_begins, *parts))  # type: ignore[arg-type]  # lists, as asked above


def _are_parts(parts: object) -> bool:
    return isinstance(parts, list) and all(isinstance(part, dict) for part in parts)


def _begins(part: dict[str, Any], other: dict[str, Any]) -> bool:
    texts = part.get("text", ""), other.get("text", "")
    is_text = isinstance(texts[0], str) and isinstance(texts[1], str) and texts[1].startswith(texts[0])
    return is_text and all(part.get(key) == other.get(key) for key in ("type", "toolCallId"))


def _events(chat: _Chat, branch: str, replayed: int) -> list[Event]:
    reader, found = _Messages(branch), []
    for at, message in enumerate(chat.messages):
        events = reader.events(message)
        found += (
            [msgspec.structs.replace(event, aside="replayed_history") for event in events] if at < replayed else events
        )
    return found


class _Messages:
    """The events of the messages of one list, in order."""

    def __init__(self, branch: str) -> None:
        self.talk = Talk(branch)

    def events(self, message: _Message) -> list[Event]:
        """At least one event."""
        value, talk = message.value, self.talk
        role = value.get("role") if isinstance(value, dict) else None
        made = value.get("createdAt") if isinstance(value, dict) else None
        talk.at = made if isinstance(made, str) and made else None
        if role == "assistant":
            return self._assistant(message)
        if role == "tool" and isinstance(value.get("content"), list) and value["content"]:
            return [self._told(message, f"content/{at}", part) for at, part in enumerate(value["content"])]
        if role not in ("user", "system"):
            talk.in_turn = False
            return [talk.aside(message.place, message.quote(), "harness_text" if role == "data" else "unknown_role")]
        field = next((key for key in ("parts", "content") if value.get(key)), "")
        at, more = (message.at(field), {}) if field else (message.quote(), {"text": ""})
        said = talk.user(message.place, at, **more) if role == "user" else talk.system(message.place, at, **more)
        return [said, *self._views(message, field)]

    def _views(self, message: _Message, field: str) -> list[Event]:
        """What a message says once more beside its parts."""
        if field != "parts":
            return []
        again = [key for key in ("reasoning", "content", "toolInvocations") if message.value.get(key)]
        return [self.talk.aside(message.place, message.at(key), "duplicate_view") for key in again]

    def _assistant(self, message: _Message) -> list[Event]:
        value, talk = message.value, self.talk
        talk.speak()
        field = next((key for key in ("parts", "content") if isinstance(value.get(key), list) and value[key]), "")
        found = []
        for at, part in enumerate(value[field]) if field else ():
            found += self._part(message, f"{field}/{at}", part)
        if field != "parts":
            found = self._older(message, found)
        if not found:
            found = [talk.aside(message.place, message.quote(), "empty_message")]
        return found + self._views(message, field)

    def _older(self, message: _Message, content: list[Event]) -> list[Event]:
        """A message without parts: its text stands in `content`, its tools in a list of their own."""
        value, talk = message.value, self.talk
        tools: list[Event] = []
        invocations = value.get("toolInvocations")
        for at, part in enumerate(invocations if isinstance(invocations, list) else []):
            tools += self._tool(message, f"toolInvocations/{at}", part)
        if isinstance(value.get("content"), str) and value["content"]:
            content = [talk.event("text", message.place, message.at("content"))]
        first = []
        if isinstance(value.get("reasoning"), str) and value["reasoning"]:
            first = [talk.event("reasoning", message.place, message.at("reasoning"))]
        is_answered = any(event.kind == "result" for event in tools)
        return first + (tools + content if is_answered else content + tools)

    def _part(self, message: _Message, path: str, part: Any) -> list[Event]:
        talk, place = self.talk, message.place
        kind = part.get("type") if isinstance(part, dict) else None
        kind = kind if isinstance(kind, str) else ""
        if kind in ("text", "reasoning") and isinstance(part.get("text"), str):
            talk.speak()
            at = message.at(f"{path}/text")
            return [talk.event(kind, place, at) if at.text else talk.aside(place, message.at(path), "empty_message")]
        if kind == "step-start":
            talk.in_turn = False
        if kind in ("reasoning", "redacted-reasoning"):
            talk.speak()
            return [talk.event("reasoning", place, message.at(path), text="")]
        if kind == "tool-call":
            return [self._call(message, path, part, part.get("toolName"))]
        if kind == "tool-result":
            found = self._told(message, path, part)
            talk.in_turn = True  # a tool that the provider ran: the output goes on
            return [found]
        if kind == "tool-invocation" and isinstance(part.get("toolInvocation"), dict):
            return self._tool(message, f"{path}/toolInvocation", part["toolInvocation"])
        if kind == "dynamic-tool" or (kind.startswith("tool-") and "toolCallId" in part and "toolName" not in part):
            return self._tool(message, path, part)
        is_known = kind in PARTS or kind.startswith(PREFIXES)
        return [talk.aside(place, message.at(path), "harness_text" if is_known else "unknown_role")]

    def _tool(self, message: _Message, path: str, part: Any) -> list[Event]:
        """The call of a part and, where it has come, its result."""
        if not isinstance(part, dict):
            return [self.talk.aside(message.place, message.at(path), "unknown_role")]
        kind = part.get("type")
        name = part.get("toolName")
        if isinstance(kind, str) and kind.startswith("tool-"):
            name = kind.removeprefix("tool-")
        within = f"{message.place.member}:{message.place.offset}{message.pointer}/{path}"
        call = self._call(message, path, part, name, within=within)
        result = self._result(message, path, part, within=within, tool=_name(name))
        self.talk.in_turn = True  # the step goes on until the next one begins
        return [call, result] if result else [call]

    def _call(self, message: _Message, path: str, part: dict[str, Any], name: object, **more: Any) -> Event:
        field = next((key for key in INPUTS if part.get(key) is not None), "")
        if not field:  # never the part itself, for it may hold the result
            field = next(
                (key for key in ("toolCallId", "type", "toolName", "state") if isinstance(part.get(key), str)), ""
            )
            more["text"] = ""
        at = message.at(f"{path}/{field}") if field else message.at(path)
        return self.talk.call(message.place, at, tool=_name(name), call_id=declared_id(part.get("toolCallId")), **more)

    def _result(self, message: _Message, path: str, part: dict[str, Any], **more: Any) -> Event | None:
        state, approval = part.get("state"), part.get("approval")
        approval = approval if isinstance(approval, dict) else {}
        if state == "output-denied" or (approval.get("approved") is False and state != "output-available"):
            is_told = isinstance(approval.get("reason"), str) and approval["reason"]
            at, text = (message.at(f"{path}/approval/reason"), None) if is_told else (message.at(f"{path}/state"), "")
            return self.talk.result(message.place, at, text=text, author="unknown", rejected=True, **more)
        if state == "output-error":
            field = "errorText" if isinstance(part.get("errorText"), str) else "state"
            text = "" if field == "state" else None
            return self.talk.result(message.place, message.at(f"{path}/{field}"), text=text, is_error=True, **more)
        if state in ("output-available", "result"):
            field = next((key for key in ("output", "result") if key in part), "")
            if not field:
                return self.talk.result(message.place, message.at(f"{path}/state"), text="", **more)
            aside = "orphan_result" if part.get("preliminary") is True else None
            return self.talk.result(message.place, message.at(f"{path}/{field}"), aside=aside, **more)
        return None

    def _told(self, message: _Message, path: str, part: Any) -> Event:
        """A block of a tool message."""
        talk, place = self.talk, message.place
        talk.in_turn = False
        if not isinstance(part, dict) or part.get("type") != "tool-result":
            is_known = isinstance(part, dict) and part.get("type") == "tool-approval-response"
            return talk.aside(place, message.at(path), "harness_text" if is_known else "unknown_role")
        output, is_error = part.get("output"), part.get("isError")
        more: dict[str, Any] = {"is_error": is_error if isinstance(is_error, bool) else None}
        field = next((key for key in ("output", "result", "content") if part.get(key) is not None), "")
        kind = output.get("type") if isinstance(output, dict) else None
        if isinstance(kind, str) and isinstance(output, dict) and ("value" in output or kind == "execution-denied"):
            field = "output/value" if "value" in output else "output/reason" if output.get("reason") else ""
            if kind.startswith("error"):
                more["is_error"] = True
            if kind == "execution-denied":
                more |= {"rejected": True, "author": "unknown"}
        at = message.at(f"{path}/{field}" if field else path)
        if not field:
            more["text"] = ""
        return talk.result(
            place, at, tool=_name(part.get("toolName")), call_id=declared_id(part.get("toolCallId")), **more
        )


def _name(name: object) -> str | None:
    return name if isinstance(name, str) and name else None


def _is_message(value: object) -> bool:
    """Whether a value can be a message of this family."""
    if not isinstance(value, dict) or value.get("role") not in ROLES or "type" in value:
        return False
    return isinstance(value.get("parts"), list) or "content" in value or isinstance(value.get("toolInvocations"), list)


def _is_ours(value: object) -> bool:
    """Whether a message says by itself that the SDK wrote it."""
    if not isinstance(value, dict) or not _is_message(value):
        return False
    parts, content, tools = value.get("parts"), value.get("content"), value.get("toolInvocations")
    if isinstance(parts, list) and parts:
        return all(map(_is_part, parts))
    if isinstance(tools, list) and tools:
        return any(isinstance(tool, dict) and "toolCallId" in tool for tool in tools)
    blocks = content if isinstance(content, list) else []
    return any(isinstance(each, dict) and each.get("type") in MODEL_PARTS and "toolCallId" in each for each in blocks)


def _is_part(part: object) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or not isinstance(part, dict):
        return False
    if kind in ("text", "reasoning"):
        return isinstance(part.get("text") if kind == "text" else part.get("text", part.get("reasoning")), str)
    return kind in PARTS or kind.startswith(PREFIXES)


def _sniff(value: object) -> str | None:
    if sniff_chunk(value):
        return "chunks of a UI message stream"
    if _is_ours(value):
        return "messages with parts, or with tool calls of the AI SDK"
    return (
        "lists of messages with parts, or with tool calls of the AI SDK"
        if any(map(_is_ours, _list_in(value)))
        else None
    )


def _fits(value: object) -> bool:
    return bool(sniff_chunk(value)) or _is_message(value) or any(map(_is_message, _list_in(value)))


FORMATS = (Format(NAME, _sniff, _fits, _read),)
