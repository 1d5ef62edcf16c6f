"""Candidates in processes of their own, without Spark, on a real broker.

Run as a program it is one candidate, until its standard input ends: `python -m integration_tests.candidates
<bootstrap.servers> <job.name> <input> <settings as JSON>`. It prints its URL. It takes the same way as a job's process
(`samzapy.runtime.leadership`), but has no container.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple, Self
from urllib.error import HTTPError
from urllib.request import urlopen

from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.follow import KafkaLeaderSearch
from samzapy.adapters.kafka.reading import read_to_end
from samzapy.config import JobConfig
from samzapy.model.topics import checkpoint_spec, coordinator_spec, coordinator_topic, placement_spec, placement_topic
from samzapy.plan.groupers import NO_GROUPERS
from samzapy.runtime.leadership import Coordination
from samzapy.runtime.submission import submission_of
from samzapy.runtime.this_host import Here
from samzapy.stream.codec import decode
from samzapy.stream.log import LogRecord
from samzapy.stream.records import TermPut
from samzapy.testing.builders import a_config
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

_STARTS_WITHIN_S = 120.0


def config_of(job_name: str, input_topic: str, settings: Mapping[str, str] | None = None) -> JobConfig:
    """A job with one input of two partitions; `settings` are those of `a_config`."""
    return a_config(job_name=job_name, task_inputs=f"kafka.{input_topic}", **(settings or {}))


class CandidateProcess:
    """One candidate."""

    def __init__(
        self, bootstrap_servers: str, job_name: str, input_topic: str, settings: Mapping[str, str] | None = None
    ) -> None:
        arguments = [bootstrap_servers, job_name, input_topic, json.dumps(dict(settings or {}))]
        self._child = subprocess.Popen(
            [sys.executable, "-m", "integration_tests.candidates", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.process = ProcessIdentity.of(self._child.pid)
        assert self._child.stdout is not None
        self.url = self._child.stdout.readline().strip()
        assert self.url, f"the candidate ended with {self._child.wait(_STARTS_WITHIN_S)}"

    @property
    def pid(self) -> int:
        return self._child.pid

    def ask(self, path: str = "/status") -> tuple[int, Mapping[str, object]]:
        """Status code and answer of its HTTP server."""
        try:
            with urlopen(f"{self.url}{path}", timeout=10) as response:
                return response.status, json.load(response)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)

    def leads(self) -> bool:
        return self.ask()[0] == 200

    def leave(self) -> None:
        """End in good order."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.close()
        assert 0 == self._child.wait(30)
        self._child.stdout.close()

    def kill(self) -> None:
        """Send SIGKILL, and prove that the process has ended."""
        assert self.process.send(signal.SIGKILL)
        assert self.process.wait_gone(60)
        self.forget()

    def stop(self) -> None:
        """Send SIGSTOP, and prove that the process has stopped."""
        assert self.process.send(signal.SIGSTOP)
        wait_until(self.process.is_stopped, 10, "the candidate to be stopped")

    def go_on(self) -> None:
        assert self.process.is_stopped(), "it was not stopped: no fault was injected"
        assert self.process.send(signal.SIGCONT)

    def forget(self) -> None:
        """End the process in any state, and remove its files."""
        self._child.kill()
        self._child.wait(30)
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()


class Term(NamedTuple):
    """A term record: its offset on the stream, its broker time, and its leader."""

    offset: int
    timestamp_ms: int
    term: int
    pid: int


class Contest:
    """A job without containers, and its candidates; `settings` as for `a_config`."""

    def __init__(self, bootstrap_servers: str, **settings: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._settings = settings
        self.connection = KafkaConnection(bootstrap_servers=bootstrap_servers)
        self.job_name = f"contest{uuid.uuid4().hex[:8]}"
        self.input_topic = f"in-{self.job_name}"
        self.topic = coordinator_topic(f"{self.job_name}-1")
        make_topics(bootstrap_servers, {self.input_topic: 2})
        for spec in (coordinator_spec, checkpoint_spec, placement_spec):
            KafkaAdmin(self.connection).ensure_topic(spec(f"{self.job_name}-1"))
        self._candidates: list[CandidateProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for candidate in self._candidates:
                stack.callback(candidate.forget)

    def candidate(self) -> CandidateProcess:
        """One more candidate, which answers HTTP and may lead or not."""
        candidate = CandidateProcess(self.bootstrap_servers, self.job_name, self.input_topic, self._settings)
        self._candidates.append(candidate)
        return candidate

    def records(self) -> list[LogRecord]:
        """The coordinator stream."""
        return list(read_to_end(self.connection, self.topic))

    def answers(self) -> list[LogRecord]:
        """The placement topic: requests, and the leader's answers."""
        return list(read_to_end(self.connection, placement_topic(f"{self.job_name}-1")))

    def terms(self) -> list[Term]:
        """All terms so far; the topic is not compacted while a test runs."""
        terms = []
        for record in self.records():
            if record.key == b"term" and isinstance(put := decode(record, topic=self.topic), TermPut):
                terms.append(Term(record.offset, record.timestamp_ms, put.term, put.pid))
        return terms

    def wait_for_term(self, number: int, deadline_s: float = 60.0) -> Term:
        """The term with this number, once it has begun."""

        def begun() -> Term | None:
            return next((term for term in self.terms() if term.term == number), None)

        return wait_until(begun, deadline_s, f"term {number} to begin")


def _wait_for_the_end_of_stdin(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _stand(bootstrap_servers: str, job_name: str, input_topic: str, settings: str) -> int:
    config = config_of(job_name, input_topic, json.loads(settings))
    connection = KafkaConnection(bootstrap_servers=bootstrap_servers)
    admin = KafkaAdmin(connection)
    here = dataclasses.replace(Here.now(), host="localhost")
    ended = threading.Event()
    search = KafkaLeaderSearch(connection, coordinator_topic(config.job))

    def newest_leader() -> str | None:
        """The variables that a job's process has from its container."""
        term = search.newest_term(0)
        return None if term is None else term.url

    coordination = Coordination(
        config,
        here,
        connection,
        submission=lambda state: submission_of(config, admin, "candidate", NO_GROUPERS, state),
        on_end=lambda reason: ended.set(),
        leader=newest_leader,
    )
    print(coordination.start(), flush=True)
    threading.Thread(target=_wait_for_the_end_of_stdin, args=(ended,), daemon=True).start()
    ended.wait()
    coordination.close(10)
    if coordination.fatal is not None:
        print(f"{time.time():.3f} {coordination.fatal}", file=sys.stderr)
    return 0 if coordination.fatal is None else 1


if __name__ == "__main__":
    sys.exit(_stand(*sys.argv[1:]))
