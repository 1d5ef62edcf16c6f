"""The error policy: a failed message ends the batch, or its dead letter is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from samzapy.config import JobConfig
from samzapy.container.task.dead_letter_limit import DeadLetterLimit
from samzapy.container.task.dead_letters import DeadLetter
from samzapy.container.task.output_checks import OutputChecks
from samzapy.container.task.outputs import without_zero_characters
from samzapy.container.task.ports import Producer
from samzapy.container.task.record_size import too_large
from samzapy.container.task.topic_limits import TopicLimits
from samzapy.container.task.user_errors import shown_key, user_traceback
from samzapy.container.task.work_plan import Message
from samzapy.errors import (
    ConfigError,
    FencedError,
    LocalStateError,
    MissingTopicError,
    OutsideMessageError,
    ProducerError,
    UndeclaredError,
)
from samzapy.model.job import TaskName
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.text import error_text

OF_NO_MESSAGE = (LocalStateError, ProducerError, FencedError)
"""Errors of the disk or the broker, whichever message is in hand."""
OF_THE_JOB = (MissingTopicError, ConfigError, OutsideMessageError)
"""Mistakes of the job, which end it under every policy: otherwise each message would become a dead letter."""
_MISTAKES = (UndeclaredError, ImportError, NameError)
"""Mistakes of the job, which the next message would meet as well: they end the job under every policy.

A local variable without a value, which is a NameError too, may be of one message.
"""


def _is_mistake(error: BaseException) -> bool:
    return isinstance(error, _MISTAKES) and not isinstance(error, UnboundLocalError)


class MessageFailed(Exception):
    """A message ends the batch; the text names task, SSP, offset and key."""


def message_place(ssp: SystemStreamPartition, offset: int, key: bytes | None) -> str:
    """A message, named for an operator."""
    return f"{ssp} offset {offset}, key {shown_key(key)}"


@dataclass(frozen=True, slots=True)
class _Failure:
    """Where user code failed, the text of its error, and its traceback."""

    where: str
    text: str
    trace: str

    def ends(self, more: str) -> MessageFailed:
        """The error that ends the batch."""
        return MessageFailed(f"{self.where}: {self.text}\n{more}".rstrip())


class ErrorPolicy:
    """The error policy of one task."""

    def __init__(
        self, config: JobConfig, task_name: TaskName, checks: OutputChecks, wall_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._task_name = task_name
        self._checks = checks
        self._wall_ms = wall_ms
        self._limit = DeadLetterLimit(config)

    def failed(self, ssp: SystemStreamPartition, message: Message, text: object) -> MessageFailed:
        """The error that ends the batch at `message`."""
        return MessageFailed(f"{self._where(message_place(ssp, message[1], message[2]))}: {text}")

    def apply(
        self, ssp: SystemStreamPartition, message: Message, error: BaseException, producer: Producer, number: int
    ) -> None:
        """Send the dead letter of a message that failed with `error`.

        Args:
            number: the message's among those of the task.

        Raises:
            MessageFailed: the policy is `fail`, the error is a mistake of the job's, the dead letter cannot be sent, or
                it is one too many.
        """
        _, offset, key, value, timestamp_ms, headers = message
        failure = self._failure(message_place(ssp, offset, key), error)
        limits = self._limits(producer)
        now_ms = self._wall_ms()
        # Brokers refuse a time that is too far from now, and then the batch would fail each time.
        # The client takes 0 for the time of sending.
        is_taken = 0 != timestamp_ms <= now_ms and (limits is None or not limits.refusal(b"", timestamp_ms, now_ms))
        letter = DeadLetter(
            key=key,
            value=value,
            own_headers=tuple(without_zero_characters(headers)),
            place=(
                ("task", self._task_name.encode()),
                ("ssp", str(ssp).encode()),
                ("offset", str(offset).encode()),
                *(() if is_taken else (("timestamp", str(timestamp_ms).encode()),)),
            ),
            error=failure.text.encode(),
            traceback=(failure.trace or failure.text).encode(),
        )
        self._send(letter, f"{ssp}@{offset}", timestamp_ms if is_taken else now_ms, failure, producer)
        too_many = self._limit.failed(number)
        if too_many:
            raise failure.ends(too_many)

    def apply_to_timed_call(
        self,
        headers: Sequence[tuple[str, bytes]],
        key: bytes | None,
        place: str,
        error: BaseException,
        producer: Producer,
    ) -> None:
        """Send the dead letter of a timer or window that failed with `error`.

        Args:
            headers: name the call.

        Raises:
            MessageFailed: as `apply`, but any number may fail.
        """
        failure = self._failure(place, error)
        letter = DeadLetter(
            key=key,
            value=b"",
            own_headers=(),
            place=(("task", self._task_name.encode()), *headers),
            error=failure.text.encode(),
            traceback=(failure.trace or failure.text).encode(),
        )
        self._send(letter, f"{self._task_name} {place}", self._wall_ms(), failure, producer)

    def _where(self, place: str) -> str:
        return f"task {self._task_name} failed at {place}"

    def _failure(self, place: str, error: BaseException) -> _Failure:
        """The failure, unless the policy ends the batch by it."""
        failure = _Failure(self._where(place), error_text(error), user_traceback(error))
        if isinstance(error, OF_THE_JOB):
            raise MessageFailed(f"{failure.where}: {error}") from error
        if self._config.error_policy == "fail" or _is_mistake(error):
            raise failure.ends(failure.trace)
        return failure

    @property
    def _topic(self) -> str:
        assert self._config.dead_letter_output is not None
        return self._config.dead_letter_output.partition(".")[2]

    def _send(self, letter: DeadLetter, name: str, timestamp_ms: int, failure: _Failure, producer: Producer) -> None:
        """Send a dead letter, cut to what its topic takes.

        Args:
            name: its key, where the topic wants one and it has none.
        """
        topic = self._topic
        # Asks for the topic, whose bound of a record is known then.
        limits = self._limits(producer)
        if letter.key is None and limits is not None and limits.wants_keys:
            letter = letter.with_key(name.encode())
        size_max = self._checks.record_bytes_max[topic]
        letter = letter.fitted(size_max)
        if letter.size > size_max:
            raise failure.ends(too_large(f"its dead letter to {topic}", letter.size, size_max))
        producer.produce(topic, letter.key, letter.value, None, letter.headers, timestamp_ms)

    def _limits(self, producer: Producer) -> TopicLimits | None:
        try:
            return self._checks.limits_of(producer, self._topic)
        except ConfigError as error:
            raise MessageFailed(f"task.dead.letter.output: {error}") from error
