"""A walk over factors of a job with timers, with every kind of fault.

Beside what a `FactorWalk` does, workers die between a timer and its outputs, ends of transactions arrive late, the
broker dies, and processors move to other hosts. In the end each store must have what the kit has, with factor 1 and
without any fault.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from integration_tests.comings_and_goings import DONE_WITHIN_S
from integration_tests.crash_points_run import Points
from integration_tests.factor_walk import KILLS, FactorWalk
from integration_tests.ledger_run import INPUT, PARTITIONS, PROBE, LedgerRun, owner_and_name
from integration_tests.support.holding_proxy import HoldingProxy
from integration_tests.support.ledger import Violation, value_of
from integration_tests.timed_subject import TimedSubject
from samzapy.placement import ANY_HOST, StatusCode
from samzapy.testing.broker import DevBroker
from samzapy.testing.job import MemoryJob

POINTS = {
    "tail-before-fire": 30,
    "tail-in-the-middle-of-due": 20,
    "tail-after-fire": 60,
    "tail-after-kafka-commit": 80,
}
"""After how many hits of each crash point a worker dies."""
OFTEN = (4, 1)
"""The factors of each other change: one becomes four, and four become one."""
_STORES = ("sums", "count", "since", "spans", "_timers")
_OUTPUTS_BETWEEN = 200
_STARTS = "found none that runs"
_SHOWN_MAX = 5


class TimersWalk(FactorWalk):
    """A walk whose clients reach the broker through `proxy`.

    Args:
        points: the crash points of the workers, beside those of the walk.
    """

    def __init__(self, directory: Path, *, seed: int, proxy: HoldingProxy, points: Points) -> None:
        broker = DevBroker(directory / "broker", advertised_port=proxy.port_number)
        broker.start()
        proxy.upstream_port = broker.port_number
        super().__init__(directory, seed=seed, environment=points.environment, subject=TimedSubject(), broker=broker)
        self._proxy, self._broker = proxy, broker
        self.late_answers: list[int] = []

    def stroll(self, rounds: int) -> None:
        """In each round the factor changes twice, and each fault happens once."""
        for number in range(rounds):
            for factor in OFTEN:
                self._be_quiet()
                self.change(factor, KILLS[number % len(KILLS)])
            self.end()
            self._deliver_late()
            self._kill_broker()
            self._move_and_return(f"p{number % len(self.processors)}")

    def _deliver_late(self) -> None:
        """An end of a transaction reaches the broker many transactions later."""
        before = self._proxy.held_count
        self._proxy.hold_next()
        self.wait(lambda: self._proxy.held_count > before, DONE_WITHIN_S, "an end of a transaction to be held")
        self._await_outputs()
        self.late_answers.append(self._proxy.deliver(before))
        self.fault("late end of a transaction")

    def _kill_broker(self) -> None:
        self._broker.kill()
        assert self._broker.process() is None
        self.fault("broker")
        self._broker.start()
        self._await_outputs()

    def _move_and_return(self, name: str) -> None:
        """The tasks of a processor move to the other one's host, and back."""
        self.wrong += self._check_owners()
        give_up_at_s = time.monotonic() + DONE_WITHIN_S
        while (answer := self._answer_to_a_move(name)) != "":
            # The other one was lost while the broker was away, and still restores its state.
            assert _STARTS in answer and time.monotonic() < give_up_at_s, answer
        self._await_outputs()
        self._bring_home()
        self.wrong += self._check_owners()

    def _answer_to_a_move(self, name: str) -> str:
        """Ask for a move; the reason why it was refused, or nothing."""
        move = self._move(name, ANY_HOST)
        status = self.wait(lambda: self._status(move), DONE_WITHIN_S, f"{name} to have moved")
        return "" if status is StatusCode.SUCCEEDED else self._response_text(move)

    def _await_outputs(self) -> None:
        seen = self.watcher.count()
        self.wait(
            lambda: self.watcher.count() > seen + _OUTPUTS_BETWEEN, DONE_WITHIN_S, f"{_OUTPUTS_BETWEEN} outputs"
        )


def differences_from_the_kit(run: LedgerRun) -> Iterator[Violation]:
    """The differences of the stores from those of a job in memory without faults.

    Its timers are due at once: their moments change no state.
    """
    records = sorted((place, fed) for fed, place in run.ledger.acked.items())
    settings = {"local.store.dir": str(run.directory / "kit")}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TIMED_SUMS_LATE_MAX_MS", "1")
        job = MemoryJob(run.subject.file, factor=1, partitions=PARTITIONS, settings=settings)
    with job:
        for _, fed in records:
            job.send(INPUT, json.loads(value_of(fed)), fed.key)
        # Longer than any timer of the job, and its window.
        job.advance(minutes=1)
        job.fire_event_timers()
        for store in _STORES:
            wanted, actual = job.state(store), _entries(run, store)
            wrong = sorted(key for key in wanted.keys() | actual.keys() if wanted.get(key) != actual.get(key))
            if wrong:
                shown = [f"{key}: {wanted.get(key)} in the kit, {actual.get(key)} here" for key in wrong[:_SHOWN_MAX]]
                yield Violation("H", f"{store}: {len(wrong)} keys differ from the kit: {'; '.join(shown)}")


def _entries(run: LedgerRun, store: str) -> Mapping[str, object]:
    """The values of a store by message key.

    Those with sub-keys are left as bytes.
    """
    latest = dict(run.changelog_records(store))
    entries: dict[str, object] = {}
    for key, value in latest.items():
        # The run has probed whether an open transaction hides what follows.
        if value is not None and key != PROBE:
            owner, name = owner_and_name(key)
            entries[f"{owner}/{name!r}" if name else owner] = value if name else json.loads(value)
    return entries
