"""Small pieces of HTML for notebooks and pages, and the log of a session that is stepped by hand.

- All text of a trace, a message or an error is escaped here, and clipped by CSS alone: the whole text is in the title.
- A table has at most seven columns. Ids and digests show 8 characters, the whole one is in the title.
- A check is ✓, ✗ or ?, with its word. What cannot be checked is `?`, never a pass and never a failure.
- A `Stepper` sends a message once, when it is told to, and never again: drawing it twice changes nothing. A refusal stays
  in its place in the log, with its code.

Not covered: any control. Notebooks place these pieces beside the controls of their own library.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import polars as pl
from plotly.offline import get_plotlyjs

from experiential_lab.evidence.secrets import masked
from experiential_lab.records import IntegrityError, Unverifiable, UsageError
from experiential_lab.retrieval.explain import RELATIONS
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.receipts import RetrievalReceipt, join, verify, verify_durable
from experiential_lab.retrieval.views import Snapshot
from experiential_lab.show.plots import Finding
from experiential_lab.show.theme import (
    BOUNDARIES,
    PLOTLY_CONFIG,
    SUPPORT,
    css,
    duration,
    money,
    number,
    plural,
    short,
    size,
    words_of,
)
from experiential_lab.store import Store
from experiential_lab.world.session import Gauge, Session, SessionError, Step

NEAR = 0.8  # the share of a limit from which its gauge says so

_WORDS = ("part", "reason", "outcome", "pairing", "component", "basis")
_SHORT = ("format", "level")  # of a closed list: never clipped
_DIGESTS = ("id", "trace", "lineage", "family", "source", "transition", "digest", "receipt")


def sheet_html() -> str:
    """The style sheet that every piece below needs, once a page."""
    return f"<style>{css()}</style>"


def heading_html(title: str, kicker: str = "") -> str:
    """A finding as the title of a page, below one line of what it is about."""
    above = f'<div class="k">{_text(kicker)}</div>' if kicker else ""
    return f'<div class="xl">{above}<div class="h1" role="heading" aria-level="1">{_text(title)}</div></div>'


def sentence_html(sentence: str) -> str:
    """The sentence that ends a view; screen readers are told when it changes."""
    return f'<div class="xl"><p class="say" aria-live="polite">{_text(sentence)}</p></div>'


def struck_html(what: str) -> str:
    """What was stated and not added, struck through."""
    return f'<div class="xl"><s class="k">{_text(what)}</s></div>'


def empty_html(why: str) -> str:
    """What stands where there is nothing to show: why."""
    return f'<div class="xl k">{_text(why)}</div>'


def figure_html(drawn: object, finding: Finding) -> str:
    """What a notebook library made of the figure, in a box of the figure's height: without it the page jumps.

    `drawn` places itself when it is formatted, as marimo's elements do. It may be text of our own, never a trace's.
    """
    height, label = finding.figure.layout.height, html.escape(finding.sentence)
    return f'<div class="xl plot" role="img" aria-label="{label}" style="height:{height + 2}px">{drawn}</div>'


def table_html(frame: pl.DataFrame, *, null: str = "") -> str:
    """A frame of at most 7 columns as it is; `null` is what an absent value reads as.

    Raises:
        UsageError: there are more columns.
    """
    if frame.width > 7:
        raise UsageError(f"a table shows at most 7 columns, this one has {frame.width}: select what is needed")
    head = "".join(_head(_column(name), kind.is_numeric()) for name, kind in frame.schema.items())
    body = "".join(
        f"<tr>{''.join(_cell(name, value, null) for name, value in row.items())}</tr>"
        for row in frame.iter_rows(named=True)
    )
    return _table(head, body)


def _column(name: str) -> str:
    return words_of(name.removesuffix("_nusd").removesuffix("_ns"))


def _head(name: str, is_number: bool = False) -> str:
    kind = "n" if is_number or name == "score" else "wide" if name == "entry" else ""
    return f'<th class="{kind}">{name}</th>'


def _cell(name: str, value: object, null: str) -> str:
    match value:
        case None:
            return f'<td class="i">{html.escape(null)}</td>'
        case bool():
            return f"<td>{'yes' if value else 'no'}</td>"
        case int() if name.endswith("_nusd"):
            return f'<td class="n">{money(value)}</td>'
        case int() if name.endswith("_ns"):
            return f'<td class="n">{duration(value)}</td>'
        case int():
            return f'<td class="n">{number(value)}</td>'
        case str() if name in _WORDS:
            return f"<td>{_text(words_of(value))}</td>"
        case str() if name in _SHORT:
            return f"<td>{_text(value)}</td>"
        case str() if name in _DIGESTS:
            return f'<td class="m" title="{html.escape(value)}">{html.escape(short(value))}</td>'
    return _clipped(str(value))


def _clipped(text: str) -> str:
    """A cell that shows as much as fits; an empty result is a result."""
    if not text:
        return '<td class="i">empty result</td>'
    return f'<td class="c" title="{_text(text)}">{_text(text)}</td>'


def _table(head: str, body: str) -> str:
    return f'<div class="xl scroll"><table class="t"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def pair_html(step: Mapping[str, Any], kicker: str = "") -> str:
    """A recorded step, a row of the transitions frame: what was done, and what really followed, with its pairing."""
    name = step["tool"] or "message to the user"
    done = step["arguments"] if step["tool"] else step["action"]
    kind = "m" if step["tool"] else "txt"
    answer = _text(step["observation"]) or '<i class="k">empty result</i>'
    followed = f"{words_of(step['observation_kind'])} · paired by {words_of(step['pairing'])}"
    return (
        f'<div class="xl"><div class="k">{_text(kicker)}</div><div class="pair">'
        f'<div class="card"><div class="k">what was done: <b>{_text(name)}</b></div><div class="{kind} long">{_text(done)}</div>'
        f'<div class="k clip" title="{_text(step["task"] or "")}">task: {_text(step["task"] or "unknown")}</div></div>'
        f'<div class="card"><div class="k">what really followed: {followed}</div><div class="{kind} long">{answer}</div></div></div></div>'
    )


def nearest_html(frame: pl.DataFrame) -> str:
    """A `nearest_frame`: each hit with its kin and whether it answers the same; a boundary heads its hits."""
    head = "".join(map(_head, ("rank", "score", "comes from", "entry", "action", "observation", "answer")))
    body, boundary = "", None
    for row in frame.iter_rows(named=True):
        if row["boundary"] != boundary:
            boundary = row["boundary"]
            left_out = BOUNDARIES[boundary].left_out.removeprefix("only ")
            body += f'<tr><td colspan="7" class="k">{left_out} left out · {number(row["eligible"])} eligible</td></tr>'
        body += _nearest_row(row)
    return _table(head, body)


def _nearest_row(row: Mapping[str, Any]) -> str:
    if row["rank"] is None:
        return f'<tr class="out"><td colspan="7">? no precedent: {_text(row["reason"])}</td></tr>'
    related = row["relation"] != RELATIONS[-1]
    answer = "◆ same" if row["same_observation"] else "● another"
    mark = f'<span class="{"leak" if related else "ok"}">{answer}</span>' if row["same_observation"] else answer
    return (
        f'<tr{" class=first" if row["rank"] == 1 else ""}><td>{row["rank"]}</td><td class="n">{number(row["score"])}</td>'
        f"<td{' class=leak' if related else ''}>{row['relation']}</td>{_id(row['id'])}"
        f"{_clipped(row['action'])}{_clipped(row['observation'])}<td>{mark}</td></tr>"
    )


def hits_html(hits: Hits) -> str:
    """The precedents of one step, best first; the title of an entry says how it was paired."""
    head = "".join(map(_head, ("rank", "score", "entry", "action", "observation")))
    body = "".join(
        f'<tr{" class=first" if hit.rank == 1 else ""}><td>{hit.rank}</td><td class="n">{number(hit.score)}</td>'
        f"{_id(hit.row.entry_id, f', paired by {words_of(entry.pairing)}')}"
        f"{_clipped(dict(entry.key)['action'])}{_clipped(entry.value)}</tr>"
        for hit, entry in zip(hits, hits.entries, strict=True)
    )
    return _table(head, body)


def _id(entry_id: str, told: str = "") -> str:
    """A transition id is its trace and the number of its step."""
    trace, slash, step = entry_id.partition("/")
    whole, brief = html.escape(entry_id + told), html.escape(trace[:8] + slash + step)
    return f'<td class="m wide" title="{whole}">{brief}</td>'


def support_html(label: str, rule: str) -> str:
    """The support label as letter and words."""
    return f'<span class="chip {label}"><b>{label}</b>{SUPPORT[rule][label]}</span>'


def supports_html(found: Mapping[str, Hits | Unverifiable]) -> str:
    """The support that is left at each boundary, in order."""
    parts = [
        f'<span class="k">{BOUNDARIES[boundary].left_out} left out</span> {_support_of(hits)}'
        for boundary, hits in found.items()
    ]
    return f'<div class="xl row">{"<span>→</span>".join(parts)}</div>'


def _support_of(hits: Hits | Unverifiable) -> str:
    return support_html("D", "tool") if isinstance(hits, Unverifiable) else support_html(hits.support, hits.rule)


class Move(NamedTuple):
    """One message that was typed, and what became of it."""

    said: str
    step: Step | None
    refused: SessionError | None

    @property
    def economics(self) -> Mapping[str, Mapping[str, Any]]:
        """What it cost, refused or not."""
        known = self.step.economics if self.step else self.refused.economics if self.refused else {}
        return {component: dict(spent) for component, spent in known.items()}


@dataclass(slots=True)
class Future:
    """One session, all that was typed into it, and the number of the move that is looked at (0: none yet)."""

    session: Session
    moves: tuple[Move, ...] = ()
    chosen: int = 0


class Stepper:
    """A session that is stepped by hand, and at most one fork of it. It ends with its session."""

    def __init__(self, session: Session) -> None:
        self.futures = [Future(session)]
        self.at = 0
        """Which future the next message goes to."""
        self.notice: SessionError | None = None
        """Why the last fork was refused."""

    @property
    def now(self) -> Future:
        return self.futures[self.at]

    @property
    def move(self) -> Move | None:
        """The chosen move; None before the first."""
        return self.now.moves[self.now.chosen - 1] if self.now.moves else None

    def say(self, text: str) -> Move:
        """Send one message, and keep what became of it. A refusal is kept, not raised."""
        now, self.notice = self.now, None
        try:
            move = Move(text, now.session.step(text), None)
        except SessionError as refusal:
            move = Move(text, None, refusal)
        now.moves += (move,)
        now.chosen = len(now.moves)
        return move

    def choose(self, by: int) -> None:
        """Look at an earlier or later move of this future."""
        self.now.chosen = max(min(1, len(self.now.moves)), min(len(self.now.moves), self.now.chosen + by))

    def fork(self) -> None:
        """Go on in a second session with the same past; an earlier fork of this page ends. A refusal is a notice."""
        now = self.now
        try:
            other = Future(now.session.fork(), now.moves, now.chosen)
        except SessionError as refusal:
            self.notice = refusal
            return
        for future in self.futures:
            if future is not now:
                future.session.end()
        self.futures, self.at, self.notice = [now, other], 1, None

    def switch(self) -> None:
        """Go to the other future, where there is one."""
        self.at = (self.at + 1) % len(self.futures)

    def gauges(self) -> tuple[Gauge, ...]:
        """What is used of every limit; nothing when the session is gone."""
        try:
            return self.now.session.gauges()
        except SessionError:
            return ()

    @property
    def title(self) -> str:
        """What the chosen move came to."""
        move, place = self.move, self.now.chosen
        if move is None:
            return "No step yet: the session waits for the first message"
        if move.step is None:
            return f"Step {place} was refused ({move.refused.code if move.refused else 'unknown'}): nothing changed"
        ended = ", and the conversation ended" if move.step.terminal else ""
        return f"Step {place}: answered from {plural(len(move.step.hits), 'precedent')}, support {move.step.support}{ended}"

    @property
    def sentence(self) -> str:
        """The view in one sentence."""
        moves = self.now.moves
        refused = sum(move.step is None for move in moves)
        known = sum(spent["cost_nusd"] or 0 for move in moves for spent in move.economics.values())
        unknown = sum(spent["cost_nusd"] is None for move in moves for spent in move.economics.values())
        cost = f"at least {money(known)}, {plural(unknown, 'cost')} unknown" if unknown else money(known)
        return (
            f"{plural(len(moves) - refused, 'message')} answered and {number(refused)} refused in this session, which is "
            f"{words_of(self.now.session.state)}; cost so far: {cost}. Each answer is a prediction; what it copies was "
            "recorded for another task."
        )


def futures_html(stepper: Stepper) -> str:
    """The conversation; after a fork the common past, then both futures side by side."""
    notice = refusal_html(stepper.notice) if stepper.notice else ""
    if len(stepper.futures) == 1:
        return f'<div class="xl">{transcript_html(stepper.now.moves, stepper.now.chosen)}{notice}</div>'
    first, fork = stepper.futures
    past = sum(one is other for one, other in zip(first.moves, fork.moves, strict=False))
    columns = "".join(
        f'<div><div class="k">{name}{" · messages go here" if future is stepper.now else ""}</div>'
        f"{transcript_html(future.moves, future.chosen if future is stepper.now else None, past)}</div>"
        for name, future in (("first future", first), ("fork", fork))
    )
    return f'<div class="xl">{transcript_html(first.moves[:past], stepper.now.chosen)}<div class="pair">{columns}</div>{notice}</div>'


def transcript_html(moves: Sequence[Move], chosen: int | None = None, past: int = 0) -> str:
    """What was said and what was predicted, in order, after the first `past` moves; `chosen` counts from 1."""
    if len(moves) <= past:
        return '<div class="xl k">Nothing was said yet.</div>'
    told = [_move(n, move, n == chosen) for n, move in enumerate(moves, 1) if n > past]
    return f'<div class="xl" role="log">{"".join(told)}</div>'


def _move(n: int, move: Move, chosen: bool) -> str:
    mark = " chosen" if chosen else ""
    text = _text(move.said) if move.said.strip() else '<i class="k">white space</i>'
    said = (
        f'<div class="said{mark}"><div class="k">step {n} · you, the candidate</div><div class="txt">{text}</div></div>'
    )
    if move.step is None:
        return said + (refusal_html(move.refused) if move.refused else "")
    step = move.step
    copied = f" · copied whole from hit {step.turn.copied_from}" if step.turn.copied_from else ""
    ended = " · the conversation ended here" if step.terminal else ""
    digest = step.receipt.receipt_digest
    return said + (
        f'<div class="said predicted{mark}"><div class="k">predicted{copied}{ended}</div>'
        f'<div class="txt">{_text(step.message["content"])}</div>'
        f'<div class="row k">{support_html(step.support, step.hits.rule)}<span>{plural(len(step.hits), "hit")}</span>'
        f'<span>receipt <span class="m" title="{digest}">{short(digest)}</span></span></div></div>'
    )


def refusal_html(refused: SessionError) -> str:
    """A refusal as a row of its own: the code, what was wrong, and what to do."""
    why = str(refused).removeprefix(f"{refused.code}: ")
    return (
        f'<div class="said refused"><span class="leak">✗ refused</span> <span class="m">{html.escape(refused.code)}</span>'
        f"<div>{_text(why)}</div><div class='k'>The session is as before.</div></div>"
    )


def gauges_html(gauges: Sequence[Gauge], state: str = "") -> str:
    """Every limit with what is used of it, the fullest first; `state` is what the session is when there are no gauges."""
    if not gauges:
        return f'<div class="xl k">The session is {_text(state or "gone")}: its transcript is removed, and its limits are free.</div>'
    ordered = sorted(gauges, key=lambda gauge: -gauge.used / gauge.limit)
    return f'<div class="xl"><div class="gauge">{"".join(map(_gauge, ordered))}</div></div>'


def _gauge(gauge: Gauge) -> str:
    share = gauge.used / gauge.limit
    near = share >= NEAR
    told = f"{_amount(gauge.used, gauge.unit)} of {_amount(gauge.limit, gauge.unit)}"
    word = " <b class=leak>near</b>" if near else ""
    return (
        f"<span>{_GAUGES.get(gauge.name, words_of(gauge.name))}</span>"
        f'<i{" class=near" if near else ""} aria-hidden="true"><i style="width:{100 * share:.1f}%"></i></i>'
        f'<span class="n">{told}{word}</span>'
    )


_GAUGES = {
    "active_sessions": "sessions",
    "idle_ns": "idle",
    "transcript_bytes": "transcript",
    "observation_bytes": "answer, bytes",
    "task_bytes": "task",
    "context_bytes": "context",
    "output_tokens": "answer, tokens",
}


def _amount(value: int, unit: str) -> str:
    match unit:
        case "bytes":
            return size(value)
        case "ns":
            return f"{value // 60_000_000_000}:{value // 1_000_000_000 % 60:02d}"
    return number(value)


class Check(NamedTuple):
    """One line of a receipt's panel."""

    name: str
    verdict: Literal["✓", "✗", "?"]
    detail: str


def receipt_checks(
    receipt: RetrievalReceipt, snapshot: Snapshot | None = None, store: Store | None = None
) -> tuple[Check, ...]:
    """Shape, digest, join with the snapshot, and the stored inventory: each ✓, ✗, or ? where evidence is missing."""
    shape = _checked("shape", lambda: verify(receipt), "reads as a retrieval receipt")
    digest = Check("digest", "✓", short(receipt.receipt_digest))
    if shape.verdict == "✗" and shape.detail.startswith("receipt digest"):
        shape, digest = Check("shape", "✓", "reads as a retrieval receipt"), shape._replace(name="digest")
    elif shape.verdict == "✗":
        digest = Check("digest", "?", "unverifiable: the shape is wrong")
    found = f"{plural(len(receipt.results), 'hit')} found at their places"
    joined = _checked("join with snapshot", lambda: join(receipt, snapshot), found)
    if store is None:
        return shape, digest, joined, Check("snapshot artifact", "?", "unverifiable: no workspace is given")
    return shape, digest, joined, _checked("snapshot artifact", lambda: verify_durable(receipt, store), "read again")


def _checked(name: str, check: Callable[[], object], passed: str) -> Check:
    try:
        result = check()
    except IntegrityError as error:
        return Check(name, "✗", str(error))
    if isinstance(result, Unverifiable):
        return Check(name, "?", f"unverifiable: {_MISSING.get(result.reason, result.reason)}")
    return Check(name, "✓", passed)


_MISSING = {
    "missing": "snapshot not found",
    "no_artifact_reference": "the receipt names no stored inventory",
    "load_failed": "the stored inventory cannot be read",
}


def checks_html(checks: Sequence[Check]) -> str:
    """The lines of a receipt's panel."""
    hue = {"✓": "ok", "✗": "leak", "?": "k"}
    lines = "".join(
        f'<li><b class="{hue[check.verdict]}">{check.verdict}</b>{check.name}'
        f'<span class="k"> · {_text(check.detail)}</span></li>'
        for check in checks
    )
    return f'<div class="xl"><ul class="checks">{lines}</ul></div>'


def page_html(
    title: str, findings: Sequence[Finding], *, kicker: str = "", before: Mapping[int, str] = MappingProxyType({})
) -> str:
    """A page of its own that needs no network: each finding with its figure, its sentence and its table.

    `before`: {number of a finding, from 0: pieces of this module that stand above it}
    """
    views = "".join(before.get(n, "") + _view(n, finding) for n, finding in enumerate(findings))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>{sheet_html()}'
        '<meta name="viewport" content="width=device-width"><style>body{margin:24px}</style>'
        f'<script>{get_plotlyjs()}</script></head><body><div class="xl stack">{heading_html(title, kicker)}{views}</div></body></html>'
    )


def _view(n: int, finding: Finding) -> str:
    figure = finding.figure.to_html(full_html=False, include_plotlyjs=False, div_id=f"figure-{n}", config=PLOTLY_CONFIG)
    table = nearest_html(finding.table) if "rank" in finding.table.columns else table_html(finding.table)
    label = html.escape(finding.sentence)
    return f'<section><div role="img" aria-label="{label}">{figure}</div>{sentence_html(finding.sentence)}{table}</section>'


def _text(text: str) -> str:
    """Foreign text in HTML: what looks like a secret is masked, and a NUL, which no page may hold, is shown as its picture."""
    return html.escape(masked(text)).replace("\0", "␀")
