"""A job runs on a host with all faults that would end Spark's JVM, in namespaces.

The host's own name does not resolve, the user has no entry in the user database, the locale is ASCII while the job is
under a path that is not, and SPARK_HOME and PYTHONPATH name another release of PySpark.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from integration_tests.bad_input.kit import Cluster, unique

PROGRAMS = Path(sys.executable).parent
UNKNOWN_USER = 51_234
RUNS_WITHIN_S = 400
JOB = """
import os, pwd, socket
import samzapy

@samzapy.task
def copy(envelope, collector, context):
    collector.send(context.config["job.name"] + "-out", envelope.value, key=envelope.key)

if __name__ == "__main__":
    faults = {"name": lambda: socket.gethostbyname(socket.gethostname()), "user": lambda: pwd.getpwuid(os.getuid())}
    for fault, known in faults.items():
        try:
            known()
        except (OSError, KeyError):
            print("FAULT", fault)
    samzapy.run()
"""


def on_an_odd_host(command: list[str]) -> list[str]:
    inner = ["unshare", "--user", f"--map-user={UNKNOWN_USER}", f"--map-group={UNKNOWN_USER}", "--", *command]
    script = f"hostname no-such-host.invalid && exec {shlex.join(inner)}"
    return ["unshare", "--user", "--map-root-user", "--uts", "--", "sh", "-c", script]


@pytest.fixture(scope="module", autouse=True)
def _namespaces() -> None:
    try:
        tried = subprocess.run(on_an_odd_host(["true"]), capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("needs unshare (util-linux)")
    if tried.returncode != 0:
        pytest.skip(f"needs user namespaces, which this kernel does not give: {tried.stderr.strip()}")


@pytest.fixture
def job_file(cluster: Cluster, tmp_path: Path) -> Path:
    """A job that copies its input up to its end."""
    name = unique("odd-host")
    directory = tmp_path / "büro"
    directory.mkdir()
    # The other release's, as `export PYTHONPATH=$SPARK_HOME/python` names it.
    (tmp_path / "spark" / "pyspark").mkdir(parents=True)
    (tmp_path / "spark" / "pyspark" / "__init__.py").touch()
    (tmp_path / "spark" / "pyspark" / "version.py").write_text('__version__ = "3.5.1"\n')
    for topic in (f"{name}-in", f"{name}-out"):
        cluster.make(topic)
    cluster.publish(f"{name}-in", b"one", b"two", b"three")
    path = directory / "job.py"
    path.write_text(JOB)
    path.with_suffix(".properties").write_text(
        f"job.name={name}\n"
        f"task.inputs=kafka.{name}-in\n"
        f"systems.kafka.bootstrap.servers={cluster.bootstrap_servers}\n"
        "systems.kafka.samza.offset.default=oldest\n"
        "systems.kafka.samza.offset.end=head\n"
    )
    return path


def ran(command: list[str], directory: Path, environment: Mapping[str, str]) -> str:
    of_spark = {"SPARK_SUBMIT_OPTS", "SPARK_LOCAL_IP", "SPARK_HOME", "PYSPARK_PYTHON", "PYTHONPATH", "LC_ALL", "LANG"}
    inherited = {name: value for name, value in os.environ.items() if name not in of_spark}
    ran = subprocess.run(
        on_an_odd_host(command),
        cwd=directory,
        env={**inherited, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=RUNS_WITHIN_S,
        check=False,
    )
    output = (ran.stdout + ran.stderr).decode(errors="replace")
    assert 0 == ran.returncode, output[-6000:]
    return output


def is_a_copy(cluster: Cluster, job_file: Path) -> bool:
    name = next(line for line in job_file.with_suffix(".properties").read_text().splitlines() if "job.name" in line)
    return cluster.values(f"{name.partition('=')[2]}-out") == [b"one", b"two", b"three"]


def test_samzapy_run_works(cluster: Cluster, job_file: Path) -> None:
    spark = job_file.parent.parent / "spark"
    environment = {"LC_ALL": "C", "PYTHONPATH": str(spark), "SPARK_HOME": str(spark)}

    output = ran(["samzapy", "run", "job.py", "--master", "local[1]"], job_file.parent, environment)

    assert ("FAULT name" in output, "FAULT user" in output) == (True, True), output[-6000:]
    assert is_a_copy(cluster, job_file) and "\tat " not in output


def test_a_plain_spark_submit_works_with_the_variables_of_the_documentation(cluster: Cluster, job_file: Path) -> None:
    environment = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": f"-Duser.home={job_file.parent.parent}",
        "LC_ALL": "C.UTF-8",
    }

    output = ran(["spark-submit", "--master", "local[1]", "job.py"], job_file.parent, environment)

    assert ("FAULT name" in output, "FAULT user" in output) == (True, True), output[-6000:]
    assert is_a_copy(cluster, job_file)


def test_python_alone_works_without_any_variable(cluster: Cluster, job_file: Path) -> None:
    """samzapy starts the JVM there, so it can examine the host first."""
    output = ran([sys.executable, "job.py"], job_file.parent, {"LC_ALL": "C"})

    assert ("FAULT name" in output, "FAULT user" in output) == (True, True), output[-6000:]
    assert is_a_copy(cluster, job_file) and "\tat " not in output


def test_a_container_started_by_a_coordinator_works(cluster: Cluster, job_file: Path) -> None:
    containers = job_file.parent / "behälter"
    settings = [f"cluster.process.dir={containers}", "cluster.process.hosts=h1:1"]
    command = ["samzapy", "job", "submit", "job.py", "--containers", "1", "--cluster", "process"]
    arguments = [*(part for setting in settings for part in ("--set", setting)), "--master", "local[1]"]

    ran([*command, *arguments], job_file.parent, {"LC_ALL": "C"})

    (log,) = containers.glob("h1/*.log")
    output = log.read_text()
    assert ("FAULT name" in output, "FAULT user" in output) == (True, True), output[-6000:]
    assert is_a_copy(cluster, job_file)
