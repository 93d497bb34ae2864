"""Claude Code exports: the lines of a session inside one object or list are read as they are from a log."""

import json
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import Read, check_spans, check_sums, line, lines, read, result, spoken, text, typed, use
from scaffold_cases import Numbers, check_damage, numbers_of

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers.claude_code import FORMATS
from experiential_lab.records import LabError, TraceFormatError

# By hand: "sample_session.json" holds 33 lines. Of the 15 of the assistant 12 call one tool each, and three only say something:
# "There's a test failure" (21) is answered by a request, "Done!" (27) is cut off by a summary, "Added" (32) ends the file. Of
# the 18 user lines 12 hold one result each; the others are the task (0), two requests right after a result (11, 18), the
# answer (22), the summary (28), and a request after that (29).
SAMPLE = Numbers(
    1,
    1,
    {"explicit_id": 12, "user_reply": 1},
    {"terminal_no_observation": 2},
    {"observation_without_action": 3, "compaction_summary": 1},
    {},
)
BARE = ("uuid", "parentUuid", "sessionId", "isSidechain")


def session(prefix: str = "", **more: object) -> list[dict[str, Any]]:
    """A request, a call with its result, and a message that the user answers."""
    return [
        typed(f"{prefix}u", None, "Tie up the dinghy.", **more),
        spoken(f"{prefix}a", f"{prefix}u", "m1", text("I look."), use("k", "Look", {"at": "cleat"}), **more),
        typed(f"{prefix}v", f"{prefix}a", [result("k", "rope, 3 m")], **more),
        spoken(f"{prefix}b", f"{prefix}v", "m2", text("Bowline?"), **more),
        typed(f"{prefix}w", f"{prefix}b", "Yes.", **more),
    ]


PAIRS = [('Look {"at": "cleat"}', "explicit_id", "rope, 3 m"), ("Bowline?", "user_reply", "Yes.")]


def bare(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in BARE}


def of(value: object) -> Read:
    found = read(json.dumps(value).encode())
    check_sums(found)
    check_spans(found)
    return found


def test_the_real_export_has_its_numbers_and_every_span_opens(shared: Path):
    found = read((shared / "samples" / "claude-code" / "sample_session.json").read_bytes())
    check_sums(found)
    assert check_spans(found) == sum(len(trace.events) for trace in found.imported.traces)
    assert (found.format, numbers_of(found)) == ("claude_code", SAMPLE)


@pytest.mark.parametrize(
    "value",
    [
        session(),
        [session()],
        {"loglines": session()},
        {"title": "Boats", "entries": session()},
        {"loglines": [bare(each) for each in session()]},
        {"a/b~c": session()},
    ],
    ids=["list", "list of lists", "object", "other key", "without ids", "key that is escaped"],
)
def test_the_same_lines_give_the_same_transitions_however_they_are_wrapped(value: object):
    found = of(value)
    assert (found.format, found.pairs) == ("claude_code", PAIRS)
    assert found.transitions[0].action.text == "I look."
    assert found.transitions[0].task == "Tie up the dinghy."


def test_the_record_of_an_export_is_the_object_and_pointers_go_into_its_lines():
    found = of({"loglines": session()})
    (trace,) = found.imported.traces
    assert found.imported.records == 1
    assert {(event.span.offset, event.span.size) for event in trace.events} == {(0, len(found.data))}
    assert [event.span.pointers for event in trace.events] == [
        ("/loglines/0/message/content",),
        ("/loglines/1/message/content/0/text",),
        ("/loglines/1/message/content/1/input",),
        ("/loglines/2/message/content/0/content",),
        ("/loglines/3/message/content/0/text",),
        ("/loglines/4/message/content",),
    ]


def test_an_export_and_a_log_of_one_session_are_one_trace():
    log = read(lines(*session()))
    export = of({"loglines": session()})
    assert log.imported.traces[0].trace_id == export.imported.traces[0].trace_id
    assert log.imported.traces[0].keys == export.imported.traces[0].keys == ("session:s",)


def test_exports_that_name_no_session_are_sessions_of_their_own():
    two = [{"loglines": [bare(each) for each in session()]}, {"n": 2, "loglines": [bare(each) for each in session()]}]
    for data in (lines(*two), json.dumps(two).encode()):
        found = read(data)
        check_sums(found)
        assert found.pairs == PAIRS * 2
        assert len({trace.keys for trace in found.imported.traces}) == 2


def test_sessions_that_share_an_export_are_traces_of_their_own():
    found = of({"loglines": session("x", sessionId="one") + session("y", sessionId="two")})
    assert [trace.keys for trace in found.imported.traces] == [("session:one",), ("session:two",)]
    assert found.pairs == PAIRS * 2


def test_what_is_no_line_of_an_export_is_set_aside_in_its_place():
    odd: list[Any] = ["a text", 7, None, {}, {"type": "user"}, {"type": "user", "message": "x"}]
    found = of({"loglines": [*session()[:4], *odd, *session()[2:]]})
    assert found.pairs == PAIRS
    assert found.aside == {"unknown_role": 6, "duplicate_view": 2}
    assert found.rejected == []


def test_lines_of_metadata_in_an_export_are_harness_text():
    found = of({"loglines": [{"type": "queue-operation", "operation": "enqueue"}, *session()]})
    assert (found.pairs, found.aside) == (PAIRS, {"harness_text": 1})


def test_usage_of_lines_without_message_ids_counts_each_line():
    said = [spoken(f"a{at}", None, None, text(f"{at}")) for at in range(3)]
    for at, each in enumerate(said):
        each["message"] |= {"usage": {"output_tokens": 2 + at}}
    (trace,) = of({"loglines": [typed("u", None, "Go."), *said]}).imported.traces
    assert trace.usage == (("model_messages", 3), ("output_tokens", 2 + 3 + 4))


def test_a_summary_ends_the_wait_for_an_answer_where_no_line_says_so_before():
    summary = typed("s", "b", "They tie up a dinghy.", isCompactSummary=True)
    found = of({"loglines": [*session()[:4], summary, typed("w", "s", "And the oars?")]})
    assert found.pairs == PAIRS[:1]
    assert found.outcomes == ["explicit_id", "terminal_no_observation"]
    assert found.aside == {"compaction_summary": 1, "observation_without_action": 1}


@pytest.mark.parametrize(
    "value",
    [
        {"loglines": []},
        {"loglines": [{"type": "summary", "summary": "x"}]},
        {"loglines": "no list"},
        {"entries": [bare(each) for each in session()]},
        [[bare(each) for each in session()]],
        {"rows": [{"type": "user", "uuid": "u"}]},
    ],
)
def test_an_object_without_lines_is_no_export(value: object):
    with pytest.raises(TraceFormatError, match="no known format"):
        read(json.dumps(value).encode())


def test_a_log_keeps_a_line_that_only_looks_like_an_export():
    found = read(lines(*session(), {**line("z", "w", "user", {"content": "Thanks."}), "loglines": session("q")}))
    assert len(found.imported.traces[0].events) == 7


def test_damage_to_an_export_never_raises_and_the_sums_hold():
    odd = [{"type": "system", "subtype": "compact_boundary"}, typed("s", "w", "sum", isCompactSummary=True)]
    value = {"loglines": [*session(), *odd, *session("q", isSidechain=True)]}
    check_damage(json.dumps(value).encode(), "claude_code", count=300)


def test_no_other_real_file_is_taken_for_an_export(shared: Path):
    for path in sorted((shared / "samples").glob("*/*")):
        if path.parent.name == "claude-code":
            continue
        try:
            records = frame(path.read_bytes()).records
        except LabError:
            continue
        assert not any(FORMATS[0].sniff(record.value) for record in records), path
