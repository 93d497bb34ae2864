"""OpenAI Responses: response bodies and streams, request bodies, pairs of both, and lists of items.

- Unit: a response, a request, or both in one record; the items of a file that is a list (or lines) of items are one.
- One conversation is one trace. `previous_response_id` and `conversation` link its records; without them a request continues
  the response whose input and output it sends again, or the request whose whole input it sends again, and more, where a model
  made some of it. Two records that continue one are branches.
- A response stands behind its request where requests and responses take turns through the whole file.
- Items that are sent again are `replayed_history`: the whole history where an input begins with it, else all up to the last
  item of a model that stands in it. A result that was not seen before counts also there: its `call_id` tells what it answers.
- Instructions are context; said again they are a `duplicate_view`.
- Two records of one response are one: the longer output counts, the other is a `duplicate_view`.
- Usage is the sum of the responses of a trace; unknown as soon as one states none.

Not covered: pages of the items endpoint (their order is not stated), cost, prompt templates, and a list of items that begins
with a message without a type (it looks like a chat; declare the format).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import DECLARED, Format, Source, declared_id
from experiential_lab.evidence.importers.responses_items import ROLES, Item, Reader, is_item, is_made, kind_of, said
from experiential_lab.evidence.importers.responses_stream import Stream, Streams, is_event, response_in
from experiential_lab.evidence.importers.talk import Talk, moment
from experiential_lab.evidence.trace import Event, Imported, Trace
from experiential_lab.records import SAFE_INTEGER, digest_of, short_id

NAME = "openai_responses"
REQUEST = {  # what only a request of this API has beside a plain text as its input
    *("instructions", "previous_response_id", "conversation", "max_output_tokens", "tools", "reasoning", "store"),
    *("include", "truncation", "parallel_tool_calls", "background", "max_tool_calls"),
}
TOLD = ("item", "part", "delta", "text", "refusal", "arguments", "input", "code", "command", "diff", "annotation")
FOREIGN = {"messages", "choices", "epoch", "traceId", "trace_id", "run_type", "span_id", "context"}


class _Exchange:
    """A request, its response, or both, and the records that hold them."""

    def __init__(self, source: Source, records: list[Framed]) -> None:
        self.source, self.records = source, records
        self.asked: list[Item] = []
        self.answered: list[Item] = []
        self.instructions: list[Item] = []
        self.response_id: str | None = None
        self.previous: str | None = None
        self.conversation: str | None = None
        self.sessions: set[str] = set()
        self.is_answered = False
        self.is_whole = True  # no stream that was cut
        self.at: str | None = None
        self.tools: int | None = None
        self.usage: dict[str, int] | None = None
        self.parent: _Exchange | None = None

    @property
    def number(self) -> int:
        return self.records[0].number

    @property
    def member(self) -> str:
        return self.records[0].member

    def request(self, value: dict[str, Any], base: Item, pointer: str) -> None:
        """What a request says, or a response that repeats it."""
        self._common(value, base, pointer)
        given = value.get("input")
        if isinstance(given, str):
            self.asked.append(Item(base.place, f"{pointer}/input", given))
        elif isinstance(given, list):
            self.asked += [Item(base.place, f"{pointer}/input/{at}", item) for at, item in enumerate(given)]

    def response(self, value: dict[str, Any], base: Item, pointer: str, items: list[Item] | None = None) -> None:
        self._common(value, base, pointer)
        output = value.get("output")
        if items is None:
            held = output if isinstance(output, list) else []
            items = [Item(base.place, f"{pointer}/output/{at}", item) for at, item in enumerate(held)]
        self.answered += items
        if value.get("error") is not None:
            self.answered.append(Item(base.place, f"{pointer}/error", value["error"]))
        self.is_answered = True
        self.response_id = declared_id(value.get("id")) or self.response_id
        self.at = moment(value.get("created_at"))
        self.usage = _counts(value.get("usage"))

    def _common(self, value: dict[str, Any], base: Item, pointer: str) -> None:
        self.previous = self.previous or declared_id(value.get("previous_response_id"))
        conversation, metadata, tools = value.get("conversation"), value.get("metadata"), value.get("tools")
        named = conversation.get("id") if isinstance(conversation, dict) else conversation
        self.conversation = self.conversation or declared_id(named)
        if isinstance(metadata, dict):
            self.sessions |= {found for key in DECLARED if (found := declared_id(metadata.get(key)))}
        self.tools = len(tools) if isinstance(tools, list) else self.tools
        if value.get("instructions"):
            self.instructions.append(Item(base.place, f"{pointer}/instructions", value["instructions"]))

    def absorb(self, other: "_Exchange") -> None:
        """Another record of the same response."""
        self.records = sorted(self.records + other.records, key=lambda record: record.number)
        self.asked = self.asked or other.asked
        if (other.is_whole, len(other.answered)) > (self.is_whole, len(self.answered)):
            self.answered, self.at, self.is_whole = other.answered, other.at or self.at, other.is_whole
        self.usage = self.usage or other.usage
        self.instructions = self.instructions or other.instructions
        self.previous, self.conversation = self.previous or other.previous, self.conversation or other.conversation
        self.sessions |= other.sessions

    def answer(self, other: "_Exchange") -> None:
        """The response to this request, which has records of its own."""
        self.records = self.records + other.records
        self.answered, self.is_answered, self.is_whole = other.answered, True, other.is_whole
        self.response_id, self.at, self.usage = other.response_id, other.at, other.usage
        self.instructions = self.instructions + other.instructions
        self.conversation = self.conversation or other.conversation
        self.sessions |= other.sessions
        self.tools = self.tools if other.tools is None else other.tools

    def sayings(self, items: Sequence[Item]) -> list[str]:
        return [saying for item in items if (saying := said(item)) is not None]


def _counts(usage: object) -> dict[str, int] | None:
    """The units of a response, those of its details beside the others; None where one cannot be counted."""
    found: dict[str, int] = {}
    for key, value in usage.items() if isinstance(usage, dict) else ():
        for name, count in value.items() if isinstance(value, dict) else ((key, value),):
            if isinstance(count, int) and not isinstance(count, bool):
                if not 0 <= count <= SAFE_INTEGER:
                    return None
                found[name] = found.get(name, 0) + count
    return found or None


# Records


def _read(source: Source) -> Imported:
    """Every conversation of a source, as traces."""
    streams = Streams(source)
    loose: dict[str, list[Framed]] = defaultdict(list)
    others: list[Framed] = []
    found, rejected, seen = [], [], set[bytes]()
    for record in source.frames.records:
        if record.reason:
            rejected.append(source.rejected(record, record.reason))
        elif is_event(record.value) or streams.takes(record):
            streams.add(record)
        elif _is_loose(record.value):
            loose[record.member].append(record)
        elif record.raw in seen:
            rejected.append(source.rejected(record, "duplicate_record"))
        elif (exchange := _exchange(source, record)) is None:
            others.append(record)
        else:
            seen.add(record.raw)
            found.append(exchange)
    for record in others:  # beside items, what has a type is an item of an unknown one
        if record.member in loose and kind_of(record.value) and "role" not in record.value:
            loose[record.member].append(record)
        else:
            rejected.append(source.rejected(record, "unknown_shape"))
    rejected.sort(key=lambda each: each.record)
    found += [_streamed(source, stream) for stream in streams.found]
    found += [_listed(source, records) for records in loose.values()]
    found.sort(key=lambda each: (each.member, each.number))
    traces: dict[str, Trace] = {}
    for conversation in _conversations(_merged(_answered(found))):
        trace = _Conversation(source, conversation).trace()
        if trace.trace_id in traces:  # some servers give an id again
            again = short_id(trace.trace_id, _digest(conversation))
            trace = msgspec.structs.replace(trace, trace_id=again)
        traces[trace.trace_id] = trace
    return Imported(traces=tuple(traces.values()), records=len(source.frames.records), rejected=tuple(rejected))


def _is_loose(value: object) -> bool:
    """Whether a record is an item by itself."""
    return is_item(value) or (
        isinstance(value, dict) and value.get("role") in ROLES and "content" in value and kind_of(value) == "message"
    )


def _listed(source: Source, records: list[Framed]) -> _Exchange:
    """The conversation of a file that is a list of items."""
    records.sort(key=lambda record: record.number)
    found = _Exchange(source, records)
    found.asked = [Item(source.place(record), "", record.value) for record in records]
    return found


def _streamed(source: Source, stream: Stream) -> _Exchange:
    value, items = stream.read()
    found = _Exchange(source, stream.records)
    holder = next((record for record in reversed(stream.records) if response_in(record.value)), stream.records[0])
    found.response(value, Item(source.place(holder), "", None), "/response", items)
    found.response_id = found.response_id or stream.response_id
    found.is_whole = stream.is_closed
    return found


def _exchange(source: Source, record: Framed) -> _Exchange | None:
    """What a record holds, where it is a request, a response, or both."""
    value, base = record.value, Item(source.place(record), "", None)
    found = _Exchange(source, [record])
    if isinstance(value, list):
        if not any(map(is_item, value)):
            return None
        found.asked = [Item(base.place, f"/{at}", item) for at, item in enumerate(value)]
        return found
    request, response = _sides(value)
    for pointer, each in request:
        found.request(each, base, pointer)
    for pointer, each in response:
        found.response(each, base, pointer)
    return found if request or response else None


def _sides(value: object) -> tuple[list[tuple[str, dict[str, Any]]], list[tuple[str, dict[str, Any]]]]:
    """(where, request) and (where, response) of a record; each at most once."""
    if not isinstance(value, dict):
        return [], []
    if _is_response(value):
        return ([("", {"input": value["input"]})] if _is_input(value.get("input")) else []), [("", value)]
    if _is_request(value):
        return [("", value)], []
    request = [pair for pair in _inner(value, "request", "body") if _is_request(pair[1])]
    response = [pair for pair in _inner(value, "response") if _is_response(pair[1])]
    return request[:1], response[:1]


def _inner(value: dict[str, Any], *names: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects under these names, and their bodies."""
    for name in names:
        inner = value.get(name)
        if isinstance(inner, dict):
            yield f"/{name}", inner
            if isinstance(inner.get("body"), dict):
                yield f"/{name}/body", inner["body"]


def _is_response(value: dict[str, Any]) -> bool:
    output = value.get("output")
    if not isinstance(output, list) or FOREIGN & value.keys():
        return False
    is_pair = "input" in value and "type" not in value and any(map(is_item, output))
    return value.get("object") == "response" or is_pair


def _is_input(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and any(kind_of(item) for item in value))


def _is_request(value: dict[str, Any]) -> bool:
    given = value.get("input")
    if not {"model", *REQUEST} & value.keys() or {"output", *FOREIGN} & value.keys():
        return False
    if isinstance(given, str):
        return bool(REQUEST & value.keys())
    return isinstance(given, list) and any(is_item(item) or kind_of(item) == "message" for item in given)


# Conversations


def _answered(exchanges: list[_Exchange]) -> list[_Exchange]:
    """Requests with the responses behind them, where the two take turns through the whole file."""
    asks, answers = exchanges[::2], exchanges[1::2]
    take_turns = all(not each.is_answered and each.asked and not is_made(said(each.asked[-1])) for each in asks)
    if not take_turns or not all(each.is_answered and not each.asked for each in answers):
        return exchanges
    pairs = list(zip(asks, answers, strict=False))
    if not all(ask.member == answer.member and ask.previous == answer.previous for ask, answer in pairs):
        return exchanges
    for ask, answer in pairs:
        ask.answer(answer)
    return asks


def _merged(exchanges: list[_Exchange]) -> list[_Exchange]:
    """The exchanges, those of one response as one."""
    found: list[_Exchange] = []
    by_id: dict[tuple[str, str], list[_Exchange]] = defaultdict(list)
    for each in exchanges:
        same = by_id[each.member, each.response_id] if each.response_id else []
        held = next((other for other in same if _is_one(each, other)), None)
        if held is None:
            found.append(each)
            same.append(each)
        else:
            held.absorb(each)
    return found


def _is_one(one: _Exchange, other: _Exchange) -> bool:
    """Whether the shorter output begins the longer one, and neither is asked otherwise; a cut stream ends anywhere."""
    some, others = (each.sayings(each.answered if each.is_whole else each.answered[:-1]) for each in (one, other))
    asked = one.sayings(one.asked), other.sayings(other.asked)
    same = all(a == b for a, b in zip(some, others, strict=False))
    return same and (not asked[0] or not asked[1] or asked[0] == asked[1])


def _conversations(exchanges: list[_Exchange]) -> list[list[_Exchange]]:
    """The exchanges by conversation, each behind what it continues."""
    links = _Links(exchanges)
    for each in exchanges:
        links.link(each)
    children: dict[int, list[_Exchange]] = defaultdict(list)
    for each in exchanges:
        if each.parent is not None:
            children[id(each.parent)].append(each)
    found = []
    for root in exchanges:
        if root.parent is None:
            ordered, waiting = [], [root]
            while waiting:
                ordered.append(waiting.pop())
                waiting += reversed(children[id(ordered[-1])])
            found.append(ordered)
    return found


class _Links:
    """Finds what each exchange continues."""

    def __init__(self, exchanges: list[_Exchange]) -> None:
        self.by_id: dict[tuple[str, str], list[_Exchange]] = defaultdict(list)
        self.by_history: dict[str, _Exchange] = {}
        self.by_request: dict[str, _Exchange] = {}  # those whose response is not known
        self.before: dict[int, _Exchange] = {}
        self.above: dict[int, _Exchange] = {}
        self.roots: dict[int, int] = {}
        rooms: dict[tuple[str, str], list[_Exchange]] = defaultdict(list)
        last: _Exchange | None = None
        for each in exchanges:
            if each.response_id:
                self.by_id[each.member, each.response_id].append(each)
            if each.conversation:
                rooms[each.member, each.conversation].append(each)
            elif each.sayings(each.answered):
                self.by_history[_chained(each.sayings([*each.asked, *each.answered]))[-1]] = each
            elif any(map(is_made, each.sayings(each.asked))):
                self.by_request.setdefault(_chained(each.sayings(each.asked))[-1], each)
            if last is not None and last.member == each.member and _is_asked_by(each, last):
                self.above[id(each)] = last
            last = each
        for room in rooms.values():
            if all(each.at for each in room):
                room.sort(key=lambda each: each.at or "")
            self.before |= {id(each): other for other, each in pairwise(room)}

    def link(self, each: _Exchange) -> None:
        for other in self._candidates(each):
            if self._root(other) != id(each):
                each.parent = other
                self.roots[id(each)] = self._root(other)
                return

    def _candidates(self, each: _Exchange) -> Iterator[_Exchange]:
        if id(each) in self.above:
            yield self.above[id(each)]
        if each.previous:
            named = self.by_id.get((each.member, each.previous), [])
            earlier = [other for other in named if other.number < each.number]
            yield from earlier[-1:] or named[:1]
        if id(each) in self.before:
            yield self.before[id(each)]
        elif not each.previous and not each.conversation:
            chain = _chained(each.sayings(each.asked))
            for at, key in reversed(list(enumerate(chain, 1))):
                if key in self.by_history:
                    yield self.by_history[key]
                if key in self.by_request and at < len(chain):  # the same list again may be another run
                    yield self.by_request[key]

    def _root(self, each: _Exchange) -> int:
        key, path = id(each), []
        while key in self.roots:
            path.append(key)
            key = self.roots[key]
        self.roots |= dict.fromkeys(path, key)
        return key


def _is_asked_by(each: _Exchange, request: _Exchange) -> bool:
    """Whether a response without its request follows that request: both name the same one before."""
    is_one = request.previous is not None and request.previous == each.previous
    return is_one and not request.is_answered and each.is_answered and not each.asked


def _chained(sayings: list[str]) -> list[str]:
    """A key for each beginning of a history, the empty one first."""
    found = [""]
    for saying in sayings:
        found.append(short_id(found[-1], saying))
    return found


def _digest(exchanges: list[_Exchange]) -> str:
    return digest_of(b"\n".join(record.raw for record in exchanges[0].records))


class _Branch:
    """One way through a conversation, and what was said on it."""

    def __init__(self, talk: Talk, history: list[str]) -> None:
        self.talk, self.history, self.seen = talk, history, set(history)
        self.instructions: str | None = None

    def forked(self, name: str) -> "_Branch":
        found = _Branch(self.talk.forked(name), list(self.history))
        found.instructions = self.instructions
        return found

    def say(self, saying: str | None) -> None:
        if saying is not None:
            self.history.append(saying)
            self.seen.add(saying)

    def resent(self, sayings: list[str | None]) -> int:
        """How many of the first items of an input were said before."""
        places = [at for at, saying in enumerate(sayings) if saying is not None]
        size = len(self.history)
        if size and [sayings[at] for at in places[:size]] == self.history:
            return places[size - 1] + 1
        return 1 + max((at for at in places if is_made(sayings[at]) and sayings[at] in self.seen), default=-1)


class _Conversation:
    """The exchanges of one conversation, turned into events."""

    def __init__(self, source: Source, exchanges: list[_Exchange]) -> None:
        self.source, self.exchanges = source, exchanges
        items = [item for each in exchanges for item in (*each.asked, *each.answered)]
        followed = {declared_id(item.get("approval_request_id")) for item in items if item.kind == "mcp_call"}
        self.reader = Reader(frozenset(followed - {None}))  # type: ignore[arg-type]  # without None they are texts
        self.continued: dict[int, int] = defaultdict(int)  # how many exchanges go on from one
        self.waiting: dict[int, _Branch] = {}  # what stood behind an exchange that several continue
        children: dict[int, int] = defaultdict(int)
        for each in exchanges:
            children[id(each.parent)] += 1
        self.forks = {key for key, count in children.items() if count > 1}

    def trace(self) -> Trace:
        first, branch = self.exchanges[0], _Branch(Talk(), [])
        events: list[Event] = []
        for each in self.exchanges:
            branch = self._branch(each, branch)
            events += self._accounted(each, self._events(each, branch))
            if id(each) in self.forks:
                self.waiting[id(each)] = branch.forked("")
        declared = first.conversation or next((each.response_id for each in self.exchanges if each.response_id), None)
        return Trace(
            trace_id=short_id(NAME, declared or _digest(self.exchanges)),
            source=self.source.digest,
            format=NAME,
            name=self._name(first, declared)[:60],
            keys=self._keys(),
            task=next((event.text for event in events if event.kind in ("task", "user")), None),
            context="\n\n".join(event.text for event in events if event.kind == "context" and not event.aside) or None,
            declared_tools=max((each.tools for each in self.exchanges if each.tools is not None), default=None),
            usage=self._usage(),
            events=tuple(events),
        )

    def _name(self, first: _Exchange, declared: str | None) -> str:
        kind = "conversation" if first.conversation else "response"
        return f"{kind} {declared}" if declared else f"record {first.number}"

    def _keys(self) -> tuple[str, ...]:
        keys = set()
        held = {each.response_id for each in self.exchanges}
        for each in self.exchanges:
            keys |= {f"session:{name}" for name in (each.response_id, each.conversation, *each.sessions) if name}
            if each.previous and each.previous not in held:
                keys.add(f"parent:{each.previous}")
        return tuple(sorted(keys))

    def _usage(self) -> tuple[tuple[str, int], ...] | None:
        totals: dict[str, int] = {}
        for each in self.exchanges:
            if each.is_answered:
                if each.usage is None:
                    return None
                totals = {key: totals.get(key, 0) + each.usage.get(key, 0) for key in totals | each.usage}
        return tuple(sorted(totals.items())) or None

    def _branch(self, each: _Exchange, current: _Branch) -> _Branch:
        parent = id(each.parent)
        self.continued[parent] += 1
        if self.continued[parent] == 1:
            return current
        return self.waiting[parent].forked(f"fork{each.number}")

    def _events(self, each: _Exchange, branch: _Branch) -> list[Event]:
        talk = branch.talk
        found = [event for item in each.instructions for event in _instruct(branch, item)]
        sayings = [said(item) for item in each.asked]
        resent = branch.resent(sayings)
        for at, (item, saying) in enumerate(zip(each.asked, sayings, strict=True)):
            events = self.reader.events(talk, item)
            is_new = at >= resent or (
                saying is not None and saying.startswith("result\0") and saying not in branch.seen
            )
            found += events if is_new else [_again(event) for event in events]
            if is_new:
                branch.say(saying)
        talk.at = each.at
        for item in each.answered:
            if item.pointer.endswith("/error"):
                found.append(talk.aside(item.place, item.quote(), "synthetic_assistant"))
                continue
            found += self.reader.events(talk, item)
            branch.say(said(item))
        talk.at = None
        return found

    def _accounted(self, each: _Exchange, events: list[Event]) -> Iterator[Event]:
        """The events, and each record that none of them quotes, in the order of the records."""
        ranks = {(record.member, record.offset): at for at, record in enumerate(each.records)}
        quoted = {(event.span.member, event.span.offset) for event in events}
        left = [record for record in each.records if (record.member, record.offset) not in quoted]
        alone = not events
        for event in events:
            rank = ranks[event.span.member, event.span.offset]
            while left and ranks[left[0].member, left[0].offset] < rank:
                yield self._unquoted(left.pop(0), is_alone=alone)
            yield event
        yield from (self._unquoted(record, is_alone=alone) for record in left)

    def _unquoted(self, record: Framed, *, is_alone: bool) -> Event:
        reason = "empty_message" if is_alone else "duplicate_view"
        if not isinstance(record.value, dict) or "type" in record.value:
            reason = "duplicate_view" if _tells(record.value) else "harness_text"
        span = self.source.place(record).whole()
        return Event(kind="control", turn="0", span=span, text=record.raw.decode(), aside=reason)


def _instruct(branch: _Branch, item: Item) -> list[Event]:
    at, talk = item.quote(), branch.talk
    if at.text == branch.instructions:
        return [talk.aside(item.place, at, "duplicate_view")]
    branch.instructions = at.text
    return [talk.system(item.place, at)]


def _again(event: Event) -> Event:
    return msgspec.structs.replace(event, aside="replayed_history")


def _tells(value: dict[str, Any]) -> bool:
    """Whether an event of a stream says something of an item."""
    if response_in(value):
        return bool(response_in(value).get("output"))
    return is_event(value) and any(key in value for key in TOLD)


def _fits(value: object) -> bool:
    return is_event(value) or _is_loose(value) or _sniff(value) is not None


def _sniff(value: object) -> str | None:
    if is_event(value):
        return "events of a response stream"
    if is_item(value) or (isinstance(value, list) and any(map(is_item, value))):
        return "items of the Responses API"
    request, response = _sides(value)
    if response:
        return "a response with output items"
    is_request = any(isinstance(each.get("input"), str) or any(map(is_item, each["input"])) for _, each in request)
    return "a request with input items" if is_request else None


FORMATS = (Format(NAME, _sniff, _fits, _read),)
