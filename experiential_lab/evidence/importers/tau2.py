"""tau2-bench: text runs of `{timestamp, info, tasks, simulations}`, and simulations in files of their own.

- Unit: a simulation is a trace; its id is its identity. All trials of a task are one lineage.
- Users call tools, too. The agent sees neither their calls nor the results: both are set aside, with what is said beside.
- The user is a model (`simulated_user`). A message that is only a stop marker is a `control_token`. What it was told to
  want (`user_scenario`) is the statement; the agent's policy is context.
- The scaffold's greeting is no action: where other answers state what they used, one that does not was not generated.
- Messages stand in the order of `turn_idx`, where each has one.
- Usage and cost are the agent's. A cost of zero for used tokens is how the benchmark writes an unknown one.

Voice (`mode: full_duplex`): speech in ticks of a fraction of a second has no turns that anybody recorded, and in the real
files no words. Such a simulation is refused (`unknown_shape`), and so is the head of a run without simulations.

Text runs are known from the benchmark's documentation and code only: none is among the real files. Not covered: audio
content, tool calls inside ticks, reasoning inside the provider's raw answer.
"""

from functools import cached_property
from typing import Any

import msgspec

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import Format, Source, declared_id
from experiential_lab.evidence.importers.inspect_events import Quote, note, quote
from experiential_lab.evidence.importers.parts import Part, listed, mapping, named
from experiential_lab.evidence.importers.usage import in_nano_dollars, nano_dollars, summed
from experiential_lab.evidence.trace import Event, Imported, Trace
from experiential_lab.records import digest_of, short_id

NAME = "tau2_bench"
STOPS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
ENDED = ("user_stop", "agent_stop")
POLICY = "/info/environment_info/policy"


def _read(source: Source) -> Imported:
    """Every simulation of a source, as traces."""
    good, rejected = source.readable()
    traces: list[Trace] = []
    for record in good:
        every = _simulations(source, record)
        talks = [simulation for simulation in every if simulation.events]
        if talks:
            talks[0].notes += [note("unknown_role", each.part) for each in every if not each.events]
            traces += [simulation.trace() for simulation in talks]
        else:
            rejected.append(source.rejected(record, "unknown_shape"))
    rejected.sort(key=lambda each: each.record)
    return Imported(traces=tuple(traces), records=len(source.frames.records), rejected=tuple(rejected))


def _simulations(source: Source, record: Framed) -> list["_Simulation"]:
    value, whole = record.value, Part(source.place(record), record.raw)
    if isinstance(value, dict) and isinstance(value.get("simulations"), list):
        parts = whole.below("/simulations").elements(value["simulations"])
        return [
            _Simulation(record, part, mapping(each), value)
            for part, each in zip(parts, value["simulations"], strict=True)
        ]
    return [_Simulation(record, whole, value, {})] if _is_simulation(value) else []


class _Simulation:
    """One simulation, and the run that it is part of."""

    def __init__(self, record: Framed, part: Part, value: dict[str, Any], run: dict[str, Any]) -> None:
        self.record, self.part, self.value, self.run = record, part, value, run
        self.info = mapping(run.get("info"))
        self.ident, self.task_id = declared_id(value.get("id")), declared_id(value.get("task_id"))
        tasks = [task for task in map(mapping, listed(run.get("tasks"))) if declared_id(task.get("id")) == self.task_id]
        self.declared = tasks[0] if tasks and self.task_id else {}
        self.notes: list[Event] = []

    @cached_property
    def messages(self) -> list[tuple[dict[str, Any], Part]]:
        """Every message with its place, in the order in which they were said."""
        given = [] if _is_voice(self.value) else listed(self.value.get("messages"))
        found: list[tuple[dict[str, Any], Part]] = []
        for message, part in zip(given, self.part.below("/messages").elements(given) if given else [], strict=True):
            several = listed(mapping(message).get("tool_messages"))
            if several:
                parts = part.below("/tool_messages").elements(several)
                found += [(mapping(each), inside) for each, inside in zip(several, parts, strict=True)]
            else:
                found.append((mapping(message), part))
        turns = [message.get("turn_idx") for message, _ in found]
        if all(type(turn) is int for turn in turns):
            found.sort(key=lambda each: int(each[0]["turn_idx"]))
        return found

    @cached_property
    def generated(self) -> list[dict[str, Any]]:
        """The answers of the agent's model: if any states what it used, those that do."""
        answers = [message for message, _ in self.messages if message.get("role") == "assistant"]
        return [message for message in answers if _is_measured(message)] or answers

    @cached_property
    def events(self) -> list[Event]:
        """What was said, after the policy; nothing where nobody spoke."""
        talk = _Talk(self)
        said = [event for message, part in self.messages for event in talk.message(message, part)]
        policy = mapping(self.info.get("environment_info")).get("policy")
        if not said or not isinstance(policy, str):
            return said
        at = Part(self.part.place, self.part.place.raw).value(policy, POLICY)
        return [Event(kind="context", turn="0", span=self.part.place.span(at), text=policy), *said]

    def trace(self) -> Trace:
        trial = declared_id(self.value.get("trial"))
        name = [f"{key} {ident}" for key, ident in (("task", self.task_id), ("trial", trial)) if ident]
        tools = mapping(self.info.get("environment_info")).get("tool_defs")
        declared = [self.ident] if self.ident else [digest_of(self.record.raw), self.part.pointer]
        context = [event.text for event in self.events if event.kind == "context"]
        return Trace(
            trace_id=short_id(NAME, *declared),
            source=self.part.place.source,
            format=NAME,
            name=", ".join(name) or "simulation",
            keys=self._keys(),
            task=next((event.text for event in self.events if event.kind == "task"), self._ticket()),
            context="\n\n".join(context) or None,
            statement=self._statement(),
            declared_tools=len(tools) if isinstance(tools, list | dict) else None,
            complete=True if self.value.get("termination_reason") in ENDED else None,
            usage=self._usage(),
            cost_nusd=self._cost(),
            events=(*self.events, *self.notes),
        )

    def _statement(self) -> str | None:
        """What the user was told to want."""
        told = mapping(self.declared.get("user_scenario")).get("instructions")
        texts = [told] if isinstance(told, str) else [each for each in mapping(told).values() if isinstance(each, str)]
        return "\n".join(texts) or None

    def _ticket(self) -> str | None:
        """What an agent that works alone is given in the place of a user."""
        ticket = self.declared.get("ticket")
        is_alone = "solo" in str(mapping(self.info.get("agent_info")).get("implementation"))
        return ticket if is_alone and isinstance(ticket, str) else None

    def _keys(self) -> tuple[str, ...]:
        keys = [f"session:{self.ident}"] if self.ident else []
        if self.task_id:
            statement = self._statement()
            keys.append(f"task:{short_id(statement) if statement else self.part.place.source[7:23]}:{self.task_id}")
        return tuple(sorted(keys))

    def _usage(self) -> tuple[tuple[str, int], ...] | None:
        return summed(message.get("usage") for message in self.generated)

    def _cost(self) -> int | None:
        stated = in_nano_dollars(self.value.get("agent_cost"))
        if stated is None and self.generated:
            stated = nano_dollars(message.get("cost") for message in self.generated)
        return stated or None


class _Talk:
    """Turns the messages of a simulation into events, in order."""

    def __init__(self, simulation: _Simulation) -> None:
        self.simulation = simulation
        self.ours = {id(message) for message in simulation.generated}
        self.turn, self.in_turn, self.acted, self.asked = 0, False, False, False
        self.caller = "assistant"
        """Who called a tool last."""

    def message(self, message: dict[str, Any], part: Part) -> list[Event]:
        role, is_audio = message.get("role"), message.get("is_audio") is True
        if role == "assistant" and not is_audio:
            found = self._assistant(message, part)
        else:
            self.in_turn = False
            said = self._said(message, part)
            if role == "user" and not is_audio:
                found = self._user(message, part, said)
            elif role == "tool" and not is_audio:
                found = [self._result(message, said)]
            elif role == "system":
                aside = "harness_text" if self.acted else None
                found = [self._event("control" if aside else "context", said, aside=aside)]
            else:
                found = [self._event("control", quote(part.whole), aside="unknown_role")]
        at = message.get("timestamp")
        return [msgspec.structs.replace(event, at=at) for event in found] if isinstance(at, str) else found

    def _assistant(self, message: dict[str, Any], part: Part) -> list[Event]:
        is_ours = id(message) in self.ours
        self.turn += is_ours and not self.in_turn
        self.in_turn = is_ours
        self.acted |= is_ours
        said = self._said(message, part)
        found = [self._event("text", said)] if said.text else []
        found += self._calls(message, part)
        found = found or [self._event("control", quote(part.whole), aside="empty_message")]
        return found if is_ours else [msgspec.structs.replace(each, aside="synthetic_assistant") for each in found]

    def _calls(self, message: dict[str, Any], part: Part) -> list[Event]:
        found: list[Event] = []
        for number, given in enumerate(listed(message.get("tool_calls"))):
            call, at = mapping(given), part.below(f"/tool_calls/{number}")
            arguments = call.get("arguments")
            said = Quote(at.whole, "") if arguments is None else quote(at.value(arguments, "/arguments"))
            about = {"tool": named(call.get("name")), "call_id": declared_id(call.get("id"))}
            found.append(self._event("call", said, **about))
        if found:
            self.caller = str(message.get("role"))
        return found

    def _user(self, message: dict[str, Any], part: Part, said: Quote) -> list[Event]:
        calls = self._calls(message, part)
        if calls:  # to the environment, not to the agent
            found = [self._event("control", said)] if said.text else []
            return [msgspec.structs.replace(event, kind="control", aside="harness_text") for event in found + calls]
        is_stop = any(stop in said.text for stop in STOPS)
        if is_stop and not _without_stops(said.text):
            return [self._event("control", said, aside="control_token", stop=True)]
        kind = "task" if not self.asked else "user" if self.acted else "context"
        self.asked = True
        return [self._event(kind, said, author="simulated_user", stop=is_stop)]

    def _result(self, message: dict[str, Any], said: Quote) -> Event:
        if (message.get("requestor") or self.caller) == "user":
            return self._event("control", said, aside="harness_text")
        if not self.acted:
            return self._event("context", said)
        error = message.get("error")
        is_error = error if isinstance(error, bool) else None
        call_id = declared_id(message.get("id"))
        return self._event("result", said, call_id=call_id, author="environment", is_error=is_error)

    def _said(self, message: dict[str, Any], part: Part) -> Quote:
        content = message.get("content")
        return Quote(part.whole, "") if content is None else quote(part.value(content, "/content"))

    def _event(self, kind: Any, said: Quote, **more: Any) -> Event:
        span = self.simulation.part.place.span(said.at)
        return Event(kind=kind, turn=str(self.turn), span=span, text=said.text, **more)


def _without_stops(text: str) -> str:
    for stop in STOPS:
        text = text.replace(stop, "")
    return text.strip()


def _is_measured(message: dict[str, Any]) -> bool:
    return isinstance(message.get("usage"), dict) or isinstance(message.get("raw_data"), dict)


def _is_voice(value: dict[str, Any]) -> bool:
    return value.get("mode") == "full_duplex" or isinstance(value.get("ticks"), list)


def _is_run(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("tasks"), list) or not mapping(value.get("info")):
        return False
    return isinstance(value.get("simulations"), list) or {"agent_info", "user_info"} <= value["info"].keys()


def _is_simulation(value: object) -> bool:
    if not isinstance(value, dict) or not {"task_id", "termination_reason"} <= value.keys():
        return False
    return isinstance(value.get("messages"), list) or isinstance(value.get("ticks"), list)


def _sniff(value: object) -> str | None:
    if _is_run(value):
        return "info, tasks and simulations of a run"
    return "a simulation with task_id and termination_reason" if _is_simulation(value) else None


FORMATS = (Format(NAME, _sniff, lambda value: _sniff(value) is not None, _read),)
