"""The command line contract: keys, exit codes, one line of error, and text that cannot steer a terminal."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_cases import Xlab

from experiential_lab.lab import Lab, bundled


@pytest.fixture
def desk(xlab: Xlab) -> Xlab:
    """A workspace with the bundled desk, split and indexed."""
    for command in (("import", bundled("desk_tools.jsonl")), ("split",), ("index",)):
        assert xlab(*command).code == 0
    return xlab


def held_out(xlab: Xlab) -> dict[str, object]:
    return next(row for row in xlab("transitions", "--json").json if row["split"] == "held_out" and row["tool"])


def test_import_gives_the_sums_of_the_contract_and_they_hold(xlab: Xlab):
    done = xlab("import", bundled("desk_tools.jsonl"), "--ledger", "--json").json
    assert done["steps"] == done["transitions"] + sum(done["left_out"].values())
    assert done["records"] == done["records_used"] + sum(done["records_rejected"].values())
    assert done["events"] == sum(done["events_used"].values()) + sum(done["set_aside"].values())
    assert done["transitions"] == sum(done["pairing"].values())
    assert [row["outcome"] for row in done["ledger"]].count("explicit_id") == done["pairing"]["explicit_id"]
    assert set(done["ledger"][0]) == {"trace", "step", "action", "tool", "outcome", "observation"}


def test_the_numbers_of_the_airline_file(xlab: Xlab, airline: Path):
    done = xlab("import", airline, "--json").json
    wanted = {
        "records": 200,
        "traces": 200,
        "lineages": 50,
        "steps": 2454,
        "transitions": 2425,
        "pairing": {"explicit_id": 1020, "explicit_id_scoped": 144, "user_reply": 1261},
        "left_out": {"control_token_only": 29},
        "events": 5398,
        "events_used": {"step": 2544, "observation": 2425, "context": 400},
        "set_aside": {"control_token": 29},
    }
    assert {name: done[name] for name in wanted} == wanted


def test_split_index_and_nearest_give_the_keys_of_the_contract(desk: Xlab):
    assert {"families", "lineages", "fit", "held_out", "largest_family_share", "threshold"} <= set(
        desk("split", "--json").json
    )
    assert desk("index", "--json").json["embedder"] is None
    found = desk("nearest", "--transition", held_out(desk)["id"], "--json").json
    assert {"view", "support", "refused", "receipt", "hits"} <= set(found)
    wanted = {"rank", "id", "lineage", "position", "score", "parts", "pairing", "action", "observation"}
    assert set(found["hits"][0]) == wanted
    assert [hit["rank"] for hit in found["hits"]] == [1, 2, 3, 4, 5]
    assert all(sum(hit["parts"].values()) == hit["score"] for hit in found["hits"])


def test_a_recorded_step_never_finds_its_own_lineage_unless_the_boundary_says_so(desk: Xlab):
    step = held_out(desk)
    ask = ("nearest", "--transition", step["id"], "--view", "all", "-k", "50", "--json")
    assert step["lineage"] not in {hit["lineage"] for hit in desk(*ask).json["hits"]}
    near = desk(*ask, "--boundary", "self").json["hits"]
    assert step["lineage"] in {hit["lineage"] for hit in near}
    assert step["id"] not in {hit["id"] for hit in near}


def test_a_lineage_that_nobody_knows_is_refused_for_a_typing_error_would_let_it_in(desk: Xlab):
    step = held_out(desk)
    left_out = desk("nearest", "--action", "hello", "--view", "all", "--exclude", step["lineage"], "--json").json
    assert left_out["view"]["excluded"] == [{"level": "lineage", "value": step["lineage"]}]
    for command in (("nearest", "--action", "hello"), ("step", "--task", "x")):
        assert desk(*command, "--exclude", f"{step['lineage']}x").code == 2


def test_before_a_split_only_the_view_all_can_be_asked(xlab: Xlab):
    xlab("import", bundled("desk_tools.jsonl"))
    assert xlab("index").code == 0
    assert xlab("nearest", "--action", "hello", "--view", "all").code == 0
    refused = xlab("nearest", "--action", "hello")
    assert refused.code == 3
    assert "split" in refused.err


def test_step_prints_one_json_object_a_step_and_a_refusal_has_a_code(desk: Xlab):
    lines = 'Which order is it?\n\n{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}\nAnything else?\n'
    done = desk("step", "--task", "Cancel my order", "--json", stdin=lines)
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row.get("error", {}).get("code") for row in rows] == [None, "empty", "tool_call", None][: len(rows)]
    assert set(rows[0]) >= {"message", "terminal", "support", "receipt", "economics"}
    assert rows[0]["message"]["role"] == "user"
    assert set(rows[0]["economics"]) == {"world_model", "retrieval", "orchestration"}
    assert set(rows[0]["economics"]["retrieval"]) == {"usage", "cost_nusd", "basis", "latency_ns"}
    assert done.code == 4


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"role": "user", "content": "x"}, "unsupported_role"),
        ({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}}, "function_call"),
        ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, "audio"),
        ({"role": "assistant", "content": [{"type": "text", "text": "x"}]}, "not_text"),
        ({"role": "assistant", "content": "   "}, "empty"),
        ({"role": "assistant", "content": "x" * (1 << 20)}, "transcript_bytes"),
    ],
)
def test_a_session_action_that_is_no_plain_text_is_refused_with_its_code(
    desk: Xlab, message: dict[str, object], code: str
):
    done = desk("step", "--task", "Cancel my order", "--json", stdin=json.dumps(message) + "\n")
    assert (done.code, done.json["error"]["code"]) == (4, code)


def test_show_opens_traces_transitions_receipts_and_sources_by_the_beginning_of_their_ids(desk: Xlab):
    step = held_out(desk)
    opened = desk("show", step["id"], "--json").json
    assert (opened["kind"], opened["observation"]) == ("transition", step["observation"])
    assert opened["observation_text"]["text"] == step["observation"]
    assert opened["action_text"]["text"] == step["arguments"]
    trace = desk("show", step["trace"][:8], "--json").json
    assert (trace["kind"], trace["ledger"][0]["step"]) == ("trace", 0)
    receipt = desk("nearest", "--action", "hello", "--keep", "--json").json["receipt"]["digest"]
    assert desk("show", receipt, "--json").json["checks"] == {
        "shape and digest": "✓",
        "join with the stored snapshot": "✓",
    }
    assert desk("show", "0" * 16).code == 3
    assert desk("show", "abc").code == 2


@pytest.fixture
def mixed(xlab: Xlab, tmp_path: Path) -> Xlab:
    """A workspace with a conversation whose last call has no answer, a result that answers nothing, and a line that is none."""
    said = [{"role": "user", "content": "please"}, {"role": "assistant", "content": "which?"}]
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said += [{"role": "user", "content": "that"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    said += [{"role": "tool", "tool_call_id": "other", "content": "no answer"}]
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "t.jsonl").write_text(json.dumps({"messages": said}) + "\n{half a line\n")
    assert xlab("import", "logs").code == 0
    return xlab


def test_show_opens_a_step_that_was_left_out_with_its_reason_and_its_text(mixed: Xlab):
    (left,) = [row for row in mixed("transitions", "--ledger", "--json").json if row["reason"]]
    for ident in (f"{left['trace']}/{left['step']:04}", f"{left['trace'][:8]}/{left['step']}"):
        opened = mixed("show", ident, "--json").json
        assert (opened["kind"], opened["outcome"], opened["tool"]) == ("step", "unanswered_call", "look")
        assert opened["action_text"]["text"] == "{}"
    assert "no step has the id" in mixed("show", f"{left['trace']}/99").err


def test_show_opens_a_reason_as_all_that_ended_with_it_each_at_its_place(mixed: Xlab):
    opened = mixed("show", "id_mismatch", "--json").json
    assert (opened["kind"], opened["records"], opened["events"], opened["steps"]) == ("reason", 0, 1, 0)
    assert [(row["level"], row["excerpt"]) for row in opened["places"]] == [("event", "no answer")]
    assert opened["places"][0]["place"] == "logs/t.jsonl byte 0 /messages/4/content"
    assert mixed("show", "not_json", "--json").json["places"][0]["place"] == "logs/t.jsonl:2"
    step = mixed("show", "unanswered_call", "--json").json["places"][0]["place"]
    assert mixed("show", step, "--json").json["kind"] == "step"
    assert "logs/t.jsonl:2  record  {half a line" in mixed("show", "not_json").out


def test_show_opens_a_file_by_its_path_and_its_rejected_records_by_their_numbers(mixed: Xlab):
    for path in ("t.jsonl", "logs/t.jsonl"):
        source = mixed("show", path, "--json").json
        assert (source["kind"], source["rejected"][0]["place"]) == ("source", "logs/t.jsonl:2")
        record = mixed("show", f"{path}:2", "--json").json
        assert (record["kind"], record["reason"], record["excerpt"]) == ("record", "not_json", "{half a line")
    assert "was not rejected" in mixed("show", "t.jsonl:1").err
    assert mixed("show", "s.jsonl").code == 3


def test_a_path_that_several_files_end_with_is_refused_and_a_grown_log_opens_as_it_is_now(mixed: Xlab, tmp_path: Path):
    log = tmp_path / "logs" / "t.jsonl"
    log.write_text(log.read_text() + "{another\n")
    assert mixed("import", "logs").code == 0
    assert mixed("show", "t.jsonl", "--json").json["size_bytes"] == log.stat().st_size
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / "t.jsonl").write_bytes(bundled("desk_tools.jsonl").read_bytes())
    assert mixed("import", "u").code == 0
    refused = mixed("show", "t.jsonl")
    assert refused.code == 2
    assert "stands for 2 files" in refused.err


def test_show_opens_a_family_with_its_side_and_its_traces(desk: Xlab):
    step = held_out(desk)
    opened = desk("show", step["family"], "--json").json
    assert (opened["kind"], opened["split"]) == ("family", "held_out")
    assert step["lineage"] in opened["lineages"]
    assert step["trace"] in opened["traces"]


def test_an_import_gives_the_place_of_each_rejected_record_and_of_each_secret_but_not_the_secret(
    xlab: Xlab, tmp_path: Path
):
    key = "sk-" + "proj-" + "a1B2" * 8
    messages = [{"role": role, "content": f"{role} {key}"} for role in ("user", "assistant", "user")]
    (tmp_path / "t.jsonl").write_text(json.dumps({"messages": messages}) + "\n{half\n")
    said = xlab("import", "t.jsonl").out
    assert "t.jsonl:2  not_json  {half" in said
    assert "t.jsonl byte 48  provider key" in said
    done = xlab("import", "t.jsonl", "--json")
    assert [(row["path"], row["record"], row["reason"]) for row in done.json["rejected"]] == [
        ("t.jsonl", 2, "not_json")
    ]
    assert next(row["offset"] for row in done.json["secret_places"]) == 48
    assert key[:12] not in done.out


def test_files_stand_in_the_order_of_their_names_in_the_report(xlab: Xlab, tmp_path: Path):
    for name in "abcdef":
        (tmp_path / f"{name}.jsonl").write_bytes(bundled("desk_tools.jsonl").read_bytes() + b"{half " + name.encode())
    said = xlab("import", *(f"{name}.jsonl" for name in "fbdace")).out.splitlines()
    assert [line[0] for line in said if line[1:].startswith(".jsonl: ")] == list("abcdef")


def test_files_without_a_transition_are_refused_with_what_became_of_their_records(xlab: Xlab, tmp_path: Path):
    (tmp_path / "t.jsonl").write_text('{"messages": [{"role": "user", "content": "hello"}]}\n{half\n')
    done = xlab("import", "t.jsonl")
    assert done.code == 3
    assert "rejected records: 1 not_json" in done.err


def test_verify_finds_one_flipped_byte_and_exits_5(desk: Xlab, tmp_path: Path):
    assert desk("verify", "--json").json["ok"]
    log = tmp_path / ".lab" / "log.jsonl"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    done = desk("verify", "--json")
    assert done.code == 5
    assert [problem["artifact"] for problem in done.json["problems"]] == ["log.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nearest", "--action", "x"), 2),
        (("import", "nowhere.json"), 2),
        (("import",), 2),
        (("frobnicate",), 2),
        (("index", "--embedder", "oracle"), 4),
        (("step", "--task", "x", "--world-model", "openai:gpt"), 4),
        (("oracle", "make", "desk-tools", "--families", "1", "--out", "x.jsonl"), 2),
        (("transitions", "--workspace", "there"), 2),
    ],
)
def test_an_error_is_one_line_on_stderr_with_the_code_of_its_kind(xlab: Xlab, arguments: tuple[str, ...], code: int):
    done = xlab(*arguments)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1


def test_a_workspace_of_a_newer_schema_is_refused_with_both_numbers(desk: Xlab, tmp_path: Path):
    (tmp_path / ".lab" / "lab.json").write_text('{"schema":99}\n')
    done = desk("transitions")
    assert done.code == 4
    assert "99" in done.err
    assert "schema 1" in done.err


def test_no_transition_prints_the_report_and_exits_3(xlab: Xlab, tmp_path: Path):
    (tmp_path / "t.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}\n'
    )
    done = xlab("import", "t.jsonl", "--json")
    assert (done.code, done.json["left_out"]) == (3, {"terminal_no_observation": 1})
    assert not (tmp_path / ".lab").exists()


def test_law_15_trace_text_cannot_steer_a_terminal_and_markup_is_not_interpreted(xlab: Xlab, tmp_path: Path):
    evil = "\x1b[2J[red]boom[/red] \u202egnp \x9b31m"
    messages = [
        {"role": "user", "content": evil},
        {"role": "assistant", "content": evil},
        {"role": "user", "content": evil},
    ]
    (tmp_path / "t.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    done = xlab("import", "t.jsonl", "--ledger")
    assert done.code == 0
    xlab("index")
    shown = [done.out, xlab("transitions").out, xlab("show", xlab("transitions", "--json").json[0]["id"]).out]
    shown.append(xlab("nearest", "--action", "boom", "--view", "all").out)
    for text in shown:
        assert "[red]boom[/red]" in text
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)


def test_transitions_are_written_as_parquet_json_lines_and_csv(desk: Xlab, tmp_path: Path):
    for suffix in ("parquet", "jsonl", "csv"):
        assert desk("transitions", "--out", f"out/t.{suffix}").code == 0
        assert (tmp_path / "out" / f"t.{suffix}").stat().st_size > 1000
    assert desk("transitions", "--out", "t.xls").code == 2


def test_the_desk_is_made_as_it_is_bundled(xlab: Xlab, tmp_path: Path):
    assert xlab("oracle", "make", "desk-tools", "--out", "d.jsonl").code == 0
    assert (tmp_path / "d.jsonl").read_bytes() == bundled("desk_tools.jsonl").read_bytes()


def test_the_tour_walks_the_main_job_and_writes_figures_that_open_offline(xlab: Xlab, tmp_path: Path):
    done = xlab("tour", "--json").json
    assert done["import"]["transitions"] == done["import"]["steps"]
    assert len(done["session"]) == 3
    assert done["nearest"]["self"]["hits"] != done["nearest"]["lineage"]["hits"]
    (page,) = (Path(path).read_text() for path in done["figures"])
    assert all(title in page for title in done["findings"].values())
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", page)
    again = xlab("tour", "--json").json
    assert again["import"]["added"] == 0


def test_the_installed_script_and_the_module_are_one_program(tmp_path: Path):
    for command in ([str(Path(sys.executable).parent / "xlab")], [sys.executable, "-m", "experiential_lab"]):
        done = subprocess.run([*command, "show", "x", "-w", str(tmp_path / "none")], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no workspace" in done.stderr


def test_what_looks_like_a_secret_is_counted_and_masked_wherever_text_is_shown(xlab: Xlab, tmp_path: Path):
    key = "sk-" + "proj-" + "a1B2" * 8
    messages = [{"role": role, "content": f"{role} {key}"} for role in ("user", "assistant", "user")]
    (tmp_path / "t.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    done = xlab("import", "t.jsonl", "--ledger")
    assert "3 provider key" in done.out
    xlab("index")
    shown = [done, xlab("transitions"), xlab("nearest", "--action", "assistant", "--view", "all")]
    shown.append(xlab("show", xlab("transitions", "--json").json[0]["id"]))
    for each in shown:
        assert "[provider key]" in each.out
        assert key[:12] not in each.out


def test_forget_removes_a_source_and_show_opens_its_tombstone(desk: Xlab):
    source = desk("show", desk("show", held_out(desk)["trace"], "--json").json["source"], "--json").json["digest"]
    done = desk("forget", source[:20], "--why", "asked for", "--json").json
    assert done["source"] == source
    assert done["sources"] == 0
    assert desk("show", source, "--json").json["kind"] == "tombstone"
    assert desk("verify").code == 0
    assert desk("nearest", "--action", "x", "--view", "all").code == 5
    assert desk("forget", "f" * 12, "--why", "x").code == 3


def test_nearest_explains_itself_and_every_row_is_eligible_or_has_a_reason(xlab: Xlab):
    xlab("import", bundled("desk_tools.jsonl"))
    xlab("split")
    entries = xlab("index", "--json").json["entries"]
    step = xlab("transitions", "--json").json[7]["id"]
    asked = xlab("nearest", "--transition", step, "--view", "all", "--explain", "--json").json
    assert sum(asked["eligibility"].values()) == entries
    assert asked["eligibility"]["eligible"] == asked["view"]["visible"]
    assert sum(each["share"] for each in asked["tokens"]) == asked["hits"][0]["score"]
    assert {each["rank"] is None for each in asked["near_misses"]} == {True, False}
    assert "the sum holds" in xlab("nearest", "--transition", step, "--explain").out


def test_a_ranker_is_chosen_on_fit_families_and_the_index_pins_the_choice(xlab: Xlab):
    xlab("import", bundled("desk_tools.jsonl"))
    assert "run `split` first" in xlab("index", "--choose").err
    xlab("split")
    built = xlab("index", "--choose", "--json").json
    assert built["choice"]["winner"] in {each["candidate"]["name"] for each in built["choice"]["compared"]}
    artifact = Lab(".lab").store.latest("index_built").fields["artifact"]
    assert "ranker_choice" in Lab(".lab").store.inputs_of(artifact)
    assert xlab("index", "--choose", "--ranker", "dense").code == 2
    assert "chosen: " in xlab("index", "--choose").out


def test_nearest_and_a_session_refuse_what_no_certificate_supports(xlab: Xlab):
    xlab("import", bundled("desk_tools.jsonl"))
    xlab("split")
    xlab("index")
    asked = xlab("nearest", "--action", "Where is my parcel?", "--json").json
    assert asked["refused"].startswith("no supporting precedent (label A is not certified: ")
    assert asked["hits"]
    stepped = xlab("step", "--task", "help", "--refuse-below", "certified", "--json", stdin="Where is it?\n")
    assert (stepped.json["error"]["code"], stepped.code) == ("no_support", 4)
    assert "nothing was sent" in stepped.out
    assert "fit entries" in xlab("step", "--task", "t", "--refuse-below", "certified", "--view", "all", stdin="x\n").err


def test_an_index_may_hold_vectors_and_rank_by_them(xlab: Xlab):
    xlab("import", bundled("desk_tools.jsonl"))
    built = xlab("index", "--embedder", "hashed", "--ranker", "fused", "--json").json
    assert (built["embedder"], built["ranker"]) == ("hashed", "fused")
    asked = ("nearest", "--view", "all", "--tool", "get_order", "--args", '{"order_id": "W-24996"}', "--json")
    assert set(xlab(*asked).json["hits"][0]["parts"]) == {"sparse", "dense"}
    xlab("split")
    again = Lab(".lab").index()  # it was stale, and is made again as it was
    assert (again.config.fusion, again.embedder.model) == ("fused", "hashed")
    refused = xlab("index", "--ranker", "dense")
    assert (refused.code, "needs vectors" in refused.err) == (2, True)


def test_bench_says_each_bar_and_whether_it_holds(xlab: Xlab):
    done = xlab("bench", "8", "--json")
    first, second = done.json
    assert (first["goal"], first["bar"], first["rounds"]) == ("8", "<= 7", 15)
    assert second["bar"] == ">= 10"
    assert done.code == (0 if first["holds"] and second["holds"] else 1)
    assert "no bench is called '99'" in xlab("bench", "99").err


def test_on_a_narrow_screen_each_text_has_a_line_of_its_own_and_on_a_wide_one_a_hit_is_one_line(desk: Xlab):
    ask = ("nearest", "--tool", "get_order", "--args", '{"order_id": "W-24996"}', "-k", "1")
    _, head, first, action, observation, *_ = desk(*ask, width=80).out.splitlines()
    assert head.split() == ["rank", "score", "id", "lineage"]
    assert first.startswith("1     9,994,656  74fe7c9a/0000")
    assert action == '  action       get_order {"order_id": "W-24996"}'
    assert observation.startswith('  observation  {"order_id": "W-24996", "customer_id": "C-1014", ')
    assert (len(observation), observation[-1]) == (80, "…")
    wide = desk(*ask, width=140).out.splitlines()
    assert wide[1].split() == ["rank", "score", "id", "lineage", "action", "observation"]
    assert 'get_order {"order_id": "W-24996"}' in wide[2]


def test_a_comparison_of_rankers_fits_a_narrow_screen(desk: Xlab):
    shown = desk("index", "--choose", width=80).out
    assert "candidate            F1      best of k  exact   difference  interval" in shown
    assert re.search(r"^default {14}0\.\d{4}  0\.\d{4} ", shown, re.MULTILINE)
    assert "…" not in shown


def test_an_index_says_how_it_ranks_and_whose_vectors_it_holds(desk: Xlab):
    assert ", ranker sparse; " in desk("index").out
    assert ", ranker sparse, vectors of hashed, which do not rank; " in desk("index", "--embedder", "hashed").out
    assert ", ranker fused, vectors of hashed; " in desk("index", "--embedder", "hashed", "--ranker", "fused").out


def test_near_misses_say_what_left_them_out_and_what_the_last_hit_scores_beside_them(desk: Xlab):
    step = next(row["id"] for row in desk("transitions", "--json").json if row["split"] == "fit" and row["tool"])
    ask = ("nearest", "--transition", step, "--explain")
    shown = desk(*ask).out
    found = desk(*ask, "--json").json
    last = [row["score_all"] for row in found["near_misses"] if row["eligible"]][-1]
    assert re.search(r"^score +left out by +relation ", shown, re.MULTILINE)
    assert re.search(r"^[\d,]+ +lineage +own trace ", shown, re.MULTILINE)
    assert f"there the last hit scores {last:,}." in shown


def test_pieces_of_a_hit_that_are_not_shown_are_counted_and_a_hit_without_any_is_said(desk: Xlab):
    step = next(row["id"] for row in desk("transitions", "--json").json if row["split"] == "fit" and not row["tool"])
    shown, found = (desk("nearest", "--transition", step, "--explain", *more) for more in ((), ("--json",)))
    rest = [piece["share"] for piece in found.json["tokens"]][8:]
    assert f"{len(rest)} more pieces add {sum(rest):,}; --json gives all of them" in shown.out
    nothing = desk("nearest", "--action", "!!", "--view", "all", "--explain").out
    assert "hit 1 shares no feature that counts with what was asked" in nothing
    assert "second search" not in nothing  # which showed nothing


def test_a_group_of_commands_without_a_command_shows_its_help_once(xlab: Xlab):
    for group in ((), ("receipts",), ("oracle",)):
        shown = xlab(*group)
        assert (shown.code, shown.out.count("Usage:")) == (2, 1)


def test_a_bench_on_a_file_that_is_not_there_is_refused_also_where_the_goal_reads_none(xlab: Xlab):
    done = xlab("bench", "4", "--traces", "nowhere.jsonl")
    assert (done.code, done.err) == (2, "error: nowhere.jsonl does not exist\n")
