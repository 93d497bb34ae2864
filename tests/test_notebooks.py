"""Every notebook runs whole, is short and public, and its controls move what they should."""

import ast
import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent / "notebooks"
EXPLORE = sorted((ROOT / "explore").glob("*.py"))
FIGURES = sorted((ROOT / "figures").glob("*.ipynb"))
ALL = [*EXPLORE, *FIGURES]
CELL_LINES = 14  # of code; a cell that lays out a whole page is the longest


def cells_of(path: Path) -> list[str]:
    """The code of each cell."""
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bodies = [node.body for node in tree.body if isinstance(node, ast.FunctionDef | ast.With)]
    return ["\n".join(map(ast.unparse, body)) for body in bodies]


def app_of(path: Path):
    spec = importlib.util.spec_from_file_location(f"notebook_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


def shown(outputs) -> str:
    return "\n".join(output.text for output in outputs if hasattr(output, "text"))


each = pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)


def test_there_are_notebooks_of_both_kinds():
    assert len(EXPLORE) >= 2
    assert len(FIGURES) >= 1


@pytest.mark.parametrize("path", EXPLORE, ids=lambda path: path.name)
def test_an_exploring_notebook_runs_whole_and_ends_in_a_sentence(path):
    outputs, _ = app_of(path).run()
    assert 'aria-live="polite"' in shown(outputs)


@each
def test_no_notebook_defines_a_function_of_more_than_three_lines(path):
    for cell in cells_of(path):
        for node in ast.walk(ast.parse(cell)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno <= 3, f"{node.name} belongs to the library"


@each
def test_nothing_private_is_used(path):
    for cell in cells_of(path):
        for node in ast.walk(ast.parse(cell)):
            names = [node.module, *(alias.name for alias in node.names)] if isinstance(node, ast.ImportFrom) else []
            names += [node.attr] if isinstance(node, ast.Attribute) else []
            assert not [name for name in names if any(part.startswith("_") for part in (name or "").split("."))]


@each
def test_a_cell_is_short(path):
    assert max(len(cell.splitlines()) for cell in cells_of(path)) <= CELL_LINES


def test_a_figures_notebook_has_at_most_twelve_code_cells_and_every_one_was_run():
    for path in FIGURES:
        cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        assert len(cells) <= 12
        assert all(cell["outputs"] for cell in cells)
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))


def test_every_figure_of_a_figures_notebook_is_followed_by_its_table():
    kinds = [
        {kind for output in cell.get("outputs", ()) for kind in output.get("data", ())}
        for path in FIGURES
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    figures = [n for n, kind in enumerate(kinds) if "application/vnd.plotly.v1+json" in kind]
    assert len(figures) >= 2
    assert all("text/html" in kinds[n + 1] for n in figures)


def test_no_time_and_no_place_stands_in_the_outputs_of_a_figures_notebook():
    for path in FIGURES:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert not any(cell["metadata"] for cell in cells)
        said = json.dumps([cell.get("outputs") for cell in cells])
        assert not [word for word in ("latency", "/tmp/", "/home/", str(ROOT.parent)) if word in said]


@pytest.mark.parametrize("place", [1, 40])
def test_the_first_notebook_follows_the_chosen_step_and_boundary(place):
    controls = {"place": SimpleNamespace(value=place), "boundary": SimpleNamespace(value="family")}
    outputs, defs = app_of(ROOT / "explore" / "01_import_and_nearest.py").run(defs=controls)
    assert defs["step"]["id"] == defs["held_out"]["id"][place - 1]
    assert defs["nearest"].table["boundary"].unique(maintain_order=True).to_list() == ["self", "family"]
    assert defs["nearest"].table.filter(boundary="family")["relation"].is_in(["identical call", "other task"]).all()
    assert "its family left out" in shown(outputs)


def test_the_session_notebook_shows_answers_refusals_and_a_checked_receipt():
    texts = ("Which e-mail did you use?", "  ", "Which e-mail did you use?")
    outputs, defs = app_of(ROOT / "explore" / "02_step_a_session.py").run(defs={"first_messages": texts})
    page = shown(outputs)
    assert [move.step is None for move in defs["stepper"].now.moves] == [False, True, False]
    assert '✗ refused</span> <span class="m">empty' in page
    assert page.count('<b class="ok">✓</b>') == 4
    assert len(defs["stepper"].now.session.transcript) == 4


def test_a_session_notebook_without_a_message_waits_and_has_retrieved_nothing():
    outputs, defs = app_of(ROOT / "explore" / "02_step_a_session.py").run()
    assert "No step yet: the session waits for the first message" in shown(outputs)
    assert "no receipt: nothing was retrieved" in shown(outputs)
    assert defs["costs"].title == "No step was taken: nothing was spent"
