"""bytewax, at least once: it has no transactions. It has its own environment."""

import argparse

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main


def copy_each(message):
    return KafkaSinkMessage(message.key, message.value)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    flow = Dataflow("plain")
    source = kafka.input("in", flow, brokers=[options.servers], topics=[options.topic])
    kafka.output("out", op.map("copy", source.oks, copy_each), brokers=[options.servers], topic=options.output)
    run_main(flow)


if __name__ == "__main__":
    main()
