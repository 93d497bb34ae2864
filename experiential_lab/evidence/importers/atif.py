"""ATIF trajectories (Agent Trajectory Interchange Format, 1.0 to 1.8): objects of `{schema_version, session_id, steps}`.

- Unit: a trajectory. Trace id: the session, with the trajectory's own id and its number as a continuation where they are
  declared (a session may be shared by both), else the digest of the record's bytes. Steps stand in the order of `step_id`.
- An agent step is one model output. Agent steps that follow each other without an observation are one turn.
- A result that declares a `source_call_id` pairs by it. One without is `structural` when its step holds no other result and
  at most one call: then it answers this call, or else the message. All other results without an id answer nothing.
- A result that only refers to a sub-agent's trajectory has no text here: it is no observation, and its call stays open.
- System steps are context until the agent acts, later `harness_text`. One that holds an observation or manages the context
  is a hand-off: a boundary.
- The first user step is the task, a later one is a user's message. Hand-off prompts of terminus-2 are `harness_text`.
- Steps marked `is_copied_context` were seen, but count elsewhere: `replayed_history`. Trajectories that stand inside another
  one are its branches, and what they are told is a `sidechain_prompt`.
- Usage and cost are the sums of the steps' own metrics. `final_metrics` may count sub-agents and earlier parts: it is unused.

Not covered: images, and trajectories in files of their own that a step refers to.
"""

import re
from typing import Any

import msgspec

from experiential_lab.evidence.framing import Framed
from experiential_lab.evidence.importers.format import (
    Format,
    Source,
    context_of,
    declared_id,
    read_each,
    request_of,
)
from experiential_lab.evidence.importers.parts import Part, in_own_order, listed, mapping, named, parts_of
from experiential_lab.evidence.importers.usage import nano_dollars, summed
from experiential_lab.evidence.spans import Place, Text
from experiential_lab.evidence.trace import Event, Trace
from experiential_lab.records import digest_of, short_id

NAME = "atif"
VERSION = "ATIF-v"
HANDOFF_OPENINGS = (  # terminus-2 tells itself in the user's name what it summarised
    "You are picking up work from a previous AI agent",
    "Here are the answers the other agent provided",
)
PARENT = re.compile(r"(?s)(.+)-(?:cont-\d+|summarization-\d+-\w+)")  # how terminus-2 names the parts of a session
TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens")


def _trace(source: Source, record: Framed) -> Trace | None:
    value = record.value
    if not _fits(value):
        return None
    document = _Document(source.place(record), value)
    events = document.events()
    session, part = declared_id(value.get("session_id")), _continuation(value)
    ids = [declared_id(value.get("trajectory_id")), f"continuation {part}" if part else None]
    tools = mapping(value.get("agent")).get("tool_definitions")
    metrics = document.metrics()
    return Trace(
        trace_id=short_id(NAME, session, *filter(None, ids)) if session else short_id(NAME, digest_of(record.raw)),
        source=source.digest,
        format=NAME,
        name=(f"session {session[:40]}" if session else f"record {record.number}") + (f", part {part}" if part else ""),
        keys=_keys(value, session),
        task=request_of(events),
        context=context_of(events),
        declared_tools=len(tools) if isinstance(tools, list) else None,
        usage=summed(metrics, TOKENS),
        cost_nusd=nano_dollars(mapping(each).get("cost_usd") for each in metrics),
        events=tuple(events),
    )


def _continuation(value: dict[str, Any]) -> int | None:
    part = mapping(mapping(value.get("agent")).get("extra")).get("continuation_index")
    return part if isinstance(part, int) and not isinstance(part, bool) else None


def _keys(value: dict[str, Any], session: str | None) -> tuple[str, ...]:
    """Its session, the session whose part it is, and the sessions of the sub-agents that it refers to."""
    keys = {f"session:{session}"} if session else set()
    parent = PARENT.fullmatch(session or "")
    if parent:
        keys.add(f"parent:{parent[1]}")
    for step in value["steps"]:
        for _, result in _results(step):
            references = mapping(result).get("subagent_trajectory_ref")
            for reference in references if isinstance(references, list) else [references]:
                child = declared_id(mapping(reference).get("session_id"))
                keys |= {f"session:{child}"} if child else set()
    return tuple(sorted(keys))


def _results(step: object) -> list[tuple[str, Any]]:
    """(pointer, result) of each result of a step. An observation of another shape is one result."""
    observation = mapping(step).get("observation")
    results = mapping(observation).get("results")
    if isinstance(results, list):
        return [(f"/observation/results/{at}", result) for at, result in enumerate(results)]
    return [("/observation", observation)] if observation not in (None, {}) else []


def _is_reference(result: object) -> bool:
    """Whether a result only says where a sub-agent's trajectory stands."""
    given = mapping(result)
    return given.get("content") is None and bool(given.get("subagent_trajectory_ref"))


class _Document:
    """The steps of one trajectory as events. A trajectory inside another one is a branch, named by its pointer."""

    def __init__(self, place: Place, value: dict[str, Any], pointer: str = "") -> None:
        self.place, self.value, self.branch = place, value, pointer
        self.turn, self.goes_on = 0, False  # the turn ends with an observation, or when somebody else speaks
        self.acted = self.asked = False
        self.children: list[_Document] = []

    def events(self) -> list[Event]:
        found = []
        for part, step in self._steps():
            new = self._step(part, step)
            if mapping(step).get("is_copied_context") is True:
                new = [msgspec.structs.replace(event, aside="replayed_history") for event in new]
            found += new
        children = listed(self.value.get("subagent_trajectories"))
        if children:
            for part, child in parts_of(self.place, f"{self.branch}/subagent_trajectories", children):
                found += self._child(part, child)
        return found

    def metrics(self) -> list[object]:
        """What each model call of these steps counted; None for one that counted nothing."""
        own = [
            step.get("metrics")
            for step in self.value["steps"]
            if isinstance(step, dict) and step.get("source") == "agent" and _was_called(step)
        ]
        return own + [each for child in self.children for each in child.metrics()]

    def _steps(self) -> list[tuple[Part, Any]]:
        steps = parts_of(self.place, f"{self.branch}/steps", self.value["steps"])
        return in_own_order(steps, [mapping(step).get("step_id") for _, step in steps])

    def _child(self, part: Part, child: Any) -> list[Event]:
        if not _fits(child):
            return [part.event("control", part.whole, turn="0", branch=self.branch, aside="unknown_role")]
        self.children.append(_Document(self.place, child, part.pointer))
        return self.children[-1].events()

    def _step(self, part: Part, step: Any) -> list[Event]:
        source = mapping(step).get("source")
        if source == "agent":
            self.asked = self.acted = True
            return self._agent(part, step)
        self.goes_on = False
        if source not in ("user", "system"):
            return [self._event(part, step, "control", part.whole, aside="unknown_role")]
        results = _results(step)
        message = step.get("message")
        at = part.whole if message is None else part.value(message, "/message")
        said = self._user(part, step, at) if source == "user" else self._system(part, step, at, bool(results))
        notes = (self._event(part, step, "control", part.value(each, inner)) for inner, each in results)
        return [said, *(msgspec.structs.replace(note, aside="harness_text") for note in notes)]

    def _user(self, part: Part, step: dict[str, Any], at: Text) -> Event:
        if self.branch:
            return self._event(part, step, "control", at, aside="sidechain_prompt")
        if (self.asked and at.text.startswith(HANDOFF_OPENINGS)) or step.get("message") is None:
            return self._event(part, step, "control", at, aside="harness_text")
        kind = "user" if self.acted else "context" if self.asked else "task"
        self.asked = True
        return self._event(part, step, kind, at)

    def _system(self, part: Part, step: dict[str, Any], at: Text, has_results: bool) -> Event:
        if not self.acted:
            return self._event(part, step, "context", at)
        if has_results or mapping(step.get("extra")).get("context_management"):
            return self._event(part, step, "boundary", at)
        return self._event(part, step, "control", at, aside="harness_text")

    def _agent(self, part: Part, step: dict[str, Any]) -> list[Event]:
        calls, results = _calls(step), _results(step)
        answers = [result for _, result in results if not _is_reference(result)]
        if not self.goes_on or (answers and not calls):
            self.turn += 1
        self.goes_on = not results
        is_alone = len(answers) == 1 and len(calls) <= 1 and _source_id(answers[0]) is None
        within = part.pointer if is_alone else None
        found = self._said(part, step, None if calls else within)
        found += [self._call(part, step, inner, call, within) for inner, call in calls]
        acts = any(event.kind in ("call", "text") for event in found)
        if not found:
            found.append(self._event(part, step, "control", part.whole, aside="empty_message"))
        for inner, result in results:
            found.append(self._result(part, step, inner, result, within, None if acts else "orphan_result"))
        return found

    def _said(self, part: Part, step: dict[str, Any], within: str | None) -> list[Event]:
        found = []
        thought, message = step.get("reasoning_content"), step.get("message")
        if thought:
            found.append(self._event(part, step, "reasoning", part.value(thought, "/reasoning_content")))
        if message:
            at = part.value(message, "/message")
            found += [self._event(part, step, "text", at, within=within)] if at.text else []
        return found

    def _call(self, part: Part, step: dict[str, Any], inner: str, call: Any, within: str | None) -> Event:
        given = mapping(call)
        name, arguments = given.get("function_name"), given.get("arguments")
        at = part.value(call, inner) if arguments is None else part.value(arguments, f"{inner}/arguments")
        return self._event(
            part,
            step,
            "call",
            at,
            text="" if arguments is None else at.text,
            tool=named(name),
            call_id=declared_id(given.get("tool_call_id")),
            within=within,
        )

    def _result(
        self, part: Part, step: dict[str, Any], inner: str, result: Any, within: str | None, aside: str | None
    ) -> Event:
        if _is_reference(result):
            return self._event(part, step, "control", part.value(result, inner), aside="harness_text")
        content = mapping(result).get("content")
        at = part.value(result, inner) if content is None else part.value(content, f"{inner}/content")
        return self._event(
            part,
            step,
            "result",
            at,
            text="" if content is None and isinstance(result, dict) else at.text,
            call_id=_source_id(result),
            within=within,
            author="environment",
            aside=aside,
        )

    def _event(self, part: Part, step: Any, kind: str, quoted: Text, **more: Any) -> Event:
        at = named(mapping(step).get("timestamp"))
        return part.event(kind, quoted, turn=str(self.turn), branch=self.branch, at=at, **more)


def _calls(step: dict[str, Any]) -> list[tuple[str, Any]]:
    calls = step.get("tool_calls")
    if isinstance(calls, list):
        return [(f"/tool_calls/{at}", call) for at, call in enumerate(calls)]
    return [("/tool_calls", calls)] if calls else []


def _source_id(result: object) -> str | None:
    return declared_id(mapping(result).get("source_call_id"))


def _was_called(step: dict[str, Any]) -> bool:
    """Whether a model made this step here: not in another part of the run, and not the scaffold by itself."""
    return step.get("is_copied_context") is not True and step.get("llm_call_count") != 0


def _fits(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("steps"), list)


def _sniff(value: object) -> str | None:
    version = mapping(value).get("schema_version")
    is_ours = isinstance(version, str) and version.startswith(VERSION) and _fits(value)
    return f"steps with a schema_version {VERSION}" if is_ours else None


FORMATS = (Format(NAME, _sniff, _fits, lambda source: read_each(source, _trace)),)
