"""Every step is asked at every boundary by its own view, a leak is seen where it ends, and what is missing counts as 0."""

from io import BytesIO

import polars as pl
import pytest
from retrieval_cases import desk, entry, transition

from experiential_lab.claims import fidelity
from experiential_lab.evidence.trace import Transition
from experiential_lab.lab import Lab, bundled
from experiential_lab.metrics import exact_match, token_f1
from experiential_lab.records import NoEvidence, UsageError
from experiential_lab.retrieval.explain import RELATIONS
from experiential_lab.retrieval.grounding import around, query_of
from experiential_lab.retrieval.index import build
from experiential_lab.retrieval.views import BOUNDARIES, Facts, View, entry_of, snapshot_of
from experiential_lab.store import Store

LOOK = ("lookup", '{"id":"A1"}')


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("desk"))
    lab.import_traces(bundled("desk_tools.jsonl"))
    lab.split()
    lab.index()
    return lab


@pytest.fixture(scope="module")
def steps(lab) -> pl.DataFrame:
    return fidelity.microscope_steps(lab.index(), lab.corpus.transitions)


def made(*steps: tuple[Transition, str, str, str]):
    """An index and its steps; each is (transition, lineage, family, split)."""
    entries = [entry_of(step, lineages=(lineage,), path="tiny") for step, lineage, _, _ in steps]
    facts = {step.transition_id: Facts(split=split, family=family) for step, _, family, split in steps}
    return build(View(snapshot_of(entries, facts))), [step for step, *_ in steps]


def exact(frame: pl.DataFrame) -> dict[str, int]:
    return dict(frame.select("boundary", "exact").iter_rows())


def test_every_held_out_step_is_asked_once_at_every_boundary_and_no_other_is(lab, steps):
    held = lab.transitions().filter(split="held_out")["id"].to_list()
    assert steps.select("step_id", "boundary").rows() == [(step, level) for step in held for level in BOUNDARIES]
    every = fidelity.microscope_steps(lab.index(), lab.corpus.transitions, asked="all")
    assert every.height == 5 * lab.transitions().height
    assert every.filter(pl.col("step_id").is_in(held)).equals(steps)


def test_a_row_is_what_a_search_of_its_own_view_says(lab, steps):
    index = lab.index()
    for row in steps.gather_every(37).iter_rows(named=True):
        view = index.view("all", exclude=around(index, row["step_id"], row["boundary"]))
        hits = view.nearest(query_of(lab.transition(row["step_id"])), k=1)
        assert row["receipt"] == hits.receipt.receipt_digest
        assert (row["top_entry_id"], row["support"]) == (hits[0].row.entry_id, hits.support)
        assert row["left_out"] == len(index.snapshot.rows) - view.count


def test_no_hit_is_of_a_kin_that_its_boundary_leaves_out(steps):
    order = {level: n for n, level in enumerate(BOUNDARIES)}
    for level, relation in steps.select("boundary", "relation").iter_rows():
        assert RELATIONS.index(relation) > order[level]


def test_a_boundary_leaves_out_at_least_what_the_one_before_does(steps):
    for counts in steps.group_by("step_id", maintain_order=True).agg("left_out")["left_out"]:
        assert counts.to_list() == sorted(counts.to_list())


def test_the_answer_of_another_trial_is_right_until_the_lineage_is_left_out():
    index, steps = made(
        (transition(0, LOOK, "gone", trace_id="t0"), "L0", "f0", "held_out"),
        (transition(0, LOOK, "gone", trace_id="t1"), "L0", "f0", "held_out"),
        (transition(0, ("lookup", '{"id":"B7"}'), "here", trace_id="t2"), "L1", "f1", "fit"),
    )
    frame = fidelity.microscope_steps(index, steps[:1])
    assert exact(frame) == {"self": 1_000_000, "trace": 1_000_000, "lineage": 0, "family": 0, "key": 0}
    assert frame["relation"].to_list() == ["conversation", "conversation", "other task", "other task", "other task"]
    assert fidelity.changed_steps(frame, "lineage") == ["t0/0000"]
    assert fidelity.changed_steps(frame, "trace") == []
    assert fidelity.changed_steps(frame, "self") == ["t0/0000"]


def test_an_identical_call_of_another_family_is_left_out_last():
    index, steps = made(
        (transition(0, LOOK, "gone", trace_id="t0"), "L0", "f0", "held_out"),
        (transition(0, LOOK, "gone", trace_id="t1"), "L1", "f1", "fit"),
        (transition(0, ("lookup", '{"id":"B7"}'), "here", trace_id="t2"), "L2", "f2", "fit"),
    )
    frame = fidelity.microscope_steps(index, steps)
    assert frame["relation"].to_list() == ["identical call"] * 4 + ["other task"]
    assert frame["support"].to_list() == ["A"] * 4 + ["B"]
    assert exact(frame)["key"] == 0


def test_a_step_without_a_candidate_has_score_0_stays_in_the_mean_and_is_counted():
    index, steps = made(
        (transition(0, LOOK, "gone", trace_id="t0"), "L0", "f0", "held_out"),
        (transition(1, LOOK, "gone", trace_id="t0"), "L0", "f0", "held_out"),
    )
    frame = fidelity.microscope_steps(index, steps)
    alone = frame.filter(boundary="trace")
    assert alone["top_entry_id"].to_list() == [None, None]
    assert alone.select("exact", "support", "reason", "receipt").row(0) == (0, "D", "empty view", None)
    ladder = fidelity.microscope_ladder(frame).filter(metric="exact")
    assert ladder["no_candidate"].to_list() == [0, 2, 2, 2, 2]
    assert ladder["mean"].to_list() == [1_000_000, 0, 0, 0, 0]
    assert ladder["n"].to_list() == [2] * 5


def test_a_terminal_observation_is_compared_without_its_stop_marker():
    said = {"trace_id": "t0", "terminal": True, "observation_kind": "user_reply"}
    index, steps = made(
        (transition(0, "Bye.", "Thanks. ###STOP###", **said), "L0", "f0", "held_out"),
        (transition(0, "Bye.", "Thanks. ###STOP###", **(said | {"trace_id": "t1"})), "L1", "f1", "fit"),
        (transition(0, "Hello.", "###STOP### is a word", trace_id="t2"), "L2", "f2", "fit"),
    )
    assert exact(fidelity.microscope_steps(index, steps))["family"] == 1_000_000
    answers = {entry.trace_id: fidelity.answer_of(entry) for entry in index.snapshot.entries}
    assert answers == {"t0": "Thanks.", "t1": "Thanks.", "t2": "###STOP### is a word"}


def test_the_floor_is_the_mean_over_every_entry_of_the_same_tool_that_the_last_boundary_leaves():
    entries, facts = desk(60)
    entries += [entry(90, ("lookup_order", '{"order_id":"Z"}'), text, ("L99",)) for text in ("", "  ", "!", "ok ok ok")]
    entries = [each for n, each in enumerate(entries) if each.entry_id not in [e.entry_id for e in entries[:n]]]
    snapshot = snapshot_of(entries, facts | {entries[-1].entry_id: Facts(split="fit", family="f99")})
    places = list(range(0, len(snapshot.rows), 3))
    for place, floor in zip(places, fidelity._floors(snapshot, places), strict=True):
        out = fidelity._left_out(snapshot, "key", snapshot.rows[place]) if snapshot.rows[place].family else None
        if out is None:
            continue
        tool, truth = snapshot.entries[place].tool, snapshot.entries[place].value
        pool = [e.value for n, e in enumerate(snapshot.entries) if e.tool == tool and n not in out]
        for name, metric in (("exact", exact_match), ("token_f1", token_f1)):
            assert floor[f"floor_{name}"] == sum(metric(text, truth) for text in pool) // len(pool)


def test_the_floor_is_0_where_no_call_of_the_tool_is_left():
    index, steps = made((transition(0, LOOK, "gone"), "L0", "f0", "held_out"), (transition(1, "Hi"), "L1", "f1", "fit"))
    assert fidelity.microscope_steps(index, steps)["floor_exact"].to_list() == [0] * 5


def test_equal_inputs_give_equal_tables_and_the_order_of_steps_is_kept(lab, steps):
    again = fidelity.microscope_steps(lab.index(), reversed(lab.corpus.transitions))
    assert again["step_id"].to_list()[::5] == steps["step_id"].to_list()[::5][::-1]
    assert again.sort("step_id", maintain_order=True).equals(steps.sort("step_id", maintain_order=True))


def test_what_cannot_be_asked_is_a_named_error(lab):
    with pytest.raises(UsageError, match="unknown steps 'some'"):
        fidelity.microscope_steps(lab.index(), lab.corpus.transitions, asked="some")
    index, steps = made((transition(0, LOOK, "gone"), "L0", "", "none"))
    with pytest.raises(NoEvidence, match="no entry of the index is held out"):
        fidelity.microscope_steps(index, steps)


def rows_of(scores: dict[str, list[int]], families: int) -> pl.DataFrame:
    """A steps table with one step a family and the same score everywhere; `scores` by boundary, in order of family."""
    rows = [
        {"step_id": f"t{n}/0", "family": f"f{n:02d}", "boundary": level, "top_entry_id": "e", "left_out": 1}
        | {"exact": given[n], "token_f1": given[n], "floor_exact": 100_000, "floor_token_f1": 0}
        for n in range(families)
        for level, given in scores.items()
    ]
    return pl.DataFrame(
        [tuple(row.get(name) for name in fidelity.STEPS) for row in rows], schema=fidelity.STEPS, orient="row"
    )


def test_the_ladder_has_family_t_intervals_and_the_paired_loss():
    right, wrong = [1_000_000] * 20 + [0] * 4, [1_000_000] * 4 + [0] * 20
    scores = dict.fromkeys(("self", "trace"), right) | dict.fromkeys(("lineage", "family", "key"), wrong)
    ladder = fidelity.microscope_ladder(rows_of(scores, 24)).filter(metric="exact")
    row = ladder.row(2, named=True)
    assert (row["boundary"], row["mean"], row["diff"], row["families"]) == ("lineage", 166_667, 666_667, 24)
    half = 2.0687 * (16 * 8 / (24 * 24) * 24 / 23 / 24) ** 0.5  # Student's t with 23 degrees of freedom
    assert row["diff_high"] - row["diff"] == pytest.approx(1_000_000 * half, abs=300)
    assert row["diff_low"] + row["diff_high"] == pytest.approx(2 * row["diff"], abs=200)
    assert (row["floor"], row["above"]) == (100_000, 66_667)
    assert row["above_low"] < 66_667 < row["above_high"]
    assert ladder["diff_reason"][1] == "not enough families that differ: 0, needs 10"


def test_too_few_families_leave_the_interval_unknown_with_its_reason(steps):
    ladder = fidelity.microscope_ladder(steps)
    assert ladder.select("boundary", "metric").rows() == [(b, m) for m in ("exact", "token_f1") for b in BOUNDARIES]
    assert ladder["low"].null_count() == ladder["diff_low"].null_count() == 10
    assert set(ladder["reason"]) == {"not enough families: 7, needs 20"}
    assert fidelity.microscope_ladder(steps.clear()).height == 0


def empty_cache(store: Store) -> None:
    for kept in (store.path / "cache").glob("microscope-*"):
        kept.unlink()


def test_reopening_reads_the_kept_table_and_a_damaged_one_is_made_again(lab, steps):
    store, index, corpus = lab.store, lab.index(), lab.corpus
    empty_cache(store)
    asked = []
    first = fidelity.microscope(index, corpus, store=store, progress=lambda done, of: asked.append((done, of)))
    assert asked == [(n + 1, 103) for n in range(103)]
    again = fidelity.microscope(index, corpus, store=store, progress=lambda *_: pytest.fail("asked again"))
    assert again.steps.equals(steps)
    assert again.config == first.config
    [kept] = (store.path / "cache").glob("microscope-*held_out.*")
    kept.write_bytes(kept.read_bytes()[:-9])
    assert fidelity.microscope(index, corpus, store=store).steps.equals(steps)
    assert lab.verify().ok


@pytest.mark.parametrize("kept", [b"no table", None])
def test_a_kept_table_that_cannot_be_read_or_has_other_columns_is_made_again(lab, steps, kept):
    store, index, corpus = lab.store, lab.index(), lab.corpus
    empty_cache(store)
    fidelity.microscope(index, corpus, store=store)
    [path] = (store.path / "cache").glob("microscope-*held_out.*")
    with BytesIO() as buffer:
        steps.drop("support").write_parquet(buffer)
        store.cache_write(path.name.rpartition(".")[0], kept or buffer.getvalue())
    assert fidelity.microscope(index, corpus, store=store).steps.equals(steps)


def test_a_table_of_another_index_or_question_is_not_read(lab):
    store, corpus = lab.store, lab.corpus
    ours = fidelity.microscope(lab.index(), corpus, store=store)
    every = fidelity.microscope(lab.index(), corpus, store=store, asked="all")
    assert ours.config != every.config
    assert len(every.order) > len(ours.order) == 103
    smaller = build(View(lab.index().snapshot, "all", around(lab.index(), ours.order[0], "trace")))
    assert ours.order[0] not in fidelity.microscope(smaller, corpus, store=store).order
