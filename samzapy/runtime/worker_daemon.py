"""The process that forks Spark's Python workers.

Spark starts it as `spark.python.daemon.module`. It is PySpark's own daemon, after the import of most modules that a
worker needs. So each worker has them from its first moment, and shares their memory; otherwise it imports them for more
than a second on a core of its own. PyArrow and what imports it are left to the workers: its import starts a thread, and
a process with threads must not fork.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Final

from samzapy.adapters.host.core_files import write_no_core_files
from samzapy.adapters.installed_spark import prefer_unpacked_modules

PRELOADED: Final = (
    "pyspark.worker",
    "samzapy.adapters.faults",
    "samzapy.adapters.host.interrupts",
    "samzapy.adapters.host.outputs_file",
    "samzapy.adapters.host.threads",
    "samzapy.adapters.kafka.transactions",
    "samzapy.adapters.lmdb.store",
    "samzapy.adapters.spark.open_tasks",
    "samzapy.container.orders",
    "samzapy.container.task.joint_transaction",
    "samzapy.container.task.runner",
    # The names of `samzapy` that no other module here imports; a job file may use them.
    "samzapy.model.location",
    "samzapy.plan.groupers",
    "samzapy.runtime.slow_message_watch",
    "samzapy.runtime.tracing",
    "samzapy.runtime.worker_end",
    "samzapy.runtime.worker_tail",
)


def preload() -> None:
    """Import the modules of a worker that may be shared."""
    prefer_unpacked_modules(sys.path)
    for module in PRELOADED:
        importlib.import_module(module)
    from samzapy.runtime import tracing

    tracing.preload(os.environ)
    # Otherwise each collection of a worker writes to these objects, and their pages are shared no more.
    gc.collect()
    gc.freeze()


def serve() -> None:
    """Fork workers until Spark ends."""
    write_no_core_files()  # Spark's JVM may have another limit: only `samzapy` sets its own.
    preload()
    from pyspark import daemon, worker

    from samzapy.runtime import tracing, worker_end

    # The daemon takes it from there for each of Spark's tasks.
    worker.main = worker_end.awaiting_tasks(worker.main)
    if tracing.hold_hangup(os.environ):
        daemon.worker = tracing.closing_at_end(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    serve()
