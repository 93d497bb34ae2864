"""Ways to rank: each is exact under exclusion, fills k, and is stored in its exact space."""

from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings
from retrieval_cases import desk, exclusions, queries, snapshots

from experiential_lab.lab import Lab, bundled
from experiential_lab.records import FREE, Cost, IntegrityError, Unverifiable, UsageError
from experiential_lab.retrieval.choice import choose_ranker
from experiential_lab.retrieval.embedders import (
    Embedded,
    EmbedderSnapshot,
    HashedEmbedder,
    HeldEmbedder,
    parameters_digest,
    quantisation_of,
)
from experiential_lab.retrieval.grounding import Recipe
from experiential_lab.retrieval.index import IndexManifest, build, load, replay, save
from experiential_lab.retrieval.provider import OpenAIEmbedder
from experiential_lab.retrieval.receipts import Query, join, query_of_entry, seal, verify
from experiential_lab.retrieval.refusal import certify
from experiential_lab.retrieval.views import View, snapshot_of
from experiential_lab.store import Store
from experiential_lab.testing import LoopbackServer
from experiential_lab.world.models import CopyNearest
from experiential_lab.world.turn import Setting, take_turn

EMBEDDER = HashedEmbedder(16)
WAYS = ("dense", "fused")


def answer(found):
    if isinstance(found, Unverifiable):
        return found
    return [(hit.row.entry_id, hit.score, hit.parts) for hit in found], found.support


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None)
@given(snapshots(), st.lists(exclusions, max_size=3), queries, st.integers(1, 20), st.sampled_from(["all", "fit"]))
def test_law_2_a_view_ranks_as_an_index_built_from_its_entries(way, snapshot, excluded, query, k, base):
    if base == "fit" and not snapshot.fit.rows:
        return
    view = build(View(snapshot), embedder=EMBEDDER, fusion=way).view(base, exclude=excluded)
    alone = build(View(snapshot_of(view.entries, {})), embedder=EMBEDDER, fusion=way).view("all")
    found = view.nearest(query, k)
    assert answer(found) == answer(alone.nearest(query, k))
    if not isinstance(found, Unverifiable):
        assert len(found) == min(k, view.count)
        assert all(sum(part for _, part in hit.parts) == hit.score for hit in found)


@pytest.mark.parametrize("way", WAYS)
def test_a_saved_index_answers_and_replays_as_the_built_one(way, tmp_path: Path):
    index = build(View(snapshot_of(*desk())), embedder=EMBEDDER, fusion=way)
    store = Store.open(tmp_path / "lab", create=True)
    loaded = load(store, save(index, store, {}))
    query = query_of_entry(index.snapshot.entries[5])
    hits = loaded.view().nearest(query)
    assert answer(hits) == answer(index.view().nearest(query))
    assert (loaded.digest, loaded.embedder) == (index.digest, EMBEDDER.snapshot)
    assert hits.receipt.retriever.embedder == EMBEDDER.snapshot
    assert replay(hits.receipt, loaded).receipt == hits.receipt.receipt_digest


def test_vectors_that_do_not_rank_change_no_answer_and_no_receipt():
    entries, facts = desk()
    plain, held = (build(View(snapshot_of(entries, facts)), embedder=each) for each in (None, EMBEDDER))
    for each in entries[::20]:
        one, other = (index.view().nearest(query_of_entry(each)) for index in (plain, held))
        assert one.receipt == other.receipt
    assert (plain.digest, held.embedder) == (held.digest, EMBEDDER.snapshot)


def test_another_space_is_refused_with_both_named(tmp_path: Path):
    store = Store.open(tmp_path / "lab", create=True)
    digest = save(build(View(snapshot_of(*desk())), embedder=EMBEDDER), store, {})
    with pytest.raises(IntegrityError, match=r"dimension 16 and 32"):
        load(store, digest, embedder=HashedEmbedder(32))


def test_a_tampered_vector_is_found(tmp_path: Path):
    store = Store.open(tmp_path / "lab", create=True)
    index = build(View(snapshot_of(*desk())), embedder=EMBEDDER)
    digest = save(index, store, {})
    vectors = next(d for name, d in store.inputs_of(digest).items() if name == "part:vectors")
    path = store.path_of(vectors)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="holds sha256:"):
        load(store, digest)


def test_vectors_are_needed_where_they_rank():
    with pytest.raises(UsageError, match="'dense' needs vectors"):
        build(View(snapshot_of(*desk())), fusion="dense")


class Paid:
    """The hashed embedder at a price."""

    snapshot = EMBEDDER.snapshot
    cost = Cost(usage=(("tokens", 3),), cost_nusd=60, basis="observed")

    def embed(self, texts):
        return EMBEDDER.embed(texts)

    def embed_billed(self, texts):
        return Embedded(self.embed(texts), self.cost)


def test_what_embedding_a_query_costs_is_billed_under_retrieval():
    view = build(View(snapshot_of(*desk())), embedder=Paid(), fusion="dense").view()
    assert view.nearest(Query(action="where is it")).cost == Paid.cost
    turn = take_turn(Setting("t", None, view, CopyNearest(), 3, None), (), "where is it", clock=lambda: 0).turn
    assert dict(turn.costs)["retrieval"] == Paid.cost
    assert dict(turn.costs)["orchestration"] == FREE


def test_a_query_that_cannot_be_embedded_is_a_failure_of_retrieval_and_nothing_is_dispatched():
    openai = pytest.importorskip("openai", reason="needs the extra `openai`")
    space = EmbedderSnapshot(
        provider="loopback",
        model="loopback-embedding",
        revision="loopback-embedding",
        dimension=8,
        quantisation=quantisation_of(8),
        parameters_digest=parameters_digest({}),
        capabilities_digest=parameters_digest({}),
    )
    with LoopbackServer() as server, openai.OpenAI(base_url=server.base_url, api_key="none") as client:
        embedder = OpenAIEmbedder(client, space)
        view = build(View(snapshot_of(*desk(20))), embedder=embedder, fusion="dense").view()
        server.faults = ["status_429"]
        taken = take_turn(Setting("t", None, view, CopyNearest(), 3, None), (), "where is it", clock=lambda: 0)
    failure = taken.turn.failure
    assert (failure.code, failure.attribution, failure.phase) == ("provider", "retrieval", "embed")
    assert (taken.turn.prediction, taken.turn.receipt, taken.turn.refused, taken.uses) == (None, None, None, ())


def test_verify_makes_each_row_of_the_last_index_again(tmp_path: Path):
    lab = Lab(tmp_path / "lab")
    lab.import_traces(bundled("desk_tools.jsonl"))
    index = lab.build_index()
    assert (lab.verify().ok, index.level) == (True, "index_verified")
    swapped = IndexManifest(
        **{name: getattr(manifest_of(lab), name) for name in IndexManifest.__struct_fields__} | {"entries": 3}
    )
    artifact = lab.store.keep("index", swapped)
    lab.store.append("index_built", artifact=artifact)
    assert [each.artifact for each in lab.verify().problems] == [artifact]


def manifest_of(lab: Lab) -> IndexManifest:
    return lab.store.load(str(lab.store.latest("index_built").fields["artifact"]), "index", IndexManifest)


def test_a_receipt_with_scores_below_0_holds_for_vectors_alone_can_be_kept_and_holds_for_no_other_ranker(
    tmp_path: Path,
):
    index = build(View(snapshot_of(*desk())), embedder=HashedEmbedder(), fusion="dense")
    store = Store.open(tmp_path / "lab", create=True)
    hits = load(store, save(index, store, {})).view().nearest(Query(action="qzx!"), 200)
    assert hits[-1].score < 0
    assert hits.keep() == verify(hits.receipt).receipt == replay(hits.receipt, index).receipt
    assert join(hits.receipt, index.snapshot).results == len(hits)
    channels = msgspec.structs.replace(hits.receipt.retriever, fusion="sparse", embedder=None)
    with pytest.raises(IntegrityError, match=r"has score -\d+ at place"):
        verify(seal(msgspec.structs.replace(hits.receipt, retriever=channels)))


class Counted:
    """The hashed embedder, with every text that it was asked for."""

    snapshot = EMBEDDER.snapshot

    def __init__(self):
        self.texts = []

    def embed(self, texts):
        self.texts += texts
        return EMBEDDER.embed(texts)

    def embed_billed(self, texts):
        return Embedded(self.embed(texts), Cost())


def test_a_certificate_and_a_choice_pay_for_no_text_twice():
    embedder = Counted()
    index = build(View(snapshot_of(*desk())), embedder=embedder, fusion="dense")
    embedder.texts.clear()
    local = build(View(index.snapshot), embedder=EMBEDDER, fusion="dense")
    assert (certify(index), embedder.texts) == (certify(local), [])
    assert choose_ranker(index, embedder=embedder) == choose_ranker(index, embedder=EMBEDDER)
    assert len(embedder.texts) == len({dict(each.key)["action"] for each in index.snapshot.fit.entries})


def test_a_vector_that_is_not_held_is_asked_for_in_words():
    held = HeldEmbedder(EMBEDDER.snapshot, ["a"], EMBEDDER.embed(["a"]))
    assert (held.embed(["a", "a"]) == EMBEDDER.embed(["a", "a"])).all()
    with pytest.raises(UsageError, match="no vector is held for text 1"):
        held.embed_billed(["a", "b"])


def test_a_workspace_refuses_another_embedder_also_when_its_index_was_loaded_before(tmp_path: Path):
    lab = Lab(tmp_path / "lab")
    lab.import_traces(bundled("desk_tools.jsonl"))
    lab.build_index(Recipe(HashedEmbedder(64), "dense"))
    with pytest.raises(IntegrityError, match="dimension 64 and 32"):
        lab.current_index(embedder=HashedEmbedder(32))


def test_law_9_the_part_of_a_field_that_does_not_rank_is_absent_and_not_zero():
    index = build(View(snapshot_of(*desk())), embedder=EMBEDDER, fusion="dense")
    frame = index.view().nearest(Query(action="where is it")).frame()
    assert frame.select("part_action", "part_task", "part_recent").null_count().row(0) == (5, 5, 5)


def test_an_index_is_made_again_as_the_last_one_also_after_a_source_was_forgotten(tmp_path: Path):
    lab = Lab(tmp_path / "lab")
    second = tmp_path / "second.jsonl"
    second.write_bytes(bundled("desk_tools.jsonl").read_bytes().replace(b"W-2", b"W-7"))
    lab.import_traces(bundled("desk_tools.jsonl"), second)
    lab.build_index(Recipe(HashedEmbedder(64), "dense"))
    lab.forget(lab.corpus.sources[0].digest, why="asked for")
    again = lab.index()
    assert (again.config.fusion, again.embedder.dimension) == ("dense", 64)
    assert lab.verify().ok
