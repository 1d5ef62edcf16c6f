"""Calls `samzapy.run()` whoever loads it."""

import samzapy


@samzapy.task
def no_guard(envelope, collector, context):
    collector.send("answers", envelope.value)


samzapy.run()
