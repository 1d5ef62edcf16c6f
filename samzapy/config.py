"""The job's configuration: Samza's dotted keys, read once into a typed value; unknown keys are refused.

`KEYS` is the only list of keys there is: type, default and meaning of each. A key with `<name>` in it is a
family (`stores.<name>.msg.serde`). Values come from (rising strength) the default, the properties file, the
environment (`SAMZAPY_SET_JOB_NAME` for `job.name`) and `--set key=value`; `read_properties` and `merge` say how.
Keys that begin with `spark.` belong to spark-submit and are refused here by name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from samzapy.errors import ConfigError, UnknownConfigKeyError

SERDES: Final = ("bytes", "string", "json")
ALL_SSPS_TO_SINGLE_TASK: Final = "all-ssps-to-single-task"
PARTITION_SCHEMES: Final = ("max", "cogroup", "group-by-partition", "group-by-ssp", ALL_SSPS_TO_SINGLE_TASK)
REQUIRED: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One documented key. `default` is text as it would stand in a file, None (unset) or `REQUIRED`.

    `least` and `most` bound a number. `of_process`: may differ between the processes of a job, so it is no part of
    what the job records.
    """

    name: str
    meaning: str
    default: object = None
    kind: str = "text"
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = 2**63 - 1
    of_process: bool = False


KEYS: Final[tuple[ConfigKey, ...]] = (
    ConfigKey(name="job.name", default=REQUIRED, kind="name", meaning="Name of the job."),
    ConfigKey(name="job.id", default="1", kind="id", meaning="Tells jobs of one name apart; no dashes."),
    ConfigKey(name="job.default.system", default="kafka", kind="id", meaning="System of streams named without one."),
    ConfigKey(
        name="task.inputs",
        default=REQUIRED,
        kind="list",
        meaning="Input streams, `kafka.orders, kafka.refunds`. A name that begins with `~` is a pattern, "
        "`kafka.~orders-.*`: every topic whose whole name matches when the job is handed in.",
    ),
    ConfigKey(
        name="task.inputs.patterns",
        kind="list",
        default="",
        meaning="Written by samzapy, not to be set: the patterns of task.inputs, beside the names that they matched.",
    ),
    ConfigKey(
        name="task.partition.scheme",
        default="max",
        choices=PARTITION_SCHEMES,
        meaning="How partitions become tasks. `max` and `group-by-ssp`: a task for each partition of each input. "
        "`group-by-partition`: a task for each partition number. `cogroup`: as many tasks as the greatest common "
        "divisor of the inputs' partition counts, so that a key of several inputs is in one task. "
        "`all-ssps-to-single-task`: a task for each processor, which reads everything.",
    ),
    ConfigKey(
        name="task.broadcast.inputs",
        kind="list",
        default="",
        meaning="Streams of which every task reads every message: `kafka.rules#0`, `kafka.rules#[0-3]`, "
        "or all partitions, `kafka.rules`.",
    ),
    ConfigKey(
        name="job.systemstreampartition.grouper.factory",
        kind="factory",
        meaning="The job's own way from partitions to tasks, `module:Class` of a module beside the job file; "
        "instead of task.partition.scheme.",
    ),
    ConfigKey(
        name="task.name.grouper.factory",
        kind="factory",
        meaning="The job's own way from tasks to processors, `module:Class` of a module beside the job file.",
    ),
    ConfigKey(
        name="task.error.policy",
        default="fail",
        choices=("fail", "dead-letter"),
        meaning="What becomes of a message that the task or a serde refuses: the job stops by name, or a dead letter.",
    ),
    ConfigKey(name="task.dead.letter.output", meaning="Stream that takes refused messages under policy dead-letter."),
    ConfigKey(
        name="task.transaction.max.ms",
        default="5000",
        kind="ms",
        least=1,
        meaning="A transaction is closed after this time; at most half of task.transaction.timeout.ms.",
    ),
    ConfigKey(
        name="task.transaction.max.bytes",
        default="16777216",
        kind="bytes",
        least=1,
        meaning="A transaction is closed when it holds this much of outputs and store writes.",
    ),
    ConfigKey(
        name="task.transaction.timeout.ms",
        default="20000",
        kind="ms",
        least=1,
        meaning="The broker ends a transaction that is open for longer.",
    ),
    ConfigKey(
        name="task.batch.offsets.max",
        default="200000",
        kind="count",
        least=1,
        meaning="At most so many offsets are read in one micro-batch, over all partitions.",
    ),
    ConfigKey(
        name="task.batch.interval.ms",
        default="0",
        kind="ms",
        meaning="Shortest time between the starts of two micro-batches; 0: as fast as possible.",
    ),
    ConfigKey(
        name="task.hang.timeout.ms",
        default="600000",
        kind="ms",
        meaning="A micro-batch that commits nothing for so long ends the container by name.",
    ),
    ConfigKey(
        name="task.lost.range.accept",
        kind="list",
        default="",
        meaning="The operator's word that named input ranges are given up, `kafka.orders.3:0/1@100-250`.",
    ),
    ConfigKey(
        name="locationid.provider.factory",
        kind="factory",
        meaning="The job's own word for where a processor is (host and fault domain), `module:Class` of a module "
        "beside the job file; default: the host's name.",
    ),
    ConfigKey(
        name="local.store.dir",
        of_process=True,
        meaning="Directory of local state; kept over restarts, shared by the processors of a host.",
    ),
    ConfigKey(
        name="processor.id",
        of_process=True,
        kind="id",
        meaning="Logical id of this processor, unlike that of any other of the job; default: one kept in "
        "local.store.dir, or a new one at each start where there is no such directory.",
    ),
    ConfigKey(
        name="job.coordinator.host",
        of_process=True,
        default="127.0.0.1",
        meaning="Address the coordinator's HTTP server binds to; 0.0.0.0 for a job on several hosts.",
    ),
    ConfigKey(
        name="job.coordinator.advertised.host",
        of_process=True,
        meaning="Name or address under which other hosts reach job.coordinator.host; default: the same, and this "
        "host's name where that is 0.0.0.0.",
    ),
    ConfigKey(
        name="job.coordinator.port",
        of_process=True,
        default="0",
        kind="count",
        most=65535,
        meaning="Port of the coordinator's HTTP server; 0: any free one.",
    ),
    ConfigKey(
        name="job.coordinator.topic.check.ms",
        default="60000",
        kind="ms",
        least=1000,
        meaning="How often the leader looks whether the job's topics are as they must be (docs/doctor.md).",
    ),
    ConfigKey(
        name="job.coordinator.replication.factor",
        kind="count",
        least=1,
        meaning="Replicas of samzapy's own topics; default min(3, brokers).",
    ),
    ConfigKey(
        name="job.coordinator.transaction.timeout.ms",
        default="10000",
        kind="ms",
        least=1,
        meaning="Transaction timeout of the coordinator.",
    ),
    ConfigKey(
        name="job.coordinator.election.session.ms",
        default="6000",
        kind="ms",
        least=1,
        meaning="A leader that Kafka heard nothing of for so long is replaced by another candidate, and answers nobody "
        "after so long without a look at its stream; brokers refuse less than their group.min.session.timeout.ms.",
    ),
    ConfigKey(
        name="job.coordinator.election.heartbeat.ms",
        default="500",
        kind="ms",
        least=1,
        meaning="How often a candidate shows Kafka that it lives; at most a third of the session.",
    ),
    ConfigKey(
        name="job.container.heartbeat.ms",
        default="1000",
        kind="ms",
        least=1,
        meaning="Time between heartbeats of a container.",
    ),
    ConfigKey(
        name="job.container.lease.ms",
        default="15000",
        kind="ms",
        meaning="A container works for so long after it sent the last heartbeat that was answered `alive`; longer "
        "than an election takes, so that a new leader finds it at work.",
    ),
    ConfigKey(
        name="job.container.grace.ms",
        default="600000",
        kind="ms",
        meaning="A container whose lease ran out waits so long for a coordinator, working nothing, and then ends.",
    ),
    ConfigKey(
        name="job.container.lost.ms",
        default="20000",
        kind="ms",
        meaning="A container that sent no heartbeat for so long is given up; longer than the lease plus clock drift.",
    ),
    ConfigKey(
        name="job.debounce.time.ms",
        default="20000",
        kind="ms",
        meaning="Processors that join a running job are planned for together, so long after the first of them came.",
    ),
    ConfigKey(
        name="job.processor.grace.ms",
        default="20000",
        kind="ms",
        meaning="A processor whose container is gone, stopped or lost, keeps its tasks so long; back within it, it "
        "goes on with them.",
    ),
    ConfigKey(
        name="job.release.timeout.ms",
        default="60000",
        kind="ms",
        least=1,
        meaning="A container that does not let go of a task for so long after a plan took it away is given up as a "
        "whole; longer than job.shutdown.drain.ms and a restart of the query take.",
    ),
    ConfigKey(
        name="job.shutdown.drain.ms",
        default="6000",
        kind="ms",
        meaning="Time a running micro-batch has to finish when the job is stopped.",
    ),
    ConfigKey(
        name="systems.<system>.bootstrap.servers",
        meaning="Addresses of the Kafka cluster, `host:port,host:port`.",
    ),
    ConfigKey(
        name="systems.<system>.samza.offset.default",
        default="upcoming",
        choices=("oldest", "upcoming"),
        meaning="Where a partition that was never read before is begun.",
    ),
    ConfigKey(
        name="systems.<system>.samza.offset.end",
        choices=("head",),
        meaning="head: streams are read up to where they ended when the run began, and a job all of whose inputs have "
        "such an end ends by itself, with exit code 0, when it has read them; unset: they are read for ever.",
    ),
    ConfigKey(
        name="systems.<system>.samza.key.serde",
        default="bytes",
        choices=SERDES,
        meaning="Serde of message keys.",
    ),
    ConfigKey(
        name="systems.<system>.samza.msg.serde",
        default="bytes",
        choices=SERDES,
        meaning="Serde of message values.",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.key.serde",
        choices=SERDES,
        meaning="Serde of one stream's keys; the system's otherwise.",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.msg.serde",
        choices=SERDES,
        meaning="Serde of one stream's values; the system's otherwise.",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.offset.default",
        choices=("oldest", "upcoming"),
        meaning="Where this stream is begun; the system's otherwise. As in all keys of a stream, `~orders-.*` in place "
        "of the name stands for every stream it matches.",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.offset.end",
        choices=("head",),
        meaning="Where this stream is read to; the system's otherwise.",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.reset.offset",
        choices=("true", "false"),
        default="false",
        meaning="true: each run of the job begins this stream where samza.offset.default says, whatever was read. "
        "A run begins when the job is started after all its processors were stopped; a crash continues it.",
    ),
    ConfigKey(
        name="systems.<system>.client.<property>",
        meaning="A property of librdkafka (security.protocol); what Spark's source gets of it: docs/kafka-clients.md.",
    ),
    ConfigKey(
        name="stores.<name>.msg.serde",
        default="bytes",
        choices=SERDES,
        meaning="Serde of the store's values.",
    ),
    ConfigKey(
        name="stores.<name>.key.serde",
        default="string",
        choices=("string", "bytes"),
        meaning="Serde of the store's sub-keys.",
    ),
    ConfigKey(
        name="stores.<name>.changelog.replication.factor",
        kind="count",
        meaning="Replicas of the store's changelog topic.",
    ),
    ConfigKey(
        name="stores.<name>.size.max.bytes",
        default="17179869184",
        kind="bytes",
        meaning="Largest size of a task's local store file; LMDB reserves address space, not disk.",
    ),
)

_KEYS_OF_PROCESS = frozenset(key.name for key in KEYS if key.of_process)
_PLACEHOLDER = re.compile(r"<\w+>")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_ID = re.compile(r"[A-Za-z0-9_]+")
_FACTORY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_NUMBER = r"(?:0|[1-9][0-9]*)"
_PATTERN_SIGN = "~"
# A comma in `orders-[a-z]{2,3}` is the pattern's.
_BETWEEN_INPUTS = re.compile(r",(?![^{}]*\})")
# Six digits: more partitions than any topic has, and few enough to list.
_PARTITION = r"(?:0|[1-9][0-9]{0,5})"
_BROADCAST = re.compile(
    rf"(?P<stream>[^\s#]+)(?:#(?:(?P<one>{_PARTITION})|\[(?P<first>{_PARTITION})-(?P<last>{_PARTITION})\]))?"
)
MESSAGE_BYTES_MAX: Final = 1_048_588
"""The largest batch, and so the largest record, that a topic takes by default; librdkafka's own limit is lower."""
BATCH_BYTES: Final = 1_000_000
"""The largest batch of several records that a producer sends, before it is compressed; below what a topic takes."""
FRAME_BYTES: Final = 1_024
"""What a record's and a batch's own fields may take of that, generously."""
# Passed on to clients and refused here: settings on which ownership, order or exactly-once rest.
CLIENT_PROPERTIES_REFUSED: Final = (
    "transactional.id",
    "enable.idempotence",
    "isolation.level",
    "enable.auto.commit",
    "group.id",
    "group.instance.id",
    "auto.offset.reset",
    "acks",
    "request.required.acks",
    "transaction.timeout.ms",
    "partitioner",
    # How a transaction is known to have ended but once (`stream.end_txn_plug`).
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "statistics.interval.ms",
    "bootstrap.servers",
    "metadata.broker.list",
    "allow.auto.create.topics",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """A keyed store. Serdes are names from `SERDES`."""

    name: str
    msg_serde: str
    key_serde: str
    replication_factor: int | None
    size_max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastInput:
    """A stream (`system.stream`) that every task reads: the partitions named, in order, or all if None."""

    system_stream: str
    partitions: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLoss:
    """The operator's word: `[offset_from, offset_to)` of `ssp_kb` (text form) is given up."""

    ssp_kb: str
    offset_from: int
    offset_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """A checked configuration. `properties` holds every key that was set, as text, for the record.

    Times are in milliseconds, sizes in bytes. `inputs` are `system.stream` texts in the order of task.inputs;
    patterns (`input_patterns`) stand among them until `plan.input_patterns` has put what they match in their place.
    `broadcast_inputs` are ordered by stream, each once. Grouper factories are `module:Class` texts.
    """

    # Not in `repr`: among them may be a password.
    properties: Mapping[str, str] = field(repr=False)
    job_name: str
    job_id: str
    default_system: str
    inputs: tuple[str, ...]
    input_patterns: tuple[str, ...]
    broadcast_inputs: tuple[BroadcastInput, ...]
    partition_scheme: str
    ssp_grouper_factory: str | None
    task_name_grouper_factory: str | None
    error_policy: str
    dead_letter_output: str | None
    transaction_max_ms: int
    transaction_max_bytes: int
    transaction_timeout_ms: int
    batch_offsets_max: int
    batch_interval_ms: int
    hang_timeout_ms: int
    accepted_losses: tuple[AcceptedLoss, ...]
    local_store_dir: str | None
    location_provider_factory: str | None
    processor_id: str | None
    coordinator_host: str
    coordinator_advertised_host: str | None
    coordinator_port: int
    replication_factor: int | None
    topic_check_ms: int
    coordinator_transaction_timeout_ms: int
    election_session_ms: int
    election_heartbeat_ms: int
    heartbeat_ms: int
    lease_ms: int
    grace_ms: int
    lost_ms: int
    debounce_ms: int
    processor_grace_ms: int
    release_timeout_ms: int
    drain_ms: int
    stores: tuple[StoreConfig, ...] = field(default=())

    @property
    def job(self) -> str:
        """`<job.name>-<job.id>`, the name that topics and transactional ids carry."""
        return f"{self.job_name}-{self.job_id}"

    @property
    def streams_read(self) -> tuple[str, ...]:
        """Every stream whose partitions a plan must know: the inputs in their order, then the broadcast ones."""
        return (*self.inputs, *(item.system_stream for item in self.broadcast_inputs))

    @property
    def grouping(self) -> str:
        """What makes the tasks, in a word for the record: the job's own grouper, or the scheme."""
        return self.ssp_grouper_factory or self.partition_scheme

    def bootstrap_servers(self, system: str) -> str:
        """Addresses of `system`. Raises ConfigError when it has none."""
        found = self.properties.get(f"systems.{system}.bootstrap.servers")
        if not found:
            raise ConfigError(
                f"wanted systems.{system}.bootstrap.servers (host:port of the Kafka cluster), found nothing; "
                f"add it to the properties file or pass --set systems.{system}.bootstrap.servers=host:port"
            )
        return found

    def client_properties(self, system: str) -> Mapping[str, str]:
        """What `systems.<system>.client.*` passes on to the Kafka clients."""
        prefix = f"systems.{system}.client."
        return {
            key.removeprefix(prefix): self.properties[key]
            for key in sorted(self.properties)
            if key.startswith(prefix)
        }

    @property
    def record_bytes_max(self) -> int:
        """The largest record that may be sent: key, value and headers together."""
        limit = self.client_properties(self.default_system).get("message.max.bytes", MESSAGE_BYTES_MAX)
        return max(0, int(limit) - FRAME_BYTES)

    @property
    def batch_bytes(self) -> int:
        """The largest batch of several records that producers send."""
        return int(self.client_properties(self.default_system).get("batch.size", BATCH_BYTES))

    def offset_default(self, system_stream: str) -> str:
        """`oldest` or `upcoming`: where a partition of this stream is begun that was never read before."""
        return self._stream_setting(system_stream, "samza.offset.default", "upcoming")

    def resets_offset(self, system_stream: str) -> bool:
        """Whether each run of the job begins this stream anew."""
        return self._stream_setting(system_stream, "samza.reset.offset", "false") == "true"

    def is_bounded(self, system_stream: str) -> bool:
        """Whether this stream is read only up to where it ended when the run began."""
        return self._stream_setting(system_stream, "samza.offset.end", "") == "head"

    def key_serde(self, system_stream: str) -> str:
        return self._stream_setting(system_stream, "samza.key.serde", "bytes")

    def msg_serde(self, system_stream: str) -> str:
        return self._stream_setting(system_stream, "samza.msg.serde", "bytes")

    def qualified(self, stream: str) -> str:
        """`system.stream` of a stream that may be named without its system (`orders` -> `kafka.orders`)."""
        system = stream.partition(".")[0]
        known = {key.split(".")[1] for key in self.properties if key.startswith("systems.")} | {self.default_system}
        return stream if "." in stream and system in known else f"{self.default_system}.{stream}"

    def _stream_setting(self, system_stream: str, setting: str, default: str) -> str:
        system, _, stream = system_stream.partition(".")
        of_stream = self.properties.get(f"systems.{system}.streams.{stream}.{setting}")
        return (
            of_stream
            or self._pattern_setting(system, stream, setting)
            or self.properties.get(f"systems.{system}.{setting}")
            or default
        )

    def _pattern_setting(self, system: str, stream: str, setting: str) -> str | None:
        """What a key with a pattern in place of the stream says; of several the first in the order of their texts."""
        before, after = f"systems.{system}.streams.{_PATTERN_SIGN}", f".{setting}"
        keys = [key for key in sorted(self.properties) if key.startswith(before) and key.endswith(after)]
        matching = (key for key in keys if re.fullmatch(key.removeprefix(before).removesuffix(after), stream))
        return self.properties.get(next(matching, ""))


def read_properties(text: str, source: str) -> dict[str, str]:
    """Read a Java properties file (`key=value`, `key: value`, `#` and `!` comments, `\\` at a line's end continues).

    Raises:
        ConfigError: a line that is neither, or a key given twice; names `source` and the line.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        matched = re.match(r"([^=:\s]+)\s*[=:\s]\s*(.*)\Z|([^=:\s]+)\Z", line, re.DOTALL)
        if matched is None:
            raise ConfigError(f"{source}:{number}: wanted key=value, found {line!r}")
        key, value = matched.group(1) or matched.group(3), (matched.group(2) or "").strip()
        if key in found:
            raise ConfigError(f"{source}:{number}: {key} stands twice; keep one of the two lines")
        found[key] = value
    return found


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    pending, begun_at = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not pending and (not line or line[0] in "#!"):
            continue
        begun_at = begun_at if pending else number
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending += line[:-1]
            continue
        yield begun_at, pending + line
        pending = ""
    if pending:
        yield begun_at, pending


def merge(*, file: Mapping[str, str], environment: Mapping[str, str], overrides: Iterable[str]) -> dict[str, str]:
    """Join file, environment and `--set key=value` in rising strength.

    The environment names a key in capitals with underscores: SAMZAPY_SET_JOB_NAME for job.name. Only keys without
    a `<name>` part can be given there, since a dot and an underscore look the same.

    Raises:
        ConfigError: an override without `=`, or an environment variable that names no key.
    """
    merged = dict(file)
    by_variable = {f"SAMZAPY_SET_{k.name.replace('.', '_').upper()}": k.name for k in KEYS if "<" not in k.name}
    for variable in sorted(environment):
        if not variable.startswith("SAMZAPY_SET_"):
            continue
        if variable not in by_variable:
            raise UnknownConfigKeyError(f"{variable} names no config key{_nearest(variable, by_variable)}")
        merged[by_variable[variable]] = environment[variable]
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"wanted --set key=value, found --set {override}")
        merged[key.strip()] = value.strip()
    return merged


def parse_config(properties: Mapping[str, str]) -> JobConfig:
    """Check `properties` and make the typed configuration.

    Raises:
        UnknownConfigKeyError: a key that nothing reads; names the nearest known one.
        ConfigError: a missing, malformed or contradictory value; names the key, what was wanted and found.
    """
    for key in sorted(properties):
        _check_known(key)
    for key in sorted(properties):
        spec = _spec_of(key)
        if spec is not None and "<" in spec.name:
            _check_value(spec, key, properties[key])
    config = parse_recorded(properties)
    _check_together(config)
    return config


def parse_recorded(properties: Mapping[str, str]) -> JobConfig:
    """The typed configuration of `recorded_properties`, which were checked when they were handed in.

    What belongs to one process has its default, and a secret is `SECRET`.

    Raises:
        ConfigError: a required value is missing, or one is malformed.
    """
    return _typed({key.name: _value(key, properties) for key in KEYS if "<" not in key.name}, properties)


_OF_INPUTS: Final = ("offset.default", "offset.end", "reset.offset")
_STREAM_KEY = re.compile(r"systems\.(?P<system>[^.]+)\.streams\.(?P<stream>.+?)\.samza\.(?P<setting>[a-z.]+)")

SECRET: Final = "***"
"""What stands in a record, a JobModel or an answer in place of a secret's value."""

_SECRET_NAME = re.compile(r"password|secret|token|sasl\.jaas|ssl\.key", re.IGNORECASE)


def recorded_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The job's part of `properties`, as it may be written down and shown: in key order, a secret's value as `***`.

    What belongs to one process (its id, its directory, where its coordinator listens) is left out.
    """
    return {
        key: SECRET if _SECRET_NAME.search(key) else properties[key]
        for key in sorted(properties)
        if key not in _KEYS_OF_PROCESS
    }


def _typed(values: Mapping[str, str | None], properties: Mapping[str, str]) -> JobConfig:
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
        properties=dict(sorted(properties.items())),
        job_name=text("job.name"),
        job_id=text("job.id"),
        default_system=default_system,
        inputs=(),
        input_patterns=(),
        broadcast_inputs=(),
        partition_scheme=text("task.partition.scheme"),
        ssp_grouper_factory=values["job.systemstreampartition.grouper.factory"],
        task_name_grouper_factory=values["task.name.grouper.factory"],
        error_policy=text("task.error.policy"),
        dead_letter_output=values["task.dead.letter.output"],
        transaction_max_ms=number("task.transaction.max.ms"),
        transaction_max_bytes=number("task.transaction.max.bytes"),
        transaction_timeout_ms=number("task.transaction.timeout.ms"),
        batch_offsets_max=number("task.batch.offsets.max"),
        batch_interval_ms=number("task.batch.interval.ms"),
        hang_timeout_ms=number("task.hang.timeout.ms"),
        accepted_losses=tuple(_accepted_loss(item) for item in _items(text("task.lost.range.accept"))),
        local_store_dir=values["local.store.dir"],
        location_provider_factory=values["locationid.provider.factory"],
        processor_id=values["processor.id"],
        coordinator_host=text("job.coordinator.host"),
        coordinator_advertised_host=values["job.coordinator.advertised.host"],
        coordinator_port=number("job.coordinator.port"),
        replication_factor=optional_number("job.coordinator.replication.factor"),
        topic_check_ms=number("job.coordinator.topic.check.ms"),
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
        drain_ms=number("job.shutdown.drain.ms"),
        stores=_stores(properties),
    )
    inputs = tuple(config.qualified(item) for item in _input_items(text("task.inputs")))
    recorded = (config.qualified(item) for item in _input_items(text("task.inputs.patterns")))
    dead_letter = config.dead_letter_output
    return replace(
        config,
        inputs=inputs,
        input_patterns=(*recorded, *(item for item in inputs if is_pattern(item))),
        broadcast_inputs=_broadcast_inputs(_items(text("task.broadcast.inputs")), config),
        dead_letter_output=None if dead_letter is None else config.qualified(dead_letter),
    )


def _check_together(config: JobConfig) -> None:
    if not config.inputs:
        raise ConfigError("task.inputs: wanted at least one input stream (kafka.orders), found none")
    if config.properties.get("task.inputs.patterns"):
        raise ConfigError(
            "task.inputs.patterns: it is written by samzapy, beside the names that the patterns matched; put the "
            "patterns into task.inputs (kafka.~orders-.*) and remove the line"
        )
    for item in config.input_patterns:
        _compiled("task.inputs", pattern_of(item))
    _check_streams(config)
    if len(set(config.inputs)) != len(config.inputs):
        raise ConfigError(f"task.inputs: wanted each stream once, found {', '.join(config.inputs)}")
    systems = sorted({item.partition(".")[0] for item in config.inputs})
    if len(systems) > 1:
        raise ConfigError(
            f"task.inputs: wanted streams of one cluster, found systems {', '.join(systems)}; "
            "jobs over several clusters are not supported yet"
        )
    if systems != [config.default_system]:
        raise ConfigError(
            f"task.inputs: wanted streams of job.default.system ({config.default_system}), which the job connects to, "
            f"found {', '.join(config.inputs)}; set job.default.system={systems[0]}"
        )
    _check_broadcast(config)
    _check_grouping(config)
    if config.dead_letter_output is not None and not config.dead_letter_output.startswith(
        f"{config.default_system}."
    ):
        raise ConfigError(
            f"task.dead.letter.output: wanted a stream of the inputs' cluster ({config.default_system}), because it is "
            f"written in their transaction; found {config.dead_letter_output}"
        )
    if config.transaction_max_ms * 2 > config.transaction_timeout_ms:
        raise ConfigError(
            f"task.transaction.max.ms: wanted at most half of task.transaction.timeout.ms "
            f"({config.transaction_timeout_ms}), found {config.transaction_max_ms}"
        )
    if config.lost_ms <= config.lease_ms:
        raise ConfigError(
            f"job.container.lost.ms: wanted more than job.container.lease.ms ({config.lease_ms}), "
            f"found {config.lost_ms}; else a container is given up while it may still work"
        )
    if config.heartbeat_ms * 2 > config.lease_ms:
        raise ConfigError(
            f"job.container.heartbeat.ms: wanted at most half of job.container.lease.ms ({config.lease_ms}), "
            f"found {config.heartbeat_ms}"
        )
    if config.election_heartbeat_ms * 3 > config.election_session_ms:
        raise ConfigError(
            f"job.coordinator.election.heartbeat.ms: wanted at most a third of job.coordinator.election.session.ms "
            f"({config.election_session_ms}), found {config.election_heartbeat_ms}; else one late heartbeat ends a term"
        )
    if config.error_policy == "dead-letter" and config.dead_letter_output is None:
        raise ConfigError("task.error.policy=dead-letter: wanted task.dead.letter.output (a stream), found nothing")
    if config.stores and config.local_store_dir is None:
        raise ConfigError(
            "local.store.dir: wanted a directory that is kept over restarts, because the job has stores "
            f"({', '.join(store.name for store in config.stores)}); found nothing"
        )
    client = config.client_properties(config.default_system)
    for name in ("message.max.bytes", "batch.size"):
        if not (client.get(name, "0").isascii() and client.get(name, "0").isdigit()):
            raise ConfigError(
                f"systems.{config.default_system}.client.{name}: wanted bytes (digits only), found {client[name]!r}"
            )
    for name in config.client_properties(config.default_system):
        if name in CLIENT_PROPERTIES_REFUSED:
            raise ConfigError(
                f"systems.{config.default_system}.client.{name}: samzapy sets {name} itself, because exactly-once "
                "or the order of records rests on it; remove the line"
            )


def is_pattern(system_stream: str) -> bool:
    """Whether an item of task.inputs stands for all topics that it matches."""
    return system_stream.partition(".")[2].startswith(_PATTERN_SIGN)


def pattern_of(system_stream: str) -> str:
    """The regular expression of a pattern, `orders-.*` of `kafka.~orders-.*`; topics match it as a whole."""
    return system_stream.partition(".")[2].removeprefix(_PATTERN_SIGN)


def _compiled(key: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"{key}: wanted a regular expression after {_PATTERN_SIGN} (orders-.*), found {pattern!r}: {error}"
        ) from error


def _check_streams(config: JobConfig) -> None:
    """Settings that only an input can have must be of one: with a misspelled stream they would say nothing."""
    for key in config.properties:
        matched = _STREAM_KEY.fullmatch(key)
        if matched is None:
            continue
        stream, named = matched["stream"], f"{matched['system']}.{matched['stream']}"
        if stream.startswith(_PATTERN_SIGN):
            _compiled(key, stream.removeprefix(_PATTERN_SIGN))
        elif matched["setting"] in _OF_INPUTS and not _may_be_read(named, config):
            raise ConfigError(
                f"{key}: wanted a stream of task.inputs or task.broadcast.inputs ({', '.join(config.streams_read)}), "
                f"found {named}, which the job does not read{_nearest(named, config.streams_read)}"
            )


def _may_be_read(system_stream: str, config: JobConfig) -> bool:
    system, _, stream = system_stream.partition(".")
    return system_stream in config.streams_read or any(
        item.startswith(f"{system}.") and re.fullmatch(pattern_of(item), stream) for item in config.input_patterns
    )


def _check_broadcast(config: JobConfig) -> None:
    for item in config.broadcast_inputs:
        if item.system_stream in config.inputs:
            raise ConfigError(
                f"task.broadcast.inputs: {item.system_stream} stands in task.inputs too. The partitions of an input "
                "are divided among the tasks, those of a broadcast input are read by each; take it out of one of them"
            )
        if not item.system_stream.startswith(f"{config.default_system}."):
            raise ConfigError(
                f"task.broadcast.inputs: wanted streams of job.default.system ({config.default_system}), which the job "
                f"connects to, found {item.system_stream}"
            )


def _check_grouping(config: JobConfig) -> None:
    if config.ssp_grouper_factory is not None and config.properties.get("task.partition.scheme"):
        raise ConfigError(
            f"job.systemstreampartition.grouper.factory={config.ssp_grouper_factory}: it makes the tasks instead of "
            "task.partition.scheme, which is set too; remove one of the two lines"
        )
    if config.ssp_grouper_factory is not None or config.partition_scheme != ALL_SSPS_TO_SINGLE_TASK:
        return
    here = f"task.partition.scheme={ALL_SSPS_TO_SINGLE_TASK}"
    if config.broadcast_inputs:
        raise ConfigError(
            f"{here}: each task reads every input, so task.broadcast.inputs says nothing more; "
            "move its streams to task.inputs"
        )
    if config.stores:
        raise ConfigError(
            f"{here}: wanted no stores, found {', '.join(store.name for store in config.stores)}. Tasks come and go "
            "with processors there, and a key's messages are in all of them, so no task keeps a key's state; "
            "choose another scheme"
        )
    if config.processor_id is None and config.local_store_dir is None:
        raise ConfigError(
            f"{here}: wanted processor.id, or local.store.dir where one is kept, found neither. Each processor has its "
            "own task and positions there, so one that comes back under another id would read everything anew; "
            "set one of the two"
        )
    if config.task_name_grouper_factory is not None:
        raise ConfigError(
            f"{here}: each processor has its own task, so task.name.grouper.factory cannot move any; remove the line"
        )


def _broadcast_inputs(items: Iterable[str], config: JobConfig) -> tuple[BroadcastInput, ...]:
    found: dict[str, set[int] | None] = {}
    for item in items:
        matched = _BROADCAST.fullmatch(item)
        if matched is None:
            raise ConfigError(
                "task.broadcast.inputs: wanted a partition (kafka.rules#0), a range (kafka.rules#[0-3]) or a whole "
                f"stream (kafka.rules), found {item!r}"
            )
        stream = config.qualified(matched["stream"])
        partitions = _broadcast_partitions(matched, item)
        before = found.get(stream, set())
        found[stream] = None if partitions is None or before is None else before | partitions
    return tuple(
        BroadcastInput(
            system_stream=stream,
            partitions=None if (partitions := found[stream]) is None else tuple(sorted(partitions)),
        )
        for stream in sorted(found)
    )


def _broadcast_partitions(matched: re.Match[str], item: str) -> set[int] | None:
    if matched["one"] is not None:
        return {int(matched["one"])}
    if matched["first"] is None:
        return None
    first, last = int(matched["first"]), int(matched["last"])
    if first > last:
        raise ConfigError(f"task.broadcast.inputs: wanted a range that begins with its smaller end, found {item!r}")
    return set(range(first, last + 1))


def _stores(properties: Mapping[str, str]) -> tuple[StoreConfig, ...]:
    names = sorted({key.split(".")[1] for key in properties if key.startswith("stores.")})
    return tuple(_store(name, properties) for name in names)


def _store(name: str, properties: Mapping[str, str]) -> StoreConfig:
    if not _ID.fullmatch(name):
        raise ConfigError(f"stores.{name}: wanted a store name of letters, digits and underscores, found {name!r}")

    def setting(rest: str, default: str | None) -> str | None:
        return properties.get(f"stores.{name}.{rest}") or default

    replication = setting("changelog.replication.factor", None)
    return StoreConfig(
        name=name,
        msg_serde=str(setting("msg.serde", "bytes")),
        key_serde=str(setting("key.serde", "string")),
        replication_factor=None if replication is None else int(replication),
        size_max_bytes=int(str(setting("size.max.bytes", "17179869184"))),
    )


def _accepted_loss(item: str) -> AcceptedLoss:
    matched = re.fullmatch(
        rf"([^.\s]+\.\S+\.{_NUMBER}(?::({_NUMBER})/({_NUMBER})|@\S+)?)@({_NUMBER})-({_NUMBER})", item
    )
    if matched is None:
        raise ConfigError(f"task.lost.range.accept: wanted kafka.orders.3:0/1@100-250, found {item!r}")
    ssp_kb, bucket, factor, offset_from, offset_to = matched.groups()
    if int(bucket or 0) >= int(factor or 1) or int(offset_from) >= int(offset_to):
        raise ConfigError(
            f"task.lost.range.accept: wanted a bucket below its factor and an offset before another "
            f"(kafka.orders.3:0/1@100-250), found {item!r}"
        )
    return AcceptedLoss(ssp_kb=ssp_kb, offset_from=int(offset_from), offset_to=int(offset_to))


def _input_items(text: str) -> tuple[str, ...]:
    return tuple(item for item in (part.strip() for part in _BETWEEN_INPUTS.split(text)) if item)


def _items(text: str) -> tuple[str, ...]:
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


def _value(key: ConfigKey, properties: Mapping[str, str]) -> str | None:
    found = properties.get(key.name)
    if found is None or found == "":
        if key.default is REQUIRED:
            raise ConfigError(f"wanted {key.name}, found nothing; {key.meaning}")
        return None if key.default is None else str(key.default)
    _check_value(key, key.name, found)
    return found


def _check_value(spec: ConfigKey, key: str, value: str) -> None:
    if spec.choices and value not in spec.choices:
        raise ConfigError(f"{key}: wanted one of {', '.join(spec.choices)}, found {value!r}")
    if spec.kind in ("ms", "count", "bytes") and not (value.isascii() and value.isdigit()):
        unit = {"ms": "milliseconds", "bytes": "bytes", "count": "a number"}[spec.kind]
        raise ConfigError(f"{key}: wanted {unit} (digits only), found {value!r}")
    if spec.kind in ("ms", "count", "bytes") and not spec.least <= int(value) <= spec.most:
        raise ConfigError(f"{key}: wanted a number from {spec.least} to {spec.most}, found {value}")
    if spec.kind == "name" and not _NAME.fullmatch(value):
        raise ConfigError(f"{key}: wanted letters, digits, dots, dashes or underscores, found {value!r}")
    if spec.kind == "factory" and not _FACTORY.fullmatch(value):
        raise ConfigError(f"{key}: wanted module:Class (groupers:ByCustomer), found {value!r}")
    if spec.kind == "id" and not _ID.fullmatch(value):
        raise ConfigError(f"{key}: wanted letters, digits and underscores (no dashes), found {value!r}")


def _spec_of(key: str) -> ConfigKey | None:
    return next((spec for spec in KEYS if _pattern(spec.name).fullmatch(key)), None)


def _pattern(name: str) -> re.Pattern[str]:
    """`stores.<name>.x` as a pattern. Stream names and client properties may hold dots; other names may not."""
    parts = re.split(r"(<\w+>)", name)
    return re.compile("".join(_part_pattern(part) for part in parts))


def _part_pattern(part: str) -> str:
    if not _PLACEHOLDER.fullmatch(part):
        return re.escape(part)
    return r".+" if part in ("<stream>", "<property>") else r"[^.]+"


def _check_known(key: str) -> None:
    if _spec_of(key) is not None:
        return
    if key.startswith("spark."):
        raise UnknownConfigKeyError(f"{key}: Spark's settings belong to spark-submit; pass --conf {key}=...")
    known = [_PLACEHOLDER.sub("x", spec.name) for spec in KEYS]
    families = {_PLACEHOLDER.sub("x", spec.name): spec.name for spec in KEYS}
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"; did you mean {families[close[0]]}?" if close else "; docs/configuration.md lists all keys"
    raise UnknownConfigKeyError(f"unknown config key {key}{hint}")


def _nearest(found: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(found, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""
