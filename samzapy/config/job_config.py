"""`JobConfig`: a job's configuration as a checked, typed value.

Made by `config.parsing` and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from samzapy.config.lookup import PATTERN_SIGN, stream_setting_keys
from samzapy.config.secrets import Secret, Text
from samzapy.config.values import AcceptedLoss, BroadcastInput, HostSlots, IntermediateStream, StoreConfig
from samzapy.errors import ConfigError

MESSAGE_BYTES_MAX: Final = 1_048_588
"""The largest batch, and so the largest record, that a topic takes by default; librdkafka's own limit is lower."""
BATCH_BYTES: Final = 1_000_000
"""The largest batch of several records that a producer sends, before compression; below a topic's limit."""
FRAME_BYTES: Final = 1_024
"""A generous bound for the own fields of a record and its batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """A checked configuration.

    `properties` holds every key that was set, as text. It may be shown to any reader: a secret is `***` there, and its
    text is in `secrets`.

    Times are in milliseconds, sizes in bytes. `inputs` are `system.stream` texts in the order of task.inputs. Patterns
    (`input_patterns`) are among them until `plan.input_patterns` has replaced them by the streams that match.
    `inputs_named` are the inputs that are configured by name. `broadcast_inputs` are ordered by stream, each once;
    `intermediates` by name. Grouper factories are `module:Class` texts.
    """

    properties: Mapping[str, str] = field(repr=False)
    secrets: Mapping[str, Secret] = field(repr=False)
    job_name: str
    job_id: str
    default_system: str
    inputs: tuple[str, ...]
    input_patterns: tuple[str, ...]
    inputs_named: tuple[str, ...]
    broadcast_inputs: tuple[BroadcastInput, ...]
    partition_scheme: str
    partitioner_check: str
    elasticity_factor: int
    colocates_buckets: bool
    ssp_grouper_factory: str | None
    task_name_grouper_factory: str | None
    error_policy: str
    dead_letter_output: str | None
    dead_letter_max: str
    dead_letter_window: int
    transaction_max_ms: int
    transaction_max_bytes: int
    transaction_timeout_ms: int
    batch_offsets_max: int
    batch_max_ms: int
    batch_interval_ms: int
    tail_ms: int
    tail_lag_max: int
    timer_resolution_ms: int
    event_time_idle_ms: int
    event_time_ahead_max_ms: int
    window_ms: int
    hang_timeout_ms: int
    query_retry_ms: int
    accepted_losses: tuple[AcceptedLoss, ...]
    local_store_dir: str | None
    location_provider_factory: str | None
    processor_id: str | None
    coordinator_host: str
    coordinator_advertised_host: str | None
    coordinator_secret: str | None
    coordinator_certificate: str | None
    coordinator_key: str | None
    coordinator_ca: str | None
    coordinator_client_auth: str
    is_coordinator_insecure: bool
    coordinator_allowed_hosts: tuple[str, ...]
    coordinator_port: int
    consumer_group: str | None
    replication_factor: int | None
    topic_check_ms: int
    partition_monitor_ms: int
    expansion_settle_ms: int
    coordinator_transaction_timeout_ms: int
    election_session_ms: int
    election_heartbeat_ms: int
    heartbeat_ms: int
    progress_log_ms: int
    lease_ms: int
    grace_ms: int
    lost_ms: int
    debounce_ms: int
    processor_grace_ms: int
    release_timeout_ms: int
    are_signatures_required: bool
    placement_expiry_ms: int
    placement_retention_ms: int
    placement_uuids_max: int
    placement_tries_max: int
    container_count: int
    has_host_affinity: bool
    container_request_timeout_ms: int
    container_retry_count: int
    container_retry_window_ms: int
    fails_job_after_retries: bool
    cluster_manager: str | None
    process_hosts: tuple[HostSlots, ...]
    process_dir: str | None
    drain_ms: int
    container_memory_mib: int
    container_cores: int
    standalone_rest_url: str | None
    standalone_page_url: str | None
    stores: tuple[StoreConfig, ...] = field(default=())
    dropped_stores: tuple[str, ...] = field(default=())
    intermediates: tuple[IntermediateStream, ...] = field(default=())

    @property
    def job(self) -> str:
        """`<job.name>-<job.id>`, the name that topics and transactional ids carry."""
        return f"{self.job_name}-{self.job_id}"

    @property
    def answers_ms(self) -> int:
        """So long after a look at its stream a leader answers.

        Without one for a session another may be elected.
        """
        return min(self.lease_ms, self.election_session_ms)

    @property
    def lag_group(self) -> str | None:
        """The consumer group to which positions are committed; None for none."""
        group = self.consumer_group or f"samzapy-{self.job}"
        return None if group == "off" else group

    @property
    def streams_divided(self) -> tuple[str, ...]:
        """The streams whose partitions are divided among the tasks.

        The inputs come first, in their order, then the intermediate streams.
        """
        return (*self.inputs, *(item.system_stream for item in self.intermediates))

    @property
    def streams_read(self) -> tuple[str, ...]:
        """Every stream whose partitions a plan must know.

        The divided streams come first, then the broadcast streams.
        """
        return (*self.streams_divided, *(item.system_stream for item in self.broadcast_inputs))

    def intermediate_of(self, system_stream: str) -> IntermediateStream | None:
        """The intermediate stream that has this topic; None for a stream that is none."""
        return next((item for item in self.intermediates if item.system_stream == system_stream), None)

    @property
    def grouping(self) -> str:
        """The job's own grouper, or the scheme: the text that a plan records."""
        return self.ssp_grouper_factory or self.partition_scheme

    def bootstrap_servers(self, system: str) -> str:
        """Addresses of `system`. Raises ConfigError when it has none."""
        servers = self.properties.get(f"systems.{system}.bootstrap.servers")
        if not servers:
            raise ConfigError(
                f"wanted systems.{system}.bootstrap.servers (host:port of the Kafka cluster), found nothing; "
                f"add it to the properties file or pass --set systems.{system}.bootstrap.servers=host:port"
            )
        return servers

    def client_properties(self, system: str) -> Mapping[str, Text]:
        """The properties `systems.<system>.client.*` for the Kafka clients."""
        prefix = f"systems.{system}.client."
        return {
            key.removeprefix(prefix): self.secrets.get(key, self.properties[key])
            for key in sorted(self.properties)
            if key.startswith(prefix)
        }

    @property
    def dead_letter_limit(self) -> int:
        """How many dead letters among `dead_letter_window` messages of a task end the job."""
        if not self.dead_letter_max.endswith("%"):
            return int(self.dead_letter_max)
        return max(1, -(-int(self.dead_letter_max[:-1]) * self.dead_letter_window // 100))

    @property
    def record_bytes_max(self) -> int:
        """The largest record that may be sent: key, value and headers together."""
        return max(0, self._client_number("message.max.bytes", MESSAGE_BYTES_MAX) - FRAME_BYTES)

    @property
    def batch_bytes(self) -> int:
        """The largest batch of several records that producers send."""
        return self._client_number("batch.size", BATCH_BYTES)

    def _client_number(self, name: str, default: int) -> int:
        return int(self.properties.get(f"systems.{self.default_system}.client.{name}", default))

    def offset_default(self, system_stream: str) -> str:
        """Where a partition that was never read begins: `oldest` or `upcoming`."""
        if self.intermediate_of(system_stream) is not None:
            return "oldest"  # These messages are the job's own unfinished work.
        return self._stream_setting(system_stream, "samza.offset.default", "upcoming")

    def resets_offset(self, system_stream: str) -> bool:
        """True if each run of the job starts this stream again."""
        if self.intermediate_of(system_stream) is not None:
            return False
        return self._stream_setting(system_stream, "samza.reset.offset", "false") == "true"

    def is_bounded(self, system_stream: str) -> bool:
        """Whether this stream is read only up to where it ended when the run began."""
        if self.intermediate_of(system_stream) is not None:
            return False  # The run itself goes on writing to it.
        return self._stream_setting(system_stream, "samza.offset.end", "") == "head"

    def is_bootstrap(self, system_stream: str) -> bool:
        """Whether a task reads this stream to its end before its other inputs.

        This concerns a task that starts behind the end of the stream.
        """
        if self.intermediate_of(system_stream) is not None:
            return False
        return self._stream_setting(system_stream, "samza.bootstrap", "false") == "true"

    def priority(self, system_stream: str) -> int:
        """Rows of streams with a larger number come first in a micro-batch."""
        if self.intermediate_of(system_stream) is not None:
            return 0
        return int(self._stream_setting(system_stream, "samza.priority", "0"))

    def input_number(self, system_stream: str) -> int:
        """The place of a stream among the streams that are read, as configured.

        The order is task.broadcast.inputs, the names of task.inputs, its patterns, the intermediate streams.
        """
        broadcast = self.properties.get("task.broadcast.inputs", "").split(",")
        named = [self.qualified(item.partition("#")[0].strip()) for item in broadcast]
        named += self.inputs_named
        if system_stream in named:
            return named.index(system_stream)
        system, _, stream = system_stream.partition(".")
        places = [
            item.startswith(f"{system}.") and re.fullmatch(pattern_of(item), stream) for item in self.input_patterns
        ]
        intermediates = [item.system_stream == system_stream for item in self.intermediates]
        return len(named) + next((number for number, fits in enumerate([*places, *intermediates]) if fits), 0)

    @property
    def is_bounded_job(self) -> bool:
        """Whether every stream that the job reads has an end, so that the job has one too."""
        return all(self.is_bounded(str(stream)) for stream in self.streams_read)

    def key_serde(self, system_stream: str) -> str:
        own = self.intermediate_of(system_stream)
        if own is None:
            return self._stream_setting(system_stream, "samza.key.serde", "bytes")
        return own.key_serde or self._system_setting("samza.key.serde", "bytes")

    def msg_serde(self, system_stream: str) -> str:
        own = self.intermediate_of(system_stream)
        if own is None:
            return self._stream_setting(system_stream, "samza.msg.serde", "bytes")
        return own.msg_serde or self._system_setting("samza.msg.serde", "bytes")

    def qualified(self, stream: str) -> str:
        """`system.stream` of a stream, which may be named without its system.

        `orders` becomes `kafka.orders`.
        """
        system = stream.partition(".")[0]
        known = {key.split(".")[1] for key in self.properties if key.startswith("systems.")} | {self.default_system}
        return stream if "." in stream and system in known else f"{self.default_system}.{stream}"

    def _system_setting(self, setting: str, default: str) -> str:
        return self.properties.get(f"systems.{self.default_system}.{setting}") or default

    def _stream_setting(self, system_stream: str, setting: str, default: str) -> str:
        keys = stream_setting_keys(system_stream, setting, self.properties)
        return next((self.properties[key] for key in keys if self.properties.get(key)), default)


def exposes_coordinator(config: JobConfig) -> bool:
    """Whether other hosts reach the HTTP port without TLS or credentials."""
    is_closed = config.coordinator_certificate is not None and (
        config.coordinator_secret is not None or config.coordinator_client_auth == "required"
    )
    return not is_closed and not is_loopback(config.coordinator_host)


def is_loopback(host: str) -> bool:
    """Whether only processes of this host reach the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_pattern(system_stream: str) -> bool:
    """Whether an item of task.inputs stands for all topics that it matches."""
    return system_stream.partition(".")[2].startswith(PATTERN_SIGN)


def pattern_of(system_stream: str) -> str:
    """The regular expression of a pattern: `orders-.*` for `kafka.~orders-.*`.

    It must match the whole name of a topic.
    """
    return system_stream.partition(".")[2].removeprefix(PATTERN_SIGN)
