"""The launcher against a master in memory.

The master answers as a real one did; an integration test asks the real one.

The launcher must not start an execution twice that it could have found. It must not call an execution ended because
the master did not answer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from samzapy.adapters.spark.standalone_launcher import (
    StandaloneLauncher,
    StandaloneMaster,
    parse_page,
    submission_request,
)
from samzapy.adapters.spark.submission import ContainerProgram, host_label
from samzapy.errors import ConfigError, LaunchError
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch, Launched, LaunchedState, LaunchPhase
from samzapy.testing.builders import a_launch

REST, PAGE = "http://master:6066", "http://master:8080"
PROGRAM = ContainerProgram(
    job="flights-1",
    job_file="/srv/flights.py",
    overrides=("job.name=flights",),
    spark_options=("--conf", "spark.log.level=ERROR"),
    environment={"TZ": "UTC"},
    python="/srv/env/bin/python",
    cores=2,
    memory_mib=2048,
)
STARTING, RUNNING, ENDED, UNKNOWN = (LaunchedState[name] for name in ("STARTING", "RUNNING", "ENDED", "UNKNOWN"))


class MasterInMemory:
    """A master with workers of two slots each; `ask` takes the launcher's requests."""

    def __init__(self, *hosts: str, cores: int = 16) -> None:
        self.workers = {
            f"worker-{host}": {"host": "10.0.0.1", "resource": f"host_{host}" if host else "", "cores": cores}
            for host in hosts
        }
        self.drivers: dict[str, dict[str, Any]] = {}
        self.driver_id = "driver-"
        self.status = "ALIVE"
        self.rest_answers = self.page_answers = True
        self.loses_answers = False
        self.forgotten: set[str] = set()
        self.asked: list[str] = []
        self.logs: dict[str, str | None] = {}
        """Of drivers whose log is not whole; None where their worker does not answer."""

    def ask(self, method: str, url: str, path: str, body: bytes | None) -> tuple[int, bytes] | None:
        self.asked.append(f"{method} {path}")
        if url == PAGE:
            return (200, json.dumps(self._page()).encode()) if self.page_answers else None
        if url != REST:
            return self._log(path)
        if not self.rest_answers:
            return None
        code, answer = self._rest(path.removeprefix("/v1/submissions/"), body)
        return None if self.loses_answers else (code, json.dumps({**answer, "serverSparkVersion": "4.2.0"}).encode())

    def run(self, handle: str = "driver-1", worker: str = "worker-a") -> None:
        self.drivers[handle] |= {"state": "RUNNING", "worker": worker}

    def end(self, state: str, handle: str = "driver-1", message: str | None = None) -> None:
        self.drivers[handle] |= {"state": state, "message": message}

    def used(self, worker: str) -> int:
        return sum(driver["worker"] == worker for driver in self.drivers.values())

    def _rest(self, path: str, body: bytes | None) -> tuple[int, dict[str, Any]]:
        if path == "create":
            assert body is not None
            request = json.loads(body)
            if request["appArgs"][0] != "--master":
                return 400, {"action": "ErrorResponse", "message": "malformed"}
            handle = f"{self.driver_id}{len(self.drivers) + 1}"
            self.drivers[handle] = {"state": "SUBMITTED", "worker": "None", "request": request, "message": None}
            return 200, {"success": True, "submissionId": handle}
        verb, _, handle = path.partition("/")
        if self.status != "ALIVE":
            return 200, {"success": False, "message": "Exception from the cluster:\n Current state is not alive"}
        if handle not in self.drivers or handle in self.forgotten:
            return 200, {"success": False}
        driver = self.drivers[handle]
        if verb == "kill":
            was_there = driver["state"] in ("SUBMITTED", "RUNNING")
            driver["state"] = "KILLED" if was_there else driver["state"]
            return 200, {"success": was_there, "message": "Kill request submitted"}
        return 200, {"success": True, "driverState": driver["state"], "message": driver["message"]}

    def _page(self) -> dict[str, Any]:
        def shown(handle: str, driver: dict[str, Any]) -> dict[str, Any]:
            return {
                "id": handle,
                "state": driver["state"],
                "mainclass": driver["request"]["mainClass"],
                "worker": driver["worker"],
            }

        there = {handle: driver for handle, driver in self.drivers.items() if handle not in self.forgotten}
        ends = ("FINISHED", "KILLED", "FAILED", "ERROR")
        over = {handle for handle, driver in there.items() if driver["state"] in ends}
        return {
            "status": self.status,
            "workers": [self._shown(worker_id) for worker_id in self.workers],
            "activedrivers": [shown(handle, there[handle]) for handle in there if handle not in over],
            "completeddrivers": [shown(handle, there[handle]) for handle in sorted(over)],
        }

    def _shown(self, worker_id: str) -> dict[str, Any]:
        worker = self.workers[worker_id]
        name, free = worker["resource"], max(0, 2 - self.used(worker_id))

        def resources(count: int) -> dict[str, Any]:
            return {name: {"name": name, "addresses": [str(slot) for slot in range(count)]}} if name else {}

        return {
            "id": worker_id,
            "host": worker["host"],
            "webuiaddress": f"http://{worker_id}:8081",
            "state": "ALIVE",
            "coresfree": worker["cores"],
            "memoryfree": 8192,
            "resources": resources(2),
            "resourcesfree": resources(free),
        }

    def _log(self, path: str) -> tuple[int, bytes] | None:
        query = parse_qs(urlsplit(path).query)
        handle = query["driverId"][0]
        if handle in self.logs:
            cut = self.logs[handle]
            return None if cut is None else (200, cut.encode())
        driver = self.drivers[handle]
        command = " ".join(f'"{part}"' for part in ("java", *driver["request"]["appArgs"]))
        text = f"==== Bytes 0-9 of 9 of stderr ====\nLaunch Command: {command}\n=====\n\n"
        if "offset" not in query:
            text += "samzapy: the first thing\nat x\nsamzapy: the task failed on kafka.in.0 at 7\n"
        return 200, text.encode()


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def master() -> MasterInMemory:
    return MasterInMemory("a", "b")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def launcher(master: MasterInMemory, clock: Clock) -> StandaloneLauncher:
    return a_launcher(master, clock)


def a_launcher(master: MasterInMemory, clock: Clock) -> StandaloneLauncher:
    """One that knows nothing yet, as that of a coordinator that has just come up."""
    return StandaloneLauncher(StandaloneMaster(rest_url=REST, page_url=PAGE), PROGRAM, master.ask, clock)


def e1(host: str = "a", phase: LaunchPhase = LaunchPhase.WANTED) -> Launch:
    return a_launch("e1", host=host, phase=phase)


def seen(launcher: StandaloneLauncher, launch: Launch | None = None) -> Launched | None:
    return launcher.look([launch or e1()]).get(ExecutionId("e1"))


def leads(launcher: StandaloneLauncher, clock: Clock, seconds: int) -> None:
    """It looks all the while, as that of a leader does, and is not new any more then."""
    for _ in range(seconds):
        clock.now_s += 1
        launcher.look([])


def test_a_container_is_spark_submit_in_a_driver_on_the_requested_host() -> None:
    request = submission_request(PROGRAM, a_launch("e1", processor_id="7", host="rack-1.b"), "rack-1.b")

    assert "org.apache.spark.deploy.SparkSubmit" == request["mainClass"]
    assert "file:///srv/flights.py" == request["appResource"]
    assert ["--master", "local[2,1]"] == request["appArgs"][:2]
    behind = request["appArgs"][request["appArgs"].index("/srv/flights.py") + 1 :]
    assert ["--set", "job.name=flights", "--set", "processor.id=7"] == behind
    assert "spark.samzapy.execution.id=e1" in request["appArgs"]
    assert {
        "TZ": "UTC",
        "PYSPARK_PYTHON": "/srv/env/bin/python",
        "EXECUTION_ENV_CONTAINER_ID": "e1",
        "SAMZAPY_HOST": "rack-1.b",
    } == request["environmentVariables"]
    assert {
        "spark.app.name": "samzapy flights-1 7",
        "spark.driver.cores": "2",
        "spark.driver.memory": "2048m",
        "spark.driver.resource.host_rack-1_b.amount": "1",
        "spark.driver.supervise": "false",
        "spark.submit.deployMode": "cluster",
    } == request["sparkProperties"]


def test_the_path_of_a_job_file_is_a_uri() -> None:
    request = submission_request(replace(PROGRAM, job_file="/srv/my jobs/50%#1.py"), e1(), "a")

    assert "file:///srv/my%20jobs/50%25%231.py" == request["appResource"]
    assert "/srv/my jobs/50%#1.py" in request["appArgs"]


def test_a_command_line_has_no_secret() -> None:
    with pytest.raises(ConfigError, match=r"(?s)password.*env:NAME") as refused:
        replace(PROGRAM, overrides=("systems.kafka.client.sasl.password=hunter2",))
    replace(PROGRAM, overrides=("systems.kafka.client.sasl.password=${env:PW}",))
    assert "hunter2" not in str(refused.value)


def test_a_launch_is_followed_from_its_submission_to_its_end(
    master: MasterInMemory, launcher: StandaloneLauncher
) -> None:
    assert seen(launcher) is None

    launcher.launch(e1())
    assert Launched(state=STARTING, handle="driver-1") == seen(launcher)
    master.run()
    assert Launched(state=RUNNING, handle="driver-1", host="a") == seen(launcher)
    master.end("FINISHED")
    ended = Launched(state=ENDED, handle="driver-1", host="a", exit_code=0, reason="driver FINISHED")
    assert ended == seen(launcher)


def test_a_repeated_launch_starts_nothing(master: MasterInMemory, launcher: StandaloneLauncher) -> None:
    for _ in range(3):
        launcher.launch(e1())
        launcher.look([e1()])

    assert 1 == len(master.drivers)


def test_a_driver_that_another_coordinator_started_is_adopted_by_its_command_line(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    launcher.launch(e1())
    launcher.launch(a_launch("e2", host="b"))
    master.run("driver-1", "worker-a")
    master.run("driver-2", "worker-b")
    successor = a_launcher(master, clock)

    successor.launch(a_launch("e2", host="b"))

    assert 2 == len(master.drivers)
    assert Launched(state=RUNNING, handle="driver-1", host="a") == seen(successor)


def again(master: MasterInMemory, handle: str, state: str = "RUNNING", worker: str = "worker-b") -> None:
    """Another driver of the execution of driver-1, submitted by another process."""
    master.drivers[handle] = {**master.drivers["driver-1"], "state": state, "worker": worker}


def test_the_running_one_of_two_drivers_counts_as_the_execution(
    master: MasterInMemory, launcher: StandaloneLauncher
) -> None:
    launcher.launch(e1())
    master.run()
    again(master, "driver-2")

    of_first = replace(e1(phase=LaunchPhase.LAUNCHED), handle="driver-1")
    assert Launched(state=RUNNING, handle="driver-1", host="a") == seen(launcher, of_first)
    master.end("FINISHED")
    assert Launched(state=RUNNING, handle="driver-2", host="b") == seen(launcher, of_first)
    launcher.launch(of_first)
    assert 2 == len(master.drivers)
    master.end("FINISHED", "driver-2")
    observed = seen(launcher, of_first)
    assert observed is not None
    assert ENDED is observed.state


def test_an_earlier_driver_that_is_over_is_not_taken_for_the_execution(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    launcher.launch(e1())
    master.run()
    again(master, "driver-2", state="FAILED")
    successor = a_launcher(master, clock)

    for _ in range(2):
        assert Launched(state=RUNNING, handle="driver-1", host="a") == seen(successor)


def test_a_kill_ends_all_drivers_of_an_execution(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    launcher.launch(e1())
    master.run()
    again(master, "driver-2")
    successor = a_launcher(master, clock)

    successor.kill(e1())

    assert {"KILLED"} == {driver["state"] for driver in master.drivers.values()}


def test_a_driver_is_identified_by_its_recorded_handle(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    launcher.launch(e1())
    successor = a_launcher(master, clock)

    of_record = replace(e1(phase=LaunchPhase.LAUNCHED), handle="driver-1")
    successor.launch(of_record)
    given_up = a_launch("e2", phase=LaunchPhase.STOPPING)
    observed = a_launcher(master, clock).look([given_up, of_record])

    assert [ENDED, STARTING] == [observed[ExecutionId(name)].state for name in ("e2", "e1")]
    assert 1 == len(master.drivers)


def test_an_unidentified_driver_delays_the_end_of_an_execution_for_a_while(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    launcher.launch(e1())
    master.run()
    again(master, "driver-2")
    master.logs["driver-2"] = None
    master.end("FINISHED")
    given_up = a_launch("e9", phase=LaunchPhase.STOPPING)

    assert {} == launcher.look([e1(), given_up])
    clock.now_s += 59
    assert {} == launcher.look([e1(), given_up])
    clock.now_s += 2

    assert [ENDED, ENDED] == [driver.state for driver in launcher.look([e1(), given_up]).values()]


def test_a_waiting_driver_does_not_delay_an_observed_end(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    launcher.launch(e1())
    master.run()
    master.end("FINISHED")
    again(master, "driver-2", state="SUBMITTED", worker="None")

    observed = seen(launcher)

    assert observed is not None
    assert ENDED is observed.state


def test_drivers_without_a_command_line_are_asked_again_only_after_a_while(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    launcher.launch(e1())
    master.run()
    again(master, "driver-2")
    master.logs = {"driver-1": None, "driver-2": None}

    def slow(method: str, url: str, path: str, body: bytes | None) -> tuple[int, bytes] | None:
        clock.now_s += 5 if "/log/" in path else 0
        return master.ask(method, url, path, body)

    def log_request_count() -> int:
        return len([path for path in master.asked if "/log/" in path])

    successor = StandaloneLauncher(StandaloneMaster(rest_url=REST, page_url=PAGE), PROGRAM, slow, clock)
    for _ in range(2):
        successor.look([e1(), a_launch("e8"), a_launch("e9")])
    assert 2 == log_request_count()
    clock.now_s += 6
    successor.look([e1(), a_launch("e8"), a_launch("e9")])
    assert 4 == log_request_count()


def test_a_driver_with_half_a_command_line_stays_unidentified(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    launcher.launch(e1())
    master.run()
    master.logs["driver-1"] = 'Launch Command: "java" "-cp" "x'
    successor = a_launcher(master, clock)
    assert None is seen(successor)

    del master.logs["driver-1"]
    clock.now_s += 6

    assert Launched(state=RUNNING, handle="driver-1", host="a") == seen(successor)


def test_each_driver_is_asked_for_its_command_line_once(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    launcher.launch(e1())
    master.run()
    master.drivers["driver-2"] = {**master.drivers["driver-1"], "request": {"mainClass": "Pi", "appArgs": []}}
    stranger = json.loads(json.dumps(master.drivers["driver-1"]))
    stranger["request"]["appArgs"] = ["--master", "local", "other.py"]
    master.drivers["driver-3"] = stranger
    successor = a_launcher(master, clock)
    for _ in range(3):
        successor.look([e1(), a_launch("e9")])

    logs = [path.partition("driverId=")[2].partition("&")[0] for path in master.asked if "/log/" in path]

    assert ["driver-1", "driver-3"] == sorted(logs)


def test_a_start_is_deferred_while_an_unidentified_driver_waits(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    launcher.launch(e1())
    successor = a_launcher(master, clock)

    with pytest.raises(LaunchError, match="driver-1 has not started yet"):
        successor.launch(e1())
    leads(successor, clock, 31)
    successor.launch(e1())

    assert 2 == len(master.drivers)


def test_a_launcher_that_was_idle_is_in_doubt_like_a_new_one(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    waiting = a_launcher(master, clock)
    clock.now_s += 86_400
    launcher.launch(e1())

    with pytest.raises(LaunchError, match="driver-1 has not started yet"):
        waiting.launch(e1())
    leads(waiting, clock, 31)
    waiting.launch(a_launch("e2", host="b"))


def test_a_launcher_that_waits_long_for_an_answer_is_not_idle(master: MasterInMemory, clock: Clock) -> None:
    def slow(method: str, url: str, path: str, body: bytes | None) -> tuple[int, bytes] | None:
        clock.now_s += 6 if url == PAGE else 0
        return master.ask(method, url, path, body)

    launcher = StandaloneLauncher(StandaloneMaster(rest_url=REST, page_url=PAGE), PROGRAM, slow, clock)
    leads(launcher, clock, 31)
    a_launcher(master, clock).launch(e1())

    clock.now_s += 9
    launcher.look([])
    clock.now_s += 9
    launcher.launch(a_launch("e2", host="b"))

    assert 2 == len(master.drivers)


def test_a_submission_with_a_lost_answer_is_not_repeated_before_it_is_identified(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    leads(launcher, clock, 31)
    master.loses_answers = True
    with pytest.raises(LaunchError, match="found none"):
        launcher.launch(e1())
    master.loses_answers = False

    with pytest.raises(LaunchError, match="driver-1 has not started"):
        launcher.launch(e1())
    master.run()
    launcher.launch(e1())

    assert 1 == len(master.drivers)


def test_a_silent_master_ends_no_execution(master: MasterInMemory, launcher: StandaloneLauncher) -> None:
    launcher.launch(e1())
    master.run()
    master.page_answers = False
    with pytest.raises(LaunchError, match="http://master:8080"):
        launcher.look([e1()])

    master.page_answers, master.rest_answers = True, False
    master.forgotten = {"driver-1"}
    assert UNKNOWN == launcher.look([e1()])[ExecutionId("e1")].state


@pytest.mark.parametrize("body", [b'{"success": false}', b"<html>", b"{}", b"[]"])
def test_an_answer_of_another_program_on_the_rest_port_ends_no_execution(
    master: MasterInMemory, clock: Clock, body: bytes
) -> None:
    def ask(method: str, url: str, path: str, sent: bytes | None) -> tuple[int, bytes] | None:
        return (200, body) if url == REST else master.ask(method, url, path, sent)

    stranger = StandaloneLauncher(StandaloneMaster(rest_url=REST, page_url=PAGE), PROGRAM, ask, clock)

    observed = seen(stranger, replace(e1(), handle="driver-9"))
    assert observed is not None
    assert UNKNOWN is observed.state
    with pytest.raises(LaunchError):
        stranger.launch(a_launch("e2"))


@pytest.mark.parametrize("status", ["RECOVERING", "STANDBY", "COMPLETING_RECOVERY"])
def test_an_inactive_master_gives_no_answer(
    master: MasterInMemory, launcher: StandaloneLauncher, status: str
) -> None:
    launcher.launch(e1())
    master.status = status

    for act in (lambda: launcher.look([e1()]), lambda: launcher.launch(a_launch("e2"))):
        with pytest.raises(LaunchError):
            act()
    with pytest.raises(LaunchError, match="could not be killed: the master says: Current state is not alive"):
        launcher.kill(e1())


def test_a_driver_that_the_master_has_forgotten_has_ended(
    master: MasterInMemory, launcher: StandaloneLauncher
) -> None:
    launcher.launch(e1())
    master.forgotten = {"driver-1"}

    observed = seen(launcher)

    assert observed is not None
    assert (ENDED, None) == (observed.state, observed.exit_code)


def test_a_missing_execution_has_ended_unless_an_unidentified_driver_waits(
    master: MasterInMemory, launcher: StandaloneLauncher, clock: Clock
) -> None:
    observed = seen(launcher, e1(phase=LaunchPhase.STOPPING))
    assert observed is not None
    assert (ENDED, "the master knows no driver of it") == (observed.state, observed.reason)

    launcher.launch(a_launch("e2", host="a"))
    assert None is seen(a_launcher(master, clock), e1(phase=LaunchPhase.STOPPING))


def test_a_failed_driver_has_no_exit_code_but_its_last_message(
    master: MasterInMemory, launcher: StandaloneLauncher
) -> None:
    launcher.launch(e1())
    master.run()
    master.end("FAILED")

    observed = seen(launcher)

    assert observed is not None
    assert None is observed.exit_code
    assert "driver FAILED: the task failed on kafka.in.0 at 7" == observed.reason


def test_a_driver_in_error_has_its_exception_as_the_reason(
    master: MasterInMemory, launcher: StandaloneLauncher
) -> None:
    launcher.launch(e1())
    text = "Exception from the cluster:\njava.nio.file.NoSuchFileException: /srv/flights.py\n\tat java.base/x"
    master.end("ERROR", message=text)

    observed = seen(launcher)

    assert observed is not None
    assert "driver ERROR: java.nio.file.NoSuchFileException: /srv/flights.py" == observed.reason


def test_a_launch_that_the_master_never_takes_has_ended(master: MasterInMemory, clock: Clock) -> None:
    def malformed(method: str, url: str, path: str, body: bytes | None) -> tuple[int, bytes] | None:
        if path.endswith("create"):
            body = json.dumps({**json.loads(body or b""), "appArgs": ["x"]}).encode()
        return master.ask(method, url, path, body)

    launcher = StandaloneLauncher(StandaloneMaster(rest_url=REST, page_url=PAGE), PROGRAM, malformed, clock)
    launcher.launch(e1())
    launcher.launch(e1())

    observed = seen(launcher)
    assert observed is not None
    assert (ENDED, "the master refuses e1: malformed") == (observed.state, observed.reason)
    assert 1 == master.asked.count("POST /v1/submissions/create")


def test_a_kill_without_a_driver_succeeds(master: MasterInMemory, launcher: StandaloneLauncher) -> None:
    launcher.kill(e1())
    launcher.launch(e1())
    for _ in range(2):
        launcher.kill(e1())

    assert "KILLED" == master.drivers["driver-1"]["state"]


@pytest.mark.parametrize("handle", ["driver-1/../../x", "4711@123456"])
def test_a_handle_that_is_no_id_of_a_driver_is_sent_nowhere_and_concerns_no_other_launch(
    master: MasterInMemory, launcher: StandaloneLauncher, handle: str
) -> None:
    """A job that was moved from one machine to a cluster has handles of processes."""
    launcher.launch(a_launch("e2", host="a"))
    master.run("driver-1", "worker-a")
    moved = replace(e1(phase=LaunchPhase.LAUNCHED), handle=handle)

    launched = launcher.look([a_launch("e2", host="a"), moved])
    launcher.kill(moved)

    assert {"e1": ENDED, "e2": RUNNING} == {str(name): seen.state for name, seen in launched.items()}
    assert not [asked for asked in master.asked if handle in asked]


def test_the_ids_of_drivers_may_have_any_pattern_of_the_master(
    master: MasterInMemory, launcher: StandaloneLauncher
) -> None:
    """As with `spark.deploy.driverIdPattern`."""
    master.driver_id = "job.2026-"
    launcher.launch(e1())
    master.run("job.2026-1", "worker-a")

    observed = seen(launcher)
    launcher.kill(e1())

    assert observed is not None
    assert (RUNNING, "job.2026-1") == (observed.state, observed.handle)
    assert "KILLED" == master.drivers["job.2026-1"]["state"]


def test_without_a_requested_host_the_one_with_the_most_room_is_chosen(
    master: MasterInMemory, launcher: StandaloneLauncher
) -> None:
    launcher.launch(a_launch("e2", host="a"))
    master.run("driver-1", "worker-a")

    launcher.launch(e1(host=""))

    assert "b" == master.drivers["driver-2"]["request"]["environmentVariables"]["SAMZAPY_HOST"]
    assert {"a": 1, "b": 2} == launcher.hosts()


@pytest.mark.parametrize(("host", "reason"), [("a", "a has 0 slots"), ("nowhere", "no living worker")])
def test_a_host_without_room_is_refused_before_a_submission(
    master: MasterInMemory, launcher: StandaloneLauncher, host: str, reason: str
) -> None:
    for number in (1, 2):
        launcher.launch(a_launch(f"other-{number}", host="a"))
        master.run(f"driver-{number}", "worker-a")

    with pytest.raises(LaunchError, match=f"no room for e1 on {host}: 2 cores and 2048 MiB; {reason}"):
        launcher.launch(e1(host))
    assert 2 == len(master.drivers)


def test_a_worker_with_too_few_cores_takes_nothing(clock: Clock) -> None:
    launcher = a_launcher(MasterInMemory("a", cores=1), clock)

    with pytest.raises(LaunchError, match="a has 2 slots, 1 cores and 8192 MiB free"):
        launcher.launch(e1())
    assert {"a": 0} == launcher.hosts()


def test_two_workers_of_one_host_have_room_together(master: MasterInMemory, launcher: StandaloneLauncher) -> None:
    master.workers["worker-a2"] = {**master.workers["worker-a"], "cores": 2}

    assert {"a": 2 + 1, "b": 2} == launcher.hosts()


def test_without_resources_no_particular_host_can_be_requested(clock: Clock) -> None:
    master = MasterInMemory("")
    launcher = a_launcher(master, clock)

    with pytest.raises(LaunchError, match=r"no resource host_10_0_0_1"):
        launcher.launch(e1("10.0.0.1"))
    launcher.launch(e1(""))

    assert [""] == [driver.host for driver in launcher.look([e1("")]).values()], (
        "the container reports the name of its host"
    )
    request = master.drivers["driver-1"]["request"]
    assert "SAMZAPY_HOST" not in request["environmentVariables"]
    assert not [name for name in request["sparkProperties"] if "resource" in name]
    assert {} == launcher.hosts()


def test_names_of_hosts_are_encoded_as_resources_and_decoded() -> None:
    page = parse_page(
        json.dumps(
            {
                "status": "ALIVE",
                "activedrivers": [],
                "completeddrivers": [],
                "workers": [
                    {
                        "id": "w",
                        "host": "10.0.0.7",
                        "webuiaddress": "http://x",
                        "state": "ALIVE",
                        "coresfree": 1,
                        "memoryfree": 1,
                        "resources": {host_label("node-7.rack.example"): {}},
                        "resourcesfree": {},
                    }
                ],
            }
        ).encode()
    )

    assert page is not None
    assert [("node-7.rack.example", 0)] == [(worker.host, worker.slots_free) for worker in page.workers]


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"status": "ALIVE"}', b'{"status": "ALIVE", "workers": [1]}', b"<html>", b"[" * 9999],
)
def test_a_page_of_another_program_is_refused(text: bytes) -> None:
    assert parse_page(text) is None
