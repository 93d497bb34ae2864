"""Codex rollouts: what a line becomes, which lines are copies of a parent's, and what a session used."""

import io
import json
import random
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, check_spans, check_sums, lines, mutated

from experiential_lab.evidence import importers
from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import codex
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.spans import unpacked
from experiential_lab.evidence.transitions import ledger_of
from experiential_lab.records import LabError, TraceFormatError, digest_of

CASE = "11-codex-subagent-replays-parent"
DAY = "2026-05-02T10:00:"
OWN, OLD = "019de000-0000-7000-8000-00000000000a", "019dd000-0000-7000-8000-00000000000b"
OWN_TURN, OLD_TURN = "019de000-0001-7000-8000-0000000000aa", "019dd000-0001-7000-8000-0000000000bb"


def read(data: bytes) -> Read:
    frames = frame(data)
    format, _ = importers.choose(frames)
    imported = format.read(Source(digest_of(data), "it", frames))
    return Read(unpacked(data), format.name, imported, [ledger_of(trace) for trace in imported.traces])


def fixture(name: str) -> Read:
    return read((DATA / name).read_bytes())


# Lines, made by hand


def line(kind: str, payload: object, second: float = 0) -> dict[str, Any]:
    return {"timestamp": f"{DAY}{second:06.3f}Z", "type": kind, "payload": payload}


def meta(session: object, second: float = 0, **more: object) -> dict[str, Any]:
    return line("session_meta", {"id": session, **more}, second)


def item(kind: str, second: float = 0, /, **more: object) -> dict[str, Any]:
    return line("response_item", {"type": kind, **more}, second)


def event(kind: str, second: float = 0, /, **more: object) -> dict[str, Any]:
    return line("event_msg", {"type": kind, **more}, second)


def message(role: str, text: str, second: float = 0) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", second, role=role, content=[{"type": kind, "text": text}])


def typed(text: object, second: float = 0, **more: object) -> dict[str, Any]:
    return event("user_message", second, message=text, **more)


def call(call_id: object, arguments: object = "{}", second: float = 0, **more: object) -> dict[str, Any]:
    return item("function_call", second, name="run", arguments=arguments, call_id=call_id, **more)


def output(call_id: object, text: object, second: float = 0) -> dict[str, Any]:
    return item("function_call_output", second, call_id=call_id, output=text)


def tokens(total: object, last: object = None, second: float = 0) -> dict[str, Any]:
    counts = [None if each is None else {"input_tokens": each} for each in (total, last)]
    return event("token_count", second, info={"total_token_usage": counts[0], "last_token_usage": counts[1]})


def start(turn: object, second: float = 0, **more: object) -> dict[str, Any]:
    return event("task_started", second, turn_id=turn, **more)


def usage(*readings: dict[str, Any], **more: object) -> object:
    (trace,) = read(lines(meta("s", **more), *readings)).imported.traces
    return dict(trace.usage) if trace.usage else trace.usage


# The reported fault, and the real files


def test_case_11_counts_what_the_child_did_and_sets_the_parent_s_lines_aside(shared: Path):
    found = read((shared / "cases" / f"{CASE}.jsonl").read_bytes())
    right = json.loads((shared / "cases" / f"{CASE}.expected.json").read_text())
    (trace,) = found.imported.traces
    check_sums(found)
    check_spans(found)
    assert (found.format, len(found.transitions)) == (right["format"], right["n_transitions"])
    assert found.pairs == [('exec_command {"cmd":"wc a"}', "explicit_id", "1 2 3 a")]
    assert found.outcomes == ["explicit_id", "terminal_no_observation"]
    copied = [event for event in trace.events if event.aside == "replayed_history"]
    assert [event.call_id for event in copied if event.kind == "call"] == ["call_P1"]
    assert dict(trace.usage or ()) == right["usage_expected"]
    assert trace.keys == (f"parent:{right['lineage']}", "session:child-1")


# Counted by hand, over the lines that hold a conversation (`grep -n`, then read in order):
# - 13-19-38, all 19 lines: base instructions, 4 developer items and the request are context (6); the one call has no output,
#   and the text and the reasoning beside it belong to it (3 events); 3 items of role user that no user typed, 2 readings of
#   the counters, the start and the context of the turn are the harness's (7); the typed item and the lines that the screen
#   showed of request, text and reasoning are views (3).
# - 12-40-23: 82 + 22 calls with as many outputs, 1 web search without one; 5 requests: the task, and 4 that follow the 4
#   first of 5 final answers.
# - 12-47-42: 134 + 10 calls, 143 outputs: line 826 has none before the session goes on. 7 requests: the task, 5 that follow
#   the 5 final answers, and the last (line 837) behind that call.
# - 12-54-34: 316 + 49 calls, all answered; 7 web searches. 38 requests: the task; 5 behind an output (lines 1071, 1224, 1529,
#   2457, 2716) and 2 behind an answer in one turn with a web search (2347, 2494) answer no step; 30 follow a final answer, and
#   so does the end. The compaction (line 1788) writes 40 items anew, the last of them encrypted; its message is 1 more.
REAL = {
    "12-40-23": (702, {"explicit_id": 104, "user_reply": 4, "unanswered_call": 1, "terminal_no_observation": 1}),
    "12-47-42": (837, {"explicit_id": 143, "user_reply": 5, "unanswered_call": 1}),
    "12-54-34": (2722, {"explicit_id": 365, "user_reply": 30, "unanswered_call": 7, "terminal_no_observation": 1}),
    "13-19-38": (19, {"unanswered_call": 1}),
}
ASIDE = {
    "12-40-23": {"harness_text": 264, "duplicate_view": 107},
    "12-47-42": {"harness_text": 278, "duplicate_view": 130, "observation_without_action": 1},
    "12-54-34": {
        "harness_text": 974,
        "duplicate_view": 493,
        "observation_without_action": 7,
        "compaction_summary": 2,
        "replayed_history": 39,
    },
    "13-19-38": {"harness_text": 7, "duplicate_view": 3},
}
USED = {  # the last reading of the counters, which is the sum of all `last_token_usage` without repetitions
    "12-40-23": (7204025, 36075, 7240100),
    "12-47-42": (6740973, 36950, 6777923),
    "12-54-34": (33810485, 133999, 33944484),
    "13-19-38": (34469, 431, 34900),
}


@pytest.mark.parametrize("name", REAL)
def test_a_real_session_is_accounted_for(shared: Path, name: str):
    (path,) = (shared / "samples" / "codex-rollout").glob(f"*T{name}-*.jsonl")
    found = read(path.read_bytes())
    (trace,) = found.imported.traces
    check_sums(found)
    assert (found.imported.records, Counter(found.outcomes)) == REAL[name]
    assert (found.aside, found.rejected) == (ASIDE[name], [])
    assert check_spans(found) == len(trace.events)
    used = dict(trace.usage or ())
    assert (used["input_tokens"], used["output_tokens"], used["total_tokens"]) == USED[name]
    assert {each.observation_source for each in found.transitions} <= {"environment", "human"}


def test_the_manifest_beside_the_sessions_is_no_trace(shared: Path):
    with pytest.raises(TraceFormatError, match="no known format"):
        read((shared / "samples" / "codex-rollout" / "manifest.json").read_bytes())


def test_the_rule_knows_no_file_of_another_format(shared: Path):
    paths = [*(shared / "samples").glob("*/*"), *(shared / "cases").glob("*.jsonl")]
    for path in paths:
        if "codex" not in str(path) and path.suffix != ".txt":
            with_values = [record.value for record in frame(path.read_bytes()).records[:1000] if not record.reason]
            assert not any(map(codex.FORMATS[0].sniff, with_values)), path


def test_the_stream_of_codex_exec_is_another_format():
    stream = [
        {"type": "thread.started", "thread_id": "t"},
        {"type": "item.completed", "item": {"type": "agent_message"}},
    ]
    with pytest.raises(TraceFormatError, match="no known format"):
        read(lines(*stream))


# The fixtures


def test_a_session_becomes_its_steps():
    found = fixture("codex.jsonl")
    check_sums(found)
    assert check_spans(found) == 66
    assert found.pairs == [
        ('exec_command {"cmd":"scale --left"}', "explicit_id", ""),
        ("apply_patch *** Begin Patch\n+right scale\n*** End Patch", "explicit_id", "Success"),
        ('local_shell {"type": "exec", "command": ["sum", "left", "right"]}', "explicit_id", "left 90\nright 85"),
        ("They weigh 175 g.", "user_reply", "And the pears?"),
        ('fence.exec_command {"cmd":"scale --pears"}', "explicit_id", "60"),
        ("image_generation a pear", "structural", "aGk="),
        ("The ripe pears weigh 60 g.", "user_reply", "Eat one."),
        ("Eaten.", "user_reply", "Thank you."),
    ]
    assert Counter(found.outcomes) - Counter(pairing for _, pairing, _ in found.pairs) == {
        "unanswered_call": 1,  # the web search
        "no_authored_reply": 1,  # the text of the aborted turn
    }
    assert found.aside == {
        "harness_text": 22,
        "duplicate_view": 14,
        "observation_without_action": 2,
        "compaction_summary": 2,
        "replayed_history": 1,
        "interrupt_marker": 1,
    }


def test_a_session_states_its_task_its_context_and_what_it_used():
    (trace,) = fixture("codex.jsonl").imported.traces
    assert (trace.task, trace.context) == ("Weigh the apples.", "You tend an orchard.\n\nStay inside the fence.")
    assert dict(trace.usage or ()) == {
        "input_tokens": 720,
        "cached_input_tokens": 430,
        "output_tokens": 50,
        "total_tokens": 770,
    }
    assert trace.keys == ("session:019d4d1e-0000-7000-8000-000000000001",)


def test_a_fork_counts_its_own_lines_only_and_still_knows_its_task():
    found = fixture("codex_fork.jsonl")
    (trace,) = found.imported.traces
    check_sums(found)
    check_spans(found)
    assert found.pairs == [('exec_command {"cmd":"convert 175"}', "explicit_id", "6.2")]
    assert [(each.task, each.recent) for each in found.transitions] == [("Weigh the apples.", "Now in ounces.")]
    assert found.aside["replayed_history"] == 28
    assert dict(trace.usage or ())["input_tokens"] == 90
    assert trace.keys == (
        "parent:019d4d1e-0000-7000-8000-000000000001",
        "session:019d4d80-0000-7000-8000-000000000002",
    )


# Copies


COPIED = [start("p"), typed("old task"), call("k", '{"a":1}'), output("k", "old"), message("assistant", "old end")]
NEW = [start("c", 9), typed("new task", 9), call("k", '{"b":2}', 9), output("k", "new", 9.5)]


def test_copies_with_their_own_older_times_end_at_the_first_turn_of_the_session():
    child = meta("child", 8, forked_from_id="parent")
    found = read(lines(child, *COPIED, *[line | {"timestamp": f"{DAY}08.001Z"} for line in NEW]))
    assert found.pairs == [('run {"b":2}', "explicit_id", "new")]


def test_a_turn_that_follows_older_copies_at_once_is_the_session_s_own():
    old = [line | {"timestamp": f"{DAY}07.990Z"} for line in COPIED]
    mine = [line | {"timestamp": f"{DAY}08.010Z"} for line in NEW]
    found = read(lines(meta("child", 8, forked_from_id="parent"), *old, *mine))
    assert found.pairs == [('run {"b":2}', "explicit_id", "new")]


@pytest.mark.parametrize("first", [NEW, NEW[1:], [line for line in NEW if line["type"] != "event_msg"]])
def test_a_declared_fork_needs_no_second_session_meta(first: list[dict[str, Any]]):
    found = read(lines(meta("child", forked_from_id="parent"), *COPIED, message("user", "new task", 8), *first))
    assert found.pairs == [('run {"b":2}', "explicit_id", "new")]


def test_a_copied_session_meta_alone_tells_that_lines_are_copies():
    found = read(lines(meta("child"), meta("parent"), meta("grandparent"), *COPIED, *NEW))
    (trace,) = found.imported.traces
    assert found.pairs == [('run {"b":2}', "explicit_id", "new")]
    assert trace.keys == ("parent:grandparent", "parent:parent", "session:child")


def test_a_fork_that_never_went_on_has_no_steps():
    found = read(lines(meta("child", forked_from_id="parent"), meta("parent"), *COPIED))
    assert (found.outcomes, found.aside["replayed_history"]) == ([], 6)
    check_sums(found)


def test_a_burst_of_copies_does_not_prove_a_turn():
    burst = [line | {"timestamp": f"{DAY}00.{at:03d}Z"} for at, line in enumerate(COPIED * 2)]
    assert read(lines(meta("child"), meta("parent"), *burst)).outcomes == []


def test_turn_ids_tell_copies_whatever_their_times_are():
    old = [start(OLD_TURN, 5), *COPIED[1:]]
    mine = [start(OWN_TURN, 5), *[line | {"timestamp": f"{DAY}05.000Z"} for line in NEW[1:]]]
    found = read(lines(meta(OWN, 5, source={"subagent": "review"}), meta(OLD, 5), *old, *mine))
    assert found.pairs == [('run {"b":2}', "explicit_id", "new")]
    assert read(lines(meta(OWN), meta(OLD), *old)).outcomes == []
    paused = [start(OLD_TURN, 5), typed("old task", 7), *COPIED[2:]]
    assert read(lines(meta(OWN, 5), meta(OLD, 5), *paused)).outcomes == []


def test_what_a_person_typed_before_the_line_that_proves_the_turn_is_new():
    context = line("turn_context", {"turn_id": OWN_TURN}, 1)
    mine = [message("user", "new task", 1), typed("new task", 1), context, message("assistant", "done", 1)]
    found = read(lines(meta(OWN, forked_from_id=OLD), line("turn_context", {"turn_id": OLD_TURN}), *COPIED, *mine))
    (trace,) = found.imported.traces
    assert [event.text for event in trace.events if event.kind in ("user", "text") and not event.aside] == [
        "new task",
        "done",
    ]
    assert found.aside["duplicate_view"] == 1


def test_a_sub_agent_whose_parent_is_named_but_not_copied_loses_nothing():
    found = read(
        lines(meta(OWN, source={"subagent": {"other": "x"}}), meta(OLD), start(OWN_TURN), call("k"), output("k", "r"))
    )
    assert found.pairs == [("run {}", "explicit_id", "r")]


def test_the_start_of_an_older_turn_is_a_copy_though_it_was_written_later():
    copied = [start("p", 7, started_at=1), *COPIED[1:]]
    mine = [start("c", 7, started_at=4_000_000_000), *NEW[1:]]
    found = read(lines(meta("child"), meta("parent"), *copied, *mine))
    assert found.pairs == [('run {"b":2}', "explicit_id", "new")]


def test_inherited_ordinals_are_copies():
    def numbered(values: list[dict[str, Any]], first: int) -> list[dict[str, Any]]:
        return [line | {"ordinal": first + at} for at, line in enumerate(values)]

    base = {"thread_id": "parent", "end_ordinal_exclusive": 10}
    own = meta("child", forked_from_id="parent", history_base=base)
    alone = read(lines(own, *numbered(NEW, 10)))
    plain = read(lines(own, *[line | {"timestamp": f"{DAY}00.000Z"} for line in NEW]))
    embedded = read(lines(own, meta("parent"), *numbered(COPIED, 1), *numbered(NEW, 10)))
    assert alone.pairs == plain.pairs == embedded.pairs == [('run {"b":2}', "explicit_id", "new")]
    assert alone.imported.traces[0].keys == ("parent:parent", "session:child")


def test_a_session_that_names_itself_again_goes_on():
    found = read(lines(meta("s"), typed("q"), call("k"), meta("s", 1, git={}), output("k", "r")))
    assert found.pairs == [("run {}", "explicit_id", "r")]
    assert len(found.imported.traces) == 1


def test_sessions_that_were_joined_in_a_file_are_traces_of_their_own():
    one, two = ([meta(each), typed(f"go {each}"), call(each), output(each, each)] for each in ("s", "t"))
    found = read(lines(*one, *two, meta("s", 1), message("assistant", "end")))
    assert [trace.task for trace in found.imported.traces] == ["go s", "go t"]
    assert found.pairs == [("run {}", "explicit_id", "s"), ("run {}", "explicit_id", "t")]
    assert found.outcomes == ["explicit_id", "terminal_no_observation", "explicit_id"]


def test_a_parent_and_its_fork_in_one_zip_keep_their_own_lines():
    parent = [meta("parent"), *COPIED]
    child = [meta("child", 8, forked_from_id="parent"), *parent, *NEW]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as pack:
        for name, rows in (
            ("b/child.jsonl", child),
            ("a/parent.jsonl", parent),
            ("live/parent.jsonl", [*parent, NEW[0]]),
        ):
            pack.writestr(name, lines(*rows))
    found = read(packed.getvalue())
    assert found.pairs == [('run {"b":2}', "explicit_id", "new"), *[('run {"a":1}', "explicit_id", "old")] * 2]
    assert len({trace.trace_id for trace in found.imported.traces}) == 3
    assert found.rejected == []


# Who speaks


def test_only_what_a_user_typed_is_a_task_or_a_reply():
    agents, again = message("user", "# AGENTS.md instructions"), message("user", "<environment_context/>", 1)
    found = read(lines(meta("s"), agents, message("assistant", "done"), again))
    (trace,) = found.imported.traces
    assert (found.outcomes, trace.task) == (["terminal_no_observation"], None)
    assert found.aside == {"harness_text": 3}


def test_the_item_of_a_typed_message_is_its_view_also_where_it_says_more():
    image = {"type": "input_image", "image_url": "data:"}
    shown = item("message", role="user", content=[image, {"type": "input_text", "text": "look"}])
    found = read(lines(meta("s"), shown, event("x"), typed("look"), message("user", "redacted"), typed("second")))
    assert (found.aside, found.ledgers[0].used["context"]) == ({"harness_text": 2, "duplicate_view": 2}, 2)


def test_early_versions_said_what_the_harness_wrote_as_a_user_message_of_another_kind():
    talk = [typed("<environment_context/>", kind="environment_context"), typed("go", kind="plain")]
    (trace,) = read(lines(meta("s"), *talk, message("assistant", "ok"))).imported.traces
    assert trace.task == "go"


@pytest.mark.parametrize(
    ("source", "author"), [("cli", "human"), ("vscode", "human"), ("exec", "unknown"), (None, "unknown")]
)
def test_a_program_that_speaks_is_no_person(source: object, author: str):
    found = read(lines(meta("s", source=source), typed("q"), message("assistant", "a"), typed("b", 1)))
    assert [each.observation_source for each in found.transitions] == [author]


def test_a_sub_agent_is_prompted_not_answered():
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "parent"}}}
    talk = [typed("find it"), message("assistant", "found"), typed("and more", 1), call("k"), output("k", "r")]
    found = read(lines(meta("s", source=source), *talk))
    (trace,) = found.imported.traces
    assert (trace.task, trace.name, trace.keys) == ("find it", "agent s", ("parent:parent", "session:s"))
    assert (found.outcomes, found.aside) == (
        ["no_authored_reply", "explicit_id"],
        {"harness_text": 1, "sidechain_prompt": 2},
    )


def test_a_sub_agent_knows_its_own_prompt_from_the_copied_request_of_its_parent():
    talk = [*COPIED, start("c", 9), typed("find it", 9), call("n", "{}", 9), output("n", "r", 9)]
    found = read(lines(meta("s", source={"subagent": "review"}), meta("parent"), *talk))
    (trace,) = found.imported.traces
    assert (trace.task, [each.task for each in found.transitions]) == ("find it", ["find it"])
    assert [event.text for event in trace.events if event.kind == "task"] == ["old task"]


def test_a_letter_of_another_agent_is_not_what_this_agent_says():
    def letter(author: str, recipient: str) -> list[dict[str, Any]]:
        said = {"author": author, "recipient": recipient, "content": "x", "trigger_turn": True}
        return [
            message("assistant", json.dumps(said)),
            item("agent_message", **said),
            line("inter_agent_communication", said),
        ]

    source = {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}
    agent = read(lines(meta("s", source=source), *letter("/lead", "/lead/a"), *letter("/lead/a/b", "/lead/a")))
    main = read(lines(meta("s"), typed("q"), *letter("/lead/a", "/lead")))
    assert (agent.outcomes, agent.aside) == ([], {"sidechain_prompt": 3, "harness_text": 4})
    assert (main.outcomes, main.aside) == ([], {"harness_text": 4})
    own = read(lines(meta("s"), typed("q"), message("assistant", '{"recipient": "a", "content": "b"}')))
    assert own.outcomes == ["terminal_no_observation"]


@pytest.mark.parametrize("kind", ["turn_aborted", "error"])
def test_an_aborted_turn_ends_the_wait_for_an_answer(kind: str):
    found = read(lines(meta("s"), typed("q"), message("assistant", "a"), event(kind), typed("continue", 1)))
    assert found.outcomes == ["no_authored_reply"]


def test_a_user_message_without_text_is_one():
    found = read(lines(meta("s"), typed("q"), message("assistant", "which?"), typed(None, 1)))
    assert found.pairs == [("which?", "user_reply", "")]
    check_spans(found)


def test_a_request_between_a_call_and_its_output_answers_nothing():
    found = read(
        lines(meta("s"), typed("q"), message("assistant", "I look"), call("k"), typed("hurry", 1), output("k", "r"))
    )
    assert (found.pairs, found.aside["observation_without_action"]) == ([("run {}", "explicit_id", "r")], 1)


def test_a_session_rolled_back_to_its_start_gets_a_new_task_on_a_branch():
    undone = [typed("q"), call("k"), output("k", "r"), message("assistant", "a")]
    new = [typed("other", 2), message("assistant", "b", 2), typed("ok", 3)]
    found = read(lines(meta("s"), *undone, event("thread_rolled_back", num_turns=1), *new))
    assert [(each.task, each.observation) for each in found.transitions] == [("q", "r"), ("other", "ok")]
    assert found.outcomes == ["explicit_id", "terminal_no_observation", "user_reply"]


def test_compaction_ends_the_wait_and_its_history_counts_once():
    history = [{"type": "message", "role": "user", "content": "q"}, {"type": "compaction_summary"}, None]
    compacted = line("compacted", {"message": "sum", "replacement_history": history})
    found = read(lines(meta("s"), typed("q"), message("assistant", "a"), compacted, typed("b", 1)))
    apart = read(lines(meta("s"), typed("q"), message("assistant", "a"), compacted, message("assistant", "b")))
    assert found.outcomes == ["terminal_no_observation"]
    assert len({event.turn for event in apart.imported.traces[0].events if event.kind == "text"}) == 2
    assert found.aside == {
        "harness_text": 1,
        "compaction_summary": 2,
        "replayed_history": 2,
        "observation_without_action": 1,
    }
    check_spans(found)


# Calls and outputs


def test_other_lines_between_call_and_output_take_nothing_away():
    between = [
        tokens(5),
        line("turn_context", {}),
        event("exec_command_end", call_id="k"),
        message("developer", "note"),
    ]
    found = read(lines(meta("s"), typed("q"), call("k"), *between, output("k", "r")))
    assert found.pairs == [("run {}", "explicit_id", "r")]


def test_parallel_outputs_in_another_order_find_their_calls():
    calls = [call("a", '{"n":1}'), call("b", '{"n":2}')]
    found = read(lines(meta("s"), typed("q"), *calls, output("b", "two"), output("a", "one")))
    assert found.pairs == [('run {"n":1}', "explicit_id", "one"), ('run {"n":2}', "explicit_id", "two")]


def test_an_id_that_comes_again_pairs_within_its_turn():
    rounds = [each for n in "12" for each in (call("k", n), output("k", f"r{n}"))]
    found = read(lines(meta("s"), typed("q"), *rounds))
    assert found.pairs == [("run 1", "explicit_id_scoped", "r1"), ("run 2", "explicit_id_scoped", "r2")]


@pytest.mark.parametrize("absent", ["", None])
def test_calls_without_an_id_pair_only_where_one_is_open(absent: object):
    one = read(lines(meta("s"), typed("q"), call(absent), output(absent, "r")))
    two = read(
        lines(meta("s"), typed("q"), call(absent, "1"), call(absent, "2"), output(absent, "r"), output(absent, "s"))
    )
    assert one.pairs == [("run {}", "order_only", "r")]
    assert two.outcomes == ["ambiguous_order", "ambiguous_order"]


def test_outputs_without_an_id_that_name_their_tools_pair_by_name():
    made = [item("custom_tool_call", name=each, input=each) for each in "fg"]
    told = [item("custom_tool_call_output", name=each, output=f"r{each}") for each in "gf"]
    found = read(lines(meta("s"), typed("q"), *made, *told))
    assert found.pairs == [("f f", "name_order", "rf"), ("g g", "name_order", "rg")]


def test_an_output_of_an_unknown_call_and_a_call_without_an_output_do_not_meet():
    found = read(lines(meta("s"), typed("q"), call("k"), output("other", "r")))
    assert (found.outcomes, found.aside) == (["unanswered_call"], {"harness_text": 1, "id_mismatch": 1})


def test_a_call_without_a_name_is_left_out():
    found = read(lines(meta("s"), typed("q"), item("function_call", arguments="{}", call_id="k"), output("k", "r")))
    assert found.outcomes == ["call_without_name"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", ""),
        (None, ""),
        ("line\u2028two\u0085three", "line\u2028two\u0085three"),
        ([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "d"}], None),
        ({"content": "bad", "success": False}, "bad"),
    ],
)
def test_an_output_is_quoted_as_it_stands(given: object, text: str | None):
    found = read(lines(meta("s"), typed("q"), call("k"), output("k", given)))
    assert [each.observation for each in found.transitions] == [json.dumps(given) if text is None else text]
    assert found.transitions[0].is_error is (True if isinstance(given, dict) else None)
    check_spans(found)


@pytest.mark.parametrize("given", ["{}", "not json", {"a": [1, 2.50]}, "", None])
def test_arguments_are_quoted_as_they_stand(given: object):
    found = read(lines(meta("s"), typed("q"), call("k", given), output("k", "r")))
    right = given if isinstance(given, str) else json.dumps(given)
    assert found.transitions[0].action.arguments == ("{}" if given in ("", None) else right)
    check_spans(found)


def test_a_shell_call_of_chat_completions_is_named_by_its_own_id():
    shell = item("local_shell_call", id="old", call_id=None, action={"command": ["ls"]})
    assert read(lines(meta("s"), typed("q"), shell, output("old", "r"))).pairs == [
        ('local_shell {"command": ["ls"]}', "explicit_id", "r")
    ]


def test_a_hosted_search_without_an_output_is_unanswered_and_takes_no_other_s():
    talk = [item("web_search_call", action={"query": "x"}), call("k"), output("k", "r")]
    found = read(lines(meta("s"), typed("q"), *talk))
    assert (found.outcomes, found.pairs) == (["unanswered_call", "explicit_id"], [("run {}", "explicit_id", "r")])


def test_tool_definitions_that_a_search_found_are_its_output():
    tools = [
        item("tool_search_call", call_id="k", arguments={"q": 1}),
        item("tool_search_output", call_id="k", tools=[{}]),
    ]
    assert read(lines(meta("s"), typed("q"), *tools)).pairs == [('tool_search {"q": 1}', "explicit_id", "[{}]")]


# What it used


def test_readings_of_the_counters_are_differenced_and_repetitions_dropped():
    assert usage(tokens(10, 10), tokens(10, 10, 1), tokens(25, 15, 2), tokens(25, 15, 3)) == {"input_tokens": 25}


def test_counters_that_start_anew_go_on_and_counters_that_fall_are_unknown():
    assert usage(tokens(10, 10), tokens(4, 4, 1)) == {"input_tokens": 14}
    assert usage(tokens(10, 10), tokens(9, 4, 1)) is None


def test_counters_without_a_total_and_a_session_without_counters_are_unknown():
    assert usage(tokens(None, 5)) is None
    assert usage(event("token_count", info=None)) is None
    assert usage() is None


def test_a_fork_that_did_not_see_its_counters_start_uses_what_the_last_call_used():
    assert usage(start("c", 1), tokens(900, 30, 2), tokens(950, 50, 3), forked_from_id="p") == {"input_tokens": 80}
    assert usage(start("c", 1), tokens(900, None, 2), forked_from_id="p") is None


def test_a_fork_that_only_repeats_the_last_reading_of_its_parent_states_nothing_of_its_own():
    assert usage(meta("p"), tokens(900, 30), start("c", 9), tokens(900, 30, 9)) is None


# Whatever a file may hold


ODD: list[Any] = [
    None,
    "",
    0,
    -1,
    True,
    1.5,
    2**70,
    [],
    {},
    ["x"],
    {"type": "message"},
    "x",
    [{"type": "text", "text": "t"}],
]


def _hurt(rng: random.Random, data: bytes) -> bytes:
    rows = [json.loads(row) for row in data.splitlines()]
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(rows))
        match rng.randrange(5):
            case 0:
                rows[at] = mutated(rng, rows[at], ODD)
            case 1:
                rows.insert(rng.randrange(len(rows)), rows[at])
            case 2:
                rng.shuffle(rows)
            case 3 if len(rows) > 1:
                del rows[at]
            case _:
                rows[at] = (
                    rows[at] | {"payload": mutated(rng, rows[at].get("payload"), ODD)}
                    if isinstance(rows[at], dict)
                    else 7
                )
    made = lines(*rows)
    return made[: rng.randrange(1, len(made))] if rng.random() < 0.2 else made


@pytest.mark.parametrize("name", ["codex.jsonl", "codex_fork.jsonl"])
def test_law_5_whatever_happens_to_a_file_every_record_is_accounted_for(name: str):
    rng, data, count = random.Random(name), (DATA / name).read_bytes(), 0
    for _ in range(300):
        hurt = _hurt(rng, data)
        try:
            found = read(hurt)
        except LabError:
            continue
        check_sums(found)
        check_spans(found)
        count += 1
    assert count > 200
