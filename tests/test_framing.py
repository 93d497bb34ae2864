"""Framing: bytes become records with their places, one bad record costs itself alone, and nothing is left unframed."""

import json
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given

from experiential_lab.evidence import framing
from experiential_lab.evidence.framing import BOM, DEEPEST, Frames, frame
from experiential_lab.evidence.trace import RECORD_REASONS
from experiential_lab.records import TraceFormatError

GOOD = [b'{"a":1}', b'{"b":[2,{"c":"]},"}]}', b'{"d":"\\"["}']
BAD = {
    b"{broken}": "not_json",
    b'{"a" 1}': "not_json",
    b"12": "not_object",
    b'"[{"': "not_object",
    b"null": "not_object",
    b'{"a":"\xff"}': "not_utf8",
    b'{"a":"\\ud800"}': "not_utf8",
    b'{"\\udfff":1}': "not_utf8",
    b'{"a":"\0"}': "nul_bytes",
    b"[" * 3_000 + b"]" * 3_000: "too_deep",
    b'{"a":' * 3_000 + b"1" + b"}" * 3_000: "too_deep",
}
pieces = st.sampled_from(
    [*GOOD, *BAD, b"[", b"]", b"{", b"}", b",", b'"', b"\\", b"\n", b"\r\n", b" ", BOM, b"NaN", b"\0", b":"]
)


def seen(frames: Frames) -> list[tuple[int, str]]:
    return [(record.number, record.reason) for record in frames.records]


def check_places(data: bytes, frames: Frames) -> None:
    """Each record stands where it says; what stands between records is space, BOM, or the signs of a list."""
    at = 0
    for record in frames.records:
        assert data[record.offset : record.offset + len(record.raw)] == record.raw
        between = data[at : record.offset]
        assert record.offset >= at
        assert not between.removeprefix(BOM if at == 0 else b"").strip(b" \t\r\n,[]")
        at = record.offset + len(record.raw)
    assert not data[at:].removeprefix(BOM if at == 0 else b"").strip(b" \t\r\n,[]")


@given(st.lists(pieces, max_size=12).map(b"".join) | st.binary(max_size=60))
def test_every_byte_is_in_one_record_or_the_file_is_refused(data: bytes):
    try:
        frames = frame(data)
    except TraceFormatError:
        return
    check_places(data, frames)
    assert {record.reason for record in frames.records} <= {"", *RECORD_REASONS}
    for record in frames.records:
        assert (record.reason == "") == isinstance(record.value, dict | list)


def test_a_line_ends_at_byte_0a_only_and_a_blank_line_is_none():
    data = '{"a":"1\u2028\u0085\x7f"}\r\n\n \t\r\n{"b":2}\r\n'.encode()
    frames = frame(BOM + data)
    assert frames.layout == "lines"
    assert [(r.number, r.value) for r in frames.records] == [(1, {"a": "1\u2028\u0085\x7f"}), (4, {"b": 2})]
    assert [r.offset for r in frames.records] == [3, 3 + data.index(b'{"b')]
    check_places(BOM + data, frames)


@pytest.mark.parametrize("prefix", [b"", BOM])
def test_an_object_over_several_lines_is_one_record(prefix: bytes):
    data = prefix + json.dumps({"a": [1, {"b": "x"}]}, indent=2).encode() + b"\n"
    frames = frame(data)
    assert (frames.layout, len(frames.records)) == ("object", 1)
    assert frames.records[0].raw == data.removeprefix(prefix).strip()


@pytest.mark.parametrize(("bad", "reason"), BAD.items(), ids=lambda each: str(each)[:16])
def test_one_bad_line_costs_itself_alone(bad: bytes, reason: str):
    data = b"\n".join([GOOD[0], bad, GOOD[1], GOOD[2]])
    frames = frame(data)
    assert seen(frames) == [(1, ""), (2, reason), (3, ""), (4, "")]
    check_places(data, frames)


@pytest.mark.parametrize("space", [b"", b"\n", b"\r\n  "])
@pytest.mark.parametrize(("bad", "reason"), BAD.items(), ids=lambda each: str(each)[:16])
def test_one_bad_element_of_a_list_costs_itself_alone(bad: bytes, reason: str, space: bytes):
    data = b"[" + space + (space + b"," + space).join([GOOD[0], bad, GOOD[1], GOOD[2]]) + space + b"]\n"
    frames = frame(data)
    assert (frames.layout, seen(frames)) == ("list", [(1, ""), (2, reason), (3, ""), (4, "")])
    check_places(data, frames)


@pytest.mark.parametrize("space", [b"", b"\n "])
def test_a_list_that_is_cut_short_gives_its_complete_elements_and_the_rest_as_truncated(space: bytes):
    elements = [b'{"a":"]}"}', b'{"b":[1,{"c":2}]}', b'{"d":"\\"}"}']
    whole = b"[" + space + (b"," + space).join(elements) + space + b"]"
    for size in range(whole.index(elements[0]) + len(elements[0]), len(whole)):
        complete = [raw for raw in elements if raw in whole[:size]]
        frames = frame(whole[:size])
        assert [record.raw for record in frames.records[:-1]] == complete
        assert frames.records[-1].reason == "truncated"
        check_places(whole[:size], frames)


def test_a_list_that_is_cut_between_two_elements_says_so():
    assert seen(frame(b'[{"a":1}, {"b":2},')) == [(1, ""), (2, ""), (3, "truncated")]
    assert seen(frame(b'[{"a":1}, {"b":2}')) == [(1, ""), (2, ""), (3, "truncated")]


def test_what_stands_behind_the_end_of_a_list_is_no_part_of_it():
    frames = frame(b'[{"a":1},\n{"b":2}]\nsee also: notes\n')
    assert seen(frames) == [(1, ""), (2, ""), (3, "not_json")]
    assert frames.records[2].raw == b"see also: notes"


def test_a_last_line_without_its_end_is_truncated():
    assert seen(frame(b'{"a":1}\n{"b":2}\n{"c":')) == [(1, ""), (2, ""), (3, "truncated")]
    assert seen(frame(b'{"a":1}\n{"b":2}\n{"c":\n')) == [(1, ""), (2, ""), (3, "not_json")]
    assert seen(frame(b'{"a":1}\n{"b":2}')) == [(1, ""), (2, "")]


def test_scalars_among_the_elements_of_a_list_are_no_objects():
    frames = frame(b'[12 ,{"a":NaN},null,"x,]",true]')
    assert seen(frames) == [(1, "not_object"), (2, ""), (3, "not_object"), (4, "not_object"), (5, "not_object")]
    assert [record.raw for record in frames.records] == [b"12", b'{"a":NaN}', b"null", b'"x,]"', b"true"]


@pytest.mark.parametrize("data", [b'[{"a":NaN}]', b'[{"a":-Infinity},{"b":1}]', b'[\n{"a":NaN}\n]\n'])
def test_nan_in_a_list_leaves_it_a_list(data: bytes):
    frames = frame(data)
    assert frames.layout == "list"
    assert all(record.reason == "" for record in frames.records)
    assert frames.as_one().raw == data.strip()


def test_of_equal_keys_the_last_counts_and_long_numbers_are_read():
    (record,) = frame(b'{"a":1,"a":2,"n":' + b"9" * 400 + b',"m":' + b"9" * 5_000 + b',"f":1e999}').records
    assert record.value["a"] == 2
    assert record.value["n"] == 10**400 - 1
    assert record.value["m"] == record.value["f"] == float("inf")


def test_law_11_how_deep_is_too_deep_does_not_depend_on_the_stack_of_the_caller():
    fits, does_not = (b"[" * depth + b"]" * depth for depth in (DEEPEST, DEEPEST + 1))

    def below(levels: int) -> list[str]:
        return below(levels - 1) if levels else [frame(b"{}\n" + raw).records[1].reason for raw in (fits, does_not)]

    assert below(0) == below(sys.getrecursionlimit() // 3) == ["", "too_deep"]


def test_brackets_inside_strings_are_not_deep():
    assert frame(json.dumps({"a": "[{" * 5_000, "b": '\\"[' * 500}).encode()).records[0].reason == ""


@pytest.mark.parametrize("data", [b"", b" \n\t ", BOM, BOM + b"\r\n"])
def test_an_empty_file_is_refused(data: bytes):
    with pytest.raises(TraceFormatError, match="empty"):
        frame(data)


@pytest.mark.parametrize("data", [b"\0" * 9, b"\x89PNG\r\n\0", json.dumps({"a": 1}).encode("utf-16")])
def test_a_binary_file_is_refused(data: bytes):
    with pytest.raises(TraceFormatError, match="binary"):
        frame(data)


@pytest.mark.parametrize(
    "data", [b"hello\nworld\n", b"12", b'"text"', b"[1, 2", b"{", b'{"a":1}{"b":2}', b'{\n "a": 1,\n', b"[" * 3_000]
)
def test_a_file_without_a_record_says_what_is_wrong_and_where(data: bytes):
    with pytest.raises(TraceFormatError, match=r"neither JSON nor JSON lines: \w+ at byte \d+"):
        frame(data)


@given(
    st.lists(pieces, max_size=12).map(b"".join) | st.lists(st.sampled_from([*GOOD, *BAD]), max_size=9).map(b"\n".join)
)
def test_a_long_file_gives_the_records_that_a_short_one_gives(data: bytes):
    with pytest.MonkeyPatch.context() as patch:
        try:
            short = frame(data)
        except TraceFormatError:
            short = None
        patch.setattr(framing, "LONG", -1)
        if short is None:
            with pytest.raises(TraceFormatError):
                frame(data)
            return
        long = frame(data)
    assert (long.layout, list(long.records)) == (short.layout, list(short.records))
    assert [long.records[at] for at in range(len(long.records))] == list(short.records)
    for cut in (slice(0, 2), slice(1, None), slice(None)):
        assert list(long.records[cut]) == list(short.records[cut])


def test_a_stream_of_server_sent_events_gives_its_data_as_records():
    data = b': hello\n\nevent: x\nid: 7\ndata: {"a":1}\n\ndata:{"b":2}\r\n\ndata: {broken\n\ndata: [DONE]\n\n'
    frames = frame(data)
    assert [(r.raw, r.reason) for r in frames.records] == [(b'{"a":1}', ""), (b'{"b":2}', ""), (b"{broken", "not_json")]
    assert [data[r.offset : r.offset + len(r.raw)] for r in frames.records] == [r.raw for r in frames.records]
    assert frames.layout == "lines"


def test_a_line_of_json_lines_that_looks_like_an_event_stays_a_bad_line():
    assert seen(frame(b'{"a":1}\ndata: {"b":2}\n')) == [(1, ""), (2, "not_json")]


def test_a_stream_without_data_is_refused():
    with pytest.raises(TraceFormatError, match="no data"):
        frame(b": ping\n\nevent: x\n")
