"""The demo: a job on real Kafka and real Spark, with every figure of it checked.

`scripts/demo` starts it. All its files are in one directory, and each run begins with an empty one. So broker, topics
and job are fresh, and nothing of an older run can take part. The files that a run keeps stay until the next run. The
directory's lock says whether a demo is at work there. `demo.json` has the processes that a demo left running, on
purpose or because it was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import Enum, auto
from itertools import islice
from pathlib import Path
from types import FrameType

# The repository's own tools, which are no part of the package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import click
from demo_cluster import CONTAINERS, SLOTS, ClusterAct, settings_of
from demo_flights import (
    ASIDE,
    INPUT,
    PARTITION_COUNTS,
    UPDATES,
    DataSetMissingError,
    Expected,
    Outputs,
    data_set,
    differences,
    expected_from,
    messages,
    most_delayed,
)
from demo_flow import NOTICED_WITHIN_S, Flow, Message
from demo_screen import Screen, Status, ask_status, make_screen

from integration_tests.support.spark_cluster import SparkCluster, await_no_driver
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.reading import read_to_end
from samzapy.adapters.maven.fetch import cache_root
from samzapy.errors import ConfigError, DeadlineError, EnvironmentMissingError, ExitCode, RejectedError, SamzapyError
from samzapy.testing.broker import DevBroker
from samzapy.testing.ports import free_port
from samzapy.testing.topics import make_topics

_GONE_WITHIN_S = 30.0
ROOT = Path(__file__).resolve().parent.parent
SAMZAPY = Path(sys.executable).with_name("samzapy")
JOB_FILE = ROOT / "examples" / "flight_delays.py"
JOB = "flight-delays-1"

LOCK = "demo.lock"
STALLED_AFTER_S = 120.0
JOB_ENDS_WITHIN_S = 15.0
"""A drain takes at most 10 s."""
COMMAND_ENDS_WITHIN_S = 400.0
"""Longer than the time-out of any command."""
LOOK_S = 0.5
FLIGHTS_MIN = 100
FLIGHTS_AT_FIRST = 120_000
"""With a second act: the others come in while the job is changed."""
FLIGHTS_PER_S = 3_000
WRONG_SHOWN = 20


class Act(Enum):
    """The change of the job while flights come in."""

    NOTHING = auto()
    SCALE = auto()
    CLUSTER = auto()


class InterruptedBySignal(BaseException):
    """A signal asked this process to end: it cleans up, and ends as the shell expects."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The contents of `demo.json`: the job's process, if any, and whether it was kept."""

    job: ProcessIdentity | None
    kept: bool

    @classmethod
    def read(cls, directory: Path) -> Left:
        try:
            fields = json.loads((directory / "demo.json").read_text(encoding="utf-8"))
            return cls(job=ProcessIdentity(**fields["job"]) if fields["job"] else None, kept=fields["kept"])
        except (OSError, ValueError, KeyError, TypeError):
            return cls(job=None, kept=False)

    def write(self, directory: Path) -> None:
        (directory / "demo.json").write_text(json.dumps(asdict(self)), encoding="utf-8")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--keep", is_flag=True, help="Leave broker and job running at the end.")
@click.option("--stop", is_flag=True, help="Stop the processes that an earlier run left, and do nothing else.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory of the demo; it is emptied first [default: demo in samzapy's cache directory].",
)
@click.option("--port", "port_number", type=click.IntRange(1, 65535), help="The broker's port [default: a free one].")
@click.option(
    "--scale",
    is_flag=True,
    help="Add a second act: while flights come in, the job is scaled 1 -> 4 -> 1 and its topic grows.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help=f"Add another second act: {CONTAINERS} containers run on {CONTAINERS} workers of a Spark standalone cluster."
    " While flights come in, one container is moved and another one is killed.",
)
@click.option(
    "--cores",
    type=click.IntRange(1),
    help=f"Cores of the job [default: {min(4, os.cpu_count() or 1)}], or of each container on a cluster [default: 1].",
)
def demo(
    keep: bool,
    stop: bool,
    directory: Path | None,
    port_number: int | None,
    scale: bool,
    cluster: bool,
    cores: int | None,
) -> int:
    """Runs examples/flight_delays on 336,776 flights and checks every figure.

    \b
    Exit codes: 0 all figures are right; 1 one is wrong, or the job failed; 2 wrong usage, or this
    machine lacks something; 3 another demo is at work or was left running; 5 a time-out;
    129, 130, 141 and 143 interrupted (hang-up, Ctrl-C, a closed output, SIGTERM).
    No process is left running at any of these ends, except with --keep.
    """
    if scale and cluster:
        raise click.UsageError("wanted --scale or --cluster, found both; run one after the other")
    act = Act.SCALE if scale else Act.CLUSTER if cluster else Act.NOTHING
    directory = (directory or cache_root() / "demo").absolute()
    _refuse_directory_of_others(directory)
    with _sole_demo(directory):
        if stop:
            _stop_leftovers(directory)
            print("Nothing of the demo runs any more.")
            return ExitCode.OK
        try:
            _begin_anew(directory)
            return _Demo(directory, port_number or 0, cores, act, keep=keep).run()
        except BrokenPipeError:
            # The reader is gone (`scripts/demo | head`); Python would complain of that once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise InterruptedBySignal(signal.SIGPIPE) from None


def _refuse_directory_of_others(directory: Path) -> None:
    """It will be emptied, so it must be empty already, or an earlier demo's."""
    if directory.exists() and any(directory.iterdir()) and not (directory / LOCK).exists():
        raise ConfigError(
            f"--dir: wanted a directory that is empty, absent, or an earlier demo's; found other files in {directory}"
        )
    directory.mkdir(parents=True, exist_ok=True)


@contextmanager
def _sole_demo(directory: Path) -> Iterator[None]:
    with (directory / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RejectedError(f"a demo is at work in {directory}; wait for it, or choose another --dir") from None
        yield


def _begin_anew(directory: Path) -> None:
    left, broker, cluster = Left.read(directory), _broker(directory), _cluster(directory)
    if left.kept and (broker.process() or (left.job and left.job.is_alive()) or any(cluster.processes().values())):
        raise RejectedError(
            f"the previous demo was kept (--keep) and still runs in {directory}; stop it with: "
            f"{_shown(ROOT / 'scripts' / 'demo')} --stop{_dir_option(directory)}"
        )
    _stop_leftovers(directory)
    for name in ("broker", "spark", "state"):
        shutil.rmtree(directory / name, ignore_errors=True)
    (directory / "job.log").unlink(missing_ok=True)


def _stop_leftovers(directory: Path) -> None:
    left, broker, cluster = Left.read(directory), _broker(directory), _cluster(directory)
    if left.job and left.job.is_alive():
        print(f"Stopping the job that an earlier demo left, process {left.job.pid}")
        _end(left.job)
    if cluster.record_path.exists():
        print("Stopping the Spark cluster that an earlier demo left, and the containers on it")
        cluster.stop()  # While there is a broker, so that they drain.
    process = broker.process()
    if process:
        print(f"Stopping the broker that an earlier demo left, process {process.pid}")
        broker.stop()
    (directory / "demo.json").unlink(missing_ok=True)


def _broker(directory: Path, *, port_number: int = 0, detached: bool = True) -> DevBroker:
    return DevBroker(directory / "broker", port_number=port_number, detached=detached)


def _cluster(directory: Path, *, detached: bool = True) -> SparkCluster:
    return SparkCluster(directory / "spark", workers=CONTAINERS, slots=SLOTS, detached=detached)


def _end(job: ProcessIdentity) -> None:
    """Drain the job; by force if that takes too long, or at a second Ctrl-C."""
    job.send(signal.SIGTERM)
    try:
        if job.wait_gone(JOB_ENDS_WITHIN_S):
            return
        print(f"The job did not end within {JOB_ENDS_WITHIN_S:.0f} s and is killed", file=sys.stderr)
    finally:
        job.send(signal.SIGKILL)
        job.wait_gone(JOB_ENDS_WITHIN_S)


class _Demo:
    """One run, from an empty directory to the verdict."""

    def __init__(self, directory: Path, port_number: int, cores: int | None, act: Act, *, keep: bool) -> None:
        self._directory = directory
        self._broker = _broker(directory, port_number=port_number, detached=keep)
        self._cluster = _cluster(directory, detached=keep)
        self._cores = cores or (1 if act is Act.CLUSTER else min(4, os.cpu_count() or 1))
        self._act = act
        self._keep = keep
        self._screen: Screen = make_screen()
        self._job: subprocess.Popen[bytes] | None = None
        self._log_path = directory / "job.log"

    def run(self) -> int:
        kept = False
        try:
            exit_code = self._run()
            kept = self._keep and exit_code == ExitCode.OK
        finally:
            if not kept:
                self._stop_everything()
        self._print_next_commands(kept)
        return exit_code

    def _run(self) -> int:
        path = data_set()
        self._start_broker()
        if self._act is Act.CLUSTER:
            self._start_cluster()
        flow, flights = Flow(self._connection()), messages(path)
        self._publish(flow, flights if self._act is Act.NOTHING else islice(flights, FLIGHTS_AT_FIRST))
        self._start_job()
        expected = expected_from(path)  # While the JVM starts.
        self._second_act(flow, flights)
        self._await_end(expected)
        if not self._keep:
            self._stop_job()
        return self._verdict(expected, self._read_outputs())

    # --- the parts, in the order in which they happen ---

    def _start_broker(self) -> None:
        started_s = time.monotonic()
        self._broker.start()
        took_s = time.monotonic() - started_s
        print(f"Apache Kafka runs on {self._broker.bootstrap_servers} ({took_s:.1f} s)")

    def _start_cluster(self) -> None:
        started_s = time.monotonic()
        self._cluster.start()
        hosts = ", ".join(self._cluster.hosts())
        print(f"Spark runs on {self._cluster.master_url}, hosts {hosts} ({time.monotonic() - started_s:.1f} s)")

    def _publish(self, flow: Flow, flights: Iterable[Message]) -> None:
        make_topics(self._broker.bootstrap_servers, PARTITION_COUNTS)
        started_s = time.monotonic()
        with self._screen.phase("publishing") as show:
            flow.publish(flights, show.published)
        print(
            f"Published {flow.count:,} flights to topic {INPUT}, {PARTITION_COUNTS[INPUT]} partitions, keyed by tail"
            f" number; {flow.without_key:,} have none ({time.monotonic() - started_s:.1f} s)"
        )

    def _start_job(self) -> None:
        self._status_port = free_port()
        settings = {
            "systems.kafka.bootstrap.servers": self._broker.bootstrap_servers,
            "job.coordinator.port": str(self._status_port),
            # A fifth of the default, so that there is progress to be seen.
            "task.batch.offsets.max": "40000",
            # So is this: progress comes with heartbeats.
            "job.container.heartbeat.ms": "1000",
        }
        job_file = _shown(JOB_FILE)
        if self._act is Act.CLUSTER:
            settings |= settings_of(self._cluster, self._cores)
            command = ["job", "submit", job_file, "--containers", str(CONTAINERS), "--cluster", "standalone"]
        else:
            settings |= {"local.store.dir": str(self._directory / "state")}
            command = ["run", job_file, "--master", f"local[{self._cores}]"]
        if self._act is Act.SCALE:
            # New partitions are looked for each second, and taken in once the producer here knows of them.
            settings |= {
                "job.coordinator.monitor-partition-change.frequency.ms": "1000",
                "job.expansion.settle.ms": str(int(2 * NOTICED_WITHIN_S * 1000)),
            }
        command += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        with self._log_path.open("wb") as log:
            # A session of its own: a Ctrl-C here reaches it through us, in order, and --keep outlives the terminal.
            self._job = subprocess.Popen(
                [str(SAMZAPY), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._job_started_s = time.monotonic()
        Left(job=ProcessIdentity.of(self._job.pid), kept=False).write(self._directory)
        print(f"+ {shlex.join([_shown(SAMZAPY), *command])}")
        submitted = "" if self._act is Act.CLUSTER else self._submitted()
        if submitted:
            print(f"+ {submitted}")

    def _submitted(self) -> str:
        """The command that `samzapy run` has become: the first thing it prints."""
        deadline_s = time.monotonic() + 10
        while time.monotonic() < deadline_s and self._running_job().poll() is None:
            for line in self._log_path.read_text(encoding="utf-8", errors="replace").splitlines():
                if "spark-submit " in line:
                    return line
            time.sleep(0.05)
        return ""

    def _second_act(self, flow: Flow, flights: Iterator[Message]) -> None:
        """Change the job while more flights come in; the rest of them follow at once."""
        match self._act:
            case Act.NOTHING:
                return
            case Act.SCALE:
                self._scale_and_grow(flow, flights)
            case Act.CLUSTER:
                ClusterAct(self._samzapy, self._await_status).play(flow, flights)
        print(f"All {flow.count:,} flights are published, {flow.without_key:,} of them without a tail number")

    def _scale_and_grow(self, flow: Flow, flights: Iterable[Message]) -> None:
        self._await_records(1)
        with flow.flowing(flights, FLIGHTS_PER_S):
            print(f"From here on {FLIGHTS_PER_S:,} more flights come in each second")
            self._samzapy("job", "scale", "--factor", "4")
            flow.grow(2 * PARTITION_COUNTS[INPUT])
            print(f"The topic {INPUT} has {2 * PARTITION_COUNTS[INPUT]} partitions now; the job takes them in")
            self._await_partitions(2 * PARTITION_COUNTS[INPUT])
            self._samzapy("job", "scale", "--factor", "1")

    def _samzapy(self, *words: str) -> None:
        """Run a command about the job, as an operator would, and show its output."""
        command = [*words, "--job", JOB, "--bootstrap-servers", self._broker.bootstrap_servers]
        print(f"+ {shlex.join([_shown(SAMZAPY), *command])}")
        done = subprocess.run([str(SAMZAPY), *command], capture_output=True, text=True, timeout=COMMAND_ENDS_WITHIN_S)
        if done.returncode != 0:
            raise SamzapyError(f"{shlex.join(words)} failed: {done.stderr.strip()}\n{self._log_tail()}")
        print("".join(f"  {line.rstrip()}\n" for line in done.stdout.splitlines()), end="")

    def _await_records(self, count: int) -> None:
        self._await_status(lambda status: status.records_in >= count, "the first records to be processed")

    def _await_partitions(self, count: int) -> None:
        started_s = time.monotonic()
        self._await_status(lambda status: status.partitions >= count, f"{count} partitions to be read")
        print(f"The job reads all {count} partitions ({time.monotonic() - started_s:.1f} s)")

    def _await_status(
        self, is_so: Callable[[Status], bool], awaited: str, within_s: float = STALLED_AFTER_S
    ) -> Status:
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            status = ask_status(f"http://127.0.0.1:{self._status_port}/status")
            if self._running_job().poll() is not None:
                raise self._job_failed(f"ended; waited for {awaited}")
            if status is not None and is_so(status):
                return status
            time.sleep(LOOK_S)
        raise DeadlineError(f"waited {within_s:.0f} s for {awaited}\n{self._log_tail()}")

    def _await_end(self, expected: Expected) -> None:
        """Until the job has read everything and its lag is zero, as it says itself."""
        moved_at_s, seen = time.monotonic(), -1
        first: tuple[float, int] | None = None
        with self._screen.phase("processing") as show:
            while True:
                status = ask_status(f"http://127.0.0.1:{self._status_port}/status")
                now_s = time.monotonic()
                if self._running_job().poll() is not None:
                    raise self._job_failed("ended before it had read everything")
                if status is None or status.lag is None:
                    show.starting(now_s)
                else:
                    show.processed(status, now_s)
                    if status.records_in != seen:
                        moved_at_s, seen = now_s, status.records_in
                    first = first or ((now_s, status.records_in) if status.records_in else None)
                    if status.has_read(expected.flight_count):
                        break
                if now_s - moved_at_s > STALLED_AFTER_S:
                    raise DeadlineError(f"no record was processed for {STALLED_AFTER_S:.0f} s\n{self._log_tail()}")
                time.sleep(LOOK_S)
        self._print_speed(status, first, now_s)

    def _print_speed(self, status: Status, first: tuple[float, int] | None, now_s: float) -> None:
        assert first is not None, "all records were read, so a first one was"
        first_s, first_in = first
        line = f"Read {status.records_in:,} records, lag 0: {now_s - self._job_started_s:.1f} s from the job's start"
        if self._act is Act.NOTHING:  # Otherwise it had begun, and was held up, before it was looked at here.
            rate = (status.records_in - first_in) / max(LOOK_S, now_s - first_s)
            first_after_s = first_s - self._job_started_s
            line += f"; the first batch was done after {first_after_s:.1f} s, the rest went at {rate:,.0f} rec/s"
        print(line)

    def _stop_job(self) -> None:
        """End the job as an operator would; its exit code is part of the demo."""
        job = self._running_job()
        started_s = time.monotonic()
        if self._act is Act.CLUSTER:
            self._samzapy("job", "stop", "--wait")
        else:
            job.terminate()
        try:
            exit_code = job.wait(JOB_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise DeadlineError(
                f"wanted the job to end within {JOB_ENDS_WITHIN_S:.0f} s, it runs on\n{self._log_tail()}"
            ) from None
        if exit_code != 0:
            raise self._job_failed("was asked to stop")
        print(f"Stopped the job: it drained and ended with exit code 0 ({time.monotonic() - started_s:.1f} s)")
        if self._act is Act.CLUSTER:
            await_no_driver(self._cluster, _GONE_WITHIN_S)
            self._cluster.stop()
            print("No driver was left on the cluster, nor any process that one had started; its workers are gone too")

    def _read_outputs(self) -> Outputs:
        """Both outputs as a consumer with read_committed sees them, from beginning to end."""
        started_s, outputs, connection = time.monotonic(), Outputs(), self._connection()
        for partition in range(PARTITION_COUNTS[UPDATES]):
            for record in read_to_end(connection, UPDATES, partition):
                outputs.add_update(record.key, record.value)
        for partition in range(PARTITION_COUNTS[ASIDE]):
            outputs.aside += sum(1 for _ in read_to_end(connection, ASIDE, partition))
        print(
            f"Read {outputs.update_count:,} updates from {UPDATES} and {outputs.aside:,} messages from {ASIDE}"
            f" with read_committed ({time.monotonic() - started_s:.1f} s)"
        )
        return outputs

    def _verdict(self, expected: Expected, outputs: Outputs) -> int:
        wrong = differences(expected, outputs)
        if wrong:
            print("\n".join(("WRONG:", *wrong[:WRONG_SHOWN])), file=sys.stderr)
            if len(wrong) > WRONG_SHOWN:
                print(f"... and {len(wrong) - WRONG_SHOWN:,} more", file=sys.stderr)
            return ExitCode.FAILED
        _print_most_delayed(outputs)
        print(
            f"\nRight: flights, delayed, sum_min, worst_min and mean_min of all {len(expected.figures):,} aircraft are"
            " exactly\nwhat pandas computes from the data set; one update per flight, in turn: none lost, none twice."
        )
        return ExitCode.OK

    # --- the end ---

    def _print_next_commands(self, kept: bool) -> None:
        samzapy, address = _shown(SAMZAPY), f"--job {JOB} --bootstrap-servers {self._broker.bootstrap_servers}"
        broker_dir = shlex.quote(str(self._broker.directory))
        if kept:
            job = self._running_job()
            Left(job=ProcessIdentity.of(job.pid), kept=True).write(self._directory)
            services = "Broker, Spark" if self._act is Act.CLUSTER else "Broker"
            print(
                f"\n{services} and job continue (job: process {job.pid}, log {self._log_path}). Look at them:\n"
                f"  {samzapy} job status {address}"
            )
        else:
            print(
                f"\nThe output of the job stays in {self._directory} until the next demo. To look at it, start the"
                f" broker again:\n  {samzapy} dev up --dir {broker_dir} --port {self._broker.port_number}"
            )
        print(
            f"  {samzapy} stream replay {address}      # every decision of the coordinator\n"
            f"  {samzapy} checkpoint list {address}    # how far each partition is"
        )
        if kept:
            print(f"Stop both:\n  {_shown(ROOT / 'scripts' / 'demo')} --stop{_dir_option(self._directory)}")
        else:
            print(
                f"  {samzapy} dev down --dir {broker_dir}\n"
                f"`{_shown(ROOT / 'scripts' / 'demo')} --keep` leaves broker and job running, for `samzapy job status`."
            )

    def _stop_everything(self) -> None:
        """Stop all processes of the demo; at a second Ctrl-C, kill them."""
        job = self._job
        try:
            if job is not None and job.poll() is None:
                _end(ProcessIdentity.of(job.pid))
            self._cluster.stop()  # While there is a broker, so that containers drain.
            self._broker.stop()
        except (KeyboardInterrupt, InterruptedBySignal):
            self._cluster.kill()
            self._broker.kill()
            raise
        finally:
            if job is not None:
                with suppress(subprocess.TimeoutExpired):
                    job.wait(JOB_ENDS_WITHIN_S)
            (self._directory / "demo.json").unlink(missing_ok=True)

    def _connection(self) -> KafkaConnection:
        return KafkaConnection(bootstrap_servers=self._broker.bootstrap_servers)

    def _running_job(self) -> subprocess.Popen[bytes]:
        assert self._job is not None, "asked for before it was started"
        return self._job

    def _job_failed(self, event: str) -> SamzapyError:
        return SamzapyError(f"the job {event}; exit code {self._running_job().returncode}\n{self._log_tail()}")

    def _log_tail(self) -> str:
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join((*(f"  | {line}" for line in lines[-15:]), f"The whole log: {self._log_path}"))


def _print_most_delayed(outputs: Outputs) -> None:
    rows = most_delayed(outputs.last, flights_min=FLIGHTS_MIN, count=10)
    busy = sum(1 for figures in outputs.last.values() if figures["flights"] >= FLIGHTS_MIN)
    print(f"\nThe ten aircraft with the largest mean delay, of {busy:,} with at least {FLIGHTS_MIN} flights:\n")
    print(f"  {'TAIL NUMBER':<12} {'FLIGHTS':>8} {'MEAN MIN':>9} {'WORST MIN':>10}")
    for row in rows:
        print(f"  {row['tailnum']:<12} {row['flights']:>8,} {row['mean_min']:>9.1f} {row['worst_min']:>10,}")


def _shown(path: Path) -> str:
    """A path as one would type it from here."""
    near = os.path.relpath(path)
    return shlex.quote(near if not near.startswith("../..") else str(path))


def _dir_option(directory: Path) -> str:
    return "" if directory == cache_root() / "demo" else f" --dir {shlex.quote(str(directory))}"


def _interrupted(number: int, _frame: FrameType | None) -> None:
    raise InterruptedBySignal(number)


def main(arguments: Sequence[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # stdout is a text file here
    try:
        exit_code: int = demo.main(list(arguments), prog_name="scripts/demo", standalone_mode=False)
        return exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (SamzapyError, DataSetMissingError) as error:
        exit_code = error.exit_code if isinstance(error, SamzapyError) else EnvironmentMissingError.exit_code
        print(f"scripts/demo: {error}", file=sys.stderr)
        return exit_code
    except (KeyboardInterrupt, click.Abort):
        print("scripts/demo: interrupted; broker and job are stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    except InterruptedBySignal as error:
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
