"""A workspace and what it knows: imports count once, sums hold, and nothing is left half done."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from backports.zstd import zipfile as zstd_zip

from experiential_lab import Declared, Lab, Query, Unverifiable
from experiential_lab.evidence import framing, spool
from experiential_lab.evidence.report import import_files
from experiential_lab.evidence.trace import Transition
from experiential_lab.records import IntegrityError, LimitError, NoEvidence, StaleError, TraceFormatError, UsageError
from experiential_lab.retrieval.receipts import verify_durable


def chat(number: int, said: str = "packed") -> str:
    """One conversation with one call and its result, and one message and its reply."""
    call = {"id": "k1", "type": "function", "function": {"name": "lookup", "arguments": f'{{"id":{number}}}'}}
    messages = [
        {"role": "user", "content": f"Where is order {number}, the one from {number} May?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "k1", "content": f"{said} {number}"},
        {"role": "assistant", "content": f"Order {number} is {said}."},
        {"role": "user", "content": "Thank you"},
    ]
    return json.dumps({"conversation": f"c{number}", "messages": messages}) + "\n"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


def written(folder: Path, text: str | bytes, name: str = "t.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_an_import_counts_every_record_event_and_step(lab: Lab, tmp_path: Path):
    report = lab.import_traces(written(tmp_path, chat(1) + "{broken\n" + chat(2)))
    counts = report.counts
    assert (counts["records"], counts["records_used"], counts["records_rejected"]) == (3, 2, {"not_json": 1})
    assert (counts["steps"], counts["transitions"], counts["left_out"]) == (4, 4, {})
    assert counts["events"] == sum(counts["events_used"].values()) + sum(counts["set_aside"].values()) == 10
    assert report.conservation["holds"].to_list() == [True]
    assert report.rejected.row(0, named=True)["record"] == 2


def test_law_11_evidence_is_a_function_of_the_set_of_sources(tmp_path: Path):
    one, two = written(tmp_path, chat(1), "one.jsonl"), written(tmp_path, chat(2), "two.jsonl")
    first, second, third = (Lab(tmp_path / name) for name in ("a", "b", "c"))
    first.import_traces(one, two)
    second.import_traces(two)
    second.import_traces(one)
    third.import_traces(two, one)
    assert first.corpus.digest == second.corpus.digest == third.corpus.digest


def test_law_11_evidence_does_not_depend_on_what_a_file_is_called(tmp_path: Path):
    labs = [Lab(tmp_path / name) for name in ("a", "b")]
    for lab, name in zip(labs, ("one.jsonl", "two.jsonl"), strict=True):
        lab.import_traces(written(tmp_path, chat(1) + "{broken\n", name))
    assert labs[0].corpus.digest == labs[1].corpus.digest


def test_known_bytes_are_added_once_and_their_second_name_is_logged(lab: Lab, tmp_path: Path):
    lab.import_traces(written(tmp_path, chat(1), "first.jsonl"))
    before = lab.corpus.digest
    again = lab.import_traces(written(tmp_path, chat(1), "second.jsonl"))
    assert again.counts["added"] == 0
    assert again.counts["transitions"] == 2
    assert lab.corpus.digest == before
    assert str(tmp_path / "second.jsonl") in lab.store.rows("evidence_built")[-1].fields["paths"]


def test_a_grown_file_replays_what_was_known_and_old_step_ids_stay(lab: Lab, tmp_path: Path):
    lines = written(tmp_path, chat(1), "old.jsonl")
    lab.import_traces(lines)
    old = {each.transition_id: each.observation for each in lab.corpus.transitions}
    grown = json.loads(chat(1))
    grown["messages"] += [{"role": "assistant", "content": "More?"}, {"role": "user", "content": "No"}]
    lab.import_traces(written(tmp_path, json.dumps(grown), "new.jsonl"))
    now = {each.transition_id: each.observation for each in lab.corpus.transitions}
    assert old.items() <= now.items()
    assert len(now) == 3
    assert {row.reason for row in lab.corpus.set_aside} == {"replayed_history"}


def test_a_grown_log_of_requests_without_an_id_counts_each_step_once_and_keeps_its_ids(lab: Lab, tmp_path: Path):
    messages = json.loads(chat(1))["messages"]
    rows = [json.dumps({"messages": messages[:size]}) + "\n" for size in (3, 5)]
    lab.import_traces(written(tmp_path, rows[0]))
    (before,) = lab.corpus.transitions
    report = lab.import_traces(written(tmp_path, "".join(rows)))
    assert len(report.counts["extends"]) == 1
    assert [each.transition_id for each in lab.corpus.transitions] == [
        before.transition_id,
        before.transition_id[:-1] + "1",
    ]


def test_a_grown_log_says_what_it_extends_and_which_steps_got_their_answer(lab: Lab, tmp_path: Path):
    def line(uuid: str, kind: str, content: object) -> str:
        about = {"uuid": uuid, "sessionId": "s", "type": kind, "timestamp": f"2026-01-01T00:00:{uuid}Z"}
        return json.dumps(about | {"message": {"role": kind, "id": uuid, "content": content}}) + "\n"

    old = line("01", "user", "List it") + line(
        "02", "assistant", [{"type": "tool_use", "id": "t", "name": "ls", "input": {}}]
    )
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "a b"}]
    first = old + line("03", "user", result) + line("04", "assistant", "Two files")
    lab.import_traces(written(tmp_path, first, "old.jsonl"))
    ids = [each.transition_id for each in lab.corpus.transitions]
    report = lab.import_traces(written(tmp_path, first + line("05", "user", "Thanks"), "new.jsonl"))
    assert list(report.counts["extends"].values()) == [next(iter(lab.corpus.names))]
    assert [(row["old"], row["new"]) for row in report.counts["changed"]] == [("terminal_no_observation", "user_reply")]
    assert [each.transition_id for each in lab.corpus.transitions][: len(ids)] == ids
    assert report.counts["set_aside"] == {}


def test_a_secret_is_counted_and_placed_and_never_shown(lab: Lab, tmp_path: Path):
    key = "AK" + "IA" + "ABCD1234" * 2
    report = lab.import_traces(written(tmp_path, chat(1, said=f"the key is {key}")))
    assert report.counts["secrets"] == {"AWS key id": 2}
    place = report.secrets.row(0, named=True)
    data = (tmp_path / "t.jsonl").read_bytes()
    assert data[place["offset"] : place["offset"] + place["size"]].decode() == key
    assert key not in str(report.secrets.to_dicts())


def test_a_secret_at_the_cut_of_an_excerpt_is_masked_before_it_is_cut(lab: Lab, tmp_path: Path):
    key = "AK" + "IA" + "ABCD1234" * 2
    aside = json.dumps({"messages": [{"role": "x", "content": "y" * 95 + " " + key}, {"role": "user", "content": "z"}]})
    report = lab.import_traces(written(tmp_path, chat(1) + aside + "\n" + "w" * 110 + " " + key + "\n"))
    told = [*report.set_aside["excerpt"], *report.rejected["excerpt"]]
    assert len(told) >= 2
    assert not [each for each in told if key[:8] in each]


def test_zip_members_are_read_and_their_spans_open(lab: Lab, tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as pack:
        pack.writestr("../one.jsonl", chat(1))
        pack.writestr("two.jsonl", chat(2) + "{broken\n")
        pack.writestr("notes.bin", b"\x00\x01")
    report = lab.import_traces(tmp_path / "t.zip")
    assert (report.counts["transitions"], report.counts["records_rejected"]) == (4, {"not_json": 2})
    assert sorted(report.rejected["path"]) == [f"{tmp_path / 't.zip'}#{name}" for name in ("notes.bin", "two.jsonl")]
    assert lab.verify().ok
    assert not (tmp_path / "one.jsonl").exists()


def test_a_zip_that_unpacks_to_more_than_it_may_is_refused(lab: Lab, tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr("big.jsonl", b" " * (80 << 20))
    with pytest.raises(LimitError, match=r"bomb\.zip: the zip unpacks to 83,886,080 bytes"):
        lab.import_traces(tmp_path / "bomb.zip")
    assert not lab.path.exists()


def test_a_gzip_stream_that_unpacks_to_more_than_it_may_is_refused(lab: Lab, tmp_path: Path):
    with pytest.raises(LimitError, match=r"bomb\.gz: the gzip stream unpacks to"):
        lab.import_traces(written(tmp_path, gzip.compress(b" " * (80 << 20)), "bomb.gz"))
    assert not lab.path.exists()


def test_a_zip_with_zstandard_members_is_read_and_a_damaged_one_is_refused(lab: Lab, tmp_path: Path):
    path = tmp_path / "t.zip"
    with zstd_zip.ZipFile(path, "w", zstd_zip.ZIP_ZSTANDARD) as pack:
        pack.writestr("one.jsonl", chat(1))
    assert lab.import_traces(path).counts["transitions"] == 2
    assert lab.verify().ok
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    with pytest.raises(TraceFormatError, match="damaged"):
        lab.import_traces(written(tmp_path, bytes(data), "bad.zip"))


def many(folder: Path) -> list[Path]:
    """Files of which one resumes another, one is damaged in part, and one is packed."""
    paths = [
        written(folder, "".join(map(chat, range(start, start + 5))), f"{start}.jsonl") for start in range(0, 30, 5)
    ]
    paths.append(written(folder, chat(0) + chat(99) + "{broken\n", "more.jsonl"))
    return [*paths, written(folder, gzip.compress(chat(77).encode()), "packed.gz")]


def test_law_11_the_number_of_processes_changes_no_byte(tmp_path: Path):
    paths = many(tmp_path)
    one, two = Lab(tmp_path / "one"), Lab(tmp_path / "two")
    counts = [lab.import_traces(*paths, jobs=jobs).counts for lab, jobs in ((one, 1), (two, 2))]
    assert counts[0] == counts[1]
    assert one.corpus.digest == two.corpus.digest
    assert two.verify().ok


def test_what_a_worker_process_refuses_is_refused_with_the_same_words(lab: Lab, tmp_path: Path):
    paths = [*many(tmp_path), written(tmp_path, "hello\nworld\n", "bad.jsonl")]
    said = []
    for jobs in (1, 2):
        with pytest.raises(TraceFormatError) as caught:
            lab.import_traces(*paths, jobs=jobs)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "bad.jsonl: the file is neither JSON nor JSON lines" in said[0]
    assert not lab.path.exists()


def test_law_11_a_long_file_is_read_record_by_record_and_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    undeclared = chat(3).replace('"conversation": "c3", ', "")
    path = written(tmp_path, undeclared + chat(1) + "{broken\n" + chat(2) + undeclared + chat(1).replace("Thank", "No"))
    short = Lab(tmp_path / "short")
    counts = short.import_traces(path).counts
    for module, name in ((framing, "LONG"), (spool, "SHORT"), (spool, "PIECE")):
        monkeypatch.setattr(module, name, 7)
    long = Lab(tmp_path / "long")
    assert long.import_traces(path).counts == counts
    assert long.corpus.digest == short.corpus.digest
    assert long.verify().ok


def test_a_source_is_read_again_only_when_a_copy_changes_what_counts(lab: Lab, tmp_path: Path):
    lab.import_traces(written(tmp_path, chat(1), "one.jsonl"))
    first = lab.corpus.sources[0]
    lab.import_traces(written(tmp_path, chat(2), "two.jsonl"))
    assert first in lab.corpus.sources
    lab.import_traces(written(tmp_path, chat(1) + "\n", "copy.jsonl"))
    assert [
        info.copies is not None for info in sorted(lab.corpus.sources, key=lambda info: lab.corpus.names[info.digest])
    ] == [
        True,
        True,
        False,
    ]


def test_a_pattern_stands_for_the_files_that_fit_it(lab: Lab, tmp_path: Path):
    many(tmp_path)
    assert lab.import_traces(str(tmp_path / "[01]*.jsonl")).counts["sources"] == 3
    with pytest.raises(UsageError, match=r"no file fits .*x\*"):
        lab.import_traces(tmp_path / "x*.jsonl")


def test_evidence_of_schema_1_is_read_and_built_upon(tmp_path: Path):
    shutil.copytree(Path(__file__).parent / "data" / "schema_1", tmp_path / "old")
    old, new = Lab(tmp_path / "old"), Lab(tmp_path / "new")
    told = [said(each) for each in old.corpus.transitions]
    assert told == ["lookup", "", "lookup", "", "lookup", ""]
    assert old.verify().ok
    texts = {name: old.corpus.get(digest) for digest, name in old.corpus.names.items()}
    added = written(tmp_path, chat(9), "nine.jsonl")
    assert old.import_traces(added).counts["transitions"] == 2
    new.import_traces(added, *(written(tmp_path, data, name) for name, data in texts.items()))
    assert old.corpus.digest == new.corpus.digest


def said(each: Transition) -> str:
    return each.action.tool or ""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"messages": ' + "[" * 10_000 + "]" * 10_000 + "}\n", "too_deep"),
        ('{"messages": [{"role": "user", "content": "\\ud800"}]}\n', "not_utf8"),
        ('{"messages": [{"role": "user", "content": "' + "x" * (100 << 20) + '"}]\n', "not_json"),
    ],
    ids=["10,000 levels", "lone surrogate", "100 MB line cut"],
)
def test_one_monstrous_line_costs_itself_alone(lab: Lab, tmp_path: Path, line: str, reason: str):
    counts = lab.import_traces(written(tmp_path, chat(1) + line + chat(2))).counts
    assert (counts["transitions"], counts["records_rejected"]) == (4, {reason: 1})


def test_odd_but_whole_json_is_read_as_it_stands(lab: Lab, tmp_path: Path):
    big = "9" * 40
    odd = chat(1).replace('\\"id\\":1', f'\\"id\\":{big},\\"x\\":NaN,\\"x\\":-Infinity') + chat(2)
    lab.import_traces(
        written(tmp_path, odd.replace('"conversation"', '"conversation": 5, "at": -1e99, "conversation"'))
    )
    call = next(each for each in lab.corpus.transitions if each.action.tool)
    assert big in str([each.action.arguments for each in lab.corpus.transitions])
    assert call.observation in ("packed 1", "packed 2")


def test_files_of_several_formats_in_one_directory_each_say_their_own(lab: Lab, tmp_path: Path):
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in ("tau_bench.json", "claude_code.jsonl", "atif.json", "otlp_genai.jsonl"):
        shutil.copy(Path(__file__).parent / "data" / name, folder / name)
    formats = {each["format"] for each in lab.import_traces(folder).counts["formats"]}
    assert formats == {"tau_bench", "claude_code", "atif", "otlp_genai"}


def test_a_resumed_session_replays_the_lines_that_it_copies(lab: Lab, tmp_path: Path):
    def line(session: str, uuid: str, kind: str, text: str) -> str:
        about = {
            "uuid": uuid,
            "sessionId": session,
            "type": kind,
            "slug": "s",
            "timestamp": f"2026-01-01T00:00:{uuid[1:]}Z",
        }
        return json.dumps(about | {"message": {"role": kind, "content": text}}) + "\n"

    def talk(session: str, *said: str) -> str:
        return "".join(line(session, f"u{n:02d}", ("user", "assistant")[n % 2], text) for n, text in enumerate(said))

    first = written(tmp_path, talk("one", "hi", "hello", "do it", "done", "thanks"), "a.jsonl")
    second = written(tmp_path, talk("two", "hi", "hello", "do it", "done", "thanks", "more?", "no"), "b.jsonl")
    digests = set()
    for name, paths in (("x", (first, second)), ("y", (second, first))):
        other = Lab(tmp_path / name)
        other.import_traces(*paths)
        assert sorted(each.observation for each in other.corpus.transitions) == ["do it", "no", "thanks"]
        assert {row.reason for row in other.corpus.set_aside} == {"replayed_history"}
        digests.add(other.corpus.digest)
    assert len(digests) == 1


def test_one_conversation_that_goes_on_otherwise_in_another_file_stays_in_its_lineage(lab: Lab, tmp_path: Path):
    other = json.loads(chat(1))
    other["messages"][2]["content"] = "lost"
    lab.import_traces(written(tmp_path, chat(1), "a.jsonl"), written(tmp_path, json.dumps(other), "b.jsonl"))
    assert len(lab.corpus.transitions) == len({each.transition_id for each in lab.corpus.transitions}) == 4
    assert len(set(lab.corpus.lineages.values())) == 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b" \n\r\n", "empty"),
        (b"\x7fELF\x02\x00\x01", "binary"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "binary|neither"),
        (b'{"foo": 1}\n', "no known format"),
        (b"hello\nworld\n", "neither JSON"),
        (gzip.compress(chat(1).encode())[:-9], "gzip stream is damaged"),
        (b"\x1f\x8b nonsense", "gzip stream is damaged"),
        (b'{"messages": [{"role": "user", "con', "neither JSON"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_leaves_no_workspace(lab: Lab, tmp_path: Path, data: bytes, says: str):
    with pytest.raises(TraceFormatError, match=f"t.jsonl: .*({says})"):
        lab.import_traces(written(tmp_path, data))
    assert not lab.path.exists()


def test_one_bad_file_among_good_ones_leaves_the_workspace_as_it_was(lab: Lab, tmp_path: Path):
    lab.import_traces(written(tmp_path, chat(1), "good.jsonl"))
    before = {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()}
    with pytest.raises(TraceFormatError, match=r"bad\.jsonl"):
        lab.import_traces(written(tmp_path, chat(2), "fine.jsonl"), written(tmp_path, b"\0\0", "bad.jsonl"))
    assert {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()} == before


def test_a_file_of_a_directory_that_cannot_be_used_is_named_and_costs_itself_alone(lab: Lab, tmp_path: Path):
    folder = tmp_path / "traces"
    (folder / "deep").mkdir(parents=True)
    written(folder, chat(1), "a.jsonl")
    written(folder / "deep", b"", "empty.json")
    written(folder, '{"foo": 1}', "other.json")
    report = lab.import_traces(folder)
    assert [(Path(each["path"]).name, each["reason"][:17]) for each in report.counts["unusable"]] == [
        ("empty.json", "the file is empty"),
        ("other.json", "no known format: "),
    ]
    assert report.counts["transitions"] == 2
    (folder / "a.jsonl").unlink()
    with pytest.raises(
        TraceFormatError, match=r"none of 2 files can be used; the first: .*empty\.json: the file is empty"
    ):
        Lab(tmp_path / "other").import_traces(folder)


def test_no_transition_is_no_success_and_the_report_says_why(lab: Lab, tmp_path: Path):
    line = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}])
    with pytest.raises(NoEvidence, match=r"0 transitions from 1 steps \(1 terminal_no_observation\)") as refused:
        lab.import_traces(written(tmp_path, f"{line}\n{line.replace('hi', 'ho')}\n"[: len(line) + 1]))
    assert refused.value.report.counts["steps"] == 1
    assert not lab.path.exists()


def test_a_missing_path_and_a_wrong_declaration_are_named(lab: Lab, tmp_path: Path):
    with pytest.raises(UsageError, match=r"nowhere\.jsonl does not exist"):
        lab.import_traces(tmp_path / "nowhere.jsonl")
    path = written(tmp_path, chat(1))
    with pytest.raises(UsageError, match="no format is called 'chatgpt'"):
        lab.import_traces(path, declared=Declared("chatgpt"))
    with pytest.raises(
        TraceFormatError, match="no record fits the declared format claude_code: it looks like openai_chat"
    ):
        lab.import_traces(path, declared=Declared("claude_code"))
    assert not lab.path.exists()


def test_a_truncated_list_gives_its_complete_elements(lab: Lab, tmp_path: Path):
    whole = "[" + ",\n".join(chat(number).strip() for number in (1, 2, 3)) + "]"
    report = lab.import_traces(written(tmp_path, whole[:-200], "cut.json"))
    assert report.counts["records_rejected"] == {"truncated": 1}
    assert report.counts["traces"] == 2


def test_gzip_is_unpacked_and_its_spans_open(lab: Lab, tmp_path: Path):
    lab.import_traces(written(tmp_path, gzip.compress(chat(1).encode()), "t.jsonl.gz"))
    first = lab.corpus.transitions[0]
    assert (lab.corpus.open(first.action_span), lab.corpus.open(first.observation_span)) == ('{"id":1}', "packed 1")


def test_a_read_only_workspace_is_refused_before_anything_is_read(lab: Lab, tmp_path: Path):
    lab.import_traces(written(tmp_path, chat(1)))
    lab.path.chmod(0o555)
    with pytest.raises(UsageError, match="read-only"):
        lab.import_traces(written(tmp_path, chat(2), "b.jsonl"))
    assert [Path(path).name for path in lab.corpus.names.values()] == ["t.jsonl"]
    lab.path.chmod(0o755)


def test_law_10_one_flipped_byte_of_a_source_is_found_and_named(lab: Lab, tmp_path: Path):
    lab.import_traces(written(tmp_path, chat(1)))
    blob = lab.store.path_of(lab.corpus.sources[0].digest)
    data = bytearray(blob.read_bytes())
    data[40] ^= 1
    blob.write_bytes(data)
    assert [problem.artifact for problem in lab.verify().problems] == [str(blob.relative_to(lab.path))]
    with pytest.raises(IntegrityError, match="instead of"):
        lab.corpus.open(lab.corpus.transitions[0].action_span)


def test_two_imports_at_once_both_count(lab: Lab, tmp_path: Path):
    paths = [written(tmp_path, "".join(chat(n) for n in range(i * 40, i * 40 + 40)), f"{i}.jsonl") for i in range(3)]
    code = "import sys; from experiential_lab import Lab; Lab(sys.argv[1]).import_traces(sys.argv[2])"
    running = [subprocess.Popen([sys.executable, "-c", code, str(lab.path), str(path)]) for path in paths]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert len(lab.corpus.sources) == 3
    assert len(lab.corpus.transitions) == 240
    assert lab.verify().ok


def test_law_1_what_our_own_export_says_is_never_recorded(lab: Lab, tmp_path: Path):
    exported = json.dumps({"generated": "session export"}) + "\n" + chat(1)
    lab.import_traces(written(tmp_path, exported), written(tmp_path, chat(2), "real.jsonl"))
    origins = {Path(lab.corpus.names[info.digest]).name: info.origin for info in lab.corpus.sources}
    assert origins == {"t.jsonl": "simulated_environment", "real.jsonl": "recorded"}
    assert {entry.entry_id for entry in lab.index().snapshot.entries} == {
        each.transition_id for each in lab.corpus.transitions if "order 2" in (each.task or "")
    }


def test_an_import_after_the_split_gives_new_traces_a_side_and_makes_the_index_stale(lab: Lab, tmp_path: Path):
    lab.import_traces(written(tmp_path, "".join(map(chat, range(10)))))
    before = lab.split(threshold=1).of()
    lab.index()
    lab.import_traces(written(tmp_path, "".join(map(chat, range(10, 14))), "more.jsonl"))
    after = lab.table.of()
    assert {trace: row.split for trace, row in after.items() if trace in before} == {
        trace: row.split for trace, row in before.items()
    }
    assert len(after) == 14
    with pytest.raises(Exception, match="the index is stale"):
        lab.current_index()


def test_a_forgotten_source_leaves_a_tombstone_and_no_byte_of_its_text(lab: Lab, tmp_path: Path):
    word = "zebrafish"
    lab.import_traces(written(tmp_path, chat(1, said=word), "gone.jsonl"), written(tmp_path, chat(2), "stays.jsonl"))
    lab.split(threshold=1)
    hits = lab.index().view("all").nearest(Query(action="order", tool="lookup", arguments='{"id":1}'))
    lab.keep(hits)
    digest = next(digest for digest, path in lab.corpus.names.items() if path.endswith("gone.jsonl"))
    removed = lab.forget(digest, why="asked for")
    assert digest in removed
    assert {each.observation for each in lab.corpus.transitions} == {"packed 2", "Thank you"}
    assert lab.verify().problems == ()
    assert not [path for path in lab.path.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]
    assert lab.show(digest)["why"] == "asked for"
    with pytest.raises(StaleError, match="stale"):
        lab.current_index()
    assert verify_durable(hits.receipt, lab.store) == Unverifiable(reason="missing")
    assert len(lab.build_index().snapshot.entries) == 2


def test_the_last_source_can_be_forgotten_and_imported_again(lab: Lab, tmp_path: Path):
    path = written(tmp_path, chat(1))
    lab.import_traces(path)
    before = lab.corpus.digest
    lab.forget(lab.corpus.sources[0].digest, why="a mistake")
    assert lab.corpus.transitions == []
    lab.import_traces(path)
    assert lab.corpus.digest == before
    assert lab.verify().ok


@pytest.mark.parametrize(
    "text", [chat(2) + '{"generated": "session"}\n' + chat(1), "# a note\n" + '{"generated": "x"}\n' + chat(1)]
)
def test_law_1_a_file_that_holds_our_own_export_anywhere_is_not_recorded(lab: Lab, tmp_path: Path, text: str):
    lab.import_traces(written(tmp_path, text))
    assert [info.origin for info in lab.corpus.sources] == ["simulated_environment"]
    with pytest.raises(NoEvidence, match="recorded evidence"):
        lab.index()


def test_law_1_an_exported_conversation_without_its_header_is_not_recorded(lab: Lab, tmp_path: Path):
    lab.import_traces(written(tmp_path, "".join(map(chat, range(6)))))
    lab.split(threshold=1)
    with lab.session("Where is it?") as session:
        session.step("Order 1 is packed.")
        lines = session.export().splitlines(keepends=True)
    lab.import_traces(written(tmp_path, lines[1], "stripped.jsonl"))
    assert [info.origin for info in lab.corpus.sources if lab.corpus.names[info.digest].endswith("stripped.jsonl")] == [
        "simulated_environment"
    ]


@pytest.mark.parametrize("first", ["recorded", "simulated_environment"])
def test_known_bytes_stay_what_they_were_declared_to_be(lab: Lab, tmp_path: Path, first: str):
    other = {"recorded": "written", "simulated_environment": "recorded"}[first]
    lab.import_traces(written(tmp_path, chat(1) + chat(2)), declared=Declared(origin=first))
    before = lab.corpus.digest
    for declared in (Declared(origin=other), Declared(origin=first, limit=1), Declared("openai_chat_legacy", first)):
        with pytest.raises(UsageError, match=r"is known with .* forget it first"):
            lab.import_traces(written(tmp_path, chat(1) + chat(2), "again.jsonl"), declared=declared)
    assert lab.corpus.digest == before


@pytest.mark.parametrize("order", [("recorded", "simulated_environment"), ("simulated_environment", "recorded")])
@pytest.mark.parametrize("tail", ["", "\n", "\n\n", "\n\n\n"])
def test_law_1_a_copy_makes_no_observation_of_what_was_declared_to_be_none(
    tmp_path: Path, order: tuple[str, str], tail: str
):
    lab = Lab(tmp_path / "lab")
    more = json.loads(chat(1))
    more["messages"] += [{"role": "assistant", "content": "More?"}, {"role": "user", "content": "No"}]
    for name, origin, text in zip("ab", order, (chat(1), json.dumps(more) + "\n" + tail), strict=True):
        lab.import_traces(written(tmp_path, text, f"{name}.jsonl"), declared=Declared(origin=origin))
    recorded = {info.digest for info in lab.corpus.sources if info.origin == "recorded"}
    grounding = {each.observation for each in lab.corpus.transitions if each.action_span.source in recorded}
    assert not grounding & {"packed 1", "Thank you"}


@pytest.mark.parametrize("copies", [1, 2, 3, 4])
def test_a_copy_of_known_evidence_is_accepted_and_counts_nothing_twice(lab: Lab, tmp_path: Path, copies: int):
    lab.import_traces(written(tmp_path, chat(1) + chat(2), "a.jsonl"))
    ids = {each.transition_id for each in lab.corpus.transitions}
    lab.import_traces(written(tmp_path, chat(1) + chat(2) + "\n" * copies, "b.jsonl"))
    assert {each.transition_id for each in lab.corpus.transitions} == ids


def test_another_file_changes_no_step_id(lab: Lab, tmp_path: Path):
    other = json.loads(chat(1))
    other["messages"][2]["content"] = "lost"
    lab.import_traces(written(tmp_path, chat(1), "a.jsonl"), written(tmp_path, json.dumps(other), "b.jsonl"))
    before = {each.transition_id for each in lab.corpus.transitions}
    for number in range(2, 7):
        lab.import_traces(written(tmp_path, chat(number), f"{number}.jsonl"))
    assert before <= {each.transition_id for each in lab.corpus.transitions}


def test_a_foreign_log_is_not_touched(lab: Lab, tmp_path: Path):
    lab.path.mkdir()
    (lab.path / "log.jsonl").write_text('{"my": "x"}\n')
    for path in (tmp_path / "nowhere.jsonl", written(tmp_path, chat(1))):
        with pytest.raises(UsageError):
            lab.import_traces(path)
    assert (lab.path / "log.jsonl").read_text() == '{"my": "x"}\n'


def test_a_file_of_a_directory_whose_name_is_unknown_is_named(lab: Lab, tmp_path: Path):
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in ("a.JSONL", "b.ndjson", "c.jsonl.bak"):
        written(folder, chat(ord(name[0])), name)
    report = lab.import_traces(folder)
    assert (report.counts["sources"], [Path(each["path"]).name for each in report.counts["unusable"]]) == (
        2,
        ["c.jsonl.bak"],
    )


def test_a_link_in_a_directory_that_leads_to_no_file_is_named(lab: Lab, tmp_path: Path):
    folder, elsewhere = tmp_path / "traces", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    written(folder, chat(1), "a.jsonl")
    (folder / "b.jsonl").symlink_to("a.jsonl")
    (folder / "c.jsonl").symlink_to("gone.jsonl")
    (folder / "d").symlink_to(elsewhere, target_is_directory=True)
    report = lab.import_traces(folder)
    assert [(Path(each["path"]).name, each["reason"]) for each in report.counts["unusable"]] == [
        ("c.jsonl", "it is a link to nothing"),
        ("d", "it is a link to a directory; name the directory to import it"),
    ]
    assert report.counts["sources"] == 1


def test_what_a_workspace_keeps_is_no_file_of_the_directory_that_it_lies_in(tmp_path: Path):
    written(tmp_path, chat(1))
    for _ in range(2):
        report = Lab(tmp_path / "kept").import_traces(tmp_path)
        assert (report.counts["sources"], report.unusable) == (1, ())


def test_a_file_that_cannot_be_used_is_named_once_and_in_unicode_whatever_its_name(lab: Lab, tmp_path: Path):
    folder = tmp_path / "traces"
    folder.mkdir()
    written(folder, chat(1))
    written(folder, "", os.fsdecode(b"\xe9.jsonl"))
    ((path, reason),) = lab.import_traces(folder).unusable
    assert (path.rpartition("/")[2], reason) == (r"\xe9.jsonl", "the file is empty; nothing to import")


def test_a_split_of_older_evidence_is_never_used_in_silence(lab: Lab, tmp_path: Path):
    lab.import_traces(written(tmp_path, "".join(map(chat, range(8)))))
    lab.split(threshold=1)
    lab.index()
    import_files(lab.path, [written(tmp_path, chat(9), "b.jsonl")])  # as if the process died before it split again
    with pytest.raises(StaleError, match="the split is stale"):
        lab.current_index()
    assert len(lab.index().snapshot.fit.rows) < len(lab.index().snapshot.rows) == 18
    assert {row.split for row in lab.index().snapshot.rows} == {"fit", "held_out"}
