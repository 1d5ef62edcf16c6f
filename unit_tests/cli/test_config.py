"""`samzapy config explain` and `config check`, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from samzapy.cli.config import config
from samzapy.errors import ConfigError, SamzapyError, TaskModuleError, UnknownConfigKeyError
from samzapy.runtime import job_address
from samzapy.testing.builders import a_config, a_submission
from unit_tests.fixtures.coordinator_world import World

PROPERTIES = """\
job.name=flights
task.inputs=kafka.flights
systems.kafka.bootstrap.servers=localhost:1
systems.kafka.client.sasl.password=hunter2
job.container.lease.ms=16000
"""


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "flights.properties"
    path.write_text(PROPERTIES)
    return path


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(config, arguments)
    if isinstance(result.exception, SamzapyError):
        raise result.exception
    assert 0 == result.exit_code, result.output
    return result


def test_one_key_is_explained_in_full(properties: Path) -> None:
    shown = invoke("explain", "job.container.lease.ms", "--config", str(properties), "--set", "job.id=2").stdout

    lines = [line.split(maxsplit=1) for line in shown.splitlines()[1:]]
    assert "job.container.lease.ms" == shown.splitlines()[0]
    assert ["value", "16000"] in lines
    assert ["from", f"{properties}:5"] in lines
    assert ["default", "15000"] in lines
    assert ["type", "milliseconds, from 0"] in lines
    assert ["stronger", "--set job.container.lease.ms=..."] in lines
    assert not any(line[0] in ("recorded", "refused") for line in lines)


def test_without_a_key_all_set_keys_are_listed_without_secrets(properties: Path) -> None:
    shown = invoke("explain", "--config", str(properties), "--set", "job.id=2").stdout

    rows = [line.split() for line in shown.splitlines()]
    assert ["KEY", "VALUE", "FROM"] == rows[0]
    assert ["job.id", "2", "--set"] in rows
    assert ["systems.kafka.client.sasl.password", "***", f"{properties}:4"] in rows
    assert 7 == len(rows)
    assert "hunter2" not in shown


def test_a_key_is_explained_without_a_file() -> None:
    assert "15000" in invoke("explain", "job.container.lease.ms").stdout


def test_json_has_all_fields_of_a_key(properties: Path) -> None:
    fields: list[dict[str, Any]] = json.loads(
        invoke("explain", "job.*", "--config", str(properties), "-o", "json").stdout
    )

    by_key = {item["key"]: item for item in fields}
    assert ("16000", "file", f"{properties}:5", False) == tuple(
        by_key["job.container.lease.ms"][name] for name in ("value", "origin", "place", "secret")
    )
    assert ("default", None) == (by_key["job.id"]["origin"], by_key["job.id"]["recorded"])


def test_an_invalid_configuration_can_be_explained(properties: Path) -> None:
    """That is when it is needed."""
    properties.write_text(PROPERTIES + "nonsense=1\njob.container.lost.ms=1\n")

    assert "16000" in invoke("explain", "job.container.lease.ms", "--config", str(properties)).stdout
    rows = [
        line.rstrip().split(maxsplit=3) for line in invoke("explain", "--config", str(properties)).stdout.splitlines()
    ]
    assert ["KEY", "VALUE", "FROM", "REFUSED"] == rows[0]
    assert [["nonsense", "1", f"{properties}:6"]] == [row[:3] for row in rows[1:] if len(row) == 4]


def test_an_unknown_key_is_refused_with_the_nearest(properties: Path) -> None:
    with pytest.raises(UnknownConfigKeyError, match="did you mean job.name"):
        invoke("explain", "job.nam", "--config", str(properties))


@pytest.mark.parametrize(
    ("handed_in", "now_printed", "value", "place"),
    [
        # Submitted with a factor, and again without the line: the job keeps its factor.
        (["4", None], None, "4", "an earlier configuration, offset"),
        (["4"], None, "4", "an earlier configuration, offset"),
        (["4"], "4", "4", "flights.properties:6"),
        # ... until the line has a new value.
        (["4", None], "2", "2", "flights.properties:6"),
        (["4", "2", None], None, "2", "an earlier configuration, offset"),
        ([None], None, "1", "default"),
    ],
)
def test_a_factor_of_an_earlier_configuration_is_shown(
    properties: Path,
    monkeypatch: pytest.MonkeyPatch,
    handed_in: list[str | None],
    now_printed: str | None,
    value: str,
    place: str,
) -> None:
    world = World()
    service = world.coordinator()
    service.become_leader()
    for factor in handed_in:
        given = {} if factor is None else {"job_elasticity_factor": factor}
        service.submit(a_submission(config=a_config(**given)))
    monkeypatch.setattr(job_address, "coordinator_records", lambda address: world.log().read())
    if now_printed is not None:
        properties.write_text(f"{PROPERTIES}job.elasticity.factor={now_printed}\n")

    (shown,) = json.loads(
        invoke(
            "explain", "job.elasticity.factor", "--config", str(properties), "--job", "flights-1", "-o", "json"
        ).stdout
    )

    assert value == shown["value"]
    assert place in shown["place"]


def test_a_good_configuration_passes_the_check(properties: Path) -> None:
    properties.write_text(PROPERTIES.replace("systems.kafka.client.sasl.password=hunter2\n", ""))

    assert (
        "job flights-1, 4 keys are set, nothing is wrong with them"
        in invoke("check", "--config", str(properties)).stdout
    )


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("job.container.lost.ms=1", ConfigError, "wanted more than job.container.lease.ms"),
        ("systems.kafka.client.ssl.cipher.suites=X", ConfigError, "ssl.cipher.suites"),
        ("task.name.grouper.factory=nowhere:Nothing", TaskModuleError, "nowhere"),
    ],
)
def test_check_refuses_a_configuration_that_a_start_would_refuse(
    properties: Path, line: str, error: type[ConfigError], words: str
) -> None:
    properties.write_text(f"{PROPERTIES}{line}\n")

    with pytest.raises(error, match=words):
        invoke("check", "--config", str(properties))


TOTALS = """\
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Double)

@sz.task(inputs=[orders])
class Totals(sz.Task[str, float]):
    total = sz.value(sz.Double, default=0.0)

    def process(self, message: sz.Message[str, float], out: sz.Output) -> None:
        self.total.set(self.total.get() + message.value)
"""


@pytest.fixture
def totals(job_directory: Path) -> Path:
    """The job file of a task class that declares its input and a state."""
    job_file = job_directory / "totals.py"
    job_file.write_text(TOTALS)
    return job_file


def properties_of(job_file: Path, *lines: str) -> Path:
    path = job_file.with_suffix(".properties")
    path.write_text("\n".join(["job.name=totals", "systems.kafka.bootstrap.servers=localhost:1", *lines]))
    return path


def test_check_refuses_declarations_of_the_job_file_that_a_start_would_refuse(totals: Path) -> None:
    """Also where the properties name the inputs."""
    properties = properties_of(totals, "task.inputs=kafka.orders")

    with pytest.raises(ConfigError, match="local.store.dir: wanted a directory"):
        invoke("check", "--config", str(properties))

    properties_of(totals, "task.inputs=kafka.orders", "local.store.dir=/var/tmp/totals")
    assert "nothing is wrong with them" in invoke("check", "--config", str(properties)).stdout


def test_check_takes_the_declarations_of_a_job_file_that_is_elsewhere(totals: Path) -> None:
    copy = properties_of(totals, "local.store.dir=/var/tmp/totals").rename(totals.with_name("copy.properties"))

    assert "nothing is wrong with them" in invoke("check", "--config", str(copy), "--job-file", str(totals)).stdout
    with pytest.raises(ConfigError, match="wanted task.inputs, found nothing"):
        invoke("check", "--config", str(copy))


def test_check_lists_all_wrong_keys_also_with_a_job_file(totals: Path) -> None:
    properties = properties_of(totals, "task.inputs=kafka.orders", "job.nam=x", "job.container.lost.ms=1")

    with pytest.raises(ConfigError, match="found 3 problems") as refused:
        invoke("check", "--config", str(properties))

    for words in ("job.nam;", "job.container.lost.ms: wanted more", "local.store.dir: wanted a directory"):
        assert words in str(refused.value)


def test_check_refuses_a_name_in_the_job_file_that_is_not_declared(totals: Path) -> None:
    totals.write_text(
        "import samzapy\n\n@samzapy.task\ndef count(envelope, collector, context):\n    context.store('counts')\n"
    )
    properties = properties_of(totals, "task.inputs=kafka.orders")

    with pytest.raises(TaskModuleError, match="wanted store 'counts', found none"):
        invoke("check", "--config", str(properties))


@pytest.mark.parametrize("directory", ["", ".", "/"])
def test_check_names_a_directory_in_place_of_the_properties(directory: str) -> None:
    with pytest.raises(ConfigError, match="wanted the job's properties in .*, found Is a directory"):
        invoke("check", "--config", directory)


def test_a_job_that_names_no_cluster_is_refused(properties: Path) -> None:
    lines = PROPERTIES.splitlines()
    properties.write_text("\n".join(line for line in lines if "bootstrap" not in line))

    with pytest.raises(ConfigError, match=r"wanted systems\.kafka\.bootstrap\.servers"):
        invoke("check", "--config", str(properties))
