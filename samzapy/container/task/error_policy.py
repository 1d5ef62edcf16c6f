"""The error policy: a failed message ends the batch, or its dead letter is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        _, offset, key, *_ = message
        return MessageFailed(f"task {self._task_name} failed at {message_place(ssp, offset, key)}: {text}")

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
        text, trace = error_text(error), user_traceback(error)
        if self._config.error_policy == "fail" or _is_mistake(error):
            raise self.failed(ssp, message, f"{text}\n{trace}".rstrip())
        self._send_dead_letter(ssp, message, text, trace, producer)
        too_many = self._limit.failed(number)
        if too_many:
            raise self.failed(ssp, message, f"{text}\n{too_many}")

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
        text, trace = error_text(error), user_traceback(error)
        where = f"task {self._task_name} failed at {place}"
        if self._config.error_policy == "fail" or _is_mistake(error) or isinstance(error, OF_THE_JOB):
            raise MessageFailed(f"{where}: {text}\n{trace}".rstrip())
        assert self._config.dead_letter_output is not None
        topic = self._config.dead_letter_output.partition(".")[2]
        letter = DeadLetter(
            key=key,
            value=b"",
            own_headers=(),
            place=(("task", self._task_name.encode()), *headers),
            error=text.encode(),
            traceback=(trace or text).encode(),
        )
        # Asks for the topic, whose bound of a record is known then.
        limits = self._limits_of(producer, topic)
        if letter.key is None and limits is not None and limits.wants_keys:
            letter = letter.with_key(f"{self._task_name} {place}".encode())
        size_max = self._checks.record_bytes_max[topic]
        letter = letter.fitted(size_max)
        if letter.size > size_max:
            raise MessageFailed(f"{where}: {text}\n{too_large(f'its dead letter to {topic}', letter.size, size_max)}")
        producer.produce(topic, letter.key, letter.value, None, letter.headers, self._wall_ms())

    def _send_dead_letter(
        self, ssp: SystemStreamPartition, message: Message, text: str, trace: str, producer: Producer
    ) -> None:
        _, offset, key, value, timestamp_ms, headers = message
        assert self._config.dead_letter_output is not None
        topic = self._config.dead_letter_output.partition(".")[2]
        limits = self._limits_of(producer, topic)
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
            error=text.encode(),
            traceback=(trace or text).encode(),
        )
        if letter.key is None and limits is not None and limits.wants_keys:
            letter = letter.with_key(f"{ssp}@{offset}".encode())
        size_max = self._checks.record_bytes_max[topic]
        letter = letter.fitted(size_max)
        if letter.size > size_max:
            too_long = too_large(f"its dead letter to {topic}", letter.size, size_max)
            raise self.failed(ssp, message, f"{text}\n{too_long}")
        producer.produce(topic, letter.key, letter.value, None, letter.headers, timestamp_ms if is_taken else now_ms)

    def _limits_of(self, producer: Producer, topic: str) -> TopicLimits | None:
        try:
            return self._checks.limits_of(producer, topic)
        except ConfigError as error:
            raise MessageFailed(f"task.dead.letter.output: {error}") from error
