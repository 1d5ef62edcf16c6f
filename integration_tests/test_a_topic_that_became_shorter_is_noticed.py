"""A broker returns without its last records, as after an unclean election."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from samzapy.adapters.kafka import reading
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.follow import KafkaFollower
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.reading import PartitionReader
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.adapters.lmdb.store import LmdbStateDirectory
from samzapy.config import JobConfig
from samzapy.container.local_state import restore
from samzapy.container.local_state.restore import RestoreJob, catch_up_or_rebuild
from samzapy.errors import TruncatedTopicError
from samzapy.model.topics import changelog_topic, checkpoint_topic
from samzapy.stream.changelog import changelog_key
from samzapy.stream.log import Write
from samzapy.testing.broker import DevBroker
from samzapy.testing.builders import a_grant
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until
from unit_tests.fixtures.container_worlds import a_job

STREAM, JOB = "a-stream", "orders-1"
ROUNDS = 3


def write(log: KafkaLog, number: int) -> None:
    # Its key is one of a changelog, too.
    log.append_atomically([Write(key=changelog_key(b"k%d" % number, b""), value=b"v")])


def segment(broker: DevBroker, topic: str) -> Path:
    return broker.directory / "data" / f"{topic}-0" / f"{0:020}.log"


def cut(broker: DevBroker, sizes: dict[str, int]) -> None:
    """Kill the broker, cut the topics' data files to those sizes, and start it again."""
    broker.kill()
    for topic, size in sizes.items():
        path = segment(broker, topic)
        assert path.stat().st_size > size, "nothing to cut: no fault was injected"
        with path.open("r+b") as file:
            file.truncate(size)
        for name in ("index", "timeindex", "txnindex"):
            path.with_suffix(f".{name}").unlink(missing_ok=True)
        for snapshot in path.parent.glob("*.snapshot"):
            snapshot.unlink()
    # Where the log was known to be whole, and up to where it was replicated.
    for checkpoint in (broker.directory / "data").glob("*-checkpoint"):
        checkpoint.unlink()
    broker.start()


def written(connection: KafkaConnection, broker: DevBroker, topic: str) -> int:
    """Write `ROUNDS` records to a new topic; returns its size after the first one."""
    log = KafkaLog(connection, topic, f"writer-of-{topic}")
    log.take_over()
    write(log, 0)
    # With its marker: a transaction that is cut stays open for ever.
    wait_until(lambda: end_of(connection, topic) == 2, 60.0, "the marker of the first transaction")
    size = segment(broker, topic).stat().st_size
    for number in range(1, ROUNDS):
        write(log, number)
    log.close()
    return size


def test_readers_stop_where_a_topic_lost_its_end_and_grew_beyond_it_before_they_looked(own_broker: DevBroker) -> None:
    checkpoints = checkpoint_topic(JOB)
    make_topics(own_broker.bootstrap_servers, {STREAM: 1, checkpoints: 1})
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    sizes = {topic: written(connection, own_broker, topic) for topic in (STREAM, checkpoints)}
    follower, topics = KafkaFollower(connection, STREAM), KafkaTopics(connection, JOB)
    assert (ROUNDS, ROUNDS) == (len(follower.to_the_end()), len(topics.checkpoint_records()))
    ends = {topic: end_of(connection, topic) for topic in sizes}

    cut(own_broker, sizes)

    for topic, end in ends.items():
        assert end_of(connection, topic) < end, "the topic did not become shorter"
        with closing(KafkaLog(connection, topic, f"another-writer-of-{topic}")) as log:
            log.take_over()
            for number in range(2 * ROUNDS):
                write(log, number)
        assert end_of(connection, topic) > end, "the topic did not grow again"
    with pytest.raises(TruncatedTopicError, match=f"wanted {STREAM}-0 to hold the record at offset"):
        follower.to_the_end()
    with pytest.raises(TruncatedTopicError, match=f"wanted {checkpoints}-0 to hold offset"):
        topics.checkpoint_records()
    follower.close()


@pytest.mark.parametrize(("rounds", "near"), [(0, 0), (2 * ROUNDS, 1_000), (2 * ROUNDS, 0)])
def test_local_state_is_rebuilt_where_its_changelog_lost_its_end_and_grew_beyond_it_while_nothing_ran(
    own_broker: DevBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    rounds: int,
    near: int,
) -> None:
    monkeypatch.setattr(restore, "_NEAR_OFFSETS", near)
    config = a_job()
    topic = changelog_topic(config.job, "sums")
    make_topics(own_broker.bootstrap_servers, {topic: 1})
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    size = written(connection, own_broker, topic)
    before = restored(connection, config, tmp_path, epoch=1)
    assert ["k0", "k1", "k2"] == before
    end = end_of(connection, topic)

    if rounds:
        cut(own_broker, {topic: size})
        assert end_of(connection, topic) < end, "the topic did not become shorter"
        with closing(KafkaLog(connection, topic, "another-writer")) as log:
            log.take_over()
            for number in range(10, 10 + rounds):
                write(log, number)
        assert end_of(connection, topic) > end, "the topic did not grow again"
    after = restored(connection, config, tmp_path, epoch=2)

    if rounds:
        assert "the changelog lost its end and grew again" in caplog.text
        assert ["k0", "k10", "k11", "k12", "k13", "k14", "k15"] == after
    else:
        assert "rebuilt" not in caplog.text
        assert before == after


def restored(connection: KafkaConnection, config: JobConfig, store_dir: Path, *, epoch: int) -> list[str]:
    """Start a task as another execution does; the keys that its local state has then."""
    grant = a_grant(epoch=epoch, execution_id=f"e{epoch}")
    topics = KafkaTopics(connection, config.job)
    job = RestoreJob(
        config=config,
        topics=topics,
        grant=grant,
        bounds={"sums": topics.changelog_bounds([("sums", 0)])["sums", 0]},
        topic_ids=topics.changelog_topic_ids(["sums"]),
        starts={},
        committed={},
        now_ms=1_000,
        write=lambda store, writes: None,
    )
    with closing(catch_up_or_rebuild(LmdbStateDirectory(store_dir / "task", config.stores), job)) as environment:
        transaction = environment.begin()
        try:
            names = [f"k{number}" for number in range(20)]
            return [name for name in names if transaction.get("sums", changelog_key(name.encode(), b"")) is not None]
        finally:
            transaction.abort()


def test_a_follower_reads_on_under_a_leader_that_lost_nothing(own_broker: DevBroker) -> None:
    make_topics(own_broker.bootstrap_servers, {STREAM: 1})
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    written(connection, own_broker, STREAM)
    with closing(KafkaFollower(connection, STREAM)) as follower:
        assert ROUNDS == len(follower.to_the_end())
        for _ in range(2):
            own_broker.kill()
            own_broker.start()
            with closing(KafkaLog(connection, STREAM, f"writer-of-{STREAM}")) as log:
                log.take_over()
                write(log, 0)
            assert 1 == len(follower.to_the_end())


def end_of(connection: KafkaConnection, topic: str) -> int:
    with PartitionReader(connection, topic) as stranger:
        return stranger.end_offset()


def test_readers_and_the_writer_of_a_topic_that_lost_its_end_stop_by_its_name(
    own_broker: DevBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_CATCHES_UP_WITHIN_S", 1.0)
    checkpoints = checkpoint_topic(JOB)
    make_topics(own_broker.bootstrap_servers, {STREAM: 1, checkpoints: 1})
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    logs = {topic: KafkaLog(connection, topic, f"writer-of-{topic}") for topic in (STREAM, checkpoints)}
    sizes = {}
    for topic, log in logs.items():
        log.take_over()
        write(log, 0)
        sizes[topic] = segment(own_broker, topic).stat().st_size
        for number in range(1, ROUNDS):
            write(log, number)
    follower, topics = KafkaFollower(connection, STREAM), KafkaTopics(connection, JOB)
    assert (ROUNDS, ROUNDS) == (len(follower.to_the_end()), len(topics.checkpoint_records()))
    end = logs[STREAM].end_offset()

    cut(own_broker, sizes)

    with PartitionReader(connection, STREAM) as stranger:
        assert stranger.end_offset() < end, "the topic did not become shorter"
    with pytest.raises(TruncatedTopicError, match=f"wanted {STREAM}-0 to end at offset {end} or later"):
        follower.to_the_end()
    with pytest.raises(TruncatedTopicError, match=f"wanted {STREAM}-0 to end at offset {end} or later"):
        logs[STREAM].end_offset()
    with pytest.raises(TruncatedTopicError, match=f"wanted {checkpoints}-0 to end at offset"):
        topics.checkpoint_records()
    with pytest.raises(TruncatedTopicError, match=f"wanted {checkpoints}-0 to end at offset"):
        logs[checkpoints].take_over()
    # The topic may as well become shorter after the take-over.
    logs[checkpoints]._reader = PartitionReader(connection, checkpoints)
    logs[checkpoints].take_over()
    with pytest.raises(TruncatedTopicError, match=f"wanted to append to {checkpoints} behind offset"):
        write(logs[checkpoints], ROUNDS)
    keys = [record.key for record in logs[checkpoints].read()]
    assert changelog_key(b"k%d" % ROUNDS, b"") not in keys, "the append was committed"
    follower.close()
    for log in logs.values():
        log.close()
