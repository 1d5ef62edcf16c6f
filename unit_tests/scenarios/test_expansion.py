"""The stories in `expansion/`."""

import textwrap

import pytest

from samzapy.model.ssp import SystemStreamPartition
from unit_tests.coordinator.inputs.test_growth import Job as Coordinator
from unit_tests.scenarios.reading import check, scenarios

NOTHING = ["nothing changes"]


class Job:
    """A running job, topics that grow, and the decisions of the coordinator."""

    def __init__(self):
        self.properties, self.topics, self.looks = {}, {}, []
        self.coordinator = None
        self.processors = ("0",)
        self.shown_before = []

    def answer(self, command_line):
        for line in command_line:
            command, *rest = line.split()
            getattr(self, f"do_{command}")(*rest)
        self.coordinator.runs()
        now = list(self.shown())
        changed = [line for line in now if line not in self.shown_before]
        self.shown_before = now
        return changed or NOTHING

    def do_set(self, setting):
        key, _, value = setting.partition("=")
        self.properties[key.replace(".", "_")] = value

    def do_processors(self, *processors):
        self.processors = processors

    def do_topic(self, stream, setting):
        name = stream.removeprefix("kafka.")
        self.topics[name] = int(setting.removeprefix("partitions="))
        if self.coordinator is not None:
            self.coordinator.looks(**{name: self.topics[name]})

    def do_starts(self):
        self.coordinator = Coordinator(counts=dict(self.topics), processors=self.processors, **self.properties)

    def do_ends(self, *ends):
        for end in ends:
            ssp, _, offset = end.partition("=")
            self.coordinator.world.watermarks[SystemStreamPartition.parse(ssp)] = int(offset)

    def do_reads(self, *positions):
        for position in positions:
            ssp, _, offset = position.partition("=")
            self.coordinator.positions[ssp] = int(offset)

    def do_passes(self, seconds):
        self.coordinator.runs(ms=1000 * int(seconds.removesuffix("s")))

    def do_failover(self):
        self.coordinator.fails_over()

    def shown(self):
        state = self.coordinator.state
        yield f"generation {state.generation.generation}"
        starts = self.coordinator.granted()
        for task in state.plan:
            reads = " ".join(f"{kb.ssp} from {starts.get(str(kb.ssp), '?')}" for kb in task.positions)
            yield f"{task.partition_id} {task.task_name} reads {reads}"
        for expansion in self.coordinator.status()["expansions"]:
            grows = (
                f"{expansion['stream']} is to have {expansion['partitionCountNew']} partitions: {expansion['phase']}"
            )
            if expansion["reason"]:
                text = f"{grows}: {expansion['reason']}"
                yield "\n".join(textwrap.wrap(text, 110, subsequent_indent="  ", break_on_hyphens=False))
            else:
                waits = [
                    f"{one['ssp']} at {one['offsetNext']} of {one['offsetEnd']}" for one in expansion["waitsFor"]
                ]
                yield f"{grows}{', ' if waits else ''}{', '.join(waits)}"


@pytest.mark.parametrize("path", scenarios("expansion"), ids=lambda path: path.stem)
def test_the_story_happens_as_written(path):
    check(path, Job().answer)
