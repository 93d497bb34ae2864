"""The law of the house: imports go down the list only, and nothing reaches for what stands beside or above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "experiential_lab"
# From the ground up. Names on one line do not see each other, but for the ground floor, whose order is its own.
FLOORS = (
    ("records",),
    ("store", "metrics", "statistics", "clients", "engine"),
    ("evidence",),
    ("retrieval",),
    ("world",),
    ("evaluation",),
    ("claims",),
    ("show",),
    ("lookup",),
    ("lab",),
    ("tour", "bench"),
    ("cli",),
    ("__init__", "__main__"),
)
BESIDE = {"pages": ("evidence", {"claims", "show", "lookup", "lab", "tour", "cli"})}
NOBODY_IMPORTS = ("testing",)
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """The rooms that a module names in its imports, at any depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [
                f"{node.module}.{alias.name}" if node.module == "experiential_lab" else node.module or ""
                for alias in node.names
            ]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("experiential_lab.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_the_list_only(path: Path):
    room = room_of(path)
    for other in imported_rooms(path) - {room}:
        assert other not in NOBODY_IMPORTS, f"{room} imports {other}, which only users and tests import"
        if room in NOBODY_IMPORTS:
            continue
        assert other in FLOOR, f"{room} imports {other}, which is no room of the house"
        assert FLOOR[other] < FLOOR[room], f"{room} imports {other}, which stands above or beside it"


def test_every_room_has_its_floor():
    assert {room_of(path) for path in MODULES} - set(NOBODY_IMPORTS) <= set(FLOOR) | set(BESIDE)


def test_no_module_imports_for_type_checkers_alone():
    assert [path for path in MODULES if "TYPE_CHECKING" in path.read_text()] == []


def test_importing_the_package_loads_no_client_no_plots_and_no_notebooks():
    code = (
        "import sys, experiential_lab as xl; xl.Lab; "
        "print(sorted({'openai', 'plotly', 'marimo', 'jupyterlab', 'ray', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_no_frame_is_grouped_without_a_kept_order():
    """Grouping with two threads gives the groups in another order each time, and other bytes with them."""
    bare = [
        path
        for path in MODULES
        for line in path.read_text().splitlines()
        if "group_by(" in line and "maintain_order=True" not in line
    ]
    assert bare == []
