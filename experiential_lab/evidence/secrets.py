"""Find what looks like a secret in trace text: count it and say where it is, never what it is.

- A finding is a kind and a place. Its text is not in the report, not in a message and not on screen: `masked` puts the kind in
  its place wherever trace text is shown, unless the reader asks for it.
- It is a look, not a gate: a word that looks like a secret never refuses a file, and stored bytes stay as they are.
- Each kind begins with a literal that is looked for first: a text without any costs one pass a literal.

Not covered: secrets without a known shape, and secrets that are encoded or split over messages.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_AT_ONCE = 4 << 20  # bytes; a key of many lines that is cut here is still known by its first one


class Secret(NamedTuple):
    """A place that looks like a secret: bytes `start` to `end` of what was searched."""

    kind: str
    start: int
    end: int


class _Kind(NamedTuple):
    name: str
    literal: bytes
    pattern: re.Pattern[bytes]
    """Of the secret, which begins where the literal begins."""


def _kind(name: str, pattern: bytes, *literals: bytes) -> list[_Kind]:
    return [_Kind(name, literal, re.compile(pattern)) for literal in literals]


_KINDS = (
    *_kind(
        "private key",
        rb"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----END)[\s\S]){0,4000}(?:-----END [A-Z ]*PRIVATE KEY-----)?",
        b"-----BEGIN ",
    ),
    *_kind("provider key", rb"(?<![\w-])sk-[A-Za-z0-9_-]{20,}", b"sk-"),
    *_kind("GitHub token", rb"(?<!\w)gh[pousr]_[A-Za-z0-9]{36,}", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"),
    *_kind("GitHub token", rb"(?<!\w)github_pat_\w{40,}", b"github_pat_"),
    *_kind("AWS key id", rb"(?<!\w)AKIA[0-9A-Z]{16}(?!\w)", b"AKIA"),
    *_kind("Google key", rb"(?<!\w)AIza[\w-]{35}(?![\w-])", b"AIza"),
    *_kind("Slack token", rb"(?<!\w)xox[abprs]-[\w-]{10,}", b"xox"),
    *_kind("JSON web token", rb"(?<![\w-])eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}", b"eyJ"),
    *_kind("password in a URL", rb"://[^\s/:@\"'\\]{1,64}:[^\s/@\"'\\]{3,}(?=@)", b"://"),
    *_kind("bearer token", rb"[Bb]earer [\w.~+/=-]{20,}", b"Bearer ", b"bearer "),
)


def find_secrets(data: bytes) -> list[Secret]:
    """Every place in `data` that looks like a secret, in order; of places that overlap the first, and then the longest."""
    found = sorted({each for kind in _KINDS for each in _of_kind(kind, data)}, key=lambda each: (each.start, -each.end))
    kept: list[Secret] = []
    for each in found:
        if not kept or each.start >= kept[-1].end:
            kept.append(each)
    return kept


def secrets_in(file: BinaryIO) -> Iterator[Secret]:
    """What `find_secrets` finds in a file of any length, which is read some lines at a time."""
    at = 0
    while lines := file.readlines(_AT_ONCE):
        data = b"".join(lines)
        for each in find_secrets(data):
            yield Secret(each.kind, each.start + at, each.end + at)
        at += len(data)


def masked(text: str) -> str:
    """`text` with the kind of each secret in its place.

    >>> masked("use AKIAABCDEFGHIJKLMNOP here")
    'use [AWS key id] here'
    """
    if not any(kind.literal.decode() in text for kind in _KINDS):
        return text
    data = text.encode("utf-8", "surrogatepass")
    while found := find_secrets(data):  # again: what stood beside a secret may now stand alone, and be one
        parts, at = [], 0
        for each in found:
            parts += [data[at : each.start], f"[{each.kind}]".encode()]
            at = each.end
        data = b"".join([*parts, data[at:]])
    return data.decode("utf-8", "surrogatepass")


def _of_kind(kind: _Kind, data: bytes) -> Iterator[Secret]:
    at = data.find(kind.literal)
    while at >= 0:
        match = kind.pattern.match(data, at)
        if match:
            yield Secret(kind.name, *match.span())
        at = data.find(kind.literal, match.end() if match else at + 1)
