"""A move expires while its reserve becomes ready; all orders of six events.

The coordinator may die between its records and their effects. In each order one record decides.
"""

import copy
import os
from itertools import permutations

import pytest

from samzapy.inspection.invariants import Invariants
from samzapy.model.container import ContainerPhase
from samzapy.model.launch import LaunchPhase, LaunchRole
from samzapy.model.placement import RESPONSE_TYPE, Action, StatusCode
from samzapy.stream.codec import decode
from samzapy.stream.placement import Place, decode_message, message_key
from samzapy.stream.records import ContainerPut, LaunchPut, PlacedPut, RequestPut
from samzapy.testing.memory_log import MemoryLog
from unit_tests.fixtures.operated_job import an_id
from unit_tests.scenarios.test_placement import Teller

pytestmark = pytest.mark.slow

UUID = ord("a")
EXPIRY_MS = 60_000
ROUNDS_MAX = 40
IS_FULL = os.environ.get("SAMZAPY_RACES") == "full"
EVENTS = ("the reserve is ready", "it expires", "another leads", "the source dies", "the reserve dies", "asked again")


class Race:
    """Processor 0 is asked to move from host-a to host-b, where a reserve restores."""

    def __init__(self):
        self.teller = Teller()
        self.teller.answer(["hosts host-a:2 host-b:2 host-c:2", "containers 1", "starts"])
        self.job = self.teller.job
        self.source = self.job.execution("0")
        self.teller.answer(["slow host-b 40%", "place a processor=0 to=host-b expiry=60s", "passes 4s"])
        self.reserve = self.job.execution("0", LaunchRole.RESERVE)
        self.ready_from = None
        self.leaders = 0

    def happens(self, event, *, tears):
        """One event, and a round after it.

        `tears`: the leader dies in that round, behind its records.
        """
        job = self.job
        if event == "the reserve is ready":
            job.slow.clear()
            self.ready_from = job.world.topic.end_offset
        elif event == "it expires":
            job.world.clock.jump_wall(EXPIRY_MS)
        elif event == "another leads":
            self.another_leads()
        elif event == "the source dies":
            self.dies(self.source)
        elif event == "the reserve dies":
            self.dies(self.reserve)
        else:
            job.ask(UUID, Action.PLACE_CONTAINER, deployment_id=job.run_id, destination_host="host-c")
            job.reads()
        if tears:
            job.service._act = _dies
            with pytest.raises(_DiesError):
                job.runs_a_round()
            self.another_leads()
        job.runs_a_round()

    def dies(self, execution_id):
        if not self.job.processes[execution_id].is_over:
            self.job.ends(execution_id, 137)

    def another_leads(self):
        self.leaders += 1
        self.job.fails_over(f"b{self.leaders}")

    def records(self):
        return [(record.offset, decode(record, topic="t")) for record in self.job.world.log().read()]

    def answers(self):
        """Every status of the request, in the order of the topic; each once."""
        key = message_key(an_id(UUID), RESPONSE_TYPE, Place(namespace=Action.PLACE_CONTAINER.namespace))
        answers = [
            decode_message(record.value).status_code
            for record in MemoryLog(self.job.world.placement).read()
            if record.key == key and record.value is not None
        ]
        return list(dict.fromkeys(answers))

    def comes_to_rest(self):
        for _ in range(ROUNDS_MAX):
            before = self.job.world.topic.end_offset
            self.job.settles(2)
            if self.job.world.topic.end_offset == before and self.is_quiet():
                return

    def is_quiet(self):
        alive = [process for process in self.job.processes.values() if not process.is_over]
        return len(alive) == 1 and {"0": 4} == self.job.at_work()

    def check(self):
        records = self.records()
        invariants = Invariants()
        assert [] == [broken for offset, record in records if (broken := invariants.check(offset, record, True))]
        self.check_one_decision(records)
        self.check_source(records)
        assert self.is_quiet(), f"a lost execution is released: {self.job.phases()}, at work {self.job.at_work()}"

    def check_one_decision(self, records):
        ended = [
            record.status_code
            for _, record in records
            if isinstance(record, RequestPut) and record.uuid == an_id(UUID) and record.status_code.is_terminal
        ]
        answers = self.answers()
        assert 1 == len(set(ended)), ended
        assert ended[0] == answers[-1]
        assert not any(status.is_terminal for status in answers[:-1]), answers
        if ended[0] is StatusCode.SUCCEEDED:
            assert "host-b" == self.job.runners()["0"]

    def check_source(self, records):
        """The source stays as it is, unless it is gone, until the reserve has the tasks."""
        is_gone = False
        placed_at = None
        for offset, record in records:
            if isinstance(record, ContainerPut) and record.container.execution_id == self.source:
                is_gone = is_gone or record.container.phase not in (ContainerPhase.STARTED, ContainerPhase.RUNNING)
            elif isinstance(record, PlacedPut) and record.execution_id != self.source and placed_at is None:
                placed_at = offset
                assert self.ready_from is not None and offset >= self.ready_from, "it was not ready"
            elif isinstance(record, LaunchPut) and record.launch.execution_id == self.source:
                is_stopping = record.launch.phase is LaunchPhase.STOPPING
                assert not is_stopping or is_gone or placed_at is not None, record.launch.reason


class _DiesError(BaseException):
    """The leader's process ends here."""


def _dies():
    raise _DiesError


@pytest.fixture(scope="module")
def race():
    return Race()


@pytest.mark.parametrize("torn_at", [None, *range(len(EVENTS))])
def test_one_record_decides_a_race_and_the_loser_is_released(race, torn_at):
    """All orders with one moment to die; `SAMZAPY_RACES=full` takes every moment."""
    orders = list(permutations(EVENTS))
    if not IS_FULL:
        orders = orders[len(EVENTS) if torn_at is None else torn_at :: len(EVENTS) + 1]
    for order in orders:
        run = copy.deepcopy(race)
        try:
            for number, event in enumerate(order):
                run.happens(event, tears=number == torn_at)
            run.comes_to_rest()
            run.check()
        except Exception as error:
            raise AssertionError(f"{order}: {error}") from error
