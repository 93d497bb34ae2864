"""Texts become integer vectors, and each embedder says exactly which space its vectors lie in.

- A vector is int8 within `bound_of(d)`. Numbers are quantised once, here: fixed point, scaled to one Euclidean length,
  rounded half to even, clipped; each step is one IEEE operation or an integer sum. No result depends on CPU, BLAS,
  threads, or on what else is in the batch. A text without any feature, such as the empty one, is zeros.
- `EmbedderSnapshot` names the space. `check_snapshot` refuses another one and names both.
- `HashedEmbedder` is the default: words, and every window of five bytes across word borders, by signed hashing (Weinberger
  et al. 2009, arXiv:0902.2206). It has learned from nothing, so no corpus leaks into it.
- `SemanticEmbedder` averages learned word vectors. Both run here, for nothing; `local_embedder` finds one by its snapshot.

Not covered: embedders of a provider, which are in `provider.py`; whether near vectors mean the same.
"""

import logging
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from experiential_lab.records import (
    FREE,
    Cost,
    IntegrityError,
    Json,
    Record,
    UnsupportedError,
    UsageError,
    canonical_json,
    digest,
    digest_of,
)
from experiential_lab.retrieval.dense import bound_of
from experiential_lab.retrieval.sparse import FRAME, WORD

Array = NDArray[Any]

DIMENSION = 256
HASHED = ("gram5", "word")  # features of the default embedder, as the sparse ranker cuts them
FIXED_POINT = 1 << 20  # steps from zero to the greatest component of a vector of floats

_BYTE = (np.arange(1, 257, dtype=np.uint32) * np.uint32(0x9E3779B1)) ^ np.uint32(0xB8FE6C39)
_BYTE = _BYTE * (_BYTE >> np.uint32(15) | np.uint32(1))
_WORD_SALT = np.uint32(0x5BD1E995)  # a word of one letter is another feature than that letter's byte alone
_BLOCK_TEXTS = 256  # whose counts are held at once


class Quantisation(Record, kw_only=True):
    """How numbers became int8: scaled to Euclidean length `length`, rounded half to even, clipped to +-`bound`."""

    bound: int
    length: int


class EmbedderSnapshot(Record, kw_only=True):
    """The exact space that vectors lie in: two snapshots that differ anywhere are two spaces."""

    provider: str
    model: str
    """What is asked for by name."""
    revision: str
    """Exact weights or code; of a provider, the model name that every answer must carry."""
    dimension: int
    quantisation: Quantisation
    parameters_digest: str
    """`parameters_digest` of all that is set beside the text."""
    capabilities_digest: str
    """Digest of what the model was said to be able to do (input limit, languages); whoever makes the snapshot says it."""


class Embedded(NamedTuple):
    vectors: Array  # (n, d) int8
    cost: Cost


class Embedder(Protocol):
    @property
    def snapshot(self) -> EmbedderSnapshot: ...

    def embed(self, texts: Sequence[str]) -> Array:
        """(n, d) int8, one row a text."""

    def embed_billed(self, texts: Sequence[str]) -> Embedded:
        """The same with what it cost."""


def check_snapshot(have: EmbedderSnapshot, asked: EmbedderSnapshot) -> None:
    """Return when vectors of `have`, which are there, may be compared with vectors of `asked`.

    Raises:
        IntegrityError: they differ; each field that does is named with both values.
    """
    pairs = [(name, getattr(have, name), getattr(asked, name)) for name in EmbedderSnapshot.__struct_fields__]
    differ = [f"{name} {one!r} and {other!r}" for name, one, other in pairs if one != other]
    if differ:
        raise IntegrityError(
            f"the vectors were made by {have.provider} {have.model} ({digest(have)}), asked with "
            f"{asked.provider} {asked.model} ({digest(asked)}); they differ in {'; '.join(differ)}: "
            "give the embedder that made them, or build the index again"
        )


def parameters_digest(parameters: Mapping[str, Json]) -> str:
    """The digest of what is set beside the text, in one spelling."""
    return digest_of(canonical_json(dict(parameters)).encode())


def quantisation_of(dimension: int) -> Quantisation:
    """For dense vectors of floats: a component of one standard deviation becomes a quarter of the bound.

    Long vectors round less; components beyond four deviations are clipped.
    """
    bound = bound_of(dimension)
    return Quantisation(bound=bound, length=isqrt(bound * bound * dimension // 16))


def quantised(numbers: Array, quantisation: Quantisation) -> Array:
    """(n, d) int8 from (n, d) finite numbers, each row by itself; a row of zeros stays zero."""
    whole = numbers if numbers.dtype == np.int64 else _fixed_point(numbers)
    squares = np.einsum("ij,ij->i", whole, whole)  # (n,) int64, exact
    scale = quantisation.length / np.sqrt(squares.clip(min=1).astype(np.float64))
    scaled = np.multiply(whole, scale[:, np.newaxis])
    np.rint(scaled, out=scaled)
    if quantisation.length > quantisation.bound:  # else no component can be longer than its vector
        np.clip(scaled, -quantisation.bound, quantisation.bound, out=scaled)
    vectors: Array = scaled.astype(np.int8)
    return vectors


def _fixed_point(numbers: Array) -> Array:
    """(n, d) int64; the greatest component of each row becomes FIXED_POINT, so that sums of squares are exact."""
    greatest = np.abs(numbers).max(axis=1, keepdims=True, initial=0)
    return np.rint(numbers / np.where(greatest, greatest, 1) * FIXED_POINT).astype(np.int64)


class HashedEmbedder:
    """Signed counts of hashed features; the same vectors on every machine, for nothing."""

    def __init__(self, dimension: int = DIMENSION) -> None:
        bound = bound_of(dimension)
        capabilities: dict[str, Json] = {"deterministic": True, "input_limit": None, "learned": False}
        self.snapshot = EmbedderSnapshot(
            provider="experiential_lab",
            model="hashed",
            revision="1",
            dimension=dimension,
            quantisation=Quantisation(bound=bound, length=bound),  # one feature alone is not clipped
            parameters_digest=parameters_digest({"features": list(HASHED), "unicode": unicodedata.unidata_version}),
            capabilities_digest=parameters_digest(capabilities),
        )

    def embed(self, texts: Sequence[str]) -> Array:
        """(n, d) int8, one row a text."""
        vectors = np.zeros((len(texts), self.snapshot.dimension), np.int8)
        for start in range(0, len(texts), _BLOCK_TEXTS):
            block = texts[start : start + _BLOCK_TEXTS]
            counts = signed_counts(block, self.snapshot.dimension)
            vectors[start : start + len(block)] = quantised(counts, self.snapshot.quantisation)
        return vectors

    def embed_billed(self, texts: Sequence[str]) -> Embedded:
        """The same; it costs nothing."""
        return Embedded(self.embed(texts), FREE)


def signed_counts(texts: Sequence[str], dimension: int) -> Array:
    """(n, dimension) int64: of each text, the features that fall to a component, each counted with its sign."""
    size = 2 * dimension  # slots of a text: one for each component and sign
    folded = [text.casefold() for text in texts]
    framed = _Framed.of(folded)
    spaced = framed if all(map(str.isascii, folded)) else _Framed.of([_spaced(text) for text in folded])
    row, hashed = (np.concatenate(pair) for pair in zip(_windows(framed), _words(spaced), strict=True))
    counts = _counted(row, hashed, len(texts), size)
    pairs = counts.reshape(len(texts), dimension, 2)
    return pairs[:, :, 0] - pairs[:, :, 1]


def _counted(row: Array, hashed: Array, rows: int, size: int) -> Array:
    """(rows * size,) int64: how often each slot is hit; a feature of row `rows` belongs to no text."""
    slot = hashed.astype(np.uint64) * np.uint64(size) >> np.uint64(32)
    return np.bincount(row * size + slot.view(np.int64), minlength=rows * size)[: rows * size]


def _spaced(text: str) -> str:
    return text if text.isascii() else re.sub(r"\W+", " ", text)  # curly quotes and dashes are no part of a word


class _Framed(NamedTuple):
    """Texts as UTF-8, end to end, each between two frames: no feature reaches from one into the next."""

    bytes: Array  # (m,) uint8
    ends: Array  # (n,) int64, where each framed text ends

    @classmethod
    def of(cls, texts: Sequence[str]) -> "_Framed":
        whole = (FRAME * 2).decode().join(texts).encode("utf-8", "surrogatepass")
        if len(whole) == sum(sizes := list(map(len, texts))) + 2 * len(FRAME) * (len(texts) - 1):  # one byte a letter
            lengths = np.array(sizes, np.int64)
        else:
            lengths = np.array([len(text.encode("utf-8", "surrogatepass")) for text in texts], np.int64)
        return cls(np.frombuffer(FRAME + whole + FRAME, np.uint8), np.cumsum(lengths + 2 * len(FRAME)))


def _windows(text: _Framed) -> tuple[Array, Array]:
    """(row int64, hash uint32) of every five bytes; those that reach into the next text are of row n."""
    data = text.bytes.astype(np.uint32)
    pair = data[:-1] | data[1:] << np.uint32(8)
    four = pair[:-2] | pair[2:] << np.uint32(16)
    hashed = _mixed(four[:-1] * np.uint32(0x9E3779B1) + data[4:] * np.uint32(0x85EBCA77))
    row = np.repeat(np.arange(len(text.ends)), np.diff(text.ends, prepend=0))[: len(hashed)]
    beyond = (text.ends[:-1, np.newaxis] - np.arange(1, 5)).ravel()
    row[beyond] = len(text.ends)
    return row, hashed


def _words(text: _Framed) -> tuple[Array, Array]:
    """(row int64, hash uint32) of every word."""
    inside = WORD[text.bytes]
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1  # where words begin and end, in turn: frames are no words
    if not len(edges):
        return np.zeros(0, np.int64), np.zeros(0, np.uint32)
    power, inverse = _powers(1 << len(text.bytes).bit_length())
    sums = np.add.reduceat(_BYTE[text.bytes] * power[: len(text.bytes)], edges, dtype=np.uint32)[
        ::2
    ]  # (w,) uint32, modulo 2**32
    first = edges[::2]
    return np.searchsorted(text.ends, first, side="right"), _mixed(sums * inverse[first] ^ _WORD_SALT)


def _mixed(hashed: Array) -> Array:
    """The 32-bit finaliser of MurmurHash3: every bit of the input moves every bit of the output."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed = (hashed ^ hashed >> np.uint32(shift)) * np.uint32(factor)
    mixed: Array = hashed ^ hashed >> np.uint32(16)
    return mixed


@lru_cache(4)
def _powers(size: int) -> tuple[Array, Array]:
    """(size,) uint32 each: powers from 0 of an odd base and of its inverse, modulo 2**32."""
    base = 0x9E3779B1
    power, inverse = (
        np.multiply.accumulate(np.append(np.uint32(1), np.full(size - 1, factor, np.uint32)), dtype=np.uint32)
        for factor in (base, pow(base, -1, 1 << 32))
    )
    return power, inverse


class HeldEmbedder:
    """Vectors that were made already, by their text: it asks nobody, and costs nothing."""

    def __init__(self, snapshot: EmbedderSnapshot, texts: Sequence[str], vectors: Array) -> None:
        """Hold `vectors`, (n, d) int8 of `snapshot`, one row a text."""
        self.snapshot = snapshot
        self._held = dict(zip(texts, vectors, strict=True))

    def embed(self, texts: Sequence[str]) -> Array:
        """(n, d) int8, one row a text.

        Raises:
            UsageError: a text has no vector here.
        """
        vectors = np.zeros((len(texts), self.snapshot.dimension), np.int8)
        for number, text in enumerate(texts):
            if text not in self._held:
                raise UsageError(f"no vector is held for text {number}; ask the embedder that made the others")
            vectors[number] = self._held[text]
        return vectors

    def embed_billed(self, texts: Sequence[str]) -> Embedded:
        """The same; it costs nothing."""
        return Embedded(self.embed(texts), FREE)


def check_unicode(texts: Sequence[str]) -> None:
    """Return when every text can be written as UTF-8.

    Raises:
        UsageError: one cannot.
    """
    for number, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"text {number} is no Unicode text and cannot be sent: {error}") from None


class SemanticEmbedder:
    """Averaged word vectors of the `wordllama` package (extra `semantic`), whose weights lie in its wheel: no download."""

    PROVIDER = "wordllama"

    def __init__(self) -> None:
        """Read the weights.

        Raises:
            UnsupportedError: the package, or its weights, are not installed.
        """
        try:
            self._model, files = _wordllama()
        except (ImportError, FileNotFoundError) as error:
            raise UnsupportedError(
                f"the semantic embedder needs wordllama with its weights: {error}; pip install 'experiential-lab[semantic]'"
            ) from None
        dimension = int(self._model.embedding.shape[1])
        self.snapshot = EmbedderSnapshot(
            provider=self.PROVIDER,
            model="l2_supercat_256",
            revision=" ".join([version("wordllama"), *(digest_of(file.read_bytes()) for file in files)]),
            dimension=dimension,
            quantisation=quantisation_of(dimension),
            parameters_digest=parameters_digest({"pooling": "mean", "tokenizers": version("tokenizers")}),
            capabilities_digest=parameters_digest({"deterministic": True, "input_limit": None, "learned": True}),
        )

    def embed(self, texts: Sequence[str]) -> Array:
        """(n, d) int8. One text at a time: a batch is padded to its longest text, and one long text would fill the memory.

        Raises:
            UsageError: a text is no Unicode.
        """
        check_unicode(texts)
        numbers = np.zeros((len(texts), self.snapshot.dimension), np.float64)
        for number, text in enumerate(texts):
            numbers[number] = self._model.embed([text])[0]
        return quantised(numbers, self.snapshot.quantisation)

    def embed_billed(self, texts: Sequence[str]) -> Embedded:
        """The same; it costs nothing."""
        return Embedded(self.embed(texts), FREE)


def _wordllama() -> tuple[Any, tuple[Path, Path]]:
    """The model, and the files that it was read from."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        wordllama = import_module("wordllama")
    finally:  # its import sets up logging for the whole process
        root.handlers[:] = handlers
        root.setLevel(level)
    folder = Path(str(wordllama.__file__)).parent
    files = (
        folder / "weights" / "l2_supercat_256.safetensors",
        folder / "tokenizers" / "l2_supercat_tokenizer_config.json",
    )
    return wordllama.WordLlama.load(disable_download=True, cache_dir=folder), files


def local_embedder(snapshot: EmbedderSnapshot) -> Embedder:
    """The embedder of that provider and model which runs here; its snapshot is still to be checked.

    Raises:
        UsageError: it is a provider's; or its package is not installed.
    """
    if snapshot.provider == "experiential_lab":
        return HashedEmbedder(snapshot.dimension)
    if snapshot.provider == SemanticEmbedder.PROVIDER:
        return SemanticEmbedder()
    raise UsageError(
        f"the vectors of this index were made by {snapshot.provider} {snapshot.model}; give its embedder, with a client"
    )
