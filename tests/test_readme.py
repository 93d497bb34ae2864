"""What the README says can be typed works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from evidence_cases import lines
from test_layers import FLOORS, MODULES, room_of

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.spans import open_span
from experiential_lab.evidence.transitions import ledger_of
from experiential_lab.records import digest_of
from experiential_lab.retrieval.choice import CANDIDATES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "data").symlink_to(ROOT / "data")
    return tmp_path


def test_the_five_commands_run_in_order(place: Path):
    script = next(block for block in blocks("sh") if "xlab import" in block)
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", f'PATH="{scripts}:$PATH"\n{script}'],
        cwd=place,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "all sums hold" in done.stdout
    assert "predicted" in done.stdout


def test_the_lines_on_retrieval_run_after_the_five_and_their_numbers_are_printed(place: Path):
    five, more = (next(block for block in blocks("sh") if said in block) for said in ("xlab import", "receipts replay"))
    done = subprocess.run(
        [
            "bash",
            "-e",
            "-o",
            "pipefail",
            "-c",
            f'PATH="{Path(sys.executable).parent}:$PATH"\n{five}\necho ======\n{more}',
        ],
        cwd=place,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.partition("======\n")[2]
    assert "245 of 254 fit entries may be asked" in shown
    assert "receipt 28638c05" in shown
    assert "✓ replayed" in shown
    assert "17 fit families" in shown
    assert len(CANDIDATES) + 1 == 12


@pytest.mark.parametrize(
    ("notebook", "printed", "told"),
    [
        ("exclusion", "of 357 lists of 10 differ: view, counted anew 0, bm25s, weight mask 53", "bm25s changes 53"),
        ("exclusion", "SQLite FTS5, WHERE 54", "full-text search 54"),
        ("receipts", "100 visible  reference        8,197 bytes", "8,197 bytes"),
        ("receipts", "1,000,000 visible  reference        8,245 bytes", "8,245 over a million"),
    ],
)
def test_the_numbers_of_retrieval_stand_in_the_notebook_that_is_named(notebook: str, printed: str, told: str):
    assert printed in (ROOT / "notebooks" / "figures" / f"{notebook}.ipynb").read_text()
    assert told in README.replace("\n", " ")


def test_the_readme_names_every_notebook_of_figures():
    for path in (ROOT / "notebooks" / "figures").glob("*.ipynb"):
        assert f"`{path.stem}`" in README


def test_the_ten_lines_run(place: Path):
    (code,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", code + "\nprint(step.support)"], cwd=place, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() in ("A", "B", "C")


def test_the_two_commands_are_targets_of_the_makefile_and_ci_calls_the_second():
    makefile = (ROOT / "Makefile").read_text()
    for target in ("tour", "test", "notebooks", "figures", "deep"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make tour" in README
    assert "make test" in README
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("make test")


def test_the_numbers_of_the_airline_file_are_those_that_the_test_of_the_command_asserts():
    for number in ("2,454", "2,425", "1,020", "144", "1,261", "29"):
        assert number in README


def test_every_test_file_that_contributing_names_exists():
    named = re.findall(r"`(tests/\w+\.py)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_format_that_contributing_shows_reads_pairs_and_rejects():
    code = re.search(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    module: dict[str, object] = {}
    exec(code[1], module)  # our own document
    rows = [{"question": "who?", "answer": "Ada", "reply": "thanks"}, {"other": 1}]
    (format,) = module["FORMATS"]
    data = lines(*rows)
    found = format.read(Source(digest_of(data), "runs.jsonl", frame(data)))
    (step,) = ledger_of(found.traces[0]).transitions
    assert (step.task, step.action.text, step.observation, step.pairing) == ("who?", "Ada", "thanks", "user_reply")
    assert [(row.record, row.reason) for row in found.rejected] == [(2, "unknown_shape")]
    assert [format.sniff(row) for row in rows] == ["objects with a question", None]
    assert open_span(data, step.action_span) == "Ada"


def test_contributing_names_every_room_that_stands_in_the_order_of_the_house():
    (told,) = re.findall(r"`(records < [^`]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    standing = {room_of(path) for path in MODULES}
    floors = [[room for room in rooms if room in standing and not room.startswith("__")] for rooms in FLOORS]
    assert [floor.split(", ") for floor in told.split(" < ")] == [floor for floor in floors if floor]
