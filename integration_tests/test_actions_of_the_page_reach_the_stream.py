"""The page's actions on a real broker, in a real browser, reach the stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from integration_tests.operated_job import OperatedJob
from samzapy.stream.codec import decode
from samzapy.stream.records import RequestPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until
from unit_tests.fixtures.browser import IN_A_BROWSER, Tab, chromium

pytestmark = IN_A_BROWSER


@pytest.fixture
def job(broker: DevBroker) -> Iterator[OperatedJob]:
    with OperatedJob(broker.bootstrap_servers, job_placement_expiry_ms="300000") as job:
        yield job


def put_of(job: OperatedJob, uuid: str, status: str) -> RequestPut:
    """The record of a request, once it has that status."""

    def put() -> RequestPut | None:
        records = [record for record in job.history if record.key == f"request/{uuid}".encode() and record.value]
        puts: list[Any] = [decode(record, topic=job.topic) for record in records]
        return next((put for put in puts if put.status_code == status), None)

    return wait_until(put, 30, f"request {uuid} to be {status}")


def applied(tab: Any) -> str:
    """Apply the plan that is shown; the uuid of its request."""
    tab.page.get_by_role("button", name="Apply").click()
    tab.shows("is written.")
    return str(tab.page.url.partition("written=")[2])


def test_each_action_is_planned_applied_and_answered(job: OperatedJob) -> None:
    with chromium() as browser:
        tab = Tab(browser, SimpleNamespace(url=job.leader.url))
        tab.page.goto(f"{job.leader.url}/ui/actions")

        tab.page.get_by_role("button", name="Plan the restart").click()
        assert tab.shows("another query starts in the same process")
        put = put_of(job, applied(tab), "SUCCEEDED")
        assert "restart-query" == put.action
        assert tab.shows("SUCCEEDED")

        tab.page.goto(f"{job.leader.url}/ui/plan?action=place&processor=0&host=host-b")
        assert tab.shows("The tasks run there already.")
        assert "place-container" == put_of(job, applied(tab), "SUCCEEDED").action

        old = Tab(browser, tab.served)
        old.page.goto(f"{job.leader.url}/ui/plan?action=restart&processor=0")
        tab.page.goto(f"{job.leader.url}/ui/plan?action=scale&factor=2")
        assert tab.shows("4 splits")
        put_of(job, applied(tab), "IN_PROGRESS")

        old.page.get_by_role("button", name="Apply").click()
        assert old.shows("Nothing was written.")
        put_of(job, applied(old), "SUCCEEDED")

        # The container of this job takes up no grants, so the rewind waits behind the factor.
        tab.page.goto(f"{job.leader.url}/ui/plan?action=rewind&stream=kafka.{job.input_topic}&to=oldest")
        assert tab.shows("0 offsets are processed again")
        rewind = put_of(job, applied(tab), "ACCEPTED")
        assert {"stream", "to", "expectedGeneration"} == json.loads(rewind.arguments).keys()

        assert [] == tab.troubles
        assert ["status of 409" in trouble for trouble in old.troubles] == [True]
