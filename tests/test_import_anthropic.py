"""Anthropic Messages: bodies, streams, requests, lists, and logs of requests that send their history again."""

import io
import json
import random
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, asks, check_spans, check_sums, lines, mutated, result, text, use

from experiential_lab.evidence import importers
from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import anthropic, chat, chat_chunks
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.spans import unpacked
from experiential_lab.evidence.trace import Event, Trace
from experiential_lab.evidence.transitions import ledger_of
from experiential_lab.records import LabError, digest_of

FORMAT = anthropic.FORMATS[0]


def read(data: bytes) -> Read:
    """A file as this format reads it, whatever a rule says of it."""
    frames = frame(data)
    imported = FORMAT.read(Source(digest_of(data), "it", frames))
    found = Read(unpacked(data), FORMAT.name, imported, [ledger_of(trace) for trace in imported.traces])
    if frames.layout != "zip":
        check_sums(found)
        check_spans(found)
    return found


def says(*blocks: object) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def body(message_id: object, *blocks: object, **more: object) -> dict[str, Any]:
    usage = {"input_tokens": 3, "output_tokens": 2, "cache_creation": {"ephemeral_5m_input_tokens": 0}}
    shell = {"id": message_id, "type": "message", "model": "m", "stop_reason": "end_turn", "usage": usage}
    return {**shell, **says(*blocks), **more}


def asked(*messages: object, **more: object) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": list(messages), **more}


def pair(messages: list[Any], response: object, **more: object) -> dict[str, Any]:
    return {"request": asked(*messages), "response": response, **more}


def serves(call_id: object, name: object, arguments: object = None) -> dict[str, Any]:
    return use(call_id, name, arguments) | {"type": "server_tool_use"}


def start(message_id: object = "m1", *blocks: object) -> dict[str, Any]:
    usage = {"input_tokens": 3, "output_tokens": 1}
    return {"type": "message_start", "message": {"id": message_id, "content": list(blocks), "usage": usage}}


def begins(index: object, block: object) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def goes_on(index: object, kind: str, **said: object) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **said}}


def writes(index: object, *pieces: str) -> list[dict[str, Any]]:
    return [goes_on(index, "input_json_delta", partial_json=piece) for piece in pieces]


def ends(**usage: object) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}


STOP = {"type": "message_stop"}


def shown(trace: Trace) -> list[tuple[str, str | None, str | None, str]]:
    return [_shown(event) for event in trace.events if event.aside is None]


def _shown(event: Event) -> tuple[str, str | None, str | None, str]:
    return event.kind, event.tool, event.call_id, event.text


def kinds(*values: object) -> list[tuple[str, str | None]]:
    return [(event.kind, event.aside) for trace in read(lines(*values)).imported.traces for event in trace.events]


# The fixtures


def test_a_log_of_requests_and_responses_counts_each_step_once():
    # Counted by hand: the first three lines are one conversation, of two calls at once, a text, a search by the server and
    # a last text. Line 2 sends 1 system text, 1 task, 1 text and 2 calls again (5); line 3 sends those, 2 results, the
    # user's text and the model's answer again (9). Line 4 is a finished conversation, line 5 a message alone.
    found = read((DATA / "anthropic_messages.jsonl").read_bytes())
    log, sale, alone = found.imported.traces
    assert found.pairs == [
        ('oven {"unit": "C", "digits": 1.5}', "explicit_id", "231\nrising"),
        ("shelf {}", "explicit_id", "no such shelf"),
        ("The oven has 231 degrees; I find no rye.", "user_reply", "Then look for a recipe."),
        ('web_search {"query": "spelt"}', "explicit_id", found.transitions[3].observation),
        ("Rye or spelt?", "user_reply", "Rye,\nsliced."),
        ('sell {"n": 2}', "explicit_id", ""),
        ('bash_code_execution {"command": "wc -l"}', "explicit_id", found.transitions[6].observation),
    ]
    assert found.outcomes.count("terminal_no_observation") == 2
    assert found.aside == {"replayed_history": 14, "observation_without_action": 1, "harness_text": 1}
    assert [each.observation_kind for each in found.transitions].count("tool_error") == 2
    assert (log.context, log.task, log.declared_tools) == (
        "You bake bread.",
        "How warm is the oven, and is there rye?",
        2,
    )
    assert (log.keys, sale.keys) == (("session:msg_1", "session:msg_2", "session:msg_3"), ())
    assert dict(log.usage or ()) == {
        "input_tokens": 90,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 6,
        "output_tokens": 15,
        "model_messages": 3,
    }
    assert (sale.usage, alone.task, alone.complete, found.rejected) == (None, None, None, [])


def test_the_streams_of_one_file_are_a_message_each():
    # Counted by hand: 22 records of the first message, of which 4 begin what it says and 3 say more; 10 of the second, of
    # which 3 begin and 2 say more. The others are 15 and 5.
    found = read((DATA / "anthropic_stream.jsonl").read_bytes())
    first, second = found.imported.traces
    assert shown(first) == [
        ("reasoning", None, None, "Count twice."),
        ("text", None, None, "Let me count."),
        ("call", "count", "toolu_s", '{"what": "é\\n"}'),
        ("call", "stop", "toolu_t", "{}"),
    ]
    assert [kind for kind, _, _, _ in shown(second)] == ["call", "result", "text"]
    assert found.aside == {"harness_text": 20, "duplicate_view": 5}
    assert found.outcomes == ["unanswered_call"] * 2 + ["explicit_id", "terminal_no_observation"]
    counts = {"input_tokens": 7, "cache_read_input_tokens": 4, "output_tokens": 9, "model_messages": 1}
    assert (dict(first.usage or ()), second.usage) == (counts, None)
    joined = [event.span.located for event in first.events if event.aside is None]
    assert joined == ["joined", "joined", "joined", "exact"]


# Real files

# Read by hand: prompt-cache has 44 records; 28 pieces of arguments of which 2 are empty, 2 of text: 28 say something, 3 of them
# begin (two calls, one text), so 25 are views. 2 results begin where they stand. 44 - 3 - 2 - 25 = 14 others: message_start,
# 2 + 1 empty starts, a ping, 5 stops, 2 empty pieces, message_delta, message_stop. The pairs were compared with the file.
# The body of 20250825.1: text, call, result, text, call, result, text; 3 steps, the last of them open.
SAMPLES = {  # records, steps, transitions, set aside
    "clear-tool-uses.1.chunks.txt": (36, 1, 0, {"harness_text": 6, "duplicate_view": 29}),
    "clear-tool-uses.1.json": (1, 1, 0, {}),
    "code-execution-20250825.1.chunks.txt": (248, 3, 2, {"harness_text": 18, "duplicate_view": 223}),
    "code-execution-20250825.1.json": (1, 3, 2, {}),
    "code-execution-20250825.2.chunks.txt": (984, 4, 3, {"harness_text": 25, "duplicate_view": 949}),
    "code-execution-20250825.pptx-skill.chunks.txt": (691, 17, 16, {"harness_text": 94, "duplicate_view": 554}),
    "code-execution-20250825.pptx-skill.json": (1, 62, 61, {}),
    "code-execution-20260120-prompt-cache.1.chunks.txt": (44, 3, 2, {"harness_text": 14, "duplicate_view": 25}),
    "code-execution-file-upload.1.chunks.txt": (314, 4, 3, {"harness_text": 22, "duplicate_view": 283}),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_real_files_give_their_numbers(shared: Path, name: str):
    found = read((shared / "samples" / "vercel-ai" / f"anthropic-{name}").read_bytes())
    records, steps, transitions, aside = SAMPLES[name]
    assert (found.imported.records, found.rejected, len(found.imported.traces)) == (records, [], 1)
    assert (len(found.outcomes), found.aside) == (steps, aside)
    pairing = {"explicit_id": transitions, "terminal_no_observation": 1}
    assert Counter(found.outcomes) == {key: count for key, count in pairing.items() if count}


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.endswith(".txt")])
def test_the_pieces_of_a_real_stream_are_the_arguments_and_texts(shared: Path, name: str):
    data = (shared / "samples" / "vercel-ai" / f"anthropic-{name}").read_bytes()
    pieces: dict[int, str] = {}
    for value in map(json.loads, data.splitlines()):
        if value["type"] == "content_block_delta":
            delta = value["delta"]
            said = delta.get("text", "") + delta.get("partial_json", "")
            pieces[value["index"]] = pieces.get(value["index"], "") + said
    (trace,) = read(data).imported.traces
    assert [text for kind, _, _, text in shown(trace) if kind != "result"] == list(pieces.values())
    assert all(json.loads(text) for kind, _, _, text in shown(trace) if kind == "call")


def test_the_rule_knows_no_file_of_another_format(shared: Path):
    paths = [*(shared / "samples").glob("*/*"), *(shared / "cases").glob("*.jsonl"), *DATA.glob("*.*")]
    for path in paths:
        if path.name.startswith("anthropic-") or path.stem in ("anthropic_messages", "anthropic_stream"):
            continue
        try:
            records = frame(path.read_bytes()).records[:1000]
        except LabError:
            continue
        values = [record.value for record in records if not record.reason]
        assert not any(map(anthropic.sniff_messages, [*values, values])), path


def test_no_other_rule_knows_our_files(shared: Path):
    paths = [*(shared / "samples" / "vercel-ai").glob("anthropic-*"), *DATA.glob("anthropic_[ms]*.jsonl")]
    for path in paths:
        value = frame(path.read_bytes()).records[0].value
        rules = [each.name for each in importers.formats() if each.sniff(value)]
        assert set(rules) <= {FORMAT.name}, path
        assert anthropic.sniff_messages(value), path


# Which values are ours


@pytest.mark.parametrize(
    "value",
    [
        body("m", text("a")),
        start(),
        begins(0, text("")),
        asked(says(use("a", "f", {}))),
        asked(asks([result("a", "b")])),
        asked(asks("a"), system="b"),
        asked(asks("a"), system=[text("b")]),
        asked(says({"type": "thinking", "thinking": "a", "signature": "b"})),
        [asks("a"), says(serves("a", "web_search", {}))],
        asks([result("a", "b")]),
        pair([asks("a")], body("m", text("b"))),
        {"custom_id": "1", "result": {"type": "succeeded", "message": body("m", text("a"))}},
    ],
)
def test_what_only_this_format_has_is_known(value: object):
    assert anthropic.sniff_messages(value)
    assert FORMAT.fits(value)


@pytest.mark.parametrize(
    "value",
    [
        asked(asks("a"), says(text("b"))),
        [asks("a"), {"role": "assistant", "content": "b"}],
        asks("a"),
        asked(asks("a"), {"role": "tool", "tool_call_id": "x", "content": "b"}, says(use("x", "f", {}))),
        asked(says({"type": "thinking", "thinking": [text("a")]})),
        {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "assistant", "uuid": "u", "sessionId": "s", "message": body("m", text("a"))},
        {"request": asked(asks("a")), "response": {"object": "chat.completion", "choices": []}},
        {"type": "message"},
        {"type": "ping"},
        [],
    ],
)
def test_what_others_have_is_not(value: object):
    assert anthropic.sniff_messages(value) is None


def test_a_message_item_of_openai_responses_is_no_body():
    item = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    assert not FORMAT.fits(item)


def test_openai_chat_keeps_plain_conversations_and_refuses_blocks_of_calls():
    plain, blocks = asked(asks("a"), says(text("b"))), asked(asks("a"), says(use("x", "f", {})))
    assert chat.FORMATS[0].sniff(plain)
    assert not chat.FORMATS[0].sniff(blocks)
    assert FORMAT.fits(plain), "whoever declares it may read it"
    assert not any(each.sniff(blocks) for each in (*chat.FORMATS, *chat_chunks.FORMATS))


# Calls and results


def test_parallel_calls_and_their_results_in_one_message_pair_by_id():
    calls = says(text("Both."), use("x", "f", {"a": 1}), use("y", "g", {}))
    answers = asks([result("y", "2"), result("x", "1"), text("Go on.")])
    found = read(lines(asked(asks("q"), calls, answers, says(text("Done.")))))
    assert found.pairs == [('f {"a": 1}', "explicit_id", "1"), ("g {}", "explicit_id", "2")]
    assert [each.action.text for each in found.transitions] == ["Both.", "Both."]
    assert found.aside == {"observation_without_action": 1}


def test_ids_that_are_used_again_are_scoped_and_twice_in_a_turn_declare_nothing():
    turns = [m for n in "12" for m in (says(use("call_0", "f", {"n": n})), asks([result("call_0", n)]))]
    assert [(pairing, seen) for _, pairing, seen in read(lines(asked(asks("q"), *turns))).pairs] == [
        ("explicit_id_scoped", "1"),
        ("explicit_id_scoped", "2"),
    ]
    twice = says(use("k", "f", {"n": 1}), use("k", "f", {"n": 2}))
    found = read(lines(asked(asks("q"), twice, asks([result("k", "1"), result("k", "2")]))))
    assert [(pairing, seen) for _, pairing, seen in found.pairs] == [("name_order", "1"), ("name_order", "2")]


def test_an_id_that_matches_nothing_pairs_nothing():
    found = read(lines(asked(asks("q"), says(use("x", "f", {})), asks([result("z", "1")]))))
    assert (found.pairs, found.outcomes, found.aside) == ([], ["unanswered_call"], {"id_mismatch": 1})


@pytest.mark.parametrize("absent", ["", None])
def test_an_empty_id_declares_nothing(absent: object):
    found = read(lines(asked(asks("q"), says(use(absent, "f", {})), asks([result(absent, "1")]))))
    assert found.pairs == [("f {}", "order_only", "1")]


@pytest.mark.parametrize("nothing", ["", [], None])
def test_an_empty_result_is_one(nothing: object):
    found = read(lines(asked(asks("q"), says(use("x", "f")), asks([result("x", nothing)]))))
    assert found.pairs == [("f {}", "explicit_id", "")]


def test_arguments_are_their_source_text():
    line = (
        b'{"system": "s", "messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", '
    )
    found = read(line + b'"input": {"a":1.50,  "b":[1e3], "a":2}}]}]}\n')
    assert [row.action for row in found.ledgers[0].rows] == ['f {"a":1.50,  "b":[1e3], "a":2}']


def test_a_call_without_a_name_is_left_out_and_an_unknown_one_is_read():
    other = {"type": "mcp_tool_use", "id": "y", "name": "g", "server_name": "s", "input": {}}
    back = {"type": "mcp_tool_result", "tool_use_id": "y", "is_error": False, "content": [text("1")]}
    found = read(lines(asked(asks("q"), says(use("x", None, {}), other, back))))
    assert found.outcomes == ["call_without_name", "explicit_id"]
    assert found.transitions[0].is_error is False


def test_what_the_model_does_after_a_servers_result_has_seen_it():
    first = [serves("a", "web_search", {}), {"type": "web_search_tool_result", "tool_use_id": "a", "content": [1]}]
    then = [serves("b", "web_fetch", {}), {"type": "web_fetch_tool_result", "tool_use_id": "b", "content": {"n": 2}}]
    found = read(lines(body("m", text("I look."), *first, *then, text("There."))))
    assert [(each.recent, each.observation) for each in found.transitions] == [(None, "[1]"), ("[1]", '{"n": 2}')]
    assert [each.action.text for each in found.transitions] == ["I look.", None]
    assert found.outcomes[-1] == "terminal_no_observation"


def test_a_servers_tool_may_answer_in_a_later_message():
    waits = says(serves("s", "web_search", {}), use("c", "f", {}))
    late = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    found = read(lines(asked(asks("q"), waits, asks([result("c", "1")]), says(late, text("ok")))))
    assert [pairing for _, pairing, _ in found.pairs] == ["explicit_id", "explicit_id"]


def test_an_error_is_what_the_format_declares():
    failed = {"type": "web_fetch_tool_result_error", "error_code": "unavailable"}
    back = {"type": "web_fetch_tool_result", "tool_use_id": "a", "content": failed}
    assert [each.observation_kind for each in read(lines(body("m", serves("a", "f"), back))).transitions] == [
        "tool_error"
    ]
    refused = "The user doesn't want to proceed with this tool use. Wait."
    told = [result("x", "Error: no", is_error=True), result("y", "Error: no"), result("z", refused, is_error=True)]
    stopped = result("w", "[Request interrupted by user for tool use]", is_error=True)
    calls = says(*[use(each, "f", {}) for each in "xyzw"])
    found = read(lines(asked(asks("q"), calls, asks([*told, stopped]))))
    assert (found.aside, found.outcomes[-1]) == ({"interrupt_marker": 1}, "unanswered_call")
    assert [each.observation_kind for each in found.transitions] == ["tool_error", "tool_result", "user_rejection"]


# Messages


def test_the_first_request_is_the_task_and_a_reply_answers_a_text_alone():
    mid = {"role": "system", "content": "be brief"}
    found = read(lines(asked(mid, asks("q"), says(text("?")), asks("yes"), says(text("!")), mid, system="s")))
    (trace,) = found.imported.traces
    assert (trace.context, trace.task, found.pairs) == ("s\n\nbe brief", "q", [("?", "user_reply", "yes")])
    assert found.aside == {"harness_text": 1}
    assert found.transitions[0].observation_source == "unknown"


def test_a_request_after_a_greeting_is_the_task_and_answers_nothing():
    found = read(lines(asked(says(text("Hello.")), asks("q"), says(text("a")))))
    assert (found.pairs, found.imported.traces[0].task) == ([], "q")


def test_a_result_before_any_action_is_context():
    found = read(lines(asked(asks([result("x", "1")]), says(text("a")))))
    assert [kind for kind, _ in kinds(asked(asks([result("x", "1")]), says(text("a"))))] == ["context", "text"]
    assert found.outcomes == ["terminal_no_observation"]


def test_what_a_harness_wrote_in_the_users_name_answers_nothing():
    note = text("<system-reminder>x</system-reminder>")
    found = read(
        lines(asked(asks([note, text("q")]), says(text("a")), asks([note]), asks("[Request interrupted by user]")))
    )
    assert (found.pairs, found.imported.traces[0].task) == ([], "q")
    assert found.aside == {"harness_text": 2, "interrupt_marker": 1}


def test_each_block_is_an_event_or_set_aside():
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "compaction", "content": "so far"},
        {"type": "container_upload", "file_id": "f"},
        {"type": "of_tomorrow"},
        text(""),
        text("a"),
        7,
    ]
    assert kinds(body("m", *blocks)) == [
        ("reasoning", None),
        ("reasoning", None),
        ("control", "compaction_summary"),
        ("control", "harness_text"),
        ("control", "harness_text"),
        ("control", "empty_message"),
        ("text", None),
        ("control", "harness_text"),
    ]
    assert kinds(body("m")) == [("control", "empty_message")]


def test_an_image_of_the_user_is_part_of_what_they_say():
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org"}}
    (trace,) = read(lines(asked(asks([image, text("what?")]), says(text("a"))))).imported.traces
    assert json.loads(trace.task or "") == [image, text("what?")]


def test_a_message_of_no_known_role_is_set_aside():
    assert kinds(asked(asks("q"), {"role": "critic", "content": "no"}, 7)) == [
        ("task", None),
        ("control", "unknown_role"),
        ("control", "unknown_role"),
    ]


def test_a_text_put_in_the_models_mouth_is_no_action_of_it():
    found = read(lines(pair([asks("q"), says(text("{"))], body("m", text("}")))))
    assert (found.outcomes, found.aside) == (["terminal_no_observation"], {"synthetic_assistant": 1})
    assert dict(found.imported.traces[0].usage or ())["model_messages"] == 1


def test_a_file_that_is_a_list_of_messages_is_one_conversation():
    said = [asks("q"), says(use("x", "f", {})), asks([result("x", "1")]), asks("q"), asks("q")]
    for data in (json.dumps(said).encode(), lines(*said), lines(said)):
        found = read(data)
        assert (found.pairs, len(found.imported.traces)) == ([("f {}", "explicit_id", "1")], 1)
    assert read(lines(*said)).imported.records == 5


def test_records_of_other_shapes_are_rejected():
    openai = asked(asks("q"), {"role": "assistant", "tool_calls": [{"id": "x"}]})
    found = read(lines({"a": 1}, body("m", text("a")), openai, [7], asked(), {"type": "ping"}))
    assert [number for number, _ in found.rejected] == [1, 3, 4, 5, 6]
    assert {reason for _, reason in found.rejected} == {"unknown_shape"}


# Histories that are sent again

Q, CALL, BACK = asks("q"), says(text("I look."), use("toolu_x", "f", {"a": 1})), asks([result("toolu_x", "1")])


def test_growing_request_bodies_are_one_conversation():
    found = read(lines(asked(Q), asked(Q, CALL, BACK), asked(Q, CALL, BACK, says(text("a")), asks("b"))))
    assert len(found.imported.traces) == 1
    assert found.pairs == [('f {"a": 1}', "explicit_id", "1"), ("a", "user_reply", "b")]
    assert (found.aside, found.imported.traces[0].usage) == ({"replayed_history": 5}, None)


def test_a_grown_log_keeps_the_ids_of_its_steps():
    rows = [pair([Q], body("m1", *CALL["content"])), pair([Q, CALL, BACK], body("m2", text("a")))]
    short, long = read(lines(*rows[:1])), read(lines(*rows))
    assert [row.transition_id for ledger in long.ledgers for row in ledger.rows] == [
        f"{short.imported.traces[0].trace_id}/0000",
        None,
    ]


def test_cache_marks_reasoning_and_blanks_make_no_message_different():
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    response = body("m1", thought, text("\n\nI look. "), use("toolu_x", "f", {"a": 1}) | {"caller": {"type": "direct"}})
    marks = {"cache_control": {"type": "ephemeral"}}
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org"}}
    first, marked = asks([text("q"), image]), asks([text("q") | marks, image | marks])
    found = read(lines(pair([first], response), pair([marked, CALL, BACK], body("m2", text("a")))))
    assert (len(found.imported.traces), len(found.transitions)) == (1, 1)
    assert found.outcomes == ["explicit_id", "terminal_no_observation"]


def test_a_retry_is_a_branch_and_repeats_no_step():
    again = [pair([Q, CALL, BACK], body(name, text(name))) for name in ("m2", "m3")]
    found = read(lines(pair([Q], body("m1", *CALL["content"])), *again))
    (trace,) = found.imported.traces
    assert found.outcomes == ["explicit_id", "terminal_no_observation", "terminal_no_observation"]
    assert {event.branch for event in trace.events} == {"", "list3"}
    assert dict(trace.usage or ())["model_messages"] == 3


def test_answers_to_one_question_are_conversations_of_their_own():
    found = read(lines(*[pair([Q], body(name, text(name))) for name in ("m1", "m2")]))
    assert [len(trace.events) for trace in found.imported.traces] == [2, 2]


def test_a_greeting_in_common_unites_no_conversations():
    found = read(lines(*[asked(asks("hi"), says(text("Hello.")), asks(each), says(text("a"))) for each in "bc"]))
    assert len(found.imported.traces) == 2
    assert [seen for _, _, seen in found.pairs] == ["b", "c"]


def test_declared_conversations_are_united_by_their_id_alone():
    rows = [asked(Q, CALL, BACK, session_id="s"), asked(Q, CALL, BACK, asks("b"), session_id="t")]
    found = read(lines(*rows, asked(Q, CALL, BACK, asks("c"), session_id="s")))
    assert [trace.keys for trace in found.imported.traces] == [("session:s",), ("session:t",)]
    assert len(found.transitions) == 2


def test_an_edited_history_is_one_as_far_as_its_last_call():
    more = says(use("toolu_y", "g", {}))
    cleared = asks([result("toolu_x", "[cleared]")])
    log = [
        pair([Q], body("m1", *CALL["content"])),
        pair([Q, CALL, BACK], body("m2", *more["content"])),
        pair([Q, CALL, cleared, more, asks([result("toolu_y", "2")])], body("m3", text("a"))),
        pair(
            [Q, CALL, cleared, more, asks([result("toolu_y", "2")]), says(text("a")), asks("b")], body("m4", text("c"))
        ),
    ]
    found = read(lines(*log))
    assert found.pairs == [
        ('f {"a": 1}', "explicit_id", "1"),
        ("g {}", "explicit_id", "2"),
        ("a", "user_reply", "b"),
    ]
    assert {event.branch for trace in found.imported.traces for event in trace.events} == {""}


def test_a_call_that_comes_again_under_its_id_behind_an_edited_history_is_new():
    cleared = asks([result("toolu_x", "[cleared]")])
    again = asks([result("toolu_x", "2")])
    found = read(lines(asked(Q, CALL, BACK), asked(Q, CALL, cleared, CALL, again)))
    assert [seen for _, _, seen in found.pairs] == ["1", "2"]


def test_requests_and_responses_that_take_turns_are_pairs():
    stream = [start("m2"), begins(0, text("")), goes_on(0, "text_delta", text="a"), ends(output_tokens=2), STOP]
    rows = [
        asked(Q),
        body("m1", *CALL["content"]),
        asked(Q, CALL, BACK),
        *stream,
        asked(Q, CALL, BACK, says(text("a")), asks("b")),
    ]
    found = read(lines(*rows))
    assert [seen for _, _, seen in found.pairs] == ["1", "b"]
    assert len(found.imported.traces) == 1
    mixed = read(lines(asked(Q), asked(asks("r")), body("m1", text("a")), body("m2", text("b"))))
    assert len(mixed.imported.traces) == 4, "which answers which is not said"


def test_a_request_or_a_response_may_be_json_text():
    row = {"request": json.dumps(asked(Q, CALL, BACK)), "response": {"body": json.dumps(body("m", text("a")))}}
    found = read(lines(row))
    assert [len(event.span.pointers) for event in found.imported.traces[0].events] == [2] * 5
    assert found.outcomes == ["explicit_id", "terminal_no_observation"]


def test_a_response_that_failed_is_set_aside_and_its_retry_goes_on():
    failed = {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}
    found = read(lines(pair([Q], failed), pair([Q], body("m1", text("a")))))
    assert (len(found.imported.traces), found.outcomes) == (1, ["terminal_no_observation"])
    assert found.aside == {"harness_text": 1, "replayed_history": 1}


def test_a_message_that_stands_again_under_its_id_is_a_view():
    stream = [start("m1"), begins(0, text("")), goes_on(0, "text_delta", text="a"), ends(output_tokens=2), STOP]
    found = read(lines(body("m1", text("a")), *stream, body("m1", text("other"))))
    assert [len(trace.events) for trace in found.imported.traces] == [6, 1]
    assert found.outcomes == ["terminal_no_observation"] * 2
    assert len({trace.trace_id for trace in found.imported.traces}) == 2


def test_usage_is_unknown_where_a_history_holds_more_than_the_responses():
    found = read(lines(pair([Q, CALL, BACK], body("m1", text("a")))))
    assert (found.outcomes, found.imported.traces[0].usage) == (["explicit_id", "terminal_no_observation"], None)


def test_another_system_text_of_a_conversation_is_the_harness_s():
    rows = [asked(Q, system="a"), asked(Q, CALL, BACK, system="b"), asked(Q, CALL, BACK, asks("c"), system="a")]
    found = read(lines(*rows))
    assert (found.imported.traces[0].context, found.aside["harness_text"]) == ("a", 1)


# Streams


def test_blocks_that_take_turns_belong_together_by_index():
    f, g = use("x", "f", {}), use("y", "g", {})
    stream = [
        start(),
        begins(0, f),
        *writes(0, '{"a"'),
        begins(1, g),
        *writes(1, "{"),
        *writes(0, ":1}"),
        *writes(1, "}"),
    ]
    (trace,) = read(lines(*stream, ends(output_tokens=1), STOP)).imported.traces
    assert shown(trace) == [("call", "f", "x", '{"a":1}'), ("call", "g", "y", "{}")]


def test_arguments_in_pieces_replace_those_of_the_start():
    whole = begins(0, use("x", "f", {"a": 1}))
    assert shown(read(lines(start(), whole, *writes(0, ""))).imported.traces[0]) == [("call", "f", "x", '{"a": 1}')]
    assert shown(read(lines(start(), whole, *writes(0, '{"b"', ":2}"))).imported.traces[0])[0][3] == '{"b":2}'


def test_a_cut_stream_invents_nothing():
    stream = [
        start(),
        begins(0, text("")),
        goes_on(0, "text_delta", text="a"),
        begins(1, use("x", "f", {})),
        *writes(1, '{"a'),
    ]
    (trace,) = read(lines(*stream)).imported.traces
    assert (shown(trace), trace.usage, trace.complete) == (
        [("text", None, None, "a"), ("call", "f", "x", '{"a')],
        None,
        None,
    )
    headless = read(lines(goes_on(1, "text_delta", text="b"), *writes(2, "{}"), STOP))
    assert headless.outcomes == ["call_without_name"]
    assert headless.imported.traces[0].usage is None


def test_records_between_two_messages_belong_to_one_of_them():
    ping = {"type": "ping"}
    stream = [ping, start("m1"), begins(0, text("a")), STOP, ping, start("m2"), begins(0, text("b")), STOP]
    found = read(lines(*stream))
    assert [len(trace.events) for trace in found.imported.traces] == [5, 3]
    assert len(read(lines(start("m1"), begins(0, text("a")), STOP, begins(0, text("b")))).imported.traces) == 2
    assert read(lines(body("m", text("a")), ping)).rejected == [(2, "unknown_shape")]


def test_a_start_may_hold_its_blocks_already():
    assert shown(read(lines(start("m1", text("a"), use("x", "f", {"b": 2})))).imported.traces[0]) == [
        ("text", None, None, "a"),
        ("call", "f", "x", '{"b": 2}'),
    ]


def test_a_summary_that_is_streamed_is_no_text_of_the_model():
    pieces = [goes_on(0, "compaction_delta", content=each) for each in ("so ", "far")]
    found = read(lines(start(), begins(0, {"type": "compaction", "content": None}), *pieces))
    assert (found.outcomes, found.aside["compaction_summary"]) == ([], 1)


def test_the_last_counts_stand_and_unknown_stays_unknown():
    def usage(*last: object) -> object:
        return read(lines(start(), begins(0, text("a")), *last)).imported.traces[0].usage

    assert usage(ends(output_tokens=5), ends(output_tokens=6, input_tokens=None)) == (
        ("input_tokens", 3),
        ("model_messages", 1),
        ("output_tokens", 6),
    )
    assert usage() is None
    assert usage(ends(output_tokens=2**60)) is None
    assert usage({"type": "message_delta", "delta": {}}) is None


def test_no_stream_goes_on_in_another_file_of_a_zip():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as pack:
        for name in "ab":
            pack.writestr(f"{name}.jsonl", lines(*[start()] * (name == "a"), begins(0, text(name))))
    traces = read(packed.getvalue()).imported.traces
    assert [shown(trace) for trace in traces] == [[("text", None, None, "a")], [("text", None, None, "b")]]


# Whatever a file may hold

ODD: list[Any] = [None, "", 0, -1, True, 1.5, 2**70, [], {}, ["x"], "x", [text("t")], {"role": "user"}, use("x", "f")]


@pytest.mark.parametrize("name", ["anthropic_messages.jsonl", "anthropic_stream.jsonl", "both"])
def test_law_5_whatever_happens_to_a_file_every_record_is_accounted_for(name: str):
    rng, count = random.Random(name), 0
    names = ["anthropic_messages.jsonl", "anthropic_stream.jsonl"] if name == "both" else [name]
    whole = [json.loads(row) for each in names for row in (DATA / each).read_bytes().splitlines()]
    for _ in range(300):
        rows = list(whole)
        for _ in range(rng.randrange(1, 8)):
            at = rng.randrange(len(rows))
            rows[at] = mutated(rng, rows[at], ODD)
            rows.insert(rng.randrange(len(rows)), rng.choice(rows))
            if rng.random() < 0.3:
                rng.shuffle(rows)
        made = lines(*rows)
        made = made[: rng.randrange(1, len(made))] if rng.random() < 0.2 else made
        try:
            read(made)
        except LabError:
            continue
        list(map(anthropic.sniff_messages, rows))
        count += 1
    assert count > 150
