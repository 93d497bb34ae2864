"""Where a conversation stands while its items become events, and the span of a text that came in pieces.

- A turn is a run of assistant output; whatever is no output of the model ends it.
- The first message of a user is the task. What stands before the first action is context; a system text behind it is
  `harness_text`.
- The pieces of a streamed text are quoted one by one, in their order, from the first of their records in the file.

Not covered: who wrote a user's message; what pairs with what.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec

from experiential_lab.evidence.spans import Place, Text
from experiential_lab.evidence.trace import Event
from experiential_lab.records import Span

EARLIEST, LATEST = 1_000_000_000, 1 << 36  # seconds, from 2001 on; a smaller number is an order, not a time


class Talk:
    """One branch of a conversation."""

    def __init__(self, branch: str = "") -> None:
        self.branch = branch
        self.turns = 0
        self.in_turn = self.acted = self.asked = False
        self.ran = False  # the last thing was a tool that the server runs by itself
        self.at: str | None = None

    def forked(self, branch: str) -> "Talk":
        """Another way on from here."""
        found = Talk(branch)
        found.turns, found.acted, found.asked = self.turns, self.acted, self.asked
        return found

    def speak(self) -> None:
        """The model says or does something: a turn begins, or goes on."""
        self.turns += not self.in_turn
        self.in_turn = self.acted = True

    def event(
        self, kind: Any, place: Place, at: Text, *, text: str | None = None, span: Span | None = None, **more: Any
    ) -> Event:
        """An event that quotes `at`. `text`: what it says where that is less; `span`: where it stands in pieces."""
        if span is None:
            span = place.span(at) if at.pointer else place.whole()
        return Event(
            kind=kind,
            turn=str(self.turns),
            branch=self.branch,
            span=span,
            text=at.text if text is None else text,
            at=self.at,
            **more,
        )

    def call(self, place: Place, at: Text, **more: Any) -> Event:
        self.speak()
        return self.event("call", place, at, **more)

    def result(self, place: Place, at: Text, **more: Any) -> Event:
        """A tool's answer; before any action it is a part of what the agent was given."""
        self.in_turn = False
        if not self.acted:
            return self.event("context", place, at, text=more.get("text"))
        return self.event("result", place, at, **{"author": "environment"} | more)

    def user(self, place: Place, at: Text, **more: Any) -> Event:
        self.in_turn = False
        kind = "task" if not self.asked else "user" if self.acted else "context"
        self.asked = True
        return self.event(kind, place, at, **more)

    def system(self, place: Place, at: Text, **more: Any) -> Event:
        self.in_turn = False
        if not self.acted:
            return self.event("context", place, at, **more)
        return self.event("control", place, at, **{"aside": "harness_text"} | more)

    def aside(self, place: Place, at: Text, reason: str) -> Event:
        return self.event("control", place, at, aside=reason)


class Piece(NamedTuple):
    """A part of a text that several records hold."""

    place: Place
    at: Text
    number: int = 0
    """Of its record, for those who ask."""


def joined(pieces: Sequence[Piece], *, length: int | None = None) -> tuple[str, Span]:
    """The text of these pieces, in their order, and its span: a pointer is `<bytes behind the record>+<size><pointer>`.

    `length`: only so many characters, from the first; None: all.
    """
    kept = [piece for piece in pieces if piece.at.text] or list(pieces[:1])
    if length is not None:
        begins = [0, *accumulate(len(piece.at.text) for piece in kept)]
        kept = [piece for piece, begin in zip(kept, begins, strict=False) if begin < length] or kept[:1]
    text = "".join(piece.at.text for piece in kept)[:length]
    first = min(kept, key=lambda piece: piece.place.offset)
    span = first.place.span(first.at)
    end, quote = len(text), "sha256:" + sha256(text.encode()).hexdigest()
    if len(kept) == 1:
        return text, span if length is None else msgspec.structs.replace(span, end=end, quote=quote)
    start = first.place.offset
    pointers = tuple(f"{place.offset - start}+{len(place.raw)}{at.pointer}" for place, at, _ in kept)
    return text, msgspec.structs.replace(span, pointers=pointers, end=end, quote=quote, located="joined")


def moment(seconds: object) -> str | None:
    """A real time in seconds as RFC 3339 text; None for what is none.

    >>> moment(1_775_116_800), moment(2), moment("now")
    ('2026-04-02T08:00:00Z', None, None)
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not EARLIEST <= seconds < LATEST:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
