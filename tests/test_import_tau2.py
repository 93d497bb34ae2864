"""tau2-bench: text runs with users who call tools, trials as one lineage, and voice as an honest nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, check_spans, check_sums, lines, read
from scaffold_cases import check_damage

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import choose, tau2
from experiential_lab.records import TraceFormatError

FIXTURE = DATA / "tau2_bench.json"


def run(*simulations: object, **more: object) -> bytes:
    info = {"agent_info": {"implementation": "llm_agent"}, "user_info": {}, "environment_info": {}}
    return json.dumps({"timestamp": "x", "info": info, "tasks": [], "simulations": simulations} | more).encode()


def simulation(*messages: object, **more: object) -> dict[str, Any]:
    return {"id": "s", "task_id": "1", "trial": 0, "termination_reason": "user_stop", "messages": messages} | more


def asks(content: object, *calls: object, **more: object) -> dict[str, Any]:
    return {"role": "user", "content": content, "tool_calls": list(calls) or None} | more


def says(content: object, *calls: object, **more: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls) or None} | more


def call(ident: str, name: str, **arguments: object) -> dict[str, Any]:
    return {"id": ident, "name": name, "arguments": arguments, "requestor": "assistant"}


def gives(ident: str, content: object, **more: object) -> dict[str, Any]:
    return {"role": "tool", "id": ident, "content": content, "requestor": "assistant", "error": False} | more


def talk(*messages: object, **more: object) -> Read:
    found = read(run(simulation(*messages, **more)))
    check_sums(found)
    check_spans(found)
    return found


def test_the_fixture_gives_what_its_lines_say():
    # By hand: sim-a has 4 calls or texts with an answer and one text that ends it (###STOP### beside a name); sim-b one
    # text whose only answer is the marker; sim-c a text, a call, and a text that is answered by a marker; sim-d is voice.
    found = read(FIXTURE.read_bytes())
    check_sums(found)
    assert found.format == "tau2_bench"
    assert found.outcomes == [
        *("explicit_id_scoped", "explicit_id", "user_reply", "explicit_id_scoped", "user_reply"),
        "control_token_only",
        *("user_reply", "explicit_id", "control_token_only"),
    ]
    assert found.aside == {"synthetic_assistant": 3, "control_token": 2, "harness_text": 2, "unknown_role": 1}
    assert check_spans(found) == 31
    assert [each.observation for each in found.transitions] == [
        *("", '["B4"]', "Eleven then.", "Error: no name given", "Tamar. ###STOP###", "It says 3 %.", "printed")
    ]
    assert [each.terminal for each in found.transitions][4] is True
    assert {each.observation_source for each in found.transitions} == {"environment", "simulated_user"}


def test_trials_of_a_task_are_one_lineage_and_a_simulation_is_its_own_trace():
    one, two, three = read(FIXTURE.read_bytes()).imported.traces
    assert [trace.name for trace in (one, two, three)] == ["task 0, trial 0", "task 0, trial 1", "task 1, trial 0"]
    assert {key for key in one.keys if key.startswith("task:")} == {key for key in two.keys if key.startswith("task:")}
    assert one.trace_id != two.trace_id
    assert [key.split(":")[0] for key in three.keys] == ["session", "task"]
    assert "You want a seat on a ferry." in (one.statement or "")
    assert not any("You want a seat" in (each.task or "") for each in read(FIXTURE.read_bytes()).transitions)
    assert (one.context, one.task) == ("Seats are booked under a name.", "A seat on the ten o'clock ferry, please.")


def test_usage_and_cost_are_the_agents():
    one, two, three = read(FIXTURE.read_bytes()).imported.traces
    assert one.usage == (("completion_tokens", 20), ("prompt_tokens", 160))  # four answers; the greeting used nothing
    assert (one.cost_nusd, two.cost_nusd, three.cost_nusd) == (8_000_000, 2_000_000, 6_000_000)
    unknown = talk(asks("q"), says("a", usage={"n": 1}, cost=0.0), asks("b"), says("c", raw_data={}), asks("d"))
    assert (unknown.imported.traces[0].usage, unknown.imported.traces[0].cost_nusd) == (None, None)


def test_a_cost_of_nothing_is_unknown():
    (trace,) = talk(asks("q"), says("a", usage={"n": 1}, cost=0.0), asks("b"), agent_cost=0.0).imported.traces
    assert (trace.usage, trace.cost_nusd) == ((("n", 1),), None)


def test_speech_that_was_written_down_as_messages_is_refused_too():
    spoken = read(run(simulation(asks("q"), says("a"), asks("b"), mode="full_duplex")))
    assert (spoken.imported.traces, spoken.rejected) == ((), [(1, "unknown_shape")])


def test_what_users_call_and_see_is_no_action_of_the_agent():
    found = talk(
        asks("My phone is dead"),
        says("Look at it"),
        asks("one moment", {"id": "k", "name": "battery", "arguments": {}, "requestor": "user"}),
        gives("k", "3 %", requestor="user"),
        asks("It says 3 %"),
        says(None, call("k", "charge")),
        gives("k", "ok"),
    )
    assert found.pairs == [("Look at it", "user_reply", "It says 3 %"), ("charge {}", "explicit_id", "ok")]
    assert found.aside == {"harness_text": 3}


def test_a_result_that_does_not_say_whose_it_is_belongs_to_the_last_caller():
    untold = {"role": "tool", "id": "k", "content": "r"}
    found = talk(asks("q"), says(None, call("k", "f")), asks(None, call("k", "g")), untold)
    assert (found.pairs, found.outcomes) == ([], ["unanswered_call"])


def test_several_results_in_one_message_are_several_results():
    both = {"role": "tool", "tool_messages": [gives("b", "2"), gives("a", "1")]}
    found = talk(asks("q"), says(None, call("a", "f"), call("b", "g")), both)
    assert found.pairs == [("f {}", "explicit_id", "1"), ("g {}", "explicit_id", "2")]


def test_ids_come_again_in_a_later_turn_and_count_in_their_own():
    found = talk(
        *(asks("q"), says(None, call("k", "f", n=1)), gives("k", "one")),
        *(says(None, call("k", "f", n=2)), gives("k", "", error=True)),
    )
    assert found.pairs == [
        ('f {"n": 1}', "explicit_id_scoped", "one"),
        ('f {"n": 2}', "explicit_id_scoped", ""),
    ]
    assert [each.is_error for each in found.transitions] == [False, True]


def test_text_beside_calls_is_part_of_each_and_an_empty_message_is_set_aside():
    found = talk(asks("q"), says("Both.", call("a", "f"), call("b", "f")), gives("b", "2"), gives("a", "1"), says(None))
    assert [each.action.text for each in found.transitions] == ["Both.", "Both."]
    assert found.aside == {"empty_message": 1}


@pytest.mark.parametrize("marker", ["###STOP###", "###TRANSFER###", " ###OUT-OF-SCOPE### "])
def test_a_marker_alone_is_no_reply_and_beside_words_ends_the_run(marker: str):
    alone = talk(asks("q"), says("a"), asks(marker))
    assert (alone.outcomes, alone.aside) == (["control_token_only"], {"control_token": 1})
    beside = talk(asks("q"), says("a"), asks(f"Thanks {marker}"))
    assert [(each.observation, each.terminal) for each in beside.transitions] == [(f"Thanks {marker}", True)]


def test_law_15_no_tool_ends_a_run():
    found = talk(asks("q"), says(None, call("k", "f")), gives("k", "###STOP###"), says("a"), asks("b"))
    assert [(each.observation, each.terminal) for each in found.transitions] == [("###STOP###", False), ("b", True)]


def test_a_greeting_that_used_nothing_is_the_scaffolds_unless_nothing_is_ever_measured():
    used = {"usage": {"completion_tokens": 1}}
    measured = talk(says("Hello"), asks("q"), says("a", **used), asks("b"))
    assert (measured.pairs, measured.aside) == ([("a", "user_reply", "b")], {"synthetic_assistant": 1})
    assert measured.imported.traces[0].task == "q"
    plain = talk(says("Hello"), asks("q"), says("a"), asks("b"))
    assert plain.outcomes == ["no_authored_reply", "user_reply"]  # the first request answers nothing
    assert plain.imported.traces[0].task == "q"


def test_messages_stand_in_the_order_of_their_turns():
    told = [asks("q"), says(None, call("k", "f")), gives("k", "r"), says("a"), asks("b")]
    numbered = [message | {"turn_idx": turn} for turn, message in enumerate(told)]
    assert talk(*numbered[::-1]).pairs == talk(*told).pairs


def test_an_agent_that_works_alone_is_told_its_ticket():
    task = {"id": "1", "ticket": "Repair the lock.", "user_scenario": {"instructions": "x"}}
    info = {"agent_info": {"implementation": "llm_agent_solo"}, "user_info": {}}
    told = simulation(says(None, call("k", "f")), gives("k", "r"))
    found = read(run(told, info=info, tasks=[task]))
    assert [each.task for each in found.transitions] == ["Repair the lock."]


def test_sound_has_no_words_and_odd_messages_are_set_aside():
    found = talk(
        asks("q"), says("UklGR", is_audio=True), asks("b"), None, "x", {"role": "critic"}, says("a"), asks("c")
    )
    assert found.pairs == [("a", "user_reply", "c")]
    assert found.aside == {"unknown_role": 4}


def test_a_run_that_was_cut_off_is_not_complete():
    cut = talk(asks("q"), says(None, call("k", "f")), gives("k", "r"), termination_reason="max_steps")
    whole = talk(asks("q"), says(None, call("k", "f")), gives("k", "r"))
    assert [found.transitions[0].terminal for found in (cut, whole)] == [None, True]


def test_a_text_simulation_in_a_file_of_its_own_is_read():
    data = json.dumps(simulation(asks("q"), says("a"), asks("b"))).encode()
    found = read(data, "tau2_bench")
    check_sums(found)
    assert found.pairs == [("a", "user_reply", "b")]


def test_equal_simulations_count_once_and_unreadable_lines_cost_themselves_alone():
    data = run(simulation(asks("q"), says("a"), asks("b"))) + b"\n"
    found = read(data + data + b"{broken\n" + lines({"info": {}, "tasks": []}))
    assert (len(found.transitions), found.rejected) == (
        1,
        [(2, "duplicate_record"), (3, "not_json"), (4, "unknown_shape")],
    )
    check_sums(found)


# Real files


@pytest.mark.parametrize("name", ["results.json", "49b22f0c-4a56-41c5-922f-bc2a56e53a23.json"])
def test_a_voice_simulation_and_the_head_of_a_run_are_no_transitions_and_say_so(shared: Path, name: str):
    # By hand: results.json holds info and an empty list of tasks; the other one 973 ticks whose chunks hold `role`,
    # `contains_speech` and states of the audio, but neither content nor tool calls.
    found = read((shared / "samples" / "tau2-bench" / name).read_bytes())
    check_sums(found)
    assert (found.format, found.imported.records, found.imported.traces) == ("tau2_bench", 1, ())
    assert found.rejected == [(1, "unknown_shape")]


def test_no_other_real_file_looks_like_a_run(shared: Path):
    for path in sorted((shared / "samples").rglob("*.*")):
        if path.parent.name != "tau2-bench" and path.name != "SOURCES.tsv":
            try:
                values = [record.value for record in frame(path.read_bytes()).records if not record.reason]
            except TraceFormatError:
                continue
            assert not any(map(tau2._sniff, values[:1000])), path.name


def test_the_rule_is_named():
    format, rule = choose(frame(FIXTURE.read_bytes()))
    assert (format.name, rule) == ("tau2_bench", "info, tasks and simulations of a run")


def test_whatever_is_done_to_a_run_the_sums_hold():
    check_damage(FIXTURE.read_bytes(), "tau2_bench", count=300)
