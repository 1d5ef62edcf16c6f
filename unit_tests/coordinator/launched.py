"""A job whose coordinator starts the containers: a cluster of logical hosts, and containers that follow the stream."""

from dataclasses import dataclass, replace

from samzapy.container.orders import Orders, follow
from samzapy.coordinator.commands import LaunchesLooked, LaunchTroubles
from samzapy.coordinator.launching.launches import to_kill, to_look_at, to_start
from samzapy.model.container import ContainerPhase
from samzapy.model.launch import Launched, LaunchedState, LaunchPhase, LaunchRole
from samzapy.stream.codec import decode
from samzapy.stream.records import RequestPut
from samzapy.testing.builders import a_heartbeat, a_submission
from unit_tests.coordinator.operated import Job

HOSTS = ("host-a", "host-b", "host-c")
ROUND_MS = 500


def a_move(status_code):
    """A request for processor 0 to go to host-b, as the stream has it."""
    return RequestPut(
        uuid="u",
        offset=1,
        place="samza-place-container-v1.text.json",
        action="place-container",
        deployment_id="run",
        processor_id="0",
        destination_host="host-b",
        request_expiry_ms=0,
        timestamp_ms=1,
        run_id="run",
        status_code=status_code,
        response_message="",
        accepted_at_ms=1,
        decided_at_ms=1,
    )


@dataclass
class Process:
    """One execution as it runs somewhere, or did."""

    launch: object
    host: str
    pid: int
    exit_code: int | None = None
    is_over: bool = False
    is_silent: bool = False
    is_deaf: bool = False


class LaunchedJob(Job):
    """Processors 0 to `count`-1 in containers that the coordinator starts.

    `slots`: how many each host may have. `refused`: hosts on which nothing can ever be started. `broken`: starts of
    which nothing is heard. `named`: the hosts that the cluster manager names; None for all there are. `tells_room`: and
    what is free on each. `sees`: what it says instead of what is, by execution. `says_why`: and what is in its way.
    """

    def __init__(self, count=2, partitions=4, slots=None, named=None, **settings):
        self.count, self.partitions = count, partitions
        self.slots = slots or dict.fromkeys(HOSTS, 2)
        self.processes = {}
        self.started, self.killed = [], []
        self.refused, self.is_broken, self.is_away = set(), False, False
        self.run_over = ""
        self.named, self.tells_room, self.says_why = named, False, False
        self.pids = 100
        super().__init__(job_debounce_time_ms="20000", **settings)

    def leader(self, name="a"):
        service = self.world.coordinator(name, log=self.world.log())
        service.take_office()
        service.submit(self.submission())
        return service

    def submission(self):
        found = a_submission(config=self.world.config, partition_counts={"kafka.orders": self.partitions})
        return replace(found, container_count=self.count, run_over=self.run_over)

    def fails_over(self, name="b"):
        self.service = self.world.coordinator(name, log=self.world.log(), pid=2)
        self.service.take_office()
        self.service.submit(self.submission())

    def hears(self, **restarts):
        self.settles()

    # --- time goes by ---

    def settles(self, rounds=12):
        for _ in range(rounds):
            self.goes_on()

    def goes_on(self, ms=ROUND_MS):
        """A round: the launcher does what is asked and looks, containers say how they are, the coordinator decides."""
        self.world.clock.advance(ms)
        self.launches()
        for name in list(self.processes):
            self.lives(name)
        self.service.run_once(0)

    def launches(self):
        if self.is_away:
            return
        wanted = to_start(self.state)
        for launch in wanted:
            self.starts(launch)
        if self.says_why:
            where = {found.execution_id: found.host or "any host" for found in wanted}
            troubles = {name: f"no room on {where[name]}" for name in where.keys() - self.processes.keys()}
            self.world.queue.append(LaunchTroubles(troubles))
        for launch in to_kill(self.state, self.now_ms()):
            self.kills(launch)
        found = {launch.execution_id: self.looked(launch) for launch in to_look_at(self.state)}
        self.world.queue.append(
            LaunchesLooked(
                found={name: seen for name, seen in found.items() if seen is not None},
                now_ms=self.now_ms(),
                retry_window_ms=self.world.config.container_retry_window_ms,
                hosts=self.hosts(),
            )
        )

    def hosts(self):
        named = self.slots if self.named is None else self.named
        return {host: max(0, self.slots[host] - self.load(host)) if self.tells_room else None for host in named}

    def starts(self, launch):
        if launch.execution_id in self.processes:
            return
        free = [host for host in self.slots if self.load(host) < self.slots[host]]
        wanted = [launch.host] if launch.host else sorted(free, key=self.load)[:1]
        if launch.host in self.refused or not set(wanted) & set(free):
            return
        self.pids += 1
        self.world.alive[self.pids] = True
        self.processes[launch.execution_id] = Process(launch, wanted[0], self.pids, is_silent=self.is_broken)
        self.started.append(launch.execution_id)

    def load(self, host):
        return sum(found.host == host and not found.is_over for found in self.processes.values())

    def kills(self, launch):
        if launch.execution_id in self.processes and not self.processes[launch.execution_id].is_over:
            self.killed.append(launch.execution_id)
            self.ends(launch.execution_id, 137)

    def looked(self, launch):
        process = self.processes.get(launch.execution_id)
        if process is None:
            is_gone = launch.host in self.refused or launch.phase is not LaunchPhase.WANTED
            return Launched(state=LaunchedState.ENDED, reason="it is not there") if is_gone else None
        if process.is_over:
            return Launched(state=LaunchedState.ENDED, host=process.host, exit_code=process.exit_code)
        return Launched(state=LaunchedState.RUNNING, host=process.host, handle=str(process.pid))

    def lives(self, name):
        """What a container does that reads the stream: it says how it is, and ends when it is told to."""
        process = self.processes[name]
        if process.is_over or process.is_silent:
            return
        orders = self.orders(name)
        if orders.is_given_up:
            self.ends(name, 4)
            return
        is_leaving = (orders.is_stopping or orders.is_finished) and not process.is_deaf
        if orders.processor_id is None and is_leaving:
            self.ends(name, 0)
            return
        held = [] if is_leaving else [(grant.task_name, grant.epoch) for grant in orders.own_grants()]
        state = ContainerPhase.STOPPED if is_leaving else ContainerPhase.RUNNING if held else ContainerPhase.STARTED
        self.world.queue.append(
            a_heartbeat(
                name,
                processor_id=process.launch.processor_id,
                host=process.host,
                pid=process.pid,
                stream_offset=self.world.topic.end_offset,
                received_ms=self.world.clock.monotonic_ms(),
                held=held,
                state=state,
            )
        )
        if is_leaving:
            self.ends(name, 0)

    def orders(self, name):
        records = [decode(found, topic="t") for found in self.world.log().read()]
        return follow(Orders(execution_id=name), records, self.world.topic.end_offset)

    def ends(self, name, exit_code):
        process = self.processes[name]
        process.is_over, process.exit_code = True, exit_code
        self.world.alive[process.pid] = False

    # --- what is seen ---

    def runners(self):
        """By processor, the host where its tasks are at work."""
        owners = {grant.execution_id for grant in self.state.grants_sorted if not grant.released}
        living = [found for found in self.state.containers_sorted if found.phase is ContainerPhase.RUNNING]
        return {found.processor_id: found.host for found in living if found.execution_id in owners}

    def execution(self, processor_id, role=LaunchRole.ACTIVE):
        """Of those that are to be there, the one of a processor."""
        up = (LaunchPhase.WANTED, LaunchPhase.LAUNCHED)
        (found,) = [
            launch.execution_id
            for launch in self.state.launches.values()
            if launch.processor_id == processor_id and launch.role is role and launch.phase in up
        ]
        return found

    def at_work(self):
        """How many tasks each processor has."""
        of = {found.execution_id: found.processor_id for found in self.state.containers_sorted}
        newest = {grant.task_name: grant for grant in self.state.grants_sorted}
        counts = {}
        for grant in newest.values():
            if not grant.released and self.state.containers[grant.execution_id].phase is ContainerPhase.RUNNING:
                counts[of[grant.execution_id]] = counts.get(of[grant.execution_id], 0) + 1
        return counts

    def phases(self):
        return sorted((found.processor_id, found.phase.value) for found in self.state.launches.values())
