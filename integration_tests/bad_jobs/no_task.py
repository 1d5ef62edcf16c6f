"""Forgot to mark its task."""

import samzapy


def no_task(envelope, collector, context):
    collector.send("answers", envelope.value)


if __name__ == "__main__":
    samzapy.run()
