"""A program that a cluster runs in place of a job: says what it was started with, and ends when and how it is told.

Arguments are `--set key=value`: `said` is the file that it writes, `told` the one that it waits for, which holds the
exit code.
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
    # As a container does: whoever ends a driver ends its JVM, and reads what stands on its stderr.
    end_with_parent()
    sys.stderr = real_stderr(os.environ)
    settings = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
    session = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    said = {
        "master": session.sparkContext.master,
        "rows": session.range(10).count(),
        "pid": os.getpid(),
        "settings": settings,
        "environment": dict(os.environ),
    }
    path = Path(f"{settings['said']}-{os.environ['EXECUTION_ENV_CONTAINER_ID']}")
    path.with_suffix(".draft").write_text(json.dumps(said))
    path.with_suffix(".draft").replace(path)
    told = Path(f"{settings['told']}-{os.environ['EXECUTION_ENV_CONTAINER_ID']}")
    while not told.exists():
        time.sleep(0.1)
    print(f"samzapy: told to end with {told.read_text()}", file=sys.stderr, flush=True)
    return int(told.read_text())


if __name__ == "__main__":
    sys.exit(main())
