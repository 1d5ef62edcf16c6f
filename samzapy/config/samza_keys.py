"""Keys of Apache Samza that samzapy does not read, and the replacement of each.

Source: "Samza Configurations" of Samza 1.8 (docs/learn/documentation/versioned/jobs in apache/samza).
`scripts/config_reference` makes docs/guides/coming-from-samza.md of this list. Remove a key
from it when samzapy learns to read the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class SamzaKey:
    """A key, or a family of keys, of Samza's.

    Attributes:
        name: `<name>` stands for one part, and `<rest>` at the end for any number of them.
        instead: the setting, command or file of samzapy that replaces it; empty if there is none.
        reason: why there is nothing to set, or the difference; a sentence.
    """

    name: str
    instead: str = ""
    reason: str = ""

    @property
    def answer(self) -> str:
        """The advice about the key, in one or two sentences."""
        return " ".join(part for part in (self.instead and f"Use {self.instead}.", self.reason) if part)


def _key(name: str, instead: str = "", reason: str = "") -> SamzaKey:
    return SamzaKey(name=name, instead=instead, reason=reason)


_ONE_CLUSTER: Final = "Not needed: all topics of a job are on the cluster of job.default.system."
_LMDB: Final = "Not needed: local state is kept in LMDB files, which have no such setting."
_NO_YARN: Final = "Not needed: samzapy starts no containers on YARN (docs/guides/yarn.md)."
_NO_ZOOKEEPER: Final = "Not needed: the leader is elected through Kafka, without ZooKeeper or Azure."
_OWN_TOPICS: Final = "Not needed: samzapy sets it for its own topics, and refuses other settings with a named error."
_FILLS: Final = "The task fills the store with the messages of that input."
_METRICS: Final = "Not needed: metrics are read by HTTP in Prometheus' text format (docs/reference/metrics.md)."
_SPARK_OPTIONS: Final = "spark-submit's `--driver-java-options` or `--conf spark.driver.extraJavaOptions=...`"
_LOGGING: Final = "Not needed: samzapy logs to stderr, and a task logs by Python's logging."

SAMZA_KEYS: Final[tuple[SamzaKey, ...]] = (
    # The application.
    _key("app.name", "job.name"),
    _key("app.id", "job.id"),
    _key("app.class", "@samzapy.task in the job file", "The job file is named on the command line."),
    _key("app.mode", "samza.offset.end=head of the inputs", "A job whose inputs all have an end stops by itself."),
    _key("app.runner.class", "", "Not needed: `samzapy run` and `samzapy job submit` start a job."),
    _key("task.class", "@samzapy.task in the job file", "The job file is named on the command line."),
    _key(
        "job.factory.class",
        "",
        "Not needed: `samzapy run` runs a job, and --cluster of `samzapy job submit` chooses the cluster manager.",
    ),
    _key("job.jmx.enabled", "", _METRICS),
    _key("job.security.manager.factory", "systems.<system>.client.<property>", "See docs/guides/kafka-clients.md."),
    _key("job.config.loader.<rest>", "--config FILE and --set key=value"),
    _key("job.config.rewriters", "a pattern in task.inputs (`kafka.~orders-.*`), or ${env:NAME} in a value"),
    _key("job.config.rewriter.<rest>", "a pattern in task.inputs (`kafka.~orders-.*`), or ${env:NAME} in a value"),
    _key("job.container.thread.pool.size", "--master local[n] of spark-submit", "Each core runs whole tasks."),
    _key(
        "job.systemstreampartition.matcher.<rest>",
        "",
        "A job reads every partition of its inputs, and its processors share them (docs/guides/planning.md).",
    ),
    _key(
        "job.systemstreampartition.input.expansion.enabled",
        "",
        "Not needed: inputs may always grow (docs/guides/planning.md).",
    ),
    _key("job.coordinator.execute", "", "Not needed: each process of a job can lead it."),
    _key("job.coordinator.segment.bytes", "", _OWN_TOPICS),
    # Tasks.
    _key(
        "task.commit.ms",
        "task.transaction.max.ms",
        "A transaction commits outputs, state and positions together.",
    ),
    _key("task.callback.timeout.ms", "task.transaction.timeout.ms", "No message may take a task longer."),
    _key(
        "task.callback.watermark.timeout.ms",
        "",
        "Watermarks come from the times of messages (docs/guides/time.md). No callback handles them.",
    ),
    _key(
        "task.chooser.class",
        "systems.<system>.streams.<stream>.samza.priority",
        "In each micro-batch a task takes its inputs one after the other.",
    ),
    _key("task.command.class", "", "Not needed: containers are spark-submit's processes."),
    _key(
        "task.drop.deserialization.errors",
        "task.error.policy=dead-letter and task.dead.letter.output",
        "No message is dropped.",
    ),
    _key(
        "task.drop.serialization.errors",
        "task.error.policy=dead-letter and task.dead.letter.output",
        "No message is dropped.",
    ),
    _key(
        "task.drop.producer.errors",
        "",
        "There is none: if an output cannot be written, its whole transaction is aborted.",
    ),
    _key("task.ignored.exceptions", "task.error.policy=dead-letter, or `except` in the task"),
    _key(
        "task.max.concurrency",
        "job.elasticity.factor",
        "A task handles one message at a time; more tasks share a partition by key.",
    ),
    _key("task.async.commit", "", "Not needed: a message is handled when `process` has returned."),
    _key(
        "task.max.idle.ms",
        "",
        "Not needed: Spark polls for new messages at once, and every 50 ms while there are none.",
    ),
    _key(
        "task.poll.interval.ms",
        "",
        "Not needed: Spark polls for new messages at once, and every 50 ms while there are none.",
    ),
    _key("task.opts", _SPARK_OPTIONS),
    _key("task.java.home", "the environment variable JAVA_HOME"),
    _key("task.execute", "", "Not needed: containers are spark-submit's processes."),
    _key("task.shutdown.ms", "job.shutdown.drain.ms"),
    _key("task.consumer.batch.size", "task.batch.offsets.max", "It counts over all partitions of a micro-batch."),
    _key("task.log4j.<rest>", "", _LOGGING),
    # Checkpoints.
    _key("task.checkpoint.factory", "", "Not needed: positions are always kept, on a topic of samzapy's own."),
    _key("task.checkpoint.system", "", _ONE_CLUSTER),
    _key("task.checkpoint.path", "", "Not needed: positions are kept on a topic, and in no file."),
    _key("task.checkpoint.replication.factor", "job.coordinator.replication.factor"),
    _key("task.checkpoint.segment.bytes", "", _OWN_TOPICS),
    _key("task.startpoint.<rest>", "`samzapy job rewind`", "See docs/guides/rewind.md."),
    _key(
        "job.checkpoint.validation.enabled",
        "",
        "Not needed: samzapy always checks its topics (docs/guides/doctor.md).",
    ),
    # Systems and streams.
    _key("systems.<system>.samza.factory", "", "Not needed: Kafka is the only system."),
    _key("systems.<system>.default.stream.samza.key.serde", "systems.<system>.samza.key.serde"),
    _key("systems.<system>.default.stream.samza.msg.serde", "systems.<system>.samza.msg.serde"),
    _key("systems.<system>.default.stream.samza.offset.default", "systems.<system>.samza.offset.default"),
    _key(
        "systems.<system>.default.stream.<rest>",
        "systems.<system>.samza.<setting>, or the settings of the topic itself",
    ),
    _key(
        "systems.<system>.consumer.<rest>",
        "systems.<system>.client.<property>",
        "The names are librdkafka's (docs/guides/kafka-clients.md).",
    ),
    _key(
        "systems.<system>.producer.<rest>",
        "systems.<system>.client.<property>",
        "The names are librdkafka's (docs/guides/kafka-clients.md).",
    ),
    _key("systems.<system>.samza.fetch.threshold", "task.batch.offsets.max"),
    _key("systems.<system>.samza.fetch.threshold.bytes", "task.batch.offsets.max"),
    _key("systems.<system>.eventhubs.<rest>", "", "Event Hubs is not supported; its Kafka endpoint may be used."),
    _key("systems.<system>.aws.<rest>", "", "Kinesis is not supported; Kafka is the only system."),
    _key("systems.<system>.azureblob.<rest>", "", "Azure Blob Storage is not supported; Kafka is the only system."),
    _key("streams.<stream>.samza.system", "the system in front of the topic's name, `kafka.orders`"),
    _key("streams.<stream>.samza.physical.name", "the topic's name itself in task.inputs"),
    _key("streams.<stream>.<rest>", "systems.<system>.streams.<stream>.samza.<setting>"),
    _key(
        "serializers.registry.<rest>",
        "",
        "Not needed: serdes are named bytes, string, json, msgpack, integer, long, double, timestamp and uuid. For "
        "others use bytes and decode in the task.",
    ),
    # State.
    _key("stores.<name>.factory", "", "Not needed: a store is an LMDB database, declared by any key of its own."),
    _key(
        "stores.<name>.changelog", "", "Not needed: each store has a changelog, `__samzapy-changelog-<job>-<store>`."
    ),
    _key("stores.<name>.changelog.max.message.size.bytes", "systems.<system>.client.message.max.bytes"),
    _key(
        "stores.<name>.disallow.large.messages",
        "",
        "Not needed: an entry that is too large for its changelog fails its message with a named error.",
    ),
    _key(
        "stores.<name>.drop.large.messages",
        "",
        "No entry is dropped; one that is too large fails its message with a named error.",
    ),
    _key("stores.<name>.changelog.<rest>", "", _OWN_TOPICS),
    _key("stores.default.<rest>", "stores.<name>.<setting> of each store"),
    _key(
        "stores.<name>.rocksdb.ttl.ms",
        "",
        "A state of a task class may have a time to live: samzapy.value(..., ttl=samzapy.hours(1)).",
    ),
    _key("stores.<name>.rocksdb.<rest>", "", _LMDB),
    _key("stores-default.<rest>", "", _LMDB),
    _key("stores.<name>.write.batch.size", "", _LMDB),
    _key("stores.<name>.object.cache.size", "", _LMDB),
    _key("stores.<name>.container.<rest>", "", _LMDB),
    _key("stores.<name>.side.inputs", "systems.<system>.streams.<stream>.samza.bootstrap=true of an input", _FILLS),
    _key("stores.<name>.side.inputs.processor.factory", "@samzapy.task itself", _FILLS),
    _key("job.logged.store.base.dir", "local.store.dir"),
    _key("job.non-logged.store.base.dir", "local.store.dir", "Each store has a changelog."),
    _key("job.changelog.system", "", _ONE_CLUSTER),
    _key("job.coordinator.system", "", _ONE_CLUSTER),
    # Containers and their coordinator.
    _key("job.coordinator.factory", "", _NO_ZOOKEEPER),
    _key("job.coordinator.zk.session.timeout.ms", "job.coordinator.election.session.ms"),
    _key("job.coordinator.zk.<rest>", "", _NO_ZOOKEEPER),
    _key("job.coordinator.azure.<rest>", "", _NO_ZOOKEEPER),
    _key("azure.storage.connect", "", _NO_ZOOKEEPER),
    _key(
        "cluster-manager.container.preferred-host.last.retry.delay.ms",
        "",
        "Not needed: cluster-manager.container.fail.job.after.retries sets the reaction to the last failure.",
    ),
    _key("cluster-manager.jobcoordinator.jmx.enabled", "", _METRICS),
    _key("cluster-manager.allocator.sleep.ms", "", "Not needed: a container is started when it is wanted."),
    _key(
        "cluster-manager.fault-domain-manager.factory", "locationid.provider.factory", "See docs/guides/standby.md."
    ),
    _key("yarn.package.path", "", _NO_YARN),
    _key("yarn.<rest>", "", _NO_YARN),
    # Metrics.
    _key("metrics.reporters", "", _METRICS),
    _key("metrics.<rest>", "", _METRICS),
)

SAMZA_CLASSES: Final = {
    "GroupByPartitionFactory": "use task.partition.scheme=group-by-partition instead of this line",
    "GroupBySystemStreamPartitionFactory": "use task.partition.scheme=group-by-ssp instead of this line",
    "AllSspToSingleTaskGrouperFactory": "use task.partition.scheme=all-ssps-to-single-task instead of this line",
    "GroupByContainerCountFactory": "remove the line, samzapy spreads tasks over processors by itself",
    "GroupByContainerIdsFactory": "remove the line, samzapy spreads tasks over processors by itself",
    "SingleContainerGrouperFactory": "remove the line, samzapy spreads tasks over processors by itself",
}
"""Advice for classes of Samza as values of keys that samzapy has too."""


def instead_of_class(value: str) -> str:
    """`; ...` to end a message about a Java class; empty for any other `value`."""
    package, _, name = value.rpartition(".")
    if name in SAMZA_CLASSES:
        return f"; it is a class of Samza: {SAMZA_CLASSES[name]}"
    is_java = package.startswith(("org.", "com.", "io.", "net."))
    return "; it is a Java class; name a Python class instead" if is_java else ""
