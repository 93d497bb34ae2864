"""Texts become integer vectors, and each embedder says exactly which space its vectors lie in.

- A vector is int8 within `bound_of(d)`. Numbers are quantised once, here: fixed point, scaled to one Euclidean length,
  rounded half to even, clipped; each step is one IEEE operation or an integer sum. No result depends on CPU, BLAS,
  threads, or on what else is in the batch. A text without any feature, such as the empty one, is zeros.
- `EmbedderSnapshot` names the space. `check_snapshot` refuses another one and names both.
- `HashedEmbedder` is the default: words, and every window of five bytes across word borders, by signed hashing (Weinberger
  et al. 2009, arXiv:0902.2206). It has learned from nothing, so no corpus leaks into it.
- `OpenAIEmbedder` sends one request a call and never retries. An answer that fails in any way is refused whole, by a
  ProviderError that names the fault and what was billed. Items may come in any order; their index says where they belong.
- `KeptEmbedder` keeps the answer to each batch in a store before it asks for the next one, by snapshot and text. A run
  that is cut off pays again for nothing that was kept; an equal text is asked for once.

Not covered: whether a provider's model stays what its name says; whether near vectors mean the same. What is kept for a
text outlives the source that the text came from: it holds the digest of the text and a vector, no text.
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from math import isqrt
from pathlib import Path
from sys import float_info
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from experiential_lab.records import (
    FREE,
    Cost,
    IntegrityError,
    Json,
    LimitError,
    ProviderError,
    Record,
    UnsupportedError,
    UsageError,
    canonical_json,
    digest,
    digest_of,
)
from experiential_lab.retrieval.dense import bound_of
from experiential_lab.retrieval.sparse import FRAME, WORD
from experiential_lab.store import Store

Array = NDArray[Any]

DIMENSION = 256
HASHED = ("gram5", "word")  # features of the default embedder, as the sparse ranker cuts them
BATCH = 128  # texts of one kept request
REQUEST_TEXTS = 2048  # the most that the provider's interface takes at once
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


EmbeddingFault = Literal[
    "rate_limited", "server", "refused", "timeout", "connection", "not_json", "model", "count", "index",
    "dimension", "not_finite", "zero",
]  # fmt: skip


class EmbeddingError(ProviderError):
    """An embedding provider failed or gave what cannot be used. `fault` is one of EmbeddingFault; nothing of the answer was kept."""

    def __init__(self, fault: EmbeddingFault, message: str, cost: Cost | None = None) -> None:
        super().__init__(f"{fault}: {message}")
        self.fault = fault
        self.cost = cost or Cost()
        """What the failed request cost: an answer that is refused is billed all the same. Unknown without an answer."""


class OpenAIEmbedder:
    """Embeddings of an OpenAI-compatible provider, one request a call."""

    def __init__(
        self,
        client: Any,
        snapshot: EmbedderSnapshot,
        *,
        parameters: Mapping[str, Json] = {},
        token_nusd: int | None = None,
        timeout_s: float = 60,
    ) -> None:
        """Ask through `client`, an `openai.OpenAI`, for vectors of `snapshot`.

        `parameters` go into each request, `{"dimensions": 256}` for example. `token_nusd`: nano-dollars of one token.

        Raises:
            IntegrityError: the snapshot says other parameters, or another quantisation, than this embedder uses.
        """
        ours = msgspec.structs.replace(
            snapshot,
            parameters_digest=parameters_digest(parameters),
            quantisation=quantisation_of(snapshot.dimension),
        )
        check_snapshot(snapshot, ours)
        self.snapshot = snapshot
        self._client = client.with_options(max_retries=0)  # a retry could be billed twice, unseen
        self._parameters = dict(parameters)
        self._token_nusd = token_nusd
        self._timeout_s = timeout_s

    def embed(self, texts: Sequence[str]) -> Array:
        """(n, d) int8. Raises as `embed_billed` does."""
        return self.embed_billed(texts).vectors

    def embed_billed(self, texts: Sequence[str]) -> Embedded:
        """The vectors of at most REQUEST_TEXTS texts, and what they cost.

        Raises:
            LimitError: there are more; a KeptEmbedder asks for many.
            UsageError: a text is no Unicode.
            EmbeddingError: the provider failed, or its answer cannot be used.
        """
        if len(texts) > REQUEST_TEXTS:
            raise LimitError(
                f"{len(texts)} texts in one request, at most {REQUEST_TEXTS}: ask through a KeptEmbedder, which pays once"
            )
        _check_unicode(texts)
        asked = [number for number, text in enumerate(texts) if text]
        vectors = np.zeros((len(texts), self.snapshot.dimension), np.int8)
        if not asked:
            return Embedded(vectors, FREE)
        answer = self._request([texts[number] for number in asked])
        cost = _cost(answer, self._token_nusd)
        vectors[asked] = quantised(_numbers(answer, len(asked), self.snapshot, cost), self.snapshot.quantisation)
        return Embedded(vectors, cost)

    def _request(self, texts: list[str]) -> Any:
        import openai

        try:
            answer = self._client.embeddings.create(
                model=self.snapshot.model,
                input=texts,
                encoding_format="float",
                timeout=self._timeout_s,
                extra_body=self._parameters,
            )
        except openai.APITimeoutError:
            raise self._failed("timeout", f"no answer within {self._timeout_s} s") from None
        except openai.APIConnectionError as error:
            raise self._failed("connection", f"{error} {error.__cause__}") from None
        except openai.APIStatusError as error:
            raise self._failed(_status_fault(error.status_code), f"status {error.status_code}: {error}") from None
        except (openai.APIError, ValueError) as error:
            raise self._failed("not_json", f"an answer that cannot be read: {error}") from None
        if not isinstance(getattr(answer, "data", None), list):  # a page of HTML comes back as a text, without an error
            raise self._failed("not_json", f"an answer that is no list of embeddings: {str(answer)[:80]}")
        return answer

    def _failed(self, fault: EmbeddingFault, what: str) -> EmbeddingError:
        remedy = "mend the request" if fault == "refused" else "ask again later"
        name = f"{self.snapshot.provider} {self.snapshot.model}"
        return EmbeddingError(fault, f"{name} was asked for embeddings, and gave {what[:200]!r}; {remedy}")


def _status_fault(status: int) -> EmbeddingFault:
    return "rate_limited" if status == 429 else "server" if status >= 500 else "refused"


def _cost(answer: Any, token_nusd: int | None) -> Cost:
    tokens = getattr(getattr(answer, "usage", None), "total_tokens", None)
    if not isinstance(tokens, int) or tokens < 0:
        return Cost()
    usage = (("tokens", tokens),)
    if token_nusd is None:
        return Cost(usage=usage)
    return Cost(usage=usage, cost_nusd=tokens * token_nusd, basis="estimated")


def _numbers(answer: Any, count: int, snapshot: EmbedderSnapshot, cost: Cost) -> Array:
    """(count, d) float64 in the order of the texts.

    Raises:
        EmbeddingError: anything is not as asked for.
    """

    def check(holds: bool, fault: EmbeddingFault, asked: object, got: object) -> None:
        if not holds:
            raise EmbeddingError(
                fault, f"{snapshot.provider} {snapshot.model} was asked for {asked}, and gave {got}; nothing kept", cost
            )

    named, items = getattr(answer, "model", None), answer.data
    check(named == snapshot.revision, "model", f"model {snapshot.revision!r}", f"{named!r}")
    check(len(items) == count, "count", f"{count} vectors", len(items))
    places = [getattr(item, "index", None) for item in items]
    check({*map(repr, places)} == {*map(repr, range(count))}, "index", f"items 0 to {count - 1}", f"items {places[:9]}")
    numbers = np.empty((count, snapshot.dimension), np.float64)
    for place, item in zip(places, items, strict=True):
        vector: Any = getattr(item, "embedding", None)
        size = len(vector) if isinstance(vector, list) else type(vector).__name__
        check(size == snapshot.dimension, "dimension", f"{snapshot.dimension} numbers", f"{size} in item {place}")
        odd = [number for number in vector if not _is_finite(number)]
        check(not odd, "not_finite", "finite numbers", f"{odd[:1]} in item {place}")
        check(any(vector), "zero", "a direction", f"zeros alone in item {place}")
        numbers[place] = vector
    return numbers


def _is_finite(number: object) -> bool:
    # Compared, not converted: JSON has integers that no float holds.
    return isinstance(number, float | int) and not isinstance(number, bool) and abs(number) <= float_info.max


def _check_unicode(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"text {number} is no Unicode text and cannot be sent: {error}") from None


class KeptAnswers(Record, kw_only=True):
    """What one request gave, as it stands in a store."""

    snapshot: EmbedderSnapshot
    texts: tuple[str, ...]
    """Digest of each text as UTF-8."""
    vectors: bytes
    """(n, d) int8, row by row."""
    cost: Cost


class KeptEmbedder:
    """An embedder that pays for each text once. It writes into its store: for building, not for the queries of a session."""

    def __init__(self, embedder: Embedder, store: Store, *, batch: int = BATCH) -> None:
        """Ask `embedder` for what `store` does not hold yet, `batch` texts at a time."""
        self.snapshot = embedder.snapshot
        self._embedder = embedder
        self._store = store
        self._batch = batch

    def embed(self, texts: Sequence[str]) -> Array:
        """(n, d) int8. Raises as `embed_billed` does."""
        return self.embed_billed(texts).vectors

    def embed_billed(self, texts: Sequence[str]) -> Embedded:
        """The vectors, and what this call paid: nothing for what was kept.

        Raises:
            LabError: as the embedder and the store do; every answer before that is kept.
        """
        _check_unicode(texts)
        names = [digest_of(text.encode()) for text in texts]
        known = self._known(set(names))
        missing = {name: text for name, text in zip(names, texts, strict=True) if name not in known}
        costs = []
        for start in range(0, len(missing), self._batch):
            asked = dict(list(missing.items())[start : start + self._batch])
            answer = self._embedder.embed_billed(list(asked.values()))
            self._keep(tuple(asked), answer)
            known |= zip(asked, answer.vectors, strict=True)
            costs.append(answer.cost)
        vectors = np.zeros((len(texts), self.snapshot.dimension), np.int8)
        for number, name in enumerate(names):
            vectors[number] = known[name]
        return Embedded(vectors, total_of(costs))

    def spent(self) -> Cost:
        """What all answers cost that the store keeps for this snapshot, whoever asked."""
        return total_of(kept.cost for kept in self._answers())

    def _keep(self, names: tuple[str, ...], answer: Embedded) -> None:
        kept = KeptAnswers(snapshot=self.snapshot, texts=names, vectors=answer.vectors.tobytes(), cost=answer.cost)
        artifact = self._store.keep("embeddings", kept)
        self._store.append("artifact_kept", artifact=artifact, embedder=digest(self.snapshot))

    def _known(self, wanted: set[str]) -> dict[str, Array]:
        """The vectors of those of `wanted` texts that the store holds, by digest."""
        known: dict[str, Array] = {}
        for kept in self._answers():
            rows = np.frombuffer(kept.vectors, np.int8).reshape(len(kept.texts), self.snapshot.dimension)
            known |= {name: row for name, row in zip(kept.texts, rows, strict=True) if name in wanted}
        return known

    def _answers(self) -> Iterator[KeptAnswers]:
        gone = self._store.forgotten()
        for row in self._store.rows("artifact_kept"):
            artifact = str(row.fields["artifact"])
            if row.fields.get("embedder") == digest(self.snapshot) and artifact not in gone:
                yield self._checked(artifact)

    def _checked(self, artifact: str) -> KeptAnswers:
        kept = self._store.load(artifact, "embeddings", KeptAnswers)
        check_snapshot(kept.snapshot, self.snapshot)
        if len(kept.vectors) != (size := len(kept.texts) * self.snapshot.dimension):
            raise IntegrityError(f"{artifact} holds {len(kept.vectors)} bytes of vectors, its texts need {size}")
        return kept


def total_of(costs: Iterable[Cost]) -> Cost:
    """The sum; what is unknown of one is unknown of all. Of nothing: FREE."""
    given = list(costs)
    usages, money = [cost.usage for cost in given], [cost.cost_nusd for cost in given]
    counts: Counter[str] = Counter()
    for usage in usages:
        counts.update(dict(usage or ()))
    paid = {cost.basis for cost in given if cost.basis != "free"}
    known = None not in money
    return Cost(
        usage=None if None in usages else tuple(sorted(counts.items())),
        cost_nusd=sum(each or 0 for each in money) if known else None,
        basis="free" if not paid else paid.pop() if len(paid) == 1 else "estimated" if known else "unknown",
    )


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
        _check_unicode(texts)
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
