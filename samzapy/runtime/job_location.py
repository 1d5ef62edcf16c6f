"""The location of this processor: its host and fault domain.

The launcher or the machine names the host, and the job's own provider may name both.
"""

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
    """The location of this processor.

    The provider that `config` names is in `directory`, beside the job file (L10). A launcher that names the host
    (`SAMZAPY_HOST`) is the only source of its name, because it starts containers by that name. The provider then gives
    the fault domain.

    Raises:
        TaskModuleError: there is no such module or class, or it does not import.
        ConfigError: the provider fails, or its answer is no LocationId.
    """
    name = config.location_provider_factory
    host = os.environ.get(HOST_VARIABLE, "")
    if name is None:
        # A logical host: several of them may be one machine.
        return LocationId(host or socket.gethostname())
    setting = f"locationid.provider.factory={name}"
    factory = load_from_directory(directory, name, setting)
    try:
        location: object = factory(dict(config.properties)).location_id()
    except (SamzapyError, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit included: the process would end without a reason.
        raise ConfigError(
            f"{setting}: wanted a class that is made with the job's properties and whose location_id() says where this "
            f"processor is, found that it fails with {error_text(error)}"
        ) from error
    if not isinstance(location, LocationId):
        raise ConfigError(f"{setting}: wanted a samzapy.LocationId from location_id(), found {location!r}")
    if host and location.host != host:
        _LOG.info(
            "%s: the launcher's host %s counts, and not %s; only the fault domain is taken",
            setting,
            host,
            location.host,
        )
        return LocationId(host, location.fault_domain)
    return location
