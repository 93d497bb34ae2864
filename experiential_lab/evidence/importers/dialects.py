"""Read one message of a recorded model call, whichever vendor or framework spelled it, into blocks that can be quoted.

- A `Node` is a value inside a record with its place. Three spellings of one tree read alike: nested objects, flat keys
  (`llm.input_messages.0.message.role`), and the typed values of OTLP (`{"stringValue": ..}`). JSON text inside a string is
  one layer further down.
- A block is a text, reasoning, a call or a result. What it is follows from the block's own tag, then from the role.
- Arguments that are encoded twice are quoted from the inner layer; no further, and only when it starts like JSON.
- A message whose parts are all text is one block. A tool message that holds a function's schema is a tool definition.

Spellings: OpenAI messages and Responses items, OpenTelemetry parts, OpenInference, Vercel AI, Anthropic, Bedrock, Gemini,
LangChain. Not covered: what is encoded otherwise than as JSON (a Python representation); images and files are quoted whole.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from experiential_lab.evidence.importers.format import declared_id
from experiential_lab.evidence.spans import Place, Text

BlockKind = Literal["text", "reasoning", "call", "result", "definition"]
Role = Literal["system", "user", "assistant", "tool", ""]

ROLES: dict[str, Role] = {  # in whatever case
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "aimessagechunk": "assistant",
    "thinking": "assistant",
    "reasoning": "assistant",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
}
TEXTS = ("text", "input_text", "output_text", "refusal")
REASONING = ("reasoning", "thinking", "redacted_thinking", "reasoning_content", "reasoningContent")
THOUGHTS = ("text", "content", "thinking", "reasoning", "reasoning_content.text", "reasoningText.text", "refusal")
CALLS = (
    "tool_call",
    "tool-call",
    "tool_use",
    "server_tool_use",
    "mcp_tool_use",
    "server_tool_call",
    "function_call",
    "toolUse",
    "functionCall",
)
RESULTS = (
    "tool_call_response",
    "tool-result",
    "tool_result",
    "mcp_tool_result",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "server_tool_call_response",
    "function_call_output",
    "function_response",
    "toolResult",
    "functionResponse",
)
BARE = (
    "reasoningContent",
    "toolUse",
    "functionCall",
    "function_call",
    "toolResult",
    "functionResponse",
    "function_response",
)
RESULT_IDS = ("tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "call_id")
IDS = (*RESULT_IDS, "id")  # an item of the Responses API has an id of its own beside that of its call
NAMES = ("name", "toolName", "tool_name", "function.name")
ARGUMENTS = ("arguments", "args", "input", "function.arguments", "server_tool_call")
ANSWERS = ("response", "output", "result", "content", "server_tool_call_response")
_ANY = {"string": "", "bool": "", "int": "", "double": "", "bytes": "", "array": "list", "kvlist": "object"}
TYPED = {f"{name}{end}": kind for name, kind in _ANY.items() for end in ("Value", "_value")}  # the values of OTLP


class Node:
    """A value inside a record: what it is, and where it stands."""

    __slots__ = ("_has_dots", "_index", "is_typed", "parts", "place", "pointer", "value")

    def __init__(self, place: Place, value: Any, pointer: str = "", *, is_typed: bool = False) -> None:
        self.place, self.value, self.pointer = place, value, pointer
        self.is_typed = is_typed
        self.parts: list[tuple[str, Node]] | None = None  # of an object that is spelled by flat keys or by pairs
        self._has_dots: bool | None = None
        self._index: dict[str, list[tuple[str, Node]]] | None = None
        if is_typed:
            self._open()

    def _open(self) -> None:
        """Goes through the wrappers of a typed value."""
        while isinstance(self.value, dict) and len(self.value) == 1:
            ((name, value),) = self.value.items()
            if name not in TYPED:
                return
            self.value, self.pointer = value, f"{self.pointer}/{name}"
            if TYPED[name]:
                inside = value.get("values") if isinstance(value, dict) else None
                if isinstance(inside, list):
                    self.value, self.pointer = inside, f"{self.pointer}/values"
                    self.parts = self.pairs().parts if TYPED[name] == "object" else None
                return

    def pairs(self) -> "Node":
        """A list of `{key, value}`, as OTLP writes attributes, read as an object."""
        found = Node(self.place, self.value, self.pointer)
        found.parts = [
            (pair["key"], Node(self.place, pair["value"], f"{self.pointer}/{at}/value", is_typed=True))
            for at, pair in enumerate(self.value if isinstance(self.value, list) else [])
            if isinstance(pair, dict) and isinstance(pair.get("key"), str) and "value" in pair
        ]
        return found

    def __bool__(self) -> bool:
        return self.value is not None or bool(self.parts)

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict) or self.parts is not None

    def get(self, *names: str) -> "Node":
        """The first of these members that says something; a name may go down several levels, by dots."""
        for name in names:
            found = self._member(name)
            if found is not None:
                return found
        return Node(self.place, None, self.pointer)

    def _member(self, name: str) -> "Node | None":
        if self.parts is None:
            if not isinstance(self.value, dict):
                return None
            value = self.value.get(name)
            if value is not None:
                return self._child(name, value)
            if self._has_dots is None:
                self._has_dots = "." in "".join(self.value)
            if "." not in name and not self._has_dots:
                return None
        flat: list[tuple[str, Node]] = []
        for key, node in self._indexed().get(name.partition(".")[0], ()):
            if key == name:
                if node:
                    return node
            elif key.startswith(f"{name}."):
                flat.append((key[len(name) + 1 :], node))
            elif name.startswith(f"{key}."):  # it goes on below
                below = node.get(name[len(key) + 1 :])
                if below:
                    return below
        if not flat:
            return None
        found = Node(self.place, None, self.pointer)
        found.parts = flat
        return found

    def _indexed(self) -> dict[str, list[tuple[str, "Node"]]]:
        """The members by the first part of their key."""
        if self._index is None:
            self._index = {}
            for key, node in self.members():
                self._index.setdefault(key.partition(".")[0], []).append((key, node))
        return self._index

    def _child(self, key: str, value: Any) -> "Node":
        if "~" in key or "/" in key:
            key = key.replace("~", "~0").replace("/", "~1")
        return Node(self.place, value, f"{self.pointer}/{key}", is_typed=self.is_typed)

    def each(self) -> list["Node"]:
        """The elements of a list, or of an object whose keys are numbers, in their order."""
        if self.parts is None and isinstance(self.value, list):
            return [
                Node(self.place, value, f"{self.pointer}/{at}", is_typed=self.is_typed)
                for at, value in enumerate(self.value)
            ]
        groups: dict[str, list[tuple[str, Node]]] = {}
        for key, node in self.members():
            first, _, rest = key.partition(".")
            if first.isdecimal() and len(first) < 10:
                groups.setdefault(first, []).append((rest, node))
        return [self._group(groups[number]) for number in sorted(groups, key=int)]

    def _group(self, pairs: list[tuple[str, "Node"]]) -> "Node":
        whole = next((node for rest, node in pairs if not rest), None)
        if whole is not None:
            return whole
        found = Node(self.place, None, self.pointer)
        found.parts = pairs
        return found

    def members(self) -> list[tuple[str, "Node"]]:
        """(key, value) of an object, in its order."""
        if self.parts is not None:
            return self.parts
        if isinstance(self.value, dict):
            return [(key, self._child(key, value)) for key, value in self.value.items()]
        return []

    def string(self) -> str | None:
        """A text that is not empty."""
        return self.value if isinstance(self.value, str) and self.value else None

    def number(self) -> int | None:
        """A whole number, also one that is written as text."""
        value = self.value
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 30:
            return int(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def decoded(self) -> "Node":
        """The value that a JSON text holds, one layer down; anything else as it is."""
        if isinstance(self.value, str) and self.value.lstrip()[:1] in ("{", "["):
            inside = json_in(self.value)
            if inside is not None:
                return Node(self.place.into(self.value, self.pointer), inside)
        return self

    def quote(self) -> Text:
        """What the value says; of an object in flat keys, its first text that is not empty."""
        if self.value is None and self.parts:
            said = [node.quote() for _, node in self.parts]
            return next((text for text in said if text.text), said[0])
        return self.place.value(self.value, self.pointer)


def json_in(text: str) -> Any:
    """The value of a JSON text; None for null and for what is none or cannot be quoted from."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:  # NaN and infinity are JSON to the standard library alone
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate: no bytes can hold such a text
    except (ValueError, RecursionError):
        return None
    return value


class Block(NamedTuple):
    """One block of a message."""

    kind: BlockKind
    place: Place
    at: Text
    """What is quoted."""
    text: str
    """A text, the arguments of a call, or a result; empty where `at` quotes what holds none."""
    tool: str | None = None
    call_id: str | None = None
    is_error: bool | None = None


class Message(NamedTuple):
    role: Role
    blocks: tuple[Block, ...]
    is_end: bool = False
    """It says why the model stopped: it is one whole answer, not a part of one."""


def block_of(node: Node, kind: BlockKind = "text", **more: Any) -> Block:
    """A block that quotes this value."""
    at = node.quote()
    return Block(kind, node.place, at, at.text, **more)


def messages_of(node: Node, role: Role = "") -> list[Message]:
    """The messages of a list, of the JSON text of one, or of a single message or text, which `role` said."""
    node = node.decoded()
    if isinstance(node.value, str):
        return [Message(role, (block_of(node),))] if node.value else []
    elements = [each.decoded() for each in node.each()]
    if elements and all(_is_list(each) for each in elements):  # a batch of lists
        elements = [inner for each in elements for inner in each.each()]
    if not elements and node.is_object:
        elements = [node]
    if elements and all(_is_part(each) for each in elements):
        return [Message(role, tuple(_blocks(node, role)))]
    return [message_of(each, role) for each in elements]


def message_of(node: Node, role: Role = "", call_id: str | None = None) -> Message:
    """One message. `role`: whose it is unless it says so itself; `call_id`: of a tool message that holds it elsewhere."""
    inner = node.get("message")
    node = inner if inner.is_object else node
    if node.get("lc").value == 1 and node.get("kwargs").is_object:
        node = node.get("kwargs")
    said = (node.get("role", "type").string() or "").lower()
    role = ROLES.get(said, "") if said else role
    end = bool(node.get("finish_reason"))
    if node.get("type").string() in (*CALLS, *RESULTS, *REASONING):  # an item of the Responses API stands for itself
        part = _part(node, role)
        return Message("tool" if part.kind == "result" else "assistant", (part,), end)
    if not node.is_object:
        return Message(role if node.string() else "", (block_of(node),), end)
    if role == "tool":
        return Message(role, tuple(_results(node, call_id)), end)
    if said in REASONING:
        return Message(role, (block_of(_thought(node), "reasoning"),), end)
    blocks = _blocks(node.get("parts", "contents", "content", "refusal", "text", "message"), role)
    if role == "assistant":
        reasoning = node.get("reasoning_content", "reasoning")
        blocks = (
            ([block_of(reasoning, "reasoning")] if reasoning.string() else []) + blocks + list(_calls(node, blocks))
        )
    return Message(role, tuple(blocks or [block_of(node)._replace(text="")]), end)


def _blocks(content: Node, role: Role) -> list[Block]:
    """The blocks of a message's content."""
    if not content:
        return []
    inside = content.decoded()
    if isinstance(content.value, str) and not (inside.each() and all(_is_part(each) for each in inside.each())):
        return [block_of(content)] if content.value or role != "assistant" else []
    parts = [_unwrapped(each) for each in inside.each()]
    if not parts:
        return [block_of(inside)] if inside.is_object or inside.value else []
    kinds = {_tag(part) for part in parts}
    is_plain = inside.parts is None and isinstance(inside.value, list) and not inside.is_typed
    if not kinds & {*CALLS, *RESULTS, *REASONING} and (role != "assistant" or kinds <= {*TEXTS, ""}) and is_plain:
        return [block_of(inside)]
    return [_part(part, role) for part in parts]


def _unwrapped(part: Node) -> Node:
    inner = part.get("message_content")
    return inner if inner.is_object else part


def _tag(part: Node) -> str:
    """What kind of block a part says that it is; the empty text where it does not."""
    tag = part.get("type").string()
    if part.get("thought").value is True and part.get("text").string():
        return REASONING[0]
    if tag:
        return tag
    return next((name for name in BARE if part.get(name).is_object), "")


def _is_part(node: Node) -> bool:
    """Whether a value is a block of a message rather than a message."""
    node = _unwrapped(node)
    if not node.is_object or node.get("role") or node.get("message"):
        return False
    tag = _tag(node)
    return tag in (*TEXTS, *REASONING, *CALLS, *RESULTS) or (not tag and node.get("text").string() is not None)


def _is_list(node: Node) -> bool:
    """Whether a value is a list, in whatever spelling, and no message."""
    if node.parts is None:
        return isinstance(node.value, list)
    return not node.get("role", "type", "message") and bool(node.each())


def _part(part: Node, role: Role) -> Block:
    tag = _tag(part)
    inner = part.get(tag) if tag in BARE else Node(part.place, None)
    part = inner if inner.is_object else part
    if tag in CALLS:
        return call_of(part)
    if tag in RESULTS:
        return _result(part, _id_in(part, IDS))
    if tag in REASONING:
        return block_of(_thought(part), "reasoning")
    said = part.get("text", "content", "thinking", "reasoning", "refusal")
    if tag in (*TEXTS, "") and isinstance(said.value, str):
        return block_of(said, "result" if role == "tool" else "text")
    return block_of(part, "result" if role == "tool" else "text")


def _thought(part: Node) -> Node:
    """The text of a thought, or of the only piece of its content or summary; the thought itself where it has none."""
    held = [part.get(name) for name in THOUGHTS]
    for pieces in (part.get("content").each(), part.get("summary").each()):
        held += [pieces[0].get("text")] if len(pieces) == 1 else []
    return next((each for each in held if each.string()), part)


def _id_in(node: Node, names: tuple[str, ...]) -> str | None:
    """The first of these ids that is declared."""
    return next((found for name in names if (found := declared_id(node.get(name).value))), None)


def _calls(node: Node, blocks: list[Block]) -> Iterator[Block]:
    """The calls that stand beside a message's content; a framework may repeat there what the content holds."""
    calls = node.get("tool_calls", "toolCalls").decoded()
    elements = calls.each() or ([calls] if calls and calls.value not in ([], {}, "") else [])
    held = {block.call_id for block in blocks if block.kind == "call"} - {None}
    for each in elements:
        call = each.get("tool_call") if each.get("tool_call").is_object else each
        found = call_of(call)
        if found.call_id not in held:
            yield found
    legacy = node.get("function_call")
    if legacy.is_object:
        yield call_of(legacy)._replace(call_id=None)
    elif node.get("function_call_name"):  # the older spelling of OpenInference
        arguments, quoted = _arguments(node.get("function_call_arguments_json"), node)
        yield Block("call", *quoted, arguments, node.get("function_call_name").string())


def call_of(node: Node) -> Block:
    """One call, wherever its name, id and arguments stand."""
    arguments, quoted = _arguments(node.get(*ARGUMENTS), node)
    return Block("call", *quoted, arguments, node.get(*NAMES).string(), _id_in(node, IDS))


def _arguments(given: Node, call: Node) -> tuple[str, tuple[Place, Text]]:
    """The text of a call's arguments and what is quoted: the call itself where it gives none."""
    if not given:
        return "", (call.place, call.quote())
    place, at = given.place, given.quote()
    if isinstance(given.value, str) and at.text.startswith('"'):
        inside = json_in(at.text)
        if isinstance(inside, str) and inside.lstrip()[:1] in ("{", "["):
            place, at = place.into(at.text, at.pointer), Text(inside, "")
    return at.text, (place, at)


def arguments_block(given: Node, tool: str | None, call_id: str | None) -> Block:
    """The call that a tool's own span repeats."""
    text, quoted = _arguments(given, given)
    return Block("call", *quoted, text, tool, call_id)


def _results(node: Node, call_id: str | None) -> Iterator[Block]:
    """The results that a tool message holds: parts that say so, else the message itself."""
    content = node.get("parts", "content", "contents", "response", "output", "result")
    parts = [_unwrapped(each) for each in content.decoded().each()]
    if parts and all(_tag(part) in RESULTS for part in parts):
        yield from (_part(part, "tool") for part in parts)
        return
    call_id = _id_in(node, RESULT_IDS) or call_id
    if call_id is None and _is_definition(content):
        yield block_of(content, "definition")
    else:
        yield _result(node, call_id)


def _is_definition(content: Node) -> bool:
    """Whether a tool message holds a tool's schema: some exporters store the tools of a call among its messages."""
    inside = content.decoded()
    return inside.get("type").value == "function" and inside.get("function.name", "name").string() is not None


def _result(node: Node, call_id: str | None) -> Block:
    answer = node.get("parts", *ANSWERS, "contents", "text")
    kind = answer.get("type").value if answer.is_object else None
    is_error = node.get("is_error", "isError").value
    if node.get("status").value == "error" or (isinstance(kind, str) and kind.startswith("error")):
        is_error = True
    if kind in ("text", "json", "error-text", "error-json", "content") and answer.get("value"):
        answer = answer.get("value")
    parts = [_unwrapped(each) for each in answer.each()] if answer.parts is not None else []
    if len(parts) == 1 and parts[0].get("text", "content").string() is not None:
        answer = parts[0].get("text", "content")
    at = (answer if answer else node).quote()
    return Block(
        "result",
        node.place,
        at,
        at.text if answer else "",
        node.get(*NAMES).string(),
        call_id,
        is_error if isinstance(is_error, bool) else None,
    )
