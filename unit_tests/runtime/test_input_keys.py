"""The effect of sampled keys on a start; see `unit_tests.plan.test_input_keys`."""

from __future__ import annotations

import logging

import pytest

from samzapy.config import JobConfig
from samzapy.errors import ExitCode, PartitionerError
from samzapy.inspection.diagnosis import key_findings
from samzapy.model.finding import Severity
from samzapy.plan.input_keys import InputKeys, look_at_keys
from samzapy.plan.partitioners import Partitioner
from samzapy.runtime.input_keys import refuse_or_warn, warn_of_bootstrap
from samzapy.testing.builders import a_config
from unit_tests.plan.test_input_keys import CUSTOMERS, ORDERS, a_plan, written


def a_job(check: str = "fail") -> JobConfig:
    return a_config(task_partitioner_check=check)


def differing() -> InputKeys:
    keys_of = {**written(ORDERS, 4, Partitioner.CRC32), **written(CUSTOMERS, 4, Partitioner.MURMUR2)}
    return look_at_keys(keys_of, a_plan())


def uneven() -> InputKeys:
    return look_at_keys({}, a_plan(8, 12, scheme="group-by-partition"))


def test_inputs_that_differ_are_refused_as_a_mistake_of_the_configuration() -> None:
    with pytest.raises(PartitionerError, match="CRC32 in kafka.orders") as refused:
        refuse_or_warn(a_job(), differing())

    assert ExitCode.USAGE == refused.value.exit_code


@pytest.mark.parametrize(("check", "is_refusable"), [("warn", True), ("fail", False)])
def test_differing_keys_are_a_warning_if_the_operator_accepts_them_or_processors_run(
    check: str, is_refusable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_or_warn(a_job(check), differing(), is_refusable=is_refusable)

    [record] = caplog.records
    assert (logging.WARNING, True) == (record.levelno, "CRC32 in kafka.orders" in record.getMessage())


def test_numbers_of_partitions_that_keep_keys_apart_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    refuse_or_warn(a_job(), uneven())

    [record] = caplog.records
    assert "kafka.customers has 12 partitions and kafka.orders 8" in record.getMessage()


def test_a_bootstrap_input_that_a_new_job_begins_at_its_end_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "task_inputs": "kafka.orders,kafka.customers",
        "systems_kafka_streams_customers_samza_bootstrap": "true",
    }

    warn_of_bootstrap(a_config(**settings))
    assert [] == caplog.records
    warn_of_bootstrap(a_config(**settings, systems_kafka_streams_customers_samza_offset_default="upcoming"))

    [record] = caplog.records
    assert "systems.kafka.streams.customers.samza.offset.default=oldest" in record.getMessage()


def test_a_doctor_finds_the_same_and_that_the_operator_accepted_it() -> None:
    [finding] = key_findings(differing(), is_accepted=False)
    [accepted] = key_findings(differing(), is_accepted=True)
    [counts] = key_findings(uneven(), is_accepted=False)

    assert ("input-partitioner", Severity.DATA) == (finding.code, finding.severity)
    assert ("input-keys", Severity.DEGRADED) == (accepted.code, accepted.severity)
    assert finding.found == accepted.found
    assert ("input-keys", True) == (counts.code, "12 partitions" in counts.found)
