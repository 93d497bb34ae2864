"""Files, messages and events for the tests of evidence: read as an import reads them, made by hand, drawn by Hypothesis."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import choose
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.spans import open_span, unpacked
from experiential_lab.evidence.trace import (
    EVENT_REASONS,
    PAIRINGS,
    RECORD_REASONS,
    STEP_REASONS,
    Imported,
    Trace,
    Transition,
)
from experiential_lab.evidence.transitions import Ledger, ledger_of
from experiential_lab.records import digest_of

DATA = Path(__file__).parent / "data"
FIXTURES = sorted(path for path in DATA.iterdir() if path.suffix in (".json", ".jsonl"))


class Read(NamedTuple):
    """One file as an import reads it."""

    data: bytes
    format: str
    imported: Imported
    ledgers: list[Ledger]

    @property
    def transitions(self) -> list[Transition]:
        return [each for ledger in self.ledgers for each in ledger.transitions]

    @property
    def outcomes(self) -> list[str]:
        return [row.outcome for ledger in self.ledgers for row in ledger.rows]

    @property
    def aside(self) -> dict[str, int]:
        return dict(Counter(row.reason for ledger in self.ledgers for row in ledger.set_aside))

    @property
    def rejected(self) -> list[tuple[int, str]]:
        return [(each.record, each.reason) for each in self.imported.rejected]

    @property
    def pairs(self) -> list[tuple[str, str, str]]:
        """(action, pairing, observation) of each transition; an action is `tool arguments`, or the message."""
        return [(said(each), each.pairing, each.observation) for each in self.transitions]


def said(each: Transition) -> str:
    return f"{each.action.tool} {each.action.arguments}" if each.action.tool else each.action.text or ""


def read(data: bytes, declared: str | None = None) -> Read:
    data = unpacked(data)
    frames = frame(data)
    format, _ = choose(frames, declared)
    imported = format.read(Source(digest_of(data), "it", frames))
    return Read(data, format.name, imported, [ledger_of(trace) for trace in imported.traces])


def lines(*values: object) -> bytes:
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)


def check_sums(found: Read) -> None:
    """Law 5: every record is used or rejected, every event used or set aside, and every reason is on its list."""
    used = {
        (event.span.member, event.span.offset, event.span.size)
        for trace in found.imported.traces
        for event in trace.events
    }
    rejected = [each.reason for each in found.imported.rejected]
    assert set(rejected) <= set(RECORD_REASONS)
    assert len({(each.member, each.record) for each in found.imported.rejected}) == len(rejected)
    assert len(used) + len(rejected) == found.imported.records
    for trace, ledger in zip(found.imported.traces, found.ledgers, strict=True):
        check_ledger(trace, ledger)


def check_ledger(trace: Trace, ledger: Ledger) -> None:
    """Laws 4 and 5 for one trace."""
    assert [row.step for row in ledger.rows] == list(range(len(ledger.rows)))
    paired = [row for row in ledger.rows if row.transition_id is not None]
    assert [row.transition_id for row in paired] == [each.transition_id for each in ledger.transitions]
    assert {row.outcome for row in paired} <= set(PAIRINGS)
    assert {row.outcome for row in ledger.rows if row.transition_id is None} <= set(STEP_REASONS)
    assert {row.reason for row in ledger.set_aside} <= set(EVENT_REASONS)
    assert sum(ledger.used.values()) + len(ledger.set_aside) == len(trace.events)
    assert ledger.used["observation"] == len(ledger.transitions)


def check_spans(found: Read) -> int:
    """The number of spans of events; each opens to its event's text, or to what an event without a text quotes."""
    count = 0
    for trace in found.imported.traces:
        for event in trace.events:
            data = unpacked(found.data, event.span.member)
            assert open_span(data, event.span) == event.text or (not event.text and event.span.end)
            count += 1
    return count


# Chat messages


def asks(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def says(content: object, *calls: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content} | ({"tool_calls": list(calls)} if calls else {})


def call(call_id: object, name: object, arguments: object = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def gives(call_id: object, content: object, **more: object) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def chat(*messages: object, **more: object) -> dict[str, Any]:
    return {"messages": list(messages), **more}


# Claude Code lines


def line(uuid: object, parent: object, kind: str, message: object = None, **more: object) -> dict[str, Any]:
    value = {"uuid": uuid, "parentUuid": parent, "sessionId": "s", "isSidechain": False, "type": kind}
    return value | ({} if message is None else {"message": message}) | more


def typed(uuid: object, parent: object, content: object, **more: object) -> dict[str, Any]:
    return line(uuid, parent, "user", {"role": "user", "content": content}, **more)


def spoken(uuid: object, parent: object, message_id: object, *blocks: object, **more: object) -> dict[str, Any]:
    message = {"id": message_id, "role": "assistant", "model": "m", "content": list(blocks)}
    return line(uuid, parent, "assistant", message, **more)


def text(said: object) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(call_id: object, name: object, arguments: object = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: object, content: object, **more: object) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


# Drawn: what a file of anybody may hold

ids = st.sampled_from(["a", "b", "c", "", None, 1, True, ["a"]])
names = st.sampled_from(["f", "g", "", None, 7])
texts = st.sampled_from(["", " ", "yes", "no", "why\u2028so\u0085", "###STOP###", "bye ###STOP###", '{"a": 1}', "é😀"])
odd = st.sampled_from([None, 0, False, [], {}, 3.5, [1], ["x"], {"x": "y"}, [None], [{"type": "image"}], float("nan")])
contents = texts | odd | st.lists(st.builds(text, texts) | odd, max_size=3)
arguments = texts | odd | st.just({"z": 1, "a": [2]})
calls = st.builds(call, ids, names, arguments) | odd
messages = st.one_of(
    st.builds(asks, contents),
    st.builds(lambda said, made: {"role": "assistant", "content": said, "tool_calls": made}, contents, st.lists(calls)),
    st.builds(lambda said, made: {"role": "assistant", "content": said, "tool_calls": made}, contents, odd),
    st.builds(
        lambda name, given: {"role": "assistant", "function_call": {"name": name, "arguments": given}}, names, arguments
    ),
    st.builds(lambda said, made: {"role": "assistant", "content": said, "function_call": made}, contents, odd),
    st.builds(gives, ids, contents, name=names),
    st.builds(
        lambda role, said: {"role": role, "content": said},
        st.sampled_from(["system", "developer", "function", "x"]),
        contents,
    ),
    odd,
)
chats = st.builds(
    lambda said, conversation, more: {"messages": said, "conversation": conversation, "metadata": more},
    st.lists(messages, max_size=8),
    ids,
    odd | st.fixed_dictionaries({"task_id": ids, "session_id": ids, "statement": texts}),
)
runs = st.builds(
    lambda said, task, trial: {"task_id": task, "trial": trial, "info": {"task": {"instruction": "x"}}, "traj": said},
    st.lists(messages, max_size=8),
    ids,
    ids,
)
uuids = st.sampled_from(["u0", "u1", "u2", "u3", "u4", "u5", None, "", 3])
told = st.sampled_from(
    [
        "yes",
        "<command-name>/clear</command-name>",
        "<system-reminder>x</system-reminder>",
        "[Request interrupted by user]",
        "(no content)",
    ]
)
claude_blocks = st.one_of(
    st.builds(text, told),
    st.builds(use, ids, names, arguments),
    st.builds(result, ids, contents | told, is_error=st.sampled_from([True, False, None, "x"])),
    st.builds(lambda said: {"type": "thinking", "thinking": said}, texts),
    odd,
)
claude_messages = odd | st.fixed_dictionaries(
    {"content": contents | told | st.lists(claude_blocks, max_size=3)},
    optional={"id": ids, "model": st.sampled_from(["m", "<synthetic>"]), "usage": odd | st.just({"output_tokens": 2})},
)
claude_lines = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "system", "summary"]), "uuid": uuids, "parentUuid": uuids},
    optional={
        "sessionId": st.sampled_from(["s", "t", "", None, 5]),
        "message": claude_messages,
        "isSidechain": st.booleans(),
        "agentId": ids,
        "isMeta": st.booleans(),
        "isCompactSummary": st.booleans(),
        "isApiErrorMessage": st.booleans(),
        "subtype": st.sampled_from(["compact_boundary", "other"]),
        "toolUseResult": st.sampled_from(["User rejected tool use", {}, None]),
    },
)
damage = st.sampled_from(
    [b"", b"\n", b"{", b"\xff", b"\0", b"12", b'"x"', b"null", b'{"a":"\\ud800"}', b"[" * 500 + b"]" * 500, b"]", b","]
)


def mutated(rng: random.Random, value: Any, odd: list[Any]) -> Any:
    """The value with one thing in it changed for an odd one, or dropped."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.25:
            return {name: each for name, each in value.items() if name != key}
        return value | {key: mutated(rng, value[key], odd)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], mutated(rng, value[at], odd), *value[at + 1 :]]
    return rng.choice(odd)
