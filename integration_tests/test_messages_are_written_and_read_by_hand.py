"""`samzapy dev produce` and `samzapy dev consume` against a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer

from samzapy.testing.broker import DevBroker
from samzapy.testing.topics import make_topics

SAMZAPY = str(Path(sys.executable).parent / "samzapy")


def samzapy(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([SAMZAPY, *arguments], input=stdin, capture_output=True, text=True, timeout=60)


def test_lines_become_messages_and_messages_become_lines(broker: DevBroker) -> None:
    servers = ("--bootstrap-servers", broker.bootstrap_servers)
    make_topics(broker.bootstrap_servers, {"by-hand": 3, "copy-of-by-hand": 3})

    produced = samzapy("dev", "produce", "by-hand", *servers, stdin='a\t{"n": 1}\nb\t{"n": 2}\nno key\n')
    shown = samzapy("dev", "consume", "by-hand", *servers)

    assert (0, "by-hand: 3 messages written\n") == (produced.returncode, produced.stderr)
    assert ["\tno key", 'a\t{"n": 1}', 'b\t{"n": 2}'] == sorted(shown.stdout.splitlines()), shown.stderr

    as_json = samzapy("dev", "consume", "by-hand", "-o", "json", *servers).stdout
    assert 0 == samzapy("dev", "produce", "copy-of-by-hand", "-f", "json", *servers, stdin=as_json).returncode
    copied = samzapy("dev", "consume", "copy-of-by-hand", "-o", "json", *servers).stdout
    assert sorted(as_json.splitlines()) == sorted(copied.splitlines())
    assert {"a", "b", None} == {json.loads(line)["key"] for line in copied.splitlines()}


def test_only_committed_messages_are_shown_and_a_count_ends_a_follower(broker: DevBroker) -> None:
    servers = ("--bootstrap-servers", broker.bootstrap_servers)
    make_topics(broker.bootstrap_servers, {"by-hand-committed": 1})
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "by-hand", "partitioner": "murmur2"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("by-hand-committed", b"aborted")
    producer.flush(30)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce("by-hand-committed", b"committed", key=b"k")
    producer.commit_transaction(30)

    follower = subprocess.Popen(
        [SAMZAPY, "dev", "consume", "by-hand-committed", "--follow", "-n", "2", *servers],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    with follower.stdout as lines:
        assert "k\tcommitted\n" == lines.readline()
        assert 0 == samzapy("dev", "produce", "by-hand-committed", *servers, stdin="later\n").returncode
        assert "\tlater\n" == lines.readline()
    assert 0 == follower.wait(30)


def test_a_missing_topic_and_a_bad_line_are_named_and_lose_nothing(broker: DevBroker) -> None:
    servers = ("--bootstrap-servers", broker.bootstrap_servers)
    make_topics(broker.bootstrap_servers, {"by-hand-bad-line": 1})

    missing = samzapy("dev", "produce", "never-made", *servers, stdin="a\n")
    bad = samzapy("dev", "produce", "by-hand-bad-line", "-f", "json", *servers, stdin='{"value": "kept"}\n{"value"\n')
    shown = samzapy("dev", "consume", "by-hand-bad-line", *servers)

    assert "samzapy dev topic never-made creates it" in missing.stderr
    assert missing.returncode not in (0, 1)
    assert "line 2: wanted an object like" in bad.stderr
    assert "by-hand-bad-line: 1 messages written" in bad.stderr
    assert "\tkept\n" == shown.stdout
