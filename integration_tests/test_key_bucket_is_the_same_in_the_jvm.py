"""The rule that says which bucket a message falls into stands twice: in Python and as an expression of the JVM.

Python's (`plan.elasticity.key_bucket`) is the source; here both see the same random messages.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from samzapy.adapters.spark.lookup import lookup_table, route_column
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.plan.elasticity import key_bucket

SEED = 20260101
PARTITIONS = (("orders", 0), ("orders", 3), ("page.views", 1), ("page.views", 2))
Message = tuple[str, int, int, bytes | None]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch: Path = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[1]")
        .appName("test_key_bucket_is_the_same_in_the_jvm")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def messages(count: int) -> list[Message]:
    luck = random.Random(SEED)
    found: list[Message] = []
    for _ in range(count):
        topic, partition = luck.choice(PARTITIONS)
        key = None if luck.random() < 0.2 else luck.randbytes(luck.choice([0, 1, 3, 4, 7, 8, 31, 32, 33, 100]))
        # Near the floors, and where numbers get long.
        offset = luck.choice([luck.randrange(40), 2**31 + luck.randrange(40), 2**53 + luck.randrange(40)])
        found.append((topic, partition, offset, key))
    return found


def routes_in_the_jvm(
    session: SparkSession, starts: Sequence[tuple[SspKeyBucket, int]], given: Sequence[Message]
) -> list[int]:
    frame = session.createDataFrame(
        [(index, *message) for index, message in enumerate(given)],
        "id long, topic string, partition int, offset long, key binary",
    )
    route = route_column(lookup_table(starts))
    found = frame.select("id", route.alias("route")).orderBy(F.col("id")).collect()
    return [row["route"] for row in found]


def routes_in_python(starts: Sequence[tuple[SspKeyBucket, int]], given: Sequence[Message]) -> list[int]:
    """From the definition: the one bucket that holds the message, unless it lies below that bucket's start."""
    # With one bucket per partition the scan itself begins at the start.
    has_floors = any(ssp_kb.factor > 1 for ssp_kb, _ in starts)
    found = []
    for topic, partition, offset, key in given:
        fitting = [
            route
            for route, (ssp_kb, start) in enumerate(starts)
            if (topic, partition) == (ssp_kb.ssp.stream, ssp_kb.ssp.partition)
            and key_bucket(key, offset, ssp_kb.factor) == ssp_kb.bucket
            and (offset >= start or not has_floors)
        ]
        assert len(fitting) <= 1, "one owner of each message"
        found.append(fitting[0] if fitting else -1)
    return found


def all_buckets(factors: Sequence[int], partitions: Sequence[tuple[str, int]] = PARTITIONS) -> list[SspKeyBucket]:
    return [
        SspKeyBucket(SystemStreamPartition("kafka", topic, partition), bucket, factor)
        for (topic, partition), factor in zip(partitions, factors, strict=True)
        for bucket in range(factor)
    ]


@pytest.mark.parametrize(
    "factors", [(1, 1, 1, 1), (2, 2, 2, 2), (8, 8, 8, 8), (1, 2, 8, 4), (256, 1, 1, 16)], ids=str
)
def test_every_message_has_the_same_route_in_the_jvm_and_in_python(
    session: SparkSession, factors: Sequence[int]
) -> None:
    given = messages(2000)
    luck = random.Random(SEED)
    starts = [(ssp_kb, luck.choice([0, 20, 2**31 + 20, 2**53 + 20])) for ssp_kb in all_buckets(factors)]

    expected = routes_in_python(starts, given)

    assert expected == routes_in_the_jvm(session, starts, given), f"seed {SEED}"
    assert len(set(expected)) >= len(PARTITIONS), "messages of each partition"


def test_buckets_of_others_are_dropped(session: SparkSession) -> None:
    given = messages(2000)
    mine = [ssp_kb for ssp_kb in all_buckets((8, 8, 8, 8)) if ssp_kb.bucket % 3 == 0]
    starts = [(ssp_kb, 0) for ssp_kb in mine]

    expected = routes_in_python(starts, given)

    assert expected == routes_in_the_jvm(session, starts, given), f"seed {SEED}"
    assert -1 in expected


def test_one_topic_alone_needs_no_choice_of_topic(session: SparkSession) -> None:
    given = [message for message in messages(1000) if message[0] == "orders"]
    starts = [(ssp_kb, 10) for ssp_kb in all_buckets((4, 2), PARTITIONS[:2])]

    assert routes_in_python(starts, given) == routes_in_the_jvm(session, starts, given), f"seed {SEED}"


def test_a_topic_that_is_not_granted_has_no_route(session: SparkSession) -> None:
    starts = [(ssp_kb, 0) for ssp_kb in all_buckets((2, 2, 2, 2))]
    frame = session.createDataFrame([("other", 0, 0, b"k")], "topic string, partition int, offset long, key binary")

    taken = frame.select(route_column(lookup_table(starts)).alias("route")).where(F.col("route") >= 0)

    assert [] == taken.collect()
