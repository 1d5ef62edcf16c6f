"""Needs a module that does not exist."""

import a_missing_module

import samzapy


@samzapy.task
def does_not_import(envelope, collector, context):
    collector.send("answers", a_missing_module.answer(envelope.value))


if __name__ == "__main__":
    samzapy.run()
