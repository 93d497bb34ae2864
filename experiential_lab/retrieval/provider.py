"""Embeddings of an OpenAI-compatible provider: asked for once, billed, checked whole, and kept.

- `OpenAIEmbedder` sends one request a call and never retries. An answer that fails in any way is refused whole, by a
  ProviderError that names the fault and what was billed. Items may come in any order; their index says where they belong.
- `KeptEmbedder` keeps the answer to each batch in a store before it asks for the next one, by snapshot and text. A run
  that is cut off pays again for nothing that was kept; an equal text is asked for once.

Not covered: whether a provider's model stays what its name says. What is kept for a text outlives the source that the text
came from: it holds the digest of the text and a vector, no text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from sys import float_info
from typing import Any, Literal

import msgspec
import numpy as np

from experiential_lab.records import (
    FREE,
    Cost,
    IntegrityError,
    Json,
    LimitError,
    ProviderError,
    Record,
    digest,
    digest_of,
)
from experiential_lab.retrieval.embedders import (
    Array,
    Embedded,
    Embedder,
    EmbedderSnapshot,
    check_snapshot,
    check_unicode,
    parameters_digest,
    quantisation_of,
    quantised,
)
from experiential_lab.store import Store

BATCH = 128  # texts of one kept request
REQUEST_TEXTS = 2048  # the most that the provider's interface takes at once

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
        check_unicode(texts)
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
        check_unicode(texts)
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
