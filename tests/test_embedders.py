"""Texts become vectors of one exact space, the same on every machine; a provider is asked once and paid once."""

import logging
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from experiential_lab.records import FREE, Cost, IntegrityError, LimitError, UnsupportedError, UsageError, digest
from experiential_lab.retrieval.embedders import (
    DIMENSION,
    EmbedderSnapshot,
    HashedEmbedder,
    Quantisation,
    SemanticEmbedder,
    check_snapshot,
    parameters_digest,
    quantisation_of,
    quantised,
    signed_counts,
)
from experiential_lab.retrieval.provider import EmbeddingError, KeptAnswers, KeptEmbedder, OpenAIEmbedder, total_of
from experiential_lab.store import Store
from experiential_lab.testing import LoopbackServer

texts = st.text(alphabet="abcA_ 1.\né日İß’\ud800\0", max_size=24)
numbers = st.lists(st.lists(st.floats(-1e300, 1e300), min_size=6, max_size=6), min_size=1, max_size=5)
REQUIRED = os.environ.get("EXPERIENTIAL_LAB_REQUIRE_MODELS") == "1"

# Quantisation and snapshots


@settings(deadline=None, max_examples=200)
@given(numbers)
def test_a_row_is_quantised_by_itself_and_keeps_its_direction(rows):
    matrix, rule = np.array(rows), Quantisation(bound=127, length=127)
    vectors = quantised(matrix, rule)
    for row, vector in zip(matrix, vectors, strict=True):
        assert np.array_equal(quantised(row[np.newaxis], rule)[0], vector)
        length = math.hypot(*(row / (np.abs(row).max() or 1)))
        exact = row / (np.abs(row).max() or 1) / (length or 1) * 127
        assert np.abs(vector - exact).max() <= 0.501


def test_components_beyond_four_deviations_are_clipped_to_the_bound():
    one_hot = np.eye(3, 256)
    assert quantised(one_hot, quantisation_of(256)).max() == 127
    assert quantisation_of(256) == Quantisation(bound=127, length=508)
    assert quantisation_of(1536) == Quantisation(bound=104, length=1018)


def snapshot(**fields) -> EmbedderSnapshot:
    given = {
        "provider": "loopback",
        "model": "loopback-embedding",
        "revision": "loopback-embedding",
        "dimension": 8,
        "quantisation": quantisation_of(8),
        "parameters_digest": parameters_digest({}),
        "capabilities_digest": parameters_digest({"input_limit": None}),
    }
    return EmbedderSnapshot(**given | fields)


@pytest.mark.parametrize("field", EmbedderSnapshot.__struct_fields__)
def test_a_snapshot_that_differs_anywhere_is_refused_with_both_named(field):
    other = {"dimension": 9, "quantisation": Quantisation(bound=1, length=2)}.get(field, "another")
    have, asked = snapshot(), snapshot(**{field: other})
    check_snapshot(have, have)
    with pytest.raises(IntegrityError) as refused:
        check_snapshot(have, asked)
    for said in (
        digest(have),
        digest(asked),
        f"{field} {getattr(have, field)!r} and {other!r}",
        "build the index again",
    ):
        assert said in str(refused.value)


def test_a_snapshot_survives_its_bytes():
    made = HashedEmbedder().snapshot
    assert msgspec.json.decode(msgspec.json.encode(made), type=EmbedderSnapshot) == made
    assert (made.dimension, made.quantisation) == (DIMENSION, Quantisation(bound=127, length=127))


# The hashed embedder


def slow_counts(text: str, dimension: int) -> list[int]:
    """The definition, in Python integers."""
    counts, folded = [0] * dimension, text.casefold()
    framed = b"\n\n" + folded.encode("utf-8", "surrogatepass") + b"\n\n"
    raw = [int.from_bytes(framed[i : i + 5], "little") for i in range(len(framed) - 4)]
    hashes = [mixed((five % (1 << 32)) * 0x9E3779B1 + (five >> 32) * 0x85EBCA77) for five in raw]
    for word in re.findall(r"\w+", re.sub(r"\W+", " ", folded)):
        total = sum(
            byte_code(b) * pow(0x9E3779B1, i, 1 << 32) for i, b in enumerate(word.encode("utf-8", "surrogatepass"))
        )
        hashes.append(mixed(total % (1 << 32) ^ 0x5BD1E995))
    for hashed in hashes:
        slot = hashed * 2 * dimension >> 32
        counts[slot // 2] += -1 if slot % 2 else 1
    return counts


def byte_code(byte: int) -> int:
    code = (byte + 1) * 0x9E3779B1 % (1 << 32) ^ 0xB8FE6C39
    return code * (code >> 15 | 1) % (1 << 32)


def mixed(x: int) -> int:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x % (1 << 32) ^ x % (1 << 32) >> shift) * factor % (1 << 32)
    return x ^ x >> 16


@settings(deadline=None, max_examples=200)
@given(st.lists(texts, max_size=8), st.sampled_from([1, 7, 256]))
def test_counts_are_those_of_the_definition_whatever_the_batch(many, dimension):
    assert signed_counts(many, dimension).tolist() == [slow_counts(text, dimension) for text in many]


@settings(deadline=None, max_examples=50)
@given(st.lists(texts, max_size=300), st.randoms())
def test_a_vector_does_not_depend_on_its_batch_or_its_place(many, random):
    embedder, order = HashedEmbedder(), list(range(len(many)))
    random.shuffle(order)
    vectors = embedder.embed(many)
    assert vectors.shape == (len(many), DIMENSION)
    assert np.array_equal(embedder.embed([many[i] for i in order]), vectors[order])
    assert all(np.array_equal(embedder.embed([text])[0], row) for text, row in zip(many[:5], vectors, strict=False))


def test_a_text_without_any_feature_is_a_vector_of_zeros_and_others_have_one_length():
    vectors = HashedEmbedder().embed(["", "x", "refund my order", "order " * 500]).astype(int)
    lengths = np.sqrt((vectors**2).sum(1))
    assert lengths[0] == 0
    assert all(abs(length - 127) < 5 for length in lengths[1:])


def test_a_text_is_nearest_itself_then_what_shares_its_words_and_windows():
    rows = (
        HashedEmbedder().embed(['find_order {"id": "A7"}', 'find_order {"id": "B2"}', "Thank you, goodbye"]).astype(int)
    )
    scores = (rows @ rows[0]).tolist()
    assert scores[0] > scores[1] > 4 * abs(scores[2])


def test_the_hashed_embedder_costs_nothing_and_threads_never_show():
    many = [f"call {i} of step {i % 7}" for i in range(400)]
    embedder = HashedEmbedder()
    vectors, cost = embedder.embed_billed(many)
    assert cost == FREE
    with ThreadPoolExecutor(8) as pool:
        assert np.array_equal(np.vstack(list(pool.map(lambda text: embedder.embed([text]), many))), vectors)


ONE_DIGEST = """
import hashlib, numpy as np
from experiential_lab.retrieval.dense import Vectors, nearest_of
from experiential_lab.retrieval.embedders import HashedEmbedder
texts = [f"call {i % 97} of step {i} in {i * i % 1009}" for i in range(3000)]
rows = HashedEmbedder().embed(texts)
vectors, made = Vectors(rows, np.arange(len(rows))), hashlib.sha256(rows.tobytes())
for size in (1, 7, 64):
    found = [hits for start in range(0, 64, size) for hits in nearest_of(vectors, rows[start:start + size][:64 - start], 9)]
    made.update(hashlib.sha256(repr(found).encode()).digest())
    first = first if size > 1 else found
    assert found == first
print(made.hexdigest())
"""


def test_one_digest_over_kernels_threads_batches_and_instruction_sets():
    seen = set()
    for core, threads, without in (
        ("Prescott", 1, "X86_V3 X86_V4"),
        ("Nehalem", 2, ""),
        ("Haswell", 1, ""),
        ("", 2, ""),
    ):
        kernel = {"OPENBLAS_CORETYPE": core} if core else {}
        disabled = {"NPY_DISABLE_CPU_FEATURES": without} if without and _honoured(without) else {}
        env = os.environ | kernel | disabled | {"OPENBLAS_NUM_THREADS": str(threads), "PYTHONHASHSEED": str(threads)}
        done = subprocess.run([sys.executable, "-c", ONE_DIGEST], env=env, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1


def _honoured(features: str) -> bool:
    """Whether this build of numpy has code paths of that name to switch off; else it warns."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return all(feature in found for feature in features.split())


# The provider


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture
def embedder(server) -> Iterator[OpenAIEmbedder]:
    openai = pytest.importorskip("openai", reason="needs the extra `openai`")
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=5) as client:
        yield OpenAIEmbedder(client, snapshot(), token_nusd=20, timeout_s=0.5)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / ".lab", create=True, actor="tester")


MANY = [f"text number {i}" for i in range(10)]


def test_a_provider_gives_integer_vectors_and_what_they_cost(server, embedder):
    vectors, cost = embedder.embed_billed(["where is it", "", "where is it now"])
    assert (vectors.dtype, vectors.shape, vectors[1].any()) == (np.int8, (3, 8), False)
    assert cost == Cost(
        usage=(("tokens", server.billed_tokens),), cost_nusd=20 * server.billed_tokens, basis="estimated"
    )
    [asked] = server.asked
    assert asked == {
        "model": "loopback-embedding",
        "input": ["where is it", "where is it now"],
        "encoding_format": "float",
    }


FAULTS = {
    "status_429": ("rate_limited", "status 429"),
    "status_500": ("server", "status 500"),
    "silence": ("timeout", r"within 0\.5 s"),
    "drop": ("connection", "without sending complete message body"),
    "html": ("not_json", "<html>"),
    "cut_json": ("not_json", "cannot be read"),
    "dimension": ("dimension", "asked for 8 numbers, and gave 7 in item 9"),
    "nan": ("not_finite", r"finite numbers, and gave \[nan\] in item 9"),
    "infinite": ("not_finite", r"finite numbers, and gave \[inf\] in item 9"),
    "zero": ("zero", "asked for a direction, and gave zeros alone in item 9"),
    "model": ("model", "asked for model 'loopback-embedding', and gave 'another-model'"),
    "count": ("count", "asked for 10 vectors, and gave 9"),
    "same_index": ("index", r"asked for items 0 to 9, and gave items \[0, 1,"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_asked_once_and_nothing_of_it_is_kept(fault, server, embedder, store):
    server.faults = [fault]
    name, said = FAULTS[fault]
    before = store.rows()
    with pytest.raises(EmbeddingError, match=said) as failed:
        KeptEmbedder(embedder, store).embed(MANY)
    assert (failed.value.fault, failed.value.exit_code, server.requests) == (name, 6, 1)
    assert store.rows() == before
    answered = name in ("dimension", "not_finite", "zero", "model", "count", "index")
    billed = (("tokens", server.billed_tokens),) if answered else None
    assert failed.value.cost.usage == billed


def test_items_out_of_order_are_put_where_their_index_says(server, embedder):
    straight = embedder.embed(MANY)
    server.faults = ["disorder"]
    assert np.array_equal(embedder.embed(MANY), straight)


def test_usage_that_was_not_told_is_unknown_not_zero(server, embedder):
    server.faults = ["no_usage"]
    assert embedder.embed_billed(MANY).cost == Cost()


def test_an_unknown_model_is_refused_and_no_request_is_sent_for_nothing(server, embedder):
    other = OpenAIEmbedder(embedder._client, snapshot(model="gone", revision="gone"))
    with pytest.raises(EmbeddingError, match=r"^refused: .*status 404.*no such model: gone.*mend the request"):
        other.embed(["x"])
    assert embedder.embed_billed(["", ""]).cost == FREE
    assert server.requests == 1


def test_what_cannot_be_sent_is_refused_before_anything_is_asked(server, embedder, store):
    with pytest.raises(UsageError, match="text 1 is no Unicode"):
        embedder.embed(["a", "\ud800"])
    with pytest.raises(UsageError, match="text 1 is no Unicode"):
        KeptEmbedder(embedder, store, batch=1).embed(["a", "\ud800"])
    with pytest.raises(LimitError, match="2049 texts in one request, at most 2048"):
        embedder.embed(["a"] * 2049)
    assert server.requests == 0


def test_parameters_are_sent_and_must_be_those_of_the_snapshot(server, embedder):
    parameters = {"dimensions": 8}
    with pytest.raises(IntegrityError, match="parameters_digest"):
        OpenAIEmbedder(embedder._client, snapshot(), parameters=parameters)
    with pytest.raises(IntegrityError, match=r"bound=1, .*bound=127"):
        OpenAIEmbedder(embedder._client, snapshot(quantisation=Quantisation(bound=1, length=1)))
    exact = snapshot(parameters_digest=parameters_digest(parameters))
    OpenAIEmbedder(embedder._client, exact, parameters=parameters).embed(["x"])
    assert server.asked[0]["dimensions"] == 8


# What is paid is kept


def test_a_run_that_is_cut_off_pays_only_for_what_is_missing(server, embedder, store):
    whole = embedder.embed_billed(MANY)
    once, server.billed_tokens, server.requests = server.billed_tokens, 0, 0
    server.faults = [None, None, "status_500"]
    with pytest.raises(EmbeddingError):
        KeptEmbedder(embedder, store, batch=3).embed(MANY)
    paid = server.billed_tokens
    assert 0 < paid < once
    vectors, cost = KeptEmbedder(embedder, Store.open(store.path), batch=3).embed_billed(MANY)
    assert np.array_equal(vectors, whole.vectors)
    assert cost.usage == (("tokens", once - paid),)
    assert (server.billed_tokens, server.requests) == (once, 5)
    assert KeptEmbedder(embedder, store).spent() == whole.cost


def test_what_is_kept_is_found_by_text_whatever_is_asked_beside_it(server, embedder, store):
    kept = KeptEmbedder(embedder, store, batch=4)
    kept.embed(MANY)
    vectors, cost = kept.embed_billed(["new", *MANY[7:2:-1], "new", ""])
    assert server.asked[-1]["input"] == ["new"]
    assert cost.usage == (("tokens", 1),)
    assert np.array_equal(vectors, embedder.embed(["new", *MANY[7:2:-1], "new", ""]))


def test_another_snapshot_finds_nothing_that_is_kept(server, embedder, store):
    KeptEmbedder(embedder, store).embed(MANY)
    other = OpenAIEmbedder(embedder._client, snapshot(capabilities_digest=parameters_digest({"input_limit": 512})))
    KeptEmbedder(other, store).embed(MANY)
    assert server.requests == 2


def test_a_kept_answer_that_was_changed_is_found(embedder, store):
    KeptEmbedder(embedder, store).embed(MANY)
    [row] = store.rows("artifact_kept")
    blob = store.path_of(row.fields["artifact"])
    blob.write_bytes(blob.read_bytes().replace(b'"cost_nusd":', b'"cost_nusd" :'))
    with pytest.raises(IntegrityError, match=row.fields["artifact"]):
        KeptEmbedder(embedder, store).embed(MANY)


def test_a_kept_answer_that_is_not_what_the_log_says_is_refused(embedder, store):
    for made, said in (
        (snapshot(revision="other"), "revision 'other'"),
        (snapshot(), "holds 7 bytes of vectors, its texts need 8"),
    ):
        answers = KeptAnswers(snapshot=made, texts=("0" * 64,), vectors=b"\1" * 7, cost=FREE)
        row = store.append(
            "artifact_kept", artifact=store.keep("embeddings", answers), embedder=digest(embedder.snapshot)
        )
        with pytest.raises(IntegrityError, match=said):
            KeptEmbedder(embedder, store).embed(MANY)
        store.forget(row.fields["artifact"], why="a test")


def test_the_store_verifies_with_what_is_kept_and_what_is_forgotten_is_asked_for_again(server, embedder, store):
    KeptEmbedder(embedder, store).embed(MANY)
    assert store.verify().ok
    store.forget(store.rows("artifact_kept")[0].fields["artifact"], why="a test")
    KeptEmbedder(embedder, store).embed(MANY)
    assert server.requests == 2
    assert store.verify().ok


def test_a_sum_of_costs_keeps_what_is_unknown_unknown():
    paid = Cost(usage=(("tokens", 3),), cost_nusd=60, basis="estimated")
    assert total_of([]) == FREE
    assert total_of([paid, FREE, paid]) == Cost(usage=(("tokens", 6),), cost_nusd=120, basis="estimated")
    assert total_of([paid, Cost()]) == Cost()
    assert total_of([paid, Cost(usage=(("tokens", 1),))]) == Cost(usage=(("tokens", 4),))


# The semantic embedder


@pytest.fixture(scope="module")
def semantic() -> SemanticEmbedder:
    try:
        return SemanticEmbedder()
    except UnsupportedError as missing:
        if REQUIRED:
            raise
        pytest.skip(str(missing))


def test_the_semantic_embedder_sees_that_other_words_mean_the_same(semantic):
    rows = semantic.embed(
        ["Where is my parcel?", "Has the package been shipped yet?", "I like to paint the ceiling"]
    ).astype(int)
    scores = (rows @ rows[0]).tolist()
    assert scores[0] > scores[1] > 1.5 * scores[2]


def test_the_semantic_embedder_names_its_weights_and_its_batch_never_shows(semantic):
    many = ["a", "a much longer text about an order that never came", "", "a"]
    vectors, cost = semantic.embed_billed(many)
    assert cost == FREE
    assert all(np.array_equal(semantic.embed([text])[0], row) for text, row in zip(many, vectors, strict=True))
    assert not vectors[2].any()
    assert len(re.findall(r"sha256:[0-9a-f]{64}", semantic.snapshot.revision)) == 2
    assert SemanticEmbedder().snapshot == semantic.snapshot
    with pytest.raises(IntegrityError, match="wordllama"):
        check_snapshot(HashedEmbedder().snapshot, semantic.snapshot)


def test_the_semantic_embedder_keeps_almost_all_of_the_cosine(semantic):
    many = [
        f"{verb} the {thing} in {place}"
        for verb in ("find", "pay")
        for thing in ("order", "cat")
        for place in ("May", "Rome")
    ]
    floats = np.vstack([semantic._model.embed([text]) for text in many]).astype(float)
    floats /= np.linalg.norm(floats, axis=1, keepdims=True)
    whole = semantic.embed(many).astype(float)
    whole /= np.linalg.norm(whole, axis=1, keepdims=True)
    assert np.abs(floats @ floats.T - whole @ whole.T).max() < 0.01


def test_reading_the_semantic_model_leaves_the_logging_of_the_process_alone():
    pytest.importorskip("wordllama", reason="needs the extra `semantic`")
    code = (
        "import logging; from experiential_lab.retrieval.embedders import SemanticEmbedder; SemanticEmbedder(); "
        "print(logging.getLogger().handlers, logging.getLogger().level)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"[] {logging.WARNING}\n"


def test_embedders_are_imported_without_any_client_or_model():
    code = (
        "import sys, experiential_lab.retrieval.provider; print({'openai', 'wordllama', 'requests'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
