"""Inspect logs: the zip (`.eval`) of `header.json` and `samples/*.json`, and the JSON of `{version, eval, samples}`.

- Unit: one sample in one epoch is a trace. Both formats give it one id, so a converted log is a copy. All epochs of a sample,
  in all runs over the same input, are one lineage.
- `messages` is the conversation and `events` a second view of it. Without messages, the model calls of the events are the
  conversation: each sends its history again, and only what is new counts.
- A sub-agent (a span of type `agent` whose outputs are not in the messages) is a branch. Any other model call outside the
  conversation (a grader, a critic, an attempt that the scaffold dropped) is the scaffold's, and no action.
- What has the source `input` was there before the agent: it is context, few-shot answers too. An unsourced answer without
  calls beside generated ones was written by a solver.
- A user message answers when an operator wrote it, or a model that plays the user, or when it is unsourced and not the
  scaffold's: no known nudge, not stated in the plan, not said twice, and the plan runs no loop that writes such messages.
- A tool's error is what the model saw where the content is empty. A call that no message answers is answered by its own
  tool event. Only the events know times.
- `attachment://hash` is quoted where it is attached. An image beside one text is context; alone, it is what was said.
- Usage is `model_usage`, Inspect's sum over all calls of the sample, graders too; else the sum over the model calls. Where
  both are stated, one of them is `usage_repeated`.

Not covered: samples in chunks (`samples/*/messages/0.json`) are refused; events that old logs nest inside tool events; and
references inside arguments, which stay as they are.
"""

import json
from collections import Counter
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any, NamedTuple

import msgspec

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import Format, Source, context_of, declared_id
from experiential_lab.evidence.importers.inspect_events import (
    Attachments,
    Quote,
    Said,
    Thread,
    Transcript,
    is_loop,
    note,
    quote,
)
from experiential_lab.evidence.importers.parts import Part, listed, mapping, named
from experiential_lab.evidence.importers.usage import in_nano_dollars, summed
from experiential_lab.evidence.spans import Text
from experiential_lab.evidence.trace import Author, Event, Imported, Rejected, Trace
from experiential_lab.records import digest_of, short_id

ROLES = ("system", "user", "assistant", "tool")
NUDGES = (
    "Please proceed to the next step using your best judgement.",
    "Your submission was incorrect. Please proceed",
    "Given the following question, initial answer and critique",
    "[Automatic reminder",
    "Context compaction approaching.",
    "Successfully transferred to ",
)
HANDED_BACK = " agent has completed its work."
SUMMARY = "[CONTEXT COMPACTION SUMMARY]"
STATED = 20  # characters that a message must share with a template of the plan: people, too, begin with shorter ones
TRANSCRIPT = {
    "model",
    "tool",
    "span_begin",
    "span_end",
    "step",
    "state",
    "store",
    "info",
    "sample_init",
    "score",
    "checkpoint",
}


class _Head(NamedTuple):
    """What the head of a log says of all its samples."""

    run: str | None = None
    is_over: bool = False
    stated: frozenset[str] = frozenset()
    """Every text of the plan and of the arguments of task and solver."""
    is_loop: bool = False


def _read(source: Source, *, name: str) -> Imported:
    """Every sample of a source, as traces."""
    records, rejected = _live(source)
    heads = [record.value for record in records if _is_head(record.value)]
    head = _head(next((value for value in reversed(heads) if "status" in value), heads[-1] if heads else {}))
    found: list[_Sample] = []
    rest: list[Framed] = []
    for record in records:
        samples = list(_samples(source, record, head))
        good = [sample for sample in samples if sample.events]
        if good:
            good[0].notes += [note("unknown_role", sample.part) for sample in samples if not sample.events]
        else:
            rest.append(record)
        found += good
    rejected += _unused(source, rest, found)
    rejected.sort(key=lambda each: (each.record, each.offset))
    traces = tuple(sample.trace(name) for sample in found)
    return Imported(traces=traces, records=len(source.frames.records), rejected=tuple(rejected))


def _live(source: Source) -> tuple[list[Framed], list[Rejected]]:
    """The records that can be used: of a member that was written again only the last, of equal samples the first."""
    good, bad, seen = [], [], set[bytes]()
    last = {(record.member, record.number): at for at, record in enumerate(source.frames.records)}
    for at, record in enumerate(source.frames.records):
        is_again = last[record.member, record.number] != at or (_holds_samples(record.value) and record.raw in seen)
        if record.reason or is_again:
            bad.append(source.rejected(record, record.reason or "duplicate_record"))
        else:
            seen.add(record.raw)
            good.append(record)
    return good, bad


def _samples(source: Source, record: Framed, head: _Head) -> Iterator["_Sample"]:
    value, part = record.value, Part(source.place(record), record.raw)
    if _is_log(value):
        parts = part.below("/samples").elements(value["samples"])
        for sample, each in zip(value["samples"], parts, strict=True):
            yield _Sample(record, each, mapping(sample), _head(value))
    elif _is_sample(value):
        yield _Sample(record, part, value, head)


def _unused(source: Source, records: list[Framed], samples: list["_Sample"]) -> list[Rejected]:
    """Rejects what is no sample, but for what an archive says of its samples: that is noted on them."""
    rejected = []
    known = {_which(sample.value): sample for sample in reversed(samples)}
    for record in records:
        value = record.value
        summarised = known.get(_which(value)) if _is_summary(value) else None
        is_about_all = bool(samples) and not _is_log(value) and (_is_head(value) or _is_reduction(value))
        if summarised or is_about_all:
            about, reason = (summarised, "duplicate_view") if summarised else (samples[0], "harness_text")
            about.notes.append(Event(kind="control", turn="", span=source.place(record).whole(), aside=reason))
        else:
            rejected.append(source.rejected(record, "unknown_shape"))
    return rejected


def _head(value: dict[str, Any]) -> _Head:
    evaluation = mapping(value.get("eval"))
    steps = [mapping(step) for step in listed(mapping(value.get("plan")).get("steps"))]
    ids = [found for key in ("run_id", "task_id") if (found := declared_id(evaluation.get(key)))]
    said = [step.get("params") for step in steps] + [evaluation.get(key) for key in ("task_args", "solver_args")]
    return _Head(
        run=declared_id(evaluation.get("eval_id")) or "/".join(ids) or None,
        is_over=value.get("status") == "success",
        stated=frozenset(text.strip() for each in said for text in _texts(each)) - {""},
        is_loop=any(is_loop(step.get("solver")) for step in steps),
    )


def _texts(value: object) -> Iterator[str]:
    """Every text inside a value."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict | list):
            left += each.values() if isinstance(each, dict) else each


class _Sample:
    """One sample of a log."""

    def __init__(self, record: Framed, part: Part, value: dict[str, Any], head: _Head) -> None:
        self.record, self.part, self.value, self.head = record, part, value, head
        self.attachments = Attachments(value, part.pointer)
        self.transcript = Transcript(value, part, self.attachments)
        self.ident, self.epoch = _which(value)
        run = f"{head.run}/{self.ident}/{self.epoch}" if head.run else None
        self.session = declared_id(value.get("uuid")) or run
        messages = listed(value.get("messages"))
        parts = part.below("/messages").elements(messages) if messages else []
        self.messages = list(map(self.attachments.said, messages, parts))
        known = [mapping(message) for message in messages]
        given = [mapping(message) for message in listed(value.get("input"))]
        self.given = {self.attachments.words(each) for each in given if each.get("role") == "assistant"}
        self.is_sourced = any(each.get("role") == "assistant" and each.get("source") == "generate" for each in known)
        self.elsewhere: set[str] = set()
        """Texts that models said outside of the conversation."""
        self.repeated: set[str] = set()
        self.notes: list[Event] = []
        """Where the log repeats or describes the sample."""

    @cached_property
    def events(self) -> list[Event]:
        """Everything that the sample holds, the main conversation first."""
        branches, outside = self._branches()
        strays = [_Talk(self, "").stray(said) for said in outside]
        self.elsewhere = {event.text.strip() for event in strays} - {""}
        self.repeated = self._repeated([said for _, all_said in branches for said in all_said if not said.aside])
        found = [event for name, all_said in branches for event in _Talk(self, name).events(all_said)]
        found = (found or self._input()) + strays
        if self.messages and self.transcript.events:
            found.append(note("duplicate_view", self.part.below(self.transcript.pointer)))
        return found

    def _repeated(self, all_said: list[Said]) -> set[str]:
        """What unsourced user messages say more than once: that is how a template speaks."""
        messages = [mapping(said.message) for said in all_said]
        unsourced = [each["content"] for each in messages if each.get("role") == "user" and _is_unsourced_text(each)]
        counts = Counter(found.text if (found := self.attachments.find(text)) else text for text in unsourced)
        return {text.strip() for text, count in counts.items() if count > 1}

    def was_given(self, message: dict[str, Any]) -> bool:
        """Whether an answer stood there before the agent: few-shot examples do."""
        source = message.get("source")
        return source == "input" or (source is None and self.attachments.words(message) in self.given)

    def _branches(self) -> tuple[list[tuple[str, list[Said]]], list[Said]]:
        """The conversations by branch, and what models said outside of them."""
        threads = self.transcript.threads({said.key for said in self.messages})
        main = self.messages
        if not main and threads:
            first = next((thread for thread in threads if thread.has_tools), threads[0])
            threads.remove(first)
            main = first.said
        own = {said.key: said for said in main}
        agent = next((thread.agent for thread in threads if any(said.key in own for said in thread.outputs)), "")
        branches, strays = [], [call.output for call in self.transcript.calls if call.is_scorer]
        for number, thread in enumerate(threads, 1):
            if self._is_branch(thread, own, agent):
                views = {said.key for said in thread.own if said.has_id}
                main = [said._replace(aside="duplicate_view") if said.key in views else said for said in main]
                branches.append((f"{'agent' if thread.agent else 'thread'}:{number}", thread.said))
            else:
                strays += [said for said in thread.outputs if said.key not in own]
        return [("", main), *branches], strays

    def _is_branch(self, thread: Thread, own: dict[str, Said], main_agent: str) -> bool:
        """Whether a thread is an agent's: else its outputs are views of the messages, or another model's."""
        if not self.messages:
            return bool(thread.agent) or any(said.aside for said in thread.said)
        if not thread.agent or not all(said.has_id for said in thread.outputs):
            return False
        views = [(said.message, own[said.key].message) for said in thread.outputs if said.key in own]
        is_stripped = any(one.get("tool_calls") and not mapping(other).get("tool_calls") for one, other in views)
        return not views or (is_stripped and thread.agent != main_agent)  # a handoff keeps the words, not the calls

    def _input(self) -> list[Event]:
        """What the agent was given, where nothing tells what it did."""
        given = self.value.get("input")
        if isinstance(given, str):
            at = self.attachments.find(given) or self.part.value(given, "/input")
            return [Event(kind="task", turn="", span=self.part.place.span(at), text=at.text)]
        parts = self.part.below("/input").elements(given) if isinstance(given, list) else []
        return _Talk(self, "").events(list(map(self.attachments.said, listed(given), parts)))

    def trace(self, name: str) -> Trace:
        is_over = self.head.is_over or isinstance(self.value.get("completed_at"), str)
        is_cut = self.value.get("error") or self.value.get("limit")
        parts = [f"{key} {ident}" for key, ident in (("sample", self.ident), ("epoch", self.epoch)) if ident]
        declared = [self.session] if self.session else [digest_of(self.record.raw), self.part.pointer]
        return Trace(
            trace_id=short_id("inspect", *declared),
            source=self.part.place.source,
            format=name,
            name=", ".join(parts) or "sample",
            keys=self._keys(),
            task=next((event.text for event in self.events if event.kind == "task"), None),
            context=context_of(self.events),
            declared_tools=self.transcript.declared_tools,
            complete=True if is_over and not is_cut else None,
            usage=self._usage(),
            cost_nusd=self._cost(),
            usage_repeated=int(bool(self._models) and any(self.transcript.usages)),
            events=(*self.events, *self.notes),
        )

    def _keys(self) -> tuple[str, ...]:
        keys = [f"session:{self.session}"] if self.session else []
        if self.ident:
            given = self.value.get("input")
            told = [[mapping(each).get("role"), mapping(each).get("content")] for each in listed(given)]
            text = given if isinstance(given, str) else json.dumps(told, sort_keys=True, default=str) if told else ""
            keys.append(f"task:{short_id(text) if text else self.part.place.source[7:23]}:{self.ident}")
        return tuple(sorted(keys))

    @property
    def _models(self) -> list[dict[str, Any]]:
        return [each for each in mapping(self.value.get("model_usage")).values() if isinstance(each, dict)]

    @cached_property
    def _stated(self) -> list[dict[str, Any]]:
        """The usage of every model, else of every model call; nothing where it is not known of all."""
        leaves = [usage for usage in self.transcript.usages if usage is not None]
        return self._models or (leaves if len(leaves) == len(self.transcript.usages) else [])

    def _usage(self) -> tuple[tuple[str, int], ...] | None:
        counted = summed(self._stated) or ()
        return tuple((kind, count) for kind, count in counted if kind != "total_cost") or None

    def _cost(self) -> int | None:
        """Inspect leaves out of its sum the costs that it does not know: it counts only where each call states its own."""
        leaves = [usage for usage in self.transcript.usages if usage is not None]
        costs = [in_nano_dollars(usage.get("total_cost")) for usage in (*self._stated, *leaves)]
        known = [cost for cost in costs if cost is not None]
        return sum(known[: len(self._stated)]) if self._stated and len(known) == len(costs) else None


class _Talk:
    """Turns the messages of one branch into events, in order."""

    def __init__(self, sample: _Sample, name: str) -> None:
        self.sample, self.name = sample, name
        self.turn, self.in_turn, self.acted, self.asked = 0, False, False, False

    def events(self, all_said: list[Said]) -> list[Event]:
        found: list[Event] = []
        for said in all_said:
            new = self._message(mapping(said.message), said.part)
            if said.aside:
                new = [msgspec.structs.replace(event, aside=said.aside) for event in new]
            found += new
        return found + self._answered_elsewhere(found)

    def stray(self, said: Said) -> Event:
        """What a model said outside of the conversation."""
        words, _ = self._content(mapping(said.message).get("content"), said.part)
        return self._event("control", words, aside="harness_text")

    def _message(self, message: dict[str, Any], part: Part) -> list[Event]:
        role = message.get("role")
        if role == "assistant" and not self.sample.was_given(message):
            return self._assistant(message, part)
        self.in_turn = False
        if role not in ROLES:
            return [self._event("control", quote(part.whole), aside="unknown_role")]
        said, media = self._content(message.get("content"), part)
        if role == "tool":
            event = self._result(message, part, said)
        elif role == "user":
            event = self._user(message, said)
        else:
            said = quote(part.whole) if message.get("tool_calls") else said  # an example of a call
            event = self._event("control", said, aside="harness_text") if self.acted else self._event("context", said)
        return [event, *(self._event("context", Quote(at, "")) for at in media)]

    def _assistant(self, message: dict[str, Any], part: Part) -> list[Event]:
        calls, content = listed(message.get("tool_calls")), message.get("content")
        if self.sample.is_sourced and message.get("source") is None and not calls and not message.get("model"):
            self.in_turn = False
            return [self._event("control", self._content(content, part)[0], aside="synthetic_assistant")]
        self.turn += not self.in_turn
        self.in_turn = self.acted = True
        found: list[Event] = []
        if isinstance(message.get("reasoning"), str) and message["reasoning"]:  # of 2025; later it is a block
            found.append(self._event("reasoning", quote(part.value(message["reasoning"], "/reasoning"))))
        found += self._spoken(content, part)
        found += [self._call(call, part, number) for number, call in enumerate(calls)]
        found = found or [self._event("control", quote(part.whole), aside="empty_message")]
        time = self.sample.transcript.times.get(f"message:{message.get('id')}")
        return [msgspec.structs.replace(event, at=time) for event in found]

    def _spoken(self, content: Any, part: Part) -> list[Event]:
        """What an assistant says: one text, or the blocks of it."""
        if not isinstance(content, list) or all(map(_is_text, content)):
            said, _ = self._content(content, part)
            return [self._event("text", said)] if said.text else []
        blocks = [(mapping(block), part.below(f"/content/{number}")) for number, block in enumerate(content)]
        return [event for block, each in blocks for event in self._block(block, each)]

    def _block(self, block: dict[str, Any], part: Part) -> list[Event]:
        kind = block.get("type")
        if _is_text(block):
            said = quote(self._text(block["text"], part, "/text"))
            return [self._event("text", said) if said.text else self._event("control", said, aside="empty_message")]
        if kind == "reasoning":
            field = "reasoning" if block.get("reasoning") else "summary"  # a redacted one has only this
            at = self._text(block[field], part, f"/{field}") if isinstance(block.get(field), str) else part.whole
            return [self._event("reasoning", quote(at))]
        if kind == "tool_use":
            return self._hosted(block, part)
        return [self._event("context", Quote(self._payload(block, part), ""))]

    def _hosted(self, block: dict[str, Any], part: Part) -> list[Event]:
        """A tool that the provider ran: call and result are one block."""
        about: dict[str, Any] = {"tool": named(block.get("name")), "within": part.pointer}
        found = [self._event("call", self._arguments(block, part), **about)]
        error = block.get("error")
        field = "error" if error and not block.get("result") else "result"
        if block.get(field) is not None:
            said = quote(self._text(block[field], part, f"/{field}"))
            found.append(self._event("result", said, author="environment", is_error=True if error else None, **about))
        return found

    def _call(self, given: Any, part: Part, number: int) -> Event:
        call = mapping(given)
        said = self._arguments(call, part.below(f"/tool_calls/{number}"))
        return self._event("call", said, tool=named(call.get("function")), call_id=declared_id(call.get("id")))

    def _arguments(self, call: dict[str, Any], part: Part) -> Quote:
        """The arguments of a call; without any it exists by its presence, and quotes itself."""
        arguments = call.get("arguments")
        return Quote(part.whole, "") if arguments is None else quote(self._text(arguments, part, "/arguments"))

    def _result(self, message: dict[str, Any], part: Part, said: Quote) -> Event:
        if not self.acted or message.get("source") == "input":
            return self._event("context", said)
        field = next((field for field in ("error", "tool_error") if message.get(field)), None)
        error = message[field] if field else None
        if field and not message.get("content"):
            told = mapping(error).get("message")
            said = quote(
                part.value(error, f"/{field}") if told is None else self._text(told, part, f"/{field}/message")
            )
        call_id = declared_id(message.get("tool_call_id"))
        is_refused = mapping(error).get("type") == "approval" and call_id in self.sample.transcript.refused
        event = self._event(
            "result",
            said,
            tool=named(message.get("function")),
            call_id=call_id,
            author="human" if is_refused else "environment",
            is_error=True if error else None,
            rejected=is_refused,
        )
        return msgspec.structs.replace(event, at=self.sample.transcript.times.get(f"call:{call_id}"))

    def _answered_elsewhere(self, events: list[Event]) -> list[Event]:
        """Results that stand in tool events alone: no message sent them to the model."""
        calls = Counter(event.call_id for event in events if event.kind == "call" and not event.aside)
        answered = {event.call_id for event in events if event.kind == "result"}
        transcript, found = self.sample.transcript, []
        for call_id, count in calls.items():
            number = transcript.tools.get(call_id or "")
            event = transcript.events[number] if number is not None else {}
            if number is not None and count == 1 and call_id not in answered and event.get("result") is not None:
                part = transcript.parts[number]
                said, media = self._content(event["result"], part, "/result")
                told = {"content": event["result"], "function": event.get("function"), "tool_call_id": call_id}
                found.append(self._result(told | {"error": event.get("error")}, part, said))
                found += [self._event("context", Quote(at, "")) for at in media]
        return found

    def _user(self, message: dict[str, Any], said: Quote) -> Event:
        is_first, self.asked = not self.asked, True
        if not self.acted and self.name.startswith("agent:"):  # the agent that called it speaks, not a person
            return self._event("control", said, aside="sidechain_prompt")
        if is_first or not self.acted:
            return self._event("task" if is_first else "context", said)
        if _is_compaction(message, said.text):
            return self._event("control", said, aside="compaction_summary")
        author = self._author(message, said.text.strip())
        if author is None:
            return self._event("control", said, aside="harness_text")
        return self._event("user", said, author=author)

    def _author(self, message: dict[str, Any], text: str) -> Author | None:
        """Who wrote a user message; None: the scaffold."""
        source, head = message.get("source"), self.sample.head
        if source == "operator":
            return "human"
        if source == "generate" or (source is None and text and text in self.sample.elsewhere):
            return "simulated_user"
        if source is not None or message.get("tool_call_id") or text.startswith(NUDGES) or text.endswith(HANDED_BACK):
            return None
        is_template = text in self.sample.repeated or any(_fills(text, stated) for stated in head.stated)
        return None if is_template or head.is_loop or self.sample.transcript.runs_a_loop else "unknown"

    def _text(self, value: Any, part: Part, pointer: str) -> Text:
        return self.sample.attachments.find(value) or part.value(value, pointer)

    def _payload(self, block: dict[str, Any], part: Part) -> Text:
        """What a block of media holds: the data, or where they are."""
        kind = block.get("type")
        is_plain = isinstance(kind, str) and isinstance(block.get(kind), str)
        return self._text(block[str(kind)], part, f"/{kind}") if is_plain else part.whole

    def _content(self, content: Any, part: Part, pointer: str = "/content") -> tuple[Quote, list[Text]]:
        """What a message says as one text, and the media beside it. Nothing said quotes the message."""
        if content is None or content == []:
            return Quote(part.whole, ""), []
        if not isinstance(content, list):
            return quote(self._text(content, part, pointer)), []
        spoken = [number for number, block in enumerate(content) if _is_text(block)]
        others = [number for number in range(len(content)) if number not in spoken]
        media = [self._payload(mapping(content[number]), part.below(f"{pointer}/{number}")) for number in others]
        if len(spoken) == 1:
            return quote(self._text(content[spoken[0]]["text"], part, f"{pointer}/{spoken[0]}/text")), media
        if len(media) == 1 and not spoken:
            return quote(media[0]), []
        referred = [found for number in spoken if (found := self.sample.attachments.find(content[number]["text"]))]
        return quote(part.value(content, pointer)), media + referred

    def _event(self, kind: Any, said: Quote, **more: Any) -> Event:
        span = self.sample.part.place.span(said.at)
        return Event(kind=kind, turn=str(self.turn), branch=self.name, span=span, text=said.text, **more)


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _is_unsourced_text(message: dict[str, Any]) -> bool:
    return message.get("source") is None and isinstance(message.get("content"), str)


def _fills(text: str, stated: str) -> bool:
    """Whether a text is what the plan states, or fills in a template of it."""
    opening = stated.partition("{")[0].strip()
    return text == stated or (opening != stated and len(opening) >= STATED and text.startswith(opening))


def _is_compaction(message: dict[str, Any], text: str) -> bool:
    """Whether a user message stands for the history before it."""
    data = [mapping(mapping(block).get("data")) for block in listed(message.get("content"))]
    is_marked = any("compaction_metadata" in each for each in data) or text.startswith(SUMMARY)
    return is_marked or mapping(message.get("metadata")).get("summary") is True


def _is_log(value: object) -> bool:
    return _is_head(value) and isinstance(value, dict) and isinstance(value.get("samples"), list)


def _is_head(value: object) -> bool:
    return isinstance(value, dict) and "version" in value and isinstance(value.get("eval"), dict)


def _is_sample(value: object) -> bool:
    if not isinstance(value, dict) or _is_head(value):
        return False
    return isinstance(value.get("messages"), list) or isinstance(value.get("events"), list) or "transcript" in value


def _is_transcript(value: object) -> bool:
    events = value.get("events") if isinstance(value, dict) else None
    return isinstance(events, list) and bool(events) and all(map(_is_transcript_event, events))


def _is_transcript_event(event: object) -> bool:
    kind = event.get("event") if isinstance(event, dict) else None
    return isinstance(kind, str) and kind in TRANSCRIPT and isinstance(event, dict) and "timestamp" in event


def _holds_samples(value: object) -> bool:
    return _is_log(value) or _is_sample(value)


def _which(value: dict[str, Any]) -> tuple[str | None, str | None]:
    return declared_id(value.get("id")), declared_id(value.get("epoch"))


def _is_reduction(value: object) -> bool:
    return isinstance(value, dict) and {"scorer", "samples"} <= value.keys()


def _is_summary(value: object) -> bool:
    return isinstance(value, dict) and {"id", "epoch", "input"} <= value.keys() and "message_refs" not in value


def _sniff_json(value: object) -> str | None:
    if _is_log(value):
        return "version, eval and samples"
    is_bare = isinstance(value, dict) and "epoch" not in value and _is_transcript(value)
    return "events of a transcript" if is_bare else None


def _sniff_eval(value: object) -> str | None:
    if _is_head(value) and not _is_log(value):
        return "version and eval: the head of a log"
    is_whole = isinstance(value, dict) and _is_sample(value) and {"id", "epoch", "input", "target"} <= value.keys()
    return "a sample with its epoch" if is_whole else None


def _fits(value: object) -> bool:
    is_named = isinstance(value, dict) and bool({"id", "epoch"} & value.keys())
    return _is_head(value) or _is_transcript(value) or (is_named and _is_sample(value))


FORMATS = (
    Format("inspect_eval", _sniff_eval, _fits, partial(_read, name="inspect_eval")),
    Format("inspect_json", _sniff_json, _fits, partial(_read, name="inspect_json")),
)
