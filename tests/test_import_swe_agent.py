"""SWE-agent and mini-swe-agent: two views of one run, and tool output in the user's name."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, asks, chat, check_spans, check_sums, gives, lines, read, said, says
from evidence_cases import call as tool_call
from scaffold_cases import Numbers, check_damage, numbers_of

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import choose
from experiential_lab.evidence.importers.swe_agent import FORMATS
from experiential_lab.records import TraceFormatError

SWE, MINI = FORMATS
assert (SWE.name, MINI.name) == ("swe_agent", "mini_swe_agent")


def text_mode(steps: int, copies: int) -> Numbers:
    return Numbers(1, 1, {"structural": steps}, {}, {"duplicate_view": copies}, {})


# By hand: "human_thought" has 5 steps; its history has a system and a task message, 5 messages of the agent (each a content
# and an action: 10 copies) and 4 that show an observation (the last is never shown): 14 copies. "6e44b9" has 5 steps; its
# history has 4 calls with 4 results that name them, and no `submit`: 4 explicit, 1 structural, and 4 copies each of a
# thought, an action and what the message showed. In both "function_calling" files one id serves `bash` four times, and two
# ids serve two calls each: 8 of 11 are scoped.
CALLING = Numbers(1, 1, {"explicit_id": 3, "explicit_id_scoped": 8}, {}, {"duplicate_view": 33}, {})
MARSHMALLOW = "marshmallow-code__marshmallow-1867.traj"
SAMPLES = {
    "crypto__BabyEncryption.traj": text_mode(16, 44),
    "crypto__BabyTimeCapsule.traj": text_mode(9, 26),
    "crypto__katy.traj": text_mode(18, 53),
    "forensics__flash.traj": text_mode(4, 11),
    "gpt4__swe-agent-test-repo__default_from_url__t-0.00__p-0.95__c-3.00__install-1__6e44b9__sweagenttestrepo-1c2844.traj": (
        Numbers(1, 1, {"explicit_id": 4, "structural": 1}, {}, {"duplicate_view": 12}, {})
    ),
    "gpt4__swe-agent__test-repo__default_from_url__t-0.00__p-0.95__c-3.00__install-1__swe-agent__test-repo-i1.traj": (
        text_mode(5, 14)
    ),
    "gpt4__swe-bench-dev-easy_first_only__default__t-0.00__p-0.95__c-3.00__install-1__pydicom__pydicom-1458.traj": (
        text_mode(12, 35)
    ),
    "human_thought__swe-bench-HumanEvalFix-python__lcb__t-0.00__p-0.95__c-4.00__install-0__humanevalfix-python-0.traj": (
        text_mode(5, 14)
    ),
    "pwn__warmup.traj": text_mode(7, 20),
    "rev__rock.traj": text_mode(12, 35),
    **{
        f"replay__marshmallow-code__marshmallow-1867__{mode}__{MARSHMALLOW}": numbers
        for mode, numbers in {
            "default__t-0.20__p-0.95__c-2.00__install-1___install_from_source": text_mode(14, 41),
            "default_sys-env_cursors_window100__t-0.20__p-0.95__c-2.00__install-1": text_mode(12, 35),
            "default_sys-env_window100__t-0.20__p-0.95__c-2.00__install-1": text_mode(11, 32),
            "xml_sys-env_cursors_window100__t-0.20__p-0.95__c-2.00__install-1": text_mode(12, 35),
            "xml_sys-env_window100__t-0.20__p-0.95__c-2.00__install-1": text_mode(11, 32),
            "function_calling__install-1": CALLING,
            "function_calling_replace__install-1": CALLING,
        }.items()
    },
}


def checked(value: object) -> Read:
    found = read(lines(value))
    check_sums(found)
    check_spans(found)
    return found


def step(action: object, observation: object, thought: object = "", **more: object) -> dict[str, Any]:
    return {"action": action, "observation": observation, "thought": thought, "response": thought, **more}


def told(role: str, content: object, **more: object) -> dict[str, Any]:
    return {"role": role, "content": content, "agent": "main", **more}


def did(action: object, *calls: object, content: object = "I act.") -> dict[str, Any]:
    return told("assistant", content, action=action) | ({"tool_calls": list(calls)} if calls else {})


def run(steps: object = None, history: object = None, **more: object) -> dict[str, Any]:
    views = {"trajectory": steps, "history": history}
    return {key: value for key, value in views.items() if value is not None} | more


def mini(*messages: object, **info: object) -> dict[str, Any]:
    talk = [{"role": "system", "content": "Answer with bash."}, asks("do it"), *messages]
    return {"info": info, "messages": talk, "trajectory_format": "mini-swe-agent-1.1"}


# Files


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_run_has_its_numbers_and_every_span_opens(shared: Path, name: str):
    found = read((shared / "samples" / "swe-agent" / name).read_bytes())
    check_sums(found)
    assert check_spans(found) == sum(len(trace.events) for trace in found.imported.traces)
    assert (found.format, numbers_of(found)) == ("swe_agent", SAMPLES[name])
    assert [trace.complete for trace in found.imported.traces] == [True]
    assert [each.terminal for each in found.transitions] == [False] * (len(found.transitions) - 1) + [True]


def test_every_real_run_is_pinned(shared: Path):
    assert {path.name for path in (shared / "samples" / "swe-agent").iterdir()} == set(SAMPLES)


def test_each_step_of_a_real_run_is_answered_by_its_own_observation(shared: Path):
    for name in SAMPLES:
        data = (shared / "samples" / "swe-agent" / name).read_bytes()
        steps = json.loads(data)["trajectory"]
        found = read(data)
        assert len(found.transitions) == len(steps)
        for each, real in zip(found.transitions, steps, strict=True):
            framed = name.startswith("replay") and real["action"] == "submit"  # its message shows other line ends
            assert framed or each.observation == real["observation"]
            assert each.action.tool != "shell" or each.action.arguments == real["action"]


def test_the_demonstration_is_context_and_the_task_is_the_users_first_message(shared: Path):
    (name,) = (name for name in SAMPLES if "pydicom" in name)
    (trace,) = read((shared / "samples" / "swe-agent" / name).read_bytes()).imported.traces
    assert trace.task is not None
    assert trace.task.startswith("We're currently solving the following issue")
    assert trace.context is not None
    assert "Here is a demonstration" in trace.context
    assert trace.usage == (("api_calls", 12), ("tokens_received", 1369), ("tokens_sent", 122612))
    assert trace.cost_nusd == 1_267_190_000


def test_runs_of_one_problem_are_one_lineage_and_replays_count_no_tokens(shared: Path):
    names = [name for name in SAMPLES if "function_calling" in name or "default_sys-env_window100" in name]
    traces = [read((shared / "samples" / "swe-agent" / name).read_bytes()).imported.traces[0] for name in names]
    assert len({trace.keys for trace in traces}) == 1
    assert [key.split(":")[::2] for key in traces[0].keys] == [["task", "marshmallow-code__marshmallow-1867"]]
    assert {(trace.usage, trace.cost_nusd) for trace in traces} == {(None, None)}


def test_the_real_message_list_has_its_numbers(shared: Path):
    # By hand: a system and a task message, then ten messages of the agent, each with a user message behind it that shows
    # what its command put out; the last one shows the submission.
    found = read((shared / "samples" / "mini-swe-agent" / "github_issue.traj.json").read_bytes())
    check_sums(found)
    assert check_spans(found) == 22
    assert (found.format, numbers_of(found)) == ("mini_swe_agent", Numbers(1, 1, {"structural": 10}, {}, {}, {}))
    assert {each.observation_kind for each in found.transitions} == {"tool_result"}
    assert {each.observation_source for each in found.transitions} == {"environment"}
    assert found.transitions[4].observation == "<returncode>0</returncode>\n<output>\n</output>"


def test_our_own_run_counts_both_views_once():
    found = read((DATA / "swe_agent.json").read_bytes())
    check_sums(found)
    check_spans(found)
    assert found.pairs == [
        ("shell ls beds\n", "structural", "east\nwest\n"),
        ('water {"bed": "east"}', "explicit_id_scoped", ""),
        ('water {"bed": "west"}', "explicit_id_scoped", "no hose"),
        ("submit {}", "structural", "diff --git a b"),
    ]
    assert [outcome for outcome in found.outcomes if "_" in outcome] == [
        "no_authored_reply",  # a format error: the model said something and did nothing
        "explicit_id_scoped",
        "explicit_id_scoped",
        "unanswered_call",  # a command that was refused before it ran
    ]
    assert found.aside == {"duplicate_view": 11, "synthetic_assistant": 1, "harness_text": 1}


def test_our_own_run_names_its_task_context_usage_and_lineage():
    (trace,) = read((DATA / "swe_agent.json").read_bytes()).imported.traces
    assert (trace.task, trace.statement) == ("The east bed is dry: water it.", "Water the east bed.")
    assert trace.context == "You tend a garden by commands.\n\nI would rake.\n\nraked"
    assert (trace.name, trace.cost_nusd, trace.complete) == ("garden-12", 12_300_000, True)
    assert [key.split(":")[2] for key in trace.keys] == ["garden-12"]
    assert dict(trace.usage or ()) == {"api_calls": 7, "tokens_received": 40, "tokens_sent": 700}


def test_our_own_message_list_has_no_replies():
    found = read((DATA / "mini_swe_agent.json").read_bytes())
    check_sums(found)
    check_spans(found)
    assert [(each.pairing, each.observation_kind) for each in found.transitions] == [
        ("structural", "tool_result"),
        ("structural", "user_rejection"),
        ("structural", "tool_result"),
        ("structural", "tool_result"),
    ]
    assert found.outcomes.count("no_authored_reply") == 1
    assert found.aside == {"harness_text": 2, "observation_without_action": 1}


# Which format


def test_the_format_of_each_file_is_sniffed_and_of_no_other(shared: Path):
    for path in sorted((shared / "samples").glob("*/*")):
        values = [record.value for record in frame(path.read_bytes()).records[:50] if not record.reason]
        hits = {each.name for each in (SWE, MINI) for value in values if each.sniff(value)}
        assert hits == {"swe-agent": {"swe_agent"}, "mini-swe-agent": {"mini_swe_agent"}}.get(path.parent.name, set())
    for path in (shared / "cases").glob("*.jsonl"):
        values = [record.value for record in frame(path.read_bytes()).records if not record.reason]
        assert not [value for value in values if SWE.sniff(value) or MINI.sniff(value)]


@pytest.mark.parametrize(
    "value",
    [
        chat(asks("What does echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT do?"), says("It ends a run.")),
        chat(asks("q"), says("a"), asks("Use bash: mswea_bash_command")),
        chat(asks("q"), says("a"), metadata={"exit_status": "ok"}),
    ],
)
def test_a_chat_that_only_mentions_it_stays_a_chat(value: dict[str, Any]):
    assert choose(frame(lines(value)))[0].name == "openai_chat"


@pytest.mark.parametrize(
    "value",
    [
        mini(),
        {"info": {"exit_status": "Submitted", "submission": ""}, "messages": [asks("q")]},
        {"info": {"mini_version": "1.9"}, "messages": [asks("q")]},
        [{"role": "system", "content": "exactly ONE bash code block with ONE command"}, asks("q")],
    ],
)
def test_every_shape_of_message_list_is_known(value: object):
    assert choose(frame(lines(value)))[0].name == "mini_swe_agent"


def test_a_packed_file_is_read():
    data = gzip.compress((DATA / "swe_agent.json").read_bytes())
    assert len(read(data).transitions) == 4


# SWE-agent, one by one


def test_a_run_without_history_or_without_steps_is_still_a_run():
    only_steps = checked(run([step("ls", "a"), step("cat a", "")]))
    assert only_steps.pairs == [("shell ls", "structural", "a"), ("shell cat a", "structural", "")]
    history = [told("system", "s"), told("user", "task"), did("ls"), told("user", "a"), did("cat a")]
    only_history = checked(run(history=history))
    assert only_history.pairs == [("shell ls", "structural", "a")]
    assert (only_history.outcomes, only_history.imported.traces[0].task) == (["structural", "unanswered_call"], "task")


def test_an_action_of_one_view_alone_counts_in_its_place():
    history = [told("user", "task"), did("a"), told("user", "1\n$"), did("b"), told("user", "2\n$"), did("c")]
    found = checked(run([step("a", "1"), step("x", "9"), step("c", "3")], history))
    assert [action for action, _, _ in found.pairs] == ["shell a", "shell b", "shell x", "shell c"]
    assert [observation for _, _, observation in found.pairs] == ["1", "2\n$", "9", "3"]


def test_a_refused_action_and_its_second_try_are_not_the_same_step():
    history = [told("user", "t"), did("rm x", tool_call("k", "rm")), told("tool", "gone\n$", tool_call_ids=["k"])]
    found = checked(run([step("rm x", "", execution_time=0.0), step("rm x", "gone", execution_time=0.1)], history))
    assert found.outcomes == ["unanswered_call", "explicit_id"]


def test_a_message_that_does_not_hold_the_observation_is_the_result_itself():
    history = [told("user", "t"), did("cat big", tool_call("k", "cat")), told("tool", "cut", tool_call_ids=["k"])]
    found = checked(run([step("cat big", "x" * 99)], history))
    assert found.pairs == [("cat {}", "explicit_id", "cut")]


@pytest.mark.parametrize("ids", [None, [], [""], ["k", "l"], ["z"]])
def test_a_result_that_names_no_call_of_its_own_message_is_not_paired_by_id(ids: object):
    history = [told("user", "t"), did("f", tool_call("k", "f")), told("tool", "r", tool_call_ids=ids)]
    found = checked(run(history=history))
    assert found.outcomes == [("structural" if not ids or ids == [""] else "unanswered_call")]


def test_a_second_message_behind_an_action_answers_nothing():
    history = [told("user", "t"), did("f"), told("user", "r"), told("user", "hurry"), told("system", "note")]
    found = checked(run(history=history))
    assert (found.pairs, found.aside) == ([("shell f", "structural", "r")], {"harness_text": 2})


@pytest.mark.parametrize(
    "last",
    [
        step("exit_cost", "Exited (autosubmitted)", "Exit due to cost limit"),
        step("", "Exited (autosubmitted)", "Exit due to context window"),
        step("", "", "Exiting due to forfeit"),
    ],
)
def test_what_the_scaffold_wrote_to_end_a_run_is_no_step(last: dict[str, Any]):
    found = checked(run([step("ls", "a"), last]))
    assert found.outcomes == ["structural"]
    assert found.aside["synthetic_assistant"] >= 1


def test_an_empty_observation_is_one_if_the_action_was_run():
    found = checked(run([step("rm a", "", execution_time=0.2), step("rm b", ""), step("rm c", "", execution_time=0.0)]))
    assert found.outcomes == ["structural", "structural", "unanswered_call"]


def test_attempts_are_branches_and_the_chosen_one_counts_once():
    first, second = (run([step(name, f"{name}!")], [told("user", "t"), did(name)]) for name in ("a", "b"))
    found = checked(second | {"attempts": [first, second], "info": {}})
    assert sorted(found.pairs) == [("shell a", "structural", "a!"), ("shell b", "structural", "b!")]
    assert {each.task for each in found.transitions} == {"t"}
    alone = checked({"attempts": [first, second]})
    assert len(alone.transitions) == 2


def test_a_cut_run_config_costs_only_its_lineage_key():
    keys = [checked(run([step("a", "b")], replay_config=each)).imported.traces[0].keys for each in ("{", 3, "[]", {})]
    assert keys == [(), (), (), ()]


def test_law_15_no_observation_ends_a_run():
    found = checked(run([step("cat log", "exit_cost"), step("cat x", "Exit due to cost limit", "Exit due?")]))
    assert found.outcomes == ["structural", "structural"]


# mini-swe-agent, one by one


def test_tool_calls_are_answered_by_the_messages_that_name_them():
    found = checked(
        mini(
            says("both", tool_call("a", "bash", '{"command": "ls"}'), tool_call("b", "bash", '{"command": "pwd"}')),
            gives("a", "<returncode>0</returncode>", extra={"returncode": 0, "timestamp": 86_400.5}),
            gives("b", "<returncode>2</returncode>", extra={"returncode": 2}),
            says(None, tool_call("c", "bash", '{"command": "submit"}')),
            {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
            exit_status="Submitted",
        )
    )
    assert [(said(each), each.pairing, each.is_error) for each in found.transitions] == [
        ('bash {"command": "ls"}', "explicit_id", False),
        ('bash {"command": "pwd"}', "explicit_id", True),
    ]
    assert [each.at for each in found.transitions] == ["1970-01-02T00:00:00.500000Z", None]
    assert (found.outcomes[2], found.aside) == ("unanswered_call", {"harness_text": 1})
    assert found.imported.traces[0].complete is True


def test_a_body_of_the_responses_api_is_a_message_of_the_agent():
    items = [
        {"type": "reasoning", "summary": []},
        {"type": "message", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "k", "name": "bash", "arguments": '{"command": "ls"}'},
    ]
    answer = {"type": "function_call_output", "call_id": "k", "output": "a", "extra": {"returncode": 0}}
    found = checked(mini({"object": "response", "output": items, "usage": {"input_tokens": 4}}, answer))
    assert found.pairs == [('bash {"command": "ls"}', "explicit_id", "a")]
    assert found.transitions[0].action.text == "I look."
    assert found.imported.traces[0].usage == (("input_tokens", 4),)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (asks("Please always provide EXACTLY ONE action in triple backticks, found 2 actions."), "harness_text"),
        (asks("Format error:\n\n<error>x</error>"), "harness_text"),
        (asks("One command, please: found 3") | {"extra": {"interrupt_type": "FormatError"}}, "harness_text"),
        (asks("One command, please: found 3"), "harness_text"),  # as this run's own template begins
        (asks("Interrupted by user: wait"), "interrupt_marker"),
        (asks("The user added a new task: sweep"), "observation_without_action"),
    ],
)
def test_a_word_of_the_harness_is_no_output(message: object, reason: str):
    config = {"model": {"format_error_template": "One command, please: found {{ n }}"}}
    found = checked(mini(says("no command"), message, says("then this"), asks("<returncode>0"), config=config))
    assert found.pairs == [("then this", "structural", "<returncode>0")]
    assert (found.outcomes[0], found.aside) == ("no_authored_reply", {reason: 1})


def test_a_message_after_the_output_answers_nothing():
    found = checked(mini(says("ls"), asks("a"), asks(""), exit_status="LimitsExceeded"))
    assert (found.pairs, found.aside) == ([("ls", "structural", "a")], {"harness_text": 1})


def test_what_ended_a_run_by_an_exception_is_no_output():
    talk = [says("ls"), asks("a"), says("crash"), asks("Connection lost")]
    assert checked(mini(*talk, exit_status="RuntimeError")).outcomes == ["structural", "terminal_no_observation"]
    assert checked(mini(*talk, exit_status="Submitted")).outcomes == ["structural", "structural"]


def test_a_refused_call_is_answered_by_the_refusal_not_by_its_placeholder():
    placeholder = gives("k", "-1", extra={"exception_info": "action was not executed", "returncode": -1})
    refusal = asks("Commands not executed. No.") | {"extra": {"interrupt_type": "UserRejection"}}
    found = checked(mini(says(None, tool_call("k", "bash")), placeholder, refusal))
    assert [(each.observation_kind, each.observation_source) for each in found.transitions] == [
        ("user_rejection", "human")
    ]
    assert found.aside == {"harness_text": 1}


def test_usage_and_cost_are_the_models_own():
    counted = [says("a") | {"extra": {"response": {"usage": {"prompt_tokens": 5, "x": None}}}}, asks("r")]
    trace = checked(mini(*counted, *counted, model_stats={"instance_cost": 0.25})).imported.traces[0]
    assert (trace.usage, trace.cost_nusd) == ((("prompt_tokens", 10),), 250_000_000)
    trace = checked(mini(*counted, says("b"), model_stats={"instance_cost": 0.0})).imported.traces[0]
    assert (trace.usage, trace.cost_nusd) == (None, None)


def test_a_list_with_one_unreadable_message_loses_only_that():
    data = (DATA / "mini_swe_agent.json").read_bytes()
    hurt = read(data.replace(b"[", b"[7,", 1))
    check_sums(hurt)
    check_spans(hurt)
    assert (hurt.pairs, hurt.rejected) == (read(data).pairs, [(1, "not_object")])
    cut = read(data[:-30])
    check_sums(cut)
    assert [reason for _, reason in cut.rejected] == ["truncated"]


def test_a_file_without_a_message_is_refused():
    with pytest.raises(TraceFormatError, match="no record fits"):
        read(b'[{"a": 1}]', "mini_swe_agent")


@pytest.mark.parametrize("name", ["swe_agent", "mini_swe_agent"])
def test_law_5_whatever_is_done_to_a_file_the_sums_hold(name: str):
    check_damage((DATA / f"{name}.json").read_bytes(), name, count=400)


def test_law_5_whatever_is_done_to_a_real_file_the_sums_hold(shared: Path):
    for path in sorted((shared / "samples" / "swe-agent").iterdir())[:6]:
        check_damage(path.read_bytes(), "swe_agent", count=8)
    check_damage(
        (shared / "samples" / "mini-swe-agent" / "github_issue.traj.json").read_bytes(), "mini_swe_agent", count=60
    )
