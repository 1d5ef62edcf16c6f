from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from samzapy.adapters.kafka.broker_probe import BrokerAddress, silence_of
from samzapy.adapters.kafka.broker_watch import EachBroker, Silence

SERVERS = "broker-1:9092,broker-2:9092"


def test_brokers_without_an_answer_are_named_once_and_their_answer_too() -> None:
    silence = Silence.of_all(SERVERS)

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
    silence = Silence.of_all(SERVERS)

    assert silence.unanswered(10.0, 11.0, lambda: "timed out") is None
    assert silence.unanswered(11.0, 12.0, lambda: "timed out") is None
    assert silence.answered(12.1) is None


def test_a_later_silence_is_logged_again() -> None:
    silence = Silence.of_all(SERVERS)

    for begin in (10.0, 20.0):
        assert silence.unanswered(begin, begin + 1.0, lambda: "timed out") is None
        assert silence.unanswered(begin + 2.0, begin + 3.0, lambda: "timed out") is not None
        assert silence.answered(begin + 4.0) is not None


ONE, TWO = BrokerAddress(1, "broker-1", 9092), BrokerAddress(2, "broker-2", 9092)
THREE = BrokerAddress(3, "broker-3", 9092)


def test_one_silent_broker_of_several_is_named_once_within_five_seconds_and_again_when_it_answers() -> None:
    each = EachBroker()

    lines = [
        *each.lines({ONE: "", TWO: ""}, 9.0, 9.1),
        *(line for at in range(10, 16) for line in each.lines({ONE: "", TWO: "it hangs"}, at, at + 1.0)),
        *each.lines({ONE: "", TWO: ""}, 16.0, 16.1),
    ]

    assert [
        (
            logging.WARNING,
            "broker 2 (broker-2:9092) has answered nothing for 3 s; partitions that it leads are neither read nor "
            "written: it hangs",
        ),
        (logging.INFO, "broker 2 (broker-2:9092) answers again, after 6 s or more"),
    ] == lines


def test_a_broker_that_the_cluster_names_no_more_while_it_is_away_answers_again_when_it_is_back() -> None:
    each = EachBroker()
    others = {ONE: "", THREE: ""}

    lines = [
        *(line for at in range(10, 14) for line in each.lines({**others, TWO: "it hangs"}, at, at + 1.0)),
        *(line for at in range(14, 30) for line in each.lines(others, at, at + 0.1)),
        *each.lines({**others, TWO: ""}, 30.0, 30.1),
        *each.lines({**others, TWO: ""}, 31.0, 31.1),
    ]

    assert [logging.WARNING, logging.INFO] == [level for level, _ in lines]
    assert "broker 2 (broker-2:9092) answers again, after 20 s or more" == lines[1][1]


def test_a_round_without_any_answer_names_no_single_broker() -> None:
    each = EachBroker()

    assert [] == [line for at in range(9) for line in each.lines({ONE: "it hangs", TWO: "it hangs"}, at, at + 1.0)]


@contextmanager
def a_server(answer: bytes | None) -> Iterator[BrokerAddress]:
    """Accepts connections; None: it reads nothing and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            kept = []
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                kept.append(connection)
                if answer is not None:
                    with connection:
                        connection.recv(64)
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield BrokerAddress(1, *server.getsockname())


def test_a_server_that_accepts_and_never_answers_is_silent() -> None:
    with a_server(None) as hangs:
        assert "it sends nothing within 0.2 s" == silence_of(hangs, is_tls=False, wait_s=0.2)
        assert "it sends nothing within 0.2 s" == silence_of(hangs, is_tls=True, wait_s=0.2)


def test_a_server_that_answers_anything_is_not_silent() -> None:
    with a_server(b"\x00\x00") as answers:
        assert "" == silence_of(answers, is_tls=False, wait_s=20.0)
        assert "" == silence_of(answers, is_tls=True, wait_s=20.0)


def test_a_tls_handshake_is_begun_and_left_without_an_alert() -> None:
    """A broker that asks for a certificate logs each handshake that fails."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                received.append(connection.recv(65_536))
                connection.sendall(b"\x16")
                received.append(connection.recv(65_536))

        serving = threading.Thread(target=serve)
        serving.start()
        assert "" == silence_of(BrokerAddress(1, *server.getsockname()), is_tls=True, wait_s=20.0)
        serving.join(10)

    client_hello, rest = received
    assert b"\x16\x03" == client_hello[:2] and 5 + int.from_bytes(client_hello[3:5]) == len(client_hello)
    assert b"" == rest


def test_a_port_without_a_server_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = BrokerAddress(1, *server.getsockname())

    assert "it refuses connections" == silence_of(address, is_tls=False)
