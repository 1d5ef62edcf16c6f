"""Start, kill and watch containers as the log says, for the leader.

The watch has a thread of its own, because a cluster manager that does not answer must not keep the coordinator from
answering. Each round reads the acts from the state (law L3), and its observations become a command.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from samzapy.coordinator.commands import LaunchesLooked, LaunchTroubles
from samzapy.coordinator.launching.launches import to_kill, to_look_at, to_start
from samzapy.coordinator.ports import Launcher
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import LaunchError
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch

_LOG = logging.getLogger(__name__)
_ROUND_S = 0.5


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class LaunchWatch:
    """Acts and looks every half second while this process leads.

    Args:
        state: the coordinator's state; None while this process does not lead.
        put: takes the command; called from the thread of this watch.
        retry_window_ms: see `LaunchesLooked`.
        on_failure: called with an unexpected error of a launcher, after which the watch ends.
        wall_ms: the wall clock that the records use.
    """

    def __init__(
        self,
        launcher: Launcher,
        *,
        state: Callable[[], CoordinatorState | None],
        put: Callable[[LaunchesLooked | LaunchTroubles], object],
        retry_window_ms: int,
        on_failure: Callable[[Exception], None],
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self._launcher = launcher
        self._state = state
        self._put = put
        self._retry_window_ms = retry_window_ms
        self._on_failure = on_failure
        self._wall_ms = wall_ms
        self._logged: frozenset[str] = frozenset()
        self._was_in_trouble = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samzapy-launches", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """End after the current round."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def go_on(self) -> None:
        """Do one round: start, kill and look at containers."""
        state = self._state()
        if state is None:
            return
        troubles = {
            **self._tried(self._launcher.launch, to_start),
            **self._tried(self._launcher.kill, lambda state: to_kill(state, self._wall_ms())),
        }
        texts = list(troubles.values())
        launches = to_look_at(state)
        try:
            launched = self._launcher.look(launches) if launches else {}
            hosts = self._launcher.hosts() if launches else {}
        except LaunchError as error:
            texts.append(str(error))
            troubles = {launch.execution_id: str(error) for launch in to_start(state)} | troubles
        else:
            # An empty answer counts too, because no hosts are also an observation.
            if launches:
                now_ms, window_ms = self._wall_ms(), self._retry_window_ms
                self._put(LaunchesLooked(launched=launched, now_ms=now_ms, retry_window_ms=window_ms, hosts=hosts))
        # Requests that wait for a container get the reason, also from a new leader.
        if troubles or self._was_in_trouble:
            self._put(LaunchTroubles(troubles))
        self._was_in_trouble = bool(troubles)
        self._log_new(texts)

    def _tried(
        self, act: Callable[[Launch], None], asked_for: Callable[[CoordinatorState], Sequence[Launch]]
    ) -> Mapping[ExecutionId, str]:
        troubles: dict[ExecutionId, str] = {}
        state = self._state()
        for launch in () if state is None else asked_for(state):
            # An act may take seconds if the cluster manager does not answer, and another process may lead meanwhile.
            now = self._state()
            if now is None:
                break
            if now is not state and launch not in asked_for(now):
                continue
            try:
                act(launch)
            except LaunchError as error:
                troubles[launch.execution_id] = str(error)
        return troubles

    def _log_new(self, texts: Sequence[str]) -> None:
        """Log each trouble once, however long it lasts."""
        for text in dict.fromkeys(texts):
            if text not in self._logged:
                _LOG.warning("%s; it is tried again", text)
        self._logged = frozenset(texts)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.go_on()
            except Exception as error:
                # A leader that starts no containers would be worse than no leader.
                _LOG.exception("containers can no longer be started or watched")
                self._on_failure(error)
                return
            self._ended.wait(_ROUND_S)
