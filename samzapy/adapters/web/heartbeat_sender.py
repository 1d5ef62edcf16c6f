"""Send heartbeats from a thread of their own.

They continue while the container restores or waits for a broker.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.container.ports import HeartbeatContent
from samzapy.errors import SamzapyError

_LOG = logging.getLogger(__name__)
_ANSWER_WAIT_MS = 2000
_SOON_S = 1.0
"""The interval for progress that the coordinator may wait for, and for a heartbeat that had no answer."""


@dataclass(frozen=True, slots=True, order=True)
class Leader:
    """The leader according to the coordinator stream."""

    term: int
    url: str


class _NewestLeader:
    """The newest leader that is known. Any thread may read it and replace it."""

    def __init__(self) -> None:
        self.leader: Leader | None = None
        self._lock = threading.Lock()

    def replace(self, leader: Leader) -> bool:
        """Take `leader` if its term is newer; whether it is."""
        with self._lock:
            is_newer = self.leader is None or leader.term > self.leader.term
            if is_newer:
                self.leader = leader
            return is_newer


class _Lease:
    """The lease that an answer renews, on the monotonic clock."""

    def __init__(self, lease_ms: int, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._duration_s = lease_ms / 1000
        self.begin()

    def begin(self) -> None:
        """Count the time without a lease from now on."""
        self._until_s = self.now_s()

    def renew(self, sent_at_s: float) -> None:
        self._until_s = sent_at_s + self._duration_s

    def ran_out_at_ms(self) -> int | None:
        until_s = self._until_s
        return int(until_s * 1000) if self.now_s() > until_s else None


class HeartbeatThread:
    """Sends the content published last every `interval_ms`.

    This is a `container.ports.Heartbeats`. It sends at once when an act is done (`_acts`), and within a second after
    progress (`_progress`) or after a heartbeat without an answer. Statistics wait for the interval.

    After a heartbeat without an answer it looks for a newer leader by itself: the container may be busy with a restore
    for longer than a lease, and reads no stream meanwhile.

    Args:
        identity: the part of the heartbeat that never changes, in its JSON form.
        on_alive: called with the CLOCK_BOOTTIME nanoseconds at which a heartbeat was *sent* that was answered
            `alive`; the lease counts from the sending, because the coordinator's clock starts no earlier.
        find_leader: looks on the coordinator stream, from an offset on, for the newest leader; None: nothing new. A
            SamzapyError of it is logged, and the search is repeated.
        now_s: the monotonic clock of the lease, in seconds; it must be the clock of the container's ports.
    """

    def __init__(
        self,
        client: HttpCoordinatorClient,
        *,
        identity: Mapping[str, Any],
        interval_ms: int,
        lease_ms: int,
        on_alive: Callable[[int], None],
        find_leader: Callable[[int], Leader | None] = lambda offset_from: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._identity = identity
        self._interval_s = interval_ms / 1000
        self._on_alive = on_alive
        self._find_leader = find_leader
        self._newest = _NewestLeader()
        self._content: HeartbeatContent | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._given_up: str | None = None
        self._trouble = ""
        self._lease = _Lease(lease_ms, now_s)
        # When the first unanswered heartbeat was sent; None if the last one was answered.
        self._unanswered_since_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="samzapy-heartbeats", daemon=True)

    def start(self) -> None:
        """Begin to send; no answer could come before, so the grace counts from now on."""
        self._lease.begin()
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=_ANSWER_WAIT_MS / 1000 + 1)
        self._client.close()

    def publish(self, content: HeartbeatContent) -> None:
        before, self._content = self._content, content
        if content.coordinator_url is not None:
            self._newest.replace(Leader(content.term, content.coordinator_url))
        if before is None or _acts(before) != _acts(content):
            self._wake.set()

    def given_up(self) -> str | None:
        return self._given_up

    def leader_url(self) -> str | None:
        """The URL of the newest leader that is known; any thread may call it."""
        leader = self._newest.leader
        return None if leader is None else leader.url

    def lease_ran_out_at_ms(self) -> int | None:
        return self._lease.ran_out_at_ms()

    def send_now(self, timeout_ms: int) -> bool:
        deadline_s = time.monotonic() + timeout_ms / 1000
        while not self._send(timeout_ms):
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(0.05)
        return True

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wake.clear()
            content, is_answered = self._content, False
            try:
                is_answered = content is None or self._send(_ANSWER_WAIT_MS)
                if content is not None and not is_answered:
                    self._look_for_leader(content.stream_offset)
            except (SamzapyError, OSError, RuntimeError) as error:
                # The thread must go on: without heartbeats a container drains, also after a short trouble. The host may
                # have no thread left for a connection, or no room for the file of the lease.
                self._log_new(str(error))
            else:
                self._trouble = ""
            self._rest(content, is_answered)

    def _rest(self, sent: HeartbeatContent | None, is_answered: bool) -> None:
        """Wait until the next heartbeat is due."""
        until_s = time.monotonic() + self._interval_s
        while not self._wake.wait(max(0.0, min(_SOON_S, until_s - time.monotonic()))):
            is_news = _progress(self._content) != _progress(sent)
            if is_news or not is_answered or time.monotonic() >= until_s:
                return

    def _log_new(self, trouble: str) -> None:
        """Log a trouble once, however long it lasts."""
        if trouble != self._trouble:
            _LOG.warning("%s; heartbeats continue", trouble)
        self._trouble = trouble

    def _look_for_leader(self, offset_from: int) -> None:
        leader = self._find_leader(offset_from)
        if leader is not None and self._newest.replace(leader):
            self._wake.set()

    def _send(self, timeout_ms: int) -> bool:
        """Send one heartbeat; whether the leader answered it."""
        with self._lock:
            content, leader = self._content, self._newest.leader
            if content is None or leader is None:
                return False
            sent_at_ns, sent_at_s = time.clock_gettime_ns(time.CLOCK_BOOTTIME), self._lease.now_s()
            since_s = sent_at_s if self._unanswered_since_s is None else self._unanswered_since_s
            body = {**heartbeat_body(self._identity, content), "unansweredMs": int((sent_at_s - since_s) * 1000)}
            answer = self._client.heartbeat(leader.url, body, timeout_ms)
            # A leader that was deposed while it was suspended does not know it yet.
            newest = self._newest.leader
            if answer is None or newest is None or answer.term < newest.term:
                self._unanswered_since_s = since_s
                return False
            self._unanswered_since_s = None
            if answer.alive:
                self._lease.renew(sent_at_s)
                self._on_alive(sent_at_ns)
            elif self._given_up is None and content.state != "STOPPED" and not content.exit_code:
                self._given_up = f"term {answer.term} does not count it among the living"
            return True


def heartbeat_body(identity: Mapping[str, Any], content: HeartbeatContent) -> Mapping[str, Any]:
    """The JSON form of `content`, for `coordinator.assignment.heartbeat_json`."""
    return {
        **identity,
        "state": content.state,
        "streamOffset": content.stream_offset,
        "held": [{"task": task, "epoch": epoch} for task, epoch in content.held],
        "figures": content.figures,
        "reason": content.reason,
        "finished": content.finished,
        "restart": content.restart,
        **({} if content.warm is None else {"warm": content.warm.as_json()}),
        **({} if content.failing is None else {"failing": content.failing.as_json()}),
        **({"exitCode": content.exit_code} if content.exit_code else {}),
        **({} if content.end is None else {"end": content.end.as_json()}),
        **({"formerEnds": [end.as_json() for end in content.former_ends]} if content.former_ends else {}),
        **({"slowMessages": [item.as_json() for item in content.slow_messages]} if content.slow_messages else {}),
        **({"step": content.step} if content.step else {}),
        **({"kafkaSilentMs": content.kafka_silent_ms} if content.kafka_silent_ms else {}),
        **({"outputs": list(content.outputs)} if content.outputs else {}),
    }


def _acts(content: HeartbeatContent) -> tuple[object, ...]:
    """The part that the coordinator waits for."""
    standby = content.warm
    warm = None if standby is None else (standby.tasks, standby.level, standby.is_query_warm)
    return content.held, content.state, content.term, content.finished, content.restart, content.step, warm


def _progress(content: HeartbeatContent | None) -> tuple[object, ...]:
    """The progress that the coordinator may wait for.

    It waits in a move of a processor, or for the end of an older plan. A new output is part of it, because the host may
    be lost at any time. The statistics are not part of it: they change with each micro-batch, and an input that grows,
    which waits for a position, has minutes.
    """
    return () if content is None else (content.stream_offset, content.warm, content.outputs)
