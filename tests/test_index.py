"""The index: what it promises of every search, and of what it stores. Each name is the promise."""

import hashlib
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retrieval_cases import airline, desk, entry, exclusions, queries, snapshots

from experiential_lab.records import IntegrityError, NoEvidence, StaleError, Unverifiable, UsageError, digest_of
from experiential_lab.retrieval import index as index_module
from experiential_lab.retrieval.embedders import HashedEmbedder
from experiential_lab.retrieval.index import build, load, replay, save, search
from experiential_lab.retrieval.ranking import RankerConfig
from experiential_lab.retrieval.receipts import Consumer, Query, query_of_entry, verify, verify_durable
from experiential_lab.retrieval.sparse import DEFAULT, Channel
from experiential_lab.retrieval.views import Exclusion, Facts, View, boundary, snapshot_of
from experiential_lab.store import Store

WORDS = (Channel(field="action", feature="word", weight=3), Channel(field="recent", feature="gram3", weight=1, least=9))
DEEP = bool(os.environ.get("EXPERIENTIAL_LAB_DEEP"))


def answer(found):
    """What a search says, without places: they differ between snapshots."""
    if isinstance(found, Unverifiable):
        return found
    return [(hit.row.entry_id, hit.score, hit.parts) for hit in found], found.support, found.rule


def desk_index(**options):
    return build(View(snapshot_of(*desk())), **options)


@settings(deadline=None, max_examples=1500 if DEEP else 200)
@given(
    snapshots(),
    st.lists(exclusions, max_size=4),
    queries,
    st.integers(1, 15),
    st.sampled_from([("all", DEFAULT), ("fit", DEFAULT), ("all", WORDS)]),
)
def test_law_2_search_of_a_view_equals_search_of_an_index_built_from_its_entries(snapshot, excluded, query, k, how):
    base, channels = how
    if base == "fit" and not snapshot.fit.rows:
        return
    view = build(View(snapshot), channels=channels).view(base, exclude=excluded)
    alone = snapshot_of(view.entries, {})
    assert answer(search(view, query, k)) == answer(search(build(View(alone), channels=channels).view("all"), query, k))
    assert answer(search(view, query, k)) == answer(search(build(view.plain, channels=channels).view("all"), query, k))


def test_law_2_on_real_traces_every_lineage_excluded_equals_an_index_built_without_it():
    entries = airline()
    index, lineages = build(View(snapshot_of(entries, {}))), sorted({each.lineages[0] for each in entries})
    for lineage in lineages if DEEP else lineages[::7]:
        view = index.view("all", exclude={lineage})
        built = build(view.plain).view("all")
        own = [query_of_entry(each) for each in entries if lineage in each.lineages]
        for query in own if DEEP else own[::4]:
            assert answer(search(view, query, 10)) == answer(search(built, query, 10))
    assert (len(entries), len(lineages)) == (2425, 50)


@settings(deadline=None, max_examples=60)
@given(snapshots(least=1), st.lists(exclusions, max_size=3), queries, st.integers(1, 20), st.randoms())
def test_law_2_k_is_filled_and_nothing_excluded_comes_back_whatever_the_order_of_entries(s, excluded, query, k, r):
    view = build(View(s)).view("all", exclude=excluded)
    found = search(view, query, k)
    if isinstance(found, Unverifiable):
        return
    ids = [hit.row.entry_id for hit in found]
    assert len(ids) == len(set(ids)) == min(k, view.count)
    assert set(ids) <= {entry.entry_id for entry in view.entries}
    facts = {row.entry_id: Facts(row.split, row.family, row.source_ids, row.invalidated) for row in s.rows}
    shuffled = snapshot_of(r.sample(s.entries, len(s.entries)), facts)
    assert search(build(View(shuffled)).view("all", exclude=excluded), query, k).receipt == found.receipt


def test_law_3_what_was_observed_changes_no_rank_score_or_support():
    entries, facts = desk()
    told = [msgspec.structs.replace(each, value=f"lookup_order A3 please {i}") for i, each in enumerate(entries)]
    one, other = (build(View(snapshot_of(some, facts))).view() for some in (entries, told))
    for each in entries[::9]:
        assert answer(one.nearest(query_of_entry(each), 9)) == answer(other.nearest(query_of_entry(each), 9))
    assert not [hit for hit in one.nearest(Query(action="answer <b>"), 50) if dict(hit.parts)["action"] > 0]


def test_law_7_a_wrong_call_is_refused_before_anything_is_ranked():
    view = desk_index().view()
    with pytest.raises(UsageError, match="at least 1"):
        view.nearest(Query(action="hello"), 0)
    for query in (Query(action="half \ud800"), Query(action="x", task="half \ud800")):
        with pytest.raises(UsageError, match="no Unicode"):
            view.nearest(query, 3)
    with pytest.raises(UsageError, match="give a set"):
        desk_index().view(exclude="L01")


def test_law_16_nothing_visible_and_nothing_indexable_are_named_results():
    index = desk_index()
    everything = {f"L{i:02d}" for i in range(11)}
    assert index.view("all", exclude=everything).nearest(Query(action="x")) == Unverifiable(reason="empty view")
    assert index.view().nearest(Query(task=" . ")) == Unverifiable(reason="nothing indexable")


def test_an_index_is_built_from_a_view_and_from_nothing_else():
    snapshot = snapshot_of(*desk())
    for other in (snapshot, snapshot.entries, list(snapshot.entries), None):
        with pytest.raises(TypeError, match="from a View"):
            build(other)
    with pytest.raises(TypeError, match="from entries"):
        build(View(type(snapshot)(snapshot.rows)))


def test_before_a_split_only_all_can_be_asked():
    index = build(View(snapshot_of(desk()[0], {})))
    assert index.view("all").count == 120
    with pytest.raises(NoEvidence, match="split"):
        index.view()


def test_the_fit_view_holds_fit_rows_only_and_is_a_snapshot_of_its_own():
    index = desk_index()
    view = index.view("fit", exclude={"L09"})  # L09 is held out: it removes nothing here
    assert {row.split for row in view.plain.rows} == {"fit"}
    assert view.visibility.excluded == ()
    assert view.visibility.snapshot_digest == index.snapshot.fit.digest != index.snapshot.digest


@pytest.mark.parametrize("level", ["self", "trace", "lineage", "family", "key"])
def test_every_boundary_keeps_its_rows_out_of_the_hits(level):
    index = desk_index()
    row = index.snapshot.rows[17]
    view = index.view("all", exclude=boundary(level, row))
    hits = view.nearest(query_of_entry(index.snapshot.entries[17]), 120)
    out = {index.snapshot.rows[position].entry_id for position in View(index.snapshot, "all", boundary(level, row)).out}
    assert row.entry_id in out
    assert {hit.row.entry_id for hit in hits} == {r.entry_id for r in index.snapshot.rows} - out


def test_a_hit_explains_itself():
    view = desk_index().view(exclude={"L00"})
    hit = view.nearest(Query(tool="lookup_order", arguments='{"order_id": "A3"}', recent="please"), 3)[0]
    assert sum(part for _, part in hit.parts) == hit.score > 0
    assert [field for field, _ in hit.parts] == ["action", "task", "recent"]
    assert hit.snippet == view.plain.snapshot.entries[hit.position].value[:80]
    assert hit.row == view.plain.snapshot.rows[hit.position]
    assert hit.reasons == (
        "pairing: explicit_id",
        "eligible: a fit entry, not invalidated, outside 1 exclusions",
        "relation: same call",
    )


def test_a_row_without_a_shared_feature_says_so():
    hits = (
        build(View(snapshot_of([entry(0, "aaa"), entry(1, "bbb"), entry(2, "ccc")], {})))
        .view("all")
        .nearest(Query(action="aaa"))
    )
    assert [hit.score > 0 for hit in hits] == [True, False, False]
    assert hits[1].reasons[-1] == "score 0: no shared feature that counts"


def test_hits_are_a_sequence_with_frame_receipt_and_attributes():
    hits = desk_index().view().nearest(Query(action="where is my order", task="task 3"), 4)
    frame = hits.frame()
    assert [hit.rank for hit in hits] == frame["rank"].to_list() == [1, 2, 3, 4]
    assert frame.schema["score"] == pl.Int64
    assert frame.columns[4:8] == ["score", "part_action", "part_task", "part_recent"]
    assert frame["observation"].to_list() == [entry.value for entry in hits.entries]
    assert frame["score"].to_list() == (frame["part_action"] + frame["part_task"] + frame["part_recent"]).to_list()
    assert hits.attributes == {
        "xl.snapshot.digest": hits.receipt.visibility.snapshot_digest,
        "xl.receipt.digest": hits.receipt.receipt_digest,
    }
    assert (hits.support in "ABCD", hits.rule) == (True, "message")


def test_a_use_and_a_disposition_name_the_hit_and_verify():
    hits = desk_index().view().nearest(Query(action="where is my order"), 2)
    used = hits.use(1, "supports", Consumer(kind="prompt"))
    unused = hits.no_use(2, "prompt_budget")
    assert (used.entry_id, used.content) == (hits[0].row.entry_id, hits[0].row.content)
    assert (unused.rank, unused.disposition, unused.reason) == (2, "no_use", "prompt_budget")
    assert [verify(each).receipt for each in (used, unused)] == [used.receipt_digest, unused.receipt_digest]
    with pytest.raises(UsageError, match="ranks 1 to 2"):
        hits.use(3, "supports", Consumer(kind="prompt"))


def test_law_15_trace_text_is_escaped_where_it_becomes_html():
    evil = entry(0, "<script>alert(1)</script>", '<img src=x onerror="x">')
    shown = build(View(snapshot_of([evil], {}))).view("all").nearest(Query(action="script"))._repr_html_()
    assert "<script" not in shown
    assert "<img" not in shown
    assert "&lt;script&gt;alert(1)" in shown


def test_recent_is_searched_and_recorded_as_the_key_of_an_entry_is_cut():
    view = build(View(snapshot_of([entry(0, "hi", recent="a " * 5000)], {}))).view("all")
    hits = view.nearest(Query(action="hi", recent="a " * 5000))
    assert hits.receipt.query.recent == "a " * 1000
    assert hits.receipt == view.nearest(Query(action="hi", recent="a " * 1000)).receipt


def saved(index, folder):
    store = Store.open(Path(folder) / "lab", create=True)
    return store, save(index, store, {"lineages": store.put(b"the table")})


def test_law_10_a_loaded_index_answers_as_the_built_one_and_names_its_inventory(tmp_path):
    index = desk_index()
    store, digest = saved(index, tmp_path)
    again = load(store, digest)
    assert (again.digest, again.level, again.inputs) == (
        index.digest,
        "index_verified",
        (("lineages", digest_of(b"the table")),),
    )
    for base in ("all", "fit"):
        built, loaded = (
            each.view(base, exclude={"L01"}).nearest(Query(action="where is it"), 9) for each in (index, again)
        )
        assert built.receipt.results == loaded.receipt.results
        assert built.receipt.visibility.artifact is None
        assert store.get(loaded.receipt.visibility.artifact.digest) == again.view(base).plain.snapshot.inventory()
        assert verify_durable(loaded.receipt, store).results == 9


def test_law_10_one_flipped_byte_in_any_part_is_found_and_named(tmp_path):
    store, digest = saved(desk_index(), tmp_path)
    manifest = store.load(digest, "index", index_module.IndexManifest)
    assert {part.name.split(".")[-1] for part in manifest.parts} >= {
        "inventory",
        "inventory_fit",
        "entries",
        "rows",
        "tf",
    }
    for part in manifest.parts:
        path = store.path_of(part.digest)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(IntegrityError, match=part.digest):
            load(store, digest)
        path.write_bytes(whole)
    assert load(store, digest).level == "index_verified"


@pytest.mark.parametrize("part", ["inventory", "inventory_fit", "entries"])
def test_parts_that_were_exchanged_for_those_of_another_index_are_found(tmp_path, part):
    entries, facts = desk()
    store, digest = saved(desk_index(), tmp_path)
    changed = msgspec.structs.replace(entries[0], value="another answer")
    other = store.load(
        save(build(View(snapshot_of([changed, *entries[1:-1]], facts))), store, {}), "index", index_module.IndexManifest
    )
    manifest = store.load(digest, "index", index_module.IndexManifest)
    theirs = {each.name: each for each in other.parts}
    parts = tuple(theirs[each.name] if each.name == part else each for each in manifest.parts)
    forged = store.keep("index", msgspec.structs.replace(manifest, parts=parts))
    with pytest.raises(IntegrityError, match=r"sha256:.* is .*|made from the entries"):
        load(store, forged)


def test_an_index_made_with_other_unicode_tables_is_stale(tmp_path):
    store, digest = saved(desk_index(), tmp_path)
    manifest = store.load(digest, "index", index_module.IndexManifest)
    config = msgspec.structs.replace(manifest.config, unicode="3.0.0")
    with pytest.raises(StaleError, match="build it again"):
        load(store, store.keep("index", msgspec.structs.replace(manifest, config=config)))


def test_the_digest_of_an_index_is_of_its_snapshot_and_configuration():
    entries, facts = desk()
    index = build(View(snapshot_of(entries, facts)))
    assert index.digest == build(View(snapshot_of(entries[::-1], facts))).digest
    assert (
        len({index.digest, desk_index(channels=WORDS).digest, build(View(snapshot_of(entries[1:], facts))).digest}) == 3
    )
    assert index.config == RankerConfig(channels=DEFAULT, recent_limit=2000)


def law_11_digest() -> str:
    """One digest over all stored parts of an index and many receipts, from entries in an order of this process's own."""
    entries, facts = desk(300)
    random.shuffle(entries)
    index, seen = build(View(snapshot_of(entries, facts))), hashlib.sha256()
    for data in index_module._blobs(index).values():
        seen.update(data)
    for number, each in enumerate(sorted(entries, key=lambda e: e.entry_id)[::7]):
        view = index.view("fit" if number % 2 else "all", exclude=set(each.lineages))
        seen.update(view.nearest(query_of_entry(each), 10).receipt.receipt_digest.encode())
    with tempfile.TemporaryDirectory() as folder:
        seen.update(saved(index, folder)[1].encode())
    return seen.hexdigest()


def test_law_11_the_same_bytes_in_other_processes_orders_hash_seeds_and_cpu_features():
    runs = set()
    for extra in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "77", "NPY_DISABLE_CPU_FEATURES": "X86_V3"}):
        command = [sys.executable, "-c", "import test_index; print(test_index.law_11_digest())"]
        options = {"env": os.environ | extra, "cwd": Path(__file__).parent, "check": True, "capture_output": True}
        runs.add(subprocess.run(command, text=True, **options).stdout)
    assert runs == {law_11_digest() + "\n"}


def test_an_exclusion_may_be_of_any_level():
    view = desk_index().view("all", exclude=["L00", Exclusion(level="observation_kind", value="tool_result")])
    assert {(row.observation_kind, "L00" in row.lineages) for row in view.plain.rows} == {("user_reply", False)}


def test_a_receipt_of_the_fit_view_is_replayed_when_every_entry_is_fit():
    index = build(View(desk_index().snapshot.fit))
    for base in ("fit", "all"):
        hits = index.view(base).nearest(Query(action="where is it"), 3)
        assert replay(hits.receipt, index).receipt == hits.receipt.receipt_digest


def forged(tmp_path, change):
    """A stored index whose manifest says what `change` makes of (manifest, that of another index)."""
    entries, facts = desk()
    store = Store.open(tmp_path / "lab", create=True)
    embedder, manifests = HashedEmbedder(16), []
    for snapshot in (snapshot_of(entries, facts), snapshot_of(entries[3:60], facts)):
        saved_as = save(build(View(snapshot), embedder=embedder, fusion="fused"), store, {})
        manifests.append(store.load(saved_as, "index", index_module.IndexManifest))
    return store, store.keep("index", msgspec.structs.replace(manifests[0], **change(*manifests)))


def without(name):
    return lambda ours, other: {"parts": tuple(part for part in ours.parts if part.name != name)}


def exchanged(name):
    def change(ours, other):
        theirs = {part.name: part for part in other.parts}
        return {"parts": tuple(theirs[name] if part.name == name else part for part in ours.parts)}

    return change


FORGED = {f"without {name}": without(name) for name in ("inventory", "entries", "0.rows", "vectors")}
FORGED |= {f"another {name}": exchanged(name) for name in ("0.start", "0.rows", "1.tf", "2.length", "vectors")}
FORGED |= {
    "the vectors as entries": lambda ours, other: {
        "parts": tuple(
            msgspec.structs.replace(ours.parts[-1], name="entries") if part.name == "entries" else part
            for part in ours.parts
        )
    },
    "no embedder": lambda ours, other: {"embedder": None},
    "a ranker of no vectors": lambda ours, other: {"config": msgspec.structs.replace(ours.config, embedder=None)},
    "fewer channels": lambda ours, other: {
        "config": msgspec.structs.replace(ours.config, channels=ours.config.channels[:2])
    },
    "fewer fit entries": lambda ours, other: {"fit": 3},
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_a_manifest_that_names_parts_which_do_not_fit_is_refused_by_name(tmp_path, change):
    store, forged_as = forged(tmp_path, change)
    with pytest.raises(IntegrityError):
        load(store, forged_as)


def test_a_k_that_no_record_holds_is_refused():
    with pytest.raises(UsageError, match="which no receipt can hold"):
        desk_index().view().nearest(Query(action="where is it"), 2**53)
