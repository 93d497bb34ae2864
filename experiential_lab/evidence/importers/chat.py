"""OpenAI chat conversations: lines or lists of `{messages}`, bare message lists, and tau-bench results.

- Unit: one conversation a record. Trace id: the declared conversation, else the digest of its first record's bytes; never a
  task.
- The first user message is the task; what stands before the first assistant message is context. The agent does not see
  tau-bench's `info.task`: it is the statement, for lineages and families only.
- A bare message list is one record, unless an element of it cannot be read: then each element is one.
- Arguments are kept as they stand: JSON text, or the source text of an object. Empty text, null and `{}` are the empty
  object. A legacy `function_call` has no id; one that repeats a call of its own message is a `duplicate_view`.
- Lists of one declared conversation that are a prefix of a later list are `replayed_history`, and so is the common start
  of two lists that go on differently. Without a declared one, a list that sends the whole list of the record before it
  again, and more, is the same conversation: so requests are logged.
- The user of tau-bench is a model (`simulated_user`); its stop marker alone is a `control_token`.

Not covered: stream chunks, response objects, prefix lists that do not follow each other, and message lists of other formats
that look like these (Anthropic's blocks, tool output that a scaffold wrote in the user's name): they are refused.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.anthropic import sniff_messages
from experiential_lab.evidence.importers.format import DECLARED, Format, Source, declared_id
from experiential_lab.evidence.importers.responses_items import TYPES
from experiential_lab.evidence.importers.swe_agent import sniff_mini
from experiential_lab.evidence.spans import Place, Text
from experiential_lab.evidence.trace import STOP_MARKERS, Author, Event, Imported, Rejected, Trace, shown
from experiential_lab.records import digest_of, short_id

RUN = (*DECLARED, "task_id", "trial")  # what tells runs apart
OF_OTHERS = (
    {"id", "epoch", "input"},
    {"task_id", "termination_reason"},
)  # samples of Inspect, simulations of tau2-bench
RESULT_ROLES = ("tool", "function")
SYSTEM_ROLES = ("system", "developer")
ROLES = ("user", "assistant", *RESULT_ROLES, *SYSTEM_ROLES)
SAID = (
    "role",
    "content",
    "refusal",
    "tool_calls",
    "function_call",
    "tool_call_id",
    "name",
)  # what makes messages equal
FOREIGN_BLOCKS = ("tool_use", "tool_result", "tool-call", "tool-result")  # Anthropic Messages, Vercel's AI SDK
FOREIGN_LISTS = ("parts", "toolInvocations")  # messages of Vercel's user interfaces
FOREIGN_OPENING = "<returncode>"  # mini-swe-agent: the output of a command, in the user's name


class Chat(NamedTuple):
    """One conversation, whichever shape it came in."""

    record: Framed
    pointer: str
    messages: list[Any]
    declared: str | None = None
    metadata: Mapping[str, Any] = MappingProxyType({})
    statement: str | None = None
    tools: int | None = None
    complete: bool | None = None
    user: Author = "unknown"
    markers: tuple[str, ...] = ()
    parts: tuple[Framed, ...] = ()
    """The record of each message, where they are records of their own."""


def _read(source: Source, *, name: str) -> Imported:
    """Every conversation of a source, as traces."""
    if _is_bare(source, name):
        return _bare_list(source, name)
    rejected: list[Rejected] = []
    traces = tuple(_each(source, rejected, name))
    rejected.sort(key=lambda each: each.record)
    return Imported(traces=traces, records=len(source.frames.records), rejected=tuple(rejected))


def _stream(source: Source, rejected: list[Rejected], *, name: str) -> Iterator[Trace]:
    """The traces that `_read` gives, one by one."""
    if _is_bare(source, name):
        whole = _bare_list(source, name)
        rejected += whole.rejected
        yield from whole.traces
    else:
        yield from _each(source, rejected, name)


def _each(source: Source, rejected: list[Rejected], name: str) -> Iterator[Trace]:
    """One trace a conversation; the lists of a declared one are its branches, and come when all of them are known."""
    declared: dict[str, list[int]] = {}
    growing: list[Chat] = []
    for at, record in source.each(rejected):
        chat = _conversation(record, name)
        if chat is None:
            rejected.append(source.rejected(record, "unknown_shape"))
        elif chat.declared is not None:
            declared.setdefault(chat.declared, []).append(at)
        else:
            if growing and not _goes_on(chat, growing[-1]):
                yield _trace(source, name, growing)
                growing = []
            growing.append(chat)
    if growing:
        yield _trace(source, name, growing)
    for places in declared.values():
        lists = (_conversation(source.frames.records[at], name) for at in places)
        yield _trace(source, name, [chat for chat in lists if chat])


def _goes_on(chat: Chat, earlier: Chat) -> bool:
    """Whether a list sends all of the list before it again, with what came after, and neither is said to be another run."""
    return (
        all(chat.metadata.get(key) == earlier.metadata.get(key) for key in RUN)
        and len(chat.messages) > len(earlier.messages)
        and any(role_of(message) == "assistant" for message in earlier.messages)
        and _common(earlier.messages, chat.messages) == len(earlier.messages)
    )


def _conversation(record: Framed, name: str) -> Chat | None:
    """The conversation of a record; None when it holds none."""
    chat = _tau(record) if name == "tau_bench" else _chat(record)
    return chat if chat and any(role_of(message) in ROLES for message in chat.messages) else None


def _is_bare(source: Source, name: str) -> bool:
    """Whether the records are the messages of one conversation: the first that is a message or a conversation tells."""
    for record in source.frames.records if source.frames.layout in ("list", "lines") else ():
        if role_of(record.value) in ROLES:
            return True
        if not record.reason and _conversation(record, name):
            return False
    return False


def _bare_list(source: Source, name: str) -> Imported:
    """The one conversation of a file that is a list of messages."""
    good = [record for record in source.frames.records if not record.reason]
    rejected = [source.rejected(record, record.reason) for record in source.frames.records if record.reason]
    chat = Chat(source.frames.as_one(), "", [record.value for record in good])
    if rejected or not source.frames.data:
        joined = good[0]._replace(raw=b"\n".join(record.raw for record in good))
        chat = chat._replace(record=joined, parts=tuple(good))
    is_ours = not _is_foreign(chat.messages)
    if not is_ours:
        rejected += [source.rejected(record, "unknown_shape") for record in chat.parts or [chat.record]]
    return Imported(
        traces=(_trace(source, name, [chat]),) if is_ours else (),
        records=len(source.frames.records) if chat.parts else 1,
        rejected=tuple(sorted(rejected, key=lambda each: each.record)),
    )


def _chat(record: Framed) -> Chat | None:
    value = record.value
    if isinstance(value, list):
        return None if _is_foreign(value) else Chat(record, "", value)
    messages = value.get("messages")
    if not isinstance(messages, list) or _is_foreign(messages):
        return None
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    tools, statement, user = value.get("tools"), metadata.get("statement"), metadata.get("user_source")
    return Chat(
        record,
        "/messages",
        messages,
        declared=next((found for key in DECLARED if (found := declared_id(value.get(key)))), None),
        metadata=metadata,
        statement=statement if isinstance(statement, str) else None,
        tools=len(tools) if isinstance(tools, list) else None,
        complete=True if metadata.get("complete") is True else None,
        user=user if user in ("human", "simulated_user") else "unknown",
    )


def _tau(record: Framed) -> Chat | None:
    value = record.value
    if not isinstance(value, dict) or not isinstance(value.get("traj"), list):
        return None
    info = value.get("info")
    task = info.get("task") if isinstance(info, dict) else None
    statement = task.get("instruction") if isinstance(task, dict) else None
    return Chat(
        record,
        "/traj",
        value["traj"],
        metadata={key: value[key] for key in ("task_id", "trial") if key in value},
        statement=statement if isinstance(statement, str) else None,
        complete=True,
        user="simulated_user",
        markers=STOP_MARKERS,
    )


def _trace(source: Source, name: str, lists: list[Chat]) -> Trace:
    last = max(lists, key=lambda chat: len(chat.messages))
    events: list[Event] = []
    kept: list[Chat] = []
    for at, chat in enumerate(lists):
        replayed = len(chat.messages)
        whole = any(_common(chat.messages, other.messages) == replayed for other in lists[at + 1 :])
        if not whole:  # a list that goes on otherwise than an earlier one replays only what that one holds already
            replayed = max((_common(chat.messages, other.messages) for other in kept), default=0)
        branch = f"list{chat.record.number}" if whole or kept else ""
        events += Messages(source, chat, branch).events(replayed)
        if not whole:
            kept.append(chat)
    declared = last.declared
    return Trace(
        trace_id=short_id(name, declared if declared is not None else digest_of(lists[0].record.raw)),  # a log grows
        source=source.digest,
        format=name,
        name=_name(last),
        keys=_keys(source, last),
        task=next((event.text for event in events if event.kind in ("task", "user")), None),
        context="\n\n".join(event.text for event in events if event.kind == "context" and not event.aside) or None,
        statement=last.statement,
        declared_tools=last.tools,
        complete=last.complete,
        events=tuple(events),
    )


def _common(some: list[Any], others: list[Any]) -> int:
    length = 0
    for one, other in zip(some, others, strict=False):
        if one != other and _said(one) != _said(other):
            break
        length += 1
    return length


def _said(message: Any) -> Any:
    """What a message says, whatever else a server wrote beside it."""
    return [message.get(key) or None for key in SAID] if isinstance(message, dict) else message


def _name(chat: Chat) -> str:
    parts = [f"{key} {chat.metadata[key]}" for key in ("task_id", "trial") if key in chat.metadata]
    if chat.declared is not None and not parts:
        parts.append(f"conversation {chat.declared}")
    return (", ".join(parts) or f"record {chat.record.number}").replace("task_id", "task")


def _keys(source: Source, chat: Chat) -> tuple[str, ...]:
    keys = [f"session:{chat.declared}"] if chat.declared is not None else []
    keys += [f"session:{found}" for key in DECLARED if (found := declared_id(chat.metadata.get(key)))]
    task = declared_id(chat.metadata.get("task_id"))
    if task:
        corpus = short_id(chat.statement) if chat.statement is not None else source.digest[7:23]
        keys.append(f"task:{corpus}:{task}")
    return tuple(sorted(set(keys)))


class Messages:
    """The events of one message list, in order."""

    def __init__(self, source: Source, chat: Chat, branch: str) -> None:
        self.place = source.place(chat.record)
        self.source, self.chat, self.branch = source.digest, chat, branch
        self.turn, self.in_turn, self.acted, self.asked = 0, False, False, False

    def events(self, replayed: int) -> list[Event]:
        """One event a block; those of the first `replayed` messages are set aside as copies."""
        found: list[Event] = []
        for at, message in enumerate(self.chat.messages):
            pointer = f"{self.chat.pointer}/{at}"
            if self.chat.parts:
                part, pointer = self.chat.parts[at], ""
                self.place = Place(self.source, part.offset, part.raw)
            role = role_of(message)
            if role == "assistant":
                self.turn += not self.in_turn
                self.in_turn = self.acted = True
                new = self._assistant(message, pointer)
            else:
                self.in_turn = False
                new = [self._other(role, message, pointer)]
            if at < replayed:
                new = [msgspec.structs.replace(event, aside="replayed_history") for event in new]
            found += new
        return found

    def _assistant(self, message: dict[str, Any], pointer: str) -> list[Event]:
        found = []
        field = "content" if message.get("content") or not message.get("refusal") else "refusal"
        calls, legacy = message.get("tool_calls"), message.get("function_call")
        if message.get(field):
            said = self.place.value(message[field], f"{pointer}/{field}")
            found += [self._event("text", said)] if said.text else []
        if isinstance(calls, list):
            found += [self._call(call, f"{pointer}/tool_calls/{at}", "function") for at, call in enumerate(calls)]
        elif calls:
            found.append(self._call(calls, f"{pointer}/tool_calls", "function"))
        if legacy is not None and legacy != "":
            call = self._call(message, pointer, "function_call")
            is_copy = any((call.tool, call.text) == (each.tool, each.text) for each in found if each.kind == "call")
            found.append(msgspec.structs.replace(call, aside="duplicate_view") if is_copy else call)
        return found or [self._event("control", self.place.value(message, pointer), aside="empty_message")]

    def _call(self, given: Any, pointer: str, inner: str) -> Event:
        call = given if isinstance(given, dict) else {}
        field = "arguments"
        if isinstance(call.get("custom"), dict):  # a custom tool takes one raw text
            inner, field = "custom", "input"
        body = call.get(inner)
        body = body if isinstance(body, dict) else {}
        arguments, name = body.get(field), body.get("name")
        if arguments is None:  # the call exists by its presence: it quotes itself, with empty arguments
            at, text = self.place.value(given, pointer), ""
        else:
            at = self.place.value(arguments, f"{pointer}/{inner}/{field}")
            text = at.text
        return Event(
            kind="call",
            turn=str(self.turn),
            branch=self.branch,
            span=self.place.span(at),
            text=text,
            tool=name if isinstance(name, str) and name else None,
            call_id=declared_id(call.get("id")) if inner != "function_call" else None,
        )

    def _other(self, role: str, message: Any, pointer: str) -> Event:
        if role not in ROLES:
            return self._event("control", self.place.value(message, pointer), aside="unknown_role")
        content = message.get("content")
        if content is None:  # an empty observation is one, too: it quotes its message
            at, text = self.place.value(message, pointer), ""
        else:
            at = self.place.value(content, f"{pointer}/content")
            text = at.text
        if role in RESULT_ROLES:
            return self._result(message, at, text)
        if role in SYSTEM_ROLES:
            return self._event("control" if self.acted else "context", at, aside="harness_text" if self.acted else None)
        return self._user(at, text)

    def _result(self, message: dict[str, Any], at: Text, text: str) -> Event:
        if not self.acted:
            return self._event("context", at)
        name = message.get("name")
        return Event(
            kind="result",
            turn=str(self.turn),
            branch=self.branch,
            span=self.place.span(at),
            text=text,
            tool=name if isinstance(name, str) and name else None,
            call_id=declared_id(message.get("tool_call_id")),
            author="environment",
        )

    def _user(self, at: Text, text: str) -> Event:
        stop = any(marker in text for marker in self.chat.markers)
        if stop and not shown(text).strip():
            return self._event("control", at, aside="control_token", stop=True)
        kind: Any = "task" if not self.asked else "user" if self.acted else "context"
        self.asked = True
        return Event(
            kind=kind,
            turn=str(self.turn),
            branch=self.branch,
            span=self.place.span(at),
            text=text,
            author=self.chat.user,
            stop=stop,
        )

    def _event(self, kind: Any, at: Text, *, aside: str | None = None, stop: bool = False) -> Event:
        return Event(
            kind=kind,
            turn=str(self.turn),
            branch=self.branch,
            span=self.place.span(at),
            text=at.text,
            aside=aside,
            stop=stop,
        )


def role_of(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def _list_of(value: object) -> list[Any]:
    """The message list of a parsed record, whichever shape it has; empty when it has none."""
    if isinstance(value, dict) and any(keys <= value.keys() for keys in OF_OTHERS):
        return []
    if isinstance(value, dict) and "messages" not in value:
        value = [value] if "content" in value and "type" not in value else []  # an element of a bare list
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not any(role_of(message) in ROLES for message in messages):
        return []
    return [] if _is_foreign(messages) else messages


def _is_foreign(messages: list[Any]) -> bool:
    """Whether another format wrote these messages, of which this one would make wrong pairs."""
    for message in messages:
        if not isinstance(message, dict):
            continue
        content, kind = message.get("content"), message.get("type")
        if any(isinstance(message.get(key), list) for key in FOREIGN_LISTS):
            return True
        if isinstance(kind, str) and kind in TYPES:  # items of OpenAI Responses
            return True
        if isinstance(content, str):
            if content.startswith(FOREIGN_OPENING) and message.get("role") == "user":
                return True
        elif isinstance(content, list):
            kinds = [block.get("type") for block in content if isinstance(block, dict)]
            if any(kind in kinds for kind in FOREIGN_BLOCKS):
                return True
    return False


def _is_legacy(messages: list[Any]) -> bool:
    return any(
        message.get("function_call") is not None or message.get("role") == "function"
        for message in messages
        if isinstance(message, dict)
    )


def _is_of_others(value: object) -> bool:
    """mini-swe-agent writes tool output in the user's name; Anthropic's requests may hold plain texts alone."""
    return bool(sniff_mini(value) or sniff_messages(value))


def _sniff_chat(value: object) -> str | None:
    messages = [] if _is_of_others(value) else _list_of(value)
    return "messages with roles" if messages and not _is_legacy(messages) else None


def _sniff_legacy(value: object) -> str | None:
    is_chat = _is_legacy(_list_of(value)) and not _is_of_others(value)
    return "messages with roles and function_call" if is_chat else None


def _sniff_tau(value: object) -> str | None:
    fits = isinstance(value, dict) and {"task_id", "traj"} <= value.keys() and isinstance(value["traj"], list)
    return "objects with task_id and traj" if fits else None


def _format(name: str, sniff: Callable[[object], str | None], fits: Callable[[object], bool]) -> Format:
    return Format(name, sniff, fits, partial(_read, name=name), partial(_stream, name=name))


FORMATS = (
    _format("openai_chat", _sniff_chat, lambda value: bool(_list_of(value))),
    _format("openai_chat_legacy", _sniff_legacy, lambda value: bool(_list_of(value))),
    _format("tau_bench", _sniff_tau, lambda value: _sniff_tau(value) is not None),
)
