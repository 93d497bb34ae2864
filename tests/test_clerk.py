"""The clerk understands the sentences that it names, says all that the desk returned, and ends a case by the database."""

import json
import re
from contextlib import closing
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from experiential_lab.evaluation.candidates import GRADED, play
from experiential_lab.evaluation.clerk import (
    ACCEPTED,
    NOT_UNDERSTOOD,
    PROTOCOL,
    REFUSED,
    REQUESTS,
    VOLATILE_TEXT,
    Clerk,
    read_reply,
    read_request,
    write_reply,
    write_request,
)
from experiential_lab.evaluation.oracle import PARAMETERS, VOLATILE, Desk
from experiential_lab.evaluation.tasks import make_tasks

TASKS = make_tasks(26, 7)


def answers() -> list[tuple[str, Any]]:
    """(tool, answer) of everything that the candidates asked of the desk by tools."""
    found = []
    for task in TASKS:
        for trial, who in enumerate(GRADED):
            messages = play(task, who, trial=trial).messages
            found += [(m["name"], json.loads(m["content"])) for m in messages if m["role"] == "tool"]
    return found


ANSWERS = answers()


def test_the_clerk_says_all_that_the_desk_returned():
    assert {tool for tool, _ in ANSWERS} == set(PARAMETERS)
    for tool, answer in ANSWERS:
        assert read_reply(tool, write_reply(tool, answer)) == answer


def test_every_request_that_is_written_is_understood():
    arguments = {
        "order_id": "W-12345",
        "customer_id": "C-1000",
        "email": "zoë.kovács@example.org",
        "words": "blue stoneware mug",
        "ship_to": "1 Mill Lane, 20110 Northport",
        "sku": "MUG-BLU",
        "new_sku": "MUG-GRN",
        "topic": "lost_parcel",
        "note": "parcel P10 had no scan for 6 days",
        "status": "shipped",
    }
    for tool, schema in PARAMETERS.items():
        names = [name for name in schema["properties"] if tool != "find_customer" or name == "email"]
        given = {name: schema["properties"][name].get("enum", [arguments.get(name)])[-1] for name in names}
        for lead in ("", "Please do this. ", "HELLO: "):
            assert read_request(lead + write_request(tool, given)) == (tool, given)
    assert read_request("please FIND the customer with the name Ada Abel.") == ("find_customer", {"name": "Ada Abel"})
    assert read_request("List the orders of C-1.") == ("list_orders", {"customer_id": "C-1"})


def test_the_protocol_names_every_sentence():
    for sentences in REQUESTS.values():
        for sentence in sentences.split(" | "):
            assert re.sub(r"{(\w+)}", r"<\1>", sentence) in PROTOCOL.split("\n")


@pytest.mark.parametrize("message", ["", "Where is it?", "Show order", "Refund it.", "Submitted"])
def test_what_the_clerk_does_not_understand_changes_nothing_and_settles_nothing(message):
    with closing(Desk(TASKS[0].desk_seed)) as desk:
        before = list(desk.db.iterdump())
        clerk = Clerk(desk, TASKS[0])
        assert clerk.answer(message) == NOT_UNDERSTOOD
        assert (clerk.accepted, list(desk.db.iterdump())) == (None, before)


def test_a_submission_is_judged_by_the_database_and_not_by_its_words():
    task = next(task for task in TASKS if task.kind == "cancel")
    with closing(Desk(task.desk_seed)) as desk:
        clerk = Clerk(desk, task)
        assert clerk.answer("Submit: I cancelled it, I swear.") == REFUSED
        assert clerk.accepted is False
        assert "cents go back" in clerk.answer(f"Cancel order {task.facts['number']} with the reason too slow.")
        assert clerk.answer("submit: x") == ACCEPTED
        assert clerk.accepted is True


def test_a_reply_of_another_tool_is_refused_with_its_text():
    with pytest.raises(ValueError, match=r"no reply to get_order: 'Nice weather\.'"):
        read_reply("get_order", "Nice weather.")


@given(st.text())
def test_no_message_makes_the_clerk_raise(message):
    with closing(Desk(1)) as desk:
        assert Clerk(desk, TASKS[0]).answer(message)


def test_what_looks_volatile_in_a_sentence_is_exactly_what_stands_in_volatile_fields():
    def volatile(answer: Any) -> list[str]:
        if isinstance(answer, list):
            return [text for each in answer for text in volatile(each)]
        if not isinstance(answer, dict):
            return []
        return [text for name, value in answer.items() for text in ([value] if name in VOLATILE else volatile(value))]

    for tool, answer in ANSWERS:
        assert sorted(re.findall(VOLATILE_TEXT, write_reply(tool, answer))) == sorted(volatile(answer))
