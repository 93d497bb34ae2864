"""OpenTelemetry traces of generative AI: what a span of the GenAI conventions says, in each of their spellings.

- Files, ids, times and traces are those of `span_records`; what the spans of one conversation come to is `telemetry`.
- Messages stand in attributes (`gen_ai.input.messages`, `gen_ai.prompt.0.content`, `ai.prompt.messages`), in span events or
  in log records that name their span. The first of these spellings that says something counts; others are copies.
- A tool's run is `execute_tool` or `ai.toolCall`; its result pairs by its declared call id. A failed run without a result
  has its declared error as one.
- Usage is that of the model calls which repeat no other; the conventions state no cost, some frameworks do.

- Log records without their spans are the conversation, too: a span that only they name is a model call.

Not covered: spans and log records in two files are two views of one trace, each read by itself; metrics, embeddings, and
content that was stored elsewhere (`*_ref` attributes).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from experiential_lab.evidence.importers.dialects import (
    Block,
    Message,
    Node,
    Role,
    arguments_block,
    block_of,
    call_of,
    message_of,
    messages_of,
)
from experiential_lab.evidence.importers.format import Format, Source, declared_id
from experiential_lab.evidence.importers.span_records import (
    CHOICE,
    DETAILS,
    Group,
    Logged,
    entries_in,
    events_in,
    fits,
    kind_of,
    log_event,
    plain_run,
    read_spans,
    status_of,
    told_by,
)
from experiential_lab.evidence.importers.telemetry import Run
from experiential_lab.evidence.importers.usage import Usage, in_nano_dollars, is_count
from experiential_lab.evidence.trace import Imported

NAME = "otlp_genai"
CONTENT = "gen_ai.content."
MODEL_WORK = ("chat", "text_completion", "generate_content", "completion")
VERCEL = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")
TOOL_EVENT = "gen_ai.tool.message"
SAID_IN: dict[str, Role] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    TOOL_EVENT: "tool",
    CHOICE: "assistant",
}
COUNTS = {
    "prompt": "input_tokens",
    "prompt_tokens": "input_tokens",
    "promptTokens": "input_tokens",
    "inputTokens": "input_tokens",
    "completion": "output_tokens",
    "completion_tokens": "output_tokens",
    "completionTokens": "output_tokens",
    "outputTokens": "output_tokens",
    "total": "total_tokens",
    "totalTokens": "total_tokens",
}


class Said(NamedTuple):
    """The messages of a model call in one spelling."""

    inputs: list[Message]
    outputs: list[Message]


# One span


def run_of(group: Group) -> Run:
    """What a span of the GenAI conventions means."""
    entry = group.entry
    attributes = entry.attributes
    work = group.get("gen_ai.operation.name").string()
    told = {name: body for name, _, body in told_by(group)}
    vercel = attributes.get("ai.operationId").string() or ""
    is_tool = work == "execute_tool" or vercel == "ai.toolCall" or attributes.get("traceloop.span.kind").value == "tool"
    if is_tool or attributes.get("gen_ai.tool.call.result") or _tells_a_tool(told):
        given = attributes.get("gen_ai.tool.call.arguments", "ai.toolCall.args", "ai.toolCall.input", "tool_arguments")
        result = attributes.get("gen_ai.tool.call.result", "ai.toolCall.result", "ai.toolCall.output", "tool_response")
        asked, answered = (told.get(name, Node(entry.node.place, None)) for name in (TOOL_EVENT, CHOICE))
        return tool_run(
            group,
            attributes.get("gen_ai.tool.name", "ai.toolCall.name", "traceloop.entity.name"),
            attributes.get("gen_ai.tool.call.id", "ai.toolCall.id") or answered.get("id"),
            given or asked.get("content"),  # some tell both in events
            result or answered.get("message"),
        )
    said = spellings(group)
    work = work or attributes.get("llm.request.type").string()
    is_call = work in MODEL_WORK or vercel.removesuffix(".doGenerate").removesuffix(".doStream") in VERCEL
    return model_run(group, said, is_call=is_call)


def _tells_a_tool(told: dict[str, Node]) -> bool:
    """Whether events are a tool's own: what it was given and what it gave, under one id."""
    ids = {declared_id(body.get("id").value) for body in told.values()}
    return told.keys() == {TOOL_EVENT, CHOICE} and len(ids) == 1 and None not in ids


def tool_run(group: Group, name: Node, call_id: Node, arguments: Node, result: Node) -> Run:
    """A tool's run. Without a result its declared error stands for it."""
    error = status_of(group.entry)
    tool, declared = name.string(), declared_id(call_id.value)
    if not result and error is True:
        result = _failure(group.entry)
    return plain_run(
        group,
        "tool",
        call=arguments_block(arguments, tool, declared) if arguments else None,
        result=block_of(result, "result", tool=tool, call_id=declared) if result else None,
        tool=tool,
        call_id=declared,
        is_error=error,
        usage=_usage(group),
        cost_nusd=_cost(group),
        notes=tuple(block_of(log.name if log.title else log.node) for log in group.logs),
    )


def _failure(entry: Logged) -> Node:
    """The message of a span's error."""
    said = [attributes.get("exception.message") for name, attributes, _ in events_in(entry) if name == "exception"]
    said.append(entry.node.get("status.message", "status.description", "status_message", "statusMessage"))
    return next((each for each in said if each.string()), Node(entry.node.place, None))


def model_run(group: Group, said: list[Said], *, is_call: bool) -> Run:
    """A model's run, with the first spelling that says something; a run without messages unless it is a model's call."""
    inputs = next((each.inputs for each in said if each.inputs), [])
    outputs = next((each.outputs for each in said if each.outputs), [])
    copies = [
        message
        for each in said
        for side in (each.inputs, each.outputs)
        if side is not inputs and side is not outputs
        for message in side
    ]
    if not is_call and not inputs and not outputs:
        return plain_run(group, notes=tuple(_notes(group)), usage=_usage(group), cost_nusd=_cost(group))
    return plain_run(
        group,
        "model",
        notes=tuple(_unread_logs(group)),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        copies=tuple(copies),
        usage=_usage(group),
        cost_nusd=_cost(group),
    )


def _notes(group: Group) -> Iterator[Block]:
    attributes = group.entry.attributes
    for name in ("input.value", "output.value", "traceloop.entity.input", "traceloop.entity.output"):
        value = attributes.get(name)
        if value.string():
            yield block_of(value)
    yield from _unread_logs(group)


def _unread_logs(group: Group) -> Iterator[Block]:
    """The log records that hold no message."""
    for log in group.logs:
        name, _, body = log_event(log)
        if name not in SAID_IN and name != DETAILS and not name.startswith(CONTENT):
            yield block_of(body if body.string() else log.name if log.title else log.node)


def _usage(group: Group) -> Usage | None:
    """Counts by kind of unit, as the first of three vocabularies states them."""
    for name in ("gen_ai.usage", "llm.token_count", "ai.usage"):
        counts = dict[str, int]()
        for key, node in _leaves(group.get(name)):
            count = node.number()
            if count is not None and is_count(count) and key != "cost":
                counts.setdefault(COUNTS.get(key, key), count)
        if counts:
            return tuple(sorted(counts.items()))
    return None


def _cost(group: Group) -> int | None:
    return in_nano_dollars(group.get("llm.cost.total", "operation.cost").value)


def _leaves(node: Node, above: str = "") -> Iterator[tuple[str, Node]]:
    for key, member in node.members():
        if member.is_object:
            yield from _leaves(member, f"{above}{key}.")
        else:
            yield f"{above}{key}", member


# The spellings of messages


def spellings(group: Group) -> list[Said]:
    """The messages of a model call in each spelling that its span and its log records use."""
    attributes, events = group.entry.attributes, told_by(group)
    found = [] if group.entry.is_log else [_in_attributes(attributes)]
    found += [_in_attributes(given if _holds(given) else body) for name, given, body in events if name == DETAILS]
    found.append(_indexed(attributes))
    found.append(_in_events((name, body) for name, _, body in events))
    found.append(_in_events(_listed(attributes.get("events"))))
    found += [
        Said(messages_of(given.get("gen_ai.prompt"), "user"), messages_of(given.get("gen_ai.completion"), "assistant"))
        for name, given, _ in events
        if name.startswith(CONTENT)
    ]
    found.append(_vercel(attributes))
    found.append(_in_events(_listed(attributes.get("all_messages_events"))))
    found.append(Said(messages_of(attributes.get("pydantic_ai.all_messages")), []))
    return found


def _listed(events: Node) -> Iterator[tuple[str, Node]]:
    """(name, event) of a list of events in an attribute."""
    for each in events.decoded().each():
        yield each.get("event.name").string() or "", each


def _holds(attributes: Node) -> bool:
    return bool(attributes.get("gen_ai.input.messages", "gen_ai.output.messages"))


def _in_attributes(attributes: Node) -> Said:
    system = messages_of(attributes.get("gen_ai.system_instructions"), "system")
    inputs = messages_of(attributes.get("gen_ai.input.messages"), "user")
    outputs = messages_of(attributes.get("gen_ai.output.messages"), "assistant")
    return Said(system + inputs, outputs)


def _indexed(attributes: Node) -> Said:
    """The oldest spelling: `gen_ai.prompt.0.role`, or all of it as one JSON text."""
    prompt, completion = attributes.get("gen_ai.prompt"), attributes.get("gen_ai.completion")
    return Said(
        messages_of(prompt, "user") if prompt.string() or prompt.each() else [],
        messages_of(completion, "assistant") if completion.string() or completion.each() else [],
    )


def _in_events(events: Iterable[tuple[str, Node]]) -> Said:
    """One message an event."""
    inputs, outputs = [], []
    for name, body in events:
        if name not in SAID_IN or not body:
            continue
        message = message_of(body, SAID_IN[name], declared_id(body.get("id").value))
        if name == CHOICE:
            outputs.append(message._replace(is_end=message.is_end or bool(body.get("finish_reason"))))
        else:
            inputs.append(message)
    return Said(inputs, outputs)


def _vercel(attributes: Node) -> Said:
    """The Vercel AI SDK: a prompt, and what the model answered, piece by piece."""
    prompt = attributes.get("ai.prompt").decoded()
    inputs = messages_of(attributes.get("ai.prompt.messages"), "user")
    if not inputs and prompt.is_object:
        inputs = messages_of(prompt.get("system"), "system")
        inputs += messages_of(prompt.get("messages", "prompt"), "user")
    elif not inputs:
        inputs = messages_of(prompt, "user")
    blocks = []
    reasoning = attributes.get("ai.response.reasoning")
    if reasoning.string():
        blocks.append(block_of(reasoning, "reasoning"))
    text = attributes.get("ai.response.text", "ai.response.object")
    if text.string():
        blocks.append(block_of(text))
    blocks += [call_of(each) for each in attributes.get("ai.response.toolCalls").decoded().each()]
    return Said(inputs, [Message("assistant", tuple(blocks))] if blocks else [])


# The format


def _read(source: Source) -> Imported:
    return read_spans(source, NAME, run_of)


def _sniff(value: object) -> str | None:
    found = None
    for entry in entries_in(value):
        if kind_of(entry):
            return None
        if entry.attributes.get("gen_ai", "ai.operationId") or (entry.is_log and entry.title in SAID_IN):
            found = "spans or log records with gen_ai or ai.operationId"
    return found


FORMATS = (Format(NAME, _sniff, fits, _read),)
