"""With real processes: that a lock ends with its holder is the whole point of it."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from samzapy.adapters.spark.slots import (
    CLEAN,
    DriverSlots,
    HeldSlot,
    LeaseFile,
    StaleQueryError,
    WorkerSlots,
    _SlotFile,
    boottime_ns,
    slot_path,
)
from samzapy.errors import DeadlineError, LostContainerError, SamzapyError

# A worker in another process: enters the query of its first argument, does the test's act, and reports the slot.
WORKER = """
import sys
from pathlib import Path
from samzapy.adapters.spark.slots import WorkerSlots
slots = WorkerSlots(Path(sys.argv[1]), int(sys.argv[2]), make_producer=lambda slot: object(),
    must_renew=lambda producer: False, close=lambda producer: None)
held = slots.take(int(sys.argv[3]), 5.0)
{code}
print(held.slot, flush=True)
sys.stdin.read()
"""


@contextmanager
def a_worker(
    scratch_dir: Path, *, slot: int, slots: int = 1, query: int = 1, code: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """A worker process that is in `slot` and stays there."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER.format(code=code), str(scratch_dir), str(slots), str(query)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert f"{slot}\n" == process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def a_lock_by_descriptor(path: Path) -> Iterator[None]:
    """A lock without a holder's pid, as one of a process in another pid namespace."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("@hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        yield
    finally:
        os.close(descriptor)


class Producers:
    """Makes numbered producers, and notes the end of each."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.closed: list[str] = []
        self.to_renew: set[str] = set()
        self.refuses = False

    def make(self, slot: int) -> str:
        if self.refuses:
            raise LostContainerError("given up")
        self.made.append(f"{slot}/{len(self.made)}")
        return self.made[-1]


class AProcess:
    """Driver and worker of an execution in this process.

    Their locks do not exclude each other, their files do.
    """

    def __init__(self, scratch_dir: Path, slot_count: int = 2) -> None:
        self.driver = DriverSlots(scratch_dir, slot_count)
        self.producers = Producers()
        self.lease = LeaseFile(scratch_dir)
        self.lease.extend_to(boottime_ns() + 10**12)
        self.slots = WorkerSlots(
            scratch_dir,
            slot_count,
            make_producer=self.producers.make,
            must_renew=lambda producer: producer in self.producers.to_renew,
            close=self.producers.closed.append,
        )
        self.driver.take_all(0)
        self.driver.admit(1)

    def take(self, query: int = 1) -> HeldSlot[str]:
        return self.slots.take(query, 0)

    def recover(self, query: int) -> list[int]:
        """The driver's part of a start."""
        open_slots = list(self.driver.take_all(0))
        self.driver.block(query)
        self.driver.renew(open_slots)
        self.driver.admit(query)
        return open_slots


# --- locks ---


def test_a_slot_that_a_process_holds_cannot_be_taken_by_another(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 1)

    with (
        a_worker(tmp_path, slot=0),
        pytest.raises(DeadlineError, match="wanted one of 1 worker slots, all stayed taken"),
    ):
        process.take()


def test_the_next_free_slot_is_taken(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 2)

    with a_worker(tmp_path, slot=0, slots=2):
        assert 1 == process.take().slot


def test_a_killed_worker_frees_its_slot(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 1)

    with a_worker(tmp_path, slot=0) as worker:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()

        assert 0 == process.take().slot


def test_children_of_user_code_do_not_keep_the_slot(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 1)
    # Reads a line that this test never writes, and ends with it.
    code = "import subprocess; subprocess.Popen(['cat'], close_fds=False)"

    with a_worker(tmp_path, slot=0, code=code) as worker:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()

        assert 0 == process.take().slot


def test_a_worker_that_releases_its_slot_lets_others_in(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 1)

    with a_worker(tmp_path, slot=0, code="held.release()"):
        assert 0 == process.take().slot


def test_a_worker_takes_its_previous_slot_again(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 2)
    with a_worker(tmp_path, slot=0, slots=2):
        process.take().release()

    assert 1 == process.take().slot


# --- the driver takes them all ---


def test_the_driver_kills_the_worker_that_does_not_yield_and_no_other(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 2)

    with (
        a_worker(tmp_path, slot=0, slots=2) as stays,
        a_worker(tmp_path, slot=1, slots=2, code="held.release()") as gone,
    ):
        os.kill(stays.pid, signal.SIGSTOP)

        process.driver.take_all(50)

        assert -signal.SIGKILL == stays.wait()
        assert gone.poll() is None


def test_the_holder_of_a_slot_is_known_by_its_pid(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process = AProcess(tmp_path, 1)

    with a_worker(tmp_path, slot=0) as worker:
        process.driver.kill_holders()

    assert [f"worker {worker.pid} did not leave slot-0 in time and is killed"] == [
        record.getMessage() for record in caplog.records[:1]
    ]


def test_a_worker_that_does_not_die_keeps_no_other_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that waits for a disk that hangs dies only once the disk answers."""
    process = AProcess(tmp_path, 2)
    kill = os.kill
    monkeypatch.setattr("samzapy.adapters.spark.slots._KILL_WAIT_S", 0.2)

    with a_worker(tmp_path, slot=0, slots=2) as stays, a_worker(tmp_path, slot=1, slots=2) as other:
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", lambda pid, number: None if pid == stays.pid else kill(pid, number))
            with pytest.raises(DeadlineError, match=f"worker {stays.pid} still holds"):
                process.driver.kill_holders()

        assert stays.poll() is None
        assert -signal.SIGKILL == other.wait(timeout=10)


def test_a_holder_that_cannot_be_seen_keeps_no_other_alive(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 2)
    with a_lock_by_descriptor(tmp_path / "slot-0"), a_worker(tmp_path, slot=1, slots=2) as other:
        with pytest.raises(SamzapyError, match="slot-0 is held by a process that cannot be seen from here"):
            process.driver.kill_holders()

        assert -signal.SIGKILL == other.wait(timeout=10)


def test_killing_holders_spares_the_driver_that_holds_the_slots_itself(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 2)
    process.driver.take_all(0)

    process.driver.kill_holders()


def test_no_worker_takes_a_slot_while_the_driver_holds_them(tmp_path: Path) -> None:
    driver = DriverSlots(tmp_path, 1)
    driver.take_all(0)

    ran = subprocess.run(
        [sys.executable, "-c", WORKER.format(code="").replace("5.0", "0"), str(tmp_path), "1", "0"],
        capture_output=True,
        text=True,
    )

    assert "DeadlineError: wanted one of 1 worker slots" in ran.stderr


def test_slots_that_a_dead_worker_left_open_are_named(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 3)

    with a_worker(tmp_path, slot=0, slots=3), a_worker(tmp_path, slot=1, slots=3, code="held.mark_open()") as dead:
        os.kill(dead.pid, signal.SIGKILL)
        dead.wait()

    assert [1] == list(process.driver.take_all(1000))


def test_a_slot_is_open_from_mark_open_until_mark_clean(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 1)
    held = process.take()

    held.mark_open()
    assert [0] == list(process.driver.take_all(0))

    held.mark_clean()
    assert [] == list(process.driver.take_all(0))


def test_a_holder_without_a_pid_is_an_error_and_no_kill_of_a_whole_group(tmp_path: Path) -> None:
    """`os.kill` takes 0 for the own process group and -1 for all processes.

    A lock by descriptor has no holder's pid.
    """
    slot = _SlotFile(tmp_path / "slot-0")

    with (
        a_lock_by_descriptor(slot.path),
        pytest.raises(SamzapyError, match=r"slot-0 is held by a process that cannot be seen from here \(pid -1\)"),
    ):
        slot.holder()


# --- whose query it is ---


def test_a_worker_of_an_older_query_finds_out_as_soon_as_it_has_a_slot_and_keeps_nothing(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 1)
    process.recover(2)

    with pytest.raises(StaleQueryError, match="query 1 has ended, query 2 is running"):
        process.take(1)

    with a_worker(tmp_path, slot=0, query=2):
        pass


def test_a_worker_that_waited_through_a_recovery_does_nothing(tmp_path: Path) -> None:
    driver = DriverSlots(tmp_path, 1)
    driver.take_all(0)
    driver.block(1)
    waiting = subprocess.Popen(
        [sys.executable, "-c", WORKER.format(code=""), str(tmp_path), "1", "1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    driver.block(2)
    driver.admit(2)

    out, error = waiting.communicate()
    assert ("", True) == (out, "StaleQueryError" in error)


def test_a_blocked_slot_admits_no_worker_of_the_old_query(tmp_path: Path) -> None:
    process = AProcess(tmp_path, 2)
    process.driver.take_all(0)

    process.driver.block(7)

    for query in (1, 6, 8):
        with pytest.raises(StaleQueryError):
            process.take(query)
    assert 0 == process.take(7).slot


# --- producers ---


def test_a_producer_is_kept_while_the_slot_s_instance_is_its_own(tmp_path: Path) -> None:
    process = AProcess(tmp_path)
    held = process.take()
    first = held.producer()
    held.release()

    again = process.take()

    assert first == again.producer() == again.producer()
    assert ["0/0"] == process.producers.made


def test_a_producer_survives_a_recovery_that_found_its_slot_clean(tmp_path: Path) -> None:
    process = AProcess(tmp_path)
    held = process.take()
    held.producer()
    held.release()

    process.recover(2)
    process.take(2).producer()

    assert ["0/0"] == process.producers.made


def test_the_producer_of_a_renewed_slot_is_closed_and_replaced(tmp_path: Path) -> None:
    process = AProcess(tmp_path)
    held = process.take()
    held.producer()
    held.mark_open()
    held.release()

    assert [0] == process.recover(2)
    again = process.take(2)

    assert "0/1" == again.producer()
    assert ["0/0"] == process.producers.closed
    assert CLEAN == again.content.state


def test_a_producer_is_of_no_use_once_another_process_made_one_for_the_slot(tmp_path: Path) -> None:
    process = AProcess(tmp_path)
    held = process.take()
    held.producer()
    held.release()
    with a_worker(tmp_path, slot=0, slots=2, code="held.producer()"):
        pass

    assert "0/1" == process.take().producer()
    assert ["0/0"] == process.producers.closed


def test_each_slot_has_a_producer_of_its_own(tmp_path: Path) -> None:
    process = AProcess(tmp_path)
    held = process.take()
    held.producer()
    held.release()

    with a_worker(tmp_path, slot=0, slots=2):
        other = process.take()

        assert (1, "1/1") == (other.slot, other.producer())
    assert [] == process.producers.closed


def test_a_producer_that_must_be_renewed_is_replaced(tmp_path: Path) -> None:
    process = AProcess(tmp_path)
    held = process.take()
    process.producers.to_renew.add(held.producer())

    assert "0/1" == held.producer() == held.producer()
    assert ["0/0"] == process.producers.closed


def test_unusable_producers_of_other_slots_are_closed_too(tmp_path: Path) -> None:
    process = AProcess(tmp_path)
    held = process.take()
    kept = held.producer()
    held.release()

    with a_worker(tmp_path, slot=0, slots=2):
        other = process.take()
        assert ("1/1", []) == (other.producer(), process.producers.closed)
        process.producers.to_renew.add(kept)

        assert ("1/1", ["0/0"]) == (other.producer(), process.producers.closed)


def test_a_producer_that_cannot_be_made_leaves_the_slot_unchanged(tmp_path: Path) -> None:
    process = AProcess(tmp_path)
    process.producers.refuses = True
    held = process.take()

    with pytest.raises(LostContainerError):
        held.producer()

    assert (0, CLEAN) == (held.content.instance, held.content.state)
    process.producers.refuses = False
    assert "0/0" == held.producer()


def test_marks_keep_query_and_instance(tmp_path: Path) -> None:
    process = AProcess(tmp_path)
    process.recover(12345678)
    held = process.take(12345678)
    held.producer()

    held.mark_open()
    held.release()

    marks = process.slots._files[0].read()
    assert (12345678, 1, "open") == (marks.query, marks.instance, marks.state)


def test_a_new_driver_begins_with_clean_files_whatever_they_held_before(tmp_path: Path) -> None:
    slot_path(tmp_path, 0).write_bytes(b"x" * 500)

    process = AProcess(tmp_path, 1)

    assert [] == list(process.driver.take_all(0))
    assert 0 == process.take().slot


# --- the lease ---


def test_an_expired_lease_is_refused_with_the_time_since_its_deadline(tmp_path: Path) -> None:
    process = AProcess(tmp_path)
    held = process.take()
    held.check_lease()

    process.lease.extend_to(boottime_ns() - 5_000_000)

    with pytest.raises(LostContainerError, match=r"the container's lease ran out \d+ ms ago"):
        held.check_lease()
    process.lease.extend_to(boottime_ns() + 10**12)
    held.check_lease()


def test_a_lease_that_was_ended_is_not_extended_by_a_late_answer(tmp_path: Path) -> None:
    process = AProcess(tmp_path)
    assert process.slots.has_lease()

    process.lease.end()
    process.lease.extend_to(boottime_ns() + 10**12)

    assert not process.slots.has_lease()


def test_there_is_no_lease_before_the_first_answer(tmp_path: Path) -> None:
    with pytest.raises(LostContainerError, match="no coordinator answered its heartbeats"):
        LeaseFile(tmp_path).check()


def test_the_message_in_hand_is_known_after_its_worker_was_killed(tmp_path: Path) -> None:
    driver = DriverSlots(tmp_path, 1)
    driver.admit(1)
    with a_worker(tmp_path, slot=0, code="held.mark_open(); held.note(3, 7); held.note(3, 2**40)") as worker:
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)

    assert [0] == driver.take_all(5000)

    assert [(3, 2**40)] == driver.in_hand([0], 1)
    assert [] == driver.in_hand([0], 2), "the note of a worker of another query"


def test_a_committed_message_is_not_noted_as_in_hand(tmp_path: Path) -> None:
    driver = DriverSlots(tmp_path, 1)
    driver.admit(1)
    code = "held.mark_open(); held.note(3, 7); held.mark_clean(); held.mark_open()"
    with a_worker(tmp_path, slot=0, code=code) as worker:
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)

    assert [0] == driver.take_all(5000)

    assert [] == driver.in_hand([0], 1)
