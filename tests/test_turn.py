"""One grounded turn: its order, its refusals, its receipts and its costs."""

import pytest

from experiential_lab.evidence.trace import Action
from experiential_lab.records import FREE, Cost, ProviderError, Unverifiable, UsageError, canonical_bytes
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.receipts import DispositionReceipt, UseReceipt, verify, verify_use
from experiential_lab.retrieval.views import Exclusion
from experiential_lab.testing import Clock, conversation, index_of
from experiential_lab.world.models import CopyNearest, Message, Prediction, Request
from experiential_lab.world.turn import Setting, Taken, take_turn

INDEX = index_of(
    conversation("a refund", ("Which order is it?", "Number 7."), ("It is refunded.", "Thanks. ###STOP###")),
    conversation("a parcel", ("Where should it go?", "To Bern."), ("Is that all?", "Yes.")),
)
PAID = Cost(usage=(("input", 12), ("output", 3)), cost_nusd=4_000, basis="observed")
SAID = (Message(role="assistant", content="Hello."), Message(role="user", content="My parcel is late."))


class Told:
    """A world model that says what it was told to say."""

    name = "told"
    snapshot = "told@1"

    def __init__(self, answer: str | Exception, *, used: tuple[int, ...] = (1, 2), cost: Cost = PAID) -> None:
        self.answer, self.used, self.cost = answer, used, cost
        self.requests: list[Request] = []

    def predict(self, request: Request) -> Prediction:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return Prediction(
            message=self.answer,
            terminal=False,
            used=self.used,
            unused="prompt_budget",
            prompt_version="told-1",
            prompt="sha256:" + 64 * "0",
            cost=self.cost,
        )


class Slow(Told):
    """One that lets time pass."""

    def __init__(self, clock: Clock, duration_ns: int) -> None:
        super().__init__("Number 9.")
        self.clock, self.duration_ns = clock, duration_ns

    def predict(self, request: Request) -> Prediction:
        self.clock.advance(self.duration_ns)
        return super().predict(request)


def turned(action="Which order is it?", *, model=None, said=(), exclude=(), refuse_below=None, clock=None) -> Taken:
    setting = Setting("a refund", "Be kind.", INDEX.view(exclude=exclude), model or CopyNearest(), 3, refuse_below)
    return take_turn(setting, said, action, clock=clock or Clock())


EVERYTHING = tuple(Exclusion(level="observation_kind", value=kind) for kind in ("user_reply", "tool_result"))


def test_the_query_is_the_task_the_last_observation_and_the_action_and_never_the_context():
    first, later = turned().hits, turned(said=SAID).hits
    assert isinstance(first, Hits)
    assert isinstance(later, Hits)
    query = first.receipt.query
    assert (query.task, query.recent, query.action) == ("a refund", None, "Which order is it?")
    assert later.receipt.query.recent == "My parcel is late."
    assert b"Be kind." not in canonical_bytes(later.receipt)


def test_the_world_model_sees_task_context_transcript_action_and_hits():
    model = Told("Number 9.")
    taken = turned(model=model, said=SAID)
    assert model.requests == [Request("a refund", "Be kind.", SAID, "Which order is it?", taken.hits)]


def test_the_turn_names_its_receipt_its_model_and_its_prompt():
    taken = turned(model=Told("Number 9."))
    assert isinstance(taken.hits, Hits)
    assert verify(taken.hits.receipt).receipt == taken.turn.receipt
    assert (taken.turn.prediction, taken.turn.world_model, taken.turn.prompt_version) == (
        "Number 9.",
        "told@1",
        "told-1",
    )
    assert (taken.turn.prompt, taken.turn.copied_from) == ("sha256:" + 64 * "0", None)


def test_copying_has_no_prompt_and_names_the_rank():
    turn = turned("It is refunded.").turn
    assert (turn.prediction, turn.terminal, turn.copied_from) == ("Thanks.", True, 1)
    assert (turn.prompt, turn.prompt_version, turn.support) == (None, None, "A")


def test_law_7_refuse_before_acting_without_an_eligible_precedent():
    model = Told("Number 9.")
    taken = turned(model=model, exclude=EVERYTHING)
    assert taken.hits == Unverifiable(reason="empty view")
    assert (taken.turn.refused, taken.turn.support, taken.turn.receipt) == ("no_precedent", "D", None)
    assert (taken.turn.prediction, taken.uses, model.requests) == (None, (), [])


@pytest.mark.parametrize(
    ("action", "support", "refusing"),
    [
        ("which  ORDER is it?", "A", ()),
        ("Which order was it?", "B", ("A",)),
        ("Zebra.", "C", ("A", "B")),
    ],
)
def test_refuse_below_a_letter_refuses_every_later_letter_and_no_other(action, support, refusing):
    for letter in ("A", "B", "C", None):
        turn = turned(action, refuse_below=letter).turn
        assert (turn.support, turn.refused) == (support, "no_support" if letter in refusing else None)


def test_support_d_with_hits_is_refused_below_c_and_answered_without_a_rule():
    tools = conversation("a desk", (Action(tool="find", arguments='{"id": 7}'), "[]"), kind="tool_result")
    setting = Setting("a refund", None, index_of(tools).view(), CopyNearest(), 3, "C")
    assert take_turn(setting, (), "Hello?", clock=Clock()).turn.refused == "no_support"
    turn = take_turn(setting._replace(refuse_below=None), (), "Hello?", clock=Clock()).turn
    assert (turn.support, turn.refused, turn.prediction) == ("D", None, "[]")


def test_law_7_a_refusal_comes_after_retrieval_and_before_dispatch():
    model = Told("Number 9.")
    taken = turned("Zebra.", model=model, refuse_below="A")
    assert isinstance(taken.hits, Hits)
    assert taken.turn.receipt == taken.hits.receipt.receipt_digest
    assert (taken.turn.prediction, model.requests) == (None, [])
    assert dict(taken.turn.costs)["world_model"] == FREE


def test_each_rank_has_one_use_or_one_no_use_and_both_agree_with_the_retrieval():
    taken = turned(model=Told("Number 9."))
    kinds = [(use.rank, type(use)) for use in taken.uses]
    assert kinds == [(1, UseReceipt), (2, UseReceipt), (3, DispositionReceipt)]
    assert taken.uses[2].reason == "prompt_budget"
    assert taken.uses[0].consumer.digest == taken.turn.prompt
    for use in taken.uses:
        assert verify_use(use, taken.hits.receipt).receipt == use.receipt_digest


def test_a_copy_uses_rank_1_and_says_why_not_the_others():
    uses = turned().uses
    assert [(use.rank, getattr(use, "relation", None), getattr(use, "reason", None)) for use in uses] == [
        (1, "supports", None),
        (2, None, "not_nearest"),
        (3, None, "not_nearest"),
    ]


def test_after_a_refusal_every_rank_says_that_it_was_not_used():
    uses = turned("Zebra.", refuse_below="A").uses
    assert [(use.rank, use.reason) for use in uses] == [(rank, "no_support") for rank in (1, 2, 3)]


def test_a_model_cannot_rest_on_a_rank_that_was_not_retrieved():
    with pytest.raises(UsageError, match="rank 9"):
        turned(model=Told("Number 9.", used=(1, 9)))


def test_law_9_unknown_is_not_zero_when_the_provider_fails():
    taken = turned(model=Told(ProviderError("status 500")))
    assert taken.turn.failure.detail == "status 500"
    assert (taken.turn.failure.code, taken.turn.failure.attribution) == ("provider", "world_model")
    assert (taken.turn.prediction, taken.turn.refused, taken.uses) == (None, None, ())
    assert dict(taken.turn.costs) == {"world_model": Cost(), "retrieval": FREE, "orchestration": FREE}


def test_a_prediction_that_is_no_unicode_is_a_failure_and_is_billed():
    turn = turned(model=Told("Number \ud800")).turn
    assert turn.failure.detail == "the predicted text is no Unicode at character 7"
    assert (turn.prediction, dict(turn.costs)["world_model"]) == (None, PAID)


def test_an_error_that_is_no_provider_error_is_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        turned(model=Told(ZeroDivisionError()))


def test_costs_stand_apart_by_component_and_an_absent_candidate_is_absent():
    assert turned(model=Told("Number 9.")).turn.costs == (
        ("world_model", PAID),
        ("retrieval", FREE),
        ("orchestration", FREE),
    )


def test_latency_is_measured_by_component():
    clock = Clock(tick_ns=10)
    spent = turned(model=Slow(clock, 500), clock=clock).latency_ns
    assert spent == {"world_model": 510, "retrieval": 10, "orchestration": 20}


def test_a_refused_turn_spent_no_time_in_the_world_model():
    spent = turned("Zebra.", refuse_below="A", clock=Clock(tick_ns=10)).latency_ns
    assert spent == {"world_model": 0, "retrieval": 10, "orchestration": 20}


def test_same_inputs_same_bytes_whatever_the_clock_says():
    one, other = turned(clock=Clock(5)), turned(clock=Clock(10**15, tick_ns=7))
    assert canonical_bytes(one.turn) == canonical_bytes(other.turn)
    assert one.uses == other.uses


def test_an_action_that_says_nothing_is_refused_before_the_search():
    model = Told("Number 9.")
    with pytest.raises(UsageError, match="needs some text"):
        turned(" \n", model=model)
    assert model.requests == []
