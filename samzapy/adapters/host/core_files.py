"""No core files of processes that hold secrets.

A core file has all memory of a process that crashed, passwords and messages included, and may be kept, or sent away, by
the host's crash reporter. The soft limit is set to 0, which child processes inherit. The hard limit stays, so that an
operator who needs a core file can raise the limit of one process (`prlimit --core`).

`PR_SET_DUMPABLE` would also hide `/proc/<pid>/environ` from the user's other processes, and the process launcher
finds containers by that (`process_launcher`).
"""

from __future__ import annotations

import resource


def write_no_core_files() -> None:
    """Let this process, and those that it starts, write no core files."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
