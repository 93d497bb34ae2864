"""The ledger: laws 3 to 6 over any sequence of events, and the pairing rules one by one."""

from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest
from evidence_cases import check_ledger, read, said
from hypothesis import given

from experiential_lab.evidence.trace import Event, Trace
from experiential_lab.evidence.transitions import NOT_UNIQUE, Ledger, ledger_of
from experiential_lab.records import Span, digest_of

SOURCE = digest_of(b"a source")


def event(kind: str, text: str = "", **more: object) -> Event:
    span = Span(source=SOURCE, offset=0, size=1, end=len(text), quote=digest_of(text.encode()))
    return Event(kind=kind, turn=more.pop("turn", "0"), span=span, text=text, **more)  # type: ignore[arg-type]


def trace(*events: Event, task: str | None = None, complete: bool | None = None) -> Trace:
    """A trace of these events, each in a place of its own."""
    placed = tuple(
        msgspec.structs.replace(each, span=msgspec.structs.replace(each.span, offset=at))
        for at, each in enumerate(events)
    )
    first = next((each.text for each in events if each.kind == "task"), None)
    return Trace(trace_id="t", source=SOURCE, format="f", keys=(), task=task or first, complete=complete, events=placed)


def ledger(*events: Event, **more: object) -> Ledger:
    one = trace(*events, **more)  # type: ignore[arg-type]
    found = ledger_of(one)
    check_ledger(one, found)
    return found


def outcomes(found: Ledger) -> list[str]:
    return [row.outcome for row in found.rows]


def pairs(found: Ledger) -> list[tuple[str, str, str]]:
    return [(said(each), each.pairing, each.observation) for each in found.transitions]


def aside(found: Ledger) -> list[tuple[str, str]]:
    return [(row.excerpt, row.reason) for row in found.set_aside]


def call(tool: str | None, call_id: str | None = None, *, turn: str = "1", **more: object) -> Event:
    return event("call", "{}", tool=tool, call_id=call_id, turn=turn, **more)


def result(text: str, call_id: str | None = None, tool: str | None = None, **more: object) -> Event:
    return event("result", text, tool=tool, call_id=call_id, author="environment", **more)


TASK = event("task", "task")

# Any sequence of events. Each text names its place, so that what a key holds can be told apart.
kinds = st.sampled_from(
    ["task", "context", "text", "reasoning", "call", "call", "result", "result", "user", "control", "boundary"]
)
reasons = st.sampled_from(
    [None] * 8 + ["replayed_history", "sidechain_prompt", "control_token", "interrupt_marker", "harness_text"]
)
drawn = st.builds(
    lambda kind, turn, branch, tool, call_id, why, stop: (kind, turn, branch, tool, call_id, why, stop),
    kinds,
    st.sampled_from("123"),
    st.sampled_from(["", "", "", "side"]),
    st.sampled_from(["f", "f", "g", None]),
    st.sampled_from(["a", "b", "a", None]),
    reasons,
    st.booleans(),
)


def of_drawn(shapes: list[tuple[str, str, str, str | None, str | None, str | None, bool]], task: str | None) -> Trace:
    events = [
        event(kind, f"<{at}>", turn=turn, branch=branch, tool=tool, call_id=call_id, aside=why, stop=stop)
        for at, (kind, turn, branch, tool, call_id, why, stop) in enumerate(shapes)
    ]
    requests = [each.text for each in events if each.kind in ("task", "user") or each.aside == "sidechain_prompt"]
    return trace(*events, task=task if task in (None, "elsewhere") else next(iter(requests), None))


traces = st.builds(of_drawn, st.lists(drawn, max_size=24), st.sampled_from([None, "the first request", "elsewhere"]))


@given(traces)
def test_law_4_every_step_ends_in_exactly_one_ledger_row(one: Trace):
    found = ledger_of(one)
    check_ledger(one, found)
    steps = [row.span.offset for row in found.rows]
    assert steps == sorted(set(steps))
    acted = {at: each.kind for at, each in enumerate(one.events) if each.kind in ("call", "text") and not each.aside}
    assert {at for at, kind in acted.items() if kind == "call"} <= set(steps) <= set(acted)
    assert {each.action_span.offset for each in found.transitions} <= set(steps)


@given(traces)
def test_law_5_every_event_is_used_once_or_set_aside(one: Trace):
    found = ledger_of(one)
    aside = [row.span.offset for row in found.set_aside]
    observed = [each.observation_span.offset for each in found.transitions]
    steps = [row.span.offset for row in found.rows]
    assert len({*aside, *observed, *steps}) == len(aside) + len(observed) + len(steps)
    assert {at for at, each in enumerate(one.events) if each.aside} <= set(aside)
    for at in set(range(len(one.events))) - {*aside, *observed, *steps}:
        beside = [each for each in one.events if each.kind == "call" and each.turn == one.events[at].turn]
        assert one.events[at].kind in ("task", "context", "control", "boundary", "reasoning") or beside


@given(traces)
def test_law_3_no_byte_of_a_steps_own_observation_or_of_anything_later_is_in_its_key(one: Trace):
    for each in ledger_of(one).transitions:
        act, observed = each.action_span.offset, each.observation_span.offset
        assert act < observed
        for field in (each.recent, each.task):
            if field is not None and field != "elsewhere":
                assert int(field.strip("<>")) < act
        beside = (each.action.text or "").split("\n") if each.action.tool else []
        assert all(int(text.strip("<>")) < observed for text in beside if text)


@given(traces)
def test_law_6_a_declared_id_pairs_with_its_own_call_or_with_none(one: Trace):
    found = ledger_of(one)
    flags = {row.transition_id: row.flags for row in found.rows}
    for each in found.transitions:
        made, got = one.events[each.action_span.offset], one.events[each.observation_span.offset]
        repeats = NOT_UNIQUE in flags[each.transition_id]
        assert made.branch == got.branch
        if each.pairing.startswith("explicit_id"):
            assert made.call_id == got.call_id is not None
            assert not repeats
        elif each.pairing != "user_reply":
            assert got.call_id in (None, made.call_id)
            assert (made.call_id is not None) == repeats


def test_law_6_a_declared_id_that_matches_nothing_never_falls_back():
    found = ledger(TASK, call("f", "a"), result("r", "z", "f"))
    assert outcomes(found) == ["unanswered_call"]
    assert aside(found) == [("r", "id_mismatch")]


@pytest.mark.parametrize(("made", "given_"), [("a", None), (None, "a")])
def test_law_6_where_one_side_declares_an_id_neither_name_nor_order_pairs(made: str | None, given_: str | None):
    found = ledger(TASK, call("f", made), result("r", given_, "f"))
    assert outcomes(found) == ["unanswered_call"]
    assert aside(found) == [("r", "orphan_result" if given_ is None else "id_mismatch")]


def test_law_6_an_id_that_repeats_in_its_own_turn_declares_nothing_and_is_flagged():
    found = ledger(TASK, call("f", "a"), call("f", "a"), result("1", "a"), result("2", "a"))
    assert pairs(found) == [("f {}", "name_order", "1"), ("f {}", "name_order", "2")]
    assert [row.flags for row in found.rows] == [(NOT_UNIQUE,)] * 2


def test_law_6_it_declares_nothing_either_when_a_result_comes_before_the_second_call():
    found = ledger(TASK, call("f", "a"), result("1", "a"), call("f", "a"), result("2", "a"))
    assert pairs(found) == [("f {}", "name_order", "1"), ("f {}", "name_order", "2")]
    assert [row.flags for row in found.rows] == [(NOT_UNIQUE,)] * 2


def test_one_result_for_two_calls_with_one_id_pairs_with_neither():
    found = ledger(TASK, call("f", "a"), call("f", "a"), result("1", "a"))
    assert outcomes(found) == ["ambiguous_order"] * 2
    assert aside(found) == [("1", "orphan_result")]


def test_parallel_results_find_their_calls_in_any_order_and_a_missing_one_is_left_out():
    found = ledger(TASK, call("f", "a"), call("f", "b"), call("g", "c"), result("3", "c"), result("1", "a"))
    assert pairs(found) == [("f {}", "explicit_id", "1"), ("g {}", "explicit_id", "3")]
    assert outcomes(found) == ["explicit_id", "unanswered_call", "explicit_id"]


def test_an_id_used_again_in_a_later_turn_is_scoped_and_pairs_with_the_nearest_open_call():
    found = ledger(TASK, call("f", "a"), result("1", "a"), call("g", "a", turn="2"), result("2", "a"))
    assert pairs(found) == [("f {}", "explicit_id_scoped", "1"), ("g {}", "explicit_id_scoped", "2")]


def test_a_second_result_never_reaches_back_to_an_older_call_with_the_same_id():
    found = ledger(TASK, call("f", "a"), call("g", "a", turn="2"), result("2", "a"), result("2 again", "a"))
    assert outcomes(found) == ["unanswered_call", "explicit_id_scoped"]
    assert aside(found) == [("2 again", "duplicate_result")]


def test_a_late_result_still_closes_its_call():
    found = ledger(TASK, call("f", "a"), event("text", "working", turn="2"), event("user", "hm"), result("late", "a"))
    assert pairs(found) == [("f {}", "explicit_id", "late"), ("working", "user_reply", "hm")]


def test_a_boundary_ends_every_wait():
    boundary = event("boundary", "cleared")
    found = ledger(TASK, call("f", "a"), event("text", "t", turn="2"), boundary, event("user", "u"), result("r", "a"))
    assert outcomes(found) == ["unanswered_call", "terminal_no_observation"]
    assert aside(found) == [("u", "observation_without_action"), ("r", "id_mismatch")]


def test_a_call_without_a_name_pairs_with_nothing():
    found = ledger(TASK, call(None, "a"), result("r", "a"), call(None, turn="2"), result("s"))
    assert outcomes(found) == ["call_without_name"] * 2
    assert aside(found) == [("r", "orphan_result"), ("s", "orphan_result")]


def test_name_order_needs_as_many_results_as_calls_of_the_name_in_the_turn():
    found = ledger(
        TASK, call("f"), call("g"), call("f"), result("1", None, "f"), result("2", None, "f"), result("3", None, "g")
    )
    assert pairs(found) == [(f"{tool} {{}}", "name_order", text) for tool, text in (("f", "1"), ("g", "3"), ("f", "2"))]
    less = ledger(TASK, call("f"), call("f"), result("1", None, "f"))
    assert outcomes(less) == ["ambiguous_order"] * 2


def test_a_result_without_an_id_never_answers_a_later_call():
    found = ledger(TASK, event("text", "t", turn="1"), result("early"), call("f"))
    assert outcomes(found) == ["ambiguous_order"]
    named = ledger(TASK, call("f"), result("1", None, "f"), result("2", None, "f"), call("f"))
    assert outcomes(named) == ["ambiguous_order"] * 2
    assert aside(named) == [("1", "orphan_result"), ("2", "orphan_result")]


def test_name_order_stays_in_its_turn():
    found = ledger(TASK, call("f"), call("g", turn="2"), result("1", None, "f"))
    assert outcomes(found) == ["unanswered_call", "unanswered_call"]
    assert aside(found) == [("1", "orphan_result")]


@pytest.mark.parametrize("other", [call("g", "a"), call(None)])
def test_order_only_needs_exactly_one_open_call(other: Event):
    assert pairs(ledger(TASK, call("f"), result("1"))) == [("f {}", "order_only", "1")]
    found = ledger(TASK, call("f"), other, result("1"))
    assert outcomes(found)[0] == "ambiguous_order"
    assert aside(found) == [("1", "orphan_result")]


def test_text_beside_calls_belongs_to_each_call_and_has_no_reply_of_its_own():
    found = ledger(
        TASK, event("text", "both", turn="1"), call("f", "a"), call("g", "b"), result("1", "a"), event("user", "u")
    )
    assert [(each.action.text, each.action.tool) for each in found.transitions] == [("both", "f")]
    assert found.used == {"step": 3, "observation": 1, "context": 1}
    assert aside(found) == [("u", "observation_without_action")]


def test_a_text_after_a_result_of_its_turn_is_a_step_of_its_own():
    found = ledger(TASK, call("f", "a"), result("10", "a"), event("text", "It is 10", turn="1"), event("user", "ok"))
    assert pairs(found) == [("f {}", "explicit_id", "10"), ("It is 10", "user_reply", "ok")]
    assert found.transitions[0].action.text is None


def test_only_the_last_of_several_texts_is_answered():
    found = ledger(
        TASK, event("text", "a", turn="1"), event("text", "b", turn="1"), event("user", "u"), event("user", "v")
    )
    assert outcomes(found) == ["no_authored_reply", "user_reply"]
    assert aside(found) == [("v", "observation_without_action")]


@pytest.mark.parametrize(
    ("why", "outcome"),
    [
        ("control_token", "control_token_only"),
        ("synthetic_assistant", "no_authored_reply"),
        ("interrupt_marker", "no_authored_reply"),
        ("harness_text", "user_reply"),
        ("compaction_summary", "user_reply"),
    ],
)
def test_what_was_set_aside_answers_nothing_but_may_end_the_wait(why: str, outcome: str):
    found = ledger(TASK, event("text", "t", turn="1"), event("control", "c", aside=why), event("user", "u"))
    assert outcomes(found) == [outcome]
    assert ("c", why) in aside(found)


def test_branches_do_not_answer_each_other():
    side = {"branch": "side"}
    found = ledger(
        TASK, event("text", "main", turn="1"), call("f", "a", turn="2", **side), result("r", "a"), event("user", "u")
    )
    assert pairs(found) == [("main", "user_reply", "u")]
    assert aside(found) == [("r", "id_mismatch")]


def test_what_a_branch_repeats_counts_once_but_was_seen_there():
    fork = {"branch": "fork", "aside": "replayed_history"}
    shared = (event("user", "blue", **fork), call("f", "a", turn="1", **fork), result("r", "a", **fork))
    own = (
        event("text", "other", turn="2", branch="fork"),
        event("user", "u", branch="fork"),
        result("r2", "a", branch="fork"),
    )
    found = ledger(TASK, call("f", "a"), result("r", "a"), *shared, *own)
    assert [(each.pairing, each.task, each.recent) for each in found.transitions] == [
        ("explicit_id", "task", None),  # not scoped: the copy is no second use of the id
        ("user_reply", "task", "r"),
    ]
    assert aside(found)[-1] == ("r2", "observation_without_action")


def test_a_request_is_no_task_before_it_was_made():
    greeting = (event("text", "Welcome", turn="1"), event("user", "Two beds"), event("text", "For when?", turn="2"))
    found = ledger(*greeting, event("user", "May"), task="Two beds")
    assert [(each.task, each.recent) for each in found.transitions] == [(None, None), ("Two beds", "Two beds")]


def test_the_prompt_of_a_sub_agent_is_its_task_and_a_later_one_what_it_saw_last():
    side = {"branch": "side"}
    prompts = [event("control", text, aside="sidechain_prompt", **side) for text in ("find it", "go on")]
    one, two = (event(kind, kind, turn="1", **side) for kind in ("text", "user"))
    found = ledger(TASK, prompts[0], prompts[1], one, two)
    assert [(each.task, each.recent) for each in found.transitions] == [("find it", "go on")]


def test_terminal_is_the_stop_marker_or_the_declared_end_and_unknown_at_an_open_end():
    def last(*events: Event, complete: bool | None) -> list[bool | None]:
        return [each.terminal for each in ledger(TASK, *events, complete=complete).transitions]

    asked, ends = event("text", "t", turn="1"), event("user", "u")
    assert last(asked, ends, complete=None) == [None]
    assert last(asked, ends, complete=True) == [True]
    assert last(asked, ends, event("text", "more", turn="2"), complete=True) == [False]
    assert last(asked, event("user", "u", stop=True), event("text", "more", turn="2"), complete=None) == [True]


def test_a_later_record_of_another_branch_says_nothing_about_the_end_of_this_one():
    found = ledger(TASK, event("text", "t", turn="1"), event("user", "u"), event("text", "x", turn="2", branch="side"))
    assert [each.terminal for each in found.transitions] == [None]


def test_only_the_last_record_of_a_complete_trace_is_its_end():
    side = (event("text", "x", turn="2", branch="side"), event("user", "y", branch="side"))
    found = ledger(TASK, event("text", "t", turn="1"), event("user", "u"), *side, complete=True)
    assert [each.terminal for each in found.transitions] == [None, True]


def test_an_empty_result_is_an_observation_and_the_kinds_say_who_gave_it():
    given_ = [result("", "a"), result("no", "b", is_error=True), result("stop", "c", is_error=True, rejected=True)]
    found = ledger(TASK, call("f", "a"), call("f", "b"), call("f", "c"), *given_)
    assert [(each.observation, each.observation_kind) for each in found.transitions] == [
        ("", "tool_result"),
        ("no", "tool_error"),
        ("stop", "user_rejection"),
    ]


def test_law_11_the_ledger_is_a_function_of_the_trace_alone():
    one = trace(TASK, call("f", "a"), result("1", "a"), event("text", "t", turn="2"), event("user", "u"))
    assert ledger_of(one) == ledger_of(one)


def test_the_airline_file_has_the_published_counts(airline: Path):
    found = read(airline.read_bytes())
    assert (found.imported.records, len(found.imported.traces), found.rejected) == (200, 200, [])
    assert Counter(found.outcomes) == {
        "user_reply": 1_261,
        "explicit_id": 1_020,
        "explicit_id_scoped": 144,
        "control_token_only": 29,
    }
    assert len(found.outcomes) == 2_454
    assert sum((Counter(each.used) for each in found.ledgers), Counter()) == {
        "step": 2_544,
        "observation": 2_425,
        "context": 400,
    }
    assert found.aside == {"control_token": 29}
    assert sum(len(each.events) for each in found.imported.traces) == 5_398


def test_in_the_airline_file_a_reply_beside_the_stop_marker_is_terminal_and_an_empty_result_observed(airline: Path):
    found = read(airline.read_bytes()).transitions
    assert sum("###STOP###" in each.observation and each.terminal is True for each in found) == 118
    assert sum(each.observation == "" for each in found) == 92
    assert sum(each.action.tool is not None and each.action.text is not None for each in found) == 90
    assert {each.observation_source for each in found} == {"environment", "simulated_user"}
