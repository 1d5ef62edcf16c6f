"""A container without Spark, for tests of the coordinator.

It keeps the contract of `docs/reference/container-contract.md`, starts in a second, and shows the contract as a
program.

It runs one task after another in one thread. Each message of its tasks is copied to an output, with its position and
its grant, in the transaction that moves the position: so a test can count the work. It keeps no state and reads no
broadcast inputs, and is otherwise as careful as a real container, whose pure rules it shares (`container.orders`,
`container.start_rules`).

    python -m samzapy.testing.fake_container job.properties --execution ID --processor 0 --output TOPIC

ends with the exit code that a container would end with (docs/reference/exit-codes.md); SIGTERM drains it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.kafka.clients import ErrorEvents, KafkaConnection, make_consumer
from samzapy.adapters.kafka.follow import KafkaFollower, KafkaLeaderSearch
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.adapters.kafka.transactions import TransactionalProducer
from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.adapters.web.heartbeat_sender import HeartbeatThread, Leader
from samzapy.config import JobConfig, in_force, merge, parse_config, properties_text, read_properties
from samzapy.container.orders import Orders, read_on
from samzapy.container.ports import HeartbeatContent
from samzapy.container.start_rules import check_bounds, check_config, read_positions, starts_of
from samzapy.errors import (
    DeadlineError,
    ExitCode,
    FencedError,
    LostContainerError,
    ProducerError,
    SamzapyError,
    TemporaryError,
)
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import ContainerPhase, slot_transactional_id
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.launch import EXECUTION_VARIABLE
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import checkpoint_topic, coordinator_topic
from samzapy.plan.elasticity import key_bucket
from samzapy.stream.codec import encode
from samzapy.stream.log import LogRecord
from samzapy.stream.records import FORMAT_LEVEL, CheckpointPut

_BATCH_MESSAGES = 500
_BATCH_WAIT_S = 0.05
_START_WAIT_MS = 30_000
_LAST_HEARTBEAT_WAIT_MS = 5000
_PUT_OFF_S = 0.2
P = ContainerPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Places where a test disturbs a container.

    Attributes:
        client: talks to coordinators; a test may cut it off.
        before_commit: called with the positions of each transaction when all is produced and nothing is committed.
        may_read: as long as it says no, nothing is read; all else goes on.
    """

    client: HttpCoordinatorClient = field(default_factory=HttpCoordinatorClient)
    before_commit: Callable[[Mapping[SspKeyBucket, int]], None] = lambda positions: None
    may_read: Callable[[], bool] = lambda: True


class _Lease:
    """The time until which the container may work.

    Its clock also counts while the host sleeps.
    """

    def __init__(self, lease_ms: int) -> None:
        self._lease_ns = lease_ms * 1_000_000
        self._until_ns = 0

    def extend(self, sent_at_ns: int) -> None:
        self._until_ns = sent_at_ns + self._lease_ns

    def holds(self) -> bool:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) < self._until_ns


class _Slot:
    """The one worker slot: its transactional id and its producer."""

    def __init__(self, connection: KafkaConnection, transactional_id: str, transaction_timeout_ms: int) -> None:
        self._connection = connection
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self.producer: TransactionalProducer | None = None

    def own(self) -> None:
        """Take over the transactional id, unless a usable producer has it already."""
        if self.producer is not None and not self.producer.must_be_renewed:
            return
        self.close()
        self.producer = TransactionalProducer(
            self._connection, self._transactional_id, transaction_timeout_ms=self._transaction_timeout_ms
        )
        self.producer.take_over()

    def close(self) -> None:
        if self.producer is not None:
            with suppress(SamzapyError):
                self.producer.close()
            self.producer = None


class _Inputs:
    """The partitions that are read, and the progress in them."""

    def __init__(self, connection: KafkaConnection, job: str) -> None:
        self._checkpoints = checkpoint_topic(job)
        self._topics = KafkaTopics(connection, job)
        ours = {"isolation.level": "read_committed", "auto.offset.reset": "error", "fetch.wait.max.ms": 10}
        # A partition's end tells of markers at it, which no message does.
        ours["enable.partition.eof"] = True
        self._consumer = make_consumer(connection, ours, ErrorEvents())
        # Of each bucket of the finest factor of a grant's start: the first offset that is not done.
        self._positions: dict[SspKeyBucket, dict[int, int]] = {}
        # Of each partition that is read: the offset below which nothing is left to do, also behind the last marker.
        self._read_to: dict[tuple[str, int], int] = {}

    def begin(self, grants: Sequence[Grant]) -> None:
        """Read the partitions of `grants` from their positions of record on."""
        starts = self._starts(grants) if grants else {}
        self._positions = {
            start.ssp_kb: dict(replace(start, offset_next=starts[start.ssp_kb]).positions(start.finest_factor))
            for grant in grants
            for start in grant.starts
        }
        first: dict[tuple[str, int], int] = {}
        for ssp_kb, positions in self._positions.items():
            place = (ssp_kb.ssp.stream, ssp_kb.ssp.partition)
            first[place] = min(first.get(place, 2**62), *positions.values())
        self._read_to = first
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in sorted(first.items())])

    def _starts(self, grants: Sequence[Grant]) -> Mapping[SspKeyBucket, int]:
        positions = read_positions(self._topics.checkpoint_records(), topic=self._checkpoints)
        starts = starts_of(grants, positions)
        ssps = sorted({ssp_kb.ssp for ssp_kb in starts})
        check_bounds(starts, self._topics.input_bounds(ssps, _START_WAIT_MS))
        return starts

    def consume(self) -> Sequence[Any]:
        messages: list[Any] = self._consumer.consume(_BATCH_MESSAGES, _BATCH_WAIT_S)
        return messages

    def note_read(self, read: Iterable[Any]) -> bool:
        """Note how far all is done; whether it is further than before."""
        before = dict(self._read_to)
        for message in read:
            place = (message.topic(), message.partition())
            if not message.error():
                self._read_to[place] = message.offset() + 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                self._read_to[place] = message.offset()
        return self._read_to != before

    def takers(self, grants: Sequence[Grant], message: Any) -> list[tuple[Grant, SspKeyBucket]]:
        """The grants that a message belongs to, unless it is done.

        It counts as done from now on.
        """
        takers = []
        for grant in grants:
            for start in grant.starts:
                ssp_kb = start.ssp_kb
                if (ssp_kb.ssp.stream, ssp_kb.ssp.partition) != (message.topic(), message.partition()):
                    continue
                bucket = key_bucket(message.key(), message.offset(), start.finest_factor)
                position = self._positions[ssp_kb].get(bucket)
                if position is not None and message.offset() >= position:
                    self._positions[ssp_kb][bucket] = message.offset() + 1
                    takers.append((grant, ssp_kb))
        return takers

    def positions(self, grants: Sequence[Grant]) -> Mapping[str, Mapping[str, int]]:
        positions = {}
        for start in (start for grant in grants for start in grant.starts):
            place = (start.ssp_kb.ssp.stream, start.ssp_kb.ssp.partition)
            at = max(start.offset_next, self._read_to[place])
            positions[str(start.ssp_kb)] = {"offsetNext": at, "offsetEnd": at}
        return positions

    def close(self) -> None:
        self._consumer.close()


class FakeContainer:
    """One execution, from its first heartbeat to its end.

    Args:
        output: a topic; each message of its tasks becomes a record with the message's key and a JSON object: `stream`,
            `partition` and `offset` of the message, and `task`, `epoch` and `execution` that handled it.
        hooks: where a test disturbs it.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        config: JobConfig,
        *,
        execution_id: str,
        processor_id: str,
        output: str,
        host: str = "host-a",
        hooks: Hooks | None = None,
    ) -> None:
        assert not config.stores and not config.broadcast_inputs, "it keeps no state and reads no broadcast inputs"
        self.execution_id = ExecutionId(execution_id)
        self._config = config
        self._output = output
        self._hooks = hooks or Hooks()
        self._stop = threading.Event()
        self._orders = Orders(execution_id=self.execution_id)
        self._state = P.STARTED
        # The grants that a transaction of ours may still be committed for; the newest order to restart before its
        # begin.
        self._running: tuple[Grant, ...] = ()
        self._restart = 0
        self._inputs = _Inputs(connection, config.job)
        self._slot = _Slot(
            connection, slot_transactional_id(config.job, self.execution_id, 0), config.transaction_timeout_ms
        )
        self._lease = _Lease(config.lease_ms)
        self._follower = KafkaFollower(connection, coordinator_topic(config.job))
        self._search = KafkaLeaderSearch(connection, coordinator_topic(config.job))
        self._heartbeats = HeartbeatThread(
            self._hooks.client,
            identity=_identity(config, execution_id, processor_id, host),
            interval_ms=config.heartbeat_ms,
            lease_ms=config.lease_ms,
            on_alive=self._lease.extend,
            find_leader=self._find_leader,
        )

    def stop(self) -> None:
        """Ask it to drain and end, from any thread."""
        self._stop.set()

    @property
    def tasks(self) -> tuple[TaskName, ...]:
        """Those that it works on."""
        return tuple(grant.task_name for grant in self._running)

    def run(self) -> None:
        """Work until `stop`, a coordinator's order to stop, or the end of the run.

        Raises:
            LostContainerError: it was declared lost, or had no answer for too long; it commits nothing more.
            DataError: its positions lie outside of the inputs.
            ConfigError: the job runs under another configuration.
        """
        self._heartbeats.start()
        try:
            while not (self._stop.is_set() or self._orders.is_finished or self._orders.is_stopping):
                self._one_round()
            self._running, self._state = (), P.STOPPED
            self._publish()
            self._heartbeats.send_now(_LAST_HEARTBEAT_WAIT_MS)
        finally:
            self._heartbeats.close()
            self._slot.close()
            self._inputs.close()
            self._follower.close()
            self._search.close()

    def _one_round(self) -> None:
        """Between two transactions: follow the stream, take changed grants, do a batch."""
        self._follow(self._follower.poll())
        self._check_life()
        own = self._orders.own_grants()
        if set(self._running) - set(own):
            # No transaction is open, so nothing can be committed for them any more.
            self._running = tuple(grant for grant in self._running if grant in own)
            self._publish()
        try:
            if own != self._running or self._orders.restart > self._restart:
                self._begin(own)
            if self._running and self._lease.holds() and self._hooks.may_read():
                self._batch()
            else:
                self._stop.wait(_BATCH_WAIT_S)
        except (FencedError, ProducerError, TemporaryError, DeadlineError):
            # One way to recover: begin anew. That tells whether this execution still may.
            self._slot.close()
            self._running = ()
            self._stop.wait(_PUT_OFF_S)

    def _begin(self, own: tuple[Grant, ...]) -> None:
        """The start procedure: own the id, read whether one may, then where."""
        restart = self._orders.restart
        self._running = ()
        if own:
            check_config(self._config, self._orders.config)
            self._slot.own()
            self._follow(self._follower.to_the_end())
            self._check_life()
            if own != self._orders.own_grants():
                return
        self._inputs.begin(own)
        self._running, self._restart, self._state = own, restart, P.RUNNING
        self._publish()

    def _batch(self) -> None:
        """Read messages, handle them, and report the positions."""
        read = self._inputs.consume()
        messages = [message for message in read if not message.error()]
        producer = self._slot.producer
        if producer is None:
            return
        if messages:
            self._handle(messages, producer)
        else:
            producer.serve()
        # Heartbeats report how far all is done; new partitions wait for that.
        if self._inputs.note_read(read):
            self._publish()

    def _handle(self, messages: Sequence[Any], producer: TransactionalProducer) -> None:
        """One transaction: outputs, then positions.

        The lease is checked before it begins and before it is committed.
        """
        if producer.must_be_renewed:
            raise ProducerError("a sign of a lost connection: begin anew")
        producer.begin()
        moved: dict[SspKeyBucket, int] = {}
        for message in messages:
            for grant, ssp_kb in self._inputs.takers(self._running, message):
                body = _body(message, grant, self.execution_id)
                producer.produce(self._output, message.key(), json.dumps(body).encode())
                moved[ssp_kb] = message.offset() + 1
        if not moved:
            producer.abort()
            return
        for grant in self._running:
            for start in grant.starts:
                if start.ssp_kb in moved:
                    key, value = encode(CheckpointPut(checkpoint=self._checkpoint(grant, start.ssp_kb, moved)))
                    producer.produce(checkpoint_topic(self._config.job), key, value, partition=0)
        producer.flush()
        self._hooks.before_commit(moved)
        if not self._lease.holds():
            producer.abort()
            raise ProducerError("the lease ran out within a transaction: begin anew")
        producer.commit()

    def _checkpoint(self, grant: Grant, ssp_kb: SspKeyBucket, moved: Mapping[SspKeyBucket, int]) -> Checkpoint:
        return Checkpoint(
            ssp_kb=ssp_kb,
            offset_next=moved[ssp_kb],
            epoch=grant.epoch,
            task_name=grant.task_name,
            execution_id=self.execution_id,
        )

    def _follow(self, records: Sequence[LogRecord]) -> None:
        offset_next = self._follower.offset_next()
        if records or offset_next != self._orders.offset_next:
            topic = coordinator_topic(self._config.job)
            self._orders = read_on(self._orders, records, offset_next, topic=topic)
            self._publish()

    def _publish(self) -> None:
        """Publish the content of heartbeats: the grants, and those of an open transaction."""
        term = self._orders.term
        own = () if self._state is P.STOPPED else self._orders.own_grants()
        held = {(grant.task_name, grant.epoch) for grant in (*own, *self._running)}
        self._heartbeats.publish(
            HeartbeatContent(
                coordinator_url=None if term is None else term.url,
                term=0 if term is None else term.term,
                state=self._state.value,
                stream_offset=self._orders.offset_next,
                held=tuple(sorted(held)),
                figures={"positions": self._inputs.positions(self._running)},
                reason="drained" if self._state is P.STOPPED else "",
                restart=self._restart,
                outputs=(self._output,),
            )
        )

    def _check_life(self) -> None:
        """Raise LostContainerError if the execution was declared lost.

        It also is lost without an answer for longer than the grace.
        """
        reason = self._orders.reason if self._orders.is_given_up else self._heartbeats.given_up()
        if self._orders.is_given_up or reason is not None:
            raise LostContainerError(f"execution {self.execution_id} was given up by the coordinator ({reason})")
        ran_out_at_ms = self._heartbeats.lease_ran_out_at_ms()
        if ran_out_at_ms is not None and time.monotonic() * 1000 - ran_out_at_ms > self._config.grace_ms:
            raise LostContainerError(
                f"wanted an answer within {self._config.grace_ms} ms after the lease, found none"
            )

    def _find_leader(self, offset_from: int) -> Leader | None:
        term = self._search.newest_term(offset_from)
        return None if term is None else Leader(term.term, term.url)


def _identity(config: JobConfig, execution_id: str, processor_id: str, host: str) -> Mapping[str, object]:
    own = ProcessIdentity.of(os.getpid())
    return {
        "job": config.job,
        "executionId": execution_id,
        "processorId": ProcessorId(processor_id),
        "host": host,
        "bootId": own.boot_id,
        "pid": own.pid,
        "processStartedMs": own.started_ms,
        "slotCount": 1,
        "formatLevel": FORMAT_LEVEL,
    }


def _body(message: Any, grant: Grant, execution_id: str) -> Mapping[str, object]:
    return {
        "stream": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "task": grant.task_name,
        "epoch": grant.epoch,
        "execution": execution_id,
    }


def main(arguments: Sequence[str]) -> int:
    """One container as a process; gives the exit code."""
    parser = argparse.ArgumentParser(prog="fake_container", description=__doc__.partition("\n")[0])
    parser.add_argument("properties", type=Path, help="the job's")
    parser.add_argument("--execution", default=os.environ.get(EXECUTION_VARIABLE))
    parser.add_argument("--processor", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--host", default="host-a")
    parser.add_argument(
        "--sleep-at",
        type=int,
        help="stop itself (SIGSTOP) once, before it commits a position at this offset or later",
    )
    options = parser.parse_args(arguments)
    file = read_properties(
        properties_text(options.properties.read_bytes(), str(options.properties)), str(options.properties)
    )
    config = parse_config(in_force(merge(file=file, environment=os.environ, overrides=())))
    sleeps_at: list[int] = [] if options.sleep_at is None else [options.sleep_at]

    def sleep_once(positions: Mapping[SspKeyBucket, int]) -> None:
        if sleeps_at and max(positions.values()) >= sleeps_at[0]:
            sleeps_at.clear()
            os.kill(os.getpid(), signal.SIGSTOP)

    container = FakeContainer(
        KafkaConnection.of(config),
        config,
        execution_id=options.execution,
        processor_id=options.processor,
        output=options.output,
        host=options.host,
        hooks=Hooks(before_commit=sleep_once),
    )
    signal.signal(signal.SIGTERM, lambda number, frame: container.stop())
    try:
        container.run()
    except SamzapyError as error:
        sys.stderr.write(f"fake container: {error}\n")
        return error.exit_code
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
