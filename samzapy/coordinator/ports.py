"""The ports of the coordinator (`coordinator.service`).

Each port is as small as its use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from samzapy.coordinator.assignment.starts import ChangelogPlace, PositionsRead
from samzapy.coordinator.commands import Command, OffsetBounds
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch, Launched
from samzapy.model.ssp import SystemStreamPartition
from samzapy.stream.log import Write


class Clock(Protocol):
    """Monotonic time decides; wall time, and how many nanoseconds something took, are only shown."""

    def monotonic_ms(self) -> int: ...

    def monotonic_ns(self) -> int: ...

    def wall_ms(self) -> int: ...


class CommandSource(Protocol):
    """Where commands from outside wait: heartbeats and whatever operators ask for."""

    def take(self, timeout_ms: int) -> Sequence[Command]:
        """Everything that waits, in the order of arrival; blocks for at most `timeout_ms` while nothing does."""
        ...


class Fencing(Protocol):
    """Takes the transactional ids of lost executions away from them."""

    def fence(self, transactional_ids: Sequence[str]) -> None:
        """Initialise each id, which aborts what it had open and fences its owner. Repeating it does no harm.

        Raises:
            TemporaryError, DeadlineError, ProducerError, FencedError: not all of them, as far as is known; it is
                asked for again.
        """
        ...


class Positions(Protocol):
    """What is of record about positions."""

    def read(self, ssps: Sequence[SystemStreamPartition], changelogs: Sequence[ChangelogPlace] = ()) -> PositionsRead:
        """Checkpoints and progress, the checkpoint topic read to the end; bounds of `ssps`.

        An SSP that does not exist is left out of `bounds`. `changelogs`: of which partitions the ends are wanted.

        Raises:
            TemporaryError, DeadlineError: not now; it is asked for again.
            CorruptRecordError: a position of record cannot be read.
        """
        ...

    def offset_bounds(
        self, ssps: Sequence[SystemStreamPartition], timestamp_ms: int | None
    ) -> Mapping[SystemStreamPartition, OffsetBounds]:
        """Where each of `ssps` begins and ends, and where its records of `timestamp_ms` and later do.

        Raises:
            TemporaryError, DeadlineError: not now; it is asked for again.
        """
        ...

    def high_watermarks(self, ssps: Sequence[SystemStreamPartition]) -> Mapping[SystemStreamPartition, int]:
        """The ends of `ssps`, with what is not committed yet.

        Raises:
            TemporaryError, DeadlineError: not now; it is asked for again.
        """
        ...


class PlacementWriter(Protocol):
    """Writes responses and tombstones to the placement topic, in transactions of their own."""

    def own(self) -> bool:
        """Take the right to write there, which fences whoever had it; False when it is held already.

        Who took it looks at its own stream before it writes, as whoever initialises an id does.

        Raises:
            TemporaryError, ConfigError: not now.
        """
        ...

    def write(self, writes: Sequence[Write]) -> int:
        """Append all of `writes`; returns the offset after the last of them.

        Raises:
            FencedError, ProducerError: some may stand there, or none. The right is lost: `own` comes first again.
        """
        ...


class Processes(Protocol):
    """Looks at processes of the host that the coordinator runs on."""

    def is_alive(self, boot_id: str, pid: int, process_started_ms: int) -> bool | None:
        """Whether that very process runs; None when `boot_id` is not of this host as it is up now, or of other pids."""
        ...


class Launcher(Protocol):
    """Starts containers for the coordinator. Each action is idempotent by execution id, whoever performs it: another
    coordinator may have asked for the same before (law L3)."""

    def launch(self, launch: Launch) -> None:
        """Start the execution, unless it runs already. One that cannot ever be started is seen as ENDED from then on.

        Raises:
            LaunchError: not now; it is asked for again.
        """
        ...

    def kill(self, launch: Launch) -> None:
        """End the execution at once, and whatever it has started; nothing where it is gone.

        Raises:
            LaunchError: not now; it is asked for again.
        """
        ...

    def look(self, launches: Sequence[Launch]) -> Mapping[ExecutionId, Launched]:
        """How the executions are; of one that is left out nothing is known.

        Raises:
            LaunchError: the cluster manager does not answer; it is asked again.
        """
        ...

    def hosts(self) -> Mapping[str, int | None]:
        """All hosts that can be asked for by name, and how many containers each still has room for, None where that is
        not known; no hosts where they are not known.

        Raises:
            LaunchError: as `look`.
        """
        ...


class Election(Protocol):
    """Which candidate should try to lead. A hint: the lock is the transactional id of the coordinator stream."""

    def wait(self, timeout_ms: int) -> bool:
        """Whether this candidate is elected; while it is not, waits at most `timeout_ms` to become so.

        Raises:
            ConfigError: it cannot stand for election, and time does not help.
        """
        ...

    def rejoin(self) -> None:
        """Give up the seat, or the place in the queue for it, and stand again behind the others."""
        ...
