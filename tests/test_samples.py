"""Every real file imports with the numbers that stand beside it; `python tests/test_samples.py` writes them again.

The tests of each family say how they were counted by hand.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from experiential_lab.evidence.corpus import Added, build_evidence
from experiential_lab.evidence.report import ImportReport
from experiential_lab.evidence.sources import Declared, read_file
from experiential_lab.records import LabError

PINNED = Path(__file__).parent / "sample_numbers.json"
NAMES = ("records", "records_rejected", "traces", "steps", "transitions", "pairing", "left_out", "set_aside")


def numbers(path: Path) -> dict[str, Any]:
    try:
        file = read_file(path, Declared())
    except LabError:
        return {"refused": True}
    corpus = build_evidence([file], None)
    report = ImportReport(Added(corpus, (file.info.digest,), None))
    assert report.conservation["holds"].all()
    for each in corpus.transitions:
        assert each.observation in ("", corpus.open(each.observation_span))
        corpus.open(each.action_span)
    return {"format": file.info.format, **{name: report.counts[name] for name in NAMES if report.counts[name]}}


def measured(samples: Path) -> dict[str, dict[str, Any]]:
    return {path.relative_to(samples).as_posix(): numbers(path) for path in sorted(samples.glob("*/*"))}


@pytest.fixture(scope="module")
def found(shared: Path) -> dict[str, dict[str, Any]]:
    return measured(shared / "samples")


def test_every_real_file_gives_its_numbers_and_each_span_opens(found: dict[str, dict[str, Any]]):
    assert found == json.loads(PINNED.read_text())


def test_no_file_of_the_formats_that_are_read_is_refused_but_those_that_are_no_traces(found: dict[str, dict[str, Any]]):
    refused = Counter(name.split("/")[0] for name, each in found.items() if "refused" in each)
    no_traces = {
        "codex-rollout": 1,
        "inspect-ai": 1,
        "openinference": 2,
    }  # exports, manifests, schemas
    assert refused == no_traces


if __name__ == "__main__":
    PINNED.write_text(json.dumps(measured(Path(sys.argv[1])), indent=1, sort_keys=True) + "\n")
