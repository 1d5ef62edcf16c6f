"""Measure the cost of traces for a whole commit, without Spark and a broker.

    PYTHONPATH=. python benchmarks/bench_traces.py [--rounds 15]

A commit is a transaction of four messages that count their keys in a local store, in front of librdkafka's mock broker.
A round has 200 commits without traces and 200 with them, which go to a collector in a process of its own. Wall time is
that of the worker's thread. CPU is that of the whole process, with librdkafka's threads and the one that sends spans;
the mock broker's is in both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench_hot_path import OneTask, a_slot

from benchmarks.jobs.count_keys import count_keys
from samzapy.adapters.otel.tracer import open_tracer
from samzapy.adapters.otel.wishes import OTLP
from samzapy.container.task.commit_trace import NOT_TRACED, CommitTraces
from samzapy.declared_task import Declared
from samzapy.task import LoadedTask, TaskFactory
from unit_tests.fixtures.container_worlds import a_job, a_plan, rows

COMMITS = 200
_MESSAGES = 4
_SENT_WITHIN_S = 30.0


def collect(address: Connection) -> None:
    """Be a collector; sends its URL first."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address.send(f"http://127.0.0.1:{server.server_port}")
    server.serve_forever()


@contextmanager
def a_collector() -> Iterator[str]:
    """The URL of a collector."""
    spawning = get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=collect, args=(theirs,))
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


class Commits:
    """A task that commits a few messages at a time."""

    def __init__(self, directory: Path, slot: Any) -> None:
        config = a_job(
            systems_kafka_samza_key_serde="bytes",
            systems_kafka_samza_msg_serde="bytes",
            stores_sums_msg_serde="bytes",
        )
        config = replace(config, stores=tuple(replace(store, name="counts") for store in config.stores))
        self.plan, self._slot, self._first = a_plan(config), slot, 0
        task = LoadedTask(process=count_keys, init=None, close=None)
        self._task = OneTask(config, TaskFactory(Declared(), lambda: task), directory, slot)

    def us(self, *, is_traced: bool) -> tuple[float, float]:
        """Wall time and CPU of one commit, in microseconds."""
        tracer = open_tracer((OTLP,), "flights-1", {}) if is_traced else None
        traces = NOT_TRACED if tracer is None else CommitTraces.of(tracer, self.plan, is_tail=True)
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(COMMITS):
            messages = [(f"{number:08d}", b"x" * 80) for number in range(_MESSAGES)]
            (report,) = self._task.runner.run([rows(*messages, first=self._first)], self._slot, traces)
            assert report.records_in == _MESSAGES and not report.error, report
            self._first += _MESSAGES
        took_s = time.perf_counter() - begun_s
        if tracer is not None:
            tracer.close(_SENT_WITHIN_S)
        return took_s / COMMITS * 1e6, (time.process_time() - cpu_s) / COMMITS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    figures: dict[str, list[tuple[float, float]]] = {"off": [], "on": []}
    with tempfile.TemporaryDirectory() as directory, a_collector() as url:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
        commits = Commits(Path(directory), a_slot())
        for number in range(options.rounds + 1):
            for traces in sorted(figures, reverse=bool(number % 2)):
                measured = commits.us(is_traced=traces == "on")
                # The first round loads modules and opens connections.
                figures[traces] += [measured] if number else []
    load = round(os.getloadavg()[0], 1)
    for traces, pairs in figures.items():
        wall_us, cpu_us = (round(statistics.median(values)) for values in zip(*pairs, strict=True))
        print(json.dumps({"traces": traces, "wall_us": wall_us, "cpu_us": cpu_us, "load": load}))
    more = [(on[0] - off[0], on[1] - off[1]) for off, on in zip(figures["off"], figures["on"], strict=True)]
    wall_us, cpu_us = (round(statistics.median(values)) for values in zip(*more, strict=True))
    print(json.dumps({"more with traces, median of rounds": {"wall_us": wall_us, "cpu_us": cpu_us}}))


if __name__ == "__main__":
    main()
