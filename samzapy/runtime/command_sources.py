"""The threads beside a leader.

They watch topics, operators' requests and launched containers while this process leads, and put commands into the
leader's queue. Heartbeats come by HTTP (`adapters.web.server`). One of them commits positions to a consumer group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from samzapy.adapters.host.launch_watch import LaunchWatch
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.lag_group import KafkaLagGroup, LagCommits
from samzapy.adapters.kafka.placement import KafkaInbox
from samzapy.adapters.kafka.topic_watch import TopicWatch
from samzapy.config import JobConfig
from samzapy.coordinator.commands import Command
from samzapy.coordinator.inputs.topic_checks import topics_of, unread_topics
from samzapy.coordinator.ports import Launcher
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.topics import placement_topic
from samzapy.stream.log import LogRecord


class CommandSources:
    """Watches topics, requests and launched containers from `start` to `close`.

    It also commits positions to a consumer group.

    Args:
        state: the state of the log while this process leads, otherwise None. Thread-safe.
        positions: by input partition, that of the job while this process leads. Thread-safe.
        put: takes a command, and returns whether there was room for it; called from several threads.
        launcher: starts the containers of the job; None for self-managed containers.
        on_launch_failure: called when launched containers can no longer be watched.
        refusal: why a request is refused for its signature at a time; empty if it is not.
    """

    def __init__(
        self,
        config: JobConfig,
        connection: KafkaConnection,
        *,
        state: Callable[[], CoordinatorState | None],
        positions: Callable[[], Mapping[SystemStreamPartition, int]],
        put: Callable[[Command], bool],
        launcher: Launcher | None,
        on_launch_failure: Callable[[Exception], None],
        refusal: Callable[[LogRecord, int], str],
    ) -> None:
        self._state = state
        self._topics = TopicWatch(
            KafkaAdmin(connection),
            names=self.own_topics,
            names_found=self.input_topics,
            put=put,
            interval_ms=config.topic_check_ms,
            monitor_ms=config.partition_monitor_ms,
        )
        self._inbox = KafkaInbox(
            connection, placement_topic(config.job), position=self._inbox_position, put=put, refusal=refusal
        )
        self._lag_commits: LagCommits | None = None
        if config.lag_group is not None:
            self._lag_commits = LagCommits(KafkaLagGroup(connection, config.lag_group), positions=positions)
        self._launches: LaunchWatch | None = None
        if launcher is not None:
            self._launches = LaunchWatch(
                launcher,
                state=state,
                put=put,
                retry_window_ms=config.container_retry_window_ms,
                on_failure=on_launch_failure,
            )

    def start(self) -> None:
        self._topics.start()
        self._inbox.start()
        if self._lag_commits is not None:
            self._lag_commits.start()
        if self._launches is not None:
            self._launches.start()

    def close(self, timeout_s: float) -> None:
        """End the threads; `timeout_s`: for the one that watches launched containers."""
        self._topics.close()
        self._inbox.close()
        if self._lag_commits is not None:
            self._lag_commits.close()
        if self._launches is not None:
            self._launches.close(timeout_s)

    def own_topics(self) -> Sequence[str]:
        """The job's own topics, while this process leads."""
        state = self._state()
        return () if state is None else sorted(state.own_topics)

    def input_topics(self, topics: Collection[str]) -> Sequence[str]:
        """The inputs, and unread topics that match a pattern of the job.

        `topics`: the names of all topics.
        """
        state = self._state()
        return () if state is None else (*topics_of(state), *unread_topics(state, topics))

    def _inbox_position(self) -> tuple[int, int] | None:
        """The term and the next offset of the placement topic, while this process leads."""
        state = self._state()
        if state is None or state.term is None or not state.config:
            return None
        return state.term.term, state.inbox.offset_next
