"""Spark without samzapy, under spark-submit: the comparison for the job's figures.

`read`: Kafka source to the noop sink, no Python. `copy`: the same source, a Python loop over the records in
mapInArrow, Spark's Kafka sink (at least once). Runs until it is ended; the caller watches the checkpoint directory.
"""

import argparse

import pyarrow as pa
from pyspark.sql import SparkSession

from samzapy.adapters.maven.fetch import jar_paths
from samzapy.adapters.maven.locks import connector_lock


def copy_each(key, value):
    """The counterpart of copy_each.py: called per record."""
    return key, value


def copy(batches):
    for batch in batches:
        keys, values = [], []
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
            key_out, value_out = copy_each(key, value)
            keys.append(key_out)
            values.append(value_out)
        yield pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.binary()), pa.array(values, pa.binary())], ["key", "value"]
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("read", "copy"))
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--offsets-max", default="200000")
    parser.add_argument("--source-option", action="append", default=[])
    parser.add_argument("--sink-option", action="append", default=[])
    options = parser.parse_args()
    session = SparkSession.builder.appName(f"plain {options.what}").getOrCreate()
    for jar in jar_paths(connector_lock()):
        session.sql(f"ADD JAR '{jar}'")
    source = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.offsets_max)
        .options(**dict(option.split("=", 1) for option in options.source_option))
        .load()
    )
    if options.what == "read":
        writer = source.writeStream.format("noop")
    else:
        writer = (
            source.select("key", "value")
            .mapInArrow(copy, "key binary, value binary")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", options.servers)
            .option("topic", options.output)
            .options(**dict(option.split("=", 1) for option in options.sink_option))
        )
    writer.option("checkpointLocation", options.checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
