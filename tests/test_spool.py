"""Bytes of any length: short ones in memory, long ones in a folder that goes with what stands for it."""

import gc
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from experiential_lab.evidence import spool
from experiential_lab.evidence.spool import Held, Overflow, Spool, held_file
from experiential_lab.records import UsageError


@given(st.lists(st.binary(max_size=9), max_size=9), st.integers(-1, 9))
def test_what_was_written_is_read_again_wherever_it_is_held(pieces: list[bytes], short: int):
    whole = b"".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "SHORT", short)
        patch.setattr(spool, "PIECE", 2)
        overflow = Overflow()
        with Spool(overflow) as into:
            for piece in pieces:
                into.write(piece)
            held = into.held()
    assert isinstance(held.place, Path) == any(size > short for size in accumulate(map(len, pieces)))
    assert (held.bytes(), held.size_bytes) == (whole, len(whole))
    assert held.digest == "sha256:" + sha256(whole).hexdigest() == Held.of(whole).digest
    with held.open() as file:
        assert file.read() == whole


def test_the_folder_goes_with_the_overflow_and_is_not_made_for_short_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(spool.tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").write_bytes(b"12345")
    overflow = Overflow()
    held_file(tmp_path / "file", overflow)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    monkeypatch.setattr(spool, "SHORT", 3)
    assert held_file(tmp_path / "file", overflow).bytes() == b"12345"
    assert len(list(tmp_path.iterdir())) == 2
    del overflow
    gc.collect()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_what_does_not_fit_beside_the_others_goes_to_the_folder():
    overflow, held = Overflow(room=5), []
    for text in (b"123", b"456", b"78", b""):
        with Spool(overflow) as into:
            into.write(text)
            held.append(into.held())
    assert [isinstance(each.place, Path) for each in held] == [False, True, False, False]
    assert [each.bytes() for each in held] == [b"123", b"456", b"78", b""]


def test_a_full_disk_of_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(spool, "SHORT", 0)
    with (
        pytest.raises(UsageError, match="a temporary file cannot be written: No such file"),
        Spool(Overflow(str(tmp_path / "gone"))) as into,
    ):
        into.write(b"1")


def test_a_folder_of_temporary_files_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(spool.tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match=r"a temporary file cannot be written: No such file or directory; .* TMPDIR"):
        _ = Overflow().path
