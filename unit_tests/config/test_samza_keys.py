"""Each Samza key that samzapy ignores has a replacement, or a reason to have none."""

from __future__ import annotations

import re

import pytest

from samzapy.config import KEYS, PARTITION_SCHEMES, SAMZA_KEYS, parse_config
from samzapy.config.samza_keys import SAMZA_CLASSES
from samzapy.errors import ConfigError, UnknownConfigKeyError

MINIMAL = {"job.name": "flights", "task.inputs": "kafka.orders"}


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("app.name", "Use job.name."),
        ("task.commit.ms", "Use task.transaction.max.ms."),
        ("systems.kafka.samza.factory", "Not needed: Kafka is the only system."),
        ("systems.kafka.producer.bootstrap.servers", "Use systems.<system>.client.<property>."),
        ("systems.kafka.consumer.zookeeper.connect", "Use systems.<system>.client.<property>."),
        ("stores.sums.factory", "Not needed: a store is an LMDB database"),
        ("stores.sums.rocksdb.ttl.ms", "A state of a task class may have a time to live"),
        ("stores.sums.rocksdb.compression", "Not needed: local state is kept in LMDB files"),
        ("yarn.am.opts", "Not needed: samzapy starts no containers on YARN"),
        ("serializers.registry.json.class", "Not needed: serdes are named bytes"),
        ("metrics.reporter.jmx.class", "Not needed: metrics are read by HTTP"),
        ("streams.orders.samza.msg.serde", "Use systems.<system>.streams.<stream>.samza.<setting>."),
    ],
)
def test_the_error_of_a_samza_key_names_its_replacement(key: str, answer: str) -> None:
    with pytest.raises(
        UnknownConfigKeyError, match=re.escape(f"{key} is a key of Samza that samzapy does not have. {answer}")
    ):
        parse_config({**MINIMAL, key: "x"})


@pytest.mark.parametrize(
    ("key", "value", "answer"),
    [
        (
            "job.systemstreampartition.grouper.factory",
            "org.apache.samza.container.grouper.stream.GroupByPartitionFactory",
            "; it is a class of Samza: use task.partition.scheme=group-by-partition instead of this line",
        ),
        (
            "task.name.grouper.factory",
            "org.apache.samza.container.grouper.task.GroupByContainerCountFactory",
            "; it is a class of Samza: remove the line",
        ),
        ("locationid.provider.factory", "com.example.Racks", "; it is a Java class"),
    ],
)
def test_the_error_of_a_java_class_names_its_replacement(key: str, value: str, answer: str) -> None:
    with pytest.raises(
        ConfigError, match=re.escape(f"{key}: wanted module:Class (groupers:ByCustomer), found {value!r}{answer}")
    ):
        parse_config({**MINIMAL, key: value})


def test_the_schemes_that_replace_classes_exist() -> None:
    named = {scheme for text in SAMZA_CLASSES.values() for scheme in re.findall(r"scheme=([\w-]+)", text)}

    assert named == {"group-by-partition", "group-by-ssp", "all-ssps-to-single-task"}
    assert named < {*PARTITION_SCHEMES}


def test_each_key_of_the_list_is_refused_with_its_own_answer() -> None:
    assert len(SAMZA_KEYS) >= 60
    for known in SAMZA_KEYS:
        key = re.sub(r"<\w+>", "x", known.name)
        with pytest.raises(UnknownConfigKeyError) as refused:
            parse_config({**MINIMAL, key: "x"})

        assert f"{key} is a key of Samza that samzapy does not have. {known.answer}" == str(refused.value)
        assert known.answer.endswith(".") and (known.instead or known.reason)


def test_the_settings_that_replace_others_exist() -> None:
    ours = {re.sub(r"<\w+>", "<>", key.name) for key in KEYS}
    wildcards = {"systems.<>.samza.<>", "systems.<>.streams.<>.samza.<>", "stores.<>.<>"}
    wildcards.add("systems.<>.client.message.max.bytes")
    groups = "|".join(sorted({key.name.partition(".")[0] for key in KEYS}))
    for known in SAMZA_KEYS:
        for name in re.findall(rf"(?<![\w.-])(?:{groups})\.[\w<>.-]*[\w>]", known.instead):
            assert re.sub(r"<\w+>", "<>", name) in ours | wildcards, known
