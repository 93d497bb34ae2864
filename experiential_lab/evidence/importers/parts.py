"""A part of a record: a value inside it that was cut out once, so that what lies in it is found without reading the whole again.

- A part has the place of its record and its own pointer: what it quotes opens in the record.
- Values of a wrong type are empty, not errors: what a file of anybody holds is judged where it is used.

Not covered: JSON text inside JSON text (`Place.into`), and other spellings of one tree (`dialects`).
"""

import json
from typing import Any, NamedTuple, TypeVar

import msgspec

from experiential_lab.evidence.spans import Place, Text, source_text
from experiential_lab.evidence.trace import Event

_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
Item = TypeVar("Item")


class Part(NamedTuple):
    place: Place
    """Of the record."""
    raw: bytes
    """Of the part."""
    pointer: str = ""
    """Where the part stands in the record."""

    def value(self, value: object, inner: str) -> Text:
        """The text of the value at `inner` of this part."""
        at = self.place._replace(raw=self.raw).value(value, inner)
        return at._replace(pointer=self.pointer + at.pointer)

    @property
    def whole(self) -> Text:
        """The part itself: what it says if it is a text, else its exact source text."""
        text = self.raw.decode()
        return Text(json.loads(text) if text.startswith('"') else text, self.pointer)

    def below(self, inner: str) -> "Part":
        """The part of this part at `inner`."""
        return Part(self.place, source_text(self.raw, inner).encode() if inner else self.raw, self.pointer + inner)

    def elements(self, values: list[Any]) -> list["Part"]:
        """The elements of this part, a list that holds `values`."""
        try:
            raws = [bytes(each) for each in _ELEMENTS.decode(self.raw)]
        except (msgspec.DecodeError, ValueError):  # NaN and infinity are JSON to the standard library alone
            return [self.below(f"/{at}") for at in range(len(values))]
        return [Part(self.place, raw, f"{self.pointer}/{at}") for at, raw in enumerate(raws)]

    def event(self, kind: Any, quoted: Text, *, text: str | None = None, **more: Any) -> Event:
        """An event with the span of what it quotes; `text` where it says something else, or nothing."""
        return Event(kind=kind, span=self.place.span(quoted), text=quoted.text if text is None else text, **more)


def parts_of(place: Place, pointer: str, values: list[Any]) -> list[tuple[Part, Any]]:
    """Each element of the list at `pointer` of a record, with its place."""
    return list(zip(Part(place, place.raw).below(pointer).elements(values), values, strict=True))


def mapping(value: object) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def named(value: object) -> str | None:
    """The value if it is a text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def in_own_order(items: list[Item], numbers: list[Any]) -> list[Item]:
    """Items in the order of their numbers, if each has one of its own; else as they stand."""
    if not all(type(number) is int for number in numbers) or len(set(numbers)) < len(numbers):
        return items
    return [items[at] for at in sorted(range(len(items)), key=numbers.__getitem__)]
