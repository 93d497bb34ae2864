"""The command line: `experiential-lab`, or `xlab` for short.

- `--json` puts exactly one JSON document on stdout (`step`: one a line). Progress and errors go to stderr.
- An error is one line: what was wrong, with both values, and what to do. Its class decides the exit code.
- Trace text is data: control characters are shown as signs and markup is never interpreted.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NoReturn

import msgspec
import polars as pl
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from experiential_lab.evaluation.oracle import make_desk_tools
from experiential_lab.evidence.importers import formats
from experiential_lab.evidence.report import ImportReport
from experiential_lab.evidence.secrets import masked
from experiential_lab.evidence.sources import Declared
from experiential_lab.lab import Lab, bundled
from experiential_lab.records import LabError, NoEvidence, UnsupportedError, Unverifiable, UsageError, digest_of
from experiential_lab.retrieval.grounding import around, query_of
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.index import Index, IndexView
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.support import Label
from experiential_lab.retrieval.views import Base, Boundary, Exclusion
from experiential_lab.show.theme import SUPPORT
from experiential_lab.tour import take_tour
from experiential_lab.world.session import SessionError, Step

app = typer.Typer(
    name="xlab",
    help="Recorded agent traces become verified precedents, bounded predictions and honest figures.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
oracle = typer.Typer(help="Executable desks, for which the truth is known.", no_args_is_help=True)
app.add_typer(oracle, name="oracle")

GONE = ("expired", "ended", "terminal", "unknown")  # a session with one of these codes takes no further step
CONTROL = re.compile(
    "[\u061c\u200b-\u200d\u2028\u2029\ufeff]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
FORMATS = ", ".join(each.name for each in formats())
TEXTS = ("action", "observation", "excerpt")  # columns that share what the other columns leave of a line
SHOWN = 20  # rows of a table that people see; the rest is counted
Workspace = Annotated[Path, typer.Option("--workspace", "-w", help="The workspace directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")]
HERE = Path(".lab")

out = Console(highlight=False, markup=False, emoji=False)  # trace text is data: nothing in it is markup
err = Console(highlight=False, markup=False, emoji=False, stderr=True)


def main() -> None:
    """Runs the command line and exits with the code that the contract gives to each outcome."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a sign shows its number
    try:
        sys.exit(app(standalone_mode=False))
    except LabError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away, which is its right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:  # the process boundary: what the parser of the arguments says becomes one line, too
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            out.print(context.get_help() if context else "")
            sys.exit(2)
        usage = f"; see {context.command_path} --help" if context else ""
        _fail(f"{error.format_message()}{usage}", getattr(error, "exit_code", 2))


def _version(asked: bool) -> None:
    if asked:
        out.print(version("experiential-lab"))
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Recorded agent traces become verified precedents, bounded predictions and honest figures."""


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
    declared = Declared(format, _one_of(origin, ("recorded", "simulated_environment", "written"), "--origin"), limit)
    try:
        with _progress("reading") as progress:
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
        _json(report.counts | ({"ledger": rows} if ledger else {}))
        return
    counts = report.counts
    for each in counts["formats"]:
        _say(f"{each['path']}: {each['format']} ({each['rule']})")
    _sum("records", counts["records"], {"used": counts["records_used"]}, counts["records_rejected"])
    _sum("events", counts["events"], counts["events_used"], counts["set_aside"])
    _sum("steps", counts["steps"], counts["pairing"], counts["left_out"])
    holds = report.conservation["holds"].all()
    _say(
        f"{counts['transitions']:,} of {counts['steps']:,} steps are paired, in {counts['traces']:,} traces of "
        f"{counts['lineages']:,} lineages; {'✓ all sums hold' if holds else '✗ the sums do not hold'}"
    )
    for each in counts["unusable"]:
        _say(f"not used: {each['path']}: {each['reason']}")
    if secrets := counts["secrets"]:
        _say(
            f"looks like a secret: {_reasons(secrets)}; it is masked wherever text is shown, and stays in the stored bytes"
        )
    if report.is_copy:
        _say("every step of these files is known already from another file, and counts there")
    if counts["united"]:
        _say(f"{len(counts['united'])} lineages moved from fit to held out, with the family that they now belong to")
    if counts["extends"]:
        _say(
            f"{len(counts['extends'])} files extend an earlier one; {len(counts['changed'])} known steps got another outcome"
        )
    if counts["records_rejected"]:
        rejected = report.rejected.with_columns(path=pl.col("path").str.split("/").list.last())
        _show_frame(rejected.select("reason", "path", "record", "excerpt"), "rejected records")
    if ledger:
        _show_frame(report.ledger.select("trace", "step", "action", "outcome", "observation"), "ledger", whole=True)


def _sum(name: str, total: int, used: Mapping[str, int], rest: Mapping[str, int]) -> None:
    """One sum of the report, as a line that can be added up."""
    _say(f"{name:8}{total:>8,} = {_reasons(used)}{f'  |  left out: {_reasons(rest)}' if rest else ''}")


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
        _write_frame(frame, to)
        err.print(f"{frame.height:,} rows written to {to}")
    if as_json:
        _json(frame.to_dicts())
    elif to is None:
        names = ("trace", "step", "action", "outcome", "observation") if ledger else ("id", "action", "observation")
        said = pl.concat_str("tool", "arguments", separator=" ")
        shown = (
            frame
            if ledger
            else frame.with_columns(action=pl.when(pl.col("tool").is_null()).then("action").otherwise(said))
        )
        _show_frame(shown.select(names), "steps" if ledger else "transitions")


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
        _json(summary)
        return
    _say(
        f"{summary['families']} families of {summary['lineages']} lineages: {summary['fit']} fit, {summary['held_out']} held "
        f"out, at threshold {summary['threshold']}; the largest family holds {summary['largest_family_share']} of the traces"
    )
    leak = summary["trace_level_leak"]
    _say(
        f"a split by single traces would leak: {leak['with_family_in_fit']} of its {leak['held_out_traces']} held-out traces "
        "have a relative among the fit ones; this split has none"
    )
    for warning in summary["warnings"]:
        _say(f"warning: {warning}")


@app.command()
def index(
    embedder: Annotated[str | None, typer.Option(help="Only the sparse ranker stands: leave it out.")] = None,
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Build the read-only index over the recorded transitions."""
    if embedder is not None:
        raise UnsupportedError(
            f"no embedder {embedder!r}: this version has the sparse ranker alone; leave --embedder out"
        )
    begin = perf_counter()
    built = Lab(workspace).build_index()
    seconds = round(perf_counter() - begin, 3)
    entries, fit = len(built.snapshot.rows), len(built.snapshot.fit.rows)
    if as_json:
        snapshot = built.snapshot.digest
        _json(
            {
                "entries": entries,
                "fit": fit,
                "snapshot": snapshot,
                "index": built.digest,
                "embedder": None,
                "seconds": seconds,
            }
        )
        return
    _say(f"{entries:,} entries, {fit:,} of them fit; snapshot {_short(built.snapshot.digest)}, {seconds} s")
    if not fit:
        _say("Nothing is split yet: only --view all can be asked. Run xlab split, then xlab index.")


@app.command()
def nearest(
    action: Annotated[str | None, typer.Option(help="A message that an agent might send.")] = None,
    tool: Annotated[str | None, typer.Option(help="The tool of a call.")] = None,
    args: Annotated[str | None, typer.Option(help="The arguments of that call, as JSON.")] = None,
    transition: Annotated[str | None, typer.Option(help="A recorded step, asked about as if it were new.")] = None,
    task: Annotated[str | None, typer.Option(help="The task in which it happens.")] = None,
    recent: Annotated[str | None, typer.Option(help="The last observation before it.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many precedents.")] = 5,
    exclude: Annotated[list[str] | None, typer.Option(help="A lineage to leave out; may be repeated.")] = None,
    view: Annotated[str, typer.Option(help="fit or all.")] = "fit",
    boundary: Annotated[
        str | None, typer.Option(help="self, trace, lineage, family or key: what is left out around --transition.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Store the receipt, so that `show` opens it.")] = False,
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Find the nearest recorded transitions of an action, with proof of what was visible."""
    lab = Lab(workspace)
    if sum(given is not None for given in (action, tool, transition)) != 1:
        raise UsageError("give exactly one of --action, --tool (with --args) and --transition")
    if args is not None and tool is None:
        raise UsageError("--args are the arguments of a call; name it with --tool")
    if boundary is not None and transition is None:
        raise UsageError("--boundary is drawn around a recorded step; name it with --transition")
    base: Base = _one_of(view, ("fit", "all"), "--view")
    found = lab.current_index()
    excluded: list[str | Exclusion] = [*_known(exclude, found)]
    if transition is not None:
        level: Boundary = _one_of(boundary or "lineage", ("self", "trace", "lineage", "family", "key"), "--boundary")
        asked = lab.transition(transition)
        query = query_of(asked)
        excluded += around(found, asked.transition_id, level)
    else:
        if args is not None:
            _check_json(args)
        query = Query(action=action or "", tool=tool, arguments=args if tool else None, task=task, recent=recent)
    seen = found.view(base, exclude=excluded)
    hits = seen.nearest(query, k=k)
    if keep and isinstance(hits, Hits):
        lab.keep(hits)
    if as_json:
        _json(_nearest_json(seen, hits))
    elif isinstance(hits, Hits):
        _print_hits(seen, hits)
    if isinstance(hits, Unverifiable):
        raise NoEvidence(f"no precedent can be asked for: {hits.reason}")


def _check_json(args: str) -> None:
    try:
        json.loads(args)
    except ValueError as error:
        raise UsageError(f"--args is {args!r}, which is no JSON: {error}") from None


def _known(lineages: list[str] | None, index: Index) -> list[str]:
    """The lineages to leave out. One that the index does not hold is refused: a typing error would let it in."""
    held = {lineage for row in index.snapshot.rows for lineage in row.lineages}
    for lineage in lineages or ():
        if lineage not in held:
            raise UsageError(f"--exclude {lineage!r} is no lineage of the index; xlab transitions --json lists them")
    return lineages or []


def _nearest_json(view: IndexView, hits: Hits | Unverifiable) -> dict[str, Any]:
    seen = view.visibility
    about = {
        "base": view.plain.base,
        "visible": seen.visible_count,
        "snapshot": seen.snapshot_digest,
        "snapshot_count": seen.snapshot_count,
        "excluded": msgspec.to_builtins(seen.excluded),
    }
    if isinstance(hits, Unverifiable):
        return {"view": about, "support": "D", "rule": None, "refused": hits.reason, "receipt": None, "hits": []}
    rows = [
        {
            "rank": hit.rank,
            "id": entry.entry_id,
            "lineage": entry.lineages[0],
            "position": hit.position,
            "score": hit.score,
            "parts": dict(hit.parts),
            "pairing": entry.pairing,
            "action": dict(entry.key)["action"],
            "observation": entry.value,
        }
        for hit, entry in zip(hits, hits.entries, strict=True)
    ]
    receipt = {"digest": hits.receipt.receipt_digest, "snapshot": seen.snapshot_digest}
    return {
        "view": about,
        "support": hits.support,
        "rule": hits.rule,
        "refused": None,
        "receipt": receipt,
        "hits": rows,
    }


def _print_hits(view: IndexView, hits: Hits) -> None:
    seen = view.visibility
    _say(
        f"{seen.visible_count:,} of {seen.snapshot_count:,} {view.plain.base} entries may be asked; "
        f"support {_support(hits.support, hits.rule)}, receipt {_short(hits.receipt.receipt_digest)}"
    )
    table = _table("rank", "score", "id", "lineage", "action", "observation")
    for hit, entry in zip(hits, hits.entries, strict=True):
        trace, _, number = entry.entry_id.partition("/")
        action, observation = _clip(dict(entry.key)["action"]), _clip(entry.value)
        score = _n(hit.score) if hit.score else "0, no shared feature"
        table.add_row(str(hit.rank), score, f"{trace[:8]}/{number}", entry.lineages[0], action, observation)
    out.print(table)


def _support(label: str, rule: str) -> str:
    """The letter with its words."""
    return f"{label} ({SUPPORT[rule][label]})"


@app.command()
def step(
    task: Annotated[str, typer.Option(help="What the user wants: the first request.")],
    context: Annotated[str | None, typer.Option(help="What is visible before the first action.")] = None,
    world_model: Annotated[str, typer.Option("--world-model", help="copy-nearest.")] = "copy-nearest",
    script: Annotated[Path | None, typer.Option(help="Messages, one a line; else they are read from stdin.")] = None,
    view: Annotated[str, typer.Option(help="fit or all.")] = "fit",
    exclude: Annotated[list[str] | None, typer.Option(help="A lineage to leave out; may be repeated.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many precedents.")] = 5,
    refuse_below: Annotated[str | None, typer.Option("--refuse-below", help="A, B or C.")] = None,
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Step a bounded text session by hand. A line that is a JSON object with a role is taken as an OpenAI message."""
    if world_model != "copy-nearest":
        raise UnsupportedError(f"no world model {world_model!r}: this version has copy-nearest alone")
    base: Base = _one_of(view, ("fit", "all"), "--view")
    letters: tuple[Label, ...] = ("A", "B", "C")
    below = _one_of(refuse_below, letters, "--refuse-below") if refuse_below else None
    lab, code = Lab(workspace), 0
    excluded = _known(exclude, lab.current_index())
    waiting = _messages(script)
    with lab.session(task, context=context, base=base, exclude=excluded, k=k, refuse_below=below) as session:
        for message in waiting:
            try:
                taken = session.step(message)
            except SessionError as error:
                code = error.exit_code
                _print_refusal(error, as_json=as_json)
                if error.code in GONE:
                    break
            else:
                _print_step(taken, as_json=as_json)
                if taken.terminal:
                    break
    if unsent := [] if sys.stdin.isatty() and script is None else list(waiting):
        err.print(f"the session ended before {len(unsent)} more messages; they were not sent")
    raise typer.Exit(code)


def _messages(script: Path | None) -> Iterator[str | dict[str, Any]]:
    if script is not None and not script.is_file():
        raise UsageError(f"{script} does not exist")
    lines = script.read_bytes().decode(errors="surrogateescape").split("\n") if script else _stdin_lines()
    for line in lines[:-1] if isinstance(lines, list) and not lines[-1] else lines:
        line = line.removesuffix("\r")
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        yield value if isinstance(value, dict) and "role" in value else line


def _stdin_lines() -> Iterator[str]:
    is_typed = sys.stdin.isatty()
    if is_typed:
        err.print("Type what the agent says, one message a line; an end of file (Ctrl+D) ends the session.")
    while line := sys.stdin.readline():
        yield line.removesuffix("\n")


def _print_step(taken: Step, *, as_json: bool) -> None:
    if as_json:
        _json(
            {
                "message": taken.message,
                "terminal": taken.terminal,
                "support": taken.support,
                "receipt": taken.receipt.receipt_digest,
                "world_model": taken.turn.world_model,
                "economics": taken.economics,
            }
        )
        return
    _say(f"predicted  {_plain(taken.message['content'])}")
    rest = f"{len(taken.hits)} precedents, receipt {_short(taken.receipt.receipt_digest)}"
    _say(
        f"           support {_support(taken.support, taken.hits.rule)}, {rest}{'; the session ends here' if taken.terminal else ''}"
    )


def _print_refusal(error: SessionError, *, as_json: bool) -> None:
    if as_json:
        about = {"code": error.code, "message": str(error), "limit": error.limit, "actual": error.actual}
        turn = {"support": error.turn.support, "receipt": error.turn.receipt} if error.turn else {}
        _json({"error": about | turn | {"economics": error.economics}})
    else:
        err.print(f"refused  {_plain(str(error))}", soft_wrap=True)


@app.command()
def show(
    ident: Annotated[str, typer.Argument(metavar="ID", help="An id or a digest; a beginning of it is enough.")],
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Open a trace, a transition, a source, a receipt or any stored thing, and check it against its source."""
    shown = Lab(workspace).show(ident)
    if as_json:
        _json(shown)
        return
    rows = shown.pop("ledger", None)
    width = max(map(len, shown))
    for name, value in shown.items():
        _say(f"{name:{width}}  {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
    if rows is not None:
        listed = _table("step", "branch", "action", "outcome", "observation")
        for row in rows:
            observation = "" if row["observation"] is None else _clip(row["observation"], 200) or "(empty result)"
            listed.add_row(
                str(row["step"]), _clip(row["branch"], 24), _clip(row["action"], 200), row["outcome"], observation
            )
        out.print(listed)


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
        _json({"source": shown["digest"], "removed": removed, "sources": len(lab.corpus.sources)})
    else:
        _say(
            f"{shown['path']} is gone, with {len(removed) - 1} things that were made from it; {len(lab.corpus.sources)} "
            "sources stay. An index, or a receipt, that needed it is unverifiable: run xlab index"
        )


@app.command()
def verify(workspace: Workspace = HERE, as_json: AsJson = False) -> None:
    """Read every file of the workspace and every cited span again."""
    found = Lab(workspace).verify()
    if as_json:
        _json(
            {
                "artifacts": found.artifacts,
                "bytes": found.bytes,
                "ok": found.ok,
                "problems": msgspec.to_builtins(found.problems),
            }
        )
    else:
        for problem in found.problems:
            _say(f"✗ {problem.artifact}: {problem.problem}")
        _say(
            f"{'✓' if found.ok else '✗'} {found.artifacts:,} files, {found.bytes:,} bytes, {len(found.problems)} problems"
        )
    if not found.ok:
        raise typer.Exit(5)


@oracle.command("make")
def oracle_make(
    corpus: Annotated[str, typer.Argument(help="desk-tools.")],
    to: Annotated[Path, typer.Option("--out", help="The file to write.")],
    families: Annotated[int, typer.Option(help="How many families of tasks.")] = 24,
    seed: Annotated[int, typer.Option(help="Decides everything that chance decides.")] = 7,
    as_json: AsJson = False,
) -> None:
    """Make a corpus by running candidates in an executable desk."""
    if corpus != "desk-tools":
        raise UnsupportedError(f"no corpus {corpus!r}: this version makes desk-tools")
    try:
        data = make_desk_tools(families, seed)
    except ValueError as error:
        raise UsageError(str(error)) from None
    _write(to, data)
    episodes = data.count(b"\n")
    if as_json:
        _json(
            {"out": str(to), "episodes": episodes, "families": families, "bytes": len(data), "digest": digest_of(data)}
        )
    else:
        _say(f"{episodes} episodes of {families} families written to {to}: {len(data):,} bytes, {digest_of(data)}")


@app.command()
def tour(
    traces: Annotated[
        list[Path] | None, typer.Option(help="Your own traces instead of the bundled order desk.")
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="Where the workspace and the figures go.")] = Path("tour"),
    as_json: AsJson = False,
) -> None:
    """Walk the main job end to end: import, split, nearest, step, costs."""
    with _progress("tour") as progress:
        walked = take_tour(traces or [bundled("desk_tools.jsonl")], to, progress)
    if as_json:
        _json(walked.summary)
    for title, lines in () if as_json else walked.sections:
        out.rule(Text(title, style="bold"), align="left")
        for line in lines:
            _say(line)
    if walked.stopped:
        raise NoEvidence(walked.stopped)


@app.command()
def notebooks(
    kind: Annotated[str, typer.Argument(help="marimo or jupyter.")] = "marimo",
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Open the notebooks, on this machine only."""
    _one_of(kind, ("marimo", "jupyter"), "the kind")
    folder = _notebooks(kind)
    quiet = [] if browser else ["--headless"] if kind == "marimo" else ["--no-browser"]
    command = {
        "marimo": [sys.executable, "-m", "marimo", "edit", str(folder), "--host", "127.0.0.1", *quiet],
        "jupyter": [sys.executable, "-m", "jupyterlab", str(folder), "--ip=127.0.0.1", *quiet],
    }[kind]
    if find_spec(command[2]) is None:
        raise UsageError(f"{command[2]} is not installed; pip install 'experiential-lab[notebooks]'")
    raise typer.Exit(subprocess.call(command))


def _notebooks(kind: str) -> Path:
    """The folder of a checkout; an installed copy is not edited in place, it is copied beside the user's work first."""
    name = "explore" if kind == "marimo" else "figures"
    checkout = Path(__file__).parent.parent / "notebooks" / name
    if checkout.is_dir():
        return checkout
    mine = Path("xlab-notebooks") / name
    if not mine.exists():
        shutil.copytree(Path(__file__).parent / "notebooks" / name, mine)
    return mine


def _fail(message: str, code: int) -> NoReturn:
    err.print(f"error: {_plain(' '.join(message.split()))}", soft_wrap=True)
    sys.exit(code)


def _json(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(re.sub("[\x7f-\x9f]", lambda sign: f"\\u{ord(sign[0]):04x}", text) + "\n")
    sys.stdout.flush()


def _say(line: str) -> None:
    out.print(_plain(line).replace("\n", "\n    │ "), soft_wrap=True)  # foreign text forges no line of ours


def _plain(text: str) -> str:
    """Text that cannot steer a terminal and shows no secret: control signs and direction marks become visible."""
    return CONTROL.sub(lambda sign: f"\\u{ord(sign[0]):04x}", masked(text))


def _clip(text: str, size: int = 100) -> str:
    line = " ".join(_plain(text).split())
    return line if len(line) <= size else f"{line[: size - 1]}…"


def _n(number: int) -> str:
    return f"{number:,}"


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:8]


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items()) or "0"


def _one_of(value: str, known: tuple[Any, ...], name: str) -> Any:
    if value not in known:
        raise UsageError(f"{name} is {value!r}; it can be {', '.join(known)}")
    return value


def _table(*columns: str) -> Table:
    """One line a row: ids whole, texts cut at the width of the terminal (their whole text is in --json)."""
    table = Table(box=None, pad_edge=False, header_style="dim", expand=any(column in TEXTS for column in columns))
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis", ratio=1 if column in TEXTS else None)
    return table


def _show_frame(frame: pl.DataFrame, name: str, *, whole: bool = False) -> None:
    table = _table(*frame.columns)
    shown = frame.height if whole else SHOWN
    for row in frame.head(shown).iter_rows():
        table.add_row(*(Text("" if cell is None else _clip(str(cell))) for cell in row))
    out.print(table)
    if frame.height > shown:
        _say(f"{frame.height - shown:,} more {name}; --json or --out gives all of them")


def _write_frame(frame: pl.DataFrame, to: Path) -> None:
    flat = frame.with_columns(pl.col(pl.List(pl.String)).list.join(" "))
    match to.suffix:
        case ".jsonl":
            _write(to, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in frame.to_dicts()).encode())
        case ".csv":
            _write(to, flat.write_csv().encode())
        case ".parquet":
            buffer = io.BytesIO()
            frame.write_parquet(buffer)
            _write(to, buffer.getvalue())
        case other:
            raise UsageError(f"--out ends in {other or 'nothing'!r}; it can be .parquet, .jsonl or .csv")


def _write(to: Path, data: bytes) -> None:
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}") from None


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr, where it is a terminal; else nothing."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=1)
        yield lambda done, total, name: bar.update(
            task, completed=done, total=total, description=_clip(f"{what} {name}", 60)
        )
