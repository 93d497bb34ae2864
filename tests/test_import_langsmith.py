"""LangSmith: runs in any order and from any part of an ingest body, and recorded sessions of managed agents."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, lines
from evidence_cases import said as action_of
from trace_store_cases import left_out, read, survives

from experiential_lab.evidence import importers
from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import langsmith
from experiential_lab.evidence.trace import STEP_REASONS

CASE = "20-langsmith-runs-out-of-order"
ARGUMENTS = '{"city": "Oslo"}'
HUMAN = {"type": "human", "content": "Weather in Oslo?"}
CALL = {"type": "ai", "content": "", "tool_calls": [{"id": "k1", "name": "weather", "args": {"city": "Oslo"}}]}
RESULT = {"type": "tool", "tool_call_id": "k1", "content": "3C"}
ANSWER = {"type": "ai", "content": "It is 3C", "tool_calls": []}
PAIRED = (f"weather {ARGUMENTS}", "explicit_id", "3C")


# Runs, made by hand


def run(number: int, kind: str, inputs: Any, outputs: Any, **more: Any) -> dict[str, Any]:
    """A run of the trace `a`, whose place is its number; its start says nothing."""
    return {
        "id": f"r{number}",
        "trace_id": "a",
        "parent_run_id": "a",
        "run_type": kind,
        "name": "weather" if kind == "tool" else kind,
        "dotted_order": f"20260501T100000000000Za.202605011000{number:02d}000000Zr{number}",
        "start_time": "2026-05-01T10:00:00",
        "end_time": "2026-05-01T10:00:01",
        "inputs": inputs,
        "outputs": outputs,
    } | more


def model(number: int, messages: list[Any], answer: Any, **more: Any) -> dict[str, Any]:
    generations = [[{"text": answer["content"], "message": answer}]]
    return run(number, "llm", {"messages": [messages]}, {"generations": generations}, **more)


def threaded(run: dict[str, Any], trace: str, thread: str) -> dict[str, Any]:
    place = {"trace_id": trace, "parent_run_id": None, "dotted_order": run["dotted_order"].replace("Za.", f"Z{trace}.")}
    return run | place | {"extra": {"metadata": {"thread_id": thread}}}


def spent(**tokens: int) -> dict[str, Any]:
    return {"metadata": {"usage_metadata": tokens}}


def seen(*runs: Any) -> Read:
    return read(lines(*runs))


# A fault that was reported for other tools


def test_case_20_runs_are_ordered_by_their_dotted_order_and_one_call_counts_once(shared: Path):
    found = read((shared / "cases" / f"{CASE}.jsonl").read_bytes())
    right = json.loads((shared / "cases" / f"{CASE}.expected.json").read_text())
    assert (found.format, len(found.transitions)) == (right["format"], right["n_transitions"])
    for each, expected in zip(found.transitions, right["transitions"], strict=True):
        assert (each.pairing, each.observation) == (expected["pairing"], expected["observation"])
        assert all(word in action_of(each) for word in expected["action"].split())
    reasons = Counter(each["reason"] for each in right["rejects"])
    assert left_out(found) == {reason: count for reason, count in reasons.items() if reason in STEP_REASONS}


# Real files. Counted by hand in langsmith_js_wrap_openai_default: the user's message, the answer, and the inputs that were
# posted and patched again (1 duplicate_view). In anthropic_managed_builtin_tools: 14 lines are the system text, the message
# as sent (1 duplicate_view) and as streamed, a call, its result, the answer, and 8 states and spans (harness_text).

END = {"terminal_no_observation": 1}
TOOL = {"explicit_id": 1} | END
TOKENS = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18, "model_messages": 1}
CACHED = "cache_creation_input_tokens", "cache_read_input_tokens"
FILES: dict[str, tuple[int, dict[str, int], dict[str, int], dict[str, int] | None]] = {
    "anthropic_managed_builtin_tools.jsonl": (
        14,
        TOOL,
        {"duplicate_view": 1, "harness_text": 8},
        {CACHED[0]: 25, CACHED[1]: 14300, "input_tokens": 4, "output_tokens": 80, "model_messages": 2},
    ),
    "anthropic_managed_custom_tools.jsonl": (
        19,
        TOOL,
        {"duplicate_view": 2, "harness_text": 12},
        {CACHED[0]: 0, CACHED[1]: 14472, "input_tokens": 4, "output_tokens": 80, "model_messages": 2},
    ),
    "anthropic_managed_mcp_tools.jsonl": (
        22,
        TOOL,
        {"duplicate_view": 2, "harness_text": 13},
        {CACHED[0]: 10244, CACHED[1]: 7780, "input_tokens": 4, "output_tokens": 435, "model_messages": 2},
    ),
    "langsmith_js_wrap_openai_default.json": (1, END, {"duplicate_view": 1}, TOKENS),
    "langsmith_js_wrap_openai_reasoning.json": (
        1,
        END,
        {"duplicate_view": 1},
        {"input_tokens": 43, "output_tokens": 1901, "total_tokens": 1944, "model_messages": 1},
    ),
    "langsmith_js_wrap_openai_stream_no usage.json": (1, END, {"duplicate_view": 1}, None),
    "langsmith_py_wrap_openai_.json": (1, END, {}, TOKENS),
    "langsmith_py_wrap_openai_stream.json": (1, END, {}, TOKENS),
    "langsmith_py_wrap_openai_stream_no_usage.json": (1, END, {}, None),
}


def test_every_real_file_is_in_the_table(shared: Path):
    assert {path.name for path in (shared / "samples" / "langsmith").iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_transition_of_a_real_file_is_found_and_everything_else_has_its_reason(shared: Path, name: str):
    records, outcomes, aside, usage = FILES[name]
    found = read((shared / "samples" / "langsmith" / name).read_bytes())
    assert (found.format, found.imported.records, found.rejected) == ("langsmith_runs", records, [])
    assert (Counter(found.outcomes), found.aside) == (outcomes, aside)
    (trace,) = found.imported.traces
    assert (dict(trace.usage) if trace.usage else None) == usage
    assert trace.cost_nusd is None


# Fixtures


def test_a_thread_of_two_traces_in_no_order_is_one_conversation():
    found = read((DATA / "langsmith_runs.jsonl").read_bytes())
    assert found.pairs == [
        ('ferry_status {"route": "Split-Hvar"}', "explicit_id", "on time"),
        ("It runs on time.", "user_reply", "And tomorrow?"),
    ]
    (trace,) = found.imported.traces
    assert trace.keys == ("session:e0", "session:f0", "session:quay-7")  # not the project
    # by hand: two sides of two chains, the Python representation and the result of the tool (6 duplicate_view); the two
    # later model calls send 2 and 4 known messages again, the third of the first is the result
    assert found.aside == {"duplicate_view": 6, "replayed_history": 6}
    assert dict(trace.usage or ()) == {"input_tokens": 86, "output_tokens": 22, "model_messages": 3}
    assert trace.cost_nusd == 60_000  # the chain's own total repeats its children
    assert trace.usage_repeated == 1


def test_what_was_posted_and_what_was_patched_is_one_run():
    found = read((DATA / "langsmith_ingest.json").read_bytes())
    (trace,) = found.imported.traces
    assert [(event.kind, event.text, event.at) for event in trace.events if not event.aside] == [
        ("task", "Ahoy", "2026-04-02T08:15:01.250000000Z"),
        ("text", "Ahoy, captain.", "2026-04-02T08:15:02.500000000Z"),
    ]
    assert (trace.name, trace.complete) == ("Model", True)


def test_a_managed_session_is_read_from_its_stream():
    found = read((DATA / "langsmith_managed.jsonl").read_bytes())
    assert [
        (*pair, each.observation_kind, each.observation_source)
        for pair, each in zip(found.pairs, found.transitions, strict=True)
    ] == [
        ('count_knots {"net": "north"}', "explicit_id", "214", "tool_result", "environment"),
        ('bash {"command": "rm -r nets"}', "explicit_id", "Not the nets.", "user_rejection", "human"),
    ]
    (trace,) = found.imported.traces
    assert (trace.context, trace.complete, trace.declared_tools) == ("You mend nets.", True, 1)
    assert found.aside == {"duplicate_view": 2, "harness_text": 3}


# Runs


def test_parts_of_one_run_may_stand_in_records_of_their_own_in_any_order():
    order = {"trace_id": "x", "dotted_order": "20260501T100000000001Zx"}
    post = {"post": [order | {"id": "x", "run_type": "llm", "name": "M", "inputs": {"messages": [HUMAN]}}]}
    patch = {"patch": [order | {"end_time": "2026-05-01T10:00:03", "outputs": {"message": ANSWER}}]}
    mute = {"patch": [order | {"end_time": "2026-05-01T10:00:04"}]}
    for records in ((post, patch, mute), (mute, patch, post)):
        found = seen(*records)
        assert [row.action for row in found.ledgers[0].rows] == ["It is 3C"]
        assert found.imported.traces[0].task == HUMAN["content"]
        assert found.aside == {"duplicate_view": 1}


def test_a_run_that_was_exported_twice_counts_as_it_ended():
    begun = model(1, [HUMAN], CALL) | {"outputs": None, "end_time": None}
    found = seen(model(1, [HUMAN], CALL), begun, model(3, [HUMAN, CALL, RESULT], ANSWER))
    assert (found.pairs, found.rejected) == ([PAIRED], [(2, "duplicate_span")])


def test_runs_may_stand_inside_each_other_in_a_list_or_in_an_answer():
    parts = [model(1, [HUMAN], CALL), model(3, [HUMAN, CALL, RESULT], ANSWER)]
    root = run(0, "chain", {"input": "x"}, None, id="a", parent_run_id=None, child_runs=parts)
    for data in (lines(root), json.dumps(parts).encode(), lines({"runs": parts})):
        assert read(data).pairs == [PAIRED]


def test_a_tools_output_names_its_call_and_its_python_input_is_compared_to_nothing():
    told = run(2, "tool", {"input": "{'city': 'Bergen'}"}, {"output": RESULT})
    found = seen(model(1, [HUMAN], CALL), told)
    assert found.pairs == [PAIRED]
    kept = [event.text for event in found.imported.traces[0].events if event.aside == "duplicate_view"]
    assert kept == [json.dumps({"input": "{'city': 'Bergen'}"})]


def test_a_tool_that_names_no_call_waits_for_a_message_that_does():
    nameless = run(2, "tool", {"input": "{'city': 'Oslo'}"}, {"output": "3C"})
    assert seen(model(1, [HUMAN], CALL), nameless).outcomes == ["unanswered_call"]
    assert seen(model(1, [HUMAN], CALL), nameless, model(3, [HUMAN, CALL, RESULT], ANSWER)).pairs == [PAIRED]


def test_a_tools_error_is_what_was_observed():
    failed = run(
        2, "tool", {"city": "Oslo"}, None, error="ValueError('no city')", extra={"metadata": {"tool_call_id": "k1"}}
    )
    (each,) = seen(model(1, [HUMAN], CALL), failed).transitions
    assert (each.observation, each.observation_kind) == ("ValueError('no city')", "tool_error")
    shown = seen(model(1, [HUMAN], CALL), run(2, "tool", {}, {"output": RESULT | {"status": "error"}}))
    assert [each.observation_kind for each in shown.transitions] == ["tool_error"]


def test_a_model_call_that_failed_says_nothing():
    failed = model(1, [HUMAN], ANSWER) | {"outputs": {"detail": "none"}, "error": "RateLimitError()"}
    found = seen(failed, model(2, [HUMAN], ANSWER))
    assert [row.action for row in found.ledgers[0].rows] == ["It is 3C"]


def test_usage_and_cost_are_those_of_calls_without_calls_inside():
    inner = model(2, [HUMAN], ANSWER, parent_run_id="r1", extra=spent(input_tokens=3), total_cost="0.0000125")
    outer = model(1, [HUMAN], ANSWER, extra=spent(input_tokens=30), total_cost=5)
    (trace,) = seen(outer, inner).imported.traces
    assert (dict(trace.usage or ()), trace.cost_nusd) == ({"input_tokens": 3, "model_messages": 1}, 12_500)
    assert trace.usage_repeated == 1
    root = run(0, "chain", {}, {}, id="a", parent_run_id=None, prompt_tokens=3, completion_tokens=0, total_tokens=3)
    (trace,) = seen(root, outer, inner).imported.traces
    assert (dict(trace.usage or ()), trace.usage_repeated) == ({"input_tokens": 3, "model_messages": 1}, 2)
    (trace,) = seen(outer, inner, model(3, [HUMAN, ANSWER], ANSWER)).imported.traces
    assert (trace.usage, trace.cost_nusd) == (None, None)


def test_a_thread_answers_only_where_the_later_run_says_what_the_earlier_said():
    first = threaded(model(1, [HUMAN], ANSWER), "a", "th")
    reply = {"type": "human", "content": "thanks"}
    found = seen(threaded(model(5, [HUMAN, ANSWER, reply], ANSWER), "b", "th"), first)
    assert found.pairs == [("It is 3C", "user_reply", "thanks")]
    for alone in (
        threaded(model(5, [reply], ANSWER), "b", "th"),
        threaded(model(5, [HUMAN, ANSWER, reply], CALL), "b", ""),
    ):
        found = seen(alone, first)
        assert len(found.imported.traces) == 2


def test_an_example_of_a_data_set_is_a_lineage_key_of_its_file():
    root = run(0, "chain", {}, {}, id="a", parent_run_id=None, reference_example_id="e-7")
    (trace,) = seen(root, model(1, [HUMAN], ANSWER)).imported.traces
    assert f"task:{trace.source[7:23]}:e-7" in trace.keys


# Managed agents


def managed(number: int, kind: str, **more: Any) -> list[Any]:
    return ["client.beta.sessions.events.stream", {"id": f"e{number}", "type": kind} | more]


def blocks(said: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": said}]


def test_what_a_client_sent_counts_where_no_stream_repeats_it():
    sent = ["client.beta.sessions.events.send", ["s", {"events": [{"type": "user.message", "content": blocks("hi")}]}]]
    found = read(lines(sent, managed(1, "agent.message", content=blocks("hello"))))
    assert found.imported.traces[0].task == "hi"
    assert found.aside == {}


def test_states_between_the_calls_of_one_turn_do_not_part_them():
    found = read(
        lines(
            managed(1, "user.message", content=blocks("go")),
            managed(2, "agent.message", content=blocks("both")),
            managed(3, "agent.tool_use", name="f", input={}),
            managed(4, "span.model_request_end", model_usage=None),
            managed(5, "agent.tool_use", name="g", input={}),
            managed(6, "agent.tool_result", tool_use_id="e5", content=[], is_error=True),
            managed(7, "agent.tool_result", tool_use_id="e3", content=blocks("")),
            managed(8, "agent.thread_context_compacted"),
            managed(9, "user.interrupt"),
        )
    )
    assert found.pairs == [("f {}", "explicit_id", ""), ("g {}", "explicit_id", "[]")]
    assert [each.action.text for each in found.transitions] == ["both", "both"]
    assert [each.is_error for each in found.transitions] == [None, True]
    assert found.aside == {"harness_text": 1, "interrupt_marker": 1}
    assert found.imported.traces[0].usage is None


def test_sessions_that_share_a_file_are_traces_of_their_own():
    made = [["client.beta.sessions.create", {"type": "session", "id": key}] for key in ("one", "two")]
    said = [managed(number, "user.message", content=blocks(f"{number}")) for number in (1, 2)]
    found = read(lines(["client.beta.agents.list", {}], made[0], said[0], made[1], said[1]))
    assert [(trace.keys, trace.task) for trace in found.imported.traces] == [
        (("session:one",), "1"),
        (("session:two",), "2"),
    ]


# Whatever a file may hold


def test_a_record_that_is_no_run_is_rejected():
    found = seen(model(1, [HUMAN], ANSWER), {"run_type": "llm"}, {"post": []}, [1, 2])
    assert found.rejected == [(2, "unknown_shape"), (3, "unknown_shape"), (4, "unknown_shape")]


def test_other_formats_are_not_taken_for_runs_nor_runs_for_them(shared: Path):
    paths = sorted((shared / "samples").glob("*/*.json*")) + sorted((shared / "cases").glob("*.jsonl"))
    for path in paths:
        records = frame(path.read_bytes()).records
        is_ours = path.parent.name == "langsmith" or path.stem == CASE
        assert any(langsmith.FORMATS[0].sniff(each.value) for each in records if not each.reason) == is_ours
        if is_ours:
            assert importers.choose(frame(path.read_bytes()))[0].name == "langsmith_runs"


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_cost_what_is_damaged_and_nothing_else(shared: Path, seed: int):
    chance = random.Random(seed)
    paths = [*sorted((shared / "samples" / "langsmith").iterdir()), shared / "cases" / f"{CASE}.jsonl"]
    for _ in range(200):
        survives([each.value for each in frame(chance.choice(paths).read_bytes()).records], chance)
