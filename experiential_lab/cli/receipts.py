"""The commands of `xlab receipts`: list, show, verify, join, replay and migrate.

- A receipt is named by its digest, or a beginning of it, when it was kept; or by a file that holds its canonical JSON.
- Every check prints one verdict and one reason. `--json` puts one document on stdout, also when the verdict is bad.
- Exit codes: 0 it held, 3 unverifiable or no such receipt, 5 a mismatch, with both values on stderr.
- Texts of a receipt are data: control characters are shown as signs, and secrets are masked.

Not covered: what each check proves; `retrieval/receipts.py` says it in three sentences.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from experiential_lab.cli.app import app
from experiential_lab.cli.screen import HERE, AsJson, Workspace, clip, put_json, put_table, say, write_file
from experiential_lab.lab import Lab
from experiential_lab.lookup import lines_of
from experiential_lab.records import LabError, NoEvidence, Record, Unverifiable, UsageError, canonical_bytes
from experiential_lab.retrieval.kept import find, kept, uses_of
from experiential_lab.retrieval.receipts import (
    Receipt,
    RetrievalReceipt,
    read_receipt,
    verify,
    verify_durable,
    verify_use,
)
from experiential_lab.retrieval.receipts_v1 import migrate_v1
from experiential_lab.retrieval.replays import replay_stored
from experiential_lab.store import Store

receipts = typer.Typer(help="What a retrieval could see, gave back, and what was used of it.", no_args_is_help=True)
app.add_typer(receipts, name="receipts")

Named = Annotated[str, typer.Argument(metavar="RECEIPT", help="A digest, its beginning, or a file.")]
PROVED = {
    "consistent": "it is whole and agrees with itself; no snapshot was looked at",
    "joined": "every result stands in the stored snapshot, visible, at its place; whether these rank best was not asked",
    "replayed": "asked again under the recorded view and configuration, the query gave the same",
    "migrated": "both digests of the draft held; it is kept as a receipt that refers to its stored inventory",
}
WHY = {
    "no_artifact_reference": "it names no stored inventory: ask again through an index that was loaded from a workspace",
    "missing": "what it refers to is not stored here; name the workspace that it was made in, with --workspace",
    "load_failed": "the stored inventory cannot be read; check the disk, then run xlab verify",
    "foreign_ranker": "it was migrated from a ranker that is not here; it can be joined",
    "no_embedder": "its index needs an embedder that is not here: give it to replay_stored(receipt, store, embedder=...)",
    "retrieval not kept": "the retrieval that it names is not kept here",
}


@receipts.command("list")
def list_(workspace: Workspace = HERE, as_json: AsJson = False) -> None:
    """List the kept receipts, oldest first."""
    store = Lab(workspace).store
    rows = [_summary(each.receipt) | {"at": each.at, "actor": each.actor} for each in kept(store)]
    if as_json:
        put_json(rows)
        return
    if not rows:
        say("no receipt is kept yet: xlab nearest --keep, or hits.keep()")
        return
    told = ((row["receipt"][7:15], row["kind"], row["of"][7:15], row["at"][:16], row["says"]) for row in rows)
    put_table(("receipt", "kind", "of", "at", "says"), told)


def _summary(receipt: Receipt) -> dict[str, Any]:
    """One line a receipt: what it is of, and what it says."""
    if isinstance(receipt, RetrievalReceipt):
        kind, of, seen = "retrieval", receipt.visibility.snapshot_digest, receipt.visibility
        says = f"{len(receipt.results)} results of {seen.visible_count:,} visible, {len(seen.excluded)} exclusions"
    else:
        kind, of = str(receipt.__struct_config__.tag), receipt.retrieval
        says = f"rank {receipt.rank}: {getattr(receipt, 'relation', '') or getattr(receipt, 'disposition', '')}"
    return {"receipt": receipt.receipt_digest, "kind": kind, "of": of, "says": says}


@receipts.command()
def show(
    receipt: Named,
    to: Annotated[Path | None, typer.Option("--out", help="Write its canonical JSON, which `verify` reads.")] = None,
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Show one receipt with the verdict of every check, and the uses that were kept of it."""
    lab = Lab(workspace)
    found = _open(receipt, lab)
    shown = _summary(found) | {"checks": _checks(found, lab), "uses": _uses(found, lab.store)}
    if to is not None:
        write_file(to, canonical_bytes(found))
    if as_json:
        put_json(shown | {"record": msgspec.to_builtins(found)})
        return
    for name in ("receipt", "kind", "of", "says"):
        say(f"{name:8} {shown[name]}")
    for name, line in shown["checks"].items():
        say(f"{name:8} {line}")
    for hit in found.results if isinstance(found, RetrievalReceipt) else ():
        say(f"rank {hit.rank:<3} {hit.score:>12,}  {hit.row.entry_id}  {clip(hit.snippet)}")
    for each in shown["uses"]:
        say(f"{each['kind']:11} {each['says']}")


def _uses(found: Receipt, store: Store) -> list[dict[str, Any]]:
    return [_summary(each.receipt) for each in uses_of(store, found.receipt_digest)]


def _checks(found: Receipt, lab: Lab) -> dict[str, str]:
    """Every check of a receipt, a line each."""
    checks: dict[str, Callable[[], object]] = {"verify": lambda: _verified(found, lab)}
    if isinstance(found, RetrievalReceipt):
        checks |= {
            "join": lambda: verify_durable(found, lab.store),
            "replay": lambda: replay_stored(found, lab.store),
        }
    return lines_of(checks)


@receipts.command("verify")
def verify_(receipt: Named, workspace: Workspace = HERE, as_json: AsJson = False) -> None:
    """Check that a receipt is whole and agrees with itself; a use, with its retrieval. Joins nothing."""
    lab = Lab(workspace)
    _report(lambda: _verified(_open(receipt, lab), lab), as_json)


def _verified(found: Receipt, lab: Lab) -> Record:
    if isinstance(found, RetrievalReceipt):
        return verify(found)
    verify(found)
    retrieval = find(lab.store, found.retrieval)
    if retrieval is None or not isinstance(retrieval.receipt, RetrievalReceipt):
        return Unverifiable(reason="retrieval not kept")
    return verify_use(found, retrieval.receipt)


@receipts.command()
def join(receipt: Named, workspace: Workspace = HERE, as_json: AsJson = False) -> None:
    """Read the stored inventory again, and check every result, exclusion and count against it."""
    lab = Lab(workspace)
    _report(lambda: verify_durable(_retrieval(receipt, lab), lab.store), as_json)


@receipts.command()
def replay(receipt: Named, workspace: Workspace = HERE, as_json: AsJson = False) -> None:
    """Ask the recorded query again under the recorded view: the results must be the same."""
    lab = Lab(workspace)
    _report(lambda: replay_stored(_retrieval(receipt, lab), lab.store), as_json)


@receipts.command()
def migrate(
    path: Annotated[Path, typer.Argument(help="A retrieval receipt that embeds its inventory (schema 1.0.0).")],
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Keep an embedded receipt of the v1 draft as one that refers to its stored inventory."""
    store, data = Lab(workspace).store, _bytes(path)
    _report(lambda: _migrated(data, store), as_json)


class _Migrated(Record, kw_only=True):
    receipt: str
    migrated_from: str
    entries: int


def _migrated(data: bytes, store: Store) -> _Migrated:
    found = migrate_v1(data, store)
    receipt = found.receipt
    return _Migrated(
        receipt=receipt.receipt_digest, migrated_from=receipt.migrated_from, entries=len(found.snapshot.rows)
    )


def _report(check: Callable[[], Record], as_json: bool) -> None:
    """Print one verdict and its reason; raise what the exit code needs."""
    try:
        result = check()
    except LabError as error:
        if error.exit_code == 5 and as_json:
            put_json({"verdict": "mismatch", "reason": str(error)})
        raise
    if isinstance(result, Unverifiable):
        if as_json:
            put_json({"verdict": "unverifiable", "reason": result.reason})
        raise NoEvidence(f"unverifiable ({result.reason}): {WHY[result.reason]}")
    verdict = type(result).__name__.lstrip("_").lower()
    reason = PROVED[verdict]
    if as_json:
        put_json({"verdict": verdict, "reason": reason, **msgspec.to_builtins(result)})
    else:
        say(f"✓ {verdict}: {reason}")


def _retrieval(named: str, lab: Lab) -> RetrievalReceipt:
    found = _open(named, lab)
    if not isinstance(found, RetrievalReceipt):
        raise UsageError(f"{named} is a {_summary(found)['kind']}; name its retrieval, {found.retrieval}")
    return found


def _open(named: str, lab: Lab) -> Receipt:
    path = _file(named)
    if path is not None:
        return read_receipt(_bytes(path))
    found = find(lab.store, named)
    if found is None:
        raise NoEvidence(
            f"no kept receipt is called {named!r}; xlab receipts list shows them, xlab nearest --keep adds one"
        )
    return found.receipt


def _file(named: str) -> Path | None:
    path = Path(named)
    return path if path.is_file() else None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
