"""Stateless: sends each record unchanged."""

import samzapy


@samzapy.task
def copy_each(envelope, collector, context):
    collector.send("bench-output", envelope.value, key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
