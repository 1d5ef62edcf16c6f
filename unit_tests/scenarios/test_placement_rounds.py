"""Decisions of one round see each other: several processors, few places on hosts."""

from collections import Counter

import pytest

from samzapy.model.placement import Action
from unit_tests.scenarios.test_placement import STATE, Story

STANDBYS = STATE | {"job_standbytasks_replication_factor": "2"}


class RoomyStory(Story):
    """The cluster manager names all hosts, and reports how much room each has."""

    def __init__(self, count, slots, settings):
        super().__init__(count=count, slots=slots, named=None, settings=settings)

    def hosts(self):
        return {host: max(0, self.slots[host] - self.load(host)) for host in self.slots}

    def host_of(self, name):
        hosts = [line.split(" on ")[-1] for line in self.places() if line.split()[0] == name]
        return hosts[0] if hosts else ""

    def rounds_until(self, is_so, rounds_max):
        for count in range(rounds_max):
            if is_so():
                return count
            self.runs_a_round()
        pytest.fail(f"not after {rounds_max} rounds: {self.places()}, {self.answers()}")

    def up(self):
        return [process for process in self.processes.values() if not process.is_over]


@pytest.mark.parametrize("places", [1, 4])
def test_standbys_of_one_round_are_started_on_different_hosts(places):
    job = RoomyStory(3, {f"h{number}": places for number in range(6)}, STANDBYS)

    job.rounds_until(lambda: len(job.up()) == 6, 30)
    job.settles(10)

    assert {1} == set(Counter(process.host for process in job.up()).values())
    assert 6 == len(job.started), "each was started once"


def test_standbys_of_a_lost_worker_return_on_hosts_of_their_own():
    job = RoomyStory(3, {"a": 1, "b": 1, "c": 1, "d": 3}, STANDBYS)
    assert ["d"] * 3 == [job.host_of(f"{number}-0") for number in range(3)]

    job.slots |= {"e": 3, "f": 3, "g": 3}
    del job.slots["d"]
    for name, process in list(job.processes.items()):
        if process.host == "d":
            job.ends(name, 137)
    job.settles(20)

    assert ["e", "f", "g"] == sorted(job.host_of(f"{number}-0") for number in range(3))


def test_two_moves_to_any_host_that_are_read_in_one_poll_have_different_hosts():
    job = RoomyStory(2, {f"h{number}": 1 for number in range(4)}, STATE)
    job.letters = "ab"
    for letter, processor_id in zip("ab", "01", strict=True):
        job.ask(ord(letter), Action.PLACE_CONTAINER, processor_id=processor_id, destination_host="ANY_HOST")
    job.reads()

    job.rounds_until(lambda: all("SUCCEEDED" in answer for answer in job.answers().values()), 12)

    assert {"h2", "h3"} == {process.host for process in job.up()}


def test_containers_that_could_not_be_started_where_they_were_are_spread_over_the_other_hosts():
    """Also without a report of how much room there is."""
    job = Story(count=3, slots={"a": 3}, named=None, settings=STATE)
    job.slots |= {"b": 3, "c": 3, "d": 3}
    job.refused.add("a")

    for name in list(job.processes):
        job.ends(name, 137)
    job.settles(20)

    assert ["b", "c", "d"] == sorted(process.host for process in job.processes.values() if not process.is_over)


def test_hosts_that_were_not_tried_come_before_those_on_which_a_start_came_to_nothing():
    """Two broken hosts were tried in turn, and the third one never."""
    job = Story(count=1, slots={"a": 1}, named=None, settings=STATE)
    job.slots |= {"b": 1, "c": 1, "d": 1}
    job.refused |= {"a", "b", "c"}

    for name in list(job.processes):
        job.ends(name, 137)
    job.settles(60)

    assert ["d"] == [process.host for process in job.processes.values() if not process.is_over]
