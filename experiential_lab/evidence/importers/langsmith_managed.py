"""Recorded sessions of Anthropic's managed agents: lines of `[client method, payload]`, as LangSmith's tests keep them.

- Unit: a line. A session is one trace, named by `client.beta.sessions.create`; its agent's `system` is context.
- The events of its stream are its blocks. What the client sent is a `duplicate_view` of what the stream repeats, and counts
  where the stream does not.
- A call is named by its event's id, a result by `tool_use_id`, `mcp_tool_use_id` or `custom_tool_use_id`. A denied tool
  confirmation is the user's rejection; an allowed one, states and spans are what the harness wrote.
- A run of the agent's events is one turn, whatever states stand between them. Usage is that of its model requests.

Not covered: threads of several agents in one session, which are read as one.
"""

import json
from typing import Any

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.dialects import Node
from experiential_lab.evidence.importers.format import Source, context_of, declared_id
from experiential_lab.evidence.importers.langfuse_runs import tool_names
from experiential_lab.evidence.importers.usage import Usage, pooled, usage_in
from experiential_lab.evidence.spans import Text
from experiential_lab.evidence.trace import Event, Trace
from experiential_lab.records import digest_of, short_id

METHODS = "client.beta."
CALLS = ("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use")
RESULTS = ("agent.tool_result", "agent.mcp_tool_result", "user.custom_tool_result")
ANSWERED = ("tool_use_id", "mcp_tool_use_id", "custom_tool_use_id")
SPOKEN = ("text", "reasoning", "call")
HEARD = ("task", "context", "user", "result")


def is_managed(value: object) -> bool:
    """Whether a record is a line of such a recording."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and value[0].startswith(METHODS)


def managed_traces(source: Source, name: str, lines: list[Framed]) -> list[Trace]:
    """One trace a session; what a stream sends belongs to the session that was named last."""
    sessions: dict[str, list[Framed]] = {}
    current = ""
    for line in lines:
        payload = line.value[1]
        if isinstance(payload, dict) and payload.get("type") == "session":
            current = declared_id(payload.get("id")) or current
        elif isinstance(payload, list) and payload:
            current = declared_id(payload[0]) or current
        sessions.setdefault(current, []).append(line)
    if len(sessions) > 1 and "" in sessions:  # lines before the first that names one
        first = next(key for key in sessions if key)
        sessions[first] = sessions.pop("") + sessions[first]
    return [_trace(source, name, key or digest_of(some[0].raw), some) for key, some in sessions.items()]


def _trace(source: Source, name: str, key: str, lines: list[Framed]) -> Trace:
    session = _Session([line.value[1] for line in lines])
    events = tuple(event for line in lines for event in session.events(Node(source.place(line), line.value)))
    return Trace(
        trace_id=short_id(name, key),
        source=source.digest,
        format=name,
        name=f"session {key}"[:80],
        keys=(f"session:{key}",),
        task=next((event.text for event in events if event.kind == "task"), None),
        context=context_of(events),
        declared_tools=len(session.tools) or None,
        complete=True if any(_kind(each) == "session.status_terminated" for each in session.payloads) else None,
        usage=_usage(session.payloads),
        events=events,
    )


class _Session:
    """The lines of one session, turned into events in their order."""

    def __init__(self, payloads: list[Any]) -> None:
        self.payloads = payloads
        self.streamed = [_said(payload) for payload in payloads if _kind(payload)]
        self.turn, self.in_turn, self.acted, self.asked = 0, False, False, False
        self.tools: set[str] = set()

    def events(self, line: Node) -> list[Event]:
        payload = line.each()[1]
        if _kind(payload.value):
            return [self._event(line, payload)]
        sent = payload.each()[1].get("events").each() if len(payload.each()) > 1 else []
        if sent:
            return [self._event(line, each, is_sent=_said(each.value) in self.streamed) for each in sent]
        system = payload.get("agent.system")
        self.tools |= set(tool_names(payload.get("agent.tools").value))
        if system.string() and not self.acted:
            return [self._made(line, "context", system.quote())]
        return [self._made(line, "control", None, aside="harness_text")]

    def _event(self, line: Node, node: Node, *, is_sent: bool = False) -> Event:
        """One event of the stream, or one that the client sent and the stream does not repeat."""
        kind, at, more = _read(node)
        value = node.value if isinstance(node.value, dict) else {}
        time = value.get("processed_at")
        if is_sent:
            more["aside"] = "duplicate_view"
        if kind == "user":
            kind = "user" if self.acted else "context" if self.asked else "task"
        if not more.get("aside"):
            self.asked = self.asked or kind == "task"
            self.turn += kind in SPOKEN and not self.in_turn
            self.acted = self.acted or kind in SPOKEN
            self.in_turn = kind in SPOKEN or (self.in_turn and kind not in HEARD)
        return self._made(line, kind, at, at=time if isinstance(time, str) else None, **more)

    def _made(self, line: Node, kind: Any, quoted: Text | None, **more: Any) -> Event:
        whole = Text(line.place.raw.decode(), "")
        said = quoted or (whole if kind in ("control", "boundary") else Text("", ""))
        return Event(kind=kind, turn=str(self.turn), span=line.place.span(quoted or whole), text=said.text, **more)


def _read(node: Node) -> tuple[str, Text | None, dict[str, Any]]:
    """What an event is: its kind, what it says, and what else it declares."""
    kind, content, given, reason = _kind(node.value), node.get("content"), node.get("input"), node.get("deny_message")
    said = content.quote() if content.value is not None else None
    call_id = next((found for key in ANSWERED if (found := declared_id(node.get(key).value))), None)
    match kind:
        case "user.message":
            return ("user", said, {}) if said else ("control", None, {"aside": "harness_text"})
        case "agent.message":
            return ("text", said, {}) if said and said.text else ("control", None, {"aside": "empty_message"})
        case "agent.thinking":
            return "reasoning", said, {}
        case "agent.thread_context_compacted":
            return "boundary", None, {}
        case "user.interrupt":
            return "control", None, {"aside": "interrupt_marker"}
        case "user.tool_confirmation" if node.get("result").value == "deny":
            more = {"call_id": call_id, "author": "human", "rejected": True}
            return "result", reason.quote() if reason.string() else None, more
    if kind in CALLS:
        named = {"tool": node.get("name").string(), "call_id": declared_id(node.get("id").value)}
        return "call", given.quote() if given.value is not None else None, named
    if kind in RESULTS:
        is_error = node.get("is_error").value
        error = is_error if isinstance(is_error, bool) else None
        return "result", said, {"call_id": call_id, "author": "environment", "is_error": error}
    return "control", None, {"aside": "harness_text"}


def _kind(payload: Any) -> str:
    """The kind of an event, which is a name with a dot; the empty text for anything else."""
    kind = payload.get("type") if isinstance(payload, dict) else None
    return kind if isinstance(kind, str) and "." in kind else ""


def _said(value: Any) -> tuple[str, str]:
    """What an event says, whoever wrote it down."""
    held = [(key, value.get(key)) for key in ("content", "result", *ANSWERED)] if isinstance(value, dict) else []
    return _kind(value), json.dumps(held, sort_keys=True)


def _usage(payloads: list[Any]) -> Usage | None:
    """Usage of all model requests; None as soon as one states none."""
    return pooled(usage_in(each.get("model_usage")) for each in payloads if _kind(each) == "span.model_request_end")
