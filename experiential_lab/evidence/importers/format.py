"""What an importer is: a name, a sniff rule, and a reader of framed records."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import NamedTuple

from experiential_lab.evidence.framing import Framed, Frames
from experiential_lab.evidence.spans import Place
from experiential_lab.evidence.trace import Imported, Rejected, Trace

EXCERPT = 120  # code points of a text that a report shows


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
            excerpt=record.raw[: 4 * EXCERPT].decode(errors="replace")[:EXCERPT],
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
        for at, record in enumerate(self.frames.records):
            if record.reason:
                rejected.append(self.rejected(record, record.reason))
            elif (digest := sha256(record.raw).digest()) in seen:
                rejected.append(self.rejected(record, "duplicate_record"))
            else:
                seen.add(digest)
                yield at, record


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
