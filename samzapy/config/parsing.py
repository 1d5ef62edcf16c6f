"""From properties to a `JobConfig`: each key known, each value of its kind, all of them possible together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from samzapy.config.checks import CHECKS
from samzapy.config.job_config import JobConfig, is_pattern
from samzapy.config.keys import COUNT_KEY, KEYS
from samzapy.config.lookup import check_known, check_value, spec_of, value_of
from samzapy.config.problems import Problems
from samzapy.config.secrets import SECRET, Secret, Text, hidden, is_secret, revealed
from samzapy.config.sources import check_filled
from samzapy.config.values import (
    accepted_loss,
    broadcast_inputs_of,
    host_slots_of,
    input_items,
    intermediates_of,
    items_of,
    stores_of,
)


def parse_config(properties: Mapping[str, Text]) -> JobConfig:
    """Check `properties` and make the typed configuration.

    Everything that is wrong is told at once, one line for each. Values are held against each other only where each is
    of its kind.

    Raises:
        UnknownConfigKeyError: a key that nothing reads, and nothing else; names the nearest known one, or what stands
            in its place.
        ConfigError: a missing, malformed or contradictory value, or one of an environment variable that is not set;
            names the key, what was wanted and found.
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
        # What a value that is none would mean for the others is not known.
        problems.raise_all()
    with problems.of_block():
        # A key that nothing reads declares nothing either, for instance a store.
        config = parse_recorded({key: text for key, text in properties.items() if spec_of(key) is not None})
        for check in CHECKS:
            problems.of(check, config)
    problems.raise_all()
    return config


def parse_recorded(properties: Mapping[str, Text]) -> JobConfig:
    """The typed configuration of `recorded_properties`, which were checked when they were handed in.

    What belongs to one process has its default, and a secret is `SECRET`.

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
    def text(key: str) -> str:
        value = values[key]
        assert value is not None, key
        return value

    def number(key: str) -> int:
        return int(text(key))

    def optional_number(key: str) -> int | None:
        value = values[key]
        return None if value is None else int(value)

    default_system = text("job.default.system")
    config = JobConfig(
        properties=properties,
        secrets=secrets,
        job_name=text("job.name"),
        job_id=text("job.id"),
        default_system=default_system,
        inputs=(),
        input_patterns=(),
        inputs_named=(),
        broadcast_inputs=(),
        partition_scheme=text("task.partition.scheme"),
        partitioner_check=text("task.partitioner.check"),
        elasticity_factor=number("job.elasticity.factor"),
        colocates_buckets=text("job.elasticity.colocate") == "true",
        ssp_grouper_factory=values["job.systemstreampartition.grouper.factory"],
        task_name_grouper_factory=values["task.name.grouper.factory"],
        error_policy=text("task.error.policy"),
        dead_letter_output=values["task.dead.letter.output"],
        dead_letter_max=text("task.dead.letter.max"),
        dead_letter_window=number("task.dead.letter.window"),
        transaction_max_ms=number("task.transaction.max.ms"),
        transaction_max_bytes=number("task.transaction.max.bytes"),
        transaction_timeout_ms=number("task.transaction.timeout.ms"),
        batch_offsets_max=number("task.batch.offsets.max"),
        batch_max_ms=number("task.batch.max.ms"),
        batch_interval_ms=number("task.batch.interval.ms"),
        hang_timeout_ms=number("task.hang.timeout.ms"),
        query_retry_ms=number("task.query.retry.ms"),
        accepted_losses=tuple(accepted_loss(item) for item in items_of(text("task.lost.range.accept"))),
        local_store_dir=values["local.store.dir"],
        location_provider_factory=values["locationid.provider.factory"],
        processor_id=values["processor.id"],
        coordinator_host=text("job.coordinator.host"),
        coordinator_advertised_host=values["job.coordinator.advertised.host"],
        coordinator_port=number("job.coordinator.port"),
        replication_factor=optional_number("job.coordinator.replication.factor"),
        topic_check_ms=number("job.coordinator.topic.check.ms"),
        partition_monitor_ms=number("job.coordinator.monitor-partition-change.frequency.ms"),
        expansion_settle_ms=number("job.expansion.settle.ms"),
        coordinator_transaction_timeout_ms=number("job.coordinator.transaction.timeout.ms"),
        election_session_ms=number("job.coordinator.election.session.ms"),
        election_heartbeat_ms=number("job.coordinator.election.heartbeat.ms"),
        heartbeat_ms=number("job.container.heartbeat.ms"),
        lease_ms=number("job.container.lease.ms"),
        grace_ms=number("job.container.grace.ms"),
        lost_ms=number("job.container.lost.ms"),
        debounce_ms=number("job.debounce.time.ms"),
        processor_grace_ms=number("job.processor.grace.ms"),
        release_timeout_ms=number("job.release.timeout.ms"),
        placement_expiry_ms=number("job.placement.expiry.ms"),
        placement_retention_ms=number("job.placement.retention.ms"),
        placement_uuids_max=number("job.placement.uuids.max"),
        placement_tries_max=number("job.placement.tries.max"),
        container_count=number(COUNT_KEY),
        has_host_affinity=text("job.host-affinity.enabled") == "true",
        container_request_timeout_ms=number("cluster-manager.container.request.timeout.ms"),
        container_retry_count=number("cluster-manager.container.retry.count"),
        container_retry_window_ms=number("cluster-manager.container.retry.window.ms"),
        fails_job_after_retries=text("cluster-manager.container.fail.job.after.retries") == "true",
        cluster_manager=values["cluster.manager"],
        process_hosts=host_slots_of(items_of(text("cluster.process.hosts"))),
        process_dir=values["cluster.process.dir"],
        drain_ms=number("job.shutdown.drain.ms"),
        container_memory_mib=number("cluster-manager.container.memory.mb"),
        container_cores=number("cluster-manager.container.cpu.cores"),
        standalone_rest_url=values["cluster.standalone.rest.url"],
        standalone_page_url=values["cluster.standalone.page.url"],
        stores=stores_of(properties),
    )
    inputs = tuple(config.qualified(item) for item in input_items(text("task.inputs")))
    # As it was handed in; what its patterns match stands in task.inputs then.
    asked = tuple(config.qualified(item) for item in input_items(text("task.inputs.patterns"))) or inputs
    dead_letter = config.dead_letter_output
    return replace(
        config,
        inputs=inputs,
        input_patterns=tuple(item for item in asked if is_pattern(item)),
        inputs_named=tuple(item for item in asked if not is_pattern(item)),
        broadcast_inputs=broadcast_inputs_of(items_of(text("task.broadcast.inputs")), config.qualified),
        intermediates=intermediates_of(properties, config.job, default_system),
        dead_letter_output=None if dead_letter is None else config.qualified(dead_letter),
    )
