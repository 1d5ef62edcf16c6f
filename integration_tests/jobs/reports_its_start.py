"""A program in place of a job: reports its start, and ends as a file asks.

Arguments are `--set key=value`: `report` is the file that it writes, `exit_code` the file that it waits for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from samzapy.runtime.driver_stderr import real_stderr
from samzapy.runtime.signals import end_with_parent


def main() -> int:
    # As a container does: a test ends the driver by its JVM, and reads the driver's stderr.
    end_with_parent()
    sys.stderr = real_stderr(os.environ)
    settings = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
    session = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    report = {
        "master": session.sparkContext.master,
        "rows": session.range(10).count(),
        "pid": os.getpid(),
        "settings": settings,
        "environment": dict(os.environ),
    }
    path = Path(f"{settings['report']}-{os.environ['EXECUTION_ENV_CONTAINER_ID']}")
    path.with_suffix(".draft").write_text(json.dumps(report))
    path.with_suffix(".draft").replace(path)
    exit_code_file = Path(f"{settings['exit_code']}-{os.environ['EXECUTION_ENV_CONTAINER_ID']}")
    while not exit_code_file.exists():
        time.sleep(0.1)
    print(f"samzapy: asked to end with {exit_code_file.read_text()}", file=sys.stderr, flush=True)
    return int(exit_code_file.read_text())


if __name__ == "__main__":
    sys.exit(main())
