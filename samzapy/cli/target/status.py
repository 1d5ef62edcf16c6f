"""The status of a job: from its leader if one answers, else from its topics."""

from __future__ import annotations

from collections.abc import Mapping

import click

from samzapy.adapters.kafka.positions import KafkaPositions
from samzapy.cli.target.requests import recorded_state
from samzapy.coordinator.assignment.starts import PositionsRead
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import DataError, DeadlineError, TemporaryError
from samzapy.inspection.load import json_rows
from samzapy.inspection.standstill import standstill_text
from samzapy.inspection.status import is_stopped, status_of_log
from samzapy.model.failing import Failing
from samzapy.model.finding import Severity
from samzapy.runtime.job_address import JobAddress, never_ran
from samzapy.runtime.leader_status import leader_status

_STANDSTILLS_SHOWN_MAX = 10


def read_status(address: JobAddress) -> Mapping[str, object]:
    """The status of a job, and its problems.

    It has the form of `inspection.status`, plus `degraded`, a list of problems.

    Raises:
        RejectedError: there is no such job.
    """
    state = recorded_state(address)
    if state.job is None:
        raise never_ran(address.job)
    status = leader_status(address.job, None if state.term is None else state.term.url, address.access)
    if status is None:
        trouble = [] if is_stopped(state) else [_no_leader(state), *_ownerless(state)]
        return dict(status_of_log(address.job, state, _positions(address, state))) | {"degraded": trouble}
    trouble = [str(status["trouble"])] if status.get("trouble") else []
    of_tasks = [*_ownerless_in(status), *_standing_still(status)]
    degraded = [*trouble, *_findings(status), *_failing(status), *_standbys_missing(status), *of_tasks]
    return dict(status) | {"degraded": degraded}


def _positions(address: JobAddress, state: CoordinatorState) -> PositionsRead | None:
    """The positions; None if they cannot be read now, so that the rest is still shown."""
    ssps = sorted({ssp_kb.ssp for planned in state.plan for ssp_kb in planned.positions})
    try:
        return KafkaPositions(address.connection, address.job).read(ssps)
    except (DataError, DeadlineError, TemporaryError) as error:
        click.echo(f"samzapy: cannot read positions: {error}", err=True)
        return None


def _no_leader(state: CoordinatorState) -> str:
    if state.term is None:
        return "no coordinator ever led this job"
    return f"no leader answers; the last one was {state.term.url} on {state.term.host} (term {state.term.term})"


def _ownerless(state: CoordinatorState) -> list[str]:
    return _ownerless_in(status_of_log("", state, None))


def _ownerless_in(status: Mapping[str, object]) -> list[str]:
    tasks = status.get("tasks")
    rows = [row for row in tasks if isinstance(row, dict)] if isinstance(tasks, list) else []
    without = [str(row.get("task")) for row in rows if row.get("owner") is None]
    if not rows:
        return ["nothing is planned: no processor has joined yet"]
    return [f"{len(without)} of {len(rows)} tasks have no owner: {', '.join(without[:10])}"] if without else []


def _standing_still(status: Mapping[str, object]) -> list[str]:
    """A line for each task that does not move, with its cause; the first ones of many."""
    rows = [(row.get("task"), row.get("standstill")) for row in json_rows(status, "tasks")]
    lines = [standstill_text(task, still) for task, still in rows if isinstance(still, dict)]
    more = len(lines) - _STANDSTILLS_SHOWN_MAX
    return [*lines[:_STANDSTILLS_SHOWN_MAX], *([f"{more} more tasks stand still (-o json)"] if more > 0 else [])]


def _failing(status: Mapping[str, object]) -> list[str]:
    """A line for each container with a failing query and no commit since.

    The line has its retry time.
    """
    containers = status.get("containers")
    rows = [row for row in containers if isinstance(row, dict)] if isinstance(containers, list) else []
    lines = []
    for row in rows:
        fields = row.get("failing")
        if isinstance(fields, dict):
            failing = Failing.from_json(fields)
            lines.append(
                f"{row.get('executionId')}: its query has failed {failing.attempts} times in "
                f"{failing.for_ms // 1000} s without a commit, and is started again for "
                f"{failing.left_ms // 1000} s more (task.query.retry.ms): {failing.reason}"
            )
    return lines


def _standbys_missing(status: Mapping[str, object]) -> list[str]:
    missing = status.get("standbysMissing")
    rows = [row for row in missing if isinstance(row, dict)] if isinstance(missing, list) else []
    return [f"standby {row.get('standby')} is not there: {row.get('reason')}" for row in rows]


def _findings(status: Mapping[str, object]) -> list[str]:
    findings = status.get("findings")
    rows = [row for row in findings if isinstance(row, dict)] if isinstance(findings, list) else []
    rows = [row for row in rows if row.get("severity") != Severity.NOTICE.value]
    return [f"{row.get('code')}: {row.get('found')}. {row.get('remedy')}" for row in rows]
