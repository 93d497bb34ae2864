"""Frames in, findings out: a title that says what the table shows, a sentence, a plotly figure, and the table itself.

- The title is computed from the table, and it also says when nothing changed, or when a sum does not hold.
- What was left out stays visible: hatched, in its place. Unknown is a hatched stub with its word, outside of every sum. A
  component that does not exist has no row; what is free is 0 with the word free.
- Equal tables give equal figures, byte for byte: nothing here reads a clock, and no element has a random id.
- Text of a trace is escaped, for plotly reads markup and formulas in labels. A hover shows its first characters.

Not covered: whether a number is right. A figure repeats its table, and a precedent that matches here is no rule.
"""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from textwrap import wrap
from typing import Any, NamedTuple

import plotly.graph_objects as go
import polars as pl

from experiential_lab.evidence.secrets import masked
from experiential_lab.evidence.trace import PAIRINGS
from experiential_lab.records import Unverifiable
from experiential_lab.retrieval.explain import RELATIONS, Run, relation_of
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.receipts import Hit
from experiential_lab.retrieval.views import Entry
from experiential_lab.show.theme import (
    BOUNDARIES,
    COMPONENT,
    PAIRING_RAMP,
    PALETTE,
    Mode,
    duration,
    money,
    number,
    plural,
    rgba,
    template,
    words_of,
)

PARTS = {"what": pl.String, "part": pl.String, "reason": pl.String, "count": pl.Int64}
NEAREST = {
    "boundary": pl.String,
    "rank": pl.Int64,
    "score": pl.Int64,
    "relation": pl.String,
    "same_observation": pl.Boolean,
    "action": pl.String,
    "observation": pl.String,
    "id": pl.String,
    "eligible": pl.Int64,
    "reason": pl.String,
}
COSTS = {
    "step": pl.Int64,
    "component": pl.String,
    "basis": pl.String,
    "cost_nusd": pl.Int64,
    "usage": pl.String,
    "latency_ns": pl.Int64,
}
"""How the run of a hit stands to the run of the step, the nearest kin first. All but the last are related."""
RIBBON_TRACES = 60
RIBBON_STEPS = 120  # ticks of one trace; more would be narrower than a pixel

_RIBBON_WIDTH = 24  # ticks that fill the width; shorter traces stand in columns, so that a tick stays a tick
_TITLE_WIDTH = 62  # characters of a title line that fit the narrowest page (620 px)
_LEAST_SHARE = 0.006  # a part of one in a million is still drawn
_HOVER = 90  # characters of a trace that a hover shows


class Finding(NamedTuple):
    """What a table shows, in four forms."""

    title: str
    sentence: str
    """The finding in words: it stands below the figure, and is its text alternative."""
    figure: go.Figure
    table: pl.DataFrame


def plot_ledger(counts: Mapping[str, Any], ledger: pl.DataFrame, *, mode: Mode = "light") -> Finding:
    """Where every record and every step of an import ended.

    `counts` are the sums of an import report; `ledger` has one row a step.
    """
    table = parts_frame(counts)
    bars = [
        _Bar("Records", int(counts["records"]), _parts(table, "records"), "used", "rejected"),
        _Bar("Steps", int(counts["steps"]), _parts(table, "steps"), "paired", "left out"),
    ]
    off = [bar.off for bar in bars]
    off[1] = off[1] or ledger.height - bars[1].total
    figure = _ledger_figure(bars, off, ledger, mode)
    title = _ledger_title(bars[1], off)
    kicker = f"Import · {plural(counts['sources'], 'source')} · {plural(counts['traces'], 'trace')} · n = {number(counts['steps'])} steps"
    _entitle(figure, title, kicker, mode)
    return Finding(title, " ".join(_bar_sentence(bar, gap) for bar, gap in zip(bars, off, strict=True)), figure, table)


def parts_frame(counts: Mapping[str, Any]) -> pl.DataFrame:
    """One row a part of the two sums: what became of the records, and of the steps."""
    rows: list[tuple[str, str, str | None, int]] = [("records", "used", None, counts["records_used"])]
    rows += [("records", "rejected", reason, count) for reason, count in counts["records_rejected"].items()]
    pairing = counts["pairing"]
    rows += [("steps", "paired", kind, pairing[kind]) for kind in PAIRINGS if kind in pairing]
    rows += [("steps", "left out", reason, count) for reason, count in counts["left_out"].items()]
    return pl.DataFrame(rows, schema=PARTS, orient="row")


class _Part(NamedTuple):
    part: str
    reason: str | None
    number: int

    @property
    def name(self) -> str:
        return words_of(self.reason or self.part)

    @property
    def is_out(self) -> bool:
        return self.part in ("rejected", "left out")


class _Bar(NamedTuple):
    """One sum and its parts."""

    name: str
    total: int
    parts: list[_Part]
    kept: str
    dropped: str

    @property
    def off(self) -> int:
        return sum(part.number for part in self.parts) - self.total

    @property
    def drawn(self) -> int:
        """What the whole bar stands for."""
        return sum(part.number for part in self.parts) or 1


def _parts(table: pl.DataFrame, what: str) -> list[_Part]:
    rows = table.filter((pl.col("what") == what) & (pl.col("count") > 0))
    return [_Part(*row) for row in rows.select("part", "reason", "count").iter_rows()]


def _ledger_title(steps: _Bar, off: Sequence[int]) -> str:
    if any(off):
        wrong = (f"{what} by {number(gap)}" for what, gap in zip(("records", "steps"), off, strict=True) if gap)
        return f"✗ The sums do not hold: off in {' and '.join(wrong)}"
    left = sum(part.number for part in steps.parts if part.is_out)
    if not steps.total:
        return "No step was found: there is nothing to pair"
    if not left:
        return f"{'All' if steps.total > 1 else 'The'} {plural(steps.total, 'step')} {_are(steps.total)} paired with what really followed"
    rest = "the left-out one has a reason" if left == 1 else "every left-out one has a reason"
    return f"{number(steps.total - left)} of {plural(steps.total, 'step')} are paired; {rest}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _bar_sentence(bar: _Bar, gap: int) -> str:
    kept = [part for part in bar.parts if not part.is_out]
    out = [part for part in bar.parts if part.is_out]
    told = ", ".join(f"{number(part.number)} {part.name}" for part in kept if part.reason)
    left = ", ".join(f"{number(part.number)} {part.name}" for part in out)
    sums = "the sum holds" if not gap else f"the sum is off by {number(gap)}"
    return (
        f"Of {plural(bar.total, bar.name.lower()[:-1])}, {number(sum(part.number for part in kept))} "
        f"{_are(bar.total)} {bar.kept}{f' ({told})' if told else ''}; "
        f"{bar.dropped}: {left or 'none'}; {sums}."
    )


def _ledger_figure(bars: Sequence[_Bar], off: Sequence[int], ledger: pl.DataFrame, mode: Mode) -> go.Figure:
    """Two stacked bars above the ribbon; places are in pixels from the top, so that no text meets another."""
    hue, ribbon, below = PALETTE[mode], _ribbon(ledger), [_below(bar) for bar in bars]
    tops = [0, 74 + 18 * len(below[0])]
    at = tops[1] + 74 + 18 * len(below[1])
    figure = go.Figure(
        layout={"template": template(mode), "barmode": "overlay", "height": at + 24 + ribbon.height + 34}
    )
    sheet = _Sheet(figure, at + 24 + ribbon.height, mode)
    figure.update_layout(
        xaxis={"range": [0, 1], "visible": False, "anchor": "y"},
        yaxis={"domain": sheet.domain(24, 30), "visible": False, "range": [-0.5, 0.5]},
        yaxis2={"domain": sheet.domain(tops[1] + 24, 30), "visible": False, "range": [-0.5, 0.5]},
    )
    for bar, gap, axis, top, lines in zip(bars, off, ("y", "y2"), tops, below, strict=True):
        _draw_bar(figure, bar, axis, mode)
        sheet.write(top, f"<b>{bar.name}</b>")
        verdict = f"<b>✗ off by {number(gap)}</b>" if gap else f"sum = {number(bar.total)} ✓"
        sheet.write(top, verdict, right=True, colour=hue["leak"] if gap else hue["muted"])
        for n, line in enumerate(lines):
            sheet.write(top + 57 + 18 * n, line, size=12)
    errors = "; ✗ is a declared error" if ledger["is_error"].any() else ""
    sheet.write(at, f"<b>Traces</b>, one row each, one tick a step{errors}")
    shown = len(ribbon.traces)
    told = f"{shown} of {shown + ribbon.more}, {ribbon.more} more" if ribbon.more else f"all {shown}"
    sheet.write(at, told, right=True, colour=hue["muted"])
    _draw_ribbon(figure, ribbon, sheet.domain(at + 24, ribbon.height), mode)
    return figure


class _Sheet:
    """Writes on a figure at pixels from the top of its plotting area."""

    def __init__(self, figure: go.Figure, area: int, mode: Mode) -> None:
        self.figure, self.area, self.mode = figure, area, mode

    def domain(self, top: int, height: int) -> list[float]:
        return [round(1 - (top + height) / self.area, 6), round(1 - top / self.area, 6)]

    def write(self, top: int, text: str, *, right: bool = False, colour: str | None = None, size: int = 13) -> None:
        self.figure.add_annotation(
            xref="paper",
            yref="paper",
            x=1 if right else 0,
            y=1,
            yshift=-top,
            xanchor="right" if right else "left",
            yanchor="top",
            align="left",
            text=text,
            showarrow=False,
            borderpad=0,
            font={"size": size, "color": colour or PALETTE[self.mode]["ink"]},
        )


def _fits(part: _Part, bar: _Bar) -> bool:
    """Whether the label of a part has room inside it on the narrowest page."""
    return part.number / bar.drawn >= 0.03 + 0.0145 * len(f"{part.name} {number(part.number)}")


def _below(bar: _Bar) -> list[str]:
    """Lines below a bar: the parts that are too narrow for a label of their own."""
    told = [
        f"{number(part.number)} {part.name}{' left out' if part.part == 'left out' else ' rejected' if part.is_out else ''}"
        for part in bar.parts
        if not _fits(part, bar)
    ]
    narrow = [
        ("▨ " if part.is_out else "▫ " if part.reason == "user_reply" else "▪ ")
        for part in bar.parts
        if not _fits(part, bar)
    ]
    return wrap("   ".join(glyph + text for glyph, text in zip(narrow, told, strict=True)), 84, break_on_hyphens=False)


def _draw_bar(figure: go.Figure, bar: _Bar, axis: str, mode: Mode) -> None:
    widths = [max(_LEAST_SHARE, part.number / bar.drawn) for part in bar.parts]
    scale, base = sum(widths), 0.0
    for part, width in zip(bar.parts, widths, strict=True):
        share = round(width / scale, 6)
        label = f"{part.name} {number(part.number)}" if _fits(part, bar) else ""
        figure.add_bar(
            orientation="h",
            x=[share],
            base=[round(base, 6)],
            y=[0],
            width=[0.96],
            yaxis=axis,
            marker=_fill(part.reason if part.part == "paired" else part.part, mode),
            text=[label],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            constraintext="none",
            textfont={"size": 12.5, "color": _on(part.reason if part.part == "paired" else part.part, mode)},
            hovertemplate=f"{number(part.number)} {part.name}<extra></extra>",
        )
        base += share


def _fill(outcome: str | None, mode: Mode) -> dict[str, Any]:
    """How an outcome is filled, in the bars and in the ribbon."""
    hue = PALETTE[mode]
    if outcome == "user_reply":
        return {"color": rgba(hue["observed"], 0.0), "line": {"color": hue["observed"], "width": 1.5}}
    if outcome == "used" or outcome in PAIRING_RAMP:
        strength = PAIRING_RAMP.get(outcome, 1.0)
        return {"color": rgba(hue["observed"], strength), "line": {"color": hue["observed"], "width": 0.5}}
    return {
        "color": "rgba(0,0,0,0)",
        "line": {"color": hue["unknown"], "width": 1},
        "pattern": {"shape": "/", "size": 5, "solidity": 0.4, "fgcolor": hue["unknown"], "bgcolor": "rgba(0,0,0,0)"},
    }


def _on(outcome: str | None, mode: Mode) -> str:
    """The colour of what is written on an outcome."""
    strong = outcome == "used" or PAIRING_RAMP.get(outcome or "", 0) > 0.6
    return PALETTE[mode]["surface" if strong else "ink"]


class _Ribbon(NamedTuple):
    """The traces that are drawn, in columns when they are short."""

    traces: list[pl.DataFrame]
    """The steps of each, the largest left-out share first."""
    more: int
    """Traces that are not drawn."""
    steps: int
    """Ticks of the longest row."""
    columns: int

    @property
    def rows(self) -> int:
        return max(1, -(-len(self.traces) // self.columns))

    @property
    def width(self) -> int:
        return self.columns * (self.steps + 1) - 1

    @property
    def height(self) -> int:
        """In pixels."""
        return self.rows * (7 if self.rows > 30 else 10 if self.rows > 12 else 16)

    def place(self, n: int) -> tuple[int, int]:
        """Column offset and row of the trace `n`."""
        return n // self.rows * (self.steps + 1), n % self.rows


def _ribbon(ledger: pl.DataFrame) -> _Ribbon:
    traces = ledger.partition_by("trace", maintain_order=True) if ledger.height else []
    traces.sort(key=lambda steps: -steps["transition"].null_count() / steps.height)  # stable: else source order
    shown = traces[:RIBBON_TRACES]
    longest = min(RIBBON_STEPS, max((steps.height for steps in shown), default=1))
    columns = max(1, min(_RIBBON_WIDTH // (longest + 1), -(-len(shown) // 12)))
    return _Ribbon(shown, len(traces) - len(shown), longest, columns)


def _draw_ribbon(figure: go.Figure, ribbon: _Ribbon, domain: list[float], mode: Mode) -> None:
    numbers = [1, *range(5, ribbon.steps + 1, 5)] if ribbon.steps >= 5 else sorted({1, ribbon.steps})
    starts = [column * (ribbon.steps + 1) for column in range(ribbon.columns)]
    figure.update_layout(
        xaxis2={
            "range": [0, ribbon.width],
            "domain": [0, min(1.0, round(ribbon.width / _RIBBON_WIDTH, 4))],
            "anchor": "y3",
            "tickvals": [start + n - 0.5 for start in starts for n in numbers],
            "ticktext": [str(n) for _ in starts for n in numbers],
            "title": {"text": "step"},
        },
        yaxis3={"domain": domain, "visible": False, "range": [ribbon.rows - 0.5, -0.5]},
    )
    _draw_ticks(figure, ribbon, mode)


def _draw_ticks(figure: go.Figure, ribbon: _Ribbon, mode: Mode) -> None:
    ticks: dict[str, list[tuple[float, int, str]]] = {}
    errors: dict[str, list[tuple[float, int]]] = {}
    for n, steps in enumerate(ribbon.traces):
        start, y = ribbon.place(n)
        shown = steps.select("trace", "action", "outcome", "is_error").iter_rows()
        for x, (trace, action, outcome, is_error) in zip(range(ribbon.steps), shown, strict=False):
            told = f"trace {trace[:8]}, step {x + 1}: {words_of(outcome)}<br>{_text(action, _HOVER)}"
            ticks.setdefault(outcome, []).append((start + x + 0.07, y, told))
            if is_error:
                errors.setdefault(_on(outcome, mode), []).append((start + x + 0.5, y))
    for outcome in sorted(ticks):
        xs, ys, texts = zip(*ticks[outcome], strict=True)
        figure.add_bar(
            orientation="h",
            x=[0.86] * len(xs),
            base=[round(x, 2) for x in xs],
            y=list(ys),
            width=[0.74] * len(xs),
            xaxis="x2",
            yaxis="y3",
            marker=_fill(outcome, mode),
            customdata=[[text] for text in texts],
            hovertemplate="%{customdata[0]}<extra></extra>",
        )
    for colour in sorted(errors):
        cross = {"symbol": "x-thin", "size": 4, "line": {"width": 1.4, "color": colour}}
        xs, ys = zip(*errors[colour], strict=True)
        figure.add_scatter(
            x=list(xs), y=list(ys), mode="markers", marker=cross, xaxis="x2", yaxis="y3", hoverinfo="skip"
        )


def nearest_frame(step: Mapping[str, Any], found: Mapping[str, Hits | Unverifiable]) -> pl.DataFrame:
    """One row a hit of each search for one recorded step: whose run it is from, and whether it answers the same.

    `step` is a row of the transitions frame; `found` has a boundary and what was found with it left out, in order. A search
    without a result is one row without a rank, with its reason.
    """
    rows: list[dict[str, Any]] = []
    for boundary, hits in found.items():
        if isinstance(hits, Unverifiable):
            rows.append({"boundary": boundary, "eligible": 0, "reason": hits.reason})
            continue
        asked = hits.receipt.query.act.structure
        for hit, entry in zip(hits, hits.entries, strict=True):
            rows.append(
                _nearest_row(step, hit, entry, same_call=entry.structure == asked)
                | {"boundary": boundary, "eligible": hits.receipt.visibility.visible_count}
            )
    return pl.DataFrame([tuple(row.get(name) for name in NEAREST) for row in rows], schema=NEAREST, orient="row")


def _nearest_row(step: Mapping[str, Any], hit: Hit, entry: Entry, *, same_call: bool) -> dict[str, Any]:
    own = Run(step["id"], step["trace"], (step["lineage"],), step["family"])
    return {
        "rank": hit.rank,
        "score": hit.score,
        "relation": relation_of(hit.row, own, same_call=same_call),
        "same_observation": entry.value == step["observation"],
        "action": dict(entry.key)["action"],
        "observation": entry.value,
        "id": hit.row.entry_id,
    }


def kin_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """One row a boundary: how often hit 1 of a search is from a related run, and has the observation that followed.

    `frame` holds the `nearest_frame` of many steps, one below the other. A step without any hit stays in `steps`.
    """
    related = pl.col("relation")
    counted = (
        frame.filter(pl.col("rank").fill_null(1) == 1)
        .group_by("boundary", maintain_order=True)
        .agg(
            steps=pl.len().cast(pl.Int64),
            kin=related.is_in(list(RELATIONS[:4])).sum().cast(pl.Int64),
            identical_call=(related == "identical call").sum().cast(pl.Int64),
            same_observation=pl.col("same_observation").sum().cast(pl.Int64),
            no_precedent=pl.col("rank").null_count().cast(pl.Int64),
        )
    )
    names = {level: stop.left_out for level, stop in BOUNDARIES.items()}
    return counted.with_columns(left_out=pl.col("boundary").replace_strict(names, return_dtype=pl.String))


def plot_nearest(frame: pl.DataFrame, *, mode: Mode = "light") -> Finding:
    """The nearest precedents of one step at each boundary of `frame`, a `nearest_frame`: score, kin, and same answer or not."""
    groups = frame.partition_by("boundary", maintain_order=True) if frame.height else []
    title = _nearest_title(groups)
    figure = _nearest_figure(groups, mode)
    asked = max((group.height for group in groups), default=0)
    _entitle(figure, title, f"Nearest precedents of one recorded step · {plural(asked, 'hit')} at each boundary", mode)
    return Finding(title, " ".join(map(_nearest_sentence, groups)) or "No search was made.", figure, frame)


def _nearest_title(groups: Sequence[pl.DataFrame]) -> str:
    if not groups:
        return "No search was made: there is nothing to show"
    first, last = groups[0].row(0, named=True), groups[-1].row(0, named=True)
    left_out = BOUNDARIES[last["boundary"]].left_out
    if last["rank"] is None:
        return f"Leave out {left_out} and nothing is left to copy: {last['reason']}"
    if len(groups) == 1 or first["rank"] is None:
        match = "is" if last["same_observation"] else "is not"
        return f"Leave out {left_out}: hit 1 comes from {_from(last)}; its observation {match} what really happened"
    if first["id"] == last["id"]:
        match = "still matches" if last["same_observation"] else "matches in neither case"
        return f"Leaving out {left_out} changes nothing: hit 1 comes from {_from(last)}; its observation {match}"
    match = {
        (True, True): "its observation still matches",
        (True, False): "its observation no longer matches",
        (False, True): "its observation matches only now",
        (False, False): "its observation matches in neither case",
    }[first["same_observation"], last["same_observation"]]
    change = f"changes from {_from(first)} to {_from(last)}"
    if _from(first) == _from(last):
        change = f"is another entry, again from {_from(last)}"
    return f"Leave out {left_out} and hit 1 {change}; {match}"


def _from(row: Mapping[str, Any]) -> str:
    """Where a hit is from, as it stands in a sentence."""
    return {
        "itself": "the step itself",
        "own trace": "its own trace",
        "conversation": "its own conversation",
        "family": "its own family",
        "identical call": "an identical call of another task",
        "other task": "another task",
    }[row["relation"]]


def _nearest_sentence(group: pl.DataFrame) -> str:
    first = group.row(0, named=True)
    head = f"With {BOUNDARIES[first['boundary']].left_out} left out"
    if first["rank"] is None:
        return f"{head}, nothing can be consulted ({first['reason']})."
    related = sum(relation != RELATIONS[-1] for relation in group["relation"])
    same = sum(group["same_observation"])
    return (
        f"{head}, {related} of {plural(group.height, 'hit')} {_are(related)} from related runs and "
        f"{same} of {group.height} {'has' if same == 1 else 'have'} the observation that really followed; hit 1 comes from {_from(first)}."
    )


def _nearest_figure(groups: Sequence[pl.DataFrame], mode: Mode) -> go.Figure:
    hue = PALETTE[mode]
    best = max((score for group in groups for score in group["score"].drop_nulls()), default=0) or 1
    figure = go.Figure(layout={"template": template(mode)})
    lines: float = 0
    ranks: dict[float, int] = {}
    for group in groups:
        stop = BOUNDARIES[group["boundary"][0]]
        figure.add_annotation(
            xref="paper",
            x=0,
            xshift=-22,
            y=lines,
            xanchor="left",
            showarrow=False,
            text=f"<b>{stop.left_out.removeprefix('only ').capitalize()} left out</b> · {number(group['eligible'][0])} eligible",
            font={"size": 13, "color": hue["ink"]},
        )
        for n, row in zip(count(lines + 1), group.iter_rows(named=True), strict=False):
            if row["rank"] is None:
                _write(figure, 0, n, f"? no precedent: {_text(row['reason'])}", hue["muted"])
                continue
            ranks[n] = row["rank"]
            _draw_hit(figure, n, row, mode)
        lines += group.height + 1.5
    figure.update_layout(height=64 + 30 * round(lines), margin={"l": 30, "b": 44})
    figure.update_xaxes(
        range=[-0.015 * best, 1.9 * best],
        tickvals=_ticks(best),
        tickformat="~s",
        title={"text": "score of the hit (weighted shared features, no unit)"},
    )
    figure.update_yaxes(
        range=[lines - 0.9, -0.6], tickvals=list(ranks), ticktext=[str(rank) for rank in ranks.values()]
    )
    figure.update_yaxes(showgrid=False, tickfont={"size": 13, "color": hue["ink"]})
    return figure


def _ticks(best: int) -> list[int]:
    """Round numbers from 0 to at most `best`, two or more apart from it."""
    step = next(step for step in (base * 10**power for power in count() for base in (1, 2, 5)) if best <= 3 * step)
    return list(range(0, best + 1, step))


def _draw_hit(figure: go.Figure, y: float, row: Mapping[str, Any], mode: Mode) -> None:
    hue = PALETTE[mode]
    related = row["relation"] != RELATIONS[-1]
    colour = hue["leak"] if related else hue["observed"]
    weight = {"width": 4 if row["rank"] == 1 else 2.5, "color": rgba(colour, 0.5)}
    figure.add_scatter(x=[0, row["score"]], y=[y, y], mode="lines", line=weight, hoverinfo="skip")
    figure.add_scatter(
        x=[row["score"]],
        y=[y],
        mode="markers",
        marker={"symbol": "diamond" if row["same_observation"] else "circle", "size": 13, "color": colour},
        customdata=[[_text(row["action"], _HOVER), _text(row["observation"], _HOVER) or "<i>empty result</i>"]],
        hovertemplate="%{customdata[0]}<br>→ %{customdata[1]}<br>score %{x:,}<extra></extra>",
    )
    answer = "◆ same observation" if row["same_observation"] else "● another observation"
    told = f"{answer}, {row['relation']}"
    _write(figure, row["score"], y, f"<b>{told}</b>" if row["rank"] == 1 else told, colour if related else hue["ink"])


def _write(figure: go.Figure, x: float, y: float, text: str, colour: str) -> None:
    figure.add_annotation(
        x=x, y=y, xshift=12, xanchor="left", showarrow=False, text=text, font={"size": 12, "color": colour}
    )


def costs_frame(economics: Iterable[Mapping[Any, Any]]) -> pl.DataFrame:
    """One row a step and component, in the order of the steps. Null is unknown; an absent component has no row."""
    rows = [
        (step, component, spent["basis"], spent["cost_nusd"], _usage(spent["usage"]), spent["latency_ns"])
        for step, parts in enumerate(economics, 1)
        for component, spent in parts.items()
    ]
    return pl.DataFrame(rows, schema=COSTS, orient="row")


def _usage(usage: Mapping[str, int] | None) -> str | None:
    if usage is None:
        return None
    return ", ".join(f"{number(amount)} {words_of(kind)}" for kind, amount in usage.items()) or "none"


def plot_costs(costs: pl.DataFrame, *, latency: bool = True, mode: Mode = "light") -> Finding:
    """What each component cost and how long it took, over all steps of `costs`, a `costs_frame`.

    Without `latency` the figure is a function of the money alone, so that equal sessions give equal figures.
    """
    totals = _totals(costs)
    table = pl.DataFrame([total[:-1] for total in totals], schema=_TOTALS, orient="row")
    steps = costs["step"].n_unique()
    title = _costs_title(totals, steps)
    figure = _costs_figure(totals, latency, mode)
    _entitle(figure, title, f"Costs by component · n = {plural(steps, 'step')} · an absent component has no row", mode)
    if latency:
        table = table.with_columns(median_latency_ns=pl.Series([total.latency_ns for total in totals], dtype=pl.Int64))
    return Finding(title, _costs_sentence(totals, steps), figure, table)


_TOTALS = {"component": pl.String, "basis": pl.String, "cost_nusd": pl.Int64, "steps": pl.Int64, "unknown": pl.Int64}


def plot_sweep(sweep: pl.DataFrame, *, threshold: float = 0.9, mode: Mode = "light") -> Finding:
    """How many families there are at each threshold, a `sweep_frame`; the chosen threshold is marked.

    The band is the chosen threshold plus and minus a tenth: a count that moves inside it hangs on one number.
    """
    hue, count = PALETTE[mode], dict(zip(sweep["threshold"], sweep["families"], strict=True))
    near = [n for at, n in count.items() if abs(at - threshold) <= 0.1001]
    here = sweep.filter((pl.col("threshold") - threshold).abs() < 0.0001)
    families = here["families"].item() if here.height else near[0]
    low, high = min(near), max(near)
    title = (
        f"{plural(families, 'family')} at threshold {threshold:.2f}, the same within a tenth of it"
        if low == high
        else f"{families:,} families at threshold {threshold:.2f}, but {low:,} to {high:,} within a tenth of it: the threshold matters"
    ).replace("familys", "families")
    share = max(sweep["largest_family_share"].to_list())
    least, most = min(count.values()), max(count.values())
    many = f"{least:,} to {most:,} families" if least < most else plural(most, "family").replace("familys", "families")
    verb = "is" if most == 1 else "are"
    sentence = f"From {min(count):.2f} to {max(count):.2f} there {verb} {many}; the largest one ever holds {share:.0%} of the traces."
    figure = go.Figure(
        layout={"template": template(mode), "height": 240, "margin": {"l": 64, "r": 12, "t": 8, "b": 46}}
    )
    figure.add_vrect(
        x0=threshold - 0.1, x1=min(1.0, threshold + 0.1), fillcolor=rgba(hue["observed"], 0.1), line_width=0
    )
    figure.add_scatter(
        x=sweep["threshold"].to_list(), y=sweep["families"].to_list(), mode="lines+markers",
        line={"color": hue["observed"], "width": 2, "shape": "hv"}, marker={"size": 6, "color": hue["observed"]},
        hovertemplate="threshold %{x:.2f}: %{y} families<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=[threshold], y=[families], mode="markers+text", text=[f"<b>{families:,}</b>"], textposition="top center",
        marker={"size": 13, "color": hue["observed"]}, textfont={"size": 15, "color": hue["ink"]}, hoverinfo="skip",
    )  # fmt: skip
    top = max(count.values())
    figure.update_xaxes(title="Jaccard of word 3-shingles at which two tasks are one family", range=[0.27, 1.03])
    figure.update_yaxes(title="families", range=[0, 1.25 * top], rangemode="tozero", tickformat=",d", nticks=4)
    if top < 4:  # else the axis counts half families, and writes them as whole ones
        figure.update_yaxes(dtick=1)
    _entitle(figure, title, f"Families by threshold · n = {number(len(count))} thresholds · the band is ± 0.10", mode)
    return Finding(title, sentence, figure, sweep)


class _Total(NamedTuple):
    component: str
    basis: str
    cost_nusd: int | None
    """The sum of what is known. None: nothing is known."""
    steps: int
    unknown: int
    """Steps whose cost is unknown; they stand outside the sum."""
    latency_ns: int | None
    """The median step. None: no time is known."""

    @property
    def told(self) -> str:
        if self.cost_nusd is None:
            return f"unknown ({plural(self.unknown, 'step')})"
        known = "$0, free" if self.basis == "free" else money(self.cost_nusd)
        return f"at least {known}; {number(self.unknown)} unknown" if self.unknown else known


def _totals(costs: pl.DataFrame) -> list[_Total]:
    order = {component: n for n, component in enumerate(COMPONENT)}
    parts = costs.partition_by("component", maintain_order=True) if costs.height else []
    return sorted(map(_total, parts), key=lambda total: (order.get(total.component, len(order)), total.component))


def _total(part: pl.DataFrame) -> _Total:
    known = part["cost_nusd"].drop_nulls()
    basis = sorted(set(part["basis"]))
    middle = part["latency_ns"].drop_nulls().sort()
    return _Total(
        component=part["component"][0],
        basis=", ".join(basis),
        cost_nusd=int(known.sum()) if len(known) else None,
        steps=part.height,
        unknown=part.height - len(known),
        latency_ns=int(middle[(len(middle) - 1) // 2]) if len(middle) else None,
    )


def _sum_of(totals: Sequence[_Total]) -> tuple[int, int]:
    """The sum of what is known, and how many costs are unknown."""
    return sum(total.cost_nusd or 0 for total in totals), sum(total.unknown for total in totals)


def _costs_title(totals: Sequence[_Total], steps: int) -> str:
    known, unknown = _sum_of(totals)
    head = f"{plural(steps, 'step')} cost{'s' if steps == 1 else ''}"
    if not totals:
        return "No step was taken: nothing was spent"
    if unknown:
        where = ", ".join(words_of(total.component) for total in totals if total.unknown)
        return f"{head} at least {money(known)}; {plural(unknown, 'cost')} of {where} {_are(unknown)} unknown"
    if not known:
        free = all(total.basis == "free" for total in totals)
        return f"{head} $0: {'every component is free' if free else 'nothing was charged'}"
    most = max(totals, key=lambda total: total.cost_nusd or 0)
    return (
        f"{head} {money(known)}; {words_of(most.component)} took {round(100 * (most.cost_nusd or 0) / known)} % of it"
    )


def _costs_sentence(totals: Sequence[_Total], steps: int) -> str:
    if not totals:
        return "No step was taken, so no component cost anything."
    told = ", ".join(f"{words_of(total.component)} {total.told}" for total in totals)
    known, unknown = _sum_of(totals)
    whole = f"at least {money(known)}, {number(unknown)} unknown" if unknown else money(known)
    return f"Over {plural(steps, 'step')}: {told}; total {whole}."


def _costs_figure(totals: Sequence[_Total], latency: bool, mode: Mode) -> go.Figure:
    hue = PALETTE[mode]
    most = max((total.cost_nusd or 0 for total in totals), default=0) or 1
    figure = go.Figure(layout={"template": template(mode), "barmode": "overlay", "height": 70 + 34 * (len(totals) + 1)})
    names = [*(f"{words_of(total.component)}  " for total in totals), "<b>total</b>  "]
    figure.update_layout(
        margin={"l": 112, "b": 40},
        xaxis={"domain": [0, 0.62 if latency else 1], "range": [0, (3.5 if latency else 2.4) * most], "visible": False},
        yaxis={
            "range": [len(names) - 0.4, -0.6],
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "showgrid": False,
        },
    )
    figure.update_yaxes(tickfont={"size": 13, "color": hue["ink"]})
    for y, total in enumerate(totals):
        _draw_cost(figure, y, total, most, mode)
    known, unknown = _sum_of(totals)
    whole = f"at least {money(known)}; {plural(unknown, 'cost')} unknown" if unknown else money(known)
    _write_at(figure, 0, len(totals), f"<b>{whole}</b>" if totals else "nothing", "x", hue["ink"])
    figure.add_shape(
        type="line",
        xref="paper",
        x0=0,
        x1=1,
        y0=len(totals) - 0.5,
        y1=len(totals) - 0.5,
        line={"color": hue["line"], "width": 1},
    )
    if not totals:
        return figure
    heads = {"x domain": "money, sum of all steps", **({"x2 domain": "time, median step"} if latency else {})}
    for axis, text in heads.items():
        figure.add_annotation(
            xref=axis, x=0, yref="paper", y=0, yshift=-8, xanchor="left", yanchor="top", showarrow=False, text=text,
            font={"size": 12, "color": hue["muted"]},
        )  # fmt: skip
    if latency:
        _draw_times(figure, totals, mode)
    return figure


def _draw_times(figure: go.Figure, totals: Sequence[_Total], mode: Mode) -> None:
    slowest = max(total.latency_ns or 0 for total in totals) or 1
    figure.update_layout(xaxis2={"domain": [0.66, 1], "range": [0, 1.8 * slowest], "visible": False, "anchor": "y"})
    for y, total in enumerate(totals):
        _draw_part(figure, y, total.latency_ns or 0, total.component, mode, axis="x2")
        _write_at(figure, total.latency_ns or 0, y, duration(total.latency_ns), "x2", PALETTE[mode]["ink"])


def _draw_cost(figure: go.Figure, y: int, total: _Total, most: int, mode: Mode) -> None:
    """The known part to scale; then, for what is unknown, a hatched stub of one width."""
    hue = PALETTE[mode]
    end: float = total.cost_nusd or 0
    _draw_part(figure, y, end, total.component, mode)
    if total.unknown:
        stub = 0.3 * most
        figure.add_bar(
            orientation="h", x=[stub], base=[end], y=[y], width=[0.5], marker=_fill("unknown", mode), hoverinfo="skip"
        )
        end = end + stub
    _write_at(figure, end, y, total.told, "x", hue["ink"])


def _draw_part(figure: go.Figure, y: int, value: float, component: str, mode: Mode, axis: str = "x") -> None:
    if not value:
        return
    colour = PALETTE[mode][COMPONENT.get(component, "unknown")]
    marker: dict[str, Any] = {"color": colour, "line": {"color": colour, "width": 1}}
    if component == "orchestration":
        dots = {"shape": ".", "size": 5, "solidity": 0.35, "fgcolor": colour, "bgcolor": "rgba(0,0,0,0)"}
        marker |= {"color": "rgba(0,0,0,0)", "pattern": dots}
    figure.add_bar(orientation="h", x=[value], y=[y], width=[0.5], marker=marker, xaxis=axis, hoverinfo="skip")


def _write_at(figure: go.Figure, x: float, y: float, text: str, axis: str, colour: str) -> None:
    figure.add_annotation(
        xref=axis, x=x, y=y, xshift=6, xanchor="left", showarrow=False, text=text, font={"size": 13, "color": colour}
    )


def _entitle(figure: go.Figure, title: str, kicker: str, mode: Mode) -> None:
    """Title and kicker above what is drawn. They are annotations: plotly clips the first line of a title of two."""
    hue, margin = PALETTE[mode], figure.layout.margin
    lines = wrap(title, _TITLE_WIDTH, break_on_hyphens=False)
    top = 10 + 21 * len(lines) + 44
    texts = (
        ("title", top - 8, f"<b>{'<br>'.join(map(_text, lines))}</b>", 16, hue["ink"]),
        ("kicker", top - 14 - 21 * len(lines), _text(kicker), 12, hue["muted"]),
    )
    for name, above, text, points, colour in texts:
        figure.add_annotation(
            name=name,
            xref="paper",
            yref="paper",
            x=0,
            y=1,
            xshift=8 - (margin.l or 8),
            yshift=above,
            xanchor="left",
            yanchor="top",
            align="left",
            text=text,
            showarrow=False,
            borderpad=0,
            font={"size": points, "color": colour},
        )
    figure.update_layout(
        margin={"t": top, "b": margin.b or 36, "r": 12}, height=figure.layout.height + top, meta={"title": title}
    )


_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def _text(text: str, limit: int | None = None) -> str:
    """Foreign text for a label: one line, no secret, no markup, and no dollar sign, which plotly takes for a formula."""
    line = _BLANK.sub(" ", masked(text)).strip()
    if limit is not None and len(line) > limit:
        line = line[:limit] + "…"
    return html.escape(line, quote=False).replace("$", "&#36;")
