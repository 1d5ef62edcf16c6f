"""Creating topics where the controller leaves the metadata for a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # its stubs forget to export them

from samzapy.testing.topics import create_topics


class LeavingController:
    """An admin client whose first answers are lost.

    Each request arrives, and the first `lost` ones get no answer.
    """

    def __init__(self, lost: int, topics: Sequence[str] = ()) -> None:
        self.lost, self.topics = lost, list(topics)

    def create_topics(self, topics: Sequence[NewTopic]) -> Mapping[str, Future[None]]:
        self.lost -= 1
        return {topic.topic: self._answer(topic.topic) for topic in topics}

    def _answer(self, name: str) -> Future[None]:
        answer: Future[None] = Future()
        exists = name in self.topics
        self.topics += [] if exists else [name]
        if self.lost >= 0:
            answer.set_exception(KafkaException(KafkaError(KafkaError._DESTROY_BROKER)))
        elif exists:
            answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
        else:
            answer.set_result(None)
        return answer


def test_a_request_whose_answer_is_lost_is_repeated() -> None:
    admin = LeavingController(2)

    create_topics(admin, [NewTopic("orders", 4), NewTopic("rules", 1)])  # type: ignore[arg-type]

    assert ["orders", "rules"] == admin.topics
    assert -1 == admin.lost


@pytest.mark.parametrize(
    ("admin", "code"),
    [
        (LeavingController(100), KafkaError._DESTROY_BROKER),
        (LeavingController(0, ["orders"]), KafkaError.TOPIC_ALREADY_EXISTS),
    ],
)
def test_a_controller_that_never_answers_and_a_topic_of_another_are_errors(
    admin: LeavingController, code: int
) -> None:
    with pytest.raises(KafkaException) as error:
        create_topics(admin, [NewTopic("orders", 4)])  # type: ignore[arg-type]

    assert code == error.value.args[0].code()
