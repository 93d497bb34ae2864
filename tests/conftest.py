"""What all tests share: where the design's real files are, and how many examples a property is tried on."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

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
