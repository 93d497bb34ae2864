"""What the tests of files with one tree a record share: the numbers that are pinned, and seeded damage."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple

from evidence_cases import Read, check_spans, check_sums, read

from experiential_lab.records import LabError

ODD: tuple[Any, ...] = (None, "", 0, -1, 1.5, True, [], {}, "x", ["x"], [None], {"x": 1}, float("nan"), "7", 2**60)


class Numbers(NamedTuple):
    """What became of one file."""

    records: int
    traces: int
    pairing: dict[str, int]
    left_out: dict[str, int]
    set_aside: dict[str, int]
    rejected: dict[str, int]


def numbers_of(found: Read) -> Numbers:
    rows = [row for ledger in found.ledgers for row in ledger.rows]
    return Numbers(
        found.imported.records,
        len(found.imported.traces),
        dict(Counter(row.outcome for row in rows if row.transition_id)),
        dict(Counter(row.outcome for row in rows if not row.transition_id)),
        found.aside,
        dict(Counter(reason for _, reason in found.rejected)),
    )


def check_damage(data: bytes, name: str, *, count: int, seed: int = 3) -> None:
    """Whatever is done to a file, the sums hold and the spans open, or it is refused in words; most of it is still read."""
    still_read = 0
    for hurt in mutants(data, count=count, seed=seed):
        found = None
        with suppress(LabError):
            found = read(hurt, name)
        if found is not None:  # a span that does not open is an error of ours, not one of the file
            check_sums(found)
            check_spans(found)
            still_read += 1
    assert 2 * still_read > count


def mutants(data: bytes, *, count: int, seed: int) -> Iterator[bytes]:
    """Copies of a file of JSON or JSON lines: keys dropped, types changed, lists shuffled, bytes cut."""
    draw = random.Random(seed)
    for _ in range(count):
        try:
            lines = [json.loads(data)]
        except ValueError:
            lines = [json.loads(line) for line in data.splitlines()]
        for _ in range(draw.randint(1, 4)):
            _hurt(draw, draw.choice(_holders(lines) or [[]]))
        draw.shuffle(lines)
        out = "\n".join(json.dumps(line) for line in lines).encode()
        at = draw.randrange(len(out)) if out and draw.random() < 0.2 else len(out)
        yield out[:at]


def _holders(value: Any) -> list[Any]:
    """Every object and list that is not empty, from the outside in."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value] * bool(inner) + [found for each in inner for found in _holders(each)]


def _hurt(draw: random.Random, holder: Any) -> None:
    if not holder:
        return
    key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
    match draw.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            draw.shuffle(holder)
        case 2 if isinstance(holder, list):
            holder.append(deepcopy(holder[key]))
        case _:
            holder[key] = deepcopy(draw.choice(ODD))
