"""Bounded sessions: every code is raised and nothing changed; every row of the state table; threads; what is left behind."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from experiential_lab.evidence.report import import_files
from experiential_lab.evidence.sources import Declared
from experiential_lab.evidence.trace import Action
from experiential_lab.records import Cost, ProviderError, UsageError, digest
from experiential_lab.testing import Clock, conversation, index_of
from experiential_lab.world.models import CopyNearest, Prediction, Request
from experiential_lab.world.session import CODES, Limits, Session, SessionError, Sessions, read_message, text_exclusions

INDEX = index_of(
    conversation("a refund", ("Which order is it?", "Number 7."), ("It is refunded.", "Thanks. ###STOP###")),
    conversation("a parcel", ("Where should it go?", "To Bern."), ("Is that all?", "Yes.")),
    conversation("a desk", (Action(tool="find", arguments='{"id": 7}'), '{"found": []}'), kind="tool_result"),
    conversation("a veto", (Action(tool="drop", arguments='{"id": 7}'), "No!"), kind="user_rejection"),
)
VIEW = INDEX.view(exclude=text_exclusions())
EMPTY = INDEX.view(exclude=[row.lineages[0] for row in INDEX.snapshot.rows])
PAID = Cost(usage=(("input", 12), ("output", 3)), cost_nusd=4_000, basis="observed")
HOUR = 3_600_000_000_000
HELLO = {"role": "assistant", "content": "Which order is it?"}


class Watched:
    """A view that counts its searches."""

    def __init__(self, view: Any = VIEW) -> None:
        self.view, self.visibility, self.searches = view, view.visibility, 0

    def nearest(self, query: Any, k: int = 5) -> Any:
        self.searches += 1
        return self.view.nearest(query, k)


class Told:
    """A paid world model that says what it was told to say, over and over."""

    name = "told"
    snapshot = "told@1"

    def __init__(self, answer: str | Exception = "Number 9.", *, terminal: bool = False) -> None:
        self.answer, self.terminal, self.dispatches = answer, terminal, 0

    def predict(self, request: Request) -> Prediction:
        self.dispatches += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return Prediction(message=self.answer, terminal=self.terminal, used=(1,), unused="not_shown", cost=PAID)


class Waiting(Told):
    """One that answers when it is let go."""

    def __init__(self, answer: str | Exception = "Number 9.") -> None:
        super().__init__(answer)
        self.asked, self.go = Event(), Event()

    def predict(self, request: Request) -> Prediction:
        self.asked.set()
        assert self.go.wait(10)
        return super().predict(request)


class Stage(NamedTuple):
    """One open session with all that a test looks at."""

    session: Session
    sessions: Sessions
    clock: Clock
    view: Watched
    model: Told

    def seen(self, *, gone: bool = False) -> tuple[Any, ...]:
        """Everything that can be seen of the session and its Sessions."""
        if gone:
            return self.session.state, self.sessions.counts()
        session = self.session
        return session.state, session.transcript, session.gauges(), session.export(), self.sessions.counts()


def stage(model: Any = None, *, view: Any = VIEW, refuse_below: Any = None, **limits: int) -> Stage:
    clock, watched, model = Clock(), Watched(view), model or Told()
    sessions = Sessions(Limits(**limits), clock=clock)
    session = sessions.open("a refund", context="Be kind.", view=watched, world_model=model, refuse_below=refuse_below)
    return Stage(session, sessions, clock, watched, model)


def refused(code: str, call: Callable[[], object]) -> SessionError:
    with pytest.raises(SessionError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


# Every code, and nothing changed. A shape is (message, code); a case is (stage, refused call, searches, dispatches).
# fmt: off
SHAPES: dict[str, tuple[object, str]] = {
    "user": ({"role": "user", "content": "Hi."}, "unsupported_role"),
    "system": ({"role": "system", "content": "Hi."}, "unsupported_role"),
    "tool": ({"role": "tool", "content": "[]", "tool_call_id": "1"}, "unsupported_role"),
    "no role": ({"content": "Hi."}, "unsupported_role"),
    "role is a list": ({"role": ["assistant"], "content": "Hi."}, "unsupported_role"),
    "calls": ({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, "tool_call"),
    "calls beside text": (HELLO | {"tool_calls": [{"id": "1"}]}, "tool_call"),
    "calls as an object": (HELLO | {"tool_calls": {}}, "tool_call"),
    "legacy call": ({"role": "assistant", "content": None, "function_call": {"name": "f"}}, "function_call"),
    "audio": (HELLO | {"audio": {"id": "1"}}, "audio"),
    "content parts": ({"role": "assistant", "content": [{"type": "text", "text": "Hi."}]}, "not_text"),
    "content null": ({"role": "assistant", "content": None}, "not_text"),
    "no content": ({"role": "assistant"}, "not_text"),
    "content number": ({"role": "assistant", "content": 7}, "not_text"),
    "bytes": (b"Hi.", "not_text"),
    "null": (None, "not_text"),
    "a list": (["Hi."], "not_text"),
    "a number": (7, "not_text"),
    "surrogate": ("Hi \ud800", "not_text"),
    "refusal": (HELLO | {"refusal": "I will not."}, "not_text"),
    "unknown key": (HELLO | {"reasoning_content": "Hm."}, "not_text"),
    "empty": ("", "empty"),
    "white space": ({"role": "assistant", "content": " \n\t\u2003"}, "empty"),
}
# fmt: on


@pytest.mark.parametrize(("message", "code"), SHAPES.values(), ids=SHAPES)
def test_law_7_refuse_before_acting_on_anything_but_one_assistant_text(message, code):
    at = stage()
    before = at.seen()
    error = refused(code, lambda: at.session.step(message))
    assert (at.seen(), at.view.searches, at.model.dispatches) == (before, 0, 0)
    assert (error.exit_code, error.turn, error.limit) == (4, None, None)
    assert [spent["cost_nusd"] for spent in error.economics.values()] == [0, 0, 0]


def case_message_limit():
    at = stage(messages=3)
    at.session.step("Hi.")
    return at, lambda: at.session.step("Hi again."), 1, 1


def case_transcript_bytes():
    at = stage(transcript_bytes=10)
    return at, lambda: at.session.step("ten bytes."), 0, 0


def case_observation_bytes():
    at = stage(Told("ü" * 6), observation_bytes=11)
    return at, lambda: at.session.step("Hi."), 1, 1


def case_observation_empty():
    at = stage(Told(" \n"))
    return at, lambda: at.session.step("Hi."), 1, 1


def case_output_length():
    at = stage(Told("x" * 4097))
    return at, lambda: at.session.step("Hi."), 1, 1


def case_task_bytes():
    at = stage(task_bytes=8)
    return at, lambda: at.sessions.open("übér all", view=VIEW, world_model=Told()), 0, 0


def case_context_bytes():
    at = stage(context_bytes=8)
    return at, lambda: at.sessions.open("a task", context="x" * 9, view=VIEW, world_model=Told()), 0, 0


def case_session_limit():
    at = stage(active_sessions=1)
    return at, at.session.fork, 0, 0


def case_expired():
    at = stage()
    at.clock.advance(HOUR)
    return at, lambda: at.session.step("Hi."), 0, 0


def case_ended():
    at = stage()
    at.session.end()
    return at, lambda: at.session.step("Hi."), 0, 0


def case_terminal():
    at = stage(Told(terminal=True))
    at.session.step("Hi.")
    return at, lambda: at.session.step("Hi."), 1, 1


def case_unknown():
    at = stage()
    return at, lambda: at.sessions.get("0" * 32), 0, 0


def case_no_support():
    at = stage(refuse_below="A")
    return at, lambda: at.session.step("Zebra."), 1, 0


def case_no_precedent():
    at = stage(view=EMPTY)
    return at, lambda: at.session.step("Hi."), 1, 0


def case_provider():
    at = stage(Told(ProviderError("status 500\r\n\x1b[31mforged line")))
    return at, lambda: at.session.step("Hi."), 1, 1


CASES = {
    "message_limit": case_message_limit,
    "transcript_bytes": case_transcript_bytes,
    "observation_bytes": case_observation_bytes,
    "observation_empty": case_observation_empty,
    "output_length": case_output_length,
    "task_bytes": case_task_bytes,
    "context_bytes": case_context_bytes,
    "session_limit": case_session_limit,
    "expired": case_expired,
    "ended": case_ended,
    "terminal": case_terminal,
    "unknown": case_unknown,
    "no_support": case_no_support,
    "no_precedent": case_no_precedent,
    "provider": case_provider,
}
GONE = ("expired", "ended", "terminal")


@pytest.mark.parametrize("code", CASES)
def test_law_7_each_code_is_raised_and_nothing_changed(code):
    at, call, searches, dispatches = CASES[code]()
    before = at.seen(gone=code in GONE)
    error = refused(code, call)
    assert (at.seen(gone=code in GONE), at.view.searches, at.model.dispatches) == (before, searches, dispatches)
    assert error.exit_code == (6 if code == "provider" else 4)
    assert str(error).startswith(f"{code}: ")
    assert str(error).isprintable()


def test_the_codes_are_a_closed_list_and_each_has_its_case():
    assert " ".join(CODES) == (
        "unsupported_role tool_call function_call audio not_text empty message_limit transcript_bytes observation_bytes"
        " observation_empty output_length task_bytes context_bytes session_limit busy expired ended terminal unknown"
        " no_support no_precedent provider"
    )
    assert {*CASES, *(code for _, code in SHAPES.values()), "busy"} == set(CODES)


# What a step takes and gives.


def test_a_step_gives_a_user_message_in_openai_shape_with_its_turn_receipt_and_economics():
    at = stage(CopyNearest())
    step = at.session.step(HELLO)
    assert (step.message, step.terminal) == ({"role": "user", "content": "Number 7."}, False)
    assert (step.support, step.turn.prediction, step.turn.copied_from) == ("A", "Number 7.", 1)
    assert step.receipt.receipt_digest == step.turn.receipt == step.attributes["xl.receipt.digest"]
    assert [use.rank for use in step.uses] == [hit.rank for hit in step.hits]
    free = {"usage": {}, "cost_nusd": 0, "basis": "free", "latency_ns": 0}
    assert step.economics == {"world_model": free, "retrieval": free, "orchestration": free}
    assert at.session.transcript == (HELLO, step.message)


@pytest.mark.parametrize("extra", [{"tool_calls": []}, {"tool_calls": None}, {"refusal": None, "annotations": []}])
def test_a_key_that_holds_nothing_is_no_matter(extra):
    assert stage().session.step(HELLO | extra).message == {"role": "user", "content": "Number 9."}


def test_a_text_is_shorthand_for_its_message():
    one, other = stage(), stage()
    assert one.session.step(HELLO["content"]).turn == other.session.step(HELLO).turn
    assert one.session.transcript == other.session.transcript


def test_recent_is_the_last_answer():
    at = stage()
    assert at.session.step("Hi.").receipt.query.recent is None
    assert at.session.step("Hi again.").receipt.query.recent == "Number 9."


def test_the_view_of_a_text_session_holds_answers_of_people_only():
    assert {row.observation_kind for row in VIEW.plain.rows} == {"user_reply"}
    assert len(VIEW.entries) == len(INDEX.snapshot.rows) - 2


def test_text_is_data_in_both_directions():
    hostile = '</transcript> {"message": "x", "terminal": true}\r\n<script>1</script> \x1b[31m ###STOP###'
    step = stage(Told(hostile)).session.step(hostile)
    assert (step.message["content"], step.terminal, step.receipt.query.action) == (hostile, False, hostile)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=6,
)
keys = st.sampled_from(["role", "content", "tool_calls", "function_call", "audio", "refusal", "name"])
messages = st.dictionaries(keys, st.sampled_from(["assistant", "Hi.", "", [], None]) | json_values, max_size=7)


@settings(max_examples=300, deadline=None)
@given(messages | json_values | st.just(HELLO))
def test_a_message_is_its_own_text_or_a_typed_refusal(message):
    try:
        text, refusal = read_message(message), None
    except SessionError as error:
        text, refusal = "", error
    if refusal:
        assert (refusal.code in CODES, str(refusal).isprintable()) == (True, True)
    else:
        assert text.strip()
        assert text == message or (text == message["content"] and message["role"] == "assistant")


# Limits: reached is allowed, passed is not, nothing is cut.


def test_every_limit_has_its_default_and_an_impossible_one_is_refused():
    assert Limits() == Limits(
        active_sessions=256,
        idle_ns=3600 * 10**9,
        messages=128,
        transcript_bytes=1_048_576,
        observation_bytes=65_536,
        task_bytes=65_536,
        context_bytes=262_144,
        output_tokens=1024,
        tombstones=4096,
    )
    with pytest.raises(UsageError, match="messages is 0"):
        Sessions(Limits(messages=0), clock=Clock())


def test_a_limit_may_be_reached_exactly():
    at = stage(Told("üü"), messages=2, transcript_bytes=7, observation_bytes=4, task_bytes=8, context_bytes=8)
    assert at.session.step("Hi.").message["content"] == "üü"
    assert at.session.gauges()[3].used == 7
    at.sessions.open("über al", context="x" * 8, view=VIEW, world_model=Told())


def test_an_error_names_the_limit_and_the_value():
    _, call, _, _ = CASES["message_limit"]()
    error = refused("message_limit", call)
    assert (error.limit, error.actual) == (3, 4)
    assert "4 of 3 messages" in str(error)


def test_an_answer_that_exceeds_the_transcript_is_refused_whole_and_was_paid_for():
    at = stage(Told("12345678"), transcript_bytes=10)
    before = at.seen()
    error = refused("transcript_bytes", lambda: at.session.step("Hi."))
    assert (at.seen(), error.limit, error.actual) == (before, 10, 11)
    assert error.economics["world_model"]["cost_nusd"] == 4_000


@pytest.mark.parametrize("code", ["observation_bytes", "observation_empty", "output_length", "provider"])
def test_a_failed_answer_is_billed_and_leaves_the_session_usable(code):
    at, call, _, _ = CASES[code]()
    spent = refused(code, call).economics["world_model"]
    known = {"usage": {"input": 12, "output": 3}, "cost_nusd": 4_000, "basis": "observed", "latency_ns": 0}
    unknown = {"usage": None, "cost_nusd": None, "basis": "unknown", "latency_ns": 0}
    assert spent == (unknown if code == "provider" else known)
    at.model.answer = "Fine."
    assert at.session.step("Hi.").message["content"] == "Fine."


@pytest.mark.parametrize("code", ["no_support", "no_precedent"])
def test_a_refused_turn_is_kept_with_its_error(code):
    _, call, _, _ = CASES[code]()
    error = refused(code, call)
    assert error.turn is not None
    assert (error.turn.refused, error.turn.prediction) == (code, None)
    assert error.economics["world_model"]["cost_nusd"] == 0


def test_an_error_of_another_kind_leaves_the_session_usable():
    at = stage(Told(ZeroDivisionError()))
    before = at.seen()
    with pytest.raises(ZeroDivisionError):
        at.session.step("Hi.")
    assert at.seen() == before
    at.model.answer = "Fine."
    assert at.session.step("Hi.").turn.prediction == "Fine."


@pytest.mark.parametrize(
    ("code", "task", "context"),
    [
        ("empty", " ", None),
        ("not_text", 7, None),
        ("not_text", "\ud800", None),
        ("not_text", "a task", b"Be kind."),
        ("empty", "a task", ""),
    ],
)
def test_a_task_and_a_context_are_texts(code, task, context):
    at = stage()
    before = at.seen()
    refused(code, lambda: at.sessions.open(task, context=context, view=VIEW, world_model=Told()))
    assert at.seen() == before


@pytest.mark.parametrize("wrong", [{"k": 0}, {"refuse_below": "D"}, {"refuse_below": "b"}])
def test_a_session_that_could_not_be_asked_is_not_opened(wrong):
    at = stage()
    with pytest.raises(UsageError, match=next(iter(wrong))):
        at.sessions.open("a task", view=VIEW, world_model=Told(), **wrong)
    assert at.sessions.counts()["active"] == 1


def test_an_id_is_never_given_twice():
    sessions = Sessions(clock=Clock(), new_id=lambda: "same")
    sessions.open("a task", view=VIEW, world_model=Told())
    with pytest.raises(UsageError, match="'same' twice"):
        sessions.open("a task", view=VIEW, world_model=Told())


def test_ids_are_opaque_and_of_128_bits():
    at = stage()
    assert len(bytes.fromhex(at.session.id)) == 16
    assert at.session.id != at.session.fork().id


def test_the_gauges_are_every_limit_in_order_with_what_is_used():
    at = stage(Told("ünf"))
    at.session.step("Hi.")
    at.clock.advance(7)
    used = {gauge.name: gauge.used for gauge in at.session.gauges()}
    assert used == {
        "active_sessions": 1,
        "idle_ns": 7,
        "messages": 2,
        "transcript_bytes": 7,
        "observation_bytes": 4,
        "task_bytes": 8,
        "context_bytes": 8,
        "output_tokens": 1,
    }
    assert [*used, "tombstones"] == list(Limits.__struct_fields__)
    assert [gauge.limit for gauge in at.session.gauges()] == [getattr(Limits(), name) for name in used]


# The state table, row by row.


def test_open_a_terminal_answer_is_given_and_then_the_transcript_is_gone_and_the_slot_free():
    at = stage(Told("Bye.", terminal=True), active_sessions=1)
    step = at.session.step("Hi.")
    assert (step.message["content"], step.terminal, at.session.state) == ("Bye.", True, "terminal")
    assert at.sessions.counts() == {"active": 0, "in_flight": 0, "expired": 0, "ended": 0, "terminal": 1}
    at.sessions.open("another", view=VIEW, world_model=Told())


def test_open_a_fork_has_the_same_past_and_a_life_of_its_own():
    at = stage()
    at.session.step("Hi.")
    at.clock.advance(HOUR - 1)
    fork = at.session.fork()
    assert (fork.transcript, fork.gauges()[2:]) == (at.session.transcript, at.session.gauges()[2:])
    fork.step("And now?")
    assert (len(fork.transcript), len(at.session.transcript)) == (4, 2)
    at.clock.advance(1)
    assert (at.session.state, fork.state) == ("expired", "open")


def test_open_too_long_idle_is_expired_and_not_a_nanosecond_earlier():
    at = stage(active_sessions=1)
    at.clock.advance(HOUR - 1)
    assert at.session.state == "open"
    at.clock.advance(1)
    at.sessions.open("another", view=VIEW, world_model=Told())  # the slot is free without anybody looking
    assert at.session.state == "expired"


def test_open_too_long_idle_is_expired_even_when_ending_it_is_what_notices():
    at = stage()
    at.clock.advance(HOUR)
    at.session.end()
    assert at.session.state == "expired"


def test_expiry_is_refreshed_by_accepted_steps_only():
    at = stage()
    at.clock.advance(HOUR - 1)
    at.session.step("Hi.")
    at.clock.advance(HOUR - 1)
    refused("empty", lambda: at.session.step(""))
    at.model.answer = ""
    refused("observation_empty", lambda: at.session.step("Hi."))
    at.session.gauges(), at.session.fork(), at.sessions.get(at.session.id)
    at.clock.advance(1)
    refused("expired", lambda: at.session.step("Hi."))


def stepping(at: Stage) -> Any:
    """A step in flight, in a thread of its own, waiting for its world model."""
    pool = ThreadPoolExecutor(1)
    flight = pool.submit(at.session.step, "Hi.")
    assert at.model.asked.wait(10)
    pool.shutdown(wait=False)
    return flight


def test_in_flight_a_second_step_is_busy_and_nothing_changed():
    at = stage(Waiting())
    flight, before = stepping(at), at.seen()
    refused("busy", lambda: at.session.step("Me too."))
    assert (at.seen(), at.view.searches, at.session.state) == (before, 1, "in_flight")
    at.model.go.set()
    assert flight.result(10).message["content"] == "Number 9."
    assert (at.session.state, len(at.session.transcript)) == ("open", 2)


def test_in_flight_a_fork_holds_what_was_accepted():
    at = stage(Waiting())
    flight = stepping(at)
    assert at.session.fork().transcript == ()
    at.model.go.set()
    assert flight.result(10).terminal is False


def test_in_flight_a_session_is_never_evicted_and_an_accepted_answer_refreshes_it():
    at = stage(Waiting())
    flight = stepping(at)
    at.clock.advance(2 * HOUR)
    assert at.sessions.counts() == {"active": 1, "in_flight": 1, "expired": 0, "ended": 0, "terminal": 0}
    at.model.go.set()
    assert flight.result(10).message["content"] == "Number 9."
    at.clock.advance(HOUR - 1)
    assert at.session.state == "open"


def test_in_flight_a_failure_refreshes_nothing():
    at = stage(Waiting(""))
    flight = stepping(at)
    at.clock.advance(2 * HOUR)
    at.model.go.set()
    refused("observation_empty", lambda: flight.result(10))
    assert at.session.state == "expired"


def test_in_flight_an_ended_session_takes_no_answer_and_says_what_it_cost():
    at = stage(Waiting())
    flight = stepping(at)
    at.session.end()
    at.model.go.set()
    error = refused("ended", lambda: flight.result(10))
    assert error.economics["world_model"]["cost_nusd"] == 4_000
    assert at.sessions.counts() == {"active": 0, "in_flight": 0, "expired": 0, "ended": 1, "terminal": 0}


@pytest.mark.parametrize("code", GONE)
def test_gone_everything_is_refused_by_its_reason_and_ending_changes_nothing(code):
    at, step, _, _ = CASES[code]()
    session = at.session
    for call in (step, session.fork, session.gauges, session.export, lambda: session.transcript):
        refused(code, call)
    refused(code, lambda: at.sessions.get(session.id))
    before = at.seen(gone=True)
    session.end()
    at.clock.advance(HOUR)
    assert at.seen(gone=True) == before


def test_forgotten_an_older_id_is_unknown():
    at = stage(tombstones=2)
    for _ in range(2):
        at.session.fork().end()
    at.session.end()
    assert at.session.state == "ended"
    at.sessions.open("another", view=VIEW, world_model=Told()).end()
    at.sessions.open("another", view=VIEW, world_model=Told()).end()
    assert at.session.state == "unknown"
    refused("unknown", lambda: at.session.step("Hi."))
    at.session.end()
    assert at.session.state == "unknown"


def test_the_state_is_refused_before_the_message():
    at = stage()
    at.session.end()
    refused("ended", lambda: at.session.step(""))


def test_expired_ended_terminal_and_unknown_read_differently():
    told = {str(refused(code, CASES[code]()[1])) for code in (*GONE, "unknown")}
    assert len(told) == 4


def test_a_session_is_found_by_its_id_and_ends_with_its_block():
    at = stage()
    with at.sessions.get(at.session.id) as same:
        same.step("Hi.")
        assert at.session.transcript == same.transcript
    assert at.session.state == "ended"


# Threads.


def test_of_many_threads_that_open_exactly_as_many_succeed_as_there_are_slots():
    sessions = Sessions(clock=Clock())

    def opened(_: int) -> str:
        try:
            return sessions.open("a task", view=VIEW, world_model=CopyNearest()).id
        except SessionError as error:
            return error.code

    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(opened, range(300)))
    assert ids.count("session_limit") == 44
    assert len(set(ids)) == 257
    assert sessions.counts()["active"] == 256


def test_sessions_in_threads_give_the_turns_that_they_give_alone():
    sessions = Sessions(clock=Clock())
    said = ("Which order is it?", "Where to?", "Is that all?")

    def turns(_: int) -> list[str]:
        with sessions.open("a parcel", view=VIEW, world_model=CopyNearest()) as session:
            return [digest(session.step(text).turn) for text in said]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(turns, range(24))) == [turns(0)] * 24


def test_of_many_threads_that_step_one_session_each_is_answered_or_busy():
    at = stage()

    def stepped(_: int) -> str:
        try:
            return at.session.step("Hi.").message["content"]
        except SessionError as error:
            return error.code

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(stepped, range(60)))
    assert set(results) <= {"Number 9.", "busy"}
    assert len(at.session.transcript) == 2 * results.count("Number 9.")


# What is left behind.


def test_a_session_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    at = stage(CopyNearest())
    at.session.step("Which order is it?")
    at.session.fork().end()
    at.session.export()
    at.session.step("It is refunded.")
    assert at.session.state == "terminal"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("code", GONE)
def test_what_is_gone_leaves_its_id_and_the_reason_and_no_text(code):
    at, call, _, _ = CASES[code]()
    refused(code, call)
    left = repr(vars(at.sessions))
    assert at.session.id in left
    assert code in left
    assert not [text for text in ("a refund", "Be kind.", "Hi.", "Number 9.") if text in left]


def test_an_export_says_first_that_it_is_generated_and_then_gives_the_conversation():
    at = stage(CopyNearest())
    step = at.session.step(HELLO)
    header, conversation = map(json.loads, at.session.export().splitlines())
    assert (header["generated"], header["world_model"]) == ("session", "copy-nearest@1")
    assert header["turns"][0]["receipt"] == step.turn.receipt
    assert [message["role"] for message in conversation["messages"]] == ["system", "user", "assistant", "user"]
    assert conversation["messages"][2:] == [HELLO, step.message]


def test_observed_only_an_export_that_is_imported_as_recorded_is_a_simulated_environment(tmp_path):
    at = stage(CopyNearest())
    at.session.step(HELLO)
    path = tmp_path / "export.jsonl"
    path.write_bytes(at.session.export())
    (source,) = import_files(tmp_path / ".lab", [path], Declared(origin="recorded")).sources
    assert (source.origin, source.format) == ("simulated_environment", "openai_chat")


def test_same_inputs_same_bytes_in_an_export_whatever_the_id_and_the_clock():
    one, other = stage(CopyNearest()), stage(CopyNearest())
    other.clock.advance(5)
    for at in (one, other):
        at.session.step(HELLO)
    assert one.session.export() == other.session.export()
    assert one.session.id.encode() not in one.session.export()


def test_economics_add_up_to_the_time_of_the_step():
    at = stage()
    at.clock.tick_ns = 1
    begin = at.clock.now_ns
    spent = [each["latency_ns"] for each in at.session.step("Hi.").economics.values()]
    assert sum(spent) == at.clock.now_ns - begin - 1
    assert min(spent) > 0


def test_two_clients_a_fork_shares_the_environment_and_no_transcript():
    at = stage()
    fork = at.session.fork()
    at.session.step("Hi.")
    assert (fork.transcript, at.model.dispatches) == ((), 1)
