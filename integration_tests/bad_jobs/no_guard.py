"""Calls `samzapy.run()` at every import."""

import samzapy


@samzapy.task
def no_guard(envelope, collector, context):
    collector.send("answers", envelope.value)


samzapy.run()
