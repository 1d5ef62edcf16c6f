"""The start of a container's driver.

A start goes in this order, so that a mistake is reported early and a refused process leaves no trace: configuration,
directories, processor id, settings of Spark, cluster, topics, whether that processor runs already; then the election.
Below spark-submit the JVM runs already, so the session is opened beside that, and beside the import of what a driver
needs.
"""

from __future__ import annotations

import logging
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from samzapy.adapters.host.processor_ids import kept_processor_id
from samzapy.adapters.host.scratch import scratch_directory
from samzapy.config import JobConfig
from samzapy.errors import EnvironmentMissingError
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.launch import EXECUTION_VARIABLE
from samzapy.runtime.logs import identify
from samzapy.runtime.spark_start import SparkStart

_LOG = logging.getLogger(__name__)
_MOUNTS = Path("/proc/mounts")
_NOT_PERSISTENT = {"tmpfs", "ramfs", "devtmpfs"}


def run_container(
    config: JobConfig, job_file: Path, leaving: ExitStack, expected_generation: int | None = None
) -> None:
    """Run this process as a processor of the job until it is asked to stop.

    Args:
        leaving: what the process still does after an error has been reported.
        expected_generation: see `SubmitJob`.

    Raises:
        SamzapyError: with the exit code that the process ends with.
    """
    _check_store_directory(config)
    processor_id = leaving.enter_context(_processor_id(config))
    execution_id = ExecutionId(os.environ.get(EXECUTION_VARIABLE) or f"container-{processor_id}-{uuid.uuid4().hex}")
    identify(job=config.job, processor=processor_id, execution=execution_id)
    scratch_dir = leaving.enter_context(scratch_directory(execution_id))
    spark = leaving.enter_context(SparkStart(config.job, processor_id, scratch_dir))
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        spark.begin()
        # Settings that are refused come before the first topic, and two imports in two threads would share one core.
        spark.cores()
    # Imported here: it takes most of a second, in which the JVM opens the session.
    from samzapy.runtime.container_process import run_execution

    run_execution(
        config,
        job_file,
        processor_id=processor_id,
        execution_id=execution_id,
        scratch_dir=scratch_dir,
        spark=spark,
        expected_generation=expected_generation,
    )


@contextmanager
def _processor_id(config: JobConfig) -> Iterator[ProcessorId]:
    """The configured processor id, else the one kept with local state, else a new one.

    A job without a local directory has no state on this host to come back to.
    """
    if config.processor_id is not None:
        yield ProcessorId(config.processor_id)
    elif config.local_store_dir is not None:
        # Beside the tasks' directories, under a name that no task can have.
        with kept_processor_id(Path(config.local_store_dir) / config.job / ".processors") as kept:
            yield ProcessorId(kept)
    else:
        yield ProcessorId(f"p_{uuid.uuid4().hex[:12]}")


def _check_store_directory(config: JobConfig, mounts: Path = _MOUNTS) -> None:
    """Refuse a local.store.dir that cannot be used.

    Log a warning for one that a reboot clears.
    """
    if config.local_store_dir is None:
        return
    path = Path(config.local_store_dir)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise EnvironmentMissingError(
            f"local.store.dir: wanted a writable directory at {path}, found {error.strerror}; "
            "every processor of the job on this host must be able to read and write it"
        ) from error
    if _file_system(path, mounts) in _NOT_PERSISTENT or path.resolve().is_relative_to(tempfile.gettempdir()):
        _LOG.warning(
            "local.store.dir %s is not kept over reboots: state will be rebuilt from the changelog then", path
        )


def _file_system(path: Path, mounts: Path) -> str:
    """The type of the file system of `path`, from the kernel's mount table.

    The longest mount point that contains it counts.
    """
    best, kind = "", ""
    # The name of a mount point may be any bytes, as in Python's paths.
    for line in filter(None, os.fsdecode(mounts.read_bytes()).split("\n")):
        _, mounted_at, file_system, *_ = line.split(" ")
        # Blanks separate the fields of the table, so blanks in names are written in octal.
        mounted_at = mounted_at.replace(r"\040", " ")
        if path.resolve().is_relative_to(mounted_at) and len(mounted_at) >= len(best):
            best, kind = mounted_at, file_system
    return kind
