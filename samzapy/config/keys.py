"""The registry of all configuration keys, with type, default and meaning.

A key with `<name>` in it is a family (`stores.<name>.msg.serde`). `scripts/config_reference` makes the page
docs/reference/configuration.md of this list; a new key goes in here and into `config.job_config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SERDES: Final = ("bytes", "string", "json", "msgpack", "integer", "long", "double", "timestamp", "uuid")
# A number may have several spellings as a float (0.0 and -0.0, all NaN), and a key has one.
KEY_SERDES: Final = tuple(name for name in SERDES if name != "double")
STORE_SCOPES: Final = ("key", "broadcast", "task")
STORE_KINDS: Final = ("value", "map", "list", "timer", "window", "clock")
TTL_CLOCKS: Final = ("host", "event")
ALL_SSPS_TO_SINGLE_TASK: Final = "all-ssps-to-single-task"
PARTITION_SCHEMES: Final = ("max", "cogroup", "group-by-partition", "group-by-ssp", ALL_SSPS_TO_SINGLE_TASK)
SCHEME_KEY: Final = "task.partition.scheme"
WINDOW_KEY: Final = "task.window.ms"
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
"""The meaning of each `ConfigKey.kind`, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One documented key.

    `default` is text as in a properties file, None (unset) or `REQUIRED`.

    `least` and `most` bound a number. `of_process`: may differ between the processes of a job, so the job does
    not record it. `may_be_secret`: a family of foreign names, some of which are secrets (`config.secrets`).
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
    ConfigKey(name="job.id", default="1", kind="id", meaning="Distinguishes jobs of the same name; no dashes."),
    ConfigKey(name="job.default.system", default="kafka", kind="id", meaning="System of streams named without one."),
    ConfigKey(
        name="task.inputs",
        default=REQUIRED,
        kind="list",
        meaning="Input streams, `kafka.orders, kafka.refunds`. A name that begins with `~` is a pattern, "
        "`kafka.~orders-.*`: every topic whose whole name matches, including topics created while the job runs.",
    ),
    ConfigKey(
        name="task.inputs.patterns",
        kind="list",
        default="",
        meaning="Written by samzapy; do not set it. Holds task.inputs as submitted, if it has patterns; task.inputs "
        "then lists the matching topics.",
    ),
    ConfigKey(
        name=SCHEME_KEY,
        default="max",
        choices=PARTITION_SCHEMES,
        meaning="How partitions are grouped into tasks. `max` and `group-by-ssp`: a task for each partition of each "
        "input. `group-by-partition`: a task for each partition number. `cogroup`: as many tasks as the greatest "
        "common divisor of the inputs' partition counts, so that the same key of all inputs reaches one task. "
        "`all-ssps-to-single-task`: one task per processor, which reads everything. For a task class with state and "
        "several inputs the default is `cogroup`.",
    ),
    ConfigKey(
        name="task.partitioner.check",
        default="fail",
        choices=("fail", "warn", "off"),
        meaning="How to react if sampled keys show that producers partition the inputs of a task by different "
        "hashes, and the job keeps state by key. `fail`: the job is not started. `warn`: it is started with a "
        "warning. `off`: no keys are sampled (docs/guides/planning.md).",
    ),
    ConfigKey(
        name="task.broadcast.inputs",
        kind="list",
        default="",
        meaning="Streams that every task reads completely: `kafka.rules#0`, `kafka.rules#[0-3]`, or all partitions, "
        "`kafka.rules`.",
    ),
    ConfigKey(
        name="task.intermediate.<name>.partitions",
        kind="count",
        least=1,
        most=100_000,
        meaning="Declares an intermediate stream with this many partitions: a topic of the job that the task sends "
        "to with another key and reads like an input (docs/guides/intermediate.md). To add partitions later, set a "
        "whole multiple.",
    ),
    ConfigKey(
        name="task.intermediate.<name>.key.serde",
        choices=KEY_SERDES,
        meaning="Serde of its keys, for sending and reading; default: the serde of the system.",
    ),
    ConfigKey(
        name="task.intermediate.<name>.msg.serde",
        choices=SERDES,
        meaning="Serde of its values, for sending and reading; default: the serde of the system.",
    ),
    ConfigKey(
        name="task.intermediate.<name>.retention.ms",
        kind="ms",
        default="604800000",
        least=1,
        meaning="Topic retention. Must exceed the longest downtime or lag you expect.",
    ),
    ConfigKey(
        name="task.intermediate.<name>.replication.factor",
        kind="count",
        least=1,
        meaning="Replicas of the topic; default: as for samzapy's other topics.",
    ),
    ConfigKey(
        name=FACTOR_KEY,
        kind="count",
        default="1",
        choices=FACTORS,
        meaning="Key buckets per input partition. Each task is split into this many tasks, each with a share of the "
        "keys. Takes effect only if the value differs from the last submission; a factor set by `samzapy job scale` "
        "survives restarts.",
    ),
    ConfigKey(
        name="job.elasticity.colocate",
        default="false",
        choices=("true", "false"),
        meaning="true: tasks that share an input partition stay on one processor, which reads it once. false: they "
        "are spread over all processors, so that several cores work on a partition, and each of them reads it.",
    ),
    ConfigKey(
        name="job.systemstreampartition.grouper.factory",
        kind="factory",
        meaning="Custom grouping of partitions into tasks, as `module:Class` of a module beside the job file. "
        "Replaces task.partition.scheme.",
    ),
    ConfigKey(
        name="task.name.grouper.factory",
        kind="factory",
        meaning="Custom assignment of tasks to processors, as `module:Class` of a module beside the job file.",
    ),
    ConfigKey(
        name="task.error.policy",
        default="fail",
        choices=("fail", "dead-letter"),
        meaning="How to handle a message that fails in the task or a serde. `fail`: the job fails with a named "
        "error. `dead-letter`: the message is written to task.dead.letter.output.",
    ),
    ConfigKey(name="task.dead.letter.output", meaning="Stream for failed messages under policy dead-letter."),
    ConfigKey(
        name="task.dead.letter.max",
        default="100%",
        meaning="Limit of dead letters among the last task.dead.letter.window messages of a task: a number (`20`) or "
        "a share (`50%`). The job ends when a task reaches it. By default every message of a window must fail.",
    ),
    ConfigKey(
        name="task.dead.letter.window",
        default="1000",
        kind="count",
        least=1,
        meaning="Number of recent messages of a task in which dead letters are counted, in each worker process.",
    ),
    ConfigKey(
        name="task.transaction.max.ms",
        default="5000",
        kind="ms",
        least=1,
        meaning="Maximum duration of a transaction before it is committed; at most half of "
        "task.transaction.timeout.ms.",
    ),
    ConfigKey(
        name="task.transaction.max.bytes",
        default="16777216",
        kind="bytes",
        least=1,
        meaning="Maximum size of outputs and store writes in a transaction before it is committed.",
    ),
    ConfigKey(
        name="task.transaction.timeout.ms",
        default="20000",
        kind="ms",
        least=1000,
        meaning="The broker aborts a transaction that is open for longer. Processing one message must take less.",
    ),
    ConfigKey(
        name="task.batch.offsets.max",
        default="200000",
        kind="count",
        least=1,
        meaning="Maximum number of offsets in one micro-batch, over all partitions.",
    ),
    ConfigKey(
        name="task.batch.max.ms",
        default="60000",
        kind="ms",
        least=1,
        meaning="Maximum duration of a micro-batch. A longer one is ended: its commits stay, and the query continues "
        "with smaller batches. The first batch of a process has 20 s more.",
    ),
    ConfigKey(
        name="task.batch.interval.ms",
        default="0",
        kind="ms",
        meaning="Minimum time between the starts of two micro-batches; 0: as fast as possible.",
    ),
    ConfigKey(
        name="task.tail.ms",
        default="3600000",
        kind="ms",
        meaning="After a small micro-batch the workers keep reading their inputs by themselves, in a *tail*, which "
        "answers a message in milliseconds. This is how long a tail lasts before the next micro-batch; a tail without "
        "messages stays. 0: no tails. With `task.batch.interval.ms` there are none either.",
    ),
    ConfigKey(
        name="task.tail.lag.max",
        default="10000",
        kind="count",
        least=1,
        meaning="Maximum number of unread offsets, over all partitions of a container, with which tails begin. A tail "
        "that falls further behind ends, and micro-batches follow.",
    ),
    ConfigKey(
        name="task.timer.resolution.ms",
        default="1000",
        kind="ms",
        least=1,
        meaning="Minimum time between two Spark jobs that only fire timers. Tasks with messages, and tasks with tails, "
        "fire their timers without such a job and at their moment.",
    ),
    ConfigKey(
        name="task.event.time.idle.ms",
        default="30000",
        kind="ms",
        meaning="How long an input has no message for a task before its clock of event time runs by itself; only once "
        "everything in it was read. 0: never, so a quiet input holds event time back.",
    ),
    ConfigKey(
        name="task.event.time.ahead.max.ms",
        default="300000",
        kind="ms",
        meaning="A message whose event time is further ahead of the host's clock moves no clock.",
    ),
    ConfigKey(
        name=WINDOW_KEY,
        default="0",
        kind="ms",
        meaning="Time between two calls of the `window` of a task class, `window_ms=` of `@samzapy.task`. 0: the task "
        "has none.",
    ),
    ConfigKey(
        name="task.hang.timeout.ms",
        default="600000",
        kind="ms",
        meaning="Maximum time without a commit in a micro-batch; after it the container ends with a named error.",
    ),
    ConfigKey(
        name="task.query.retry.ms",
        default="600000",
        kind="ms",
        meaning="How long a failing query is restarted, counted from the last commit; then the container ends with a "
        "named error. Pauses grow to 30 s, and there are at least three starts. A commit, a new grant or plan, or a "
        "requested restart resets the time. Broker outages do not count; time after an external kill of a worker "
        "counts a quarter.",
    ),
    ConfigKey(
        name="task.lost.range.accept",
        of_process=True,
        kind="list",
        default="",
        meaning="Input ranges that the operator accepts as lost, `kafka.orders.3:0/1@100-250`. Valid for one start. "
        "Any processor of the job may set it, even while others run.",
    ),
    ConfigKey(
        name="locationid.provider.factory",
        kind="factory",
        meaning="Custom location of a processor (host and fault domain), as `module:Class` of a module beside the "
        "job file. The class takes the job's properties; its `location_id()` returns a `samzapy.LocationId`. "
        "Default: the host's name. If a launcher names the host, the provider sets only the fault domain.",
    ),
    ConfigKey(
        name="local.store.dir",
        of_process=True,
        meaning="Directory of local state; kept over restarts, shared by the processors of a host. Required for a "
        "job with stores.",
    ),
    ConfigKey(
        name="processor.id",
        of_process=True,
        kind="id",
        meaning="Logical id of this processor, unique within the job. Default: an id kept in local.store.dir; "
        "without that directory, a new id at each start.",
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
        meaning="Name or address under which other hosts reach job.coordinator.host. Default: the same; for 0.0.0.0, "
        "the name of this host.",
    ),
    ConfigKey(
        name="job.coordinator.secret",
        of_process=True,
        meaning="Where the job's secret is: `file:/etc/samzapy/flights.secret` or `env:NAME`; at least 32 characters. "
        "With it each request to the coordinator's HTTP port needs a credential that is derived from it. A file may "
        "have several lines: the first makes credentials, all are accepted (docs/guides/http-access.md).",
    ),
    ConfigKey(
        name="job.coordinator.tls.certificate",
        of_process=True,
        meaning="PEM file with the certificate chain of this process. The coordinator's HTTP port then speaks TLS. "
        "The process also shows it as a client.",
    ),
    ConfigKey(
        name="job.coordinator.tls.key",
        of_process=True,
        meaning="PEM file with the private key of job.coordinator.tls.certificate, without a passphrase.",
    ),
    ConfigKey(
        name="job.coordinator.tls.ca",
        of_process=True,
        meaning="PEM file with the authorities that sign certificates of the job's processes. Default for clients: "
        "the authorities of the host.",
    ),
    ConfigKey(
        name="job.coordinator.tls.client.auth",
        of_process=True,
        default="none",
        choices=("none", "required"),
        meaning="required: clients of the HTTP port must show a certificate that job.coordinator.tls.ca has signed.",
    ),
    ConfigKey(
        name="job.coordinator.insecure",
        of_process=True,
        default="false",
        choices=("true", "false"),
        meaning="true: job.coordinator.host may be another address than loopback without TLS and without "
        "credentials. For a laboratory; `samzapy job status` and `samzapy doctor` show it.",
    ),
    ConfigKey(
        name="job.coordinator.allowed.hosts",
        of_process=True,
        kind="list",
        default="",
        meaning="Further host names in requests to the HTTP port, for instance that of a reverse proxy. Requests to "
        "other names are refused (DNS rebinding).",
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
        meaning="How often the leader checks the settings of the job's topics (docs/guides/doctor.md).",
    ),
    ConfigKey(
        name="job.coordinator.monitor-partition-change.frequency.ms",
        default="300000",
        kind="ms",
        meaning="How often the leader checks for new partitions of inputs, and for new topics that match a pattern "
        "of task.inputs; 0: only when it becomes leader.",
    ),
    ConfigKey(
        name="job.expansion.settle.ms",
        default="300000",
        kind="ms",
        meaning="How long after an input grows producers may still use the old partition count. Set at least the sum "
        "of their `metadata.max.age.ms` and `delivery.timeout.ms`; 0 if order does not matter.",
    ),
    ConfigKey(
        name="job.consumer.group",
        meaning="Consumer group to which the leader commits the positions in the inputs, so that Kafka's own tools "
        "show the lag of the job. Nothing is read from it. `off`: positions are committed to no group. Default: "
        "`samzapy-NAME-ID`.",
    ),
    ConfigKey(
        name="job.coordinator.replication.factor",
        kind="count",
        least=1,
        meaning="Replicas of samzapy's own topics; default: min(3, brokers).",
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
        meaning="Election session timeout. A leader that sends Kafka no heartbeat for this time is replaced. A "
        "leader that has not verified its stream for this time stops answering. Brokers refuse less than their "
        "group.min.session.timeout.ms.",
    ),
    ConfigKey(
        name="job.coordinator.election.heartbeat.ms",
        default="500",
        kind="ms",
        least=1,
        meaning="Interval of a candidate's heartbeats to Kafka; at most a third of the session.",
    ),
    ConfigKey(
        name="job.container.heartbeat.ms",
        default="5000",
        kind="ms",
        least=1,
        meaning="Maximum time between heartbeats of a container; at most half of job.container.lease.ms. News that "
        "others wait for is sent within a second, and an unanswered heartbeat is repeated within a second.",
    ),
    ConfigKey(
        name="job.container.progress.log.ms",
        default="60000",
        kind="ms",
        of_process=True,
        meaning="Time between two lines about progress in the log of a container: records, rate, and the task that is "
        "furthest behind. 0: none.",
    ),
    ConfigKey(
        name="job.container.lease.ms",
        default="15000",
        kind="ms",
        meaning="How long a container keeps working after the last heartbeat that was answered `alive`. Must be "
        "longer than an election, so that containers survive a change of leader.",
    ),
    ConfigKey(
        name="job.container.grace.ms",
        default="600000",
        kind="ms",
        meaning="How long a container with an expired lease stays idle, waiting for a coordinator, before it exits.",
    ),
    ConfigKey(
        name="job.container.lost.ms",
        default="20000",
        kind="ms",
        meaning="A container that sends no heartbeat for this time is declared lost; must exceed the lease plus "
        "clock drift.",
    ),
    ConfigKey(
        name="job.debounce.time.ms",
        default="20000",
        kind="ms",
        meaning="How long the coordinator waits after a processor joins a running job, to plan for several at once.",
    ),
    ConfigKey(
        name="job.processor.grace.ms",
        default="20000",
        kind="ms",
        meaning="How long a processor without a container keeps its tasks. If a container comes back in time, it "
        "continues with them.",
    ),
    ConfigKey(
        name="job.release.timeout.ms",
        default="60000",
        kind="ms",
        least=1,
        meaning="A container that does not release a revoked task within this time is declared lost. Must exceed "
        "job.shutdown.drain.ms plus a restart of the query.",
    ),
    ConfigKey(
        name="job.placement.signature.required",
        of_process=True,
        default="false",
        choices=("true", "false"),
        meaning="true: requests on the placement topic must be signed with a credential that is derived from "
        "job.coordinator.secret; others are refused. false: a request may be unsigned, but a wrong signature is "
        "refused (docs/reference/placement-messages.md#signatures).",
    ),
    ConfigKey(
        name="job.placement.expiry.ms",
        default="600000",
        kind="ms",
        least=1,
        meaning="Default expiry of requests on the placement topic, counted from when they are read; a requestExpiry "
        "in the request overrides it. A request not done in time fails; a move fails if its container is not ready. "
        "Must exceed job.placement.tries.max failed starts plus a restore of the state.",
    ),
    ConfigKey(
        name="job.placement.retention.ms",
        default="86400000",
        kind="ms",
        meaning="How long a finished request and its response stay on the placement topic. Those of an earlier run "
        "are removed at once.",
    ),
    ConfigKey(
        name="job.placement.uuids.max",
        default="20000",
        kind="count",
        least=1,
        meaning="How many finished requests are remembered, so that none is done twice. A request older than the "
        "forgotten ones is refused.",
    ),
    ConfigKey(
        name=COUNT_KEY,
        default="1",
        kind="count",
        least=1,
        most=10_000,
        meaning="Number of containers that `samzapy job submit` starts; unused for self-managed containers. A job "
        "keeps the number that it was scaled to until another one is submitted.",
    ),
    ConfigKey(
        name="job.host-affinity.enabled",
        default="true",
        choices=("true", "false"),
        meaning="true: a restarted container is requested on the last host of its processor. false: on any host.",
    ),
    ConfigKey(
        name="job.standbytasks.replication.factor",
        default="1",
        kind="count",
        least=1,
        most=11,
        meaning="Number of copies of each task's local state. 2 gives every container that the coordinator starts "
        "one standby on another host, which takes over if the container is lost (docs/guides/standby.md). A job "
        "without stores has no standbys.",
    ),
    ConfigKey(
        name="cluster-manager.fault-domain-aware.standby.enabled",
        default="false",
        choices=("true", "false"),
        meaning="true: a standby also avoids the fault domain of its container (locationid.provider.factory). false: "
        "it avoids only the host.",
    ),
    ConfigKey(
        name="job.placement.tries.max",
        default="3",
        kind="count",
        least=1,
        meaning="Maximum number of containers started for a move, one after the other, before it fails.",
    ),
    ConfigKey(
        name="cluster-manager.container.request.timeout.ms",
        default="120000",
        kind="ms",
        least=1,
        meaning="How long a requested container may take until its first heartbeat, including the start of Spark. "
        "Then it is declared lost, and the next one is requested on another host. Samza's default is 5 s, without "
        "the start.",
    ),
    ConfigKey(
        name="cluster-manager.container.retry.count",
        default="8",
        kind="count",
        meaning="How many successive failures of a processor's containers lead to a new container; 0: none. Negative "
        "numbers, which mean unlimited in Samza, are refused.",
    ),
    ConfigKey(
        name="cluster-manager.container.retry.window.ms",
        default="300000",
        kind="ms",
        meaning="Failures are counted within this time from the first one; a later failure starts a new count.",
    ),
    ConfigKey(
        name="cluster-manager.container.fail.job.after.retries",
        default="true",
        choices=("true", "false"),
        meaning="true: the job ends when the containers of a processor fail too often. false: it continues without "
        "that processor, and tries again after cluster-manager.container.retry.window.ms.",
    ),
    ConfigKey(
        name="cluster.manager",
        of_process=True,
        choices=CLUSTER_MANAGERS,
        meaning="Cluster manager of `samzapy job submit`, like its --cluster (docs/guides/cluster.md). `process`: "
        "spark-submit on this machine; `standalone`: drivers of a Spark standalone cluster.",
    ),
    ConfigKey(
        name="cluster.process.hosts",
        of_process=True,
        kind="list",
        default="localhost:8",
        meaning="For `process`: logical hosts of this machine, each with its own directory, and the maximum number "
        "of containers of each: `h1:2, h2:2`.",
    ),
    ConfigKey(
        name="cluster.process.dir",
        of_process=True,
        meaning="For `process`: directory of the logical hosts, with local state and logs of containers.",
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
        meaning="Memory in MiB of a container's JVM; its Python workers need memory besides. With --cluster process "
        "it is used only if it is set and spark-submit's options do not set it.",
    ),
    ConfigKey(
        name=CORES_KEY,
        default="1",
        kind="count",
        least=1,
        most=512,
        of_process=True,
        meaning="Cores of a container, which are its worker slots. With --cluster process it is used only if it is "
        "set and spark-submit's options do not set --master; else Spark uses all cores that the process may use.",
    ),
    ConfigKey(
        name="cluster.standalone.rest.url",
        of_process=True,
        meaning="REST submission address of a Spark standalone master, `http://host:6066` "
        "(docs/guides/spark-standalone.md).",
    ),
    ConfigKey(
        name="cluster.standalone.page.url",
        of_process=True,
        meaning="Web page of that master, `http://host:8080`; lists workers and free resources.",
    ),
    ConfigKey(
        name="systems.<system>.bootstrap.servers",
        meaning="Addresses of the Kafka cluster, `host:port,host:port`. Required for the default system.",
    ),
    ConfigKey(
        name="systems.<system>.samza.offset.default",
        default="upcoming",
        choices=("oldest", "upcoming"),
        meaning="Start offset of a partition that was never read before.",
    ),
    ConfigKey(
        name="systems.<system>.samza.offset.end",
        choices=("head",),
        meaning="head: streams are read up to their end at the start of the run. A job whose inputs all have an end "
        "exits with code 0 after reading them. Unset: streams are read forever.",
    ),
    ConfigKey(
        name="systems.<system>.samza.key.serde",
        default="bytes",
        choices=KEY_SERDES,
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
        choices=KEY_SERDES,
        meaning="Serde of one stream's keys; default: the serde of the system.",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.msg.serde",
        choices=SERDES,
        meaning="Serde of one stream's values; default: the serde of the system.",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.offset.default",
        choices=("oldest", "upcoming"),
        meaning="Start offset of this stream; default: that of the system. In all keys of a stream, a pattern "
        "`~orders-.*` may replace the name and applies to every matching stream.",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.offset.end",
        choices=("head",),
        meaning="End of this stream; default: that of the system.",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.reset.offset",
        choices=("true", "false"),
        default="false",
        meaning="true: each run of the job starts this stream at samza.offset.default and ignores earlier positions. "
        "A run begins when the job is started after all its processors were stopped; a crash continues it.",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.bootstrap",
        choices=("true", "false"),
        default="false",
        meaning="true: a task that starts before the end of this stream reads it up to that end before any other "
        "input. In each micro-batch it comes first. A new job needs samza.offset.default=oldest to read it at all "
        "(docs/guides/planning.md).",
    ),
    ConfigKey(
        name="systems.<system>.streams.<stream>.samza.priority",
        kind="count",
        default="0",
        most=2**31 - 1,
        meaning="In a micro-batch a task handles streams with a larger number first, and streams of equal priority "
        "in the order of task.inputs.",
    ),
    ConfigKey(
        name="systems.<system>.client.<property>",
        may_be_secret=True,
        meaning="A property of librdkafka (security.protocol). Properties that also apply to Spark's source: "
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
        meaning="Serde of the store's sub-keys: `string` or `bytes`. A task class declares those of a map.",
    ),
    ConfigKey(
        name="stores.<name>.scope",
        default="key",
        choices=STORE_SCOPES,
        meaning="Owner of the entries. `key`: the key of the current message; the only choice for state by key. "
        "`broadcast`: every task has all entries; written only while a broadcast message is handled, read at any "
        "time. `task`: the task, at any time; the elasticity factor of the job cannot change then.",
    ),
    ConfigKey(
        name="stores.<name>.kind",
        default="value",
        choices=STORE_KINDS,
        meaning="Written by samzapy; do not set it. Holds what a task class declares.",
    ),
    ConfigKey(
        name="stores.<name>.ttl.ms",
        kind="ms",
        meaning="Written by samzapy; do not set it. Holds the `ttl` that a task class declares.",
    ),
    ConfigKey(
        name="stores.<name>.ttl.clock",
        default="host",
        choices=TTL_CLOCKS,
        meaning="Written by samzapy; do not set it. The clock by which a `ttl` goes: that of the host, or event time.",
    ),
    ConfigKey(
        name="stores.<name>.drop",
        choices=("true", "false"),
        default="false",
        meaning="true: the job has no such store any more, and lets its entries go. Without this line a store with "
        "entries cannot be left out. Its changelog topic stays until `samzapy state drop`, and until then its name "
        "cannot be used again.",
    ),
    ConfigKey(
        name="stores.<name>.changelog.replication.factor",
        kind="count",
        least=1,
        meaning="Replicas of the store's changelog topic.",
    ),
    ConfigKey(
        name="stores.<name>.size.max.bytes",
        default="17179869184",
        kind="bytes",
        meaning="Largest size of a task's local store file; LMDB reserves address space, not disk.",
    ),
)

# Client properties that are refused, because ownership, order or exactly-once depend on them.
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
    # These show that a transaction has ended only once (`stream.end_txn_guard`).
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "statistics.interval.ms",
    "bootstrap.servers",
    "metadata.broker.list",
    "allow.auto.create.topics",
)
