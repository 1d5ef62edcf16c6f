"""Rewrite a job for an earlier release: the work of `samzapy job downgrade`."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import click

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.cli.output.option import is_json, print_json
from samzapy.cli.output.terminal import printable
from samzapy.container.start_rules import positions_of
from samzapy.coordinator.assignment.starts import PositionsRead
from samzapy.coordinator.lifecycle.downgrade import (
    HURRIED,
    Downgrade,
    difference,
    hosts_with_state,
    is_hurried,
    look,
    refusals,
    settings_before,
    settings_without,
)
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import CorruptRecordError, DeadlineError, RejectedError, SamzapyError
from samzapy.model.container import coordinator_transactional_id, election_group
from samzapy.model.topics import TopicSpec, checkpoint_topic, coordinator_spec, coordinator_topic
from samzapy.runtime.job_address import JobAddress, coordinator_records, never_ran
from samzapy.runtime.leader_status import leader_status
from samzapy.runtime.signals import end_signals
from samzapy.runtime.stream_source import StreamSource, export_to, source_of_topic
from samzapy.runtime.this_host import Here
from samzapy.stream.codec import decode
from samzapy.stream.export import read_export
from samzapy.stream.horizon import is_of_downgrade
from samzapy.stream.log import CompactedLog, LogRecord
from samzapy.stream.records import TermPut
from samzapy.stream.release_0_1_0 import RELEASE, can_read, first_unread

_LOOK_EVERY_S = 1.0
_ROLL_EVERY_S = 3.0
"""Longer than a segment is filled (`HURRIED`).

A cleaner begins a pass every 15 s by default, and only if there are records to clean."""

_REPLICAS_S = 60.0
"""Extra time for replicas: each broker cleans its own, and only the leader's can be read."""


def downgrade_job(address: JobAddress, archive: Path, timeout_s: float, output: str) -> None:
    """Downgrade a stopped job, and print what was done.

    Args:
        archive: the file of the history.
        timeout_s: the maximum wait for the log cleaner.

    Raises:
        RejectedError: the job runs, or the earlier release could not run it. Nothing was written.
        DeadlineError: the log cleaner was not done in time. A second call continues.
        FencedError: another process has become the leader meanwhile.
    """
    job, topic = address.job, coordinator_topic(address.job)
    # First only read: a take-over of the log would fence a living leader.
    looked = look(coordinator_records(address), topic)
    if looked.known.state.job is None or looked.known.state.term is None:
        raise never_ran(job)
    refuse(looked.known.state, _positions(address))
    admin = KafkaAdmin(address.connection)
    _refuse_leader(address, admin, looked.known.state)
    _refuse_missing_inputs(admin, looked.known.state)
    log = KafkaLog(address.connection, topic, coordinator_transactional_id(job))
    try:
        with ended_in_order() as pause:
            parts = Parts(
                log=log,
                topic=topic,
                spec=coordinator_spec(job),
                positions=lambda: _positions(address),
                archive=ArchiveFile(archive, lambda: source_of_topic(address)),
                settings=_KafkaSettings(admin, topic),
                replica_count=admin.describe([topic])[topic].replication_factor,
                pause=pause,
            )
            done = carry_out(parts, _next_term, timeout_s)
    finally:
        log.close()
    print_done(job, looked.known.state, done, archive, output)


class Archive(Protocol):
    """The archive of the history."""

    def settings(self) -> Mapping[str, str]:
        """The settings of the topic when the history was archived; empty before that."""
        ...

    def keep(self) -> None:
        """Archive the history, or check that it is archived.

        Raises:
            RejectedError: the archive has something else.
        """
        ...


class TopicSettings(Protocol):
    """The settings of the coordinator's topic."""

    def now(self) -> Mapping[str, str]: ...

    def alter(self, settings: Mapping[str, str | None]) -> None:
        """Change settings; None removes the topic's own value."""
        ...


class Done(NamedTuple):
    """The result of a downgrade.

    `is_archived` is whether this command wrote the archive, or checked it.
    """

    facts_written: int = 0
    is_archived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a downgrade."""

    log: CompactedLog
    topic: str
    spec: TopicSpec
    positions: Callable[[], PositionsRead]
    archive: Archive
    settings: TopicSettings
    replica_count: int = 1
    now_s: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


def carry_out(parts: Parts, term_of: Callable[[CoordinatorState], TermPut], timeout_s: float) -> Done:
    """Carry out a downgrade.

    The steps are: fence, replay, refuse or archive the history, write, and wait for the log cleaner.

    Raises:
        RejectedError: the earlier release could not run the job. Nothing was written.
        DeadlineError: the log cleaner was not done in time. A second call continues.
        FencedError: another process has become the leader meanwhile.
    """
    parts.log.take_over()
    looked = look(parts.log.read(), parts.topic)
    refuse(looked.known.state, parts.positions())
    count = len(difference(looked))
    if count == 0 and first_unread(parts.log.read()) is None:
        if is_hurried(parts.settings.now()):
            _put_back(parts)
        return Done()
    parts.archive.keep()
    writer = Downgrade(parts.log, looked, term_of(looked.known.state))
    writer.append()
    try:
        parts.settings.alter(dict(HURRIED))
        _await_cleaner(parts, writer, timeout_s)
    finally:
        _put_back(parts)
    return Done(facts_written=count, is_archived=True)


def refuse(state: CoordinatorState, read: PositionsRead) -> None:
    """Raise RejectedError if 0.1.0 could not run the job."""
    refused = refusals(state, read)
    if refused:
        reasons = "".join(f"\n- {reason}" for reason in refused)
        raise RejectedError(
            f"wanted a stopped job that release {RELEASE} can run, found one that it cannot; nothing was "
            f"written:{reasons}"
        )


def _await_cleaner(parts: Parts, writer: Downgrade, timeout_s: float) -> None:
    """Wait until no record is left that 0.1.0 cannot read."""
    began_s = rolled_s = parts.now_s()
    clean_s: float | None = None
    while True:
        unread = first_unread(parts.log.read())
        now_s = parts.now_s()
        clean_s = None if unread is not None else now_s if clean_s is None else clean_s
        # Only the leader's replica can be read; the others get some more time.
        if clean_s is not None and (parts.replica_count == 1 or now_s - clean_s >= _REPLICAS_S):
            return
        if unread is not None and now_s - began_s >= timeout_s:
            raise _not_cleaned(parts.topic, unread, timeout_s)
        if now_s - rolled_s >= _ROLL_EVERY_S:
            writer.roll()
            rolled_s = now_s
        parts.pause(_LOOK_EVERY_S)


def _not_cleaned(topic: str, unread: LogRecord, timeout_s: float) -> DeadlineError:
    return DeadlineError(
        f"wanted the log cleaner to remove the records of {topic} that {RELEASE} cannot read within {timeout_s:.0f} s, "
        f"found the record at offset {unread.offset} still there. Everything is written, and this release can run the "
        "job. Check that the brokers' log cleaner runs (log.cleaner.enable), and run the same command again, with the "
        "same archive"
    )


def _put_back(parts: Parts) -> None:
    """Restore the settings; a setting that the topic did not have is removed again."""
    before = settings_before(parts.spec, parts.archive.settings())
    try:
        parts.settings.alter({name: before[name] if name in parts.spec.settings else None for name in HURRIED})
        now = parts.settings.now()
        rest = {name: value for name, value in before.items() if now.get(name) != value}
        if rest:
            parts.settings.alter(dict(rest))
    except SamzapyError as error:
        texts = ",".join(f"{name}={value}" for name, value in sorted(before.items()))
        raise SamzapyError(
            f"wanted the settings of {parts.topic} as they were before, found that they cannot be changed back now "
            f"({error}). Run the same command again, or set them with kafka-configs.sh --add-config {texts}"
        ) from error


class _KafkaSettings:
    """The settings of a topic on a cluster."""

    def __init__(self, admin: KafkaAdmin, topic: str) -> None:
        self._admin = admin
        self._topic = topic

    def now(self) -> Mapping[str, str]:
        return self._admin.look([self._topic])[self._topic].settings

    def alter(self, settings: Mapping[str, str | None]) -> None:
        self._admin.alter_settings(self._topic, settings)


class ArchiveFile:
    """A file of `stream export`. Each `keep` reads the stream from a new `source`."""

    def __init__(self, file: Path, source: Callable[[], StreamSource]) -> None:
        self._file = file
        self._source = source

    def settings(self) -> Mapping[str, str]:
        if not self._file.exists():
            return {}
        with self._file.open("rb") as opened:
            return read_export(opened, str(self._file)).header.looked.settings

    def keep(self) -> None:
        source = self._source()
        if not self._file.exists():
            count = export_to(self._file, source)
            click.echo(f"{count} records of {printable(source.topic)} are kept in {self._file}", err=True)
            return
        try:
            with self._file.open("rb") as opened:
                export = read_export(opened, str(self._file))
                # To its end, because an incomplete file keeps nothing.
                for _ in export.records:
                    pass
        except (OSError, CorruptRecordError) as error:
            raise self._another(str(error)) from error
        header = export.header
        if (header.topic, header.looked.topic_id) != (source.topic, source.looked.topic_id):
            raise self._another(f"it is of {header.topic} (id {header.looked.topic_id})")
        later = not_kept(source.records(), header.extent.offset_end)
        if later is not None:
            raise self._another(
                f"it ends at offset {header.extent.offset_end}, and the job has run since (offset {later.offset})"
            )

    def _another(self, why: str) -> RejectedError:
        return RejectedError(
            f"--archive: wanted a file that does not exist, or the archive of an interrupted downgrade of this job, "
            f"found {self._file}: {why}. Nothing was written; choose another file"
        )


def not_kept(records: Iterable[LogRecord], offset_end: int) -> LogRecord | None:
    """The first record after `offset_end` that no downgrade has written."""
    return next((record for record in records if record.offset >= offset_end and not is_of_downgrade(record)), None)


def _positions(address: JobAddress) -> PositionsRead:
    """The positions on the checkpoint topic.

    Raises:
        RejectedError: 0.1.0 cannot read it.
    """
    topic = checkpoint_topic(address.job)
    records = list(KafkaTopics(address.connection, address.job).checkpoint_records())
    unread = [record for record in records if not can_read(record)]
    if unread:
        key = (unread[0].key or b"").decode(errors="backslashreplace")
        raise RejectedError(
            f"wanted a {topic} that release {RELEASE} can read, found {len(unread)} record(s) that it cannot, the "
            f"first at offset {unread[0].offset} under {printable(key)}; nothing was written. Positions in broadcast "
            "inputs are such records: a job with broadcast inputs stays with this release until they are removed, and "
            "the topic's log cleaner has removed the records"
        )
    positions = positions_of(decode(record, topic=topic) for record in records)
    return PositionsRead(checkpoints=positions.checkpoints, progress=positions.progress, bounds={})


def _refuse_leader(address: JobAddress, admin: KafkaAdmin, state: CoordinatorState) -> None:
    """Raise RejectedError if the job has a leader or a candidate."""
    assert state.term is not None, "looked at before"
    if leader_status(address.job, state.term.url, address.access) is not None:
        raise RejectedError(
            f"wanted a stopped job, found its coordinator at {state.term.url} on {state.term.host}; stop it first "
            f"(samzapy job stop --job {address.job} --wait), then its process. Nothing was written"
        )
    count = admin.member_count(election_group(address.job))
    if count:
        raise RejectedError(
            f"wanted a stopped job, found {count} election candidate(s) in {election_group(address.job)}: stop them "
            "first. A killed process counts until its session is over (job.coordinator.election.session.ms). Nothing "
            "was written"
        )


def _refuse_missing_inputs(admin: KafkaAdmin, state: CoordinatorState) -> None:
    """Raise RejectedError if a recorded input is missing or was created again."""
    topics = {recorded.system_stream.stream: recorded.topic_id for recorded in state.inputs.values()}
    there = admin.find(topics)
    wrong = sorted(name for name in topics if name not in there or there[name].topic_id != topics[name])
    if wrong:
        raise RejectedError(
            f"wanted every topic that the job has ever read, as release {RELEASE} does, found that {', '.join(wrong)} "
            "was deleted, or deleted and created again; the job stays with this release. Nothing was written"
        )


def _next_term(state: CoordinatorState) -> TermPut:
    assert state.term is not None, "looked at before"
    here = Here.now()
    return TermPut(
        term=state.term.term + 1,
        coordinator_id=f"downgrade-{uuid.uuid4().hex}",
        host=here.host,
        boot_id=here.boot_id,
        pid=here.pid,
        process_started_ms=here.process_started_ms,
        # No process answers at this URL any more, and the next leader records its own.
        url=state.term.url,
        started_at_ms=time.time_ns() // 1_000_000,
    )


@contextmanager
def ended_in_order() -> Iterator[Callable[[float], None]]:
    """Handle SIGTERM like Ctrl-C, so that temporary settings are restored.

    Yields a sleep that ends the command, too: Python drops an exception that a handler raises while a generator is
    finalized, so the signal alone could be lost. A second signal does not interrupt the restoring.
    """
    if threading.current_thread() is not threading.main_thread():
        yield time.sleep
        return
    received: list[int] = []

    def end(number: int, frame: object) -> None:
        received.append(number)
        if len(received) == 1:
            raise _end_by(number)

    def pause(seconds: float) -> None:
        if not received:
            time.sleep(seconds)
        if received:
            raise _end_by(received[0])

    before = {number: signal.signal(number, end) for number in end_signals()}
    try:
        yield pause
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_by(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def print_done(job: str, state: CoordinatorState, done: Done, archive: Path, output: str) -> None:
    """Print the result, with the archive only if the history is in it."""
    if is_json(output):
        kept = str(archive) if done.is_archived else None
        print_json({"job": job, "release": RELEASE, "factsWritten": done.facts_written, "archive": kept}, output)
        return
    if done.is_archived:
        written = f"{done.facts_written} facts were written; the history is in {archive}"
        click.echo(f"{job}: release {RELEASE} can run it; {written}")
    else:
        click.echo(f"{job}: release {RELEASE} can read it already; nothing was written")
    # Also if nothing was written: the command before may have timed out without these lines.
    if any(key.startswith("stores.") for key in state.config):
        hosts = ", ".join(map(printable, hosts_with_state(state)))
        click.echo(
            f"before the start: remove {os.path.join('<local.store.dir>', job)} on {hosts}. {RELEASE} cannot read "
            "it, and restores the state from the changelogs"
        )
    unknown = settings_without(state)
    if unknown:
        click.echo(f"before the start: remove from the properties file {', '.join(map(printable, unknown))}")
