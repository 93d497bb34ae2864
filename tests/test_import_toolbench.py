"""ToolBench: the tree of a search, its branches, and the message lists that repeat one path of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import DATA, Read, check_spans, check_sums, lines, read, said
from scaffold_cases import Numbers, check_damage, numbers_of

from experiential_lab.evidence import importers
from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import choose
from experiential_lab.evidence.importers.toolbench import FORMATS
from experiential_lab.evidence.lineage import lineages_of
from experiential_lab.records import LabError, TraceFormatError


def pinned(answered: int, finish: int, left: int, *, replayed: int, views: int, harness: int) -> Numbers:
    reasons = {"unanswered_call": finish, "terminal_no_observation": left}
    aside = {"replayed_history": replayed, "duplicate_view": views, "harness_text": harness}
    some = [{reason: n for reason, n in each.items() if n} for each in (reasons, aside)]
    return Numbers(1, 1, {"structural": answered}, *some, {})


# By hand, "G1 10": three calls in a row, of which the last is `Finish` (code 3), whose answer is harness text. Its lists have
# 3, 5 and 7 messages: 3 + 5 are sent again; of the other seven the system text is context, six are views (the request, three
# calls, two results), and so are the candidate and the final answer: 8.
# "G2 119": 17 calls of tools with code 0, six `Finish` with code 4, and one thought without a child (21st expansion). Ten of
# its eleven second children come after an observation, which their branch repeats. Its lists are s u N ac, s u N ac r a and
# s u a,c r c r N ac (N: a nudge, ac: thought and call): 5 + 6 events are sent again (21), two nudges and six `Finish` are
# harness text (8), and the request, five blocks of actions and two results, with the final answer, are views (9).
# All twelve: 245 calls, as many as nodes with an `observation_code`, 22 of them with code 3 or 4; four thoughts without child.
SAMPLES = {
    "G1_answer__10": pinned(2, 1, 0, replayed=8, views=8, harness=1),
    "G1_answer__11": pinned(3, 1, 0, replayed=16, views=11, harness=1),
    "G1_answer__59": pinned(4, 1, 0, replayed=24, views=12, harness=1),
    "G1_answer__69": pinned(22, 2, 0, replayed=7, views=0, harness=2),
    "G2_answer__10": pinned(24, 6, 1, replayed=27, views=9, harness=6),
    "G2_answer__102": pinned(3, 1, 0, replayed=15, views=11, harness=1),
    "G2_answer__119": pinned(17, 6, 1, replayed=21, views=9, harness=8),
    "G2_answer__52": pinned(25, 1, 2, replayed=24, views=10, harness=2),
    "G3_answer__15": pinned(43, 1, 0, replayed=56, views=14, harness=3),
    "G3_answer__21": pinned(3, 1, 0, replayed=15, views=10, harness=1),
    "G3_answer__3": pinned(34, 1, 0, replayed=36, views=12, harness=3),
    "G3_answer__8": pinned(43, 0, 0, replayed=14, views=0, harness=0),
}
FIXTURE = DATA / "toolbench.json"


@pytest.fixture(autouse=True)
def every_format(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {each.name: each for each in (*importers.formats(), *FORMATS)}
    monkeypatch.setattr(importers, "formats", lambda: tuple(known.values()))


def of(*values: object) -> Read:
    found = read(lines(*values))
    check_sums(found)
    check_spans(found)
    return found


def sample(shared: Path, name: str) -> Path:
    return shared / "samples" / "toolbench" / f"{name}_ChatGPT_DFS_woFilter_w2.json"


def node(kind: str, description: object, *children: object, **more: object) -> dict[str, Any]:
    return {"node_type": kind, "description": description, **more, "children": list(children)}


def root(*children: object) -> dict[str, Any]:
    return node("Action Input", "", *children, expand_num=0)


def thought(said: object, *children: object, **more: object) -> dict[str, Any]:
    return node("Thought", said, *children, **more)


def call(tool: object, arguments: object, observation: object, *children: object, **more: object) -> dict[str, Any]:
    given = {"observation_code": 0, "expand_num": 1} | ({} if observation is None else {"observation": observation})
    return node("Action", tool, node("Action Input", arguments, *children, **given | more))


def tree(*children: object, query: object = "Find a mooring.", **answer: object) -> dict[str, Any]:
    return {"tree": {"size": 1, "tree": root(*children)}, "answer_generation": {"query": query, **answer}}


def asked(content: object, **more: object) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def acted(tool: object, arguments: object = "{}", content: object = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "function_call": {"name": tool, "arguments": arguments}}


def got(tool: object, content: object) -> dict[str, Any]:
    return {"role": "function", "name": tool, "content": content}


def grown(*messages: object, query: object = "Find a mooring.") -> dict[str, Any]:
    """An answer without a tree: a list a call, each with all that came before."""
    ends = [at + 1 for at, each in enumerate(messages) if isinstance(each, dict) and each.get("role") == "assistant"]
    return {"answer_generation": {"query": query, "train_messages": [list(messages[:end]) for end in ends]}}


# Files


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_file_has_its_numbers_and_every_span_opens(shared: Path, name: str):
    found = read(sample(shared, name).read_bytes())
    check_sums(found)
    assert check_spans(found) == sum(len(trace.events) for trace in found.imported.traces)
    assert (found.format, numbers_of(found)) == ("toolbench", SAMPLES[name])


def test_all_real_files_are_pinned(shared: Path):
    assert {path.name.split("_ChatGPT")[0] for path in (shared / "samples" / "toolbench").iterdir()} == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_each_step_saw_what_the_message_lists_of_its_file_say_that_it_saw(shared: Path, name: str):
    data = sample(shared, name).read_bytes()
    (trace,), found = read(data).imported.traces, read(data)
    lists = json.loads(data)["answer_generation"].get("train_messages", [])
    seen = {(said(each), each.recent, each.task) for each in found.transitions}
    for messages in lists:
        made, results = messages[-1].get("function_call"), [m["content"] for m in messages if m["role"] == "function"]
        if made is not None and made["name"] != "Finish":
            recent = results[-1] if results else None
            assert (f"{made['name']} {made['arguments']}", recent, trace.task) in seen
    assert {trace.context} == {messages[0]["content"] for messages in lists} or not lists


def test_every_tool_call_of_the_real_files_is_a_step_and_each_answered_one_a_transition(shared: Path):
    answered = finish = 0
    for name in SAMPLES:
        text = sample(shared, name).read_text()
        tree = json.loads(text)["tree"]
        codes = [int(part.split(",")[0].split("}")[0]) for part in json.dumps(tree).split('"observation_code": ')[1:]]
        rows = [row for ledger in read(text.encode()).ledgers for row in ledger.rows if row.tool]
        assert len(rows) == len(codes)
        answered += sum(row.transition_id is not None for row in rows)
        finish += sum(code in (3, 4) for code in codes)
    assert (answered, finish) == (223, 22)


# Our own file: five calls that tools answer, two that end a path, one thought that leads nowhere


def test_our_own_file_has_its_numbers():
    found = read(FIXTURE.read_bytes())
    check_sums(found)
    check_spans(found)
    assert numbers_of(found) == pinned(5, 2, 1, replayed=2 + 5, views=7, harness=3)
    assert found.pairs == [
        ('find_boats_for_harbour {"length": 6}', "structural", '{"error": "", "response": "two boats"}'),
        ('price_for_harbour {"boat": 1}', "structural", ""),
        ("login {}", "structural", '{"error": "No such function name: login", "response": ""}'),
        ('price_for_harbour {"boat": 2}', "structural", '{"error": "Message error...", "response": ""}'),
        ("tide_for_harbour {}", "structural", '{"error": "", "response": "high at nine"}'),
    ]


def test_a_branch_sees_what_its_own_path_saw():
    found = {said(each): each for each in read(FIXTURE.read_bytes()).transitions}
    recent = {action.split()[0] + action[-3:]: each.recent for action, each in found.items()}
    assert recent == {
        "find_boats_for_harbour 6}": None,
        "price_for_harbour 1}": '{"error": "", "response": "two boats"}',
        "login {}": "",
        "price_for_harbour 2}": "",
        "tide_for_harbour {}": None,
    }
    assert {each.task for each in found.values()} == {"Find me a boat of six metres."}


def test_a_thought_is_the_text_beside_its_call_and_what_the_codes_declare_is_an_error():
    found = read(FIXTURE.read_bytes()).transitions
    assert [each.action.text for each in found] == [
        None,
        "I look at prices.",
        "I cannot find a price.",
        "I try the other boat.",
        "Another way.",
    ]
    assert [each.observation_kind for each in found] == [
        *("tool_result", "tool_result", "tool_error", "tool_error", "tool_result")
    ]
    assert {each.observation_source for each in found} == {"environment"}


def test_a_trace_names_its_task_context_usage_and_key():
    (trace,) = read(FIXTURE.read_bytes()).imported.traces
    assert (trace.task, trace.context) == ("Find me a boat of six metres.", "You are a harbour clerk.")
    assert (trace.usage, trace.cost_nusd, trace.declared_tools) == (
        (("query_count", 8), ("total_tokens", 900)),
        None,
        4,
    )
    assert (trace.complete, trace.statement, len(trace.keys)) == (True, None, 1)
    assert {event.branch for event in trace.events if not event.aside} == {"", "branch1", "branch2", "branch3"}


def test_carriage_returns_change_no_transition():
    data = FIXTURE.read_bytes()
    assert read(data.replace(b"\n", b"\r\n")).pairs == read(data).pairs


def test_a_set_aside_view_says_where_it_stands():
    found = read(FIXTURE.read_bytes())
    views = [row.span.pointers[0] for row in found.ledgers[0].set_aside if row.reason == "duplicate_view"]
    assert views == [
        "/answer_generation/train_messages/0/1/content",
        "/answer_generation/train_messages/0/3/content",
        "/answer_generation/train_messages/0/3/function_call/arguments",
        "/answer_generation/train_messages/1/4/content",
        "/answer_generation/train_messages/1/5/function_call/arguments",
        "/compare_candidates/0",
        "/answer_generation/final_answer",
    ]


# The tree


def test_a_finish_that_is_refused_is_answered_and_one_that_is_accepted_ends_its_path():
    found = of(
        tree(
            call(
                "Finish",
                "{}",
                "no return_type",
                call("Finish", '{"a": 1}', "bye", observation_code=3),
                observation_code=2,
            )
        )
    )
    assert found.pairs == [("Finish {}", "structural", "no return_type")]
    assert (found.outcomes, found.aside) == (["structural", "unanswered_call"], {"harness_text": 1})


def test_that_a_finish_was_accepted_is_no_observation_to_go_on_from():
    found = of(tree(call("Finish", "{}", "bye", call("f", "{}", "1"), call("g", "{}", "2"), observation_code=3)))
    assert [each.recent for each in found.transitions] == [None, None]


def test_a_finish_without_a_code_is_terminal():
    data = tree(call("Finish", "{}", "bye", observation_code=None))
    assert of(data).outcomes == ["unanswered_call"]


@pytest.mark.parametrize(
    ("code", "is_error"),
    [(0, False), (1, True), (2, True), (5, True), (12, True), (13, None), (True, None), ("1", None), (None, None)],
)
def test_only_the_codes_of_the_format_declare_an_error(code: object, is_error: bool | None):
    (found,) = of(tree(call("f", "{}", "x", observation_code=code))).transitions
    assert found.is_error is is_error


def test_a_code_without_an_observation_is_an_empty_answer_and_neither_is_none():
    assert of(tree(call("f", "{}", None))).pairs == [("f {}", "structural", "")]
    assert of(tree(call("f", "{}", None, observation_code=None))).outcomes == ["unanswered_call"]


def test_calls_of_one_output_share_their_turn_and_see_nothing_of_each_other():
    second = call("g", "{}", "two", call("h", "{}", "three", expand_num=3), expand_num=2)
    found = of(tree(call("e", "{}", "zero", thought("Both.", call("f", "{}", "one", second, expand_num=0)))))
    assert [(said(each), each.recent, each.action.text) for each in found.transitions] == [
        ("e {}", None, None),
        ("f {}", "zero", "Both."),
        ("g {}", "zero", "Both."),
        ("h {}", "two", None),
    ]


def test_a_tree_that_counts_no_expansions_is_one_call_a_turn():
    found = of(tree(call("f", "{}", "one", call("g", "{}", "two", expand_num=0), expand_num=0)))
    assert [each.recent for each in found.transitions] == [None, "one"]


def test_text_without_a_call_is_a_step_that_nobody_answers():
    found = of(tree(call("f", "{}", "one", thought("That is all."), thought("Or is it?"))))
    assert found.outcomes == ["structural", "terminal_no_observation", "terminal_no_observation"]


def test_calls_without_a_name_an_input_or_a_description_are_steps_all_the_same():
    found = of(
        tree(
            node("Action", "f"),
            node("Action", None, node("Action Input", "{}", observation="x")),
            node("Action", "g", node("Action Input", None, observation="y", observation_code=0)),
            node("Action Input", "{}", observation="z"),
            thought(""),
        )
    )
    assert found.outcomes == ["unanswered_call", "call_without_name", "structural", "call_without_name"]
    assert found.pairs == [("g {}", "structural", "y")]
    assert found.aside == {"orphan_result": 2, "empty_message": 1}


def test_what_is_no_node_is_set_aside_in_its_place():
    odd = [7, "text", None, [], {}, {"node_type": "Reflection", "description": "x"}, thought("t") | {"children": "x"}]
    found = of(tree(*odd, thought("t", messages=["user"], observation="late")))
    assert found.aside == {"unknown_role": 7, "duplicate_view": 1, "orphan_result": 1}
    assert found.outcomes == ["terminal_no_observation"] * 2


def test_a_deep_tree_is_read():
    value = call("f", "{}", "last")
    for at in range(90):
        value = call("f", "{}", str(at), value)
    found = of(tree(value))
    assert len(found.transitions) == 91
    assert found.transitions[-1].recent == "0"


# Message lists


def test_case_23_reads_the_same_where_the_lists_stand_in_one_answer(shared: Path):
    data = (shared / "cases" / "23-legacy-function-call-growing-prefix.jsonl").read_bytes()
    lists = [json.loads(line)["messages"] for line in data.splitlines()]
    found = of({"answer_generation": {"train_messages": lists}})
    assert (found.format, found.aside) == ("toolbench", {"replayed_history": 2 + 4})
    assert found.pairs == read(data).pairs
    assert found.outcomes == ["name_order", "name_order", "terminal_no_observation"]


def test_growing_lists_without_a_tree_give_each_message_once():
    found = of(
        grown(
            {"role": "system", "content": "You moor boats."},
            asked("\nFind a mooring.\nBegin!\n"),
            acted("look", '{"at": 1}'),
            got("look", "taken"),
            acted("look", '{"at": 2}', "Next."),
            got("look", ""),
            acted("Finish"),
        )
    )
    assert found.pairs == [('look {"at": 1}', "name_order", "taken"), ('look {"at": 2}', "name_order", "")]
    assert (found.outcomes[2:], found.aside) == (["unanswered_call"], {"duplicate_view": 1, "replayed_history": 3 + 6})
    assert [each.recent for each in found.transitions] == [None, "taken"]
    (trace,) = found.imported.traces
    assert (trace.task, trace.context) == ("Find a mooring.", "You moor boats.")


def test_a_nudge_is_harness_text_once_and_hides_no_prefix():
    nudge, one, two = asked("Not the first time. " * 3, valid=False), acted("look"), got("look", "taken")
    lists = [[asked("go"), nudge, one], [asked("go"), one, two, asked("Try again."), acted("Finish")]]
    found = of({"answer_generation": {"train_messages": lists}})
    assert found.pairs == [("look {}", "name_order", "taken")]
    assert found.aside == {"harness_text": 2, "replayed_history": 2}


def test_a_nudge_before_the_request_is_not_the_task():
    found = of({"answer_generation": {"train_messages": [[asked("Again.", valid=False), asked("go"), acted("f")]]}})
    assert (found.imported.traces[0].task, found.aside) == ("go", {"harness_text": 1})


def test_a_list_that_goes_on_otherwise_is_a_branch():
    start = [asked("go"), acted("look"), got("look", "taken")]
    lists = [[*start, acted("f"), got("f", "1")], [*start, acted("g"), got("g", "2")], [asked("else"), acted("h")]]
    found = of({"answer_generation": {"train_messages": lists}})
    assert found.pairs == [
        ("look {}", "name_order", "taken"),
        ("f {}", "name_order", "1"),
        ("g {}", "name_order", "2"),
    ]
    assert [each.recent for each in found.transitions] == [None, "taken", "taken"]
    assert {each.task for each in found.transitions} == {"go"}
    assert [row.branch for row in found.ledgers[0].rows] == ["", "", "list1", "list2"]
    assert (found.outcomes[3:], found.aside) == (["unanswered_call"], {"replayed_history": 3})


def test_a_tool_that_does_not_exist_is_a_view_under_the_name_that_messages_give_it():
    name = "invalid_hallucination_function_name"
    lists = [[asked("Find a mooring."), acted(name, "{}"), got(name, "no such tool"), acted("Finish")]]
    search = call("login", "{}", "no such tool", call("Finish", "{}", "bye", observation_code=4), observation_code=1)
    found = of(tree(search, train_messages=lists))
    assert found.pairs == [("login {}", "structural", "no such tool")]
    assert found.aside == {"harness_text": 1, "duplicate_view": 4}


def test_a_message_that_the_tree_does_not_hold_is_no_view_of_it():
    lists = [[asked("Find a mooring."), acted("f"), got("f", "one"), acted("g"), got("g", "two"), got("f", "other")]]
    found = of(tree(call("f", "{}", "one"), train_messages=lists))
    assert found.pairs == [("f {}", "structural", "one"), ("g {}", "name_order", "two")]
    assert found.aside == {"duplicate_view": 3, "orphan_result": 1}


def test_a_request_that_is_not_the_query_is_context():
    found = of(tree(call("f", "{}", "one"), train_messages=[[asked("Something else.")]]))
    assert (found.imported.traces[0].task, found.imported.traces[0].context) == ("Find a mooring.", "Something else.")
    found = of(tree(call("f", "{}", "one"), query=None, train_messages=[[asked("Something else.")]]))
    assert [each.task for each in found.transitions] == ["Something else."]


def test_what_is_no_list_of_messages_is_set_aside_in_its_place():
    found = of(tree(call("f", "{}", "one"), train_messages=["x", [7, {"role": "narrator"}, None]]))
    assert found.aside == {"unknown_role": 4}
    assert of(tree(call("f", "{}", "one"), train_messages={"a": 1})).aside == {"unknown_role": 1}


# Tries


def test_tries_are_chains_of_nodes_each_a_branch():
    def chain(tool: str, observation: str, *more: dict[str, Any]) -> dict[str, Any]:
        nodes = [thought("Hm."), node("Action", tool), node("Action Input", "{}", observation=observation), *more]
        return {"chain": [{key: value for key, value in each.items() if key != "children"} for each in nodes]}

    value = {
        "win": True,
        "trys": [chain("f", "1", thought("So.")), chain("g", "2")],
        "answer_generation": {"query": "Find a mooring.", "train_messages": []},
    }
    found = of(value)
    assert (found.format, found.imported.traces[0].complete) == ("toolbench", True)
    assert found.pairs == [("f {}", "structural", "1"), ("g {}", "structural", "2")]
    assert [each.recent for each in found.transitions] == [None, None]
    assert found.outcomes == ["structural", "terminal_no_observation", "structural"]
    assert of(value | tree(call("f", "{}", "1"))).aside == {"duplicate_view": 1}


# Runs and files


def test_two_runs_of_one_query_are_two_traces_of_one_lineage():
    found = of(tree(call("f", "{}", "one")), tree(call("g", "{}", "two")), tree(call("f", "{}", "3"), query="Other."))
    traces = found.imported.traces
    assert len({trace.trace_id for trace in traces}) == 3
    assert traces[0].keys == traces[1].keys != traces[2].keys
    assert len(set(lineages_of(traces).values())) == 2


def test_no_count_of_tokens_is_unknown_usage():
    def used(**answer: object) -> object:
        return of(tree(call("f", "{}", "x"), **answer)).imported.traces[0].usage

    assert used(total_tokens=7, query_count=2) == (("query_count", 2), ("total_tokens", 7))
    assert used(total_tokens=7) == (("total_tokens", 7),)
    assert used(total_tokens=0, query_count=2) is used(query_count=2) is used(total_tokens=-1) is None


@pytest.mark.parametrize(
    "value",
    [
        {"tree": {"tree": {"node_type": "x"}}},
        {"tree": [1]},
        {"answer_generation": {"query": "q", "train_messages": []}},
        {"answer_generation": {"train_messages": [["x"]]}},
        {"id": "q", "conversations": [{"from": "user", "value": "x"}]},
    ],
)
def test_an_object_without_steps_is_no_answer(value: object):
    with pytest.raises(TraceFormatError, match="no known format"):
        read(lines(value))


def test_a_record_of_another_shape_is_rejected_beside_an_answer():
    found = of(tree(call("f", "{}", "x")), {"answer_generation": {}}, [1])
    assert (len(found.transitions), found.rejected) == (1, [(2, "unknown_shape"), (3, "unknown_shape")])


def test_a_broken_tree_leaves_the_lists_to_be_read_and_is_set_aside():
    value = grown(asked("Find a mooring."), acted("f"), got("f", "one"), acted("Finish")) | {"tree": {"tree": "cut"}}
    found = of(value)
    assert found.pairs == [("f {}", "name_order", "one")]
    assert found.aside["unknown_role"] == 1


def test_the_format_is_sniffed_and_the_rule_is_named():
    assert choose(frame(FIXTURE.read_bytes()))[1] == "a tree or tries of nodes with node_type and description"
    assert choose(frame(lines(grown(asked("q"), acted("f")))))[1] == "answer_generation with lists of train_messages"


def test_no_other_real_file_is_taken_for_an_answer(shared: Path):
    for path in sorted([*(shared / "samples").glob("*/*"), *(shared / "cases").glob("*.jsonl")]):
        if path.parent.name != "toolbench":
            try:
                records = frame(path.read_bytes()).records
            except LabError:
                continue
            assert not any(FORMATS[0].sniff(record.value) for record in records), path


def test_damage_never_raises_and_the_sums_hold():
    check_damage(FIXTURE.read_bytes(), "toolbench", count=300)
    lists = grown(asked("q"), acted("f"), got("f", "1"), asked("n", valid=False), acted("g"), got("g", "2"), acted("h"))
    check_damage(lines(lists), "toolbench", count=200)


def test_damage_to_a_real_file_never_raises(shared: Path):
    check_damage(sample(shared, "G1_answer__11").read_bytes(), "toolbench", count=60)
