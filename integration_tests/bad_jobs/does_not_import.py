"""Needs a module that nobody has."""

import a_module_that_nobody_has

import samzapy


@samzapy.task
def does_not_import(envelope, collector, context):
    collector.send("answers", a_module_that_nobody_has.answer(envelope.value))


if __name__ == "__main__":
    samzapy.run()
