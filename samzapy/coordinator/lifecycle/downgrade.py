"""Downgrade of a stopped job to release 0.1.0.

0.1.0 knows only factor 1; this module writes the coordinator stream as 0.1.0 must find it.

0.1.0 reads the stream from its first record, and one record that it does not know makes it refuse the whole stream
(`stream.release_0_1_0`). So all values that 0.1.0 knows are written in its format, under the same keys, and all others
get a tombstone. Then the older records must be removed, and only the log cleaner removes records from a compacted
topic. Topic settings make it quick for a while (`HURRIED`).

*Refusals.* A job is refused if 0.1.0 would run it differently, or not at all: 0.1.0 has no key buckets, no scheme but
`max`, no broadcast inputs, and so on (`refusals`). Records about placement and about requests are dropped, because no
position and no state depends on them. Floors that the positions have passed have no effect any more, and are left out.

*At any moment* this release can go on with the job, because the written records have the same meaning as those that
they replace. The run is removed first, because the requests that were made to it go with it: without `inbox` and
`request-memory` the requests are read again, and none of them is for the run that would begin then.

*Repetition.* Only the difference between the wanted and the current stream is written. So a downgrade that was
interrupted begins again. Everything that a downgrade writes has `CAUSE`: records before the last of it may have been
removed, even if the topic's settings promise an audit horizon.

Only the methods of `Downgrade` are not pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from samzapy.coordinator.assignment.liveness import LIVING
from samzapy.coordinator.assignment.replanning import factor_of
from samzapy.coordinator.assignment.starts import PositionsRead, reached
from samzapy.coordinator.replay import Replayed, check_whole, replay
from samzapy.coordinator.requests.rewind import taken_up
from samzapy.coordinator.state import CoordinatorState, latest, records_of
from samzapy.errors import CorruptRecordError
from samzapy.model.container import Container
from samzapy.model.grant import Grant
from samzapy.model.job import TaskMode
from samzapy.model.placement import UNFINISHED
from samzapy.model.text import some
from samzapy.model.topics import TopicSpec, changelog_topic
from samzapy.plan.task_names import TaskNameParts
from samzapy.stream.audit import event_name
from samzapy.stream.codec import decode, headers
from samzapy.stream.horizon import DOWNGRADE_CAUSE
from samzapy.stream.keys import Namespace, key_of
from samzapy.stream.log import CompactedLog, LogRecord, Write
from samzapy.stream.numbering import BEGINNING, VALUE_RESTORED, Foreign, place
from samzapy.stream.records import (
    CheckpointPut,
    CoordinatorRecord,
    GrantPut,
    PlannedTaskPut,
    ProgressPut,
    Removed,
    SchemaPut,
    StartpointPut,
    TermPut,
)
from samzapy.stream.release_0_1_0 import (
    FINGERPRINTS,
    FORMAT_LEVEL,
    RECORDS,
    RELEASE,
    SCHEMAS,
    SCHEME,
    encoded,
    has_key,
    has_setting,
)

CAUSE: Final = f"{DOWNGRADE_CAUSE} to {RELEASE}"
ACTOR: Final = "operator"

SEGMENT_MS: Final = 500
"""A record this long after the first one of its segment begins another segment; only older segments are cleaned."""

HURRIED: Final[Mapping[str, str]] = {
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0.0",
    "segment.ms": str(SEGMENT_MS),
}
"""Topic settings with which the log cleaner removes old records, and tombstones, in its next two passes."""

_RUN_KEY: Final = Namespace.RUN.encode()
_TERM_KEY: Final = Namespace.TERM.encode()
_FOREIGN: Final = b"foreign"
_SHOWN_MAX: Final = 5
_ONCE_MORE: Final = "start the job once more with this release, let it settle and stop it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A coordinator stream as read: its state, and the latest value of each key.

    The values are not decoded. A foreign record has a value here that no record of a leader has.
    """

    known: Replayed
    latest: Mapping[bytes, bytes | None]


def look(records: Iterable[LogRecord], topic: str) -> Looked:
    """Read a stream.

    Raises:
        CorruptRecordError, UnknownSchemaError: as `replay`, and where the plan in force is not whole.
    """
    value_of: dict[bytes, bytes | None] = {}

    def noted() -> Iterator[LogRecord]:
        numbering = BEGINNING
        for record in records:
            numbering, placed = place(record, numbering)
            if record.key is not None:
                # A foreign record is overwritten even if its value is the leader's.
                value_of[record.key] = _FOREIGN if isinstance(placed, Foreign) else record.value
            yield record

    known = replay(noted(), topic=topic)
    check_whole(known.state, topic)
    return Looked(known=known, latest=value_of)


def refusals(state: CoordinatorState, read: PositionsRead) -> tuple[str, ...]:
    """The reasons why 0.1.0 cannot run the job, each with the way out.

    Args:
        read: the recorded positions; their bounds are not used.
    """
    return (
        *_of_containers(state),
        *_of_factor(state, read),
        *_of_settings(state),
        *_of_plan(state),
        *_of_inputs(state),
        *_of_requests(state),
        *_of_runs(state),
    )


def wanted_on_stream(state: CoordinatorState) -> Mapping[bytes, bytes]:
    """The records of a stream for 0.1.0, for a state without refusals."""
    facts = [fact for record in records_of(state) if (fact := _as_read(record)) is not None]
    known = {fact.fingerprint for fact in facts if isinstance(fact, SchemaPut)}
    return dict(
        encoded(fact) for fact in (*facts, *(schema for schema in SCHEMAS if schema.fingerprint not in known))
    )


def difference(looked: Looked) -> tuple[tuple[bytes, bytes | None], ...]:
    """The records to write, in an order in which any prefix is safe."""
    # The recorded term is always replaced by that of the downgrade, in the format of 0.1.0.
    wanted = {key: value for key, value in wanted_on_stream(looked.known.state).items() if key != _TERM_KEY}
    gone = sorted(
        key for key, value in looked.latest.items() if value is not None and key not in (*wanted, _TERM_KEY)
    )
    return (
        *((key, None) for key in gone if key == _RUN_KEY),
        *((key, value) for key, value in wanted.items() if looked.latest.get(key) != value),
        *((key, None) for key in gone if key != _RUN_KEY),
    )


def settings_without(state: CoordinatorState) -> tuple[str, ...]:
    """The recorded settings that 0.1.0 refuses.

    They must be removed from the properties file.
    """
    return tuple(key for key in sorted(state.config) if not has_setting(key))


def hosts_with_state(state: CoordinatorState) -> tuple[str, ...]:
    """The hosts that may have local state of the job.

    0.1.0 cannot read the local state that this release has written there.
    """
    of_processors = {locality.host for locality in state.localities.values()}
    of_tasks = {locality.host for locality in state.task_localities.values()}
    of_containers = {container.host for container in state.containers.values()}
    return tuple(sorted(of_processors | of_tasks | of_containers))


def settings_before(spec: TopicSpec, settings: Mapping[str, str]) -> Mapping[str, str]:
    """The settings to restore after the downgrade.

    Args:
        settings: those of the topic before the downgrade; ignored if a killed downgrade has left them.
    """
    before = {} if is_hurried(settings) else {name: settings[name] for name in HURRIED if name in settings}
    return {name: spec.settings[name] for name in HURRIED if name in spec.settings} | before


def is_hurried(settings: Mapping[str, str]) -> bool:
    """Whether a downgrade that was killed has left the topic's settings."""
    return all(settings.get(name) == HURRIED[name] for name in ("min.compaction.lag.ms", "delete.retention.ms"))


class Downgrade:
    """The writer of a downgrade.

    It holds the coordinator's transactional id, and begins its own term (law L4).

    Args:
        looked: the stream, read after the id was taken.
        term: the term of its records, the one after the last.
    """

    def __init__(self, log: CompactedLog, looked: Looked, term: TermPut) -> None:
        self._log = log
        self._term = term
        self._state = looked.known.state
        self._seq_next = looked.known.seq_next
        self._to_write = difference(looked)

    def append(self) -> int:
        """Begin the term, and write all records in one transaction.

        Returns the number of records, without that of the term.

        Raises:
            FencedError, ProducerError: as `CompactedLog.append_atomically`. Begin again from the start.
        """
        term = encoded(self._term)
        self._write((term, *self._to_write))
        count, self._to_write = len(self._to_write), ()
        return count

    def roll(self) -> None:
        """Write the term again.

        That closes the segment of the records before it, so that it can be cleaned.

        Raises: as `append`.
        """
        self._write((encoded(self._term),))

    def _write(self, facts: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._log.append_atomically(
            [
                Write(key=key, value=value, headers=self._headers(seq, key, value))
                for seq, (key, value) in enumerate(facts, start=self._seq_next)
            ]
        )
        self._seq_next += len(facts)

    def _headers(self, seq: int, key: bytes, value: bytes | None) -> Mapping[str, bytes]:
        try:
            record = decode(LogRecord(offset=0, timestamp_ms=0, key=key, value=value), topic="the downgrade")
        except CorruptRecordError:
            # The tombstone of a foreign record whose key is not one of ours.
            assert value is None, "written values were encoded here"
            return headers(term=self._term.term, seq=seq, event=VALUE_RESTORED, cause=CAUSE, actor=ACTOR)
        if isinstance(record, CheckpointPut | ProgressPut):
            record = Removed(key=key.decode())
        event = event_name(record, latest(self._state, record))
        return headers(term=self._term.term, seq=seq, event=event, cause=CAUSE, actor=ACTOR)


def _as_read(record: CoordinatorRecord) -> CoordinatorRecord | None:
    """The record for 0.1.0; None if 0.1.0 has no use for it."""
    if isinstance(record, SchemaPut):
        return record if record.fingerprint in FINGERPRINTS else None
    if not isinstance(record, RECORDS) or not has_key(key_of(record)):
        return None
    if isinstance(record, GrantPut):
        starts = tuple(replace(start, floors=()) for start in record.grant.starts)
        return GrantPut(grant=replace(record.grant, starts=starts))
    return record


# --- refusals ---


def _of_containers(state: CoordinatorState) -> Iterator[str]:
    for container in state.containers_sorted:
        if container.phase in LIVING:
            yield (
                f"{_named(container)} is recorded as {container.phase}: stop the job (samzapy job stop --wait). If its "
                f"process is gone, {_ONCE_MORE}: what it may still do is fenced by that"
            )
        elif not container.is_gone:
            yield f"{_named(container)} was given up and is not fenced yet: {_ONCE_MORE}"
    if state.container_count is not None or state.launches:
        yield (
            f"its coordinator starts its containers, and {RELEASE} has processes that people start: start it by hand "
            "once with this release (samzapy run), and stop it"
        )


def _of_factor(state: CoordinatorState, read: PositionsRead) -> Iterator[str]:
    factor = max(factor_of(state), 1 if state.generation is None else state.generation.factor)
    if factor > 1:
        yield f"its factor is {factor}: scale it to 1 while it runs (samzapy job scale --factor 1), and stop it"
        return
    unpassed = [
        f"{start.ssp_kb} (factor {start.finest_factor})"
        for grant in state.grants_sorted
        for start in grant.starts
        if start.ssp_kb.factor > 1 or any(floor.offset_next > reached(grant, start, read) for floor in start.floors)
    ]
    if unpassed:
        yield (
            f"its parts of a larger factor are not all passed, or not let go: {some(unpassed, _SHOWN_MAX)}. Run it at "
            "factor 1 with this release until factorFinest in `samzapy job status -o json` is 1, and stop it"
        )


def _of_settings(state: CoordinatorState) -> Iterator[str]:
    wrong = {key: state.config[key] for key in sorted(state.config) if _is_beyond(key, state.config[key])}
    if wrong:
        shown = some([f"{key}={value}" for key, value in wrong.items()], _SHOWN_MAX)
        yield f"it is set up with what {RELEASE} does not have: {shown}. Set it up without, {_ONCE_MORE}"


def _is_beyond(key: str, value: str) -> bool:
    """Whether the setting changes the results of the job, and not only its timing.

    Settings of hosts and times do not matter to 0.1.0.
    """
    if not value:
        return False
    if key == "task.partition.scheme":
        return value != SCHEME
    if key.startswith("stores.") and key.endswith((".scope", ".kind")):
        return value not in ("key", "value")
    return (
        key.startswith("task.intermediate.")
        or key.endswith(".samza.offset.end")
        or key
        in (
            "task.broadcast.inputs",
            "task.inputs.patterns",
            "job.systemstreampartition.grouper.factory",
            "task.name.grouper.factory",
        )
    )


def _of_plan(state: CoordinatorState) -> Iterator[str]:
    if state.generation is not None and state.generation.scheme != SCHEME:
        yield (
            f"its tasks are planned by {state.generation.scheme}, and {RELEASE} has only {SCHEME}: set "
            f"task.partition.scheme={SCHEME}, {_ONCE_MORE}; with stores that needs a new job.id"
        )
        return
    odd = [planned.task_name for planned in state.plan if not _is_of_one_partition(planned)]
    if odd:
        yield (
            f"{RELEASE} has a task for each partition and for nothing else, found {some(odd, _SHOWN_MAX)}. A job with "
            "stores whose inputs have grown stays with this release"
        )
    readers = {planned.task_name for planned in state.planned_tasks.values() if planned.broadcast_ssps}
    readers |= {grant.task_name for grant in state.grants.values() if _reads_for_itself(grant)}
    if readers:
        yield (
            f"it reads broadcast inputs, which {RELEASE} does not have: {some(sorted(readers), _SHOWN_MAX)}. Set it up "
            f"without task.broadcast.inputs, {_ONCE_MORE}"
        )


def _is_of_one_partition(planned: PlannedTaskPut) -> bool:
    ssps = [ssp_kb.ssp for ssp_kb in planned.ssp_kbs]
    return (
        len(ssps) == 1 and planned.mode == TaskMode.ACTIVE and TaskNameParts(base=ssps[0]).name == planned.task_name
    )


def _reads_for_itself(grant: Grant) -> bool:
    return bool(grant.broadcast_parent) or any(start.ssp_kb.reader for start in grant.starts)


def _of_inputs(state: CoordinatorState) -> Iterator[str]:
    for name in sorted(state.inputs):
        record = state.inputs[name]
        if record.gone_at_ms or record.period or record.epoch_before:
            yield (
                f"{name} is, or was, deleted while the job went on, and {RELEASE} wants every input there ever was: "
                "the job stays with this release"
            )
        elif record.expansions:
            yield (
                f"{name} has got partitions that are not read yet: run it with this release until `samzapy job status` "
                "shows no expansion, and stop it"
            )
    if state.job is None:
        return
    job = f"{state.job.job_name}-{state.job.job_id}"
    wanted = len(state.plan)
    for store in sorted({key.split(".")[1] for key in state.config if key.startswith("stores.")}):
        topic = state.own_topics.get(changelog_topic(job, store))
        if topic is not None and wanted and topic.partition_count != wanted:
            yield (
                f"{topic.name} has {topic.partition_count} partitions, and {RELEASE} wants one for each partition of "
                f"the inputs, {wanted}: the job stays with this release"
            )


def _of_requests(state: CoordinatorState) -> Iterator[str]:
    waiting = [uuid for uuid in sorted(state.requests) if state.requests[uuid].status_code in UNFINISHED]
    if waiting:
        yield f"requests to it are not over: {some(waiting, _SHOWN_MAX)}; {_ONCE_MORE}"
    over = {removed.key for removed in taken_up(state)}
    startpoints = (state.startpoints[ssp_kb] for ssp_kb in sorted(state.startpoints))
    needed = [
        startpoint.ssp_kb for startpoint in startpoints if key_of(StartpointPut(startpoint=startpoint)) not in over
    ]
    if needed:
        yield f"it was rewound, and does not read from there yet: {some(needed, _SHOWN_MAX)}; {_ONCE_MORE}"


def _of_runs(state: CoordinatorState) -> Iterator[str]:
    if (state.run is not None and state.run.counts_after) or any(
        grant.counts_after or grant.changelog_starts for grant in state.grants.values()
    ):
        yield (
            f"runs of it have begun anew, because its inputs had an end, and {RELEASE} would count what earlier ones "
            "left: the job stays with this release"
        )
    if state.format_level is not None and state.format_level != FORMAT_LEVEL:
        yield f"its stream is written at format level {state.format_level}, and {RELEASE} reads {FORMAT_LEVEL}"


def _named(container: Container) -> str:
    return f"container {container.execution_id} (processor {container.processor_id} on {container.host})"
