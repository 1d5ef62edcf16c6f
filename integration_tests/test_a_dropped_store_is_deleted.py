"""`samzapy state drop` on a broker: it deletes the topic and frees the name."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.cli.main import samzapy
from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.assignment.replanning import replan
from samzapy.coordinator.lifecycle.submission import start_term, submit_job
from samzapy.coordinator.state import committed, evolve
from samzapy.errors import ConfigError, RejectedError
from samzapy.model.container import coordinator_transactional_id
from samzapy.model.job import ProcessorId
from samzapy.model.topics import changelog_topic, coordinator_topic
from samzapy.plan.groupers import NO_GROUPERS
from samzapy.runtime.job_config import read_config
from samzapy.runtime.submission import read_state, submission_of
from samzapy.stream.codec import encode, headers
from samzapy.stream.log import Write
from samzapy.stream.records import CoordinatorRecord, GrantPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.builders import a_grant
from samzapy.testing.topics import make_topics
from unit_tests.fixtures.coordinator_histories import a_term

_SEEN = "stores.seen.msg.serde=json\n"
_DROPPED = "stores.seen.drop=true\n"


@dataclass
class Job:
    """A job whose starts are made by hand, as far as the stream shows them."""

    broker: DevBroker
    file: Path
    name: str = field(default_factory=lambda: f"drop{uuid.uuid4().hex[:8]}")
    _seq: int = 0

    @property
    def changelog(self) -> str:
        return changelog_topic(f"{self.name}-1", "seen")

    def start(self, lines: str) -> None:
        """Submit the job with these lines in its properties, as a new leader does."""
        servers = self.broker.bootstrap_servers
        self.file.write_text(
            f"job.name={self.name}\ntask.inputs=kafka.in-{self.name}\nsystems.kafka.bootstrap.servers={servers}\n"
            f"local.store.dir={self.file.parent}\n{lines}"
        )
        config = read_config(None, self.file, [], {})
        connection = KafkaConnection.of(config)
        submission = submission_of(config, KafkaAdmin(connection), "test", NO_GROUPERS)
        state = read_state(config, connection)
        first = start_term(replace(a_term(0), job_name=self.name), state) if state.term is None else ()
        submitted = submit_job(submission, state, Liveness())
        is_new = state.generation is None
        after = evolve(state, committed(submitted, 0))
        planned = [*replan(after, (ProcessorId("0"),)), GrantPut(grant=a_grant())] if is_new else []
        self._append(connection, [*first, *submitted, *planned])

    def _append(self, connection: KafkaConnection, records: Sequence[CoordinatorRecord]) -> None:
        log = KafkaLog(
            connection, coordinator_topic(f"{self.name}-1"), coordinator_transactional_id(f"{self.name}-1")
        )
        log.take_over()
        writes = []
        for record in records:
            key, value = encode(record)
            writes.append(
                Write(key=key, value=value, headers=headers(term=1, seq=self._seq, event="e", cause="c", actor="a"))
            )
            self._seq += 1
        log.append_atomically(writes)
        log.close()

    def drop(self, *options: str) -> str:
        arguments = ["state", "drop", "--config", str(self.file), "--store", "seen", *options]
        result = CliRunner().invoke(samzapy, arguments, standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return result.output


def test_the_topic_of_a_dropped_store_is_deleted_and_its_name_used_again(broker: DevBroker, tmp_path: Path) -> None:
    job = Job(broker, tmp_path / "job.properties")
    make_topics(broker.bootstrap_servers, {f"in-{job.name}": 2})
    admin = KafkaAdmin(KafkaConnection(bootstrap_servers=broker.bootstrap_servers))
    job.start(_SEEN)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(30):
        producer.produce(job.changelog, b"x", f"{number}", partition=number % 2)
    assert 0 == producer.flush(30)

    with pytest.raises(RejectedError, match="found that its configuration names seen"):
        job.drop("--yes")
    job.start(_DROPPED)
    with pytest.raises(RejectedError, match="wanted a terminal"):
        job.drop()
    with pytest.raises(ConfigError, match="state drop --store seen"):
        job.start(_SEEN)
    before = admin.topic_id(job.changelog)

    output = job.drop("--yes")

    assert f"to delete: {job.changelog} (2 partitions, 30 records at most)" in output
    assert {} == admin.find([job.changelog])
    assert "is deleted already" in job.drop("--yes")
    job.start(_SEEN)
    assert admin.topic_id(job.changelog) != before
    with pytest.raises(RejectedError, match="found that its configuration names seen"):
        job.drop("--yes")
