"""Commands around the workspace: tour, notebooks, oracle, bench, inspect."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from experiential_lab.bench.goals import measured
from experiential_lab.claims.fidelity import Asked, microscope
from experiential_lab.cli.app import app
from experiential_lab.cli.screen import HERE, AsJson, Workspace, one_of, out, progress_bar, put_json, say, write_file
from experiential_lab.evaluation.candidates import count_reached
from experiential_lab.evaluation.corpora import make_desk_text, make_desk_tools, make_labels, make_study_tools
from experiential_lab.lab import Lab, bundled
from experiential_lab.records import NoEvidence, UnsupportedError, UsageError, digest_of
from experiential_lab.show.microscope import page_html
from experiential_lab.show.microscope_plots import headline
from experiential_lab.show.specimens import Specimen
from experiential_lab.tour import take_tour

oracle = typer.Typer(help="Executable desks, for which the truth is known.", no_args_is_help=True)
app.add_typer(oracle, name="oracle")


@oracle.command("make")
def oracle_make(
    corpus: Annotated[str, typer.Argument(help="desk-tools (small), study-tools or desk-text.")],
    to: Annotated[Path, typer.Option("--out", help="The file to write.")],
    families: Annotated[
        int | None, typer.Option(help="How many families of tasks.", show_default="24, of a study corpus 240")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides everything that chance decides.")] = 7,
    labels: Annotated[
        Path | None, typer.Option(help="Also write what is planted in the study corpora of these families and seed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a corpus by running candidates in an executable desk."""
    makers = {"desk-tools": make_desk_tools, "study-tools": make_study_tools, "desk-text": make_desk_text}
    if corpus not in makers:
        raise UnsupportedError(f"no corpus {corpus!r}: this version makes {', '.join(makers)}")
    if labels and corpus == "desk-tools":
        raise UsageError("nothing is planted in desk-tools; --labels goes with study-tools and desk-text")
    families = (24 if corpus == "desk-tools" else 240) if families is None else families
    try:
        data = makers[corpus](families, seed)
        planted = make_labels(families, seed) if labels else b""
    except ValueError as error:
        raise UsageError(str(error)) from None
    if labels:
        write_file(labels, planted)
    write_file(to, data)
    episodes = data.count(b"\n")
    if as_json:
        put_json(
            {"out": str(to), "episodes": episodes, "families": families, "bytes": len(data), "digest": digest_of(data)}
        )
    else:
        say(f"{episodes} episodes of {families} families written to {to}: {len(data):,} bytes, {digest_of(data)}")


@oracle.command("candidates")
def oracle_candidates(
    tasks: Annotated[int, typer.Option(help="How many tasks each candidate serves.", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="Decides everything that chance decides.")] = 11,
    text: Annotated[bool, typer.Option("--text", help="By sentences to a clerk instead of tools.")] = False,
    as_json: AsJson = False,
) -> None:
    """Count how often each graded candidate reaches the goal, as the database tells."""
    reached = count_reached(tasks, seed, text=text)
    if as_json:
        put_json({"tasks": tasks, "seed": seed, "text": text, "reached": reached})
    for name, times in () if as_json else reached.items():
        say(f"{name:8} {times:5} of {tasks}: {times / tasks:.3f}")


@app.command()
def tour(
    traces: Annotated[
        list[Path] | None, typer.Option(help="Your own traces instead of the bundled order desk.")
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="Where the workspace and the figures go.")] = Path("tour"),
    as_json: AsJson = False,
) -> None:
    """Walk the main job end to end: import, split, nearest, step, costs."""
    with progress_bar("tour") as progress:
        walked = take_tour(traces or [bundled("desk_tools.jsonl")], to, progress)
    if as_json:
        put_json(walked.summary)
    for title, lines in () if as_json else walked.sections:
        out.rule(Text(title, style="bold"), align="left")
        for line in lines:
            say(line)
    if walked.stopped:
        raise NoEvidence(walked.stopped)


@app.command()
def notebooks(
    kind: Annotated[str, typer.Argument(help="marimo or jupyter.")] = "marimo",
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Open the notebooks, on this machine only."""
    one_of(kind, ("marimo", "jupyter"), "the kind")
    folder = _notebooks(kind)
    quiet = [] if browser else ["--headless"] if kind == "marimo" else ["--no-browser"]
    command = {
        "marimo": [sys.executable, "-m", "marimo", "edit", str(folder), "--host", "127.0.0.1", *quiet],
        "jupyter": [sys.executable, "-m", "jupyterlab", str(folder), "--ip=127.0.0.1", *quiet],
    }[kind]
    if find_spec(command[2]) is None:
        raise UsageError(f"{command[2]} is not installed; pip install 'experiential-lab[notebooks]'")
    raise typer.Exit(subprocess.call(command))


def _notebooks(kind: str) -> Path:
    """The folder of a checkout; an installed copy is not edited in place, it is copied beside the user's work first."""
    name = "explore" if kind == "marimo" else "figures"
    package = Path(__file__).parent.parent
    checkout = package.parent / "notebooks" / name
    if checkout.is_dir():
        return checkout
    mine = Path("xlab-notebooks") / name
    if not mine.exists():
        shutil.copytree(package / "notebooks" / name, mine)
    return mine


@app.command()
def bench(
    goals: Annotated[list[str] | None, typer.Argument(help="Goals of PERFORMANCE; all when none is named.")] = None,
    traces: Annotated[Path | None, typer.Option(help="Measure on this file instead of the bundled order desk.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the promises about speed and memory; a bar that is missed is said, and exits 1."""
    if traces and not traces.exists():
        raise UsageError(f"{traces} does not exist")
    figures = []
    for each in measured(goals or (), traces or bundled("desk_tools.jsonl")):
        figures.append(each)
        if not as_json:
            verdict = {True: "✓ holds", False: "✗ does not hold", None: f"? {each.get('reason')}"}[each["holds"]]
            say(f"{each['goal']:4} {each['name']}: {each['ratio']} (bar {each.get('bar', 'unknown')})  {verdict}")
    if as_json:
        put_json(figures)
    raise typer.Exit(0 if all(each["holds"] is not False for each in figures) else 1)


@app.command()
def inspect(
    transition: Annotated[str, typer.Option(help="The recorded step that is looked at.")],
    to: Annotated[Path, typer.Option("--out", help="The page to write: .html.")],
    asked: Annotated[str, typer.Option(help="Which steps stand beside it: held_out or all.")] = "held_out",
    workspace: Workspace = HERE,
    as_json: AsJson = False,
) -> None:
    """Put one recorded step under the leakage microscope, as a page that needs no network."""
    lab = Lab(workspace)
    index, step = lab.current_index(), lab.transition(transition)
    steps: Asked = one_of(asked, ("held_out", "all"), "--asked")
    with progress_bar("asking") as progress:
        scope = microscope(
            index, lab.corpus, store=lab.store, asked=steps, progress=lambda done, total: progress(done, total, "steps")
        )
    page = page_html(scope, Specimen(index, step), lab.path.resolve().name).encode()
    write_file(to, page)
    finding = headline(scope.ladder, "lineage", "exact")
    if as_json:
        put_json({"out": str(to), "bytes": len(page), "transition": step.transition_id, "finding": finding})
    else:
        say(finding)
        say(f"{len(page):,} bytes written to {to}")
