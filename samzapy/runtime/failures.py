"""Failures of the machine, such as a full disk, as errors with a way out."""

from __future__ import annotations

import errno

from samzapy.errors import SamzapyError

_OF_THE_MACHINE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
    errno.EIO,
)


def machine_error(error: OSError) -> SamzapyError | None:
    """The error for a full disk or missing permissions; None for other errors."""
    if error.errno not in _OF_THE_MACHINE:
        return None
    where = "this machine's files" if error.filename is None else error.filename
    return SamzapyError(f"wanted to use {where}, found: {error.strerror}; mend that, and start again")
