"""Langfuse traces: UI downloads `{trace, observations}`, API traces `{id, observations}`, and bare observations with `traceId`.

- Unit: one Langfuse trace. A later trace of the same session that goes on with what an earlier one said is the same
  conversation. Trace id: the id of its first Langfuse trace; the session and the thread are lineage keys.
- Observations stand in the file in no order; `telemetry` finds theirs and rebuilds the conversation, each block once.
- A GENERATION is a model call. Where its input holds no messages, its OpenInference attributes are read. A TOOL observation,
  one that its attributes call a tool's, and one whose output is a tool message, is a tool's run. Everything else repeats what
  those say: it is set aside, input and output each as one text.
- An agent's state that names a tool, its parameters and its output is that tool's run.
- agno writes the id of a result's call into the Python representation of its message alone: the id is read there, the text in
  the attributes.
- `level: ERROR` marks a tool's result as an error; without an output its status message is the result.
- Of observations with one id the one that ended counts; a record that holds another is a `duplicate_span`.
- Usage and cost are those of leaf generations: agents and outer generations repeat them.

Not covered: scores, corrections, prompts, media, and batches of the ingestion API.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.dialects import Block, Message, Node, block_of, messages_of
from experiential_lab.evidence.importers.format import Format, Source, declared_id
from experiential_lab.evidence.importers.langfuse_payloads import Payload, opened, payload_of, said_by
from experiential_lab.evidence.importers.langfuse_runs import (
    Conversation,
    Observed,
    arguments_in,
    conversations,
    label_of,
    result_in,
    tool_names,
)
from experiential_lab.evidence.importers.span_records import moment
from experiential_lab.evidence.importers.telemetry import Run
from experiential_lab.evidence.importers.usage import Usage, in_nano_dollars, nano_dollars, usage_in
from experiential_lab.evidence.trace import Imported, Rejected, Trace
from experiential_lab.records import digest_of

NAME = "langfuse"
TYPES = (
    "SPAN",
    "GENERATION",
    "EVENT",
    "TOOL",
    "AGENT",
    "CHAIN",
    "RETRIEVER",
    "EMBEDDING",
    "EVALUATOR",
    "GUARDRAIL",
)
TRACE = "#trace"  # what stands for the trace itself among its observations
TOOL_NAMES = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "tool_name")
TOOL_IDS = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id", "tool_call_id")
TOOL_ARGUMENTS = (
    "gen_ai.tool.call.arguments",
    "tool.parameters",
    "gcp.vertex.agent.tool_call_args",
    "ai.toolCall.args",
)
TOOL_RESULTS = ("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "ai.toolCall.result")
TOOL_KINDS = ("openinference.span.kind", "gen_ai.operation.name", "traceloop.span.kind", "operation.name")
SESSIONS = ("thread_id", "session_id", "conversation_id", "gen_ai.conversation.id", "session.id")
SCHEMAS = ("gen_ai.tool.definitions", "ai.prompt.tools")
AGNO = re.compile(  # a message as Python represents it: its text stands elsewhere, the id of its call only here
    r"role='tool' content=(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|None) name=(?:'[^']*'|None) tool_call_id='([^'\\]+)'",
    re.DOTALL,
)


class _Found(NamedTuple):
    """An observation, or the head of a trace, where it stands."""

    record: Framed
    node: Node
    trace_id: str
    is_head: bool = False
    strangers: tuple[Node, ...] = ()
    """Of a head: what stands among its observations and is none."""

    @property
    def observation_id(self) -> str:
        found = declared_id(self.node.value.get("id"))
        return TRACE + self.trace_id if self.is_head else found or f"{self.record.offset}{self.node.pointer}"


def _read(source: Source) -> Imported:
    """Every conversation of a source, as traces."""
    good, rejected = source.readable()
    found: list[_Found] = []
    for record in good:
        inside = list(_found_in(record, Node(source.place(record), record.value)))
        found += inside
        if not inside:
            rejected.append(source.rejected(record, "unknown_shape"))
    found, doubled = _without_doubles(source, found)
    inside_of: dict[str, list[_Found]] = {}
    for each in found:
        inside_of.setdefault(each.trace_id, []).append(each)
    known = {(each.trace_id, each.observation_id) for each in found}
    observed = [_observed(each, known) for each in found]
    traces = [
        _trace(source, each, [one for trace_id in each.traces for one in inside_of[trace_id]])
        for each in conversations(observed)
    ]
    rejected = sorted([*rejected, *doubled], key=lambda each: each.record)
    return Imported(traces=tuple(traces), records=len(source.frames.records), rejected=tuple(rejected))


def _found_in(record: Framed, node: Node, trace_id: str | None = None) -> Iterator[_Found]:
    """The traces and observations of a record."""
    value = node.value
    if not isinstance(value, dict):
        return
    head, inside = node.get("trace"), node.get("observations")
    own = head if isinstance(head.value, dict) and isinstance(inside.value, list) else node
    if isinstance(inside.value, list):
        trace_id = declared_id(own.value.get("id")) or digest_of(record.raw)
        strangers = tuple(each for each in inside.each() if not isinstance(each.value, dict))
        yield _Found(record, own, trace_id, is_head=True, strangers=strangers)
        for each in inside.each():
            yield from _found_in(record, each, trace_id)
    elif _is_observation(value) or trace_id is not None:
        yield _Found(record, node, declared_id(value.get("traceId")) or trace_id or digest_of(record.raw))
    elif isinstance(value.get("data"), list) and trace_id is None:
        for each in node.get("data").each():
            yield from _found_in(record, each)


def _is_observation(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    return value["type"].upper() in TYPES and "traceId" in value


def _without_doubles(source: Source, found: list[_Found]) -> tuple[list[_Found], list[Rejected]]:
    """Each observation once, the one that ended; a record that holds nothing else is rejected."""
    best: dict[tuple[str, str], _Found] = {}
    for each in found:
        key = each.trace_id, each.observation_id
        if key not in best or _weight(each) >= _weight(best[key]):
            best[key] = each
    kept = [each for each in found if best[each.trace_id, each.observation_id] is each]
    used = {_place(each) for each in kept}
    lost = {_place(each): each.record for each in found if _place(each) not in used}
    return kept, [source.rejected(record, "duplicate_span") for record in lost.values()]


def _place(each: _Found) -> tuple[str, int]:
    return each.record.member, each.record.number


def _weight(each: _Found) -> tuple[bool, bool, bool]:
    value = each.node.value
    return each.is_head, value.get("output") is not None, value.get("endTime") is not None


def _trace(source: Source, conversation: Conversation, mine: list[_Found]) -> Trace:
    heads = [each.node.value for each in mine if each.is_head]
    known = {each.observation_id for each in mine if not each.is_head}
    roots = [each.run for each in conversation.observed if each.run.parent_id not in known]
    ended = [run.ended is not None for run in roots if run.run_id in known]
    names = [value.get("name") for value in [*heads, *(each.node.value for each in mine)]]
    return conversation.trace(
        source,
        NAME,
        title=next((name for name in names if isinstance(name, str) and name), f"trace {conversation.traces[0]}")[:80],
        keys=sorted({f"session:{session}" for each in mine for session in _sessions(each)}),
        complete=True if ended and all(ended) else None,
    )


class _Meta(NamedTuple):
    """What an observation's metadata says."""

    node: Node
    attributes: Node

    def text(self, *names: str) -> str | None:
        """The first of these attributes that is a text."""
        return next(
            (found for name in names for held in (self.attributes, self.node) if (found := _at(held, name))), None
        )

    def node_of(self, *names: str) -> Node:
        held = [self.attributes.get(name) for name in names]
        return next((each for each in held if each.value is not None), Node(self.node.place, None))


def _at(node: Node, name: str) -> str | None:
    found = node.value.get(name) if isinstance(node.value, dict) else None
    return found if isinstance(found, str) and found else None


def _meta(node: Node) -> _Meta:
    meta = opened(node.get("metadata"))
    attributes = opened(meta.get("attributes"))
    return _Meta(meta, attributes if isinstance(attributes.value, dict) else Node(meta.place, {}))


def _sessions(each: _Found) -> Iterator[str]:
    """Every conversation that an observation says it belongs to."""
    meta = _meta(each.node)
    for value in (each.node.value.get("sessionId"), *(meta.text(name) for name in SESSIONS)):
        found = declared_id(value)
        if found is not None:
            yield found


def _observed(each: _Found, known: set[tuple[str, str]]) -> Observed:
    node, value, meta = each.node, each.node.value, _meta(each.node)
    kind = value.get("type")
    parent = declared_id(value.get("parentObservationId"))
    (start, started), (end, ended) = (moment(Node(node.place, None), node.get(key)) for key in ("startTime", "endTime"))
    run = Run(
        run_id=each.observation_id,
        parent_id=None if each.is_head else parent or TRACE + each.trace_id,
        kind="other",
        label=label_of(node),
        start=start,
        end=end,
        started=started,
        ended=ended,
        usage=None if each.is_head else _usage(value),
        cost_nusd=None if each.is_head else _cost(value),
    )
    sides = [side for side in (node.get("input"), node.get("output")) if side.value is not None]
    sides += each.strangers
    found = Observed(
        each.trace_id,
        run,
        sides=tuple(map(block_of, sides)),
        session=next(_sessions(each), None),
        is_root=parent is None or (each.trace_id, parent) not in known,
    )
    if isinstance(kind, str) and kind.upper() == "GENERATION":
        return _generation(found, node, meta)
    if not each.is_head and _is_tool(node, meta):
        return _tool(found, node, meta)
    found = found._replace(
        inputs=payload_of(node.get("input"), "user"), outputs=payload_of(node.get("output"), "assistant")
    )
    return found if each.is_head else _state(found, node, meta)


# Model calls


def _generation(found: Observed, node: Node, meta: _Meta) -> Observed:
    inputs, outputs = payload_of(node.get("input"), "user"), payload_of(node.get("output"), "assistant")
    copies: tuple[Message, ...] = ()
    if not inputs.is_chat:
        flat = _flat(meta, "llm.input_messages", _repr_ids(node.get("input")))
        copies = inputs.messages if flat else ()
        inputs = Payload(flat, is_chat=True) if flat else inputs
    if not outputs.messages:
        flat = _flat(meta, "llm.output_messages", {})
        outputs = Payload(flat, is_chat=True) if flat else outputs
    system = meta.node_of("gen_ai.system_instructions")
    if system.value and not any(message.role == "system" for message in inputs.messages):
        inputs = inputs._replace(messages=(*messages_of(system, "system"), *inputs.messages))
    run = found.run._replace(
        kind="model",
        copies=tuple(Message("", message.blocks) for message in copies),
    )
    return found._replace(run=run, inputs=inputs, outputs=outputs, tools=tuple(_tools(node, meta)))


def _flat(meta: _Meta, name: str, ids: dict[str, str]) -> tuple[Message, ...]:
    """The messages that OpenInference spreads over attributes, if they begin at the first."""
    keys = [key for key in meta.attributes.value if key.startswith(f"{name}.")]
    numbers = {key[len(name) + 1 :].split(".", 1)[0] for key in keys}
    if "0" not in numbers:  # a stream's fragments begin anywhere
        return ()
    found = []
    for number in sorted((each for each in numbers if each.isdecimal() and len(each) < 10), key=int):
        for message in messages_of(meta.attributes.get(f"{name}.{number}")):
            blocks = [_named(block, ids.get(number)) for block in message.blocks]
            found.append(message._replace(blocks=tuple(blocks)))
    return tuple(found)


def _named(block: Block, call_id: str | None) -> Block:
    return block._replace(call_id=call_id) if call_id and block.kind == "result" and not block.call_id else block


def _repr_ids(node: Node) -> dict[str, str]:
    """{number of a message: the call that it answers}, of messages that Python represented."""
    messages = opened(node).get("messages").value
    spelled = [each if isinstance(each, str) else "" for each in messages] if isinstance(messages, list) else []
    return {str(at): match.group(1) for at, each in enumerate(spelled) if (match := AGNO.match(each))}


def _usage(value: dict[str, Any]) -> Usage | None:
    return usage_in(value.get("usageDetails") or value.get("usage"))


def _cost(value: dict[str, Any]) -> int | None:
    """What the generation cost, as it states it: the total, else the sum of its parts."""
    details = value.get("costDetails")
    if isinstance(details, dict) and details:
        if "total" in details:
            return in_nano_dollars(details["total"])
        return nano_dollars(details.values())
    stated = [value[key] for key in ("totalCost", "calculatedTotalCost") if value.get(key) is not None]
    return in_nano_dollars(stated[0]) if stated else None


def _tools(node: Node, meta: _Meta) -> Iterator[str]:
    """The names of the tools that a generation declares, wherever its framework writes them."""
    request = opened(node.get("input"))
    held = [meta.node_of(*SCHEMAS), opened(node.get("toolDefinitions")), opened(node.get("output")).get("tools")]
    if isinstance(request.value, dict):
        held += [request.get("tools"), request.get("config.tools")]
    elif isinstance(request.value, list):
        held += [
            each.get("content")
            for each in request.each()
            if isinstance(each.value, dict) and each.value.get("role") == "tool"
        ]
    for each in held:
        yield from tool_names(opened(each).value)


# Tools


def _is_tool(node: Node, meta: _Meta) -> bool:
    kind = node.value.get("type")
    if isinstance(kind, str) and kind.upper() == "TOOL":
        return True
    if any(_at(meta.attributes, name) in ("TOOL", "tool", "execute_tool", "ai.toolCall") for name in TOOL_KINDS):
        return meta.text(*TOOL_NAMES) is not None
    return result_in(node.get("output")) is not None


def _tool(found: Observed, node: Node, meta: _Meta) -> Observed:
    message = result_in(node.get("output"))
    given, gave = meta.node_of(*TOOL_RESULTS), node.get("output")
    gave = given if given.value is not None else gave
    is_error = True if node.value.get("level") == "ERROR" else None
    if gave.value is None and is_error:
        gave = node.get("statusMessage")
    result = message or (block_of(said_by(gave), "result") if gave.value is not None else None)
    asked = next(
        (each for each in (node.get("input"), meta.node_of(*TOOL_ARGUMENTS)) if each.value is not None), node.get("")
    )
    name = node.value.get("name")
    tool = meta.text(*TOOL_NAMES) or (message.tool if message else None)
    run = found.run._replace(
        kind="tool",
        call=arguments_in(asked),
        result=result,
        tool=tool or (name.removeprefix("execute_tool ") if isinstance(name, str) and name else None),
        call_id=declared_id(meta.text(*TOOL_IDS)) or (message.call_id if message else None),
        is_error=is_error or (message.is_error if message else None),
    )
    return found._replace(run=run)


def _state(found: Observed, node: Node, meta: _Meta) -> Observed:
    """An agent's state that says which tool it called, with what, and what came of it."""
    tool, asked, gave = meta.text("tool.name"), meta.node_of("tool.parameters"), node.get("output")
    if tool is None or gave.value is None or not isinstance(opened(asked).value, dict):
        return found
    result = block_of(said_by(gave), "result")
    run = found.run._replace(kind="tool", call=arguments_in(asked), result=result, tool=tool, ended=found.run.started)
    return found._replace(run=run, is_state=True)


def _sniff(value: object) -> str | None:
    if not isinstance(value, dict):
        return None
    inside = value.get("observations")
    if isinstance(value.get("trace"), dict) and isinstance(inside, list):
        return "objects with trace and observations"
    if isinstance(inside, list) and "id" in value and all(map(_is_observation, inside[:3])) and inside:
        return "traces with observations"
    if _is_observation(value) and "startTime" in value:
        return "observations with traceId and type"
    data = value.get("data")
    return _sniff(data[0]) if isinstance(data, list) and data and "meta" in value else None


def _fits(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("observations"), list) or _is_observation(value) or isinstance(value.get("data"), list)


FORMATS = (Format(NAME, _sniff, _fits, _read),)
