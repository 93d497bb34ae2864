"""All that `.ci/run` runs, stage by stage, with the seconds of each: `python tests/stages.py [NAME ...]`.

A stage that needs Chromium is left out where there is none, and says how to get it; with CI=true it fails instead.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHON = sys.executable
CHROMIUM = "/usr/bin/chromium"
IN_CI = os.environ.get("CI") == "true"


def run(*command: str, **environment: str) -> None:
    subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=True)


def pytest(*arguments: str) -> None:
    run(PYTHON, "-m", "pytest", "-q", *arguments)


def lint() -> None:
    run(PYTHON, "-m", "ruff", "check", "-q", ".")
    run(PYTHON, "-m", "ruff", "format", "-q", "--check", ".")


def types() -> None:
    run(PYTHON, "-m", "mypy", "--strict", "experiential_lab")


def unit() -> None:
    pytest("tests", "-m", "not browser")


def marimo() -> None:
    run(PYTHON, "-m", "marimo", "check", "--strict", "notebooks/explore")
    pytest("notebooks/explore")


def nbval() -> None:
    pytest("--nbval", "--nbval-current-env", "--nbval-cell-timeout", "120", "-p", "no:randomly", "notebooks/figures")


def figures() -> None:
    run(PYTHON, "notebooks/figures/rebuild.py", "--check")


def browser() -> None:
    if not Path(CHROMIUM).exists():
        if IN_CI:
            sys.exit(f"{CHROMIUM} is missing")
        print("left out: no Chromium. Get it with: apt-get install -y chromium fonts-dejavu-core")
        return
    pytest("tests", "-m", "browser")


def wheel() -> None:
    """The built wheel in a clean environment, away from the checkout: import, and the tour on the bundled corpus."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(PYTHON, "-m", "build", "--wheel", "--outdir", folder)
        built = next(place.glob("*.whl"))
        clean = place / "venv" / "bin"
        if uv := shutil.which("uv"):
            run(uv, "venv", "-q", "--python", PYTHON, str(clean.parent))
            run(uv, "pip", "install", "-q", "--python", f"{clean}/python", "-c", "constraints.txt", str(built))
        else:
            run(PYTHON, "-m", "venv", str(clean.parent))
            run(f"{clean}/python", "-m", "pip", "install", "-q", "-c", "constraints.txt", str(built))
        subprocess.run([f"{clean}/python", "-c", "import experiential_lab as xl; xl.Lab"], cwd=place, check=True)
        subprocess.run([f"{clean}/xlab", "tour", "--json"], cwd=place, check=True, stdout=subprocess.DEVNULL)


STAGES: dict[str, Callable[[], None]] = {
    stage.__name__: stage for stage in (lint, types, unit, marimo, nbval, figures, browser, wheel)
}


def main(names: list[str]) -> None:
    if unknown := set(names) - set(STAGES):
        sys.exit(f"no stage is called {', '.join(unknown)}; there are {', '.join(STAGES)}")
    seconds, failed = {}, []
    for name in names or STAGES:
        print(f"== {name}", flush=True)
        begin = time.monotonic()
        try:
            STAGES[name]()
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"failed: {' '.join(map(str, error.cmd))} returned {error.returncode}", flush=True)
        seconds[name] = time.monotonic() - begin
    print("== seconds a stage")
    for name, spent in seconds.items():
        print(f"{spent:7.1f}  {name}{'  FAILED' if name in failed else ''}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
