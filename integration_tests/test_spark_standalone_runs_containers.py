"""The launcher on a real Spark master with three workers for all tests."""

from __future__ import annotations

import json
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from integration_tests.launched_run import LaunchedRun
from integration_tests.ledger_run import INPUT
from integration_tests.placed_on_spark import SparkStory
from integration_tests.seeds import printed_seed
from integration_tests.support.job_process import LONG_DRAIN, JobProcess
from integration_tests.support.ledger import describe_violations
from integration_tests.support.spark_cluster import Ports, SparkCluster, await_no_driver
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.reading import read_to_end
from samzapy.adapters.spark.standalone_launcher import StandaloneLauncher, StandaloneMaster
from samzapy.adapters.spark.submission import ContainerProgram
from samzapy.adapters.web.client import ask
from samzapy.cli.container.log_text import Log, appended, last_lines
from samzapy.cli.container.logs import log_of
from samzapy.errors import ConfigError, ExitCode, LaunchError, RejectedError
from samzapy.model.container import ContainerPhase
from samzapy.model.launch import Launch, Launched, LaunchedState, LaunchRole
from samzapy.model.placement import Action
from samzapy.model.topics import coordinator_topic
from samzapy.runtime.standalone_cluster import standalone_launcher
from samzapy.stream.codec import decode
from samzapy.stream.records import ContainerPut, LaunchPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.builders import a_config, a_launch
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

JOBS = Path(__file__).parent / "jobs"
PROGRAM = JOBS / "reports_its_start.py"
S = LaunchedState
_STARTS_WITHIN_S = 240.0
_GONE_WITHIN_S = 60.0
_NO_START_FOR_S = 20.0
"""A container that is to be replaced is launched within two seconds."""
_WITH_STATE = {"stores_sums_msg_serde": "json", "local_store_dir": "/data"}
_WITH_STANDBYS = {
    "stores_sums_msg_serde": "json",
    "local_store_dir": "/data",
    "job_standbytasks_replication_factor": "2",
}


class RunOnSpark(LaunchedRun):
    """A job of two processors, whose containers are drivers of the cluster."""

    def __init__(self, cluster: SparkCluster, directory: Path, *, seed: int) -> None:
        self._cluster = cluster
        super().__init__(directory, seed=seed, containers=2, hosts=dict.fromkeys(cluster.hosts(), 2))
        self.cluster_dir = cluster.directory

    def _cluster_settings(self, hosts: Mapping[str, int]) -> Mapping[str, str]:
        return {
            "cluster.manager": "standalone",
            "cluster-manager.container.cpu.cores": "1",
            "cluster.standalone.rest.url": self._cluster.rest_url,
            "cluster.standalone.page.url": self._cluster.page_url,
        }

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        # A test that failed leaves containers, and with them too little room for the tests after it.
        for process in self._cluster.drivers():
            process.send(signal.SIGKILL)
        await_no_driver(self._cluster, _GONE_WITHIN_S)

    def coordinator_process(self, log_dir: str) -> JobProcess:
        return self.another_job(log_dir, spark_options=(), command=("job", "submit"))

    def kill_whole_container(self, execution_id: str) -> None:
        """SIGKILL to all of its processes.

        Its driver in Python would go on for a moment without the JVM, and may end with an error of its own.
        """
        sent = [process.send(signal.SIGKILL) for process in self.processes(execution_id)]
        assert any(sent), "it ran"
        wait_until(lambda: not self.processes(execution_id), 60, f"{execution_id} to be gone")
        self.fault("container killed")

    def partitions_of(self, processor_id: str) -> list[int]:
        """The input partitions that the processor reads."""
        plan = self.state().plan
        return sorted(p.ssp.partition for task in plan if task.processor_id == processor_id for p in task.positions)

    def executions_of(self, processor_id: str) -> set[str]:
        """Every execution that was ever launched for the processor."""
        launches = (record.launch for record in self.stream() if isinstance(record, LaunchPut))
        return {str(launch.execution_id) for launch in launches if launch.processor_id == processor_id}

    def lose_range(self, partition: int) -> int:
        """Write and delete records outside the ledger; returns the new begin offset."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        offsets: list[int] = []
        for _ in range(3):
            producer.produce(
                INPUT, b"{}", b"deleted", partition, on_delivery=lambda _, message: offsets.append(message.offset())
            )
        assert 0 == producer.flush(30)
        begin = max(offsets) + 1
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        (deleted,) = admin.delete_records([TopicPartition(INPUT, partition, begin)]).values()
        assert begin == deleted.result(30).low_watermark
        return begin

    def suspended(self) -> list[str]:
        """The subjects of the findings of `samzapy job status` about suspended processors."""
        answer = self.samzapy("job", "status", "-o", "json")
        assert answer.returncode in (ExitCode.OK, ExitCode.DEGRADED), answer.stderr
        findings = json.loads(answer.stdout)["findings"]
        return [finding["subject"] for finding in findings if finding["code"] == "processor-suspended"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster(workers=3, slots=2) as running:
        yield running


@pytest.fixture
def run(cluster: SparkCluster, tmp_path: Path) -> Iterator[Run]:
    made = Run(cluster, tmp_path)
    yield made
    made.kill_all()


class Run:
    """Executions on the cluster, and the launcher of one coordinator."""

    def __init__(self, cluster: SparkCluster, directory: Path) -> None:
        self.cluster = cluster
        self._directory = directory
        self._launches: list[Launch] = []
        self.launcher = self.another_launcher()

    def another_launcher(self) -> StandaloneLauncher:
        """One that knows nothing yet, as that of the next coordinator."""
        files = [f"{name}={self._directory}/{name}" for name in ("report", "exit_code")]
        program = ContainerProgram(
            job="where-1", job_file=str(PROGRAM), overrides=files, python=sys.executable, memory_mib=512
        )
        master = StandaloneMaster(rest_url=self.cluster.rest_url, page_url=self.cluster.page_url)
        return StandaloneLauncher(master, program, partial(ask, timeout_ms=10_000, bytes_max=4 * 1024 * 1024))

    def launch(self, execution_id: str, host: str) -> Launch:
        launch = a_launch(f"{self._directory.name}-{execution_id}", processor_id="7", host=host)
        self._launches.append(launch)
        wait_until(
            lambda: self._is_launched(launch), 60, f"{launch.execution_id} to be launched", poll_interval_s=0.3
        )
        return launch

    def _is_launched(self, launch: Launch) -> bool:
        """Ask again for a launch that is not possible now, as a coordinator does."""
        try:
            self.launcher.launch(launch)
        except LaunchError:
            return False
        return True

    def seen(self, launch: Launch, launcher: StandaloneLauncher | None = None) -> Launched:
        """The answer of a launcher; silence is a state of its own here."""
        try:
            launched = (launcher or self.launcher).look([launch])
        except LaunchError as error:
            return Launched(state=S.UNKNOWN, reason=str(error))
        return launched.get(launch.execution_id, Launched(state=S.UNKNOWN, reason="it is left out"))

    def wait(self, launch: Launch, state: LaunchedState, reason: str = "") -> Launched:
        """Wait until it is in `state`, with `reason` in the reason."""

        def reached() -> Launched | None:
            launched = self.seen(launch)
            return launched if launched.state is state and reason in launched.reason else None

        return wait_until(reached, _STARTS_WITHIN_S, f"{launch.execution_id} to be {state}", poll_interval_s=0.3)

    def start_report(self, launch: Launch) -> dict[str, Any]:
        path = self._directory / f"report-{launch.execution_id}"
        wait_until(path.exists, _STARTS_WITHIN_S, f"{launch.execution_id} to report its start")
        return dict(json.loads(path.read_text()))

    def process(self, launch: Launch) -> ProcessIdentity:
        return ProcessIdentity.of(self.start_report(launch)["pid"])

    def log(self, launch: Launch) -> Log:
        """Its log on its worker's page, as `samzapy container logs` reads it."""
        launched = self.wait(launch, S.RUNNING)
        return log_of(
            replace(launch, handle=launched.handle, host_found=launched.host),
            a_config(cluster_standalone_page_url=self.cluster.page_url),
        )

    def stderr_file(self, launch: Launch) -> Path:
        """The file that the worker's page is a view of."""
        launched = self.seen(launch)
        (path,) = (self.cluster.directory / launched.host).rglob(f"{launched.handle}/stderr")
        return path

    def end_with(self, launch: Launch, code: int) -> None:
        (self._directory / f"exit_code-{launch.execution_id}").write_text(str(code))

    def drivers_on_the_page(self) -> list[Any]:
        """The running drivers, as the master lists them."""
        page = wait_until(self.cluster.page, 60, "the master's page", poll_interval_s=0.3)
        return list(page["activedrivers"])

    def kill_all(self) -> None:
        if not any(self.cluster.processes().values()):
            return
        for launch in self._launches:
            self.launcher.kill(launch)
        await_no_driver(self.cluster, _GONE_WITHIN_S)


def test_a_container_runs_with_its_own_cores_on_the_host_that_it_is_wanted_on(run: Run) -> None:
    launch = run.launch("e1", "w2")

    launched = run.wait(launch, S.RUNNING)
    report = run.start_report(launch)

    assert "w2" == launched.host
    assert ("local[1,1]", 10) == (report["master"], report["rows"])
    assert "7" == report["settings"]["processor.id"]
    environment = report["environment"]
    assert (launch.execution_id, "w2") == (environment["EXECUTION_ENV_CONTAINER_ID"], environment["SAMZAPY_HOST"])
    assert str(run.cluster.directory / "w2" / "state") == environment["SAMZAPY_SET_LOCAL_STORE_DIR"]
    assert {"w1": 2, "w2": 1, "w3": 2} == run.launcher.hosts()

    process = run.process(launch)
    run.launcher.launch(launch)
    run.another_launcher().launch(launch)
    assert 1 == len(run.drivers_on_the_page()), "started once, by whomever it is asked for"

    run.launcher.kill(launch)
    ended = run.wait(launch, S.ENDED)
    assert "driver KILLED" == ended.reason
    assert process.wait_gone(60)
    run.launcher.kill(launch)


@pytest.mark.parametrize(("code", "exit_code"), [(0, 0), (7, None)])
def test_the_history_shows_how_a_container_ended(run: Run, code: int, exit_code: int | None) -> None:
    launch = run.launch("e1", "w1")
    run.start_report(launch)
    log, file = run.log(launch), run.stderr_file(launch)
    length = log.length()
    assert 0 < length
    assert file.read_bytes()[:length] == log.read(0, length)

    run.end_with(launch, code)
    # A worker copies its driver's output in a thread of its own, which may be late.
    ended = run.wait(launch, S.ENDED, reason=":" if code else "")

    assert exit_code == ended.exit_code
    assert ("driver FAILED: asked to end with 7" if code else "driver FINISHED") == ended.reason
    assert ended == run.seen(launch, run.another_launcher()), "a later launcher adopts it, and sees the same"
    last_line = f"samzapy: asked to end with {code}\n".encode()
    wait_until(lambda: last_line in file.read_bytes(), 60, "the worker to write the last line")
    assert last_line in next(appended(log, length, lambda: pytest.fail("nothing was appended"))), "also after its end"
    lines = file.read_bytes().splitlines(keepends=True)
    assert b"".join(lines[-2:]) == last_lines(log, 2, sum(map(len, lines)))


def test_a_full_host_takes_no_container_and_queues_none(run: Run) -> None:
    for number in range(2):
        run.wait(run.launch(f"e{number}", "w3"), S.RUNNING)

    with pytest.raises(LaunchError, match="no room for e9 on w3: .*w3 has 0 slots"):
        run.launcher.launch(a_launch("e9", host="w3"))
    assert 2 == len(run.drivers_on_the_page())


def test_a_silent_killed_or_restarted_master_ends_no_container(run: Run) -> None:
    launch = run.launch("e1", "w2")
    run.wait(launch, S.RUNNING)
    process = run.process(launch)
    master = run.cluster.living("master")

    assert master.send(signal.SIGSTOP)
    wait_until(master.is_stopped, 10, "the master to stop")
    assert S.UNKNOWN is run.seen(launch).state
    run.cluster.kill_one("master")
    assert S.UNKNOWN is run.seen(launch).state
    seen = sees_until_running(
        run, launch, lambda: start_master_slowly(run.cluster, answered_by="w2", after_that="w1")
    )

    assert not run.cluster.drivers_ended_by_recovery(), "by Spark itself"
    assert S.ENDED not in seen
    assert process.is_alive(), "the very process that ran before"
    assert S.RUNNING is run.seen(launch, run.another_launcher()).state


def sees_until_running(run: Run, launch: Launch, act: Callable[[], None]) -> set[LaunchedState]:
    act()
    seen: set[LaunchedState] = set()

    def is_back() -> bool:
        seen.add(run.seen(launch).state)
        return S.RUNNING in seen

    wait_until(is_back, 120, "the container to be seen again", poll_interval_s=0.3)
    return seen


def start_master_slowly(cluster: SparkCluster, *, answered_by: str, after_that: str) -> None:
    """Start the master, whose recovery waits until a worker has named its drivers.

    Otherwise Spark may end these drivers (`SparkCluster.drivers_ended_by_recovery`). The recovery waits for the worker
    `after_that`, which is silent until `answered_by` has answered.
    """
    met, silent = cluster.masters_met(answered_by), cluster.living(after_that)
    with ThreadPoolExecutor(1) as pool:
        assert silent.send(signal.SIGSTOP)
        try:
            started = pool.submit(cluster.start_one, "master")
            wait_until(
                lambda: cluster.masters_met(answered_by) > met,
                _STARTS_WITHIN_S,
                f"{answered_by} to answer the master",
            )
        finally:
            silent.send(signal.SIGCONT)
        started.result()


def test_a_dying_worker_ends_its_own_containers_and_no_others(run: Run) -> None:
    launch, other = run.launch("e1", "w1"), run.launch("e2", "w3")
    process, elsewhere = run.process(launch), run.process(other)

    run.cluster.kill_one("w1")

    assert process.wait_gone(60), "the driver watches its worker"
    run.wait(launch, S.ENDED)
    assert elsewhere.is_alive()
    run.cluster.start_one("w1")
    assert "w1" in run.launcher.hosts()


def test_a_job_runs_as_a_driver_and_drains_when_it_is_killed(
    cluster: SparkCluster, broker: DevBroker, tmp_path: Path
) -> None:
    name, servers = f"on-spark-{uuid.uuid4().hex[:8]}", broker.bootstrap_servers
    fed, sums, without_key = (f"{topic}-{name}" for topic in ("fed", "sums", "without-key"))
    make_topics(servers, {fed: 2, sums: 1, without_key: 1})
    job_file = tmp_path / "job.py"
    source = (JOBS / "running_sums.py").read_text()
    job_file.write_text(source.replace('os.environ.get("RUNNING_SUMS_SUFFIX", "")', f'"-{name}"'))
    (tmp_path / "job.properties").write_text((JOBS / "running_sums.properties").read_text())
    settings = {
        "job.name": name,
        "task.inputs": f"kafka.{fed}",
        "systems.kafka.bootstrap.servers": servers,
        **LONG_DRAIN,
    }
    overrides = [f"{key}={value}" for key, value in settings.items()]
    config = a_config(
        job_name=name, cluster_standalone_rest_url=cluster.rest_url, cluster_standalone_page_url=cluster.page_url
    )
    launcher = standalone_launcher(config, job_file, None, overrides)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(60):
        producer.produce(fed, json.dumps({"x": 1}), f"k{number % 3}", number % 2)
    assert 0 == producer.flush(30)
    launch = a_launch(f"{name}-e1", processor_id="7", host="w2")

    launcher.launch(launch)
    connection = KafkaConnection(bootstrap_servers=servers)
    wait_until(
        lambda: len(list(read_to_end(connection, sums))) == 60,
        _STARTS_WITHIN_S,
        "every message to be done",
        poll_interval_s=1.0,
    )
    assert (cluster.directory / "w2" / "state" / f"{name}-1").is_dir(), "the state of w2 is apart from others'"
    launcher.kill(launch)
    wait_until(lambda: not cluster.drivers(), 60, "every process of it to end")

    topic = coordinator_topic(f"{name}-1")
    records = (decode(record, topic=topic) for record in read_to_end(connection, topic))
    phases = [record.container for record in records if isinstance(record, ContainerPut)]
    assert (launch.execution_id, "7", ContainerPhase.STOPPED, "drained") == (
        phases[-1].execution_id,
        phases[-1].processor_id,
        phases[-1].phase,
        phases[-1].reason,
    )


@pytest.mark.ledger
@pytest.mark.timeout(1500)
def test_a_processor_that_lost_input_is_suspended_until_a_rewind_and_the_others_continue(
    cluster: SparkCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("a lost input range on Spark", "SAMZAPY_SUSPENDED_SEED", capsys)
    with RunOnSpark(cluster, tmp_path, seed=seed) as run:
        run.feed(100)
        run.job.start()
        first = run.wait_runners(2)
        run.wait(lambda: run.watcher.count() > 0, 300, "the first output")
        run.feeder.stop()
        run.wait(lambda: run.watcher.count() == len(run.ledger.acked), 120, "every record to be answered")
        partitions = run.partitions_of("1")

        run.kill_whole_container(first["1"].execution_id)
        begin = run.lose_range(partitions[0])
        run.wait(lambda: run.suspended() == ["processor 1"], _STARTS_WITHIN_S, "the processor to be suspended")
        executions = run.executions_of("1")
        assert 2 == len(executions), "the one that was killed, and the one that found the range lost"
        status = run.samzapy("job", "status")
        assert ExitCode.DEGRADED == status.returncode
        for text in ("processor 1 waits without a container", f"exit code {ExitCode.BAD_DATA:d}", f"{begin}"):
            assert text in status.stdout, status.stdout
        for way_out in ("samzapy job rewind", "task.lost.range.accept", "samzapy job restart --processor 1"):
            assert way_out in status.stdout, status.stdout

        # One record more for each partition: those of the other processor are answered.
        run.feeder.stop()
        run.wait(
            lambda: run.watcher.count() == len(run.ledger.acked) - len(partitions),
            120,
            "the other processor to answer",
        )
        until_s = time.monotonic() + _NO_START_FOR_S
        run.wait(lambda: time.monotonic() >= until_s, 2 * _NO_START_FOR_S, "the time of a restart to go by")
        assert executions == run.executions_of("1"), "it was not started again"
        assert {"0": first["0"]} == run.runners()

        place = ("--stream", f"kafka.{INPUT}", "--partition", str(partitions[0]), "--to", "oldest")
        rewound = run.samzapy("job", "rewind", *place, "--expiry", "300", "--timeout", "300")
        assert 0 == rewound.returncode, rewound.stderr
        again = run.wait_runners(2, without=sorted(executions))
        assert first["0"] == again["0"]
        run.wait(lambda: run.suspended() == [], 60, "the status to name no suspended processor")
        violations = run.finish()

        assert not violations, f"SAMZAPY_SUSPENDED_SEED={seed}: {describe_violations(violations)}"


def test_standbys_of_one_round_are_on_workers_of_their_own(cluster: SparkCluster) -> None:
    with closing(SparkStory(cluster, count=2, settings=_WITH_STANDBYS)) as job:
        job.settles(20)

        assert {"w1", "w2"} == {job.host_of("0"), job.host_of("1")}
        standbys = [job.host_of("0-0"), job.host_of("1-0")]
        assert "" not in standbys
        assert 2 == len(set(standbys)), standbys
        assert 4 == len(job.started), "none was started in vain"

        # As when the workers under both are lost at once.
        lost = [name for name, process in job.processes.items() if process.launch.role is LaunchRole.STANDBY]
        assert 2 == len(lost)
        for name in lost:
            job.ends(name, 137)
        job.settles(30)

        standbys = [job.host_of("0-0"), job.host_of("1-0")]
        assert "" not in standbys
        assert 2 == len(set(standbys)), standbys


def test_two_moves_to_any_host_of_one_poll_are_to_different_workers(cluster: SparkCluster) -> None:
    with closing(SparkStory(cluster, count=2, settings=_WITH_STATE)) as job:
        job.settles(20)
        job.letters = "ab"
        for letter, processor_id in zip("ab", "01", strict=True):
            job.ask(ord(letter), Action.PLACE_CONTAINER, processor_id=processor_id, destination_host="ANY_HOST")
        job.reads()

        job.settles(30)

        answers = job.answers()
        assert ["SUCCEEDED", "SUCCEEDED"] == [answers[letter].split()[0] for letter in "ab"], answers
        assert 2 == len(set(job.drivers())) == len(job.drivers()), job.drivers()
        assert 4 == len(job.started), "none was started in vain"


def test_a_container_whose_worker_is_full_is_started_on_another_one(cluster: SparkCluster) -> None:
    with closing(SparkStory(cluster, count=1, settings={})) as job:
        here = job.host_of("0")
        job.ends(job.launch_of("0").execution_id, 137)
        job.fills(here, 2)
        assert 0 == job.hosts()[here], "as the master reports it"

        job.settles(30)

        assert job.host_of("0") in {"w1", "w2", "w3"} - {here}
        assert [1] == [launch.failures for launch in job.state.launches.values()], "the one that ended, and no start"


def test_a_standby_reaches_the_worker_in_another_rack(cluster: SparkCluster) -> None:
    domains = {"w1": "rack-1", "w2": "rack-1", "w3": "rack-2"}
    aware = _WITH_STANDBYS | {"cluster-manager_fault-domain-aware_standby_enabled": "true"}
    with closing(SparkStory(cluster, count=1, settings=aware, domains=domains)) as job:
        job.settles(60)

        assert ("w1", "w3") == (job.host_of("0"), job.host_of("0-0"))
        assert ["w1", "w2", "w3"] == [job.processes[name].host for name in job.started], "each was tried once"


def test_a_running_cluster_is_accepted_again_only_with_the_same_shape(cluster: SparkCluster) -> None:
    before = cluster.processes()
    cluster.start()

    assert before == cluster.processes()
    with pytest.raises(RejectedError, match="runs already, with workers 3, slots 2.*asked for was workers 2"):
        SparkCluster(cluster.directory, workers=2, slots=2).start()


def test_a_port_that_is_taken_is_named(cluster: SparkCluster, tmp_path: Path) -> None:
    taken = int(cluster.rest_url.rpartition(":")[2])

    with pytest.raises(ConfigError, match=f"Port {taken} .* is wanted for the REST server of Spark's master"):
        SparkCluster(tmp_path, workers=1, ports=Ports(rest_port=taken)).start()


def test_a_stopped_cluster_leaves_no_process(run: Run) -> None:
    """Also of a stopped driver. The last test: there is no cluster afterwards."""
    cluster = run.cluster
    process = run.process(run.launch("e1", "w1"))
    assert process.send(signal.SIGSTOP)
    wait_until(process.is_stopped, 10, "it to stop")
    left = [*cluster.drivers(), *filter(None, cluster.processes().values())]

    cluster.stop()

    assert process in left
    assert not [process for process in left if process.is_alive()]
    assert 0 == cluster.stop()
