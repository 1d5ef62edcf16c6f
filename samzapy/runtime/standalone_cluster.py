"""Makes the launcher for a Spark standalone cluster.

It is made from a job's configuration and command line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from samzapy.adapters.spark.standalone_launcher import StandaloneLauncher, StandaloneMaster
from samzapy.adapters.spark.submission import ContainerProgram
from samzapy.adapters.web.client import ask
from samzapy.config import JobConfig, is_loopback
from samzapy.errors import ConfigError
from samzapy.runtime.coordinator_access import launched_credential
from samzapy.runtime.leadership import advertised_host
from samzapy.runtime.spark_submit import QUIET_SPARK
from samzapy.runtime.this_host import Here

_ANSWER_MS = 5000
_ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""A master's page lists all workers and drivers, some hundred bytes each."""


def standalone_launcher(
    config: JobConfig,
    job_file: Path,
    config_file: Path | None,
    overrides: Sequence[str],
    spark_options: Sequence[str] = (),
) -> StandaloneLauncher:
    """Make the launcher.

    Paths, and this Python's path, must be the same on the workers.

    Args:
        job_file, config_file: absolute.
        overrides: each a `--set` of every container.
        spark_options: spark-submit's own, of every container.

    Raises:
        ConfigError: the master's address is missing, or an option of the containers is not allowed.
    """
    rest_url, page_url = config.standalone_rest_url, config.standalone_page_url
    if rest_url is None or page_url is None:
        raise ConfigError(
            "wanted cluster.standalone.rest.url and cluster.standalone.page.url, where Spark's master takes drivers "
            f"and where its page is, found {rest_url or 'nothing'} and {page_url or 'nothing'}"
        )
    if any(option.partition("=")[0] == "--master" for option in spark_options):
        raise ConfigError(
            "--master: wanted the cores of a container as cluster-manager.container.cpu.cores, found a master; "
            "containers on a cluster are told theirs by the launcher"
        )
    _check_reachable(config, page_url)
    program = ContainerProgram(
        job=config.job,
        job_file=str(job_file),
        config_file=None if config_file is None else str(config_file),
        overrides=tuple(overrides),
        spark_options=(*QUIET_SPARK, *spark_options),
        python=sys.executable,
        cores=config.container_cores,
        memory_mib=config.container_memory_mib,
        credential_of=launched_credential(config, os.environ),
    )
    master = StandaloneMaster(rest_url=rest_url.rstrip("/"), page_url=page_url.rstrip("/"))
    return StandaloneLauncher(master, program, partial(ask, timeout_ms=_ANSWER_MS, bytes_max=_ANSWER_BYTES_MAX))


def _check_reachable(config: JobConfig, page_url: str) -> None:
    """Refuse an advertised loopback address.

    Containers on other hosts would look for the coordinator on their own hosts, and none could send a heartbeat.
    """
    advertised, master = advertised_host(config, Here.now()), urlsplit(page_url).hostname or ""
    if is_loopback(advertised) and not is_loopback(master):
        raise ConfigError(
            f"job.coordinator.host: wanted an address that the workers of {master} can reach, found {advertised}, "
            "where each of them finds only itself; set job.coordinator.host=0.0.0.0, and "
            "job.coordinator.advertised.host where the name of this host is not known to them"
        )
