"""The arguments of spark-submit for a container, for every cluster manager.

The coordinator starts such containers. A container is one driver that works with its own cores (`local[n]`) on any
cluster. Cluster managers start drivers in a mode of their own. So they start spark-submit a second time, which starts
the job file with `--master local[n,1]`. Command lines appear on web pages and in process lists, so they must have no
secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from samzapy.config import refuse_secret_arguments
from samzapy.model.credential import CREDENTIAL_VARIABLE
from samzapy.model.job import ExecutionId
from samzapy.model.launch import EXECUTION_VARIABLE, HOST_VARIABLE, Launch

EXECUTION_CONF = "spark.samzapy.execution.id"
"""Spark ignores it; a launcher reads it on the driver's command line."""
SUBMIT_CLASS = "org.apache.spark.deploy.SparkSubmit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerProgram:
    """The program that all containers of a job run.

    All paths are on the hosts of the containers.

    Attributes:
        job: `<job.name>-<job.id>`.
        job_file, config_file: the program, and its properties file unless it is beside the program.
        overrides: each `key=value` becomes a `--set`.
        spark_options: of spark-submit, such as `--conf spark.log.level=ERROR`; not `--master`.
        environment: of each container, besides the variables that identify it.
        credential_of: the credential of an execution for its heartbeats; None: they need none.
        python: the interpreter with samzapy, on each host.
        cores: of each container, which are its worker slots.
        memory_mib: of its JVM; its Python workers need more memory.

    Raises:
        ConfigError: an override or an option may be a secret.
    """

    job: str
    job_file: str
    config_file: str | None = None
    overrides: Sequence[str] = ()
    spark_options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    credential_of: Callable[[ExecutionId], str | None] = lambda execution_id: None
    python: str
    cores: int = 1
    memory_mib: int = 1024

    def __post_init__(self) -> None:
        refuse_secret_arguments((*self.overrides, *self.spark_options))


def arguments_of(program: ContainerProgram, launch: Launch) -> list[str]:
    """The arguments of `spark-submit` on the host of the container."""
    config = [] if program.config_file is None else ["--config", program.config_file]
    overrides = [*program.overrides, f"processor.id={launch.processor_id}"]
    settings = [part for override in overrides for part in ("--set", override)]
    # The session's own connections stay on the host, also if a cluster manager sets another address.
    here = [part for name in ("host", "bindAddress") for part in ("--conf", f"spark.driver.{name}=127.0.0.1")]
    options = ["--master", f"local[{program.cores},1]", *here, "--name", name_of(program, launch)]
    identity = ["--conf", f"{EXECUTION_CONF}={launch.execution_id}"]
    return [*options, *identity, *program.spark_options, program.job_file, *config, *settings]


def environment_of(program: ContainerProgram, launch: Launch, host: str) -> dict[str, str]:
    """The environment with the identity of a container.

    `host` is empty if it is not known yet.
    """
    named = {HOST_VARIABLE: host} if host else {}
    credential = program.credential_of(launch.execution_id)
    if credential is not None:
        named[CREDENTIAL_VARIABLE] = credential
    return {
        **program.environment,
        "PYSPARK_PYTHON": program.python,
        EXECUTION_VARIABLE: launch.execution_id,
        **named,
    }


def name_of(program: ContainerProgram, launch: Launch) -> str:
    """The name in a list of applications."""
    kind = "" if not launch.standby else f"-{launch.standby}"
    return f"samzapy {program.job} {launch.processor_id}{kind}"


def host_label(host: str) -> str:
    """A host's name without dots.

    It is for a resource of Spark's workers or a label of YARN's nodes. Names of hosts have no `_`, so the name can be
    read back.
    """
    return f"host_{host.replace('.', '_')}"
