"""The main job, end to end, on one corpus: import, split, nearest with and without the boundary, a session, its costs.

Every sentence is computed from what was just done. The workspace and the figures stand in a folder of their own, named after
the bytes of the traces, so that a second tour of the same traces finds its workspace and another corpus does not touch it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from experiential_lab.evidence.secrets import masked
from experiential_lab.evidence.trace import Transition
from experiential_lab.lab import Lab
from experiential_lab.records import NoEvidence, Unverifiable, UsageError, digest_of, short_id
from experiential_lab.retrieval.grounding import around, query_of
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.index import Index
from experiential_lab.retrieval.views import Boundary
from experiential_lab.show import plots
from experiential_lab.show.theme import SUPPORT
from experiential_lab.show.widgets import page_html, pair_html, table_html
from experiential_lab.world.session import SessionError, Step

STEPS = 3
WHO = "world model: copy-nearest · ranker: sparse, default · view of the session: fit entries, user replies alone"
SESSION = {"step": pl.Int64, "said": pl.String, "predicted": pl.String, "support": pl.String, "receipt": pl.String}
LOOKED_AT = 200  # held-out steps among which one is sought that shows what the boundary buys
ASIDE: tuple[Boundary, Boundary] = ("self", "lineage")
STAGES = ("import", "split and index", "nearest", "session", "figures")
Progress = Callable[[int, int, str], None]


class Walked(NamedTuple):
    sections: list[tuple[str, list[str]]]
    """[(title, lines), ...] for people."""
    summary: dict[str, Any]
    """The same for programs."""
    stopped: str = ""
    """Why the tour ended early; empty: it did not."""


class _Contrast(NamedTuple):
    """One held-out step, asked about with nothing but itself left out, and with its whole conversation left out."""

    step: Transition
    without: Hits
    at: Hits | Unverifiable


class _Walk(NamedTuple):
    """A session of three steps, and the task that it was on."""

    task: str
    steps: list[Step]
    refused: list[str]


def take_tour(traces: list[Path], to: Path, progress: Progress) -> Walked:
    """Walks the main job over `traces`; writes a workspace and figures below `to`.

    Traces of one family end it early: the report stands, and `stopped` says why.

    Raises:
        NoEvidence: the traces hold no transition, or no held-out step has a precedent.
    """
    stage = _stages(progress)
    next(stage)
    folder = to / _name(traces)
    lab = Lab(folder / "lab")
    report = lab.import_traces(*traces)
    next(stage)
    page = folder / "figures.html"
    findings = {"ledger": plots.plot_ledger(report.counts, report.ledger)}
    imported = ("1. Import: what happened", [findings["ledger"].title, findings["ledger"].sentence])
    try:
        table = lab.split().summary()
    except NoEvidence as error:
        page.write_text(page_html(f"The first walk over {traces[0].name}", list(findings.values()), kicker=WHO))
        stopped = {"workspace": str(lab.path), "import": report.counts, "stopped": str(error), "figures": [str(page)]}
        return Walked([imported, _where(lab, page)], stopped, str(error))
    index = lab.build_index()
    next(stage)
    contrast = _contrast(lab, index)
    next(stage)
    walk = _session(lab, contrast.step)
    next(stage)
    row = lab.transitions().row(by_predicate=pl.col("id") == contrast.step.transition_id, named=True)
    costs = plots.costs_frame(step.economics for step in walk.steps)
    findings |= {
        "nearest": plots.plot_nearest(plots.nearest_frame(row, dict(zip(ASIDE, contrast[1:], strict=True)))),
        "costs": plots.plot_costs(costs),
    }
    before = {1: pair_html(row, f"The held-out step {row['id']}"), 2: table_html(_session_frame(walk))}
    name = f"The first walk over {traces[0].name}"
    page.write_text(page_html(name, list(findings.values()), kicker=WHO, before=before))
    summary: dict[str, Any] = {
        "workspace": str(lab.path),
        "import": report.counts,
        "split": table,
        "step": contrast.step.transition_id,
        "nearest": {level: _ids(hits) for level, hits in zip(ASIDE, contrast[1:], strict=True)},
        "session": [
            {"message": step.message, "support": step.support, "terminal": step.terminal} for step in walk.steps
        ],
        "refused": walk.refused,
        "costs": findings["costs"].table.to_dicts(),
        "findings": {name: finding.title for name, finding in findings.items()},
        "figures": [str(page)],
    }
    sections = [
        imported,
        ("2. Split: what is held out", _split_lines(table, index)),
        ("3. Nearest: one held-out step, without and with the boundary", _nearest_lines(contrast, findings["nearest"])),
        ("4. Session: what is predicted", _session_lines(walk)),
        ("5. Costs: apart, by component", [findings["costs"].title, findings["costs"].sentence]),
        _where(lab, page),
    ]
    return Walked(sections, summary)


def _where(lab: Lab, page: Path) -> tuple[str, list[str]]:
    lines = [f"workspace  {lab.path}", f"figures    {page}  (open it in a browser; it needs no network)"]
    return "Where everything is", lines


def _session_frame(walk: _Walk) -> pl.DataFrame:
    rows = [
        (number, step.receipt.query.action, step.message["content"], _support(step), step.receipt.receipt_digest)
        for number, step in enumerate(walk.steps, 1)
    ]
    return pl.DataFrame(rows, schema=SESSION, orient="row")


def _support(step: Step) -> str:
    return f"{step.support} {SUPPORT[step.hits.rule][step.support]}"


def _stages(progress: Progress) -> Iterator[None]:
    for number, name in enumerate(STAGES):
        progress(number, len(STAGES), name)
        yield


def _name(traces: list[Path]) -> str:
    missing = [path for path in traces if not path.exists()]
    if missing:
        raise UsageError(f"{missing[0]} does not exist")
    files = [each for path in traces for each in ([path] if path.is_file() else sorted(path.rglob("*")))]
    return f"{traces[0].stem}-{short_id(*(digest_of(each.read_bytes()) for each in files if each.is_file()))[:8]}"


def _contrast(lab: Lab, index: Index) -> _Contrast:
    """The first held-out step for which its own lineage gives another hit 1; else the first held-out step."""
    sides = {row.entry_id: row.split for row in index.snapshot.rows}
    held_out = [each for each in lab.corpus.transitions if sides.get(each.transition_id) == "held_out"]
    if not held_out:
        raise NoEvidence("no recorded step is held out; there is nothing to ask about")
    first = None
    for step in held_out[:LOOKED_AT]:
        found = [
            index.view("all", exclude=around(index, step.transition_id, level)).nearest(query_of(step))
            for level in ASIDE
        ]
        if isinstance(found[0], Unverifiable):
            continue
        contrast = _Contrast(step, found[0], found[1])
        first = first or contrast
        if isinstance(found[1], Hits) and found[0].entries[0].value == step.observation != found[1].entries[0].value:
            return contrast
    if first is None:
        raise NoEvidence("no held-out step has a precedent; the corpus is too small for a tour")
    return first


def _session(lab: Lab, held_out: Transition) -> _Walk:
    """Three steps of a bounded session on a held-out task, with messages that candidates once sent in held-out tasks.

    A message whose predicted answer would end the session is kept for the last step: a fork tells.
    """
    walk = _Walk(held_out.task or "Help me.", [], [])
    with lab.session(walk.task) as session:
        for message in _messages(lab, held_out):
            try:
                with session.fork() as ahead:
                    ends = ahead.step(message).terminal
                if len(walk.steps) == STEPS - 1 or not ends:
                    walk.steps.append(session.step(message))
            except SessionError as error:
                walk.refused.append(str(error))
            if len(walk.steps) == STEPS:
                break
    return walk


def _messages(lab: Lab, first: Transition) -> list[str]:
    """What was said in held-out traces, that of the given step before the others; each text once."""
    sides = {row.trace_id: row.split for row in lab.table.rows} if lab.table else {}
    said = [
        each for each in lab.corpus.transitions if each.action.tool is None and sides.get(each.trace_id) == "held_out"
    ]
    said.sort(key=lambda each: each.trace_id != first.trace_id)
    return list(dict.fromkeys(each.action.text or "" for each in said))[:LOOKED_AT]


def _split_lines(table: dict[str, Any], index: Index) -> list[str]:
    fit, entries = len(index.snapshot.fit.rows), len(index.snapshot.rows)
    return [
        f"{table['families']} families of near-duplicate tasks (Jaccard at or above {table['threshold']}): "
        f"{table['fit']} fit, {table['held_out']} held out",
        f"{entries:,} entries in the index, of which a session may consult the {fit:,} fit ones",
    ]


def _nearest_lines(contrast: _Contrast, finding: plots.Finding) -> list[str]:
    action = contrast.step.action
    said = action.text if action.tool is None else f"{action.tool} {action.arguments}"
    lines = [
        f"step {contrast.step.transition_id}: {_clip(said or '')}",
        f"what happened: {_clip(contrast.step.observation)}",
    ]
    for words, hits in (
        ("with only itself left out", contrast.without),
        ("with its whole conversation left out", contrast.at),
    ):
        if isinstance(hits, Unverifiable):
            lines.append(f"hit 1 {words}: none ({hits.reason})")
        else:
            lines.append(f"hit 1 {words}: {_clip(hits.entries[0].value)}")
    return [*lines, finding.title]


def _session_lines(walk: _Walk) -> list[str]:
    lines = [f"task: {_clip(walk.task)}"]
    for step in walk.steps:
        lines.append(f"said       {_clip(step.receipt.query.action)}")
        end = "; the session ends" if step.terminal else ""
        lines.append(f"predicted  {_clip(step.message['content'])}  [support {_support(step)}{end}]")
    lines += [f"refused    {reason}" for reason in walk.refused]
    if not walk.steps and not walk.refused:
        lines.append("No held-out trace holds a message, only calls: there is nothing to say in a text session.")
    return [*lines, "A prediction is not an observation, whatever its support."]


def _ids(hits: Hits | Unverifiable) -> dict[str, Any]:
    if isinstance(hits, Unverifiable):
        return {"refused": hits.reason, "hits": []}
    return {"support": hits.support, "receipt": hits.receipt.receipt_digest, "hits": [e.entry_id for e in hits.entries]}


def _clip(text: str, size: int = 160) -> str:
    line = " ".join(masked(text).split()) or "(empty result)"
    return line if len(line) <= size else f"{line[: size - 1]}…"
