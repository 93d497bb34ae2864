"""The command line: `experiential-lab`, or `xlab` for short.

- `--json` puts exactly one JSON document on stdout (`step`: one a line). Progress and errors go to stderr.
- An error is one line: what was wrong, with both values, and what to do. Its class decides the exit code.
- Trace text is data: control characters are shown as signs and markup is never interpreted.
"""

import io
import os
import sys

from experiential_lab.cli import asking, receipts, showing, traces
from experiential_lab.cli.app import app
from experiential_lab.cli.screen import fail, out
from experiential_lab.records import LabError

__all__ = ["asking", "main", "receipts", "showing", "traces"]


def main() -> None:
    """Runs the command line and exits with the code that the contract gives to each outcome."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a sign shows its number
    try:
        sys.exit(app(standalone_mode=False))
    except LabError as error:
        fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away, which is its right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:  # the process boundary: what the parser of the arguments says becomes one line, too
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            out.print(error.format_message())  # empty where rich has printed the help already
            sys.exit(2)
        usage = f"; see {context.command_path} --help" if context else ""
        fail(f"{error.format_message()}{usage}", getattr(error, "exit_code", 2))
