"""A job on a real broker that operators ask things of, without Spark.

Its coordinators are processes that can be killed; its one container only sends a container's heartbeats.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from integration_tests.candidates import Contest
from integration_tests.small_job import heartbeat_from_elsewhere
from samzapy.adapters.kafka.follow import KafkaFollower
from samzapy.model.topics import placement_topic
from samzapy.placement import ContainerPlacementMetadataStore, Encoding, KeyForm
from samzapy.stream.codec import decode
from samzapy.stream.log import LogRecord
from samzapy.stream.records import InboxPut, RestartPut, TermPut
from samzapy.testing.waiting import wait_until


class OperatedJob(Contest):
    """A job with a leader and one container, which restarts its query on request.

    Attributes:
        history: the coordinator stream as far as it was followed.
        position: how far the placement topic was read, as is recorded there.
        ordered: the number of the newest order to restart.
        requests: by uuid, those that are open on the stream.
        restarts: whether the container does as it is ordered.
    """

    def __init__(self, bootstrap_servers: str, **settings: str) -> None:
        super().__init__(bootstrap_servers, **settings)
        self.job = f"{self.job_name}-1"
        self.placement = placement_topic(self.job)
        self.restarts = True
        self.history: list[LogRecord] = []
        self.position = self.term = self.ordered = 0
        self.requests: set[str] = set()
        self._follower = KafkaFollower(self.connection, self.topic)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live)

    def __enter__(self) -> Self:
        self.leader = self.candidate()
        wait_until(self.leader.leads, 30, "the only candidate to lead")
        self._thread.start()
        self.run_id = str(wait_until(lambda: self.leader.ask()[1]["runId"], 30, "the run to begin"))
        wait_until(lambda: self.leader.ask()[1]["tasks"], 30, "a plan")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._follower.close()
        super().__exit__(kind, error, trace)

    def fail_over(self) -> None:
        """Kill the leader; returns when another process has begun its term."""
        self.leader.kill()
        term = self.term
        self.leader = self.candidate()
        wait_until(lambda: self.term > term, 60, "another term to begin")

    def store(self, encoding: Encoding = Encoding.JSON) -> ContainerPlacementMetadataStore:
        return ContainerPlacementMetadataStore(
            self.bootstrap_servers, job=self.job, encoding=encoding, key_form=KeyForm.TEXT
        )

    def _live(self) -> None:
        knows = 0
        while not self._ended.wait(0.3):
            self._follow()
            if self.restarts:
                knows = self.ordered
            heartbeat_from_elsewhere(self.leader.url, self.job, "e1", restart=knows)

    def _follow(self) -> None:
        for record in self._follower.poll():
            self.history.append(record)
            kind, _, rest = (record.key or b"").decode().partition("/")
            if kind == "request":
                (self.requests.add if record.value is not None else self.requests.discard)(rest)
            if kind in ("inbox", "restart", "term"):
                put = decode(record, topic=self.topic)
                if isinstance(put, InboxPut):
                    self.position = put.offset_next
                if isinstance(put, RestartPut):
                    self.ordered = max(self.ordered, put.number)
                if isinstance(put, TermPut):
                    self.term = put.term
