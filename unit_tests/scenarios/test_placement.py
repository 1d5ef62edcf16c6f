"""The stories in `placement/`: starts, moves and standbys of launched containers."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from samzapy.coordinator.commands import Heartbeat, LaunchesLooked
from samzapy.coordinator.grant_values import HeldGrant
from samzapy.coordinator.launching.launches import failed_job
from samzapy.inspection.invariants import Invariants
from samzapy.model.container import ContainerPhase
from samzapy.model.launch import LaunchedState, LaunchPhase, LaunchRole, standby_name
from samzapy.model.placement import RESPONSE_TYPE, Action
from samzapy.model.standby_progress import StandbyProgress
from samzapy.stream.codec import decode
from samzapy.stream.placement import Place, decode_message, message_key
from unit_tests.fixtures.launched_job import ROUND_MS, LaunchedJob
from unit_tests.fixtures.operated_job import an_id
from unit_tests.scenarios.reading import HERE, check, scenarios

STATE = {"stores_sums_msg_serde": "json", "local_store_dir": "/data"}
_SEED = re.compile(r"-[0-9a-f]{16}\b")
_UUID = re.compile(r"0000000([0-9a-f])-0000-4000-8000-000000000000")


class Story(LaunchedJob):
    """A job as the story has it.

    State is level a round after its container came, unless the host is slow.
    """

    def __init__(self, count, slots, named, settings):
        self.slow, self.letters, self.shown = {}, "", {}
        self.called = {}
        self.leaves, self.survivors, self.launcher_reports = set(), set(), []
        self.kept = {}
        self.is_crashing = self.is_mute = False
        self.killed_in_vain = self.unheard = 0
        super().__init__(count=count, slots=slots, named=named, **settings)
        self.settles(20)

    def launches(self):
        before = len(self.world.queue)
        super().launches()
        self.launcher_reports += self.world.queue[before:]
        if self.is_mute:
            self.unheard += len(self.world.queue) - before
            del self.world.queue[before:]

    def starts(self, launch):
        before = len(self.started)
        super().starts(launch)
        if self.is_crashing:
            for name in self.started[before:]:
                self.ends(name, 1)

    def kills(self, launch):
        if launch.execution_id in self.survivors:
            self.killed_in_vain += 1
        else:
            super().kills(launch)

    def lives(self, name):
        before = len(self.world.queue)
        super().lives(name)
        if len(self.world.queue) == before or not isinstance(self.world.queue[-1], Heartbeat):
            return
        host = self.processes[name].host
        self.world.queue[-1] = replace(self.world.queue[-1], host=self.called.get(host, host))
        if name in self.leaves:
            self.world.queue[-1] = replace(self.world.queue[-1], state=ContainerPhase.STOPPED, held=frozenset())
            self.ends(name, 0)
            return
        if name in self.kept:
            self.world.queue[-1] = replace(self.world.queue[-1], held=self.kept[name], state=ContainerPhase.RUNNING)
            return
        orders = self.orders(name)
        expected = orders.to_keep_warm()
        if expected is not None and not orders.own_grants():
            percent = self.slow.get(self.processes[name].host)
            warm = StandbyProgress(tasks=expected.task_count, level=len(expected.grants))
            if percent is not None:
                warm = StandbyProgress(tasks=expected.task_count, level=0, restored=percent, total=100)
            self.world.queue[-1] = replace(self.world.queue[-1], warm=warm)

    def launch_of(self, name):
        """By its name in stories: `0`, `0-1`, or `reserve of 0`."""
        if name.startswith("reserve"):
            processor, role, number = name.split()[-1], LaunchRole.RESERVE, 0
        elif "-" in name:
            (processor, number), role = name.split("-"), LaunchRole.STANDBY
        else:
            return next(launch for launch in self.state.launches.values() if self.runs(launch) == name)
        return next(
            launch
            for launch in self.state.launches.values()
            if (launch.processor_id, launch.role, launch.standby) == (processor, role, int(number))
            and launch.phase in (LaunchPhase.WANTED, LaunchPhase.LAUNCHED)
            and (role is LaunchRole.RESERVE or self.runs(launch) is None)
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
        """The place of each container."""
        lines = []
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
                line = f"{launch.processor_id} runs{once.get(launch.role, ' in what was its reserve')}"
            elif launch.role is LaunchRole.STANDBY:
                line = f"{standby_name(launch)} stands by"
            elif launch.role is LaunchRole.RESERVE:
                line = f"{launch.processor_id} has a reserve"
            else:
                line = f"{launch.processor_id} is to run"
            leaving = ", told to stop" if launch.phase is LaunchPhase.STOPPING else ""
            lines.append(f"{line} {where}{leaving}")
        return [*sorted(lines), *self.end()]

    def end(self):
        """Whether the run is over, and why."""
        if not self.state.run.finished:
            return []
        why = _SEED.sub("", failed_job(self.state, self.world.config.container_retry_count))
        line = "the run has ended" if self.state.run.ended else "the run is to end"
        return [f"{line}: {why}" if why else line]

    def answers(self):
        """The answers on the topic, by letter."""
        answers = {}
        for letter in self.letters:
            for action in (Action.PLACE_CONTAINER, Action.RESTART_QUERY):
                key = message_key(an_id(ord(letter)), RESPONSE_TYPE, Place(namespace=action.namespace))
                value = self.latest().get(key)
                if value is not None:
                    message = decode_message(value)
                    text = _UUID.sub(r"\1", _SEED.sub("", message.response_message))
                    answers[letter] = " ".join(filter(None, [message.status_code, message.phase, text]))
        return answers


class Teller:
    """The effects of the lines of a story."""

    def __init__(self):
        self.job, self.count, self.slots, self.settings = None, 1, {"host-a": 2, "host-b": 2}, dict(STATE)
        self.named, self.counted = None, []

    def answer(self, command_line):
        before = {} if self.job is None else self.job.shown
        self.counted = []
        for line in command_line:
            command, *rest = line.split()
            getattr(self, f"do_{command}")(*rest)
        if self.job is None:
            return ["nothing runs yet"]
        self.check()
        now = {"places": self.job.places(), **self.job.answers()}
        self.job.shown = now
        lines = [] if now["places"] == before.get("places") else now["places"]
        lines = lines + [
            f"{letter}: {now[letter]}" for letter in self.job.letters if now.get(letter) != before.get(letter)
        ]
        return (lines or ["nothing changes"]) + self.counted

    def check(self):
        invariants = Invariants()
        judged = [
            invariants.check(record.offset, decode(record, topic="t"), True) for record in self.job.world.log().read()
        ]
        assert [] == [broken for broken in judged if broken]

    def do_set(self, setting):
        key, _, value = setting.partition("=")
        self.settings[key.replace("_", "__").replace(".", "_")] = value

    def do_stateless(self):
        for key in STATE:
            del self.settings[key]

    def do_hosts(self, *hosts):
        """`host-a:2`: so many containers may be there."""
        slots = {host: int(count) for host, _, count in (text.partition(":") for text in hosts)}
        if self.job is None:
            self.slots = slots
        else:
            self.job.slots |= slots

    def do_named(self, *hosts):
        """The cluster manager reports that these are all."""
        self.named = hosts

    def do_containers(self, count):
        self.count = int(count)

    def do_starts(self):
        self.job = Story(self.count, self.slots, self.named, self.settings)

    def do_place(self, letter, *options):
        given = dict(option.split("=") for option in options)
        self.asks(letter, Action.PLACE_CONTAINER, given, destination_host=given["to"])

    def do_control(self, letter, *options):
        given = dict(option.split("=") for option in options)
        self.asks(letter, Action.CONTROL_STANDBY, given, destination_host="", arguments={"command": given["command"]})

    def do_scale(self, letter, *options):
        given = dict(option.split("=") for option in options)
        self.asks(letter, Action.SCALE, {"processor": "", **given}, destination_host="", arguments=given)

    def do_stop(self, letter):
        self.asks(letter, Action.STOP, {"processor": ""}, destination_host="")

    def do_restart(self, letter, *options):
        self.asks(
            letter, Action.RESTART_CONTAINER, dict(option.split("=") for option in options), destination_host=""
        )

    def do_status(self, letter, *options):
        self.asks(letter, Action.CONTAINER_STATUS, dict(option.split("=") for option in options), destination_host="")

    def do_query(self, letter, *options):
        self.asks(letter, Action.RESTART_QUERY, dict(option.split("=") for option in options), destination_host="")

    def asks(self, letter, action, given, **changes):
        if "expiry" in given:
            changes["request_expiry"] = timedelta(seconds=int(given["expiry"].removesuffix("s")))
        if "run" in given:
            changes["deployment_id"] = given["run"]
        if letter not in self.job.letters:
            self.job.letters += letter
        self.job.ask(ord(letter), action, processor_id=given["processor"], **changes)
        self.job.reads()

    def do_passes(self, text):
        self.job.settles(int(float(text.removesuffix("s")) * 1000) // ROUND_MS)

    def do_slow(self, host, percent):
        """Containers on the host have so much of the state, and get no further."""
        self.job.slow[host] = int(percent.removesuffix("%"))

    def do_calls(self, host, name):
        """Containers on the host report this name of it."""
        self.job.called[host] = name

    def do_quick(self, host):
        self.job.slow.pop(host)

    def do_refuses(self, host):
        """Nothing can be started there."""
        self.job.refused.add(host)

    def do_dies(self, *name):
        self.job.ends(self.job.launch_of(" ".join(name)).execution_id, 137)

    def do_hangs(self, *name):
        """It sends no more heartbeats, and obeys no order to stop."""
        self.job.processes[self.job.launch_of(" ".join(name)).execution_id].is_silent = True

    def do_fails(self):
        """Containers started from now on never send a heartbeat."""
        self.job.is_broken = True

    def do_crashes(self):
        """Containers started from now on end at once."""
        self.job.is_crashing = True

    def do_works(self):
        self.job.is_broken = self.job.is_crashing = False

    def do_deaf(self, *name):
        """It continues as before, whatever its orders are."""
        self.job.processes[self.job.launch_of(" ".join(name)).execution_id].is_deaf = True

    def do_clings(self, *name):
        """It sends a heartbeat, and keeps all that it has now."""
        name = self.job.launch_of(" ".join(name)).execution_id
        held = [grant for grant in self.job.orders(name).own_grants()]
        self.job.kept[name] = frozenset(HeldGrant(grant.task_name, grant.epoch) for grant in held)

    def do_survives(self, *name):
        """No kill of it has an effect."""
        self.job.survivors.add(self.job.launch_of(" ".join(name)).execution_id)

    def do_names(self):
        """The cluster manager reports its hosts, and how much room each has."""
        self.job.named, self.job.tells_room = tuple(self.job.slots), True

    def do_explains(self):
        """The cluster manager gives its reason not to start a launch."""
        self.job.says_why = True

    def do_away(self):
        """The cluster manager does nothing, and does not answer."""
        self.job.is_away = True

    def do_mute(self):
        """The cluster manager does its work, and its reports are lost."""
        self.job.is_mute = True

    def do_back(self):
        self.job.is_away = self.job.is_mute = False

    def do_repeats(self):
        """All reports of the cluster manager arrive once more, the oldest first."""
        requests = {
            seen.state
            for news in self.job.launcher_reports
            if isinstance(news, LaunchesLooked)
            for seen in news.launched.values()
        }
        assert {LaunchedState.RUNNING, LaunchedState.ENDED} <= requests, "nothing that could be taken for news"
        self.job.world.queue.extend(self.job.launcher_reports)
        self.job.service.run_once(0)

    def do_count(self):
        job = self.job
        lines = [f"started {len(job.started)}", f"killed {len(job.killed)}"]
        lines += [f"killed in vain {job.killed_in_vain} times"] if job.killed_in_vain else []
        lines += [f"unheard {job.unheard} times"] if job.unheard else []
        self.counted = [", ".join(lines)]

    def do_stops(self, *name):
        """It drains and leaves, though without an order to."""
        self.job.leaves.add(self.job.launch_of(" ".join(name)).execution_id)

    def do_failover(self):
        self.job.fails_over()


@pytest.mark.parametrize("path", scenarios("placement"), ids=lambda path: path.stem)
def test_each_scenario_file_happens_as_written(path):
    check(path, Teller().answer)


def test_the_page_on_failures_names_each_story_and_no_other():
    page = (HERE / "README.md").read_text()

    named = re.findall(r"`([a-z0-9_]+)`", page[page.index("the failure list of SEP-22") :])

    assert {path.stem for path in scenarios("placement")} == set(named)
