from __future__ import annotations

from samzapy.adapters.kafka.broker_watch import Silence

SERVERS = "broker-1:9092,broker-2:9092"


def test_brokers_without_an_answer_are_named_once_and_their_answer_too() -> None:
    silence = Silence(SERVERS)

    lines = [
        silence.answered(9.0),
        *(silence.unanswered(at, at + 1.0, lambda: "timed out") for at in (10.0, 11.0, 12.0, 13.0, 14.0)),
        silence.answered(15.5),
        silence.answered(16.5),
    ]

    assert [
        None,
        None,
        None,
        f"no broker of {SERVERS} has answered for 3 s; nothing is read or committed: timed out",
        None,
        None,
        f"a broker of {SERVERS} answers again, after 6 s or more",
        None,
    ] == lines


def test_a_short_silence_is_not_logged() -> None:
    silence = Silence(SERVERS)

    assert silence.unanswered(10.0, 11.0, lambda: "timed out") is None
    assert silence.unanswered(11.0, 12.0, lambda: "timed out") is None
    assert silence.answered(12.1) is None


def test_a_later_silence_is_logged_again() -> None:
    silence = Silence(SERVERS)

    for begin in (10.0, 20.0):
        assert silence.unanswered(begin, begin + 1.0, lambda: "timed out") is None
        assert silence.unanswered(begin + 2.0, begin + 3.0, lambda: "timed out") is not None
        assert silence.answered(begin + 4.0) is not None
