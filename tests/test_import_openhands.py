"""OpenHands: what caused an observation, who speaks in the user's name, and what each event holds."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, check_spans, check_sums, lines, read, said
from scaffold_cases import Numbers, check_damage, numbers_of

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import choose
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.importers.openhands import FORMATS
from experiential_lab.evidence.transitions import ledger_of

# By hand: "basic_gui_mode" has 18 events: a request (4), four calls (7, 9, 11, 13) with the observation that each caused and
# that carries its tool call id (8, 10, 12, 14), a message that nobody answers (15), and 8 events of the harness: four agent
# states without a cause (0, 3, 5, 17), a change of state (1) and three null observations (2, 6, 16).
# "basic" has a request, an edit with its observation, and `finish`. "basic_interactions" has three requests, two messages in
# between, and `finish`. "output" has three lines: 22, 32 and 49 calls that are answered by id, `finish` in the first two,
# a recall in each, and in two of them an error that names neither a cause nor a call.
SAMPLES = {
    "basic.json": Numbers(4, 1, {"explicit_id": 1}, {"unanswered_call": 1}, {}, {}),
    "basic_gui_mode.json": Numbers(18, 1, {"explicit_id": 4}, {"terminal_no_observation": 1}, {"harness_text": 8}, {}),
    "basic_interactions.json": Numbers(6, 1, {"user_reply": 2}, {"unanswered_call": 1}, {}, {}),
    "examples__output.jsonl": Numbers(
        3, 3, {"explicit_id": 22 + 32 + 49}, {"unanswered_call": 2}, {"harness_text": 3, "orphan_result": 2}, {}
    ),
}


def event(number: object, source: str, **more: object) -> dict[str, Any]:
    return {"id": number, "timestamp": f"2031-01-01T00:00:{number}", "source": source, "message": "", **more}


def asked(number: object, content: object) -> dict[str, Any]:
    return event(number, "user", action="message", args={"content": content})


def spoke(number: object, content: object) -> dict[str, Any]:
    return event(number, "agent", action="message", args={"content": content})


def ran(number: object, command: object = "ls", *, call: object = None, **more: object) -> dict[str, Any]:
    value = event(number, "agent", action="run", args={"command": command})
    return value | ({"tool_call_metadata": {"function_name": "bash", "tool_call_id": call}} if call else {}) | more


def saw(
    number: object, cause: object, content: object = "seen", *, call: object = None, **more: object
) -> dict[str, Any]:
    value = event(number, "agent", observation="run", cause=cause, content=content, extras={})
    return value | ({"tool_call_metadata": {"tool_call_id": call}} if call else {}) | more


def of(*events: object) -> Read:
    found = read(json.dumps(list(events)).encode())
    check_sums(found)
    check_spans(found)
    return found


# Files


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_file_has_its_numbers_and_every_span_opens(shared: Path, name: str):
    found = read((shared / "samples" / "openhands" / name).read_bytes())
    check_sums(found)
    assert check_spans(found) == sum(len(trace.events) for trace in found.imported.traces)
    assert (found.format, numbers_of(found)) == ("openhands", SAMPLES[name])


def test_every_real_file_is_pinned(shared: Path):
    assert {path.name for path in (shared / "samples" / "openhands").iterdir()} == set(SAMPLES)


def test_each_real_observation_answers_the_action_that_caused_it(shared: Path):
    for name in SAMPLES:
        if name.startswith("basic"):
            data = (shared / "samples" / "openhands" / name).read_bytes()
            by_id = {each["id"]: each for each in json.loads(data)}
            caused = {
                by_id[each["cause"]]["timestamp"]: each["content"]
                for each in by_id.values()
                if each.get("observation") in ("run", "edit", "read")
            }
            (trace,) = read(data).imported.traces
            at = {event.span.offset: event.at for event in trace.events}
            pairs = [each for each in ledger_of(trace).transitions if each.pairing != "user_reply"]
            assert {at[each.action_span.offset]: each.observation for each in pairs} == caused


def test_an_evaluation_line_names_its_task_statement_usage_and_end(shared: Path):
    traces = read((shared / "samples" / "openhands" / "examples__output.jsonl").read_bytes()).imported.traces
    assert [trace.name for trace in traces] == ["ponylang__ponyc-4595", "ponylang__ponyc-4593", "ponylang__ponyc-4588"]
    assert [dict(trace.usage or ())["prompt_tokens"] for trace in traces] == [565158, 410169, 938015]
    assert [trace.cost_nusd for trace in traces] == [None] * 3  # no price is listed: the total of 0.0 is no price
    assert [trace.complete for trace in traces] == [True, True, None]
    assert [trace.declared_tools for trace in traces] == [4, 4, 4]
    assert all(trace.statement and trace.statement in (trace.task or "") for trace in traces)
    assert [key.split(":")[::2] for trace in traces for key in trace.keys] == [["task", each.name] for each in traces]


def test_our_own_file_pairs_by_cause_and_by_id():
    found = read((DATA / "openhands.json").read_bytes())
    check_sums(found)
    check_spans(found)
    assert sorted(found.pairs) == [
        ("The north one. Anything else?", "user_reply", "Ask the weaver about it."),
        ('delegate {"agent": "Weaver", "inputs": {"task": "hay"}, "thought": ""}', "structural", "Nothing woven."),
        ('execute_bash {"command": "ls north"}', "explicit_id", ""),
        ('execute_bash {"command":"ls south"}', "explicit_id", "no such barn"),
        ('read {"path": "/barns.txt", "thought": ""}', "structural", "hay: north"),
        ('read {"path": "/loom", "thought": ""}', "structural", "empty loom"),
        ('run {"command": "rm hay", "thought": "Clear it."}', "structural", "Leave the hay."),
    ]
    assert found.aside == {"harness_text": 5, "orphan_result": 1, "sidechain_prompt": 1}


def test_our_own_file_tells_errors_refusals_and_speakers():
    found = {said(each).split(" ")[0]: each for each in read((DATA / "openhands.json").read_bytes()).transitions}
    assert (found["run"].observation_kind, found["run"].observation_source) == ("user_rejection", "human")
    assert (found["The"].observation_kind, found["The"].observation_source) == ("user_reply", "unknown")
    assert (found["execute_bash"].observation_kind, found["execute_bash"].is_error) == ("tool_error", True)
    assert found["delegate"].is_error is None


def test_our_own_file_sees_what_its_agent_saw():
    found = {said(each): each for each in read((DATA / "openhands.json").read_bytes()).transitions}
    first, second = (found[f'execute_bash {{"command":{each}}}'] for each in (' "ls north"', '"ls south"'))
    assert [(each.recent, each.action.text) for each in (first, second)] == [(None, "I check both barns.")] * 2
    assert (found['read {"path": "/loom", "thought": ""}'].task, first.task) == ("TASK: hay", "Which barn holds hay?")
    assert first.at == "2031-02-03T04:05:06.000001"  # no zone is named, and none is added


def test_our_own_file_names_its_context_tools_and_end():
    (trace,) = read((DATA / "openhands.json").read_bytes()).imported.traces
    assert trace.context == "You look after barns.\n\nBarns lie north and south."
    assert (trace.task, trace.declared_tools, trace.complete) == ("Which barn holds hay?", 2, True)
    assert (trace.usage, trace.cost_nusd, trace.keys) == (None, None, ())


# Which format


def test_the_format_is_sniffed_and_no_other_file_is_taken_for_it(shared: Path):
    others = [path for path in (shared / "samples").glob("*/*") if path.parent.name != "openhands"]
    for path in [*others, *(shared / "cases").glob("*.jsonl")]:
        values = [record.value for record in frame(path.read_bytes()).records[:50] if not record.reason]
        assert [value for value in values if FORMATS[0].sniff(value)] == [], path


@pytest.mark.parametrize(
    "value",
    [
        asked(0, "q"),
        [asked(0, "q"), spoke(1, "a")],
        {"history": [asked(0, "q")]},
        {"trajectory": [asked(0, "q")]},
        {"history": [[asked(0, "q"), saw(1, 0)]]},
    ],
)
def test_every_shape_of_a_history_is_known(value: object):
    assert choose(frame(lines(value)))[0].name == "openhands"


def test_histories_in_lines_are_runs_of_their_own():
    talk = [asked(0, "q"), spoke(1, "a"), asked(2, "b")]
    found = read(lines(talk, {"trajectory": talk}, {"history": talk, "instance_id": "x"}))
    check_sums(found)
    assert len(found.imported.traces) == 3
    assert found.outcomes == ["user_reply", "user_reply", "terminal_no_observation"]


def test_events_that_are_files_of_a_zip_are_one_run_in_their_order():
    pack = io.BytesIO()
    with zipfile.ZipFile(pack, "w") as out:
        for number, each in [(10, spoke(10, "a")), (9, asked(9, "q")), (11, asked(11, "b"))]:
            out.writestr(f"s/events/{number}.json", json.dumps(each))
        out.writestr("other.json", json.dumps([asked(9, "x"), spoke(10, "y")]))
    frames = frame(pack.getvalue())
    traces = choose(frames)[0].read(Source("sha256:0", "it", frames)).traces
    assert [[event.text for event in trace.events] for trace in traces] == [["q", "a", "b"], ["x", "y"]]


def test_a_list_that_grows_keeps_its_id():
    talk = [asked(0, "q"), ran(1), saw(2, 1), spoke(3, "a")]
    short, long = (read(json.dumps(some).encode()).imported.traces[0] for some in (talk[:2], talk))
    assert short.trace_id == long.trace_id


# Pairing, one by one


@pytest.mark.parametrize(
    ("action_id", "result_id", "outcome"),
    [("k", "k", "explicit_id"), (None, None, "structural"), ("k", None, "structural"), (None, "k", "structural")],
)
def test_a_cause_is_structural_unless_both_sides_carry_the_id(action_id: object, result_id: object, outcome: str):
    assert of(asked(0, "q"), ran(1, call=action_id), saw(2, 1, call=result_id)).outcomes == [outcome]


def test_a_cause_and_an_id_that_disagree_pair_nothing():
    found = of(asked(0, "q"), ran(1, call="k"), ran(2, call="l"), saw(3, 1, call="l"))
    assert (found.outcomes, found.aside) == (["unanswered_call"] * 2, {"id_mismatch": 1})


def test_an_observation_without_a_cause_answers_only_the_call_that_it_names():
    found = of(asked(0, "q"), ran(1, call="k"), saw(2, None, call="k"), ran(3), saw(4, None))
    assert (found.outcomes, found.aside) == (["explicit_id", "unanswered_call"], {"orphan_result": 1})


@pytest.mark.parametrize("cause", [7, -1, "x", True, 0, 2])
def test_a_cause_that_is_no_action_of_the_agent_pairs_nothing(cause: object):
    found = of(asked(0, "q"), ran(1), saw(2, cause))
    assert found.outcomes == ["unanswered_call"]
    assert sum(found.aside.values()) == 1


def test_results_may_stand_far_behind_and_in_any_order():
    found = of(
        asked(0, "q"),
        ran(1, "a"),
        ran(2, "b"),
        event(3, "environment", observation="null"),
        saw(4, 2, "B"),
        saw(5, 1, "A"),
    )
    assert [(each.action.arguments, each.observation) for each in found.transitions] == [
        ('{"command": "a"}', "A"),
        ('{"command": "b"}', "B"),
    ]


def test_events_out_of_order_are_read_in_theirs():
    talk = [asked(0, "q"), ran(1), saw(2, 1), spoke(3, "a"), asked(4, "b")]
    assert of(*talk).pairs == of(*talk[::-1]).pairs


def test_one_id_for_two_actions_declares_no_cause():
    found = of(asked(0, "q"), ran(1, "a"), ran(1, "b"), saw(2, 1))
    assert (found.outcomes, found.aside) == (["unanswered_call"] * 2, {"orphan_result": 1})


def test_early_histories_hold_pairs():
    nothing = event(-1, "agent", observation="null", content="")
    pairs = [[asked(-1, "q"), nothing], [ran(-1, "a"), saw(-1, None, "A")], [ran(-1, "b"), saw(-1, None, "B")]]
    found = read(lines({"history": pairs}))
    check_sums(found)
    check_spans(found)
    assert [(each.pairing, each.observation) for each in found.transitions] == [
        ("structural", "A"),
        ("structural", "B"),
    ]


@pytest.mark.parametrize("call", [None, "k"])
def test_an_action_that_waits_for_the_users_word_is_the_one_that_follows_it(call: str | None):
    def waits(number: int, state: str) -> dict[str, Any]:
        return ran(number, call=call) | {
            "args": {"command": "rm x", "thought": "I clear.", "confirmation_state": state}
        }

    refusal = event(4, "user", observation="user_rejected", cause=3, content="No.")
    found = of(asked(0, "q"), waits(1, "awaiting_confirmation"), waits(3, "rejected"), refusal)
    assert [(each.action.text, each.observation_kind) for each in found.transitions] == [("I clear.", "user_rejection")]
    assert found.aside == {"duplicate_view": 2}
    assert of(asked(0, "q"), waits(1, "awaiting_confirmation")).outcomes == ["unanswered_call"]


def test_what_a_user_does_with_the_tools_is_no_action_of_the_agent():
    own = event(3, "user", action="run", args={"command": "pwd"})
    found = of(asked(0, "q"), ran(1), saw(2, 1), own, saw(4, 3, "/home"))
    assert (len(found.outcomes), found.aside) == (1, {"harness_text": 1, "observation_without_action": 1})


@pytest.mark.parametrize(
    "nudge", ["Please continue working on the task on whatever approach", "Please continue on whatever approach"]
)
def test_a_nudge_is_no_reply(nudge: str):
    found = of(asked(0, "q"), spoke(1, "a"), asked(2, f"{nudge} you think is suitable."))
    assert (found.outcomes, found.aside) == (["terminal_no_observation"], {"harness_text": 1})


def test_nobody_replies_in_an_evaluation():
    found = read(lines({"instance_id": "x", "history": [asked(0, "q"), spoke(1, "a"), asked(2, "go on")]}))
    assert (found.outcomes, found.aside) == (["terminal_no_observation"], {"harness_text": 1})


def test_a_delegate_that_returns_without_a_cause_ends_its_branch():
    handed = event(1, "agent", action="delegate", args={"agent": "A"})
    back = event(4, "agent", observation="delegate", content="done")
    found = of(asked(0, "q"), handed, ran(2), saw(3, 2), back, spoke(5, "a"), asked(6, "b"))
    assert sorted(found.pairs) == [("a", "user_reply", "b"), ('run {"command": "ls"}', "structural", "seen")]


def test_a_summary_of_the_history_is_no_message():
    summary = event(2, "agent", action="condensation", args={"summary": "so far"})
    found = of(asked(0, "q"), spoke(1, "a"), summary, asked(3, "b"))
    assert (found.pairs, found.aside) == ([("a", "user_reply", "b")], {"compaction_summary": 1})


@pytest.mark.parametrize(
    ("more", "is_error"),
    [
        ({}, None),
        ({"success": True}, False),
        ({"success": False}, True),
        ({"extras": {"exit_code": 1}}, True),
        ({"extras": {"metadata": {"exit_code": 0}}}, False),
        ({"observation": "error"}, True),
        ({"success": "no", "extras": {"exit_code": "1"}}, None),
    ],
)
def test_an_error_is_what_the_event_declares(more: dict[str, Any], is_error: bool | None):
    assert [each.is_error for each in of(asked(0, "q"), ran(1), saw(2, 1) | more).transitions] == [is_error]


def test_empty_and_absent_contents_are_observations():
    found = of(asked(0, "q"), ran(1), saw(2, 1, ""), ran(3), saw(4, 3, None))
    assert [each.observation for each in found.transitions] == ["", ""]


def test_usage_is_listed_cumulative_or_summed_and_a_price_is_only_what_is_listed():
    def counted(number: int, response: object) -> dict[str, Any]:
        usage = {"prompt_tokens": 2, "completion_tokens": 1}
        metadata = {"tool_call_id": f"k{number}", "model_response": {"id": response, "usage": usage}}
        return ran(number) | {"tool_call_metadata": metadata}

    def trace(*events: object, **holder: object) -> tuple[object, object]:
        (found,) = read(lines({"history": [asked(0, "q"), *events], **holder})).imported.traces
        return found.usage, found.cost_nusd

    summed = (("completion_tokens", 2), ("prompt_tokens", 4))
    assert trace(counted(1, "r"), counted(2, "r"), counted(3, "s")) == (summed, None)
    assert trace(counted(1, "r"), spoke(2, "uncounted")) == (None, None)
    cumulative = {"accumulated_token_usage": {"prompt_tokens": 9}, "accumulated_cost": 0.5}
    assert trace(spoke(1, "a") | {"llm_metrics": cumulative}) == ((("prompt_tokens", 9),), 500_000_000)
    listed = {"token_usages": [{"prompt_tokens": 3}, {"prompt_tokens": 4}], "costs": [{"cost": 0.25}, {"cost": 0.5}]}
    assert trace(counted(1, "r"), metrics=listed) == ((("prompt_tokens", 7),), 750_000_000)
    assert trace(counted(1, "r"), metrics={"accumulated_cost": 0.0, "costs": []})[1] is None


def test_the_arguments_are_those_that_the_model_wrote():
    def wrote(*calls: object) -> dict[str, Any]:
        response = {"id": "r", "choices": [{"message": {"tool_calls": list(calls)}}]}
        metadata = {"function_name": "bash", "tool_call_id": "k", "model_response": response}
        return ran(1, "as run") | {"tool_call_metadata": metadata}

    call = {"id": "k", "function": {"name": "bash", "arguments": ' {"command" : "as written"}'}}
    shown = [
        said(each)
        for calls in ([call], [call, call], [])
        for each in of(asked(0, "q"), wrote(*calls), saw(2, 1)).transitions
    ]
    assert shown == ['bash  {"command" : "as written"}', *['bash {"command": "as run"}'] * 2]


def test_an_event_that_is_none_is_rejected_in_a_list_and_set_aside_in_a_history():
    found = of(asked(0, "q"), {"id": 5}, spoke(1, "a"), asked(2, "b"))
    assert (found.pairs, found.rejected) == ([("a", "user_reply", "b")], [(2, "unknown_shape")])
    held = read(lines({"history": [asked(0, "q"), None, {"id": 5}, spoke(1, "a"), asked(2, "b")]}))
    check_sums(held)
    assert (held.pairs, held.aside) == ([("a", "user_reply", "b")], {"unknown_role": 2})


def test_law_5_whatever_is_done_to_a_file_the_sums_hold(shared: Path):
    check_damage((DATA / "openhands.json").read_bytes(), "openhands", count=400)
    for name in ("basic.json", "basic_gui_mode.json", "basic_interactions.json"):
        check_damage((shared / "samples" / "openhands" / name).read_bytes(), "openhands", count=40)
    check_damage((shared / "samples" / "openhands" / "examples__output.jsonl").read_bytes(), "openhands", count=3)
