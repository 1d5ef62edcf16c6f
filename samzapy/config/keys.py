"""The registry: every key there is, with its type, its default and its meaning. The only list of them.

A key with `<name>` in it is a family (`stores.<name>.msg.serde`). `scripts/config_reference` makes the page
docs/reference/configuration.md of this list; a new key goes in here and into `config.job_config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SERDES: Final = ("bytes", "string", "json")
STORE_SCOPES: Final = ("key", "broadcast", "task")
ALL_SSPS_TO_SINGLE_TASK: Final = "all-ssps-to-single-task"
PARTITION_SCHEMES: Final = ("max", "cogroup", "group-by-partition", "group-by-ssp", ALL_SSPS_TO_SINGLE_TASK)
FACTOR_KEY: Final = "job.elasticity.factor"
COUNT_KEY: Final = "job.container.count"
MEMORY_KEY: Final = "cluster-manager.container.memory.mb"
CORES_KEY: Final = "cluster-manager.container.cpu.cores"
CLUSTER_MANAGERS: Final = ("process", "standalone")
FACTORS: Final = tuple(str(2**power) for power in range(9))
REQUIRED: Final = object()
KINDS: Final = {
    "text": "text",
    "ms": "milliseconds",
    "bytes": "bytes",
    "count": "number",
    "list": "list, comma separated",
    "factory": "`module:Class`",
    "id": "letters, digits, `_`",
    "name": "letters, digits, `.`, `_`, `-`",
}
"""What a `ConfigKey.kind` means, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One documented key. `default` is text as it would stand in a file, None (unset) or `REQUIRED`.

    `least` and `most` bound a number. `of_process`: may differ between the processes of a job, so it is no part of
    what the job records. `may_be_secret`: a family of names that are not ours, of which some are secrets
    (`config.secrets`).
    """

    name: str
    meaning: str
    default: object = None
    kind: str = "text"
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = 2**63 - 1
    of_process: bool = False
    may_be_secret: bool = False


KEYS: Final[tuple[ConfigKey, ...]] = (
    ConfigKey(name="job.name", default=REQUIRED, kind="name", meaning="Name of the job."),
    ConfigKey(name="job.id", default="1", kind="id", meaning="Tells jobs of one name apart; no dashes."),
    ConfigKey(name="job.default.system", default="kafka", kind="id", meaning="System of streams named without one."),
    ConfigKey(
        name="task.inputs",
        default=REQUIRED,
        kind="list",
        meaning="Input streams, `kafka.orders, kafka.refunds`. A name that begins with `~` is a pattern, "
        "`kafka.~orders-.*`: every topic whose whole name matches, also one that comes while the job runs.",
    ),
    ConfigKey(
        name="task.inputs.patterns",
        kind="list",
        default="",
        meaning="Written by samzapy, not to be set: task.inputs as it was handed in, where it has patterns; "
        "what they match stands in task.inputs then.",
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
        name="task.partitioner.check",
        default="fail",
        choices=("fail", "warn", "off"),
        meaning="What becomes of a job that keeps state by key and whose tasks each read inputs that producers "
        "partition by different hashes of the key, as far as sampled keys tell. `fail`: it is not started; `warn`: it "
        "is, with a warning; `off`: no keys are sampled at a start (docs/guides/planning.md).",
    ),
    ConfigKey(
        name="task.broadcast.inputs",
        kind="list",
        default="",
        meaning="Streams of which every task reads every message: `kafka.rules#0`, `kafka.rules#[0-3]`, "
        "or all partitions, `kafka.rules`.",
    ),
    ConfigKey(
        name="task.intermediate.<name>.partitions",
        kind="count",
        least=1,
        most=100_000,
        meaning="Declares an intermediate stream: a topic of the job's own, made with so many partitions, that the "
        "task sends to with another key and reads like an input (docs/guides/intermediate.md). A whole "
        "multiple of it, set "
        "later, makes it grow.",
    ),
    ConfigKey(
        name="task.intermediate.<name>.key.serde",
        choices=SERDES,
        meaning="Serde of its keys, for sending and for reading; the system's otherwise.",
    ),
    ConfigKey(
        name="task.intermediate.<name>.msg.serde",
        choices=SERDES,
        meaning="Serde of its values, for sending and for reading; the system's otherwise.",
    ),
    ConfigKey(
        name="task.intermediate.<name>.retention.ms",
        kind="ms",
        default="604800000",
        least=1,
        meaning="So long the topic keeps a message, read or not: longer than the job is ever stopped or behind.",
    ),
    ConfigKey(
        name="task.intermediate.<name>.replication.factor",
        kind="count",
        least=1,
        meaning="Replicas of the topic; default: as of samzapy's other topics.",
    ),
    ConfigKey(
        name=FACTOR_KEY,
        kind="count",
        default="1",
        choices=FACTORS,
        meaning="Key buckets per input partition: so many tasks share what one had, each with its part of the keys. "
        "It acts when it is set to another value than when the job was handed in before; a job that was scaled while "
        "it ran stays so over restarts.",
    ),
    ConfigKey(
        name="job.elasticity.colocate",
        default="false",
        choices=("true", "false"),
        meaning="Whether the tasks that share an input partition stay on one processor, which then reads it once. "
        "Otherwise they are spread over all processors, so that a partition gets the cores of several, each of which "
        "reads it.",
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
        name="task.dead.letter.max",
        default="100%",
        meaning="So many dead letters among the last task.dead.letter.window messages of a task end the job: a number "
        "(`20`) or a share (`50%`). By default a task ends the job when each message of a whole window failed.",
    ),
    ConfigKey(
        name="task.dead.letter.window",
        default="1000",
        kind="count",
        least=1,
        meaning="Among how many messages of a task dead letters are counted, in each worker process.",
    ),
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
        least=1000,
        meaning="The broker ends a transaction that is open for longer; no message may take the task so long.",
    ),
    ConfigKey(
        name="task.batch.offsets.max",
        default="200000",
        kind="count",
        least=1,
        meaning="At most so many offsets are read in one micro-batch, over all partitions.",
    ),
    ConfigKey(
        name="task.batch.max.ms",
        default="60000",
        kind="ms",
        least=1,
        meaning="How long a micro-batch is to take at most. One that takes longer is ended; what it committed stays, "
        "and the query goes on with smaller ones. The first one of a process has 20 s besides.",
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
        name="task.query.retry.ms",
        default="600000",
        kind="ms",
        meaning="A query that fails is started again, with pauses of up to 30 s, until so much time has passed since "
        "the last commit; then the container ends by name. Three starts are always made. A commit, a new grant or "
        "plan, or a restart that an operator asked for begins the time anew; brokers that are away use none of it, and "
        "a worker that was killed from outside a quarter.",
    ),
    ConfigKey(
        name="task.lost.range.accept",
        of_process=True,
        kind="list",
        default="",
        meaning="The operator's word, at one start, that named input ranges are given up, "
        "`kafka.orders.3:0/1@100-250`. Any processor of the job may bring it, also while others run.",
    ),
    ConfigKey(
        name="locationid.provider.factory",
        kind="factory",
        meaning="The job's own word for where a processor is (host and fault domain), `module:Class` of a module "
        "beside the job file, made with the job's properties, whose `location_id()` returns a `samzapy.LocationId`; "
        "default: the host's name. Where a launcher names a container's host, that name counts, and the provider gives "
        "the fault domain only.",
    ),
    ConfigKey(
        name="local.store.dir",
        of_process=True,
        meaning="Directory of local state; kept over restarts, shared by the processors of a host. Required of a job "
        "with stores.",
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
        meaning="How often the leader looks whether the job's topics are as they must be (docs/guides/doctor.md).",
    ),
    ConfigKey(
        name="job.coordinator.monitor-partition-change.frequency.ms",
        default="300000",
        kind="ms",
        meaning="How often the leader looks whether inputs have got more partitions, and whether topics have come that "
        "a pattern of task.inputs matches; 0: only when it begins to lead.",
    ),
    ConfigKey(
        name="job.expansion.settle.ms",
        default="300000",
        kind="ms",
        meaning="So long after an input was seen to have more partitions no producer writes by the old count any more: "
        "at least the `metadata.max.age.ms` and `delivery.timeout.ms` of the producers. 0 where order does not matter.",
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
        least=1000,
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
        default="5000",
        kind="ms",
        least=1,
        meaning="Longest time between heartbeats of a container. What others wait for is told at once or within a "
        "second, and a heartbeat that was not answered is followed by the next one within a second. At most half of "
        "job.container.lease.ms.",
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
        name="job.placement.expiry.ms",
        default="600000",
        kind="ms",
        least=1,
        meaning="A request on the placement topic that is not done so long after it was read fails, a move when the "
        "container that is started for it is not ready by then; unless it brought a requestExpiry of its own. Longer "
        "than job.placement.tries.max starts that nobody hears of and a restore of the state take.",
    ),
    ConfigKey(
        name="job.placement.retention.ms",
        default="86400000",
        kind="ms",
        meaning="A request that is over and its response are removed from the placement topic after this time; those "
        "of an earlier run of the job at once.",
    ),
    ConfigKey(
        name="job.placement.uuids.max",
        default="20000",
        kind="count",
        least=1,
        meaning="So many requests are remembered after they are over, so that none is done twice; one that is older "
        "than those that were forgotten is refused.",
    ),
    ConfigKey(
        name=COUNT_KEY,
        default="1",
        kind="count",
        least=1,
        most=10_000,
        meaning="How many containers `samzapy job submit` starts; of no use to a job whose processors are started by "
        "people. A job keeps the number that it was scaled to until another one is submitted.",
    ),
    ConfigKey(
        name="job.host-affinity.enabled",
        default="true",
        choices=("true", "false"),
        meaning="Whether a container that is started anew is wanted on the host where its processor ran last; false: "
        "on any.",
    ),
    ConfigKey(
        name="job.standbytasks.replication.factor",
        default="1",
        kind="count",
        least=1,
        most=11,
        meaning="How often the state of each task is at hand: 2 gives every container that the coordinator starts one "
        "standby on another host, which takes over when it is lost (docs/guides/standby.md). A job without "
        "stores has none.",
    ),
    ConfigKey(
        name="cluster-manager.fault-domain-aware.standby.enabled",
        default="false",
        choices=("true", "false"),
        meaning="Whether a standby is kept out of the fault domain, and not only off the host, of what it stands by "
        "(locationid.provider.factory).",
    ),
    ConfigKey(
        name="job.placement.tries.max",
        default="3",
        kind="count",
        least=1,
        meaning="So many containers are started for a move, one after the other, before it fails.",
    ),
    ConfigKey(
        name="cluster-manager.container.request.timeout.ms",
        default="120000",
        kind="ms",
        least=1,
        meaning="A container that was not heard of so long after it was wanted is given up, the start of Spark "
        "included; the next one is wanted on another host. Samza's default is 5 s, without the start.",
    ),
    ConfigKey(
        name="cluster-manager.container.retry.count",
        default="8",
        kind="count",
        meaning="So many failures in a row of a processor's containers are made good by another one; 0: none is. "
        "Samza's word for without end, a negative number, is refused.",
    ),
    ConfigKey(
        name="cluster-manager.container.retry.window.ms",
        default="300000",
        kind="ms",
        meaning="Failures are counted within this time from the first of them; a later one is the first again.",
    ),
    ConfigKey(
        name="cluster-manager.container.fail.job.after.retries",
        default="true",
        choices=("true", "false"),
        meaning="Whether the job ends when the containers of a processor have failed too often; false: it goes on "
        "without that processor, and tries again when cluster-manager.container.retry.window.ms has gone by.",
    ),
    ConfigKey(
        name="cluster.manager",
        of_process=True,
        choices=CLUSTER_MANAGERS,
        meaning="What `samzapy job submit` starts containers with, its --cluster (docs/guides/cluster.md). `process`: "
        "spark-submit on this machine; `standalone`: drivers of a Spark standalone cluster.",
    ),
    ConfigKey(
        name="cluster.process.hosts",
        of_process=True,
        kind="list",
        default="localhost:8",
        meaning="For `process`: logical hosts of this machine, each with its own directory, and how many containers "
        "each may have: `h1:2, h2:2`.",
    ),
    ConfigKey(
        name="cluster.process.dir",
        of_process=True,
        meaning="For `process`: where each logical host has its directory, with local state and logs of containers.",
    ),
    ConfigKey(
        name="job.shutdown.drain.ms",
        default="6000",
        kind="ms",
        meaning="Time a running micro-batch has to finish when the job is stopped.",
    ),
    ConfigKey(
        name=MEMORY_KEY,
        default="1024",
        kind="count",
        least=256,
        of_process=True,
        meaning="Memory in MiB of a container's JVM; its Python workers need memory beside. With --cluster process "
        "only where it is set and spark-submit's options do not tell it.",
    ),
    ConfigKey(
        name=CORES_KEY,
        default="1",
        kind="count",
        least=1,
        most=512,
        of_process=True,
        meaning="Cores of a container, which are its worker slots. With --cluster process only where it is set and "
        "spark-submit's options do not tell them (--master); else Spark's default, all of the machine's.",
    ),
    ConfigKey(
        name="cluster.standalone.rest.url",
        of_process=True,
        meaning="Where a Spark standalone master takes drivers by REST, `http://host:6066` "
        "(docs/guides/spark-standalone.md).",
    ),
    ConfigKey(
        name="cluster.standalone.page.url",
        of_process=True,
        meaning="The page of that master, `http://host:8080`: who works where, and what is free.",
    ),
    ConfigKey(
        name="systems.<system>.bootstrap.servers",
        meaning="Addresses of the Kafka cluster, `host:port,host:port`. Required of the default system.",
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
        name="systems.<system>.streams.<stream>.samza.bootstrap",
        choices=("true", "false"),
        default="false",
        meaning="true: where a task starts behind the end of this stream, it reads the stream up to that end before "
        "any input that is no bootstrap input. In each micro-batch it comes first. Needs samza.offset.default=oldest "
        "to be read at all by a job that is new (docs/guides/planning.md).",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.priority",
        kind="count",
        default="0",
        most=2**31 - 1,
        meaning="In a micro-batch a task handles the messages of streams with a larger number first; those of equal "
        "priority in the order of task.inputs.",
    ),
    ConfigKey(
        name="systems.<system>.client.<property>",
        may_be_secret=True,
        meaning="A property of librdkafka (security.protocol); what Spark's source gets of it: "
        "docs/guides/kafka-clients.md.",
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
        name="stores.<name>.scope",
        default="key",
        choices=STORE_SCOPES,
        meaning="Whose the entries are. `key`: the current message's key; the only one to use for messages by key. "
        "`broadcast`: every task has all of them; written while a broadcast message is handled, read at any time. "
        "`task`: the task's, at any time; the job's elasticity factor cannot change then.",
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
