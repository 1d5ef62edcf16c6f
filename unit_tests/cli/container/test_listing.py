from __future__ import annotations

import pytest
from click.testing import CliRunner

from samzapy.cli.container import listing as module
from samzapy.cli.container.listing import container_rows, list_containers
from samzapy.coordinator.state import INITIAL, CoordinatorState, committed, evolve
from samzapy.model.container import ContainerPhase
from samzapy.model.launch import LaunchPhase, LaunchRole
from samzapy.stream.records import ContainerPut, CoordinatorRecord, LaunchPut
from samzapy.testing.builders import a_container, a_launch


def a_state(*records: CoordinatorRecord) -> CoordinatorState:
    return evolve(INITIAL, committed(records, 0))


def shown(state: CoordinatorState, *columns: str) -> list[tuple[object, ...]]:
    return [tuple(row[column] for column in columns) for row in container_rows(state, {})]


def test_a_self_managed_container_is_shown_with_its_own_phase() -> None:
    state = a_state(
        ContainerPut(container=a_container("e1", processor_id="p10")),
        ContainerPut(container=a_container("e0", processor_id="p9", phase=ContainerPhase.STOPPED)),
    )

    assert [("p10", "e1", "host-a", "ACTIVE", "RUNNING", "")] == shown(
        state, "processor", "container", "host", "role", "state", "reason"
    )


def test_a_wanted_container_is_shown_before_its_first_heartbeat() -> None:
    state = a_state(
        LaunchPut(launch=a_launch("e1", phase=LaunchPhase.WANTED, host="h2")),
        LaunchPut(launch=a_launch("e2", processor_id="1", host="", host_found="h3")),
    )

    assert [("e1", "h2", "WANTED"), ("e2", "h3", "LAUNCHED")] == shown(state, "container", "host", "state")


def test_a_running_container_that_must_stop_is_shown_as_stopping() -> None:
    state = a_state(
        LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING)), ContainerPut(container=a_container("e1"))
    )

    assert [("e1", "STOPPING")] == shown(state, "container", "state")


def test_a_standby_is_named_by_processor_and_number() -> None:
    state = a_state(
        LaunchPut(launch=a_launch("e1", processor_id="4")),
        LaunchPut(launch=a_launch("e2", processor_id="4", role=LaunchRole.STANDBY, standby=1)),
        ContainerPut(container=a_container("e2", processor_id="4", phase=ContainerPhase.STARTED)),
    )

    rows = [("4", "ACTIVE", "LAUNCHED"), ("4-1", "STANDBY", "STARTED")]
    assert rows == shown(state, "processor", "role", "state")


def test_processors_come_in_the_order_of_their_numbers() -> None:
    numbers = ("10", "9", "2")
    state = a_state(*(LaunchPut(launch=a_launch(f"e{number}", processor_id=number)) for number in numbers))

    assert [("2",), ("9",), ("10",)] == shown(state, "processor")


def test_a_container_is_shown_with_the_leaders_report() -> None:
    state = a_state(ContainerPut(container=a_container("e1")))

    (row,) = container_rows(state, {"e1": {"heartbeatAgeMs": 120}})

    assert 120 == row["heartbeatAgeMs"]


def test_the_lag_of_a_standby_and_the_time_that_a_restore_takes_have_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = a_state(
        ContainerPut(container=a_container("e1", processor_id="4")),
        LaunchPut(launch=a_launch("e2", processor_id="4", role=LaunchRole.STANDBY)),
        ContainerPut(container=a_container("e2", processor_id="4", phase=ContainerPhase.STARTED)),
    )
    stats = {
        "e1": {"warm": None, "figures": {"restoreLeftMs": 7000}},
        "e2": {"warm": {"lag": 0}, "figures": {"restoreLeftMs": 0}},
    }
    monkeypatch.setattr(module, "recorded_state", lambda address: state)
    monkeypatch.setattr(module, "reported_containers", lambda job, state, access: stats)

    heading, active, standby = (
        CliRunner()
        .invoke(list_containers, ["--job", "flights-1", "--bootstrap-servers", "nowhere:1"])
        .output.splitlines()
    )

    shown = [dict(zip(heading.split(), row.split(), strict=True)) for row in (active, standby)]
    assert [("-", "7000"), ("0", "-")] == [(row["standbyLag"], row["restoreLeftMs"]) for row in shown]
