"""The bundled corpora are what a desk returned, are made again byte for byte, and are what their README and labels say."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from experiential_lab.evaluation.candidates import CANDIDATES, GRADED, count_reached, play
from experiential_lab.evaluation.clerk import VOLATILE_TEXT, Clerk
from experiential_lab.evaluation.corpora import make_desk_text, make_desk_tools, make_labels, make_study_tools
from experiential_lab.evaluation.oracle import ERRORS, PARAMETERS, TOOLS, VOLATILE, Desk
from experiential_lab.evaluation.tasks import make_tasks, plan_tasks
from experiential_lab.lab import Lab
from experiential_lab.records import digest_of

DATA = Path(__file__).parent.parent / "data"
MAKERS = {
    "desk_tools.jsonl": make_desk_tools,
    "study_tools.jsonl": make_study_tools,
    "desk_text.jsonl": make_desk_text,
    "desk_labels.json": make_labels,
}
FILES = {name: (DATA / name).read_bytes() for name in MAKERS}
SMALL, STUDY, TEXT = (
    [json.loads(line) for line in FILES[name].split(b"\n")[:-1]]
    for name in ("desk_tools.jsonl", "study_tools.jsonl", "desk_text.jsonl")
)
LABELS = json.loads(FILES["desk_labels.json"])
TOOL_CHATS = [*SMALL, *STUDY]
PLANS = {
    "study-tools": plan_tasks("study-tools", 240, 7, first_shop=2_000),
    "desk-text": plan_tasks("desk-text", 240, 7, first_shop=6_000),
}
TEXT_TASKS = {planted.task.task_id: planted.task for planted in PLANS["desk-text"]}
PLANTED = ("duplicates", "paraphrases", "hard_negatives")
MISSED = {"study-tools": 52, "desk-text": 53}
"""Paraphrases that lie below the threshold of .9, each a family of its own then."""


def results_of(chats: list[dict[str, Any]]) -> list[Any]:
    return [json.loads(m["content"]) for chat in chats for m in chat["messages"] if m["role"] == "tool"]


def calls_of(chat: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(tool, arguments, the text that answered) of every call, in order."""
    answers = {m["tool_call_id"]: m["content"] for m in chat["messages"] if m["role"] == "tool"}
    for message in chat["messages"]:
        for call in message.get("tool_calls", ()):
            yield call["function"]["name"], call["function"]["arguments"], answers[call["id"]]


def desk_of(chat: dict[str, Any], *, later: int = 0) -> Desk:
    return Desk(chat["metadata"]["desk_seed"], trial=chat["metadata"]["trial"] + later)


# --- the files


@pytest.mark.parametrize("name", MAKERS)
def test_the_bundled_file_is_made_again_byte_for_byte(name):
    assert MAKERS[name]() == FILES[name]


def test_the_readme_states_digests_and_counts_of_the_small_corpus():
    readme = (DATA / "README.md").read_text()
    small = readme[readme.index("## desk_tools.jsonl") : readme.index("## study_tools.jsonl")]
    rows = dict(re.findall(r"^\| ([\w ]+) \| (\d+) \|$", small, re.M))
    messages, results = [message for chat in SMALL for message in chat["messages"]], results_of(SMALL)
    errors = Counter(result["error"] for result in results if "error" in result)
    tasks = make_tasks(24, 7)
    reached = Counter(
        who.name for task in tasks for n, who in enumerate(CANDIDATES) if play(task, who, trial=n).reached
    )
    counts = {
        "families": len({chat["metadata"]["task_id"] for chat in SMALL}),
        "episodes": len(SMALL),
        "messages": len(messages),
        "calls": len(results),
        "errors": errors.total(),
        "empty lists": results.count([]),
        "turns with two calls": sum(len(message.get("tool_calls", ())) == 2 for message in messages),
        "calls with text beside them": sum(bool(m.get("tool_calls") and m["content"]) for m in messages),
        "bytes": len(FILES["desk_tools.jsonl"]),
    }
    assert rows == {key: str(value) for key, value in (counts | errors | reached).items()}
    assert all(digest_of(data) in readme for data in FILES.values())


def test_the_readme_states_the_counts_of_the_study_corpora():
    readme = (DATA / "README.md").read_text()
    study = readme[readme.index("## study_tools.jsonl") :]
    rows = dict(re.findall(r"^\| ([\w ]+) \| ([\d ]+ \| [\d ]+) \|$", study, re.M))
    named = (("study-tools", STUDY, "study_tools.jsonl"), ("desk-text", TEXT, "desk_text.jsonl"))
    columns = [
        {
            "families": len({each["family"] for each in LABELS["corpora"][corpus]["tasks"].values()}),
            "tasks": len(LABELS["corpora"][corpus]["tasks"]),
            "episodes": len(chats),
            "messages": sum(len(chat["messages"]) for chat in chats),
            **{kind.replace("_", " "): len(LABELS["corpora"][corpus][kind]) for kind in PLANTED},
            "bytes": len(FILES[name]),
        }
        for corpus, chats, name in named
    ]
    assert rows == {key: " | ".join(str(column[key]) for column in columns) for key in columns[0]}


def test_a_processs_hash_seed_changes_no_byte():
    code = (
        "import hashlib, experiential_lab.evaluation.corpora as c;"
        "made = [make(12, 3) for make in (c.make_desk_tools, c.make_study_tools, c.make_desk_text, c.make_labels)];"
        "print(hashlib.sha256(b''.join(made)).hexdigest())"
    )
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
    assert made == {f"{digest_of(b''.join(make(12, 3) for make in MAKERS.values()))[7:]}\n".encode()}


def test_the_corpora_are_small_and_as_large_as_the_study_asks():
    assert len(FILES["desk_tools.jsonl"]) < 600_000
    assert len(FILES["study_tools.jsonl"]) + len(FILES["desk_text.jsonl"]) < 6_000_000
    for chats in (STUDY, TEXT):
        assert len({chat["conversation"] for chat in chats}) == len(chats) == 600
        players = Counter(chat["metadata"]["candidate"] for chat in chats)
        assert players == {who.name: 75 for who in GRADED}
    assert all(chat["metadata"]["complete"] is True for chat in (*TOOL_CHATS, *TEXT))
    assert all(chat["metadata"]["user_source"] == "simulated_user" for chat in (*TOOL_CHATS, *TEXT))


# --- what really ran


def test_every_tool_message_is_returned_again_by_a_fresh_desk():
    for chat in TOOL_CHATS:
        with closing(desk_of(chat)) as desk:
            assert [answer for *_, answer in calls_of(chat)] == [
                desk.call(tool, text) for tool, text, _ in calls_of(chat)
            ]


def test_every_sentence_of_the_clerk_is_said_again_by_a_fresh_clerk():
    for chat in TEXT:
        with closing(desk_of(chat)) as desk:
            clerk = Clerk(desk, TEXT_TASKS[chat["metadata"]["task_id"]])
            for said, reply in zip(chat["messages"][2::2], chat["messages"][3::2], strict=True):
                assert clerk.answer(said["content"]) == reply["content"]
            assert clerk.accepted is not None


def test_a_conversation_runs_from_the_policy_to_the_users_last_message():
    for chat in TOOL_CHATS:
        roles = [message["role"] for message in chat["messages"]]
        assert 4 <= len(roles) <= 20
        assert roles[:3] == ["system", "user", "assistant"]
        assert roles[-2:] == ["assistant", "user"]
        assert "?" not in chat["messages"][-2]["content"]
        assert chat["tools"] == list(TOOLS)


def test_the_text_corpus_declares_no_tools_and_takes_turns():
    for chat in TEXT:
        assert "tools" not in chat
        assert [message["role"] for message in chat["messages"]] == [
            "system",
            *["user", "assistant"] * (len(chat["messages"]) // 2 - 1),
            "user",
        ]


def test_every_call_is_answered_right_after_its_turn_in_order_and_its_id_is_unique():
    for chat in TOOL_CHATS:
        ids = []
        for n, message in enumerate(chat["messages"]):
            called = [call["id"] for call in message.get("tool_calls", ())]
            after = chat["messages"][n + 1 : n + 1 + len(called)]
            assert [answer.get("tool_call_id") for answer in after] == called
            ids += called
        assert len(set(ids)) == len(ids) == sum(message["role"] == "tool" for message in chat["messages"])


@pytest.mark.parametrize("chats", [SMALL, STUDY], ids=["small", "study"])
def test_every_tool_is_used_and_nearly_every_error_occurs(chats):
    assert {tool for chat in chats for tool, *_ in calls_of(chat)} == set(PARAMETERS)
    assert set(ERRORS) - {result["error"] for result in results_of(chats) if "error" in result} == {"unknown_tool"}
    turns = [message for chat in chats for message in chat["messages"] if message.get("tool_calls")]
    assert {len(turn["tool_calls"]) for turn in turns} == {1, 2}
    assert {turn["content"] is None for turn in turns} == {True, False}
    assert [] in results_of(chats)


# --- tasks and labels


def test_the_statement_is_one_a_task_and_the_first_message_is_another_in_every_trial():
    for chats in (SMALL, STUDY, TEXT):
        statements = {(chat["metadata"]["task_id"], chat["metadata"]["statement"]) for chat in chats}
        assert len(statements) == len({task for task, _ in statements})
        assert len({chat["messages"][1]["content"] for chat in chats}) == len(chats)


def test_the_labels_name_every_task_of_both_corpora_and_nothing_in_a_line_tells_what_is_planted():
    for name, chats in (("study-tools", STUDY), ("desk-text", TEXT)):
        labels = LABELS["corpora"][name]
        assert labels["tasks"].keys() == {chat["metadata"]["task_id"] for chat in chats}
        assert [len(labels[kind]) for kind in PLANTED] == [60, 100, 100]
        assert {re.sub(r"\d+$", "", task) for task in labels["tasks"]} == {f"{name}-7-"}
        assert len({json.dumps(sorted(chat["metadata"])) for chat in chats}) == 1


def test_duplicates_and_paraphrases_stay_in_a_family_and_hard_negatives_join_two():
    for labels in LABELS["corpora"].values():
        family = {task: each["family"] for task, each in labels["tasks"].items()}
        assert all(family[one] == family[other] for kind in PLANTED[:2] for one, other in labels[kind])
        assert all(family[one] != family[other] for one, other in labels["hard_negatives"])
        assert max(Counter(family.values()).values()) == 2


def test_no_person_shop_or_statement_is_in_two_corpora():
    for column in (lambda chat: chat["metadata"]["desk_seed"], lambda chat: chat["metadata"]["statement"]):
        small, study, text = ({column(chat) for chat in chats} for chats in (SMALL, STUDY, TEXT))
        assert len(small | study | text) == len(small) + len(study) + len(text)


def differing(one: Any, other: Any, name: str = "") -> set[str]:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return set().union(*(differing(one[key], other[key], key) for key in one))
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return set().union(*(differing(*pair, name) for pair in zip(one, other, strict=True)))
    return set() if one == other else {name}


def test_the_trial_changes_volatile_fields_and_nothing_else():
    """The same calls at two desks of one shop; what differs is exactly what is declared."""
    seen = set()
    for chat in TOOL_CHATS:
        with closing(desk_of(chat, later=3)) as desk:
            for tool, text, answer in calls_of(chat):
                seen |= differing(json.loads(answer), json.loads(desk.call(tool, text)))
    assert seen == set(VOLATILE) == set(LABELS["volatile_fields"])


def test_the_trial_changes_volatile_text_and_nothing_else():
    assert LABELS["volatile_text"] == VOLATILE_TEXT
    changed = 0
    for chat in TEXT:
        with closing(desk_of(chat, later=3)) as desk:
            clerk = Clerk(desk, TEXT_TASKS[chat["metadata"]["task_id"]])
            for said, reply in zip(chat["messages"][2::2], chat["messages"][3::2], strict=True):
                again = clerk.answer(said["content"])
                changed += again != reply["content"]
                assert re.sub(VOLATILE_TEXT, "*", again) == re.sub(VOLATILE_TEXT, "*", reply["content"])
    assert changed > 300


# --- imported


@pytest.mark.parametrize(("name", "corpus"), [("study_tools.jsonl", "study-tools"), ("desk_text.jsonl", "desk-text")])
def test_nothing_is_left_out_at_import_and_the_split_unites_no_two_planted_families(tmp_path, name, corpus):
    lab = Lab(tmp_path / "lab")
    counts = lab.import_traces(DATA / name).counts
    assert (counts["traces"], counts["lineages"], counts["steps"]) == (600, 400, counts["transitions"])
    table = lab.split(held_out="0.2").of()
    planted = {planted.task.statement: planted.family for planted in PLANS[corpus]}
    united: dict[str, set[int]] = {}
    for trace in lab.corpus.traces:
        united.setdefault(table[trace.trace_id].family, set()).add(planted[trace.statement])
    assert {len(families) for families in united.values()} == {1}
    assert max(Counter(row.family for row in table.values()).values()) <= 3
    assert len(united) == 240 + MISSED[corpus]


# --- the commands


def test_the_commands_of_the_readme_make_the_files_and_their_labels(xlab, tmp_path):
    assert xlab("oracle", "make", "study-tools", "--out", "s.jsonl", "--labels", "l.json").code == 0
    assert (tmp_path / "s.jsonl").read_bytes() == FILES["study_tools.jsonl"]
    assert (tmp_path / "l.json").read_bytes() == FILES["desk_labels.json"]
    made = xlab("oracle", "make", "desk-text", "--families", "12", "--seed", "3", "--out", "t.jsonl", "--json").json
    assert (made["episodes"], made["digest"]) == (30, digest_of(make_desk_text(12, 3)))


def test_what_cannot_be_made_is_refused_and_writes_nothing(xlab, tmp_path):
    for arguments, code, said in (
        (("shop",), 4, "desk-tools, study-tools, desk-text"),
        (("desk-text", "--families", "1", "--labels", "l.json"), 2, "1 families asked for, 2 to 288"),
        (("desk-tools", "--labels", "l.json"), 2, "nothing is planted in desk-tools"),
    ):
        done = xlab("oracle", "make", *arguments, "--out", "x.jsonl")
        assert (done.code, said in done.err, [*tmp_path.iterdir()]) == (code, True, [])


def test_the_candidates_are_counted_by_a_command(xlab):
    counted = xlab("oracle", "candidates", "--tasks", "26", "--json").json
    assert counted["reached"] == count_reached(26, 11)
    assert "careful     26 of 26: 1.000" in xlab("oracle", "candidates", "--tasks", "26", "--text").out
