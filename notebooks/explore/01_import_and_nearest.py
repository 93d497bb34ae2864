"""What does one import hold, and what is nearest to one of its steps? Run: marimo run 01_import_and_nearest.py"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Import and nearest")

with app.setup:
    import atexit
    import shutil
    import tempfile

    import marimo as mo
    import polars as pl

    import experiential_lab as xl
    from experiential_lab.show import plots, theme, widgets


@app.cell
def _():
    mo.Html(widgets.sheet_html())
    return


@app.cell
def _(held_out, whole):
    itself, lineage = (whole.row(by_predicate=pl.col("boundary") == level, named=True) for level in ("self", "lineage"))
    _claim = f"Hit 1 is kin for {itself['kin']} of {held_out.height} held-out steps and has the same observation for {itself['same_observation']}"
    title = f"{_claim}; with the lineage left out, for {lineage['same_observation']}"
    mo.Html(widgets.heading_html(title, "Import and nearest · the bundled order desk · desk_tools.jsonl"))
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    A trace becomes evidence one step at a time: **a step is a call or a message, and it counts when what really
    followed can be found in the record**. An import that drops what it cannot pair would look just as good. So the
    report must account for every record and every step, and the sums are checked, not promised.
    """)
    return


@app.cell
def _():
    workspace = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, workspace, ignore_errors=True)
    lab = xl.Lab(workspace)
    report = lab.import_traces(xl.data("desk_tools.jsonl"))
    sums = report.conservation.select("records", "rejected", "events", "set_aside", "steps", "transitions", "left_out")
    mo.Html(widgets.table_html(sums))
    return lab, report


@app.cell
def _(report):
    mode = "dark" if mo.app_meta().theme == "dark" else "light"
    ledger = plots.plot_ledger(report.counts, report.ledger, mode=mode)
    return ledger, mode


@app.cell
def _(ledger):
    ledger_view = mo.ui.plotly(ledger.figure, config=theme.PLOTLY_CONFIG)
    mo.Html(widgets.figure_html(ledger_view, ledger))
    return


@app.cell
def _(ledger):
    mo.Html(widgets.table_html(ledger.table))
    return


@app.cell
def _(ledger):
    mo.Html(widgets.sentence_html(ledger.sentence))
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    Now take one step and ask what is nearest to it. It surprises how much of a good answer can be kinship: **the other
    trials of the same task are recorded too, and they did nearly the same**. A boundary leaves such entries out before
    anything is scored, so statistics are counted without them as well.

    Families come first, then the split: a held-out step is one whose whole family is held out.
    """)
    return


@app.cell
def _(lab):
    lab.split()
    index, steps = lab.index(), lab.transitions()
    held_out = steps.filter(pl.col("split") == "held_out")
    sides = f"{held_out.height} of {steps.height} steps are held out: {held_out['family'].n_unique()} of {steps['family'].n_unique()} families."
    mo.Html(widgets.sentence_html(sides))
    return held_out, index


@app.cell
def _(index, lab):
    def asked(step, level, k):
        view = index.view("all", exclude=xl.around(index, step["id"], level))
        return view.nearest(xl.query_of(lab.transition(step["id"])), k=k)

    return (asked,)


@app.cell
def _(asked, held_out):
    _steps = held_out.iter_rows(named=True)
    whole = plots.kin_frame(
        pl.concat(
            plots.nearest_frame(step, {level: asked(step, level, 1) for level in theme.BOUNDARIES}) for step in _steps
        )
    )
    mo.Html(
        widgets.table_html(
            whole.select("left_out", "kin", "identical_call", "same_observation", "no_precedent", "steps")
        )
    )
    return (whole,)


@app.cell(hide_code=True)
def _():
    mo.md("""
    All held-out steps stand above, one row a boundary: how often hit 1 is kin, is an identical call of another task, and has
    the observation that really followed. Below is one of them. Leaving out a step's own trace hardly helps,
        because the other trials of its task stay. Believe the table after you have seen one case of it.
    """)
    return


@app.cell
def _(held_out):
    place = mo.ui.slider(1, held_out.height, value=1, label="held-out step", show_value=True, full_width=True)
    boundary = mo.ui.radio(
        {stop.name: level for level, stop in theme.BOUNDARIES.items()}, value="conversation", inline=True
    )
    return boundary, place


@app.cell
def _(boundary, place):
    mo.Html(
        f'<div class="xl">{place}<div class="row" style="margin-top:8px"><span class="k">leave out</span>{boundary}</div></div>'
    )
    return


@app.cell
def _(held_out, place):
    step = held_out.row(place.value - 1, named=True)
    mo.Html(widgets.pair_html(step, f"held-out step {place.value} of {held_out.height} · entry {step['id']}"))
    return (step,)


@app.cell
def _(asked, boundary, step):
    found = {level: asked(step, level, 5) for level in ("self", boundary.value)}
    return (found,)


@app.cell
def _(found, mode, step):
    nearest = plots.plot_nearest(plots.nearest_frame(step, found), mode=mode)
    nearest_view = mo.ui.plotly(nearest.figure, config=theme.PLOTLY_CONFIG)
    mo.Html(widgets.figure_html(nearest_view, nearest))
    return (nearest,)


@app.cell
def _(nearest):
    mo.Html(widgets.nearest_html(nearest.table))
    return


@app.cell
def _(found):
    mo.Html(widgets.supports_html(found))
    return


@app.cell
def _(nearest):
    mo.Html(widgets.sentence_html(nearest.sentence))
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    **Change this.** Move the step, then the boundary, and compare the red marks with the table of all steps.

    **What it does not show.** Leaving out a lineage stops one leak and proves no coverage. One precedent is no rule: a
    hit with the same call may have been answered otherwise. This page looks at all entries, because there must be
    something to leave out; a session consults fit entries alone.

    **Next.** Step a bounded session by hand: `02_step_a_session.py`.
    """)
    return


@app.cell
def test_every_step_of_the_import_has_an_outcome(report):
    assert report.counts["steps"] == report.counts["transitions"] + sum(report.counts["left_out"].values())
    return


if __name__ == "__main__":
    app.run()
