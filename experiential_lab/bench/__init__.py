"""Measure what PERFORMANCE promises: both sides in one process, in turn, in CPU time, as the median of all rounds.

- A goal is a function that gives figures; each figure says its bar and whether it holds. Nothing is asserted: a goal that is
  missed says so.
- Ratios only: absolute times on a shared machine say little. The figures that are absolute name their machine.
- A peer that is not installed is named with the group that holds it, and its figure is left out: never guessed.

Not covered: graphics cards, and machines that were not measured.
"""

import os
import platform
import statistics
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from time import process_time_ns
from typing import Any

ROUNDS = 15
PEERS = "uv pip install --group bench"


def cpu_ns(work: Callable[[], object]) -> int:
    """CPU nanoseconds of one call."""
    begin = process_time_ns()
    work()
    return process_time_ns() - begin


def paired(ours: Callable[[], object], peer: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median of `ours / peer` in CPU time; who goes first changes from round to round, and one round only warms up."""
    ratios = []
    for round_ in range(rounds + 1):
        first, second = (ours, peer) if round_ % 2 else (peer, ours)
        times = {id(first): cpu_ns(first)}
        times[id(second)] = cpu_ns(second)
        if round_:
            ratios.append(times[id(ours)] / max(1, times[id(peer)]))
    return statistics.median(ratios)


def figure(goal: str, name: str, value: float, bar: str, *, rounds: int = ROUNDS, **more: Any) -> dict[str, Any]:
    """One line of the report. `bar` is `<= 0.4`, `>= 10` or `< 2`."""
    sign, limit = bar.split()[:2]
    holds = {"<=": value <= float(limit), ">=": value >= float(limit), "<": value < float(limit)}[sign]
    return {
        "goal": goal,
        "name": name,
        "ratio": float(f"{value:.4g}"),
        "bar": bar,
        "holds": holds,
        "rounds": rounds,
        "versions": versions("msgspec", "numpy", "orjson"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        **more,
    }


def left_out(goal: str, name: str, peer: str) -> dict[str, Any]:
    """A figure that cannot be made here: unknown, and no bar is said to hold."""
    return {"goal": goal, "name": name, "ratio": None, "holds": None, "reason": f"{peer} is not installed: {PEERS}"}


def versions(*names: str) -> dict[str, str]:
    """The versions of what took part."""
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
