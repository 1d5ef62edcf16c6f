"""A Kafka-native coordinator-stream runtime on Spark Structured Streaming.

The names that a job file needs: `task` marks the task, `run` runs it. The interfaces are for a job with its own
groupers or location provider. Importing this loads neither Spark nor Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samzapy.durations import days, hours, minutes, seconds
from samzapy.errors import SamzapyError

# At once, because `task` is a function and a module of the package. The first import of a module sets it as an
# attribute of the package, so a later import of this one would put the module in the place of the function.
from samzapy.task import KeyedStore, MessageCollector, StreamTask, Task, TaskContext, task
from samzapy.version import __version__ as __version__

if TYPE_CHECKING:
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
    from samzapy.timers import Firing, timer
    from samzapy.windows import Tick
else:
    # Each is imported at its first use: a command does not wait for what only a job file needs. This is hidden from
    # type checkers, to which a package with `__getattr__` has every name.
    _MODULES = {
        **dict.fromkeys(("ContainerModel", "ProcessorId", "TaskModel", "TaskName"), "samzapy.model.job"),
        **dict.fromkeys(("LocationId", "LocationIdProvider"), "samzapy.model.location"),
        **dict.fromkeys(("Bytes", "Double", "Integer", "Json", "Long", "Msgpack"), "samzapy.model.serde"),
        **dict.fromkeys(("Serde", "SerdeError", "String", "Timestamp", "Uuid"), "samzapy.model.serde"),
        **dict.fromkeys(("SystemStreamPartition",), "samzapy.model.ssp"),
        **dict.fromkeys(("SystemStreamPartitionGrouper", "TaskNameGrouper"), "samzapy.plan.groupers"),
        **dict.fromkeys(("counter", "list", "map", "value"), "samzapy.state"),
        **dict.fromkeys(("IncomingMessageEnvelope", "Message", "Output", "Stream", "Struct"), "samzapy.streams"),
        **dict.fromkeys(("Firing", "timer"), "samzapy.timers"),
        **dict.fromkeys(("Tick",), "samzapy.windows"),
    }
    _OTHER_NAMES = {"list": "list_"}
    """Names in their modules that a module could not use for itself."""

    def __getattr__(name):
        from importlib import import_module

        if name == "testing":
            # Without an import of it, too: `samzapy.testing.crash_anywhere`. Only tests get here.
            return import_module("samzapy.testing")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        exported = getattr(import_module(_MODULES[name]), _OTHER_NAMES.get(name, name))
        globals()[name] = exported
        return exported

    def __dir__():
        return sorted({*globals(), *__all__})


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
