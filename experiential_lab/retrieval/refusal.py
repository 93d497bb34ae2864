"""Recorded steps of the fit families become a certificate: which support labels may be answered, and what is refused.

- Only fit families are read; held-out rows are for reporting. Labels and rows are fixed before anything is scored.
- The fit families are cut into two halves by a hash of their names, and each half is asked against the other alone. So,
  given its precedents, the losses of its families are independent, which the bound needs. (Asked against all others,
  neighbours meet: what one copies from the other, the other copies back, and one event counts twice.)
- A label is accepted when both halves certify it.
- Of each family with a row of a label one row counts, that with the smallest digest. Its loss is 1 - exact match between
  the observation of hit 1 and what was really observed.
- Calls and messages are tested apart, each in the order A, B, C up to the first failure. D has no precedent and is
  always refused. When label A fails everything is refused, and the certificate says why.
- A certificate holds for the fit rows, exclusions and ranker that it was made with; hits of others are not judged by it.

The test is `certify_in_order`. For one half it is exact: of an index of the other half, the probability that a label is
accepted whose own risk is above alpha is at most delta, for calls and for messages each.

Not covered: that an index of both halves answers no worse than the index of one, which is assumed; a ranker that was
chosen on the same families, which flatters both halves; and that what will be asked is like what was recorded. An accepted
label promises nothing about one answer.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import numpy as np
import polars as pl

from experiential_lab.metrics import ONE, exact_match
from experiential_lab.records import NoEvidence, Record, StaleError, Unverifiable, digest, digest_of
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.index import Index
from experiential_lab.retrieval.ranking import RankerConfig
from experiential_lab.retrieval.receipts import query_of_entry
from experiential_lab.retrieval.support import Label, Precedents, Rule
from experiential_lab.retrieval.views import Act, Entry, Exclusion, View, Visibility
from experiential_lab.statistics import LabelTest, certify_in_order

Half = Literal[1, 2]
HALVES: tuple[Half, ...] = get_args(Half)
SEQUENCE: tuple[Label, ...] = ("A", "B", "C")
RULES: tuple[Rule, ...] = get_args(Rule)
FRAME = {
    "rule": pl.String,
    "label": pl.String,
    "half": pl.Int64,
    "families": pl.Int64,
    "wrong": pl.Int64,
    "upper_bound": pl.Int64,
    "accepted": pl.Boolean,
    "reason": pl.String,
}

_Counts = dict[tuple[Rule, str], tuple[int, int]]  # (rule, label) -> (families, wrong)


class HalfTest(Record, kw_only=True):
    """The test of one label on the families of one half, asked against the other half."""

    rule: Rule
    half: Half
    test: LabelTest


class Certificate(Record, kw_only=True):
    """Which labels may be answered from some fit rows, and on what evidence."""

    snapshot: str
    """Digest of the fit snapshot."""
    excluded: tuple[Exclusion, ...] = ()
    """Left out of every view, beside the half that was asked."""
    retriever: str
    """Digest of the ranker configuration."""
    alpha: str
    """The largest risk that is accepted, as a decimal."""
    delta: str
    """How likely, at most, one half accepts a label of greater risk."""
    tests: tuple[HalfTest, ...]
    """By rule, label and half."""

    def accepted(self, rule: Rule) -> tuple[Label, ...]:
        """The labels that both halves certify, best first."""
        return tuple(label for label in SEQUENCE if all(each.test.accepted for each in self._of(rule, label)))

    @property
    def refuses_everything(self) -> bool:
        """No label is accepted, neither of calls nor of messages."""
        return not any(map(self.accepted, RULES))

    def reason(self, rule: Rule) -> str:
        """Why the first label that is not accepted is not; empty when all are."""
        for each in (each for label in SEQUENCE for each in self._of(rule, label)):
            if not each.test.accepted:
                return f"label {each.test.label} is not certified: {each.test.reason}"
        return ""

    def _of(self, rule: Rule, label: str) -> list[HalfTest]:
        return [each for each in self.tests if (each.rule, each.test.label) == (rule, label)]


def certify(index: Index, *, alpha: str = "0.1", delta: str = "0.1", exclude: Iterable[Exclusion] = ()) -> Certificate:
    """The certificate of the view `fit` of `index` without what `exclude` names.

    Raises:
        NoEvidence: nothing was split, or a fit row has no family.
        UsageError: alpha or delta is no decimal between 0 and 1, or a level of exclusion is unknown.
    """
    index, fit = index.of_its_own(), View(index.snapshot, "fit", exclude)
    precedents = Precedents(fit.snapshot.entries)
    tests = []
    for half, families in zip(HALVES, halves(fit), strict=True):
        counts = _counted(index, fit, precedents, families)
        for rule in RULES:
            asked = [(label, *counts[rule, label]) for label in SEQUENCE]
            tests += [
                HalfTest(rule=rule, half=half, test=test) for test in certify_in_order(asked, alpha=alpha, delta=delta)
            ]
    return Certificate(
        snapshot=fit.snapshot.digest,
        excluded=fit.excluded,
        retriever=digest(index.config),
        alpha=alpha,
        delta=delta,
        tests=tuple(sorted(tests, key=lambda each: (RULES.index(each.rule), each.test.label, each.half))),
    )


def halves(view: View) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The families of the visible rows in two halves; the names decide, not the order of the rows.

    Raises:
        NoEvidence: a row has no family.
    """
    families = {row.family for row in view.rows}
    if "" in families:
        raise NoEvidence("a fit row has no family, so nothing can be certified: run `split` first")
    ranked = sorted(families, key=lambda family: digest_of(f"half:{family}".encode()))
    return tuple(ranked[0::2]), tuple(ranked[1::2])


def _counted(index: Index, fit: View, precedents: Precedents, families: Sequence[str]) -> _Counts:
    """What became of one row a family and label, asked against the other half."""
    left_out = [*fit.excluded, *(Exclusion(level="family", value=family) for family in families)]
    view = index.view("fit", exclude=left_out)
    keep = np.ones(len(fit.snapshot.rows), bool)
    keep[view.plain.out] = False
    chosen: dict[tuple[Rule, str], dict[str, Entry]] = {(rule, label): {} for rule in RULES for label in "ABCD"}
    for family, entry in _by_digest(fit, families):
        label, rule = precedents.support(_act(entry), keep, similar_words=index.config.similar_words)
        chosen[rule, label].setdefault(family, entry)
    counts = {}
    for cell, entries in chosen.items():
        found = [(view.nearest(query_of_entry(entry), k=1), entry.value) for entry in entries.values()]
        counts[cell] = (len(found), sum(_is_wrong(hits, observed) for hits, observed in found))
    return counts


def _by_digest(fit: View, families: Sequence[str]) -> list[tuple[str, Entry]]:
    """(family, entry) of the visible rows of these families, the smallest digest of an id first: it says nothing of the row."""
    wanted = set(families)
    rows = [(row.family, entry) for row, entry in zip(fit.rows, fit.entries, strict=True) if row.family in wanted]
    return sorted(rows, key=lambda pair: digest_of(pair[1].entry_id.encode()))


def _act(entry: Entry) -> Act:
    return Act(dict(entry.key)["action"], entry.tool, entry.structure, entry.shape)


def _is_wrong(hits: Hits | Unverifiable, observed: str) -> bool:
    """Without a candidate the loss is 1."""
    return isinstance(hits, Unverifiable) or exact_match(hits.entries[0].value, observed) < ONE


def refused(hits: Hits, certificate: Certificate) -> str | None:
    """Why these hits must not be answered from; None when their label is accepted.

    Raises:
        StaleError: the certificate was made for other fit rows, another ranker, or fewer exclusions; both are named.
    """
    check_certificate(certificate, hits.receipt.visibility, hits.receipt.retriever)
    accepted = certificate.accepted(hits.rule)
    if hits.support in accepted:
        return None
    why = f"needs {accepted[-1]}, has {hits.support}" if accepted else certificate.reason(hits.rule)
    return f"no supporting precedent ({why})"


def check_certificate(certificate: Certificate, seen: Visibility, retriever: RankerConfig) -> None:
    """Return when `certificate` can judge what this ranker finds in a view that sees this.

    Raises:
        StaleError: it was made for other fit rows, another ranker, or fewer exclusions; both are named.
    """
    for name, ours, theirs in (
        ("fit snapshot", certificate.snapshot, seen.snapshot_digest),
        ("ranker", certificate.retriever, digest(retriever)),
    ):
        if ours != theirs:
            raise StaleError(f"the certificate is of {name} {ours}, the hits of {theirs}: certify this view and ranker")
    for each in certificate.excluded:
        if each not in seen.excluded:
            raise StaleError(
                f"the certificate was made without {each.level} {each.value!r}, the hits with it: exclude it, or certify again"
            )


def certificate_frame(certificate: Certificate) -> pl.DataFrame:
    """One row a rule, label and half; the upper bound in millionths."""
    rows = [
        (each.rule, test.label, each.half, test.families, test.wrong, test.bound, test.accepted, test.reason)
        for each in certificate.tests
        for test in (each.test,)
    ]
    return pl.DataFrame(rows, schema=FRAME, orient="row")
