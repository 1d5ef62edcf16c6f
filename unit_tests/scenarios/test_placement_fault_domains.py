"""A standby is in no fault domain of its processor's container.

No host is tried for ever to find one.
"""

from collections import Counter
from dataclasses import replace

import pytest

from samzapy.coordinator.commands import Heartbeat
from samzapy.inspection.status import status_json
from samzapy.model.placement import Action
from unit_tests.scenarios.test_placement import STATE, Story

AWARE = STATE | {
    "job_standbytasks_replication_factor": "2",
    "cluster-manager_fault-domain-aware_standby_enabled": "true",
}
THREE = {"host-a": "rack-1", "host-b": "rack-1", "host-c": "rack-2"}
FOUR = {"host-a": "rack-1", "host-b": "rack-1", "host-c": "rack-1", "host-d": "rack-2"}
ONE_RACK = dict.fromkeys(("host-a", "host-b", "host-c"), "rack-1")


class RackStory(Story):
    """Containers report their racks."""

    def __init__(self, domains, named, settings=AWARE):
        self.domains = domains
        super().__init__(count=1, slots=dict.fromkeys(domains, 2), named=named, settings=settings)

    def lives(self, name):
        before = len(self.world.queue)
        super().lives(name)
        if len(self.world.queue) > before and isinstance(self.world.queue[-1], Heartbeat):
            domain = self.domains[self.processes[name].host]
            self.world.queue[-1] = replace(self.world.queue[-1], fault_domain=domain)

    def passes(self, seconds):
        """Time passes in rounds between the watch's period and any time-out."""
        for _ in range(seconds // 4):
            self.runs_a_round(4000)

    def standbys_started(self):
        return Counter(self.processes[name].host for name in self.started if "-s0-" in name)

    def missing(self):
        status = status_json(self.service.status(), self.world.clock.monotonic_ms())
        return {row["standby"]: row["reason"] for row in status["standbysMissing"]}


@pytest.mark.parametrize("tells_room", [True, False])
@pytest.mark.parametrize(
    ("domains", "named"), [(THREE, None), (THREE, ()), (FOUR, None)], ids=["three", "three unnamed", "four"]
)
def test_a_standby_reaches_the_other_rack_within_30_s_and_stays(domains, named, tells_room):
    job = RackStory(domains, named)
    job.tells_room = tells_room

    job.settles(40)
    once = job.standbys_started()
    job.passes(60)

    other = max(domains)
    assert [f"0-0 stands by on {other}"] == [line for line in job.places() if "stands by" in line]
    assert {} == job.missing()
    assert once == job.standbys_started()
    assert {1} == set(once.values()), "no host is tried twice"


def test_another_coordinator_tries_each_host_once_more_and_not_for_ever():
    job = RackStory(ONE_RACK, None)
    job.settles(40)

    job.fails_over()
    job.settles(20)
    job.passes(60)

    assert {2} >= set(job.standbys_started().values())


def test_where_no_host_may_have_it_each_is_tried_once_and_the_status_has_the_reason():
    job = RackStory(ONE_RACK, None)

    job.settles(20)
    job.passes(400)

    assert {"host-b": 1, "host-c": 1} == job.standbys_started()
    assert {"0-0"} == job.missing().keys()
    assert "is in the fault domain of host-b already (rack-1)" in job.missing()["0-0"]


def test_where_no_hosts_are_named_the_starts_of_a_standby_are_bounded_and_the_status_has_the_reason():
    job = RackStory(ONE_RACK, (), AWARE | {"cluster-manager_container_retry_count": "3"})

    job.settles(20)
    job.passes(700)

    assert 4 == sum(job.standbys_started().values())
    assert "4 starts in a row came to nothing" in job.missing()["0-0"]
    assert "(rack-1); it ended with exit code 0, and none is started as long as that is so" in job.missing()["0-0"]


def test_a_standby_that_was_given_up_is_started_when_its_processor_has_moved_to_another_rack():
    job = RackStory(ONE_RACK | {"host-z": "rack-2"}, (), AWARE | {"cluster-manager_container_retry_count": "3"})
    job.slots["host-z"] = 0
    job.settles(40)
    assert job.missing()
    job.slots["host-z"] = 1
    job.letters = "a"

    job.ask(ord("a"), Action.PLACE_CONTAINER, processor_id="0", destination_host="host-z")
    job.reads()
    job.settles(20)
    job.passes(360)

    assert ["0 runs in what was its reserve on host-z"] == [line for line in job.places() if "runs" in line]
    assert 1 == sum("stands by on host-" in line for line in job.places())
    assert {} == job.missing()
