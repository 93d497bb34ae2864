"""Which traces must be kept apart together: lineages, and families of near-duplicate tasks.

- A lineage unites traces that share a key: a session, a parent, a task with all its trials, or the same first three messages
  (the system text is none of them).
- A family unites lineages whose task texts are near-duplicates: Jaccard of word 3-shingles at or above a stated threshold.
  The declared statement of a task counts where there is one, else the first request. The search is exact: an inverted
  index over the rarest shingles of each text finds every pair (prefix filtering: Chaudhuri, Ganti, Kaushik 2006; with
  positions: Xiao, Wang, Lin, Yu 2008, so that tasks which share a long preamble cost little).

Not covered: paraphrases. Two wordings of one task below the threshold are two families.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Protocol

from experiential_lab.evidence.trace import Event, Trace
from experiential_lab.metrics import words
from experiential_lab.records import short_id

SHINGLE = 3  # words
OPENING = 3  # messages


def opening_key(events: Iterable[Event]) -> str | None:
    """The lineage key of a trace's first three messages, without system text and copies; None for a shorter trace."""
    first = []
    for event in events:
        is_copy = event.aside in ("replayed_history", "duplicate_view")
        if not is_copy and event.kind not in ("context", "boundary", "reasoning", "control"):
            first.append(f"{event.kind}\0{event.tool or ''}\0{event.text}")
            if len(first) == OPENING:
                return f"opening:{short_id(*first)}"
    return None


class Keyed(Protocol):
    """A trace, or as much of it as lineages need."""

    @property
    def trace_id(self) -> str: ...
    @property
    def keys(self) -> tuple[str, ...]: ...


def lineages_of(traces: Iterable[Keyed]) -> dict[str, str]:
    """{trace id: lineage id}. A lineage is named after the least of its keys, so that it does not depend on order."""
    groups = _Groups()
    keys_of = {trace.trace_id: _links(trace) for trace in traces}
    for keys in keys_of.values():
        for key in keys:
            groups.unite(keys[0], key)
    return {trace_id: short_id("lineage", groups.root(keys[0])) for trace_id, keys in keys_of.items()}


def _links(trace: Keyed) -> list[str]:
    """The keys of a trace; what it calls its parent is what the parent calls itself."""
    keys = (re.sub("^parent:", "session:", key) for key in trace.keys)
    return sorted(keys) or [f"trace:{trace.trace_id}"]


def families_of(traces: Iterable[Trace], lineages: Mapping[str, str], threshold: Fraction) -> dict[str, str]:
    """{lineage id: family id}: lineages united by near-duplicate task texts."""
    groups, by_text = _by_text(traces, lineages)
    for one, other, _ in near_duplicates(list(by_text), threshold):
        groups.unite(by_text[one], by_text[other])
    return _named(groups)


def sweep(
    traces: Iterable[Trace], lineages: Mapping[str, str], thresholds: Sequence[Fraction]
) -> list[tuple[Fraction, dict[str, str]]]:
    """The families at each threshold, from the highest down: one threshold hides a cliff.

    The pairs are sought once, at the lowest threshold.
    """
    groups, by_text = _by_text(traces, lineages)
    pairs = near_duplicates(list(by_text), min(thresholds))
    pairs.sort(key=lambda pair: -pair[2])
    found, at = [], 0
    for threshold in sorted(thresholds, reverse=True):
        while at < len(pairs) and pairs[at][2] >= threshold:
            groups.unite(by_text[pairs[at][0]], by_text[pairs[at][1]])
            at += 1
        found.append((threshold, _named(groups)))
    return found


def _by_text(traces: Iterable[Trace], lineages: Mapping[str, str]) -> tuple["_Groups", dict[str, str]]:
    """Lineages united by equal task texts, and {task text: one of its lineages}."""
    groups = _Groups()
    by_text: dict[str, str] = {}
    for trace in traces:
        lineage = lineages[trace.trace_id]
        groups.root(lineage)
        text = trace.statement if trace.statement is not None else trace.task
        if text and text.strip():
            groups.unite(lineage, by_text.setdefault(" ".join(words(text)) or text.strip(), lineage))
    return groups, by_text


def _named(groups: "_Groups") -> dict[str, str]:
    return {lineage: short_id("family", groups.root(lineage)) for lineage in groups.parent}


def shingles(text: str) -> frozenset[str]:
    """Every run of three words; the whole text when it has fewer."""
    found = words(text) or [text.strip()]
    return frozenset(" ".join(found[at : at + SHINGLE]) for at in range(max(1, len(found) - SHINGLE + 1)))


def near_duplicates(texts: list[str], threshold: Fraction) -> list[tuple[str, str, Fraction]]:
    """Every pair of texts whose shingles have a Jaccard index of at least `threshold`, with the index; exact."""
    sets = [shingles(text) for text in texts]
    spread: dict[str, int] = defaultdict(int)
    for each in sets:
        for shingle in each:
            spread[shingle] += 1
    # Exact: shared / (one + other - shared) >= p / q is the same as shared * (p + q) >= p * (one + other).
    share, whole = threshold.numerator, threshold.numerator + threshold.denominator
    holders: dict[str, list[tuple[int, int]]] = defaultdict(list)
    pairs = []
    for at, each in enumerate(sets):
        # Two sets this alike share at least ceil(threshold * size) shingles, so one of the rarest others is shared.
        rarest = sorted(each, key=lambda shingle: (spread[shingle], shingle))
        prefix = rarest[: len(each) - -(-share * len(each) // threshold.denominator) + 1]
        may_be_near: dict[int, bool] = {}
        for place, shingle in enumerate(prefix):
            for other, its_place in holders[shingle]:
                if other not in may_be_near:  # their first common shingle: what follows it is all that they can share
                    size = len(sets[other])
                    most = min(len(each) - place, size - its_place)
                    may_be_near[other] = most * whole >= share * (len(each) + size)
            holders[shingle].append((at, place))
        for other in sorted(other for other, may_be in may_be_near.items() if may_be):
            shared = len(each & sets[other])
            both = len(each) + len(sets[other])
            if shared * whole >= share * both:
                pairs.append((texts[other], texts[at], Fraction(shared, both - shared)))
    return pairs


class _Groups:
    """Union-find; the least member is the root."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def root(self, member: str) -> str:
        self.parent.setdefault(member, member)
        while self.parent[member] != member:
            self.parent[member] = self.parent[self.parent[member]]
            member = self.parent[member]
        return member

    def unite(self, one: str, other: str) -> None:
        low, high = sorted((self.root(one), self.root(other)))
        self.parent[high] = low
