"""The figures of the leakage microscope: the ladder and the wall of all steps, and the lanes of one.

- A title is the finding at the boundary, computed from the ladder: what falls, what does not clearly change, what cannot be
  told from a random call of the same tool, and, where a guard refuses an interval, both means with its reason.
- The arrow `owed to leakage` is drawn only when the paired interval lies above 0.
- What is left out stays in its place, hollow and hatched. Red is a related run, blue another task; a diamond has the
  observation that really followed, a circle another one. A step without a candidate is a crossed square, never a blank.
- Axes and lanes depend on the table or the step alone, so that nothing moves while the boundary does.

Not covered: the tables (`claims.fidelity`) and the search (`specimens`).
"""

import html
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import polars as pl

from experiential_lab.evidence.secrets import masked
from experiential_lab.metrics import ONE
from experiential_lab.records import IntegrityError
from experiential_lab.retrieval.views import BOUNDARIES, Boundary
from experiential_lab.show.plots import Finding
from experiential_lab.show.specimens import Dot, Look, Specimen
from experiential_lab.show.theme import BOUNDARIES as STOPS
from experiential_lab.show.theme import PALETTE, Mode, number, plural, rgba, template

METRICS = {"exact": "exact match", "token_f1": "token F1"}
LANES = ("own trace", "conversation", "family", "identical call", "other tasks")
"""How relations are shown, from the second on; the first is the step itself."""

_LANE = 60  # dots of one lane
_FELL = {"exact": 0, "token_f1": 100_000}  # millionths by which a score must fall to count as lost
_RIGHT = 999_000
_WALL = (480, 132)  # pixels that the wall fills at most
_HOVER = 90


def headline(ladder: pl.DataFrame, level: Boundary, metric: str) -> str:
    """The finding at one boundary.

    Raises:
        IntegrityError: the ladder has no such rung.
    """
    rungs = {row["boundary"]: row for row in ladder.filter(metric=metric).iter_rows(named=True)}
    if level not in rungs:
        raise IntegrityError(f"the ladder has the boundaries {sorted(rungs)} for {metric}, {level} is asked for")
    here, first = rungs[level], rungs[BOUNDARIES[0]]
    left_out, name, mean, was = STOPS[level].left_out, METRICS[metric], _two(here["mean"]), _two(first["mean"])
    if here["no_candidate"] == here["n"]:
        return f"Leave out {left_out} and nothing is left to copy: no step has a candidate, each counts as score 0"
    floor = ": not distinguishable from a random call of the same tool" if _at_floor(here) else ""
    if level == BOUNDARIES[0]:
        return f"With {left_out} left out, copying the nearest transition scores {mean} {name}{floor}"
    if here["diff_low"] is None:
        if here["diff"] == 0:
            return f"Leaving out {left_out} changes nothing on these {_steps(here)}: {name} {mean}{floor}"
        return f"Leave out {left_out}, and {name} is {mean} instead of {was}, without an interval ({here['diff_reason']}){floor}"
    if here["diff_low"] <= 0 <= here["diff_high"]:
        return f"Leaving out {left_out} makes no clear difference: {name} {was} and {mean}{floor}"
    verb = "falls" if here["diff"] > 0 else "rises"
    return f"Leave out {left_out}, and {name} {verb} from {was} to {mean}{floor}"


def _at_floor(rung: Mapping[str, Any]) -> bool:
    return rung["above_low"] is not None and rung["above_low"] <= 0 <= rung["above_high"]


def _steps(rung: Mapping[str, Any]) -> str:
    return plural(rung["n"], "step")


def _two(millionths: int | None) -> str:
    """Two decimals; what is unknown says so."""
    return "unknown" if millionths is None else f"{millionths / ONE:.2f}".replace("-", "\N{MINUS SIGN}")


def basis(ladder: pl.DataFrame, level: Boundary, metric: str) -> str:
    """What the ladder's marks are over, and why there is no interval where there is none."""
    row = ladder.filter(metric=metric, boundary=level).row(0, named=True)
    over = f"mean over {number(row['families'])} famil{'y' if row['families'] == 1 else 'ies'}"
    kind = "95 % interval by family t" if row["low"] is not None else f"no interval: {row['reason']}"
    none = f" · {number(row['no_candidate'])} without a candidate, counted as 0" if row["no_candidate"] else ""
    return f"{over}, {kind} · copy-nearest reads hit 1{none}"


def plot_ladder(ladder: pl.DataFrame, level: Boundary, metric: str, *, mode: Mode = "light") -> Finding:
    """Mean and interval at every boundary, the floor, and what is owed to leakage at the chosen one."""
    title, hue, table = headline(ladder, level, metric), PALETTE[mode], ladder.filter(metric=metric)
    rows, at = table.rows(named=True), BOUNDARIES.index(level)
    top = max((row["high"] or row["mean"] for row in rows), default=0) / ONE
    reach = min(1.12, max(0.5, 1.28 * top))
    figure = go.Figure(
        layout={
            "template": template(mode),
            "height": 270,
            "margin": {"l": 34, "r": 14, "t": 8, "b": 46},
            "meta": {"title": title},
        }
    )
    means = [row["mean"] / ONE for row in rows]
    line = {"color": rgba(hue["observed"], 0.35), "width": 1.5}
    figure.add_scatter(x=list(range(len(rows))), y=means, mode="lines", line=line, hoverinfo="skip")
    for n, row in enumerate(rows):
        _draw_rung(figure, n, row, mode, here=n == at)
    _draw_floor(figure, rows[at]["floor"] / ONE, means, reach, mode)
    if at and rows[at]["diff_low"] is not None and rows[at]["diff_low"] > 0:
        _draw_owed(figure, rows, at, mode)
    names = [stop.name.replace(" ", "<br>") for stop in STOPS.values()]
    figure.update_xaxes(
        range=[-0.35, 4.65],
        tickvals=list(range(len(rows))),
        ticktext=[f"<b>{name}</b>" if n == at else name for n, name in enumerate(names)],
        tickfont={"size": 12, "color": hue["ink"]},
    )
    figure.update_yaxes(range=[0, reach], tickformat=".1f", nticks=5)
    return Finding(title, _ladder_sentence(rows, metric, level), figure, table)


def _draw_rung(figure: go.Figure, n: int, row: Mapping[str, Any], mode: Mode, *, here: bool) -> None:
    hue = PALETTE[mode]
    colour = hue["observed"] if here else rgba(hue["observed"], 0.5)
    mean = row["mean"] / ONE
    if row["low"] is not None:
        ends = [row["low"] / ONE, row["high"] / ONE]
        figure.add_scatter(
            x=[n, n], y=ends, mode="lines", line={"color": colour, "width": 5 if here else 3}, hoverinfo="skip"
        )
    interval = (
        f"[{_two(row['low'])}, {_two(row['high'])}]" if row["low"] is not None else f"no interval: {row['reason']}"
    )
    figure.add_scatter(
        x=[n],
        y=[mean],
        mode="markers+text",
        text=[f"<b>{mean:.2f}</b>" if here else f"{mean:.2f}"],
        textposition="top right",
        textfont={"size": 17 if here else 13, "color": hue["ink"] if here else hue["muted"]},
        marker={
            "size": 13 if here else 9,
            "color": hue["observed"] if here else hue["surface"],
            "line": {"width": 2, "color": colour},
        },
        customdata=[[f"{mean:.2f} {interval}<br>{_steps(row)}, each one vote: {_two(row['by_row'])}"]],
        hovertemplate="%{customdata[0]}<extra></extra>",
        cliponaxis=False,
    )


def _draw_floor(figure: go.Figure, floor: float, means: Sequence[float], reach: float, mode: Mode) -> None:
    """A line, and its name where no mean of the first boundaries stands in the way."""
    hue, crowded = PALETTE[mode], any(abs(mean - floor) < 0.14 * reach for mean in means[:3])
    figure.add_shape(
        type="line", x0=-0.3, x1=4.6, y0=floor, y1=floor, line={"color": hue["unknown"], "width": 1.5, "dash": "dot"}
    )
    figure.add_annotation(
        x=4.6 if crowded else -0.3,
        y=reach if crowded else floor,
        text=f"{'┄ ' if crowded else ''}random call of the same tool {floor:.2f}",
        showarrow=False,
        xanchor="right" if crowded else "left",
        yanchor="bottom" if floor < 0.14 * reach and not crowded else "top",
        font={"size": 12, "color": hue["muted"]},
    )


def _draw_owed(figure: go.Figure, rows: Sequence[Mapping[str, Any]], at: int, mode: Mode) -> None:
    hue, row, was = PALETTE[mode], rows[at], rows[0]["mean"] / ONE
    x = at - 0.24
    figure.add_annotation(
        x=x,
        y=row["mean"] / ONE,
        ax=x,
        ay=was,
        axref="x",
        ayref="y",
        showarrow=True,
        arrowhead=2,
        arrowwidth=2,
        arrowcolor=hue["leak"],
        text="",
    )
    line = {"color": hue["leak"], "width": 1, "dash": "dot"}
    figure.add_shape(type="line", x0=0, x1=x, y0=was, y1=was, line=line)
    side = "right" if at > 2 else "left"
    figure.add_annotation(
        x=x,
        y=was,
        text=f"<b>\N{MINUS SIGN}{_two(row['diff'])}</b> owed to leakage<br>[{_two(row['diff_low'])}, {_two(row['diff_high'])}]",
        showarrow=False,
        xanchor=side,
        align=side,
        yanchor="bottom",
        font={"size": 12.5, "color": hue["leak"]},
    )


def _ladder_sentence(rows: Sequence[Mapping[str, Any]], metric: str, level: Boundary) -> str:
    told = ", ".join(f"{_two(row['mean'])} with {STOPS[row['boundary']].left_out} left out" for row in rows)
    here = rows[BOUNDARIES.index(level)]
    ends = f", interval {_two(here['low'])} to {_two(here['high'])}" if here["low"] is not None else ""
    return (
        f"{METRICS[metric].capitalize()} over {_steps(here)}: {told}; at the chosen boundary {_two(here['mean'])}{ends}; "
        f"a random call of the same tool scores {_two(here['floor'])}."
    )


class Wall(NamedTuple):
    """All steps as squares."""

    finding: Finding
    order: tuple[str, ...]
    """The step of each square, row by row."""
    columns: int

    def step_at(self, points: Sequence[Mapping[str, Any]]) -> str | None:
        """The step of the first square that was clicked; None: none was."""
        for point in points:
            n = int(point["y"] * self.rows) * self.columns + int(point["x"] * self.columns)
            if 0 <= n < len(self.order):
                return self.order[n]
        return None

    @property
    def rows(self) -> int:
        return -(-len(self.order) // self.columns)


def plot_wall(steps: pl.DataFrame, level: Boundary, metric: str, chosen: str, *, mode: Mode = "light") -> Wall:
    """One square a step, sorted by the boundary at which it falls, so that what is right shrinks from one side.

    A frame is around `chosen`, where that is among the steps.
    """
    ids = steps["step_id"].to_list()[:: len(BOUNDARIES)]
    scores = steps[metric].to_numpy().reshape(-1, len(BOUNDARIES))  # (n, 5)
    fell = scores[:, :1] - scores > _FELL[metric]
    first = np.where(fell.any(1), fell.argmax(1), len(BOUNDARIES))
    kind = np.where(first < 5, 5 - first, np.where(scores[:, 0] >= _RIGHT, 0, 9))
    order = np.lexsort((np.arange(len(ids)), -scores[:, -1], -scores[:, 0], kind))
    at = BOUNDARIES.index(level)
    none = steps["top_entry_id"].is_null().to_numpy().reshape(-1, len(BOUNDARIES))[order, at]
    table = pl.DataFrame(
        {
            "step_id": [ids[n] for n in order],
            "number": [int(n) + 1 for n in order],
            "score": scores[order, at],
            "state": _states(scores[order, at], fell[order, at], none),
        }
    )
    columns = _columns(len(ids))
    figure = _wall_figure(table, columns, metric, mode)
    if chosen in ids:
        place = _places([table["step_id"].to_list().index(chosen)], columns, -(-table.height // columns))
        _mark_square(figure, place, _WALL[0] / columns, mode)
    counts = dict(table["state"].value_counts().iter_rows())
    title = f"{number(counts.get('right', 0))} right now, {number(counts.get('lost', 0))} lost to the boundary"
    rest = ", ".join(f"{number(counts.get(state, 0))} {words}" for state, words in STATES.items())
    return Wall(
        Finding(title, f"Of {plural(len(ids), 'step')}: {rest}.", figure, table), tuple(table["step_id"]), columns
    )


STATES = {
    "right": "right now",
    "lost": "lost to the boundary",
    "wrong": "wrong anyway",
    "none": "without a candidate",
}


def _states(now: Any, fell: Any, none: Any) -> list[str]:
    pairs = zip(now.tolist(), fell.tolist(), none.tolist(), strict=True)
    return [
        "none" if gone else "right" if score >= _RIGHT else "lost" if lost else "wrong" for score, lost, gone in pairs
    ]


def _columns(count: int) -> int:
    """Squares of a row, so that all fit and none is wider than 20 pixels."""
    width, height = _WALL
    side = min(20.0, (width * height / max(1, count)) ** 0.5)
    while -(-count // int(width / side)) * side > height:
        side *= 0.98
    return int(width / side)


def _wall_figure(table: pl.DataFrame, columns: int, metric: str, mode: Mode) -> go.Figure:
    side, rows = _WALL[0] / columns, -(-table.height // columns)
    figure = go.Figure(
        layout={
            "template": template(mode),
            "height": round(side * (rows + 0.6)),
            "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
            "dragmode": "select",
            "clickmode": "event+select",
        }
    )
    kinds: dict[tuple[str, int], list[int]] = {}  # (state, tenths of a score that shade it) -> squares
    for n, (state, score) in enumerate(table.select("state", "score").iter_rows()):
        shade = score * 10 // ONE if state == "wrong" and metric == "token_f1" else 0
        kinds.setdefault((state, shade), []).append(n)
    numbers = table["number"].to_list()
    for (state, shade), squares in kinds.items():
        full = {"marker": {"opacity": 1}}
        figure.add_scatter(
            **_places(squares, columns, rows),
            mode="markers",
            marker=_square(state, shade, mode) | {"size": 0.84 * side},
            customdata=[[f"step {numbers[n]}: {STATES[state]}"] for n in squares],
            hovertemplate="%{customdata[0]}<extra></extra>",
            selected=full,
            unselected=full,
        )
    figure.update_xaxes(visible=False, range=[-0.012, 1.012])
    figure.update_yaxes(visible=False, range=[1.06, -0.06])
    return figure


def _places(squares: Sequence[int], columns: int, rows: int) -> dict[str, list[float]]:
    """Middles of squares; both axes go from 0 to 1, whatever the number of squares."""
    return {
        "x": [round((n % columns + 0.5) / columns, 5) for n in squares],
        "y": [round((n // columns + 0.5) / rows, 5) for n in squares],
    }


def _square(state: str, shade: int, mode: Mode) -> dict[str, Any]:
    hue = PALETTE[mode]
    fill, line = {
        "right": (hue["observed"], hue["observed"]),
        "lost": (rgba(hue["leak"], 0.18), hue["leak"]),
        "none": (hue["unknown"], hue["unknown"]),
        "wrong": (rgba(hue["unknown"], 0.18 + 0.05 * shade), rgba(hue["unknown"], 0.0)),
    }[state]
    return {
        "symbol": "square-x-open" if state == "none" else "square",
        "color": fill,
        "line": {"width": 1, "color": line},
    }


def _mark_square(figure: go.Figure, place: Mapping[str, Sequence[float]], side: float, mode: Mode) -> None:
    marker = {
        "symbol": "square-open",
        "size": 0.84 * side + 7,
        "color": PALETTE[mode]["ink"],
        "line": {"width": 2.5},
    }
    figure.add_scatter(**place, mode="markers", marker=marker, hoverinfo="skip")


def plot_lanes(seen: Look, *, mode: Mode = "light") -> Finding:
    """Who is near the step, by how the run is related, and who may be asked."""
    specimen, hue, level = seen.specimen, PALETTE[mode], BOUNDARIES.index(seen.level)
    ranks = {hit.position: hit.rank for hit in seen.hits or ()}
    lanes = [[dot for dot in specimen.dots if dot.lane == lane] for lane in range(1, 6)]
    edge, middle = _heights(specimen, lanes)
    figure = go.Figure(
        layout={"template": template(mode), "height": 340, "margin": {"l": 104, "r": 28, "t": 4, "b": 42}}
    )
    if level:
        figure.add_scatter(
            x=[-0.01, 1.04, 1.04, -0.01],
            y=[0, 0, edge[level], edge[level]],
            fill="toself",
            mode="none",
            hoverinfo="skip",
            fillpattern={
                "shape": "/",
                "size": 9,
                "solidity": 0.1,
                "fgcolor": rgba(hue["leak"], 0.3),
                "bgcolor": rgba(hue["leak"], 0.02),
            },
        )
    for lane, dots in enumerate(lanes, 1):
        half = (edge[lane] - edge[lane - 1]) * 0.4
        _draw_dots(
            figure, [dot for dot in dots[:_LANE] if dot.position not in ranks], middle[lane - 1], half, level, mode
        )
        _draw_hits(figure, [dot for dot in dots if dot.position in ranks], ranks, middle[lane - 1], half, mode)
        if not dots:
            _note(figure, middle[lane - 1], "none in this corpus", hue["muted"])
    _draw_edge(figure, edge, level, mode)
    _name_lanes(figure, lanes, middle, level, mode)
    title = f"{plural(len(ranks), 'hit')}, {number(sum(specimen.counts[: level + 1]))} left out"
    return Finding(title, seen.sentence, figure, _dots_frame(lanes, ranks, level))


def _heights(specimen: Specimen, lanes: Sequence[Sequence[Dot]]) -> tuple[list[float], list[float]]:
    """Edges and middles of the lanes; they depend on the step alone, so that nothing jumps while the boundary moves."""
    edge = [0.0]
    for dots in lanes:
        held = any(dot.position in specimen.ever for dot in dots)
        edge.append(round(edge[-1] + (0.6 if not dots else 1.8 if held else 1.0), 3))
    return edge, [(low + high) / 2 for low, high in pairwise(edge)]


def _draw_dots(figure: go.Figure, dots: Sequence[Dot], middle: float, half: float, level: int, mode: Mode) -> None:
    hue = PALETTE[mode]
    for same in (False, True):
        here = [dot for dot in dots if dot.same == same]
        if not here:
            continue
        out = here[0].lane <= level
        base = hue["leak"] if same and here[0].related else hue["observed"]
        colour = base if same or not out else hue["unknown"]
        spread = [(n * 7 % 11) / 5 - 1 if len(here) > 1 else 0.0 for n in range(len(here))]
        figure.add_scatter(
            x=[round(dot.share, 4) for dot in here],
            y=[round(middle + half * 0.92 * each, 4) for each in spread],
            mode="markers",
            marker={
                "symbol": ("diamond" if same else "circle") + ("-open" if out else ""),
                "size": 10 if same else 7,
                "color": colour,
                "opacity": 1 if out or same else 0.45,
                "line": {"width": 1.3 if out else 0, "color": colour},
            },
            customdata=[[_hover(dot)] for dot in here],
            hovertemplate="%{customdata[0]}<extra></extra>",
        )


def _draw_hits(
    figure: go.Figure, dots: Sequence[Dot], ranks: Mapping[int, int], middle: float, half: float, mode: Mode
) -> None:
    hue = PALETTE[mode]
    step = min(0.4, 2.1 * half / max(1, len(dots) - 1))
    for n, dot in enumerate(sorted(dots, key=lambda dot: ranks[dot.position])):
        figure.add_scatter(
            x=[round(dot.share, 4)],
            y=[round(middle + (n - (len(dots) - 1) / 2) * step, 4)],
            mode="markers+text",
            text=[f"<b>{ranks[dot.position]}</b>"],
            textfont={"size": 10.5, "color": hue["surface"]},
            textposition="middle center",
            marker={
                "symbol": "diamond" if dot.same else "circle",
                "size": 18 if dot.same else 15,
                "color": hue["leak"] if dot.same and dot.related else hue["observed"],
                "line": {"width": 1.5, "color": hue["surface"]},
            },
            customdata=[[_hover(dot)]],
            hovertemplate="%{customdata[0]}<extra></extra>",
            cliponaxis=False,
        )


def _draw_edge(figure: go.Figure, edge: Sequence[float], level: int, mode: Mode) -> None:
    hue, bottom = PALETTE[mode], edge[level]
    figure.add_shape(
        type="line", xref="paper", x0=-0.16, x1=1, y0=bottom, y1=bottom, line={"color": hue["leak"], "width": 2.5}
    )
    for low, high, text, colour in (
        (0.0, bottom, "left out" if bottom > 1.5 else "out", hue["leak"]),
        (bottom, edge[-1], "eligible", hue["observed"]),
    ):
        if high > low:
            figure.add_annotation(
                xref="paper", x=1, xshift=14, y=(low + high) / 2, text=text, showarrow=False, textangle=90,
                xanchor="center", yanchor="middle", font={"size": 12, "color": colour},
            )  # fmt: skip
    figure.update_yaxes(range=[edge[-1] + 0.08, -0.08])
    figure.update_xaxes(
        range=[-0.01, 1.045],
        tickvals=[0, 0.25, 0.5, 0.75, 1],
        title={"text": "score, as a share of the best when nothing is left out"},
    )


def _name_lanes(
    figure: go.Figure, lanes: Sequence[Sequence[Dot]], middle: Sequence[float], level: int, mode: Mode
) -> None:
    """The name of each lane, and how many of its dots are drawn where that is not all."""
    hue = PALETTE[mode]
    names = []
    for n, (name, dots) in enumerate(zip(LANES, lanes, strict=True)):
        part = f"{_LANE} best of {number(len(dots))}"
        more = f"<br><span style='font-size:10.5px;color:{hue['muted']}'>{part}</span>  " if len(dots) > _LANE else ""
        names.append(f"<span style='color:{hue['muted' if n < level else 'ink']}'>{name}</span>  {more}")
    figure.update_yaxes(tickvals=list(middle), ticktext=names, showgrid=False, tickfont={"size": 13})


def _note(figure: go.Figure, y: float, text: str, colour: str) -> None:
    figure.add_annotation(x=0.02, y=y, text=text, showarrow=False, xanchor="left", font={"size": 12, "color": colour})


def _hover(dot: Dot) -> str:
    action = " ".join(masked(dict(dot.entry.key).get("action", "")).split())
    text = html.escape(action[:_HOVER] + ("…" if len(action) > _HOVER else ""), quote=False).replace("$", "&#36;")
    return f"{text}<br>score {dot.share:.2f} of the best"


DOTS = {
    "lane": pl.String,
    "entry_id": pl.String,
    "share_dec": pl.String,
    "rank": pl.Int64,
    "eligible": pl.Boolean,
    "same_observation": pl.Boolean,
}


def _dots_frame(lanes: Sequence[Sequence[Dot]], ranks: Mapping[int, int], level: int) -> pl.DataFrame:
    rows = [
        (
            LANES[dot.lane - 1],
            dot.entry.entry_id,
            f"{dot.share:.4f}",
            ranks.get(dot.position),
            dot.lane > level,
            dot.same,
        )
        for dots in lanes
        for dot in dots
    ]
    return pl.DataFrame(rows, schema=DOTS, orient="row")
