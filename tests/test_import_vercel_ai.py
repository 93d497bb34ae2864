"""Vercel AI SDK: UI messages, model messages, the shapes of older versions, and UI message streams."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, asks, check_spans, check_sums, lines, mutated, says

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import formats, vercel_ai
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.spans import open_span, unpacked
from experiential_lab.evidence.trace import Event
from experiential_lab.evidence.transitions import ledger_of
from experiential_lab.records import LabError, digest_of

(FORMAT,) = vercel_ai.FORMATS


def read(data: bytes) -> Read:
    frames = frame(data)
    imported = FORMAT.read(Source(digest_of(data), "it", frames))
    found = Read(unpacked(data), FORMAT.name, imported, [ledger_of(trace) for trace in imported.traces])
    check_sums(found)
    check_spans(found)
    return found


def events(found: Read) -> list[Event]:
    return [event for trace in found.imported.traces for event in trace.events]


def shown(found: Read) -> list[tuple[str, str | None, str | None, str]]:
    return [(e.kind, e.tool, e.call_id, e.text) for e in events(found) if e.aside is None]


# Messages, made by hand


def message(role: str, *parts: object, message_id: str = "m", **more: object) -> dict[str, Any]:
    return {"id": message_id, "role": role, "parts": list(parts), **more}


def text(said: object) -> dict[str, Any]:
    return {"type": "text", "text": said}


def tool(state: str, call_id: object = "t", name: str = "f", **more: object) -> dict[str, Any]:
    return {"type": f"tool-{name}", "toolCallId": call_id, "state": state, "input": {"a": 1}, **more}


def made(call_id: object, name: object = "f", **more: object) -> dict[str, Any]:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": name, **more}


def given(call_id: object, output: object, name: object = "f") -> dict[str, Any]:
    return {"type": "tool-result", "toolCallId": call_id, "toolName": name, "output": output}


STEP = {"type": "step-start"}


# The fixture, counted by hand


def test_the_fixture_has_its_steps():
    # chat-1 is stored twice: 4 + 1 messages of 13 parts and texts in all, then the same with its last message grown.
    # Of the second: 3 step-starts, 2 tools that answered, a question with its reply, a refused tool, a last text.
    # chat-2: two calls of one message, whose results come in the other order; a last text.
    # chat-3: one tool with a result and one without, then the text.
    found = read((DATA / "vercel_ai.jsonl").read_bytes())
    assert [(action, pairing, observation[:24]) for action, pairing, observation in found.pairs] == [
        ('look {"at": "lamp"}', "structural", '{"lit": false}'),
        ('look {"at": "sea"}', "structural", "fog"),
        ("It is dark. Shall I light it?", "user_reply", '[{"type": "text", "text"'),
        ('light {"lamp": 1}', "structural", "Not now."),
        ("oil {}", "explicit_id", '{"litres": 3}'),
        ('wick {"n": 1}', "explicit_id", "burnt"),
        ('tide {"at": "noon"}', "structural", "rising"),
    ]
    assert sorted(found.outcomes)[-4:] == ["terminal_no_observation"] * 2 + ["unanswered_call", "user_reply"]
    assert found.outcomes.count("terminal_no_observation") == 3
    assert (found.aside, found.rejected) == ({"harness_text": 4, "replayed_history": 13}, [])
    kinds = [each.observation_kind for each in found.transitions]
    assert kinds == [
        "tool_result",
        "tool_error",
        "user_reply",
        "user_rejection",
        "tool_result",
        "tool_error",
        "tool_result",
    ]


def test_a_chat_has_its_key_task_context_and_times():
    lamp, oil, tide = read((DATA / "vercel_ai.jsonl").read_bytes()).imported.traces
    assert [(trace.keys, trace.task) for trace in (lamp, oil, tide)] == [
        (("session:chat-1",), "Is the lamp lit?"),
        (("session:chat-2",), "Oil?"),
        (("session:chat-3",), "Tide?"),
    ]
    assert (oil.context, oil.usage, oil.complete) == ("You keep the light.", None, None)
    assert {event.at for event in tide.events} == {"2026-04-02T08:00:00Z", "2026-04-02T08:00:02Z"}


def test_the_rule_knows_no_file_of_another_format(shared: Path):
    for path in [*(shared / "samples").glob("*/*"), *(shared / "cases").glob("*.jsonl"), *DATA.glob("*.json*")]:
        try:
            values = [record.value for record in frame(path.read_bytes()).records[:1000] if not record.reason]
        except LabError:
            continue
        assert any(map(FORMAT.sniff, values)) == path.name.startswith("vercel_ai"), path


def test_a_plain_chat_and_parts_of_other_vendors_are_none():
    telemetry = {"role": "user", "parts": [{"type": "text", "content": "x"}]}
    gemini = {"role": "user", "parts": [{"text": "x"}]}
    for value in (asks("x"), [asks("x"), says("y")], {"messages": [says("x")]}, telemetry, [gemini]):
        assert FORMAT.sniff(value) is None


def test_no_other_rule_but_that_of_a_chat_knows_these():
    for record in frame((DATA / "vercel_ai.jsonl").read_bytes()).records:
        known = {each.name for each in formats() if each.sniff(record.value)}
        assert known <= {"vercel_ai", "openai_chat"}


# Parts


@pytest.mark.parametrize(
    "state", ["input-streaming", "input-available", "approval-requested", "approval-responded", "x", ""]
)
def test_a_tool_without_a_final_output_is_unanswered(state: str):
    found = read(lines(message("user", text("go")), message("assistant", tool(state, output="early"))))
    assert found.outcomes == ["unanswered_call"]


def test_call_and_result_of_one_part_are_structural_and_only_the_call_declares_the_id():
    found = read(
        lines(message("assistant", tool("output-available", output=""), tool("output-available", output=None)))
    )
    assert found.pairs == [('f {"a": 1}', "structural", ""), ('f {"a": 1}', "structural", "null")]
    assert [e.call_id for e in events(found)] == ["t", None, "t", None]
    assert [row.flags for row in found.ledgers[0].rows] == [("id_not_unique_in_turn",)] * 2


def test_a_preliminary_output_is_none():
    found = read(lines(message("assistant", tool("output-available", output="half", preliminary=True))))
    assert (found.outcomes, found.aside) == (["unanswered_call"], {"orphan_result": 1})


@pytest.mark.parametrize("reason", ["no", "", None])
def test_a_denied_tool_is_a_rejection(reason: str | None):
    denied = tool("output-denied", approval={"id": "a", "approved": False, "reason": reason})
    responded = tool("approval-responded", approval={"id": "a", "approved": False, "reason": reason})
    for part in (denied, responded):
        (each,) = read(lines(message("assistant", part))).transitions
        assert (each.observation_kind, each.observation, each.pairing) == ("user_rejection", reason or "", "structural")


def test_an_error_is_one_and_its_input_may_be_raw():
    part = tool("output-error", errorText="bad input", rawInput="{a", input=None)
    (each,) = read(lines(message("assistant", part))).transitions
    assert (each.action.arguments, each.observation, each.is_error) == ("{a", "bad input", True)


def test_a_call_without_an_input_does_not_quote_its_output():
    part = tool("output-available", output="secret") | {"input": None}
    found = read(lines(message("assistant", part)))
    assert found.pairs == [("f {}", "structural", "secret")]
    (call,) = [e for e in events(found) if e.kind == "call"]
    assert "secret" not in open_span(found.data, call.span)


def test_a_dynamic_tool_says_its_name_and_a_name_may_hold_dashes():
    dynamic = tool("output-available", output=1) | {"type": "dynamic-tool", "toolName": "g"}
    dashed = tool("output-available", name="read-file-now", output=2)
    assert [each.action.tool for each in read(lines(message("assistant", dynamic, dashed))).transitions] == [
        "g",
        "read-file-now",
    ]


def test_a_text_behind_a_result_is_a_step_of_its_own_and_gets_the_reply():
    parts = [STEP, text("I look."), tool("output-available", output=1), STEP, text("Lit?")]
    found = read(lines(message("user", text("go")), message("assistant", *parts), message("user", text("Yes."))))
    assert found.pairs == [('f {"a": 1}', "structural", "1"), ("Lit?", "user_reply", "Yes.")]
    assert found.transitions[0].action.text == "I look."
    assert found.transitions[1].recent == "1"


def test_a_step_is_a_turn_so_its_text_is_not_that_of_the_tools_behind_it():
    found = read(lines(message("assistant", STEP, text("One."), STEP, tool("output-available", output=1))))
    assert found.outcomes == ["no_authored_reply", "structural"]
    assert found.transitions[0].action.text is None


def test_parts_that_say_nothing_to_the_model_are_set_aside():
    parts = [
        {"type": "source-url", "url": "u"},
        {"type": "file", "url": "u"},
        {"type": "data-x", "data": 1},
        {"type": "z"},
        text(""),
    ]
    found = read(lines(message("assistant", *parts), message("assistant")))
    assert found.aside == {"harness_text": 3, "unknown_role": 1, "empty_message": 2}


def test_messages_in_lists_objects_and_lines_are_one_conversation_each():
    talk = [message("user", text("go")), message("assistant", text("ok?")), message("user", text("yes"))]
    for data in (lines(*talk), lines(talk), lines({"messages": talk}), json.dumps(talk).encode()):
        assert read(data).pairs == [("ok?", "user_reply", "yes")]
    assert read(lines({"id": "a", "messages": talk}, {"id": "b", "messages": talk})).outcomes == ["user_reply"] * 2


def test_lists_of_one_chat_that_go_on_differently_are_branches():
    start = [message("user", text("go")), message("assistant", text("ok?"))]
    rows = [{"id": "c", "messages": [*start, message("user", text(said), message_id=said)]} for said in ("yes", "no")]
    found = read(lines(*rows))
    assert found.pairs == [("ok?", "user_reply", "yes")]
    assert {e.branch for e in events(found)} == {"", "list2"}


def test_a_message_that_has_grown_replaces_itself_and_one_that_was_edited_does_not():
    asked = message("user", text("go"), message_id="u")
    short = message("assistant", tool("input-available"), message_id="x")
    grown = message("assistant", tool("output-available", output=1), text("ok"), message_id="x")
    other = message("assistant", tool("output-available", "other", output=1), message_id="x")
    stored = [{"id": "c", "messages": [asked, each]} for each in (short, grown)]
    assert read(lines(*stored)).outcomes == ["structural", "terminal_no_observation"]
    edited = [{"id": "c", "messages": [asked, each]} for each in (short, other)]
    assert read(lines(*edited)).outcomes == ["unanswered_call", "structural"]


# Model messages, and older shapes


def test_model_messages_pair_by_id_whatever_their_order():
    outputs = [given("b", {"type": "text", "value": "2"}, "g"), given("a", {"type": "json", "value": {"n": 1}})]
    rows = [message("user", text("go")), says([text("I look."), made("a", input={}), made("b", "g", args={"x": 1})])]
    found = read(lines({"messages": [*rows, {"role": "tool", "content": outputs}]}))
    assert found.pairs == [("f {}", "explicit_id", '{"n": 1}'), ('g {"x": 1}', "explicit_id", "2")]


@pytest.mark.parametrize(
    ("output", "observation", "is_error", "kind"),
    [
        ({"type": "error-text", "value": "no"}, "no", True, "tool_error"),
        ({"type": "error-json", "value": {"e": 1}}, '{"e": 1}', True, "tool_error"),
        ({"type": "content", "value": [text("a"), text("b")]}, "a\nb", None, "tool_result"),
        ({"type": "execution-denied", "reason": "not now"}, "not now", None, "user_rejection"),
        ({"type": "execution-denied"}, "", None, "user_rejection"),
        ({"type": "json", "value": None}, "null", None, "tool_result"),
        ("plain", "plain", None, "tool_result"),
        (None, "", None, "tool_result"),
    ],
)
def test_a_tool_result_says_what_it_is(output: object, observation: str, is_error: bool | None, kind: str):
    (each,) = read(lines(says([made("a", input={})]), {"role": "tool", "content": [given("a", output)]})).transitions
    assert (each.observation, each.is_error, each.observation_kind) == (observation, is_error, kind)


def test_a_tool_that_the_provider_ran_answers_inside_the_message():
    found = read(lines(asks("go"), says([made("a"), given("a", "x"), text("So?")]), asks("Good.")))
    assert found.pairs == [("f {}", "explicit_id", "x"), ("So?", "user_reply", "Good.")]


def test_parts_count_and_what_stands_beside_them_is_a_view():
    invocation = {"state": "result", "toolCallId": "k", "toolName": "f", "args": {}, "result": 5, "step": 0}
    parts = [STEP, {"type": "tool-invocation", "toolInvocation": invocation}, text("Five.")]
    both = message("assistant", *parts, content="Five.", toolInvocations=[invocation])
    found = read(lines(both))
    assert found.pairs == [("f {}", "structural", "5")]
    assert (found.outcomes[1:], found.aside) == (["terminal_no_observation"], {"harness_text": 1, "duplicate_view": 2})


def test_without_parts_a_text_stands_behind_answers_and_before_open_calls():
    def older(state: str) -> dict[str, Any]:
        tools = [{"state": state, "toolCallId": "k", "toolName": "f", "args": {}, "result": 5}]
        return {"id": "m", "role": "assistant", "content": "Five.", "toolInvocations": tools}

    assert [e.kind for e in events(read(lines(older("result"))))] == ["call", "result", "text"]
    assert read(lines(older("result"))).transitions[0].action.text is None
    assert [e.kind for e in events(read(lines(older("call"))))] == ["text", "call"]


# Streams


def chunks(*kinds: object) -> list[dict[str, Any]]:
    return [{"type": "start", "messageId": "s"}, {"type": "start-step"}, *kinds]  # type: ignore[list-item]


def test_a_stream_is_put_together_from_its_chunks():
    said = [
        {"type": f"text-{end}", "id": "0"} | ({"delta": d} if d else {})
        for end, d in (("start", ""), ("delta", "ha"), ("delta", "ha"), ("end", ""))
    ]
    said[2]["providerMetadata"] = {}
    rows = [
        {"type": "tool-input-start", "toolCallId": "t", "toolName": "f"},
        {"type": "tool-input-delta", "toolCallId": "t", "inputTextDelta": '{"a"'},
        {"type": "tool-input-available", "toolCallId": "t", "toolName": "f", "input": {"a": 1}},
        {"type": "tool-output-available", "toolCallId": "t", "output": "half", "preliminary": True},
        {"type": "tool-output-available", "toolCallId": "t", "output": "whole"},
        {"type": "finish-step"},
        {"type": "finish"},
    ]
    found = read(lines(*chunks(*said, *rows)))
    assert shown(found) == [("text", None, None, "haha"), ("call", "f", "t", '{"a": 1}'), ("result", "f", "t", "whole")]
    assert found.pairs == [('f {"a": 1}', "explicit_id", "whole")]
    assert found.aside == {"harness_text": 4, "duplicate_view": 5, "orphan_result": 1}


def test_a_cut_stream_says_what_came():
    rows = [{"type": "tool-input-start", "toolCallId": "t", "toolName": "f"}]
    assert shown(read(lines(*chunks(*rows)))) == [("call", "f", "t", "")]
    rows += [{"type": "tool-input-delta", "toolCallId": "t", "inputTextDelta": piece} for piece in ('{"a"', ": ")]
    found = read(lines(*chunks(*rows)))
    assert (shown(found), found.outcomes) == ([("call", "f", "t", '{"a": ')], ["unanswered_call"])


def test_law_3_an_id_that_the_next_step_gives_again_joins_no_later_text_to_an_action():
    def step(said: str, tool: str) -> list[dict[str, Any]]:
        return [
            {"type": "start-step"},
            {"type": "text-start", "id": "0"},
            {"type": "text-delta", "id": "0", "delta": said},
            {"type": "text-delta", "id": "0", "delta": "."},
            {"type": "tool-input-available", "toolCallId": "call_0", "toolName": tool, "input": {}},
            {"type": "tool-output-available", "toolCallId": "call_0", "output": f"made by {tool}"},
            {"type": "finish-step"},
        ]

    found = read(lines(*chunks(*step("One", "f"), *step("Two", "g"))))
    told = [(each.action.text, each.action.tool, each.observation) for each in found.transitions]
    assert told == [("One.", "f", "made by f"), ("Two.", "g", "made by g")]


def test_two_streams_in_one_file_are_two_messages():
    rows = [{"type": "text-delta", "id": "0", "delta": "a"}, {"type": "finish"}]
    again = [{"type": "start", "messageId": "r"}, {"type": "text-delta", "id": "0", "delta": "b"}]
    assert [len(trace.events) for trace in read(lines(*chunks(*rows), *again)).imported.traces] == [4, 2]
    unnamed = {"type": "text-delta", "id": "1", "delta": "c"}
    assert [len(trace.events) for trace in read(lines(*chunks(*rows), unnamed)).imported.traces] == [4, 1]


def test_errors_and_refusals_of_a_stream_are_results():
    def ends(**more: object) -> Any:
        row = {"type": "tool-input-available", "toolCallId": "t", "toolName": "f", "input": {}}
        (each,) = read(lines(*chunks(row, {"toolCallId": "t", **more}))).transitions
        return each.observation_kind, each.observation

    assert ends(type="tool-output-error", errorText="no") == ("tool_error", "no")
    assert ends(type="tool-output-denied") == ("user_rejection", "")


# Whatever a file may hold

ODD: list[Any] = [
    None,
    "",
    0,
    True,
    1.5,
    [],
    {},
    ["x"],
    "x",
    "assistant",
    "output-available",
    [text("t")],
    {"role": "user"},
]
KEYS = ("type", "role", "parts", "content", "toolCallId", "state", "output", "toolInvocations", "messages", "id")
STREAM = chunks(
    {"type": "text-delta", "id": "0", "delta": "a"},
    {"type": "text-delta", "id": "0", "delta": "b"},
    {"type": "tool-input-available", "toolCallId": "t", "toolName": "f", "input": {}},
    {"type": "tool-output-available", "toolCallId": "t", "output": [1]},
    {"type": "tool-input-error", "toolCallId": "u", "toolName": "f", "input": 1, "errorText": "no"},
    {"type": "data-x", "data": 1},
    {"type": "finish"},
)


@pytest.mark.parametrize("name", ["lists", "messages", "stream"])
def test_law_5_whatever_happens_to_a_file_every_record_is_accounted_for(name: str):
    rng, count = random.Random(name), 0
    whole = [json.loads(row) for row in (DATA / "vercel_ai.jsonl").read_bytes().splitlines()]
    if name != "lists":
        whole = [each for chat in whole for each in chat["messages"]] if name == "messages" else STREAM
    for _ in range(300):
        rows = list(whole)
        for _ in range(rng.randrange(1, 8)):
            at = rng.randrange(len(rows))
            for _ in range(rng.randrange(1, 5)):
                rows[at] = mutated(rng, rows[at], ODD)
            rows.insert(rng.randrange(len(rows)), rng.choice(rows))
            if rng.random() < 0.3:
                rng.shuffle(rows)
        data = lines(*rows)
        try:
            read(data[: rng.randrange(1, len(data))] if rng.random() < 0.2 else data)
        except LabError:
            continue
        count += 1
    assert count > 250
