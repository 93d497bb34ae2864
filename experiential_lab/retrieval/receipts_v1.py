"""Read a retrieval receipt that embeds its whole inventory: it becomes a Snapshot, and a receipt that refers to it.

The form is the public draft that others wrote before receipts referred to snapshots: `kind` knowledge-retrieval,
`schemaVersion` 1.0.0, `digestAlgorithm` rfc8785-sha256 (the package agent-knowledge before its version 10).

- Both digests are made anew, of the receipt and of its inventory, and each result must be one entry of that inventory: the
  same id, origin, path and page digest. What was tampered with, or has other fields, is refused.
- Rows keep the order of the draft. Only id, origin and path together are unique there, so together they are the entry id;
  the origin is the lineage, the page digest the content.
- A score is written in units of 10**-9, and its exact number among the reasons. Run, time, actor and evidence stand in
  `envelope`: they are in no receipt of ours. The ranker is not here, so a migrated receipt can be joined, not replayed.

Not covered: writing the draft, and its use receipts. What a draft says is not made true by its digest.
"""

import json
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from experiential_lab.metrics import strict_json
from experiential_lab.records import SAFE_INTEGER, IntegrityError, Json, UnsupportedError, digest_of
from experiential_lab.retrieval.kept import keep
from experiential_lab.retrieval.ranking import RankerConfig
from experiential_lab.retrieval.receipts import FOREIGN, SNIPPET, Hit, Query, RetrievalReceipt, join, seal
from experiential_lab.retrieval.views import Row, Snapshot, View
from experiential_lab.store import Store

VERSION = "1.0.0"

_OPTIONAL = {"actorId", "profileDigest", "executionRef"}
_ENVELOPE = {"createdAt", "runId", "evidenceRefs", *_OPTIONAL}
_VISIBILITY = {"schemaVersion", "digestAlgorithm", "snapshotDigest", "entries"}
_ENTRY = {"position", "pageId", "origin", "path", "pageDigest", "sourceIds", "invalidated"}
_RESULT = {
    *_ENTRY - {"position", "sourceIds", "invalidated"},
    "rank",
    "rrfScore",
    "normalizedScore",
    "snippet",
    "reasons",
}
_RECEIPT = {*_VISIBILITY - {"snapshotDigest", "entries"}, *_ENVELOPE, "kind", "receiptDigest", "query", "retriever"}
_RECEIPT |= {"visibility", "results", "attributes"}


class Migrated(NamedTuple):
    snapshot: Snapshot
    receipt: RetrievalReceipt
    """After `read_v1` it names no artifact: the inventory of `snapshot` is stored nowhere yet."""
    envelope: dict[str, Json]
    """What the draft says of the run that asked."""


def migrate_v1(data: bytes, store: Store) -> Migrated:
    """Read a draft, store its inventory once, and keep the receipt that refers to it. Raises as `read_v1` and `keep` do."""
    found = read_v1(data)
    store.put(found.snapshot.inventory())
    seen = msgspec.structs.replace(found.receipt.visibility, artifact=found.snapshot.artifact)
    receipt = seal(msgspec.structs.replace(found.receipt, visibility=seen))
    keep(store, receipt)
    return found._replace(receipt=receipt)


def read_v1(data: bytes) -> Migrated:
    """The snapshot and the receipt of one draft.

    Raises:
        IntegrityError: it is no such draft, or not what was written.
        UnsupportedError: it has another version, or a result that no receipt of ours can say: invalidated, or below 0.
    """
    try:
        return _migrated(strict_json(data.decode()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityError(f"not a v1 receipt: {type(error).__name__}: {error}") from error


def _migrated(draft: Any) -> Migrated:
    _check(draft, _RECEIPT, "receiptDigest")
    _check(draft["visibility"], _VISIBILITY, "snapshotDigest")
    snapshot = Snapshot([_row(entry, place) for place, entry in enumerate(draft["visibility"]["entries"])])
    places = {row.entry_id: place for place, row in enumerate(snapshot.rows)}
    if len(places) < len(snapshot.rows) or draft["kind"] != "knowledge-retrieval":
        raise ValueError(f"kind {draft['kind']!r}, {len(snapshot.rows)} entries, {len(places)} of them different")
    said = [("v1.retriever", draft["retriever"]), ("v1.attributes", draft["attributes"])]
    receipt = RetrievalReceipt(
        schema=1,
        query=Query(action=draft["query"]),
        k=len(draft["results"]),
        retriever=RankerConfig(ranker=FOREIGN + draft["retriever"]["id"], channels=(), recent_limit=0, unicode=""),
        visibility=View(snapshot).visibility(),
        results=tuple(_hit(result, snapshot, places) for result in draft["results"]),
        attributes=tuple(
            sorted((f"{of}.{name}", _spelled(value)) for of, values in said for name, value in values.items())
        ),
        migrated_from=draft["receiptDigest"],
    )
    receipt = seal(receipt)
    join(receipt, snapshot)
    return Migrated(snapshot, receipt, {name: draft[name] for name in sorted(_ENVELOPE & draft.keys())})


def _check(value: dict[str, Json], fields: set[str], digest: str = "") -> None:
    """Refuse other fields than `fields`, and another digest than stands in the field `digest`."""
    if wrong := (value.keys() ^ fields) - (_OPTIONAL - value.keys()):
        raise ValueError(f"missing or unknown fields: {', '.join(sorted(wrong))}")
    if not digest:
        return
    if (value["schemaVersion"], value["digestAlgorithm"]) != (VERSION, "rfc8785-sha256"):
        raise UnsupportedError(f"a draft of schema {value['schemaVersion']!r}; this version reads schema {VERSION!r}")
    found = digest_of(_spelled({name: item for name, item in value.items() if name != digest}).encode())
    if found != value[digest]:
        raise IntegrityError(f"{digest}: the draft says {value[digest]!r}, its bytes give {found!r}")


def _row(entry: dict[str, Any], place: int) -> Row:
    _check(entry, _ENTRY)
    if entry["position"] != place:
        raise ValueError(f"an entry says position {entry['position']}, it stands at {place}")
    given = {"path": entry["path"], "source_ids": entry["sourceIds"], "invalidated": entry["invalidated"]}
    given |= {"entry_id": _id_of(entry), "lineages": [entry["origin"]], "content": entry["pageDigest"], "kind": "page"}
    return msgspec.convert(given, Row)


def _id_of(page: dict[str, Any]) -> str:
    return f"{page['pageId']}@{page['origin']}:{page['path']}"


def _hit(result: dict[str, Any], snapshot: Snapshot, places: dict[str, int]) -> Hit:
    _check(result, _RESULT)
    place = places.get(_id_of(result))
    if place is None or snapshot.rows[place].content != result["pageDigest"]:
        raise IntegrityError(f"result {_id_of(result)} with {result['pageDigest']} is no entry of its inventory")
    row, score = snapshot.rows[place], round(result["rrfScore"] * 10**9)
    if score < 0 or row.invalidated:
        raise UnsupportedError(f"rank {result['rank']} is invalidated, or has the score {result['rrfScore']} below 0")
    reasons = (*result["reasons"], *(f"{name}: {_spelled(result[name])}" for name in ("rrfScore", "normalizedScore")))
    parts, snippet = (("rrfScore", score),), result["snippet"][:SNIPPET]
    rank = result["rank"]
    return Hit(rank=rank, position=place, row=row, score=score, parts=parts, snippet=snippet, reasons=reasons)


def _spelled(value: Json) -> str:
    """The canonical JSON of RFC 8785, with floats; keys in the order of their UTF-16."""
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
        return "{" + ",".join(f"{_spelled(key)}:{_spelled(item)}" for key, item in items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_spelled, value)) + "]"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) > SAFE_INTEGER):
        return _number(float(value))
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """A double as ECMAScript writes it: the shortest digits, an exponent below 10**-6 and from 10**21 on."""
    if not value:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    if -6 < point <= 0:
        text = "0." + "0" * -point + text
    elif 0 < point <= 21:
        text = text[:point].ljust(point, "0") + (f".{text[point:]}" if text[point:] else "")
    else:
        text = text[0] + (f".{text[1:]}" if text[1:] else "") + f"e{point - 1:+d}"
    return "-" * sign + text
