"""OpenAI stream chunks and response objects: one message a response, put together from its pieces."""

import io
import json
import random
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, call, check_spans, check_sums, lines, mutated

from experiential_lab.evidence import importers, spans
from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import chat_chunks
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.spans import unpacked
from experiential_lab.evidence.trace import Event
from experiential_lab.evidence.transitions import ledger_of
from experiential_lab.records import LabError, TraceFormatError, digest_of

CASE = "19-chat-stream-chunks"


def read(data: bytes) -> Read:
    frames = frame(data)
    format, _ = importers.choose(frames)
    imported = format.read(Source(digest_of(data), "it", frames))
    found = Read(unpacked(data), format.name, imported, [ledger_of(trace) for trace in imported.traces])
    if frames.layout != "zip":
        check_sums(found)
        check_spans(found)
    return found


# Chunks, made by hand


def chunk(response: object = "r", finish: object = None, choice: object = 0, **delta: object) -> dict[str, Any]:
    said = {"index": choice, "delta": delta, "finish_reason": finish}
    return {"id": response, "object": "chat.completion.chunk", "created": 1_775_116_800, "choices": [said]}


def calls(index: object, arguments: object = "", name: object = None, call_id: object = None) -> list[dict[str, Any]]:
    told = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    told["function"] = {key: value for key, value in told["function"].items() if value is not None}
    return [{key: value for key, value in told.items() if value is not None}]


def response(message: object, response_id: object = "r", **more: object) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": response_id, "object": "chat.completion", "created": 1_775_116_800, "choices": [choice], **more}


def parts(*values: object) -> list[tuple[str, str | None, str | None, str]]:
    """(kind, tool, id, text) of each part of every message."""
    found = [event for trace in read(lines(*values)).imported.traces for event in trace.events]
    return [_shown(event) for event in found if event.aside is None]


def _shown(event: Event) -> tuple[str, str | None, str | None, str]:
    return event.kind, event.tool, event.call_id, event.text


def texts(*values: object) -> list[str]:
    return [text for _, _, _, text in parts(*values)]


# The reported fault, and the fixtures


def test_case_19_ids_on_every_chunk_and_a_closing_summary_are_one_call(shared: Path):
    found = read((shared / "cases" / f"{CASE}.jsonl").read_bytes())
    right = json.loads((shared / "cases" / f"{CASE}.expected.json").read_text())
    (trace,) = found.imported.traces
    made = [event for event in trace.events if event.kind == "call"]
    assert (found.format, len(found.transitions)) == (right["format"], right["n_transitions"])
    assert len(made) == right["calls_expected"]
    assert json.loads(made[0].text) == right["args_expected"]
    assert (made[0].tool, made[0].call_id, len(made[0].span.pointers)) == ("search", "k1", 2)
    assert found.outcomes == [each["reason"] for each in right["rejects"]]


def test_two_streams_in_one_file_are_two_messages():
    # Counted by hand: 13 of the 17 chunks are of `bees`: 5 begin a text or the arguments of a call (c2 has none), 5 say more of
    # it, 3 say nothing (role, finish, usage). 4 are of `hive`: 1 begins, 1 says more, 2 say nothing.
    found = read((DATA / "chat_chunks.jsonl").read_bytes())
    bees, hive = found.imported.traces
    assert [_shown(event) for event in bees.events if event.aside is None] == [
        ("reasoning", None, None, "count twice"),
        ("text", None, None, "I count the bees."),
        ("call", "count", "c0", '{"hive": 1}'),
        ("call", "count", "c1", '{"hive": 2}'),
        ("call", "stop", "c2", ""),
    ]
    assert [_shown(event) for event in hive.events if event.aside is None] == [("text", None, None, "haha")]
    assert (found.imported.records, found.rejected) == (17, [])
    assert found.aside == {"harness_text": 5, "duplicate_view": 6}
    assert found.outcomes == ["unanswered_call"] * 3 + ["terminal_no_observation"]
    assert bees.usage == (("completion_tokens", 12), ("prompt_tokens", 31), ("total_tokens", 43))
    assert (hive.usage, bees.events[0].at, bees.keys) == (None, "2026-04-02T08:00:00Z", ("session:chatcmpl-bees",))


def test_a_response_object_is_one_message_a_choice():
    found = read((DATA / "chat_response.json").read_bytes())
    (trace,) = found.imported.traces
    assert [(event.branch, *_shown(event)) for event in trace.events] == [
        ("", "call", "smoke", "c0", '{"puffs": 3}'),
        ("", "call", "note", "c1", "calm\nbees"),
        ("choice1", "text", None, None, "Leave them be."),
    ]
    assert found.outcomes == ["unanswered_call", "unanswered_call", "terminal_no_observation"]
    assert (found.aside, dict(trace.usage or ())["total_tokens"]) == ({}, 14)


def test_the_rule_knows_no_file_of_another_format(shared: Path):
    paths = [*(shared / "samples").glob("*/*"), *(shared / "cases").glob("*.jsonl")]
    for path in paths:
        if CASE not in path.name and path.suffix != ".txt":
            values = [record.value for record in frame(path.read_bytes()).records[:1000] if not record.reason]
            assert not any(map(chat_chunks.FORMATS[0].sniff, values)), path


def test_a_record_of_messages_and_choices_is_none():
    with pytest.raises(TraceFormatError, match="no known format"):
        read(lines(response({"content": "a"}) | {"messages": []}))


# Pieces


def test_a_text_of_many_records_opens_to_its_pieces():
    data = lines(chunk(content='é"'), chunk("other", content="x"), chunk(content="\u2028\\"), chunk(content="end"))
    found = read(data)
    text = next(event for trace in found.imported.traces for event in trace.events if event.text.startswith("é"))
    assert (text.text, text.span.located) == ('é"\u2028\\end', "joined")
    assert spans.open_span(data, text.span) == text.text


def test_equal_chunks_are_equal_pieces():
    assert texts(chunk(content="ha"), chunk(content="ha"), chunk(finish="stop")) == ["haha"]


@pytest.mark.parametrize("absent", [None, ""])
def test_chunks_without_an_id_go_on_until_the_response_has_finished(absent: object):
    stream = [chunk(absent, content="a"), chunk(absent, content="b"), chunk(absent, finish="stop")]
    usage = {"id": absent, "object": "chat.completion.chunk", "choices": [], "usage": {"total_tokens": 3}}
    again = [chunk(absent, content="c"), chunk(absent, finish="stop")]
    found = read(lines(*stream, usage, *again))
    assert texts(*stream, usage, *again) == ["ab", "c"]
    assert [trace.usage for trace in found.imported.traces] == [(("total_tokens", 3),), None]
    assert len({trace.trace_id for trace in found.imported.traces}) == 2


def test_what_comes_before_the_first_id_belongs_to_the_first_response():
    early = {"id": "", "object": "chat.completion.chunk", "choices": [], "prompt_filter_results": []}
    found = read(lines(early, chunk(content="a")))
    assert [len(trace.events) for trace in found.imported.traces] == [2]
    assert read(lines(chunk(content="a"), early)).aside == {"harness_text": 1}
    alone = frame(lines(early))
    assert [each.reason for each in chat_chunks.FORMATS[0].read(Source("d", "it", alone)).rejected] == ["unknown_shape"]


def test_calls_belong_together_by_index_also_when_they_take_turns():
    stream = [
        chunk(tool_calls=calls(0, '{"a"', "f", "x")),
        chunk(tool_calls=[*calls(1, '{"b"', "g", "y"), *calls(0, ":1")]),
        chunk(tool_calls=[*calls(0, "}"), *calls(1, ":2}")]),
    ]
    assert parts(*stream) == [("call", "f", "x", '{"a":1}'), ("call", "g", "y", '{"b":2}')]


def test_two_calls_under_one_index_are_two():
    stream = [chunk(tool_calls=calls(0, "{}", "f", "x")), chunk(tool_calls=calls(0, "{}", "f", "y"))]
    assert parts(*stream) == [("call", "f", "x", "{}"), ("call", "f", "y", "{}")]


def test_a_new_id_on_every_chunk_is_no_new_call():
    stream = [chunk(tool_calls=calls(0, '{"a":', "f", "x1")), chunk(tool_calls=calls(0, "1}", None, "x2"))]
    assert parts(*stream) == [("call", "f", "x1", '{"a":1}')]


def test_calls_without_an_index_are_told_by_their_ids():
    stream = [chunk(tool_calls=calls(None, "{}", "f", each)) for each in ("x", "y")]
    more = [chunk(tool_calls=calls(None, '{"a":', "f", "z")), chunk(tool_calls=calls(None, "1}"))]
    assert parts(*stream, *more) == [
        ("call", "f", "x", "{}"),
        ("call", "f", "y", "{}"),
        ("call", "f", "z", '{"a":1}'),
    ]


def test_one_id_for_two_calls_of_a_response_stays_two_calls():
    found = read(lines(response({"tool_calls": [call("k", "f", "{}"), call("k", "f", "{}")]})))
    assert found.outcomes == ["unanswered_call", "unanswered_call"]
    assert [row.flags for row in found.ledgers[0].rows] == [("id_not_unique_in_turn",)] * 2


@pytest.mark.parametrize(
    ("names", "name"),
    [(["f"], "f"), (["f", "f", "f"], "f"), (["get_", "tide"], "get_tide"), (["get_", "tide", "get_tide"], "get_tide")],
)
def test_a_name_comes_once_on_every_chunk_or_in_pieces(names: list[str], name: str):
    assert parts(*[chunk(tool_calls=calls(0, "", each, "x")) for each in names]) == [("call", name, "x", "")]


def test_a_call_without_a_name_is_left_out():
    assert read(lines(chunk(tool_calls=calls(0, "{}")))).outcomes == ["call_without_name"]


def test_a_legacy_call_has_no_id_and_one_that_repeats_a_call_is_its_view():
    stream = [chunk(function_call={"name": "f", "arguments": '{"a"'}), chunk(function_call={"arguments": ":1}"})]
    assert parts(*stream) == [("call", "f", None, '{"a":1}')]
    other = chunk(tool_calls=calls(None, "{}", "g"))
    assert [tool for _, tool, _, _ in parts(*stream, other)] == ["f", "g"]
    both = {"tool_calls": [call("k", "f", "{}")], "function_call": {"name": "f", "arguments": "{}"}}
    found = read(lines(response(both)))
    assert (found.outcomes, found.aside) == (["unanswered_call"], {"duplicate_view": 1})


# What a server says once more


@pytest.mark.parametrize("again", ['{"q":"a"}', '{"q": "a"}', json.dumps('{"q":"a"}'), '{"q":"a"}{"q":"a"}'])
@pytest.mark.parametrize("pieces", [['{"q":', '"a"}'], ['{"q":"a"}']])
def test_arguments_and_a_repetition_of_them_are_the_arguments(pieces: list[str], again: str):
    stream = [chunk(tool_calls=calls(0, piece, "f", "k")) for piece in [*pieces, again]]
    assert texts(*stream) == ['{"q":"a"}']
    assert texts(chunk(tool_calls=calls(0, "".join(pieces) + again, "f", "k"))) == ['{"q":"a"}']


@pytest.mark.parametrize(
    "whole", ['{"q":1}{"q":2}', '{}{"q":1}', "ha ha", '"a""a"', '{"q":1} trailing', '{"q":', "[1][1]"]
)
def test_other_arguments_stay_as_they_stand(whole: str):
    assert texts(*[chunk(tool_calls=calls(0, piece, "f", "k")) for piece in whole]) == [whole]


def test_a_last_piece_that_repeats_the_whole_text_is_no_part_of_it():
    assert texts(*[chunk(content=each) for each in ("Hello ", "world", "Hello world")]) == ["Hello world"]


def test_what_comes_behind_the_finish_is_a_view():
    stream = [chunk(content="a"), chunk(finish="stop"), chunk(content="a"), response({"content": "a"})]
    found = read(lines(*stream))
    assert (texts(*stream), found.aside) == (["a"], {"harness_text": 1, "duplicate_view": 2})


def test_an_id_that_a_server_gives_again_is_another_response():
    later = [line | {"created": 1_775_116_900} for line in (chunk(role="assistant", content="b"), chunk(finish="stop"))]
    assert texts(chunk(role="assistant", content="a"), chunk(finish="stop"), *later) == ["a", "b"]
    assert texts(response({"content": "a"}), response({"content": "b"})) == ["a", "b"]


def test_the_same_response_twice_is_one():
    found = read(lines(response({"content": "a"}), response({"content": "a"})))
    assert (found.outcomes, found.rejected) == (["terminal_no_observation"], [(2, "duplicate_record")])


def test_one_id_in_two_files_of_a_zip_is_two_responses():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as pack:
        for name in ("a", "b"):
            pack.writestr(f"{name}.jsonl", lines(chunk(content=name), chunk(finish="stop")))
    traces = read(packed.getvalue()).imported.traces
    assert [event.text for trace in traces for event in trace.events if event.kind == "text"] == ["a", "b"]
    assert len({trace.trace_id for trace in traces}) == 2


# Messages


def test_choices_are_branches():
    stream = [chunk(content="a"), chunk(choice=1, content="b"), chunk(content="c"), chunk(choice=1, content="d")]
    (trace,) = read(lines(*stream)).imported.traces
    assert [(event.branch, event.text) for event in trace.events if event.aside is None] == [
        ("", "ac"),
        ("choice1", "bd"),
    ]


def test_a_refusal_is_a_text_and_a_message_that_says_nothing_is_set_aside():
    assert texts(chunk(refusal="I "), chunk(refusal="cannot")) == ["I cannot"]
    empty = response({"role": "assistant", "content": None})
    empty["choices"].append({"index": 1, "message": {"content": "b"}})
    found = read(lines(empty))
    assert (found.outcomes, found.aside) == (["terminal_no_observation"], {"empty_message": 1})


def test_text_blocks_and_objects_are_quoted_as_they_stand():
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert texts(response({"content": blocks})) == ["a\nb"]
    assert texts(chunk(content=blocks), chunk(content=[{"type": "image"}])) == ['ab{"type": "image"}']
    assert texts(response({"tool_calls": [call("k", "f", {"a": [1, 2.50]})]})) == ['{"a": [1, 2.5]}']


def test_usage_is_that_of_the_last_record_that_states_one():
    stream = [chunk(content="a") | {"usage": {"total_tokens": n, "details": {}, "free": True}} for n in (1, 2)]
    (trace,) = read(lines(*stream, chunk(finish="stop") | {"usage": None})).imported.traces
    assert trace.usage == (("total_tokens", 2),)


@pytest.mark.parametrize("created", [0, 2, None, True, "now", 2**70, -5.0, float("nan")])
def test_a_number_that_only_orders_is_no_time(created: object):
    (trace,) = read(lines(chunk(content="a") | {"created": created})).imported.traces
    assert trace.events[0].at is None


def test_records_without_choices_are_rejected():
    found = read(lines({"error": {"message": "no"}}, chunk(content="a"), {"choices": "x"}, [1]))
    assert found.rejected == [(1, "unknown_shape"), (3, "unknown_shape"), (4, "unknown_shape")]


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
    [{"type": "text", "text": "t"}],
    {"role": "user"},
]


@pytest.mark.parametrize("name", ["chat_chunks.jsonl", "chat_response.json"])
def test_law_5_whatever_happens_to_a_file_every_record_is_accounted_for(name: str):
    rng, data, count = random.Random(name), (DATA / name).read_bytes(), 0
    whole = [json.loads(data)] if name.endswith(".json") else [json.loads(row) for row in data.splitlines()]
    for _ in range(300):
        rows = list(whole)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(rows))
            rows[at] = mutated(rng, rows[at], ODD)
            rows.insert(rng.randrange(len(rows)), rng.choice(rows))
            if rng.random() < 0.3:
                rng.shuffle(rows)
        made = lines(*rows)
        with_cut = made[: rng.randrange(1, len(made))] if rng.random() < 0.2 else made
        try:
            found = read(with_cut)
        except LabError:
            continue
        assert Counter(found.outcomes).keys() <= {"unanswered_call", "call_without_name", "terminal_no_observation"}
        count += 1
    assert count > 150
