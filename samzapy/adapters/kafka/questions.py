"""Questions to a cluster, asked again until a broker answers.

They end at a deadline. A broker that is gone, that starts, or that does not know a new topic yet, gives an error that
may pass with time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, repeat
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception, wait_random

from samzapy.adapters.kafka.broker_wait import QuestionWait
from samzapy.adapters.kafka.clients import Admin
from samzapy.adapters.kafka.errors import kafka_error, refusal, translate
from samzapy.errors import BrokerUnavailableError, ConfigError, MissingTopicError, TemporaryError

T = TypeVar("T")
APPEARS_WITHIN_S = 10.0
"""How long a topic that the cluster has may be unknown to the broker that is asked."""

_ASK_S = (1.5, 3.0, 5.0)
"""How long the first question may take, the second, and each one after. The first may go to a broker that is gone, and
an answer takes milliseconds."""

_LOOK_S = 1.0


class Questions:
    """Puts questions over one client.

    Args:
        deadline_s: how long to go on asking while no broker answers.
    """

    def __init__(self, admin: Admin, deadline_s: float) -> None:
        self.admin = admin
        self._deadline_s = deadline_s

    @property
    def client(self) -> AdminClient:
        """The client of Kafka's library."""
        return self.admin.client

    def ask(self, doing: str, put: Callable[[float], T], *, is_start: bool = False) -> T:
        """Ask until the deadline, while the error may pass with time.

        At a start a refusal is final. An unknown topic counts as such an error for a while, because the topics asked
        for here were seen before, or just created.
        """
        wait, started = self.admin.connection.wait(self._deadline_s), time.monotonic()
        timeouts_s = chain(_ASK_S, repeat(_ASK_S[-1]))
        if not is_start:
            # Events since the last question say nothing about this one. (At a start they are kept: librdkafka repeats
            # an equal event only after 30 s.)
            self.admin.forget()

        def attempt() -> T:
            try:
                return put(wait.try_s(next(timeouts_s)))
            except KafkaException as error:
                self.admin.serve()
                self.admin.note(kafka_error(error))
                failure = translate(error, doing)
                if refusal([kafka_error(error)]) is None and not isinstance(failure, TemporaryError):
                    raise failure from error
                reason = refusal(self.admin.events.latest)
                if reason is None:
                    raise failure from error
                kind = ConfigError if is_start else BrokerUnavailableError
                raise kind(
                    f"{doing}: {self.admin.connection.bootstrap_servers} did not let us in: {reason}"
                ) from error

        def may_pass(error: BaseException) -> bool:
            is_news = isinstance(error, MissingTopicError) and time.monotonic() - started < APPEARS_WITHIN_S
            return is_news or isinstance(error, TemporaryError)

        try:
            with wait:
                return Retrying(
                    retry=retry_if_exception(may_pass),
                    stop=lambda _: wait.is_over,
                    wait=wait_random(0.1, 0.3),
                    before_sleep=lambda _: self._prepare_next(wait),
                    reraise=True,
                )(attempt)
        except TemporaryError as error:
            raise self.admin.unavailable(wait.waited_s, doing) from error

    def _prepare_next(self, wait: QuestionWait) -> None:
        """Make the client learn the brokers and the controller again.

        By itself it keeps asking the controller that it knows, for minutes, also after that broker was killed. The
        operator is reminded of the wait.
        """
        with suppress(KafkaException):
            self.admin.client.list_topics(timeout=wait.try_s(_LOOK_S))
        wait.remind(self.admin.connection.bootstrap_servers, self.admin.reported)
