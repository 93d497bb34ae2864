"""OpenTelemetry spans: one conversation out of many copies of it, in every spelling of the conventions."""

import base64
import io
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from evidence_cases import DATA, Read, lines, read
from span_cases import (
    SECOND,
    TRACE,
    asks,
    call,
    chat,
    checked,
    gives,
    kind,
    log,
    logs,
    otlp,
    pairs,
    response,
    says,
    seen,
    span,
    survives,
    text,
    tool,
    value,
)

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import openinference, otel
from experiential_lab.evidence.importers.dialects import Node
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.importers.span_records import DETAILS, moment, span_id_of
from experiential_lab.evidence.report import import_files
from experiential_lab.evidence.spans import Place
from experiential_lab.evidence.trace import STEP_REASONS, Trace
from experiential_lab.evidence.transitions import ledger_of
from experiential_lab.records import TraceFormatError

ASK = asks("Weather in Oslo and Lima?")
CALLS = says(call("k1", "weather", city="Oslo"), call("k2", "weather", city="Lima"))
RESULTS = gives(response("k2", "21C"), response("k1", "3C"))
ANSWER = says("3C and 21C")
PAIRED = [
    ('weather {"city": "Oslo"}', "explicit_id", "3C"),
    ('weather {"city": "Lima"}', "explicit_id", "21C"),
]


def parent(number: int) -> dict[str, str]:
    return {"parentSpanId": f"{number:016x}"}


def branches(found: Read) -> set[str]:
    return {event.branch for trace in found.imported.traces for event in trace.events}


# Faults that were reported for other tools


@pytest.mark.parametrize("name", ["10-otel-genai-parts", "25-otlp-id-encodings"])
def test_a_reported_fault_has_the_right_transitions_and_reasons(shared: Path, name: str):
    found = checked((shared / "cases" / f"{name}.jsonl").read_bytes())
    right = json.loads((shared / "cases" / f"{name}.expected.json").read_text())
    assert (found.format, len(found.transitions)) == (right["format"], right["n_transitions"])
    for each, expected in zip(found.pairs, right["transitions"], strict=True):
        assert each[1:] == (expected["pairing"], expected["observation"])
        assert all(word in each[0] for word in expected["action"].split())
    reasons = Counter(each["reason"] for each in right["rejects"])
    left_out = Counter(row.outcome for each in found.ledgers for row in each.rows if row.transition_id is None)
    rejected = Counter(reason for _, reason in found.rejected)
    assert left_out + rejected == reasons
    assert set(left_out) <= set(STEP_REASONS)


def test_case_10_collapses_two_views_and_the_history_adds_nothing(shared: Path):
    found = checked((shared / "cases" / "10-otel-genai-parts.jsonl").read_bytes())
    assert found.aside == {"duplicate_view": 2, "replayed_history": 3}  # two tool spans; one question and two calls


def test_case_25_rejects_the_second_spelling_and_names_the_trace_by_its_hex_id(shared: Path):
    found = checked((shared / "cases" / "25-otlp-id-encodings.jsonl").read_bytes())
    expected = json.loads((shared / "cases" / "25-otlp-id-encodings.expected.json").read_text())
    assert found.rejected == [(2, "duplicate_span")]
    assert found.imported.traces[0].keys == (f"session:{expected['trace_id']}",)


# Real files, counted by hand


def numbers(path: Path) -> tuple[Any, ...]:
    found = checked(path.read_bytes())
    imported = found.imported
    return imported.records, len(imported.traces), len(found.outcomes), Counter(found.outcomes), found.aside


def test_the_real_files_of_the_vercel_sdk_have_these_numbers(shared: Path):
    folder = shared / "samples" / "openinference"
    # Read by hand: two spans, each alone in its trace id. The first asks for a haiku and gets it. The second holds system,
    # user ("2 + 2"), assistant, user ("3 + 3") in its prompt, and one more answer: 2 + 1 steps, of which the first answer
    # is followed by a user's message. Both files hold the same two calls: inner spans in the one, outer ones in the other.
    right = 2, 2, 3, {"terminal_no_observation": 2, "user_reply": 1}, {}
    assert numbers(folder / "ai-generateText-doGenerate.json") == right
    assert numbers(folder / "ai-generateText.json") == right


def test_the_real_file_of_all_spans_counts_each_response_once(shared: Path):
    # Read by hand: ten spans in ten trace ids: inner and outer span of two texts, an object, a stream, an embedding. The
    # four outer ones carry the response id of their inner ones: 2 + 5 + 2 + 2 messages that are copies. The inner ones have
    # 1 + 2 + 1 + 1 answers, one of which a user's message follows. The two embeddings say nothing.
    path = shared / "samples" / "openinference" / "all-spans.json"
    outcomes = {"terminal_no_observation": 4, "user_reply": 1}
    assert numbers(path) == (10, 10, 5, outcomes, {"duplicate_view": 11, "harness_text": 2})
    found = read(path.read_bytes())
    assert found.pairs == [("2 + 2 equals 4.", "user_reply", "And what is 3 + 3?")]
    usage = [dict(trace.usage) for trace in found.imported.traces if trace.usage]
    assert [each["input_tokens"] for each in usage] == [14, 50, 63, 15]  # of the inner spans alone
    assert found.imported.traces[0].events[0].at == "2026-02-03T15:19:52.242000000Z"


@pytest.mark.parametrize("name", ["gen-ai-input-messages.json", "gen-ai-output-messages.json"])
def test_a_schema_of_messages_is_no_trace_and_is_refused_by_what_it_holds(shared: Path, name: str):
    with pytest.raises(TraceFormatError, match=r"no known format.*'\$defs'"):
        read((shared / "samples" / "openinference" / name).read_bytes())


def test_no_file_of_another_format_looks_like_spans(shared: Path):
    ours = {"otel", "openinference", "otlp"}
    for path in [*(shared / "samples").rglob("*.*"), *(shared / "cases").glob("*.jsonl")]:
        if path.parent.name in ours or any(word in path.name for word in ours) or path.suffix == ".tsv":
            continue
        try:
            values = [record.value for record in frame(path.read_bytes()).records if not record.reason][:50]
        except TraceFormatError:
            continue
        sniffs = [each.sniff for each in (*otel.FORMATS, *openinference.FORMATS)]
        assert not any(sniff(each) for sniff in sniffs for each in values), path


def test_the_projects_own_file_has_these_numbers():
    # Made by hand. Line 1: an agent's span and a model call that makes two calls (one question, two calls). Line 2, ids in
    # base64 and enums by name: both tool spans (four copies: two arguments, two results, the second failed) and the second
    # model call (three messages again, two results, an answer). Line 3: the same tool span again. Line 4: a span whose
    # messages stand in the log records of line 5 (a question, an answer). Line 6: the oldest spelling (question, call,
    # result, answer). Line 7: a web request.
    found = checked((DATA / "otlp_genai.jsonl").read_bytes())
    assert found.imported.records == 7
    assert found.rejected == [(3, "duplicate_span")]
    assert [trace.name for trace in found.imported.traces] == [
        "invoke_agent clerk",
        "chat lens",
        "openai.chat",
        "GET /",
    ]
    assert found.pairs == [
        ('stock {"item": "bolt"}', "explicit_id", "14 left"),
        ('stock {"item": "nut"}', "explicit_id", "no such item"),
        ('sum {"of": [2, 3]}', "order_only", "5"),
    ]
    assert [each.observation_kind for each in found.transitions] == ["tool_result", "tool_error", "tool_result"]
    assert Counter(found.outcomes) == {"explicit_id": 2, "order_only": 1, "terminal_no_observation": 3}
    # agent, web request and the span of line 4 only by name; line 2 repeats a question and two calls
    assert found.aside == {"duplicate_view": 5, "replayed_history": 3, "harness_text": 2}
    assert [trace.usage for trace in found.imported.traces] == [
        (("input_tokens", 52), ("model_messages", 2), ("output_tokens", 18)),
        None,
        (("input_tokens", 9), ("model_messages", 1), ("output_tokens", 1)),
        None,
    ]
    assert found.transitions[1].at == "2026-03-04T09:00:02.750000000Z"  # the end of its tool span
    assert found.imported.traces[0].declared_tools == 2


# A conversation is rebuilt once


def test_a_history_that_grows_over_three_calls_counts_once():
    told = [ASK, CALLS, RESULTS, ANSWER, asks("And Rome?"), says(call("k3", "weather", city="Rome"))]
    found = seen(
        chat(1, told[:1], [CALLS]),
        chat(2, told[:3], [ANSWER]),
        chat(3, told[:5], [told[5]]),
        chat(4, [*told, gives(response("k3", "30C"))], [says("30C")]),
    )
    assert found.pairs == [
        *PAIRED,
        ("3C and 21C", "user_reply", "And Rome?"),
        ('weather {"city": "Rome"}', "explicit_id", "30C"),
    ]
    assert found.outcomes[-1] == "terminal_no_observation"
    assert set(found.aside) == {"replayed_history"}


def test_spans_in_any_order_of_the_file_give_the_same_transitions():
    spans = [chat(1, [ASK], [CALLS]), tool(2, "weather", "k1", "3C"), chat(3, [ASK, CALLS, RESULTS], [ANSWER])]
    assert seen(*spans).pairs == seen(*reversed(spans)).pairs == PAIRED


def test_without_a_start_the_order_of_the_file_counts():
    spans = [chat(1, [ASK], [CALLS]), chat(3, [ASK, CALLS, RESULTS], [ANSWER])]
    del spans[0]["startTimeUnixNano"]
    assert seen(*spans).pairs == PAIRED


def test_an_id_that_starts_again_every_turn_pairs_with_its_own_turn():
    told: list[Any] = [asks("go")]
    spans = []
    for turn in range(3):
        made = says(call("call_0", "look", at=turn))
        spans += [chat(10 * turn, list(told), [made]), tool(10 * turn + 5, "look", "call_0", f"saw {turn}")]
        told += [made, gives(response("call_0", f"saw {turn}"))]
    found = seen(*spans)
    assert [(pairing, saw) for _, pairing, saw in found.pairs] == [("explicit_id_scoped", f"saw {n}") for n in range(3)]
    assert found.aside["duplicate_view"] == 2  # the last turn is in no history: its tool span counts


def test_an_edited_old_result_and_a_cut_start_do_not_make_a_second_conversation():
    edited = gives(response("k2", "[cleared]"), response("k1", "[cleared]"))
    told = [ASK, CALLS, RESULTS, ANSWER, asks("And Rome?")]
    spans = [chat(1, [ASK], [CALLS]), chat(2, told[:3], [ANSWER])]
    for history in ([ASK, CALLS, edited, *told[3:]], told[2:]):
        found = seen(*spans, chat(3, history, [says("30C")]))
        assert found.pairs == [*PAIRED, ("3C and 21C", "user_reply", "And Rome?")]
        assert branches(found) == {""}


def test_a_history_that_leaves_out_a_text_or_swaps_two_calls_goes_on_all_the_same():
    made = says("Let me see", *CALLS["parts"])
    swapped = says(*reversed(CALLS["parts"]))
    for history in (CALLS, swapped):
        found = seen(chat(1, [ASK], [made]), chat(2, [ASK, history, RESULTS], [ANSWER]))
        assert found.pairs == PAIRED
        assert branches(found) == {""}


def test_a_second_attempt_is_a_branch_and_its_answer_is_its_own():
    found = seen(
        chat(1, [asks("q")], [says("a")]),
        chat(2, [asks("q")], [says("b")]),
        chat(3, [asks("q"), says("b"), asks("fine")], [says("c")]),
    )
    assert found.outcomes == ["terminal_no_observation", "user_reply", "terminal_no_observation"]
    assert found.pairs == [("b", "user_reply", "fine")]
    assert len(branches(found)) == 2


def test_the_same_call_seen_by_two_instrumentations_is_one():
    found = seen(chat(1, [asks("q")], [says("a")]), chat(2, [asks("q")], [says("a")]))
    assert found.outcomes == ["terminal_no_observation"]
    assert found.aside == {"replayed_history": 1, "duplicate_view": 1}


def test_candidates_are_branches_and_the_reply_answers_the_one_in_the_history():
    both = [says("a", finish_reason="stop"), says("b", finish_reason="stop")]
    found = seen(chat(1, [asks("q")], both), chat(2, [asks("q"), says("b"), asks("fine")], [says("c")]))
    assert found.pairs == [("b", "user_reply", "fine")]
    assert found.outcomes == ["terminal_no_observation", "user_reply", "terminal_no_observation"]


def test_another_system_prompt_goes_on_with_the_same_conversation():
    spans = [
        chat(1, [says("Be kind", role="system"), ASK], [CALLS]),
        chat(2, [says("Be brief", role="system"), ASK, CALLS, RESULTS], [ANSWER]),
    ]
    found = seen(*spans)
    assert found.pairs == PAIRED
    assert found.imported.traces[0].context == "Be kind\n\nBe brief"


def test_instructions_are_context_once():
    be = {"gen_ai.system_instructions": json.dumps([text("Be kind"), text("Be brief")])}
    found = seen(chat(1, [ASK], [CALLS], be), chat(2, [ASK, CALLS, RESULTS], [ANSWER], be))
    assert found.imported.traces[0].context == "Be kind\nBe brief"
    assert found.pairs == PAIRED


def test_an_agent_that_a_tool_runs_is_a_branch_and_nobody_replies_to_it():
    inner = [asks("find it"), says("where?"), asks("there")]
    found = seen(
        chat(1, [asks("go")], [says(call("k", "scout", at="x"))]),
        tool(2, "scout", "k", "found"),
        chat(3, inner[:1], [inner[1]], **parent(2)),
        chat(4, inner, [says("found")], **parent(2)),
        chat(5, [asks("go"), says(call("k", "scout", at="x")), gives(response("k", "found"))], [says("done")]),
    )
    assert found.pairs == [('scout {"at": "x"}', "explicit_id", "found")]
    assert found.aside["sidechain_prompt"] == 2
    assert [row.outcome for row in found.ledgers[0].rows].count("terminal_no_observation") == 2


def test_a_model_call_whose_own_tool_runs_another_agent_is_no_repetition_of_it():
    stated = {"gen_ai.usage.input_tokens": 10}
    found = seen(
        chat(1, [asks("go")], [says(call("k", "scout"))], stated),
        tool(2, "scout", "k", "found", **parent(1)),
        chat(3, [asks("find it")], [says("found")], stated, **parent(2)),
    )
    assert found.pairs == [("scout {}", "explicit_id", "found")]
    assert found.imported.traces[0].usage == (("input_tokens", 20), ("model_messages", 2))


def test_equal_calls_with_other_ids_are_other_calls():
    once, again = says(call("k1", "f")), says(call("k2", "f"))
    found = seen(chat(1, [asks("q")], [once]), chat(2, [asks("q"), again, gives(response("k2", "r"))], [says("a")]))
    assert found.outcomes == ["unanswered_call", "explicit_id", "terminal_no_observation"]
    assert len(branches(found)) == 2


def test_conversations_in_one_trace_that_share_nothing_are_branches_with_tasks_of_their_own():
    found = seen(chat(1, [asks("one")], [says("a")]), chat(2, [asks("two")], [says("b")]))
    assert found.outcomes == ["terminal_no_observation"] * 2
    assert [event.kind for event in found.imported.traces[0].events] == ["task", "text", "task", "text"]
    assert len(branches(found)) == 2


def test_a_declared_conversation_unites_its_traces_and_says_each_message_once():
    one, two = {"gen_ai.conversation.id": "c"}, {"traceId": "a" * 32}
    found = seen(
        chat(1, [asks("q")], [says("a")], one),
        chat(2, [asks("q"), says("a"), asks("b")], [says("c")], one, **two),
    )
    (trace,) = found.imported.traces
    assert found.pairs == [("a", "user_reply", "b")]
    assert set(trace.keys) == {"session:c", f"session:{TRACE}", f"session:{'a' * 32}"}


def test_a_linked_trace_is_of_the_same_lineage():
    (one, two) = seen(
        chat(1, [asks("q")], [says("a")]),
        chat(2, [asks("r")], [says("b")], traceId="b" * 32, links=[{"traceId": TRACE, "spanId": "0" * 15 + "1"}]),
    ).imported.traces
    assert set(one.keys) < set(two.keys)


# Tools


def test_a_tool_span_is_the_observation_when_no_later_message_shows_it():
    found = seen(
        chat(1, [ASK], [CALLS]), tool(2, "weather", "k2", "21C"), tool(3, "weather", "k1", "x", status={"code": 2})
    )
    assert [(each.observation, each.observation_kind) for each in found.transitions] == [
        ("x", "tool_error"),
        ("21C", "tool_result"),
    ]
    assert [each.at for each in found.transitions] == [
        "2023-11-14T22:13:23.500000000Z",
        "2023-11-14T22:13:22.500000000Z",
    ]


def test_the_message_counts_and_takes_time_and_error_from_the_tools_span():
    failed = {"status": {"code": "STATUS_CODE_ERROR", "message": "timeout"}}
    found = seen(
        chat(1, [ASK], [CALLS]),
        tool(2, "weather", "k1", '"3C"', **failed),
        chat(9, [ASK, CALLS, RESULTS], [ANSWER], status={"code": 1}),
    )
    assert [(each.observation, each.is_error) for each in found.transitions] == [("3C", True), ("21C", None)]
    assert found.transitions[0].at == "2023-11-14T22:13:22.500000000Z"
    assert found.aside["duplicate_view"] == 1


def test_a_tool_that_tells_of_itself_in_events_is_read_there():
    events = [
        {"name": name, "attributes": value(body)["kvlistValue"]["values"]}
        for name, body in (
            ("gen_ai.tool.message", {"role": "tool", "content": '{"city": "Oslo"}', "id": "k1"}),
            ("gen_ai.choice", {"message": "3C", "id": "k1"}),
        )
    ]
    found = seen(chat(1, [ASK], [CALLS]), tool(2, "weather", "k1", None, events=events))
    assert found.pairs == PAIRED[:1]


def test_runs_with_one_id_are_attempts_or_wrappers_and_the_last_to_end_counts():
    tried = [
        tool(2, "weather", "k1", "try again", status={"code": 2}),
        tool(3, "weather", "k1", "3C", status={"code": 1}),
    ]
    found = seen(chat(1, [ASK], [CALLS]), *tried)
    assert [(each.observation, each.is_error) for each in found.transitions] == [("3C", False)]
    shown = seen(chat(1, [ASK], [CALLS]), *tried, chat(4, [ASK, CALLS, RESULTS], [ANSWER]))
    assert [(each.observation, each.is_error) for each in shown.transitions] == [("3C", False), ("21C", None)]
    wrapper = tool(2, "weather", None, "3C", endTimeUnixNano=str(SECOND + 9 * 10**9))
    made = says(call(None, "weather", city="Oslo"))
    found = seen(chat(1, [ASK], [made]), wrapper, tool(3, "weather", None, "3C (raw)", **parent(2)))
    assert [each[2] for each in found.pairs] == ["3C"]


def test_a_call_that_sends_only_the_results_goes_on_where_they_are_waited_for():
    found = seen(chat(1, [ASK], [CALLS]), chat(2, [RESULTS], [ANSWER]))
    assert found.pairs == PAIRED
    assert branches(found) == {""}
    assert (
        seen(chat(1, [ASK], [CALLS]), chat(2, [gives(response("k9", "r"))], [ANSWER])).outcomes[:2]
        == ["unanswered_call"] * 2
    )


def test_a_nameless_run_marks_no_message_that_it_does_not_hold():
    failed = {"status": {"code": 2}}
    found = seen(
        chat(1, [ASK], [CALLS]), tool(2, "weather", None, "4C", **failed), chat(3, [ASK, CALLS, RESULTS], [ANSWER])
    )
    assert [(each.observation, each.is_error) for each in found.transitions] == [("3C", None), ("21C", None)]


def test_an_error_stands_for_the_result_that_a_failed_tool_did_not_give():
    event = {"name": "exception", "attributes": [{"key": "exception.message", "value": {"stringValue": "no network"}}]}
    found = seen(
        chat(1, [ASK], [CALLS]),
        tool(2, "weather", "k1", None, status={"code": 2, "message": "boom"}),
        tool(3, "weather", "k2", None, events=[event], status={"code": 2}),
    )
    assert [(each.observation, each.is_error) for each in found.transitions] == [("boom", True), ("no network", True)]


def test_an_empty_result_is_an_observation():
    found = seen(
        chat(1, [asks("q")], [says(call("k", "f"))]),
        chat(2, [asks("q"), says(call("k", "f")), gives(response("k", ""))], [says("a")]),
    )
    assert found.pairs == [("f {}", "explicit_id", "")]


def test_a_result_that_is_an_object_is_quoted_as_it_stands():
    made = says(call("k", "f"))
    found = seen(
        chat(1, [asks("q")], [made]), chat(2, [asks("q"), made, gives(response("k", {"n": 1.50}))], [says("a")])
    )
    assert found.pairs == [("f {}", "explicit_id", '{"n": 1.5}')]


@pytest.mark.parametrize("call_id", ["other", "k9"])
def test_a_declared_id_that_matches_nothing_never_falls_back(call_id: str):
    made = says(call("k1", "f"))
    found = seen(chat(1, [asks("q")], [made]), chat(2, [asks("q"), made, gives(response(call_id, "r"))], [says("a")]))
    assert found.outcomes == ["unanswered_call", "terminal_no_observation"]
    assert found.aside["id_mismatch"] == 1


def test_without_ids_one_call_and_one_message_pair_by_order_alone():
    made = says(call(None, "f", x=1))
    found = seen(chat(1, [asks("q")], [made]), chat(2, [asks("q"), made, gives(response(None, "r"))], [says("a")]))
    assert found.pairs == [('f {"x": 1}', "order_only", "r")]


def test_without_ids_two_nameless_results_pair_with_nothing():
    made = says(call(None, "f", x=1), call(None, "g"))
    answers = gives(response(None, "r"), response(None, "s"))
    found = seen(chat(1, [asks("q")], [made]), chat(2, [asks("q"), made, answers], [says("a")]))
    assert found.outcomes == ["ambiguous_order"] * 2 + ["terminal_no_observation"]


def test_without_ids_the_tools_spans_give_their_names_to_equal_results():
    made = says(call(None, "f", x=1), call(None, "g"))
    answers = gives(response(None, "r"), response(None, "s"))
    found = seen(
        chat(1, [asks("q")], [made]),
        tool(2, "g", None, "s"),
        tool(3, "f", None, "r"),
        chat(4, [asks("q"), made, answers], [says("a")]),
    )
    assert found.pairs == [('f {"x": 1}', "name_order", "r"), ("g {}", "name_order", "s")]


def test_without_ids_parallel_calls_of_one_tool_follow_their_arguments_and_not_their_start():
    made = says(call(None, "f", x=1), call(None, "f", x=2))
    late = [tool(2, "f", None, "two", '{"x": 2}'), tool(3, "f", None, "one", '{"x": 1}')]
    found = seen(chat(1, [asks("q")], [made]), *late)
    assert found.pairs == [('f {"x": 1}', "name_order", "one"), ('f {"x": 2}', "name_order", "two")]
    wrong = seen(chat(1, [asks("q")], [made]), late[0], tool(3, "f", None, "three", '{"x": 3}'))
    assert wrong.outcomes == ["ambiguous_order"] * 2
    assert wrong.aside["orphan_result"] == 2


def test_a_tools_span_inside_the_span_of_its_one_call_is_structural():
    made = says(call("k", "f", x=1))
    inside = tool(2, "f", None, "r", **parent(1))
    assert seen(chat(1, [asks("q")], [made]), inside).pairs == [('f {"x": 1}', "structural", "r")]
    beside = tool(2, "f", None, "r")
    assert seen(chat(1, [asks("q")], [made]), beside).outcomes == ["unanswered_call"]
    two = says(call("k", "f", x=1), call("l", "f", x=2))
    assert seen(chat(1, [asks("q")], [two]), inside).outcomes == ["unanswered_call"] * 2


def test_a_tools_span_that_no_model_call_accounts_for_is_an_action_in_its_own_record():
    found = seen(
        chat(1, [asks("q")], [says("a")]), tool(2, "f", "k", "r", '{"x": 1}'), tool(3, "g", None, "no arguments")
    )
    assert found.pairs == [('f {"x": 1}', "structural", "r")]
    assert found.aside == {"orphan_result": 1}


def test_a_call_that_only_a_later_history_shows_pairs_there():
    found = seen(chat(1, [ASK], None), tool(2, "weather", "k1", "3C"), chat(3, [ASK, CALLS, RESULTS], [ANSWER]))
    assert found.pairs == PAIRED
    assert found.outcomes == ["explicit_id"] * 2 + ["terminal_no_observation"]


def test_a_call_that_a_server_carries_out_pairs_in_its_own_output():
    made = says(
        {"type": "server_tool_call", "id": "w", "name": "search", "server_tool_call": {"type": "search", "q": "x"}},
        {"type": "server_tool_call_response", "id": "w", "server_tool_call_response": {"type": "search", "hits": 0}},
        "nothing",
    )
    found = seen(chat(1, [asks("q")], [made]))
    assert found.pairs == [
        ('search {"type": "search", "q": "x"}', "explicit_id", '{"type": "search", "hits": 0}'),
    ]


def test_a_tool_message_that_holds_a_schema_is_a_definition():
    schema = {"role": "tool", "content": json.dumps({"type": "function", "function": {"name": "f", "parameters": {}}})}
    found = seen(chat(1, [schema, asks("q")], [says("a")]))
    assert found.aside == {"tool_definition": 1}
    assert found.imported.traces[0].task == "q"


def test_arguments_in_any_depth_are_one_call_and_quote_the_innermost_text():
    deep = says({"type": "tool_call", "id": "k", "name": "f", "arguments": json.dumps('{"x": 1}')})
    plain = says({"type": "tool_call", "id": "k", "name": "f", "arguments": '{"x":1}'})
    found = seen(chat(1, [asks("q")], [deep]), chat(2, [asks("q"), plain, gives(response("k", "r"))], [says("a")]))
    assert found.pairs == [('f {"x":1}', "explicit_id", "r")]
    assert seen(chat(1, [asks("q")], [deep])).ledgers[0].rows[0].action == 'f {"x": 1}'


# Spans that repeat others


def test_an_agents_span_repeats_its_model_calls_and_adds_neither_steps_nor_usage():
    work = {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 30}
    found = seen(
        chat(1, [ASK], [ANSWER], work, startTimeUnixNano=str(SECOND)),
        chat(2, [ASK], [CALLS], {"gen_ai.usage.input_tokens": 10}, **parent(1)),
        chat(3, [ASK, CALLS, RESULTS], [ANSWER], {"gen_ai.usage.input_tokens": 20}, **parent(1)),
    )
    assert found.pairs == PAIRED
    assert found.imported.traces[0].usage == (("input_tokens", 30), ("model_messages", 2))
    assert found.aside == {"duplicate_view": 2, "replayed_history": 3}


def test_a_parent_that_repeats_the_usage_of_its_children_is_not_added_and_is_reported():
    used = {"gen_ai.usage.input_tokens": 10}
    calls = [
        chat(4, [ASK], [CALLS], used, **parent(3)),
        chat(5, [ASK, CALLS, RESULTS], [ANSWER], used, **parent(3)),
    ]
    agent = span(1, "invoke_agent", {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 20})
    told = chat(1, [ASK], [ANSWER], {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 20})
    around = tool(2, "scout", None, "3C", **parent(1))
    around["attributes"] += pairs({"gen_ai.usage.input_tokens": 20})
    between = span(3, "step", used, **parent(2))  # whatever it states of its own, its children are counted
    for outer, inner, repeated in (
        (agent, [], 1),
        (told, [], 1),
        (agent, [around, between], 3),
        (span(1, "step"), [], 0),
    ):
        above = inner[-1]["spanId"] if inner else outer["spanId"]
        (trace,) = seen(outer, *inner, *(each | {"parentSpanId": above} for each in calls)).imported.traces
        assert trace.usage == (("input_tokens", 20), ("model_messages", 2))
        assert trace.usage_repeated == repeated
        assert msgspec.json.decode(msgspec.json.encode(trace), type=Trace) == trace


def test_usage_that_nothing_below_states_and_usage_beside_the_calls_repeat_nothing():
    agent = span(1, "invoke_agent", {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 20})
    (trace,) = seen(agent, chat(2, [asks("q")], [says("a")], **parent(1))).imported.traces
    assert (trace.usage, trace.usage_repeated) == (None, 0)
    beside = span(3, "embed", {"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 7})
    (trace,) = seen(chat(2, [asks("q")], [says("a")], {"gen_ai.usage.input_tokens": 5}), beside).imported.traces
    assert (dict(trace.usage or ())["input_tokens"], trace.usage_repeated) == (5, 0)


def test_usage_of_a_second_view_of_one_response_is_reported_too():
    used = {"gen_ai.response.id": "r1", "gen_ai.usage.input_tokens": 5}
    (trace,) = seen(chat(1, [asks("q")], [says("a")], used), chat(2, [asks("q")], [says("a")], used)).imported.traces
    assert (trace.usage, trace.usage_repeated) == ((("input_tokens", 5), ("model_messages", 1)), 1)


def test_an_agents_span_alone_is_the_evidence_that_there_is():
    work = {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 30}
    found = seen(chat(1, [ASK, CALLS, RESULTS], [ANSWER], work))
    assert found.pairs == PAIRED
    assert found.imported.traces[0].usage == (("input_tokens", 30), ("model_messages", 1))


def test_an_agents_span_with_the_response_id_of_its_model_call_is_the_copy():
    named = {"gen_ai.response.id": "r1"}
    agent = chat(1, [asks("q")], [says("a")], named | {"gen_ai.operation.name": "invoke_agent"})
    found = seen(agent, chat(2, [asks("q")], [says("a")], named, **parent(1)))
    assert (found.outcomes, found.aside) == (["terminal_no_observation"], {"duplicate_view": 2})


def test_usage_is_unknown_as_soon_as_one_model_call_states_none():
    stated = {"gen_ai.usage.input_tokens": 10}
    found = seen(chat(1, [asks("q")], [says("a")], stated), chat(2, [asks("r")], [says("b")]))
    assert found.imported.traces[0].usage is None


def test_cost_is_whole_nano_dollars_where_a_framework_states_it():
    found = seen(
        chat(1, [asks("q")], [says("a")], {"operation.cost": 1.2e-05}),
        chat(2, [asks("r")], [says("b")], {"operation.cost": "0.0004095"}),
    )
    assert found.imported.traces[0].cost_nusd == 421_500


def test_spans_without_a_conversation_are_a_trace_of_no_steps():
    found = seen(
        span(1, "GET /"), span(2, "SELECT", **parent(1)), span(3, "embed", {"gen_ai.operation.name": "embeddings"})
    )
    assert (found.outcomes, found.aside) == ([], {"harness_text": 3})


def test_a_span_that_was_read_before_is_set_aside_in_a_record_that_holds_more():
    one, two = chat(1, [asks("q")], [says("a")]), chat(2, [asks("r")], [says("b")])
    found = checked(lines(otlp(one), otlp(one, two), otlp(two, one)))
    assert found.rejected == [(3, "duplicate_span")]
    assert found.aside == {"duplicate_view": 1}
    assert len(found.outcomes) == 2


def test_a_finished_span_counts_before_the_same_span_that_has_not_ended():
    started = chat(1, [asks("q")], None)
    del started["endTimeUnixNano"]
    found = checked(lines(otlp(started), otlp(chat(1, [asks("q")], [says("a")]))))
    assert (found.outcomes, found.rejected) == (["terminal_no_observation"], [(1, "duplicate_span")])


# Spellings


def as_line(of: dict[str, Any], how: str) -> dict[str, Any]:
    """The same span as the Python or the JavaScript SDK prints it."""
    given = {each["key"]: next(iter(each["value"].values())) for each in of["attributes"]}
    at, end = (int(of[f"{side}TimeUnixNano"]) for side in ("start", "end"))
    if how == "javascript":
        ids = {
            "spanContext": {"traceId": TRACE, "spanId": of["spanId"]},
            "parentSpanContext": {"spanId": of["parentSpanId"]},
        }
        return ids | {"name": of["name"], "startTime": [at // 10**9, at % 10**9], "attributes": given, "events": []}
    ids = {
        "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{of['spanId']}"},
        "parent_id": of["parentSpanId"] or None,
    }
    times = {
        "start_time": f"2026-05-01T10:00:{at // 10**9 % 60:02d}Z",
        "end_time": f"2026-05-01T10:00:{end // 10**9 % 60:02d}.5Z",
    }
    return ids | times | {"name": of["name"], "attributes": given, "status": {"status_code": "UNSET"}}


@pytest.mark.parametrize("how", ["python", "javascript", "otlp", "list", "snake", "tempo", "base64"])
def test_every_wrapping_of_spans_gives_the_same_transitions(how: str):
    spans = [chat(1, [ASK], [CALLS]), tool(2, "weather", "k1", "3C"), chat(3, [ASK, CALLS, RESULTS], [ANSWER])]
    match how:
        case "python" | "javascript":
            data = lines(*(as_line(each, how) for each in spans))
        case "otlp":
            data = lines(*spans)
        case "list":
            data = json.dumps([otlp(each) for each in spans]).encode()
        case "snake":
            snaked = [{"trace_id" if key == "traceId" else key: each for key, each in one.items()} for one in spans]
            data = lines({"resource_spans": [{"scope_spans": [{"spans": snaked}]}]})
        case "tempo":
            data = lines({"batches": [{"instrumentationLibrarySpans": [{"spans": spans}]}]})
        case _:
            for each in spans:
                for key in ("traceId", "spanId"):
                    each[key] = base64.b64encode(bytes.fromhex(each[key])).decode()
            data = lines(otlp(*spans))
    found = checked(data)
    assert (found.format, found.pairs) == ("otlp_genai", PAIRED)
    assert f"session:{TRACE}" in found.imported.traces[0].keys


def test_messages_in_typed_values_are_read_like_messages_in_text():
    wrapped = [{"key": "gen_ai.input.messages", "value": value([ASK, CALLS, RESULTS])}]
    found = seen(span(1, "chat", {"gen_ai.operation.name": "chat"}) | {"attributes": wrapped})
    texts = [(tool_, pairing, observation) for tool_, pairing, observation in found.pairs]
    assert [each[1:] for each in texts] == [("explicit_id", "3C"), ("explicit_id", "21C")]


EVENTS = [
    ("gen_ai.system.message", {"content": "Be kind"}),
    ("gen_ai.user.message", {"content": "Weather?"}),
    (
        "gen_ai.assistant.message",
        {
            "tool_calls": [
                {"id": "k", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
            ]
        },
    ),
    ("gen_ai.tool.message", {"id": "k", "content": "3C"}),
    ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "3C"}}),
]
EVENT_PAIRS = [('weather {"city": "Oslo"}', "explicit_id", "3C")]


@pytest.mark.parametrize(
    "how", ["span events", "json in an attribute", "one attribute", "log records", "logs alone", "text"]
)
def test_messages_in_events_are_read_wherever_they_stand(how: str):
    bare = span(1, "chat m", {"gen_ai.operation.name": "chat"})
    match how:
        case "span events":
            # the list of calls as a typed value, as events can hold
            events = [{"name": name, "attributes": value(body)["kvlistValue"]["values"]} for name, body in EVENTS]
            data = lines(otlp(bare | {"events": events}))
        case "json in an attribute":
            events = [
                {"name": name, "attributes": [{"key": "gen_ai.event.content", "value": value(json.dumps(body))}]}
                for name, body in EVENTS
            ]
            data = lines(otlp(bare | {"events": events}))
        case "one attribute":
            told = json.dumps([{"event.name": name, **body} for name, body in EVENTS])
            data = lines(otlp(span(1, "chat m", {"gen_ai.operation.name": "chat", "events": told})))
        case "log records":
            data = lines(otlp(bare), logs(*(log(1, name, body) for name, body in EVENTS)))
        case "logs alone":
            data = lines(logs(*(log(1, name, body) for name, body in EVENTS)))
        case _:
            data = lines(otlp(bare), *(logs(log(1, name, json.dumps(body))) for name, body in EVENTS))
    found = checked(data)
    assert found.pairs == EVENT_PAIRS
    assert (found.imported.traces[0].context, found.imported.traces[0].task) == ("Be kind", "Weather?")
    assert found.outcomes == ["explicit_id", "terminal_no_observation"]


def test_log_records_of_two_calls_are_two_calls():
    first = [(1, *each) for each in EVENTS[:2]]
    made = {"index": 0, "message": EVENTS[2][1]}
    second = [(2, *each) for each in EVENTS]
    found = checked(lines(logs(*(log(*each) for each in [*first, (1, "gen_ai.choice", made), *second]))))
    assert found.pairs == EVENT_PAIRS
    assert found.aside == {"replayed_history": 3}


def test_a_log_record_that_is_no_message_is_set_aside():
    other = log(1, "gen_ai.evaluation.result", {"score": 1})
    found = checked(lines(otlp(chat(1, [asks("q")], [says("a")])), logs(other), logs(log(9, "http", "x", spanId=""))))
    assert found.aside == {"harness_text": 2}


# Log records in a file of their own

TOLD = [
    *((1, *each) for each in EVENTS[:2]),
    (1, "gen_ai.choice", {"index": 0, "finish_reason": "tool_calls", "message": EVENTS[2][1]}),
    *((2, *each) for each in EVENTS),
]


def a_line(number: int, name: str, body: Any, **more: Any) -> dict[str, Any]:
    """A log record of a model call, with the attribute that all of them have."""
    return log(number, name, body, attributes=pairs({"gen_ai.system": "m"} | more.pop("given", {}))) | more


def printed(number: int, name: str, body: Any, **more: Any) -> dict[str, Any]:
    """A log record as the Python SDK prints it."""
    about = {"severity_number": 9, "timestamp": f"2026-05-01T10:00:0{number}Z", "trace_flags": 1, "resource": {}}
    ids = {"trace_id": f"0x{TRACE}", "span_id": f"0x{number:016x}"}
    return {"body": body, "attributes": {"gen_ai.system": "m"}} | about | ids | more


WAYS: dict[str, Any] = {
    "a batch": lambda number, name, body: logs(a_line(number, name, body)),
    "bare": a_line,
    "named by an attribute": lambda number, name, body: a_line(
        number, "", body, given={"event.name": name}, eventName=None
    ),
    "named in the body": lambda number, name, body: a_line(number, "", {"event.name": name} | body),
    "named by the body, told in attributes": lambda number, name, body: a_line(number, "", name, given=body),
    "named by nothing but its role": lambda number, name, body: a_line(
        number, "", body if "message" in body else {"role": name.split(".")[1]} | body
    ),
    "python, named by an attribute": lambda number, name, body: printed(
        number, name, body, attributes={"event.name": name}
    ),
    "python, with a name": lambda number, name, body: printed(number, name, body, event_name=name),
    "javascript": lambda number, name, body: {
        "timestamp": 1_777_629_600_000_000 + number,
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "severityNumber": 9,
        "body": body,
        "attributes": {"event.name": name},
    },
    "body as text": lambda number, name, body: a_line(number, name, json.dumps(body)),
    "without a span": lambda number, name, body: a_line(number, name, body, spanId=""),
    "without a trace, in a conversation": lambda number, name, body: a_line(
        number, name, body, traceId="", spanId="", given={"gen_ai.conversation.id": "c"}
    ),
    "under the span of an agent": lambda number, name, body: a_line(
        1, name, body, timeUnixNano=str(SECOND + number * 10**9)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_file_of_log_records_alone_gives_the_conversation(way: str):
    records = [WAYS[way](*each) for each in TOLD]
    found = checked(lines(*records))
    assert (found.format, found.pairs, found.rejected) == ("otlp_genai", EVENT_PAIRS, [])
    (trace,) = found.imported.traces
    assert (trace.context, trace.task) == ("Be kind", "Weather?")
    assert found.outcomes == ["explicit_id", "terminal_no_observation"]
    assert found.aside == {"replayed_history": 3}
    assert branches(found) == {""}


def test_log_records_are_put_in_the_order_of_their_times():
    records = [a_line(*each, timeUnixNano=str(SECOND + at)) for at, each in enumerate(TOLD)]
    assert checked(lines(*reversed(records))).pairs == EVENT_PAIRS


def test_a_log_record_without_a_time_has_the_one_at_which_it_was_observed():
    seen_at = [
        a_line(*each, timeUnixNano="0", observedTimeUnixNano=str(SECOND + each[0] * 10**9 + at))
        for at, each in enumerate(TOLD)
    ]
    found = checked(lines(*seen_at))
    assert found.pairs == EVENT_PAIRS
    ends = [event.at for event in found.imported.traces[0].events if event.kind == "text"]
    assert ends == ["2023-11-14T22:13:22.000000007Z"]  # of its own record, the last of its call


def test_a_log_record_that_was_sent_again_counts_once():
    batch = [log(*each) for each in TOLD]
    found = checked(lines(logs(*batch[:3]), logs(*batch[:3]), logs(*batch[2:])))
    assert found.pairs == EVENT_PAIRS
    assert found.rejected == [(2, "duplicate_record")]
    assert found.aside == {"replayed_history": 3, "duplicate_view": 1}
    assert checked(lines(logs(*batch), logs(batch[0]))).rejected == [(2, "duplicate_span")]


def test_lines_of_an_applications_own_log_beside_the_messages_are_set_aside():
    other = {"body": {"stringValue": "GET /"}, "severityText": "INFO", "timeUnixNano": str(SECOND), "attributes": []}
    found = checked(lines(other | {"traceId": TRACE, "spanId": ""}, *(a_line(*each) for each in TOLD)))
    assert found.pairs == EVENT_PAIRS
    assert found.aside == {"replayed_history": 3, "harness_text": 1}


def test_the_events_of_a_tools_own_span_are_no_answer_of_a_model():
    ran = [
        a_line(3, "gen_ai.tool.message", {"role": "tool", "content": '{"city": "Oslo"}', "id": "k"}),
        a_line(3, "gen_ai.choice", {"message": "3C", "id": "k"}),
    ]
    found = checked(lines(*(a_line(*each) for each in TOLD[:3]), *ran))
    assert (found.pairs, found.outcomes) == (EVENT_PAIRS, ["explicit_id"])


@pytest.mark.parametrize("is_beside", [True, False])
def test_a_verdict_on_an_answer_ends_no_model_call(*, is_beside: bool):
    verdict = a_line(1, "gen_ai.evaluation.result", {"score": 1})
    told = [*(a_line(*each) for each in TOLD[:3]), verdict, *(a_line(*each) for each in TOLD[3:])]
    spans = [otlp(*(span(at, "chat m", {"gen_ai.operation.name": "chat"}) for at in (1, 2)))] if is_beside else []
    found = checked(lines(*spans, *told))
    assert found.pairs == EVENT_PAIRS
    assert found.aside == {"replayed_history": 3, "harness_text": 2 if is_beside else 1}


def test_an_id_inside_a_result_is_no_id_of_its_call():
    gave = tool(2, "weather", None, None)
    gave["attributes"] += [{"key": "gen_ai.tool.call.result", "value": value({"id": "k2", "t": 3})}]
    found = seen(chat(1, [asks("q")], [says(call("k1", "weather"), call("k2", "weather"))]), gave)
    assert found.outcomes == ["unanswered_call"] * 2


def details(number: int, inputs: list[Any], outputs: list[Any], **more: Any) -> dict[str, Any]:
    given = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": inputs, "gen_ai.output.messages": outputs}
    return log(number, DETAILS, None, attributes=pairs(given | {"gen_ai.usage.input_tokens": 5})) | more


@pytest.mark.parametrize("more", [{}, {"spanId": ""}, {"spanId": "1" * 16}])
def test_one_log_record_may_hold_all_details_of_a_model_call(more: dict[str, Any]):
    found = checked(lines(details(1, [ASK], [CALLS], **more), details(2, [ASK, CALLS, RESULTS], [ANSWER], **more)))
    assert [each[1:] for each in found.pairs] == [("explicit_id", "3C"), ("explicit_id", "21C")]
    assert found.aside == {"replayed_history": 3}
    assert found.imported.traces[0].usage == (("input_tokens", 10), ("model_messages", 2))


def test_details_and_messages_of_one_model_call_are_two_views_of_it():
    record = details(1, [asks("q")], [says("a")])
    told = [log(1, "gen_ai.user.message", {"content": "q"}), log(1, "gen_ai.choice", {"message": {"content": "a"}})]
    found = checked(lines(*told, record))
    assert (found.outcomes, found.aside) == (["terminal_no_observation"], {"duplicate_view": 2})
    beside = checked(lines(otlp(span(1, "chat", {"gen_ai.operation.name": "chat"})), record))
    assert beside.imported.traces[0].usage == (("input_tokens", 5), ("model_messages", 1))


@pytest.mark.parametrize("first", ["spans", "log records"])
@pytest.mark.parametrize("is_held", [True, False])
def test_spans_in_one_file_and_their_log_records_in_another_count_each_step_once(
    tmp_path: Path, first: str, *, is_held: bool
):
    used = {"gen_ai.usage.input_tokens": 5}
    made = says(call("k", "weather", city="Oslo"))
    told = [says("Be kind", role="system"), asks("Weather?"), made, gives(response("k", "3C"))]
    spans = [chat(1, told[:2], [made], used), chat(2, told, [says("3C")], used)]
    if not is_held:
        spans = [chat(1, None, None, used), chat(2, None, None, used)]
    files = {"spans": lines(otlp(*spans)), "log records": lines(*(log(*each) for each in TOLD))}
    for name, data in files.items():
        (tmp_path / f"{name}.jsonl").write_bytes(data)
    order = sorted(files, key=lambda name: name != first)
    report = import_files(tmp_path / "lab", [tmp_path / f"{name}.jsonl" for name in order])
    assert report.counts["pairing"] == {"explicit_id": 1}
    assert report.counts["left_out"] == {"terminal_no_observation": 1}
    assert [trace.usage for trace in report.traces if trace.usage] == [(("input_tokens", 10), ("model_messages", 2))]


@pytest.mark.parametrize("first", ["spans", "log records"])
@pytest.mark.parametrize("kept", ["everything", "model calls", "tools", "nothing"])
def test_whatever_two_files_of_one_trace_both_hold_counts_once(tmp_path: Path, kept: str, first: str):
    used = {"gen_ai.usage.input_tokens": 5}
    told = ([ASK], [CALLS], [ASK, CALLS, RESULTS], [ANSWER])
    said = told if kept in ("everything", "model calls") else (None,) * 4
    ran = [tool(2, "weather", "k1", "3C", '{"city":"Oslo"}'), tool(3, "weather", "k2", "21C", '{"city":"Lima"}')]
    spans = [chat(1, said[0], said[1], used), chat(4, said[2], said[3], used)]
    spans += ran if kept in ("everything", "tools") else []
    details = [("input", told[0]), ("output", told[1])], [("input", told[2]), ("output", told[3])]
    records = [
        log(number, DETAILS, None, attributes=pairs({f"gen_ai.{side}.messages": each for side, each in call_}))
        for number, call_ in zip((1, 4), details, strict=True)
    ]
    files = {"spans": lines(otlp(*spans)), "log records": lines(*records)}
    for name, data in files.items():
        (tmp_path / f"{name}.jsonl").write_bytes(data)
    order = sorted(files, key=lambda name: name != first)
    report = import_files(tmp_path / "lab", [tmp_path / f"{name}.jsonl" for name in order])
    assert report.counts["pairing"] == {"explicit_id": 2}
    assert report.counts["left_out"] == {"terminal_no_observation": 1}
    assert [trace.usage for trace in report.traces if trace.usage] == [(("input_tokens", 10), ("model_messages", 2))]


def test_details_in_an_event_are_read_like_attributes():
    given = {"gen_ai.input.messages": [ASK, CALLS, RESULTS], "gen_ai.output.messages": [ANSWER]}
    event = {"name": "gen_ai.client.inference.operation.details", "attributes": value(given)["kvlistValue"]["values"]}
    found = seen(span(1, "chat m", {"gen_ai.operation.name": "chat"}, events=[event]))
    assert [each[1:] for each in found.pairs] == [("explicit_id", "3C"), ("explicit_id", "21C")]


def test_two_spellings_in_one_span_are_one_call():
    old = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "q", "gen_ai.completion.0.content": "a"}
    found = seen(chat(1, [asks("q")], [says("a")], old))
    assert (found.outcomes, found.aside) == (["terminal_no_observation"], {"duplicate_view": 2})


def test_the_oldest_spelling_is_read_by_its_indexes():
    told = {
        "gen_ai.prompt.0": {"role": "user", "content": "q"},
        "gen_ai.prompt.1": {"role": "assistant", "tool_calls.0.id": "k", "tool_calls.0.name": "f"},
        "gen_ai.prompt.2": {"role": "tool", "tool_call_id": "k", "content": "r"},
        "gen_ai.completion.0": {"role": "assistant", "content": "a"},
    }
    flat = {f"{prefix}.{key}": said for prefix, message in told.items() for key, said in message.items()}
    flat["gen_ai.prompt.1.tool_calls.0.arguments"] = '{"x": 1}'
    found = seen(span(1, "openai.chat", {"gen_ai.prompt.name": "v3", "llm.request.type": "chat"} | flat))
    assert found.pairs == [('f {"x": 1}', "explicit_id", "r")]
    assert found.outcomes == ["explicit_id", "terminal_no_observation"]


def test_the_vercel_sdk_writes_calls_and_results_in_parts_of_its_own():
    prompt = [{"role": "user", "content": [{"type": "text", "text": "Weather?"}]}]
    made = {"toolCallId": "k", "toolName": "weather", "input": '{"city": "Oslo"}'}
    part = {"type": "tool-call", "toolCallId": "k", "toolName": "weather", "input": {"city": "Oslo"}}
    answer = {
        "type": "tool-result",
        "toolCallId": "k",
        "toolName": "weather",
        "output": {"type": "json", "value": {"t": 3}},
    }
    more = [{"role": "assistant", "content": [part]}, {"role": "tool", "content": [answer]}]
    inner = {"ai.operationId": "ai.generateText.doGenerate"}
    found = seen(
        span(
            1, "ai.generateText", {"ai.operationId": "ai.generateText", "ai.prompt": json.dumps({"prompt": "Weather?"})}
        ),
        span(
            2,
            "ai.generateText.doGenerate",
            inner | {"ai.prompt.messages": json.dumps(prompt), "ai.response.toolCalls": json.dumps([made])},
            **parent(1),
        ),
        span(
            3,
            "ai.toolCall",
            {
                "ai.operationId": "ai.toolCall",
                "ai.toolCall.name": "weather",
                "ai.toolCall.id": "k",
                "ai.toolCall.args": '{"city":"Oslo"}',
                "ai.toolCall.result": '{"t":3}',
            },
            **parent(1),
        ),
        span(
            4,
            "ai.generateText.doGenerate",
            inner | {"ai.prompt.messages": json.dumps(prompt + more), "ai.response.text": "3C"},
            **parent(1),
        ),
    )
    assert found.pairs == [('weather {"city": "Oslo"}', "explicit_id", '{"t": 3}')]
    assert found.aside == {"duplicate_view": 3, "replayed_history": 2}


def test_not_a_number_inside_the_text_of_messages_is_read():
    told = json.dumps([asks("q"), says(call("k", "f", x=float("nan"))), gives(response("k", float("-inf")))])
    found = seen(span(1, "chat", {"gen_ai.operation.name": "chat", "gen_ai.input.messages": told}))
    assert found.pairs == [('f {"x": NaN}', "explicit_id", "-Infinity")]


@pytest.mark.parametrize("said", ["[", '[{"role": "user", "content": "\\ud800"}]', "[" * 2000 + "]" * 2000, "7"])
def test_messages_that_cannot_be_decoded_are_one_text(said: str):
    found = seen(span(1, "chat", {"gen_ai.operation.name": "chat", "gen_ai.input.messages": said}))
    assert [event.text for event in found.imported.traces[0].events] == [said]


def test_an_image_beside_a_question_is_quoted_with_it():
    picture = {"type": "uri", "modality": "image", "uri": "x.png"}
    found = seen(chat(1, [asks("what is this?", picture)], [says("a cat")]))
    assert json.loads(found.imported.traces[0].task or "")[1] == picture


def test_reasoning_is_no_step_and_its_absence_in_the_history_makes_no_branch():
    thought = {"type": "reasoning", "content": "hm"}
    made = call("k", "f")
    found = seen(
        chat(1, [asks("q")], [says(thought, made)]),
        chat(2, [asks("q"), says(made), gives(response("k", "r"))], [says("a")]),
    )
    assert found.pairs == [("f {}", "explicit_id", "r")]
    assert branches(found) == {""}


@pytest.mark.parametrize(
    "thought",
    [
        {"type": "reasoning", "text": "hm"},
        {"type": "thinking", "thinking": "hm"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "reasoning_content", "reasoning_content": {"text": "hm", "signature": "x"}},
        {"reasoningContent": {"reasoningText": {"text": "hm"}}},
        {"text": "hm", "thought": True},
    ],
)
def test_reasoning_in_any_spelling_is_quoted_as_its_text_and_is_no_answer(thought: dict[str, Any]):
    found = seen(chat(1, [asks("q")], [{"role": "assistant", "content": [thought, {"type": "text", "text": "a"}]}]))
    told = [(event.kind, event.text) for event in found.imported.traces[0].events]
    assert told == [("task", "q"), ("reasoning", "hm"), ("text", "a")]


@pytest.mark.parametrize("role", ["thinking", "reasoning", "Reasoning"])
def test_a_message_in_the_role_of_a_thought_is_reasoning(role: str):
    found = seen(chat(1, [asks("q")], [{"role": role, "content": "hm"}, says("a")]))
    assert [event.kind for event in found.imported.traces[0].events] == ["task", "reasoning", "text"]
    assert found.outcomes == ["terminal_no_observation"]


def test_roles_are_known_in_any_case():
    made = {"role": "AI", "content": None, "tool_calls": [{"id": "k", "function": {"name": "f", "arguments": "{}"}}]}
    told = [
        {"role": "System", "content": "Be kind"},
        {"role": "Human", "content": "q"},
        made,
        {"role": "TOOL", "tool_call_id": "k", "content": "r"},
        {"role": "Assistant", "content": "a"},
        {"role": "USER", "content": "b"},
    ]
    found = seen(chat(1, told, [says("c")]))
    assert found.pairs == [("f {}", "explicit_id", "r"), ("a", "user_reply", "b")]
    assert (found.imported.traces[0].context, found.imported.traces[0].task) == ("Be kind", "q")


@pytest.mark.parametrize("nothing", [[], {}, "", None])
def test_an_empty_list_of_calls_is_no_call(nothing: Any):
    found = seen(chat(1, [asks("q")], [{"role": "assistant", "content": "a", "tool_calls": nothing}]))
    assert [event.kind for event in found.imported.traces[0].events] == ["task", "text"]


@pytest.mark.parametrize("name", ["call_id", "toolCallId", "tool_call_id"])
def test_the_id_of_a_call_counts_before_the_id_of_its_item(name: str):
    made = {"type": "function_call", "id": "fc_1", name: "k", "name": "f", "arguments": "{}"}
    gave = {"type": "function_call_output", "id": "fc_2", name: "k", "output": "r"}
    assert seen(chat(1, [asks("q"), made, gave], [says("a")])).pairs == [("f {}", "explicit_id", "r")]
    bare = {"type": "function_call", "id": "k", name: "", "name": "f", "arguments": "{}"}
    assert seen(chat(1, [asks("q"), bare, gave], [says("a")])).pairs == [("f {}", "explicit_id", "r")]


@pytest.mark.parametrize("count", [-1, 2**53, 2**70, 1.5, True, "many"])
def test_what_is_no_count_of_tokens_counts_nothing(count: Any):
    found = seen(
        chat(1, [asks("q")], [says("a")], {"gen_ai.usage.input_tokens": count, "gen_ai.usage.output_tokens": 1})
    )
    assert found.imported.traces[0].usage == (("model_messages", 1), ("output_tokens", 1))


# Ids and times


def test_ids_are_hex_or_base64_by_their_length_and_anything_else_is_itself():
    assert span_id_of("W47/95gDgQPSabYzgT/GDA==", 16) == span_id_of(f"0x{TRACE.upper()}", 16) == TRACE
    assert span_id_of("12345678901234567", 8) == "12345678901234567"  # 17 digits
    assert span_id_of("AAAAAAAAAAA=", 8) == span_id_of("0" * 16, 8) == span_id_of(None, 8) == ""
    assert span_id_of("not base64 =", 8) == "not base64 ="


@pytest.mark.parametrize(
    ("nanos", "other", "right"),
    [
        ("1700000000000000001", None, (1700000000000000001, "2023-11-14T22:13:20.000000001Z")),
        (1, None, (1, None)),
        (None, [1700000000, 5], (1700000000000000005, "2023-11-14T22:13:20.000000005Z")),
        (None, "2026-05-01T10:00:00", (1777629600 * 10**9, "2026-05-01T10:00:00")),
        (None, "2026-05-01T12:00:00.5+02:00", (1777629600 * 10**9 + 5 * 10**8, "2026-05-01T12:00:00.5+02:00")),
        (None, "1969-12-31T23:59:59Z", (-(10**9), "1969-12-31T23:59:59Z")),
        (None, 17, (17, None)),
        (None, "yesterday", (None, None)),
        (2**70, None, (2**70, None)),
    ],
)
def test_moments_in_every_spelling_have_one_order(nanos: object, other: object, right: tuple[object, object]):
    place = Place("", 0, b"")
    assert moment(Node(place, nanos), Node(place, other)) == right


def test_counters_in_the_place_of_times_order_spans_and_are_no_times():
    spans = [chat(3, [ASK, CALLS, RESULTS], [ANSWER]), chat(1, [ASK], [CALLS])]
    for at, each in zip((2, 0), spans, strict=True):
        each |= {"startTimeUnixNano": str(at), "endTimeUnixNano": str(at + 1)}
    found = seen(*spans)
    assert found.pairs == PAIRED
    assert {event.at for event in found.imported.traces[0].events} == {None}


# Whatever a file may hold

RECORDS = [
    otlp(span(1, "agent", {"gen_ai.operation.name": "invoke_agent"}), chat(2, [ASK], [CALLS], **parent(1))),
    otlp(tool(3, "weather", "k1", "3C", '{"city": "Oslo"}'), tool(4, "weather", None, "21C", '{"city": "Lima"}')),
    otlp(chat(5, [ASK, CALLS, RESULTS], [ANSWER], {"gen_ai.usage.input_tokens": 3})),
    otlp(chat(6, [ASK, CALLS, RESULTS, ANSWER, asks("more")], [says("ok"), says("or")])),
    logs(*(log(7, name, body) for name, body in EVENTS)),
    *(a_line(*each) for each in TOLD),
    details(9, [ASK], [ANSWER]),
    otlp(span(7, "chat m", {"gen_ai.operation.name": "chat"})),
    kind(
        8, "CHAIN", {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "q", "gen_ai.completion.0.content": "a"}
    ),
]


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_damaged_spans_never_raise_and_their_sums_hold(start: int):
    for seed in range(start, start + 100):
        survives(RECORDS, seed, "otlp_genai")


def test_a_cut_file_loses_its_last_record_alone():
    data = lines(otlp(chat(1, [ASK], [CALLS])), otlp(chat(2, [ASK, CALLS, RESULTS], [ANSWER])))
    found = checked(data[:-9])
    assert found.rejected == [(2, "truncated")]
    assert found.outcomes == ["unanswered_call"] * 2


def test_spans_in_several_files_of_a_zip_are_one_conversation():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as pack:
        for at, each in enumerate((chat(1, [ASK], [CALLS]), chat(2, [ASK, CALLS, RESULTS], [ANSWER]))):
            pack.writestr(f"{at}.jsonl", lines(otlp(each)))
        pack.writestr("again.json", json.dumps(otlp(chat(1, [ASK], [CALLS])), indent=1))
    found = otel.FORMATS[0].read(Source("", "a zip", frame(packed.getvalue())))
    assert [(each.member, each.reason) for each in found.rejected] == [("again.json", "duplicate_span")]
    (trace,) = found.traces
    assert {event.span.member for event in trace.events} == {"0.jsonl", "1.jsonl"}
    assert [each.observation for each in ledger_of(trace).transitions] == ["3C", "21C"]


def test_records_that_hold_no_span_are_rejected():
    found = checked(lines(otlp(chat(1, [asks("q")], [says("a")])), {"resourceMetrics": []}, {"traceId": "x"}, []))
    assert found.rejected == [(2, "unknown_shape"), (3, "unknown_shape"), (4, "unknown_shape")]
