"""OpenAI Responses: bodies, streams, requests, pairs and lists of items, linked to conversations."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, check_spans, check_sums, lines, mutated, says

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import formats, responses
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.spans import open_span, unpacked
from experiential_lab.evidence.trace import Event
from experiential_lab.evidence.transitions import ledger_of
from experiential_lab.records import LabError, digest_of

(FORMAT,) = responses.FORMATS


def read(data: bytes) -> Read:
    frames = frame(data)
    imported = FORMAT.read(Source(digest_of(data), "it", frames))
    found = Read(unpacked(data), FORMAT.name, imported, [ledger_of(trace) for trace in imported.traces])
    if frames.layout != "zip":
        check_sums(found)
        check_spans(found)
    return found


def fixture(name: str) -> Read:
    return read((DATA / name).read_bytes())


def events(found: Read) -> list[Event]:
    return [event for trace in found.imported.traces for event in trace.events]


def shown(found: Read) -> list[tuple[str, str | None, str | None, str]]:
    return [(e.kind, e.tool, e.call_id, e.text) for e in events(found) if e.aside is None]


# Items, made by hand


def asks(text: object, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def answers(text: str, item_id: str = "msg") -> dict[str, Any]:
    blocks = [{"type": "output_text", "annotations": [], "text": text}]
    return {"id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": blocks}


def call(call_id: object, name: object = "f", arguments: object = "{}", item_id: str = "fc") -> dict[str, Any]:
    return {"id": item_id, "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def gives(call_id: object, output: object) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def response(*output: object, response_id: object = "resp", **more: object) -> dict[str, Any]:
    usage = {"input_tokens": 3, "output_tokens": 2}
    return {
        "id": response_id,
        "object": "response",
        "status": "completed",
        "output": list(output),
        "usage": usage,
        **more,
    }


def request(*given: object, **more: object) -> dict[str, Any]:
    return {"model": "m", "input": list(given), **more}


def pair(asked: object, answered: object) -> dict[str, Any]:
    return {"request": asked, "response": answered}


def event(kind: str, **more: object) -> dict[str, Any]:
    return {"type": f"response.{kind}", **more}


# The fixtures, counted by hand


def test_conversations_are_linked_and_what_is_sent_again_counts_once():
    # Seven records, two conversations. resp_h1 to resp_h4: the hives; h3 and h4 both continue h2, so h4 is a branch.
    # resp_d1 to resp_d3 name nothing, but each sends again what was said before: 2 items in the second, 4 in the third.
    found = fixture("openai_responses.jsonl")
    assert found.pairs == [
        ('weigh {"hive": 1}', "explicit_id", "31 kg"),
        ('weigh {"hive": 2}', "explicit_id", "14 kg"),
        ("Hive 2 is weak. Shall I feed it?", "user_reply", "Yes, one litre."),
        ('pour {"litres": 1}', "structural", ""),
        ("lock {}", "structural", "the door is stuck"),
        ("code_interpreter print(14 + 1)", "structural", "15\n"),
        ("count {}", "explicit_id_scoped", "7"),
        ("Seven.", "user_reply", "And the queens?"),
    ]
    assert Counter(found.outcomes) - Counter(pairing for _, pairing, _ in found.pairs) == {
        "unanswered_call": 2,  # the page that was opened, and the queens
        "terminal_no_observation": 2,  # the last text of the main line, and that of the branch
    }
    assert found.aside == {
        "duplicate_view": 1,  # the instructions, which the response repeats
        "tool_definition": 1,
        "observation_without_action": 1,  # `No, leave it.` answers a text of the main line, which has its answer
        "replayed_history": 6,
    }


def test_a_conversation_has_its_task_context_tools_usage_and_keys():
    hives, drones = fixture("openai_responses.jsonl").imported.traces
    assert (hives.task, hives.context, hives.declared_tools, hives.complete) == (
        "Which hive is weak?",
        "You keep bees.",
        2,
        None,
    )
    assert hives.keys == ("session:resp_h1", "session:resp_h2", "session:resp_h3", "session:resp_h4")
    assert hives.usage == (
        ("cached_tokens", 40),
        ("input_tokens", 40 + 70 + 90 + 80),
        ("output_tokens", 20 + 9 + 30 + 4),
        ("reasoning_tokens", 8),
        ("total_tokens", 60 + 79 + 120 + 84),
    )
    assert (drones.task, drones.name, drones.context) == ("Count the drones.", "response resp_d1", None)
    assert [each.is_error for each in fixture("openai_responses.jsonl").transitions] == [None] * 3 + [False, True] + [
        None
    ] * 3


def test_a_whole_stream_is_read_from_its_last_record_and_a_cut_one_from_what_came():
    # 25 records. resp_s1: 14, of which created and in_progress tell nothing, the last holds both items, 11 are views.
    # resp_s2: 11; created tells nothing; the reasoning is whole in `output_item.done`, text and call stand in two deltas each.
    found = fixture("openai_responses_stream.jsonl")
    assert shown(found) == [
        ("text", None, None, "Two swarms today."),
        ("call", "swarm", "call_s1", '{"tree": "elm"}'),
        ("reasoning", None, None, "look up"),
        ("text", None, None, "haha"),
        ("call", "climb", "call_s2", '{"tree": "el'),
    ]
    assert found.aside == {"harness_text": 3, "duplicate_view": 11 + 7}
    assert (found.imported.records, found.outcomes) == (25, ["unanswered_call", "unanswered_call"])
    (trace,) = found.imported.traces
    assert (trace.usage, trace.keys) == (None, ("session:resp_s1", "session:resp_s2"))
    located = [e.span.located for e in trace.events if e.aside is None]
    assert located == ["exact", "exact", "exact", "joined", "joined"]


# Real files

# Counted by hand: the items of each body, read one by one; of a stream, its records by type, and the items of its last one.
SAMPLES = {
    # reasoning, and one call that the application has to run
    "openai-local-shell-tool.1.json": (1, 1, {"unanswered_call": 1}, {}),
    "openai-shell-tool.1.json": (1, 1, {"unanswered_call": 1}, {}),
    # 3 searches: the first holds its sources, the two that open and search a page hold nothing; then one text
    "openai-web-search-tool.1.json": (
        *(1, 1),
        {"structural": 1, "unanswered_call": 2, "terminal_no_observation": 1},
        {},
    ),
    # created, in_progress | 2 x added, 2 x done
    "openai-local-shell-tool.1.chunks.txt": (7, 1, {"unanswered_call": 1}, {"harness_text": 2, "duplicate_view": 4}),
    # created, in_progress, 2 of the tool list, 2 of each mcp call tell nothing: 8; the last record holds all; 373 - 8 - 1
    "openai-mcp-tool.1.chunks.txt": (
        *(373, 1),
        {"structural": 2, "terminal_no_observation": 1},
        {"harness_text": 8, "duplicate_view": 364, "tool_definition": 1},
    ),
    # two responses, of 12 and 170 records; each created and in_progress, and a last record: 182 - 4 - 2
    "openai-shell-tool.1.chunks.txt": (
        *(182, 2),
        {"unanswered_call": 1, "terminal_no_observation": 1},
        {"harness_text": 4, "duplicate_view": 176},
    ),
    # created, in_progress, 3 of each of 6 searches tell nothing: 20; 185 - 20 - 1. Two searches hold sources, 4 hold nothing
    "openai-web-search-tool.1.chunks.txt": (
        *(185, 1),
        {"structural": 2, "unanswered_call": 4, "terminal_no_observation": 1},
        {"harness_text": 20, "duplicate_view": 164},
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_file_has_its_numbers(shared: Path, name: str):
    found = read((shared / "samples" / "vercel-ai" / name).read_bytes())
    records, traces, outcomes, aside = SAMPLES[name]
    assert (found.imported.records, len(found.imported.traces), found.rejected) == (records, traces, [])
    assert (Counter(found.outcomes), found.aside) == (outcomes, aside)


def test_the_real_files_have_their_usage(shared: Path):
    def used(name: str) -> list[dict[str, int]]:
        found = read((shared / "samples" / "vercel-ai" / name).read_bytes())
        return [dict(trace.usage or ()) for trace in found.imported.traces]

    (search,) = used("openai-web-search-tool.1.json")
    assert search == {
        "input_tokens": 19681,
        "cached_tokens": 3712,
        "output_tokens": 3773,
        "reasoning_tokens": 3136,
        "total_tokens": 23454,
    }
    assert [each["total_tokens"] for each in used("openai-shell-tool.1.chunks.txt")] == [186, 497]


def test_a_real_mcp_call_pairs_with_the_output_inside_it(shared: Path):
    data = (shared / "samples" / "vercel-ai" / "openai-mcp-tool.1.chunks.txt").read_bytes()
    last = json.loads(data.splitlines()[-1])["response"]["output"]
    held = [(f"{item['name']} {item['arguments']}", item["output"]) for item in last if item["type"] == "mcp_call"]
    assert [(action, observation) for action, _, observation in read(data).pairs] == held


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.endswith("txt")])
def test_a_cut_real_stream_says_what_the_whole_one_says_as_far_as_it_came(shared: Path, name: str):
    data = (shared / "samples" / "vercel-ai" / name).read_bytes()
    whole = [e.text for e in events(read(data)) if e.kind == "text"]
    rows = data.splitlines(keepends=True)
    for size in range(1, len(rows), 7):
        found = read(b"".join(rows[:size]))
        cut = [e.text for e in events(found) if e.kind == "text"]
        assert all(text.startswith(part) for text, part in zip(whole, cut, strict=False))
        assert len(cut) <= len(whole)


def test_the_rule_knows_no_file_of_another_format_and_no_other_rule_knows_these(shared: Path):
    ours = [*(shared / "samples" / "vercel-ai").glob("openai-*"), *DATA.glob("openai_responses*")]
    others = [*(shared / "samples").glob("*/*"), *(shared / "cases").glob("*.jsonl"), *DATA.glob("*.json*")]
    for path in {*others} - {*ours}:
        try:
            values = [record.value for record in frame(path.read_bytes()).records[:1000] if not record.reason]
        except LabError:
            continue
        assert not any(map(FORMAT.sniff, values)), path
    for path in ours:
        for record in frame(path.read_bytes()).records:
            assert {FORMAT.name} >= {each.name for each in formats() if each.sniff(record.value)}, path
            assert FORMAT.sniff(record.value)


# Pairing


def test_call_id_pairs_and_id_never_does():
    found = read(lines(call("c1", item_id="fc_1"), gives("fc_1", "wrong"), gives("c1", "right")))
    assert found.pairs == [("f {}", "explicit_id", "right")]
    assert found.aside == {"id_mismatch": 1}
    shell = {"type": "local_shell_call_output", "id": "c1", "output": "x"}
    assert read(lines(call("c1"), shell)).outcomes == ["unanswered_call"]


def test_results_without_an_id_pair_by_what_is_left_only():
    assert read(lines(call(""), gives(None, "x"))).pairs == [("f {}", "order_only", "x")]
    assert read(lines(call(""), call(None), gives("", "x"))).outcomes == ["ambiguous_order"] * 2


def test_a_tool_of_the_server_takes_no_output_of_another_tool():
    search = {"id": "ws", "type": "web_search_call", "action": {"type": "search", "query": "q"}}
    found = read(lines(search, gives(None, "x")))
    assert (found.outcomes, found.aside) == (["unanswered_call"], {"orphan_result": 1})


@pytest.mark.parametrize(
    ("made", "given", "tool", "arguments"),
    [
        (
            {"type": "custom_tool_call", "name": "patch", "input": "*** Begin"},
            "custom_tool_call_output",
            "patch",
            "*** Begin",
        ),
        (
            {"type": "local_shell_call", "action": {"command": ["ls"]}},
            "local_shell_call_output",
            "local_shell",
            '{"command": ["ls"]}',
        ),
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, "shell_call_output", "shell", '{"commands": ["ls"]}'),
        ({"type": "computer_call", "action": {"type": "wait"}}, "computer_call_output", "computer", '{"type": "wait"}'),
        (
            {"type": "apply_patch_call", "operation": {"path": "a"}},
            "apply_patch_call_output",
            "apply_patch",
            '{"path": "a"}',
        ),
        ({"type": "tool_search_call", "arguments": {"q": 1}}, "tool_search_output", "tool_search", '{"q": 1}'),
    ],
)
def test_every_tool_of_the_application_pairs_by_call_id(made: dict[str, Any], given: str, tool: str, arguments: str):
    found = read(
        lines(call("other"), made | {"call_id": "c", "id": "x"}, {"type": given, "call_id": "c", "output": "done"})
    )
    assert found.pairs == [(f"{tool} {arguments}", "explicit_id", "done")]


@pytest.mark.parametrize(
    ("item", "action", "observation"),
    [
        ({"type": "file_search_call", "queries": ["a"], "results": []}, 'file_search ["a"]', "[]"),
        ({"type": "image_generation_call", "result": "AA=="}, "image_generation {}", "AA=="),
        (
            {"type": "image_generation_call", "result": "AA==", "revised_prompt": "a cat"},
            "image_generation a cat",
            "AA==",
        ),
        (
            {"type": "web_search_call", "action": {"type": "search", "query": "q", "sources": [{"url": "u"}]}},
            "web_search q",
            '[{"url": "u"}]',
        ),
        (
            {"type": "code_interpreter_call", "code": "1", "outputs": [{"type": "image", "url": "u"}]},
            "code_interpreter 1",
            '[{"type": "image", "url": "u"}]',
        ),
    ],
)
def test_a_tool_of_the_server_pairs_with_what_its_item_holds(item: dict[str, Any], action: str, observation: str):
    found = read(lines(response({"id": "i"} | item)))
    assert found.pairs == [(action, "structural", observation)]
    assert observation not in found.pairs[0][0]  # rule 10: no query holds its observation
    (made,) = [e for e in events(found) if e.kind == "call"]
    assert observation not in open_span(found.data, made.span)


@pytest.mark.parametrize("absent", [{"outputs": None}, {}, {"results": None}])
def test_a_tool_of_the_server_without_an_output_is_unanswered(absent: dict[str, Any]):
    found = read(lines(response({"id": "i", "type": "code_interpreter_call", "code": "1"} | absent)))
    assert found.outcomes == ["unanswered_call"]


def test_what_is_said_behind_a_tool_of_the_server_is_answered_by_the_user():
    search = {"id": "ws", "type": "web_search_call", "action": {"type": "open_page", "url": "u"}}
    found = read(lines(asks("go"), answers("I look."), search, answers("Found it."), asks("Thanks.")))
    assert found.pairs == [("Found it.", "user_reply", "Thanks.")]
    assert [row.outcome for row in found.ledgers[0].rows] == ["unanswered_call", "user_reply"]


def test_a_patch_that_failed_is_an_error_and_an_exit_code_alone_is_none():
    rows = [call("a"), {"type": "apply_patch_call_output", "call_id": "a", "output": "", "status": "failed"}]
    shell = [{"stdout": "", "stderr": "no", "outcome": {"type": "exit", "exit_code": 1}}]
    rows += [call("b"), {"type": "shell_call_output", "call_id": "b", "output": shell}]
    found = read(lines(*rows))
    assert [(each.is_error, each.observation_kind) for each in found.transitions] == [
        (True, "tool_error"),
        (None, "tool_result"),
    ]


def test_an_empty_output_is_an_observation():
    assert [each[2] for each in read(lines(call("a"), gives("a", ""), call("b"), gives("b", []))).pairs] == ["", "[]"]
    assert read(lines(call("a"), {"type": "function_call_output", "call_id": "a"})).pairs == [
        ("f {}", "explicit_id", "")
    ]


def test_a_call_without_arguments_or_name_stays_a_call():
    found = read(lines(call("a", arguments=""), gives("a", "x"), call("b", name=None), gives("b", "y")))
    assert found.pairs == [("f {}", "explicit_id", "x")]
    assert found.outcomes == ["explicit_id", "call_without_name"]


def test_a_refused_approval_is_a_rejection_and_an_approved_one_is_a_view_of_its_call():
    asked = {"id": "ap", "type": "mcp_approval_request", "name": "pour", "arguments": "{}", "server_label": "s"}
    refused = {"type": "mcp_approval_response", "approval_request_id": "ap", "approve": False, "reason": "no"}
    found = read(lines(asked, refused))
    assert [(each.observation_kind, each.observation) for each in found.transitions] == [("user_rejection", "no")]
    made = {
        "id": "m",
        "type": "mcp_call",
        "name": "pour",
        "arguments": "{}",
        "output": "ok",
        "approval_request_id": "ap",
    }
    found = read(lines(asked, refused | {"approve": True}, made))
    assert (found.pairs, found.aside) == ([("pour {}", "structural", "ok")], {"duplicate_view": 1, "harness_text": 1})


def test_unknown_items_and_references_are_set_aside_and_a_compaction_ends_the_wait():
    rows = [
        call("a"),
        {"type": "item_reference", "id": "x"},
        {"type": "program", "id": "p"},
        {"type": "compaction", "encrypted_content": "e"},
    ]
    found = read(lines(*rows, gives("a", "late")))
    assert (found.outcomes, found.aside) == (
        ["unanswered_call"],
        {"duplicate_view": 1, "unknown_role": 1, "id_mismatch": 1},
    )


def test_texts_refusals_and_blocks_are_quoted_as_they_stand():
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    two = answers("a") | {"content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}]}
    image = asks([{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "u"}])
    found = read(lines(image, refusal, two))
    assert [e.text for e in events(found)] == [json.dumps(image["content"]), "I cannot.", "a\nb"]


def test_system_texts_are_context_before_the_first_action_and_the_harness_behind_it():
    found = read(
        lines(asks("rules", "developer"), asks("go"), answers("ok"), asks("more rules", "system"), asks("why?"))
    )
    assert [(e.kind, e.aside) for e in events(found)] == [
        ("context", None),
        ("task", None),
        ("text", None),
        ("control", "harness_text"),
        ("user", None),
    ]


# Conversations


def test_records_out_of_order_are_linked_by_previous_response_id():
    first = pair(request(asks("go")), response(call("c"), response_id="r1"))
    second = pair(request(gives("c", "x")), response(answers("done"), response_id="r2", previous_response_id="r1"))
    found = read(lines(second, first))
    assert found.pairs == [("f {}", "explicit_id", "x")]
    assert len(found.imported.traces) == 1
    assert read(lines(first, second)).imported.traces[0].trace_id == found.imported.traces[0].trace_id


def test_an_absent_response_is_a_parent():
    (trace,) = read(lines(response(answers("a"), previous_response_id="gone"))).imported.traces
    assert trace.keys == ("parent:gone", "session:resp")


def test_responses_that_name_each_other_do_not_hang():
    one = response(answers("a"), response_id="r1", previous_response_id="r2")
    other = response(answers("b"), response_id="r2", previous_response_id="r1")
    own = response(answers("c"), response_id="r3", previous_response_id="r3")
    assert sum(len(trace.events) for trace in read(lines(one, other, own)).imported.traces) == 3


@pytest.mark.parametrize("named", ["conv", {"id": "conv"}])
def test_a_conversation_links_its_responses_in_the_order_of_their_times(named: object):
    later = pair(
        request(gives("c", "x")), response(answers("b"), response_id="r2", conversation=named, created_at=1_775_116_801)
    )
    early = pair(
        request(asks("go")), response(call("c"), response_id="r1", conversation=named, created_at=1_775_116_800)
    )
    found = read(lines(later, early))
    assert found.pairs == [("f {}", "explicit_id", "x")]
    assert found.imported.traces[0].keys == ("session:conv", "session:r1", "session:r2")


def test_requests_and_responses_on_lines_of_their_own_follow_each_other():
    rows = [response(call("c"), response_id="r1"), request(gives("c", "x"), previous_response_id="r1")]
    found = read(lines(*rows, response(answers("done"), response_id="r2", previous_response_id="r1")))
    assert {e.branch for e in events(found)} == {""}
    assert found.outcomes == ["explicit_id", "terminal_no_observation"]


def test_requests_and_responses_that_take_turns_are_pairs_also_where_nothing_names_them():
    first, second, third = (
        response(call("c"), response_id="r1"),
        response(answers("ok?"), response_id="r2"),
        [asks("go")],
    )
    inputs = [
        third,
        [*third, call("c"), gives("c", "x")],
        [*third, call("c"), gives("c", "x"), answers("ok?"), asks("y")],
    ]
    turns = [request(*inputs[0]), first, request(*inputs[1]), second, request(*inputs[2])]
    found = read(lines(*turns))
    assert found.pairs == [("f {}", "explicit_id", "x"), ("ok?", "user_reply", "y")]
    (trace,) = found.imported.traces
    assert (trace.task, trace.usage) == ("go", (("input_tokens", 6), ("output_tokens", 4)))
    linked = [request(asks("go")), first, request(gives("c", "x"), previous_response_id="r1")]
    again = read(lines(*linked, second | {"previous_response_id": "r1"}, request(asks("y"), previous_response_id="r2")))
    assert (again.pairs, again.imported.traces[0].task) == (found.pairs, "go")


def test_requests_that_send_their_history_again_are_one_conversation_and_two_runs_stay_two():
    whole = [asks("go"), call("c"), gives("c", "x"), answers("ok?"), asks("y")]
    found = read(lines(request(*whole[:3]), request(*whole)))
    assert found.pairs == [("f {}", "explicit_id", "x"), ("ok?", "user_reply", "y")]
    assert found.aside == {"replayed_history": 3}
    runs = read(lines(request(*whole), request(*whole[:-1], asks("n")), request(*whole, model="other")))
    assert len(runs.imported.traces) == 3


def test_what_an_earlier_response_said_is_no_answer_when_it_is_sent_again():
    # Only the response of the first call was kept; the second sends its request again, so `go` came before `which?`.
    kept = response(answers("which?", "m1"), response_id="r1")
    again = request(asks("go"), answers("which?", "m1"), asks("both"))
    found = read(lines(kept, pair(again, response(answers("done"), response_id="r2", previous_response_id="r1"))))
    assert found.pairs == [("which?", "user_reply", "both")]
    assert found.aside == {"replayed_history": 2}


def test_a_call_that_is_sent_again_beside_its_output_counts_once():
    kept = response(call("c"), response_id="r1")
    more = pair(
        request(call("c"), gives("c", "x"), previous_response_id="r1"), response(answers("ok"), response_id="r2")
    )
    found = read(lines(kept, more))
    assert (found.outcomes, found.aside) == (["explicit_id", "terminal_no_observation"], {"replayed_history": 1})


def test_two_conversations_that_begin_alike_are_two():
    rows = [pair(request(asks("go")), response(answers(said), response_id=said)) for said in ("a", "b")]
    assert len(read(lines(*rows)).imported.traces) == 2


def test_two_records_of_one_response_are_one():
    begun = response(response_id="r", status="in_progress") | {"usage": None}
    found = read(lines(begun, response(call("c"), response_id="r")))
    assert (found.outcomes, found.aside) == (["unanswered_call"], {"duplicate_view": 1})
    assert found.imported.traces[0].usage == (("input_tokens", 3), ("output_tokens", 2))


def test_a_cut_stream_and_the_whole_response_are_one():
    cut = [
        event("created", response={"id": "resp"}),
        event("output_text.delta", output_index=0, item_id="m", delta="Half"),
    ]
    for rows in ([*cut, response(answers("Half and whole.", "m"))], [response(answers("Half and whole.", "m")), *cut]):
        assert shown(read(lines(*rows))) == [("text", None, None, "Half and whole.")]


def test_a_response_that_said_nothing_is_continued_by_none():
    silent = pair(request(asks("go")), response({"id": "rs", "type": "reasoning", "summary": []}, response_id="r1"))
    other = pair(request(asks("go")), response(answers("a"), response_id="r2"))
    third = pair(request(asks("other")), response(answers("b"), response_id="r3"))
    alone = response({"id": "rs", "type": "reasoning", "summary": []}, response_id="r4")
    assert len(read(lines(silent, other, third, alone)).imported.traces) == 4


def test_an_id_that_a_server_gives_again_is_another_response():
    found = read(lines(response(answers("a")), response(answers("b"))))
    assert len({trace.trace_id for trace in found.imported.traces}) == 2


def test_usage_is_unknown_as_soon_as_one_response_states_none():
    rows = [
        response(answers("a"), response_id="r1"),
        response(response_id="r2", previous_response_id="r1") | {"usage": None},
    ]
    assert read(lines(*rows)).imported.traces[0].usage is None


def test_a_failed_response_is_no_evidence():
    found = read(lines(response(status="failed", error={"code": "server_error", "message": "no"})))
    assert (found.outcomes, found.aside) == ([], {"synthetic_assistant": 1})
    assert read(lines(response())).aside == {"empty_message": 1}


def test_batch_lines_and_lists_in_lines_are_read_and_other_records_rejected():
    batch = {"id": "b", "custom_id": "1", "response": {"status_code": 200, "body": response(call("c"))}, "error": None}
    found = read(lines(batch, [asks("go"), call("d"), gives("d", "x")], {"id": 1}, [1], 7))
    assert found.pairs == [("f {}", "explicit_id", "x")]
    assert found.rejected == [(3, "unknown_shape"), (4, "unknown_shape"), (5, "not_object")]


def test_equal_items_of_one_list_are_two_and_equal_records_of_responses_one():
    assert len(events(read(lines(answers("a"), asks("yes"), answers("b"), asks("yes"))))) == 4
    assert read(lines(response(answers("a")), response(answers("a")))).rejected == [(2, "duplicate_record")]


def test_messages_of_a_chat_are_no_items():
    assert not any(
        map(FORMAT.sniff, [says("x"), [says("x")], {"messages": [answers("x")]}, {"model": "m", "input": "x"}])
    )


# Streams


def test_streams_are_sorted_by_their_sequence_numbers():
    rows = (DATA / "openai_responses_stream.jsonl").read_bytes().splitlines(keepends=True)[:14]
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        assert shown(read(b"".join(rows))) == shown(fixture("openai_responses_stream.jsonl"))[:2]


def test_pieces_are_quoted_from_the_first_record_in_the_file():
    rows = (DATA / "openai_responses_stream.jsonl").read_bytes().splitlines(keepends=True)[14:]
    found = read(b"".join(reversed(rows)))
    assert [text for _, _, _, text in shown(found)] == ["look up", "haha", '{"tree": "el']
    joined = [e.span for e in events(found) if e.span.located == "joined"]
    assert len(joined) == 2
    assert not any(pointer.startswith("-") for span in joined for pointer in span.pointers)


def test_streams_that_take_turns_are_told_apart_by_their_items():
    rows = []
    for name in ("a", "b"):
        rows.append(event("created", response={"id": name}))
        rows.append(
            event("output_item.added", output_index=0, item={"id": f"m{name}", "type": "message", "role": "assistant"})
        )
    for said in ("1", "2"):
        rows += [
            event("output_text.delta", output_index=0, item_id=f"m{name}", delta=f"{name}{said}") for name in ("a", "b")
        ]
    assert [text for _, _, _, text in shown(read(lines(*rows)))] == ["a1a2", "b1b2"]


def test_equal_deltas_are_equal_pieces():
    assert shown(read(lines(*[event("output_text.delta", output_index=0, delta="ha")] * 2))) == [
        ("text", None, None, "haha")
    ]


def test_a_stream_that_begins_in_the_middle_is_read_as_far_as_it_says_something():
    rows = [
        event("function_call_arguments.delta", output_index=1, delta="{"),
        event("mcp_call.in_progress", output_index=2),
    ]
    found = read(lines(*rows))
    assert (found.outcomes, found.aside) == (["call_without_name"], {"harness_text": 1})


def test_items_that_the_last_record_leaves_out_are_kept():
    done = event("output_item.done", output_index=0, item=call("c"))
    end = event("completed", response=response(answers("a")))
    assert shown(read(lines(done, end))) == [("call", "f", "c", "{}"), ("text", None, None, "a")]
    assert shown(read(lines(done, event("completed", response=response())))) == [("call", "f", "c", "{}")]


def test_two_items_under_one_number_are_two():
    rows = [
        event("output_item.added", output_index=0, item=call(name, arguments="", item_id=name)) for name in ("a", "b")
    ]
    rows += [event("function_call_arguments.delta", output_index=0, item_id=name, delta=name) for name in ("a", "b")]
    assert [(call_id, text) for _, _, call_id, text in shown(read(lines(*rows)))] == [("a", "a"), ("b", "b")]


def test_an_error_belongs_to_the_stream_that_it_ends():
    error = {"type": "error", "code": "x", "message": "no"}
    assert read(lines(event("created", response={"id": "r"}), error)).aside == {"harness_text": 2}
    assert read(lines(error, response(call("c")))).rejected == [(1, "unknown_shape")]


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
    "x",
    "resp_h1",
    [{"type": "text"}],
    {"role": "user"},
]
KEYS = ("type", "id", "call_id", "output", "input", "item", "delta", "response", "previous_response_id", "conversation")


@pytest.mark.parametrize("name", ["openai_responses.jsonl", "openai_responses_stream.jsonl"])
def test_law_5_whatever_happens_to_a_file_every_record_is_accounted_for(name: str):
    rng, count = random.Random(name), 0
    whole = [json.loads(row) for row in (DATA / name).read_bytes().splitlines()]
    for _ in range(400):
        rows = [row for row in whole if rng.random() < 0.9]
        for _ in range(rng.randrange(1, 8)):
            at = rng.randrange(len(rows))
            for _ in range(rng.randrange(1, 4)):
                rows[at] = mutated(rng, rows[at], ODD)
            rows.insert(rng.randrange(len(rows)), rng.choice(rows))
            if rng.random() < 0.3:
                rng.shuffle(rows)
        made = lines(*rows)
        try:
            read(made[: rng.randrange(1, len(made))] if rng.random() < 0.2 else made)
        except LabError:
            continue
        count += 1
    assert count > 300
