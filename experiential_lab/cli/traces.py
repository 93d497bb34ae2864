"""Commands about evidence: import, transitions, split, forget, verify."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import polars as pl
import typer

from experiential_lab.cli.app import app
from experiential_lab.cli.screen import (
    HERE,
    AsJson,
    Workspace,
    clip,
    err,
    one_of,
    progress_bar,
    put_json,
    reasons,
    say,
    say_some,
    show_frame,
    write_frame,
)
from experiential_lab.evidence.importers import formats
from experiential_lab.evidence.report import ImportReport
from experiential_lab.evidence.sources import Declared
from experiential_lab.lab import Lab
from experiential_lab.records import NoEvidence, UsageError

FORMATS = ", ".join(each.name for each in formats())


@app.command("import")
def import_(
    paths: Annotated[list[Path], typer.Argument(help="Trace files, patterns of them, or directories.")],
    format: Annotated[str | None, typer.Option(help=f"Declare it instead of sniffing: {FORMATS}.")] = None,
    origin: Annotated[str, typer.Option(help="recorded, simulated_environment or written.")] = "recorded",
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many records of each file.")] = None,
    ledger: Annotated[bool, typer.Option("--ledger", help="Also list every step and what became of it.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="So many processes read; else as many as help.")] = None,
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Read trace files, and account for every record, event and step."""
    declared = Declared(format, one_of(origin, ("recorded", "simulated_environment", "written"), "--origin"), limit)
    try:
        with progress_bar("reading") as progress:
            report = Lab(workspace).import_traces(*paths, declared=declared, progress=progress, jobs=jobs)
    except NoEvidence as error:
        if isinstance(error.report, ImportReport):
            _print_report(error.report, ledger=ledger, as_json=as_json)
        raise
    _print_report(report, ledger=ledger, as_json=as_json)


def _print_report(report: ImportReport, *, ledger: bool, as_json: bool) -> None:
    rows = (
        report.ledger.select("trace", "step", "action", "tool", "outcome", "observation").to_dicts() if ledger else []
    )
    if as_json:
        places = {"rejected": report.rejected.to_dicts(), "secret_places": report.secrets.to_dicts()}
        put_json(report.counts | places | ({"ledger": rows} if ledger else {}))
        return
    counts = report.counts
    for each in sorted(counts["formats"], key=lambda each: each["path"]):
        say(f"{each['path']}: {each['format']} ({each['rule']})")
    _sum("records", counts["records"], {"used": counts["records_used"]}, counts["records_rejected"])
    _sum("events", counts["events"], counts["events_used"], counts["set_aside"])
    _sum("steps", counts["steps"], counts["pairing"], counts["left_out"])
    holds = report.conservation["holds"].all()
    say(
        f"{counts['transitions']:,} of {counts['steps']:,} steps are paired, in {counts['traces']:,} traces of "
        f"{counts['lineages']:,} lineages; {'✓ all sums hold' if holds else '✗ the sums do not hold'}"
    )
    for each in counts["unusable"]:
        say(f"not used: {each['path']}: {each['reason']}")
    if secrets := counts["secrets"]:
        say(
            f"looks like a secret: {reasons(secrets)}; it is masked wherever text is shown, and stays in the stored bytes"
        )
        found = report.secrets.select("path", "member", "offset", "kind").iter_rows()
        say_some([f"{_in(path, member)} byte {offset:,}  {kind}" for path, member, offset, kind in found])
    if counts["usage_repeated"]:
        say(f"{counts['usage_repeated']:,} parents or second views repeat usage that is counted already: not added")
    if report.is_copy:
        say("every step of these files is known already from another file, and counts there")
    if counts["united"]:
        say(f"{len(counts['united'])} lineages moved from fit to held out, with the family that they now belong to")
    if counts["extends"]:
        say(
            f"{len(counts['extends'])} files extend an earlier one; {len(counts['changed'])} known steps got another outcome"
        )
    if counts["records_rejected"]:
        say("rejected records:")
        rejected = report.rejected.sort("path", "record").select("path", "record", "reason", "excerpt").iter_rows()
        say_some([f"{path}:{record}  {reason}  {clip(excerpt)}" for path, record, reason, excerpt in rejected])
    if ledger:
        show_frame(report.ledger.select("trace", "step", "action", "outcome", "observation"), "ledger", whole=True)


def _in(path: str, member: str) -> str:
    return f"{path}#{member}" if member else path


def _sum(name: str, total: int, used: Mapping[str, int], rest: Mapping[str, int]) -> None:
    """One sum of the report, as a line that can be added up."""
    say(f"{name:8}{total:>8,} = {reasons(used)}{f'  |  left out: {reasons(rest)}' if rest else ''}")


@app.command()
def transitions(
    ledger: Annotated[bool, typer.Option("--ledger", help="One row a step, left-out ones too.")] = False,
    to: Annotated[Path | None, typer.Option("--out", help="Write to .parquet, .jsonl or .csv.")] = None,
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """List every transition of the workspace, or every step."""
    lab = Lab(workspace)
    frame = lab.ledger() if ledger else lab.transitions()
    if to is not None:
        write_frame(frame, to)
        err.print(f"{frame.height:,} rows written to {to}")
    if as_json:
        put_json(frame.to_dicts())
    elif to is None:
        names = ("trace", "step", "action", "outcome", "observation") if ledger else ("id", "action", "observation")
        said = pl.concat_str("tool", "arguments", separator=" ")
        shown = (
            frame
            if ledger
            else frame.with_columns(action=pl.when(pl.col("tool").is_null()).then("action").otherwise(said))
        )
        show_frame(shown.select(names), "steps" if ledger else "transitions")


@app.command()
def split(
    threshold: Annotated[str, typer.Option(help="Jaccard of word 3-shingles that makes tasks one family.")] = "0.9",
    held_out: Annotated[str, typer.Option("--held-out", help="Share of families that is held out.")] = "0.3",
    seed: Annotated[int, typer.Option(help="Decides which families.")] = 0,
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Unite near-duplicate tasks in families, and hold a share of the families out."""
    lab = Lab(workspace)
    table = lab.split(threshold=threshold, held_out=held_out, seed=seed)
    summary = table.summary()
    if as_json:
        put_json(summary)
        return
    say(
        f"{summary['families']} families of {summary['lineages']} lineages: {summary['fit']} fit, {summary['held_out']} held "
        f"out, at threshold {summary['threshold']}; the largest family holds {summary['largest_family_share']} of the traces"
    )
    leak = summary["trace_level_leak"]
    say(
        f"a split by single traces would leak: {leak['with_family_in_fit']} of its {leak['held_out_traces']} held-out traces "
        "have a relative among the fit ones; this split has none"
    )
    for warning in summary["warnings"]:
        say(f"warning: {warning}")


@app.command()
def forget(
    source: Annotated[str, typer.Argument(help="The digest of a source, or its beginning.")],
    why: Annotated[str, typer.Option(help="The reason, for the log.")],
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Remove the bytes of a source and all that was made from them; a tombstone stays in the log."""
    lab = Lab(workspace)
    shown = lab.show(source)
    if shown["kind"] != "source":
        raise UsageError(f"{source} is a {shown['kind']}; only a source can be forgotten")
    removed = lab.forget(shown["digest"], why=why)
    if as_json:
        put_json({"source": shown["digest"], "removed": removed, "sources": len(lab.corpus.sources)})
    else:
        say(
            f"{shown['path']} is gone, with {len(removed) - 1} things that were made from it; {len(lab.corpus.sources)} "
            "sources stay. An index, or a receipt, that needed it is unverifiable: run xlab index"
        )


@app.command()
def verify(workspace: Workspace = HERE, as_json: AsJson = False) -> None:
    """Read every file of the workspace and every cited span again."""
    found = Lab(workspace).verify()
    if as_json:
        put_json(
            {
                "artifacts": found.artifacts,
                "bytes": found.bytes,
                "ok": found.ok,
                "level": "sources_verified" if found.ok else None,
                "problems": msgspec.to_builtins(found.problems),
            }
        )
    else:
        for problem in found.problems:
            say(f"✗ {problem.artifact}: {problem.problem}")
        say(
            f"{'✓' if found.ok else '✗'} {found.artifacts:,} files, {found.bytes:,} bytes, {len(found.problems)} problems"
        )
    if not found.ok:
        raise typer.Exit(5)
