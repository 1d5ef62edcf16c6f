"""One deadline covers all questions of a command, by a clock that the test moves."""

import re

import pytest
from confluent_kafka import KafkaError

from samzapy.adapters.kafka.broker_wait import CommandWait, QuestionWait
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.errors import BrokerUnavailableError, MissingTopicError, SamzapyError

REFUSED = KafkaError(KafkaError._TRANSPORT, "Connect to ipv4#127.0.0.1:1 failed: Connection refused")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def a_wait(clock: Clock, warnings: list[str] | None = None, *, is_for_first_answer: bool = False) -> CommandWait:
    say = [].append if warnings is None else warnings.append
    return CommandWait(10.0, say, is_for_first_answer=is_for_first_answer, clock=clock)


def fail(wait: QuestionWait, error: SamzapyError) -> None:
    with pytest.raises(type(error)), wait:
        raise error


def test_the_time_without_an_answer_runs_on_through_several_questions(clock: Clock) -> None:
    wait = a_wait(clock)
    for _ in range(2):
        fail(wait, BrokerUnavailableError("no broker answered"))
        clock.now_s += 6.0

    assert wait.waited_s == 12.0
    assert wait.is_over


def test_an_answer_restarts_the_time_limit(clock: Clock) -> None:
    wait = a_wait(clock)
    with wait:
        clock.now_s += 6.0
    with wait:
        assert wait.waited_s == 0.0


def test_an_error_that_a_broker_answers_restarts_the_time_limit(clock: Clock) -> None:
    wait = a_wait(clock)
    fail(wait, MissingTopicError("no such topic"))
    clock.now_s += 6.0
    with wait:
        assert wait.waited_s == 0.0


def test_a_question_after_the_time_is_over_has_one_more_second(clock: Clock) -> None:
    wait = a_wait(clock)
    fail(wait, BrokerUnavailableError("no broker answered"))
    clock.now_s += 60.0
    wait.remind("b:1", list)

    with wait:
        assert wait.try_s(5.0) == pytest.approx(1.0)


def test_a_command_that_continues_without_an_answer_restarts_the_time_limit(clock: Clock) -> None:
    wait = a_wait(clock)
    fail(wait, BrokerUnavailableError("no broker answered"))
    clock.now_s += 60.0
    wait.restart()

    assert wait.waited_s == 0.0


def test_a_try_ends_when_the_operator_must_be_notified_and_at_the_time_limit(clock: Clock) -> None:
    wait = a_wait(clock)
    with wait:
        clock.now_s += 1.5
        assert wait.try_s(5.0) == pytest.approx(0.5)
        clock.now_s += 0.5
        wait.remind("b:1", list)
        assert wait.try_s(5.0) == 5.0
        clock.now_s += 7.0
        assert wait.try_s(5.0) == pytest.approx(1.0)


def test_the_operator_is_notified_once_after_two_seconds_with_addresses_and_reason(clock: Clock) -> None:
    warnings: list[str] = []
    wait = a_wait(clock, warnings)
    with wait:
        clock.now_s += 1.9
        wait.remind("b:1,c:1", lambda: [REFUSED])
        assert warnings == []
        clock.now_s += 0.1
        wait.remind("b:1,c:1", lambda: [REFUSED])
        wait.remind("b:1,c:1", lambda: [REFUSED])

    (line,) = warnings
    assert re.fullmatch(
        r"waiting for a broker of b:1,c:1, .* for 2 s: .*Connection refused; gives up after 10 s", line
    )


def test_only_the_first_question_of_a_command_that_writes_has_its_wait(clock: Clock) -> None:
    wait = a_wait(clock, is_for_first_answer=True)
    connection = KafkaConnection(bootstrap_servers="b:1", command_wait=wait)
    fail(connection.wait(60.0), BrokerUnavailableError("no broker answered"))
    assert connection.wait(60.0) is wait

    with connection.wait(60.0):
        pass

    assert connection.wait(60.0).deadline_s == 60.0


def test_without_a_command_each_question_has_its_own_deadline(clock: Clock) -> None:
    wait = KafkaConnection(bootstrap_servers="b:1").wait(60.0)

    assert wait.deadline_s == 60.0
    assert wait.try_s(5.0) == 5.0
