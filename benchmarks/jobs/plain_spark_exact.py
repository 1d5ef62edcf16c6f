"""Spark without samzapy, exactly once by hand: foreachBatch and transactions.

Each partition of a batch is one transaction. The number of the batch is committed with it, as the offset of a consumer
group: the mark. Spark repeats a batch that did not end; a partition whose mark is there is skipped then.
"""

import argparse

import pyarrow as pa
from pyspark.sql import SparkSession

from samzapy.adapters.maven.fetch import jar_paths
from samzapy.adapters.maven.locks import connector_lock


def copy_each(key, value):
    """The counterpart of copy_each.py: called per record."""
    return key, value


def writing(servers, topic, output, batch_id):
    """Each worker makes its producer anew, since it may get any partition of a batch."""

    def write(batches):
        from confluent_kafka import Consumer, Producer, TopicPartition
        from pyspark import TaskContext

        rows = [
            row
            for batch in batches
            for row in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
        ]
        if rows:
            name = f"exact-{TaskContext.get().partitionId()}"
            producer = Producer(
                {"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0, "log_level": 0}
            )
            producer.init_transactions(30)
            group = Consumer({"bootstrap.servers": servers, "group.id": name, "enable.auto.commit": False})
            if group.committed([TopicPartition(topic, 0)], timeout=30)[0].offset <= batch_id:
                producer.begin_transaction()
                for row in rows:
                    key, value = copy_each(*row)
                    producer.produce(output, value, key)
                marks = [TopicPartition(topic, 0, batch_id + 1)]
                producer.send_offsets_to_transaction(marks, group.consumer_group_metadata())
                producer.commit_transaction()
            group.close()
        yield pa.RecordBatch.from_arrays([pa.array([len(rows)], pa.int64())], ["records"])

    return write


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    options = parser.parse_args()
    session = SparkSession.builder.appName("plain exact").getOrCreate()
    for jar in jar_paths(connector_lock()):
        session.sql(f"ADD JAR '{jar}'")

    def handle(frame, batch_id):
        write = writing(options.servers, options.topic, options.output, batch_id)
        frame.select("key", "value").mapInArrow(write, "records long").collect()

    source = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    source.writeStream.foreachBatch(handle).option(
        "checkpointLocation", options.checkpoint
    ).start().awaitTermination()


if __name__ == "__main__":
    main()
