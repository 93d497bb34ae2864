"""The corpora that are made at the order desk, byte for byte by families and seed, and the labels of what is planted.

- `make_desk_tools`: every task is played by each of three candidates. The small corpus of the notebooks.
- `make_study_tools` and `make_desk_text`: families with planted duplicates, paraphrases and twins (`plan_tasks`), played
  by the eight graded candidates in turn. Their task ids, people and shops are their own, so no lineage spans both.
- What is planted stands in `make_labels` alone; a line of a corpus does not say it.
- A line is an OpenAI chat with `metadata` {user_source, task_id, statement, trial}. Every tool message, and every
  sentence of the clerk, was returned by a desk when the file was made; `desk_seed` and `trial` open that desk again.
- In the text corpus the clerk is the user: scripted, and marked `simulated_user` as the other users are.
"""

import json
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

from experiential_lab.evaluation.candidates import CANDIDATES, GRADED, Episode, play, play_text
from experiential_lab.evaluation.clerk import VOLATILE_TEXT
from experiential_lab.evaluation.oracle import TOOLS, VOLATILE
from experiential_lab.evaluation.tasks import Planted, make_tasks, plan_tasks

FAMILIES, SEED = 240, 7
"""Of the study's corpora; the small corpus has 24."""


def make_desk_tools(families: int = 24, seed: int = SEED) -> bytes:
    """A file of OpenAI chats, one a line, UTF-8: every task is played by every candidate, one trial each.

    Raises:
        ValueError: fewer than 2 families, or more than there are people for.
    """
    tasks = make_tasks(families, seed)
    return b"".join(_line(play(task, who, trial=n), tools=True) for task in tasks for n, who in enumerate(CANDIDATES))


def make_study_tools(families: int = FAMILIES, seed: int = SEED) -> bytes:
    """The study's corpus with tools, in the same form.

    Raises:
        ValueError: as `make_desk_tools`.
    """
    return b"".join(_line(episode, tools=True) for episode in _played(_study_tools(families, seed), play))


def make_desk_text(families: int = FAMILIES, seed: int = SEED) -> bytes:
    """The study's corpus of the text protocol: no tools, a clerk answers sentences.

    Raises:
        ValueError: as `make_desk_tools`.
    """
    return b"".join(_line(episode, tools=False) for episode in _played(_desk_text(families, seed), play_text))


def make_labels(families: int = FAMILIES, seed: int = SEED) -> bytes:
    """What is planted in the study's corpora of these families and seed, as one JSON document.

    Raises:
        ValueError: as `make_desk_tools`.
    """
    plans = {"study-tools": _study_tools(families, seed), "desk-text": _desk_text(families, seed)}
    labels = {
        "families": families,
        "seed": seed,
        "volatile_fields": VOLATILE,
        "volatile_text": VOLATILE_TEXT,
        "candidates": [who.name for who in GRADED],
        "corpora": {name: _labelled(plan) for name, plan in plans.items()},
    }
    return json.dumps(labels, ensure_ascii=False, indent=1).encode() + b"\n"


def _study_tools(families: int, seed: int) -> tuple[Planted, ...]:
    return plan_tasks("study-tools", families, seed, first_shop=2_000)


def _desk_text(families: int, seed: int) -> tuple[Planted, ...]:
    return plan_tasks("desk-text", families, seed, first_shop=6_000)


def _played(plan: tuple[Planted, ...], played: Callable[..., Episode]) -> Iterator[Episode]:
    """Every trial of the plan, by the graded candidates in turn."""
    candidates = cycle(GRADED)
    for planted in plan:
        for trial in planted.trials:
            yield played(planted.task, next(candidates), trial=trial)


def _labelled(plan: tuple[Planted, ...]) -> dict[str, Any]:
    firsts = {planted.family: planted.task.task_id for planted in plan if planted.role == "first"}
    tasks = {
        planted.task.task_id: {"family": planted.family, "kind": planted.task.kind, "role": planted.role}
        for planted in plan
    }
    copies = [(firsts[planted.family], planted.task.task_id, planted.role) for planted in plan]
    return {
        "tasks": tasks,
        "duplicates": [copy[:2] for copy in copies if copy[2] == "duplicate"],
        "paraphrases": [copy[:2] for copy in copies if copy[2].startswith("paraphrase")],
        "hard_negatives": [(planted.twin_of, planted.task.task_id) for planted in plan if planted.twin_of],
    }


def _line(episode: Episode, *, tools: bool) -> bytes:
    task, trial = episode.task, episode.trial
    metadata = {"user_source": "simulated_user", "task_id": task.task_id, "statement": task.statement, "trial": trial}
    more = {"complete": True, "environment": "oracle", "desk_seed": task.desk_seed, "candidate": episode.candidate}
    declared = {"tools": TOOLS} if tools else {}
    chat = {
        "conversation": f"{task.task_id}-{trial}",
        "messages": episode.messages,
        **declared,
        "metadata": metadata | more,
    }
    return json.dumps(chat, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
