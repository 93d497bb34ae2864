"""What is in the traces on my disk, and where did each record end? Run: marimo run 03_what_is_in_my_traces.py"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="What is in my traces")

with app.setup:
    import atexit
    import shutil
    import tempfile
    from pathlib import Path

    import marimo as mo

    import experiential_lab as xl
    from experiential_lab.show import theme, widgets
    from experiential_lab.show.contents import contents


@app.cell
def _():
    mo.Html(widgets.sheet_html())
    return


@app.cell
def _(found, problem):
    _title = found.ledger.title if found else problem
    mo.Html(widgets.heading_html(_title, "What is in my traces · read on this machine, kept in a temporary workspace"))
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    Point this page at a trace file or a folder. It says which format each file has and by which rule, what became of
    **every record, event and step**, which traces belong together, and what a careless split would leak. Nothing leaves
    this machine, and a file that cannot be used is named with its reason.
    """)
    return


@app.cell
def _():
    path = mo.ui.text(value=str(xl.data("desk_tools.jsonl")), label="file or folder", full_width=True)
    path
    return (path,)


@app.cell
def _():
    workspace = tempfile.mkdtemp()
    _ = atexit.register(shutil.rmtree, workspace, ignore_errors=True)
    return (workspace,)


@app.cell
def _(path, workspace):
    report, problem = None, ""
    try:
        report = xl.Lab(tempfile.mkdtemp(dir=workspace)).import_traces(Path(path.value).expanduser())
    except xl.LabError as refused:
        problem = str(refused)
    return problem, report


@app.cell
def _(report):
    mode = "dark" if mo.app_meta().theme == "dark" else "light"
    found = contents(report, mode=mode) if report else None
    return (found,)


@app.cell
def _(found, problem):
    mo.Html(widgets.table_html(found.formats) if found else widgets.empty_html(problem))
    return


@app.cell
def _(found):
    _view = mo.ui.plotly(found.ledger.figure, config=theme.PLOTLY_CONFIG) if found else None
    mo.Html(widgets.figure_html(_view, found.ledger) if found else "")
    return


@app.cell
def _(found):
    mo.Html(widgets.sentence_html(found.ledger.sentence) if found else "")
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    ## What was left out, set aside or rejected

    Each reason stands with its level and its count. A record is a line or a list element, an event is one block of it, a
    step is a call or a message. What looks like a secret is counted and masked; it never refuses a file.
    """)
    return


@app.cell
def _(found):
    mo.Html(widgets.table_html(found.reasons) if found else "")
    return


@app.cell
def _(found):
    mo.Html(widgets.table_html(found.rejected) if found and found.rejected.height else "")
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    ## What belongs together

    A lineage is one task with all its trials, forks and resumptions; a family unites tasks that are near-duplicates. **A split
    by single traces would put trials of one task on both sides.** One threshold hides a cliff, so look at all of them.
    """)
    return


@app.cell
def _(found):
    _view = mo.ui.plotly(found.sweep.figure, config=theme.PLOTLY_CONFIG) if found else None
    mo.Html(widgets.figure_html(_view, found.sweep) if found else "")
    return


@app.cell
def _(found):
    mo.Html(widgets.sentence_html(f"{found.sweep.sentence} {found.leak}") if found else "")
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    ## What it used and cost

    Only the innermost model calls count. A parent that repeats the sum of its children, or a second view of one call, is
    caught and not added.
    """)
    return


@app.cell
def _(found):
    mo.Html(widgets.sentence_html(found.spent) if found else "")
    return


@app.cell
def _(found):
    mo.Html(widgets.struck_html(found.repeated) if found and found.repeated else "")
    return


@app.cell
def _(found):
    mo.Html(widgets.table_html(found.traces, null="unknown") if found else "")
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    **Change this.** Type the path of your own traces above.

    **What it does not show.** A pairing says that an answer followed an action, not that it was caused by it. Tasks that are
    worded differently are two families here, even when they ask for the same.

    **Next.** The nearest precedents of a held-out step: `01_import_and_nearest.py`.
    """)
    return


@app.cell
def test_every_step_has_an_outcome(report):
    assert report.counts["steps"] == report.counts["transitions"] + sum(report.counts["left_out"].values())
    return


if __name__ == "__main__":
    app.run()
