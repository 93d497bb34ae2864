"""OpenInference spans, as Phoenix and Arize write them: flat keys, nested objects, data frames, and OTLP.

- Files, ids, times and traces are those of `span_records`; what a span means is said by `openinference.span.kind`.
- An LLM span's messages are `llm.input_messages` and `llm.output_messages`; only where it has none, its `input.value` and
  `output.value` stand for them. The same messages in the GenAI conventions are copies.
- A TOOL span seldom names the call that it carries out. Without an id it is another view of a message, or the result inside
  its model call's own span, or pairs by name; never by its arguments alone.
- Cost is `llm.cost.total` of the model calls which repeat no other.

Not covered: retriever, reranker, embedding, guardrail and evaluator spans; they are set aside.
"""

from experiential_lab.evidence.importers.dialects import Message, Node, messages_of
from experiential_lab.evidence.importers.format import Format, Source
from experiential_lab.evidence.importers.otel import Said, model_run, run_of, spellings, tool_run
from experiential_lab.evidence.importers.span_records import Group, entries_in, fits, kind_of, read_spans
from experiential_lab.evidence.importers.telemetry import Run
from experiential_lab.evidence.trace import Imported

NAME = "openinference"


def _read(source: Source) -> Imported:
    return read_spans(source, NAME, _run_of)


def _run_of(group: Group) -> Run:
    attributes, kind = group.entry.attributes, kind_of(group.entry)
    match kind:
        case "TOOL":
            return tool_run(
                group,
                attributes.get("tool.name", "gen_ai.tool.name") or group.entry.name,
                attributes.get("tool_call.id", "tool.id", "gen_ai.tool.call.id"),
                attributes.get("input.value", "tool.parameters", "gen_ai.tool.call.arguments"),
                attributes.get("output.value", "gen_ai.tool.call.result"),
            )
        case "LLM" | "AGENT" | "CHAIN":
            said = [_messages(attributes), *spellings(group)]
            if kind == "LLM" and not any(each.inputs or each.outputs for each in said):
                said.append(_values(attributes))
            return model_run(group, said, is_call=kind == "LLM")
        case "":
            return run_of(group)
    return model_run(group, [], is_call=False)


def _messages(attributes: Node) -> Said:
    inputs = messages_of(attributes.get("llm.input_messages"), "user")
    outputs = messages_of(attributes.get("llm.output_messages"), "assistant")
    for each in attributes.get("llm.prompts").each():  # of a completion, not a chat
        inputs += messages_of(each.get("prompt.text"), "user")
    for each in attributes.get("llm.choices").each():
        outputs += messages_of(each.get("completion.text"), "assistant")
    return Said(inputs, outputs)


def _values(attributes: Node) -> Said:
    """Input and output as they went over the wire, or as plain text."""
    return Said(
        _in_value(attributes.get("input.value"), "user"), _in_value(attributes.get("output.value"), "assistant")
    )


def _in_value(value: Node, role: str) -> list[Message]:
    inside = value.decoded()
    listed = inside.get("messages")
    if listed.each():
        return messages_of(listed, "user" if role == "user" else "assistant")
    choices = [each.get("message") for each in inside.get("choices").each()]
    if choices and all(choices):
        return [message for each in choices for message in messages_of(each, "assistant")]
    if value.string():
        return messages_of(value, "user" if role == "user" else "assistant")
    return []


def _sniff(value: object) -> str | None:
    is_ours = any(kind_of(entry) for entry in entries_in(value))
    return "spans with openinference.span.kind" if is_ours else None


FORMATS = (Format(NAME, _sniff, fits, _read),)
