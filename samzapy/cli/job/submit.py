"""The composition root of a coordinator that starts the job's containers, and the commands about such jobs.

`samzapy job submit` is a process of its own, without Spark: it stands for election as every coordinator does, and while
it leads it keeps as many containers running as the job is to have. Any number of them may run, on one host or several;
one leads. Containers do not depend on the process that started them: when it ends they go on, and the next coordinator
adopts them.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import click

from samzapy.adapters.host.process_launcher import ProcessLauncher
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.follow import KafkaLeaderSearch
from samzapy.adapters.maven.java import find_java
from samzapy.config import CLUSTER_MANAGERS, CORES_KEY, COUNT_KEY, MEMORY_KEY, JobConfig
from samzapy.coordinator.commands import SubmitJob
from samzapy.coordinator.launching.launches import failed_job, is_over
from samzapy.coordinator.lifecycle.submission import refuse_started_by_people
from samzapy.coordinator.ports import Launcher
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import ConfigError, SamzapyError
from samzapy.model.launch import Launch
from samzapy.model.topics import coordinator_topic
from samzapy.runtime.declared_names import load_checked_task
from samzapy.runtime.input_keys import check_inputs
from samzapy.runtime.job_config import log_files_read, read_config
from samzapy.runtime.job_file import expected_generation_option
from samzapy.runtime.job_groupers import load_groupers
from samzapy.runtime.leadership import Coordination, Here
from samzapy.runtime.spark_submit import check_host, environment_of_spark, submit_command, with_modules_beside
from samzapy.runtime.standalone_cluster import standalone_launcher
from samzapy.runtime.submission import (
    read_state,
    refuse_what_the_stream_does_not_allow,
    running_containers,
    submission_of,
)

_LOG = logging.getLogger(__name__)
_CLOSE_WAIT_S = 3.0
_LOOK_EVERY_S = 0.3
_LEADER_KNOWN_S = 2.0


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("job_file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--containers", type=click.IntRange(min=1), metavar="N", help=f"How many; default: {COUNT_KEY}.")
@click.option(
    "--cluster", "manager", type=click.Choice(CLUSTER_MANAGERS), help="What starts them; default: cluster.manager."
)
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="Properties file [default: beside JOB_FILE]."
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one config key; may be repeated.")
@expected_generation_option
@click.argument("spark_options", nargs=-1, type=click.UNPROCESSED)
def submit(
    job_file: Path,
    containers: int | None,
    manager: str | None,
    config_file: Path | None,
    overrides: Sequence[str],
    expected_generation: int | None,
    spark_options: Sequence[str],
) -> None:
    """Lead the job in JOB_FILE and keep its containers running. Other options are spark-submit's own, of a container.

    It runs until the job was stopped (`samzapy job stop`) or has finished, and ends with 0 then; with 1 when containers
    failed too often. SIGTERM or Ctrl-C ends this process only: the containers go on, and the same command takes them
    over again. Started twice, one leads and the other one waits.

    \b
    Example:
      samzapy job submit examples/flight_delays.py --containers 4 --cluster process --set cluster.process.dir=/data/jobs
          --set cluster.process.hosts=h1:2,h2:2 --master local[2]
    """
    overrides = [
        *overrides,
        *([] if containers is None else [f"{COUNT_KEY}={containers}"]),
        *([] if manager is None else [f"cluster.manager={manager}"]),
    ]
    config = _coordinators_config(job_file, config_file, overrides)
    job_file = job_file.absolute()
    load_checked_task(job_file, config)
    find_java()
    log_files_read(job_file, config_file)
    launcher = launcher_of(config, job_file, _absolute(config_file), overrides, spark_options)
    run_coordinator(config, job_file, launcher, expected_generation)


def launcher_of(
    config: JobConfig,
    job_file: Path,
    config_file: Path | None,
    overrides: Sequence[str],
    spark_options: Sequence[str] = (),
) -> Launcher:
    """What starts containers as cluster.manager says.

    Args:
        job_file, config_file: absolute.
        overrides: each a `--set` of every container.
        spark_options: spark-submit's own, of every container.

    Raises:
        ConfigError: nothing is said, or something that belongs to it is missing.
    """
    match config.cluster_manager:
        case "process":
            return _process_launcher(config, job_file, config_file, overrides, spark_options)
        case "standalone":
            return standalone_launcher(config, job_file, config_file, overrides, spark_options)
        case _:
            raise ConfigError(
                f"wanted --cluster (or cluster.manager), one of {', '.join(CLUSTER_MANAGERS)}, found nothing; "
                "`samzapy run` starts one container by hand"
            )


def _process_launcher(
    config: JobConfig,
    job_file: Path,
    config_file: Path | None,
    overrides: Sequence[str],
    spark_options: Sequence[str],
) -> ProcessLauncher:
    if config.process_dir is None:
        raise ConfigError(
            "wanted cluster.process.dir, a directory for local state and logs of the containers, found nothing"
        )

    sizes = _sizes(config, spark_options)
    check_host([*submit_command(job_file, config_file, overrides, spark_options), config.process_dir])

    def command_of(launch: Launch, store_dir: Path) -> Sequence[str]:
        own = (f"processor.id={launch.processor_id}", f"local.store.dir={store_dir}")
        return submit_command(job_file, config_file, [*overrides, *own], [*sizes, *spark_options])

    return ProcessLauncher(
        hosts=config.process_hosts,
        directory=Path(config.process_dir),
        command_of=command_of,
        environment=with_modules_beside(job_file, environment_of_spark()),
    )


def _sizes(config: JobConfig, spark_options: Sequence[str]) -> Sequence[str]:
    """What each container is to have, as spark-submit is told; unless its own options do, or nothing is said."""

    def is_told(option: str, setting: str) -> bool:
        # `--conf a=b` and `--conf=a=b`; `--master m` and `--master=m`.
        values = (found.removeprefix("--conf=").removeprefix("-c=") for found in spark_options)
        return any(found.partition("=")[0] in (option, setting) for found in values)

    found: list[str] = []
    if MEMORY_KEY in config.properties and not is_told("--driver-memory", "spark.driver.memory"):
        found += ["--driver-memory", f"{config.container_memory_mib}m"]
    if CORES_KEY in config.properties and not is_told("--master", "spark.master"):
        found += ["--master", f"local[{config.container_cores},1]"]
    return found


def run_coordinator(
    config: JobConfig, job_file: Path, launcher: Launcher, expected_generation: int | None = None
) -> None:
    """Lead the job, or wait to, until its run is over or a signal comes.

    Args:
        expected_generation: as of `SubmitJob`.

    Raises:
        SamzapyError: with the exit code that the process ends with.
    """
    here = Here.now()
    connection = KafkaConnection.of(config)
    admin, groupers = KafkaAdmin(connection), load_groupers(config, job_file.parent)
    run_over = ""

    def submission(state: CoordinatorState | None = None) -> SubmitJob:
        found = submission_of(config, admin, f"coordinator on {here.host}", groupers, state)
        return replace(
            found,
            container_count=config.container_count,
            run_over=run_over,
            expected_generation=expected_generation,
        )

    admin.check_reachable()
    # Before anything is changed that cannot be changed back: a process that is refused must leave nothing behind.
    wanted = submission()
    state = read_state(config, connection)
    running = running_containers(config, state, here)
    refuse_started_by_people(state, [found.execution_id for found in running], config.job)
    after = refuse_what_the_stream_does_not_allow(state, wanted, running)
    check_inputs(wanted, after, connection, running)
    if state.run is not None and state.run.ended:
        run_over = state.run.run_id
    with _until_signal() as ended, _leader_search(config, connection) as leader:
        coordination = Coordination(
            config,
            here,
            connection,
            submission=submission,
            on_end=lambda reason: ended.set(),
            leader=leader,
            launcher=launcher,
        )
        try:
            url = coordination.start()
            _LOG.info("coordinator of %s at %s, process %d", config.job, url, here.pid)
            last = _wait(coordination, ended, run_over)
        finally:
            coordination.close(_CLOSE_WAIT_S)
    if coordination.fatal is not None:
        raise coordination.fatal
    if last is None:
        _LOG.info("this coordinator ends; containers go on, and wait for another one (samzapy job stop ends the job)")
        return
    if config.fails_job_after_retries and (reason := failed_job(last, config.container_retry_count)):
        raise SamzapyError(f"wanted {config.job} to run, found that {reason}. The job has ended")
    _LOG.info("the run of %s is over, and so are its containers", config.job)


def _wait(coordination: Coordination, ended: threading.Event, run_over: str) -> CoordinatorState | None:
    """Until the run is over: what the log says then; None when this process is to end before."""
    while not ended.wait(_LOOK_EVERY_S):
        state = coordination.state()
        if state is not None and state.run is not None and state.run.run_id != run_over and is_over(state):
            return state
    return None


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """An event that is set when this process is asked to end."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _leader_search(config: JobConfig, connection: KafkaConnection) -> Iterator[Callable[[], str | None]]:
    """Who leads, as the coordinator stream has it: looked up when somebody asks this process who does not."""
    search = KafkaLeaderSearch(connection, coordinator_topic(config.job))
    known: list[tuple[float, str | None]] = []
    lock = threading.Lock()

    def leader() -> str | None:
        with lock:
            if not known or time.monotonic() - known[-1][0] > _LEADER_KNOWN_S:
                term = search.newest_term(0)
                known[:] = [(time.monotonic(), None if term is None else term.url)]
            return known[-1][1]

    try:
        yield leader
    finally:
        search.close()


def _coordinators_config(job_file: Path, config_file: Path | None, overrides: Sequence[str]) -> JobConfig:
    """The configuration as the coordinator needs it: the directory of local state is each container's own.

    Raises:
        ConfigError: it is not as it must be.
    """
    return read_config(job_file, config_file, [*overrides, f"local.store.dir={os.devnull}"], os.environ)


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()
