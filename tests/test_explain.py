"""Explanations of a standing search: shares that sum, a ledger that sums, near-misses that change nothing; and law 2's peers."""

import ast
import math
import re
from collections import Counter
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from retrieval_cases import airline, desk, entry, exclusions, queries, snapshots, texts

from experiential_lab.bench import exclusion
from experiential_lab.records import IntegrityError, NoEvidence, Unverifiable, UsageError
from experiential_lab.retrieval.explain import (
    LEDGER,
    NEAR,
    REASONS,
    TOKENS,
    eligibility,
    near_misses,
    tokens,
    tokens_frame,
)
from experiential_lab.retrieval.index import Index, build, replay, search
from experiential_lab.retrieval.receipts import Query, join, query_of_entry, verify
from experiential_lab.retrieval.sparse import Channel, features
from experiential_lab.retrieval.views import Exclusion, Facts, View, snapshot_of

KINDS = (
    Channel(field="action", feature="gram5", weight=32, least=32),
    Channel(field="action", feature="word", weight=2),
    Channel(field="task", feature="word", weight=1, least=40),
    Channel(field="recent", feature="gram3", weight=1),
)
channels = st.sampled_from([None, KINDS])
levels = st.lists(exclusions, max_size=3)
bases = st.sampled_from(["fit", "all"])
PACKAGE = Path(__file__).parent.parent / "experiential_lab"


def index_of(*entries, kinds=None, **facts) -> Index:
    snapshot = snapshot_of(entries, {each.entry_id: Facts(split="fit", **facts) for each in entries})
    return build(View(snapshot), channels=kinds) if kinds else build(View(snapshot))


def built(snapshot, kinds=None) -> Index:
    return build(View(snapshot), channels=kinds) if kinds else build(View(snapshot))


@cache
def desk_index() -> Index:
    return built(snapshot_of(*desk()))


def shares(index, query, rank=1):
    view = index.view("all")
    return [(each.field, each.text, each.share) for each in tokens(view, query, view.nearest(query, 9)[rank - 1])]


# Tokens


@settings(max_examples=150)
@given(snapshots(least=1), levels, queries, channels)
def test_tokens_sum_exactly_to_every_part_and_to_the_score(snapshot, excluded, query, kinds):
    view = built(snapshot, kinds).view("all", exclude=excluded)
    hits = search(view, query, 12)
    assume(not isinstance(hits, Unverifiable))
    for hit in hits:
        found = tokens(view, query, hit)
        sums = Counter(dict.fromkeys(dict(hit.parts), 0))
        for token in found:
            sums[token.field] += token.share
        assert sums == dict(hit.parts)
        assert sum(token.share for token in found) == hit.score
        assert all(token.share > 0 for token in found)


@settings(max_examples=100)
@given(st.lists(st.text("abc d_é", max_size=20), min_size=2, max_size=6), st.text("abc d_é", max_size=20))
def test_the_share_of_a_word_is_that_of_the_definition(tasks, asked):
    kinds = (Channel(field="task", feature="word", weight=3),)
    view = index_of(*(entry(i, "a", task=task) for i, task in enumerate(tasks)), kinds=kinds).view("all")
    hits = search(view, Query(task=asked), 9)
    assume(not isinstance(hits, Unverifiable))
    bags = {each.entry_id: Counter(re.findall(r"\w+", dict(each.key)["task"])) for each in view.entries}
    average = max(1, sum(bag.total() for bag in bags.values()) // len(bags))
    pivot = average >> max(0, average.bit_length() - 3) << max(0, average.bit_length() - 3)
    for hit in hits:
        bag, expected = bags[hit.row.entry_id], {}
        for word, times in Counter(re.findall(r"\w+", asked)).items():
            df, norm = sum(word in other for other in bags.values()), 1.2 * (0.25 + 0.75 * (bag.total() / pivot))
            bits = math.floor(32 * math.log2((2 * len(bags) + 2) / (2 * df + 1)) + 1e-9) if bag[word] else 0
            if bits > 0:
                expected[word] = 3 * times * bits * math.floor(255 * bag[word] / (bag[word] + norm) + 0.5)
        assert {token.text: token.share for token in tokens(view, Query(task=asked), hit)} == expected


def test_windows_that_overlap_are_one_run_of_the_text_and_others_are_apart():
    index = index_of(entry(0, "Refund A-1093, please"), *(entry(n, f"no. {n}") for n in range(1, 9)))
    found = shares(index, Query(action="give back a-1093 or refund"))
    assert [text for _, text, _ in found] == [" A-1093", "Refund"]
    assert found[0][2] > found[1][2] > 0


def test_a_run_at_the_beginning_or_end_of_the_text_holds_no_frame():
    index = index_of(entry(0, "x"), *(entry(n, "no") for n in range(1, 9)))
    assert [(field, text) for field, text, _ in shares(index, Query(action="X"))] == [("action", "x")]


def test_a_window_that_stands_three_times_is_split_and_the_first_take_the_remainder():
    kinds = (Channel(field="action", feature="gram5", weight=1),)
    index = index_of(entry(0, "abcde 1 abcde 2 abcde"), *(entry(n, "no") for n in range(1, 10)), kinds=kinds)
    found = shares(index, Query(action="-abcde-"))
    whole = sum(share for _, _, share in found)
    assert whole % 3
    assert found == [("action", "abcde", whole // 3 + (place < whole % 3)) for place in range(3)]


def test_a_word_is_told_once_as_the_entry_first_spells_it_with_its_whole_share():
    index = index_of(entry(0, "a", task="Order ORDER order"), *(entry(n, "no") for n in range(1, 9)))
    view = index.view("all")
    (token,) = tokens(view, Query(task="my order"), view.nearest(Query(task="my order"), 1)[0])
    assert (token.text, token.start, token.end, token.feature) == ("Order", 0, 5, "word")


@given(st.text("aİßé日 Z1", min_size=5, max_size=30), st.integers(0, 25), st.integers(5, 12))
def test_a_run_stands_at_its_place_and_holds_what_was_asked_whatever_the_folding(text, start, length):
    index = index_of(entry(0, text), *(entry(n, "____") for n in range(1, 9)))
    view, query = index.view("all"), Query(action=text[start : start + length])
    hits = search(view, query, 1)
    assume(not isinstance(hits, Unverifiable) and hits[0].score)
    runs = tokens(view, query, hits[0])
    assert all(run.text == text[run.start : run.end] for run in runs)
    asked = query.action.casefold()
    assert len(asked.encode()) < 5 or any(asked in run.text.casefold() for run in runs)


@given(st.text("abc", min_size=5, max_size=30))
def test_the_features_of_one_text_come_in_order_of_place(text):
    """A window of letters and a word of the same letters have one hash: so the order can be seen."""
    inner = features([text], "gram5")[1].tolist()[2:-2]
    assert inner == [int(features([text[i : i + 5]], "word")[1][0]) for i in range(len(text) - 4)]


def test_no_part_of_a_secret_is_shown():
    secret = "sk-" + "Ab3dEf6hIj" * 3
    said = f"use {secret} for order 12345"
    index = index_of(entry(0, said, task=said), *(entry(n, "no") for n in range(1, 9)))
    query = Query(action=f"order 12345, {secret[2:]}", task=f"{secret[3:]} order")
    view = index.view("all")
    hit = view.nearest(query, 1)[0]
    shown = [token.text for token in tokens(view, query, hit)]
    assert shown.count("[masked]") == 2
    assert "order 12345" in shown
    assert not any(part in text for text in shown for part in (secret[4:9], secret[10:15]))


def test_the_recent_of_a_query_counts_as_far_as_it_is_searched():
    index = index_of(entry(0, "go", recent="zebra " * 400), *(entry(n, "no") for n in range(1, 9)))
    view, query = index.view("all"), Query(action="go", recent="zebra " * 500)
    hit = view.nearest(query, 1)[0]
    assert sum(token.share for token in tokens(view, query, hit)) == hit.score


def test_a_hit_of_another_query_or_view_is_refused_with_both_values():
    index = desk_index()
    query = query_of_entry(index.snapshot.entries[2])
    hit = index.view("all").nearest(query, 1)[0]
    with pytest.raises(IntegrityError, match=f"the hit says score {hit.score} .* this view and query give"):
        tokens(index.view("all"), Query(action="another"), hit)
    with pytest.raises(IntegrityError, match="or may not see it"):
        tokens(index.view("all", exclude={hit.row.lineages[0]}), query, hit)
    other = msgspec.structs.replace(hit, row=msgspec.structs.replace(hit.row, entry_id="x/0009"))
    with pytest.raises(IntegrityError, match=f"the hit is x/0009 .* the view has {hit.row.entry_id} there"):
        tokens(index.view("all"), query, other)
    with pytest.raises(IntegrityError, match="the view has nothing there"):
        tokens(index_of(entry(0, "a")).view("all"), query, msgspec.structs.replace(hit, position=7))


def test_a_tokens_frame_has_one_schema_even_when_nothing_is_shared():
    index = index_of(entry(0, "abc"))
    view, query = index.view("all"), Query(action="xyz")
    frame = tokens_frame(tokens(view, query, view.nearest(query, 1)[0]))
    assert (frame.height, dict(frame.schema)) == (0, TOKENS)


def test_the_hits_of_real_steps_are_told_whole():
    made = airline()[::6]
    index = index_of(*made)
    for step in made[:: len(made) // 12]:
        view, query = index.view("all", exclude=set(step.lineages)), query_of_entry(step)
        for hit in view.nearest(query, 3):
            assert sum(token.share for token in tokens(view, query, hit)) == hit.score


# The ledger


@given(snapshots(least=1), levels, bases)
def test_every_row_ends_once_and_the_counts_sum_to_the_snapshot(snapshot, excluded, base):
    index = built(snapshot)
    assume(base == "all" or snapshot.fit.rows)
    found = eligibility(index, excluded, base=base)
    assert sum(found.counts.values()) == found.frame.height == len(snapshot.rows)
    assert list(found.counts) == ["eligible", *REASONS]
    assert found.counts["eligible"] == index.view(base, exclude=excluded).count
    assert dict(Counter(found.frame["reason"])) == {name: n for name, n in found.counts.items() if n}
    assert found.frame["entry_id"].to_list() == [row.entry_id for row in snapshot.rows]


@given(snapshots(least=1), levels, bases)
def test_the_reason_is_the_first_that_applies_and_all_are_listed(snapshot, excluded, base):
    assume(base == "all" or snapshot.fit.rows)
    frame = eligibility(built(snapshot), excluded, base=base).frame
    for row, told in zip(snapshot.rows, frame.iter_rows(named=True), strict=True):
        values = {
            "entry": {row.entry_id},
            "trace": {row.trace_id},
            "lineage": set(row.lineages),
            "family": {row.family} - {""},
            "structure": {row.structure},
            "observation_kind": {row.observation_kind},
        }
        out = [level for level in values if any(e.level == level and e.value in values[level] for e in excluded)]
        out += ["split"] if base == "fit" and row.split != "fit" else []
        out += ["invalidated"] if row.invalidated else []
        assert told["reasons"] == out
        assert told["reason"] == (out[0] if out else "eligible")


def test_a_ledger_says_its_counts_in_words_and_takes_a_lineage_by_name():
    found = eligibility(desk_index(), ["L01"])
    assert found.sentence == (
        "Of 120 rows, 75 are eligible; left out: 11 lineage, 32 split, 2 invalidated; the sum holds."
    )
    assert dict(found.frame.schema) == LEDGER
    assert eligibility(index_of(entry(0, "a")), ["L0"]).sentence == (
        "Of 1 row, 0 are eligible; left out: 1 lineage; the sum holds."
    )


def test_a_ledger_that_does_not_sum_says_so():
    found = eligibility(desk_index(), base="all")
    wrong = found._replace(counts=found.counts | {"family": 1})
    assert found.sentence == "Of 120 rows, 117 are eligible; left out: 3 invalidated; the sum holds."
    assert wrong.sentence.endswith("1 family, 3 invalidated; ✗ the sum does not hold.")


def test_what_a_view_refuses_a_ledger_refuses():
    with pytest.raises(UsageError, match="no lineage of the index is called 'L99'"):
        eligibility(desk_index(), ["L99"])
    with pytest.raises(UsageError, match="exclude is the text 'L01'"):
        eligibility(desk_index(), "L01")
    with pytest.raises(NoEvidence, match="no entry is marked fit"):
        eligibility(built(snapshot_of([entry(0, "a")], {})))


# Near-misses


@settings(max_examples=150)
@given(snapshots(least=1), levels, queries, st.integers(1, 4), st.integers(0, 3), bases)
def test_near_misses_are_what_was_left_out_above_the_last_hit_of_a_whole_search(s, excluded, query, k, most, base):
    index = built(s)
    assume(base == "all" or s.fit.rows)
    view = index.view(base, exclude=excluded)
    hits = search(view, query, k)
    assume(not isinstance(hits, Unverifiable))
    ranking = [hit.row.entry_id for hit in search(index.view("all"), query, 99)]
    seen = {row.entry_id for row in view.plain.rows}
    expected = [name for name in ranking[: ranking.index(hits[-1].row.entry_id)] if name not in seen]
    found = near_misses(index, hits, most=most)
    assert [row.entry.entry_id for row in found.out] == expected[:most]
    assert found.more == len(expected[most:])
    assert [(row.entry.entry_id, row.rank, row.score) for row in found.rows if row.rank] == [
        (hit.row.entry_id, hit.rank, hit.score) for hit in hits
    ]


@given(snapshots(least=1), levels, queries)
def test_the_second_search_has_a_receipt_of_its_own_and_changes_nothing_of_the_first(snapshot, excluded, query):
    index = built(snapshot)
    view = index.view("all", exclude=excluded)
    hits = search(view, query, 2)
    assume(not isinstance(hits, Unverifiable))
    found = near_misses(index, hits)
    verify(found.whole.receipt)
    join(found.whole.receipt, index.snapshot)
    replay(found.whole.receipt, index)
    assert found.whole.receipt.visibility.excluded == ()
    assert found.whole.receipt.k >= 2
    assert {row.entry.entry_id for row in found.out} <= {hit.row.entry_id for hit in found.whole}
    assert search(view, query, 2).receipt == search(built(snapshot).view("all", exclude=excluded), query, 2).receipt
    assert found.hits.receipt == hits.receipt


def test_every_kin_of_a_step_is_told_and_the_nearest_word_wins():
    step = ("find", '{"a": "12345"}')
    other = ("find", '{"a": "12346"}')
    made = [
        entry(0, step, "right", ["L0"], trace_id="t0"),
        entry(1, step, "right", ["L0"], trace_id="t0"),
        entry(2, step, "wrong", ["L0"], trace_id="t1"),
        entry(3, step, "wrong", ["L1"], trace_id="t2"),
        entry(4, step, "right", ["L2"], trace_id="t3"),
        entry(5, other, "wrong", ["L2"], trace_id="t3"),
    ]
    facts = {each.entry_id: Facts(family="g" if each.lineages == ("L2",) else "f") for each in made}
    index = built(snapshot_of(made, facts))
    out = (Exclusion(level="family", value="f"), Exclusion(level="structure", value=made[0].structure[:16]))
    found = near_misses(index, index.view("all", exclude=out).nearest(query_of_entry(made[0]), 5), step="t0/0000")
    told = {row.entry.entry_id: (row.shown_rank, row.relation, row.same_observation) for row in found.rows}
    assert told == {
        "t0/0001": ("out", "own trace", True),
        "t1/0002": ("out", "conversation", False),
        "t2/0003": ("out", "family", False),
        "t3/0004": ("out", "identical call", True),
        "t3/0005": ("1", "other task", False),
    }
    assert found.sentence == "4 left-out entries rank above the last hit."


def test_without_a_step_only_an_identical_call_is_known():
    index = desk_index()
    asked = next(each for each in index.snapshot.entries if each.tool)
    found = near_misses(index, index.view("all", exclude={"L01"}).nearest(query_of_entry(asked), 3))
    assert {row.relation for row in found.rows} <= {"identical call", None}
    assert {row.same_observation for row in found.rows} == {None}


def test_what_is_not_shown_is_counted_in_words():
    made = [entry(n, "same words here", lineages=[f"L{int(n > 0)}"]) for n in range(8)]
    index = index_of(*made)
    hits = index.view("all", exclude={"L0"}).nearest(query_of_entry(made[0]), 1)
    assert near_misses(index, hits, most=0).sentence == (
        "0 near-misses are shown; 1 more left-out entry ranks above the last hit."
    )
    assert near_misses(index, hits, step="t0/0000").sentence == "No left-out entry ranks above the last hit."
    again = [entry(n, "same words here", lineages=[f"L{int(n > 6)}"]) for n in range(8)]
    index = index_of(*again)
    hits = index.view("all", exclude={"L0"}).nearest(query_of_entry(again[0]), 1)
    assert near_misses(index, hits).sentence == (
        "4 near-misses are shown; 3 more left-out entries rank above the last hit."
    )


def test_a_held_out_row_is_a_near_miss_of_the_fit_view():
    made = [entry(0, "alpha beta", lineages=["L0"]), entry(1, "alpha gamma", lineages=["L1"])]
    facts = {"t0/0000": Facts(split="held_out"), "t0/0001": Facts(split="fit")}
    index = built(snapshot_of(made, facts))
    found = near_misses(index, index.view("fit").nearest(Query(action="alpha beta"), 1))
    assert [row.entry.entry_id for row in found.out] == ["t0/0000"]


def test_a_near_frame_has_the_columns_of_the_microscope_and_masks_what_it_shows():
    secret = "AKIA" + "ABCDEFGHIJKLMNOP"
    made = [entry(0, f"say {secret}", f"got {secret}", ["L0"]), entry(1, "say it", "ok", ["L1"])]
    index = index_of(*made)
    frame = near_misses(index, index.view("all", exclude={"L0"}).nearest(query_of_entry(made[0]), 1)).frame()
    assert dict(frame.schema) == NEAR
    assert frame.select("rank", "eligible", "action", "observation").rows() == [
        (None, False, "say [AWS key id]", "got [AWS key id]"),
        (1, True, "say it", "ok"),
    ]


def test_hits_of_another_snapshot_an_unknown_step_and_a_negative_number_are_refused():
    index, other = desk_index(), index_of(entry(0, "a"))
    hits = index.view("all").nearest(Query(action="a"), 1)
    with pytest.raises(IntegrityError, match=f"{index.snapshot.digest}, the index has {other.snapshot.digest}"):
        near_misses(other, hits)
    with pytest.raises(NoEvidence, match="x/0009 is no entry of the index"):
        near_misses(index, hits, step="x/0009")
    with pytest.raises(UsageError, match="most is -1"):
        near_misses(index, hits, most=-1)


def test_no_search_and_no_session_can_reach_what_explains_them():
    who = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("experiential_lab.retrieval.explain")
    ]
    assert not [name for name in who if name.split("/")[0] in ("retrieval", "world", "evaluation")]


# Law 2 and its peers


@given(st.lists(st.tuples(texts, st.sampled_from(["L0", "L1", "L2", "L3"])), min_size=1, max_size=8), texts)
@settings(max_examples=30)
def test_nothing_that_is_left_out_comes_back_from_a_filter_of_sqlite_and_k_does_not_shrink(rows, asked):
    made = [entry(n, text, lineages=[lineage]) for n, (text, lineage) in enumerate(rows)]
    visible = [each for each in made if each.lineages != ("L0",)]
    found = exclusion.where(made)(Query(action=asked), frozenset({"L0"}))
    rebuilt = exclusion.where(visible)(Query(action=asked), frozenset())
    assert {name for name, _ in found} == {name for name, _ in rebuilt} or len(rebuilt) == exclusion.K


def test_a_view_changes_no_list_and_every_filter_over_finished_statistics_changes_some():
    entries, _ = desk(88)
    table = exclusion.compare(entries, {each.entry_id: query_of_entry(each) for each in entries})
    told = {(row["left_out"], row["ranker"]): row for row in table.iter_rows(named=True)}
    for case, lists in (("one lineage", 88), ("30 % of lineages", 24)):
        assert [row["lists"] for (name, _), row in told.items() if name == case] == [lists] * 4
        ours = told[case, "view"]
        assert (ours["list_differs"], ours["scores_differ"], ours["shorter"]) == (0, 0, 0)
        assert min(told[case, ranker]["list_differs"] for ranker in ("weight mask", "where")) > 0
        assert [told[case, ranker]["shorter"] > 0 for ranker in exclusion.RANKERS] == [False, False, True, False]
    finding = exclusion.plot_compared(table)
    assert finding.title.endswith("of 88 top-10 lists; a view that counts anew changes none")
    assert finding.figure.layout.meta["title"] == finding.title


def test_too_few_lineages_are_no_comparison():
    with pytest.raises(NoEvidence, match="1 lineage: 4 or more"):
        exclusion.cases([entry(0, "a")])
