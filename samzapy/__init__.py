"""A Kafka-native coordinator-stream runtime on Spark Structured Streaming.

The names that a job file needs: `task` marks the task, `run` runs it. The interfaces are for a job with its own
groupers or location provider. Importing this loads neither Spark nor Kafka.
"""

from __future__ import annotations

from samzapy.durations import days, hours, minutes, seconds
from samzapy.errors import SamzapyError
from samzapy.model.job import ContainerModel, ProcessorId, TaskModel, TaskName
from samzapy.model.location import LocationId, LocationIdProvider
from samzapy.model.serde import (
    Bytes,
    Double,
    Integer,
    Json,
    Long,
    Msgpack,
    Serde,
    SerdeError,
    String,
    Timestamp,
    Uuid,
)
from samzapy.model.ssp import SystemStreamPartition
from samzapy.plan.groupers import SystemStreamPartitionGrouper, TaskNameGrouper
from samzapy.state import counter, map, value
from samzapy.state import list_ as list
from samzapy.streams import IncomingMessageEnvelope, Message, Output, Stream, Struct
from samzapy.task import KeyedStore, MessageCollector, StreamTask, Task, TaskContext, task
from samzapy.timers import Firing, timer
from samzapy.version import __version__ as __version__
from samzapy.windows import Tick

__all__ = [
    "Bytes",
    "ContainerModel",
    "Double",
    "Firing",
    "IncomingMessageEnvelope",
    "Integer",
    "Json",
    "KeyedStore",
    "LocationId",
    "LocationIdProvider",
    "Long",
    "Message",
    "MessageCollector",
    "Msgpack",
    "Output",
    "ProcessorId",
    "SamzapyError",
    "Serde",
    "SerdeError",
    "Stream",
    "StreamTask",
    "String",
    "Struct",
    "SystemStreamPartition",
    "SystemStreamPartitionGrouper",
    "Task",
    "TaskContext",
    "TaskModel",
    "TaskName",
    "TaskNameGrouper",
    "Tick",
    "Timestamp",
    "Uuid",
    "counter",
    "days",
    "hours",
    "list",
    "map",
    "minutes",
    "run",
    "seconds",
    "task",
    "timer",
    "value",
]


def run() -> None:
    """Run the job file that calls this, until it is stopped.

    The process ends with a documented exit code.

    Stands under `if __name__ == "__main__":` of a file given to spark-submit. Reads `--config FILE` (default: the
    file of the same name beside the script, ending in .properties) and `--set key=value` from the command line.
    """
    from samzapy.runtime.job_file import run_job_file

    run_job_file()
