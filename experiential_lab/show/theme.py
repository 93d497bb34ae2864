"""One palette, one plotly template, one style sheet, and the words and spellings that every picture shares.

- A hue says where a value comes from, in every view: observed (it happened; retrieval of it), predicted (a world model),
  judged (a judge), measured (a study), candidate (the behaviour under evaluation), leak (owed to leakage, or refused),
  unknown (orchestration, unknown, nothing happened). No state is told by its hue alone: it has a glyph, a hatch or a word.
- Text has a contrast of 4.5 or more on page and panel, marks 3 or more, in both modes. Two hues that share a figure stay
  9.4 or more apart (OKLab x 100), also for eyes without one kind of cone.
- Numbers are spelled in one way: thousands by comma, the minus sign of print, money in the largest unit that keeps three
  digits, and `unknown` as a word.

Not covered: what is drawn. Figures are in `plots`, tables and panels in `widgets`.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import plotly.graph_objects as go

Mode = Literal["light", "dark"]

PALETTE: dict[Mode, dict[str, str]] = {
    "light": {
        "surface": "#FFFFFF",
        "card": "#F6F7F9",
        "line": "#D5DAE1",
        "faint": "#E9ECF0",
        "ink": "#16202B",
        "muted": "#556170",
        "observed": "#2263BE",
        "predicted": "#BC840B",
        "judged": "#8F4881",
        "measured": "#0C4A30",
        "candidate": "#142E43",
        "leak": "#C8404A",
        "unknown": "#7A828C",
    },
    "dark": {
        "surface": "#181C1A",
        "card": "#212724",
        "line": "#3B443F",
        "faint": "#2B322E",
        "ink": "#EDF1EE",
        "muted": "#A9B4AE",
        "observed": "#74BCFF",
        "predicted": "#EBA42C",
        "judged": "#BB6BDD",
        "measured": "#7DEBC8",
        "candidate": "#D3E4EF",
        "leak": "#F4605C",
        "unknown": "#8A93A0",
    },
}
HUES = ("observed", "predicted", "judged", "measured", "candidate", "leak", "unknown")
GROUNDS = ("surface", "card")
TEXT = ("ink", "muted")
SHARED = (
    ("candidate", "predicted", "observed", "judged", "unknown"),
    ("observed", "predicted", "judged", "measured", "leak", "unknown"),
)
"""Hues that stand together in one figure: components; rungs and verdicts."""
COMPONENT = {
    "candidate": "candidate",
    "world_model": "predicted",
    "retrieval": "observed",
    "judge": "judged",
    "orchestration": "unknown",
}
"""The hue of each component of a cost, in the order in which they are shown."""
RUNGS = ("observed", "predicted", "judged", "measured")
PAIRING_RAMP = {
    "explicit_id": 1.0,
    "explicit_id_scoped": 0.62,
    "structural": 0.42,
    "name_order": 0.26,
    "order_only": 0.14,
}
"""How much of `observed` a pairing is filled with, the strongest first. A user's reply has the outline and no fill."""
SUPPORT = {
    "tool": {"A": "same call", "B": "same tool, same argument names", "C": "same tool", "D": "no precedent"},
    "message": {"A": "same text", "B": "similar words", "C": "a message, other words", "D": "no precedent"},
}


class Stop(NamedTuple):
    """One boundary as it is shown."""

    name: str
    """What is drawn."""
    means: str
    left_out: str
    """What it leaves out, as it stands in a sentence after `leave out`."""


BOUNDARIES = {
    "self": Stop("itself", "only the step itself", "only the step itself"),
    "trace": Stop("own trace", "this recorded run", "its own trace"),
    "lineage": Stop("conversation", "forks, resumptions, trials", "its whole conversation"),
    "family": Stop("family", "near-duplicate tasks", "its family"),
    "key": Stop("identical call", "same tool, same arguments", "its family and identical calls"),
}
"""In order: each leaves out all that the one before leaves out."""

FONT = '"PT Sans", "Source Sans 3", "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif'
MONO = '"Fira Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace'

PLOTLY_CONFIG = {"displayModeBar": False, "responsive": True, "typesetMath": False}
"""For every figure that is shown: without typesetMath a dollar sign in a trace would start a formula."""


def rgba(colour: str, alpha: float) -> str:
    """`#RRGGBB` at some opacity.

    >>> rgba("#2263BE", 0.5)
    'rgba(34,99,190,0.5)'
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def template(mode: Mode = "light") -> go.layout.Template:
    """The house's plotly template: transparent, no legend, labels at the marks, room for a title that is a finding."""
    hue = PALETTE[mode]
    small = {"size": 12, "color": hue["muted"]}
    axis = {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "ticks": "",
        "tickfont": small,
        "title": {"font": small, "standoff": 8},
        "fixedrange": True,
    }
    return go.layout.Template(
        layout={
            "font": {"family": FONT, "size": 13, "color": hue["ink"]},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": [hue[name] for name in HUES],
            "margin": {"l": 8, "r": 12, "t": 12, "b": 36},
            "showlegend": False,
            "xaxis": axis,
            "yaxis": {**axis, "gridcolor": hue["faint"], "gridwidth": 1},
            "hoverlabel": {
                "bgcolor": hue["surface"],
                "bordercolor": hue["line"],
                "font": {"family": FONT, "size": 12, "color": hue["ink"]},
                "align": "left",
            },
            "title": {"x": 0, "xanchor": "left", "xref": "container", "font": {"size": 16, "color": hue["ink"]}},
            "dragmode": False,
        }
    )


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "step"), plural(2454, "step")
    ('1 step', '2,454 steps')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def words_of(name: str) -> str:
    """A name of the code as people read it: `explicit_id` is `explicit id`."""
    return name.replace("_", " ")


def short(digest: str) -> str:
    """The first 8 characters of a digest or id, without its algorithm.

    >>> short("sha256:3f9a41c2d0aa")
    '3f9a41c2'
    """
    return digest.removeprefix("sha256:")[:8]


def number(value: int) -> str:
    """Thousands by comma, the minus sign of print."""
    return f"{value:,}".replace("-", "\N{MINUS SIGN}")


def money(cost_nusd: int | None) -> str:
    """Nano-dollars in the largest unit that keeps three digits; None is the word `unknown`.

    >>> money(1_240_000_000), money(12_345_678), money(4_500), money(7), money(0), money(None)
    ('$1.24', '12.3 m$', '4.50 µ$', '7 n$', '$0', 'unknown')
    """
    if cost_nusd is None:
        return "unknown"
    if cost_nusd >= 999_500_000:  # what would be written as 1,000 m$
        return f"${cost_nusd / 1e9:,.2f}"
    return _three_digits(cost_nusd, ("n$", "µ$", "m$")) if cost_nusd else "$0"


def duration(latency_ns: int | None) -> str:
    """Nanoseconds in the largest unit that keeps three digits, from a minute on as minutes and seconds.

    >>> duration(1_234_567), duration(58_000_000_000), duration(3_492_000_000_000), duration(None)
    ('1.23 ms', '58.0 s', '58:12', 'unknown')
    """
    if latency_ns is None:
        return "unknown"
    if latency_ns >= 59_950_000_000:
        seconds = round(latency_ns / 1e9)
        return f"{seconds // 60}:{seconds % 60:02d}"
    return _three_digits(latency_ns, ("ns", "µs", "ms", "s")) if latency_ns else "0 s"


def _three_digits(value: int, units: tuple[str, ...]) -> str:
    if value < 1_000:
        return f"{value} {units[0]}"
    step = next(i for i in range(1, len(units)) if value < 999.5 * 1_000**i or i == len(units) - 1)
    scaled = value / 1_000**step
    return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {units[step]}"


def size(size_bytes: int) -> str:
    """
    >>> size(512), size(3_072), size(1 << 20)
    ('512 B', '3 KiB', '1 MiB')
    """
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}"
    return f"{size_bytes} B"


def variables(hues: Mapping[str, str]) -> str:
    """The palette of one mode as CSS custom properties."""
    return ";".join(f"--xl-{name}:{colour}" for name, colour in hues.items())


def css() -> str:
    """The style sheet for all that `widgets` makes, in both modes: marimo (.dark), JupyterLab, and plain HTML."""
    dark = variables(PALETTE["dark"])
    return (
        f":root{{{variables(PALETTE['light'])};--xl-font:{FONT};--xl-mono:{MONO}}}"
        f".dark,body[data-jp-theme-light='false']{{{dark}}}{_RULES}"
    )


_RULES = """
.xl{font-family:var(--xl-font);color:var(--xl-ink);font-size:14px;line-height:1.45;text-align:left;max-width:1320px;margin:0 auto}
.xl *{box-sizing:border-box}
.xl .h1{font-size:28px;line-height:1.2;font-weight:700;letter-spacing:-.012em;text-wrap:balance;margin:2px 0 4px;overflow-wrap:anywhere}
.xl .h2{font-size:15.5px;font-weight:700;margin:0 0 4px}
.xl .k{color:var(--xl-muted);font-size:12.5px}
.xl .m{font-family:var(--xl-mono);font-size:12px}
.xl .say{font-size:15px;max-width:75em;margin:10px 0 0}
.xl .card{background:var(--xl-card);border-radius:8px;padding:12px 16px;min-width:0}
.xl .two{display:grid;grid-template-columns:minmax(0,7fr) minmax(0,5fr);gap:20px;align-items:start}
.xl .pair{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:12px 20px;margin-top:6px}
.xl .long{white-space:pre-wrap;overflow-wrap:anywhere;max-height:180px;overflow:auto;margin:4px 0}
.xl .clip{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.xl .row{display:flex;gap:8px 12px;align-items:center;flex-wrap:wrap}
.xl .stack>*+*{margin-top:18px}
.xl .plot{min-width:0}.xl .plot marimo-plotly,.xl .plot marimo-ui-element{display:block;width:100%;height:100%}
.xl table.t{border-collapse:collapse;width:100%;font-size:13px;table-layout:auto;font-variant-numeric:tabular-nums;margin:0}
.xl table.t th{font-weight:400;color:var(--xl-muted);font-size:12px;text-align:left;padding:4px 8px;border:0;border-bottom:1px solid var(--xl-line);white-space:nowrap;background:none}
.xl table.t td{padding:5px 8px;border:0;border-bottom:1px solid var(--xl-faint);vertical-align:baseline;line-height:18px;text-align:left;background:none;white-space:nowrap}
.xl table.t tr{background:none}
.xl table.t td.n,.xl table.t th.n{text-align:right}
.xl table.t td.c{max-width:0;width:34%;overflow:hidden;text-overflow:ellipsis}
.xl table.t td.w{white-space:normal;overflow-wrap:anywhere;width:60%}
.xl table.t td.i{font-style:italic;color:var(--xl-muted)}
.xl table.t tr.first td{font-weight:700}
.xl table.t tr.out{background-image:repeating-linear-gradient(135deg,transparent 0 5px,color-mix(in srgb,var(--xl-unknown) 26%,transparent) 5px 6px)}
.xl .scroll{overflow-x:auto}.xl section{margin-top:26px}.xl .two>section{margin-top:0}
.xl .ok{color:var(--xl-observed);font-weight:700}.xl .leak{color:var(--xl-leak);font-weight:700}
.xl .chip{display:inline-flex;align-items:center;gap:6px;border:1px solid var(--xl-line);border-radius:99px;padding:1px 9px 1px 5px;font-size:12.5px;white-space:nowrap;background:var(--xl-surface);color:var(--xl-ink)}
.xl .chip b{display:inline-grid;place-items:center;width:18px;height:18px;border-radius:4px;font-size:12px;border:1.5px solid var(--xl-observed)}
.xl .chip.A b{background:var(--xl-observed);color:var(--xl-surface)}
.xl .chip.B b{background:color-mix(in srgb,var(--xl-observed) 38%,var(--xl-surface))}
.xl .chip.C b{background:color-mix(in srgb,var(--xl-observed) 12%,var(--xl-surface))}
.xl .chip.D b{border:1.5px dashed var(--xl-unknown);color:var(--xl-muted)}
.xl .said{border-left:3px solid var(--xl-candidate);padding:3px 0 3px 12px;margin:0 0 12px;min-width:0}
.xl .said.predicted{border-left-color:var(--xl-predicted)}
.xl .said.refused{border:1.5px solid var(--xl-leak);border-radius:6px;padding:8px 12px}
.xl .said.chosen{background:var(--xl-card)}
.xl .said .txt{white-space:pre-wrap;overflow-wrap:anywhere;max-height:260px;overflow:auto}
.xl .said.predicted .txt b{background:color-mix(in srgb,var(--xl-predicted) 22%,transparent);font-weight:400}
.xl .said .row{margin-top:4px}
.xl .gauge{display:grid;grid-template-columns:minmax(0,9.5em) minmax(40px,1fr) minmax(0,auto);gap:2px 10px;align-items:center;font-size:13px;font-variant-numeric:tabular-nums}
.xl .gauge i{display:block;height:7px;border-radius:4px;background:var(--xl-faint);overflow:hidden;border:1px solid var(--xl-line)}
.xl .gauge i>i{border:0;height:100%;border-radius:0;background:var(--xl-observed)}
.xl .gauge i.near{border-color:var(--xl-leak)}
.xl .gauge .n{text-align:right;white-space:nowrap}
.xl .checks{list-style:none;padding:0;margin:0;font-size:13px}.xl .checks li{padding:2px 0;overflow-wrap:anywhere}.xl .checks b{display:inline-block;width:1.4em}
.xl .unknown{background:repeating-linear-gradient(135deg,transparent 0 4px,color-mix(in srgb,var(--xl-unknown) 45%,transparent) 4px 5px);padding:0 5px;border-radius:3px}
@media (max-width:900px){.xl .two,.xl .pair{grid-template-columns:minmax(0,1fr)}.xl .h1{font-size:22px}.xl .wide{display:none}}
"""
