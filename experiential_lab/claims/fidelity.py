"""Every held-out step asked at every boundary: what copying the nearest transition gets right, and what leakage adds to it.

- The pool is the whole snapshot, fit and held out, minus what the boundary leaves out: "leave out" needs something to leave
  out. A session consults less: fit entries alone.
- A step is asked as it was recorded, with its task and its last observation. The prediction is the world model's, for
  copy-nearest the observation of hit 1; a terminal observation is compared without its stop marker, on both sides.
- A step without any candidate has score 0 and stays in every mean; it is counted, with its reason.
- The relation of an entry is the first boundary that leaves it out, so relations and boundaries cannot disagree.
- The floor of a step is the exact expectation for a random call of the same tool (for a message, a random message) among
  what the strictest boundary leaves; 0 where that is nothing.
- A mean is over families, each with one vote, and its interval is family t. A difference is paired: the same steps.
- Equal index, steps and world model give equal tables. Scores are millionths; an interval that a guard refuses is null, and
  its reason stands beside it.

Not covered: whether a precedent that answers alike would do so again, and any other split of the same corpus.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import polars as pl

from experiential_lab.evidence.corpus import Corpus
from experiential_lab.evidence.trace import Transition, shown
from experiential_lab.metrics import ONE, exact_match, normalised, token_f1, words
from experiential_lab.records import NoEvidence, Unverifiable, UsageError
from experiential_lab.retrieval.explain import RELATIONS
from experiential_lab.retrieval.grounding import query_of
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.index import Index
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.sparse import Array
from experiential_lab.retrieval.views import BOUNDARIES, Boundary, Entry, Row, Snapshot, View, boundary
from experiential_lab.statistics import Estimate, Interval, NotEnough, Scores, family_difference, family_mean
from experiential_lab.store import Store
from experiential_lab.world.models import CopyNearest, Request, WorldModel

Asked = Literal["held_out", "all"]
"""Which steps are asked about."""
Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""

METRICS = ("exact", "token_f1")
VERSION = 1  # of the tables below; a kept table of another version is made again

STEPS: dict[str, Any] = {
    "step_id": pl.String,
    "family": pl.String,
    "boundary": pl.String,
    "left_out": pl.Int64,
    "support": pl.String,
    "top_entry_id": pl.String,
    "relation": pl.String,
    "score_dec": pl.String,
    "exact": pl.Int64,
    "token_f1": pl.Int64,
    "receipt": pl.String,
    "rule": pl.String,
    "reason": pl.String,
    "floor_exact": pl.Int64,
    "floor_token_f1": pl.Int64,
}
LADDER: dict[str, Any] = {
    "boundary": pl.String,
    "metric": pl.String,
    "n": pl.Int64,
    "families": pl.Int64,
    "mean": pl.Int64,
    "low": pl.Int64,
    "high": pl.Int64,
    "diff": pl.Int64,
    "diff_low": pl.Int64,
    "diff_high": pl.Int64,
    "floor": pl.Int64,
    "no_candidate": pl.Int64,
    "by_row": pl.Int64,
    "above": pl.Int64,
    "above_low": pl.Int64,
    "above_high": pl.Int64,
    "reason": pl.String,
    "diff_reason": pl.String,
    "above_reason": pl.String,
}


def microscope_steps(
    index: Index,
    steps: Iterable[Transition],
    *,
    asked: Asked = "held_out",
    world_model: WorldModel | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """One row a step and boundary, in the order of `steps`; a step that is no entry of the index is not asked.

    `score_dec` is the score of hit 1 over the best one when nothing is left out. `floor_*` are of the step, whatever the
    boundary.

    Raises:
        NoEvidence: there is no step to ask, or nothing was split.
        UsageError: `asked` is unknown.
    """
    chosen = chosen_steps(index, steps, asked)
    model, rows = world_model or CopyNearest(), list[dict[str, Any]]()
    floors = _floors(index.snapshot, [position for _, position in chosen])
    for done, ((step, position), floor) in enumerate(zip(chosen, floors, strict=True), 1):
        about = {"step_id": step.transition_id, "family": index.snapshot.rows[position].family} | floor
        rows += [about | found for found in _asked(index, step, position, model)]
        if progress:
            progress(done, len(chosen))
    return pl.DataFrame([tuple(row.get(name) for name in STEPS) for row in rows], schema=STEPS, orient="row")


def chosen_steps(index: Index, steps: Iterable[Transition], asked: Asked) -> list[tuple[Transition, int]]:
    """The steps that are asked about, each with its row in the snapshot. Raises as `microscope_steps`."""
    if asked not in get_args(Asked):
        raise UsageError(f"unknown steps {asked!r}: ask about held_out or all")
    rows = {row.entry_id: position for position, row in enumerate(index.snapshot.rows)}
    if not any(row.split == "held_out" for row in index.snapshot.rows):
        raise NoEvidence("no entry of the index is held out: run `split`, then `index`")
    kept = [(step, rows[step.transition_id]) for step in steps if step.transition_id in rows]
    return [(step, at) for step, at in kept if asked == "all" or index.snapshot.rows[at].split == "held_out"]


def answer_of(entry: Entry) -> str:
    """What really followed, as it is compared and shown: a terminal observation is without its stop marker."""
    return shown(entry.value) if entry.terminal is True else entry.value


def relations_of(snapshot: Snapshot, own: int) -> dict[int, str]:
    """{row: its relation} of every row that some boundary around the row `own` leaves out; any other is another task."""
    found: dict[int, str] = {}
    for level, name in zip(BOUNDARIES, RELATIONS, strict=False):
        for exclusion in boundary(level, snapshot.rows[own]):
            for position in snapshot.positions(exclusion):
                found.setdefault(position, name)
    return found


def _left_out(snapshot: Snapshot, level: Boundary, row: Row) -> list[int]:
    return View(snapshot, "all", boundary(level, row)).out


def predicted(step: Transition, hits: Hits, world_model: WorldModel) -> str:
    """What the world model says would follow the recorded action, from these hits alone."""
    query = query_of(step)
    request = Request(step.task or "", None, (), query.act.text, hits)
    return world_model.predict(request).message


def _asked(index: Index, step: Transition, position: int, model: WorldModel) -> Iterable[dict[str, Any]]:
    query, snapshot = query_of(step), index.snapshot
    truth, relations = answer_of(snapshot.entries[position]), relations_of(snapshot, position)
    best = _best(index, query)
    for level in BOUNDARIES:
        view = index.view("all", exclude=boundary(level, snapshot.rows[position]))
        hits = view.nearest(query, k=1)
        row = {"boundary": level, "left_out": len(snapshot.rows) - view.count}
        if isinstance(hits, Unverifiable):
            none = {"support": "D", "rule": "tool" if query.act.tool else "message", "exact": 0, "token_f1": 0}
            yield row | none | {"reason": hits.reason}
            continue
        said = predicted(step, hits, model)
        yield row | {
            "support": hits.support,
            "rule": hits.rule,
            "top_entry_id": hits[0].row.entry_id,
            "relation": relations.get(hits[0].position, RELATIONS[-1]),
            "score_dec": share_dec(hits[0].score, best),
            "exact": exact_match(said, truth),
            "token_f1": token_f1(said, truth),
            "receipt": hits.receipt.receipt_digest,
        }


def _best(index: Index, query: Query) -> int:
    whole = index.view("all").nearest(query, k=1)
    return 0 if isinstance(whole, Unverifiable) else whole[0].score


def share_dec(score: int, best: int) -> str:
    """A score over the best one, with four decimals, rounded down; 0 of nothing is 0.

    >>> share_dec(3, 4), share_dec(0, 0)
    ('0.7500', '0.0000')
    """
    part = score * 10_000 // best if best > 0 else 0
    return f"{part // 10_000}.{part % 10_000:04d}"


def _floors(snapshot: Snapshot, positions: Sequence[int]) -> list[dict[str, int]]:
    """For each row: the mean score of a random entry of its tool, exactly, rounded down once."""
    tools: dict[str, list[int]] = {}
    for position, entry in enumerate(snapshot.entries):
        tools.setdefault(entry.tool, []).append(position)
    answers = {tool: _Answers([answer_of(snapshot.entries[at]) for at in pool]) for tool, pool in tools.items()}
    places = {position: n for pool in tools.values() for n, position in enumerate(pool)}
    return [_floor(snapshot, position, answers[snapshot.entries[position].tool], places) for position in positions]


def _floor(snapshot: Snapshot, position: int, answers: "_Answers", places: Mapping[int, int]) -> dict[str, int]:
    tool = snapshot.entries[position].tool
    gone = _left_out(snapshot, "key", snapshot.rows[position])
    keep = np.ones(answers.count, bool)
    keep[[places[out] for out in gone if snapshot.entries[out].tool == tool]] = False
    left = int(keep.sum())
    return {
        f"floor_{name}": int(scores[keep].sum()) // left if left else 0
        for name, scores in zip(METRICS, answers.against(places[position]), strict=True)
    }


class _Answers:
    """Texts that are compared with each other: `exact_match` and `token_f1` with all of them at once, and the same results."""

    def __init__(self, texts: Sequence[str]) -> None:
        numbers: dict[tuple[str, int], int] = {}
        self._features = [_bag(words(text), numbers) for text in texts]
        self._length = np.array([len(bag) for bag in self._features], np.int64)  # (n,)
        holders: list[list[int]] = [[] for _ in numbers]
        for n, bag in enumerate(self._features):
            for feature in bag:
                holders[feature].append(n)
        self._holders = [np.array(each, np.int64) for each in holders]  # of each feature, the texts that have it
        self._same = _codes(texts)
        self._folded = _codes([normalised(text) for text in texts])

    @property
    def count(self) -> int:
        return len(self._same)

    def against(self, n: int) -> tuple[Array, Array]:
        """Two (n,) int64: exact match and token F1 of every text with text `n` as the truth."""
        held = [self._same[:0], *(self._holders[feature] for feature in self._features[n])]
        shared, both = np.bincount(np.concatenate(held), minlength=self.count), self._length + self._length[n]
        f1 = 2 * shared * ONE // np.maximum(both, 1)
        wordless = np.where(self._folded == self._folded[n], ONE, 0)
        return np.where(self._same == self._same[n], ONE, 0), np.where(both == 0, wordless, f1)


def _bag(found: Iterable[str], numbers: dict[tuple[str, int], int]) -> list[int]:
    """The number of each word with how often it stood before, so that shared counts are shared numbers."""
    seen: dict[str, int] = {}
    for word in found:
        seen[word] = seen.get(word, 0) + 1
    return [numbers.setdefault((word, time), len(numbers)) for word, times in seen.items() for time in range(times)]


def _codes(texts: Sequence[str]) -> Array:
    """(n,) int64: equal numbers for equal texts."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)


def microscope_ladder(steps: pl.DataFrame) -> pl.DataFrame:
    """One row a metric and boundary of a `microscope_steps` table: mean, interval, what it lost, and the floor.

    `mean` is over families, `by_row` over steps. `diff` is what was lost since only the step itself was left out, `above`
    what is left above the floor; both are paired.
    """
    made = [row for metric in METRICS for row in _rungs(steps, metric)]
    return pl.DataFrame([tuple(row.get(name) for name in LADDER) for row in made], schema=LADDER, orient="row")


def _rungs(steps: pl.DataFrame, metric: str) -> Iterable[dict[str, Any]]:
    if not steps.height:
        return
    first = _scores(steps.filter(boundary=BOUNDARIES[0]), metric)
    floor = _scores(steps.filter(boundary=BOUNDARIES[0]), f"floor_{metric}")
    for level in BOUNDARIES:
        here = steps.filter(boundary=level)
        scores = _scores(here, metric)
        mean, above = family_mean(scores), family_difference(scores, floor)
        diff = family_difference(first, scores) if level != BOUNDARIES[0] else None
        yield {
            "boundary": level,
            "metric": metric,
            "n": here.height,
            "families": mean.families,
            "by_row": mean.by_row,
            "floor": family_mean(floor).value,
            "no_candidate": int(here["top_entry_id"].null_count()),
            **_told(mean, "mean", ""),
            **(_told(diff, "diff", "diff_") if diff else {"diff_reason": "this is where the ladder begins"}),
            **_told(above, "above", "above_"),
        }


def _told(estimate: Estimate, name: str, before: str) -> dict[str, Any]:
    match estimate.interval:
        case Interval(low=low, high=high):
            return {name: estimate.value, f"{before}low": low, f"{before}high": high}
        case NotEnough(reason=reason):
            return {name: estimate.value, f"{before}reason": reason}


def _scores(steps: pl.DataFrame, name: str) -> Scores:
    found: dict[str, list[int]] = {}
    for family, score in steps.select("family", name).iter_rows():
        found.setdefault(family, []).append(score)
    return found


class Microscope(NamedTuple):
    """Both tables, and what they were made of."""

    steps: pl.DataFrame
    ladder: pl.DataFrame
    asked: Asked
    world_model: str
    config: str
    """64 hex: of the index, the evidence, the world model, which steps were asked, and the version of the tables."""

    @property
    def order(self) -> list[str]:
        """The step ids, one each."""
        return self.steps["step_id"].unique(maintain_order=True).to_list()


def microscope(
    index: Index,
    corpus: Corpus,
    *,
    store: Store | None = None,
    asked: Asked = "held_out",
    progress: Progress | None = None,
) -> Microscope:
    """Both tables of a workspace. With a `store` the steps are kept in its cache, and read from there the next time.

    The kept name says what the table was made from, so a table of another index or evidence is never read. Where nothing
    can be written it is made each time. Raises as `microscope_steps` does.
    """
    model = CopyNearest()
    config = _config(index.digest, corpus.digest, model.snapshot, asked)
    name = f"microscope-{VERSION}.{index.digest[7:23]}.{corpus.digest[7:23]}.{model.name}.{asked}"
    kept = _kept(store, name)
    steps = kept if kept is not None else microscope_steps(index, corpus.transitions, asked=asked, progress=progress)
    if store and kept is None:
        _keep(store, name, steps)
    return Microscope(steps, microscope_ladder(steps), asked, model.name, config)


def _config(*parts: str) -> str:
    return hashlib.sha256("\n".join([f"microscope {VERSION}", *parts]).encode()).hexdigest()


def _kept(store: Store | None, name: str) -> pl.DataFrame | None:
    data = store.cache_read(name) if store else None
    if data is None:
        return None
    with suppress(pl.exceptions.PolarsError, OSError):  # the cache is a convenience: what cannot be read is made again
        found = pl.read_parquet(BytesIO(data))
        return found if found.schema == pl.Schema(STEPS) else None
    return None


def _keep(store: Store, name: str, steps: pl.DataFrame) -> None:
    with suppress(UsageError), BytesIO() as buffer:  # a workspace that cannot be written is still looked at
        steps.write_parquet(buffer)
        store.cache_write(name, buffer.getvalue())


def changed_steps(steps: pl.DataFrame, level: Boundary, metric: str = "exact") -> list[str]:
    """The steps, in order, whose score falls between the first boundary and `level`; at the first one, at any later one."""
    wanted = [level] if level != BOUNDARIES[0] else list(BOUNDARIES[1:])
    before = dict(steps.filter(boundary=BOUNDARIES[0]).select("step_id", metric).iter_rows())
    after: Mapping[str, int] = dict(
        steps.filter(pl.col("boundary").is_in(wanted))
        .group_by("step_id", maintain_order=True)
        .agg(pl.col(metric).min())
        .iter_rows()
    )
    return [step for step, score in before.items() if after[step] < score]
