"""The order desk really runs, its file is what it returned, and its tasks and candidates are what the README says."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from experiential_lab.evaluation.oracle import (
    CANDIDATES,
    ERRORS,
    KINDS,
    MOST_FAMILIES,
    PARAMETERS,
    TOOLS,
    VOLATILE,
    Desk,
    make_desk_tools,
    make_tasks,
    play,
)
from experiential_lab.records import digest_of

DATA = Path(__file__).parent.parent / "data"
FILE = (DATA / "desk_tools.jsonl").read_bytes()
CHATS = [json.loads(line) for line in FILE.split(b"\n")[:-1]]
MESSAGES = [message for chat in CHATS for message in chat["messages"]]
CALLS = [call for message in MESSAGES for call in message.get("tool_calls", ())]
RESULTS = [json.loads(message["content"]) for message in MESSAGES if message["role"] == "tool"]
TASKS = make_tasks(24, 7)
EPISODES = [play(task, who, trial=n) for task in TASKS for n, who in enumerate(CANDIDATES)]


def ask(desk: Desk, tool: str, **arguments: str) -> Any:
    return json.loads(desk.call(tool, json.dumps(arguments)))


def task_of(kind: str) -> tuple[Desk, dict[str, str]]:
    """A fresh desk in which somebody has such a task, and its facts."""
    task = next(task for task in TASKS if task.kind == kind)
    return Desk(task.desk_seed), task.facts


def everything(desk: Desk) -> list[str]:
    return list(desk.db.iterdump())


def shingles(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return set(zip(words, words[1:], words[2:], strict=False))


def jaccard(one: set[Any], other: set[Any]) -> float:
    return len(one & other) / len(one | other)


def calls_of(chat: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(tool, arguments, the text that answered) of every call, in order."""
    answers = {m["tool_call_id"]: m["content"] for m in chat["messages"] if m["role"] == "tool"}
    for message in chat["messages"]:
        for call in message.get("tool_calls", ()):
            yield call["function"]["name"], call["function"]["arguments"], answers[call["id"]]


# --- the file


def test_the_bundled_file_is_made_again_byte_for_byte():
    assert make_desk_tools() == FILE


def test_the_readme_states_the_digest_and_the_counts_of_the_file():
    readme = (DATA / "README.md").read_text()
    rows = dict(re.findall(r"^\| ([\w ]+) \| (\d+) \|$", readme, re.M))
    errors = Counter(result["error"] for result in RESULTS if "error" in result)
    reached = Counter(episode.candidate for episode in EPISODES if episode.reached)
    counts = {
        "families": len({chat["metadata"]["task_id"] for chat in CHATS}),
        "episodes": len(CHATS),
        "messages": len(MESSAGES),
        "calls": len(CALLS),
        "errors": errors.total(),
        "empty lists": RESULTS.count([]),
        "turns with two calls": sum(len(message.get("tool_calls", ())) == 2 for message in MESSAGES),
        "calls with text beside them": sum(bool(m.get("tool_calls") and m["content"]) for m in MESSAGES),
        "bytes": len(FILE),
    }
    assert rows == {key: str(value) for key, value in (counts | errors | reached).items()}
    assert digest_of(FILE) in readme


def test_every_tool_message_of_the_file_is_returned_again_by_a_fresh_desk():
    for chat in CHATS:
        with closing(Desk(chat["metadata"]["desk_seed"], trial=chat["metadata"]["trial"])) as desk:
            assert [answer for *_, answer in calls_of(chat)] == [
                desk.call(tool, text) for tool, text, _ in calls_of(chat)
            ]


def test_a_processs_hash_seed_changes_no_byte():
    code = "import hashlib, experiential_lab.evaluation.oracle as o; print(hashlib.sha256(o.make_desk_tools(5, 3)).hexdigest())"
    made = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=DATA.parent,
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "77")
    }
    assert made == {f"{digest_of(make_desk_tools(5, 3))[7:]}\n".encode()}


def test_the_file_is_small_and_has_at_least_20_families_and_60_episodes():
    assert len(FILE) < 600_000
    assert len({chat["metadata"]["task_id"] for chat in CHATS}) >= 20
    assert len({chat["conversation"] for chat in CHATS}) == len(CHATS) >= 60
    assert {chat["metadata"]["user_source"] for chat in CHATS} == {"simulated_user"}
    assert all(chat["metadata"]["complete"] is True and chat["tools"] == list(TOOLS) for chat in CHATS)


def test_a_conversation_runs_from_the_policy_to_the_users_last_message():
    for chat in CHATS:
        roles = [message["role"] for message in chat["messages"]]
        assert 6 <= len(roles) <= 16
        assert roles[:3] == ["system", "user", "assistant"]
        assert roles[-2:] == ["assistant", "user"]
        assert "?" not in chat["messages"][-2]["content"]


def test_every_call_is_answered_right_after_its_turn_in_order_and_its_id_is_unique():
    for chat in CHATS:
        ids = []
        for n, message in enumerate(chat["messages"]):
            called = [call["id"] for call in message.get("tool_calls", ())]
            after = chat["messages"][n + 1 : n + 1 + len(called)]
            assert [answer.get("tool_call_id") for answer in after] == called
            ids += called
        assert len(set(ids)) == len(ids) == sum(message["role"] == "tool" for message in chat["messages"])


def test_two_calls_in_a_turn_text_beside_a_call_and_an_empty_result_occur():
    turns = [message for message in MESSAGES if message.get("tool_calls")]
    assert any(len(turn["tool_calls"]) == 2 for turn in turns)
    assert any(turn["content"] for turn in turns)
    assert any(turn["content"] is None for turn in turns)
    assert [] in RESULTS


def test_every_tool_is_used_and_nearly_every_error_occurs_in_the_file():
    assert {call["function"]["name"] for call in CALLS} == set(PARAMETERS)
    assert set(ERRORS) - {result["error"] for result in RESULTS if "error" in result} == {"unknown_tool"}


# --- the tasks


def test_the_statement_is_one_a_task_and_the_first_message_is_another_in_every_trial():
    statements, openings = {}, set()
    for chat in CHATS:
        statements.setdefault(chat["metadata"]["task_id"], set()).add(chat["metadata"]["statement"])
        openings.add(chat["messages"][1]["content"])
    assert {len(texts) for texts in statements.values()} == {1}
    assert len(set.union(*statements.values())) == len(statements)
    assert len(openings) == len(CHATS)


def test_no_two_statements_are_near_duplicates_however_many_are_made():
    tasks = make_tasks(MOST_FAMILIES, 3)
    made = [shingles(task.statement) for task in tasks]
    assert len({task.facts["email"] for task in tasks}) == MOST_FAMILIES
    assert max(jaccard(one, other) for one, other in combinations(made, 2)) < 0.9


def test_the_nearest_wording_is_often_another_task():
    """So that the nearest precedent can be wrong: same sentences, another state of the shop."""
    texts = [shingles(task.statement) for task in TASKS]
    other_goal = 0
    for n, text in enumerate(texts):
        nearest = max((m for m in range(len(texts)) if m != n), key=lambda m, text=text: jaccard(text, texts[m]))
        here, there = KINDS[TASKS[n].kind], KINDS[TASKS[nearest].kind]
        other_goal += here.wish == there.wish and here.goal != there.goal
    assert other_goal >= 10


@pytest.mark.parametrize("families", [-1, 0, 1, MOST_FAMILIES + 1])
def test_too_few_or_too_many_families_are_refused_with_both_numbers(families):
    with pytest.raises(ValueError, match=rf"^{families} families asked for, 2 to {MOST_FAMILIES} can be made"):
        make_desk_tools(families)


def test_tasks_of_another_seed_are_other_tasks():
    assert {task.statement for task in make_tasks(20, 8)}.isdisjoint(task.statement for task in TASKS)


# --- the candidates


def test_candidates_differ_in_what_they_reach_and_the_careful_one_reaches_every_goal():
    reached = Counter(
        who.name for task in make_tasks(78, 1) for n, who in enumerate(CANDIDATES) if play(task, who, trial=n).reached
    )
    assert reached["careful"] == 78
    assert 20 < reached["forgetful"] < reached["hasty"] - 6 < 66


def test_a_promise_is_no_cancellation():
    broken = [
        e
        for e in EPISODES
        if e.task.kind == "cancel"
        and not any(
            m.get("tool_calls") and m["tool_calls"][0]["function"]["name"] == "cancel_order" for m in e.messages
        )
    ]
    assert broken
    assert not any(episode.reached for episode in broken)


# --- the desk


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


def test_the_trial_changes_volatile_fields_and_nothing_else():
    """The same calls at two desks of one shop; what differs is exactly what is declared."""

    def differing(one: Any, other: Any, name: str = "") -> set[str]:
        if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            return set().union(*(differing(one[key], other[key], key) for key in one))
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            return set().union(*(differing(*pair, name) for pair in zip(one, other, strict=True)))
        return set() if one == other else {name}

    seen = set()
    for chat in CHATS:
        seed, trial = chat["metadata"]["desk_seed"], chat["metadata"]["trial"]
        with closing(Desk(seed, trial=trial + 1)) as desk:
            for tool, text, answer in calls_of(chat):
                seen |= differing(json.loads(answer), json.loads(desk.call(tool, text)))
    assert seen == set(VOLATILE)
