"""Report in the log that brokers are silent, and that they answer again.

A leader puts questions that may wait for a minute (offsets, fencing, topics), and its thread logs nothing meanwhile. So
this watch has a thread and a client of its own, and asks for the metadata of one topic each second. Any broker may
answer that, so in a process that may lead each broker is asked too (`broker_probe`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException

from samzapy.adapters.kafka.broker_probe import BrokerAddress, silence_of
from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.errors import reported

_LOG = logging.getLogger(__name__)
_ASK_EVERY_S: Final = 1.0
_ANSWER_WITHIN_S: Final = 1.0
_LOGGED_AFTER_S: Final = 2.5
"""A broker falls silent up to one pause before the first question without an answer, and the line comes with the end of
the third one: 4.0 s at most, on a machine that is not overloaded. A short pause of a broker's JVM gives no line."""
_CLOSE_WITHIN_S: Final = 5.0
_ASKED_AT_ONCE: Final = 16


class Silence:
    """The lines of the log about answers and their absence.

    Args:
        silent, answers, effect: the beginnings of the two lines, and the effect of a silence.
    """

    def __init__(self, silent: str, answers: str, effect: str) -> None:
        self._silent, self._answers, self._effect = silent, answers, effect
        self._since_s: float | None = None
        self._is_logged = False

    @classmethod
    def of_all(cls, servers: str) -> Self:
        """That of all brokers at these addresses."""
        return cls(f"no broker of {servers} has answered", f"a broker of {servers}", "nothing is read or committed")

    @classmethod
    def of_one(cls, broker: BrokerAddress) -> Self:
        """That of one broker, while others answer."""
        return cls(
            f"{broker} has answered nothing", str(broker), "partitions that it leads are neither read nor written"
        )

    def answered(self, now_s: float) -> str | None:
        """The line for an answer that came at `now_s`, in seconds; None: there is no news."""
        since_s, is_logged = self._since_s, self._is_logged
        self._since_s, self._is_logged = None, False
        if since_s is None or not is_logged:
            return None
        return f"{self._answers} answers again, after {now_s - since_s:.0f} s or more"

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
        return f"{self._silent} for {silent_s:.0f} s; {self._effect}: {reason()}"


class EachBroker:
    """The silences of the single brokers of a cluster of several."""

    def __init__(self) -> None:
        self._silences: dict[BrokerAddress, Silence] = {}

    def lines(self, reasons: Mapping[BrokerAddress, str], asked_s: float, now_s: float) -> Sequence[tuple[int, str]]:
        """The news of one round, each with its level of the log.

        A round in which no broker answers is none of theirs.

        Args:
            reasons: why each broker gave no answer; empty where it answered.
            asked_s: when they were asked.
        """
        if len(reasons) < 2 or all(reasons.values()):
            return ()
        # A broker that is away leaves the metadata, and then it is not asked. Its silence ends when it is back.
        self._silences |= {broker: Silence.of_one(broker) for broker in reasons if broker not in self._silences}
        news: list[tuple[int, str | None]] = []
        for broker, reason in reasons.items():
            silence = self._silences[broker]
            if reason:
                news.append((logging.WARNING, silence.unanswered(asked_s, now_s, partial(str, reason))))
            else:
                news.append((logging.INFO, silence.answered(now_s)))
        return [(level, line) for level, line in news if line is not None]


class BrokerWatch:
    """Watches the brokers of a job within its context.

    Args:
        topic: a topic of the job; its metadata is asked for.
        asks_each: whether each broker of the cluster is asked too, over a connection for each question. That is for
            processes that may lead; the brokers of a thousand containers would have a thousand connections each second.
    """

    def __init__(self, connection: KafkaConnection, topic: str, *, asks_each: bool) -> None:
        self._topic = topic
        self._asks_each = asks_each
        self._is_tls = "SSL" in str(connection.properties.get("security.protocol", "")).upper().split("_")
        self._admin = Admin(connection)
        self._silence = Silence.of_all(connection.bootstrap_servers)
        self._each = EachBroker()
        self._brokers: Sequence[BrokerAddress] = ()
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
        with ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="samzapy-broker-probe") as probes:
            pause_s = 0.0
            while not self._ended.wait(pause_s):
                asked_s = time.monotonic()
                ask = partial(silence_of, is_tls=self._is_tls)
                asked = {broker: probes.submit(ask, broker) for broker in self._brokers}
                has_answer = self._ask_any()
                reasons = {broker: answer.result() for broker, answer in asked.items()}
                is_silent = not has_answer and all(reasons.values())
                self._log(asked_s, reasons, is_silent=is_silent)
                # A refused connection is an error at once.
                is_well = has_answer and not any(reasons.values())
                pause_s = _ASK_EVERY_S if is_well else max(0.0, asked_s + _ANSWER_WITHIN_S - time.monotonic())

    def _ask_any(self) -> bool:
        """Ask for metadata, which any broker may answer; whether one did."""
        try:
            metadata = self._admin.client.list_topics(self._topic, timeout=_ANSWER_WITHIN_S)
        except KafkaException:
            return False
        if self._asks_each and len(metadata.brokers) > 1:
            self._brokers = [BrokerAddress(item.id, str(item.host), item.port) for item in metadata.brokers.values()]
        return True

    def _log(self, asked_s: float, reasons: Mapping[BrokerAddress, str], *, is_silent: bool) -> None:
        now_s = time.monotonic()
        if is_silent:
            line = self._silence.unanswered(asked_s, now_s, lambda: reported(self._admin.reported()))
            if line is not None:
                _LOG.warning("%s", line)
            return
        # Events of this silence say nothing about the next one.
        self._admin.forget()
        line = self._silence.answered(now_s)
        if line is not None:
            _LOG.info("%s", line)
        for level, text in self._each.lines(reasons, asked_s, now_s):
            _LOG.log(level, "%s", text)
