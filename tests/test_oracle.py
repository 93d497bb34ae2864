"""The order desk really runs: writes are seen by later reads, refusals change nothing, and calls never raise."""

import json
from contextlib import closing
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from experiential_lab.evaluation.oracle import ERRORS, PARAMETERS, Desk
from experiential_lab.evaluation.tasks import make_tasks

TASKS = make_tasks(24, 7)


def ask(desk: Desk, tool: str, **arguments: str) -> Any:
    return json.loads(desk.call(tool, json.dumps(arguments)))


def task_of(kind: str) -> tuple[Desk, dict[str, str]]:
    """A fresh desk in which somebody has such a task, and its facts."""
    task = next(task for task in TASKS if task.kind == kind)
    return Desk(task.desk_seed), task.facts


def everything(desk: Desk) -> list[str]:
    return list(desk.db.iterdump())


def test_a_cancelled_order_is_seen_by_a_later_read_and_goes_back_to_the_stock():
    desk, facts = task_of("cancel")
    with closing(desk):
        before = {row["sku"]: row["in_stock"] for row in ask(desk, "check_stock", words=facts["item"])}
        done = ask(desk, "cancel_order", order_id=facts["number"], reason="too_slow")
        order = ask(desk, "get_order", order_id=facts["number"])
        after = {row["sku"]: row["in_stock"] for row in ask(desk, "check_stock", words=facts["item"])}
    pieces = next(item["quantity"] for item in order["items"] if item["sku"] == facts["sku"])
    assert (order["status"], done["status"]) == ("cancelled", "cancelled")
    assert [note["what"] for note in order["history"]] == ["cancelled: too_slow"]
    assert after == {facts["sku"]: before[facts["sku"]] + pieces}


def test_an_exchange_and_a_new_address_are_seen_by_a_later_read():
    desk, facts = task_of("swap")
    with closing(desk):
        (before,) = ask(desk, "check_stock", words=facts["new_name"])
        ask(desk, "exchange_item", order_id=facts["number"], sku=facts["sku"], new_sku=facts["new_sku"])
        (after,) = ask(desk, "check_stock", words=facts["new_name"])
        items = ask(desk, "get_order", order_id=facts["number"])["items"]
        (item,) = [item for item in items if item["sku"] == facts["sku"]]
    assert (item["state"], before["in_stock"] - after["in_stock"]) == ("exchanged", item["quantity"])
    desk, facts = task_of("move")
    with closing(desk):
        ask(desk, "change_address", order_id=facts["number"], ship_to="1 New Road")
        assert ask(desk, "get_order", order_id=facts["number"])["ship_to"] == "1 New Road"


REFUSALS = (
    ("cancel", "sing", {}, "unknown_tool"),
    ("cancel", "get_order", {}, "bad_argument"),
    ("cancel", "find_customer", {}, "bad_argument"),
    ("cancel", "list_orders", {"customer_id": "C-1"}, "unknown_customer"),
    ("cancel", "get_order", {"order_id": "W-1"}, "unknown_order"),
    ("cancel", "track_parcel", {"order_id": "{number}"}, "wrong_state"),
    ("cancel", "refund_item", {"order_id": "{number}", "sku": "{sku}", "reason": "broken"}, "wrong_state"),
    ("cancel_shipped", "cancel_order", {"order_id": "{number}", "reason": "too_slow"}, "not_cancellable"),
    ("move_packed", "change_address", {"order_id": "{number}", "ship_to": "1 New Road"}, "not_changeable"),
    ("refund", "refund_item", {"order_id": "{number}", "sku": "no", "reason": "broken"}, "unknown_item"),
    ("refund", "exchange_item", {"order_id": "{number}", "sku": "{sku}", "new_sku": "no"}, "unknown_product"),
    ("refund_late", "refund_item", {"order_id": "{number}", "sku": "{sku}", "reason": "broken"}, "window_closed"),
    ("refund_again", "refund_item", {"order_id": "{number}", "sku": "{sku}", "reason": "broken"}, "already_returned"),
    (
        "swap_sold_out",
        "exchange_item",
        {"order_id": "{number}", "sku": "{sku}", "new_sku": "{new_sku}"},
        "out_of_stock",
    ),
)


@pytest.mark.parametrize(("kind", "tool", "arguments", "code"), REFUSALS)
def test_what_the_desk_cannot_do_is_an_answer_with_its_code_and_changes_nothing(kind, tool, arguments, code):
    desk, facts = task_of(kind)
    with closing(desk):
        before = everything(desk)
        answer = ask(desk, tool, **{name: value.format(**facts) for name, value in arguments.items()})
        assert (answer["error"], everything(desk)) == (code, before)
    assert answer.keys() == {"error", "detail"}


def test_every_error_code_has_a_refusal_above():
    assert {code for *_, code in REFUSALS} == set(ERRORS)


@pytest.mark.parametrize("tool", PARAMETERS)
def test_the_declared_arguments_are_what_the_desk_takes(tool):
    properties, required = PARAMETERS[tool]["properties"], PARAMETERS[tool]["required"]
    given = {name: schema.get("enum", ["x"])[0] for name, schema in properties.items()}
    with closing(Desk(1)) as desk:
        assert '"bad_argument"' not in desk.call(tool, json.dumps(given))
        assert ask(desk, tool, **given, more="x")["error"] == "bad_argument"
        for name in required:
            assert (
                ask(desk, tool, **{key: value for key, value in given.items() if key != name})["error"]
                == "bad_argument"
            )
        for name, schema in properties.items():
            for wrong in ("", 7, None, ["x"], "x" * 201, "\ud800", *(["x"] if "enum" in schema else [])):
                assert ask(desk, tool, **{**given, name: wrong})["error"] == "bad_argument"


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=3)
arguments = st.one_of(
    st.text(),
    st.dictionaries(st.sampled_from(["order_id", "customer_id", "email", "words", "\ud800"]), json_values).map(
        json.dumps
    ),
    st.sampled_from(
        ["[" * 100_000, '{"words": "\\ud800"}', '{"words": "\\u0000"}', '{"order_id": 1' + "0" * 5000 + "}"]
    ),
)


@given(tool=st.sampled_from([*PARAMETERS, "call", "db", "", "_rows", "\ud800"]), text=arguments)
def test_a_call_never_raises_and_answers_in_json_that_can_be_written(tool, text):
    with closing(Desk(1)) as desk:
        answer = json.loads(desk.call(tool, text).encode())
    assert isinstance(answer, list | dict)
