"""The harness' view of a running job; the whole of it runs in integration_tests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support.job_process import JobProcess, SlotSeen, kill, slots_in
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.spark.slots import CONTENT_BYTES, DriverSlots, slot_path

HOLD = """
import fcntl, signal, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
signal.pause()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that works in slot 1."""
    DriverSlots(tmp_path, 2)
    command = [sys.executable, "-c", HOLD, str(slot_path(tmp_path, 1))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert "held\n" == child.stdout.readline()
        yield child
        child.kill()


def test_slots_show_their_holder_and_whether_a_transaction_is_open(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    content = json.dumps({"query": 1, "instance": 1, "state": "open"}).ljust(CONTENT_BYTES).encode()
    # Behind it a worker notes the message in hand.
    slot_path(tmp_path, 1).write_bytes(content + b"\xff" * 24)

    assert (
        SlotSeen(slot=0, is_open=False, holder=None),
        SlotSeen(slot=1, is_open=True, holder=holder.pid),
    ) == slots_in(tmp_path)


class RemovedMeanwhile(type(Path())):  # type: ignore[misc]
    """A directory that is there when it is looked for, and is gone when it is read."""

    def is_dir(self) -> bool:
        return True


def test_a_scratch_directory_that_is_removed_while_it_is_read_has_no_slots(tmp_path: Path) -> None:
    assert () == slots_in(RemovedMeanwhile(tmp_path / "removed"))


def test_a_kill_is_proven_and_one_that_came_too_late_is_no_fault(holder: subprocess.Popen[str]) -> None:
    process = ProcessIdentity.of(holder.pid)

    kill(process)

    assert not process.is_alive()
    with pytest.raises(ProcessLookupError, match="had ended before it was killed"):
        kill(process)


def test_a_job_that_was_never_started_has_no_processes(tmp_path: Path) -> None:
    job = JobProcess(tmp_path / "job.py", log_dir=tmp_path, overrides={})

    assert (None, None, None, (), (), "") == (
        job.exit_code(),
        job.jvm(),
        job.driver(),
        job.workers(),
        job.slots(),
        job.log_text(),
    )
    with job:
        assert not job.is_running()
