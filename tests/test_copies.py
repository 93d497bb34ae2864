"""Copies: which of two traces counts does not depend on order, and arguments are equal as values."""

from itertools import permutations

import msgspec
import pytest

from experiential_lab.evidence.copies import Outline, outline_of, settled, verdicts_of
from experiential_lab.evidence.trace import Event, Trace
from experiential_lab.records import Span

SPAN = Span(source="s", offset=0, size=1, end=0, quote="")


def event(kind: str, text: str, at: str | None = None) -> Event:
    return msgspec.convert({"kind": kind, "turn": "0", "text": text, "at": at, "span": SPAN}, Event)


def trace(source: str, *events: Event, keys: tuple[str, ...] = (), name: str = "t") -> Trace:
    return Trace(trace_id=name, source=source, format="f", keys=keys, task=None, usage=(("x", 1),), events=events)


LONG = trace("b", event("task", "go"), event("call", '{"a": 1, "b": 2.0}'), event("result", "ok"))
SHORT = trace("a", event("task", "go"), event("call", '{"b":2,"a":1}'))


@pytest.mark.parametrize("order", list(permutations([LONG, SHORT, trace("c", event("task", "stop"))])))
def test_the_longer_copy_counts_in_any_order_and_its_arguments_are_equal_as_values(order: tuple[Trace, ...]):
    verdicts = verdicts_of([outline_of(each) for each in order], {"a", "b", "c"})
    found = {each.source: settled(each, verdict) for each, verdict in zip(order, verdicts, strict=True)}
    assert found["b"].trace_id == "t"
    assert [each.aside for each in found["a"].events] == ["replayed_history"] * 2
    assert (found["a"].usage, found["c"].usage) == ((), (("x", 1),))
    assert found["c"].events[0].aside is None
    assert len({each.trace_id for each in found.values()}) == 3


@pytest.mark.parametrize("times", [("1", "2"), ("1", None), (None, None)])
def test_without_a_declared_parent_only_events_of_one_real_time_are_copies(times: tuple[str | None, ...]):
    events = [event("task", "go", times[0]), event("text", "done", times[1])]
    first = trace("a", *events, keys=("session:s",), name="1")
    second = trace("b", *events, event("user", "more", "9"), keys=("session:s",), name="2")
    verdicts = verdicts_of([outline_of(first), outline_of(second)], {"a", "b"})
    assert (verdicts[1] is not None) == (times == ("1", "2"))
    assert verdicts[0] is None


def test_an_outline_of_a_trace_without_an_event_is_compared_too():
    empty = [outline_of(trace(source)) for source in "ab"]
    assert [verdict.replayed for verdict in verdicts_of(empty, {"a", "b"}) if verdict] == [None, 0]
    assert isinstance(empty[0], Outline)


@pytest.mark.parametrize("tool", ["f", "g"])
def test_a_call_of_another_tool_whose_id_was_given_again_is_no_view(tool: str):
    def called(tool: str) -> Event:
        return msgspec.structs.replace(event("call", "{}"), tool=tool, call_id="call_0")

    start, end = event("task", "go"), event("result", "ok")
    longer = trace("a", start, event("reasoning", "hm"), called("f"), end, event("text", "x"))
    both = (longer, trace("b", start, called(tool), end))
    told = [outline_of(msgspec.structs.replace(each, format="otlp_genai")) for each in both]
    _, verdict = verdicts_of(told, {"a", "b"})
    assert verdict is not None
    assert verdict.replayed == (3 if tool == "f" else None)


def test_runs_of_other_formats_that_share_an_id_are_no_views_of_each_other():
    one = trace("a", event("task", "go"), event("call", '{"x":1}'), event("result", "ok"), event("text", "done"))
    other = trace("b", event("task", "go"), event("call", '{"x":2}'), event("result", "ok"))
    named = [msgspec.structs.replace(each, call_id="c") for each in other.events]
    verdicts = verdicts_of(
        [outline_of(one), outline_of(msgspec.structs.replace(other, events=tuple(named)))], {"a", "b"}
    )
    assert [verdict.replayed for verdict in verdicts if verdict] == [None, None]
