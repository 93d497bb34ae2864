"""ATIF: what its steps become, on real files, on our own, and on whatever a file may hold."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, check_spans, check_sums, lines, read, said
from scaffold_cases import Numbers, check_damage, numbers_of

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import choose
from experiential_lab.evidence.importers.atif import FORMATS
from experiential_lab.evidence.importers.usage import nano_dollars, pooled, summed

# By hand: "terminus_2" has a user step, 3 agent steps with one result each and no id, and a hand-off whose result only
# refers to sub-agents. Its continuation has 4 copied steps and 4 agent steps with one result each and no id. "openhands"
# has a user and 3 system steps, one call with the result that names it, and `finish`, which nothing answers.
SAMPLES = {
    "openhands_hello-world.trajectory.json": Numbers(1, 1, {"explicit_id": 1}, {"unanswered_call": 1}, {}, {}),
    "terminus_2_hello-world-context-summarization-linear-history.trajectory.cont-1.json": Numbers(
        1, 1, {"structural": 4}, {}, {"replayed_history": 4}, {}
    ),
    "terminus_2_hello-world-context-summarization-linear-history.trajectory.json": Numbers(
        1, 1, {"structural": 3}, {}, {"harness_text": 1}, {}
    ),
}


def document(*steps: object, **more: object) -> dict[str, Any]:
    return {"schema_version": "ATIF-v1.6", "session_id": "s", "steps": list(steps), **more}


def step(source: str, message: object = "", *, calls: object = None, results: object = None, **more: object) -> object:
    value = {"source": source, "message": message, "tool_calls": calls, **more}
    return value | ({} if results is None else {"observation": {"results": results}})


def call(call_id: object, name: object = "f", arguments: object = None) -> dict[str, object]:
    return {"tool_call_id": call_id, "function_name": name, "arguments": {} if arguments is None else arguments}


def gives(content: object, call_id: object = None) -> dict[str, object]:
    return {"source_call_id": call_id, "content": content}


def of(*steps: object, **more: object) -> Read:
    found = read(lines(document(*steps, **more)))
    check_sums(found)
    check_spans(found)
    return found


# Files


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_file_has_its_numbers_and_every_span_opens(shared: Path, name: str):
    found = read((shared / "samples" / "atif" / name).read_bytes())
    check_sums(found)
    assert check_spans(found) == sum(len(trace.events) for trace in found.imported.traces)
    assert found.format == "atif"
    assert numbers_of(found) == SAMPLES[name]


def test_every_real_file_is_pinned(shared: Path):
    assert {path.name for path in (shared / "samples" / "atif").iterdir()} == set(SAMPLES)


def test_a_continued_session_is_two_traces_of_one_lineage(shared: Path):
    folder = shared / "samples" / "atif"
    part, whole = (
        read((folder / name).read_bytes()).imported.traces[0] for name in sorted(SAMPLES) if name.startswith("terminus")
    )
    assert part.trace_id != whole.trace_id
    assert set(part.keys) < set(whole.keys)
    assert part.task == whole.task
    assert whole.usage == (("completion_tokens", 60 + 50 + 50), ("prompt_tokens", 682 + 750 + 820))
    assert (whole.cost_nusd, part.cost_nusd) == (7_230_000, 15_925_000)


def test_our_own_file_pairs_by_id_by_step_and_by_reply():
    found = read((DATA / "atif.json").read_bytes())
    check_sums(found)
    check_spans(found)
    assert [(said(each), each.pairing, each.observation) for each in found.transitions] == [
        ('read_log {"night": 1}', "explicit_id_scoped", ""),
        ('read_log {"night": 2, "lines": [ 1, 9 ]}', "explicit_id", "01:10 lamp out"),
        ("ask {}", "structural", "The oil was low."),
        ('{"keys": "lamp --status"}', "structural", "lit"),
        ("At ten past one, for lack of oil.", "user_reply", "Who was on watch?"),
        ('read_log {"night": 2}', "explicit_id_scoped", "watch: Ines"),
    ]
    assert found.outcomes.count("unanswered_call") == 1  # its result only refers to a sub-agent
    assert found.aside == {"harness_text": 3, "sidechain_prompt": 1}


def test_our_own_file_names_its_task_context_usage_and_lineage():
    (trace,) = read((DATA / "atif.json").read_bytes()).imported.traces
    assert (trace.task, trace.context) == ("When did the lamp go out?", "You keep the logbook of a lighthouse.")
    assert (trace.declared_tools, trace.complete, trace.name) == (2, None, "session lighthouse-4")
    assert trace.keys == ("session:lighthouse-4", "session:lighthouse-4-summary")
    assert trace.usage == (("completion_tokens", 50), ("prompt_tokens", 510))
    assert trace.cost_nusd == 1_200 + 3 * 2_000 + 500
    assert [event.at for event in trace.events if event.at] == ["2031-04-05T06:07:08+02:00"]


def test_our_own_file_sees_what_each_agent_saw():
    found = {said(each): each for each in read((DATA / "atif.json").read_bytes()).transitions}
    assert found["ask {}"].recent == ""  # the last result of the step before
    assert found['read_log {"night": 2}'].task == "Find the name of the watch."
    assert found['read_log {"night": 1}'].action.text == "I read both nights."


@pytest.mark.parametrize("version", ["1.0", "1.2", "1.5", "1.6", "1.7", "1.8"])
def test_every_version_is_known_by_its_own_name(version: str):
    value = document(step("user", "q"), step("agent", "a"), schema_version=f"ATIF-v{version}")
    assert choose(frame(lines(value)))[0].name == "atif"


def test_other_formats_are_not_taken_for_it(shared: Path):
    others = [path for path in (shared / "samples").glob("*/*") if path.parent.name != "atif"]
    for path in [*others, *(shared / "cases").glob("*.jsonl")]:
        values = [record.value for record in frame(path.read_bytes()).records[:50] if not record.reason]
        assert [value for value in values if FORMATS[0].sniff(value)] == [], path


# Pairing, one by one


def test_results_without_ids_beside_several_calls_answer_none_of_them():
    found = of(step("user", "q"), step("agent", calls=[call("a"), call("b")], results=[gives("1"), gives("2")]))
    assert (found.outcomes, found.aside) == (["unanswered_call"] * 2, {"orphan_result": 2})
    found = of(step("user", "q"), step("agent", calls=[call(""), call(None)], results=[gives("1"), gives("2")]))
    assert (found.outcomes, found.aside) == (["ambiguous_order"] * 2, {"orphan_result": 2})


def test_two_results_of_one_message_answer_nothing():
    found = of(step("user", "q"), step("agent", "run", results=[gives("1"), gives("2")]), step("agent", "end"))
    assert (found.outcomes, found.aside) == (
        ["no_authored_reply", "terminal_no_observation"],
        {"orphan_result": 2},
    )


def test_a_result_that_names_another_call_is_a_mismatch():
    found = of(step("user", "q"), step("agent", calls=[call("a")], results=[gives("1", "z")]))
    assert (found.outcomes, found.aside) == (["unanswered_call"], {"id_mismatch": 1})


def test_a_result_without_an_id_does_not_answer_beside_one_that_names_the_call():
    found = of(step("user", "q"), step("agent", calls=[call("a")], results=[gives("stray"), gives("1", "a")]))
    assert (found.pairs, found.aside) == ([("f {}", "explicit_id", "1")], {"orphan_result": 1})


def test_the_result_of_a_message_does_not_go_to_an_open_call_of_the_step_before():
    found = of(step("user", "q"), step("agent", calls=[call(None)]), step("agent", "look", results=[gives("seen")]))
    assert found.pairs == [("look", "structural", "seen")]
    assert found.outcomes[0] == "unanswered_call"


def test_an_observation_of_a_step_that_did_nothing_answers_nothing():
    found = of(step("user", "q"), step("agent", calls=[call(None)]), step("agent", "", results=[gives("seen")]))
    assert (found.outcomes, found.aside) == (["unanswered_call"], {"empty_message": 1, "orphan_result": 1})


def test_agent_steps_in_a_row_are_one_turn():
    found = of(
        step("user", "q"), step("agent", "I look."), step("agent", calls=[call("a")], results=[gives("seen", "a")])
    )
    assert [(each.action.text, each.action.tool) for each in found.transitions] == [("I look.", "f")]


def test_an_empty_result_is_an_observation_and_a_reference_is_none():
    found = of(
        step("user", "q"),
        step("agent", calls=[call("a")], results=[gives(None, "a")]),
        step("agent", calls=[call("b")], results=[{"source_call_id": "b", "subagent_trajectory_ref": [{}]}]),
    )
    assert found.pairs == [("f {}", "explicit_id", "")]
    assert (found.outcomes[1], found.aside) == ("unanswered_call", {"harness_text": 1})


def test_copied_steps_are_seen_but_count_elsewhere():
    found = of(
        step("user", "q", is_copied_context=True),
        step("agent", "run", results=[gives("1")], is_copied_context=True),
        step("agent", "again", results=[gives("2")]),
    )
    assert found.pairs == [("again", "structural", "2")]
    assert [(each.task, each.recent) for each in found.transitions] == [("q", "1")]
    assert found.aside == {"replayed_history": 3}


def test_a_hand_off_ends_every_wait():
    found = of(
        step("user", "q"),
        step("agent", "done?"),
        step("system", "handed over", results=[]),
        step("system", "compacted", extra={"context_management": {"type": "compaction"}}),
        step("user", "yes"),
    )
    assert (found.outcomes, found.aside) == (
        ["terminal_no_observation"],
        {"harness_text": 1, "observation_without_action": 1},
    )


def test_steps_out_of_order_are_read_in_theirs():
    steps = [step("user", "q", step_id=1), step("agent", "a", step_id=2), step("user", "b", step_id=3)]
    assert of(*steps).pairs == of(*steps[::-1]).pairs == [("a", "user_reply", "b")]


def test_the_parts_of_a_session_name_their_parent():
    keys = [
        of(step("user", "q"), session_id=name).imported.traces[0].keys
        for name in ("run", "run-cont-2", "run-summarization-1-answers")
    ]
    assert keys == [
        ("session:run",),
        ("parent:run", "session:run-cont-2"),
        ("parent:run", "session:run-summarization-1-answers"),
    ]


def test_one_shared_session_is_told_apart_by_trajectory_and_continuation():
    docs = [
        document(step("user", "q"), step("agent", "a")),
        document(step("user", "q"), step("agent", "b"), trajectory_id="t"),
        document(step("user", "q"), step("agent", "c"), agent={"extra": {"continuation_index": 1}}),
        document(step("user", "q"), step("agent", "d"), session_id=None),
    ]
    assert len({trace.trace_id for trace in read(lines(*docs)).imported.traces}) == 4


def test_usage_is_unknown_as_soon_as_one_model_call_counts_nothing():
    counted = {"prompt_tokens": 3, "completion_tokens": 1, "cost_usd": 0.1}
    steps = [step("user", "q"), step("agent", "a", metrics=counted), step("agent", "b")]
    known = of(*steps[:2]).imported.traces[0]
    assert (known.usage, known.cost_nusd) == ((("completion_tokens", 1), ("prompt_tokens", 3)), 100_000_000)
    unknown = of(*steps, final_metrics={"total_prompt_tokens": 9}).imported.traces[0]
    assert (unknown.usage, unknown.cost_nusd) == (None, None)
    own = of(*steps[:2], step("agent", "b", is_copied_context=True), step("agent", "c", llm_call_count=0))
    assert own.imported.traces[0].usage == known.usage


def test_sums_are_exact_and_unknown_without_a_count():
    assert nano_dollars([0.1, 0.2]) == 300_000_000
    assert nano_dollars([]) is nano_dollars([0.1, None]) is nano_dollars([float("nan")]) is nano_dollars([True]) is None
    assert summed([{"a": 1, "b": 2}, {"a": 1}]) == (("a", 2),)
    assert summed([]) is summed([{"a": 1}, None]) is summed([{"a": -1}]) is summed([{"a": 2**53}]) is None
    assert pooled([(("a", 1),), (("a", 2), ("b", 1))]) == (("a", 3), ("b", 1), ("model_messages", 2))
    assert pooled([]) is pooled([(("a", 1),), None]) is None


def test_numbers_that_json_does_not_know_cost_nothing_else():
    metrics = {"prompt_tokens": 1, "cost_usd": float("nan")}
    found = of(
        step("user", "q"),
        step("agent", calls=[call("a", "f", {"x": [1.0]})], results=[gives("r", "a")], metrics=metrics),
    )
    assert found.pairs == [('f {"x": [1.0]}', "explicit_id", "r")]
    assert (found.imported.traces[0].usage, found.imported.traces[0].cost_nusd) == ((("prompt_tokens", 1),), None)


def test_a_message_with_an_image_is_quoted_as_it_stands():
    parts = [{"type": "text", "text": "see"}, {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]
    found = of(step("user", "q"), step("agent", "a"), step("user", parts))
    assert found.pairs == [("a", "user_reply", json.dumps(parts))]


def test_a_long_trajectory_is_read_once_for_all_its_arguments():
    steps = [step("agent", calls=[call("a", "f", {"n": at})], results=[gives("x" * 500, "a")]) for at in range(3_000)]
    started = time.perf_counter()
    assert len(read(lines(document(step("user", "q"), *steps))).transitions) == 3_000
    assert time.perf_counter() - started < 5  # by a reading a call it would be a minute


@pytest.mark.parametrize("bad", [[], [None], {"steps": {}}, {"schema_version": "ATIF-v1.7"}])
def test_what_is_no_trajectory_is_rejected_beside_one_that_is(bad: object):
    found = read(lines(document(step("user", "q"), step("agent", "a")), document() if bad == [] else bad))
    assert (len(found.imported.traces), found.rejected) == (1, [(2, "unknown_shape")])


def test_law_5_whatever_is_done_to_a_file_the_sums_hold(shared: Path):
    check_damage((DATA / "atif.json").read_bytes(), "atif", count=400)
    for name in SAMPLES:
        check_damage((shared / "samples" / "atif" / name).read_bytes(), "atif", count=40)


def test_law_15_no_result_is_taken_for_a_step():
    found = of(step("user", "q"), step("agent", calls=[call("a")], results=[gives(json.dumps(step("user", "x")), "a")]))
    assert [each.pairing for each in found.transitions] == ["explicit_id"]
