"""Pieces of HTML hold foreign text as text; a stepper sends once; a receipt's panel never passes what it did not check."""

from html.parser import HTMLParser

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiential_lab.records import UsageError
from experiential_lab.retrieval.receipts import Query
from experiential_lab.show import plots, widgets
from experiential_lab.testing import Clock, conversation, index_of
from experiential_lab.world.models import CopyNearest
from experiential_lab.world.session import Gauge, Limits, SessionError, Sessions, text_exclusions

INDEX = index_of(
    conversation("a refund", ("Which order is it?", "Number 7."), ("It is refunded.", "Thanks. ###STOP###")),
    conversation("a parcel", ("Where should it go?", "To Bern."), ("Is that all?", "Yes.")),
)
OURS = {"div", "span", "table", "thead", "tbody", "tr", "th", "td", "b", "i", "p", "ul", "li"}
texts = st.text(st.sampled_from("<>&\"'$ab\n\0") | st.characters(codec="utf-8"), min_size=1, max_size=60)


class Page(HTMLParser):
    """The tags, the attributes and the text of a page, as a browser would read them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.names, self.text = set(), set(), ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.names |= {name for name, _ in attributes}

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def sessions():
    return Sessions(Limits(active_sessions=3, messages=6), clock=Clock())


@pytest.fixture
def stepper(sessions):
    view = INDEX.view(exclude=text_exclusions())
    return widgets.Stepper(sessions.open("a return", view=view, world_model=CopyNearest(), k=2))


def test_a_stepper_sends_a_message_once_however_often_it_is_drawn(stepper):
    stepper.say("Which order is it?")
    drawn = {widgets.futures_html(stepper) for _ in range(3)}
    assert len(drawn) == 1
    assert len(stepper.now.session.transcript) == 2
    assert stepper.title == "Step 1: answered from 2 precedents, support A"


def test_a_refused_message_stays_in_its_place_with_its_code(stepper):
    stepper.say("Which order is it?")
    move = stepper.say("  ")
    assert (move.step, move.refused.code) == (None, "empty")
    assert stepper.title == "Step 2 was refused (empty): nothing changed"
    page = Page(widgets.futures_html(stepper))
    assert "✗ refused empty" in page.text
    assert len(stepper.now.session.transcript) == 2


def test_an_earlier_move_can_be_looked_at_and_the_ends_hold(stepper):
    stepper.choose(-1)
    assert (stepper.now.chosen, stepper.move) == (0, None)
    first, _ = stepper.say("Which order is it?"), stepper.say("Is that all?")
    stepper.choose(-5)
    assert stepper.move is first
    stepper.choose(9)
    assert stepper.now.chosen == 2


def test_a_fork_has_the_same_past_and_a_future_of_its_own(stepper):
    stepper.say("Which order is it?")
    stepper.fork()
    stepper.say("Is that all?")
    stepper.switch()
    stepper.say("It is refunded.")
    first, fork = stepper.futures
    assert first.moves[0] is fork.moves[0]
    assert [future.session.state for future in stepper.futures] == ["terminal", "open"]
    assert Page(widgets.futures_html(stepper)).text.count("Which order is it?") == 1


def test_a_second_fork_ends_the_first_so_that_no_slot_is_lost(stepper, sessions):
    stepper.fork()
    stepper.switch()
    stepper.fork()
    assert (sessions.counts()["active"], stepper.notice) == (2, None)


def test_a_fork_of_an_ended_session_is_refused_beside_the_transcript(stepper):
    stepper.now.session.end()
    stepper.fork()
    assert stepper.notice.code == "ended"
    assert "✗ refused ended" in Page(widgets.futures_html(stepper)).text
    assert len(stepper.futures) == 1


def test_a_session_that_is_gone_has_no_gauges_and_says_its_state(stepper):
    assert {gauge.name for gauge in stepper.gauges()} >= {"messages", "transcript_bytes"}
    stepper.now.session.end()
    assert stepper.gauges() == ()
    assert "The session is ended" in widgets.gauges_html((), stepper.now.session.state)


def test_a_gauge_near_its_limit_says_so_and_the_fullest_stands_first():
    gauges = (
        Gauge(name="messages", used=1, limit=10, unit="messages"),
        Gauge(name="transcript_bytes", used=800, limit=1_000, unit="bytes"),
    )
    text = Page(widgets.gauges_html(gauges)).text
    assert text == "transcript800 B of 1000 B nearmessages1 of 10"


@given(texts)
@settings(max_examples=40)
def test_what_is_typed_or_recorded_is_shown_as_text(text):
    stepper = widgets.Stepper(
        Sessions(clock=Clock()).open(
            "a", view=index_of(conversation(text, (text, text))).view(), world_model=CopyNearest()
        )
    )
    move = stepper.say(text)
    row = {"tool": None, "arguments": None, "action": text, "observation": text, "task": text}
    row |= {"observation_kind": "user_reply", "pairing": "user_reply"}
    pieces = [widgets.futures_html(stepper), widgets.pair_html(row, text), widgets.heading_html(text, text)]
    pieces += [widgets.sentence_html(text), widgets.table_html(pl.DataFrame({"text": [text]}))]
    pieces += [widgets.hits_html(move.step.hits)] if move.step else []
    for page in map(Page, pieces):
        assert page.tags <= OURS
        assert page.names <= {"class", "title", "role", "aria-level", "aria-live", "style"}
    assert text.replace("\0", "␀") in Page(widgets.heading_html(text)).text


def test_a_digest_shows_eight_characters_and_the_whole_in_its_title(stepper):
    step = stepper.say("Which order is it?").step
    digest = step.receipt.receipt_digest
    page = widgets.futures_html(stepper)
    assert f'title="{digest}">{digest[7:15]}<' in page
    assert digest not in Page(page).text


def test_a_table_of_more_than_seven_columns_is_refused():
    with pytest.raises(UsageError, match="at most 7 columns, this one has 8"):
        widgets.table_html(pl.DataFrame({str(n): [n] for n in range(8)}))


def test_a_table_tells_unknown_free_and_empty_apart():
    frame = pl.DataFrame({"cost_nusd": [0, None], "text": ["", "x"], "basis": ["free", "unknown"]})
    assert Page(widgets.table_html(frame, null="unknown")).text == "costtextbasis$0empty resultfreeunknownxunknown"


def verdicts(receipt, snapshot):
    return {check.name: check.verdict for check in widgets.receipt_checks(receipt, snapshot)}


def test_the_receipts_panel_passes_only_what_was_checked():
    receipt = INDEX.view().nearest(Query(action="Which order is it?"), k=2).receipt
    assert verdicts(receipt, INDEX.snapshot) == {
        "shape": "✓",
        "digest": "✓",
        "join with snapshot": "✓",
        "snapshot artifact": "?",
    }
    assert verdicts(receipt, None)["join with snapshot"] == "?"


def test_a_receipt_whose_digest_is_wrong_fails_at_its_digest():
    receipt = INDEX.view().nearest(Query(action="Which order is it?"), k=2).receipt
    forged = msgspec.structs.replace(receipt, k=3)
    assert verdicts(forged, INDEX.snapshot) == {
        "shape": "✓",
        "digest": "✗",
        "join with snapshot": "✗",
        "snapshot artifact": "?",
    }
    told = Page(widgets.checks_html(widgets.receipt_checks(forged, None))).text
    assert "✗digest · receipt digest: the receipt says" in told


def test_a_missing_snapshot_is_unverifiable_in_words():
    receipt = INDEX.view().nearest(Query(action="Which order is it?"), k=2).receipt
    assert (
        "?join with snapshot · unverifiable: snapshot not found"
        in Page(widgets.checks_html(widgets.receipt_checks(receipt))).text
    )


def test_a_page_needs_no_network_and_a_trace_cannot_leave_its_script():
    hostile = "</script><script>alert(1)</script>"
    rows = [("self", 1, 5, "conversation", True, hostile, hostile, "t/1", 9, None)]
    finding = plots.plot_nearest(pl.DataFrame(rows, schema=plots.NEAREST, orient="row"))
    page = widgets.page_html("The walk", [finding])
    body = Page(page.rpartition("</head>")[2])
    assert body.tags <= OURS | {"body", "section", "script"}
    assert not body.names & {"src", "href", "onerror", "onload"}
    assert "<script>alert" not in page
    assert page == widgets.page_html("The walk", [finding])


def test_an_error_of_a_session_is_one_row_with_code_and_remedy():
    page = Page(widgets.refusal_html(SessionError("busy", "a step of this session is in flight; wait for its answer")))
    assert (
        page.text == "✗ refused busya step of this session is in flight; wait for its answerThe session is as before."
    )
