"""The application that commands are added to."""

from importlib.metadata import version
from typing import Annotated

import typer

from experiential_lab.cli.screen import out

app = typer.Typer(
    name="xlab",
    help="Recorded agent traces become verified precedents, bounded predictions and honest figures.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(asked: bool) -> None:
    if asked:
        out.print(version("experiential-lab"))
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Recorded agent traces become verified precedents, bounded predictions and honest figures."""
