"""Importers: what each format's records become, on reported faults, on real files, and on whatever a file may hold."""

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import pytest
from evidence_cases import (
    DATA,
    FIXTURES,
    Read,
    asks,
    call,
    chat,
    chats,
    check_spans,
    check_sums,
    claude_lines,
    damage,
    gives,
    line,
    lines,
    messages,
    read,
    result,
    runs,
    said,
    says,
    spoken,
    text,
    typed,
    use,
)
from hypothesis import given

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import choose, formats
from experiential_lab.evidence.trace import STEP_REASONS
from experiential_lab.records import LabError, TraceFormatError, UsageError

CASES = [
    "01-cc-parallel-branches",
    "02-cc-usage-per-block",
    "04-chat-ids-restart-each-turn",
    "05-chat-same-id-in-one-turn",
    "07-chat-empty-ids",
    "12-jsonl-u2028",
    "14-chat-zero-argument-tool",
    "16-cc-synthetic-assistant",
    "17-cc-compaction-summary",
    "22-chat-tool-message-without-name",
    "23-legacy-function-call-growing-prefix",
    "28-tau-simulated-user-stop",
]


def fixture(name: str) -> Read:
    return read((DATA / name).read_bytes())


# Faults that were reported for other tools


@pytest.mark.parametrize("name", CASES)
def test_a_reported_fault_has_the_right_transitions(shared: Path, name: str):
    found = read((shared / "cases" / f"{name}.jsonl").read_bytes())
    right = json.loads((shared / "cases" / f"{name}.expected.json").read_text())
    check_sums(found)
    assert found.format == right["format"]
    assert len(found.transitions) == right["n_transitions"]
    for each, expected in zip(found.transitions, right["transitions"], strict=True):
        observation = expected["observation"].replace("<U+2028>", "\u2028").replace("<U+0085>", "\u0085")
        assert (each.pairing, each.observation) == (expected["pairing"], observation)
        tool, *given_ = expected["action"].split() if each.action.tool else [expected["action"]]
        assert said(each).startswith(tool)
        assert all(word in said(each) for word in given_)


@pytest.mark.parametrize("name", CASES)
def test_a_reported_fault_has_the_right_reasons(shared: Path, name: str):
    found = read((shared / "cases" / f"{name}.jsonl").read_bytes())
    right = json.loads((shared / "cases" / f"{name}.expected.json").read_text())
    reasons = Counter(each["reason"] for each in right["rejects"])
    left_out = Counter(row.outcome for each in found.ledgers for row in each.rows if row.transition_id is None)
    assert left_out == Counter({reason: n for reason, n in reasons.items() if reason in STEP_REASONS})
    assert {reason: found.aside[reason] for reason in reasons if reason not in STEP_REASONS} == {
        reason: n for reason, n in reasons.items() if reason not in STEP_REASONS
    }


def test_case_02_usage_counts_a_model_message_once(shared: Path):
    (trace,) = read((shared / "cases" / "02-cc-usage-per-block.jsonl").read_bytes()).imported.traces
    expected = json.loads((shared / "cases" / "02-cc-usage-per-block.expected.json").read_text())["usage_expected"]
    assert dict(trace.usage or ()) == expected


def test_case_05_says_that_the_id_is_not_unique(shared: Path):
    (ledger,) = read((shared / "cases" / "05-chat-same-id-in-one-turn.jsonl").read_bytes()).ledgers
    assert [row.flags for row in ledger.rows] == [("id_not_unique_in_turn",), ("id_not_unique_in_turn",), ()]


def test_case_23_collapses_two_prefix_lists_and_case_28_knows_its_user(shared: Path):
    growing = read((shared / "cases" / "23-legacy-function-call-growing-prefix.jsonl").read_bytes())
    assert growing.aside == {"replayed_history": 2 + 4}
    stop = read((shared / "cases" / "28-tau-simulated-user-stop.jsonl").read_bytes())
    assert [each.observation_source for each in stop.transitions] == ["simulated_user", "environment"]


# Real files


@pytest.mark.parametrize(
    ("folder", "outcomes"),
    [
        (
            "openai-chat",
            {"explicit_id": 7, "terminal_no_observation": 11, "unanswered_call": 8, "ambiguous_order": 2},
        ),
        ("claude-code", {"explicit_id": 7 + 12, "user_reply": 2 + 1, "terminal_no_observation": 13 + 2}),
    ],
)
def test_every_record_event_and_step_of_the_real_files_is_accounted_for(
    shared: Path, folder: str, outcomes: dict[str, int]
):
    counted: Counter[str] = Counter()
    for path in sorted((shared / "samples" / folder).iterdir()):
        found = read(path.read_bytes())
        check_sums(found)
        counted.update(found.outcomes)
    assert counted == outcomes


def test_a_scaffold_that_writes_tool_output_in_the_users_name_gives_no_user_reply(shared: Path):
    found = read((shared / "samples" / "mini-swe-agent" / "github_issue.traj.json").read_bytes())
    assert {each.pairing for each in found.transitions} == {"structural"}


# Our own file of each format


def test_a_chat_file_keeps_ids_empty_results_and_declared_authors():
    found = fixture("chat.jsonl")
    check_sums(found)
    assert found.outcomes == [
        *("explicit_id", "user_reply", "explicit_id", "terminal_no_observation"),
        *("explicit_id_scoped", "explicit_id", "unanswered_call", "explicit_id_scoped", "user_reply"),
        *("user_reply", "user_reply"),
    ]
    assert found.aside == {"harness_text": 1, "unknown_role": 1, "empty_message": 1}
    assert [each.observation for each in found.transitions if each.action.tool] == [
        "2 packets of Fardenlosa",
        "",
        "yes",
        "no",
        "6",
    ]
    assert found.transitions[0].action.text == "I look."
    assert found.transitions[0].action.arguments == '{"kind": "bean", "shade": true}'
    assert [each.observation_source for each in found.transitions[-2:]] == ["simulated_user"] * 2
    assert [each.terminal for each in found.transitions[-2:]] == [False, True]


def test_a_chat_trace_names_its_task_context_and_keys():
    one, two, three = fixture("chat.jsonl").imported.traces
    assert (one.task, one.context) == ("Do you have runner beans for a north wall?", "You lend seeds to gardeners.")
    assert (one.declared_tools, one.complete, one.statement) == (1, None, None)
    assert two.task == "Which of these need frost?\nCowslip, poppy."
    assert (three.statement, three.complete) == ("Ask how often to water peas.", True)
    assert [key.split(":")[0] for key in three.keys] == ["session", "task"]


def test_a_legacy_file_counts_a_growing_history_once_and_keeps_the_fork():
    found = fixture("chat_legacy.jsonl")
    check_sums(found)
    assert found.format == "openai_chat_legacy"
    assert [pairing for _, pairing, _ in found.pairs] == ["name_order", "name_order", "user_reply"]
    assert found.outcomes[3:] == ["terminal_no_observation"]
    assert found.aside == {"replayed_history": 2 + 4 + 4, "orphan_result": 1}
    (trace,) = found.imported.traces
    assert {event.branch for event in trace.events} == {"", "list1", "list2", "list4"}


def test_a_tau_bench_file_hides_the_statement_and_reads_the_stop_marker():
    found = fixture("tau_bench.json")
    check_sums(found)
    assert found.outcomes == [
        "explicit_id",
        "user_reply",
        "control_token_only",
        "user_reply",
        "user_reply",
        "explicit_id",
    ]
    assert [each.terminal for each in found.transitions] == [False, False, True, False, True]
    one, other, _ = found.imported.traces
    assert one.keys == other.keys
    assert one.trace_id != other.trace_id
    assert one.statement == "You want a boat for the morning."
    assert not any("You want a boat" in (each.task or "") for each in found.transitions)


def test_a_claude_code_file_tells_people_tools_and_harness_apart():
    found = fixture("claude_code.jsonl")
    check_sums(found)
    assert found.outcomes == [
        *("explicit_id", "explicit_id", "explicit_id", "user_reply"),
        *("explicit_id", "explicit_id", "terminal_no_observation", "terminal_no_observation"),
        *("user_reply", "terminal_no_observation", "user_reply"),
    ]
    assert found.aside == {
        "harness_text": 3,
        "interrupt_marker": 1,
        "observation_without_action": 3,
        "synthetic_assistant": 1,
        "compaction_summary": 1,
        "sidechain_prompt": 1,
    }
    assert [each.observation_kind for each in found.transitions[:3]] == ["tool_error", "tool_result", "user_rejection"]
    assert [each.observation_source for each in found.transitions[:4]] == [
        "environment",
        "environment",
        "human",
        "human",
    ]


def test_a_claude_code_step_sees_what_its_branch_saw():
    found = {said(each): each for each in fixture("claude_code.jsonl").transitions}
    assert found['Grep {"for": "March"}'].task == "Find the tides of March."
    assert (found["04:10 it is."].task, found["04:10 it is."].recent) == (
        "Print the tides for Looe.",
        "No, only the high tides.",
    )
    assert found["Shall I print April?"].recent is None  # a compaction stands before it
    assert found['Read {"path": "april.txt"}'].action.text == "I read both files."


def test_the_order_of_records_changes_no_trace_of_other_conversations():
    data = (DATA / "chat.jsonl").read_bytes().splitlines(keepends=True)
    ids = [{each.trace_id for each in read(b"".join(some)).imported.traces} for some in (data, data[::-1], data[:1])]
    assert ids[0] == ids[1] > ids[2]


# Which format

NAMES = {
    "chat": "openai_chat",
    "chat_legacy": "openai_chat_legacy",
    "chat_chunks": "openai_chat_chunks",
    "chat_response": "openai_chat_chunks",
    "codex": "codex_rollout",
    "codex_fork": "codex_rollout",
    "langfuse_observations": "langfuse",
    "langsmith_ingest": "langsmith_runs",
    "langsmith_managed": "langsmith_runs",
    "anthropic_stream": "anthropic_messages",
    "openai_responses_stream": "openai_responses",
}


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_a_format_is_sniffed_from_the_records_and_the_rule_is_named(path: Path):
    format, rule = choose(frame(path.read_bytes()))
    assert format.name == NAMES.get(path.stem, path.stem)
    assert rule
    assert choose(frame(path.read_bytes()), format.name) == (format, "declared")


def test_many_lines_of_metadata_before_the_first_known_record_do_not_hide_the_format():
    head = [{"type": "file-history-snapshot", "n": at} for at in range(200)]
    found = read(lines(*head, typed("u", None, "go"), spoken("a", "u", "m", text("x")), typed("v", "a", "ok")))
    assert (found.format, found.aside["harness_text"], len(found.transitions)) == ("claude_code", 200, 1)


def test_a_wrongly_declared_format_says_what_the_file_looks_like():
    data = (DATA / "chat.jsonl").read_bytes()
    with pytest.raises(TraceFormatError, match="claude_code: it looks like openai_chat"):
        read(data, "claude_code")
    with pytest.raises(UsageError, match="no format is called 'nonsense'; known are openai_chat"):
        read(data, "nonsense")


def test_a_declared_claude_file_needs_no_session_id():
    data = lines(typed("u", None, "go"), spoken("a", "u", "m", text("x")), typed("v", "a", "ok")).replace(
        b"sessionId", b"session"
    )
    assert read(data, "claude_code").pairs == [("x", "user_reply", "ok")]


def test_a_file_whose_records_cannot_be_read_says_why():
    with pytest.raises(TraceFormatError, match="nothing that can be read \\(not_utf8\\)"):
        read(b'{"messages":"\xff"}')


def test_law_15_an_error_about_a_file_is_one_short_line_whatever_the_file_says():
    with pytest.raises(TraceFormatError) as refused:
        read(json.dumps({"\x1b[31m\n" + "long" * 9_999: 1, "\u202e": 2}).encode())
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_every_format_has_a_name_of_its_own():
    assert len({each.name for each in formats()}) == len(formats())


# Laws over whatever a file may hold

chat_files = st.builds(lambda some: lines(*some), st.lists(chats | st.lists(messages), max_size=4))
other_files = st.builds(
    lambda some: json.dumps(some).encode(), st.lists(chats | runs, max_size=3) | st.lists(messages, max_size=6)
)
claude_files = st.builds(
    lambda some: lines(line("u", None, "user", {"content": "go"}), *some),
    st.lists(claude_lines, min_size=1, max_size=9),
)


@given(chat_files | other_files | claude_files, damage, st.integers(0, 2_000))
def test_law_5_whatever_a_file_holds_is_used_or_set_aside_or_refused_in_words(data: bytes, hurt: bytes, at: int):
    with suppress(LabError):
        found = read(data[:at] + hurt + data[at:])
        check_sums(found)
        check_spans(found)


@given(st.binary(max_size=200))
def test_law_5_no_bytes_raise_anything_but_a_named_error(data: bytes):
    with suppress(LabError):
        check_sums(read(data))


# Chat, one by one


def test_null_and_empty_conversation_ids_declare_nothing():
    records = [
        chat(asks("q"), says(f"a{at}"), asks("r"), conversation=each)
        for at, each in enumerate([None, "", False, 0, "0"])
    ]
    found = read(lines(*records))
    assert [trace.keys for trace in found.imported.traces] == [(), (), (), ("session:0",)]
    assert len(found.transitions) == 5


def test_a_task_id_that_declares_nothing_unites_nothing():
    records = [
        chat(asks(f"q{at}"), says("a"), asks("r"), metadata={"task_id": each}) for at, each in enumerate(["", None, 3])
    ]
    assert [len(trace.keys) for trace in read(lines(*records)).imported.traces] == [0, 0, 1]


def test_numbers_are_ids():
    found = read(lines(chat(asks("q"), says(None, call(1, "f"), call(2, "f")), gives(2, "two"), gives("1", "one"))))
    assert found.pairs == [("f {}", "explicit_id", "one"), ("f {}", "explicit_id", "two")]


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        ({"b": 1.0, "a": []}, '{"b": 1.0, "a": []}'),
        ([1, 2], "[1, 2]"),
        (5, "5"),
        (False, "false"),
        ("not {json", "not {json"),
        (' {"a" : 1}', ' {"a" : 1}'),
        ("", "{}"),
        (None, "{}"),
        ({}, "{}"),
    ],
)
def test_arguments_are_kept_as_they_stand(given_: object, kept: str):
    found = read(lines(chat(asks("q"), says(None, call("k", "f", given_)), gives("k", "r"))))
    assert [each.action.arguments for each in found.transitions] == [kept]


def test_content_may_be_text_blocks_other_values_or_nothing():
    image = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "u"}}]
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    talk = [
        asks("q"),
        says("1"),
        asks(blocks),
        says("2"),
        asks(image),
        says("3"),
        asks(None),
        says("4"),
        asks(""),
        says("5"),
        asks(7),
    ]
    found = read(lines(chat(*talk)))
    assert [each.observation for each in found.transitions] == ["a\nb", json.dumps(image), "", "", "7"]
    check_spans(found)


@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": ""}], 0, False, {}])
def test_an_assistant_message_that_says_and_does_nothing_is_no_step(content: object):
    found = read(lines(chat(asks("q"), says(content), asks("hello?"))))
    assert (found.outcomes, found.aside) == ([], {"empty_message": 1, "observation_without_action": 1})


def test_a_refusal_is_what_the_agent_said():
    found = read(lines(chat(asks("q"), says(None) | {"refusal": "I cannot"}, asks("why"))))
    assert found.pairs == [("I cannot", "user_reply", "why")]
    check_spans(found)


@pytest.mark.parametrize(
    "calls", [{"id": "k", "function": {"name": "f", "arguments": "{}"}}, "f", 3, [None], ["f"], [{}]]
)
def test_malformed_calls_are_steps_all_the_same(calls: object):
    found = read(lines(chat(asks("q"), says("text") | {"tool_calls": calls}, gives("k", "r"))))
    is_call = isinstance(calls, dict)
    assert found.outcomes == ["explicit_id" if is_call else "call_without_name"]
    check_sums(found)
    check_spans(found)


def test_one_call_in_both_spellings_is_one_step():
    both = says(None, call("k", "f", '{"a":1}')) | {"function_call": {"name": "f", "arguments": '{"a":1}'}}
    found = read(lines(chat(asks("q"), both, gives("k", "r"))))
    assert (found.pairs, found.aside) == ([('f {"a":1}', "explicit_id", "r")], {"duplicate_view": 1})
    other = both | {"function_call": {"name": "g", "arguments": "{}"}}
    mixed = read(lines(chat(asks("q"), other, gives("k", "r"), {"role": "function", "name": "g", "content": "s"})))
    assert mixed.pairs == [('f {"a":1}', "explicit_id", "r"), ("g {}", "name_order", "s")]


def test_an_absent_function_call_does_not_make_a_file_legacy():
    assert read(lines(chat(asks("q"), says("a") | {"function_call": None}, asks("r")))).format == "openai_chat"


def test_a_message_between_call_and_result_takes_nothing_away():
    between = [asks("hurry"), {"role": "system", "content": "note"}, {"role": "critic", "content": "hm"}]
    found = read(
        lines(chat(asks("q"), says(None, call("k", "f")), *between, gives("k", "r"), says("done"), asks("ok")))
    )
    assert found.pairs == [("f {}", "explicit_id", "r"), ("done", "user_reply", "ok")]
    assert found.aside == {"observation_without_action": 1, "harness_text": 1, "unknown_role": 1}


def test_a_result_before_any_action_is_context_and_one_before_its_call_pairs_with_nothing():
    found = read(
        lines(
            chat(asks("q"), gives("k", "start"), says("a"), asks("b"), gives("k", "early"), says(None, call("k", "f")))
        )
    )
    assert found.outcomes == ["user_reply", "unanswered_call"]
    assert found.aside == {"id_mismatch": 1}
    assert found.imported.traces[0].context == "start"


def test_the_first_message_of_a_user_is_the_task_and_answers_no_greeting():
    found = read(lines(chat(says("Welcome"), asks("Two beds"), says("For when?"), asks("May"))))
    assert found.imported.traces[0].task == "Two beds"
    assert found.pairs == [("For when?", "user_reply", "May")]
    assert [each.task for each in found.transitions] == ["Two beds"]
    assert found.outcomes == ["no_authored_reply", "user_reply"]


def test_lines_of_single_messages_are_one_conversation():
    found = read(lines(asks("q"), says("a"), asks("b")))
    assert found.pairs == [("a", "user_reply", "b")]


def test_a_conversation_that_forks_counts_its_start_once_and_sees_it_in_both():
    start = [asks("q"), says("a"), asks("b")]
    two = [chat(*start, says(each), asks(f"{each}!"), conversation="c") for each in ("c", "d")]
    found = read(lines(*two))
    assert found.pairs == [("a", "user_reply", "b"), ("c", "user_reply", "c!"), ("d", "user_reply", "d!")]
    assert [each.recent for each in found.transitions] == [None, "b", "b"]
    assert found.aside == {"replayed_history": 3}


def test_a_shorter_list_after_the_longer_one_is_a_replay_too():
    talk = [asks("q"), says("a"), asks("b"), says("c")]
    found = read(lines(chat(*talk, conversation="c"), chat(*talk[:3], conversation="c")))
    assert (found.outcomes, found.aside) == (["user_reply", "terminal_no_observation"], {"replayed_history": 3})


def test_the_same_bytes_again_are_a_duplicate_record():
    talk = chat(asks("q"), says("a"), asks("b"))
    assert read(lines(talk, chat(asks("q")), talk)).rejected == [(3, "duplicate_record")]


def test_the_id_of_a_message_is_no_id_of_its_legacy_call():
    made = {"role": "assistant", "id": "msg_1", "function_call": {"name": "f", "arguments": "{}"}}
    found = read(lines(chat(asks("q"), made, {"role": "function", "name": "f", "content": "r"})))
    assert found.pairs == [("f {}", "name_order", "r")]


def test_equal_messages_are_equal_whatever_a_server_wrote_beside_them():
    short = [asks("q"), says("a"), asks("b")]
    long = [asks("q"), says("a") | {"annotations": [], "refusal": None}, asks("b"), says("c"), asks("d")]
    found = read(lines(chat(*short, conversation="c"), chat(*long, conversation="c")))
    assert [action for action, _, _ in found.pairs] == ["a", "c"]


def test_a_growing_history_keeps_its_strong_ids():
    one = [asks("q"), says(None, call("k", "f"))]
    found = read(lines(chat(*one, conversation="c"), chat(*one, gives("k", "r"), conversation="c")))
    assert found.pairs == [("f {}", "explicit_id", "r")]


@pytest.mark.parametrize("bad", ["null", "7", '"x"', '{"content":"\\ud800"}'])
def test_a_bare_message_list_loses_only_the_element_that_cannot_be_read(bad: str):
    talk = ", ".join(json.dumps(each) for each in (asks("q"), says("ok"), asks("ok"), says("ok"), asks("end")))
    whole, hurt = (read(f"[{head}{talk}]".encode()) for head in ("", f"{bad}, "))
    assert hurt.pairs == whole.pairs == [("ok", "user_reply", "ok"), ("ok", "user_reply", "end")]
    assert (whole.imported.records, hurt.imported.records, len(hurt.rejected)) == (1, 6, 1)
    check_sums(hurt)
    check_spans(hurt)


def test_a_bare_message_list_with_one_comma_too_many_is_read_message_by_message():
    found = read(f"[,{json.dumps(asks('q'))},,{json.dumps(says('a'))},{json.dumps(asks('b'))}]".encode())
    assert (found.pairs, found.imported.records) == ([("a", "user_reply", "b")], 3)
    check_sums(found)
    check_spans(found)


def test_a_bare_message_list_that_is_cut_gives_its_complete_messages():
    data = json.dumps([asks("q"), says("a"), asks("b"), says("c" * 99)]).encode()[:-40]
    found = read(data)
    assert (found.pairs, found.rejected) == ([("a", "user_reply", "b")], [(4, "truncated")])
    check_sums(found)


def test_one_message_without_a_role_does_not_cost_its_conversation():
    found = read(lines(chat(asks("q"), None, says("a"), {"content": "?"}, asks("b"))))
    assert (found.pairs, found.aside) == ([("a", "user_reply", "b")], {"unknown_role": 2})


@pytest.mark.parametrize(
    ("message", "format"),
    [
        ({"role": "assistant", "content": [use("t", "f", {})]}, "anthropic_messages"),
        ({"role": "user", "content": [result("t", "r")]}, "anthropic_messages"),
        ({"role": "assistant", "parts": [{"type": "text", "text": "x"}]}, "vercel_ai"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, None),
        ({"role": "user", "content": "<returncode>0</returncode>\n<output>\n</output>"}, None),
    ],
)
def test_messages_that_another_format_wrote_are_not_misread_as_chat(message: dict[str, object], format: str | None):
    foreign = chat(asks("q"), says("a"), message)
    if format is None:
        with pytest.raises(TraceFormatError, match="no known format"):
            read(lines(foreign))
    else:
        assert read(lines(foreign)).format == format
    found = read(lines(chat(asks("q"), says("a"), asks("b")), foreign))
    assert (len(found.transitions), found.rejected) == (1, [(2, "unknown_shape")])


def test_law_15_no_tool_ends_a_simulated_conversation():
    talk = [asks("q"), says(None, call("k", "f")), gives("k", "###STOP###"), says("a"), asks("b")]
    found = read(json.dumps([{"task_id": 1, "trial": 0, "traj": talk}]).encode())
    assert [(each.observation, each.terminal) for each in found.transitions] == [("###STOP###", False), ("b", True)]


# Claude Code, one by one


def test_results_between_the_lines_of_one_message_keep_it_one_turn():
    found = read(
        lines(
            typed("u", None, "go"),
            spoken("a1", "u", "m1", use("t1", "R", {"n": 1})),
            typed("r1", "a1", [result("t1", "one")]),
            spoken("a2", "a1", "m1", use("t2", "R", {"n": 2})),
            typed("r2", "a2", [result("t2", "two")]),
        )
    )
    assert [(each.pairing, each.recent, each.observation) for each in found.transitions] == [
        ("explicit_id", None, "one"),
        ("explicit_id", None, "two"),
    ]


def test_a_block_that_is_written_twice_is_one_step():
    twice = [spoken(uuid, "u", "m1", use("t1", "R", {"n": 1})) for uuid in ("a1", "a2")]
    found = read(lines(typed("u", None, "go"), *twice, typed("r", "a2", [result("t1", "one")])))
    assert (found.pairs, found.aside) == ([('R {"n": 1}', "explicit_id", "one")], {"duplicate_view": 1})


def test_equal_calls_without_an_id_are_two_calls():
    twice = [spoken(uuid, "u", "m1", use(None, "R", {})) for uuid in ("a1", "a2")]
    found = read(lines(typed("u", None, "go"), *twice))
    assert found.outcomes == ["unanswered_call"] * 2


def test_one_uuid_is_one_line_and_an_empty_one_is_none():
    same = [spoken("a", "u", "m", text(each)) for each in ("x", "y")]
    nameless = [spoken(None, "u", "n", text("z")), typed("", "a", "ok"), typed("", "a", "again")]
    found = read(lines(typed("u", None, "go"), *same, *nameless))
    assert found.rejected == [(3, "duplicate_record")]
    assert found.outcomes == ["no_authored_reply", "user_reply"]


def test_dangling_parents_and_parent_cycles_stay_on_the_main_branch():
    cycle = [spoken("b", "c", "m2", text("y")), spoken("c", "b", "m3", text("z")), typed("d", "d", "end")]
    found = read(lines(typed("u", "u", "go"), spoken("a", "gone", "m1", text("x")), typed("v", "lost", "ok"), *cycle))
    assert {event.branch for trace in found.imported.traces for event in trace.events} == {""}
    assert found.pairs == [("x", "user_reply", "ok"), ("z", "user_reply", "end")]


def test_an_edited_first_message_is_a_branch_and_answers_nothing():
    first = [typed("u", None, "go"), spoken("a", "u", "m1", text("x"))]
    edited = [typed("u2", None, "go elsewhere"), spoken("a2", "u2", "m2", text("y")), typed("v", "a2", "fine")]
    found = read(lines(*first, *edited))
    assert found.outcomes == ["terminal_no_observation", "user_reply"]
    assert [(said(each), each.task, each.recent) for each in found.transitions] == [("y", "go elsewhere", None)]


@pytest.mark.parametrize("is_late", [False, True])
def test_lines_of_metadata_between_two_messages_keep_them_on_one_branch(is_late: bool):
    start = [
        typed("u", None, "go"),
        spoken("a", "u", "m1", text("x")),
        typed("v", "a", "yes"),
        spoken("b", "v", "m2", text("y")),
    ]
    edited = [typed("e", "a", "no"), line("p", "e", "progress"), line("q", "p", "progress")]
    edited = [*edited[1:], edited[0]] if is_late else edited  # the message may be written after what follows it
    found = read(lines(*start, *edited, spoken("c", "q", "m3", text("z")), typed("w", "c", "end")))
    assert found.pairs == [("x", "user_reply", "yes"), ("z", "user_reply", "end")]
    assert [each.recent for each in found.transitions] == [None, "no"]


def test_a_long_chain_of_metadata_is_walked_once():
    chain = [line(f"p{at}", f"p{at - 1}" if at else "a", "progress") for at in range(20_000)]
    found = read(lines(typed("u", None, "go"), spoken("a", "u", "m1", text("x")), *chain, typed("v", "p19999", "ok")))
    assert found.pairs == [("x", "user_reply", "ok")]


def test_a_file_that_never_names_parents_has_one_branch():
    talk = [typed("u", None, "go"), spoken("a", None, "m1", text("x")), typed("v", None, "ok")]
    assert read(lines(*talk)).pairs == [("x", "user_reply", "ok")]


def test_a_sub_agent_of_a_sub_agent_is_a_branch_of_its_own():
    outer, inner = ({"isSidechain": True, "agentId": each} for each in ("outer", "inner"))
    found = read(
        lines(
            typed("u", None, "go"),
            spoken("a", "u", "m1", use("t", "Task", {})),
            typed("o1", "a", "outer task", **outer),
            spoken("o2", "o1", "m2", use("t2", "Task", {}), **outer),
            typed("i1", "o2", "inner task", **inner),
            spoken("i2", "i1", "m3", text("inner end"), **inner),
            typed("o3", "o2", [result("t2", "inner end")], **outer),
            spoken("o4", "o3", "m4", text("outer end"), **outer),
            typed("o5", "o4", "do more", **outer),
            typed("r", "a", [result("t", "outer end")]),
        )
    )
    assert [(each.task, each.observation) for each in found.transitions] == [
        ("go", "outer end"),
        ("outer task", "inner end"),
    ]
    assert found.outcomes == ["explicit_id", "explicit_id", "terminal_no_observation", "terminal_no_observation"]
    assert found.aside == {"sidechain_prompt": 3}


def test_a_file_of_a_sub_agent_alone_is_its_own_trace_in_the_lineage_of_its_session():
    own = {"isSidechain": True, "agentId": "scout"}
    (trace,) = read(lines(typed("u", None, "find it", **own), spoken("a", "u", "m", text("x"), **own))).imported.traces
    (main,) = read(lines(typed("u", None, "go"), spoken("a", "u", "m", text("x")))).imported.traces
    assert (trace.name, trace.task, trace.keys) == ("agent scout", "find it", main.keys)
    assert trace.trace_id != main.trace_id


def test_typed_text_beside_harness_text_is_still_typed():
    blocks = [text("<system-reminder>note</system-reminder>"), text("and this?")]
    found = read(lines(typed("u", None, "go"), spoken("a", "u", "m", text("x")), typed("v", "a", blocks)))
    assert (found.pairs, found.aside) == ([("x", "user_reply", "and this?")], {"harness_text": 1})


@pytest.mark.parametrize(
    "quoted", ["what does <command-name>/clear</command-name> do?", "[Request interrupted by user] why?"]
)
def test_law_15_a_typed_message_that_quotes_a_marker_is_a_message(quoted: str):
    found = read(lines(typed("u", None, "go"), spoken("a", "u", "m", text("x")), typed("v", "a", quoted)))
    assert found.pairs == [("x", "user_reply", quoted)]


def test_law_15_no_tool_result_clears_interrupts_or_refuses():
    marks = [
        "<command-name>/clear</command-name>",
        "[Request interrupted by user]",
        "The user doesn't want to proceed with this tool use",
    ]
    calls = [use(f"t{at}", "R", {}) for at in range(3)]
    results = [result(f"t{at}", mark) for at, mark in enumerate(marks)]
    found = read(lines(typed("u", None, "go"), spoken("a", "u", "m", *calls), typed("r", "a", results)))
    assert [(each.observation, each.observation_kind) for each in found.transitions] == [
        (mark, "tool_result") for mark in marks
    ]


def test_an_interrupted_call_was_not_answered():
    cut = result("t", "[Request interrupted by user for tool use]", is_error=True)
    found = read(lines(typed("u", None, "go"), spoken("a", "u", "m", use("t", "R", {})), typed("r", "a", [cut])))
    assert (found.outcomes, found.aside) == (["unanswered_call"], {"interrupt_marker": 1})


def test_a_cleared_session_starts_again():
    cleared = typed("c", "a", "<command-name>/clear</command-name>\n<command-message>clear</command-message>")
    again = [typed("v", "c", "second"), spoken("b", "v", "m2", text("y")), typed("w", "b", "ok")]
    found = read(lines(typed("u", None, "first"), spoken("a", "u", "m", text("x")), cleared, *again))
    assert found.outcomes == ["terminal_no_observation", "user_reply"]
    assert [(each.task, each.recent) for each in found.transitions] == [("second", None)]


def test_compaction_twice_is_two_boundaries_and_the_agent_goes_on():
    found = read(
        lines(
            *(typed("u", None, "go"), spoken("a", "u", "m1", text("one"))),
            *(line("b1", None, "system", subtype="compact_boundary"), typed("s1", "b1", "sum", isCompactSummary=True)),
            *(spoken("c", "s1", "m2", text("two")), typed("v", "c", "on")),
            *(spoken("d", "v", "m3", text("three")), line("b2", None, "system", subtype="compact_boundary")),
            *(
                typed("s2", "b2", "sum", isCompactSummary=True),
                spoken("e", "s2", "m4", text("four")),
                typed("w", "e", "end"),
            ),
        )
    )
    assert found.outcomes == ["terminal_no_observation", "user_reply", "terminal_no_observation", "user_reply"]
    assert found.pairs == [("two", "user_reply", "on"), ("four", "user_reply", "end")]
    assert found.aside == {"compaction_summary": 2}


def test_a_message_without_content_is_set_aside_in_its_place():
    empty = [
        line("e", "a", "assistant", {"id": "e", "model": "<synthetic>"}),
        line("s", "e", "user", {"role": "user"}, isCompactSummary=True),
        line("n", "s", "user", {"role": "user", "content": None}),
        line("o", "n", "assistant", {"id": "o", "content": None}),
    ]
    found = read(lines(typed("u", None, "go"), spoken("a", "u", "m", text("x")), *empty))
    assert found.aside == {"synthetic_assistant": 1, "compaction_summary": 1, "harness_text": 1, "empty_message": 1}
    check_spans(found)


def test_sessions_that_share_a_file_are_traces_of_their_own():
    one, two = ({"sessionId": each} for each in ("one", 2))
    found = read(
        lines(
            {"type": "summary", "summary": "about one"},
            *(typed("u", None, "go", **one), typed("v", None, "come", **two)),
            *(spoken("a", "u", "m", text("x"), **one), spoken("b", "v", "m", text("y"), **two)),
            *(typed("w", "a", "ok", **one), typed("z", "b", "no", **two)),
        )
    )
    assert [trace.keys for trace in found.imported.traces] == [("session:one",), ("session:2",)]
    assert found.pairs == [("x", "user_reply", "ok"), ("y", "user_reply", "no")]


def test_usage_is_unknown_as_soon_as_one_message_states_none():
    def usage(*stated: object) -> object:
        made = [
            line(f"a{at}", "u", "assistant", {"id": f"m{at}", "content": [text(f"{at}")], "usage": each})
            for at, each in enumerate(stated)
        ]
        return read(lines(typed("u", None, "go"), *made, typed("v", "a0", "ok"))).imported.traces[0].usage

    assert usage({"input_tokens": 3}, {"input_tokens": 4}) == (("input_tokens", 7), ("model_messages", 2))
    assert usage({"input_tokens": 3}, None) is None
    assert usage({"input_tokens": 3}, {"service_tier": "standard"}) is None
    assert usage({"input_tokens": -1}) is usage({"input_tokens": 10**30}) is None


def test_law_3_no_list_of_a_conversation_takes_its_task_from_its_own_observation():
    one, two = (
        [says(greeting), asks("SECRET answer"), says("ok"), asks("bye")] for greeting in ("hello one", "hello two")
    )
    found = read(lines(chat(*one, conversation="x"), chat(*two, conversation="x")))
    assert found.pairs == [("ok", "user_reply", "bye"), ("ok", "user_reply", "bye")]
    assert all(each.observation not in (each.task, each.recent) for each in found.transitions)


def test_logged_requests_that_send_their_history_again_are_one_conversation():
    first = [asks("Where is it?"), says("Which order?"), asks("Order 7")]
    whole = [
        *first,
        says(None, call("a", "find", '{"id": 7}')),
        gives("a", "packed"),
        says("It is packed."),
        asks("Thanks"),
    ]
    found = read(lines(chat(*first[:1]), chat(*first), chat(*whole[:5]), chat(*whole)))
    assert found.pairs == [
        ("Which order?", "user_reply", "Order 7"),
        ('find {"id": 7}', "explicit_id", "packed"),
        ("It is packed.", "user_reply", "Thanks"),
    ]
    assert len(found.imported.traces) == 2  # the first request holds no action: nothing says that it is of the same run
    assert found.aside["replayed_history"] == 3 + 5
    check_sums(found)


@pytest.mark.parametrize("key", ["task_id", "trial", "session_id"])
def test_a_longer_run_of_another_declared_trial_replays_no_shorter_one(key: str):
    start = [asks("Where is it?"), says(None, call("a", "find")), gives("a", "packed")]
    rows = [chat(*start, metadata={key: 1}), chat(*start, says("Packed."), metadata={key: 2})]
    found = read(lines(*rows))
    assert found.outcomes == ["explicit_id", "explicit_id", "terminal_no_observation"]
    assert len(read(lines(rows[0], rows[1] | {"metadata": {key: 1}})).imported.traces) == 1
    tau = [{"task_id": 1, "trial": at, "info": {}, "traj": row["messages"]} for at, row in enumerate(rows)]
    assert len(read(lines(*tau)).transitions) == 2


def test_two_runs_that_begin_alike_stay_two():
    start = [asks("Where is it?"), says("Which order?")]
    found = read(
        lines(chat(*start, asks("Order 7")), chat(*start, asks("Order 8")), chat(*start, asks("Order 8"), x=1))
    )
    assert len(found.imported.traces) == 3
    assert len(found.transitions) == 3


def test_a_bare_list_that_begins_with_plain_text_is_known_by_all_its_messages():
    anthropic = [
        asks("q"),
        {"role": "assistant", "content": [use("t", "f", {})]},
        {"role": "user", "content": [result("t", "r")]},
    ]
    responses = [asks("q"), {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]
    responses.append({"type": "function_call_output", "call_id": "c", "output": "r"})
    for told, format in (
        (anthropic, "anthropic_messages"),
        (responses, "openai_responses"),
        ([asks("q"), says("a")], "openai_chat"),
    ):
        for data in (json.dumps(told).encode(), lines(*told)):
            assert read(data).format == format
    assert read(json.dumps(responses).encode()).pairs == [("f {}", "explicit_id", "r")]
    assert read(json.dumps(anthropic).encode()).pairs == [("f {}", "explicit_id", "r")]


def test_one_message_among_conversations_costs_itself_alone():
    ask, stray = chat(asks("Where is it?"), says("In the hall."), asks("Thanks")), says("A stray message.")
    found = read(lines(ask, stray, {"type": "message", **stray}))
    assert found.pairs == [("In the hall.", "user_reply", "Thanks")]
    assert found.rejected == [(2, "unknown_shape"), (3, "unknown_shape")]
    check_sums(found)
