"""Items of the OpenAI Responses API, as they stand in requests, responses and lists: what each becomes as events.

- `call_id` links a call and its output; `id` names an item and pairs nothing. The name of a built-in tool is its type.
- A tool that the server runs (mcp, web search, file search, code interpreter, image generation) holds its output inside its
  call: `structural`. Where the item holds none, the call is unanswered; nothing else can answer it.
- What the model says behind a tool that the server ran is a turn of its own: it has seen the output, recorded or not.
- The sources of a web search are its output; its arguments are then the query alone.
- An approval request that an `mcp_call` follows is a view of that call; a refusal is a result that the user `rejected`.
- A compaction is a boundary. Tool lists are `tool_definition`, references `duplicate_view`, unknown types `unknown_role`.
- A type that no rule names and that ends in `_call` or `_output` is read like the others of its ending.

Not covered: what an image or a file shows (it is quoted as it stands); encrypted reasoning.
"""

import json
from typing import Any, NamedTuple

from experiential_lab.evidence.importers.format import declared_id
from experiential_lab.evidence.importers.talk import Piece, Talk, joined
from experiential_lab.evidence.spans import Place, Text
from experiential_lab.evidence.trace import Event

NAMED = ("function_call", "custom_tool_call", "mcp_call", "mcp_approval_request")  # calls that say their tool's name
ARGUMENTS = ("arguments", "input", "action", "actions", "operation", "queries", "code", "revised_prompt")
INSIDE = {  # where a tool that the server runs holds its output
    "mcp_call": ("output", "error"),
    "web_search_call": ("results", "action/sources"),
    "file_search_call": ("results",),
    "code_interpreter_call": ("outputs",),
    "image_generation_call": ("result",),
}
ASIDE = {"mcp_list_tools": "tool_definition", "additional_tools": "tool_definition", "item_reference": "duplicate_view"}
CALLS = (
    *NAMED,
    *INSIDE,
    "local_shell_call",
    "shell_call",
    "computer_call",
    "apply_patch_call",
)
OUTPUTS = tuple(f"{kind}_output" for kind in CALLS)
TYPES = ("reasoning", "compaction", "mcp_approval_response", *ASIDE, *CALLS, *OUTPUTS)
BLOCKS = ("input_text", "output_text", "refusal", "input_image", "input_file", "input_audio", "summary_text")
ROLES = ("assistant", "user", "system", "developer")


class Item(NamedTuple):
    """One item, and where it stands."""

    place: Place
    pointer: str
    value: Any
    """An object; or a text, which a user said."""
    pieces: tuple[tuple[str, tuple[Piece, ...]], ...] = ()
    """(text, reasoning or arguments; its pieces): what a stream said of it, where no record holds it as a whole."""

    @property
    def kind(self) -> str:
        if isinstance(self.value, str):
            return "message" if self.pointer.endswith("/input") else ""
        return kind_of(self.value)

    def get(self, key: str) -> Any:
        return self.value.get(key) if isinstance(self.value, dict) else None

    def quote(self) -> Text:
        return self.place.value(self.value, self.pointer)

    def at(self, path: str) -> Text:
        """The text of a member; the path may go down."""
        value = self.value
        for key in path.split("/"):
            value = value[int(key)] if isinstance(value, list) else value[key]
        return self.place.value(value, f"{self.pointer}/{path}")


def kind_of(value: object) -> str:
    """The type of an item; a message may leave it out."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind is None and isinstance(value, dict) and value.get("role") in ROLES:
        return "message"
    return kind if isinstance(kind, str) else ""


def is_item(value: object) -> bool:
    """Whether a value says by itself that it is an item of this API."""
    if not isinstance(value, dict):
        return False
    if value.get("type") == "message" and value.get("role") in ROLES:
        content = value.get("content")
        if isinstance(content, list):
            return any(isinstance(block, dict) and block.get("type") in BLOCKS for block in content)
        return isinstance(content, str) and value.keys() <= {"type", "role", "content", "id", "status", "phase"}
    kind = value.get("type")
    if kind not in TYPES or "role" in value or "payload" in value:
        return False
    if kind in ("reasoning", "compaction"):
        return bool({"summary", "encrypted_content"} & value.keys())
    return bool({"call_id", "id", "approval_request_id"} & value.keys())


def said(item: Item) -> str | None:
    """What an item says, wherever it stands: equal for an item and its copy. None: reasoning, which copies leave out."""
    kind = item.kind
    if kind == "reasoning":
        return None
    if kind == "message":
        role = "user" if isinstance(item.value, str) else str(item.get("role"))
        return f"{role}\0{_spoken(item.value if isinstance(item.value, str) else item.get('content'))}"
    if kind in INSIDE or kind == "mcp_approval_request":
        return f"call\0{kind}\0{item.get('id')}"
    fields = ("call_id", "name", *ARGUMENTS, "output", "approval_request_id", "approve")
    held = [item.get(key) for key in fields]
    group = "call" if kind.endswith("_call") else "result" if kind.endswith("_output") else "other"
    return f"{group}\0{kind}\0{_canonical(held if any(held) else item.value)}"


def is_made(saying: str | None) -> bool:
    """Whether a model made what says this: such a thing stands in an input only because it is sent again."""
    return saying is not None and saying.startswith(("call\0", "assistant\0"))


def _spoken(content: object) -> str:
    if isinstance(content, list):
        texts = [block.get("text", block.get("refusal")) if isinstance(block, dict) else block for block in content]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(map(str, texts))
    return content if isinstance(content, str) else _canonical(content)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


class Reader:
    """Turns items into events. `followed`: the approval requests that a call followed."""

    def __init__(self, followed: frozenset[str]) -> None:
        self.followed = followed

    def events(self, talk: Talk, item: Item) -> list[Event]:
        """At least one event."""
        kind = item.kind
        if talk.ran and kind not in INSIDE:
            talk.in_turn = False
        talk.ran = kind in INSIDE
        if kind == "message":
            return _message(talk, item)
        if kind == "reasoning":
            return _reasoning(talk, item)
        if kind == "compaction":
            talk.in_turn = False
            return [talk.event("boundary", item.place, item.quote())]
        if kind == "mcp_approval_request":
            return [self._approval(talk, item)]
        if kind == "mcp_approval_response":
            return [_decision(talk, item)]
        if kind in ASIDE:
            return [talk.aside(item.place, item.quote(), ASIDE[kind])]
        if kind.endswith("_call"):
            return _call(talk, item)
        if kind.endswith("_output"):
            return [_output(talk, item)]
        return [talk.aside(item.place, item.quote(), "unknown_role")]

    def _approval(self, talk: Talk, item: Item) -> Event:
        request_id = declared_id(item.get("id"))
        aside = "duplicate_view" if request_id in self.followed else None
        return talk.call(item.place, **_arguments(item), tool=_name(item.get("name")), call_id=request_id, aside=aside)


def _message(talk: Talk, item: Item) -> list[Event]:
    role = "user" if isinstance(item.value, str) else item.get("role")
    content = item.value if isinstance(item.value, str) else item.get("content")
    if role == "assistant":
        return _assistant(talk, item, content)
    at = item.quote() if isinstance(item.value, str) or content is None else item.at("content")
    text = "" if content is None else at.text
    if role == "user":
        return [talk.user(item.place, at, text=text)]
    if role in ROLES:
        return [talk.system(item.place, at, text=text)]
    return [talk.aside(item.place, item.quote(), "unknown_role")]


def _assistant(talk: Talk, item: Item, content: object) -> list[Event]:
    talk.speak()
    found = _in_pieces(talk, item)
    if found:
        return found
    if isinstance(content, str) and content:
        return [talk.event("text", item.place, item.at("content"))]
    if isinstance(content, list) and content:
        whole = item.at("content")
        if whole.located == "normalised" or whole.pointer.endswith("/text"):
            found = [talk.event("text", item.place, whole)] if whole.text else []
        else:
            found = [talk.event("text", item.place, at) for at in map(item.at, _blocks(content)) if at.text]
    return found or [talk.aside(item.place, item.quote(), "empty_message")]


def _blocks(content: list[Any]) -> list[str]:
    """The path of what each block says."""
    found = []
    for at, block in enumerate(content):
        field = next(
            (key for key in ("text", "refusal") if isinstance(block, dict) and isinstance(block.get(key), str)), ""
        )
        found.append(f"content/{at}/{field}" if field else f"content/{at}")
    return found


def _in_pieces(talk: Talk, item: Item) -> list[Event]:
    """What a stream said of a message or of reasoning."""
    found = []
    for kind, pieces in item.pieces:
        text, span = joined(pieces)
        if kind in ("text", "reasoning") and text:
            found.append(talk.event(kind, item.place, pieces[0].at, span=span, text=text))
    return found


def _reasoning(talk: Talk, item: Item) -> list[Event]:
    talk.speak()
    found = _in_pieces(talk, item)
    for field in ("summary", "content") if not found else ():
        parts = item.get(field)
        for at, part in enumerate(parts if isinstance(parts, list) else []):
            is_text = isinstance(part, dict) and isinstance(part.get("text"), str)
            found.append(
                talk.event("reasoning", item.place, item.at(f"{field}/{at}/text" if is_text else f"{field}/{at}"))
            )
    return found or [talk.event("reasoning", item.place, item.quote(), text="")]


def _call(talk: Talk, item: Item) -> list[Event]:
    kind = item.kind
    tool = item.get("name") if kind in NAMED else kind.removesuffix("_call")
    inside = next((path for path in INSIDE.get(kind, ()) if _holds(item, path)), None)
    call_id = declared_id(item.get("id" if kind in INSIDE else "call_id"))
    within = f"{item.place.member}:{item.place.offset}{item.pointer}" if kind in INSIDE else None
    found = [talk.call(item.place, **_arguments(item), tool=_name(tool), call_id=call_id, within=within)]
    if inside is not None:
        at = _logs(item) or item.at(inside)
        failed = item.get("error") is not None or item.get("status") == "failed"
        is_error = True if failed else False if "error" in item.value else None
        found.append(talk.result(item.place, at, tool=_name(tool), within=within, is_error=is_error))
        talk.in_turn = True  # tools of the server may run beside each other
    return found


def _holds(item: Item, path: str) -> bool:
    value = item.value
    for key in path.split("/"):
        value = value.get(key) if isinstance(value, dict) else None
    return value is not None


def _logs(item: Item) -> Text | None:
    """What a program printed, where that is its only output."""
    outputs = item.get("outputs")
    if isinstance(outputs, list) and len(outputs) == 1 and isinstance(outputs[0], dict):
        return item.at("outputs/0/logs") if isinstance(outputs[0].get("logs"), str) else None
    return None


def _arguments(item: Item) -> dict[str, Any]:
    """What is quoted of a call, never its output: its arguments, or its type where it has none."""
    pieces = next((pieces for kind, pieces in item.pieces if kind == "arguments"), ())
    text, span = joined(pieces) if pieces else ("", None)
    if text:
        return {"at": pieces[0].at, "span": span, "text": text}
    action = item.get("action")
    if isinstance(action, dict) and action.get("sources") is not None:
        path = next((f"action/{key}" for key in ("query", "queries", "url") if action.get(key)), "")
    else:
        path = next((key for key in ARGUMENTS if item.get(key) not in (None, "")), "")
    return {"at": item.at(path)} if path else {"at": item.at("type"), "text": ""}


def _output(talk: Talk, item: Item) -> Event:
    field = next((key for key in ("output", "tools") if item.get(key) is not None), "")
    status = item.get("status") if item.kind == "apply_patch_call_output" else None
    more = {} if field else {"text": ""}
    return talk.result(
        item.place,
        item.at(field) if field else item.quote(),
        call_id=declared_id(item.get("call_id")),
        is_error={"failed": True, "completed": False}.get(status) if isinstance(status, str) else None,
        **more,
    )


def _decision(talk: Talk, item: Item) -> Event:
    """The answer to an approval request: only a refusal is an observation, for a call follows an approval."""
    if item.get("approve") is not False:
        return talk.aside(item.place, item.quote(), "harness_text")
    at = item.at("reason" if isinstance(item.get("reason"), str) and item.get("reason") else "approve")
    request_id = declared_id(item.get("approval_request_id"))
    return talk.result(item.place, at, call_id=request_id, author="unknown", rejected=True)


def _name(name: object) -> str | None:
    return name if isinstance(name, str) and name else None
