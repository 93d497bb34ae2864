"""OpenHands V0 events: lists of `{id, source, action | observation, cause}`, and evaluation lines that hold such a history.

- Unit: an event, or a line with a whole history (`history`, `trajectory`; early ones hold pairs of an action and its
  observation). Trace id: the digest of the line, or of the first event, so that a list that grows keeps it. Events stand in
  the order of their `id`.
- An action of the agent is a call, its `message` a text, its `thought` the text beside the call. What the model wrote as the
  call's arguments is quoted where the event holds it, else `args`.
- An observation answers the action that its `cause` names. When both carry the same `tool_call_id` this is an explicit id,
  else it is `structural`; two different ids are an `id_mismatch`. An observation that names neither answers nothing.
- An action that waits for the user's word is written again once that is given: the first is a `duplicate_view`.
- Null observations, agent states, recalls, and what a user does with the agent's tools are `harness_text`.
- The first message of the user is the task; a later one is a reply. In an evaluation nobody replies: there the harness
  speaks in the user's name. What a delegate does is a branch.
- Times have no zone and keep none. Usage is that of the evaluation's list of calls, else the last cumulative count, else the
  sum over the model's responses. No listed price is an unknown price, whatever the total says.

Not covered: what a recall read (its `extras`), images, and events of the V1 SDK.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import Format, Source, context_of, declared_id, request_of, task_keys
from experiential_lab.evidence.importers.parts import Part, in_own_order, listed, mapping, parts_of
from experiential_lab.evidence.importers.usage import nano_dollars, summed
from experiential_lab.evidence.spans import Text
from experiential_lab.evidence.trace import Event, Imported, Trace
from experiential_lab.records import digest_of, short_id

NAME = "openhands"
SOURCES = ("agent", "user", "environment")
HOLDERS = ("history", "trajectory")
HARNESS_ACTIONS = ("change_agent_state", "null", "recall", "condensation_request", "start", "stop", "pause", "resume")
HARNESS_OBSERVATIONS = ("null", "agent_state_changed", "recall", "condense")
NUDGES = ("Please continue working on the task on whatever approach", "Please continue on whatever approach")
PROPOSED = "awaiting_confirmation"
ENDED = ("finished", "rejected", "error")
TOKENS = ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens")


class _Item(NamedTuple):
    """One event, and where it stands."""

    part: Part
    value: Any
    pair: str | None = None
    """Equal for an action and its observation where the file holds them in pairs."""

    @property
    def number(self) -> Any:
        return mapping(self.value).get("id")

    @property
    def action(self) -> str:
        action = mapping(self.value).get("action")
        return action if isinstance(action, str) else ""

    @property
    def observation(self) -> str:
        observation = mapping(self.value).get("observation")
        return observation if isinstance(observation, str) else ""

    @property
    def source(self) -> str:
        source = mapping(self.value).get("source")
        return source if isinstance(source, str) else ""

    @property
    def call(self) -> dict[str, Any]:
        return mapping(mapping(self.value).get("tool_call_metadata"))

    @property
    def call_id(self) -> str | None:
        return declared_id(self.call.get("tool_call_id"))

    @property
    def response(self) -> dict[str, Any]:
        return mapping(self.call.get("model_response"))

    @property
    def args(self) -> dict[str, Any]:
        return mapping(mapping(self.value).get("args"))

    @property
    def is_call(self) -> bool:
        """Whether the agent called a tool: all that it does but messages, its system prompt, and chores."""
        others = (*HARNESS_ACTIONS, "message", "system", "condensation", "")
        return self.source == "agent" and self.action not in others


def _read(source: Source) -> Imported:
    """Every run of a source, as traces."""
    good, rejected = source.readable()
    loose: dict[str, list[_Item]] = {}
    traces = []
    for record in good:
        if _is_event(record.value):
            item = _Item(Part(source.place(record), record.raw, ""), record.value)
            loose.setdefault(_file_of(record), []).append(item)
        elif (items := _held(source, record)) is not None:
            traces.append(_trace(source, record.raw, items, mapping(record.value), f"record {record.number}"))
        else:
            rejected.append(source.rejected(record, "unknown_shape"))
    for items in loose.values():
        items = _ordered(items)
        traces.append(_trace(source, items[0].part.raw, items, {}, "events"))
    rejected.sort(key=lambda each: each.record)
    return Imported(traces=tuple(traces), records=len(source.frames.records), rejected=tuple(rejected))


def _file_of(record: Framed) -> str:
    """The file, or the folder where each event is a file that is named by its id."""
    path = PurePosixPath(record.member)
    return str(path.parent) if path.name == f"{record.value['id']}.json" else record.member


def _held(source: Source, record: Framed) -> list[_Item] | None:
    """The events inside one record; None when it holds none."""
    value, pointer = record.value, ""
    if isinstance(value, dict):
        key = next((key for key in HOLDERS if _holds_events(value.get(key))), None)
        if key is None:
            return None
        value, pointer = value[key], f"/{key}"
    elif not _holds_events(value):
        return None
    place, items = source.place(record), []
    for part, each in parts_of(place, pointer, value):
        if isinstance(each, list):
            items += [_Item(*inner, pair=part.pointer) for inner in parts_of(place, part.pointer, each)]
        else:
            items.append(_Item(part, each))
    return _ordered(items)


def _holds_events(value: object) -> bool:
    return any(_is_event(each) or any(map(_is_event, listed(each))) for each in listed(value))


def _ordered(items: list[_Item]) -> list[_Item]:
    return in_own_order(items, [item.number for item in items])


def _trace(source: Source, raw: bytes, items: list[_Item], value: dict[str, Any], name: str) -> Trace:
    instance = mapping(value.get("instance"))
    task_id = declared_id(value.get("instance_id")) or declared_id(instance.get("instance_id"))
    events = _Run(items, is_evaluation=task_id is not None).events()
    statement, task = instance.get("problem_statement"), request_of(events)
    statement = statement if isinstance(statement, str) and statement else None
    tools = next((item.args["tools"] for item in items if item.action == "system" and "tools" in item.args), None)
    return Trace(
        trace_id=short_id(NAME, digest_of(raw)),
        source=source.digest,
        format=NAME,
        name=task_id or name,
        keys=task_keys(source, task_id, statement, task),
        task=task,
        context=context_of(events),
        statement=statement,
        declared_tools=len(tools) if isinstance(tools, list) else None,
        complete=True if any(map(_ends, items)) else None,
        usage=_usage(items, mapping(value.get("metrics"))),
        cost_nusd=_cost(items, mapping(value.get("metrics"))),
        events=tuple(events),
    )


def _ends(item: _Item) -> bool:
    state = mapping(mapping(item.value).get("extras")).get("agent_state")
    return (item.is_call and item.action in ("finish", "reject")) or (
        item.observation == "agent_state_changed" and state in ENDED
    )


def _usage(items: list[_Item], metrics: dict[str, Any]) -> tuple[tuple[str, int], ...] | None:
    if listed(metrics.get("token_usages")):
        return summed(metrics["token_usages"], TOKENS)
    cumulative = _cumulative(items).get("accumulated_token_usage")
    if cumulative:
        return summed([cumulative], TOKENS)
    responses: dict[object, Any] = {}
    for number, item in enumerate(items):
        if item.is_call or (item.source == "agent" and item.action == "message"):
            key = declared_id(item.response.get("id")) or number
            responses[key] = item.response.get("usage") or responses.get(key)
    return summed(responses.values(), TOKENS[:2]) if all(responses.values()) else None


def _cost(items: list[_Item], metrics: dict[str, Any]) -> int | None:
    costs = listed(metrics.get("costs"))
    if costs:
        return nano_dollars(mapping(each).get("cost") for each in costs)
    total = metrics.get("accumulated_cost") or _cumulative(items).get("accumulated_cost")
    return nano_dollars([total]) if total else None


def _cumulative(items: list[_Item]) -> dict[str, Any]:
    """What the last event that counts says was used until then."""
    counters = (mapping(mapping(item.value).get("llm_metrics")) for item in reversed(items))
    return next((each for each in counters if each), {})


class _Run:
    """The events of one run, in order."""

    def __init__(self, items: list[_Item], *, is_evaluation: bool) -> None:
        self.items, self.is_evaluation = items, is_evaluation
        actions = [item for item in items if item.action and declared_id(item.number)]
        often = Counter(declared_id(item.number) for item in actions)
        self.causes = {declared_id(item.number): item for item in actions if often[declared_id(item.number)] == 1}
        self.pairs = {item.pair: item for item in items if item.pair and item.is_call}
        self.decided = {_proposal(item) for item in items if item.is_call and not _is_proposed(item)}
        self.turn, self.response = 0, ""
        self.in_turn = self.acted = self.asked = False
        self.delegates: list[str] = []

    def events(self) -> list[Event]:
        return [event for item in self.items for event in self._item(item)]

    def _item(self, item: _Item) -> Iterator[Event]:
        if item.action:
            yield from self._action(item)
            return
        self.in_turn = False
        if item.observation:
            yield self._observation(item)
        else:
            yield self._event(item, "control", item.part.whole, aside="unknown_role")

    def _action(self, item: _Item) -> Iterator[Event]:
        if item.is_call or (item.source == "agent" and item.action == "message"):
            self._begin(item)
            yield from self._call(item) if item.is_call else self._said(item)
            return
        self.in_turn = False
        if item.action == "message" and item.source == "user":
            yield self._user(item)
        elif item.action == "system" and not self.acted:
            yield self._event(item, "context", self._content(item))
        else:
            aside = "compaction_summary" if item.action == "condensation" else "harness_text"
            yield self._event(item, "control", self._content(item), aside=aside)

    def _begin(self, item: _Item) -> None:
        """An action belongs to the turn of its model response, and without one to the run of output that it stands in."""
        response = declared_id(item.response.get("id")) or ""
        if response != self.response or (not response and not self.in_turn):
            self.turn += 1
        self.response, self.in_turn, self.acted = response, True, True

    def _said(self, item: _Item) -> Iterator[Event]:
        at = self._content(item)
        if item.args.get("content"):
            yield self._event(item, "text", at)
        else:
            yield self._event(item, "control", at, aside="empty_message")

    def _call(self, item: _Item) -> Iterator[Event]:
        thought = item.args.get("thought")
        aside = "duplicate_view" if _is_proposed(item) and _proposal(item) in self.decided else None
        if thought and item.action != "think":  # there it is the argument
            yield self._event(item, "text", item.part.value(thought, "/args/thought"), aside=aside)
        quoted, tool = _arguments(item)
        yield self._event(
            item,
            "call",
            quoted,
            text="" if quoted.pointer == item.part.pointer else quoted.text,
            tool=tool,
            call_id=item.call_id,
            within=self._link(item),
            aside=aside,
        )
        if item.action == "delegate" and aside is None:
            self.delegates.append(self._link(item) or item.part.pointer)

    def _link(self, item: _Item) -> str | None:
        """What an action shares with the observations that it caused."""
        number = declared_id(item.number)
        if number and self.causes.get(number) is item:
            return f"cause {number}"
        return f"pair {item.pair}" if item.pair and self.pairs.get(item.pair) is item else None

    def _user(self, item: _Item) -> Event:
        at = self._content(item)
        if self.delegates:
            return self._event(item, "control", at, aside="sidechain_prompt")
        is_first, self.asked = not self.asked, True
        if is_first:
            return self._event(item, "task", at)
        if self.is_evaluation or at.text.startswith(NUDGES):
            return self._event(item, "control", at, aside="harness_text")
        return self._event(item, "user" if self.acted else "context", at)

    def _observation(self, item: _Item) -> Event:
        at = self._content(item)
        if item.observation in HARNESS_OBSERVATIONS:
            is_read = item.observation == "recall" and not self.acted
            return self._event(item, "context" if is_read else "control", at, aside=None if is_read else "harness_text")
        cause = self._cause(item)
        if item.observation == "delegate" and self.delegates:
            self.delegates.pop()
        if not self.acted:
            return self._event(item, "context", at)
        call_id, within, aside = self._answers(item, cause)
        is_refusal = item.observation == "user_rejected"
        return self._event(
            item,
            "result",
            at,
            text=at.text if mapping(item.value).get("content") is not None else "",
            call_id=call_id,
            within=within,
            author="human" if is_refusal else "environment",
            is_error=None if is_refusal else _is_error(item),
            rejected=is_refusal,
            aside=aside,
        )

    def _cause(self, item: _Item) -> _Item | None:
        number = declared_id(mapping(item.value).get("cause"))
        cause = self.causes.get(number) if number else None
        return cause or (self.pairs.get(item.pair) if item.pair and number is None else None)

    def _answers(self, item: _Item, cause: _Item | None) -> tuple[str | None, str | None, str | None]:
        """(call id, link, reason why it answers nothing) of an observation."""
        if cause is None:
            has_cause = declared_id(mapping(item.value).get("cause")) is not None
            is_open = item.call_id is not None and not has_cause
            return (item.call_id, None, None) if is_open else (None, None, "orphan_result")
        if not cause.is_call:
            return None, None, "observation_without_action"
        if item.call_id and cause.call_id and item.call_id != cause.call_id:
            return None, None, "id_mismatch"
        return item.call_id if cause.call_id else None, self._link(cause), None

    def _content(self, item: _Item) -> Text:
        """What an event says; the event itself where it says nothing."""
        for value, pointer in ((item.args.get("content"), "/args/content"), (item.value.get("content"), "/content")):
            if value is not None:
                return item.part.value(value, pointer)
        return item.part.whole

    def _event(self, item: _Item, kind: str, quoted: Text, **more: Any) -> Event:
        at = mapping(item.value).get("timestamp")
        at = at if isinstance(at, str) and at else None
        branch = "/".join(self.delegates)
        return item.part.event(kind, quoted, turn=str(self.turn), branch=branch, at=at, **more)


def _is_proposed(item: _Item) -> bool:
    return item.args.get("confirmation_state") == PROPOSED


def _proposal(item: _Item) -> tuple[object, ...]:
    """What an action has in common with itself after the user has decided about it."""
    args = {key: value for key, value in item.args.items() if key != "confirmation_state"}
    return item.call_id, item.action, json.dumps(args, sort_keys=True)


def _arguments(item: _Item) -> tuple[Text, str]:
    """The arguments of a call and its tool: as the model wrote them, else those of the action that it became."""
    inner = "/tool_call_metadata/model_response/choices"
    found = [
        (call, f"{inner}/{choice}/message/tool_calls/{at}/function")
        for choice, each in enumerate(listed(item.response.get("choices")))
        for at, call in enumerate(listed(mapping(mapping(each).get("message")).get("tool_calls")))
        if item.call_id and declared_id(mapping(call).get("id")) == item.call_id
    ]
    named = item.call.get("function_name")
    tool = named if isinstance(named, str) and named else item.action
    if len(found) == 1:
        call, pointer = found[0]
        arguments = mapping(call.get("function")).get("arguments")
        if isinstance(arguments, str | dict):
            return item.part.value(arguments, f"{pointer}/arguments"), tool
    if "args" in item.value:
        return item.part.value(item.value["args"], "/args"), tool
    return item.part.whole, tool


def _is_error(item: _Item) -> bool | None:
    """What the event declares: an error, a success, or the exit code of a command."""
    extras = mapping(item.value.get("extras"))
    code = extras.get("exit_code", mapping(extras.get("metadata")).get("exit_code"))
    success = item.value.get("success")
    if item.observation == "error":
        return True
    if isinstance(success, bool):
        return not success
    return code != 0 if type(code) is int else None


def _is_event(value: object) -> bool:
    given = mapping(value)
    is_one = isinstance(given.get("action"), str) != isinstance(given.get("observation"), str)
    return is_one and given.get("source") in SOURCES and type(given.get("id")) is int


def _sniff(value: object) -> str | None:
    if _is_event(value):
        return "events with id, source, and action or observation"
    held = value if isinstance(value, list) else next((v for k in HOLDERS if (v := mapping(value).get(k))), None)
    return "a history of events with id, source, and action or observation" if _holds_events(held) else None


FORMATS = (Format(NAME, _sniff, lambda value: _sniff(value) is not None, _read),)
