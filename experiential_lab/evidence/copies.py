"""Find histories that stand in two places, so that each step counts once: grown logs, resumed sessions, forks.

- Two traces of one id are copies. The longer one counts; the shorter is `replayed_history` as far as it is the same, and
  what goes on otherwise keeps its steps under an id of its own. A copy that was not recorded counts before one that was: a
  second name makes no observation of what was declared to be none.
- Two files of telemetry may hold two views of one run under one id (its spans, its log records). Where all that counts in the shorter one
  stands in the longer one too, it is `replayed_history`: what is set aside, and when parallel calls began, does not matter.
  Usage that only the shorter one knows stays there.
- A trace that begins with the history of another, which it calls its parent or shares a session with, replays that history.
  Without a declared parent the copied events must have equal, real times: two runs of one task may begin with equal words.
- Which copy counts does not depend on the order of imports: the replay is the one that declares a parent, else the one that
  starts later, else the one with the larger id.
- A replayed history is set aside event by event; what it used counts where it first stood.
- Traces are compared by their outlines, which hold 8 bytes of digest an event: their texts need not be in memory together.

Not covered: copies that were edited.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from hashlib import blake2b

import msgspec
import numpy as np
import numpy.typing as npt

from experiential_lab.evidence.trace import Event, Trace
from experiential_lab.records import Record, canonical_json, short_id

TELEMETRY = ("otlp_genai", "openinference")  # formats that tell one run twice: in spans, and in log records
_FLOAT = re.compile(r"\d[.eE]")
_SORTED = msgspec.json.Encoder(order="sorted")
LEAST = 2  # events that must be equal: a single greeting is no history


class Outline(Record, kw_only=True):
    """What a trace is compared by, as its importer gave it."""

    source: str
    trace_id: str
    keys: tuple[str, ...]
    starts: str = ""
    """The first real time of an event."""
    begins_aside: bool = False
    """Its first event is set aside already."""
    events: int
    contents: str
    """16 hex an event: what it says."""
    times: str = ""
    """16 hex an event: when, zeros where no time is known; empty when none is."""
    views: str = ""
    """16 hex an event that counts: what another view of the same run must show too. Empty: its format tells a run once."""
    knows_usage: bool = False


class Verdict(Record, kw_only=True):
    """What becomes of one trace among its copies."""

    trace_id: str
    keys: tuple[str, ...]
    replayed: int | None = None
    """So many events, from the first, stand elsewhere; None: it is no copy."""
    keeps_usage: bool = False
    """What it used is known from it alone."""


def outline_of(trace: Trace) -> Outline:
    times = [event.at for event in trace.events]
    counted = [event for event in trace.events if not event.aside]
    return Outline(
        source=trace.source,
        trace_id=trace.trace_id,
        keys=trace.keys,
        starts=next((at for at in times if at), ""),
        begins_aside=bool(trace.events and trace.events[0].aside),
        events=len(trace.events),
        contents="".join(_content(event) for event in trace.events),
        times="".join(_hashed(at) if at else "0" * 16 for at in times) if any(times) else "",
        views="".join(sorted(map(_view, counted))) if trace.format in TELEMETRY else "",
        knows_usage=trace.usage is not None,
    )


def _content(event: Event) -> str:
    text = _value(event.text) if event.kind == "call" else event.text
    return _hashed("\0".join((event.kind, event.tool or "", event.call_id or "", text)))


def _value(arguments: str) -> str:
    """Arguments are equal as values: a copy may be written with other spaces. What is no JSON stands for itself."""
    try:
        value = msgspec.json.decode(arguments)
        if _FLOAT.search(arguments):  # a whole float equals an integer
            return canonical_json(value)
        return _SORTED.encode(value).decode()
    except (ValueError, TypeError, RecursionError):  # none, or none of the profile
        return arguments


def _view(event: Event) -> str:
    """A call with an id is known by it and its tool, a result by its text: views spell arguments otherwise, or leave the id and
    the tool of a result out.
    """
    if event.kind == "call" and event.call_id is not None:
        return _hashed(f"call\0{event.call_id}\0{event.tool}")
    return _hashed(f"{event.kind}\0{event.text}")


def _hashed(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def verdicts_of(outlines: Sequence[Outline], observed: Set[str]) -> list[Verdict | None]:
    """What becomes of each trace; None: nothing, it stands alone.

    `observed`: digests of the sources that were recorded.
    """
    verdicts: list[Verdict | None] = [None] * len(outlines)
    _tell_apart(outlines, observed, verdicts)
    _find_histories(outlines, verdicts)
    return verdicts


def _tell_apart(outlines: Sequence[Outline], observed: Set[str], verdicts: list[Verdict | None]) -> None:
    """Gives traces that declare one id an id of their own."""
    by_id: dict[str, list[int]] = defaultdict(list)
    for at, outline in enumerate(outlines):
        by_id[outline.trace_id].append(at)
    for trace_id, places in by_id.items():
        if len(places) == 1:
            continue
        strict = any(outlines[at].source not in observed for at in places)
        longest = max(places, key=lambda at: (outlines[at].source not in observed, outlines[at].events, -at))
        seen: Counter[str] = Counter()
        for at in places:
            outline = outlines[at]
            seen[outline.source] += 1
            keys = tuple(sorted({*outline.keys, f"trace:{trace_id}"}))
            if at == longest:
                verdicts[at] = Verdict(trace_id=trace_id, keys=keys)
                continue
            same = _common(outline, outlines[longest])
            keeps_usage = False
            if not strict and same < outline.events and _is_view(outline, outlines[longest]):
                same, keeps_usage = outline.events, not outlines[longest].knows_usage
            number = str(seen[outline.source])  # among its own file's, so that other files change no id
            verdicts[at] = Verdict(
                trace_id=short_id(trace_id, outline.source, number),
                keys=keys,
                replayed=same if strict or same == outline.events else None,
                keeps_usage=keeps_usage,
            )


def _find_histories(outlines: Sequence[Outline], verdicts: list[Verdict | None]) -> None:
    """Sets aside what a trace copies of its parent, or of a session that it shares."""
    by_session: dict[str, list[int]] = defaultdict(list)
    for at, outline in enumerate(outlines):
        for key in outline.keys:
            if key.startswith("session:"):
                by_session[key.removeprefix("session:")].append(at)
    order = [_order(outline, verdict) for outline, verdict in zip(outlines, verdicts, strict=True)]
    for at, outline in enumerate(outlines):
        same = 0
        for key in outline.keys:
            kind, _, name = key.partition(":")
            for other in by_session.get(name, ()) if kind in ("parent", "session") else ():
                is_parent = kind == "parent"
                if other != at and (is_parent or order[other] < order[at]):
                    same = max(same, _common(outline, outlines[other], timed=not is_parent))
        verdict = verdicts[at] or Verdict(trace_id=outline.trace_id, keys=outline.keys)
        is_aside = outline.begins_aside or verdict.replayed is not None
        if same >= LEAST and not (is_aside and same == outline.events):
            verdicts[at] = msgspec.structs.replace(verdict, replayed=max(same, verdict.replayed or 0))


def _order(outline: Outline, verdict: Verdict | None) -> tuple[bool, str, str]:
    """Originals first: without a parent, started earlier, with the smaller id."""
    has_parent = any(key.startswith("parent:") for key in outline.keys)
    return has_parent, outline.starts, verdict.trace_id if verdict else outline.trace_id


def _is_view(one: Outline, other: Outline) -> bool:
    """Whether all events that count stand in the other one too, in whatever order, each as often."""
    mine, theirs = (Counter(map("".join, zip(*[iter(each.views)] * 16, strict=True))) for each in (one, other))
    return bool(mine) and mine <= theirs


def _common(one: Outline, other: Outline, *, timed: bool = False) -> int:
    """How many events, from the first, are the same; `timed`: only while both have one real time."""
    length = min(one.events, other.events)
    same = _numbers(one.contents, length) == _numbers(other.contents, length)
    if timed:
        if not one.times or not other.times:
            return 0
        times = _numbers(one.times, length)
        same &= (times == _numbers(other.times, length)) & (times != 0)
    return length if same.all() else int(same.argmin())


def _numbers(digits: str, length: int) -> npt.NDArray[np.uint64]:
    """(length,) uint64 of the first 16 hex digits each."""
    return np.frombuffer(bytes.fromhex(digits[: 16 * length]), np.uint64)


def settled(trace: Trace, verdict: Verdict | None) -> Trace:
    """The trace as it counts, its copied events set aside.

    What a whole copy used counts elsewhere: known zero. What the rest of a partial copy used alone is unknown.
    """
    if verdict is None:
        return trace
    trace = msgspec.structs.replace(trace, trace_id=verdict.trace_id, keys=verdict.keys)
    if verdict.replayed is None:
        return trace
    events = tuple(
        msgspec.structs.replace(event, aside="replayed_history") if at < verdict.replayed else event
        for at, event in enumerate(trace.events)
    )
    if verdict.keeps_usage:
        return msgspec.structs.replace(trace, events=events)
    if verdict.replayed < len(trace.events):
        return msgspec.structs.replace(trace, events=events, usage=None, cost_nusd=None)
    return msgspec.structs.replace(trace, events=events, usage=(), cost_nusd=0)
