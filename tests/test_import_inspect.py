"""Inspect logs: both files of a log say the same, messages and events are one conversation, and the scaffold is no user."""

import io
import json
import os
import random
import subprocess
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from evidence_cases import DATA, Read, check_sums, lines, read, said
from scaffold_cases import check_damage, mutants

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import choose, inspect_logs
from experiential_lab.evidence.spans import files_of, open_span
from experiential_lab.evidence.trace import Trace
from experiential_lab.records import LabError, TraceFormatError

FIXTURE, ARCHIVE = DATA / "inspect_json.json", DATA / "inspect_eval.eval"


def check(found: Read) -> int:
    """Laws 4 and 5, and every span opens; members of an archive are files of their own. The number of events."""
    check_sums(found)
    files = dict(files_of(found.data))  # unpacked once
    events = [event for trace in found.imported.traces for event in trace.events]
    for event in events:
        opened = open_span(files[event.span.member], event.span)
        assert opened == event.text or (not event.text and event.span.end)
    return len(events)


# Logs made by hand


def log(*samples: object, **more: object) -> dict[str, Any]:
    about = {"eval_id": "e", "task": "t", "model": "m"}
    return {"version": 2, "status": "success", "eval": about, "plan": {"steps": []}, "samples": list(samples)} | more


def sample(*messages: object, **more: object) -> dict[str, Any]:
    return {"id": 1, "epoch": 1, "input": "q", "target": "", "messages": list(messages)} | more


def asks(content: object, **more: object) -> dict[str, Any]:
    return {"role": "user", "content": content} | more


def given(content: object) -> dict[str, Any]:
    return asks(content, source="input")


def says(content: object, *calls: object, **more: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content} | ({"tool_calls": list(calls)} if calls else {}) | more


def call(ident: object, function: object, **arguments: object) -> dict[str, Any]:
    return {"id": ident, "function": function, "arguments": arguments}


def gives(ident: object, content: object, **more: object) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": content} | more


def model(output: object, *history: object, **more: object) -> dict[str, Any]:
    output = {"choices": [{"message": output}]}
    return {"event": "model", "timestamp": "2026-01-01T00:00:00+01:00", "input": list(history), "output": output} | more


def tool(ident: object, result: object, **more: object) -> dict[str, Any]:
    about = {"event": "tool", "timestamp": "2026-01-01T00:00:01+01:00", "id": ident, "function": "f"}
    return about | {"arguments": {}, "result": result} | more


def span(ident: str, kind: str, parent: str | None = None, **more: object) -> dict[str, Any]:
    about = {"event": "span_begin", "timestamp": "2026-01-01T00:00:00+01:00", "id": ident, "name": ident}
    return about | {"type": kind, "parent_id": parent} | more


def read_log(*samples: object, **more: object) -> Read:
    found = read(json.dumps(log(*samples, **more)).encode())
    check(found)
    return found


def talk(*messages: object, **more: object) -> Read:
    return read_log(sample(*messages, **more))


def packed(members: dict[str, object]) -> bytes:
    """A zip as Inspect writes one; text stands as it is."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as pack:
        for name, value in members.items():
            pack.writestr(name, value if isinstance(value, str) else json.dumps(value))
    return data.getvalue()


# Faults that were reported for other tools


def test_case_15_numbers_that_are_none_are_read_and_the_log_is_not_refused(shared: Path):
    found = read((shared / "cases" / "15-inspect-nonfinite-numbers.jsonl").read_bytes())
    right = json.loads((shared / "cases" / "15-inspect-nonfinite-numbers.expected.json").read_text())
    check(found)
    assert found.format == right["format"]
    assert found.pairs == [
        (each["action"].replace(" {", " {"), each["pairing"], each["observation"]) for each in right["transitions"]
    ]
    assert found.outcomes == ["explicit_id", *(each["reason"] for each in right["rejects"])]


def test_infinity_inside_a_sample_and_in_arguments_keeps_its_exact_text():
    odd = sample(given("q"), says("", call("k", "f", x=float("-inf"))), gives("k", "r"), scores={"s": float("nan")})
    found = read_log(odd, sample(given("p"), says("", call("k", "f", y=1)), gives("k", "s"), id=2))
    assert [action for action, _, _ in found.pairs] == ['f {"x": -Infinity}', 'f {"y": 1}']


# Real files: (records, traces, steps, events, set aside, rejected); none holds a tool call or a second user message.

NUMBERS: dict[str, tuple[int, int, int, int, dict[str, int], dict[str, int]]] = {
    # 114 members: 100 samples, 13 of the log, and summaries.json; 2 x 100 summaries and 3 heads are records of their own
    "2025-09-23T08-09-58-04-00_popularity_DN2wbX2ZvACsBpjwptzBRo.eval": (
        *(303, 100, 100, 603),
        {"duplicate_view": 300, "harness_text": 3},
        {},
    ),
    # each sample has one call of a grader more
    "2025-09-23T08-09-58-04-00_security-guide_LuxZJVwvymC3S3SyoJczxB.eval": (
        *(51, 16, 16, 115),
        {"duplicate_view": 48, "harness_text": 19},
        {},
    ),
    "2025-09-23T08-09-58-04-00_theory-of-mind_bbB4eRCx2rFJLyPH42Cj9r.eval": (
        *(303, 100, 100, 603),
        {"duplicate_view": 300, "harness_text": 103},
        {},
    ),
    "test_eval_log__log_formats.eval": (6, 1, 1, 9, {"duplicate_view": 3, "harness_text": 3}, {}),
    "test_eval_log__log_formats.json": (1, 1, 1, 4, {"duplicate_view": 1}, {}),
    # read by hand: system text, a question and its image, the answer; 11 events as a second view
    "test_eval_log__log_images.json": (1, 1, 1, 5, {"duplicate_view": 1}, {}),
    "test_eval_log__log_read_sample.json": (1, 1, 1, 4, {"duplicate_view": 1}, {}),
    # read by hand: start, 4 samples (2 x 2 epochs), 4 + 4 summaries, reductions, header = 15; 4 x (system, user, answer)
    "test_eval_log__log_streaming.eval": (15, 4, 4, 27, {"duplicate_view": 12, "harness_text": 3}, {}),
    # read by hand: the task, a typed question (before any action: context), the answer; one call of a grader
    "test_list_logs__2024-11-05T13-31-45-05-00_input-task_8zXjbRzCWrL9GXiXo2vus9.json": (
        *(1, 1, 1, 5),
        {"duplicate_view": 1, "harness_text": 1},
        {},
    ),
    "test_list_logs__2024-11-05T13-32-37-05-00_input-task_hxs4q9azL3ySGkjJirypKZ.eval": (
        *(6, 1, 1, 10),
        {"duplicate_view": 3, "harness_text": 4},
        {},
    ),
    "test_list_logs__custom.eval": (6, 1, 1, 10, {"duplicate_view": 3, "harness_text": 4}, {}),
    "test_list_logs__ignore.json": (1, 1, 1, 5, {"duplicate_view": 1, "harness_text": 1}, {}),
    "test_logs__2025-05-12T20-28-13-04-00_no-samples.json": (1, 0, 0, 0, {}, {"unknown_shape": 1}),
    "test_logs__2025-05-12T20-28-13-04-00_popularity.json": (1, 3, 3, 12, {"duplicate_view": 3}, {}),
    "test_logs__2025-05-12T20-28-26-04-00_security-guide.json": (
        *(1, 3, 3, 15),
        {"duplicate_view": 3, "harness_text": 3},
        {},
    ),
    "test_logs_choices__mmlu-no-summary-choices.eval": (6, 1, 1, 8, {"duplicate_view": 3, "harness_text": 3}, {}),
    "test_logs_choices__mmlu-summary-choices.eval": (6, 1, 1, 8, {"duplicate_view": 3, "harness_text": 3}, {}),
    # events of a test of Inspect's viewer: every model call has an empty output
    **{
        f"test_skeleton__{name}.json": (1, 0, 0, 0, {}, {"unknown_shape": 1})
        for name in (
            *("basic", "escape_hatch", "gap_models", "leaf_tool_exclusion", "notable_caps", "notable_caps_uncapped"),
            *("parallel_spans", "steps_same_name"),
        )
    },
}


@pytest.mark.parametrize("name", NUMBERS)
def test_every_record_event_and_step_of_a_real_log_is_accounted_for(shared: Path, name: str):
    records, traces, steps, events, aside, rejected = NUMBERS[name]
    found = read((shared / "samples" / "inspect-ai" / name).read_bytes())
    assert found.format == ("inspect_eval" if name.endswith(".eval") else "inspect_json")
    assert check(found) == events
    assert (found.imported.records, len(found.imported.traces)) == (records, traces)
    assert found.outcomes == ["terminal_no_observation"] * steps
    assert found.aside == aside
    assert Counter(each.reason for each in found.imported.rejected) == rejected


def test_the_real_files_are_all_pinned_but_for_the_one_that_holds_nothing(shared: Path):
    names = {path.name for path in (shared / "samples" / "inspect-ai").iterdir()}
    assert names - set(NUMBERS) == {"test_skeleton__empty.json"}
    with pytest.raises(TraceFormatError, match="'description', 'events', 'expected'"):
        read((shared / "samples" / "inspect-ai" / "test_skeleton__empty.json").read_bytes())


def test_epochs_of_a_real_sample_are_one_lineage_and_so_are_runs_over_the_same_input(shared: Path):
    folder = shared / "samples" / "inspect-ai"
    streaming = read((folder / "test_eval_log__log_streaming.eval").read_bytes()).imported.traces
    keys = Counter(key for trace in streaming for key in trace.keys if key.startswith("task:"))
    assert sorted(keys.values()) == [2, 2]
    names = ("test_logs_choices__mmlu-no-summary-choices.eval", "test_logs_choices__mmlu-summary-choices.eval")
    one, two = ({key for t in read((folder / name).read_bytes()).imported.traces for key in t.keys} for name in names)
    assert len(one & two) == 1


def test_a_real_image_is_quoted_where_it_is_attached(shared: Path):
    found = read((shared / "samples" / "inspect-ai" / "test_eval_log__log_images.json").read_bytes())
    (event,) = (event for event in found.imported.traces[0].events if "attachments" in event.span.pointers[0])
    assert open_span(found.data, event.span).startswith("data:image/png;base64,")
    assert found.imported.traces[0].usage == (("input_tokens", 323), ("output_tokens", 3), ("total_tokens", 326))


def test_no_other_real_file_or_case_looks_like_a_log(shared: Path):
    others = [path for path in (shared / "samples").rglob("*.*") if path.parent.name not in ("inspect-ai", "samples")]
    for path in others + [path for path in (shared / "cases").iterdir() if not path.name.startswith("15-")]:
        try:
            values = [record.value for record in frame(path.read_bytes()).records if not record.reason][:1_000]
        except TraceFormatError:
            continue
        assert not any(each.sniff(value) for each in inspect_logs.FORMATS for value in values), path.name


# A second opinion: inspect_ai reads the same logs, and what it says is what we say

ORACLE = Path(os.environ.get("EXPERIENTIAL_LAB_ORACLE", DATA.parent.parent / ".venv-oracle" / "bin" / "python"))


def oracle(*arguments: str) -> dict[str, Any]:
    """{log: samples, or None} as inspect_ai reads them, in an environment of its own."""
    if os.environ.get("EXPERIENTIAL_LAB_DEEP") != "1":
        pytest.skip("reads the logs again with inspect_ai; make deep does it")
    if not ORACLE.exists():
        pytest.skip(f"needs inspect_ai in an environment of its own, and {ORACLE} is none; make deep makes it")
    script = str(Path(__file__).parent / "inspect_oracle.py")
    done = subprocess.run([ORACLE, script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def told(sample: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a sample holds according to inspect_ai, block by block."""
    found: list[tuple[Any, ...]] = []
    for each in sample["messages"]:
        texts = [text for kind, text in each["content"] if kind == "text"]
        if each["role"] == "tool":
            found.append(("tool", each["answers"], "\n".join(texts) or each["error"] or ""))
            continue
        speaker = "assistant" if each["role"] == "assistant" and not each["is_given"] else "others"
        is_plain = speaker == "others" or len(texts) == len(each["content"])
        blocks = [("text", "\n".join(texts))] if is_plain else each["content"]
        found += [(speaker if kind == "text" else kind, text) for kind, text in blocks if text]
        found += [("call", *made) for made in each["calls"]]
    return found


def heard(trace: Trace) -> list[tuple[Any, ...]]:
    """What we read of the messages of a sample, block by block."""
    found: list[tuple[Any, ...]] = []
    for event in trace.events:
        pointer = event.span.pointers[0] if event.span.pointers else ""
        is_attached = "/attachments/" in pointer and event.kind != "control"
        if "/messages/" not in pointer and not is_attached:
            continue  # a view of the conversation, and what stands beside it
        match event.kind:
            case "call":
                found.append(("call", event.call_id, event.tool, json.loads(event.text or "{}")))
            case "result":
                found.append(("tool", event.call_id, event.text))
            case kind if event.text:
                found.append(({"text": "assistant", "reasoning": kind}.get(kind, "others"), event.text))
    return found


def check_against_oracle(logs: dict[str, Any]) -> int:
    """The number of blocks on which both agree; they agree on all, on the samples, and on what was used."""
    blocks = 0
    for path, samples in logs.items():
        traces: tuple[Trace, ...] = ()
        with suppress(TraceFormatError):
            traces = read(Path(path).read_bytes()).imported.traces
        assert len(traces) == len(samples or ()), path
        by_name = {trace.name: trace for trace in traces}
        for sample in samples or ():
            trace = by_name[f"sample {sample['id']}, epoch {sample['epoch']}"]
            assert heard(trace) == told(sample) or not sample["messages"], path  # else the events are all that there is
            used: Counter[str] = Counter()
            for each in sample["usage"]:  # where it states none, we add up the model calls
                used.update({kind: count for kind, count in each.items() if kind != "total_cost"})
            assert trace.usage == tuple(sorted(used.items())) or not used, path
            blocks += len(told(sample))
    return blocks


def test_inspect_ai_reads_the_same_messages_calls_results_and_usage_in_all_real_logs(shared: Path):
    files = [str(path) for path in sorted((shared / "samples" / "inspect-ai").iterdir())]
    found = oracle(*files)
    assert sum(samples is not None for samples in found.values()) == 17  # the other nine are no logs to it either
    assert check_against_oracle(found) > 2 * 220


def test_inspect_ai_reads_the_same_in_logs_with_calls_that_it_has_just_written(tmp_path: Path):
    found = oracle("--make", str(tmp_path), str(FIXTURE), str(ARCHIVE))
    assert len(found) == 4
    assert check_against_oracle(found) > 0
    calls = [said for samples in found.values() for each in samples for said in told(each) if said[0] == "call"]
    assert len(calls) == 2 * 3 + 2 * (3 + 3)  # three in each log just written; three in each epoch of our own sample


# The project's own log


def test_a_log_says_the_same_as_an_archive_and_as_json():
    whole, archive = read(FIXTURE.read_bytes()), read(ARCHIVE.read_bytes())
    assert (whole.format, archive.format) == ("inspect_json", "inspect_eval")
    assert (check(whole), check(archive)) == (47, 56)
    # By hand: a looe sample has 3 calls, 3 texts of turns without calls; the nudge answers nothing, the last text ends it.
    epoch = ["explicit_id", "explicit_id", "user_reply", "explicit_id", "no_authored_reply", "terminal_no_observation"]
    scouts = ["explicit_id", "explicit_id", "explicit_id", "terminal_no_observation"]
    assert whole.outcomes == archive.outcomes == [*epoch, *epoch, *scouts]
    assert [each.observation for each in whole.transitions] == [each.observation for each in archive.transitions]
    assert [trace.trace_id for trace in whole.imported.traces] == [trace.trace_id for trace in archive.imported.traces]
    assert whole.aside == {"harness_text": 4, "duplicate_view": 2, "sidechain_prompt": 1}
    assert archive.aside == {"harness_text": 4 + 3, "duplicate_view": 2 + 6, "sidechain_prompt": 1}


def test_a_trace_of_the_log_names_its_keys_task_context_and_usage():
    one, two, three = read(ARCHIVE.read_bytes()).imported.traces
    assert (one.name, one.task, one.context) == (
        "sample looe, epoch 1",
        "When is high water here?",
        "You know the tides.",
    )
    assert set(one.keys) - set(two.keys) == {"session:sample-1"}
    assert one.usage == (("input_tokens", 69), ("output_tokens", 15), ("total_tokens", 84))
    assert (one.declared_tools, one.complete, three.complete) == (2, True, None)  # the third one ran into a limit
    assert [each.task for each in read(ARCHIVE.read_bytes()).transitions[-3:]] == [
        *("Find a port.", "Find a port.", "Find one near Looe.")
    ]


def test_transitions_of_the_log_know_who_answered_and_when():
    found = read(ARCHIVE.read_bytes()).transitions[:4]
    assert [(each.observation_kind, each.observation_source) for each in found] == [
        *(("tool_result", "environment"), ("tool_error", "environment")),
        *(("user_reply", "human"), ("user_rejection", "human")),
    ]
    assert [each.at for each in found] == [
        *("2026-03-02T09:00:05+01:00", "2026-03-02T09:00:06.500+01:00"),
        *(None, "2026-03-02T09:00:12.500+01:00"),
    ]
    assert found[0].observation.startswith("Low water at Looe")
    assert found[0].observation_span.pointers == ("/attachments/4c0f",)
    assert found[1].observation_span.pointers == ("/messages/4/error/message",)


# Turns and ids


def test_parallel_calls_pair_by_id_in_whatever_order_they_are_answered():
    both = says("I look.", call("a", "f", n=1), call("b", "f", n=2))
    found = talk(given("q"), both, gives("b", "two"), gives("a", ""))
    assert found.pairs == [('f {"n": 1}', "explicit_id", ""), ('f {"n": 2}', "explicit_id", "two")]
    assert [each.action.text for each in found.transitions] == ["I look.", "I look."]


def test_an_id_that_comes_again_counts_in_its_own_turn_and_one_that_matches_nothing_never():
    again = [says("", call("k", "f", n=n)) for n in (1, 2)]
    found = talk(given("q"), again[0], gives("k", "one"), again[1], gives("k", "two"), says("", call("x", "f")))
    assert [pairing for _, pairing, _ in found.pairs] == ["explicit_id_scoped", "explicit_id_scoped"]
    lost = talk(given("q"), says("", call("k", "f")), gives("z", "r", function="f"))
    assert (lost.outcomes, lost.aside) == (["unanswered_call"], {"id_mismatch": 1})


@pytest.mark.parametrize("nothing", ["", None])
def test_calls_without_ids_pair_by_name_and_order(nothing: object):
    calls = says("", call(nothing, "f", n=1), call(nothing, "f", n=2), call(nothing, None))
    found = talk(given("q"), calls, gives(nothing, "one", function="f"), gives(nothing, "two", function="f"))
    assert [(pairing, reply) for _, pairing, reply in found.pairs] == [("name_order", "one"), ("name_order", "two")]
    assert found.outcomes[2] == "call_without_name"


def test_a_call_without_arguments_exists_and_an_answer_without_anything_is_set_aside():
    bare = {"id": "k", "function": "f"}
    found = talk(given("q"), says(None, bare), gives("k", None), says(""), says([]), says(None, "x"))
    assert found.pairs == [("f {}", "explicit_id", "")]
    assert (found.aside, found.outcomes[1:]) == ({"empty_message": 2}, ["call_without_name"])


# Errors and refusals


def test_a_tools_error_is_what_the_model_saw():
    errors = [{"error": {"type": "timeout", "message": "too slow"}}, {"tool_error": "old"}, {"error": "odd"}, {}]
    calls = [call(str(number), "f") for number in range(4)]
    found = talk(given("q"), says("", *calls), *(gives(str(n), "", **error) for n, error in enumerate(errors)))
    assert [(each.observation, each.observation_kind) for each in found.transitions] == [
        *(("too slow", "tool_error"), ("old", "tool_error"), ("odd", "tool_error"), ("", "tool_result"))
    ]
    beside = talk(given("q"), says("", calls[0]), gives("0", "half of it", error={"type": "limit", "message": "cut"}))
    assert [(each.observation, each.is_error) for each in beside.transitions] == [("half of it", True)]


@pytest.mark.parametrize(("approver", "kind"), [("human", "user_rejection"), ("policy", "tool_error")])
def test_only_a_person_refuses_a_call(approver: str, kind: str):
    decision = {"event": "approval", "timestamp": "x", "approver": approver, "decision": "reject", "call": {"id": "k"}}
    refused = gives("k", "", error={"type": "approval", "message": "no"})
    found = talk(given("q"), says("", call("k", "f")), refused, events=[decision])
    assert [each.observation_kind for each in found.transitions] == [kind]


# Who speaks as the user


@pytest.mark.parametrize(
    ("message", "author"),
    [
        (asks("yes", source="operator"), "human"),
        (asks("yes", source="generate"), "simulated_user"),
        (asks("yes"), "unknown"),
    ],
)
def test_a_reply_says_who_wrote_it(message: dict[str, Any], author: str):
    found = talk(given("q"), says("a"), message)
    assert [(each.pairing, each.observation_source) for each in found.transitions] == [("user_reply", author)]


@pytest.mark.parametrize(
    "message",
    [
        given("more"),
        asks("Please proceed to the next step using your best judgement. If you are done, call `submit()`."),
        asks("\nYour submission was incorrect. Please proceed and attempt to find the correct answer.\n"),
        asks("The scout agent has completed its work."),
        asks("the picture", tool_call_id=["k"]),
        asks("Try harder, please."),
        asks("Unfortunately, the answer 7 is not what we were looking for."),
    ],
    ids=lambda message: message["content"][:20],
)
def test_what_the_scaffold_writes_is_no_reply(message: dict[str, Any]):
    steps = [
        {
            "solver": "own",
            "params": {"nudge": "Try harder, please.", "no": "Unfortunately, the answer {answer} is not it."},
        }
    ]
    found = read_log(sample(given("q"), says("a"), message, says("b")), plan={"steps": steps})
    assert (found.outcomes, found.aside) == (["no_authored_reply", "terminal_no_observation"], {"harness_text": 1})


def test_a_summary_of_the_history_is_no_reply():
    block = {"type": "data", "data": {"compaction_metadata": {"type": "openai_compact"}}}
    marks = [asks("[CONTEXT COMPACTION SUMMARY]\n\nso far"), asks("x", metadata={"summary": True}), asks([block])]
    for mark in marks:
        assert talk(given("q"), says("a"), mark, says("b")).aside == {"compaction_summary": 1}


def test_a_loop_writes_the_unsourced_messages_of_its_sample():
    talked = sample(given("q"), says("a"), asks("go"), says("b"), asks("well done", source="operator"))
    found = read_log(talked, plan={"steps": [{"solver": "inspect_ai/react"}]})
    assert (found.pairs, found.aside) == ([("b", "user_reply", "well done")], {"harness_text": 1})
    spans = talk(*talked["messages"], events=[span("react", "agent")])
    assert spans.pairs == found.pairs


def test_a_text_that_is_said_twice_is_a_template():
    found = talk(given("q"), says("a"), asks("Next."), says("b"), asks("Next."), says("c"), asks("Fine."))
    assert found.pairs == [("c", "user_reply", "Fine.")]


def test_a_model_that_plays_the_user_is_known_by_its_call():
    events = [model(says("Two seats.", id="u1"), asks("play a customer"))]
    found = talk(given("q"), says("How many?", id="a1"), asks("Two seats."), events=events)
    assert [each.observation_source for each in found.transitions] == ["simulated_user"]
    assert found.aside == {"harness_text": 1, "duplicate_view": 1}


def test_messages_before_the_first_action_are_context_and_examples_are_none_of_the_agents_acts():
    example = says("", call("x", "f"), source="input")
    found = talk(
        *({"role": "system", "content": "rules"}, given("one?"), example, gives("x", "r", source="input")),
        *(says("1", source="input"), given("two?"), says("2", source="generate"), asks("ok", source="operator")),
    )
    assert found.pairs == [("2", "user_reply", "ok")]
    assert (found.imported.traces[0].task, found.aside) == ("one?", {})
    old = talk(
        asks("one?"), says("1"), asks("two?"), says("2"), asks("ok"), input=[asks("one?"), says("1"), asks("two?")]
    )
    assert old.pairs == [("2", "user_reply", "ok")]


def test_the_first_request_answers_nothing_even_if_the_agent_spoke_before():
    found = talk(says("Welcome"), asks("Two seats", source="operator"), says("When?"), asks("Now", source="operator"))
    assert found.outcomes == ["no_authored_reply", "user_reply"]
    assert found.imported.traces[0].task == "Two seats"


def test_an_answer_that_no_model_gave_is_synthetic():
    found = talk(given("q"), says("prefilled"), asks("ok"), says("real", source="generate"), asks("fine"))
    assert (found.pairs, found.aside) == ([("real", "user_reply", "fine")], {"synthetic_assistant": 1})


def test_roles_that_no_rule_knows_are_set_aside_in_their_place():
    found = talk(given("q"), says("a"), None, "x", {"role": ["user"]}, {"role": "system", "content": "x"}, asks("b"))
    assert found.pairs == [("a", "user_reply", "b")]
    assert found.aside == {"unknown_role": 3, "harness_text": 1}


# Content


def test_references_are_looked_up_and_lost_ones_stay_what_they_are():
    held = {"attachments": {"a/b": "long", "~": "wavy"}, "transcript": {"content": {"c": "old"}}}
    said_ = [asks(f"{mark}", source="operator") for mark in ("attachment://a/b", "tc://c", "attachment://gone")]
    found = talk(
        *(given("attachment://~"), says("1"), said_[0], says("2"), said_[1], says("attachment://a/b"), said_[2]), **held
    )
    assert found.imported.traces[0].task == "wavy"
    assert [each.observation for each in found.transitions] == ["long", "old", "attachment://gone"]
    assert found.transitions[0].observation_span.pointers == ("/samples/0/attachments/a~1b",)
    assert found.transitions[2].action.text == "long"


def test_images_stand_beside_a_text_or_are_what_was_said():
    image, words = {"type": "image", "image": "attachment://i"}, {"type": "text", "text": "see"}
    calls = says("", call("a", "shoot"), call("b", "shoot"), call("c", "shoot"))
    shots = [gives("a", [image]), gives("b", [words, image]), gives("c", [words, image, words])]
    found = talk(given([words, image]), calls, *shots, attachments={"i": "data:image/png;base64,AA=="})
    assert [each.observation for each in found.transitions][:2] == ["data:image/png;base64,AA==", "see"]
    assert json.loads(found.transitions[2].observation) == [words, image, words]
    assert found.ledgers[0].used == {"step": 3, "observation": 3, "context": 1 + 1 + 1 + 1}


def test_reasoning_is_private_and_blocks_of_text_are_one_answer():
    thought = {"type": "reasoning", "reasoning": "hm"}
    hidden = {"type": "reasoning", "reasoning": "", "summary": "in short", "redacted": True}
    found = talk(given("q"), says([thought, hidden, {"type": "text", "text": "a"}]), asks("b"), says([thought]))
    assert (found.pairs, found.aside) == ([("a", "user_reply", "b")], {"reasoning": 1})
    texts = [{"type": "text", "text": text} for text in ("one", "two")]
    assert talk(given("q"), says(texts, reasoning="old"), asks("b")).pairs == [("one\ntwo", "user_reply", "b")]


def test_a_tool_that_the_provider_ran_holds_its_own_result():
    search = {"type": "tool_use", "id": "s", "name": "search", "arguments": '{"q":1}', "result": "found"}
    failed = search | {"result": "", "error": "offline"}
    found = talk(given("q"), says([search, failed, {"type": "text", "text": "So."}]), asks("ok"))
    assert found.pairs == [
        *(('search {"q":1}', "structural", "found"), ('search {"q":1}', "structural", "offline")),
        ("So.", "user_reply", "ok"),
    ]


# Events


def test_a_log_of_events_alone_counts_each_message_once():
    asked, one, result = given("q"), says("", call("k", "f", n=1)), gives("k", "r")
    two, reply, last = says("a"), asks("b"), says("", call("m", "f"))
    events = [
        *(model(one, asked), tool("k", "r"), model(two, asked, one, result)),
        *(model(last, asked, one, result, two, reply), tool("m", "done"), tool("n", "x")),
    ]
    found = read_log(sample(events=events))
    assert found.pairs == [
        *(('f {"n": 1}', "explicit_id", "r"), ("a", "user_reply", "b"), ("f {}", "explicit_id", "done"))
    ]
    assert [each.at for each in found.transitions] == ["2026-01-01T00:00:01+01:00", None, "2026-01-01T00:00:01+01:00"]
    bare = read(json.dumps({"events": events}).encode())
    check(bare)
    assert (bare.format, bare.pairs) == ("inspect_json", found.pairs)


def test_words_that_come_again_in_one_thread_are_said_again():
    asked, first, yes = given("q"), says("sure?"), asks("yes", source="operator")
    events = [
        *(model(first, asked), model(says("really?"), asked, first, yes)),
        model(says("ok"), asked, first, yes, says("really?"), yes),
    ]
    assert [reply for _, _, reply in read_log(sample(events=events)).pairs] == ["yes", "yes"]


def test_a_history_that_was_cut_is_a_branch_and_repeats_nothing():
    asked, one, result = given("q"), says("", call("k", "f", n=1), id="a1"), gives("k", "r", id="r1")
    two, later = says("", call("m", "f", n=2), id="a2"), gives("m", "s", id="r2")
    third = says("", call("o", "f", n=3), id="a3")
    events = [
        *(model(one, asked), model(two, asked, one, result)),
        *(model(third, asked, two, later), tool("o", "t")),  # the first call fell out of the window
    ]
    found = read_log(sample(events=events))
    assert [(said(each)[-9:], each.observation) for each in found.transitions] == [
        ('{"n": 1}'.rjust(9), "r"),
        (' {"n": 3}', "t"),
    ]
    assert found.outcomes == ["explicit_id", "unanswered_call", "explicit_id"]
    assert found.aside == {"replayed_history": 2, "observation_without_action": 1}


def test_calls_that_failed_or_are_pending_gave_nothing():
    asked, one = given("q"), says("", call("k", "f"))
    events = [model(one, asked, error="refused"), model(one, asked, pending=True), model(one, asked)]
    found = read_log(sample(events=[*events, tool("k", "early", pending=True), tool("m", "x")]))
    assert found.outcomes == ["unanswered_call"]
    twice = read_log(sample(events=[model(one, asked), tool("k", "1"), tool("k", "2")]))
    assert twice.outcomes == ["unanswered_call"]  # two tool events of one id tell nothing


def test_one_tool_event_answers_no_two_calls_of_one_id():
    one, two = (says("", call("k", "f", n=n)) for n in (1, 2))
    found = talk(given("q"), one, asks("wait", source="operator"), two, events=[tool("k", "r")])
    assert found.outcomes == ["unanswered_call", "unanswered_call"]


def test_a_sub_agent_is_a_branch_and_a_grader_is_none():
    asked, ask, told = given("q"), says("", call("k", "scout"), id="a1"), gives("k", "there", id="r1")
    sub, prompt = says("", call("s", "look"), id="b1"), given("look there")
    events = [
        *(span("A", "agent"), model(ask, asked, span_id="A"), span("B", "agent", "A")),
        *(model(sub, prompt, span_id="B"), tool("s", "sand"), span("S", "scorer")),
        model(says("GRADE: C", id="g"), asks("was it right?"), span_id="S"),
    ]
    found = talk(asked, ask, told, says("done", id="a2"), events=events)
    assert found.pairs == [("scout {}", "explicit_id", "there"), ("look {}", "explicit_id", "sand")]
    assert [each.task for each in found.transitions] == ["q", "look there"]
    assert found.aside == {"sidechain_prompt": 1, "harness_text": 1, "duplicate_view": 1}


def test_a_handoff_keeps_the_words_in_the_messages_and_the_acts_in_the_events():
    asked, hand = given("q"), says("", call("h", "transfer_to_scout"), id="a1")
    act, seen = says("", call("s", "look"), id="b1"), gives("s", "sand", id="r2")
    words, end = says("[scout] look()", id="b1"), says("[scout] sand", id="b2")
    events = [
        *(span("A", "agent"), model(hand, asked, span_id="A"), span("B", "agent", "A")),
        *(model(act, asked, hand, gives("h", "Over to scout.", id="r0"), span_id="B"), tool("s", "sand")),
        model(says("sand", id="b2"), asked, hand, gives("h", "Over to scout.", id="r0"), act, seen, span_id="B"),
    ]
    messages = [asked, hand, gives("h", "Over to scout.", id="r1"), words, asks("sand", id="r2"), end]
    found = talk(*messages, asks("The scout agent has completed its work."), says("Sand.", id="a2"), events=events)
    assert [pair for pair in found.pairs if pair[1] == "explicit_id"] == [
        *(("transfer_to_scout {}", "explicit_id", "Over to scout."), ("look {}", "explicit_id", "sand"))
    ]
    assert found.aside["duplicate_view"] == 3 + 1


def test_an_old_log_without_ids_is_seen_twice_and_counted_once():
    long, answer = "x" * 200, "y" * 200
    events = [model(says("attachment://2"), asks("attachment://1", source="input"))]
    found = talk(given(long), says(answer), asks("ok"), events=events, attachments={"1": long, "2": answer})
    assert found.pairs == [(answer, "user_reply", "ok")]
    assert found.aside == {"duplicate_view": 1}


def test_pools_of_messages_are_followed_and_odd_numbers_in_them_are_not():
    asked, one, result = given("q"), says("", call("k", "f"), id="a"), gives("k", "r", id="r")
    refs = [[0, 2], [2, 3], [-1, 2], ["x", 1], 7, [5, 9]]
    events = [model(one, input_refs=[[0, 1]]), model(says("a", id="b"), input_refs=refs)]
    found = read_log(sample(events=events, events_data={"messages": [asked, one, result]}))
    assert found.pairs == [("f {}", "explicit_id", "r")]


# Usage


def test_usage_is_the_sum_over_the_models_or_over_the_calls_and_never_both():
    def usage(**more: object) -> tuple[object, object]:
        (trace,) = talk(given("q"), says("a", id="a"), asks("b"), **more).imported.traces
        return trace.usage, trace.cost_nusd

    counts = {"input_tokens": 3, "output_tokens": 1, "reasoning_tokens": None, "odd": True}
    used = model(says("a", id="a"), given("q"))
    used["output"]["usage"] = {"input_tokens": 2, "total_cost": 0.0000015}
    priced = {"m": counts | {"total_cost": 0.25}, "g": {"input_tokens": 4, "total_cost": 0.00000125}}
    assert usage(model_usage={"m": counts, "g": {"input_tokens": 4}}) == (
        (("input_tokens", 7),),  # one model does not say what it gave out: the sum is unknown
        None,
    )
    assert usage(model_usage=priced, events=[used])[1] == 250_001_250
    assert usage(events=[used]) == ((("input_tokens", 2),), 1_500)
    assert usage(events=[used, model(says("c", id="c"), given("q"))]) == (None, None)  # one call states nothing
    assert usage() == (None, None)


def test_the_calls_that_a_sample_sums_up_are_not_added_to_its_sum_and_are_reported():
    used = model(says("a", id="a"), given("q"))
    used["output"]["usage"] = {"input_tokens": 2}
    counts = {"m": {"input_tokens": 2}}
    for more, repeated in (({"model_usage": counts, "events": [used]}, 1), ({"events": [used]}, 0)):
        (trace,) = talk(given("q"), says("a", id="a"), **more).imported.traces
        assert (trace.usage, trace.usage_repeated) == ((("input_tokens", 2),), repeated)
    (trace,) = talk(given("q"), says("a", id="a"), model_usage=counts).imported.traces
    assert (trace.usage, trace.usage_repeated) == ((("input_tokens", 2),), 0)


# Identity


def test_one_run_of_a_sample_is_one_trace_wherever_it_is_copied():
    told = sample(given("q"), says("a"), asks("b"))
    ids = [
        [trace.trace_id for trace in read_log(*some, **more).imported.traces]
        for some, more in (
            ([told], {}),
            ([told], {"eval": {"eval_id": "other"}}),
            ([told | {"uuid": "u"}], {}),
            ([told | {"uuid": "u"}], {"eval": {"eval_id": "retried"}}),
            ([told, told | {"epoch": 2}], {"eval": {}}),
        )
    ]
    assert ids[0] != ids[1]
    assert ids[2] == ids[3]
    assert len(set(ids[4])) == 2


def test_a_task_is_its_input_and_its_id_and_without_an_input_its_file():
    def key(**more: object) -> str:
        (trace,) = talk(given("q"), says("a"), asks("b"), **more).imported.traces
        return next(key for key in trace.keys if key.startswith("task:"))

    fresh = [given("q") | {"id": name} for name in ("m1", "m2")]
    assert key(epoch=1) == key(epoch=2) != key(input="p")
    assert key(input=[fresh[0]]) == key(input=[fresh[1]])
    assert key(input=None) != key(input=None, note=1)


def test_a_sample_that_ran_into_an_error_or_a_limit_is_not_complete():
    talked = sample(given("q"), says("", call("k", "f")), gives("k", "r"))
    flags = [{}, {"error": {"message": "x"}}, {"limit": {"type": "token"}}]
    assert [read_log(talked | flag).imported.traces[0].complete for flag in flags] == [True, None, None]
    assert read_log(talked, status="started").imported.traces[0].complete is None
    ended = talked | {"completed_at": "2026-01-01T00:00:00+00:00"}
    assert read_log(ended, status="started").imported.traces[0].complete is True


def test_a_sample_of_which_only_the_input_is_known_is_its_task():
    found = read_log(sample(), sample(id=2, input=[given("p")]), {"id": 3}, 7)
    assert [trace.task for trace in found.imported.traces] == ["q", "p"]
    assert (found.outcomes, found.aside) == ([], {"unknown_role": 2})


# Archives

HEAD = {name: log()[name] for name in ("version", "eval", "plan")}
TALK = sample(given("q"), says("", call("k", "f")), gives("k", "r"))


def test_an_archive_without_a_header_or_out_of_order_is_read():
    samples = {f"samples/{n}_epoch_1.json": TALK | {"id": n} for n in (1, 2)}
    interrupted = read(packed({"_journal/start.json": HEAD, **samples}))
    check(interrupted)
    assert (len(interrupted.transitions), interrupted.imported.traces[0].complete) == (2, None)
    late = read(packed({**samples, "header.json": log()}), "inspect_eval")
    assert [trace.trace_id for trace in late.imported.traces] == [t.trace_id for t in interrupted.imported.traces]


def test_an_archive_without_samples_is_an_honest_nothing():
    found = read(packed({"_journal/start.json": HEAD, "header.json": HEAD | {"status": "error"}, "summaries.json": []}))
    check(found)
    assert (found.imported.traces, found.rejected) == ((), [(1, "unknown_shape"), (1, "unknown_shape")])


def test_a_damaged_or_foreign_member_costs_itself_alone():
    chunks = {"id": 9, "epoch": 1, "input": "q", "message_refs": [[0, 1]]}
    members = {
        "_journal/start.json": HEAD,
        "samples/1_epoch_1.json": TALK,
        "samples/2_epoch_1.json": '{"id": 2, "epoch": 1, "messages": [',
        "samples/9_epoch_1/sample.json": chunks,
        "samples/9_epoch_1/messages/0.json": [given("q")],
        "notes.txt": "hello",
    }
    found = read(packed(members))
    check(found)
    assert len(found.transitions) == 1
    assert Counter(reason for _, reason in found.rejected) == {"unknown_shape": 2, "not_json": 2}


def test_a_member_that_was_written_again_counts_as_it_was_written_last():
    data = io.BytesIO(packed({"_journal/start.json": HEAD, "samples/1_epoch_1.json": TALK}))
    later = TALK | {"messages": [given("q"), says("", call("k", "f")), gives("k", "corrected")]}
    with zipfile.ZipFile(data, "a") as pack, pytest.warns(UserWarning, match="Duplicate name"):
        pack.writestr("samples/1_epoch_1.json", json.dumps(later))
    found = read(data.getvalue())
    check(found)
    assert [each.observation for each in found.transitions] == ["corrected"]
    assert found.rejected == [(1, "duplicate_record")]


def test_logs_in_one_file_are_each_read_with_their_own_head():
    one, two = log(TALK), log(TALK | {"id": 2}, eval={"eval_id": "other"}, status="error")
    found = read(lines(one, two, one, log(), {"x": 1}))
    check(found)
    assert [trace.complete for trace in found.imported.traces] == [True, None]
    assert found.rejected == [(3, "duplicate_record"), (4, "unknown_shape"), (5, "unknown_shape")]


# Which format


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (FIXTURE.read_bytes(), ("inspect_json", "version, eval and samples")),
        (ARCHIVE.read_bytes(), ("inspect_eval", "version and eval: the head of a log")),
        (json.dumps({"events": [span("A", "agent")]}).encode(), ("inspect_json", "events of a transcript")),
    ],
)
def test_the_rule_is_named_and_a_declared_format_wins(data: bytes, expected: tuple[str, str]):
    format, rule = choose(frame(data))
    assert (format.name, rule) == expected
    assert choose(frame(data), format.name)[1] == "declared"


def test_a_chat_is_no_log_even_if_it_is_called_one():
    with pytest.raises(TraceFormatError, match="inspect_json: it looks like openai_chat"):
        read(lines({"messages": [asks("q"), says("a")]}), "inspect_json")


# Damage


def test_whatever_is_done_to_a_log_the_sums_hold():
    check_damage(FIXTURE.read_bytes(), "inspect_json", count=300)


def test_whatever_is_done_to_an_archive_the_sums_hold():
    rng = random.Random(5)
    members = dict(files_of(ARCHIVE.read_bytes()))
    for seed in range(200):
        hurt: dict[str, object] = {name: data.decode() for name, data in members.items()}
        name = rng.choice(list(hurt))
        hurt[name] = next(mutants(members[name], count=1, seed=seed)).decode()
        with suppress(LabError):
            check(read(packed(dict(rng.sample(list(hurt.items()), len(hurt)))), "inspect_eval"))


def test_every_event_is_a_record_that_can_be_written():
    for trace in read(FIXTURE.read_bytes()).imported.traces:
        assert msgspec.json.decode(msgspec.json.encode(trace), type=type(trace)) == trace
