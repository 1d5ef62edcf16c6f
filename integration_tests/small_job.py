"""A job on a real broker without Spark: topics, a coordinator and its server."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient

from samzapy.adapters.host.command_queue import CommandInbox
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.placement import KafkaPlacementWriter
from samzapy.adapters.kafka.positions import KafkaFence, KafkaPositions
from samzapy.adapters.web.client import HeartbeatAnswer, HttpCoordinatorClient
from samzapy.adapters.web.routes import Answering
from samzapy.adapters.web.server import CoordinatorServer
from samzapy.config import JobConfig
from samzapy.coordinator.action_performer import ActionPerformer
from samzapy.coordinator.commands import InputFound, OwnTopicFound, SubmitJob
from samzapy.coordinator.service import CoordinatorIdentity, CoordinatorService
from samzapy.model.container import coordinator_transactional_id, placement_transactional_id
from samzapy.model.ssp import SystemStream
from samzapy.model.topics import checkpoint_spec, coordinator_spec, coordinator_topic, placement_spec, placement_topic
from samzapy.runtime.leadership import SystemClock
from samzapy.runtime.this_host import HostProcesses
from samzapy.testing.builders import a_config
from samzapy.testing.topics import make_topics


def heartbeat_from_elsewhere(
    url: str,
    job: str,
    execution_id: str,
    held: Sequence[Mapping[str, object]] = (),
    processor_id: str = "0",
    restart: int = 0,
    **more: object,
) -> HeartbeatAnswer | None:
    """The answer of the coordinator at `url` to a running container on another host.

    Args:
        more: fields as they are named in the heartbeat.
    """
    body = {
        "job": job,
        "executionId": execution_id,
        "processorId": processor_id,
        "host": "host-b",
        "bootId": "boot-b",
        "pid": 7,
        "processStartedMs": 1,
        "slotCount": 1,
        "formatLevel": 1,
        "state": "RUNNING",
        "streamOffset": 0,
        "held": list(held),
        "restart": restart,
        **more,
    }
    with closing(HttpCoordinatorClient()) as client:
        return client.heartbeat(url, body, 5000)


class SmallJob:
    """The job `<name>-1` with one input; it is led within its context.

    Args:
        before: the same job, whose coordinator has ended.
        settings: those of `a_config`, over the ones of a small job.
    """

    def __init__(self, connection: KafkaConnection, before: SmallJob | None = None, **settings: str) -> None:
        self.connection = connection
        self.admin = KafkaAdmin(connection)
        self.client = AdminClient({"bootstrap.servers": connection.bootstrap_servers})
        name = f"small{uuid.uuid4().hex[:8]}" if before is None else before.config.job_name
        self.input = f"in-{name}"
        if before is None:
            make_topics(connection.bootstrap_servers, {self.input: 2})
        self.config: JobConfig = a_config(
            job_name=name,
            task_inputs=f"kafka.{self.input}",
            systems_kafka_bootstrap_servers=connection.bootstrap_servers,
            **settings,
        )
        self.job = self.config.job
        self.commands = CommandInbox()
        self._server = CoordinatorServer(
            host="127.0.0.1",
            port=0,
            answering=Answering(
                snapshot=lambda: self.service.status(),
                put=self.commands.put,
                clock=SystemClock(),
                lease_ms=self.config.lease_ms,
            ),
        )
        self._log = KafkaLog(connection, coordinator_topic(self.job), coordinator_transactional_id(self.job))
        self._answers = KafkaPlacementWriter(
            connection, placement_topic(self.job), placement_transactional_id(self.job)
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._lead)

    def submission(self) -> SubmitJob:
        """The job as it is handed in, with the topics as they are."""
        own = [
            self.admin.ensure_topic(spec)
            for spec in (coordinator_spec(self.job), checkpoint_spec(self.job), placement_spec(self.job))
        ]
        description = self.admin.describe([self.input])[self.input]
        return SubmitJob(
            config=self.config,
            inputs=(
                InputFound(
                    system_stream=SystemStream("kafka", self.input),
                    partition_count=description.partition_count,
                    topic_id=description.topic_id,
                ),
            ),
            own_topics=tuple(
                OwnTopicFound(name=topic.name, topic_id=topic.topic_id, partition_count=1) for topic in own
            ),
            cause="test",
            actor="test",
        )

    def become_leader(self) -> None:
        """Lead, without a loop: the caller does the rounds."""
        submission = self.submission()
        self.url = self._server.start()
        self.service = CoordinatorService(
            log=self._log,
            config=self.config,
            identity=CoordinatorIdentity(
                coordinator_id="c",
                # This host: `samzapy doctor` does not ask for a leader on the loopback address of another one.
                host=socket.gethostname(),
                boot_id="b",
                pid=1,
                process_started_ms=1,
                url=self.url,
            ),
            clock=SystemClock(),
            commands=self.commands,
            processes=HostProcesses("a host that is not this one"),
            performer=ActionPerformer(
                clock=SystemClock(),
                fencing=KafkaFence(self.connection, self.config.coordinator_transaction_timeout_ms),
                positions=KafkaPositions(self.connection, self.job),
                placement=self._answers,
            ),
        )
        self.service.become_leader()
        self.service.submit(submission)

    def heartbeat(
        self, execution_id: str, held: Sequence[Mapping[str, object]] = (), processor_id: str = "0", **more: object
    ) -> HeartbeatAnswer | None:
        return heartbeat_from_elsewhere(self.url, self.job, execution_id, held, processor_id, **more)

    def close(self) -> None:
        """End the coordinator without a handover."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._server.stop()
        self._log.close()
        self._answers.close()

    def __enter__(self) -> Self:
        self.become_leader()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lead(self) -> None:
        while not self._ended.is_set():
            self.service.run_once(50)
