"""Transitions, entries and corpora for the tests of retrieval: made by hand, drawn by Hypothesis, or the airline file."""

import random
from functools import cache

import hypothesis.strategies as st
import pytest
from conftest import SHARED

from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers import choose
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.lineage import lineages_of
from experiential_lab.evidence.spans import unpacked
from experiential_lab.evidence.trace import Action, Transition
from experiential_lab.evidence.transitions import ledger_of
from experiential_lab.records import Span, digest_of
from experiential_lab.retrieval.receipts import Query
from experiential_lab.retrieval.views import Entry, Exclusion, Facts, Snapshot, entry_of, snapshot_of

AIRLINE = SHARED / "samples" / "tau-bench" / "gpt-4o-airline.json"


def span(text: str) -> Span:
    return Span(source=digest_of(b"a source"), offset=0, size=9, end=len(text), quote=digest_of(text.encode()))


def transition(number: int, act: tuple[str, str] | str, observation: str = "ok", **fields) -> Transition:
    """`act` is (tool, arguments) or a message."""
    action = Action(text=act) if isinstance(act, str) else Action(tool=act[0], arguments=act[1])
    trace = fields.pop("trace_id", "t0")
    given = {
        "task": None,
        "recent": None,
        "terminal": False,
        "pairing": "user_reply" if isinstance(act, str) else "explicit_id",
        "observation_kind": "user_reply" if isinstance(act, str) else "tool_result",
        "observation_source": "unknown",
        "action_span": span(str(act)),
        "observation_span": span(observation),
    } | fields
    return Transition(
        transition_id=f"{trace}/{number:04d}", trace_id=trace, action=action, observation=observation, **given
    )


def entry(number: int, act: tuple[str, str] | str, observation: str = "ok", lineages=("L0",), **fields) -> Entry:
    return entry_of(transition(number, act, observation, **fields), lineages=tuple(lineages), path="a.jsonl")


texts = st.text(alphabet="abcA_ 1.\né日İß’\0", max_size=24)
calls = st.tuples(
    st.sampled_from(["find", "find_b"]), st.sampled_from(['{"a":1}', '{"a": 2}', '{"b":[1,2]}', "a b", ""])
)
acts = st.one_of(texts, calls)
queries = st.one_of(
    st.builds(Query, action=texts, task=texts, recent=texts),
    st.builds(lambda call, task: Query(tool=call[0], arguments=call[1], task=task), calls, texts),
)
exclusions = st.builds(
    Exclusion,
    level=st.sampled_from(["entry", "trace", "lineage", "family", "structure", "observation_kind"]),
    value=st.sampled_from(
        ["t0/0001", "t1/0003", "t0", "t1", "L", "M", "N", "f0", "f1", "user_reply", "tool_result", "?"]
    ),
)


@st.composite
def snapshots(draw, least=0, most=12) -> Snapshot:
    """Entries of several lineages and splits, some invalidated."""
    entries, facts = [], {}
    for number in range(draw(st.integers(least, most))):
        made = entry(
            number,
            draw(acts),
            draw(texts),
            sorted(draw(st.sets(st.sampled_from("LMN"), min_size=1, max_size=2))),
            task=draw(texts),
            recent=draw(texts),
            trace_id=f"t{number % 2}",
        )
        entries.append(made)
        facts[made.entry_id] = Facts(
            split=draw(st.sampled_from(["fit", "fit", "held_out", "none"])),
            family=draw(st.sampled_from(["", "f0", "f1"])),
            invalidated=draw(st.integers(0, 9)) == 0,
        )
    return snapshot_of(entries, facts)


def desk(size: int = 120) -> tuple[list[Entry], dict[str, Facts]]:
    """A corpus of calls and messages that looks like one, the same on every machine."""
    draw = random.Random(7)
    number = lambda most: int(draw.random() * most)  # noqa: E731  random() is the only draw that is stable across Pythons
    words = ["please", "where", "is", "my", "order", "it", "was", "late", "and", "the", "parcel", "came", "back"]
    entries, facts = [], {}
    for i in range(size):
        lineage, said = f"L{i % 11:02d}", " ".join(words[number(len(words))] for _ in range(2 + number(9)))
        act = ("lookup_order", f'{{"order_id": "A{number(9)}"}}') if number(2) else said
        fields = {"task": f"task {i % 11} {said[:12]}", "recent": f"{i % 13} {said[::-1]}", "trace_id": f"t{i % 22}"}
        entries.append(entry(i, act, f"answer {number(50)} <b>{said}</b>", (lineage,), **fields))
        side = "held_out" if i % 11 > 7 else "fit"
        facts[entries[-1].entry_id] = Facts(split=side, family=f"f{i % 11 // 2}", invalidated=i % 40 == 3)
    return entries, facts


@cache
def airline() -> list[Entry]:
    """The real transitions of the airline file, or a skip that says why."""
    if not AIRLINE.exists():
        pytest.skip("the airline file of the shared samples is not on this machine")
    data = AIRLINE.read_bytes()
    frames = frame(unpacked(data))
    traces = choose(frames)[0].read(Source(digest_of(data), AIRLINE.name, frames)).traces
    lineages = lineages_of(traces)
    made = [transition for trace in traces for transition in ledger_of(trace).transitions]
    return [entry_of(each, lineages=(lineages[each.trace_id],), path=AIRLINE.name) for each in made]
