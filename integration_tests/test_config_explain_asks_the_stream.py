"""`samzapy config explain` with a cluster: recorded values beside the file's."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from click.testing import CliRunner

from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.cli.config import config
from samzapy.errors import RejectedError
from samzapy.testing.broker import DevBroker


def test_the_recorded_value_of_a_setting_is_shown_with_its_offset(broker: DevBroker, tmp_path: Path) -> None:
    job = SmallJob(KafkaConnection(bootstrap_servers=broker.bootstrap_servers))
    job.become_leader()
    job.close()
    file = tmp_path / "job.properties"
    properties = dict(job.config.properties) | {"systems.kafka.samza.offset.default": "upcoming"}
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    key = "systems.kafka.samza.offset.default"
    address = ["--job", job.job, "--bootstrap-servers", broker.bootstrap_servers]

    of_file = CliRunner().invoke(config, ["explain", key, "--config", str(file), "--job", job.job, "-o", "json"])
    of_job = CliRunner().invoke(config, ["explain", *address])

    (row,) = json.loads(of_file.stdout)
    assert ("upcoming", "file", "oldest") == (row["value"], row["origin"], row["recorded"]["value"])
    assert row["recorded"]["place"].startswith("offset ")
    rows = {line.split()[0]: line for line in of_job.stdout.splitlines()}
    assert {"KEY", *job.config.properties} == set(rows)
    assert "oldest" in rows[key] and "coordinator stream, offset " in rows[key]


def test_a_job_that_is_not_there_is_named(broker: DevBroker) -> None:
    name = f"absent{uuid.uuid4().hex[:8]}-1"

    result = CliRunner().invoke(
        config, ["explain", "--job", name, "--bootstrap-servers", broker.bootstrap_servers, "-o", "json"]
    )

    assert isinstance(result.exception, RejectedError)
    assert name in str(result.exception)
