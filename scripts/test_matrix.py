"""The tests with each Python and each release of Spark.

Each combination has an environment of its own.

    scripts/test-matrix [--python 3.12 ...] [--spark 4.1 ...] [--directory DIRECTORY]

A cell of the matrix is a Python from 3.11 to 3.14 whose interpreter is on this machine, and a release of Spark. Each
cell runs the unit tests that are not marked `slow`. The fast integration tests run once for each release of Spark, with
the first of its Pythons that is asked for. The oldest Python has pandas 2, all others have the newest pandas.

The last output is one row for each cell: a row for "Versions" in docs/internals/testing.md. Ends with 0 when each cell
succeeded, else 1. Environments take 1 GB each, and are removed after their cell unless --directory names a place.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from samzapy.adapters.installed_spark import RELEASES

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PACKAGES = ("pyspark", "pandas", "pyarrow")
FAST_INTEGRATION_TESTS = (
    # A first job, from the broker to its outputs, and a change of its factor.
    "integration_tests/test_the_tutorial_works.py",
    # These differ between releases: the shuffle, the hash of keys, the source of exact times.
    "integration_tests/test_rows_reach_workers_task_by_task.py",
    "integration_tests/test_key_bucket_is_the_same_in_the_jvm.py",
    "integration_tests/bad_input/test_any_record_is_passed_on_as_it_came.py",
    # A stateful job whose driver is killed, and whose state is restored from the changelog.
    "integration_tests/test_damaged_state_is_rebuilt.py",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination of versions; `interpreter` makes its environment."""

    python: str
    interpreter: Path
    spark: str
    pandas: str
    has_integration_tests: bool

    @property
    def name(self) -> str:
        return f"python-{self.python}-spark-{self.spark}"

    @property
    def requirements(self) -> Sequence[str]:
        return (f"pyspark~={self.spark}.0", f"pandas{self.pandas}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a cell: the versions that pip chose, and pytest's last lines."""

    versions: Mapping[str, str]
    outcomes: Sequence[str]
    succeeded: bool


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this release; may be repeated")
    parser.add_argument("--spark", action="append", choices=RELEASES, help="only this release; may be repeated")
    parser.add_argument(
        "--directory", type=Path, help="keep environments and logs here, and use those that are there"
    )
    options = parser.parse_args(arguments)
    interpreters = {
        python: path for python in options.python or PYTHONS if (path := interpreter_of(python)) is not None
    }
    missing = sorted(set(options.python or PYTHONS) - set(interpreters))
    print(f"no interpreter here: {', '.join(missing) or 'none is missing'}", flush=True)
    directory = (
        options.directory.absolute() if options.directory else Path(tempfile.mkdtemp(prefix="samzapy-matrix-"))
    )
    rows, all_succeeded = [], bool(interpreters)
    for cell in cells(interpreters, options.spark or RELEASES):
        result = run_cell(cell, directory)
        rows.append(row_of(cell, result))
        all_succeeded = all_succeeded and result.succeeded
        if not options.directory:
            shutil.rmtree(directory / cell.name, ignore_errors=True)
    print("\n".join(["", *rows, f"logs: {directory}"]))
    return 0 if all_succeeded else 1


def interpreter_of(python: str) -> Path | None:
    """An interpreter of this version that makes environments: on PATH, or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = shutil.which(f"python{python}")
    candidates = [*sorted(pyenv.glob(f"versions/{python}.*/bin/python")), *([Path(on_path)] if on_path else [])]
    return next((candidate for candidate in candidates if _makes_environments(candidate, python)), None)


def _makes_environments(candidate: Path, python: str) -> bool:
    code = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([candidate, "-c", code], capture_output=True, text=True, timeout=60)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == python


def cells(interpreters: Mapping[str, Path], releases: Sequence[str]) -> Sequence[Cell]:
    """All combinations; the releases' integration tests are spread over the Pythons."""
    pythons = list(interpreters)
    return [
        Cell(
            python=python,
            interpreter=interpreters[python],
            spark=spark,
            pandas="<3" if python == PYTHONS[0] else ">=2.2",
            has_integration_tests=python == pythons[number % len(pythons)],
        )
        for number, spark in enumerate(releases)
        for python in pythons
    ]


def run_cell(cell: Cell, directory: Path) -> Result:
    """Make the environment of a cell and run its tests.

    The output is in `<directory>/<cell>.log`.
    """
    environment = directory / cell.name
    python = environment / "bin" / "python"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{cell.name}.log").open("w", encoding="utf-8") as log:
        print(f"{cell.name}: {log.name}", flush=True)

        def run(*command: str | Path) -> int:
            return subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT).returncode

        if not python.exists() and run(cell.interpreter, "-m", "venv", environment) != 0:
            return Result(versions={}, outcomes=("no environment",), succeeded=False)
        if run(python, "-m", "pip", "install", "--quiet", "-e", ".[dev]", *cell.requirements) != 0:
            return Result(versions={}, outcomes=("pip failed",), succeeded=False)
        pytest = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider")
        outcomes = [_outcome(run, log.name, *pytest, "-n", "2", "-m", "not slow", "unit_tests")]
        if cell.has_integration_tests:
            outcomes.append(_outcome(run, log.name, *pytest, "-n", "0", *FAST_INTEGRATION_TESTS))
    return Result(
        versions=_versions(python),
        outcomes=[text for _, text in outcomes],
        succeeded=all(code == 0 for code, _ in outcomes),
    )


def _outcome(run: Callable[..., int], log: str, *command: str | Path) -> tuple[int, str]:
    begun_s = time.monotonic()
    code = run(*command)
    lines = [line for line in Path(log).read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    summary = re.sub(r" in [0-9.]+s.*$", "", lines[-1].strip("= ")) if lines else "no output"
    return code, f"{summary} in {time.monotonic() - begun_s:.0f} s"


def _versions(python: Path) -> Mapping[str, str]:
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    answer = subprocess.run([python, "-c", code, *PACKAGES], capture_output=True, text=True, check=True)
    return dict(zip(PACKAGES, answer.stdout.split(), strict=True))


def row_of(cell: Cell, result: Result) -> str:
    """A row of the table in docs/internals/testing.md."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    unit, integration = (*result.outcomes, "–", "–")[:2]
    versions = [result.versions.get(name, "–") for name in PACKAGES]
    return (
        "| " + " | ".join([cell.python, *versions, f"{datetime.now(UTC):%Y-%m-%d}", commit, unit, integration]) + " |"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
