"""For the tests of Langfuse and LangSmith: files read and checked as an import reads them, and damaged at random."""

import json
import random
from collections import Counter
from contextlib import suppress
from typing import Any

from evidence_cases import Read, check_spans, check_sums, lines

from experiential_lab.evidence import importers
from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.transitions import ledger_of
from experiential_lab.records import LabError, digest_of

ODD = [None, 0, True, "", "x", [], {}, [None], 3.5, "null", "{}", '"q"', "{'a': 1}", '{"messages": 3}', [[]], 2**70]


def read(data: bytes) -> Read:
    """A file as it is sniffed and read; its sums hold and its spans open."""
    frames = frame(data)
    format, _ = importers.choose(frames)
    imported = format.read(Source(digest_of(data), "it", frames))
    found = Read(data, format.name, imported, [ledger_of(trace) for trace in imported.traces])
    check_sums(found)
    check_spans(found)
    return found


def left_out(found: Read) -> dict[str, int]:
    return dict(Counter(row.outcome for each in found.ledgers for row in each.rows if row.transition_id is None))


def undone(value: Any) -> Any:
    """What a JSON text holds; anything else as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def survives(rows: list[Any], chance: random.Random) -> None:
    """Reads the records after they were shuffled, changed and perhaps cut: only a LabError may come of it."""
    chance.shuffle(rows)
    data = lines(*(mutated(row, chance, chance.randrange(4)) for row in rows))
    data = data[: chance.randrange(len(data))] if chance.random() < 0.1 else data
    with suppress(LabError):
        read(data)


def mutated(value: Any, chance: random.Random, times: int) -> Any:
    """A copy of a value, changed in so many places, also inside JSON text."""
    value = json.loads(json.dumps(value))
    for _ in range(times):
        at, key = value, None
        while isinstance(at, dict | list) and at and (key is None or chance.random() < 0.8):
            holder, key = at, chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
            at = at[key]
        if key is None:
            break
        match chance.randrange(4):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                chance.shuffle(holder)
            case 2 if isinstance(at, str):
                inner = undone(at)
                holder[key] = at[: len(at) // 2] if inner is at else json.dumps(mutated(inner, chance, 1))
            case _:
                holder[key] = json.loads(json.dumps(chance.choice(ODD)))
    return value
