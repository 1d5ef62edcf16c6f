"""A job with real passwords runs, and no other user can read one of them.

Three places must have one. The properties file has the values that are written in it. The environment of the job's own
processes has the variable that `${env:NAME}` names: the coordinator and each driver resolve it, spark-submit's JVM
starts the driver, and Python workers inherit it, because it is the environment of the user's code. All of them run as
the user of the job, who alone can read `/proc/<pid>/environ`. A Spark master that recovers keeps the environment of
each driver that it starts, with the credential of its execution. Its own user alone can read that directory.
"""

from __future__ import annotations

import base64
import json
import re
import resource
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Producer

from integration_tests.support.canaries import Search, answer_of_spark, ask, listening
from integration_tests.support.job_process import JobProcess
from integration_tests.support.spark_cluster import SparkCluster
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.host.scratch import scratch_directories
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.reading import read_to_end
from samzapy.adapters.spark.java_properties import jaas
from samzapy.model.credential import CREDENTIAL_VARIABLE, Scope, credential
from samzapy.runtime.job_config import read_config
from samzapy.runtime.submission import read_state
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import wants_containers
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

VARIABLE = "KEY_PASSWORD_OF_ADA"
STARTS_WITHIN_S = 420.0
MESSAGES = 20
_CREDENTIAL_OF = "credential of "
SAMZAPY = Path(sys.executable).with_name("samzapy")
TASK = """
import samzapy

@samzapy.task
def counts(envelope, collector, context):
    store = context.store("counts")
    store.put((store.get() or 0) + 1)
    if envelope.key == "bad":
        raise ValueError(f"the configuration is {dict(context.config)}")
    # A task that sends its whole configuration on sends no secret.
    collector.send("COUNTED", {"config": dict(context.config)}, key=envelope.key)

if __name__ == "__main__":
    samzapy.run()
"""


class Secured:
    """A broker that wants a password, a job that has it, and the canaries of both."""

    def __init__(self, directory: Path, broker: DevBroker, password: str, name: str) -> None:
        self.directory = directory
        self.broker = broker
        self.name = name
        self.job = f"{name}-1"
        self.canaries = {
            "password": password,
            "variable": f"canary-of-a-variable-{uuid.uuid4().hex}",
            "nested": f"canary-in-json-{uuid.uuid4().hex}",
            "long": f"canary-in-a-long-text-{uuid.uuid4().hex}",
            "secret": f"canary-of-the-coordinator-{uuid.uuid4().hex}",
        }
        self.token = credential(self.canaries["secret"], self.job, Scope.READ, "searcher")
        self.canaries["token"] = mac_of(self.token)
        self.properties = directory / "job" / "counts.properties"
        self.secret_file = self.properties.with_suffix(".secret")
        self.job_file = self.properties.with_suffix(".py")
        self.properties.parent.mkdir(parents=True)
        self.job_file.write_text(TASK.replace("COUNTED", self.topic("counted")))
        self.secret_file.touch(0o600)
        self.secret_file.write_text(self.canaries["secret"])
        self.properties.touch(0o600)
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))

    def _settings(self) -> Mapping[str, str]:
        client = "systems.kafka.client"
        nested = json.dumps({"vault": {"keys": [{"text": self.canaries["nested"]}]}})
        return {
            "job.name": self.name,
            "job.coordinator.secret": f"file:{self.secret_file}",
            "task.inputs": f"kafka.{self.topic('fed')}",
            "task.error.policy": "dead-letter",
            "task.dead.letter.output": f"kafka.{self.topic('dead')}",
            "systems.kafka.bootstrap.servers": self.broker.secured_servers,
            "systems.kafka.samza.offset.default": "oldest",
            "systems.kafka.samza.key.serde": "string",
            "systems.kafka.samza.msg.serde": "json",
            "stores.counts.msg.serde": "json",
            "local.store.dir": str(self.directory / "own-state"),
            f"{client}.security.protocol": "sasl_plaintext",
            f"{client}.sasl.mechanisms": "PLAIN",
            f"{client}.sasl.username": "ada",
            f"{client}.sasl.password": self.canaries["password"],
            # Compressed, a secret in a segment would not be seen.
            f"{client}.compression.type": "none",
            f"{client}.ssl.key.password": f"${{env:{VARIABLE}}}",
            f"{client}.ssl.keystore.password": nested,
            # 10 kB, so that any printed part of it, also its middle, shows a canary.
            f"{client}.ssl.key.pem": ",".join([self.canaries["long"]] * 200),
            f"{client}.ssl.certificate.pem": "none",
        }

    def topic(self, purpose: str) -> str:
        return f"{self.name}-{purpose}"

    @property
    def plain(self) -> KafkaConnection:
        return KafkaConnection(bootstrap_servers=self.broker.bootstrap_servers)

    def make_topics(self) -> None:
        make_topics(
            self.broker.bootstrap_servers, {self.topic("fed"): 2, self.topic("counted"): 1, self.topic("dead"): 1}
        )

    def search(self) -> Search:
        return Search(self.canaries)

    def note_executions(self) -> None:
        """Make canaries of the credentials of all executions so far."""
        config = read_config(self.properties, self.properties, (), {VARIABLE: "v"})
        executions = read_state(config, self.plain).containers
        assert executions, "a container has registered"
        for execution_id in executions:
            own = credential(self.canaries["secret"], self.job, Scope.HEARTBEAT, execution_id)
            self.canaries[f"{_CREDENTIAL_OF}{execution_id}"] = mac_of(own)

    def feed(self) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number in range(MESSAGES):
            producer.produce(self.topic("fed"), b"1", f"k{number % 3}", number % 2)
        producer.produce(self.topic("fed"), b"1", "bad", 0)
        assert 0 == producer.flush(30)

    def has_worked(self) -> bool:
        counts = [len(list(read_to_end(self.plain, self.topic(purpose)))) for purpose in ("counted", "dead")]
        return counts == [MESSAGES, 1]

    def command(self, *arguments: str, variable: str | None = None) -> bytes:
        """The output of a command about the job's own properties file."""
        environment = {VARIABLE: variable or self.canaries["variable"], "PATH": "/usr/bin:/bin"}
        command = [str(SAMZAPY), *arguments, "--config", str(self.properties)]
        ran = subprocess.run(command, capture_output=True, timeout=120, env=environment, cwd=self.directory)
        return ran.stdout + ran.stderr


def mac_of(token: str) -> str:
    """The secret part of a credential."""
    return token.rpartition(".")[2]


@pytest.fixture(scope="module")
def password() -> str:
    return f"canary-of-the-broker-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def broker(password: str) -> Iterator[DevBroker]:
    if wants_containers():
        pytest.skip("needs a listener of its own, and the files of its broker: the local broker")
    users = jaas("org.apache.kafka.common.security.plain.PlainLoginModule", user_ada=password)
    overrides = {"sasl.enabled.mechanisms": "PLAIN", "listener.name.secured.plain.sasl.jaas.config": users}
    with DevBroker(secured="SASL_PLAINTEXT", overrides=overrides) as started:
        yield started


@pytest.fixture(scope="module")
def core_files_as_large_as_may_be() -> Iterator[None]:
    """As under systemd, whose services may write core files of any size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@pytest.fixture(scope="module")
def both(
    broker: DevBroker,
    password: str,
    core_files_as_large_as_may_be: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Submitted, Submitted]]:
    """A job of processes and one on a Spark cluster, started together, both at work."""
    directory = tmp_path_factory.mktemp("secured")
    of_processes = Secured(directory / "p", broker, password, "processes")
    on_spark = Secured(directory / "s", broker, password, "standalone")
    with ExitStack() as running:
        cluster = running.enter_context(cluster_with_variable(on_spark))
        jobs = (job_of_processes(of_processes), job_on_spark(on_spark, cluster))
        for job in jobs:
            running.enter_context(job)
        for job in jobs:
            job.wait_worked()
        yield jobs


@contextmanager
def cluster_with_variable(secured: Secured) -> Iterator[SparkCluster]:
    """A cluster whose worker has the variable, as its guide asks for each host."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(VARIABLE, secured.canaries["variable"])
        cluster = SparkCluster(secured.directory / "spark", workers=1, slots=2)
        cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def job_of_processes(secured: Secured) -> Submitted:
    overrides = {"cluster.process.dir": str(secured.directory / "cluster"), "cluster.process.hosts": "h1:2"}
    events = secured.directory / "events"
    events.mkdir()
    shown = ("--master", "local[1]", "--conf", "spark.ui.enabled=true", "--conf", "spark.ui.port=0")
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
    }
    options = (*shown, *(part for name, value in logged.items() for part in ("--conf", f"{name}={value}")))
    return Submitted(secured, "process", overrides, options)


def job_on_spark(secured: Secured, cluster: SparkCluster) -> Submitted:
    overrides = {"cluster.standalone.rest.url": cluster.rest_url, "cluster.standalone.page.url": cluster.page_url}
    return Submitted(secured, "standalone", overrides, (), cluster)


@pytest.mark.timeout(2400)
def test_no_secret_of_a_job_of_processes_is_found(both: tuple[Submitted, Submitted]) -> None:
    job, _ = both
    secured = job.secured
    secured.note_executions()
    search, processes = secured.search(), job.process.left_behind()
    look_at_processes(search, processes)
    ports = listening(process.pid for process in processes)
    assert {"127.0.0.1"} == {address for address, _ in ports}
    refusing = ports_that_refuse([port for _, port in ports])
    pages = [page for _, port in ports if port not in refusing for page in look_at_pages(search, port, secured.token)]
    assert any("/environment" in page for page in pages), "Spark's UI was searched"
    assert any("StreamingQuery" in page for page in pages)
    assert "/jobModel" in pages, "the coordinator was searched"
    events = secured.directory / "events"
    assert any(
        path.name.startswith("events") or "app-" in path.name or "local-" in path.name for path in events.rglob("*")
    )
    look_at_commands(search, secured)
    job.process.terminate()
    look_at_files(search, secured)

    assert [] == search.hits, f"{search.files} files, {search.byte_count} bytes"
    assert search.files > 20


@pytest.mark.timeout(2400)
def test_no_secret_of_a_job_on_a_spark_cluster_is_found(both: tuple[Submitted, Submitted]) -> None:
    _, job = both
    secured, cluster = job.secured, job.cluster
    assert cluster is not None
    secured.note_executions()
    search, drivers = secured.search(), cluster.drivers()
    look_at_processes(search, [*job.process.left_behind(), *drivers], has_own_jvm=False)
    page = cluster.page()
    assert page is not None and page["activedrivers"], "a driver runs"
    worker = page["workers"][0]["webuiaddress"]
    for url in (cluster.page_url, worker):
        assert len(search.pages(url, ["/", "/json/"])) > 2
    for driver in page["activedrivers"]:
        search.text("log", ask(worker, "GET", f"/logPage/?driverId={driver['id']}&logType=stderr"))
        search.text("status", ask(cluster.rest_url, "GET", f"/v1/submissions/status/{driver['id']}"))
    assert list((cluster.directory / "w1" / "work").rglob("stderr"))
    look_at_recovery(search, secured, cluster)
    job.process.terminate()
    cluster.stop()
    # A driver that ends after its master stays in the master's list.
    look_at_files(search, secured, but=[*cluster.recovery_directory.iterdir()])

    assert [] == search.hits, f"{search.files} files, {search.byte_count} bytes"


def test_the_search_finds_each_canary_where_there_is_one(broker: DevBroker, password: str, tmp_path: Path) -> None:
    """In files in three spellings, in a command, and in an environment."""
    secured = Secured(tmp_path, broker, password, "searched")
    search = secured.search()
    search.tree(secured.properties.parent)
    expected = [f"{secured.properties}: {name}" for name in ("password", "nested", "long")]
    assert sorted([*expected, f"{secured.secret_file}: secret"]) == sorted(search.hits)

    canary = secured.canaries["password"]
    for text in (f"user:{canary}", f"-{canary}"):
        again = secured.search()
        again.text("base64", base64.b64encode(text.encode()))
        again.text("utf-16", text.encode("utf-16"))
        assert ["base64: password", "utf-16: password"] == again.hits

    command = [sys.executable, "-c", "input()", canary]
    environment = {"SHOWN": secured.canaries["nested"], VARIABLE: secured.canaries["variable"]}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        wait_until(lambda: Path(f"/proc/{process.pid}/environ").read_bytes(), 10, "the environment to be there")
        of_process = secured.search()
        of_process.process(process.pid, may_have=[VARIABLE])
        process.communicate(b"\n")
    assert ["password", "nested"] == [hit.rpartition(" ")[2] for hit in of_process.hits]


class Submitted:
    """A job that is submitted, and ended at the end."""

    def __init__(
        self,
        secured: Secured,
        manager: str,
        overrides: Mapping[str, str],
        options: tuple[str, ...],
        cluster: SparkCluster | None = None,
    ) -> None:
        self.secured = secured
        self.cluster = cluster
        self.process = JobProcess(
            secured.job_file,
            log_dir=secured.directory / "logs",
            overrides={
                "cluster.manager": manager,
                "job.container.count": "1",
                # Both jobs start at the same time, each with a JVM for its driver.
                "cluster-manager.container.request.timeout.ms": "300000",
                **overrides,
            },
            spark_options=options,
            environment={VARIABLE: secured.canaries["variable"]},
            command=("job", "submit"),
        )

    def __enter__(self) -> Self:
        self.secured.make_topics()
        self.secured.feed()
        self.process.start()
        return self

    def wait_worked(self) -> None:
        def has_worked() -> bool:
            assert self.process.is_running(), self.process.log_text()[-4000:]
            return self.secured.has_worked()

        self.process.wait_until(has_worked, STARTS_WITHIN_S, "the job to work on its messages")

    def __exit__(self, *error: object) -> None:
        self.process.kill_everything()


def look_at_processes(
    search: Search, processes: list[ProcessIdentity] | tuple[ProcessIdentity, ...], *, has_own_jvm: bool = True
) -> None:
    """Commands, environments, limits and directories of the job's own processes."""
    assert len(processes) >= 4, "a coordinator, spark-submit's JVM, a driver, and the daemon of its workers"
    for process in processes:
        search.process(process.pid, may_have=[VARIABLE, CREDENTIAL_VARIABLE])
        try:
            command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            limits = Path(f"/proc/{process.pid}/limits").read_text()
        except (FileNotFoundError, ProcessLookupError):  # An idle worker that Spark ends right now.
            continue
        if has_own_jvm or b"java" not in command.partition(b"\0")[0]:
            assert re.search(r"Max core file size +0 ", limits), f"{command!r} may write a core file"
    owned = {process.pid for process in processes}
    others = [
        int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) not in owned
    ]
    for pid in others:
        # The worker of a Spark cluster has the variable of its containers.
        search.process(pid, may_have=[VARIABLE])
    scratch = [path for path in scratch_directories() if owner_pid(path) in owned]
    assert scratch
    for path in scratch:
        assert 0o700 == path.stat().st_mode & 0o777
        search.tree(path)


def ports_that_refuse(ports: Sequence[int]) -> Sequence[int]:
    """The ports of the driver's messages and of its blocks.

    Both deserialize bytes of trusted peers.
    """
    answers = dict.fromkeys(ports, b"")

    def refusing() -> Sequence[int] | None:
        answers.update({port: answer_of_spark(port) for port, answer in answers.items() if not answer})
        refused = [port for port, answer in answers.items() if b"Expected SaslMessage" in answer]
        return refused if len(refused) >= 2 else None

    return wait_until(refusing, 60.0, "two ports of Spark that refuse a stranger")


def owner_pid(scratch: Path) -> int | None:
    """The process of a scratch directory; None for one that is being made or removed."""
    try:
        return int((scratch / "owner").read_text().split()[1])
    except (FileNotFoundError, IndexError):
        return None


def look_at_pages(search: Search, port: int, token: str) -> list[str]:
    """The answers of a port with an HTTP server.

    Args:
        token: for the coordinator, whose pages are also looked at without it.
    """
    url = f"http://127.0.0.1:{port}"
    of_coordinator = [
        "/",
        "/status",
        "/jobModel",
        "/metrics",
        "/containerHeartbeat?executionContainerId=x",
        "/nothing",
    ]
    if ask(url, "GET", "/status").startswith(b"401"):
        search.pages(url, of_coordinator)
        for body in (b"{}", b"not json", b'{"job": "processes-1"}'):
            for of_request in ("", token):
                search.text(f"{url} POST", ask(url, "POST", "/containerHeartbeat", body, token=of_request))
        assert b'"job"' in ask(url, "GET", "/status", token=token), "the credential is good"
        return search.pages(url, of_coordinator, token=token)
    applications = ask(url, "GET", "/api/v1/applications").partition(b"\n\n")[2]
    if not applications.startswith(b"["):
        return []
    (application,) = json.loads(applications)
    of_spark = [
        f"/api/v1/applications/{application['id']}{path}"
        for path in ("/environment", "/sql?details=true", "/jobs", "/stages", "/allexecutors")
    ]
    return search.pages(url, ["/", "/environment/", "/SQL/", "/StreamingQuery/", *of_spark])


def look_at_recovery(search: Search, secured: Secured, cluster: SparkCluster) -> None:
    """Search the master's list of drivers, which has credentials of executions."""
    directory = cluster.recovery_directory
    assert 0o700 == directory.stat().st_mode & 0o777
    of_drivers = secured.search()
    of_drivers.tree(directory)
    names = {hit.rpartition(": ")[2] for hit in of_drivers.hits}
    assert names, "the list was searched"
    search.hits.extend(f"{directory}: {name}" for name in names if not name.startswith(_CREDENTIAL_OF))


def look_at_files(search: Search, secured: Secured, *, but: Sequence[Path] = ()) -> None:
    """Search logs, local state and directories of the job, and the broker's segments."""
    search.tree(secured.directory, but=[secured.properties, secured.secret_file, *but])
    search.tree(secured.broker.directory / "data")


def look_at_commands(search: Search, secured: Secured) -> None:
    """The outputs that an operator sees."""
    for command in (["job", "status"], ["config", "explain"], ["doctor"], ["stream", "replay", "-o", "jsonl"]):
        answer = secured.command(*command)
        assert b"Traceback" not in answer
        search.text(" ".join(command), answer)
