"""Worker slots, as POSIX record locks.

A lock allows a process to work, and ends with the process. Each slot has a file in the execution's scratch directory. A
Python worker holds the lock of one slot from before its first look at a store until after its local commit; the driver
takes all locks to recover. The file has the query that may work (`query`), the number of the slot's producer
(`instance`), and whether a transaction may be open (`state`).

A POSIX lock is dropped when its process closes *any* descriptor of the file, so each process opens each file once, and
reads and writes it only through that descriptor. (With flock, child processes of user code would inherit the lock.)
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from samzapy.adapters.spark.open_tasks import WorkersWithTasks
from samzapy.adapters.spark.scratch_json import read_json
from samzapy.adapters.spark.so_far_file import SoFarFile
from samzapy.container.task.so_far import SoFar
from samzapy.errors import DeadlineError, LostContainerError, SamzapyError

_LOG = logging.getLogger(__name__)
CONTENT_BYTES = 128
# Behind the content: query number, route, offset of the message in hand.
_NOTE = struct.Struct("<qqq")
_NO_NOTE = (-1, -1, -1)
# Behind that: query number, route, offset of a message that is slow, and since when on the host's clock.
_SLOW = struct.Struct("<qqqq")
_NOT_SLOW = (-1, -1, -1, -1)
_FLOCK = "@hhqqi"
_KILL_WAIT_S = 10.0
P = TypeVar("P")
OPEN, CLEAN = "open", "clean"


class StaleQueryError(SamzapyError):
    """This worker belongs to a query that has ended; it must do nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotContent:
    """The content of a slot file. `instance` 0: no producer was made yet."""

    query: int
    instance: int
    state: str


class _SlotFile:
    """One slot file, open once in this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_lock(self) -> bool:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def unlock(self) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def holder(self) -> int | None:
        """The pid of another process that holds the lock, or None (F_GETLK)."""
        wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(self._descriptor, fcntl.F_GETLK, wanted))
        if kind == fcntl.F_UNLCK:
            return None
        if pid <= 0:
            # The process is in another pid namespace. For `os.kill` such a number means a group of processes.
            raise SamzapyError(
                f"{self.path} is held by a process that cannot be seen from here (pid {pid}); end it and start again"
            )
        return int(pid)

    def read(self) -> SlotContent:
        raw = os.pread(self._descriptor, CONTENT_BYTES, 0)
        if not raw.strip():
            return SlotContent(query=0, instance=0, state=CLEAN)
        return read_json(raw, SlotContent, self.path)

    def write(self, content: SlotContent) -> None:
        # Twice for each transaction, so without an encoder.
        text = f'{{"query": {content.query}, "instance": {content.instance}, "state": "{content.state}"}}'
        os.pwrite(self._descriptor, text.ljust(CONTENT_BYTES).encode(), 0)

    def note(self, query_number: int, route: int, offset: int) -> None:
        os.pwrite(self._descriptor, _NOTE.pack(query_number, route, offset), CONTENT_BYTES)

    def note_slow(self, query_number: int, route: int, offset: int, since_boot_ms: int) -> None:
        content = _SLOW.pack(query_number, route, offset, since_boot_ms)
        os.pwrite(self._descriptor, content, CONTENT_BYTES + _NOTE.size)

    def slow(self, query_number: int) -> tuple[int, int, int] | None:
        """The route, offset and time of the slow message in hand of this query's worker."""
        raw = os.pread(self._descriptor, _SLOW.size, CONTENT_BYTES + _NOTE.size)
        if len(raw) < _SLOW.size:
            return None
        query, route, offset, since_boot_ms = _SLOW.unpack(raw)
        return (route, offset, since_boot_ms) if query == query_number else None

    def noted(self, query_number: int) -> tuple[int, int] | None:
        """The route and offset that a worker of this query noted last."""
        raw = os.pread(self._descriptor, _NOTE.size, CONTENT_BYTES)
        if len(raw) < _NOTE.size:
            return None
        query, route, offset = _NOTE.unpack(raw)
        return (route, offset) if query == query_number else None


def slot_path(scratch_dir: Path, slot: int) -> Path:
    return scratch_dir / f"slot-{slot}"


def lease_path(scratch_dir: Path) -> Path:
    return scratch_dir / "lease"


def boottime_ns() -> int:
    """The clock of leases, the same in all processes of a host.

    It also runs while the host is suspended.
    """
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class LeaseFile:
    """The container's lease in a file.

    The driver writes it at each positive heartbeat, and workers read it.
    """

    def __init__(self, scratch_dir: Path) -> None:
        self._descriptor = os.open(lease_path(scratch_dir), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._is_over = False

    def extend_to(self, deadline_ns: int) -> None:
        if not self._is_over:
            os.pwrite(self._descriptor, struct.pack("<q", deadline_ns), 0)

    def end(self) -> None:
        """End the lease for good, also if a heartbeat is answered later."""
        self._is_over = True
        os.pwrite(self._descriptor, struct.pack("<q", 0), 0)

    def check(self) -> None:
        """Raise LostContainerError if the lease has expired."""
        late_ns = self._late_ns()
        if late_ns > 0:
            raise LostContainerError(
                f"the container's lease ran out {late_ns // 1_000_000} ms ago: "
                "no coordinator answered its heartbeats; nothing more is begun or committed until one does"
            )

    def holds(self) -> bool:
        """Whether the lease has not expired."""
        return self._late_ns() <= 0

    def _late_ns(self) -> int:
        raw = os.pread(self._descriptor, 8, 0)
        deadline_ns: int = struct.unpack("<q", raw)[0] if len(raw) == 8 else 0
        return boottime_ns() - deadline_ns


class WorkerSlots(Generic[P]):
    """The slots in a worker process.

    `P` is the producer's type; `make_producer(slot)` returns one ready to begin. `must_renew` says whether a kept
    producer must not be used again (the EndTxn guard, or a failure).
    """

    def __init__(
        self,
        scratch_dir: Path,
        slot_count: int,
        *,
        make_producer: Callable[[int], P],
        must_renew: Callable[[P], bool],
        close: Callable[[P], None],
    ) -> None:
        self._files = [_SlotFile(slot_path(scratch_dir, slot)) for slot in range(slot_count)]
        self._lease = LeaseFile(scratch_dir)
        self._make_producer, self._must_renew, self._close = make_producer, must_renew, close
        self._producers: dict[int, tuple[int, P]] = {}
        self._slot_last = 0

    def has_lease(self) -> bool:
        """Whether the container's lease holds."""
        return self._lease.holds()

    def take(self, query_number: int, wait_s: float) -> HeldSlot[P]:
        """Take a slot, preferably the one held last.

        Raises:
            StaleQueryError: another query has been started meanwhile.
            DeadlineError: every slot stayed taken.
        """
        deadline_s = time.monotonic() + wait_s
        count = len(self._files)
        while True:
            for step in range(count):
                slot = (self._slot_last + step) % count
                if self._files[slot].try_lock():
                    return self._entered(slot, query_number)
            if time.monotonic() >= deadline_s:
                raise DeadlineError(f"wanted one of {count} worker slots, all stayed taken for {wait_s:.0f} s")
            time.sleep(0.002)

    def _entered(self, slot: int, query_number: int) -> HeldSlot[P]:
        content = self._files[slot].read()
        if content.query != query_number:
            self._files[slot].unlock()
            raise StaleQueryError(f"query {query_number} has ended, query {content.query} is running")
        self._slot_last = slot
        return HeldSlot(self, slot, self._files[slot], content, self._lease)

    def producer(self, held: HeldSlot[P]) -> P:
        """The slot's producer.

        It is the one kept in this process if it still belongs to the slot, or a new one.
        """
        for slot in [slot for slot in self._producers if slot != held.slot]:
            # The question also runs the client's callbacks, whose events pile up until then. (Spark ends a worker that
            # is idle for a minute.)
            if self._must_renew(self._producers[slot][1]):
                self._close(self._producers.pop(slot)[1])
        kept = self._producers.pop(held.slot, None)
        if kept is not None:
            instance, producer = kept
            if instance == held.content.instance and not self._must_renew(producer):
                self._producers[held.slot] = kept
                return producer
            self._close(producer)
        made = self._make_producer(held.slot)
        held.set_content(replace(held.content, instance=held.content.instance + 1))
        self._producers[held.slot] = (held.content.instance, made)
        return made


class HeldSlot(Generic[P]):
    """A slot while this process holds it (`container.ports.SlotGuard`)."""

    def __init__(
        self, slots: WorkerSlots[P], slot: int, file: _SlotFile, content: SlotContent, lease: LeaseFile
    ) -> None:
        self.slot = slot
        self.content = content
        self._slots, self._file, self._lease = slots, file, lease
        self._so_far = SoFarFile(file.path)
        self._has_note = False

    def release(self) -> None:
        """Free the slot for another process."""
        self._file.unlock()

    def producer(self) -> P:
        return self._slots.producer(self)

    def mark_open(self) -> None:
        self._set_state(OPEN)

    def mark_clean(self) -> None:
        self._set_state(CLEAN)
        if self._has_note:
            self._file.note(*_NO_NOTE)
            self._has_note = False

    def note(self, route: int, offset: int) -> None:
        self._has_note = True
        self._file.note(self.content.query, route, offset)

    def note_slow(self, route: int, offset: int, since_boot_ms: int) -> None:
        """Note a message that is in hand since then, by the host's clock."""
        self._file.note_slow(self.content.query, route, offset, since_boot_ms)

    def clear_slow(self) -> None:
        """Take the note of a slow message back."""
        self._file.note_slow(*_NOT_SLOW)

    def note_so_far(self, noted: Sequence[SoFar]) -> None:
        """Note the costs that are not reported yet."""
        self._so_far.write(self.content.query, noted)

    def clear_so_far(self) -> None:
        """Take the note of the costs back."""
        self._so_far.remove()

    def check_lease(self) -> None:
        self._lease.check()

    def _set_state(self, state: str) -> None:
        content = self.content
        self.set_content(SlotContent(query=content.query, instance=content.instance, state=state))

    def set_content(self, content: SlotContent) -> None:
        self._file.write(content)
        self.content = content


class DriverSlots:
    """The slots in the driver: all of the execution (`container.ports.Slots`)."""

    def __init__(self, scratch_dir: Path, slot_count: int) -> None:
        self._files = [_SlotFile(slot_path(scratch_dir, slot)) for slot in range(slot_count)]
        self._workers = WorkersWithTasks(scratch_dir)
        for file in self._files:
            file.write(SlotContent(query=0, instance=0, state=CLEAN))

    def take_all(self, wait_ms: int) -> Sequence[int]:
        """Take every lock, and return the slots with open transactions.

        Late workers are killed after `wait_ms`.
        """
        deadline_s = time.monotonic() + wait_ms / 1000
        for file in self._files:
            while not file.try_lock():
                if time.monotonic() >= deadline_s:
                    _kill_holders([file])
                time.sleep(0.005)
        return [slot for slot, file in enumerate(self._files) if file.read().state == OPEN]

    def in_hand(self, slots: Sequence[int], query_number: int) -> Sequence[tuple[int, int]]:
        """The messages that workers of a query noted last in these slots.

        Each is a route and an offset.
        """
        noted = (self._files[slot].noted(query_number) for slot in slots)
        return [message for message in noted if message is not None]

    def slow_messages(self, query_number: int) -> Sequence[tuple[int, int, int]]:
        """The slow messages that workers of a query have in hand.

        Each is a route, an offset, and a time of the host's clock.
        """
        noted = (file.slow(query_number) for file in self._files)
        return [message for message in noted if message is not None]

    def so_far(self, query_number: int) -> Sequence[SoFar]:
        """The costs that workers of a query have not reported yet."""
        return [one for file in self._files for one in SoFarFile(file.path).read(query_number)]

    def renew(self, slots: Sequence[int]) -> None:
        """Note that these slots need new producers.

        No transaction is open under their ids.
        """
        for slot in slots:
            content = self._files[slot].read()
            self._files[slot].write(replace(content, instance=content.instance + 1, state=CLEAN))

    def admit(self, query_number: int) -> None:
        """Admit the workers of a query, and no others."""
        self.block(query_number)
        for file in self._files:
            file.unlock()

    def block(self, query_number: int) -> None:
        """Write the next query's number into every slot while all are held.

        After that, older workers cannot start.
        """
        for file in self._files:
            file.write(replace(file.read(), query=query_number))

    def close_tasks(self, wait_ms: int) -> None:
        """Have the workers close their instances of user code."""
        self._workers.close(wait_ms)

    def kill_holders(self) -> None:
        """Kill every worker that holds a slot (`_kill_holders`)."""
        _kill_holders(self._files)


def _kill_holders(files: Sequence[_SlotFile]) -> None:
    """Kill the processes that hold these slots, and wait for their locks.

    The kernel frees the locks. A holder that stays delays the end of no other.

    Raises:
        SamzapyError: a holder cannot be seen from here, or is still there after `_KILL_WAIT_S`.
    """
    deadline_s = time.monotonic() + _KILL_WAIT_S
    killed: dict[Path, int] = {}
    unseen: SamzapyError | None = None
    held = list(files)
    while True:
        for file in tuple(held):
            try:
                pid = file.holder()
            except SamzapyError as error:
                unseen, pid = unseen or error, None
            if pid is None or not _kill(pid, file, killed):
                held.remove(file)
        if not held:
            break
        if time.monotonic() >= deadline_s:
            raise DeadlineError(
                f"worker {killed[held[0].path]} still holds {held[0].path} {_KILL_WAIT_S:.0f} s after it was killed; "
                "it may wait for a disk that hangs"
            )
        time.sleep(0.01)
    if unseen is not None:
        raise unseen


def _kill(pid: int, file: _SlotFile, killed: dict[Path, int]) -> bool:
    """Kill a slot's holder, unless `killed` has it; False if it is gone already."""
    if killed.get(file.path) != pid:
        killed[file.path] = pid
        _LOG.warning("worker %d did not leave %s in time and is killed", pid, file.path.name)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
    return True
