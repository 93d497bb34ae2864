"""Lineages and families: what must be kept apart together, found exactly, and named alike in any order."""

import itertools
from fractions import Fraction
from pathlib import Path

import hypothesis.strategies as st
import pytest
from evidence_cases import DATA, asks, chat, lines, read, says
from hypothesis import example, given

from experiential_lab.evidence.lineage import families_of, lineages_of, near_duplicates, opening_key, shingles, sweep
from experiential_lab.evidence.trace import Event, Trace
from experiential_lab.records import Span, digest_of

NINE_TENTHS = Fraction(9, 10)
sentences = st.lists(st.sampled_from("abcd"), max_size=9).map(" ".join)
thresholds = st.fractions(min_value=Fraction(1, 20), max_value=1, max_denominator=20)


def trace(ident: str, *keys: str, task: str | None = None, statement: str | None = None) -> Trace:
    source = digest_of(b"a source")
    return Trace(trace_id=ident, source=source, format="f", keys=keys, task=task, statement=statement, events=())


drawn = st.lists(
    st.tuples(st.lists(st.sampled_from(["s:1", "s:2", "t:1", "t:2", "p:1"]), max_size=2), st.none() | sentences),
    min_size=1,
    max_size=8,
).map(lambda some: [trace(f"t{at}", *keys, task=task) for at, (keys, task) in enumerate(some)])


@given(drawn, st.randoms(use_true_random=False), thresholds)
def test_law_11_the_order_of_traces_changes_no_lineage_and_no_family(traces, random, threshold):
    shuffled = random.sample(traces, len(traces))
    lineages = lineages_of(traces)
    assert lineages_of(shuffled) == lineages
    assert families_of(shuffled, lineages, threshold) == families_of(traces, lineages, threshold)


@given(drawn)
def test_two_traces_share_a_lineage_exactly_when_a_chain_of_shared_keys_joins_them(traces):
    groups = [{each.trace_id, *each.keys} for each in traces]
    for _ in traces:
        groups = [set().union(*(other for other in groups if other & group)) for group in groups]
    lineages = lineages_of(traces)
    for one, other in itertools.combinations(traces, 2):
        joined = any({one.trace_id, other.trace_id} <= group for group in groups)
        assert (lineages[one.trace_id] == lineages[other.trace_id]) == joined


def test_a_trace_without_keys_is_a_lineage_of_its_own():
    assert len(set(lineages_of([trace("a"), trace("b"), trace("c", "s:1")]).values())) == 3


@given(st.lists(sentences, max_size=12, unique=True), thresholds)
@example(["a b c", "a b c d"], Fraction(1, 2))
@example(["", "a", "a b"], Fraction(1))
def test_near_duplicates_are_exactly_the_pairs_that_comparing_all_of_them_finds(texts, threshold):
    found = [(one, other) for one, other, _ in near_duplicates(texts, threshold)]
    every = {
        frozenset((one, other))
        for one, other in itertools.combinations(texts, 2)
        if Fraction(len(shingles(one) & shingles(other)), len(shingles(one) | shingles(other))) >= threshold
    }
    assert {frozenset(pair) for pair in found} == every
    assert len(found) == len(every)


def test_a_pair_at_the_very_threshold_is_near_and_below_it_is_not():
    one, other = "a b c d e f g h i j k", "a b c d e f g h i j k l"  # 9 of 10 shingles
    assert near_duplicates([one, other], NINE_TENTHS) == [(one, other, NINE_TENTHS)]
    assert near_duplicates([one, other], NINE_TENTHS + Fraction(1, 10**9)) == []
    assert near_duplicates([one, other], Fraction(1)) == []
    assert near_duplicates([one, other], Fraction(1, 10**9)) == [(one, other, NINE_TENTHS)]


def test_a_short_text_is_one_shingle_and_words_ignore_case_and_signs():
    assert shingles("Hello") == {"hello"}
    assert shingles("a b c d") == {"a b c", "b c d"}
    assert shingles("???") == {"???"}
    assert shingles("Straße, ÉTÉ! 2nd_try") == {"strasse été 2nd_try"}


def families(*traces: Trace, threshold: Fraction = NINE_TENTHS) -> list[str]:
    lineages = lineages_of(traces)
    found = families_of(traces, lineages, threshold)
    return [found[lineages[each.trace_id]] for each in traces]


def test_equal_tasks_are_one_family_whatever_their_case_signs_and_spaces():
    one, two, three = families(
        trace("a", task="Book a BOAT!"), trace("b", task="book a  boat"), trace("c", task="book a cab")
    )
    assert one == two != three


def test_a_chain_of_near_duplicates_is_one_family():
    text = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    chain = [trace(f"{at}", task=" ".join(text[at : at + 7])) for at in range(3)]
    assert len(set(families(*chain, threshold=Fraction(2, 3)))) == 1
    assert len(set(families(chain[0], chain[2], threshold=Fraction(2, 3)))) == 2


def test_lineages_in_one_family_bring_all_their_traces():
    one, other, third = families(
        trace("a", "s:1", task="water the peas"),
        trace("b", "s:1", task="feed the hens"),
        trace("c", task="feed the hens"),
    )
    assert one == other == third


def test_the_declared_statement_counts_before_the_first_request():
    one, other = families(
        trace("a", task="hi", statement="book a boat"), trace("b", task="hi", statement="sell a boat")
    )
    assert one != other


@pytest.mark.parametrize("task", [None, "", "  "])
def test_traces_without_a_task_are_not_near_duplicates_of_each_other(task: str | None):
    assert len(set(families(trace("a", task=task), trace("b", task=task)))) == 2


def event(kind: str, text: str, **more: object) -> Event:
    span = Span(source="s", offset=0, size=1, end=len(text), quote="q")
    return Event(kind=kind, turn="1", span=span, text=text, **more)  # type: ignore[arg-type]


def test_the_opening_is_three_messages_without_system_text_reasoning_and_copies():
    opening = [event("task", "q"), event("text", "a"), event("user", "b")]
    noise = [event("context", "sys"), event("reasoning", "hm"), event("control", "c"), event("boundary", "x")]
    copies = [event("task", "q", aside="replayed_history"), event("text", "z", aside="duplicate_view")]
    key = opening_key(opening)
    assert key == opening_key([*noise, *copies, *opening, event("text", "more")])
    assert key != opening_key([opening[0], event("text", "other"), opening[2]])
    assert opening_key(opening[:2]) is opening_key([*noise, *copies]) is None


def test_a_growing_history_and_the_whole_conversation_have_one_opening():
    whole = [asks("q"), says("a"), asks("b"), says("c")]
    growing = [chat(*whole[:size], conversation="x") for size in (1, 2, 3, 4)]
    (one,), (other,) = (read(lines(*some)).imported.traces for some in (growing, [chat(*whole)]))
    assert opening_key(one.events) == opening_key(other.events) is not None


def test_a_lineage_is_a_task_with_all_its_trials():
    traces = read((DATA / "tau_bench.json").read_bytes()).imported.traces
    lineages = lineages_of(traces)
    assert [lineages[each.trace_id] == lineages[traces[0].trace_id] for each in traces] == [True, True, False]


def test_task_3_of_one_benchmark_is_not_task_3_of_another():
    one, other = (chat(asks(f"{each}?"), says("a"), metadata={"task_id": 3, "statement": each}) for each in ("x", "y"))
    traces = read(lines(one, other)).imported.traces
    assert len(set(lineages_of(traces).values())) == 2


def test_the_airline_file_has_50_lineages_of_4_trials(airline: Path):
    traces = read(airline.read_bytes()).imported.traces
    lineages = list(lineages_of(traces).values())
    assert len(set(lineages)) == 50
    assert {lineages.count(each) for each in lineages} == {4}


@given(
    st.lists(st.sampled_from(["a b c d e f g", "a b c d e f h", "a b c x y z", "x y z", "q"]), min_size=1, max_size=6)
)
def test_a_sweep_gives_at_each_threshold_what_that_threshold_alone_gives(tasks):
    traces = [trace(f"t{at}", task=task) for at, task in enumerate(tasks)]
    lineages = lineages_of(traces)
    thresholds = [Fraction(tenths, 10) for tenths in range(3, 11)]
    for threshold, families in sweep(traces, lineages, thresholds):
        assert families == families_of(traces, lineages, threshold)
