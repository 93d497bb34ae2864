"""Find histories that stand in two places, so that each step counts once: grown logs, resumed sessions, forks.

- Two traces of one id are copies. The longer one counts; the shorter is `replayed_history` as far as it is the same, and
  what goes on otherwise keeps its steps under an id of its own. A copy that was not recorded counts before one that was: a
  second name makes no observation of what was declared to be none.
- A trace that begins with the history of another, which it calls its parent or shares a session with, replays that history.
  Without a declared parent the copied events must have equal, real times: two runs of one task may begin with equal words.
- Which copy counts does not depend on the order of imports: the replay is the one that declares a parent, else the one that
  starts later, else the one with the larger id.
- A replayed history is set aside event by event; what it used counts where it first stood.

Not covered: copies that were edited.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence, Set

import msgspec

from experiential_lab.evidence.trace import Event, Trace
from experiential_lab.records import short_id

LEAST = 2  # events that must be equal: a single greeting is no history


def settled(traces: Sequence[Trace], observed: Set[str]) -> list[Trace]:
    """The same traces with ids that differ, and with every copied history set aside.

    `observed`: digests of the sources that were recorded.
    """
    return _without_histories(_with_own_ids(traces, observed))


def _with_own_ids(traces: Sequence[Trace], observed: Set[str]) -> list[Trace]:
    by_id: dict[str, list[int]] = defaultdict(list)
    for at, trace in enumerate(traces):
        by_id[trace.trace_id].append(at)
    found = list(traces)
    for trace_id, places in by_id.items():
        if len(places) == 1:
            continue
        strict = any(traces[at].source not in observed for at in places)
        longest = max(places, key=lambda at: (traces[at].source not in observed, len(traces[at].events), -at))
        seen: Counter[str] = Counter()
        for at in places:
            seen[traces[at].source] += 1
            trace = msgspec.structs.replace(traces[at], keys=tuple(sorted({*traces[at].keys, f"trace:{trace_id}"})))
            if at != longest:
                same = _common(trace.events, traces[longest].events)
                trace = _replaying(trace, same) if strict or same == len(trace.events) else trace
                number = str(seen[trace.source])  # among its own file's, so that other files change no id
                trace = msgspec.structs.replace(trace, trace_id=short_id(trace_id, trace.source, number))
            found[at] = trace
    return found


def _without_histories(traces: list[Trace]) -> list[Trace]:
    by_session: dict[str, list[int]] = defaultdict(list)
    for at, trace in enumerate(traces):
        for key in trace.keys:
            if key.startswith("session:"):
                by_session[key.removeprefix("session:")].append(at)
    found = list(traces)
    for at, trace in enumerate(traces):
        same = 0
        for key in trace.keys:
            kind, _, name = key.partition(":")
            for other in by_session.get(name, ()) if kind in ("parent", "session") else ():
                is_parent = kind == "parent"
                if other != at and (is_parent or _order(traces[other]) < _order(trace)):
                    same = max(same, _common(trace.events, traces[other].events, timed=not is_parent))
        if same >= LEAST and not (trace.events[0].aside and same == len(trace.events)):
            found[at] = _replaying(trace, same)
    return found


def _order(trace: Trace) -> tuple[bool, str, str]:
    """Originals first: without a parent, started earlier, with the smaller id."""
    has_parent = any(key.startswith("parent:") for key in trace.keys)
    return has_parent, next((event.at for event in trace.events if event.at), ""), trace.trace_id


def _common(events: Sequence[Event], others: Sequence[Event], *, timed: bool = False) -> int:
    """How many events, from the first, are the same; `timed`: only while both have one real time."""
    length = 0
    for one, other in zip(events, others, strict=False):
        if _content(one) != _content(other) or (timed and (one.at is None or one.at != other.at)):
            break
        length += 1
    return length


def _content(event: Event) -> tuple[str, str | None, str | None, str]:
    return event.kind, event.tool, event.call_id, event.text


def _replaying(trace: Trace, count: int) -> Trace:
    """The trace with its first events set aside.

    What a whole copy used counts elsewhere: known zero. What the rest of a partial copy used alone is unknown.
    """
    events = tuple(
        msgspec.structs.replace(event, aside="replayed_history") if at < count else event
        for at, event in enumerate(trace.events)
    )
    if count < len(trace.events):
        return msgspec.structs.replace(trace, events=events, usage=None, cost_nusd=None)
    return msgspec.structs.replace(trace, events=events, usage=(), cost_nusd=0)
