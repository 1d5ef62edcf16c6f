"""The proofs that CI runs small, at their full size, one after another.

    scripts/soak [SECTION ...] [--logs DIRECTORY]

Without a section all of them. A section that fails does not stop the others. The last output is one line for each, with
date and commit: a row for "Full runs" in docs/internals/testing.md. Ends with 0 when each section succeeded, else 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAST_LINE_CHARACTERS_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One long run: the property that it proves, its size, and its command."""

    proof: str
    size: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    success: str = ""
    """The outcome of a run that succeeded, if the last line of the output does not have it."""


def _tests(*arguments: str) -> Sequence[str]:
    # Without a limit: each of these is longer than a test of CI may be.
    return ("scripts/test", "--timeout=0", *arguments)


SECTIONS: Mapping[str, Section] = {
    "histories": Section(
        proof="simulation",
        size="10,000 histories, 250 walks, 250 jobs whose containers are started",
        command=_tests("--numprocesses", "2", "unit_tests/simulation"),
        environment={"SAMZAPY_SIMULATIONS": "10000"},
    ),
    "walks": Section(
        proof="simulation, walks",
        size="1,000 walks of 600 events",
        command=("scripts/simulate", "--seed", "0", "--count", "1000", "--kind", "walk", "--events", "600"),
        success="no law broken",
    ),
    "bytes": Section(
        proof="hostile bytes",
        size="100,000 mutations for each of the readers",
        command=_tests("unit_tests/hostile"),
        environment={"SAMZAPY_MUTATIONS": "100000"},
    ),
    "races": Section(
        proof="races of a move",
        size="each order with each moment to die",
        command=_tests("unit_tests/scenarios/test_expiry_race.py"),
        environment={"SAMZAPY_RACES": "full"},
    ),
    "storm": Section(
        proof="placement storm",
        size="500 containers, 20,000 requests, 5 kills",
        command=_tests("--numprocesses", "0", "unit_tests/coordinator/requests/test_placement_storm.py"),
        environment={"SAMZAPY_STORM": "500x20000x5"},
    ),
    "log": Section(
        proof="conformance of the log",
        size="500 random scripts",
        command=_tests("--numprocesses", "0", "integration_tests/test_kafka_log_keeps_the_contract.py"),
        environment={"SAMZAPY_LOG_SCRIPTS": "500"},
    ),
    "flood": Section(
        proof="a flood of requests on a broker",
        size="20,000 requests",
        command=_tests("--numprocesses", "0", "integration_tests/test_a_flood_of_requests_is_answered.py"),
        environment={"SAMZAPY_FLOOD": "20000"},
    ),
    "ledgers": Section(
        proof="ledgers",
        size="all of them full",
        command=_tests("--numprocesses", "2", "-m", "ledger", "integration_tests"),
        environment={"SAMZAPY_LEDGERS": "full"},
    ),
    "demo": Section(
        proof="the demo on a Spark cluster",
        size="three containers, one moved, one killed",
        command=("scripts/demo", "--cluster"),
        success="every aircraft right, no message lost or twice",
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Run, print, and give the exit code."""
    options = _options(arguments)
    logs = options.logs or Path(tempfile.mkdtemp(prefix="samzapy-soak-"))
    logs.mkdir(parents=True, exist_ok=True)
    commit = _commit()
    rows, failed = [], []
    for name in options.sections or SECTIONS:
        log = logs / f"{name}.log"
        print(f"soak: {name}, output in {log}", flush=True)
        code, duration_s = _run(SECTIONS[name], log)
        if code:
            failed.append(name)
        rows.append(row(SECTIONS[name], code, duration_s, log.read_text(errors="replace"), commit))
    print("\n".join(rows), flush=True)
    if failed:
        print(f"soak: failed: {', '.join(failed)}; see {logs}", file=sys.stderr)
    return 1 if failed else 0


def row(section: Section, code: int, duration_s: float, output: str, commit: str) -> str:
    """A section's row of the table of full runs."""
    lines = [line.strip("= ") for line in output.splitlines() if line.strip("= ")]
    last = (lines[-1] if lines else "no output")[:LAST_LINE_CHARACTERS_MAX].replace("|", "/")
    outcome = section.success or last if code == 0 else f"FAILED with exit code {code}: {last}"
    took = f"{duration_s:.0f} s on {os.cpu_count()} cores"
    return f"| {section.proof} | {section.size} | {datetime.now(UTC):%Y-%m-%d} | {commit} | {outcome}; {took} |"


def _run(section: Section, log: Path) -> tuple[int, float]:
    begun = time.monotonic()
    with log.open("wb") as output:
        environment = {**os.environ, **section.environment}
        ended = subprocess.run(
            section.command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    return ended.returncode, time.monotonic() - begun


def _commit() -> str:
    """The commit that is checked out, with a `+` if the tree has other changes."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=ROOT, capture_output=True, text=True
    )
    return described.stdout.strip() or "no commit"


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    listing = "\n".join(f"  {name:10} {section.proof}: {section.size}" for name, section in SECTIONS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/soak",
        description="The proofs that CI runs small, at their full size.",
        epilog=f"sections:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help="a section to run; by default all run, in this order"
    )
    parser.add_argument("--logs", type=Path, help="a directory for the output of each section")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"wanted sections of {', '.join(SECTIONS)}, found {', '.join(unknown)}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
