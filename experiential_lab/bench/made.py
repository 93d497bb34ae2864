"""Entries that are made for measuring: tool calls over orders, with tasks and earlier observations as agents have them."""

import random
from typing import Literal

from experiential_lab.evidence.trace import Action, Transition
from experiential_lab.records import Span
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.views import Entry, Facts, Snapshot, entry_of, snapshot_of

TOOLS = (
    "find_order",
    "find_customer",
    "change_address",
    "cancel_order",
    "list_items",
    "send_message",
    "refund",
    "track",
)
FIELDS = ("order_id", "customer_id", "reason", "item", "street", "note")
WORDS = [
    first + last
    for first in ["ba", "co", "du", "fi", "ga", "hu", "jo", "ka", "li", "mo", "nu", "pe", "ri", "so", "tu", "ve"]
    for last in ["nd", "rk", "st", "lp", "mm", "ng", "x"]
]
PER_LINEAGE = 20


def made_snapshot(count: int, *, held_out: float = 0.2, seed: int = 0) -> Snapshot:
    """`count` entries, 20 a lineage, each lineage a family; a share of the lineages is held out."""
    chance = random.Random(seed)
    entries, facts = [], {}
    lineages = -(-count // PER_LINEAGE)
    for number in range(count):
        lineage = number // PER_LINEAGE
        entry = made_entry(chance, number, f"lineage{lineage:06d}")
        entries.append(entry)
        side: Literal["fit", "held_out"] = "held_out" if lineage >= lineages * (1 - held_out) else "fit"
        facts[entry.entry_id] = Facts(split=side, family=f"family{lineage:06d}", origin="recorded")
    return snapshot_of(entries, facts)


def made_entry(chance: random.Random, number: int, lineage: str) -> Entry:
    trace = f"{number // PER_LINEAGE:016x}"
    span = Span(source="sha256:" + "0" * 64, offset=number, size=1, end=1, quote="sha256:" + "0" * 64)
    transition = Transition(
        transition_id=f"{trace}/{number % PER_LINEAGE:04d}",
        trace_id=trace,
        task=_said(chance, 30),
        recent=_record(chance, 12),
        action=Action(tool=chance.choice(TOOLS), arguments=_record(chance, 3)),
        observation=_record(chance, 8),
        terminal=False,
        pairing="explicit_id",
        observation_kind="tool_result",
        observation_source="environment",
        action_span=span,
        observation_span=span,
    )
    return entry_of(transition, lineages=(lineage,), path="made")


def made_query(chance: random.Random) -> Query:
    return Query(
        action="",
        tool=chance.choice(TOOLS),
        arguments=_record(chance, 3),
        task=_said(chance, 30),
        recent=_record(chance, 12),
    )


def _said(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words))


def _record(chance: random.Random, fields: int) -> str:
    values = [
        f'"{FIELDS[i % len(FIELDS)]}{i // len(FIELDS) or ""}": "{chance.choice(WORDS)} {chance.randrange(10**6)}"'
        for i in range(fields)
    ]
    return "{" + ", ".join(values) + "}"
