"""Evidence as polars frames, each with a fixed schema and an explicit order, so that notebooks never walk records."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from experiential_lab.evidence.secrets import Secret
from experiential_lab.evidence.trace import LedgerRow, Rejected, SetAside, Trace, Transition

LEDGER = {
    "trace": pl.String,
    "step": pl.Int64,
    "branch": pl.String,
    "action": pl.String,
    "tool": pl.String,
    "outcome": pl.String,
    "reason": pl.String,
    "observation": pl.String,
    "observation_kind": pl.String,
    "observation_source": pl.String,
    "is_error": pl.Boolean,
    "terminal": pl.Boolean,
    "flags": pl.List(pl.String),
    "transition": pl.String,
    "source": pl.String,
    "offset": pl.Int64,
    "pointer": pl.String,
}
TRANSITIONS = {
    "id": pl.String,
    "trace": pl.String,
    "lineage": pl.String,
    "family": pl.String,
    "split": pl.String,
    "task": pl.String,
    "recent": pl.String,
    "action": pl.String,
    "tool": pl.String,
    "arguments": pl.String,
    "observation": pl.String,
    "pairing": pl.String,
    "observation_kind": pl.String,
    "observation_source": pl.String,
    "is_error": pl.Boolean,
    "terminal": pl.Boolean,
}
TRACES = {
    "trace": pl.String,
    "name": pl.String,
    "format": pl.String,
    "source": pl.String,
    "lineage": pl.String,
    "family": pl.String,
    "split": pl.String,
    "steps": pl.Int64,
    "transitions": pl.Int64,
    "task": pl.String,
    "usage": pl.String,
    "cost_nusd": pl.Int64,
    "usage_repeated": pl.Int64,
}
SET_ASIDE = {
    "trace": pl.String,
    "kind": pl.String,
    "reason": pl.String,
    "excerpt": pl.String,
    "source": pl.String,
    "offset": pl.Int64,
    "pointer": pl.String,
}
REJECTED = {
    "reason": pl.String,
    "path": pl.String,
    "record": pl.Int64,
    "offset": pl.Int64,
    "size": pl.Int64,
    "excerpt": pl.String,
}
SECRETS = {
    "kind": pl.String,
    "path": pl.String,
    "member": pl.String,
    "offset": pl.Int64,
    "size": pl.Int64,
}
CONSERVATION = {
    "path": pl.String,
    "source": pl.String,
    "records": pl.Int64,
    "rejected": pl.Int64,
    "events": pl.Int64,
    "events_used": pl.Int64,
    "set_aside": pl.Int64,
    "steps": pl.Int64,
    "transitions": pl.Int64,
    "left_out": pl.Int64,
}


def ledger_frame(rows: Iterable[LedgerRow], transitions: Iterable[Transition]) -> pl.DataFrame:
    """One row a step, in the order of `rows`; `observation` is null where a step was left out."""
    found = {each.transition_id: each for each in transitions}
    return _frame(LEDGER, (_ledger_row(row, found.get(row.transition_id or "")) for row in rows))


def transitions_frame(
    transitions: Iterable[Transition], lineages: Mapping[str, str], sides: Mapping[str, tuple[str, str]]
) -> pl.DataFrame:
    """One row a transition. `sides`: {trace id: (family, split)}; null before a split."""
    return _frame(
        TRANSITIONS,
        (
            {
                "id": each.transition_id,
                "trace": each.trace_id,
                "lineage": lineages[each.trace_id],
                "family": sides.get(each.trace_id, (None, None))[0],
                "split": sides.get(each.trace_id, (None, None))[1],
                "action": each.action.text,
                "tool": each.action.tool,
                "arguments": each.action.arguments,
                **{
                    name: getattr(each, name)
                    for name in (
                        *("task", "recent", "observation", "pairing", "observation_kind", "observation_source"),
                        *("is_error", "terminal"),
                    )
                },
            }
            for each in transitions
        ),
    )


def traces_frame(
    traces: Iterable[Trace],
    ledger: Iterable[LedgerRow],
    lineages: Mapping[str, str],
    sides: Mapping[str, tuple[str, str]],
) -> pl.DataFrame:
    """One row a trace; `usage` and `cost_nusd` are null where they are unknown."""
    steps: dict[str, list[LedgerRow]] = {}
    for row in ledger:
        steps.setdefault(row.trace_id, []).append(row)
    return _frame(
        TRACES,
        (
            {
                "trace": trace.trace_id,
                "name": trace.name,
                "format": trace.format,
                "source": trace.source,
                "lineage": lineages[trace.trace_id],
                "family": sides.get(trace.trace_id, (None, None))[0],
                "split": sides.get(trace.trace_id, (None, None))[1],
                "steps": len(steps.get(trace.trace_id, ())),
                "transitions": sum(row.transition_id is not None for row in steps.get(trace.trace_id, ())),
                "task": trace.task,
                "usage": _told(trace.usage),
                "cost_nusd": trace.cost_nusd,
                "usage_repeated": trace.usage_repeated,
            }
            for trace in traces
        ),
    )


def _told(usage: tuple[tuple[str, int], ...] | None) -> str | None:
    """Usage in words; of a copy nothing counts."""
    if usage is None:
        return None
    return ", ".join(f"{count:,} {kind}" for kind, count in usage) or "counted elsewhere"


def set_aside_frame(rows: Iterable[SetAside]) -> pl.DataFrame:
    """One row an event that no step and no observation used."""
    return _frame(
        SET_ASIDE,
        (
            {
                "trace": row.trace_id,
                "kind": row.kind,
                "reason": row.reason,
                "excerpt": row.excerpt,
                "source": row.span.source,
                "offset": row.span.offset,
                "pointer": "".join(row.span.pointers),
            }
            for row in rows
        ),
    )


def rejected_frame(rows: Iterable[Rejected], names: Mapping[str, str]) -> pl.DataFrame:
    """One row a record that could not be used, with its place. `names`: {source digest: path}"""
    return _frame(
        REJECTED,
        (
            {
                "reason": row.reason,
                "path": f"{names[row.source]}#{row.member}" if row.member else names[row.source],
                "record": row.record,
                "offset": row.offset,
                "size": row.size,
                "excerpt": row.excerpt,
            }
            for row in rows
        ),
    )


def secrets_frame(found: Iterable[tuple[str, str, Secret]]) -> pl.DataFrame:
    """One row a place that looks like a secret: (path, member, secret) each; what stands there is not in it."""
    rows = ((each.kind, path, member, each.start, each.end - each.start) for path, member, each in found)
    return pl.DataFrame(list(rows), schema=SECRETS, orient="row")


def conservation_frame(rows: Iterable[Mapping[str, object]]) -> pl.DataFrame:
    """One row a source; `holds`: steps = transitions + left out, and events = used + set aside."""
    return _frame(CONSERVATION, rows).with_columns(
        holds=(pl.col("steps") == pl.col("transitions") + pl.col("left_out"))
        & (pl.col("events") == pl.col("events_used") + pl.col("set_aside"))
        & (pl.col("rejected") <= pl.col("records"))
    )


def _ledger_row(row: LedgerRow, found: Transition | None) -> dict[str, object]:
    return {
        "trace": row.trace_id,
        "step": row.step,
        "branch": row.branch,
        "action": row.action,
        "tool": row.tool,
        "outcome": row.outcome,
        "reason": None if found else row.outcome,
        "observation": found.observation if found else None,
        "observation_kind": found.observation_kind if found else None,
        "observation_source": found.observation_source if found else None,
        "is_error": found.is_error if found else None,
        "terminal": found.terminal if found else None,
        "flags": list(row.flags),
        "transition": row.transition_id,
        "source": row.span.source,
        "offset": row.span.offset,
        "pointer": "".join(row.span.pointers),
    }


def _frame(schema: Mapping[str, Any], rows: Iterable[Mapping[str, object]]) -> pl.DataFrame:
    return pl.DataFrame([tuple(row.get(name) for name in schema) for row in rows], schema=dict(schema), orient="row")
