from __future__ import annotations

import json
import os
import subprocess
import sys

_SCRIPT = """
import json, os, sys
from samzapy.runtime.worker_daemon import preload
preload()
threads = len(os.listdir("/proc/self/task"))
before = set(sys.modules)
import samzapy
names = [getattr(samzapy, name) for name in samzapy.__all__]
import samzapy.runtime.worker_process
print(json.dumps([threads, sorted(set(before)), sorted(set(sys.modules) - before)]))
"""


def test_the_daemon_has_the_imports_of_a_worker_and_no_thread() -> None:
    """A process with threads must not fork, and importing PyArrow starts one.

    The names that a job file uses are there too: the package imports most of them at their first use.
    """
    run = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    threads, before, added = json.loads(run.stdout)

    assert threads == 1
    assert not {"pyarrow", "numpy", "pandas"} & set(before)
    ours = [name for name in added if name.startswith("samzapy")]
    assert ["samzapy.adapters.spark.rows", "samzapy.runtime.worker_process"] == ours


_TRACED = """
import os
from samzapy.runtime.worker_daemon import preload
preload()
import sys
print(len(os.listdir("/proc/self/task")), "opentelemetry.sdk.trace" in sys.modules)
"""


def test_the_daemon_has_the_imports_of_traces_and_no_thread_where_they_are_wanted() -> None:
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "otlp"}

    run = subprocess.run(
        [sys.executable, "-c", _TRACED], env=environment, capture_output=True, text=True, check=True, timeout=120
    )

    assert "1 True\n" == run.stdout
