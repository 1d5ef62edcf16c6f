"""The stories in `placement/`: moves and standbys of a job whose containers the coordinator starts."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from samzapy.coordinator.commands import Heartbeat
from samzapy.coordinator.laws import Laws
from samzapy.model.container import ContainerPhase
from samzapy.model.launch import LaunchPhase, LaunchRole, standby_name
from samzapy.model.placement import RESPONSE_TYPE, Action
from samzapy.model.warmth import Warmth
from samzapy.stream.codec import decode
from samzapy.stream.placement import Place, decode_message, message_key
from unit_tests.coordinator.launched import ROUND_MS, LaunchedJob
from unit_tests.coordinator.operated import an_id
from unit_tests.scenarios.reading import check, scenarios

STATE = {"stores_sums_msg_serde": "json", "local_store_dir": "/data"}
_SEED = re.compile(r"-[0-9a-f]{16}\b")
_UUID = re.compile(r"0000000([0-9a-f])-0000-4000-8000-000000000000")


class Story(LaunchedJob):
    """A job as it is told. State is level a round after its container came, unless the host is slow."""

    def __init__(self, count, slots, settings):
        self.slow, self.letters, self.shown = {}, "", {}
        self.leaves = set()
        super().__init__(count=count, slots=slots, **settings)
        self.settles(20)

    def lives(self, name):
        before = len(self.world.queue)
        super().lives(name)
        if len(self.world.queue) == before or not isinstance(self.world.queue[-1], Heartbeat):
            return
        if name in self.leaves:
            self.world.queue[-1] = replace(self.world.queue[-1], state=ContainerPhase.STOPPED, held=frozenset())
            self.ends(name, 0)
            return
        orders = self.orders(name)
        wanted = orders.to_keep_warm()
        if wanted is not None and not orders.own_grants():
            percent = self.slow.get(self.processes[name].host)
            warm = Warmth(tasks=wanted.task_count, level=len(wanted.grants))
            if percent is not None:
                warm = Warmth(tasks=wanted.task_count, level=0, restored=percent, total=100)
            self.world.queue[-1] = replace(self.world.queue[-1], warm=warm)

    def launch_of(self, name):
        """By what people call it: `0`, `0-1`, or `reserve of 0`."""
        if name.startswith("reserve"):
            processor, role, number = name.split()[-1], LaunchRole.RESERVE, 0
        elif "-" in name:
            (processor, number), role = name.split("-"), LaunchRole.STANDBY
        else:
            return next(found for found in self.state.launches.values() if self.runs(found) == name)
        return next(
            found
            for found in self.state.launches.values()
            if (found.processor_id, found.role, found.standby) == (processor, role, int(number))
            and found.phase in (LaunchPhase.WANTED, LaunchPhase.LAUNCHED)
            and (role is LaunchRole.RESERVE or self.runs(found) is None)
        )

    def runs(self, launch):
        """The processor whose tasks it holds."""
        held = [grant for grant in self.state.grants_sorted if not grant.released]
        newest = {grant.task_name: grant.execution_id for grant in held}
        container = self.state.containers.get(launch.execution_id)
        if container is None or container.is_gone or launch.execution_id not in newest.values():
            return None
        return launch.processor_id

    def places(self):
        """Who is where."""
        found = []
        for launch in self.state.launches.values():
            process = self.processes.get(launch.execution_id)
            if process is None or process.is_over:
                where = f"wanted on {launch.host or 'any host'}" if launch.phase is LaunchPhase.WANTED else None
            else:
                where = f"on {process.host}"
            if where is None:
                continue
            if self.runs(launch):
                once = {LaunchRole.ACTIVE: "", LaunchRole.STANDBY: " in what was its standby"}
                what = f"{launch.processor_id} runs{once.get(launch.role, ' in what was its reserve')}"
            elif launch.role is LaunchRole.STANDBY:
                what = f"{standby_name(launch)} stands by"
            elif launch.role is LaunchRole.RESERVE:
                what = f"{launch.processor_id} has a reserve"
            else:
                what = f"{launch.processor_id} is to run"
            leaving = ", told to stop" if launch.phase is LaunchPhase.STOPPING else ""
            found.append(f"{what} {where}{leaving}")
        return sorted(found)

    def answers(self):
        """The answers on the topic, by letter."""
        found = {}
        for letter in self.letters:
            for action in (Action.PLACE_CONTAINER, Action.RESTART_QUERY):
                key = message_key(an_id(ord(letter)), RESPONSE_TYPE, Place(namespace=action.namespace))
                value = self.latest().get(key)
                if value is not None:
                    said = decode_message(value)
                    text = _UUID.sub(r"\1", _SEED.sub("", said.response_message))
                    found[letter] = " ".join(filter(None, [said.status_code, said.phase, text]))
        return found


class Teller:
    """What the lines of a story do."""

    def __init__(self):
        self.job, self.count, self.slots, self.settings = None, 1, {"host-a": 2, "host-b": 2}, dict(STATE)

    def answer(self, said):
        before = {} if self.job is None else self.job.shown
        for line in said:
            word, *rest = line.split()
            getattr(self, f"do_{word}")(*rest)
        if self.job is None:
            return ["nothing runs yet"]
        self.check()
        now = {"places": self.job.places(), **self.job.answers()}
        self.job.shown = now
        lines = [] if now["places"] == before.get("places") else now["places"]
        lines = lines + [
            f"{letter}: {now[letter]}" for letter in self.job.letters if now.get(letter) != before.get(letter)
        ]
        return lines or ["nothing changes"]

    def check(self):
        laws = Laws()
        judged = [laws.judge(found.offset, decode(found, topic="t"), True) for found in self.job.world.log().read()]
        assert [] == [broken for broken in judged if broken]

    def do_set(self, setting):
        key, _, value = setting.partition("=")
        self.settings[key.replace("_", "__").replace(".", "_")] = value

    def do_stateless(self):
        for key in STATE:
            del self.settings[key]

    def do_hosts(self, *hosts):
        """`host-a:2`: so many containers may be there."""
        found = {host: int(count) for host, _, count in (text.partition(":") for text in hosts)}
        if self.job is None:
            self.slots = found
        else:
            self.job.slots |= found

    def do_containers(self, count):
        self.count = int(count)

    def do_starts(self):
        self.job = Story(self.count, self.slots, self.settings)

    def do_place(self, letter, *options):
        given = dict(option.split("=") for option in options)
        self.asks(letter, Action.PLACE_CONTAINER, given, destination_host=given["to"])

    def do_control(self, letter, *options):
        given = dict(option.split("=") for option in options)
        self.asks(letter, Action.CONTROL_STANDBY, given, destination_host="", arguments={"command": given["command"]})

    def do_restart(self, letter, *options):
        self.asks(
            letter, Action.RESTART_CONTAINER, dict(option.split("=") for option in options), destination_host=""
        )

    def asks(self, letter, action, given, **changes):
        if "expiry" in given:
            changes["request_expiry"] = timedelta(seconds=int(given["expiry"].removesuffix("s")))
        if letter not in self.job.letters:
            self.job.letters += letter
        self.job.ask(ord(letter), action, processor_id=given["processor"], **changes)
        self.job.reads()

    def do_passes(self, text):
        self.job.settles(int(float(text.removesuffix("s")) * 1000) // ROUND_MS)

    def do_slow(self, host, percent):
        """Containers on the host have so much of the state, and get no further."""
        self.job.slow[host] = int(percent.removesuffix("%"))

    def do_quick(self, host):
        self.job.slow.pop(host)

    def do_refuses(self, host):
        """Nothing can be started there."""
        self.job.refused.add(host)

    def do_dies(self, *name):
        self.job.ends(self.job.launch_of(" ".join(name)).execution_id, 137)

    def do_hangs(self, *name):
        """It is heard of no more, and stops for nobody."""
        self.job.processes[self.job.launch_of(" ".join(name)).execution_id].is_silent = True

    def do_fails(self):
        """What is started from now on is never heard of."""
        self.job.is_broken = True

    def do_works(self):
        self.job.is_broken = False

    def do_stops(self, *name):
        """It drains and leaves, though nobody told it to."""
        self.job.leaves.add(self.job.launch_of(" ".join(name)).execution_id)

    def do_failover(self):
        self.job.fails_over()


@pytest.mark.parametrize("path", scenarios("placement"), ids=lambda path: path.stem)
def test_what_happens_is_what_the_file_says(path):
    check(path, Teller().answer)
