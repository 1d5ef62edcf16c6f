"""The status of a job for people: `GET /status` and `job status`.

It shows executions, owners and progress.

```json
{"job": "flights-1", "term": 4, "leader": "http://127.0.0.1:8181", "version": "0.2.0", "generation": 3, "factor": 1,
 "factorFinest": 1, "factorFixedBy": "", "taskCount": 3, "runId": "1767225600000-8f3a1b2c", "trouble": "",
 "findings": [{"code": "topic-min-isr", "severity": "data", "subject": "topic …", "found": "…", "remedy": "…"}],
 "containers": [{"executionId": "…", "processorId": "0", "host": "host-a", "pid": 4711, "phase": "RUNNING",
                 "slotCount": 2, "role": "ACTIVE", "standby": null, "heartbeatAgeMs": 312, "reason": "", "warm": null,
                 "failing": null, "step": "", "unansweredMs": 0, "kafkaSilentMs": 0,
                 "figures": {"atMs": 5000, "batchNs": 4000000000, "inputNs": 200000000, "recordsIn": 10, …}}],
 "tasks": [{"task": "…", "processorId": "0", "owner": "…", "epoch": 7, "lag": 20,
            "standstill": {"cause": "query-failing", "forMs": 42000, "detail": "…"},
            "figures": {"recordsIn": 10, "busyNs": 3000000000, "keysSampled": 10, "keys": {"N14228": 9}, …},
            "positions": [{"ssp": "kafka.orders.3:0/1", "offsetNext": 100, "offsetEnd": 120, "lag": 20,
                           "recordsIn": 10, "bootstrapEnd": null, "tailing": true}]}],
 "standbysMissing": [{"standby": "4-0", "reason": "no host may have it and has a place: host-b is full"}],
 "requests": [{"uuid": "…", "action": "place-container", "processorId": "0", "destinationHost": "host-b",
               "arguments": "", "statusCode": "IN_PROGRESS", "phase": "RESTORING", "responseMessage": "…",
               "acceptedAtMs": 1767225600000, "decidedAtMs": 1767225601000}],
 "expansions": [{"stream": "kafka.orders", "partitionCount": 3, "partitionCountNew": 6, "seenAtMs": 1767225600000,
                 "phase": "passing", "reason": "",
                 "waitsFor": [{"ssp": "kafka.orders.0:0/1", "offsetNext": 100, "offsetEnd": 120}]}],
 "containerEnds": [{"processorId": "0", "executionId": "…", "host": "host-a", "exitCode": 7, "error": "ValueError",
                    "taskName": "…", "ssp": "kafka.orders.3", "offset": 1234, "keyDigest": "2c26b46b68ffc68f",
                    "message": "…", "endedAtMs": 1767225600000}],
 "stores": [{"store": "totals", "bytes": 8192, "entries": 90}],
 "totals": {"recordsIn": 10, "recordsOut": 10, "deadLetters": 0, "commits": 2, "batches": 2, "lag": 20}}
```

Positions and counters are those that containers reported last, in this term. Without a report `offsetNext` is the
grant's start and `offsetEnd`, lag, `recordsIn` and `tailing` are null. `figures` of a task (`model.task_stats`; zeros
are left out) are null when the container reports only totals (it has too many tasks). `time` in them has the watermark
and the timers of a task that has any (`model.time_figures`).

`lag` of a position counts offsets of its partition, that of a task its own share of them: at factor F about one in F.
`totals.lag` counts each partition once, by its slowest reader (`furthest_behind`).

`bootstrapEnd` is up to where a bootstrap input is read before the other inputs of its task, which wait meanwhile; null
at other times.

`standstill` of a task is the cause why it does not move although it has messages (`inspection.standstill`), and for
how long; null for a task that moves, or without a leader.

`tailing` of a position is true while a worker reads it by itself, in a tail, and no micro-batch does.

`role` is ACTIVE (it runs tasks, or is to), STANDBY or RESERVE, `standby` the name of a standby (`4-0`); `warm` is its
report on the state that it has at hand (`model.standby_progress`), null without one.

`failing` is a container's report of a query that fails without a commit (`model.failing`): how often it was started,
since when, for how long it is started again, and the last reason; else null. `step` is the current step of a
container's start; empty while none is under way.

`containerEnds` has the last end of each processor's container by an error, the newest first (`model.container_end`): -1
is an exit code or an offset that is not known, and an empty `error` says that the container gave no reason.

`standbysMissing` are standbys that are to be there and are not started, each with the reason.

`requests` are those of operators that are open, in the order of service, and the last ones that failed or were refused
(`inspection.request_list`). Times are of the wall clock, and null if not kept. `responseMessage` is empty for a closed
request that an earlier leader answered; its answer is on the placement topic.

`unansweredMs` is for how long the heartbeats of a container have had no answer, and `kafkaSilentMs` for how long no
broker has answered it; 0 where all is well.

`restored`, `restoreTotal` and `restoreLeftMs` of a container say how many records of the changelogs its start has read
of how many, and the time left by its estimate; all are 0 but while a start takes long.

`stores` are those of the configuration, and others that a container has. Sizes are sums over the tasks of all
containers (`model.store_size`), null while no container reports the store.

`factorFinest` is the largest factor that a grant still needs: after a merge that of the floors which are not passed.
`factorFixedBy` is the setting because of which another factor would be refused, `stores.totals.scope=task`.

Rates need two statuses: counters are those of the moment `atMs` of their container's own clock, and begin again with
each execution. Containers that are gone are listed only while a task still waits for their successor. `expansions` are
partitions that inputs have got and that are not read yet (`coordinator.inputs.growth`); their phase is settling,
reading ends, passing or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from samzapy.coordinator.assignment.container_ends import newest_ends
from samzapy.coordinator.assignment.grants import is_run, newest_grants
from samzapy.coordinator.assignment.replanning import readable_config
from samzapy.coordinator.assignment.starts import PositionsRead, reached
from samzapy.coordinator.grant_values import Position
from samzapy.coordinator.inputs.growth import expansions_json
from samzapy.coordinator.launching.standbys import role_of, standby_called
from samzapy.inspection.request_list import requests_json
from samzapy.inspection.standstill import Standstill, standstills
from samzapy.inspection.store_sizes import stores_json
from samzapy.model.finding import finding_json
from samzapy.model.grant import BucketStart, Grant
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.plan.job_plan import factor_fixed_by

if TYPE_CHECKING:
    from samzapy.coordinator.assignment.liveness import Liveness
    from samzapy.coordinator.commands import Figures
    from samzapy.coordinator.snapshot import Snapshot
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.model.container import Container
    from samzapy.model.job import TaskName
    from samzapy.model.task_stats import TaskStats
    from samzapy.stream.records import PlannedTaskPut

Json = Mapping[str, object]
_NO_REPORT: Json = {
    **{"heartbeatAgeMs": None, "figures": None, "warm": None, "failing": None, "step": None},
    **{"unansweredMs": None, "kafkaSilentMs": None},
}
Lags = Sequence[tuple[SspKeyBucket, int]]
PositionOf = Callable[[Grant, BucketStart], Position | None]
"""The position of a bucket and the end of its topic, as far as they are known."""


def status_json(snapshot: Snapshot, now_ms: int) -> Json:
    """The shape above, from a snapshot of the leader.

    `now_ms` is monotonic, as the sightings are.
    """
    state, liveness = snapshot.state, snapshot.liveness

    def position_of(grant: Grant, start: BucketStart) -> Position | None:
        sighting = liveness.last.get(grant.execution_id)
        return None if sighting is None else sighting.figures.positions.get(start.ssp_kb)

    def measured(grant: Grant) -> TaskStats | None:
        sighting = liveness.last.get(grant.execution_id)
        return None if sighting is None else sighting.figures.tasks.get(grant.task_name)

    counters = _counters(sighting.figures for sighting in liveness.last.values())
    report_of = partial(_report, liveness=liveness, now_ms=now_ms)
    still = standstills(state, liveness, now_ms)
    status = _status(snapshot.job, state, position_of, report_of, counters, snapshot.trouble, measured, still)
    return status | {
        "findings": [finding_json(finding) for finding in snapshot.findings],
        "expansions": expansions_json(state, liveness),
        "requests": requests_json(state, snapshot.reasons),
        "stores": stores_json(state, liveness),
        "standbysMissing": [
            {"standby": name, "reason": reason} for name, reason in sorted(liveness.standbys_missing.items())
        ],
    }


def status_of_log(job: str, state: CoordinatorState, read: PositionsRead | None) -> Json:
    """The same shape when no leader answers, derived from the topics.

    Heartbeats and counters are not known.

    Args:
        read: None where positions could not be read.
    """

    def recorded(grant: Grant, start: BucketStart) -> Position | None:
        bounds = None if read is None else read.bounds.get(start.ssp_kb.ssp)
        return (
            None if read is None or bounds is None else Position(reached(grant, start, read), bounds.offset_end, None)
        )

    def unheard(container: Container) -> Json:
        return _NO_REPORT

    status = _status(job, state, recorded, unheard, dict.fromkeys(_counters([])), "", lambda grant: None, {})
    return status | {
        "expansions": expansions_json(state, None),
        "requests": requests_json(state, {}),
        "stores": stores_json(state, None),
    }


def furthest_behind(lags: Iterable[tuple[SspKeyBucket, int]]) -> Mapping[SystemStreamPartition, int]:
    """The largest lag of any reader of each SSP.

    A change of the factor does not change it: the parts of a task begin where it was, and a merged one where the last
    of its parts was. A sum over the parts would grow with the factor, and a controller that scales by it would go on
    scaling.
    """
    largest: dict[SystemStreamPartition, int] = {}
    for ssp_kb, lag in lags:
        largest[ssp_kb.ssp] = max(lag, largest.get(ssp_kb.ssp, 0))
    return largest


def is_stopped(state: CoordinatorState) -> bool:
    """Whether the last processor left in good order."""
    return state.run is not None and state.run.ended


def _status(
    job: str,
    state: CoordinatorState,
    position_of: PositionOf,
    report_of: Callable[[Container], Json],
    counters: Json,
    trouble: str,
    measured: Callable[[Grant], TaskStats | None],
    still: Mapping[TaskName, Standstill],
) -> dict[str, object]:
    newest = newest_grants(state)
    lags = {planned.task_name: _lags(newest.get(planned.task_name), position_of) for planned in state.plan}
    tasks = [
        _task(planned, newest.get(planned.task_name), state, position_of, lags[planned.task_name], measured)
        | {"standstill": still[planned.task_name].as_json() if planned.task_name in still else None}
        for planned in state.plan
    ]
    granted = {grant.execution_id for grant in newest.values()}
    return {
        "job": job,
        "term": state.term.term if state.term is not None else 0,
        "leader": state.term.url if state.term is not None else None,
        "version": state.term.version if state.term is not None else "",
        "generation": state.generation_number,
        "factor": state.generation.factor if state.generation is not None else 1,
        "factorFinest": _factor_finest(state, position_of),
        "factorFixedBy": _factor_fixed_by(state),
        "taskCount": len(tasks),
        "runId": None if state.run is None else state.run.run_id,
        "trouble": trouble,
        "findings": [],
        "standbysMissing": [],
        "containers": [
            _container(container, state) | dict(report_of(container))
            for container in state.containers_sorted
            if not container.is_gone or container.execution_id in granted
        ],
        "tasks": tasks,
        "containerEnds": [end.as_json() for end in newest_ends(state)],
        "expansions": [],
        "requests": [],
        "stores": [],
        "totals": dict(counters) | {"lag": _lag_of_all(lags.values())},
    }


def _factor_finest(state: CoordinatorState, position_of: PositionOf) -> int:
    """The largest factor in use: of the plan, a grant, or a floor.

    A floor counts if it is ahead of the position under its grant.
    """
    finest = 1 if state.generation is None else state.generation.factor
    for grant in state.grants.values():
        for start in grant.starts:
            finest = max(finest, start.ssp_kb.factor)
            if start.floors:
                position = position_of(grant, start)
                reached_by = start.offset_next if position is None else position.offset_next
                ahead = (floor.ssp_kb.factor for floor in start.floors if floor.offset_next > reached_by)
                finest = max((finest, *ahead))
    return finest


def _factor_fixed_by(state: CoordinatorState) -> str:
    config = None if state.generation is None else readable_config(state)
    return "" if config is None else factor_fixed_by(config)


def _container(container: Container, state: CoordinatorState) -> dict[str, object]:
    return {
        "executionId": container.execution_id,
        "processorId": container.processor_id,
        "host": container.host,
        "pid": container.pid,
        "phase": container.phase.value,
        "slotCount": container.slot_count,
        "role": role_of(container.execution_id, state).value,
        "standby": standby_called(container.execution_id, state),
        "reason": container.reason,
    }


def _report(container: Container, liveness: Liveness, now_ms: int) -> Json:
    sighting = liveness.last.get(container.execution_id)
    if sighting is None:
        return _NO_REPORT
    figures = sighting.figures
    own = {
        "atMs": figures.at_ms,
        "batchNs": figures.batch_ns,
        "inputNs": figures.input_ns,
        "skipped": figures.skipped,
        "restored": figures.restored,
        "restoreTotal": figures.restore_total,
        "restoreLeftMs": figures.restore_left_ms,
    }
    warm = None if sighting.warm is None else sighting.warm.as_json()
    failing = None if sighting.failing is None else sighting.failing.as_json()
    return {
        "heartbeatAgeMs": now_ms - sighting.at_ms,
        "figures": own | _counters([figures]),
        "warm": warm,
        "failing": failing,
        "step": sighting.step,
        "unansweredMs": sighting.unanswered_ms,
        "kafkaSilentMs": sighting.kafka_silent_ms,
    }


def _task(
    planned: PlannedTaskPut,
    newest: Grant | None,
    state: CoordinatorState,
    position_of: PositionOf,
    lags: Lags | None,
    measured: Callable[[Grant], TaskStats | None],
) -> dict[str, object]:
    owner = newest if newest is not None and is_run(newest, state) else None
    positions = [] if newest is None else [_position(start, position_of(newest, start)) for start in newest.starts]
    figures = None if newest is None else measured(newest)
    return {
        "task": planned.task_name,
        "processorId": planned.processor_id,
        "owner": None if owner is None else owner.execution_id,
        "epoch": None if newest is None else newest.epoch,
        "positions": positions,
        "lag": None if lags is None else sum(ssp_kb.part_of(lag) for ssp_kb, lag in lags),
        "figures": None if figures is None else figures.as_json(),
    }


def _position(start: BucketStart, position: Position | None) -> dict[str, object]:
    return {
        "ssp": str(start.ssp_kb),
        "offsetNext": start.offset_next if position is None else position.offset_next,
        "offsetEnd": None if position is None else position.offset_end,
        "lag": None if position is None else _lag(position),
        "recordsIn": None if position is None else position.records_in,
        "bootstrapEnd": None if position is None or not position.bootstrap_end else position.bootstrap_end,
        "tailing": None if position is None or position.records_in is None else position.tailing,
    }


def _counters(figures: Iterable[Figures]) -> dict[str, object]:
    items = list(figures)
    return {
        "recordsIn": sum(item.records_in for item in items),
        "recordsOut": sum(item.records_out for item in items),
        "deadLetters": sum(item.dead_letters for item in items),
        "commits": sum(item.commits for item in items),
        "batches": sum(item.batches for item in items),
    }


def _lag(position: Position) -> int:
    return max(0, position.offset_end - position.offset_next)


def _lags(newest: Grant | None, position_of: PositionOf) -> Lags | None:
    """A task's lags by position; None if one is not known.

    A lag that leaves a position out would look too good.
    """
    positions = {} if newest is None else {start.ssp_kb: position_of(newest, start) for start in newest.starts}
    known = [(ssp_kb, _lag(position)) for ssp_kb, position in positions.items() if position is not None]
    return known if known and len(known) == len(positions) else None


def _lag_of_all(of_tasks: Collection[Lags | None]) -> int | None:
    known = [lags for lags in of_tasks if lags is not None]
    if not known or len(known) != len(of_tasks):
        return None
    return sum(furthest_behind(chain.from_iterable(known)).values())
