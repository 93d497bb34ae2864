"""From what a trace store observed to the runs that `telemetry` rebuilds a conversation of; for Langfuse and LangSmith alike.

- A model call's messages are history and answer: what its output repeats of the history, or puts before its last answer, is
  history.
- A plain text that a model call inside a structured one holds is a transcript of that one, and no second call.
- Where no model call says what came out, the fullest state of a chain or an agent is the conversation.
- A result that names a call which the history before it leaves out (it could not be read in full) stands for itself, as a
  tool's run. An input that begins with results is one that `telemetry` knows.
  What an input then puts into the assistant's mouth together with a tool's whole output was written by a scaffold.
- Traces of one session are one conversation where the later one says again what the earlier one said.

Not covered: how a file is cut into traces, and what an observation means. That is its format's.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from experiential_lab.evidence.importers.dialects import Block, Message, Node, block_of, json_in
from experiential_lab.evidence.importers.format import Source, context_of
from experiential_lab.evidence.importers.langfuse_payloads import Payload, one_spelling, opened, payload_of, said_by
from experiential_lab.evidence.importers.telemetry import Run, cost_of, events_of, in_order, usage_of, usage_repeated_in
from experiential_lab.evidence.trace import Event, Trace
from experiential_lab.records import short_id

SCHEMA = ("parameters", "description", "input_schema", "inputSchema")  # what a tool's definition says of it
RETOLD = 24  # code points of an output that a text cannot hold by chance


class Observed(NamedTuple):
    """One observation or run of a trace store, before it is known what it is to its neighbours."""

    trace_id: str
    run: Run
    """With everything but its messages."""
    inputs: Payload = Payload()
    outputs: Payload = Payload()
    sides: tuple[Block, ...] = ()
    """Input and output, each as one text."""
    session: str | None = None
    tools: tuple[str, ...] = ()
    """Names of the tools that it declares."""
    is_state: bool = False
    """It shows a tool's call and output, and so may its neighbours, again."""
    is_root: bool = False
    """What it was asked is what the agent was asked."""

    @property
    def is_chat(self) -> bool:
        return self.inputs.is_chat or self.outputs.is_chat

    @property
    def is_model(self) -> bool:
        return self.run.kind == "model"


class Conversation(NamedTuple):
    """Traces that are one conversation."""

    traces: tuple[str, ...]
    observed: list[Observed]

    def trace(self, source: Source, name: str, *, title: str, keys: Iterable[str], complete: bool | None) -> Trace:
        """The conversation as a trace; its lineage keys are its traces, its sessions, and `keys`."""
        runs = runs_of(self.observed)
        events = _after_their_calls(events_of(runs))
        sessions = {each.session for each in self.observed if each.session} | set(self.traces)
        tools = {tool for each in self.observed for tool in each.tools}
        return Trace(
            trace_id=short_id(name, self.traces[0]),
            source=source.digest,
            format=name,
            name=title,
            keys=tuple(sorted({f"session:{each}" for each in sessions} | set(keys))),
            task=next((event.text for event in events if event.kind == "task"), None),
            context=context_of(events),
            declared_tools=len(tools) or None,
            complete=complete,
            usage=usage_of(runs),
            cost_nusd=cost_of(runs),
            usage_repeated=usage_repeated_in(runs),
            events=events,
        )


def conversations(observed: Sequence[Observed]) -> list[Conversation]:
    """The conversations of a source, in the order in which they stand there."""
    traces: dict[str, list[Observed]] = {}
    for each in observed:
        traces.setdefault(each.trace_id, []).append(each)
    sessions: dict[str, list[str]] = {}
    for trace_id, inside in traces.items():
        session = next((each.session for each in inside if each.session), None)
        if session is not None:
            sessions.setdefault(session, []).append(trace_id)
    first = {trace_id: trace_id for trace_id in traces}
    for members in sessions.values():
        first |= _joined({trace_id: traces[trace_id] for trace_id in members})
    groups: dict[str, list[str]] = {}
    for trace_id in traces:
        groups.setdefault(first[trace_id], []).append(trace_id)
    return [
        Conversation((head, *sorted(set(members) - {head})), [each for one in members for each in traces[one]])
        for head, members in groups.items()
    ]


def _joined(traces: dict[str, list[Observed]]) -> dict[str, str]:
    """{trace: the first trace of its conversation}, of the traces of one session."""
    start = {
        key: min((each.run.start for each in some if each.run.start is not None), default=0)
        for key, some in traces.items()
    }
    said: dict[tuple[str | None, str], str] = {}
    first = {}
    for trace_id in sorted(traces, key=lambda key: (start[key], key)):
        models = [each for each in traces[trace_id] if each.is_model]
        again = [said[key] for each in models for key in _spoken(each.inputs.messages) if key in said]
        first[trace_id] = again[-1] if again else trace_id
        for each in models:
            said |= dict.fromkeys(_spoken(each.outputs.messages), first[trace_id])
    return first


def _spoken(messages: Iterable[Message]) -> list[tuple[str | None, str]]:
    """What the assistant says in messages: its texts and its calls."""
    found = []
    for message in messages:
        for block in message.blocks:
            if block.kind == "call":
                found.append((block.tool, block.call_id or one_spelling(block.text)))
            elif block.kind == "text" and message.role == "assistant" and block.text.strip():
                found.append((None, block.text.strip()))
    return found


def runs_of(observed: Sequence[Observed]) -> list[Run]:
    """The runs of one conversation, each block of each observation in one of them."""
    again = _shown_again(observed)
    requests = {text for each in observed if each.is_root for text in _asked(each.inputs.messages)}
    is_mute = not any(each.is_model and each.outputs.messages for each in observed)
    shown = [each.run.result.text for each in observed if each.run.result and is_mute]
    retold = [spelled for text in shown for spelled in _spellings(text)]
    structured = {each.run.run_id for each in observed if each.is_model and each.is_chat}
    parents = {each.run.run_id: each.run.parent_id for each in observed}
    by_id = {each.run.run_id: each for each in observed}
    promoted = _promoted(observed) if is_mute else None
    found = []
    for each in observed:
        run = each.run
        if promoted is each or (each.is_model and (each.is_chat or not _is_under(run, structured, parents))):
            used = (run.usage, run.cost_nusd) if each.is_model else (None, None)  # what a state counts is not its own
            run = _model(each, retold, requests)._replace(kind="model", usage=used[0], cost_nusd=used[1])
        elif run.kind != "tool" or run.run_id in again:
            run = _set_aside(each)
        else:
            found += _other_sides(each)
        found.append(run)
    ids: dict[str | None, set[str | None]] = {}
    for block in (b for run in found for message in run.outputs for b in message.blocks if b.kind == "call"):
        ids.setdefault(block.tool, set()).add(block.call_id)
    return [_undeclared(run, ids, by_id) for run in _with_loose_results(found)]


def _other_sides(each: Observed) -> list[Run]:
    """What a tool's run holds beside its call and its result, as a run of its own that counts nowhere."""
    used = [(*block.place.layers, block.at.pointer) for block in (each.run.call, each.run.result) if block]
    sides = tuple(side for side in each.sides if not any(path[0].startswith(side.at.pointer) for path in used))
    run = each.run._replace(
        run_id=f"{each.run.run_id}#sides", kind="other", repeats=True, notes=sides, call=None, result=None
    )
    return [run._replace(usage=None, cost_nusd=None)] if sides else []


def _set_aside(each: Observed) -> Run:
    return each.run._replace(kind="model" if each.is_model else "other", notes=each.sides, call=None, result=None)


def _is_under(run: Run, structured: set[str], parents: dict[str, str | None]) -> bool:
    """Whether a model call stands inside one that has messages with roles."""
    at, seen = run.parent_id, set[str]()
    while at is not None and at not in seen:
        if at in structured:
            return True
        seen.add(at)
        at = parents.get(at)
    return False


def _undeclared(run: Run, ids: dict[str | None, set[str | None]], observed: dict[str, Observed]) -> Run:
    """A tool's run whose id no call carries: of calls that declare none it is one, beside others it is nobody's."""
    same = ids.get(run.tool)
    if run.kind != "tool" or run.call_id is None or not same or any(run.call_id in each for each in ids.values()):
        return run
    return run._replace(call_id=None) if None in same else _set_aside(observed[run.run_id])


def _shown_again(observed: Sequence[Observed]) -> set[str]:
    """The states that show again what an earlier state showed: same tool, same arguments, same output."""
    seen, again = set[tuple[str | None, str, str]](), set[str]()
    by_id = {each.run.run_id: each for each in observed}
    for run in in_order([each.run for each in observed]):
        if by_id[run.run_id].is_state and run.call and run.result:
            key = run.tool, one_spelling(run.call.text), run.result.text
            if key in seen:
                again.add(run.run_id)
            seen.add(key)
    return again


def _promoted(observed: Sequence[Observed]) -> Observed | None:
    """The observation that holds the conversation, where no model call says what came out."""
    states = [each for each in observed if not each.is_model and each.run.kind != "tool" and each.outputs.is_chat]
    return max(states, key=lambda each: (len(each.outputs.blocks), not each.is_root), default=None)


def _asked(messages: Iterable[Message]) -> list[str]:
    """What the user says in messages."""
    return [
        b.text.strip() for message in messages if message.role == "user" for b in message.blocks if b.kind == "text"
    ]


def _model(each: Observed, retold: list[str], requests: set[str]) -> Run:
    """A run with its messages: history and answer, and what is neither."""
    inputs, outputs = _split(each)
    copies = [message for message in inputs if message.role == "assistant" and _retells(message, retold)]
    if inputs and outputs and inputs[-1].role == "assistant" and _spoken(inputs[-1:]) == _spoken(outputs):
        copies.append(inputs[-1])  # a state that holds its answer already
    inputs = [message for message in inputs if not any(message is other for other in copies)]
    copies += _missing((*each.inputs.messages, *each.outputs.messages), (*inputs, *outputs, *copies))
    return each.run._replace(
        inputs=tuple(_with_request(inputs, requests)),
        outputs=tuple(_as_one(outputs)),
        copies=(*each.run.copies, *(message._replace(role="") for message in copies)),
    )


def _split(each: Observed) -> tuple[list[Message], list[Message]]:
    """History and answer: an output may tell the system's text, a tool's results, or the whole conversation once more."""
    inputs, outputs = list(each.inputs.messages), list(each.outputs.messages)
    known = {block.text for message in inputs if message.role == "system" for block in message.blocks}
    system = [message for message in outputs if message.role == "system"]
    inputs = [m for m in system if not known.issuperset(block.text for block in m.blocks)] + inputs
    outputs = [message for message in outputs if message.role != "system"]
    last = len(outputs)
    while last and outputs[last - 1].role == "assistant":
        last -= 1
    history, answer = outputs[:last], outputs[last:]
    if any(message.role == "user" for message in history):
        inputs = [message for message in inputs if message.role == "system"]
    return [*inputs, *history], answer


def _missing(messages: Iterable[Message], kept: Iterable[Message]) -> list[Message]:
    held = {id(message) for message in kept}
    return [message for message in messages if id(message) not in held]


def _as_one(answer: list[Message]) -> list[Message]:
    """One answer is one message, however many items it has; answers that end each for itself are several."""
    if len(answer) < 2 or all(message.is_end for message in answer):
        return answer
    return [Message("assistant", tuple(block for message in answer for block in message.blocks))]


def _with_request(inputs: list[Message], requests: set[str]) -> list[Message]:
    """The same messages; what some frameworks say to the agent in the user's name before the request is context."""
    asked = next((at for at, message in enumerate(inputs) if requests.intersection(_asked([message]))), 0)
    before = inputs[:asked]
    if any(message.role not in ("user", "system") for message in before):
        return inputs
    return [*(message._replace(role="system") for message in before), *inputs[asked:]]


def _spellings(text: str) -> list[str]:
    """How a scaffold may write an output into a text: as it is, or as Python writes JSON."""
    value = json_in(text) if text[:1] in ("{", "[") else None
    found = [text] if value is None else [text, json.dumps(value, ensure_ascii=False), json.dumps(value)]
    return [each for each in found if len(each) >= RETOLD]


def _retells(message: Message, results: list[str]) -> bool:
    texts = [block.text for block in message.blocks if block.kind == "text"]
    return any(result in text for text in texts for result in results)


def _with_loose_results(runs: list[Run]) -> list[Run]:
    """The same runs; results that name a call which their own history leaves out, but another call made, are runs."""
    made = {b.call_id for run in runs for message in run.outputs for b in message.blocks if b.kind == "call"} - {None}
    found = []
    for run in runs:
        if _begins_with_results(run):
            found.append(run)
            continue
        named, kept = set[str](), list[Message]()
        loose: list[tuple[Block, int]] = []
        for message in run.inputs:
            named |= {block.call_id for block in message.blocks if block.kind == "call" and block.call_id}
            is_stray = [b.kind == "result" and b.call_id in made and b.call_id not in named for b in message.blocks]
            stray = [block for block, is_one in zip(message.blocks, is_stray, strict=True) if is_one]
            loose += [(block, at) for at, block in enumerate(stray, len(loose))]
            blocks = tuple(block for block, is_one in zip(message.blocks, is_stray, strict=True) if not is_one)
            kept += [message._replace(blocks=blocks)] if blocks or not stray else []
        found += [_loose(run, block, at) for block, at in loose]
        found.append(run._replace(inputs=tuple(kept)) if loose else run)
    return found


def _begins_with_results(run: Run) -> bool:
    first = next((message for message in run.inputs if message.role != "system"), None)
    return first is not None and any(block.kind == "result" for block in first.blocks[:1])


def _loose(run: Run, block: Block, at: int) -> Run:
    return Run(
        run_id=f"{run.run_id}#{at}",
        parent_id=run.parent_id,
        kind="tool",
        label=block,
        result=block,
        tool=block.tool,
        call_id=block.call_id,
        is_error=block.is_error,
        rank=run.rank,
        start=run.start,
        end=run.start,
        started=run.started,
        ended=run.started,
    )


def _after_their_calls(events: Sequence[Event]) -> tuple[Event, ...]:
    """The same events; a result that a run put before the call which it names stands after it."""
    calls = {(event.branch, event.call_id) for event in events if _counts(event, "call")}
    found: list[Event] = []
    seen, waiting = set[tuple[str, str | None]](), dict[tuple[str, str | None], list[Event]]()
    for event in events:
        key = event.branch, event.call_id
        if _counts(event, "result") and event.call_id and key in calls and key not in seen:
            waiting.setdefault(key, []).append(event)
            continue
        found.append(event)
        if _counts(event, "call"):
            seen.add(key)
            found += waiting.pop(key, [])
    return tuple(found)


def _counts(event: Event, kind: str) -> bool:
    return event.kind == kind and event.aside is None


# What observations of both stores hold


def label_of(node: Node) -> Block:
    """What stands for an observation that says nothing else: its name, else all of it."""
    name = node.get("name")
    return block_of(name if isinstance(name.value, str) else node)


def result_in(output: Node) -> Block | None:
    """The result in an output that is nothing but one tool message which names its call."""
    inner = opened(output)
    if not isinstance(inner.value, dict) or "messages" in inner.value:
        return None
    blocks = payload_of(inner, "assistant").blocks
    is_one = len(blocks) == 1 and blocks[0].kind == "result" and blocks[0].call_id is not None
    return blocks[0] if is_one else None


def arguments_in(asked: Node) -> Block | None:
    """The arguments of a tool's run, as its call would spell them; None for none, and for a Python representation."""
    said = said_by(asked)
    if asked.value is None or (isinstance(said.value, str) and not isinstance(json_in(said.value), dict | list)):
        return None
    return block_of(said, "call")


def tool_names(value: Any, depth: int = 0) -> Iterator[str]:
    """The names in a list of tool schemas of any vendor."""
    if depth > 4:
        return
    if isinstance(value, str):
        yield from tool_names(json_in(value), depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from tool_names(each, depth + 1)
    elif isinstance(value, dict):
        inner = [value[key] for key in ("function", "function_declarations", "functionDeclarations") if key in value]
        if inner:
            yield from (name for each in inner for name in tool_names(each, depth + 1))
        elif isinstance(value.get("name"), str) and (depth > 1 or any(key in value for key in SCHEMA)):
            yield value["name"]
