"""The rule for the bucket of a message exists in Python and as a JVM expression.

Python's (`plan.elasticity.key_bucket`) is the source; here both see the same random messages. The routes that follow
exist twice as well: a micro-batch has them from the JVM, a worker that reads by itself from `TailRoutes`.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from samzapy.adapters.spark import keyhash
from samzapy.adapters.spark.keyhash import keyhash_ns
from samzapy.adapters.spark.lookup import is_ours, one_row_per_route, route_column
from samzapy.container.task.lookup_table import lookup_table
from samzapy.container.task.tail_routes import TailRoutes
from samzapy.model.grant import BucketStart, Floor
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.plan.elasticity import key_bucket

SEED = 20260101
PARTITIONS = (("orders", 0), ("orders", 3), ("page.views", 1), ("page.views", 2))
Message = tuple[str, int, int, bytes | None]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        # Else Spark's workers are the first python3 in PATH.
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        session = _a_session(tmp_path_factory.mktemp("spark"))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def _a_session(scratch: Path) -> SparkSession:
    return (
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


def messages(count: int) -> list[Message]:
    luck = random.Random(SEED)
    drawn: list[Message] = []
    for _ in range(count):
        topic, partition = luck.choice(PARTITIONS)
        key = None if luck.random() < 0.2 else luck.randbytes(luck.choice([0, 1, 3, 4, 7, 8, 31, 32, 33, 100]))
        # Near the floors, and where numbers get long.
        offset = luck.choice([luck.randrange(40), 2**31 + luck.randrange(40), 2**53 + luck.randrange(40)])
        drawn.append((topic, partition, offset, key))
    return drawn


def routes_in_the_jvm(session: SparkSession, starts: Sequence[BucketStart], given: Sequence[Message]) -> list[int]:
    frame = session.createDataFrame(
        [(index, *message) for index, message in enumerate(given)],
        "id long, topic string, partition int, offset long, key binary",
    )
    route = route_column(lookup_table(starts))
    rows = frame.select("id", route.alias("route")).orderBy(F.col("id")).collect()
    return [row["route"] for row in rows]


def routes_in_python(starts: Sequence[BucketStart], given: Sequence[Message]) -> list[int]:
    """By definition: the bucket that holds the message, unless it is done already."""
    # With one bucket per partition the scan itself begins at the start.
    counts = any(start.ssp_kb.factor > 1 or start.floors for start in starts)
    routes = []
    for topic, partition, offset, key in given:
        fitting = [
            route
            for route, start in enumerate(starts)
            if holds(start.ssp_kb, topic, partition, offset, key)
            and (offset >= start.offset_next or not counts)
            and not any(
                holds(floor.ssp_kb, topic, partition, offset, key) and offset < floor.offset_next
                for floor in start.floors
            )
        ]
        assert len(fitting) <= 1, "one owner of each message"
        routes.append(fitting[0] if fitting else -1)
    return routes


def holds(ssp_kb: SspKeyBucket, topic: str, partition: int, offset: int, key: bytes | None) -> bool:
    is_there = (topic, partition) == (ssp_kb.ssp.stream, ssp_kb.ssp.partition)
    return is_there and key_bucket(key, offset, ssp_kb.factor) == ssp_kb.bucket


def a_start(ssp_kb: SspKeyBucket, offset_next: int = 0, *floors: tuple[SspKeyBucket, int]) -> BucketStart:
    return BucketStart(
        ssp_kb=ssp_kb,
        offset_next=offset_next,
        floors=tuple(Floor(ssp_kb=floor, offset_next=offset) for floor, offset in floors),
    )


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
    starts = [a_start(ssp_kb, luck.choice([0, 20, 2**31 + 20, 2**53 + 20])) for ssp_kb in all_buckets(factors)]

    expected = routes_in_python(starts, given)

    assert expected == routes_in_the_jvm(session, starts, given), f"seed {SEED}"
    assert len(set(expected)) >= len(PARTITIONS), "messages of each partition"


def test_buckets_of_others_are_dropped(session: SparkSession) -> None:
    given = messages(2000)
    mine = [ssp_kb for ssp_kb in all_buckets((8, 8, 8, 8)) if ssp_kb.bucket % 3 == 0]
    starts = [a_start(ssp_kb) for ssp_kb in mine]

    expected = routes_in_python(starts, given)

    assert expected == routes_in_the_jvm(session, starts, given), f"seed {SEED}"
    assert -1 in expected


def test_one_topic_alone_needs_no_choice_of_topic(session: SparkSession) -> None:
    given = [message for message in messages(1000) if message[0] == "orders"]
    starts = [a_start(ssp_kb, 10) for ssp_kb in all_buckets((4, 2), PARTITIONS[:2])]

    assert routes_in_python(starts, given) == routes_in_the_jvm(session, starts, given), f"seed {SEED}"


def test_a_table_too_large_for_an_array_gives_the_same_buckets(session: SparkSession) -> None:
    luck = random.Random(SEED)
    far = SystemStreamPartition("kafka", "orders", 40)
    starts = [a_start(SspKeyBucket(far, half, 2), 5, (SspKeyBucket(far, half + 2, 256), 30)) for half in range(2)]
    given = [("orders", 40, luck.randrange(40), luck.randbytes(3)) for _ in range(2000)]

    assert len(lookup_table(starts).routes) > 4096
    expected = routes_in_python(starts, given)

    assert expected == routes_in_the_jvm(session, starts, given), f"seed {SEED}"
    assert {-1, 0, 1} == set(expected)


def test_a_topic_that_is_not_granted_has_no_route(session: SparkSession) -> None:
    starts = [a_start(ssp_kb) for ssp_kb in all_buckets((2, 2, 2, 2))]
    frame = session.createDataFrame([("other", 0, 0, b"k")], "topic string, partition int, offset long, key binary")

    taken = frame.select(route_column(lookup_table(starts)).alias("route")).where(F.col("route") >= 0)

    assert [] == taken.collect()


def with_floors(luck: random.Random, factors: Sequence[int], finest: int) -> list[BucketStart]:
    """Grants after merges: some parts of each bucket are done beyond its start."""
    starts = []
    for ssp_kb in all_buckets(factors):
        parts = [SspKeyBucket(ssp_kb.ssp, bucket, finest) for bucket in range(ssp_kb.bucket, finest, ssp_kb.factor)]
        done = luck.sample(parts, len(parts) // 2)
        starts.append(a_start(ssp_kb, luck.randrange(20), *((part, luck.randrange(20, 40)) for part in done)))
    return starts


@pytest.mark.parametrize("factors", [(1, 1, 1, 1), (2, 4, 1, 8)], ids=str)
def test_the_jvm_drops_messages_that_are_done_already_bucket_by_bucket(
    session: SparkSession, factors: Sequence[int]
) -> None:
    given = messages(2000)
    starts = with_floors(random.Random(SEED), factors, finest=16)

    expected = routes_in_python(starts, given)

    assert expected == routes_in_the_jvm(session, starts, given), f"seed {SEED}"
    assert len(set(expected)) > sum(factors), "each bucket has messages, and some are dropped"


KEYS = 1_000_000
LENGTH_MAX = 256


def test_a_million_keys_of_every_length_fall_into_the_same_buckets_and_above_or_below_the_same_floors(
    session: SparkSession,
) -> None:
    """Both sides make keys from their number, so that only numbers are passed."""
    floors = random.Random(SEED).choices(range(KEYS), k=LENGTH_MAX)
    ssp = SystemStreamPartition("kafka", "orders", 0)
    # One route for each half, and a floor in each of the 256 buckets of the finest factor.
    starts = [
        a_start(SspKeyBucket(ssp, half, 2), 0, *((SspKeyBucket(ssp, b, 256), floors[b]) for b in range(half, 256, 2)))
        for half in range(2)
    ]
    digest = F.unhex(F.sha2(F.col("id").cast("string"), 512))
    length = F.col("id") % (LENGTH_MAX + 1)
    frame = session.range(0, KEYS, 1, 1).select(
        F.lit("orders").alias("topic"),
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
        F.substring(F.concat(digest, digest, digest, digest), F.lit(1), length.cast("int")).alias("key"),
    )

    table = frame.select(
        route_column(lookup_table(starts)).alias("route"),
        route_column(lookup_table([a_start(ssp_kb) for ssp_kb in all_buckets((256,), PARTITIONS[:1])])).alias(
            "bucket"
        ),
    ).toArrow()

    expected_routes, expected_buckets = [], []
    for number in range(KEYS):
        key = (hashlib.sha512(str(number).encode()).digest() * 4)[: number % (LENGTH_MAX + 1)]
        bucket = key_bucket(key, number, 256)
        expected_buckets.append(bucket)
        expected_routes.append(bucket % 2 if number >= floors[bucket] else -1)
    assert expected_buckets == table.column("bucket").to_pylist()
    assert expected_routes == table.column("route").to_pylist()
    assert {-1, 0, 1} == set(expected_routes)


TABLE_ROWS = 100_000
FACTORS = (1, 2, 4, 8, 64, 256)


def keys_and_offsets(luck: random.Random, count: int) -> tuple[list[bytes | None], list[int]]:
    """Random keys of 0 to 64 bytes, some longer, some repeated, and rows without one."""
    keys: list[bytes | None] = []
    for number in range(count):
        chance = luck.random()
        if chance < 0.05:
            keys.append(None)
        elif chance < 0.06:
            keys.append(luck.randbytes(luck.randrange(65, 4096)))
        elif chance < 0.11:
            keys.append(b"order-%d" % luck.randrange(1000))
        else:
            keys.append(luck.randbytes(number % 65))
    return keys, [luck.randrange(2 ** luck.choice([4, 31, 32, 53, 62])) for _ in keys]


def test_a_hundred_thousand_keys_fall_into_the_same_buckets_of_each_factor(session: SparkSession) -> None:
    keys, offsets = keys_and_offsets(random.Random(SEED), TABLE_ROWS)
    given = pa.table({"key": pa.array(keys, pa.binary()), "offset": pa.array(offsets, pa.int64())})
    frame = session.createDataFrame(given).select(
        "key", "offset", F.lit("orders").alias("topic"), F.lit(0).alias("partition")
    )
    # With the buckets of one partition as the routes, a route is a bucket.
    tables = [lookup_table([a_start(ssp_kb) for ssp_kb in all_buckets((f,), PARTITIONS[:1])]) for f in FACTORS]

    arrow_table = frame.select(
        *(route_column(table).alias(str(factor)) for factor, table in zip(FACTORS, tables, strict=True))
    ).toArrow()

    for factor in FACTORS:
        of_jvm = arrow_table.column(str(factor)).to_pylist()
        differing = [
            (key, offset, bucket)
            for key, offset, bucket in zip(keys, offsets, of_jvm, strict=True)
            if key_bucket(key, offset, factor) != bucket
        ]
        assert [] == differing, f"factor {factor}, seed {SEED}"
        assert set(range(factor)) == set(of_jvm)
    lengths = {len(key) for key in keys if key is not None}
    assert set(range(65)) < lengths
    assert max(lengths) > 1000
    assert any(not _is_text(key) for key in keys if key)


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def a_random_plan(luck: random.Random) -> list[BucketStart]:
    """Routes over topics with any factors, floors and broadcast inputs."""
    starts: list[BucketStart] = []
    for topic in luck.sample(["orders", "page.views", "refunds", "rules"], luck.randrange(1, 4)):
        for partition in luck.sample(range(5), luck.randrange(1, 4)):
            ssp = SystemStreamPartition("kafka", topic, partition)
            if luck.random() < 0.3:
                readers = [f"Partition {number}" for number in range(luck.randrange(1, 5))]
                starts += [a_start(SspKeyBucket(ssp, reader=reader), luck.randrange(30)) for reader in readers]
                continue
            factor = luck.choice([1, 1, 2, 4, 16])
            buckets = luck.sample(range(factor), luck.randrange(1, factor + 1))
            starts += [_a_random_start(luck, SspKeyBucket(ssp, bucket, factor)) for bucket in buckets]
    luck.shuffle(starts)
    return starts


def _a_random_start(luck: random.Random, ssp_kb: SspKeyBucket) -> BucketStart:
    if luck.random() < 0.5:
        return a_start(ssp_kb, luck.randrange(30))
    finest = ssp_kb.factor * luck.choice([2, 4])
    parts = [SspKeyBucket(ssp_kb.ssp, bucket, finest) for bucket in range(ssp_kb.bucket, finest, ssp_kb.factor)]
    done = luck.sample(parts, luck.randrange(1, len(parts)))
    return a_start(ssp_kb, luck.randrange(20), *((part, luck.randrange(20, 50)) for part in done))


def records_of(luck: random.Random, starts: Sequence[BucketStart]) -> list[Message]:
    """Records as a scan has them: of each partition from the first start on."""
    firsts: dict[tuple[str, int], int] = {}
    for start in starts:
        place = start.ssp_kb.ssp.stream, start.ssp_kb.ssp.partition
        firsts[place] = min(start.offset_next, firsts.get(place, start.offset_next))
    return [
        (topic, partition, offset, None if luck.random() < 0.2 else luck.randbytes(luck.randrange(40)))
        for (topic, partition), first in firsts.items()
        for offset in range(first, first + 60)
    ]


@pytest.mark.parametrize("number", range(30))
def test_a_tail_gives_each_record_the_routes_that_the_jvm_gives_it(session: SparkSession, number: int) -> None:
    luck = random.Random(SEED + number)
    starts = a_random_plan(luck)
    given = records_of(luck, starts)
    own = frozenset(luck.sample(range(len(starts)), luck.randrange(1, len(starts) + 1)))
    table = lookup_table(starts)

    in_tail = TailRoutes(table, own)
    of_tail = [sorted(in_tail.of(topic, partition, key, offset)) for topic, partition, offset, key in given]

    frame = session.createDataFrame(
        [(index, *message) for index, message in enumerate(given)],
        "id long, topic string, partition int, offset long, key binary",
    )
    routed = frame.select("id", route_column(table).alias("route")).where(is_ours(F.col("route")))
    of_jvm: list[list[int]] = [[] for _ in given]
    for row in one_row_per_route(routed, table).collect():
        if row["route"] in own:
            of_jvm[row["id"]].append(row["route"])
    assert [sorted(routes) for routes in of_jvm] == of_tail, f"seed {SEED + number}"
    assert any(of_tail)


def test_random_plans_have_floors_and_broadcast_inputs_and_several_topics_and_factors() -> None:
    plans = [a_random_plan(random.Random(SEED + number)) for number in range(30)]
    tables = [lookup_table(starts) for starts in plans]

    assert sum(bool(table.lists) for table in tables) >= 5
    assert sum(table.has_floors for table in tables) >= 5
    assert sum(len(table.bases) > 1 for table in tables) >= 5
    assert len({table.factor for table in tables}) >= 4


@pytest.mark.parametrize("factor", [2, 8, 256])
@pytest.mark.parametrize("has_floors", [False, True], ids=["without floors", "with floors"])
def test_every_virtual_task_gets_every_broadcast_message_exactly_once(
    session: SparkSession, factor: int, has_floors: bool
) -> None:
    """In Samza a broadcast message with a key went to one bucket's task only."""
    luck = random.Random(SEED)
    orders, rules = SystemStreamPartition("kafka", "orders", 0), SystemStreamPartition("kafka", "rules", 1)
    tasks = [f"Partition_0-{bucket}-{factor}" for bucket in range(factor)]
    starts = []
    for bucket, task in enumerate(tasks):
        floor = [(SspKeyBucket(orders, bucket, factor), 20)] if has_floors else []
        starts += [
            a_start(SspKeyBucket(rules, reader=task)),
            a_start(SspKeyBucket(orders, bucket, factor), 0, *floor),
        ]
    keys = [None if luck.random() < 0.2 else luck.randbytes(luck.randrange(20)) for _ in range(100)]
    frame = session.createDataFrame(
        [
            (topic, partition, offset, key)
            for topic, partition in (("rules", 1), ("orders", 0))
            for offset, key in enumerate(keys)
        ],
        "topic string, partition int, offset long, key binary",
    )
    table = lookup_table(starts)

    routed = frame.select("offset", route_column(table).alias("route")).where(is_ours(F.col("route")))
    rows = [(row["route"], row["offset"]) for row in one_row_per_route(routed, table).collect()]

    broadcast = sorted(row for row in rows if row[0] % 2 == 0)
    assert [(2 * number, offset) for number in range(factor) for offset in range(len(keys))] == broadcast
    first = 20 if has_floors else 0
    assert sorted(
        (2 * key_bucket(key, offset, factor) + 1, offset) for offset, key in enumerate(keys) if offset >= first
    ) == sorted(row for row in rows if row[0] % 2 == 1)


def test_the_hash_of_a_key_costs_some_nanoseconds(session: SparkSession) -> None:
    """On a busy machine noise may hide it, but it never reaches the cost of a record."""
    assert 0 <= keyhash_ns(session) < 2000


def test_the_cost_of_the_hash_is_that_of_the_passes_with_it(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass runs in the JVM, and a clock of the test says how long it took."""
    took = keyhash._took_ns

    def by_the_clock(session: SparkSession, column: Column) -> int:
        assert took(session, column) > 0
        return (17 if "xxhash64" in str(column) else 5) * keyhash._KEYS

    monkeypatch.setattr(keyhash, "_took_ns", by_the_clock)

    assert 12.0 == keyhash_ns(session)
