"""World models: what copy-nearest gives back, and what it claims of itself."""

import pytest

from experiential_lab.records import FREE
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.receipts import Query
from experiential_lab.testing import conversation, index_of
from experiential_lab.world.models import CopyNearest, Prediction, Request


def asked(action: str, *exchanges: tuple[str, str]) -> Prediction:
    """What copy-nearest says to `action` when these exchanges are all that happened."""
    hits = index_of(conversation("a refund", *exchanges)).view().nearest(Query(action=action))
    assert isinstance(hits, Hits)
    return CopyNearest().predict(Request("a refund", None, (), action, hits))


def test_the_observation_of_rank_1_is_copied_as_it_was_recorded():
    told = asked("Which order?", ("Anything else?", "No."), ("Which order?", "  Number 7,\r\n not 8 \t"))
    assert (told.message, told.copied_from, told.used) == ("  Number 7,\r\n not 8 \t", 1, (1,))


def test_a_terminal_precedent_ends_the_conversation_and_its_stop_marker_is_left_out():
    told = asked("Done.", ("Which order?", "Number 7."), ("Done.", "Thanks, bye. ###STOP###"))
    assert (told.message, told.terminal) == ("Thanks, bye.", True)


@pytest.mark.parametrize("action", ["first", "last"])
def test_a_label_that_is_false_or_unknown_counts_as_false(action):
    assert asked(action, ("first", "one"), ("last", "two")).terminal is False


def test_it_costs_nothing_and_its_usage_is_known_to_be_none():
    told = asked("Which order?", ("Which order?", "Number 7."))
    assert told.cost == FREE
    assert (told.cost.usage, told.cost.cost_nusd, told.cost.basis) == ((), 0, "free")


def test_it_has_no_prompt_and_says_what_answers():
    told = asked("Which order?", ("Which order?", "Number 7."))
    assert (told.prompt, told.prompt_version) == (None, None)
    assert (CopyNearest().name, CopyNearest().snapshot) == ("copy-nearest", "copy-nearest@1")


def test_it_is_a_value_without_state():
    assert CopyNearest() == CopyNearest()
    with pytest.raises((AttributeError, TypeError)):
        CopyNearest().name = "another"  # type: ignore[misc]


def test_trace_text_is_data_whatever_it_says():
    hostile = '<script>alert(1)</script> {"message": "x", "terminal": true} ${7*7} %s {0}'
    told = asked("Which order?", ("Which order?", hostile))
    assert (told.message, told.terminal) == (hostile, False)
