"""Find spans and log records in files, whichever way they are wrapped, and make the traces of one conversation each.

- A record holds one span or log record or many: OTLP (`resourceSpans`, `resourceLogs`, also of Tempo and in snake case), a
  span or a log record as the Python or JavaScript SDK prints it, a row of a data frame, or a page of Phoenix's interface.
- Ids of 32 and 16 hex digits are hex, of 24 and 12 characters that end in `=` base64; any other id is itself.
- One span in two records counts once, a finished one before one that has not ended. A record of nothing but spans that were
  read elsewhere is a `duplicate_span`.
- Log records belong to the span that they name, in their own order; without it they are one of their own. Messages that
  name no span belong to their trace or conversation. A model call ends with its choices; what comes then is the next one. A
  log record that another record holds too counts once.
- The event of a log record is named by itself, by an attribute, or by its body; else by the role of the message in it.
- A trace is one conversation id, else one trace id. Its keys are both, its threads, its linked traces, its response ids.
- Numbers below `FIRST_TIME` in the place of times give an order and are no times.

Not covered: what a span means (`otel`, `openinference`), and how a conversation comes of many (`telemetry`).
"""

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.dialects import Node, block_of
from experiential_lab.evidence.importers.format import Source, context_of, declared_id
from experiential_lab.evidence.importers.telemetry import Run, cost_of, depths, events_of, usage_of, usage_repeated_in
from experiential_lab.evidence.importers.usage import NANO
from experiential_lab.evidence.spans import Place
from experiential_lab.evidence.trace import Event, Imported, Trace
from experiential_lab.records import digest_of, short_id

FIRST_TIME = 10**15  # nanoseconds: the first twelve days of 1970 are the counters of exporters without a clock
RESOURCES = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs", "batches")
SCOPES = ("scopeSpans", "scope_spans", "scopeLogs", "scope_logs", "instrumentationLibrarySpans")
LOG_MARKS = (  # one of them stands in every log record, however it is printed
    "timeUnixNano",
    "time_unix_nano",
    "observedTimeUnixNano",
    "observed_time_unix_nano",
    "observed_timestamp",
    "observedTimestamp",
    "severityNumber",
    "severity_number",
    "timestamp",
)
STARTS = ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime")
GEN_AI, CHOICE = "gen_ai.", "gen_ai.choice"
DETAILS = "gen_ai.client.inference.operation.details"
ROLES = ("system", "user", "assistant", "tool")
MESSAGES = tuple(f"{GEN_AI}{role}.message" for role in ROLES)
ITEMS = {"spans": False, "logRecords": True, "log_records": True}
CONVERSATIONS = ("gen_ai.conversation.id", "session.id", "gen_ai.session.id", "langfuse.session.id")
THREADS = ("thread_id", "traceloop.association.properties.thread_id", "traceloop.association.properties.session_id")
KINDS = (  # of OpenInference
    "LLM",
    "TOOL",
    "AGENT",
    "CHAIN",
    "RETRIEVER",
    "RERANKER",
    "EMBEDDING",
    "GUARDRAIL",
    "EVALUATOR",
    "PROMPT",
    "DECISION",
)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?\s*(Z|[+-]\d\d:?\d\d)?", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOWHERE = Place("", 0, b"")  # of a value that is only looked at


class Logged(NamedTuple):
    """A span or a log record, with what every spelling says of it."""

    record: Framed
    node: Node
    is_log: bool
    trace_id: str
    span_id: str
    parent_id: str
    name: Node
    attributes: Node
    start: int | None
    end: int | None
    started: str | None
    ended: str | None

    @property
    def title(self) -> str:
        return self.name.string() or ""


class Group(NamedTuple):
    """A span with the log records that name it; or log records whose span is not in the file."""

    entry: Logged
    logs: list[Logged]

    def get(self, *names: str) -> Node:
        """The first of these attributes of the span, else of its log records, that says something."""
        held = (entry.attributes.get(*names) for entry in (self.entry, *self.logs))
        return next((found for found in held if found), Node(self.entry.node.place, None))


Reading = Callable[[Group], Run]


def read_spans(source: Source, name: str, reading: Reading) -> Imported:
    """Every conversation of a source; `reading` says what one span means."""
    good, rejected = source.readable()
    entries: list[Logged] = []
    for record in good:
        found = list(_entries(source, record))
        entries += found
        if not found:
            rejected.append(source.rejected(record, "unknown_shape"))
    kept, again = _once(entries)
    kept_in = {_of_record(entry.record) for entry in kept}
    records = {_of_record(entry.record): entry.record for entry in again}
    rejected += [source.rejected(record, "duplicate_span") for at, record in records.items() if at not in kept_in]
    again = [entry for entry in again if _of_record(entry.record) in kept_in]
    rejected.sort(key=lambda each: (each.member, each.record))
    traces = _traces(source, name, _grouped(kept), again, reading)
    return Imported(traces=tuple(traces), records=len(source.frames.records), rejected=tuple(rejected))


def _of_record(record: Framed) -> tuple[str, int]:
    return record.member, record.offset


# Spans, whichever way they are wrapped


def _entries(source: Source, record: Framed) -> Iterator[Logged]:
    root = Node(source.place(record), record.value)
    for node, is_log in spans_in(root):
        yield _entry(record, node, is_log=is_log)


def spans_in(root: Node) -> Iterator[tuple[Node, bool]]:
    """(span or log record, whether it is one) of a parsed value."""
    value = root.value
    if isinstance(value, list):
        for each in root.each():
            if isinstance(each.value, dict):
                yield from spans_in(each)
    elif isinstance(value, dict):
        holders = [name for name in RESOURCES if isinstance(value.get(name), list)]
        if holders:
            for name in holders:
                yield from _in_resources(root.get(name))
        elif isinstance(value.get("trace"), dict) and any(name in value["trace"] for name in RESOURCES):
            yield from spans_in(root.get("trace"))
        elif is_log_record(value):
            yield root, True
        elif is_span(value):
            yield root, False
        else:
            for name in ("data", "spans"):
                listed = root.get(name).each() if isinstance(value.get(name), list) else []
                yield from ((each, False) for each in listed if is_span(each.value))


def _in_resources(resources: Node) -> Iterator[tuple[Node, bool]]:
    for resource in resources.each():
        for scopes in (resource.get(name) for name in SCOPES):
            for scope in scopes.each():
                for name, is_log in ITEMS.items():
                    yield from ((each, is_log) for each in scope.get(name).each() if isinstance(each.value, dict))


def is_span(value: object) -> bool:
    """Whether a parsed object is one span: it names a trace as the SDKs do, or has attributes."""
    if not isinstance(value, dict):
        return False
    context = value.get("context", value.get("spanContext"))
    inner = context if isinstance(context, dict) else value
    named = any(name in inner for name in ("traceId", "trace_id", "context.trace_id"))
    is_known = any(key in value for key in ("attributes", "context", "spanContext", "startTimeUnixNano"))
    return named and (is_known or any(key.startswith("attributes.") for key in value))


def is_log_record(value: dict[str, Any]) -> bool:
    """Whether a parsed object is one log record: it has a time but no start, and a body or the name of its event."""
    if any(key in value for key in STARTS) or not any(key in value for key in LOG_MARKS):
        return False
    return any(key in value for key in ("body", "eventName", "event_name"))


def _entry(record: Framed, node: Node, *, is_log: bool) -> Logged:
    given = node.get("attributes")
    attributes = given.pairs() if isinstance(given.value, list) else given.decoded()
    context = node.get("context", "spanContext")
    inner = context if context.is_object else node
    parent = node.get("parentSpanId", "parent_span_id", "parent_id", "parentId", "parentSpanContext.spanId")
    start, started = moment(
        _logged_at(node) if is_log else node.get("startTimeUnixNano", "start_time_unix_nano"),
        node.get("start_time", "startTime", "timestamp", "observedTimestamp", "observed_timestamp"),
    )
    end, ended = moment(node.get("endTimeUnixNano", "end_time_unix_nano"), node.get("end_time", "endTime"))
    own_id = None if is_log else node.get("id").value
    return Logged(
        record,
        node,
        is_log,
        span_id_of(inner.get("traceId", "trace_id", "context.trace_id").value, 16),
        span_id_of(inner.get("spanId", "span_id", "context.span_id").value or own_id, 8),
        span_id_of(parent.value, 8),
        _name(node, attributes, is_log=is_log),
        attributes,
        start,
        end,
        started,
        ended,
    )


def _logged_at(node: Node) -> Node:
    """When a log record was made, else when it was observed: there zero means unknown."""
    names = ("timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano")
    return next((found for name in names if (found := node.get(name)).number()), Node(node.place, None))


def _name(node: Node, attributes: Node, *, is_log: bool) -> Node:
    """The name of a span, or of the event that a log record tells."""
    said = [node.get(name) for name in ("name", "eventName", "event_name")] + [attributes.get("event.name")]
    if is_log:
        body = _opened(node.get("body")).decoded()
        inside = [body, *(body.get(name) for name in ("event.name", "event_name", "name"))]
        said += [each for each in inside if (each.string() or "").startswith(GEN_AI)]
    return next((each for each in said if each.string()), said[0])


def span_id_of(value: object, size: int) -> str:
    """One spelling of an id of `size` bytes: lower-case hex; any other text as it is, and the empty text for none.

    >>> span_id_of("7uGbfsPBsXQ=", 8), span_id_of("EEE19B7EC3C1B174", 8), span_id_of("0" * 16, 8), span_id_of("s1", 8)
    ('eee19b7ec3c1b174', 'eee19b7ec3c1b174', '', 's1')
    """
    text = declared_id(value) or ""
    hexed = text.removeprefix("0x")
    if len(hexed) == 2 * size and all(sign in "0123456789abcdefABCDEF" for sign in hexed):
        return hexed.lower() if hexed.strip("0") else ""
    if len(text) == 4 * -(-size // 3) and text.endswith("="):
        try:
            data = b64decode(text, validate=True)
        except binascii.Error:
            return text
        return (data.hex() if data.strip(b"\0") else "") if len(data) == size else text
    return text


def moment(nanos: Node, other: Node) -> tuple[int | None, str | None]:
    """(a number that orders, the real time as text) of a moment in any spelling.

    A naive time stays naive, and counts as UTC where only order matters. A number without a unit gives an order alone.
    """
    count = nanos.number()
    pair = other.value
    if count is None and isinstance(pair, list) and len(pair) == 2 and all(type(each) is int for each in pair):
        count = pair[0] * NANO + pair[1]
    if count is not None:
        return count, _text_of(count)
    if isinstance(pair, str):
        count = _nanoseconds(pair)
        return count, pair if count is not None else None
    return other.number(), None


def _text_of(nanos: int) -> str | None:
    """RFC 3339 with nanoseconds; None for what is no time."""
    if not FIRST_TIME <= nanos < 253_402_300_800 * NANO:
        return None
    whole, rest = divmod(nanos, NANO)
    text = (_EPOCH + timedelta(seconds=whole)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}Z" if rest else f"{text}Z"


def _nanoseconds(text: str) -> int | None:
    found = _MOMENT.fullmatch(text.strip())
    if not found:
        return None
    day, time, fraction, zone = found.groups()
    try:
        whole = datetime.fromisoformat(f"{day}T{time}{'+00:00' if not zone or zone in 'Zz' else zone}")
    except ValueError:
        return None
    return (whole - _EPOCH) // timedelta(seconds=1) * NANO + int((fraction or "").ljust(9, "0"))


def _once(entries: Sequence[Logged]) -> tuple[list[Logged], list[Logged]]:
    """Each span once, a finished one before one that has not ended, and each log record of one record; and the others."""
    best: dict[tuple[str, str], Logged] = {}
    told: dict[str, tuple[str, int]] = {}
    kept: list[Logged] = []
    again: list[Logged] = []
    for entry in entries:
        if entry.span_id and not entry.is_log:
            held = best.setdefault((entry.trace_id, entry.span_id), entry)
            if held.end is None and entry.end is not None:
                best[entry.trace_id, entry.span_id] = entry
    for entry in entries:
        if entry.is_log:
            place = _of_record(entry.record)
            is_first = told.setdefault(short_id(json.dumps(entry.node.value, sort_keys=True)), place) == place
        else:
            is_first = not entry.span_id or best[entry.trace_id, entry.span_id] is entry
        (kept if is_first else again).append(entry)
    return kept, again


def _grouped(entries: list[Logged]) -> list[Group]:
    """Spans with their log records; several model calls that log records tell of one span, or of none, are one group each."""
    groups: dict[tuple[str, ...], Group] = {}
    told: dict[tuple[str, ...], list[Logged]] = {}
    logs = [entry for entry in entries if entry.is_log]
    for entry in entries:
        if not entry.is_log:
            groups[entry.trace_id, entry.span_id or _run_id(entry)] = Group(entry, [])
    if all(log.start is not None for log in logs):
        logs.sort(key=lambda log: log.start or 0)
    for log in logs:
        told.setdefault(_told_of(log), []).append(log)
    for key, some in told.items():
        calls = _calls(some)
        if key in groups and len(calls) == 1:
            groups[key].logs.extend(some)
            continue
        for number, call in enumerate(calls):
            head, span_id = call[0], call[0].span_id
            if span_id and len(calls) > 1:  # an agent's span, say: its calls are inside
                head = head._replace(span_id=f"{span_id}#{number}", parent_id=span_id)
            groups[*key, str(number)] = Group(head, [head, *call[1:]])
    return list(groups.values())


def _told_of(log: Logged) -> tuple[str, ...]:
    """What a log record is a part of: the span that it names, else, for a message, its conversation and trace."""
    if log.span_id:
        return log.trace_id, log.span_id
    conversation = declared_id(log.attributes.get(*CONVERSATIONS).value) or ""
    is_message = (log.trace_id or conversation) and log_event(log)[0] in (*MESSAGES, CHOICE, DETAILS)
    return (log.trace_id, conversation, "") if is_message else (log.trace_id, _run_id(log))


def _calls(logs: list[Logged]) -> list[list[Logged]]:
    """The log records of each model call: it ends with its choices, or with all its details in one."""
    found: list[list[Logged]] = [[]]
    is_answered = is_detailed = False
    for log in logs:
        name = log_event(log)[0]
        if is_detailed if name == DETAILS else is_answered and name in MESSAGES:
            found.append([])
            is_answered = is_detailed = False
        is_detailed |= name == DETAILS
        is_answered |= name in (CHOICE, DETAILS)
        found[-1].append(log)
    return found


# What every span says


def plain_run(group: Group, kind: Any = "other", **more: Any) -> Run:
    """A run that says only its name, with what all runs have."""
    entry = group.entry
    last = group.logs[-1] if entry.is_log else entry
    label = block_of(entry.name if entry.title else entry.node)
    return Run(
        run_id=_run_id(entry),
        parent_id=f"{entry.trace_id}/{entry.parent_id}" if entry.parent_id else None,
        kind=kind,
        label=label,
        start=entry.start,
        end=last.start if entry.is_log else entry.end,
        started=entry.started,
        ended=last.started if entry.is_log else entry.ended,
        **more,
    )


def _run_id(entry: Logged) -> str:
    place = f"#{entry.record.member}{entry.record.number}{entry.node.pointer}"
    return f"{entry.trace_id}/{entry.span_id or place}"


def status_of(entry: Logged) -> bool | None:
    """Whether a span failed, as it declares itself; None when it declares nothing."""
    status = entry.node.get("status.code", "status.status_code", "status_code", "statusCode", "status").value
    text = str(status).upper().removeprefix("STATUS_CODE_") if isinstance(status, int | str) else ""
    if text in ("2", "ERROR") or entry.attributes.get("error.type"):
        return True
    return False if text in ("1", "OK") else None


def events_in(entry: Logged) -> list[tuple[str, Node, Node]]:
    """(name, attributes, body) of each event of a span."""
    found = []
    for event in entry.node.get("events").each():
        given = event.get("attributes")
        attributes = given.pairs() if isinstance(given.value, list) else given
        found.append((event.get("name").string() or "", attributes, _body(attributes, event.get("body"))))
    return found


def told_by(group: Group) -> list[tuple[str, Node, Node]]:
    """(name, attributes, body) of each event of a span and of each log record that names it."""
    logs = [log_event(log) for log in group.logs]
    return logs if group.entry.is_log else events_in(group.entry) + logs


def log_event(log: Logged) -> tuple[str, Node, Node]:
    """(name, attributes, body) of the event that a log record tells."""
    opened = _opened(log.node.get("body"))
    is_named = bool(log.title) and opened.string() == log.title  # the body is nothing but the name
    body = _body(log.attributes, Node(opened.place, None) if is_named else opened)
    return log.title or _implied(log.attributes, body), log.attributes, body


def _opened(body: Node) -> Node:
    return Node(body.place, body.value, body.pointer, is_typed=True) if body else body


def _implied(attributes: Node, body: Node) -> str:
    """The name of a nameless event of generative AI: what its body holds."""
    role = body.get("role").string()
    if not attributes.get("gen_ai"):
        return ""
    if body.get("message", "finish_reason"):
        return CHOICE
    return f"{GEN_AI}{role}.message" if role in ROLES else ""


def _body(attributes: Node, body: Node) -> Node:
    """What an event says: its body, a JSON text among its attributes, or the attributes themselves."""
    inner = body or attributes.get("gen_ai.event.content", "event_body")
    return inner.decoded() if inner else attributes


# Traces


def _traces(source: Source, name: str, groups: list[Group], again: list[Logged], reading: Reading) -> Iterator[Trace]:
    conversation = _conversations(groups)
    runs = {_run_id(group.entry): reading(group) for group in groups}
    runs |= {run_id: runs[run_id]._replace(repeats=True) for run_id in _repeated_responses(groups, runs)}
    traces: dict[str, list[Group]] = {}
    for group in groups:
        traces.setdefault(conversation[_run_id(group.entry)], []).append(group)
    copies: dict[str, list[Logged]] = {}
    for entry in again:
        key = conversation.get(_run_id(entry), entry.trace_id)
        copies.setdefault(key, []).append(entry)
    for key, members in traces.items():
        own = [runs[_run_id(group.entry)] for group in members]
        yield _trace(source, name, key, members, own, copies.get(key, []))


def _conversations(groups: list[Group]) -> dict[str, str]:
    """{run: what its trace is called}: the conversation that it declares, else the only one of its trace id."""
    declared = {_run_id(group.entry): _declared(group, CONVERSATIONS) for group in groups}
    of_trace: dict[str, set[str]] = {}
    for group in groups:
        found = declared[_run_id(group.entry)]
        of_trace.setdefault(group.entry.trace_id, set()).update({found} if found else set())
    names = {}
    for group in groups:
        entry, run_id = group.entry, _run_id(group.entry)
        own, others = declared[run_id], of_trace[entry.trace_id]
        shared = next(iter(others)) if len(others) == 1 and entry.trace_id else ""
        names[run_id] = own or shared or entry.trace_id or digest_of(entry.record.raw)
    return names


def _declared(group: Group, names: tuple[str, ...]) -> str | None:
    for entry in (group.entry, *group.logs):
        found = declared_id(entry.attributes.get(*names).value)
        if found:
            return found
    return None


def _repeated_responses(groups: list[Group], runs: dict[str, Run]) -> set[str]:
    """Runs whose response has the id of another's: of these the innermost model call counts, else the first."""
    depth = depths(list(runs.values()))
    held: dict[str, tuple[tuple[bool, int], str]] = {}
    repeated = set()
    for group in groups:
        run_id = _run_id(group.entry)
        rank = bool(group.get("gen_ai.response.id", "ai.response.id")), depth[run_id]
        for response in _responses(group) if runs[run_id].kind == "model" else ():
            if response not in held:
                held[response] = rank, run_id
            elif rank > held[response][0]:
                repeated.add(held[response][1])
                held[response] = rank, run_id
            else:
                repeated.add(run_id)
    return repeated


def _responses(group: Group) -> set[str]:
    """The ids of the responses that a span holds."""
    said = [group.get("gen_ai.response.id", "ai.response.id")]
    providers = group.get("ai.response.providerMetadata").decoded()
    said += [each.get("responseId") for _, each in providers.members()]
    return {each.value for each in said if each.string()}


def _trace(source: Source, name: str, key: str, groups: list[Group], runs: list[Run], again: list[Logged]) -> Trace:
    events = events_of(runs)
    asked = [event for event in events if event.kind == "task" and not event.aside]
    root = next((group.entry for group in groups if not group.entry.parent_id), groups[0].entry)
    tools = [count for group in groups if (count := _tools(group))]
    return Trace(
        trace_id=short_id(name, key),
        source=source.digest,
        format=name,
        name=(root.title or "trace")[:80],
        keys=_keys(groups, key),
        task=asked[0].text if asked else None,
        context=context_of(events),
        declared_tools=max(tools, default=None),
        usage=usage_of(runs),
        cost_nusd=cost_of(runs),
        usage_repeated=usage_repeated_in(runs),
        events=events
        + tuple(_mention(entry, "duplicate_view") for entry in again)
        + tuple(_mention(entry, "harness_text") for entry in _unsaid(groups, events)),
    )


def _unsaid(groups: list[Group], events: Sequence[Event]) -> list[Logged]:
    """The spans of records that no event quotes: what they say stands in log records of their own."""
    said = {(event.span.member, event.span.offset) for event in events}
    entries = {_of_record(entry.record): entry for group in groups for entry in (group.entry, *group.logs)}
    return [entry for at, entry in entries.items() if at not in said]


def _keys(groups: list[Group], key: str) -> tuple[str, ...]:
    found = {f"session:{group.entry.trace_id}" for group in groups if group.entry.trace_id}
    for group in groups:
        named = [_declared(group, CONVERSATIONS), _declared(group, THREADS)]
        metadata = group.entry.attributes.get("metadata").decoded()
        named.append(declared_id(metadata.get("thread_id", "session_id", "conversation_id").value))
        found |= {f"session:{each}" for each in named if each}
        found |= {f"response:{each}" for each in _responses(group)}
        for link in group.entry.node.get("links").each():
            linked = span_id_of(link.get("traceId", "trace_id", "context.trace_id", "context.traceId").value, 16)
            found |= {f"session:{linked}"} if linked else set()
    return tuple(sorted(found)) or (f"session:{key}",)


def _tools(group: Group) -> int:
    """How many tools a model call was offered."""
    for name in ("gen_ai.tool.definitions", "ai.prompt.tools", "llm.tools", "llm.request.functions"):
        count = len(group.get(name).decoded().each())
        if count:
            return count
    return 0


def _mention(entry: Logged, aside: str) -> Event:
    """A span that says nothing of its own."""
    block = block_of(entry.name if entry.title else entry.node)
    span = block.place.span(block.at)
    return Event(kind="control", turn="0", span=span, text=block.text, at=entry.started, aside=aside)


# Recognising


def entries_in(value: object) -> Iterator[Logged]:
    """The spans and log records of a parsed value."""
    for node, is_log in spans_in(Node(_NOWHERE, value)):
        yield _entry(Framed(0, 0, b"", None), node, is_log=is_log)


def kind_of(entry: Logged) -> str:
    """The OpenInference kind of a span; the empty text for none."""
    kind = entry.attributes.get("openinference.span.kind").string() or entry.node.get("span_kind").string() or ""
    return kind.upper() if kind.upper() in KINDS else ""


def fits(value: object) -> bool:
    """Whether a parsed value holds a span or a log record."""
    return any(True for _ in spans_in(Node(_NOWHERE, value)))
