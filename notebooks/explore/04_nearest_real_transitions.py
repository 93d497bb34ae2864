"""How much of a prediction is precedent, and how much is leakage? Run: marimo run 04_nearest_real_transitions.py"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full", app_title="Leakage microscope")

with app.setup:
    import atexit
    import shutil
    import tempfile
    from pathlib import Path

    import marimo as mo

    import experiential_lab as xl
    from experiential_lab.claims import fidelity
    from experiential_lab.show import microscope, theme, widgets
    from experiential_lab.show import microscope_plots as plots
    from experiential_lab.show.boundary import Boundary
    from experiential_lab.show.specimens import Specimen, first_step, look, moved, next_changed


@app.cell
def _():
    mo.Html(microscope.sheet_html())
    return


@app.cell
def _(index, level, metric, path, scope):
    title = plots.headline(scope.ladder, level, metric.value)
    mo.Html(microscope.head_html(title, microscope.kicker(scope, index, Path(path.value).name)))
    return (title,)


@app.cell
def _(boundary, scope):
    _ = scope  # without a table there is nothing to bound
    mo.vstack([boundary, mo.Html(microscope.pool_html())], gap=0.2)
    return


@app.cell
def _(seen):
    mo.Html(microscope.sentence_html(seen))
    return


@app.cell
def _(index, problem):
    _html = (
        widgets.heading_html(problem, "Leakage microscope · nothing to look at, controls are off") if problem else ""
    )
    mo.stop(index is None, mo.Html(_html))
    return


@app.cell
def _(asked, buttons, drawn, metric, scope, seen):
    _step = microscope.step_html(seen, scope, "".join(f"{each}" for each in buttons))
    _summary = microscope.summary_html(scope, drawn, f"{metric}{asked}")
    mo.Html(microscope.above_html(_step, drawn["lanes"], _summary))
    return


@app.cell
def _(below, k, seen):
    mo.Html(microscope.below_html(microscope.near_html(seen), microscope.diff_html(seen), f"{k}{below}"))
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    **Why it surprises.** A step is asked as if it had never happened, and its own record is left out. Yet the other trials
    of the same task are recorded too, and they did nearly the same: leaving out a step's own trace changes next to
    nothing, and leaving out its lineage takes most of the right answers away. What is left at the strictest boundary is
    what precedent of *other* tasks is worth, beside the dotted line of a random call of the same tool.

    **Change this.** Drag the boundary, click a square, or press *a step it changes*. Or look at your own: a
    workspace directory as it stands, or a trace file, which is read into a temporary workspace.
    """)
    return


@app.cell
def _():
    path = mo.ui.text(value=str(xl.data("desk_tools.jsonl")), label="workspace or trace file", full_width=True)
    asked = mo.ui.radio({"held out": "held_out", "all steps": "all"}, value="held out", inline=True)
    return asked, path


@app.cell
def _(path):
    mo.Html(f'<div class="xl">{path}</div>')
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    **What it does not show.** A precedent that answers alike once need not do so again. Leaving out a lineage stops one
    leak and proves no coverage. With few families no interval is given: the means then speak of these steps alone.

    **Next.** Step a bounded session, which consults fit entries alone, so that no kin of a held-out task is among them:
    `02_step_a_session.py`.
    """)
    return


@app.cell
def _():
    scratch = tempfile.mkdtemp()
    _ = atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return (scratch,)


@app.cell
def _(path, scratch):
    index, problem, _given = None, "", Path(path.value).expanduser()
    lab = xl.Lab(_given if (_given / "lab.json").is_file() else tempfile.mkdtemp(dir=scratch))
    try:
        if lab.path != _given:
            lab.import_traces(_given)
            lab.split()
            lab.build_index()
        index = lab.current_index()
        _n = len(fidelity.chosen_steps(index, lab.corpus.transitions, "held_out"))
    except xl.LabError as _refused:
        index, problem = None, str(_refused)
    return index, lab, problem


@app.cell
def _(asked, index, lab):
    mo.stop(index is None)
    _n = len(fidelity.chosen_steps(index, lab.corpus.transitions, asked.value))
    with mo.status.progress_bar(total=_n, title="Asking every step at five boundaries", remove_on_exit=True) as _bar:
        scope = fidelity.microscope(
            index, lab.corpus, store=lab.store, asked=asked.value, progress=lambda *_: _bar.update()
        )
    return (scope,)


@app.cell
def _():
    knob = Boundary(level=2)
    boundary = mo.ui.anywidget(knob)
    metric = mo.ui.radio({name: key for key, name in plots.METRICS.items()}, value="exact match", inline=True)
    k = mo.ui.slider(1, 5, value=5, label="k", show_value=True)
    below = mo.ui.dropdown(
        {"never": None, "below A": "A", "below B": "B", "below C": "C"}, value="never", label="refuse"
    )
    return below, boundary, k, knob, metric


@app.cell
def _(scope):
    get_step, set_step = mo.state(first_step(scope))
    return get_step, set_step


@app.cell
def _(knob, scope, set_step):
    _back = mo.ui.button(label="← step", on_click=lambda _: set_step(lambda now: moved(scope, now, -1)))
    _ahead = mo.ui.button(label="step →", on_click=lambda _: set_step(lambda now: moved(scope, now, 1)))
    _jump = mo.ui.button(
        label="a step it changes",
        on_click=lambda _: set_step(lambda now: next_changed(scope, now, microscope.LEVELS[knob.level])),
    )
    buttons = mo.ui.array([_back, _ahead, _jump])
    return (buttons,)


@app.cell
def _(boundary):
    level = microscope.LEVELS[boundary.value["level"]]
    return (level,)


@app.cell
def _(get_step, index, knob, lab, scope):
    step = get_step() if get_step() in scope.order else first_step(scope)
    specimen = Specimen(index, lab.transition(step))
    knob.counts = list(specimen.counts)
    return specimen, step


@app.cell
def _(below, k, level, specimen):
    seen = look(specimen, level, k=k.value, refuse_below=below.value)
    return (seen,)


@app.cell
def _(seen):
    mode = "dark" if mo.app_meta().theme == "dark" else "light"
    lanes = plots.plot_lanes(seen, mode=mode)
    lanes_view = mo.ui.plotly(lanes.figure, config=theme.PLOTLY_CONFIG)
    return lanes, lanes_view, mode


@app.cell
def _(level, metric, mode, scope):
    ladder = plots.plot_ladder(scope.ladder, level, metric.value, mode=mode)
    ladder_view = mo.ui.plotly(ladder.figure, config=theme.PLOTLY_CONFIG)
    return ladder, ladder_view


@app.cell
def _(level, metric, mode, scope, set_step, step):
    wall = plots.plot_wall(scope.steps, level, metric.value, step, mode=mode)
    wall_view = mo.ui.plotly(
        wall.finding.figure,
        config=theme.PLOTLY_CONFIG,
        on_change=lambda points: set_step(lambda now: wall.step_at(points or ()) or now),
    )
    return wall, wall_view


@app.cell
def _(
    below,
    ladder,
    ladder_view,
    lanes,
    lanes_view,
    level,
    metric,
    scope,
    wall,
    wall_view,
):
    drawn = {
        "basis": plots.basis(scope.ladder, level, metric.value),
        "lanes": microscope.box_html(lanes_view, lanes),
        "ladder": microscope.box_html(ladder_view, ladder),
        "key": microscope.wall_key_html(wall),
        "wall": microscope.box_html(wall_view, wall.finding),
        "support": microscope.support_html(scope.steps, level, below.value),
    }
    return (drawn,)


@app.cell
def _(metric, mode, path, scope, specimen):
    mo.download(
        data=lambda: microscope.page_html(
            scope, specimen, Path(path.value).name, metric=metric.value, mode=mode
        ).encode(),
        filename="microscope.html",
        mimetype="text/html",
        label="Save this step as a page",
    )
    return


@app.cell
def test_every_step_is_asked_at_every_boundary(scope):
    assert scope.steps.height == 5 * len(scope.order)
    return


if __name__ == "__main__":
    app.run()
