"""The stories in `planning/`."""

import textwrap

import pytest

from samzapy.config import parse_config
from samzapy.errors import SamzapyError
from samzapy.model.container import Locality
from samzapy.model.ssp import SystemStream
from samzapy.plan.job_plan import Recorded, plan_job
from unit_tests.scenarios.reading import check, scenarios

BEGIN = {"job.name": "flights", "local.store.dir": "/data", "systems.kafka.bootstrap.servers": "localhost:9092"}


class Job:
    """The coordinator's knowledge of the job."""

    def __init__(self):
        self.properties, self.topics = dict(BEGIN), {}
        self.hosts, self.homes = {"0": None}, {}
        self.plan, self.numbers, self.kept_state = None, {}, False

    def answer(self, command_line):
        out = []
        for line in command_line:
            command, _, rest = line.partition(" ")
            out.extend(getattr(self, f"do_{command}")(rest.strip()) or ())
        return out

    def do_set(self, rest):
        key, _, value = rest.partition("=")
        self.properties[key] = value

    def do_unset(self, key):
        del self.properties[key]

    def do_topic(self, rest):
        stream, count = rest.split(" partitions=")
        self.topics[SystemStream.parse(stream)] = int(count)

    def do_processors(self, rest):
        self.hosts = {name: host or None for name, _, host in (item.partition("@") for item in rest.split())}

    def do_plan(self, rest):
        try:
            plan = self.planned()
        except SamzapyError as error:
            return textwrap.wrap(f"refused: {error}", 110, subsequent_indent="  ", break_on_hyphens=False)
        self.kept_state |= any(key.startswith("stores.") for key in self.properties)
        if self.plan is not None and plan.containers == self.plan.containers:
            return ["nothing changes"]
        self.plan = plan
        self.numbers |= {task.name: task.changelog_partition for task in plan.tasks}
        owner = {task.name: one.processor_id for one in plan.containers for task in one.tasks}
        self.homes |= {task: self.hosts[processor] for task, processor in owner.items() if self.hosts[processor]}
        return [f"generation {plan.generation}", *(shown(task, owner[task.name]) for task in plan.tasks)]

    def planned(self):
        return plan_job(
            parse_config(self.properties),
            self.topics,
            self.plan,
            list(self.hosts),
            recorded=Recorded(changelog_partitions=self.numbers, keeps_state=self.kept_state),
            locality=Locality(processors={name: host for name, host in self.hosts.items() if host}, tasks=self.homes),
        )


def shown(task, processor):
    own = [str(kb.ssp) for kb in task.ssp_kbs]
    broadcast = ["all read", *map(str, task.broadcast_ssps)] if task.broadcast_ssps else []
    reads = ["reads", *own] if own else []
    return " ".join([str(task.partition_id), task.name, "on processor", processor, *reads, *broadcast])


@pytest.mark.parametrize("path", scenarios("planning"), ids=lambda path: path.stem)
def test_the_story_happens_as_written(path):
    check(path, Job().answer)
