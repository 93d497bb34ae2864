"""The transcript of an Inspect sample: its events, the model calls among them, and the conversations that these continue.

- A model call holds the history that was sent and the message that came back. A call whose history begins with all that
  another one knew goes on from it; a history that goes on otherwise begins a thread of its own, and what it repeats of
  others is a copy.
- A message is known by its id, else by what it says, long texts looked up where they are attached.
- A scorer's calls (a span or a step of the type `scorer`) are no conversation. An agent is the innermost span of the type
  `agent`.
- Calls that are pending, failed, or gave no message are none.

Not covered: what the events say of state, store and sandbox; events that old logs nest inside tool events.
"""

import json
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from experiential_lab.evidence.importers.format import declared_id
from experiential_lab.evidence.importers.parts import Part, listed, mapping
from experiential_lab.evidence.spans import Text
from experiential_lab.evidence.trace import Event

REFERENCES = ("attachment://", "tc://")  # the second one in logs of 2024
LOOPS = ("react", "basic_agent", "deepagent", "self_critique")  # solvers that write user messages themselves


class Quote(NamedTuple):
    """What an event says, and the text that it points to."""

    at: Text
    text: str


def quote(at: Text) -> Quote:
    return Quote(at, at.text)


class Said(NamedTuple):
    """A message, and where it stands: at `pointer` below a part."""

    message: Any
    within: Part
    key: str
    """Equal for the same message in two views: its id, else what it says."""
    pointer: str = ""
    aside: str | None = None

    @property
    def has_id(self) -> bool:
        return self.key.startswith("id:")

    @property
    def part(self) -> Part:
        return self.within.below(self.pointer)


class Call(NamedTuple):
    """A model call of the events: what was sent, and what came back."""

    agent: str
    is_scorer: bool
    has_tools: bool
    history: list[Said]
    output: Said


class Attachments:
    """The long texts and the media of a sample, which its messages only refer to."""

    def __init__(self, sample: dict[str, Any], pointer: str) -> None:
        self.holders = (
            (mapping(sample.get("attachments")), f"{pointer}/attachments"),
            (mapping(mapping(sample.get("transcript")).get("content")), f"{pointer}/transcript/content"),
        )

    def find(self, text: object) -> Text | None:
        """What a text that is only a reference refers to."""
        if not isinstance(text, str) or not text.startswith(REFERENCES):
            return None
        name = text.partition("://")[2]
        for held, pointer in self.holders:
            if isinstance(found := held.get(name), str):
                return Text(found, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
        return None

    def said(self, message: Any, within: Part, pointer: str = "") -> Said:
        return Said(message, within, self._key(mapping(message)), pointer)

    def _key(self, message: dict[str, Any]) -> str:
        ident = declared_id(message.get("id"))
        return f"id:{ident}" if ident else self.words(message)

    def words(self, message: dict[str, Any]) -> str:
        """All that a message says and does, long texts looked up."""
        content = message.get("content")
        blocks = content if isinstance(content, list) else [content or ""]
        texts = [mapping(block).get("text", block) for block in blocks]
        told = [found.text if (found := self.find(text)) else text for text in texts]
        calls = [
            [mapping(call).get(key) for key in ("id", "function", "arguments")]
            for call in listed(message.get("tool_calls"))
        ]
        return json.dumps([message.get("role"), told, calls, message.get("tool_call_id")], sort_keys=True, default=str)


class Thread:
    """Model calls of one agent, each of which goes on from the one before."""

    def __init__(self, agent: str) -> None:
        self.agent, self.has_tools = agent, False
        self.known: list[str] = []
        self.said: list[Said] = []
        self.outputs: list[Said] = []

    @property
    def own(self) -> list[Said]:
        """What was said from its first answer on."""
        return self.said[self.said.index(self.outputs[0]) :]

    def goes_on(self, call: Call) -> bool:
        return call.agent == self.agent and [said.key for said in call.history[: len(self.known)]] == self.known

    def take(self, call: Call, seen: set[str]) -> None:
        """What a call adds. Where a thread begins, what was seen elsewhere is a copy; what comes later is its own."""
        for said in call.history[len(self.known) :]:
            is_copy = not self.known and said.key in seen
            self.said.append(said._replace(aside="replayed_history" if is_copy else None))
        self.said.append(call.output)
        self.outputs.append(call.output)
        self.known = [said.key for said in (*call.history, call.output)]
        self.has_tools |= call.has_tools
        seen.update(self.known)


class Transcript:
    """The events of a sample."""

    def __init__(self, sample: dict[str, Any], part: Part, attachments: Attachments) -> None:
        self.sample, self.part, self.attachments, self.pointer = sample, part, attachments, "/events"
        events = sample.get("events")
        if not isinstance(events, list):
            events, self.pointer = mapping(sample.get("transcript")).get("events"), "/transcript/events"
        self.events = [mapping(event) for event in listed(events)]
        self.spans = {event["id"]: event for event in self._of("span_begin") if isinstance(event.get("id"), str)}

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event.get("event") == kind]

    @cached_property
    def parts(self) -> list[Part]:
        return self.part.below(self.pointer).elements(self.events)

    @cached_property
    def _pool(self) -> list[Said]:
        """The messages that the model calls of newer logs refer to by number."""
        messages = listed(mapping(self.sample.get("events_data")).get("messages"))
        parts = self.part.below("/events_data/messages").elements(messages) if messages else []
        return list(map(self.attachments.said, messages, parts))

    @cached_property
    def calls(self) -> list[Call]:
        """Every model call that gave a message, in order."""
        found: list[Call] = []
        steps: list[object] = []
        for at, event in enumerate(self.events):
            if event.get("event") == "step":  # of logs before spans
                steps = [*steps, event.get("type")] if event.get("action") == "begin" else steps[:-1]
            message = _output(event)
            if message is not None:
                spans = list(self._around(event))
                agent = next((str(span["id"]) for span in spans if span.get("type") == "agent"), "")
                kinds = [*steps, *(span.get("type") for span in spans), *(span.get("name") for span in spans)]
                output = self.attachments.said(message, self.parts[at], "/output/choices/0/message")
                is_scorer = "scorer" in kinds or "scorers" in kinds
                found.append(Call(agent, is_scorer, bool(event.get("tools")), self._history(at), output))
        return found

    def _around(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The spans that an event stands in, from the innermost."""
        ident, seen = event.get("span_id"), set[str]()
        while isinstance(ident, str) and ident in self.spans and ident not in seen:
            seen.add(ident)
            yield self.spans[ident]
            ident = self.spans[ident].get("parent_id")

    def _history(self, at: int) -> list[Said]:
        event, said = self.events[at], self.attachments.said
        found: list[Said] = []
        for ref in listed(event.get("input_refs")):
            if isinstance(ref, list) and len(ref) == 2 and all(type(number) is int and number >= 0 for number in ref):
                found += self._pool[ref[0] : ref[1]]
        given = enumerate(listed(event.get("input")))
        return found + [said(message, self.parts[at], f"/input/{number}") for number, message in given]

    def threads(self, seen: set[str]) -> list[Thread]:
        """The model calls that are no scorer's, as conversations. `seen`: keys of messages that stand elsewhere."""
        threads: list[Thread] = []
        for call in self.calls:
            if not call.is_scorer:
                fitting = [thread for thread in threads if thread.goes_on(call)]
                if not fitting:
                    fitting = [Thread(call.agent)]
                    threads += fitting
                max(fitting, key=lambda each: len(each.known)).take(call, seen)
        return threads

    @cached_property
    def tools(self) -> dict[str, int]:
        """{call id: number of its tool event}, where the id occurs once and the tool came to an end."""
        tools = [
            (declared_id(event.get("id")), at) for at, event in enumerate(self.events) if event.get("event") == "tool"
        ]
        counts = Counter(ident for ident, _ in tools)
        return {ident: at for ident, at in tools if ident and counts[ident] == 1 and not self.events[at].get("pending")}

    @cached_property
    def times(self) -> dict[str, str]:
        """{id of a call or of a message: when its result, or it, was there}"""
        ends = [(f"call:{ident}", self.events[at]) for ident, at in self.tools.items()]
        ends += [(f"message:{message.get('id')}", e) for e in self._of("model") if (message := _output(e)) is not None]
        times = {key: event.get("completed") or event.get("timestamp") for key, event in ends}
        return {key: at for key, at in times.items() if isinstance(at, str)}

    @cached_property
    def refused(self) -> set[str]:
        """Calls that a person rejected."""
        rejections = [event for event in self._of("approval") if event.get("decision") == "reject"]
        people = [event for event in rejections if str(event.get("approver")).startswith("human")]
        return {ident for event in people if (ident := declared_id(mapping(event.get("call")).get("id")))}

    @property
    def runs_a_loop(self) -> bool:
        return any(is_loop(span.get("name")) for span in self.spans.values())

    @property
    def declared_tools(self) -> int | None:
        return next((len(event["tools"]) for event in self._of("model") if isinstance(event.get("tools"), list)), None)

    @property
    def usages(self) -> list[dict[str, Any] | None]:
        """What each model call that gave a message states."""
        outputs = [event["output"] for event in self._of("model") if _output(event) is not None]
        return [output["usage"] if isinstance(output.get("usage"), dict) else None for output in outputs]


def _output(event: dict[str, Any]) -> dict[str, Any] | None:
    """The message that a model call gave."""
    if event.get("event") != "model" or event.get("pending") or event.get("error"):
        return None
    choices = listed(mapping(event.get("output")).get("choices"))
    message = mapping(choices[0]).get("message") if choices else None
    return message if isinstance(message, dict) else None


def is_loop(name: object) -> bool:
    return isinstance(name, str) and name.rpartition("/")[2] in LOOPS


def note(reason: str, part: Part) -> Event:
    """An event that only says where something stands, and why nothing uses it."""
    return Event(kind="control", turn="", span=part.place.span(part.whole), aside=reason)
