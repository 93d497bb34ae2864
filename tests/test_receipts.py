"""Receipts: what each check finds, and what it leaves to the next. Each name is the promise."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from retrieval_cases import desk, query_of

from experiential_lab.records import IntegrityError, Unverifiable, canonical_bytes, digest_of
from experiential_lab.retrieval import receipts
from experiential_lab.retrieval.index import Index, build, load, replay, save
from experiential_lab.retrieval.receipts import (
    Consistent,
    Consumer,
    Joined,
    Query,
    RetrievalReceipt,
    join,
    seal,
    verify,
    verify_durable,
    verify_use,
)
from experiential_lab.retrieval.views import Exclusion, Snapshot, View, snapshot_of
from experiential_lab.store import Store

ONLY_REPLAY = re.compile(
    r"query\..*|retriever\..*|attributes\..*|results\.\d+\.(snippet|reasons\..*|parts\.\d+\.0)|results\.\d+\.score\+parts"
)
"""What may be consistent and false after `join`; each is found by asking again."""


@dataclass
class Case:
    index: Index
    store: Store
    receipt: RetrievalReceipt

    @property
    def snapshot(self) -> Snapshot:
        return self.index.snapshot


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """A receipt of a fit view without one lineage, from an index that was saved and loaded."""
    store = Store.open(tmp_path / "lab", create=True)
    index = load(store, save(build(View(snapshot_of(*desk()))), store, {}))
    asked = msgspec.structs.replace(query_of(index.snapshot.entries[40]), action="")
    excluded = ["L02", Exclusion(level="trace", value="t1"), Exclusion(level="observation_kind", value="user_reply")]
    return Case(index, store, index.view("fit", exclude=excluded).nearest(asked, 4).receipt)


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


def mutated(data: bytes, place) -> bytes:
    """The receipt's JSON with one leaf made another value of its type."""
    whole = json.loads(data)
    inner = whole
    for key in place[:-1]:
        inner = inner[key]
    old = inner[place[-1]]
    digits = isinstance(old, str) and re.fullmatch(r"(sha256:)?[0-9a-f]{16,64}", old)
    swap = (old[:-1] + ("0" if old[-1] != "0" else "1")) if digits else "forged" if isinstance(old, str) else None
    inner[place[-1]] = (not old) if isinstance(old, bool) else old + 1 if isinstance(old, int) else swap or [1]
    return json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_a_receipt_with_any_leaf_changed_is_refused(case):
    data = canonical_bytes(case.receipt)
    places = list(paths(json.loads(data)))
    assert len(places) > 100
    for place in places:
        with pytest.raises(IntegrityError):
            verify(mutated(data, place))


def test_a_receipt_with_any_leaf_changed_and_its_digest_made_anew_is_found_by_join_or_else_by_replay(case):
    data, only_replay = canonical_bytes(case.receipt), set()
    for place in paths(json.loads(data)):
        if place == ("receipt_digest",):
            continue
        try:
            forged = seal(msgspec.json.decode(mutated(data, place), type=RetrievalReceipt))
            join(forged, case.snapshot)
        except (IntegrityError, msgspec.ValidationError):
            continue
        only_replay.add(".".join(map(str, place)))
        with pytest.raises(IntegrityError):
            replay(forged, case.index)
    assert only_replay
    assert {place for place in only_replay if not ONLY_REPLAY.fullmatch(place)} == set()


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


def test_a_use_belongs_to_one_rank_of_one_retrieval(case):
    used = receipts.use(case.receipt, 2, relation="supports", consumer=Consumer(kind="prompt", digest=digest_of(b"p")))
    assert verify_use(used, case.receipt) == Consistent(receipt=used.receipt_digest)
    other = case.index.view("fit").nearest(Query(action="hello"), 4).receipt
    with pytest.raises(IntegrityError, match="retrieval receipt"):
        verify_use(used, other)
    for field, value, what in (("rank", 3, "entry of rank 3"), ("content", digest_of(b""), "content of rank 2")):
        with pytest.raises(IntegrityError, match=what):
            verify_use(seal(msgspec.structs.replace(used, **{field: value})), case.receipt)


def test_a_use_with_any_leaf_changed_is_refused(case):
    used = receipts.use(case.receipt, 1, relation="contradicts", consumer=Consumer(kind="prompt", uri="a"))
    left = receipts.no_use(case.receipt, 2, reason="prompt_budget")
    for data in (canonical_bytes(used), canonical_bytes(left)):
        for place in paths(json.loads(data)):
            with pytest.raises(IntegrityError):
                verify(mutated(data, place))


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
