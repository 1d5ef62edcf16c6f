"""`samzapy container restart`: its requests, their receivers, and where it stops."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from samzapy.cli.container import group as module
from samzapy.cli.container.group import container
from samzapy.cli.target import requests
from samzapy.coordinator.state import INITIAL, CoordinatorState, committed, evolve
from samzapy.model.placement import Action, ContainerPlacementResponseMessage, StatusCode
from samzapy.stream.records import ConfigPut, ContainerCountPut, CoordinatorRecord, RunPut
from samzapy.testing.builders import a_config
from unit_tests.fixtures.operated_job import an_id


class Topic:
    """A placement topic that answers each request at once; those for `fails` fail."""

    def __init__(self, *fails: str) -> None:
        self.fails = fails
        self.asked: list[tuple[str, Action, timedelta | None]] = []

    def __enter__(self) -> Topic:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write_container_placement_request_message(
        self, deployment_id: str, processor_id: str, *, request_expiry: timedelta | None, action: Action
    ) -> UUID:
        self.asked.append((processor_id, action, request_expiry))
        return UUID(an_id(len(self.asked)))

    def read_container_placement_response_message(self, uuid: UUID) -> ContainerPlacementResponseMessage:
        processor_id, action, _ = self.asked[-1]
        return ContainerPlacementResponseMessage(
            uuid=uuid,
            deployment_id="run",
            processor_id=processor_id,
            status_code=StatusCode.FAILED if processor_id in self.fails else StatusCode.SUCCEEDED,
            timestamp_ms=0,
            action=action,
            response_message=f"processor {processor_id}",
        )


def a_job(*records: CoordinatorRecord) -> CoordinatorState:
    settings = [ConfigPut(config_key=key, value=value) for key, value in a_config().properties.items()]
    return evolve(INITIAL, committed([*settings, RunPut(run_id="run", ended=False), *records], 0))


SUBMITTED, BY_PEOPLE = a_job(ContainerCountPut(count=3)), a_job()


def restart(
    monkeypatch: pytest.MonkeyPatch, topic: Topic, *options: str, job: CoordinatorState = SUBMITTED
) -> Result:
    monkeypatch.setattr(module, "recorded_state", lambda address: job)
    monkeypatch.setattr(requests, "placement_store", lambda address: topic)
    address = ("--job", "flights-1", "--bootstrap-servers", "nowhere:1")
    return CliRunner().invoke(container, ["restart", *address, *options])


@pytest.mark.parametrize(
    ("options", "processors"), [(("--processor", "2, 0"), ["2", "0"]), (("--all",), ["0", "1", "2"])]
)
def test_coordinator_managed_containers_are_restarted_one_after_the_other(
    options: tuple[str, ...], processors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic()

    result = restart(monkeypatch, topic, *options)

    assert 0 == result.exit_code, result.output
    expected = [(name, Action.RESTART_CONTAINER, timedelta(seconds=300)) for name in processors]
    assert expected == topic.asked
    assert f"1 of {len(processors)}: SUCCEEDED: processor {processors[0]}" in result.stdout


def test_restarts_stop_at_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic("1")

    result = restart(monkeypatch, topic, "--processor", "0,1,2")

    assert ["0", "1"] == [processor_id for processor_id, _, _ in topic.asked]
    assert "failed: processor 1" in str(result.exception)


@pytest.mark.parametrize(("job", "more"), [(SUBMITTED, ("--query",)), (BY_PEOPLE, ())])
def test_a_restart_keeps_the_process_with_query_or_self_managed_containers(
    job: CoordinatorState, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic()

    result = restart(monkeypatch, topic, "--processor-id", "0", *more, job=job)

    assert [("0", Action.RESTART_QUERY, None)] == topic.asked
    assert "SUCCEEDED: processor 0\n" == result.stdout


def test_only_processors_with_tasks_can_restart_their_query(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()

    result = restart(monkeypatch, topic, "--all", "--query")

    assert "wanted processors that have tasks, found none" in str(result.exception)
    assert [] == topic.asked


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "found both or neither"),
        (("--all", "--processor", "0"), "found both or neither"),
        (("--all", "--no-wait"), "wanted one processor with --no-wait"),
        (("--processor", "0,1", "--no-wait"), "wanted one processor with --no-wait"),
        (("--processor", "0", "--expiry", "nan"), "wanted a number of seconds from 0.001 to 604800, found nan"),
        (("--processor", "0", "--timeout", "inf"), "inf is not in the range 0<=x<=604800"),
    ],
)
def test_invalid_options_of_a_restart_are_refused(
    options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic()

    result = restart(monkeypatch, topic, *options)

    assert 2 == result.exit_code
    assert message in result.output
    assert [] == topic.asked
