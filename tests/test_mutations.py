"""Damaged records of every format: never a traceback, never a silent drop, and the sums hold on every input."""

import random
from pathlib import Path

import pytest
from conftest import DEEP

from experiential_lab.evidence.corpus import Added, build_evidence
from experiential_lab.evidence.report import ImportReport
from experiential_lab.evidence.sources import Declared, read_file
from experiential_lab.records import LabError

RECORDS = 100_000 if DEEP else 10_000
LARGEST = 60_000  # bytes of a file that is mutated: a large one only makes the same faults slower
WORDS = (
    b"null",
    b'""',
    b"[]",
    b"{}",
    b"0",
    b"-1e999",
    b"true",
    b'"\\ud800"',
    b"1" * 40,
    b"[" * 50,
    b'"',
    b"}",
    b"\n",
    b"\0",
    b"\xff",
)
TESTS = Path(__file__).parent


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The same file with one to three faults: a cut, a copy, a swap, a byte, or a foreign value in the place of one."""
    for _ in range(1 + int(3 * rng.random())):
        at, size = int(len(data) * rng.random()), int(40 * rng.random())
        match int(6 * rng.random()):
            case 0:
                data = data[:at] + data[at + size :]
            case 1:
                data = data[:at] + data[at : at + size] * 2 + data[at + size :]
            case 2:
                data = data[:at] + bytes([int(256 * rng.random())]) + data[at + 1 :]
            case 3:
                lines = data.split(b"\n")
                one, other = (int(len(lines) * rng.random()) for _ in range(2))
                lines[one], lines[other] = lines[other], lines[one]
                data = b"\n".join(lines)
            case 4:
                start = data.find(b":", at) + 1 or at
                end = min((e for e in (data.find(sign, start) for sign in (b",", b"}")) if e > 0), default=at)
                data = data[:start] + WORDS[int(len(WORDS) * rng.random())] + data[max(start, end) :]
            case _:
                data = data[:at] if rng.random() < 0.3 else data[at:] + data[:at]
    return data


def check(path: Path) -> int:
    """How many records were read. A refusal says so by one of our own errors."""
    try:
        file = read_file(path, Declared())
        corpus = build_evidence([file], None)
    except LabError:
        return 1
    report = ImportReport(Added(corpus, (file.info.digest,), None))
    counts = report.counts
    assert report.conservation["holds"].all()
    assert counts["records"] == counts["records_used"] + sum(counts["records_rejected"].values())
    assert counts["events"] == sum(counts["events_used"].values()) + sum(counts["set_aside"].values())
    assert counts["steps"] == counts["transitions"] + sum(counts["left_out"].values())
    assert counts["transitions"] == sum(counts["pairing"].values())
    for each in corpus.transitions:
        assert corpus.open(each.action_span) is not None
        assert each.observation in (
            "",
            corpus.open(each.observation_span),
        )  # without a text its place quotes the message
    return max(1, counts["records"])


def originals(folder: Path) -> list[Path]:
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and 0 < path.stat().st_size < LARGEST]
    return [path for path in found if path.suffix in (".json", ".jsonl", ".traj", ".eval", ".txt", ".zip")]


def run(paths: list[Path], scratch: Path, records: int) -> None:
    rng, seen = random.Random(7), 0
    while seen < records:
        for path in paths:
            damaged = scratch / f"mutated{path.suffix}"
            damaged.write_bytes(mutated(path.read_bytes(), rng))
            try:
                seen += check(damaged)
            except Exception:
                kept = scratch.parent / f"fails-{path.name}"
                kept.write_bytes(damaged.read_bytes())
                pytest.fail(f"a damaged {path.name} is kept as {kept}", pytrace=True)
            if seen >= records:
                return


def test_damaged_files_of_the_project_never_raise_and_their_sums_hold(tmp_path: Path):
    run(originals(TESTS / "data"), tmp_path, RECORDS // 2)


def test_damaged_real_files_never_raise_and_their_sums_hold(shared: Path, tmp_path: Path):
    run(originals(shared / "samples") + originals(shared / "cases"), tmp_path, RECORDS // 2)
