"""One recorded step under the microscope: everything that is near it, and what a boundary leaves of that.

- Scores of one step are shares of the best score when nothing is left out, so that hits and near-misses can be compared.
- A near-miss comes from a second search with a receipt of its own, made here on demand; a session never makes it.
- A step looked at twice gives the same: nothing is chosen by chance.

Not covered: all steps together, which are tables of `claims.fidelity`.
"""

from collections import Counter
from functools import cached_property
from typing import NamedTuple

from experiential_lab.claims.fidelity import Microscope, answer_of, changed_steps, predicted, relations_of
from experiential_lab.evidence.trace import Transition
from experiential_lab.metrics import ONE, exact_match, token_f1
from experiential_lab.records import NoEvidence, Unverifiable
from experiential_lab.retrieval.explain import RELATIONS, Near, NearMisses, near_misses
from experiential_lab.retrieval.grounding import query_of
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.index import Index
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.support import Label
from experiential_lab.retrieval.views import BOUNDARIES, Boundary, Entry, Exclusion, Row, boundary
from experiential_lab.show.theme import number
from experiential_lab.world.models import CopyNearest

K = 5

_REACH = 5_000  # entries that lanes are drawn from, the best first
_FROM = {
    "itself": "the step itself",
    "own trace": "its own trace",
    "conversation": "its own conversation",
    "family": "its own family",
    "identical call": "an identical call of another task",
    "other task": "another task",
}


class Dot(NamedTuple):
    """An entry as it stands in its lane."""

    position: int
    entry: Entry
    relation: str
    share: float
    """Of the best score when nothing is left out."""
    same: bool
    """It has the observation that really followed."""

    @property
    def lane(self) -> int:
        """1 to 5; boundaries up to this number leave it out."""
        return RELATIONS.index(self.relation)

    @property
    def related(self) -> bool:
        return self.relation != RELATIONS[-1]


class Specimen:
    """One recorded step under the microscope, with all that is near it. What it holds never changes."""

    def __init__(self, index: Index, step: Transition) -> None:
        """Look at `step`. Raises NoEvidence: it is no entry of the index."""
        found = index.snapshot.positions(Exclusion(level="entry", value=step.transition_id))
        if not found:
            raise NoEvidence(f"{step.transition_id} is no entry of the index: xlab transitions lists them")
        self.index, self.step, self.own = index, step, found[0]
        self.query: Query = query_of(step)
        self.truth = answer_of(index.snapshot.entries[self.own])
        self.relations = relations_of(index.snapshot, self.own)

    @cached_property
    def dots(self) -> tuple[Dot, ...]:
        """The entries but the step itself, the best first, as far as lanes reach."""
        whole = self.index.view("all").nearest(self.query, min(_REACH, len(self.index.snapshot.rows)))
        if isinstance(whole, Unverifiable):
            return ()
        return tuple(
            Dot(
                hit.position,
                entry,
                self.relation(hit.position),
                self.share(hit.score),
                answer_of(entry) == self.truth,
            )
            for hit, entry in zip(whole, whole.entries, strict=True)
            if hit.position != self.own
        )

    @cached_property
    def best(self) -> int:
        """The best score when nothing is left out."""
        whole = self.index.view("all").nearest(self.query, 1)
        return 0 if isinstance(whole, Unverifiable) else whole[0].score

    def share(self, score: int) -> float:
        """A score of the second search over the best one; 0 where nothing shares a feature that counts."""
        return score / self.best if self.best > 0 else 0.0

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many entries each of the six relations has; invalidated rows are no entries."""
        rows = self.index.snapshot.rows
        found = Counter(self.relation(position) for position, row in enumerate(rows) if not row.invalidated)
        return tuple(found[name] for name in RELATIONS)

    def relation(self, position: int) -> str:
        return self.relations.get(position, RELATIONS[-1])

    def hits(self, level: Boundary, k: int = K) -> Hits | Unverifiable:
        """What is nearest when `level` is left out."""
        row = self.index.snapshot.rows[self.own]
        return self.index.view("all", exclude=boundary(level, row)).nearest(self.query, k)

    @cached_property
    def ever(self) -> frozenset[int]:
        """Rows that are a hit at some boundary."""
        found = [self.hits(level) for level in BOUNDARIES]
        return frozenset(hit.position for hits in found if isinstance(hits, Hits) for hit in hits)


class Look(NamedTuple):
    """A step at one boundary: what is predicted there, and from what."""

    specimen: Specimen
    level: Boundary
    near: NearMisses | Unverifiable
    refuse_below: Label | None = None

    @property
    def hits(self) -> Hits | None:
        return self.near.hits if isinstance(self.near, NearMisses) else None

    @property
    def predicted(self) -> str | None:
        """None: there is nothing to copy."""
        return predicted(self.specimen.step, self.hits, CopyNearest()) if self.hits else None

    @property
    def support(self) -> tuple[str, str]:
        """(label, rule)."""
        rule = "tool" if self.specimen.query.act.tool else "message"
        return (self.hits.support, self.hits.rule) if self.hits else ("D", rule)

    @property
    def refused(self) -> bool:
        """Its support is below what was asked for; the answer is not given."""
        return self.refuse_below is not None and self.support[0] > self.refuse_below

    @property
    def sentence(self) -> str:
        """The view in one sentence."""
        view = self.specimen.index.view("all", exclude=boundary(self.level, self._row))
        total = len(self.specimen.index.snapshot.rows)
        head = f"For this step {number(total - view.count)} of {number(total)} entries "
        head += f"{'is' if total - view.count == 1 else 'are'} left out before scoring"
        if self.hits is None or self.predicted is None:
            why = self.near.reason if isinstance(self.near, Unverifiable) else ""
            return f"{head}. Nothing is left to copy ({why}), which counts as score 0."
        first = next(row for row in self._rows if row.rank == 1)
        near = f", at {self.specimen.share(first.score_all):.2f} of the best score"
        near = near if self.specimen.best > 0 else ", and shares no feature that counts"
        return (
            f"{head}. Hit 1 comes from {_FROM[self.specimen.relation(self.hits[0].position)]}{near}; "
            f"{_verdict(self.predicted, self.specimen.truth)}."
        )

    @property
    def _row(self) -> Row:
        return self.specimen.index.snapshot.rows[self.specimen.own]

    @property
    def _rows(self) -> tuple[Near, ...]:
        return self.near.rows if isinstance(self.near, NearMisses) else ()


def look(specimen: Specimen, level: Boundary, *, k: int = K, refuse_below: Label | None = None) -> Look:
    """The step at one boundary, with k hits and the near-misses that the boundary left out."""
    hits = specimen.hits(level, k)
    if isinstance(hits, Unverifiable):
        return Look(specimen, level, hits, refuse_below)
    return Look(specimen, level, near_misses(specimen.index, hits, step=specimen.step.transition_id), refuse_below)


def _verdict(said: str, truth: str) -> str:
    if exact_match(said, truth):
        return "its observation is exactly what happened"
    return f"its observation differs from what happened (token F1 {token_f1(said, truth) / ONE:.2f})"


def first_step(scope: Microscope) -> str:
    """The step that is looked at first: a call that loses its answer with its lineage, where there is one."""
    changed = changed_steps(scope.steps, "lineage")
    calls = set(scope.steps.filter(rule="tool")["step_id"])
    return next((step for step in changed if step in calls), next(iter(changed), scope.order[0]))


def moved(scope: Microscope, step_id: str, by: int) -> str:
    """The step `by` places further; after the last one comes the first."""
    order = scope.order
    return order[(order.index(step_id) + by) % len(order)]


def next_changed(scope: Microscope, step_id: str, level: Boundary) -> str:
    """The next step whose exact match falls at `level`; the same step when there is none."""
    places = {step: n for n, step in enumerate(scope.order)}
    begin, changed = places[step_id] + 1, changed_steps(scope.steps, level)
    return min(changed, key=lambda each: (places[each] - begin) % len(places), default=step_id)
