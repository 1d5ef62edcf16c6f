"""Long-lived readers, as those of containers, while a broker restarts."""

from __future__ import annotations

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.reading import PartitionReader
from samzapy.stream.log import Write
from samzapy.testing.broker import DevBroker
from samzapy.testing.topics import make_topics


def test_a_kept_reader_continues_after_a_restart_of_its_broker(own_broker: DevBroker) -> None:
    """Else librdkafka's admin client would repeat FENCED_LEADER_EPOCH for minutes."""
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
