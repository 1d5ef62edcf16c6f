"""The ports of the coordinator (`coordinator.service`).

Each port is as small as its use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from samzapy.coordinator.assignment.starts import ChangelogPlace, PositionsRead
from samzapy.coordinator.commands import Command, OffsetBounds
from samzapy.model.container_end import ContainerEnd
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch, Launched
from samzapy.model.ssp import SystemStreamPartition
from samzapy.stream.log import Write


class Clock(Protocol):
    """The clocks of the host.

    Decisions use monotonic time. Wall time is used where it must outlive a process; nanoseconds are only shown.
    """

    def monotonic_ms(self) -> int: ...

    def monotonic_ns(self) -> int: ...

    def wall_ms(self) -> int: ...


class CommandSource(Protocol):
    """The queue of commands from outside: heartbeats, topics, requests."""

    def take(self, timeout_ms: int) -> Sequence[Command]:
        """Take all waiting commands, in order of arrival.

        Blocks for at most `timeout_ms` while there are none.
        """
        ...


class Fencing(Protocol):
    """Fences lost executions by their transactional ids."""

    def fence(self, transactional_ids: Sequence[str], outputs: Collection[str]) -> None:
        """Initialise each id, which aborts its open transaction and fences its owner.

        Repeating it does no harm.

        Args:
            outputs: topics that containers have named. A broker may have left a transaction of an id open there.

        Raises:
            TemporaryError, DeadlineError, ProducerError, FencedError: some may not be fenced; the caller asks again.
        """
        ...


class Positions(Protocol):
    """Recorded positions, and the bounds of inputs."""

    def read(self, ssps: Sequence[SystemStreamPartition], changelogs: Sequence[ChangelogPlace] = ()) -> PositionsRead:
        """Read checkpoints and progress to the end of their topic; bounds of `ssps`.

        An SSP that does not exist is left out of `bounds`.

        Args:
            changelogs: the partitions whose ends are wanted.

        Raises:
            TemporaryError, DeadlineError: not now; the caller asks again.
            CorruptRecordError: a recorded position cannot be read.
        """
        ...

    def offset_bounds(
        self, ssps: Sequence[SystemStreamPartition], timestamp_ms: int | None
    ) -> Mapping[SystemStreamPartition, OffsetBounds]:
        """Read where each of `ssps` begins and ends.

        Args:
            timestamp_ms: also read the offset of the first record of this time or later.

        Raises:
            TemporaryError, DeadlineError: not now; the caller asks again.
        """
        ...

    def high_watermarks(self, ssps: Sequence[SystemStreamPartition]) -> Mapping[SystemStreamPartition, int]:
        """Read the ends of `ssps`, uncommitted records included.

        Raises:
            TemporaryError, DeadlineError: not now; the caller asks again.
        """
        ...


class PlacementWriter(Protocol):
    """Writes responses and tombstones to the placement topic, in its own transactions."""

    def acquire(self) -> bool:
        """Take the right to write, which fences its holder; returns False if held already.

        A leader that took it looks at its own stream before it writes, as after each initialisation of an id.

        Raises:
            TemporaryError, ConfigError: not now.
        """
        ...

    def write(self, writes: Sequence[Write]) -> int:
        """Append all of `writes`; returns the offset after the last of them.

        Raises:
            FencedError, ProducerError: it is not known which are written. The right is lost: call `own` first.
        """
        ...


class Processes(Protocol):
    """Looks at processes of the host that the coordinator runs on."""

    def is_alive(self, boot_id: str, pid: int, process_started_ms: int) -> bool | None:
        """Whether that very process runs; None if this host cannot tell.

        It cannot tell if `boot_id` is another host's, of an earlier boot, or of another pid namespace. Nor can it if
        `/proc` hides the process, because it is another user's.
        """
        ...

    def end_of(self, execution_id: ExecutionId) -> ContainerEnd | None:
        """The report on its end that an execution left on this host; None if it left none."""
        ...


class Launcher(Protocol):
    """Starts containers for the coordinator.

    Each action is idempotent by execution id: another coordinator may have asked for the same before (law L3).
    """

    def launch(self, launch: Launch) -> None:
        """Start the execution, unless it runs already.

        An execution that can never be started is reported as ENDED from then on.

        Raises:
            LaunchError: not now; the caller asks again.
        """
        ...

    def kill(self, launch: Launch) -> None:
        """End the execution and its child processes at once, unless it is gone.

        Raises:
            LaunchError: not now; the caller asks again.
        """
        ...

    def look(self, launches: Sequence[Launch]) -> Mapping[ExecutionId, Launched]:
        """Read the state of the executions; those that are unknown are left out.

        Raises:
            LaunchError: the cluster manager does not answer; the caller asks again.
        """
        ...

    def hosts(self) -> Mapping[str, int | None]:
        """All hosts that can be asked for by name, with their free places for containers.

        None: the free places are not known. Empty: the hosts are not known.

        Raises:
            LaunchError: as `look`.
        """
        ...


class Election(Protocol):
    """Says which candidate should try to lead.

    A hint: the lock is the transactional id of the coordinator stream.
    """

    def wait(self, timeout_ms: int) -> bool:
        """Whether this candidate is elected; waits at most `timeout_ms` for that.

        Raises:
            ConfigError: it cannot be a candidate, and waiting does not help.
        """
        ...

    def rejoin(self) -> None:
        """Give up the seat, or the place in the queue for it, and queue behind the others."""
        ...
