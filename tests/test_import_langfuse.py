"""Langfuse: one conversation out of observations in any order, any shape of download, and any framework's messages."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, lines
from trace_store_cases import left_out, mutated, read, survives, undone

from experiential_lab.evidence import importers
from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import langfuse

ASK = "Weather in Oslo?"
ARGUMENTS = '{"city": "Oslo"}'
PAIRED = (f"weather {ARGUMENTS}", "explicit_id", "3C")
USER = {"role": "user", "content": ASK}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "k1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}],
}
RESULT = {"role": "tool", "tool_call_id": "k1", "content": "3C"}
ANSWER = {"role": "assistant", "content": "It is 3C"}


def paired(found: Read) -> dict[str, int]:
    return dict(Counter(each.pairing for each in found.transitions))


# Observations, made by hand


def observation(number: int, kind: str, **more: Any) -> dict[str, Any]:
    """An observation that begins in the second of its number and ends half a second later."""
    return {
        "id": f"o{number}",
        "traceId": "t",
        "type": kind,
        "name": kind.lower(),
        "startTime": f"2026-05-01T10:00:{number:02d}.000Z",
        "endTime": f"2026-05-01T10:00:{number:02d}.500Z",
        "parentObservationId": None,
    } | more


def says(number: int, inputs: Any, outputs: Any, **more: Any) -> dict[str, Any]:
    return observation(number, "GENERATION", input=inputs, output=outputs, **more)


def tool(number: int, output: Any, call_id: str | None = None, **more: Any) -> dict[str, Any]:
    metadata = {"attributes": {"gen_ai.tool.call.id": call_id}} if call_id else {}
    asked = {"city": "Oslo"}
    return observation(
        number, "TOOL", **{"name": "weather", "input": asked, "output": output, "metadata": metadata} | more
    )


def seen(*observations: Any) -> Read:
    return read(lines(*observations))


# Real files. Counted by hand in langgraph-python: two generations (1 + 3 messages), of which the second sends 3 messages
# and one tool definition again (4 replayed_history); the first definition is a tool_definition; the tool's span repeats
# its arguments and its result, and the trace, LangGraph, two `agent` and `tools` repeat input and output (2 + 5 x 2 = 12
# duplicate_view); two `should_continue` are the harness's (4 harness_text). One call, its result by id; one last text.

FILES = {
    "agno-2025-06-11": ({"explicit_id": 1}, {"terminal_no_observation": 1}),
    "beeai-2025-08-01": ({"structural": 2}, {"terminal_no_observation": 1}),
    "csharp-agent-with-gemini-2026-03-09": ({"explicit_id": 2}, {}),
    "google-adk-2025-08-28": ({"structural": 1}, {"terminal_no_observation": 1}),
    "google-gemini-2025-08-01": ({}, {"terminal_no_observation": 1}),
    "langgraph-js-2025-10-30": ({"explicit_id": 1}, {"terminal_no_observation": 1}),
    "langgraph-python-2025-08-22": ({"explicit_id": 1}, {"terminal_no_observation": 1}),
    "microsoft-agent-2025-12-17": ({"explicit_id": 1}, {"terminal_no_observation": 1}),
    "openai-agents-2025-09-30": ({"explicit_id": 1}, {"terminal_no_observation": 1}),
    "pydantic-ai-2025-06-06": ({}, {"terminal_no_observation": 1}),
    "pydantic-ai-tools-2025-06-06": ({}, {"terminal_no_observation": 1}),
    "pydantic-ai-with-gemini-2025-12-24": ({}, {"terminal_no_observation": 1}),
    "vercel-aisdk-2025-11-17": ({"explicit_id": 1}, {}),
}
ASIDE: dict[str, dict[str, int]] = {
    "agno-2025-06-11": {"duplicate_view": 8, "harness_text": 4, "replayed_history": 2},
    "beeai-2025-08-01": {"duplicate_view": 17, "empty_message": 2, "harness_text": 13, "replayed_history": 6},
    "csharp-agent-with-gemini-2026-03-09": {"duplicate_view": 7, "harness_text": 2, "replayed_history": 11},
    "google-adk-2025-08-28": {"duplicate_view": 8, "replayed_history": 3},
    "google-gemini-2025-08-01": {"duplicate_view": 2},
    "langgraph-js-2025-10-30": {"duplicate_view": 15, "harness_text": 22, "replayed_history": 2, "unknown_role": 1},
    "langgraph-python-2025-08-22": {
        "duplicate_view": 12,
        "harness_text": 4,
        "replayed_history": 4,
        "tool_definition": 1,
    },
    "microsoft-agent-2025-12-17": {"duplicate_view": 6},
    "openai-agents-2025-09-30": {"duplicate_view": 5, "replayed_history": 3},
    "pydantic-ai-2025-06-06": {"duplicate_view": 4},
    "pydantic-ai-tools-2025-06-06": {"duplicate_view": 4},
    "pydantic-ai-with-gemini-2025-12-24": {"duplicate_view": 2},
    "vercel-aisdk-2025-11-17": {"duplicate_view": 5},
}
SPENT: dict[str, tuple[int | None, int | None]] = {
    "agno-2025-06-11": (1071, 270900),
    "beeai-2025-08-01": (None, None),
    "csharp-agent-with-gemini-2026-03-09": (8461, 3449100),
    "google-adk-2025-08-28": (76, 10300),
    "google-gemini-2025-08-01": (2061, 5139300),
    "langgraph-js-2025-10-30": (444, 326250),
    "langgraph-python-2025-08-22": (234, 234000),
    "microsoft-agent-2025-12-17": (399, 285250),
    "openai-agents-2025-09-30": (184, 632000),
    "pydantic-ai-2025-06-06": (127, 1037500),
    "pydantic-ai-tools-2025-06-06": (127, 1037500),
    "pydantic-ai-with-gemini-2025-12-24": (199, 409500),
    "vercel-aisdk-2025-11-17": (147, 927500),
}


def sample(shared: Path, name: str) -> bytes:
    return (shared / "samples" / "langfuse" / f"{name}.trace.json").read_bytes()


def test_every_real_file_is_in_the_table(shared: Path):
    assert {path.name.removesuffix(".trace.json") for path in (shared / "samples" / "langfuse").iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_transition_of_a_real_file_is_found_and_everything_else_has_its_reason(shared: Path, name: str):
    found = read(sample(shared, name))
    assert (found.format, found.imported.records, len(found.imported.traces), found.rejected) == ("langfuse", 1, 1, [])
    assert (paired(found), left_out(found)) == FILES[name]
    assert found.aside == ASIDE[name]
    (trace,) = found.imported.traces
    assert (dict(trace.usage or ()).get("total"), trace.cost_nusd) == SPENT[name]
    assert trace.complete


@pytest.mark.parametrize("name", FILES)
def test_a_real_file_says_the_same_in_every_shape_and_order(shared: Path, name: str):
    data = sample(shared, name)
    value = json.loads(data)
    expected = signature(read(data))
    shuffled = random.Random(7).sample(value["observations"], len(value["observations"]))
    plain = [each | {key: undone(each.get(key)) for key in ("input", "output", "metadata")} for each in shuffled]
    trace = value["trace"] | {key: undone(undone(value["trace"].get(key))) for key in ("input", "output", "metadata")}
    shapes = [value | {"observations": shuffled}, trace | {"observations": plain}, {"data": plain, "meta": {"page": 1}}]
    for shape in (*map(lines, shapes), lines(*shuffled), lines(*plain), json.dumps(plain).encode()):
        if b'"output": null' not in shape or "csharp" not in name:  # a null that is no text cannot be told from nothing
            assert signature(read(shape)) == expected


def signature(found: Read) -> list[tuple[Any, ...]]:
    rows = [(each.action.tool, undone(each.action.arguments), undone(each.observation)) for each in found.transitions]
    return [*rows, sorted(found.outcomes), {trace.task for trace in found.imported.traces}]


def test_a_tool_that_returned_null_is_an_observation_where_the_file_tells_it_from_nothing():
    calls, answers = says(1, [USER], CALL), tool(2, "null", "k1")
    assert seen(calls, answers).pairs == [(PAIRED[0], "explicit_id", "null")]
    assert seen(calls, tool(2, None, "k1")).outcomes == ["unanswered_call"]
    assert seen(calls, tool(2, "", "k1")).pairs == [(PAIRED[0], "explicit_id", "")]


# Fixtures


def test_a_download_in_no_order_is_one_conversation_of_two_parallel_calls():
    found = read((DATA / "langfuse.json").read_bytes())
    assert [(each.action.tool, each.observation, each.observation_kind) for each in found.transitions] == [
        ("ferry_status", "on time", "tool_result"),
        ("tide_table", "tide service unreachable", "tool_error"),
    ]
    # by hand: input and output of the trace and of the agent, and the call and result of two tools (8 duplicate_view); the
    # system text, the request, two calls and the definition are sent again (5); the event says its name alone
    assert found.aside == {"duplicate_view": 8, "tool_definition": 1, "replayed_history": 5, "harness_text": 1}
    (trace,) = found.imported.traces
    assert dict(trace.usage or ()) == {"input": 150, "output": 32, "total": 182, "model_messages": 2}
    assert (trace.cost_nusd, trace.context, trace.declared_tools) == (123_000, "You know the coast.", 1)
    assert trace.keys == ("session:9d3f", "session:quay-7")


def test_a_later_trace_of_a_session_that_sends_its_history_again_is_the_same_conversation():
    found = read((DATA / "langfuse_observations.jsonl").read_bytes())
    assert found.pairs == [("Stari Most.", "user_reply", "Another one?")]
    assert [trace.keys for trace in found.imported.traces] == [
        ("session:s-1", "session:t1", "session:t2"),
        ("session:s-1", "session:t3"),
    ]
    assert found.rejected == [(4, "duplicate_span")]
    assert [trace.cost_nusd for trace in found.imported.traces] == [2_500, 1_250]


def test_a_later_trace_that_says_nothing_of_the_earlier_one_answers_nothing():
    first = says(1, [USER], ANSWER, sessionId="s")
    second = says(2, [{"role": "user", "content": "thanks"}], ANSWER | {"content": "bye"}, sessionId="s", traceId="u")
    found = seen(first, second)
    assert found.outcomes == ["terminal_no_observation"] * 2
    assert len(found.imported.traces) == 2


# Dialects: what a generation puts out, what the next one is given, and what that says of the same call


def langchain(name: str, **more: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", name], "kwargs": more}


def event(role: str, message: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "gen_ai.event.content": json.dumps(message), "gen_ai.system": "openai"}


TEXT_USER = {"role": "user", "content": [{"type": "text", "text": ASK}]}
PART_USER = {"role": "user", "parts": [{"type": "text", "content": ASK}]}
PART_CALL = {
    "role": "assistant",
    "parts": [{"type": "tool_call", "id": "k1", "name": "weather", "arguments": ARGUMENTS}],
}
KINDLY = {"type": "text", "text": "I look"}
USES = {
    "role": "assistant",
    "content": [KINDLY, {"type": "tool_use", "id": "k1", "name": "weather", "input": {"city": "Oslo"}}],
}
BEDROCK = {
    "role": "assistant",
    "content": [{"toolUse": {"toolUseId": "k1", "name": "weather", "input": {"city": "Oslo"}}}],
}
AI = {"type": "ai", "content": "", "tool_calls": [{"id": "k1", "name": "weather", "args": {"city": "Oslo"}}]}
KERNEL = CALL | {"role": "Assistant", "content": ""}
FUNCTION_CALL = {"type": "function_call", "id": "fc_1", "call_id": "k1", "name": "weather", "arguments": ARGUMENTS}
BARE = [{"toolCallId": "k1", "toolName": "weather", "input": ARGUMENTS}]
VERCEL = {"role": "assistant", "content": [{"type": "tool-call", **BARE[0]}]}
CODED = json.dumps(json.dumps({"city": "Oslo"}))
TWICE = CALL | {"tool_calls": [{"id": "k1", "type": "function", "function": {"name": "weather", "arguments": CODED}}]}
DIALECTS: dict[str, tuple[Any, Any, list[Any]]] = {
    "openai": ([USER], CALL, [USER, CALL, RESULT]),
    "openai body": ({"messages": [USER]}, {"choices": [{"index": 0, "message": CALL}]}, [USER, CALL, RESULT]),
    "arguments encoded twice": ([USER], TWICE, [USER, CALL, RESULT]),
    "openai responses": (
        [USER],
        {
            "object": "response",
            "instructions": "Be kind",
            "output": [{"type": "reasoning", "summary": []}, FUNCTION_CALL],
        },
        [USER, FUNCTION_CALL, {"type": "function_call_output", "call_id": "k1", "output": "3C"}],
    ),
    "anthropic": (
        {"system": "Be kind", "messages": [USER]},
        USES | {"type": "message", "id": "msg", "stop_reason": "tool_use"},
        [USER, USES, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "k1", "content": "3C"}]}],
    ),
    "bedrock": (
        {"system": [{"text": "Be kind"}], "messages": [{"role": "user", "content": [{"text": ASK}]}]},
        {"output": {"message": BEDROCK}, "stopReason": "tool_use"},
        [
            {"role": "user", "content": [{"text": ASK}]},
            BEDROCK,
            {"role": "user", "content": [{"toolResult": {"toolUseId": "k1", "content": [{"text": "3C"}]}}]},
        ],
    ),
    "langchain": (
        {"messages": [[{"type": "human", "content": ASK}]]},
        {"generations": [[{"text": "", "message": AI}]]},
        [{"type": "human", "content": ASK}, AI, {"type": "tool", "tool_call_id": "k1", "content": "3C"}],
    ),
    "langchain constructors": (
        [langchain("HumanMessage", content=ASK)],
        langchain("AIMessageChunk", content="", tool_calls=[], additional_kwargs={"tool_calls": CALL["tool_calls"]}),
        [
            langchain("HumanMessage", content=ASK),
            langchain("AIMessage", content="", tool_calls=AI["tool_calls"]),
            langchain("ToolMessage", content="3C", tool_call_id="k1", status="success"),
        ],
    ),
    "opentelemetry parts": (
        [PART_USER],
        [PART_CALL | {"finish_reason": "tool_call"}],
        [
            PART_USER,
            PART_CALL,
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "k1", "response": "3C"}]},
        ],
    ),
    "opentelemetry events": (
        [USER | {"event.name": "gen_ai.user.message"}],
        {"event.name": "gen_ai.choice", "index": 0, "message": CALL},
        [USER, CALL, {"event.name": "gen_ai.tool.message", "role": "tool", "id": "k1", "content": "3C"}],
    ),
    "semantic kernel": (
        [event("user", USER)],
        {"gen_ai.event.content": json.dumps({"index": 0, "message": KERNEL, "finish_reason": "ToolCalls"})},
        [event("user", USER), event("assistant", KERNEL), event("tool", RESULT)],
    ),
    "vercel": (
        {"prompt": [TEXT_USER]},
        BARE,
        [
            TEXT_USER,
            VERCEL,
            {
                "role": "tool",
                "content": [
                    {
                        "type": "tool-result",
                        "toolCallId": "k1",
                        "toolName": "weather",
                        "output": {"type": "text", "value": "3C"},
                    }
                ],
            },
        ],
    ),
}


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_gives_the_call_its_result_once_and_the_answer_its_reply(name: str, is_text: bool):
    inputs, outputs, history = DIALECTS[name]
    spelled = [json.dumps(each) if is_text else each for each in (inputs, outputs, history)]
    reply = [*history, ANSWER, {"role": "user", "content": "thanks"}]
    for span in ([], [tool(2, "3C")], [tool(2, "3C", "k1")]):
        found = seen(says(1, *spelled[:2]), *span, says(3, spelled[2], "It is 3C"), says(4, reply, "Bye"))
        assert found.pairs == [PAIRED, ("It is 3C", "user_reply", "thanks")]
        assert left_out(found) == {"terminal_no_observation": 1}
        assert {each.task for each in found.transitions} == {ASK}


def test_gemini_declares_no_ids_so_its_results_pair_by_name():
    asked = {"role": "user", "parts": [{"text": ASK}]}
    called = {
        "role": "model",
        "parts": [{"text": "hm", "thought": True}, {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}],
    }
    gave = {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"celsius": 3}}}]}
    first = says(1, {"contents": [asked]}, {"candidates": [{"content": called}]})
    found = seen(
        first,
        says(
            2,
            {"contents": [asked, called, gave]},
            {"candidates": [{"content": {"role": "model", "parts": [{"text": "3C"}]}}]},
        ),
    )
    assert found.pairs == [(PAIRED[0], "name_order", '{"celsius": 3}')]
    assert "hm" not in str(found.transitions[0].action)


def test_a_function_schema_in_a_tools_name_is_no_result():
    schema = {"role": "tool", "content": {"type": "function", "function": {"name": "weather", "parameters": {}}}}
    found = seen(says(1, [USER, schema], CALL), says(2, [USER, CALL, RESULT, schema], ANSWER))
    assert found.pairs == [PAIRED]
    assert found.aside["tool_definition"] == 1
    assert found.imported.traces[0].declared_tools == 1


def test_a_request_in_the_trace_is_the_task_even_behind_what_a_framework_says_in_the_users_name():
    prompt = {"role": "user", "content": "Be helpful!"}
    root = observation(0, "CHAIN", input={"messages": [{"type": "human", "content": ASK}]})
    (trace,) = seen(root, says(1, [prompt, USER], CALL, parentObservationId="o0")).imported.traces
    assert (trace.task, trace.context) == (ASK, "Be helpful!")


def test_a_result_whose_call_its_own_input_leaves_out_answers_that_call():
    found = seen(says(1, [USER], CALL), says(2, [RESULT], ANSWER))
    assert found.pairs == [PAIRED]


def test_the_id_of_a_result_may_stand_in_what_python_represented_alone():
    spelled = r"role='tool' content='it\'s 3C tool_call_id=\'other\'' name=None tool_call_id='k1' tool_calls=None"
    flat = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": ASK}
    flat |= {"llm.input_messages.1.message.role": "tool", "llm.input_messages.1.message.content": "3C"}
    second = says(2, {"messages": ["role='user' content='..'", spelled]}, ANSWER, metadata={"attributes": flat})
    assert seen(says(1, [USER], CALL), second).pairs == [PAIRED]


# Tools


def test_a_tools_error_is_declared_by_its_own_observation():
    failed = tool(2, None, "k1", level="ERROR", statusMessage="no service")
    shown = says(3, [USER, CALL, RESULT | {"content": "no service"}], ANSWER)
    for more in ([], [shown]):
        (each,) = seen(says(1, [USER], CALL), failed, *more).transitions
        assert (each.observation, each.observation_kind, each.is_error) == ("no service", "tool_error", True)


def test_a_tool_without_an_id_is_another_view_or_nobodys_but_never_guessed():
    calls = says(1, [USER], CALL)
    assert seen(calls, tool(2, "3C")).outcomes == ["unanswered_call"]
    found = seen(calls, tool(2, "3C"), says(3, [USER, CALL, RESULT], ANSWER))
    assert (found.pairs, found.aside["duplicate_view"]) == ([PAIRED], 2)


def test_a_tool_inside_the_generation_of_its_only_call_is_structural():
    found = seen(says(1, [USER], CALL), tool(2, "3C", parentObservationId="o1"))
    assert found.pairs == [(PAIRED[0], "structural", "3C")]


def test_an_id_that_no_call_carries_never_makes_a_second_action_of_a_recorded_one():
    nameless = {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": ARGUMENTS}}
    gives = {"role": "function", "name": "weather", "content": "3C"}
    found = seen(says(1, [USER], nameless), tool(2, "3C", "adk-1"), says(3, [USER, nameless, gives], ANSWER))
    assert [each.pairing for each in found.transitions] == ["name_order"]
    assert seen(says(1, [USER], CALL), tool(2, "3C", "other")).outcomes == ["unanswered_call"]


def test_a_tool_message_as_an_output_makes_its_observation_a_tools():
    message = {"type": "tool", "tool_call_id": "k1", "content": "3C", "status": "success"}
    span = observation(2, "SPAN", name="weather", input="{'city': 'Oslo'}", output=json.dumps(message))
    found = seen(says(1, [USER], CALL), span)
    assert found.pairs == [PAIRED]
    assert found.aside == {"duplicate_view": 1}  # the Python representation of its arguments


def test_states_of_an_agent_that_show_one_call_again_are_one_action():
    attributes = {"openinference.span.kind": "AGENT", "tool.name": "weather", "tool.parameters": ARGUMENTS}
    state = {"output": "3C and a light breeze from the north", "metadata": {"attributes": attributes}}
    retold = {"role": "assistant", "content": f"Function Output: {state['output']}"}
    found = seen(
        says(1, [USER], None),
        *(observation(number, "SPAN", **state) for number in (2, 3)),
        says(4, [USER, retold], None),
        observation(5, "AGENT", output={"role": "assistant", "content": "Mild."}),
    )
    assert found.pairs == [(PAIRED[0], "structural", state["output"])]
    assert left_out(found) == {"terminal_no_observation": 1}


def test_an_answer_that_repeats_a_whole_result_is_the_agents_all_the_same():
    long = RESULT | {"content": "3C and a light breeze from the north"}
    answer = ANSWER | {"content": f"Now: {long['content']}"}
    history = [USER, CALL, long, answer, {"role": "user", "content": "thanks"}]
    found = seen(says(1, [USER], CALL), says(2, [USER, CALL, long], answer), says(3, history, "Bye"))
    assert [each.pairing for each in found.transitions] == ["explicit_id", "user_reply"]


def test_an_output_that_tells_the_whole_conversation_again_adds_its_answer_alone():
    found = seen(says(1, [USER], CALL), says(2, [USER, CALL, RESULT], [USER, CALL, RESULT, ANSWER]))
    assert (found.pairs, left_out(found)) == ([PAIRED], {"terminal_no_observation": 1})
    assert found.aside == {"replayed_history": 2, "duplicate_view": 3}


def test_where_no_generation_says_anything_the_fullest_state_is_the_conversation():
    root = observation(0, "CHAIN", input={"messages": [USER]}, output={"messages": [USER, CALL, RESULT, ANSWER]})
    inner = observation(1, "SPAN", output={"messages": [CALL]}, parentObservationId="o0")
    assert seen(root, inner, tool(2, "3C", "k1")).pairs == [PAIRED]


# Usage and cost


def test_usage_and_cost_are_those_of_leaf_generations():
    spent = {"usageDetails": {"input": 3, "output": 2}, "costDetails": {"input": 1e-06, "total": 1.2e-05}}
    outer = says(1, {"prompt": ASK}, "It is 3C", usageDetails={"input": 9}, costDetails={"total": 7})
    (trace,) = seen(outer, says(2, [USER], "It is 3C", parentObservationId="o1", **spent)).imported.traces
    assert (dict(trace.usage or ()), trace.cost_nusd) == ({"input": 3, "output": 2, "model_messages": 1}, 12_000)
    assert trace.usage_repeated == 1


@pytest.mark.parametrize("name", FILES)
def test_parents_of_a_real_file_that_state_usage_again_are_counted(shared: Path, name: str):
    # read by hand: two `OpenAIChat.invoke` around `chat`; `invoke_agent` around two `chat`; `generateText` around `doGenerate`
    right = {"agno-2025-06-11": 2, "microsoft-agent-2025-12-17": 1, "vercel-aisdk-2025-11-17": 1}
    (trace,) = read((shared / "samples" / "langfuse" / f"{name}.trace.json").read_bytes()).imported.traces
    assert trace.usage_repeated == right.get(name, 0)


def test_an_agent_that_states_the_usage_of_its_generations_again_is_reported_and_not_added():
    agent = observation(0, "AGENT", input=ASK, output="It is 3C", usageDetails={"input": 7})
    calls = [
        says(1, [USER], CALL, parentObservationId="o0", usageDetails={"input": 3}),
        says(3, [USER, CALL, RESULT], ANSWER, parentObservationId="o0", usageDetails={"input": 4}),
    ]
    (trace,) = seen(agent, calls[0], tool(2, "3C", "k1", parentObservationId="o0"), calls[1]).imported.traces
    assert (dict(trace.usage or ())["input"], trace.usage_repeated) == (7, 1)
    (trace,) = seen(agent | {"usageDetails": {}}, *calls).imported.traces
    assert (dict(trace.usage or ())["input"], trace.usage_repeated) == (7, 0)


def test_a_transcript_inside_a_structured_generation_is_no_second_call_but_its_usage_is_the_leafs():
    outer = says(1, [USER], CALL, usageDetails={"input": 9})
    inner = says(2, f"user: {ASK}", "None", parentObservationId="o1", usageDetails={"input": 4})
    found = seen(outer, inner, says(3, [USER, CALL, RESULT], ANSWER, usageDetails={"input": 1}))
    assert (found.pairs, left_out(found)) == ([PAIRED], {"terminal_no_observation": 1})
    assert dict(found.imported.traces[0].usage or ())["input"] == 5


def test_usage_and_cost_are_unknown_as_soon_as_one_leaf_states_none():
    known = {"usageDetails": {"input": 3}, "totalCost": 0}
    (trace,) = seen(
        says(1, [USER], CALL, **known), says(2, [USER, CALL, RESULT], ANSWER, usageDetails={})
    ).imported.traces
    assert (trace.usage, trace.cost_nusd) == (None, None)
    (trace,) = seen(says(1, [USER], CALL, **known)).imported.traces
    assert (dict(trace.usage or ()), trace.cost_nusd) == ({"input": 3, "model_messages": 1}, 0)


# Whatever a file may hold


def test_an_observation_that_says_nothing_is_set_aside_by_its_name():
    found = seen(observation(0, "SPAN"), says(1, [USER], ANSWER, parentObservationId="o0"))
    assert found.aside == {"duplicate_view": 1}


def test_text_that_only_looks_like_json_is_a_text():
    for said in ('{"a": 1', '"quoted" words', "[1, 2]", '{"answer": NaN}', "{'a': 1}", '"\\ud800"'):
        found = seen(says(1, said, said))
        assert [row.action for each in found.ledgers for row in each.rows] == [said]


def test_what_is_nested_deeper_than_a_record_may_be_is_a_text():
    for deep in ("[" * 450 + "]" * 450, "[" * 100_000 + "]" * 100_000, '{"messages":' * 450 + "1" + "}" * 450):
        inner = json.dumps([{"role": "user", "content": deep}])
        found = seen(
            says(1, deep, f'{{"choices": [{{"message": {deep}}}]}}'), says(2, inner, deep), tool(3, deep, "k1")
        )
        assert len(found.outcomes) >= 2


def test_a_record_without_any_observation_is_rejected():
    found = seen(says(1, [USER], ANSWER), {"traceId": "t"}, [1])
    assert found.rejected == [(2, "unknown_shape"), (3, "unknown_shape")]


def test_other_formats_are_not_taken_for_langfuse_nor_langfuse_for_them(shared: Path):
    for path in sorted((shared / "samples").glob("*/*.json*")) + sorted((shared / "cases").glob("*.jsonl")):
        records = frame(path.read_bytes()).records
        is_ours = path.parent.name == "langfuse"
        assert any(langfuse.FORMATS[0].sniff(each.value) for each in records if not each.reason) == is_ours
        if is_ours:
            assert importers.choose(frame(path.read_bytes()))[0].name == "langfuse"


def test_the_rule_of_each_shape_is_reported():
    one, trace = says(1, [USER], ANSWER), {"id": "t", "observations": [says(1, [USER], ANSWER)]}
    for value, rule in (
        (one, "observations with traceId and type"),
        (trace, "traces with observations"),
        ({"data": [one], "meta": {}}, "observations with traceId and type"),
        ({"trace": {"id": "t"}, "observations": []}, "objects with trace and observations"),
    ):
        assert importers.choose(frame(lines(value)))[1] == rule


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_cost_what_is_damaged_and_nothing_else(shared: Path, seed: int):
    chance = random.Random(seed)
    names = [name for name in FILES if len(sample(shared, name)) < 60_000]
    for _ in range(120):
        value = json.loads(sample(shared, chance.choice(names)))
        survives([mutated(value, chance, 6)] if chance.random() < 0.4 else value["observations"], chance)
