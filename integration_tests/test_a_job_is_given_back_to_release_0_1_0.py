"""`samzapy job downgrade` on a real broker, whose cleaner removes the new records.

Without Spark: the container only sends heartbeats, and commits positions.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.placement import KafkaInbox
from samzapy.adapters.kafka.reading import read_to_end
from samzapy.cli.doctor.command import doctor
from samzapy.cli.job.group import job as job_command
from samzapy.cli.stream.group import stream as stream_command
from samzapy.coordinator.assignment.grants import newest_grants
from samzapy.coordinator.lifecycle.downgrade import HURRIED
from samzapy.coordinator.replay import replay
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import DeadlineError, RejectedError
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.topics import checkpoint_topic, coordinator_topic, placement_topic
from samzapy.stream.codec import encode
from samzapy.stream.export import read_export
from samzapy.stream.log import LogRecord, Write
from samzapy.stream.records import CheckpointPut
from samzapy.stream.release_0_1_0 import FINGERPRINTS, can_read, first_unread
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until

SAMZAPY = (sys.executable, "-c", "from samzapy.cli.main import main; main()")
_WITHIN_S = 60.0


class DividedJob(SmallJob):
    """A job that reads requests, and whose one container, e1, accepts its grants."""

    def __enter__(self) -> DividedJob:
        super().__enter__()
        self.inbox = KafkaInbox(
            self.connection, placement_topic(self.job), position=self._position, put=self.commands.put
        )
        self.inbox.start()
        return self

    def close(self) -> None:
        self.inbox.close()
        super().close()

    def _position(self) -> tuple[int, int] | None:
        state = self.state
        return None if state.term is None or not state.config else (state.term.term, state.inbox.offset_next)

    @property
    def state(self) -> CoordinatorState:
        return self.service.status().state

    @property
    def address(self) -> Sequence[str]:
        return ["--job", self.job, "--bootstrap-servers", self.connection.bootstrap_servers]

    def settles(self, factor: int) -> None:
        """Until e1 has every task of that factor, and nothing else is left."""

        def has_all() -> bool:
            state = self.state
            planned = {task.task_name for task in state.plan}
            mine = [grant for grant in newest_grants(state).values() if not grant.released]
            held = [{"task": grant.task_name, "epoch": grant.epoch} for grant in mine if grant.task_name in planned]
            self.heartbeat("e1", held, streamOffset=state.offset_next)
            factors = {start.ssp_kb.factor for grant in state.grants.values() for start in grant.starts}
            return factors == {factor} and planned == {grant.task_name for grant in mine}

        wait_until(has_all, _WITHIN_S, f"all tasks of factor {factor}")

    def is_scaled(self, factor: int) -> None:
        result = CliRunner().invoke(job_command, ["scale", *self.address, "--factor", str(factor), "--no-wait"])
        assert result.exit_code == 0, result.output
        self.settles(factor)

    def commits(self, *offsets: int) -> None:
        """A position for each bucket, under the grant that e1 has."""
        writes = []
        for grant in newest_grants(self.state).values():
            for start in grant.starts:
                checkpoint = Checkpoint(
                    ssp_kb=start.ssp_kb,
                    offset_next=offsets[start.ssp_kb.bucket % len(offsets)],
                    epoch=grant.epoch,
                    task_name=grant.task_name,
                    execution_id=grant.execution_id,
                )
                key, value = encode(CheckpointPut(checkpoint=checkpoint))
                writes.append(Write(key=key, value=value))
        log = KafkaLog(self.connection, checkpoint_topic(self.job), f"samzapy/{self.job}/e1/0")
        log.take_over()
        log.append_atomically(writes)
        log.close()

    def stops(self) -> None:
        self.heartbeat("e1", state="STOPPED", streamOffset=self.state.offset_next)
        wait_until(lambda: self.state.run is not None and self.state.run.ended, _WITHIN_S, "the run to end")
        self.close()

    def is_given_back(self, archive: Path, *options: str) -> Result:
        return CliRunner().invoke(
            job_command, ["downgrade", *self.address, "--to", "0.1.0", "--archive", str(archive), *options]
        )

    def records(self, topic: str | None = None) -> list[LogRecord]:
        return list(read_to_end(self.connection, topic or coordinator_topic(self.job)))

    def settings(self) -> Mapping[str, str]:
        topic = coordinator_topic(self.job)
        settings = self.admin.look([topic])[topic].settings
        return {name: settings[name] for name in HURRIED}


@pytest.fixture
def job(broker: DevBroker) -> Iterator[DividedJob]:
    """A stopped job at offset 30, once divided by 4 and whole again."""
    connection = KafkaConnection(bootstrap_servers=broker.bootstrap_servers)
    with DividedJob(connection, job_container_lease_ms="300000", job_container_lost_ms="600000") as divided:
        # No leader answers while it is being registered.
        wait_until(lambda: divided.heartbeat("e1"), _WITHIN_S, "an answer to e1")
        divided.settles(1)
        divided.commits(10)
        divided.is_scaled(4)
        divided.commits(17, 20, 12, 15)
        divided.is_scaled(1)
        divided.commits(30)
        divided.stops()
        yield divided


def test_release_0_1_0_reads_every_record_and_the_topic_is_as_it_was(job: DividedJob, tmp_path: Path) -> None:
    before, settings = job.records(), job.settings()
    assert first_unread(before) is not None

    result = job.is_given_back(tmp_path / "a.avro")

    assert result.exit_code == 0, result.output
    records = job.records()
    assert first_unread(records) is None
    assert all(map(can_read, job.records(checkpoint_topic(job.job))))
    assert settings == job.settings()
    state = replay(records, topic=coordinator_topic(job.job)).state
    assert FINGERPRINTS == state.schemas.keys()
    assert [(1, 12), (1, 12)] == [
        (start.ssp_kb.factor, start.offset_next) for grant in state.grants_sorted for start in grant.starts
    ]
    with (tmp_path / "a.avro").open("rb") as file:
        assert before == list(read_export(file, "a.avro").records)


def test_an_auditor_finds_nothing_wrong_afterwards(job: DividedJob, tmp_path: Path) -> None:
    assert job.is_given_back(tmp_path / "a.avro").exit_code == 0

    verified = CliRunner().invoke(stream_command, ["verify", *job.address, "-o", "json"])
    examined = CliRunner().invoke(doctor, [*job.address, "-o", "json"])

    assert [] == json.loads(verified.stdout)
    # The job has no leader, and since the run is forgotten, no record shows that it should have none.
    assert {"leader-missing", "task-without-owner"} >= {
        finding["code"] for finding in json.loads(examined.stdout)["findings"]
    }


def test_this_release_continues_the_job_at_its_positions(job: DividedJob, tmp_path: Path) -> None:
    assert job.is_given_back(tmp_path / "a.avro").exit_code == 0

    again = DividedJob(job.connection, job, job_container_lease_ms="300000", job_container_lost_ms="600000")
    again.input = job.input
    with again:
        wait_until(lambda: again.heartbeat("e1", executionId="e2"), _WITHIN_S, "an answer to e2")
        wait_until(
            lambda: {"e2"} == {grant.execution_id for grant in newest_grants(again.state).values()},
            _WITHIN_S,
            "both tasks to be granted to e2",
        )

        grants = newest_grants(again.state).values()
        assert [(1, 30, ())] * 2 == [
            (start.ssp_kb.factor, start.offset_next, start.floors) for grant in grants for start in grant.starts
        ]


def test_a_running_job_is_refused_and_continues(broker: DevBroker, tmp_path: Path) -> None:
    connection = KafkaConnection(bootstrap_servers=broker.bootstrap_servers)
    with DividedJob(connection) as divided:
        wait_until(lambda: divided.heartbeat("e1"), _WITHIN_S, "an answer to e1")
        divided.settles(1)

        result = divided.is_given_back(tmp_path / "a.avro")

        assert isinstance(result.exception, RejectedError)
        assert "container e1 (processor 0 on host-b) is recorded as RUNNING" in str(result.exception)
        assert not (tmp_path / "a.avro").exists()
        assert divided.service.is_leader
        divided.settles(1)


@contextmanager
def waiting(job: DividedJob, archive: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own, which waits for an idle log cleaner."""
    topic = coordinator_topic(job.job)
    job.admin.alter_settings(topic, {"cleanup.policy": "delete"})
    command = [*SAMZAPY, "job", "downgrade", *job.address, "--to", "0.1.0", "--archive", str(archive)]
    with subprocess.Popen(command) as process:
        try:
            wait_until(lambda: job.settings() == HURRIED, _WITHIN_S, "the topic's settings to be changed")
            yield process
        finally:
            process.kill()
    job.admin.alter_settings(topic, {"cleanup.policy": "compact"})


def test_killed_while_it_waits_it_is_finished_by_the_same_command(job: DividedJob, tmp_path: Path) -> None:
    before, settings = job.records(), job.settings()
    archive = tmp_path / "a.avro"
    with waiting(job, archive) as process:
        process.kill()
    assert job.settings() == HURRIED

    assert job.is_given_back(archive).exit_code == 0

    assert first_unread(job.records()) is None
    assert settings == job.settings()
    with archive.open("rb") as file:
        assert before == list(read_export(file, "a.avro").records)


def test_ended_while_it_waits_it_puts_the_settings_back(job: DividedJob, tmp_path: Path) -> None:
    settings = job.settings()
    with waiting(job, tmp_path / "a.avro") as process:
        process.terminate()
        assert 128 + signal.SIGTERM == process.wait(_WITHIN_S)

    assert settings == job.settings()
    assert first_unread(job.records()) is not None


def test_a_slow_cleaner_is_reported(job: DividedJob, tmp_path: Path) -> None:
    settings = job.settings()
    job.admin.alter_settings(coordinator_topic(job.job), {"cleanup.policy": "delete"})
    began = time.monotonic()

    result = job.is_given_back(tmp_path / "a.avro", "--timeout", "2")

    assert isinstance(result.exception, DeadlineError)
    assert 2 <= time.monotonic() - began < _WITHIN_S
    assert settings == job.settings()
