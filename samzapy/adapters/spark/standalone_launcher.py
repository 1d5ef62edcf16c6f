"""Run containers as drivers of a Spark standalone cluster.

They are submitted through its master's REST port. The launcher (`coordinator.ports.Launcher`) sends requests to:

- the REST port of the master: `/v1/submissions/create` starts a driver, `/kill/<id>` ends one, `/status/<id>` has the
  way it ended;
- the page of the master, `/json/`: the drivers of each worker, and its free resources;
- the page of a driver's worker, `/log/`: the command line in the first line of stderr, which has the execution id.

Spark refuses Python programs in this mode, so the driver's main class is spark-submit's own, which starts the job file
(`submission`). A worker takes a container if it has the resource `host_<name>`, one for each container, with `_` for
the dots of a name. Without such resources no host can be requested. The master supervises no driver: the coordinator
must notice an ended one.

Adoption. The master has no field for an execution id, so the launcher identifies a driver of unknown origin by its
command line. A driver that waits for a worker, or has just started, has none yet. A launcher may have missed a start if
it is new, was idle for `_AWAY_S` (another coordinator may have led meanwhile), or lost the answer to a start. Then it
defers starts for up to `_DOUBT_S` while an unidentified driver exists. If an execution is started twice all the same,
the coordinator stops one of the two processes, since an execution is one process
(`coordinator.assignment.liveness.is_expected`). The execution has ended when none of its drivers is left.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from samzapy.adapters.installed_spark import spark_version
from samzapy.adapters.spark.submission import (
    EXECUTION_CONF,
    SUBMIT_CLASS,
    ContainerProgram,
    arguments_of,
    environment_of,
    host_label,
    name_of,
)
from samzapy.errors import LaunchError
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch, Launched, LaunchedState, LaunchPhase
from samzapy.model.strict_json import parse_json

Ask = Callable[[str, str, str, bytes | None], tuple[int, bytes] | None]
"""Method, `http://host:port`, path, body -> status code and body of the answer; None without a complete answer."""

S = LaunchedState
_STATES: Mapping[str, LaunchedState] = {
    "SUBMITTED": S.STARTING,
    "RELAUNCHING": S.STARTING,
    "RUNNING": S.RUNNING,
    "FINISHED": S.ENDED,
    "KILLED": S.ENDED,
    "FAILED": S.ENDED,
    "ERROR": S.ENDED,
    # The master has restarted and does not know the driver's worker yet.
    "UNKNOWN": S.UNKNOWN,
}
# `spark.deploy.driverIdPattern` of a master makes any id. This is a segment of a path, and no handle of a process.
_DRIVER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_COMMAND = "Launch Command: "
_EXECUTION_IN_COMMAND = re.compile(rf'"{re.escape(EXECUTION_CONF)}=([A-Za-z0-9_.-]{{1,128}})"')
_MESSAGE = re.compile(r"^samzapy: (.{1,500})$", re.MULTILINE)
_EXCEPTION = "Exception from the cluster:"
_LOG_BYTES = 64 * 1024
_DOUBT_S = 30.0
_AWAY_S = 10.0
"""A leader looks every half second (`adapters.host.launch_watch`)."""
_IN_QUESTION_S = 60.0
"""How long an unidentified driver can keep an execution from counting as ended."""
_AGAIN_S = 5.0
"""The pause before the next try to identify a driver."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneMaster:
    """The URLs of a master.

    `rest_url` takes submissions (port 6066), `page_url` is its page (port 8080).
    """

    rest_url: str
    page_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A living worker and its free resources.

    `slots_free` is None if it has no `host_` resource.
    """

    worker_id: str
    host: str
    page_url: str
    slots_free: int | None
    cores_free: int
    memory_free_mib: int

    @property
    def requested_host(self) -> str:
        """The name by which a launch can request this host; empty if it has no resource.

        Without it a container reports its own host name; the worker's address would be a second name for the host.
        """
        return "" if self.slots_free is None else self.host

    def takes(self, program: ContainerProgram) -> bool:
        return self.slots_free != 0 and self.fits(program) > 0

    def fits(self, program: ContainerProgram) -> int:
        """How many more containers of the program it has cores and memory for."""
        return min(self.cores_free // program.cores, self.memory_free_mib // program.memory_mib)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A driver on the master's page; `worker` is None while it waits."""

    handle: str
    state: str
    is_submit: bool
    worker: Worker | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The content of the master's page."""

    workers: tuple[Worker, ...]
    drivers: Mapping[str, Driver]


class StandaloneLauncher:
    """A `coordinator.ports.Launcher` over one master; any thread may call it.

    Args:
        ask: sends a request over HTTP, bounded in time and size (`adapters.web.client.ask`).
        monotonic_s: a clock, for the time in which a start is in doubt.
    """

    def __init__(
        self,
        master: StandaloneMaster,
        program: ContainerProgram,
        ask: Ask,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._master = master
        self._program = program
        self._ask = ask
        self._monotonic_s = monotonic_s
        self._at_work_s = monotonic_s()
        self._doubt_until_s = self._at_work_s + _DOUBT_S
        self._lock = threading.Lock()
        self._handles: dict[ExecutionId, list[str]] = {}
        self._refused: dict[ExecutionId, str] = {}
        self._strangers: set[str] = set()
        self._first_seen_s: dict[str, float] = {}
        self._ask_again_s: dict[str, float] = {}

    def launch(self, launch: Launch) -> None:
        with self._at_work():
            self._know(launch)
            page = self._page()
            if page is None:
                raise self._no_answer("the page of the master", self._master.page_url)
            if launch.execution_id in self._refused or self._handle_of(launch, page) is not None:
                return
            waiting = self._unidentified(page)
            if waiting and self._monotonic_s() < self._doubt_until_s:
                raise LaunchError(
                    f"{waiting[0].handle} has not started yet, so its execution is unknown; {launch.execution_id} is "
                    "not started before it is known"
                )
            self._submit(launch, self._worker_for(launch, page))

    def kill(self, launch: Launch) -> None:
        with self._at_work():
            self._know(launch)
            if launch.execution_id not in self._handles:
                page = self._page()
                if page is None:
                    raise self._no_answer("the page of the master", self._master.page_url)
                self._identify_all(page)
            for handle in self._handles.get(launch.execution_id, ()):
                self._rest("POST", f"kill/{_checked(handle)}", b"")
                # The answer only says whether there was a driver to kill; its state now counts.
                status = self._status(handle)
                if status.state is S.UNKNOWN:
                    raise LaunchError(f"{handle} ({launch.execution_id}) could not be killed: {status.reason}")

    def look(self, launches: Sequence[Launch]) -> Mapping[ExecutionId, Launched]:
        with self._at_work():
            page = self._page()
            if page is None:
                raise self._no_answer("the page of the master", self._master.page_url)
            for launch in launches:
                self._know(launch)
            for driver in self._unidentified(page):
                self._first_seen_s.setdefault(driver.handle, self._monotonic_s())
            launched: dict[ExecutionId, Launched] = {}
            for launch in launches:
                seen = self._seen(launch, page)
                if seen is not None:
                    launched[launch.execution_id] = seen
            self._forget(launches, page)
            return launched

    def hosts(self) -> Mapping[str, int]:
        """How many containers each living host with a resource can take now.

        Raises:
            LaunchError: the master does not answer.
        """
        with self._at_work():
            page = self._page()
            if page is None:
                raise self._no_answer("the page of the master", self._master.page_url)
            rooms: dict[str, int] = {}
            for worker in page.workers:
                if worker.slots_free is not None:
                    # A host may have several workers (SPARK_WORKER_INSTANCES).
                    room = min(worker.slots_free, worker.fits(self._program))
                    rooms[worker.host] = rooms.get(worker.host, 0) + room
            return rooms

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Do one thing at a time.

        After a break, starts are in doubt: another launcher may have submitted some.
        """
        with self._lock:
            now_s = self._monotonic_s()
            if now_s - self._at_work_s > _AWAY_S:
                self._doubt_until_s = now_s + _DOUBT_S
            try:
                yield
            finally:
                # The end counts, because an action that waits long for answers is no break.
                self._at_work_s = self._monotonic_s()

    def _seen(self, launch: Launch, page: Page) -> Launched | None:
        refusal = self._refused.get(launch.execution_id)
        if refusal is not None:
            return Launched(state=S.ENDED, reason=refusal)
        handle = self._handle_of(launch, page)
        if handle is None and launch.phase is LaunchPhase.WANTED:
            return None
        if handle is None:
            launched = Launched(state=S.ENDED, reason="the master knows no driver of it")
        else:
            launched = self._state_of(handle, page)
        if launched.state is not S.ENDED:
            return launched
        # An unidentified driver may belong to it. If one driver has ended, only a second one that runs matters.
        in_question = self._in_question(page)
        return None if any(handle is None or driver.worker is not None for driver in in_question) else launched

    def _state_of(self, handle: str, page: Page) -> Launched:
        driver = page.drivers.get(handle)
        state = None if driver is None else _STATES.get(driver.state, S.UNKNOWN)
        if driver is None or state in (S.ENDED, S.UNKNOWN):
            # The REST port also has drivers that left the page, and the reason why one ended.
            return self._status(handle, None if driver is None else driver.worker)
        assert state is not None, "the driver is on the page"
        return Launched(
            state=state, handle=handle, host="" if driver.worker is None else driver.worker.requested_host
        )

    def _status(self, handle: str, worker: Worker | None = None) -> Launched:
        answer = self._rest("GET", f"status/{_checked(handle)}")
        if answer is None:
            return Launched(state=S.UNKNOWN, handle=handle, reason="the master's REST port does not answer")
        if answer.get("success") is not True:
            message = answer.get("message")
            if message is not None or "success" not in answer:
                # The master has just started and recovers, or is a standby of another master.
                return Launched(state=S.UNKNOWN, handle=handle, reason=f"the master says: {_first_line(message)}")
            return Launched(state=S.ENDED, handle=handle, reason="the master knows no such driver any more")
        driver_state = str(answer.get("driverState"))
        state = _STATES.get(driver_state, S.UNKNOWN)
        host = "" if worker is None else worker.requested_host
        if state is not S.ENDED:
            return Launched(state=state, handle=handle, host=host, reason=driver_state if state is S.UNKNOWN else "")
        cause = _first_line(answer.get("message"))
        if not cause and driver_state != "FINISHED":
            cause = self._last_message(handle, worker)
        return Launched(
            state=state,
            handle=handle,
            host=host,
            # The master has no exit code of a driver that failed.
            exit_code=0 if driver_state == "FINISHED" else None,
            reason=f"driver {driver_state}" + (f": {cause}" if cause else ""),
        )

    def _worker_for(self, launch: Launch, page: Page) -> Worker | None:
        """The worker to run it on.

        Returns None if any worker will do and hosts cannot be requested.
        """
        there = [worker for worker in page.workers if launch.host in ("", worker.host)]
        fitting = [worker for worker in there if worker.takes(self._program)]
        if launch.host and any(worker.slots_free is None for worker in there):
            raise LaunchError(
                f"{launch.execution_id} is wanted on {launch.host}, but its worker has no resource "
                f"{host_label(launch.host)}; see docs/guides/spark-standalone.md"
            )
        if not fitting:
            free = ", ".join(_free_text(worker) for worker in there) or "no living worker"
            wanted = f"{self._program.cores} cores and {self._program.memory_mib} MiB"
            raise LaunchError(f"no room for {launch.execution_id} on {launch.host or 'any host'}: {wanted}; {free}")
        pinned = [worker for worker in fitting if worker.slots_free is not None]
        # The emptiest; among equals the first by name, so that two launchers choose the same.
        return min(pinned, key=lambda worker: (-(worker.slots_free or 0), worker.host), default=None)

    def _submit(self, launch: Launch, worker: Worker | None) -> None:
        request = submission_request(self._program, launch, "" if worker is None else worker.host)
        before_s, self._doubt_until_s = self._doubt_until_s, self._monotonic_s() + _DOUBT_S
        answer = self._ask("POST", self._master.rest_url, "/v1/submissions/create", json.dumps(request).encode())
        created = None if answer is None else _object(answer[1])
        if created is None:
            raise self._no_answer("the REST port of the master", self._master.rest_url)
        handle = created.get("submissionId")
        if created.get("success") is True and isinstance(handle, str) and _DRIVER_ID.fullmatch(handle):
            self._handles.setdefault(launch.execution_id, []).append(handle)
            self._doubt_until_s = before_s
            return
        reason = f"the master refuses {launch.execution_id}: {_first_line(created.get('message')) or created}"
        if answer is not None and answer[0] == 400:
            # The master does not take such a request; it would not take it the next time either.
            self._refused[launch.execution_id] = reason
            return
        raise LaunchError(reason)

    def _handle_of(self, launch: Launch, page: Page) -> str | None:
        """The driver of an execution, also of one that another coordinator started.

        If there are several, a running one counts: it may be the process that sends heartbeats.
        """
        handle = self._known(launch, page)
        if handle is None or _is_over(handle, page):
            self._identify_all(page)
            handle = self._known(launch, page)
        return handle

    def _known(self, launch: Launch, page: Page) -> str | None:
        own = self._handles.get(launch.execution_id, ())
        return min(own, key=lambda handle: (_is_over(handle, page), handle != launch.handle), default=None)

    def _know(self, launch: Launch) -> None:
        """Remember the driver that the launch's record has.

        A record of the process launcher has a handle too, for instance of a job that was moved from one machine to a
        cluster. The master knows no driver for it.
        """
        is_new = launch.handle not in self._handles.get(launch.execution_id, ())
        if is_new and _DRIVER_ID.fullmatch(launch.handle):
            self._handles.setdefault(launch.execution_id, []).append(launch.handle)

    def _identified(self) -> set[str]:
        return self._strangers.union(*self._handles.values())

    def _identify_all(self, page: Page) -> None:
        identified = self._identified()
        now_s = self._monotonic_s()
        asked = []
        for driver in page.drivers.values():
            is_due = now_s >= self._ask_again_s.get(driver.handle, now_s)
            if driver.is_submit and driver.worker is not None and driver.handle not in identified and is_due:
                self._identify(driver)
                asked.append(driver.handle)
        # After the last answer: all of them together may take longer than the pause.
        self._ask_again_s |= dict.fromkeys(asked, self._monotonic_s() + _AGAIN_S)

    def _identify(self, driver: Driver) -> None:
        text = self._stderr(driver.handle, driver.worker, offset=0)
        if text is None or _COMMAND not in text:
            return  # The worker has just started; the next look may have the line.
        command, end, _ = text.partition(_COMMAND)[2].partition("\n")
        matched = _EXECUTION_IN_COMMAND.search(command)
        if matched is None:
            if end:
                self._strangers.add(driver.handle)
            return
        _log.info("%s is %s, started by an earlier coordinator", driver.handle, matched[1])
        self._handles.setdefault(ExecutionId(matched[1]), []).append(driver.handle)

    def _in_question(self, page: Page) -> list[Driver]:
        after_s = self._monotonic_s() - _IN_QUESTION_S
        return [driver for driver in self._unidentified(page) if self._first_seen_s[driver.handle] > after_s]

    def _unidentified(self, page: Page) -> list[Driver]:
        identified = self._identified()
        return [
            driver
            for driver in page.drivers.values()
            if driver.is_submit and driver.handle not in identified and _STATES.get(driver.state) is not S.ENDED
        ]

    def _forget(self, launches: Iterable[Launch], page: Page) -> None:
        """Forget executions that are in no launch.

        Drivers that the master does not show any more are forgotten too.
        """
        asked = {launch.execution_id for launch in launches}
        self._refused = {execution: reason for execution, reason in self._refused.items() if execution in asked}
        self._handles = {
            execution: handles
            for execution, handles in self._handles.items()
            if execution in asked or not page.drivers.keys().isdisjoint(handles)
        }
        self._strangers &= page.drivers.keys()
        for times in (self._first_seen_s, self._ask_again_s):
            for handle in times.keys() - page.drivers.keys():
                del times[handle]

    def _last_message(self, handle: str, worker: Worker | None) -> str:
        """The driver's own message about its end, if its worker still has the log."""
        messages = _MESSAGE.findall(self._stderr(handle, worker) or "")
        return messages[-1] if messages else ""

    def _stderr(self, handle: str, worker: Worker | None, offset: int | None = None) -> str | None:
        """A part of a driver's stderr: from `offset` on, or its end."""
        if worker is None:
            return None
        where = "" if offset is None else f"&offset={offset}"
        path = f"/log/?driverId={_checked(handle)}&logType=stderr{where}&byteLength={_LOG_BYTES}"
        answer = self._ask("GET", worker.page_url, path, None)
        return answer[1].decode(errors="replace") if answer is not None and answer[0] == 200 else None

    def _page(self) -> Page | None:
        answer = self._ask("GET", self._master.page_url, "/json/", None)
        return parse_page(answer[1]) if answer is not None and answer[0] == 200 else None

    def _rest(self, method: str, path: str, body: bytes | None = None) -> Mapping[str, Any] | None:
        answer = self._ask(method, self._master.rest_url, f"/v1/submissions/{path}", body)
        value = None if answer is None else _object(answer[1])
        return value if value is not None and "serverSparkVersion" in value else None

    def _no_answer(self, source: str, url: str) -> LaunchError:
        return LaunchError(
            f"wanted an answer of {source} at {url}, found none, or not the answer of an active master"
        )


def submission_request(program: ContainerProgram, launch: Launch, host: str) -> Mapping[str, Any]:
    """The body of `POST /v1/submissions/create`.

    `host` is empty if any will do and hosts have no resources.
    """
    pinned = {f"spark.driver.resource.{host_label(host)}.amount": "1"} if host else {}
    return {
        "action": "CreateSubmissionRequest",
        "clientSparkVersion": spark_version(),
        "mainClass": SUBMIT_CLASS,
        # Spark copies it into the driver's directory and never uses it; it must be a file on the worker.
        "appResource": PurePosixPath(program.job_file).as_uri(),
        "appArgs": arguments_of(program, launch),
        "environmentVariables": environment_of(program, launch, host),
        "sparkProperties": {
            "spark.app.name": name_of(program, launch),
            "spark.driver.cores": str(program.cores),
            "spark.driver.memory": f"{program.memory_mib}m",
            "spark.driver.supervise": "false",
            "spark.submit.deployMode": "cluster",
            **pinned,
        },
    }


def parse_page(text: bytes) -> Page | None:
    """Parse the master's page.

    Returns None if it is another page, or the master is not active (now).
    """
    try:
        page = parse_json(text)
        if page["status"] != "ALIVE":
            return None
        workers = {worker["id"]: _worker(worker) for worker in page["workers"] if worker["state"] == "ALIVE"}
        drivers = [_driver(driver, workers) for driver in (*page["activedrivers"], *page["completeddrivers"])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _log.debug("not the page of a Spark master: %r", error)
        return None
    return Page(
        workers=tuple(sorted(workers.values(), key=lambda worker: worker.worker_id)),
        drivers={driver.handle: driver for driver in drivers},
    )


def _worker(fields: Mapping[str, Any]) -> Worker:
    named = [name for name in fields["resources"] if name.startswith("host_")]
    slots_free = None
    if named:
        slots_free = len(fields["resourcesfree"].get(named[0], {}).get("addresses", ()))
    return Worker(
        worker_id=fields["id"],
        host=named[0].removeprefix("host_").replace("_", ".") if named else str(fields["host"]),
        page_url=str(fields["webuiaddress"]),
        slots_free=slots_free,
        cores_free=int(fields["coresfree"]),
        memory_free_mib=int(fields["memoryfree"]),
    )


def _driver(fields: Mapping[str, Any], workers: Mapping[str, Worker]) -> Driver:
    return Driver(
        handle=str(fields["id"]),
        state=str(fields["state"]),
        is_submit=fields["mainclass"] == SUBMIT_CLASS,
        worker=workers.get(fields["worker"]),
    )


def _object(text: bytes) -> Mapping[str, Any] | None:
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _checked(handle: str) -> str:
    """Refuse a handle that is no driver's id.

    It comes from a topic, and goes into a path.
    """
    if _DRIVER_ID.fullmatch(handle) is None:
        raise LaunchError(f"wanted the id of a driver, found {handle!r}")
    return handle


def _first_line(message: object) -> str:
    """The first line of a message.

    The heading that the master puts above each exception is left out.
    """
    return str(message or "").strip().removeprefix(_EXCEPTION).strip().partition("\n")[0]


def _is_over(handle: str, page: Page) -> bool:
    driver = page.drivers.get(handle)
    return driver is None or _STATES.get(driver.state) is S.ENDED


def _free_text(worker: Worker) -> str:
    slots = "" if worker.slots_free is None else f"{worker.slots_free} slots, "
    return f"{worker.host} has {slots}{worker.cores_free} cores and {worker.memory_free_mib} MiB free"
