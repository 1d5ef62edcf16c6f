"""Ends its worker process before a message is in hand."""

import os

import samzapy


@samzapy.task
class DiesInInit:
    def init(self, context):
        os._exit(9)

    def process(self, envelope, collector, context):
        pass


if __name__ == "__main__":
    samzapy.run()
