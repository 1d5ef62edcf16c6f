"""Make a `JobConfig` of properties.

Each key must be known, each value of its kind, and all values possible together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from samzapy.config.checks import CHECKS
from samzapy.config.job_config import JobConfig, is_pattern
from samzapy.config.keys import COUNT_KEY, KEYS, WINDOW_KEY
from samzapy.config.lookup import check_known, check_value, spec_of, value_of
from samzapy.config.problems import Problems
from samzapy.config.secrets import SECRET, Secret, Text, hidden, is_secret, revealed
from samzapy.config.sources import check_filled
from samzapy.config.values import (
    accepted_loss,
    broadcast_inputs_of,
    dropped_stores_of,
    host_slots_of,
    input_items,
    intermediates_of,
    items_of,
    stores_of,
)

TEXTS: Final = {
    "default_system": "job.default.system",
    "job_name": "job.name",
    "job_id": "job.id",
    "partition_scheme": "task.partition.scheme",
    "partitioner_check": "task.partitioner.check",
    "error_policy": "task.error.policy",
    "dead_letter_max": "task.dead.letter.max",
    "coordinator_host": "job.coordinator.host",
    "coordinator_client_auth": "job.coordinator.tls.client.auth",
}
"""Fields of `JobConfig` with the text of their key."""

OPTIONAL_TEXTS: Final = {
    "ssp_grouper_factory": "job.systemstreampartition.grouper.factory",
    "task_name_grouper_factory": "task.name.grouper.factory",
    "dead_letter_output": "task.dead.letter.output",
    "local_store_dir": "local.store.dir",
    "location_provider_factory": "locationid.provider.factory",
    "processor_id": "processor.id",
    "consumer_group": "job.consumer.group",
    "coordinator_advertised_host": "job.coordinator.advertised.host",
    "coordinator_secret": "job.coordinator.secret",
    "coordinator_certificate": "job.coordinator.tls.certificate",
    "coordinator_key": "job.coordinator.tls.key",
    "coordinator_ca": "job.coordinator.tls.ca",
    "cluster_manager": "cluster.manager",
    "process_dir": "cluster.process.dir",
    "standalone_rest_url": "cluster.standalone.rest.url",
    "standalone_page_url": "cluster.standalone.page.url",
}
"""The same for keys that may be unset."""

NUMBERS: Final = {
    "elasticity_factor": "job.elasticity.factor",
    "dead_letter_window": "task.dead.letter.window",
    "transaction_max_ms": "task.transaction.max.ms",
    "transaction_max_bytes": "task.transaction.max.bytes",
    "transaction_timeout_ms": "task.transaction.timeout.ms",
    "batch_offsets_max": "task.batch.offsets.max",
    "batch_max_ms": "task.batch.max.ms",
    "batch_interval_ms": "task.batch.interval.ms",
    "tail_ms": "task.tail.ms",
    "tail_lag_max": "task.tail.lag.max",
    "timer_resolution_ms": "task.timer.resolution.ms",
    "event_time_idle_ms": "task.event.time.idle.ms",
    "event_time_ahead_max_ms": "task.event.time.ahead.max.ms",
    "window_ms": WINDOW_KEY,
    "hang_timeout_ms": "task.hang.timeout.ms",
    "query_retry_ms": "task.query.retry.ms",
    "coordinator_port": "job.coordinator.port",
    "topic_check_ms": "job.coordinator.topic.check.ms",
    "partition_monitor_ms": "job.coordinator.monitor-partition-change.frequency.ms",
    "expansion_settle_ms": "job.expansion.settle.ms",
    "coordinator_transaction_timeout_ms": "job.coordinator.transaction.timeout.ms",
    "election_session_ms": "job.coordinator.election.session.ms",
    "election_heartbeat_ms": "job.coordinator.election.heartbeat.ms",
    "heartbeat_ms": "job.container.heartbeat.ms",
    "progress_log_ms": "job.container.progress.log.ms",
    "lease_ms": "job.container.lease.ms",
    "grace_ms": "job.container.grace.ms",
    "lost_ms": "job.container.lost.ms",
    "debounce_ms": "job.debounce.time.ms",
    "processor_grace_ms": "job.processor.grace.ms",
    "release_timeout_ms": "job.release.timeout.ms",
    "placement_expiry_ms": "job.placement.expiry.ms",
    "placement_retention_ms": "job.placement.retention.ms",
    "placement_uuids_max": "job.placement.uuids.max",
    "placement_tries_max": "job.placement.tries.max",
    "container_count": COUNT_KEY,
    "container_request_timeout_ms": "cluster-manager.container.request.timeout.ms",
    "container_retry_count": "cluster-manager.container.retry.count",
    "container_retry_window_ms": "cluster-manager.container.retry.window.ms",
    "drain_ms": "job.shutdown.drain.ms",
    "container_memory_mib": "cluster-manager.container.memory.mb",
    "container_cores": "cluster-manager.container.cpu.cores",
}
"""Fields of `JobConfig` with the whole number of their key."""

FLAGS: Final = {
    "colocates_buckets": "job.elasticity.colocate",
    "is_coordinator_insecure": "job.coordinator.insecure",
    "are_signatures_required": "job.placement.signature.required",
    "has_host_affinity": "job.host-affinity.enabled",
    "fails_job_after_retries": "cluster-manager.container.fail.job.after.retries",
}
"""Fields of `JobConfig` that are true if their key is `true`."""


def parse_config(properties: Mapping[str, Text]) -> JobConfig:
    """Check `properties` and make the typed configuration.

    Everything that is wrong is told at once, one line for each. Values are held against each other only where each is
    of its kind.

    Raises:
        UnknownConfigKeyError: there is an unknown key and no other problem; names the nearest known key, or
            its replacement.
        ConfigError: a missing, malformed or contradictory value, or one of an environment variable that is not set;
            names the key, and the wanted and the actual value.
    """
    problems = Problems()
    for key in sorted(properties):
        problems.of(check_known, key)
    unknown = len(problems)
    for key in sorted(properties):
        problems.of(check_filled, key, properties[key])
    given = {key: SECRET if is_secret(key) else revealed(text) for key, text in properties.items()}
    for key in sorted(properties):
        spec, text = spec_of(key), hidden(key, properties[key])
        # A secret has no form that could be wrong.
        if spec is not None and "<" in spec.name and isinstance(text, str):
            problems.of(check_value, spec, key, text)
    for spec in KEYS:
        # Of these an empty one is the default.
        if "<" not in spec.name:
            problems.of(value_of, spec, given)
    if len(problems) > unknown:
        # The other checks need a value of the right kind.
        problems.raise_all()
    with problems.of_block():
        # A key that nothing reads declares nothing either, for instance a store.
        config = parse_recorded({key: text for key, text in properties.items() if spec_of(key) is not None})
        for check in CHECKS:
            problems.of(check, config)
    problems.raise_all()
    return config


def parse_recorded(properties: Mapping[str, Text]) -> JobConfig:
    """The typed configuration of `recorded_properties`.

    They were checked at submission.

    A key that belongs to one process has its default, and a secret is `SECRET`.

    Raises:
        ConfigError: a required value is missing, or one is malformed.
    """
    given = {key: hidden(key, properties[key]) for key in sorted(properties)}
    shown = {key: SECRET if isinstance(text, Secret) else text for key, text in given.items()}
    secrets = {key: text for key, text in given.items() if isinstance(text, Secret)}
    return _typed({key.name: value_of(key, shown) for key in KEYS if "<" not in key.name}, shown, secrets)


def _typed(
    values: Mapping[str, str | None], properties: Mapping[str, str], secrets: Mapping[str, Secret]
) -> JobConfig:
    """Build the configuration.

    Fields of the tables come first, then the fields that need a parser, then qualified streams.
    """

    def text(key: str) -> str:
        value = values[key]
        assert value is not None, key
        return value

    replication = values["job.coordinator.replication.factor"]
    fields: dict[str, Any] = {
        **{name: text(key) for name, key in TEXTS.items()},
        **{name: values[key] for name, key in OPTIONAL_TEXTS.items()},
        **{name: int(text(key)) for name, key in NUMBERS.items()},
        **{name: text(key) == "true" for name, key in FLAGS.items()},
    }
    config = JobConfig(
        **fields,
        properties=properties,
        secrets=secrets,
        inputs=(),
        input_patterns=(),
        inputs_named=(),
        broadcast_inputs=(),
        replication_factor=None if replication is None else int(replication),
        accepted_losses=tuple(accepted_loss(item) for item in items_of(text("task.lost.range.accept"))),
        process_hosts=host_slots_of(items_of(text("cluster.process.hosts"))),
        coordinator_allowed_hosts=tuple(items_of(text("job.coordinator.allowed.hosts"))),
        stores=stores_of(properties),
        dropped_stores=dropped_stores_of(properties),
    )
    inputs = tuple(config.qualified(item) for item in input_items(text("task.inputs")))
    # The submitted value. `task.inputs` has the topics that its patterns match.
    submitted = tuple(config.qualified(item) for item in input_items(text("task.inputs.patterns"))) or inputs
    dead_letter = config.dead_letter_output
    return replace(
        config,
        inputs=inputs,
        input_patterns=tuple(item for item in submitted if is_pattern(item)),
        inputs_named=tuple(item for item in submitted if not is_pattern(item)),
        broadcast_inputs=broadcast_inputs_of(items_of(text("task.broadcast.inputs")), config.qualified),
        intermediates=intermediates_of(properties, config.job, config.default_system),
        dead_letter_output=None if dead_letter is None else config.qualified(dead_letter),
    )
