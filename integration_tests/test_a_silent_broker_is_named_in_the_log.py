"""A silent broker is named in the log, and named again when it answers.

It accepts connections and answers nothing. The leader's own thread may wait for an answer for a minute meanwhile.
"""

from __future__ import annotations

import logging
import queue
import time

from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka.broker_watch import BrokerWatch
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.model.topics import coordinator_topic
from samzapy.testing.broker import DevBroker

ROUNDS = 3
# The line comes after 4 s at most (`broker_watch`), and a busy machine adds its delays.
NAMED_WITHIN_S = 15.0
ANSWERS_WITHIN_S = 60.0


class Lines(logging.Handler):
    """The lines about brokers, with the monotonic time of each in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: queue.Queue[tuple[float, str]] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put((time.monotonic(), record.getMessage()))


def test_a_silent_broker_is_named_and_named_again_when_it_answers(own_broker: DevBroker) -> None:
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    log, handler = logging.getLogger("samzapy.adapters.kafka.broker_watch"), Lines()
    log.addHandler(handler)
    log.setLevel(logging.INFO)

    with SmallJob(connection) as small, BrokerWatch(connection, coordinator_topic(small.job), asks_each=True):
        for _ in range(ROUNDS):
            small.heartbeat("container-0-aa")
            while not handler.lines.empty():
                # On a busy machine a broker is silent at times by itself.
                handler.lines.get()
            own_broker.pause()
            paused_s = time.monotonic()
            try:
                named_s, line = handler.lines.get(timeout=ANSWERS_WITHIN_S)
            finally:
                own_broker.resume()
            _, after = handler.lines.get(timeout=ANSWERS_WITHIN_S)

            assert line.startswith(f"no broker of {own_broker.bootstrap_servers} has answered for ")
            assert named_s - paused_s <= NAMED_WITHIN_S
            assert after.startswith(f"a broker of {own_broker.bootstrap_servers} answers again, after ")
    log.removeHandler(handler)
