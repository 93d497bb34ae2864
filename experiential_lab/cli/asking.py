"""Commands that ask: index, nearest, step, show."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NamedTuple, cast, get_args

import msgspec
import polars as pl
import typer

from experiential_lab.cli.app import app
from experiential_lab.cli.screen import (
    HERE,
    SHOWN,
    AsJson,
    Workspace,
    clip,
    counted,
    err,
    one_of,
    plain,
    put_json,
    put_table,
    say,
    say_some,
    short,
)
from experiential_lab.lab import Lab
from experiential_lab.records import NoEvidence, UnsupportedError, Unverifiable, UsageError
from experiential_lab.retrieval.choice import RankerChoice, choice_frame
from experiential_lab.retrieval.embedders import HashedEmbedder, SemanticEmbedder
from experiential_lab.retrieval.explain import Eligibility, NearMisses, eligibility, near_misses, tokens, tokens_frame
from experiential_lab.retrieval.grounding import Recipe, around, query_of
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.index import Index, IndexView
from experiential_lab.retrieval.ranking import Fusion
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.refusal import refused
from experiential_lab.retrieval.views import Base, Boundary, Entry, Exclusion
from experiential_lab.show.theme import SUPPORT
from experiential_lab.statistics import MILLION
from experiential_lab.world.session import SessionError, Step

EMBEDDERS = {"hashed": HashedEmbedder, "semantic": SemanticEmbedder}  # those that run here
PIECES = 8  # of hit 1 that people see
GONE = ("expired", "ended", "terminal", "unknown")  # a session with one of these codes takes no further step


@app.command()
def index(
    choose: Annotated[
        bool, typer.Option("--choose", help="Take the ranker that wins on fit families, and pin the choice.")
    ] = False,
    embedder: Annotated[str | None, typer.Option(help="Also hold a vector of each action: hashed or semantic.")] = None,
    ranker: Annotated[str, typer.Option(help="sparse; dense or fused need vectors.")] = "sparse",
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Build the read-only index over the recorded transitions."""
    one_of(ranker, get_args(Fusion), "--ranker")
    if embedder not in (None, *EMBEDDERS):
        raise UnsupportedError(
            f"no embedder {embedder!r} runs here, only {', '.join(EMBEDDERS)}; a provider's is given to Lab.build_index"
        )
    if choose and (embedder or ranker != "sparse"):
        raise UsageError("--choose decides the ranker: leave --embedder and --ranker out")
    lab, begin = Lab(workspace), perf_counter()
    made = EMBEDDERS[embedder]() if embedder else None
    recipe = lab.choose_ranker() if choose else Recipe(made, cast(Fusion, ranker))
    built = lab.build_index(recipe)
    embedder = built.embedder.model if built.embedder else None
    seconds = round(perf_counter() - begin, 3)
    entries, fit = len(built.snapshot.rows), len(built.snapshot.fit.rows)
    if as_json:
        snapshot = built.snapshot.digest
        put_json(
            {
                "entries": entries,
                "fit": fit,
                "snapshot": snapshot,
                "index": built.digest,
                "embedder": embedder,
                "ranker": built.config.fusion,
                "choice": msgspec.to_builtins(recipe.choice) if recipe.choice else None,
                "seconds": seconds,
            }
        )
        return
    if recipe.choice:
        _print_choice(recipe.choice)
    space = (
        f", vectors of {embedder}{', which do not rank' if built.config.fusion == 'sparse' else ''}" if embedder else ""
    )
    say(
        f"{entries:,} entries, {fit:,} of them fit, ranker {built.config.fusion}{space}; "
        f"snapshot {short(built.snapshot.digest)}, {seconds} s"
    )
    if not fit:
        say("Nothing is split yet: only --view all can be asked. Run xlab split, then xlab index.")


def _print_choice(choice: RankerChoice) -> None:
    rows = list(choice_frame(choice).iter_rows(named=True))
    say(
        f"{rows[0]['families']} fit families, {rows[0]['rows']} rows, each family asked without itself; hit 1, and the best of k"
    )
    put_table(
        ("candidate", "F1", "best of k", "exact", "difference", "interval"),
        (
            (
                row["candidate"],
                *(_share(row[name]) for name in ("f1", "best_of_k", "exact", "difference")),
                "too few families"
                if row["note"]
                else ""
                if row["low"] is None
                else f"[{_share(row['low'])}, {_share(row['high'])}]",
            )
            for row in rows
        ),
    )
    say(f"chosen: {choice.winner}; {choice.reason}")


def _share(millionths: int | None) -> str:
    return "" if millionths is None else f"{millionths / MILLION:.4f}"


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
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Also what each piece of hit 1 adds, and what was left out above the last hit."),
    ] = False,
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
    base: Base = one_of(view, ("fit", "all"), "--view")
    found = lab.current_index()
    excluded: list[str | Exclusion] = [*_known(exclude, found)]
    if transition is not None:
        level: Boundary = one_of(boundary or "lineage", ("self", "trace", "lineage", "family", "key"), "--boundary")
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
    ledger = eligibility(found, excluded, base=base)
    why = _explained(found, seen, hits, transition and asked.transition_id) if explain else None
    refusal = _refusal(lab, hits) if base == "fit" else None
    if as_json:
        more = {"near_misses": why.misses.frame().to_dicts(), "tokens": why.tokens.to_dicts()} if why else {}
        told = _nearest_json(seen, hits)
        put_json(told | {"refused": told["refused"] or refusal, "eligibility": ledger.counts} | more)
    elif isinstance(hits, Hits):
        _print_hits(seen, hits)
        if refusal:
            say(f"refused: {refusal}; a text session sees less, and has a certificate of its own")
        say(ledger.sentence)
        if why:
            _print_explained(why, ledger)
    if isinstance(hits, Unverifiable):
        raise NoEvidence(f"no precedent can be asked for: {hits.reason}")


def _refusal(lab: Lab, hits: Hits | Unverifiable) -> str | None:
    """Why the certificate of the fit entries lets nothing be answered from these hits; None: it does, or nothing is split."""
    if isinstance(hits, Unverifiable) or lab.table is None:
        return None
    return refused(hits, lab.certificate())


class _Why(NamedTuple):
    tokens: pl.DataFrame
    """Of hit 1, the greatest share first."""
    misses: NearMisses


def _explained(index: Index, view: IndexView, hits: Hits | Unverifiable, step: str | None) -> _Why | None:
    if isinstance(hits, Unverifiable):
        return None
    pieces = tokens_frame(tokens(view, hits.receipt.query, hits[0])).sort("share", descending=True, maintain_order=True)
    return _Why(pieces, near_misses(index, hits, step=step))


def _print_explained(why: _Why, ledger: Eligibility) -> None:
    misses = why.misses
    say(misses.sentence)
    if misses.out:
        reasons = dict(ledger.frame.select("entry_id", "reason").iter_rows())
        put_table(
            ("score", "left out by", "relation", "id", "action", "observation"),
            (
                (
                    row.score_all,
                    reasons[row.entry.entry_id],
                    row.relation or "unknown",
                    _short_id(row.entry),
                    dict(row.entry.key)["action"],
                    row.entry.value,
                )
                for row in misses.out
            ),
        )
        say(
            f"These scores are of a second search, over every row, receipt {short(misses.whole.receipt.receipt_digest)}; "
            f"there the last hit scores {counted(misses.rows[-1].score_all)}."
        )
    if why.tokens.is_empty():
        say("hit 1 shares no feature that counts with what was asked")
        return
    say("what each piece of hit 1 adds to its score:")
    pieces = why.tokens.select("share", "field", "text")
    put_table(("share", "field", "piece"), pieces.head(PIECES).iter_rows())
    if rest := pieces["share"][PIECES:].sum():
        say(f"{pieces.height - PIECES:,} more pieces add {rest:,}; --json gives all of them")


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
    say(
        f"{seen.visible_count:,} of {seen.snapshot_count:,} {'fit ' if view.plain.base == 'fit' else ''}entries may be asked; "
        f"support {_support(hits.support, hits.rule)}, receipt {short(hits.receipt.receipt_digest)}"
    )
    put_table(
        ("rank", "score", "id", "lineage", "action", "observation"),
        (
            (
                hit.rank,
                hit.score or "0, no shared feature",
                _short_id(entry),
                entry.lineages[0],
                dict(entry.key)["action"],
                entry.value,
            )
            for hit, entry in zip(hits, hits.entries, strict=True)
        ),
    )


def _short_id(entry: Entry) -> str:
    trace, _, number = entry.entry_id.partition("/")
    return f"{trace[:8]}/{number}"


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
    refuse_below: Annotated[str | None, typer.Option("--refuse-below", help="A, B, C or certified.")] = None,
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Step a bounded text session by hand. A line that is a JSON object with a role is taken as an OpenAI message."""
    if world_model != "copy-nearest":
        raise UnsupportedError(f"no world model {world_model!r}: this version has copy-nearest alone")
    base: Base = one_of(view, ("fit", "all"), "--view")
    below = one_of(refuse_below, ("A", "B", "C", "certified"), "--refuse-below") if refuse_below else None
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
        put_json(
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
    say(f"predicted  {plain(taken.message['content'])}")
    rest = f"{len(taken.hits)} precedents, receipt {short(taken.receipt.receipt_digest)}"
    say(
        f"           support {_support(taken.support, taken.hits.rule)}, {rest}{'; the session ends here' if taken.terminal else ''}"
    )


def _print_refusal(error: SessionError, *, as_json: bool) -> None:
    if as_json:
        about = {"code": error.code, "message": str(error), "limit": error.limit, "actual": error.actual}
        turn = {"support": error.turn.support, "receipt": error.turn.receipt} if error.turn else {}
        put_json({"error": about | turn | {"economics": error.economics}})
    else:
        err.print(f"refused  {plain(str(error))}", soft_wrap=True)


@app.command()
def show(
    ident: Annotated[
        str,
        typer.Argument(metavar="ID", help="An id or a digest, or a beginning of it; a reason; a path, or PATH:RECORD."),
    ],
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Open a trace, a step, a reason, a file, a receipt or any stored thing, and check it against its source."""
    shown = Lab(workspace).show(ident)
    if as_json:
        put_json(shown)
        return
    rows = shown.pop("ledger", None)
    lists = {name: shown.pop(name) for name in ("set_aside", "places", "rejected") if shown.get(name)}
    width = max(map(len, shown))
    for name, value in shown.items():
        more = f" and {len(value) - SHOWN:,} more; --json gives all of them" if _is_long(value) else ""
        cut = value[:SHOWN] if more else value
        say(f"{name:{width}}  {cut if isinstance(cut, str) else json.dumps(cut, ensure_ascii=False)}{more}")
    for name, each in lists.items():
        say(name.replace("_", " "))
        say_some([f"{_told(row)}  {clip(row['excerpt'])}" for row in each])
    if rows is not None:
        put_table(("step", "branch", "action", "outcome", "observation"), map(_ledger_line, rows))


def _ledger_line(row: dict[str, Any]) -> tuple[str, ...]:
    observation = "" if row["observation"] is None else row["observation"] or "(empty result)"
    return str(row["step"]), clip(row["branch"], 24), row["action"], row["outcome"], observation


def _told(row: dict[str, Any]) -> str:
    """The place of an event, record or step, and what is said of it."""
    return "  ".join(f"{row[key]}" for key in ("place", "level", "kind", "reason") if key in row)


def _is_long(value: object) -> bool:
    return isinstance(value, list) and len(value) > SHOWN
