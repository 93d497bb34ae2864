"""The facade that people type: one workspace, and what can be asked of it. It holds no logic of its own."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns
from typing import Any, Literal

import polars as pl

from experiential_lab.evidence.corpus import Corpus, Progress, load_corpus
from experiential_lab.evidence.frames import ledger_frame, traces_frame, transitions_frame
from experiential_lab.evidence.report import ImportReport, import_files
from experiential_lab.evidence.sources import Declared
from experiential_lab.evidence.split import LineageTable, current_split, forget_source, make_split, remake_split
from experiential_lab.evidence.trace import Transition
from experiential_lab.lookup import find_transition, look_up
from experiential_lab.records import NoEvidence, StaleError, UsageError
from experiential_lab.retrieval.embedders import Embedder
from experiential_lab.retrieval.grounding import (
    Recipe,
    certificate_of,
    chosen_recipe,
    current_index,
    last_recipe,
    make_index,
    verify_index,
)
from experiential_lab.retrieval.hits import Hits
from experiential_lab.retrieval.index import Index, load
from experiential_lab.retrieval.refusal import Certificate
from experiential_lab.retrieval.support import Label
from experiential_lab.retrieval.views import Base, Exclusion
from experiential_lab.store import Store, Verification
from experiential_lab.world.models import CopyNearest, WorldModel
from experiential_lab.world.session import Session, Sessions, text_exclusions


def bundled(name: str) -> Path:
    """A file of the project's own corpora, in a checkout or in an installed copy.

    Raises:
        UsageError: there is no such file.
    """
    package = Path(__file__).parent
    for folder in (package.parent / "data", package / "data"):
        if (folder / name).is_file():
            return folder / name
    raise UsageError(f"no bundled file is called {name!r}")


class Lab:
    """One workspace. The first import makes it; until then every other call says that there is none."""

    def __init__(self, path: str | Path = ".lab") -> None:
        self.path = Path(path)
        self.sessions = Sessions(clock=monotonic_ns)
        self._corpus: Corpus | None = None
        self._index: tuple[str, Index] | None = None

    def __repr__(self) -> str:
        return f"<lab at {self.path}>"

    @property
    def store(self) -> Store:
        """The workspace on disk. Raises UsageError: there is none yet."""
        return Store.open(self.path)

    @property
    def corpus(self) -> Corpus:
        """The current evidence, decoded once. Raises NoEvidence: nothing was imported yet."""
        current = load_corpus(self.store)
        if self._corpus is None or self._corpus.digest != current.digest:
            self._corpus = current
        return self._corpus

    @property
    def table(self) -> LineageTable | None:
        """The current lineages, families and split; None before the first split."""
        current = current_split(self.store)
        return current.table if current else None

    def import_traces(
        self,
        *paths: str | Path,
        declared: Declared | None = None,
        progress: Progress | None = None,
        jobs: int | None = None,
    ) -> ImportReport:
        """Add trace files to the evidence, and say what became of every record, event and step.

        A split that stands is made again, so that new traces have a side. Raises as `import_files` does.
        """
        report = import_files(self.path, paths, declared or Declared(), progress=progress, jobs=jobs)
        current = remake_split(self.store, self.corpus)
        report.united = current.table.united if current else ()
        return report

    def split(self, *, threshold: float | str = "0.9", held_out: float | str = "0.3", seed: int = 0) -> LineageTable:
        """Families first, then fit and held out; the table becomes the current one. Raises as `make_split` does."""
        return make_split(self.store, self.corpus, threshold=threshold, held_out=held_out, seed=seed).table

    def index(self) -> Index:
        """The current index; one is built when there is none, or when it is stale."""
        try:
            return self.current_index()
        except (NoEvidence, StaleError):
            return self.build_index(last_recipe(self.store))

    def build_index(self, recipe: Recipe = Recipe()) -> Index:  # noqa: B008  a NamedTuple cannot change
        """A new index over the current evidence, which becomes the current one. Raises as `make_index` does."""
        store, corpus = self.store, self.corpus
        return self._loaded(make_index(store, corpus, remake_split(store, corpus), recipe), recipe.embedder)

    def choose_ranker(self, *, embedder: Embedder | None = None) -> Recipe:
        """The way to rank that wins on fit families alone; `build_index` takes it, and `choice` says why. Needs a split."""
        return chosen_recipe(self.index(), self.store, embedder=embedder)

    def certificate(self, *, alpha: str = "0.1", delta: str = "0.1", text_only: bool = False) -> Certificate:
        """Which support labels may be answered from the fit entries; `text_only` as a text session sees them.

        Raises:
            NoEvidence: nothing was split.
        """
        excluded = text_exclusions() if text_only else ()
        return certificate_of(self.store, self.index(), alpha=alpha, delta=delta, exclude=excluded)

    def current_index(self, *, embedder: Embedder | None = None) -> Index:
        """The current index as it stands; `embedder` as `load` takes it. Raises NoEvidence or StaleError where `index` would
        build one.
        """
        return self._loaded(current_index(self.store, self.corpus, current_split(self.store)), embedder)

    def _loaded(self, digest: str, embedder: Embedder | None) -> Index:
        if self._index is None or self._index[0] != digest or embedder is not None:  # another space is refused
            self._index = (digest, load(self.store, digest, embedder=embedder))
        return self._index[1]

    def transition(self, transition_id: str) -> Transition:
        """One recorded step with its observation, by its id or a beginning of its trace with its number: `9d72d806/0003`.

        Raises:
            NoEvidence: no transition has that id.
            UsageError: it stands for several.
        """
        return find_transition(self.corpus, transition_id)

    def show(self, ident: str) -> dict[str, Any]:
        """Whatever has that id or digest, ready for JSON. Raises as `look_up` does."""
        store = self.store
        return look_up(store, ident, self.corpus if store.latest("evidence_built") else None)

    def forget(self, source: str, *, why: str) -> tuple[str, ...]:
        """Remove a source, by its digest, and all that was made from it. Raises as `forget_source` does."""
        return forget_source(self.store, source, why=why)

    def keep(self, hits: Hits) -> str:
        """Store the receipt of one retrieval; its digest opens it again."""
        return hits.keep(store=self.store)

    @contextmanager
    def session(
        self,
        task: str,
        *,
        context: str | None = None,
        world_model: WorldModel | None = None,
        base: Base = "fit",
        exclude: Iterable[str | Exclusion] = (),
        k: int = 5,
        refuse_below: Label | Literal["certified"] | None = None,
    ) -> Iterator[Session]:
        """A bounded text session; it writes nothing, and what it held is gone when it ends.

        `refuse_below="certified"` refuses what the certificate of the fit entries does not accept.
        """
        if refuse_below == "certified" and base != "fit":
            raise UsageError(f"a certificate is of the fit entries, the session asks {base!r}; use base='fit'")
        index = self.index()  # once: what is certified is what is searched
        below = (
            certificate_of(self.store, index, exclude=text_exclusions())
            if refuse_below == "certified"
            else refuse_below
        )
        view = index.view(base, exclude=[*text_exclusions(), *exclude])
        session = self.sessions.open(
            task, context=context, view=view, world_model=world_model or CopyNearest(), k=k, refuse_below=below
        )
        with session:
            yield session

    def traces(self) -> pl.DataFrame:
        """One row a trace."""
        corpus = self.corpus
        return traces_frame(corpus.traces, corpus.ledger, corpus.lineages, self._sides())

    def ledger(self) -> pl.DataFrame:
        """One row a step, in source order."""
        return ledger_frame(self.corpus.ledger, self.corpus.transitions)

    def transitions(self) -> pl.DataFrame:
        """One row a transition, in source order."""
        return transitions_frame(self.corpus.transitions, self.corpus.lineages, self._sides())

    def verify(self) -> Verification:
        """Read every file of the workspace again, each row of the last index, and every span that the evidence cites.

        What is ok then is `sources_verified`: the highest level of an index.
        """
        found = self.store.verify()
        return found if not found.ok else verify_index(self.store, self.corpus.verify(found))

    def _sides(self) -> dict[str, tuple[str, str]]:
        table = self.table
        return {row.trace_id: (row.family, row.split) for row in table.rows} if table else {}
