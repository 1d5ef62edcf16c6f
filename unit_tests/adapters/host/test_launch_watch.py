from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from samzapy.adapters.host.launch_watch import LaunchWatch
from samzapy.coordinator.commands import LaunchesLooked, LaunchTroubles
from samzapy.coordinator.state import INITIAL, CoordinatorState, committed, evolve
from samzapy.errors import LaunchError
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch, Launched, LaunchedState, LaunchPhase
from samzapy.stream.records import ContainerPut, LaunchPut
from samzapy.testing.builders import a_container, a_launch
from samzapy.testing.waiting import wait_until

FAR_AHEAD_MS = 2**60


class Recorded:
    """A launcher that records its calls; `trouble` is the error that it raises."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self.trouble = trouble

    def launch(self, launch: Launch) -> None:
        self._note("launch", launch)

    def kill(self, launch: Launch) -> None:
        self._note("kill", launch)

    def look(self, launches: Sequence[Launch]) -> Mapping[ExecutionId, Launched]:
        for launch in launches:
            self._note("look", launch)
        return {launch.execution_id: Launched(state=LaunchedState.RUNNING) for launch in launches}

    def hosts(self) -> Mapping[str, int | None]:
        return {"h2": 1, "h1": None}

    def _note(self, act: str, launch: Launch) -> None:
        self.asked.append((act, launch.execution_id))
        if self.trouble is not None:
            raise self.trouble


def a_state(*launches: Launch) -> CoordinatorState:
    return evolve(INITIAL, committed([LaunchPut(launch=launch) for launch in launches], 0))


def watching(
    launcher: Recorded,
    state: Callable[[], CoordinatorState | None],
    put: Callable[[LaunchesLooked | LaunchTroubles], object],
) -> LaunchWatch:
    return LaunchWatch(launcher, state=state, put=put, retry_window_ms=5, on_failure=_fails)


def _fails(error: Exception) -> None:
    raise AssertionError(f"wanted no failure, found {error}")


ALL = a_state(
    a_launch("wanted", phase=LaunchPhase.WANTED),
    a_launch("launched", phase=LaunchPhase.LAUNCHED),
    a_launch("late", phase=LaunchPhase.STOPPING, expires_at_ms=0),
    a_launch("stopping", phase=LaunchPhase.STOPPING, expires_at_ms=FAR_AHEAD_MS),
    a_launch("ended", phase=LaunchPhase.ENDED),
)


def test_wanted_launches_are_started_late_ones_killed_and_running_ones_looked_at() -> None:
    launcher, events = Recorded(), list[LaunchesLooked | LaunchTroubles]()

    watching(launcher, lambda: ALL, events.append).go_on()

    assert [
        ("launch", "wanted"),
        ("kill", "late"),
        ("look", "late"),
        ("look", "launched"),
        ("look", "stopping"),
        ("look", "wanted"),
    ] == launcher.asked
    (looked,) = events
    assert isinstance(looked, LaunchesLooked)
    assert {"late", "launched", "stopping", "wanted"} == set(looked.launched)
    assert {"h1": None, "h2": 1} == looked.hosts
    assert 5 == looked.retry_window_ms


def test_a_container_that_has_sent_a_heartbeat_is_not_started() -> None:
    launcher = Recorded()
    registered = evolve(ALL, committed([ContainerPut(container=a_container("wanted"))], 9))

    watching(launcher, lambda: registered, _ignored).go_on()

    assert ("launch", "wanted") not in launcher.asked


def _ignored(event: LaunchesLooked | LaunchTroubles) -> None:
    pass


def test_a_launch_watch_that_does_not_lead_does_nothing() -> None:
    launcher = Recorded()

    watching(launcher, lambda: None, _ignored).go_on()

    assert [] == launcher.asked


def test_a_launch_that_is_withdrawn_during_a_round_is_not_started() -> None:
    """Another process leads by now, or the record on the stream has changed."""
    states = [a_state(*(a_launch(f"e{number}", phase=LaunchPhase.WANTED) for number in range(4)))]

    class Slow(Recorded):
        def launch(self, launch: Launch) -> None:
            super().launch(launch)
            if launch.execution_id == "e0":
                ended = ContainerPut(container=a_container("e1"))
                states[0] = evolve(states[0], committed([ended], 4))
            if launch.execution_id == "e2":
                states.clear()

    launcher = Slow()

    watching(launcher, lambda: states[0] if states else None, _ignored).go_on()

    assert [("launch", "e0"), ("launch", "e2")] == [call for call in launcher.asked if call[0] == "launch"]


def test_trouble_with_one_launch_delays_no_other_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    launcher, events = Recorded(LaunchError("no slot is free")), list[LaunchesLooked | LaunchTroubles]()
    watch = watching(launcher, lambda: ALL, events.append)

    watch.go_on()
    watch.go_on()

    assert 2 == launcher.asked.count(("kill", "late"))
    expected = LaunchTroubles({ExecutionId(name): "no slot is free" for name in ("wanted", "late")})
    assert [expected, expected] == events
    assert 1 == caplog.text.count("no slot is free")


def test_the_end_of_a_trouble_is_reported_once() -> None:
    launcher, events = Recorded(LaunchError("no slot is free")), list[LaunchesLooked | LaunchTroubles]()
    watch = watching(launcher, lambda: ALL, events.append)

    watch.go_on()
    launcher.trouble = None
    watch.go_on()
    watch.go_on()

    assert [2, 0] == [len(event.troubles) for event in events if isinstance(event, LaunchTroubles)]


def test_a_start_that_waits_has_the_reason_that_the_cluster_manager_is_silent() -> None:
    class Away(Recorded):
        def look(self, launches: Sequence[Launch]) -> Mapping[ExecutionId, Launched]:
            raise LaunchError("no answer")

    events = list[LaunchesLooked | LaunchTroubles]()

    watching(Away(), lambda: ALL, events.append).go_on()

    assert [LaunchTroubles({ExecutionId("wanted"): "no answer"})] == events


def test_an_unexpected_error_of_a_launcher_ends_the_process() -> None:
    failures: list[Exception] = []
    watch = LaunchWatch(
        Recorded(ValueError("a fault of ours")),
        state=lambda: ALL,
        put=_ignored,
        retry_window_ms=5,
        on_failure=failures.append,
    )

    watch.start()
    wait_until(lambda: failures, 10, "the failure to be reported")
    watch.close(5)

    assert ["a fault of ours"] == [str(error) for error in failures]
