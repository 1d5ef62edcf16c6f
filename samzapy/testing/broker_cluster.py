"""A real Kafka cluster of several KRaft nodes on loopback ports, without Docker.

Each node is a `DevBroker` that is broker and controller at once, in `node-<id>` of the cluster's directory. Topics of a
cluster of three nodes have three replicas of which two must be in sync, the settings of most clusters in production.
`cluster.json` keeps the values that all nodes must agree on: the cluster id and the ports.

A node may be stopped, killed, paused and started alone, as long as a majority of the nodes runs: without one there is
no controller, and no partition gets a new leader.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from samzapy.errors import ConfigError, RejectedError
from samzapy.testing.broker import DevBroker, temporary_directory
from samzapy.testing.broker_files import Membership, new_cluster_id, write_json
from samzapy.testing.ports import LOOPBACK, free_port
from samzapy.testing.waiting import wait_until

_STATE = "cluster.json"
_ASK_S = 10.0
_PAST_ELECTIONS = (KafkaError.ELECTION_NOT_NEEDED,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The values that the nodes of a cluster agree on.

    Ports are by node id; `overrides` are settings of each node.
    """

    cluster_id: str
    ports: Mapping[int, int]
    controller_ports: Mapping[int, int]
    overrides: Mapping[str, str]

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> _Layout | None:
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                cluster_id=str(fields["cluster_id"]),
                ports={int(node_id): int(port) for node_id, port in fields["ports"].items()},
                controller_ports={int(node_id): int(port) for node_id, port in fields["controller_ports"].items()},
                overrides={str(name): str(value) for name, value in fields["overrides"].items()},
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{path} is not the layout of a development cluster ({error!r}). Make sure that no node runs there, "
                "then delete the directory."
            ) from error


class DevCluster:
    """A cluster in a directory.

    As a context manager it starts on entry and is killed on exit.

    Args:
        directory: where everything of the cluster lives. Without one a temporary directory is made, and removed when
            the context ends.
        node_count: nodes of a new cluster; one that is there keeps its own.
        port_number: the first node's port, and the next ones' after it; 0 picks free ports. Of a new cluster alike.
        overrides: Kafka's own settings, for each node; None keeps those of the latest start.
        detached: the nodes outlive this Python process.
        heap_mib: the largest heap of each node.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        node_count: int = 3,
        port_number: int = 0,
        overrides: Mapping[str, str] | None = None,
        detached: bool = False,
        heap_mib: int = 384,
    ) -> None:
        self._is_temporary = directory is None
        self.directory = (directory or temporary_directory()).absolute()
        layout = _Layout.read(self.directory / _STATE) or _new_layout(node_count, port_number)
        self._layout = layout if overrides is None else replace(layout, overrides=overrides)
        membership = {
            node_id: Membership(
                node_id=node_id,
                cluster_id=self._layout.cluster_id,
                controller_ports=self._layout.controller_ports,
            )
            for node_id in self._layout.ports
        }
        self.nodes: Mapping[int, DevBroker] = {
            node_id: DevBroker(
                self.directory / f"node-{node_id}",
                port_number=port,
                overrides={**_replicated(len(self._layout.ports)), **self._layout.overrides},
                detached=detached,
                jvm_options=[f"-Xmx{heap_mib}m"],
                membership=membership[node_id],
            )
            for node_id, port in sorted(self._layout.ports.items())
        }

    @staticmethod
    def is_in(directory: Path) -> bool:
        """Whether the directory holds a cluster of several nodes, and not a single broker."""
        return (directory / _STATE).exists()

    @property
    def port_number(self) -> int:
        """The port of the first node."""
        return self._layout.ports[1]

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` of a client: all nodes."""
        return ",".join(f"{LOOPBACK}:{port}" for _, port in sorted(self._layout.ports.items()))

    def node(self, node_id: int) -> DevBroker:
        """One node. Raises RejectedError for an id that the cluster does not have."""
        if node_id not in self.nodes:
            raise RejectedError(
                f"wanted a node of {self.directory}, found no node {node_id}; its nodes are "
                + ", ".join(map(str, self.nodes))
            )
        return self.nodes[node_id]

    def start(self, deadline_s: float = 240.0) -> None:
        """Start the nodes that do not run, at once, and wait until all of them serve.

        Raises: as `DevBroker.start`.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._layout.write(self.directory / _STATE)
        # At once: a node serves only when a majority of the controllers runs.
        with ThreadPoolExecutor(len(self.nodes), thread_name_prefix="start-node") as pool:
            list(pool.map(lambda node: node.start(deadline_s), self.nodes.values()))

    def stop(self) -> None:
        """Stop all nodes at once, each in order.

        The last one would wait for a controller that is gone.
        """
        with ThreadPoolExecutor(len(self.nodes), thread_name_prefix="stop-node") as pool:
            list(pool.map(DevBroker.stop, self.nodes.values()))

    def kill(self) -> None:
        """End all nodes as a crash of the whole cluster would."""
        for node in self.nodes.values():
            node.kill()

    def wait_in_sync(self, deadline_s: float = 180.0) -> None:
        """Wait until each node serves and each partition has all its replicas in sync."""
        admin = self._admin()
        wait_until(lambda: self._lagging(admin) == (), deadline_s, "all replicas of the cluster to be in sync")

    def leaders(self, topic: str) -> Mapping[int, int]:
        """The node id of the leader of each partition of the topic.

        It is -1 without a leader.
        """
        partitions = self._admin().list_topics(topic, timeout=_ASK_S).topics[topic].partitions
        return {number: partition.leader for number, partition in partitions.items()}

    def elect_preferred_leaders(self) -> None:
        """Give each partition back to the first replica of its topic.

        An operator does this by hand.
        """
        admin = self._admin()
        topics = admin.list_topics(timeout=_ASK_S).topics
        partitions = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
        # Without a time-out of ours: confluent-kafka 2.16 takes none here, though its documentation has one.
        elected = admin.elect_leaders(ElectionType.PREFERRED, partitions).result()
        for partition, error in elected.items():
            if error is not None and error.code() not in _PAST_ELECTIONS:
                raise KafkaException(error, partition)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _lagging(self, admin: AdminClient) -> Sequence[str]:
        """Nodes and partitions that are not as they are in a cluster at rest."""
        try:
            metadata = admin.list_topics(timeout=_ASK_S)
        except KafkaException as error:
            return (str(error),)
        nodes = [str(node_id) for node_id in self.nodes if node_id not in metadata.brokers]
        partitions = [
            f"{name}-{number}"
            for name, topic in metadata.topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader < 0 or set(partition.isrs) != set(partition.replicas)
        ]
        return (*nodes, *partitions)


def _new_layout(node_count: int, port_number: int) -> _Layout:
    node_ids = range(1, node_count + 1)
    taken: set[int] = set()

    def another() -> int:
        while (port := free_port()) in taken:
            pass
        taken.add(port)
        return port

    return _Layout(
        cluster_id=new_cluster_id(),
        ports={node_id: port_number + node_id - 1 if port_number else another() for node_id in node_ids},
        controller_ports={node_id: another() for node_id in node_ids},
        overrides={},
    )


def _replicated(node_count: int) -> Mapping[str, str]:
    """Kafka's defaults for topics, and for its own topics.

    They have replicas on up to three nodes.
    """
    factor = str(min(3, node_count))
    in_sync = "2" if node_count >= 3 else "1"
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.replication.factor": factor,
        # The nodes of a development cluster share few cores: a pause of one of them is no failure.
        "replica.lag.time.max.ms": "10000",
    }
