"""Bytes of any length: in memory while they are short, else in a file of a temporary folder.

- What is held has a digest and a size, and is read as often as it is asked for.
- A folder is made when the first long bytes come, and goes with the object that stands for it.

Not covered: checking. What is held was digested when it was written; whoever keeps it in a workspace digests it again.
"""

import io
import shutil
import tempfile
import weakref
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

from experiential_lab.records import UsageError, digest_of

SHORT = 16 << 20  # bytes of one thing that are held in memory
ROOM = 64 << 20  # bytes of all things together
PIECE = 1 << 20  # bytes that are read at once


class Held(NamedTuple):
    digest: str
    size_bytes: int
    place: bytes | Path

    @classmethod
    def of(cls, data: bytes) -> "Held":
        """Bytes that are in memory already."""
        return cls(digest_of(data), len(data), data)

    def bytes(self) -> bytes:
        """All of them."""
        return self.place if isinstance(self.place, bytes) else self.place.read_bytes()

    def open(self) -> BinaryIO:
        """A file to read them from; close it."""
        return io.BytesIO(self.place) if isinstance(self.place, bytes) else open(self.place, "rb", PIECE)


class Overflow:
    """A temporary folder for what is too long for memory. `path` says where, when another process shares it."""

    def __init__(self, path: str | None = None, *, room: int = ROOM) -> None:
        self._path = path
        self.room = room
        """Bytes that may still be held in memory."""

    @property
    def path(self) -> str:
        """The folder; made when it is first asked for.

        Raises:
            UsageError: none can be made.
        """
        if self._path is None:
            try:
                self._path = tempfile.mkdtemp(prefix="experiential-lab-")
            except OSError as error:
                raise _unwritable(error) from None
            weakref.finalize(self, shutil.rmtree, self._path, ignore_errors=True)
        return self._path


class Spool:
    """Takes bytes piece by piece; `held` ends it, and `with` closes what an error leaves open. Without an overflow everything stays in memory."""

    def __init__(self, overflow: Overflow | None) -> None:
        self._overflow = overflow
        self._pieces: list[bytes] = []
        self._waiting = self._size = 0
        self._digest = sha256()
        self._file: BinaryIO | None = None
        self._path = Path()

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, piece: bytes) -> None:
        """Adds a piece.

        Raises:
            UsageError: the disk of temporary files is full.
        """
        self._pieces.append(piece)
        self._digest.update(piece)
        self._size += len(piece)
        self._waiting += len(piece)
        if self._overflow and self._waiting > (SHORT if self._file is None else PIECE):
            self._spill()

    def held(self) -> Held:
        """What was written."""
        digest = "sha256:" + self._digest.hexdigest()
        if self._file is None and (self._overflow is None or self._size <= self._overflow.room):
            if self._overflow:
                self._overflow.room -= self._size
            return Held(digest, self._size, b"".join(self._pieces))
        self._spill()
        self.__exit__()
        return Held(digest, self._size, self._path)

    def _spill(self) -> None:
        assert self._overflow is not None
        try:
            if self._file is None:
                number, name = tempfile.mkstemp(dir=self._overflow.path)
                self._path, self._file = Path(name), open(number, "wb")  # noqa: SIM115  closed by `held`
            self._file.writelines(self._pieces)
        except OSError as error:
            raise _unwritable(error) from None
        self._pieces, self._waiting = [], 0


def _unwritable(error: OSError) -> UsageError:
    return UsageError(
        f"a temporary file cannot be written: {error.strerror}; free space, or set TMPDIR to another folder"
    )


def held_file(path: Path, overflow: Overflow | None) -> Held:
    """The bytes of a file as they are now: what is appended while it is read comes with the next import.

    Raises:
        OSError: the file cannot be read.
        UsageError: the disk of temporary files is full.
    """
    with open(path, "rb", 0) as file, Spool(overflow) as spool:
        while piece := file.read(PIECE):
            spool.write(piece)
        return spool.held()
