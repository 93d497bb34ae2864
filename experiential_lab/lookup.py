"""Open anything of a workspace by its id or digest, or by the beginning of one, and check it against its source.

- A transition, or a step that was left out, shows the text that its spans open to now, read from the source's bytes again.
- A reason opens as the list of all that ended with it, each with its level and place. A file opens by the end of its path,
  a record of it by its number: `traces.jsonl:12`, or `logs.zip#a.jsonl:12` for a file inside a zip.
- A receipt shows what was verified and what was not. What no room knows by its id is looked for among the stored things.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import polars as pl

from experiential_lab.evidence.corpus import Corpus
from experiential_lab.evidence.frames import ledger_frame, rejected_frame
from experiential_lab.evidence.sources import SourceInfo
from experiential_lab.evidence.split import current_split
from experiential_lab.evidence.trace import (
    EVENT_REASONS,
    RECORD_REASONS,
    STEP_REASONS,
    LedgerRow,
    Rejected,
    Trace,
    Transition,
)
from experiential_lab.records import LabError, NoEvidence, Span, Unverifiable, UsageError
from experiential_lab.retrieval.kept import SHORTEST, find
from experiential_lab.retrieval.receipts import Receipt, RetrievalReceipt, verify, verify_durable
from experiential_lab.store import Store

STEP = re.compile(r"[0-9a-f]+/[0-9]+")
REASONS = {*STEP_REASONS, *EVENT_REASONS, *RECORD_REASONS}


def look_up(store: Store, ident: str, corpus: Corpus | None) -> dict[str, Any]:
    """What stands under an id, ready for JSON; its `kind` says what it is.

    Raises:
        NoEvidence: nothing has that id.
        UsageError: it is too short, or the beginning of several.
        IntegrityError: a stored thing, or the text that a span quotes, is not what was recorded.
    """
    if corpus is not None and (found := _by_name(ident, corpus, store)):
        return found
    plain = ident.removeprefix("sha256:")
    if len(plain) < SHORTEST:
        raise UsageError(f"{ident!r} is too short for an id; give at least {SHORTEST} characters")
    if corpus is not None:
        traces = {trace.trace_id: trace for trace in corpus.traces}
        if trace := _only(plain, traces):
            return _trace(traces[trace], corpus)
        lineages = sorted(set(corpus.lineages.values()))
        if lineage := _only(plain, lineages):
            mine = [trace for trace in corpus.traces if corpus.lineages[trace.trace_id] == lineage]
            return {
                "kind": "lineage",
                "id": lineage,
                "traces": [[trace.trace_id, trace.name, trace.task] for trace in mine],
            }
        if family := _family(plain, store):
            return family
        sources = {info.digest.removeprefix("sha256:"): info for info in corpus.sources}
        if source := _only(plain, sources):
            return _source(sources[source], corpus, store)
    if tomb := next((row for row in store.rows("forgotten") if _only(plain, _hex(row.fields["removed"]))), None):
        return {"kind": "tombstone", "at": tomb.at, "actor": tomb.actor, **tomb.fields}
    if kept_receipt := find(store, plain):
        return _receipt(kept_receipt.receipt, store)
    answering = _answering(store)
    if alias := _only(plain, answering):
        plain = answering[alias]
    if artifact := _only(plain, _hex(_named(store))):
        kept = store.describe(f"sha256:{artifact}")
        return {"kind": kept.kind, "digest": f"sha256:{artifact}", "inputs": kept.inputs, "body": kept.body}
    raise NoEvidence(
        f"nothing has the id {ident!r}; xlab transitions --ledger lists ids, a file opens by its path, a reason by its "
        "name, and a receipt after xlab nearest --keep"
    )


def _answering(store: Store) -> dict[str, str]:
    """{snapshot or identity of an index: the last artifact that answers for it}, in hex."""
    return {
        str(row.fields[name]).removeprefix("sha256:"): str(row.fields["artifact"]).removeprefix("sha256:")
        for row in store.rows("index_built")
        for name in ("snapshot", "index")
        if name in row.fields
    }


def _by_name(ident: str, corpus: Corpus, store: Store) -> dict[str, Any] | None:
    """What people read of a report: a reason, a step by its trace and number, a file, a record of it."""
    if ident in REASONS:
        return _reason(ident, corpus)
    if STEP.fullmatch(ident):
        return _step(find_step(corpus, ident), corpus)
    return _file(ident, corpus, store)


def find_transition(corpus: Corpus, ident: str) -> Transition:
    """A step by its id, or by a beginning of its trace and its number: `9d72d806/0003`.

    Raises:
        NoEvidence: no transition has that id.
        UsageError: it stands for several.
    """
    row = find_step(corpus, ident)
    if row.transition_id is None:
        raise NoEvidence(
            f"step {ident!r} is no transition: it was left out, {row.outcome}; xlab transitions lists them"
        )
    return next(each for each in corpus.transitions if each.transition_id == row.transition_id)


def find_step(corpus: Corpus, ident: str) -> LedgerRow:
    """What became of a step, paired or left out, by a beginning of its trace and its number. Raises as `find_transition`."""
    trace, _, number = ident.partition("/")
    found = [
        row
        for row in corpus.ledger
        if trace and number.isdecimal() and row.trace_id.startswith(trace) and row.step == int(number)
    ]
    if len(found) > 1:
        raise UsageError(f"{ident!r} stands for {len(found)} steps; give more of the id")
    if not found:
        raise NoEvidence(f"no step has the id {ident!r}; xlab transitions --ledger lists them")
    return found[0]


def _only(beginning: str, known: Iterable[str]) -> str | None:
    found = [name for name in known if name.startswith(beginning)]
    if len(found) > 1 and beginning not in found:
        raise UsageError(f"{beginning!r} is the beginning of {len(found)} ids, for example {found[0]} and {found[1]}")
    return beginning if beginning in found else found[0] if found else None


def _named(store: Store) -> list[str]:
    return [str(row.fields["artifact"]) for row in store.rows() if "artifact" in row.fields]


def _hex(digests: Iterable[str]) -> list[str]:
    return [digest.removeprefix("sha256:") for digest in digests]


def _transition(each: Transition, corpus: Corpus) -> dict[str, Any]:
    return {
        "kind": "transition",
        "id": each.transition_id,
        "trace": each.trace_id,
        "lineage": corpus.lineages[each.trace_id],
        "task": each.task,
        "recent": each.recent,
        "action": each.action.text,
        "tool": each.action.tool,
        "arguments": each.action.arguments,
        "observation": each.observation,
        "pairing": each.pairing,
        "observation_kind": each.observation_kind,
        "observation_source": each.observation_source,
        "is_error": each.is_error,
        "terminal": each.terminal,
        "at": each.at,
        "action_text": _opened(each.action_span, corpus),
        "observation_text": _opened(each.observation_span, corpus),
    }


def _step(row: LedgerRow, corpus: Corpus) -> dict[str, Any]:
    if row.transition_id is not None:
        return _transition(find_transition(corpus, row.transition_id), corpus)
    return {
        "kind": "step",
        "id": f"{row.trace_id}/{row.step:04}",
        "trace": row.trace_id,
        "lineage": corpus.lineages[row.trace_id],
        "outcome": row.outcome,
        "branch": row.branch,
        "tool": row.tool,
        "action": row.action,
        "flags": list(row.flags),
        "action_text": _opened(row.span, corpus),
    }


def _reason(reason: str, corpus: Corpus) -> dict[str, Any]:
    """All that ended with one reason, at each level that has it."""
    records = rejected_frame((row for row in corpus.rejected if row.reason == reason), corpus.names)
    events = [row for row in corpus.set_aside if row.reason == reason]
    steps = [row for row in corpus.ledger if row.outcome == reason]
    places = [
        _place("record", None, f"{row['path']}:{row['record']}", row["excerpt"])
        for row in records.iter_rows(named=True)
    ]
    places += [_place("event", row.trace_id, _where(row.span, corpus), row.excerpt) for row in events]
    places += [_place("step", row.trace_id, f"{row.trace_id}/{row.step:04}", row.action) for row in steps]
    counts = {"records": records.height, "events": len(events), "steps": len(steps)}
    return {"kind": "reason", "reason": reason, **counts, "places": places}


def _place(level: str, trace: str | None, place: str, excerpt: str) -> dict[str, Any]:
    return {"level": level, "trace": trace, "place": place, "excerpt": excerpt}


def _where(span: Span, corpus: Corpus) -> str:
    member = f"#{span.member}" if span.member else ""
    return f"{corpus.names[span.source]}{member} byte {span.offset} {''.join(span.pointers)}".rstrip()


def _file(ident: str, corpus: Corpus, store: Store) -> dict[str, Any] | None:
    """A source by the end of its path, or a rejected record of it by its number; None where no file has that path.

    Raises:
        UsageError: several files end so.
        NoEvidence: the file is known, and no record of that number was rejected.
    """
    if source := _ending(ident, corpus):
        return _source(source, corpus, store)
    place, _, number = ident.rpartition(":")
    path, _, member = place.partition("#")
    source = _ending(path, corpus) if number.isdecimal() else None
    if source is None:
        return None
    for row in corpus.part(Rejected, [source]):
        if (row.member, row.record) == (member, int(number)):
            return {"kind": "record", "path": corpus.names[row.source], **msgspec.to_builtins(row)}
    raise NoEvidence(
        f"record {number} of {place} was not rejected, or does not exist; xlab show {path} lists those that were"
    )


def _ending(path: str, corpus: Corpus) -> SourceInfo | None:
    """The one source whose path ends in this one, at a whole name; of a log that has grown, its latest bytes."""
    found = [info for info in corpus.sources if path and f"/{corpus.names[info.digest]}".endswith(f"/{path}")]
    grown = {info.extends for info in found}
    found = [info for info in found if info.digest not in grown]
    if len(found) > 1:
        where = " and ".join(f"{corpus.names[info.digest]} ({info.digest[:15]})" for info in found[:2])
        raise UsageError(
            f"{path!r} stands for {len(found)} files, for example {where}; give more of the path, or the digest"
        )
    return found[0] if found else None


def _source(info: SourceInfo, corpus: Corpus, store: Store) -> dict[str, Any]:
    rejected = rejected_frame(corpus.part(Rejected, [info]), corpus.names)
    places = pl.concat_str("path", "record", separator=":")
    return {
        "kind": "source",
        "path": corpus.names[info.digest],
        **msgspec.to_builtins(info),
        "stored": store.has(info.digest),
        "traces": [trace.trace_id for trace in corpus.trace_keys(info)],
        "rejected": rejected.select(place=places).hstack(rejected.drop("path")).to_dicts(),
    }


def _family(plain: str, store: Store) -> dict[str, Any] | None:
    current = current_split(store)
    rows = current.table.rows if current else ()
    found = _only(plain, sorted({row.family for row in rows}))
    mine = [row for row in rows if row.family == found]
    if not mine:
        return None
    lineages = sorted({row.lineage for row in mine})
    return {
        "kind": "family",
        "id": found,
        "split": mine[0].split,
        "lineages": lineages,
        "traces": [r.trace_id for r in mine],
    }


def _opened(span: Span, corpus: Corpus) -> dict[str, Any]:
    """Where a text stands, and the text that stands there now."""
    place = {
        "path": corpus.names[span.source],
        "source": span.source,
        "offset": span.offset,
        "size": span.size,
        "pointer": "".join(span.pointers),
    }
    return {**place, "located": span.located, "text": corpus.open(span)}


def _trace(trace: Trace, corpus: Corpus) -> dict[str, Any]:
    rows = [row for row in corpus.ledger if row.trace_id == trace.trace_id]
    transitions = [each for each in corpus.transitions if each.trace_id == trace.trace_id]
    ledger = ledger_frame(rows, transitions).select(
        "step", "branch", "action", "tool", "outcome", "observation", "transition"
    )
    return {
        "kind": "trace",
        "id": trace.trace_id,
        "name": trace.name,
        "format": trace.format,
        "source": trace.source,
        "lineage": corpus.lineages[trace.trace_id],
        "keys": list(trace.keys),
        "task": trace.task,
        "statement": trace.statement,
        "context": trace.context,
        "usage": None if trace.usage is None else dict(trace.usage),
        "cost_nusd": trace.cost_nusd,
        "usage_repeated": trace.usage_repeated,
        "ledger": ledger.to_dicts(),
        "set_aside": [
            {
                "kind": row.kind,
                "reason": row.reason,
                "place": _where(row.span, corpus),
                "excerpt": row.excerpt,
            }
            for row in corpus.set_aside
            if row.trace_id == trace.trace_id
        ],
    }


def _receipt(receipt: Receipt, store: Store) -> dict[str, Any]:
    """The receipt, with a line a check."""
    checks: dict[str, Callable[[], object]] = {"shape and digest": lambda: verify(receipt)}
    if isinstance(receipt, RetrievalReceipt):
        checks["join with the stored snapshot"] = lambda: verify_durable(receipt, store)
    return {"kind": "receipt", "checks": lines_of(checks), **msgspec.to_builtins(receipt)}


def lines_of(checks: Mapping[str, Callable[[], object]]) -> dict[str, str]:
    """One line a check: ✓ held, ✗ did not, ? could not be looked at."""
    lines = {}
    for name, check in checks.items():
        try:
            result = check()
        except LabError as error:
            lines[name] = f"✗ {error}"
        else:
            lines[name] = f"? unverifiable: {result.reason}" if isinstance(result, Unverifiable) else "✓"
    return lines
