"""What all commands share: options, and how text, tables and errors are put on a screen that trace text cannot steer."""

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import polars as pl
import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from experiential_lab.evidence.secrets import masked
from experiential_lab.records import UsageError

CONTROL = re.compile(
    "[\u061c\u200b-\u200d\u2028\u2029\ufeff]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


TEXTS = ("action", "observation", "says")  # columns that share what the other columns leave of a line
NARROW = 24  # characters; a text that would get fewer has a line of its own instead
GAP = 2  # blanks between columns
SHOWN = 20  # rows of a table that people see; the rest is counted
Workspace = Annotated[Path, typer.Option("--workspace", "-w", help="The workspace directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")]
HERE = Path(".lab")

out = Console(highlight=False, markup=False, emoji=False)  # trace text is data: nothing in it is markup
err = Console(highlight=False, markup=False, emoji=False, stderr=True)


def fail(message: str, code: int) -> NoReturn:
    err.print(f"error: {plain(' '.join(message.split()))}", soft_wrap=True)
    sys.exit(code)


def put_json(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(re.sub("[\x7f-\x9f]", lambda sign: f"\\u{ord(sign[0]):04x}", text) + "\n")
    sys.stdout.flush()


def say(line: str) -> None:
    out.print(plain(line).replace("\n", "\n    │ "), soft_wrap=True)  # foreign text forges no line of ours


def plain(text: str) -> str:
    """Text that cannot steer a terminal and shows no secret: control signs and direction marks become visible."""
    return CONTROL.sub(lambda sign: f"\\u{ord(sign[0]):04x}", masked(text))


def clip(text: str, size: int = 100) -> str:
    line = " ".join(plain(text).split())
    return line if len(line) <= size else f"{line[: size - 1]}…"


def counted(number: int) -> str:
    return f"{number:,}"


def short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:8]


def reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items()) or "0"


def one_of(value: str, known: tuple[Any, ...], name: str) -> Any:
    if value not in known:
        raise UsageError(f"{name} is {value!r}; it can be {', '.join(known)}")
    return value


def put_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """One line a row: ids and numbers whole, texts cut at the width of the terminal; --json has the whole text.

    Where a text would get fewer than NARROW characters, each text of a row has a line of its own below that row.
    """
    texts = [name for name in columns if name in TEXTS]
    cells = [tuple(map(_cell, row)) for row in rows]
    widths = {
        name: max(cell_len(cell) for cell in (name, *column))
        for name, column in zip(columns, zip(*cells, strict=True) if cells else ((),) * len(columns), strict=True)
    }
    rest = out.width - sum(widths[name] for name in columns if name not in TEXTS) - GAP * (len(columns) - 1)
    if texts and len(texts) < len(columns) and rest < NARROW * len(texts):
        _put_stacked(columns, cells, widths)
        return
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim", expand=bool(texts))
    for name in columns:
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1 if name in TEXTS else None)
    for row in cells:
        table.add_row(*map(Text, row))
    out.print(table)


def _cell(value: object) -> str:
    return "" if value is None else counted(value) if isinstance(value, int) else clip(str(value), 200)


def _put_stacked(columns: Sequence[str], cells: Iterable[Sequence[str]], widths: Mapping[str, int]) -> None:
    plain = [name for name in columns if name not in TEXTS]
    texts = [name for name in columns if name in TEXTS]
    named = max(map(len, texts))

    def put(row: Mapping[str, str], style: str = "") -> None:
        line = (" " * GAP).join(set_cell_size(row[name], widths[name]) for name in plain)
        out.print(Text(line.rstrip(), style), no_wrap=True, overflow="ellipsis")

    put({name: name for name in columns}, "dim")
    for cell in cells:
        row = dict(zip(columns, cell, strict=True))
        put(row)
        for name in texts:
            out.print(Text(f"{' ' * GAP}{name:{named}}{' ' * GAP}{row[name]}"), no_wrap=True, overflow="ellipsis")


def say_some(lines: Sequence[str]) -> None:
    """The first lines, each a place that `show` opens; the others are counted."""
    for line in lines[:SHOWN]:
        say(f"  {line}")
    if len(lines) > SHOWN:
        say(f"  {len(lines) - SHOWN:,} more; --json gives all of them")


def show_frame(frame: pl.DataFrame, name: str, *, whole: bool = False) -> None:
    shown = frame.height if whole else SHOWN
    put_table(frame.columns, frame.head(shown).iter_rows())
    if frame.height > shown:
        say(f"{frame.height - shown:,} more {name}; --json or --out gives all of them")


def write_frame(frame: pl.DataFrame, to: Path) -> None:
    flat = frame.with_columns(pl.col(pl.List(pl.String)).list.join(" "))
    match to.suffix:
        case ".jsonl":
            write_file(to, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in frame.to_dicts()).encode())
        case ".csv":
            write_file(to, flat.write_csv().encode())
        case ".parquet":
            buffer = io.BytesIO()
            frame.write_parquet(buffer)
            write_file(to, buffer.getvalue())
        case other:
            raise UsageError(f"--out ends in {other or 'nothing'!r}; it can be .parquet, .jsonl or .csv")


def write_file(to: Path, data: bytes) -> None:
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}") from None


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr, where it is a terminal; else nothing."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=1)
        yield lambda done, total, name: bar.update(
            task, completed=done, total=total, description=clip(f"{what} {name}", 60)
        )
