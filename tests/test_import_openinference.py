"""OpenInference spans: flat, nested, as a data frame and as OTLP; and tools that do not say which call they carry out."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, asks, call, lines, read, says
from span_cases import checked, flat, kind, llm, otlp, span, survives

from experiential_lab.records import TraceFormatError

ASK = asks("Weather in Oslo and Lima?")
MADE = says("Let me see", call("k1", "weather", '{"city": "Oslo"}'), call("k2", "weather", '{"city": "Lima"}'))
GIVEN = [
    {"role": "tool", "tool_call_id": "k1", "content": "3C"},
    {"role": "tool", "tool_call_id": "k2", "content": "21C"},
]
ANSWER = says("3C and 21C")
PAIRED = [
    ('weather {"city": "Oslo"}', "explicit_id", "3C"),
    ('weather {"city": "Lima"}', "explicit_id", "21C"),
]
SPANS = [llm(1, [ASK], [MADE]), llm(5, [ASK, MADE, *GIVEN], [ANSWER])]


def run(number: int, name: str, result: str, arguments: str | None = None, **more: Any) -> dict[str, Any]:
    given = {"tool.name": name, "output.value": result} | ({} if arguments is None else {"input.value": arguments})
    return kind(number, "TOOL", given, **more)


def test_case_08_decodes_both_spellings_of_one_call(shared: Path):
    found = checked((shared / "cases" / "08-openinference-double-encoded-args.jsonl").read_bytes())
    right = json.loads((shared / "cases" / "08-openinference-double-encoded-args.expected.json").read_text())
    assert (found.format, len(found.transitions)) == (right["format"], right["n_transitions"])
    (each,) = found.transitions
    (expected,) = right["transitions"]
    assert found.pairs == [(expected["action"], expected["pairing"], expected["observation"])]
    assert json.loads(each.action.arguments or "") == right["args_expected"]
    left_out = [row.outcome for row in found.ledgers[0].rows if row.transition_id is None]
    assert left_out == [reject["reason"] for reject in right["rejects"]]
    calls = [event for event in found.imported.traces[0].events if event.kind == "call"]
    depths = {event.span.offset: len(event.span.pointers) for event in calls}
    assert [depths[at] for at in sorted(depths)] == right[
        "decode_depth"
    ]  # one pointer a layer: raw text and depth stay


def test_the_projects_own_file_has_these_numbers():
    # Made by hand. Lines 1 to 6 are one session of two traces. Line 1: an agent around lines 2 to 4. Line 2: a question and
    # two calls. Line 3: the tool span of the first call, which does not name it. Line 4: the question and the calls again,
    # two results, an answer. Line 5, nested and in the second trace: four of these messages again, then the answer again and
    # a user's reply, and a call. Line 6: its tool span, with the id of the call. Line 7, as a data frame and in a third trace:
    # a question and an answer. Line 8: the span of line 3 once more.
    found = checked((DATA / "openinference.jsonl").read_bytes())
    assert (found.format, found.imported.records, found.rejected) == ("openinference", 8, [(8, "duplicate_span")])
    assert found.pairs == [
        ('find {"shelf": 1}', "explicit_id", "a cup"),
        ('find {"shelf": 2}', "explicit_id", ""),
        ("A cup and nothing.", "user_reply", "Bring the cup."),
        ('bring {"what": "cup"}', "explicit_id", "cup is stuck"),
    ]
    assert [each.observation_kind for each in found.transitions] == ["tool_result"] * 2 + ["user_reply", "tool_error"]
    assert Counter(found.outcomes) == {"explicit_id": 3, "user_reply": 1, "terminal_no_observation": 1}
    # again: line 4 has a question and two calls, line 5 a question, two calls, two results and an answer; copies: an agent's
    # input and output, arguments and result of line 3, arguments of line 6
    assert found.aside == {"replayed_history": 3 + 6, "duplicate_view": 2 + 2 + 1}
    first, second = found.imported.traces
    assert (first.usage, first.cost_nusd) == (
        (("input_tokens", 90), ("model_messages", 3), ("output_tokens", 30)),
        1_230,
    )
    assert {"session:shelves", "session:t1", "session:t2"} <= set(first.keys)
    assert (second.task, second.usage) == ("Who are you?", None)


def nested(of: dict[str, Any]) -> dict[str, Any]:
    """The same span with attributes as objects and lists."""

    def put(tree: dict[str, Any], key: str, said: Any) -> None:
        first, _, rest = key.partition(".")
        if rest:
            put(tree.setdefault(first, {}), rest, said)
        else:
            tree[first] = said

    def listed(tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        found = {key: listed(each) for key, each in tree.items()}
        return list(found.values()) if found and all(key.isdecimal() for key in found) else found

    tree: dict[str, Any] = {}
    for key, said in of["attributes"].items():
        put(tree, key, said)
    return of | {"attributes": listed(tree)}


def framed(of: dict[str, Any]) -> dict[str, Any]:
    """The same span as a row of a data frame: dots in the names of columns, and in the messages."""

    def short(messages: Any) -> Any:
        found = []
        for each in messages:
            said = {f"message.{key}": one for key, one in each["message"].items() if key != "tool_calls"}
            made = each["message"].get("tool_calls", [])
            calls = [
                {
                    "tool_call.id": one["tool_call"]["id"],
                    "tool_call.function.name": one["tool_call"]["function"]["name"],
                    "tool_call.function.arguments": one["tool_call"]["function"]["arguments"],
                }
                for one in made
            ]
            found.append(said | ({"message.tool_calls": calls} if calls else {}))
        return found

    inner = nested(of)["attributes"]
    rows = {f"attributes.llm.{side}": short(each) for side, each in inner["llm"].items()}
    rest = {key: each for key, each in of.items() if key not in ("context", "attributes")}
    ids = {f"context.{key}": each for key, each in of["context"].items()}
    return rest | ids | rows | {"span_kind": "LLM"}


def as_otlp(of: dict[str, Any]) -> dict[str, Any]:
    made = span(int(of["context"]["span_id"][1:]), of["name"], of["attributes"])
    return otlp(made)


@pytest.mark.parametrize("spelling", [dict, nested, framed, as_otlp, "text", "data"])
def test_every_spelling_of_spans_gives_the_same_transitions(spelling: Any):
    if spelling == "text":
        data = lines(*(each | {"attributes": json.dumps(each["attributes"])} for each in SPANS))
    elif spelling == "data":
        data = lines({"data": SPANS, "next_cursor": None})
    else:
        data = lines(*(spelling(each) for each in SPANS))
    found = checked(data)
    assert (found.format, found.pairs) == ("openinference", PAIRED)
    assert {each.action.text for each in found.transitions} == {"Let me see"}
    assert found.outcomes[-1] == "terminal_no_observation"


def test_contents_in_parts_are_one_message():
    parts = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.0.message_content.type": "text",
        "llm.input_messages.0.message.contents.0.message_content.text": "what is this?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.contents.0.message_content.type": "text",
        "llm.output_messages.0.message.contents.0.message_content.text": "a cat",
    }
    found = checked(lines(kind(1, "LLM", parts)))
    assert [event.text for event in found.imported.traces[0].events] == ["what is this?", "a cat"]


def test_an_older_function_call_has_no_id():
    made = {"role": "assistant", "function_call_name": "f", "function_call_arguments_json": '{"x": 1}'}
    result = {"role": "function", "name": "f", "content": "r"}
    found = checked(lines(llm(1, [asks("q")], [made]), llm(2, [asks("q"), made, result], [says("a")])))
    assert found.pairs == [('f {"x": 1}', "name_order", "r")]


def test_a_model_call_without_messages_is_read_from_its_values():
    request = {"messages": [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "q"}]}
    reply = {"id": "c", "choices": [{"message": {"role": "assistant", "content": "a"}}]}
    wire = {
        "input.value": json.dumps(request),
        "output.value": json.dumps(reply),
        "input.mime_type": "application/json",
    }
    plain = {"input.value": "q", "output.value": "a"}
    for given in (wire, plain):
        found = checked(lines(kind(1, "LLM", given)))
        assert (found.imported.traces[0].task, found.outcomes) == ("q", ["terminal_no_observation"])
        assert found.ledgers[0].rows[0].action == "a"


def test_a_completion_is_a_prompt_and_a_text():
    given = {"llm.prompts.0.prompt.text": "q", "llm.choices.0.completion.text": "a"}
    found = checked(lines(kind(1, "LLM", given)))
    assert [(event.kind, event.text) for event in found.imported.traces[0].events] == [("task", "q"), ("text", "a")]


# Tools


def test_a_tools_span_without_an_id_is_a_view_of_the_message_that_names_it():
    tools = [run(2, "weather", "21C", '{"city": "Lima"}'), run(3, "weather", '"3C"', status_code="ERROR")]
    found = checked(lines(SPANS[0], *tools, SPANS[1]))
    assert found.pairs == PAIRED
    assert found.aside["duplicate_view"] == 3
    assert [each.is_error for each in found.transitions] == [True, False]
    assert found.transitions[1].at == "2026-05-01T10:00:02.500000+00:00"


def test_a_tools_span_without_an_id_never_answers_a_call_that_has_one():
    found = checked(lines(SPANS[0], run(2, "weather", "3C", '{"city": "Oslo"}'), run(3, "weather", "21C")))
    assert found.outcomes == ["unanswered_call"] * 2
    assert found.aside == {"orphan_result": 2, "duplicate_view": 1}  # the arguments repeat those of the call


def test_a_tools_span_inside_its_model_calls_span_is_structural():
    one = llm(1, [asks("q")], [says(None, call("k", "f", "{}"))])
    found = checked(lines(one, run(2, "f", "r", parent_id="s1")))
    assert found.pairs == [("f {}", "structural", "r")]


def test_where_neither_side_has_an_id_names_and_numbers_decide():
    made = says(None, call("", "f", "{}"), call("", "g", "{}"))
    tools = [run(2, "g", "s"), run(3, "f", "r")]
    found = checked(lines(llm(1, [asks("q")], [made]), *tools))
    assert found.pairs == [("f {}", "name_order", "r"), ("g {}", "name_order", "s")]
    more = checked(lines(llm(1, [asks("q")], [made]), *tools, run(4, "f", "again")))
    assert more.outcomes == ["ambiguous_order", "name_order"]


def test_a_tools_span_that_names_its_call_is_explicit():
    named = run(2, "weather", "3C")
    named["attributes"]["tool_call.id"] = "k1"
    found = checked(lines(SPANS[0], named))
    assert found.pairs == PAIRED[:1]
    assert found.outcomes == ["explicit_id", "unanswered_call"]


def test_a_python_spelling_of_arguments_says_nothing_against_a_name():
    made = says(None, call("", "f", '{"x": 1}'))
    found = checked(lines(llm(1, [asks("q")], [made]), run(2, "f", "r", "{'x': 1}")))
    assert found.pairs == [('f {"x": 1}', "name_order", "r")]


def test_a_run_of_the_same_tool_with_other_arguments_is_no_answer():
    made = says(None, call("", "f", '{"x": 1}'))
    found = checked(lines(llm(1, [asks("q")], [made]), run(2, "f", "r", '{"x": 2}')))
    assert (found.outcomes, found.aside["orphan_result"]) == (["unanswered_call"], 1)


# The rest


def test_an_agents_span_repeats_what_its_children_say():
    agent = kind(0, "AGENT", {"input.value": "Weather?", "output.value": "3C", "llm.token_count.prompt": 30})
    inside = [each | {"parent_id": "s0"} for each in SPANS]
    for number, each in enumerate(inside):
        each["attributes"] = each["attributes"] | {"llm.token_count.prompt": 10 + number, "llm.cost.total": 0.5}
    found = checked(lines(agent, *inside))
    assert found.pairs == PAIRED
    assert found.imported.traces[0].usage == (("input_tokens", 21), ("model_messages", 2))
    assert found.imported.traces[0].cost_nusd == 10**9
    assert found.imported.traces[0].usage_repeated == 1
    assert found.aside["duplicate_view"] == 2


def test_other_kinds_of_spans_are_set_aside():
    rest = [
        kind(at, of, {"input.value": "x"}) for at, of in enumerate(("RETRIEVER", "EMBEDDING", "GUARDRAIL", "CHAIN"))
    ]
    found = checked(lines(*rest))
    assert (found.outcomes, found.aside) == ([], {"harness_text": 4})


def test_a_session_unites_traces_and_its_threads_are_keys():
    named = {"session.id": "s", "metadata": json.dumps({"thread_id": "th"})}
    again = {"context": {"trace_id": "u", "span_id": "s9"}}
    history = [ASK, MADE, *GIVEN, ANSWER, asks("thanks")]
    found = checked(
        lines(
            *(each | {"attributes": each["attributes"] | named} for each in SPANS),
            llm(9, history, [says("welcome")], named, **again),
        )
    )
    (trace,) = found.imported.traces
    assert found.pairs == [*PAIRED, ("3C and 21C", "user_reply", "thanks")]
    assert trace.keys == ("session:s", "session:t", "session:th", "session:u")


def test_both_conventions_on_one_span_are_one_call_and_openinference_wins():
    both = {"gen_ai.input.messages": json.dumps([asks("q")]), "gen_ai.output.messages": json.dumps([says("a")])}
    found = checked(lines(llm(1, [asks("q")], [says("a")], both)))
    assert (found.format, found.outcomes) == ("openinference", ["terminal_no_observation"])
    assert found.aside == {"duplicate_view": 2}


def test_spans_of_neither_convention_are_refused():
    with pytest.raises(TraceFormatError, match="no known format"):
        read(lines({"name": "x", "context": {"trace_id": "t", "span_id": "s"}, "attributes": {"a": 1}}))


def test_tools_that_were_offered_are_counted():
    offered = flat("x", []) | {f"llm.tools.{at}.tool.json_schema": "{}" for at in range(3)}
    assert checked(lines(llm(1, [ASK], [MADE], offered))).imported.traces[0].declared_tools == 3


RECORDS = [
    kind(0, "AGENT", {"input.value": "Weather?"}),
    *(each | {"parent_id": "s0"} for each in SPANS),
    run(2, "weather", "3C", '{"city": "Oslo"}'),
    nested(llm(6, [ASK, MADE, *GIVEN, ANSWER, asks("more")], [says("ok")])),
    framed(llm(7, [ASK], [MADE])),
    as_otlp(llm(8, [ASK], [MADE])),
]


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_damaged_spans_never_raise_and_their_sums_hold(start: int):
    for seed in range(start, start + 100):
        survives(RECORDS, seed, "openinference")
