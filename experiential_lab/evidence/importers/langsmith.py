"""LangSmith runs: exported runs, `{post, patch}` ingest bodies, and recorded streams of Anthropic's managed agents.

- Unit: one trace of runs (`trace_id`); a later trace of the same thread that goes on with what an earlier one said is the same
  conversation. `session_name` is a project, never a session.
- What was posted and what was patched of one run is one run, found by its id or its `dotted_order`; the later value counts, and
  what it replaces is a `duplicate_view`. Runs are ordered by `dotted_order`, never by their place or their start.
- `llm` runs are model calls, `tool` runs are tool runs; chains, prompts and parsers repeat them and are set aside. A tool run's
  output that is a tool message names its call. Its input may be a Python representation: that is kept, and compared to nothing.
- Usage and `total_cost` are those of llm runs without llm runs inside; `error` marks a tool's result.
- Recorded streams of a managed agent are read by `langsmith_managed`.

Not covered: feedback, attachments, and the token events of a stream (copies of its output).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.dialects import Node, block_of
from experiential_lab.evidence.importers.format import Format, Source, declared_id
from experiential_lab.evidence.importers.langfuse_payloads import opened, payload_of, said_by
from experiential_lab.evidence.importers.langfuse_runs import (
    Conversation,
    Observed,
    arguments_in,
    conversations,
    label_of,
    result_in,
    tool_names,
)
from experiential_lab.evidence.importers.langsmith_managed import is_managed, managed_traces
from experiential_lab.evidence.importers.span_records import moment
from experiential_lab.evidence.importers.telemetry import Run
from experiential_lab.evidence.importers.usage import Usage, in_nano_dollars, usage_in
from experiential_lab.evidence.trace import Imported, Trace

NAME = "langsmith_runs"
RUN_TYPES = ("llm", "chain", "tool", "retriever", "embedding", "prompt", "parser")
THREADS = ("thread_id", "session_id", "conversation_id")
MILLION = 1_000_000  # nanoseconds in a millisecond, as JavaScript counts


def _read(source: Source) -> Imported:
    """Every conversation of a source, as traces."""
    good, rejected = source.readable()
    lines = [record for record in good if is_managed(record.value)]
    written: dict[str, list[_Written]] = {}
    used = {(record.member, record.number) for record in lines}
    for record in good:
        for each in _runs_in(record, Node(source.place(record), record.value)):
            written.setdefault(each.run_id, []).append(each)
    runs = [_Whole(_without_doubles(parts)) for parts in written.values()]
    used |= {(part.record.member, part.record.number) for run in runs for part in run.parts}
    known = {(part.record.member, part.record.number) for parts in written.values() for part in parts}
    for record in good:
        place = record.member, record.number
        if place not in used:
            rejected.append(source.rejected(record, "duplicate_span" if place in known else "unknown_shape"))
    run_ids = set(written)
    observed = [each for run in runs for each in run.observed(run_ids)]
    traces = [_trace(source, each, runs) for each in conversations(observed)]
    traces += managed_traces(source, NAME, lines)
    rejected.sort(key=lambda each: each.record)
    return Imported(traces=tuple(traces), records=len(source.frames.records), rejected=tuple(rejected))


# Runs


class _Written(NamedTuple):
    """A run, or a part of one, where it was written."""

    record: Framed
    node: Node
    is_patch: bool

    @property
    def run_id(self) -> str:
        """Its id, which a patch may carry in its order alone."""
        value = self.node.value
        order = value.get("dotted_order")
        last = order.rsplit(".", 1)[-1].partition("Z")[2] if isinstance(order, str) else ""
        return declared_id(value.get("id")) or last or f"{self.record.offset}{self.node.pointer}"


def _runs_in(record: Framed, node: Node, *, is_patch: bool = False) -> Iterator[_Written]:
    value = node.value
    if not isinstance(value, dict):
        return
    if is_patch or _is_run(value):
        yield _Written(record, node, is_patch)
        for child in node.get("child_runs").each():
            yield from _runs_in(record, child)
        return
    for key in ("post", "patch", "runs"):
        for each in node.get(key).each():
            yield from _runs_in(record, each, is_patch=key == "patch")


def _is_run(value: Any) -> bool:
    return isinstance(value, dict) and value.get("run_type") in RUN_TYPES and ("id" in value or "trace_id" in value)


def _without_doubles(parts: list[_Written]) -> list[_Written]:
    """What was posted, then what was patched; of several whole copies of a run only the last that holds most."""
    whole = [each for each in parts if not each.is_patch]
    whole.sort(key=lambda each: (bool(each.node.value.get("outputs")), bool(each.node.value.get("end_time"))))
    return whole[-1:] + [each for each in parts if each.is_patch]


class _Whole:
    """A run, from all its parts."""

    def __init__(self, parts: list[_Written]) -> None:
        self.parts = parts

    def get(self, *path: str) -> Node:
        """The latest value at a path that says something."""
        for part in reversed(self.parts):
            found: Node = part.node
            for key in path:
                found = found.get(key)
            if found.value not in (None, "", {}, []):
                return found
        return Node(self.parts[0].node.place, None)

    def observed(self, known: set[str]) -> list[Observed]:
        """The run, and what was written of it once more."""
        inputs, outputs, parent = self.get("inputs"), self.get("outputs"), declared_id(self.get("parent_run_id").value)
        order = self.get("dotted_order").value
        (start, started), (end, ended) = _time(self.get("start_time")), _time(self.get("end_time"))
        run = Run(
            run_id=self.parts[0].run_id,
            parent_id=parent,
            kind="other",
            label=label_of(self.parts[0].node),
            rank=order if isinstance(order, str) else "",
            start=start,
            end=end,
            started=started,
            ended=ended,
            usage=self._usage(),
            cost_nusd=in_nano_dollars(self.get("total_cost").value),
        )
        found = Observed(
            trace_id=declared_id(self.get("trace_id").value) or parent or run.run_id,
            run=run,
            inputs=payload_of(inputs, "user"),
            outputs=payload_of(outputs, "assistant"),
            sides=tuple(block_of(side) for side in (inputs, outputs) if side.value is not None),
            session=next((each for key in THREADS if (each := self._metadata(key))), None),
            is_root=parent is None or parent not in known,
        )
        kind = self.get("run_type").value
        found = self._model(found) if kind == "llm" else self._tool(found) if kind == "tool" else found
        return [found, *self._again(found)]

    def _metadata(self, key: str) -> str | None:
        return declared_id(self.get("extra", "metadata", key).value)

    def _again(self, found: Observed) -> list[Observed]:
        """What the parts hold that a later part replaced; a part that says nothing says its name."""
        held = {(block.place.offset, block.at.pointer) for block in found.sides}
        again = []
        for part in self.parts:
            sides = [
                side for side in (part.node.get("inputs"), part.node.get("outputs")) if side.value not in (None, {})
            ]
            more = [side for side in sides if (side.place.offset, side.pointer) not in held]
            again += (
                [block_of(side) for side in more] if sides else [label_of(part.node)] if len(self.parts) > 1 else []
            )
        run = found.run._replace(run_id=f"{found.run.run_id}#again", kind="other", repeats=True, call=None, result=None)
        run = run._replace(notes=tuple(again), usage=None, cost_nusd=None)
        return [Observed(found.trace_id, run, sides=tuple(again), session=found.session)] if again else []

    def _model(self, found: Observed) -> Observed:
        run = found.run._replace(kind="model")
        failed = isinstance(self.get("error").value, str) and not found.outputs.is_chat
        held = (self.get("inputs", "tools"), self.get("extra", "invocation_params", "tools"))
        tools = tuple(name for each in held for name in tool_names(opened(each).value))
        return found._replace(
            run=run, outputs=found.outputs._replace(messages=()) if failed else found.outputs, tools=tools
        )

    def _usage(self) -> Usage | None:
        """Tokens, wherever this client wrote them."""
        message = self.get("outputs", "generations")
        while isinstance(message.value, list) and message.value:
            message = message.each()[0]
        places = (
            self.get("outputs", "usage_metadata"),
            self.get("extra", "metadata", "usage_metadata"),
            message.get("message").get("usage_metadata", "kwargs.usage_metadata"),
            self.get("outputs", "llm_output", "token_usage"),
            self.get("outputs", "usage"),
        )
        for each in places:
            found = usage_in(each.value)
            if found:
                return found
        return usage_in({key: self.get(key).value for key in ("completion_tokens", "prompt_tokens", "total_tokens")})

    def _tool(self, found: Observed) -> Observed:
        asked, gave = self.get("inputs"), self.get("outputs")
        asked = asked.get("input") if isinstance(asked.value, dict) and set(asked.value) == {"input"} else asked
        gave = gave.get("output") if isinstance(gave.value, dict) and set(gave.value) == {"output"} else gave
        error, name = self.get("error"), self.get("name").string()
        message = result_in(gave)
        gave = error if gave.value is None and error.string() else gave
        result = message or (block_of(said_by(gave), "result") if gave.value is not None else None)
        named = (
            self.get("inputs", "tool_call_id"),
            self.get("extra", "tool_call_id"),
            self.get("extra", "metadata", "tool_call_id"),
        )
        run = found.run._replace(
            kind="tool",
            call=arguments_in(asked),
            result=result,
            tool=name or (message.tool if message else None),
            call_id=message.call_id
            if message
            else next((each for at in named if (each := declared_id(at.value))), None),
            is_error=True if error.string() else message.is_error if message else None,
        )
        return found._replace(run=run)


def _time(node: Node) -> tuple[int | None, str | None]:
    value = node.value
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
        return moment(Node(node.place, int(value * MILLION)), Node(node.place, None))
    return moment(Node(node.place, None), node)


def _trace(source: Source, conversation: Conversation, runs: list[_Whole]) -> Trace:
    mine = {each.run.run_id for each in conversation.observed if each.is_root}
    roots = [run for run in runs if run.parts[0].run_id in mine]
    names = [name for run in roots if (name := run.get("name").string())]
    examples = {declared_id(run.get("reference_example_id").value) for run in roots} - {None}
    return conversation.trace(
        source,
        NAME,
        title=(names or [f"trace {conversation.traces[0]}"])[0][:80],
        keys=[f"task:{source.digest[7:23]}:{example}" for example in sorted(map(str, examples))],
        complete=True if roots and all(run.get("end_time").value is not None for run in roots) else None,
    )


def _sniff(value: object) -> str | None:
    if is_managed(value):
        return "lines of [method, payload] of a managed agent"
    if not isinstance(value, dict):
        return None
    if _is_run(value) and ("dotted_order" in value or "trace_id" in value):
        return "runs with run_type and trace_id"
    for key in ("post", "patch", "runs"):
        inside = value.get(key)
        first = inside[0] if isinstance(inside, list) and inside else None
        if isinstance(first, dict) and "dotted_order" in first and "trace_id" in first:
            return f"runs under {key}"
    return None


def _fits(value: object) -> bool:
    if is_managed(value) or _is_run(value):
        return True
    return isinstance(value, dict) and any(
        isinstance(value.get(key), list) and value[key] for key in ("post", "patch", "runs")
    )


FORMATS = (Format(NAME, _sniff, _fits, _read),)
