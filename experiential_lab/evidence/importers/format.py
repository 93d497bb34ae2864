"""What an importer is: a name, a sniff rule, and a reader of framed records."""

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from experiential_lab.evidence.framing import Framed, Frames
from experiential_lab.evidence.secrets import masked
from experiential_lab.evidence.spans import Place
from experiential_lab.evidence.trace import EXCERPT, Event, Imported, Rejected, Trace
from experiential_lab.records import short_id


class Source(NamedTuple):
    """One file as its importer sees it."""

    digest: str
    """Of the bytes as found on disk."""
    path: str
    """What the user called it; for reports only, never an identity."""
    frames: Frames

    def rejected(self, record: Framed, reason: str) -> Rejected:
        """A record with the reason why it is not used, and its place."""
        return Rejected(
            reason=reason,
            source=self.digest,
            member=record.member,
            record=record.number,
            offset=record.offset,
            size=len(record.raw),
            excerpt=masked(record.raw[: 4 * EXCERPT].decode(errors="replace"))[
                :EXCERPT
            ],  # a cut secret is known to nobody
        )

    def place(self, record: Framed) -> Place:
        """Where a record stands: what makes the spans of its texts."""
        return Place(self.digest, record.offset, record.raw, record.member)

    def readable(self) -> tuple[list[Framed], list[Rejected]]:
        """The records that hold a value and are the first of their bytes, and the others with their reasons."""
        bad: list[Rejected] = []
        return [record for _, record in self.each(bad)], bad

    def each(self, rejected: list[Rejected]) -> Iterator[tuple[int, Framed]]:
        """Place (from 0) and record of those that hold a value and are the first of their bytes; the others are `rejected`."""
        seen = set[bytes]()
        is_held = isinstance(self.frames.records, list)  # else their digests are remembered, not they
        for at, record in enumerate(self.frames.records):
            if record.reason:
                rejected.append(self.rejected(record, record.reason))
            elif (known := record.raw if is_held else sha256(record.raw).digest()) in seen:
                rejected.append(self.rejected(record, "duplicate_record"))
            else:
                seen.add(known)
                yield at, record


DECLARED = ("conversation", "conversation_id", "session_id", "thread_id")  # what names a conversation in the wild


def declared_id(value: object) -> str | None:
    """An id as text. Null, the empty text, and what is neither text nor number declare nothing: None.

    >>> declared_id(7), declared_id(""), declared_id(False)
    ('7', None, None)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value) or None


class Format(NamedTuple):
    name: str
    sniff: Callable[[object], str | None]
    """The rule that a parsed value matches, in words, or None."""
    fits: Callable[[object], bool]
    """Whether a reader told to can read this value."""
    read: Callable[[Source], Imported]
    stream: Callable[[Source, list[Rejected]], Iterator[Trace]] | None = None
    """The traces of a long file of lines one by one, where a record is a conversation: `read` needs all in memory."""


def read_each(source: Source, trace_of: Callable[[Source, Framed], Trace | None]) -> Imported:
    """One trace a record; a record that makes none, or an empty one, has an unknown shape."""
    good, rejected = source.readable()
    traces = []
    for record in good:
        trace = trace_of(source, record)
        if trace is None or not trace.events:
            rejected.append(source.rejected(record, "unknown_shape"))
        else:
            traces.append(trace)
    rejected.sort(key=lambda each: each.record)
    return Imported(traces=tuple(traces), records=len(source.frames.records), rejected=tuple(rejected))


def request_of(events: Iterable[Event]) -> str | None:
    """The first request that the agent could see."""
    return next((event.text for event in events if event.kind in ("task", "user") and not event.branch), None)


def context_of(events: Iterable[Event]) -> str | None:
    """What was visible before the first action."""
    seen = (event.text for event in events if event.kind == "context" and not event.aside and not event.branch)
    return "\n\n".join(filter(None, seen)) or None


def task_keys(source: Source, task_id: str | None, *said: str | None) -> tuple[str, ...]:
    """The lineage key of a task with an id; its corpus is the first text that is known of it, else the file."""
    if task_id is None:
        return ()
    text = next(filter(None, said), None)
    return (f"task:{short_id(text) if text else source.digest[7:23]}:{task_id}",)
