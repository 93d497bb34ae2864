"""Turn the runs of one trace (spans, observations: model calls, tool executions) into the events of one conversation.

- Runs are put in the order of their format's own rank, else of their start; else, where one has no start, of the file.
- A model call sends its whole history again. What a branch holds already is `replayed_history`; what is new is appended. A
  call whose history is another one's continues on a branch of its own: a sub-agent, a second attempt, a candidate answer.
- A history that was rewritten (old results cleared, the start cut off) still continues its branch when it holds the end of
  it. A result that names its call is that result, whatever became of its text.
- A run that repeats its children (an agent's span around its model calls) is `duplicate_view`, and neither its usage nor its
  cost is added; how many runs did so is `usage_repeated`.
- A tool's own run and the message that shows its result are one observation: the message counts, because the agent saw it,
  and takes time and error from the run. Without a message the run counts. What a run without an id answers is never
  guessed: it pairs in its model call's record (`within`) or by name, and not at all against its arguments.
- A tool's run that no model call accounts for is an action with its result in its own record.
- The user of an agent that a tool runs is another agent: what it says is `sidechain_prompt`.
- Time: an output has the end of its call, an input the start of the first call that sent it, a result the end of its run.

It is one idea and one file: what is new, what is a copy, and what answers what depend on each other.

Not covered: who wrote a message of role user (author `unknown`), and assistant messages of a first history, which count as
actions like those of any chat.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from experiential_lab.evidence.importers.dialects import Block, Message, Role, json_in
from experiential_lab.evidence.importers.usage import Usage, pooled, total_nusd
from experiential_lab.evidence.trace import Event

LEAST = 2  # blocks at the end of a history that must be the same, where its start is not


class Run(NamedTuple):
    """One span, observation or run, as its format's importer read it."""

    run_id: str
    """Unique in its trace."""
    parent_id: str | None
    kind: Literal["model", "tool", "other"]
    label: Block
    """What stands for the run where it says nothing else: its name."""
    inputs: tuple[Message, ...] = ()
    outputs: tuple[Message, ...] = ()
    copies: tuple[Message, ...] = ()
    """The same messages in another spelling of the same run."""
    notes: tuple[Block, ...] = ()
    """What it says that is no message."""
    call: Block | None = None
    """Of a tool: name and arguments."""
    result: Block | None = None
    tool: str | None = None
    call_id: str | None = None
    is_error: bool | None = None
    rank: str = ""
    start: int | None = None
    end: int | None = None
    """Numbers that order runs; they need not be times."""
    started: str | None = None
    ended: str | None = None
    """Real times."""
    usage: Usage | None = None
    cost_nusd: int | None = None
    repeats: bool = False
    """Its format says that another run is the same model call."""

    @property
    def has_messages(self) -> bool:
        return bool(self.inputs or self.outputs)


def events_of(runs: Sequence[Run]) -> tuple[Event, ...]:
    """The events of a trace, each block of each run once."""
    return _Rebuilt(in_order(runs)).events()


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Runs in the order in which they began; a parent before its children."""
    places = range(len(runs))
    if runs and all(run.rank for run in runs):
        return [runs[at] for at in sorted(places, key=lambda at: (runs[at].rank, at))]
    if any(run.start is None for run in runs if run.kind != "other"):
        return list(runs)
    depth = depths(runs)

    def began(at: int) -> tuple[int, int, int, int, int]:
        run = runs[at]
        start = run.start if run.start is not None else -1
        end = run.end if run.end is not None else start
        return start, depth[run.run_id], end, sum(len(each.blocks) for each in run.inputs), at

    return [runs[at] for at in sorted(places, key=began)]


def depths(runs: Sequence[Run]) -> dict[str, int]:
    """How many known runs stand above each run, itself included."""
    return {run.run_id: len(path) for run, path in zip(runs, _paths(runs), strict=True)}


def leaves(runs: Sequence[Run]) -> list[Run]:
    """The model calls that repeat no other: the ones that usage and cost are counted of."""
    parents = _repeating(runs, [run for run in runs if run.kind == "model"])
    return [run for run in runs if run.kind == "model" and not run.repeats and run.run_id not in parents]


def usage_of(runs: Sequence[Run]) -> Usage | None:
    """Usage of the leaf calls by kind of unit; None when one of them states none."""
    return pooled(run.usage for run in leaves(runs))


def cost_of(runs: Sequence[Run]) -> int | None:
    """Nano-dollars of the leaf calls; None when one of them states none."""
    return total_nusd(run.cost_nusd for run in leaves(runs))


def usage_repeated_in(runs: Sequence[Run]) -> int:
    """How many runs state usage or cost of leaf calls once more: those around them, and second views of one call."""
    counted = leaves(runs)
    known = {run.run_id for run in counted}
    paths = zip(runs, _paths(runs), strict=True)
    around = {above for run, path in paths if run.run_id in known and _states(run) for above in path[:-1]}
    others = [run for run in runs if run.run_id not in known and _states(run)]
    return sum(run.run_id in around or run.repeats for run in others)


def _states(run: Run) -> bool:
    """Whether a run used or cost something; stores write zeros where they know nothing."""
    return bool(run.cost_nusd) or any(count for _, count in run.usage or ())


def _paths(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """The ids of each run's ancestors and of itself, from the root; a circle of parents is cut."""
    parent = {run.run_id: run.parent_id for run in runs}
    found = []
    for run in runs:
        path, at = [run.run_id], run.parent_id
        while at is not None and at in parent and at not in path:
            path.append(at)
            at = parent[at]
        found.append(tuple(reversed(path)))
    return found


def _repeating(runs: Sequence[Run], calls: Iterable[Run]) -> set[str]:
    """The ids of all runs that stand above one of these calls, no tool between them."""
    known = {run.run_id: run for run in runs}
    found: set[str] = set()
    for call in calls:
        at = call.parent_id
        while at is not None and at in known and at not in found and at != call.run_id and known[at].kind != "tool":
            found.add(at)
            at = known[at].parent_id
    return found


class _Draft:
    """An event while it is not known what else shows the same."""

    __slots__ = ("answer", "aside", "at", "block", "branch", "is_error", "kind", "tool", "turn", "within")

    def __init__(self, kind: str, block: Block, branch: str, at: str | None, aside: str | None = None) -> None:
        self.kind, self.block, self.branch, self.at, self.aside = kind, block, branch, at, aside
        self.tool, self.is_error = block.tool, block.is_error
        self.turn = "0"
        self.within: str | None = None
        self.answer: _Draft | None = None  # of a call: the result that counts

    def event(self) -> Event:
        block = self.block
        is_result = self.kind == "result"
        return Event(
            kind=self.kind,  # type: ignore[arg-type]  # one of the kinds of Event wherever a draft is made
            turn=self.turn,
            branch=self.branch,
            span=block.place.span(block.at),
            text=block.text,
            tool=self.tool,
            call_id=block.call_id if self.kind in ("call", "result") else None,
            within=self.within,
            author="environment" if is_result else "unknown",
            is_error=self.is_error if is_result else None,
            at=self.at,
            aside=self.aside,
        )


class _Turn:
    """The calls of one model output, and what answers them."""

    def __init__(self, run: Run, branch: str, *, is_history: bool) -> None:
        self.run, self.branch = run, branch  # the run that first showed it
        self.is_history = is_history  # no run of its own made it
        self.is_mixed = False  # several model calls made it
        self.calls: list[_Draft] = []
        self.results: list[_Draft] = []  # messages that name no call
        self.tools: list[Run] = []


class _Known(NamedTuple):
    """A block of a branch's history."""

    role: Role
    block: Block
    draft: _Draft


class _Thread:
    """A branch of the conversation as it was last known."""

    def __init__(self, branch: str, *, is_side: bool) -> None:
        self.branch, self.is_side = branch, is_side
        self.known: list[_Known] = []
        self.first: tuple[str, ...] | None = None  # what the ends of `known` are: most branches need no closer look
        self.last: tuple[str, ...] | None = None
        self.soft: set[tuple[str, str]] = set()  # system texts and reasoning: a history may leave them out
        self.open: dict[str, _Draft] = {}
        self.turns = 0
        self.in_turn = False
        self.turn: _Turn | None = None


class _Fit(NamedTuple):
    """How a history continues a branch."""

    thread: _Thread
    is_fork: bool
    history: int
    """How many of its first blocks the branch holds."""
    matched: dict[int, int]
    """Place in the history -> place on the branch."""


class _Rebuilt:
    """All branches of a trace, built run by run."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs
        self.path = {run.run_id: path for run, path in zip(runs, _paths(runs), strict=True)}
        self.by_id = {run.run_id: run for run in runs}
        self.number = {run.run_id: at for at, run in enumerate(runs)}
        self.parents = _repeating(runs, [run for run in runs if run.kind == "model" and run.has_messages])
        self.busy = _repeating(runs, [run for run in runs if run.kind != "other"])
        self.threads: list[_Thread] = []
        self.turns: list[_Turn] = []
        self.thread_of: dict[str, _Thread] = {}
        self.said: dict[str, list[_Draft]] = {run.run_id: [] for run in runs}
        self.after: dict[str, list[_Draft]] = {run.run_id: [] for run in runs}

    def events(self) -> tuple[Event, ...]:
        for run in self.runs:
            if run.kind == "model" and run.has_messages and not run.repeats and run.run_id not in self.parents:
                self._model(run)
            elif run.kind == "tool":
                near = self._nearest(run)
                if near is not None:
                    self.thread_of[near.run_id].in_turn = False
                self.said[run.run_id] += [
                    _Draft("control", note, "", run.started, "harness_text") for note in run.notes
                ]
            else:
                self._aside(run)
        turns = self._turns()
        for run in self.runs:
            if run.kind == "tool":
                self._attach(run, turns)
        for turn in self.turns:
            self._answer(turn)
        drafts = [draft for run in self.runs for draft in self.said[run.run_id] + self.after[run.run_id]]
        return tuple(draft.event() for draft in drafts)

    # Runs that say nothing of their own

    def _aside(self, run: Run) -> None:
        """Everything that a run says which repeats others, or is no part of a conversation."""
        messages = [(each.role, block) for each in (*run.inputs, *run.outputs, *run.copies) for block in each.blocks]
        found = [_Draft(_plain_kind(role, block), block, "", run.started, "duplicate_view") for role, block in messages]
        reason = "duplicate_view" if run.run_id in self.busy or run.repeats else "harness_text"
        found += [_Draft("control", block, "", run.started, reason) for block in run.notes]
        if not found:
            reason = "empty_message" if run.kind == "model" and reason == "harness_text" else reason
            found = [_Draft("control", run.label, "", run.started, reason)]
        self.said[run.run_id] += found

    # Model calls

    def _model(self, run: Run) -> None:
        """The blocks of a model call: what is new on its branch, and what it repeats."""
        inputs = [(each.role, block) for each in run.inputs for block in each.blocks]
        hard = [(role, block) for role, block in inputs if _is_hard(role, block)]
        fit = self._fit(hard)
        answers = _candidates(run.outputs)
        again = fit is not None and fit.is_fork and fit.history == len(hard) and _repeats(fit, answers)
        thread = fit.thread if fit is not None and (again or not fit.is_fork) else self._branch(run, fit)
        self.thread_of[run.run_id] = thread
        found = self._inputs(run, thread, inputs, fit)
        start = list(thread.known)
        for at, blocks in enumerate(answers):
            if at:
                thread = self._candidate(run, thread, start, at)
            found += self._outputs(run, thread, blocks, "duplicate_view" if again else None)
        copies = [(each.role, block) for each in run.copies for block in each.blocks]
        found += [
            _Draft(_plain_kind(role, block), block, thread.branch, run.started, "duplicate_view")
            for role, block in copies
        ]
        found += [_Draft("control", block, thread.branch, run.started, "harness_text") for block in run.notes]
        self.said[run.run_id] += found

    def _branch(self, run: Run, fit: "_Fit | None") -> _Thread:
        """A branch of its own, with the history that it shares."""
        is_side = any(self.by_id[each].kind == "tool" for each in self.path[run.run_id][:-1])
        thread = _Thread(f"call:{run.run_id}" if self.threads else "", is_side=is_side)
        if fit is not None:
            thread.known = fit.thread.known[: fit.history]
            thread.first, thread.last = fit.thread.first, _sort_of(*thread.known[-1][:2])
            thread.soft = set(fit.thread.soft)
            thread.is_side = is_side or fit.thread.is_side
        self.threads.append(thread)
        return thread

    def _candidate(self, run: Run, thread: _Thread, start: list[_Known], at: int) -> _Thread:
        """A branch for another answer of the same model call."""
        found = _Thread(f"call:{run.run_id}/{at}", is_side=thread.is_side)
        found.known, found.soft, found.first = list(start), set(thread.soft), thread.first
        self.threads.append(found)
        return found

    def _fit(self, hard: list[tuple[Role, Block]]) -> "_Fit | None":
        """The branch whose history this one continues best: in full, by its end, or up to a fork."""
        best: tuple[int, int, _Fit] | None = None
        kinds = {_sort_of(*each) for each in hard}
        for thread in self.threads:
            is_near = thread.first in kinds or thread.last in kinds
            fit = _fit_of(thread, hard) if is_near else None
            if fit is not None:
                rank = (not fit.is_fork) * (1 + (len(fit.matched) == len(thread.known))), len(fit.matched)
                if best is None or rank >= best[:2]:
                    best = (*rank, fit)
        return best[2] if best else self._fit_of_answers(hard)

    def _fit_of_answers(self, hard: list[tuple[Role, Block]]) -> "_Fit | None":
        """The only branch that waits for the result which a call sends first: its provider keeps the history."""
        call_id = hard[0][1].call_id if hard and hard[0][1].kind == "result" else None
        waiting = [thread for thread in self.threads if call_id is not None and call_id in thread.open]
        return _Fit(waiting[0], False, 0, {}) if len(waiting) == 1 else None

    def _inputs(self, run: Run, thread: _Thread, inputs: list[tuple[Role, Block]], fit: "_Fit | None") -> list[_Draft]:
        history, matched = (fit.history, fit.matched) if fit is not None else (0, {})
        is_cut = fit is not None and not fit.is_fork and len(matched) < len(fit.thread.known)
        state = _State(thread, run, acted=is_cut, asked=is_cut)
        found, at = [], 0
        for role, block in inputs:
            draft = state.draft(role, block, run.started)
            found.append(draft)
            if not _is_hard(role, block):
                if (role, block.text) in thread.soft:
                    draft.aside = "replayed_history"
                else:
                    thread.soft.add((role, block.text))
                    self._speak(thread, draft, run, is_history=True)
            elif at < history:
                draft.aside = "replayed_history"
                if at in matched and fit is not None:
                    _prefer(fit.thread.known[matched[at]], draft)
                at += 1
            else:
                at += 1
                self._append(thread, role, draft, run, is_history=True)
        return found

    def _outputs(self, run: Run, thread: _Thread, blocks: list[tuple[Role, Block]], aside: str | None) -> list[_Draft]:
        state = _State(thread, run, acted=True, asked=True)
        found = []
        for role, block in blocks:
            draft = state.draft(role, block, run.ended or run.started)
            found.append(draft)
            if aside:
                draft.aside = aside
            elif _is_hard(role, block):
                self._append(thread, role, draft, run, is_history=False)
            else:
                thread.soft.add((role, block.text))
                self._speak(thread, draft, run, is_history=False)
        return found

    def _append(self, thread: _Thread, role: Role, draft: _Draft, run: Run, *, is_history: bool) -> None:
        """A block that the branch did not hold."""
        thread.known.append(_Known(role, draft.block, draft))
        thread.last = _sort_of(role, draft.block)
        thread.first = thread.first or thread.last
        self._speak(thread, draft, run, is_history=is_history)
        call_id = draft.block.call_id
        if draft.kind == "call" and thread.turn is not None:
            thread.turn.calls.append(draft)
            if call_id is not None:
                thread.open[call_id] = draft
        elif draft.kind == "result":
            call = thread.open.pop(call_id, None) if call_id is not None else None
            if call is not None:
                call.answer = draft
            elif call_id is None and thread.turn is not None:
                thread.turn.results.append(draft)

    def _speak(self, thread: _Thread, draft: _Draft, run: Run, *, is_history: bool) -> None:
        """Numbers the turns: a turn is a run of assistant output that nothing interrupts."""
        is_spoken = draft.kind in ("call", "text", "reasoning") or draft.aside == "empty_message"
        if is_spoken and not thread.in_turn:
            thread.turns += 1
            thread.turn = _Turn(run, thread.branch, is_history=is_history)
            self.turns.append(thread.turn)
        elif is_spoken and thread.turn is not None:
            thread.turn.is_mixed |= thread.turn.run is not run or thread.turn.is_history != is_history
        thread.in_turn = is_spoken
        draft.turn = str(thread.turns)

    # Tools

    def _nearest(self, run: Run) -> Run | None:
        """Of the model calls before a run, the one with the deepest common ancestor, and of those the last."""
        best: tuple[int, Run] | None = None
        for at in range(self.number[run.run_id] - 1, -1, -1):
            other = self.runs[at]
            if other.run_id in self.thread_of:
                shared = self._shared(run, other)
                if best is None or shared > best[0]:
                    best = (shared, other)
                if shared >= len(self.path[run.run_id]) - 1:
                    break
        return best[1] if best else None

    def _shared(self, run: Run, other: Run) -> int:
        shared = 0
        for one, two in zip(self.path[run.run_id], self.path[other.run_id], strict=False):
            if one != two:
                break
            shared += 1
        return shared

    def _attach(self, run: Run, turns: dict[tuple[str, str | None], dict[int, _Turn]]) -> None:
        """Finds the turn whose call a tool's run carries out."""
        name = "named" if run.call_id is not None else "tool"
        best: tuple[tuple[bool, int, int], _Turn] | None = None
        for at, turn in turns.get((name, run.call_id or run.tool), {}).items():
            is_before = not turn.is_history and self.number[turn.run.run_id] < self.number[run.run_id]
            rank = is_before, self._shared(run, turn.run), at if is_before else -at
            if best is None or rank > best[0]:
                best = rank, turn
        if best is None:
            self._alone(run)
        else:
            best[1].tools.append(run)

    def _turns(self) -> dict[tuple[str, str | None], dict[int, _Turn]]:
        """{(what is asked for, id or name of a call): {number: turn}}; a tool's run without a name may be any call's."""
        found: dict[tuple[str, str | None], dict[int, _Turn]] = {}
        for at, turn in enumerate(self.turns):
            for call in turn.calls:
                for key in (("named", call.block.call_id), ("tool", call.block.tool), ("tool", None)):
                    found.setdefault(key, {})[at] = turn
        return found

    def _alone(self, run: Run) -> None:
        """A tool's run that no model call accounts for."""
        near = self._nearest(run)
        branch = self.thread_of[near.run_id].branch if near is not None else ""
        call, result = _tool_drafts(run, branch)
        found = [each for each in (call, result) if each is not None]
        is_action = call is not None and run.tool is not None
        for each in found:
            each.turn = f"tool:{run.run_id}"
            each.within = run.run_id if is_action else None
            if not is_action:
                each.aside = "orphan_result" if each is result else "harness_text"
        if result is not None:
            result.block = result.block._replace(call_id=None)
        self.said[run.run_id] += found or [_Draft("control", run.label, branch, run.started, "harness_text")]

    def _answer(self, turn: _Turn) -> None:
        """Decides of each tool's run of a turn whether it is the observation or another view of it."""
        named = [run for run in turn.tools if run.call_id is not None]
        nameless = sorted((run for run in turn.tools if run.call_id is None), key=lambda run: _call_at(turn, run))
        made: dict[str, tuple[_Draft | None, _Draft | None]] = {}
        for run in named + nameless:
            call, result = made[run.run_id] = _tool_drafts(run, turn.branch)
            found = [each for each in (call, result) if each is not None]
            for each in found:
                each.turn = turn.calls[0].turn
            if call is not None:
                call.aside = "duplicate_view"
            found = found or [_Draft("control", run.label, turn.branch, run.started, "duplicate_view")]
            self.after[turn.run.run_id] += found
        for call_id in dict.fromkeys(run.call_id for run in named):
            self._answer_named(turn, [(run, made[run.run_id][1]) for run in named if run.call_id == call_id])
        for run in nameless:
            self._answer_nameless(turn, run, made[run.run_id][1])

    def _answer_named(self, turn: _Turn, runs: list[tuple[Run, _Draft | None]]) -> None:
        """Runs with the id of one call: wrappers of each other, or attempts. The agent saw what ended last."""
        calls = [call for call in turn.calls if call.block.call_id == runs[0][0].call_id]
        call = next((each for each in calls if each.block.tool == runs[0][0].tool), calls[0])
        shown = call.answer
        best = max(runs, key=lambda pair: (_shows(pair[1], shown), pair[1] is not None, pair[0].end or 0))
        for run, result in runs:
            if run is best[0] and shown is not None:
                _merge(shown, run, result)
            elif run is best[0]:
                call.answer = result
            elif result is not None:
                result.aside = "duplicate_view"

    def _answer_nameless(self, turn: _Turn, run: Run, result: _Draft | None) -> None:
        """A run without an id: never more than its place or its name says."""
        is_child = run.parent_id == turn.run.run_id and not turn.is_mixed and not turn.is_history
        is_inside = is_child and len(turn.calls) == len(turn.tools) == 1
        shown = [call.answer for call in turn.calls if call.answer is not None] + turn.results
        same = [each for each in shown if _shows(result, each)]
        if len(turn.calls) == len(turn.tools) == len(shown) == 1 or len(same) == 1:
            seen = (same or shown)[0]
            _merge(seen, run, result)
            if is_inside and seen.block.call_id is None:
                turn.calls[0].within = seen.within = run.run_id
        elif result is None:
            pass
        elif (
            same
            or len(shown) >= len(turn.calls)
            or any(other.run_id in self.path[run.run_id][:-1] for other in turn.tools)
        ):
            result.aside = "duplicate_view"
        elif shown or turn.is_history or all(_agrees(run, call) is False for call in turn.calls if _may_be(run, call)):
            result.aside = "orphan_result"
        elif is_inside:
            turn.calls[0].within = result.within = run.run_id


class _State:
    """What has been said so far in one model call: it decides what a message is."""

    def __init__(self, thread: _Thread, run: Run, *, acted: bool, asked: bool) -> None:
        self.thread, self.run, self.acted, self.asked = thread, run, acted, asked

    def draft(self, role: Role, block: Block, at: str | None) -> _Draft:
        kind, aside = self._kind(role, block)
        draft = _Draft(kind, block, self.thread.branch, at, aside)
        draft.turn = str(self.thread.turns)
        return draft

    def _kind(self, role: Role, block: Block) -> tuple[str, str | None]:
        match block.kind:
            case "definition":
                return "control", "tool_definition"
            case "call" | "reasoning":
                self.acted = True
                return block.kind, None
            case "result":
                return ("result" if self.acted else "context"), None
        match role:
            case "assistant":
                self.acted = True
                return ("text", None) if block.text else ("control", "empty_message")
            case "system":
                return ("control", "harness_text") if self.acted else ("context", None)
            case "user" if self.thread.is_side:
                return "control", "sidechain_prompt"
            case "user":
                was_asked, self.asked = self.asked, True
                return ("user" if self.acted else "context" if was_asked else "task"), None
            case "tool":
                return ("result" if self.acted else "context"), None
        return "control", "unknown_role"


def _plain_kind(role: Role, block: Block) -> str:
    """What a block is that counts nowhere."""
    if block.kind == "text":
        return {"assistant": "text", "user": "user", "tool": "result"}.get(role, "control")
    return "control" if block.kind == "definition" else block.kind


def _is_hard(role: Role, block: Block) -> bool:
    """Whether every history repeats a block: system texts change with the agent, and reasoning is left out."""
    if block.kind in ("call", "result"):
        return True
    return block.kind == "text" and role in ("user", "assistant", "tool") and bool(block.text.strip())


def _sort_of(role: Role, block: Block) -> tuple[str, ...]:
    """What blocks that are the same have in common, at a glance."""
    if block.kind == "text":
        return "text", role, block.text.strip()
    return (block.kind, block.tool or "") if block.kind == "call" else (block.kind,)


def _fit_of(thread: _Thread, hard: list[tuple[Role, Block]]) -> _Fit | None:
    known, length = thread.known, 0
    for (role, block), held in zip(hard, known, strict=False):
        if not _same(role, block, held):
            break
        length += 1
    straight = {at: at for at in range(length)}
    if length == len(known):
        return _Fit(thread, False, length, straight) if length else None
    if length < len(hard):
        by_end = _fit_by_end(thread, hard, length)
        if by_end is not None:
            return by_end
    return _Fit(thread, True, length, straight) if length else None


def _fit_by_end(thread: _Thread, hard: list[tuple[Role, Block]], start: int) -> _Fit | None:
    """A history whose start was cut or rewritten, but which holds the end of the branch; `start`: blocks still the same."""
    known = thread.known
    for end in range(len(hard) - 1, -1, -1):
        if not _same(*hard[end], known[-1]):
            continue
        length = 1
        while length <= end and length < len(known) and _same(*hard[end - length], known[-1 - length]):
            length += 1
        is_named = known[-1].block.kind == "call" and known[-1].block.call_id is not None
        if length >= LEAST or (is_named and (start or length == len(known))):
            matched = {end - back: len(known) - 1 - back for back in range(length)}
            return _Fit(thread, False, end + 1 + _swapped(thread, hard[end + 1 :]), matched)
    return None


def _swapped(thread: _Thread, rest: list[tuple[Role, Block]]) -> int:
    """How many blocks of the last turn a history tells in another order, behind the one that was last."""
    last = [
        held for held in thread.known if held.draft.turn == thread.known[-1].draft.turn and held.draft.kind == "call"
    ]
    count = 0
    for role, block in rest:
        if not any(_same(role, block, held) for held in last):
            break
        count += 1
    return count


def _same(role: Role, block: Block, held: _Known) -> bool:
    other = held.block
    if block.kind != other.kind:
        return False
    ids = (block.call_id, other.call_id)
    if None not in ids and ids[0] != ids[1]:
        return False
    match block.kind:
        case "call":
            return block.tool == other.tool and _is_equal(block.text, other.text)
        case "result":
            return None not in ids or _is_equal(block.text, other.text)
    return role == held.role and block.text.strip() == other.text.strip()


def _is_equal(one: str, other: str) -> bool:
    return one == other or _plain(one) == _plain(other)


def _plain(text: str) -> str:
    """One spelling of a JSON text, of its text if it holds one, and of any other text."""
    text = text.strip()
    if text[:1] not in ("{", "[", '"'):
        return text or "{}"
    value = json_in(text)
    if isinstance(value, str):
        return value.strip()
    try:
        return text if value is None else json.dumps(value, sort_keys=True)
    except RecursionError:
        return text


def _prefer(held: _Known, draft: _Draft) -> None:
    """Of two views of one call the one that is encoded once is quoted; the other is set aside in its place."""
    one, two = held.draft.block, draft.block
    if one.kind == "call" and not one.at.pointer and two.at.pointer:
        held.draft.block, draft.block = two._replace(call_id=one.call_id), one


def _candidates(outputs: Sequence[Message]) -> list[list[tuple[Role, Block]]]:
    """The answers of a model call: several when more than one says that it ended, or more than one is a text."""
    texts = [each for each in outputs if any(block.kind == "text" and block.text for block in each.blocks)]
    if sum(each.is_end for each in outputs) > 1 or len(texts) > 1:
        return [[(each.role, block) for block in each.blocks] for each in outputs if each.blocks] or [[]]
    return [[(each.role, block) for each in outputs for block in each.blocks]]


def _repeats(fit: _Fit, answers: list[list[tuple[Role, Block]]]) -> bool:
    """Whether the branch goes on with the same answer: another view of one model call."""
    first = [(role, block) for role, block in answers[0] if _is_hard(role, block)]
    held = fit.thread.known[fit.history : fit.history + len(first)]
    same = len(held) == len(first) and all(_same(*one, two) for one, two in zip(first, held, strict=True))
    return same and len(answers) == 1


def _tool_drafts(run: Run, branch: str) -> tuple[_Draft | None, _Draft | None]:
    call = _Draft("call", run.call, branch, run.started) if run.call is not None else None
    result = _Draft("result", run.result, branch, run.ended or run.started) if run.result is not None else None
    if call is not None:
        call.tool, call.block = run.tool, call.block._replace(call_id=run.call_id)
    if result is not None:
        result.tool, result.block = run.tool, result.block._replace(call_id=run.call_id)
        result.is_error = run.is_error
    return call, result


def _shows(result: _Draft | None, shown: _Draft | None) -> bool:
    """Whether a tool's run and a message hold the same result."""
    return result is not None and shown is not None and _is_equal(result.block.text, shown.block.text)


def _merge(shown: _Draft, run: Run, result: _Draft | None) -> None:
    """The message counts, and takes from the tool's run what a message does not say."""
    if result is not None:
        result.aside = "duplicate_view"
    shown.at = run.ended or shown.at
    shown.tool = shown.tool or run.tool
    shown.is_error = run.is_error if shown.is_error is None else shown.is_error


def _may_be(run: Run, call: _Draft) -> bool:
    """Whether a tool's run may carry out this call."""
    if run.call_id is not None:
        return call.block.call_id == run.call_id
    return run.tool is None or call.block.tool == run.tool


def _agrees(run: Run, call: _Draft) -> bool | None:
    """Whether a tool's run has the arguments of this call; None where that cannot be told."""
    if run.call is None or not _may_be(run, call):
        return None
    if _is_equal(run.call.text, call.block.text):
        return True
    ran, asked = json_in(run.call.text), json_in(call.block.text)  # a framework may wrap them: other keys say nothing
    return False if isinstance(ran, dict) and isinstance(asked, dict) and ran.keys() == asked.keys() else None


def _call_at(turn: _Turn, run: Run) -> int:
    return next((at for at, call in enumerate(turn.calls) if _agrees(run, call)), len(turn.calls))
