"""The ledger: events of a trace become steps, and each step is paired with its observation or left out with a reason.

- Every step ends in exactly one ledger row; every event is used (step, observation, context) or set aside with a reason.
- An id pairs with the nearest open call of its branch that carries it, and is closed by its first result. An id that occurs
  more than once in the conversation is `explicit_id_scoped`; a call that opens an id again ends the wait of the one before.
- A declared id that matches nothing never falls back: the call is `unanswered_call`, the result `id_mismatch`. An id that
  repeats inside its own turn declares nothing and is flagged.
- Without ids: `name_order` when calls and results of one name in one turn are equal in number, `order_only` when one call of
  the turn is open and one nameless result is left.
- A result without an id that stands inside its action's own record is `structural`.
- A user's message answers the text of the turn before it; text beside calls has no reply of its own. What the harness wrote
  answers nothing; a synthetic message, an interruption or a boundary ends the wait.
- `recent` is the last observation before the step's turn, and `task` the first request before it, so no byte of a step's
  own observation can be in either. What a branch repeats of another was seen there, too: it counts once.

Not covered: which copy of a history shared by two sources counts.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from experiential_lab.evidence.secrets import masked
from experiential_lab.evidence.trace import (
    EXCERPT,
    Action,
    Event,
    LedgerRow,
    ObservationKind,
    SetAside,
    Trace,
    Transition,
)

NOT_UNIQUE = "id_not_unique_in_turn"
SPOKEN = ("call", "text", "reasoning")
HEARD = ("result", "user")


class Ledger(NamedTuple):
    """What became of one trace."""

    transitions: list[Transition]
    rows: list[LedgerRow]
    set_aside: list[SetAside]
    used: dict[str, int]
    """{step, observation, context: number of events}"""


class _Step:
    """One step while its observation is looked for."""

    __slots__ = ("declares", "event", "observation", "ordinal", "outcome", "recent", "repeats", "task", "text")

    def __init__(self, event: Event, ordinal: int, *, repeats: bool) -> None:
        self.event, self.ordinal = event, ordinal
        self.repeats = repeats  # its id occurs again in its own turn
        self.declares = event.kind == "text" or (event.call_id is not None and not repeats)
        self.text: str | None = None  # said beside the call
        self.task: str | None = None
        self.recent: str | None = None
        self.outcome = ""
        self.observation: Event | None = None

    def pair(self, observation: Event, pairing: str) -> None:
        self.observation, self.outcome = observation, pairing


def ledger_of(trace: Trace) -> Ledger:
    """Every step of a trace with its outcome, every event with its use. A pure function of the trace."""
    runs = _runs(trace.events)
    calls = [
        (run, event.call_id)
        for run, event in zip(runs, trace.events, strict=True)
        if event.kind == "call" and not event.aside
    ]
    acting, in_turn, ids = {run for run, _ in calls}, Counter(calls), Counter(call_id for _, call_id in calls)
    is_said = any(event.text == trace.task and _is_request(event) for event in trace.events)
    main = _Pairing(None if is_said else trace.task, trace.task, ids)
    branches = {"": main}
    steps: list[_Step] = []
    for run, event in zip(runs, trace.events, strict=True):
        pairing = branches.get(event.branch)
        if pairing is None:
            pairing = branches[event.branch] = _Pairing(main.task, trace.task, ids)
        if event.aside:
            pairing.pass_over(event)
        elif event.kind == "call" or (event.kind == "text" and run not in acting):
            repeats = event.call_id is not None and in_turn[run, event.call_id] > 1
            step = _Step(event, len(steps), repeats=repeats)
            steps.append(step)
            pairing.act(step, run)
        else:
            pairing.take(event, run)
    for pairing in branches.values():
        pairing.close("terminal_no_observation")
    return _ledger(trace, steps, list(branches.values()))


def _is_request(event: Event) -> bool:
    return event.kind in ("task", "user") or event.aside == "sidechain_prompt"


class _Run:
    """A run of assistant output: a turn of a branch, until another one begins."""

    __slots__ = ("is_heard", "number", "turn")

    def __init__(self) -> None:
        self.turn: str | None = None
        self.number = 0
        self.is_heard = False


def _runs(events: Sequence[Event]) -> list[int]:
    """The number of the run that each event stands in or after; 0 before the first.

    A text that comes after an observation of its turn may repeat it, so it begins a run of its own.
    """
    current: dict[str, _Run] = {}
    found, count = [], 0
    for event in events:
        run = current.get(event.branch)
        if run is None:
            run = current[event.branch] = _Run()
        kind = event.kind
        if event.aside is not None:
            pass
        elif kind in SPOKEN:
            if event.turn != run.turn or (run.is_heard and kind == "text"):
                count += 1
                run.turn, run.number, run.is_heard = event.turn, count, False
        elif kind in HEARD:
            run.is_heard = True
        elif kind == "boundary":
            run.turn, run.number = None, 0
        found.append(run.number)
    return found


class _Pairing:
    """Looks for observations along one branch, event by event."""

    def __init__(self, task: str | None, request: str | None, ids: Counter[str | None]) -> None:
        self.ids = ids
        self.task = task
        self.request = request  # the task of the trace: none before an event says it
        self.recent: str | None = None
        self.run = 0
        self.turn_recent: str | None = None
        self.turn_steps: list[_Step] = []
        self.turn_texts: list[str] = []
        self.turn_results: list[
            tuple[Event, int]
        ] = []  # of the turn, without an id that declares something; the last step before
        self.turn_used: dict[str, list[_Step]] = {}  # id -> calls of the turn that carry it
        self.reasoning: list[Event] = []
        self.open: dict[str, _Step] = {}
        self.within: dict[str, _Step] = {}
        self.answered: set[str] = set()
        self.repeated: set[str] = set()  # ids of the calls that stand in the branch which this one repeats
        self.is_prompted = False
        self.awaiting: _Step | None = None
        self.used = {"step": 0, "observation": 0, "context": 0}
        self.left: list[tuple[Event, str]] = []

    def act(self, step: _Step, run: int) -> None:
        """A call, or the text of a turn without calls."""
        event = step.event
        self._enter(run)
        step.task, step.recent = self.task, self.turn_recent
        self.turn_steps.append(step)
        self.used["step"] += 1
        if event.within is not None:
            self.within[event.within] = step
        if event.kind == "text":
            if self.awaiting:
                self.awaiting.outcome = "no_authored_reply"
            self.awaiting = step
            return
        self.awaiting = None
        if event.call_id:
            self.turn_used.setdefault(event.call_id, []).append(step)
            self.open[event.call_id] = step
        if event.tool is None:
            step.outcome = "call_without_name"

    def take(self, event: Event, run: int) -> None:
        """An event that is no step."""
        match event.kind:
            case "result":
                self.recent = event.text
                self._result(event)
            case "user":
                self._hear(event)
                if self.awaiting:
                    self._observe(self.awaiting, event, "user_reply")
                    self.awaiting = None
                else:
                    self.left.append((event, "observation_without_action"))
            case "text":  # beside calls: part of each call's step
                self._enter(run)
                self.turn_texts.append(event.text)
                self.used["step"] += 1
            case "reasoning":
                self._enter(run)
                self.reasoning.append(event)
            case "boundary":
                self.close("terminal_no_observation")
                self.run, self.recent = 0, None
                self.used["context"] += 1
            case _:
                if event.kind == "task":
                    self.task = event.text
                self.used["context"] += 1

    def pass_over(self, event: Event) -> None:
        """An event that its importer set aside: it answers nothing, but it may end the wait for an answer."""
        self.left.append((event, event.aside or ""))
        if event.aside == "replayed_history":
            self._see(event)
        elif event.aside == "sidechain_prompt" and self.is_prompted:
            self.recent = event.text
        elif event.aside == "sidechain_prompt":
            self.task, self.is_prompted = event.text, True
        ends = {
            "control_token": "control_token_only",
            "synthetic_assistant": "no_authored_reply",
            "interrupt_marker": "no_authored_reply",
        }.get(event.aside or "")
        if ends and self.awaiting:
            self.awaiting.outcome = ends
            self.awaiting = None

    def _hear(self, event: Event) -> None:
        self.recent = event.text
        if self.task is None and event.text == self.request:
            self.task = event.text

    def _see(self, event: Event) -> None:
        """An event that counts elsewhere, but was seen on this branch."""
        if event.kind == "task":
            self.task = event.text
        elif event.kind == "user":
            self._hear(event)
        elif event.kind == "result":
            self.recent = event.text
        elif event.kind == "call" and event.call_id:
            self.repeated.add(event.call_id)

    def close(self, reason: str) -> None:
        """The end of the branch, or a boundary: nothing later can answer what came before."""
        self._leave()
        if self.awaiting:
            self.awaiting.outcome = reason
        self.awaiting, self.open, self.answered = None, {}, set()

    def _enter(self, run: int) -> None:
        if run == self.run:
            return
        if self.awaiting:
            self.awaiting.outcome = "no_authored_reply"
            self.awaiting = None
        self._leave()
        self.run, self.turn_recent = run, self.recent

    def _leave(self) -> None:
        """The end of a turn and of the results that belong to it."""
        if self.turn_texts:
            for step in self.turn_steps:
                step.text = "\n".join(self.turn_texts)
        self._pair_undeclared()
        if self.turn_steps or self.turn_texts:
            self.used["step"] += len(self.reasoning)
        else:
            self.left += [(event, "reasoning") for event in self.reasoning]
        self.turn_steps, self.turn_texts, self.turn_results, self.reasoning = [], [], [], []
        self.turn_used = {}

    def _result(self, event: Event) -> None:
        call_id = event.call_id
        inside = self.within.pop(event.within, None) if call_id is None and event.within is not None else None
        if inside is not None:
            self._answer_inside(inside, event)
            return
        if call_id is None or (call_id in self.turn_used and self.turn_used[call_id][0].repeats):
            self.turn_results.append((event, self.turn_steps[-1].ordinal if self.turn_steps else -1))
            return
        step = self.open.pop(call_id, None)
        if step is None:
            copied = "observation_without_action" if call_id in self.repeated else "id_mismatch"
            self.left.append((event, "duplicate_result" if call_id in self.answered else copied))
            return
        self.answered.add(call_id)
        if step.outcome:  # a call without a name
            self.left.append((event, "orphan_result"))
        else:
            self._observe(step, event, "explicit_id" if self.ids[call_id] == 1 else "explicit_id_scoped")

    def _answer_inside(self, step: _Step, event: Event) -> None:
        """A result that stands in its action's own record; the first one counts."""
        if step.outcome:
            self.left.append((event, "orphan_result"))
            return
        self._observe(step, event, "structural")
        self.open.pop(step.event.call_id or "", None)
        if self.awaiting is step:
            self.awaiting = None

    def _pair_undeclared(self) -> None:
        """Pairs calls and results of the turn that declare no id: by name and order, or the only two that are left."""
        calls = [step for step in self.turn_steps if not step.declares and not step.outcome]
        if not calls and not self.turn_results:
            return
        for step in calls:
            self.open.pop(step.event.call_id or "", None)
        by_name: dict[str | None, tuple[list[_Step], list[tuple[Event, int]]]] = {}
        for step in calls:
            by_name.setdefault(step.event.tool, ([], []))[0].append(step)
        for result in self.turn_results:
            by_name.setdefault(self._name(result[0]), ([], []))[1].append(result)
        nameless = by_name.pop(None, ([], []))[1]
        for some, results in by_name.values():
            self._pair_in_order(some, results, "name_order")
        rest = [step for step in calls if not step.outcome]
        open_calls = [step for step in self.turn_steps if step.event.kind == "call" and step.observation is None]
        self._pair_in_order(rest, nameless, "order_only" if rest == open_calls and len(rest) == 1 else "")

    def _pair_in_order(self, calls: list[_Step], results: list[tuple[Event, int]], pairing: str) -> None:
        """Pairs as many results as calls one by one, each after its call; else none of them."""
        fits = bool(pairing) and len(calls) == len(results)
        if fits and all(step.ordinal <= last for step, (_, last) in zip(calls, results, strict=True)):
            for step, (result, _) in zip(calls, results, strict=True):
                self._observe(step, result, pairing)
        elif results:
            self.left += [(result, "orphan_result") for result, _ in results]
            for step in calls:
                step.outcome = "ambiguous_order"

    def _name(self, result: Event) -> str | None:
        """The declared name of a result, or that of all the calls of its turn which share its id."""
        names = {step.event.tool for step in self.turn_used.get(result.call_id or "", ())}
        return result.tool or (names.pop() if len(names) == 1 else None)

    def _observe(self, step: _Step, event: Event, pairing: str) -> None:
        step.pair(event, pairing)
        self.used["observation"] += 1


def _ledger(trace: Trace, steps: list[_Step], branches: list[_Pairing]) -> Ledger:
    last = {event.branch: event for event in trace.events}
    transitions, rows = [], []
    for step in steps:
        event, ident = step.event, f"{trace.trace_id}/{step.ordinal:04d}"
        action = Action(text=step.text, tool=event.tool, arguments=event.text or "{}")
        if event.kind == "text":
            action = Action(text=event.text)
        if step.observation is not None:
            transitions.append(_transition(trace, step, action, ident, last[event.branch]))
        rows.append(
            LedgerRow(
                trace_id=trace.trace_id,
                step=step.ordinal,
                branch=event.branch,
                transition_id=ident if step.observation is not None else None,
                outcome=step.outcome or "unanswered_call",
                tool=event.tool,
                action=event.text if event.kind == "text" else f"{event.tool or ''} {action.arguments}",
                flags=(NOT_UNIQUE,) if step.repeats else (),
                span=event.span,
            )
        )
    left = [pair for branch in branches for pair in branch.left]
    set_aside = [
        SetAside(
            trace_id=trace.trace_id,
            kind=event.kind,
            reason=reason,
            span=event.span,
            excerpt=masked(event.text)[:EXCERPT],
        )
        for event, reason in left
    ]
    used = {name: sum(branch.used[name] for branch in branches) for name in ("step", "observation", "context")}
    return Ledger(transitions, rows, set_aside, used)


def _transition(trace: Trace, step: _Step, action: Action, ident: str, last: Event) -> Transition:
    observation = step.observation
    assert observation is not None
    kind: ObservationKind = "tool_result"
    if observation.kind == "user":
        kind = "user_reply"
    elif observation.rejected:
        kind = "user_rejection"
    elif observation.is_error:
        kind = "tool_error"
    at_end = True if trace.complete and observation is trace.events[-1] else None
    return Transition(
        transition_id=ident,
        trace_id=trace.trace_id,
        task=step.task,
        recent=step.recent,
        action=action,
        observation=observation.text,
        terminal=True if observation.stop else at_end if observation is last else False,
        pairing=step.outcome,  # type: ignore[arg-type]  # one of PAIRINGS wherever an observation stands
        observation_kind=kind,
        observation_source=observation.author,
        is_error=observation.is_error,
        at=observation.at,
        action_span=step.event.span,
        observation_span=observation.span,
    )
