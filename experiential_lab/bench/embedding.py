"""Goals 1, 3 and 6: exact dense search, one digest on every kernel, and hashing against scikit-learn."""

import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiential_lab.bench import figure, left_out, paired, versions
from experiential_lab.bench.made import made_query
from experiential_lab.retrieval.dense import Vectors, bound_of, nearest
from experiential_lab.retrieval.embedders import HashedEmbedder

ROWS, DIMENSION, TEXTS = 100_000, 256, 4_000
KERNELS = ("Prescott", "Nehalem", "Sandybridge", "Haswell", "SkylakeX")  # those that this machine has not fall back
THREADS, BATCHES = (1, 2), (1, 7, 64)
_CHILD = """
import sys
from experiential_lab.bench.embedding import digest_of_scores
print(digest_of_scores(int(sys.argv[1])))
"""


def dense(_: Path) -> list[dict[str, Any]]:
    """Goal 1 on 10^5 made vectors, single thread: one exact top 10, against a float32 matrix-vector product."""
    chance = np.random.Generator(np.random.PCG64(1))
    bound = bound_of(DIMENSION)
    matrix = chance.integers(-bound, bound, (ROWS, DIMENSION), np.int8, endpoint=True)
    query = chance.integers(-bound, bound, DIMENSION, np.int8, endpoint=True)
    vectors, plain, asked = Vectors(matrix, np.arange(ROWS)), matrix.astype(np.float32), query.astype(np.float32)
    ratio = paired(partial(nearest, vectors, query, 10), lambda: plain @ asked)
    return [figure("1", "exact top 10 of 10^5 x 256, against a float32 product", ratio, "<= 0.80")]


def kernels(_: Path) -> list[dict[str, Any]]:
    """Goal 3: the scores of made texts in one digest, over kernels, threads and batch sizes, each in its own process."""
    found = set()
    for kernel in KERNELS:
        for threads in THREADS:
            environment = os.environ | {"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": str(threads)}
            for batch in BATCHES if kernel == KERNELS[0] else BATCHES[-1:]:
                command = [sys.executable, "-c", _CHILD, str(batch)]
                done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                found.add(done.stdout.strip())
    runs = len(THREADS) * (len(KERNELS) - 1 + len(BATCHES))
    return [figure("3", f"digests of all scores in {runs} processes", len(found), "<= 1", rounds=runs)]


def digest_of_scores(batch: int) -> str:
    """The digest of the scores of made texts against each other, embedded so many at a time."""
    from experiential_lab.records import digest_of
    from experiential_lab.retrieval.dense import dot_products

    embedder, texts = HashedEmbedder(), _texts(256)
    parts = [embedder.embed(texts[start : start + batch]) for start in range(0, len(texts), batch)]
    matrix = np.concatenate(parts)
    return digest_of(dot_products(Vectors(matrix, np.arange(len(matrix))), matrix[:64]).tobytes())


def hashing(_: Path) -> list[dict[str, Any]]:
    """Goal 6: texts embedded by the default embedder, against HashingVectorizer on the same features."""
    try:
        from sklearn.feature_extraction.text import HashingVectorizer
    except ImportError:
        return [left_out("6", "hashed embedding against HashingVectorizer", "scikit-learn")]
    texts = _texts(TEXTS)
    settings = {"n_features": DIMENSION, "norm": None, "lowercase": True}
    peers = [
        HashingVectorizer(analyzer="char", ngram_range=(5, 5), **settings),
        HashingVectorizer(analyzer="word", **settings),
    ]
    ratio = paired(partial(HashedEmbedder().embed, texts), lambda: [peer.transform(texts) for peer in peers])
    shown = versions("numpy", "scikit-learn")
    return [figure("6", "hashed embedding against HashingVectorizer", 1 / ratio, ">= 8", versions=shown)]


def _texts(count: int) -> list[str]:
    chance = random.Random(3)
    return [made_query(chance).act.text for _ in range(count)]
