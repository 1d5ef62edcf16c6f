"""The Python client of the placement topic.

It writes requests to a running job, and reads their answers.

```python
from datetime import timedelta
from samzapy.placement import Action, ContainerPlacementMetadataStore

with ContainerPlacementMetadataStore("localhost:9092", job="flight-delays-1") as store:
    uuid = store.write_container_placement_request_message(
        deployment_id="1767225600000-8f3a1b2c", processor_id="0", action=Action.RESTART_QUERY,
        request_expiry=timedelta(seconds=30),
    )
    response = store.read_container_placement_response_message(uuid)
```

docs/reference/placement-messages.md describes the life of a request.
"""

from __future__ import annotations

import time
import uuid as uuids
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import NamedTuple, Self

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.placement import PlacementTopic
from samzapy.config import Secret
from samzapy.errors import ConfigError, RejectedError
from samzapy.model.placement import (
    ANY_HOST,
    REQUEST_TYPE,
    RESPONSE_TYPE,
    Action,
    ContainerPlacementMessage,
    ContainerPlacementRequestMessage,
    ContainerPlacementResponseMessage,
    PlacementNamespace,
    StatusCode,
    rewind_arguments,
)
from samzapy.model.request_signature import SIGNATURE_HEADER, VALID_MS, signature
from samzapy.model.topics import placement_topic
from samzapy.stream.keys import KeyForm, PlacementKey, parse_placement_key
from samzapy.stream.log import LogRecord, Write
from samzapy.stream.placement import Encoding, Place, decode_message, encode_message

__all__ = [
    "ANY_HOST",
    "Action",
    "ContainerPlacementMessage",
    "ContainerPlacementMetadataStore",
    "ContainerPlacementRequestMessage",
    "ContainerPlacementResponseMessage",
    "Encoding",
    "KeyForm",
    "PlacementNamespace",
    "StatusCode",
]


class _Standing(NamedTuple):
    """A record of the topic.

    `key` is None for a record whose key is no message's, `message` for one that cannot be read.
    """

    record: LogRecord
    key: PlacementKey | None
    message: ContainerPlacementMessage | None


class ContainerPlacementMetadataStore:
    """Writes and reads the placement topic of a job. Not thread-safe.

    Every read begins after the last one, so `start` may take a while on a topic that holds many records.

    Args:
        bootstrap_servers: of the job's cluster.
        job: `<job.name>-<job.id>`.
        properties: librdkafka's, to get into the cluster (`security.protocol`).
        encoding: how requests are written; both encodings are read.
        key_form: how keys of requests are spelled.
        credential: returns a credential of scope `operate`, which requests are signed with; called for each request.
            None, or a call that returns None: requests are not signed.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        job: str,
        properties: Mapping[str, str | Secret] | None = None,
        encoding: Encoding = Encoding.JSON,
        key_form: KeyForm = KeyForm.TEXT,
        credential: Callable[[], str | None] | None = None,
    ) -> None:
        self.job = job
        self._connection = KafkaConnection(bootstrap_servers=bootstrap_servers, properties=properties or {})
        self._encoding = encoding
        self._key_form = key_form
        self._credential = credential
        self._topic: PlacementTopic | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Connect. Nothing is read yet; starting twice is starting once."""
        if self._topic is None:
            self._topic = PlacementTopic(self._connection, placement_topic(self.job))

    def stop(self) -> None:
        """Let go of the connections."""
        topic, self._topic = self._topic, None
        if topic is not None:
            topic.close()

    def is_running(self) -> bool:
        """Between `start` and `stop`."""
        return self._topic is not None

    def write_container_placement_request_message(
        self,
        deployment_id: str,
        processor_id: str,
        destination_host: str = "",
        request_expiry: timedelta | None = None,
        timestamp_ms: int | None = None,
        *,
        action: Action = Action.PLACE_CONTAINER,
        arguments: Mapping[str, str] | None = None,
    ) -> uuids.UUID:
        """Write a request; returns its uuid.

        The answer comes later (`read_container_placement_response_message`).

        Args:
            deployment_id: the run of the job, `runId` of `samzapy job status -o json`.
            request_expiry: the request fails when it is not done so long after it was read, a move when the container
                that it goes to is not ready; None: the job's default.
            timestamp_ms: since 1970; requests for one processor are served in this order. None: now.
            arguments: further arguments of the action.

        Raises:
            ConfigError: a field holds a value that is not allowed.
            MissingTopicError, BrokerUnavailableError: it was not written, as far as is known.
        """
        message = ContainerPlacementRequestMessage(
            uuid=uuids.uuid4(),
            deployment_id=deployment_id,
            processor_id=processor_id,
            destination_host=destination_host,
            request_expiry=request_expiry,
            timestamp_ms=time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms,
            action=action,
            arguments=arguments or {},
        )
        self.write_request(message)
        return message.uuid

    def write_scale_request(
        self,
        deployment_id: str,
        factor: int,
        *,
        expected_generation: int | None = None,
        request_expiry: timedelta | None = None,
    ) -> uuids.UUID:
        """Write a request to change the elasticity factor (SEP-32); returns its uuid.

        Args:
            factor: a power of two from 1 to 256; 1 turns elasticity off.
            expected_generation: the request fails when another plan than this one is in force by then.

        Raises: as `write_container_placement_request_message`.
        """
        arguments = {"factor": str(factor)}
        if expected_generation is not None:
            arguments["expectedGeneration"] = str(expected_generation)
        return self.write_container_placement_request_message(
            deployment_id, "", request_expiry=request_expiry, action=Action.SCALE, arguments=arguments
        )

    def write_resize_request(
        self, deployment_id: str, containers: int, *, request_expiry: timedelta | None = None
    ) -> uuids.UUID:
        """Write a request to change the number of containers; returns its uuid.

        Raises: as `write_container_placement_request_message`.
        """
        return self.write_container_placement_request_message(
            deployment_id,
            "",
            request_expiry=request_expiry,
            action=Action.SCALE,
            arguments={"containers": str(containers)},
        )

    def write_rewind_request(
        self,
        deployment_id: str,
        stream: str,
        to: str,
        *,
        partition: int | None = None,
        task: str | None = None,
        processor: str | None = None,
        request_expiry: timedelta | None = None,
    ) -> uuids.UUID:
        """Write a request to rewind an input (SEP-18); returns its uuid.

        Args:
            stream: the input, `kafka.orders`.
            to: `oldest`, `newest`, an offset, a time like `2026-01-01T00:00:00Z` or `1767225600000ms`.
            partition: only this partition. Needed for an offset, which is a place in one partition.
            task, processor: only the part that this task, or the tasks of this processor, read; not both.

        Raises: as `write_container_placement_request_message`.
        """
        arguments = rewind_arguments(stream, to, partition=partition, task=task, processor=processor)
        return self.write_container_placement_request_message(
            deployment_id, "", request_expiry=request_expiry, action=Action.REWIND, arguments=arguments
        )

    def write_request(self, message: ContainerPlacementRequestMessage) -> None:
        """Write a request that has its uuid. The same one twice is one request.

        Raises: as `write_container_placement_request_message`.
        """
        place = Place(namespace=message.action.namespace, key_form=self._key_form, encoding=self._encoding)
        try:
            write = encode_message(message, place)
        except ValueError as error:
            raise ConfigError(f"{error}; nothing was written") from error
        self._started().write([self._signed(write)])

    def read_container_placement_request_message(self, uuid: uuids.UUID) -> ContainerPlacementRequestMessage | None:
        """The request, as long as it is on the topic and readable."""
        request = self._newest(uuid, REQUEST_TYPE)
        return request if isinstance(request, ContainerPlacementRequestMessage) else None

    def read_container_placement_response_message(self, uuid: uuids.UUID) -> ContainerPlacementResponseMessage | None:
        """The newest answer; None while there is none, and after it was removed."""
        response = self._newest(uuid, RESPONSE_TYPE)
        return response if isinstance(response, ContainerPlacementResponseMessage) else None

    def read_all_container_placement_request_messages(self) -> Sequence[ContainerPlacementRequestMessage]:
        """All readable requests on the topic, by timestamp and uuid."""
        requests = {
            standing.message.uuid: standing.message
            for standing in self._standing()
            if isinstance(standing.message, ContainerPlacementRequestMessage)
        }
        return sorted(requests.values(), key=lambda message: (message.timestamp_ms, str(message.uuid)))

    def delete_container_placement_request_message(self, uuid: uuids.UUID) -> None:
        """Remove the request from the topic.

        A coordinator that has read it still serves it.
        """
        self._delete(lambda standing: _is_of(standing, uuid, REQUEST_TYPE))

    def delete_container_placement_response_message(self, uuid: uuids.UUID) -> None:
        """Remove the answer from the topic, if it is there."""
        self._delete(lambda standing: _is_of(standing, uuid, RESPONSE_TYPE))

    def delete_all_container_placement_messages(self, uuid: uuids.UUID | None = None) -> None:
        """Remove the request and answer of a uuid; without a uuid, all messages."""
        self._delete(lambda standing: uuid is None or _is_of(standing, uuid, REQUEST_TYPE, RESPONSE_TYPE))

    def delete_outdated(self, deployment_id: str) -> int:
        """Remove requests that have a terminal answer, and records without use.

        These are their answers, messages of other runs than `deployment_id`, and records that cannot be read. Returns
        the number of removed records.
        """
        standing = tuple(self._standing())
        over = {
            item.message.uuid
            for item in standing
            if isinstance(item.message, ContainerPlacementResponseMessage) and item.message.status_code.is_terminal
        }

        def is_outdated(item: _Standing) -> bool:
            message = item.message
            return message is None or message.uuid in over or message.deployment_id != deployment_id

        return self._delete(is_outdated)

    def _signed(self, write: Write) -> Write:
        operator = None if self._credential is None else self._credential()
        if operator is None:
            return write
        expires_ms = time.time_ns() // 1_000_000 + VALID_MS
        signed = signature(operator, write.key, write.value or b"", expires_ms)
        return replace(write, headers={SIGNATURE_HEADER: signed})

    def _delete(self, is_unwanted: Callable[[_Standing], bool]) -> int:
        keys = [item.record.key for item in self._standing() if is_unwanted(item)]
        writes = [Write(key=key, value=None) for key in keys if key is not None]
        if writes:
            self._started().write(writes)
        return len(writes)

    def _newest(self, uuid: uuids.UUID, message_type: str) -> ContainerPlacementMessage | None:
        messages = [standing for standing in self._standing() if _is_of(standing, uuid, message_type)]
        return max(messages, key=lambda standing: standing.record.offset).message if messages else None

    def _standing(self) -> Iterable[_Standing]:
        return [_parsed(record) for record in self._started().latest().values()]

    def _started(self) -> PlacementTopic:
        if self._topic is None:
            raise RejectedError("wanted a store that was started, found one that was not: call start() first")
        return self._topic


def _parsed(record: LogRecord) -> _Standing:
    try:
        key = parse_placement_key(record.key)
    except ValueError:
        return _Standing(record, None, None)
    try:
        message = decode_message(record.value or b"")
    except ValueError:
        return _Standing(record, key, None)
    return _Standing(record, key, message)


def _is_of(standing: _Standing, uuid: uuids.UUID, *message_types: str) -> bool:
    key = standing.key
    return key is not None and key.uuid == str(uuid) and key.message_type in message_types
