"""What an import holds, as the views of one page: formats, ledger, reasons by level, families by threshold, and traces."""

from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import polars as pl

from experiential_lab.evidence.frames import traces_frame
from experiential_lab.evidence.report import ImportReport
from experiential_lab.evidence.split import split_families, sweep_frame
from experiential_lab.records import NoEvidence
from experiential_lab.show.plots import Finding, plot_ledger, plot_sweep
from experiential_lab.show.theme import Mode, money, plural

FORMATS = {"format": pl.String, "rule": pl.String, "files": pl.Int64}
TRACES_SHOWN = 40
REJECTED_SHOWN = 40
LEVELS = {"record": "records_rejected", "event": "set_aside", "step": "left_out", "secret": "secrets"}


class Contents(NamedTuple):
    formats: pl.DataFrame
    """One row a format and the rule that chose it, with its number of files; then why others could not be used."""
    ledger: Finding
    reasons: pl.DataFrame
    """One row a level and reason: what was rejected, set aside or left out, and what looks like a secret."""
    rejected: pl.DataFrame
    sweep: Finding
    leak: str
    """What a split by single traces would leak, in one sentence."""
    traces: pl.DataFrame
    spent: str
    """What is known of usage and cost, in one sentence."""
    repeated: str
    """Usage that is stated twice and was not added; empty: none."""


def contents(report: ImportReport, *, threshold: str = "0.9", mode: Mode = "light") -> Contents:
    """All views of an import. Nothing is written: the split that it speaks of is a thought."""
    counts, corpus = report.counts, report.corpus
    files = Counter((each["format"], each["rule"]) for each in counts["formats"])
    formats = [(name, rule, n) for (name, rule), n in sorted(files.items())]
    unusable = Counter(each["reason"].split(":")[0] for each in counts["unusable"])
    formats += [("not used", reason, n) for reason, n in sorted(unusable.items())]
    reasons = [(level, reason, n) for level, name in LEVELS.items() for reason, n in counts[name].items()]
    rejected = report.rejected.with_columns(path=pl.col("path").str.split("/").list.last())
    traces = traces_frame(corpus.traces, corpus.ledger, corpus.lineages, {})
    return Contents(
        formats=pl.DataFrame(formats, schema=FORMATS, orient="row"),
        ledger=plot_ledger(counts, report.ledger, mode=mode),
        reasons=pl.DataFrame(
            reasons, schema={"level": pl.String, "reason": pl.String, "count": pl.Int64}, orient="row"
        ),
        rejected=rejected.select("reason", "path", "record", "excerpt").head(REJECTED_SHOWN),
        sweep=plot_sweep(sweep_frame(corpus.traces), threshold=float(Fraction(threshold)), mode=mode),
        leak=_leak(report, threshold),
        traces=traces.select("name", "lineage", "steps", "transitions", "task", "usage", "cost_nusd").head(
            TRACES_SHOWN
        ),
        spent=_spent(traces),
        repeated=_repeated(counts["usage_repeated"]),
    )


def _spent(traces: pl.DataFrame) -> str:
    costs, used = traces["cost_nusd"].drop_nulls(), traces["usage"].drop_nulls()
    of = plural(traces.height, "trace")
    cost = f"cost of {len(costs):,}, {money(int(costs.sum()))} together" if len(costs) else "cost of none"
    listed = f" The first {TRACES_SHOWN} of {of} are listed." if traces.height > TRACES_SHOWN else ""
    return f"Of {of}, the usage of {len(used):,} is known, and the {cost}; unknown is not zero.{listed}"


def _repeated(count: int) -> str:
    """Usage that would count twice."""
    whose = "view, counted on its children" if count == 1 else "views, counted on their children"
    return f"{plural(count, 'parent span')} or second {whose}" if count else ""


def _leak(report: ImportReport, threshold: str) -> str:
    try:
        leak = split_families(report.corpus.traces, threshold=threshold).trace_level_leak()
    except NoEvidence as error:
        return f"{error}."
    return (
        f"A split by single traces would leak: {leak['with_family_in_fit']} of its {leak['held_out_traces']} held-out "
        "traces would have a relative among the fit ones; a split by families has none."
    )
