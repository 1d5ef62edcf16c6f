"""Checks that compare several values of a configuration."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from samzapy.config.job_config import JobConfig, exposes_coordinator, is_pattern, pattern_of
from samzapy.config.keys import ALL_SSPS_TO_SINGLE_TASK, CLIENT_PROPERTIES_REFUSED
from samzapy.config.lookup import NOT_A_PATTERN, PATTERN_SIGN, is_matched, is_number, nearest
from samzapy.config.values import OWN_STORES, declares_store
from samzapy.errors import ConfigError

_TOPIC_CHARS_MAX: Final = 249
"""Kafka takes no longer name."""
_TOPIC: Final = re.compile(rf"(?!\.{{1,2}}\Z)[A-Za-z0-9._-]{{1,{_TOPIC_CHARS_MAX}}}")
"""A topic name that Kafka accepts."""
_OF_INPUTS: Final = ("offset.default", "offset.end", "reset.offset", "bootstrap", "priority")
_STREAM_KEY = re.compile(r"systems\.(?P<system>[^.]+)\.streams\.(?P<stream>.+?)\.samza\.(?P<setting>[a-z.]+)")
_PATHS: Final = ("local.store.dir", "cluster.process.dir")
_DEAD_LETTER_MAX: Final = re.compile(r"(?P<number>[1-9][0-9]{0,8})(?P<share>%?)")
_REFERENCE = re.compile(r"(?:file:(?P<path>/.+)|env:(?P<variable>[A-Za-z_][A-Za-z0-9_]*))")
_ADDRESS = re.compile(r"[A-Za-z0-9_.-]+")


def is_topic_name(name: str) -> bool:
    """Whether Kafka accepts the name of a topic."""
    return _TOPIC.fullmatch(name) is not None


def _check_inputs(config: JobConfig) -> None:
    if not config.inputs:
        raise ConfigError("task.inputs: wanted at least one input stream (kafka.orders), found none")
    if config.properties.get("task.inputs.patterns"):
        raise ConfigError(
            "task.inputs.patterns: samzapy writes this key itself, beside the names that the patterns matched; put the "
            "patterns into task.inputs (kafka.~orders-.*) and remove the line"
        )
    for item in config.input_patterns:
        _compiled("task.inputs", pattern_of(item))
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


def _check_dead_letters(config: JobConfig) -> None:
    if config.dead_letter_output is not None and not config.dead_letter_output.startswith(
        f"{config.default_system}."
    ):
        raise ConfigError(
            f"task.dead.letter.output: wanted a stream of the inputs' cluster ({config.default_system}), because it is "
            f"written in their transaction; found {config.dead_letter_output}"
        )
    read = {item.system_stream: "task.broadcast.inputs" for item in config.broadcast_inputs}
    read |= dict.fromkeys(config.inputs, "task.inputs")
    if config.error_policy == "dead-letter" and config.dead_letter_output in read:
        # A message that fails each time would be written and read without end.
        raise ConfigError(
            f"task.dead.letter.output: wanted a stream that the job does not read, found {config.dead_letter_output}, "
            f"which is in {read[config.dead_letter_output]} too. The job would read its own dead letters; name another "
            "stream, or read them under task.error.policy=fail"
        )
    if config.error_policy == "dead-letter" and config.dead_letter_output is None:
        raise ConfigError("task.error.policy=dead-letter: wanted task.dead.letter.output (a stream), found nothing")


def _check_dead_letter_max(config: JobConfig) -> None:
    matched = _DEAD_LETTER_MAX.fullmatch(config.dead_letter_max)
    if matched is None or (matched["share"] and int(matched["number"]) > 100):
        raise ConfigError(
            "task.dead.letter.max: wanted a number of messages from 1 (20) or a share from 1% to 100% (50%), found "
            f"{config.dead_letter_max!r}"
        )
    if not matched["share"] and int(matched["number"]) > config.dead_letter_window:
        raise ConfigError(
            f"task.dead.letter.max: wanted at most task.dead.letter.window ({config.dead_letter_window}), found "
            f"{config.dead_letter_max}, which can never be reached; raise the window, or give a share (100%)"
        )


def _check_transaction_time(config: JobConfig) -> None:
    if config.transaction_max_ms * 2 > config.transaction_timeout_ms:
        raise ConfigError(
            f"task.transaction.max.ms: wanted at most half of task.transaction.timeout.ms "
            f"({config.transaction_timeout_ms}), found {config.transaction_max_ms}"
        )


def _check_lost_time(config: JobConfig) -> None:
    if config.lost_ms <= config.lease_ms:
        raise ConfigError(
            f"job.container.lost.ms: wanted more than job.container.lease.ms ({config.lease_ms}), "
            f"found {config.lost_ms}; else a container is declared lost while it may still work"
        )


def _check_heartbeat_time(config: JobConfig) -> None:
    if config.heartbeat_ms * 2 > config.lease_ms:
        raise ConfigError(
            f"job.container.heartbeat.ms: wanted at most half of job.container.lease.ms ({config.lease_ms}), "
            f"found {config.heartbeat_ms}"
        )


def _check_election_time(config: JobConfig) -> None:
    if config.election_heartbeat_ms * 3 > config.election_session_ms:
        raise ConfigError(
            f"job.coordinator.election.heartbeat.ms: wanted at most a third of job.coordinator.election.session.ms "
            f"({config.election_session_ms}), found {config.election_heartbeat_ms}; else one late heartbeat ends a term"
        )


_NAME_SERDES: Final = ("string", "bytes")


def _check_store_names(config: JobConfig) -> None:
    for store in config.stores:
        if store.name.startswith("_") and OWN_STORES.get(store.name) != store.kind:
            raise ConfigError(
                f"stores.{store.name}: wanted a store whose name does not begin with _, because such names are "
                "samzapy's own, found this one; give the store another name, or leave its lines out"
            )


def _check_stores(config: JobConfig) -> None:
    if config.stores and config.local_store_dir is None:
        raise ConfigError(
            "local.store.dir: wanted a directory that is kept over restarts, because the job has stores "
            f"({', '.join(store.name for store in config.stores)}); found nothing"
        )
    for name in config.dropped_stores:
        others = sorted(key for key in config.properties if declares_store(key) and key.split(".")[1] == name)
        if others:
            raise ConfigError(
                f"stores.{name}.drop=true: wanted no other line of the store, and no declaration in the task, found "
                f"{', '.join(others)}; leave the one or the other out"
            )
    for store in config.stores:
        if not store.is_ordered and store.key_serde not in _NAME_SERDES:
            raise ConfigError(
                f"stores.{store.name}.key.serde: wanted {' or '.join(_NAME_SERDES)}, found {store.key_serde}; other "
                "sub-keys need a map, which a task class declares"
            )
        if store.scope == "broadcast" and not config.broadcast_inputs:
            raise ConfigError(
                f"stores.{store.name}.scope=broadcast: wanted task.broadcast.inputs, because only their messages may "
                "write to it, found none; name the stream that every task is to read there"
            )


def _check_client(config: JobConfig) -> None:
    for name in ("message.max.bytes", "batch.size"):
        key = f"systems.{config.default_system}.client.{name}"
        text = config.properties.get(key, "0")
        if not is_number(text):
            raise ConfigError(f"{key}: wanted bytes (digits only), found {text!r:.100}")
    for name in config.client_properties(config.default_system):
        if name in CLIENT_PROPERTIES_REFUSED:
            raise ConfigError(
                f"systems.{config.default_system}.client.{name}: samzapy sets {name} itself, because exactly-once "
                "or the order of records depends on it; remove the line"
            )


def _check_paths(config: JobConfig) -> None:
    """A shell knows `~` for a home directory; a setting is read by none."""
    for key, path in sorted(config.properties.items()):
        if (key in _PATHS or key.endswith(".location")) and path.startswith(PATTERN_SIGN):
            raise ConfigError(
                f"{key}: wanted a path, found {path!r}: ~ is not expanded, and would be a directory of that "
                "name; write an absolute path, or ${env:HOME} instead of ~"
            )


def _check_topic_lengths(config: JobConfig) -> None:
    """Check that Kafka accepts the topic names of the job, its stores and streams."""
    # As `model.topics` makes them.
    made = [(f"__samzapy-coordinator-{config.job}", "job.name")]
    made += [(f"__samzapy-changelog-{config.job}-{store.name}", f"stores.{store.name}") for store in config.stores]
    made += [(item.topic, f"task.intermediate.{item.name}") for item in config.intermediates]
    topic, key = max(made, key=lambda item: len(item[0]))
    if len(topic) > _TOPIC_CHARS_MAX:
        names = "job.name or job.id" if key == "job.name" else f"its name, job.name or job.id ({config.job})"
        raise ConfigError(
            f"{key}: wanted a topic name of at most {_TOPIC_CHARS_MAX} characters, found {topic}, which has "
            f"{len(topic)}; shorten {names} by {len(topic) - _TOPIC_CHARS_MAX}"
        )


def _compiled(key: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except NOT_A_PATTERN as error:
        raise ConfigError(
            f"{key}: wanted a regular expression after {PATTERN_SIGN} (orders-.*), found {pattern!r}: {error}"
        ) from error


def _check_topics(config: JobConfig) -> None:
    """Check that inputs and outputs are topics, and none that samzapy writes."""
    job = re.escape(config.job)
    # As `model.topics` names them; intermediate streams are looked at with their settings.
    own = re.compile(rf"__samzapy-(?:(?:coordinator|checkpoint|placement)-{job}|changelog-{job}-[A-Za-z0-9_]+)")
    named = [("task.inputs", item) for item in config.inputs if not is_pattern(item)]
    named += [("task.broadcast.inputs", item.system_stream) for item in config.broadcast_inputs]
    if config.dead_letter_output is not None:
        named.append(("task.dead.letter.output", config.dead_letter_output))
    for key, item in named:
        topic = item.partition(".")[2]
        if not is_topic_name(topic):
            raise ConfigError(
                f"{key}: wanted the name of a Kafka topic (1 to {_TOPIC_CHARS_MAX} letters, digits, dots, dashes and "
                f"underscores, for instance {config.default_system}.orders), found {topic!r} in {item!r}; correct it"
            )
        if own.fullmatch(topic):
            raise ConfigError(
                f"{key}: wanted a stream of messages, found {item}, which is an internal topic of this job; samzapy "
                "keeps its records there; remove it"
            )


def _check_streams(config: JobConfig) -> None:
    """Check that settings of an input name an input.

    A setting of a misspelled stream would have no effect.
    """
    for key in config.properties:
        matched = _STREAM_KEY.fullmatch(key)
        if matched is None:
            continue
        stream, named = matched["stream"], f"{matched['system']}.{matched['stream']}"
        own = config.intermediate_of(named)
        if own is not None:
            raise ConfigError(
                f"{key}: it is the topic of the intermediate stream {own.name}; its settings are "
                f"task.intermediate.{own.name}.key.serde and .msg.serde, and it is always read from its beginning on"
            )
        if stream.startswith(PATTERN_SIGN):
            _compiled(key, stream.removeprefix(PATTERN_SIGN))
        elif matched["setting"] in _OF_INPUTS and not _may_be_read(named, config):
            raise ConfigError(
                f"{key}: wanted a stream of task.inputs or task.broadcast.inputs ({', '.join(config.streams_read)}), "
                f"found {named}, which the job does not read{nearest(named, config.streams_read)}"
            )


def _may_be_read(system_stream: str, config: JobConfig) -> bool:
    system, _, stream = system_stream.partition(".")
    # A pattern that is refused itself may have been meant for this stream.
    return system_stream in config.streams_read or any(
        item.startswith(f"{system}.") and is_matched(stream, pattern_of(item), if_broken=True)
        for item in config.input_patterns
    )


def _check_addresses(config: JobConfig) -> None:
    for key, address in (
        ("job.coordinator.host", config.coordinator_host),
        ("job.coordinator.advertised.host", config.coordinator_advertised_host),
    ):
        if address is not None and not _ADDRESS.fullmatch(address):
            raise ConfigError(
                f"{key}: wanted a host's name or its IPv4 address, without a port, found {address!r}; the "
                "coordinator's HTTP server speaks no IPv6"
            )
    for name in config.coordinator_allowed_hosts:
        if not _ADDRESS.fullmatch(name):
            raise ConfigError(
                f"job.coordinator.allowed.hosts: wanted names of hosts or IPv4 addresses, without a port and without "
                f"*, found {name!r}; give each name that requests come to"
            )


def _check_coordinator_access(config: JobConfig) -> None:
    secret = config.coordinator_secret
    if secret is not None and not _REFERENCE.fullmatch(secret):
        # The text is not quoted, because it may be the secret itself.
        raise ConfigError(
            "job.coordinator.secret: wanted where the secret is, file:/absolute/path or env:NAME, found another text; "
            "a secret itself has no place in a configuration"
        )
    if config.are_signatures_required and secret is None:
        raise ConfigError(
            "job.placement.signature.required=true: wanted job.coordinator.secret, which signatures are checked with, "
            "found nothing; set it to file:/path or env:NAME, or remove this line"
        )
    for key, path in (
        ("job.coordinator.tls.certificate", config.coordinator_certificate),
        ("job.coordinator.tls.key", config.coordinator_key),
        ("job.coordinator.tls.ca", config.coordinator_ca),
    ):
        if path is not None and not path.startswith("/"):
            raise ConfigError(f"{key}: wanted an absolute path, found {path!r}")
    if (config.coordinator_certificate is None) != (config.coordinator_key is None):
        raise ConfigError(
            "job.coordinator.tls.certificate, job.coordinator.tls.key: wanted both or none, found one; set the other "
            "one too"
        )
    if config.coordinator_client_auth == "required" and None in (
        config.coordinator_certificate,
        config.coordinator_ca,
    ):
        raise ConfigError(
            "job.coordinator.tls.client.auth=required: wanted job.coordinator.tls.certificate, .key and .ca, found not "
            "all of them; set them, or remove this line"
        )
    if exposes_coordinator(config) and not config.is_coordinator_insecure:
        raise ConfigError(
            f"job.coordinator.host={config.coordinator_host}: wanted TLS and credentials on an address that other "
            "hosts reach, found that they are not set. Set job.coordinator.tls.certificate, job.coordinator.tls.key "
            "and job.coordinator.secret; or set job.coordinator.insecure=true if this is a laboratory"
        )


def _check_broadcast(config: JobConfig) -> None:
    for item in config.broadcast_inputs:
        if item.system_stream in config.inputs:
            raise ConfigError(
                f"task.broadcast.inputs: {item.system_stream} is in task.inputs too. The partitions of an input "
                "are divided among the tasks, those of a broadcast input are read by each; remove it from one of them"
            )
        if not item.system_stream.startswith(f"{config.default_system}."):
            raise ConfigError(
                f"task.broadcast.inputs: wanted streams of job.default.system ({config.default_system}), which the job "
                f"connects to, found {item.system_stream}"
            )


def _check_intermediates(config: JobConfig) -> None:
    elsewhere = {item.system_stream: "task.broadcast.inputs" for item in config.broadcast_inputs}
    elsewhere |= dict.fromkeys(config.inputs, "task.inputs")
    if config.dead_letter_output is not None:
        elsewhere[config.dead_letter_output] = "task.dead.letter.output"
    for item in config.intermediates:
        here = f"task.intermediate.{item.name}"
        if item.system_stream in elsewhere:
            raise ConfigError(
                f"{elsewhere[item.system_stream]}: {item.system_stream} is the topic of {here}, which the job reads "
                "anyway; remove it there"
            )
    others = (*config.inputs, *(item.system_stream for item in config.broadcast_inputs))
    if config.intermediates and all(config.is_bounded(stream) for stream in others):
        raise ConfigError(
            f"task.intermediate.{config.intermediates[0].name}: wanted an input without an end, found "
            f"samza.offset.end=head for all ({', '.join(others)}). A job with an end stops when its inputs were "
            "read, and what it sent to itself would not be; remove samza.offset.end, or make the second step a "
            "separate job"
        )


def _check_grouping(config: JobConfig) -> None:
    if config.ssp_grouper_factory is not None and config.properties.get("task.partition.scheme"):
        raise ConfigError(
            f"job.systemstreampartition.grouper.factory={config.ssp_grouper_factory}: it replaces "
            "task.partition.scheme, which is set too; remove one of the two lines"
        )
    if config.ssp_grouper_factory is not None or config.partition_scheme != ALL_SSPS_TO_SINGLE_TASK:
        return
    here = f"task.partition.scheme={ALL_SSPS_TO_SINGLE_TASK}"
    if config.broadcast_inputs:
        raise ConfigError(
            f"{here}: each task reads every input, so task.broadcast.inputs has no effect; "
            "move its streams to task.inputs"
        )
    if config.intermediates:
        raise ConfigError(
            f"{here}: wanted no intermediate streams, found {', '.join(item.name for item in config.intermediates)}. "
            "Each task reads every input there, so each message would be sent on once by every processor; choose "
            "another scheme"
        )
    if config.stores:
        raise ConfigError(
            f"{here}: wanted no stores, found {', '.join(store.name for store in config.stores)}. Tasks come and go "
            "with processors there, and a key's messages are in all of them, so no task keeps a key's state; "
            "choose another scheme"
        )
    if config.elasticity_factor > 1:
        raise ConfigError(
            f"{here}: each task reads every input as a whole, so there is nothing that key buckets could divide; found "
            f"job.elasticity.factor={config.elasticity_factor}. Set it to 1, or choose another scheme"
        )
    if config.processor_id is None and config.local_store_dir is None:
        raise ConfigError(
            f"{here}: wanted processor.id, or local.store.dir where one is kept, found neither. Each processor has its "
            "own task and positions there, so one that comes back under another id would read everything again; "
            "set one of the two"
        )
    if config.task_name_grouper_factory is not None:
        raise ConfigError(
            f"{here}: each processor has its own task, so task.name.grouper.factory cannot move any; remove the line"
        )


CHECKS: Final[tuple[Callable[[JobConfig], None], ...]] = (
    _check_inputs,
    _check_topics,
    _check_streams,
    _check_addresses,
    _check_coordinator_access,
    _check_broadcast,
    _check_intermediates,
    _check_grouping,
    _check_dead_letters,
    _check_dead_letter_max,
    _check_transaction_time,
    _check_lost_time,
    _check_heartbeat_time,
    _check_election_time,
    _check_store_names,
    _check_stores,
    _check_client,
    _check_paths,
    _check_topic_lengths,
)
"""The checks; each raises ConfigError for a combination of values that is not allowed."""
