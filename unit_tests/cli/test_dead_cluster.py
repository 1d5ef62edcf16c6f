"""Commands against a cluster that does not answer, with real sockets on loopback.

Nothing listens at one address. The other one takes connections and never answers.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from samzapy.cli.container.place_container import place_container
from samzapy.cli.main import samzapy
from samzapy.cli.target import address
from samzapy.errors import BrokerUnavailableError, ExitCode

pytestmark = pytest.mark.slow

TIMEOUT_S = 0.3
SOON_S = 12.0
"""Less than the deadline of any question by itself, and far more than `TIMEOUT_S`, for a busy machine."""

READS = [
    "job status",
    "job top --once",
    "checkpoint list",
    "container list",
    "container logs 0",
    "job describe",
    "state get --store counts --key a",
    "state scan --store counts",
    "state count",
    "stream replay",
    "stream state",
    "stream diff 1 2",
    "stream verify",
    "stream export flights.avro",
    "task explain Partition_0",
    "config explain job.name",
    "acl",
    "acl check",
]
WRITES = [
    "job stop --wait --timeout 600",
    "job restart",
    "job scale --factor 2 --timeout 600",
    "job rewind --stream kafka.flights --to oldest --timeout 600",
    "job delete --yes",
    "job reset --yes",
    "job downgrade --to 0.1.0 --archive flights.avro --timeout 600",
    "container place --processor 0 --host b --timeout 600",
    "container restart --all --timeout 600",
    "container standby --processor 0 --start --timeout 600",
    "container status --processor 0 --timeout 600",
    "container status 6b1d4e6e-3b0a-4f5a-9a52-0a5b7ad0a001 --timeout 600",
    "container gc",
    "state drop --store counts --yes",
]


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address that refuses connections: a socket that is bound and does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def swallowing() -> Iterator[str]:
    """An address that takes connections, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture(params=["refusing", "swallowing"])
def dead(request: pytest.FixtureRequest) -> str:
    servers: str = request.getfixturevalue(request.param)
    return servers


def run(arguments: Sequence[str]) -> Result:
    """Run a command that must end soon."""
    # Its modules are imported here, which takes seconds on a busy machine.
    samzapy.get_command(click.Context(samzapy), arguments[0])
    began_s = time.monotonic()
    result = CliRunner().invoke(samzapy, arguments)
    assert time.monotonic() - began_s < SOON_S
    return result


def check_names(error: BaseException | None, servers: str) -> None:
    assert isinstance(error, BrokerUnavailableError), error
    assert error.exit_code == ExitCode.TIMED_OUT
    check_text(str(error), servers)


def check_text(text: str, servers: str) -> None:
    assert re.search(rf"no broker answered within [0-9.]+ s at {servers}; the client reports .*", text), text
    assert "see whether the brokers run and can be reached from here" in text


@pytest.mark.parametrize("command", READS)
def test_a_command_that_reads_gives_up_after_its_timeout(command: str, dead: str) -> None:
    result = run([*command.split(), "--job", "flights-1", "--bootstrap-servers", dead, "--timeout", str(TIMEOUT_S)])

    check_names(result.exception, dead)


def test_the_time_of_a_command_counts_from_the_start_of_its_process(dead: str) -> None:
    """As if Python and its modules had taken 30 s.

    One chance is left, which lasts a second at most.
    """
    options = ["--job", "flights-1", "--bootstrap-servers", dead, "--timeout", "20"]
    samzapy.get_command(click.Context(samzapy), "job")

    result = CliRunner().invoke(samzapy, ["job", "status", *options], obj=time.monotonic() - 30.0)

    check_names(result.exception, dead)
    # The wait is shown in whole seconds.
    assert re.search(r"no broker answered within 2\d s", str(result.exception)), result.exception


def test_the_start_of_a_process_is_known_from_the_system() -> None:
    listing = (
        "import time; first_s = time.monotonic(); from samzapy.cli.output.process_start import own_start_s; "
        "print(first_s - 600 < own_start_s() < first_s)"
    )

    assert "True\n" == subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True).stdout


def test_the_list_of_jobs_gives_up_after_its_timeout(dead: str) -> None:
    result = run(["job", "list", "--bootstrap-servers", dead, "--timeout", str(TIMEOUT_S)])

    check_names(result.exception, dead)


def test_a_plan_gives_up_after_its_timeout(dead: str, tmp_path: Path) -> None:
    file = tmp_path / "flights.properties"
    file.write_text(f"job.name=flights\ntask.inputs=kafka.flights\nsystems.kafka.bootstrap.servers={dead}\n")

    result = run(["job", "plan", "--config", str(file), "--timeout", str(TIMEOUT_S)])

    check_names(result.exception, dead)


def test_doctor_reports_the_cluster_after_its_timeout(dead: str) -> None:
    result = run(["doctor", "--job", "flights-1", "--bootstrap-servers", dead, "--timeout", str(TIMEOUT_S)])

    assert result.exit_code == ExitCode.DEGRADED
    assert "cluster-unreachable" in result.output
    check_text(result.output, dead)


@pytest.mark.parametrize("command", WRITES)
def test_the_first_read_of_a_command_that_writes_is_short_whatever_its_timeout(
    command: str, refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "TIMEOUT_S", TIMEOUT_S)

    result = run([*command.split(), "--job", "flights-1", "--bootstrap-servers", refusing])

    check_names(result.exception, refusing)


def test_the_command_of_sep_22_names_the_awaited_answer(refusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "TIMEOUT_S", 2.5)
    options = "--deployment-id 1-00000000 --app-name a --processor-id 4 --destination-host b --bootstrap-servers"

    result = CliRunner().invoke(place_container, [*options.split(), refusing])

    check_names(result.exception, refusing)
    assert f"waiting for a broker of {refusing}" in result.stderr


def test_a_refused_connection_is_the_reason(refusing: str) -> None:
    result = run(["checkpoint", "list", "--job", "a-1", "--bootstrap-servers", refusing, "--timeout", "0.5"])

    assert "Connection refused" in str(result.exception)
    assert f"{refusing} refuses connections" not in str(result.exception), "the client has said it already"


def test_an_address_that_swallows_requests_is_a_time_out(swallowing: str) -> None:
    result = run(["checkpoint", "list", "--job", "a-1", "--bootstrap-servers", swallowing, "--timeout", "0.5"])

    assert (
        f"time-outs: neither an answer nor a refused connection; {swallowing} accepts connections, and does not answer;"
    ) in str(result.exception)


def test_job_status_tells_that_a_port_accepts_connections_where_the_broker_hangs(swallowing: str) -> None:
    result = run(["job", "status", "--job", "a-1", "--bootstrap-servers", swallowing, "--timeout", "0.5"])

    assert f"{swallowing} accepts connections, and does not answer;" in str(result.exception)


@pytest.mark.parametrize("command", ["checkpoint", "job"], ids=["offsets", "topics"])
def test_after_two_seconds_one_line_names_the_answer_that_the_command_waits_for(command: str, dead: str) -> None:
    name = [] if command == "job" else ["--job", "a-1"]
    result = run([command, "list", *name, "--bootstrap-servers", dead, "--timeout", "2.5"])

    pattern = rf"samzapy: waiting for a broker of {dead}, which has not answered for \d s: the client reports .*"
    assert re.fullmatch(pattern + r"; gives up after 2.5 s \(--timeout\)\n", result.stderr), result.stderr
    assert result.stdout == ""


def test_a_command_that_ends_before_two_seconds_prints_no_wait(dead: str) -> None:
    result = run(["checkpoint", "list", "--job", "a-1", "--bootstrap-servers", dead, "--timeout", "1"])

    assert result.stderr == ""


@pytest.mark.parametrize("timeout", ["0", "nan", "-1", "soon"])
def test_a_timeout_that_is_no_time_is_refused(timeout: str) -> None:
    result = run(["job", "status", "--job", "a-1", "--bootstrap-servers", "127.0.0.1:1", "--timeout", timeout])

    assert result.exit_code == ExitCode.USAGE
    assert "--timeout" in result.stderr
