"""Signed requests on a real topic: of a store, and of the reference's example.

They are read by the thread that a leader has for that.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.placement import KafkaInbox
from samzapy.coordinator.commands import RequestsRead
from samzapy.model.credential import Scope, credential
from samzapy.model.topics import placement_spec, placement_topic
from samzapy.placement import Action, ContainerPlacementMetadataStore, ContainerPlacementRequestMessage
from samzapy.runtime.coordinator_access import signature_check, signing_credential
from samzapy.stream.placement import Place, encode_message
from samzapy.testing.broker import DevBroker
from samzapy.testing.builders import a_config
from samzapy.testing.waiting import wait_until

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "placement-messages.md"
SECRET, OTHER = "s" * 32, "t" * 32


@contextmanager
def inbox(config: Any, environment: Mapping[str, str], connection: KafkaConnection) -> Iterator[dict[str, str]]:
    """By uuid, the reason of a refused request; empty for a served one."""
    reasons: dict[str, str] = {}

    def put(command: RequestsRead) -> bool:
        reasons.update((request.uuid, request.reason) for request in command.requests)
        return True

    reading = KafkaInbox(
        connection,
        placement_topic(config.job),
        position=lambda: (1, 0),
        put=put,
        refusal=signature_check(config, environment),
    )
    with closing(reading):
        reading.start()
        yield reasons


def a_request() -> tuple[str, bytes, bytes]:
    """The uuid of a request, and its record."""
    message = ContainerPlacementRequestMessage(
        uuid=uuid.uuid4(), deployment_id="d", processor_id="0", timestamp_ms=5, action=Action.RESTART_QUERY
    )
    write = encode_message(message, Place(namespace=message.action.namespace))
    assert write.value is not None
    return str(message.uuid), write.key, write.value


def produce_as_the_reference_shows(bootstrap_servers: str, **names: object) -> None:
    """Run the example of the reference as printed there."""
    (example,) = re.findall(r"```python\n(import hashlib.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    exec(compile(example, str(PAGE), "exec"), {"producer": producer, **names})  # the project's own page
    assert 0 == producer.flush(30)


def test_requests_of_the_store_and_of_the_example_are_served_where_signatures_are_required(broker: DevBroker) -> None:
    config = a_config(
        job_name=f"signed{uuid.uuid4().hex[:8]}",
        job_coordinator_secret="env:SECRET",
        job_placement_signature_required="true",
    )
    topic, environment = placement_topic(config.job), {"SECRET": f"{SECRET}\n{OTHER}"}
    connection = KafkaConnection(bootstrap_servers=broker.bootstrap_servers)
    KafkaAdmin(connection).ensure_topic(placement_spec(config.job))
    token = credential(OTHER, config.job, Scope.OPERATE, "alice")
    of_example, key, value = a_request()
    unsigned, unsigned_key, unsigned_value = a_request()
    with ContainerPlacementMetadataStore(
        broker.bootstrap_servers, job=config.job, credential=lambda: signing_credential(config, environment)
    ) as store:
        of_store = str(store.write_container_placement_request_message("d", "0", action=Action.RESTART_QUERY))
    produce_as_the_reference_shows(broker.bootstrap_servers, token=token, topic=topic, key=key, value=value)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, unsigned_value, unsigned_key, partition=0)
    assert 0 == producer.flush(30)

    with inbox(config, environment, connection) as reasons:
        wait_until(lambda: unsigned in reasons, 30, "the requests to be read")

    assert ["", ""] == [reasons[of_store], reasons[of_example]]
    assert "found none" in reasons[unsigned]
