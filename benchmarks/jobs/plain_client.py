"""Kafka's client without Spark: one Python process, exactly once.

Prints `records <n>` after each commit. A transaction ends after as many records as samzapy's has in a batch.
"""

import argparse

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition


def copy_each(key, value):
    """The counterpart of copy_each.py: called per record."""
    return key, value


def prompt_messages(consumer):
    """The present messages, at least one; `consume` alone would wait for all."""
    return consumer.consume(1, 0.1) + consumer.consume(10_000, 0.001)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--transaction", type=int, default=50_000)
    parser.add_argument("--prompt", action="store_true", help="Commit the records that are there; wait for no more.")
    options = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": options.servers,
            "group.id": f"plain-{options.output}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": options.servers,
            "transactional.id": f"plain-{options.output}",
            "linger.ms": 0 if options.prompt else 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 50_000,
            "compression.type": "lz4",
        }
    )
    producer.init_transactions(30)
    consumer.assign([TopicPartition(options.topic, number, OFFSET_BEGINNING) for number in range(options.partitions)])
    records = 0
    while True:
        producer.begin_transaction()
        handled = 0
        while handled < options.transaction:
            messages = prompt_messages(consumer) if options.prompt else consumer.consume(10_000, 0.1)
            if not messages:
                break
            for message in messages:
                key, value = copy_each(message.key(), message.value())
                while True:
                    try:
                        producer.produce(options.output, value, key)
                        break
                    except BufferError:
                        producer.poll(0.1)
            handled += len(messages)
            if options.prompt:
                break
        if handled == 0:
            producer.abort_transaction()
            continue
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.commit_transaction()
        records += handled
        print(f"records {records}", flush=True)


if __name__ == "__main__":
    main()
