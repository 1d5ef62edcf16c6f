"""Lead a submitted job: the work of `samzapy job submit`.

The process has no Spark. It takes part in the election like every coordinator, and while it leads, it keeps the wanted
number of containers running. Several such processes may run, on one host or several; one of them leads. Containers
outlive the process that started them: the next coordinator adopts them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from samzapy.adapters.host.detached import Detached
from samzapy.adapters.host.process_launcher import ProcessLauncher
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.broker_watch import BrokerWatch
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.follow import KafkaLeaderSearch
from samzapy.adapters.maven.java import find_java
from samzapy.cli.output.terminal import printable
from samzapy.cli.target.address import connection_to_write
from samzapy.cli.target.requests import WAIT_S
from samzapy.config import CLUSTER_MANAGERS, CORES_KEY, MEMORY_KEY, JobConfig
from samzapy.coordinator.commands import SubmitJob
from samzapy.coordinator.launching.launches import failed_job, is_over
from samzapy.coordinator.lifecycle.submission import refuse_self_managed
from samzapy.coordinator.ports import Launcher
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import ConfigError, DeadlineError, SamzapyError
from samzapy.model.launch import Launch
from samzapy.model.topics import coordinator_topic
from samzapy.runtime.coordinator_access import command_access, launched_credential
from samzapy.runtime.declared_names import check_names
from samzapy.runtime.input_keys import check_inputs
from samzapy.runtime.job_config import load_job, log_files_read
from samzapy.runtime.job_groupers import load_groupers
from samzapy.runtime.leader_status import leader_status
from samzapy.runtime.leadership import Coordination
from samzapy.runtime.logs import choose_format, identify
from samzapy.runtime.signals import SignalThread, end_signals
from samzapy.runtime.spark_submit import check_host, environment_of_spark, submit_command, with_modules_beside
from samzapy.runtime.standalone_cluster import standalone_launcher
from samzapy.runtime.submission import (
    check_submission_allowed,
    read_state,
    running_containers,
    submission_of,
)
from samzapy.runtime.this_host import Here

_LOG = logging.getLogger(__name__)
_CLOSE_WAIT_S = 3.0
_LOOK_EVERY_S = 0.3
_LEADER_KNOWN_S = 2.0


def submit_job(
    job_file: Path,
    config_file: Path | None,
    overrides: Sequence[str],
    spark_options: Sequence[str],
    *,
    expected_generation: int | None,
    waits: bool,
    timeout_s: float,
    log_format: str | None,
) -> None:
    """Submit the job, and lead it or wait to lead it.

    Args:
        spark_options: spark-submit's own, of every container.
        expected_generation: see `SubmitJob`.
        waits: until the run is over. If not, the process goes on in the background once a coordinator leads.
        timeout_s: the maximum wait for a coordinator that leads.

    Raises:
        SamzapyError: with the exit code that the process ends with.
    """
    detached = None if waits else Detached.begin()
    choose_format(log_format)
    job_file = job_file.absolute()
    config = _coordinators_config(job_file, config_file, overrides)
    on_led = None if detached is None else _to_background(detached, config)
    identify(job=config.job)
    check_names(job_file, config)
    find_java()
    log_files_read(job_file, config_file)
    launcher = launcher_of(config, job_file, _absolute(config_file), overrides, spark_options)
    run_coordinator(config, job_file, launcher, expected_generation, on_led, timeout_s)


def _to_background(detached: Detached, config: JobConfig) -> Callable[[], None]:
    """A function that lets the command end once the job is led.

    Raises:
        ConfigError: the launcher has no directory on this machine for the log.
    """
    if config.cluster_manager != "process" or config.process_dir is None:
        raise ConfigError(
            "--no-wait: wanted --cluster process and cluster.process.dir, where the log of the coordinator is written, "
            f"found cluster.manager={config.cluster_manager or ''}; run the command without --no-wait, under a "
            "supervisor such as systemd"
        )
    log = Path(config.process_dir).absolute() / f"coordinator-{config.job}.log"

    def led() -> None:
        with suppress(OSError):  # The terminal may be gone, and the job is led all the same.
            click.echo(f"{config.job}: submitted, coordinator process {os.getpid()}, log {printable(str(log))}")
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            detached.is_ready(log)
        except OSError as error:
            raise ConfigError(f"cluster.process.dir: wanted to write {log}, found {error.strerror}") from error

    return led


def launcher_of(
    config: JobConfig,
    job_file: Path,
    config_file: Path | None,
    overrides: Sequence[str],
    spark_options: Sequence[str] = (),
) -> Launcher:
    """The launcher that cluster.manager names.

    Args:
        job_file, config_file: absolute.
        overrides: each a `--set` of every container.
        spark_options: spark-submit's own, of every container.

    Raises:
        ConfigError: cluster.manager is not set, or a key that it needs is missing.
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
        credential_of=launched_credential(config, os.environ),
    )


def _sizes(config: JobConfig, spark_options: Sequence[str]) -> Sequence[str]:
    """The spark-submit options for memory and cores that `spark_options` does not set."""

    def is_set(option: str, setting: str) -> bool:
        # `--conf a=b` and `--conf=a=b`; `--master m` and `--master=m`.
        values = (argument.removeprefix("--conf=").removeprefix("-c=") for argument in spark_options)
        return any(value.partition("=")[0] in (option, setting) for value in values)

    options: list[str] = []
    if MEMORY_KEY in config.properties and not is_set("--driver-memory", "spark.driver.memory"):
        options += ["--driver-memory", f"{config.container_memory_mib}m"]
    if CORES_KEY in config.properties and not is_set("--master", "spark.master"):
        options += ["--master", f"local[{config.container_cores},1]"]
    return options


def run_coordinator(
    config: JobConfig,
    job_file: Path,
    launcher: Launcher,
    expected_generation: int | None = None,
    on_led: Callable[[], None] | None = None,
    timeout_s: float = WAIT_S,
) -> None:
    """Lead the job, or wait to lead it, until its run is over or a signal comes.

    Args:
        expected_generation: see `SubmitJob`.
        on_led: called once this coordinator leads the run, or another one answers.
        timeout_s: the maximum wait for that.

    Raises:
        DeadlineError: no coordinator leads in time.
        SamzapyError: with the exit code that the process ends with.
    """
    here = Here.now()
    connection = connection_to_write(KafkaConnection.of(config))
    admin, groupers = KafkaAdmin(connection), load_groupers(config, job_file.parent)
    run_over = ""

    def submission(state: CoordinatorState | None = None) -> SubmitJob:
        request = submission_of(config, admin, f"coordinator on {here.host}", groupers, state)
        return replace(
            request,
            container_count=config.container_count,
            run_over=run_over,
            expected_generation=expected_generation,
        )

    admin.check_reachable()
    state = _checked_state(config, connection, here, submission())
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
            is_led = _is_led(coordination, ended, run_over, partial(_answers, config, leader), timeout_s)
            if is_led and on_led is not None:
                on_led()
            last = _wait(coordination, ended, run_over)
        finally:
            coordination.close(_CLOSE_WAIT_S)
    if coordination.fatal is not None:
        raise coordination.fatal
    _report(config, last)


def _report(config: JobConfig, last: CoordinatorState | None) -> None:
    """Log the end of the run; None: only this process ends.

    Raises:
        SamzapyError: containers failed too often.
    """
    if last is None:
        _LOG.info("this coordinator ends; containers keep running (samzapy job stop ends the job)")
        return
    if config.fails_job_after_retries and (reason := failed_job(last, config.container_retry_count)):
        raise SamzapyError(f"wanted {config.job} to run, found that {reason}. The job has ended; submit it again")
    _LOG.info("the run of %s is over, and so are its containers", config.job)


def _checked_state(config: JobConfig, connection: KafkaConnection, here: Here, wanted: SubmitJob) -> CoordinatorState:
    """The state on the coordinator stream, which allows the submission.

    Checked before any change: a refused process must leave no trace.

    Raises:
        SamzapyError: the job must not run so.
    """
    state = read_state(config, connection)
    running = running_containers(config, state, here)
    refuse_self_managed(state, [container.execution_id for container in running], config.job)
    after = check_submission_allowed(state, wanted, running)
    check_inputs(wanted, after, connection, running)
    return state


def _is_led(
    coordination: Coordination,
    ended: threading.Event,
    run_over: str,
    another_leads: Callable[[], bool],
    timeout_s: float,
) -> bool:
    """Wait until this process leads the run, or another one does.

    Returns False if this process ends first.

    Raises:
        DeadlineError: it is not led in time.
    """
    give_up_at_s = time.monotonic() + timeout_s
    while not ended.wait(_LOOK_EVERY_S):
        state = coordination.state()
        if another_leads() if state is None else state.run is not None and state.run.run_id != run_over:
            return True
        if time.monotonic() >= give_up_at_s:
            raise DeadlineError(
                f"wanted a coordinator that leads the job within {timeout_s:g} s (--timeout), found none; see the log "
                "above, and check with `samzapy doctor` whether the brokers answer"
            )
    return False


def _answers(config: JobConfig, leader: Callable[[], str | None]) -> bool:
    """Whether the leader, at the URL that `leader` returns, answers."""
    return leader_status(config.job, leader(), command_access(config, os.environ)) is not None


def _wait(coordination: Coordination, ended: threading.Event, run_over: str) -> CoordinatorState | None:
    """Wait until the run is over and return its state.

    Returns None if this process ends first.
    """
    while not ended.wait(_LOOK_EVERY_S):
        state = coordination.state()
        if state is not None and state.run is not None and state.run.run_id != run_over and is_over(state):
            return state
    return None


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """An event that SIGTERM or SIGINT sets."""
    ended = threading.Event()
    signals = SignalThread(end_signals(), lambda number: ended.set())
    try:
        yield ended
    finally:
        signals.close()


@contextmanager
def _leader_search(config: JobConfig, connection: KafkaConnection) -> Iterator[Callable[[], str | None]]:
    """A function that looks the leader up in the coordinator stream, for redirects.

    The log names brokers that do not answer meanwhile.
    """
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
        with BrokerWatch(connection, coordinator_topic(config.job), asks_each=True):
            yield leader
    finally:
        search.close()


def _coordinators_config(job_file: Path, config_file: Path | None, overrides: Sequence[str]) -> JobConfig:
    """The configuration of a coordinator, which has no local state directory.

    Raises:
        ConfigError: the configuration is invalid.
    """
    config, _ = load_job(job_file, config_file, [*overrides, f"local.store.dir={os.devnull}"], os.environ)
    return config


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()
