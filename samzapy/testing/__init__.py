"""Tests of your own job: in memory, or with a broker on this machine.

`crash_anywhere`, `MemoryJob`, `Message` and `run_task` can be had from here. Each is imported at its first use:
`crash_anywhere` needs Hypothesis, which the extra `samzapy[test]` installs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samzapy.testing.histories import crash_anywhere as crash_anywhere
    from samzapy.testing.job import MemoryJob as MemoryJob
    from samzapy.testing.job import Message as Message
    from samzapy.testing.task_kit import run_task as run_task
else:
    _MODULES = {
        "crash_anywhere": "samzapy.testing.histories",
        "MemoryJob": "samzapy.testing.job",
        "Message": "samzapy.testing.job",
        "run_task": "samzapy.testing.task_kit",
    }

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
