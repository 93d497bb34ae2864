"""What all tests share: where the design's real files are, and how many examples a property is tried on."""

import io
import os
import sys
from pathlib import Path

import pytest
from cli_cases import Ran, Xlab
from hypothesis import settings

from experiential_lab import cli
from experiential_lab.cli import screen

SHARED = Path(os.environ.get("EXPERIENTIAL_LAB_SHARED", Path(__file__).parent.parent.parent / "shared"))
DEEP = os.environ.get("EXPERIENTIAL_LAB_DEEP") == "1"

settings.register_profile("quick", deadline=None, max_examples=100)
settings.register_profile("deep", deadline=None, max_examples=2_000)
settings.load_profile("deep" if DEEP else "quick")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real trace files and fault shapes; not part of a checkout."""
    if not SHARED.is_dir():
        pytest.skip("needs the real trace files of the design, which are not part of a checkout")
    return SHARED


@pytest.fixture(scope="session")
def airline(shared: Path) -> Path:
    return shared / "samples" / "tau-bench" / "gpt-4o-airline.json"


@pytest.fixture
def xlab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Xlab:
    """Runs one command in a folder of its own, as the installed script does."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, stdin: str = "", width: int = 140) -> Ran:
        monkeypatch.setattr(sys, "argv", ["xlab", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        for console in (screen.out, screen.err):
            monkeypatch.setattr(console, "_width", width)
        with pytest.raises(SystemExit) as end:
            cli.main()
        return Ran(end.value.code or 0, *capsys.readouterr())

    return run
