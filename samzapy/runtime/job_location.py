"""Where this processor is: what its launcher or the machine calls the host, and what the job's own provider says."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from samzapy.config import JobConfig
from samzapy.errors import ConfigError, SamzapyError
from samzapy.model.launch import HOST_VARIABLE
from samzapy.model.location import LocationId
from samzapy.model.text import error_text
from samzapy.task import load_from_directory

_LOG = logging.getLogger(__name__)


def location_of_this_processor(config: JobConfig, directory: Path) -> LocationId:
    """The location, from the provider that `config` names, out of `directory`, where the job file stands (L10).

    A launcher that names the host (`SAMZAPY_HOST`) is the only source of its name, because it starts containers by that
    name. The provider then gives the fault domain.

    Raises:
        TaskModuleError: there is no such module or class, or it does not import.
        ConfigError: the provider fails, or its answer is no LocationId.
    """
    name = config.location_provider_factory
    host = os.environ.get(HOST_VARIABLE, "")
    if name is None:
        # A logical host, where several of them are one machine.
        return LocationId(host or socket.gethostname())
    setting = f"locationid.provider.factory={name}"
    factory = load_from_directory(directory, name, setting)
    try:
        found: object = factory(dict(config.properties)).location_id()
    except (SamzapyError, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit included: nobody would see why the process ended.
        raise ConfigError(
            f"{setting}: wanted a class that is made with the job's properties and whose location_id() says where this "
            f"processor is, found that it fails with {error_text(error)}"
        ) from error
    if not isinstance(found, LocationId):
        raise ConfigError(f"{setting}: wanted a samzapy.LocationId from location_id(), found {found!r}")
    if host and found.host != host:
        _LOG.info(
            "%s: the launcher's host %s counts, and not %s; only the fault domain is taken", setting, host, found.host
        )
        return LocationId(host, found.fault_domain)
    return found
