"""The error tree: each branch stands for the party that can act on the error.

```
SamzapyError                          exit 1
├── ConfigError                       the operator, before anything started       exit 2
│   ├── UnknownConfigKeyError         ...says the nearest known key
│   ├── PartitionSchemeError          the inputs no longer fit the tasks that hold state
│   ├── PartitionerError              inputs of one task are partitioned by different hashes of the key
│   ├── GrouperError                  the job's own grouper gives an answer that cannot be used
│   ├── TaskModuleError               the job file does not import, or names no task
│   └── EnvironmentMissingError       Java, a jar, a directory: is missing; names the remedy
├── RejectedError                     the caller: the state does not allow it     exit 3
├── LostContainerError                the coordinator declared this execution lost   exit 4
├── DeadlineError                     another party was too slow; names it and the time waited   exit 5
├── TaskError                         the user's code, or its data                 exit 7
│   ├── SlowMessageError              a message took longer than its transaction may be open
│   ├── UndeclaredError               user code names a stream or store that is not declared
│   ├── OutsideMessageError           collector, store or context used after its message
│   └── WorkerDiedError               a message ends the worker process that handles it
├── LocalStateError                   the disk: full, or unreadable; the changelog still has everything   exit 1
│   └── DamagedStateError             ...its content was changed: the next start rebuilds it
├── DataError                         the operator: the data is wrong               exit 8
│   ├── MissingTopicError             an input that is not there
│   ├── TruncatedTopicError           a topic of ours that lost records from its end
│   ├── TopicPolicyError              a topic of ours with the wrong settings, or of another job
│   ├── TopicIdentityError            a topic that was deleted and made again
│   ├── LostRangeError                input that retention removed before it was read
│   └── CorruptRecordError            topic, partition, offset, key, and the part that did not decode
│       └── UnknownSchemaError        written by a release that this one cannot read
├── TemporaryError                    time: the only branch that is ever retried  exit 5
│   ├── BrokerUnavailableError
│   └── LaunchError                   a container cannot be started now: no slot, no answer
├── FencedError                       no one: a newer owner has the transactional id   exit 4
├── ProducerError                     the producer is unusable: create a new one, read, decide again
│   └── UndeliveredError              the brokers were away; no record is to blame
├── StaleQueryError                   no one: a worker of a query that has ended (`adapters.spark.slots`)
└── RestoreEndedError                 no one: the container stops while it restores (`container.state_restore`)
```

Every message says the wanted state, the actual state, and the next step. Broken invariants are `assert`s and are never
caught.
"""

from __future__ import annotations


class ExitCode:
    """Exit codes of samzapy processes (`docs/reference/exit-codes.md`)."""

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
    """Base of all errors that samzapy raises on purpose.

    The message is written for the operator and printed without a stack trace."""

    exit_code = ExitCode.FAILED


class ConfigError(SamzapyError):
    """The configuration, environment or command line is wrong; nothing has started."""

    exit_code = ExitCode.USAGE


class UnknownConfigKeyError(ConfigError):
    """A key that no part of samzapy reads; the message names the nearest known one."""


class PartitionSchemeError(ConfigError):
    """The inputs or their partitions no longer fit the tasks that hold keyed state.

    The message names the inputs and the remedy."""


class PartitionerError(ConfigError):
    """Inputs of one task are partitioned by different hashes of the key.

    The message names the inputs and their hashes."""


class GrouperError(ConfigError):
    """A custom grouper raised an error, or its result is incomplete or ambiguous."""


class TaskModuleError(ConfigError):
    """The job file cannot be imported, or does not say which task to run."""


class EnvironmentMissingError(ConfigError):
    """Java, a pinned jar or a writable directory is missing, or too old."""


class RejectedError(SamzapyError):
    """The request is valid, but the state does not allow it: the job already runs."""

    exit_code = ExitCode.REJECTED


class LostContainerError(SamzapyError):
    """The coordinator declared this execution lost; it must stop.

    Its tasks belong to another container."""

    exit_code = ExitCode.LOST


class DeadlineError(SamzapyError):
    """A deadline passed; the message names the awaited event and the time."""

    exit_code = ExitCode.TIMED_OUT


class TaskError(SamzapyError):
    """User code failed on a message and the error policy is `fail`.

    The message carries task, SSP, offset, key and traceback."""

    exit_code = ExitCode.TASK_FAILED


class SlowMessageError(TaskError):
    """A message took so long that the broker aborted its transaction.

    It is retried like other failures of a query before the container ends."""


class UndeclaredError(TaskError):
    """User code names a store, intermediate stream or output that is not configured.

    It is a mistake of the job, not of a message: it ends the job under every error policy."""


class OutsideMessageError(TaskError):
    """User code used a collector, store or context after its message was handled."""


class WorkerDiedError(TaskError):
    """A message killed its worker process, even when it was retried alone."""


class LocalStateError(SamzapyError):
    """The local state of a task cannot be read or written.

    No message is at fault: the batch fails, not the message."""


class DamagedStateError(LocalStateError):
    """The local state of a task is damaged.

    It is marked, and the next start rebuilds it from the changelog."""


class DataError(SamzapyError):
    """Data on a topic is wrong.

    Nothing is skipped: the affected part stops with a named error (invariant L9)."""

    exit_code = ExitCode.BAD_DATA


class MissingTopicError(DataError):
    """An input topic does not exist."""


class TopicPolicyError(DataError):
    """A topic of samzapy has settings that would lose data, or belongs to another job."""


class TopicIdentityError(DataError):
    """A topic was deleted and created again, so recorded offsets are invalid."""


class LostRangeError(DataError):
    """The checkpoint lies before the first record of the topic, or past its end."""


class TruncatedTopicError(DataError):
    """A topic of samzapy ends before records that it had: the cluster lost them."""


class CorruptRecordError(DataError):
    """A record of samzapy cannot be read.

    The message has topic, partition, offset, key and reason."""


class UnknownSchemaError(CorruptRecordError):
    """A record has a schema fingerprint of a newer release."""


class TemporaryError(SamzapyError):
    """Trying again later may help. tenacity retries this branch and no other."""

    exit_code = ExitCode.TIMED_OUT


class BrokerUnavailableError(TemporaryError):
    """No broker answered; the message names the addresses tried and the time."""


class LaunchError(TemporaryError):
    """A container cannot be started now: no free slot, or no answer.

    A container that can never be started is not this error, but an execution that has ended
    (`model.launch.Launched`)."""


class FencedError(SamzapyError):
    """The transactional id has a newer owner, or the transaction timed out.

    Both look the same to a producer. Drop the state in memory and read again; never retry with it."""

    exit_code = ExitCode.LOST


class ProducerError(SamzapyError):
    """The outcome of a transaction, or the state of its producer, is unknown (L5)."""


class UndeliveredError(ProducerError):
    """A transaction failed because brokers did not accept its records in time.

    No record is to blame."""
