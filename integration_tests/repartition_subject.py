"""The job `jobs/repartition.py` under a ledger, with both of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from integration_tests.ledger_run import JOBS, Inputs, LedgerRun, Subject, Topics
from integration_tests.support.ledger import Place, Violation
from integration_tests.support.repartition_ledger import Regrouped, check_regrouped, regrouped_of, totals_of

REGROUPED = "regrouped"
INTERMEDIATE = "groups"
PARTITIONS_FIRST = 3
"""The partitions of the intermediate stream, as in the job's properties."""


class RepartitionSubject(Subject):
    """Running sums, and in a second step running totals of groups of several keys."""

    file = JOBS / "repartition.py"
    name = "repartition-1"
    outputs: ClassVar[Inputs] = {**Subject.answers, REGROUPED: 4}
    stores = ("sums", "groups")

    def __init__(self) -> None:
        self._regrouped = self._partitions = 0

    def check(self, run: LedgerRun, outputs: Topics) -> Iterator[Violation]:
        yield from super().check(run, outputs)
        answers: list[Regrouped] = []
        for (topic, number), records in sorted(outputs.items()):
            for record in records if topic == REGROUPED else ():
                try:
                    place = Place(topic, number, record.offset)
                    answers.append(regrouped_of(place, record.key, record.value, record.headers))
                except ValueError as error:
                    yield Violation("B", str(error))
        self._regrouped = len(answers)
        self._partitions = len({answer.src.partition for answer in answers})
        yield from check_regrouped(run.ledger, answers, PARTITIONS_FIRST)
        yield from run.check_keyed_store("groups", totals_of({*run.ledger.acked}))

    def summary(self) -> str:
        return f"{self._regrouped} records regrouped through {self._partitions} partitions"
