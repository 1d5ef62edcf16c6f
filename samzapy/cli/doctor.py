"""`samzapy doctor`: what is wrong with a job, each thing with its code and what to do about it. Read-only.

Gathers what the cluster, the topics, the leader and this host say; what follows from that is decided by the pure
functions of `model.topic_checks`, `stream.examination` and `coordinator.diagnosis`. It waits for nobody: what stands
behind an open transaction is not read, and that is one of the findings.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import Admin
from samzapy.adapters.kafka.election import election_group
from samzapy.adapters.kafka.open_transactions import open_transactions
from samzapy.adapters.kafka.reading import PartitionReader, beginning_offsets
from samzapy.adapters.kafka.transactions import TRANSACTION_TIMEOUT_MS
from samzapy.cli.coordination import Here, HostProcesses
from samzapy.cli.job_address import READ_WAIT_S, JobAddress, no_such_job, of_a_job
from samzapy.cli.job_status import leader_status
from samzapy.cli.terminal import printable
from samzapy.config import JobConfig, parse_recorded
from samzapy.coordinator.commands import TopicsLooked
from samzapy.coordinator.diagnosis import (
    LeaderSaid,
    clock_findings,
    container_findings,
    leader_findings,
    owner_findings,
    transaction_findings,
    truncation_findings,
)
from samzapy.coordinator.laws import Laws
from samzapy.coordinator.replay import replay
from samzapy.coordinator.state import OFFSET_UNKNOWN, CoordinatorState
from samzapy.coordinator.topic_watch import compacted_topics, specs_of, topic_findings, topics_of
from samzapy.errors import BrokerUnavailableError, ConfigError, CorruptRecordError, ExitCode, RejectedError
from samzapy.model.finding import Finding, finding_json, losing_data
from samzapy.model.job import ExecutionId
from samzapy.model.topic_checks import TopicFound, missing
from samzapy.model.topics import changelog_topic, checkpoint_topic, coordinator_topic, placement_topic
from samzapy.stream.codec import decode
from samzapy.stream.examination import (
    examine_changelog,
    examine_checkpoints,
    examine_coordinator_stream,
    examine_placement,
)
from samzapy.stream.horizon import compaction_lag_ms, horizon_ms
from samzapy.stream.log import LogRecord
from samzapy.stream.records import CheckpointPut, ProgressPut

_TERM_KEY = b"term"
_LOST_MS_UNKNOWN = 30_000
_ABORT_AFTER_MS = 15_000
"""How long a broker may take to abort a transaction that has timed out (it looks every 10 s by default)."""


@click.command()
@of_a_job
@click.option("--changelogs", is_flag=True, help="Also read all changelogs, which takes a while for a large state.")
@click.option(
    "--patience",
    "patience_s",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="A transaction that is open for longer is a finding; by default the job's transaction time-outs and a margin.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def doctor(
    context: click.Context, address: JobAddress, changelogs: bool, patience_s: int | None, output: str
) -> None:
    """Find what is wrong with a job: its topics, their records, open transactions, its leader and its containers.

    Each finding has a code, how much it matters, what was found and what to do. Ends with 0 when nothing is wrong; with
    6 when the job is degraded; with 8 when data is not as it must be; with 3 when there is no such job.

    \b
    Example:
      samzapy doctor --job flight-delays-1 --bootstrap-servers localhost:9092
    """
    patience_ms = None if patience_s is None else patience_s * 1000
    try:
        findings = _Examination(address, patience_ms=patience_ms, with_changelogs=changelogs).findings()
    except BrokerUnavailableError as error:
        findings = (_unreachable(error),)
    not_read = [] if changelogs else ["the records of changelogs (ask with --changelogs)"]
    if output == "json":
        shown = [finding_json(finding) for finding in findings]
        click.echo(json.dumps({"job": address.job, "findings": shown, "notLookedAt": not_read}, indent=2))
    else:
        _print(findings, not_read)
    if losing_data(findings):
        context.exit(ExitCode.BAD_DATA)
    if findings:
        context.exit(ExitCode.DEGRADED)


class _Examination:
    """One look at one job."""

    def __init__(self, address: JobAddress, *, patience_ms: int | None, with_changelogs: bool) -> None:
        self._job = address.job
        self._connection = address.connection
        self._admin = KafkaAdmin(address.connection, deadline_s=READ_WAIT_S)
        self._offsets = Admin(address.connection)
        self._patience_ms = patience_ms
        self._with_changelogs = with_changelogs
        self._now_ms = time.time_ns() // 1_000_000

    def findings(self) -> tuple[Finding, ...]:
        """Raises RejectedError: no such job; BrokerUnavailableError: nobody answered."""
        self._admin.check_reachable()
        topic, checkpoints = coordinator_topic(self._job), checkpoint_topic(self._job)
        there = self._admin.look([topic, checkpoints])
        if topic not in there:
            if checkpoints in there:
                return (missing(topic),)
            raise no_such_job(self._job)
        records = self._read(topic)
        of_stream = examine_coordinator_stream(
            records, topic=topic, whole_from=self._whole_from(records, there[topic]), judge=Laws().judge
        )
        state = replay(_readable(records, topic), topic=topic).state
        if state.job is None and not of_stream:
            raise RejectedError(f"wanted the job {self._job}, found an empty {topic}: it never ran")
        looked = self._look(state)
        return (
            *topic_findings(state, looked),
            *of_stream,
            *self._of_records(state, looked),
            *self._of_partitions(state, looked),
            *self._of_processes(state, records),
        )

    def _whole_from(self, records: Sequence[LogRecord], topic: TopicFound) -> int:
        """The offset from which on compaction has taken nothing."""
        newest_ms = max((record.timestamp_ms for record in records), default=0)
        horizon = horizon_ms(max(self._now_ms, newest_ms), compaction_lag_ms(topic))
        return next((record.offset for record in records if record.timestamp_ms > horizon), OFFSET_UNKNOWN)

    def _look(self, state: CoordinatorState) -> TopicsLooked:
        names = topics_of(state)
        found = self._admin.look(state.own_topics, names)
        return TopicsLooked(
            found={name: found.get(name) for name in names},
            cluster=self._admin.cluster(),
            topics=self._admin.topic_names(),
        )

    def _read(self, topic: str, partition: int = 0) -> list[LogRecord]:
        with PartitionReader(self._connection, topic, partition) as reader:
            return list(reader.read_stable(READ_WAIT_S))

    def _of_records(self, state: CoordinatorState, looked: TopicsLooked) -> Iterable[Finding]:
        checkpoints = checkpoint_topic(self._job)
        if looked.found.get(checkpoints) is not None:
            yield from examine_checkpoints(self._read(checkpoints), topic=checkpoints)
        placement = placement_topic(self._job)
        if looked.found.get(placement) is not None:
            yield from examine_placement(self._read(placement), topic=placement)
        if not self._with_changelogs:
            return
        for spec in specs_of(state):
            found = looked.found.get(spec.name)
            if found is None or not spec.name.startswith(changelog_topic(self._job, "")):
                continue
            for partition in range(found.partition_count):
                with PartitionReader(self._connection, spec.name, partition) as reader:
                    yield from examine_changelog(
                        reader.read_stable(READ_WAIT_S), topic=spec.name, partition=partition
                    )

    def _of_partitions(self, state: CoordinatorState, looked: TopicsLooked) -> Iterable[Finding]:
        places = [
            (name, partition)
            for name, topic in sorted(looked.found.items())
            if topic is not None
            for partition in range(topic.partition_count)
        ]
        own = compacted_topics(state)
        firsts = beginning_offsets(self._offsets, [place for place in places if place[0] in own], READ_WAIT_S)
        yield from truncation_findings(firsts)
        yield from transaction_findings(
            open_transactions(self._connection, places, READ_WAIT_S),
            now_ms=self._now_ms,
            patience_ms=_patience_ms(state) if self._patience_ms is None else self._patience_ms,
            bootstrap_servers=self._connection.bootstrap_servers,
        )

    def _of_processes(self, state: CoordinatorState, records: Sequence[LogRecord]) -> Iterable[Finding]:
        said = _said(leader_status(self._job, None if state.term is None else state.term.url))
        processes = HostProcesses(Here.now().boot_id)
        candidate_count = self._admin.member_count(election_group(self._job))
        yield from leader_findings(state, said, candidate_count=candidate_count)
        yield from container_findings(
            state,
            said,
            is_alive=lambda found: processes.is_alive(found.boot_id, found.pid, found.process_started_ms),
            now_ms=self._now_ms,
            lost_ms=_lost_ms(state),
        )
        yield from owner_findings(state)
        yield from clock_findings(state, _term_appended_ms(records))


def _readable(records: Iterable[LogRecord], topic: str) -> Iterable[LogRecord]:
    """Those that say something about the job: a doctor goes on where a coordinator stops."""
    for record in records:
        try:
            fact = decode(record, topic=topic)
        except CorruptRecordError:
            continue
        if not isinstance(fact, CheckpointPut | ProgressPut):
            yield record


def _term_appended_ms(records: Iterable[LogRecord]) -> int | None:
    """When the newest term record was appended, by the broker's clock."""
    newest = None
    for record in records:
        if record.key == _TERM_KEY:
            newest = record.timestamp_ms
    return newest


def _config(state: CoordinatorState) -> JobConfig | None:
    """The recorded configuration; None where this release cannot read it."""
    try:
        return parse_recorded(state.config)
    except ConfigError:
        return None


def _patience_ms(state: CoordinatorState) -> int:
    """Longer than any transaction of ours may be open before the broker aborts it."""
    config = _config(state)
    longest_ms = (
        0 if config is None else max(config.transaction_timeout_ms, config.coordinator_transaction_timeout_ms)
    )
    return max(longest_ms, TRANSACTION_TIMEOUT_MS) + _ABORT_AFTER_MS


def _lost_ms(state: CoordinatorState) -> int:
    config = _config(state)
    return _LOST_MS_UNKNOWN if config is None else config.lost_ms


def _said(status: Mapping[str, object] | None) -> LeaderSaid | None:
    """What an answer says that may come from anybody: fields of another type count as not said."""
    if status is None:
        return None
    term, trouble, containers = status.get("term"), status.get("trouble"), status.get("containers")
    ages: dict[ExecutionId, int | None] = {}
    for row in containers if isinstance(containers, list) else []:
        if isinstance(row, dict) and isinstance(row.get("executionId"), str):
            age = row.get("heartbeatAgeMs")
            ages[ExecutionId(row["executionId"])] = age if isinstance(age, int) else None
    return LeaderSaid(
        term=term if isinstance(term, int) else 0,
        trouble=trouble if isinstance(trouble, str) else "",
        heartbeat_ages_ms=ages,
    )


def _unreachable(error: BrokerUnavailableError) -> Finding:
    return Finding(
        code="cluster-unreachable",
        subject="cluster",
        found=str(error),
        remedy="See that the brokers run and that address and credentials are right; nothing else was looked at",
    )


def _print(findings: Sequence[Finding], not_looked_at: Sequence[str]) -> None:
    console = Console(width=1000, highlight=False)
    if findings:
        table = Table(box=None, pad_edge=False)
        for column in ("severity", "code", "subject", "found", "what to do"):
            table.add_column(column.upper(), no_wrap=True)
        for finding in findings:
            cells = (finding.severity.value, finding.code, finding.subject, finding.found, finding.remedy)
            table.add_row(*(Text(printable(cell)) for cell in cells))
        console.print(table)
    else:
        console.print(Text("nothing is wrong"))
    for part in not_looked_at:
        console.print(Text(f"not looked at: {part}"))
