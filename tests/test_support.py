"""Support labels. Each name is the promise."""

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from retrieval_cases import acts, airline, entry, snapshots, texts

from experiential_lab.metrics import ONE, token_f1
from experiential_lab.retrieval.index import build
from experiential_lab.retrieval.receipts import Query, query_of_entry
from experiential_lab.retrieval.support import Precedents, Support
from experiential_lab.retrieval.views import Act, View, act_of, snapshot_of

PAST = [
    entry(0, ("find", '{"id": 1}')),
    entry(1, ("book", '{"id": 1, "when": "now"}')),
    entry(2, "Could you give me your order number?"),
]


def support(act: Act, visible=(0, 1, 2), entries=PAST, similar_words="0.5") -> tuple[str, str]:
    keep = np.zeros(len(entries), bool)
    keep[list(visible)] = True
    return tuple(Precedents(entries).support(act, keep, similar_words=similar_words))


@pytest.mark.parametrize(
    ("tool", "arguments", "label"),
    [
        ("find", '{ "id": 1.0 }', "A"),
        ("find", '{"id": 2}', "B"),
        ("find", '{"name": 1}', "C"),
        ("find", "free text", "C"),
        ("cancel", '{"id": 1}', "D"),
    ],
)
def test_a_call_is_supported_by_the_same_call_its_argument_names_or_its_tool(tool, arguments, label):
    assert support(act_of(None, tool=tool, arguments=arguments)) == (label, "tool")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("could you give me\n YOUR order number?", "A"),
        ("give me the order number", "B"),
        ("which parcel is late", "C"),
        ("", "C"),
    ],
)
def test_a_message_is_supported_by_the_same_text_similar_words_or_any_answered_message(text, label):
    assert support(act_of(text)) == (label, "message")


def test_only_visible_entries_support():
    call, message = act_of(None, tool="find", arguments='{"id": 1}'), act_of("Could you give me your order number?")
    assert support(call, visible=(1, 2)) == ("D", "tool")
    assert support(message, visible=(0, 1)) == ("D", "message")
    assert support(call, visible=(), entries=[]) == ("D", "tool")


def test_the_threshold_is_met_when_it_is_reached_exactly():
    past = [entry(0, "a b c d")]
    assert token_f1("a b x y", "a b c d") == ONE // 2
    labels = [support(act_of("a b x y"), (0,), past, least)[0] for least in ("0.5", "0.500001", "0.6")]
    assert labels == ["B", "C", "C"]


def slow(act: Act, entries, least: Fraction) -> Support:
    """The table, read entry by entry."""
    if act.tool:
        for label, field, value in (
            ("A", "structure", act.structure),
            ("B", "shape", act.shape),
            ("C", "tool", act.tool),
        ):
            if any(getattr(each, field) == value for each in entries):
                return Support(label, "tool")
        return Support("D", "tool")
    said = [each for each in entries if not each.tool]
    if any(each.structure == act.structure for each in said):
        return Support("A", "message")
    if any(token_f1(act.text, dict(each.key)["action"]) >= least * ONE for each in said):
        return Support("B", "message")
    return Support("C" if said else "D", "message")


words = st.lists(st.sampled_from(["a", "b", "ab", "é", "1_", "x" * 9]), max_size=9).map(" ".join)


@settings(deadline=None, max_examples=150)
@given(snapshots(), st.one_of(acts, words), st.lists(words, max_size=6), st.sampled_from(["0.5", "0.25", "0.8"]))
def test_the_letter_is_that_of_the_table_read_entry_by_entry(snapshot, act, said, least):
    act = act_of(act) if isinstance(act, str) else act_of(None, tool=act[0], arguments=act[1])
    entries = [*snapshot.entries, *(entry(900 + i, text) for i, text in enumerate(said))]
    visible = [i for i in range(len(entries)) if i % 3]
    expected = slow(act, [entries[i] for i in visible], Fraction(least))
    assert support(act, visible, entries, least) == expected


def test_a_word_that_repeats_more_often_than_a_byte_can_count_is_counted():
    past = [entry(0, "no " * 600 + "a b c")]
    assert support(act_of("no " * 500 + "x y z"), (0,), past)[0] == "B"
    assert support(act_of("no " * 150), (0,), past)[0] == "C"


@settings(deadline=None, max_examples=30)
@given(snapshots(least=1), texts)
def test_the_letter_depends_neither_on_k_nor_on_what_is_searched_beside_the_action(snapshot, task):
    view = build(View(snapshot)).view("all")
    found = [view.nearest(Query(action="abc", task=t), k) for t, k in ((None, 1), (task, 1), (task, 9))]
    assert not view.count or len({(hits.support, hits.rule) for hits in found}) == 1


def test_law_2_on_real_traces_a_lineage_that_is_out_supports_nothing():
    entries = airline()
    index, some = build(View(snapshot_of(entries, {}))), entries[:: len(entries) // 40]
    for each in some:
        visible = [other for other in entries if each.lineages[0] not in other.lineages]
        hits = index.view("all", exclude=each.lineages).nearest(query_of_entry(each), 1)
        act = query_of_entry(each).act
        assert (hits.support, hits.rule) == slow(act, visible, Fraction(1, 2))
