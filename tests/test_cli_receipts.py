"""`xlab receipts`: one verdict, one reason and one exit code a check, for receipts that were kept and for files."""

from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from cli_cases import Xlab

from experiential_lab.lab import Lab, bundled
from experiential_lab.records import canonical_bytes
from experiential_lab.retrieval.embedders import HashedEmbedder
from experiential_lab.retrieval.grounding import Recipe
from experiential_lab.retrieval.receipts import Consumer, Query, seal
from experiential_lab.retrieval.replays import replay_stored

DRAFT = Path(__file__).parent / "data" / "receipts" / "v1.json"


class Desk(NamedTuple):
    lab: Lab
    receipt: str
    used: str


@pytest.fixture
def desk(xlab: Xlab) -> Desk:
    """A workspace with the bundled desk, one kept retrieval, and one kept use of it."""
    lab = Lab(".lab")
    lab.import_traces(bundled("desk_tools.jsonl"))
    lab.split()
    hits = lab.index().view("fit").nearest(Query(action="Which order is it? \x1b[31m"), k=3)
    used = hits.use(1, "supports", Consumer(kind="prompt"))
    return Desk(lab, hits.keep(used, store=lab.store), used.receipt_digest)


def test_the_kept_receipts_are_listed_by_kind_with_who_kept_them(xlab: Xlab, desk: Desk):
    rows = xlab("receipts", "list", "--json").json
    assert [(row["receipt"], row["kind"]) for row in rows] == [(desk.receipt, "retrieval"), (desk.used, "use")]
    assert {"receipt", "kind", "of", "says", "at", "actor"} == set(rows[0])
    assert rows[1]["of"] == desk.receipt
    shown = xlab("receipts", "list")
    assert desk.receipt[7:15] in shown.out
    assert "3 results of" in shown.out
    narrow = xlab("receipts", "list", width=80).out.splitlines()
    assert narrow[0].split() == ["receipt", "kind", "of", "at", "says"]
    assert narrow[1].startswith(f"{desk.receipt[7:15]}  retrieval  ")


def test_no_kept_receipt_is_said_in_words(xlab: Xlab):
    Lab(".lab").import_traces(bundled("desk_tools.jsonl"))
    assert xlab("receipts", "list", "--json").json == []
    assert "no receipt is kept yet: xlab nearest --keep" in xlab("receipts", "list").out


@pytest.mark.parametrize(("command", "verdict"), [("verify", "consistent"), ("join", "joined"), ("replay", "replayed")])
def test_each_check_has_a_verdict_of_its_own_and_says_what_it_did_not_ask(xlab, desk, command, verdict):
    done = xlab("receipts", command, desk.receipt[7:15], "--json")
    assert (done.code, done.json["verdict"], done.json["receipt"]) == (0, verdict, desk.receipt)
    assert set(done.json) >= {"verdict", "reason"}
    said = xlab("receipts", command, desk.receipt)
    assert said.out.startswith(f"✓ {verdict}: ")
    assert said.err == ""


def test_a_use_is_verified_with_its_retrieval_and_cannot_be_joined(xlab: Xlab, desk: Desk):
    assert xlab("receipts", "verify", desk.used, "--json").json["verdict"] == "consistent"
    for command in ("join", "replay"):
        done = xlab("receipts", command, desk.used, "--json")
        assert done.code == 2
        assert f"is a use; name its retrieval, {desk.receipt}" in done.err


def test_a_forged_receipt_is_a_mismatch_with_both_values_and_exit_code_5(xlab: Xlab, desk: Desk, tmp_path: Path):
    assert xlab("receipts", "show", desk.receipt, "--out", "receipt.json").code == 0
    data = Path("receipt.json").read_bytes()
    Path("forged.json").write_bytes(data.replace(b'"rank":1', b'"rank":9'))
    done = xlab("receipts", "verify", "forged.json", "--json")
    assert (done.code, done.json["verdict"]) == (5, "mismatch")
    assert done.json["reason"].startswith("receipt digest: the receipt says 'sha256:")
    assert done.err.startswith("error: receipt digest: the receipt says")
    assert done.err.count("\n") == 1
    plain = xlab("receipts", "verify", "forged.json")
    assert (plain.code, plain.out) == (5, "")


def test_what_only_a_replay_finds_joins_and_is_a_mismatch_there(xlab: Xlab, desk: Desk):
    hits = desk.lab.index().view("fit").nearest(Query(action="Which order is it?"), k=3)
    lie = seal(msgspec.structs.replace(hits.receipt, attributes=(("support", "A"),)))
    Path("lie.json").write_bytes(canonical_bytes(lie))
    assert xlab("receipts", "join", "lie.json").code == 0
    assert xlab("receipts", "replay", "lie.json", "--json").json["verdict"] == "mismatch"


def test_a_file_is_verified_where_there_is_no_workspace(xlab: Xlab, desk: Desk, tmp_path: Path):
    xlab("receipts", "show", desk.receipt, "--out", "receipt.json")
    done = xlab("receipts", "verify", "receipt.json", "-w", "nowhere", "--json")
    assert (done.code, done.json["verdict"]) == (0, "consistent")
    assert xlab("receipts", "join", "receipt.json", "-w", "nowhere").code == 2


def test_a_missing_inventory_is_unverifiable_with_its_reason_and_exit_code_3(xlab: Xlab, desk: Desk):
    xlab("receipts", "show", desk.receipt, "--out", "receipt.json")
    Lab("other").import_traces(bundled("desk_tools.jsonl"))
    for command in ("join", "replay"):
        done = xlab("receipts", command, "receipt.json", "-w", "other", "--json")
        assert (done.code, done.json) == (3, {"verdict": "unverifiable", "reason": "missing"})
        assert "name the workspace that it was made in" in done.err
    bare = seal(
        msgspec.structs.replace(
            desk.lab.index().view().nearest(Query(action="a word")).receipt, visibility=_without_artifact(desk)
        )
    )
    Path("bare.json").write_bytes(canonical_bytes(bare))
    assert xlab("receipts", "join", "bare.json", "--json").json["reason"] == "no_artifact_reference"


def _without_artifact(desk: Desk):
    seen = desk.lab.index().view().visibility
    return msgspec.structs.replace(seen, artifact=None)


def test_a_use_whose_retrieval_is_not_here_is_unverifiable(xlab: Xlab, desk: Desk):
    xlab("receipts", "show", desk.used, "--out", "used.json")
    Lab("other").import_traces(bundled("desk_tools.jsonl"))
    done = xlab("receipts", "verify", "used.json", "-w", "other", "--json")
    assert (done.code, done.json["reason"]) == (3, "retrieval not kept")


def test_a_receipt_that_nobody_kept_exits_3_and_names_what_keeps_one(xlab: Xlab, desk: Desk):
    done = xlab("receipts", "verify", "0123456789")
    assert done.code == 3
    assert "xlab nearest --keep adds one" in done.err
    assert xlab("receipts", "verify", "0123").code == 2


def test_a_shown_receipt_has_every_check_its_rows_and_its_uses_and_no_control_sign(xlab: Xlab, desk: Desk):
    shown = xlab("receipts", "show", desk.receipt)
    for line in ("verify   ✓", "join     ✓", "replay   ✓", "rank 1", "use         rank 1: supports"):
        assert line in shown.out
    done = xlab("receipts", "show", desk.receipt, "--json").json
    assert done["checks"] == {"verify": "✓", "join": "✓", "replay": "✓"}
    assert done["record"]["query"]["action"] == "Which order is it? \x1b[31m"
    assert [each["receipt"] for each in done["uses"]] == [desk.used]
    assert "\x1b" not in shown.out


def test_the_text_of_a_foreign_receipt_forges_no_line_and_steers_no_terminal(xlab: Xlab, desk: Desk):
    receipt = desk.lab.index().view().nearest(Query(action="a word"), k=1).receipt
    hostile = msgspec.structs.replace(receipt.results[0], snippet="\x1b[31mred\u202e\n✓ joined: all of it")
    Path("hostile.json").write_bytes(canonical_bytes(seal(msgspec.structs.replace(receipt, results=(hostile,)))))
    shown = xlab("receipts", "show", "hostile.json").out
    assert "\\u001b[31mred\\u202e ✓ joined" in shown
    assert not any(line.startswith("✓ joined") for line in shown.splitlines())


def test_a_damaged_inventory_is_shown_at_its_check_and_nothing_is_hidden(xlab: Xlab, desk: Desk):
    seen = desk.lab.index().view().visibility.artifact
    path = desk.lab.store.path_of(seen.digest)
    path.write_bytes(path.read_bytes()[:-1])
    checks = xlab("receipts", "show", desk.receipt, "--json").json["checks"]
    assert checks["verify"] == "✓"
    assert checks["join"].startswith("✗ ")
    assert xlab("receipts", "join", desk.receipt).code == 5


def test_an_embedded_draft_is_migrated_once_and_then_joined(xlab: Xlab, desk: Desk):
    done = xlab("receipts", "migrate", DRAFT, "--json")
    assert (done.code, done.json["verdict"], done.json["entries"]) == (0, "migrated", 5)
    assert xlab("receipts", "migrate", DRAFT, "--json").json == done.json
    assert len(xlab("receipts", "list", "--json").json) == 3
    assert xlab("receipts", "join", done.json["receipt"]).code == 0
    assert xlab("receipts", "replay", done.json["receipt"], "--json").json["reason"] == "foreign_ranker"


def test_a_tampered_draft_a_newer_one_and_a_missing_file_are_refused_by_their_codes(xlab: Xlab, desk: Desk):
    text = DRAFT.read_text()
    Path("tampered.json").write_text(text.replace("lost-parcel", "late-parcel", 1))
    Path("newer.json").write_text(text.replace('"1.0.0"', '"2.0.0"'))
    assert xlab("receipts", "migrate", "tampered.json").code == 5
    assert xlab("receipts", "migrate", "newer.json").code == 4
    assert xlab("receipts", "migrate", "nofile.json").code == 2
    assert len(xlab("receipts", "list", "--json").json) == 2


def test_a_receipt_is_replayed_by_the_index_of_its_own_ranker_also_when_a_newer_one_ranks_the_same_rows(xlab, desk):
    xlab("index", "--embedder", "hashed", "--ranker", "fused")
    assert xlab("receipts", "replay", desk.receipt, "--json").json["verdict"] == "replayed"
    assert "replay   ✓" in xlab("receipts", "show", desk.receipt).out


def test_a_replay_that_needs_the_embedder_of_a_provider_is_unverifiable_and_holds_when_it_is_given(xlab, desk):
    embedder = HashedEmbedder(16)
    embedder.snapshot = msgspec.structs.replace(embedder.snapshot, provider="elsewhere")
    index = desk.lab.build_index(Recipe(embedder, "dense"))
    hits = index.view("fit").nearest(Query(action="Which order is it?"))
    named = desk.lab.keep(hits)
    done = xlab("receipts", "replay", named, "--json")
    assert (done.code, done.json) == (3, {"verdict": "unverifiable", "reason": "no_embedder"})
    assert "needs an embedder that is not here" in done.err
    assert "replay   ? unverifiable: no_embedder" in xlab("receipts", "show", named).out
    assert replay_stored(hits.receipt, desk.lab.store, embedder=embedder).receipt == named
