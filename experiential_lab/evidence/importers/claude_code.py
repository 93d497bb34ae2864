"""Claude Code sessions: JSON lines of `{uuid, parentUuid, sessionId, type, message}`, and exports that hold such lines.

- Unit: a line, or an export: an object with a list of lines (`loglines`, whose lines may lack ids), or such a list inside
  lines or a list. In an export, what is no line is `unknown_role`, and a line that stands twice a `duplicate_view`. One that
  names no session is one of its own.
- One trace a session; sub-agents (`isSidechain`) and edited branches are branches of it. A file that holds a
  sub-agent alone is a trace of its own, in the lineage of its session.
- One model message may be several lines with one `message.id`: they are one turn, and their usage counts once, the last. A
  block of it that is written twice is a `duplicate_view`.
- `parentUuid` tells branches apart. It never pairs: results name their call. A typed message that goes back behind a later
  one, or to the very start, opens an edited branch.
- What the harness wrote is no answer: meta lines, command output, interrupt markers, compaction summaries, synthetic
  assistant lines, and what a sub-agent is told. `/clear` and compaction are boundaries.

Not covered: copied history of resumed sessions.
"""

from typing import Any, NamedTuple

import msgspec

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import Format, Source, declared_id
from experiential_lab.evidence.importers.parts import Part, parts_of
from experiential_lab.evidence.importers.usage import Usage, pooled, sound_in
from experiential_lab.evidence.spans import Text
from experiential_lab.evidence.trace import Event, Imported, Trace
from experiential_lab.records import digest_of, short_id

NAME = "claude_code"
TALK = ("user", "assistant")
EXPORTED = "loglines"  # where the web keeps the lines of a session, without ids
HARNESS_OPENINGS = (
    "<command-name>",
    "<command-message>",
    "<command-args>",
    "<local-command-",
    "<bash-input>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<system-reminder>",
    "<task-notification>",
    "<ide_opened_file>",
    "<ide_selection>",
    "Caveat: The messages below were generated",
)
INTERRUPTS = ("[Request interrupted by user]", "[Request interrupted by user for tool use]")
REFUSALS = (
    "The user doesn't want to proceed with this tool use",
    "The user doesn't want to take this action right now",
)
PLACEHOLDER = "(no content)"
NO_LINE: dict[str, Any] = {"type": ""}
CLEAR = "<command-name>/clear</command-name>"
CALL_BLOCKS = ("tool_use", "server_tool_use", "mcp_tool_use")
RESULT_BLOCKS = ("tool_result", "web_search_tool_result", "web_fetch_tool_result", "mcp_tool_result")


class _Line(NamedTuple):
    record: Framed
    value: dict[str, Any]
    part: Part
    """Where the line stands: the record itself, or an element of it."""
    aside: str = ""
    """Why it is none, or none of its own."""

    @property
    def message(self) -> dict[str, Any]:
        message = self.value.get("message")
        return message if isinstance(message, dict) else {}


def _read(source: Source) -> Imported:
    """Every session of a source, as traces."""
    good, rejected = source.readable()
    sessions: dict[str, list[_Line]] = {}
    seen: set[str] = set()
    current = ""
    for record in good:
        lines = _lines(source, record)
        if lines[0].part.pointer:
            named = (declared_id(line.value.get("sessionId")) for line in lines)
            current = next(filter(None, named), digest_of(record.raw))
        for line in lines:
            uuid = declared_id(line.value.get("uuid"))
            if uuid in seen:
                line = line._replace(value=NO_LINE, aside="duplicate_view" if line.part.pointer else "duplicate_record")
            if line.aside and not line.part.pointer:
                rejected.append(source.rejected(record, line.aside))
                continue
            seen |= {uuid} if uuid else set()
            current = declared_id(line.value.get("sessionId")) or current  # metadata belongs to what it follows
            sessions.setdefault(current, []).append(line)
    if len(sessions) > 1 and "" in sessions:  # metadata before the first line that names a session
        first = next(key for key in sessions if key)
        sessions[first] = sessions.pop("") + sessions[first]
    rejected.sort(key=lambda each: each.record)
    traces = tuple(_Session(source, key, lines).trace() for key, lines in sessions.items())
    return Imported(traces=traces, records=len(source.frames.records), rejected=tuple(rejected))


def _lines(source: Source, record: Framed) -> list[_Line]:
    """The lines of one record: itself, or those that it holds."""
    place, value, key = source.place(record), record.value, _held(record.value)
    if key is None:
        part = Part(place, record.raw, "")
        return [_Line(record, value, part) if _is_sound(value) else _Line(record, NO_LINE, part, "unknown_shape")]
    is_list = isinstance(value, list)
    pointer = "" if is_list else "/" + key.replace("~", "~0").replace("/", "~1")
    parts = parts_of(place, pointer, value if is_list else value[key])
    return [
        _Line(record, line, part) if _is_sound(line) else _Line(record, NO_LINE, part, "unknown_role")
        for part, line in parts
    ]


def _held(value: object) -> str | None:
    """The key of the lines that a record holds, empty where it is a list of them; None where it is a line, or unknown."""
    if isinstance(value, list):
        return "" if any(map(_is_named, value)) else None
    if not isinstance(value, dict) or value.get("type") in TALK:
        return None
    for key, lines in value.items():
        if isinstance(lines, list) and any(map(_fits_line if key == EXPORTED else _is_named, lines)):
            return str(key)
    return None


def _is_sound(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    return value["type"] not in TALK or isinstance(value.get("message"), dict)


class _Branch:
    """What has happened on one branch so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.turn, self.epoch = "0", 0
        self.messages: set[str] = set()  # ids of the model messages of the turn
        self.in_turn = self.acted = self.asked = False


class _Point(NamedTuple):
    """What stood on a branch when one of its lines came."""

    branch: _Branch
    epoch: int
    acted: bool
    agent: object


class _Session:
    """The lines of one session, turned into events in file order."""

    def __init__(self, source: Source, session: str, lines: list[_Line]) -> None:
        self.source, self.session, self.lines = source, session, lines
        talk = [line for line in lines if line.value["type"] in TALK]
        self.is_agent = bool(talk) and all(line.value.get("isSidechain") is True for line in talk)
        self.by_uuid = {line.value["uuid"]: line.value for line in lines if isinstance(line.value.get("uuid"), str)}
        self.branches: dict[str, _Branch] = {}
        self.points: dict[str, _Point] = {}
        self.above: dict[str, object] = {}  # of a line of metadata: the first message above it, if any
        self.views: set[tuple[object, ...]] = set()
        self.turns = 0
        self.is_chained = any(
            line.value["type"] == "assistant" and isinstance(line.value.get("parentUuid"), str) for line in talk
        )

    def trace(self) -> Trace:
        events = [event for line in self.lines for event in self._line(line)]
        agent = next((v["agentId"] for v in self.by_uuid.values() if isinstance(v.get("agentId"), str)), None)
        parts = [self.session or self.source.digest]
        if self.is_agent:
            parts.append(agent or next(iter(self.by_uuid), "agent"))
        slugs = {v["slug"] for v in self.by_uuid.values() if isinstance(v.get("slug"), str) and v["slug"]}
        kinds = ("task", "sidechain_prompt") if self.is_agent else ("task",)
        return Trace(
            trace_id=short_id(NAME, *parts),
            source=self.source.digest,
            format=NAME,
            name=f"{'agent' if self.is_agent else 'session'} {parts[-1][:40]}",
            keys=tuple(sorted({f"session:{parts[0]}"} | {f"session:slug:{slug}" for slug in slugs})),
            task=next((event.text for event in events if event.kind in kinds or event.aside in kinds), None),
            usage=_usage(self.lines),
            events=tuple(events),
        )

    def _line(self, line: _Line) -> list[Event]:
        value = line.value
        branch = self._branch(value)
        if line.aside:
            return [line.part.event("control", line.part.whole, turn=branch.turn, branch=branch.name, aside=line.aside)]
        build = _Builder(line.part, branch, value.get("timestamp"))
        if value["type"] not in TALK:
            if value.get("subtype") == "compact_boundary":
                return [build.event("boundary", build.record)]
            return [build.event("control", build.record, aside="harness_text")]
        found = self._assistant(line, build) if value["type"] == "assistant" else self._user(line, build)
        if isinstance(value.get("uuid"), str):
            self.points[value["uuid"]] = _Point(branch, branch.epoch, branch.acted, value.get("agentId"))
        return found

    def _branch(self, value: dict[str, Any]) -> _Branch:
        """Where a line belongs: with its parent, unless a sub-agent or an edited message starts a branch of its own."""
        parent = self._parent(value)
        name, acted = parent.branch.name if parent else "", False
        if value.get("isSidechain") is True:
            agent = value.get("agentId")
            is_other = bool(parent and parent.agent and agent and parent.agent != agent)
            if not self.is_agent and (is_other or not name.startswith("sidechain:")):
                name = f"sidechain:{agent or value.get('uuid') or ''}"
        elif self._goes_back(value, parent):
            name, acted = f"edit:{value.get('uuid')}", parent is not None and parent.acted
        branch = self.branches.get(name)
        if branch is None:
            branch = self.branches[name] = _Branch(name)
            branch.acted = branch.asked = acted
        return branch

    def _parent(self, value: dict[str, Any]) -> _Point | None:
        """The nearest message that a line follows; lines of metadata may stand between."""
        parent, seen = value.get("parentUuid"), set[str]()
        while isinstance(parent, str) and parent not in self.points and parent in self.by_uuid and parent not in seen:
            seen.add(parent)
            parent = self.above.get(parent, self.by_uuid[parent].get("parentUuid"))
        if all(self.by_uuid[each]["type"] not in TALK for each in seen):
            self.above |= dict.fromkeys(seen, parent)  # a long chain is walked once
        return self.points.get(parent) if isinstance(parent, str) else None

    def _goes_back(self, value: dict[str, Any], parent: _Point | None) -> bool:
        """Whether a typed message follows an earlier point of its branch than the last one."""
        if not _is_typed(value):
            return False
        if parent:
            return parent.epoch < parent.branch.epoch
        main = self.branches.get("")
        is_root = "parentUuid" in value and value["parentUuid"] is None
        return is_root and self.is_chained and main is not None and main.acted

    def _assistant(self, line: _Line, build: "_Builder") -> list[Event]:
        message, branch = line.message, build.branch
        content = message.get("content")
        if line.value.get("isApiErrorMessage") is True or message.get("model") == "<synthetic>":
            branch.in_turn = False
            return [build.event("control", build.content(content), aside="synthetic_assistant")]
        message_id = declared_id(message.get("id")) or ""
        if not branch.in_turn and message_id not in branch.messages:
            self.turns += 1
            branch.turn, branch.epoch, branch.messages = str(self.turns), branch.epoch + 1, set()
        branch.messages |= {message_id} - {""}
        branch.in_turn = branch.acted = True
        if isinstance(content, str) and content:
            found = [build.event("text", Text(content, "/message/content"))]
        else:
            blocks = content if isinstance(content, list) else []
            found = [build.block(block, f"/message/content/{at}") for at, block in enumerate(blocks)]
        found = self._seen_once(found, message_id) if message_id else found
        return found or [build.event("control", build.record, aside="empty_message")]

    def _seen_once(self, events: list[Event], message_id: str) -> list[Event]:
        """The blocks of one line, without those that an earlier line of the same model message wrote already."""
        keys = [(e.branch, message_id, e.kind, e.tool, e.call_id, e.text) for e in events]
        again = [
            key in self.views and not (event.kind == "call" and event.call_id is None)
            for key, event in zip(keys, events, strict=True)
        ]
        self.views.update(keys)
        return [
            msgspec.structs.replace(event, aside=event.aside or "duplicate_view") if is_again else event
            for event, is_again in zip(events, again, strict=True)
        ]

    def _user(self, line: _Line, build: "_Builder") -> list[Event]:
        value, content = line.value, line.message.get("content")
        build.branch.in_turn = False
        if value.get("isCompactSummary") is True:
            compacted = build.place.value(True, "/isCompactSummary")  # an export has no line that says so before
            return [
                build.event("boundary", compacted),
                build.event("control", build.content(content), aside="compaction_summary"),
            ]
        if not content:
            return [build.event("control", build.record, aside="harness_text")]
        if not _is_mixed(content):
            return [self._said(value, build, build.content(content))]
        found = []
        for at, block in enumerate(content):
            pointer = f"/message/content/{at}"
            if _kind(block) in RESULT_BLOCKS:
                found.append(build.result(block, pointer, value.get("toolUseResult")))
            else:
                found.append(self._said(value, build, build.one_block(block, pointer)))
        return found

    def _said(self, value: dict[str, Any], build: "_Builder", at: Text) -> Event:
        """A user message: what a person typed, or what the harness wrote in their name."""
        branch = build.branch
        if at.text.strip() in INTERRUPTS:
            return build.event("control", at, aside="interrupt_marker")
        if CLEAR in at.text and at.text.lstrip().startswith("<command-"):
            branch.acted = branch.asked = False
            return build.event("boundary", at)
        if value.get("isMeta") is True or at.text.lstrip().startswith(HARNESS_OPENINGS):
            return build.event("control", at, aside="harness_text")
        if value.get("isSidechain") is True:  # the agent that called it speaks, not a person
            return build.event("control", at, aside="sidechain_prompt")
        branch.epoch += 1
        kind = "task" if not branch.asked else "user" if branch.acted else "context"
        branch.asked = True
        return build.event(kind, at, author="human")


class _Builder:
    """Makes the events of one line."""

    def __init__(self, part: Part, branch: _Branch, at: Any) -> None:
        self.part, self.branch = part, branch
        self.place = part.place._replace(raw=part.raw)  # pointers go into the line
        self.at = at if isinstance(at, str) else None

    @property
    def record(self) -> Text:
        """The line itself."""
        return Text(self.place.raw.decode(), "")

    def content(self, content: object) -> Text:
        """What a message says as one text; the line itself where it says nothing."""
        return self.record if content is None else self.place.value(content, "/message/content")

    def one_block(self, block: Any, pointer: str) -> Text:
        if _kind(block) == "text" and isinstance(block.get("text"), str):
            return Text(block["text"], f"{pointer}/text")
        return self.place.value(block, pointer)

    def block(self, block: Any, pointer: str) -> Event:
        """One block of an assistant message."""
        kind = _kind(block)
        if kind in CALL_BLOCKS:
            return self._call(block, pointer)
        if kind in RESULT_BLOCKS:
            return self.result(block, pointer, None)
        at = self.one_block(block, pointer)
        if kind in ("thinking", "redacted_thinking"):
            return self.event("reasoning", at)
        if kind == "text" and at.text == PLACEHOLDER:
            return self.event("control", at, aside="harness_text")
        return self.event("text", at) if at.text else self.event("control", at, aside="empty_message")

    def _call(self, block: dict[str, Any], pointer: str) -> Event:
        name = block.get("name")
        if block.get("input") is None:
            at, text = self.place.value(block, pointer), ""
        else:
            at = self.place.value(block["input"], f"{pointer}/input")
            text = at.text
        return self.event(
            "call",
            at,
            text=text,
            tool=name if isinstance(name, str) and name else None,
            call_id=declared_id(block.get("id")),
        )

    def result(self, block: dict[str, Any], pointer: str, note: object) -> Event:
        content, is_error = block.get("content"), block.get("is_error")
        if content is None or content == []:
            at, text = self.place.value(block, pointer), ""
        else:
            at = self.place.value(content, f"{pointer}/content")
            text = at.text
        refused = is_error is True and (text.startswith(REFUSALS) or note == "User rejected tool use")
        return self.event(
            "result",
            at,
            text=text,
            call_id=declared_id(block.get("tool_use_id")),
            author="human" if refused else "environment",
            is_error=is_error if isinstance(is_error, bool) else None,
            rejected=refused,
            aside="interrupt_marker" if is_error is True and text.strip() in INTERRUPTS else None,
        )

    def event(self, kind: Any, at: Text, *, text: str | None = None, **more: Any) -> Event:
        inside = at._replace(pointer=self.part.pointer + at.pointer)
        return Event(
            kind=kind,
            turn=self.branch.turn,
            branch=self.branch.name,
            span=self.part.place.span(inside) if inside.pointer else self.place.whole(),
            text=at.text if text is None else text,
            at=self.at,
            **more,
        )


def _kind(block: object) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""


def _has_results(content: object) -> bool:
    return isinstance(content, list) and any(_kind(block) in RESULT_BLOCKS for block in content)


def _is_mixed(content: object) -> bool:
    """Whether the blocks of a user line come from several authors: tools, the harness, a person."""
    return _has_results(content) or (isinstance(content, list) and any(_is_harness(_said(block)) for block in content))


def _is_harness(text: str) -> bool:
    return text.lstrip().startswith(HARNESS_OPENINGS) or text.strip() in INTERRUPTS


def _said(block: object) -> str:
    text = block.get("text") if isinstance(block, dict) else None
    return text if isinstance(text, str) else ""


def _is_typed(value: dict[str, Any]) -> bool:
    """Whether a user line may be what a person typed: only such a line can open an edited branch."""
    message = value.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if value["type"] != "user" or value.get("isMeta") is True or value.get("isCompactSummary") is True:
        return False
    return bool(content) and not _is_mixed(content) and not (isinstance(content, str) and _is_harness(content))


def _usage(lines: list[_Line]) -> Usage | None:
    """Usage of all model messages: the last record of each; None as soon as one message states none that can be."""
    last: dict[str, object] = {}
    for line in lines:
        message = line.message
        if line.value["type"] != "assistant" or message.get("model") == "<synthetic>":
            continue
        own = f"{line.record.number}{line.part.pointer}"
        key = f"{message.get('id') or own}/{line.value.get('requestId')}"
        last[key] = message.get("usage") or last.get(key)
    return pooled(map(sound_in, last.values()))


def _sniff(value: object) -> str | None:
    if _is_named(value):
        return "lines with uuid, sessionId and type"
    return "an export that holds lines with type and message" if _held(value) is not None else None


def _is_named(value: object) -> bool:
    """Whether a value is a line as the log of a session has it."""
    return isinstance(value, dict) and {"uuid", "sessionId", "message"} <= value.keys() and value.get("type") in TALK


def _fits_line(value: object) -> bool:
    return isinstance(value, dict) and value.get("type") in TALK and isinstance(value.get("message"), dict)


def _fits(value: object) -> bool:
    return _fits_line(value) or _held(value) is not None


FORMATS = (Format(NAME, _sniff, _fits, _read),)
