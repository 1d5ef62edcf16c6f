"""Report in the log that no broker answers, and that one answers again.

A leader puts questions that may wait for a minute (offsets, fencing, topics), and its thread logs nothing meanwhile. So
this watch has a thread and a client of its own, and asks for the metadata of one topic each second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException

from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.errors import reported

_LOG = logging.getLogger(__name__)
_ASK_EVERY_S: Final = 1.0
_ANSWER_WITHIN_S: Final = 1.0
_LOGGED_AFTER_S: Final = 2.5
"""A broker falls silent up to one pause before the first question without an answer, and the line comes with the end of
the third one: 4.0 s at most, on a machine that is not overloaded. A short pause of a broker's JVM gives no line."""
_CLOSE_WITHIN_S: Final = 5.0


class Silence:
    """The lines of the log about answers and their absence.

    Args:
        servers: the addresses that are asked.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._since_s: float | None = None
        self._is_logged = False

    def answered(self, now_s: float) -> str | None:
        """The line for an answer that came at `now_s`, in seconds; None: there is no news."""
        since_s, is_logged = self._since_s, self._is_logged
        self._since_s, self._is_logged = None, False
        if since_s is None or not is_logged:
            return None
        return f"a broker of {self._servers} answers again, after {now_s - since_s:.0f} s or more"

    def unanswered(self, asked_s: float, now_s: float, reason: Callable[[], str]) -> str | None:
        """The line for a question without an answer; None: there is no news.

        Args:
            asked_s: when it was put.
            now_s: until when there was no answer.
            reason: called for the text of a line.
        """
        if self._since_s is None:
            self._since_s = asked_s
        silent_s = now_s - self._since_s
        if self._is_logged or silent_s < _LOGGED_AFTER_S:
            return None
        self._is_logged = True
        silence = f"no broker of {self._servers} has answered for {silent_s:.0f} s"
        return f"{silence}; nothing is read or committed: {reason()}"


class BrokerWatch:
    """Watches the brokers of a job within its context.

    Args:
        topic: a topic of the job; its metadata is asked for.
    """

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._topic = topic
        self._admin = Admin(connection)
        self._silence = Silence(connection.bootstrap_servers)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samzapy-broker-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(_CLOSE_WITHIN_S)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._ended.wait(pause_s):
            asked_s = time.monotonic()
            try:
                self._admin.client.list_topics(self._topic, timeout=_ANSWER_WITHIN_S)
            except KafkaException:
                line = self._silence.unanswered(asked_s, time.monotonic(), lambda: reported(self._admin.reported()))
                if line is not None:
                    _LOG.warning("%s", line)
                # A refused connection is an error at once.
                pause_s = max(0.0, asked_s + _ANSWER_WITHIN_S - time.monotonic())
            else:
                # Events of this silence say nothing about the next one.
                self._admin.forget()
                line = self._silence.answered(time.monotonic())
                if line is not None:
                    _LOG.info("%s", line)
                pause_s = _ASK_EVERY_S
