"""Open anything of a workspace by its id or digest, or by the beginning of one, and check it against its source.

A transition shows the text that its spans open to now, read from the source's bytes again. A receipt shows what was verified
and what was not. What no room knows by its id is looked for among the stored things.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from experiential_lab.evidence.corpus import Corpus
from experiential_lab.evidence.frames import ledger_frame
from experiential_lab.evidence.trace import Trace, Transition
from experiential_lab.records import LabError, NoEvidence, Span, Unverifiable, UsageError
from experiential_lab.retrieval.kept import SHORTEST, find
from experiential_lab.retrieval.receipts import Receipt, RetrievalReceipt, verify, verify_durable
from experiential_lab.store import Store


def look_up(store: Store, ident: str, corpus: Corpus | None) -> dict[str, Any]:
    """What stands under an id, ready for JSON; its `kind` says what it is.

    Raises:
        NoEvidence: nothing has that id.
        UsageError: it is too short, or the beginning of several.
        IntegrityError: a stored thing, or the text that a span quotes, is not what was recorded.
    """
    plain = ident.removeprefix("sha256:")
    if len(plain) < SHORTEST:
        raise UsageError(f"{ident!r} is too short for an id; give at least {SHORTEST} characters")
    if corpus is not None:
        if "/" in ident:
            return _transition(find_transition(corpus, ident), corpus)
        traces = {trace.trace_id: trace for trace in corpus.traces}
        if found := _only(plain, traces):
            return _trace(traces[found], corpus)
        lineages = sorted(set(corpus.lineages.values()))
        if found := _only(plain, lineages):
            mine = [trace for trace in corpus.traces if corpus.lineages[trace.trace_id] == found]
            return {
                "kind": "lineage",
                "id": found,
                "traces": [[trace.trace_id, trace.name, trace.task] for trace in mine],
            }
        sources = {info.digest.removeprefix("sha256:"): info for info in corpus.sources}
        if found := _only(plain, sources):
            return {
                "kind": "source",
                "path": corpus.names[f"sha256:{found}"],
                **msgspec.to_builtins(sources[found]),
                "stored": store.has(sources[found].digest),
            }
    if tomb := next((row for row in store.rows("forgotten") if _only(plain, _hex(row.fields["removed"]))), None):
        return {"kind": "tombstone", "at": tomb.at, "actor": tomb.actor, **tomb.fields}
    if kept_receipt := find(store, plain):
        return _receipt(kept_receipt.receipt, store)
    if found := _only(plain, _hex(_named(store))):
        kept = store.describe(f"sha256:{found}")
        return {"kind": kept.kind, "digest": f"sha256:{found}", "inputs": kept.inputs, "body": kept.body}
    raise NoEvidence(
        f"nothing has the id {ident!r}; xlab transitions and xlab import --ledger list ids, and a receipt opens after "
        "xlab nearest --keep"
    )


def find_transition(corpus: Corpus, ident: str) -> Transition:
    """A step by its id, or by a beginning of its trace and its number: `9d72d806/0003`.

    Raises:
        NoEvidence: no transition has that id.
        UsageError: it stands for several.
    """
    trace, _, number = ident.partition("/")
    found = [
        each
        for each in corpus.transitions
        if each.trace_id.startswith(trace) and each.transition_id.endswith(f"/{number}")
    ]
    if len(found) > 1:
        raise UsageError(f"{ident!r} stands for {len(found)} transitions; give more of the id")
    if not found or not trace:
        raise NoEvidence(f"no transition has the id {ident!r}; xlab transitions lists them")
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
        "ledger": ledger.to_dicts(),
        "set_aside": [
            {"kind": row.kind, "reason": row.reason, "excerpt": row.excerpt}
            for row in corpus.set_aside
            if row.trace_id == trace.trace_id
        ],
    }


def _receipt(receipt: Receipt, store: Store) -> dict[str, Any]:
    """The receipt, and one line a check: ✓ held, ✗ did not, ? could not be looked at."""
    checks: dict[str, Callable[[], object]] = {"shape and digest": lambda: verify(receipt)}
    if isinstance(receipt, RetrievalReceipt):
        checks["join with the stored snapshot"] = lambda: verify_durable(receipt, store)
    lines = {}
    for name, check in checks.items():
        try:
            result = check()
        except LabError as error:
            lines[name] = f"✗ {error}"
        else:
            lines[name] = f"? unverifiable: {result.reason}" if isinstance(result, Unverifiable) else "✓"
    return {"kind": "receipt", "checks": lines, **msgspec.to_builtins(receipt)}
