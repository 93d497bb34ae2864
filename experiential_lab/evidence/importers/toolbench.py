"""ToolBench answers: objects of `{tree | trys, answer_generation: {query, function, train_messages}}`, one a query.

- Unit: the search for one answer. Trace id: the digest of the record's bytes, for the format declares no id of a run. Runs
  of one query share a `task:` key.
- The tree counts: there each tool's answer stands in the node of its own call, so it is `structural`. `train_messages`, which
  grow list by list along one path of it, are `duplicate_view`s; what an earlier list holds too is `replayed_history`.
- A file without a tree is read from its tries (`trys`, chains of such nodes), else from `train_messages`: each message once,
  whatever goes on otherwise is a branch, calls pair by name and order.
- Thought, Action and Action Input are one step: text beside a call. A second child of a node, and all below it, is a branch;
  pruned ones too, for their calls were made. A branch begins with a copy of the observation that it goes on from.
- A node's own turn goes on below it only if the search never expanded it (`expand_num` 0): calls of one model output.
- `Finish` is terminal: that the scaffold accepts it (codes 3, 4) is `harness_text`. A `Finish` that it refuses is answered.
- `observation_code` declares errors: 0 is a normal response, 1, 2 and 5 to 12 are errors. Code and no text is an empty answer.
- Nobody replies: after the request, what stands in the user's name is `harness_text`. The query is the task as it stands;
  the message that wraps it is its view.
- Usage is the file's own total over the model calls of the search, rankings too.

Not covered: labels of nodes (Elo, `pruned`, `finished`), the tools' definitions, answers converted for ToolEval, and which
calls of a try were parallel.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.chat import _Chat, _Messages, _role
from experiential_lab.evidence.importers.format import (
    Format,
    Source,
    context_of,
    read_each,
    request_of,
    task_keys,
)
from experiential_lab.evidence.importers.parts import listed, mapping, named
from experiential_lab.evidence.importers.usage import summed
from experiential_lab.evidence.spans import Place, Text
from experiential_lab.evidence.trace import Event, Imported, Trace
from experiential_lab.records import digest_of, short_id

NAME = "toolbench"
THOUGHT, ACTION, CALL = "Thought", "Action", "Action Input"
FINISH = "Finish"
ACCEPTED = (3, 4)  # the final answer is given; the model gives up and starts again
NO_SUCH_TOOL = 1
FAILED = (NO_SUCH_TOOL, 2, *range(5, 13))  # rapidapi.py of ToolBench lists what each code means
RENAMED = "invalid_hallucination_function_name"  # what the messages call a tool that does not exist
COUNTS = ("query_count", "total_tokens")
LISTS = "/answer_generation/train_messages"


class _Node(NamedTuple):
    """One node of a tree, or of a chain, whose nodes have one child each."""

    value: Any
    pointer: str
    children: list["_Node"]

    @property
    def kind(self) -> str:
        kind = mapping(self.value).get("node_type")
        return kind if isinstance(kind, str) else ""

    def get(self, key: str) -> Any:
        return mapping(self.value).get(key)


def _trace(source: Source, record: Framed) -> Trace | None:
    value = record.value
    if _sniff(value) is None:
        return None
    answer = mapping(value.get("answer_generation"))
    events = _events(source, record, answer)
    query, tools = answer.get("query"), answer.get("function")
    is_ended = value.get("win") is True or answer.get("valid_data") is True
    return Trace(
        trace_id=short_id(NAME, digest_of(record.raw)),
        source=source.digest,
        format=NAME,
        name=f"record {record.number}",
        keys=task_keys(source, "query", query) if isinstance(query, str) and query else (),
        task=request_of(events),
        context=context_of(events),
        declared_tools=len(tools) if isinstance(tools, list) else None,
        complete=True if is_ended else None,
        usage=summed([answer], COUNTS) if answer.get("total_tokens") else None,
        events=tuple(events),
    )


def _events(source: Source, record: Framed, answer: dict[str, Any]) -> list[Event]:
    """What was visible first, then the steps of the search, then their other views."""
    place, query, roots = source.place(record), answer.get("query"), _roots(record.value)
    search = _Search(place)
    for root in roots:
        search.walk(root)
    request = [_event(place, "task", "/answer_generation/query", query)] if query else []
    lists = _Lists(source, record, search.told if search.events else None, request[0].text if request else None)
    first, later = lists.events(answer.get("train_messages"))
    views = _views(place, record.value, roots[0].pointer if roots else "")
    return [*first, *request, *search.events, *later, *views]


def _views(place: Place, value: dict[str, Any], read: str) -> Iterator[Event]:
    """What is written again of the steps, and what cannot be read; `read` points to what was."""
    tree, tries = value.get("tree"), value.get("trys")
    if tree and not read.startswith("/tree/"):
        yield _event(place, "control", "/tree", tree, aside="unknown_role")
    if tries and not read.startswith("/trys/"):
        yield _event(place, "control", "/trys", tries, aside="duplicate_view" if _tries(value) else "unknown_role")
    for at, each in enumerate(listed(value.get("compare_candidates"))):
        yield _event(place, "control", f"/compare_candidates/{at}", each, aside="duplicate_view")
    answer = mapping(value.get("answer_generation"))
    for key in ("chain", "final_answer"):
        if answer.get(key):
            yield _event(place, "control", f"/answer_generation/{key}", answer[key], aside="duplicate_view")


def _event(place: Place, kind: Any, pointer: str, value: Any, *, aside: str | None = None) -> Event:
    at, branch = place.value(value, pointer), "" if aside is None else "views"
    return Event(kind=kind, turn="0", branch=branch, span=place.span(at), text=at.text, aside=aside)


def _roots(value: dict[str, Any]) -> list[_Node]:
    """The tree, else the first node of each try."""
    root = mapping(value.get("tree")).get("tree")
    return [_tree(root, "/tree/tree")] if _is_node(root) else _tries(value)


def _tries(value: dict[str, Any]) -> list[_Node]:
    chains = [(f"/trys/{at}/chain", mapping(each).get("chain")) for at, each in enumerate(listed(value.get("trys")))]
    return [
        _chain(nodes, pointer) for pointer, nodes in chains if isinstance(nodes, list) and any(map(_is_node, nodes))
    ]


def _is_node(value: object) -> bool:
    given = mapping(value)
    return given.get("node_type") in (THOUGHT, ACTION, CALL) and "description" in given


def _tree(value: Any, pointer: str) -> _Node:
    children = mapping(value).get("children")
    if not isinstance(children, list):
        odd = [_Node(children, f"{pointer}/children", [])] if children else []
        return _Node(value, pointer, odd)
    return _Node(value, pointer, [_tree(child, f"{pointer}/children/{at}") for at, child in enumerate(children)])


def _chain(values: list[Any], pointer: str) -> _Node:
    children: list[_Node] = []
    for at in reversed(range(len(values))):
        children = [_Node(values[at], f"{pointer}/{at}", children)]
    return children[0]


class _Path(NamedTuple):
    """What leads to a node."""

    branch: str = ""
    turn: str = "1"
    action: _Node | None = None
    """The node right above, where that names the tool of a call."""
    recent: Event | None = None
    """The last observation."""


class _Search:
    """The nodes of a search as events, in its order: a node before its children, one child with all below it by one."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.events: list[Event] = []
        self.told: set[tuple[str, str | None, str]] = set()  # kind, tool and text of each block
        self.turns, self.branches, self.tries = 1, 0, 0
        self.is_expanded = False

    def walk(self, root: _Node) -> None:
        self.is_expanded = any(type(node.get("expand_num")) is int and node.get("expand_num") for node in _all(root))
        waiting = [(root, _Path(), self.tries > 0)]
        self.tries += 1
        while waiting:
            node, path, is_branch = waiting.pop()
            path = self._node(node, self._branch(path) if is_branch else path)
            waiting += [(child, path, at > 0) for at, child in enumerate(node.children)][::-1]

    def _branch(self, path: _Path) -> _Path:
        """A branch of its own. The model was sent its history again: what it saw last is repeated there."""
        self.branches += 1
        name = f"branch{self.branches}"
        if path.recent is not None:
            self.events.append(msgspec.structs.replace(path.recent, branch=name, aside="replayed_history"))
        return path._replace(branch=name, turn=self._next_turn())

    def _next_turn(self) -> str:
        self.turns += 1
        return str(self.turns)

    def _node(self, node: _Node, path: _Path) -> _Path:
        """Adds what a node says; what leads to its children."""
        if node.get("messages"):
            self._add("control", node, path, "messages", aside="duplicate_view")
        if node.kind == CALL:
            is_root = path.action is None and not node.get("description") and not _is_answered(node)
            return path if is_root else self._call(node, path)
        if node.kind == THOUGHT:
            is_empty = not node.get("description")
            self._add("control" if is_empty else "text", node, path, aside="empty_message" if is_empty else None)
        elif node.kind != ACTION:
            self._add("control", node, path, "", aside="unknown_role")
        elif all(child.kind != CALL for child in node.children):
            self._add("call", node, path, "observation_code", text="", tool=_tool(node))
        if node.kind in (THOUGHT, ACTION) and node.get("observation"):
            self._add("result", node, path, "observation", aside="orphan_result")
        return path._replace(action=node if node.kind == ACTION else None)

    def _call(self, node: _Node, path: _Path) -> _Path:
        tool, code = _tool(path.action), node.get("observation_code")
        self._add("call", node, path, tool=tool, within=node.pointer)
        path = path._replace(action=None)
        if not _is_answered(node):
            return path
        is_error = _is_error(code)
        is_end = code in ACCEPTED or (tool == FINISH and not is_error)
        result = self._add(
            "result",
            node,
            path,
            "observation",
            tool=tool,
            within=node.pointer,
            author="environment",
            is_error=is_error,
            aside="harness_text" if is_end else None,
        )
        if code == NO_SUCH_TOOL:
            self.told |= {("call", RENAMED, self.events[-2].text), ("result", RENAMED, result.text)}
        goes_on = self.is_expanded and node.get("expand_num") == 0
        turn = path.turn if goes_on else self._next_turn()
        return path._replace(turn=turn, recent=path.recent if is_end else result)

    def _add(self, kind: Any, node: _Node, path: _Path, field: str = "description", **more: Any) -> Event:
        """Adds the event that quotes a field of a node, or the node's type where that says nothing."""
        at = Text(node.kind, f"{node.pointer}/node_type")
        text = ""
        if not field:
            at = self.place.value(node.value, node.pointer)
            text = at.text
        elif node.get(field) is not None:
            at = self.place.value(node.get(field), f"{node.pointer}/{field}")
            text = at.text
        more = {"text": text, **more}
        event = Event(kind=kind, turn=path.turn, branch=path.branch, span=self.place.span(at), **more)
        self.events.append(event)
        self.told.add((kind, event.tool, event.text))
        return event


def _all(root: _Node) -> Iterator[_Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.children


def _tool(action: _Node | None) -> str | None:
    return named(action.get("description")) if action else None


def _is_answered(node: _Node) -> bool:
    return node.get("observation") is not None or node.get("observation_code") is not None


def _is_error(code: object) -> bool | None:
    if type(code) is not int:
        return None
    return True if code in FAILED else False if code in (0, *ACCEPTED) else None


class _Lists:
    """The growing message lists of one path, each message once."""

    def __init__(self, source: Source, record: Framed, told: set[Any] | None, request: str | None) -> None:
        self.source, self.record, self.told, self.request = source, record, told, request
        self.seen: dict[tuple[int, Any], int] = {}  # point of a history and message -> the point behind it
        self.nudges: set[tuple[int, Any]] = set()
        self.main = "" if told is None else "list0"
        self.ends = {0: self.main}  # points where a branch may go on

    def events(self, lists: Any) -> tuple[list[Event], list[Event]]:
        """What the first list shows before anything else, and the rest."""
        if lists and not isinstance(lists, list):
            return [], [_event(self.source.place(self.record), "control", LISTS, lists, aside="unknown_role")]
        first: list[Event] = []
        later: list[Event] = []
        for number, messages in enumerate(lists or ()):
            for event in self._list(number, messages):
                is_first = event.kind in ("task", "context") and event.aside is None and event.branch == self.main
                (first if is_first else later).append(event)
        return [msgspec.structs.replace(event, branch="") for event in first], later

    def _list(self, number: int, messages: Any) -> Iterator[Event]:
        pointer, branch = f"{LISTS}/{number}", f"list{number}"
        if not isinstance(messages, list):
            yield _event(self.source.place(self.record), "control", pointer, messages, aside="unknown_role")
            return
        said: list[list[Event]] = [[] for _ in messages]
        for event in _Messages(self.source, _Chat(self.record, pointer, messages), branch).events(0):
            said[int(event.span.pointers[0][len(pointer) + 1 :].split("/")[0])].append(event)
        point, is_asked = 0, False
        for message, events in zip(messages, said, strict=True):
            key = (point, tuple((event.kind, event.tool, event.call_id, event.text) for event in events))
            if _role(message) == "user":
                if is_asked or message.get("valid") is False:
                    aside = "replayed_history" if key in self.nudges else "harness_text"
                    self.nudges.add(key)
                    yield from (msgspec.structs.replace(event, kind="control", aside=aside) for event in events)
                    continue
                is_asked, events = True, [msgspec.structs.replace(event, kind="task") for event in events]
            if key in self.seen:
                yield from (msgspec.structs.replace(event, aside="replayed_history") for event in events)
            else:
                self.seen[key] = len(self.seen) + 1
                self.ends[self.seen[key]] = self.ends.pop(point, branch)
                yield from (self._once(event, self.ends[self.seen[key]]) for event in events)
            point = self.seen[key]

    def _once(self, event: Event, branch: str) -> Event:
        """A message where it first stands: a step of its own, or the view of one that the search holds."""
        is_view = self.told is not None and (event.kind, event.tool, event.text) in self.told
        kind, aside = event.kind, event.aside or ("duplicate_view" if is_view else None)
        if event.kind == "task" and self.request is not None:
            kind, aside = ("control", "duplicate_view") if self.request in event.text else ("context", aside)
        return msgspec.structs.replace(event, kind=kind, branch=branch, aside=aside)


def _sniff(value: object) -> str | None:
    given = mapping(value)
    lists = listed(mapping(given.get("answer_generation")).get("train_messages"))
    if _roots(given):
        return "a tree or tries of nodes with node_type and description"
    is_grown = any(_role(message) for messages in lists for message in listed(messages))
    return "answer_generation with lists of train_messages" if is_grown else None


def _read(source: Source) -> Imported:
    """Every search of a source, as traces."""
    return read_each(source, _trace)


FORMATS = (Format(NAME, _sniff, lambda value: _sniff(value) is not None, _read),)
