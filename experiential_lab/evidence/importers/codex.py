"""Codex rollouts: JSON lines of `{timestamp, type, payload}` that open with a `session_meta`.

- Unit: a line. One trace a session, in the order of the file: lines are appended, and copied ones may keep older times.
- The first `session_meta` names the session. A fork or a sub-agent may begin with a copy of its parent's lines, told by
  `forked_from_id` or by the parent's own `session_meta` right behind. All of it is `replayed_history` until a line proves
  that the session's own turns have begun: by an ordinal behind the inherited ones, by a turn id not older than the session
  (both UUIDs of version 7), by `started_at`, or else by a pause, for copies are written in one burst.
- `response_item` lines are the conversation. `event_msg` lines repeat it for the screen (`duplicate_view`), but for
  `user_message`: only this is what a user said. Items of role user that no user typed (AGENTS.md, the environment) are
  `harness_text`. What another agent says is the `sidechain_prompt` of a sub-agent, and else `harness_text`.
- A call is answered by the output that names its `call_id`. A hosted call (web search) holds its output in its own item, or
  it has none. Arguments and `input` are quoted as they stand: JSON text, a patch, or an object.
- `compacted` is a boundary, and the history that it writes anew is a copy. `thread_rolled_back` starts a branch. An aborted
  turn and an error end the wait for an answer.
- `token_count` is cumulative, and often written twice: usage is the sum of the differences behind the copied history. A
  counter that falls without starting anew makes it unknown.

Not covered: the form before September 2025 (items without `payload`), `codex exec --json`, images, encrypted texts, a
history that stands in the parent's file alone, and a refusal that only the text of an output tells.
"""

import json
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeGuard

import msgspec

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import Format, Source, declared_id
from experiential_lab.evidence.spans import Text
from experiential_lab.evidence.trace import Author, Event, Imported, Rejected, Trace
from experiential_lab.records import SAFE_INTEGER, digest_of, short_id

NAME = "codex_rollout"
LINES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
TURN_STARTS = ("task_started", "turn_started")
PAUSE_S = 0.1  # copies follow each other within milliseconds; a turn waits for a person or for another agent
TYPED_SOURCES = ("cli", "vscode")  # a person types there; `exec` and `mcp` are programs
VIEWS = re.compile(
    "context_compacted|item_started|item_completed|raw_response_item|view_image_tool_call|agent_message|agent_reasoning.*"
    "|(exec_command|patch_apply|mcp_tool_call|web_search|image_generation|dynamic_tool_call)_.*"
)
ENDS_WAIT = {"turn_aborted": "interrupt_marker", "error": "synthetic_assistant", "stream_error": "synthetic_assistant"}
SUMMARIES = ("compaction", "compaction_summary", "context_compaction")
ARGUMENTS = ("arguments", "input", "action", "revised_prompt")
OUTPUTS = ("output", "result", "results", "tools")
PARENTS = ("forked_from_id", "parent_thread_id", "session_id")
_UUID7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


class _Line(NamedTuple):
    record: Framed
    type: str
    kind: str
    """What an item or an event is; empty for other lines."""
    payload: dict[str, Any]

    @property
    def session(self) -> str | None:
        """The session that a line of metadata names."""
        return declared_id(self.payload.get("id") or self.payload.get("session_id"))

    @property
    def seconds(self) -> float | None:
        return _seconds(self.record.value.get("timestamp"))

    @property
    def is_user_item(self) -> bool:
        return self.kind == "message" and self.payload.get("role") == "user"

    @property
    def is_typed(self) -> bool:
        """Whether a user wrote it: early versions announced what the harness wrote as another kind of user message."""
        return self.kind == "user_message" and self.payload.get("kind") in (None, "plain")


def _read(source: Source) -> Imported:
    """Every session of a source, as traces."""
    traces: dict[str, Trace] = {}
    rejected: list[Rejected] = []
    for part in _files(source):
        good, bad = part.readable()
        lines = [line for record in good if (line := _line(record))]
        rejected += bad + [source.rejected(record, "unknown_shape") for record in good if not _line(record)]
        for session in _sessions(lines):
            trace = _Reader(source, session).trace()
            if trace.trace_id in traces:  # the same session in another file of the zip
                again = short_id(trace.trace_id, session.lines[0].record.member)
                trace = msgspec.structs.replace(trace, trace_id=again)
            traces[trace.trace_id] = trace
    rejected.sort(key=lambda each: each.record)
    return Imported(traces=tuple(traces.values()), records=len(source.frames.records), rejected=tuple(rejected))


def _files(source: Source) -> list[Source]:
    """One source a file: the files of a zip may copy each other's lines, and each keeps its own."""
    members: dict[str, list[Framed]] = {}
    for record in source.frames.records:
        members.setdefault(record.member, []).append(record)
    return [source._replace(frames=source.frames._replace(records=records)) for records in members.values()]


def _line(record: Framed) -> _Line | None:
    value = record.value
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return None
    payload = value.get("payload")
    if not isinstance(payload, dict):
        return None
    kind = payload.get("type") if value["type"] in ("response_item", "event_msg") else None
    return _Line(record, value["type"], kind if isinstance(kind, str) else "", payload)


def _sessions(lines: list[_Line]) -> "list[_Session]":
    """The sessions of a file, each with its lines. A file holds one, unless files were joined."""
    found: list[_Session] = []
    has_ids = any(_minted(line.payload.get("turn_id")) is not None for line in lines)
    current = None
    for line in lines:
        if current is None or (line.type == "session_meta" and not current.takes(line)):
            current = next((each for each in found if each.session_id == line.session), None)
            if current is None:
                current = _Session(has_minted_turns=has_ids)
                found.append(current)
        current.add(line)
    return found


class _Session:
    """The lines of one session, and which of them are copies of its parent's."""

    def __init__(self, *, has_minted_turns: bool) -> None:
        self.meta: dict[str, Any] | None = None
        self.session_id: str | None = None
        self.started: float | None = None
        self.has_minted_turns = has_minted_turns
        self.lines: list[_Line] = []
        self.copied: list[bool] = []
        self.parents: set[str] = set()
        self.is_copying = self.has_spoken = False

    def takes(self, line: _Line) -> bool:
        """Whether a line of metadata belongs here: one of another session does only where a copy may stand."""
        return self.meta is None or line.session in (self.session_id, None) or self.is_copying or not self.has_spoken

    def add(self, line: _Line) -> None:
        if line.type == "session_meta" and self.meta is None:
            self._open(line)
            self.copied.append(False)
        else:
            if line.type == "session_meta":
                self.is_copying = line.session not in (self.session_id, None)
                self.parents |= {line.session or ""} if self.is_copying else set()
            elif self.is_copying and self._is_own(line):
                self._end_copy(line)
            self.copied.append(self.is_copying)
        self.lines.append(line)
        self.has_spoken |= not self.is_copying and line.type in ("response_item", "event_msg")

    def _open(self, line: _Line) -> None:
        meta = self.meta = line.payload
        self.session_id = line.session
        declared = _seconds(meta.get("timestamp"))
        self.started = line.seconds if declared is None else declared
        base = declared_id(_at(meta, "history_base", "thread_id"))
        spawned = _at(meta, "source", "subagent", "thread_spawn", "parent_thread_id")
        self.parents = {declared_id(each) or "" for each in (base, spawned, *(meta.get(key) for key in PARENTS))}
        self.is_copying = base is None and declared_id(meta.get("forked_from_id")) is not None

    def _is_own(self, line: _Line) -> bool:
        """Whether a line behind copied ones proves that the session's own turns have begun."""
        inherited, ordinal = _at(self.meta, "history_base", "end_ordinal_exclusive"), line.record.value.get("ordinal")
        if _is_count(inherited) and _is_count(ordinal):
            return ordinal >= inherited
        if not (line.type == "turn_context" or line.kind in (*TURN_STARTS, "user_message") or line.is_user_item):
            return False
        mine, turn = _minted(self.session_id), _minted(line.payload.get("turn_id"))
        if mine is not None and turn is not None:
            return turn >= mine
        if self.started is None or (mine is not None and self.has_minted_turns):
            return False
        began = line.payload.get("started_at")
        if _is_count(began):
            return began >= int(self.started)
        now, before = line.seconds, self.lines[-1].seconds
        if now is None or before is None or now < self.started:
            return False
        return before < self.started or now - before >= PAUSE_S

    def _end_copy(self, line: _Line) -> None:
        """What a person typed may stand before the line that proves it to be new."""
        self.is_copying = False
        at = len(self.lines) - 1
        while line.kind not in TURN_STARTS and (self.lines[at].is_user_item or self.lines[at].kind == "user_message"):
            self.copied[at] = False
            at -= 1


class _Reader:
    """Turns the lines of one session into events, one after the other."""

    def __init__(self, source: Source, session: _Session) -> None:
        self.source, self.session = source, session
        meta = self.meta = session.meta or {}
        self.is_agent = _at(meta, "source", "subagent") is not None or meta.get("thread_source") == "subagent"
        self.author: Author = "human" if meta.get("source") in TYPED_SOURCES else "unknown"
        self.said = {
            text for each in session.lines if each.is_typed and isinstance(text := each.payload.get("message"), str)
        }
        self.branch, self.turns, self.asked = "", 0, 0
        self.in_turn = self.acted = self.is_copy = False
        self.line = session.lines[0]
        self.place = source.place(self.line.record)

    def trace(self) -> Trace:
        events: list[Event] = []
        for at, line in enumerate(self.session.lines):
            self.line, self.place, self.is_copy = line, self.source.place(line.record), self.session.copied[at]
            events += self._events(at)
        session, first = self.session.session_id, self.session.lines[0].record
        prompts = [event for event in events if event.aside == "sidechain_prompt"]
        asked = prompts + [event for event in events if event.kind == "task"]
        return Trace(
            trace_id=short_id(NAME, digest_of(first.raw) if session is None else session),
            source=self.source.digest,
            format=NAME,
            name=f"{'agent' if self.is_agent else 'session'} {(session or f'record {first.number}')[:40]}",
            keys=self._keys(),
            task=asked[0].text if asked else None,
            context="\n\n".join(event.text for event in events if event.kind == "context") or None,
            usage=_usage(self.session),
            events=tuple(events),
        )

    def _keys(self) -> tuple[str, ...]:
        session = self.session.session_id or ""
        own = [f"session:{session}"] if session else []
        return tuple(sorted({*own, *(f"parent:{each}" for each in self.session.parents - {session, ""})}))

    def _events(self, at: int) -> list[Event]:
        match self.line.type:
            case "session_meta" if self.line.payload is self.meta:
                return self._instructions()
            case "response_item":
                return self._item(at)
            case "event_msg":
                return [self._message()]
            case "compacted":
                return self._compaction()
            case "inter_agent_communication":
                return [self._letter(self.line.payload, self._of("content"))]
        return [self._aside("harness_text")]

    def _instructions(self) -> list[Event]:
        """The system prompt, where the session states it."""
        for pointer in ("/base_instructions/text", "/instructions"):
            text = _at(self.meta, *pointer.split("/")[1:])
            if isinstance(text, str) and text:
                return [self._event("context", Text(text, f"/payload{pointer}"))]
        return [self._aside("harness_text")]

    def _compaction(self) -> list[Event]:
        """A boundary, the summary, and the history that goes on from it."""
        self.in_turn = False
        found = [self._event("boundary", self._of(None), text="")]
        if self.line.payload.get("message"):
            found.append(self._event("control", self._of("message"), aside="compaction_summary"))
        history = self.line.payload.get("replacement_history")
        for at, item in enumerate(history if isinstance(history, list) else []):
            text = self.place.value(item, f"/payload/replacement_history/{at}")
            is_summary = isinstance(item, dict) and item.get("type") in SUMMARIES
            found.append(self._event("control", text, aside="compaction_summary" if is_summary else "replayed_history"))
        return found

    # Items: what the model saw, said and did

    def _item(self, at: int) -> list[Event]:
        kind = self.line.kind
        if kind == "message":
            return [self._said(at)]
        if kind == "agent_message":
            return [self._letter(self.line.payload, self._of("content"))]
        if kind == "reasoning":
            return self._reasoning()
        if kind.endswith("_output"):
            self.in_turn = False
            return [self._result(call_id=declared_id(self.line.payload.get("call_id")))]
        if kind.endswith("_call"):
            return self._call()
        if kind in SUMMARIES:
            return [self._aside("compaction_summary")]
        return [self._aside("tool_definition" if kind == "additional_tools" else "harness_text")]

    def _said(self, at: int) -> Event:
        role, said = self.line.payload.get("role"), self._of("content")
        if role == "assistant":
            letter = _letter(said.text)
            if letter is not None:
                return self._letter(letter, said)
            self._speak()
            return self._event("text", said) if said.text and said.pointer else self._aside("empty_message")
        self.in_turn = False
        if role in ("developer", "system"):
            return self._event("control", said, aside="harness_text") if self.acted else self._event("context", said)
        if role == "user":
            return self._event("control", said, aside="duplicate_view" if self._is_view(at) else "harness_text")
        return self._event("control", said, aside="unknown_role")

    def _is_view(self, at: int) -> bool:
        """Whether an item of role user is what a user typed: it says the same, or it stands right before it."""
        lines, content = self.session.lines, self.line.payload.get("content")
        texts = [each.get("text") for each in content if isinstance(each, dict)] if isinstance(content, list) else []
        is_next = at + 1 < len(lines) and lines[at + 1].is_typed
        return is_next or any(isinstance(text, str) and text in self.said for text in texts)

    def _letter(self, letter: dict[str, Any], said: Text) -> Event:
        """What another agent says: the prompt of a sub-agent, unless one of its own sub-agents reports."""
        self.in_turn = False
        author, recipient = letter.get("author"), letter.get("recipient")
        is_report = isinstance(author, str) and isinstance(recipient, str) and author.startswith(f"{recipient}/")
        return self._event("control", said, aside=self._prompt() if not is_report else "harness_text")

    def _reasoning(self) -> list[Event]:
        self._speak()
        found = []
        for field in ("summary", "content"):
            blocks = self.line.payload.get(field)
            for at, block in enumerate(blocks if isinstance(blocks, list) else []):
                pointer = f"/payload/{field}/{at}"
                text = block.get("text") if isinstance(block, dict) else None
                said = Text(text, f"{pointer}/text") if isinstance(text, str) else self.place.value(block, pointer)
                found.append(self._event("reasoning", said))
        return found or [self._event("reasoning", self._of(None), text="")]

    def _call(self) -> list[Event]:
        """A call; behind it the output that stands in its own item, where a hosted tool wrote one."""
        self._speak()
        item, tool = self.line.payload, self.line.kind.removesuffix("_call")
        if tool in ("function", "custom_tool"):
            name, space = item.get("name"), item.get("namespace")
            is_spaced = isinstance(space, str) and space
            tool = (f"{space}.{name}" if is_spaced else name) if isinstance(name, str) and name else ""
        field = next((each for each in ARGUMENTS if item.get(each) is not None), None)
        at = self._of(field)
        call_id = declared_id(item.get("call_id"))
        if call_id is None and tool == "local_shell":  # as chat completions wrote it
            call_id = declared_id(item.get("id"))
        text = at.text if field else ""
        if all(item.get(each) in (None, "", []) for each in OUTPUTS):
            return [self._event("call", at, text=text, tool=tool or None, call_id=call_id)]
        within = f"line{self.line.record.number}"
        return [self._event("call", at, text=text, tool=tool or None, within=within), self._result(within=within)]

    def _result(self, call_id: str | None = None, within: str | None = None) -> Event:
        item = self.line.payload
        field = next((each for each in OUTPUTS if item.get(each) is not None), None)
        output, path = item.get(field or ""), field
        success = None
        if isinstance(output, dict) and "content" in output:  # early versions
            success, path = output.get("success"), f"{field}/content"
            output = output["content"]
        at = self._of(None) if path is None else self.place.value(output, f"/payload/{path}")
        return self._event(
            "result",
            at,
            text=at.text if path else "",
            tool=declared_id(item.get("name")) if call_id is None and within is None else None,
            call_id=call_id,
            within=within,
            author="environment",
            is_error=not success if isinstance(success, bool) else None,
        )

    def _speak(self) -> None:
        self.turns += not self.in_turn
        self.in_turn = self.acted = True

    # Events: what the screen showed, and what the user typed

    def _message(self) -> Event:
        kind = self.line.kind
        if kind == "user_message":
            return self._typed()
        if kind in ENDS_WAIT:
            self.in_turn = False
            return self._aside(ENDS_WAIT[kind])
        event = self._aside("duplicate_view" if VIEWS.fullmatch(kind) else "harness_text")
        if kind == "thread_rolled_back":
            self._roll_back()
        return event

    def _typed(self) -> Event:
        self.in_turn = False
        said = self._of("message")
        if not self.line.is_typed:
            return self._event("control", said, aside="harness_text")
        if self.is_agent and not self.is_copy:
            return self._event("control", said, aside="sidechain_prompt")
        self.asked += 1
        kind = "user" if self.acted else "context" if self.asked > 1 else "task"
        return self._event(kind, said, text=said.text if said.pointer else "", author=self.author)

    def _roll_back(self) -> None:
        """The last requests of the user are undone: what follows goes on from an earlier point, on a branch."""
        undone = self.line.payload.get("num_turns")
        self.asked = max(0, self.asked - undone) if _is_count(undone) else self.asked
        self.in_turn, self.acted = False, self.acted and self.asked > 0
        self.branch = f"rollback{self.line.record.number}"

    # One event

    def _prompt(self) -> str:
        return "sidechain_prompt" if self.is_agent else "harness_text"

    def _of(self, field: str | None) -> Text:
        """What a field of the payload says; the line itself where it says nothing."""
        value = self.line.payload.get(field) if field else None
        if value is None:
            return Text(self.line.record.raw.decode(), "")
        return self.place.value(value, f"/payload/{field}")

    def _aside(self, reason: str) -> Event:
        return self._event("control", self._of(None), aside=reason)

    def _event(self, kind: Any, at: Text, *, text: str | None = None, aside: str | None = None, **more: Any) -> Event:
        stamp = self.line.record.value.get("timestamp")
        return Event(
            kind=kind,
            turn=str(self.turns),
            branch=self.branch,
            span=self.place.span(at) if at.pointer else self.place.whole(),
            text=at.text if text is None else text,
            at=stamp if isinstance(stamp, str) else None,
            aside="replayed_history" if self.is_copy else aside,
            **more,
        )


def _letter(text: str) -> dict[str, Any] | None:
    """What one agent wrote to another: versions of early 2026 kept it as a message of the assistant."""
    if not text.startswith("{") or '"recipient"' not in text:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and {"author", "recipient", "content"} <= value.keys() else None


def _usage(session: _Session) -> tuple[tuple[str, int], ...] | None:
    """The session's own units: the differences of its cumulative counters. None where they are unknown."""
    used: dict[str, int] = {}
    last: dict[str, int] | None = None
    has_parents = bool(session.parents - {session.session_id or "", ""})
    for line, is_copy in zip(session.lines, session.copied, strict=True):
        info = line.payload.get("info")
        if line.kind != "token_count" or not isinstance(info, dict):
            continue
        total, step = _counts(info.get("total_token_usage")), _counts(info.get("last_token_usage"))
        if total and total == last:
            continue
        if not is_copy:
            more = _difference(total, last, step, has_parents=has_parents)
            if more is None:
                return None
            used = {key: used.get(key, 0) + more.get(key, 0) for key in used | more}
        last = total or last
    return tuple(sorted(used.items())) if used and max(used.values()) <= SAFE_INTEGER else None


def _difference(
    total: dict[str, int], last: dict[str, int] | None, step: dict[str, int], *, has_parents: bool
) -> dict[str, int] | None:
    """What one reading of the counters adds to the one before; None where that cannot be known."""
    if not total:
        return None
    if last is None:  # counters that were not seen to start may hold what another session used
        return step or (None if has_parents else total)
    if any(total.get(key, 0) < count for key, count in last.items()):
        return total if total == step else None
    return {key: count - last.get(key, 0) for key, count in total.items()}


def _counts(usage: object) -> dict[str, int]:
    found = usage.items() if isinstance(usage, dict) else ()
    return {key: count for key, count in found if _is_count(count) and count >= 0}


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _at(value: object, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _minted(value: object) -> int | None:
    """The millisecond in which a UUID of version 7 was made."""
    found = _UUID7.fullmatch(value) if isinstance(value, str) else None
    return int(found[1] + found[2], 16) if found else None


def _seconds(stamp: object) -> float | None:
    try:
        moment = datetime.fromisoformat(stamp) if isinstance(stamp, str) else None
    except ValueError:
        return None
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _sniff(value: object) -> str | None:
    if not isinstance(value, dict) or value.get("type") not in LINES or "timestamp" not in value:
        return None
    return "lines with timestamp, type and payload" if isinstance(value.get("payload"), dict) else None


FORMATS = (Format(NAME, _sniff, lambda value: _sniff(value) is not None, _read),)
