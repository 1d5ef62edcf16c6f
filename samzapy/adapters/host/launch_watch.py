"""Does what the log says of containers that are to be started and ended, for the coordinator that leads the job.

In a thread of its own, because a cluster manager that does not answer must not keep the coordinator from answering.
What is to be done is read off the state of each round (law L3); what was seen becomes a command.
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
        state: what the coordinator knows; None while this process does not lead.
        put: takes the command; may be called from this thread.
        retry_window_ms: as of `LaunchesLooked`.
        on_failure: called with what nobody expected of a launcher; the watch has ended then.
        wall_ms: the wall clock, as of the records.
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
        self._said: frozenset[str] = frozenset()
        self._was_in_trouble = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samzapy-launches", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """End after the round that is under way."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def go_on(self) -> None:
        """One round: start, kill, look."""
        state = self._state()
        if state is None:
            return
        troubles = {
            **self._tried(self._launcher.launch, to_start),
            **self._tried(self._launcher.kill, lambda state: to_kill(state, self._wall_ms())),
        }
        said = list(troubles.values())
        launches = to_look_at(state)
        try:
            found = self._launcher.look(launches) if launches else {}
            hosts = self._launcher.hosts() if launches else {}
        except LaunchError as error:
            said.append(str(error))
            troubles = {launch.execution_id: str(error) for launch in to_start(state)} | troubles
        else:
            # Also when it sees nothing and names no hosts: that it does not name any is news.
            if launches:
                now_ms, window_ms = self._wall_ms(), self._retry_window_ms
                self._put(LaunchesLooked(found=found, now_ms=now_ms, retry_window_ms=window_ms, hosts=hosts))
        # Those who wait for a container are told why there is none; a coordinator that has just come, too.
        if troubles or self._was_in_trouble:
            self._put(LaunchTroubles(troubles))
        self._was_in_trouble = bool(troubles)
        self._tell(said)

    def _tried(
        self, act: Callable[[Launch], None], asked_for: Callable[[CoordinatorState], Sequence[Launch]]
    ) -> Mapping[ExecutionId, str]:
        troubles: dict[ExecutionId, str] = {}
        state = self._state()
        for launch in () if state is None else asked_for(state):
            # Each act may take seconds where nobody answers, and another process may lead meanwhile.
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

    def _tell(self, troubles: Sequence[str]) -> None:
        """Say once what is in the way, however long it is."""
        for trouble in dict.fromkeys(troubles):
            if trouble not in self._said:
                _LOG.warning("%s; it is tried again", trouble)
        self._said = frozenset(troubles)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.go_on()
            except Exception as error:
                # A coordinator that leads and starts nothing would be worse than none.
                _LOG.exception("containers can no longer be looked after")
                self._on_failure(error)
                return
            self._ended.wait(_ROUND_S)
