"""Turn the evidence of a workspace into its grounding index, and say which index is current.

- Entries are transitions of sources whose origin is `recorded`, and nothing else. A pairing by order alone is left out
  unless it is asked for.
- An index names the evidence and the lineage table that it was built from. Another evidence or table makes it stale: it is
  refused with both named, never used in silence.
- Without a split an index can be built; then only the view `all` can be asked.
- A `Recipe` says how an index ranks: with which vectors, and what chose it. An index that is made again is made as the last
  one; one whose vectors a provider made needs its embedder.
- A certificate depends on the index alone, so the cache of the workspace keeps it.

Not covered: pages, which have indexes of their own.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from experiential_lab.evidence.corpus import Corpus
from experiential_lab.evidence.split import Current
from experiential_lab.evidence.trace import Transition
from experiential_lab.records import (
    IntegrityError,
    NoEvidence,
    Record,
    StaleError,
    UsageError,
    canonical_bytes,
    short_id,
)
from experiential_lab.retrieval.choice import RankerChoice, choose_ranker
from experiential_lab.retrieval.embedders import Embedder, EmbedderSnapshot, HashedEmbedder, local_embedder
from experiential_lab.retrieval.fusion import DEPTH
from experiential_lab.retrieval.index import Index, build, load, save
from experiential_lab.retrieval.provider import KeptEmbedder, OpenAIEmbedder
from experiential_lab.retrieval.ranking import Fusion, RankerConfig
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.refusal import Certificate, certify
from experiential_lab.retrieval.sparse import DEFAULT, Channel
from experiential_lab.retrieval.views import (
    Boundary,
    Entry,
    Exclusion,
    Facts,
    View,
    boundary,
    entry_of,
    snapshot_of,
)
from experiential_lab.store import Problem, Store, Verification

NO_TABLE = "no lineage table"
CHOICE = "ranker_choice"


class Grounding(NamedTuple):
    """Entries and what is known of each when the snapshot is made."""

    entries: list[Entry]
    facts: dict[str, Facts]


def grounding_of(corpus: Corpus, split: Current | None, *, order_only: bool = False) -> Grounding:
    """Every recorded transition as an entry, with its lineage, family and side."""
    rows = split.table.of() if split else {}
    sources = {info.digest: info for info in corpus.sources}
    grounding = Grounding([], {})
    for each in corpus.transitions:
        source = sources[each.action_span.source]
        if source.origin != "recorded" or (each.pairing == "order_only" and not order_only):
            continue
        row = rows.get(each.trace_id)
        lineage = row.lineage if row else corpus.lineages[each.trace_id]
        grounding.entries.append(entry_of(each, lineages=(lineage,), path=f"{source.format}:{source.digest[7:15]}"))
        grounding.facts[each.transition_id] = Facts(
            split=row.split if row else "none",
            family=row.family if row else "",
            source_ids=(source.digest,),
            origin=source.origin,
        )
    return grounding


class Recipe(NamedTuple):
    """How an index ranks."""

    embedder: Embedder | None = None
    fusion: Fusion = "sparse"
    channels: tuple[Channel, ...] = DEFAULT
    depth: int = DEPTH
    choice: RankerChoice | None = None
    """What chose it; the index pins it."""


def chosen_recipe(index: Index, store: Store, *, embedder: Embedder | None = None) -> Recipe:
    """The way to rank that wins on the fit families of `index`, with the record of the choice. Raises as `choose_ranker`."""
    embedder = embedder or HashedEmbedder()
    choice = choose_ranker(index, embedder=_paid_once(embedder, store))
    won = next(each.candidate for each in choice.compared if each.candidate.name == choice.winner)
    space = embedder if won.fusion != "sparse" else None
    return Recipe(space, won.fusion, won.channels, won.depth, choice)


def _paid_once(embedder: Embedder, store: Store) -> Embedder:
    return KeptEmbedder(embedder, store) if isinstance(embedder, OpenAIEmbedder) else embedder


def last_recipe(store: Store) -> Recipe:
    """How the last index ranks; the default one before the first.

    Raises:
        UsageError: its vectors were made by a provider, whose embedder must be given.
    """
    row = store.latest("index_built")
    if row is None or "recipe_digest" not in row.fields:
        return Recipe()
    told = msgspec.json.decode(store.get(str(row.fields["recipe_digest"])), type=_Recipe)
    embedder = local_embedder(told.embedder) if told.embedder else None
    return Recipe(embedder, told.config.fusion, told.config.channels, told.config.depth, told.choice)


class _Recipe(Record, kw_only=True):
    """A recipe as it is kept: it holds no text of a source, so that it outlives an index whose source is forgotten."""

    config: RankerConfig
    embedder: EmbedderSnapshot | None = None
    choice: RankerChoice | None = None


def make_index(store: Store, corpus: Corpus, split: Current | None, recipe: Recipe = Recipe()) -> str:  # noqa: B008
    """Builds an index over the current evidence, which becomes the current one; returns the digest that `load` takes.

    What a provider's embedder answers is kept batch by batch, so that a run that is cut off pays for nothing twice.

    Raises:
        NoEvidence: no transition may ground anything.
        ProviderError: the embedder cannot be asked.
    """
    grounding = grounding_of(corpus, split)
    if not grounding.entries:
        raise NoEvidence(f"none of {len(corpus.transitions)} transitions is recorded evidence; nothing can be indexed")
    inputs = _inputs(corpus, split)
    stored = {name: digest for name, digest in inputs.items() if digest != NO_TABLE} | _sources(corpus)
    embedder = _paid_once(recipe.embedder, store) if recipe.embedder else None
    view = View(snapshot_of(*grounding))
    built = build(view, channels=recipe.channels, embedder=embedder, fusion=recipe.fusion, depth=recipe.depth)
    if recipe.choice:
        stored[CHOICE] = store.keep(CHOICE, recipe.choice)
    digest = save(built, store, stored)
    told = _Recipe(config=built.config, embedder=built.embedder, choice=recipe.choice)
    about = {
        "snapshot": built.snapshot.digest,
        "index": built.digest,
        "recipe_digest": store.put(canonical_bytes(told)),
    }
    store.append("index_built", artifact=digest, **about, **inputs)
    return digest


def current_index(store: Store, corpus: Corpus, split: Current | None) -> str:
    """The digest by which the current index is loaded.

    Raises:
        NoEvidence: there is none yet.
        StaleError: it was built from other evidence, or with another lineage table.
    """
    row = store.latest("index_built")
    if row is None:
        raise NoEvidence(f"{store.path} has no index yet; build one: xlab index")
    if split and split.evidence != corpus.digest:
        raise StaleError(
            f"the split is stale: it was made from evidence {split.evidence[:15]}, now it is {corpus.digest[:15]}; "
            "run xlab index, which makes it again"
        )
    for name, now in _inputs(corpus, split).items():
        if row.fields[name] != now:
            raise StaleError(
                f"the index is stale: it was built with {name} {row.fields[name][:15]}, now it is {now[:15]}; "
                "build it again: xlab index"
            )
    return str(row.fields["artifact"])


def _inputs(corpus: Corpus, split: Current | None) -> dict[str, str]:
    return {"evidence": corpus.digest, "lineage_table": split.digest if split else NO_TABLE}


def _sources(corpus: Corpus) -> dict[str, str]:
    return {f"source {info.digest[7:15]}": info.digest for info in corpus.sources if info.origin == "recorded"}


def verify_index(store: Store, found: Verification) -> Verification:
    """`found`, and what is wrong with the last index: each of its rows is made from its entry again."""
    row = store.latest("index_built")
    artifact = str(row.fields["artifact"]) if row else ""
    if not row or not store.has(artifact):
        return found
    try:
        load(store, artifact)
    except IntegrityError as error:
        problem = Problem(artifact=artifact, problem=str(error))
        return msgspec.structs.replace(found, problems=(*found.problems, problem))
    except (
        StaleError,
        UsageError,
    ):  # of another version, or with vectors that only a provider can make: its bytes are sound
        return found
    return found


def certificate_of(
    store: Store, index: Index, *, alpha: str = "0.1", delta: str = "0.1", exclude: Iterable[Exclusion] = ()
) -> Certificate:
    """What `certify` gives; it is in the cache of the workspace when it was asked for before. Raises as `certify` does."""
    excluded = tuple(exclude)
    asked = "".join(f"{each.level}={each.value};" for each in excluded)
    name = f"certificate-{short_id(index.digest, alpha, delta, asked)}"
    if (cached := store.cache_read(name)) is not None:
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(cached, type=Certificate)
    made = certify(index, alpha=alpha, delta=delta, exclude=excluded)
    with suppress(UsageError):  # a workspace that is read-only: it is made again next time
        store.cache_write(name, canonical_bytes(made))
    return made


def query_of(transition: Transition) -> Query:
    """The query that a recorded step would have been: its task, its recent, its action; never its observation."""
    action = transition.action
    return Query(
        action=action.text or "",
        task=transition.task,
        recent=transition.recent,
        tool=action.tool,
        arguments=action.arguments,
    )


def around(index: Index, transition_id: str, level: Boundary) -> tuple[Exclusion, ...]:
    """What must be left out so that a recorded step is asked about at a boundary.

    Raises:
        NoEvidence: the step is no entry of the index.
    """
    for row in index.snapshot.rows:
        if row.entry_id == transition_id:
            return boundary(level, row)
    raise NoEvidence(f"{transition_id} is no entry of the index; entries are recorded transitions: xlab transitions")
