"""SWE-agent `.traj` files, and mini-swe-agent's message lists.

SWE-agent: one object of `{trajectory, history, info, environment}` is a run. Trace id: the digest of its bytes.
- `trajectory` holds the steps `{action, observation, thought}`, `history` the messages. They are two views of one run,
  brought together by their actions in order; what both say counts once, and the other view is a `duplicate_view`.
- A step's observation is `structural`. Where the history's message has `tool_calls` (function calling), these are the calls,
  and the message with their `tool_call_ids` makes the observation that it frames an explicit id. A message that does not
  hold the step's observation (a cut one) is the result itself.
- In text modes the scaffold runs `action` in a shell and names no tool: the call's tool is `shell`, its arguments are the text.
- The first user message is the task, although its `message_type` is `observation`. Demonstrations (`is_demo`) are context.
- A step that was never run (an empty observation after no time) has no result. A step that the scaffold wrote to end the run
  (`exit_cost`, or an observation without an action) is `synthetic_assistant`.
- `response`, `query`, `messages` and `state` repeat or describe a step: they are no blocks. `attempts` are branches.
  `model_stats` are totals of the run; zeros count nothing (replays, people): unknown.

mini-swe-agent: one list of messages, alone or in `{info, messages, trajectory_format}`, is a run.
- A message with `tool_calls` is answered by the tool messages that name its calls. Without them the message itself is the
  action, and the user-role message right behind it is what the scaffold's shell put out: `structural`, never a reply.
- Format errors, limits, and output of commands that were not executed are `harness_text`. A rejection by the user is the
  result of what was rejected. Whatever else stands in the user's name after the task answers nothing.

Not covered: a trajectory without its history has no task; images; sub-agents of the first SWE-agent are no branches.
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import (
    Format,
    Source,
    context_of,
    declared_id,
    read_each,
    request_of,
    task_keys,
)
from experiential_lab.evidence.importers.parts import Part, listed, mapping, parts_of
from experiential_lab.evidence.importers.usage import nano_dollars, summed
from experiential_lab.evidence.spans import Place, Text
from experiential_lab.evidence.trace import Event, Imported, Rejected, Trace
from experiential_lab.records import digest_of, short_id

_replace = msgspec.structs.replace
SWE, MINI = "swe_agent", "mini_swe_agent"
SHELL = "shell"
EXITS = ("exit_context", "exit_cost", "exit_error", "exit_api", "exit_format")  # actions that no model chose
EXIT_OPENINGS = ("Exit due to ", "Exiting due to ")
COUNTS = ("tokens_sent", "tokens_received", "api_calls")

MINI_FORMAT = "mini-swe-agent"
MINI_MARKS = (  # the templates of every version name one of them
    "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    "MINI_SWE_AGENT_FINAL_OUTPUT",
    "MICRO_SWE_AGENT_FINAL_OUTPUT",
    "mswea_bash_command",
    "exactly ONE bash code block with ONE command",
)
OUTPUT_OPENING = "<returncode>"
FORMAT_ERRORS = ("Please always provide EXACTLY ONE action in triple backticks", "Format error:", "Tool call error:")
INTERRUPTS = ("Interrupted by user:", "Temporary interruption caught.")
REJECTIONS = ("Command not executed", "Commands not executed")
OF_A_PERSON = ("The user added a new task:", "User command:")
NOT_EXECUTED = "action was not executed"
SUBMITTED = "Submitted"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# SWE-agent


def _swe_trace(source: Source, record: Framed) -> Trace | None:
    value = record.value
    if not _fits_swe(value):
        return None
    place, info = source.place(record), mapping(value.get("info"))
    events = _Run(place, value).events()
    for at, attempt in enumerate(listed(value.get("attempts"))):
        if _fits_swe(attempt):
            events += _attempt(_Run(place, attempt, f"/attempts/{at}"), is_chosen=_same_run(attempt, value))
    problem = mapping(_replay_config(value).get("problem_statement"))
    statement, stats = problem.get("text"), mapping(info.get("model_stats"))
    return _run_trace(
        source,
        record,
        SWE,
        events,
        task_id=declared_id(problem.get("id")) or declared_id(value.get("instance_id")),
        statement=statement if isinstance(statement, str) and statement else None,
        info=info,
        usage=summed([stats], COUNTS) if stats.get("tokens_sent") else None,
    )


def _run_trace(
    source: Source,
    record: Framed,
    format: str,
    events: list[Event],
    *,
    task_id: str | None,
    info: dict[str, Any],
    usage: tuple[tuple[str, int], ...] | None,
    statement: str | None = None,
) -> Trace:
    """The trace of a run, which has no id of its own."""
    task, cost = request_of(events), mapping(info.get("model_stats")).get("instance_cost")
    return Trace(
        trace_id=short_id(format, digest_of(record.raw)),
        source=source.digest,
        format=format,
        name=task_id or f"record {record.number}",
        keys=task_keys(source, task_id, statement, task),
        task=task,
        context=context_of(events),
        statement=statement,
        complete=True if _text(info.get("exit_status")) else None,
        usage=usage,
        cost_nusd=nano_dollars([cost]) or None,
        events=tuple(events),
    )


def _replay_config(value: dict[str, Any]) -> dict[str, Any]:
    """How the run can be repeated: an object, or the JSON text of one."""
    config = value.get("replay_config")
    try:
        return mapping(json.loads(config) if isinstance(config, str) else config)
    except (ValueError, RecursionError):
        return {}


def _same_run(attempt: dict[str, Any], value: dict[str, Any]) -> bool:
    return all(attempt.get(key) == value.get(key) for key in ("trajectory", "history"))


def _attempt(run: "_Run", *, is_chosen: bool) -> list[Event]:
    """The events of one of several attempts; the chosen one stands in the file's own lists, too."""
    events = run.events()
    if is_chosen:
        events = [_replace(event, aside="duplicate_view") for event in events]
    return events


class _Round(NamedTuple):
    """A message of the agent, and what was written until its next one."""

    part: Part
    message: dict[str, Any]
    others: list[tuple[Part, Any]]

    @property
    def action(self) -> str:
        return _text(self.message.get("action")).strip()

    @property
    def is_calling(self) -> bool:
        return bool(listed(self.message.get("tool_calls")))

    @property
    def answers(self) -> list[tuple[Part, dict[str, Any]]]:
        return [(part, each) for part, each in self.others if _role(each) in ("user", "tool")]


class _Run:
    """The steps and messages of one run as events, each action once."""

    def __init__(self, place: Place, value: dict[str, Any], pointer: str = "") -> None:
        self.branch, self.turn = pointer, 0
        self.steps = parts_of(place, f"{pointer}/trajectory", value["trajectory"]) if _has(value, "trajectory") else []
        self.history = parts_of(place, f"{pointer}/history", value["history"]) if _has(value, "history") else []

    def events(self) -> list[Event]:
        first = next((at for at, (_, each) in enumerate(self.history) if _is_own(each)), len(self.history))
        found = self._preamble(self.history[:first])
        for step, round in self._aligned(_rounds(self.history[first:])):
            self.turn += 1
            found += self._together(step, round)
        return found

    def _preamble(self, messages: list[tuple[Part, Any]]) -> list[Event]:
        """What was said before the first action."""
        found, asked = [], False
        for part, message in messages:
            kind, aside = "context", None
            if _role(message) == "":
                kind, aside = "control", "unknown_role"
            elif _role(message) == "user" and not message.get("is_demo") and not asked:
                kind, asked = "task", True
            found.append(self._event(part, kind, _content(part, message), aside=aside))
        return found

    def _aligned(self, rounds: list[_Round]) -> Iterator[tuple[tuple[Part, Any] | None, _Round | None]]:
        """Steps and messages in order; together where their actions are equal."""
        left = Counter(_key(step) for _, step in self.steps)
        at = 0
        for part, step in self.steps:
            while at < len(rounds) and not (rounds[at].action and left[rounds[at].action]):
                yield None, rounds[at]
                at += 1
            action = _key(step)
            left[action] -= 1
            if at < len(rounds) and action and rounds[at].action == action:
                yield (part, step), rounds[at]
                at += 1
            else:
                yield (part, step), None
        yield from ((None, round) for round in rounds[at:])

    def _together(self, step: tuple[Part, Any] | None, round: _Round | None) -> list[Event]:
        """One action. What the other view repeats comes first, so that the last event is the last that happened."""
        own = self._step(*step) if step else []
        if round is None:
            return own
        thoughts, told, notes = self._thoughts(round), self._told(round), self._notes(round)
        if step is None:
            return thoughts + told + notes
        if not round.is_calling:
            return _copies(told) + notes + thoughts + own
        results = [event for event in own if event.kind == "result"]
        named = [event for event in told if event.kind == "result" and event.call_id and not event.aside]
        acts = [event for event in own if event.kind != "result"]
        if not named:
            is_one = sum(event.kind == "call" for event in told) == 1
            link = round.part.pointer if is_one else None
            return _copies(acts) + notes + thoughts + told + [_replace(event, within=link) for event in results]
        if len(named) == len(results) == 1 and results[0].text.strip() in named[0].text:
            told.remove(named[0])
            answer = _replace(results[0], call_id=named[0].call_id, within=None)
            return _copies([*acts, named[0]]) + notes + thoughts + [*told, answer]
        return _copies(own) + thoughts + told + notes

    def _step(self, part: Part, step: Any) -> list[Event]:
        """The events of one element of the trajectory."""
        if not isinstance(step, dict):
            return [self._event(part, "control", part.whole, aside="unknown_role")]
        action, thought = step.get("action"), step.get("thought") or step.get("response")
        is_act = bool(_action(step))
        is_exit = _action(step) in EXITS or (not is_act and (bool(step.get("observation")) or _is_exit(thought)))
        found = []
        if thought:
            field = "thought" if step.get("thought") else "response"
            found.append(self._event(part, "text", part.value(thought, f"/{field}")))
        if is_act:
            at = part.value(action, "/action")
            found.append(self._event(part, "call", at, tool=SHELL, within=part.pointer))
        if not found:
            found.append(self._event(part, "control", part.whole, aside="empty_message"))
        if is_act or step.get("observation"):
            found += self._observation(part, step)
        return [_synthetic(event) for event in found] if is_exit else found

    def _observation(self, part: Part, step: dict[str, Any]) -> list[Event]:
        observation = step.get("observation")
        if not _was_run(step):
            return []
        at = part.value(observation, "/observation")
        return [self._event(part, "result", at, within=part.pointer, author="environment")]

    def _thoughts(self, round: _Round) -> list[Event]:
        """Private reasoning, which stands in the history alone."""
        found = []
        for field in ("thinking_blocks", "reasoning_content"):
            if round.message.get(field):
                at = round.part.value(round.message[field], f"/{field}")
                found.append(self._event(round.part, "reasoning", at))
        return found

    def _told(self, round: _Round) -> list[Event]:
        """The action and its answers as the history tells them."""
        part, message = round.part, round.message
        calls = listed(message.get("tool_calls"))
        is_act = bool(calls or round.action)
        found = []
        if message.get("content"):
            at, within = _content(part, message), None if is_act else part.pointer
            found.append(self._event(part, "text", at, within=within))
        if round.action and not calls:
            at = part.value(message["action"], "/action")
            found.append(self._event(part, "call", at, tool=SHELL, within=part.pointer))
        found += [self._call(part, f"/tool_calls/{at}", call, len(calls)) for at, call in enumerate(calls)]
        if not found:
            found.append(self._event(part, "control", part.whole, aside="empty_message"))
        is_one = sum(event.kind in ("call", "text") for event in found if event.within) == 1
        for number, (at_part, answer) in enumerate(round.answers):
            found.append(self._answer(at_part, answer, part.pointer if is_one and number == 0 else None))
        return found

    def _call(self, part: Part, inner: str, call: Any, of: int) -> Event:
        return call_event(
            part, inner, call, turn=str(self.turn), branch=self.branch, within=part.pointer if of == 1 else None
        )

    def _answer(self, part: Part, message: dict[str, Any], within: str | None) -> Event:
        ids = [found for each in listed(message.get("tool_call_ids")) if (found := declared_id(each))]
        ids = ids or [found for found in [declared_id(message.get("tool_call_id"))] if found]
        aside = "orphan_result" if len(ids) > 1 else None if ids or within else "harness_text"
        call_id = ids[0] if len(ids) == 1 else None
        at = _content(part, message)
        text = "" if message.get("content") is None else at.text
        return self._event(
            part, "result", at, text=text, call_id=call_id, within=within, author="environment", aside=aside
        )

    def _notes(self, round: _Round) -> list[Event]:
        """What stands between an action and the next, and is no answer."""
        others = [(part, each) for part, each in round.others if _role(each) not in ("user", "tool")]
        asides = ("harness_text" if _role(each) == "system" else "unknown_role" for _, each in others)
        return [
            self._event(part, "control", _content(part, each), aside=aside)
            for (part, each), aside in zip(others, asides, strict=True)
        ]

    def _event(self, part: Part, kind: str, at: Text, **more: Any) -> Event:
        return part.event(kind, at, turn=str(self.turn), branch=self.branch, **more)


def call_event(part: Part, inner: str, call: Any, **more: Any) -> Event:
    """A call in the form of OpenAI's chat: `{id, function: {name, arguments}}`. It quotes itself if it has no arguments."""
    given = mapping(call)
    body = mapping(given.get("function"))
    name, arguments = body.get("name"), body.get("arguments")
    at = part.value(call, inner) if arguments is None else part.value(arguments, f"{inner}/function/arguments")
    return part.event(
        "call",
        at,
        text="" if arguments is None else at.text,
        tool=name if isinstance(name, str) and name else None,
        call_id=declared_id(given.get("id")),
        **more,
    )


def _rounds(messages: list[tuple[Part, Any]]) -> list[_Round]:
    rounds: list[_Round] = []
    for part, message in messages:
        if _is_own(message):
            rounds.append(_Round(part, message, []))
        else:
            rounds[-1].others.append((part, message))
    return rounds


def _copies(events: list[Event]) -> list[Event]:
    return [_replace(event, aside=event.aside or "duplicate_view") for event in events]


def _synthetic(event: Event) -> Event:
    """What the scaffold wrote when it ended the run: neither an action nor an answer."""
    aside = "harness_text" if event.kind == "result" else "synthetic_assistant"
    return _replace(event, kind="control", aside=aside)


def _is_exit(thought: object) -> bool:
    return _text(thought).startswith(EXIT_OPENINGS)


def _is_own(message: object) -> bool:
    """Whether the agent of this run wrote a message."""
    return _role(message) == "assistant" and not mapping(message).get("is_demo")


def _action(step: object) -> str:
    return _text(mapping(step).get("action")).strip()


def _was_run(step: object) -> bool:
    """Whether a step has an observation: one that is empty and took no time was only proposed."""
    given = mapping(step)
    is_proposed = given.get("observation") == "" and given.get("execution_time") == 0
    return given.get("observation") is not None and not is_proposed


def _key(step: object) -> str:
    """What brings a step and its message together; the history does not tell what was not run."""
    return _action(step) if _was_run(step) else ""


def _role(message: object) -> str:
    return _text(mapping(message).get("role"))


def _content(part: Part, message: Any) -> Text:
    """What a message says; the message itself where it says nothing."""
    content = mapping(message).get("content")
    return part.whole if content is None else part.value(content, "/content")


def _has(value: dict[str, Any], key: str) -> bool:
    return isinstance(value.get(key), list)


def _is_step(value: object) -> bool:
    return isinstance(value, dict) and {"action", "observation"} <= value.keys() and "source" not in value


def _is_history(message: object) -> bool:
    return isinstance(message, dict) and "role" in message and ("agent" in message or "message_type" in message)


def _fits_swe(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    found = any(_is_step(each) for each in listed(value.get("trajectory")))
    found = found or any(_is_history(each) for each in listed(value.get("history")))
    return found or ("attempts" in value and any(_fits_swe(each) for each in listed(value["attempts"])))


def _sniff_swe(value: object) -> str | None:
    return "a trajectory of actions with observations, or its history" if _fits_swe(value) else None


# mini-swe-agent


def _read_mini(source: Source) -> Imported:
    """Every run of a source, as traces."""
    loose = [record for record in source.frames.records if _is_message(record.value)]
    if not loose:
        return read_each(source, _mini_trace)
    if source.frames.layout == "list" and source.frames.data and not any(r.reason for r in source.frames.records):
        whole = source.frames.as_one()
        trace = _mini_trace(source, whole)
        rejected = () if trace else (source.rejected(whole, "unknown_shape"),)
        return Imported(traces=(trace,) if trace else (), records=1, rejected=rejected)
    return _loose_messages(source, loose)


def _loose_messages(source: Source, loose: list[Framed]) -> Imported:
    """Runs whose messages are records of their own: one a file."""
    files: dict[str, list[Framed]] = {}
    for record in loose:
        files.setdefault(record.member, []).append(record)
    traces = []
    for records in files.values():
        joined = records[0]._replace(raw=b"\n".join(record.raw for record in records))
        parts = [(Part(source.place(record), record.raw, ""), record.value) for record in records]
        traces.append(_mini(source, joined, parts, {}))
    used = {id(record) for record in loose}
    rejected: list[Rejected] = [
        source.rejected(record, record.reason or "unknown_shape")
        for record in source.frames.records
        if id(record) not in used
    ]
    return Imported(traces=tuple(traces), records=len(source.frames.records), rejected=tuple(rejected))


def _mini_trace(source: Source, record: Framed) -> Trace | None:
    value = record.value
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not any(map(_is_message, messages)):
        return None
    pointer = "/messages" if isinstance(value, dict) else ""
    return _mini(source, record, parts_of(source.place(record), pointer, messages), mapping(value))


def _mini(source: Source, record: Framed, parts: list[tuple[Part, Any]], value: dict[str, Any]) -> Trace:
    info = mapping(value.get("info"))
    usages = [_usage(message) for _, message in parts if _is_output(message)]
    return _run_trace(
        source,
        record,
        MINI,
        _Mini(info, parts).events(),
        task_id=declared_id(value.get("instance_id")) or declared_id(info.get("instance_id")),
        info=info,
        usage=summed(usages) if all(usages) else None,
    )


def _usage(message: dict[str, Any]) -> Any:
    extra = mapping(message.get("extra"))
    return mapping(extra.get("response")).get("usage") or message.get("usage") or {}


class _Mini:
    """The messages of one run as events, in order."""

    def __init__(self, info: dict[str, Any], parts: list[tuple[Part, Any]]) -> None:
        self.parts = parts
        self.turn, self.in_turn, self.acted, self.asked = 0, False, False, False
        self.waiting: str | None = None  # the message that the next one answers, if that was an action
        self.refusable: str | None = None  # the one call of the last message: what a person may refuse
        self.errors = (*FORMAT_ERRORS, *_own_errors(info))
        self.status = _text(info.get("exit_status"))
        self.has_exit = any(_role(message) == "exit" for _, message in parts)

    def events(self) -> list[Event]:
        found: list[Event] = []
        for number, (part, message) in enumerate(self.parts, 1):
            if _is_output(message):
                found += self._output(part, message)
                continue
            found.append(self._other(part, message, is_last=number == len(self.parts)))
            self.in_turn, self.waiting = False, None
        return found

    def _output(self, part: Part, message: dict[str, Any]) -> list[Event]:
        """What the model put out."""
        self.turn += not self.in_turn
        self.in_turn = self.acted = True
        found = self._response(part, message) if _is_response(message) else self._message(part, message)
        calls = [at for at, event in enumerate(found) if event.kind == "call"]
        acts = calls or [at for at, event in enumerate(found) if event.kind == "text"]
        link = f"{part.place.offset}{part.pointer}" if len(acts) == 1 else None
        self.waiting, self.refusable = None if calls else link, link
        if link:
            found[acts[0]] = _replace(found[acts[0]], within=link)
        return found or [self._event(part, message, "control", part.whole, aside="empty_message")]

    def _message(self, part: Part, message: dict[str, Any]) -> list[Event]:
        found = []
        for field, kind in (("reasoning_content", "reasoning"), ("content", "text")):
            if message.get(field):
                at = part.value(message[field], f"/{field}")
                found += [self._event(part, message, kind, at)] if at.text else []
        for at_call, call in enumerate(listed(message.get("tool_calls"))):
            more = {"turn": str(self.turn), "at": _time(message)}
            found.append(call_event(part, f"/tool_calls/{at_call}", call, **more))
        return found

    def _response(self, part: Part, message: dict[str, Any]) -> list[Event]:
        """The items of a body of OpenAI's Responses."""
        return [self._item(part, message, f"/output/{at}", item) for at, item in enumerate(message["output"])]

    def _item(self, part: Part, message: dict[str, Any], inner: str, item: Any) -> Event:
        given = mapping(item)
        kind = given.get("type")
        if kind == "function_call":
            name, arguments = given.get("name"), given.get("arguments")
            at = part.value(item, inner) if arguments is None else part.value(arguments, f"{inner}/arguments")
            text = "" if arguments is None else at.text
            tool = name if isinstance(name, str) and name else None
            call_id = declared_id(given.get("call_id") or given.get("id"))
            return self._event(part, message, "call", at, text=text, tool=tool, call_id=call_id)
        if kind == "message" and given.get("content"):
            return self._event(part, message, "text", part.value(given["content"], f"{inner}/content"))
        if kind == "reasoning":
            return self._event(part, message, "reasoning", part.value(item, inner))
        return self._event(part, message, "control", part.value(item, inner), aside="unknown_role")

    def _other(self, part: Part, message: Any, *, is_last: bool) -> Event:
        role, at = _role(message), _content(part, message)
        if mapping(message).get("type") == "function_call_output":
            return self._result(part, message, part.value(message.get("output"), "/output"), message.get("call_id"))
        if role == "tool":
            return self._result(part, message, at, message.get("tool_call_id"))
        if role == "user":
            return self._user(part, message, at, is_last=is_last)
        if role in ("system", "developer") and not self.acted:
            return self._event(part, message, "context", at)
        aside = "harness_text" if role in ("system", "developer", "exit") else "unknown_role"
        return self._event(part, message, "control", at, aside=aside)

    def _user(self, part: Part, message: dict[str, Any], at: Text, *, is_last: bool) -> Event:
        """What stands in the user's name: the task, what the shell put out, or a word of the harness."""
        kind, text = _text(mapping(message.get("extra")).get("interrupt_type")), at.text
        if not self.acted:
            first, self.asked = not self.asked, True
            return self._event(part, message, "task" if first else "context", at)
        if kind == "UserRejection" or text.startswith(REJECTIONS):
            self.waiting, self.refusable = self.refusable, None
            return self._result(part, message, at, None, author="human", rejected=True)
        if kind == "UserInterruption" or text.startswith(INTERRUPTS):
            return self._event(part, message, "control", at, aside="interrupt_marker")
        if kind == "UserNewTask" or text.startswith(OF_A_PERSON):
            return self._event(part, message, "user", at, author="human", aside="observation_without_action")
        is_failure = is_last and not self.has_exit and self.status not in ("", SUBMITTED)
        if kind or is_failure or self.waiting is None or text.startswith(self.errors):
            return self._event(part, message, "control", at, aside="harness_text")
        return self._result(part, message, at, None)

    def _result(self, part: Part, message: dict[str, Any], at: Text, call_id: object, **more: Any) -> Event:
        extra = mapping(message.get("extra"))
        code, declared = extra.get("returncode"), declared_id(call_id)
        was_run = extra.get("exception_info") != NOT_EXECUTED
        if not was_run:
            more["aside"] = "harness_text"
        elif declared is None and self.waiting is None:
            more["aside"] = "orphan_result"
        is_silent = message.get("output" if "output" in message else "content") is None
        return self._event(
            part,
            message,
            "result",
            at,
            **{
                "text": "" if is_silent else at.text,
                "call_id": declared,
                "within": self.waiting,
                "author": "environment",
                "is_error": code != 0 if type(code) is int else None,
                **more,
            },
        )

    def _event(self, part: Part, message: Any, kind: str, at: Text, **more: Any) -> Event:
        return part.event(kind, at, turn=str(self.turn), at=_time(message), **more)


def _own_errors(info: dict[str, Any]) -> list[str]:
    """How this run's own template for format errors begins."""
    config = mapping(info.get("config"))
    templates = [mapping(config.get(holder)).get("format_error_template") for holder in ("agent", "model")]
    openings = [_text(template).split("{", 1)[0].strip() for template in templates]
    return [opening for opening in openings if len(opening) > len("error")]


def _time(message: object) -> str | None:
    """When a message was written: a text as it stands, or seconds since 1970 as RFC 3339."""
    given = mapping(message)
    stamp = given.get("timestamp") or mapping(given.get("extra")).get("timestamp")
    if isinstance(stamp, str):
        return stamp
    if isinstance(stamp, bool) or not isinstance(stamp, int | float):
        return None
    try:
        return datetime.fromtimestamp(stamp, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def _is_response(message: object) -> bool:
    given = mapping(message)
    return isinstance(given.get("output"), list) and given.get("type") != "function_call_output"


def _is_output(message: object) -> bool:
    return _role(message) == "assistant" or _is_response(message)


def _is_message(value: object) -> bool:
    return bool(_role(value)) or _is_response(value) or mapping(value).get("type") == "function_call_output"


def _is_marked(message: object) -> bool:
    """Whether a message is one of mini-swe-agent's prompts, or output as its templates frame it."""
    role, content = _role(message), mapping(message).get("content")
    if isinstance(content, list):
        content = " ".join(_text(mapping(block).get("text")) for block in content)
    if not isinstance(content, str):
        return False
    is_prompt = role in ("system", "user") and any(mark in content for mark in MINI_MARKS) and "bash" in content
    return is_prompt or (role == "user" and content.startswith(OUTPUT_OPENING))


def sniff_mini(value: object) -> str | None:
    """The rule by which a value is mini-swe-agent's, or None. A chat that it knows is not a chat of people."""
    if isinstance(value, list):
        return "a message list with mini-swe-agent's prompts" if any(map(_is_marked, value[:2])) else None
    given = mapping(value)
    messages, info = given.get("messages"), mapping(given.get("info"))
    if not isinstance(messages, list):
        return "messages with mini-swe-agent's prompts" if _is_marked(value) else None
    if _text(given.get("trajectory_format")).startswith(MINI_FORMAT):
        return f"messages with the trajectory_format {MINI_FORMAT}"
    if "mini_version" in info or {"exit_status", "submission"} <= info.keys():
        return "messages with the exit_status of a run"
    return sniff_mini(messages)


def _fits_mini(value: object) -> bool:
    messages = value.get("messages") if isinstance(value, dict) and "messages" in value else value
    return any(map(_is_message, listed(messages))) or _is_message(value)


FORMATS = (
    Format(SWE, _sniff_swe, _fits_swe, lambda source: read_each(source, _swe_trace)),
    Format(MINI, sniff_mini, _fits_mini, _read_mini),
)
