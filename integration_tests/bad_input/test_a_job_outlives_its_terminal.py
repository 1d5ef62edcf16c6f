"""`samzapy job submit --no-wait` in a terminal that closes: the job goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from integration_tests.bad_input.kit import BY_ORDER, SAMZAPY, Cluster, Job, run_samzapy, unique
from samzapy.adapters.host.process_launcher import DIRECTORY
from samzapy.adapters.host.processes import ProcessIdentity, processes_with
from samzapy.errors import ExitCode
from samzapy.testing.waiting import wait_until

_SUBMITTED_WITHIN_S = 120.0


class Terminal:
    """A pseudo-terminal with a shell that runs one command and then waits for input."""

    def __init__(self, *command: str) -> None:
        self._fd, inner = os.openpty()
        os.set_blocking(self._fd, False)
        self.shell = subprocess.Popen(
            ["setsid", "--ctty", "sh", "-c", '"$@"; echo "ended with $?."; cat', "sh", *command],
            stdin=inner,
            stdout=inner,
            stderr=inner,
        )
        os.close(inner)
        self._output = b""

    def shows(self) -> str:
        with suppress(BlockingIOError):
            while part := os.read(self._fd, 65_536):
                self._output += part
        return self._output.decode(errors="replace")

    def close(self) -> None:
        """Close it, which sends SIGHUP, and wait until the shell has ended of that."""
        os.close(self._fd)
        self.shell.wait(30)


@contextmanager
def no_process_left(directory: Path) -> Iterator[None]:
    """End the containers of `directory` in any case."""
    try:
        yield
    finally:
        for process in processes_with(DIRECTORY, str(directory)):
            process.send(signal.SIGKILL)


def test_a_submitted_job_goes_on_when_its_terminal_closes(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster=cluster, directory=tmp_path, name=unique("detached"), inputs=(cluster.topic("in"),))
    cluster.make(job.output("answers"))
    directory = tmp_path / "cluster"
    launcher = ("--cluster", "process", "--set", f"cluster.process.dir={directory}", "--master", "local[1]")
    hosts = ("--set", "cluster.process.hosts=h1:1", "--containers", "1")
    address = ("--job", job.full_name, "--bootstrap-servers", cluster.bootstrap_servers)
    with no_process_left(directory):
        terminal = Terminal(
            str(SAMZAPY), "job", "submit", str(BY_ORDER), "--no-wait", *launcher, *hosts, *job.arguments()
        )
        wait_until(lambda: "ended with" in terminal.shows(), _SUBMITTED_WITHIN_S, "the command to return")
        shown = terminal.shows()
        assert "ended with 0." in shown, shown
        named = re.search(r"submitted, coordinator process (\d+), log (\S+)", shown)
        assert named is not None, shown
        coordinator, log = ProcessIdentity.of(int(named[1])), Path(named[2])
        assert log == directory / f"coordinator-{job.full_name}.log"

        terminal.close()
        cluster.publish(job.inputs[0], b"after the terminal has closed")

        answers = job.output("answers")
        wait_until(lambda: cluster.values(answers) == [b"after the terminal has closed"], 240.0, "an answer")
        assert coordinator.is_alive()
        stopped = run_samzapy("job", "stop", *address)
        assert stopped.code == ExitCode.OK, stopped.output
        assert coordinator.wait_gone(60), log.read_text()
        assert f"the run of {job.full_name} is over" in log.read_text()
