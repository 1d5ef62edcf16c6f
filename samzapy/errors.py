"""The error tree. The branch answers one question: who can do something about it?

```
SamzapyError                          exit 1
├── ConfigError                       the operator, before anything started       exit 2
│   ├── UnknownConfigKeyError         ...says the nearest known key
│   ├── PartitionSchemeError          the inputs no longer fit the tasks that hold state
│   ├── PartitionerError              inputs of one task are partitioned by different hashes of the key
│   ├── GrouperError                  the job's own grouper gives an answer that cannot be used
│   ├── TaskModuleError               the job file does not import, or names no task
│   └── EnvironmentMissingError       Java, a jar, a directory: says what to install or fetch
├── RejectedError                     the caller: the state does not allow it     exit 3
├── LostContainerError                this execution was given up by the coordinator   exit 4
├── DeadlineError                     somebody else was too slow; says who and for how long   exit 5
├── TaskError                         the user's code, or its data                exit 7
│   ├── SlowMessageError              a message took longer than its transaction may be open
│   ├── UndeclaredError               user code names what the configuration does not declare
│   ├── OutsideMessageError           collector, store or context used after its message
│   └── WorkerDiedError               a message ends the worker process that handles it
├── LocalStateError                   the disk: full, or unreadable; the changelog still has everything   exit 1
│   └── DamagedStateError             ...it is not what was written: the next start rebuilds it
├── DataError                         a person: the data is not as it must be     exit 8
│   ├── MissingTopicError             an input that is not there
│   ├── TruncatedTopicError           a topic of ours that lost records from its end
│   ├── TopicPolicyError              a topic of ours with the wrong settings, or of another job
│   ├── TopicIdentityError            a topic that was deleted and made again
│   ├── LostRangeError                input that retention removed before it was read
│   └── CorruptRecordError            topic, partition, offset, key, and what did not decode
│       └── UnknownSchemaError        written by a release that this one cannot read
├── TemporaryError                    time: the only branch that is ever retried  exit 5
│   ├── BrokerUnavailableError
│   └── LaunchError                   a container cannot be started now: no slot, no answer
├── FencedError                       nobody: a newer owner has the transactional id   exit 4
├── ProducerError                     the producer is of no use any more: make a new one, read, decide again
│   └── UndeliveredError              the brokers were away; no record is to blame
└── StaleQueryError                   nobody: a worker of a query that has ended (`adapters.spark.slots`)
```

Every message says what was wanted, what was found, and what to do next. Broken invariants are
`assert`s and are never caught.
"""

from __future__ import annotations


class ExitCode:
    """What a samzapy process ends with; documented in `docs/reference/exit-codes.md`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    REJECTED = 3
    LOST = 4
    TIMED_OUT = 5
    DEGRADED = 6
    TASK_FAILED = 7
    BAD_DATA = 8


class SamzapyError(Exception):
    """Anything that samzapy raises on purpose. Its text is meant for the operator, without a stack trace."""

    exit_code = ExitCode.FAILED


class ConfigError(SamzapyError):
    """The configuration, the environment or the command line is wrong; nothing has started."""

    exit_code = ExitCode.USAGE


class UnknownConfigKeyError(ConfigError):
    """A key that no part of samzapy reads; the message names the nearest known one."""


class PartitionSchemeError(ConfigError):
    """The inputs or their partitions changed so that keyed state would be left behind; says which and the way out."""


class PartitionerError(ConfigError):
    """Inputs that one task reads are partitioned by different hashes of the key; says which ones, and by what."""


class GrouperError(ConfigError):
    """A grouper that the job brought along raises, or its answer leaves something out or gives it away twice."""


class TaskModuleError(ConfigError):
    """The job file cannot be imported, or does not say which task to run."""


class EnvironmentMissingError(ConfigError):
    """Something the machine must have is absent or too old: Java, a pinned jar, a writable directory."""


class RejectedError(SamzapyError):
    """The request is well formed, but the state does not allow it (for instance: the job already runs)."""

    exit_code = ExitCode.REJECTED


class LostContainerError(SamzapyError):
    """The coordinator gave this execution up: its tasks belong to somebody else, so it must stop."""

    exit_code = ExitCode.LOST


class DeadlineError(SamzapyError):
    """Something did not happen in time; the message says what was awaited and for how long."""

    exit_code = ExitCode.TIMED_OUT


class TaskError(SamzapyError):
    """User code failed on a message and the policy is `fail`; carries task, SSP, offset, key and traceback."""

    exit_code = ExitCode.TASK_FAILED


class SlowMessageError(TaskError):
    """A message took so long that the broker ended its transaction. It may be quicker the next time, so it is tried
    as often as other failures of a query before it ends the container."""


class UndeclaredError(TaskError):
    """User code names a store, an intermediate stream or an output that the configuration does not know. It is a
    mistake of the job's and fails no message: it ends the job under every policy."""


class OutsideMessageError(TaskError):
    """User code used a collector, a store or a context after the message that it was handed for."""


class WorkerDiedError(TaskError):
    """A message ended the worker process that handled it, also when it was tried alone, several times."""


class LocalStateError(SamzapyError):
    """A task's local state cannot be read or written. Never the message's fault: the batch fails, not the message."""


class DamagedStateError(LocalStateError):
    """A task's local state is not what was written to it. It is marked, and the next start rebuilds it from the
    changelog."""


class DataError(SamzapyError):
    """Data on a topic is not as it must be. Nothing is skipped: the affected part stops by name (law L9)."""

    exit_code = ExitCode.BAD_DATA


class MissingTopicError(DataError):
    """An input topic does not exist."""


class TopicPolicyError(DataError):
    """One of samzapy's own topics has settings under which data would be lost, or belongs to another job."""


class TopicIdentityError(DataError):
    """A topic was deleted and created again: its offsets no longer mean what was recorded."""


class LostRangeError(DataError):
    """Input between the checkpoint and the first record the topic still holds is gone, or lies past its end."""


class TruncatedTopicError(DataError):
    """A topic of ours ends before records that were read of it or written to it: the cluster lost them."""


class CorruptRecordError(DataError):
    """A record of ours cannot be read; the message holds topic, partition, offset, key and reason."""


class UnknownSchemaError(CorruptRecordError):
    """A record carries a schema fingerprint that this release does not ship: a newer release wrote it."""


class TemporaryError(SamzapyError):
    """Trying again later may help. tenacity retries this branch and no other."""

    exit_code = ExitCode.TIMED_OUT


class BrokerUnavailableError(TemporaryError):
    """No broker answered; the message says which addresses were tried and for how long."""


class LaunchError(TemporaryError):
    """A container cannot be started now: no slot is free, or the cluster manager does not answer. What can never be
    started is no error of a launcher but an execution that has ended (`model.launch.Launched`)."""


class FencedError(SamzapyError):
    """The transactional id has a newer owner, or this owner's transaction timed out: the two look the same.
    Drop state and read again; never retry with what is in memory."""

    exit_code = ExitCode.LOST


class ProducerError(SamzapyError):
    """A transaction ended in a way that leaves its outcome or the producer's state in doubt (law L5)."""


class UndeliveredError(ProducerError):
    """A transaction ended because the brokers did not answer or take its records in time: no record is to blame."""
