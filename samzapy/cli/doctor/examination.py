"""Examine a job: the work of `samzapy doctor`.

It reads the cluster, the topics, the leader's status and this host. The pure functions of
`model.topic_checks`, `stream.examination` and `inspection.diagnosis` turn that into findings. Records behind an open
transaction are not read, which is a finding too. It only waits for the end of transactions whose age the
broker's clock does not give.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final
from urllib.parse import urlsplit

import click

from samzapy.adapters.kafka.admin import KafkaAdmin, heard
from samzapy.adapters.kafka.clients import Admin
from samzapy.adapters.kafka.key_sample import SAMPLE_WAIT_S
from samzapy.adapters.kafka.open_transactions import open_transactions, still_open
from samzapy.adapters.kafka.reading import PartitionReader, beginning_offsets
from samzapy.adapters.kafka.transactions import TRANSACTION_TIMEOUT_MS
from samzapy.config import JobConfig, is_loopback, parse_recorded
from samzapy.coordinator.assignment.container_ends import end_findings
from samzapy.coordinator.assignment.cut_off import cut_off_findings
from samzapy.coordinator.commands import TopicsLooked
from samzapy.coordinator.inputs.topic_checks import compacted_topics, specs_of, topic_findings, topics_of
from samzapy.coordinator.launching.suspension import suspension_findings
from samzapy.coordinator.replay import replay
from samzapy.coordinator.state import OFFSET_UNKNOWN, CoordinatorState, job_model
from samzapy.errors import BrokerUnavailableError, ConfigError, CorruptRecordError, RejectedError
from samzapy.inspection.diagnosis import (
    LeaderAnswer,
    OpenTransaction,
    clock_findings,
    container_findings,
    findings_of_leader,
    is_of_unknown_age,
    key_findings,
    leader_findings,
    offline_findings,
    owner_findings,
    transaction_findings,
    truncation_findings,
)
from samzapy.inspection.intermediate_records import examine_intermediate, partition_count_kept
from samzapy.inspection.invariants import Invariants
from samzapy.inspection.load import json_rows
from samzapy.inspection.status import is_stopped
from samzapy.model.container import election_group
from samzapy.model.finding import Finding, losing_data
from samzapy.model.job import ExecutionId
from samzapy.model.topic_checks import TopicFound, check_topic, missing
from samzapy.model.topics import (
    changelog_topic,
    checkpoint_topic,
    coordinator_spec,
    coordinator_topic,
    placement_topic,
)
from samzapy.runtime.input_keys import divided_ssps, keeps_keys, look_at_inputs
from samzapy.runtime.job_address import READ_WAIT_S, JobAddress, never_ran, no_such_job
from samzapy.runtime.leader_status import leader_status
from samzapy.runtime.this_host import Here, HostProcesses
from samzapy.stream.examination import (
    examine_changelog,
    examine_checkpoints,
    examine_coordinator_stream,
    examine_placement,
)
from samzapy.stream.horizon import compaction_lag_ms, horizon_ms, offset_after_downgrade
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import BEGINNING, VALUE_RESTORED, Foreign, fact_of, place
from samzapy.stream.records import TermPut

_TERM_KEY = b"term"
_LAST: Final = 9
"""The place of the finding that ends an examination."""
_LOST_MS_UNKNOWN = 30_000
_ABORT_AFTER_MS = 15_000
"""How long a broker may take to abort a transaction that has timed out (it looks every 10 s by default)."""


class Examination:
    """One look at one job.

    Attributes:
        has_more: whether the job has intermediate streams whose records were not read.
        not_looked_at: parts that could not be examined, each with the reason.
    """

    def __init__(
        self,
        address: JobAddress,
        *,
        patience_ms: int | None,
        with_changelogs: bool,
        with_intermediates: bool,
        sample_count: int,
    ) -> None:
        self._job = address.job
        self._connection = address.connection
        self._access = address.access
        self._admin = KafkaAdmin(address.connection, deadline_s=READ_WAIT_S)
        self._offsets = Admin(address.connection)
        self._patience_ms = patience_ms
        self._with_changelogs = with_changelogs
        self._with_intermediates = with_intermediates
        self.has_more = False
        self.not_looked_at: list[str] = []
        self._sample_count = sample_count
        self._led: Mapping[str, Collection[int]] = {}
        self._has_run = True

    def findings(self) -> tuple[Finding, ...]:
        """Examine the job. Raises RejectedError.

        If the brokers stop answering, the findings so far are given, and that.
        """
        placed: list[tuple[int, Finding]] = []
        is_reached = False
        try:
            self._admin.check_reachable()
            is_reached = True
            for place_of_part, part in self._parts():
                # One by one: a part may lose the cluster in its midst.
                for finding in part:
                    placed.append((place_of_part, finding))
        except BrokerUnavailableError as error:
            placed.append((_LAST, _unreachable(error, "the rest was not" if is_reached else "nothing else was")))
        if not placed and not self._has_run:
            raise never_ran(self._job)
        return tuple(finding for _, finding in sorted(placed, key=itemgetter(0)))

    def _parts(self) -> Iterator[tuple[int, Iterable[Finding]]]:
        """The findings of each part, and the part's place in the answer."""
        topic, checkpoints = coordinator_topic(self._job), checkpoint_topic(self._job)
        there = self._admin.look([topic, checkpoints])
        if topic not in there:
            if checkpoints not in there:
                raise no_such_job(self._job)
            yield 0, (missing(topic),)
            return
        if 0 not in self._admin.led([topic]).get(topic, ()):
            yield 0, offline_findings({topic: [0]})
            return
        records = list(self._stable(topic))
        yield (
            1,
            examine_coordinator_stream(
                records, topic=topic, whole_from=self._whole_from(records, there[topic]), check=Invariants().check
            ),
        )
        state, of_config = _with_known_config(replay(_readable(records, topic), topic=topic).state, topic)
        self._has_run = state.job is not None
        yield 2, of_config
        # Now: minutes later, a new leader and other containers may have taken the place of those in `state`.
        yield 6, self._of_processes(state, records)
        looked = self._look(state, topic)
        yield 0, self._of_topics(state, looked, there[topic])
        yield 3, self._of_records(state, looked)
        yield 4, self._of_partitions(state, looked)
        yield 5, self._of_keys(state)

    def _of_topics(self, state: CoordinatorState, looked: TopicsLooked, stream: TopicFound) -> Iterable[Finding]:
        if state.job is None:
            # Without a configuration, only the coordinator's topic is known.
            yield from check_topic(coordinator_spec(self._job), stream, looked.cluster)
        yield from topic_findings(state, looked)

    def _whole_from(self, records: Sequence[LogRecord], topic: TopicFound) -> int:
        """The first offset from which on no record was compacted away."""
        if self._offset_first(topic.name) > 0:
            return OFFSET_UNKNOWN
        newest_ms = max((record.timestamp_ms for record in records), default=0)
        horizon = horizon_ms(max(_now_ms(), newest_ms), compaction_lag_ms(topic))
        young = next((record.offset for record in records if record.timestamp_ms > horizon), OFFSET_UNKNOWN)
        return max(young, offset_after_downgrade(records))

    def _offset_first(self, topic: str) -> int:
        return beginning_offsets(self._offsets, [(topic, 0)], READ_WAIT_S)[topic, 0]

    def _look(self, state: CoordinatorState, stream: str) -> TopicsLooked:
        """The job's topics.

        They are looked at again while one is wrong, because it may have been corrected just now.
        """
        return heard(
            lambda: self._look_once(state, stream), lambda looked: not losing_data(topic_findings(state, looked))
        )

    def _look_once(self, state: CoordinatorState, stream: str) -> TopicsLooked:
        names = sorted({*topics_of(state), stream})
        topics = self._admin.look(state.own_topics, names)
        self._led = self._admin.led(names)
        return TopicsLooked(
            described={name: topics.get(name) for name in names},
            cluster=self._admin.cluster(),
            topics=self._admin.topic_names(),
        )

    def _stable(self, topic: str, partition: int = 0) -> Iterator[LogRecord]:
        with PartitionReader(self._connection, topic, partition) as reader:
            yield from reader.read_stable(READ_WAIT_S)

    def _is_led(self, topic: str, partition: int = 0) -> bool:
        """Whether the partition exists and has a leader to ask."""
        return partition in self._led.get(topic, ())

    def _of_records(self, state: CoordinatorState, looked: TopicsLooked) -> Iterable[Finding]:
        checkpoints = checkpoint_topic(self._job)
        if self._is_led(checkpoints):
            yield from examine_checkpoints(self._stable(checkpoints), topic=checkpoints)
        placement = placement_topic(self._job)
        if self._is_led(placement):
            yield from examine_placement(self._stable(placement), topic=placement)
        for spec in specs_of(state) if self._with_changelogs else ():
            if not spec.name.startswith(changelog_topic(self._job, "")):
                continue
            for partition in sorted(self._led.get(spec.name, ())):
                yield from examine_changelog(self._stable(spec.name, partition), topic=spec.name, partition=partition)
        yield from self._of_intermediates(state, looked)

    def _of_intermediates(self, state: CoordinatorState, looked: TopicsLooked) -> Iterable[Finding]:
        config = _config(state)
        streams = () if config is None else config.intermediates
        self.has_more = bool(streams) and not self._with_intermediates
        for stream in streams if self._with_intermediates else ():
            topic = looked.described.get(stream.topic)
            count = partition_count_kept(state, stream.system_stream, 0 if topic is None else topic.partition_count)
            for partition in sorted(self._led.get(stream.topic, ())):
                yield from examine_intermediate(
                    self._stable(stream.topic, partition),
                    topic=stream.topic,
                    partition=partition,
                    partition_count=count,
                )

    def _of_partitions(self, state: CoordinatorState, looked: TopicsLooked) -> Iterable[Finding]:
        places, offline = [], {}
        for name, topic in sorted(looked.described.items()):
            numbers = range(0 if topic is None else topic.partition_count)
            places += [(name, partition) for partition in numbers if self._is_led(name, partition)]
            offline[name] = [partition for partition in numbers if not self._is_led(name, partition)]
        yield from offline_findings(offline)
        own = {*compacted_topics(state), coordinator_topic(self._job)}
        firsts = beginning_offsets(self._offsets, [place for place in places if place[0] in own], READ_WAIT_S)
        yield from truncation_findings(firsts)
        patience_ms = _patience_ms(state) if self._patience_ms is None else self._patience_ms
        opened = open_transactions(self._offsets, places, READ_WAIT_S)
        # The records before were read for minutes, maybe, and transactions began meanwhile.
        now_ms = _now_ms()
        yield from transaction_findings(
            self._open_for(opened, now_ms=now_ms, patience_ms=patience_ms),
            now_ms=now_ms,
            patience_ms=patience_ms,
            bootstrap_servers=self._connection.bootstrap_servers,
        )

    def _open_for(
        self, opened: Sequence[OpenTransaction], *, now_ms: int, patience_ms: int
    ) -> Sequence[OpenTransaction]:
        """Those of a known age, and the others that stay open while this waits."""
        unsure = [one for one in opened if is_of_unknown_age(one, now_ms=now_ms, patience_ms=patience_ms)]
        if unsure:
            click.echo(
                f"samzapy: {len(unsure)} transactions of unknown age are open: waiting up to "
                f"{patience_ms / 1000:g} s for them to end (--patience)",
                err=True,
            )
        ended = set(unsure) - set(still_open(self._offsets, unsure, patience_ms / 1000, READ_WAIT_S))
        return [one for one in opened if one not in ended]

    def _of_keys(self, state: CoordinatorState) -> Iterable[Finding]:
        config, plan = _config(state), job_model(state)
        if config is None or plan is None or not self._sample_count:
            return
        if config.partitioner_check == "off" or not keeps_keys(config):
            return
        ssps = {ssp for ssp in divided_ssps(plan) if self._is_led(ssp.stream, ssp.partition)}
        keys, is_whole = look_at_inputs(
            config, plan, self._connection, ssps, count_max=self._sample_count, wait_s=SAMPLE_WAIT_S
        )
        if not is_whole:
            click.echo("samzapy: not all keys of the sample could be read in time (--sample)", err=True)
        yield from key_findings(keys, is_accepted=config.partitioner_check == "warn")

    def _of_processes(self, state: CoordinatorState, records: Sequence[LogRecord]) -> Iterable[Finding]:
        here = Here.now()
        answer, is_known = self._leader_answer(state, here)
        processes = HostProcesses(here.boot_id)
        if is_known:
            yield from leader_findings(state, answer, count_candidates=self._candidate_count)
        yield from container_findings(
            state,
            answer,
            is_answer_known=is_known,
            is_alive=lambda one: processes.is_alive(one.boot_id, one.pid, one.process_started_ms),
            now_ms=_now_ms(),
            lost_ms=_lost_ms(state),
        )
        yield from suspension_findings(state)
        yield from end_findings(state)
        yield from cut_off_findings({} if answer is None else answer.kafka_silent_ms, state)
        yield from owner_findings(state)
        yield from clock_findings(state, _term_appended_ms(records))

    def _candidate_count(self) -> int:
        return self._admin.member_count(election_group(self._job))

    def _leader_answer(self, state: CoordinatorState, here: Here) -> tuple[LeaderAnswer | None, bool]:
        """The leader's answer, and whether it is known.

        It stays unknown if this host cannot reach or ask the leader, or if the leader refuses the credential.
        """
        term = state.term
        if term is not None and not is_stopped(state) and _is_elsewhere(term, here):
            # This host's own loopback address says nothing about it.
            address = urlsplit(term.url).hostname
            return self._unasked(f"the leader (it listens on {address} of {term.host}; run the command there)")
        url = None if term is None else term.url
        of_leader = "the leader, and the heartbeats of containers"
        try:
            return _leader_report(leader_status(self._job, url, self._access)), True
        except RejectedError as error:
            # The other findings need no credential.
            self.not_looked_at.append(f"{of_leader} ({error})")
            return None, False
        except ConfigError as error:
            return self._unasked(f"{of_leader} ({error})")

    def _unasked(self, part: str) -> tuple[None, bool]:
        """The answer of a leader that this host could not ask."""
        # An election without members has no leader.
        if not self._candidate_count():
            return None, True
        self.not_looked_at.append(part)
        return None, False


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _is_elsewhere(term: TermPut, here: Here) -> bool:
    """Whether the leader listens on a loopback address of another host."""
    # A host that was started again since has another boot.
    if here.boot_id == term.boot_id or here.host == term.host:
        return False
    try:
        return is_loopback(urlsplit(term.url).hostname or "")
    except ValueError:
        return False  # The client does not ask such a URL.


def _readable(records: Iterable[LogRecord], topic: str) -> Iterable[LogRecord]:
    """The readable records of leaders.

    Foreign ones are skipped here: without an unreadable record before it, one with its number would look like the
    leader's.
    """
    numbering = BEGINNING
    for record in records:
        numbering, headers = place(record, numbering)
        if isinstance(headers, Foreign):
            continue
        try:
            fact_of(record, headers, topic=topic)
        except CorruptRecordError:
            # The next record has the next number, as if this one were compacted away.
            continue
        yield record


def _term_appended_ms(records: Iterable[LogRecord]) -> int | None:
    """When the newest term began, by the broker's clock; None if that record is gone."""
    appended_ms, term, numbering = None, 0, BEGINNING
    for record in records:
        numbering, headers = place(record, numbering)
        if record.key != _TERM_KEY or isinstance(headers, Foreign) or headers.term == term:
            continue
        # A leader may write its record again at any time, in the place of a foreign one.
        appended_ms = None if headers.event == VALUE_RESTORED else record.timestamp_ms
        term = headers.term
    return appended_ms


def _with_known_config(state: CoordinatorState, topic: str) -> tuple[CoordinatorState, tuple[Finding, ...]]:
    """The state; without a plan if this release cannot read the configuration."""
    try:
        parse_recorded(state.config)
    except ConfigError as error:
        if state.generation is not None:
            return replace(state, generation=None), (_config_unreadable(topic, error),)
    return state, ()


def _config_unreadable(topic: str, error: ConfigError) -> Finding:
    return Finding(
        code="stream-config",
        subject=f"topic {topic}",
        found=f"the recorded configuration of the job: {error}",
        remedy="Examine the job with the release that runs it, and see the other findings on this topic; the topics "
        "of the configuration are not known",
    )


def _config(state: CoordinatorState) -> JobConfig | None:
    """The recorded configuration; None if this release cannot read it."""
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


def _leader_report(status: Mapping[str, object] | None) -> LeaderAnswer | None:
    """The fields of an untrusted answer; a field of the wrong type counts as missing."""
    if status is None:
        return None
    term, trouble, containers = status.get("term"), status.get("trouble"), status.get("containers")
    ages: dict[ExecutionId, int | None] = {}
    silent: dict[ExecutionId, int] = {}
    for row in containers if isinstance(containers, list) else []:
        if isinstance(row, dict) and isinstance(row.get("executionId"), str):
            age = row.get("heartbeatAgeMs")
            ages[ExecutionId(row["executionId"])] = age if isinstance(age, int) else None
            silent_ms = row.get("kafkaSilentMs")
            silent[ExecutionId(row["executionId"])] = silent_ms if isinstance(silent_ms, int) else 0
    return LeaderAnswer(
        term=term if isinstance(term, int) else 0,
        trouble=trouble if isinstance(trouble, str) else "",
        heartbeat_ages_ms=ages,
        kafka_silent_ms=silent,
        findings=findings_of_leader(json_rows(status, "findings")),
    )


def _unreachable(error: BrokerUnavailableError, unexamined: str) -> Finding:
    """The finding that no broker answers, and which parts that leaves out."""
    return Finding(
        code="cluster-unreachable",
        subject="cluster",
        found=str(error),
        remedy=f"Check that the brokers run and that address and credentials are right; {unexamined} examined",
    )
