"""Run every notebook of this folder from its first cell, and write it back with its outputs.

Equal code and data give equal files: no time is recorded, cells have their numbers as ids, and nothing of the kernel's
version or of a widget's state is kept. With `--check` nothing is written, and the names of the notebooks whose bytes would
change are the result.
"""

import asyncio
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def executed(path: Path) -> str:
    """The notebook as it should stand on disk."""
    notebook = nbformat.read(path, as_version=4)
    for number, cell in enumerate(notebook.cells, 1):
        cell.id, cell.metadata = f"cell-{number:02d}", {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    client = NotebookClient(
        notebook,
        timeout=120,
        extra_arguments=["--log-level=ERROR"],
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    asyncio.run(client.async_execute())
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def main(arguments: list[str]) -> int:
    changed = []
    for path in sorted(FOLDER.glob("*.ipynb")):
        text = executed(path)
        if text == path.read_text(encoding="utf-8"):
            continue
        changed.append(path.name)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    print(f"changed: {', '.join(changed) or 'none'}")
    return int("--check" in arguments and bool(changed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
