"""What an input or an output of a trace store says: the messages inside any framework's request, response or state.

- A payload may be JSON text, and that the JSON text of another: each layer is gone down, so that a span opens.
- An envelope is known by its own keys (`messages`, `contents`, `choices`, `generations`, `output`, ...), never by the name of
  a framework. One message is read by `dialects`; here stands only what wraps it: LangChain constructors and
  `additional_kwargs`, Semantic Kernel events, bare lists of calls, tools that the provider ran.
- Of several choices of one response each is an answer of its own, as `telemetry` reads it.
- A payload without a message is one plain text of whom the caller names: a structured answer is an answer still. A Python
  representation is such a text; nothing is parsed out of it.

Not covered: batches of several prompts in one call, whose answers cannot be told apart.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from experiential_lab.evidence.framing import DEEPEST
from experiential_lab.evidence.importers.dialects import (
    ROLES,
    Block,
    Message,
    Node,
    Role,
    block_of,
    json_in,
    message_of,
    messages_of,
)
from experiential_lab.evidence.importers.format import declared_id

LAYERS = 4  # of JSON text inside JSON text; the real files hold up to three
TYPES = ("human", "ai", "system", "tool", "function", "AIMessageChunk")  # LangChain says in `type` who speaks
CLASSES = ("Human", "AI", "System", "Tool", "Function")  # of LangChain's messages, last in the `id` of a constructor
SAYS = ("content", "parts", "text", "tool_calls", "toolCalls", "function_call", "refusal")
ITEMS = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning")
SPECIAL = (*ITEMS, "tool_call", "tool-call", "tool_use", "tool_call_response", "tool-result", "tool_result", "thinking")
RENAMED = {
    "Microsoft.Extensions.AI.TextReasoningContent": "reasoning",
    "custom_tool_call": "function_call",
    "custom_tool_call_output": "function_call_output",
}
BODIES = ("functionCall", "function_call", "functionResponse", "function_response", "toolUse", "toolResult")
SYSTEM = ("system", "instructions", "system_instruction", "systemInstruction")
CHOICES = ("choices", "candidates", "generations")
CARRIERS = (
    "messages",
    "contents",
    "input",
    "prompt",
    "prompts",
    "new_message",
    *CHOICES,
    "message",
    "output",
    "content",
)
PLAIN = ("contents", "input", "prompt", "prompts")  # of these a bare text is what was said


class Payload(NamedTuple):
    messages: tuple[Message, ...] = ()
    is_chat: bool = False
    """Whether messages said who speaks; else a plain text was taken as the caller's."""

    @property
    def blocks(self) -> list[Block]:
        return [block for message in self.messages for block in message.blocks]


def payload_of(node: Node, role: Role) -> Payload:
    """Everything that an input (of the user) or an output (of the assistant) says."""
    messages = _messages_in(opened(node), role)
    if messages is not None:
        return Payload(tuple(messages), is_chat=True)
    said = said_by(node)
    return Payload((Message(role, (block_of(said),)),)) if said.value not in (None, "", {}, []) else Payload()


def layers_of(node: Node) -> list[Node]:
    """The node, what it holds as JSON text, and what that holds again."""
    found = [node]
    while len(found) <= LAYERS and isinstance(found[-1].value, str):
        last = found[-1]
        inner = json_in(last.value) if last.value[:1] in ("{", "[", '"') else None
        if not isinstance(inner, str | list | dict) or is_too_deep(last.value, inner):
            break
        found.append(Node(last.place.into(last.value, last.pointer), inner))
    return found


def opened(node: Node) -> Node:
    """What the innermost layer holds."""
    return layers_of(node)[-1]


def said_by(node: Node) -> Node:
    """The innermost layer that is a text; the node itself where none is."""
    return next((layer for layer in reversed(layers_of(node)) if isinstance(layer.value, str)), node)


def is_too_deep(text: str, value: Any) -> bool:
    """Whether the value of a text is nested deeper than a record may be."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [below for each in level if isinstance(each, dict | list) for below in _below(each)]
        if not level:
            return False
    return True


def _below(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _messages_in(node: Node, role: Role) -> list[Message] | None:
    """The messages that a value holds; None when it holds none."""
    value = node.value
    if isinstance(value, list):
        return _list(node, role)
    if not isinstance(value, dict):
        return None
    return _message(node, role) if _is_message(value) else _carried(node, role)


def _list(node: Node, role: Role) -> list[Message] | None:
    items = node.each()
    if len(items) == 1 and isinstance(items[0].value, list):
        return _messages_in(items[0], role)
    if any(_is_message(item.value) for item in items):
        return [message for item in items for message in _element(item, role)]
    return messages_of(_tagged(node), role) if any(_is_special(item.value) for item in items) else None


def _element(item: Node, role: Role) -> list[Message]:
    """An element of a list of messages: a message, a pair of role and text, or what no rule knows."""
    value = item.value
    if _is_message(value):
        return _message(item, role)
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and value[0].lower() in ROLES:
        return messages_of(item.each()[1], ROLES[value[0].lower()])
    return messages_of(_tagged(item), role) if _is_special(value) else [_unknown(item)]


def _unknown(node: Node) -> Message:
    return Message("", (block_of(node),))


def _carried(node: Node, role: Role) -> list[Message] | None:
    """The messages inside an envelope: a request, a response, a state."""
    for key in CARRIERS:
        if node.value.get(key) is None:
            continue
        held = node.get(key)
        found = _choices(opened(held), key) if key in CHOICES else _messages_in(opened(held), role)
        if found is None and key in PLAIN and role == "user":
            found = _bare(held, role)
        if found is not None:
            return [*_system(node), *found]
    return None


def _bare(node: Node, role: Role) -> list[Message] | None:
    said = said_by(node.each()[0] if isinstance(node.value, list) and len(node.value) == 1 else node)
    return [Message(role, (block_of(said),))] if isinstance(said.value, str) and said.value.strip() else None


def _system(node: Node) -> list[Message]:
    """What an envelope says of the system, beside its messages."""
    found = [node.get(*SYSTEM), node.get("config").get(*SYSTEM)]
    return [message for each in found if each.value for message in messages_of(each, "system")]


def _choices(node: Node, key: str) -> list[Message] | None:
    """The answers of a response, each marked as an end."""
    items = node.each()
    if key == "generations" and items and isinstance(items[0].value, list):
        items = [each for item in items for each in item.each()]
    found = [message for item in items for message in _choice(item)]
    return found or None


def _choice(item: Node) -> list[Message]:
    inner = opened(item.get("message", "content", "delta"))
    found = _messages_in(inner, "assistant") or _bare(item.get("text", "content"), "assistant") or [_unknown(item)]
    blocks = tuple(block for message in found for block in message.blocks)
    return [Message(found[0].role, blocks, is_end=True)]


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if _class_of(value) or value.get("type") in ITEMS or isinstance(value.get("gen_ai.event.content"), str):
        return True
    if isinstance(value.get("toolCalls"), list) or isinstance(value.get("parts"), list) or _is_hosted(value):
        return True
    role, message = value.get("role"), value.get("message")
    if isinstance(message, dict) and not isinstance(role, str) and "choices" not in value:
        return _is_message(message)
    is_named = isinstance(role, str) or value.get("type") in TYPES
    return is_named and any(key in value for key in SAYS)


def _class_of(value: dict[str, Any]) -> str:
    """The class of the message that a LangChain constructor makes; the empty text for anything else."""
    path = value.get("id")
    if "lc" not in value or not isinstance(value.get("kwargs"), dict) or not isinstance(path, list) or not path:
        return ""
    name = str(path[-1]).removesuffix("Chunk").removesuffix("Message")
    return name if name in CLASSES else ""


def _is_hosted(value: dict[str, Any]) -> bool:
    """A tool that the provider ran: the call and what it gave are one item."""
    kind = value.get("type")
    return isinstance(kind, str) and kind.endswith("_call") and kind not in SPECIAL and "id" in value


def _is_special(value: Any) -> bool:
    """Whether a part is more than a text or a picture: a call, a result, a thought."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if isinstance(kind, str) and (kind in SPECIAL or kind in RENAMED or _is_hosted(value)):
        return True
    function = value.get("function")
    if isinstance(function, dict) and "arguments" in function:
        return True
    is_bare_call = isinstance(value.get("toolName"), str) and "toolCallId" in value
    return is_bare_call or value.get("thought") is True or any(isinstance(value.get(key), dict) for key in BODIES)


def _message(node: Node, role: Role) -> list[Message]:
    value = node.value
    if isinstance(value.get("gen_ai.event.content"), str):
        event = node.get("gen_ai.event.content")
        held = opened(event)
        return _message(held, role) if _is_message(held.value) else [_unknown(event)]
    if _is_hosted(value):
        return [_hosted(node)]
    made = _class_of(value)
    if made:
        return _message(Node(node.place, value["kwargs"] | {"role": made.lower()}, f"{node.pointer}/kwargs"), role)
    if (
        isinstance(value.get("message"), dict)
        and not isinstance(value.get("role"), str)
        and _is_message(value["message"])
    ):
        return _message(node.get("message"), role)
    named = declared_id(value.get("id")) if isinstance(value.get("event.name"), str) else None  # of a tool's event
    found = message_of(_tagged(node), role, named)
    if found.role == "assistant" and not any(block.kind == "call" for block in found.blocks):
        more = _more_calls(node)
        said = tuple(block for block in found.blocks if block.text or not more)
        found = found._replace(blocks=(*said, *more))
    return [found]


def _more_calls(node: Node) -> tuple[Block, ...]:
    """The calls of an assistant message that stand where only some frameworks put them."""
    more, invalid = node.get("additional_kwargs"), node.get("invalid_tool_calls")
    found: list[Message] = []
    if isinstance(more.value, dict):
        found = [message_of(_tagged(more), "assistant")]
    if not any(block.kind == "call" for message in found for block in message.blocks):
        found = messages_of(_tagged(invalid), "assistant") if isinstance(invalid.value, list) and invalid.value else []
    return tuple(block for message in found for block in message.blocks if block.kind == "call")


def _hosted(node: Node) -> Message:
    """A call and what the provider's own tool gave, named by the item's id."""
    value = node.value
    name = value["name"] if isinstance(value.get("name"), str) and value["name"] else value["type"]
    asked, gave = node.get("arguments", "input", "action", "queries", "code"), node.get("output", "outputs", "results")
    call_id = declared_id(value["id"])
    call = block_of(asked if asked else node, "call", tool=name, call_id=call_id)
    call = call if asked else call._replace(text="")
    given = (block_of(gave, "result", tool=name, call_id=call_id),) if gave and call_id else ()
    return Message("assistant", (call, *given))


def _tagged(node: Node) -> Node:
    """The same value with the tags that `dialects` knows; every text stays where it is."""
    return Node(node.place, _retagged(node.value, 0), node.pointer)


def _retagged(value: Any, depth: int) -> Any:
    if isinstance(value, list):
        return [_retagged(each, depth) for each in value]
    if (
        not isinstance(value, dict) or depth > 1
    ):  # a message and its parts; what tools were given and gave stays as it is
        return value
    found = {key: _retagged(each, depth + 1) if key in ("content", "parts") else each for key, each in value.items()}
    kind = found.get("type")
    if isinstance(kind, str) and kind in RENAMED:
        found["type"] = RENAMED[kind]
    elif kind is None and isinstance(found.get("toolName"), str) and "toolCallId" in found:
        found["type"] = "tool-result" if "result" in found or "output" in found else "tool-call"
    elif isinstance(found.get("function"), dict) and kind in (None, "function") and "arguments" in found["function"]:
        found["type"] = "tool_call"
    return found


def one_spelling(text: str) -> str:
    """A JSON text without order and spaces, however often it was encoded; any other text as it is."""
    value: Any = text.strip()
    for _ in range(LAYERS):
        inner = json_in(value) if isinstance(value, str) and value[:1] in ("{", "[", '"') else None
        if not isinstance(inner, str | list | dict) or is_too_deep(text, inner):
            break
        value = inner
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
