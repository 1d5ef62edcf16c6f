"""`samzapy job stop`, `restart` and `list`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import click

from samzapy.cli.output.option import output_option, print_result
from samzapy.cli.output.table import show_rows
from samzapy.cli.target.address import Target, connection_to_read, of_a_job, timeout_option, with_target
from samzapy.cli.target.lazy_completion import completes
from samzapy.cli.target.requests import (
    Asking,
    ask_one_after_another,
    every_processor,
    placement_store,
    processors_named,
    recorded_state,
    refuse_several_unwaited,
    run_id_of,
    wait_option,
    wait_timeout_option,
)
from samzapy.errors import DeadlineError, RejectedError, SamzapyError
from samzapy.model.placement import Action
from samzapy.model.topics import coordinator_topic

if TYPE_CHECKING:
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.runtime.job_address import JobAddress

_LOOK_EVERY_S = 0.5
_ANSWER_S = 30.0
_COLUMNS = ("job", "state", "runId", "containers", "startedBy", "leader")


@click.command()
@of_a_job
@wait_option("Wait until the last container has ended, or only until a coordinator stops the job.")
@wait_timeout_option("the end of the last container")
@output_option()
def stop(address: JobAddress, wait: bool, timeout: float, output: str) -> None:
    """Stop a job: all containers drain and exit, and then the run ends.

    Works for submitted jobs and for self-managed containers. State and positions are kept; the next start resumes
    there. Exits with 5 if no coordinator answers, or if not all containers end in time. The job still stops then.

    \b
    Example:
      samzapy job stop --job flight-delays-1 --bootstrap-servers localhost:9092
    """
    from samzapy.coordinator.launching.launches import is_over

    state = recorded_state(address)
    run_id = run_id_of(address, state)
    give_up_at_s = time.monotonic() + timeout
    if not is_over(state):
        if not _is_stopping(state):
            _ask_to_stop(address, run_id, min(timeout, _ANSWER_S))
        while wait and not _has_ended(state := recorded_state(address), run_id):
            if time.monotonic() >= give_up_at_s:
                raise DeadlineError(
                    f"wanted {address.job} to stop within {timeout:.0f} s, found that {_living_text(state)}; the "
                    "request stays. Check with `samzapy job status` whether there is a leader"
                )
            time.sleep(_LOOK_EVERY_S)
    outcome = "stopped" if _has_ended(state, run_id) else "stopping"
    print_result({"job": address.job, "runId": run_id, "state": outcome}, f"{address.job}: {outcome}", output)


@click.command()
@of_a_job
@click.option(
    "--processor",
    "processors",
    metavar="ID,ID",
    shell_complete=completes("processors"),
    help="Restart only these processors, in this order [default: all].",
)
@wait_option("Wait until the tasks run again, or only print the uuid; for one processor.")
@wait_timeout_option("each processor", least=0.001)
@output_option()
def restart(address: JobAddress, processors: str | None, wait: bool, timeout: float, output: str) -> None:
    """Restart all containers of a submitted job, one after the other.

    Each container drains and exits, and a new one starts on its host. The next restart begins when the tasks run
    again; all other tasks keep running. Stops at the first failure and exits with 1.

    \b
    Example:
      samzapy job restart --job flight-delays-1 --bootstrap-servers localhost:9092 --processor 0,2
    """
    from samzapy.coordinator.launching.launches import wanted_processors

    state = recorded_state(address)
    if wanted_processors(state) is None:
        raise RejectedError(
            f"wanted a job started with `samzapy job submit`, found that the containers of {address.job} are "
            "self-managed; stop a process and start it again: it gets its tasks back"
        )
    asking = Asking(
        deployment_id=None,
        expiry=timedelta(seconds=timeout),
        wait=wait,
        timeout_s=timeout + _ANSWER_S,
        output=output,
    )
    action = Action.RESTART_CONTAINER
    asked = every_processor(state, action) if processors is None else processors_named(processors)
    refuse_several_unwaited(asking, asked)
    ask_one_after_another(address, state, asked, action, asking)


@click.command(name="list")
@partial(with_target, has_job=False)
@timeout_option
@output_option()
def list_jobs(target: Target, timeout_s: float, output: str) -> None:
    """List the jobs that have a coordinator stream on a Kafka cluster.

    \b
    Example:
      samzapy job list --bootstrap-servers localhost:9092
    """
    from samzapy.adapters.kafka.admin import KafkaAdmin
    from samzapy.runtime.job_address import JobAddress

    connection = connection_to_read(target.cluster(), timeout_s)
    admin, prefix = KafkaAdmin(connection), coordinator_topic("")
    admin.check_reachable()
    jobs = sorted(name.removeprefix(prefix) for name in admin.topic_names() if name.startswith(prefix))
    rows = [_row(JobAddress(job=job, connection=connection)) for job in jobs]
    show_rows(rows, _COLUMNS, output, nothing="0 jobs on this cluster")


def _row(address: JobAddress) -> Mapping[str, object]:
    from samzapy.coordinator.assignment.liveness import LIVING

    try:
        state = recorded_state(address)
    except SamzapyError as error:
        return dict.fromkeys(_COLUMNS, "-") | {"job": address.job, "state": f"cannot be read: {error}"}
    living = sum(container.phase in LIVING for container in state.containers.values())
    wanted = "" if state.container_count is None else f" of {state.container_count.count}"
    return {
        "job": address.job,
        "state": _state_text(state),
        "runId": "-" if state.run is None else state.run.run_id,
        "containers": f"{living}{wanted}",
        "startedBy": "people" if state.container_count is None else "coordinator",
        "leader": "-" if state.term is None else f"{state.term.url} on {state.term.host}",
    }


def _state_text(state: CoordinatorState) -> str:
    if state.run is None:
        return "no run"
    if state.run.ended:
        return "stopped"
    return "stopping" if state.run.finished else "runs"


def _is_stopping(state: CoordinatorState) -> bool:
    return state.run is not None and (state.run.finished or state.run.ended)


def _has_ended(state: CoordinatorState, run_id: str) -> bool:
    """Whether the run has ended; a later run may have begun since."""
    from samzapy.coordinator.launching.launches import is_over

    return is_over(state) or (state.run is not None and state.run.run_id != run_id)


def _ask_to_stop(address: JobAddress, run_id: str, timeout_s: float) -> None:
    asking = Asking(deployment_id=None, expiry=None, wait=True, timeout_s=timeout_s)
    with placement_store(address) as store:
        uuid = store.write_container_placement_request_message(run_id, "", action=Action.STOP)
        asking.answer(store, uuid)


def _living_text(state: CoordinatorState) -> str:
    from samzapy.coordinator.assignment.liveness import LIVING

    living = [container for container in state.containers_sorted if container.phase in LIVING]
    return f"{len(living)} containers have not reported that they stopped"
