"""Spans for the tests of telemetry formats: OTLP and OpenInference records, made by hand and damaged at random."""

import json
import random
from typing import Any

from evidence_cases import Read, check_spans, check_sums, lines, read

from experiential_lab.records import LabError

TRACE = "5b8efff798038103d269b633813fc60c"
SECOND = 1_700_000_000 * 10**9


def value(of: Any) -> dict[str, Any]:
    """One typed value of OTLP."""
    match of:
        case bool():
            return {"boolValue": of}
        case int():
            return {"intValue": str(of)}
        case float():
            return {"doubleValue": of}
        case list():
            return {"arrayValue": {"values": [value(each) for each in of]}}
        case dict():
            return {"kvlistValue": {"values": pairs(of)}}
    return {"stringValue": of}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(each)} for key, each in attributes.items()]


def span(number: int, name: str, attributes: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A span of OTLP that begins in the second of its number and takes half of one."""
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "parentSpanId": "",
        "name": name,
        "startTimeUnixNano": str(SECOND + number * 10**9),
        "endTimeUnixNano": str(SECOND + number * 10**9 + 5 * 10**8),
        "attributes": pairs(attributes or {}),
    } | more


def otlp(*spans: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": list(spans)}]}]}


def logs(*records: Any) -> dict[str, Any]:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]}


def log(number: int, name: str, body: Any, **more: Any) -> dict[str, Any]:
    """A log record of the span of that number."""
    place = {"traceId": TRACE, "spanId": f"{number:016x}", "timeUnixNano": str(SECOND + number * 10**9)}
    return place | {"eventName": name, "body": value(body)} | more


def says(*parts: Any, role: str = "assistant", **more: Any) -> dict[str, Any]:
    return {"role": role, "parts": [text(each) if isinstance(each, str) else each for each in parts]} | more


def asks(*parts: Any) -> dict[str, Any]:
    return says(*parts, role="user")


def gives(*parts: Any) -> dict[str, Any]:
    return says(*parts, role="tool")


def text(said: Any) -> dict[str, Any]:
    return {"type": "text", "content": said}


def call(call_id: Any, name: Any, **arguments: Any) -> dict[str, Any]:
    found = {"type": "tool_call", "name": name, "arguments": arguments}
    return found if call_id is None else found | {"id": call_id}


def response(call_id: Any, said: Any) -> dict[str, Any]:
    found = {"type": "tool_call_response", "response": said}
    return found if call_id is None else found | {"id": call_id}


def chat(number: int, inputs: Any, outputs: Any, more: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A model call whose messages stand in attributes, as JSON text."""
    attributes = {"gen_ai.operation.name": "chat"} | (more or {})
    if inputs is not None:
        attributes["gen_ai.input.messages"] = json.dumps(inputs)
    if outputs is not None:
        attributes["gen_ai.output.messages"] = json.dumps(outputs)
    return span(number, "chat m", attributes, **fields)


def tool(number: int, name: Any, call_id: Any, result: Any, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    given = {"tool.name": name, "tool.call.id": call_id, "tool.call.result": result, "tool.call.arguments": arguments}
    attributes = {f"gen_ai.{key}": each for key, each in given.items() if each is not None}
    return span(number, f"execute_tool {name}", {"gen_ai.operation.name": "execute_tool"} | attributes, **fields)


def seen(*spans: Any) -> Read:
    """One OTLP record of these spans, read and checked."""
    return checked(lines(otlp(*spans)))


def checked(data: bytes, declared: str | None = None) -> Read:
    found = read(data, declared)
    check_sums(found)
    check_spans(found)
    return found


# OpenInference


def kind(number: int, of: str, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A span in flat keys, as Phoenix writes it."""
    return {
        "name": of.lower(),
        "context": {"trace_id": "t", "span_id": f"s{number}"},
        "parent_id": None,
        "start_time": f"2026-05-01T10:00:{number:02d}+00:00",
        "end_time": f"2026-05-01T10:00:{number:02d}.500000+00:00",
        "status_code": "OK",
        "attributes": {"openinference.span.kind": of} | attributes,
    } | more


def flat(prefix: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """OpenAI messages as the flat keys of OpenInference."""
    found: dict[str, Any] = {}
    for at, message in enumerate(messages):
        for key, said in message.items():
            if key != "tool_calls":
                found[f"{prefix}.{at}.message.{key}"] = said
        for number, made in enumerate(message.get("tool_calls", [])):
            inner = f"{prefix}.{at}.message.tool_calls.{number}.tool_call"
            found |= {f"{inner}.id": made["id"]} if made["id"] else {}
            found[f"{inner}.function.name"] = made["function"]["name"]
            found[f"{inner}.function.arguments"] = made["function"]["arguments"]
    return found


def llm(number: int, inputs: list[Any], outputs: list[Any], more: dict[str, Any] | None = None, **fields: Any) -> Any:
    attributes = flat("llm.input_messages", inputs) | flat("llm.output_messages", outputs) | (more or {})
    return kind(number, "LLM", attributes, **fields)


# Damage


def damaged(of: Any, rng: random.Random) -> Any:
    """The same JSON value with some of its members gone, of another type, repeated or in another order."""
    luck = rng.random()
    if luck < 0.03:
        return rng.choice([None, "", "x", 0, -1, 1.5, True, [], {}, [None], {"a": "b"}, float("nan"), "[1", '{"role":'])
    if isinstance(of, dict):
        items = [(key, damaged(each, rng)) for key, each in of.items() if rng.random() > 0.02]
        return dict(rng.sample(items, len(items))) if luck < 0.1 else dict(items)
    if isinstance(of, list):
        found = [damaged(each, rng) for each in of if rng.random() > 0.02]
        found += found[-1:] if luck > 0.97 else []
        return rng.sample(found, len(found)) if luck < 0.1 else found
    if isinstance(of, str) and of[:1] in ("{", "[") and luck < 0.3:
        try:
            return json.dumps(damaged(json.loads(of), rng))
        except ValueError:
            return of
    return of[: len(of) // 2] if isinstance(of, str) and luck < 0.06 else of


def survives(records: list[Any], seed: int, declared: str) -> None:
    """A damaged file is refused by name, or its sums hold and its spans open."""
    rng = random.Random(seed)
    made = [damaged(each, rng) for each in rng.sample(records, len(records))]
    data = b"".join(json.dumps(each).encode() + b"\n" for each in made)
    try:
        found = read(data[: len(data) - rng.choice([0, 0, 0, 7])], declared)
    except LabError:
        return
    check_sums(found)
    check_spans(found)
