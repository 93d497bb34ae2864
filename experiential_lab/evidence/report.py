"""What became of every record, event and step of the files that were imported: sums, tables and reasons.

- The sums come from what each source says of itself; a table is read when it is first asked for.
- Every sum is of the given files alone, also when a workspace knew more before.

Not covered: what other sources of the workspace say.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from experiential_lab.evidence.corpus import Added, Corpus, Progress, add_files
from experiential_lab.evidence.frames import (
    conservation_frame,
    ledger_frame,
    rejected_frame,
    secrets_frame,
    set_aside_frame,
)
from experiential_lab.evidence.secrets import Secret, find_secrets, secrets_in
from experiential_lab.evidence.sources import Declared, SourceInfo
from experiential_lab.evidence.spans import ZIP, members, unpacked_file
from experiential_lab.evidence.spool import Overflow
from experiential_lab.evidence.trace import LedgerRow, Rejected, SetAside, Trace, Transition
from experiential_lab.records import NoEvidence

USES = ("step", "observation", "context")


class ImportReport:
    """What an import brought."""

    def __init__(self, added: Added) -> None:
        self._added = added
        self.corpus: Corpus = added.corpus
        self.sources: list[SourceInfo] = added.sources
        self.is_copy = added.is_copy
        """Whether all that the files hold is a history that counts elsewhere."""
        self.unusable = added.unusable
        """(path, reason) of each file of a directory that could not be used."""
        self.united: tuple[str, ...] = ()
        """Lineages that this import moved from fit to held out."""

    def __repr__(self) -> str:
        return f"<import of {len(self.sources)} sources: {self._sum('transitions'):,} of {self._sum('steps'):,} steps are paired>"

    @cached_property
    def traces(self) -> list[Trace]:
        """Every trace of the given files, without its events."""
        return self.corpus.part(Trace, self.sources)

    @cached_property
    def ledger(self) -> pl.DataFrame:
        """One row a step, in source order."""
        part = self.corpus.part
        return ledger_frame(part(LedgerRow, self.sources), part(Transition, self.sources))

    @cached_property
    def set_aside(self) -> pl.DataFrame:
        """One row an event that nothing used."""
        return set_aside_frame(self.corpus.part(SetAside, self.sources))

    @cached_property
    def rejected(self) -> pl.DataFrame:
        """One row a record that could not be used."""
        return rejected_frame(self.corpus.part(Rejected, self.sources), self.corpus.names)

    @cached_property
    def secrets(self) -> pl.DataFrame:
        """One row a place in a given source that looks like a secret; never what stands there."""
        return secrets_frame(
            (self.corpus.names[info.digest], member, secret)
            for info in self.sources
            for member, secret in self._secrets(info)
        )

    def _secrets(self, info: SourceInfo) -> Iterator[tuple[str, Secret]]:
        held = self.corpus.places.held(info.digest)
        with held.open() as file:
            if file.read(len(ZIP)) == ZIP:
                for name, data in members(file):
                    yield from ((name, secret) for secret in find_secrets(data))
                return
        with unpacked_file(held, Overflow()).open() as file:
            yield from (("", secret) for secret in secrets_in(file))

    @property
    def conservation(self) -> pl.DataFrame:
        """One row a source: what went in, what came out, and whether the sums hold."""
        return conservation_frame(
            {
                "path": self.corpus.names[info.digest],
                "source": info.digest,
                "records": info.sums.records,
                "rejected": _total(info.sums.rejected),
                "events": info.sums.events,
                "events_used": _total(info.sums.used),
                "set_aside": _total(info.sums.set_aside),
                "steps": info.sums.steps,
                "transitions": info.sums.transitions,
                "left_out": _total(info.sums.left_out),
            }
            for info in self.sources
        )

    @cached_property
    def counts(self) -> dict[str, Any]:
        """The sums of the command line contract."""
        corpus, records, rejected = self.corpus, self._sum("records"), self._counted("rejected")
        lineages = corpus.lineages
        used = self._counted("used")
        earlier = {info.digest for info in self._added.earlier.sources} if self._added.earlier else set()
        return {
            "sources": len(self.sources),
            "added": len(set(self._added.given) - earlier),
            "bytes": sum(info.size_bytes for info in self.sources),
            "records": records,
            "records_used": records - sum(rejected.values()),
            "records_rejected": rejected,
            "events": self._sum("events"),
            "events_used": {use: used.get(use, 0) for use in USES},
            "set_aside": self._counted("set_aside"),
            "traces": self._sum("traces"),
            "lineages": len({lineages[each.trace_id] for info in self.sources for each in corpus.trace_keys(info)}),
            "steps": self._sum("steps"),
            "transitions": self._sum("transitions"),
            "pairing": self._counted("pairing"),
            "observation_kind": self._counted("observation_kind"),
            "observation_source": self._counted("observation_source"),
            "left_out": self._counted("left_out"),
            "formats": [
                {"path": corpus.names[info.digest], "format": info.format, "rule": info.rule} for info in self.sources
            ],
            "unusable": [{"path": path, "reason": reason} for path, reason in self.unusable],
            "usage_repeated": self._sum("usage_repeated"),
            "united": list(self.united),
            "extends": {info.digest: info.extends for info in self.sources if info.extends},
            "changed": [dict(zip(("trace", "step", "old", "new"), row, strict=True)) for row in self.changed],
            "secrets": dict(sorted(Counter(self.secrets["kind"]).items())),
        }

    @cached_property
    def changed(self) -> list[tuple[str, int, str, str]]:
        """Steps that were known before, and ended otherwise: (trace, step, old outcome, new outcome)."""
        earlier = self._added.earlier
        if earlier is None:
            return []
        now = {info.digest: info for info in self.corpus.sources}
        touched = [info for info in earlier.sources if now.get(info.digest) != info]
        before = {(row.trace_id, row.step): row.outcome for row in earlier.part(LedgerRow, touched)}
        same = {info.digest for info in earlier.sources} - {info.digest for info in touched}
        rows = self.corpus.part(
            LedgerRow, [info for digest, info in now.items() if digest not in same] if before else []
        )
        return [
            (row.trace_id, row.step, before[row.trace_id, row.step], row.outcome)
            for row in rows
            if before.get((row.trace_id, row.step), row.outcome) != row.outcome
        ]

    def _sum(self, name: str) -> int:
        return sum(getattr(info.sums, name) for info in self.sources)

    def _counted(self, name: str) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for info in self.sources:
            counts.update(dict(getattr(info.sums, name)))
        return {word: number for word, number in sorted(counts.items()) if number}


def import_files(
    workspace: Path,
    paths: Iterable[str | Path],
    declared: Declared = Declared(),  # noqa: B008  a NamedTuple cannot change
    *,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> ImportReport:
    """Adds files to the evidence of a workspace, and says what became of them. Arguments and errors as `add_files`; the
    `report` of its NoEvidence is an ImportReport.
    """
    try:
        return ImportReport(add_files(workspace, paths, declared, progress=progress, jobs=jobs))
    except NoEvidence as error:
        if isinstance(error.report, Added):
            error.report = ImportReport(error.report)
        raise


def _total(counts: tuple[tuple[str, int], ...]) -> int:
    return sum(number for _, number in counts)
