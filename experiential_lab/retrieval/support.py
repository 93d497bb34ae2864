"""How well real precedents support an action: one letter, counted over the visible entries before anything is scored.

| | a tool call | a message |
|---|---|---|
| A | same tool and arguments | same text, but for case and white space |
| B | same tool and argument names | similar words: token F1 at or above the stated threshold |
| C | same tool | any other message that was answered |
| D | no precedent | no precedent |

- Every visible entry counts, not only the hits: the letter depends on the view and the action, not on k or on any weight.
- The comparison of words is exact and in integers. An inverted word count proposes candidates, its hashed words can only
  propose too many, and `token_f1` decides.

Not covered: that a precedent with the same action was answered alike, or would be again. One precedent is no rule.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from experiential_lab.metrics import ONE, token_f1
from experiential_lab.retrieval.sparse import Array, find, postings_of, spans_of, terms_of
from experiential_lab.retrieval.views import Act, Entry

Label = Literal["A", "B", "C", "D"]
Rule = Literal["tool", "message"]


class Support(NamedTuple):
    label: Label
    rule: Rule


class Precedents:
    """The entries of one snapshot by what they did. It never changes."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._same = _rows(entry.structure for entry in entries)
        self._shape = _rows(entry.shape for entry in entries)
        self._tool = _rows(entry.tool for entry in entries)
        self._messages = self._tool.get("", np.zeros(0, np.int64))
        self._texts = [dict(entry.key).get("action", "") for entry in entries if not entry.tool]
        self._words = postings_of(self._texts, "word")

    def support(self, act: Act, visible: Array, *, similar_words: str) -> Support:
        """The support of `act` by the rows that are `visible` ((n,) bool); `similar_words` is a decimal string."""
        if _any(self._same, act.structure, visible):
            return Support("A", "tool" if act.tool else "message")
        if act.tool:
            shape, tool = _any(self._shape, act.shape, visible), _any(self._tool, act.tool, visible)
            return Support("B" if shape else "C" if tool else "D", "tool")
        if self._similar(act.text, visible, Fraction(similar_words)):
            return Support("B", "message")
        return Support("C" if _any(self._tool, "", visible) else "D", "message")

    def _similar(self, text: str, visible: Array, least: Fraction) -> bool:
        shared = self._shared(text)
        both = self._words.length + int(terms_of(text, "word")[1].sum())
        candidates = visible[self._messages] & (shared > 0) & (2 * shared * least.denominator >= least.numerator * both)
        return any(
            token_f1(text, self._texts[i]) * least.denominator >= least.numerator * ONE
            for i in np.flatnonzero(candidates).tolist()
        )

    def _shared(self, text: str) -> Array:
        """(m,) int64: words that each message shares with `text`, repetitions counted; never too few."""
        terms, count = find(self._words, text, "word")
        rows, tf = self._words.rows, self._words.tf
        spans = spans_of(self._words, terms)
        shared = np.bincount(np.concatenate([rows[:0], *(rows[span] for span in spans)]), minlength=len(self._texts))
        for i in np.flatnonzero(count > 1).tolist():
            shared[rows[spans[i]]] += np.minimum(tf[spans[i]], count[i]) - 1
        return shared


def _rows(values: Iterable[str]) -> dict[str, Array]:
    """Value -> (m,) int64, the rows that have it, ascending."""
    rows: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        rows.setdefault(value, []).append(row)
    return {value: np.array(found, np.int64) for value, found in rows.items()}


def _any(rows: dict[str, Array], value: str, visible: Array) -> bool:
    return value in rows and bool(visible[rows[value]].any())
