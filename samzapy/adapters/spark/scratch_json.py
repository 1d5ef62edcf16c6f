"""Read JSON that the driver and the workers of one container write for each other.

The files are in the scratch directory, which only the user of the job can open. So other bytes than expected mean a
host that is out of order, or a bug; the query fails by name, and starts again with new files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from samzapy.errors import SamzapyError

T = TypeVar("T")
_SHOWN_MAX = 60


def read_json(raw: bytes, kind: type[T], path: Path) -> T:
    """The value in `raw`, which is of the type `kind`.

    Args:
        path: of the file, for the error.

    Raises:
        SamzapyError: other bytes.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SamzapyError(
            f"{path}: wanted what a process of this container writes there, found {raw[:_SHOWN_MAX]!r} "
            f"({str(error)[:200]}); the query starts again. If that repeats, check the memory of this host"
        ) from error
