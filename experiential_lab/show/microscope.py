"""The leakage microscope as pieces of HTML, and as a static page: one recorded step and all of them, at one boundary.

- Hits stand by rank, and what the boundary left out stays in its place among them: hatched, with the rank `out`.
- Two JSON documents are compared by leaf, other texts by word. What only the prediction has is struck through, what only the
  observation has is underlined; the tint alone says nothing.
- Nothing to copy, a refusal and an empty observation are said in words.
- Text of a trace is masked, then escaped.
- The static page needs no network and no script but plotly's: its boundary is a row of radio buttons.

Not covered: the figures (`microscope_plots`), the search (`specimens`) and the controls of a notebook, which are placed
between these pieces.
"""

import difflib
import html
import re
from collections.abc import Mapping

import plotly.graph_objects as go
import polars as pl
from plotly.offline import get_plotlyjs

from experiential_lab.claims.fidelity import Microscope, answer_of
from experiential_lab.evidence.secrets import masked
from experiential_lab.metrics import ONE, exact_match, leaves, strict_json, token_f1
from experiential_lab.records import Json, Unverifiable, canonical_json
from experiential_lab.retrieval.explain import RELATIONS, Near
from experiential_lab.retrieval.index import Index
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.support import Label
from experiential_lab.retrieval.views import BOUNDARIES, Boundary, Entry, Exclusion
from experiential_lab.show.microscope_plots import (
    METRICS,
    STATES,
    Wall,
    basis,
    headline,
    plot_ladder,
    plot_lanes,
    plot_wall,
)
from experiential_lab.show.plots import Finding
from experiential_lab.show.specimens import Look, Specimen, look
from experiential_lab.show.theme import BOUNDARIES as STOPS
from experiential_lab.show.theme import PLOTLY_CONFIG, SUPPORT, Mode, css, number, plural, short, words_of

LEVELS = BOUNDARIES
"""The boundaries by the number that the control has."""

LONG = 400  # characters of a text in a table; the panel below shows all
_LEAVES = 12  # differing leaves that are listed
_WORDS = 4_000  # of either text; longer ones are shown without marks, for comparing them would take seconds


def sheet_html() -> str:
    """The style sheet of the page, once."""
    return f"<style>{css()}{_RULES}</style>"


def kicker(scope: Microscope, index: Index, corpus: str) -> str:
    """What the page is about: corpus, sizes, world model and configuration."""
    rows = index.snapshot.rows
    which = "held-out steps" if scope.asked == "held_out" else "steps, fit and held out"
    return (
        f"Leakage microscope · {corpus} · {plural(len(rows), 'transition')} · {number(len(scope.order))} {which} · "
        f"world model {scope.world_model} · config {short(scope.config)}"
    )


def head_html(title: str, above: str) -> str:
    """The finding below its kicker; it always takes two lines, so that nothing moves while the boundary does."""
    return (
        f'<div class="xl mic top"><div class="k">{_text(above)}</div>'
        f'<div class="h1" role="heading" aria-level="1"><span>{_text(title)}</span></div></div>'
    )


def sentence_html(seen: Look, *, live: bool = True) -> str:
    """What the boundary does to this step."""
    polite = ' aria-live="polite"' if live else ""
    said = _text(seen.sentence).replace("Hit 1 comes from", "<br>Hit 1 comes from")
    return f'<div class="xl"><p class="say"{polite}>{said}</p></div>'


def step_html(seen: Look, scope: Microscope, buttons: object = "") -> str:
    """The step: what was done, in which task, and what supports it."""
    step, order = seen.specimen.step, scope.order
    label, rule = seen.support
    name = _text(step.action.tool) if step.action.tool else "a message to the user"
    done = step.action.arguments if step.action.tool else step.action.text
    trace, _, ordinal = step.transition_id.partition("/")
    place = "not among the steps below"
    if step.transition_id in order:
        place = f"step {number(order.index(step.transition_id) + 1)} of {number(len(order))}"
    return f"""<div class="bar"><div><div class="h2" role="heading" aria-level="2">One {_one(scope)}</div>
<div class="k">{place} · trace <span title="{_text(trace)}">{_text(trace[:8])}</span>, its step {_text(ordinal.lstrip("0") or "0")} · paired by {words_of(step.pairing)}</div></div>
<div class="row ctl">{buttons}</div></div>
<div class="card act"><div class="min"><span class="k">action</span> <b class="{"m" if step.action.tool else ""}">{name}</b>
<div class="body {"m" if step.action.tool else ""}" title="{_text((done or "")[:2_000])}">{_text(done or "") or '<i class="k">empty</i>'}</div>
<div class="k task" title="{_text((step.task or "")[:2_000])}">task: {_text(step.task or "unknown")}</div></div>
<span class="chip {label}"><b>{label}</b>{SUPPORT[rule][label]}</span></div>"""


def _one(scope: Microscope) -> str:
    return "held-out step" if scope.asked == "held_out" else "step"


LEGEND = (
    '<div class="k keys"><span><b class="leak">◆</b> same answer, related run</span><span><b class="ok">◆</b> same answer, '
    'another task</span><span><b class="ok">●</b> another answer</span><span>◇ ○ left out</span><span>❶ hit, by rank</span></div>'
)


def near_html(seen: Look) -> str:
    """The hits by rank, with the near-misses that the boundary left out in their place."""
    if isinstance(seen.near, Unverifiable):
        return (
            f'<div class="card"><b>No candidate.</b> Counted as score 0.<div class="k">{_text(seen.near.reason)}: '
            f"{STOPS[seen.level].left_out} left out, and nothing remains to be asked. Support D, no precedent.</div></div>"
        )
    unlike = "unlike the query" if seen.specimen.query.act.tool else "action"
    heads = ("rank", "score", "comes from", unlike, "observation", "answer")
    head = "".join(f"<th{_HEADS.get(name, '')}>{name}</th>" for name in heads)
    body = "".join(_near_row(seen, row) for row in seen.near.rows)
    more = f'<p class="k more">{_text(seen.near.sentence)}</p>'
    widths = "".join(f'<col style="width:{width}">' for width in ("36px", "82px", "128px", "auto")) + "<col class=wide>"
    return (
        f'<table class="t near"><colgroup>{widths}<col style="width:74px"></colgroup>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
    )


_HEADS = {
    "observation": " class=wide",
    "score": ' title="share of the best score when nothing is left out; ranks are by the scores of this view"',
}


def _near_row(seen: Look, row: Near) -> str:
    entry, specimen, out = row.entry, seen.specimen, row.rank is None
    position = specimen.index.snapshot.positions(Exclusion(level="entry", value=entry.entry_id))[0]
    relation = specimen.relation(position)
    share = specimen.share(row.score_all)
    answer = answer_of(entry)
    same = answer == specimen.truth
    glyph = ("◇" if out else "◆") if same else ("○" if out else "●")
    hue = "leak" if relation != RELATIONS[-1] else "ok"
    verdict = (
        f'<span class="{hue}">{glyph} same</span>'
        if same
        else f"{glyph} F1 {token_f1(answer, specimen.truth) / ONE:.2f}"
    )
    kind = "out" if out else "first" if row.rank == 1 else ""

    trace, _, ordinal = entry.entry_id.partition("/")
    return (
        f'<tr class="{kind}"><td>{row.shown_rank}</td>'
        f'<td>{share:.2f}<span class="bit"><i style="width:{100 * min(1, share):.0f}%"></i></span></td>'
        f'<td class="clip" title="{_text(entry.entry_id)}">{relation} <span class="k">{_text(trace[:4])}/{_text(ordinal.lstrip("0") or "0")}</span></td>'
        f'<td class="clip {"m" if entry.tool else ""}" title="{_head(dict(entry.key).get("action", ""))}">{_unlike(specimen.query, entry)}</td>'
        f'<td class="clip wide" title="{_head(answer)}">{_head(answer) or _EMPTY}</td><td class="clip">{verdict}</td></tr>'
    )


_EMPTY = '<i class="k">empty result</i>'


def _unlike(query: Query, entry: Entry) -> str:
    """What the action of the entry has that the query's has not."""
    act = query.act
    action = dict(entry.key).get("action", "")
    if not entry.tool or not act.tool:
        return _head(action)
    name = "" if entry.tool == act.tool else f"<b>{_text(entry.tool)}</b> "
    ours = _document(act.text.removeprefix(act.tool).strip())
    theirs = _document(action.removeprefix(entry.tool).strip())
    if ours is None or theirs is None:
        return name + _head(action.removeprefix(entry.tool).strip())
    differ = [f"{pointer.removeprefix('/')}={value}" for pointer, value in theirs.items() if ours.get(pointer) != value]
    gone = [f"no {pointer.removeprefix('/')}" for pointer in ours if pointer not in theirs]
    return name + (_head(", ".join([*differ, *gone])) or '<span class="k">nothing</span>')


def _document(text: str) -> dict[str, str] | None:
    """Leaf pointer to value of a JSON object or array; None: it is none."""
    try:
        value: Json = strict_json(text)
    except ValueError:
        return None
    return {at: canonical_json(leaf) for at, leaf in leaves(value)} if isinstance(value, dict | list) else None


def diff_html(seen: Look) -> str:
    """What was predicted against what really followed: by leaf for JSON documents, else by word."""
    said, truth = seen.predicted, seen.specimen.truth
    if said is None:
        body = f'<div class="k">observed: what really happened</div><div class="txt">{_text(truth) or _EMPTY}</div>'
        return f"{_heading('Predicted against observed: <b>no candidate</b>')}{body}"
    if seen.refused:
        needs, has = seen.refuse_below, seen.support[0]
        asked = f"Refused: no supporting precedent (needs {needs} or better, has {has})"
        return (
            f'<div class="h2" role="heading" aria-level="2">Predicted against observed: <span class="leak">✗ refused</span></div>'
            f'<p class="refusal">{asked}. Nothing is predicted for this step.</p>'
            f"<details><summary>The answer that it would have copied</summary>{_compared(said, truth)}</details>"
        )
    right = bool(exact_match(said, truth))
    verdict = (
        '<span class="ok">exactly what happened</span>'
        if right
        else f"<b>not what happened</b> · token F1 {token_f1(said, truth) / ONE:.2f}"
    )
    return f"{_heading(f'Predicted against observed: {verdict}')}{_compared(said, truth)}"


def _heading(inner: str) -> str:
    return f'<div class="h2" role="heading" aria-level="2">{inner}</div>'


def _compared(said: str, truth: str) -> str:
    hidden = masked(said) == masked(truth) and said != truth
    note = '<p class="k">They differ only in what is masked.</p>' if hidden else ""
    ours, theirs = _document(said), _document(truth)
    if ours is not None and theirs is not None:
        return leaf_diff(ours, theirs) + note
    left, right = word_diff(masked(said), masked(truth))
    return (
        f'<div class="pair"><div><div class="k">predicted: copied from hit 1</div><div class="txt">{left or _EMPTY}</div></div>'
        f'<div><div class="k">observed: what really happened</div><div class="txt">{right or _EMPTY}</div></div></div>{note}'
    )


def leaf_diff(predicted: Mapping[str, str], observed: Mapping[str, str]) -> str:
    """A table by leaf pointer: differing leaves first, equal ones counted, an absent one said in words."""
    every = list(dict.fromkeys([*observed, *predicted]))
    differ = [at for at in every if predicted.get(at) != observed.get(at)]
    same = [at for at in every if at not in set(differ)]
    rows = "".join(
        f'<tr><td class="m">{_pointer(at)}</td>{_leaf(predicted.get(at), "del")}{_leaf(observed.get(at), "ins")}</tr>'
        for at in differ[:_LEAVES]
    )
    if not differ:
        rows = "".join(
            f'<tr><td class="m">{_pointer(at)}</td>{_leaf(predicted[at], "span")}{_leaf(observed[at], "span")}</tr>'
            for at in same[:6]
        )
    more = f"{number(len(differ) - _LEAVES)} more differ · " if len(differ) > _LEAVES else ""
    told = f"{more}{number(len(same))} of {number(len(every))} {'leaf' if len(every) == 1 else 'leaves'} equal"
    return (
        '<table class="t diff"><colgroup><col style="width:38%"><col><col></colgroup><thead><tr><th>leaf</th><th>predicted</th>'
        f'<th>observed</th></tr></thead><tbody>{rows}<tr><td colspan="3" class="k">{told}</td></tr></tbody></table>'
    )


def _pointer(at: str) -> str:
    return re.sub(r"([/_])", r"\1<wbr>", _text(at or "/"))


def _leaf(value: str | None, tag: str) -> str:
    if value is None:
        return '<td class="k">absent</td>'
    return f'<td class="m"><{tag}>{_text(value)}</{tag}></td>'


def word_diff(predicted: str, observed: str) -> tuple[str, str]:
    """Both texts as HTML; words that stand in one of them alone are marked by line and tint."""
    ours, theirs = (re.findall(r"\s*\S+|\s+$", text) for text in (predicted, observed))
    if max(len(ours), len(theirs)) > _WORDS:
        return _text(predicted), _text(observed)
    first, second = ([word.strip() for word in words] for words in (ours, theirs))
    left, right = list[str](), list[str]()
    for tag, a, b, c, d in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        left.append(_marked("".join(ours[a:b]), "" if tag == "equal" else "del"))
        right.append(_marked("".join(theirs[c:d]), "" if tag == "equal" else "ins"))
    return "".join(left), "".join(right)


def _marked(text: str, tag: str) -> str:
    word = text.lstrip()
    lead = text[: len(text) - len(word)]
    return _text(lead) + (f"<{tag}>{_text(word)}</{tag}>" if tag and word else _text(word))


def support_html(steps: pl.DataFrame, level: Boundary, refuse_below: Label | None = None) -> str:
    """How many steps have which support at the boundary, as one strip."""
    here = steps.filter(boundary=level)
    counts = {label: here.filter(support=label).height for label in "ABCD"}
    total = max(1, here.height)
    words = SUPPORT["tool"]
    parts = "".join(
        f'<div class="{label}" style="flex:{count} 1 0" title="{words[label]}: {number(count)}"><b>{label}</b>&nbsp;'
        f"{_part(count, total)}{'&nbsp;' + words[label] if count > 0.42 * total else ''}</div>"
        for label, count in counts.items()
        if count
    )
    told = ", ".join(f"{label} {words[label]}: {number(count)}" for label, count in counts.items())
    below = sum(count for label, count in counts.items() if refuse_below and label > refuse_below)
    refused = (
        f"Refusing below {refuse_below} would refuse {number(below)} of {plural(here.height, 'step')} here."
        if refuse_below
        else ""
    )
    return f'<div class="mix" role="img" aria-label="{told}">{parts}</div><div class="k">{refused}</div>'


def _part(count: int, total: int) -> str:
    """A share, or the count itself where less than one in a hundred would read as 0."""
    return f"{100 * count / total:.0f}&nbsp;%" if 100 * count >= total else number(count)


def wall_key_html(wall: Wall) -> str:
    """What the squares mean, with their counts."""
    counts = dict(wall.finding.table["state"].value_counts().iter_rows())
    marks = {"right": ("ok", "■"), "lost": ("leak", "□"), "wrong": ("grey", "■"), "none": ("grey", "☒")}
    told = "".join(
        f'<span><b class="{marks[state][0]}">{marks[state][1]}</b> {number(counts.get(state, 0))} {words}</span>'
        for state, words in STATES.items()
        if counts.get(state, 0) or state != "none"
    )
    return f'<div class="k keys">{told}</div>'


def box_html(drawn: object, finding: Finding) -> str:
    """A figure in a box of its height, with its sentence as the alternative."""
    return (
        f'<div class="plot" role="img" aria-label="{html.escape(finding.sentence)}" '
        f'style="height:{finding.figure.layout.height + 2}px">{drawn}</div>'
    )


POOL = (
    "The microscope looks at all entries, because “leave out” needs something to leave out; each stop is a view with "
    "statistics of its own. A session consults fit entries alone."
)


def pool_html() -> str:
    """What may be asked, and how that differs from a session."""
    return f'<div class="xl" style="width:100%"><div class="k">{POOL}</div></div>'


def above_html(step: str, lanes: str, summary: str) -> str:
    """One step and all of them, side by side; each is a piece of this module."""
    return (
        f'<div class="xl mic"><div class="two"><section aria-label="One step">{step}'
        '<div class="h2 gap" role="heading" aria-level="2">Who is near, and who may be asked</div>'
        f'{LEGEND}{lanes}</section><section aria-label="All steps">{summary}</section></div></div>'
    )


def summary_html(scope: Microscope, drawn: Mapping[str, str], controls: object = "") -> str:
    """The basis, ladder, key, wall and support of all steps, as `drawn`; `controls` choose what they show."""
    which = "held-out steps" if scope.asked == "held_out" else "steps"
    return (
        f'<div class="bar"><div class="h2" role="heading" aria-level="2">All {number(len(scope.order))} {which}</div>'
        f'<div class="row ctl">{controls}</div></div><div class="k basis">{drawn["basis"]}</div>{drawn["ladder"]}'
        f'{drawn["key"]}{drawn["wall"]}<div class="k">One square is one step.</div>'
        f'<div class="h2 gap" role="heading" aria-level="2">Support that is left</div>{drawn["support"]}'
    )


def below_html(near: str, diff: str, controls: object = "") -> str:
    """Hits with near-misses, and predicted against observed."""
    return (
        '<div class="xl mic"><div class="two low"><section><div class="bar"><div class="h2" role="heading" aria-level="2">'
        f'Hits, and the near-misses that the boundary left out</div><div class="row ctl">{controls}</div></div>{near}</section>'
        f'<section class="card">{diff}</section></div></div>'
    )


def page_html(
    scope: Microscope, specimen: Specimen, corpus: str, *, metric: str = "exact", mode: Mode = "light"
) -> str:
    """The whole inspector for one step as a page of its own: a row of radio buttons is its boundary."""
    looks = {level: look(specimen, level) for level in BOUNDARIES}
    radios = "".join(
        f'<input type="radio" name="stop" id="stop-{level}"{" checked" if level == "lineage" else ""} '
        f'aria-label="Boundary: leave out {STOPS[level].left_out}">'
        for level in BOUNDARIES
    )
    stops = {level: _Panel(scope, seen, metric, mode) for level, seen in looks.items()}
    title = headline(scope.ladder, "lineage", metric)
    top = _swapped({level: panel.head(corpus) for level, panel in stops.items()})
    above = above_html(
        f'<div class="over">{_swapped({level: panel.step for level, panel in stops.items()})}</div>',
        f'<div class="over">{_swapped({level: panel.lanes for level, panel in stops.items()})}</div>',
        f'<div class="over">{_swapped({level: panel.summary for level, panel in stops.items()})}</div>',
    )
    below = _swapped({level: panel.below for level, panel in stops.items()})
    dark = ' class="dark"' if mode == "dark" else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>{sheet_html()}'
        f'<meta name="viewport" content="width=device-width"><style>{_PAGE}</style><script>{get_plotlyjs()}</script></head>'
        f'<body{dark}><div class="sheet">{radios}<div class="xl mic">{top}</div>{above}{below}</div></body></html>'
    )


def _swapped(pieces: Mapping[Boundary, str]) -> str:
    """The version of each stop, of which one is seen."""
    return "".join(f'<div class="at at-{level}">{piece}</div>' for level, piece in pieces.items())


class _Panel:
    """The pieces of one step at one boundary of a static page."""

    def __init__(self, scope: Microscope, seen: Look, metric: str, mode: Mode) -> None:
        self.scope, self.seen, self.metric, self.mode = scope, seen, metric, mode

    def head(self, corpus: str) -> str:
        seen, level = self.seen, BOUNDARIES.index(self.seen.level)
        title = headline(self.scope.ladder, seen.level, self.metric)
        names = [(stop.name, stop.means) for stop in STOPS.values()] + [("other tasks", "always eligible")]
        parts = "".join(
            f'<label for="stop-{BOUNDARIES[min(n, 4)]}" class="{"out" if n <= level else ""}{" edge" if n == level else ""}">'
            f"<b>{name}</b><span>{means}</span><em>{number(count)} {'left out' if n <= level else 'eligible'}</em></label>"
            for n, ((name, means), count) in enumerate(zip(names, seen.specimen.counts, strict=True))
        )
        return (
            f'{head_html(title, kicker(self.scope, seen.specimen.index, corpus))}<div class="stops">{parts}</div>'
            f'<p class="k">{POOL}</p>{sentence_html(seen, live=False)}'
        )

    @property
    def step(self) -> str:
        return step_html(self.seen, self.scope)

    @property
    def lanes(self) -> str:
        return self._figure("lanes", plot_lanes(self.seen, mode=self.mode))

    @property
    def summary(self) -> str:
        level = self.seen.level
        ladder = plot_ladder(self.scope.ladder, level, self.metric, mode=self.mode)
        step_id = self.seen.specimen.step.transition_id
        wall = plot_wall(self.scope.steps, level, self.metric, step_id, mode=self.mode)
        drawn = {
            "basis": basis(self.scope.ladder, level, self.metric),
            "ladder": self._figure("ladder", ladder),
            "key": wall_key_html(wall),
            "wall": self._figure("wall", wall.finding),
            "support": support_html(self.scope.steps, level),
        }
        return summary_html(self.scope, drawn, f'<span class="k">{METRICS[self.metric]}</span>')

    @property
    def below(self) -> str:
        return below_html(near_html(self.seen), diff_html(self.seen))

    def _figure(self, name: str, finding: Finding) -> str:
        figure = go.Figure(finding.figure).update_layout(clickmode="none", dragmode=False)
        drawn = figure.to_html(
            full_html=False, include_plotlyjs=False, div_id=f"{name}-{self.seen.level}", config=PLOTLY_CONFIG
        )
        return box_html(drawn, finding)


def _head(text: str) -> str:
    """As `_text`; of a long one the beginning, which says so. A secret is masked before it could be cut in two."""
    shown = masked(text)
    return _text(shown if len(shown) <= LONG else f"{shown[:LONG]}… ({len(text):,} characters)")


def _text(text: str) -> str:
    """Foreign text in HTML: masked, escaped, and a NUL, which no page may hold, as its picture."""
    return html.escape(masked(text)).replace("\0", "␀")


_RULES = """
.mic .two{margin-top:18px}
.mic .top .h1{min-height:2.4em;display:flex;flex-direction:column;justify-content:flex-end}
.mic .bar{display:flex;justify-content:space-between;align-items:flex-start;gap:6px 14px;flex-wrap:wrap;margin-bottom:6px}
.mic .ctl{zoom:.86}
.mic .basis{min-height:2.9em}.mic .gap{margin-top:16px}.mic .two.low{margin-top:24px}.mic .min{min-width:0;flex:1}
.mic .act{display:flex;justify-content:space-between;gap:8px 14px;align-items:flex-start}
.mic .act .body{max-height:54px;overflow:hidden;overflow-wrap:anywhere;white-space:pre-wrap;line-height:18px;margin-top:3px}
.mic .act .task{margin-top:6px;display:-webkit-box;-webkit-line-clamp:2;-webkit-box-orient:vertical;overflow:hidden;overflow-wrap:anywhere}
.mic .keys{display:flex;gap:2px 16px;flex-wrap:wrap;margin:4px 0;font-variant-numeric:tabular-nums}.mic .grey{color:var(--xl-unknown)}
.mic table.near,.mic table.diff{table-layout:fixed}
.mic table.near td,.mic table.near th{padding-left:6px;padding-right:6px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.mic table.near tr.out td{color:var(--xl-muted)}.mic table.near tr.out td .leak{color:var(--xl-leak)}
.mic table.near tr.out{background-image:repeating-linear-gradient(135deg,transparent 0 5px,color-mix(in srgb,var(--xl-leak) 20%,transparent) 5px 6px)}
.mic .bit{display:inline-block;width:36px;height:5px;border-radius:3px;background:var(--xl-faint);margin-left:7px;vertical-align:2px}
.mic .bit i{display:block;height:5px;border-radius:3px;background:var(--xl-observed)}.mic tr.out .bit i{background:none;border:1px solid var(--xl-unknown)}
.mic .more{margin:6px 8px}
.mic table.diff td{white-space:normal;overflow-wrap:anywhere}
.mic del{background:color-mix(in srgb,var(--xl-predicted) 24%,transparent);text-decoration:line-through 1.5px var(--xl-predicted);border-radius:2px;color:inherit}
.mic ins{background:color-mix(in srgb,var(--xl-observed) 20%,transparent);text-decoration:underline 1.5px var(--xl-observed);text-underline-offset:3px;border-radius:2px;color:inherit}
.mic .txt{line-height:1.55;white-space:pre-wrap;overflow-wrap:anywhere;max-height:260px;overflow:auto}
.mic .refusal{border:1.5px solid var(--xl-leak);border-radius:6px;padding:8px 12px;margin:8px 0}.mic summary{cursor:pointer;color:var(--xl-muted);font-size:13px}
.mic .mix{display:flex;height:26px;border-radius:5px;overflow:hidden;gap:2px;margin:4px 0}
.mic .mix div{display:flex;align-items:center;padding-left:7px;font-size:12.5px;white-space:nowrap;overflow:hidden;min-width:44px;font-variant-numeric:tabular-nums}
.mic .mix .A{background:var(--xl-observed);color:var(--xl-surface)}.mic .mix .B{background:color-mix(in srgb,var(--xl-observed) 38%,var(--xl-surface))}
.mic .mix .C{background:color-mix(in srgb,var(--xl-observed) 12%,var(--xl-surface))}.mic .mix .D{border:1.5px dashed var(--xl-unknown)}
@media (max-width:900px){.mic .act{flex-wrap:wrap}.mic .top .h1{min-height:3.6em}}
"""

_PAGE = """
body{margin:24px;background:var(--xl-surface)}
.sheet{position:relative}
.sheet>input{position:absolute;opacity:0;width:1px;height:1px}
.at{display:none}.over{display:grid}.over>.at{grid-area:1/1;display:block;visibility:hidden;min-width:0}
.stops{display:grid;grid-template-columns:repeat(6,minmax(0,1fr));border-radius:8px;overflow:hidden;border:1px solid var(--xl-line);margin:14px 0 6px}
.stops label{padding:9px 10px 9px 18px;min-height:70px;cursor:pointer;background:color-mix(in srgb,var(--xl-observed) 9%,var(--xl-surface))}
.stops b{display:block;font-size:14.5px}.stops span{display:block;font-size:12px;color:var(--xl-muted);white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.stops em{font-style:normal;font-size:12.5px;color:var(--xl-observed);font-weight:700}
.stops .out{background:repeating-linear-gradient(135deg,transparent 0 5px,color-mix(in srgb,var(--xl-leak) 20%,transparent) 5px 6px),var(--xl-card)}
.stops .out b{font-weight:400;color:var(--xl-muted);text-decoration:line-through}.stops .out em{color:var(--xl-leak)}
.stops .edge{border-right:6px solid var(--xl-leak)}
@media (max-width:900px){.stops span{display:none}.stops label{padding:8px 3px 8px 10px}.stops b{font-size:12px}.stops em{font-size:11px}}
""" + "".join(
    f"#stop-{level}:checked~* .at-{level},#stop-{level}:checked~.at-{level}{{display:block;visibility:visible}}\n"
    f"#stop-{level}:focus-visible~* label[for=stop-{level}]{{outline:3px solid var(--xl-observed);outline-offset:-3px}}\n"
    for level in BOUNDARIES
)
