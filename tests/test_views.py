"""What may be consulted. Each name is the promise."""

import ast
import hashlib
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings
from retrieval_cases import acts, entry, exclusions, snapshots, span, texts, transition

import experiential_lab
from experiential_lab.evidence.trace import LedgerRow, Transition
from experiential_lab.records import IntegrityError, LeakageError, NoEvidence, UsageError, canonical_bytes, digest_of
from experiential_lab.retrieval.views import (
    BOUNDARIES,
    Entry,
    Exclusion,
    Facts,
    Row,
    Snapshot,
    View,
    act_of,
    boundary,
    entry_of,
    read_inventory,
    row_digest,
    row_of,
    snapshot_of,
)

PACKAGE = Path(experiential_lab.__file__).parent
CALL = ("find", '{"id": 1}')


def test_law_1_an_entry_is_made_from_a_transition_and_from_nothing_else():
    ledger_row = LedgerRow(trace_id="t0", step=0, outcome="user_reply", action="hello", span=span("hello"))
    for other in (ledger_row, {"observation": "ok"}, "ok", None):
        with pytest.raises(TypeError, match="made from a Transition"):
            entry_of(other, lineages=("L",), path="")


def test_law_1_no_other_code_of_the_library_makes_an_entry_of_a_transition():
    made = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(getattr(node, "func", None), "id", getattr(getattr(node, "func", None), "attr", None))
            if isinstance(node, ast.Call) and name == "Entry":
                kinds = [ast.literal_eval(word.value) for word in node.keywords if word.arg == "kind"]
                made.append((path.name, *kinds))
    assert [each for each in made if each[1:] != ("page",)] == [("views.py", "transition")]


@pytest.mark.parametrize("origin", ["simulated_environment", "written"])
def test_law_1_a_source_that_was_not_recorded_never_enters_a_snapshot(origin):
    with pytest.raises(LeakageError, match=origin):
        snapshot_of([entry(0, CALL)], {"t0/0000": Facts(origin=origin)})


labels = st.fixed_dictionaries(
    {
        "terminal": st.sampled_from([True, False, None]),
        "is_error": st.sampled_from([True, False, None]),
        "observation_kind": st.sampled_from(["tool_result", "tool_error", "user_reply"]),
        "observation_source": st.sampled_from(["environment", "human", "unknown"]),
        "pairing": st.sampled_from(["explicit_id", "name_order"]),
        "at": st.sampled_from([None, "2026-01-01T00:00:00Z"]),
        "observation_span": st.builds(span, texts),
    }
)


@settings(deadline=None)
@given(acts, texts, texts, labels, labels)
def test_law_3_the_key_is_the_same_whatever_was_observed(act, one, other, before, after):
    first, second = entry(0, act, one, **before), entry(0, act, other, **after)
    assert first.key == second.key
    assert (first.structure, first.shape, first.tool) == (second.structure, second.shape, second.tool)


def test_law_3_the_key_holds_action_task_and_recent_and_no_byte_of_the_observation():
    made = entry(0, CALL, "Ω" * 99, task="the task", recent="what was seen before")
    assert dict(made.key) == {"action": 'find {"id": 1}', "task": "the task", "recent": "what was seen before"}
    assert "Ω" not in str(made.key) + made.structure + made.shape


def test_text_beside_a_call_is_not_in_its_key_and_recent_is_cut_from_its_start():
    action = msgspec.structs.replace(transition(0, CALL).action, text="let me look")
    made = entry_of(
        msgspec.structs.replace(transition(0, CALL, recent="ab" * 5000), action=action), lineages=(), path=""
    )
    assert dict(made.key) == {"action": 'find {"id": 1}', "task": "", "recent": "ab" * 1000}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a":1,"b":2}', '{ "b": 2.0, "a": 1 }', True),
        ('{"a":1}', '{"a":true}', False),
        ('{"a":1,"a":2}', '{"a":2}', False),  # a repeated key: readers differ, so the text counts
        ('{"a":NaN}', '{"a": NaN}', False),
        ("{bad", "{bad", True),
        ("", "{}", True),
    ],
)
def test_two_calls_are_the_same_when_every_strict_reader_sees_the_same_arguments(one, other, same):
    assert (
        act_of(None, tool="t", arguments=one).structure == act_of(None, tool="t", arguments=other).structure
    ) is same


def test_the_shape_of_a_call_is_its_tool_and_argument_names():
    shape = lambda tool, arguments: act_of(None, tool=tool, arguments=arguments).shape  # noqa: E731
    assert shape("t", '{"a":1,"b":[1]}') == shape("t", '{"b":[5,6,7],"a":"x"}')
    assert len({shape("t", a) for a in ('{"a":1}', '{"b":1}', '{"a":{"b":1}}', "[1]", "{}", "free text")}) == 6
    assert shape("t", "{}") != shape("u", "{}")
    assert act_of("hello").shape == ""


def test_messages_are_the_same_but_for_case_and_white_space_and_never_the_same_as_a_call():
    assert act_of("  Yes,\nplease ").structure == act_of("yes, PLEASE").structure
    assert len({act_of("find {}").structure, act_of(None, tool="find").structure, act_of("find {").structure}) == 3


def test_rows_stand_fit_first_then_by_first_lineage_and_id_whatever_the_order_of_entries():
    entries = [entry(i, CALL, lineages=(lineage,)) for i, lineage in enumerate("BABAB")]
    facts = {
        e.entry_id: Facts(split=s) for e, s in zip(entries, ("none", "fit", "held_out", "fit", "fit"), strict=True)
    }
    snapshot = snapshot_of(entries, facts)
    assert [row.entry_id[-1] for row in snapshot.rows] == ["1", "3", "4", "2", "0"]
    assert snapshot_of(entries[::-1], facts).digest == snapshot.digest
    assert [e.entry_id for e in snapshot.entries] == [row.entry_id for row in snapshot.rows]


def test_a_snapshot_digest_is_one_sha256_over_a_tag_and_the_row_digests():
    snapshot = snapshot_of([entry(i, CALL) for i in range(3)], {})
    rows = [hashlib.sha256(canonical_bytes(row)).digest() for row in snapshot.rows]
    assert snapshot.rows_digest == b"".join(rows)
    assert snapshot.digest == digest_of(b"experiential-lab snapshot 1\n" + b"".join(rows))
    assert snapshot.inventory() == b"".join(canonical_bytes(row) + b"\n" for row in snapshot.rows)


CHANGES = {
    "entry_id": "t9/0001",
    "kind": "page",
    "lineages": ("other",),
    "trace_id": "t9",
    "family": "f9",
    "split": "held_out",
    "path": "b.jsonl",
    "source_ids": (),
    "structure": "0" * 16,
    "observation_kind": "tool_error",
    "invalidated": True,
    "content": digest_of(b"other"),
}


@pytest.mark.parametrize("field", Row.__struct_fields__)
def test_each_field_of_a_row_alters_its_digest(field):
    row = row_of(entry(1, CALL), Facts(split="fit", family="f0"))
    assert row_digest(msgspec.structs.replace(row, **{field: CHANGES[field]})) != row_digest(row)


@pytest.mark.parametrize("field", ["key", "value", "cites"])
def test_the_content_digest_is_of_key_value_and_cites(field):
    made = entry(1, CALL)
    changed = {"key": (("action", "x"),), "value": "other", "cites": made.cites[:1]}[field]
    other = msgspec.structs.replace(made, **{field: changed})
    assert row_of(other, Facts()).content != row_of(made, Facts()).content


def test_the_order_of_rows_alters_the_snapshot_digest():
    rows = snapshot_of([entry(i, CALL) for i in range(2)], {}).rows
    assert Snapshot(rows).digest != Snapshot(rows[::-1]).digest


def test_two_kinds_or_a_repeated_id_are_refused():
    page = msgspec.structs.replace(entry(1, CALL), kind="page")
    with pytest.raises(ValueError, match="one kind"):
        snapshot_of([entry(0, CALL), page], {})
    with pytest.raises(ValueError, match="2 entries, 1 ids"):
        snapshot_of([entry(0, CALL), entry(0, CALL)], {})


@settings(deadline=None)
@given(snapshots())
def test_the_fit_rows_are_a_prefix_and_a_snapshot_of_their_own(snapshot):
    fit = [row.split == "fit" for row in snapshot.rows]
    assert fit == sorted(fit, reverse=True)
    alone = [e for e, is_fit in zip(snapshot.entries, fit, strict=True) if is_fit]
    facts = {row.entry_id: Facts(row.split, row.family, row.source_ids, row.invalidated) for row in snapshot.rows}
    assert snapshot.fit.digest == snapshot.prefix_digest(sum(fit)) == snapshot_of(alone, facts).digest


@settings(deadline=None)
@given(snapshots())
def test_an_inventory_reads_back_as_the_rows_it_was_made_of(snapshot):
    read = read_inventory(snapshot.inventory())
    assert (read.rows, read.digest, read.artifact, read.entries) == (
        snapshot.rows,
        snapshot.digest,
        snapshot.artifact,
        (),
    )


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-9], lambda d: d.replace(b'"kind"', b' "kind"', 1), lambda d: b"[]\n" + d]
)
def test_an_inventory_that_is_not_canonical_is_refused(damage):
    with pytest.raises(IntegrityError, match="inventory"):
        read_inventory(damage(snapshot_of([entry(i, CALL) for i in range(3)], {}).inventory()))


def test_an_inventory_in_another_order_is_refused():
    lines = snapshot_of([entry(i, CALL) for i in range(3)], {}).inventory().splitlines(keepends=True)
    with pytest.raises(IntegrityError, match="order"):
        read_inventory(b"".join(lines[::-1]))


def falls_to(row: Row, exclusion: Exclusion) -> bool:
    match exclusion.level:
        case "entry":
            return row.entry_id == exclusion.value
        case "trace":
            return row.trace_id == exclusion.value
        case "lineage":
            return exclusion.value in row.lineages
        case _:
            return getattr(row, exclusion.level) == exclusion.value


@settings(deadline=None)
@given(snapshots(), st.lists(exclusions, max_size=4), st.sampled_from(["all", "fit"]))
def test_a_view_is_the_rows_of_its_base_that_fall_to_no_exclusion_and_are_not_invalidated(snapshot, excluded, base):
    if base == "fit" and not snapshot.fit.rows:
        return
    view = View(snapshot, base, excluded)
    rows = [row for row in snapshot.rows if base == "all" or row.split == "fit"]
    kept = [row for row in rows if not row.invalidated and not any(falls_to(row, exclusion) for exclusion in excluded)]
    assert list(view.rows) == kept
    assert [e.entry_id for e in view.entries] == [row.entry_id for row in kept]
    removing = {e for e in excluded if any(falls_to(row, e) for row in rows)}
    assert list(view.excluded) == sorted(removing, key=lambda e: (e.level, e.value))
    seen = view.visibility()
    assert (seen.snapshot_count, seen.visible_count) == (len(rows), len(kept))


def test_equal_views_are_written_alike_whatever_was_said_twice_or_in_which_order():
    snapshot = snapshot_of([entry(i, CALL, lineages=(f"L{i}",), trace_id=f"t{i}") for i in range(4)], {})
    said = [
        Exclusion(level=level, value=value) for level, value in (("trace", "t1"), ("lineage", "L3"), ("lineage", "L2"))
    ]
    view = View(snapshot, "all", [*said, Exclusion(level="family", value=""), *said])
    assert view.excluded == (said[2], said[1], said[0])
    assert view.visibility() == View(snapshot, "all", said[::-1]).visibility()


def test_law_13_a_page_leaves_with_any_of_the_lineages_it_cites():
    pages = [
        Entry(entry_id=name, kind="page", lineages=taint, key=(("action", name),), value="", cites=())
        for name, taint in (("p0", ("L0",)), ("p1", ("L0", "L1")), ("p2", ()))
    ]
    view = View(snapshot_of(pages, {}), "all", [Exclusion(level="lineage", value="L1")])
    assert [row.entry_id for row in view.rows] == ["p2", "p0"]


def test_each_boundary_takes_out_at_least_the_rows_of_the_one_before():
    entries = [
        entry(i, ("find", f'{{"id":{i % 3}}}'), lineages=(f"L{i % 8 // 2}",), trace_id=f"t{i % 8}") for i in range(40)
    ]
    snapshot = snapshot_of(entries, {e.entry_id: Facts(family=f"f{int(e.lineages[0][1]) // 2}") for e in entries})
    for row in snapshot.rows:
        out = [set(View(snapshot, "all", boundary(level, row)).out) for level in BOUNDARIES]
        assert [len(rows) for rows in out] == [1, 5, 10, 20, len(out[4])]
        assert all(inner < outer for inner, outer in pairwise(out))


def test_a_page_stands_for_its_lineages_where_a_trace_or_family_is_asked_for():
    page = Row(entry_id="p", kind="page", lineages=("L0", "L1"), content="")
    lineages = tuple(Exclusion(level="lineage", value=value) for value in ("L0", "L1"))
    assert [boundary(level, page) for level in ("trace", "lineage", "family")] == [lineages] * 3


def test_what_needs_a_split_says_so():
    snapshot = snapshot_of([entry(0, CALL)], {})
    with pytest.raises(NoEvidence, match="split"):
        View(snapshot, "fit")
    with pytest.raises(NoEvidence, match="split"):
        boundary("family", snapshot.rows[0])


def test_an_unknown_base_level_or_boundary_is_a_usage_error_that_lists_the_known():
    snapshot = snapshot_of([entry(0, CALL)], {})
    with pytest.raises(UsageError, match="all or fit"):
        View(snapshot, "held_out")
    with pytest.raises(UsageError, match="lineage"):
        View(snapshot, "all", [Exclusion(level="session", value="x")])
    with pytest.raises(UsageError, match="self, trace"):
        boundary("session", snapshot.rows[0])


def test_every_field_of_a_transition_is_in_its_entry_or_left_out_on_purpose():
    kept = {"transition_id", "trace_id", "task", "recent", "action", "observation", "terminal", "pairing"}
    kept |= {"observation_kind", "action_span", "observation_span"}
    assert set(Transition.__struct_fields__) - kept == {"observation_source", "is_error", "at"}
