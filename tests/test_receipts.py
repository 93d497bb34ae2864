"""Receipts: what each check finds, and what it leaves to the next. Each name is the promise."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import polars as pl
import pytest
import rfc8785
from hypothesis import given
from retrieval_cases import acts, desk, entry, texts

from experiential_lab.bench.receipts import (
    BYTES,
    CPU,
    ROUNDS,
    Embedded,
    bytes_frame,
    own_lineage,
    receipt_of,
    synthetic,
)
from experiential_lab.records import (
    IntegrityError,
    NoEvidence,
    UnsupportedError,
    Unverifiable,
    UsageError,
    canonical_bytes,
    digest_of,
)
from experiential_lab.retrieval import receipts
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.index import Index, Replayed, build, load, replay, save
from experiential_lab.retrieval.kept import find, keep, kept, uses_of
from experiential_lab.retrieval.receipts import (
    CLAIMED,
    REPLAY_ONLY,
    Consistent,
    Consumer,
    Joined,
    Query,
    RetrievalReceipt,
    join,
    query_of_entry,
    seal,
    verify,
    verify_durable,
    verify_use,
)
from experiential_lab.retrieval.receipts_v1 import Migrated, migrate_v1, read_v1
from experiential_lab.retrieval.replays import replay_stored
from experiential_lab.retrieval.views import Exclusion, Snapshot, View, snapshot_of
from experiential_lab.show.receipt_plots import cost_frame, plot_receipts
from experiential_lab.store import Store

DRAFT = Path(__file__).parent / "data" / "receipts" / "v1.json"


@dataclass
class Case:
    index: Index
    store: Store
    hits: Hits

    @property
    def receipt(self) -> RetrievalReceipt:
        return self.hits.receipt

    @property
    def snapshot(self) -> Snapshot:
        return self.index.snapshot


CALL, MESSAGE = 40, 41  # entries of the desk: the queries of both kinds


def asked(tmp_path: Path, entry: int) -> Case:
    """A receipt of a fit view without one lineage, from an index that was saved and loaded."""
    store = Store.open(tmp_path / "lab", create=True)
    saved = save(build(View(snapshot_of(*desk()))), store, {})
    store.append("index_built", artifact=saved, evidence="none", lineage_table="none")
    index = load(store, saved)
    kind = index.snapshot.entries[entry].observation_kind
    other = "user_reply" if kind == "tool_result" else "tool_result"
    excluded = ["L02", Exclusion(level="trace", value="t1"), Exclusion(level="observation_kind", value=other)]
    hits = index.view("fit", exclude=excluded).nearest(query_of_entry(index.snapshot.entries[entry]), 4)
    return Case(index, store, hits)


@given(acts, texts, texts)
def test_an_entry_asked_about_is_the_action_that_it_records_and_none_of_its_observation(act, task, recent):
    made = entry(1, act, "an observation that nobody may see", task=task, recent=recent)
    asked = query_of_entry(made)
    assert asked.act == (dict(made.key)["action"], made.tool, made.structure, made.shape)
    assert (asked.task, asked.recent) == (task, recent)
    assert b"nobody may see" not in canonical_bytes(asked)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return asked(tmp_path, CALL)


def changed(receipt: RetrievalReceipt, **fields) -> RetrievalReceipt:
    """The receipt with other fields and a digest made anew."""
    return seal(msgspec.structs.replace(receipt, **fields))


def test_the_digest_of_a_receipt_is_of_all_its_other_fields(case):
    fields = json.loads(canonical_bytes(case.receipt))
    said = fields.pop("receipt_digest")
    assert said == digest_of(json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


def test_each_check_says_what_it_did_and_no_more(case):
    digest, snapshot = case.receipt.receipt_digest, case.receipt.visibility.snapshot_digest
    assert verify(case.receipt) == verify(canonical_bytes(case.receipt)) == Consistent(receipt=digest)
    joined = Joined(receipt=digest, snapshot=snapshot, results=4)
    assert join(case.receipt, case.snapshot) == join(case.receipt, case.snapshot.fit) == joined
    assert verify_durable(case.receipt, case.store) == joined
    assert replay(case.receipt, case.index).receipt == digest


def test_law_11_equal_retrievals_share_one_receipt_and_it_holds_no_time_host_or_run(case):
    view = case.index.view("fit", exclude=case.receipt.visibility.excluded)
    assert view.nearest(case.receipt.query, 4).receipt == case.receipt
    assert not re.search(rb"created|_at\"|host|actor|run_id", canonical_bytes(case.receipt))


def paths(value, place=()):
    """The place of every leaf of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*place, key)) if isinstance(item, (dict, list)) and item else [(*place, key)]


def mutated(data: bytes, place, value=None) -> bytes:
    """The receipt's JSON with one leaf made `value`, or another value of its type."""
    whole = json.loads(data)
    inner = whole
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = another(inner[place[-1]]) if value is None else value
    return canonical(whole)


def another(old):
    digits = isinstance(old, str) and re.fullmatch(r"(sha256:)?[0-9a-f]{16,64}", old)
    if digits:
        return old[:-1] + ("0" if old[-1] != "0" else "1")
    if isinstance(old, str):
        return "forged"
    return not old if isinstance(old, bool) else old + 1 if isinstance(old, int) else [1]


def removed(data: bytes, place) -> bytes:
    """The receipt's JSON without one leaf."""
    whole = json.loads(data)
    inner = whole
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]
    return canonical(whole)


def canonical(value) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def name_of(place) -> str:
    """A leaf as the module names it: a list is [], the place in a pair its number."""
    name = ""
    for key, before in zip(place, ("", *place), strict=False):
        pair = isinstance(before, int) and isinstance(key, int)
        name += f"[{key}]" if pair else "[]" if isinstance(key, int) else f".{key}"
    return name[1:]


def is_named(name: str) -> bool:
    return any(name == known or name.startswith((f"{known}.", f"{known}[")) for known in REPLAY_ONLY)


def forged(data: bytes) -> RetrievalReceipt | None:
    """The receipt with its digest made anew; None when it has no longer the form of one."""
    try:
        made = msgspec.json.decode(data, type=receipts.Receipt)
        return seal(made)
    except msgspec.ValidationError:
        return None


def joining(receipt: RetrievalReceipt | None, case: Case) -> bool:
    try:
        return receipt is not None and isinstance(join(receipt, case.snapshot), Joined)
    except IntegrityError:
        return False


def test_a_receipt_with_any_leaf_changed_or_removed_is_refused(case):
    data = canonical_bytes(case.receipt)
    places = list(paths(json.loads(data)))
    assert len(places) > 100
    for place in places:
        for change in (mutated, removed):
            with pytest.raises(IntegrityError):
                verify(change(data, place))


@pytest.mark.parametrize("entry", [CALL, MESSAGE])
def test_of_leaves_forged_with_the_digest_made_anew_join_misses_exactly_what_is_named_and_replay_finds_it(
    tmp_path, entry
):
    case = asked(tmp_path, entry)
    data = canonical_bytes(case.receipt)
    places = [place for place in paths(json.loads(data)) if place != ("receipt_digest",)]
    missed = {place: made for place in places if joining(made := forged(mutated(data, place)), case)}
    assert {name_of(place) for place in missed} == {name for name in map(name_of, places) if is_named(name)}
    for made in missed.values():
        with pytest.raises(IntegrityError):
            replay(made, case.index)


def test_every_name_of_the_list_that_only_replay_finds_stands_for_a_leaf(case):
    names = [name_of(place) for place in paths(json.loads(canonical_bytes(case.receipt)))]
    for known in REPLAY_ONLY:
        assert any(name == known or name.startswith((f"{known}.", f"{known}[")) for name in names), known


@pytest.mark.parametrize("entry", [CALL, MESSAGE])
def test_of_leaves_removed_with_the_digest_made_anew_join_misses_only_what_is_named_and_replay_finds_it(
    tmp_path, entry
):
    case = asked(tmp_path, entry)
    data = canonical_bytes(case.receipt)
    places = [place for place in paths(json.loads(data)) if place != ("receipt_digest",)]
    missed = {place: made for place in places if joining(made := forged(removed(data, place)), case)}
    assert {name for name in map(name_of, missed) if not is_named(name)} == set()
    for made in missed.values():
        with pytest.raises(IntegrityError):
            replay(made, case.index)


@pytest.mark.parametrize("value", [0, -1, 1 << 53, "", "sha256:", [], {}])
def test_a_leaf_of_an_odd_value_or_of_another_type_never_joins_unnamed(case, value):
    data = canonical_bytes(case.receipt)
    for place in paths(json.loads(data)):
        made = forged(mutated(data, place, value))
        if made is not None and made != case.receipt and joining(made, case):
            assert is_named(name_of(place)), (place, value)


def test_a_base_that_was_swapped_with_its_counts_is_left_to_replay(case):
    seen, whole = case.receipt.visibility, View(case.snapshot, "all", case.receipt.visibility.excluded)
    swapped = changed(case.receipt, visibility=whole.visibility(case.snapshot.artifact))
    assert swapped.visibility.snapshot_digest != seen.snapshot_digest
    assert isinstance(join(swapped, case.snapshot), Joined)
    with pytest.raises(IntegrityError):
        replay(swapped, case.index)


def test_a_receipt_that_pretends_to_be_migrated_is_refused(case):
    lie = {"migrated_from": digest_of(b"a draft")}
    with pytest.raises(IntegrityError, match="a migrated receipt has a ranker that begins with 'v1:'"):
        verify(changed(case.receipt, **lie))
    foreign = msgspec.structs.replace(case.receipt.retriever, ranker="v1:other")
    with pytest.raises(IntegrityError, match="migrated_from is ''"):
        verify(changed(case.receipt, retriever=foreign))
    with pytest.raises(IntegrityError, match="retriever: the receipt says"):
        replay(changed(case.receipt, retriever=foreign, **lie), case.index)


def test_a_join_hashes_no_inventory(case, monkeypatch):
    join(case.receipt, case.snapshot)

    def refused(self, count):
        raise AssertionError(f"hashed {count} rows again")

    monkeypatch.setattr(Snapshot, "prefix_digest", refused)
    assert isinstance(join(case.receipt, case.snapshot), Joined)


def test_scores_that_agree_with_forged_parts_are_left_to_replay(case):
    first, *rest = case.receipt.results
    (field, part), *others = first.parts
    forged = changed(
        case.receipt,
        results=(msgspec.structs.replace(first, score=first.score + 5, parts=((field, part + 5), *others)), *rest),
    )
    assert isinstance(join(forged, case.snapshot), Joined)
    with pytest.raises(IntegrityError, match="results: the receipt says"):
        replay(forged, case.index)


def test_a_dropped_exclusion_is_found_and_with_a_mended_count_it_is_left_to_replay(case):
    seen = case.receipt.visibility
    dropped = msgspec.structs.replace(seen, excluded=seen.excluded[1:])
    with pytest.raises(IntegrityError, match="visible rows"):
        join(changed(case.receipt, visibility=dropped), case.snapshot)
    count = View(case.snapshot, "fit", dropped.excluded).count
    mended = changed(case.receipt, visibility=msgspec.structs.replace(dropped, visible_count=count))
    assert isinstance(join(mended, case.snapshot), Joined)
    with pytest.raises(IntegrityError):
        replay(mended, case.index)


def test_a_row_that_was_excluded_or_invalidated_is_no_result(case):
    fit = case.snapshot.fit
    out = View(fit, "all", case.receipt.visibility.excluded).out
    for position in (out[0], fit.invalidated[0]):
        forged = msgspec.structs.replace(case.receipt.results[0], position=position, row=fit.rows[position])
        with pytest.raises(IntegrityError, match=r"excluded or invalidated|invalidated True"):
            join(changed(case.receipt, results=(forged, *case.receipt.results[1:])), case.snapshot)


def test_a_place_beyond_the_snapshot_and_an_exclusion_that_removes_nothing_are_refused(case):
    far = msgspec.structs.replace(case.receipt.results[0], position=case.receipt.visibility.snapshot_count)
    with pytest.raises(IntegrityError, match="at place"):
        verify(changed(case.receipt, results=(far, *case.receipt.results[1:])))
    idle = (*case.receipt.visibility.excluded, Exclusion(level="trace", value="zz"))
    with pytest.raises(IntegrityError, match="removes no row"):
        join(
            changed(case.receipt, visibility=msgspec.structs.replace(case.receipt.visibility, excluded=idle)),
            case.snapshot,
        )


def test_fewer_results_than_k_and_visible_rows_allow_are_refused(case):
    with pytest.raises(IntegrityError, match="number of results: the receipt says 3, it should be 4"):
        verify(changed(case.receipt, results=case.receipt.results[:3]))


def test_ranks_repeated_rows_and_an_order_that_is_not_by_score_are_refused(case):
    one, two, *rest = case.receipt.results
    put = msgspec.structs.replace
    for results, what in (
        ((put(one, rank=2), two, *rest), "ranks"),
        ((one, put(two, position=one.position), *rest), "distinct places"),
        ((one, put(two, row=one.row), *rest), "distinct entries"),
        ((put(two, rank=1), put(one, rank=2), *rest), "order by score"),
        ((put(one, snippet="x" * 81), two, *rest), "snippet of 81"),
        ((put(one, row=put(one.row, invalidated=True)), two, *rest), "invalidated True"),
    ):
        with pytest.raises(IntegrityError, match=what):
            verify(changed(case.receipt, results=tuple(results)))


def test_a_visibility_that_contradicts_itself_is_refused(case):
    seen, put = case.receipt.visibility, msgspec.structs.replace
    for visibility, what in (
        (put(seen, excluded=seen.excluded[::-1]), "order of exclusions"),
        (put(seen, excluded=(seen.excluded[0], *seen.excluded)), "order of exclusions"),
        (put(seen, visible_count=seen.snapshot_count + 1), "rows visible of"),
        (put(seen, snapshot_digest="sha256:1"), "no sha256 digest"),
        (put(seen, artifact=put(seen.artifact, uri="blob:elsewhere")), "uri of the artifact"),
    ):
        with pytest.raises(IntegrityError, match=what):
            verify(changed(case.receipt, visibility=visibility))


def test_a_count_beyond_the_snapshot_is_refused_although_the_digest_is_right(case):
    receipt = case.index.view("all").nearest(case.receipt.query, 4).receipt
    more = msgspec.structs.replace(receipt.visibility, snapshot_count=receipt.visibility.snapshot_count + 1)
    with pytest.raises(IntegrityError, match="snapshot count: the receipt says 121, it should be 120"):
        join(changed(receipt, visibility=more), case.snapshot)


def test_a_float_or_a_missing_score_is_no_receipt(case):
    for score in (1.5, float("nan"), None, True):
        forged = msgspec.structs.replace(case.receipt.results[0], score=score)
        with pytest.raises(IntegrityError, match=r"not a receipt|canonical"):
            verify(changed(case.receipt, results=(forged, *case.receipt.results[1:])))


def test_a_score_beyond_exact_integers_a_content_that_is_no_digest_and_no_k_are_refused(case):
    first, *rest = case.receipt.results
    big = 1 << 53
    for fields, what in (
        ({"score": big, "parts": (("action", big),)}, f"has score {big}"),
        ({"row": msgspec.structs.replace(first.row, content="x")}, "content of rank 1 is 'x', no sha256 digest"),
    ):
        with pytest.raises(IntegrityError, match=what):
            verify(changed(case.receipt, results=(msgspec.structs.replace(first, **fields), *rest)))
    with pytest.raises(IntegrityError, match="asks for 0 results"):
        verify(changed(case.receipt, k=0, results=()))


def test_bytes_that_are_not_canonical_are_no_receipt(case):
    data = canonical_bytes(case.receipt)
    for other in (data + b" ", data.replace(b'"k":4', b'"k": 4'), b"{}", b"\xff", data[:-1]):
        with pytest.raises(IntegrityError, match=r"not a receipt|canonical"):
            verify(other)


def test_the_same_ids_with_other_bytes_do_not_join(case):
    entries, facts = desk()
    hit = case.receipt.results[0].row.entry_id
    told = [msgspec.structs.replace(e, value="other") if e.entry_id == hit else e for e in entries]
    with pytest.raises(IntegrityError, match=r"snapshot digest: the receipt says 'sha256:.*it should be 'sha256:"):
        join(case.receipt, snapshot_of(told, facts))


def test_law_16_missing_evidence_is_a_named_result_and_an_empty_snapshot_is_a_mismatch(case, tmp_path):
    built = build(View(case.snapshot)).view("fit").nearest(Query(action="hello")).receipt
    empty = Store.open(tmp_path / "empty", create=True)
    assert join(case.receipt, None) == Unverifiable(reason="missing")
    assert verify_durable(built, case.store) == Unverifiable(reason="no_artifact_reference")
    assert verify_durable(case.receipt, empty) == Unverifiable(reason="missing")
    with pytest.raises(IntegrityError, match="snapshot digest"):
        join(case.receipt, snapshot_of([], {}))


def test_an_inventory_that_cannot_be_read_is_unverifiable(case):
    class Unreadable(Store):
        def get(self, digest: str) -> bytes:
            raise OSError("input/output error")

    assert verify_durable(case.receipt, Unreadable(case.store.path)) == Unverifiable(reason="load_failed")


def test_a_stored_inventory_that_was_damaged_or_is_another_is_found(case):
    artifact = case.receipt.visibility.artifact
    other = case.snapshot.artifact  # of the whole snapshot, not of its fit part
    forged = changed(case.receipt, visibility=msgspec.structs.replace(case.receipt.visibility, artifact=other))
    with pytest.raises(IntegrityError, match=r"snapshot count|artifact"):
        verify_durable(forged, case.store)
    path = case.store.path_of(artifact.digest)
    path.write_bytes(path.read_bytes().replace(b"L0", b"L9", 1))
    with pytest.raises(IntegrityError, match=artifact.digest):
        verify_durable(case.receipt, case.store)


def test_law_10_an_inventory_is_stored_once_for_any_number_of_receipts(case):
    before = sum(1 for _ in case.store.path.rglob("*"))
    views = [case.index.view("fit", exclude={lineage}) for lineage in ("L00", "L01", "L03")]
    artifacts = {view.nearest(case.receipt.query, k).receipt.visibility.artifact for view in views for k in (1, 5)}
    assert artifacts == {case.receipt.visibility.artifact}
    assert sum(1 for _ in case.store.path.rglob("*")) == before


def test_law_10_fifty_receipts_over_loaded_views_serialise_no_inventory(case, monkeypatch):
    def refused(self):
        raise AssertionError("serialised again")

    monkeypatch.setattr(Snapshot, "inventory", refused)
    for number in range(50):
        hits = case.index.view("fit", exclude={f"L{number % 8:02d}"}).nearest(Query(action=f"word {number}"), 3)
        assert hits.receipt.visibility.artifact == case.receipt.visibility.artifact


def test_a_use_belongs_to_one_rank_of_one_retrieval(case):
    used = receipts.use(case.receipt, 2, relation="supports", consumer=Consumer(kind="prompt", digest=digest_of(b"p")))
    assert verify_use(used, case.receipt) == Consistent(receipt=used.receipt_digest)
    other = case.index.view("fit").nearest(Query(action="hello"), 4).receipt
    with pytest.raises(IntegrityError, match="retrieval receipt"):
        verify_use(used, other)
    for field, value, what in (("rank", 3, "entry of rank 3"), ("content", digest_of(b""), "content of rank 2")):
        with pytest.raises(IntegrityError, match=what):
            verify_use(seal(msgspec.structs.replace(used, **{field: value})), case.receipt)


def test_a_use_with_any_leaf_changed_or_removed_is_refused(case):
    used = case.hits.use(1, "contradicts", Consumer(kind="prompt", uri="a", digest=digest_of(b"p")))
    left = case.hits.no_use(2, "prompt_budget")
    for data in (canonical_bytes(used), canonical_bytes(left)):
        for place in paths(json.loads(data)):
            for change in (mutated, removed):
                with pytest.raises(IntegrityError):
                    verify(change(data, place))


def test_a_use_forged_with_its_digest_made_anew_is_found_but_for_what_only_its_writer_can_know(case):
    used = case.hits.use(1, "contradicts", Consumer(kind="prompt", uri="a", digest=digest_of(b"p")))
    left = case.hits.no_use(2, "prompt_budget")
    missed, open_to_all = set(), set()
    for record, value in ((used, "supports"), (left, "irrelevant")):
        data = canonical_bytes(record)
        for place in paths(json.loads(data)):
            word = value if place in (("relation",), ("disposition",)) else None
            open_to_all |= {place[0]} if place[0] in CLAIMED else set()
            try:
                verify_use(seal(msgspec.json.decode(mutated(data, place, word), type=type(record))), case.receipt)
            except (IntegrityError, UsageError, msgspec.ValidationError):
                continue
            missed |= {place[0]} if place != ("receipt_digest",) else set()
    assert missed == open_to_all == set(CLAIMED)


def test_a_use_of_no_rank_no_known_relation_or_for_no_reason_is_never_made(case):
    consumer = Consumer(kind="prompt")
    for rank in (0, 5, -1):
        with pytest.raises(UsageError, match=f"rank {rank} is asked for, the retrieval gave ranks 1 to 4"):
            case.hits.use(rank, "supports", consumer)
    with pytest.raises(UsageError, match="relation is 'likes'; it can be supports, contradicts"):
        case.hits.use(1, "likes", consumer)
    with pytest.raises(UsageError, match="disposition is 'bad'; it can be irrelevant, no_use"):
        case.hits.no_use(1, "why not", disposition="bad")
    with pytest.raises(UsageError, match="say why"):
        case.hits.no_use(1, " ")


def test_a_use_without_a_digest_or_a_rank_is_no_use(case):
    used = case.hits.use(1, "supports", Consumer(kind="prompt", digest=digest_of(b"p")))
    for field, value in (("retrieval", "?"), ("content", ""), ("rank", 0), ("entry_id", "")):
        with pytest.raises(IntegrityError):
            verify(seal(msgspec.structs.replace(used, **{field: value})))
    with pytest.raises(IntegrityError, match="digest of the consumer is 'p'"):
        verify(case.hits.use(1, "supports", Consumer(kind="prompt", digest="p")))


def test_no_use_is_evidence_and_its_absence_is_none(case):
    left = case.hits.no_use(2, "prompt_budget")
    assert verify_use(left, case.receipt) == Consistent(receipt=left.receipt_digest)
    assert (left.disposition, left.reason) == ("no_use", "prompt_budget")
    case.hits.keep(left, store=case.store)
    assert [each.receipt for each in uses_of(case.store, case.receipt.receipt_digest)] == [left]


def test_the_attributes_of_a_trace_name_the_snapshot_and_the_receipt(case):
    assert case.hits.attributes == {
        "xl.snapshot.digest": case.snapshot.fit.digest,
        "xl.receipt.digest": case.receipt.receipt_digest,
    }


def test_hits_are_kept_on_request_alone_and_their_uses_after_them(case):
    assert kept(case.store) == []
    used = case.hits.use(1, "supports", Consumer(kind="prompt"))
    assert case.hits.keep(used, store=case.store) == case.receipt.receipt_digest
    assert [each.receipt for each in kept(case.store)] == [case.receipt, used]
    assert find(case.store, case.receipt.receipt_digest[7:15]).receipt == case.receipt
    assert case.store.inputs_of(find(case.store, used.receipt_digest).artifact) == {
        "retrieval": find(case.store, case.receipt.receipt_digest).artifact
    }
    assert case.store.verify().ok


def test_law_10_a_receipt_that_is_kept_again_is_listed_once_and_adds_no_blob(case):
    case.hits.keep(store=case.store)
    before, first = sorted(case.store.path.glob("blobs/*/*")), kept(case.store)
    case.hits.keep(store=case.store)
    assert sorted(case.store.path.glob("blobs/*/*")) == before
    assert kept(case.store) == first


def test_hits_that_cannot_be_kept_leave_the_workspace_as_it_was(case, tmp_path):
    built = build(View(case.snapshot)).view("fit").nearest(Query(action="hello"))
    with pytest.raises(UsageError, match=r"hits\.keep\(store=lab\.store\)"):
        built.keep()
    foreign = built.use(1, "supports", Consumer(kind="prompt"))
    with pytest.raises(IntegrityError, match="retrieval receipt"):
        case.hits.keep(foreign, store=case.store)
    with pytest.raises(NoEvidence, match="is not kept: keep it first"):
        keep(case.store, foreign)
    other = Store.open(tmp_path / "other", create=True)
    with pytest.raises(IntegrityError, match=r"its inventory, sha256:\w+, is not stored"):
        case.hits.keep(store=other)
    assert kept(case.store) == kept(other) == []


def test_what_is_forged_is_never_kept(case):
    with pytest.raises(IntegrityError, match="receipt digest"):
        keep(case.store, msgspec.structs.replace(case.receipt, k=5))
    case.hits.keep(store=case.store)
    used = case.hits.use(1, "supports", Consumer(kind="prompt"))
    with pytest.raises(IntegrityError, match="entry of rank 1"):
        keep(case.store, seal(msgspec.structs.replace(used, entry_id="another")))
    assert len(kept(case.store)) == 1


def test_a_receipt_whose_bytes_were_forgotten_is_listed_no_more(case):
    case.hits.keep(store=case.store)
    case.store.path_of(kept(case.store)[0].artifact).unlink()
    assert kept(case.store) == []


def test_a_beginning_that_is_short_or_fits_several_receipts_is_refused(case, monkeypatch):
    with pytest.raises(UsageError, match="too short"):
        find(case.store, "sha256:abc")
    assert find(case.store, "abcdef") is None
    view = case.index.view("fit")
    for number in range(3):
        view.nearest(Query(action=f"word {number}"), 1).keep(store=case.store)
    monkeypatch.setattr("experiential_lab.retrieval.kept.SHORTEST", 0)
    with pytest.raises(UsageError, match="'' is the beginning of 3 receipts, for example sha256:"):
        find(case.store, "")


def test_a_replay_finds_the_index_of_its_snapshot_in_the_workspace_even_behind_a_newer_one(case):
    entries, facts = desk()
    newer = save(build(View(snapshot_of(entries[1:], facts))), case.store, {})
    case.store.append("index_built", artifact=newer, evidence="none", lineage_table="none")
    assert replay_stored(case.receipt, case.store) == Replayed(receipt=case.receipt.receipt_digest)
    whole = case.index.view("all").nearest(case.receipt.query, 3).receipt
    assert replay_stored(whole, case.store) == Replayed(receipt=whole.receipt_digest)
    other = changed(case.receipt, attributes=(("support", "A"),))
    with pytest.raises(IntegrityError, match="attributes: the receipt says"):
        replay_stored(other, case.store)


def test_law_16_a_replay_without_its_index_is_unverifiable_with_the_reason(case, tmp_path):
    built = build(View(case.snapshot)).view("fit").nearest(Query(action="hello")).receipt
    empty = Store.open(tmp_path / "empty", create=True)
    assert replay_stored(built, case.store) == Unverifiable(reason="no_artifact_reference")
    assert replay_stored(case.receipt, empty) == Unverifiable(reason="missing")
    assert replay_stored(migrate_v1(DRAFT.read_bytes(), empty).receipt, empty) == Unverifiable(reason="foreign_ranker")
    case.store.path_of(case.store.latest("index_built").fields["artifact"]).unlink()
    assert replay_stored(case.receipt, case.store) == Unverifiable(reason="missing")


def test_visible_returned_and_used_are_three_records():
    fields = [
        set(kind.__struct_fields__) for kind in (receipts.Visibility, receipts.RetrievalReceipt, receipts.UseReceipt)
    ]
    assert fields[0].isdisjoint(fields[1])
    assert fields[1] & fields[2] == {"schema", "receipt_digest"}


def test_a_receipt_of_ten_hits_is_small(case):
    hits = case.index.view("fit", exclude={"L00"}).nearest(case.receipt.query, 10)
    assert len(canonical_bytes(hits.receipt)) < 8_000


def test_a_replay_with_another_index_is_refused_with_both_snapshots(case):
    entries, facts = desk()
    other = build(View(snapshot_of(entries[1:], facts)))
    with pytest.raises(IntegrityError, match=case.receipt.visibility.snapshot_digest):
        replay(case.receipt, other)


# The embedded draft.


def redigested(draft) -> bytes:
    """The draft with both digests made anew, by another implementation of RFC 8785."""
    for value, name in ((draft["visibility"], "snapshotDigest"), (draft, "receiptDigest")):
        rest = {key: item for key, item in value.items() if key != name}
        value[name] = digest_of(rfc8785.dumps(rest))
    return json.dumps(draft).encode()


@pytest.fixture
def draft():
    return json.loads(DRAFT.read_bytes())


def test_an_embedded_draft_becomes_a_snapshot_and_a_receipt_that_refers_to_it(draft):
    found = read_v1(DRAFT.read_bytes())
    assert isinstance(found, Migrated)
    said = draft["visibility"]["entries"]
    rows = found.snapshot.rows
    assert [row.content for row in rows] == [entry["pageDigest"] for entry in said]
    assert [(row.lineages, row.path) for row in rows] == [((entry["origin"],), entry["path"]) for entry in said]
    assert [list(row.source_ids) for row in rows] == [entry["sourceIds"] for entry in said]
    assert [row.invalidated for row in rows] == [entry["invalidated"] for entry in said]
    assert found.receipt.migrated_from == draft["receiptDigest"]
    assert isinstance(join(found.receipt, found.snapshot), Joined)
    assert found.receipt.visibility.visible_count == 4


def test_the_results_of_a_draft_keep_rank_place_score_and_reasons(draft):
    results = read_v1(DRAFT.read_bytes()).receipt.results
    assert [hit.position for hit in results] == [2, 1, 3]
    assert [hit.score for hit in results] == [32_522_475, 16_129_032, 50_000]
    assert results[2].reasons == ("rrfScore: 0.00005", "normalizedScore: 1.5e-7")
    assert results[0].reasons[:2] == tuple(draft["results"][0]["reasons"])
    assert [hit.snippet for hit in results] == [each["snippet"][:80] for each in draft["results"]]


def test_run_time_and_actor_of_a_draft_stand_beside_the_receipt_and_not_in_it(draft):
    found = read_v1(DRAFT.read_bytes())
    assert found.envelope == {name: draft[name] for name in ("actorId", "createdAt", "evidenceRefs", "runId")}
    assert not re.search(rb"run-summer|2026-08|root:s0", canonical_bytes(found.receipt))


def test_a_draft_with_any_leaf_changed_or_removed_is_refused():
    data = DRAFT.read_bytes()
    for place in paths(json.loads(data)):
        for change in (mutated, removed):
            with pytest.raises((IntegrityError, UnsupportedError)):
                read_v1(change(data, place))


def test_a_result_of_a_draft_that_is_no_entry_of_its_inventory_is_refused_though_both_digests_are_right(draft):
    for field, value in (("pageDigest", digest_of(b"")), ("path", "x"), ("origin", "here"), ("pageId", "x")):
        told = json.loads(json.dumps(draft))
        told["results"][0][field] = value
        with pytest.raises(IntegrityError, match="is no entry of its inventory"):
            read_v1(redigested(told))


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("results", 0, "rank"), 2, "ranks"),
        (("results", 0, "rank"), "1", "not a receipt"),
        (("results", 0, "note"), "x", "unknown fields: note"),
        (("visibility", "entries", 1, "position"), 7, "says position 7, it stands at 1"),
        (("visibility", "entries", 1, "invalidated"), "no", "Expected `bool`"),
        (("visibility", "entries", 3, "note"), 1, "unknown fields: note"),
        (("kind",), "knowledge-use", "kind 'knowledge-use'"),
        (("extra",), 1, "unknown fields: extra"),
    ],
)
def test_a_draft_that_its_own_contract_forbids_is_refused_though_both_digests_are_right(draft, where, value, message):
    inner = draft
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    with pytest.raises(IntegrityError, match=message):
        read_v1(redigested(draft))


def test_a_draft_with_one_page_twice_or_of_no_draft_is_refused(draft):
    found = read_v1(DRAFT.read_bytes()).receipt
    with pytest.raises(IntegrityError, match="migrated_from is 'x', no sha256 digest"):
        verify(changed(found, migrated_from="x"))
    entries = draft["visibility"]["entries"]
    entries[0] = entries[1] | {"position": 0}
    with pytest.raises(IntegrityError, match="5 entries, 4 of them different"):
        read_v1(redigested(draft))


def test_what_no_receipt_of_ours_can_say_is_unsupported(draft):
    other, below = json.loads(json.dumps(draft)), json.loads(json.dumps(draft))
    other["schemaVersion"] = "2.0.0"
    with pytest.raises(UnsupportedError, match=r"schema '2\.0\.0'; this version reads schema '1\.0\.0'"):
        read_v1(redigested(other))
    below["results"][2]["rrfScore"] = -0.5
    with pytest.raises(UnsupportedError, match=r"rank 3 .* -0\.5 below 0"):
        read_v1(redigested(below))
    draft["visibility"]["entries"][2]["invalidated"] = True
    with pytest.raises(UnsupportedError, match="rank 1 is invalidated"):
        read_v1(redigested(draft))


def test_bytes_that_are_no_draft_are_refused():
    for data in (b"", b"{}", b"[]", b"null", b"\xff", b'{"visibility": 3}', DRAFT.read_bytes()[:-3]):
        with pytest.raises(IntegrityError, match="not a v1 receipt"):
            read_v1(data)


odd = st.text('aé\U0001f600\ufb33\x07"\\')
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | odd,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd, inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_a_draft_is_spelled_as_another_implementation_of_rfc_8785_spells_it(value):
    draft = json.loads(DRAFT.read_bytes()) | {"attributes": {"value": value}}
    assert read_v1(redigested(draft)).receipt.attributes[0] == ("v1.attributes.value", rfc8785.dumps(value).decode())


def test_a_migrated_receipt_is_kept_and_joins_its_stored_inventory_in_the_order_of_the_draft(tmp_path):
    store = Store.open(tmp_path / "lab", create=True)
    found = migrate_v1(DRAFT.read_bytes(), store)
    assert find(store, found.receipt.receipt_digest).receipt == found.receipt
    assert verify_durable(found.receipt, store) == Joined(
        receipt=found.receipt.receipt_digest, snapshot=found.snapshot.digest, results=3
    )
    store.path_of(found.receipt.visibility.artifact.digest).unlink()
    assert verify_durable(found.receipt, store) == Unverifiable(reason="missing")


def test_an_order_of_entries_is_part_of_a_migrated_snapshot(draft):
    entries = draft["visibility"]["entries"]
    entries[0], entries[4] = entries[4] | {"position": 0}, entries[0] | {"position": 4}
    assert read_v1(redigested(draft)).snapshot.digest != read_v1(DRAFT.read_bytes()).snapshot.digest


# The bench and its figure.


def test_a_receipt_of_the_bench_joins_and_its_bytes_are_those_that_would_be_written():
    snapshot = synthetic(300)
    assert snapshot.artifact == Snapshot(snapshot.rows).artifact
    assert snapshot.digest == Snapshot(snapshot.rows).digest
    receipt = receipt_of(snapshot, own_lineage(snapshot))
    assert isinstance(join(receipt, snapshot), Joined)
    written = [len(canonical_bytes(receipt)), len(canonical_bytes(Embedded(receipt=receipt, inventory=snapshot.rows)))]
    assert bytes_frame([snapshot])["bytes"].to_list() == written


def test_a_receipt_over_more_entries_is_longer_by_its_numbers_alone():
    sizes = bytes_frame([synthetic(100), synthetic(10_000)])
    short, long = sizes.filter(form="reference")["bytes"]
    assert long <= 1.01 * short
    assert sizes.filter(form="embedded")["bytes"][1] > 80 * sizes.filter(form="embedded")["bytes"][0]


def test_the_measured_file_of_the_notebook_holds_every_work_its_versions_and_every_bar():
    path = Path(__file__).parent.parent / "notebooks" / "figures" / "receipts_cpu.json"
    measured = json.loads(path.read_text(encoding="utf-8"))
    works = {row["work"] for row in measured["cpu"]}
    assert works == {"create", "create, lineage out", "join", "embedded", "durable"}
    assert set(measured["versions"]) == {"msgspec", "python"}
    assert len(measured["goals"]) == 8
    assert all(goal["rounds"] in (1, ROUNDS) for goal in measured["goals"])
    for goal in measured["goals"]:
        limit = float(goal["bar"].split()[1])
        assert goal["holds"] == (goal["ratio"] >= limit if ">" in goal["bar"] else goal["ratio"] <= limit)


def costs_of(*reference: int, cpu=()) -> pl.DataFrame:
    rows = [(10**number, form, size) for number, size in enumerate(reference, 2) for form, size in
            (("reference", size), ("embedded", 400 * 10**number))]  # fmt: skip
    return cost_frame(pl.DataFrame(rows, schema=BYTES, orient="row"), pl.DataFrame(cpu, schema=CPU, orient="row"))


def test_the_figure_says_that_the_line_is_flat_only_when_it_is():
    flat, grown = plot_receipts(costs_of(8_000, 8_010)), plot_receipts(costs_of(8_000, 9_000))
    assert flat.title.startswith(
        "A receipt that refers to its snapshot stays at 7.82 KiB from 100 to 1,000 visible entries"
    )
    assert grown.title.startswith("✗ A receipt that refers to its snapshot grows from 7.81 KiB to 8.79 KiB")


def test_the_figure_says_nothing_of_time_where_none_was_measured_and_never_leaves_out_the_cold_join():
    bare = plot_receipts(costs_of(8_000, 8_010))
    assert "CPU: not measured" in next(note.text for note in bare.figure.layout.annotations if note.name == "kicker")
    assert "CPU" not in bare.sentence
    cpu = [(1_000, "create", 18_000, 21), (1_000, "embedded", 780_000, 21), (1_000, "durable", 7_000_000, 3)]
    told = plot_receipts(costs_of(8_000, 8_010, cpu=cpu))
    assert "takes 43 times the CPU (780 µs against 18.0 µs); a cold join" in told.sentence
    assert "cold join" in {trace.name for trace in told.figure.data}
    assert told.table.filter(form="durable verification")["bytes"].to_list() == [None]


def test_equal_tables_give_equal_figures_in_both_modes():
    costs = costs_of(8_000, 8_010)
    for mode in ("light", "dark"):
        assert plot_receipts(costs, mode=mode).figure.to_json() == plot_receipts(costs, mode=mode).figure.to_json()
