"""Describe and delete consumer groups. Only an operator's command does.

These admin requests go to a group's coordinator. If one is not answered in time, or its connection breaks, librdkafka
ends the process by a failed assertion (`eonce->refcnt > 0`). So each request has a process of its own.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.errors import kafka_error, translate

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_TIMEOUT_S: Final = 10.0

_Failure = tuple[int, str]
"""The code and the reason of a `KafkaError`, which itself cannot be pickled."""


def member_count(connection: KafkaConnection, group: str, timeout_s: float) -> int:
    """How many members a consumer group has; 0 for an unknown one.

    Raises:
        KafkaException: the cluster does not answer, or refuses.
    """
    answer = _in_own_process(_members_of, connection, group, timeout_s)
    if isinstance(answer, int):
        return answer
    if answer[0] == KafkaError.GROUP_ID_NOT_FOUND:
        return 0
    raise KafkaException(KafkaError(*answer))


def delete_groups(connection: KafkaConnection, names: Sequence[str]) -> None:
    """Delete consumer groups without members; an unknown one is deleted already.

    Raises:
        SamzapyError: the cluster does not answer, or refuses, for instance because a group has members.
    """
    for name in names:
        failure = _in_own_process(_delete, connection, name, _TIMEOUT_S)
        if failure is not None and failure[0] != KafkaError.GROUP_ID_NOT_FOUND:
            raise translate(KafkaError(*failure), f"deleting the consumer group {name}")


def _in_own_process(
    act: Callable[[KafkaConnection, str, float], T], connection: KafkaConnection, group: str, timeout_s: float
) -> T | _Failure:
    # Each process that talks to Kafka imports this module, and few ask about a group.
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_silence) as processes:
            return processes.submit(act, replace(connection, command_wait=None), group, timeout_s).result()
    except BrokenProcessPool as error:
        _LOG.debug("the process of a request about %s ended: %s", group, error)
        return KafkaError._TIMED_OUT, "the cluster did not answer in time"


def _silence() -> None:
    """Write nothing to the terminal: librdkafka prints the failed assertion."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _members_of(connection: KafkaConnection, group: str, timeout_s: float) -> int | _Failure:
    admin = Admin(connection)
    try:
        future = admin.client.describe_consumer_groups([group], request_timeout=timeout_s)[group]
        return len(future.result().members)
    except KafkaException as error:
        return _failure(error)


def _delete(connection: KafkaConnection, group: str, timeout_s: float) -> _Failure | None:
    admin = Admin(connection)
    try:
        admin.client.delete_consumer_groups([group], request_timeout=timeout_s)[group].result()
    except KafkaException as error:
        return _failure(error)
    return None


def _failure(error: KafkaException) -> _Failure:
    inner = kafka_error(error)
    return inner.code(), inner.str()
