"""Map work over processes: the same results in the same order, whatever the number of processes.

- `engine.map` calls a function on each item and yields results in the order of the items. One job means this process.
- Worker processes come from loky: they need no guard in the caller's script, and a dead one is an error, never a hang.
- The function and what it takes and gives must be importable and picklable; workers write nothing but what they return.

Not covered: threads and clusters.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def processors() -> int:
    """How many processes can run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map(function: Callable[[T], R], items: Iterable[T], *, jobs: int = 1) -> Iterator[R]:
    """`function` of each item, in order; `jobs` processes work at once.

    Raises:
        ValueError: fewer than 1 job.
    """
    if jobs < 1:
        raise ValueError(f"{jobs} jobs; at least 1 must work")
    if jobs == 1:
        yield from (function(item) for item in items)
        return
    from loky import ProcessPoolExecutor  # half a second that only parallel work pays

    with ProcessPoolExecutor(max_workers=jobs) as pool:
        yield from pool.map(function, items)
