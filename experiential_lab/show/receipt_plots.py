"""The cost of a receipt against the number of visible entries: a line that stays flat beside one that grows.

- The title says what the tables show: that the bytes stay, or by how much they grow; and nothing about time when no time was
  measured.
- Both axes are logarithmic, so a straight line up is growth in proportion. A cold join, which reads the stored
  inventory again, is drawn beside the flat line, never left out: it grows, and is due once a snapshot.
- Equal tables give equal figures.

Not covered: measuring. Bytes and CPU come in as tables, and CPU was measured elsewhere, on one machine.
"""

import math
from collections.abc import Sequence
from textwrap import wrap
from typing import Any, NamedTuple

import plotly.graph_objects as go
import polars as pl

from experiential_lab.show.plots import Finding
from experiential_lab.show.theme import PALETTE, Mode, duration, number, size, template

COST = {"visible": pl.Int64, "form": pl.String, "bytes": pl.Int64, "cpu_ns": pl.Int64, "rounds": pl.Int64}
WORK = {"reference": "create", "embedded": "embedded"}
"""Which measured work makes the receipt of a form."""
STAYS = 1.02  # a receipt that grows by less is called flat

_BYTE_TICKS = [1 << power for power in (10, 15, 20, 25)]
_TIME_TICKS = [10**power for power in (4, 6, 8, 10)]
_PLACES = ("reference", "embedded", "durable verification")
_TITLE_WIDTH = 62  # characters of a title line that fit the narrowest page


class _Style(NamedTuple):
    hue: str
    dash: str
    symbol: str
    name: str


_STYLES = {
    "reference": _Style("observed", "solid", "circle", "refers to it"),
    "embedded": _Style("unknown", "dash", "square", "embeds it"),
    "durable verification": _Style("measured", "dot", "diamond-open", "cold join"),
}


def cost_frame(sizes: pl.DataFrame, cpu: pl.DataFrame) -> pl.DataFrame:
    """One row a form and size, in that order; CPU is null where none was measured. The durable verification has no bytes."""
    measured = cpu.select("visible", "work", "cpu_ns", "rounds").iter_rows()
    spent = {(visible, work): (cpu_ns, rounds) for visible, work, cpu_ns, rounds in measured}
    rows: list[tuple[int, str, int | None, int | None, int | None]] = [
        (visible, form, count, *spent.get((visible, WORK[form]), (None, None)))
        for visible, form, count in sizes.select("visible", "form", "bytes").iter_rows()
    ]
    rows += [(visible, "durable verification", None, *at) for (visible, work), at in spent.items() if work == "durable"]
    rows.sort(key=lambda row: (_PLACES.index(row[1]), row[0]))
    return pl.DataFrame(rows, schema=COST, orient="row")


def plot_receipts(costs: pl.DataFrame, *, mode: Mode = "light") -> Finding:
    """Bytes and CPU of one receipt in both forms: a `cost_frame`."""
    forms = {form: costs.filter(pl.col("form") == form) for form in _PLACES}
    visible = sorted(set(costs["visible"].to_list()))
    figure = go.Figure(
        layout={"template": template(mode), "height": 300, "margin": {"l": 64, "r": 12, "t": 8, "b": 52}}
    )
    for column, name, written in (("bytes", "bytes of one receipt", size), ("cpu_ns", "CPU of one receipt", duration)):
        axis = "" if column == "bytes" else "2"
        _axes(figure, axis, name, visible, costs[column].drop_nulls().to_list())
        for form, rows in forms.items():
            known = rows.drop_nulls(column)
            _line(figure, axis, _STYLES[form], (known["visible"].to_list(), known[column].to_list()), written, mode)
    title, sentence = _title(forms["reference"], forms["embedded"]), _sentence(forms)
    rounds = sorted(set(costs["rounds"].drop_nulls().to_list()))
    told = f"median of {' or '.join(map(number, rounds))} rounds, one thread" if rounds else "not measured"
    _entitle(figure, title, f"Receipts of 10 results · n = {number(len(visible))} sizes · CPU: {told}", mode)
    return Finding(title, sentence, figure, costs)


def _title(reference: pl.DataFrame, embedded: pl.DataFrame) -> str:
    first, last = reference["bytes"][0], reference["bytes"][-1]
    whole = size(embedded["bytes"][-1])
    if last <= STAYS * first:
        reach = f"from {number(reference['visible'][0])} to {number(reference['visible'][-1])} visible entries"
        return (
            f"A receipt that refers to its snapshot stays at {size(last)} {reach}; one that embeds it grows to {whole}"
        )
    grown = f"grows from {size(first)} to {size(last)}"
    return f"✗ A receipt that refers to its snapshot {grown}; one that embeds it, to {whole}"


def _sentence(forms: dict[str, pl.DataFrame]) -> str:
    reference, embedded, durable = (forms[form] for form in _PLACES)
    at = f"At {number(reference['visible'][-1])} visible entries"
    parts = [f"{at} the embedded receipt is {number(embedded['bytes'][-1] // reference['bytes'][-1])} times as long"]
    one, other = reference["cpu_ns"][-1], embedded["cpu_ns"][-1]
    if one and other:
        parts.append(f"and takes {number(other // one)} times the CPU ({duration(other)} against {duration(one)})")
    said = " ".join(parts)
    if durable.height:
        said += f"; a cold join, which reads the stored inventory again, takes {duration(durable['cpu_ns'][-1])}, once a snapshot"
    return said + "."


def _axes(figure: go.Figure, axis: str, name: str, visible: Sequence[int], values: Sequence[int]) -> None:
    """Room for the labels on every side of the data; ticks far apart, in the units of the labels."""
    low, high = (math.log10(end) for end in (min(values, default=1), max(values, default=10)))
    ticks, words = (_BYTE_TICKS, size) if axis == "" else (_TIME_TICKS, duration)
    sides = {"": ([0, 0.43], "x", "y"), "2": ([0.57, 1], "x2", "y2")}[axis]
    figure.update_layout(
        {
            f"xaxis{axis}": {
                "type": "log", "domain": sides[0], "anchor": sides[2], "title": {"text": "visible entries"},
                "tickvals": list(visible), "ticktext": [number(each) for each in visible],
                "range": [math.log10(visible[0]) - 0.5, math.log10(visible[-1]) + 2.4],
            },
            f"yaxis{axis}": {
                "type": "log", "anchor": sides[1], "showgrid": True, "title": {"text": name},
                "tickvals": ticks, "ticktext": list(map(words, ticks)), "range": [low - 0.6, high + 0.5],
            },
        }
    )  # fmt: skip


def _line(
    figure: go.Figure,
    axis: str,
    style: _Style,
    points: tuple[list[int], list[int]],
    written: Any,
    mode: Mode,
) -> None:
    """One form: a line with its name and its last value at its end."""
    x, y = points
    if not y:
        return
    colour = PALETTE[mode][style.hue]
    figure.add_scatter(
        x=x, y=y, mode="lines+markers", xaxis=f"x{axis}", yaxis=f"y{axis}", name=style.name,
        line={"color": colour, "width": 2, "dash": style.dash},
        marker={"size": 8, "color": colour, "symbol": style.symbol},
        text=[written(value) for value in y], hovertemplate=f"%{{x:,}} visible: %{{text}}<extra>{style.name}</extra>",
    )  # fmt: skip
    figure.add_annotation(
        xref=f"x{axis}", yref=f"y{axis}", x=math.log10(x[-1]), y=math.log10(y[-1]), xanchor="left", yanchor="middle",
        xshift=8, showarrow=False, align="left", text=f"{style.name}<br><b>{written(y[-1])}</b>",
        font={"size": 12, "color": PALETTE[mode]["ink"]},
    )  # fmt: skip


def _entitle(figure: go.Figure, title: str, kicker: str, mode: Mode) -> None:
    """Kicker and title above what is drawn, as annotations: plotly clips the first line of a title of two."""
    hue, lines = PALETTE[mode], wrap(title, _TITLE_WIDTH, break_on_hyphens=False)
    top = 10 + 21 * len(lines) + 44
    for name, above, text, points, colour in (
        ("title", top - 8, f"<b>{'<br>'.join(lines)}</b>", 16, hue["ink"]),
        ("kicker", top - 14 - 21 * len(lines), kicker, 12, hue["muted"]),
    ):
        figure.add_annotation(
            name=name, xref="paper", yref="paper", x=0, y=1, xshift=8 - figure.layout.margin.l, yshift=above,
            xanchor="left", yanchor="top", align="left", text=text, showarrow=False, borderpad=0,
            font={"size": points, "color": colour},
        )  # fmt: skip
    figure.update_layout(margin={"t": top}, height=figure.layout.height + top, meta={"title": title})
