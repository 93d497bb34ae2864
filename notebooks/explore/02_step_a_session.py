"""What does an answer of a bounded session rest on? Run: marimo run 02_step_a_session.py"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full", app_title="Step a session")

with app.setup:
    import atexit
    import shutil
    import tempfile
    from contextlib import ExitStack

    import marimo as mo
    import polars as pl

    import experiential_lab as xl
    from experiential_lab.show import plots, theme, widgets


@app.cell
def _():
    mo.Html(widgets.sheet_html())
    return


@app.cell
def _():
    workspace = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, workspace, ignore_errors=True)
    lab = xl.Lab(workspace)
    lab.import_traces(xl.data("desk_tools.jsonl"))
    lab.split()
    index, mode = lab.index(), "dark" if mo.app_meta().theme == "dark" else "light"
    return index, lab, mode


@app.cell
def _(lab):
    tasks = lab.traces().filter(pl.col("split") == "held_out")["task"].unique(maintain_order=True)
    _names = {f"{n}: {text}": text for n, text in enumerate(tasks, 1)}
    task = mo.ui.dropdown(_names, value=list(_names)[1], label="task", full_width=True)
    return (task,)


@app.cell
def _():
    first_messages = ()
    return (first_messages,)


@app.cell
def _():
    get_opened, set_opened = mo.state(0)
    return get_opened, set_opened


@app.cell
def _(first_messages, get_opened, lab, task):
    get_opened()
    opened = ExitStack()
    stepper = widgets.Stepper(opened.enter_context(lab.session(task.value)))
    for _text in first_messages:
        stepper.say(_text)
    return (stepper,)


@app.cell
def _(stepper):
    get_said, set_said = mo.state(len(stepper.now.moves), allow_self_loops=True)
    get_drawn, set_drawn = mo.state(0)

    def draw(_):
        set_drawn(lambda drawn: drawn + 1)

    return draw, get_drawn, get_said, set_said


@app.cell
def _(draw, set_said, stepper):
    def send(text):
        draw(stepper.say(text or ""))
        set_said(lambda said: said + 1)

    return (send,)


@app.cell
def _(get_said, send):
    get_said()  # a form swallows a text that is typed twice in a row, so each message has a form of its own
    message = mo.ui.text_area(
        placeholder="what the candidate says next (Ctrl+Enter sends)", rows=2, full_width=True
    ).form(submit_button_label="step", clear_on_submit=True, bordered=False, on_change=send)
    return (message,)


@app.cell
def _(send):
    _texts = ("Which e-mail did you use?", "Shall I give you the money back?", "Done, you get 29.00 EUR back.")
    examples = mo.ui.array([mo.ui.button(label=_text, on_click=lambda _, text=_text: send(text)) for _text in _texts])
    return (examples,)


@app.cell
def _(draw, set_opened, stepper):
    back = mo.ui.button(label="← step", on_click=lambda _: draw(stepper.choose(-1)))
    ahead = mo.ui.button(label="step →", on_click=lambda _: draw(stepper.choose(1)))
    fork = mo.ui.button(label="fork", on_click=lambda _: draw(stepper.fork()))
    switch = mo.ui.button(label="other future", on_click=lambda _: draw(stepper.switch()))
    again = mo.ui.button(label="new session", on_click=lambda _: set_opened(lambda opened: opened + 1))
    moving = mo.ui.array([back, ahead, fork, switch, again])
    return (moving,)


@app.cell
def _(get_drawn, stepper):
    get_drawn()
    mo.Html(
        widgets.heading_html(
            stepper.title, "Session · the bundled order desk · fit entries, user replies alone · copy-nearest"
        )
    )
    return


@app.cell
def _(get_drawn, index, lab, stepper):
    get_drawn()
    answered = stepper.move.step if stepper.move else None
    precedents = (
        widgets.hits_html(answered.hits) if answered else widgets.empty_html("no precedents: nothing was retrieved")
    )
    checks = widgets.receipt_checks(answered.receipt, index.snapshot, lab.store) if answered else ()
    receipt = widgets.checks_html(checks) if checks else widgets.empty_html("no receipt: nothing was retrieved")
    return precedents, receipt


@app.cell
def _(get_drawn, mode, stepper):
    get_drawn()
    costs = plots.plot_costs(plots.costs_frame([stepper.move.economics] if stepper.move else []), mode=mode)
    costs_view = mo.ui.plotly(costs.figure, config=theme.PLOTLY_CONFIG)
    return costs, costs_view


@app.cell
def _(
    costs,
    costs_view,
    examples,
    get_drawn,
    message,
    moving,
    precedents,
    receipt,
    stepper,
    task,
):
    get_drawn()
    _chat = widgets.futures_html(stepper)
    _gauges = widgets.gauges_html(stepper.gauges(), stepper.now.session.state)
    mo.Html(f"""<div class="xl"><div class="two">
    <section>{task}<div style="margin-top:14px">{_chat}</div>{message}
    <div class="row" style="margin-top:10px"><span class="k">try</span>{"".join(f"{each}" for each in examples)}</div>
    <div class="row" style="margin-top:10px">{"".join(f"{each}" for each in moving)}</div></section>
    <section class="stack"><div><div class="h2">Limits</div>{_gauges}</div><div><div class="h2">Precedents of the chosen step</div>{precedents}</div>
    <div><div class="h2">Receipt</div>{receipt}</div>{widgets.figure_html(costs_view, costs)}</section></div></div>""")
    return


@app.cell
def _(get_drawn, stepper):
    get_drawn()
    mo.Html(widgets.sentence_html(stepper.sentence))
    return


@app.cell
def test_a_message_is_sent_once_however_often_the_page_is_drawn(lab):
    with lab.session("My parcel never came.") as _session:
        _stepper = widgets.Stepper(_session)
        _stepper.say("Which order is it?")
        assert widgets.futures_html(_stepper) == widgets.futures_html(_stepper)
        assert len(_session.transcript) == 2
    return


if __name__ == "__main__":
    app.run()
