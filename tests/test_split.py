"""The split: whole families, ranked by a seed, sticky when evidence grows, and refused where it would be a pretence."""

from fractions import Fraction
from hashlib import sha256
from pathlib import Path

import hypothesis.strategies as st
import pytest
from evidence_cases import asks, chat, lines, read, says
from hypothesis import given

from experiential_lab.evidence.lineage import families_of, lineages_of
from experiential_lab.evidence.report import import_files
from experiential_lab.evidence.split import (
    LineageTable,
    current_split,
    make_split,
    ratio,
    remake_split,
    split_families,
)
from experiential_lab.evidence.trace import Trace
from experiential_lab.records import NoEvidence, UsageError, canonical_bytes, digest, digest_of
from experiential_lab.store import Store

WORDS = [
    "amber",
    "birch",
    "cedar",
    "dune",
    "elm",
    "fern",
    "gorse",
    "heath",
    "iris",
    "juniper",
    "kelp",
    "larch",
    "moss",
    "nettle",
    "oak",
    "pine",
]


def trace(ident: str, *keys: str, task: str | None = None) -> Trace:
    return Trace(
        trace_id=ident, source=digest_of(b"s"), format="f", keys=keys, task=task or f"{ident} alone", events=()
    )


def traces(*names: str) -> list[Trace]:
    return [trace(name) for name in names]


def sides(table: LineageTable) -> dict[str, str]:
    return {row.trace_id: row.split for row in table.rows}


def held_out(table: LineageTable) -> set[str]:
    return {row.trace_id for row in table.rows if row.split == "held_out"}


@given(
    st.integers(2, 16),
    st.integers(0, 9),
    st.fractions(min_value=Fraction(1, 50), max_value=Fraction(49, 50), max_denominator=50),
)
def test_the_share_of_families_with_the_least_digests_of_seed_and_family_is_held_out(
    count: int, seed: int, share: Fraction
):
    some = traces(*WORDS[:count])
    table = split_families(some, held_out=str(share), seed=seed)
    names = {row.trace_id: row.family for row in table.rows}
    ranked = sorted(names, key=lambda ident: sha256(f"{seed}:{names[ident]}".encode()).digest())
    wanted = max(1, min(count - 1, int(share * count + Fraction(1, 2))))
    assert held_out(table) == set(ranked[:wanted])
    assert [row.trace_id for row in table.rows] == sorted(names)


def test_the_same_inputs_give_the_same_table_in_any_order_and_another_seed_another_one():
    some = traces(*WORDS)
    table = split_families(some, seed=1)
    assert canonical_bytes(split_families(some[::-1], seed=1)) == canonical_bytes(table)
    assert held_out(split_families(some, seed=2)) != held_out(table)
    assert digest(table) != digest(split_families(some, seed=1, threshold="0.8"))


@given(
    st.lists(
        st.sampled_from(["book a boat", "sell a boat", "water the peas", "feed the hens"]), min_size=4, max_size=12
    ),
    st.integers(0, 5),
)
def test_a_family_is_never_on_both_sides(tasks: list[str], seed: int):
    some = [trace(f"t{at}", *(["s"] if at < 2 else []), task=task) for at, task in enumerate([*tasks, "one more"])]
    try:
        table = split_families(some, seed=seed)
    except NoEvidence:
        return
    assert len({row.family for row in table.rows}) == len({(row.family, row.split) for row in table.rows})
    assert {row.split for row in table.rows} == {"fit", "held_out"}


@pytest.mark.parametrize("some", [[], traces("one"), [trace("a", "s"), trace("b", "s"), trace("c", "s")]])
def test_fewer_than_two_families_cannot_be_split(some: list[Trace]):
    with pytest.raises(NoEvidence, match=r"Cannot split: [01] family, needs 2"):
        split_families(some)


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.1, "no", "nan", "inf", "1/0", None, ""])
def test_a_share_is_a_number_between_0_and_1(value: object):
    with pytest.raises(UsageError, match="the held-out share must be"):
        split_families(traces("a", "b"), held_out=value)  # type: ignore[arg-type]


def test_a_threshold_may_be_1_and_is_exact():
    assert ratio("1", "x", at_most_one=True) == 1
    assert ratio(0.1, "x", at_most_one=True) == Fraction(1, 10)
    with pytest.raises(UsageError, match="the threshold must be above 0 and at most 1, got 0"):
        split_families(traces("a", "b"), threshold=0)


def test_known_traces_keep_their_side_when_evidence_grows():
    before = split_families(traces(*WORDS[:6]), held_out="0.5")
    after = split_families(traces(*WORDS), held_out="0.5", earlier=before)
    assert sides(after) | sides(before) == sides(after)
    assert len(held_out(after)) == 8
    assert after.united == ()


def test_no_more_is_held_out_while_enough_is():
    before = split_families(traces(*WORDS[:4]), held_out="0.5")
    after = split_families(traces(*WORDS[:5]), held_out="0.3", earlier=before)
    assert held_out(after) == held_out(before)


def test_a_family_that_gains_a_held_out_member_is_held_out_whole_and_named():
    before = split_families(traces("a", "b", "c"), held_out="0.3")
    (out,) = held_out(before)
    fit = next(ident for ident in "abc" if ident != out)
    bridge = [trace("d", "k1", "k2")]
    some = [trace(each, *({out: ["k1"], fit: ["k2"]}.get(each, []))) for each in "abc"]
    after = split_families([*some, *bridge], held_out="0.3", earlier=before)
    assert held_out(after) == {out, fit, "d"}
    assert after.united == (lineages_of([*some, *bridge])[fit],)


def test_a_near_duplicate_that_arrives_later_takes_the_side_of_its_family():
    before = split_families([trace(each, task=f"{each} {each} {each} {each}") for each in WORDS[:4]], held_out="0.5")
    again = [trace(each, task=f"{each} {each} {each} {each}") for each in WORDS[:4]]
    copies = [trace(f"{each}2", task=f"{each}, {each}, {each}, {each}!") for each in WORDS[:4]]
    after = sides(split_families([*again, *copies], held_out="0.5", earlier=before))
    assert all(after[f"{each}2"] == after[each] for each in WORDS[:4])


def test_the_summary_counts_families_and_their_sides():
    summary = split_families([trace("a", "s"), trace("b", "s"), trace("c"), trace("d")], held_out="0.3").summary()
    assert summary == {
        "families": 3,
        "lineages": 3,
        "fit": 2,
        "held_out": 1,
        "largest_family_share": 0.5,
        "threshold": 0.9,
        "traces": 4,
        "united": [],
        "trace_level_leak": {"held_out_traces": 2, "with_family_in_fit": 1},
        "warnings": [],
    }


def test_a_family_of_more_than_half_of_the_traces_is_warned_of():
    table = split_families([trace(name, "s") for name in "abc"] + [trace("d")])
    assert [warning[:31] for warning in table.summary()["warnings"]] == ["one family holds 75% of the tra"]


def test_a_split_by_single_traces_would_leak_the_trials_of_a_task():
    trials = [trace(f"{task}{trial}", f"task:{task}") for task in "abcdefgh" for trial in range(4)]
    leak = split_families(trials, held_out="0.25").trace_level_leak()
    assert leak["held_out_traces"] == 8
    assert leak["with_family_in_fit"] >= 6


def test_the_rows_agree_with_lineages_and_families():
    some = [trace("a", "s"), trace("b", "s"), trace("c", task="a alone"), trace("d")]
    lineages = lineages_of(some)
    families = families_of(some, lineages, Fraction(9, 10))
    for row in split_families(some).rows:
        assert (row.lineage, row.family) == (lineages[row.trace_id], families[row.lineage])


def written(folder: Path, *tasks: str) -> Path:
    path = folder / f"{tasks[0].split()[0]}.jsonl"
    path.write_bytes(lines(*(chat(asks(task), says("Which?"), asks(f"the {task}")) for task in tasks)))
    return path


def test_a_table_names_its_evidence_and_is_current(tmp_path: Path):
    corpus = import_files(tmp_path / "lab", [written(tmp_path, *WORDS[:5])]).corpus
    store = Store.open(tmp_path / "lab")
    assert current_split(store) is None
    made = make_split(store, corpus, held_out=0.4)
    assert current_split(store) == made
    assert store.inputs_of(made.digest)["evidence"] == corpus.digest
    assert made.table.summary()["held_out"] == 2


def test_a_split_is_made_again_after_an_import_and_left_alone_after_one_that_changed_nothing(tmp_path: Path):
    where = tmp_path / "lab"
    first = import_files(where, [written(tmp_path, *WORDS[:5])]).corpus
    store = Store.open(where)
    assert remake_split(store, first) is None
    made = make_split(store, first)
    assert remake_split(store, first) == made
    grown = import_files(where, [written(tmp_path, "zinnia bed", *WORDS[5:9])]).corpus
    again = remake_split(store, grown)
    assert again is not None
    assert sides(again.table) | sides(made.table) == sides(again.table)
    assert remake_split(store, grown) == again == current_split(store)


def test_naming_what_was_united_once_does_not_make_the_next_table_another_one(tmp_path: Path):
    def session(task: str, **keys: str) -> dict[str, object]:
        return chat(asks(task), says("Which?"), asks("that"), metadata=keys)

    (tmp_path / "old.jsonl").write_bytes(
        lines(session("amber", session_id="1"), session("birch", thread_id="2"), session("elm"))
    )
    (tmp_path / "new.jsonl").write_bytes(lines(session("oak", session_id="1", thread_id="2")))
    corpus = import_files(tmp_path / "lab", [tmp_path / "old.jsonl"]).corpus
    store = Store.open(tmp_path / "lab")
    one, other = (each.trace_id for each in corpus.traces if each.task in ("amber", "birch"))
    made = (sides(make_split(store, corpus, seed=seed).table) for seed in range(99))
    assert any(table[one] != table[other] for table in made)  # stops at the first seed that parts them
    grown = import_files(tmp_path / "lab", [tmp_path / "new.jsonl"]).corpus
    again = remake_split(store, grown)
    assert again is not None
    assert len(again.table.united) == 1
    assert remake_split(store, grown) == again


def test_the_airline_file_splits_into_fit_and_held_out_families(airline: Path):
    table = split_families(list(read(airline.read_bytes()).imported.traces))
    summary = table.summary()
    assert (summary["traces"], summary["lineages"]) == (200, 50)
    assert summary["fit"] + summary["held_out"] == summary["families"]
    assert summary["held_out"] == round(0.3 * summary["families"])


def test_evidence_that_unites_all_families_into_one_holds_it_out_whole():
    before = split_families([trace("a", task="one task"), trace("b", task="another one")], held_out="0.5")
    after = split_families([trace("a", "s", task="one task"), trace("b", "s", task="another one")], earlier=before)
    assert {row.split for row in after.rows} == {"held_out"}
    assert len(after.united) == 1
