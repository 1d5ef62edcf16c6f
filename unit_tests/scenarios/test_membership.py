"""The stories in `membership/`."""

import pytest

from samzapy.coordinator.commands import ReviewMembers
from unit_tests.coordinator.lifecycle.test_membership import Job as Coordinator
from unit_tests.scenarios.reading import check, scenarios


class Job:
    """Processors that come and go, and the coordinator's plans.

    Each start of a processor is a new execution.
    """

    def __init__(self):
        self.coordinator = Coordinator.submitted(partitions=6)
        self.second, self.starts, self.living = 0, 0, {}
        self.debounce_ms = self.grace_ms = 20_000

    def answer(self, command_line):
        before = self.coordinator.state
        for line in command_line:
            command, *rest = line.split()
            getattr(self, f"do_{command}")(*rest)
            self.review()
        return list(self.shown(before)) or ["nothing changes"]

    def do_set(self, setting):
        key, _, value = setting.partition("=")
        name = {"job.debounce.time.ms": "debounce_ms", "job.processor.grace.ms": "grace_ms"}[key]
        setattr(self, name, int(value))

    def do_second(self, text):
        self.second = int(text)

    def do_joins(self, *processors):
        for processor in processors:
            self.starts += 1
            self.living[processor] = f"{processor}-{self.starts}"
            self.coordinator.comes(self.living[processor])

    def do_stops(self, *processors):
        self.coordinator.stops(*(self.living.pop(processor) for processor in processors))

    def do_crashes(self, *processors):
        self.coordinator.crashes(*(self.living.pop(processor) for processor in processors))

    def do_failover(self):
        self.coordinator.fails_over()

    def review(self):
        command = ReviewMembers(
            now_ms=self.second * 1000,
            debounce_ms=self.debounce_ms,
            grace_ms=self.grace_ms,
            run_id_next=f"of second {self.second}",
        )
        self.coordinator.step(command)

    def shown(self, before):
        now = self.coordinator.state
        if now.run != before.run and now.run is not None:
            yield f"the run {now.run.run_id} {'has ended' if now.run.ended else 'has begun'}"
        if now.generation != before.generation:
            yield f"generation {now.generation.generation}"
            for processor in now.generation.processor_ids:
                tasks = sorted(self.coordinator.tasks_of(processor))
                yield (
                    f"processor {processor} has tasks {' '.join(tasks)}"
                    if tasks
                    else f"processor {processor} has none"
                )


@pytest.mark.parametrize("path", scenarios("membership"), ids=lambda path: path.stem)
def test_the_story_happens_as_written(path):
    check(path, Job().answer)
