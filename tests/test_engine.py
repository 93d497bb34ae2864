"""Work over processes: the same results in the same order, and an error is an error."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiential_lab import engine


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(jobs: int):
    assert list(engine.map(math.factorial, range(9), jobs=jobs)) == [math.factorial(n) for n in range(9)]


def test_two_jobs_run_in_other_processes_and_one_in_this():
    assert set(engine.map(pid, range(2), jobs=1)) == {os.getpid()}
    assert os.getpid() not in set(engine.map(pid, range(2), jobs=2))


def pid(_: int) -> int:
    return os.getpid()


def test_an_error_of_a_worker_reaches_the_caller():
    with pytest.raises(ValueError, match="negative"):
        list(engine.map(math.factorial, [1, -1], jobs=2))
    with pytest.raises(ValueError, match="0 jobs"):
        list(engine.map(math.factorial, [1], jobs=0))


def test_a_script_needs_no_guard(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import math\nfrom experiential_lab import engine\nprint(sum(engine.map(math.sqrt, [1, 4], jobs=2)))"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "3.0\n"
