"""Start containers as processes of this machine, on logical hosts.

This is a `coordinator.ports.Launcher`. A logical host has a name, a directory with local state and logs, and a number
of slots. With them a job of many hosts can be developed and tried on one machine. A job that must survive the loss of a
machine needs another launcher.

A container is identified by environment variables of its processes, never by a recorded pid. So a coordinator that did
not start it can adopt it, together with its child processes. Only the coordinator that started a process knows its exit
code.

Coordinators of one machine that use one directory share its slots. A lock on it makes looking and starting one step:
between two terms, two coordinators may be asked to start the same container.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from samzapy.adapters.host.log_file import log_path
from samzapy.adapters.host.processes import ProcessIdentity, processes_bearing, start_in_own_session
from samzapy.config import HostSlots
from samzapy.errors import EnvironmentMissingError, LaunchError, SamzapyError
from samzapy.model.credential import CREDENTIAL_VARIABLE
from samzapy.model.job import ExecutionId
from samzapy.model.launch import (
    EXECUTION_VARIABLE,
    HOST_VARIABLE,
    Launch,
    Launched,
    LaunchedState,
    LaunchPhase,
    LaunchRole,
)
from samzapy.model.text import some

PROCESSOR: Final = "SAMZAPY_PROCESSOR"
DIRECTORY: Final = "SAMZAPY_PROCESS_DIR"
_REASON_BYTES: Final = 4000
_REASON_CHARS: Final = 300
_WITHOUT_REASON: Final = (0, 128 + signal.SIGKILL)
"""Exit codes of processes whose last line says nothing about their end."""
_WENT_WELL: Final = re.compile(r'\S+ \S+ (INFO|DEBUG) |\{.*"level": ?"(INFO|DEBUG)"')
"""A line of the log below a warning: of samzapy as text and as JSON, and of Spark."""


@dataclass(slots=True)
class _Running:
    """An execution and its processes."""

    host: str
    processor_id: str
    processes: list[ProcessIdentity] = field(default_factory=list)

    @property
    def leader(self) -> ProcessIdentity | None:
        """The leader of its session, which the launcher started.

        It is None when only child processes are left.
        """
        return next((process for process in self.processes if _session_of(process.pid) == process.pid), None)


@dataclass(frozen=True, slots=True)
class _Child:
    """A process that this launcher started itself, and its host."""

    process: ProcessIdentity
    host: str
    processor_id: str


@contextmanager
def _faults_pass() -> Iterator[None]:
    """Turn a lack of resources into a LaunchError.

    A launch is retried until the coordinator gives it up. The machine may lack processes, descriptors, room on a disk,
    or spark-submit while pip replaces it. None of these is a failure of a container.
    """
    try:
        yield
    except (OSError, EnvironmentMissingError) as error:
        raise LaunchError(f"containers cannot be started or looked at now: {error}") from error


class ProcessLauncher:
    """Starts containers with `command_of`, each in a session of its own.

    Args:
        hosts: the logical hosts, and how many containers each may have.
        directory: the parent of the hosts' directories.
        command_of: the command for a launch, given the directory of its local state.
        environment: for the containers, besides the variables that identify them.
        credential_of: the credential of an execution for its heartbeats; None: they need none.
    """

    def __init__(
        self,
        *,
        hosts: Sequence[HostSlots],
        directory: Path,
        command_of: Callable[[Launch, Path], Sequence[str]],
        environment: Mapping[str, str],
        credential_of: Callable[[ExecutionId], str | None] = lambda execution_id: None,
    ) -> None:
        self._credential_of = credential_of
        self._slots = {slots.host: slots.slot_count for slots in hosts}
        self._directory = directory.resolve()
        self._command_of = command_of
        self._environment = environment
        self._children: dict[ExecutionId, _Child] = {}
        self._exit_codes: dict[ExecutionId, int] = {}
        self._refused: dict[ExecutionId, str] = {}

    @_faults_pass()
    def launch(self, launch: Launch) -> None:
        """See `Launcher.launch`."""
        if launch.execution_id in self._children or launch.execution_id in self._refused:
            return
        with self._locked():
            running = self._running()
            if launch.execution_id in running:
                return
            host = self._host_for(launch, running)
            if host is None:
                hosts = some(sorted(self._slots))
                text = f"wanted a host of cluster.process.hosts ({hosts}), found {launch.host}"
                self._refused[launch.execution_id] = text
                return
            try:
                self._children[launch.execution_id] = self._started(launch, host)
            except EnvironmentMissingError:
                raise
            except SamzapyError as error:
                self._refused[launch.execution_id] = f"it cannot be started: {error}"

    @_faults_pass()
    def kill(self, launch: Launch) -> None:
        """See `Launcher.kill`."""
        running = self._running().get(launch.execution_id)
        for process in () if running is None else running.processes:
            process.send(signal.SIGKILL)

    @_faults_pass()
    def hosts(self) -> Mapping[str, int]:
        """See `Launcher.hosts`; these are the logical hosts."""
        load = Counter(execution.host for execution in self._running().values())
        return {host: max(0, count - load[host]) for host, count in self._slots.items()}

    @_faults_pass()
    def look(self, launches: Sequence[Launch]) -> Mapping[ExecutionId, Launched]:
        """See `Launcher.look`."""
        running = self._running()
        self._reap()
        seen: dict[ExecutionId, Launched] = {}
        for launch in launches:
            execution = running.get(launch.execution_id)
            if execution is not None:
                seen[launch.execution_id] = self._looked(execution)
            elif launch.phase is not LaunchPhase.WANTED or self._is_known(launch.execution_id):
                seen[launch.execution_id] = self._ended(launch)
        return seen

    # --- starting ---

    def _host_for(self, launch: Launch, running: Mapping[ExecutionId, _Running]) -> str | None:
        """The host to start it on; None if there is no such host.

        Raises:
            LaunchError: no slot is free now.
        """
        if launch.host and launch.host not in self._slots:
            return None
        load = Counter(execution.host for execution in running.values())
        taken = {execution.host for execution in running.values() if execution.processor_id == launch.processor_id}
        avoided = taken if launch.role is LaunchRole.STANDBY else frozenset[str]()
        free = [
            host
            for host in sorted(self._slots, key=lambda host: (load[host], host))
            if load[host] < self._slots[host] and host not in avoided and launch.host in ("", host)
        ]
        if not free:
            where = launch.host or f"any of {some(sorted(self._slots.keys() - avoided))}"
            raise LaunchError(f"wanted a free slot on {where} for {launch.execution_id}, found none")
        return free[0]

    def _started(self, launch: Launch, host: str) -> _Child:
        place = self._directory / host
        place.mkdir(parents=True, exist_ok=True)
        credential = self._credential_of(launch.execution_id)
        process = start_in_own_session(
            self._command_of(launch, place / "state"),
            log_path(self._directory, host, launch.execution_id),
            {
                **self._environment,
                **({} if credential is None else {CREDENTIAL_VARIABLE: credential}),
                EXECUTION_VARIABLE: launch.execution_id,
                HOST_VARIABLE: host,
                PROCESSOR: launch.processor_id,
                DIRECTORY: str(self._directory),
            },
        )
        return _Child(process, host, launch.processor_id)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                # Without waiting: a coordinator that is stopped while it holds the lock must not block the others.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LaunchError(f"wanted the lock of {self._directory}, another coordinator starts there") from None
            yield
        finally:
            os.close(descriptor)

    # --- looking ---

    def _running(self) -> Mapping[ExecutionId, _Running]:
        running: dict[ExecutionId, _Running] = {}
        for process, environment in processes_bearing(EXECUTION_VARIABLE):
            if environment.get(DIRECTORY) == str(self._directory):
                new = _Running(environment.get(HOST_VARIABLE, ""), environment.get(PROCESSOR, ""))
                running.setdefault(ExecutionId(environment[EXECUTION_VARIABLE]), new).processes.append(process)
        # A child counts without its environment, which is hidden while the process becomes another program (exec).
        for execution_id, child in self._children.items():
            if execution_id not in self._exit_codes and child.process.is_alive():
                execution = running.setdefault(execution_id, _Running(child.host, child.processor_id))
                if child.process not in execution.processes:
                    execution.processes.append(child.process)
        return running

    def _looked(self, execution: _Running) -> Launched:
        leader = execution.leader
        if leader is None:
            # Child processes that are left behind would keep the slot.
            for process in execution.processes:
                process.send(signal.SIGKILL)
        handle = "" if leader is None else f"{leader.pid}@{leader.started_ticks}"
        return Launched(state=LaunchedState.RUNNING, host=execution.host, handle=handle)

    def _ended(self, launch: Launch) -> Launched:
        refused = self._refused.get(launch.execution_id)
        exit_code = self._exit_codes.get(launch.execution_id)
        return Launched(
            state=LaunchedState.ENDED,
            exit_code=exit_code,
            reason=refused or ("" if exit_code in _WITHOUT_REASON else self._last_line(launch.execution_id)),
        )

    def _is_known(self, execution_id: ExecutionId) -> bool:
        return execution_id in self._children or execution_id in self._refused

    def _reap(self) -> None:
        for execution_id, child in self._children.items():
            if execution_id in self._exit_codes:
                continue
            try:
                pid, status = os.waitpid(child.process.pid, os.WNOHANG)
            except ChildProcessError:
                continue
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._exit_codes[execution_id] = code if code >= 0 else 128 - code

    def _last_line(self, execution_id: ExecutionId) -> str:
        """The last line that the execution printed, but for its log of what went well."""
        for host in sorted(self._slots):
            path = log_path(self._directory, host, execution_id)
            if path.exists():
                with path.open("rb") as log:
                    begin = max(0, path.stat().st_size - _REASON_BYTES)
                    log.seek(begin)
                    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
                if begin and len(lines) > 1:
                    del lines[0]  # A line without its beginning does not say its level.
                reasons = (line for line in reversed(lines) if line and not _WENT_WELL.match(line))
                return next(reasons, "")[-_REASON_CHARS:]
        return ""


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None
