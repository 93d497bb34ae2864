"""Shipped fakes for tests and examples: a clock that stands still, and small corpora of real records.

- A `Clock` moves only when it is told to, or by a stated tick at each reading, so durations in a test are exact.
- `conversation` makes Transitions as an importer would, from texts written in the test. `index_of` indexes them through
  the same path as imported ones, each conversation as a lineage and a family of its own, all of them fit.

Not covered: these records cite a source that exists nowhere, so no span of them can be opened. Nothing imports this file.
"""

from collections.abc import Iterable

from experiential_lab.evidence.trace import STOP_MARKERS, Action, ObservationKind, Transition
from experiential_lab.records import Span, digest_of, short_id
from experiential_lab.retrieval.index import Index, build
from experiential_lab.retrieval.views import Facts, View, entry_of, snapshot_of


class Clock:
    """A monotonic clock in nanoseconds that stands still."""

    def __init__(self, now_ns: int = 0, *, tick_ns: int = 0) -> None:
        self.now_ns = now_ns
        self.tick_ns = tick_ns

    def __call__(self) -> int:
        """The time; the next reading is `tick_ns` later."""
        now, self.now_ns = self.now_ns, self.now_ns + self.tick_ns
        return now

    def advance(self, duration_ns: int) -> None:
        """Let `duration_ns` pass."""
        self.now_ns += duration_ns


def conversation(
    task: str, *exchanges: tuple[str | Action, str], kind: ObservationKind = "user_reply"
) -> tuple[Transition, ...]:
    """The transitions of one conversation: each action with its observation, in order.

    An observation with a stop marker is terminal, one that is not the last is not, and of the last it is unknown.
    """
    trace_id, recent, made = short_id(task), None, []
    for ordinal, (action, observation) in enumerate(exchanges):
        action = Action(text=action) if isinstance(action, str) else action
        stopped = any(marker in observation for marker in STOP_MARKERS)
        made.append(
            Transition(
                transition_id=f"{trace_id}/{ordinal:04d}",
                trace_id=trace_id,
                task=task,
                recent=recent,
                action=action,
                observation=observation,
                terminal=True if stopped else False if ordinal + 1 < len(exchanges) else None,
                pairing="user_reply" if kind == "user_reply" else "explicit_id",
                observation_kind=kind,
                observation_source="simulated_user" if kind == "user_reply" else "environment",
                action_span=_span(task, 2 * ordinal, action.text or action.arguments or ""),
                observation_span=_span(task, 2 * ordinal + 1, observation),
            )
        )
        recent = observation
    return tuple(made)


def _span(task: str, record: int, text: str) -> Span:
    source = digest_of(task.encode())
    return Span(source=source, offset=record, size=1, end=len(text), quote=digest_of(text.encode()))


def index_of(*conversations: Iterable[Transition]) -> Index:
    """An index of these conversations, all of them fit."""
    entries = [entry_of(each, lineages=(each.trace_id,), path="tiny") for one in conversations for each in one]
    facts = {entry.entry_id: Facts(split="fit", family=entry.lineages[0]) for entry in entries}
    return build(View(snapshot_of(entries, facts)))
