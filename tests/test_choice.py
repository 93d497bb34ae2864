"""The choice of a ranker, and the peers that it is compared with. Each name is the promise."""

import doctest
from fractions import Fraction
from itertools import combinations

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from retrieval_cases import desk, entry

from experiential_lab.bench import quality
from experiential_lab.metrics import token_f1
from experiential_lab.records import NoEvidence, StaleError, UsageError, canonical_bytes, digest, digest_of
from experiential_lab.retrieval import fusion, grounding
from experiential_lab.retrieval.choice import (
    BASE,
    CANDIDATES,
    Candidate,
    RankerChoice,
    asked_rows,
    choice_frame,
    choose_ranker,
    config_of,
    families_of,
    scored,
    way_of,
)
from experiential_lab.retrieval.embedders import HashedEmbedder
from experiential_lab.retrieval.fusion import fused
from experiential_lab.retrieval.index import Index, build
from experiential_lab.retrieval.receipts import query_of_entry
from experiential_lab.retrieval.sparse import DEFAULT, Channel
from experiential_lab.retrieval.views import Exclusion, Facts, View, snapshot_of

WORDS = (Channel(field="task", feature="word", weight=1),)
DENSE = Candidate(name="dense", fusion="dense")
BY_TASK = Candidate(name="task alone", channels=WORDS)


def index_of(rows, held_out=()) -> Index:
    """`rows`: (family, action, task, observation)."""
    entries, facts = [], {}
    for number, (family, action, task, observation) in enumerate(rows):
        made = entry(number, action, observation, (family,), trace_id=family, task=task)
        entries.append(made)
        facts[made.entry_id] = Facts(split="held_out" if family in held_out else "fit", family=family)
    return build(View(snapshot_of(entries, facts)))


def told_by_the_task(families: int, told: int) -> Index:
    """What follows depends on the task alone, in `told` of the families; one action stands in four, with four answers."""
    colours = ("red", "blue", "green", "grey")
    rows = []
    for n in range(families):
        colour = colours[n % 4]
        said = f"it is {colour}" if n < told else f"nobody knows {n}"
        rows.append((f"f{n:02d}", f"say {n // 4}", f"the {colour} one", said))
    return index_of(rows)


def bundled_desk() -> tuple[Index, View]:
    entries, facts = desk(120)
    index = build(View(snapshot_of(entries, facts)))
    return index, View(index.snapshot, "fit")


def test_the_examples_of_the_module_hold():
    assert doctest.testmod(fusion).failed == 0


rankings = st.lists(st.lists(st.integers(0, 30), unique=True, max_size=30), min_size=1, max_size=3)


@settings(deadline=None, max_examples=200)
@given(rankings, st.permutations(range(31)), st.sampled_from([1, 60]))
def test_fusion_orders_by_the_exact_sum_of_reciprocal_ranks_and_then_by_entry_id(lists, order, constant):
    exact = {
        row: sum(Fraction(1, constant + found.index(row) + 1) for found in lists if row in found)
        for row in {row for found in lists for row in found}
    }
    ours = fused(lists, np.array(order), constant=constant)
    assert [hit.row for hit in ours] == sorted(exact, key=lambda row: (-exact[row], order[row]))
    assert all(hit.score == sum(hit.parts) and len(hit.parts) == len(lists) for hit in ours)


def test_the_default_way_finds_what_an_index_finds_without_the_family():
    index, view = bundled_desk()
    way = way_of(view.snapshot, BASE)
    for family, members in families_of(view).items():
        seen = index.view("fit", exclude=[Exclusion(level="family", value=family)])
        ask = way(sorted({*view.out, *members}))
        for row in members[:4]:
            hits = seen.nearest(query_of_entry(view.snapshot.entries[row]), k=5)
            assert [hit.row for hit in ask(row, 5)] == [hit.position for hit in hits]


def test_the_dense_way_never_finds_what_is_out_and_finds_the_same_without_it():
    _, view = bundled_desk()
    way = way_of(view.snapshot, DENSE, HashedEmbedder())
    members = next(iter(families_of(view).values()))
    found = way(sorted(members))(members[0], 200)
    assert {hit.row for hit in found} == set(range(len(view.snapshot.rows))) - set(members)
    smaller = view.snapshot.without(members[1:])  # the asking row stays, to be asked from
    place = {row.entry_id: number for number, row in enumerate(smaller.rows)}
    asking = place[view.snapshot.rows[members[0]].entry_id]
    again = way_of(smaller, DENSE, HashedEmbedder())([asking])(asking, 200)
    ids = [
        [rows[hit.row].entry_id for hit in hits] for rows, hits in ((view.snapshot.rows, found), (smaller.rows, again))
    ]
    assert ids[0] == ids[1]


def test_a_family_is_asked_without_itself():
    rows = [(f"f{n:02d}", f"open {n:02d}", "", f"answer {n:02d}") for n in range(20) for _ in range(2)]
    view = View(index_of(rows).snapshot, "fit")
    assert not any(map(any, scored(view, way_of(view.snapshot, BASE), 5).exact.values()))


def test_at_most_ten_rows_of_a_family_are_asked_those_with_the_smallest_digests_of_their_ids():
    view = View(index_of([("f0", f"say {n}", "", "x") for n in range(30)] + [("f1", "a", "", "x")]).snapshot, "fit")
    asked = asked_rows(view, range(30))
    ids = {digest_of(view.snapshot.rows[row].entry_id.encode()) for row in range(30)}
    assert [digest_of(view.snapshot.rows[row].entry_id.encode()) for row in asked] == sorted(ids)[:10]
    assert {family: len(found) for family, found in scored(view, way_of(view.snapshot, BASE), 5).f1.items()} == {
        "f0": 10,
        "f1": 1,
    }


def test_without_a_candidate_the_score_is_zero_and_stays_counted():
    view = View(index_of([("f0", "say", "", "x"), ("f1", "say", "", "x")]).snapshot, "fit")
    nothing = scored(view, lambda out: lambda row, k: [], 5)
    assert nothing == ({"f0": [0], "f1": [0]}, {"f0": [0], "f1": [0]}, {"f0": [0], "f1": [0]})


def test_a_candidate_wins_when_its_interval_lies_above_zero_and_its_index_has_that_configuration():
    index = told_by_the_task(40, told=36)
    found = choose_ranker(index, [BY_TASK, Candidate(name="action alone", channels=DEFAULT[:1])])
    assert (found.winner, found.snapshot) == ("task alone", index.snapshot.fit.digest)
    assert found.reason.startswith("task alone is ahead by 0.")
    assert "at level 0.975000" in found.reason
    assert found.config == digest(build(View(index.snapshot), channels=WORDS).config)


def test_the_default_stays_when_the_interval_holds_zero():
    """Few families are told by the task: the mean is higher, and no more is shown."""
    rows = [(f"f{n:02d}", f"say {n % 20:02d}", f"task {n % 7}", f"{n * 31 % 9} and {n * 17 % 11}") for n in range(40)]
    found = choose_ranker(index_of(rows), [BY_TASK])
    difference = found.compared[1].difference
    assert difference.value > 0
    assert difference.interval.low <= 0
    assert (found.winner, found.config) == ("default", digest(config_of(BASE)))
    assert found.reason.endswith("at level 0.950000 holds 0: the default stays")


def test_the_default_stays_when_there_are_too_few_families():
    found = choose_ranker(told_by_the_task(19, told=19), [BY_TASK])
    assert found.winner == "default"
    assert found.reason.endswith("but not enough families: 19, needs 20: the default stays")


def test_a_gain_that_is_equal_in_all_families_gives_no_interval_and_the_default_stays():
    found = choose_ranker(told_by_the_task(40, told=40), [BY_TASK])
    assert found.winner == "default"
    assert found.reason == "task alone is ahead by 0.3333, but refused: all families equal: the default stays"


def test_equal_rankings_never_replace_the_default():
    found = choose_ranker(told_by_the_task(40, told=40), [Candidate(name="k 10", k=10)])
    assert (found.winner, found.reason) == ("default", "no candidate has a higher mean token F1 at rank 1")


def test_every_candidate_is_compared_on_the_same_rows_and_the_default_comes_first():
    index, _ = bundled_desk()
    found = choose_ranker(index)
    assert [each.candidate.name for each in found.compared] == ["default", *(each.name for each in CANDIDATES)]
    assert len({(each.f1.families, each.f1.rows) for each in found.compared}) == 1
    assert found.compared[0].difference is None
    assert found.embedder == HashedEmbedder().snapshot
    assert choice_frame(found)["candidate"].to_list()[0] == "default"
    assert choice_frame(found)["note"].to_list()[1] == "not enough families: 4, needs 20"


def test_changing_what_was_held_out_changes_nothing():
    rows = [(f"f{n:02d}", f"say {n % 9}", f"task {n % 5}", f"answer {n % 4}") for n in range(30)]
    held = [f"f{n:02d}" for n in range(20, 30)]
    texts = [
        [(f, a, t, o if f not in held else f"{o} {more}") for f, a, t, o in rows] for more in ("", "other", "words")
    ]
    made = [canonical_bytes(choose_ranker(index_of(each, held), CANDIDATES[-3:])) for each in texts]
    assert len(set(made)) == 1


def test_a_choice_is_a_record_that_reads_back_the_same():
    found = choose_ranker(told_by_the_task(24, told=24), [BY_TASK])
    assert msgspec.json.decode(canonical_bytes(found), type=RankerChoice) == found
    assert found.embedder is None


def test_two_candidates_of_one_name_and_depths_of_nothing_are_refused():
    index, _ = bundled_desk()
    with pytest.raises(UsageError, match="a name of its own, got default, default"):
        choose_ranker(index, [Candidate(name="default")])
    with pytest.raises(UsageError, match="broad: depth is 0 and k is 5"):
        choose_ranker(index, [Candidate(name="broad", fusion="fused", depth=0)])
    with pytest.raises(UsageError, match="bare has no channel"):
        choose_ranker(index, [Candidate(name="bare", fusion="dense", channels=())])


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda each: each.name)
def test_an_index_that_takes_a_candidate_has_the_configuration_that_the_choice_names(candidate, monkeypatch):
    index, _ = bundled_desk()
    made = choose_ranker(index, [candidate])
    won = msgspec.structs.replace(made, winner=candidate.name, config=digest(config_of(candidate, HashedEmbedder())))
    monkeypatch.setattr(grounding, "choose_ranker", lambda index, **options: won)
    recipe = grounding.chosen_recipe(index, None)
    built = build(
        View(index.snapshot),
        channels=recipe.channels,
        embedder=recipe.embedder,
        fusion=recipe.fusion,
        depth=recipe.depth,
    )
    assert digest(built.config) == won.config


def test_fused_rows_are_in_the_order_of_the_scores_that_are_written():
    """1/1009 + 1/1011 is above 1/988 + 1/1033 by less than is written: the entry id decides, as a receipt says."""
    ways = [[f"{way}{number}" for number in range(1, 1000)] for way in "ab"]
    for way, ranks in zip(ways, ((949, 928), (951, 973)), strict=True):
        way[ranks[0] - 1], way[ranks[1] - 1] = "above", "below"
    names = ["below", "above", *sorted({*ways[0], *ways[1]} - {"above", "below"})]
    rows = [[names.index(name) for name in way] for way in ways]
    hits = fused(rows, np.arange(len(names)))
    assert [hit.row for hit in hits if hit.row < 2] == [0, 1]
    assert [(-hit.score, hit.row) for hit in hits] == sorted((-hit.score, hit.row) for hit in hits)


def test_nothing_is_chosen_without_a_split():
    entries, _ = desk(20)
    with pytest.raises(NoEvidence, match="run `split` first"):
        choose_ranker(build(View(snapshot_of(entries, {}))))


def peer_views() -> dict[str, View]:
    entries, facts = desk(60)
    return quality.corpora_of(build(View(snapshot_of(entries, facts))).snapshot)


def test_calls_and_messages_are_two_corpora_that_lose_no_row():
    views = peer_views()
    assert {name: {bool(entry.tool) for entry in view.entries} for name, view in views.items()} == {
        "calls": {True},
        "messages": {False},
    }
    assert sum(len(view.snapshot.rows) for view in views.values()) == 60


@pytest.mark.parametrize("way", [quality.bm25_way, quality.tfidf_way, quality.hash_way])
def test_a_peer_sees_no_row_that_is_out_and_fills_k(way):
    if way is quality.bm25_way:
        pytest.importorskip("bm25s", reason="the peers stand in the group bench")
    if way is quality.tfidf_way:
        pytest.importorskip("sklearn", reason="the peers stand in the group bench")
    view = peer_views()["messages"]
    members = next(iter(families_of(view).values()))
    found = [hit.row for hit in way(view.snapshot)(members)(members[0], 500)]
    assert sorted(found) == sorted(set(range(len(view.snapshot.rows))) - set(members))


def test_the_random_floor_is_the_mean_over_all_draws():
    view = View(
        index_of([("f0", "a", "", "x y")] + [("f1", "b", "", text) for text in ["x", "y", "z", "w"]]).snapshot, "fit"
    )
    texts = ["x", "y", "z", "w"]
    found = quality.random_scored(view)
    f1 = [token_f1(text, "x y") for text in texts]
    assert found.f1["f0"] == [sum(f1) // 4]
    assert found.best["f0"] == [max(f1)]  # four rows, and five are drawn
    assert (
        quality._expected_best(sorted([*f1, 10, 20, 30]))
        == sum(max(drawn) for drawn in combinations([*f1, 10, 20, 30], 5)) // 21
    )


def test_peers_that_were_scored_on_other_rows_are_stale(tmp_path):
    views = peer_views()
    peers = [quality.Peer(corpus="calls", snapshot="sha256:other", ranker="random", f1={}, best=ZERO, exact=ZERO)]
    with pytest.raises(StaleError, match="random was scored on calls sha256:other, here they are sha256:"):
        quality.quality_frame(views, peers)
    with pytest.raises(UsageError, match="holds no scores of peers"):
        quality.read_pinned(tmp_path / "nothing.json")


ZERO = quality.family_mean({})
