"""Readers that are kept, as the coordinator and each container keep theirs, while the broker dies and comes back."""

from __future__ import annotations

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.reading import PartitionReader
from samzapy.stream.log import Write
from samzapy.testing.broker import DevBroker
from samzapy.testing.topics import make_topics


def test_a_reader_that_is_kept_goes_on_when_the_broker_is_back(own_broker: DevBroker) -> None:
    """librdkafka's admin client does not by itself: refused as FENCED_LEADER_EPOCH, it would ask on for minutes."""
    make_topics(own_broker.bootstrap_servers, {"lasting": 1})
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    log = KafkaLog(connection, "lasting", "writer")
    with PartitionReader(connection, "lasting") as reader:
        log.take_over()
        log.append_atomically([Write(key=b"a", value=b"1")])
        assert [b"1"] == [record.value for record in reader.read_to_end()]

        own_broker.kill()
        own_broker.start()

        assert [b"1"] == [record.value for record in reader.read_to_end(deadline_s=20)]
    log.close()
