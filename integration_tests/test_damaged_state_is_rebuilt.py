"""Local state is truncated and changed, while the job runs and while it does not.

The ledger has every record, and so the right state at the end.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from integration_tests.ledger_run import PARTITIONS, TAILS, LedgerRun
from integration_tests.seeds import printed_seed
from integration_tests.support.job_process import kill
from integration_tests.support.ledger import describe_violations
from samzapy.stream.changelog import changelog_key

RECORDS_PER_S = 200
PAGE_BYTES = 4096
CHANGED_BYTES = 64
APPEARS_WITHIN_S = 300.0
LEFT_BEHIND = "is left behind and rebuilt from the changelog"


@pytest.mark.ledger
@pytest.mark.timeout(1800)
def test_state_that_is_cut_short_or_changed_is_rebuilt_and_equals_the_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("damaged state", "SAMZAPY_LEDGER_SEED", capsys)
    with LedgerRun(tmp_path, seed=seed, overrides=TAILS) as run:
        run.feed(RECORDS_PER_S)
        run.await_work(in_tails=True)

        # While the job runs: the file of one task is cut, entries of another one are changed.
        cut(data_file(run, 0))
        await_rebuilt(run, 0)
        await_outputs(run)
        # A page that is written meanwhile is another one, so they are changed until the job has read one.
        run.wait(
            lambda: is_rebuilt(run, 1) or change_if_there(run, 1), APPEARS_WITHIN_S, "changed entries to be found"
        )
        await_outputs(run)

        # While it does not.
        driver = run.wait(run.job.driver, APPEARS_WITHIN_S, "the driver")
        run.was_killed()
        kill(driver)
        run.job.wait_gone()
        cut(data_file(run, 2))
        assert change(run, 3) > 0
        await_rebuilt(run, 2)
        await_rebuilt(run, 3)
        await_outputs(run)
        violations = run.finish()

        with capsys.disabled():
            print(f"damaged state: {run.figures}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_LEDGER_SEED={seed}: {describe_violations(violations)}"
        assert [] == run.figures.ended_by_itself, run.job.all_log_text()


def data_file(run: LedgerRun, number: int) -> Path:
    """Of the task of a partition."""
    (task,) = (run.directory / "state" / run.subject.name).glob(f"*.{number}")
    environments = [path for path in task.iterdir() if path.name.isdigit()]
    return max(environments, key=lambda path: int(path.name)) / "data.mdb"


def cut(data: Path) -> None:
    """Leave the meta pages only, as a file system may after it was full."""
    before = data.stat().st_size
    os.truncate(data, 2 * PAGE_BYTES)
    assert before > 3 * PAGE_BYTES


def change_if_there(run: LedgerRun, number: int) -> bool:
    """As `change`, for a task that may be about to leave its file behind; never true."""
    with contextlib.suppress(FileNotFoundError):
        change(run, number)
    return False


def change(run: LedgerRun, number: int) -> int:
    """Change 64 bytes after some stored keys of a task; returns how many keys.

    Not beyond their page: a page's header that turns into another possible one hides entries, which no checksum of an
    entry shows (`adapters.lmdb.checksums`).
    """
    data = data_file(run, number)
    content = data.read_bytes()
    count = 0
    for key in keys(run):
        stored, at = b"\0" + changelog_key(key.encode(), b""), 0
        while (at := content.find(stored, at)) >= 0:
            with data.open("r+b") as file:
                file.seek(at + len(stored))
                page_end = (at // PAGE_BYTES + 1) * PAGE_BYTES
                file.write(os.urandom(max(0, min(CHANGED_BYTES, page_end - at - len(stored)))))
            at, count = at + 1, count + 1
    return count


def keys(run: LedgerRun) -> Sequence[str]:
    return sorted({fed.key for fed in list(run.ledger.acked) if fed.key is not None})[:20]


def is_rebuilt(run: LedgerRun, number: int) -> bool:
    """Whether a log reports that the state of a partition's task was discarded."""
    lines = run.job.all_log_text().splitlines()
    return any(LEFT_BEHIND in line and f".{number}/" in line for line in lines)


def await_rebuilt(run: LedgerRun, number: int) -> None:
    run.wait(lambda: is_rebuilt(run, number) or None, APPEARS_WITHIN_S, f"the state of task {number} to be rebuilt")


def await_outputs(run: LedgerRun) -> None:
    """Of each partition, new ones."""
    before = run.watcher.count() + 50 * PARTITIONS
    run.wait(lambda: run.watcher.count() >= before, APPEARS_WITHIN_S, "further outputs")
