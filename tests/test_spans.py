"""Spans: a text of a record has one place, and opening that place gives the same text or an IntegrityError."""

import gzip
import json
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest
from evidence_cases import FIXTURES, asks, call, chat, check_spans, gives, lines, read, says
from hypothesis import given

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.spans import Place, open_span, source_text, unpacked
from experiential_lab.records import IntegrityError, Span, TraceFormatError, digest_of

keys = st.sampled_from(["a", "b/c", "d~e", "~1", "", "0", "é😀", 'q"\\'])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)


def place(value: object, **how: object) -> Place:
    return Place("sha256:" + "0" * 64, 0, json.dumps(value, **how).encode())  # type: ignore[arg-type]


def pointers(value: object, so_far: str = "") -> dict[str, object]:
    """Every value inside a value, by its pointer, root included."""
    found = {so_far: value}
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        found |= pointers(member, f"{so_far}/{str(key).replace('~', '~0').replace('/', '~1')}")
    return found


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_every_pointer_gives_the_exact_source_text_of_its_value(value: object, escaped: bool, indent: int | None):
    text = json.dumps({"r": value}, ensure_ascii=escaped, indent=indent)
    for pointer, expected in pointers(value, "/r").items():
        found = source_text(text.encode(), pointer)
        assert found in text
        assert repr(json.loads(found)) == repr(expected)  # repr: NaN is not equal to itself


@given(values)
def test_a_value_opens_to_its_own_text_again(value: object):
    record = place({"r": value}, ensure_ascii=False)
    for pointer, each in pointers(value, "/r").items():
        at = record.value(each, pointer)
        span = record.span(at)
        assert open_span(record.raw, span) == at.text
        assert (span.end, span.quote) == (len(at.text), digest_of(at.text.encode()))


def test_a_string_is_quoted_as_it_reads_and_any_other_value_as_it_stands():
    record = place({"s": "a\n\u2028é", "o": {"b": 1.50, "a": [True]}})
    assert record.value("a\n\u2028é", "/s").text == "a\n\u2028é"
    assert record.value({"b": 1.5, "a": [True]}, "/o").text == '{"b": 1.5, "a": [true]}'
    assert Place("", 0, b'{"n":1.50e1}').value(15.0, "/n").text == "1.50e1"


def test_text_blocks_are_joined_by_newlines_and_one_alone_is_exact():
    blocks = [{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}]
    record = place({"two": blocks, "one": blocks[:1], "mixed": [*blocks, {"type": "image"}]})
    two, one = record.value(blocks, "/two"), record.value(blocks[:1], "/one")
    assert (two.text, two.located) == ("a\nb", "normalised")
    assert (one.text, one.pointer, one.located) == ("a", "/one/0/text", "exact")
    assert record.value([*blocks, {"type": "image"}], "/mixed").text.startswith('[{"type": "text"')
    assert [open_span(record.raw, record.span(at)) for at in (two, one)] == ["a\nb", "a"]


def test_a_record_with_nan_still_quotes_its_values_exactly():
    raw = b'{ "x":NaN, "args" : {"b": 1.50, "a":"\\u00e9", "b":2e400} , "x":[ -Infinity ,{"y":"z"}]}'
    assert source_text(raw, "/args") == '{"b": 1.50, "a":"\\u00e9", "b":2e400}'
    assert source_text(raw, "/args/b") == "2e400"  # of equal keys the last
    assert source_text(raw, "/x") == '[ -Infinity ,{"y":"z"}]'
    assert source_text(raw, "/x/1/y") == '"z"'
    with pytest.raises(LookupError):
        source_text(raw, "/x/2")


def test_a_record_with_nan_and_a_long_number_quotes_both():
    raw = b'{"n":' + b"9" * 5_000 + b',"x":[NaN]}'
    assert source_text(raw, "/n") == "9" * 5_000
    assert source_text(raw, "/x") == "[NaN]"


def test_numbers_longer_than_python_converts_and_deep_arguments_open_again():
    deep = "[" * 300 + "1" * 5_000 + "]" * 300
    for spelling in (deep, json.dumps(deep)):
        data = lines(chat(asks("q"), says(None, call("k", "f", "?")), gives("k", "r"))).replace(
            b'"?"', spelling.encode()
        )
        found = read(data)
        assert [each.action.arguments for each in found.transitions] == [deep]
        assert check_spans(found) == 3


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_every_span_of_every_event_opens_to_the_events_text(path: Path):
    assert check_spans(read(path.read_bytes())) > 0
    assert check_spans(read(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))) > 0


@pytest.mark.parametrize("folder", ["openai-chat", "claude-code", "tau-bench"])
def test_every_span_of_every_real_file_opens_to_the_events_text(shared: Path, folder: str):
    counts = []
    for path in sorted((shared / "samples" / folder).iterdir()):
        try:
            counts.append(check_spans(read(path.read_bytes())))
        except TraceFormatError:
            assert path.name == "sample_session.json"  # a list of log lines under another key
    assert sum(counts) == {"openai-chat": 73, "claude-code": 100, "tau-bench": 5398}[folder]


def test_one_flipped_byte_of_a_quoted_text_is_an_integrity_error():
    data = lines(chat(asks("Where is it?"), says("On the shelf.", call("k", "f", {"at": "shelf"}))))
    for trace in read(data).imported.traces:
        for event in trace.events:
            at = data.index(event.text.encode()) + 1
            damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            with pytest.raises(IntegrityError, match=r"sha256|no value"):
                open_span(damaged, event.span)


@given(st.data())
def test_one_flipped_bit_anywhere_gives_the_same_text_or_an_integrity_error(data: st.DataObject):
    path = data.draw(st.sampled_from(FIXTURES))
    found = read(path.read_bytes())
    events = [event for trace in found.imported.traces for event in trace.events]
    event = data.draw(st.sampled_from(events))
    at = data.draw(st.integers(event.span.offset, event.span.offset + event.span.size - 1))
    flipped = bytes([found.data[at] ^ 1 << data.draw(st.integers(0, 7))])
    expected = open_span(found.data, event.span)
    with suppress(IntegrityError):
        assert open_span(found.data[:at] + flipped + found.data[at + 1 :], event.span) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 1},
        {"size": 3},
        {"offset": 10**9},
        {"pointers": ("/z",)},
        {"pointers": ("/a/0",)},
        {"pointers": ("", "/a")},
        {"pointers": ()},
        {"start": 1},
        {"end": 1},
        {"quote": "sha256:" + "0" * 64},
        {"located": "normalised"},
    ],
    ids=str,
)
def test_a_span_that_says_anything_else_does_not_open(change: dict[str, object]):
    record = place({"a": "text"})
    span: Span = msgspec.structs.replace(record.span(record.value("text", "/a")), **change)
    with pytest.raises(IntegrityError):
        open_span(record.raw, span)


def test_a_packed_file_is_read_as_what_it_holds_and_a_damaged_one_is_refused():
    data = FIXTURES[0].read_bytes()
    packed = gzip.compress(data, mtime=0)
    assert unpacked(packed) == unpacked(data) == data
    for damaged in (packed[:-1], packed[:20], packed[:60] + b"\0\1\2" + packed[63:], packed + b"tail"):
        with pytest.raises(TraceFormatError, match="gzip"):
            unpacked(damaged)


def test_the_offsets_of_a_list_count_bytes_of_the_file():
    data = '[ {"a": "é"},\n\t{"a": "ü"} ]'.encode()
    for record in frame(data).records:
        here = Place(digest_of(data), record.offset, record.raw)
        assert open_span(data, here.span(here.value(record.value["a"], "/a"))) == record.value["a"]


def test_a_span_goes_down_one_pointer_a_decoding_layer_and_opens_again():
    inner = json.dumps({"messages": [{"content": "caf\u00e9 \u2028"}]})
    raw = json.dumps({"input": inner}).encode()
    place = Place("sha256:s", 0, raw).into(inner, "/input")
    span = place.span(place.value("caf\u00e9 \u2028", "/messages/0/content"))
    assert span.pointers == ("/input", "/messages/0/content")
    assert (span.offset, span.size) == (0, len(raw))
    assert open_span(raw, span) == "caf\u00e9 \u2028"
