"""The search for messages that end workers: on a model, and in the service."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.container.ports import QueryFailed
from samzapy.container.task.work_plan import ReportKind
from samzapy.container.worker_deaths import ALONE_DEATHS, NOTES_MS, WorkerDeaths
from samzapy.errors import ExitCode
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import checkpoint_topic
from unit_tests.fixtures.container_worlds import SSP_KB, TASK, AWorker, a_job, a_plan, rows, sum_up
from unit_tests.fixtures.running_container import ORDERS_0, ORDERS_1, AContainer, a_batch, a_report, a_task

SSP_KBS = (ORDERS_0, ORDERS_1)
DIED = QueryFailed(reason="SparkException: Python worker exited unexpectedly (crashed)")
DEAD_LETTERS = {"task_error_policy": "dead-letter", "task_dead_letter_output": "dead"}


@dataclass
class Model:
    """Queries over two SSPKbs, each with a worker that commits after `commit_every`."""

    killers: set[tuple[SspKeyBucket, int]]
    length: int
    commit_every: int
    deaths: WorkerDeaths = field(default_factory=WorkerDeaths)
    committed: dict[SspKeyBucket, int] = field(default_factory=lambda: dict.fromkeys(SSP_KBS, 0))
    handled: Counter[tuple[SspKeyBucket, int]] = field(default_factory=Counter)
    refused: Counter[tuple[SspKeyBucket, int]] = field(default_factory=Counter)
    now_ms: int = 1

    def run_query(self, killed_at: int | None) -> bool:
        """One query; the workers' steps take turns, and the first death ends it.

        Args:
            killed_at: the step in front of which a worker is killed from outside.

        Returns:
            Whether the query read everything without a death.
        """
        self.deaths = self.deaths.at(self.committed)
        routes = {route.ssp_kb: route for route in self.deaths.limited(a_plan(a_job(), ssp_kbs=SSP_KBS).routes)}
        notes = self.now_ms < self.deaths.notes_until_ms
        refused = {(refusal.ssp_kb, refusal.offset) for refusal in self.deaths.refusals}
        at, pending, step = dict(self.committed), {ssp_kb: [] for ssp_kb in SSP_KBS}, 0
        ends = {ssp_kb: min(route.offset_end or self.length, self.length) for ssp_kb, route in routes.items()}
        while any(at[ssp_kb] < ends[ssp_kb] for ssp_kb in routes):
            for ssp_kb in routes:
                if at[ssp_kb] >= ends[ssp_kb]:
                    continue
                place = (ssp_kb, at[ssp_kb])
                step += 1
                if (place in self.killers and place not in refused) or step == killed_at:
                    in_hand = [(other, at[other]) for other in routes if at[other] < ends[other]] if notes else []
                    self.deaths = self.deaths.died(in_hand, "it died", self.now_ms)
                    return False
                pending[ssp_kb].append(place)
                at[ssp_kb] += 1
                if len(pending[ssp_kb]) == self.commit_every or at[ssp_kb] == ends[ssp_kb]:
                    (self.refused if place in refused else self.handled)[place] += 1
                    for earlier in pending[ssp_kb][:-1]:
                        (self.refused if earlier in refused else self.handled)[earlier] += 1
                    pending[ssp_kb] = []
                    self.committed[ssp_kb] = at[ssp_kb]
        if self.deaths.is_passed(at):
            self.deaths = self.deaths.passed()
            return False
        return self.deaths.trial is None


places = st.tuples(st.sampled_from(SSP_KBS), st.integers(0, 30))


@given(
    st.sets(places, max_size=4),
    st.integers(1, 40),
    # A worker is killed from outside now and then; here never in two queries in a row, so no message is hit each time.
    st.lists(st.none() | st.integers(1, 40), max_size=60),
)
def test_each_message_that_kills_is_identified_and_no_other_is_blamed(
    killers: set[tuple[SspKeyBucket, int]], commit_every: int, kills: list[int | None]
) -> None:
    model = Model(killers=killers, length=31, commit_every=commit_every)
    for number in range(500):
        killed_at = kills[number // 2] if number % 2 == 0 and number // 2 < len(kills) else None
        if model.run_query(killed_at):
            break

    assert dict.fromkeys(killers, 1) == dict(model.refused)
    everything = {(ssp_kb, offset) for ssp_kb in SSP_KBS for offset in range(31)}
    assert dict.fromkeys(everything - killers, 1) == dict(model.handled)


def test_a_message_is_blamed_after_it_ended_its_worker_alone_several_times() -> None:
    deaths = WorkerDeaths().died([], "first", 0)
    assert deaths.trial is None
    assert NOTES_MS == deaths.notes_until_ms
    deaths = deaths.died([(ORDERS_0, 7)], "second", 1).at({ORDERS_0: 7})

    (route,) = deaths.limited(a_plan(a_job(), ssp_kbs=SSP_KBS).routes)
    assert (ORDERS_0, 8) == (route.ssp_kb, route.offset_end), "nothing precedes it"

    for _ in range(ALONE_DEATHS - 1):
        deaths = deaths.died([(ORDERS_0, 7)], "alone", 2).at({ORDERS_0: 7})
        assert () == deaths.refusals
    deaths = deaths.died([(ORDERS_0, 7)], "last", 3)

    (refusal,) = deaths.refusals
    assert (ORDERS_0, 7) == (refusal.ssp_kb, refusal.offset)
    assert "ended 3 times when it handled this message alone; the last time: last" in refusal.reason
    assert deaths.trial is None
    assert () == deaths.at({ORDERS_0: 8}).refusals


def test_a_message_that_is_handled_alone_is_not_to_blame() -> None:
    """Its worker was killed from outside, or died of an earlier message."""
    deaths = WorkerDeaths().died([], "", 0).died([(ORDERS_0, 7)], "", 1).at({ORDERS_0: 3})
    (route,) = deaths.limited(a_plan(a_job(), ssp_kbs=SSP_KBS).routes)
    assert (ORDERS_0, 7) == (route.ssp_kb, route.offset_end)

    deaths = deaths.passed()
    (route,) = deaths.limited(a_plan(a_job(), ssp_kbs=SSP_KBS).routes)
    assert (ORDERS_0, 8) == (route.ssp_kb, route.offset_end)
    deaths = deaths.passed()

    assert (None, ()) == (deaths.trial, deaths.refusals)


def test_a_death_in_front_of_a_suspect_is_another_message_s() -> None:
    deaths = WorkerDeaths().died([], "", 0).died([(ORDERS_0, 7)], "", 1).at({ORDERS_0: 0})

    for _ in range(ALONE_DEATHS):
        deaths = deaths.died([(ORDERS_0, 3)], "in front of it", 2).at({ORDERS_0: 0})

    assert () == deaths.refusals
    assert deaths.trial is not None and 3 == deaths.trial.offset


def test_a_death_before_a_message_is_in_hand_blames_none() -> None:
    deaths = WorkerDeaths().died([], "", 0)
    for _ in range(10):
        deaths = deaths.died([], "no memory for its start", 1)
    assert (None, ()) == (deaths.trial, deaths.refusals)

    suspected = deaths.died([(ORDERS_0, 7)], "", 2)
    for _ in range(10):
        suspected = suspected.died([], "no memory for its start", 3)
    assert () == suspected.refusals


# --- in the container ---


def test_a_suspect_message_is_processed_alone_and_then_refused() -> None:
    container = AContainer()
    container.slots.open_slots = {0}

    def die(route: int, offset: int) -> QueryFailed:
        plan, _ = container.query.started[-1]
        container.slots.open_slots = {0}
        container.slots.noted[plan.query_number, 0] = (route, offset)
        return DIED

    def commit_before_the_message() -> None:
        container.commit(5)
        return a_batch(a_report(offset_next=5), orders_0=40)

    alone = [lambda: die(0, 5)] * ALONE_DEATHS
    container.run(DIED, lambda: die(0, 5), commit_before_the_message, *alone, None)

    plans = [plan for plan, _ in container.query.started]
    assert [0.0] == [plan.notes_until_s for plan in plans[:1]]
    assert all(plan.notes_until_s > 0 for plan in plans[1:])
    routes = [[(str(route.ssp_kb), route.offset_end) for route in plan.routes] for plan in plans]
    both = [(str(ORDERS_0), None), (str(ORDERS_1), None)]
    assert [both, both, [(str(ORDERS_0), 5)], *[[(str(ORDERS_0), 6)]] * ALONE_DEATHS, both] == routes
    assert [[]] * 6 + [[(ORDERS_0, 5)]] == [
        [(refusal.ssp_kb, refusal.offset) for refusal in plan.refusals] for plan in plans
    ]
    assert DIED.reason in plans[-1].refusals[0].reason


def test_the_search_continues_although_the_query_fails_for_too_long() -> None:
    """Each step of it is a failed query without a commit, and leads somewhere."""
    container = AContainer(grants=(a_task("a"),), task_query_retry_ms="1")

    def die() -> QueryFailed:
        plan, _ = container.query.started[-1]
        container.slots.open_slots = {0}
        container.slots.noted[plan.query_number, 0] = (0, 0)
        container.clock.advance(60_000)
        return DIED

    container.run(DIED, *[die] * (1 + ALONE_DEATHS), None)

    assert [(ORDERS_0, 0)] == [
        (refusal.ssp_kb, refusal.offset) for refusal in container.query.started[-1][0].refusals
    ]


def test_a_container_in_a_trial_has_not_finished_its_bounded_input() -> None:
    container = AContainer(grants=(a_task("a"),))

    def pass_the_message() -> Any:
        container.clock.advance(2_000)
        return a_batch(orders_0=40)

    def die() -> QueryFailed:
        plan, _ = container.query.started[-1]
        container.slots.open_slots = {0}
        container.slots.noted[plan.query_number, 0] = (0, 5)
        return DIED

    container.run(DIED, die, pass_the_message)

    assert 5 == container.query.started[2][0].routes[0].offset_end
    positions = [content.figures["positions"].get(str(ORDERS_0)) for content in container.heartbeats.contents]
    assert 5 in [position["offsetNext"] for position in positions if position], "the trial was at its end"
    assert 6 == container.query.started[-1][0].routes[0].offset_end
    assert not any(content.finished for content in container.heartbeats.contents)


# --- in the worker ---


def test_a_worker_notes_the_message_in_hand_for_as_long_as_the_plan_asks() -> None:
    seen: list[tuple[int, int]] = []

    def process(envelope: object, collector: object, context: object) -> None:
        seen.append(worker.slot.notes[-1])

    worker = AWorker(process, plan=replace(a_plan(a_job()), notes_until_s=10.0))
    worker.run(rows(("a", 1), ("b", 2)))
    worker.now_s = 10.0
    worker.process = sum_up
    worker.run(rows(("a", 1), first=2))

    assert [(0, 0), (0, 1)] == seen == worker.slot.notes


def refusing(offset: int, policy: dict[str, str]) -> AWorker:
    config = a_job(**policy)
    deaths = WorkerDeaths().died([], "", 0).died([(SSP_KB, offset)], "", 0).at({SSP_KB: offset})
    for _ in range(ALONE_DEATHS):
        deaths = deaths.died([(SSP_KB, offset)], DIED.reason, 0)

    def process(envelope: Any, collector: Any, context: Any) -> None:
        assert envelope.offset != offset, "it ends the process"
        sum_up(envelope, collector, context)

    return AWorker(process, plan=replace(a_plan(config), refusals=deaths.refusals), config=config)


def test_a_message_that_ends_its_worker_becomes_a_dead_letter() -> None:
    worker = refusing(1, DEAD_LETTERS)

    report = worker.run(rows(("a", 1), ("a", 10), ("a", 100)))

    assert (3, 2, 1) == (report.records_in, report.records_out, report.dead_letters)
    assert [1, 101] == [value["total"] for _, value in worker.outputs()]
    (letter,) = worker.kafka.committed("dead")
    assert (dict(letter.headers)["error"] or b"").startswith(b"WorkerDiedError: ")
    assert b"Python worker exited unexpectedly" in (dict(letter.headers)["error"] or b"")


def test_a_message_that_ends_its_worker_fails_the_task_with_its_place_and_key() -> None:
    worker = refusing(1, {})

    report = worker.run(rows(("a", 1), ("b", 10), ("a", 100)))

    assert ReportKind.TASK_FAILED is report.kind
    assert report.error.startswith(f"task {TASK} failed at kafka.orders.0 offset 1, key b'b': WorkerDiedError: ")
    assert [] == worker.kafka.committed(checkpoint_topic(worker.config.job))


def test_a_serde_does_not_see_a_message_that_ends_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The serde may be the cause of the end."""
    worker = refusing(0, DEAD_LETTERS)

    report = worker.run(rows((None, b"{no json")))

    (letter,) = worker.kafka.committed("dead")
    assert (dict(letter.headers)["error"] or b"").startswith(b"WorkerDiedError: ")
    assert 1 == report.dead_letters
    assert ExitCode.TASK_FAILED == 7
