from __future__ import annotations

from pathlib import Path

import pytest

from samzapy.errors import ConfigError
from samzapy.runtime.standalone_cluster import standalone_launcher
from samzapy.testing.builders import a_config

THERE = {"cluster_standalone_rest_url": "http://m:6066", "cluster_standalone_page_url": "http://127.0.0.1:8080"}
JOB = Path("/srv/job.py")


@pytest.mark.parametrize("missing", THERE)
def test_the_address_of_the_master_is_required(missing: str) -> None:
    config = a_config(**{key: value for key, value in THERE.items() if key != missing})

    with pytest.raises(ConfigError, match=r"wanted cluster.standalone.rest.url and cluster.standalone.page.url"):
        standalone_launcher(config, JOB, None, [])


@pytest.mark.parametrize("spark_options", [["--master", "local[4]"], ["--master=local[4]"]])
def test_cores_are_no_option_of_spark_submit(spark_options: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"cluster-manager.container.cpu.cores"):
        standalone_launcher(a_config(**THERE), JOB, None, [], spark_options)


def test_a_secret_is_no_setting_of_a_command_line_that_a_master_shows() -> None:
    with pytest.raises(ConfigError, match="wanted nothing secret on a command line"):
        standalone_launcher(a_config(**THERE), JOB, None, ["systems.kafka.client.sasl.password=hunter2"])


ELSEWHERE = {**THERE, "cluster_standalone_page_url": "http://m:8080", "job_coordinator_insecure": "true"}


@pytest.mark.parametrize(
    "own", [{}, {"job_coordinator_host": "0.0.0.0", "job_coordinator_advertised_host": "localhost"}]
)
def test_a_coordinator_that_no_worker_would_reach_is_refused(own: dict[str, str]) -> None:
    with pytest.raises(
        ConfigError, match=r"wanted an address that the workers of m can reach, found (127|localhost)"
    ):
        standalone_launcher(a_config(**ELSEWHERE, **own), JOB, None, [])


@pytest.mark.parametrize("own", [{"job_coordinator_host": "0.0.0.0"}, {"job_coordinator_host": "10.0.0.7"}])
def test_a_cluster_that_containers_reach_is_not_refused(own: dict[str, str]) -> None:
    standalone_launcher(a_config(**ELSEWHERE, **own), JOB, None, [])
